//! Queues by what their tasks need, to find the first that fits some room.

use super::instance::QueueKey;
use super::needs::{DataNeed, Need, NeedId, Needs};
use crate::task::Resources;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Bound;

/// Entries of a block.
const FAN: u32 = 64;

/// Keys of queues in their order, in blocks of 64, and these in blocks of 64
/// again. Each block knows the least of each resource that its queues need, so
/// that one of which none can fit is passed over whole: among a hundred thousand
/// different needs a search that finds nothing looks at some dozens of blocks.
#[derive(Debug, Default)]
pub(super) struct Shelf {
    queues: BTreeMap<(Reverse<i32>, u32), Block>,
    blocks: BTreeMap<(Reverse<i32>, u32), Block>,
    /// Nothing here needs less.
    least: Least,
}

#[derive(Debug, Clone, Copy)]
struct Block {
    /// Which entries there are.
    used: u64,
    /// None of them needs less; it may be too little after one was removed.
    least: Least,
}

/// The least of each resource.
#[derive(Debug, Clone, Copy)]
struct Least {
    cpus_milli: u32,
    gpus: u32,
    memory_bytes: u64,
    data: DataNeed,
}

impl Default for Least {
    /// Of nothing at all: nothing offers so much.
    fn default() -> Least {
        Least {
            cpus_milli: u32::MAX,
            gpus: u32::MAX,
            memory_bytes: u64::MAX,
            data: DataNeed::Cached,
        }
    }
}

impl Least {
    fn of(need: &Need) -> Least {
        let of = |request: &Resources| Least {
            cpus_milli: request.cpus_milli,
            gpus: request.gpus,
            memory_bytes: request.memory_bytes,
            data: need.data,
        };
        need.others.iter().fold(of(&need.resources), |least, other| least.and(of(other)))
    }

    fn and(self, other: Least) -> Least {
        Least {
            cpus_milli: self.cpus_milli.min(other.cpus_milli),
            gpus: self.gpus.min(other.gpus),
            memory_bytes: self.memory_bytes.min(other.memory_bytes),
            data: self.data.min(other.data),
        }
    }

    fn may_fit(self, room: Room<'_>) -> bool {
        self.cpus_milli <= room.resources.cpus_milli
            && self.gpus <= room.resources.gpus
            && self.memory_bytes <= room.resources.memory_bytes
            && self.data <= room.data
    }
}

/// What tasks are to fit.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room<'a> {
    pub(super) resources: &'a Resources,
    /// What the data of tasks may ask.
    pub(super) data: DataNeed,
}

impl Room<'_> {
    pub(super) fn fits(self, need: &Need) -> bool {
        need.any(|request| self.resources.fits(request)) && need.data <= self.data
    }
}

/// The entries of a block from one on.
fn entries(used: u64, first: u32) -> impl Iterator<Item = u32> {
    let mut left = used & u64::MAX.checked_shl(first).unwrap_or(0);
    std::iter::from_fn(move || {
        let next = left.trailing_zeros();
        left &= left.wrapping_sub(1);
        (next < FAN).then_some(next)
    })
}

impl Shelf {
    pub(super) fn insert(&mut self, (priority, need_id): QueueKey, need: &Need) {
        let least = Least::of(need);
        self.least = self.least.and(least);
        let mut number = need_id.0;
        for level in [&mut self.queues, &mut self.blocks] {
            let block = level
                .entry((priority, number / FAN))
                .or_insert(Block { used: 0, least: Least::default() });
            block.used |= 1 << (number % FAN);
            block.least = block.least.and(least);
            number /= FAN;
        }
    }

    pub(super) fn remove(&mut self, (priority, need_id): QueueKey) {
        let mut number = need_id.0;
        for level in [&mut self.queues, &mut self.blocks] {
            let key = (priority, number / FAN);
            let Some(block) = level.get_mut(&key) else { return };
            block.used &= !(1 << (number % FAN));
            if block.used > 0 {
                return;
            }
            level.remove(&key);
            number /= FAN;
        }
        if self.blocks.is_empty() {
            self.least = Least::default();
        }
    }

    /// Whether a queue is there, for checks.
    pub(super) fn has(&self, (priority, need_id): QueueKey) -> bool {
        let block = self.queues.get(&(priority, need_id.0 / FAN));
        block.is_some_and(|block| block.used & (1 << (need_id.0 % FAN)) != 0)
    }

    /// The first queue after `after`, or of all, that fits `room`, and is not
    /// empty as `is_empty` says; and the empty ones that were met before it.
    pub(super) fn first(
        &mut self,
        after: Option<QueueKey>,
        room: Room<'_>,
        needs: &Needs,
        is_empty: impl Fn(&QueueKey) -> bool,
    ) -> (Option<QueueKey>, Vec<QueueKey>) {
        let mut gone = Vec::new();
        if !self.least.may_fit(room) {
            return (None, gone);
        }
        let mut least = Least::default();
        let outer = after.map(|(priority, need)| (priority, need.0 / FAN / FAN));
        let inner = after.map(|(priority, need)| (priority, need.0 / FAN));
        let begin = outer.map_or(Bound::Unbounded, Bound::Included);
        for (&(priority, outer_no), upper) in self.blocks.range_mut((begin, Bound::Unbounded)) {
            if !upper.least.may_fit(room) {
                least = least.and(upper.least);
                continue;
            }
            // Of the block with `after` in it the rest is looked at, so that
            // what it needs at least stays as it was.
            let is_whole = outer != Some((priority, outer_no));
            let first = if is_whole { 0 } else { inner.map_or(0, |(_, number)| number % FAN) };
            let mut upper_least = Least::default();
            for number in entries(upper.used, first).map(|entry| outer_no * FAN + entry) {
                let Some(block) = self.queues.get_mut(&(priority, number)) else { continue };
                if !block.least.may_fit(room) {
                    upper_least = upper_least.and(block.least);
                    continue;
                }
                let is_whole = inner != Some((priority, number));
                let first =
                    if is_whole { 0 } else { after.map_or(0, |(_, need)| need.0 % FAN + 1) };
                let mut block_least = Least::default();
                for entry in entries(block.used, first) {
                    let key = (priority, NeedId(number * FAN + entry));
                    let need = &needs[key.1];
                    block_least = block_least.and(Least::of(need));
                    if !room.fits(need) {
                        continue;
                    }
                    if !is_empty(&key) {
                        return (Some(key), gone);
                    }
                    gone.push(key);
                }
                if is_whole {
                    block.least = block_least;
                }
                upper_least = upper_least.and(block.least);
            }
            if is_whole {
                upper.least = upper_least;
            }
            least = least.and(upper.least);
        }
        if after.is_none() {
            self.least = least;
        }
        (None, gone)
    }
}
