//! How fast a recorded machine was: its store and links, as far as the waits of tasks for
//! their inputs tell, and the start of a process.

use super::{Staged, nanos};
use falkon_core::data::stage::{Count, Usage};
use falkon_core::task::{ExecutorId, Time};
use falkon_sim::Nanos;
use std::collections::{BTreeMap, BTreeSet};

/// Objects of fewer bytes cost the store an operation, and larger ones its bandwidth.
const SMALL_BYTES_MAX: u64 = 1 << 20;

/// Tasks that started in another's place, below which their pauses tell nothing.
const PAUSES_MIN: usize = 10;
/// Pauses of more medians than this are none of a start.
const PAUSE_OF_MEDIAN_MAX: u64 = 10;

/// The costs of a store, links and processes; `None` where nothing tells.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(in crate::sim::replay) struct Rates {
    /// Of the store, for all executors together.
    pub(in crate::sim::replay) store_bytes_per_s: Option<f64>,
    /// Of an executor's link, from other executors.
    pub(in crate::sim::replay) peer_bytes_per_s: Option<f64>,
    /// Of the store, for a small object.
    pub(in crate::sim::replay) operation: Option<Nanos>,
    /// From the end of a task until the next one starts in its place.
    pub(in crate::sim::replay) start: Option<Nanos>,
}

impl Rates {
    /// The rates of tasks, of which so many had their inputs alike.
    pub(super) fn of(rows: impl Iterator<Item = (u64, Staged)>) -> Rates {
        let mut rows: Vec<(u64, Staged)> = rows.collect();
        let start = start(&rows);
        rows.retain(|(_, staged)| staged.micros > 0);
        let small = |(_, staged): &(u64, Staged)| {
            let of = &staged.usage;
            let is_alone = of.peer.objects == 0 && of.store.objects > 0;
            let each = staged.micros / of.store.objects.max(1);
            (is_alone && !is_large(&of.store)).then_some(each)
        };
        Rates {
            store_bytes_per_s: rate(&rows, |usage| usage.store, |_| None),
            peer_bytes_per_s: rate(&rows, |usage| usage.peer, |staged| staged.executor),
            operation: rows.iter().filter_map(small).min().map(nanos),
            start,
        }
    }
}

/// The mean time from the end of a task until another starts that its executor had by then,
/// less what that waited for inputs; `None` if that was rare.
fn start(rows: &[(u64, Staged)]) -> Option<Nanos> {
    let mut executors: BTreeMap<ExecutorId, Vec<&Staged>> = BTreeMap::new();
    for (_, staged) in rows.iter().filter(|(count, _)| *count == 1) {
        if let Some(executor) = staged.executor {
            executors.entry(executor).or_default().push(staged);
        }
    }
    let mut pauses = Vec::new();
    for mut tasks in executors.into_values() {
        tasks.sort_by_key(|task| task.started);
        // The ends of tasks in whose places none has started yet. A task may start before the
        // end of the one in its place is known. That end then is of no use, so the last one is
        // taken that fits: older ones would add up to long pauses.
        let mut ends: BTreeSet<(Time, usize)> = BTreeSet::new();
        for (number, task) in tasks.into_iter().enumerate() {
            let last = ends.range(..=(task.started, usize::MAX)).next_back().copied();
            if let Some((end, of)) = last {
                ends.remove(&(end, of));
                if task.dispatched <= end {
                    pauses.push(task.started.since(end).saturating_sub(task.micros));
                }
            }
            ends.insert((task.ended, number));
        }
    }
    if pauses.len() < PAUSES_MIN {
        return None;
    }
    // In longer ones, tries that failed or tasks of other instances had the slot.
    let middle = pauses.len() / 2;
    let most = pauses.select_nth_unstable(middle).1.saturating_mul(PAUSE_OF_MEDIAN_MAX);
    pauses.retain(|pause| *pause <= most);
    let all: u128 = pauses.iter().map(|pause| u128::from(*pause) * 1000).sum();
    Some(Nanos(u64::try_from(all / pauses.len() as u128).unwrap_or(u64::MAX)))
}

fn is_large(count: &Count) -> bool {
    count.bytes / count.objects.max(1) >= SMALL_BYTES_MAX
}

