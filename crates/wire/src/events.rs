//! Events as bytes: blocks that can be read one without another, of a few bytes for each
//! event. docs/events.md has the format.
//!
//! Whatever repeats is left out: instances and times are said when they change, numbers
//! as differences from the event before, and texts once in a block.

mod needs;

use falkon_core::data::object::ObjectId;
use falkon_core::data::stage::{Count, Usage};
use falkon_core::dispatch::diffusion::PolicyName;
use falkon_core::events::{Ended, Event, NamedObject, Run, What};
use falkon_core::limits::{EVENT_TEXT_BYTES_MAX, NAME_BYTES_MAX};
use falkon_core::result::{Outcome, ResourceUsage};
use falkon_core::task::{AllocationId, ExecutorId, InstanceId, Resources, TaskId, Time};
use std::collections::HashMap;
use std::sync::Arc;

/// Texts of a block that are remembered; further ones are written out each time.
const TEXTS_MAX: usize = 4096;
/// Custom resources of an executor that are written.
const CUSTOM_MAX: usize = 64;

/// Bits of the first byte that say what an event is.
const KIND_BITS: u8 = 5;
const KIND_MASK: u8 = (1 << KIND_BITS) - 1;
/// Several tasks; otherwise one.
const SEVERAL: u8 = 1 << KIND_BITS;
/// Not the first attempt.
const AGAIN: u8 = 2 << KIND_BITS;
/// More than the usual about an end follows.
const MORE: u8 = 4 << KIND_BITS;

/// What follows in an end that is out of the ordinary.
const MORE_OUTCOME: u64 = 1;
const MORE_INPUTS: u64 = 2;
const MORE_ERROR: u64 = 4;
const MORE_RESOURCES: u64 = 8;
/// Resources with disk space.
const MORE_DISK: u64 = 16;

macro_rules! kinds {
    ($($name:ident = $number:literal),* $(,)?) => {
        $(const $name: u8 = $number;)*
    };
}
kinds! {
    TIME = 0, INSTANCE = 1, ENDED = 2, ASSIGNED = 3, REQUEUED = 4, SUBMITTED = 5,
    INSTANCE_CREATED = 6, SEALED = 7, CANCELLING = 8, RECOMPUTED = 9, RECOMPUTATION_ENDED = 10,
    INSTANCE_GONE = 11, EXECUTOR_JOINED = 12, EXECUTOR_GONE = 13, EXECUTOR_SUSPENDED = 14,
    PROVISIONED = 15, MISSING = 16, DISPATCHER_STARTED = 17, PAUSED = 18, EXECUTOR_DRAINED = 19,
    PRIORITIZED = 20, RETRIED = 21, WAITS = 22, USES = 23, MOVED = 24,
    RESERVES = 25, COPIED = 26,
}

/// Why bytes are no block of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EventsError {
    /// The bytes end in the middle.
    #[error("the block of events is incomplete")]
    Truncated,
    /// A kind that this release does not know.
    #[error("unknown event {0}: a later release wrote it")]
    UnknownKind(u8),
    /// A value that cannot be.
    #[error("invalid {0} in a block of events")]
    Invalid(&'static str),
}

/// What the next event is told relative to; the same for writers and readers.
#[derive(Debug, Clone, Default)]
struct Before {
    at: u64,
    instance: u64,
    /// One past the tasks of the last event of each kind that has some.
    ended: u64,
    assigned: u64,
    other: u64,
    /// Times of the last end.
    queued: u64,
    dispatched: u64,
    /// The memory of the last end that says it.
    rss_max_bytes: u64,
}

/// Writes a block.
#[derive(Debug, Default)]
pub struct BlockWriter {
    bytes: Vec<u8>,
    events: u64,
    before: Before,
    texts: HashMap<Arc<str>, u64>,
    objects: HashMap<ObjectId, u64>,
    /// The URL of the last object that was new.
    url: Arc<str>,
}

