//! Tasks of which two tries may run at the same time, on random schedules with and without
//! faults.

use crate::faults::{ALL, REST_MICROS, cases, faults};
use crate::rng::Rng;
use crate::workload::{Flavour, Plan, capacity, full_capacity};
use crate::world::{Faults, World};
use falkon_core::task::{Resources, TaskClass, Time};
use proptest::prelude::*;

const SPECULATES: Flavour = Flavour { speculates: true, ..ALL };

/// Returns how many second tries were sent.
fn play(seed: u64, flavour: Flavour, faults: Faults) -> u64 {
    let mut rng = Rng::new(seed ^ 0x57ea);
    let plans = (0..1 + rng.below(3)).map(|_| Plan::random(&mut rng, flavour)).collect();
    // As many can run everything as a task runs on at a time.
    let mut capacities = vec![full_capacity(); 3];
    capacities.extend((0..rng.below(4)).map(|_| capacity(&mut rng)));
    let mut world = World::with_disk(seed, capacities, plans, faults);
    world.steadies = if flavour.gangs { 3 } else { 0 };
    world.run(faults.until.after(REST_MICROS));
    world.judge();
    world.wind_up();
    world.copies()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases(32)) })]

    #[test]
    fn without_faults_every_task_ends_as_the_model_says(seed: u64) {
        play(seed, Flavour { cancels: false, ..SPECULATES }, Faults::none());
    }

    #[test]
    fn what_is_cancelled_or_destroyed_leaves_the_rest_alone(seed: u64) {
        play(seed, SPECULATES, Faults::none());
    }

    #[test]
    fn broken_connections_lose_nothing(seed: u64) {
        play(seed, SPECULATES, faults(true, true, false, false));
    }

    #[test]
    fn lost_executors_lose_only_what_ran_there_alone(seed: u64) {
        play(seed, SPECULATES, faults(true, true, true, false));
    }

    #[test]
    fn a_dispatcher_that_comes_back_knows_one_try_of_each_task(seed: u64) {
        play(seed, SPECULATES, faults(false, false, false, true));
    }

    #[test]
    fn everything_at_once(seed: u64) {
        play(seed, Flavour { gangs: seed.is_multiple_of(4), ..SPECULATES }, faults(true, true, true, true));
    }
}

/// Second tries are made in these worlds, with faults and without.
#[test]
fn tasks_that_straggle_are_tried_twice() {
    let storms = Faults { storms: true, ..faults(true, true, true, true) };
    for (what, faults) in [("none", Faults::none()), ("all", storms)] {
        let copies: u64 = (0..u64::from(cases(48)))
            .map(|seed| {
                println!("seed {seed}, faults: {what}");
                play(seed, SPECULATES, faults)
            })
            .sum();
        println!("{copies} second tries, faults: {what}");
        assert!(copies > 0, "no task was tried twice, faults: {what}");
    }
}

/// Tasks that are all alike are not tried twice, nor any while others wait.
#[test]
fn tasks_that_are_alike_are_tried_once() {
    for seed in 0..8 {
        let class = TaskClass { speculate: true, ..TaskClass::default() };
        let plan = Plan::of(&mut Rng::new(seed), &[(40, class, 5_000_000)]);
        let capacities = vec![Resources::cpus(2); 5];
        let mut world = World::new(seed, capacities, vec![plan], Faults::none());
        world.run(Time(REST_MICROS));
        world.judge();
        assert_eq!(world.copies(), 0, "seed {seed}");
    }
}

/// As `faults::replay`, with second tries.
#[test]
fn replay_speculation() {
    let (Ok(seed), Ok(kind)) = (std::env::var("SEED"), std::env::var("SPECULATION_FAULTS")) else {
        return;
    };
    let has = |letter| kind.contains(letter);
    let faults = faults(has('c'), has('s'), has('d'), has('r'));
    let faults = Faults { storms: has('w'), ..faults };
    let faults = if kind == "none" || kind == "plain" { Faults::none() } else { faults };
    let seed: u64 = seed.parse().unwrap();
    let gangs = has('g') && seed.is_multiple_of(4);
    play(seed, Flavour { cancels: kind != "plain", gangs, ..SPECULATES }, faults);
}
