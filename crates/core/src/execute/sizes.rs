//! How much memory a task gets that asks for as much as others of its kind have had
//! ([`AUTO_MEMORY`]), and how many CPUs ([`AUTO_CPUS`]): `sizes/cpus.rs`.
//!
//! The first tasks of a kind get the node's share: the part of its memory that their CPUs are of
//! its CPUs. Later ones get the size that takes the least of the node, by what has ended so far:
//! a small one leaves room for more tasks, and has more of them exceed it and run again. This is
//! the two-step strategy of B. Tovar et al., "A Job Sizing Strategy for High-Throughput Scientific
//! Workflows", IEEE Transactions on Parallel and Distributed Systems 29(2), 2018, with one
//! difference: memory below the node's share costs nothing, as the CPUs are taken then. A task
//! that exceeds its size gets the largest that was seen, then all that there is.
//!
//! A kind is an instance's tasks of one class. Each executor finds out for itself.

mod cpus;

use crate::limits::{AUTO_HEADROOM_BYTES, AUTO_NEEDS_MAX, AUTO_TASKS_MIN};
use crate::result::{Cause, Detail, Outcome, Tries};
use crate::task::{AUTO_CPUS, AUTO_MEMORY, InstanceId, Kind, MILLI, Resources, TaskClass, TaskKey};
use cpus::Used;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Into how many buckets sizes are counted between one power of two and the next, as a power of
/// two: sizes of one bucket differ by a sixteenth at most.
const BUCKET_BITS: u32 = 4;

/// Sizes are chosen anew when this part more of the tasks have ended.
const NEWS_SHARE: u64 = 32;

/// The part of its time for which a task counts as larger than the size that it exceeded: enough
/// for the next size to be cheaper if all exceed one.
const OVER_WEIGHT: u64 = 2;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Sizes {
    kinds: BTreeMap<(InstanceId, Arc<TaskClass>), Sized>,
    /// Counts uses of kinds.
    used: u64,
}

/// What is known of the tasks of a kind.
#[derive(Debug, Default)]
struct Sized {
    /// By the bucket of their sizes: how long those ran, in microseconds, at least 1 each.
    micros: BTreeMap<u32, u64>,
    ended: u64,
    /// The size of first tries, chosen when so many had ended.
    chosen: Option<(u64, u64)>,
    cpus: Used,
    used: u64,
}

impl Sizes {
    /// The class of a task with the memory that it gets; `None` if it asks for a certain amount,
    /// or for automatic CPUs besides: [`Sizes::with_cpus`].
    pub(super) fn with_memory(
        &mut self,
        instance: InstanceId,
        class: &Arc<TaskClass>,
        tries: Tries,
        capacity: &Resources,
    ) -> Option<Arc<TaskClass>> {
        if class.resources.memory_bytes != AUTO_MEMORY || class.resources.cpus_milli == AUTO_CPUS {
            return None;
        }
        let memory_bytes = match class.kind {
            Kind::Process => self.kind(instance, class).size(&class.resources, tries, capacity),
            // They share workers, or have no memory.
            Kind::Function | Kind::Noop | Kind::Sleep => 0,
        };
        let resources = Resources { memory_bytes, ..class.resources.clone() };
        Some(Arc::new(TaskClass { resources, ..TaskClass::clone(class) }))
    }

    /// The class of a task that asks for automatic CPUs, with those that it gets, and with the
    /// memory if it asks for that as well.
    pub(super) fn with_cpus(
        &mut self,
        key: TaskKey,
        class: &Arc<TaskClass>,
        tries: Tries,
        capacity: &Resources,
    ) -> Arc<TaskClass> {
        let kind = self.kind(key.instance, class);
        let cpus = kind.cpus.cpus(key.task, cpus::share(&class.resources, capacity));
        let mut resources = class.resources.clone();
        resources.cpus_milli = cpus * MILLI;
        if resources.memory_bytes == AUTO_MEMORY {
            resources.memory_bytes = kind.size(&resources, tries, capacity);
        }
        Arc::new(TaskClass { resources, ..TaskClass::clone(class) })
    }

