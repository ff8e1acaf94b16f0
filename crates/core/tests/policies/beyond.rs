//! Beyond the region in which decisions are exactly the paper's: hundreds of
//! executors, thousands of tasks with several inputs. The exact scan of
//! data-diffusion §3.2 runs beside the core: in the state that the core has,
//! decision by decision, and a second time by itself, over the whole run.

use crate::Rng;
use falkon_core::data::index::{Index, ObjectNo, Place};
use falkon_core::data::object::ObjectId;
use falkon_core::dispatch::diffusion::{Load, PolicyName, PolicyOptions, Taken, Waiting};
use falkon_core::limits::{INDEXED_EXECUTORS_MAX, SCAN_TASKS_MAX};
use falkon_core::task::ExecutorId;
use std::collections::BTreeMap;

pub(crate) const EXECUTORS: usize = 200;
pub(crate) const FILES: usize = 2000;
pub(crate) const QUEUED: usize = 5000;
/// Files that an executor's cache holds.
const CACHE_FILES: usize = 20;
/// Decisions of one run; `FALKON_DECISIONS` raises them.
const DECISIONS: usize = 4000;

/// The most that the core may lose where it looks at the same state as the exact scan:
/// in percent of the parts of their bytes that the chosen tasks find there.
const LOSS_PERCENT_MAX: f64 = 10.0;
/// The most that it may lose over a run in which each goes its own way, in points of the
/// part of all bytes that is found in caches.
const RUN_LOSS_POINTS_MAX: f64 = 5.0;

#[derive(Debug, Clone)]
pub(crate) struct Task {
    pub(crate) number: u64,
    pub(crate) files: Vec<usize>,
}

/// Files by popularity: the first of them more often, or all alike.
struct Popularity {
    sums: Vec<u64>,
}

impl Popularity {
    fn new(is_zipf: bool) -> Popularity {
        let weight = |at: usize| if is_zipf { 1_000_000 / (at as u64 + 1) } else { 1000 };
        let mut sum = 0;
        let sums = (0..FILES).map(|at| {
            sum += weight(at);
            sum
        });
        Popularity { sums: sums.collect() }
    }

    fn draw(&self, rng: &mut Rng) -> usize {
        let at = rng.below(self.sums[FILES - 1]);
        self.sums.partition_point(|sum| *sum <= at)
    }
}

/// Who holds what, and for how long nobody has used it.
#[derive(Clone)]
pub(crate) struct Caches {
    sizes: Vec<u64>,
    pub(crate) holds: Vec<Vec<bool>>,
    pub(crate) holders: Vec<usize>,
    /// Least recently used first.
    used: Vec<Vec<usize>>,
}

impl Caches {
    /// The bytes of a task's files that an executor holds, and of all.
    pub(crate) fn hit(&self, executor: usize, task: &Task) -> (u64, u64) {
        let (mut held, mut all) = (0, 0);
        for file in &task.files {
            all += self.sizes[*file];
            held += if self.holds[executor][*file] { self.sizes[*file] } else { 0 };
        }
        (held, all)
    }

    pub(crate) fn may_fetch(&self, executor: usize, task: &Task, most: usize) -> bool {
        let may = |file: &usize| self.holds[executor][*file] || self.holders[*file] < most;
        most == 0 || task.files.iter().all(may)
    }

    /// A task runs: its files are there from then on, others make room. Returns
    /// what has come and what has gone.
    pub(crate) fn run(&mut self, executor: usize, files: &[usize]) -> (Vec<usize>, Vec<usize>) {
        let (mut came, mut went) = (Vec::new(), Vec::new());
        self.used[executor].retain(|file| !files.contains(file));
        self.used[executor].extend(files);
        for file in files {
            if !std::mem::replace(&mut self.holds[executor][*file], true) {
                self.holders[*file] += 1;
                came.push(*file);
            }
        }
        while self.used[executor].len() > CACHE_FILES {
            let file = self.used[executor].remove(0);
            self.holds[executor][file] = false;
            self.holders[file] -= 1;
            went.push(file);
        }
        (came, went)
    }
}

