//! Clocks that are set back between two lives of a dispatcher: whatever is due
//! stays due in time.

use crate::fixture::{CLOCK, Running, Site};
use falkon_trials::trial;
use rustix::process::Signal;

/// Starts programs whose clock is ten hours behind once `site.path("back")` is
/// there.
fn start(site: &Site, library: &std::path::Path, args: &[&str]) -> Running {
    let mut command = site.falkon(args);
    command.env("LD_PRELOAD", library).env("CLOCK_SET_BACK", site.path("back"));
    Running::start(command)
}

#[trial]
fn a_dispatcher_that_starts_again_with_an_earlier_clock_does_everything_in_time() {
    let site = Site::new();
    let library = site.library("clock", CLOCK);
    let start = |args: &[&str]| start(&site, &library, args);
    let mut started = site.signals("started");
    let script = format!("test -e go || {{ echo on > {}; sleep 1000; }}", started.path());
    let dispatcher = start(&["start", "--dir", "d"]);
    dispatcher.wait_for("dispatcher at ");
    let access = crate::fixture::Access::at(&site, &site.path("d/access.json"));
    let executor = access.start("executor", &["--name", "first", "--slots", "1"]);
    dispatcher.wait_for("executor first joined");
    // The time of its end is in the journal.
    access.run("submit", &["--wait", "--", "true"]).exits(0);
    let id = access.submit(&["--range", "1-2", "--", "sh", "-c", &script]);
    started.next();
    dispatcher.kill();
    executor.kill();
    site.write("back", "");
    // The executor that the journal knows does not come back: it is waited for,
    // and not for ten hours.
    let dispatcher = start(&["start", "--dir", "d"]);
    dispatcher.wait_for("behind the journal's last entry");
    dispatcher.wait_for("dispatcher at ");
    let second = access.start("executor", &["--name", "second", "--slots", "1"]);
    started.next();
    // An executor that falls silent is given up, and its task runs elsewhere.
    second.signal(Signal::STOP);
    dispatcher.wait_for("it was silent for too long");
    site.write("go", "");
    let third = access.start("executor", &["--name", "third", "--slots", "1"]);
    let results = access.results(&id);
    for result in &results {
        assert_eq!((&result["status"], &result["executor"]), (&"done".into(), &"third".into()));
        let phases = ["queued", "dispatched", "started", "ended"];
        let times = phases.map(|phase| result["times"][phase].as_f64().unwrap());
        assert!(times.is_sorted() && times[3] - times[0] < 1000.0, "{times:?}");
    }
    second.kill();
    site.left().wait_for_none_but(&[&dispatcher, &third]);
}

#[trial]
fn an_executor_goes_on_speaking_to_a_dispatcher_whose_clock_is_behind_its_own() {
    let site = Site::new();
    let library = site.library("clock", CLOCK);
    let start = |args: &[&str]| start(&site, &library, args);
    let dispatcher = start(&["start", "--dir", "d"]);
    dispatcher.wait_for("dispatcher at ");
    let access = crate::fixture::Access::at(&site, &site.path("d/access.json"));
    let executor = access.start("executor", &["--name", "worker", "--slots", "1"]);
    dispatcher.wait_for("executor worker joined");
    dispatcher.kill();
    // Without its journal it knows of no later time than its clock's.
    std::fs::remove_dir_all(site.path("d/journal")).unwrap();
    site.write("back", "");
    let dispatcher = start(&["start", "--dir", "d"]);
    dispatcher.wait_for("executor worker joined");
    // Longer than an executor may be silent.
    let id = access.submit(&["--", "sleep", "13"]);
    let results = access.results(&id);
    assert_eq!((&results[0]["status"], &results[0]["attempts"]), (&"done".into(), &1.into()));
    let said = dispatcher.said();
    assert!(!said.contains("silent"), "{said}");
    drop(executor);
}
