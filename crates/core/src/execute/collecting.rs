//! Tasks whose outputs are members of archives: such a task holds nothing once
//! its outputs are staged on this executor's disk, and is reported when they are
//! in their archives.

use super::entrusted::{Entrusted, OfferId};
use super::streams::{fail, name_outputs};
use super::{Action, Executor};
use crate::collect::{
    self, CollectOptions, Collector, ItemId, Member, MemberName, OwnerId, Unwritten,
    WAITED_TOO_LONG, WriteFailure, WriteId,
};
use crate::data::object::Object;
use crate::dispatch::Held;
use crate::limits::{COLLECT_REPORTS_BYTES_MAX, UPDATE_RUNS_MAX};
use crate::result::{Captured, Outcome, Report, Stream, Tries};
use crate::runset::RunSet;
use crate::task::{ExecutorId, InstanceId, TaskKey};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// What the shell says of outputs that are collected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CollectEvent {
    /// The answer to [`CollectAction::Stage`] and [`CollectAction::StageStream`].
    Staged {
        /// To which.
        item: ItemId,
        /// How many bytes are free there, or why it is not staged.
        result: Result<u64, String>,
    },
    /// The answer to [`CollectAction::Write`] and [`CollectAction::HandOver`].
    Written {
        /// To which.
        write: WriteId,
        /// The path by which the members are found now: that of the file, which is
        /// whole and on stable storage.
        result: Result<Arc<str>, WriteFailure>,
    },
    /// Another executor hands over what it has staged for an archive, which this one is
    /// to write. The answers are [`CollectAction::Accept`] and
    /// [`CollectAction::Answer`].
    Offered {
        /// What to answer with.
        offer: OfferId,
        /// The path of the archive's first file.
        archive: Arc<str>,
        /// Bytes of what it hands over.
        bytes: u64,
        /// How long the oldest output in it has waited.
        waited_micros: u64,
    },
    /// The answer to [`CollectAction::Accept`].
    Received {
        /// What was offered.
        offer: OfferId,
        /// How many bytes are free there, or why it is not staged.
        result: Result<u64, String>,
    },
    /// An executor takes back what it has offered, or is gone.
    Withdrawn(OfferId),
}

/// What is to be done with outputs that are collected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CollectAction {
    /// Move an output out of its task's directory.
    Stage {
        /// What to answer with.
        item: ItemId,
        /// Whose it is.
        key: TaskKey,
        /// The output.
        object: Arc<Object>,
        /// It is to go into the cache afterwards, and not out of here by that.
        stays: bool,
    },
    /// Put what a task has written to a stream into a file, or move the file that
    /// has it.
    StageStream {
        /// What to answer with.
        item: ItemId,
        /// Which stream.
        stream: Stream,
        /// What the task has written. If it cannot be staged, a file that has it stays.
        captured: Arc<Captured>,
    },
    /// Write staged files into one file of an archive.
    Write {
        /// What to answer with.
        write: WriteId,
        /// The path of the archive's first file.
        archive: Arc<str>,
        /// The files, and the members that they become.
        members: Vec<(ItemId, MemberName)>,
    },
    /// Hand staged files to another executor, which is to write them.
    HandOver {
        /// What to answer with.
        write: WriteId,
        /// That executor.
        to: ExecutorId,
        /// The path of the archive's first file.
        archive: Arc<str>,
        /// The files, and the members that they become.
        members: Vec<(ItemId, MemberName)>,
        /// How long the oldest of them has waited.
        waited_micros: u64,
    },
    /// What was handed over is not to be written by that executor any more, unless it
    /// has been. Nothing need be answered.
    TakeBack(WriteId),
    /// Receive what another executor offers into a staged file.
    Accept {
        /// What it offers.
        offer: OfferId,
        /// The file.
        item: ItemId,
    },
    /// Tell another executor what has become of what it offered.
    Answer {
        /// What it offered.
        offer: OfferId,
        /// The path by which the members are found, or why they were not written.
        result: Result<Arc<str>, String>,
    },
    /// Delete staged files.
    Discard(Vec<ItemId>),
}

/// See the [module](self). Most executors collect nothing: those take no room for it.
#[derive(Debug)]
pub(super) struct Collecting {
    options: CollectOptions,
    begun: Option<Box<Begun>>,
}