/// The second part of the paper's scheduler for one task: its place in the
/// queue.
fn exact(
    caches: &Caches,
    queue: &[Task],
    options: &PolicyOptions,
    load: Load,
    executor: usize,
) -> Option<usize> {
    let window = match options.window {
        0 => queue.len(),
        window => queue.len().min(window as usize),
    };
    let most = options.replication_max as usize;
    let mut best: Option<(u64, u64, usize)> = None;
    for (at, task) in queue[..window].iter().enumerate() {
        let (held, all) = caches.hit(executor, task);
        if held == all {
            return Some(at);
        }
        let is_better = best.is_none_or(|(part, of, _)| held * of > part * all);
        if held > 0 && is_better && caches.may_fetch(executor, task, most) {
            best = Some((held, all, at));
        }
    }
    if let Some((_, _, at)) = best {
        return Some(at);
    }
    let is_busy =
        load.busy * 1000 >= load.executors * u64::from(options.utilization_threshold_milli);
    let below = match options.policy {
        PolicyName::MaxCacheHit => 1,
        PolicyName::GoodCacheCompute if is_busy => 1,
        PolicyName::GoodCacheCompute => most,
        _ => 0,
    };
    let fits =
        |task: &Task| below == 0 || task.files.iter().all(|file| caches.holders[*file] < below);
    queue[..window].iter().position(fits)
}

pub(crate) struct Core {
    pub(crate) index: Index,
    pub(crate) waiting: Waiting,
    pub(crate) places: Vec<Place>,
}

impl Core {
    /// A core that knows a world as it begins.
    pub(crate) fn new(options: &PolicyOptions, world: &World) -> Core {
        let mut index = Index::new();
        let places = (0..EXECUTORS).map(|id| index.join(ExecutorId(id as u64))).collect();
        let waiting = Waiting::new(options).expect("the options are good");
        let mut core = Core { index, waiting, places };
        for executor in 0..EXECUTORS {
            core.changed(&world.caches, executor, &world.caches.used[executor], &[]);
        }
        for task in &world.queue {
            core.push(&world.caches, task);
        }
        core
    }

    fn id(file: usize) -> ObjectId {
        ObjectId(file as u128)
    }

    pub(crate) fn push(&mut self, caches: &Caches, task: &Task) {
        let want = |file: &usize| self.index.want(Core::id(*file), Some(caches.sizes[*file]));
        let inputs: Vec<ObjectNo> = task.files.iter().map(want).collect();
        self.waiting.push(&self.index, task.number, &inputs);
    }

    pub(crate) fn take(&mut self, executor: usize, load: Load) -> Option<u64> {
        let mut taken: Vec<Taken> = Vec::new();
        self.waiting.select(&self.index, self.places[executor], 1, load, &mut taken);
        let taken = taken.pop()?;
        self.unwant(&taken);
        Some(taken.task)
    }

    pub(crate) fn unwant(&mut self, taken: &Taken) {
        for object in taken.inputs.as_slice() {
            self.index.unwant(*object);
        }
    }

    pub(crate) fn changed(
        &mut self,
        caches: &Caches,
        executor: usize,
        came: &[usize],
        went: &[usize],
    ) {
        let place = self.places[executor];
        for file in went {
            if let Some(object) = self.index.remove(place, Core::id(*file)) {
                self.waiting.holder_removed(&self.index, place, object);
            }
        }
        for file in came {
            if let Some(object) = self.index.add(place, Core::id(*file), Some(caches.sizes[*file]))
            {
                self.waiting.holder_added(&self.index, place, object);
            }
        }
    }
}

/// How a run compares.
#[derive(Debug, Default)]
struct Loss {
    decisions: u64,
    /// Decisions in which the core's choice has a smaller part of its bytes
    /// there than the exact scan's.
    worse: u64,
    /// These parts, added up: of the core's choices, and of the exact scan's in
    /// the same states.
    core: f64,
    exact: f64,
    /// Bytes that were found in caches, and all bytes read, in the core's run
    /// and in a run of the exact scan alone.
    of_core: (u64, u64),
    of_exact: (u64, u64),
}

pub(crate) fn percent((part, all): (u64, u64)) -> f64 {
    100.0 * part as f64 / all.max(1) as f64
}

