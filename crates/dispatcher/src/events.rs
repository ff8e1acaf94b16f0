//! What happens on a dispatcher, in files for those who watch or look at a run afterwards.
//!
//! A thread of its own turns records and happenings into events
//! ([`falkon_core::events`]) and writes them, so that the driver does no more than pass on
//! what it has. Nothing waits for events: where they come faster than the disk takes
//! them, or it has no room, they are counted as missing.
//!
//! A directory holds files `00000001.events`, `00000002.events`, …, each a head and then
//! blocks; docs/events.md has the bytes. Each start begins a new file. A file that is
//! damaged, or was being written when the machine failed, is read as far as it is whole.

mod files;
mod read;
mod recorder;

pub use files::{EVENTS_DIRECTORY, EventsError};
pub use read::{Block, Blocks, EventReader, Position};
pub use recorder::Recorder;

use falkon_core::data::declared::Declared;
use falkon_core::dispatch::{ConnectionId, Dispatcher, Record};
use falkon_core::events::{Event, Reserves, Run, Uses, Waits, What, text};
use falkon_core::limits::{EVENT_BLOCK_BYTES, EVENTS_BYTES_MAX, EVENTS_WAITING_BYTES_MAX};
use falkon_core::result::{Detail, Finished};
use falkon_core::task::{After, ExecutorId, InstanceId, Rows, Submission, TaskClass, TaskId, Time};
use falkon_net::Log;
use falkon_wire::codec::Wire;
use falkon_wire::command::Template;
use falkon_wire::events::BlockWriter;
use files::EventFiles;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// How long what has happened waits with the driver for more, in microseconds, and how many bytes
/// of it do: to wake the thread that writes costs as much as a task.
const GATHER_MICROS: u64 = 50_000;
const GATHER_BYTES: u64 = 64 << 10;
/// How long events wait for others before they are written.
const FLUSH: Duration = Duration::from_millis(200);
/// How long a reader waits for what has happened to be written.
const READER: Duration = Duration::from_secs(2);
/// How long a dispatcher that ends waits for its events to be written.
const CLOSE: Duration = Duration::from_secs(5);
/// The bytes that a record takes while it waits, besides its results or runs.
const RECORD_BYTES: u64 = 256;

/// Where events are kept.
#[derive(Debug, Clone)]
pub struct EventOptions {
    /// The directory.
    pub dir: PathBuf,
    /// Bytes of files, beyond which the oldest go.
    pub bytes_max: u64,
}

impl EventOptions {
    /// Events in `dir`, as many as are kept unless the user says otherwise.
    #[must_use]
    pub fn new(dir: PathBuf) -> EventOptions {
        EventOptions { dir, bytes_max: EVENTS_BYTES_MAX }
    }
}

/// What the driver passes on.
#[derive(Debug)]
enum Item {
    Record(Record),
    Submitted {
        instance: InstanceId,
        first: TaskId,
        count: u64,
        template: Arc<Vec<u8>>,
        rows: Rows,
        after: Vec<After>,
        data: Option<Arc<Declared>>,
        /// The declared objects are of each task.
        are_alike: bool,
        classes: Vec<TaskClass>,
        class_runs: Vec<(u64, u32)>,
    },
    What(What),
}

/// What happened in some rounds of the driver, and the bytes that it takes, about.
#[derive(Debug)]
struct Gathered {
    items: Vec<(Time, Item)>,
    bytes: u64,
}

/// What the thread that writes is given.
#[derive(Debug)]
enum Given {
    Gathered(Gathered),
    /// Somebody reads: what came before is written at once, and then the other side is told.
    Reader(Sender<()>),
}

/// An answer to who asked for events.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) connection: ConnectionId,
    pub(super) request: u64,
    pub(super) blocks: Blocks,
}

/// The events of a running dispatcher.
#[derive(Debug)]
pub(super) struct Events {
    dir: PathBuf,
    /// What has not been passed on, and when its first item was taken.
    gathered: Vec<(Time, Item)>,
    since: Option<Time>,
    /// Where the records of the current act begin in it.
    act: usize,
    /// Bytes that it takes, and how many events it has, about.
    gathered_bytes: u64,
    gathered_events: u64,
    /// Events that were left out since the last that were not.
    missing: u64,
    waiting_bytes: Arc<AtomicU64>,
    passed: Option<Sender<Given>>,
    ended: Receiver<()>,
    /// Peers whose questions are being answered.
    reading: BTreeSet<ConnectionId>,
    answer: UnboundedSender<Answer>,
    answers: UnboundedReceiver<Answer>,
}

