//! A dispatcher, executors and clients, each a process of its own.

use crate::fixture::{Access, Site, indices, poll};
use falkon_trials::trial;
use rustix::process::Signal;
use serde_json::Value;

#[trial]
fn from_start_to_stop() {
    let site = Site::new();
    let mut dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let executor = dispatcher.executor("worker", &["--slots", "3"]);

    let id = access.submit(&[
        "--name",
        "first",
        "--range",
        "1-20",
        "--",
        "sh",
        "-c",
        "echo {}; exit $(({} == 7))",
    ]);
    access.run("wait", &[&id]).exits(1).says("19 done, 1 failed");
    let ran = access.run("results", &[&id]).exits(1);
    let mut numbers: Vec<u32> = ran.lines().iter().map(|line| line.parse().unwrap()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=20).collect::<Vec<_>>());
    let results = access.results(&id);
    assert_eq!(results.len(), 20);
    for (at, result) in results.iter().enumerate() {
        assert_eq!(result["index"], at);
        assert_eq!(result["stdout"], format!("{}\n", at + 1));
        assert_eq!(result["exit_code"], i32::from(at == 6));
        assert_eq!((&result["executor"], &result["attempts"]), (&"worker".into(), &1.into()));
    }
    // From the middle, and without waiting.
    let ran = access.run("results", &[&id, "--json", "--from", "15", "--no-wait"]);
    assert_eq!(ran.lines().len(), 5);

    let ran = access.run("tasks", &[&id, "--json", "--from", "18"]).exits(0);
    let tasks = ran.results();
    assert_eq!(tasks.len(), 2);
    assert_eq!((&tasks[1]["index"], &tasks[1]["state"]), (&19.into(), &"done".into()));
    let ran = access.run("tasks", &[&id, "--count", "3"]).exits(0);
    assert_eq!(ran.lines().len(), 3);
    assert!(ran.text().contains("echo 3"), "{ran}");

    let ran = access.run("status", &[]).exits(0);
    for part in ["1 executor,", "1 instance\n", "first", "worker", "3 cpus", "complete"] {
        assert!(ran.text().contains(part), "no {part:?} in\n{ran}");
    }
    let instance = access.instance(&id);
    assert_eq!((&instance["done"], &instance["failed"]), (&19.into(), &1.into()));

    access.run("destroy", &[&id]).exits(0);
    for command in ["wait", "results", "tasks", "cancel", "destroy", "status"] {
        let ran = access.run(command, &[&id]).exits(2);
        ran.says_only(1, &format!("there is no instance {id}"));
    }
    assert_eq!(access.status()["instances"], Value::Array(Vec::new()));
    access.run("stop", &[]).exits(0);
    dispatcher.running.take().unwrap().finish().exits(0).says("asked to stop");
    access.run("status", &[]).exits(3).says_only(1, "is the dispatcher running?");
    drop(executor);
    site.left().wait_for_none();
}

#[trial]
fn the_access_file_is_found_in_the_usual_places() {
    let site = Site::new();
    site.run(["status"]).exits(2).says_only(1, "start a dispatcher with `falkon start`");
    let usual = site.start(["start"]);
    usual.wait_for("dispatcher at ");
    let other = site.dispatcher("d", &[]);
    let at = |text: &str| text.contains("name-of-the-usual");
    let ran = site.run(["submit", "--name", "name-of-the-usual", "--", "true"]).exits(0);
    let id = ran.text().trim().to_owned();
    assert!(at(site.run(["status"]).exits(0).text()));
    assert!(!at(other.access().run("status", &[]).exits(0).text()));
    let mut command = site.falkon(["status"]);
    command.env("FALKON_ACCESS", &other.access().file);
    assert!(!at(crate::fixture::Running::start(command).finish().exits(0).text()));
    let mut command = site.falkon(["status", "--access", "state/falkon/access.json", &id]);
    command.env("FALKON_ACCESS", "nonsense");
    assert!(at(crate::fixture::Running::start(command).finish().exits(0).text()));
    site.run(["stop"]).exits(0);
    usual.finish().exits(0);
}

