//! What users of `falkon run` type, and what they may expect of it.

use crate::fixture::{Running, Site};
use falkon_trials::{skip, trial};
use std::os::unix::fs::FileTypeExt;
use std::process::Stdio;

#[trial]
fn numbers_in_a_task_file_are_taken_as_text() {
    let site = Site::new();
    let jsonl = r#"
{"command": ["echo", 0.1, 4, -2.5, 1e-7, 1.0], "env": {"A": 0.25}}
{"command": "echo", "args": [0.1, 4, -2.5, 1e-7, 1.0], "env": {"A": 0.25}}
{"command": "echo $A", "shell": true, "env": {"A": 0.25}}
"#;
    let toml = r#"
[[task]]
command = ["echo", 0.1, 4, -2.5, 1e-7, 1.0]
env = { A = 0.25 }
[[task]]
command = "echo"
args = [0.1, 4, -2.5, 1e-7, 1.0]
env = { A = 0.25 }
[[task]]
command = "echo $A"
shell = true
env = { A = 0.25 }
"#;
    for (name, text) in [("tasks.jsonl", jsonl), ("tasks.toml", toml)] {
        let file = site.write(name, text);
        let ran = site.run(["run", "--keep-order", "--tasks", &file]).exits(0);
        assert_eq!(ran.lines(), ["0.1 4 -2.5 1e-7 1.0", "0.1 4 -2.5 1e-7 1.0", "0.25"], "{name}");
    }
    let file = site.write("infinite.toml", "[[task]]\ncommand = [\"echo\", inf]\n");
    site.run(["run", "--tasks", &file]).exits(2).says("expected a string or a number");
}

#[trial]
fn a_loop_that_reads_standard_input_keeps_it() {
    let site = Site::new();
    let falkon = env!("CARGO_BIN_EXE_falkon");
    let script = format!(
        "printf 'a\\nb\\nc\\n' | while read x; do {falkon} run --quiet -- echo \"got $x\"; done"
    );
    let mut command = site.program("sh");
    command.args(["-c", &script]);
    let ran = Running::start(command).finish().exits(0);
    assert_eq!(ran.lines(), ["got a", "got b", "got c"]);
    assert!(ran.err.is_empty(), "{ran}");
    // Somebody who meant the lines learns how to say so.
    let ran = site.run_with_input(&["run", "--", "echo", "line"], b"1\n2\n").exits(0);
    assert_eq!(ran.lines(), ["line"]);
    ran.says("standard input is not read: put {} in the command for a line's value");
    for args in [&["run", "--", "echo", "{}"][..], &["run", "--each-line", "-", "--", "echo"]] {
        let ran = site.run_with_input(args, b"1\r\n2\n").exits(0);
        assert_eq!(ran.sorted(), ["1", "2"]);
    }
}

#[trial]
fn standard_input_that_brings_nothing_holds_nobody_up_without_a_word() {
    let site = Site::new();
    // Nothing asks for it: `ssh host falkon run -- job`, or a pipe of a program.
    let mut command = site.falkon(["run", "--", "echo", "done"]);
    command.stdin(Stdio::piped());
    assert_eq!(Running::start(command).finish().exits(0).lines(), ["done"]);
    let mut command = site.falkon(["run", "--", "echo", "{}"]);
    command.stdin(Stdio::piped());
    let mut running = Running::start(command);
    running.wait_for("waiting for values on standard input");
    running.feed(b"late\n");
    assert_eq!(running.finish().exits(0).lines(), ["late"]);
}

#[trial]
fn a_range_keeps_its_leading_zeros() {
    let site = Site::new();
    let ran = site.run(["run", "--range", "008-010", "echo"]).exits(0);
    assert_eq!(ran.sorted(), ["008", "009", "010"]);
}

#[trial]
fn a_script_is_shown_as_it_was_written_with_the_value_that_failed() {
    let site = Site::new();
    let script = "test {} != 3 || { echo \"no {}\" >&2; exit 3; }";
    let args = ["--range", "2-3", "--shell", "--", script];
    let ran = site.run(["run"].iter().chain(&args)).exits(1);
    ran.says("test 3 != 3 || { echo \"no 3\" >&2; exit 3; }: exited with 3");
    let ran = site.run(["run", "--dry-run"].iter().chain(&args)).exits(0);
    assert!(!ran.text().contains("falkon_1"), "{ran}");
    let last = ran.lines()[1];
    assert!(last.contains("sh -c 'test 3 != 3 || { echo \"no 3\" >&2; exit 3; }'"), "{ran}");
    // A command that is cut still shows the value.
    let script = format!("{} test {{}} != 3", "true;".repeat(30));
    let ran = site.run(["run", "--range", "2-3", "--shell", "--", &script]).exits(1);
    ran.says("true;true;").says("… [3]: exited with 1");
}

