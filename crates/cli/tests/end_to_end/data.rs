//! Data objects as users meet them: on the command line, in task files, in
//! results, with one executor.

mod broadcast;
mod broken;
mod caches;
mod lost;
mod members;
mod mount;
mod names;
mod services;
pub(crate) mod shuffle;
mod stripes;
mod unpacked;
mod ways;
mod web;

use crate::fixture::{Ran, Running, Site};
use falkon_trials::trial;
use rustix::process::Signal;
use serde_json::Value;

/// A result's counters: objects from the own cache, peers and the store.
fn sources(result: &Value) -> [u64; 3] {
    ["local", "peer", "store"].map(|from| result["data"][from]["objects"].as_u64().unwrap())
}

/// The counters of all results.
fn all_sources(results: &[Value]) -> [u64; 3] {
    results.iter().map(sources).fold([0; 3], |sum, one| [0, 1, 2].map(|at| sum[at] + one[at]))
}

/// Fails if anything is left where temporary files go.
#[track_caller]
fn nothing_is_left(site: &Site) {
    let left: Vec<_> = std::fs::read_dir(site.path("tmp")).unwrap().flatten().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[trial]
fn a_program_that_is_an_input_is_run() {
    let site = Site::new();
    site.write("tool", "#!/bin/sh\necho \"$1 $(cat data)\"\n");
    site.write("data", "world");
    let args = ["run", "--input", "tool=tool", "--input", "data=data", "--", "./tool", "hello"];
    assert_eq!(site.run(args).exits(0).text(), "hello world\n");
    nothing_is_left(&site);
}

#[trial]
fn inputs_stand_under_their_names_and_outputs_go_where_they_are_to() {
    let site = Site::new();
    let source = site.write("source with blanks", "0123456789");
    // The folder of `new/deep/copy` is made, in the sandbox and where it goes.
    let script = "stat -c %a deep/in; pwd; cat deep/in deep/in > out/copy";
    let input = format!("deep/in={source}");
    let args =
        ["run", "--json", "--input", &input, "--output", "out/copy=new/deep/copy", "--", "sh"];
    let ran = site.run(args.iter().chain(&["-c", script])).exits(0);
    let result = &ran.results()[0];
    let stdout: Vec<&str> = result["stdout"].as_str().unwrap().lines().collect();
    assert_eq!(stdout[0], "555", "an input is read-only");
    assert_ne!(stdout[1], site.dir().to_str().unwrap(), "the task has a directory of its own");
    assert_eq!(site.read("new/deep/copy"), "01234567890123456789");
    assert_eq!(sources(result), [0, 0, 1]);
    assert_eq!(result["data"]["store"]["bytes"], 10);
    assert!(result["data"]["staging_seconds"].as_f64().unwrap() > 0.0);
    ran.says("data: 1 input, 10 B: 0.0 % (0.0 % of bytes) from own caches, 0.0 %")
        .says("100.0 % (100.0 % of bytes) from stores");
    nothing_is_left(&site);
    // A task without data says nothing of it, and an output that was not
    // written is a failure.
    let ran = site.run(["run", "--json", "--", "true"]).exits(0);
    assert!(ran.results()[0].get("data").is_none() && !ran.err.contains("data:"), "{ran}");
    let ran = site.run(["run", "--output", "out/never=never", "--", "true"]).exits(1);
    ran.says("did not write its output").says("out/never");
    assert!(!site.path("never").exists());
    let ran = site.run(["run", "--output", "out=source with blanks/x", "--", "touch", "out"]);
    ran.exits(1).says("its output is lost").says("source with blanks/x");
    let ran = site.run(["run", "--output", "out=folder", "--", "mkdir", "out"]).exits(1);
    ran.says("its output is lost").says("folder cannot be used: what is here is a directory");
    nothing_is_left(&site);
}

#[trial]
fn files_of_each_are_staged() {
    let site = Site::new();
    std::fs::create_dir(site.path("texts")).unwrap();
    for number in 1..=6 {
        site.write(&format!("texts/t {number}.txt"), "x".repeat(number));
    }
    let ran = site.run([
        "run",
        "--json",
        "--each",
        "texts/*.txt",
        "--stage",
        "--output",
        "{/.}.n=counts/{/.}.n",
        "--shell",
        "--",
        "wc -c < {} > {/.}.n; ls | wc -l",
    ]);
    let results = ran.exits(0).results();
    for (at, result) in results.iter().enumerate() {
        let count = site.read(&format!("counts/t {}.n", at + 1));
        assert_eq!(count.trim(), (at + 1).to_string());
        assert_eq!(result["stdout"].as_str().unwrap().trim(), "2", "the input and the output");
    }
    assert_eq!(all_sources(&results), [0, 0, 6]);
    nothing_is_left(&site);
}

#[trial]
fn tasks_hand_objects_on_through_caches() {
    let site = Site::new();
    site.write("first", "1");
    let file = site.write(
        "graph.jsonl",
        r#"{"id": "c", "command": ["sh", "-c", "cat left right > both"], "inputs": ["left=cache:l", "right=cache:r"], "outputs": ["both=made/both"]}
{"id": "l", "command": ["sh", "-c", "cat in > out; echo l >> out"], "inputs": ["in=cache:start"], "outputs": ["out=cache:l"]}
{"id": "r", "command": ["sh", "-c", "cat in > out; echo r >> out"], "inputs": ["in=cache:start"], "outputs": ["out=cache:r"]}
{"id": "s", "command": ["cp", "in", "out"], "inputs": ["in=first"], "outputs": ["out=cache:start"]}
{"id": "t", "command": ["cat", "b"], "inputs": ["b=made/both"]}
"#,
    );
    let results = site.run(["run", "--json", "--tasks", &file]).exits(0).results();
    assert_eq!(site.read("made/both"), "1l\n1r\n");
    assert_eq!(results[4]["stdout"], "1l\n1r\n");
    // Only the first was read from the store: what tasks write is there.
    assert_eq!(all_sources(&results), [5, 0, 1]);
    nothing_is_left(&site);
}

#[trial]
fn a_source_that_changes_is_another_object() {
    let site = Site::new();
    site.write("source", "one");
    let cache = format!("{}=1MiB", site.text("cache"));
    let run = || {
        let args = ["run", "--json", "--cache", &cache, "--input", "in=source", "--", "cat", "in"];
        let result = site.run(args).exits(0).results().remove(0);
        (result["stdout"].as_str().unwrap().to_owned(), sources(&result))
    };
    assert_eq!(run(), ("one".to_owned(), [0, 0, 1]));
    // The cache is used again.
    assert_eq!(run(), ("one".to_owned(), [1, 0, 0]));
    site.write("source", "three");
    assert_eq!(run(), ("three".to_owned(), [0, 0, 1]));
    nothing_is_left(&site);
}

#[trial]
fn a_task_that_writes_to_its_input_harms_no_other() {
    let site = Site::new();
    site.write("source", "as it was\n");
    // The mode does not hold back whoever is root, or changes it.
    let script = "chmod u+w in; echo {} >> in; grep -c . in";
    let args = ["run", "--json", "-j", "1", "--range", "1-4", "--input", "in=source", "--", "sh"];
    let results = site.run(args.iter().chain(&["-c", script])).exits(0).results();
    for result in &results {
        assert_eq!((&result["stdout"], &result["attempts"]), (&"2\n".into(), &1.into()));
    }
    assert_eq!(site.read("source"), "as it was\n");
    nothing_is_left(&site);
}

#[trial]
fn what_cannot_be_staged_is_named() {
    let site = Site::new();
    let fails = |args: &[&str]| site.run([&["run"], args, &["--", "true"]].concat()).exits(1);
    fails(&["--input", "in=nowhere"]).says(&format!("there is no {}", site.text("nowhere")));
    fails(&["--input", "in=tmp"]).says("it is a directory");
    site.write("large", [b'x'; 5000]);
    let cache = format!("{}=1KiB", site.text("cache"));
    let ran = fails(&["--cache", &cache, "--input", "in=large"]);
    ran.says("5000").says("1024");
    // Two that fit one by one, and not together.
    site.write("half", [b'x'; 600]);
    let cache = format!("{}=1KiB", site.text("cache"));
    let ran = fails(&["--cache", &cache, "--input", "a=half", "--input", "b=large"]);
    ran.says("5600").says("1024");
    nothing_is_left(&site);
}

#[trial]
fn bad_declarations_are_refused_before_anything_runs() {
    let site = Site::new();
    site.write("f", "");
    let refused = |args: &[&str], part: &str| {
        let ran = site.run([&["run"], args, &["--", "touch", "ran"]].concat());
        ran.exits(2).says_only(1, part);
    };
    refused(&["--input", "a/../b=f"], "`a/../b` is no name for a data object");
    refused(&["--output", "a//b=f"], "`a//b` is no name for a data object");
    refused(&["--input", "a=f", "--input", "a=f"], "two data objects are called `a`");
    refused(&["--input", "a=f", "--output", "a=g"], "two data objects are called `a`");
    refused(&["--input", "a=f", "--output", "a/b=g"], "the data object `a` is a file");
    refused(&["--input", "a=f", "--cwd", "/"], "leave out --cwd");
    refused(&["--input", "a="], "`a` has no source");
    refused(&["--output", "a=cache:"], "needs a key after `cache:`");
    refused(&["--input", "a=cache:k"], "reads `cache:k`, but no other task writes it");
    let both = ["--input", "a=cache:k", "--output", "b=cache:k"];
    refused(&both, "reads `cache:k`, but no other task writes it");
    refused(&["--stage"], "--stage brings the files of --each, but there is no --each");
    refused(&["--input", "a=ftp://host/f"], "unknown scheme `ftp`");
    refused(&["--output", "a=http://host/f"], "cannot be written to http://host/f");
    refused(&["--range", "1-2", "--output", "a=out"], "both declare the output");
    assert!(!site.path("ran").exists());
    nothing_is_left(&site);
}

#[trial]
fn a_resumed_run_makes_what_is_needed_of_caches_again() {
    let site = Site::new();
    let file = site.write(
        "graph.jsonl",
        r#"{"id": "a", "command": ["sh", "-c", "echo a >> LOG; echo a > x"], "outputs": ["x=cache:a"]}
{"id": "b", "command": ["sh", "-c", "echo b >> LOG; cat x > y; echo b >> y"], "inputs": ["x=cache:a"], "outputs": ["y=cache:b"]}
{"id": "c", "command": ["sh", "-c", "echo c >> LOG; cat y > z; test -e MENDED"], "inputs": ["y=cache:b"], "outputs": ["z=kept"]}
{"id": "d", "command": ["sh", "-c", "echo d >> LOG; cat x > q"], "inputs": ["x=cache:a"], "outputs": ["q=other"]}
{"id": "e", "command": ["sh", "-c", "echo e >> LOG; cat z"], "inputs": ["z=kept"]}
"#
        .replace("LOG", &site.text("log"))
        .replace("MENDED", &site.text("mended")),
    );
    let log = || {
        let text = std::mem::take(&mut site.read("log"));
        std::fs::remove_file(site.path("log")).unwrap();
        let mut lines: Vec<char> = text.chars().filter(|c| *c != '\n').collect();
        lines.sort_unstable();
        lines.into_iter().collect::<String>()
    };
    let ran = site.run(["run", "--tasks", &file, "--out", "o"]).exits(1);
    ran.says("3 done, 2 failed");
    assert_eq!(log(), "abcd");
    // `c` needs what `b` made, and that what `a` made; `d` is done, and what it
    // wrote is where it was.
    site.write("mended", "");
    let ran = site.run(["run", "--json", "--tasks", &file, "--resume", "o"]).exits(0);
    assert_eq!(log(), "abce");
    assert_eq!(ran.results()[3]["stdout"], "a\nb\n");
    ran.says("4 done (1 before)");
    let ran = site.run(["run", "--tasks", &file, "--resume", "o"]).exits(0);
    ran.says("nothing to do: all 5 tasks have already succeeded");
    nothing_is_left(&site);
}

#[trial]
fn an_interrupted_run_leaves_no_data_behind() {
    let site = Site::new();
    site.write("source", "x");
    let mut started = site.signals("started");
    let gate = site.gate("gate");
    let script = format!("echo on > {}; read line < {}", started.path(), gate.path());
    let args = ["run", "--input", "in=source", "--output", "out=out", "--", "sh", "-c", &script];
    for interrupts in 1..=2 {
        let running = site.start(args);
        started.next();
        running.signal(Signal::INT);
        running.wait_for("stopping");
        if interrupts == 2 {
            running.signal(Signal::INT);
        }
        running.finish().exits(1);
        site.left().wait_for_none();
        nothing_is_left(&site);
    }
    assert!(!site.path("out").exists());
}

/// Runs `falkon` with the environment's settings for web servers left out.
fn without_proxy(site: &Site, args: &[&str]) -> Ran {
    let mut command = site.falkon(args);
    for name in ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"] {
        command.env_remove(name);
    }
    Running::start(command).finish()
}
