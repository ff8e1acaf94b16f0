//! How many objects are read from the persistent store at a time, ahead of
//! tasks with several inputs.
//!
//! A store that serves many at once serves all of them late, and what has come
//! to nobody can be given to nobody. How many it serves well is not known, so it
//! is found out, as TCP finds out what a link carries: every object that comes
//! in time allows one more, every one that comes late some less.

use crate::data::index::{Index, ObjectNo};
use crate::limits::{READ_MICROS, READS_FIRST_OBJECTS, READS_OBJECTS_MIN};
use crate::task::Time;
use std::collections::BTreeMap;

/// A read is late if it takes so many times as long as one that is alone would.
const LATE: u64 = 2;

/// Objects on their way from the store to an executor that was told to fetch
/// them.
#[derive(Debug)]
pub(super) struct Reads {
    /// When each was given out.
    since: BTreeMap<ObjectNo, Time>,
    /// How many there may be.
    most: usize,
    /// Reads given out before this tell nothing of `most` any more.
    slower_since: Time,
}

impl Default for Reads {
    fn default() -> Reads {
        Reads { since: BTreeMap::new(), most: READS_FIRST_OBJECTS, slower_since: Time(0) }
    }
}

impl Reads {
    /// Whether one more may be given out.
    pub(super) fn may_begin(&self) -> bool {
        self.since.len() < self.most
    }

    /// One was given out.
    pub(super) fn begin(&mut self, now: Time, object: ObjectNo) {
        self.since.insert(object, now);
    }

    /// Takes notice of those that have come, or will not. `transfer_micros` is
    /// what one takes over an executor's link.
    pub(super) fn retire_finished(&mut self, index: &Index, now: Time, transfer_micros: u64) {
        let in_time = transfer_micros.saturating_add(READ_MICROS).saturating_mul(LATE);
        let Reads { since, most, slower_since } = self;
        // If fewer are asked for than may be, they say nothing of more.
        let is_used = 2 * since.len() >= *most;
        since.retain(|object, begun| {
            if index.holders(*object).is_empty() && index.coming_count(*object) > 0 {
                return true;
            }
            if now.since(*begun) <= in_time {
                *most = most.saturating_add(usize::from(is_used));
            } else if *begun >= *slower_since {
                // Reads that were under way meanwhile are late for the same reason.
                *most = (*most - *most / 4).max(READS_OBJECTS_MIN);
                *slower_since = now;
            }
            false
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::object::ObjectId;
    use crate::task::ExecutorId;

    /// Has a store serve reads of 100 ms of an executor's link, of which it
    /// serves `well` at once; how many are read at a time in the end.
    fn converges_at(well: u64) -> usize {
        let (mut index, mut reads) = (Index::new(), Reads::default());
        let place = index.join(ExecutorId(1));
        let mut now = Time(0);
        for round in 0..200u128 {
            let mut objects = Vec::new();
            while reads.may_begin() {
                let id = ObjectId(round << 32 | objects.len() as u128);
                let object = index.want(id, None);
                index.hints(object, place, 1);
                reads.begin(now, object);
                objects.push(id);
            }
            now = now.after(100_000 * (objects.len() as u64).div_ceil(well));
            for id in &objects {
                index.add(place, *id, None);
            }
            reads.retire_finished(&index, now, 100_000);
        }
        reads.most
    }

    #[test]
    fn as_many_are_read_as_a_store_serves_in_time() {
        // Three in turn on each of those that it serves at once are in time.
        for well in [2, 10, 100] {
            let most = converges_at(well);
            let (least, greatest) = (well as usize, 8 * well as usize);
            assert!((least..=greatest).contains(&most), "{most} for {well}");
        }
    }

    #[test]
    fn what_never_comes_is_forgotten() {
        let (mut index, mut reads) = (Index::new(), Reads::default());
        let place = index.join(ExecutorId(1));
        let object = index.want(ObjectId(1), None);
        index.hints(object, place, 1);
        reads.begin(Time(0), object);
        reads.retire_finished(&index, Time(1), 1);
        assert_eq!(reads.since.len(), 1);
        index.cancel_transfer(object, place);
        reads.retire_finished(&index, Time(2), 1);
        assert!(reads.since.is_empty());
    }
}
