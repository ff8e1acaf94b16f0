//! What the documents tell people to type to `falkon-lab` exists.

#![allow(clippy::unwrap_used, reason = "a test may fail at once")]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

fn help(words: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_falkon-lab")).args(words).arg("--help").output();
    let output = output.unwrap();
    assert!(output.status.success(), "there is no `falkon-lab {}`", words.join(" "));
    String::from_utf8(output.stdout).unwrap()
}

/// The words of each command line of a text, those with placeholders aside.
fn command_lines(text: &str) -> Vec<Vec<&str>> {
    let places = text.match_indices("falkon-lab ").map(|(at, _)| &text[at..]);
    let lines = places.map(|rest| {
        let end = rest.find(['`', '"', '\n', ',', ';', ')', '(', '[']).unwrap_or(rest.len());
        rest[..end].split_whitespace().skip(1).collect::<Vec<_>>()
    });
    lines.filter(|words| matches!(words.first(), Some(&"bench" | &"papers"))).collect()
}

#[test]
fn commands_and_options_in_documents_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let pages = std::fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let pages = pages.filter(|path| path.extension().is_some_and(|kind| kind == "md"));
    let files = ["README.md", "CHANGELOG.md", "bench/README.md", "bench/figures.toml"];
    let mut helps: BTreeMap<Vec<&str>, String> = BTreeMap::new();
    let texts: Vec<(String, String)> = pages
        .chain(files.map(|file| root.join(file)))
        .map(|path| (path.display().to_string(), std::fs::read_to_string(&path).unwrap()))
        .collect();
    for (path, text) in &texts {
        for words in command_lines(text) {
            let is_own = |word: &&&str| word.chars().all(|c| c.is_ascii_lowercase() || c == '-');
            let own =
                words.iter().take(2).take_while(|word| is_own(word) && !word.starts_with('-'));
            // A part of the papers is an argument, not a command.
            let count = if words[0] == "papers" { 1 } else { own.count() };
            let help =
                helps.entry(words[..count].to_vec()).or_insert_with(|| help(&words[..count]));
            for option in words[count..].iter().filter(|word| word.starts_with("--")) {
                let option = option.split('=').next().unwrap();
                assert!(help.contains(option), "{path}: `{words:?}`: there is no {option}");
            }
            if let (true, Some(part)) = (words[0] == "papers", words.get(1)) {
                assert!(help.contains(part), "{path}: `{words:?}`: there is no {part}");
            }
        }
    }
    assert!(helps.len() > 12, "only {} commands were found", helps.len());
}

#[test]
fn without_a_program_to_measure_nothing_is_measured() {
    let mut lab = Command::new(env!("CARGO_BIN_EXE_falkon-lab"));
    let output = lab.args(["bench", "memory"]).env("FALKON", "/none/falkon").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("there is no /none/falkon: build it with make"), "{error}");
}
