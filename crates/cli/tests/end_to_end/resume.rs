//! `--out` and `--resume`: what was written is true, whatever happened.

use crate::fixture::{Random, Running, Site, json_lines};
use falkon_trials::{skip, trial};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeMap;

/// The whole lines of a results file; one that was being written does not
/// count.
fn lines(site: &Site, dir: &str) -> Vec<Value> {
    let Ok(text) = std::fs::read_to_string(site.path(dir).join("results.jsonl")) else {
        return Vec::new();
    };
    let whole = text.rfind('\n').map_or(0, |at| at + 1);
    json_lines(&text[..whole])
}

/// Fails unless every line's output is where it says.
fn check_outputs(site: &Site, dir: &str, expected: impl Fn(u64) -> String) {
    // A run that was ended before it began has written nothing.
    let stdout = std::fs::read(site.path(dir).join("stdout")).unwrap_or_default();
    for line in lines(site, dir).iter().filter(|line| line["status"] == "done") {
        let at = |place: usize| line["stdout_at"][place].as_u64().unwrap() as usize;
        let said = std::str::from_utf8(&stdout[at(0)..at(0) + at(1)]).unwrap();
        assert_eq!(said, expected(line["index"].as_u64().unwrap()), "{line}");
    }
}

/// How often each task is in the log.
fn executions(site: &Site) -> BTreeMap<u64, u64> {
    let mut executions = BTreeMap::new();
    for line in std::fs::read_to_string(site.path("log")).unwrap_or_default().lines() {
        *executions.entry(line.parse().unwrap()).or_default() += 1;
    }
    executions
}

#[trial]
fn an_interrupted_run_goes_on_where_it_was() {
    const TASKS: u64 = 150;
    let mut random = Random::seeded("an_interrupted_run_goes_on_where_it_was");
    for ending in [Signal::KILL, Signal::INT] {
        let site = Site::new();
        // Some output is longer than what is kept in memory.
        let script = "echo {} >> log; sleep 0.0$(({}%5)); echo out {#}; \
                      test $(({} % 7)) != 0 || seq -f '%05g' 30000";
        let command = ["-j", "3", "--range", "0-149", "--", "sh", "-c", script];
        let expected = |index: u64| {
            let mut text = format!("out {}\n", index + 1);
            if index.is_multiple_of(7) {
                (1..=30_000).for_each(|number| text.push_str(&format!("{number:05}\n")));
            }
            text
        };
        let mut into = "--out";
        let mut done_before: BTreeMap<u64, u64> = BTreeMap::new();
        for round in 0.. {
            let running = site.start(["run", "--quiet", into, "o"].iter().chain(&command));
            if round < 6 {
                random.moment(400_000);
                running.signal(ending);
            }
            let ran = running.finish();
            site.left().wait_for_none();
            let after = executions(&site);
            for (index, count) in &done_before {
                assert_eq!(after.get(index), Some(count), "{index} ran again\n{ran}");
            }
            check_outputs(&site, "o", expected);
            let done = lines(&site, "o");
            let done = done.iter().filter(|line| line["status"] == "done");
            let done: Vec<u64> = done.map(|line| line["index"].as_u64().unwrap()).collect();
            done_before = done.iter().map(|index| (*index, after[index])).collect();
            assert_eq!(done.len(), done_before.len(), "a task is done twice");
            if site.path("o/results.jsonl").exists() {
                into = "--resume";
            }
            if ran.status.success() {
                break;
            }
            assert!(round < 6, "{ran}");
        }
        assert_eq!(done_before.len() as u64, TASKS);
        assert!(!site.path("o/.falkon-overflow").exists());
        let ran = site.run(["run", "--resume", "o"].iter().chain(&command)).exits(0);
        ran.says_only(1, "nothing to do: all 150 tasks have already succeeded");
    }
}

#[trial]
fn what_failed_or_changed_runs_again() {
    let site = Site::new();
    let run = |into: &str, word: &str| {
        let script = format!("echo {{}} >> log; echo {word}{{}}; test {{}} != 3 || test -e mended");
        let values =
            site.write("values", if word == "b" { "1\n2\n3\nx\n5\n" } else { "1\n2\n3\n4\n5\n" });
        site.run(["run", into, "o", "--each-line", &values, "--", "sh", "-c", &script])
    };
    run("--out", "a").exits(1).says("4 done, 1 failed");
    site.write("mended", "");
    site.write("log", "");
    run("--resume", "a").exits(0).says("1 done (4 before)");
    assert_eq!(site.read("log"), "3\n");
    site.write("log", "");
    // One value is another, and so is the command: all run again.
    run("--resume", "b").exits(0).says("5 done in");
    assert_eq!(site.read("log").lines().count(), 5);
}

