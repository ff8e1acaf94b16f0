//! What is in caches, as people see, put, get and remove it.

use super::nothing_is_left;
use super::services::{OBJECTS, end, executor, read_all_on, with_files};
use crate::fixture::{Access, Ran, Site};
use falkon_trials::trial;
use serde_json::Value;

fn data(access: &Access<'_>, command: &str, args: &[&str]) -> Ran {
    access.run_sub(&["data", command], args)
}

/// What `falkon data where` says of one object.
#[track_caller]
fn located(access: &Access<'_>, name: &str) -> Value {
    data(access, "where", &["--json", name]).exits(0).results().remove(0)
}

/// The names of the executors that hold an object.
#[track_caller]
fn holders(access: &Access<'_>, name: &str) -> Vec<String> {
    let found = located(access, name);
    let executors = found["executors"].as_array().unwrap().iter();
    let held = executors.filter(|executor| executor["state"] == "held");
    let mut names: Vec<String> =
        held.map(|executor| executor["name"].as_str().unwrap().to_owned()).collect();
    names.sort();
    names
}

#[trial]
fn objects_are_listed_and_located() {
    let site = Site::new();
    let dispatcher = with_files(&site);
    let access = dispatcher.access();
    let a = executor(&site, &dispatcher, "a");
    let b = executor(&site, &dispatcher, "b");
    assert_eq!(data(&access, "ls", &[]).exits(0).text(), "0 objects of 0 B, 0 copies of 0 B\n");
    read_all_on(&access, "a");
    let listed = data(&access, "ls", &["--json"]).exits(0).results();
    assert_eq!(listed.len() as u64, OBJECTS);
    for object in &listed {
        assert_eq!((&object["size"], &object["holders"]), (&2000.into(), &1.into()));
        let url = object["url"].as_str().unwrap();
        assert!(url.starts_with(&site.text("files/")), "{url}");
    }
    let id = submit_one(&access, "b", "files/3");
    assert_eq!(holders(&access, "files/3"), ["a", "b"]);
    assert_eq!(holders(&access, &site.text("files/4")), ["a"]);
    let by_id = listed[0]["id"].as_str().unwrap();
    assert_eq!(located(&access, by_id)["url"], listed[0]["url"]);
    let text = data(&access, "where", &["files/3"]).exits(0);
    for part in ["files/3", "2.0 KiB", "a", "b", "held"] {
        assert!(text.text().contains(part), "no {part:?} in\n{text}");
    }
    let count = |args: &[&str]| {
        data(&access, "ls", &[&["--json"], args].concat()).exits(0).results().len() as u64
    };
    assert_eq!(count(&["--executor", "b"]), 1);
    assert_eq!(count(&["--executor", "a"]), OBJECTS);
    assert_eq!(count(&["./files/3"]), 1);
    assert_eq!(count(&["*/files/[12]"]), 2);
    assert_eq!(count(&["cache:"]), 0);
    assert_eq!(count(&["--instance", &id]), 1);
    data(&access, "ls", &["--executor", "z"]).exits(2).says_only(1, "no executor `z`");
    let ran = data(&access, "where", &["files/9"]).exits(2);
    ran.says_only(1, "no executor holds files/9");
    let text = data(&access, "ls", &[]).exits(0);
    assert!(text.text().contains("8 objects of 15.6 KiB, 9 copies of 17.6 KiB"), "{text}");
    // Whoever may only look may see, and do nothing.
    let observer = dispatcher.access_of("access-observer.json");
    assert_eq!(holders(&observer, "files/3"), ["a", "b"]);
    data(&observer, "get", &["files/3"]).exits(2).says_only(1, "does not allow that");
    data(&observer, "rm", &["files/3"]).exits(2).says_only(1, "does not allow that");
    data(&observer, "put", &["files/3"]).exits(2).says_only(1, "does not allow that");
    // The status shows the caches.
    let status = access.status();
    let cache = &status["executors"][0]["cache"];
    assert_eq!((&cache["objects"], &cache["capacity_bytes"]), (&OBJECTS.into(), &(1 << 20).into()));
    assert_eq!(cache["used_bytes"], 2000 * OBJECTS);
    end([a, b]);
}

