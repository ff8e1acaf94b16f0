//! What tasks are held to: memory, CPUs.

use crate::fixture::Site;
use falkon_trials::{Machine, skip, trial};
use serde_json::Value;
use std::path::Path;

/// Grows to many times the limit, and goes on for ever.
const GROW: &str = "dd if=/dev/zero of=/dev/null bs=2000000000 count=1000000 status=none";

/// Has the limit's half until the other task has ended.
const MODEST: &str = "a=$(head -c 30000000 /dev/zero | tr '\\0' x); until [ -e gate ]; do sleep 0.01; done; echo ${#a}";

#[trial]
fn a_task_with_more_memory_than_it_asked_for_fails_with_a_cause_and_its_neighbour_does_not() {
    for how in ["auto", "watch"] {
        let site = Site::new();
        let tasks = [
            serde_json::json!({"id": "grows", "command": ["sh", "-c", GROW]}),
            serde_json::json!({"id": "modest", "command": ["sh", "-c", MODEST]}),
            serde_json::json!({"id": "after", "command": ["touch", "gate"], "memory": 0}),
        ];
        let lines: Vec<String> = tasks.iter().map(ToString::to_string).collect();
        site.write("tasks.jsonl", lines.join("\n"));
        let run = ["run", "--json", "-j", "2", "--memory", "64MiB", "--memory-limits", how];
        let ran = site.run([&run[..], &["--tasks", "tasks.jsonl"]].concat()).exits(1);
        let of = |id: &str| {
            let results = ran.results();
            results.into_iter().find(|result| result["id"] == id).expect(id)
        };
        let grows = of("grows");
        assert_eq!((&grows["status"], &grows["cause"]), (&"failed".into(), &"over_memory".into()));
        assert_eq!(grows["signal"], 9, "{grows}");
        let error = grows["error"].as_str().unwrap();
        assert!(error.starts_with("asked for 64 MiB of memory, had "), "{error}");
        assert!(error.contains("when it was ended: --memory or --memory-limit"), "{error}");
        assert!(grows["usage"]["rss_max_bytes"].as_f64().unwrap() > 60e6, "{grows}");
        let modest = of("modest");
        assert_eq!((&modest["status"], &modest["stdout"]), (&"done".into(), &"30000000\n".into()));
        assert_eq!(of("after")["status"], "done");
    }
}

/// A run by a user to whom a control group of version 2 was delegated, and what it leaves there.
const DELEGATED: &str = r#"
echo user:x:1000:1000::/tmp:/bin/sh > /etc/passwd
echo +memory > /sys/fs/cgroup/cgroup.subtree_control
mkdir /sys/fs/cgroup/user
chown -R user /sys/fs/cgroup/user
sh -c 'echo 0 > /sys/fs/cgroup/user/cgroup.procs; exec su user -c "exec sh /run"'
find /sys/fs/cgroup/user -mindepth 1 -type d
"#;

#[trial]
fn a_delegated_control_group_of_version_2_holds_tasks_to_their_memory() {
    let site = Site::new();
    let machine = Machine::new(site.dir());
    machine.add_program(Path::new(env!("CARGO_BIN_EXE_falkon")), "falkon");
    machine.add_file("etc/passwd", "root:x:0:0::/root:/bin/sh\n");
    let task = "cat /proc/self/cgroup; dd if=/dev/zero of=/dev/null bs={}000000 count=1";
    let run = "cd /tmp; exec /falkon run --json -j 2 --memory 64MiB --range 10-90:80 -- sh -c";
    machine.add_file("run", &format!("{run} '{task}'\n"));
    let said = machine.run(DELEGATED);
    let results = said.text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut results: Vec<Value> = results.collect();
    results.sort_by_key(|result| result["index"].as_u64());
    let [modest, grows] = results.try_into().expect(&said.text);
    assert_eq!(modest["status"], "done", "{}", said.text);
    let group = modest["stdout"].as_str().unwrap();
    assert!(group.starts_with("0::/user/falkon-"), "{}", said.text);
    assert_eq!(grows["cause"], "over_memory", "{}", said.text);
    assert!(!said.text.contains("/sys/fs/cgroup/user/falkon-"), "{}", said.text);
}

#[trial]
fn a_memory_limit_may_be_apart_or_none_or_be_turned_off() {
    let site = Site::new();
    let needs = "dd if=/dev/zero of=/dev/null bs=100000000 count=30 status=none";
    let check = |options: &[&str], status: &str| {
        let run = [&["run", "--json"], options, &["--shell", needs]].concat();
        let ran = site.run(run);
        let result: Value = ran.results().remove(0);
        assert_eq!(result["status"], status, "{options:?}: {result}");
    };
    check(&["--memory", "20MiB"], "failed");
    check(&["--memory", "20MiB", "--memory-limit", "300MiB"], "done");
    check(&["--memory", "20MiB", "--memory-limit", "none"], "done");
    check(&["--memory", "20MiB", "--memory-limits", "off"], "done");
    check(&["--memory-limit", "20MiB"], "failed");
    check(&[], "done");
    let ran = site.run(["run", "--memory-limit", "0", "true"]).exits(2);
    ran.says("`0` is not a limit on memory");
}

