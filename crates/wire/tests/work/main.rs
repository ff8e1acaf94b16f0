//! How much work a task is to encode and decode, counted, not timed: see
//! `bench/ceilings.toml`.

#![allow(clippy::unwrap_used, reason = "a test may fail at once")]

#[path = "../../../core/tests/work/growth.rs"]
mod growth;
#[path = "../../../core/tests/work/guard.rs"]
mod guard;

use falkon_core::dispatch::Update;
use falkon_core::result::{Outcome, Report, Tries};
use falkon_core::task::{InstanceId, Packed, Resources, Rows, Submission, TaskClass, TaskId, Time};
use falkon_trials::trial;
use falkon_wire::codec::Wire;
use falkon_wire::command::{Call, Command, CommandTemplate, Function, Piece, Template, pack_row};
use falkon_wire::message::{FromClient, FromExecutor};
use growth::{Growth, counted};
use guard::Scenario;
use std::sync::Arc;

const SCENARIOS: [Scenario; 2] = [
    Scenario { name: "wire-submission", tasks: (2_000, 12_000), run: submission },
    Scenario { name: "wire-reports", tasks: (2_000, 12_000), run: reports },
];

fn main() -> std::process::ExitCode {
    falkon_trials::main()
}

guard::tests!(SCENARIOS);

const GROWTHS: [Growth; 1] = [Growth {
    name: "the words of tasks whose templates have much that is not shown",
    sizes: (1_000, 1_000_000),
    times: 1.2,
    run: words,
}];

#[cfg_attr(debug_assertions, trial(ignore))]
#[cfg_attr(not(debug_assertions), trial)]
fn what_is_not_shown_of_a_task_is_not_copied() {
    growth::hold_growths(&GROWTHS, "one_growth");
}

#[trial(ignore)]
fn one_growth() {
    growth::run_growth(&GROWTHS);
}

/// Tasks are shown whose templates have functions with so many bytes of code, and
/// environments and names of standard inputs as long.
fn words(bytes: u64) {
    const TASKS: u64 = 100;
    let long = vec![b'x'; bytes as usize];
    let function =
        Function { name: b"m:f".to_vec(), code: Arc::new(long.clone()), ..Function::default() };
    let function = Arc::new(function);
    let call = Call { function: Arc::clone(&function), payload: Vec::new() };
    let text = vec![Piece::Literal(long.clone())];
    let calls = Template::Calls(Command {
        env: vec![(b"LONG".to_vec(), long)],
        call: Some(call),
        ..Command::default()
    });
    let command = Template::Command(CommandTemplate {
        argv: vec![vec![Piece::Literal(b"n=".to_vec()), Piece::Number]],
        env: vec![(b"LONG".to_vec(), text.clone())],
        stdin: Some(text),
        call: Some(function),
        ..CommandTemplate::default()
    });
    let (mut blob, mut ends) = (Vec::new(), Vec::new());
    for _ in 0..TASKS {
        pack_row(&[b"value"], &mut blob);
        ends.push(u32::try_from(blob.len()).unwrap());
    }
    let rows = Rows::Packed(Packed { blob: Arc::new(blob), ends: Arc::new(ends) });
    let templates = [calls, command];
    let mut shown = Vec::new();
    counted(|| {
        for template in &templates {
            shown.extend((0..TASKS).map(|task| template.words(&rows, task, task + 1).unwrap()));
        }
    });
    let expanded = templates.iter().flat_map(|template| {
        (0..TASKS).map(|task| template.expand(&rows, task, task + 1).unwrap())
    });
    for (words, command) in shown.iter().zip(expanded) {
        let name = command.call.map(|call| call.function.name.clone());
        assert_eq!(*words, name.into_iter().chain(command.argv).collect::<Vec<_>>());
    }
    assert_eq!(shown.len() as u64, 2 * TASKS);
}

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
        everywhere: None,
    };
    let message = FromClient::Submit {
        client: 1,
        request: 1,
        instance: InstanceId(0),
        first: TaskId(0),
        submission,
    };
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