impl Events {
    /// Opens the directory, and begins with what `core` knows at `now`.
    pub(super) fn open(
        options: &EventOptions,
        core: &mut Dispatcher,
        now: Time,
        log: &Log,
    ) -> Result<Events, EventsError> {
        let files = EventFiles::open(&options.dir, options.bytes_max)?;
        core.watch_happenings();
        let (passed, received) = channel();
        let (end, ended) = channel();
        let waiting_bytes = Arc::new(AtomicU64::new(0));
        let writer = Writer::new(files, log.clone());
        let waiting = waiting_bytes.clone();
        std::thread::Builder::new()
            .name("events".to_owned())
            .spawn(move || {
                writer.run(&received, &waiting);
                // Nobody waits for it if the dispatcher has gone without a farewell.
                let _ = end.send(());
            })
            .map_err(EventsError::Thread)?;
        let (answer, answers) = unbounded_channel();
        let mut events = Events {
            dir: options.dir.clone(),
            gathered: Vec::new(),
            since: None,
            act: 0,
            gathered_bytes: 0,
            gathered_events: 0,
            missing: 0,
            waiting_bytes,
            passed: Some(passed),
            ended,
            reading: BTreeSet::new(),
            answer,
            answers,
        };
        let version = env!("CARGO_PKG_VERSION").into();
        events.what(now, What::DispatcherStarted { version });
        for view in core.instance_views() {
            events.what(now, What::created(view.id(), view.options()));
        }
        events.pass_on();
        Ok(events)
    }

    /// Takes a record that the journal has as well.
    pub(super) fn record(&mut self, now: Time, record: Record) {
        let Some((item, bytes, events)) = item_of(record) else { return };
        self.gathered_bytes += bytes;
        self.gathered_events += events;
        self.since.get_or_insert(now);
        self.gathered.push((now, item));
    }

    /// Ends an act of the core, with what happened and is in none of its records.
    pub(super) fn end_act(&mut self, now: Time, happenings: Vec<What>) {
        if !happenings.is_empty() {
            self.since.get_or_insert(now);
        }
        self.gathered_bytes += RECORD_BYTES * happenings.len() as u64;
        self.gathered_events += happenings.len() as u64;
        let items = happenings.into_iter().map(|what| (now, Item::What(what)));
        self.gathered.splice(self.act..self.act, items);
        self.act = self.gathered.len();
    }

    /// Takes what the core has nothing to do with.
    pub(super) fn what(&mut self, now: Time, what: What) {
        self.end_act(now, vec![what]);
    }

    /// When what was taken is to be passed on.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.since.map(|since| since.after(GATHER_MICROS))
    }

    /// Ends a round: passes on what was taken, if it is much or has waited.
    pub(super) fn end_round(&mut self, now: Time) {
        let is_due = self.poll_timeout().is_some_and(|due| due <= now);
        if is_due || self.gathered_bytes >= GATHER_BYTES {
            self.pass_on();
        }
    }

    /// Passes on what was taken.
    fn pass_on(&mut self) {
        self.since = None;
        if self.gathered.is_empty() {
            return;
        }
        let mut all = std::mem::take(&mut self.gathered);
        self.act = 0;
        let bytes = std::mem::take(&mut self.gathered_bytes);
        let events = std::mem::take(&mut self.gathered_events);
        let waiting = self.waiting_bytes.load(Ordering::Relaxed);
        if waiting > 0 && waiting + bytes > EVENTS_WAITING_BYTES_MAX {
            self.missing += events;
            return;
        }
        if self.missing > 0 {
            let (now, _) = all[0];
            let events = std::mem::take(&mut self.missing);
            all.insert(0, (now, Item::What(What::Missing { events })));
        }
        self.waiting_bytes.fetch_add(bytes, Ordering::Relaxed);
        if let Some(passed) = &self.passed {
            // The writer ends after its sender.
            let _ = passed.send(Given::Gathered(Gathered { items: all, bytes }));
        }
    }

    /// Reads events for a peer, in a thread that may wait for the disk. False if that is
    /// under way for it already.
    pub(super) fn read(
        &mut self,
        connection: ConnectionId,
        request: u64,
        from: Option<Position>,
    ) -> bool {
        if !self.reading.insert(connection) {
            return false;
        }
        // Who begins to read sees all that has happened; who goes on has it soon.
        let mut written = None;
        if from.is_none() {
            self.pass_on();
            let (reader, said) = channel();
            let given = self.passed.as_ref().map(|passed| passed.send(Given::Reader(reader)));
            written = given.map(|_| said);
        }
        let (dir, answer) = (self.dir.clone(), self.answer.clone());
        tokio::task::spawn_blocking(move || {
            if let Some(written) = written {
                // A disk that does not answer gives what it has.
                let _ = written.recv_timeout(READER);
            }
            let blocks = Blocks::read(&dir, from);
            // The driver may have ended meanwhile.
            let _ = answer.send(Answer { connection, request, blocks });
        });
        true
    }

    /// The next answer to a question.
    pub(super) async fn answered(&mut self) -> Answer {
        match self.answers.recv().await {
            Some(answer) => {
                self.reading.remove(&answer.connection);
                answer
            }
            None => std::future::pending().await,
        }
    }

    /// Has everything written, as far as the disk lets it.
    pub(super) fn close(&mut self) {
        self.pass_on();
        self.passed = None;
        // A disk that does not answer keeps nobody from ending.
        let _ = self.ended.recv_timeout(CLOSE);
    }
}

