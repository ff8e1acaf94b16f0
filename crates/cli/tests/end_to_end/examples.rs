//! The examples that are scripts.

use crate::fixture::{Running, Site};
use falkon_trials::{skip, trial};
use std::path::Path;
use std::process::{Command, Stdio};

#[trial]
fn all_pairs_come_to_the_same_as_in_one_process() {
    let mut python = Command::new("python3");
    let there = python.args(["-c", "import lzma"]).stderr(Stdio::null()).status();
    if !there.is_ok_and(|status| status.success()) {
        skip("python3 with lzma is not there");
    }
    let site = Site::new();
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut run = site.program(examples.join("all-pairs/run.sh"));
    run.arg("4").env("FALKON", env!("CARGO_BIN_EXE_falkon")).env("OUT", site.path("out"));
    let ran = Running::start(run).finish().exits(0);
    let out = ran.text();
    for part in ["both wrote the same bytes", "4 files, 16 pairs", "that was overhead: "] {
        assert!(out.contains(part), "{ran}");
    }
    assert_eq!(site.read("out/matrix.tsv").lines().count(), 16);
    // Each file was read once, the program too.
    ran.says("data: 48 inputs").says("89.6 % (");
    let mut run = site.program(examples.join("all-pairs/run.sh"));
    run.arg("many");
    Running::start(run).finish().exits(2).says("FILES must be a number");
}
