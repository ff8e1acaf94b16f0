//! The collector of an executor (collective-io §5): decides when outputs that
//! are members of archives, and are staged on the executor's disk, are written.
//!
//! The outputs for one archive that wait together become one file of its set.
//! They are written when the oldest has waited for long, when much waits, sooner
//! if the disk is short, when the executor has had nothing to do for a moment, and
//! when it leaves. A write that fails is repeated after growing pauses, for a bounded
//! time. Where another executor collects, what would be written is handed to it, after
//! half of the usual time, so that it waits there for what others hand over; what is
//! handed over here waits like the own outputs. While the disk is nearly full, nothing new is to start before what is staged
//! is written. A task is safe when all of its members are. What a cancelled
//! task has staged is written at once, and is given up if that fails or takes long.
//!
//! Each event is followed by [`Collector::poll_action`] until that gives `None`.

mod cancelled;
mod check;
mod failing;
mod set;

use crate::limits::{
    COLLECT_ARCHIVES_MAX, COLLECT_CANCEL_MICROS_MAX, COLLECT_IDLE_DOUBLINGS_MAX,
    COLLECT_IDLE_MICROS, COLLECT_MEMBERS_MAX, COLLECT_PATIENCE_MICROS, COLLECT_RETRY_MICROS_MIN,
    COLLECT_TASKS_MAX,
};
use crate::task::Time;
use cancelled::Cancelled;
use failing::{Failing, Verdict};
use set::{Sets, Waiting};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

pub use failing::Unwritten;

/// The part of the usual bytes that wait together on a disk that is short of room, and
/// the part of the free bytes asked for with which it counts as nearly full.
pub const SHORT_PARTS: u64 = 16;

/// For how long outputs of a cancelled task have waited: whoever collects them writes them
/// at once.
pub const WAITED_TOO_LONG: u64 = u64::MAX;

/// When archives are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CollectOptions {
    /// How long an output waits at most for others.
    pub delay_micros_max: u64,
    /// How many bytes wait together at most.
    pub data_bytes_max: u64,
    /// With less than this free on the disk, much less waits together.
    pub free_bytes_min: u64,
    /// For how long an archive that cannot be written is tried again.
    pub patience_micros: u64,
}

impl Default for CollectOptions {
    fn default() -> CollectOptions {
        CollectOptions {
            delay_micros_max: 30_000_000,
            data_bytes_max: 256 << 20,
            free_bytes_min: 1 << 30,
            patience_micros: COLLECT_PATIENCE_MICROS,
        }
    }
}

/// A task whose outputs are staged. Numbers are never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerId(pub u64);

/// A staged file. Numbers ascend, and are never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ItemId(pub u64);

/// What a staged file becomes: a member of this name, or, if it is an archive, all of
/// its members under their own.
pub type MemberName = Option<Arc<str>>;

/// A file of an archive being written. Numbers are never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WriteId(pub u64);

/// A staged output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its file.
    pub item: ItemId,
    /// The path of the archive's first file.
    pub archive: Arc<str>,
    /// The member's name.
    pub name: Arc<str>,
    /// Its bytes.
    pub bytes: u64,
}

/// What happens to a collector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// All outputs of a task that are to be collected are staged.
    Staged {
        /// The task.
        owner: OwnerId,
        /// The outputs.
        members: Vec<Member>,
    },
    /// An archive of another executor's outputs is staged: its members are to become
    /// members.
    Entrusted {
        /// The owner that stands for the maker's tasks here.
        owner: OwnerId,
        /// Its file.
        item: ItemId,
        /// The path of the first file of the archive that they are for.
        archive: Arc<str>,
        /// Its bytes.
        bytes: u64,
        /// How long the oldest output in it has waited.
        waited_micros: u64,
    },
    /// The collector drops a part that a maker entrusted: the maker is gone, or writes it itself.
    Withdrawn(OwnerId),
    /// Whether the executor sends its outputs to another one, which collects them.
    HandsOver(bool),
    /// Bytes that are free where outputs are staged.
    Free(u64),
    /// Whether the executor has something to do.
    Working(bool),
    /// What is staged is to be written at once.
    Flush,
    /// These tasks are cancelled: nobody waits until their archives can be written.
    Cancel(Vec<OwnerId>),
    /// The answer to [`Action::Write`].
    Written {
        /// To which.
        write: WriteId,
        /// The path by which the members are found now: that of the file, which is
        /// whole and on stable storage.
        result: Result<Arc<str>, WriteFailure>,
    },
}

