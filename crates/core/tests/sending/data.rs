//! Tasks whose data decides where they go, and copies of what they leave.

use crate::world::{World, class, cpus, ended, serving};
use falkon_core::data::declared::{Declared, Lists};
use falkon_core::data::limits::BROADCAST_OBJECT_BYTES_MIN;
use falkon_core::data::object::{Object, ObjectId};
use falkon_core::data::stage::Changes;
use falkon_core::dispatch::diffusion::{PolicyName, PolicyOptions};
use falkon_core::dispatch::{ConnectionId, Event, InstanceOptions, Lease, Update};
use falkon_core::limits::ORDER_BYTES_MAX;
use falkon_core::task::{ExecutorId, Range, Rows, TaskClass};
use std::collections::BTreeMap;
use std::sync::Arc;

const SECOND: u64 = 1_000_000;

fn object(number: u64, url: &str) -> Object {
    Object {
        id: ObjectId(u128::from(number)),
        url: format!("{url}{number}").into(),
        version: "made:1".into(),
        size: Some(1),
    }
}

/// Tasks that each read, or write, one object, the same or each another.
fn tasks(world: &mut World, count: u64, class: TaskClass, data: Declared) {
    let rows = Rows::Computed { factors: vec![Range { start: 0, step: 1, count }], offset: 0 };
    world.submit_rows(0, count, class, rows, Some(Arc::new(data)));
}

fn reads(object: Object) -> Declared {
    Declared {
        objects: Arc::new(vec![object]),
        inputs: Lists::Same(vec![0]),
        outputs: Lists::Same(Vec::new()),
    }
}

fn writes(object: Object) -> Declared {
    Declared {
        objects: Arc::new(vec![object]),
        inputs: Lists::Same(Vec::new()),
        outputs: Lists::Same(vec![0]),
    }
}

fn world(policy: PolicyName) -> World {
    let mut world = World::default();
    let policy = PolicyOptions { policy, ..PolicyOptions::default() };
    world.create(InstanceOptions { policy, ..InstanceOptions::default() });
    world.orders();
    world
}

fn cached(added: &[u64]) -> Option<Box<Changes>> {
    let added = added.iter().map(|number| (ObjectId(u128::from(*number)), 1)).collect();
    Some(Box::new(Changes { added, ..Changes::default() }))
}

/// The task that is sent next decides by how long it lasts, not any before it.
#[test]
fn a_task_with_data_is_not_started_where_it_cannot_end() {
    for (first, second, sent) in [(1, 20, 2), (20, 1, 0)] {
        let mut world = world(PolicyName::MaxComputeUtil);
        let lease = Lease { allocation: None, leaves_in_micros: Some(10 * SECOND) };
        world.join_with(0, cpus(1), serving(0), lease);
        world.update(0, Update { cache: cached(&[]), ..Update::default() });
        world.orders();
        // Two of the first, and two of the second; only one at a time.
        for lasts in [first, second] {
            let class = class(lasts * SECOND);
            tasks(&mut world, 2, class, reads(object(1, "file:///")));
        }
        let mut count = 0;
        while let Some(tasks) = world.sent().get(&0) {
            assert_eq!(*tasks, 1);
            world.end(0, 0, count, 1);
            count += 1;
        }
        assert_eq!(count, sent, "{first} s, then {second} s");
    }
}

/// A free slot gets its task although long rows fill nearly all that an order
/// may hold.
#[test]
fn a_task_with_data_goes_to_a_free_slot_beside_long_rows() {
    for left in [1, 255, 257] {
        let mut world = world(PolicyName::MaxComputeUtil);
        world.join_with(0, cpus(2), serving(0), Lease::default());
        world.update(0, Update { cache: cached(&[1]), ..Update::default() });
        // Long ones, so that none is sent ahead.
        let class = class(3 * SECOND);
        tasks(&mut world, 3, class.clone(), reads(object(1, "file:///")));
        assert_eq!(world.sent(), BTreeMap::from([(0, 2)]));
        world.end(0, 0, 0, 0);
        assert_eq!(world.sent(), BTreeMap::from([(0, 1)]));
        let urgent = TaskClass { priority: 1, ..class.clone() };
        world.submit_long(0, urgent, (ORDER_BYTES_MAX - left) as usize);
        tasks(&mut world, 2, class, reads(object(1, "file:///")));
        world.end(0, 0, 1, 0);
        assert_eq!(world.sent(), BTreeMap::from([(0, 1)]), "the long row");
        world.end(0, 0, 2, 0);
        assert_eq!(world.sent(), BTreeMap::from([(0, 1)]), "{left} bytes are left");
    }
}

