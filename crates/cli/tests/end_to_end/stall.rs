//! Processes that stand still for longer than anyone waits, and go on.

use crate::fixture::Site;
use falkon_trials::trial;
use rustix::process::Signal;
use serde_json::Value;
use std::time::Duration;

/// Longer than an executor may be silent.
const STALL: Duration = Duration::from_secs(12);

#[trial]
fn a_dispatcher_that_stood_still_hears_its_executors_before_it_gives_them_up() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let mut started = site.signals("started");
    let mut gate = site.gate("gate");
    let _executors = [
        dispatcher.executor("one", &["--slots", "1"]),
        dispatcher.executor("two", &["--slots", "1"]),
    ];
    let script = format!("echo on > {}; read line < {}", started.path(), gate.path());
    let id = access.submit(&["--range", "1-4", "--", "sh", "-c", &script]);
    started.take(2);
    dispatcher.service().signal(Signal::STOP);
    // It sleeps because standing still for that long is what is tested.
    std::thread::sleep(STALL);
    dispatcher.service().signal(Signal::CONT);
    gate.let_through(4);
    started.take(2);
    let results = access.results(&id);
    assert!(results.iter().all(|one| one["attempts"] == 1), "{results:?}");
    assert!(started.is_silent());
    let said = dispatcher.service().said();
    assert!(!said.contains("silent"), "{said}");
}

#[trial]
fn an_executor_that_stood_still_is_given_up_and_may_come_back() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let mut started = site.signals("started");
    let stalled = dispatcher.executor("stalled", &["--slots", "2"]);
    let script = format!("test -e elsewhere || {{ echo on > {}; sleep 1000; }}", started.path());
    let id = access.submit(&["--range", "1-4", "--", "sh", "-c", &script]);
    started.take(2);
    site.write("elsewhere", "");
    stalled.signal(Signal::STOP);
    dispatcher.service().wait_for("it was silent for too long");
    let other = dispatcher.executor("other", &["--slots", "2"]);
    let results = access.results(&id);
    assert!(results.iter().all(|one| one["executor"] == "other"), "{results:?}");
    // It comes back with tasks that nobody wants any more, and takes others.
    stalled.signal(Signal::CONT);
    dispatcher.service().wait_for_count("executor stalled joined", 2);
    site.left().wait_for_none_but(&[dispatcher.service(), &stalled, &other]);
    let ended = |results: &[Value]| -> Vec<Value> {
        results.iter().map(|one| one["times"]["ended"].clone()).collect()
    };
    assert_eq!(ended(&access.results(&id)), ended(&results));
    other.signal(Signal::TERM);
    other.finish().exits(0);
    let ran = access.run("submit", &["--wait", "--range", "1-4", "--", "echo"]).exits(0);
    assert_eq!(ran.sorted(), ["1", "2", "3", "4"]);
}
