//! The abstract model: values worked out by hand, and what holds for all.

#![allow(clippy::unwrap_used, reason = "a test may fail at once")]

use falkon_core::model::{
    Farm, Hits, Machine, ModelError, Workload, available_bytes_per_s, copy_s,
};
use proptest::prelude::*;

const GB: f64 = 1e9;

/// 1,000 tasks of 2 s, dispatched in 0.5 s, that each read one of 100 objects
/// of 100 MB.
fn workload() -> Workload {
    Workload {
        tasks: 1000,
        run_s: 2.0,
        dispatch_s: 0.5,
        arrivals_per_s: None,
        objects_per_task: 1.0,
        object_bytes: 0.1 * GB,
        objects: 100,
    }
}

fn machine() -> Machine {
    Machine {
        nodes: 10,
        slots_per_node: 1,
        cache_bytes: GB,
        node_bytes_per_s: 0.1 * GB,
        store_bytes_per_s: 0.4 * GB,
    }
}

fn near(left: f64, right: f64) -> bool {
    (left - right).abs() <= 1e-9 * right.abs().max(1e-9)
}

#[track_caller]
fn assert_near(left: f64, right: f64) {
    assert!(near(left, right), "{left} is not {right}");
}

#[test]
fn without_data_overhead_is_dispatch_alone() {
    let workload = Workload { objects_per_task: 0.0, ..workload() };
    let farm = Farm::new(workload, machine(), None).unwrap();
    // V = 2 / 10 × 1000, W = 2.5 / 10 × 1000, E = 0.8, S = 8.
    assert_near(farm.execution_s(), 200.0);
    assert_near(farm.average_with_overhead_s(), 2.5);
    assert_near(farm.execution_with_overhead_s(), 250.0);
    assert_near(farm.efficiency(), 0.8);
    assert_near(farm.speedup(), 8.0);
}

#[test]
fn arrivals_set_the_pace_when_they_are_slow() {
    let slow = Workload { arrivals_per_s: Some(2.0), objects_per_task: 0.0, ..workload() };
    let farm = Farm::new(slow, machine(), None).unwrap();
    // I = 2 × 2; 1 / A = 0.5 s is more than Y / |T| = 0.25 s.
    assert_near(slow.intensity(), 4.0);
    assert_near(farm.execution_s(), 500.0);
    assert_near(farm.execution_with_overhead_s(), 500.0);
    assert_near(farm.efficiency(), 1.0);
    // With 4.5 per second, B/|T| = 0.2 < 1/A = 0.2222 < Y/|T| = 0.25:
    // E = |T| / (A × Y).
    let faster = Workload { arrivals_per_s: Some(4.5), ..slow };
    let farm = Farm::new(faster, machine(), None).unwrap();
    assert_near(farm.efficiency(), 10.0 / (4.5 * 2.5));
}

#[test]
fn hits_decide_what_is_copied() {
    let hits = Hits { local: 0.5, peer: 0.5, store: 0.0 };
    let farm = Farm::new(workload(), machine(), Some(hits)).unwrap();
    // One slot per node has its link to itself: 0.1 GB at 0.1 GB/s.
    assert_near(farm.copies().peer_s, 1.0);
    assert_near(farm.cost_cached_s(), 2.5);
    assert_near(farm.cost_from_peers_s(), 3.5);
    assert_near(farm.average_with_overhead_s(), 3.0);
    assert_near(farm.efficiency(), 2.0 / 3.0);
}

#[test]
fn what_is_fetched_ahead_costs_nothing_until_something_is_full() {
    let read = |bytes, store| {
        let hits = Hits { local: 1.0 - store, peer: 0.0, store };
        let workload = Workload { object_bytes: bytes, ..workload() };
        Farm::new(workload, machine(), Some(hits)).unwrap().fetching_ahead()
    };
    // A slot takes 2.5 s; a link brings an object in 1 s; the store, one for
    // each of ten nodes in 2.5 s.
    assert_near(read(0.1 * GB, 1.0).average_with_overhead_s(), 2.5);
    // The store gives a quarter of these in 3 s, the links in 1.2 s.
    assert_near(read(0.48 * GB, 0.25).average_with_overhead_s(), 3.0);
    // All slots of a node share its link.
    let wide = Machine { slots_per_node: 8, store_bytes_per_s: 100.0 * GB, ..machine() };
    let farm = Farm::new(workload(), wide, Some(Hits::NONE)).unwrap().fetching_ahead();
    assert_near(farm.average_with_overhead_s(), 8.0);
}

