//! Trees under every policy, with tasks of all kinds, while everything breaks: nothing is
//! lost or doubled, nobody is sent more than there is room for, and tasks do not wander.

use crate::rng::Rng;
use crate::trees::{class, tree_under};
use crate::world::data::{OBJECTS, assert_known};
use crate::world::{SECOND, World, assert_empty, assert_room};
use falkon_core::dispatch::diffusion::PolicyName;
use falkon_core::task::{Kind, Resources, TaskClass};

/// Submits tasks of several kinds that run for so long at least.
fn submit_kinds(world: &mut World, micros_min: u64) {
    for _ in 0..1 + world.rng.below(3) {
        let count = 1 + world.rng.below(60);
        let micros_max = if world.rng.percent(10) { 40 * SECOND } else { 300_000 };
        let micros = micros_min + world.rng.below(micros_max);
        let cpus = 1 + world.rng.below(3) as u32;
        let kind = if world.rng.percent(20) { Kind::Noop } else { Kind::Sleep };
        let tasks = class(kind, cpus, micros);
        match world.rng.below(10) {
            0 => world.submit_distinct(count, tasks),
            1 => world.submit_failing(count, TaskClass { retries: 2, ..tasks }),
            2 => world.submit_after(count, tasks),
            3 => world.submit_collected(count, class(Kind::Sleep, cpus, micros)),
            4 => world.submit(1 + count / 8, TaskClass { nodes: 2, ..class(kind, 1, micros) }),
            5 => {
                let number = world.submitted;
                world.submit_everywhere(number, tasks);
            }
            6 => {
                let reads: Vec<u64> = (0..count).map(|_| 1 + world.rng.below(OBJECTS)).collect();
                world.submit_readers(tasks, &reads);
            }
            8 => {
                let alternatives = vec![Resources::cpus(cpus)];
                let tasks = class(Kind::Sleep, cpus + 1, micros);
                world.submit(count, TaskClass { alternatives, ..tasks });
            }
            7 if world.knows_places() => {
                world.submit_shuffle(count, class(Kind::Sleep, cpus, micros));
            }
            _ => world.submit(count, tasks),
        }
    }
}

/// Something happens to a tree.
fn strike(world: &mut World, faults: &mut Rng) {
    let site = 1 + faults.below(world.site_count() as u64 - 1) as usize;
    let node = faults.below(world.node_count() as u64) as usize;
    let above = faults.below(world.site_count() as u64) as usize;
    match faults.below(14) {
        0 => world.kill_site(site, faults.below(2 * SECOND)),
        1 => world.kill_site(site, faults.below(30 * SECOND)),
        2 => world.kill_node(node),
        3 => world.cut_node(node),
        4 => world.cut_site(site),
        5 => world.cut_below(site, faults.below(30 * SECOND)),
        6 => world.stall_node(node, faults.below(40 * SECOND)),
        7 => world.stall_site(site, faults.below(40 * SECOND)),
        8 => {
            let cpus = 1 + faults.below(4) as u32;
            let lent = world.site(above);
            world.node(lent, Resources::cpus(cpus));
            world.node(above, Resources::cpus(cpus));
        }
        9 => world.leave_node(node),
        10 => world.remove_node(node),
        11 => drop(world.withdraw(1 + faults.below(20))),
        12 if world.submitted > 0 => {
            let first = faults.below(world.submitted);
            world.cancel(first, 1 + faults.below(20));
        }
        _ => {
            let which = faults.below(3);
            let hash = |name: &str| name.bytes().map(u64::from).sum::<u64>();
            let is_drained = faults.percent(70);
            world.drain(above, |name| hash(name) % 3 == which, is_drained);
        }
    }
    world.incidents += 1;
}

/// Nodes that can run everything are at the root, and stay.
fn add_anchors(world: &mut World) {
    for _ in 0..3 {
        world.node(0, Resources::cpus(4));
    }
}

fn finish(world: &mut World, what: &str) {
    let until = world.now + 3600 * SECOND;
    while (world.results.len() as u64) < world.submitted {
        let is_on = world.step(until);
        assert!(is_on, "{what}: tasks do not end{}", world.describe());
        if world.messages.is_multiple_of(16) {
            assert_room(world);
            for site in 0..world.site_count() {
                world.drain(site, |_| true, false);
            }
        }
    }
    world.ask_always();
    world.run(120 * SECOND);
    assert_empty(world);
    assert_known(world);
}

fn storm(policy: PolicyName, seed: u64) {
    let what = format!("{policy}, seed {seed}");
    let mut world = tree_under(policy, seed, 1 + (seed % 4) as usize);
    let mut faults = Rng::new(!seed);
    world.keep_accounts();
    add_anchors(&mut world);
    // Of tasks that are short for nobody, one is sent ahead for each slot and no more.
    let micros_min = if faults.percent(50) { 1000 } else { 500_000 };
    submit_kinds(&mut world, micros_min);
    world.dies_percent = faults.below(2);
    for _ in 0..8 {
        world.run(faults.below(2 * SECOND));
        strike(&mut world, &mut faults);
        if faults.percent(50) {
            submit_kinds(&mut world, micros_min);
        }
    }
    world.dies_percent = 0;
    add_anchors(&mut world);
    finish(&mut world, &what);
    let (most, recalls) = world.most_sends();
    let sent =
        format!("a task was sent {most} times, {recalls} recalls, {} incidents", world.incidents);
    if is_told() {
        eprintln!("{what}: {sent}");
    }
    assert!(most <= 4 + world.incidents, "{what}: {sent}");
}

/// `FALKON_SEED` repeats a storm, or begins with other ones, and says how often tasks were sent.
fn is_told() -> bool {
    std::env::var("FALKON_SEED").is_ok()
}

/// As many storms as `FALKON_SEEDS` says; of four, one has each depth.
fn storms(policy: PolicyName) {
    let number = |name, or: u64| std::env::var(name).map_or(or, |text| text.parse().unwrap());
    let (first, count) = (number("FALKON_SEED", 0), number("FALKON_SEEDS", 4));
    // Seeds may be any numbers.
    (0..count).for_each(|seed| storm(policy, first.wrapping_add(seed)));
}

#[test]
fn nothing_is_lost_under_first_available() {
    storms(PolicyName::FirstAvailable);
}

#[test]
fn nothing_is_lost_under_first_cache_available() {
    storms(PolicyName::FirstCacheAvailable);
}

#[test]
fn nothing_is_lost_under_max_cache_hit() {
    storms(PolicyName::MaxCacheHit);
}

#[test]
fn nothing_is_lost_under_max_compute_util() {
    storms(PolicyName::MaxComputeUtil);
}

#[test]
fn nothing_is_lost_under_good_cache_compute() {
    storms(PolicyName::GoodCacheCompute);
}

#[test]
fn nothing_is_lost_under_queue_aware() {
    storms(PolicyName::QueueAware);
}