/// What there is from the first output on that is collected.
#[derive(Debug)]
struct Begun {
    collector: Collector,
    next_item: u64,
    next_owner: u64,
    /// Outputs on their way out of their tasks' directories.
    staging: BTreeMap<ItemId, Staging>,
    /// The reports of tasks whose outputs are staged, and their bytes.
    reports: BTreeMap<OwnerId, Report>,
    bytes: u64,
    /// Those of them that the dispatcher has not been told of in this session.
    untold: VecDeque<Held>,
    /// Tasks that were cancelled while their outputs were on their way.
    cancelled: BTreeSet<TaskKey>,
}

/// Where the staged files of a task are now.
pub(super) type SafeMembers = Vec<(ItemId, Arc<str>)>;

/// An output on its way out of its task's directory.
#[derive(Debug)]
struct Staging {
    key: TaskKey,
    object: Arc<Object>,
    stays: bool,
    member: Member,
}

fn bytes_of(report: &Report) -> u64 {
    size_of::<Report>() as u64 + report.detail.as_ref().map_or(0, |detail| detail.bytes())
}

fn key_of(report: &Report) -> TaskKey {
    TaskKey { instance: report.instance, task: report.first }
}

fn held_of(report: &Report) -> Held {
    let Report { instance, first, count, tries, .. } = *report;
    Held { instance, first, count, tries }
}

impl Collecting {
    pub(super) fn new(options: CollectOptions) -> Collecting {
        Collecting { options, begun: None }
    }

    fn begin(&mut self) -> &mut Begun {
        let options = self.options;
        self.begun.get_or_insert_with(|| {
            Box::new(Begun {
                collector: Collector::new(options),
                next_item: 0,
                next_owner: 0,
                staging: BTreeMap::new(),
                reports: BTreeMap::new(),
                bytes: 0,
                untold: VecDeque::new(),
                cancelled: BTreeSet::new(),
            })
        })
    }

    fn begun(&self) -> Option<&Begun> {
        self.begun.as_deref()
    }

    /// A number for a file that is to be staged.
    pub(super) fn new_item(&mut self) -> ItemId {
        let begun = self.begin();
        let item = ItemId(begun.next_item);
        begun.next_item += 1;
        item
    }

    /// A number for what is staged together.
    pub(super) fn new_owner(&mut self) -> OwnerId {
        let begun = self.begin();
        let owner = OwnerId(begun.next_owner);
        begun.next_owner += 1;
        owner
    }

    /// Whether nothing is staged, of this executor or another.
    pub(super) fn is_empty(&self) -> bool {
        self.begun().is_none_or(|begun| begun.collector.is_empty())
    }

    /// Whether so many bytes more may be staged for others.
    pub(super) fn has_room(&self, bytes: u64) -> bool {
        let has_room = |collector: &Collector| collector.has_room(bytes);
        self.begun().map_or_else(
            || has_room(&Collector::new(self.options)),
            |begun| begun.bytes <= COLLECT_REPORTS_BYTES_MAX && has_room(&begun.collector),
        )
    }

    /// Whether what waits to be written takes the room of so many bytes more.
    pub(super) fn takes_room_of(&self, bytes: u64) -> bool {
        self.begun().is_some_and(|begun| begun.collector.takes_room_of(bytes))
    }

    /// Whether as much is staged as may be.
    pub(super) fn is_full(&self) -> bool {
        self.begun().is_some_and(|begun| {
            begun.collector.is_full() || begun.bytes > COLLECT_REPORTS_BYTES_MAX
        })
    }

