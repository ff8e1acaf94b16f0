//! The papers' metrics: what they print follows from their workload, and each
//! metric is computed a second time from random histories of events.

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
    assert_eq!(usage.all(), count(100, 40));
    // Empty files are accessed too.
    let empty = Usage { store: count(2, 0), ..Usage::default() };
    close(HitRatios::of(&empty).unwrap().store, 1.0);
    assert_eq!(HitRatios::of_bytes(&empty), None);
}

/// The workload of data-diffusion §5.2, task by task: 1 task/s, every 60 s
/// 1.3 times as many, rounded up, at most 1000/s, 250K tasks of 10 ms.
fn arrivals_of_the_paper() -> Vec<Time> {
    let (mut rate, mut interval, mut all) = (1_u64, 0, Vec::new());
    while all.len() < 250_000 {
        let begin = interval * 60_000_000;
        let of_interval = (0..60 * rate).map(|at| Time(begin + at * 1_000_000 / rate));
        all.extend(of_interval.take(250_000 - all.len()));
        rate = (rate * 13).div_ceil(10).min(1000);
        interval += 1;
    }
    assert_eq!(interval, 24, "24 distinct intervals");
    all
}

/// The paper's figures follow from its workload and the times that it
/// measured, by the definitions of §5.2.
#[test]
fn the_papers_figures_follow_from_its_workload() {
    let mut observed = Observed::default();
    for queued in arrivals_of_the_paper() {
        let ended = queued.after(10_000);
        let times = TaskTimes { queued, started: queued, ended, delivered: ended };
        observed.add(&times, &Usage::default());
    }
    let ideal = observed.run(128.0).unwrap();
    assert_eq!(ideal.tasks, 250_000);
    close(ideal.work_s, 2500.0);
    // "250K tasks and spanning 1415 seconds".
    assert_eq!(ideal.ideal_s().round(), 1415.0);
    assert_eq!(ideal.arrivals_s.round(), 1415.0);
    assert!(ideal.efficiency() > 0.999_999, "nothing but the tasks took time");

    // §5.2.1: first-available, 1 GB, 1.5 GB, 2 GB, 4 GB, max-cache-hit,
    // max-compute-util: measured seconds and printed efficiency in percent.
    let runs = [
        (5011.0, 28.0),
        (3762.0, 38.0),
        (1596.0, 89.0),
        (1436.0, 99.0),
        (1427.0, 99.0),
        (2888.0, 49.0),
        (2037.0, 69.0),
    ]
    .map(|(makespan_s, percent)| {
        let run = Run { makespan_s, ..ideal };
        assert_eq!((run.efficiency() * 100.0).round(), percent, "{makespan_s} s");
        close(run.slowdown() * run.efficiency(), 1.0);
        run
    });
    // §5.2.4: "1.3X to 3.5X" over the shared file system; 17 CPU hours with
    // 4 GB and 24 with 2 GB are an index of 1 and of 0.7.
    let [baseline, one, _, two, four, ..] = runs;
    let tenths = |run: &Run| (run.speedup_over(baseline.makespan_s) * 10.0).round();
    assert_eq!(
        [tenths(&one), tenths(&two), tenths(&four), tenths(&baseline)],
        [13., 35., 35., 10.]
    );
    let index = |run: &Run, cpu_hours: f64| {
        let slots = cpu_hours * 3600.0 / run.makespan_s;
        Run { slots, ..*run }.performance_index(baseline.makespan_s)
    };
    let normal = normalized(&[index(&two, 24.0), index(&four, 17.0)]);
    let normal: Vec<f64> = normal.iter().map(|index| (index * 10.0).round()).collect();
    assert_eq!(normal, [7.0, 10.0], "0.7 as opposed to 1");
    assert_eq!(normalized(&[0.0, 0.0]), [0.0, 0.0]);
}

/// Something that happened to a task of a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Happened {
    Delivered,
    Ended,
    Started,
    Queued,
}

/// Where a task found an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Local,
    Peer,
    Store,
}

/// A run on some slots, as a list of what happened when: nothing else is known
/// of it.
struct History {
    slots: u64,
    events: Vec<(u64, Happened)>,
    tasks: Vec<TaskTimes>,
    accesses: Vec<Vec<(Source, u64)>>,
}