impl Loss {
    /// The bytes that the core's choices have less of there, in percent.
    fn in_place(&self) -> f64 {
        100.0 - 100.0 * self.core / self.exact
    }

    /// The loss of all bytes found in caches over the run, in points.
    fn of_run(&self) -> f64 {
        percent(self.of_exact) - percent(self.of_core)
    }
}

pub(crate) fn decisions() -> usize {
    let set = std::env::var("FALKON_DECISIONS").ok().and_then(|text| text.parse().ok());
    set.unwrap_or(DECISIONS)
}

/// A workload and the caches with which it begins.
pub(crate) struct World {
    rng: Rng,
    popularity: Popularity,
    inputs_max: u64,
    pub(crate) caches: Caches,
    pub(crate) queue: Vec<Task>,
    next: u64,
}

impl World {
    pub(crate) fn new(seed: u64, is_zipf: bool, inputs_max: u64) -> World {
        let mut rng = Rng(seed);
        let popularity = Popularity::new(is_zipf);
        let sizes = (0..FILES).map(|_| 1_000_000 * (1 + rng.below(10))).collect();
        let caches = Caches {
            sizes,
            holds: vec![vec![false; FILES]; EXECUTORS],
            holders: vec![0; FILES],
            used: vec![Vec::new(); EXECUTORS],
        };
        let queue = Vec::new();
        let mut world = World { rng, popularity, inputs_max, caches, queue, next: 0 };
        for executor in 0..EXECUTORS {
            for _ in 0..2 * CACHE_FILES {
                let file = world.popularity.draw(&mut world.rng);
                world.caches.run(executor, &[file]);
            }
        }
        for _ in 0..QUEUED {
            world.push();
        }
        world
    }

    pub(crate) fn push(&mut self) -> &Task {
        let count = 1 + self.rng.below(self.inputs_max);
        let draw = |_| self.popularity.draw(&mut self.rng);
        let mut files: Vec<usize> = (0..count).map(draw).collect();
        files.sort_unstable();
        files.dedup();
        self.queue.push(Task { number: self.next, files });
        self.next += 1;
        &self.queue[self.queue.len() - 1]
    }

    /// Goes on with a decision that somebody makes; returns the bytes found.
    fn step(
        &mut self,
        core: Option<&mut Core>,
        options: &PolicyOptions,
        turn: &mut Rng,
        loss: &mut Loss,
    ) {
        let executor = turn.below(EXECUTORS as u64) as usize;
        let busy = turn.below(EXECUTORS as u64 + 1);
        let load = Load { busy, executors: EXECUTORS as u64 };
        let best = exact(&self.caches, &self.queue, options, load, executor);
        let best_hit = best.map_or((0, 0), |at| self.caches.hit(executor, &self.queue[at]));
        let mut at = best;
        let mut by_core = None;
        if let Some(core) = core {
            let taken = core.take(executor, load);
            at = taken.and_then(|task| self.queue.binary_search_by_key(&task, |t| t.number).ok());
            assert_eq!(at.is_some(), best.is_some(), "one of them finds nothing to run");
            if best.is_none() {
                return;
            }
            let hit = at.map_or((0, 0), |at| self.caches.hit(executor, &self.queue[at]));
            self.check_promise(options, executor, best, at);
            loss.decisions += 1;
            loss.worse += u64::from(hit.0 * best_hit.1 < best_hit.0 * hit.1);
            loss.core += hit.0 as f64 / hit.1 as f64;
            loss.exact += best_hit.0 as f64 / best_hit.1 as f64;
            loss.of_core = (loss.of_core.0 + hit.0, loss.of_core.1 + hit.1);
            by_core = Some(core);
        } else {
            loss.of_exact = (loss.of_exact.0 + best_hit.0, loss.of_exact.1 + best_hit.1);
        }
        let Some(at) = at else { return };
        let task = self.queue.remove(at);
        let (came, went) = self.caches.run(executor, &task.files);
        self.push();
        if let Some(core) = by_core {
            core.changed(&self.caches, executor, &came, &went);
            core.push(&self.caches, &self.queue[self.queue.len() - 1]);
        }
    }