/// Why a file of an archive was not written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteFailure {
    /// This staged file cannot be read; the others may be written.
    Member(ItemId, String),
    /// The archive cannot be written, and trying again is of no use.
    Refused(String),
    /// The archive could not be written, which may pass.
    Failed(String),
    /// The executor that was to collect has not written it.
    NotTaken(String),
}

/// What a collector wants done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Write these members into one file of an archive. The answer is
    /// [`Event::Written`].
    Write {
        /// What to answer with.
        write: WriteId,
        /// The path of the archive's first file.
        archive: Arc<str>,
        /// Staged files, and the members that they become.
        members: Vec<(ItemId, MemberName)>,
        /// How long the oldest of them has waited.
        waited_micros: u64,
    },
    /// Delete staged files.
    Discard(Vec<ItemId>),
    /// All outputs of a task are in archives, on stable storage.
    Safe {
        /// The task.
        owner: OwnerId,
        /// Where each of them is, as `ARCHIVE!MEMBER`; what was entrusted is in this
        /// file.
        members: Vec<(ItemId, Arc<str>)>,
    },
    /// An output of a task cannot be written; the task is forgotten.
    Failed {
        /// The task.
        owner: OwnerId,
        /// What was not written, and why.
        error: String,
        /// It was cancelled.
        is_cancelled: bool,
    },
}

/// A task some of whose outputs are not in archives.
#[derive(Debug)]
struct Owner {
    /// Those that wait, or are being written.
    open: BTreeMap<ItemId, Arc<str>>,
    /// Where the others are.
    safe: Vec<(ItemId, Arc<str>)>,
}

/// A file being written.
#[derive(Debug)]
struct Writing {
    archive: Arc<str>,
    members: BTreeMap<ItemId, Waiting>,
}

/// See the [module](self).
#[derive(Debug)]
pub struct Collector {
    now: Time,
    options: CollectOptions,
    owners: BTreeMap<OwnerId, Owner>,
    cancelled: Cancelled,
    failing: Failing,
    sets: Sets,
    writing: BTreeMap<WriteId, Writing>,
    writing_bytes: u64,
    next_write: u64,
    /// Bytes that are free where outputs are staged, when one was staged last.
    free_bytes: u64,
    /// The executor sends its outputs to another one, which collects them.
    hands_over: bool,
    /// Since when the executor has had nothing to do.
    idle_since: Option<Time>,
    /// How often that was why something was written. More outputs came each time, so
    /// the next idle time is twice as long: outputs that come one by one, for long,
    /// do not become a file each.
    idle_writes: u32,
    /// When a write began last.
    last_write: Time,
    actions: VecDeque<Action>,
}

impl Collector {
    /// A collector with nothing to write.
    #[must_use]
    pub fn new(options: CollectOptions) -> Collector {
        Collector {
            now: Time::default(),
            options,
            owners: BTreeMap::new(),
            cancelled: Cancelled::default(),
            failing: Failing::default(),
            sets: Sets::default(),
            writing: BTreeMap::new(),
            writing_bytes: 0,
            next_write: 0,
            free_bytes: u64::MAX,
            hands_over: false,
            idle_since: None,
            idle_writes: 0,
            last_write: Time::default(),
            actions: VecDeque::new(),
        }
    }

