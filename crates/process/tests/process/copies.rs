//! Copies of templates: tasks like any other, whatever becomes of the template.

use falkon_trials::trial;
use std::fs;
use std::time::Duration;

use falkon_process::{Launch, Outcome, Source, Stage};

use super::rig::{Mark, Rig, command, host_of, send, shell, until};

/// A template whose copies execute what `RUN` names with the shell. The real one is in
/// `python/falkon/worker/template.py`.
const TEMPLATE: &str = r#"
import array, ctypes, os, socket, struct, sys, time
libc, host, orders = ctypes.CDLL(None), os.getppid(), socket.socket(fileno=os.dup(0))
while True:
    data, ancillary, _, _ = orders.recvmsg(1 << 16, 1 << 10)
    if not data:
        sys.exit()
    fds = array.array("i", ancillary[0][2])
    settings = dict(one.split(b"=", 1) for one in data.split(b"\0")[:-1])
    if b"RUN" not in settings:
        sys.exit(3)
    between = os.fork()
    if not between:
        between = os.getpid()
        if os.fork():
            os._exit(0)
        while os.getppid() == between:
            time.sleep(0.0001)
        libc.prctl(1, 9)
        os.setpgid(0, 0)
        os.dup2(fds[0], 1)
        os.dup2(fds[1], 2)
        os.write(fds[2], struct.pack("=i", os.getpid()))
        os.execve("/bin/sh", ["sh", "-c", settings[b"RUN"]], {**os.environb, **settings})
    os.waitpid(between, 0)
    for fd in fds:
        os.close(fd)
"#;

fn template(key: u64) -> Launch {
    Launch { key, source: Source::Template, ..command(["python3", "-c", TEMPLATE]) }
}

/// A copy of template 0 that runs a script.
fn copy(key: u64, script: &str) -> Launch {
    let env = vec![(b"RUN".to_vec(), script.as_bytes().to_vec())];
    Launch { key, env, source: Source::Copy { of: 0 }, ..command(["copy"]) }
}

#[trial]
fn a_copy_is_a_task_like_any_other() {
    let mut rig = Rig::new();
    rig.launch(&[template(0)]);
    let scripts = ["echo out; echo err >&2; exit 7", "kill -9 $$", "true"];
    let batch: Vec<_> = (1..=60).map(|key| copy(key, scripts[key as usize % 3])).collect();
    for (key, ended) in rig.run(&batch) {
        let outcomes = [Outcome::Exit(7), Outcome::Signal(libc::SIGKILL), Outcome::Exit(0)];
        assert_eq!(ended.outcome, outcomes[key as usize % 3], "copy {key}");
        if key % 3 == 0 {
            assert_eq!((ended.stdout.head, ended.stderr.head), (b"out\n".into(), b"err\n".into()));
        }
    }
    // A copy comes after another task, in its place.
    let after = Launch { after: Some(61), ..copy(62, "exit 3") };
    let mut all = rig.run(&[copy(61, "exit 2"), after]);
    assert_eq!(all.remove(&62).unwrap().outcome, Outcome::Exit(3));
}

#[trial]
fn a_copy_and_what_it_leaves_end_together() {
    let mut rig = Rig::new();
    let mark = Mark::new();
    let tree = "trap '' TERM; sleep 1000 & setsid sh -c '(sleep 1000 & exec sleep 1000) & wait' & wait; wait";
    rig.launch(&[template(0), mark.on(copy(1, tree)), mark.on(copy(2, tree))]);
    mark.wait_for(10);
    rig.kill(1, Duration::from_millis(20));
    assert_eq!(rig.recv().unwrap()[0].outcome, Outcome::Signal(libc::SIGKILL));
    mark.wait_for(5);
    rig.kill(2, Duration::ZERO);
    assert_eq!(rig.recv().unwrap()[0].key, 2);
    mark.wait_gone();
}

#[trial]
fn copies_go_on_without_their_template() {
    let mut rig = Rig::new();
    let mark = Mark::new();
    rig.launch(&[template(0), mark.on(copy(1, "exec sleep 1000"))]);
    mark.wait_for(1);
    rig.kill(0, Duration::ZERO);
    assert_eq!(rig.recv().unwrap()[0].outcome, Outcome::Signal(libc::SIGKILL));
    let not_copied = Outcome::NotStarted { stage: Stage::Copy, errno: libc::ESRCH };
    assert_eq!(rig.outcome(copy(2, "true")), not_copied);
    assert_eq!(mark.processes().len(), 1);
    rig.kill(1, Duration::ZERO);
    assert_eq!(rig.recv().unwrap()[0].outcome, Outcome::Signal(libc::SIGKILL));
    mark.wait_gone();
}

#[trial]
fn a_template_that_refuses_ends_or_hangs_starts_nothing() {
    let not_copied = |errno| Outcome::NotStarted { stage: Stage::Copy, errno };
    let mut rig = Rig::new();
    assert_eq!(rig.outcome(copy(1, "true")), not_copied(libc::ESRCH), "there is none");
    let refused = Launch { env: Vec::new(), ..copy(1, "") };
    let all = rig.run(&[template(0), refused]);
    assert_eq!(all[&1].outcome, not_copied(libc::EPIPE));
    assert_eq!(all[&0].outcome, Outcome::Exit(3));
    let gone = Launch { source: Source::Template, ..shell("exit 9") };
    let all = rig.run(&[gone, copy(1, "true")]);
    assert!(matches!(all[&1].outcome, Outcome::NotStarted { stage: Stage::Copy, .. }));
    let silent = Launch { source: Source::Template, ..shell("exec sleep 1000") };
    rig.launch(&[silent, copy(1, "true")]);
    rig.kill(1, Duration::ZERO);
    assert_eq!(rig.recv().unwrap()[0].outcome, not_copied(libc::ECANCELED));
}

#[trial]
fn a_killed_host_leaves_no_copy() {
    let mut rig = Rig::new();
    let mark = Mark::new();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("started");
    let script = format!("echo > {}; setsid sleep 1000 & sleep 1000", file.display());
    rig.launch(&[mark.on(template(0)), mark.on(copy(1, &script))]);
    until("the copy runs", || fs::metadata(&file).is_ok());
    send(host_of(std::process::id()), libc::SIGKILL);
    assert_eq!(rig.recv().unwrap_err().keys, [0, 1]);
    assert_eq!(mark.processes(), [] as [i32; 0]);
}
