//! Nothing is lost or doubled, whatever dies, in trees of any depth.

use crate::rng::Rng;
use crate::world::data::{OBJECTS, assert_known};
use crate::world::{SECOND, World, assert_empty, assert_room};
use falkon_core::dispatch::diffusion::PolicyName;
use falkon_core::result::{Outcome, Status};
use falkon_core::task::{Kind, Resources, TaskClass};

pub(crate) fn class(kind: Kind, cpus: u32, micros: u64) -> TaskClass {
    TaskClass {
        kind,
        resources: Resources::cpus(cpus),
        estimate_micros: micros,
        ..TaskClass::default()
    }
}

/// A tree of this depth, with executors below each relay and some at the root.
pub(crate) fn tree(seed: u64, depth: usize) -> World {
    tree_under(PolicyName::MaxComputeUtil, seed, depth)
}

/// The same, with tasks that go by a policy.
pub(crate) fn tree_under(policy: PolicyName, seed: u64, depth: usize) -> World {
    let mut world = World::under(policy, seed);
    let mut above = vec![0];
    // The deepest are no wider than a chain, or they would cost as much as all others.
    let branches = if depth > 3 { 1 } else { 2 };
    for _ in 0..depth {
        let mut here = Vec::new();
        for site in above {
            for _ in 0..1 + world.rng.below(branches) {
                here.push(world.site(site));
            }
        }
        for site in &here {
            for _ in 0..1 + world.rng.below(3) {
                let cpus = 1 + world.rng.below(4) as u32;
                world.node(*site, Resources::cpus(cpus));
            }
        }
        above = here;
    }
    for site in 0..world.site_count() {
        if world.rng.percent(30) {
            world.dispatcher_mut(site).set_obtainable(vec![None]);
        }
    }
    if world.rng.percent(50) {
        world.node(0, Resources::cpus(2));
    }
    world
}

pub(crate) fn submit_some(world: &mut World) {
    for _ in 0..1 + world.rng.below(4) {
        let count = 1 + world.rng.below(60);
        let micros_max = if world.rng.percent(10) { 8 * SECOND } else { 300_000 };
        let micros = 1000 + world.rng.below(micros_max);
        let kind = if world.rng.percent(30) { Kind::Noop } else { Kind::Sleep };
        if world.rng.percent(25) && world.knows_places() {
            world.submit_shuffle(count, class(Kind::Sleep, 1, micros));
        } else if world.rng.percent(25) {
            let reads: Vec<u64> = (0..count).map(|_| 1 + world.rng.below(OBJECTS)).collect();
            world.submit_readers(class(kind, 1, micros), &reads);
        } else {
            world.submit(count, class(kind, 1, micros));
        }
    }
}

/// Goes on until all tasks have ended. What takes an hour will not end.
pub(crate) fn finish(world: &mut World, seed: u64) {
    let until = world.now + 3600 * SECOND;
    while (world.results.len() as u64) < world.submitted {
        assert!(world.step(until), "seed {seed}: {} tasks ended", world.results.len());
        if world.messages.is_multiple_of(16) {
            assert_room(world);
        }
    }
    // What was killed is back by then.
    world.ask_always();
    world.run(60 * SECOND);
    assert_empty(world);
    assert_known(world);
}

#[test]
fn every_task_ends_once_and_starts_once_where_nothing_fails() {
    for seed in 0..12 {
        let mut world = tree(seed, 1 + (seed % 4) as usize);
        submit_some(&mut world);
        world.run(SECOND);
        submit_some(&mut world);
        finish(&mut world, seed);
        assert_eq!(world.starts, world.submitted, "seed {seed}");
        let done = world.results.values().all(|result| result.outcome == Outcome::Exit(0));
        assert!(done, "seed {seed}");
    }
}

#[test]
fn every_task_ends_once_whatever_dies() {
    for seed in 1000..1018 {
        let mut world = tree(seed, 1 + (seed % 4) as usize);
        let mut faults = Rng::new(!seed);
        world.dies_percent = faults.below(2);
        submit_some(&mut world);
        for _ in 0..4 {
            world.run(faults.below(2 * SECOND));
            let site = 1 + faults.below(world.site_count() as u64 - 1) as usize;
            let node = faults.below(world.node_count() as u64) as usize;
            match faults.below(6) {
                5 => world.cut_below(site, faults.below(30 * SECOND)),
                0 => world.kill_site(site, faults.below(2 * SECOND)),
                1 => world.kill_site(site, faults.below(30 * SECOND)),
                2 => world.kill_node(node),
                3 => world.cut_node(node),
                _ => world.cut_site(site),
            }
            if faults.percent(50) {
                submit_some(&mut world);
            }
        }
        world.dies_percent = 0;
        finish(&mut world, seed);
        let well = |outcome| matches!(outcome, Outcome::Exit(0) | Outcome::Lost);
        let found = world.results.values().find(|result| !well(result.outcome));
        assert!(found.is_none(), "seed {seed}: {found:?}");
    }
}

#[test]
fn cancelled_tasks_end_and_free_the_executors_below() {
    for seed in 0..9 {
        let mut world = tree(seed, 1 + (seed % 4) as usize);
        world.submit(200, class(Kind::Sleep, 1, 1000 * SECOND));
        world.run(seed * SECOND / 5);
        world.cancel(0, 200);
        finish(&mut world, seed);
        let all = world.results.values().all(|result| result.outcome.status() == Status::Cancelled);
        assert!(all, "seed {seed}");
    }
}

#[test]
fn an_array_costs_few_messages_however_long_it_is() {
    let mut world = World::new(1);
    let site = world.site(0);
    let below = world.site(site);
    world.node(below, Resources::cpus(1));
    world.run(SECOND);
    let before = world.messages;
    world.submit(200_000, class(Kind::Noop, 1, 0));
    let until = world.now + 600 * SECOND;
    while world.results.len() < 200_000 {
        assert!(world.step(until));
    }
    let messages = world.messages - before;
    assert!(messages < 1000, "{messages} messages");
}