impl History {
    /// Tasks come when they come, wait for the first free slot in their order,
    /// run, and free it; dispatching and delivering take time.
    fn random(random: &mut Random) -> History {
        let slots = 1 + random.below(8);
        let mut free = vec![0; slots as usize];
        let mut queued = 1 + random.below(1 << 40);
        let (gap, work) = (1 + random.below(1 << 20), 1 + random.below(1 << 22));
        let scale = random.below(20);
        let overhead = random.below(1 << scale);
        let mut history =
            History { slots, events: Vec::new(), tasks: Vec::new(), accesses: Vec::new() };
        for _ in 0..1 + random.below(400) {
            queued += random.below(gap);
            let slot = (0..free.len()).min_by_key(|slot| free[*slot]).unwrap();
            let started = free[slot].max(queued) + random.below(overhead + 1);
            let ended = started + random.below(work);
            let delivered = ended + random.below(overhead + 1);
            free[slot] = ended;
            let all = [
                (queued, Happened::Queued),
                (started, Happened::Started),
                (ended, Happened::Ended),
                (delivered, Happened::Delivered),
            ];
            history.events.extend(all);
            let [queued, started, ended, delivered] = all.map(|(at, _)| Time(at));
            history.tasks.push(TaskTimes { queued, started, ended, delivered });
            let accesses = (0..random.below(4)).map(|_| {
                let source = [Source::Local, Source::Peer, Source::Store][random.below(3) as usize];
                (source, random.below(1 << 30))
            });
            history.accesses.push(accesses.collect());
        }
        history.events.sort_unstable();
        history
    }

    fn observed(&self) -> Observed {
        let mut observed = Observed::default();
        for (times, accesses) in self.tasks.iter().zip(&self.accesses) {
            let mut usage = Usage::default();
            for (source, bytes) in accesses {
                let one = match source {
                    Source::Local => Usage { local: count(1, *bytes), ..Usage::default() },
                    Source::Peer => Usage { peer: count(1, *bytes), ..Usage::default() },
                    Source::Store => Usage { store: count(1, *bytes), ..Usage::default() },
                };
                usage.add(&one);
            }
            observed.add(times, &usage);
        }
        observed
    }

    /// Seconds that tasks spent between two kinds of events, all together: how
    /// many are between them at a time, summed over time.
    fn seconds_between(&self, from: Happened, to: Happened) -> f64 {
        let (mut inside, mut last, mut sum) = (0_i128, 0, 0_i128);
        for (at, happened) in &self.events {
            sum += inside * i128::from(at - last);
            inside += i128::from(*happened == from) - i128::from(*happened == to);
            last = *at;
        }
        assert_eq!(inside, 0);
        sum as f64 / 1e6
    }

    /// From the first thing that happened to the last.
    fn lasts(&self) -> f64 {
        (self.events[self.events.len() - 1].0 - self.events[0].0) as f64 / 1e6
    }

    /// The same tasks on so many slots that none waits, and nothing but them
    /// takes time.
    fn without_limits(&self) -> History {
        let mut events = Vec::new();
        for times in &self.tasks {
            let ends = times.queued.0 + times.ended.since(times.started);
            events.extend([(times.queued.0, Happened::Queued), (ends, Happened::Delivered)]);
        }
        events.sort_unstable();
        History { slots: u64::MAX, events, tasks: Vec::new(), accesses: Vec::new() }
    }
}

