//! What tasks did with large objects, by the objects' names: how many read each,
//! and to how many executors it was brought for them. A name is read again, in
//! another version, when a workload runs again; then its object goes to as many
//! executors ahead of the tasks, as a broadcast.
//!
//! What is remembered may be wrong. It decides about transfers alone, only to
//! executors with free room in their caches, and to no more than before: nothing
//! is evicted for it, and no task waits for it.

use super::copies::may_copy;
use super::{CheckError, Object, Placement, ensure};
use crate::data::declared::Located;
use crate::data::index::ObjectNo;
use crate::data::object::ObjectId;
use crate::dispatch::fleet::{Executor, Fleet};
use crate::dispatch::inspect::Earlier;
use crate::limits::{
    AHEAD_OBJECTS_MAX, COPY_SEARCH_EXECUTORS_MAX, MEMORY_BYTES_MAX, MEMORY_MICROS_MAX,
    MEMORY_NAME_BYTES, MEMORY_RUN_BYTES, MEMORY_USE_MICROS,
};
use crate::runset::RunSet;
use crate::task::{ExecutorId, Time};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What is remembered of a name, as it is journaled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remembered {
    /// The name: where the object comes from, in whichever version.
    pub url: Arc<str>,
    /// How many tasks read it.
    pub readers: u64,
    /// To how many executors tasks that read it were sent.
    pub executors: u64,
    /// When the last of them was.
    pub read: Time,
    /// The bytes of the object that was read last.
    pub size: u64,
}

/// What is known of a name. A use of it ends when nobody has read it for a while, or
/// when another version is read than in this use and the one before.
#[derive(Debug, Default)]
struct Name {
    /// What earlier uses came to: the last, or half of what was known before.
    earlier: Earlier,
    /// The use that goes on.
    readers: u64,
    executors: RunSet,
    read: Time,
    size: u64,
    /// The version that is read in this use, and the one before.
    versions: [Option<ObjectId>; 2],
    /// What was journaled last of this use.
    told: Earlier,
    /// Executors that it was sent to in this use, ahead of tasks.
    sent: u64,
}

/// All names.
#[derive(Debug, Default)]
pub(super) struct Memory {
    names: BTreeMap<Arc<str>, Name>,
    /// Bytes of the names, and what each takes besides.
    bytes: u64,
    /// The executor that an object was sent to last.
    turn: ExecutorId,
}

/// What is expected after a use: what there was in it, or half of what was expected
/// before it.
fn expected_after(used: Earlier, earlier: Earlier) -> Earlier {
    Earlier {
        readers: used.readers.max(earlier.readers / 2),
        executors: used.executors.max(earlier.executors / 2),
        size: used.size,
    }
}

impl Name {
    fn now(&self) -> Earlier {
        Earlier { readers: self.readers, executors: self.executors.len(), size: self.size }
    }

    /// What a later use would expect.
    fn expected_later(&self) -> Earlier {
        match self.readers {
            0 => self.earlier,
            _ => expected_after(self.now(), self.earlier),
        }
    }

    /// Whether to read a version now is another use.
    fn is_new(&self, object: ObjectId, now: Time) -> bool {
        !self.versions.contains(&Some(object)) || now.since(self.read) > MEMORY_USE_MICROS
    }

    /// A task that reads it goes to an executor.
    fn was_read(&mut self, (object, size): (ObjectId, u64), by: ExecutorId, now: Time) {
        let is_other = !self.versions.contains(&Some(object));
        if self.is_new(object, now) && self.readers > 0 {
            let (earlier, versions) = (self.expected_later(), self.versions);
            *self = Name { earlier, versions, ..Name::default() };
        }
        if is_other {
            self.versions = [Some(object), self.versions[0]];
        }
        (self.read, self.size) = (now, size);
        self.readers = self.readers.saturating_add(1);
        self.executors.insert(by.0, 1);
    }

    /// What it takes in memory, about.
    fn bytes(&self, url: &Arc<str>) -> u64 {
        let runs = self.executors.run_count() as u64;
        url.len() as u64 + MEMORY_NAME_BYTES + runs * MEMORY_RUN_BYTES
    }

    /// Whether so much has changed since it was journaled that it is again: so a
    /// use of any length is journaled a few times.
    fn is_news(&self) -> bool {
        let Earlier { readers, executors, .. } = self.now();
        let has_grown = executors > self.told.executors + self.told.executors / 4;
        executors > 1 && (has_grown || readers >= self.told.readers.saturating_mul(2))
    }
}