#[trial]
fn pinned_tasks_have_cpus_of_their_own() {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        skip("this machine has one CPU");
    }
    let site = Site::new();
    // Each says where it may run when both run.
    let script = "touch at-{}; until [ -e at-1 ] && [ -e at-2 ]; do sleep 0.01; done; \
                  grep Cpus_allowed_list /proc/self/status";
    let run = ["run", "--json", "--pin", "-j", "2", "--range", "1-2", "--shell", script];
    let ran = site.run(run).exits(0);
    let said = |at: usize| {
        let results = ran.results();
        let line = results[at]["stdout"].as_str().unwrap().trim().to_owned();
        line.rsplit('\t').next().unwrap().parse::<u32>().expect("a single CPU")
    };
    assert_ne!(said(0), said(1));
    let ran = site.run(["run", "--pin", "-j", "60000", "true"]).exits(3);
    ran.says("tasks cannot be pinned: 60000 CPUs are offered");
}

#[trial]
fn with_automatic_memory_tasks_that_outgrow_their_size_run_again_and_do_not_fail() {
    let site = Site::new();
    // All but the last have little; that one is given what those had at first.
    let script = "case {} in 40) bytes=200000000;; *) bytes=5000000;; esac; \
                  dd if=/dev/zero of=/dev/null bs=$bytes count=20 status=none; \
                  sleep 0.1; echo $FALKON_MEMORY";
    let run = ["run", "--json", "-j", "2", "--memory", "auto", "--range", "1-40", "--shell"];
    let ran = site.run([&run[..], &[script]].concat()).exits(0);
    let given = |result: &Value| -> u64 {
        result["stdout"].as_str().unwrap().trim().parse().expect("an amount of memory")
    };
    let results = ran.results();
    let (first, before, last) = (given(&results[0]), given(&results[38]), given(&results[39]));
    assert!(before < 100_000_000 && before < first, "{first} {before}");
    assert!(last > 200_000_000, "{last}");
    assert!(last > first, "{first} {last}");
    assert_eq!(results[39]["attempts"], 3, "{}", results[39]);
    assert!(results[..20].iter().all(|result| result["attempts"] == 1), "{results:?}");
}

/// Counts far in as many processes at a time as it is told.
const BURN: &str = "burn() { i=0; while [ $i -lt 600000 ]; do i=$((i+1)); done; }; \
                    for process in $(seq $1); do burn & done; wait; \
                    echo $FALKON_CPUS $OMP_NUM_THREADS";

/// Programs that use two CPUs get two, and those that use one get one, as far as the machine let
/// the first of them use what they wanted.
#[trial]
fn with_automatic_cpus_tasks_get_as_many_as_others_of_their_kind_have_used() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let _executor = dispatcher.executor("worker", &["--slots", "2"]);
    for processes in ["1", "2"] {
        let submit = ["--cpus", "auto", "--memory", "auto", "--range", "1-5", "--", "sh", "-c"];
        let id = access.submit(&[&submit[..], &[BURN, "burn", processes]].concat());
        let results = access.run("results", &[&id, "--json"]).exits(0).results();
        let of = |index: u64| {
            let found = results.iter().find(|result| result["index"] == index);
            found.expect("each task has a result")
        };
        let given = |index| of(index)["given"]["cpus"].as_f64().expect("a number of CPUs");
        let used = |index| -> f64 {
            let usage = &of(index)["usage"];
            let seconds = |name: &str| usage[name].as_f64().expect("a time");
            (seconds("user_seconds") + seconds("system_seconds")) / seconds("wall_seconds")
        };
        for index in 0..5 {
            let cpus = given(index);
            assert_eq!(of(index)["stdout"], format!("{cpus} {cpus}\n"), "{results:?}");
            assert!(of(index)["given"]["memory_bytes"].as_u64() > Some(0), "{results:?}");
        }
        assert!((0..3).all(|index| given(index) == 2.0), "{results:?}");
        let most = (0..3).map(used).fold(0.0, f64::max);
        println!("{processes} processes used at most {most} CPUs");
        let expected = if most > 1.25 { 2.0 } else { 1.0 };
        assert_eq!(given(3), expected, "{most}: {results:?}");
        let ran = access.run("explain", &[&format!("{id}/3")]).exits(0);
        let said = format!("with auto, it was given {expected} CPU");
        assert!(ran.text().contains(&said), "{ran}");
    }
    let refused = site.run(["run", "--cpus", "auto", "--nodes-per-task", "2", "true"]).exits(2);
    refused.says("--cpus auto is for tasks on one node");
}