/// Each metric, computed from what happened when by the paper's words, not from
/// sums over tasks.
#[test]
fn metrics_of_random_histories_are_what_the_papers_define() {
    for seed in 0..300 {
        println!("seed {seed}");
        let mut random = Random(seed);
        let history = History::random(&mut random);
        let observed = history.observed();
        let run = observed.run(history.slots as f64).unwrap();
        let (slots, tasks) = (history.slots as f64, history.tasks.len() as f64);
        let or_one = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 1.0 };

        // §5.2.6: AR_T = WQ_T + E_T + D_T, "from task submission to task
        // completion notification".
        let response = observed.response();
        let wait = history.seconds_between(Happened::Queued, Happened::Started);
        let execute = history.seconds_between(Happened::Started, Happened::Ended);
        let deliver = history.seconds_between(Happened::Ended, Happened::Delivered);
        close(response.wait_s, wait / tasks);
        close(response.execute_s, execute / tasks);
        close(response.deliver_s, deliver / tasks);
        let all = history.seconds_between(Happened::Queued, Happened::Delivered);
        close(response.total_s(), all / tasks);

        // §4.3: V = max(B / |T|, 1 / A) |K|, E = V / W, S = E |T|. B: the mean
        // time of a task. |K| / A: what arrivals alone would take, which is
        // WET_ideal of §5.2.5.
        let makespan = history.lasts();
        let arrivals = history.without_limits().lasts();
        let rate = tasks / arrivals;
        let (mean, ideal) =
            (execute / tasks, f64::max(execute / tasks / slots, 1.0 / rate) * tasks);
        close(run.makespan_s, makespan);
        close(run.arrivals_s, arrivals);
        close(run.work_s, mean * tasks);
        close(run.ideal_s(), ideal);
        close(run.efficiency(), or_one(ideal, makespan));
        close(run.speedup(), or_one(ideal, makespan) * slots);
        // Nobody is faster than the ideal.
        assert!(run.efficiency() <= 1.0 + 1e-12, "{}", run.efficiency());

        // §5.2.5: SL; §5.2.3: what comes out per second; §5.2.1: utilization.
        close(run.slowdown(), or_one(makespan, arrivals));
        close(run.results_per_s(), if makespan > 0.0 { tasks / makespan } else { 0.0 });
        close(run.utilization(), or_one(execute, makespan * slots));

        // §5.2.4: SP and PI against another run of these tasks, with every
        // access slower; CPU_T is the time for which slots were there.
        let slower = makespan * (1.0 + random.below(1000) as f64 / 100.0);
        let speedup = or_one(slower, makespan);
        close(run.cpu_s(), history.slots as f64 * makespan);
        close(run.speedup_over(slower), speedup);
        close(run.performance_index(slower), or_one(speedup, slots * makespan / 3600.0));

        // §5.2.1: HR_L + HR_C + HR_S, of accesses and of bytes.
        let accesses: Vec<(Source, u64)> = history.accesses.concat();
        let part = |of: Source, weigh: &dyn Fn(u64) -> u64| {
            let is_of = |(source, _): &&(Source, u64)| *source == of;
            let sum = |some: &mut dyn Iterator<Item = &(Source, u64)>| -> u64 {
                some.map(|(_, bytes)| weigh(*bytes)).sum()
            };
            sum(&mut accesses.iter().filter(is_of)) as f64 / sum(&mut accesses.iter()) as f64
        };
        for (found, weigh) in [
            (HitRatios::of(observed.usage()), &(|_| 1_u64) as &dyn Fn(u64) -> u64),
            (HitRatios::of_bytes(observed.usage()), &|bytes| bytes),
        ] {
            let Some(found) = found else {
                assert_eq!(accesses.iter().map(|(_, bytes)| weigh(*bytes)).sum::<u64>(), 0);
                continue;
            };
            close(found.local, part(Source::Local, weigh));
            close(found.peer, part(Source::Peer, weigh));
            close(found.store, part(Source::Store, weigh));
            close(found.local + found.peer + found.store, 1.0);
        }
    }
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
        for most in [2, 7, METRIC_INTERVALS_MAX, usize::MAX] {
            let intervals = observed.intervals(most);
            let most = most.min(METRIC_INTERVALS_MAX);
            assert!(!intervals.is_empty() && intervals.len() <= most, "seed {seed}");
            let mut sum = Usage::default();
            intervals.iter().for_each(|interval| sum.add(&interval.usage));
            let ended: u64 = intervals.iter().map(|interval| interval.ended).sum();
            assert_eq!((sum, ended), (all, tasks.len() as u64), "seed {seed}");
            assert!(intervals[0].from.0 >= first, "seed {seed}");
            if let [_, middle, _, ..] = intervals[..]
                && most == METRIC_INTERVALS_MAX
                && middle.micros > 1000
            {
                // Half as long, there would be too many.
                let number = |time: Time| time.0 / (middle.micros / 2);
                let all = tasks.iter().flat_map(|(times, _)| [times.started, times.ended]);
                let numbers: Vec<u64> = all.map(number).collect();
                let span = numbers.iter().max().unwrap() - numbers.iter().min().unwrap() + 1;
                assert!(span > most as u64, "seed {seed}: {span} intervals would do");
            }
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