impl Memory {
    /// A task that reads an object goes to an executor. Returns what is to be
    /// journaled, if anything.
    fn was_read(
        &mut self,
        (url, object, size): (&Arc<str>, ObjectId, u64),
        by: ExecutorId,
        now: Time,
    ) -> Option<Remembered> {
        if !self.names.contains_key(url) {
            self.insert(url.clone(), Name::default());
        }
        let name = self.names.get_mut(url)?;
        let before = name.bytes(url);
        name.was_read((object, size), by, now);
        self.bytes = (self.bytes + name.bytes(url)).saturating_sub(before);
        let news = name.is_news().then(|| {
            name.told = name.now();
            remembered(url, name)
        });
        self.forget_some(now);
        news
    }

    /// What was journaled of a name.
    pub(super) fn recover(&mut self, remembered: Remembered) {
        let Remembered { url, readers, executors, read, size } = remembered;
        let earlier = Earlier { readers, executors, size };
        self.insert(url, Name { earlier, read, ..Name::default() });
        self.forget_some(read);
    }

    /// Forgets a name, or all. Returns how many that are.
    fn forget(&mut self, name: Option<&str>) -> u64 {
        let before = self.names.len();
        self.names.retain(|url, _| name.is_some_and(|name| name != &**url));
        self.bytes = self.names.iter().map(|(url, name)| name.bytes(url)).sum();
        (before - self.names.len()) as u64
    }

    /// All that a snapshot needs.
    pub(super) fn all(&self, now: Time) -> impl Iterator<Item = Remembered> + '_ {
        let lasting = self.names.iter().filter(move |(_, name)| {
            now.since(name.read) <= MEMORY_MICROS_MAX && name.expected_later().executors > 1
        });
        lasting.map(|(url, name)| remembered(url, name))
    }

    /// The bytes of all names.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What all uses of a name came to.
    fn known(&self, url: &str, now: Time) -> Option<Earlier> {
        self.name(url, now).map(Name::expected_later).filter(|known| known.executors > 0)
    }

    /// What the uses of a name came to that were earlier than that of an object.
    fn earlier(&self, object: &Object, now: Time) -> Option<Earlier> {
        let name = self.name(&object.url, now)?;
        let earlier = match name.is_new(object.id, now) {
            true => name.expected_later(),
            false => name.earlier,
        };
        Some(earlier).filter(|earlier| earlier.executors > 0)
    }

    fn name(&self, url: &str, now: Time) -> Option<&Name> {
        self.names.get(url).filter(|name| now.since(name.read) <= MEMORY_MICROS_MAX)
    }

    /// To how many more executors an object is sent that so many hold or fetch.
    fn lacking(&self, url: &str, have: u64) -> u64 {
        let Some(name) = self.names.get(url) else { return 0 };
        let expected = name.earlier.executors;
        expected.saturating_sub(have).min(expected.saturating_sub(name.sent))
    }

    fn sent(&mut self, url: &str) {
        if let Some(name) = self.names.get_mut(url) {
            name.sent += 1;
        }
    }

    fn insert(&mut self, url: Arc<str>, name: Name) {
        let bytes = name.bytes(&url);
        let before = self.names.get(&url).map_or(0, |before| before.bytes(&url));
        self.names.insert(url, name);
        self.bytes = (self.bytes + bytes).saturating_sub(before);
    }

    /// Beyond the bound, the half that was read last is kept.
    fn forget_some(&mut self, now: Time) {
        if self.bytes <= MEMORY_BYTES_MAX {
            return;
        }
        let mut reads: Vec<Time> = self.names.values().map(|name| name.read).collect();
        let middle = reads.len() / 2;
        let (_, from, _) = reads.select_nth_unstable(middle);
        let from = *from;
        // Of many at the same time, that is none.
        let is_kept = |name: &Name| name.read > from && now.since(name.read) <= MEMORY_MICROS_MAX;
        self.names.retain(|_, name| is_kept(name));
        self.bytes = self.names.iter().map(|(url, name)| name.bytes(url)).sum();
    }

    /// For the state checker: the bytes are those of the names.
    pub(super) fn check(&self) -> Result<(), CheckError> {
        let bytes: u64 = self.names.iter().map(|(url, name)| name.bytes(url)).sum();
        ensure!(bytes == self.bytes, "the names that are remembered are counted wrongly");
        ensure!(bytes <= MEMORY_BYTES_MAX, "too many names are remembered");
        for (url, name) in &self.names {
            let sent = name.sent <= name.earlier.executors;
            ensure!(sent, "{url} was sent to more executors than it had before");
        }
        Ok(())
    }
}

fn remembered(url: &Arc<str>, name: &Name) -> Remembered {
    let Earlier { readers, executors, size } = name.expected_later();
    Remembered { url: url.clone(), readers, executors, read: name.read, size }
}

impl Placement {
    /// What was journaled of a name.
    pub(in crate::dispatch) fn recover_remembered(&mut self, remembered: Remembered) {
        self.memory.recover(remembered);
    }

