//! From a task to its executor (the first part of data-diffusion §3.2) where hundreds of
//! executors are free, beside a search of all of them.

use crate::Rng;
use crate::beyond::{Core, EXECUTORS, Task, World, decisions, percent};
use falkon_core::data::index::Place;
use falkon_core::dispatch::diffusion::{Free, Load, PolicyName, PolicyOptions};
use falkon_core::limits::HINT_EXECUTORS_MAX;

/// The most that offers may lose against the search: in percent of the parts of their
/// bytes that tasks find where they go.
const LOSS_PERCENT_MAX: f64 = 5.0;

/// The executors that are free at a decision, the one free longest first.
struct FreePlaces {
    order: Vec<usize>,
    is_free: Vec<bool>,
}

impl FreePlaces {
    /// Up to so many.
    fn draw(rng: &mut Rng, most: u64) -> FreePlaces {
        let mut free = FreePlaces { order: Vec::new(), is_free: vec![false; EXECUTORS] };
        for _ in 0..1 + rng.below(most) {
            let executor = rng.below(EXECUTORS as u64) as usize;
            if !std::mem::replace(&mut free.is_free[executor], true) {
                free.order.push(executor);
            }
        }
        free
    }

    /// What the paper's first part finds: of those that are free the one that holds most of
    /// the task's bytes, if one holds any and the policy lets it have the rest.
    fn best(&self, world: &World, options: &PolicyOptions, task: &Task) -> Option<usize> {
        let most = options.replication_max as usize;
        let caches = &world.caches;
        let suits = |executor: &&usize| caches.may_fetch(**executor, task, most);
        let held = |executor: usize| caches.hit(executor, task).0;
        let best = self.order.iter().filter(suits).max_by_key(|executor| held(**executor))?;
        (held(*best) > 0).then_some(*best)
    }
}

impl Free for FreePlaces {
    fn is_free(&self, place: Place) -> bool {
        self.is_free[place.0 as usize]
    }

    fn first(&self) -> Option<Place> {
        self.order.first().map(|executor| Place(*executor as u32))
    }
}

#[derive(Debug, Default)]
struct Loss {
    decisions: u64,
    worse: u64,
    /// The parts of their bytes that tasks found where the core sent them, and that those
    /// found which the search would have sent instead.
    core: f64,
    exact: f64,
}

fn part((held, all): (u64, u64)) -> f64 {
    held as f64 / all as f64
}

/// Decisions of the core beside those of the search in the same state.
fn compare(options: &PolicyOptions, is_zipf: bool, free_max: u64) -> Loss {
    let mut world = World::new(1, is_zipf, 4);
    let mut core = Core::new(options, &world);
    let mut turn = Rng(0x6f66);
    let mut loss = Loss::default();
    // Tasks before this one have been offered, and found nobody.
    let mut offered = 0;
    for _ in 0..decisions() {
        let free = FreePlaces::draw(&mut turn, free_max);
        let busy = (EXECUTORS - free.order.len()) as u64;
        let load = Load { busy, executors: EXECUTORS as u64 };
        let waits = options.policy == PolicyName::MaxCacheHit;
        let window = world.queue.len().min(options.window as usize);
        let searched = match waits {
            true => world.queue.partition_point(|task| task.number < offered).min(window)..window,
            false => 0..1,
        };
        let mut sought = world.queue[searched].iter();
        let found = sought.find_map(|task| Some((free.best(&world, options, task)?, task)));
        let is_found = found.is_some();
        let best = found.map_or(0.0, |(executor, task)| part(world.caches.hit(executor, task)));
        let offer = core.waiting.offer(&core.index, &free, load);
        let Some(offer) = offer else {
            assert!(waits, "executors are free, tasks wait, and nothing is offered");
            loss.decisions += u64::from(is_found);
            loss.worse += u64::from(is_found);
            loss.exact += best;
            offered = world.queue[window - 1].number + 1;
            // Somebody has room for one that nobody had.
            let executor = turn.below(EXECUTORS as u64) as usize;
            if let Some(task) = core.take(executor, load) {
                run(&mut world, &mut core, executor, task);
            }
            world.push();
            core.push(&world.caches, &world.queue[world.queue.len() - 1]);
            continue;
        };
        core.unwant(&offer.taken);
        let executor = offer.place.0 as usize;
        assert!(free.is_free[executor], "{executor} is not free");
        let at = world.queue.binary_search_by_key(&offer.taken.task, |task| task.number);
        let task = &world.queue[at.expect("it waits")];
        check_promise(&world, options, &free, executor, task);
        if is_found {
            let own = part(world.caches.hit(executor, task));
            loss.decisions += 1;
            loss.worse += u64::from(own < best);
            loss.core += own;
            loss.exact += best;
        }
        offered = match is_found {
            true => offered.max(task.number + 1),
            false => world.queue[window - 1].number + 1,
        };
        run(&mut world, &mut core, executor, offer.taken.task);
        let head = world.queue[0].number;
        if !waits
            && !is_found
            && let Some(taken) = core.waiting.remove(&core.index, head)
        {
            // Another is the head at the next decision.
            core.unwant(&taken);
            run(&mut world, &mut core, executor, head);
        }
    }
    core.waiting.check(&core.index).expect("the books are right");
    loss
}

