//! Tasks that were sent ahead are recalled for others that wait.

use crate::world::{CLIENT, World, class, cpus};
use falkon_core::dispatch::{Event, Order};
use falkon_core::limits::{DUE_WAIT_MICROS, RECALL_SILENCE_MICROS};
use falkon_core::task::{InstanceId, Resources, TaskClass};

fn recalls(orders: &[(u64, Order)]) -> Vec<(u64, u64)> {
    let asked = orders.iter().filter(|(_, order)| order.recall > 0);
    asked.map(|(to, order)| (*to, order.recall)).collect()
}

/// One executor runs the first of 51 tasks, and a task of another instance waits.
fn one_waits() -> World {
    let mut world = World::new(2);
    world.join(0, cpus(1));
    world.submit(0, 51, class(1_000));
    assert_eq!(world.sent().get(&0), Some(&51));
    world.submit(1, 1, class(0));
    assert_eq!(world.sent().get(&0), None);
    world
}

#[test]
fn an_executor_that_has_not_gone_on_since_is_not_asked_again_for_those_who_are_due() {
    let mut world = one_waits();
    assert_eq!(recalls(&world.pass_to(DUE_WAIT_MICROS - 1)), []);
    assert_eq!(recalls(&world.pass_to(DUE_WAIT_MICROS)), [(0, 50)]);
    // It is asked once, however long it takes, and whatever it gives back.
    assert_eq!(recalls(&world.pass_to(2 * DUE_WAIT_MICROS)), []);
    world.give_back(0, 0, 31, 20);
    assert_eq!(recalls(&world.pass_to(4 * DUE_WAIT_MICROS)), []);
    // When it goes on, with the next of its own, it is asked again.
    world.end(0, 0, 0, 1_000);
    assert_eq!(recalls(&world.pass_to(6 * DUE_WAIT_MICROS)), [(0, 29)]);
    // Having nothing to give, it is left alone.
    world.give_back(0, 0, 0, 0);
    assert_eq!(recalls(&world.pass_to(8 * DUE_WAIT_MICROS)), []);
}

#[test]
fn tasks_of_one_instance_go_before_its_own_only_with_more_priority() {
    for (priority, count) in [(1, 50), (0, 0), (-1, 0)] {
        let mut world = World::new(1);
        world.join(0, cpus(1));
        world.submit(0, 51, class(1_000));
        assert_eq!(world.sent().get(&0), Some(&51));
        let resources = Resources { memory_bytes: 1 << 20, ..Resources::cpus(1) };
        world.submit(0, 1, TaskClass { priority, resources, ..class(0) });
        assert_eq!(world.sent().get(&0), None);
        let orders = world.pass_to(3 * DUE_WAIT_MICROS);
        let asked: u64 = recalls(&orders).iter().map(|(_, count)| count).sum();
        assert_eq!(asked, count, "{priority}");
    }
}

#[test]
fn tasks_sent_ahead_make_room_for_instances_of_no_lower_priority() {
    for (priority, count) in [(1, 50), (0, 50), (-1, 0)] {
        let mut world = one_waits();
        let (connection, request, instance) = (CLIENT, 0, InstanceId(1));
        world.handle(Event::Prioritize { connection, request, instance, priority });
        let orders = world.pass_to(3 * DUE_WAIT_MICROS);
        let asked: u64 = recalls(&orders).iter().map(|(_, count)| count).sum();
        assert_eq!(asked, count, "{priority}");
    }
}

#[test]
fn half_of_what_waits_goes_to_an_idle_executor_at_once_if_it_is_worth_it() {
    for (left, at_once) in [(20, vec![(0, 10)]), (12, vec![(0, 6)]), (11, vec![])] {
        let mut world = World::new(1);
        world.join(0, cpus(1));
        world.submit(0, 60, class(500));
        assert_eq!(world.sent().get(&0), Some(&60));
        for task in 0..60 - left {
            world.now += 500;
            world.end(0, 0, task, 500);
            assert_eq!(world.sent().get(&0), None);
        }
        world.join(1, cpus(1));
        assert_eq!(recalls(&world.orders()), at_once, "{left} are left");
    }
}

#[test]
fn what_waits_with_an_executor_that_is_silent_is_taken_back_whatever_it_is() {
    let mut world = World::new(1);
    world.join(0, cpus(1));
    world.submit(0, 11, class(500));
    assert_eq!(world.sent().get(&0), Some(&11));
    // Nothing was reported yet: nobody knows how long they take.
    world.now = 10;
    world.join(1, cpus(1));
    assert_eq!(recalls(&world.pass_to(10 + RECALL_SILENCE_MICROS - 1)), []);
    assert_eq!(recalls(&world.pass_to(10 + RECALL_SILENCE_MICROS)), [(0, 5)]);
    // One that had nothing to give is not asked again before it has gone on.
    world.give_back(0, 0, 0, 0);
    assert_eq!(recalls(&world.pass_to(4 * RECALL_SILENCE_MICROS)), []);
    world.end(0, 0, 0, 500);
    assert_eq!(recalls(&world.pass_to(8 * RECALL_SILENCE_MICROS)), [(0, 5)]);
    // What it gives back goes to the other.
    world.give_back(0, 0, 6, 5);
    assert_eq!(world.sent().get(&1), Some(&5));
}