#[trial]
fn submit_and_wait_is_like_run() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let _executor = dispatcher.executor("worker", &["--slots", "2"]);
    std::fs::create_dir(site.path("sub")).unwrap();
    let ran = access.run("submit", &["--wait", "--keep-order", "--range", "1-5", "--", "echo"]);
    assert_eq!(ran.exits(0).text(), "1\n2\n3\n4\n5\n");
    // Tasks run where they are submitted.
    let file = access.file.to_str().unwrap().to_owned();
    let mut command = site.falkon(["submit", "--access", &file, "--wait", "--", "pwd"]);
    command.current_dir(site.path("sub"));
    let ran = crate::fixture::Running::start(command).finish().exits(0);
    assert!(ran.text().ends_with("/sub\n"), "{ran}");
    // A graph, a results directory, and the rest of it later.
    let graph = site.write(
        "graph.jsonl",
        r#"{"id": "a", "command": ["sh", "-c", "echo a > made"], "outputs": ["made"]}
{"id": "b", "command": ["sh", "-c", "cat made; test -e mended"], "inputs": ["made"]}
{"id": "c", "command": "true", "after": ["b"]}
"#,
    );
    let args = ["--tasks", &graph, "--wait"];
    let ran = access.run("submit", &[&args[..], &["--out", "o"]].concat()).exits(1);
    ran.says("1 done, 2 failed").says("task b, which it waits for, did not succeed");
    site.write("mended", "");
    let ran = access.run("submit", &[&args[..], &["--resume", "o"]].concat()).exits(0);
    ran.says("2 done (1 before)");
    // Others see the names as well.
    let id = access.submit(&["--tasks", &graph]);
    std::fs::remove_file(site.path("mended")).unwrap();
    let results = access.results(&id);
    let ids: Vec<&str> = results.iter().map(|one| one["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["a", "b", "c"]);
    let args = ["--fail-fast", "--range", "1-1000", "--wait", "--", "false"];
    let ran = access.run("submit", &args).exits(1);
    assert!(ran.err.contains("cancelled"), "{ran}");
}

#[trial]
fn instances_get_fair_shares() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let tasks = ["--range", "1-300", "--", "@sleep", "0.02"];
    let (first, second) = (access.submit(&tasks), access.submit(&tasks));
    let _executor = dispatcher.executor("worker", &["--slots", "4"]);
    let started = |results: &[Value]| -> Vec<f64> {
        let mut times: Vec<f64> =
            results.iter().map(|one| one["times"]["started"].as_f64().unwrap()).collect();
        times.sort_by(f64::total_cmp);
        times
    };
    let (first, second) = (started(&access.results(&first)), started(&access.results(&second)));
    // While both had tasks to start, how many did each?
    let (from, to) = (first[0].max(second[0]), first[299].min(second[299]));
    let share = |times: &[f64]| times.iter().filter(|time| (from..=to).contains(*time)).count();
    let (first, second) = (share(&first), share(&second));
    assert!(first * 3 >= second && second * 3 >= first, "{first} to {second}");
    assert!(first + second > 100, "they hardly met: {first} and {second}");
}

#[trial]
fn tasks_wait_for_an_executor_and_their_owner_is_told() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let waiting = access.start("submit", &["--wait", "--range", "1-3", "--", "echo"]);
    waiting.wait_for("waiting for an executor: none is connected");
    let _executor = dispatcher.executor("late", &[]);
    assert_eq!(waiting.finish().exits(0).sorted(), ["1", "2", "3"]);
    let waiting = access.start("submit", &["--wait", "--gpus", "1", "--", "echo", "found"]);
    waiting.wait_for("1 task waits for an executor that offers 1 cpus, 1 gpus: none does");
    let ran = access.run("status", &[]).exits(0);
    assert!(
        ran.text().contains("1 task needs 1 cpus, 1 gpus: no executor offers that (GPUs are"),
        "{ran}"
    );
    let _better = dispatcher.executor("better", &["--gpus", "1"]);
    assert_eq!(waiting.finish().exits(0).text(), "found\n");
}

