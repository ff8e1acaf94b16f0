//! One large file that tasks on many executors read.

pub(super) mod store;

use crate::fixture::{Access, Dispatcher, Ran, Running, Site, poll};
use falkon_trials::trial;
use rustix::process::Signal;
use serde_json::Value;
use store::Store;

/// Not a whole number of chunks, and no two alike.
fn bytes() -> Vec<u8> {
    (0..5_000_001_u32).flat_map(u32::to_le_bytes).collect()
}

fn executor(site: &Site, dispatcher: &Dispatcher<'_>, name: &str, args: &[&str]) -> Running {
    let cache = format!("{}=64MiB", site.text(&format!("cache-{name}")));
    dispatcher.executor(name, &[&["--slots", "1", "--cache", &cache], args].concat())
}

fn broadcast(access: &Access<'_>, args: &[&str]) -> Ran {
    access.run_sub(&["data", "broadcast"], args)
}

/// The executors that hold an object.
fn holders(access: &Access<'_>, object: &str) -> Vec<String> {
    let found = access.run_sub(&["data", "where"], &["--json", object]).exits(0).results();
    let [found] = &found[..] else { panic!("not one object: {found:?}") };
    let holders = found["executors"].as_array().unwrap().iter();
    let mut names: Vec<String> = holders
        .filter(|holder| holder["state"] == "held")
        .map(|holder| holder["name"].as_str().unwrap().to_owned())
        .collect();
    names.sort();
    names
}

#[trial]
fn a_large_file_reaches_eight_executors_whole() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    std::fs::write(site.path("big"), bytes()).unwrap();
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let executors = names.map(|name| executor(&site, &dispatcher, name, &[]));
    let input = format!("in={}", site.text("big"));
    let script = "cat in | wc -c; cksum < in";
    let args = ["--range", "1-64", "--input", &input, "--shell", "--", script];
    let id = access.submit(&args);
    let results = access.results(&id);
    assert_eq!(results.len(), 64);
    for result in &results {
        assert_eq!(result["stdout"], results[0]["stdout"], "{result}");
    }
    drop(executors);
}

#[trial]
fn objects_reach_busy_executors_ahead_of_tasks_and_only_those_that_are_meant() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let big = site.write("big", bytes());
    let small = site.write("small", "small\n");
    let _executors = [
        executor(&site, &dispatcher, "a", &["--resource", "fast=2"]),
        executor(&site, &dispatcher, "b", &["--resource", "fast=1"]),
        executor(&site, &dispatcher, "c", &[]),
    ];
    // No slot is free until the end.
    let (begun, gate) = (site.text("begun"), site.text("gate"));
    let script = format!("echo begun >> {begun}; while [ ! -e {gate} ]; do sleep 0.05; done");
    let busy = access.start("everywhere", &["--shell", "--", &script]);
    let count = || std::fs::read_to_string(site.path("begun")).unwrap_or_default().lines().count();
    poll("all are busy", || count() == 3);
    let ran = broadcast(&access, &["--to", "fast", "--json", &small]).exits(0);
    ran.says("on 2 of 2 executors, 6 B each");
    let to = |args: &[&str]| broadcast(&access, args).exits(0);
    assert_eq!(holders(&access, &small), ["a", "b"]);
    to(&["--to", "fast=2", "--quiet", &big]);
    assert_eq!(holders(&access, &big), ["a"]);
    to(&[&big, &small]).says("on 3 of 3 executors, 19.1 MiB each");
    assert_eq!(holders(&access, &big), ["a", "b", "c"]);
    assert_eq!(holders(&access, &small), ["a", "b", "c"]);
    broadcast(&access, &["--to", "gpus", &big]).exits(2).says("no executor is there");
    assert_eq!(access.status()["instances"].as_array().unwrap().len(), 1);
    site.write("gate", "");
    busy.finish().exits(0);
}

