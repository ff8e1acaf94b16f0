//! The waiting tasks in their order, and where the window ends.

use super::{Inputs, Taken};
use crate::data::index::ObjectNo;
use crate::dispatch::check::{CheckError, ensure};
use std::collections::BTreeMap;

/// Tasks whose numbers lie next to each other and are looked up together.
const PAGE: usize = 64;

/// No task.
pub(super) const NONE: u32 = u32::MAX;

/// A task as others refer to it: valid while its place in the order is the
/// same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark {
    /// Its place in the order; never used again.
    pub(super) seq: u64,
    /// Where it is stored; used again.
    pub(super) slot: u32,
}

#[derive(Debug)]
struct Entry {
    /// `u64::MAX` when the slot is free.
    seq: u64,
    task: u64,
    before: u32,
    after: u32,
    inputs: Inputs,
}

/// Where the tasks of [`PAGE`] numbers in a row are stored.
#[derive(Debug)]
struct Page {
    slots: [u32; PAGE],
    used: usize,
}

/// A list of tasks, first in, first out, from whose middle tasks are taken.
#[derive(Debug)]
pub(super) struct Queue {
    entries: Vec<Entry>,
    free: Vec<u32>,
    pages: BTreeMap<u64, Page>,
    len: usize,
    first: u32,
    last: u32,
    next_seq: u64,
    /// How many tasks are in the window at most; 0: all.
    window: u64,
    /// The first task behind the window.
    outside: u32,
    /// While a decision is made: where the window ended when it began.
    held_end: Option<u64>,
    /// The first task that was never offered.
    unoffered: u32,
}

impl Queue {
    pub(super) fn new(window: u64) -> Queue {
        Queue {
            entries: Vec::new(),
            free: Vec::new(),
            pages: BTreeMap::new(),
            len: 0,
            first: NONE,
            last: NONE,
            next_seq: 0,
            window,
            outside: NONE,
            held_end: None,
            unoffered: NONE,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Appends a task; `None` if it is queued already.
    pub(super) fn push(&mut self, task: u64, inputs: Inputs) -> Option<Mark> {
        if self.slot_of(task).is_some() {
            return None;
        }
        let seq = self.next_seq;
        self.next_seq += 1;
        let entry = Entry { seq, task, before: self.last, after: NONE, inputs };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.entries[slot as usize] = entry;
                slot
            }
            None => {
                self.entries.push(entry);
                let slot = u32::try_from(self.entries.len() - 1).ok().filter(|at| *at != NONE);
                slot.expect("memory ends before four billion waiting tasks do")
            }
        };
        let fresh = || Page { slots: [NONE; PAGE], used: 0 };
        let page = self.pages.entry(task / PAGE as u64).or_insert_with(fresh);
        page.slots[task as usize % PAGE] = slot;
        page.used += 1;
        self.len += 1;
        match self.last {
            NONE => self.first = slot,
            last => self.entries[last as usize].after = slot,
        }
        self.last = slot;
        if self.outside == NONE && self.window != 0 && self.len() as u64 > self.window {
            self.outside = slot;
        }
        if self.unoffered == NONE {
            self.unoffered = slot;
        }
        Some(Mark { seq, slot })
    }

    pub(super) fn remove(&mut self, slot: u32) -> Taken {
        let in_window = self.seq(slot) < self.end();
        let entry = &mut self.entries[slot as usize];
        entry.seq = u64::MAX;
        let (before, after) = (entry.before, entry.after);
        let inputs = std::mem::replace(&mut entry.inputs, Inputs::Many(Box::default()));
        let task = entry.task;
        match before {
            NONE => self.first = after,
            before => self.entries[before as usize].after = after,
        }
        match after {
            NONE => self.last = before,
            after => self.entries[after as usize].before = before,
        }
        if self.outside == slot || (in_window && self.outside != NONE) {
            let from = if self.outside == slot { slot } else { self.outside };
            self.outside = self.entries[from as usize].after;
        }
        if self.unoffered == slot {
            self.unoffered = after;
        }
        if let Some(page) = self.pages.get_mut(&(task / PAGE as u64)) {
            page.slots[task as usize % PAGE] = NONE;
            page.used -= 1;
            if page.used == 0 {
                self.pages.remove(&(task / PAGE as u64));
            }
        }
        self.len -= 1;
        self.free.push(slot);
        Taken { task, inputs }
    }

