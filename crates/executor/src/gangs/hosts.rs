//! The names of a gang's nodes, as launchers of parallel programs take them.

use std::collections::BTreeSet;

/// The characters of a name that launchers, their host files and shells pass on as they are.
fn is_plain(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '.' | '-' | '_')
}

/// A name in which everything else is a hyphen.
fn plain(name: &str) -> String {
    name.chars().map(|letter| if is_plain(letter) { letter } else { '-' }).collect()
}

/// The names of hosts for executors with these names: an executor's name up to the colon, which
/// is its host's, or all of it where several of the gang are on one host.
pub(super) fn hosts<'a>(names: impl Iterator<Item = &'a str> + Clone) -> Vec<String> {
    let host = |name: &str| plain(name.split(':').next().unwrap_or_default());
    let short: Vec<String> = names.clone().map(host).collect();
    let is_clear = short.iter().collect::<BTreeSet<_>>().len() == short.len();
    let wanted = if is_clear { short } else { names.map(plain).collect() };
    let mut taken = BTreeSet::new();
    let mut found = Vec::with_capacity(wanted.len());
    for (at, name) in wanted.into_iter().enumerate() {
        let mut name = if name.is_empty() { format!("node-{at}") } else { name };
        while !taken.insert(name.clone()) {
            name = format!("{name}-{at}");
        }
        found.push(name);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(names: &[&str], expected: &[&str]) {
        assert_eq!(hosts(names.iter().copied()), expected);
    }

    #[test]
    fn executors_on_hosts_of_their_own_are_called_by_these() {
        check(&["n1:17", "n2.site:4", "n3"], &["n1", "n2.site", "n3"]);
    }

    #[test]
    fn executors_on_one_host_are_called_by_their_whole_names() {
        check(&["n1:17", "n1:18", "n2:1"], &["n1-17", "n1-18", "n2-1"]);
    }

    #[test]
    fn names_are_plain_and_each_is_there_once() {
        check(&["a b", "a-b", "a\"b", ""], &["a-b", "a-b-1", "a-b-2", "node-3"]);
        check(&["x", "x", "x-1"], &["x", "x-1", "x-1-2"]);
        let many: Vec<String> = (0..500).map(|at| format!("host{}:{at}", at % 250)).collect();
        let found = hosts(many.iter().map(String::as_str));
        assert_eq!(found.iter().collect::<BTreeSet<_>>().len(), 500);
    }
}