#[test]
fn what_is_fetched_ahead_begins_with_empty_caches_and_ends_with_tasks() {
    // Each of 100 objects is read from the store once, by ten tasks.
    let hits = Hits { local: 0.9, peer: 0.0, store: 0.1 };
    let taken = |run_s, store_bytes_per_s| {
        let workload = Workload { run_s, dispatch_s: 0.0, ..workload() };
        let machine = Machine { store_bytes_per_s, ..machine() };
        let farm = Farm::new(workload, machine, Some(hits)).unwrap().fetching_ahead();
        farm.execution_with_overhead_s()
    };
    // The first ten objects come over ten links in 1 s. What each node fetches
    // while it runs ten tasks of 2 s comes long before it has run them.
    assert_near(taken(2.0, 100.0 * GB), 1.0 + 200.0);
    // With 0.01 GB/s the store takes 1,000 s. When the last object of each node
    // has come, its ten tasks are left.
    assert_near(taken(0.5, 0.01 * GB), 1000.0 + 5.0);
    // Of objects of 1 MB each node reads four at a time. The store brings ten in
    // 0.5 s, and the next forty in 2 s, while ten tasks take 1.5 s.
    let small = Workload { object_bytes: 0.001 * GB, run_s: 0.15, dispatch_s: 0.0, ..workload() };
    let slow = Machine { store_bytes_per_s: 0.02 * GB, ..machine() };
    let farm = Farm::new(small, slow, Some(hits)).unwrap().fetching_ahead();
    assert_near(farm.execution_with_overhead_s(), 0.5 + 0.5 + 15.0);
    // Objects that are there already cost nothing.
    let all = Hits { local: 1.0, peer: 0.0, store: 0.0 };
    let farm = Farm::new(workload(), machine(), Some(all)).unwrap().fetching_ahead();
    assert_near(farm.execution_with_overhead_s(), 250.0);
    // Tasks that come one after the other do not begin all at once.
    let arrivals_per_s = Some(2.0);
    let farm = Farm::new(Workload { arrivals_per_s, ..workload() }, machine(), Some(hits));
    assert_near(farm.unwrap().fetching_ahead().execution_with_overhead_s(), 500.0);
}

#[test]
fn a_store_s_load_follows_from_the_workload() {
    let farm = Farm::new(workload(), machine(), Some(Hits::NONE)).unwrap();
    // b = 0.25 s, n = 10, f = 1: ζ² + (2.5 − 2.5) ζ − 0.625 = 0 gives less
    // than the link's 1 s, which therefore counts.
    assert_near(farm.copies().store_s, 1.0);
    let narrow = Machine { store_bytes_per_s: 0.05 * GB, ..machine() };
    let farm = Farm::new(workload(), narrow, Some(Hits::NONE)).unwrap();
    // b = 2 s: ζ² + (2.5 − 20) ζ − 5 = 0.
    let store_s = 8.75 + (8.75f64 * 8.75 + 5.0).sqrt();
    assert_near(farm.copies().store_s, store_s);
    assert_near(farm.cost_from_store_s(), 2.5 + store_s);
    assert_near(farm.copies().store_load, 10.0 * store_s / (2.5 + store_s));
}

#[test]
fn a_store_that_is_all_that_counts_is_used_to_the_full() {
    // The MI workload without caches (data-diffusion §5.2): 250K tasks read
    // 10 MB each from a store of 4.4 Gb/s: 4,545 s.
    let workload = Workload {
        tasks: 250_000,
        run_s: 0.01,
        dispatch_s: 0.001,
        arrivals_per_s: None,
        objects_per_task: 1.0,
        object_bytes: 1e7,
        objects: 10_000,
    };
    let machine = Machine {
        nodes: 64,
        slots_per_node: 2,
        cache_bytes: 0.0,
        node_bytes_per_s: 125e6,
        store_bytes_per_s: 550e6,
    };
    let farm = Farm::new(workload, machine, None).unwrap();
    assert_eq!(*farm.hits(), Hits::NONE);
    let bound = 250_000.0 * 1e7 / 550e6;
    let taken = farm.execution_with_overhead_s();
    assert!(bound < taken && taken < bound * 1.01, "{taken} s for {bound} s");
}

#[test]
fn caches_catch_what_they_hold_but_the_first_access() {
    // 10 accesses of each object; 10 GB of caches hold the 10 GB working set.
    let farm = Farm::new(workload(), machine(), None).unwrap();
    assert!(farm.caches_hold_working_set());
    assert_near(farm.hits().local, 0.9);
    let half = Machine { cache_bytes: 0.5 * GB, ..machine() };
    let farm = Farm::new(workload(), half, None).unwrap();
    assert!(!farm.caches_hold_working_set());
    assert_near(farm.hits().local, 0.45);
    assert_near(farm.hits().store, 0.55);
}

