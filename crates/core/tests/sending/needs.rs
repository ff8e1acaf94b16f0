//! Needs whose tasks have all ended, and how many of them are remembered.

use crate::world::{World, class, cpus};
use falkon_core::limits::IDLE_NEEDS_MAX;
use falkon_core::task::TaskClass;
use std::collections::BTreeMap;

/// How many of ten tasks are sent at once whose need was the first of so many,
/// each of which one short task had.
fn sent_after(needs: usize) -> u64 {
    let mut world = World::new(1);
    world.join(0, cpus(1));
    let with = |priority: usize| TaskClass { priority: -(priority as i32), ..class(0) };
    for need in 0..needs {
        world.submit(0, 1, with(need));
        assert_eq!(world.sent(), BTreeMap::from([(0, 1)]));
        world.end(0, 0, need as u64, 10);
        world.orders();
    }
    world.submit(0, 10, with(0));
    world.sent()[&0]
}

#[test]
fn how_long_tasks_took_is_known_until_many_other_needs_have_come_and_gone() {
    assert_eq!(sent_after(1), 10);
    assert_eq!(sent_after(IDLE_NEEDS_MAX), 10);
    assert_eq!(sent_after(IDLE_NEEDS_MAX + 1), 1);
}
