//! What the tasks of a submission read and write, for those who schedule: the
//! names under which a task finds its objects are the executor's concern.

use super::object::{Object, ObjectId, Sources};
use crate::encoded::object_bytes_max;
use crate::limits::HINT_HOLDERS_MAX;
use crate::task::ExecutorId;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a task takes in a message for each object beside the object: its place
/// in the list, and among those that others read.
const ITEM_BYTES: u64 = 8;

/// For each task of a row of tasks, numbers in a list of objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lists {
    /// All tasks have the same.
    Same(Vec<u32>),
    /// Each has its own: `items` back to back, and where each task's end.
    Each {
        /// Numbers, task after task.
        items: Arc<Vec<u32>>,
        /// Where each task's end in `items`, ascending.
        ends: Arc<Vec<u32>>,
    },
}

impl Default for Lists {
    fn default() -> Lists {
        Lists::Same(Vec::new())
    }
}

impl Lists {
    /// The numbers of the task at `index`; none past the end.
    #[must_use]
    pub fn of(&self, index: u64) -> &[u32] {
        match self {
            Lists::Same(items) => items,
            Lists::Each { items, ends } => {
                let Ok(index) = usize::try_from(index) else { return &[] };
                let Some(&end) = ends.get(index) else { return &[] };
                let start = if index == 0 { 0 } else { ends[index - 1] as usize };
                items.get(start..end as usize).unwrap_or_default()
            }
        }
    }

    /// Those of `count` tasks from the `first`-th on.
    fn slice(&self, first: u64, count: u64) -> Lists {
        if let Lists::Same(_) = self {
            return self.clone();
        }
        let (mut items, mut ends) = (Vec::new(), Vec::new());
        for at in first..first + count {
            items.extend_from_slice(self.of(at));
            ends.push(items.len() as u32);
        }
        Lists::Each { items: items.into(), ends: ends.into() }
    }

    /// Whether no task has any.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match self {
            Lists::Same(items) => items.is_empty(),
            Lists::Each { items, .. } => items.is_empty(),
        }
    }

    /// Whether they are those of `count` tasks, and all numbers are below
    /// `objects`.
    #[must_use]
    pub fn is_sound(&self, count: u64, objects: usize) -> bool {
        let (items, sound) = match self {
            Lists::Same(items) => (items, true),
            Lists::Each { items, ends } => {
                let last = ends.last().map_or(0, |end| *end as usize);
                (&**items, ends.len() as u64 == count && ends.is_sorted() && last == items.len())
            }
        };
        sound && items.iter().all(|item| (*item as usize) < objects)
    }

    fn bytes(&self) -> u64 {
        let entries = match self {
            Lists::Same(items) => items.capacity(),
            Lists::Each { items, ends } => items.capacity() + ends.capacity(),
        };
        (entries * size_of::<u32>()) as u64
    }
}

/// The data of a submission's tasks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Declared {
    /// Every object that occurs, once.
    pub objects: Arc<Vec<Object>>,
    /// What each task reads, in the order in which its command names them.
    pub inputs: Lists,
    /// What each task writes, likewise. An object that a task writes is known
    /// by its task, so that it is the same if the task has to run again.
    pub outputs: Lists,
}

impl Declared {
    /// The objects that the task at `index` reads.
    pub fn inputs_of(&self, index: u64) -> impl Iterator<Item = &Object> {
        self.inputs.of(index).iter().filter_map(|item| self.objects.get(*item as usize))
    }

    /// The objects that the task at `index` writes.
    pub fn outputs_of(&self, index: u64) -> impl Iterator<Item = &Object> {
        self.outputs.of(index).iter().filter_map(|item| self.objects.get(*item as usize))
    }

    /// Whether all tasks have the same.
    #[must_use]
    pub fn is_same(&self) -> bool {
        matches!((&self.inputs, &self.outputs), (Lists::Same(_), Lists::Same(_)))
    }

    /// Whether all that tasks read is in persistent stores, and all that they write
    /// goes there.
    #[must_use]
    pub fn is_stored(&self) -> bool {
        self.objects.iter().all(Object::is_stored)
    }