    /// Forgets what is remembered of a name, or of all. Returns how many names those are.
    pub(in crate::dispatch) fn forget_remembered(&mut self, name: Option<&str>) -> u64 {
        self.memory.forget(name)
    }

    /// All that is remembered, for a snapshot.
    pub(in crate::dispatch) fn remembered(
        &self,
        now: Time,
    ) -> impl Iterator<Item = Remembered> + '_ {
        self.memory.all(now)
    }

    /// About the bytes of that.
    pub(in crate::dispatch) fn remembered_bytes(&self) -> u64 {
        self.memory.bytes()
    }

    /// What all uses of a name came to.
    pub(in crate::dispatch) fn known_of(&self, url: &str, now: Time) -> Option<Earlier> {
        self.memory.known(url, now)
    }

    /// What the uses of an object's name came to that were earlier than its own.
    pub(in crate::dispatch) fn earlier(&self, object: &Object, now: Time) -> Option<Earlier> {
        self.memory.earlier(object, now)
    }

    /// The bytes of an object, as far as they are known: those of what a task wrote are
    /// as soon as it is held.
    pub(in crate::dispatch) fn size_of(&self, object: &Object) -> Option<u64> {
        object.size.or_else(|| self.index.size(self.index.number(object.id)?))
    }

    /// A task that reads a large object goes to an executor. Returns what is to be
    /// journaled, if anything.
    pub(in crate::dispatch) fn was_read(
        &mut self,
        (object, size): (&Object, u64),
        by: ExecutorId,
        now: Time,
    ) -> Option<Remembered> {
        self.memory.was_read((&object.url, object.id, size), by, now)
    }

    /// Executors, of those that `takes` admits, that are to fetch an object ahead of
    /// tasks, because as many had it before; no more than `most` have it then.
    pub(in crate::dispatch) fn send_ahead(
        &mut self,
        (object, size): (&Object, u64),
        most: u64,
        fleet: &Fleet,
        takes: impl Fn(&Executor) -> bool,
    ) -> Vec<(ExecutorId, Located)> {
        let mut sent = Vec::new();
        let Some(number) = self.index.number(object.id) else { return sent };
        let have = (self.index.holders(number).len() + self.index.coming_count(number)) as u64;
        let lacking = self.memory.lacking(&object.url, have);
        for _ in 0..lacking.min(most.saturating_sub(have)) {
            let Some(to) = self.next_ahead(number, size, fleet, &takes) else { break };
            let serves = |id| fleet[id].serves_others();
            sent.push((to, self.locate(to, object, false, serves)));
            self.memory.sent(&object.url);
        }
        sent
    }

    /// An executor with free room in its cache, one after the other; a few are
    /// looked at.
    fn next_ahead(
        &mut self,
        number: ObjectNo,
        size: u64,
        fleet: &Fleet,
        takes: &impl Fn(&Executor) -> bool,
    ) -> Option<ExecutorId> {
        let turn = self.memory.turn;
        let next = fleet
            .after(Some(turn))
            .chain(fleet.after(None).take_while(|executor| executor.id <= turn))
            .take(COPY_SEARCH_EXECUTORS_MAX);
        let has_room = |executor: &Executor| {
            let free = executor.cache.map(|cache| cache.capacity.saturating_sub(cache.used));
            free.is_some_and(|free| size <= free)
        };
        let mut fit = next.filter(|executor| {
            let place = self.place(executor.id);
            may_copy(executor)
                && takes(executor)
                && has_room(executor)
                && !self.index.holds(place, number)
                && !self.index.is_coming(place, number)
                && self.index.coming_to(place) < AHEAD_OBJECTS_MAX
        });
        let id = fit.next()?.id;
        self.memory.turn = id;
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 24 * 3_600_000_000;

    /// A name of which every read is kept.
    #[derive(Default)]
    struct Model {
        uses: Vec<Vec<(ObjectId, ExecutorId, Time)>>,
    }

    impl Model {
        fn was_read(&mut self, object: ObjectId, by: ExecutorId, now: Time) {
            let all = || self.uses.iter().flatten();
            let late = all().last().is_none_or(|(.., at)| now.since(*at) > MEMORY_USE_MICROS);
            // Versions are counted up.
            if late || all().all(|(version, ..)| *version < object) {
                self.uses.push(Vec::new());
            }
            self.uses.last_mut().unwrap().push((object, by, now));
        }

        /// Readers and executors, by the uses before the one that goes on.
        fn earlier(&self) -> (u64, u64) {
            let finished = &self.uses[..self.uses.len().saturating_sub(1)];
            finished.iter().fold((0, 0), |(readers, executors), reads| {
                let mut different: Vec<u64> = reads.iter().map(|(_, by, _)| by.0).collect();
                different.sort_unstable();
                different.dedup();
                let now = (reads.len() as u64, different.len() as u64);
                (now.0.max(readers / 2), now.1.max(executors / 2))
            })
        }
    }

    /// The next of a sequence that a seed gives.
    fn draw(state: &mut u64, below: u64) -> u64 {
        *state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (*state >> 33) % below
    }

    fn named(url: &Arc<str>, id: ObjectId) -> Object {
        Object { id, url: url.clone(), version: "1".into(), size: None }
    }

    #[test]
    fn names_are_remembered_as_a_model_does() {
        for seed in 0..40 {
            let (mut state, mut memory) = (seed, Memory::default());
            let mut models: Vec<Model> = (0..5).map(|_| Model::default()).collect();
            let (mut now, mut versions) = (Time(1), [0_u128; 5]);
            for _ in 0..500 {
                let pause = [1, 1_000_000, MEMORY_USE_MICROS, MEMORY_USE_MICROS + 1];
                now = now.after(pause[draw(&mut state, 4) as usize]);
                let name = draw(&mut state, 5) as usize;
                let url: Arc<str> = format!("/data/{name}").into();
                let by = ExecutorId(draw(&mut state, 30));
                let (version, older) = (&mut versions[name], u128::from(draw(&mut state, 2)));
                let object = match *version > 0 && draw(&mut state, 40) > 0 {
                    true => ObjectId(*version - older.min(*version - 1)),
                    false => ObjectId(*version + 1),
                };
                *version = object.0.max(*version);
                memory.was_read((&url, object, 7), by, now);
                models[name].was_read(object, by, now);
                let (readers, executors) = models[name].earlier();
                let expected =
                    Some(Earlier { readers, executors, size: 7 }).filter(|_| executors > 0);
                assert_eq!(memory.earlier(&named(&url, object), now), expected, "seed {seed}");
                assert_eq!(memory.lacking(&url, 3), executors.saturating_sub(3), "seed {seed}");
                assert_eq!(memory.known(&url, now.after(MEMORY_MICROS_MAX + 1)), None);
                let later = Object { id: ObjectId(object.0 + 9), ..named(&url, object) };
                assert_eq!(memory.earlier(&later, now), memory.known(&url, now));
                memory.check().unwrap();
            }
        }
    }

    #[test]
    fn what_is_journaled_is_little_and_nearly_what_was() {
        const READS: u64 = 100_000;
        let (url, mut memory) = (Arc::from("/data/a"), Memory::default());
        let mut journaled = Vec::new();
        for read in 0..READS {
            let by = ExecutorId(read % 1000);
            journaled.extend(memory.was_read((&url, ObjectId(1), 7), by, Time(read)));
        }
        assert!(journaled.len() < 60, "{} records", journaled.len());
        let mut after = Memory::default();
        journaled.into_iter().for_each(|record| after.recover(record));
        let found = after.known(&url, Time(READS)).unwrap();
        assert!((800..=1000).contains(&found.executors), "{found:?}");
        assert!((READS / 2..=READS).contains(&found.readers), "{found:?}");
        // A snapshot says all of it.
        let mut after = Memory::default();
        memory.all(Time(READS)).for_each(|record| after.recover(record));
        let found = after.known(&url, Time(READS));
        assert_eq!(found, Some(Earlier { readers: READS, executors: 1000, size: 7 }));
        assert_eq!(memory.all(Time(READS).after(31 * DAY)).count(), 0);
    }

    #[test]
    fn an_object_is_sent_to_no_more_than_had_it_before_and_once() {
        let (url, mut memory) = (Arc::from("/data/a"), Memory::default());
        memory.recover(Remembered {
            url: Arc::clone(&url),
            readers: 9,
            executors: 5,
            size: 7,
            read: Time(1),
        });
        memory.was_read((&url, ObjectId(1), 7), ExecutorId(1), Time(2));
        assert_eq!(memory.lacking(&url, 1), 4);
        (0..4).for_each(|_| memory.sent(&url));
        // Those that have evicted it fetch it with a task.
        assert_eq!(memory.lacking(&url, 2), 1);
        assert_eq!(memory.lacking(&url, 5), 0);
        memory.check().unwrap();
    }

    #[test]
    fn the_names_that_are_remembered_are_bounded() {
        let mut memory = Memory::default();
        for number in 0..60_000_u64 {
            let url = format!("/data/{number:0100}").into();
            memory.was_read((&url, ObjectId(1), 7), ExecutorId(number % 3), Time(number));
        }
        memory.check().unwrap();
        let last = format!("/data/{:0100}", 59_999);
        assert!(memory.names.contains_key(last.as_str()));
        assert!(memory.names.len() > 10_000, "{}", memory.names.len());
    }
}
