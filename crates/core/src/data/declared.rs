//! What the tasks of a submission read and write, for those who schedule: the
//! names under which a task finds its objects are the executor's concern.

use super::object::{Object, ObjectId, Sources};
use crate::task::ExecutorId;
use std::sync::Arc;

/// What an object takes in a message beside its URL and version: id, size,
/// sources.
const OBJECT_MESSAGE_BYTES: u64 = 64;

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

    /// About how many bytes the objects of the task at `index` take in a
    /// message.
    #[must_use]
    pub fn task_bytes(&self, index: u64) -> u64 {
        let bytes = |object: &Object| {
            (object.url.len() + object.version.len()) as u64 + OBJECT_MESSAGE_BYTES
        };
        self.inputs_of(index).chain(self.outputs_of(index)).map(bytes).sum()
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
}

/// Where an executor serves what it caches.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Serving {
    /// Where it listens, as `host:port`; empty if nobody else reaches it.
    pub address: String,
    /// What it is known by to those who connect; opaque to the core.
    pub fingerprint: Vec<u8>,
}

/// An executor that serves what it caches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Which.
    pub executor: ExecutorId,
    /// Where.
    pub serves: Serving,
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
    /// For an executor that leaves: nothing that it alone holds is needed.
    pub may_leave: bool,
}
