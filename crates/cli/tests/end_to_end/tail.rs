//! `falkon tail`: what tasks write, while they run.

use crate::fixture::{Access, Site, poll};
use falkon_trials::trial;
use std::path::Path;

/// A command that writes a line, waits until a file is there, and writes another.
fn two_lines(gate: &Path) -> String {
    let gate = gate.display();
    format!("echo first; echo error >&2; until [ -e {gate} ]; do sleep 0.02; done; echo second")
}

/// Waits until a task has begun to write.
pub(crate) fn wait_for_output(access: &Access<'_>, task: &str, text: &str) {
    poll("it writes", || {
        let ran = access.run("tail", &[task]);
        ran.succeeded() && ran.text() == text
    });
}

#[trial]
fn a_running_task_shows_what_it_writes_at_every_level() {
    for level in ["none", "authenticate", "encrypt"] {
        let site = Site::new();
        let dispatcher = site.dispatcher("d", &["--security", level]);
        let access = dispatcher.access();
        let gate = site.path("gate");
        let script = two_lines(&gate);
        let tasks = format!(r#"{{"id": "in/a.pdb", "command": ["sh", "-c", "{script}"]}}"#);
        let file = site.write("tasks.jsonl", tasks + "\n");
        let id = access.submit(&["--name", "x", "--tasks", &file]);
        access.run("tail", &["x/0"]).exits(2).says_only(1, "it has not been sent to an executor");
        let _executor = dispatcher.executor("worker", &["--slots", "1"]);
        wait_for_output(&access, "x/in/a.pdb", "first\n");
        let ran = access.run("tail", &["x/0", "--stderr"]).exits(0);
        assert_eq!(ran.text(), "error\n");
        assert_eq!(access.run("tail", &["x/0", "--bytes", "3"]).exits(0).text(), "st\n");
        let own = access.start("tail", &["x/0", "--follow"]);
        own.wait_for_lines(1);
        std::fs::write(&gate, "").unwrap();
        assert_eq!(own.finish().exits(0).text(), "first\nsecond\n", "{level}");
        access.run("wait", &[&id]).exits(0);
        access.run("tail", &["x/0"]).exits(2).says_only(1, "falkon results 0 shows what it wrote");
        access.run("tail", &["x/1"]).exits(2).says_only(1, "there is no such task");
        access.run("tail", &["x/b"]).exits(2).says_only(1, "has no task named \"b\"");
        access.run("tail", &["x"]).exits(2).says("INSTANCE/TASK");
    }
}

#[trial]
fn long_output_is_followed_from_its_beginning_to_its_end() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let gate = site.path("gate");
    let script = format!(
        "seq 1 100000; until [ -e {} ]; do sleep 0.02; done; seq 100001 200000",
        gate.display()
    );
    let id = access.submit(&["--", "sh", "-c", &script]);
    let task = format!("{id}/0");
    // It has not started: what it writes follows when it does.
    let follower = access.start("tail", &[&task, "--follow"]);
    let _executor = dispatcher.executor("worker", &["--slots", "1"]);
    follower.wait_for_lines(100_000);
    let ran = access.run("tail", &[&task, "--bytes", "7"]).exits(0);
    assert_eq!(ran.text(), "100000\n");
    std::fs::write(&gate, "").unwrap();
    let all: String = (1..=200_000).map(|number| format!("{number}\n")).collect();
    let followed = follower.finish().exits(0);
    assert!(followed.text() == all, "something is missing, or too much");
}

#[trial]
fn who_may_not_read_results_reads_no_output() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let _executor = dispatcher.executor("worker", &["--slots", "2"]);
    let script = two_lines(&site.path("gate"));
    for name in ["a", "b"] {
        let own = site.text(&format!("{name}.json"));
        access.submit(&["--instance-access", &own, "--name", name, "--", "sh", "-c", &script]);
    }
    wait_for_output(&access, "b/0", "first\n");
    let of_a = Access::at(&site, &site.path("a.json"));
    wait_for_output(&of_a, "0/0", "first\n");
    of_a.run("tail", &["1/0"]).exits(2).says("does not allow that");
    let observer = dispatcher.access_of("access-observer.json");
    observer.run("tail", &["1/0"]).exits(2).says("does not allow that");
}

#[trial]
fn what_a_call_writes_is_shown_while_it_runs() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let gate = site.path("gate");
    site.write(
        "calls.py",
        "import os, sys, time\ndef wait(gate):\n    print('first', flush=True)\n    \
         while not os.path.exists(gate):\n        time.sleep(0.02)\n    print('second')\n",
    );
    let _executor = dispatcher.executor("worker", &["--slots", "1"]);
    let path = format!("PYTHONPATH={}", site.dir().display());
    let gate_text = gate.display().to_string();
    let id = access.submit(&["--env", &path, "--call", "calls:wait", "--", &gate_text]);
    let task = format!("{id}/0");
    wait_for_output(&access, &task, "first\n");
    let follower = access.start("tail", &[&task, "--follow"]);
    follower.wait_for_lines(1);
    std::fs::write(&gate, "").unwrap();
    assert_eq!(follower.finish().exits(0).text(), "first\nsecond\n");
}
