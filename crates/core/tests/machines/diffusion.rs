//! The dispatcher's and the executors' machines with data, proved: random
//! worlds of tasks that share, make and lose objects, under every policy.

use crate::workload::data::Flavour;
use crate::world::World;
use falkon_core::task::Time;

/// Worlds of each kind if `FALKON_ROUNDS` does not say.
const ROUNDS: u64 = 18;
/// Long enough for everything that a workload has to do.
const REST_MICROS: u64 = 900_000_000;

/// Names the world in which something fails.
struct Named(u64);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the world's seed is {}", self.0);
        }
    }
}

/// Returns how often tasks ran again for what they had left in caches, and how often
/// nodes handed staged outputs to others.
fn play(seed: u64, flavour: Flavour) -> (u64, u64) {
    let _named = Named(seed);
    let mut world = World::with_data(seed, flavour);
    world.run(Time(REST_MICROS));
    world.judge_data();
    let counts = (world.recomputed(), world.handed_over());
    world.wind_up();
    counts
}

fn rounds() -> u64 {
    std::env::var("FALKON_ROUNDS").map_or(ROUNDS, |text| text.parse().unwrap())
}

fn play_all(flavour: Flavour) -> (u64, u64) {
    let counts = (0..rounds()).map(|seed| play(seed, flavour));
    counts.fold((0, 0), |sums, one| (sums.0 + one.0, sums.1 + one.1))
}

#[test]
fn where_nothing_goes_wrong_only_the_impossible_fails() {
    play_all(Flavour::default());
}

#[test]
fn stores_peers_and_disks_that_fail_leave_no_task_behind() {
    play_all(Flavour { faults: 25, ..Flavour::default() });
}

#[test]
fn executors_that_come_and_go_leave_no_task_behind() {
    let (_, handed_over) = play_all(Flavour { churn: true, ..Flavour::default() });
    assert!(handed_over > rounds(), "nobody collects for another one");
}

#[test]
fn tasks_that_fail_are_cancelled_or_destroyed_leave_the_others_alone() {
    play_all(Flavour { failures: true, cancels: true, ..Flavour::default() });
}

#[test]
fn what_is_lost_from_caches_is_made_again() {
    let (recomputed, _) = play_all(Flavour { churn: true, losses: true, ..Flavour::default() });
    assert!(recomputed > rounds() / 2, "nothing was lost that anybody read");
}

#[test]
fn everything_at_once() {
    let churn = Flavour { churn: true, losses: true, ..Flavour::default() };
    play_all(Flavour { faults: 25, failures: true, cancels: true, ..churn });
}

#[test]
fn gangs_with_data_end_under_every_policy() {
    play_all(Flavour { gangs: true, ..Flavour::default() });
}

#[test]
fn gangs_with_data_end_whatever_is_lost() {
    let churn = Flavour { churn: true, losses: true, gangs: true, ..Flavour::default() };
    play_all(Flavour { faults: 25, failures: true, cancels: true, ..churn });
}

/// Runs one world again: `SEED` as printed, `KIND` the first letters of faults,
/// churn, tasks' failures, losses, cancellations (`x`) and gangs, or empty.
#[test]
fn replay() {
    let (Ok(seed), Ok(kind)) = (std::env::var("SEED"), std::env::var("KIND")) else { return };
    let has = |letter| kind.contains(letter);
    let faults = if has('f') { 25 } else { 0 };
    let (churn, failures, cancels, losses) = (has('c'), has('t'), has('x'), has('l'));
    let flavour = Flavour { faults, churn, failures, cancels, losses, gangs: has('g') };
    play(seed.parse().unwrap(), flavour);
}
