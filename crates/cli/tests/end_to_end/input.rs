//! Bad input, small disks, clocks that go wrong, and ten times the load: one
//! clear message, the right exit status, nothing lost.
//!
//! With `FALKON_LARGE` set, sizes are the full ones.

use crate::fixture::{Access, CLOCK, Ran, Running, Site, indices, json_lines};
use crate::resume::SmallDisk;
use falkon_trials::trial;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;

pub(crate) fn large() -> bool {
    std::env::var_os("FALKON_LARGE").is_some()
}

/// Runs the same command line by itself and with a dispatcher; both must say
/// the same.
fn check_both(access: &Access<'_>, site: &Site, args: &[&str], check: impl Fn(Ran)) {
    check(site.run([&["run"], args].concat()));
    check(access.run("submit", &[&["--wait"], args].concat()));
}

#[trial]
fn commands_that_cannot_run_are_named_with_the_reason() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let _executor = dispatcher.executor("worker", &["--slots", "2"]);
    let text = site.write("text", "#!/bin/sh\n");
    let script = site.write("script", "#!/no/such/shell\n");
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::create_dir(site.path("folder")).unwrap();
    let check = |args: &[&str], reason: &str| {
        check_both(&access, &site, args, |ran| {
            let ran = ran.exits(1).says("1 task failed:").says(reason);
            ran.says_only(3, "0 done, 1 failed");
        });
    };
    check(&["--", "no-such-command"], "no such command: no-such-command (check the spelling");
    check(&["--", "./no-such-file"], "no such command: ./no-such-file (there is no such file");
    check(&["--", "/no/such/file"], "no such command: /no/such/file (there is no such file");
    check(&["--", &text], "it is not executable (chmod +x");
    check(&["--", "./folder"], "cannot run ./folder: it is a directory");
    check(&["--", &script], "its interpreter /no/such/shell is not there");
    check(&["--cwd", "nowhere", "--", "true"], "cannot change to the working directory");
    check(&["--stdin", "nowhere", "--", "cat"], "cannot open standard input");
    check(&["--input", "nowhere", "--", "cat"], "nowhere cannot be read");
    check(&["--output", "nowhere", "--", "true"], "did not write its output");
    check(&["--", "sh", "-c", "kill -9 $$"], "killed by SIGKILL");
    check(&["--", "sh", "-c", "kill -SEGV $$"], "killed by SIGSEGV");
    check(&["--", "sh", "-c", "kill -USR1 $$"], "killed by signal 10");
    access.run("status", &[]).exits(0);
}

#[trial]
fn why_a_command_did_not_run_has_a_name() {
    let site = Site::new();
    let text = site.write("text", "#!/bin/sh\n");
    for (args, cause) in [
        (&["--", "no-such-command"][..], Some("no_program")),
        (&["--", &text], Some("not_executable")),
        (&["--cwd", "nowhere", "--", "true"], Some("no_folder")),
        (&["--stdin", "nowhere", "--", "cat"], Some("no_input_file")),
        (&["--input", "nowhere", "--", "cat"], Some("no_input_file")),
        (&["--output", "nowhere", "--", "true"], None),
        (&["--", "sh", "-c", "echo no such command: sh >&2; exit 127"], None),
        (&["--", "sh", "-c", "kill -9 $$"], None),
    ] {
        let results = site.run([&["run", "--json"], args].concat()).exits(1).results();
        let found = results[0].get("cause").map(|cause| cause.as_str().unwrap());
        assert_eq!(found, cause, "{args:?}: {}", results[0]);
    }
}

