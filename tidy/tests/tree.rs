//! The tree keeps the rules.

#![allow(clippy::unwrap_used, reason = "a test may fail at once")]

use falkon_tidy::{
    Finding, crates, documents, figures, imports, licences, messages, protocol, rules, tree, trials,
};

fn assert_none(mut findings: Vec<Finding>) {
    findings.sort();
    let lines: Vec<String> = findings.iter().map(Finding::to_string).collect();
    assert!(lines.is_empty(), "{} findings:\n{}", lines.len(), lines.join("\n"));
}

#[test]
fn every_file_keeps_the_rules() {
    let files = tree::files(&tree::root()).unwrap();
    assert!(files.iter().any(|file| file.path == "crates/core/src/limits.rs"));
    assert_none(files.iter().flat_map(rules::all).collect());
}

#[test]
fn every_test_has_a_harness_that_runs_it() {
    let files = tree::files(&tree::root()).unwrap();
    assert_none(trials::check(&files));
}

#[test]
fn links_lead_somewhere() {
    let root = tree::root();
    let files = tree::files(&root).unwrap();
    assert_none(documents::check(&files, &root));
}

#[test]
fn a_command_prints_every_measured_figure() {
    assert_none(figures::check(&tree::files(&tree::root()).unwrap()));
}

#[test]
fn the_page_of_troubleshooting_has_messages_of_the_program() {
    assert_none(messages::check(&tree::files(&tree::root()).unwrap()));
}

#[test]
fn crates_depend_in_one_direction() {
    assert_none(crates::directions(&crates::metadata(&tree::root(), false).unwrap()));
}

#[test]
fn python_modules_import_each_other_without_a_circle() {
    let files = tree::files(&tree::root()).unwrap();
    assert!(files.iter().any(|file| file.path == "python/falkon/_session.py"));
    assert_none(imports::check(&files));
}

#[test]
fn licences_are_permissive() {
    let root = tree::root();
    let deny = std::fs::read_to_string(root.join("deny.toml")).unwrap();
    let metadata = crates::metadata(&root, true).unwrap();
    assert!(metadata["packages"].as_array().unwrap().len() > 20);
    assert_none(licences::check(&metadata, &deny));
}

#[test]
fn the_protocol_s_document_says_what_the_codec_does() {
    let files = tree::files(&tree::root()).unwrap();
    let document = files.iter().find(|file| file.path == "docs/protocol.md").unwrap();
    if std::env::var_os("FALKON_WRITE_GOLDEN").is_some() {
        let text = protocol::rewritten(&files, document);
        std::fs::write(tree::root().join(&document.path), text).unwrap();
        return;
    }
    assert_none(protocol::check(&files, document));
    assert_none(protocol::versions(&files, document));
}
