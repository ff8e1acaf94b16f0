//! Scratch disk space: what tasks claim, where they find it, what they are held to, what stays.

use crate::fixture::{Site, poll};
use falkon_trials::trial;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Has more than it may, and goes on for ever, whatever its parts do.
const GROW: &str = "setsid sleep 1000 & dd if=/dev/zero of=$FALKON_SCRATCH/big bs=1M count=100 \
                    status=none; wait";

/// Has a part of what it may until another task has ended.
const MODEST: &str = "dd if=/dev/zero of=$TMPDIR/small bs=1M count=10 status=none; \
                      until [ -e gate ]; do sleep 0.01; done; ls $TMPDIR";

fn entries(folder: &Path) -> Vec<PathBuf> {
    let found = std::fs::read_dir(folder).into_iter().flatten().flatten();
    found.map(|entry| entry.path()).collect()
}

/// The directories that executors have made in `scratch` for those of their tasks.
fn folders_for_tasks(scratch: &Path) -> Vec<PathBuf> {
    let is_one = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("disk-"))
    };
    entries(scratch).into_iter().filter(is_one).collect()
}

/// The directories of tasks.
fn task_folders(scratch: &Path) -> Vec<PathBuf> {
    folders_for_tasks(scratch).iter().flat_map(|folder| entries(folder)).collect()
}

#[trial]
fn a_task_with_more_disk_than_it_asked_for_fails_with_a_cause_and_its_neighbour_does_not() {
    let site = Site::new();
    let tasks = [
        json!({"id": "grows", "command": ["sh", "-c", GROW]}),
        json!({"id": "modest", "command": ["sh", "-c", MODEST]}),
        json!({"id": "after", "command": ["touch", "gate"], "disk": 0}),
    ];
    let lines: Vec<String> = tasks.iter().map(ToString::to_string).collect();
    site.write("tasks.jsonl", lines.join("\n"));
    let run = ["run", "--json", "--usage", "-j", "2", "--offer-disk", "64MiB", "--disk", "32MiB"];
    let ran = site.run([&run[..], &["--tasks", "tasks.jsonl"]].concat()).exits(1);
    let of = |id: &str| -> Value {
        ran.results().into_iter().find(|result| result["id"] == id).expect(id)
    };
    let grows = of("grows");
    assert_eq!((&grows["status"], &grows["cause"]), (&"failed".into(), &"over_disk".into()));
    assert_eq!(grows["signal"], 9, "{grows}");
    let error = grows["error"].as_str().unwrap();
    assert!(error.starts_with("asked for 32 MiB of disk, had "), "{error}");
    assert!(error.ends_with(" when it was ended: --disk gives it more"), "{error}");
    assert!(grows["usage"]["disk_max_bytes"].as_u64().unwrap() > 32 << 20, "{grows}");
    let modest = of("modest");
    assert_eq!((&modest["status"], &modest["stdout"]), (&"done".into(), &"small\n".into()));
    let most = modest["usage"]["disk_max_bytes"].as_u64().unwrap();
    assert!((10 << 20..20 << 20).contains(&most), "{modest}");
    let after = of("after");
    assert_eq!((&after["status"], after["usage"].get("disk_max_bytes")), (&"done".into(), None));
    ran.says("disk most");
    site.left().wait_for_none();
}

#[trial]
fn a_task_has_an_empty_directory_of_its_own_that_is_gone_when_it_has_ended() {
    let site = Site::new();
    // It leaves what is hard to remove.
    let script = "[ \"$FALKON_DISK\" = 33554432 ] && [ -z \"$(ls -A $FALKON_SCRATCH)\" ] || exit 9; \
                  cd $FALKON_SCRATCH; mkfifo fifo; ln -s / root; mkdir no; touch no/file; chmod 0 no; \
                  i=0; while [ $i -lt 300 ]; do mkdir deep; cd -P deep; i=$((i + 1)); done; touch file; \
                  echo $FALKON_SCRATCH; echo $TMPDIR; exit $1";
    let run = ["run", "--json", "-j", "1", "--offer-disk", "32MiB", "--disk", "32MiB", "--value"];
    let run = [&run[..], &["0", "3", "0", "--", "sh", "-c", script, "x", "{}"]].concat();
    let ran = site.run(run).exits(1);
    let results = ran.results();
    let mut seen = Vec::new();
    for result in &results {
        let lines: Vec<&str> = result["stdout"].as_str().unwrap().lines().collect();
        assert_eq!(lines.len(), 2, "{result}");
        assert_eq!(lines[0], lines[1], "{result}");
        assert!(!Path::new(lines[0]).exists(), "{result}");
        assert!(!seen.contains(&lines[0].to_owned()), "{result}");
        seen.push(lines[0].to_owned());
    }
    assert_eq!(results[1]["exit_code"], 3, "{}", results[1]);
    // What it is told to use counts, and it has the directory all the same.
    let own = ["run", "--json", "--offer-disk", "1MiB", "--disk", "1MiB", "--env", "TMPDIR=/x"];
    let ran = site.run([&own[..], &["--shell", "test -d $FALKON_SCRATCH; echo $TMPDIR"]].concat());
    assert_eq!(ran.exits(0).results()[0]["stdout"], "/x\n");
    // Without a claim there is none.
    let ran = site.run(["run", "--json", "--shell", "echo $FALKON_SCRATCH$FALKON_DISK"]).exits(0);
    assert_eq!(ran.results()[0]["stdout"], "\n");
}