/// Bytes of large objects over the time in which tasks waited for them; of each device by
/// itself, where there are several.
fn rate(
    rows: &[(u64, Staged)],
    from: fn(&Usage) -> Count,
    device: fn(&Staged) -> Option<ExecutorId>,
) -> Option<f64> {
    let mut waits: BTreeMap<Option<ExecutorId>, Vec<(u64, u64)>> = BTreeMap::new();
    let mut bytes = 0.0;
    for (count, staged) in rows {
        let came = from(&staged.usage);
        if came.objects > 0 && is_large(&came) {
            bytes += came.bytes as f64 * *count as f64;
            let until = staged.started.0;
            let wait = (until.saturating_sub(staged.micros), until);
            waits.entry(device(staged)).or_default().push(wait);
        }
    }
    let micros: u64 = waits.into_values().map(covered).sum();
    (micros > 0).then(|| bytes / (micros as f64 * 1e-6))
}

/// How much of time is in at least one of these intervals.
fn covered(mut intervals: Vec<(u64, u64)>) -> u64 {
    intervals.sort_unstable();
    let (mut all, mut upto) = (0_u64, 0);
    for (from, until) in intervals {
        all = all.saturating_add(until.saturating_sub(from.max(upto)));
        upto = upto.max(until);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A task that starts before the one in its place is known to have ended.
    #[test]
    fn an_end_that_is_known_late_makes_no_pause_longer() {
        let task = |number: u64| {
            let started = 100 * number + 10 - if number == 20 { 15 } else { 0 };
            let staged = Staged {
                executor: Some(ExecutorId(1)),
                dispatched: Time(0),
                started: Time(started),
                ended: Time(100 * (number + 1)),
                micros: 0,
                usage: Usage::default(),
            };
            (1, staged)
        };
        let start = Rates::of((1..60).map(task)).start;
        assert_eq!(start, Some(Nanos(10_000)));
    }

    #[test]
    fn time_that_several_wait_counts_once() {
        assert_eq!(covered(vec![(5, 9), (0, 3), (2, 4), (6, 7), (9, 10)]), 9);
        assert_eq!(covered(Vec::new()), 0);
    }

    #[test]
    fn large_objects_give_a_rate_and_small_ones_an_operation() {
        let staged = |started, micros, store: (u64, u64), peer: (u64, u64)| Staged {
            executor: Some(ExecutorId(started % 2)),
            dispatched: Time(started),
            started: Time(started),
            ended: Time(started),
            micros,
            usage: Usage {
                store: Count { objects: store.0, bytes: store.1 },
                peer: Count { objects: peer.0, bytes: peer.1 },
                ..Usage::default()
            },
        };
        let rows = [
            (2, staged(4_000_000, 2_000_000, (1, 10_000_000), (0, 0))),
            (1, staged(4_000_000, 1_000_000, (2, 20_000_000), (0, 0))),
            (1, staged(9_000_000, 1_000_000, (0, 0), (1, 8_000_000))),
            (1, staged(9_000_001, 1_000_000, (0, 0), (1, 8_000_000))),
            (1, staged(9_000_000, 3_000, (3, 30), (0, 0))),
            (1, staged(9_000_000, 5_000, (1, 30), (0, 0))),
        ];
        let rates = Rates::of(rows.into_iter());
        assert_eq!(rates.store_bytes_per_s, Some(20e6));
        assert_eq!(rates.peer_bytes_per_s, Some(8e6));
        assert_eq!(rates.operation, Some(Nanos(1_000_000)));
        assert_eq!(Rates::of(std::iter::empty()), Rates::default());
    }

    /// Tasks on two slots, each 3 or 5 µs after the one before in its slot has ended.
    #[test]
    fn the_start_of_a_process_is_the_pause_between_two_tasks() {
        let task = |slot: u64, at: u64, dispatched| {
            let started = 100 * at + 50 * slot + 7;
            let ended = started + 100 - if at.is_multiple_of(3) { 3 } else { 5 };
            let staged = Staged {
                executor: Some(ExecutorId(1)),
                dispatched: Time(dispatched),
                started: Time(started),
                ended: Time(ended),
                micros: 0,
                usage: Usage::default(),
            };
            (1, staged)
        };
        let tasks = |dispatched| {
            let tasks = (0..40).map(move |number| task(number % 2, number / 2, dispatched));
            tasks.collect::<Vec<_>>().into_iter()
        };
        assert_eq!(Rates::of(tasks(0)).start, Some(Nanos(4_263)));
        // Tasks that were sent later had nothing to wait for.
        assert_eq!(Rates::of(tasks(10_000)).start, None);
        assert_eq!(Rates::of(tasks(0).take(8)).start, None);
    }
}
