//! Data-aware dispatch (data-diffusion §3.2): the waiting tasks of one queue,
//! and which of them goes where.
//!
//! A [`Waiting`] holds tasks that are alike in all but their inputs (one
//! instance, one priority, one need of resources). It is asked in the two
//! directions of the paper: [`Waiting::offer`] takes the head of the queue to
//! a free executor, [`Waiting::select`] gives an executor with room the tasks
//! that suit it. It sees through an [`Index`] who holds what and must be told
//! of each change of it, after the change, before the next.

mod colocate;
mod fetch;
mod offer;
mod policy;
mod queue;
mod reads;
mod select;
mod wait_lists;

use crate::data::index::{Index, ObjectNo, Place};
use crate::dispatch::check::{CheckError, ensure};
use crate::limits::SCAN_TASKS_MAX;
use crate::task::Time;
use colocate::Colocation;
use fetch::Wishes;
use policy::Policy;
use queue::{Mark, Queue};
use reads::Reads;
use std::collections::{BTreeSet, VecDeque};
use wait_lists::WaitLists;

pub use offer::Offer;
pub use policy::{Load, POLICIES, PolicyError, PolicyName, PolicyOption, PolicyOptions};

/// The executors that have room for a task of this queue at this moment.
pub trait Free {
    /// Whether this executor has room.
    fn is_free(&self, place: Place) -> bool;

    /// The executor that has had room for longest.
    fn first(&self) -> Option<Place>;
}

/// Times and speeds that [`Waiting::fetch`] weighs: measured, or guessed at first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Costs {
    /// Mean run time of a task in microseconds.
    pub task_micros: u64,
    /// The speed at which an executor receives from another, in bytes per second.
    pub peer_bytes_per_second: u64,
    /// Tasks of this queue that an executor runs at once.
    pub slots: u64,
    /// The time.
    pub now: Time,
}

/// A task that waits no longer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// The number it was pushed with.
    pub task: u64,
    /// Its inputs as they were pushed, each once.
    pub inputs: Inputs,
}

/// The inputs of a task: one or two without an allocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Inputs {
    /// One input.
    One(ObjectNo),
    /// Two, in the order of their numbers.
    Two([ObjectNo; 2]),
    /// None, or more, in the order of their numbers.
    Many(Box<[ObjectNo]>),
}

impl Inputs {
    fn new(inputs: &[ObjectNo]) -> Inputs {
        if let [one] = inputs {
            return Inputs::One(*one);
        }
        let mut sorted = inputs.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        match sorted[..] {
            [one] => Inputs::One(one),
            [one, other] => Inputs::Two([one, other]),
            _ => Inputs::Many(sorted.into()),
        }
    }

    /// The inputs as a slice.
    #[must_use]
    pub fn as_slice(&self) -> &[ObjectNo] {
        match self {
            Inputs::One(one) => std::slice::from_ref(one),
            Inputs::Two(two) => two,
            Inputs::Many(many) => many,
        }
    }
}

/// The tasks of one queue that wait under a policy that knows places.
///
/// # Costs
/// A decision costs O(inputs × replicas considered) and a logarithm, on the
/// average over all decisions, whatever the window and the number of
/// executors. For that, each executor has an ordered set of the *objects* it
/// holds that tasks wait for, by the first such task, not of the tasks: an
/// object that a hundred thousand tasks wait for changes hands in one step.
///
/// # Exactness
/// For tasks with one input, what the paper's scan over the window finds is
/// found, as long as no object has more than
/// [`crate::limits::INDEXED_EXECUTORS_MAX`] holders. Holders beyond that find
/// an object's tasks only among the first
/// [`crate::limits::SCAN_TASKS_MAX`] of the queue. Of tasks with several
/// inputs a decision looks at so many from the head of the queue on, at so many
/// more that wait for what the executor holds (where the next decision goes
/// on), and at [`crate::limits::PARTIAL_TASKS_MAX`] seen before: the first that
/// is wholly there, or else the best of these, is taken. Nothing worse than the
/// best of the first [`crate::limits::SCAN_TASKS_MAX`] of the queue is.
///
/// `tests/policies/beyond.rs` measures the difference to the exact scan, and
/// prints it: where 5,000 tasks of one to four inputs wait for 200 executors, a
/// choice finds up to 8 % less of its bytes in place than the scan's (the test
/// fails beyond 10 %), and over a run up to 4.3 points less of all bytes are
/// found in caches (5).
///
/// An offer considers, of each input, the first
/// [`crate::limits::HINT_EXECUTORS_MAX`] holders. It is what a search of all
/// executors finds where no input has more; where the popular ones of 2,000
/// have, tasks find up to 2.8 % less of their bytes where they go
/// (`tests/policies/offered.rs` prints that, and fails beyond 5 %).
#[derive(Debug)]
pub struct Waiting {
    policy: Box<dyn Policy + Send + Sync>,
    replication_max: u32,
    queue: Queue,
    wait_lists: WaitLists,
    /// Queued tasks with more than one input.
    many: usize,
    /// Tasks with a part of their inputs at an executor, by its number.
    parts: Vec<VecDeque<Mark>>,
    wishes: Wishes,
    colocation: Colocation,
    reads: Reads,
    /// Of which object an executor is being given the tasks, by its number.
    runs: Vec<Option<Run>>,
    /// Objects that tasks wait for and that could not be fetched ahead.
    unfetchable: BTreeSet<ObjectNo>,
}

