//! Tasks that run on several executors each, among others, on random schedules with and without
//! faults.

use crate::faults::{ALL, REST_MICROS, cases, faults};
use crate::floor::{Floor, Group, Load};
use crate::rng::Rng;
use crate::workload::{Flavour, Plan, capacity, full_capacity};
use crate::world::{Faults, World};
use falkon_core::task::{Resources, TaskClass, Time, UserId};
use proptest::prelude::*;

const GANGS: Flavour = Flavour { gangs: true, ..ALL };

/// Three nodes can run everything, and are there all along; others come and go.
fn play(seed: u64, flavour: Flavour, faults: Faults) {
    let mut rng = Rng::new(seed ^ 0x6a46);
    let plans = (0..1 + rng.below(3)).map(|_| Plan::random(&mut rng, flavour)).collect();
    let mut capacities = vec![full_capacity(); 3];
    capacities.extend((0..rng.below(4)).map(|_| capacity(&mut rng)));
    let mut world = World::with_disk(seed, capacities, plans, faults);
    world.steadies = 3;
    world.run(faults.until.after(REST_MICROS));
    world.judge();
    world.wind_up();
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases(32)) })]

    #[test]
    fn without_faults_every_gang_ends_as_the_model_says(seed: u64) {
        play(seed, Flavour { cancels: false, ..GANGS }, Faults::none());
    }

    #[test]
    fn gangs_that_are_cancelled_or_destroyed_leave_the_rest_alone(seed: u64) {
        play(seed, GANGS, Faults::none());
    }

    #[test]
    fn broken_connections_lose_no_gang(seed: u64) {
        play(seed, GANGS, faults(true, false, false, false));
    }

    #[test]
    fn a_lost_member_loses_the_gang_once(seed: u64) {
        play(seed, GANGS, faults(true, true, true, false));
    }

    #[test]
    fn gangs_go_on_when_the_dispatcher_comes_back(seed: u64) {
        play(seed, GANGS, faults(false, false, false, true));
    }

    #[test]
    fn gangs_with_everything_at_once(seed: u64) {
        play(seed, GANGS, faults(true, true, true, true));
    }
}

const SECOND: u64 = 1_000_000;

fn tasks(count: u64, nodes: u32, estimated: bool) -> Group {
    let micros = 10 * SECOND;
    let estimate_micros = if estimated { micros } else { 0 };
    let class = TaskClass { nodes, estimate_micros, ..TaskClass::default() };
    Group { count, class, micros }
}

/// When tasks of this width began, of those of one instance or all.
fn starts(floor: &Floor, width: u32, instance: Option<usize>) -> Vec<u64> {
    let runs = floor.runs.iter().filter(|run| run.width == width);
    let runs = runs.filter(|run| instance.is_none_or(|instance| run.instance == instance));
    runs.map(|run| run.from.0).collect()
}

/// No two of these times, nor the first and the beginning, are further apart than that.
fn assert_never_waits(starts: &[u64], micros: u64, who: &str) {
    let before = std::iter::once(&SECOND).chain(starts);
    for (before, at) in before.zip(starts) {
        let waited = at.saturating_sub(*before) / SECOND;
        assert!(at.saturating_sub(*before) <= micros, "{who} waited for {waited} s");
    }
    assert!(!starts.is_empty(), "{who} never ran");
}

/// There are always more of both than executors can run: wide tasks are not passed by, and do
/// not take everything for ever either, whether run times are known or not, of one instance
/// and of two, and even where each wide task takes all executors.
#[test]
fn neither_wide_nor_narrow_tasks_starve() {
    for (nodes, wide) in [(8, 3), (8, 8), (5, 2)] {
        for estimated in [false, true] {
            for apart in [false, true] {
                let (gangs, alone) = (tasks(500, wide, estimated), tasks(5_000, 1, estimated));
                let load = |groups: &[&Group]| Load {
                    user: UserId::OWNER,
                    comes: Time(SECOND),
                    groups: groups.iter().copied().cloned().collect(),
                };
                let loads = match apart {
                    true => vec![load(&[&alone]), load(&[&gangs])],
                    false => vec![load(&[&alone, &gangs])],
                };
                let capacities = vec![Resources::cpus(1); nodes];
                let mut floor = Floor::new(nodes as u64, &capacities, loads);
                floor.run_until(Time(900 * SECOND));
                let who = format!("{nodes} executors, {wide}-wide, {estimated}, {apart}");
                // Of one instance, tasks run in the order of submission, but for those that
                // have waited for a minute.
                let longest = 120 * SECOND;
                assert_never_waits(&starts(&floor, wide, None), longest, &format!("wide: {who}"));
                assert_never_waits(&starts(&floor, 1, None), longest, &format!("narrow: {who}"));
            }
        }
    }
}

/// Two instances have the same share of processor time, whether their tasks are wide or not.
#[test]
fn wide_tasks_count_all_their_executors_in_their_share() {
    let load = |group| Load { comes: Time(SECOND), groups: vec![group], user: UserId::OWNER };
    let loads = vec![load(tasks(50_000, 1, true)), load(tasks(5_000, 4, true))];
    let mut floor = Floor::new(7, &vec![Resources::cpus(1); 32], loads);
    floor.run_until(Time(900 * SECOND));
    let used = |instance| -> u64 {
        let runs = floor.runs.iter().filter(|run| run.instance == instance);
        runs.map(|run| run.until.since(run.from) * u64::from(run.width)).sum()
    };
    let (narrow, wide) = (used(0), used(1));
    let share = wide as f64 / (narrow + wide) as f64;
    assert!((0.4..0.6).contains(&share), "wide tasks had {share} of the processor time");
    let possible = 32 * 899 * SECOND;
    let utilization = (narrow + wide) as f64 / possible as f64;
    assert!(utilization > 0.9, "{utilization} of the processor time was used");
}

/// As `faults::replay`, with gangs.
#[test]
fn replay_gangs() {
    let (Ok(seed), Ok(kind)) = (std::env::var("SEED"), std::env::var("GANG_FAULTS")) else {
        return;
    };
    let has = |letter| kind.contains(letter);
    let faults = faults(has('c'), has('s'), has('d'), has('r'));
    let faults = if kind == "none" || kind == "plain" { Faults::none() } else { faults };
    let flavour = Flavour { cancels: kind != "plain", ..GANGS };
    play(seed.parse().unwrap(), flavour, faults);
}
