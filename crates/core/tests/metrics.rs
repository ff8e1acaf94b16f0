//! The papers' metrics: worked examples of theirs, and runs against plain sums.

#![allow(clippy::unwrap_used, reason = "a test may fail at once")]

use falkon_core::data::stage::{Count, Usage};
use falkon_core::limits::METRIC_INTERVALS_MAX;
use falkon_core::metrics::{HitRatios, Observed, Run, TaskTimes, normalized};
use falkon_core::task::Time;

fn close(found: f64, expected: f64) {
    assert!((found - expected).abs() <= 1e-9 * expected.abs().max(1.0), "{found}, not {expected}");
}

fn count(objects: u64, bytes: u64) -> Count {
    Count { objects, bytes }
}

#[test]
fn hit_ratios_are_parts_of_all_accesses() {
    assert_eq!(HitRatios::of(&Usage::default()), None);
    let usage = Usage { local: count(78, 10), peer: count(1, 30), store: count(21, 0) };
    let of = HitRatios::of(&usage).unwrap();
    for (found, expected) in [(of.local, 0.78), (of.peer, 0.01), (of.store, 0.21)] {
        close(found, expected);
    }
    let of = HitRatios::of_bytes(&usage).unwrap();
    for (found, expected) in [(of.local, 0.25), (of.peer, 0.75), (of.store, 0.0)] {
        close(found, expected);
    }
    // Empty files are accessed too.
    let empty = Usage { store: count(2, 0), ..Usage::default() };
    close(HitRatios::of(&empty).unwrap().store, 1.0);
    assert_eq!(HitRatios::of_bytes(&empty), None);
}

#[test]
fn the_papers_figures_follow() {
    // Data-diffusion §5.2: 250K tasks of 10 ms, an ideal of 1415 s; with 4 GB
    // caches 1427 s, 17 CPU hours and a speedup of 3.5; 2 GB 24 CPU hours.
    let run = |makespan_s: f64, cpu_hours: f64| Run {
        tasks: 250_000,
        slots: cpu_hours * 3600.0 / makespan_s,
        makespan_s,
        work_s: 2500.0,
        arrivals_s: 1415.0,
    };
    let (four, two) = (run(1427.0, 17.0), run(1436.0, 24.0));
    let baseline_s = 3.5 * 1427.0;
    close(four.ideal_s(), 1415.0);
    assert_eq!((four.efficiency() * 100.0).round(), 99.0);
    close(four.slowdown(), 1427.0 / 1415.0);
    close(four.cpu_s(), 17.0 * 3600.0);
    close(four.speedup_over(baseline_s), 3.5);
    close(four.performance_index(baseline_s), 3.5 / 17.0);
    let index = |run: &Run| run.performance_index(baseline_s);
    let normal = normalized(&[index(&two), index(&four)]);
    assert_eq!((normal[0] * 10.0).round(), 7.0, "0.7 as opposed to 1");
    close(normal[1], 1.0);
    assert_eq!(normalized(&[0.0, 0.0]), [0.0, 0.0]);
}

#[test]
fn slots_or_arrivals_set_the_pace() {
    let run = Run { tasks: 8, slots: 2.0, makespan_s: 5.0, work_s: 8.0, arrivals_s: 1.0 };
    close(run.ideal_s(), 4.0);
    close(run.efficiency(), 0.8);
    close(run.speedup(), 1.6);
    close(run.utilization(), 0.8);
    close(run.slowdown(), 5.0);
    close(run.results_per_s(), 1.6);
    close(Run { arrivals_s: 4.5, ..run }.efficiency(), 0.9);
}

/// Numbers that look random and follow from a seed (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

#[test]
fn what_is_observed_adds_up_whatever_the_order() {
    for seed in 0..200 {
        let mut random = Random(seed);
        let scale = 1 << random.below(34);
        let epoch = 1_700_000_000_000_000 + random.below(1 << 40);
        let tasks: Vec<(TaskTimes, Usage)> = (0..1 + random.below(300))
            .map(|_| {
                let queued = Time(epoch + random.below(scale));
                let started = queued.after(random.below(scale));
                let ended = started.after(random.below(1000));
                let delivered = ended.after(random.below(1000));
                let store = count(random.below(3), random.below(1 << 30));
                let usage = Usage { store, local: count(1, 1), ..Usage::default() };
                (TaskTimes { queued, started, ended, delivered }, usage)
            })
            .collect();
        let mut observed = Observed::default();
        tasks.iter().for_each(|(times, usage)| observed.add(times, usage));
        let run = observed.run(3.0).unwrap();
        let first = tasks.iter().map(|(times, _)| times.queued.0).min().unwrap();
        let last = tasks.iter().map(|(times, _)| times.delivered.0).max().unwrap();
        close(run.makespan_s, (last - first) as f64 / 1e6);
        let mean = |of: &dyn Fn(&TaskTimes) -> u64| {
            let sum: u64 = tasks.iter().map(|(times, _)| of(times)).sum();
            sum as f64 / tasks.len() as f64 / 1e6
        };
        let response = observed.response();
        close(response.total_s(), mean(&|times| times.delivered.since(times.queued)));
        close(response.execute_s, mean(&|times| times.ended.since(times.started)));
        close(run.work_s, response.execute_s * tasks.len() as f64);
        assert!(run.arrivals_s <= run.makespan_s, "seed {seed}");
        let mut all = Usage::default();
        tasks.iter().for_each(|(_, usage)| all.add(usage));
        assert_eq!(*observed.usage(), all, "seed {seed}");
        for most in [2, 7, METRIC_INTERVALS_MAX] {
            let intervals = observed.intervals(most);
            assert!(!intervals.is_empty() && intervals.len() <= most, "seed {seed}");
            let mut sum = Usage::default();
            intervals.iter().for_each(|interval| sum.add(&interval.usage));
            let ended: u64 = intervals.iter().map(|interval| interval.ended).sum();
            assert_eq!((sum, ended), (all, tasks.len() as u64), "seed {seed}");
            assert!(intervals[0].from.0 >= first, "seed {seed}");
            for pair in intervals.windows(2) {
                assert_eq!(pair[0].from.after(pair[0].micros), pair[1].from, "seed {seed}");
            }
            for interval in &intervals {
                let until = interval.from.after(interval.micros);
                let is_in = |time: Time| interval.from <= time && time < until;
                let ended = tasks.iter().filter(|(times, _)| is_in(times.ended)).count() as u64;
                assert_eq!(interval.ended, ended, "seed {seed}");
            }
        }
        let mut backwards = Observed::default();
        tasks.iter().rev().for_each(|(times, usage)| backwards.add(times, usage));
        assert_eq!(backwards.run(3.0), observed.run(3.0), "seed {seed}");
        let most = METRIC_INTERVALS_MAX;
        assert_eq!(backwards.intervals(most), observed.intervals(most), "seed {seed}");
    }
}
