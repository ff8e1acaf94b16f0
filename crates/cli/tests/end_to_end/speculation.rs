//! `--speculate`: a task that straggles runs a second time on another executor.

use crate::fixture::{Access, Running, Signals, Site, poll};
use falkon_trials::trial;
use serde_json::{Value, json};

/// Twelve tasks, of which the first one goes no further than `hangs`; all others end at once.
fn submit(access: &Access<'_>, hangs: &str) -> String {
    let script = format!("test {{}} = 0 || exit 0; {hangs}; echo ended");
    access.submit(&["--speculate", "--range", "0-11", "--", "sh", "-c", &script])
}

/// The processes of both tries of a task, each of which writes its number.
fn tries(started: &mut Signals) -> [String; 2] {
    [started.next(), started.next()]
}

fn lives(pid: &str) -> bool {
    std::path::Path::new("/proc").join(pid).exists()
}

/// The executor of the first try of the first task.
fn first_executor(access: &Access<'_>, id: &str) -> String {
    let tasks = access.run("tasks", &[id, "--json", "--count", "1"]).exits(0).results();
    assert_eq!(tasks[0]["state"], "running");
    tasks[0]["executor"].as_str().unwrap().to_owned()
}

#[trial]
fn a_task_that_hangs_ends_elsewhere() {
    let site = Site::new();
    let mut started = site.signals("started");
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let executors: Vec<Running> =
        ["a", "b"].map(|name| dispatcher.executor(name, &["--slots", "2"])).into();
    // The first try hangs, and only that.
    let hangs = format!("if mkdir hangs; then echo $$ > {}; sleep 1000; fi", started.path());
    let id = submit(&access, &hangs);
    let pid = started.next();
    let results = access.results(&id);
    let first = &results[0];
    assert_eq!((&first["status"], &first["attempts"]), (&json!("done"), &json!(1)), "{first:?}");
    assert_eq!(first["stdout"], "ended\n");
    assert_eq!(results.len(), 12);
    poll("the try that hangs is stopped", || !lives(&pid));
    let events = access.run("log", &["--json", "--tasks", "0-0"]).exits(0).results();
    let copies: Vec<&Value> = events.iter().filter(|event| event["event"] == "copied").collect();
    let [copied] = copies[..] else { panic!("{copies:?}") };
    let ended = events.iter().find(|event| event["event"] == "ended").unwrap();
    assert_eq!(copied["executor"], ended["executor"], "{copied} {ended}");
    assert_ne!(copied["executor"], copied["from"], "{copied}");
    let [ran_s, median_s] = ["ran_s", "median_s"].map(|key| copied[key].as_f64().unwrap());
    assert!(ran_s > 1.0 && ran_s > 3.0 * median_s, "{copied}");
    drop(executors);
}

#[trial]
fn a_try_goes_on_when_the_executor_of_the_other_one_is_killed() {
    let site = Site::new();
    let (mut started, mut gate) = (site.signals("started"), site.gate("gate"));
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let mut executors = ["a", "b"].map(|name| dispatcher.executor(name, &["--slots", "2"]));
    let hangs = format!("echo $$ > {}; read line < {}", started.path(), gate.path());
    let id = submit(&access, &hangs);
    let [first, copy] = tries(&mut started);
    let name = first_executor(&access, &id);
    if name == "b" {
        executors.reverse();
    }
    let [killed, goes_on] = executors;
    killed.kill();
    poll("the try ends with its executor", || !lives(&first));
    assert!(lives(&copy));
    gate.let_through(1);
    let results = access.results(&id);
    let first = &results[0];
    assert_eq!((&first["status"], &first["attempts"]), (&json!("done"), &json!(1)), "{first:?}");
    assert_ne!(first["executor"], json!(name));
    assert!(started.is_silent());
    drop(goes_on);
}

#[trial]
fn a_dispatcher_that_is_killed_goes_on_with_one_of_two_tries() {
    let site = Site::new();
    let (mut started, mut gate) = (site.signals("started"), site.gate("gate"));
    let mut dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let executors = ["a", "b"].map(|name| dispatcher.executor(name, &["--slots", "2"]));
    let hangs = format!("echo $$ > {}; read line < {}", started.path(), gate.path());
    let id = submit(&access, &hangs);
    let both = tries(&mut started);
    dispatcher.kill();
    dispatcher.start();
    poll("one of the tries is stopped", || both.iter().any(|pid| !lives(pid)));
    assert!(both.iter().any(|pid| lives(pid)), "the other one goes on");
    gate.let_through(1);
    let results = access.results(&id);
    let first = &results[0];
    assert_eq!((&first["status"], &first["attempts"]), (&json!("done"), &json!(1)), "{first:?}");
    assert_eq!(results.len(), 12);
    assert!(started.is_silent());
    drop(executors);
}

#[trial]
fn a_task_that_is_cancelled_is_stopped_at_both() {
    let site = Site::new();
    let (mut started, gate) = (site.signals("started"), site.gate("gate"));
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let executors = ["a", "b"].map(|name| dispatcher.executor(name, &["--slots", "2"]));
    let hangs = format!("echo $$ > {}; read line < {}", started.path(), gate.path());
    let id = submit(&access, &hangs);
    let both = tries(&mut started);
    access.run("cancel", &[&id]).exits(0);
    poll("both tries are stopped", || both.iter().all(|pid| !lives(pid)));
    let results = access.results(&id);
    assert_eq!(results[0]["status"], "cancelled");
    assert_eq!(results.len(), 12);
    drop(executors);
}

#[trial]
fn what_two_tries_cannot_write_is_refused_before_anything_runs() {
    let site = Site::new();
    let range = ["run", "--speculate", "--range", "0-3"];
    let refused = |args: &[&str], what: &str| {
        let words = range.iter().chain(args).chain(&["--", "touch", "ran"]);
        let ran = site.run(words).exits(2);
        assert!(ran.err.contains(what) && !site.path("ran").exists(), "{args:?}: {ran}");
    };
    refused(&["--output", "{}.out"], "`0.out`, a file in the directory of all tasks");
    refused(&["--output", "out=cache:left{}"], "an object in caches");
    refused(&["--output", "out=all.zip!{}"], "a member of an archive");
    refused(&["--nodes-per-task", "2"], "leave out --nodes-per-task");
    refused(&["--collect-streams", "logs.zip"], "leave out --collect-streams");
    let ran = site.run(["run", "--speculate", "--dry-run", "--range", "0-3", "--", "true"]);
    assert!(ran.exits(0).text().contains("a second try if it straggles"));
}
