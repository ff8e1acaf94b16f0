//! Outputs of tasks below relays that become members of archives.

use super::{Relay, wait_for_nodes};
use crate::fixture::{Access, Running, Site, indices, json_lines, poll};
use falkon_trials::trial;

/// Tasks of which each has an output.
const TASKS: u64 = 2000;

/// The text of a member, by the place that a result names.
fn text_at(site: &Site, place: &serde_json::Value) -> String {
    site.run(["archive", "cat", place.as_str().unwrap()]).exits(0).text().to_owned()
}

/// How many tasks of the first instance of a dispatcher are staged.
fn staged(access: &Access<'_>) -> u64 {
    access.status()["instances"][0]["staged"].as_u64().unwrap()
}

fn executor(relay: &Relay<'_>, name: &str) -> Running {
    let args = ["--name", name, "--slots", "2", "--collect-delay", "1h"];
    let executor = relay.access().start("executor", &args);
    relay.running.as_ref().unwrap().wait_for(&format!("executor {name} joined"));
    executor
}

#[trial]
fn two_clusters_write_one_archive_though_a_relay_is_killed() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let upstream = dispatcher.access().file().to_owned();
    let mut left = Relay::start(&site, "left", &upstream);
    let right = Relay::start(&site, "right", &upstream);
    let _executors = [
        left.executor("left-1", "2"),
        right.executor("right-1", "1"),
        right.executor("right-2", "1"),
    ];
    wait_for_nodes(&dispatcher, &[("left", 1), ("right", 2)]);
    let range = format!("1-{TASKS}");
    let options = ["--wait", "--json", "--range", &range];
    let collected = ["--output", "out=scores.zip!{}/out", "--collect-streams", "logs.zip", "--"];
    let command = ["sh", "-c", "echo {} > out; echo printed {}"];
    let submit = [&options[..], &collected[..], &command[..]].concat();
    let client = dispatcher.access().start("submit", &submit);
    poll("a quarter of the tasks is done", || {
        let instance = &dispatcher.access().status()["instances"][0];
        let of = |state: &str| instance[state].as_u64().unwrap_or(0);
        of("staged") + of("done") >= TASKS / 4
    });
    left.kill_and_restart();
    let ran = client.finish().exits(0);
    assert_eq!(indices(ran.text()), (0..TASKS).collect::<Vec<u64>>());
    let results = json_lines(ran.text());
    for name in ["left", "right"] {
        assert!(results.iter().any(|result| result["executor"] == name), "{name} ran nothing");
    }
    for archive in ["scores.zip", "logs.zip"] {
        let checked = site.run(["archive", "check", archive]).exits(0);
        assert!(checked.text().contains("all is whole"), "{checked}");
    }
    for result in results.iter().step_by(97) {
        let number = result["index"].as_u64().unwrap() + 1;
        assert_eq!(text_at(&site, &result["outputs"][0]), format!("{number}\n"), "{result}");
        let printed = text_at(&site, &result["stdout_member"]);
        assert_eq!(printed, format!("printed {number}\n"), "{result}");
    }
}

#[trial]
fn staged_tasks_are_known_above_and_run_once_though_relays_are_killed() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let mut upper = Relay::start(&site, "upper", dispatcher.access().file());
    let mut lower = Relay::start(&site, "lower", upper.access().file());
    // An executor that is never idle before the gate is open, so that nothing is written.
    let _executor = executor(&lower, "node");
    wait_for_nodes(&dispatcher, &[("upper", 1)]);
    let access = dispatcher.access();
    let (mut started, mut gate) = (site.signals("started"), site.gate("gate"));
    let ran = site.text("ran");
    let script = format!(
        "echo {{}} >> {ran}; \
         if [ {{}} = 1 ]; then echo > {}; read line < {}; fi; echo {{}} > out",
        started.path(),
        gate.path()
    );
    let args = ["--range", "1-20", "--output", "out=a.zip!{}", "--", "sh", "-c", &script];
    let id = access.submit(&args);
    started.next();
    poll("19 tasks are staged at every tier", || {
        [staged(&access), staged(&upper.access()), staged(&lower.access())] == [19; 3]
    });
    let tasks = access.run("tasks", &[&id, "--json"]).exits(0).results();
    let named =
        |task: &&serde_json::Value| task["state"] == "staged" && task["executor"] == "upper";
    assert_eq!(tasks.iter().filter(named).count(), 19, "{tasks:?}");
    upper.kill_and_restart();
    lower.kill_and_restart();
    poll("they are known again", || staged(&access) == 19);
    assert!(!site.path("a.zip").exists(), "something was written");
    gate.let_through(1);
    access.run("wait", &[&id]).exits(0);
    for result in access.results(&id) {
        let number = result["index"].as_u64().unwrap() + 1;
        assert_eq!(text_at(&site, &result["outputs"][0]), format!("{number}\n"), "{result}");
    }
    assert_eq!(site.read("ran").lines().count(), 20, "tasks ran twice");
}

#[trial]
fn a_submission_below_relays_that_is_resumed_runs_nothing_again() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let relay = Relay::start(&site, "relay", dispatcher.access().file());
    let _executor = relay.executor("node", "2");
    wait_for_nodes(&dispatcher, &[("relay", 1)]);
    let script = format!("echo {{}} >> {}; echo {{}} > out", site.text("ran"));
    let options = ["--wait", "--resume", "results", "--range", "1-20"];
    let submit = [&options[..], &["--output", "out=a.zip!{}", "--", "sh", "-c", &script]].concat();
    let run = || {
        dispatcher.access().run("submit", &submit).exits(0);
        site.read("ran").lines().count()
    };
    assert_eq!(run(), 20);
    assert_eq!(run(), 20);
    std::fs::remove_file(site.path("a.zip")).unwrap();
    assert!(run() > 20, "what was lost did not run again");
}
