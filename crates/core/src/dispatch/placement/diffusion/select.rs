//! From an executor to the tasks that suit it: the paper's second part.

use super::policy::Rest;
use super::queue::{Mark, NONE};
use super::wait_lists::{Look, View};
use super::{Load, Run, Taken, Waiting};
use crate::data::index::{Index, ObjectNo, Place};
use crate::limits::{PARTIAL_TASKS_MAX, SCAN_TASKS_MAX};
use std::cmp::Reverse;
use std::collections::VecDeque;

/// The score of an object whose size is unknown.
const UNKNOWN_BYTES: u64 = 1 << 20;

/// The score of an object: its bytes, and a little for an empty one.
pub(super) fn bytes(index: &Index, object: ObjectNo) -> u128 {
    u128::from(index.size(object).unwrap_or(UNKNOWN_BYTES).max(1))
}

/// A look from the head of the queue on, task by task.
struct Scan {
    at: u32,
    left: usize,
    /// Tasks seen with a part of their inputs at the executor.
    parts: Vec<Mark>,
}

impl Waiting {
    /// Gives an executor with room for `room` tasks those that suit it best,
    /// in the order in which they are to be sent, and takes them out: first
    /// tasks all of whose inputs it holds, in the order of the queue (under a
    /// policy that fetches ahead, a file's tasks together); then
    /// those of which it holds the largest part of the bytes; then what the
    /// policy gives to an executor that holds nothing. Appends to `taken`.
    pub fn select(
        &mut self,
        index: &Index,
        place: Place,
        room: usize,
        load: Load,
        taken: &mut Vec<Taken>,
    ) {
        self.select_in_line(index, place, (room, 0), load, taken);
    }

    /// Selects as [`Waiting::select`] does `room` tasks that find a slot free, and
    /// `ahead` more that are to stand in line behind others. The paper's
    /// executors have no such line; a task in it is bound to an executor before
    /// anybody can tell who will be free first, so that under a policy that
    /// looks at places only tasks all of whose inputs the executor holds are
    /// bound so early.
    pub fn select_in_line(
        &mut self,
        index: &Index,
        place: Place,
        (room, ahead): (usize, usize),
        load: Load,
        taken: &mut Vec<Taken>,
    ) {
        let all = taken.len().saturating_add(room).saturating_add(ahead);
        let upto = if self.policy.looks() { all.saturating_sub(ahead) } else { all };
        let rest = self.policy.rest(load);
        self.queue.hold_window();
        if self.policy.looks() {
            let mut parts = self.select_whole(index, place, all, taken);
            if taken.len() < upto && self.policy.takes_parts() && self.many > 0 {
                self.select_parts(index, place, &mut parts, upto, taken);
            }
        }
        while taken.len() < upto {
            let rest = self.first_of_rest(index, rest);
            let Some(slot) = rest.or_else(|| self.first_unfetchable(index)) else { break };
            taken.push(self.take_out(index, slot));
        }
        self.queue.release_window();
    }

