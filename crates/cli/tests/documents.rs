//! What the documents tell people to type exists.

#![allow(clippy::unwrap_used, reason = "a test may fail at once")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

fn help(command: &str) -> String {
    let mut falkon = Command::new(env!("CARGO_BIN_EXE_falkon"));
    let output = falkon.args(command.split(' ')).arg("--help").output().unwrap();
    assert!(output.status.success(), "there is no `falkon {command}`");
    String::from_utf8(output.stdout).unwrap()
}

/// The command lines of a text, each from `falkon` on: in code blocks and
/// between backticks.
fn command_lines(text: &str) -> Vec<&str> {
    let mut lines = Vec::new();
    let mut in_block = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
        } else if in_block {
            let places = line.match_indices("falkon ").map(|(at, _)| at);
            let begins = |at: &usize| *at == 0 || line[..*at].ends_with(' ');
            lines.extend(places.filter(begins).map(|at| &line[at..]));
        } else {
            let quoted = line.split('`').skip(1).step_by(2);
            lines.extend(quoted.filter(|text| text.starts_with("falkon ")));
        }
    }
    lines
}

/// The words that Falkon sees as its own, not as a task's command.
fn own_words(line: &str) -> Vec<&str> {
    let end = line.find(" -- ").unwrap_or(line.len());
    let end = line[..end].find([';', '|', '>', '&', '#', ')']).unwrap_or(end);
    line[..end].split_whitespace().skip(1).collect()
}

fn documents() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut documents: Vec<PathBuf> = ["README.md", "ARCHITECTURE.md", "CHANGELOG.md"]
        .iter()
        .map(|name| root.join(name))
        .collect();
    let examples = [
        "stacking",
        "all-pairs",
        "docking",
        "fmri",
        "mars",
        "moldyn",
        "montage",
        "sort",
        "word-count",
        "mpi",
    ];
    for example in examples {
        documents.push(root.join("examples").join(example).join("README.md"));
    }
    let pages = std::fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    documents.extend(pages.filter(|path| path.extension().is_some_and(|kind| kind == "md")));
    documents
}

/// Commands that have commands of their own.
const FAMILIES: [&str; 4] = ["data", "provision", "archive", "user"];

/// The names of all commands, or of those below one.
fn commands(family: Option<&str>) -> Vec<String> {
    let mut falkon = Command::new(env!("CARGO_BIN_EXE_falkon"));
    let output = falkon.args(family).arg("--help").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let (_, list) = text.split_once("Commands:\n").unwrap();
    let lines = list.lines().take_while(|line| !line.is_empty());
    lines.map(|line| line.split_whitespace().next().unwrap().to_owned()).collect()
}

fn options(help: &str) -> impl Iterator<Item = &str> {
    help.split(|c: char| c.is_whitespace() || ",[]".contains(c)).filter(|w| w.starts_with("--"))
}

#[test]
fn options_mentioned_alone_exist() {
    let below = |name: &String| {
        let family = FAMILIES.contains(&name.as_str()).then(|| commands(Some(name)));
        let below = family.unwrap_or_default().into_iter().filter(|below| below != "help");
        below.map(|below| format!("{name} {below}")).chain([name.clone()]).collect::<Vec<_>>()
    };
    let all = commands(None).into_iter().filter(|name| name != "help");
    let helps: Vec<String> = all.flat_map(|name| below(&name)).map(|name| help(&name)).collect();
    let known: BTreeSet<&str> = helps.iter().flat_map(|help| options(help)).collect();
    let pages = ["cluster", "command-line", "data", "laptop", "task-files"];
    let pages = pages.map(|name| format!("docs/{name}.md"));
    for name in ["README.md"].into_iter().chain(pages.iter().map(String::as_str)) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
        let text = std::fs::read_to_string(path).unwrap();
        let prose = text.split("```").step_by(2);
        for quoted in prose.flat_map(|text| text.split('`').skip(1).step_by(2)) {
            let option = quoted.split_whitespace().next().unwrap_or_default();
            assert!(!option.starts_with("--") || known.contains(option), "{name}: no {option}");
        }
    }
}

#[test]
fn commands_and_options_in_documents_exist() {
    let mut helps: BTreeMap<String, String> = BTreeMap::new();
    let mut checked = 0;
    for path in documents() {
        let text = std::fs::read_to_string(&path).unwrap();
        for line in command_lines(&text) {
            let words = own_words(line);
            let Some(command) = words
                .first()
                .filter(|word| word.chars().all(|c| c.is_ascii_lowercase()) && !word.is_empty())
            else {
                continue;
            };
            let below = words.get(1).filter(|word| {
                FAMILIES.contains(command) && word.chars().all(|c| c.is_ascii_lowercase())
            });
            let command = below.map_or_else(|| (*command).to_owned(), |b| format!("{command} {b}"));
            let help = helps.entry(command.clone()).or_insert_with(|| help(&command));
            for option in words.iter().filter(|word| word.starts_with("--")) {
                let option = option.trim_end_matches([',', '.']).split('=').next().unwrap();
                let known = options(help).any(|known| known == option);
                assert!(known, "{}: `{line}`: there is no {option}", path.display());
                checked += 1;
            }
        }
    }
    assert!(checked > 20, "only {checked} options were found");
    for expected in ["run", "start", "executor", "submit", "completions"] {
        assert!(helps.contains_key(expected), "no document says what `falkon {expected}` does");
    }
}