    /// Takes one event in.
    pub fn handle(&mut self, now: Time, event: Event) {
        self.now = self.now.max(now);
        match event {
            Event::Staged { owner, members } => {
                let since = self.now;
                let of = |Member { item, archive, name, bytes }| {
                    (archive, item, Waiting { owner, name: Some(name), bytes, since })
                };
                self.stage(owner, members.into_iter().map(of).collect());
            }
            Event::Entrusted { owner, item, archive, bytes, waited_micros } => {
                let since = Time(self.now.0.saturating_sub(waited_micros));
                let waiting = Waiting { owner, name: None, bytes, since };
                self.stage(owner, vec![(archive.clone(), item, waiting)]);
                if waited_micros == WAITED_TOO_LONG {
                    self.sets.due_now(&archive, self.delay());
                }
            }
            Event::Withdrawn(owner) => {
                if let Some(Owner { open, .. }) = self.owners.remove(&owner) {
                    self.discard_waiting(open, None);
                }
            }
            Event::HandsOver(hands_over) => {
                if hands_over != std::mem::replace(&mut self.hands_over, hands_over) {
                    self.sets.relist(self.delay());
                }
            }
            Event::Free(bytes) => self.free_bytes = bytes,
            Event::Working(true) => self.idle_since = None,
            Event::Working(false) => {
                self.idle_since.get_or_insert(self.now);
            }
            Event::Flush => self.sets.all_due(),
            Event::Cancel(owners) => self.cancel(owners),
            Event::Written { write, result } => self.written(write, result),
        }
        self.advance();
    }

