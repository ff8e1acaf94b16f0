//! How often tasks were tried is known when dispatchers are killed in between:
//! to the tasks themselves, to their results and to the bounds on it.

use crate::fixture::{Dispatcher, Running, Signals, Site};
use falkon_core::limits::LOSSES_MAX;
use falkon_trials::trial;
use serde_json::json;

/// The next two lines, whichever comes first.
#[track_caller]
fn both(started: &mut Signals, expected: [&str; 2]) {
    assert_eq!(started.take(2), expected);
}

#[trial]
fn a_task_that_takes_executor_and_dispatcher_down_does_not_go_round_for_ever() {
    let site = Site::new();
    let mut started = site.signals("started");
    let mut gate = site.gate("gate");
    let mut dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let script = format!(
        "test {{}} = 0 || exit 0; echo $FALKON_ATTEMPT > {}; read line < {}; \
         kill -9 $(cat pids); sleep 1000",
        started.path(),
        gate.path()
    );
    let id = access.submit(&["--range", "0-3", "--", "sh", "-c", &script]);
    for attempt in 1..=LOSSES_MAX + 1 {
        let executor = dispatcher.executor(&format!("node{attempt}"), &["--slots", "1"]);
        assert_eq!(started.next(), attempt.to_string());
        site.write("pids", format!("{} {}", dispatcher.service().pid(), executor.pid()));
        gate.let_through(1);
        let killed = dispatcher.running.take().unwrap().finish();
        assert!(killed.was_killed() && executor.finish().was_killed());
        dispatcher.start();
    }
    let rest = dispatcher.executor("last", &["--slots", "1"]);
    let results = access.results(&id);
    let said = |index: usize| (&results[index]["status"], &results[index]["attempts"]);
    assert_eq!(said(0), (&json!("failed"), &json!(LOSSES_MAX + 1)), "{results:?}");
    assert_eq!(results[0]["executor"], json!(format!("node{}", LOSSES_MAX + 1)));
    // Of the others the first came before it in the second round. Those that followed it
    // may have been sent ahead, or have ended without anybody knowing, when it killed all.
    assert_eq!(said(1), (&json!("done"), &json!(1)), "{results:?}");
    for index in 2..4 {
        let (status, attempts) = said(index);
        let attempts = attempts.as_u64().unwrap();
        assert!(status == "done" && attempts <= u64::from(LOSSES_MAX), "{results:?}");
    }
    assert!(started.is_silent());
    drop(rest);
}

/// An executor with one slot on which the task that fails ends, and the other
/// one begins; all of it is killed then.
fn fails_once(dispatcher: &mut Dispatcher<'_>, started: &mut Signals, expected: [&str; 2]) {
    let executor: Running = dispatcher.executor(expected[0], &["--slots", "1"]);
    both(started, expected);
    executor.kill();
    dispatcher.kill();
    dispatcher.start();
}

#[trial]
fn retries_are_those_that_were_asked_for_however_often_the_dispatcher_is_restarted() {
    let site = Site::new();
    let mut started = site.signals("started");
    let mut gate = site.gate("gate");
    let mut dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let script = format!(
        "echo {{}} $FALKON_ATTEMPT > {}; test {{}} = 1 || exit 7; read line < {}",
        started.path(),
        gate.path()
    );
    // While the first task waits for its next attempt, the other one runs. Tasks
    // that are expected to run for so long are not sent ahead.
    let args = ["--retries", "2", "--estimate", "1h", "--range", "0-1", "--", "sh", "-c", &script];
    let id = access.submit(&args);
    fails_once(&mut dispatcher, &mut started, ["0 1", "1 1"]);
    fails_once(&mut dispatcher, &mut started, ["0 2", "1 2"]);
    let executor = dispatcher.executor("last", &["--slots", "1"]);
    both(&mut started, ["0 3", "1 3"]);
    gate.let_through(1);
    let results = access.results(&id);
    let said: Vec<_> =
        results.iter().map(|one| (&one["status"], &one["exit_code"], &one["attempts"])).collect();
    assert_eq!(said[0], (&json!("failed"), &json!(7), &json!(3)), "{results:?}");
    assert_eq!(said[1], (&json!("done"), &json!(0), &json!(3)), "{results:?}");
    assert!(started.is_silent());
    drop(executor);
}
