//! `falkon tail` of tasks below relays: the relays go to the executors.

use super::{Relay, wait_for_nodes};
use crate::fixture::{Site, poll};
use crate::tail::wait_for_output;
use falkon_trials::trial;

#[trial]
fn what_tasks_write_below_relays_is_shown_while_they_run() {
    for level in ["none", "authenticate", "encrypt"] {
        let site = Site::new();
        let dispatcher = site.dispatcher("d", &["--security", level]);
        let upper = Relay::start(&site, "upper", dispatcher.access().file());
        let mut lower = Relay::start(&site, "lower", upper.access().file());
        let access = dispatcher.access();
        // Where nobody has the task, and where it is not known yet who will.
        let gate = site.text("gate");
        let script = format!(
            "echo first {{}}; echo error >&2; until [ -e {gate} ]; do sleep 0.02; done; seq 1 50000"
        );
        let args = ["--name", "x", "--range", "1-2", "--", "sh", "-c", &script];
        let id = access.submit(&args);
        access.run("tail", &["x/0"]).exits(2).says_only(1, "it has not been sent to an executor");
        let _executors = [upper.executor("near", "1"), lower.executor("far", "1")];
        wait_for_nodes(&dispatcher, &[("upper", 2)]);
        wait_for_output(&access, "x/0", "first 1\n");
        wait_for_output(&access, "x/1", "first 2\n");
        let followers = ["x/0", "x/1"].map(|task| {
            let ran = access.run("tail", &[task, "--stderr"]).exits(0);
            assert_eq!(ran.text(), "error\n");
            let follower = access.start("tail", &[task, "--follow"]);
            follower.wait_for_lines(1);
            follower
        });
        assert_eq!(access.run("tail", &["x/1", "--bytes", "2"]).exits(0).text(), "2\n");
        std::fs::write(&gate, "").unwrap();
        let numbers: String = (1..=50_000).map(|number| format!("{number}\n")).collect();
        for (follower, number) in followers.into_iter().zip(1..) {
            let all = format!("first {number}\n{numbers}");
            let followed = follower.finish().exits(0);
            // A task that has been reported before all was read says so.
            if followed.text() != all {
                assert!(all.starts_with(followed.text()), "{level}: missing, or too much");
                followed.says("its result has the rest of what it wrote");
            }
        }
        access.run("wait", &[&id]).exits(0);
        access.run("tail", &["x/0"]).exits(2).says_only(1, "falkon results 0 shows what it wrote");
        lower.take().kill();
    }
}

#[trial]
fn a_relay_that_is_gone_or_does_not_answer_holds_nobody_up() {
    use rustix::process::Signal;

    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let mut relay = Relay::start(&site, "relay", dispatcher.access().file());
    let executor = relay.executor("worker", "1");
    wait_for_nodes(&dispatcher, &[("relay", 1)]);
    let access = dispatcher.access();
    let id = access.submit(&["--", "sh", "-c", "echo begun; sleep 100"]);
    let task = format!("{id}/0");
    wait_for_output(&access, &task, "begun\n");
    // The executor does not answer: who asks is told, or the executor counts as lost.
    executor.signal(Signal::STOP);
    let asked = access.run("tail", &[&task]);
    assert!(!asked.succeeded() || asked.text().is_empty(), "{asked}");
    executor.signal(Signal::CONT);
    wait_for_output(&access, &task, "begun\n");
    // The relay dies while it is asked.
    let follower = access.start("tail", &[&task, "--follow"]);
    follower.wait_for_lines(1);
    relay.kill_and_restart();
    poll("it is shown again", || {
        let ran = access.run("tail", &[&task]);
        ran.succeeded() && ran.text() == "begun\n"
    });
    access.run("cancel", &[&id]).exits(0);
    follower.finish().exits(0);
}