    /// Whether all that tasks write goes to persistent stores, each output as a file of its own.
    #[must_use]
    pub fn are_outputs_stored(&self) -> bool {
        let items: &[u32] = match &self.outputs {
            Lists::Same(items) => items,
            Lists::Each { items, .. } => items,
        };
        let mut written = items.iter().filter_map(|item| self.objects.get(*item as usize));
        written.all(|object| object.is_stored() && object.member().is_none())
    }

    /// The data of `count` tasks from the `first`-th on.
    #[must_use]
    pub fn slice(&self, first: u64, count: u64) -> Declared {
        Declared {
            objects: Arc::clone(&self.objects),
            inputs: self.inputs.slice(first, count),
            outputs: self.outputs.slice(first, count),
        }
    }

    /// The data of tasks one after another: of so many tasks each.
    #[must_use]
    pub fn joined(parts: &[(&Declared, u64)]) -> Declared {
        let mut numbers: BTreeMap<&Object, u32> = BTreeMap::new();
        let mut objects = Vec::new();
        let mut join = |side: fn(&Declared) -> &Lists| {
            let (mut items, mut ends) = (Vec::new(), Vec::new());
            for (data, count) in parts {
                for at in 0..*count {
                    let found = side(data).of(at).iter();
                    for object in found.filter_map(|item| data.objects.get(*item as usize)) {
                        items.push(*numbers.entry(object).or_insert_with(|| {
                            objects.push(object.clone());
                            objects.len() as u32 - 1
                        }));
                    }
                    ends.push(items.len() as u32);
                }
            }
            Lists::Each { items: items.into(), ends: ends.into() }
        };
        let (inputs, outputs) = (join(|data| &data.inputs), join(|data| &data.outputs));
        Declared { objects: objects.into(), inputs, outputs }
    }

    /// The most bytes that the objects of the task at `index` take in a
    /// message.
    #[must_use]
    pub fn task_bytes(&self, index: u64) -> u64 {
        self.list_bytes(&self.inputs, index) + self.list_bytes(&self.outputs, index)
    }

    /// How many of `count` tasks from `first` on have objects that take at most
    /// `budget` bytes in a message together; at least one.
    pub(crate) fn tasks_within(&self, first: u64, count: u64, budget: u64) -> u64 {
        if let (Lists::Same(_), Lists::Same(_)) = (&self.inputs, &self.outputs) {
            let fitting = budget.checked_div(self.task_bytes(first)).unwrap_or(count);
            return fitting.clamp(1, count.max(1));
        }
        let mut bytes = 0;
        let fits = |index: &u64| {
            bytes += self.task_bytes(*index);
            bytes <= budget
        };
        ((first..first + count).take_while(fits).count() as u64).max(1)
    }

    fn list_bytes(&self, lists: &Lists, index: u64) -> u64 {
        let objects = lists.of(index).iter().filter_map(|item| self.objects.get(*item as usize));
        objects.map(|object| ITEM_BYTES + object_bytes_max(object, HINT_HOLDERS_MAX as u64)).sum()
    }

    /// The most bytes that the objects of one task and its row take in a
    /// message; `row_bytes` gives the length of the row of each task.
    pub(crate) fn task_bytes_most(&self, count: u64, row_bytes: impl Fn(u64) -> u64) -> u64 {
        let common = |lists: &Lists| match lists {
            Lists::Same(_) => self.list_bytes(lists, 0),
            Lists::Each { .. } => 0,
        };
        let own = |lists: &Lists, index| match lists {
            Lists::Same(_) => 0,
            Lists::Each { .. } => self.list_bytes(lists, index),
        };
        let varying =
            |index| own(&self.inputs, index) + own(&self.outputs, index) + row_bytes(index);
        let most = (0..count).map(varying).max().unwrap_or(0);
        common(&self.inputs) + common(&self.outputs) + most
    }

    /// Whether the lists are those of `count` tasks and name objects that are
    /// there.
    #[must_use]
    pub fn is_sound(&self, count: u64) -> bool {
        let objects = self.objects.len();
        self.inputs.is_sound(count, objects) && self.outputs.is_sound(count, objects)
    }

