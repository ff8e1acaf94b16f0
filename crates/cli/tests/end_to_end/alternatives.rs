//! Tasks with alternatives: on which executor they run with what, and what they find there.

use crate::fixture::{Dispatcher, Running, Site, indices, poll};
use falkon_trials::trial;
use falkon_wire::message::PROTOCOL_VERSION_OLDEST;
use serde_json::Value;

/// Says what the task has.
const SAYS: &str = "echo $FALKON_ALTERNATIVE $FALKON_CPUS $FALKON_GPUS ${FALKON_MEMORY:-0} \
                    ${CUDA_VISIBLE_DEVICES:-none}";
/// One GPU and a CPU, or four CPUs and 64 MiB.
const REQUEST: [&str; 4] = ["--gpus", "1", "--or", "cpus=4,memory=64MiB"];
const ON_GPU: &str = "0 1 1 0 0\n";
const ON_CPUS: &str = "1 4 0 67108864 none\n";

/// An executor with a GPU and a slot, and one with four slots and memory.
fn executors(dispatcher: &Dispatcher<'_>) -> [Running; 2] {
    [
        dispatcher.executor("gpu", &["--slots", "1", "--gpus", "1"]),
        dispatcher.executor("cpus", &["--slots", "4", "--gpus", "0", "--memory", "1GiB"]),
    ]
}

#[track_caller]
fn check(result: &Value) {
    let (alternative, stdout) = match result["executor"].as_str() {
        Some("gpu") => (0, ON_GPU),
        _ => (1, ON_CPUS),
    };
    assert_eq!((&result["status"], &result["stdout"]), (&"done".into(), &stdout.into()));
    assert_eq!(result["alternative"], alternative, "{result}");
}

#[trial]
fn tasks_run_on_either_kind_of_executor_with_what_they_have_there() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let _executors = executors(&dispatcher);
    // Both kinds are in use at once: each task waits for the other.
    let meet = format!(
        "touch $FALKON_ALTERNATIVE.there; until [ -e 0.there ] && [ -e 1.there ]; do sleep 0.01; done; {SAYS}"
    );
    let command = ["--json", "--range", "1-2", "--", "sh", "-c", &meet];
    let folder = site.text("");
    let cwd = ["--wait", "--cwd", &folder];
    let ran = access.run("submit", &[&cwd[..], &REQUEST, &command].concat()).exits(0);
    let results = ran.results();
    results.iter().for_each(check);
    let mut names: Vec<&str> = results.iter().filter_map(|one| one["executor"].as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["cpus", "gpu"]);
    // A task without alternatives says nothing of them.
    let script = "echo ${FALKON_ALTERNATIVE-unset}";
    let ran = access.run("submit", &["--wait", "--json", "--", "sh", "-c", script]).exits(0);
    assert_eq!(ran.results()[0]["stdout"], "unset\n");
    assert_eq!(ran.results()[0].get("alternative"), None);
}

#[trial]
fn a_task_is_held_to_the_memory_of_its_alternative() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let _executors = executors(&dispatcher);
    let grow = "dd if=/dev/zero of=/dev/null bs=200000000 count=40 status=none";
    let hold = ["--gpus", "1", "--resource", "none=1", "--or", "cpus=4,memory=64MiB"];
    let command = ["--wait", "--json", "--", "sh", "-c", grow];
    let ran = access.run("submit", &[&hold[..], &command].concat()).exits(1);
    let result = &ran.results()[0];
    assert_eq!((&result["cause"], &result["alternative"]), (&"over_memory".into(), &1.into()));
    let ran = access.run("submit", &[&REQUEST[..], &["--range", "1-2"], &command].concat());
    for result in ran.exits(1).results() {
        let on_gpu = result["alternative"] == 0;
        assert_eq!(result["status"], if on_gpu { "done" } else { "failed" }, "{result}");
    }
}

