//! Whether what we build upon may be passed on: `deny.toml`, without the tool.

use crate::Finding;
use crate::crates::{list, text};
use serde_json::Value;

/// The licences that `deny.toml` allows.
#[must_use]
pub fn allowed(deny: &str) -> Vec<&str> {
    let Some((_, rest)) = deny.split_once("\nallow = [") else { return Vec::new() };
    let inside = rest.split(']').next().unwrap_or_default();
    inside.split('"').skip(1).step_by(2).collect()
}

/// Whether a licence expression can be met by `allowed` licences alone.
/// `OR` binds weaker than `AND`; a slash is an old way to write `OR`.
#[must_use]
pub fn permits(expression: &str, allowed: &[&str]) -> bool {
    let expression = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = expression.split_whitespace().collect();
    let mut at = 0;
    let met = any(&words, &mut at, allowed);
    met && at == words.len()
}

fn any(words: &[&str], at: &mut usize, allowed: &[&str]) -> bool {
    let mut met = all(words, at, allowed);
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        met |= all(words, at, allowed);
    }
    met
}

fn all(words: &[&str], at: &mut usize, allowed: &[&str]) -> bool {
    let mut met = one(words, at, allowed);
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        met &= one(words, at, allowed);
    }
    met
}

fn one(words: &[&str], at: &mut usize, allowed: &[&str]) -> bool {
    let word = words.get(*at).copied().unwrap_or_default();
    *at += 1;
    if word == "(" {
        let met = any(words, at, allowed);
        let closed = words.get(*at) == Some(&")");
        *at += 1;
        return met && closed;
    }
    if words.get(*at) == Some(&"WITH") {
        let exception = words.get(*at + 1).copied().unwrap_or_default();
        *at += 2;
        return allowed.contains(&format!("{word} WITH {exception}").as_str())
            || allowed.contains(&word);
    }
    allowed.contains(&word)
}

/// Checks the licences of all packages.
#[must_use]
pub fn check(metadata: &Value, deny: &str) -> Vec<Finding> {
    let allowed = allowed(deny);
    list(&metadata["packages"])
        .iter()
        .filter(|package| !permits(text(&package["license"]), &allowed))
        .map(|package| {
            let licence = text(&package["license"]);
            let what = format!("its licence `{licence}` is not among those that deny.toml allows");
            Finding::new(text(&package["name"]), 0, what)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_read() {
        let allowed = allowed("[licenses]\nallow = [\n  \"MIT\",\n  \"Apache-2.0\",\n]\n");
        assert_eq!(allowed, ["MIT", "Apache-2.0"]);
        for (expression, met) in [
            ("MIT", true),
            ("GPL-3.0", false),
            ("MIT OR GPL-3.0", true),
            ("MIT/Apache-2.0", true),
            ("MIT AND ISC", false),
            ("(MIT OR ISC) AND Apache-2.0", true),
            ("ISC OR MIT AND GPL-3.0", false),
            ("Apache-2.0 WITH LLVM-exception OR ISC", true),
            ("", false),
        ] {
            assert_eq!(permits(expression, &allowed), met, "{expression}");
        }
    }
}
