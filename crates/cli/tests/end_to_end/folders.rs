//! `--out` and `--resume` beside what others made: nothing of theirs is
//! touched, and nobody gets another's words.

use crate::fixture::{Ran, Running, Site, json_lines};
use falkon_trials::trial;
use serde_json::Value;
use std::os::unix::process::CommandExt;

/// Every name in the site with what is in it, but for what falkon may write.
fn tree(site: &Site, dir: &str) -> Vec<(String, Option<String>)> {
    let mut found = Vec::new();
    let mut open = vec![site.path(dir)];
    while let Some(path) = open.pop() {
        for entry in std::fs::read_dir(&path).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(site.dir()).unwrap().to_str().unwrap().to_owned();
            match path.is_dir() {
                true => {
                    found.push((name, None));
                    open.push(path);
                }
                false => {
                    let bytes = std::fs::read(&path).unwrap();
                    found.push((name, Some(String::from_utf8_lossy(&bytes).into_owned())));
                }
            }
        }
    }
    found.sort();
    found
}

/// What the last line of each task says that it wrote, by index.
fn said(site: &Site, dir: &str) -> Vec<(u64, String)> {
    let stdout = std::fs::read(site.path(dir).join("stdout")).unwrap();
    let mut said = std::collections::BTreeMap::new();
    for line in json_lines(&site.read(&format!("{dir}/results.jsonl"))) {
        let at = |place: usize| line["stdout_at"][place].as_u64().unwrap() as usize;
        let text = match line["stdout_at"] {
            Value::Null => String::new(),
            _ => String::from_utf8(stdout[at(0)..at(0) + at(1)].to_vec()).unwrap(),
        };
        assert_eq!(line["id"], line["index"].to_string());
        said.insert(line["index"].as_u64().unwrap(), text);
    }
    said.into_iter().collect()
}

fn expected(words: &[&str]) -> Vec<(u64, String)> {
    (0..).zip(words.iter().map(|word| format!("{word}\n"))).collect()
}

#[trial]
fn nothing_that_others_made_is_removed_or_written_to() {
    let site = Site::new();
    // Names that results have, and names that they had.
    for (name, is_folder) in [
        ("stdout", false),
        ("stderr", false),
        ("results.jsonl", false),
        ("tasks", true),
        ("overflow", true),
    ] {
        let project = format!("project-{name}");
        std::fs::create_dir(site.path(&project)).unwrap();
        site.write(&format!("{project}/{name}.txt"), "mine as well");
        match is_folder {
            true => {
                std::fs::create_dir(site.path(&project).join(name)).unwrap();
                site.write(&format!("{project}/{name}/file"), "precious");
            }
            false => {
                site.write(&format!("{project}/{name}"), "mine");
            }
        }
        let before = tree(&site, &project);
        for into in ["--out", "--resume"] {
            let args = ["run", into, &project, "--out-files", "--", "echo", "hi"];
            let ran = site.run(args);
            let after = tree(&site, &project);
            let is_there = before.iter().all(|one| after.contains(one));
            assert!(is_there, "{before:?} became {after:?}\n{ran}");
            if name != "overflow" {
                ran.exits(2);
                assert_eq!(after, before, "{into}");
            }
        }
    }
    // In the folder of a project, without a name of theirs among the results'.
    std::fs::create_dir_all(site.path("free/overflow")).unwrap();
    site.write("free/overflow/file", "precious");
    let mut command = site.falkon(["run", "--out", ".", "--", "echo", "hi"]);
    command.current_dir(site.path("free"));
    Running::start(command).finish().exits(0);
    assert_eq!(site.read("free/overflow/file"), "precious");
    assert_eq!(site.read("free/stdout"), "hi\n");
    let ran = site.run(["run", "--out", "project-stdout", "--", "echo", "hi"]).exits(2);
    ran.says_only(1, "project-stdout/stdout is there already");
}

