//! Tasks whose output streams are members of archives: events in, actions out.

use crate::shell::{Shell, key};
use falkon_core::collect::{CollectOptions, ItemId, WriteFailure};
use falkon_core::execute::{Action, CollectAction, CollectEvent, Event, Executor};
use falkon_core::result::{Captured, Detail, Outcome, Overflow, Report, Stream};
use falkon_core::task::{Resources, TaskClass, Time};
use std::sync::Arc;

/// An executor that writes archives at once and has one task, which ends now, with
/// `head` of what it has printed.
struct Ended {
    shell: Shell,
    actions: Vec<CollectAction>,
    reports: Vec<Report>,
}

fn stream(head: &str, member: &str) -> Captured {
    let overflow = Some(Overflow { incarnation: 1, number: 7 });
    let member = Some(format!("/logs.zip!1/{member}").into());
    Captured { head: head.into(), total_bytes: 9, overflow, member }
}

fn detail() -> Detail {
    let (stdout, stderr) = (stream("out", "stdout"), stream("err", "stderr"));
    Detail { stdout, stderr, ..Detail::default() }
}

impl Ended {
    fn new(outcome: Outcome, detail: Detail) -> Ended {
        let options = CollectOptions { delay_micros_max: 0, ..CollectOptions::default() };
        let machine = Executor::new(1, "node".to_owned(), Resources::cpus(1));
        let mut shell = Shell::new(machine.with_collector(options));
        shell.handle(Event::Connected);
        let (_, order) = shell.assign(1, TaskClass::default());
        shell.handle(Event::Order(order));
        let mut ended = Ended { shell, actions: Vec::new(), reports: Vec::new() };
        ended.pump();
        let detail = Some(Arc::new(detail));
        let (started, at) = (Time(1), Time(1));
        ended.handle(Event::Ended { key: key(0), outcome, started, ended: at, detail });
        ended
    }

    fn handle(&mut self, event: Event) {
        self.shell.handle(event);
        self.pump();
    }

    fn pump(&mut self) {
        while let Some(action) = self.shell.poll() {
            self.shell.machine.check().unwrap();
            match action {
                Action::Collect(action) => self.actions.push(action),
                Action::Update(update) => self.reports.extend(update.reports),
                _ => {}
            }
        }
    }

    /// The streams that are to be staged are, or cannot be. Returns them.
    fn stage(&mut self, result: &Result<u64, String>) -> Vec<(ItemId, Stream, Arc<Captured>)> {
        let mut staged = Vec::new();
        for action in std::mem::take(&mut self.actions) {
            let CollectAction::StageStream { item, stream, captured } = action else {
                panic!("{action:?} comes too early");
            };
            assert!(!self.shell.machine.is_idle() && self.reports.is_empty());
            staged.push((item, stream, captured));
            let result = result.clone();
            self.handle(Event::Collect(CollectEvent::Staged { item, result }));
            self.actions.retain(|action| !matches!(action, CollectAction::Discard(_)));
        }
        staged
    }

    /// What is to be written is, or is not.
    fn write(&mut self, result: Result<Arc<str>, WriteFailure>) -> Vec<Arc<str>> {
        while self.actions.is_empty() && self.shell.passes_to_due(u64::MAX) {
            self.pump();
        }
        let Some(CollectAction::Write { write, archive, members }) = self.actions.pop() else {
            panic!("nothing is written");
        };
        assert_eq!(&*archive, "/logs.zip");
        self.handle(Event::Collect(CollectEvent::Written { write, result }));
        members.into_iter().filter_map(|(_, name)| name).collect()
    }

    /// How the task is reported, with its error and its streams.
    fn report(&self) -> (Outcome, &str, [&Captured; 2]) {
        let [report] = &self.reports[..] else { panic!("{:?}", self.reports) };
        let detail = report.detail.as_deref().unwrap();
        (report.outcome, &detail.error, [&detail.stdout, &detail.stderr])
    }
}

#[test]
fn streams_are_staged_with_their_bytes_and_reported_without() {
    let mut ended = Ended::new(Outcome::Exit(0), detail());
    let staged = ended.stage(&Ok(u64::MAX));
    let found: Vec<_> = staged.iter().map(|(_, stream, captured)| (*stream, captured)).collect();
    let (stdout, stderr) = (stream("out", "stdout"), stream("err", "stderr"));
    let without = |captured: Captured| Captured { member: None, ..captured };
    let (stdout, stderr) = (Arc::new(without(stdout)), Arc::new(without(stderr)));
    assert_eq!(found, [(Stream::Stdout, &stdout), (Stream::Stderr, &stderr)]);
    let written = ended.write(Ok("/logs.zip".into()));
    let names: Vec<&str> = written.iter().map(|name| &**name).collect();
    assert_eq!(names, ["1/stdout", "1/stderr"]);
    let left = |name| Captured { head: Vec::new(), overflow: None, ..stream("", name) };
    let (outcome, error, streams) = ended.report();
    assert_eq!((outcome, error), (Outcome::Exit(0), ""));
    assert_eq!(streams, [&left("stdout"), &left("stderr")]);
    assert!(streams.iter().all(|captured| !captured.is_cut()));
}

#[test]
fn a_task_that_fails_is_reported_at_once_with_what_it_has_printed() {
    let ended = Ended::new(Outcome::Exit(1), detail());
    assert_eq!(ended.actions, []);
    let (outcome, error, [stdout, _]) = ended.report();
    assert_eq!((outcome, error), (Outcome::Exit(1), ""));
    assert_eq!(*stdout, Captured { member: None, ..stream("out", "stdout") });
}

#[test]
fn a_stream_that_cannot_be_staged_is_in_the_report() {
    let mut ended = Ended::new(Outcome::Exit(0), detail());
    ended.stage(&Err("full".to_owned()));
    let (outcome, error, [stdout, stderr]) = ended.report();
    assert_eq!((outcome, error), (Outcome::Exit(0), ""));
    assert_eq!(*stdout, Captured { member: None, ..stream("out", "stdout") });
    assert_eq!(*stderr, Captured { member: None, ..stream("err", "stderr") });
}

#[test]
fn a_stream_that_cannot_be_written_fails_its_task() {
    let mut ended = Ended::new(Outcome::Exit(0), detail());
    ended.stage(&Ok(u64::MAX));
    ended.write(Err(WriteFailure::Refused("read-only".to_owned())));
    let (outcome, error, [stdout, _]) = ended.report();
    assert_eq!((outcome, &stdout.member), (Outcome::NoOutput, &None));
    assert_eq!(error, "/logs.zip was not written: read-only");
}

#[test]
fn a_place_that_is_no_member_stays_with_the_report() {
    let stdout = Captured { member: Some("nowhere".into()), ..stream("out", "stdout") };
    let ended = Ended::new(Outcome::Exit(0), Detail { stdout, ..Detail::default() });
    assert_eq!(ended.actions, []);
    let (outcome, _, [stdout, _]) = ended.report();
    assert_eq!((outcome, &*stdout.head, &stdout.member), (Outcome::Exit(0), &b"out"[..], &None));
}