/// Reads one file in a task on one executor.
#[track_caller]
fn submit_one(access: &Access<'_>, executor: &str, source: &str) -> String {
    let (need, input) = (format!("{executor}=1"), format!("in={source}"));
    let id = access.submit(&["--resource", &need, "--input", &input, "--", "cat", "in"]);
    access.run("wait", &[&id, "--quiet"]).exits(0);
    id
}

#[trial]
fn what_is_put_is_read_by_tasks_got_and_removed() {
    for level in ["none", "authenticate", "encrypt"] {
        let site = Site::new();
        let mut dispatcher = site.dispatcher("d", &["--security", level]);
        let access = dispatcher.access();
        let names = ["a", "b", "c"];
        let executors = names.map(|name| executor(&site, &dispatcher, name));
        // Larger than what goes through memory at once.
        let large: Vec<u8> =
            (0..300_000u32).flat_map(|number| number.to_le_bytes()[..2].to_vec()).collect();
        site.write("large.bin", &large);
        site.write("small", "small\n");
        site.write("empty", "");
        let put = |args: &[&str]| data(&access, "put", args);
        assert_eq!(put(&["small", "empty"]).exits(0).lines(), ["cache:small", "cache:empty"]);
        let args = ["large.bin", "--key", "big/one", "--replicas", "2"];
        assert_eq!(put(&args).exits(0).text(), "cache:big/one\n");
        assert_eq!(holders(&access, "cache:big/one").len(), 2);
        // Again is no other object; another content is refused.
        put(&args).exits(0);
        assert_eq!(holders(&access, "cache:big/one").len(), 2);
        put(&["small", "--key", "big/one"]).exits(2).says("another object is there under this key");
        // Tasks read it, wherever they run.
        for name in names {
            let need = format!("{name}=1");
            let args = ["--wait", "--json", "--resource", &need, "--input", "in=cache:big/one"];
            let more = ["--input", "s=cache:small", "--shell", "--", "wc -c < in; cat s"];
            let ran = access.run("submit", &[&args[..], &more].concat()).exits(0);
            assert_eq!(ran.results()[0]["stdout"], "600000\nsmall\n");
        }
        assert_eq!(holders(&access, "cache:big/one"), names);
        let ran = access.run("submit", &["--input", "in=cache:none", "--", "true"]).exits(2);
        ran.says("cache:none is written by no other task");
        // Out again, to a file and to standard output.
        data(&access, "get", &["cache:big/one", "out"]).exits(0);
        assert!(std::fs::read(site.path("out")).unwrap() == large);
        assert_eq!(data(&access, "get", &["cache:small"]).exits(0).text(), "small\n");
        assert_eq!(data(&access, "get", &["cache:empty"]).exits(0).text(), "");
        data(&access, "get", &["cache:none", "never"])
            .exits(2)
            .says("no executor holds cache:none");
        assert!(!site.path("never").exists());
        // A client may do all of that, an instance's file what its tasks may.
        let client = dispatcher.access_of("access-client.json");
        assert_eq!(data(&client, "get", &["cache:small"]).exits(0).text(), "small\n");
        assert_eq!(data(&client, "ls", &["--json"]).exits(0).results().len(), 3);
        // After a restart the dispatcher hears of them again.
        dispatcher.kill();
        dispatcher.start();
        for name in names {
            dispatcher.service().wait_for(&format!("executor {name} joined"));
        }
        let args = ["--wait", "--input", "in=cache:small", "--", "cat", "in"];
        let ran = retried(|| access.run("submit", &args));
        assert_eq!(ran.text(), "small\n");
        for name in ["cache:big/one", "cache:small", "cache:empty"] {
            data(&access, "rm", &[name]).exits(0);
            data(&access, "where", &[name]).says("no executor holds");
        }
        data(&access, "rm", &["cache:small"]).exits(2).says_only(1, "no executor holds");
        end(executors);
        nothing_is_left(&site);
    }
}

/// Until executors have said what they hold, which they do when they are back.
#[track_caller]
fn retried(run: impl Fn() -> Ran) -> Ran {
    let since = std::time::Instant::now();
    loop {
        let ran = run();
        if ran.succeeded() || since.elapsed() > crate::fixture::PATIENCE {
            return ran.exits(0);
        }
    }
}