#[trial]
fn files_of_results_that_are_no_files_are_refused() {
    let site = Site::new();
    site.run(["run", "--out", "o", "--", "echo", "hi"]).exits(0);
    for name in ["stdout", "results.jsonl"] {
        let path = site.path("o").join(name);
        std::fs::rename(&path, site.path("kept")).unwrap();
        std::os::unix::fs::symlink(site.path("kept"), &path).unwrap();
        let before = site.read("kept");
        let ran = site.run(["run", "--resume", "o", "--", "echo", "ho"]).exits(2);
        ran.says_only(1, &format!("o/{name} is no regular file"));
        assert_eq!(site.read("kept"), before);
        std::fs::rename(site.path("kept"), &path).unwrap();
    }
}

#[trial]
fn a_resumed_run_never_gives_a_task_another_one_s_words() {
    let site = Site::new();
    let run = |into: &str, range: &str| {
        site.run(["run", into, "o", "--range", range, "--", "sh", "-c", "echo task {} said this"])
    };
    run("--out", "1-3").exits(0);
    // A machine that failed kept the lines, and of the output a part.
    let whole = site.read("o/stdout");
    for kept in [0, 10, whole.len() / 2] {
        let file = std::fs::OpenOptions::new().write(true).open(site.path("o/stdout")).unwrap();
        file.set_len(kept as u64).unwrap();
        run("--resume", "1-5").exits(0);
        let words: Vec<String> = (1..=5).map(|task| format!("task {task} said this")).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        assert_eq!(said(&site, "o"), expected(&words), "{kept}");
    }
}

#[trial]
fn a_task_whose_output_was_cut_runs_again() {
    let site = Site::new();
    // The first time a task removes what is kept of its long output.
    let script = "head -c 200000 /dev/zero | tr '\\0' x; \
                  test -e again || rm o/.falkon-overflow/*/*.stdout";
    let run = |into: &str| site.run(["run", into, "o", "--", "sh", "-c", script]);
    let ran = run("--out").exits(1).says("stdout of task 0 is cut: 65536 of 200000 bytes");
    drop(ran.says("1 done, the output of 1 is incomplete"));
    site.write("again", "");
    run("--resume").exits(0).says("1 done");
    let line = json_lines(&site.read("o/results.jsonl")).pop().unwrap();
    assert_eq!(line["stdout_at"][1], 200_000);
    run("--resume").exits(0).says("nothing to do");
}

#[trial]
fn a_task_is_known_again_by_what_it_is_and_not_by_where_it_stands() {
    let site = Site::new();
    std::fs::create_dir(site.path("g")).unwrap();
    for name in ["b", "c", "d"] {
        site.write(&format!("g/{name}"), name);
    }
    let run = |into: &str, more: &[&str]| {
        let script = "echo {} >> log; echo {/}; echo error {/} >&2";
        let args = [&["run", into, "o"], more, &["--each", "g/*", "--", "sh", "-c", script]];
        site.run(args.concat())
    };
    run("--out", &["--out-files"]).exits(0);
    // One that sorts first, and one less.
    site.write("g/a", "a");
    std::fs::remove_file(site.path("g/c")).unwrap();
    site.write("log", "");
    run("--resume", &["--out-files"]).exits(0).says("1 done (2 before)");
    assert_eq!(site.read("log"), "g/a\n");
    assert_eq!(said(&site, "o"), expected(&["a", "b", "d"]));
    for (index, name) in ["a", "b", "d"].iter().enumerate() {
        assert_eq!(site.read(&format!("o/tasks/{index}.stdout")), format!("{name}\n"));
        assert_eq!(site.read(&format!("o/tasks/{index}.stderr")), format!("error {name}\n"));
    }
    // The line of the task that is no more is kept, elsewhere.
    let gone = json_lines(&site.read("o/superseded.jsonl"));
    assert_eq!(gone.len(), 1);
    assert_eq!(gone[0]["index"], 1);
    assert!(!site.path("o/tasks/3.stdout").exists());
    run("--resume", &[]).exits(0).says("nothing to do: all 3 tasks have already succeeded");
    // With fewer tasks no file of a task says what is nobody's.
    std::fs::remove_file(site.path("g/a")).unwrap();
    run("--resume", &[]).exits(0).says("nothing to do: all 2 tasks");
    assert_eq!(said(&site, "o"), expected(&["b", "d"]));
    assert_eq!(site.read("o/tasks/0.stdout"), "b\n");
    assert!(!site.path("o/tasks/2.stdout").exists());
}

