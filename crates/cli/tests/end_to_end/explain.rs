//! `falkon explain`: why tasks wait, and how they ended.

use crate::fixture::{Site, poll};
use falkon_trials::trial;

#[trial]
fn a_task_that_waits_says_for_what_and_one_that_ended_says_how() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let gate = site.path("gate");
    let wait = format!("until [ -e {} ]; do sleep 0.02; done; exit 3", gate.display());
    let id = access.submit(&["--name", "first", "--range", "1-3", "--", "sh", "-c", &wait]);
    let ran = access.run("explain", &[&id]).exits(0);
    assert!(ran.text().contains("no executor is connected"), "{ran}");

    let _executor = dispatcher.executor("worker", &["--slots", "1"]);
    poll("a task to run", || access.instance(&id)["running"] == 1);
    let ran = access.run("explain", &["first/0"]).exits(0);
    assert!(ran.text().contains("task 0/0 runs on worker"), "{ran}");
    let ran = access.run("explain", &["first/2", "--json"]).exits(0);
    let lines = ran.results();
    assert_eq!((&lines[0]["state"], &lines[0]["index"]), (&"ready".into(), &2.into()), "{ran}");
    let taken = &lines[0]["obstacles"][0];
    assert_eq!((&taken["kind"], &taken["full"]), (&"taken".into(), &1.into()), "{ran}");

    let wide = access.submit(&["--cpus", "8", "--", "true"]);
    let ran = access.run("explain", &[&wide]).exits(0);
    assert!(ran.text().contains("needs 8 cpus: none of 1 executor offers that"), "{ran}");

    std::fs::write(&gate, "").unwrap();
    access.run("wait", &[&id]).exits(1);
    let ran = access.run("explain", &[&format!("{id}/1")]).exits(0);
    assert!(ran.text().contains("task 0/1 is failed: exited with 3"), "{ran}");
    assert!(ran.text().contains("it ran on worker for "), "{ran}");
    access.run("explain", &[&format!("{id}/3")]).exits(2).says("there is no task 3 of instance 0");
    // The tasks that were to run have ended; the other one needs more than there is.
    let ran = access.run("explain", &[]).exits(0);
    assert!(
        ran.text()
            .contains("1 processors free on 1 executor (worker): what is needed by 1 ready task"),
        "{ran}"
    );
    access.run("drain", &["worker", "--wait"]).exits(0);
    let idle = access.run("explain", &["--json"]).exits(0).results();
    assert_eq!((&idle[0]["reason"], &idle[0]["cpus"]), (&"drained".into(), &1.0.into()));
    access.run("undrain", &["worker"]).exits(0);
    access.run("cancel", &[&wide]).exits(0);
    let observer = dispatcher.access_of("access-observer.json");
    let idle = observer.run("explain", &["--json"]).exits(0).results();
    assert_eq!(idle[0]["reason"], "no_tasks");
    access.run("explain", &["second"]).exits(2).says("there is no instance named \"second\"");
    access.run("explain", &["7"]).exits(2).says("there is no instance 7");
    access.run("explain", &["0/x"]).exits(2).says("instance 0 has no task named \"x\"");
    access.run("explain", &["0/"]).exits(2).says("INSTANCE/TASK");
}
