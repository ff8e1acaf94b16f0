//! Random workloads on random schedules, with and without faults.

use crate::rng::Rng;
use crate::workload::{Flavour, Plan, capacity, full_capacity};
use crate::world::{Faults, World};
use falkon_core::task::Time;
use proptest::prelude::*;

/// Long enough for everything a random workload has to do once nothing goes
/// wrong any more.
pub(crate) const REST_MICROS: u64 = 900_000_000;

pub(crate) fn world(seed: u64, flavour: Flavour, faults: Faults) -> World {
    let mut rng = Rng::new(seed ^ 0x5eed);
    let plans = (0..1 + rng.below(3)).map(|_| Plan::random(&mut rng, flavour)).collect();
    let mut capacities = vec![full_capacity()];
    capacities.extend((0..rng.below(4)).map(|_| capacity(&mut rng)));
    World::with_disk(seed, capacities, plans, faults)
}

fn play(mut world: World, until: Time) {
    world.run(until.after(REST_MICROS));
    world.judge();
    world.wind_up();
}

pub(crate) fn faults(cuts: bool, silence: bool, deaths: bool, restarts: bool) -> Faults {
    let until = Time(15_000_000);
    Faults { until, cuts, silence, deaths, restarts, ..Faults::none() }
}

pub(crate) const ALL: Flavour =
    Flavour { failures: true, cancels: true, after: true, gangs: false, speculates: false };

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases(32)) })]

    #[test]
    fn without_faults_every_task_ends_as_the_model_says(seed: u64) {
        let flavour = Flavour { cancels: false, ..ALL };
        play(world(seed, flavour, Faults::none()), Time(0));
    }

    #[test]
    fn what_is_cancelled_or_destroyed_leaves_the_rest_alone(seed: u64) {
        play(world(seed, ALL, Faults::none()), Time(0));
    }

    #[test]
    fn broken_connections_lose_nothing(seed: u64) {
        let faults = faults(true, false, false, false);
        play(world(seed, ALL, faults), faults.until);
    }

    #[test]
    fn lost_executors_lose_only_what_ran_there(seed: u64) {
        let faults = faults(true, true, true, false);
        play(world(seed, ALL, faults), faults.until);
    }

    #[test]
    fn a_dispatcher_comes_back_from_its_journal(seed: u64) {
        let faults = faults(false, false, false, true);
        play(world(seed, ALL, faults), faults.until);
    }

    #[test]
    fn everything_at_once(seed: u64) {
        let faults = faults(true, true, true, true);
        play(world(seed, ALL, faults), faults.until);
    }
}

#[test]
fn schedules_that_failed_once() {
    // What was taken back between two sessions was given back twice.
    let faults = faults(true, true, true, false);
    play(world(15412752991372726518, ALL, faults), faults.until);
}

/// Processes are killed so often that many tasks are lost more often than they
/// may be, and others nearly so.
#[test]
fn who_is_lost_too_often_ends_so_and_nobody_else() {
    let mut lost = 0;
    for seed in 0..u64::from(cases(24)) {
        println!("seed {seed}");
        let (has_cuts, has_restarts) = (seed % 3 == 1, seed % 3 == 2);
        let faults = Faults { storms: true, ..faults(has_cuts, false, has_cuts, has_restarts) };
        let mut world = world(seed, ALL, faults);
        world.run(faults.until.after(REST_MICROS));
        world.judge();
        lost += world.lost();
        world.wind_up();
    }
    assert!(lost > 0, "nothing was lost too often");
    println!("{lost} tasks were lost too often");
}

/// `PROPTEST_CASES` raises the number of cases.
pub(crate) fn cases(default: u32) -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}
/// Runs one schedule again: `SEED` as printed, `FAULTS` the first letters of
/// cuts, silence, deaths, restarts, `w` for storms, or `none`, or `plain` without cancellations.
#[test]
fn replay() {
    let (Ok(seed), Ok(kind)) = (std::env::var("SEED"), std::env::var("FAULTS")) else { return };
    let has = |letter| kind.contains(letter);
    let faults = faults(has('c'), has('s'), has('d'), has('r'));
    let faults = Faults { storms: has('w'), ..faults };
    let faults = if kind == "none" || kind == "plain" { Faults::none() } else { faults };
    let flavour = Flavour { cancels: kind != "plain", ..ALL };
    play(world(seed.parse().unwrap(), flavour, faults), faults.until);
}
