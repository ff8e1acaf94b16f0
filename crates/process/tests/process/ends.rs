//! How tasks start and how they end.

use falkon_trials::trial;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use falkon_process::{
    Ended, FileMark, Launch, LaunchError, Outcome, RUNNING_TASKS_MAX, Stage, Unchanged,
};

use super::rig::{Rig, bytes, command, shell};

fn not_started(stage: Stage, errno: i32) -> Outcome {
    Outcome::NotStarted { stage, errno }
}

fn write_script(path: &Path, text: &str, mode: u32) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[trial]
fn exit_codes_and_signals_are_told_apart() {
    let mut rig = Rig::new();
    for code in [0, 1, 2, 77, 127, 255] {
        assert_eq!(rig.outcome(shell(&format!("exit {code}"))), Outcome::Exit(code));
    }
    for signal in [libc::SIGTERM, libc::SIGKILL, libc::SIGINT, libc::SIGPIPE, libc::SIGSEGV] {
        let launch = shell(&format!("ulimit -c 0; kill -{signal} $$"));
        assert_eq!(rig.outcome(launch), Outcome::Signal(signal));
    }
}

#[trial]
fn programs_that_cannot_run_say_which_step_failed() {
    let mut rig = Rig::new();
    let dir = tempfile::tempdir().unwrap();
    let plain = dir.path().join("plain");
    write_script(&plain, "#!/bin/sh\n", 0o644);
    let lost = dir.path().join("lost");
    write_script(&lost, "#!/no/such/interpreter\n", 0o755);
    let of = |program: &Path| Launch { argv: vec![bytes(program)], ..Launch::default() };
    let missing = || Some(b"/no/such/place".to_vec());
    let cases = [
        (command(["no-such-program-anywhere"]), Stage::Exec, libc::ENOENT),
        (command(["/no/such/program"]), Stage::Exec, libc::ENOENT),
        (command([""]), Stage::Exec, libc::ENOENT),
        (of(&lost), Stage::Exec, libc::ENOENT),
        (of(&plain), Stage::Exec, libc::EACCES),
        (of(dir.path()), Stage::Exec, libc::EACCES),
        (of(&plain.join("below")), Stage::Exec, libc::ENOTDIR),
        (Launch { cwd: missing(), ..command(["true"]) }, Stage::Chdir, libc::ENOENT),
        (Launch { cwd: Some(bytes(&plain)), ..command(["true"]) }, Stage::Chdir, libc::ENOTDIR),
        (Launch { stdin: missing(), ..command(["true"]) }, Stage::Stdin, libc::ENOENT),
    ];
    for (launch, stage, errno) in cases {
        assert_eq!(rig.outcome(launch.clone()), not_started(stage, errno), "{launch:?}");
    }
    assert_eq!(rig.outcome(command(["true"])), Outcome::Exit(0));
}

#[trial]
fn arguments_that_cannot_be_passed_are_refused() {
    let mut rig = Rig::new();
    let env = |name: &[u8], value: &[u8]| Launch {
        env: vec![(name.to_vec(), value.to_vec())],
        ..command(["true"])
    };
    let cases = [
        (command(["true", "a\0b"]), libc::EINVAL),
        (Launch { cwd: Some(b"/\0".to_vec()), ..command(["true"]) }, libc::EINVAL),
        (Launch { stdin: Some(b"\0".to_vec()), ..command(["true"]) }, libc::EINVAL),
        (Launch::default(), libc::EINVAL),
        (env(b"A\0", b""), libc::EINVAL),
        (env(b"A", b"\0"), libc::EINVAL),
        (env(b"", b"x"), libc::EINVAL),
        (env(b"A=B", b"x"), libc::EINVAL),
        (Launch { argv: vec![vec![b'x'; 9 << 20]], ..Launch::default() }, libc::E2BIG),
    ];
    for (launch, errno) in cases {
        assert_eq!(rig.outcome(launch), not_started(Stage::Arguments, errno));
    }
    let mut million = command(["true"]);
    million.argv.resize(1_000_000, b"x".to_vec());
    assert_eq!(rig.outcome(million), not_started(Stage::Exec, libc::E2BIG));
    assert_eq!(rig.outcome(env(b"A", b"")), Outcome::Exit(0));
}