    /// Takes tasks all of whose inputs an executor holds. Two searches go side
    /// by side, and the first to find something ends both: one through what
    /// the executor holds, which is fast if few others hold it, and one from
    /// the head of the queue on, which is fast if many do. Returns tasks seen
    /// of whose inputs it holds a part.
    fn select_whole(
        &mut self,
        index: &Index,
        place: Place,
        upto: usize,
        taken: &mut Vec<Taken>,
    ) -> Vec<Mark> {
        let view = self.wait_lists.place_view(place);
        let mut scan = Scan { at: self.queue.first(), left: SCAN_TASKS_MAX, parts: Vec::new() };
        // A task that is passed by is never seen again in that list, so that this
        // many are met only while an object that many wait for is new here.
        let mut passes = SCAN_TASKS_MAX;
        let mut is_indexed = true;
        let seeks_parts = self.many > 0 && self.policy.takes_parts() && index.held_count(place) > 0;
        while taken.len() < upto {
            let mut found = self.next_of_run(index, place);
            if found.is_none() && is_indexed {
                match self.wait_lists.look(&self.queue, view) {
                    Look::Stale => {}
                    Look::Nothing => is_indexed = false,
                    Look::Task(slot) if self.is_whole_in_view(index, place, slot) => {
                        found = Some(slot)
                    }
                    Look::Task(slot) => {
                        self.note_part(place, self.queue.mark(slot));
                        self.wait_lists.pass(&self.queue, view);
                        passes -= 1;
                        is_indexed = passes > 0;
                    }
                }
            }
            if found.is_none() && passes == 0 {
                found = self.whole_beyond(index, place, view);
            }
            if found.is_none() && self.many > 0 && self.policy.fetches_ahead() {
                found = self.next_whole(index, place);
            }
            if found.is_none() && !is_indexed {
                found = self.first_plain_in_window();
            } else if let (Some(slot), Some(plain)) = (found, self.wait_lists.first_plain()) {
                // The first in the queue goes first.
                found = Some(if plain.seq < self.queue.seq(slot) { plain.slot } else { slot });
            }
            let scans = is_indexed || self.wait_lists.is_overfull() || seeks_parts;
            if found.is_none() && scans {
                found = self.scan(index, place, &mut scan);
            }
            match found {
                Some(slot) => {
                    if scan.at == slot {
                        scan.at = self.queue.after(slot);
                    }
                    self.note_run(place, slot);
                    taken.push(self.take_out(index, slot));
                }
                None if is_indexed => {}
                None if scans && scan.left > 0 && self.scans_on(&scan) => {}
                None => break,
            }
        }
        scan.parts
    }

    /// The next of a file's tasks that an executor is being given together.
    fn next_of_run(&self, index: &Index, place: Place) -> Option<u32> {
        let run = self.runs.get(place.0 as usize).copied().flatten()?;
        let mark =
            self.wait_lists.first_from(&self.queue, self.wait_lists.local(run.object)?, 0)?;
        let goes_on = mark.seq < run.until && self.is_whole(index, place, mark.slot);
        goes_on.then_some(mark.slot)
    }

    /// Under a policy that fetches ahead, a task with one input begins a run of
    /// its file's tasks or continues it.
    fn note_run(&mut self, place: Place, slot: u32) {
        let [object] = *self.queue.inputs(slot) else { return };
        let at = place.0 as usize;
        if !self.policy.fetches_ahead() {
            return;
        }
        if self.runs.len() <= at {
            self.runs.resize(at + 1, None);
        }
        if self.runs[at].is_none_or(|run| run.object != object || self.queue.seq(slot) >= run.until)
        {
            self.runs[at] = Some(Run { object, until: self.queue.next_seq() });
        }
    }

    pub(super) fn first_plain_in_window(&self) -> Option<u32> {
        let first = self.wait_lists.first_plain()?;
        self.queue.in_window(first.seq).then_some(first.slot)
    }

    /// A task all of whose inputs an executor holds, although the first object
    /// of its view stands at others: of the next few objects, each where it
    /// stands.
    fn whole_beyond(&self, index: &Index, place: Place, view: View) -> Option<u32> {
        let next = self.wait_lists.entries(view).take(SCAN_TASKS_MAX);
        let marks =
            next.filter_map(|(seq, local)| self.wait_lists.first_from(&self.queue, local, seq));
        let mut marks = marks.filter(|mark| self.queue.in_window(mark.seq));
        marks.find(|mark| self.is_whole(index, place, mark.slot)).map(|mark| mark.slot)
    }

    fn scans_on(&self, scan: &Scan) -> bool {
        scan.at != NONE && self.queue.in_window(self.queue.seq(scan.at))
    }

    /// Looks at one task of the queue.
    fn scan(&mut self, index: &Index, place: Place, scan: &mut Scan) -> Option<u32> {
        if scan.left == 0 || !self.scans_on(scan) {
            return None;
        }
        scan.left -= 1;
        let slot = scan.at;
        if self.is_whole(index, place, slot) {
            return Some(slot);
        }
        if self.queue.inputs(slot).len() > 1 {
            scan.parts.push(self.queue.mark(slot));
        }
        scan.at = self.queue.after(slot);
        None
    }

