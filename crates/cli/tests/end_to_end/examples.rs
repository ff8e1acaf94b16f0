//! The examples that are scripts.

use crate::fixture::{Running, Site};
use falkon_trials::{skip, trial};
use std::path::Path;
use std::process::{Command, Stdio};

#[trial]
fn an_ensemble_of_mpi_programs_comes_to_the_same_as_one_process() {
    let version = Command::new("mpicc.mpich").arg("-show").stdout(Stdio::null()).status();
    if !version.is_ok_and(|status| status.success()) {
        skip("MPICH and its compiler are not there");
    }
    let site = Site::new();
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    // Ranks listen at what networks there are, and other tests make some and take them away.
    let mut run = site.program("unshare");
    let up = "ip link set lo up && exec \"$@\"";
    run.args(["--net", "sh", "-c", up, "sh"]).arg(examples.join("mpi/run.sh"));
    run.arg("20").env("FALKON", env!("CARGO_BIN_EXE_falkon")).env("OUT", site.path("out"));
    run.envs([("MPICC", "mpicc.mpich"), ("MPIEXEC", "mpiexec.mpich")]);
    let ran = Running::start(run).finish();
    if ran.err.starts_with("unshare:") {
        skip("a network namespace cannot be made here");
    }
    let ran = ran.exits(0);
    for part in ["20 members on 2 nodes each", "one process computed the same for 10 of them"] {
        assert!(ran.text().contains(part), "{ran}");
    }
    site.left().wait_for_none();
}

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
