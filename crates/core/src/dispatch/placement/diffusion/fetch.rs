//! Fetching ahead: which object goes where before the tasks that need it.

use super::queue::NONE;
use super::select::bytes;
use super::wait_lists::{Local, WaitLists};
use super::{Costs, Waiting};
use crate::data::index::{Index, ObjectNo, Place};
use crate::dispatch::check::{CheckError, ensure};
use crate::limits::{READ_MICROS, SCAN_TASKS_MAX};
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// Objects looked at for one that is worth another replica.
const CROWDED_SEARCH: usize = 8;
/// The least time that a transfer takes, in microseconds.
const TRANSFER_MICROS_MIN: u128 = 1_000;
/// Of so many fetches, one is for the task that has waited longest, so that an
/// object that few tasks wait for is fetched in the end.
const OLDEST_EACH: u64 = 16;

/// Among which objects an object is, and how much it is wanted there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Wish {
    /// Nobody waits for it, it was just given out, or it is on its way to the
    /// first who will hold it.
    #[default]
    None,
    /// Nobody holds it, and it is on no way.
    Absent(u64, Reverse<u64>),
    /// The number of tasks that wait for each holder of it, in powers of two, so
    /// that it seldom changes.
    Held(u64),
}

impl Wish {
    fn of(index: &Index, wait_lists: &WaitLists, local: Local) -> Wish {
        let object = wait_lists.object(local);
        // Inputs of tasks with several are co-located elsewhere.
        let waiting = wait_lists.alone(local) as u64;
        let (held, coming) =
            (index.holders(object).len() as u64, index.coming_count(object) as u64);
        match (waiting, held, coming) {
            (0, _, _) => Wish::None,
            (_, 0, 0) => Wish::Absent(waiting, Reverse(wait_lists.first_seq(local))),
            // Another executor could only read it from where it is kept, once
            // more, and have it later than the first.
            (_, 0, _) => Wish::None,
            (_, held, coming) => {
                let each = waiting / (held + coming);
                Wish::Held(each.checked_ilog2().map_or(0, |log| 1 << log))
            }
        }
    }
}

/// Objects that tasks wait for, by how much they should be fetched.
#[derive(Debug, Default)]
pub(super) struct Wishes {
    wishes: Vec<Wish>,
    absent: BTreeSet<(u64, Reverse<u64>, Local)>,
    held: BTreeSet<(u64, Local)>,
    /// How many fetches were given out.
    given: u64,
}

impl Wishes {
    /// Puts an object where it belongs; under policies that fetch nothing
    /// ahead it belongs nowhere.
    pub(super) fn rescore(
        &mut self,
        index: &Index,
        wait_lists: &WaitLists,
        local: Local,
        is_used: bool,
    ) {
        if is_used {
            self.put(local, Wish::of(index, wait_lists, local));
        }
    }

    /// Every object is where it belongs.
    ///
    /// # Errors
    /// Says what does not hold.
    pub(super) fn check(
        &self,
        index: &Index,
        wait_lists: &WaitLists,
        is_used: bool,
    ) -> Result<(), CheckError> {
        let (mut absent, mut held) = (BTreeSet::new(), BTreeSet::new());
        for local in wait_lists.locals().filter(|_| is_used) {
            let wish = Wish::of(index, wait_lists, local);
            let known = self.wishes.get(local as usize).copied().unwrap_or_default();
            ensure!(known == wish, "an object is wanted as {known:?}, not {wish:?}");
            match wish {
                Wish::None => true,
                Wish::Absent(waiting, first) => absent.insert((waiting, first, local)),
                Wish::Held(each) => held.insert((each, local)),
            };
        }
        ensure!(absent == self.absent, "objects that nobody holds are listed wrongly");
        ensure!(held == self.held, "objects that somebody holds are listed wrongly");
        Ok(())
    }

    /// Whether the next fetch is for the task that has waited longest.
    pub(super) fn is_oldest_s_turn(&self) -> bool {
        self.given % OLDEST_EACH == OLDEST_EACH - 1
    }

    fn put(&mut self, local: Local, wish: Wish) {
        let at = local as usize;
        if self.wishes.len() <= at {
            self.wishes.resize(at + 1, Wish::None);
        }
        let before = std::mem::replace(&mut self.wishes[at], wish);
        if before == wish {
            return;
        }
        match before {
            Wish::None => {}
            Wish::Absent(waiting, first) => {
                self.absent.remove(&(waiting, first, local));
            }
            Wish::Held(each) => {
                self.held.remove(&(each, local));
            }
        }
        match wish {
            Wish::None => {}
            Wish::Absent(waiting, first) => {
                self.absent.insert((waiting, first, local));
            }
            Wish::Held(each) => {
                self.held.insert((each, local));
            }
        }
    }
}