#[trial]
fn equal_tasks_are_counted() {
    let site = Site::new();
    let run = |into: &str, lines: &str| {
        let values = site.write("values", lines);
        site.write("log", "");
        site.run(["run", into, "o", "--each-line", &values, "--", "sh", "-c", "echo {} >> log"])
    };
    run("--out", "x\nx\ny\n").exits(0);
    run("--resume", "y\nx\nx\nx\n").exits(0).says("1 done (3 before)");
    assert_eq!(site.read("log"), "x\n");
    run("--resume", "x\nx\nx\ny\n").exits(0).says("nothing to do: all 4");
}

#[trial]
fn another_working_directory_is_another_task() {
    let site = Site::new();
    for name in ["s1", "s2"] {
        std::fs::create_dir(site.path(name)).unwrap();
        site.write(&format!("{name}/f"), format!("of {name}\n"));
    }
    let run = |folder: &str, into: &str| {
        let mut command = site.falkon(["run", into, "../w", "--", "cat", "f"]);
        command.current_dir(site.path(folder));
        Running::start(command).finish().exits(0)
    };
    run("s1", "--out");
    run("s1", "--resume").says("nothing to do");
    run("s2", "--resume").says("1 done in");
    assert_eq!(said(&site, "w"), expected(&["of s2"]));
}

#[trial]
fn what_a_task_read_or_wrote_is_looked_at_again() {
    let site = Site::new();
    for name in ["a", "b", "c"] {
        site.write(&format!("{name}.in"), name);
    }
    let run = |into: &str| {
        site.write("log", "");
        let script = "echo {/.} >> log; cp {} {.}.out";
        let args = ["run", into, "o", "--each", "*.in", "--input", "{}", "--output", "{.}.out"];
        site.run(args.iter().chain(&["--", "sh", "-c", script])).exits(0)
    };
    run("--out");
    run("--resume").says("nothing to do: all 3");
    site.write("b.in", "b is longer now");
    std::fs::remove_file(site.path("c.out")).unwrap();
    run("--resume").says("2 done (1 before)");
    let log = site.read("log");
    let mut again: Vec<&str> = log.lines().collect();
    again.sort_unstable();
    assert_eq!(again, ["b", "c"]);
    run("--resume").says("nothing to do: all 3");
    // Data objects and standard input as well.
    let run = |into: &str| {
        let args = ["run", into, "p", "--each", "*.in", "--stage", "--stdin", "a.out", "--"];
        site.run(args.iter().chain(&["sh", "-c", "cat - {}"])).exits(0)
    };
    run("--out");
    run("--resume").says("nothing to do: all 3");
    site.write("c.in", "c is longer now");
    run("--resume").says("1 done (2 before)");
    site.write("a.out", "a is longer now");
    run("--resume").says("3 done in");
}

#[trial]
fn an_input_that_changes_while_its_task_runs_is_not_taken_for_what_was_read() {
    let site = Site::new();
    site.write("in", "one");
    let mut started = site.signals("started");
    let mut gate = site.gate("gate");
    let script = format!("cat in; echo on > {}; read line < {}", started.path(), gate.path());
    let args = ["--input", "in", "--", "sh", "-c", &script];
    let running = site.start(["run", "--out", "o"].iter().chain(&args));
    started.next();
    site.write("in", "two and longer");
    gate.let_through(1);
    running.finish().exits(0);
    let running = site.start(["run", "--resume", "o"].iter().chain(&args));
    started.next();
    gate.let_through(1);
    running.finish().exits(0).says("1 done in");
    let stdout = site.read("o/stdout");
    assert!(stdout.ends_with("two and longer"), "{stdout}");
    site.run(["run", "--resume", "o"].iter().chain(&args)).exits(0).says("nothing to do");
}

