//! Tasks that run once on each executor, below relays too.

use crate::rng::Rng;
use crate::trees::{class, finish, submit_some, tree};
use crate::world::{SECOND, World};
use falkon_core::result::{Cause, Outcome};
use falkon_core::task::{Kind, Resources};
use std::collections::BTreeSet;

/// The names of the executors that ran the tasks from one number on, as results give them.
fn names(world: &World, tasks: std::ops::Range<u64>) -> Vec<String> {
    let names = tasks.map(|task| {
        let detail = world.results[&task].detail.as_ref();
        detail.map_or_else(
            || format!("{:?}", world.results[&task].executor),
            |detail| detail.executor.clone(),
        )
    });
    names.collect()
}

#[test]
fn each_executor_of_a_tree_runs_it_once_beside_what_runs_there() {
    for seed in 0..16 {
        let mut world = tree(seed, 1 + (seed % 4) as usize);
        world.run(5 * SECOND);
        submit_some(&mut world);
        let micros = world.rng.below(SECOND / 4);
        world.run(micros);
        let mut submitted = Vec::new();
        for number in 0..2 {
            let first = world.submitted;
            let micros = 1000 + world.rng.below(SECOND);
            let count = world.submit_everywhere(number, class(Kind::Sleep, 1, micros));
            assert_eq!(count, world.node_count() as u64, "seed {seed}");
            submitted.push(first..first + count);
            submit_some(&mut world);
        }
        finish(&mut world, seed);
        for (number, tasks) in (0..).zip(submitted) {
            for incarnation in world.incarnations() {
                let starts = world.everywhere.get(&(number, incarnation));
                assert_eq!(starts, Some(&1), "seed {seed}: {incarnation}");
            }
            let names = names(&world, tasks);
            let distinct: BTreeSet<&String> = names.iter().collect();
            assert_eq!(distinct.len(), names.len(), "seed {seed}: {names:?}");
        }
        let done = world.results.values().all(|result| result.outcome == Outcome::Exit(0));
        assert!(done, "seed {seed}");
    }
}

#[test]
fn no_executor_runs_it_twice_and_every_task_ends_whatever_dies() {
    for seed in 3000..3030 {
        let mut world = tree(seed, 1 + (seed % 4) as usize);
        let mut faults = Rng::new(!seed);
        world.dies_percent = faults.below(3);
        submit_some(&mut world);
        for number in 0..4 {
            world.run(faults.below(2 * SECOND));
            let micros = 1000 + faults.below(SECOND);
            world.submit_everywhere(number, class(Kind::Sleep, 1, micros));
            world.run(faults.below(SECOND / 100));
            let site = 1 + faults.below(world.site_count() as u64 - 1) as usize;
            let node = faults.below(world.node_count() as u64) as usize;
            match faults.below(7) {
                0 => world.kill_site(site, faults.below(2 * SECOND)),
                1 => world.kill_site(site, faults.below(30 * SECOND)),
                2 => world.kill_node(node),
                3 => world.remove_node(node),
                4 => world.cut_node(node),
                5 => world.cut_below(site, faults.below(30 * SECOND)),
                _ => world.cut_site(site),
            }
            if faults.percent(30) {
                submit_some(&mut world);
            }
            if faults.percent(20) {
                let first = faults.below(world.submitted);
                world.cancel(first, 1 + faults.below(20));
            }
        }
        world.dies_percent = 0;
        finish(&mut world, seed);
        let twice = world.everywhere.iter().find(|(_, starts)| **starts > 1);
        assert!(twice.is_none(), "seed {seed}: {twice:?}");
    }
}

#[test]
fn it_goes_to_the_nodes_that_are_there_and_ends_for_those_that_leave() {
    let mut world = World::new(7);
    let upper = world.site(0);
    let lower = world.site(upper);
    let nodes = [
        world.node(0, Resources::cpus(1)),
        world.node(upper, Resources::cpus(2)),
        world.node(lower, Resources::cpus(2)),
        world.node(lower, Resources::cpus(8)),
    ];
    world.run(5 * SECOND);
    assert_eq!(world.submit_everywhere(1, class(Kind::Sleep, 1, 10 * SECOND)), 4);
    world.run(SECOND);
    assert_eq!(world.everywhere.len(), 4);
    world.remove_node(nodes[2]);
    // One that joins later has nothing to do with it.
    world.node(lower, Resources::cpus(2));
    world.run(120 * SECOND);
    let of = |task| &world.results[&task];
    let lost: Vec<u64> = (0..4).filter(|task| of(*task).outcome == Outcome::Lost).collect();
    assert_eq!(lost.len(), 1);
    let detail = of(lost[0]).detail.as_ref().unwrap();
    assert_eq!(detail.cause, Some(Cause::ExecutorLeft));
    assert!(detail.executor.starts_with("relay 1/relay 2/"), "{}", detail.executor);
    assert_eq!(world.everywhere.len(), 4);

    // What a node below is too small for ends there, and says so.
    let first = world.submitted;
    assert_eq!(world.submit_everywhere(2, class(Kind::Sleep, 4, SECOND)), 4);
    world.run(60 * SECOND);
    let outcomes: Vec<Outcome> =
        (first..first + 4).map(|task| world.results[&task].outcome).collect();
    let done = outcomes.iter().filter(|outcome| **outcome == Outcome::Exit(0)).count();
    let unfit = outcomes.iter().filter(|outcome| **outcome == Outcome::Unschedulable).count();
    assert_eq!((done, unfit), (1, 3), "{outcomes:?}");
}
