//! Outputs that are members of archives (`--output NAME=ARCHIVE.zip!MEMBER`).

mod shared;
mod trouble;

use crate::fixture::{Access, Dispatcher, Gate, Random, Running, Signals, Site, poll};
use falkon_trials::{skip, trial};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// Rounds of killing if `FALKON_ROUNDS` does not say.
const ROUNDS: u64 = 12;
/// Tasks in a round.
const TASKS: u64 = 60;

const READER: &str = r#"
import glob, json, re, sys, zipfile
members = {}
for path in glob.glob(sys.argv[1] + "/scores*.zip"):
    assert re.fullmatch(r"scores(\.part\d+)?\.zip", path.rsplit("/", 1)[1]), path
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        for name in archive.namelist():
            members[name] = archive.read(name).decode()
print(json.dumps(members))
"#;

/// The members of an archive, as Falkon reads them.
fn members(site: &Site, archive: &str, names: impl Iterator<Item = String>) -> Vec<String> {
    let checked = site.run(["archive", "check", archive]).exits(0);
    assert!(checked.text().contains("all is whole"), "{checked}");
    names
        .map(|name| {
            let member = format!("{archive}!{name}");
            site.run(["archive", "cat", &member]).exits(0).text().to_owned()
        })
        .collect()
}

#[trial]
fn other_readers_find_what_tasks_wrote() {
    let site = Site::new();
    let script = "mkdir -p out; echo energy {} > out/energy; echo {} > log";
    let args = ["run", "--json", "--range", "1-200", "--output", "out/energy=scores.zip!{}/energy"];
    let more = ["--output", "log=logs/{}.txt", "--", "sh", "-c", script];
    let ran = site.run(args.iter().chain(&more)).exits(0);
    assert_eq!(ran.results().len(), 200);
    for result in ran.results() {
        let number = result["index"].as_u64().unwrap() + 1;
        let place = result["outputs"][0].as_str().unwrap();
        let found = site.run(["archive", "cat", place]).exits(0);
        assert_eq!(found.text(), format!("energy {number}\n"), "{result}");
    }
    assert_eq!(site.read("logs/7.txt"), "7\n", "other outputs go where they are to");
    let read =
        members(&site, "scores.zip", ["1/energy", "200/energy"].map(str::to_owned).into_iter());
    assert_eq!(read, ["energy 1\n", "energy 200\n"]);
    let unzip = Command::new("unzip").args(["-tq", &site.text("scores.zip")]).output();
    let mut python = Command::new("python3");
    let Ok(read) = python.args(["-c", READER, site.dir().to_str().unwrap()]).output() else {
        skip("there is no python3");
    };
    assert!(read.status.success(), "{read:?}");
    let read: BTreeMap<String, String> = serde_json::from_slice(&read.stdout).unwrap();
    let expected = (1..=200).map(|at| (format!("{at}/energy"), format!("energy {at}\n")));
    assert_eq!(read, expected.collect());
    let Ok(unzip) = unzip else { skip("there is no unzip") };
    assert!(unzip.status.success(), "{unzip:?}");
}

/// Bytes of output that is kept beside the results otherwise.
const LONG_BYTES: usize = 200_000;

#[trial]
fn other_readers_find_what_tasks_printed() {
    let site = Site::new();
    let script = "echo out {}; [ {} != 2 ] || echo err >&2; [ {} != 3 ] || exec yes no | head -c 9; \
                  [ {} != 4 ] || head -c 200000 /dev/zero; [ {} != 5 ]";
    let args = ["run", "--json", "--range", "1-20", "--collect-streams", "scores.zip", "--"];
    let ran = site.run(args.into_iter().chain(["sh", "-c", script])).exits(1);
    let archive = site.text("scores.zip");
    for result in ran.results() {
        let number = result["index"].as_u64().unwrap() + 1;
        let member = |stream: &str| Value::from(format!("{archive}!{number}/{stream}"));
        let found = (&result["stdout"], &result["stdout_member"], &result["stderr_member"]);
        let (out, none) = (Value::from(""), Value::Null);
        match number {
            5 => assert_eq!(found, (&"out 5\n".into(), &none, &none), "it has failed"),
            2 => assert_eq!(found, (&out, &member("stdout"), &member("stderr"))),
            _ => assert_eq!(found, (&out, &member("stdout"), &none)),
        }
        assert!(result["stdout_cut"].is_null(), "{result}");
    }
    let mut python = Command::new("python3");
    let Ok(read) = python.args(["-c", READER, site.dir().to_str().unwrap()]).output() else {
        skip("there is no python3");
    };
    assert!(read.status.success(), "{read:?}");
    let read: BTreeMap<String, String> = serde_json::from_slice(&read.stdout).unwrap();
    let out = |number: u64| match number {
        3 => "out 3\nno\nno\nno\n".to_owned(),
        4 => "out 4\n".to_owned() + &"\0".repeat(LONG_BYTES),
        _ => format!("out {number}\n"),
    };
    let expected = (1..=20).filter(|number| *number != 5);
    let expected = expected.map(|number| (format!("{number}/stdout"), out(number)));
    assert_eq!(read, expected.chain([("2/stderr".to_owned(), "err\n".to_owned())]).collect());
    let Ok(unzip) = Command::new("unzip").args(["-p", &archive, "7/stdout"]).output() else {
        skip("there is no unzip");
    };
    assert_eq!(unzip.stdout, b"out 7\n", "{unzip:?}");
}

