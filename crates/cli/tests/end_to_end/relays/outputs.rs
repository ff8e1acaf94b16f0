//! Output of tasks below relays that is too long to be sent with a result.

use super::{Relay, wait_for_nodes};
use crate::fixture::{Site, json_lines, poll};
use crate::overflow::kept;
use falkon_trials::trial;
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::path::Path;

/// What a task writes: numbers from its own on.
fn written(task: usize) -> String {
    (task..task + 60_000).map(|number| format!("{number}\n")).collect()
}

const SCRIPT: &str = "seq {} $(({} + 59999)); seq 1 30000 >&2";

#[trial]
fn long_output_is_read_through_relays_and_goes_with_its_result() {
    for level in ["none", "authenticate", "encrypt"] {
        let site = Site::new();
        let dispatcher = site.dispatcher("d", &["--security", level]);
        let access = dispatcher.access();
        let mut upper = Relay::start(&site, "upper", access.file());
        let mut lower = Relay::start(&site, "lower", upper.access().file());
        let scratch = ["near", "far"].map(|name| site.text(&format!("{name}-scratch")));
        let [near, far] = [(&upper, "near", &scratch[0]), (&lower, "far", &scratch[1])].map(
            |(relay, name, scratch)| {
                let args = ["--name", name, "--slots", "1", "--scratch", scratch];
                relay.access().start("executor", &args)
            },
        );
        wait_for_nodes(&dispatcher, &[("upper", 2)]);
        let args = ["--range", "0-5", "--", "sh", "-c", SCRIPT];
        let id = access.submit(&args);
        access.run("wait", &[&id]).exits(0);
        let is_whole = || {
            let results = access.results(&id);
            results.len() == 6
                && results.iter().all(|result| {
                    let task = result["index"].as_u64().unwrap() as usize;
                    let errors: String = (1..=30_000).map(|number| format!("{number}\n")).collect();
                    result["stdout"] == written(task)
                        && result["stderr"] == errors
                        && result.get("stdout_cut").is_none()
                })
        };
        assert!(is_whole(), "{level}");
        // Relays keep nothing that they need for it.
        upper.kill_and_restart();
        poll("it is whole when the upper relay is back", is_whole);
        lower.kill_and_restart();
        poll("it is whole when the lower relay is back", is_whole);
        assert!(scratch.iter().all(|scratch| !kept(scratch.as_ref()).is_empty()), "{level}");
        access.run("destroy", &[&id]).exits(0);
        poll("executors have discarded it", || {
            scratch.iter().all(|scratch| kept(scratch.as_ref()).is_empty())
        });
        // What is acknowledged as it comes is whole, too.
        let out = site.text("out");
        let submit = ["--wait", "--out", &out, "--out-files", "--quiet"];
        access.run("submit", &[&submit[..], &args].concat()).exits(0);
        for task in 0..6 {
            assert_eq!(site.read(&format!("out/tasks/{task}.stdout")), written(task), "{level}");
        }
        // An executor that is gone takes with it what it kept.
        let id = access.submit(&args);
        access.run("wait", &[&id]).exits(0);
        drop((near.kill(), far.kill()));
        poll("that is said", || {
            let cut = &access.results(&id)[0]["stdout_cut"];
            cut["why"] == "executor_gone" && cut["total_bytes"] == written(0).len()
        });
    }
}

#[trial]
fn a_run_on_several_clusters_and_here_has_all_that_tasks_write() {
    let site = Site::new();
    let [left, right] = ["left", "right"].map(|name| site.dispatcher(name, &[]));
    let _executors = [&left, &right].map(|below| below.executor("worker", &["--slots", "1"]));
    let (out, one, other) = (site.text("out"), left.access(), right.access());
    let args = ["run", "--access", one.file(), "--access", other.file(), "--jobs", "1", "--out"];
    let tasks = ["--quiet", "--out-files", "--range", "0-29", "--", "sh", "-c", SCRIPT];
    site.run(args.iter().chain(&[&*out]).chain(&tasks)).exits(0);
    for task in 0..30 {
        assert_eq!(site.read(&format!("out/tasks/{task}.stdout")), written(task));
    }
    let results = json_lines(&site.read("out/results.jsonl"));
    let ran: BTreeSet<&str> =
        results.iter().map(|result| result["executor"].as_str().unwrap()).collect();
    assert_eq!(ran.len(), 3, "{ran:?}");
}

/// Writes more than is read in a moment.
const LONG: &str = "seq {} $(({} + 5999999))";

fn is_long(text: &str, task: u64) -> bool {
    let mut lines = text.lines();
    (task..task + 6_000_000).all(|number| lines.next() == Some(&*number.to_string()))
        && lines.next().is_none()
}

/// Waits until long output is being read to a directory.
fn wait_for_reading(out: &str) {
    poll("long output is read", || !kept(&Path::new(out).join(".falkon-overflow")).is_empty());
}

#[trial]
fn a_run_waits_for_a_cluster_that_is_away_while_its_long_output_is_read() {
    let site = Site::new();
    let mut below = site.dispatcher("below", &[]);
    let _executor = below.executor("worker", &["--slots", "1"]);
    let (out, file) = (site.text("out"), below.access().file().to_owned());
    let args = ["run", "--access", &file, "--out", &out, "--out-files", "--range", "0-1", "--"];
    let run = site.start(args.iter().chain(&["sh", "-c", LONG]));
    wait_for_reading(&out);
    below.kill();
    run.wait_for("long output of a task is waited for: 127.0.0.1:");
    below.start();
    run.finish().exits(0);
    for task in 0..2 {
        assert!(is_long(&site.read(&format!("out/tasks/{task}.stdout")), task), "{task}");
    }
    // Whoever does not wait interrupts it twice.
    let out = site.text("interrupted");
    let args = ["run", "--access", &file, "--out", &out, "--range", "0-0", "--", "sh", "-c", LONG];
    let run = site.start(args);
    wait_for_reading(&out);
    below.kill();
    run.wait_for("is waited for");
    run.signal(Signal::INT);
    run.wait_for("interrupt again to stop at once");
    run.signal(Signal::INT);
    run.finish().exits(1);
}

#[trial]
fn long_output_is_waited_for_while_a_relay_is_away() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let mut upper = Relay::start(&site, "upper", access.file());
    let mut lower = Relay::start(&site, "lower", upper.access().file());
    let _executor = lower.executor("far", "1");
    wait_for_nodes(&dispatcher, &[("upper", 1)]);
    let id = access.submit(&["--range", "0-0", "--", "sh", "-c", SCRIPT]);
    access.run("wait", &[&id]).exits(0);
    let out = site.text("out");
    let args = ["--wait", "--out", &out, "--out-files", "--range", "0-1", "--", "sh", "-c", LONG];
    let submit = access.start("submit", &args);
    wait_for_reading(&out);
    drop(lower.take().kill());
    submit.wait_for("long output of a task is waited for: upper/lower, which leads to it, is away");
    drop(upper.take().kill());
    upper.start_again();
    lower.start_again();
    submit.finish().exits(0);
    for task in 0..2 {
        assert!(is_long(&site.read(&format!("out/tasks/{task}.stdout")), task), "{task}");
    }
    drop(upper.take().kill());
    assert_eq!(access.results(&id)[0]["stdout_cut"]["why"], "away");
}