#[test]
fn the_optimum_of_arriving_tasks_is_what_they_keep_busy() {
    // A × Y = 4 × 2.5 = 10 slots.
    let workload = Workload { arrivals_per_s: Some(4.0), objects_per_task: 0.0, ..workload() };
    let optimum = Farm::new(workload, machine(), None).unwrap().optimum(1000);
    assert_eq!(optimum.nodes, 10);
    assert_near(optimum.speedup, 8.0);
    assert_near(optimum.efficiency, 0.8);
    assert!(!optimum.is_open);
    // All at once and nothing shared: more is always better.
    let at_once = Workload { arrivals_per_s: None, ..workload };
    let optimum = Farm::new(at_once, machine(), None).unwrap().optimum(1000);
    assert_eq!((optimum.nodes, optimum.is_open), (1000, true));
}

#[test]
fn a_shared_store_bounds_the_optimum() {
    let optimum = Farm::new(workload(), machine(), Some(Hits::NONE)).unwrap().optimum(1000);
    assert!(!optimum.is_open && (10..40).contains(&optimum.nodes), "{optimum:?}");
}

#[test]
fn copies_share_bandwidth() {
    assert_near(available_bytes_per_s(100.0, 0.0), 100.0);
    assert_near(available_bytes_per_s(100.0, 3.0), 25.0);
    assert_near(copy_s(50.0, 25.0, 100.0), 2.0);
    assert_near(copy_s(0.0, 0.0, 0.0), 0.0);
}

#[test]
fn what_makes_no_sense_is_named() {
    let fails = |workload, machine, hits| Farm::new(workload, machine, hits).unwrap_err();
    let none = Workload { tasks: 0, ..workload() };
    assert_eq!(fails(none, machine(), None), ModelError::NoTasks);
    let odd = Workload { run_s: f64::NAN, ..workload() };
    assert!(fails(odd, machine(), None).to_string().starts_with("run_s is NaN"));
    let few = Machine { nodes: 0, ..machine() };
    assert_eq!(fails(workload(), few, None), ModelError::NoResources);
    let hits = Hits { local: 0.5, peer: 0.0, store: 0.4 };
    assert_eq!(fails(workload(), machine(), Some(hits)), ModelError::Shares { sum: 0.9 });
    let none = Workload { objects: 0, ..workload() };
    assert_eq!(fails(none, machine(), None), ModelError::NoObjects);
    for wrong in [-1.0, f64::NAN, f64::INFINITY] {
        let workloads = [
            Workload { run_s: wrong, ..workload() },
            Workload { dispatch_s: wrong, ..workload() },
            Workload { objects_per_task: wrong, ..workload() },
            Workload { object_bytes: wrong, ..workload() },
            Workload { arrivals_per_s: Some(wrong), ..workload() },
        ];
        for (workload, name) in workloads.into_iter().zip([
            "run_s",
            "dispatch_s",
            "objects_per_task",
            "object_bytes",
            "arrivals_per_s",
        ]) {
            let said = fails(workload, machine(), None).to_string();
            assert!(said.starts_with(&format!("{name} is ")), "{wrong}: {said}");
        }
        let machines = [
            (Machine { cache_bytes: wrong, ..machine() }, "cache_bytes"),
            (Machine { node_bytes_per_s: wrong, ..machine() }, "node_bytes_per_s"),
            (Machine { store_bytes_per_s: wrong, ..machine() }, "store_bytes_per_s"),
        ];
        for (machine, name) in machines {
            let said = fails(workload(), machine, None).to_string();
            assert!(said.starts_with(&format!("{name} is ")), "{wrong}: {said}");
        }
    }
    // Nothing is no data, no cache and no overhead; it is no time and no rate.
    let free = Workload { dispatch_s: 0.0, object_bytes: 0.0, ..workload() };
    assert!(Farm::new(free, Machine { cache_bytes: 0.0, ..machine() }, None).is_ok());
    let still = Workload { run_s: 0.0, ..workload() };
    assert_eq!(fails(still, machine(), None).to_string().split(' ').next(), Some("run_s"));
    // A workload that reads nothing needs no links.
    let dry = Workload { objects_per_task: 0.0, ..workload() };
    assert!(Farm::new(dry, Machine { store_bytes_per_s: 0.0, ..machine() }, None).is_ok());
}

