//! Wait lists: the tasks that wait for each object, and for each executor the
//! objects that it holds and that are waited for.
//!
//! A *view* is an ordered set of objects, each at the first task of its list
//! that the view's owner has not passed by. There is one view per executor,
//! with what it holds, and one per limit of the policy, with what fewer
//! executors than that hold. A task suits a view's owner if all its inputs are
//! in the view; a task that does not is passed by for good, because it comes
//! to light again in the list of the input that was missing, when that enters.
//!
//! A view learns only when it is looked at that others took the tasks at which
//! its objects stand; each task taken makes at most as many entries stale as
//! there are views of the object.

mod check;

use super::queue::{Mark, Queue};
use crate::data::index::{Index, ObjectNo, Place};
use crate::limits::INDEXED_EXECUTORS_MAX;
use std::collections::{BTreeSet, VecDeque};

/// A view's number: first those of the limits, then those of the executors.
pub(super) type View = u32;
/// Where an object that tasks wait for is stored here.
pub(super) type Local = u32;

const NONE: Local = Local::MAX;

#[derive(Debug)]
struct List {
    object: ObjectNo,
    /// In the order of the queue; those taken from the middle stay for a while.
    marks: VecDeque<Mark>,
    live: usize,
    /// The number of live tasks that have no other input.
    alone: usize,
    /// The views that the object is in, in the order of their numbers, and the
    /// place in the queue at which it stands there; none when it has passed
    /// all its tasks.
    views: Vec<(View, Option<u64>)>,
    /// How many of the views are executors'.
    indexed: usize,
    /// Whether more executors hold it than are indexed.
    is_overfull: bool,
}

#[derive(Debug)]
pub(super) struct WaitLists {
    limits: Vec<u32>,
    locals: Vec<Local>,
    lists: Vec<List>,
    free: Vec<Local>,
    views: Vec<BTreeSet<(u64, Local)>>,
    /// Tasks without inputs.
    plain: BTreeSet<(u64, u32)>,
    /// Objects with more holders than are indexed.
    overfull: usize,
}

/// The result of a look at the first object of a view.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// The first task; all its inputs may be in the view or not.
    Task(u32),
    /// The entry was out of date: look again.
    Stale,
    /// There is nothing in the window.
    Nothing,
}

impl WaitLists {
    pub(super) fn new(limits: Vec<u32>) -> WaitLists {
        let views = limits.iter().map(|_| BTreeSet::new()).collect();
        WaitLists {
            limits,
            locals: Vec::new(),
            lists: Vec::new(),
            free: Vec::new(),
            views,
            plain: BTreeSet::new(),
            overfull: 0,
        }
    }

    pub(super) fn local(&self, object: ObjectNo) -> Option<Local> {
        self.locals.get(object.0 as usize).copied().filter(|local| *local != NONE)
    }

    pub(super) fn object(&self, local: Local) -> ObjectNo {
        self.lists[local as usize].object
    }

