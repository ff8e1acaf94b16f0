//! Tasks whose outputs are members of archives, below relays.

use crate::rng::Rng;
use crate::trees::{class, finish, submit_some, tree};
use crate::world::{SECOND, World};
use falkon_core::result::Outcome;
use falkon_core::task::{Kind, Resources};

/// How many tasks the dispatcher of a site takes to be staged.
fn staged_at(world: &World, site: usize) -> u64 {
    world.dispatcher(site).begun().values().map(|begun| begun.staged).sum()
}

/// Each task that has succeeded has its member in its archive.
fn assert_safe(world: &World, tasks: impl IntoIterator<Item = u64>, seed: u64) {
    for task in tasks {
        if let Some(result) = world.results.get(&task)
            && result.outcome == Outcome::Exit(0)
        {
            assert!(world.is_safe(task), "seed {seed}: the member of task {task} is lost");
        }
    }
}

/// Two relays behind one another, with an executor of two slots below the second.
fn chain() -> (World, [usize; 2], usize) {
    let mut world = World::new(1);
    let upper = world.site(0);
    let lower = world.site(upper);
    let node = world.node(lower, Resources::cpus(2));
    world.run(5 * SECOND);
    (world, [upper, lower], node)
}

#[test]
fn staged_tasks_hold_no_room_at_any_tier_and_end_when_they_are_safe() {
    let (mut world, sites, _) = chain();
    world.store_goes();
    world.submit_collected(100, class(Kind::Sleep, 1, SECOND / 10));
    world.run(30 * SECOND);
    // Of two slots, though nothing is safe.
    assert_eq!((world.starts, world.results.len()), (100, 0));
    for site in [0, sites[0], sites[1]] {
        assert_eq!(staged_at(&world, site), 100, "site {site}");
        let view = world.dispatcher(site).executor_views().next().unwrap();
        assert_eq!(view.load(), (0, 0), "site {site}");
    }
    world.store_comes_back();
    finish(&mut world, 1);
    assert_eq!(world.starts, 100);
    assert!(world.results.values().all(|result| result.outcome == Outcome::Exit(0)));
    assert_safe(&world, 0..100, 1);
}

#[test]
fn what_is_lost_before_it_was_safe_runs_again_and_is_known_to_at_every_tier() {
    let (mut world, sites, node) = chain();
    let other = world.node(sites[1], Resources::cpus(2));
    world.run(SECOND);
    world.store_goes();
    world.submit_collected(40, class(Kind::Sleep, 1, 5 * SECOND));
    world.run(8 * SECOND);
    assert_eq!((world.starts, staged_at(&world, 0)), (8, 4));
    world.remove_node(node);
    world.run(4 * SECOND);
    // The other executor has what it had.
    let there = world.staged();
    assert_eq!(there, 4);
    for site in [0, sites[0], sites[1]] {
        assert_eq!(staged_at(&world, site), there, "site {site}");
    }
    world.store_comes_back();
    finish(&mut world, 1);
    assert!(world.results.values().all(|result| result.outcome == Outcome::Exit(0)));
    assert_safe(&world, 0..40, 1);
    let _ = other;
}

#[test]
fn it_is_told_again_after_each_kind_of_interruption() {
    let interruptions: [fn(&mut World, [usize; 2], usize); 6] = [
        |world, [upper, _], _| world.cut_site(upper),
        |world, [_, lower], _| world.cut_site(lower),
        |world, [upper, _], _| world.kill_site(upper, SECOND),
        |world, [_, lower], _| world.kill_site(lower, SECOND),
        |world, [_, lower], _| world.cut_below(lower, SECOND),
        |world, _, node| world.cut_node(node),
    ];
    for (number, interrupt) in (0..).zip(interruptions) {
        let (mut world, sites, node) = chain();
        world.store_goes();
        world.submit_collected(20, class(Kind::Sleep, 1, SECOND / 10));
        world.run(5 * SECOND);
        interrupt(&mut world, sites, node);
        world.run(20 * SECOND);
        assert_eq!(world.starts, 20, "interruption {number}: something ran again");
        for site in [0, sites[0], sites[1]] {
            assert_eq!(staged_at(&world, site), 20, "interruption {number}: site {site}");
        }
        world.store_comes_back();
        finish(&mut world, number);
        assert_safe(&world, 0..20, number);
    }
}

#[test]
fn a_staged_task_that_is_cancelled_ends_below_as_well() {
    let (mut world, _, _) = chain();
    world.submit_collected(4, class(Kind::Sleep, 1, SECOND / 10));
    world.submit(1, class(Kind::Sleep, 1, 600 * SECOND));
    world.run(3 * SECOND);
    assert_eq!(staged_at(&world, 0), 4);
    world.cancel(0, 4);
    world.run(3 * SECOND);
    // They had succeeded, and their members are written at once.
    for task in 0..4 {
        assert_eq!(world.results[&task].outcome, Outcome::Exit(0));
        assert!(world.is_safe(task));
    }
    finish(&mut world, 1);
}

#[test]
fn nothing_that_succeeded_is_lost_and_every_task_ends_once_whatever_dies() {
    for seed in 5000..5024 {
        let mut world = tree(seed, 1 + (seed % 3) as usize);
        let mut faults = Rng::new(!seed);
        world.dies_percent = faults.below(2);
        let mut collected = Vec::new();
        for _ in 0..6 {
            let (first, count) = (world.submitted, 1 + faults.below(40));
            let micros = 1000 + faults.below(SECOND / 2);
            world.submit_collected(count, class(Kind::Sleep, 1, micros));
            collected.extend(first..first + count);
            if faults.percent(30) {
                submit_some(&mut world);
            }
            if faults.percent(40) {
                world.store_goes();
            }
            world.run(faults.below(3 * SECOND));
            let site = 1 + faults.below(world.site_count() as u64 - 1) as usize;
            let node = faults.below(world.node_count() as u64) as usize;
            match faults.below(8) {
                0 => world.cut_below(site, faults.below(30 * SECOND)),
                1 => world.kill_site(site, faults.below(2 * SECOND)),
                2 => world.kill_site(site, faults.below(30 * SECOND)),
                3 | 4 => world.kill_node(node),
                5 => world.cut_node(node),
                6 => world.cancel(first, 1 + faults.below(count)),
                _ => world.cut_site(site),
            }
            world.run(faults.below(2 * SECOND));
            world.store_comes_back();
        }
        world.dies_percent = 0;
        finish(&mut world, seed);
        assert_safe(&world, collected, seed);
        for site in 0..world.site_count() {
            assert_eq!(staged_at(&world, site), 0, "seed {seed}: site {site}");
        }
    }
}