#[trial]
fn a_resumed_graph_runs_only_what_has_not_succeeded() {
    let site = Site::new();
    let file = site.write(
        "graph.jsonl",
        r#"{"id": "a", "command": ["sh", "-c", "echo a >> log"]}
{"id": "b", "command": ["sh", "-c", "echo b >> log; test -e mended"], "after": ["a"]}
{"id": "c", "command": ["sh", "-c", "echo c >> log"], "after": ["b", "a"]}
"#,
    );
    site.run(["run", "--tasks", &file, "--out", "o"]).exits(1).says("1 done, 2 failed");
    site.write("mended", "");
    let ran = site.run(["run", "--json", "--tasks", &file, "--resume", "o"]).exits(0);
    assert_eq!(site.read("log"), "a\nb\nb\nc\n");
    let ids: Vec<Value> = ran.results().iter().map(|one| one["id"].clone()).collect();
    assert_eq!(ids, ["b", "c"]);
}

#[trial]
fn few_files_or_one_per_task_and_stream() {
    let site = Site::new();
    let run = |dir: &str, more: &[&str]| {
        let script = "echo out{}; test {} = 2 || echo err{} >&2";
        let args = [&["run", "--out", dir], more, &["--range", "0-3", "--", "sh", "-c", script]];
        site.run(args.concat()).exits(0)
    };
    let entries = |dir: &str| {
        let mut names: Vec<String> = std::fs::read_dir(site.path(dir))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    assert!(run("few", &[]).out.is_empty());
    let marker = ".falkon-results";
    assert_eq!(entries("few"), [marker, "events", "results.jsonl", "stderr", "stdout"]);
    run("many", &["--out-files"]);
    assert_eq!(entries("many"), [marker, "events", "results.jsonl", "stderr", "stdout", "tasks"]);
    let files =
        ["0.stderr", "0.stdout", "1.stderr", "1.stdout", "2.stdout", "3.stderr", "3.stdout"];
    assert_eq!(entries("many/tasks"), files);
    assert_eq!(site.read("many/tasks/3.stderr"), "err3\n");
    for dir in ["few", "many"] {
        check_outputs(&site, dir, |index| format!("out{index}\n"));
    }
    // In the order of the tasks only where that is asked for.
    let printed = run("both", &["--json", "--keep-order"]).results();
    assert_eq!(printed[1]["stdout"], "out1\n");
}

#[trial]
fn long_output_is_complete_and_json_says_where_it_is_not() {
    let site = Site::new();
    let script = "seq 1000000; echo end of errors >&2; exit 3";
    let whole: String = (1..=1_000_000).map(|number| format!("{number}\n")).collect();
    // Printed.
    let ran = site.run(["run", "--", "sh", "-c", script]).exits(1);
    assert!(ran.text() == whole, "it is complete");
    // As JSON, too.
    let ran = site.run(["run", "--json", "--", "sh", "-c", script]).exits(1);
    let result = &ran.results()[0];
    assert!(result["stdout"].as_str().unwrap() == whole);
    assert!(result.get("stdout_cut").is_none() && result.get("stderr_cut").is_none());
    // With a directory: there.
    let args = ["run", "--json", "--capture", "1000", "--out", "o", "--range", "1-2", "--"];
    let ran = site.run(args.iter().chain(&["sh", "-c", script])).exits(1);
    for result in ran.results() {
        let cut = &result["stdout_cut"];
        assert_eq!(
            (result["stdout"].as_str().unwrap().len(), &cut["total_bytes"]),
            (1000, &whole.len().into())
        );
        let text = std::fs::read_to_string(site.path(cut["file"].as_str().unwrap())).unwrap();
        let offset = cut["offset"].as_u64().unwrap() as usize;
        assert!(text[offset..offset + whole.len()] == whole);
    }
    assert!(!site.path("o/.falkon-overflow").exists());
    // The end of standard error is what is shown, not its beginning.
    let script = "seq 1000000 >&2; echo the cause >&2; exit 3";
    let ran = site.run(["run", "--out", "p", "--", "sh", "-c", script]).exits(1);
    ran.says("| 1000000\n").says("| the cause\n");
}

#[trial]
fn the_first_run_of_a_script_that_resumes_begins() {
    let site = Site::new();
    let command = ["run", "--resume", "new", "--range", "1-3", "--shell", "--", "echo {} >> ran"];
    site.run(command).exits(0).says("no results in new yet: the run begins").says("3 done");
    site.run(command).exits(0).says("nothing to do");
    assert_eq!(std::fs::read_to_string(site.path("ran")).unwrap().lines().count(), 3);
    // What is in the way of `--out` is in the way here.
    std::fs::create_dir(site.path("p")).unwrap();
    std::fs::write(site.path("p/stdout"), "mine").unwrap();
    site.run(["run", "--resume", "p", "--", "true"]).exits(2).says("p/stdout is there already");
}

#[trial]
fn a_directory_is_used_by_one_run_at_a_time() {
    let site = Site::new();
    let mut started = site.signals("started");
    let mut gate = site.gate("gate");
    let script = format!("echo on > {}; read line < {}", started.path(), gate.path());
    let running = site.start(["run", "--out", "o", "--", "sh", "-c", &script]);
    started.next();
    let run = |into: &str, dir: &str| site.run(["run", into, dir, "--", "sh", "-c", &script]);
    run("--resume", "o").exits(2).says_only(1, "another falkon is writing to o");
    gate.let_through(1);
    running.finish().exits(0);
    run("--out", "o").exits(2).says_only(1, "go on with it by --resume o");
    std::fs::write(site.path("o/results.jsonl"), "{}\n").unwrap();
    run("--resume", "o").exits(2).says_only(1, "line 1 of o/results.jsonl is not a result");
    run("--out", "/dev/null/o").exits(2).says_only(1, "cannot create the directory /dev/null/o");
}

#[trial]
fn a_full_disk_loses_nothing_that_a_resumed_run_does_not_make_good() {
    let site = Site::new();
    let _small = SmallDisk::mount(&site, "small", "256k");
    let script = "seq -f 'line %05g of {}' 100";
    let command = ["--range", "0-199", "--", "sh", "-c", script];
    let expected = |index: u64| {
        (1..=100).map(|line| format!("line {line:05} of {index}\n")).collect::<String>()
    };
    let ran = site.run(["run", "--out", "small/o"].iter().chain(&command)).exits(3);
    ran.says("cannot write results to small/o/").says("No space left on device");
    check_outputs(&site, "small/o", expected);
    let done = lines(&site, "small/o").len();
    assert!(done < 200);
    // Again without room: the same.
    site.run(["run", "--resume", "small/o"].iter().chain(&command)).exits(3);
    check_outputs(&site, "small/o", expected);
    SmallDisk::resize(&site, "small", "4m");
    site.run(["run", "--resume", "small/o"].iter().chain(&command)).exits(0);
    check_outputs(&site, "small/o", expected);
    let mut done: Vec<u64> =
        lines(&site, "small/o").iter().map(|line| line["index"].as_u64().unwrap()).collect();
    done.sort_unstable();
    assert_eq!(done, (0..200).collect::<Vec<_>>());
}

/// A file system of its own, for tests that fill it up.
#[derive(Debug)]
pub(crate) struct SmallDisk(std::path::PathBuf);

impl SmallDisk {
    /// Mounts one; `None`, with a line that says so, without the right to.
    pub(crate) fn mount(site: &Site, name: &str, size: &str) -> SmallDisk {
        let path = site.path(name);
        std::fs::create_dir(&path).unwrap();
        let mut command = site.program("mount");
        command.args(["-t", "tmpfs", "-o", &format!("size={size}"), "none"]).arg(&path);
        if rustix::process::geteuid().is_root() && Running::start(command).finish().status.success()
        {
            return SmallDisk(path);
        }
        skip("only root can mount a small disk")
    }

    pub(crate) fn resize(site: &Site, name: &str, size: &str) {
        let mut command = site.program("mount");
        command.args(["-o", &format!("remount,size={size}")]).arg(site.path(name));
        Running::start(command).finish().exits(0);
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: what still writes there is killed with the site.
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
