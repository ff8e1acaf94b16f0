//! `falkon retry`: failed tasks run again in their places.

use crate::fixture::{Access, Site, json_lines, poll};
use falkon_trials::trial;
use serde_json::Value;

/// The statuses of an instance's results, by task.
fn statuses(access: &Access<'_>, id: &str) -> Vec<(u64, String)> {
    let results = json_lines(access.run("results", &["--json", "--no-wait", id]).text());
    let status = |result: &Value| {
        (result["index"].as_u64().unwrap(), result["status"].as_str().unwrap().to_owned())
    };
    let mut found: Vec<(u64, String)> = results.iter().map(status).collect();
    found.sort();
    found
}

fn retry(access: &Access<'_>, args: &[&str], text: &str) {
    assert_eq!(access.run("retry", args).exits(0).text().trim_end(), text);
}

#[trial]
fn failed_tasks_run_again_under_their_numbers_also_after_a_restart() {
    let site = Site::new();
    let mut dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let _executor = dispatcher.executor("worker", &["--slots", "2"]);
    let (one, all) = (site.path("one"), site.path("all"));
    let script =
        format!("case $0 in 3) [ -e {} ];; 5) [ -e {} ];; esac", one.display(), all.display());
    let id = access.submit(&["--name", "x", "--range", "0-9", "--", "sh", "-c", &script, "{}"]);
    access.run("wait", &[&id]).exits(1);
    let failed = |access: &Access<'_>| -> Vec<u64> {
        let all = statuses(access, &id).into_iter();
        all.filter(|(_, status)| status == "failed").map(|(index, _)| index).collect()
    };
    assert_eq!(failed(&access), [3, 5]);

    std::fs::write(&one, "").unwrap();
    retry(&access, &["x"], "2 tasks retried");
    access.run("wait", &[&id]).exits(1);
    assert_eq!(failed(&access), [5]);
    let now = access.instance(&id);
    assert_eq!((&now["done"], &now["failed"]), (&9.into(), &1.into()), "{now}");

    // A dispatcher that is killed knows which result of a task counts.
    dispatcher.kill();
    dispatcher.start();
    assert_eq!(failed(&access), [5]);
    retry(&access, &["x", "--tasks", "3-4"], "0 tasks retried");
    std::fs::write(&all, "").unwrap();
    retry(&access, &["x/5"], "1 task retried");
    access.run("wait", &[&id]).exits(0);
    assert_eq!(failed(&access), [] as [u64; 0]);
    assert_eq!(statuses(&access, &id).len(), 10);
    let explained = access.run("explain", &["x/5"]).exits(0);
    assert!(explained.text().contains("is done"), "{explained}");
    // Events are written a moment after they happen.
    poll("an event of the retry", || {
        let events = access.run("log", &["--kind", "assigned"]).exits(0);
        events.text().contains("task 0/5 retried")
    });
}

#[trial]
fn tasks_are_chosen_by_what_they_are_and_cancelled_ones_if_they_are_named() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let id = access.submit(&["--range", "0-3", "--", "false", "{}"]);
    access.run("cancel", &[&id, "--tasks", "0-1"]).exits(0);
    let _executor = dispatcher.executor("worker", &["--slots", "2"]);
    access.run("wait", &[&id]).exits(1);
    retry(&access, &[&id, "--command", "false 2"], "1 task retried");
    access.run("retry", &[&id, "--failed"]).exits(0);
    access.run("wait", &[&id]).exits(1);
    retry(&access, &[&id, "--state", "cancelled"], "2 tasks retried");
    access.run("wait", &[&id]).exits(1);
    assert!(statuses(&access, &id).iter().all(|(_, status)| status == "failed"));
    access.run("retry", &["7"]).exits(2).says_only(1, "there is no instance 7");
    let observer = dispatcher.access_of("access-observer.json");
    observer.run("retry", &[&id]).exits(2).says_only(1, "does not allow that");
}

#[trial]
fn who_waits_hears_of_the_retry() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let _executor = dispatcher.executor("worker", &["--slots", "2"]);
    let (gate, good) = (site.path("gate"), site.path("good"));
    let script = format!(
        "case $0 in 0) [ -e {} ];; 1) until [ -e {} ]; do sleep 0.02; done;; esac",
        good.display(),
        gate.display()
    );
    let waiting = access
        .start("submit", &["--wait", "--json", "--range", "0-1", "--", "sh", "-c", &script, "{}"]);
    waiting.wait_for_lines(1);
    std::fs::write(&good, "").unwrap();
    retry(&access, &["0"], "1 task retried");
    waiting.wait_for_lines(2);
    std::fs::write(&gate, "").unwrap();
    let ran = waiting.finish().exits(0);
    let results = ran.results();
    let of_first: Vec<&Value> =
        results.iter().filter(|one| one["index"] == 0).map(|one| &one["status"]).collect();
    assert_eq!(of_first, ["failed", "done"], "{ran}");
}
