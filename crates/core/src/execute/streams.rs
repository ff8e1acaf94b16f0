//! Tasks whose output streams are members of archives: what such a task has written
//! to standard output and standard error is staged as its other outputs are, and its
//! report names the members instead of having the bytes. What cannot be staged, on a full
//! disk for example, stays in the report.

use super::{Action, CollectAction, Executor};
use crate::archive::split_member;
use crate::collect::{ItemId, Member};
use crate::dispatch::Held;
use crate::result::{Captured, Detail, Outcome, Report, Stream};
use crate::seldom::Empty;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A task that has succeeded, and whose streams are not staged yet.
#[derive(Debug)]
struct Ending {
    report: Report,
    /// What is staged for archives.
    members: Vec<Member>,
    /// Streams about which nothing has been heard.
    open: usize,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Streams {
    next: u64,
    ending: BTreeMap<u64, Ending>,
    /// The streams on their way.
    staging: BTreeMap<ItemId, Staging>,
}

/// A stream on its way.
#[derive(Debug)]
struct Staging {
    /// Whose it is.
    number: u64,
    stream: Stream,
    captured: Arc<Captured>,
    member: Member,
}

impl Empty for Streams {
    const EMPTY: &'static Streams =
        &Streams { next: 0, ending: BTreeMap::new(), staging: BTreeMap::new() };
}

impl Streams {
    /// How many tasks' streams are on their way.
    pub(super) fn len(&self) -> usize {
        self.ending.len()
    }

    /// The tasks whose streams are on their way, as the dispatcher knows them.
    pub(super) fn held(&self) -> impl Iterator<Item = Held> + '_ {
        self.ending.values().map(|ending| {
            let Report { instance, first, count, tries, .. } = ending.report;
            Held { instance, first, count, tries }
        })
    }

    /// A stream is staged, or cannot be. Returns its task once nothing of it is on
    /// its way any more; `None` also if the item is no stream.
    fn staged(&mut self, item: ItemId, is_staged: bool) -> Option<Ending> {
        let Staging { number, stream, captured, member } = self.staging.remove(&item)?;
        let ending = self.ending.get_mut(&number)?;
        ending.open -= 1;
        match is_staged {
            true => ending.members.push(member),
            false => put_back(&mut ending.report, stream, captured),
        }
        match ending.open {
            0 => self.ending.remove(&number),
            _ => None,
        }
    }
}

/// The report of a task of which a member could not be staged or written.
pub(super) fn fail(report: &mut Report, error: &str) {
    report.outcome = Outcome::NoOutput;
    let detail = report.detail.take().map_or_else(Detail::default, Arc::unwrap_or_clone);
    let mut detail = without_members(detail);
    if !detail.error.is_empty() {
        detail.error.push_str("; ");
    }
    detail.error.push_str(error);
    report.detail = Some(Arc::new(detail));
}

/// A report has the bytes of a stream after all.
fn put_back(report: &mut Report, stream: Stream, captured: Arc<Captured>) {
    let detail = report.detail.take().map_or_else(Detail::default, Arc::unwrap_or_clone);
    let captured = Arc::unwrap_or_clone(captured);
    report.detail = Some(Arc::new(match stream {
        Stream::Stdout => Detail { stdout: captured, ..detail },
        Stream::Stderr => Detail { stderr: captured, ..detail },
    }));
}

fn without_members(mut detail: Detail) -> Detail {
    (detail.stdout.member, detail.stderr.member) = (None, None);
    detail
}

/// The report of a task all of whose members are safe says where its outputs are.
/// Those of its streams, which it names anyway, come behind them.
pub(super) fn name_outputs(report: &mut Report, members: Vec<(ItemId, Arc<str>)>) {
    let detail = report.detail.take().map_or_else(Detail::default, Arc::unwrap_or_clone);
    let streams = Stream::BOTH.iter().filter(|stream| detail.stream(**stream).member.is_some());
    let count = members.len().saturating_sub(streams.count());
    let outputs = members.into_iter().take(count).map(|(_, place)| place.to_string()).collect();
    report.detail = Some(Arc::new(Detail { outputs, ..detail }));
}

/// A stream that is to be a member of an archive.
struct Taken {
    stream: Stream,
    captured: Captured,
    archive: Arc<str>,
    name: Arc<str>,
}

/// Takes the bytes of streams that are to be members out of a report, with the
/// members. The streams of a task that has failed stay in its report.
fn take(report: &mut Report) -> Vec<Taken> {
    let has_members = |detail: &Arc<Detail>| {
        Stream::BOTH.iter().any(|stream| detail.stream(*stream).member.is_some())
    };
    let Some(detail) = report.detail.take_if(|detail| has_members(detail)) else {
        return Vec::new();
    };
    let mut detail = Arc::unwrap_or_clone(detail);
    let mut taken = Vec::new();
    if report.outcome == Outcome::Exit(0) {
        for (stream, captured) in
            [(Stream::Stdout, &mut detail.stdout), (Stream::Stderr, &mut detail.stderr)]
        {
            let Some(member) = captured.member.take() else { continue };
            let Some((archive, name)) = split_member(&member) else { continue };
            let (archive, name) = (archive.into(), name.into());
            let total_bytes = captured.total_bytes;
            let left = Captured { total_bytes, member: Some(member), ..Captured::default() };
            let captured = std::mem::replace(captured, left);
            taken.push(Taken { stream, captured, archive, name });
        }
    } else {
        detail = without_members(detail);
    }
    report.detail = Some(Arc::new(detail));
    taken
}

impl Executor {
    /// A task has ended, and `members` of its outputs are staged: it is reported,
    /// when its streams are staged and all of these are safe.
    pub(super) fn through(&mut self, mut report: Report, members: Vec<Member>) {
        let streams = take(&mut report);
        if streams.is_empty() {
            return self.all_staged(report, members);
        }
        let number = self.streams.next;
        self.streams.next += 1;
        let open = streams.len();
        self.streams.ending.insert(number, Ending { report, members, open });
        for Taken { stream, captured, archive, name } in streams {
            let item = self.collecting.new_item();
            let member = Member { item, archive, name, bytes: captured.total_bytes };
            let captured = Arc::new(captured);
            let staging = Staging { number, stream, captured: Arc::clone(&captured), member };
            self.streams.staging.insert(item, staging);
            let stage = CollectAction::StageStream { item, stream, captured };
            self.actions.push_back(Action::Collect(stage));
        }
    }

    /// A stream of a task is staged, or cannot be.
    pub(super) fn stream_staged(&mut self, item: ItemId, is_staged: bool) {
        if !is_staged {
            // The disk may be full of what waits there.
            self.flush_collector();
        }
        if let Some(Ending { report, members, .. }) = self.streams.staged(item, is_staged) {
            self.all_staged(report, members);
        }
    }

    fn all_staged(&mut self, report: Report, members: Vec<Member>) {
        match members.is_empty() {
            true => {
                self.forget_cancelled(&report);
                self.updates.push(report);
            }
            false => self.collect(report, members),
        }
    }
}
