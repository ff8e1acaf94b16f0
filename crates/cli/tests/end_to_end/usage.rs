//! What tasks used.

use crate::fixture::{Site, json_lines, poll};
use falkon_trials::trial;
use serde_json::Value;

/// A process whose child has 30 MB.
const LARGE: [&str; 3] = ["sh", "-c", "dd if=/dev/zero of=/dev/null bs=30000000 count=1; exit {}"];

#[trial]
fn results_say_what_the_processes_of_a_task_used() {
    let site = Site::new();
    let run = [&["run", "--usage", "--out", "kept", "--range", "0-1", "--"], &LARGE[..]].concat();
    let ran = site.run(run).exits(1);
    let row = |name: &str| {
        let line = ran.err.lines().find(|line| line.starts_with(name)).expect(name);
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(row("sh")[1], "2", "{ran}");
    let results = site.read("kept/results.jsonl");
    assert_eq!(results.lines().count(), 2);
    for line in results.lines() {
        let result: Value = serde_json::from_str(line).unwrap();
        let used = |name: &str| result["usage"][name].as_f64().expect(name);
        assert!(used("rss_max_bytes") >= 30e6, "{line}");
        assert!(used("user_seconds") + used("system_seconds") > 0.0, "{line}");
        let times = |name: &str| result["times"][name].as_f64().unwrap();
        let wall = times("ended") - times("started");
        assert!((used("wall_seconds") - wall).abs() < 1e-5, "{line}");
        assert!(used("read_bytes") >= 0.0 && used("written_bytes") >= 0.0, "{line}");
    }
    // What did not start, and what is no process, was not measured.
    let ran = site.run(["run", "--json", "--usage", "--", "no-such-program"]).exits(1);
    assert!(!ran.text().contains("usage"), "{ran}");
    ran.says("none was measured");
    let ran = site.run(["run", "--json", "--", "@noop"]).exits(0);
    assert!(!ran.text().contains("usage"), "{ran}");
}

#[trial]
fn tasks_reports_events_and_exports_say_what_tasks_used() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let _executor = dispatcher.executor("e", &["--slots", "2"]);
    let id = access.submit(&[&["--range", "0-3", "--"], &LARGE[..]].concat());
    access.submit(&["--wait", "--", "sh", "-c", "exit 0"]);
    access.run("wait", &[&id]).exits(1);
    let row = |args: &[&str]| -> Vec<String> {
        let shown = access.run("tasks", &[&[&*id, "--usage"], args].concat()).exits(0);
        let line = shown.text().lines().nth(1).unwrap_or_else(|| panic!("{shown}"));
        line.split_whitespace().map(str::to_owned).collect()
    };
    assert_eq!(row(&[])[..2], ["sh", "4"]);
    assert_eq!(row(&["--exit-code", "0"])[..2], ["sh", "1"]);
    let none = access.run("tasks", &[&id, "--usage", "--exit-code", "9"]).exits(0);
    assert_eq!(none.text().lines().count(), 1, "{none}");
    access.run("tasks", &[&id, "--usage", "--json"]).exits(2);
    let tasks =
        json_lines(access.run("tasks", &[&id, "--json", "--sort", "memory"]).exits(0).text());
    let memory: Vec<u64> =
        tasks.iter().map(|task| task["usage"]["rss_max_bytes"].as_u64().unwrap()).collect();
    assert!(memory.is_sorted_by(|one, next| one >= next) && memory[3] >= 30_000_000, "{memory:?}");
    // Events, and reports of them, have the amounts of the results.
    let results = access.results(&id);
    let of = |all: &[Value], name: &str| -> u64 {
        all.iter().map(|one| one["usage"][name].as_u64().unwrap()).sum()
    };
    let ended = |args: &[&str]| {
        let log =
            access.run("log", &[&["--json", "--kind", "ended", "--instance", &*id], args].concat());
        json_lines(log.exits(0).text())
    };
    poll("all ends are written", || ended(&[]).len() == 4);
    let events = ended(&[]);
    let written: u64 = events.iter().map(|one| one["rss_max_bytes"].as_u64().unwrap()).sum();
    assert_eq!(written, of(&results, "rss_max_bytes"));
    assert!(events.iter().all(|one| one["user_s"].is_number() && one["system_s"].is_number()));
    let report = access.run("report", &["--json", &id]).exits(0);
    let command = &json_lines(report.text())[0]["commands"][0];
    let used = &command["used"];
    assert_eq!(used["tasks"], 4, "{command}");
    assert_eq!(used["rss_max_bytes"].as_u64(), memory.first().copied(), "{command}");
    let seconds = |one: &Value| {
        one["usage"]["user_seconds"].as_f64().unwrap()
            + one["usage"]["system_seconds"].as_f64().unwrap()
    };
    let spent = used["user_s"].as_f64().unwrap() + used["system_s"].as_f64().unwrap();
    assert!((results.iter().map(seconds).sum::<f64>() - spent).abs() < 1e-5, "{command}");
    let text = access.run("report", &["--markdown", &id]).exits(0);
    assert!(text.text().contains("## What tasks used"), "{text}");
    // No-ops were not measured.
    let noop = access.submit(&["--range", "0-9", "--", "@noop"]);
    access.run("wait", &[&noop]).exits(0);
    let shown = access.run("tasks", &[&noop, "--usage"]).exits(0);
    assert_eq!(shown.text().lines().count(), 1, "{shown}");
}