#[trial]
fn what_is_in_use_or_needed_stays() {
    let site = Site::new();
    let dispatcher = with_files(&site);
    let access = dispatcher.access();
    let a = executor(&site, &dispatcher, "a");
    site.write("input", "content\n");
    data(&access, "put", &["input"]).exits(0);
    let mut started = site.signals("started");
    let mut gate = site.gate("gate");
    let script = format!("echo on > {}; read line < {}; cat in", started.path(), gate.path());
    let id = access.submit(&[
        "--resource",
        "a=1",
        "--input",
        "in=cache:input",
        "--input",
        "f=files/1",
        "--",
        "sh",
        "-c",
        &script,
    ]);
    started.next();
    data(&access, "rm", &["cache:input"]).exits(2).says("1 task that has not ended reads it");
    data(&access, "rm", &["--force", "cache:input"])
        .exits(2)
        .says("stays on executor a: it is in use");
    data(&access, "rm", &["files/1"]).exits(2).says("stays on executor a: it is in use");
    assert_eq!(located(&access, "cache:input")["readers"], 1);
    gate.let_through(1);
    access.run("wait", &[&id, "--quiet"]).exits(0);
    // Nobody needs it any more; a copy of what is in a store is a copy.
    data(&access, "rm", &["cache:input", "files/1"]).exits(0);
    assert!(data(&access, "ls", &["--json"]).exits(0).results().is_empty());
    // What tasks that cannot run yet need.
    data(&access, "put", &["input"]).exits(0);
    let waiting =
        access.submit(&["--resource", "z=1", "--input", "in=cache:input", "--", "cat", "in"]);
    data(&access, "rm", &["cache:input"]).exits(2).says("1 task that has not ended reads it");
    data(&access, "rm", &["--force", "cache:input"]).exits(0);
    access.run("cancel", &[&waiting]).exits(0);
    // What does not fit is refused with the sizes.
    site.write("huge", vec![b'x'; 2 << 20]);
    let ran = data(&access, "put", &["huge"]).exits(3);
    ran.says("cannot put cache:huge on executor a").says("2097152").says("1048576");
    end([a]);
}

#[trial]
fn an_instance_sees_its_own_objects_alone() {
    let site = Site::new();
    let dispatcher = with_files(&site);
    let access = dispatcher.access();
    let a = executor(&site, &dispatcher, "a");
    let make = |name: &str, text: &str| {
        let output = format!("out=cache:{text}");
        let script = format!("echo {text} > out");
        let args =
            ["--wait", "--instance-access", name, "--output", &output, "--", "sh", "-c", &script];
        access.run("submit", &args).exits(0);
        Access::at(&site, &site.path(name))
    };
    let (one, two) = (make("one.json", "one"), make("two.json", "two"));
    assert_eq!(data(&one, "get", &["cache:one"]).exits(0).text(), "one\n");
    assert_eq!(data(&two, "ls", &["--json"]).exits(0).results()[0]["url"], "cache:two");
    let id = located(&access, "cache:one")["id"].as_str().unwrap().to_owned();
    for name in ["cache:one", &id] {
        data(&two, "get", &[name]).exits(2).says("no executor holds");
        data(&two, "rm", &[name]).exits(2).says("no executor holds");
        data(&two, "where", &[name]).exits(2).says("no executor holds");
    }
    data(&two, "put", &["files/1"]).exits(2).says("does not allow that");
    // A client's file opens what it put, and not what tasks of others made.
    let client = dispatcher.access_of("access-client.json");
    data(&client, "get", &["cache:one"]).exits(2).says("no executor holds");
    data(&one, "rm", &["cache:one"]).exits(0);
    assert_eq!(data(&access, "ls", &["--json"]).exits(0).results().len(), 1);
    end([a]);
}

/// A number of the metrics that a run wrote.
#[track_caller]
fn number(metrics: &Value, path: &str) -> f64 {
    metrics.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("{path}: {metrics}"))
}