#[trial]
fn bytes_that_are_not_text_pass_unchanged() {
    let mut rig = Rig::new();
    let dir = tempfile::tempdir().unwrap();
    let cwd = dir.path().join(OsStr::from_bytes(b"caf\xe9 \xff\n"));
    fs::create_dir(&cwd).unwrap();
    fs::write(cwd.join(OsStr::from_bytes(b"\xfein")), b"in\xfd").unwrap();
    let script = r#"printf '%s|%s|' "$1" "$V"; cat; printf '|'; pwd"#;
    let mut launch = shell(script);
    launch.argv.extend([b"sh".to_vec(), b"\x80\xff".to_vec()]);
    launch.env.push((b"V".to_vec(), b"\xc3\x28".to_vec()));
    launch.cwd = Some(bytes(&cwd));
    launch.stdin = Some(b"\xfein".to_vec());
    let stdout = rig.run_one(launch).stdout.head;
    let place = bytes(&cwd.canonicalize().unwrap());
    assert_eq!(stdout, [b"\x80\xff|\xc3\x28|in\xfd|".as_slice(), &place, b"\n"].concat());
}

#[trial]
fn the_search_path_is_followed_as_execvp_does() {
    let mut rig = Rig::new();
    let dir = tempfile::tempdir().unwrap();
    let [denied, good] = ["denied", "good"].map(|name| dir.path().join(name));
    for place in [&denied, &good] {
        fs::create_dir(place).unwrap();
    }
    write_script(&denied.join("prog"), "#!/bin/sh\necho wrong\n", 0o644);
    write_script(&good.join("prog"), "#!/bin/sh\necho right\n", 0o755);
    let prog = |places: &[&Path]| {
        let places: Vec<Vec<u8>> = places.iter().map(|place| bytes(place)).collect();
        Launch { env: vec![(b"PATH".to_vec(), places.join(&b':'))], ..command(["prog"]) }
    };
    let nowhere = dir.path().join("nowhere");
    assert_eq!(rig.stdout(prog(&[&nowhere, &denied, &good])), "right\n");
    assert_eq!(rig.outcome(prog(&[&denied, &nowhere])), not_started(Stage::Exec, libc::EACCES));
    assert_eq!(rig.outcome(prog(&[&nowhere])), not_started(Stage::Exec, libc::ENOENT));
    // An empty entry, and one that is relative, count from the task's own directory.
    let here = Launch { cwd: Some(bytes(&good)), ..prog(&[Path::new(""), &denied]) };
    assert_eq!(rig.stdout(here), "right\n");
    let below = Launch { cwd: Some(bytes(dir.path())), ..prog(&[Path::new("good")]) };
    assert_eq!(rig.stdout(below), "right\n");
    let direct = Launch { cwd: Some(bytes(dir.path())), ..command(["good/prog"]) };
    assert_eq!(rig.stdout(direct), "right\n");
}

#[trial]
fn a_program_that_moves_along_the_search_path_is_found_again() {
    let mut rig = Rig::new();
    let dir = tempfile::tempdir().unwrap();
    let places: Vec<_> = ["a", "b", "c"].iter().map(|name| dir.path().join(name)).collect();
    let path = places.iter().map(|place| bytes(place)).collect::<Vec<_>>().join(&b':');
    let prog = Launch { env: vec![(b"PATH".to_vec(), path)], ..command(["prog"]) };
    for place in &places {
        fs::create_dir(place).unwrap();
    }
    for at in [2, 0, 1, 1, 2] {
        let file = places[at].join("prog");
        write_script(&file, &format!("#!/bin/sh\necho {at}\n"), 0o755);
        for _ in 0..2 {
            assert_eq!(rig.stdout(prog.clone()), format!("{at}\n"));
        }
        fs::remove_file(file).unwrap();
        assert_eq!(rig.outcome(prog.clone()), not_started(Stage::Exec, libc::ENOENT));
    }
}

#[trial]
fn a_file_without_an_interpreter_is_run_by_the_shell() {
    let mut rig = Rig::new();
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("script");
    write_script(&script, "echo \"$0\" \"$@\"\n", 0o755);
    let argv = [bytes(&script), b"one".to_vec(), b"two words".to_vec()].to_vec();
    let stdout = rig.stdout(Launch { argv, ..command([""]) });
    assert_eq!(stdout, format!("{} one two words\n", script.display()));
}

