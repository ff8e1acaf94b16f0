//! Killing tasks, and what is left when something dies: nothing.

use falkon_trials::{skip, trial};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use falkon_process::{Ended, Host, HostLost, Launch, Outcome, Stage};

use super::rig::{Mark, Rig, bytes, command, host_of, send, shell, until};

/// With this, a mark and a script for tasks the test is an executor with four tasks.
pub(crate) const EXECUTOR_ARGUMENT: &str = "executor-to-be-killed";

/// Makes, as a task, four processes: itself, a child in its group, one in a session of its own,
/// and that one's child, whose parent has ended.
const TREE: &str = "sleep 1000 & setsid sh -c '(sleep 1000 & exec sleep 1000) & wait' & wait";
const TREE_PROCESSES: usize = 5;

pub(crate) fn executor(arguments: &[String]) -> ! {
    let mark = Mark::named(&arguments[0]);
    let task = mark.on(shell(&arguments[1]));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (mut sender, mut receiver) = Host::start().await.unwrap();
        let batch = [1, 2, 3, 4].map(|key| Launch { key, ..task.clone() });
        sender.launch(&batch).await.unwrap();
        println!("launched");
        let mut ended = Vec::new();
        receiver.recv(&mut ended).await.unwrap();
        panic!("a task ended: {ended:?}");
    })
}

fn start_executor(mark: &Mark, script: &str) -> Child {
    let mut child = Command::new("/proc/self/exe")
        .args([EXECUTOR_ARGUMENT, mark.name(), script])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "launched\n");
    child
}

fn wait_for_file(path: &Path) {
    until("the task is ready", || path.exists());
}

#[trial]
fn a_killed_task_gets_its_grace() {
    const LONG: Duration = Duration::from_secs(100_000);
    let mut rig = Rig::new();
    let dir = tempfile::tempdir().unwrap();
    let cases = [
        ("", LONG, Outcome::Signal(libc::SIGTERM)),
        ("", Duration::ZERO, Outcome::Signal(libc::SIGKILL)),
        ("trap 'exit 7' TERM;", LONG, Outcome::Exit(7)),
        ("trap '' TERM;", Duration::from_millis(20), Outcome::Signal(libc::SIGKILL)),
        ("trap '' TERM;", Duration::ZERO, Outcome::Signal(libc::SIGKILL)),
    ];
    for (at, (trap, grace, outcome)) in cases.into_iter().enumerate() {
        let (key, ready) = (at as u64, dir.path().join(at.to_string()));
        let script = format!("{trap} : > {}; while :; do sleep 0.01; done", ready.display());
        rig.launch(&[Launch { key, ..shell(&script) }]);
        wait_for_file(&ready);
        rig.kill(key, grace);
        let ended = rig.recv().unwrap();
        assert_eq!(ended.iter().map(|one| one.outcome).collect::<Vec<_>>(), [outcome], "{trap}");
    }
    // A second order may shorten the grace of the first.
    let ready = dir.path().join("last");
    let script = format!("trap '' TERM; : > {}; sleep 1000 & wait; wait", ready.display());
    rig.launch(&[shell(&script)]);
    wait_for_file(&ready);
    rig.kill(0, LONG);
    rig.kill(0, Duration::from_millis(1));
    assert_eq!(rig.recv().unwrap()[0].outcome, Outcome::Signal(libc::SIGKILL));
    // Killing what is not there does nothing; killing at once what was just launched is in order.
    rig.kill(12345, Duration::ZERO);
    for key in 0..50 {
        rig.launch(&[Launch { key, ..command(["sleep", "1000"]) }]);
        rig.kill(key, Duration::ZERO);
    }
    let mut all: Vec<Ended> = Vec::new();
    while all.len() < 50 {
        all.extend(rig.recv().unwrap());
    }
    let waiting = Outcome::NotStarted { stage: Stage::Waiting, errno: libc::ECANCELED };
    let killed = [Outcome::Signal(libc::SIGKILL), waiting];
    assert!(all.iter().all(|ended| killed.contains(&ended.outcome)), "{all:?}");
}

#[trial]
fn children_of_a_task_end_with_it() {
    let mut rig = Rig::new();
    let mark = Mark::new();
    rig.launch(&[mark.on(shell("sleep 1000 & sleep 1000 & wait"))]);
    mark.wait_for(3);
    rig.kill(0, Duration::ZERO);
    assert_eq!(rig.recv().unwrap()[0].outcome, Outcome::Signal(libc::SIGKILL));
    mark.wait_gone();
}

/// Runs a task that leaves one process behind, beside one that has such a process and goes on.
fn check_daemon(rig: &mut Rig, script: &str, file: &Path) {
    let alive = |path: &Path| {
        let pid = fs::read_to_string(path).unwrap_or_default();
        pid.ends_with('\n')
            && fs::read_link(Path::new("/proc").join(pid.trim()).join("exe")).is_ok()
    };
    let kept = file.with_extension("kept");
    let with = |file: &Path, rest: &str| {
        let mut launch = shell(&format!("{script}; until test -s \"$F\"; do :; done; {rest}"));
        launch.env.push((b"F".to_vec(), bytes(file)));
        launch
    };
    rig.launch(&[Launch { key: 1, ..with(&kept, "sleep 1000 & wait") }]);
    until("the other task's daemon runs", || alive(&kept));
    let ended = rig.run_one(Launch { key: 2, ..with(file, "exit 5") });
    assert_eq!(ended.outcome, Outcome::Exit(5));
    until("the daemon is gone", || !alive(file));
    assert!(alive(&kept), "a running task's own daemon is left alone");
    rig.kill(1, Duration::ZERO);
    assert_eq!(rig.recv().unwrap()[0].key, 1);
    until("the other daemon is gone", || !alive(&kept));
}

