//! Who gets what and when: fair shares, room for large tasks, prefetched
//! tasks taken back, wake-ups.

use crate::faults::cases;
use crate::rng::Rng;
use crate::workload::{Op, Plan};
use crate::world::{Faults, World};
use falkon_core::dispatch::InstanceOptions;
use falkon_core::result::Outcome;
use falkon_core::task::{Kind, Resources, TaskClass, Time};
use proptest::prelude::*;

fn cpus(count: u32) -> TaskClass {
    TaskClass { resources: Resources::cpus(count), ..TaskClass::default() }
}

fn world(seed: u64, capacities: &[Resources], plans: &[&[(u64, TaskClass, u64)]]) -> World {
    let mut rng = Rng::new(seed);
    let plans = plans.iter().map(|runs| Plan::of(&mut rng, runs)).collect();
    World::new(seed, capacities.to_vec(), plans, Faults::none())
}

/// How many tasks of each of two clients were started, from when both were there
/// until one of them had started all.
fn shares(world: &World) -> (usize, usize) {
    let first = |client| world.starts.iter().position(|start| start.2 == client).unwrap();
    let last = |client| world.starts.iter().rposition(|start| start.2 == client).unwrap();
    let both = first(0).max(first(1))..last(0).min(last(1));
    let window = world.starts.get(both).unwrap_or_default();
    let mine = window.iter().filter(|start| start.2 == 0).count();
    (mine, window.len() - mine)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases(6)) })]

    #[test]
    fn equal_demands_get_equal_shares(seed: u64, micros in 5_000..60_000u64) {
        let runs = [(14_000_000 / micros, cpus(1), micros)];
        let mut world = world(seed, &[Resources::cpus(4), Resources::cpus(3)], &[&runs, &runs]);
        world.run(Time(1_000_000_000));
        world.judge();
        let (mine, theirs) = shares(&world);
        prop_assert!(
            mine + theirs < 100 || (mine <= 2 * theirs && theirs <= 2 * mine),
            "{mine} to {theirs}"
        );
    }

    #[test]
    fn short_tasks_do_not_wait_behind_long_ones_of_others_sent_ahead(
        seed: u64,
        long in 8..16u64,
        short in 100_000..900_000u64,
        priority in -100..100i32,
    ) {
        // Nobody knows how long the long ones run; the others find both slots
        // taken by them.
        let long = long * 1_000_000;
        let urgent = TaskClass { priority, ..cpus(1) };
        let mut world =
            world(seed, &[Resources::cpus(2)], &[&[(8, cpus(1), long)], &[(10, urgent, short)]]);
        world.clients[1].wake_at = Some(Time(2_000_000));
        // From when the first two have ended, a slot is theirs at least; what
        // runs and what is on its way may come before.
        world.run_for(long + 12 * short + 2_000_000);
        prop_assert!(world.clients[1].complete, "short tasks wait for long ones");
        world.run(Time(1_000_000_000));
        world.judge();
    }

    #[test]
    fn what_is_sent_ahead_is_taken_back_for_an_instance_with_less_than_its_share(
        seed: u64,
        short in 1_000..20_000u64,
    ) {
        // Tasks that were short become long: those sent ahead by what the first
        // took would hold the slots for minutes.
        let first = [(40, cpus(1), short), (40, cpus(1), 20_000_000)];
        let capacity = Resources::cpus(2);
        let mut world = world(seed, &[capacity], &[&first, &[(10, cpus(1), 500_000)]]);
        world.clients[1].wake_at = Some(Time(10_000_000));
        // Both slots are held by long ones when they come, and may be once
        // more before it is known that these tasks may be long. Each further
        // need of the first instance could hold them so as well.
        world.run_for(55_000_000);
        prop_assert!(world.clients[1].complete, "tasks wait for others sent ahead");
        world.run(Time(10_000_000_000));
        world.judge();
    }

    #[test]
    fn different_needs_and_priorities_get_equal_shares(seed: u64, micros in 5_000..60_000u64) {
        let of = |priority: i32, memory_bytes: u64| TaskClass {
            priority,
            resources: Resources { memory_bytes, ..Resources::cpus(1) },
            ..TaskClass::default()
        };
        let count = 7_000_000 / micros;
        let mine = [(count, of(100, 1 << 20), micros), (count, of(-5, 2 << 20), micros)];
        let theirs = [(count, of(0, 3 << 20), micros), (count, of(7, 0), micros)];
        let capacity = |cpus| Resources { memory_bytes: 1 << 30, ..Resources::cpus(cpus) };
        let mut world = world(seed, &[capacity(4), capacity(3)], &[&mine, &theirs]);
        world.run(Time(1_000_000_000));
        world.judge();
        let (mine, theirs) = shares(&world);
        prop_assert!(
            mine + theirs < 100 || (mine <= 2 * theirs && theirs <= 2 * mine),
            "{mine} to {theirs}"
        );
    }

    #[test]
    fn a_large_task_is_not_starved_by_small_ones(seed: u64, micros in 1_000..50_000u64) {
        let small = [(60_000_000 / micros.max(10_000), cpus(1), micros)];
        let large = [(6, cpus(4), 2_000)];
        let mut world = world(seed, &[Resources::cpus(4)], &[&small, &large]);
        world.run_for(15_000_000);
        let started = world.starts.iter().filter(|start| start.2 == 1).count();
        prop_assert_eq!(started, 6, "large tasks started in 15 s");
        world.run(Time(1_000_000_000));
        world.judge();
    }

    #[test]
    fn prefetched_tasks_behind_a_long_one_go_to_an_idle_executor(seed: u64, after in 1..40u64) {
        let runs = [(60, cpus(1), 1_000), (1, cpus(1), 600_000_000), (after, cpus(1), 1_000)];
        let mut world = world(seed, &[Resources::cpus(1), Resources::cpus(1)], &[&runs]);
        world.nodes[1].reconnect_at = Some(Time(4_000_000));
        world.run_for(12_000_000);
        prop_assert_eq!(world.clients[0].log.len() as u64, 60 + after);
        world.run(Time(1_000_000_000));
        world.judge();
    }

    #[test]
    fn a_queue_that_fits_nowhere_holds_nothing_else_up(seed: u64) {
        let gpu = TaskClass {
            resources: Resources { gpus: 1, ..Resources::cpus(1) },
            ..TaskClass::default()
        };
        let runs = [(60, cpus(1), 1_000), (1, cpus(1), 600_000_000), (40, cpus(1), 1_000)];
        let mut world =
            world(seed, &[Resources::cpus(1), Resources::cpus(1)], &[&[(5, gpu, 1_000)], &runs]);
        world.nodes[1].reconnect_at = Some(Time(4_000_000));
        world.run_for(12_000_000);
        prop_assert_eq!(world.clients[1].log.len(), 100);
        prop_assert_eq!(world.clients[0].log.len(), 0);
        let id = world.clients[0].instance.unwrap();
        prop_assert_eq!(world.dispatcher.instance_view(id).unwrap().unschedulable().len(), 1);
    }

    #[test]
    fn tasks_without_a_cpu_do_not_wait_for_one(seed: u64) {
        let noop = TaskClass { kind: Kind::Noop, ..TaskClass::default() };
        let free = TaskClass { resources: Resources::default(), ..TaskClass::default() };
        let long = [(8, cpus(1), 600_000_000)];
        let mut world = world(
            seed,
            &[Resources::cpus(4), Resources::cpus(4)],
            &[&long, &[(1000, noop, 1)], &[(50, free, 1_000)]],
        );
        world.clients[1].wake_at = Some(Time(2_000_000));
        world.clients[2].wake_at = Some(Time(2_000_000));
        world.run_for(10_000_000);
        prop_assert!(world.clients[1].complete, "noops wait for a cpu");
        prop_assert!(world.clients[2].complete, "tasks that need nothing wait for a cpu");
    }

    #[test]
    fn an_executor_emptied_for_nothing_goes_on(seed: u64) {
        // The large task is cancelled while a node is being emptied for it.
        let mut rng = Rng::new(seed);
        let mut large = Plan::of(&mut rng, &[(1, cpus(4), 1_000)]);
        large.ops.push(Op::Destroy);
        let small =
            Plan::of(&mut rng, &[(40, cpus(1), 300_000), (4, cpus(1), 6_000_000), (40, cpus(1), 1)]);
        let mut world = World::new(seed, vec![Resources::cpus(4)], vec![small, large], Faults::none());
        world.run(Time(60_000_000));
        world.judge();
    }

    #[test]
    fn what_no_executor_offers_fails_where_that_is_wanted(seed: u64) {
        let mut rng = Rng::new(seed);
        let mut plan = Plan::of(&mut rng, &[(3, cpus(1), 1_000), (5, cpus(9), 1_000)]);
        plan.options = InstanceOptions { fail_unschedulable_micros: Some(1_000_000), ..plan.options };
        let mut world = World::new(seed, vec![Resources::cpus(2)], vec![plan], Faults::none());
        world.run(Time(60_000_000));
        let log = &world.clients[0].log;
        let failed = log.iter().filter(|(_, outcome, _)| *outcome == Outcome::Unschedulable);
        prop_assert_eq!(failed.count(), 5);
        prop_assert_eq!(log.len(), 8);
    }
}