#[trial]
fn a_task_starts_with_a_clean_process_state() {
    let mut rig = Rig::new();
    let status = rig.stdout(command(["grep", "-E", "^Sig(Blk|Ign|Cgt)", "/proc/self/status"]));
    for line in status.lines() {
        let mask = line.split_whitespace().nth(1).unwrap();
        // Signals 32 and 33 are the C library's own. grep handles one or two by itself.
        let mask = u64::from_str_radix(mask, 16).unwrap() & !(0b11 << 31);
        assert!(line.starts_with("SigCgt") || mask == 0, "{status}");
    }
    let limit = |text: &str| {
        let line = text.lines().find(|line| line.starts_with("Max open files")).unwrap();
        line.split_whitespace().skip(3).take(2).map(str::to_owned).collect::<Vec<_>>()
    };
    let own = fs::read_to_string("/proc/self/limits").unwrap();
    assert_eq!(limit(&rig.stdout(command(["cat", "/proc/self/limits"]))), limit(&own));

    let inherited = fs::read_dir("/proc/self/fdinfo").unwrap().flatten().filter(|entry| {
        let info = fs::read_to_string(entry.path()).unwrap_or_else(|_| "flags: 02000000".into());
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap().trim();
        u32::from_str_radix(flags, 8).unwrap() & libc::O_CLOEXEC as u32 == 0
    });
    let number = |name: &OsStr| name.to_str().unwrap().parse::<u32>().unwrap();
    let inherited: HashSet<u32> = inherited.map(|entry| number(&entry.file_name())).collect();
    let open = rig.stdout(shell("cd /proc/$$/fd && echo *"));
    // The shell opens the directory itself for a moment; what it keeps for itself is from 10 on.
    let open: HashSet<u32> = open.split_whitespace().map(|name| number(name.as_ref())).collect();
    let extra: Vec<_> = open.difference(&inherited).filter(|&&fd| fd < 10).collect();
    assert!(extra.len() <= 1, "open {open:?}, inherited {inherited:?}");

    let ids = rig.stdout(shell("cut -d' ' -f1,5,7 /proc/$$/stat"));
    let ids: Vec<&str> = ids.split_whitespace().collect();
    assert_eq!(ids[0], ids[1], "a task leads its process group");
    assert_eq!(ids[2], "0", "a task has no controlling terminal");
}

#[trial]
fn the_environment_is_the_inherited_one_with_changes() {
    let mut rig = Rig::new();
    let home = std::env::var("HOME").unwrap();
    let mut launch = shell("echo \"$HOME|$A|$PATH|$FALKON_TASK_KEY\"");
    launch.key = 17;
    let path = std::env::var("PATH").unwrap();
    let stdout = rig.stdout(launch.clone());
    assert!(stdout.starts_with(&format!("{home}||{path}|")), "{stdout}");
    assert!(stdout.ends_with(":17\n"), "{stdout}");
    for (name, value) in [("A", "1"), ("A", "2"), ("HOME", "x"), ("FALKON_TASK_KEY", "mine")] {
        launch.env.push((name.as_bytes().to_vec(), value.as_bytes().to_vec()));
    }
    let changed = rig.stdout(launch);
    let (_, key) = stdout.rsplit_once('|').unwrap();
    assert_eq!(changed, format!("x|2|{path}|{key}"));
    assert_eq!(rig.stdout(shell("env | sort | uniq -d")), "");
}

#[trial]
fn inherited_variables_are_left_out_by_how_they_begin_and_set_ones_are_not() {
    let mut rig = Rig::new();
    let mut launch = shell("echo \"${HOME-none}|${PATH-none}|${HOMER-none}\"");
    launch.without = vec![b"HOM".to_vec(), b"NOBODY_SETS".to_vec()];
    let path = std::env::var("PATH").unwrap();
    assert_eq!(rig.stdout(launch.clone()), format!("none|{path}|none\n"));
    launch.env.push((b"HOMER".to_vec(), b"1".to_vec()));
    assert_eq!(rig.stdout(launch), format!("none|{path}|1\n"));
}

#[trial]
fn five_thousand_tasks_come_back_exactly_once() {
    const TASKS: u64 = 5_000;
    let mut rig = Rig::new();
    let task = |key| Launch { key, ..command(["/bin/true"]) };
    let mut launched = 8;
    rig.launch(&(0..launched).map(task).collect::<Vec<_>>());
    let mut seen = HashSet::new();
    while seen.len() < TASKS as usize {
        let ended = rig.recv().unwrap();
        for one in &ended {
            assert_eq!(one.outcome, Outcome::Exit(0));
            assert!(seen.insert(one.key), "task {} came back twice", one.key);
        }
        let until = (launched + ended.len() as u64).min(TASKS);
        rig.launch(&(launched..until).map(task).collect::<Vec<_>>());
        launched = until;
    }
    assert!(seen.iter().all(|&key| key < TASKS));
}

#[trial]
fn more_tasks_than_slots_all_run() {
    let mut rig = Rig::new();
    let count = RUNNING_TASKS_MAX as u64 + 500;
    // Not started tasks take a slot too, and are quick.
    let launch = |key| Launch { key, ..command(["/no/such/program"]) };
    let all = rig.run(&(0..count).map(launch).collect::<Vec<_>>());
    assert_eq!(all.len() as u64, count);
    let outcome = not_started(Stage::Exec, libc::ENOENT);
    assert!(all.values().all(|ended| ended.outcome == outcome));
}

