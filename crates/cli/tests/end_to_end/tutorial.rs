//! The tutorial's commands run as they stand.

use crate::fixture::{Running, Site};
use falkon_trials::{skip, trial};
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// A block of commands, and the output that the page shows below it.
struct Step {
    commands: String,
    shown: String,
}

/// The `sh` blocks of a page, each with the `text` block that follows it.
fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for block in page.split("```").skip(1).step_by(2) {
        match block.split_once('\n').unwrap() {
            ("sh", commands) => {
                steps.push(Step { commands: commands.to_owned(), shown: String::new() });
            }
            ("text", shown) => shown.clone_into(&mut steps.last_mut().unwrap().shown),
            _ => {}
        }
    }
    steps
}

/// Tasks end in any order.
fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[trial]
fn the_tutorial_prints_what_it_shows() {
    let mut python = Command::new("python3");
    if !python.arg("-V").stdout(Stdio::null()).status().is_ok_and(|status| status.success()) {
        skip("python3 is not there");
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/laptop.md");
    let steps = steps(&std::fs::read_to_string(page).unwrap());
    assert!(steps.len() > 5);
    let site = Site::new();
    std::fs::create_dir(site.path("bin")).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_falkon"), site.path("bin/falkon")).unwrap();
    // One shell for all blocks, whose output goes to a file for each.
    let mut script = String::new();
    for (at, step) in steps.iter().enumerate() {
        write!(script, "exec >\"$OUT\"/printed-{at}\n{}", step.commands).unwrap();
    }
    let mut shell = site.program("sh");
    let path = std::env::var("PATH").unwrap();
    shell.args(["-c", &script]).env("OUT", site.dir());
    shell.env("PATH", format!("{}:{path}", site.text("bin")));
    Running::start(shell).finish().exits(0);
    for (at, Step { commands, shown }) in steps.iter().enumerate() {
        let printed = site.read(&format!("printed-{at}"));
        assert_eq!(sorted(&printed), sorted(shown), "{commands}");
    }
}