#[trial]
fn an_executor_that_leaves_finishes_what_runs_and_hands_back_the_rest() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let mut started = site.signals("started");
    let mut gate = site.gate("gate");
    let script =
        format!("echo {{}} > {}; test {{}} -gt 2 || read line < {}", started.path(), gate.path());
    let leaving = dispatcher.executor("leaving", &["--slots", "2"]);
    let id = access.submit(&["--range", "1-50", "--", "sh", "-c", &script]);
    assert_eq!(started.take(2), ["1", "2"]);
    leaving.signal(Signal::TERM);
    leaving.wait_for("leaving when what runs has ended");
    let _staying = dispatcher.executor("staying", &["--slots", "2"]);
    started.take(48);
    gate.let_through(2);
    leaving.finish().exits(0);
    let results = access.results(&id);
    for (at, result) in results.iter().enumerate() {
        assert_eq!((&result["status"], &result["attempts"]), (&"done".into(), &1.into()));
        assert_eq!(result["executor"], if at < 2 { "leaving" } else { "staying" });
    }
    assert_eq!(results.len(), 50);
}

#[trial]
fn an_executor_told_twice_leaves_at_once_and_its_tasks_run_elsewhere() {
    check_lost(|executor| {
        executor.signal(Signal::INT);
        executor.wait_for("leaving");
        executor.signal(Signal::INT);
    });
}

#[trial]
fn a_killed_executor_s_tasks_run_elsewhere() {
    check_lost(|executor| executor.signal(Signal::KILL));
}

fn check_lost(end: impl Fn(&crate::fixture::Running)) {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let mut started = site.signals("started");
    let script =
        format!("test -e elsewhere && exit 0; echo on > {}; sleep 1000; :", started.path());
    let lost = dispatcher.executor("lost", &["--slots", "3"]);
    let id = access.submit(&["--range", "1-9", "--", "sh", "-c", &script]);
    started.take(3);
    site.write("elsewhere", "");
    end(&lost);
    lost.finish();
    site.left().wait_for_none_but(&[dispatcher.service()]);
    let _other = dispatcher.executor("other", &["--slots", "3"]);
    for result in access.results(&id) {
        assert_eq!((&result["status"], &result["executor"]), (&"done".into(), &"other".into()));
    }
}

#[trial]
fn what_a_killed_executor_leaves_on_the_disk_is_removed_by_the_next() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let caches = || {
        let entries = std::fs::read_dir(site.path("tmp")).unwrap();
        let caches = entries.map(|entry| entry.unwrap().path().join("cache"));
        caches.filter(|cache| cache.exists()).count()
    };
    let lost = dispatcher.executor("lost", &["--slots", "1"]);
    let _alive = dispatcher.executor("alive", &["--slots", "1"]);
    assert_eq!(caches(), 2);
    lost.kill();
    assert_eq!(caches(), 2);
    let _next = dispatcher.executor("next", &["--slots", "1"]);
    assert_eq!(caches(), 2);
}

#[trial]
fn what_was_sent_ahead_behind_a_long_task_is_taken_back_for_an_idle_executor() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let mut started = site.signals("started");
    let mut gate = site.gate("gate");
    let _busy = dispatcher.executor("busy", &["--slots", "1"]);
    // Short ones first, so that more are sent ahead; then a long one, then
    // short ones again.
    let script = format!(
        "test {{}} != 60 && exit; echo long > {}; read line < {}",
        started.path(),
        gate.path()
    );
    let id = access.submit(&["--range", "1-100", "--", "sh", "-c", &script]);
    started.next();
    let results = access.start("results", &[&id, "--json"]);
    let _idle = dispatcher.executor("idle", &["--slots", "1"]);
    results.wait_for_lines(99);
    assert_eq!(access.instance(&id)["dispatched"], 1);
    gate.let_through(1);
    assert_eq!(indices(results.finish().exits(0).text()), (0..100).collect::<Vec<_>>());
}