#[trial]
fn task_files_name_alternatives_and_one_executor_uses_both() {
    let site = Site::new();
    let task =
        |rest: &str| format!("{{\"command\": [\"sh\", \"-c\", \"{SAYS}\"], \"gpus\": 1{rest}}}\n");
    let both = ", \"alternatives\": [{\"cpus\": 2}, {\"cpus\": 4, \"licences\": 1}]";
    site.write("tasks.jsonl", [task(both), task(both), task("")].concat());
    let run = ["run", "--json", "-j", "4", "--offer-gpus", "1", "--tasks", "tasks.jsonl"];
    let results = site.run(run).exits(0).results();
    let by = |alternative: u64| {
        let of = results.iter().filter(|one| one["alternative"] == alternative);
        of.map(|one| one["stdout"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(by(0).len() + by(1).len(), 2, "{results:?}");
    assert!(by(0).iter().all(|said| said == "0 1 1 0 0\n"), "{results:?}");
    assert!(by(1).iter().all(|said| said == "1 2 0 0 none\n"), "{results:?}");
}

#[trial]
fn executors_keep_their_tasks_and_their_alternatives_over_a_restart_of_the_dispatcher() {
    let site = Site::new();
    let mut dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let _executors = executors(&dispatcher);
    let (begun, gate) = (site.text("begun"), site.text("gate"));
    let script = format!("echo >> {begun}; until [ -e {gate} ]; do sleep 0.01; done; {SAYS}");
    let command = ["--json", "--wait", "--range", "1-20", "--", "sh", "-c", &script];
    let running = access.start("submit", &[&REQUEST[..], &command].concat());
    let count = || std::fs::read_to_string(&begun).unwrap_or_default().lines().count();
    poll("two tasks run", || count() == 2);
    dispatcher.kill();
    dispatcher.start();
    // Their room is taken: what is free does not fit a third one.
    let status = || access.run("status", &["--json"]).exits(0).text().to_owned();
    poll("both executors are back", || status().matches("\"free\"").count() == 2);
    assert_eq!(count(), 2);
    site.write("gate", "");
    let ran = running.finish().exits(0);
    let results = ran.results();
    assert_eq!(indices(ran.text()), (0..20).collect::<Vec<_>>());
    results.iter().for_each(check);
    assert_eq!(count(), 20, "each has run once");
}

#[trial]
fn an_executor_of_the_version_before_runs_the_alternative_that_was_chosen() {
    let site = Site::new();
    for args in [&[][..], &["--concentrators", "1"]] {
        let name = if args.is_empty() { "d" } else { "e" };
        let dispatcher = site.dispatcher(name, args);
        let access = dispatcher.access();
        let path = site.text(&format!("{name}/access.json"));
        let mut old = site.program(env!("CARGO_BIN_EXE_falkon"));
        old.env("FALKON_PROTOCOL", PROTOCOL_VERSION_OLDEST.to_string());
        old.args(["executor", "--access", &path, "--slots", "4", "--gpus", "0"]);
        let old = Running::start(old);
        old.wait_for("connected to the dispatcher at ");
        let script = "echo ${FALKON_ALTERNATIVE-unset} $FALKON_CPUS";
        let command = ["--gpus", "1", "--or", "cpus=3", "--wait", "--json", "--", "sh", "-c"];
        let ran = access.run("submit", &[&command[..], &[script]].concat()).exits(0);
        assert_eq!(ran.results()[0]["stdout"], "unset 3\n");
        assert_eq!(ran.results()[0].get("alternative"), None);
    }
}

#[trial]
fn a_dispatcher_of_the_version_before_is_not_sent_any() {
    let site = Site::new();
    let dir = site.text("d");
    let mut old = site.program(env!("CARGO_BIN_EXE_falkon"));
    old.env("FALKON_PROTOCOL", PROTOCOL_VERSION_OLDEST.to_string());
    old.args(["start", "--dir", &dir]);
    let old = Running::start(old);
    old.wait_for("dispatcher at ");
    let access = site.text("d/access.json");
    let submit = ["submit", "--access", &access, "--gpus", "1"];
    let ran = site.run([&submit[..], &["--or", "cpus=3", "--", "true"]].concat()).exits(2);
    ran.says("the dispatcher speaks protocol 8 and cannot place tasks with alternatives (--or)");
    site.run([&submit[..], &["--", "true"]].concat()).exits(0);
}

#[trial]
fn bad_alternatives_are_refused_before_anything_runs() {
    let site = Site::new();
    let refused = |args: &[&str], said: &str| {
        site.run([&["run"], args, &["--", "true"]].concat()).exits(2).says(said);
    };
    refused(&["--or", "cpu=2"], "there is no resource `cpu`; did you mean `cpus`?");
    refused(&["--or", "timeout=5m"], "`timeout` is the same for all alternatives of a task");
    refused(&["--or", "16"], "`16` is no alternative");
    refused(&["--or", "cpus=1"], "two alternatives of a task are the same, 1 cpus");
    let many = ["--or", "cpus=2", "--or", "cpus=3", "--or", "cpus=4", "--or", "cpus=5"];
    refused(&many, "a task has at most 3 alternatives beside");
    refused(&["--or", "cpus=2", "--nodes-per-task", "2"], "leave out --nodes-per-task");
    refused(&["--or", "cpus=2", "--speculate"], "leave out --speculate");
    refused(&["--or", "cpus=2", "--memory", "auto"], "leave out --memory auto");
    refused(&["--or", "memory=auto"], "`memory` cannot be auto there");
    refused(&["--or", "cpus=2", "--cpus", "auto"], "leave out --cpus auto");
    refused(&["--or", "cpus=auto"], "`cpus` cannot be auto there");
    let dispatcher = site.dispatcher("d", &[]);
    let ran = dispatcher.access().run("everywhere", &["--or", "cpus=2", "--", "true"]);
    ran.exits(2).says("each executor runs its own task: leave out --or");
    site.write("tasks.jsonl", "{\"command\": \"true\", \"alternatives\": [{\"mem\": 1}]}\n");
    let ran = site.run(["run", "--tasks", "tasks.jsonl"]).exits(2);
    ran.says("there is no resource `mem`; did you mean `memory`?");
}
