//! Objects in caches alone whose holders are lost while tasks still read them.

use crate::fixture::{Access, Dispatcher, Running, Site};
use falkon_trials::trial;
use rustix::process::Signal;
use std::path::Path;

/// Each task adds its letter to what it reads, and notes that it has run. The
/// last one can only run on an executor that offers `late`.
const CHAIN: &str = r#"{"id": "a", "command": ["sh", "-c", "echo a >> RUNS; echo a > out"], "outputs": ["out=cache:a"]}
{"id": "b", "command": ["sh", "-c", "echo b >> RUNS; (cat in; echo b) > out"], "inputs": ["in=cache:a"], "outputs": ["out=cache:b"]}
{"id": "c", "command": ["sh", "-c", "echo c >> RUNS; (cat in; echo c) > out"], "inputs": ["in=cache:b"], "outputs": ["out=cache:c"]}
{"id": "d", "command": ["sh", "-c", "echo d >> RUNS; cat in"], "inputs": ["in=cache:c"], "resources": {"late": 1}}
"#;

fn executor(site: &Site, dispatcher: &Dispatcher<'_>, name: &str, args: &[&str]) -> Running {
    let cache = format!("{}=1MiB", site.text(&format!("cache-{name}")));
    dispatcher.executor(name, &[&["--slots", "2", "--cache", &cache], args].concat())
}

/// Submits the chain and waits until all but its last task are done.
fn submit_chain(site: &Site, access: &Access<'_>, args: &[&str], chain: &str) -> String {
    let tasks = site.write("chain.jsonl", chain.replace("RUNS", &site.text("runs")));
    let id = access.submit(&[args, &["--tasks", &tasks]].concat());
    while access.instance(&id)["done"] != 3 {}
    id
}

/// Which tasks have run, in their order.
fn runs(site: &Site) -> String {
    site.read("runs").replace('\n', "")
}

fn end(executor: Running) {
    executor.signal(Signal::TERM);
    executor.finish().exits(0);
}

#[trial]
fn a_chain_whose_only_holder_is_killed_is_made_again_to_any_depth() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let first = executor(&site, &dispatcher, "first", &[]);
    let id = submit_chain(&site, &access, &[], CHAIN);
    first.kill();
    let second = executor(&site, &dispatcher, "second", &["--resource", "late=1"]);
    let results = access.results(&id);
    assert_eq!(results.len(), 4, "each result comes once");
    assert_eq!(results[3]["stdout"], "a\nb\nc\n");
    for (result, executor) in results.iter().zip(["first", "first", "first", "second"]) {
        assert_eq!((&result["status"], &result["executor"]), (&"done".into(), &executor.into()));
    }
    assert_eq!(runs(&site), "abcabcd");
    let instance = access.instance(&id);
    assert_eq!((&instance["recomputed"], &instance["done"]), (&3.into(), &4.into()));
    end(second);
}

#[trial]
fn what_must_be_known_to_make_it_again_survives_the_dispatcher() {
    let site = Site::new();
    let mut dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let first = executor(&site, &dispatcher, "first", &[]);
    let id = submit_chain(&site, &access, &[], CHAIN);
    first.kill();
    dispatcher.kill();
    dispatcher.start();
    let second = executor(&site, &dispatcher, "second", &["--resource", "late=1"]);
    let results = access.results(&id);
    assert_eq!((results.len(), &results[3]["stdout"]), (4, &"a\nb\nc\n".into()));
    assert_eq!(runs(&site), "abcabcd");
    end(second);
}

