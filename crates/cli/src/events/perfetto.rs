//! Events as a trace of Perfetto (perfetto.dev): protobuf, written by hand. A packet has a
//! few fields, and there are millions.
//!
//! An executor is a track with one below it for each slot that was in use at a time. A run
//! of tasks that ended alike is one slice. Names are interned.

use super::Names;
use falkon_core::events::{Ended, Event, Tally, What};
use falkon_core::result::Status;
use falkon_core::task::{ExecutorId, Time};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// How often the numbers of tasks and slots are written, at most.
const COUNTER_MICROS: u64 = 10_000;
/// Slots of an executor that have tracks of their own; more tasks at a time share the last.
const LANES_MAX: usize = 4096;
/// Names that are remembered before they are written anew.
const NAMES_MAX: usize = 65_536;

// Fields of messages, as perfetto's protos/perfetto/trace has them.
const TRACE_PACKET: u32 = 1;
const PACKET_TIMESTAMP: u32 = 8;
const PACKET_SEQUENCE: u32 = 10;
const PACKET_TRACK_EVENT: u32 = 11;
const PACKET_INTERNED_DATA: u32 = 12;
const PACKET_SEQUENCE_FLAGS: u32 = 13;
const PACKET_TRACK_DESCRIPTOR: u32 = 60;
const EVENT_CATEGORY: u32 = 3;
const EVENT_ANNOTATION: u32 = 4;
const EVENT_TYPE: u32 = 9;
const EVENT_NAME: u32 = 10;
const EVENT_TRACK: u32 = 11;
const EVENT_COUNTER: u32 = 30;
const INTERNED_CATEGORY: u32 = 1;
const INTERNED_NAME: u32 = 2;
const INTERNED_ANNOTATION: u32 = 3;
const ENTRY_NUMBER: u32 = 1;
const ENTRY_NAME: u32 = 2;
const TRACK_NUMBER: u32 = 1;
const TRACK_NAME: u32 = 2;
const TRACK_PARENT: u32 = 5;
const TRACK_COUNTER: u32 = 8;
const ANNOTATION_NAME: u32 = 1;
const ANNOTATION_UINT: u32 = 3;
const ANNOTATION_STRING: u32 = 6;

const SLICE_BEGIN: u64 = 1;
const SLICE_END: u64 = 2;
const INSTANT: u64 = 3;
const COUNTER: u64 = 4;
const STATE_CLEARED: u64 = 1;
const NEEDS_STATE: u64 = 2;
const SEQUENCE: u64 = 1;

/// What is counted over time.
const COUNTERS: [&str; 3] = ["tasks queued", "tasks at executors", "executors"];
/// Categories of slices, by how tasks ended.
const CATEGORIES: [&str; 3] = ["done", "failed", "cancelled"];
/// What slices say besides.
const ANNOTATIONS: [&str; 6] = ["instance", "first", "count", "attempts", "waited_us", "error"];

/// The numbers of tracks: counters first, then executors and their slots.
const TRACKS_FROM: u64 = 1000;

/// A message of protobuf that is being written.
#[derive(Debug, Default)]
struct Message(Vec<u8>);

impl Message {
    fn number(&mut self, field: u32, number: u64) -> &mut Message {
        varint(u64::from(field) << 3, &mut self.0);
        varint(number, &mut self.0);
        self
    }

    fn bytes(&mut self, field: u32, bytes: &[u8]) -> &mut Message {
        varint(u64::from(field) << 3 | 2, &mut self.0);
        varint(bytes.len() as u64, &mut self.0);
        self.0.extend_from_slice(bytes);
        self
    }
}

fn varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// An executor's tracks.
#[derive(Debug)]
struct Executor {
    track: u64,
    /// The track of each slot, and until when it is taken.
    lanes: Vec<(u64, Time)>,
}

/// Makes a trace of events.
#[derive(Debug)]
pub(super) struct Trace {
    out: Vec<u8>,
    tally: Tally,
    counted: Time,
    next_track: u64,
    executors: BTreeMap<ExecutorId, Executor>,
    /// Commands of instances' tasks: from the first of them on.
    commands: HashMap<u64, BTreeMap<u64, Arc<str>>>,
    names: HashMap<Arc<str>, u64>,
    next_name: u64,
}