    /// The tasks whose outputs are staged, as the dispatcher knows them.
    pub(super) fn held(&self) -> impl Iterator<Item = Held> + '_ {
        self.begun().into_iter().flat_map(|begun| begun.reports.values().map(held_of))
    }

    /// A session begins: the dispatcher is told of all.
    pub(super) fn tell_anew(&mut self) {
        let Some(begun) = &mut self.begun else { return };
        begun.untold = begun.reports.values().map(held_of).collect();
        begun.collector.tell_anew();
    }

    /// The archives that cannot be written for now, if that has changed.
    pub(super) fn unwritten(&mut self) -> Option<Vec<Unwritten>> {
        self.begun.as_mut()?.collector.unwritten()
    }

    /// Whether that has changed.
    pub(super) fn has_news(&self) -> bool {
        self.begun().is_some_and(|begun| begun.collector.has_news())
    }

    /// Whether there are tasks to tell of.
    pub(super) fn is_telling(&self) -> bool {
        self.begun().is_some_and(|begun| !begun.untold.is_empty())
    }

    /// Which tasks hold nothing any more, in the next message: rows of them as
    /// one.
    pub(super) fn next(&mut self) -> Vec<Held> {
        let mut told: Vec<Held> = Vec::new();
        let Some(begun) = &mut self.begun else { return told };
        while let Some(held) = begun.untold.pop_front() {
            match told.last_mut() {
                Some(last)
                    if last.instance == held.instance
                        && last.tries == held.tries
                        && last.first.0 + last.count == held.first.0 =>
                {
                    last.count += held.count;
                }
                _ => told.push(held),
            }
            if told.len() == UPDATE_RUNS_MAX {
                break;
            }
        }
        told
    }

    /// What the collector wants done.
    fn next_action(&mut self) -> Option<collect::Action> {
        self.begun.as_mut()?.collector.poll_action()
    }

    /// What must hold of the machine within.
    pub(super) fn check(&self) -> Result<(), crate::dispatch::CheckError> {
        self.begun().map_or(Ok(()), |begun| begun.collector.check())
    }
}

impl Executor {
    /// This executor, which writes archives as these options say.
    #[must_use]
    pub fn with_collector(mut self, options: CollectOptions) -> Executor {
        self.collecting = Collecting::new(options);
        self.entrusted = Entrusted::new(options.delay_micros_max);
        self
    }

    /// An output of a task is to be staged.
    pub(super) fn stage_output(&mut self, key: TaskKey, object: Arc<Object>, stays: bool) {
        let Some((archive, name)) = object.member() else { return };
        let item = self.collecting.new_item();
        let (archive, name) = (archive.into(), name.into());
        let member = Member { item, archive, name, bytes: object.size.unwrap_or_default() };
        let staging = Staging { key, object: Arc::clone(&object), stays, member };
        self.collecting.begin().staging.insert(item, staging);
        self.actions.push_back(Action::Collect(CollectAction::Stage { item, key, object, stays }));
    }

    /// All outputs of a task are where they are to be until it is safe.
    pub(super) fn collect(&mut self, report: Report, members: Vec<Member>) {
        if report.outcome != Outcome::Exit(0) {
            let items = members.iter().map(|member| member.item).collect();
            self.actions.push_back(Action::Collect(CollectAction::Discard(items)));
            self.forget_cancelled(&report);
            self.updates.push(report);
            return;
        }
        let owner = self.collecting.new_owner();
        let collecting = self.collecting.begin();
        collecting.bytes += bytes_of(&report);
        if self.connected {
            collecting.untold.push_back(held_of(&report));
        }
        let is_cancelled = collecting.cancelled.remove(&key_of(&report));
        collecting.reports.insert(owner, report);
        self.handle_collector(collect::Event::Staged { owner, members });
        if is_cancelled {
            self.handle_collector(collect::Event::Cancel(vec![owner]));
        }
    }

    /// These tasks are cancelled: those that have ended do not wait for long until
    /// their archives can be written.
    pub(super) fn cancel_collected(&mut self, held: &[Held]) {
        if held.is_empty() || (self.collecting.is_empty() && !self.has_finishing()) {
            return;
        }
        let mut cancelled: BTreeMap<(InstanceId, Tries), RunSet> = BTreeMap::new();
        for held in held {
            let set = cancelled.entry((held.instance, held.tries)).or_default();
            set.insert(held.first.0, held.count);
        }
        let is_cancelled = |held: &Held| {
            let set = cancelled.get(&(held.instance, held.tries));
            set.is_some_and(|set| set.contains(held.first.0))
        };
        let on_their_way: Vec<Held> = self.finishing().filter(is_cancelled).collect();
        let keys =
            on_their_way.iter().map(|held| TaskKey { instance: held.instance, task: held.first });
        let keys: Vec<TaskKey> = keys.collect();
        let begun = self.collecting.begin();
        begun.cancelled.extend(keys);
        let reports = begun.reports.iter();
        let owners = reports.filter(|(_, report)| is_cancelled(&held_of(report)));
        let owners: BTreeSet<OwnerId> = owners.map(|(owner, _)| *owner).collect();
        let writes = begun.collector.writes_of(&owners);
        self.hurry(writes);
        self.handle_collector(collect::Event::Cancel(owners.into_iter().collect()));
    }