#[trial]
fn a_task_after_another_starts_in_its_place_or_is_taken_back() {
    let mut rig = Rig::new();
    let after = |key, after| Launch { key, after: Some(after), ..command(["true"]) };
    let first = Launch { key: 1, ..command(["sleep", "1000"]) };
    rig.launch(&[first, after(2, 1), after(3, 1), after(4, 1)]);
    rig.kill(3, Duration::ZERO);
    let taken_back = rig.recv().unwrap();
    assert_eq!(taken_back.len(), 1);
    assert_eq!(taken_back[0].key, 3);
    assert_eq!(taken_back[0].outcome, not_started(Stage::Waiting, libc::ECANCELED));
    rig.kill(1, Duration::ZERO);
    let mut chain = Vec::new();
    while chain.len() < 3 {
        chain.extend(rig.recv().unwrap());
    }
    let outcomes: Vec<_> = chain.iter().map(|one| (one.key, one.outcome)).collect();
    let done = Outcome::Exit(0);
    assert_eq!(outcomes, [(1, Outcome::Signal(libc::SIGKILL)), (2, done), (4, done)]);
    assert!(chain.is_sorted_by(|one, next| one.ended <= next.started));
    // After one that is not there: at once.
    assert_eq!(rig.outcome(after(5, 4)), done);
}

#[trial]
fn a_task_whose_file_the_one_before_it_changes_does_not_start() {
    let mut rig = Rig::new();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("input");
    std::fs::write(&path, "x").unwrap();
    let mark = FileMark::of(&std::fs::metadata(&path).unwrap());
    let unchanged = vec![Unchanged { path: bytes(&path), mark }];
    let reads = |key, after| {
        let unchanged = unchanged.clone();
        Launch { key, after: Some(after), unchanged, ..command(["true"]) }
    };
    let writes = shell(&format!("echo >> {}", path.display()));
    let writes = Launch { key: 3, after: Some(2), ..writes };
    let first = Launch { key: 1, ..command(["true"]) };
    let last = Launch { key: 5, after: Some(4), ..command(["true"]) };
    rig.launch(&[first, reads(2, 1), writes, reads(4, 3), last]);
    let mut ended = Vec::new();
    while ended.len() < 5 {
        ended.extend(rig.recv().unwrap());
    }
    let outcomes: Vec<_> = ended.iter().map(|one| (one.key, one.outcome)).collect();
    let changed = not_started(Stage::Changed, libc::ESTALE);
    let ok = Outcome::Exit(0);
    assert_eq!(outcomes, [(1, ok), (2, ok), (3, ok), (4, changed), (5, ok)]);
}

#[trial]
fn an_end_is_told_while_a_long_task_runs_in_its_place() {
    let mut rig = Rig::new();
    let long = |key, after| Launch { key, after: Some(after), ..command(["sleep", "1000"]) };
    rig.launch(&[Launch { key: 1, ..command(["true"]) }, long(2, 1), long(3, 2)]);
    let keys = |ended: Vec<Ended>| ended.iter().map(|one| one.key).collect::<Vec<_>>();
    assert_eq!(keys(rig.recv().unwrap()), [1]);
    rig.kill(3, Duration::ZERO);
    assert_eq!(keys(rig.recv().unwrap()), [3]);
    rig.kill(2, Duration::ZERO);
    assert_eq!(keys(rig.recv().unwrap()), [2]);
}

#[trial]
fn a_key_in_use_is_refused_and_nothing_of_its_batch_runs() {
    let mut rig = Rig::new();
    let sleep = |key| Launch { key, ..command(["sleep", "1000"]) };
    rig.launch(&[sleep(1)]);
    let batch = [sleep(2), sleep(1)];
    let refused = rig.runtime.block_on(rig.sender.launch(&batch));
    assert_eq!(refused, Err(LaunchError::KeyInUse { key: 1 }));
    rig.kill(1, Duration::ZERO);
    let ended = rig.recv().unwrap();
    assert_eq!(ended.len(), 1);
    // Both keys are free.
    let all = rig.run(&[1, 2].map(|key| Launch { key, ..command(["true"]) }));
    assert!(all.values().all(|ended| ended.outcome == Outcome::Exit(0)));
}

#[trial]
fn a_task_runs_on_the_cpus_that_it_is_given_and_no_other_is_bound_by_that() {
    let mut rig = Rig::new();
    let ask = || command(["grep", "Cpus_allowed_list", "/proc/self/status"]);
    let of = |said: String| said.trim().rsplit('\t').next().unwrap().to_owned();
    let all = of(rig.stdout(ask()));
    let first: u32 = all.split(['-', ',']).next().unwrap().parse().unwrap();
    // A number of no CPU does not count.
    let bound = Launch { cpus: vec![first, u32::MAX], ..ask() };
    assert_eq!(of(rig.stdout(bound)), first.to_string());
    assert_eq!(of(rig.stdout(ask())), all);
    let nowhere = Launch { cpus: vec![u32::MAX], ..ask() };
    assert_eq!(of(rig.stdout(nowhere)), all);
}