    /// Whether an executor holds all inputs of a task.
    pub(super) fn is_whole(&self, index: &Index, place: Place, slot: u32) -> bool {
        self.queue.inputs(slot).iter().all(|object| index.holds(place, *object))
    }

    /// The part of a task in whose list the executor's view stands: the executor
    /// holds at least that input.
    fn is_whole_in_view(&self, index: &Index, place: Place, slot: u32) -> bool {
        self.queue.inputs(slot).len() == 1 || self.is_whole(index, place, slot)
    }

    /// Remembers that an executor holds a part of a task's inputs.
    fn note_part(&mut self, place: Place, mark: Mark) {
        let at = place.0 as usize;
        if self.parts.len() <= at {
            self.parts.resize_with(at + 1, VecDeque::new);
        }
        let parts = &mut self.parts[at];
        if parts.len() == PARTIAL_TASKS_MAX {
            parts.pop_front();
        }
        parts.push_back(mark);
    }

    /// The tasks known of which an executor may hold a part, each once.
    pub(super) fn known_parts(&mut self, place: Place, seen: &mut Vec<Mark>) {
        if let Some(parts) = self.parts.get_mut(place.0 as usize) {
            parts.retain(|mark| self.queue.has(*mark));
            seen.extend(parts.iter());
        }
        seen.retain(|mark| self.queue.has(*mark) && self.queue.in_window(mark.seq));
        seen.sort_unstable_by_key(|mark| mark.seq);
        seen.dedup();
    }

    /// Takes the tasks of whose bytes an executor holds the largest parts.
    fn select_parts(
        &mut self,
        index: &Index,
        place: Place,
        seen: &mut Vec<Mark>,
        upto: usize,
        taken: &mut Vec<Taken>,
    ) {
        self.known_parts(place, seen);
        let mut scored: Vec<(u128, Mark)> = seen
            .iter()
            .filter_map(|mark| Some((self.part(index, place, mark.slot)?, *mark)))
            .collect();
        scored.sort_by_key(|(part, mark)| (Reverse(*part), mark.seq));
        scored.truncate(upto - taken.len());
        for (_, mark) in scored {
            taken.push(self.take_out(index, mark.slot));
        }
    }

    /// The part of a task's bytes that an executor holds, of 2^32; `None` if
    /// nothing, or if it would have to fetch what has enough replicas.
    fn part(&self, index: &Index, place: Place, slot: u32) -> Option<u128> {
        let (mut held, mut all) = (0, 0);
        for object in self.queue.inputs(slot) {
            let size = bytes(index, *object);
            all += size;
            if index.holds(place, *object) {
                held += size;
            } else if self.is_replicated(index, *object) {
                return None;
            }
        }
        (held > 0).then(|| (held << 32) / all)
    }

    /// Whether an object has as many holders as it may have.
    pub(super) fn is_replicated(&self, index: &Index, object: ObjectNo) -> bool {
        let most = self.replication_max as usize;
        most != 0 && index.holders(object).len() >= most
    }

    /// The first task for an executor that holds nothing of what waits.
    pub(super) fn first_of_rest(&mut self, index: &Index, rest: Rest) -> Option<u32> {
        match rest {
            Rest::Nothing => None,
            Rest::Head => {
                let first = self.queue.first();
                (first != NONE && self.queue.in_window(self.queue.seq(first))).then_some(first)
            }
            Rest::HeldByFewerThan(limit) => {
                let view = self.wait_lists.limit_view(limit)?;
                self.first_below(index, limit, view)
            }
        }
    }

    fn first_below(&mut self, index: &Index, limit: u32, view: View) -> Option<u32> {
        loop {
            match self.wait_lists.look(&self.queue, view) {
                Look::Nothing => return None,
                Look::Stale => {}
                Look::Task(slot) => {
                    let below = |object: &ObjectNo| index.holders(*object).len() < limit as usize;
                    if self.queue.inputs(slot).iter().all(below) {
                        return Some(slot);
                    }
                    self.wait_lists.pass(&self.queue, view);
                }
            }
        }
    }
}