/// `falkon` on a file system that has no locks.
fn without_flock(site: &Site, args: &[&str]) -> Running {
    let mut command = site.falkon(args);
    // SAFETY: between fork and exec only two system calls are made.
    unsafe { command.pre_exec(refuse_flock) };
    Running::start(command)
}

/// Has the kernel answer `flock` as a file system without locks does.
fn refuse_flock() -> std::io::Result<()> {
    let step = |code: u32, jump_if_not: u8, value: u32| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: jump_if_not,
        k: value,
    };
    // The number of the call; if it is flock's, ENOSYS, else all is allowed.
    let filter = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, libc::SYS_flock as u32),
        step(libc::BPF_RET, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32),
        step(libc::BPF_RET, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    // SAFETY: the filter outlives the call, which copies it.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
    };
    if done { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

#[trial]
fn a_folder_is_used_by_one_run_at_a_time_also_where_there_are_no_locks() {
    let site = Site::new();
    let mut started = site.signals("started");
    let mut gate = site.gate("gate");
    let script = format!("echo on > {}; read line < {}", started.path(), gate.path());
    let command = |into| ["run", into, "o", "--", "sh", "-c", &script];
    let resume = || -> Ran { without_flock(&site, &command("--resume")).finish() };
    let running = without_flock(&site, &command("--out"));
    started.next();
    let ran = resume().exits(2);
    ran.says_only(1, &format!("another falkon (process {}", running.pid()));
    gate.let_through(1);
    running.finish().exits(0);
    resume().exits(0).says("nothing to do");
    // What a killed one leaves is in nobody's way.
    let running = without_flock(&site, &["run", "--out", "p", "--", "sh", "-c", &script]);
    started.next();
    running.kill();
    site.left().wait_for_none();
    let running = without_flock(&site, &["run", "--out", "p", "--", "sh", "-c", &script]);
    started.next();
    gate.let_through(1);
    running.finish().exits(0);
    // One that may be on another machine is.
    let lock = site.path("o/.falkon-results.lock");
    assert!(!lock.exists());
    site.write("o/.falkon-results.lock", "host elsewhere\nboot x\npids y\npid 7\nstarted 8\n");
    let ran = resume().exits(2).says_only(1, "another falkon (process 7 on elsewhere)");
    ran.says("o/.falkon-results.lock");
}

#[trial]
fn journals_and_caches_have_one_user_at_a_time_also_where_there_are_no_locks() {
    let site = Site::new();
    let (dir, cache) = (site.text("d"), format!("{}=10MB", site.text("c")));
    let start = || without_flock(&site, &["start", "--dir", &dir]);
    let dispatcher = start();
    dispatcher.wait_for("dispatcher at ");
    let second = start().finish();
    let file = site.path("d/access.json");
    let file = file.to_str().unwrap();
    let args = ["executor", "--access", file, "--cache", &cache, "--name"];
    let executor = |name: &str| without_flock(&site, &[&args[..], &[name]].concat());
    let first = executor("first");
    dispatcher.wait_for("executor first joined");
    executor("second").finish().exits(3).says(&format!("process {} on ", first.pid()));
    let claimed = format!("process {} on ", dispatcher.pid());
    second.exits(3).says(&claimed).says(&site.text("d/journal/journal.claim"));
    // Files that killed ones leave are in nobody's way.
    first.kill();
    dispatcher.kill();
    let dispatcher = start();
    dispatcher.wait_for("dispatcher at ");
    let _executor = executor("third");
    dispatcher.wait_for("executor third joined");
    // Pages of results have a claim of their own.
    assert!(site.path("d/journal/pages/claim").exists());
}