    pub(super) fn first(&self) -> u32 {
        self.first
    }

    /// All tasks, in their order.
    pub(super) fn all(&self) -> impl Iterator<Item = u32> + '_ {
        let is_there = |slot: &u32| *slot != NONE;
        let first = Some(self.first).filter(is_there);
        std::iter::successors(first, move |slot| Some(self.after(*slot)).filter(is_there))
    }

    /// Each task is found by its number, and the window has as many as it may.
    ///
    /// # Errors
    /// Says what does not hold.
    pub(super) fn check(&self) -> Result<(), CheckError> {
        let all: Vec<u32> = self.all().collect();
        ensure!(all.len() == self.len, "{} tasks are queued, not {}", all.len(), self.len);
        let is_in_order = all.is_sorted_by_key(|slot| self.seq(*slot));
        ensure!(is_in_order, "tasks are in another order than they came");
        ensure!(all.last().copied().unwrap_or(NONE) == self.last, "the last task is another");
        let found = |slot: &u32| self.slot_of(self.entries[*slot as usize].task) == Some(*slot);
        ensure!(all.iter().all(found), "a queued task is not found by its number");
        let used: usize = self.pages.values().map(|page| page.used).sum();
        ensure!(used == all.len(), "{used} tasks are found by their numbers, not {}", all.len());
        let outside = all.get(self.window as usize).filter(|_| self.window > 0);
        let outside = outside.copied().unwrap_or(NONE);
        ensure!(outside == self.outside, "the window ends elsewhere");
        Ok(())
    }

    /// The place in the order behind all tasks.
    pub(super) fn next_seq(&self) -> u64 {
        self.next_seq
    }

    pub(super) fn after(&self, slot: u32) -> u32 {
        self.entries[slot as usize].after
    }

    pub(super) fn seq(&self, slot: u32) -> u64 {
        self.entries[slot as usize].seq
    }

    pub(super) fn mark(&self, slot: u32) -> Mark {
        Mark { seq: self.seq(slot), slot }
    }

    /// Whether the task meant is still waiting.
    pub(super) fn has(&self, mark: Mark) -> bool {
        self.seq(mark.slot) == mark.seq
    }

    pub(super) fn inputs(&self, slot: u32) -> &[ObjectNo] {
        self.entries[slot as usize].inputs.as_slice()
    }

    pub(super) fn slot_of(&self, task: u64) -> Option<u32> {
        let page = self.pages.get(&(task / PAGE as u64))?;
        Some(page.slots[task as usize % PAGE]).filter(|slot| *slot != NONE)
    }

    /// The place in the order where the window ends.
    fn end(&self) -> u64 {
        if self.outside == NONE { u64::MAX } else { self.seq(self.outside) }
    }

    /// Whether a place in the order is in the window.
    pub(super) fn in_window(&self, seq: u64) -> bool {
        seq < self.held_end.unwrap_or_else(|| self.end())
    }

    /// Holds the window where it is, although tasks are taken from it.
    pub(super) fn hold_window(&mut self) {
        self.held_end = Some(self.end());
    }

    /// Lets the window move on.
    pub(super) fn release_window(&mut self) {
        self.held_end = None;
    }

    /// The next task of the window that was never offered; each is given once.
    pub(super) fn next_unoffered(&mut self) -> Option<u32> {
        let slot = self.unoffered;
        if slot == NONE || !self.in_window(self.seq(slot)) {
            return None;
        }
        self.unoffered = self.after(slot);
        Some(slot)
    }
}