/// The thread that writes.
struct Writer {
    files: EventFiles,
    block: BlockWriter,
    /// The times of the first event of the block and of the last.
    span: Option<(Time, Time)>,
    /// The template that was decoded last, and what it runs.
    template: Option<(Arc<Vec<u8>>, Arc<str>)>,
    /// What a reader must know who begins with a later file.
    instances: BTreeMap<InstanceId, What>,
    executors: BTreeMap<ExecutorId, What>,
    /// The current file says all that.
    is_known: bool,
    log: Log,
    has_failed: bool,
    missing: u64,
}

impl Writer {
    fn new(files: EventFiles, log: Log) -> Writer {
        Writer {
            files,
            block: BlockWriter::default(),
            span: None,
            template: None,
            instances: BTreeMap::new(),
            executors: BTreeMap::new(),
            is_known: true,
            log,
            has_failed: false,
            missing: 0,
        }
    }

    fn run(mut self, passed: &Receiver<Given>, waiting_bytes: &AtomicU64) {
        // When the block is to be written, full or not: events that come all the time do not
        // keep those before them from their readers.
        let mut due: Option<Instant> = None;
        loop {
            let wait = due.map(|due| due.saturating_duration_since(Instant::now()));
            let received = match wait {
                None => passed.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(Duration::ZERO) => Err(RecvTimeoutError::Timeout),
                Some(wait) => passed.recv_timeout(wait),
            };
            match received {
                Ok(Given::Gathered(Gathered { items, bytes })) => {
                    for (now, item) in items {
                        self.take(now, item);
                    }
                    waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
                }
                Ok(Given::Reader(reader)) => {
                    self.write();
                    // It may have waited for too long.
                    let _ = reader.send(());
                }
                Err(RecvTimeoutError::Timeout) => self.write(),
                Err(RecvTimeoutError::Disconnected) => {
                    self.write();
                    return;
                }
            }
            due = self.span.map(|_| due.unwrap_or_else(|| Instant::now() + FLUSH));
        }
    }

    fn take(&mut self, now: Time, item: Item) {
        match item {
            Item::Record(record) => {
                if let Record::Created { instance, options, .. } = &record {
                    self.instances.insert(*instance, What::created(*instance, options));
                }
                if let Record::Destroyed { instance } | Record::Expired { instance, .. } = &record {
                    self.instances.remove(instance);
                }
                Event::of_record(now, &record, |event| self.push(&event));
            }
            Item::Submitted {
                instance,
                first,
                count,
                template,
                rows,
                after,
                data,
                are_alike,
                classes,
                class_runs,
            } => {
                let command = self.command(template, &rows);
                let what = What::Submitted { instance, first, count, command };
                self.push(&Event { at: now, what });
                let mut push = |what| self.push(&Event { at: now, what });
                Reserves::each(instance, first, &class_runs, &classes, &mut push);
                Waits::each(instance, first, &after, |what| self.push(&Event { at: now, what }));
                if let Some(data) = data {
                    let run = Run { instance, first, count };
                    let mut push = |what| self.push(&Event { at: now, what });
                    Uses::each(run, &data, are_alike, &mut push);
                }
            }
            Item::What(what) => {
                match &what {
                    What::InstanceCreated { instance, .. } => {
                        self.instances.insert(*instance, what.clone());
                    }
                    What::ExecutorJoined { executor, .. } => {
                        self.executors.insert(*executor, what.clone());
                    }
                    What::ExecutorGone { executor, .. } => {
                        self.executors.remove(executor);
                    }
                    _ => {}
                }
                self.push(&Event { at: now, what });
            }
        }
    }