/// An offer is the search's, unless an input has more holders than are considered or the
/// task was picked up by the executor (the second part).
fn check_promise(
    world: &World,
    options: &PolicyOptions,
    free: &FreePlaces,
    executor: usize,
    task: &Task,
) {
    let is_known = |file: &usize| world.caches.holders[*file] <= HINT_EXECUTORS_MAX;
    if executor == free.order[0] || !task.files.iter().all(is_known) {
        return;
    }
    let best = free.best(world, options, task).map(|best| world.caches.hit(best, task));
    assert_eq!(best, Some(world.caches.hit(executor, task)), "{task:?} at {executor}");
}

/// A task runs, and another comes.
fn run(world: &mut World, core: &mut Core, executor: usize, task: u64) {
    let at = world.queue.binary_search_by_key(&task, |task| task.number).expect("it waits");
    let task = world.queue.remove(at);
    let (came, went) = world.caches.run(executor, &task.files);
    world.push();
    core.changed(&world.caches, executor, &came, &went);
    core.push(&world.caches, &world.queue[world.queue.len() - 1]);
}

fn compare_all(policy: PolicyName) {
    println!("{policy}: {EXECUTORS} executors, {} decisions", decisions());
    println!("popularity  free up to | decisions  worse   in place: core  search");
    for is_zipf in [false, true] {
        for free_max in [20, 60, 150] {
            let options = PolicyOptions { policy, window: 3200, ..PolicyOptions::default() };
            let loss = compare(&options, is_zipf, free_max);
            let count = loss.decisions as f64;
            println!(
                "{:10} {free_max:11} | {:9} {:5.1} % {:13.1} % {:6.1} %",
                if is_zipf { "zipf" } else { "uniform" },
                loss.decisions,
                percent((loss.worse, loss.decisions)),
                100.0 * loss.core / count,
                100.0 * loss.exact / count,
            );
            let what = format!("{policy}, zipf: {is_zipf}, free: {free_max}: {loss:?}");
            assert!(loss.decisions > 500, "nothing to compare: {what}");
            // Objects that are as popular as others have few holders: all are considered.
            assert!(is_zipf || loss.worse == 0, "{what}");
            assert!(loss.core >= loss.exact * (1.0 - LOSS_PERCENT_MAX / 100.0), "{what}");
        }
    }
}

#[test]
fn max_compute_util_offers_tasks_where_most_of_their_bytes_are() {
    compare_all(PolicyName::MaxComputeUtil);
}

#[test]
fn max_cache_hit_offers_tasks_where_most_of_their_bytes_are() {
    compare_all(PolicyName::MaxCacheHit);
}