/// An object that more tasks wait for than are looked at in so many decisions
/// is popular.
const POPULAR: usize = 16;

/// A file's tasks that are sent to an executor together: those that wait when
/// the first of them is sent, so that others get their turn.
#[derive(Debug, Clone, Copy)]
struct Run {
    object: ObjectNo,
    /// The place in the queue before which the tasks stand.
    until: u64,
}

impl Waiting {
    /// An empty queue under a policy.
    pub fn new(options: &PolicyOptions) -> Result<Waiting, PolicyError> {
        options.check()?;
        let policy = policy::policy(options);
        let limits = policy.limits();
        Ok(Waiting {
            policy,
            replication_max: options.replication_max,
            queue: Queue::new(options.window),
            wait_lists: WaitLists::new(limits),
            many: 0,
            parts: Vec::new(),
            wishes: Wishes::default(),
            colocation: Colocation::default(),
            reads: Reads::default(),
            runs: Vec::new(),
            unfetchable: BTreeSet::new(),
        })
    }

    /// Queues a task behind all others; `task` is the caller's number for it,
    /// not queued already. The caller has called [`Index::want`] for each
    /// input, and calls [`Index::unwant`] when the task is given back.
    pub fn push(&mut self, index: &Index, task: u64, inputs: &[ObjectNo]) {
        let inputs = Inputs::new(inputs);
        self.many += usize::from(inputs.as_slice().len() > 1);
        let Some(mark) = self.queue.push(task, inputs) else { return };
        if self.many > 0 && self.policy.fetches_ahead() {
            self.colocation.pushed(mark);
        }
        if !self.policy.looks() {
            return;
        }
        let inputs = self.queue.inputs(mark.slot);
        if inputs.is_empty() {
            self.wait_lists.push_plain(mark);
        }
        for object in inputs {
            let local = self.wait_lists.push(index, *object, mark, inputs.len() == 1);
            self.wishes.rescore(index, &self.wait_lists, local, self.policy.fetches_ahead());
        }
    }

    /// Takes a task out that is not to run; `None` if it does not wait here.
    pub fn remove(&mut self, index: &Index, task: u64) -> Option<Taken> {
        let slot = self.queue.slot_of(task)?;
        Some(self.take_out(index, slot))
    }

    /// The inputs of the first task.
    #[must_use]
    pub fn first_inputs(&self) -> Option<&[ObjectNo]> {
        let slot = self.queue.first();
        (slot != queue::NONE).then(|| self.queue.inputs(slot))
    }

    /// Takes the first task out, whatever the policy says, for the free
    /// executor that holds most of it: for a caller that has executors free,
    /// tasks waiting, and nothing under way that could change what the policy
    /// says. It would wait for ever if those who hold its inputs can never run
    /// it, or if its inputs lie apart and have as many replicas as they may
    /// have.
    pub fn select_first(&mut self, index: &Index, free: &dyn Free) -> Option<Offer> {
        let slot = self.queue.first();
        if slot == queue::NONE {
            return None;
        }
        let place = self.most_held(index, free, slot).or_else(|| free.first())?;
        Some(Offer { place, taken: self.take_out(index, slot) })
    }

    /// An object could not be fetched ahead of the tasks that read it. It is not
    /// tried again before somebody else holds it; while nobody does, they go to
    /// whoever has room, to fetch it or to fail.
    pub fn unfetchable(&mut self, index: &Index, object: ObjectNo) {
        self.colocation.failed(index, object);
        let Some(local) = self.wait_lists.local(object) else { return };
        if self.policy.fetches_ahead() {
            self.unfetchable.insert(object);
        }
        self.wishes.rescore(index, &self.wait_lists, local, self.policy.fetches_ahead());
    }

    /// The first task with an input that could not be fetched ahead.
    fn first_unfetchable(&self, index: &Index) -> Option<u32> {
        let objects = self.unfetchable.iter().take(SCAN_TASKS_MAX);
        let nowhere = objects.filter(|object| index.holders(**object).is_empty());
        let mut objects = nowhere.filter_map(|object| self.wait_lists.local(*object));
        objects.find_map(|local| Some(self.wait_lists.first_from(&self.queue, local, 0)?.slot))
    }