#[trial]
fn a_run_is_measured_as_the_papers_do() {
    let site = Site::new();
    site.write("a", "x".repeat(4096));
    let args = ["-j", "2", "--range", "1-8", "--baseline", "3600s", "--metrics", "m.json"];
    let command = ["--input", "in=a", "--", "sh", "-c", "cat in > /dev/null; sleep 0.05"];
    let ran = site.run([&["run"], &args[..], &command].concat()).exits(0);
    for part in ["response ", "2 slots: utilization ", "speedup ", "slowdown ", "as the baseline"] {
        assert!(ran.err.contains(part), "no {part:?} in\n{ran}");
    }
    let metrics: Value = serde_json::from_str(&site.read("m.json")).unwrap();
    assert_eq!((&metrics["tasks"], &metrics["slots"]), (&8.into(), &2.0.into()));
    assert_eq!(metrics["data"]["store"], serde_json::json!({ "objects": 1, "bytes": 4096 }));
    let at = |path: &str| number(&metrics, path);
    assert_eq!((at("/data/hit_ratios/local"), at("/data/byte_ratios/store")), (0.875, 0.125));
    let makespan = at("/makespan_seconds");
    let near = |found: f64, expected: f64| {
        assert!((found - expected).abs() < 1e-6 * expected.abs().max(1.0), "{found} {expected}");
    };
    let response =
        ["wait", "execute", "deliver"].map(|part| at(&format!("/response/{part}_seconds")));
    near(at("/response/total_seconds"), response.iter().sum());
    assert!(response[1] >= 0.05, "{metrics}");
    near(at("/utilization"), response[1] * 8.0 / (2.0 * makespan));
    near(at("/efficiency"), at("/ideal_seconds") / makespan);
    near(at("/speedup"), 2.0 * at("/efficiency"));
    near(at("/slot_seconds"), 2.0 * makespan);
    near(at("/speedup_over_baseline"), 3600.0 / makespan);
    near(at("/performance_index"), 3600.0 / makespan / (2.0 * makespan / 3600.0));
    assert!(at("/efficiency") <= 1.0 && at("/slowdown") >= 1.0, "{metrics}");
    let series = metrics["series"].as_array().unwrap();
    let sum = |path: &str| series.iter().map(|interval| number(interval, path)).sum::<f64>();
    assert_eq!((sum("/ended"), sum("/local/bytes"), sum("/store/objects")), (8.0, 28672.0, 1.0));
    // The same of what a dispatcher has, later.
    let dispatcher = with_files(&site);
    let access = dispatcher.access();
    let executors = ["a", "b"].map(|name| executor(&site, &dispatcher, name));
    let command = ["--input", "in=files/1", "--", "sh", "-c", "cat in"];
    let id = access.submit(&[&["--range", "1-4"], &command[..]].concat());
    access.run("results", &[&id, "--metrics", "n.json"]).exits(0);
    let metrics: Value = serde_json::from_str(&site.read("n.json")).unwrap();
    assert_eq!((&metrics["tasks"], &metrics["slots"]), (&4.into(), &4.0.into()));
    assert_eq!(metrics["speedup_over_baseline"], Value::Null);
    let ran = access.run("submit", &["--metrics", "o.json", "--", "true"]).exits(2);
    ran.says_only(1, "add --wait");
    // Of a run without data nothing is said, unless it is asked for.
    let ran = site.run(["run", "--", "true"]).exits(0);
    assert!(!ran.err.contains("response "), "{ran}");
    end(executors);
}

#[trial]
fn what_was_put_outlives_its_executor() {
    let site = Site::new();
    let dispatcher = with_files(&site);
    let access = dispatcher.access();
    let a = executor(&site, &dispatcher, "a");
    site.write("input", "content\n");
    data(&access, "put", &["input", "--key", "kept"]).exits(0);
    a.kill();
    // Nobody is there who could give it.
    let ran = data(&access, "get", &["cache:kept", "out"]);
    assert!(!ran.succeeded() && !site.path("out").exists(), "{ran}");
    let left = std::fs::read_dir(site.dir()).unwrap().flatten();
    let parts = left.filter(|entry| entry.file_name().to_string_lossy().contains(".part"));
    assert_eq!(parts.count(), 0);
    let a = executor(&site, &dispatcher, "a");
    let ran = retried(|| data(&access, "get", &["cache:kept"]));
    assert_eq!(ran.text(), "content\n");
    assert_eq!(located(&access, "cache:kept")["url"], "cache:kept");
    end([a]);
}