#[trial]
fn resources_are_never_given_out_twice() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let mut started = site.signals("started");
    let mut gate = site.gate("gate");
    let offers = ["--slots", "8", "--gpus", "3", "--memory", "10GiB", "--resource", "licence=4"];
    let _executor = dispatcher.executor("worker", &offers);
    let script = format!(
        "echo gpus:$CUDA_VISIBLE_DEVICES > {}; read line < {}",
        started.path(),
        gate.path()
    );
    for (need, fit) in [
        (&["--cpus", "2.5"][..], 3),
        (&["--cpus", "0.25", "--memory", "4GiB"], 2),
        (&["--cpus", "0.5"], 16),
        (&["--gpus", "1"], 3),
        (&["--gpus", "2"], 1),
        (&["--resource", "licence=1", "--cpus", "0.1"], 4),
        (&["--resource", "licence=3"], 1),
    ] {
        let tasks = ["--range", "1-20", "--", "sh", "-c", &script];
        let id = access.submit(&[need, &tasks].concat());
        let gpus = started.take(fit).join(",").replace("gpus:", "");
        let mut gpus: Vec<&str> = gpus.split(',').filter(|gpu| !gpu.is_empty()).collect();
        gpus.sort_unstable();
        let expected: &[&str] = match need {
            ["--gpus", "1"] => &["0", "1", "2"],
            ["--gpus", _] => &gpus.clone(),
            _ => &[],
        };
        assert_eq!(gpus, expected, "{need:?}");
        assert!(need[0] != "--gpus" || gpus.windows(2).all(|pair| pair[0] != pair[1]), "{gpus:?}");
        // One more ends for each that starts.
        for _ in fit..20 {
            gate.let_through(1);
            started.next();
        }
        assert!(started.is_silent(), "{need:?}");
        gate.let_through(fit);
        access.run("wait", &[&id]).exits(0);
    }
}

#[trial]
fn cancel_and_destroy_end_what_runs() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let mut started = site.signals("started");
    let script = format!("echo {{}} > {}; setsid sleep 1000 & sleep 1000; :", started.path());
    let executor = dispatcher.executor("worker", &["--slots", "2"]);
    let services = [dispatcher.service(), &executor];
    let id = access.submit(&["--name", "x", "--range", "0-9", "--", "sh", "-c", &script]);
    assert_eq!(started.take(2), ["0", "1"]);
    let some = ["x", "--command", "echo 9 >", "--state", "ready,sent"];
    access.run("cancel", &some).exits(0).says_only(1, "1 task cancelled");
    access.run("cancel", &some).exits(0).says_only(1, "0 tasks cancelled");
    access.run("cancel", &[&id, "--executor", "nobody"]).exits(0).says_only(1, "0 tasks");
    access.run("cancel", &["x", "--tasks", "5-7"]).exits(0);
    access.run("cancel", &["x/1"]).exits(0);
    assert_eq!(started.next(), "2");
    access.run("cancel", &[&id]).exits(0);
    let results = access.results(&id);
    assert_eq!(results.len(), 10);
    assert!(results.iter().all(|one| one["status"] == "cancelled"), "{results:?}");
    access.run("wait", &[&id]).exits(1).says("10 cancelled");
    site.left().wait_for_none_but(&services);
    let id = access.submit(&["--range", "0-9", "--", "sh", "-c", &script]);
    started.take(2);
    let waiting = access.start("wait", &[&id]);
    access.run("destroy", &[&id]).exits(0);
    site.left().wait_for_none_but(&[&services[..], &[&waiting]].concat());
    assert!(started.is_silent());
    waiting.finish().exits(2).says("there is no instance");
}

#[trial]
fn results_are_streamed_to_everyone_who_asks() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let mut gate = site.gate("gate");
    let _executor = dispatcher.executor("worker", &["--slots", "4"]);
    let script = format!("test {{}} -lt 10 || read line < {}; echo {{}}", gate.path());
    let id = access.submit(&["--range", "1-20", "--", "sh", "-c", &script]);
    let readers: Vec<_> = (0..3).map(|_| access.start("results", &[&id])).collect();
    let waiting = access.start("wait", &[&id]);
    readers.iter().for_each(|reader| reader.wait_for_lines(9));
    gate.let_through(11);
    waiting.finish().exits(0).says("20 done");
    for reader in readers {
        let ran = reader.finish().exits(0);
        let mut numbers: Vec<u32> = ran.lines().iter().map(|line| line.parse().unwrap()).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (1..=20).collect::<Vec<_>>());
    }
}

