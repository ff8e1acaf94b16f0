//! Data-aware decisions per second in the core alone, on the workload of
//! data-diffusion §5.1: 250K tasks, each reading one of 10K files of one byte,
//! all queued at first; executors ask in turn for one task each, and hold what
//! they have read from then on.
//!
//! `cargo bench -p falkon-core --bench policies` prints a table; with
//! `-- NAME`, the lines of one policy. A decision includes the changes of the
//! index that it leads to. Asking in vain counts for nothing. Rates are per second of CPU.

use falkon_core::data::index::{Index, ObjectNo, Place};
use falkon_core::data::object::ObjectId;
use falkon_core::dispatch::diffusion::{
    Costs, Load, POLICIES, PolicyName, PolicyOptions, Taken, Waiting,
};
use falkon_core::task::ExecutorId;
use std::time::{Duration, Instant};

const TASKS: u64 = 250_000;
const FILES: u64 = 10_000;
const WINDOW: u64 = 3_200;
const COSTS: Costs = Costs { task_micros: 0, peer_bytes_per_second: 1 << 30, slots: 1 };

/// The time this thread has had a CPU, where the kernel tells, so that others
/// on the machine do not count; else the time that has passed.
struct Clock(Instant);

impl Clock {
    fn now(&self) -> Duration {
        let told = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
        let nanos = told.and_then(|text| text.split(' ').next()?.parse().ok());
        nanos.map_or_else(|| self.0.elapsed(), Duration::from_nanos)
    }
}

struct Run {
    push: Duration,
    decide: Duration,
    decisions: u64,
    asked: u64,
    hits: u64,
}

/// What tasks read.
#[derive(Clone, Copy, PartialEq)]
enum Reads {
    /// One file at random.
    One,
    /// One file at random, and one that all tasks read.
    Shared,
    /// Each pair of 500 files once.
    Pairs,
}

impl Reads {
    fn files(self, task: u64, random: u64) -> Vec<u64> {
        match self {
            Reads::One => vec![random % FILES],
            Reads::Shared => vec![random % FILES, FILES],
            Reads::Pairs => vec![task / 500, task % 500],
        }
    }
}

fn run(options: &PolicyOptions, executors: u64, reads: Reads) -> Run {
    let mut index = Index::new();
    let mut waiting = Waiting::new(options).expect("the options are good");
    let places: Vec<Place> = (0..executors).map(|id| index.join(ExecutorId(id))).collect();
    let clock = Clock(Instant::now());
    let begin = clock.now();
    let mut state = 1_u64;
    for task in 0..TASKS {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let files = reads.files(task, state >> 33);
        let objects: Vec<ObjectNo> = files
            .iter()
            .map(|file| index.want(ObjectId(u128::from(*file) << 64), Some(1)))
            .collect();
        waiting.push(&index, task, &objects);
        for twice in objects.iter().skip(1).filter(|object| **object == objects[0]) {
            index.unwant(*twice);
        }
    }
    let push = clock.now() - begin;
    let mut run = Run { push, decide: Duration::ZERO, decisions: 0, asked: 0, hits: 0 };
    let begin = clock.now();
    let mut taken: Vec<Taken> = Vec::new();
    while !waiting.is_empty() {
        let place = places[(run.asked % executors) as usize];
        // Half of the time enough executors are busy, half of the time not.
        let load = Load { busy: executors * (run.asked / executors % 2), executors };
        run.asked += 1;
        if let Some(object) = waiting.fetch(&index, place, &COSTS) {
            index.hints(object, place, 3);
            waiting.coming_changed(&index, object);
            let id = index.id(object).expect("it is wanted");
            if let Some(object) = index.add(place, id, Some(1)) {
                waiting.holder_added(&index, place, object);
            }
        }
        waiting.take(&index, place, 1, load, &mut taken);
        for taken in taken.drain(..) {
            run.decisions += 1;
            for object in taken.inputs.as_slice() {
                let id = index.id(*object).expect("it is wanted");
                index.unwant(*object);
                // Executors report what is new to them.
                if index.holds(place, *object) {
                    run.hits += 1;
                } else if let Some(object) = index.add(place, id, Some(1)) {
                    waiting.holder_added(&index, place, object);
                }
            }
        }
    }
    run.decide = clock.now() - begin;
    run
}

fn line(name: &str, options: &PolicyOptions, executors: u64, reads: Reads) {
    let run = run(options, executors, reads);
    let rate = |time: Duration| run.decisions as f64 / time.as_secs_f64();
    println!(
        "{name:32} {:>6} {executors:>9} {:>12.0} {:>12.0} {:>7} {:>7.1}",
        options.window,
        rate(run.decide),
        rate(run.decide + run.push),
        run.asked,
        100.0 * run.hits as f64 / run.decisions as f64,
    );
}

fn main() {
    let wanted = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    println!(
        "{:32} {:>6} {:>9} {:>12} {:>12} {:>7} {:>7}",
        "policy", "window", "executors", "decisions/s", "with push/s", "asked", "hits %",
    );
    for (policy, name) in POLICIES {
        if wanted.as_ref().is_some_and(|wanted| wanted != name) || !policy.knows_places() {
            continue;
        }
        let milli = match policy {
            PolicyName::GoodCacheCompute => 800,
            _ => PolicyOptions::default().utilization_threshold_milli,
        };
        let whole = PolicyOptions {
            policy,
            utilization_threshold_milli: milli,
            ..PolicyOptions::default()
        };
        for executors in [32, 1000] {
            for window in [0, WINDOW] {
                let options = PolicyOptions { window, ..whole };
                if options.check().is_ok() {
                    line(name, &options, executors, Reads::One);
                }
            }
        }
        if policy == PolicyName::MaxCacheHit {
            // All would wait for the first executor, which holds a part of
            // every task.
            continue;
        }
        line(&format!("{name}, and a shared file"), &whole, 100, Reads::Shared);
        line(&format!("{name}, pairs"), &whole, 100, Reads::Pairs);
    }
}