#[trial]
fn tasks_run_where_there_is_disk_space_for_them_and_no_more_of_them_than_that() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let _small = dispatcher.executor("small", &["--slots", "8", "--disk", "1GiB"]);
    let large = dispatcher.executor("large", &["--slots", "8", "--disk", "8GiB"]);
    let status = access.status();
    let offers = |name: &str, what: &str| -> Value {
        let executors = access.status()["executors"].as_array().unwrap().clone();
        executors.into_iter().find(|one| one["name"] == name).unwrap()[what]["disk_bytes"].clone()
    };
    assert_eq!(offers("small", "offers"), 1_u64 << 30, "{status}");
    let script = "touch at-{}; until [ -e gate ]; do sleep 0.01; done";
    let run = ["--disk", "4GiB", "--range", "1-3", "--shell", script];
    let instance = access.submit(&run);
    poll("two tasks to run", || {
        ["at-1", "at-2"].iter().all(|name| site.path(name).exists()) && offers("large", "free") == 0
    });
    assert!(!site.path("at-3").exists());
    let unmet = access.submit(&["--disk", "16GiB", "true"]);
    let why = access.run("explain", &[&format!("{unmet}/0")]).exits(0);
    assert!(why.text().contains("16384 MiB disk"), "{}", why.text());
    site.write("gate", "");
    access.run("wait", &[&instance]).exits(0);
    let results = access.results(&instance);
    assert!(results.iter().all(|result| result["executor"] == "large"), "{results:?}");
    drop(large);
    // Where there is one executor and no other is to come, the task ends at once.
    let ran = site.run(["run", "--offer-disk", "1GiB", "--disk", "2GiB", "true"]).exits(1);
    ran.says("2048 MiB disk");
}

#[trial]
fn what_an_executor_leaves_that_is_killed_is_removed_by_the_next_one() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let scratch = site.path("scratch");
    let options = ["--scratch", scratch.to_str().unwrap(), "--disk", "1GiB"];
    let first = dispatcher.executor("first", &options);
    let script = "echo x >$FALKON_SCRATCH/file; touch at-$FALKON_ATTEMPT; \
                  until [ -e gate ]; do sleep 0.01; done; ls $FALKON_SCRATCH";
    let instance = dispatcher.access().submit(&["--disk", "1MiB", "--shell", script]);
    poll("the task to run", || site.path("at-1").exists());
    let left = task_folders(&scratch);
    assert_eq!(left.len(), 1, "{left:?}");
    first.kill();
    assert_eq!(task_folders(&scratch), left, "nobody is there to remove it");
    let second = dispatcher.executor("second", &options);
    poll("the task to run again", || site.path("at-2").exists());
    assert!(!left[0].exists());
    assert_eq!(task_folders(&scratch).len(), 1);
    site.write("gate", "");
    dispatcher.access().run("wait", &[&instance]).exits(0);
    assert_eq!(dispatcher.access().results(&instance)[0]["stdout"], "file\n");
    assert_eq!(task_folders(&scratch), Vec::<PathBuf>::new());
    second.signal(rustix::process::Signal::TERM);
    second.finish();
    assert_eq!(folders_for_tasks(&scratch), Vec::<PathBuf>::new());
}

#[trial]
fn a_scratch_directory_that_cannot_be_made_is_named() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let scratch = site.path("scratch");
    let options = ["--scratch", scratch.to_str().unwrap(), "--disk", "1GiB"];
    let _executor = dispatcher.executor("one", &options);
    std::fs::rename(&scratch, site.path("away")).unwrap();
    site.write("scratch", "no directory");
    let submit = ["--wait", "--json", "--disk", "1MiB", "true"];
    let ran = dispatcher.access().run("submit", &submit).exits(1);
    let error = ran.results()[0]["error"].as_str().unwrap().to_owned();
    let named = format!("cannot create the scratch directory {}/disk-", scratch.display());
    assert!(error.starts_with(&named), "{error}");
    assert!(error.contains("Not a directory"), "{error}");
}

#[trial]
fn sizes_that_are_none_and_tasks_without_scratch_directories_are_refused() {
    let site = Site::new();
    let check = |options: &[&str], says: &str| {
        site.run([&["run"], options, &["true"]].concat()).exits(2).says(says);
    };
    check(&["--disk", "lots"], "`lots` is not an amount of disk space");
    check(&["--disk", "auto"], "`auto` is not an amount of disk space");
    check(&["--offer-disk=-1"], "`-1` is not an amount of disk space");
    check(&["--resource", "disk=5"], "`disk` is no custom resource");
    check(&["--offer", "disk=5"], "`disk` is no custom resource");
    check(&["--disk", "1GiB", "--nodes-per-task", "2"], "--disk is for tasks on one node");
    site.run(["run", "--disk", "1GiB", "--call", "math:sqrt", "--value", "4"])
        .exits(2)
        .says("leave out --disk");
    site.write("tasks.jsonl", r#"{"command": "true", "resources": {"disk": 5}}"#);
    site.run(["run", "--tasks", "tasks.jsonl"]).exits(2).says("`disk` is no custom resource");
    site.write("tasks.jsonl", r#"{"command": "true", "disk": "some"}"#);
    site.run(["run", "--tasks", "tasks.jsonl"]).exits(2).says("`some` is not an amount");
}
