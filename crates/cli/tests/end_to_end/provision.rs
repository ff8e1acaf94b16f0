//! Executors that the provisioner gets by itself: from this machine, and from
//! real batch schedulers.

mod gridengine;
mod slurm;

use crate::fixture::{Access, Dispatcher, Site, poll_for};
use falkon_trials::trial;
use serde_json::Value;
use std::collections::BTreeSet;

/// What `falkon provision list --json` says.
#[track_caller]
fn provisioned(access: &Access<'_>) -> Value {
    let ran = access.run("provision", &["list", "--json"]).exits(0);
    serde_json::from_str(ran.text()).unwrap()
}

#[track_caller]
fn allocations(access: &Access<'_>) -> Vec<Value> {
    provisioned(access)["allocations"].as_array().unwrap().clone()
}

/// Waits until nothing is held or asked for.
#[track_caller]
fn wait_for_none(access: &Access<'_>) {
    poll_for("no allocation is left", || allocations(access).is_empty().then_some(()));
}

/// Runs so many tasks of a fraction of a second, all well.
#[track_caller]
fn run_some(access: &Access<'_>, count: u32) -> Vec<Value> {
    let range = format!("1-{count}");
    let id = access.submit(&["--range", &range, "--", "sh", "-c", "sleep 0.2; echo {}"]);
    access.run("wait", &[&id, "--quiet"]).exits(0);
    let results = access.results(&id);
    assert_eq!(results.len(), count as usize);
    results
}

/// The names of allocations' executors begin like this.
#[track_caller]
fn prefix_of(dispatcher: &Dispatcher<'_>) -> String {
    let access: Value =
        serde_json::from_slice(&std::fs::read(&dispatcher.access().file).unwrap()).unwrap();
    format!("falkon-{}-", &access["dispatcher"].as_str().unwrap()[..8])
}

#[trial]
fn processes_of_this_machine_come_and_go() {
    let site = Site::new();
    let queue = "kind = \"local\"\nnodes_max = 1\nidle = 1\nrelease = \"idle\"\n\
                 query_interval = 0.2\ndelay = 1\n";
    let queue = site.write("here.toml", queue);
    let mut dispatcher = site.dispatcher("d", &["--provision", &queue]);
    let access = dispatcher.access();
    let results = run_some(&access, 10);
    let prefix = prefix_of(&dispatcher);
    for result in &results {
        assert!(result["executor"].as_str().unwrap().starts_with(&prefix), "{result}");
    }
    wait_for_none(&access);
    let log = access.run("provision", &["log"]).exits(0);
    for part in ["ask for 1 nodes", "tasks wait", "release 1 executors: idle for", "ended"] {
        assert!(log.text().contains(part), "no {part:?} in\n{log}");
    }

    // What runs is found again after a crash, and used.
    let mut signals = site.signals("signals");
    let mut gate = site.gate("gate");
    let command = format!("echo on > {}; read line < {}", signals.path(), gate.path());
    let id = access.submit(&["--", "sh", "-c", &command]);
    assert_eq!(signals.next(), "on");
    dispatcher.kill();
    dispatcher.start();
    gate.let_through(1);
    access.run("wait", &[&id, "--quiet"]).exits(0);
    assert_eq!(access.results(&id)[0]["attempts"], 1);
    wait_for_none(&access);

    // Before a walltime ends executors leave, and others go on with what is
    // left.
    access.run("provision", &["remove", "here"]).exits(0);
    dispatcher.service().wait_for("is removed, with all of its allocations");
    let queue = "kind = \"local\"\nnodes_max = 1\nwalltime = 60\nleave_before = 58\n\
                 query_interval = 0.2\ndelay = 1\n";
    let queue = site.write("brief.toml", queue);
    access.run("provision", &["add", &queue]).exits(0);
    // More than the first does in its 2 s, however many processors it has.
    let processors = std::thread::available_parallelism().unwrap();
    let range = format!("1-{}", 4 * processors.get());
    let id = access.submit(&["--range", &range, "--", "sleep", "0.7"]);
    access.run("wait", &[&id, "--quiet"]).exits(0);
    let results = access.results(&id);
    assert!(results.iter().all(|result| result["attempts"] == 1));
    let names: BTreeSet<&str> =
        results.iter().filter_map(|result| result["executor"].as_str()).collect();
    assert!(names.len() > 1, "{names:?}");

    // Tasks for which no executor stays long enough wait, and it is said why.
    let held = access.submit(&["--estimate", "1m", "--", "true"]);
    let said = dispatcher.service().wait_for("cannot serve a task that waits");
    assert!(said.contains(" s, and executors stay for 2 s: choose a longer"), "{said}");
    let plan = access.run("provision", &["plan"]).exits(0);
    assert!(plan.text().contains("ask for nothing: cannot serve a task that waits"), "{plan}");
    access.run("cancel", &[&held]).exits(0);

    // When the dispatcher does not come back, executors end by themselves.
    access.run("provision", &["remove", "brief"]).exits(0);
    dispatcher.service().wait_for("queue brief: is removed");
    let queue = site
        .write("short.toml", "kind = \"local\"\nnodes_max = 1\nrelease = \"idle\"\ngive_up = 2\n");
    access.run("provision", &["add", &queue]).exits(0);
    access.run("provision", &["add", &queue]).exits(2).says_only(1, "another --name");
    access.run("provision", &["once", "short", "--nodes", "1"]).exits(0);
    poll_for("the executor has come", || {
        allocations(&access).iter().any(|one| one["executors"] == 1).then_some(())
    });
    dispatcher.kill();
    site.left().wait_for_none();
}

#[trial]
fn what_cannot_be_is_said_at_once() {
    let site = Site::new();
    site.run(["start", "--dir", "x", "--provision", "slrm"]).exits(2).says("choose slurm, ");
    site.run(["start", "--dir", "y", "--no-journal", "--provision", "local"])
        .exits(2)
        .says_only(1, "--provision needs a journal");
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    access.run("provision", &["list"]).exits(0);
    access.run("provision", &["add", "local", "--nodes-max", "1"]).exits(0);
    let refused = |args: &[&str], part: &str| {
        access.run("provision", args).exits(2).says(part);
    };
    refused(&["pause", "none"], "there is no queue none");
    refused(&["drop", "7"], "there is no allocation 7");
    // No more is offered than this machine has.
    refused(&["add", "local", "--name", "again"], "queue local uses this machine already");
    refused(&["add", "local", "--name", "huge", "--cpus", "4000"], "more than this machine has");
    refused(&["once", "local", "--nodes", "2"], "choose 1 to 1");
    access.run("provision", &["remove", "local"]).exits(0);
    dispatcher.service().wait_for("queue local: is removed");
    refused(&["add", "slurm", "--acquire", "all"], "choose all-at-once");
    refused(&["add", "slurm", "--name", "a b"], "no name for a queue");
    refused(&["add", "./none.toml"], "cannot read ./none.toml");
    // A scheduler whose programs are not here says so, and is not asked again
    // and again.
    let other =
        site.write("other.toml", "kind = \"local\"\n[lrm.query]\ncommand = [\"nowhere\"]\n");
    access.run("provision", &["add", &other]).exits(0);
    dispatcher.service().wait_for("is it installed, and in PATH?");
    // Others than the owner have no business here.
    let client = dispatcher.access_of("access-client.json");
    client.run("provision", &["list"]).exits(2).says("does not allow that");
}
