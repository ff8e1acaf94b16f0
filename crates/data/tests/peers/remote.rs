//! Processes that executors start for each other.

use super::{LEVELS, Rig, pattern, run};
use falkon_core::gang::{GangKey, GangToken, NodeUsed, RankUsage};
use falkon_core::result::{ResourceUsage, Tries};
use falkon_core::task::{InstanceId, TaskId};
use falkon_data::peer::remote::{
    AskError, FrameReader, FrameWriter, RemoteEnd, RemoteEnded, RemoteStart, Standard, Started,
    Told, attend, forward, unix_halves,
};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot};

const TOKEN: GangToken = GangToken([3; 16]);

fn key() -> GangKey {
    GangKey { instance: InstanceId(1), task: TaskId(2), tries: Tries::default() }
}

/// The usage that each process hands over: more than one frame has.
fn handed_over() -> Vec<NodeUsed> {
    let used = |index| {
        let user_micros = u64::from(index) + 1;
        let used = Some(ResourceUsage { user_micros, ..ResourceUsage::default() });
        let used_by_rank = ResourceUsage { read_bytes: 7, ..ResourceUsage::default() };
        let ranks = (0..index % 3).map(|rank| RankUsage { rank, used: used_by_rank }).collect();
        NodeUsed { index, used, is_missing: index % 2 == 0, ranks }
    };
    (0..1_000).map(used).collect()
}

/// Ends a process when it is not wanted any more.
struct Hold(Pid);

impl Drop for Hold {
    fn drop(&mut self) {
        let _ = kill_process_group(self.0, Signal::KILL);
    }
}

/// Starts a process as an executor does.
pub(super) fn start(start: &RemoteStart) -> Result<Started, String> {
    assert_eq!(start.key, key());
    if !start.is_proved(&TOKEN) {
        return Err("no token".to_owned());
    }
    let command = String::from_utf8(start.command.clone()).unwrap();
    let mut sh = Command::new("sh");
    let piped = Stdio::piped;
    sh.args(["-c", &command]).stdin(piped()).stdout(piped()).stderr(piped()).process_group(0);
    let mut child = sh.spawn().unwrap();
    let pipes = [
        child.stdin.take().unwrap().into(),
        child.stdout.take().unwrap().into(),
        child.stderr.take().unwrap().into(),
    ];
    let pid = Pid::from_child(&child);
    let (end, ended) = oneshot::channel();
    std::thread::spawn(move || {
        let status = child.wait().unwrap();
        let end_of = match (status.code(), status.signal()) {
            (Some(code), _) => RemoteEnd::Exit(code as u8),
            (None, signal) => RemoteEnd::Signal(signal.unwrap() as u8),
        };
        // Who asked may be gone.
        let _ = end.send(RemoteEnded { end: Ok(end_of), used: handed_over() });
    });
    let signal = move |number: u8| {
        let _ = kill_process(pid, Signal::from_named_raw(number.into()).unwrap());
    };
    Ok(Started { pipes, ended, signal: Box::new(signal), hold: Box::new(Hold(pid)) })
}

fn command(text: &str) -> RemoteStart {
    RemoteStart::new(key(), &TOKEN, b"/".to_vec(), text.as_bytes().to_vec()).unwrap()
}

/// The streams of whoever asks, and their other ends.
struct Ends {
    stdin: DuplexStream,
    stdout: DuplexStream,
    stderr: DuplexStream,
    signals: mpsc::Sender<u8>,
}

type Asked = (Ends, tokio::task::JoinHandle<Result<RemoteEnd, AskError>>);

fn attended(reader: FrameReader, writer: FrameWriter) -> Asked {
    let [(stdin, far_in), (stdout, far_out), (stderr, far_err)] =
        [(), (), ()].map(|()| tokio::io::duplex(1 << 10));
    let (signals, signalled) = mpsc::channel(4);
    let standard = Standard { stdin: far_in, stdout: far_out, stderr: far_err };
    let asked = tokio::spawn(async move { attend(reader, writer, standard, signalled).await });
    (Ends { stdin, stdout, stderr, signals }, asked)
}

