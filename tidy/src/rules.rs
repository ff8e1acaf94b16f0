//! Rules that look at one file at a time.

use crate::Finding;
use crate::code::{bare, words};
use crate::texts::no_decision_by_an_error_s_text;
use crate::tree::File;

/// Lines that a file may have without saying at its top why it is longer.
pub const FILE_LINES_MAX: usize = 700;
/// Lines at the top of a file among which that note must stand.
const NOTE_LINES: usize = 20;
/// How the note begins.
pub const LONG_BECAUSE: &str = "This file is long because";

/// Everything a file can be asked alone.
#[must_use]
pub fn all(file: &File) -> Vec<Finding> {
    let rules = [
        core_is_pure,
        no_stub,
        no_foreign_path,
        no_sleep_in_tests,
        length,
        names,
        limits,
        no_decision_by_an_error_s_text,
    ];
    rules.iter().flat_map(|rule| rule(file)).collect()
}

fn is_rust(file: &File) -> bool {
    file.path.ends_with(".rs")
}

/// The findings of `find` on the bare code of a file, line by line.
fn by_line(file: &File, find: impl Fn(&str) -> Option<String>) -> Vec<Finding> {
    let code = bare(&file.text);
    let lines = code.lines().enumerate();
    lines.filter_map(|(at, line)| Some(Finding::new(&file.path, at + 1, find(line)?))).collect()
}

/// What the core must not touch: everything through which a clock, a random
/// source, the environment, another thread or the outside comes in, or through
/// which it could depend on hash order.
const IMPURE: [&str; 27] = [
    "fs",
    "net",
    "io",
    "process",
    "thread",
    "env",
    "os",
    "Instant",
    "SystemTime",
    "UNIX_EPOCH",
    "HashMap",
    "HashSet",
    "RandomState",
    "DefaultHasher",
    "hash_map",
    "hash_set",
    "rand",
    "getrandom",
    "thread_local",
    "atomic",
    "Mutex",
    "RwLock",
    "mpsc",
    "println",
    "eprintln",
    "print",
    "eprint",
];

/// The core reads no clock, no random source and no environment, starts no
/// thread, does no IO, and does not depend on hash order.
fn core_is_pure(file: &File) -> Vec<Finding> {
    if !file.path.starts_with("crates/core/src/") || !is_rust(file) {
        return Vec::new();
    }
    by_line(file, |line| {
        // Modules of `std` count where they are named as such; the other
        // names everywhere.
        let of_std = line.contains("std::") || line.contains("core::");
        let found = words(line)
            .find(|word| IMPURE.contains(word) && (of_std || !IMPURE[..7].contains(word)))?;
        Some(format!("the core is pure: `{found}` belongs into a shell"))
    })
}

