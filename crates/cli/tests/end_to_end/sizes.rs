//! Requests and reports that are too long are refused, or cut, where they come
//! in: nobody else notices.

use crate::fixture::{Client, Site};
use falkon_core::dispatch::{InstanceOptions, RequestError};
use falkon_core::task::{
    InstanceId, Range, Rows, Submission, SubmissionError, SubmissionPart, TaskClass, TaskId,
};
use falkon_trials::trial;
use falkon_wire::codec::Wire;
use falkon_wire::command::{CommandTemplate, Piece, Template};
use falkon_wire::message::{FromClient, Refusal, ToClient};
use std::sync::Arc;

fn create(client: &mut Client) -> InstanceId {
    let options = InstanceOptions::default();
    match client.ask(&FromClient::Create { request: 1, options }) {
        ToClient::Created { instance, .. } => instance,
        other => panic!("{other:?}"),
    }
}

/// One task with this program.
fn program(name: Vec<u8>) -> Submission {
    let template =
        CommandTemplate { argv: vec![vec![Piece::Literal(name)]], ..CommandTemplate::default() };
    Submission { template: Arc::new(Template::Command(template).to_bytes()), ..product(1) }
}

/// One task that is the product of many ranges of one value each.
fn product(ranges: usize) -> Submission {
    let literal = |text: &str| vec![Piece::Literal(text.as_bytes().to_vec())];
    let template = CommandTemplate { argv: vec![literal("true")], ..CommandTemplate::default() };
    let range = Range { start: -100, step: -100, count: 1 };
    Submission {
        count: 1,
        template: Arc::new(Template::Command(template).to_bytes()),
        rows: Rows::Computed { factors: vec![range; ranges], offset: 0 },
        classes: vec![TaskClass::default()],
        class_runs: vec![(1, 0)],
        names: None,
        after: Vec::new(),
        everywhere: None,
        data: None,
    }
}

#[trial]
fn a_submission_that_no_record_and_no_order_holds_is_refused_and_the_dispatcher_goes_on() {
    for args in [&[][..], &["--no-journal"]] {
        let site = Site::new();
        let dispatcher = site.dispatcher("d", args);
        let _executor = dispatcher.executor("one", &[]);
        let mut client = Client::connect(&dispatcher.access_of("access-client.json"));
        let instance = create(&mut client);
        let submit = |ranges| FromClient::Submit {
            client: 1,
            request: 2,
            instance,
            first: TaskId(0),
            submission: product(ranges),
        };
        let answer = client.ask(&submit(2_600_000));
        let ToClient::Refused { reason: Refusal::Request(error), .. } = &answer else {
            panic!("{answer:?}");
        };
        let too_long = SubmissionError::TooLong {
            what: SubmissionPart::Ranges,
            bytes: 15_600_008,
            bytes_max: 65_536,
        };
        assert_eq!(*error, RequestError::Submission(too_long));
        // The same connection, and everybody else, goes on.
        let accepted = client.ask(&submit(2));
        assert!(matches!(accepted, ToClient::Accepted { count: 1, .. }), "{accepted:?}");
        let sealed = client.ask(&FromClient::Seal { request: 3, instance });
        assert!(matches!(sealed, ToClient::Done { .. }), "{sealed:?}");
        let access = dispatcher.access();
        access.run("wait", &[&instance.to_string()]).exits(0);
        let ran = access.run("submit", &["--wait", "--", "echo", "still there"]).exits(0);
        assert_eq!(ran.text(), "still there\n");
    }
}