    /// A task whose outputs were on their way has ended otherwise.
    pub(super) fn forget_cancelled(&mut self, report: &Report) {
        if let Some(begun) = &mut self.collecting.begun {
            begun.cancelled.remove(&key_of(report));
        }
    }

    pub(super) fn handle_collect(&mut self, event: CollectEvent) {
        match event {
            CollectEvent::Staged { item, result } => {
                if let Ok(free) = result {
                    self.handle_collector(collect::Event::Free(free));
                }
                let Some(staging) = self.collecting.begin().staging.remove(&item) else {
                    return self.stream_staged(item, result.is_ok());
                };
                let Staging { key, object, stays, member } = staging;
                let result = result.map(|_| member).map_err(|error| (object.id, error));
                self.output_staged(key, result, stays.then_some(object));
            }
            CollectEvent::Written { write, result } => {
                let is_refused = matches!(result, Err(WriteFailure::NotTaken(_)));
                self.handle_collector(collect::Event::Written { write, result });
                if self.entrusting.ended(write, is_refused) {
                    // Until the dispatcher names another one.
                    self.handle_collector(collect::Event::HandsOver(false));
                }
            }
            CollectEvent::Offered { offer, archive, bytes, waited_micros } => {
                self.offered(offer, archive, bytes, waited_micros);
            }
            CollectEvent::Received { offer, result } => self.received(offer, result),
            CollectEvent::Withdrawn(offer) => self.withdrawn(offer),
        }
    }

    pub(super) fn handle_collector(&mut self, event: collect::Event) {
        // A collector hands nothing over until it is told to.
        if event != collect::Event::HandsOver(false) || self.collecting.begun.is_some() {
            self.collecting.begin().collector.handle(self.now, event);
            self.drain_collector();
        }
        self.accept_offers();
    }

    pub(super) fn collect_timeout(&self) -> Option<(crate::task::Time, &'static str)> {
        self.collecting.begun()?.collector.poll_timeout()
    }

    pub(super) fn handle_collect_timeout(&mut self) {
        if self.collect_timeout().is_some_and(|(at, _)| at <= self.now) {
            self.collecting.begin().collector.handle_timeout(self.now);
            self.drain_collector();
            self.accept_offers();
        }
    }

    /// Tells the collector whether there is anything else to do here.
    pub(super) fn note_work(&mut self) {
        if self.collecting.is_empty() {
            return;
        }
        let is_working = !self.queue.is_empty() || !self.running.is_empty() || self.has_finishing();
        self.handle_collector(collect::Event::Working(is_working));
        if self.is_leaving() || self.collecting.is_full() {
            self.handle_collector(collect::Event::Flush);
        }
    }

    /// What is staged is written at once.
    pub(super) fn flush_collector(&mut self) {
        self.collecting.begin().collector.handle(self.now, collect::Event::Flush);
        self.drain_collector();
    }

    fn drain_collector(&mut self) {
        while let Some(action) = self.collecting.next_action() {
            let action = match action {
                collect::Action::Safe { owner, members } => {
                    self.end_collected(owner, Ok(members));
                    continue;
                }
                collect::Action::Failed { owner, error, is_cancelled } => {
                    self.end_collected(owner, Err((error, is_cancelled)));
                    continue;
                }
                collect::Action::Write { write, archive, members, waited_micros } => {
                    match self.entrusting.begin(write, waited_micros == WAITED_TOO_LONG) {
                        None => CollectAction::Write { write, archive, members },
                        Some(to) => {
                            CollectAction::HandOver { write, to, archive, members, waited_micros }
                        }
                    }
                }
                collect::Action::Discard(items) => CollectAction::Discard(items),
            };
            self.actions.push_back(Action::Collect(action));
        }
    }

    /// A task's outputs are in their archives, or will not be.
    fn end_collected(&mut self, owner: OwnerId, result: Result<SafeMembers, (String, bool)>) {
        let begun = self.collecting.begin();
        let Some(mut report) = begun.reports.remove(&owner) else {
            return self.end_entrusted(owner, result);
        };
        begun.bytes -= bytes_of(&report);
        match result {
            Ok(members) => name_outputs(&mut report, members),
            Err((error, is_cancelled)) => {
                fail(&mut report, &error);
                if is_cancelled {
                    report.outcome = Outcome::Cancelled;
                }
            }
        }
        self.updates.push(report);
        self.startable = true;
    }
}
