//! Runs that are interrupted: nothing of a task is left.

use crate::fixture::{Random, Running, Signals, Site};
use falkon_trials::trial;
use rustix::process::Signal;

/// A task in all the ways in which one can leave something behind: children,
/// a daemon in a session of its own, one that hides its environment.
fn clinging(started: &Signals) -> String {
    format!(
        "sleep 1000 & setsid sleep 1000 & \
         setsid sh -c 'sleep 1000 & sleep 1000; :' & \
         setsid sh -c 'trap \"\" TERM INT HUP; sleep 1000; sleep 1000' & \
         echo on > {}; sleep 1000; :",
        started.path()
    )
}

#[trial]
fn ctrl_c_ends_what_runs_and_reports() {
    for signal in [Signal::INT, Signal::TERM] {
        let site = Site::new();
        let mut started = site.signals("started");
        let script = format!("test {{}} -le 2 && exit 0; {}", clinging(&started));
        let args = ["run", "--json", "-j", "3", "--range", "1-9", "--", "sh", "-c", &script];
        let running = site.start(args);
        started.take(3);
        running.signal(signal);
        let ran = running.finish().exits(1).says("stopping").says("2 done, 7 cancelled");
        site.left().wait_for_none();
        for (at, result) in ran.results().iter().enumerate() {
            assert_eq!(result["status"], if at < 2 { "done" } else { "cancelled" }, "{ran}");
        }
    }
}

#[trial]
fn tasks_have_time_to_clean_up_and_a_second_ctrl_c_gives_them_none() {
    let site = Site::new();
    let mut started = site.signals("started");
    let gate = site.gate("gate");
    let clean = format!(
        "trap 'echo cleaned > {0}; exit 1' TERM; echo on > {0}; read line < {1}",
        started.path(),
        gate.path()
    );
    let running = site.start(["run", "--", "sh", "-c", &clean]);
    started.next();
    running.signal(Signal::INT);
    assert_eq!(started.next(), "cleaned");
    running.finish().exits(1);

    let stubborn = format!("trap '' TERM; echo on > {}; sleep 1000; sleep 1000", started.path());
    let running = site.start(["run", "--range", "1-5", "-j", "2", "--", "sh", "-c", &stubborn]);
    started.take(2);
    running.signal(Signal::INT);
    running.wait_for("stopping");
    running.signal(Signal::INT);
    running.finish().exits(1).says("0 done").says("unfinished");
    site.left().wait_for_none();
}

/// Starts a run, kills it with -9 once tasks run, and waits until nothing of
/// it is left.
#[trial]
fn a_killed_run_leaves_nothing_behind() {
    let mut random = Random::seeded("a_killed_run_leaves_nothing_behind");
    for round in 0..6 {
        let site = Site::new();
        let mut started = site.signals("started");
        let script = clinging(&started);
        let args = ["run", "-j", "4", "--range", "1-100", "--", "sh", "-c", &script];
        let running = site.start(args);
        if round % 2 == 0 {
            started.take(4);
        } else {
            random.moment(100_000);
        }
        running.signal(Signal::KILL);
        assert!(running.finish().was_killed());
        site.left().wait_for_none();
    }
}

#[trial]
fn a_killed_process_host_costs_its_tasks_and_nothing_else() {
    let site = Site::new();
    let mut started = site.signals("started");
    let script = format!(
        "test $FALKON_ATTEMPT = 1 || exit 0; setsid sleep 1000 & echo $PPID > {}; sleep 1000; :",
        started.path()
    );
    let args = ["run", "--json", "--retries", "1", "-j", "2", "--range", "1-4", "--", "sh", "-c"];
    let running = site.start(args.iter().chain(&[script.as_str()]));
    kill(&started.take(2)[0]);
    // The two that had not started yet run in the next host; it dies as well.
    kill(&started.take(2)[0]);
    let results = running.finish().exits(0).results();
    assert!(results.iter().all(|one| one["attempts"] == 2), "{results:?}");
    site.left().wait_for_none();
}

fn kill(pid: &str) {
    let pid = rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
}

#[trial]
fn nobody_reading_ends_a_run_early_and_quietly() {
    let site = Site::new();
    let falkon = env!("CARGO_BIN_EXE_falkon");
    let pipe = |script: &str| {
        let mut command = site.program("sh");
        command.args(["-c", script, "sh", falkon]);
        Running::start(command).finish().exits(0)
    };
    let status = "echo \"status $?\" >&2";
    // The reader of results goes: what is left is not run.
    let ran =
        pipe(&format!("{{ \"$1\" run -j 2 --range 1-100000 -- echo; {status}; }} | head -n 1"));
    assert_eq!(ran.lines().len(), 1);
    let ran = ran.says("status 1").says("nobody reads").says("cancelled");
    assert!(!ran.err.contains("panic"), "{ran}");
    let ran =
        pipe(&format!("{{ \"$1\" run --json --range 1-100000 -- @noop; {status}; }} | head -n 1"));
    ran.says("status 1").says("nobody reads");
    // The reader of standard error goes: no reason to stop.
    let ran = pipe(
        "{ \"$1\" run --range 1-20 -- sh -c 'echo x; exit 1' 2>&1 >out; echo $? > status; } | :",
    );
    assert_eq!(site.read("out").lines().count(), 20, "{ran}");
    assert_eq!(site.read("status"), "1\n");
    for command in ["completions bash", "run --dry-run --range 1-100000 -- true", "--help"] {
        let ran = pipe(&format!("{{ \"$1\" {command}; {status}; }} | head -n 1"));
        ran.says("status 0");
    }
    // Closed from the start.
    pipe("\"$1\" run -- echo x >&- 2>&- <&-");
    site.left().wait_for_none();
}

#[trial]
fn a_dispatcher_outlives_the_terminal_that_it_was_started_from() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    // Once it answers, it has been through all of its start.
    access.run("status", &[]).exits(0);
    dispatcher.service().signal(Signal::HUP);
    let _executor = dispatcher.executor("worker", &[]);
    access.run("submit", &["--wait", "--", "true"]).exits(0);
}
