//! One file that is too large for the executors' caches.

use super::broadcast::store::Store;
use crate::fixture::{Access, Dispatcher, Running, Site, poll};
use falkon_trials::{skip, trial};
use rustix::process::Signal;
use std::path::{Path, PathBuf};

/// Not a whole number of chunks, and no two alike.
fn bytes() -> Vec<u8> {
    let mut bytes = Vec::with_capacity(20_000_004);
    (0..5_000_001_u32).for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
    bytes
}

/// An executor whose cache is too small for the file, and that lends so much.
fn executor(site: &Site, dispatcher: &Dispatcher<'_>, name: &str, lends: &str) -> Running {
    executor_with(site, dispatcher, name, lends, &[])
}

fn executor_with(
    site: &Site,
    dispatcher: &Dispatcher<'_>,
    name: &str,
    lends: &str,
    args: &[&str],
) -> Running {
    let cache = format!("{}=8MiB", site.text(&format!("cache-{name}")));
    let lend = format!("{}={lends}", site.text(&format!("lent-{name}")));
    let own = ["--slots", "1", "--cache", &cache, "--lend", &lend];
    dispatcher.executor(name, &[&own, args].concat())
}

fn site() -> Site {
    let mut site = Site::new();
    for name in ["no_proxy", "NO_PROXY"] {
        site.set(name, "127.0.0.1");
    }
    site
}

/// What tasks print that read all of the file.
fn sums(site: &Site, access: &Access<'_>, url: &str, tasks: u64) -> Vec<String> {
    let input = format!("in={url}");
    let range = format!("1-{tasks}");
    let script = "wc -c < in; cksum < in; : {}";
    let id = access.submit(&["--range", &range, "--input", &input, "--shell", "--", script]);
    let results = access.results(&id);
    let ended = |result: &&serde_json::Value| result["status"] == "done";
    assert_eq!(results.iter().filter(ended).count() as u64, tasks, "{results:?}");
    std::fs::write(site.path("whole"), bytes()).unwrap();
    results.iter().map(|result| result["stdout"].as_str().unwrap().to_owned()).collect()
}

fn expected(site: &Site) -> String {
    let mut command = site.program("sh");
    command.args(["-c", "wc -c < whole; cksum < whole"]);
    Running::start(command).finish().exits(0).text().to_owned()
}

#[trial]
fn it_is_striped_over_lenders_and_read_once_from_its_store() {
    let site = site();
    let store = Store::start(bytes(), usize::MAX);
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let names = ["a", "b", "c", "d"];
    let executors = names.map(|name| executor(&site, &dispatcher, name, "64MiB"));
    let input = format!("in={}", store.url());
    let reads = ["--input", input.as_str(), "--", "true"];
    let refused = access.run_sub(&["submit"], &[&["--lenders", "5"], &reads[..]].concat()).exits(2);
    refused.says("asks for 5 lenders, and 4 can have stripes of an object");
    let dry = access.run_sub(&["submit"], &[&["--dry-run"], &reads[..]].concat()).exits(0);
    assert!(dry.text().contains("# striped: 1 input, 19.1 MiB"), "{dry}");
    let sums = sums(&site, &access, &store.url(), 8);
    let expected = expected(&site);
    assert!(sums.iter().all(|sum| *sum == expected), "{sums:?} are not {expected}");
    assert_eq!(store.given(), bytes().len() as u64, "the store is read once");
    let status = access.run_sub(&["status"], &["--json"]).exits(0).results();
    let caches = status[0]["executors"].as_array().unwrap().iter().map(|one| &one["cache"]);
    let lent =
        caches.map(|cache| (cache["lent_bytes"].as_u64(), cache["lent_used_bytes"].as_u64()));
    let lent: Vec<(Option<u64>, Option<u64>)> = lent.collect();
    assert_eq!(lent, [(Some(64 << 20), Some(8 << 20)); 4], "five units are four stripes");
    let found = access.run_sub(&["data", "where"], &["--json", &store.url()]).exits(0).results();
    let holders = found[0]["executors"].as_array().unwrap();
    let stripes: Vec<u64> =
        holders.iter().filter_map(|holder| holder["stripes_bytes"].as_u64()).collect();
    assert_eq!(stripes.len(), 4, "{found:?}");
    assert_eq!(stripes.iter().sum::<u64>(), bytes().len() as u64, "{found:?}");
    let shown = access.run_sub(&["data", "where"], &[&store.url()]).exits(0);
    assert!(shown.text().contains("stripes, 7.1 MiB"), "{shown}");
    drop(executors);
}

