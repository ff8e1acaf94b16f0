//! The encoding, pinned: bytes that were sent yesterday must mean the same
//! tomorrow, in a message from an older peer and in a journal.
//!
//! `golden.txt` holds the protocol version and each example's bytes. If a
//! change of the encoding is meant, raise
//! [`PROTOCOL_VERSION`](falkon_wire::message::PROTOCOL_VERSION), and the journal's
//! format version if a record contains what has changed, and write the file, the
//! corpus and Python's version anew: `FALKON_WRITE_GOLDEN=1 cargo test -p
//! falkon-wire`.

use crate::corpus;
use crate::examples;
use falkon_wire::message::PROTOCOL_VERSION;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Whether the files are to be written anew.
pub(crate) fn write_anew() -> bool {
    std::env::var_os("FALKON_WRITE_GOLDEN").is_some()
}

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/wire/golden.txt")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn render() -> String {
    let mut text = format!("protocol {PROTOCOL_VERSION}\n");
    for (name, bytes) in examples::all() {
        text.push_str(&format!("{name} {}\n", hex(&bytes)));
    }
    text
}

#[test]
fn the_encoding_has_not_changed() {
    if write_anew() {
        std::fs::write(path(), render()).unwrap();
    }
    let text = std::fs::read_to_string(path()).unwrap();
    let golden: BTreeMap<&str, &str> =
        text.lines().filter_map(|line| line.split_once(' ')).collect();
    let version = PROTOCOL_VERSION.to_string();
    assert_eq!(golden.get("protocol"), Some(&version.as_str()), "golden.txt is of another version");
    let examples = examples::all();
    for (name, bytes) in &examples {
        let found = hex(bytes);
        assert_eq!(
            golden.get(name.as_str()),
            Some(&found.as_str()),
            "the encoding of {name} is new or has changed: see the top of golden.rs"
        );
    }
    assert_eq!(golden.len(), examples.len() + 1, "golden.txt has examples that there are not");
}

#[test]
fn python_speaks_this_version() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../python/falkon/_program.py");
    let text = std::fs::read_to_string(&path).unwrap();
    let expected = format!("PROTOCOL_VERSION = {PROTOCOL_VERSION}");
    let is_version = |line: &&str| line.starts_with("PROTOCOL_VERSION = ");
    let line = text.lines().find(is_version).expect("a line with the version").to_owned();
    if write_anew() && line != expected {
        std::fs::write(&path, text.replacen(&line, &expected, 1)).unwrap();
        return;
    }
    assert_eq!(line, expected, "_program.py: see the top of golden.rs");
}

#[test]
fn the_corpus_has_every_example() {
    if write_anew() {
        corpus::write();
    }
    let corpus: Vec<Vec<u8>> = corpus::read().into_values().collect();
    for (name, bytes) in corpus::seeds() {
        assert!(corpus.contains(&bytes), "{name} is missing: see the top of golden.rs");
    }
}