#[trial]
fn what_a_resumed_run_prints_has_the_numbers_of_its_tasks() {
    let site = Site::new();
    site.write("fails", "");
    let run = |more: &[&str]| {
        let script = format!("echo {{}}; [ {{}} = 1 ] || [ ! -e {} ]", site.text("fails"));
        let args = ["run", "--range", "1-3", "--collect-streams", "logs/a.zip"];
        let args = args.iter().chain(more).copied();
        site.run(args.chain(["--", "sh", "-c", script.as_str()]))
    };
    run(&["--out", "results"]).exits(1);
    std::fs::remove_file(site.path("fails")).unwrap();
    run(&["--resume", "results"]).exits(0);
    let names = (1..=3).map(|number| format!("{number}/stdout"));
    assert_eq!(members(&site, "logs/a.zip", names), ["1\n", "2\n", "3\n"]);
    let printed = site.read("results/stdout");
    let printed: BTreeSet<&str> = printed.lines().collect();
    assert_eq!(printed, BTreeSet::from(["2", "3"]), "that of tasks that failed");
}

#[trial]
fn tasks_of_a_file_print_into_archives_of_their_own_and_calls_too() {
    let site = Site::new();
    let tasks = r#"{"command": ["echo", "one"], "collect_streams": "a.zip"}
{"command": ["echo", "two"]}
{"call": "builtins:print", "args": ["three"], "collect_streams": "b.zip"}
"#;
    let tasks = site.write("tasks.jsonl", tasks);
    let ran = site.run(["run", "--json", "--tasks", &tasks]).exits(0);
    let plain = ran.results().into_iter().find(|result| result["index"] == 1).unwrap();
    assert_eq!(plain["stdout"], "two\n");
    assert_eq!(members(&site, "a.zip", ["1/stdout".to_owned()].into_iter()), ["one\n"]);
    assert_eq!(members(&site, "b.zip", ["3/stdout".to_owned()].into_iter()), ["three\n"]);
    for place in ["a.tar", "s3://bucket/a.zip", "a.zip!b"] {
        let args = ["run", "--collect-streams", place, "--", "echo"];
        site.run(args).exits(2).says("is no archive for what tasks print");
    }
    site.write("file", "");
    let args = ["run", "--json", "--collect-streams", "file/a.zip", "--", "echo", "lost"];
    let ran = site.run(args).exits(1);
    let result = &ran.results()[0];
    let error = result["error"].as_str().unwrap();
    assert!(error.contains("file/a.zip was not written: cannot create"), "{error}");
    assert!(result["stdout_member"].is_null(), "{result}");
}

#[trial]
fn a_second_run_adds_to_the_archive_and_the_last_member_counts() {
    let site = Site::new();
    for word in ["first", "second"] {
        let script = format!("echo {word} > out");
        let args =
            ["run", "--range", "1-3", "--output", "out=new/folder/a.zip!{}", "--", "sh", "-c"];
        site.run(args.into_iter().chain([script.as_str()])).exits(0);
    }
    let names = (1..=3).map(|at| at.to_string());
    assert_eq!(members(&site, "new/folder/a.zip", names), ["second\n"; 3]);
}

#[trial]
fn a_run_that_is_resumed_runs_nothing_again_while_its_archive_is_there() {
    let site = Site::new();
    let run = |extra: &[&str]| {
        let args = ["run", "--range", "1-3", "--output", "out=a.zip!{}"];
        let command = ["--", "sh", "-c", "echo {} >> ran; echo > out"]
            .map(|word| word.replace("ran", &site.text("ran")));
        let args = args.iter().chain(extra).map(|word| (*word).to_owned());
        site.run(args.chain(command)).exits(0);
        site.read("ran").lines().count()
    };
    assert_eq!(run(&["--out", "results"]), 3);
    assert_eq!(run(&["--resume", "results"]), 3);
    for entry in std::fs::read_dir(site.dir()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|end| end == "zip") {
            std::fs::remove_file(path).unwrap();
        }
    }
    assert_eq!(run(&["--resume", "results"]), 6);
}

