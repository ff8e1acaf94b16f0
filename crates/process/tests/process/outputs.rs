//! What tasks read and write.

use falkon_trials::trial;
use std::fs;
use std::os::unix::fs::symlink;

use falkon_process::{Captured, Launch, Outcome, Tail, Tailed};

use super::rig::{Mark, Rig, bytes, command, host_of, shell};

#[trial]
fn both_streams_come_back_byte_for_byte() {
    let mut rig = Rig::new();
    let ended = rig.run_one(shell(r"printf 'a\0b\377'; printf 'c\n' >&2; printf d"));
    assert_eq!(ended.outcome, Outcome::Exit(0));
    assert_eq!(ended.stdout.head, b"a\0b\xffd");
    assert_eq!(ended.stderr.head, b"c\n");
    // A slot that is used again starts from nothing.
    let silent = rig.run_one(command(["true"]));
    assert_eq!((silent.stdout, silent.stderr), Default::default());
    let failed = rig.run_one(command(["/no/such/program"]));
    assert_eq!((failed.stdout, failed.stderr), Default::default());
}

/// What a task has written so far.
fn tail(rig: &mut Rig, tail: Tail) -> Tailed {
    rig.runtime.block_on(rig.sender.tail(tail));
    loop {
        assert_eq!(rig.recv().unwrap(), [], "no task ends");
        if let Some(tailed) = rig.receiver.take_tailed().pop() {
            return tailed;
        }
    }
}

#[trial]
fn a_running_task_shows_what_it_has_written() {
    let mut rig = Rig::new();
    let dir = tempfile::tempdir().unwrap();
    let (gate, spill) = (dir.path().join("gate"), dir.path().join("out"));
    let script = format!(
        "printf abcdef; printf E >&2; until [ -e {0}1 ]; do sleep 0.01; done; printf ghi; until [ \
         -e {0}2 ]; do sleep 0.01; done",
        gate.display()
    );
    let mark = Mark::new();
    let first = Launch { key: 1, spill: Some(bytes(&spill)), ..shell(&script) };
    let behind = Launch { key: 2, after: Some(1), ..shell("exec sleep 1000") };
    rig.launch(&[Launch { capture_bytes_max: 6, ..first }, mark.on(behind)]);
    let about = |request, from| Tail { key: 1, request, is_error: false, from };
    let mut request = 10;
    let mut ask = |rig: &mut Rig, from, total| loop {
        request += 1;
        let tailed = tail(rig, about(request, from));
        assert_eq!(tailed.request, request);
        if tailed.total_bytes == total {
            return tailed;
        }
    };
    let tailed = ask(&mut rig, 2, 6);
    assert_eq!((tailed.bytes, tailed.spill, tailed.is_cut), (b"cdef".to_vec(), None, false));
    let error = tail(&mut rig, Tail { is_error: true, ..about(1, 0) });
    assert_eq!(error.bytes, b"E");
    fs::write(gate.with_file_name("gate1"), "").unwrap();
    // What is over the bound is in the file, with all that was before.
    let tailed = ask(&mut rig, 6, 9);
    let file = dir.path().join("out.stdout");
    assert_eq!((tailed.bytes, tailed.spill), (Vec::new(), Some(bytes(&file))));
    assert_eq!(fs::read(&file).unwrap(), b"abcdefghi");
    // A task that waits is answered for when it runs; one that is not there never is.
    rig.runtime.block_on(rig.sender.tail(Tail { key: 2, ..about(2, 0) }));
    rig.runtime.block_on(rig.sender.tail(Tail { key: 3, ..about(3, 0) }));
    fs::write(gate.with_file_name("gate2"), "").unwrap();
    let mut answers = Vec::new();
    let mut ended = Vec::new();
    while answers.is_empty() || ended.is_empty() {
        ended.extend(rig.recv().unwrap());
        answers.extend(rig.receiver.take_tailed());
    }
    assert_eq!((ended[0].key, answers[0].request, answers.len()), (1, 2, 1));
    rig.kill(2, std::time::Duration::ZERO);
    assert_eq!(rig.recv().unwrap()[0].key, 2);
}

#[trial]
fn standard_input_is_a_file_or_empty() {
    let mut rig = Rig::new();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("in");
    fs::write(&file, "hello").unwrap();
    assert_eq!(rig.stdout(command(["cat"])), "");
    assert_eq!(rig.stdout(Launch { stdin: Some(bytes(&file)), ..command(["cat"]) }), "hello");
    let cwd = Some(bytes(dir.path()));
    let relative = Launch { stdin: Some(b"in".to_vec()), cwd, ..command(["cat"]) };
    assert_eq!(rig.stdout(relative), "hello");
    // Nobody will ever write to this one.
    let made = rig.stdout(command(["mkfifo", dir.path().join("fifo").to_str().unwrap()]));
    assert_eq!(made, "");
    let fifo = Some(bytes(&dir.path().join("fifo")));
    assert_eq!(rig.stdout(Launch { stdin: fifo, ..command(["cat"]) }), "");
}