impl Trace {
    pub(super) fn new() -> Trace {
        let mut trace = Trace {
            out: Vec::new(),
            tally: Tally::default(),
            counted: Time(0),
            next_track: TRACKS_FROM,
            executors: BTreeMap::new(),
            commands: HashMap::new(),
            names: HashMap::new(),
            next_name: 1,
        };
        trace.begin();
        trace
    }

    /// What was written since this was last called.
    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }

    /// How much waits to be taken.
    pub(super) fn len(&self) -> usize {
        self.out.len()
    }

    pub(super) fn add(&mut self, event: &Event, names: &Names) {
        self.tally.add(event);
        match &event.what {
            What::Submitted { instance, first, command, .. } => {
                self.commands.entry(instance.0).or_default().insert(first.0, command.clone());
            }
            What::InstanceGone { instance, .. } => {
                self.commands.remove(&instance.0);
            }
            What::Ended(ended) => self.ended(ended, names),
            What::ExecutorGone { executor, why } => {
                let track = self.executor(*executor, names).track;
                let name = self.name(&format!("gone: {why}").into());
                let mut instant = Message::default();
                instant.number(EVENT_TYPE, INSTANT).number(EVENT_TRACK, track);
                instant.number(EVENT_NAME, name);
                self.event(event.at, &instant);
            }
            _ => {}
        }
        if event.at.since(self.counted) >= COUNTER_MICROS {
            self.count(event.at);
        }
    }

    /// Writes the last numbers.
    pub(super) fn end(&mut self) {
        if let Some((_, last)) = self.tally.span {
            self.count(last);
        }
    }

    fn begin(&mut self) {
        let mut interned = Message::default();
        let lists = [(INTERNED_CATEGORY, &CATEGORIES[..]), (INTERNED_ANNOTATION, &ANNOTATIONS[..])];
        for (field, entries) in lists {
            for (number, entry) in (1..).zip(entries) {
                let mut message = Message::default();
                message.number(ENTRY_NUMBER, number).bytes(ENTRY_NAME, entry.as_bytes());
                interned.bytes(field, &message.0);
            }
        }
        let mut packet = Message::default();
        packet.number(PACKET_SEQUENCE, SEQUENCE).number(PACKET_SEQUENCE_FLAGS, STATE_CLEARED);
        packet.bytes(PACKET_INTERNED_DATA, &interned.0);
        self.packet(&packet);
        for (track, name) in (1..).zip(COUNTERS) {
            let mut descriptor = Message::default();
            descriptor.number(TRACK_NUMBER, track).bytes(TRACK_NAME, name.as_bytes());
            descriptor.bytes(TRACK_COUNTER, &[]);
            self.describe(&descriptor);
        }
    }

    fn count(&mut self, at: Time) {
        self.counted = at;
        let instances = self.tally.instances.values().filter(|instance| !instance.is_gone);
        let (mut queued, mut assigned) = (0, 0);
        for instance in instances {
            queued += instance.queued();
            assigned += instance.assigned();
        }
        let there = self.tally.executors.values().filter(|executor| executor.gone.is_none());
        let executors = there.count() as u64;
        for (track, count) in (1..).zip([queued, assigned, executors]) {
            let mut counter = Message::default();
            counter.number(EVENT_TYPE, COUNTER).number(EVENT_TRACK, track);
            counter.number(EVENT_COUNTER, count);
            self.event(at, &counter);
        }
    }

    fn ended(&mut self, ended: &Ended, names: &Names) {
        let Some(executor) = ended.executor else { return };
        let track = self.lane(executor, ended, names);
        let run = ended.run;
        let commands = self.commands.get(&run.instance.0);
        let command = commands.and_then(|all| all.range(..=run.first.0).next_back());
        let command = command.map_or_else(|| "task".into(), |(_, command)| command.clone());
        let name = self.name(&command);
        let category = match ended.outcome.status() {
            Status::Done => 1,
            Status::Failed => 2,
            Status::Cancelled => 3,
        };
        let mut begin = Message::default();
        begin.number(EVENT_TYPE, SLICE_BEGIN).number(EVENT_TRACK, track);
        begin.number(EVENT_NAME, name).number(EVENT_CATEGORY, category);
        let numbers = [
            run.instance.0,
            run.first.0,
            run.count,
            u64::from(ended.attempts),
            ended.wait_micros(),
        ];
        for (annotation, number) in (1..).zip(numbers) {
            let mut message = Message::default();
            message.number(ANNOTATION_NAME, annotation).number(ANNOTATION_UINT, number);
            begin.bytes(EVENT_ANNOTATION, &message.0);
        }
        if let Some(error) = &ended.error {
            let mut message = Message::default();
            message.number(ANNOTATION_NAME, ANNOTATIONS.len() as u64);
            message.bytes(ANNOTATION_STRING, error.as_bytes());
            begin.bytes(EVENT_ANNOTATION, &message.0);
        }
        self.event(ended.started, &begin);
        let mut end = Message::default();
        end.number(EVENT_TYPE, SLICE_END).number(EVENT_TRACK, track);
        self.event(ended.ended, &end);
    }

    /// The track of a slot that is free from the tasks' start on: the one that was taken
    /// last. Tasks come in the order of their ends, so that no more slots are found than
    /// tasks ran at a time.
    fn lane(&mut self, id: ExecutorId, ended: &Ended, names: &Names) -> u64 {
        let next_track = self.next_track;
        let executor = self.executor(id, names);
        let parent = executor.track;
        let free = executor.lanes.iter_mut().filter(|(_, until)| *until <= ended.started);
        if let Some((track, until)) = free.max_by_key(|(_, until)| *until) {
            *until = ended.ended;
            return *track;
        }
        if executor.lanes.len() >= LANES_MAX {
            return executor.lanes[LANES_MAX - 1].0;
        }
        // The executor may have taken the number just now.
        let track = next_track.max(parent + 1);
        executor.lanes.push((track, ended.ended));
        let number = executor.lanes.len();
        self.next_track = track + 1;
        let mut descriptor = Message::default();
        descriptor.number(TRACK_NUMBER, track).number(TRACK_PARENT, parent);
        descriptor.bytes(TRACK_NAME, format!("slot {number}").as_bytes());
        self.describe(&descriptor);
        track
    }

    fn executor(&mut self, id: ExecutorId, names: &Names) -> &mut Executor {
        if !self.executors.contains_key(&id) {
            let track = self.next_track;
            self.next_track += 1;
            let name = match names.executor(id) {
                Some(name) => format!("executor {} ({name})", id.0),
                None => format!("executor {}", id.0),
            };
            let mut descriptor = Message::default();
            descriptor.number(TRACK_NUMBER, track).bytes(TRACK_NAME, name.as_bytes());
            self.describe(&descriptor);
            self.executors.insert(id, Executor { track, lanes: Vec::new() });
        }
        self.executors.get_mut(&id).expect("it was inserted if it was not there")
    }

    /// The number of an interned name.
    fn name(&mut self, name: &Arc<str>) -> u64 {
        if let Some(number) = self.names.get(name) {
            return *number;
        }
        if self.names.len() >= NAMES_MAX {
            self.names.clear();
        }
        let number = self.next_name;
        self.next_name += 1;
        self.names.insert(name.clone(), number);
        let mut entry = Message::default();
        entry.number(ENTRY_NUMBER, number).bytes(ENTRY_NAME, name.as_bytes());
        let mut interned = Message::default();
        interned.bytes(INTERNED_NAME, &entry.0);
        let mut packet = Message::default();
        packet.number(PACKET_SEQUENCE, SEQUENCE).number(PACKET_SEQUENCE_FLAGS, NEEDS_STATE);
        packet.bytes(PACKET_INTERNED_DATA, &interned.0);
        self.packet(&packet);
        number
    }

    fn event(&mut self, at: Time, event: &Message) {
        let mut packet = Message::default();
        packet.number(PACKET_TIMESTAMP, at.0.saturating_mul(1000));
        packet.number(PACKET_SEQUENCE, SEQUENCE).number(PACKET_SEQUENCE_FLAGS, NEEDS_STATE);
        packet.bytes(PACKET_TRACK_EVENT, &event.0);
        self.packet(&packet);
    }

    fn describe(&mut self, descriptor: &Message) {
        let mut packet = Message::default();
        packet.number(PACKET_SEQUENCE, SEQUENCE);
        packet.bytes(PACKET_TRACK_DESCRIPTOR, &descriptor.0);
        self.packet(&packet);
    }

    fn packet(&mut self, packet: &Message) {
        varint(u64::from(TRACE_PACKET) << 3 | 2, &mut self.out);
        varint(packet.0.len() as u64, &mut self.out);
        self.out.extend_from_slice(&packet.0);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may fail at once")]
mod tests {
    use super::*;
    use falkon_core::data::stage::Usage;
    use falkon_core::events::Run;
    use falkon_core::result::Outcome;
    use falkon_core::task::{InstanceId, Resources, TaskId};

    /// The fields of a message: numbers, and bytes of texts and messages.
    fn fields(mut rest: &[u8]) -> Vec<(u32, u64, Vec<u8>)> {
        fn number(rest: &mut &[u8]) -> u64 {
            let mut number = 0;
            for shift in (0..64).step_by(7) {
                let byte = rest[0];
                *rest = &rest[1..];
                number |= u64::from(byte & 0x7f) << shift;
                if byte < 0x80 {
                    break;
                }
            }
            number
        }
        let mut found = Vec::new();
        while !rest.is_empty() {
            let key = number(&mut rest);
            let value = number(&mut rest);
            let field = (key >> 3) as u32;
            let bytes = match key & 7 {
                0 => Vec::new(),
                2 => {
                    let (bytes, behind) = rest.split_at(value as usize);
                    rest = behind;
                    bytes.to_vec()
                }
                wire => panic!("wire type {wire}"),
            };
            found.push((field, value, bytes));
        }
        found
    }

    fn value(fields: &[(u32, u64, Vec<u8>)], wanted: u32) -> Option<u64> {
        fields.iter().find(|(field, ..)| *field == wanted).map(|(_, value, _)| *value)
    }

    fn ended(task: u64, executor: u64, started: u64, ended: u64) -> Event {
        let ended = Ended {
            run: Run { instance: InstanceId(0), first: TaskId(task), count: 1 },
            outcome: Outcome::Exit(0),
            executor: Some(ExecutorId(executor)),
            attempts: 1,
            queued: Time(1),
            dispatched: Time(2),
            started: Time(started),
            ended: Time(ended),
            staging_micros: 0,
            usage: Usage::default(),
            resources: None,
            error: None,
        };
        Event { at: ended.ended, what: What::Ended(ended) }
    }

    #[test]
    fn slices_of_a_track_follow_one_another_and_there_are_no_more_tracks_than_tasks_at_a_time() {
        let mut names = Names::default();
        let mut trace = Trace::new();
        let joined = |executor| What::ExecutorJoined {
            executor: ExecutorId(executor),
            name: "node".into(),
            capacity: Resources::default(),
            allocation: None,
            cache_bytes: 0,
        };
        let mut events = vec![Event { at: Time(1), what: joined(0) }];
        // Two slots each on two executors, and tasks of different lengths.
        for executor in 0..2 {
            for (slot, length) in [(0, 30), (1, 70)] {
                for place in 0..20 {
                    let start = 10 + place * length;
                    events.push(ended(place * 2 + slot, executor, start, start + length));
                }
            }
        }
        events.sort_by_key(|event| event.at);
        for event in &events {
            names.learn(event);
            trace.add(event, &names);
        }
        trace.end();
        let bytes = trace.take();
        let (mut tracks, mut slices) = (0, BTreeMap::<u64, Vec<(u64, u64)>>::new());
        for (field, _, packet) in fields(&bytes) {
            assert_eq!(field, TRACE_PACKET);
            let packet = fields(&packet);
            for (field, _, inner) in &packet {
                let inner = if *field == PACKET_TRACK_EVENT || *field == PACKET_TRACK_DESCRIPTOR {
                    fields(inner)
                } else {
                    continue;
                };
                if *field == PACKET_TRACK_DESCRIPTOR {
                    tracks += u64::from(value(&inner, TRACK_PARENT).is_some());
                    continue;
                }
                let at = value(&packet, PACKET_TIMESTAMP).unwrap();
                let of = slices.entry(value(&inner, EVENT_TRACK).unwrap()).or_default();
                match value(&inner, EVENT_TYPE).unwrap() {
                    SLICE_BEGIN => of.push((at, 0)),
                    SLICE_END => of.last_mut().unwrap().1 = at,
                    _ => {}
                }
            }
        }
        assert_eq!(tracks, 4);
        slices.retain(|_, slices| !slices.is_empty());
        assert_eq!(slices.values().map(Vec::len).sum::<usize>(), 80);
        for slices in slices.values() {
            assert!(slices.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{slices:?}");
        }
    }
}
