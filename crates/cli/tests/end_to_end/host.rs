//! The process that runs an executor's tasks is killed: its tasks are lost, as
//! if the executor had been, and have not failed.

use crate::fixture::Site;
use falkon_trials::trial;
use rustix::process::{Signal, kill_process};

#[trial]
fn tasks_whose_process_host_was_killed_run_again_and_have_not_failed() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let mut started = site.signals("started");
    let mut gate = site.gate("gate");
    let executor = dispatcher.executor("worker", &["--slots", "3"]);
    let script = format!("echo on > {}; read line < {}", started.path(), gate.path());
    let id = access.submit(&["--range", "1-6", "--", "sh", "-c", &script]);
    started.take(3);
    kill_process(site.left().host_of(&executor), Signal::KILL).unwrap();
    started.take(3);
    gate.let_through(6);
    started.take(3);
    let results = access.results(&id);
    assert!(results.iter().all(|one| one["status"] == "done"), "{results:?}");
    let mut attempts: Vec<u64> =
        results.iter().map(|one| one["attempts"].as_u64().unwrap()).collect();
    attempts.sort_unstable();
    assert_eq!(attempts, [1, 1, 1, 2, 2, 2]);
    site.left().wait_for_none_but(&[dispatcher.service(), &executor]);
}

#[trial]
fn a_task_that_takes_its_process_host_down_each_time_is_lost_in_the_end() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let _executor = dispatcher.executor("worker", &["--slots", "1"]);
    let id = access.submit(&["--", "sh", "-c", "kill -9 $PPID; sleep 1000"]);
    let results = access.results(&id);
    assert_eq!((&results[0]["status"], &results[0]["attempts"]), (&"failed".into(), &6.into()));
    let error = results[0]["error"].as_str().unwrap();
    assert!(error.contains("lost") && error.contains("was killed"), "{error}");
    // The executor takes other tasks.
    access.run("submit", &["--wait", "--", "true"]).exits(0);
}

#[trial]
fn calls_whose_process_host_was_killed_are_made_again() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let mut started = site.signals("started");
    let mut gate = site.gate("gate");
    let executor = dispatcher.executor("worker", &["--slots", "2"]);
    let code = format!(
        "def wait(text):\n    open({:?}, 'w').write('on\\n')\n    gate = open({:?}, 'rb', 0)\n    \
         while gate.read(1) != b'\\n':\n        pass\n",
        started.path(),
        gate.path()
    );
    site.write("calls.py", code);
    let id = access.submit(&["--call", "calls:wait", "--range", "1-2"]);
    started.take(2);
    kill_process(site.left().host_of(&executor), Signal::KILL).unwrap();
    started.take(2);
    gate.let_through(2);
    let results = access.results(&id);
    for result in &results {
        assert_eq!((&result["status"], &result["attempts"]), (&"done".into(), &2.into()));
    }
}