#[trial]
fn command_lines_and_files_that_make_no_sense_run_nothing() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    std::fs::create_dir(site.path("folder")).unwrap();
    let check = |args: &[&str], message: &str| {
        check_both(&access, &site, args, |ran| {
            ran.exits(2).says_only(1, message);
        });
    };
    check(&[], "there is no command to run");
    check(
        &["--each-line", "folder", "--", "true"],
        "`folder` is a directory, but a file is expected",
    );
    check(&["--tasks", "folder"], "`folder` is a directory, but a file is expected");
    check(&["--workflow", "folder"], "`folder` is a directory, but a file is expected");
    check(&["--each-line", "nowhere", "--", "true"], "cannot read `nowhere`");
    check(&["--tasks", "nowhere"], "cannot read `nowhere`");
    check(&["--each", "no*match", "--", "true"], "no file matches `no*match`");
    check(&["--each", "nowhere", "--", "true"], "no such file: `nowhere`");
    check(&["--each-line", "/dev/null", "--", "true"], "there is nothing in `/dev/null`");
    check(&["--", "@nop"], "there is no builtin `@nop`");
    check(&["--", "@sleep", "long"], "@sleep takes one number of seconds");
    check(&["--range", "1-3", "--", "echo", "{2}"], "`{2}`");
    check(&["--env", "x", "--", "true"], "write --env x=VALUE");

    let file = |name: &str, text: &str, message: &str| {
        site.write(name, text);
        check(&["--tasks", name], message);
    };
    file("a.jsonl", "{\"command\": \"true\"}\n{\"command\": 7}\n", "a.jsonl:2:13");
    file("b.jsonl", "{\"command\": \"true\"}\n\n  {\"command\": \"true\", }\n", "b.jsonl:3:23");
    file("c.jsonl", "{\"command\": \"true\", \"cpu\": 1}\n", "c.jsonl:1:");
    file("d.jsonl", "{\"command\": \"true\"", "d.jsonl:1:18");
    file("e.jsonl", "[{\"command\": \"true\"}]\n", "jq -c '.[]'");
    file("f.toml", "[[task]]\ncommand = \"true\"\nnonsense\n", "f.toml:3:9");
    file("g.toml", "[[task]]\ncommand = \"true\"\ncpus = \"many\"\n", "g.toml:3:8");
    file("h.jsonl", "", "there is nothing in `h.jsonl`");
    file(
        "cycle.jsonl",
        "{\"id\": \"a\", \"command\": \"x\", \"after\": [\"b\"]}\n\
         {\"id\": \"b\", \"command\": \"x\", \"after\": [\"a\"]}\n",
        "a → b → a",
    );
    file("unknown.jsonl", "{\"id\": \"a\", \"command\": \"x\", \"after\": [\"b\"]}\n", "`b`");
    file(
        "twice.jsonl",
        "{\"id\": \"a\", \"command\": \"x\"}\n{\"id\": \"a\", \"command\": \"x\"}\n",
        "both have the id `a`",
    );
    site.write("latin.jsonl", b"{\"command\": \"caf\xe9\"}\n");
    check(&["--tasks", "latin.jsonl"], "latin.jsonl:1:17");
    assert_eq!(access.status()["instances"], serde_json::json!([]), "nothing was submitted");
}

#[trial]
fn a_directory_is_a_value_like_any_other() {
    let site = Site::new();
    std::fs::create_dir(site.path("folder")).unwrap();
    let ran = site.run(["run", "--each", "folder", "--", "cat"]).exits(1);
    ran.says("Is a directory").says("cat folder: exited with 1");
}

#[trial]
fn names_and_arguments_need_not_be_utf8() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let _executor = dispatcher.executor("worker", &[]);
    let odd = |text: &[u8]| OsString::from_vec(text.to_vec());
    let names = [odd(b"caf\xe9.txt"), odd(b"\xff\xfe"), odd(b"line\nfeed"), odd(b"-n"), odd(b" ")];
    std::fs::create_dir(site.path("names")).unwrap();
    for name in &names {
        std::fs::write(site.path("names").join(name), "x").unwrap();
    }
    for how in [&["run"][..], &["submit", "--wait", "--access", access.file.to_str().unwrap()]] {
        let mut args: Vec<OsString> = how.iter().map(OsString::from).collect();
        args.extend(["--keep-order", "--each", "names/*", "--", "sh", "-c"].map(OsString::from));
        args.push(odd(b"test -f \"$1\" && printf '%s|' \"$1\" \"$2\""));
        args.extend([odd(b"\xf0sh"), odd(b"{}"), odd(b"{/.}\xe9")]);
        let ran = site.run(&args).exits(0);
        let mut expected: Vec<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
        expected.sort_unstable();
        let mut written = Vec::new();
        for name in expected {
            let stem = name.strip_suffix(b".txt").unwrap_or(name);
            written.extend_from_slice(&[b"names/", name, b"|", stem, b"\xe9|"].concat());
        }
        assert_eq!(ran.out, written);
    }
    // JSON has no such bytes: what cannot be shown is replaced.
    let ran = site.run(["run", "--json", "--", "printf", "a\\377b"]).exits(0);
    assert_eq!(ran.results()[0]["stdout"], "a\u{fffd}b");
}

#[trial]
fn a_million_arguments() {
    let site = Site::new();
    // As values, they are a million tasks.
    let lines: String = (0..1_000_000).map(|line| format!("{line}\n")).collect();
    let ran = site
        .run_with_input(&["run", "--quiet", "--each-line", "-", "--", "@noop"], lines.as_bytes())
        .exits(0);
    assert!(ran.out.is_empty());
    // As arguments of one task, they are more than the system takes.
    let task = serde_json::json!({ "id": "huge", "command": vec!["true"; 1_000_000] });
    site.write("huge.jsonl", format!("{task}\n{{\"id\": \"small\", \"command\": \"true\"}}\n"));
    let ran = site.run(["run", "--json", "--tasks", "huge.jsonl"]).exits(1);
    let ran = ran.says("the arguments and environment of true are too long for this system");
    assert!(ran.err.lines().all(|line| line.len() < 300), "the message is short");
    assert_eq!(ran.results()[1]["status"], "done");
    // Nearly as many are not.
    let task = serde_json::json!({ "command": vec!["true"; 100_000] });
    site.write("many.jsonl", task.to_string());
    site.run(["run", "--tasks", "many.jsonl"]).exits(0);
}

