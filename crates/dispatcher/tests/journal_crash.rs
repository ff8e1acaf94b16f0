//! Real processes: one that is killed at random moments while it appends, one that runs out of
//! room. The test binary starts itself again, and an environment variable says what it then is.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use falkon_trials::{skip, trial};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use falkon_dispatcher::journal::{CommitError, Journal, Options};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

const DIR: &str = "FALKON_JOURNAL_TEST_DIR";

/// Starts `test` of this binary as a process of its own, working in `dir`.
fn start(test: &str, dir: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(DIR, dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Lines of the child that begin with `key`, as numbers; the harness prints lines of its own.
fn said(line: &str, key: &str) -> Option<u64> {
    let at = line.find(key)?;
    line[at + key.len()..].trim().parse().ok()
}

fn say(key: &str, value: u64) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("\n{key}{value}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

// --- kill -9 -------------------------------------------------------------------------------

/// The record for `number`: the number, and a length and a filling that follow from it.
fn record(number: u64) -> Vec<u8> {
    let length = (number * 2_654_435_761 % 3000) as usize;
    [number.to_le_bytes().to_vec(), vec![number as u8; length]].concat()
}

/// Reads a journal whose records are a run of numbers, in one snapshot record (`"up to", n`) and
/// single ones; returns how many numbers it accounts for.
fn count(dir: &Path, options: Options) -> (Journal, u64) {
    let (journal, mut replay) = Journal::open(dir, options).unwrap();
    let mut next = 0;
    while let Some(found) = replay.next_record().unwrap() {
        if let Some(up_to) = found.strip_prefix(b"up to") {
            assert_eq!(next, 0, "a snapshot comes first");
            next = u64::from_le_bytes(up_to.try_into().unwrap());
        } else {
            assert!(found == record(next), "record {next}");
            next += 1;
        }
    }
    (journal, next)
}

/// Appends for ever, acknowledges every commit, and takes snapshots now and then.
#[trial]
fn child_appends() {
    let Some(dir) = std::env::var_os(DIR) else { return };
    let small = Options { segment_bytes_max: 100_000, ..Options::default() };
    let (mut journal, mut next) = count(Path::new(&dir), small);
    say("begin ", next);
    let mut snapshot = None;
    for round in 0_u64.. {
        for _ in 0..round * 7 % 23 + 1 {
            journal.append(&[&record(next)]).unwrap();
            next += 1;
        }
        journal.commit().unwrap();
        say("ack ", next);
        match round % 16 {
            3 => {
                let mut begun = journal.begin_snapshot(0).unwrap();
                begun.append(&[b"up to", &next.to_le_bytes()]).unwrap();
                snapshot = Some(begun);
            }
            11 => _ = snapshot.take().map(|begun| begun.finish().unwrap()),
            _ => {}
        }
    }
}

#[trial]
fn nothing_acknowledged_is_lost_by_kill_9() {
    const ROUNDS: usize = 40;
    let dir = tempfile::tempdir().unwrap();
    let mut runner = TestRunner::deterministic();
    let mut acknowledged = 0;
    for round in 0..ROUNDS {
        // The moment is a number of acknowledgements and of loop turns behind the last of them.
        let moment = (0_u64..120, 0_u32..200_000).new_tree(&mut runner).unwrap().current();
        let mut child = start("child_appends", dir.path());
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut acks = 0;
        let mut line = String::new();
        while acks < moment.0 + 1 {
            line.clear();
            assert_ne!(lines.read_line(&mut line).unwrap(), 0, "round {round}: the child ended");
            if let Some(found) = said(&line, "begin ") {
                assert!(found >= acknowledged, "round {round}: {found} of {acknowledged}");
            }
            if let Some(ack) = said(&line, "ack ") {
                acknowledged = ack;
                acks += 1;
            }
        }
        (0..moment.1).for_each(|_| std::hint::spin_loop());
        child.kill().unwrap();
        child.wait().unwrap();
        // Acknowledgements that were still on their way count too.
        let mut rest = String::new();
        lines.read_to_string(&mut rest).unwrap();
        let whole = rest.rsplit_once('\n').map_or("", |(whole, _)| whole);
        acknowledged =
            whole.lines().filter_map(|line| said(line, "ack ")).fold(acknowledged, u64::max);
        let (_journal, found) = count(dir.path(), Options::default());
        assert!(found >= acknowledged, "round {round} {moment:?}: {found} of {acknowledged}");
    }
    assert!(acknowledged > 1000, "{acknowledged}");
}

// --- No room -------------------------------------------------------------------------------

/// Fills the room there is, checks what `commit` says, makes room, and goes on.
fn run_out_of_room(dir: &Path, make_room: impl FnOnce()) {
    let dir = dir.join("journal");
    let small = || Options { segment_bytes_max: 200_000, ..Options::default() };
    let (mut journal, mut next) = count(&dir, small());
    let mut committed = next;
    let error = loop {
        assert!(next < 100_000, "the room has no end");
        journal.append(&[&record(next)]).unwrap();
        next += 1;
        if let Err(error) = journal.commit() {
            break error;
        }
        committed = next;
    };
    let text = error.to_string();
    let CommitError::NoRoom { path, waiting_bytes, .. } = error else { panic!("{text}") };
    assert!(text.starts_with("no room to write"), "{text}");
    assert!(text.contains("nothing is lost, make room and try again"), "{text}");
    assert_eq!(waiting_bytes, journal.waiting_bytes() as u64);
    let length = fs::metadata(&path).unwrap().len();
    assert_eq!(journal.disk_use().total_bytes, size_of_files(&dir), "no tail at {length}");
    // A start needs no room: what was committed is there, and the rest is appended again.
    drop(journal);
    let (mut journal, found) = count(&dir, small());
    assert_eq!(found, committed);
    (committed..next).for_each(|number| journal.append(&[&record(number)]).unwrap());
    // More comes in while there is no room, and is kept as well.
    for _ in 0..20 {
        journal.append(&[&record(next)]).unwrap();
        next += 1;
        assert!(matches!(journal.commit(), Err(CommitError::NoRoom { .. })));
    }
    make_room();
    journal.commit().unwrap();
    journal.append(&[&record(next)]).unwrap();
    journal.sync().unwrap();
    drop(journal);
    let (_, found) = count(&dir, small());
    assert_eq!(found, next + 1);
    say("went on after ", found);
}

fn size_of_files(dir: &Path) -> u64 {
    let files = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    let journals = files.filter(|entry| entry.file_name() != "journal.lock");
    journals.map(|entry| entry.metadata().unwrap().len()).sum()
}

fn output_of(test: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let output = start(test, dir.path()).wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}");
    text
}

fn limit_file_size(bytes: libc::rlim_t) {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: `limit` is a valid rlimit for the duration of the call, and SIG_IGN is a valid
    // disposition; neither call touches other memory of this process.
    let outcome = unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        libc::setrlimit(libc::RLIMIT_FSIZE, &limit)
    };
    assert_eq!(outcome, 0);
}

#[trial]
fn child_has_a_file_size_limit() {
    let Some(dir) = std::env::var_os(DIR) else { return };
    limit_file_size(100_001);
    run_out_of_room(Path::new(&dir), || limit_file_size(libc::RLIM_INFINITY));
}

#[trial]
fn a_file_size_limit_loses_nothing() {
    let text = output_of("child_has_a_file_size_limit");
    assert!(text.contains("went on after "), "{text}");
}

/// Mounts a file system of 1 MiB for this process alone; `false` if that is not allowed here.
fn mount_small(dir: &Path) -> bool {
    let c = |text: &str| std::ffi::CString::new(text).unwrap();
    let (root, tmpfs, size) = (c("/"), c("tmpfs"), c("size=1m"));
    let at = c(dir.to_str().unwrap());
    let nothing = std::ptr::null();
    // SAFETY: all pointers are null where the calls allow it, or point to strings that end with a
    // null byte and outlive the calls. The new mount namespace, private from its root, keeps the
    // mounts out of every other process's sight; they end with this process.
    unsafe {
        libc::unshare(libc::CLONE_NEWNS) == 0
            && libc::mount(
                nothing,
                root.as_ptr(),
                nothing,
                libc::MS_REC | libc::MS_PRIVATE,
                nothing.cast(),
            ) == 0
            && libc::mount(tmpfs.as_ptr(), at.as_ptr(), tmpfs.as_ptr(), 0, size.as_ptr().cast())
                == 0
    }
}

#[trial]
fn child_has_a_small_disk() {
    let Some(dir) = std::env::var_os(DIR) else { return };
    let dir = Path::new(&dir);
    if !mount_small(dir) {
        say("not allowed to mount ", 0);
        return;
    }
    let ballast = dir.join("ballast");
    fs::write(&ballast, vec![0; 400_000]).unwrap();
    run_out_of_room(dir, || fs::remove_file(&ballast).unwrap());
}

#[trial]
fn a_full_disk_loses_nothing() {
    let text = output_of("child_has_a_small_disk");
    if text.contains("not allowed to mount") {
        skip("this process may not mount a small file system");
    }
    assert!(text.contains("went on after "), "{text}");
}

fn main() -> std::process::ExitCode {
    falkon_trials::main()
}
