//! What happened, as `falkon log` prints it.

use crate::fixture::{Access, Site, json_lines, poll};
use falkon_trials::trial;
use serde_json::Value;
use std::collections::BTreeMap;

/// Tasks by the number of times that they are in events of a kind.
fn tasks_of(events: &[Value], kind: &str) -> BTreeMap<u64, u64> {
    let mut tasks = BTreeMap::new();
    for event in events.iter().filter(|event| event["event"] == kind) {
        let first = event["first"].as_u64().unwrap();
        for task in first..first + event["count"].as_u64().unwrap() {
            *tasks.entry(task).or_default() += 1;
        }
    }
    tasks
}

fn once(count: u64) -> BTreeMap<u64, u64> {
    (0..count).map(|task| (task, 1)).collect()
}

#[trial]
fn a_run_keeps_what_happened_beside_its_results() {
    let site = Site::new();
    let script = "test $1 != 7 || { echo \"it \\\"breaks\\\"\"; exit 3; }";
    let run = ["run", "-j", "2", "--out", "o", "--range", "0-19", "--", "sh", "-c", script, "-"];
    site.run(run).exits(1);
    let events = site.run(["log", "o", "--json"]).exits(0).results();
    assert_eq!(events[0]["event"], "dispatcher_started");
    for kind in ["submitted", "assigned", "ended"] {
        assert_eq!(tasks_of(&events, kind), once(20), "{kind}");
    }
    let submitted = events.iter().find(|event| event["event"] == "submitted").unwrap();
    assert!(submitted["command"].as_str().unwrap().starts_with("sh -c test $1 != 7"));
    for ended in events.iter().filter(|event| event["event"] == "ended") {
        // An executor's clock may be behind by what it takes to tell it the time.
        let time = |key: &str| ended[key].as_f64().unwrap();
        assert!(time("queued") <= time("dispatched"), "{ended}");
        assert!(time("started") <= time("ended"), "{ended}");
        assert_eq!(ended["attempts"], 1);
    }
    let failed = site.run(["log", "o", "--failed", "--json"]).exits(0).results();
    let [failed] = failed.as_slice() else { panic!("{failed:?}") };
    let found = [&failed["first"], &failed["exit_code"], &failed["executor"]];
    assert_eq!(found.map(|found| found.as_u64()), [Some(7), Some(3), failed["executor"].as_u64()]);
    let text = site.run(["log", "o", "--tasks", "7", "--kind", "ended"]).exits(0);
    assert!(text.text().contains("  task 0/7 failed with status 3 after "), "{}", text.text());
    // For other programs: each task once.
    let exported = site.run(["export", "o", "--jsonl"]).exits(0).results();
    assert_eq!(tasks_of(&exported, "ended"), once(20));
    site.run(["export", "o", "--perfetto", "-o", "trace"]).exits(0);
    let trace = std::fs::read(site.path("trace")).unwrap();
    let named = |name: &[u8]| trace.windows(name.len()).filter(|found| *found == name).count();
    assert_eq!((named(b"slot 1"), named(script.as_bytes())), (1, 1));
    // The rest of a run is in the same place.
    site.run(["run", "--resume", "o", "--range", "0-19", "--", "sh", "-c", script, "-"]).exits(1);
    site.run(["log", "o", "--instance", "nope"])
        .exits(2)
        .says_only(1, "of an instance named \"nope\"");
    site.run(["log", "o", "--instance", "7"]).exits(2).says_only(1, "no event is of an instance 7");
    site.run(["log", "o", "--executor", "nope"]).exits(2).says_only(1, "of an executor named");
    let again = site.run(["log", "o/events", "--json"]).exits(0).results();
    let started = again.iter().filter(|event| event["event"] == "dispatcher_started");
    assert_eq!(started.count(), 2);
    let none = site.text("none");
    std::fs::create_dir(&none).unwrap();
    site.run(["log", &none]).exits(2).says_only(1, "has no events");
}

/// Whoever follows sees an end soon after it, also while others keep coming.
#[trial]
fn events_are_written_while_more_come() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let executor = dispatcher.executor("node", &["--slots", "1"]);
    let access = dispatcher.access();
    let instance = access.submit(&["--range", "1-5000", "--", "@sleep", "0.02"]);
    poll("an event of an end", || !log(&access, &["--kind", "ended"]).is_empty());
    let found = access.instance(&instance);
    assert!(found["done"].as_u64().unwrap() < 5000, "events came when all was over: {found}");
    access.run("cancel", &[&instance]).exits(0);
    drop(executor);
}