#[trial]
fn a_task_that_fails_when_it_is_run_again_is_named_by_those_that_wait() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let first = executor(&site, &dispatcher, "first", &[]);
    let once = CHAIN.replacen("echo a > out", "mkdir RUNS.once && echo a > out || exit 7", 1);
    let id = submit_chain(&site, &access, &[], &once);
    first.kill();
    let second = executor(&site, &dispatcher, "second", &["--resource", "late=1"]);
    let results = access.results(&id);
    let status: Vec<_> = results.iter().map(|result| result["status"].as_str().unwrap()).collect();
    assert_eq!(status, ["done", "done", "done", "failed"]);
    let error = results[3]["error"].as_str().unwrap();
    assert!(
        error.contains("task 0, which was run again for that, exited with status 7"),
        "{error}"
    );
    assert_eq!(runs(&site), "abca");
    end(second);
}

#[trial]
fn a_cancelled_instance_makes_nothing_again() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let first = executor(&site, &dispatcher, "first", &[]);
    let id = submit_chain(&site, &access, &[], CHAIN);
    first.kill();
    access.run("cancel", &[&id]).exits(0);
    let second = executor(&site, &dispatcher, "second", &["--resource", "late=1"]);
    let results = access.results(&id);
    assert_eq!((results.len(), &results[3]["status"]), (4, &"cancelled".into()));
    assert_eq!((runs(&site), &access.instance(&id)["recomputed"]), ("abc".to_owned(), &0.into()));
    end(second);
}

#[trial]
fn a_cache_that_is_deleted_takes_nothing_with_it_that_can_be_made_again() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let first = executor(&site, &dispatcher, "first", &[]);
    let id = submit_chain(&site, &access, &[], CHAIN);
    std::fs::remove_dir_all(site.path("cache-first")).unwrap();
    let second = executor(&site, &dispatcher, "second", &["--resource", "late=1"]);
    let results = access.results(&id);
    assert_eq!((results.len(), &results[3]["stdout"]), (4, &"a\nb\nc\n".into()), "{results:?}");
    end(first);
    end(second);
}

/// Whether a file somewhere in this folder has these contents.
fn holds(folder: &Path, contents: &str) -> bool {
    std::fs::read_dir(folder).into_iter().flatten().flatten().any(|entry| {
        let path = entry.path();
        // What is not whole yet is somewhere else by the time it is.
        if path.is_dir() {
            return path.file_name() != Some("parts".as_ref()) && holds(&path, contents);
        }
        std::fs::read(path).is_ok_and(|found| found == contents.as_bytes())
    })
}

#[trial]
fn with_replicas_nothing_is_made_again_when_a_holder_is_killed() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let first = executor(&site, &dispatcher, "first", &[]);
    let second = executor(&site, &dispatcher, "second", &[]);
    let id = submit_chain(&site, &access, &["--replicas", "2"], CHAIN);
    let caches = ["cache-first", "cache-second"].map(|name| site.path(name));
    while !caches.iter().all(|cache| holds(cache, "a\nb\nc\n")) {
        std::thread::yield_now();
    }
    first.kill();
    let third = executor(&site, &dispatcher, "third", &["--resource", "late=1"]);
    let results = access.results(&id);
    assert_eq!((results.len(), &results[3]["stdout"]), (4, &"a\nb\nc\n".into()));
    assert_eq!((runs(&site), &access.instance(&id)["recomputed"]), ("abcd".to_owned(), &0.into()));
    end(second);
    end(third);
}

#[trial]
fn an_executor_that_leaves_leaves_what_is_read_with_others() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let first = executor(&site, &dispatcher, "first", &[]);
    let id = submit_chain(&site, &access, &[], CHAIN);
    let second = executor(&site, &dispatcher, "second", &[]);
    end(first);
    assert!(holds(&site.path("cache-second"), "a\nb\nc\n"), "it was copied before it left");
    let third = executor(&site, &dispatcher, "third", &["--resource", "late=1"]);
    let results = access.results(&id);
    assert_eq!((results.len(), &results[3]["stdout"]), (4, &"a\nb\nc\n".into()));
    assert_eq!((runs(&site), &access.instance(&id)["recomputed"]), ("abcd".to_owned(), &0.into()));
    end(second);
    end(third);
}