#[trial]
fn lenders_that_die_are_replaced() {
    let site = site();
    let half = bytes().len() / 2;
    let store = Store::start(bytes(), half);
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    // None of the lenders has room for all of it, so one other executor reads it.
    let mut lenders: Vec<Running> = ["a", "b", "c", "d"]
        .iter()
        .map(|name| executor(&site, &dispatcher, name, "12MiB"))
        .collect();
    let _reader = executor_with(&site, &dispatcher, "reader", "32MiB", &["--resource", "room=1"]);
    let input = format!("in={}", store.url());
    let script = "wc -c < in; cksum < in";
    let id = access.submit(&["--resource", "room=1", "--input", &input, "--shell", "--", script]);
    // Chunks of all stripes are in the first half.
    store.wait_for(half as u64 / 2);
    let found = access.run_sub(&["data", "where"], &["--json", &store.url()]).exits(0);
    assert_eq!(found.results()[0]["way"], "striped", "{found}");
    lenders.remove(1).kill();
    store.open();
    let results = access.results(&id);
    std::fs::write(site.path("whole"), bytes()).unwrap();
    assert_eq!(results[0]["stdout"], expected(&site), "{results:?}");
}

/// The regular files below a directory.
fn files_below(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let below = entries.flat_map(|entry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => files_below(&entry.path()),
        Ok(kind) if kind.is_file() => vec![entry.path()],
        _ => Vec::new(),
    });
    below.collect()
}

/// How often the directories have each unit of the file, at its place in a file.
fn copies(site: &Site, directories: &[String], whole: &[u8]) -> Vec<usize> {
    const UNIT: usize = 4 << 20;
    let files = directories.iter().flat_map(|directory| files_below(&site.path(directory)));
    let files: Vec<Vec<u8>> = files.filter_map(|file| std::fs::read(file).ok()).collect();
    let starts = (0..whole.len()).step_by(UNIT);
    let count = starts.map(|start| {
        let end = whole.len().min(start + UNIT);
        let has = |file: &&Vec<u8>| file.get(start..end) == Some(&whole[start..end]);
        files.iter().filter(has).count()
    });
    count.collect()
}

#[trial]
fn with_two_copies_a_killed_lender_costs_no_byte() {
    let site = site();
    let whole = bytes();
    std::fs::write(site.path("whole"), &whole).unwrap();
    let (size, expected) = (whole.len() as u64, expected(&site));
    let store = Store::start(whole.clone(), usize::MAX);
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let mut names = vec!["a", "b", "c", "d"];
    let start = |name: &&str| executor(&site, &dispatcher, name, "32MiB");
    let mut lenders: Vec<Running> = names.iter().map(start).collect();
    let input = format!("in={}", store.url());
    let read = |room: &str, tasks: &str| {
        let args = ["--replicas", "2", "--resource", room, "--range", tasks, "--input", &input];
        access.submit(&[&args[..], &["--shell", "--", "wc -c < in; cksum < in"]].concat())
    };
    let are_right = |id: &str| {
        let results = access.results(id);
        let sums = results.iter().map(|result| result["stdout"].as_str().unwrap_or_default());
        assert!(sums.clone().all(|sum| sum == expected), "{results:?}");
        sums.count()
    };
    let each_is_there_twice = |names: &[&str]| {
        let directories: Vec<String> = names.iter().map(|name| format!("lent-{name}")).collect();
        poll("two copies of each unit", || copies(&site, &directories, &whole) == [2; 5]);
    };
    // The first who reads it has room for all of it, and for no stripe besides. Nobody
    // reads what it has afterwards.
    let first = executor_with(&site, &dispatcher, "first", "24MiB", &["--resource", "first=1"]);
    assert_eq!(are_right(&read("first=1", "1-1")), 1);
    each_is_there_twice(&names);
    assert!(store.given() < 2 * size, "the second copies are of the first ones");
    store.close();
    first.signal(Signal::TERM);
    first.finish().exits(0);
    poll("it has left", || access.status()["executors"].as_array().unwrap().len() == 4);
    let readers = ["r", "s"].map(|name| {
        let cache = format!("{}=32MiB", site.text(&format!("cache-{name}")));
        dispatcher.executor(name, &["--slots", "1", "--cache", &cache, "--resource", "second=1"])
    });
    // They have parts of it when a lender of the rest is killed.
    lenders[1].signal(Signal::STOP);
    let second = read("second=1", "1-2");
    let has_begun = |name: &str| {
        let files = files_below(&site.path(format!("cache-{name}")));
        files.iter().any(|file| std::fs::read(file).is_ok_and(|bytes| bytes.len() > 1 << 20))
    };
    poll("one reads", || has_begun("r") || has_begun("s"));
    lenders.remove(1).kill();
    names.remove(1);
    assert_eq!(are_right(&second), 2);
    drop(readers);
    // The lost copies are made again: another lender may be killed.
    each_is_there_twice(&names);
    lenders.remove(0).kill();
    let _reader = executor_with(&site, &dispatcher, "t", "24MiB", &["--resource", "third=1"]);
    assert_eq!(are_right(&read("third=1", "1-1")), 1);
}