#[trial]
fn a_task_that_never_stops_writing_takes_no_memory() {
    let bytes: u64 = if large() { 10 << 30 } else { 1 << 30 };
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let executor = dispatcher.executor("worker", &["--slots", "1"]);
    let script = format!("head -c {bytes} /dev/zero; echo end >&2");
    // Printed, it is complete.
    let mut command = site.program("sh");
    command.args([
        "-c",
        "\"$1\" run -- sh -c \"$2\" | wc -c",
        "sh",
        env!("CARGO_BIN_EXE_falkon"),
        &script,
    ]);
    let ran = Running::start(command).finish().exits(0);
    assert_eq!(ran.text().trim(), bytes.to_string());
    assert_eq!(
        std::fs::read_dir(site.path("tmp")).unwrap().count(),
        1,
        "only the executor's is left"
    );
    // As JSON, that much is cut, and says so. Processes that are still there tell
    // how much memory they have had.
    let ran = access.run("submit", &["--wait", "--json", "--", "sh", "-c", &script]).exits(0);
    let result = &ran.results()[0];
    assert_eq!(result["stdout"].as_str().unwrap().len(), 64 << 10);
    assert_eq!(result["stdout_cut"]["total_bytes"], bytes);
    assert_eq!(result["stderr"], "end\n");
    assert_eq!(result["stdout_cut"]["why"], "too_long");
    for service in [&executor, dispatcher.service()] {
        assert!(service.memory_max() < 100 << 20, "{}", service.memory_max());
    }
}

#[trial]
fn children_that_a_task_leaves_behind_are_ended_with_it() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let executor = dispatcher.executor("worker", &["--slots", "2"]);
    let script = "sleep 1000 & setsid sleep 1000 & \
                  (setsid sh -c 'sleep 1000 & sleep 1000' &) ; echo done";
    check_both(&access, &site, &["--range", "1-10", "--", "sh", "-c", script], |ran| {
        assert_eq!(ran.exits(0).text(), "done\n".repeat(10));
        site.left().wait_for_none_but(&[dispatcher.service(), &executor]);
    });
}

#[trial]
fn an_output_directory_that_cannot_be_written_is_told_before_anything_runs() {
    let site = Site::new();
    site.write("file", "");
    let check = |dir: &str| {
        let args = ["run", "--out", dir, "--", "touch", "ran"];
        site.run(args).exits(2).says_only(1, dir);
        assert!(!site.path("ran").exists());
    };
    check("file");
    check("file/below");
    check("/proc/falkon");
}

#[trial]
fn a_read_only_file_system_is_told_before_anything_runs() {
    let site = Site::new();
    // Root may write to a directory without the permission; only a mount stops
    // it.
    let _disk = SmallDisk::mount(&site, "frozen", "1m");
    let mut command = site.program("mount");
    command.args(["-o", "remount,ro"]).arg(site.path("frozen"));
    Running::start(command).finish().exits(0);
    site.run(["run", "--out", "frozen/o", "--", "touch", "ran"]).exits(2).says_only(1, "frozen/o");
    assert!(!site.path("ran").exists());
    site.run(["start", "--dir", "frozen/d"]).exits(2).says_only(1, "Read-only file system");
}

/// Room for an instance, but not for what [`long_lines`] asks for.
const TIGHT_DISK: &str = "54m";

/// Tasks of [`long_lines`]: in one message or in several, they do not fit.
const LONG_LINES: u64 = 150_000;

/// Submits more than a [`TIGHT_DISK`] has room for, and waits until that is said.
fn long_lines(site: &Site, access: &Access<'_>, options: &[&str]) -> Running {
    let lines: String = (0..LONG_LINES).map(|line| format!("value {line:040}\n")).collect();
    site.write("lines", lines);
    let words = [options, &["--each-line", "lines", "--", "@noop"]].concat();
    let client = access.start("submit", &words);
    client.wait_for("waiting: the dispatcher has no room for more: its disk at ");
    client
}