    /// A task that asked for as much as others has ended: notes what it had. Returns its outcome:
    /// it is lost, and runs again, if it exceeded the memory that it was given and there is more
    /// here.
    pub(super) fn ended(
        &mut self,
        (instance, asked): (InstanceId, &Arc<TaskClass>),
        given: &Resources,
        (outcome, micros): (Outcome, u64),
        detail: Option<&Detail>,
        capacity: &Resources,
    ) -> Outcome {
        let kind = self.kind(instance, asked);
        if asked.resources.cpus_milli == AUTO_CPUS && matches!(outcome, Outcome::Exit(_)) {
            let usage = detail.and_then(|detail| detail.resources.as_ref());
            kind.cpus.note(given.cpus_milli / MILLI, usage, micros);
        }
        let Some(detail) = detail else { return outcome };
        if asked.resources.memory_bytes != AUTO_MEMORY {
            return outcome;
        }
        if detail.cause == Some(Cause::OverMemory) {
            // What it needs is known when it has run again, and may be less than what counts
            // towards the limit: so this counts as well, and sizes grow until they are enough.
            kind.note(given.memory_bytes.saturating_add(1), micros / OVER_WEIGHT);
            return match given.memory_bytes < capacity.memory_bytes {
                true => Outcome::Lost,
                false => outcome,
            };
        }
        if let (Outcome::Exit(_), Some(used)) = (outcome, detail.resources) {
            kind.note(used.rss_max_bytes, micros);
        }
        outcome
    }

    fn kind(&mut self, instance: InstanceId, class: &Arc<TaskClass>) -> &mut Sized {
        self.used += 1;
        let class = match class.attempts_before {
            0 => Arc::clone(class),
            _ => Arc::new(TaskClass { attempts_before: 0, ..TaskClass::clone(class) }),
        };
        let key = (instance, class);
        if !self.kinds.contains_key(&key) && self.kinds.len() >= AUTO_NEEDS_MAX {
            let oldest = self.kinds.iter().min_by_key(|(_, kind)| kind.used);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                self.kinds.remove(&oldest);
            }
        }
        let kind = self.kinds.entry(key).or_default();
        kind.used = self.used;
        kind
    }
}

impl Sized {
    /// The size of a task, at most all that there is.
    fn size(&mut self, need: &Resources, tries: Tries, capacity: &Resources) -> u64 {
        let all = capacity.memory_bytes;
        let share = share(need, capacity);
        let first = match self.ended < AUTO_TASKS_MIN {
            true => share,
            false => self.chosen(share).saturating_add(AUTO_HEADROOM_BYTES),
        };
        let size = match tries.losses {
            0 => first,
            1 => {
                let largest = self.largest().saturating_add(AUTO_HEADROOM_BYTES);
                largest.max(first.saturating_mul(2))
            }
            _ => all,
        };
        size.min(all)
    }

    fn note(&mut self, bytes: u64, micros: u64) {
        let sum = self.micros.entry(bucket(bytes)).or_default();
        *sum = sum.saturating_add(micros.max(1));
        self.ended += 1;
    }

    fn largest(&self) -> u64 {
        self.micros.last_key_value().map_or(0, |(bucket, _)| most(*bucket))
    }

    /// The size of first tries, which is chosen anew from time to time.
    fn chosen(&mut self, share: u64) -> u64 {
        match self.chosen {
            Some((size, ended)) if self.ended - ended <= ended / NEWS_SHARE => size,
            _ => {
                let size = self.best(share);
                self.chosen = Some((size, self.ended));
                size
            }
        }
    }

    /// The size that takes the least of the node, memory times time, by those that have ended:
    /// all take it, and those that exceed it take the largest size as well, for as long.
    fn best(&self, share: u64) -> u64 {
        let largest = self.largest();
        let cost = |size: u64, micros: u64| u128::from(size.max(share)) * u128::from(micros);
        let all: u64 = self.micros.values().fold(0, |sum, micros| sum.saturating_add(*micros));
        let mut above = all;
        let costs = self.micros.iter().map(|(bucket, micros)| {
            above = above.saturating_sub(*micros);
            let size = most(*bucket);
            (cost(size, all).saturating_add(cost(largest, above)), size)
        });
        costs.min().map_or(0, |(_, size)| size)
    }
}

/// The part of the memory of a node that the CPUs of a task are of its CPUs.
fn share(need: &Resources, capacity: &Resources) -> u64 {
    let (of, all) = (need.cpus_milli, capacity.cpus_milli);
    let share = u128::from(capacity.memory_bytes) * u128::from(of.min(all));
    (share.checked_div(u128::from(all)).unwrap_or(0)) as u64
}