impl BlockWriter {
    /// The block so far.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// How many events it has.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Begins another block.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.events = 0;
        self.before = Before::default();
        self.texts.clear();
        self.objects.clear();
        self.url = Arc::default();
    }

    /// Adds an event.
    pub fn push(&mut self, event: &Event) {
        self.events += 1;
        if event.at.0 != self.before.at {
            self.byte(TIME);
            self.difference(event.at.0, self.before.at);
            self.before.at = event.at.0;
        }
        match &event.what {
            What::Ended(ended) => self.ended(ended),
            What::Assigned { run, executor, attempt } => {
                self.instance(run.instance);
                self.byte(ASSIGNED | several(run.count) | again(*attempt));
                self.difference(run.first.0, self.before.assigned);
                self.count_and_attempt(run.count, *attempt);
                self.number(executor.0);
                self.before.assigned = run.first.0.wrapping_add(run.count);
            }
            What::Requeued { run, attempt } => {
                self.run(REQUEUED | again(*attempt), run);
                if again(*attempt) != 0 {
                    self.number(u64::from(*attempt));
                }
            }
            What::Submitted { instance, first, count, command } => {
                self.run(SUBMITTED, &Run { instance: *instance, first: *first, count: *count });
                self.text(command);
            }
            What::Waits(waits) => self.waits(waits),
            What::Uses(uses) => self.uses(uses),
            What::Reserves(reserves) => self.reserves(reserves),
            What::InstanceCreated { instance, name, policy } => {
                self.instance(*instance);
                let number = needs::number_of(*policy);
                self.byte(INSTANCE_CREATED | more(number > 0));
                self.text(name);
                if number > 0 {
                    self.number(number);
                }
            }
            What::Sealed { instance } => {
                self.instance(*instance);
                self.byte(SEALED);
            }
            What::Cancelling { run } => self.run(CANCELLING, run),
            What::Retried { run } => self.run(RETRIED, run),
            What::Recomputed { instance, task } => {
                self.run(RECOMPUTED, &Run { instance: *instance, first: *task, count: 1 });
            }
            What::Copied { instance, task, executor, first, ran_micros, median_micros } => {
                self.run(COPIED, &Run { instance: *instance, first: *task, count: 1 });
                for number in [executor.0, first.0, *ran_micros, *median_micros] {
                    self.number(number);
                }
            }
            What::RecomputationEnded { run, outcome } => {
                self.run(RECOMPUTATION_ENDED, run);
                self.outcome(*outcome);
            }
            What::InstanceGone { instance, expired } => {
                self.instance(*instance);
                self.byte(INSTANCE_GONE);
                self.number(u64::from(*expired));
            }
            What::ExecutorJoined { executor, name, capacity, allocation, cache_bytes } => {
                self.byte(EXECUTOR_JOINED | more(*cache_bytes > 0));
                self.number(executor.0);
                self.text(name);
                self.number(allocation.map_or(0, |id| id.0.saturating_add(1)));
                self.resources(capacity);
                if *cache_bytes > 0 {
                    self.number(*cache_bytes);
                }
            }
            What::ExecutorGone { executor, why } => {
                self.byte(EXECUTOR_GONE);
                self.number(executor.0);
                self.text(why);
            }
            What::ExecutorSuspended { executor, until } => {
                self.byte(EXECUTOR_SUSPENDED);
                self.number(executor.0);
                self.number(until.0);
            }
            What::ExecutorDrained { executor, is_drained } => {
                self.byte(EXECUTOR_DRAINED);
                self.number(executor.0);
                self.number(u64::from(*is_drained));
            }
            What::Moved { executor, from, bytes } => {
                self.byte(MOVED);
                for number in [executor.0, from.0, *bytes] {
                    self.number(number);
                }
            }
            What::Paused { instance, is_paused } => {
                self.instance(*instance);
                self.byte(PAUSED);
                self.number(u64::from(*is_paused));
            }
            What::Prioritized { instance, priority } => {
                self.instance(*instance);
                self.byte(PRIORITIZED);
                self.difference(i64::from(*priority).cast_unsigned(), 0);
            }
            What::Provisioned { queue, text } => {
                self.byte(PROVISIONED);
                self.text(queue);
                self.text(text);
            }
            What::Missing { events } => {
                self.byte(MISSING);
                self.number(*events);
            }
            What::DispatcherStarted { version } => {
                self.byte(DISPATCHER_STARTED);
                self.text(version);
            }
        }
    }

    fn ended(&mut self, ended: &Ended) {
        let Run { instance, first, count } = ended.run;
        let has_inputs = ended.staging_micros > 0 || ended.usage != Usage::default();
        let more = [
            (ended.outcome != Outcome::Exit(0), MORE_OUTCOME),
            (has_inputs, MORE_INPUTS),
            (ended.error.is_some(), MORE_ERROR),
            (ended.resources.is_some(), MORE_RESOURCES),
            (disk_max_bytes(ended).is_some(), MORE_DISK),
        ];
        let more = more.into_iter().filter(|(is, _)| *is).fold(0, |all, (_, bit)| all | bit);
        self.instance(instance);
        self.byte(ENDED | several(count) | again(ended.attempts) | self::more(more != 0));
        self.difference(first.0, self.before.ended);
        self.count_and_attempt(count, ended.attempts);
        self.number(ended.executor.map_or(0, |id| id.0.saturating_add(1)));
        self.difference(ended.queued.0, self.before.queued);
        self.difference(ended.dispatched.0, self.before.dispatched);
        self.difference(ended.started.0, ended.dispatched.0);
        self.difference(ended.ended.0, ended.started.0);
        if more != 0 {
            self.number(more);
        }
        if more & MORE_OUTCOME != 0 {
            self.outcome(ended.outcome);
        }
        if more & MORE_INPUTS != 0 {
            self.number(ended.staging_micros);
            for count in [ended.usage.local, ended.usage.peer, ended.usage.store] {
                self.number(count.objects);
                self.number(count.bytes);
            }
        }
        if let Some(error) = &ended.error {
            self.text(error);
        }
        if let Some(used) = &ended.resources {
            self.number(used.user_micros);
            self.number(used.system_micros);
            self.difference(used.rss_max_bytes, self.before.rss_max_bytes);
            self.number(used.read_bytes);
            self.number(used.written_bytes);
            self.before.rss_max_bytes = used.rss_max_bytes;
            if let Some(bytes) = used.disk_max_bytes {
                self.number(bytes);
            }
        }
        self.before.ended = first.0.wrapping_add(count);
        self.before.queued = ended.queued.0;
        self.before.dispatched = ended.dispatched.0;
    }

    fn instance(&mut self, id: InstanceId) {
        if id.0 != self.before.instance {
            self.byte(INSTANCE);
            self.number(id.0);
            self.before.instance = id.0;
        }
    }

    fn run(&mut self, kind: u8, run: &Run) {
        self.instance(run.instance);
        self.byte(kind | several(run.count));
        self.difference(run.first.0, self.before.other);
        if run.count != 1 {
            self.number(run.count);
        }
        self.before.other = run.first.0.wrapping_add(run.count);
    }

    fn count_and_attempt(&mut self, count: u64, attempt: u32) {
        if count != 1 {
            self.number(count);
        }
        if attempt != 1 {
            self.number(u64::from(attempt));
        }
    }

    fn outcome(&mut self, outcome: Outcome) {
        let (tag, value) = match outcome {
            Outcome::Exit(code) => (0, Some(code)),
            Outcome::Signal(signal) => (1, Some(signal)),
            Outcome::TimedOut => (2, None),
            Outcome::NotRun => (3, None),
            Outcome::Lost => (4, None),
            Outcome::UpstreamFailed(_) => (5, None),
            Outcome::Unschedulable => (6, None),
            Outcome::Cancelled => (7, None),
            Outcome::NoOutput => (8, None),
            Outcome::NoInput => (9, None),
            Outcome::Unreadable => (10, None),
        };
        self.number(tag);
        if let Outcome::UpstreamFailed(task) = outcome {
            self.number(task.0);
        }
        if let Some(value) = value {
            self.difference(i64::from(value) as u64, 0);
        }
    }

    fn resources(&mut self, capacity: &Resources) {
        self.number(u64::from(capacity.cpus_milli));
        self.number(u64::from(capacity.gpus));
        self.number(capacity.memory_bytes);
        let custom = &capacity.custom[..capacity.custom.len().min(CUSTOM_MAX)];
        self.number(custom.len() as u64);
        for (name, count) in custom {
            self.text(&falkon_core::events::text(name));
            self.number(*count);
        }
    }

    /// A text that this block has had is its number; any other is 0, its length and its
    /// bytes.
    fn text(&mut self, text: &Arc<str>) {
        if let Some(number) = self.texts.get(text) {
            let number = *number;
            self.number(number);
            return;
        }
        self.number(0);
        self.number(text.len() as u64);
        self.bytes.extend_from_slice(text.as_bytes());
        let next = self.texts.len() as u64 + 1;
        if self.texts.len() < TEXTS_MAX {
            self.texts.insert(text.clone(), next);
        }
    }

    fn byte(&mut self, byte: u8) {
        self.bytes.push(byte);
    }

    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.bytes.push(number as u8);
    }

    /// A number near another one, whichever is larger.
    fn difference(&mut self, number: u64, from: u64) {
        let signed = number.wrapping_sub(from) as i64;
        self.number(((signed << 1) ^ (signed >> 63)) as u64);
    }
}