/// Asks another executor, as a member of the gang does: over a process's own executor.
async fn ask(rig: &Rig, start: &RemoteStart, is_forwarded: bool) -> Asked {
    let (reader, writer) = rig.fetcher().start_remote(&rig.peer(), start).await.unwrap();
    if !is_forwarded {
        return attended(reader, writer);
    }
    let (near, far) = UnixStream::pair().unwrap();
    tokio::spawn(async move {
        let (from_asker, mut to_asker) = unix_halves(far);
        // The other side finds out how it ended.
        let _ = forward((from_asker, &mut to_asker), (reader, writer), |_| {}).await;
    });
    let (reader, writer) = unix_halves(near);
    attended(reader, writer)
}

async fn text(mut stream: DuplexStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await.unwrap();
    bytes
}

/// At every level, with an executor in between and without.
fn everywhere(test: impl AsyncFn(&Rig, bool)) {
    for level in LEVELS {
        let rig = Rig::new(level);
        for is_forwarded in [false, true] {
            println!("{level}, {is_forwarded}");
            run(test(&rig, is_forwarded));
        }
    }
}

#[test]
fn streams_arrive_whole_in_both_directions_and_so_does_the_status() {
    everywhere(async |rig, is_forwarded| {
        let script = "tee /dev/stderr; echo end; exit 7";
        let (ends, asked) = ask(rig, &command(script), is_forwarded).await;
        let Ends { mut stdin, stdout, stderr, .. } = ends;
        let input = pattern(1_500_000);
        let feed = async {
            stdin.write_all(&input).await.unwrap();
            drop(stdin);
        };
        let ((), out, err) = tokio::join!(feed, text(stdout), text(stderr));
        assert!(err == input);
        assert!(out == [&input[..], b"end\n"].concat());
        assert_eq!(asked.await.unwrap().unwrap(), RemoteEnd::Exit(7));
    });
}

#[test]
fn a_stream_that_nobody_reads_holds_up_no_other_and_no_signal() {
    everywhere(async |rig, is_forwarded| {
        let script = "trap 'echo got >&2; exit 3' USR1; (yes & ) ; echo up >&2; \
                      while :; do sleep 0.01; done";
        let (mut ends, asked) = ask(rig, &command(script), is_forwarded).await;
        let mut up = [0; 3];
        ends.stderr.read_exact(&mut up).await.unwrap();
        ends.signals.send(Signal::USR1.as_raw() as u8).await.unwrap();
        let mut got = [0; 4];
        ends.stderr.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"got\n");
        // What was written before is still passed on, as `yes` goes on it never ends.
        drop(ends.stdout);
        assert!(matches!(asked.await.unwrap(), Err(AskError::Write(_))));
    });
}

#[test]
fn a_process_ends_when_whoever_asked_for_it_is_gone() {
    everywhere(async |rig, is_forwarded| {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().display();
        let script = format!("exec 9>>{path}; flock 9; echo up; exec sleep 1000");
        let (mut ends, asked) = ask(rig, &command(&script), is_forwarded).await;
        ends.stdout.read_exact(&mut [0; 3]).await.unwrap();
        asked.abort();
        drop(ends);
        // The lock is free when it has ended.
        let path = file.path().to_owned();
        let wait = move || {
            Command::new("flock").args(["--timeout", "60"]).arg(path).arg("true").status().unwrap()
        };
        assert!(tokio::task::spawn_blocking(wait).await.unwrap().success());
    });
}

