//! The stage in random worlds, and what it does in particular ones.

use crate::cases;
use crate::world::{Fate, Faults, World};
use proptest::prelude::*;

const ALL: Faults = Faults { peers: 40, store: 25, disk: 8, cancels: 15, unpacks: 0 };

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases(60)) })]

    #[test]
    fn every_task_ends_whatever_goes_wrong(seed: u64) {
        World::random(seed, ALL).run();
    }

    #[test]
    fn without_faults_only_the_impossible_fails(seed: u64) {
        let mut world = World::random(seed, Faults::default());
        world.run();
        for (task, fate) in &world.fates {
            let said = world.errors.get(task).map_or("", String::as_str);
            let possible = said.contains("do not fit")
                || said.contains("not there")
                || said.contains("no executor is known")
                || said.contains("kept outputs");
            prop_assert!(*fate == Fate::Done || possible, "{task:?}: {said}");
        }
    }
}

/// Runs one schedule again: `SEED` as printed.
#[test]
fn replay() {
    let Ok(seed) = std::env::var("SEED") else { return };
    World::random(seed.parse().unwrap(), ALL).run();
}
