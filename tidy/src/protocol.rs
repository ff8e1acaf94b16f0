//! Whether `docs/protocol.md` says what the codec does: the lists of fields
//! and tags in `crates/wire`, and of a submission's in the core, are the protocol.

use crate::Finding;
use crate::code::bare;
use crate::tree::File;

/// The file beside those of `crates/wire` that lists fields: what a submission is
/// made of.
const SUBMISSION: &str = "crates/core/src/task.rs";

/// The lines that the document must have for the types of a file: one per struct,
/// one per variant of an enum.
#[must_use]
pub fn lines(file: &File) -> Vec<String> {
    let code = bare(&file.text);
    let mut lines = Vec::new();
    for (kind, rest) in [
        ("struct", "wire_struct!("),
        ("struct", "$each!("),
        ("enum", "wire_enum!("),
        ("enum", "wire_number!("),
    ]
    .into_iter()
    .flat_map(|(kind, call)| code.split(call).skip(1).map(move |rest| (kind, rest)))
    {
        let Some((name, rest)) = rest.split_once('{') else { continue };
        let name = name.trim();
        // The macros' own definitions name no type.
        if name.is_empty() || name.contains('$') {
            continue;
        }
        let body = &rest[..closing(rest)];
        match kind {
            "struct" => {
                let later = rest[body.len() + 1..].trim_start().strip_prefix("later {");
                let later = later.map(|rest| fields(&rest[..closing(rest)]));
                let later = later.map_or(String::new(), |later| format!("; later {later}"));
                lines.push(format!("- `{name}`: {}{later}", fields(body)));
            }
            _ => lines.extend(variants(body).map(|line| format!("- `{name}` {line}"))),
        }
    }
    lines
}