/// Reads a table with one of the programs that people use, and prints what it adds up to.
const READ_TABLE: [&str; 2] = [
    "import duckdb; print(*duckdb.sql(\"SELECT sum(count)::INT, sum(exit_code * count)::INT, \
     count(DISTINCT executor_name), min(command), bool_and(started <= ended) FROM 'o.parquet'\"\
     ).fetchall()[0])",
    "import pandas; t = pandas.read_parquet('o.parquet'); print(t['count'].sum(), \
     int((t['exit_code'] * t['count']).sum()), t['executor_name'].nunique(), t['command'].min(), \
     (t['started'] <= t['ended']).all())",
];

#[trial]
fn a_table_of_tasks_opens_in_the_programs_that_people_use() {
    let site = Site::new();
    site.run(["run", "--out", "p", "--range", "1-20", "--", "sh", "-c", "exit 3"]).exits(1);
    site.run(["export", "p", "--parquet", "-o", "o.parquet"]).exits(0);
    let file = std::fs::read(site.path("o.parquet")).unwrap();
    assert!(file.starts_with(b"PAR1") && file.ends_with(b"PAR1"));
    let mut readers = 0;
    for (module, program) in ["duckdb", "pandas, pyarrow"].iter().zip(READ_TABLE) {
        let import = format!("import {module}");
        let mut python = site.program("python3");
        if !python.args(["-c", &import]).output().is_ok_and(|ran| ran.status.success()) {
            continue;
        }
        let read = site.program("python3").args(["-c", program]).output().unwrap();
        let text = String::from_utf8_lossy(&read.stdout);
        assert_eq!(text.trim_end(), "20 60 1 sh -c exit 3 {} True", "{read:?}");
        readers += 1;
    }
    if readers == 0 {
        falkon_trials::skip("python3 has neither duckdb nor pandas with pyarrow");
    }
}

fn log(access: &Access<'_>, args: &[&str]) -> Vec<Value> {
    access.run("log", &[&["--json"], args].concat()).exits(0).results()
}

#[trial]
fn observers_read_what_happens_at_a_dispatcher_and_after_its_death() {
    let site = Site::new();
    let mut dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let observer = dispatcher.access_of("access-observer.json");
    let executor = dispatcher.executor("worker", &["--slots", "2"]);
    let submit = |count: &str| access.submit(&["--name", "x", "--range", count, "--", "@noop"]);
    let first = submit("0-99");
    access.run("wait", &[&first]).exits(0);
    poll("the events are written", || {
        tasks_of(&log(&observer, &["--instance", "x"]), "ended") == once(100)
    });
    let joined = log(&observer, &["--kind", "executors"]);
    assert_eq!(joined[0]["event"], "executor_joined");
    assert_eq!((&joined[0]["name"], joined[0]["cpus"].as_u64()), (&"worker".into(), Some(2)));
    let codes = access.submit(&["--name", "codes", "--range", "0-4", "--", "sh", "-c", "exit {}"]);
    access.run("wait", &[&codes]).exits(1);
    let tasks = |args: &[&str]| -> Vec<u64> {
        let ran = access.run("tasks", &[&["codes", "--json"], args].concat()).exits(0);
        json_lines(ran.text()).iter().map(|task| task["index"].as_u64().unwrap()).collect()
    };
    assert_eq!(tasks(&["--sort", "exit-code", "--count", "2"]), [4, 3]);
    assert_eq!(tasks(&["--state", "failed", "--count", "2", "--from", "2"]), [2, 3]);
    assert_eq!(tasks(&["--exit-code", "2", "--command", "exit 2", "--executor", "worker"]), [2]);
    assert!(tasks(&["--state", "waiting,ready"]).is_empty());
    assert!(tasks(&["--longer", "10h"]).is_empty());
    let client = dispatcher.access_of("access-client.json");
    client.run("log", &[]).exits(2).says_only(1, "does not allow that");
    dispatcher.kill();
    dispatcher.start();
    let second = submit("0-49");
    access.run("wait", &[&second]).exits(0);
    poll("the events go on", || {
        tasks_of(&log(&observer, &["--instance", &second]), "ended") == once(50)
    });
    // The files say the same.
    let of_first = ["log", "d", "--json", "--instance", &first];
    let files = site.run(of_first).exits(0).results();
    assert_eq!(tasks_of(&files, "ended"), once(100));
    drop(executor);
    let silent = site.dispatcher("e", &["--events", "0"]);
    silent.access().run("log", &[]).exits(2).says_only(1, "keeps no events");
}