    /// Checks that the books are what counting anew gives.
    ///
    /// # Errors
    /// Says what does not hold.
    pub fn check(&self, index: &Index) -> Result<(), CheckError> {
        self.queue.check()?;
        if self.policy.looks() {
            self.wait_lists.check(&self.queue, index)?;
        }
        self.wishes.check(index, &self.wait_lists, self.policy.fetches_ahead())?;
        let many = self.queue.all().filter(|slot| self.queue.inputs(*slot).len() > 1).count();
        ensure!(many == self.many, "{many} tasks have several inputs, not {}", self.many);
        let mut unfetchable = self.unfetchable.iter();
        let waits = unfetchable.all(|object| self.wait_lists.local(*object).is_some());
        ensure!(waits, "an object that nobody waits for is known not to be fetched");
        Ok(())
    }

    /// How many tasks wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether no task waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether [`Waiting::fetch`] is to be asked.
    #[must_use]
    pub fn fetches_ahead(&self) -> bool {
        self.policy.fetches_ahead()
    }

    /// An executor holds an object from now on. Says whether tasks wait for
    /// it: then an executor with room is to be asked to [`Waiting::select`].
    pub fn holder_added(&mut self, index: &Index, place: Place, object: ObjectNo) -> bool {
        let Some(local) = self.wait_lists.local(object) else { return false };
        self.unfetchable.remove(&object);
        self.wait_lists.holder_added(&self.queue, index, place, local);
        if self.many > 0 && self.wait_lists.waiting(local) > POPULAR * SCAN_TASKS_MAX {
            // Tasks that only this object was missing for are found sooner in
            // the lists of what else the executor holds.
            let view = self.wait_lists.place_view(place);
            for held in index.held_from(place, ObjectNo(0)) {
                if let Some(other) = self.wait_lists.local(held) {
                    self.wait_lists.rewind(&self.queue, view, other);
                }
            }
        }
        self.wishes.rescore(index, &self.wait_lists, local, self.policy.fetches_ahead());
        true
    }

    /// An executor holds an object no longer.
    pub fn holder_removed(&mut self, index: &Index, place: Place, object: ObjectNo) {
        self.colocation.lost(place, object);
        let Some(local) = self.wait_lists.local(object) else { return };
        self.wait_lists.holder_removed(&self.queue, index, place, local);
        self.wishes.rescore(index, &self.wait_lists, local, self.policy.fetches_ahead());
    }

    /// An object that was on its way to an executor has come, or is not coming
    /// any more ([`Index::cancel_transfer`]).
    pub fn came_or_went(&mut self, index: &Index, place: Place, object: ObjectNo) {
        if !index.holds(place, object) && !index.is_coming(place, object) {
            self.colocation.lost(place, object);
        }
        self.coming_changed(index, object);
    }

    /// An object is on its way to an executor ([`Index::hints`]), or no longer.
    pub fn coming_changed(&mut self, index: &Index, object: ObjectNo) {
        let Some(local) = self.wait_lists.local(object) else { return };
        self.wishes.rescore(index, &self.wait_lists, local, self.policy.fetches_ahead());
    }

    /// An executor has left and held what [`Index::leave`] returned.
    pub fn executor_left(&mut self, index: &Index, place: Place, held: &[ObjectNo]) {
        for object in held {
            self.holder_removed(index, place, *object);
        }
        if let Some(parts) = self.parts.get_mut(place.0 as usize) {
            parts.clear();
        }
        self.colocation.left(place);
        if let Some(run) = self.runs.get_mut(place.0 as usize) {
            *run = None;
        }
    }

    /// Takes a task out of all books.
    fn take_out(&mut self, index: &Index, slot: u32) -> Taken {
        let mark = self.queue.mark(slot);
        let taken = self.queue.remove(slot);
        let inputs = taken.inputs.as_slice();
        self.many -= usize::from(inputs.len() > 1);
        self.colocation.taken(slot);
        if self.policy.looks() {
            if inputs.is_empty() {
                self.wait_lists.remove_plain(mark);
            }
            for object in inputs {
                if let Some(local) = self.wait_lists.local(*object) {
                    self.wait_lists.task_gone(&self.queue, local, inputs.len() == 1);
                    if self.wait_lists.waiting(local) == 0 {
                        self.unfetchable.remove(object);
                    }
                    self.wishes.rescore(
                        index,
                        &self.wait_lists,
                        local,
                        self.policy.fetches_ahead(),
                    );
                    self.wait_lists.free_if_unused(local);
                }
            }
        }
        taken
    }
}