#[trial]
fn a_daemon_of_a_task_is_found_and_killed() {
    let mut rig = Rig::new();
    let dir = tempfile::tempdir().unwrap();
    let script = "(setsid sh -c 'echo $$ > $F; exec sleep 1000' &)";
    check_daemon(&mut rig, script, &dir.path().join("daemon"));
}

#[trial]
fn a_daemon_without_the_variable_is_found_and_killed() {
    let mut rig = Rig::new();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("daemon");
    // It cannot be told which task it comes from, so it goes when all tasks that ran when it was
    // first seen have ended.
    let script = format!(
        "(env -i setsid sh -c 'echo $$ > {}; exec sleep 1000' &); until test -s {}; do :; done",
        file.display(),
        file.display()
    );
    assert_eq!(rig.outcome(shell(&script)), Outcome::Exit(0));
    let pid = fs::read_to_string(&file).unwrap();
    let process = Path::new("/proc").join(pid.trim());
    until("the daemon is gone", || fs::read_link(process.join("exe")).is_err());
}

#[trial]
fn what_cleans_up_outlives_its_task_and_the_host() {
    let mut rig = Rig::new();
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    assert!(Command::new("mkfifo").arg(path("ready")).status().unwrap().success());
    // The task waits until the cleaner and a daemon are in their own sessions.
    let script = "(FALKON_CLEANER_KEY=$FALKON_TASK_KEY; export FALKON_CLEANER_KEY; \
                   unset FALKON_TASK_KEY; \
                   exec setsid sh -c 'echo >ready; until test -e go; do sleep 0.01; done; : >done') & \
                  cat ready; (setsid sh -c 'echo $$ >daemon; exec sleep 1000' &); \
                  until test -s daemon; do :; done";
    let launch = Launch { cwd: Some(bytes(dir.path())), ..shell(script) };
    assert_eq!(rig.outcome(launch), Outcome::Exit(0));
    let daemon = fs::read_to_string(path("daemon")).unwrap();
    let process = Path::new("/proc").join(daemon.trim());
    until("the daemon is gone", || fs::read_link(process.join("exe")).is_err());
    drop(rig);
    fs::write(path("go"), "").unwrap();
    until("the cleaner has done its work", || path("done").exists());
}

#[trial]
fn dropping_the_host_kills_everything() {
    for drop_receiver in [false, true] {
        let mut rig = Rig::new();
        let mark = Mark::new();
        rig.launch(&[1, 2].map(|key| Launch { key, ..mark.on(shell(TREE)) }));
        mark.wait_for(2 * TREE_PROCESSES);
        let Rig { runtime, sender, mut receiver } = rig;
        if drop_receiver {
            drop(receiver);
            assert_eq!(mark.processes(), [] as [i32; 0]);
            continue;
        }
        drop(sender);
        assert_eq!(mark.processes(), [] as [i32; 0]);
        let lost = runtime.block_on(receiver.recv(&mut Vec::new()));
        assert_eq!(lost, Err(HostLost { keys: vec![1, 2] }));
    }
}

#[trial]
fn a_killed_executor_leaves_nothing() {
    let mark = Mark::new();
    let mut executor = start_executor(&mark, TREE);
    mark.wait_for(4 * TREE_PROCESSES);
    executor.kill().unwrap();
    executor.wait().unwrap();
    mark.wait_gone();
}

#[trial]
fn a_killed_host_leaves_nothing_and_is_reported() {
    let mut rig = Rig::new();
    let mark = Mark::new();
    rig.launch(&[3, 1, 2].map(|key| Launch { key, ..mark.on(shell(TREE)) }));
    mark.wait_for(3 * TREE_PROCESSES);
    // A child that is not the host's must not be touched.
    let mut other = Command::new("sleep").arg("1000").spawn().unwrap();
    send(host_of(std::process::id()), libc::SIGKILL);
    assert_eq!(rig.recv(), Err(HostLost { keys: vec![1, 2, 3] }));
    assert_eq!(mark.processes(), [] as [i32; 0]);
    assert_eq!(other.try_wait().unwrap(), None);
    other.kill().unwrap();
    other.wait().unwrap();
    // Launching to a lost host loses the task, in the same way.
    rig.launch(&[command(["true"])]);
    assert_eq!(rig.recv(), Err(HostLost { keys: vec![0] }));
    assert_eq!(Rig::new().outcome(command(["true"])), Outcome::Exit(0));
}

/// In a container whose first process leads no session, sessions and groups from outside have the
/// number 0.
#[trial]
fn a_killed_host_leaves_nothing_in_a_container_either() {
    let container = ["--user", "--map-root-user", "--pid", "--fork", "--mount-proc"];
    let allowed = Command::new("unshare").args(container).arg("true").output();
    if !allowed.is_ok_and(|done| done.status.success()) {
        skip("this machine allows no new name spaces");
    }
    let this = std::env::current_exe().unwrap();
    let mut command = Command::new("unshare");
    command.args(container).arg(this).arg("a_killed_host_leaves_nothing_and_is_reported");
    let done = command.output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

#[trial]
fn executor_and_host_killed_together_leave_no_task() {
    let mark = Mark::new();
    let mut executor = start_executor(&mark, "exec sleep 1000");
    mark.wait_for(4);
    // An executor that stands still when its host is killed cannot help, as one that is killed
    // at the same time.
    send(executor.id() as i32, libc::SIGSTOP);
    send(host_of(executor.id()), libc::SIGKILL);
    mark.wait_gone();
    executor.kill().unwrap();
    executor.wait().unwrap();
}