#[trial]
fn an_output_that_is_too_large_for_the_cache_lies_in_lent_room() {
    let site = site();
    std::fs::write(site.path("whole"), bytes()).unwrap();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let place = |name: &str, lends: &str, place: &str| {
        executor_with(&site, &dispatcher, name, lends, &["--resource", &format!("{place}=1")])
    };
    let _executors = [place("a", "32MiB", "there"), place("b", "32MiB", "elsewhere")];
    let write = |command: &str, place: &str| {
        let command = command.replace("WHOLE", &site.text("whole"));
        format!(
            r#"{{"id": "{place}", "command": ["sh", "-c", "{command}"], "outputs": ["out=cache:{place}"], "resources": {{"{place}": 1}}}}"#
        )
    };
    let read = r#"{"id": "read", "command": ["sh", "-c", "wc -c < in; cksum < in"], "inputs": ["in=cache:there"], "resources": {"elsewhere": 1}}"#;
    let submit = |lines: &[&str]| {
        let file = site.write("tasks.jsonl", lines.join("\n"));
        access.results(&access.submit(&["--tasks", &file]))
    };
    let results = submit(&[&write("cp WHOLE out", "there"), read]);
    assert_eq!(results[1]["stdout"], expected(&site), "{results:?}");
    // What is larger than that as well is refused with the sizes.
    let results = submit(&[&write("cat WHOLE WHOLE > out", "elsewhere")]);
    let error = results[0]["error"].as_str().unwrap_or_default();
    assert!(error.starts_with("40000008 bytes in 1 objects do not fit in"), "{results:?}");
}

#[trial]
fn what_fits_nowhere_is_read_in_a_file_system() {
    if !falkon_fuse::is_possible() {
        skip("this machine cannot mount file systems with FUSE");
    }
    let site = site();
    let store = Store::start(bytes(), usize::MAX);
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    // Nobody has room for all of it.
    let executors = ["a", "b", "c"].map(|name| executor(&site, &dispatcher, name, "12MiB"));
    let sums = sums(&site, &access, &store.url(), 3);
    let expected = expected(&site);
    assert!(sums.iter().all(|sum| *sum == expected), "{sums:?} are not {expected}");
    assert_eq!(store.given(), bytes().len() as u64, "the store is read once");
    // What was mounted goes with its executor.
    for executor in executors {
        executor.signal(Signal::TERM);
        executor.finish().exits(0);
    }
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let own = site.text("");
    assert!(!mounts.lines().any(|line| line.contains(&own)), "{mounts}");
}

#[trial]
fn without_lenders_its_size_is_named() {
    let site = site();
    let store = Store::start(bytes(), usize::MAX);
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let _executor = executor_with(&site, &dispatcher, "a", "4MiB", &["--no-mount"]);
    let refused = site.run(["executor", "--lend", "lent=0"]).exits(2);
    refused.says("`lent=0` lends less than one stripe takes: lend at least 4.0 MiB");
    let id = access.submit(&["--input", &format!("in={}", store.url()), "--", "cat", "in"]);
    let results = access.results(&id);
    let error = results[0]["error"].as_str().unwrap_or_default();
    assert!(error.starts_with("20000004 bytes in 1 objects do not fit in"), "{results:?}");
    assert_eq!(store.given(), 0);
}
