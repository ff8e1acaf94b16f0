//! How many tasks are sent ahead of free slots, in numbers.

use crate::world::{World, class, cpus};
use falkon_core::limits::{
    PREFETCH_TASK_MICROS_MAX, PREFETCH_TASKS_MAX, PREFETCH_WORK_MICROS, RECALL_WORK_MICROS,
};
use falkon_core::task::{Kind, Resources, TaskClass};
use std::collections::BTreeMap;

/// Tasks that are sent at first to each of some executors alike.
fn at_first(executors: u64, slots: u32, tasks: u64, micros: u64) -> Vec<u64> {
    let mut world = World::new(1);
    (0..executors).for_each(|connection| world.join(connection, cpus(slots)));
    world.orders();
    world.submit(0, tasks, class(micros));
    world.sent().into_values().collect()
}

#[test]
fn each_slot_has_so_much_work_ahead_and_one_task_at_least_unless_it_is_long() {
    assert_eq!((PREFETCH_WORK_MICROS, PREFETCH_TASK_MICROS_MAX), (50_000, 2_000_000));
    let many = 10_000_000;
    for (slots, micros, ahead) in [
        (1, 1_000, 50),
        (4, 1_000, 200),
        (3, 7_000, 21),
        (4, 50_000, 4),
        (4, 60_000, 4),
        (4, 2_000_000, 4),
        (4, 2_000_001, 0),
        (4, u64::MAX, 0),
        // Nobody knows how long these take.
        (4, 0, 0),
        (64, 1, PREFETCH_TASKS_MAX),
    ] {
        let sent = at_first(1, slots, many, micros);
        assert_eq!(sent, [u64::from(slots) + ahead], "{slots} slots, {micros} µs");
    }
}

#[test]
fn the_last_tasks_are_spread_over_all_executors() {
    assert_eq!(RECALL_WORK_MICROS, 5_000);
    // No more than its share, unless that is too little work to be worth it.
    assert_eq!(at_first(4, 1, 40, 1_000), [11, 9, 6, 6]);
    assert_eq!(at_first(4, 1, 400, 1_000), [51, 51, 51, 51]);
    // Of longer ones one for each slot, as long as there are so many.
    assert_eq!(at_first(4, 2, 10, 200_000), [4, 3, 2, 1]);
    assert_eq!(at_first(4, 2, 1_000, 200_000), [4, 4, 4, 4]);
    assert_eq!(at_first(4, 2, 10, 3_000_000), [2, 2, 2, 2]);
}

#[test]
fn what_is_sent_ahead_is_filled_up_when_half_of_it_is_used_up() {
    let mut world = World::new(1);
    world.join(0, cpus(1));
    world.submit(0, 1_000, class(1_000));
    assert_eq!(world.sent(), BTreeMap::from([(0, 51)]));
    let mut sent = BTreeMap::new();
    for task in 0..80 {
        world.now += 1_000;
        world.end(0, 0, task, 1_000);
        if let Some(count) = world.sent().get(&0) {
            sent.insert(task, *count);
        }
    }
    assert_eq!(sent, BTreeMap::from([(24, 25), (49, 25), (74, 25)]));
}

#[test]
fn tasks_of_other_needs_that_were_sent_ahead_count_as_the_work_they_are() {
    // Two slots for those that need two CPUs, four for the others.
    let wide = TaskClass { resources: Resources::cpus(2), priority: 1, ..class(1_000) };
    for (micros, ahead) in [(5_000, 37), (10_000, 19), (40_000, 5), (400_000, 0)] {
        let mut world = World::new(1);
        world.join(0, cpus(4));
        world.submit(0, 10, wide.clone());
        world.submit(0, 1_000, class(micros));
        // Eight of the wide ones wait for half a millisecond each.
        assert_eq!(world.sent(), BTreeMap::from([(0, 10 + ahead)]), "{micros} µs");
    }
}

#[test]
fn tasks_that_take_no_time_are_sent_by_the_bundle() {
    let noop = TaskClass { kind: Kind::Noop, ..class(0) };
    let mut world = World::new(1);
    world.join(0, cpus(1));
    world.submit(0, 10 * PREFETCH_TASKS_MAX, noop);
    assert_eq!(world.sent(), BTreeMap::from([(0, PREFETCH_TASKS_MAX)]));
    let mut number = 0;
    let mut end = |world: &mut World, count: u64| {
        let mut report = crate::world::ended(0, number, 1, 1);
        report.count = count;
        number += count;
        let update = falkon_core::dispatch::Update { reports: vec![report], ..Default::default() };
        world.update(0, update);
        world.sent().get(&0).copied()
    };
    assert_eq!(end(&mut world, PREFETCH_TASKS_MAX / 2 - 1), None);
    assert_eq!(end(&mut world, 1), Some(PREFETCH_TASKS_MAX / 2));
}
