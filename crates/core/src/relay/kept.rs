//! Long output that executors below keep: it stays there, and the dispatcher above knows it by
//! a number of the relay's.
//!
//! The number is the task's below, with a salt of the relay's instance there in front: tasks
//! of another instance have the same numbers.

use super::Note;
use crate::execute::overflows::Overflows;
use crate::result::{Detail, Overflow, Report};
use crate::runset::RunSet;
use std::sync::Arc;

/// Bits of the number that are the task's. The output of further tasks is what was sent of it.
const TASK_BITS: u32 = 44;
const TASK_MASK: u64 = (1 << TASK_BITS) - 1;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Kept {
    salt: u64,
    /// Numbers in reports that are not acknowledged.
    reported: RunSet,
    /// Numbers whose reports were acknowledged.
    numbers: Overflows,
}

impl Kept {
    /// A new instance below has this salt.
    pub(super) fn begin(&mut self, salt: u64) {
        *self = Kept { salt: salt & (u64::MAX >> TASK_BITS), ..Kept::default() };
    }

    /// Takes in a note of an earlier process.
    pub(super) fn recover(&mut self, note: Note) {
        match note {
            Note::Salt(salt) => self.begin(salt),
            Note::Kept { first, count } => self.numbers.insert(first, count),
            Note::Released { first, count } => self.numbers.discard(&[(first, count)]),
            _ => {}
        }
    }

    /// What brings this about.
    pub(super) fn notes(&self) -> impl Iterator<Item = Note> + '_ {
        let kept = self.numbers.runs().map(|(first, count)| Note::Kept { first, count });
        [Note::Salt(self.salt)].into_iter().chain(kept)
    }

    /// What a report says of the long output of a task with that number below.
    pub(super) fn report(
        &mut self,
        incarnation: u64,
        below: u64,
        detail: Arc<Detail>,
    ) -> Arc<Detail> {
        if detail.overflows() == [None, None] {
            return detail;
        }
        let number = (below <= TASK_MASK).then_some(self.salt << TASK_BITS | below);
        if let Some(number) = number {
            self.reported.insert(number, 1);
        }
        let kept = number.map(|number| Overflow { incarnation, number });
        let mut detail = detail;
        let streams = Arc::make_mut(&mut detail);
        for captured in [&mut streams.stdout, &mut streams.stderr] {
            captured.overflow = captured.overflow.and(kept);
        }
        detail
    }

    /// Whether the dispatcher above may still ask for the long output of a task with that number
    /// below: it was reported, and is not released.
    pub(super) fn is_needed(&self, below: u64) -> bool {
        let number = self.salt << TASK_BITS | below;
        let is_known = || self.reported.contains(number) || self.numbers.contains(number);
        below <= TASK_MASK && is_known()
    }

    /// The number below of the task whose output has this number; `None` if it is of an
    /// instance of before.
    pub(super) fn task(&self, number: u64) -> Option<u64> {
        (number >> TASK_BITS == self.salt).then_some(number & TASK_MASK)
    }

    /// The dispatcher above has reports. Returns what to write down before those below are
    /// acknowledged.
    pub(super) fn acknowledged<'a>(
        &mut self,
        reports: impl IntoIterator<Item = &'a Report>,
    ) -> Vec<Note> {
        let mut notes = Vec::new();
        for report in reports {
            self.numbers.acknowledged(report);
            let mut kept = report.detail.iter().flat_map(|detail| detail.overflows()).flatten();
            // Both streams of a task have its number.
            if let Some(Overflow { number, .. }) = kept.next() {
                self.reported.remove(number, 1);
                notes.push(Note::Kept { first: number, count: 1 });
            }
        }
        notes
    }

    /// The dispatcher above needs these no more: numbers, as (first, count). Returns their
    /// tasks below, and what to write down.
    pub(super) fn discard(&mut self, runs: &[(u64, u64)]) -> (Vec<(u64, u64)>, Vec<Note>) {
        self.numbers.discard(runs);
        for &(first, count) in runs {
            self.reported.remove(first, count);
        }
        let (own, own_end) = (self.salt << TASK_BITS, self.salt << TASK_BITS | TASK_MASK);
        let below = runs.iter().filter_map(|&(first, count)| {
            let last = first.saturating_add(count.checked_sub(1)?).min(own_end);
            let first = first.max(own);
            (first <= last).then(|| (first & TASK_MASK, last - first + 1))
        });
        let notes = runs.iter().map(|&(first, count)| Note::Released { first, count });
        (below.collect(), notes.collect())
    }

    /// A session above begins.
    pub(super) fn tell_anew(&mut self) {
        self.numbers.tell_anew();
    }

    /// Whether there is something to tell above.
    pub(super) fn is_telling(&self) -> bool {
        self.numbers.is_telling()
    }

    /// What to tell in the next message: numbers, as (first, count).
    pub(super) fn next(&mut self) -> Vec<(u64, u64)> {
        self.numbers.next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::Captured;

    fn kept(salt: u64) -> Kept {
        let mut kept = Kept::default();
        kept.begin(salt);
        kept
    }

    fn detail() -> Arc<Detail> {
        let overflow = Some(Overflow { incarnation: 7, number: 3 });
        let stderr = Captured { head: Vec::new(), total_bytes: 9, overflow, member: None };
        Arc::new(Detail { stderr, ..Detail::default() })
    }

    #[test]
    fn a_task_has_its_number_in_its_instance_alone() {
        let (mut one, other) = (kept(u64::MAX), kept(5));
        for task in [0, 1, TASK_MASK] {
            let [stdout, stderr] = one.report(11, task, detail()).overflows();
            let stderr = stderr.expect("it is kept");
            assert_eq!((stdout, stderr.incarnation), (None, 11));
            assert_eq!((one.task(stderr.number), other.task(stderr.number)), (Some(task), None));
        }
        assert_eq!(one.report(11, TASK_MASK + 1, detail()).overflows(), [None, None]);
    }

    #[test]
    fn what_is_discarded_above_is_released_below() {
        let mut kept = kept(5);
        let own = 5 << TASK_BITS;
        let (below, notes) = kept.discard(&[(own + 2, 3), (0, 9), (own | TASK_MASK, 7)]);
        assert_eq!((below, notes.len()), (vec![(2, 3), (TASK_MASK, 1)], 3));
        let (all, _) = kept.discard(&[(1, u64::MAX), (4, 0)]);
        assert_eq!(all, [(0, 1 << TASK_BITS)]);
    }

    #[test]
    fn notes_bring_about_what_was() {
        let mut first = kept(5);
        let own = 5 << TASK_BITS;
        let mut notes: Vec<Note> = first.notes().collect();
        for note in [Note::Kept { first: own, count: 4 }, Note::Released { first: own, count: 1 }] {
            first.recover(note);
            notes.push(note);
        }
        let mut second = Kept::default();
        notes.into_iter().for_each(|note| second.recover(note));
        second.tell_anew();
        assert_eq!(second.next(), [(own + 1, 3)]);
        assert!(second.notes().eq(first.notes()));
    }
}