    /// Bytes held.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let texts: usize =
            self.objects.iter().map(|object| object.url.len() + object.version.len()).sum();
        let objects = self.objects.len() * size_of::<Object>() + texts;
        objects as u64 + self.inputs.bytes() + self.outputs.bytes()
    }
}

/// An object with where an executor may get it from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located {
    /// The object.
    pub object: Object,
    /// Where it is, as far as the dispatcher knows.
    pub sources: Sources,
}

/// The data of the tasks of one assignment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AssignedData {
    /// Every object that occurs, once.
    pub objects: Vec<Located>,
    /// What each task reads.
    pub inputs: Lists,
    /// What each task writes.
    pub outputs: Lists,
    /// The numbers of the outputs that become members of archives, and that other tasks
    /// are known to read: these stay in the cache too, as long as there is room.
    pub read: Vec<u32>,
}

impl AssignedData {
    /// The same without what is known of where objects are. `None` if the lists are
    /// not those of `count` tasks, or name objects that are not there.
    #[must_use]
    pub fn declared(self, count: u64) -> Option<Declared> {
        let objects: Vec<Object> = self.objects.into_iter().map(|found| found.object).collect();
        let (inputs, outputs) = (self.inputs, self.outputs);
        let declared = Declared { objects: objects.into(), inputs, outputs };
        declared.is_sound(count).then_some(declared)
    }
}

/// Where an executor serves what it caches.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Serving {
    /// Where it listens, as `host:port`; empty if nobody else reaches it.
    pub address: String,
    /// What it is known by to those who connect; opaque to the core.
    pub fingerprint: Vec<u8>,
}

/// How much an executor's cache takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheRoom {
    /// The bytes of its largest directory, but for the one that is lent.
    pub object_bytes: u64,
    /// The bytes of the directory that it lends; 0 if it lends none.
    pub lent_bytes: u64,
    /// Its tasks can read objects for which neither has room.
    pub mounts: bool,
}

/// Stripes of an object that an executor is to have, for others to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lend {
    /// The object, with the executor that has these stripes already, if any: they are
    /// copied from there, else read from the store.
    pub located: Located,
    /// Which stripes.
    pub stripes: Vec<u32>,
    /// Of how many.
    pub of: u32,
}

/// An executor that serves what it caches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// The executor.
    pub executor: ExecutorId,
    /// Where.
    pub serves: Serving,
}

/// Who collects the outputs that an executor has staged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Collects {
    /// It does.
    Itself,
    /// This one does.
    Other(ExecutorId),
}

/// How an executor that collects for others keeps up with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// What they hand over takes so much of its link that more are to collect.
    Behind,
    /// That has been little for long: fewer could collect.
    Ahead,
}

/// What an order says about data beyond that of the assigned tasks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DataOrder {
    /// Where the executors listen that the order names as sources.
    pub peers: Vec<Peer>,
    /// Objects that waiting tasks will read: to be fetched ahead of the tasks.
    pub fetch: Vec<Located>,
    /// Objects, and how many queued tasks read each: what nobody reads goes
    /// first when room is needed.
    pub demand: Vec<(ObjectId, u64)>,
    /// Executors that are gone: nothing comes from them any more.
    pub gone: Vec<ExecutorId>,
    /// Objects that are to go: nobody could get them from here.
    pub drop: Vec<ObjectId>,
    /// Objects that are here and are to stay as long as tasks read them.
    pub hold: Vec<ObjectId>,
    /// Objects that need not stay any more.
    pub release: Vec<ObjectId>,
    /// Objects that are broadcast, and the executors that are to send the chunks of
    /// each tree; none if the executor is to fetch the object like any other.
    pub parents: Vec<(ObjectId, Vec<ExecutorId>)>,
    /// Stripes of objects that are to be here, for others to read.
    pub lend: Vec<Lend>,
    /// Shares of objects that need not be here any more.
    pub take_back: Vec<ObjectId>,
    /// Objects that are striped, and the executors that have their stripes, one after
    /// another; none if the executor is to fetch the object like any other.
    pub striped: Vec<(ObjectId, Vec<ExecutorId>)>,
    /// Who collects what is staged there from now on, if that has changed.
    pub collects: Option<Collects>,
    /// For an executor that leaves: nothing that it alone holds is needed.
    pub may_leave: bool,
}