#[test]
fn a_signal_that_ends_a_process_is_known_and_what_it_left_keeps_nobody_waiting() {
    everywhere(async |rig, is_forwarded| {
        // Something else holds its streams open.
        let script = "setsid sleep 1000 & echo $!; kill -9 $$";
        let (ends, asked) = ask(rig, &command(script), is_forwarded).await;
        let (out, _) = tokio::join!(text(ends.stdout), text(ends.stderr));
        assert_eq!(asked.await.unwrap().unwrap(), RemoteEnd::Signal(9));
        let left = String::from_utf8(out).unwrap().trim().parse().unwrap();
        kill_process(Pid::from_raw(left).unwrap(), Signal::KILL).unwrap();
    });
}

#[test]
fn who_does_not_know_the_token_is_refused() {
    everywhere(async |rig, is_forwarded| {
        let start =
            RemoteStart::new(key(), &GangToken([4; 16]), Vec::new(), b"true".to_vec()).unwrap();
        let (_ends, asked) = ask(rig, &start, is_forwarded).await;
        let refused = asked.await.unwrap();
        assert!(matches!(&refused, Err(AskError::Refused(why)) if why == "no token"));
    });
}

#[test]
fn an_executor_that_is_gone_is_noticed_and_what_was_written_is_passed_on() {
    for level in LEVELS {
        let mut rig = Rig::new(level);
        run(async {
            let script = command("head -c 100000 /dev/zero; sleep 1000");
            let (mut ends, asked) = ask(&rig, &script, false).await;
            ends.stdout.read_exact(&mut [0; 1000]).await.unwrap();
            rig.server = None;
            let out = tokio::time::timeout(Duration::from_secs(60), text(ends.stdout));
            assert!(out.await.unwrap().len() <= 99_000);
            assert!(matches!(asked.await.unwrap(), Err(AskError::Lost(_))), "{level}");
        });
    }
}

/// Starts a process through the asker's own executor, which receives its usage.
async fn ask_and_hear(
    rig: &Rig,
    script: &str,
) -> (Asked, tokio::task::JoinHandle<(Vec<Told>, bool)>) {
    let (reader, writer) = rig.fetcher().start_remote(&rig.peer(), &command(script)).await.unwrap();
    let (near, far) = UnixStream::pair().unwrap();
    let heard = tokio::spawn(async move {
        let (from_asker, mut to_asker) = unix_halves(far);
        let mut heard = Vec::new();
        let told = |told| heard.push(told);
        let result = forward((from_asker, &mut to_asker), (reader, writer), told).await;
        (heard, result.is_ok())
    });
    let (reader, writer) = unix_halves(near);
    (attended(reader, writer), heard)
}

/// The starter says at first that it tells usage, and all of it before the last.
fn is_told(heard: &[Told]) {
    let [Told::Used(first), parts @ .., last] = heard else { panic!("{heard:?}") };
    assert_eq!((first.len(), last), (0, &Told::Exited));
    let all = parts.iter().flat_map(|part| match part {
        Told::Used(nodes) => nodes.clone(),
        other => panic!("{other:?}"),
    });
    assert_eq!(all.collect::<Vec<_>>(), handed_over());
}

#[test]
fn usage_is_handed_over_when_a_process_ends_and_when_nobody_wants_it_any_more() {
    for level in LEVELS {
        let rig = Rig::new(level);
        run(async {
            let ((ends, asked), heard) = ask_and_hear(&rig, "exit 3").await;
            assert_eq!(asked.await.unwrap().unwrap(), RemoteEnd::Exit(3));
            drop(ends);
            let (heard, is_well) = heard.await.unwrap();
            assert!(is_well);
            is_told(&heard);
            // Whoever asked is gone while it runs, and its output is not read.
            let script = "(yes &); echo up >&2; exec sleep 1000";
            let ((mut ends, asked), heard) = ask_and_hear(&rig, script).await;
            let mut up = [0; 3];
            ends.stderr.read_exact(&mut up).await.unwrap();
            asked.abort();
            let (heard, is_well) = heard.await.unwrap();
            assert!(!is_well);
            is_told(&heard);
        });
    }
}