#[trial]
fn output_and_errors_that_are_too_long_are_cut_and_the_executor_goes_on() {
    let site = Site::new();
    let refused = ["run", "--capture", "20000000", "--", "true"];
    site.run(refused).exits(2).says("number of bytes up to 4194304");
    site.write("long.py", "import sys\ndef leave(x):\n    sys.exit('x' * 17_000_000)\n");
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let refused = access.run("executor", &["--capture", "20000000"]).exits(2);
    refused.says("number of bytes up to 4194304");
    let executor = dispatcher.executor("one", &["--slots", "1", "--capture", "4194304"]);

    // Both streams are long.
    let script = "head -c 17000000 /dev/zero | tr '\\0' x; head -c 9000000 /dev/zero >&2";
    let id = access.submit(&["--", "sh", "-c", script]);
    access.run("wait", &[&id]).exits(0);
    let results = access.results(&id);
    assert_eq!(results[0]["status"], "done", "{:.200}", results[0].to_string());
    assert_eq!(results[0]["stdout"].as_str().unwrap().len(), 4_194_304);

    // What a call says when it ends.
    let id = access.submit(&["--call", "long:leave", "--", "1"]);
    access.run("wait", &[&id]).exits(1);
    let results = access.results(&id);
    let error = results[0]["error"].as_str().unwrap();
    assert!(error.contains("xxxx") && error.len() <= 66_000, "{} bytes", error.len());

    // A name that is longer still when it is made readable.
    let mut client = Client::connect(&access);
    let instance = create(&mut client);
    let submission = program(vec![0xff; 6_000_000]);
    let (request, first) = (2, TaskId(0));
    let accepted =
        client.ask(&FromClient::Submit { request, instance, first, client: 1, submission });
    assert!(matches!(accepted, ToClient::Accepted { .. }), "{accepted:?}");
    client.ask(&FromClient::Seal { request: 3, instance });
    access.run("wait", &[&instance.to_string()]).exits(1);

    let ran = access.run("submit", &["--wait", "--", "echo", "still there"]).exits(0);
    assert_eq!(ran.text(), "still there\n");
    let log = executor.kill().err;
    assert!(!log.contains("reconnecting"), "{log}");
}

/// The most memory that a process has had, in bytes.
fn peak_bytes(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    1024 * line.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
}

#[trial]
fn a_client_that_asks_and_does_not_read_takes_a_bounded_part_of_memory() {
    const QUESTIONS: u64 = 4000;
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let mut owner = Client::connect(&dispatcher.access());
    let options = |name| InstanceOptions { name, ..InstanceOptions::default() };
    let long = FromClient::Create { request: 1, options: options("n".repeat(1_000_000)) };
    let answer = owner.ask(&long);
    let reason = Refusal::Request(RequestError::LongName { bytes: 1_000_000 });
    assert_eq!(answer, ToClient::Refused { request: 1, reason });
    for _ in 0..400 {
        let create = FromClient::Create { request: 1, options: options("n".repeat(256)) };
        assert!(matches!(owner.ask(&create), ToClient::Created { .. }));
    }
    let pid = dispatcher.service().pid();
    let before = peak_bytes(pid);
    let mut observer = Client::connect(&dispatcher.access_of("access-observer.json"));
    for request in 0..QUESTIONS {
        observer.say(&FromClient::Status { request, instance: None, from: None }).unwrap();
    }
    // Every question is answered or refused, in their order.
    let (mut answered, mut refused) = (0, 0);
    for asked in 0..QUESTIONS {
        match observer.hear() {
            ToClient::Status { request, status } if request == asked => {
                assert_eq!(status.instances.len(), 400);
                answered += 1;
            }
            ToClient::Refused { request, reason: Refusal::Busy } if request == asked => {
                refused += 1;
            }
            other => panic!("question {asked}: {other:?}"),
        }
    }
    assert!(answered > 0 && refused > 0, "{answered} answered, {refused} refused");
    // All answers together would be more than 400 MB.
    let grown = peak_bytes(pid) - before;
    assert!(grown < 100 << 20, "{grown} bytes for {answered} answers");
    // Whoever has read the answers may ask again, and nobody else was refused.
    let status = FromClient::Status { request: 7, instance: None, from: None };
    assert!(matches!(observer.ask(&status), ToClient::Status { .. }));
    assert!(matches!(owner.ask(&status), ToClient::Status { .. }));
}

#[trial]
fn a_status_that_is_longer_than_one_answer_comes_in_several() {
    const INSTANCES: usize = 18_000;
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let mut owner = Client::connect(&dispatcher.access());
    for request in 0..INSTANCES as u64 {
        let options = InstanceOptions { name: "n".repeat(256), ..InstanceOptions::default() };
        owner.say(&FromClient::Create { request, options }).unwrap();
    }
    for _ in 0..INSTANCES {
        assert!(matches!(owner.hear(), ToClient::Created { .. }));
    }
    let answer = owner.ask(&FromClient::Status { request: 1, instance: None, from: None });
    let ToClient::Status { status, .. } = answer else { panic!("{answer:?}") };
    assert!(status.next.is_some() && status.instances.len() < INSTANCES);
    let status = dispatcher.access().status();
    assert_eq!(status["instances"].as_array().unwrap().len(), INSTANCES);
}