#[trial]
fn a_dispatcher_whose_disk_is_full_waits_and_goes_on() {
    let site = Site::new();
    let _disk = SmallDisk::mount(&site, "d", TIGHT_DISK);
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let _executor = dispatcher.executor("worker", &["--slots", "2"]);
    let early = access.submit(&["--range", "1-10", "--", "echo"]);
    access.run("wait", &[&early]).exits(0);
    let client = long_lines(&site, &access, &["--wait", "--json"]);
    // Whoever asks how things are is answered all the same.
    assert_eq!(access.instance(&early)["done"], 10);
    access.run("tasks", &[&early]).exits(0);
    SmallDisk::resize(&site, "d", "200m");
    let ran = client.finish().exits(0);
    assert!(indices(ran.text()) == (0..LONG_LINES).collect::<Vec<_>>());
    assert_eq!(ran.err.matches("waiting: ").count(), 1, "{}", ran.err);
    assert_eq!(access.results(&early).len(), 10);
}

#[trial]
fn a_dispatcher_killed_while_its_disk_is_full_starts_again_with_all_it_accepted() {
    let site = Site::new();
    let _disk = SmallDisk::mount(&site, "d", TIGHT_DISK);
    let mut dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let early = access.submit(&["--range", "1-10", "--", "echo"]);
    let client = long_lines(&site, &access, &[]);
    // Without a byte to write to it starts as well, and has what it accepted.
    assert!(std::fs::write(site.path("d/filler"), vec![0; 60 << 20]).is_err(), "there is room");
    dispatcher.kill();
    dispatcher.start();
    assert_eq!(access.instance(&early)["tasks"], 10);
    dispatcher.kill();
    SmallDisk::resize(&site, "d", "200m");
    dispatcher.start();
    let ran = client.finish().exits(0);
    let _executor = dispatcher.executor("worker", &["--slots", "2"]);
    let text = access.run("results", &[ran.text().trim(), "--json"]).exits(0);
    assert!(indices(text.text()) == (0..LONG_LINES).collect::<Vec<_>>());
    assert_eq!(access.results(&early).len(), 10);
}

#[trial]
fn a_clock_that_is_set_back_changes_nothing() {
    let site = Site::new();
    let clock = site.library("clock", CLOCK);
    let start = |args: &[&str]| {
        let mut command = site.falkon(args);
        command.env("LD_PRELOAD", &clock);
        command.env("CLOCK_SET_BACK", site.path("back"));
        Running::start(command)
    };
    let mut started = site.signals("started");
    let mut gate = site.gate("gate");
    let script = format!("echo on > {}; read line < {}; echo ended", started.path(), gate.path());
    let tasks = ["--json", "--timeout", "100", "--range", "1-4", "--", "sh", "-c", &script];
    let check = |ran: &Ran| {
        for result in json_lines(ran.text()) {
            assert_eq!((&result["status"], &result["attempts"]), (&"done".into(), &1.into()));
            let phases = ["queued", "dispatched", "started", "ended", "delivered"];
            let times = phases.map(|phase| result["times"][phase].as_f64().unwrap());
            assert!(times.is_sorted() && times[4] - times[0] < 1000.0, "{times:?}");
        }
    };
    // Everything in one process.
    let running = start(&[&["run", "-j", "2"], &tasks[..]].concat());
    started.take(2);
    site.write("back", "");
    gate.let_through(4);
    started.take(2);
    check(&running.finish().exits(0));
    // With services, one of which starts again while the clock is behind.
    std::fs::remove_file(site.path("back")).unwrap();
    let dispatcher = start(&["start", "--dir", "d"]);
    dispatcher.wait_for("dispatcher at ");
    let access = ["--access", "d/access.json"];
    let executor = start(&[&["executor", "--slots", "2"], &access[..]].concat());
    let client = start(&[&["submit", "--wait"], &access[..], &tasks].concat());
    started.take(2);
    site.write("back", "");
    gate.let_through(1);
    started.next();
    let before = dispatcher.kill().err;
    gate.let_through(1);
    let dispatcher = start(&["start", "--dir", "d"]);
    started.next();
    assert!(dispatcher.said() < before, "the log's clock was not set back: {before}");
    gate.let_through(2);
    check(&client.finish().exits(0));
    assert!(started.is_silent());
    site.left().wait_for_none_but(&[&dispatcher, &executor]);
}

#[trial]
fn ten_times_the_load() {
    let tasks: u64 = if large() { 10_000_000 } else { 1_000_000 };
    let site = Site::new();
    let mut dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    // Each with an argument of its own, queued before anyone runs them.
    let lines: String = (0..tasks).map(|line| format!("{line}\n")).collect();
    site.write("lines", lines);
    let id = access.submit(&["--each-line", "lines", "--", "@noop"]);
    let queued = access.instance(&id);
    assert_eq!((&queued["tasks"], &queued["ready"]), (&tasks.into(), &tasks.into()));
    // All of them are there after a restart.
    dispatcher.kill();
    dispatcher.start();
    let _executors = [dispatcher.executor("one", &[]), dispatcher.executor("two", &[])];
    access.run("wait", &[&id]).exits(0).says(&format!("{tasks} done"));
    assert!(dispatcher.service().memory_max() < tasks * 400 + (100 << 20));
}