/// Nothing is left for later.
fn no_stub(file: &File) -> Vec<Finding> {
    // In pieces, so that this file does not find itself.
    let marks =
        [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X"), concat!("HA", "CK")];
    let macros = [concat!("todo", "!"), concat!("unimplemented", "!")];
    let lines = file.text.lines().enumerate();
    lines
        .filter_map(|(at, line)| {
            let mark = words(line).find(|word| marks.contains(word));
            let found = mark.or_else(|| macros.into_iter().find(|name| line.contains(name)))?;
            Some(Finding::new(&file.path, at + 1, format!("`{found}`: do it, or leave it out")))
        })
        .collect()
}

/// No path of the machine that somebody worked on.
fn no_foreign_path(file: &File) -> Vec<Finding> {
    let places = [
        concat!("/", "work/"),
        concat!("/", "root/"),
        concat!("/", "home/"),
        concat!("/", "Users/"),
    ];
    let mut findings = Vec::new();
    for (at, line) in file.text.lines().enumerate() {
        for place in places {
            let begins = |at: &usize| {
                let before = line[..*at].chars().next_back();
                !before.is_some_and(|c| c.is_alphanumeric() || "_.-}~*/".contains(c))
            };
            if line.match_indices(place).map(|(at, _)| at).any(|at| begins(&at)) {
                let what = format!("`{place}` is a place on one machine: name it another way");
                findings.push(Finding::new(&file.path, at + 1, what));
            }
        }
    }
    findings
}

/// The mark that a sleep in a test needs on the line before, with its reason.
const SLEEP_MARK: &str = "sleeps because";

/// Tests wait for what they wait for, not for time to pass.
fn no_sleep_in_tests(file: &File) -> Vec<Finding> {
    if !is_rust(file) {
        return Vec::new();
    }
    let all = file.path.contains("/tests/") || file.path.ends_with("/tests.rs");
    let original: Vec<&str> = file.text.lines().collect();
    let mut in_tests = all;
    let mut findings = Vec::new();
    for (at, line) in bare(&file.text).lines().enumerate() {
        // Tests stand last in a file.
        in_tests |= line.contains("#[cfg(test)]");
        let sleeps = line.contains("thread::sleep") || line.contains("time::sleep(");
        let explained =
            at.checked_sub(1).is_some_and(|before| original[before].contains(SLEEP_MARK));
        if in_tests && sleeps && !explained {
            let what = "a test sleeps: wait for the thing itself, or say before why it \
                        `sleeps because`";
            findings.push(Finding::new(&file.path, at + 1, what));
        }
    }
    findings
}

/// Files fit a head.
fn length(file: &File) -> Vec<Finding> {
    let lines = file.text.lines().count();
    let explained = file.text.lines().take(NOTE_LINES).any(|line| line.contains(LONG_BECAUSE));
    if !is_rust(file) || lines <= FILE_LINES_MAX || explained {
        return Vec::new();
    }
    let what = format!(
        "{lines} lines, and {FILE_LINES_MAX} are allowed: split it, or say at its top: \
         {LONG_BECAUSE} …"
    );
    vec![Finding::new(&file.path, 0, what)]
}

/// Names that say nothing.
const VAGUE: [&str; 9] =
    ["util", "utils", "common", "helper", "helpers", "misc", "manager", "stuff", "mod"];

/// Names say what a thing is.
fn names(file: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    for part in file.path.split('/') {
        let stem = part.split('.').next().unwrap_or(part);
        if VAGUE.contains(&stem) {
            let what = format!("`{part}` says nothing: name it after what it is");
            findings.push(Finding::new(&file.path, 0, what));
        }
    }
    if is_rust(file) {
        findings.extend(by_line(file, |line| {
            let mut words = words(line).skip_while(|word| !["fn", "struct", "mod"].contains(word));
            let (kind, name) = (words.next()?, words.next()?);
            let vague = match kind {
                "fn" => name.starts_with("get_"),
                "struct" => {
                    ["Manager", "Helper", "Util", "Utils"].iter().any(|s| name.ends_with(s))
                }
                _ => VAGUE.contains(&name),
            };
            vague.then(|| format!("`{name}` says nothing: name it after what it gives or is"))
        }));
    }
    findings
}

/// What a bound may be counted in.
const UNITS: [&str; 33] = [
    "TASKS",
    "RUNS",
    "BYTES",
    "MICROS",
    "MS",
    "EXECUTORS",
    "REPORTS",
    "NEEDS",
    "ALTERNATIVES",
    "LOSSES",
    "FAULTS",
    "DOUBLINGS",
    "MESSAGES",
    "INSTANCES",
    "CONNECTIONS",
    "OBJECTS",
    "NAMES",
    "HOLDERS",
    "INTERVALS",
    "PAGES",
    "SNAPSHOTS",
    "MEMBERS",
    "ARCHIVES",
    "CLASSES",
    "RELAYS",
    "SUBMISSIONS",
    "STRIPES",
    "EVENTS",
    "NODES",
    "RANKS",
    "GANGS",
    "QUEUES",
    "REQUESTS",
];

/// Every bound of the core names its unit last (before `MAX` or `MIN`).
fn limits(file: &File) -> Vec<Finding> {
    if file.path != "crates/core/src/limits.rs" {
        return Vec::new();
    }
    by_line(file, |line| {
        let name = line.trim_start().strip_prefix("pub const ")?.split(':').next()?;
        let stem = name.trim_end_matches("_MAX").trim_end_matches("_MIN");
        let unit = stem.rsplit('_').next().unwrap_or(stem);
        (!UNITS.contains(&unit)).then(|| format!("`{name}` does not end with its unit"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines on which `rule` finds something.
    fn lines(rule: fn(&File) -> Vec<Finding>, path: &str, text: &str) -> Vec<usize> {
        let file = File { path: path.to_owned(), text: text.to_owned() };
        rule(&file).into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn impurity_is_found_in_the_core_alone() {
        let text = "use std::collections::BTreeMap;\nuse std::{fmt, fs};\n// HashMap\n\
                    fn f(m: HashMap<u8, u8>) {}\nlet process = 1;\nstd::time::Instant::now();";
        assert_eq!(lines(core_is_pure, "crates/core/src/a.rs", text), [2, 4, 6]);
        assert!(lines(core_is_pure, "crates/net/src/a.rs", text).is_empty());
    }

    #[test]
    fn stubs_are_found() {
        let text = concat!("a\n// TO", "DO\ntodo", "!()\n", "toDO\n");
        assert_eq!(lines(no_stub, "README.md", text), [2, 3]);
    }

    #[test]
    fn foreign_paths_are_found() {
        let text =
            concat!("see /", "work/x\n$HOME/", "work/x\n(/", "root/y)\nhttp://a/", "work/\n");
        assert_eq!(lines(no_foreign_path, "a.md", text), [1, 3]);
    }

    #[test]
    fn sleeps_are_found_in_tests_alone() {
        let sleep = "thread::sleep(x);\n";
        assert!(lines(no_sleep_in_tests, "a/src/b.rs", sleep).is_empty());
        assert_eq!(lines(no_sleep_in_tests, "a/tests/b.rs", sleep), [1]);
        let marked = format!("// It sleeps because it must.\n{sleep}{sleep}");
        assert_eq!(lines(no_sleep_in_tests, "a/tests/b.rs", &marked), [3]);
        let inner = format!("{sleep}#[cfg(test)]\nmod tests {{\n{sleep}}}");
        assert_eq!(lines(no_sleep_in_tests, "a/src/b.rs", &inner), [4]);
    }

    #[test]
    fn long_files_need_a_note() {
        let long = "\n".repeat(FILE_LINES_MAX + 1);
        assert_eq!(lines(length, "a.rs", &long), [0]);
        assert!(lines(length, "a.md", &long).is_empty());
        assert!(lines(length, "a.rs", &format!("//! {LONG_BECAUSE} of a table.{long}")).is_empty());
    }

    #[test]
    fn vague_names_are_found() {
        assert_eq!(lines(names, "a/utils.rs", ""), [0]);
        assert_eq!(lines(names, "a/mod.rs", ""), [0]);
        assert_eq!(lines(names, "a/helpers/b.rs", ""), [0]);
        let text = "fn get_x() {}\npub struct PoolManager;\nfn give() {}\nmod utils;\n// fn get_y";
        assert_eq!(lines(names, "a/b.rs", text), [1, 2, 4]);
    }

    #[test]
    fn bounds_without_unit_are_found() {
        let text = "pub const A_TASKS_MAX: u64 = 1;\npub const PREFETCH_MAX: u64 = 1;\n\
                    pub const WAIT_MICROS: u64 = 1;\npub const WAIT: u64 = 1;";
        assert_eq!(lines(limits, "crates/core/src/limits.rs", text), [2, 4]);
    }
}