#[trial]
fn what_is_not_there_or_does_not_fit_is_told() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let big = site.write("big", bytes());
    broadcast(&access, &[&big]).exits(2).says("no executor is there");
    let cache = format!("{}=1MiB", site.text("cache-b"));
    let _executors = [
        executor(&site, &dispatcher, "a", &[]),
        dispatcher.executor("b", &["--slots", "1", "--cache", &cache, "--no-mount"]),
    ];
    let ran = broadcast(&access, &[&big]).exits(1);
    ran.says("not on b: ").says("on 1 of 2 executors");
    let ran = broadcast(&access, &[&site.text("nowhere")]).exits(1);
    ran.says("not on a, b: ").says("nowhere").says("on 0 of 2 executors");
    broadcast(&access, &["cache:nothing"]).exits(2).says("cache:nothing");
    broadcast(&access, &["in-{}"]).exits(2).says("placeholder");
    access.run_sub(&["data", "put"], &[&site.write("put", "put\n")]).exits(0);
    broadcast(&access, &["cache:put"]).exits(0);
    assert_eq!(holders(&access, "cache:put"), ["a", "b"]);
}

/// A site whose programs ask no proxy for what is on this machine.
fn site_without_proxy() -> Site {
    let mut site = Site::new();
    for name in ["no_proxy", "NO_PROXY"] {
        site.set(name, "127.0.0.1");
    }
    site
}

#[trial]
fn the_store_is_read_about_once_though_executors_die_and_hang_in_the_midst() {
    let site = site_without_proxy();
    let object = bytes();
    let size = object.len() as u64;
    let half = object.len() / 2;
    let store = Store::start(object, half);
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let mut executors: Vec<Running> =
        names.iter().map(|name| executor(&site, &dispatcher, name, &[])).collect();
    let url = store.url();
    let running = site.start(["data", "broadcast", "--access", access.file(), "--json", &url]);
    // Nothing of the second half is given before it is open.
    store.wait_for(half as u64 / 2);
    executors.remove(6).kill();
    executors[3].signal(Signal::STOP);
    store.open();
    running.wait_for_lines(6);
    executors[3].signal(Signal::CONT);
    let ran = running.finish().exits(0);
    let results = ran.results();
    assert_eq!(results.len(), 8);
    let done = results.iter().filter(|result| result["status"] == "done").count();
    assert!(done >= 6, "{results:?}");
    let others = results.iter().filter(|result| result["status"] != "done");
    assert!(others.clone().all(|result| result["cause"] == "executor_left"), "{results:?}");
    let given = store.given();
    assert!(given < 4 * size, "{given} bytes of {size} were read");
    // What they have is right, and nobody reads it again.
    let input = format!("in={url}");
    let args = ["--json", "--input", &input, "--shell", "--", "wc -c < in; cksum < in"];
    let results = access.run("everywhere", &args).exits(0).results();
    let sums: Vec<&Value> = results.iter().map(|result| &result["stdout"]).collect();
    std::fs::write(site.path("whole"), bytes()).unwrap();
    let script = "wc -c < whole; cksum < whole";
    let expected = Running::start({
        let mut command = site.program("sh");
        command.args(["-c", script]);
        command
    });
    let expected = expected.finish().exits(0);
    assert!(sums.len() >= 6 && sums.iter().all(|sum| *sum == expected.text()), "{results:?}");
    assert_eq!(store.given(), given);
}

#[trial]
fn an_interrupt_ends_it_on_all_executors() {
    let site = site_without_proxy();
    let store = Store::start(bytes(), 1 << 20);
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let _executors = ["a", "b"].map(|name| executor(&site, &dispatcher, name, &[]));
    let url = store.url();
    let running = site.start(["data", "broadcast", "--access", access.file(), &url]);
    store.wait_for(1 << 19);
    running.signal(Signal::INT);
    running.finish().exits(1).says("stopping").says("on 0 of 2 executors");
    assert_eq!(access.status()["instances"], Value::Array(Vec::new()));
}