#[trial]
fn nothing_is_appended_to_a_script() {
    let site = Site::new();
    let args = ["run", "--range", "1-2", "--shell", "--"];
    let ran = site.run(args.iter().chain(&["for i in a; do echo $i; done"])).exits(0);
    assert_eq!(ran.lines(), ["a", "a"]);
    site.run(args.iter().chain(&["echo hi > log"])).exits(0);
    assert_eq!(site.read("log"), "hi\n");
}

#[trial]
fn staged_names_hold_in_outputs_too() {
    let site = Site::new();
    std::fs::create_dir_all(site.path("deep/er")).unwrap();
    std::fs::create_dir(site.path("out")).unwrap();
    for name in ["a", "b"] {
        site.write(&format!("deep/er/{name}"), name);
    }
    let args = ["run", "--each", "deep/er/*", "--stage", "--output", "{}.up=out/{}.up", "--shell"];
    site.run(args.iter().chain(&["--", "tr a-z A-Z < {} > {}.up"])).exits(0);
    assert_eq!((site.read("out/a.up"), site.read("out/b.up")), ("A".into(), "B".into()));
}

#[trial]
fn a_file_of_metrics_takes_the_place_of_no_device_pipe_or_link() {
    let site = Site::new();
    let run = |path: &str| site.run(["run", "--metrics", path, "--", "true"]);
    site.write("real", "old");
    std::os::unix::fs::symlink("real", site.path("link")).unwrap();
    run("link").exits(0);
    assert!(site.path("link").is_symlink());
    assert!(site.read("real").contains("makespan_seconds"));
    // Somebody reads the pipe.
    let mut command = site.program("sh");
    command.args(["-c", "mkfifo pipe && echo made && cat pipe > copy"]);
    let reader = Running::start(command);
    reader.wait_for_lines(1);
    run("pipe").exits(0);
    reader.finish().exits(0);
    assert!(std::fs::symlink_metadata(site.path("pipe")).unwrap().file_type().is_fifo());
    assert!(site.read("copy").contains("makespan_seconds"));
    let mut command = site.program("mknod");
    command.args(["full", "c", "1", "7"]);
    if !Running::start(command).finish().succeeded() {
        skip("only root can make a device");
    }
    run("full").exits(3).says("No space left on device");
    let kept = std::fs::symlink_metadata(site.path("full")).unwrap().file_type();
    assert!(kept.is_char_device());
}

#[trial]
fn a_run_in_a_batch_job_uses_what_was_granted_and_runs_once() {
    let mut site = Site::new();
    site.set("SLURM_CPUS_ON_NODE", "1");
    let slots = |site: &Site, more: &[&str]| {
        let args = [&["run", "--metrics", "m"], more, &["--range", "1-3", "--", "true"]].concat();
        site.run(args).exits(0);
        serde_json::from_str::<serde_json::Value>(&site.read("m")).unwrap()["slots"].clone()
    };
    assert_eq!(slots(&site, &[]), 1.0);
    assert_eq!(slots(&site, &["--jobs", "3"]), 3.0);
    site.set("SLURM_STEP_NUM_TASKS", "3");
    let run = |site: &Site, more: &[&str]| {
        site.run([&["run"], more, &["--", "sh", "-c", "echo once >> log"]].concat())
    };
    run(&site, &[]).exits(2).says_only(1, "this is one of 3 copies that were started side by side");
    assert!(!site.path("log").exists());
    run(&site, &["--every-copy"]).exits(0);
    // A task of an executor that srun has started is none of the copies.
    let falkon = env!("CARGO_BIN_EXE_falkon");
    let inner = format!("{falkon} run -- sh -c 'echo within >> log'");
    site.run(["run", "--every-copy", "--", "sh", "-c", &inner]).exits(0);
    assert_eq!(site.read("log"), "once\nwithin\n");
}