/// Where the brace that is open at the beginning closes.
fn closing(text: &str) -> usize {
    let mut depth = 1;
    for (at, c) in text.char_indices() {
        depth += match c {
            '{' | '(' => 1,
            '}' | ')' => -1,
            _ => 0,
        };
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

fn fields(list: &str) -> String {
    let names = list.split(',').map(str::trim).filter(|name| !name.is_empty());
    names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// `0 Name: fields` for each `0 => Name { fields }` or `0 => Name(fields)`.
fn variants(body: &str) -> impl Iterator<Item = String> {
    let parts: Vec<&str> = body.split("=>").collect();
    let tag = |before: &str| {
        let digits = before.trim_end().rsplit(|c: char| !c.is_ascii_digit()).next();
        digits.unwrap_or_default().to_owned()
    };
    let variant = move |pair: &[&str]| {
        let after = pair[1].trim_start();
        let end = after.find(|c: char| !c.is_alphanumeric()).unwrap_or(after.len());
        let (name, rest) = after.split_at(end);
        let rest = rest.trim_start();
        let inside = match rest.starts_with(['{', '(']) {
            true => fields(&rest[1..1 + closing(&rest[1..])]),
            false => String::new(),
        };
        let colon = if inside.is_empty() { "" } else { ": " };
        format!("{} `{name}`{colon}{inside}", tag(pair[0]))
    };
    parts.windows(2).map(variant).collect::<Vec<_>>().into_iter()
}

/// The lines that the document must have for all of `files`.
fn asked(files: &[File]) -> Vec<String> {
    files
        .iter()
        .filter(|file| file.path.starts_with("crates/wire/src/") || file.path == SUBMISSION)
        .flat_map(lines)
        .collect()
}

/// Checks that the document has every line that `files` ask for, and no other
/// such line.
#[must_use]
pub fn check(files: &[File], document: &File) -> Vec<Finding> {
    let asked = asked(files);
    let said: Vec<&str> = document.text.lines().filter(|line| line.starts_with("- `")).collect();
    let missing = asked.iter().filter(|line| !said.contains(&line.as_str()));
    let missing = missing.map(|line| Finding::new(&document.path, 0, format!("is to say: {line}")));
    let stale = said.iter().filter(|line| !asked.iter().any(|asked| asked == *line));
    let stale = stale.map(|line| Finding::new(&document.path, 0, format!("is not so: {line}")));
    missing.chain(stale).collect()
}

/// The document with the lines that `files` ask for: those of structs and
/// variants that it has are brought up to date or left out, and variants that
/// it lacks follow those before them. A type that it does not have at all is
/// somebody's to put where it is explained.
#[must_use]
pub fn rewritten(files: &[File], document: &File) -> String {
    let asked = asked(files);
    let has = |wanted: &str| document.text.lines().any(|line| key(line) == key(wanted));
    let mut text = String::new();
    for line in document.text.lines() {
        let found = asked.iter().position(|asked| key(asked) == key(line));
        match found {
            None if line.starts_with("- `") => {}
            None => text.extend([line, "\n"]),
            Some(at) => {
                let new = asked[at + 1..].iter().take_while(|next| {
                    let type_of = |line: &str| line.split('`').nth(1).map(str::to_owned);
                    type_of(next) == type_of(line) && !has(next)
                });
                for line in std::iter::once(&asked[at]).chain(new) {
                    text.extend([line.as_str(), "\n"]);
                }
            }
        }
    }
    text
}

/// What a line is about: a struct, or a variant with its tag.
fn key(line: &str) -> Option<&str> {
    let line = line.strip_prefix("- `")?;
    Some(line.split_once("`: ").map_or(line.trim_end_matches('`'), |(key, _)| key))
}

/// The version that a file declares as `PROTOCOL_VERSION`, if it declares one.
fn version(file: &File) -> Option<&str> {
    let line = file.text.lines().find(|line| {
        let name = line.trim_start_matches("pub const ");
        name.starts_with("PROTOCOL_VERSION") && line.contains('=')
    })?;
    Some(line.rsplit('=').next()?.trim().trim_end_matches(';'))
}

/// Checks that all declarations of the protocol's version, and the document's
/// title, agree: the Python package has one of its own.
#[must_use]
pub fn versions(files: &[File], document: &File) -> Vec<Finding> {
    let declared: Vec<(&File, &str)> =
        files.iter().filter_map(|file| Some((file, version(file)?))).collect();
    let Some((_, first)) = declared.first() else { return Vec::new() };
    let titled = format!("# The protocol, version {first}");
    let title = (document.text.lines().next() != Some(titled.as_str())).then_some(document);
    let others = declared.iter().filter(|(_, version)| version != first).map(|(file, _)| *file);
    let wrong = others.chain(title);
    wrong.map(|file| Finding::new(&file.path, 0, format!("the version is {first}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_and_tags_are_read() {
        let text = "macro_rules! wire_enum { () => { wire_enum!($x {}) } }\n\
                    wire_struct!(Point { x, y });\n\
                    wire_struct!(Line { x } later { y, z });\n\
                    wire_enum!(Shape {\n    0 => Empty,\n    1 => Circle { at, radius },\n    \
                    12 => Many(shapes),\n});";
        let path = "crates/wire/src/a.rs".to_owned();
        let file = File { path, text: text.to_owned() };
        let expected = [
            "- `Point`: `x`, `y`",
            "- `Line`: `x`; later `y`, `z`",
            "- `Shape` 0 `Empty`",
            "- `Shape` 1 `Circle`: `at`, `radius`",
            "- `Shape` 12 `Many`: `shapes`",
        ];
        assert_eq!(lines(&file), expected);
        let document = |lines: &[&str]| File { path: "p.md".to_owned(), text: lines.join("\n") };
        assert!(check(std::slice::from_ref(&file), &document(&expected)).is_empty());
        assert_eq!(check(std::slice::from_ref(&file), &document(&expected[1..])).len(), 1);
        let stale = [&expected[..], &["- `Shape` 2 `Square`"]].concat();
        assert_eq!(check(std::slice::from_ref(&file), &document(&stale)).len(), 1);
        let old = document(&[
            "Words.",
            "- `Point`: `x`",
            "- `Line`: `x`",
            "- `Shape` 0 `Empty`",
            "- `Shape` 12 `Many`: `shapes`",
            "- `Gone`",
        ]);
        let new = [&["Words."], &expected[..], &[""]].concat().join("\n");
        assert_eq!(rewritten(&[file], &old), new);
    }

    #[test]
    fn versions_that_differ_are_found() {
        let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
        let files = |python: &str| {
            [
                file("a.rs", "use x::PROTOCOL_VERSION;\npub const PROTOCOL_VERSION: u16 = 7;\n"),
                file("a.py", python),
            ]
        };
        let document = |version: &str| file("p.md", &format!("# The protocol, version {version}"));
        assert!(versions(&files("PROTOCOL_VERSION = 7\n"), &document("7")).is_empty());
        assert_eq!(versions(&files("PROTOCOL_VERSION = 6\n"), &document("7")).len(), 1);
        assert_eq!(versions(&files("PROTOCOL_VERSION = 7\n"), &document("6")).len(), 1);
    }
}