impl Waiting {
    /// The object that an executor with nothing better to fetch should fetch, under
    /// a policy that fetches ahead: an object whose tasks would wait longer
    /// for those who hold it than a transfer takes; else one that brings the
    /// inputs of tasks together that have several; else the one with the most
    /// tasks waiting among those that nobody holds or fetches. The object is
    /// not given out again until the caller, who asks [`Index::hints`] for
    /// sources, has said so by [`Waiting::coming_changed`].
    pub fn fetch(&mut self, index: &Index, place: Place, costs: &Costs) -> Option<ObjectNo> {
        if !self.policy.fetches_ahead() {
            return None;
        }
        let crowded = self.crowded(index, place, costs);
        let found = crowded.or_else(|| {
            let parts = if self.many > 0 { self.colocate(index, place, costs) } else { None };
            parts.or_else(|| self.absent(index, place, costs))
        })?;
        self.wishes.given += 1;
        if let Some(local) = self.wait_lists.local(found) {
            self.wishes.put(local, Wish::None);
        }
        Some(found)
    }

    /// An object whose tasks would wait longer for its holders than for a
    /// transfer to this executor.
    fn crowded(&self, index: &Index, place: Place, costs: &Costs) -> Option<ObjectNo> {
        let wait = |each: u64| {
            u128::from(each) * u128::from(costs.task_micros) / u128::from(costs.slots.max(1))
        };
        // A transfer that brings more tasks their first copy comes before one
        // that only spreads fewer over more executors.
        let rival = self.wishes.absent.last().map_or(0, |(waiting, ..)| *waiting);
        let most = self.wishes.held.iter().rev().take(CROWDED_SEARCH);
        let most = most.take_while(|(each, _)| *each > rival);
        let mut waited = most
            .map(|(each, local)| (wait(*each), self.wait_lists.object(*local)))
            .take_while(|(wait, _)| *wait > TRANSFER_MICROS_MIN);
        let found = waited.find(|(wait, object)| {
            let speed = u128::from(costs.peer_bytes_per_second.max(1));
            let transfer = bytes(index, *object) * 1_000_000 / speed;
            *wait > transfer && self.may_come(index, place, *object)
        });
        found.map(|(_, object)| object)
    }

    fn may_come(&self, index: &Index, place: Place, object: ObjectNo) -> bool {
        let most = self.replication_max as usize;
        let copies = index.holders(object).len() + index.coming_count(object);
        !index.holds(place, object)
            && !index.is_coming(place, object)
            && !self.unfetchable.contains(&object)
            && (most == 0 || copies < most)
    }

    /// The most wanted object that nobody holds or fetches, or now and then
    /// the one that was wanted first among the first tasks of the queue.
    fn absent(&self, index: &Index, place: Place, costs: &Costs) -> Option<ObjectNo> {
        // An executor that begins with nothing reads one object, and not many
        // that all come late because all begin so.
        if index.held_count(place) == 0 && index.coming_to(place) > 0 {
            return None;
        }
        // Reads that share a store or a link come together, the first as late as
        // the last. One after the other, tasks of the first run while the next
        // comes. Only what is short is read beside others: it waits for the
        // store's answer rather than for its bytes.
        let reads = index.coming_objects(place).filter(|object| index.holders(*object).is_empty());
        let coming: u128 = reads.map(|object| bytes(index, object)).sum();
        let speed = u128::from(costs.peer_bytes_per_second.max(1));
        if coming * 1_000_000 / speed > u128::from(READ_MICROS) {
            return None;
        }
        let fetchable = |local| !self.unfetchable.contains(&self.wait_lists.object(local));
        let mut absent = self.wishes.absent.iter().rev().take(SCAN_TASKS_MAX);
        let (.., local) = absent.find(|(.., local)| fetchable(*local))?;
        if self.wishes.is_oldest_s_turn() {
            let mut at = self.queue.first();
            for _ in 0..SCAN_TASKS_MAX {
                if at == NONE {
                    break;
                }
                let is_absent = |object: &&ObjectNo| {
                    index.holders(**object).is_empty()
                        && index.coming_count(**object) == 0
                        && !self.unfetchable.contains(*object)
                };
                if let [object] = self.queue.inputs(at)
                    && is_absent(&object)
                {
                    return Some(*object);
                }
                at = self.queue.after(at);
            }
        }
        Some(self.wait_lists.object(*local))
    }
}