fn count_to(last: u64) -> (Launch, Vec<u8>) {
    let text = (1..=last).map(|number| format!("{number}\n")).collect::<String>();
    (command(["seq", &last.to_string()]), text.into_bytes())
}

#[trial]
fn a_long_stream_is_cut_and_counted() {
    let mut rig = Rig::new();
    let (launch, text) = count_to(50_000);
    for bound in [0, 1, 1000, text.len() - 1, text.len(), text.len() + 1] {
        let ended = rig.run_one(Launch { capture_bytes_max: bound as u64, ..launch.clone() });
        let head = text[..bound.min(text.len())].to_vec();
        let total_bytes = text.len() as u64;
        assert_eq!(ended.stdout, Captured { head, total_bytes, spill: None, spill_error: None });
    }
}

#[trial]
fn a_long_stream_goes_to_a_file_in_full() {
    let mut rig = Rig::new();
    let dir = tempfile::tempdir().unwrap();
    let spill = dir.path().join("task");
    let (launch, text) = count_to(50_000);
    let launch = Launch { spill: Some(bytes(&spill)), ..launch };
    for (bound, spills) in [(0, true), (1000, true), (text.len() - 1, true), (text.len(), false)] {
        let ended = rig.run_one(Launch { capture_bytes_max: bound as u64, ..launch.clone() });
        let file = spill.with_extension("stdout");
        assert_eq!(ended.stdout.head, text[..bound]);
        assert_eq!(ended.stdout.spill, spills.then(|| bytes(&file)));
        assert_eq!(ended.stdout.spill_error, None);
        assert_eq!(ended.stderr, Captured::default());
        if spills {
            assert_eq!(fs::read(&file).unwrap(), text);
            fs::remove_file(file).unwrap();
        }
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "no file where none is needed");
}

#[trial]
fn a_spill_that_fails_is_reported_and_holds_nobody_up() {
    let mut rig = Rig::new();
    let dir = tempfile::tempdir().unwrap();
    let (launch, text) = count_to(100_000);
    let missing = dir.path().join("missing/task");
    let full = dir.path().join("full");
    symlink("/dev/full", full.with_extension("stdout")).unwrap();
    for (place, errno, made) in [(missing, libc::ENOENT, false), (full, libc::ENOSPC, true)] {
        let spill = Some(bytes(&place));
        let ended = rig.run_one(Launch { spill, capture_bytes_max: 100, ..launch.clone() });
        assert_eq!(ended.outcome, Outcome::Exit(0));
        let expected = Captured {
            head: text[..100].to_vec(),
            total_bytes: text.len() as u64,
            spill: made.then(|| bytes(&place.with_extension("stdout"))),
            spill_error: Some(errno),
        };
        assert_eq!(ended.stdout, expected);
    }
}

#[trial]
fn two_hundred_megabytes_take_little_memory() {
    const BYTES: u64 = 200_000_000;
    let mut rig = Rig::new();
    let ended = rig.run_one(shell(&format!("head -c {BYTES} /dev/zero")));
    assert_eq!(ended.outcome, Outcome::Exit(0));
    assert_eq!(ended.stdout.total_bytes, BYTES);
    assert_eq!(ended.stdout.head, vec![0; 65_536]);
    let host = host_of(std::process::id());
    let status = fs::read_to_string(format!("/proc/{host}/status")).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let kilobytes: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(kilobytes < 50_000, "the host took {kilobytes} kB");
}

#[trial]
fn a_child_that_holds_the_pipe_does_not_delay_the_end() {
    let mut rig = Rig::new();
    let mark = Mark::new();
    let ended = rig.run_one(mark.on(shell("echo before; sleep 1000 & exit 3")));
    assert_eq!(ended.outcome, Outcome::Exit(3));
    assert_eq!(ended.stdout.head, b"before\n");
    mark.wait_gone();
    // One that writes without end does not either.
    let ended = rig.run_one(mark.on(shell("yes & exit 4")));
    assert_eq!(ended.outcome, Outcome::Exit(4));
    mark.wait_gone();
}

#[trial]
fn what_was_used_is_reported() {
    let mut rig = Rig::new();
    let busy = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";
    let usage = rig.run_one(shell(busy)).usage;
    assert!(usage.user_us + usage.system_us > 0);
    assert!(usage.rss_max_bytes > 100_000 && usage.rss_max_bytes < 1 << 30, "{usage:?}");
}