#[trial]
fn who_waits_for_results_learns_that_their_instance_was_destroyed() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let mut started = site.signals("started");
    let script = format!("test {{}} -gt 1 && {{ echo > {}; sleep 1000; }}; echo", started.path());
    let _executor = dispatcher.executor("worker", &["--slots", "2"]);
    let id = access.submit(&["--range", "1-9", "--", "sh", "-c", &script]);
    let readers: Vec<_> = (0..3).map(|_| access.start("results", &[&id])).collect();
    readers.iter().for_each(|reader| reader.wait_for_lines(1));
    started.take(2);
    access.run("destroy", &[&id]).exits(0);
    for reader in readers {
        reader.finish().exits(2).says("there is no instance");
    }
}

#[trial]
fn a_restarted_dispatcher_goes_on_and_running_tasks_do_not_notice() {
    let site = Site::new();
    let mut dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let mut started = site.signals("started");
    let mut gate = site.gate("gate");
    let script = format!("echo {{}} > {}; read line < {}; echo", started.path(), gate.path());
    let executor = dispatcher.executor("worker", &["--slots", "2"]);
    let id = access.submit(&["--range", "1-7", "--", "sh", "-c", &script]);
    started.take(2);
    let waiting = access.start("results", &[&id]);
    gate.let_through(1);
    waiting.wait_for_lines(1);
    started.next();
    for stop in [true, false] {
        if stop {
            access.run("stop", &[]).exits(0);
            dispatcher.running.take().unwrap().finish().exits(0);
        } else {
            dispatcher.kill();
        }
        // What ends meanwhile is handed over later.
        gate.let_through(1);
        dispatcher.start();
        started.next();
    }
    gate.let_through(4);
    started.take(2);
    assert_eq!(waiting.finish().exits(0).lines().len(), 7);
    let results = access.results(&id);
    assert!(results.iter().all(|one| one["attempts"] == 1), "{results:?}");
    assert!(started.is_silent());
    site.left().wait_for_none_but(&[dispatcher.service(), &executor]);
}

#[trial]
fn one_directory_and_one_port_belong_to_one_dispatcher() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let ran = site.run(["start", "--dir", "d"]).exits(3);
    ran.says_only(1, &format!("in use by process {}", dispatcher.service().pid()));
    let access: Value = serde_json::from_str(&site.read("d/access.json")).unwrap();
    let address = access["addresses"][0].as_str().unwrap();
    let ran = site.run(["start", "--dir", "e", "--listen", address]).exits(3);
    ran.says_only(1, "another program uses that port; stop it, or choose another with --listen");
    dispatcher.access().run("status", &[]).exits(0);
    for wrong in ["nonsense", "127.0.0.1:99999", "no.such.host.invalid:1"] {
        let ran = site.run(["start", "--dir", "f", "--listen", wrong]).exits(2);
        ran.says_only(1, "--listen");
    }
    site.run(["start", "--dir", "/dev/null/d"]).exits(2).says_only(1, "cannot create /dev/null/d");
}

#[trial]
fn a_client_may_go_while_its_tasks_run() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let mut gate = site.gate("gate");
    let script = format!("read line < {}; echo {{}}", gate.path());
    let args = ["--wait", "--range", "1-3", "--", "sh", "-c", &script];
    let waiting = access.start("submit", &args);
    waiting.wait_for("waiting for an executor");
    waiting.signal(Signal::INT);
    let said = waiting.finish().exits(1).says("the tasks continue: falkon wait 0 waits again").err;
    assert!(said.contains("3 unfinished"), "{said}");
    let _executor = dispatcher.executor("worker", &[]);
    gate.let_through(3);
    access.run("wait", &["0"]).exits(0).says("3 done");
}

#[trial]
fn the_journal_may_be_safer_or_left_out() {
    let site = Site::new();
    for (name, args, survives) in [
        ("machine", &["--durability", "machine"][..], true),
        ("salvage", &["--salvage"], true),
        ("none", &["--no-journal"], false),
    ] {
        let mut dispatcher = site.dispatcher(name, args);
        let access = dispatcher.access();
        let _executor = dispatcher.executor("worker", &[]);
        let id = access.submit(&["--range", "1-5", "--", "echo"]);
        access.run("wait", &[&id]).exits(0);
        dispatcher.kill();
        dispatcher.start();
        if survives {
            assert_eq!(access.results(&id).len(), 5);
        } else {
            access.run("results", &[&id]).exits(2).says_only(1, "there is no instance");
        }
        access.run("submit", &["--wait", "--", "true"]).exits(0);
    }
}

