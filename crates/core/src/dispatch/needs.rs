//! What tasks need, numbered for as long as there are such tasks.

use crate::data::declared::Declared;
use crate::task::{Kind, Resources, TaskClass};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Index;

/// What the data objects of tasks ask of those who run them, the least first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) enum DataNeed {
    /// They have none.
    #[default]
    None,
    /// A cache, which is filled from persistent stores, and a place to stage what goes
    /// into archives there: here, or below a relay.
    Stored,
    /// A cache that others can read: here, or below a relay and through it.
    Cached,
}

impl DataNeed {
    /// What the data of a submission's tasks ask.
    pub(super) fn of(data: Option<&Declared>) -> DataNeed {
        match data {
            None => DataNeed::None,
            Some(data) if data.is_stored() => DataNeed::Stored,
            Some(_) => DataNeed::Cached,
        }
    }
}

/// What decides where and in which order tasks run. Needs are numbered once
/// per dispatcher; tasks of an instance with the same need share a queue.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Need {
    pub(super) resources: Resources,
    pub(super) priority: i32,
    /// Takes no time, so holds no slot; with data objects it waits for them,
    /// and is like others.
    pub(super) instant: bool,
    pub(super) data: DataNeed,
    /// How many executors run each of the tasks together: at least one.
    pub(super) nodes: u32,
    /// The resources that they may hold instead, the preferred first. Tasks that were sent have a
    /// need without: `dispatch/alternatives.rs`.
    pub(super) others: Vec<Resources>,
}

impl Need {
    pub(super) fn of(class: &TaskClass, data: DataNeed) -> Need {
        Need {
            resources: class.resources.known(),
            priority: class.priority,
            instant: class.kind == Kind::Noop && data == DataNeed::None && !class.is_gang(),
            data,
            nodes: class.nodes.max(1),
            others: class.alternatives.clone(),
        }
    }

    /// The same for each of its alternatives, in their order; none if there is one alone.
    pub(super) fn alternatives(&self) -> impl Iterator<Item = Need> {
        let requests = self.requests().filter(|_| self.has_alternatives());
        requests.map(|resources| {
            let (resources, others) = (resources.clone(), Vec::new());
            Need { resources, others, ..self.clone() }
        })
    }

    /// Whether its tasks may hold one thing or another.
    pub(super) fn has_alternatives(&self) -> bool {
        !self.others.is_empty()
    }

    /// The resources that its tasks may hold, the preferred first.
    pub(super) fn requests(&self) -> impl Iterator<Item = &Resources> {
        std::iter::once(&self.resources).chain(&self.others)
    }

    /// Whether something is true of one of the things that its tasks may hold.
    pub(super) fn any(&self, is_true: impl Fn(&Resources) -> bool) -> bool {
        is_true(&self.resources) || self.others.iter().any(is_true)
    }

    /// Whether it may run where no CPU is free.
    pub(super) fn is_slotless(&self) -> bool {
        self.instant || self.any(|request| request.cpus_milli == 0)
    }

    /// Whether each of the tasks runs on several executors.
    pub(super) fn is_gang(&self) -> bool {
        self.nodes > 1
    }

    /// What `count` tasks in flight weigh when instances share executors; of tasks that wait and
    /// have alternatives, with the lightest.
    pub(super) fn weight(&self, count: u64) -> u128 {
        let cpus_milli = |request: &Resources| request.cpus_milli.max(1);
        let lightest = self.others.iter().map(cpus_milli).min().unwrap_or(u32::MAX);
        let each = if self.instant { 1 } else { cpus_milli(&self.resources).min(lightest) };
        u128::from(each) * u128::from(self.nodes) * u128::from(count)
    }
}

/// The number of a need. It is given to another need when no instance uses the
/// first any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NeedId(pub(super) u32);

/// The needs that instances use.
#[derive(Debug, Default)]
pub(super) struct Needs {
    slots: Vec<Slot>,
    ids: BTreeMap<Need, NeedId>,
    /// Numbers below the number of slots that are not in use.
    free: BTreeSet<NeedId>,
    /// How many of those in use are of gangs.
    gangs: usize,
}

#[derive(Debug)]
struct Slot {
    need: Need,
    /// How many instances use it.
    users: u64,
}

impl Needs {
    /// The number of a need. One that is new has no user yet: it is to be
    /// [held](Self::hold).
    pub(super) fn number(&mut self, need: &Need) -> NeedId {
        match self.ids.entry(need.clone()) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(place) => {
                self.gangs += usize::from(need.is_gang());
                let slot = Slot { need: need.clone(), users: 0 };
                let id = match self.free.pop_first() {
                    Some(id) => {
                        self.slots[id.0 as usize] = slot;
                        id
                    }
                    None => {
                        self.slots.push(slot);
                        // Each is in the memory of a submission: there are fewer.
                        NeedId(u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX))
                    }
                };
                *place.insert(id)
            }
        }
    }

    /// One more instance uses a need.
    pub(super) fn hold(&mut self, id: NeedId) {
        self.slots[id.0 as usize].users += 1;
    }

    /// One instance less uses a need.
    pub(super) fn let_go(&mut self, id: NeedId) {
        let slot = &mut self.slots[id.0 as usize];
        slot.users -= 1;
        if slot.users > 0 {
            return;
        }
        self.gangs -= usize::from(slot.need.is_gang());
        self.ids.remove(&slot.need);
        self.free.insert(id);
        if self.ids.is_empty() {
            *self = Needs::default();
        }
    }

    /// Whether any tasks run on several executors each.
    pub(super) fn has_gangs(&self) -> bool {
        self.gangs > 0
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }
}

impl Index<NeedId> for Needs {
    type Output = Need;

    fn index(&self, id: NeedId) -> &Need {
        debug_assert!(!self.free.contains(&id), "a need that nobody uses is asked for");
        &self.slots[id.0 as usize].need
    }
}