/// The disk space of tasks that ended, if it was measured.
fn disk_max_bytes(ended: &Ended) -> Option<u64> {
    ended.resources.as_ref()?.disk_max_bytes
}

fn several(count: u64) -> u8 {
    if count == 1 { 0 } else { SEVERAL }
}

fn again(attempt: u32) -> u8 {
    if attempt == 1 { 0 } else { AGAIN }
}

fn more(is_more: bool) -> u8 {
    if is_more { MORE } else { 0 }
}

/// Reads a block.
#[derive(Debug, Clone)]
pub struct BlockReader<'a> {
    rest: &'a [u8],
    before: Before,
    texts: Vec<Arc<str>>,
    objects: Vec<Arc<NamedObject>>,
    /// The URL of the last object that was new.
    url: Arc<str>,
}

impl<'a> BlockReader<'a> {
    /// Starts at the beginning of a block.
    #[must_use]
    pub fn new(block: &'a [u8]) -> BlockReader<'a> {
        BlockReader {
            rest: block,
            before: Before::default(),
            texts: Vec::new(),
            objects: Vec::new(),
            url: Arc::default(),
        }
    }

    /// The next event; `None` at the end.
    ///
    /// # Errors
    /// The bytes are none that a writer wrote.
    pub fn next_event(&mut self) -> Result<Option<Event>, EventsError> {
        loop {
            if self.rest.is_empty() {
                return Ok(None);
            }
            let first = self.byte()?;
            match first & KIND_MASK {
                TIME => self.before.at = self.difference(self.before.at)?,
                INSTANCE => self.before.instance = self.number()?,
                kind => {
                    let what = self.what(kind, first)?;
                    return Ok(Some(Event { at: Time(self.before.at), what }));
                }
            }
        }
    }

    fn what(&mut self, kind: u8, first: u8) -> Result<What, EventsError> {
        let instance = InstanceId(self.before.instance);
        Ok(match kind {
            ENDED => What::Ended(self.ended(first)?),
            ASSIGNED => {
                let task = self.difference(self.before.assigned)?;
                let (count, attempt) = self.count_and_attempt(first)?;
                self.before.assigned = task.wrapping_add(count);
                let run = checked(instance, task, count)?;
                What::Assigned { run, executor: ExecutorId(self.number()?), attempt }
            }
            REQUEUED => {
                let run = self.run(first)?;
                let attempt = if first & AGAIN != 0 { self.small()? } else { 1 };
                What::Requeued { run, attempt }
            }
            SUBMITTED => {
                let Run { instance, first, count } = self.run(first)?;
                What::Submitted { instance, first, count, command: self.text()? }
            }
            WAITS => What::Waits(self.waits(first)?),
            USES => What::Uses(self.uses(first)?),
            RESERVES => What::Reserves(self.reserves(first)?),
            INSTANCE_CREATED => {
                let name = self.text()?;
                let policy = if first & MORE != 0 { self.policy()? } else { PolicyName::default() };
                What::InstanceCreated { instance, name, policy }
            }
            SEALED => What::Sealed { instance },
            CANCELLING => What::Cancelling { run: self.run(first)? },
            RETRIED => What::Retried { run: self.run(first)? },
            RECOMPUTED => What::Recomputed { instance, task: self.run(first)?.first },
            COPIED => What::Copied {
                instance,
                task: self.run(first)?.first,
                executor: ExecutorId(self.number()?),
                first: ExecutorId(self.number()?),
                ran_micros: self.number()?,
                median_micros: self.number()?,
            },
            RECOMPUTATION_ENDED => {
                What::RecomputationEnded { run: self.run(first)?, outcome: self.outcome()? }
            }
            INSTANCE_GONE => What::InstanceGone { instance, expired: self.number()? != 0 },
            EXECUTOR_JOINED => {
                let (executor, name) = (ExecutorId(self.number()?), self.text()?);
                let allocation = self.number()?.checked_sub(1).map(AllocationId);
                let capacity = self.resources()?;
                let cache_bytes = if first & MORE != 0 { self.number()? } else { 0 };
                What::ExecutorJoined { executor, name, capacity, allocation, cache_bytes }
            }
            EXECUTOR_GONE => {
                What::ExecutorGone { executor: ExecutorId(self.number()?), why: self.text()? }
            }
            EXECUTOR_SUSPENDED => What::ExecutorSuspended {
                executor: ExecutorId(self.number()?),
                until: Time(self.number()?),
            },
            EXECUTOR_DRAINED => What::ExecutorDrained {
                executor: ExecutorId(self.number()?),
                is_drained: self.number()? != 0,
            },
            MOVED => What::Moved {
                executor: ExecutorId(self.number()?),
                from: ExecutorId(self.number()?),
                bytes: self.number()?,
            },
            PRIORITIZED => What::Prioritized { instance, priority: self.code()? },
            PAUSED => What::Paused { instance, is_paused: self.number()? != 0 },
            PROVISIONED => What::Provisioned { queue: self.text()?, text: self.text()? },
            MISSING => What::Missing { events: self.number()? },
            DISPATCHER_STARTED => What::DispatcherStarted { version: self.text()? },
            unknown => return Err(EventsError::UnknownKind(unknown)),
        })
    }

    fn ended(&mut self, head: u8) -> Result<Ended, EventsError> {
        let first = self.difference(self.before.ended)?;
        let (count, attempts) = self.count_and_attempt(head)?;
        let run = checked(InstanceId(self.before.instance), first, count)?;
        let executor = self.number()?.checked_sub(1).map(ExecutorId);
        let queued = self.difference(self.before.queued)?;
        let dispatched = self.difference(self.before.dispatched)?;
        let started = self.difference(dispatched)?;
        let ended = self.difference(started)?;
        let more = if head & MORE != 0 { self.number()? } else { 0 };
        let outcome = match more & MORE_OUTCOME {
            0 => Outcome::Exit(0),
            _ => self.outcome()?,
        };
        let (mut staging_micros, mut usage) = (0, Usage::default());
        if more & MORE_INPUTS != 0 {
            staging_micros = self.number()?;
            for count in [&mut usage.local, &mut usage.peer, &mut usage.store] {
                *count = Count { objects: self.number()?, bytes: self.number()? };
            }
        }
        let error = if more & MORE_ERROR != 0 { Some(self.text()?) } else { None };
        let resources = match more & MORE_RESOURCES {
            0 => None,
            _ => Some(Box::new(self.resource_usage(more & MORE_DISK != 0)?)),
        };
        self.before.ended = first.wrapping_add(count);
        self.before.queued = queued;
        self.before.dispatched = dispatched;
        let [queued, dispatched, started, ended] = [queued, dispatched, started, ended].map(Time);
        Ok(Ended {
            run,
            outcome,
            executor,
            attempts,
            queued,
            dispatched,
            started,
            ended,
            staging_micros,
            usage,
            resources,
            error,
        })
    }

    fn resource_usage(&mut self, has_disk: bool) -> Result<ResourceUsage, EventsError> {
        let (user_micros, system_micros) = (self.number()?, self.number()?);
        let rss_max_bytes = self.difference(self.before.rss_max_bytes)?;
        self.before.rss_max_bytes = rss_max_bytes;
        Ok(ResourceUsage {
            user_micros,
            system_micros,
            rss_max_bytes,
            read_bytes: self.number()?,
            written_bytes: self.number()?,
            disk_max_bytes: if has_disk { Some(self.number()?) } else { None },
        })
    }

    fn run(&mut self, head: u8) -> Result<Run, EventsError> {
        let first = self.difference(self.before.other)?;
        let count = if head & SEVERAL != 0 { self.number()? } else { 1 };
        self.before.other = first.wrapping_add(count);
        checked(InstanceId(self.before.instance), first, count)
    }

    fn count_and_attempt(&mut self, head: u8) -> Result<(u64, u32), EventsError> {
        let count = if head & SEVERAL != 0 { self.number()? } else { 1 };
        let attempt = if head & AGAIN != 0 { self.small()? } else { 1 };
        Ok((count, attempt))
    }

    fn outcome(&mut self) -> Result<Outcome, EventsError> {
        Ok(match self.number()? {
            0 => Outcome::Exit(self.code()?),
            1 => Outcome::Signal(self.code()?),
            2 => Outcome::TimedOut,
            3 => Outcome::NotRun,
            4 => Outcome::Lost,
            5 => Outcome::UpstreamFailed(TaskId(self.number()?)),
            6 => Outcome::Unschedulable,
            7 => Outcome::Cancelled,
            8 => Outcome::NoOutput,
            9 => Outcome::NoInput,
            10 => Outcome::Unreadable,
            _ => return Err(EventsError::Invalid("outcome")),
        })
    }

    fn code(&mut self) -> Result<i32, EventsError> {
        i32::try_from(self.difference(0)? as i64).map_err(|_| EventsError::Invalid("status"))
    }

    fn resources(&mut self) -> Result<Resources, EventsError> {
        let (cpus_milli, gpus, memory_bytes) = (self.small()?, self.small()?, self.number()?);
        let count = self.number()?;
        if count > CUSTOM_MAX as u64 {
            return Err(EventsError::Invalid("resources"));
        }
        let mut custom = Vec::new();
        for _ in 0..count {
            custom.push((self.text()?.to_string(), self.number()?));
        }
        Ok(Resources { cpus_milli, gpus, memory_bytes, custom })
    }

    fn text(&mut self) -> Result<Arc<str>, EventsError> {
        let number = self.number()?;
        if let Some(known) = number.checked_sub(1) {
            let known = usize::try_from(known).ok().and_then(|known| self.texts.get(known));
            return known.cloned().ok_or(EventsError::Invalid("text"));
        }
        let length = usize::try_from(self.number()?).map_err(|_| EventsError::Invalid("text"))?;
        if length > EVENT_TEXT_BYTES_MAX.max(NAME_BYTES_MAX) {
            return Err(EventsError::Invalid("text"));
        }
        let (text, rest) = self.rest.split_at_checked(length).ok_or(EventsError::Truncated)?;
        self.rest = rest;
        let text = std::str::from_utf8(text).map_err(|_| EventsError::Invalid("text"))?;
        let text: Arc<str> = text.into();
        if self.texts.len() < TEXTS_MAX {
            self.texts.push(text.clone());
        }
        Ok(text)
    }

    fn byte(&mut self) -> Result<u8, EventsError> {
        let (first, rest) = self.rest.split_first().ok_or(EventsError::Truncated)?;
        self.rest = rest;
        Ok(*first)
    }

    fn number(&mut self) -> Result<u64, EventsError> {
        let (mut number, mut shift) = (0u64, 0);
        loop {
            let byte = self.byte()?;
            if shift == 63 && byte > 1 {
                return Err(EventsError::Invalid("number"));
            }
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
            shift += 7;
        }
    }

    fn small(&mut self) -> Result<u32, EventsError> {
        u32::try_from(self.number()?).map_err(|_| EventsError::Invalid("number"))
    }

    fn difference(&mut self, from: u64) -> Result<u64, EventsError> {
        let folded = self.number()?;
        Ok(from.wrapping_add((folded >> 1) ^ (folded & 1).wrapping_neg()))
    }
}

/// Tasks whose numbers can be.
fn checked(instance: InstanceId, first: u64, count: u64) -> Result<Run, EventsError> {
    match first.checked_add(count) {
        Some(_) if count > 0 => Ok(Run { instance, first: TaskId(first), count }),
        _ => Err(EventsError::Invalid("tasks")),
    }
}