#[trial]
fn a_damaged_journal_is_refused_and_can_be_salvaged() {
    let site = Site::new();
    let mut dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let executor = dispatcher.executor("worker", &[]);
    let ids: Vec<String> =
        (0..3).map(|_| access.submit(&["--range", "1-50", "--", "echo"])).collect();
    access.run("wait", &[&ids[2]]).exits(0);
    drop(executor);
    dispatcher.kill();
    let path = site.path("d/journal/00000001.log");
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    std::fs::write(&path, bytes).unwrap();
    let ran = site.run(["start", "--dir", "d"]).exits(3);
    let ran = ran.says("00000001.log").says("--salvage");
    assert!(!ran.err.contains("panic"), "{ran}");
    // What the damage took runs again; the rest is there as it was, also when
    // it is read another time.
    let mut salvaged = site.start(["start", "--dir", "d", "--salvage"]);
    salvaged.wait_for("dispatcher at ");
    let executor = access.start("executor", &[]);
    for round in 0..2 {
        for id in &ids {
            let ran = access.run("results", &[id, "--json"]).exits(0);
            assert_eq!(indices(ran.text()), (0..50).collect::<Vec<_>>(), "instance {id}");
        }
        access.run("submit", &["--wait", "--", "true"]).exits(0);
        if round == 0 {
            salvaged.kill();
            salvaged = site.start(["start", "--dir", "d", "--salvage"]);
            salvaged.wait_for("dispatcher at ");
        }
    }
    drop(executor);
}

/// Keeps the fixture's own promise: an access elsewhere is as good.
#[trial]
fn an_access_file_may_be_copied() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let copy = site.path("copy.json");
    std::fs::copy(&dispatcher.access().file, &copy).unwrap();
    Access::at(&site, &copy).run("status", &[]).exits(0);
}

#[trial]
fn tasks_say_how_they_ended_and_which_of_them_run() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let _executor = dispatcher.executor("worker", &["--slots", "2"]);
    let script = "test {} != 2 || exit 3; test {} != 3 || kill -9 $$";
    let args = ["--wait", "--name", "ends", "--range", "1-3", "--shell", "--", script];
    access.run("submit", &args).exits(1);
    let ran = access.run("tasks", &["0", "--json"]).exits(0);
    let lines = ran.results();
    let of = |field: &str| lines.iter().map(|line| line[field].clone()).collect::<Vec<_>>();
    assert_eq!(of("state"), ["done", "failed", "failed"]);
    assert_eq!(of("exit_code"), [Value::from(0), 3.into(), Value::Null]);
    assert_eq!(of("signal"), [Value::Null, Value::Null, 9.into()]);
    assert_eq!(of("executor"), ["worker", "worker", "worker"]);
    assert!(
        lines.iter().all(|line| line["times"]["ended"].as_f64() > line["times"]["queued"].as_f64())
    );
    let ran = access.run("tasks", &["0"]).exits(0);
    assert!(ran.text().contains("test 2 != 2 || exit 3"), "{ran}");
    assert!(ran.text().contains("(exited with 3)") && !ran.text().contains("falkon_1"), "{ran}");
    // Of those that were sent, two run and the others wait their turn.
    let gate = site.gate("gate");
    let mut started = site.signals("started");
    let held = format!("echo on > {}; read line < {}", started.path(), gate.path());
    let instance =
        access.submit(&["--estimate", "10ms", "--range", "1-6", "--", "sh", "-c", &held, "x"]);
    started.next();
    started.next();
    let states = || {
        let ran = access.run("tasks", &[&instance, "--json"]).exits(0);
        let lines = ran.results();
        lines.iter().map(|line| line["state"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    poll("tasks are sent ahead", || states().iter().any(|state| state == "sent"));
    assert_eq!(states().iter().filter(|state| *state == "running").count(), 2);
    let status = access.instance(&instance);
    assert_eq!(status["running"], 2);
    assert!(status["dispatched"].as_u64().unwrap() > 2);
    access.run("cancel", &[&instance]).exits(0);
    access.run("wait", &[&instance]);
    assert!(states().iter().all(|state| state == "cancelled"));
}
