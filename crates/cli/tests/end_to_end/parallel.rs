//! The command lines of the page for users of GNU parallel, beside the real one.

use crate::fixture::{Running, Site};
use falkon_trials::{skip, trial};
use std::path::Path;
use std::process::{Command, Stdio};

/// The pairs of command lines of the page: GNU parallel's, and ours.
fn pairs(page: &str) -> Vec<(&str, &str)> {
    let blocks = page.split("```").skip(1).step_by(2);
    blocks.filter_map(|block| block.strip_prefix("sh\n")?.trim_end().split_once('\n')).collect()
}

#[trial]
fn the_page_for_users_of_gnu_parallel_prints_what_the_real_one_does() {
    let mut parallel = Command::new("parallel");
    let version = parallel.arg("--version").stdin(Stdio::null()).output();
    if !version.is_ok_and(|version| version.stdout.starts_with(b"GNU parallel")) {
        skip("GNU parallel is not there");
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/from-gnu-parallel.md");
    let page = std::fs::read_to_string(page).unwrap();
    let pairs = pairs(&page);
    assert!(pairs.len() >= 10);
    let site = Site::new();
    std::fs::create_dir(site.path("bin")).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_falkon"), site.path("bin/falkon")).unwrap();
    // One shell for all: each command line in a folder of its own, with a file for its output.
    let mut script = String::from("set -e\n");
    for (at, (theirs, ours)) in pairs.iter().enumerate() {
        for (who, line) in [("theirs", theirs), ("ours", ours)] {
            script.push_str(&format!(
                "mkdir \"$TOP/{who}-{at}\"; cd \"$TOP/{who}-{at}\"\n\
                 seq 3 > a.txt; seq 5 > b.txt; seq 7 > c.txt\n\
                 printf 'x,1\\ny,2\\n' > table.csv;\n\
                 printf 'name,size\\nx,1\\ny,2\\n' > named.csv; printf 'one\\ntwo words\\nthree\\n' > lines\n\
                 ( {line} ) > \"$TOP/{who}-{at}.out\" < /dev/null\n"
            ));
        }
    }
    let mut shell = site.program("sh");
    let path = std::env::var("PATH").unwrap();
    shell.args(["-c", &script]).env("TOP", site.dir()).env("HOME", site.dir());
    // The real one asks to be cited unless it is told that it has asked.
    shell.env("PARALLEL_HOME", site.dir());
    shell.env("PATH", format!("{}:{path}", site.text("bin")));
    Running::start(shell).finish().exits(0);
    for (at, (theirs, ours)) in pairs.iter().enumerate() {
        let printed = |who: &str| site.read(&format!("{who}-{at}.out"));
        assert_eq!(printed("theirs"), printed("ours"), "{theirs}\n{ours}");
        assert!(!printed("ours").is_empty(), "{ours}");
    }
}