    /// The promise of the core whatever the size: of tasks with one input what
    /// the scan finds, as long as no object has more holders than are indexed,
    /// and in any case nothing worse than the best of the first tasks of the
    /// queue.
    fn check_promise(
        &self,
        options: &PolicyOptions,
        executor: usize,
        best: Option<usize>,
        found: Option<usize>,
    ) {
        let (Some(best), Some(found)) = (best, found) else { return };
        let hit = |at: usize| self.caches.hit(executor, &self.queue[at]);
        let (part, all) = hit(found);
        let is_whole = |(held, all): (u64, u64)| held == all;
        let is_overfull = self.caches.holders.iter().any(|count| *count > INDEXED_EXECUTORS_MAX);
        if is_whole(hit(best)) && best < SCAN_TASKS_MAX {
            assert!(is_whole((part, all)), "{executor}: {found} is not whole, {best} is");
        }
        if self.inputs_max == 1 && !is_overfull {
            assert_eq!(found, best, "{executor}: not what the scan finds");
        }
        let most = options.replication_max as usize;
        for at in 0..SCAN_TASKS_MAX.min(self.queue.len()) {
            let (other, of) = hit(at);
            let may = self.caches.may_fetch(executor, &self.queue[at], most);
            let is_better = may && at != found && other * all > part * of;
            assert!(!is_better, "{executor}: {found} has {part} of {all}, {at} {other} of {of}");
        }
    }
}

fn compare(options: &PolicyOptions, is_zipf: bool, inputs_max: u64, seed: u64) -> Loss {
    let mut loss = Loss::default();
    let mut world = World::new(seed, is_zipf, inputs_max);
    let mut core = Core::new(options, &world);
    let mut turn = Rng(seed ^ 0x7075);
    for _ in 0..decisions() {
        world.step(Some(&mut core), options, &mut turn, &mut loss);
    }
    let mut world = World::new(seed, is_zipf, inputs_max);
    let mut turn = Rng(seed ^ 0x7075);
    for _ in 0..decisions() {
        world.step(None, options, &mut turn, &mut loss);
    }
    loss
}

fn compare_all(policy: PolicyName) {
    let replication_max = u32::from(policy == PolicyName::GoodCacheCompute) * 40;
    println!("{policy}: {EXECUTORS} executors, {QUEUED} tasks wait, {} decisions", decisions());
    println!("popularity window inputs | worse  loss in place  found by the core, exactly");
    let mut all: BTreeMap<(bool, u64, u64), Loss> = BTreeMap::new();
    for is_zipf in [false, true] {
        for (window, inputs_max) in [(3200, 1), (3200, 4), (0, 4)] {
            let options = PolicyOptions { policy, window, replication_max, ..Default::default() };
            let loss = compare(&options, is_zipf, inputs_max, 1);
            println!(
                "{:10} {:6} {:6} | {:4.1} % {:8.1} % {:12.1} % {:8.1} %",
                if is_zipf { "zipf" } else { "uniform" },
                if window == 0 { QUEUED as u64 } else { window },
                if inputs_max == 1 { "1" } else { "1-4" },
                100.0 * loss.worse as f64 / loss.decisions as f64,
                loss.in_place(),
                percent(loss.of_core),
                percent(loss.of_exact),
            );
            all.insert((is_zipf, window, inputs_max), loss);
        }
    }
    for (world, loss) in all {
        let what = format!("{policy}, {world:?}: {loss:?}");
        assert!(loss.exact > 0.0, "nothing to compare: {what}");
        assert!(loss.in_place() <= LOSS_PERCENT_MAX, "{what}");
        assert!(loss.of_run() <= RUN_LOSS_POINTS_MAX, "{what}");
    }
}

#[test]
fn max_cache_hit_loses_little_where_it_is_not_exact() {
    compare_all(PolicyName::MaxCacheHit);
}

#[test]
fn max_compute_util_loses_little_where_it_is_not_exact() {
    compare_all(PolicyName::MaxComputeUtil);
}

#[test]
fn good_cache_compute_loses_little_where_it_is_not_exact() {
    compare_all(PolicyName::GoodCacheCompute);
}