    /// All objects that tasks wait for.
    pub(super) fn locals(&self) -> impl Iterator<Item = Local> + '_ {
        self.locals.iter().copied().filter(|local| *local != NONE)
    }

    /// How many tasks wait for an object.
    pub(super) fn waiting(&self, local: Local) -> usize {
        self.lists[local as usize].live
    }

    /// How many tasks wait for an object and no other.
    pub(super) fn alone(&self, local: Local) -> usize {
        self.lists[local as usize].alone
    }

    /// The place in the queue of the first task that waits for an object.
    pub(super) fn first_seq(&self, local: Local) -> u64 {
        self.lists[local as usize].marks.front().map_or(u64::MAX, |mark| mark.seq)
    }

    /// Whether some executors may not find in their view all that they hold.
    pub(super) fn is_overfull(&self) -> bool {
        self.overfull > 0
    }

    /// The view of what fewer executors than `limit` hold.
    pub(super) fn limit_view(&self, limit: u32) -> Option<View> {
        self.limits.iter().position(|known| *known == limit).map(|at| at as View)
    }

    /// The view of what an executor holds.
    pub(super) fn place_view(&self, place: Place) -> View {
        self.limits.len() as View + place.0
    }

    /// A task behind all others waits for an object.
    pub(super) fn push(
        &mut self,
        index: &Index,
        object: ObjectNo,
        mark: Mark,
        is_alone: bool,
    ) -> Local {
        if let Some(local) = self.local(object) {
            let list = &mut self.lists[local as usize];
            list.marks.push_back(mark);
            list.live += 1;
            list.alone += usize::from(is_alone);
            for (view, at) in list.views.iter_mut().filter(|(_, at)| at.is_none()) {
                *at = Some(mark.seq);
                self.views[*view as usize].insert((mark.seq, local));
            }
            return local;
        }
        let local = self.begin(object, mark);
        self.lists[local as usize].alone = usize::from(is_alone);
        let holders = index.holders(object);
        for at in 0..self.limits.len() {
            if holders.len() < self.limits[at] as usize {
                self.enter(local, at as View, Some(mark.seq));
            }
        }
        for place in holders.iter().take(INDEXED_EXECUTORS_MAX) {
            let view = self.place_view(*place);
            self.enter(local, view, Some(mark.seq));
        }
        self.note_overfull(local, holders.len());
        local
    }

    fn begin(&mut self, object: ObjectNo, mark: Mark) -> Local {
        let list = List {
            object,
            marks: VecDeque::from([mark]),
            live: 1,
            alone: 0,
            views: Vec::new(),
            indexed: 0,
            is_overfull: false,
        };
        let local = match self.free.pop() {
            Some(local) => {
                self.lists[local as usize] = list;
                local
            }
            None => {
                self.lists.push(list);
                (self.lists.len() - 1) as Local
            }
        };
        let at = object.0 as usize;
        if self.locals.len() <= at {
            self.locals.resize(at + 1, NONE);
        }
        self.locals[at] = local;
        local
    }

    pub(super) fn push_plain(&mut self, mark: Mark) {
        self.plain.insert((mark.seq, mark.slot));
    }

    pub(super) fn remove_plain(&mut self, mark: Mark) {
        self.plain.remove(&(mark.seq, mark.slot));
    }

    /// The first task without inputs.
    pub(super) fn first_plain(&self) -> Option<Mark> {
        self.plain.first().map(|&(seq, slot)| Mark { seq, slot })
    }

    /// One of an object's tasks has left the queue.
    pub(super) fn task_gone(&mut self, queue: &Queue, local: Local, was_alone: bool) {
        let list = &mut self.lists[local as usize];
        list.live -= 1;
        list.alone -= usize::from(was_alone);
        while list.marks.front().is_some_and(|mark| !queue.has(*mark)) {
            list.marks.pop_front();
        }
        if list.marks.len() > 2 * list.live {
            list.marks.retain(|mark| queue.has(*mark));
        }
    }

    /// Forgets an object that nobody waits for any more.
    pub(super) fn free_if_unused(&mut self, local: Local) {
        let list = &mut self.lists[local as usize];
        if list.live > 0 {
            return;
        }
        for (view, at) in std::mem::take(&mut list.views) {
            if let Some(at) = at {
                self.views[view as usize].remove(&(at, local));
            }
        }
        self.overfull -= usize::from(list.is_overfull);
        list.marks = VecDeque::new();
        self.locals[list.object.0 as usize] = NONE;
        self.free.push(local);
    }

    /// An executor holds an object from now on.
    pub(super) fn holder_added(
        &mut self,
        queue: &Queue,
        index: &Index,
        place: Place,
        local: Local,
    ) {
        let count = index.holders(self.object(local)).len();
        let at = self.first_from(queue, local, 0).map(|mark| mark.seq);
        if self.lists[local as usize].indexed < INDEXED_EXECUTORS_MAX {
            self.enter(local, self.place_view(place), at);
        }
        for view in 0..self.limits.len() {
            if count >= self.limits[view] as usize {
                self.exit(local, view as View);
            }
        }
        self.note_overfull(local, count);
    }

    /// An executor holds an object no longer.
    pub(super) fn holder_removed(
        &mut self,
        queue: &Queue,
        index: &Index,
        place: Place,
        local: Local,
    ) {
        let holders = index.holders(self.object(local));
        let at = self.first_from(queue, local, 0).map(|mark| mark.seq);
        let was_indexed = self.exit(local, self.place_view(place));
        if was_indexed && holders.len() >= INDEXED_EXECUTORS_MAX {
            let views = &self.lists[local as usize].views;
            let is_indexed = |place: &&Place| {
                let view = self.place_view(**place);
                views.binary_search_by_key(&view, |(view, _)| *view).is_ok()
            };
            let next = holders.iter().find(|place| !is_indexed(place));
            if let Some(next) = next {
                self.enter(local, self.place_view(*next), at);
            }
        }
        for view in 0..self.limits.len() {
            if holders.len() < self.limits[view] as usize {
                self.enter(local, view as View, at);
            }
        }
        self.note_overfull(local, holders.len());
    }

    fn note_overfull(&mut self, local: Local, holders: usize) {
        let list = &mut self.lists[local as usize];
        let is_overfull = holders > INDEXED_EXECUTORS_MAX;
        self.overfull += usize::from(is_overfull);
        self.overfull -= usize::from(list.is_overfull);
        list.is_overfull = is_overfull;
    }

    /// The first task of an object at or behind a place in the queue.
    pub(super) fn first_from(&self, queue: &Queue, local: Local, seq: u64) -> Option<Mark> {
        let marks = &self.lists[local as usize].marks;
        // The first mark is always live, and mostly the one that is meant.
        let first = marks.front()?;
        if first.seq >= seq {
            return Some(*first);
        }
        let from = marks.partition_point(|mark| mark.seq < seq);
        marks.range(from..).find(|mark| queue.has(**mark)).copied()
    }

    /// A few of the objects that tasks with several inputs wait for, from
    /// anywhere on.
    pub(super) fn some_objects(
        &self,
        from: usize,
        count: usize,
    ) -> impl Iterator<Item = ObjectNo> + '_ {
        let from = from % self.lists.len().max(1);
        let turned = self.lists[from..].iter().chain(&self.lists[..from]);
        let some = turned.take(count).filter(|list| list.live > list.alone);
        some.map(|list| list.object)
    }

    /// The tasks of an object at or behind a place in the queue.
    pub(super) fn marks_from<'a>(
        &'a self,
        queue: &'a Queue,
        local: Local,
        seq: u64,
    ) -> impl Iterator<Item = Mark> + 'a {
        let marks = &self.lists[local as usize].marks;
        let from = marks.partition_point(|mark| mark.seq < seq);
        marks.range(from..).copied().filter(|mark| queue.has(*mark))
    }

    /// The objects of a view and where they stand, first things first.
    pub(super) fn entries(&self, view: View) -> impl Iterator<Item = (u64, Local)> + '_ {
        self.views.get(view as usize).into_iter().flatten().copied()
    }

    /// Looks at the first object of a view.
    pub(super) fn look(&mut self, queue: &Queue, view: View) -> Look {
        let Some(&(seq, local)) = self.views.get(view as usize).and_then(BTreeSet::first) else {
            return Look::Nothing;
        };
        if !queue.in_window(seq) {
            return Look::Nothing;
        }
        match self.first_from(queue, local, seq) {
            Some(mark) if mark.seq == seq => Look::Task(mark.slot),
            other => {
                self.stand(view, local, seq, other.map(|mark| mark.seq));
                Look::Stale
            }
        }
    }

    /// Passes the task by that [`WaitLists::look`] found.
    pub(super) fn pass(&mut self, queue: &Queue, view: View) {
        let first = self.views.get(view as usize).and_then(BTreeSet::first);
        let Some(&(seq, local)) = first else { return };
        let next = self.first_from(queue, local, seq + 1).map(|mark| mark.seq);
        self.stand(view, local, seq, next);
    }

    /// Lets an object stand at its first task again, if it is in the view.
    pub(super) fn rewind(&mut self, queue: &Queue, view: View, local: Local) {
        let first = self.first_from(queue, local, 0).map(|mark| mark.seq);
        if self.exit(local, view) {
            self.enter(local, view, first);
        }
    }

    /// Moves an object in a view from one place in the queue to another.
    fn stand(&mut self, view: View, local: Local, from: u64, to: Option<u64>) {
        let list = &mut self.lists[local as usize];
        let Ok(position) = list.views.binary_search_by_key(&view, |(view, _)| *view) else {
            return;
        };
        list.views[position].1 = to;
        let view = &mut self.views[view as usize];
        view.remove(&(from, local));
        if let Some(to) = to {
            view.insert((to, local));
        }
    }

    fn enter(&mut self, local: Local, view: View, at: Option<u64>) {
        let list = &mut self.lists[local as usize];
        let Err(position) = list.views.binary_search_by_key(&view, |(view, _)| *view) else {
            return;
        };
        list.views.insert(position, (view, at));
        list.indexed += usize::from(view as usize >= self.limits.len());
        if self.views.len() <= view as usize {
            self.views.resize_with(view as usize + 1, BTreeSet::new);
        }
        if let Some(at) = at {
            self.views[view as usize].insert((at, local));
        }
    }

    fn exit(&mut self, local: Local, view: View) -> bool {
        let list = &mut self.lists[local as usize];
        let Ok(position) = list.views.binary_search_by_key(&view, |(view, _)| *view) else {
            return false;
        };
        let (_, at) = list.views.remove(position);
        list.indexed -= usize::from(view as usize >= self.limits.len());
        if let Some(at) = at {
            self.views[view as usize].remove(&(at, local));
        }
        true
    }
}
