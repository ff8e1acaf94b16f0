//! Stores, peers and disks that fail in the middle.

use super::services::{end, executor_with, with_files};
use super::{all_sources, nothing_is_left, without_proxy};
use crate::fixture::{Running, Site, poll};
use falkon_trials::{skip, trial};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;

/// Takes a while to move, and is less than what is fetched in ranges.
const LARGE_BYTES: usize = 30 << 20;

/// How often a peer is killed at most until it was in the middle of sending.
const KILLS_MAX: usize = 20;

#[trial]
fn the_rest_of_what_a_dying_peer_sends_comes_from_elsewhere() {
    let site = Site::new();
    let dispatcher = with_files(&site);
    let access = dispatcher.access();
    let content: Vec<u8> = (0..LARGE_BYTES as u32 / 4).flat_map(u32::to_le_bytes).collect();
    let b = executor_with(&site, &dispatcher, "b", "1GiB");
    let read = |name: &str, file: &str| {
        let (need, input) = (format!("{name}=1"), format!("in={file}"));
        access.submit(&["--resource", &need, "--input", &input, "--", "cksum", "in"])
    };
    // Also when all of it has arrived before anybody looked.
    let is_arriving = || {
        let parts = std::fs::read_dir(site.path("cache-b/parts")).unwrap().flatten();
        parts.filter_map(|part| part.metadata().ok()).all(|part| part.len() > 0)
    };
    for kill in 1.. {
        let file = format!("large-{kill}");
        site.write(&file, &content);
        let a = executor_with(&site, &dispatcher, "a", "100MiB");
        let sum = access.results(&read("a", &file))[0]["stdout"].clone();
        let mut fetches = site.watch("cache-b/parts", ".part");
        let id = read("b", &file);
        fetches.wait();
        poll("something arrives", is_arriving);
        a.kill();
        let result = access.results(&id).remove(0);
        assert_eq!((&result["stdout"], &result["attempts"]), (&sum, &1.into()), "{result}");
        let bytes = ["peer", "store"].map(|from| result["data"][from]["bytes"].as_u64().unwrap());
        assert_eq!(bytes.iter().sum::<u64>(), LARGE_BYTES as u64, "fetched twice: {result}");
        if bytes[0] > 0 && bytes[1] > 0 {
            break;
        }
        assert!(kill < KILLS_MAX, "it was never in the middle of sending");
    }
    end([b]);
}

/// Answers each connection's first request with a file of one letter, once
/// `refusals` connections have been closed without an answer.
fn serve_after(listener: TcpListener, refusals: usize) {
    std::thread::spawn(move || {
        for stream in listener.incoming().skip(refusals) {
            // Whoever goes away in the middle is of no concern.
            let _ = stream.and_then(|mut stream| {
                let mut lines = BufReader::new(stream.try_clone()?).lines();
                let request = lines.next().transpose()?.unwrap_or_default();
                while lines.next().transpose()?.is_some_and(|header| !header.is_empty()) {}
                let body = if request.starts_with("GET ") { "x" } else { "" };
                let head = "HTTP/1.1 200 OK\r\nETag: \"1\"\r\nContent-Length: 1";
                write!(stream, "{head}\r\nConnection: close\r\n\r\n{body}")
            });
        }
    });
}

#[trial]
fn a_store_out_of_reach_is_tried_again_and_then_named() {
    let site = Site::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let flaky = format!("http://{}/f", listener.local_addr().unwrap());
    // It looks at the version when tasks are submitted, too.
    serve_after(listener, 4);
    let run = |url: &str| {
        let input = format!("in={url}");
        without_proxy(&site, &["run", "--json", "--input", &input, "--", "cat", "in"])
    };
    let result = run(&flaky).exits(0).results().remove(0);
    assert_eq!((&result["stdout"], &result["attempts"]), (&"x".into(), &1.into()));

    // Nobody ever listens here: the pauses between tries add up to some 20 s,
    // in which nothing is done.
    let dead = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("http://{dead}/f");
    let ran = run(&url).exits(1);
    let error = ran.results()[0]["error"].as_str().unwrap().to_owned();
    for part in [url.as_str(), "refused"] {
        assert!(error.contains(part), "{error}");
    }
    nothing_is_left(&site);
}

#[trial]
fn a_full_disk_makes_a_cache_smaller() {
    let site = Site::new();
    std::fs::create_dir(site.path("files")).unwrap();
    for number in 1..=8 {
        site.write(&format!("files/{number}"), number.to_string().repeat(300_000));
    }
    std::fs::create_dir(site.path("small")).unwrap();
    // A disk of 1 MiB, of a cache that may take 16.
    let mount = "mount -t tmpfs -o size=1m tmpfs small || exit 77; exec \"$@\"";
    let cache = format!("{}=16MiB", site.text("small/cache"));
    let mut command = site.program("unshare");
    command.args(["--mount", "sh", "-c", mount, "sh", env!("CARGO_BIN_EXE_falkon"), "run"]);
    command.args(["--json", "--cache", &cache, "--range", "1-3", "--range", "1-8", "-j", "2"]);
    command.args(["--input", "in=files/{2}", "--", "cksum", "in"]);
    let ran = Running::start(command).finish();
    if ran.status.code() == Some(77) || ran.err.starts_with("unshare:") {
        skip("a small disk cannot be mounted here");
    }
    let results = ran.exits(0).results();
    for (at, result) in results.iter().enumerate() {
        assert_eq!(result["stdout"], results[at % 8]["stdout"]);
    }
    let [local, peer, store] = all_sources(&results);
    assert_eq!((local + store, peer), (24, 0));
    assert!(store >= 8);
    nothing_is_left(&site);
}
