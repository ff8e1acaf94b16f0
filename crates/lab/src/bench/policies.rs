//! `falkon-lab bench policies`: data-aware decisions per second in the core alone,
//! on the workload of data-diffusion §5.1: 250K tasks, each reading one of 10K
//! files of one byte, all queued at first; executors ask in turn for one task
//! each, and hold what they have read from then on.

use super::RoundArgs;
use super::error::BenchError;
use super::report::Table;
use clap::Args;
use falkon_core::data::index::{Index, ObjectNo, Place};
use falkon_core::data::object::ObjectId;
use falkon_core::dispatch::diffusion::{
    Costs, Load, POLICIES, PolicyError, PolicyName, PolicyOptions, Taken, Waiting,
};
use falkon_core::task::{ExecutorId, Time};
use std::time::{Duration, Instant};

const TASKS: u64 = 250_000;
const FILES: u64 = 10_000;
const WINDOW: u64 = 3_200;
/// Of `good-cache-compute`, as in the paper.
const THRESHOLD_MILLI: u32 = 800;
const COSTS: Costs =
    Costs { task_micros: 0, peer_bytes_per_second: 1 << 30, slots: 1, now: Time(0) };

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

fn measure(options: &PolicyOptions, executors: u64, reads: Reads) -> Result<Run, PolicyError> {
    let mut index = Index::new();
    let mut waiting = Waiting::new(options)?;
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
            if let Some(id) = index.id(object)
                && let Some(object) = index.add(place, id, Some(1))
            {
                waiting.holder_added(&index, place, object);
            }
        }
        waiting.select(&index, place, 1, load, &mut taken);
        for taken in taken.drain(..) {
            run.decisions += 1;
            for object in taken.inputs.as_slice() {
                let id = index.id(*object);
                index.unwant(*object);
                // Executors report what is new to them.
                if index.holds(place, *object) {
                    run.hits += 1;
                } else if let Some(id) = id
                    && let Some(object) = index.add(place, id, Some(1))
                {
                    waiting.holder_added(&index, place, object);
                }
            }
        }
    }
    run.decide = clock.now() - begin;
    Ok(run)
}

/// `falkon-lab bench policies`
#[derive(Args, Debug)]
pub(crate) struct PoliciesArgs {
    #[command(flatten)]
    pub(crate) round: RoundArgs,
    /// Only this policy
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,
    /// Also tasks that read two files: one that all share, and all pairs of 500
    #[arg(long)]
    several: bool,
}

/// What is measured of one policy.
fn cases(policy: PolicyName, several: bool) -> Vec<(PolicyOptions, u64, Reads)> {
    let default = PolicyOptions::default();
    let utilization_threshold_milli = match policy {
        PolicyName::GoodCacheCompute => THRESHOLD_MILLI,
        _ => default.utilization_threshold_milli,
    };
    let whole = PolicyOptions { policy, utilization_threshold_milli, ..default };
    let mut cases = Vec::new();
    for executors in [32, 1000] {
        for window in [0, WINDOW] {
            let options = PolicyOptions { window, ..whole };
            if options.check().is_ok() {
                cases.push((options, executors, Reads::One));
            }
        }
    }
    // All tasks would wait for the first executor, which holds a part of each.
    if several && policy != PolicyName::MaxCacheHit {
        cases.extend([(whole, 100, Reads::Shared), (whole, 100, Reads::Pairs)]);
    }
    cases
}

/// Runs the benchmark.
pub(crate) fn run(args: &PoliciesArgs) -> Result<Table, BenchError> {
    if let Some(name) = &args.policy {
        PolicyName::named(name).map_err(BenchError::Policy)?;
    }
    let about = format!("{TASKS} tasks that read {FILES} files, in the core alone");
    let mut table = Table::new("policies", about);
    for _ in 0..args.round.rounds {
        for (policy, name) in POLICIES {
            let wanted = args.policy.as_ref().is_none_or(|wanted| wanted == name);
            if !wanted || !policy.knows_places() {
                continue;
            }
            for (options, executors, reads) in cases(policy, args.several) {
                let run = measure(&options, executors, reads).map_err(BenchError::Policy)?;
                let window = match options.window {
                    0 => "whole queue".to_owned(),
                    window => format!("window {window}"),
                };
                let reads = match reads {
                    Reads::One => "",
                    Reads::Shared => ", and a shared file",
                    Reads::Pairs => ", pairs",
                };
                let row = format!("{name}{reads}, {executors} executors, {window}");
                let rate = |time: Duration| run.decisions as f64 / time.as_secs_f64();
                table.add(&row, "decisions/s", rate(run.decide));
                table.add(
                    &format!("{row}: queued too"),
                    "decisions/s",
                    rate(run.decide + run.push),
                );
                let hits = 100.0 * run.hits as f64 / run.decisions as f64;
                table.add(&format!("{row}: hits"), "%", hits);
            }
        }
    }
    table.note("per second of processor time; a decision includes the changes of the index that it leads to");
    table.note("data-diffusion §5.1 reports 1,322 to 1,666 per second with a window of 3,200");
    Ok(table)
}
