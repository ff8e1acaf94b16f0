//! Commands that run once on each executor.

use crate::fixture::{Access, Dispatcher, Running, Site, poll};
use falkon_trials::trial;
use rustix::process::Signal;
use serde_json::Value;

/// Starts executors with these names.
fn executors(dispatcher: &Dispatcher<'_>, names: &[&str]) -> Vec<Running> {
    names.iter().map(|name| dispatcher.executor(name, &["--slots", "2"])).collect()
}

/// A command that notes that it has begun, and ends when there is a gate.
fn gated(site: &Site) -> [String; 3] {
    let (begun, gate) = (site.text("begun"), site.text("gate"));
    let script = format!("echo begun >> {begun}; while [ ! -e {gate} ]; do sleep 0.05; done");
    ["sh".to_owned(), "-c".to_owned(), script]
}

fn begun(site: &Site) -> usize {
    let noted = std::fs::read_to_string(site.path("begun")).unwrap_or_default();
    noted.lines().count()
}

/// Starts a gated command on each executor, and waits until so many have begun.
fn begin(site: &Site, access: &Access<'_>, count: usize) -> Running {
    let command = gated(site);
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    let running = access.start("everywhere", &[&["--json", "--"][..], &command].concat());
    poll("it runs everywhere", || begun(site) == count);
    running
}

/// How the task of each executor ended, by the executor's name.
fn by_executor(results: &[Value]) -> Vec<(String, Value)> {
    let mut all: Vec<(String, Value)> = results
        .iter()
        .map(|result| (result["executor"].as_str().unwrap().to_owned(), result.clone()))
        .collect();
    all.sort_by(|one, other| one.0.cmp(&other.0));
    all
}

fn names(results: &[(String, Value)]) -> Vec<&str> {
    results.iter().map(|(name, _)| name.as_str()).collect()
}

#[trial]
fn each_executor_runs_it_once_beside_what_runs_there() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let _executors = executors(&dispatcher, &["a", "b", "c"]);
    // All slots are taken, and more is queued than is ever done here.
    let others = access.submit(&["--range", "1-100000", "--", "sleep", "0.01"]);
    let ran = access.run("everywhere", &["--json", "--", "sh", "-c", "echo here"]).exits(0);
    let results = by_executor(&ran.results());
    assert_eq!(names(&results), ["a", "b", "c"]);
    assert!(results.iter().all(|(_, result)| result["stdout"] == "here\n"), "{results:?}");
    access.run("cancel", &[&others]).exits(0);
    let ran = access.run("everywhere", &["--quiet", "--", "echo", "there"]).exits(0);
    assert_eq!((ran.text(), ran.err.as_str()), ("there\nthere\nthere\n", ""));
}

#[trial]
fn failures_are_told_by_executor_and_what_does_not_fit_says_the_sizes() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let _executors = executors(&dispatcher, &["a", "b"]);
    let ran = access.run("everywhere", &["--", "sh", "-c", "exit 7"]).exits(1);
    for part in ["2 executors", "a: exited with 7", "b: exited with 7"] {
        assert!(ran.err.contains(part), "no {part:?} in\n{ran}");
    }
    let ran = access.run("everywhere", &["--cpus", "64", "--", "true"]).exits(1);
    for part in ["it needs 64 cpus, and executor a offers 2 cpus", ": ask for less"] {
        assert!(ran.err.contains(part), "no {part:?} in\n{ran}");
    }
    let ran = access.run("everywhere", &["--range", "1-3", "--", "echo", "{}"]).exits(2);
    assert!(ran.err.contains("each executor runs one task"), "{ran}");
    let ran = access.run("everywhere", &["--no-wait", "--", "echo", "later"]).exits(0);
    let results = by_executor(&access.results(ran.text().trim()));
    assert_eq!(names(&results), ["a", "b"]);
}

#[trial]
fn an_executor_that_is_killed_ends_its_task_and_no_other_runs_it() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let mut executors = executors(&dispatcher, &["a", "b", "c"]);
    let running = begin(&site, &access, 3);
    executors.pop().unwrap().kill();
    site.write("gate", "");
    let ran = running.finish().exits(1);
    let results = by_executor(&ran.results());
    assert_eq!(names(&results), ["a", "b", "c"]);
    let statuses: Vec<&Value> = results.iter().map(|(_, result)| &result["status"]).collect();
    assert_eq!(statuses, ["done", "done", "failed"]);
    assert_eq!(results[2].1["cause"], "executor_left", "{results:?}");
    assert_eq!(begun(&site), 3);
}

#[trial]
fn executors_keep_their_tasks_over_a_restart_of_the_dispatcher() {
    let site = Site::new();
    let mut dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let _executors = executors(&dispatcher, &["a", "b", "c"]);
    let running = begin(&site, &access, 3);
    dispatcher.kill();
    dispatcher.start();
    site.write("gate", "");
    let results = by_executor(&running.finish().exits(0).results());
    assert_eq!(names(&results), ["a", "b", "c"]);
    assert_eq!(begun(&site), 3);
}

#[trial]
fn executors_that_join_run_it_too_until_it_is_interrupted() {
    let site = Site::new();
    let mut dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let ran = access.run("everywhere", &["--", "echo"]).exits(2);
    assert!(ran.err.contains("no executor is there"), "{ran}");
    let running = access.start("everywhere", &["--joining", "--json", "--", "echo"]);
    running.wait_for("0 executors");
    let mut there = executors(&dispatcher, &["a", "b"]);
    running.wait_for_lines(2);
    dispatcher.kill();
    dispatcher.start();
    there.extend(executors(&dispatcher, &["c"]));
    running.wait_for_lines(3);
    running.signal(Signal::INT);
    let results = by_executor(&running.finish().exits(0).results());
    assert_eq!(names(&results), ["a", "b", "c"]);
}