#[trial]
fn where_a_file_of_an_archive_is_lost_its_tasks_alone_run_again() {
    let site = Site::new();
    let run = |range: &str, option: &str| {
        let args = ["run", "--range", range, option, "results", "--output", "out=a.zip!{}"];
        let command = ["--", "sh", "-c", "echo {} >> ran; echo {} > out"]
            .map(|word| word.replace("ran", &site.text("ran")));
        site.run(args.map(str::to_owned).into_iter().chain(command)).exits(0);
        site.read("ran").split_whitespace().map(str::to_owned).collect::<Vec<_>>().split_off(3)
    };
    assert!(run("1-3", "--out").is_empty());
    assert_eq!(run("1-4", "--resume"), ["4"]);
    std::fs::remove_file(site.path("a.part2.zip")).unwrap();
    assert_eq!(run("1-4", "--resume"), ["4", "4"]);
    assert_eq!(run("1-4", "--resume"), ["4", "4"]);
    assert_eq!(site.run(["archive", "cat", "a.zip!*"]).exits(0).text().lines().count(), 4);
}

#[trial]
fn what_one_task_writes_into_an_archive_another_reads() {
    let site = Site::new();
    let tasks = r#"{"command": ["sh", "-c", "echo energy > out"], "outputs": ["out=a.zip!m/energy"]}
{"command": ["cat", "in"], "inputs": ["in=a.zip!m/energy"]}
"#;
    let tasks = site.write("tasks.jsonl", tasks);
    let ran = site.run(["run", "--json", "--tasks", &tasks]).exits(0);
    let read = ran.results().into_iter().find(|result| result["index"] == 1).unwrap();
    assert_eq!(read["stdout"], "energy\n");
}

#[trial]
fn what_cannot_be_written_fails_and_says_where() {
    let site = Site::new();
    site.write("file", "");
    let run = |output: &str| {
        let args = ["run", "--json", "--output", output, "--", "sh", "-c", "echo > out"];
        site.run(args)
    };
    let ran = run("out=file/a.zip!m").exits(1);
    let result = &ran.results()[0];
    assert_eq!(result["status"], "failed");
    let error = result["error"].as_str().unwrap();
    assert!(error.contains("file/a.zip was not written: cannot create"), "{error}");
    run("out=a.zip!../m").exits(2).says("the member `../m` of the archive");
    run("out=a.zip!x//m").exits(2).says("cannot be called `x//m` in an archive");
    run("out=s3://bucket/a.zip!m").exits(2).says("archives that tasks write are files");
    // Without `.zip`, it is a file with that name.
    run("out=a!m").exits(0);
    assert_eq!(site.read("a!m"), "\n");
}

/// An executor with two slots. A task holds one of them for as long as it is to;
/// others have used the other one, and their outputs are staged.
struct Scene<'a> {
    site: &'a Site,
    dispatcher: Dispatcher<'a>,
    executor: Running,
    id: String,
    started: Signals,
    gate: Gate,
}

/// Tasks whose outputs are staged.
const STAGED: u64 = 5;

impl<'a> Scene<'a> {
    fn new(site: &'a Site) -> Scene<'a> {
        let dispatcher = site.dispatcher("d", &[]);
        let access = dispatcher.access();
        let mut started = site.signals("started");
        let gate = site.gate("gate");
        let executor = executor(&dispatcher, "first");
        // As long as it runs, the executor is not idle.
        let held = format!("echo held > {}; read line < {}", started.path(), gate.path());
        access.submit(&["--", "sh", "-c", &held]);
        started.next();
        let range = format!("1-{STAGED}");
        let args = ["--range", &range, "--output", "out=a.zip!{}", "--", "sh", "-c"];
        let id = access.submit(&[&args[..], &["echo {} > out"]].concat());
        let scene = Scene { site, dispatcher, executor, id, started, gate };
        scene.are_staged();
        scene
    }

    fn access(&self) -> Access<'a> {
        self.dispatcher.access()
    }

    /// Waits until the dispatcher knows that all of them have ended, and none is
    /// done.
    fn are_staged(&self) {
        poll("outputs are staged", || {
            let tasks = self.access().run("tasks", &[&self.id, "--json"]).exits(0).results();
            tasks.iter().all(|task| task["state"] == "staged")
        });
        let instance = self.access().instance(&self.id);
        assert_eq!((&instance["done"], &instance["staged"]), (&0.into(), &STAGED.into()));
        let status = self.access().run("status", &[]).exits(0);
        let said = "5 tasks have ended, with outputs that are staged and not safe yet";
        assert!(status.text().contains(said), "{status}");
        assert!(!self.site.path("a.zip").exists(), "nothing was written");
    }