/// The bucket of a size.
fn bucket(bytes: u64) -> u32 {
    let bytes = bytes.max(1 << BUCKET_BITS);
    let octave = bytes.ilog2();
    let within = (bytes >> (octave - BUCKET_BITS)) as u32 - (1 << BUCKET_BITS);
    (octave << BUCKET_BITS) + within
}

/// The largest size of a bucket.
fn most(bucket: u32) -> u64 {
    let (octave, within) = (bucket >> BUCKET_BITS, bucket & ((1 << BUCKET_BITS) - 1));
    let next = u128::from((1 << BUCKET_BITS) + within + 1) << (octave - BUCKET_BITS);
    u64::try_from(next - 1).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::ResourceUsage;
    use crate::task::TaskId;
    use proptest::prelude::*;
    use std::cmp::Reverse;
    use std::collections::{BinaryHeap, VecDeque};

    const INSTANCE: InstanceId = InstanceId(1);
    const GIB: u64 = 1 << 30;

    fn auto() -> Arc<TaskClass> {
        let resources = Resources { memory_bytes: AUTO_MEMORY, ..Resources::cpus(1) };
        Arc::new(TaskClass { resources, ..TaskClass::default() })
    }

    fn node(cpus: u32, memory_bytes: u64) -> Resources {
        Resources { memory_bytes, ..Resources::cpus(cpus) }
    }

    fn of_memory(memory_bytes: u64) -> Resources {
        Resources { memory_bytes, ..Resources::cpus(1) }
    }

    fn tries(losses: u32) -> Tries {
        Tries { failures: 0, losses }
    }

    fn detail(cause: Option<Cause>, rss_max_bytes: u64) -> Detail {
        let resources = Some(ResourceUsage { rss_max_bytes, ..ResourceUsage::default() });
        Detail { cause, resources, ..Detail::default() }
    }

    /// How tasks get their memory.
    enum Way {
        /// Each what it has at most.
        Oracle,
        /// All the same.
        Fixed(u64),
        Auto(Box<Sizes>),
    }

    /// Runs tasks (peak, microseconds) on a node that starts what fits among the next few, as an
    /// executor does, and returns how long that takes. A task that exceeds its size is seen to do
    /// so when it would have ended.
    fn run(tasks: &[(u64, u64)], node: &Resources, mut way: Way) -> u64 {
        let class = auto();
        let mut queue: VecDeque<(u64, u64, u32)> =
            tasks.iter().map(|(peak, micros)| (*peak, *micros, 0)).collect();
        let mut running = BinaryHeap::new();
        let (mut now, mut free) = (0, node.clone());
        while !queue.is_empty() || !running.is_empty() {
            let mut at = 0;
            while at < queue.len().min(64) && free.cpus_milli > 0 {
                let (peak, micros, losses) = queue[at];
                let size = match &mut way {
                    Way::Oracle => peak,
                    Way::Fixed(size) => *size,
                    Way::Auto(sizes) => {
                        let sized = sizes.with_memory(INSTANCE, &class, tries(losses), node);
                        sized.unwrap().resources.memory_bytes
                    }
                };
                let need = Resources { memory_bytes: size, ..Resources::cpus(1) };
                if free.fits(&need) {
                    free.take(&need, 1);
                    running.push(Reverse((now + micros, size, peak, micros, losses)));
                    queue.remove(at);
                } else {
                    at += 1;
                }
            }
            let Reverse((ends, size, peak, micros, losses)) = running.pop().expect("one runs");
            now = ends;
            free.give(&Resources { memory_bytes: size, ..Resources::cpus(1) }, 1);
            let Way::Auto(sizes) = &mut way else { continue };
            let (outcome, detail) = match peak > size {
                true => (Outcome::Signal(9), detail(Some(Cause::OverMemory), size)),
                false => (Outcome::Exit(0), detail(None, peak)),
            };
            let of = (INSTANCE, &class);
            match sizes.ended(of, &of_memory(size), (outcome, micros), Some(&detail), node) {
                Outcome::Lost => queue.push_front((peak, micros, losses + 1)),
                outcome => assert_eq!(outcome, Outcome::Exit(0), "no task fails for its memory"),
            }
        }
        now
    }

    /// Numbers that look random, by seed.
    fn numbers(seed: u64) -> impl FnMut() -> f64 {
        let mut state = seed;
        move || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1_u64 << 53) as f64
        }
    }

    /// Tasks whose memory is log-normal, of 5 to 15 seconds each.
    fn log_normal(count: usize, median: f64, sigma: f64, most: u64, seed: u64) -> Vec<(u64, u64)> {
        let mut next = numbers(seed);
        (0..count)
            .map(|_| {
                let (radius, angle) = ((-2.0 * next().max(1e-12).ln()).sqrt(), next());
                let normal = radius * (std::f64::consts::TAU * angle).cos();
                let peak = (median * (sigma * normal).exp()) as u64;
                (peak.min(most), 5_000_000 + (next() * 1e7) as u64)
            })
            .collect()
    }

    /// The throughput of 10,000 tasks, in that of an oracle and that of a fixed safe maximum.
    fn figures(median: f64, sigma: f64, seed: u64) -> (f64, f64) {
        let node = node(64, 256 * GIB);
        let tasks = log_normal(10_000, median * GIB as f64, sigma, node.memory_bytes, seed);
        let safe = tasks.iter().map(|(peak, _)| *peak).max().unwrap();
        let took = run(&tasks, &node, Way::Auto(Box::default())) as f64;
        let of = |way| run(&tasks, &node, way) as f64 / took;
        (of(Way::Oracle), of(Way::Fixed(safe)))
    }

    #[test]
    fn log_normal_tasks_run_nearly_as_fast_as_with_an_oracle() {
        for seed in 1..=3 {
            let (oracle, fixed) = figures(1.5, 0.5, seed);
            assert!(oracle >= 0.9 && fixed >= 2.0, "seed {seed}: {oracle:.3}, {fixed:.3}");
        }
    }

    /// Where memory is so short that it decides, nobody can come near an oracle who knows the
    /// distribution alone.
    #[test]
    fn scarce_memory_is_used_better_than_with_a_fixed_size() {
        let (oracle, fixed) = figures(4.0, 0.5, 1);
        assert!(oracle >= 0.4 && fixed >= 2.0, "{oracle:.3}, {fixed:.3}");
    }

    #[test]
    fn a_task_gets_the_nodes_share_then_what_others_had_and_more_when_it_comes_back() {
        let (class, node) = (auto(), node(16, 64 * GIB));
        let mut sizes = Sizes::default();
        let size = |sizes: &mut Sizes, losses| {
            let sized = sizes.with_memory(INSTANCE, &class, tries(losses), &node).unwrap();
            sized.resources.memory_bytes
        };
        assert_eq!([0, 1, 2].map(|losses| size(&mut sizes, losses)), [4, 8, 64].map(|n| n * GIB));
        for _ in 0..100 {
            let ended = (Outcome::Exit(0), 1_000_000);
            sizes.ended(
                (INSTANCE, &class),
                &of_memory(4 * GIB),
                ended,
                Some(&detail(None, GIB)),
                &node,
            );
        }
        let first = size(&mut sizes, 0);
        assert!((GIB..GIB + GIB / 8).contains(&first), "{first}");
        // What has all that there is has failed.
        let over = detail(Some(Cause::OverMemory), 0);
        let end = |sizes: &mut Sizes, given| {
            let ended = (Outcome::Signal(9), 1_000_000);
            sizes.ended((INSTANCE, &class), &of_memory(given), ended, Some(&over), &node)
        };
        assert_eq!(end(&mut sizes, first), Outcome::Lost);
        assert_eq!(end(&mut sizes, 64 * GIB), Outcome::Signal(9));
        // A certain amount is a certain amount.
        let fixed = Arc::new(TaskClass::default());
        assert_eq!(sizes.with_memory(INSTANCE, &fixed, tries(0), &node), None);
    }

    /// What counts towards a limit may be more than what is measured.
    #[test]
    fn sizes_grow_until_they_are_enough() {
        let (class, node) = (auto(), node(16, 64 * GIB));
        let mut sizes = Sizes::default();
        let (needs, measured) = (6 * GIB, 5 * GIB);
        let mut late = 0;
        for task in 0..400 {
            let mut losses = 0;
            loop {
                let sized = sizes.with_memory(INSTANCE, &class, tries(losses), &node).unwrap();
                let given = sized.resources.memory_bytes;
                let (outcome, detail) = match given < needs {
                    true => (Outcome::Signal(9), detail(Some(Cause::OverMemory), given)),
                    false => (Outcome::Exit(0), detail(None, measured)),
                };
                let ended = (outcome, 1_000_000);
                let of = (INSTANCE, &class);
                match sizes.ended(of, &of_memory(given), ended, Some(&detail), &node) {
                    Outcome::Lost => losses += 1,
                    _ => break,
                }
            }
            late += u64::from(task >= 200 && losses > 0);
        }
        assert!(late < 100, "{late} of the last 200 tasks ran again");
    }

    proptest! {
        #[test]
        fn buckets_hold_sizes_within_a_sixteenth(bytes in any::<u64>(), shift in 0..60_u32) {
            let bytes = (bytes >> shift).max(16);
            let most = most(bucket(bytes));
            prop_assert!(most >= bytes && most - bytes <= bytes / 16 + 1, "{bytes} {most}");
            prop_assert_eq!(bucket(most), bucket(bytes));
        }

        /// The choice is that of a search through all sizes.
        #[test]
        fn the_cheapest_size_is_chosen(
            ended in proptest::collection::vec((1..1_u64 << 40, 1..100_000_000_u64), 1..60),
            share in 0..1_u64 << 36,
        ) {
            let mut kind = Sized::default();
            ended.iter().for_each(|(bytes, micros)| kind.note(*bytes, *micros));
            let sizes: Vec<(u64, u64)> =
                ended.iter().map(|(bytes, micros)| (most(bucket(*bytes)), *micros)).collect();
            let largest = sizes.iter().map(|(size, _)| *size).max().unwrap();
            let cost = |size: u64| -> u128 {
                let all = sizes.iter().map(|(other, micros)| {
                    let again = if *other > size { largest.max(share) } else { 0 };
                    (u128::from(size.max(share)) + u128::from(again)) * u128::from(*micros)
                });
                all.sum()
            };
            let best = kind.best(share);
            for (size, _) in &sizes {
                prop_assert!(cost(best) <= cost(*size), "{best} costs more than {size}");
            }
        }
    }

    /// The node's share of memory is that of the CPUs that a task gets.
    #[test]
    fn cpus_and_memory_are_found_out_together() {
        let node = node(16, 64 * GIB);
        let resources = Resources { cpus_milli: AUTO_CPUS, ..auto().resources.clone() };
        let class = Arc::new(TaskClass { resources, ..TaskClass::default() });
        let mut sizes = Sizes::default();
        assert_eq!(sizes.with_memory(INSTANCE, &class, tries(0), &node), None);
        let given: Vec<(u32, u64)> = (0..40)
            .map(|task| {
                let key = TaskKey { instance: INSTANCE, task: TaskId(task) };
                let sized = sizes.with_cpus(key, &class, tries(0), &node);
                let micros = 1_000_000;
                let (user_micros, rss_max_bytes) = (2 * micros, 20 * GIB);
                let used = ResourceUsage { user_micros, rss_max_bytes, ..Default::default() };
                let detail = Detail { resources: Some(used), ..Detail::default() };
                let of = (INSTANCE, &class);
                let end = (Outcome::Exit(0), micros);
                sizes.ended(of, &sized.resources, end, Some(&detail), &node);
                (sized.resources.cpus_milli, sized.resources.memory_bytes / GIB)
            })
            .collect();
        assert_eq!(given[..3], [(16_000, 64); 3]);
        assert_eq!(given[3], (2_000, 8));
        let (cpus, memory) = given[39];
        assert!(cpus == 2_000 && (20..22).contains(&memory), "{cpus} {memory}");
    }

    #[test]
    fn kinds_are_bounded() {
        let mut sizes = Sizes::default();
        for instance in 0..2 * AUTO_NEEDS_MAX as u64 {
            sizes.with_memory(InstanceId(instance), &auto(), tries(0), &node(1, GIB));
            assert!(sizes.kinds.len() <= AUTO_NEEDS_MAX);
        }
        let newest = InstanceId(2 * AUTO_NEEDS_MAX as u64 - 1);
        assert!(sizes.kinds.keys().any(|(instance, _)| *instance == newest));
    }
}