    /// What to do next; `None` until the next event or timeout.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// When [`Collector::handle_timeout`] is due, and why.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Time, &'static str)> {
        let can_write = self.writing.len() < COLLECT_ARCHIVES_MAX;
        let write = self.sets.next().filter(|_| can_write).map(|at| (at, "an archive"));
        let idle = self.idle_at().map(|at| (at, "archives of an idle executor"));
        let cancelled = self.cancelled.next().map(|at| (at, "the archives of a cancelled task"));
        write.into_iter().chain(idle).chain(cancelled).min()
    }

    /// Does what is due at `now`.
    pub fn handle_timeout(&mut self, now: Time) {
        self.now = self.now.max(now);
        self.advance();
    }

    /// The files being written that are to have outputs of these tasks.
    #[must_use]
    pub fn writes_of(&self, owners: &BTreeSet<OwnerId>) -> Vec<WriteId> {
        let is_of = |writing: &Writing| {
            writing.members.values().any(|member| owners.contains(&member.owner))
        };
        let found = self.writing.iter().filter(|(_, writing)| is_of(writing));
        found.map(|(write, _)| *write).collect()
    }

    /// Whether nothing is staged.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }

    /// Whether as much is staged as may be: no further task is to start.
    #[must_use]
    pub fn is_full(&self) -> bool {
        let bytes = self.bytes();
        let is_nearly_full = self.free_bytes < self.options.free_bytes_min / SHORT_PARTS;
        bytes > self.options.data_bytes_max.saturating_mul(2)
            || self.owners.len() >= COLLECT_TASKS_MAX
            || (is_nearly_full && !self.owners.is_empty())
    }

    /// Bytes that are staged.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.sets.bytes() + self.writing_bytes
    }

    /// Whether so many bytes more may be staged for others: what a file has at most, and
    /// as much again while that is being written.
    #[must_use]
    pub fn has_room(&self, bytes: u64) -> bool {
        let bytes_max = self.options.data_bytes_max;
        let waiting = self.sets.bytes().saturating_add(bytes);
        !self.is_full()
            && (self.owners.is_empty()
                || (waiting <= bytes_max
                    && self.writing_bytes.saturating_add(waiting) <= bytes_max.saturating_mul(2)))
    }

    /// Whether outputs wait that are not to be written yet, and take the room of so many
    /// bytes more.
    #[must_use]
    pub fn takes_room_of(&self, bytes: u64) -> bool {
        self.sets.has_undue()
            && self.sets.bytes().saturating_add(bytes) > self.options.data_bytes_max
    }

    /// The archives that cannot be written for now, if that has changed since this
    /// was asked last.
    pub fn unwritten(&mut self) -> Option<Vec<Unwritten>> {
        self.failing.changed()
    }

    /// Whether [`Collector::unwritten`] has something to say.
    #[must_use]
    pub fn has_news(&self) -> bool {
        self.failing.is_changed()
    }

    /// The archives that cannot be written for now are to be said anew.
    pub fn tell_anew(&mut self) {
        self.failing.tell_anew();
    }

    /// How long an output waits at most.
    fn delay(&self) -> u64 {
        let parts = if self.hands_over { 2 } else { 1 };
        self.options.delay_micros_max / parts
    }

    fn stage(&mut self, owner: OwnerId, outputs: Vec<(Arc<str>, ItemId, Waiting)>) {
        let pause_micros = self.now.since(self.last_write);
        if self.owners.is_empty() && pause_micros >= self.options.delay_micros_max {
            self.idle_writes = 0;
        }
        let open = outputs.iter().map(|(archive, item, _)| (*item, archive.clone())).collect();
        self.owners.insert(owner, Owner { open, safe: Vec::new() });
        self.idle_since = None;
        for (archive, item, waiting) in outputs {
            self.sets.add(&archive, item, waiting, self.delay());
        }
    }

    /// What these tasks have staged is written at once, whatever pause its archive
    /// is in.
    fn cancel(&mut self, owners: Vec<OwnerId>) {
        let until = self.now.after(COLLECT_CANCEL_MICROS_MAX);
        let delay = self.delay();
        for owner in owners {
            let Some(found) = self.owners.get(&owner) else { continue };
            self.cancelled.add(owner, until);
            for archive in found.open.values() {
                self.sets.due_now(archive, delay);
            }
        }
    }

    /// When what waits is written because there is nothing else to do.
    fn idle_at(&self) -> Option<Time> {
        let since = self.idle_since.filter(|_| self.sets.has_undue())?;
        Some(since.after(COLLECT_IDLE_MICROS << self.idle_writes.min(COLLECT_IDLE_DOUBLINGS_MAX)))
    }

    /// Decides what is to be written by now, and begins as much as may be written
    /// at a time.
    fn advance(&mut self) {
        while let Some(owner) = self.cancelled.due(self.now) {
            let archives = self.owners.get(&owner).into_iter().flat_map(|found| &found.open);
            let archive = archives.map(|(_, archive)| archive.clone()).next();
            let archive = archive.unwrap_or_default();
            let seconds = COLLECT_CANCEL_MICROS_MAX / 1_000_000;
            let error = format!("{archive} was not written within {seconds} s of the cancellation");
            self.fail(owner, None, error);
        }
        if self.idle_at().is_some_and(|at| at <= self.now) {
            self.sets.all_due();
            self.idle_writes = self.idle_writes.saturating_add(1);
        }
        let is_short = self.free_bytes < self.options.free_bytes_min;
        let parts = if is_short { SHORT_PARTS } else { 1 };
        self.sets.largest_due(self.options.data_bytes_max / parts, COLLECT_MEMBERS_MAX);
        while self.writing.len() < COLLECT_ARCHIVES_MAX
            && let Some((archive, members)) = self.sets.take(self.now)
        {
            self.last_write = self.now;
            let write = WriteId(self.next_write);
            self.next_write += 1;
            let named = members.iter().map(|(item, member)| (*item, member.name.clone()));
            let oldest = members.values().map(|member| member.since).min();
            let is_cancelled = members.values().any(|one| self.cancelled.contains(one.owner));
            self.actions.push_back(Action::Write {
                write,
                archive: archive.clone(),
                members: named.collect(),
                waited_micros: match is_cancelled {
                    true => WAITED_TOO_LONG,
                    false => oldest.map_or(0, |oldest| self.now.since(oldest)),
                },
            });
            self.writing_bytes += members.values().map(|member| member.bytes).sum::<u64>();
            self.writing.insert(write, Writing { archive, members });
        }
    }

    fn written(&mut self, write: WriteId, result: Result<Arc<str>, WriteFailure>) {
        let Some(Writing { archive, mut members }) = self.writing.remove(&write) else { return };
        self.writing_bytes -= members.values().map(|member| member.bytes).sum::<u64>();
        match result {
            Ok(file) => {
                self.sets.written(&archive, self.delay());
                self.failing.succeeded(&archive);
                self.actions.push_back(Action::Discard(members.keys().copied().collect()));
                for (item, member) in members {
                    let place = match &member.name {
                        Some(name) => format!("{file}!{name}").into(),
                        None => file.clone(),
                    };
                    self.member_safe(member.owner, (item, place));
                }
            }
            Err(WriteFailure::Member(item, error)) => {
                let Some(member) = members.remove(&item) else {
                    let error = format!("{archive} was not written: {error}");
                    return self.give_up(&archive, members, &error);
                };
                let name = member.name.iter().map(|name| format!("!{name}")).collect::<String>();
                let error = format!("{archive}{name} was not written: {error}");
                self.put_back(&archive, members, None);
                self.actions.push_back(Action::Discard(vec![item]));
                self.fail(member.owner, Some(item), error);
            }
            Err(WriteFailure::Refused(error)) => {
                let error = format!("{archive} was not written: {error}");
                self.give_up(&archive, members, &error);
            }
            // It is handed over once more, or written here.
            Err(WriteFailure::NotTaken(_)) => {
                let at = self.now.after(COLLECT_RETRY_MICROS_MIN);
                self.put_back(&archive, members, Some(at));
            }
            Err(WriteFailure::Failed(error)) => {
                let patience = self.options.patience_micros;
                let at = match self.failing.failed(self.now, &archive, &error, patience) {
                    Verdict::Again(at) => at,
                    Verdict::GiveUp { tries, seconds } => {
                        let error = format!(
                            "{archive} was not written, in {tries} tries within {seconds} s \
                             (--collect-patience): {error}"
                        );
                        return self.give_up(&archive, members, &error);
                    }
                };
                let owners: BTreeSet<OwnerId> = members.values().map(|one| one.owner).collect();
                self.put_back(&archive, members, Some(at));
                let error = format!("{archive} was not written: {error}");
                for owner in owners {
                    if self.cancelled.contains(owner) {
                        self.fail(owner, None, error.clone());
                    }
                }
            }
        }
    }

    /// What was not written waits again, as far as somebody wants it.
    fn put_back(
        &mut self,
        archive: &Arc<str>,
        members: BTreeMap<ItemId, Waiting>,
        retry: Option<Time>,
    ) {
        let (wanted, unwanted): (BTreeMap<_, _>, BTreeMap<_, _>) =
            members.into_iter().partition(|(_, member)| self.owners.contains_key(&member.owner));
        if !unwanted.is_empty() {
            self.actions.push_back(Action::Discard(unwanted.into_keys().collect()));
        }
        self.sets.put_back(archive, wanted, retry, self.delay());
        self.forget_if_gone(archive);
    }

    /// Nothing waits for an archive any more: nobody need know that it cannot be
    /// written.
    fn forget_if_gone(&mut self, archive: &Arc<str>) {
        if !self.sets.contains(archive) {
            self.failing.succeeded(archive);
        }
    }

    /// Tasks fail whose outputs cannot be written.
    fn give_up(&mut self, archive: &Arc<str>, members: BTreeMap<ItemId, Waiting>, error: &str) {
        self.sets.written(archive, self.delay());
        self.failing.succeeded(archive);
        self.actions.push_back(Action::Discard(members.keys().copied().collect()));
        for (item, member) in members {
            self.fail(member.owner, Some(item), error.to_owned());
        }
    }

    fn member_safe(&mut self, owner: OwnerId, member: (ItemId, Arc<str>)) {
        let Some(found) = self.owners.get_mut(&owner) else { return };
        found.open.remove(&member.0);
        found.safe.push(member);
        if found.open.is_empty() {
            let mut members = std::mem::take(&mut found.safe);
            members.sort_unstable();
            self.owners.remove(&owner);
            self.cancelled.remove(owner);
            self.actions.push_back(Action::Safe { owner, members });
        }
    }

    /// A task fails: its outputs but the `failed` one, of which nothing is left, are
    /// not written, unless they are being written.
    fn fail(&mut self, owner: OwnerId, failed: Option<ItemId>, error: String) {
        let is_cancelled = self.cancelled.contains(owner);
        self.cancelled.remove(owner);
        let Some(Owner { open, .. }) = self.owners.remove(&owner) else { return };
        self.discard_waiting(open, failed);
        self.actions.push_back(Action::Failed { owner, error, is_cancelled });
    }

    /// What waits of these outputs is not wanted any more, but for one of which nothing
    /// is left.
    fn discard_waiting(&mut self, open: BTreeMap<ItemId, Arc<str>>, but: Option<ItemId>) {
        let others = open.into_iter().filter(|(item, _)| Some(*item) != but);
        let delay = self.delay();
        let mut gone: Vec<ItemId> = Vec::new();
        for (item, archive) in others {
            if self.sets.remove(&archive, item, delay) {
                gone.push(item);
                self.forget_if_gone(&archive);
            }
        }
        if !gone.is_empty() {
            self.actions.push_back(Action::Discard(gone));
        }
    }
}
