//! What people hold up, and let go on.

use crate::fixture::{Access, Site, json_lines, poll};
use falkon_trials::trial;
use serde_json::Value;

fn status(access: &Access<'_>) -> Value {
    json_lines(access.run("status", &["--json"]).exits(0).text()).remove(0)
}

/// What keeps the tasks of an instance, by kinds of obstacles.
fn obstacles(access: &Access<'_>, instance: &str) -> Vec<String> {
    let explained = access.run("explain", &["--json", instance]).exits(0);
    let lines = json_lines(explained.text());
    let obstacles = lines.iter().flat_map(|line| line["obstacles"].as_array().unwrap());
    obstacles.map(|obstacle| obstacle["kind"].as_str().unwrap().to_owned()).collect()
}

/// Whether there are events of these kinds.
fn are_events(access: &Access<'_>, kinds: [&str; 2]) -> bool {
    let events = access.run("log", &["--json"]).exits(0).results();
    kinds.iter().all(|kind| events.iter().any(|event| event["event"] == *kind))
}

#[trial]
fn paused_instances_and_drained_executors_wait_until_they_are_let_go() {
    let site = Site::new();
    let mut dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let executor = dispatcher.executor("worker", &["--slots", "2"]);
    poll("the executor is there", || status(&access)["executors"][0]["connected"] == true);
    access.run("drain", &["worker", "--wait"]).exits(0);
    let id = access.submit(&["--name", "x", "--range", "0-9", "--", "@noop"]);
    access.run("pause", &["x"]).exits(0);
    assert_eq!(obstacles(&access, "x"), ["paused", "taken"]);
    access.run("priority", &["x", "5"]).exits(0);
    // One that is killed may lose the events of its last moment.
    poll("the events say so", || are_events(&access, ["paused", "executor_drained"]));
    dispatcher.kill();
    dispatcher.start();
    poll("the executor is back", || obstacles(&access, "x") == ["paused", "taken"]);
    let now = status(&access);
    assert_eq!(
        (&now["instances"][0]["state"], &now["instances"][0]["ready"]),
        (&"paused".into(), &10.into())
    );
    assert_eq!(now["instances"][0]["priority"], 5);
    assert_eq!(now["executors"][0]["drained"], true);
    let text = access.run("status", &[]).exits(0);
    assert!(text.text().contains("(drained)"), "{}", text.text());
    access.run("resume", &[&id]).exits(0);
    assert_eq!(obstacles(&access, "x"), ["taken"]);
    access.run("undrain", &["worker"]).exits(0);
    access.run("wait", &[&id]).exits(0);
    access.run("drain", &["nobody"]).exits(2).says_only(1, "there is no executor \"nobody\"");
    access.run("pause", &["nothing"]).exits(2).says_only(1, "there is no instance named");
    let observer = dispatcher.access_of("access-observer.json");
    observer.run("pause", &[&id]).exits(2).says_only(1, "does not allow that");
    // Who does not own the dispatcher lets others go first, and goes before nobody.
    let client = dispatcher.access_of("access-client.json");
    let id = client.submit(&["--instance-access", &site.text("own.json"), "--", "@noop"]);
    let own = Access::at(&site, &site.path("own.json"));
    own.run("priority", &[&id, "-1"]).exits(0);
    own.run("priority", &[&id, "1"]).exits(2).says_only(1, "does not allow that");
    poll("the events say so", || are_events(&observer, ["resumed", "executor_undrained"]));
    drop(executor);
}
