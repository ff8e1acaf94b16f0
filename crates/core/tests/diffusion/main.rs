//! The dispatcher's and the executors' machines with data, proved: random
//! worlds of tasks that share, make and lose objects, under every policy.

#![allow(clippy::unwrap_used, reason = "all of this is tests")]

mod node;
#[path = "../machines/rng.rs"]
mod rng;
mod workload;
mod world;

use workload::Flavour;
use world::World;

/// Worlds of each kind if `FALKON_ROUNDS` does not say.
const ROUNDS: u64 = 60;

/// Names the world in which something fails.
struct Named(u64);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the world's seed is {}", self.0);
        }
    }
}

fn play(seed: u64, flavour: Flavour) {
    let _named = Named(seed);
    let mut world = World::random(seed, flavour);
    world.run();
    world.judge();
}

fn rounds() -> u64 {
    std::env::var("FALKON_ROUNDS").map_or(ROUNDS, |text| text.parse().unwrap())
}

fn play_all(flavour: Flavour) {
    for seed in 0..rounds() {
        play(seed, flavour);
    }
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
    play_all(Flavour { churn: true, ..Flavour::default() });
}

#[test]
fn tasks_that_fail_are_cancelled_or_destroyed_leave_the_others_alone() {
    play_all(Flavour { failures: true, cancels: true, ..Flavour::default() });
}

#[test]
fn everything_at_once() {
    play_all(Flavour { faults: 25, churn: true, failures: true, cancels: true });
}

/// Runs one world again: `SEED` as printed, `KIND` the first letters of faults,
/// churn, tasks' failures and cancellations (`x`), or empty.
#[test]
fn replay() {
    let (Ok(seed), Ok(kind)) = (std::env::var("SEED"), std::env::var("KIND")) else { return };
    let has = |letter| kind.contains(letter);
    let faults = if has('f') { 25 } else { 0 };
    let flavour = Flavour { faults, churn: has('c'), failures: has('t'), cancels: has('x') };
    play(seed.parse().unwrap(), flavour);
}
