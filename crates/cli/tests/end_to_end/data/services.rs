//! Data objects with several executors, each with a cache of its own.

use super::{all_sources, nothing_is_left};
use crate::fixture::{Access, Dispatcher, Running, Site};
use falkon_trials::trial;
use rustix::process::Signal;
use serde_json::Value;

pub(super) const OBJECTS: u64 = 8;

/// A dispatcher, and files `files/1`, `files/2`, ….
pub(super) fn with_files(site: &Site) -> Dispatcher<'_> {
    std::fs::create_dir(site.path("files")).unwrap();
    for number in 1..=OBJECTS {
        site.write(&format!("files/{number}"), format!("{number}\n").repeat(1000));
    }
    site.dispatcher("d", &[])
}

/// An executor with a cache that alone can run tasks that need its name.
pub(super) fn executor(site: &Site, dispatcher: &Dispatcher<'_>, name: &str) -> Running {
    executor_with(site, dispatcher, name, "1MiB")
}

/// The same, with a cache of a size.
pub(super) fn executor_with(
    site: &Site,
    dispatcher: &Dispatcher<'_>,
    name: &str,
    size: &str,
) -> Running {
    let cache = format!("{}={size}", site.text(&format!("cache-{name}")));
    let offer = format!("{name}=100");
    // Whether this machine has FUSE is to make no difference.
    let own = ["--slots", "2", "--cache", &cache, "--resource", &offer, "--no-mount"];
    dispatcher.executor(name, &own)
}

/// Reads every file in a task of its own, all on one executor.
#[track_caller]
pub(super) fn read_all_on(access: &Access<'_>, name: &str) -> Vec<Value> {
    let need = format!("{name}=1");
    let range = format!("1-{OBJECTS}");
    let args = ["--wait", "--json", "--resource", &need, "--range", &range];
    let command = ["--input", "in=files/{}", "--", "tail", "-n", "1", "in"];
    let results = access.run("submit", &[&args[..], &command].concat()).exits(0).results();
    for (at, result) in results.iter().enumerate() {
        assert_eq!(result["stdout"], format!("{}\n", at + 1));
        assert_eq!(result["executor"], name);
    }
    results
}

/// Asks them to leave, and waits until they have.
pub(super) fn end(executors: impl IntoIterator<Item = Running>) {
    for executor in executors {
        executor.signal(Signal::TERM);
        executor.finish().exits(0);
    }
}

#[trial]
fn each_object_is_read_once_from_the_store_and_then_from_peers() {
    let site = Site::new();
    let dispatcher = with_files(&site);
    let access = dispatcher.access();
    let a = executor(&site, &dispatcher, "a");
    let b = executor(&site, &dispatcher, "b");
    let c = executor(&site, &dispatcher, "c");
    assert_eq!(all_sources(&read_all_on(&access, "a")), [0, 0, OBJECTS]);
    assert_eq!(all_sources(&read_all_on(&access, "b")), [0, OBJECTS, 0]);
    assert_eq!(all_sources(&read_all_on(&access, "c")), [0, OBJECTS, 0]);
    let again = read_all_on(&access, "a");
    assert_eq!(all_sources(&again), [OBJECTS, 0, 0]);
    assert_eq!(again[0]["data"]["local"]["bytes"], 2000);
    // The sources are not needed to tell what is held: their versions are.
    // A peer that is gone costs a try elsewhere, not the task.
    a.kill();
    let d = executor(&site, &dispatcher, "d");
    let [local, peer, store] = all_sources(&read_all_on(&access, "d"));
    assert_eq!((local, peer + store), (0, OBJECTS));
    b.kill();
    c.kill();
    // Whoever comes back still has what it had.
    let b = executor(&site, &dispatcher, "b");
    assert_eq!(all_sources(&read_all_on(&access, "b")), [OBJECTS, 0, 0]);
    end([b, d]);
}

#[trial]
fn a_peer_that_dies_in_the_middle_costs_no_task() {
    let site = Site::new();
    let dispatcher = with_files(&site);
    let access = dispatcher.access();
    let a = executor(&site, &dispatcher, "a");
    let b = executor(&site, &dispatcher, "b");
    read_all_on(&access, "a");
    // It holds everything, and gives nothing.
    a.signal(Signal::STOP);
    let mut fetches = site.watch("cache-b/parts", ".part");
    let id = access.submit(&["--resource", "b=1", "--input", "in=files/1", "--", "cat", "in"]);
    fetches.wait();
    a.kill();
    let results = access.results(&id);
    assert_eq!(results[0]["stdout"], "1\n".repeat(1000));
    assert_eq!((all_sources(&results), &results[0]["attempts"]), ([0, 0, 1], &1.into()));
    end([b]);
}