    /// What a template runs, for people.
    fn command(&mut self, template: Arc<Vec<u8>>, rows: &Rows) -> Arc<str> {
        if let Some((known, command)) = &self.template
            && Arc::ptr_eq(known, &template)
        {
            return command.clone();
        }
        // A template that does not decode fails its tasks with that error.
        let decoded = Template::from_bytes(&template).ok();
        let command = text(&decoded.map_or_else(String::new, |template| template.pattern(rows)));
        self.template = Some((template, command.clone()));
        command
    }

    fn push(&mut self, event: &Event) {
        let (first, _) = *self.span.get_or_insert((event.at, event.at));
        self.span = Some((first, event.at));
        self.block.push(event);
        if self.block.bytes().len() >= EVENT_BLOCK_BYTES {
            self.write();
        }
    }

    fn write(&mut self) {
        let Some(span) = self.span.take() else { return };
        if !self.is_known {
            self.is_known = self.restate(span.0);
        }
        if self.missing > 0 {
            let events = self.missing;
            self.block.push(&Event { at: span.1, what: What::Missing { events } });
        }
        match self.files.write(&self.block, span, false) {
            Ok(begins_file) => {
                self.is_known = !begins_file;
                self.missing = 0;
                if std::mem::take(&mut self.has_failed) {
                    (self.log)("events are written again");
                }
            }
            Err(error) => {
                self.missing += self.block.events() - u64::from(self.missing > 0);
                if !std::mem::replace(&mut self.has_failed, true) {
                    (self.log)(&format!("events are left out: {error}"));
                }
            }
        }
        self.block.clear();
    }

    /// Says at the beginning of a file who is there. Returns whether that was written.
    fn restate(&mut self, at: Time) -> bool {
        let mut block = BlockWriter::default();
        for what in self.instances.values().chain(self.executors.values()).cloned() {
            block.push(&Event { at, what });
            if block.bytes().len() >= EVENT_BLOCK_BYTES {
                if self.files.write(&block, (at, at), true).is_err() {
                    return false;
                }
                block.clear();
            }
        }
        block.events() == 0 || self.files.write(&block, (at, at), true).is_ok()
    }
}

/// What a record is to those who watch, the bytes that it takes, and how many events it
/// becomes, about.
fn item_of(mut record: Record) -> Option<(Item, u64, u64)> {
    let (bytes, events) = match &mut record {
        Record::Finished { results, .. } => {
            results.iter_mut().for_each(leave_output_out);
            (results.iter().map(|result| result.bytes()).sum(), results.len())
        }
        Record::Attempts { runs } => (size_of_val(runs.as_slice()) as u64, runs.len()),
        Record::Submitted { submission, .. } => {
            let data = submission.data.as_ref().map_or(0, |data| data.bytes());
            let classes = size_of_val(submission.classes.as_slice())
                + size_of_val(submission.class_runs.as_slice());
            (submission.template.len() as u64 + submission.after_bytes() + data + classes as u64, 1)
        }
        Record::Created { .. }
        | Record::Sealed { .. }
        | Record::Cancelled { .. }
        | Record::Retried { .. }
        | Record::Destroyed { .. }
        | Record::Expired { .. }
        | Record::Recomputed { .. }
        | Record::Paused { .. }
        | Record::Prioritized { .. } => (0, 1),
        _ => return None,
    };
    let item = match record {
        Record::Submitted { instance, first, submission, .. } => {
            let are_alike = submission.everywhere.is_some();
            let Submission { count, template, rows, after, data, .. } = submission;
            let Submission { classes, class_runs, .. } = submission;
            Item::Submitted {
                instance,
                first,
                count,
                template,
                rows,
                after,
                data,
                are_alike,
                classes,
                class_runs,
            }
        }
        record => Item::Record(record),
    };
    Some((item, bytes + RECORD_BYTES, events as u64))
}

/// Leaves nothing in a result that no event has: what tasks wrote may be long, and is not
/// to be held for longer because it waits to become an event.
fn leave_output_out(result: &mut Finished) {
    let Some(detail) = result.detail.take() else { return };
    let error = text(&detail.error).to_string();
    let Detail { usage, staging_micros, resources, .. } = *detail;
    let slim = Detail { error, usage, staging_micros, resources, ..Detail::default() };
    if slim != Detail::default() {
        result.detail = Some(Arc::new(slim));
    }
}

#[cfg(test)]
mod tests;