/// An object that is to be held twice is copied by an executor that has a cache, is
/// connected and stays.
#[test]
fn copies_go_to_executors_with_a_cache_that_are_there_and_stay() {
    let mut world = world(PolicyName::MaxComputeUtil);
    world.join_with(0, cpus(1), serving(0), Lease::default());
    world.update(0, Update { cache: cached(&[]), ..Update::default() });
    let class = TaskClass { replicas: 2, ..class(0) };
    tasks(&mut world, 1, class, writes(object(1, "cache:")));
    assert_eq!(world.sent(), BTreeMap::from([(0, 1)]));
    world.join_with(1, cpus(1), None, Lease::default());
    for connection in 2..=4 {
        world.join_with(connection, cpus(1), serving(connection), Lease::default());
        world.update(connection, Update { cache: cached(&[]), ..Update::default() });
    }
    world.orders();
    world.handle(Event::Closed { connection: ConnectionId(2) });
    world.handle(Event::Release { executor: ExecutorId(3) });
    world.orders();
    let reports = vec![ended(0, 0, 0, 0)];
    world.update(0, Update { reports, cache: cached(&[1]), ..Update::default() });
    let fetched: Vec<(u64, usize)> = world
        .orders()
        .into_iter()
        .filter_map(|(to, order)| Some((to, order.data?.fetch.len())))
        .filter(|(_, objects)| *objects > 0)
        .collect();
    assert_eq!(fetched, [(4, 1)]);
}

/// The one that fetches an object for the others may have other parents there, of
/// whom it heard before the dispatcher was restarted.
#[test]
fn who_fetches_what_is_broadcast_is_told_that_it_has_no_parents() {
    let mut world = world(PolicyName::MaxComputeUtil);
    for connection in 0..3 {
        world.join_with(connection, cpus(1), serving(connection), Lease::default());
        world.update(connection, Update { cache: cached(&[]), ..Update::default() });
    }
    world.orders();
    let large = Object { size: Some(BROADCAST_OBJECT_BYTES_MIN), ..object(1, "file:///") };
    tasks(&mut world, 3, class(3 * SECOND), reads(large));
    let orders = world.orders().into_iter();
    let told = orders.filter_map(|(to, order)| Some((to, order.data?.parents)));
    let told: BTreeMap<u64, Vec<usize>> = told
        .map(|(to, parents)| (to, parents.iter().map(|(_, parents)| parents.len()).collect()))
        .collect();
    assert_eq!(told.len(), 3, "{told:?}");
    let mut parents: Vec<usize> = told.into_values().flatten().collect();
    parents.sort_unstable();
    assert_eq!(parents, [0, 2, 2]);
}

/// How large it is was not known when its readers were submitted.
#[test]
fn an_output_that_many_read_is_broadcast_from_who_wrote_it() {
    let mut world = world(PolicyName::MaxComputeUtil);
    for connection in 0..4 {
        world.join_with(connection, cpus(1), serving(connection), Lease::default());
        world.update(connection, Update { cache: cached(&[]), ..Update::default() });
    }
    world.orders();
    let output = Object { size: None, ..object(1, "cache:") };
    let changes =
        Changes { added: vec![(output.id, BROADCAST_OBJECT_BYTES_MIN)], ..Changes::default() };
    world.update(0, Update { cache: Some(Box::new(changes)), ..Update::default() });
    tasks(&mut world, 4, class(3 * SECOND), reads(output));
    let told: BTreeMap<u64, Vec<usize>> = world
        .orders()
        .into_iter()
        .filter_map(|(to, order)| Some((to, order.data?.parents)))
        .filter(|(_, parents)| !parents.is_empty())
        .map(|(to, parents)| (to, parents.iter().map(|(_, parents)| parents.len()).collect()))
        .collect();
    assert_eq!(told, [1, 2, 3].map(|to| (to, vec![2])).into());
}