#[trial]
fn all_policies_give_the_same_results() {
    let site = Site::new();
    let dispatcher = with_files(&site);
    let access = dispatcher.access();
    let executors = ["a", "b"].map(|name| executor(&site, &dispatcher, name));
    let range = format!("1-{OBJECTS}");
    for policy in [
        "first-available",
        "first-cache-available",
        "max-cache-hit",
        "max-compute-util",
        "good-cache-compute",
        "queue-aware",
    ] {
        let target = format!("out={policy}/{{1}}-{{2}}");
        let args = ["--wait", "--json", "--policy", policy, "--range", "1-3", "--range", &range];
        let data = ["--input", "in=files/{2}", "--output", &target];
        let command = ["--shell", "--", "(echo {1}; tail -n 1 in) > out"];
        let results = access.run("submit", &[&args[..], &data, &command].concat()).exits(0);
        let results = results.results();
        assert_eq!(all_sources(&results).iter().sum::<u64>(), 3 * OBJECTS, "{policy}");
        for (first, second) in (1..=3).flat_map(|first| (1..=OBJECTS).map(move |two| (first, two)))
        {
            let text = site.read(&format!("{policy}/{first}-{second}"));
            assert_eq!(text, format!("{first}\n{second}\n"), "{policy}");
        }
    }
    end(executors);
    access.run("stop", &[]).exits(0);
    nothing_is_left(&site);
}

#[trial]
fn a_source_that_changes_after_the_submission_is_read_as_it_is() {
    let site = Site::new();
    let dispatcher = with_files(&site);
    let access = dispatcher.access();
    let id = access.submit(&["--input", "in=files/1", "--", "cat", "in"]);
    site.write("files/1", "changed");
    let a = executor(&site, &dispatcher, "a");
    let results = access.results(&id);
    assert_eq!(results[0]["stdout"], "changed");
    // What was fetched is the new object, and is known as that.
    let id = access.submit(&["--input", "in=files/1", "--", "cat", "in"]);
    let results = access.results(&id);
    assert_eq!((&results[0]["stdout"], all_sources(&results)), (&"changed".into(), [1, 0, 0]));
    end([a]);
}

#[trial]
fn a_cache_that_is_deleted_is_filled_again() {
    let site = Site::new();
    let dispatcher = with_files(&site);
    let access = dispatcher.access();
    let cache = format!("{}=1MiB", site.text("cache"));
    let a = dispatcher.executor("a", &["--slots", "1", "--cache", &cache]);
    let mut started = site.signals("started");
    let mut gate = site.gate("gate");
    // The second task's input is there, as it is the first one's, when the
    // directory goes.
    let script = format!("cat in; echo on > {}; read line < {}", started.path(), gate.path());
    let args = ["--range", "1-2", "--input", "in=files/1", "--output", "out=cache:{}"];
    let script = format!("{script}; echo x > out");
    let id = access.submit(&[&args[..], &["--", "sh", "-c", &script]].concat());
    started.next();
    std::fs::remove_dir_all(site.path("cache")).unwrap();
    gate.let_through(1);
    started.next();
    gate.let_through(1);
    let results = access.results(&id);
    for result in &results {
        assert_eq!(result["stdout"], "1\n".repeat(1000), "{result}");
        assert_eq!((&result["status"], &result["attempts"]), (&"done".into(), &1.into()));
    }
    // Between tasks, too.
    std::fs::remove_dir_all(site.path("cache")).unwrap();
    let id = access.submit(&["--input", "in=files/1", "--", "tail", "-n", "1", "in"]);
    assert_eq!(access.results(&id)[0]["stdout"], "1\n");
    let ended = |executor: Running| {
        executor.signal(Signal::TERM);
        executor.finish().exits(0)
    };
    ended(a).says("a directory of the cache was deleted");
    // What is in the cache now is in order.
    let a = dispatcher.executor("a", &["--slots", "1", "--cache", &cache]);
    let id = access.submit(&["--input", "in=files/1", "--", "tail", "-n", "1", "in"]);
    assert_eq!(all_sources(&access.results(&id)), [1, 0, 0]);
    end([a]);
}
