//! What the executors here hold, for relays that lend them: the dispatcher above places
//! tasks by it. Relays ask for what has changed since they last asked.

use super::Dispatcher;
use crate::data::object::ObjectId;
use crate::limits::HOLDINGS_OBJECTS_MAX;
use std::collections::{BTreeMap, BTreeSet};

/// Objects that some executor holds, or none any more, since a relay last asked.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Holdings {
    /// Whatever was said before is forgotten.
    pub anew: bool,
    /// What to ask with next.
    pub upto: u64,
    /// What is held, with its size.
    pub added: Vec<(ObjectId, u64)>,
    /// What is held no longer.
    pub removed: Vec<ObjectId>,
}

/// An object, as it was said last.
#[derive(Debug, Clone, Copy)]
struct Entry {
    revision: u64,
    /// Its size, if it is held.
    held: Option<u64>,
}

/// Objects in the order in which they were last held or dropped. Of more than
/// [`HOLDINGS_OBJECTS_MAX`] the first to be held are known.
#[derive(Debug, Default)]
pub(super) struct HeldLog {
    objects: BTreeMap<ObjectId, Entry>,
    by_revision: BTreeMap<u64, ObjectId>,
    /// Revisions of objects that are held no longer.
    gone: BTreeSet<u64>,
    revision: u64,
    /// Whoever asks with less than this is told all anew.
    complete_from: u64,
}

impl HeldLog {
    /// Nothing that was said before need be so.
    fn restart(&mut self) {
        let revision = self.revision + 1;
        *self = HeldLog { revision, complete_from: revision, ..HeldLog::default() };
    }

    /// An object is held, with this size, or not any more.
    fn note(&mut self, object: ObjectId, held: Option<u64>) {
        let before = self.objects.get(&object).copied();
        let was_held = before.is_some_and(|entry| entry.held.is_some());
        let is_full = self.objects.len() - self.gone.len() >= HOLDINGS_OBJECTS_MAX;
        if was_held == held.is_some() || (is_full && !was_held) {
            return;
        }
        if let Some(before) = before {
            self.by_revision.remove(&before.revision);
            self.gone.remove(&before.revision);
        }
        self.revision += 1;
        self.objects.insert(object, Entry { revision: self.revision, held });
        self.by_revision.insert(self.revision, object);
        if held.is_none() {
            self.gone.insert(self.revision);
        }
        while self.gone.len() > HOLDINGS_OBJECTS_MAX
            && let Some(oldest) = self.gone.pop_first()
        {
            self.complete_from = oldest;
            if let Some(object) = self.by_revision.remove(&oldest) {
                self.objects.remove(&object);
            }
        }
    }

    /// What has changed since this revision; 0 is of all.
    fn since(&self, revision: u64) -> Holdings {
        let anew = revision == 0 || revision < self.complete_from || revision > self.revision;
        let mut holdings = Holdings { anew, upto: self.revision, ..Holdings::default() };
        let from = if anew { 0 } else { revision + 1 };
        for object in self.by_revision.range(from..).map(|(_, object)| object) {
            match self.objects.get(object).and_then(|entry| entry.held) {
                Some(size) => holdings.added.push((*object, size)),
                None if !anew => holdings.removed.push(*object),
                None => {}
            }
        }
        holdings
    }
}

impl Dispatcher {
    /// Which objects the executors here hold, for a relay that was last told up to
    /// `since`; 0 is nothing.
    pub fn holdings(&mut self, since: u64) -> Holdings {
        if self.comeback.until().is_some() {
            // Executors come back, and say what they hold then.
            return Holdings { upto: since, ..Holdings::default() };
        }
        let (is_all, changes) = self.placement.take_held_changes();
        if is_all {
            self.held_log.restart();
        }
        changes.into_iter().for_each(|(object, held)| self.held_log.note(object, held));
        self.held_log.since(since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

        #[test]
        fn readers_that_ask_at_any_time_know_what_is_held(
            steps in prop::collection::vec((0..12u128, any::<bool>(), 0..8u8), 0..200)
        ) {
            let mut log = HeldLog::default();
            log.restart();
            let mut held: BTreeMap<ObjectId, u64> = BTreeMap::new();
            let mut readers = [(0, BTreeMap::new()), (0, BTreeMap::new())];
            for (number, is_held, what) in steps {
                let object = ObjectId(number);
                let _ = match is_held {
                    true => held.insert(object, 7),
                    false => held.remove(&object),
                };
                log.note(object, is_held.then_some(7));
                if what == 7 {
                    log.restart();
                    held.iter().for_each(|(object, size)| log.note(*object, Some(*size)));
                }
                if let Some((since, known)) = readers.get_mut(usize::from(what)) {
                    let said = log.since(*since);
                    if said.anew {
                        known.clear();
                    }
                    known.extend(said.added);
                    for object in &said.removed {
                        known.remove(object);
                    }
                    *since = said.upto;
                    prop_assert_eq!(&*known, &held);
                }
            }
        }
    }

    #[test]
    fn what_is_known_of_many_objects_is_bounded() {
        let most = HOLDINGS_OBJECTS_MAX as u128;
        let mut log = HeldLog::default();
        (0..2 * most).for_each(|number| log.note(ObjectId(number), Some(1)));
        assert_eq!(log.since(0).added.len(), HOLDINGS_OBJECTS_MAX);
        let upto = log.since(0).upto;
        for number in 0..2 * most {
            log.note(ObjectId(number), None);
            log.note(ObjectId(2 * most + number), Some(1));
            log.note(ObjectId(2 * most + number), None);
        }
        assert!(log.objects.len() <= 2 * HOLDINGS_OBJECTS_MAX);
        // What it was to be told is not known any more.
        assert!(log.since(upto).anew && log.since(upto).added.is_empty());
    }
}