    /// Each has succeeded at this attempt.
    fn have_succeeded(&self, attempts: u64) {
        let results = self.access().results(&self.id);
        assert_eq!(results.len() as u64, STAGED);
        for result in &results {
            let found = (&result["status"], &result["attempts"]);
            assert_eq!(found, (&Value::from("done"), &attempts.into()), "{result}");
        }
        let names = || (1..=STAGED).map(|at| at.to_string());
        let expected: Vec<String> = names().map(|name| name + "\n").collect();
        assert_eq!(members(self.site, "a.zip", names()), expected);
    }

    /// Lets the task go on that holds a slot.
    fn succeeds(mut self, attempts: u64) {
        self.gate.let_through(1);
        self.have_succeeded(attempts);
        self.executor.signal(Signal::TERM);
        self.executor.finish().exits(0);
    }
}

/// One whose outputs wait for as long as it has something to do.
fn executor(dispatcher: &Dispatcher<'_>, name: &str) -> Running {
    dispatcher.executor(name, &["--slots", "2", "--collect-delay", "1h"])
}

#[trial]
fn staged_outputs_are_written_when_nothing_else_is_to_do() {
    let site = Site::new();
    Scene::new(&site).succeeds(1);
}

#[trial]
fn tasks_run_again_whose_outputs_were_staged_on_an_executor_that_was_killed() {
    let site = Site::new();
    let mut scene = Scene::new(&site);
    let second = executor(&scene.dispatcher, "second");
    std::mem::replace(&mut scene.executor, second).kill();
    scene.started.next();
    scene.succeeds(2);
}

#[trial]
fn a_dispatcher_that_was_killed_finds_its_staged_tasks_again() {
    let site = Site::new();
    let mut scene = Scene::new(&site);
    scene.dispatcher.kill();
    scene.dispatcher.start();
    scene.dispatcher.service().wait_for("executor first joined");
    scene.are_staged();
    scene.succeeds(1);
}

#[trial]
fn an_executor_that_leaves_writes_what_is_staged() {
    let site = Site::new();
    let mut scene = Scene::new(&site);
    scene.executor.signal(Signal::TERM);
    scene.executor.wait_for("leaving when what runs has ended");
    // They are written while the other one still runs.
    scene.have_succeeded(1);
    scene.gate.let_through(1);
    scene.executor.finish().exits(0);
}

/// Executors are killed while they stage and write. Each file of an archive is
/// whole or absent, no result comes before its member is there, and none twice.
#[trial]
fn archives_are_whole_however_executors_are_killed() {
    let rounds = std::env::var("FALKON_ROUNDS").map_or(ROUNDS, |text| text.parse().unwrap());
    let mut random = Random::seeded("archives_are_whole_however_executors_are_killed");
    let site = Site::new();
    // One of two executors collects for the other; either may be killed.
    let dispatcher = site.dispatcher("d", &["--collectors", "1"]);
    let access = dispatcher.access();
    let start = |round: u64, delay: &str| {
        let name = format!("executor-{round}");
        dispatcher.executor(&name, &["--slots", "2", "--collect-delay", delay])
    };
    let mut executors = [start(0, "1ms"), start(1, "1ms")];
    for round in 1..=rounds {
        let range = format!("1-{TASKS}");
        let output = format!("out=r{round}.zip!{{}}");
        let script = format!("echo {round} {{}} > out; echo printed {round} {{}}");
        let streams = format!("s{round}.zip");
        let args = ["--range", &range, "--output", &output, "--collect-streams", &streams];
        let args = [&args[..], &["--", "sh", "-c", &script]].concat();
        let id = access.submit(&args);
        random.moment(400_000);
        let delay = ["0s", "1ms", "30ms", "1h"][random.below(4) as usize];
        let next = start(round + 1, delay);
        let killed = random.below(2) as usize;
        std::mem::replace(&mut executors[killed], next).kill();
        let results = access.results(&id);
        assert_eq!(results.len() as u64, TASKS, "round {round}");
        assert!(results.iter().all(|result| result["status"] == "done"), "round {round}");
        let archive = format!("r{round}.zip");
        let names = (1..=TASKS).map(|at| at.to_string());
        let expected = (1..=TASKS).map(|at| format!("{round} {at}\n"));
        assert_eq!(members(&site, &archive, names), expected.collect::<Vec<_>>());
        let names = (1..=TASKS).map(|at| format!("{at}/stdout"));
        let expected = (1..=TASKS).map(|at| format!("printed {round} {at}\n"));
        assert_eq!(members(&site, &streams, names), expected.collect::<Vec<_>>());
        let place = format!("{}!1/stdout", site.text(&streams));
        let first = results.iter().find(|result| result["index"] == 0).unwrap();
        assert_eq!(first["stdout_member"], place, "round {round}");
    }
    for executor in executors {
        executor.signal(Signal::TERM);
        executor.finish().exits(0);
    }
}