fn farms() -> impl Strategy<Value = Farm> {
    let workload = (
        (1u64..1_000_000, 1e-3..1e3, 0.0..10.0),
        (proptest::option::of(1e-2..1e4), 0.0..4.0, 0.0..1e9, 1u64..100_000),
    )
        .prop_map(
            |((tasks, run_s, dispatch_s), (arrivals_per_s, each, object_bytes, objects))| {
                let objects_per_task = each;
                Workload {
                    tasks,
                    run_s,
                    dispatch_s,
                    arrivals_per_s,
                    objects_per_task,
                    object_bytes,
                    objects,
                }
            },
        );
    let machine = (1u64..1000, 1u32..64, 0.0..1e12, 1e6..1e10, 1e6..1e11).prop_map(
        |(nodes, slots_per_node, cache_bytes, node_bytes_per_s, store_bytes_per_s)| Machine {
            nodes,
            slots_per_node,
            cache_bytes,
            node_bytes_per_s,
            store_bytes_per_s,
        },
    );
    let hits =
        proptest::option::of((0.0..=1.0, 0.0..=1.0).prop_map(|(cached, own): (f64, f64)| {
            let local = cached * own;
            let peer = cached - local;
            Hits { local, peer, store: 1.0 - local - peer }
        }));
    (workload, machine, hits)
        .prop_map(|(workload, machine, hits)| Farm::new(workload, machine, hits).unwrap())
}

proptest! {
    #[test]
    fn overheads_only_cost(farm in farms()) {
        let slack = 1.0 + 1e-9;
        prop_assert!(farm.execution_with_overhead_s() * slack >= farm.execution_s());
        let efficiency = farm.efficiency();
        prop_assert!(efficiency > 0.0 && efficiency <= slack);
        prop_assert!(farm.speedup() <= farm.machine().resources() as f64 * slack);
        if farm.is_above_half() {
            prop_assert!(efficiency > 0.5);
        }
    }

    #[test]
    fn to_fetch_ahead_is_never_slower_but_for_the_first_copies_and_the_last_tasks(farm in farms()) {
        let ahead = farm.fetching_ahead();
        let slack = 1.0 + 1e-6;
        let (work, machine) = (farm.workload(), farm.machine());
        let taken = ahead.execution_with_overhead_s();
        let apart_s = work.arrivals_per_s.map_or(0.0, |arrivals| 1.0 / arrivals);
        // A task that comes alone has the node's link to itself when it copies,
        // so what is compared is how fast tasks end, not how long each takes.
        let pace_of = |farm: &Farm| {
            (farm.average_with_overhead_s() / machine.resources() as f64).max(apart_s)
        };
        let pace = pace_of(&ahead);
        prop_assert!(pace <= pace_of(&farm) * slack);
        prop_assert!(taken * slack >= pace * work.tasks as f64);
        // A round of copies is an object for each node, or four, from the store
        // or over its link; behind the last are as many tasks as read it.
        let copy_s = |objects: f64, rate: f64| objects * work.object_bytes / rate;
        let round_s = copy_s(5.0, machine.node_bytes_per_s)
            + copy_s(5.0 * machine.nodes as f64, machine.store_bytes_per_s);
        prop_assert!(taken <= (2.0 * pace * work.tasks as f64 + round_s) * slack);
    }

    #[test]
    fn a_store_never_gives_more_than_it_has(farm in farms()) {
        let copies = farm.copies();
        let (work, machine) = (farm.workload(), farm.machine());
        prop_assume!(work.object_bytes > 1.0 && work.objects_per_task > 1e-6);
        prop_assert!(copies.store_load <= machine.resources() as f64 * (1.0 + 1e-9));
        let read = work.tasks as f64 * work.objects_per_task * work.object_bytes
            * farm.hits().store;
        let taken = farm.execution_with_overhead_s();
        prop_assert!(read / taken <= machine.store_bytes_per_s * (1.0 + 1e-6));
    }

    #[test]
    fn the_optimum_is_the_best_there_is(farm in farms(), other in 1u64..200) {
        let best = farm.optimum(200);
        let machine = Machine { nodes: other, ..*farm.machine() };
        let hits = Some(*farm.hits());
        let fixed = Farm::new(*farm.workload(), *farm.machine(), hits).unwrap();
        let there = Farm::new(*farm.workload(), machine, hits).unwrap();
        let work_s = there.workload().run_s * there.workload().tasks as f64;
        let speedup = work_s / there.execution_with_overhead_s();
        let product = speedup * speedup / machine.resources() as f64;
        let best_fixed = fixed.optimum(200);
        prop_assert!(best_fixed.speedup * best_fixed.efficiency >= product * (1.0 - 1e-9));
        prop_assert!(best.nodes >= 1 && best.nodes <= 200);
    }
}
