//! How much work a task is to encode and decode, counted, not timed: see
//! `bench/ceilings.toml`.

#![allow(clippy::unwrap_used, reason = "a test may fail at once")]

#[path = "../../../core/tests/work/guard.rs"]
mod guard;

use falkon_core::dispatch::Update;
use falkon_core::result::{Outcome, Report, Tries};
use falkon_core::task::{InstanceId, Packed, Resources, Rows, Submission, TaskClass, TaskId, Time};
use falkon_wire::codec::Wire;
use falkon_wire::command::{Command, Template};
use falkon_wire::message::{FromClient, FromExecutor};
use guard::Scenario;
use std::sync::Arc;

const SCENARIOS: [Scenario; 2] = [
    Scenario { name: "wire-submission", tasks: (2_000, 12_000), run: submission },
    Scenario { name: "wire-reports", tasks: (2_000, 12_000), run: reports },
];

guard::tests!(SCENARIOS);

/// Distinct commands are packed, sent in one message and read from it, and
/// each is made out again as an executor does.
fn submission(tasks: u64) {
    let (mut blob, mut ends) = (Vec::new(), Vec::new());
    let command = Command {
        argv: vec![b"/bin/true".to_vec(), b"--input=/data/object.fits".to_vec()],
        env: vec![(b"OBJECT".to_vec(), b"object".to_vec())],
        ..Command::default()
    };
    for _ in 0..tasks {
        command.encode(&mut blob);
        ends.push(u32::try_from(blob.len()).unwrap());
    }
    let submission = Submission {
        data: None,
        count: tasks,
        template: Arc::new(Template::Each.to_bytes()),
        rows: Rows::Packed(Packed { blob: Arc::new(blob), ends: Arc::new(ends) }),
        classes: vec![TaskClass { resources: Resources::cpus(1), ..TaskClass::default() }],
        class_runs: vec![(tasks, 0)],
        names: None,
        after: Vec::new(),
    };
    let message =
        FromClient::Submit { request: 1, instance: InstanceId(0), first: TaskId(0), submission };
    let FromClient::Submit { submission, .. } =
        FromClient::from_bytes(&message.to_bytes()).unwrap()
    else {
        panic!("another message came out");
    };
    let template = Template::from_bytes(&submission.template).unwrap();
    for task in 0..tasks {
        assert_eq!(template.expand(&submission.rows, task, task + 1).unwrap().argv.len(), 2);
    }
}

/// What an executor says of process tasks, each reported on its own.
fn reports(tasks: u64) {
    let report = |task| Report {
        instance: InstanceId(0),
        first: TaskId(task),
        count: 1,
        tries: Tries::default(),
        outcome: Outcome::Exit(0),
        started: Time(1_700_000_000_000_000 + task * 1_000),
        ended: Time(1_700_000_000_000_900 + task * 1_000),
        detail: None,
    };
    let update =
        Update { number: 1, reports: (0..tasks).map(report).collect(), ..Update::default() };
    let bytes = FromExecutor::Update(update).to_bytes();
    assert!(matches!(FromExecutor::from_bytes(&bytes), Ok(FromExecutor::Update(_))));
}
