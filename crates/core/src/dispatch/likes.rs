//! How long tasks ran, by what they ask for: of a queue's own tasks, and of those
//! that ask for about as much memory.

use super::needs::Need;
use crate::limits::RUN_MICROS_MAX;
use crate::task::Resources;
use std::collections::BTreeMap;

/// Run times of tasks, in microseconds.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Measured {
    /// Their mean, recent tasks weighing more.
    pub(super) mean_micros: Option<u64>,
    /// The longest of recent tasks.
    pub(super) longest_micros: u64,
}

impl Measured {
    /// Takes a run time of so many tasks into account.
    pub(super) fn measure(&mut self, micros: u64, count: u64) {
        let weight = count.min(8);
        let micros = micros.min(RUN_MICROS_MAX);
        self.longest_micros = micros.max(self.longest_micros - self.longest_micros / 16);
        self.mean_micros = Some(match self.mean_micros {
            None => micros,
            Some(mean) => (mean * (16 - weight) + micros * weight) / 16,
        });
    }

    /// These, or others if there are none.
    pub(super) fn or(self, others: impl FnOnce() -> Measured) -> Measured {
        if self.mean_micros.is_some() { self } else { others() }
    }
}

/// The number of tasks that are like one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct LikeId(u32);

/// Run times of tasks that ask for the same but for memory, of which one asks
/// for less than twice as much as another. A task of a size of its own is
/// expected to run as long as these did; or each would wait for a free slot, as
/// nobody knows how long it takes, and cost a message.
#[derive(Debug, Default)]
pub(super) struct Likes {
    all: Vec<Like>,
    ids: BTreeMap<Need, LikeId>,
    /// Numbers that are not in use.
    free: Vec<LikeId>,
    /// The entry that was asked for last: mostly the one that is asked for next.
    last: LikeId,
}

#[derive(Debug)]
struct Like {
    /// The least of their needs.
    need: Need,
    /// Queues of such tasks.
    queues: u64,
    measured: Measured,
}

/// The least memory of those that are like one another.
fn floor_of(memory_bytes: u64) -> u64 {
    memory_bytes.checked_ilog2().map_or(0, |octave| 1 << octave)
}

impl Like {
    fn is_like(&self, need: &Need) -> bool {
        let Need { resources, priority, instant, data, nodes, others } = &self.need;
        let Resources { cpus_milli, gpus, memory_bytes, custom } = resources;
        (*priority, *instant, *data, *nodes) == (need.priority, need.instant, need.data, need.nodes)
            && (*cpus_milli, *gpus) == (need.resources.cpus_milli, need.resources.gpus)
            && *memory_bytes == floor_of(need.resources.memory_bytes)
            && *custom == need.resources.custom
            && *others == need.others
    }
}

impl Likes {
    /// One more queue has tasks with this need.
    pub(super) fn hold(&mut self, need: &Need) -> LikeId {
        let last = self.all.get(self.last.0 as usize);
        let id = match last.filter(|last| last.queues > 0 && last.is_like(need)) {
            Some(_) => self.last,
            None => self.find_or_add(need),
        };
        self.all[id.0 as usize].queues += 1;
        self.last = id;
        id
    }

    fn find_or_add(&mut self, need: &Need) -> LikeId {
        let mut need = need.clone();
        need.resources.memory_bytes = floor_of(need.resources.memory_bytes);
        if let Some(id) = self.ids.get(&need) {
            return *id;
        }
        let like = Like { need: need.clone(), queues: 0, measured: Measured::default() };
        let id = self.free.pop().unwrap_or(LikeId(self.all.len() as u32));
        match self.all.get_mut(id.0 as usize) {
            Some(place) => *place = like,
            // There are no more of them than needs.
            None => self.all.push(like),
        }
        self.ids.insert(need, id);
        id
    }

    /// One queue less has tasks like these.
    pub(super) fn let_go(&mut self, id: LikeId) {
        let like = &mut self.all[id.0 as usize];
        like.queues -= 1;
        if like.queues == 0 {
            self.ids.remove(&like.need);
            self.free.push(id);
        }
    }

    pub(super) fn measured(&self, id: LikeId) -> Measured {
        self.all[id.0 as usize].measured
    }

    pub(super) fn measure(&mut self, id: LikeId, micros: u64, count: u64) {
        self.all[id.0 as usize].measured.measure(micros, count);
    }
}
