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

/// Tasks that each leave a number in a cache.
fn leave_numbers(access: &Access<'_>, name: &str, count: u32) {
    let range = format!("1-{count}");
    let command = ["--", "sh", "-c", "echo $0 > value", "{}"];
    let made = ["--wait", "--name", name, "--range", &range, "--output", "value=cache:v/{}.n"];
    access.run("submit", &[&made[..], &command].concat()).exits(0);
}

/// A command that prints how many numbers it has, and their sum.
const SUM: [&str; 4] = ["--", "sh", "-c", "cat in/v/* | awk '{ s += $1 } END { print NR, s }'"];

/// How many numbers, and their sum, all tasks together have printed.
fn summed(printed: &str) -> (u32, u32) {
    let lines = printed.lines().map(|line| line.split_once(' ').unwrap());
    let numbers = lines.map(|(count, sum)| (count.parse::<u32>().unwrap(), sum));
    numbers.fold((0, 0), |all, (count, sum)| (all.0 + count, all.1 + sum.parse::<u32>().unwrap()))
}

#[trial]
fn what_is_in_caches_is_read_where_it_is_each_once() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let mut executors = executors(&dispatcher, &["a", "b", "c"]);
    let ran = access.run("everywhere", &[&["--cached", "in=cache:v/*"], &SUM[..]].concat());
    ran.exits(2).says("no object is called cache:v/*");
    leave_numbers(&access, "sweep", 60);
    let cached = ["--quiet", "--cached", "in=cache:v/*"];
    let ran = access.run("everywhere", &[&cached[..], &SUM].concat()).exits(0);
    assert_eq!(summed(ran.text()), (60, 1830), "{ran}");
    // A second run has the same keys: whose are meant has to be said.
    leave_numbers(&access, "again", 6);
    let ran = access.run("everywhere", &[&cached[..], &SUM].concat()).exits(2);
    ran.says("there are several objects called cache:v/1.n: say whose with --cached-of");
    let of = |name| [&cached[..], &["--cached-of", name], &SUM].concat();
    assert_eq!(summed(access.run("everywhere", &of("again")).exits(0).text()), (6, 21));
    assert_eq!(summed(access.run("everywhere", &of("sweep")).exits(0).text()), (60, 1830));
    let dry = [&["--dry-run"], &of("sweep")[..]].concat();
    let ran = access.run("everywhere", &dry).exits(0);
    let objects = ran.text().lines().map(|line| line.split(' ').nth(1).unwrap());
    assert_eq!(objects.map(|count| count.parse::<u32>().unwrap()).sum::<u32>(), 60, "{ran}");
    // What was on an executor alone that is gone is in no cache, and is told.
    executors.pop().unwrap().kill();
    let lost = std::cell::RefCell::new(String::new());
    poll("it is known to be gone", || {
        let ran = access.run("everywhere", &of("sweep"));
        *lost.borrow_mut() = ran.text().to_owned();
        ran.status.code() == Some(1) && ran.err.contains("not read, because no cache has them")
    });
    assert!(summed(&lost.borrow()).0 < 60);
}

#[trial]
fn an_object_on_several_executors_is_read_by_one() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let _executors = executors(&dispatcher, &["a", "b", "c"]);
    site.write("one", "1\n");
    let file = site.text("one");
    access.run_sub(&["data", "put"], &["--replicas", "3", "--key", "v/one", &file]).exits(0);
    let ran =
        access.run("everywhere", &[&["--quiet", "--cached", "in=cache:v/*"], &SUM[..]].concat());
    assert_eq!(ran.exits(0).text(), "1 1\n");
    for (given, message) in [
        ("in=v/*", "a folder and a pattern are wanted"),
        ("/in=cache:v/*", "/in is no folder within the task's"),
    ] {
        let ran = access.run("everywhere", &[&["--cached", given], &SUM[..]].concat());
        ran.exits(2).says(message);
    }
}
