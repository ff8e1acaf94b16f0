//! Long output of tasks below relays: it stays where tasks ran, is found through the relays
//! for as long as its result is held at the root, and not kept for longer.

use crate::rng::Rng;
use crate::trees::{finish, submit_some, tree};
use crate::world::{SECOND, World};

/// Nothing is in the way of anything, and nobody looks for output that is gone.
fn settle(world: &mut World) {
    world.run(120 * SECOND);
}

#[test]
fn output_is_read_through_relays_until_its_result_is_forgotten() {
    for seed in 0..8 {
        let mut world = tree(seed, 1 + (seed % 3) as usize);
        world.write_much(60);
        submit_some(&mut world);
        finish(&mut world, seed);
        settle(&mut world);
        let (kept, read) = (world.kept(), world.read_all());
        assert!(kept == read && kept > 0, "seed {seed}: {kept} are kept, {read} read");
        world.destroy();
        settle(&mut world);
        assert_eq!(world.kept(), 0, "seed {seed}");
    }
}

#[test]
fn whatever_dies_nothing_else_is_lost_and_nothing_is_kept_for_ever() {
    for seed in 0..30 {
        let mut world = tree(seed, 1 + (seed % 3) as usize);
        let mut faults = Rng::new(!seed);
        world.write_much(50);
        for _ in 0..6 {
            submit_some(&mut world);
            world.run(faults.below(2 * SECOND));
            let site = 1 + faults.below(world.site_count() as u64 - 1) as usize;
            let node = faults.below(world.node_count() as u64) as usize;
            match faults.below(6) {
                0 => world.kill_site(site, faults.below(20 * SECOND)),
                1 => world.cut_site(site),
                2 => world.cut_below(site, faults.below(20 * SECOND)),
                3 => world.cut_node(node),
                4 => world.kill_node(node),
                _ => world.stall_site(site, faults.below(20 * SECOND)),
            }
        }
        finish(&mut world, seed);
        settle(&mut world);
        let read = world.read_all();
        // What became no result is discarded.
        assert_eq!(world.kept(), read, "seed {seed}");
        for _ in 0..3 {
            let site = 1 + faults.below(world.site_count() as u64 - 1) as usize;
            world.kill_site(site, faults.below(5 * SECOND));
            world.run(30 * SECOND);
            assert_eq!(world.read_all(), read, "seed {seed}: after relay {site} was killed");
        }
        world.destroy();
        settle(&mut world);
        assert_eq!(world.kept(), 0, "seed {seed}");
    }
}

#[test]
fn a_result_that_is_delivered_again_keeps_its_output() {
    for seed in 0..10 {
        let mut world = tree(seed, 1 + (seed % 3) as usize);
        world.write_much(50);
        for _ in 0..4 {
            submit_some(&mut world);
            let before = world.results.len();
            let until = world.now + 10 * SECOND;
            while world.results.len() == before && world.step(until) {}
            // Relays have not heard yet that their reports arrived.
            for site in 1..world.site_count() {
                world.cut_below(site, SECOND);
            }
            world.run(3 * SECOND);
        }
        finish(&mut world, seed);
        settle(&mut world);
        assert_eq!(world.kept(), world.read_all(), "seed {seed}");
        world.destroy();
        settle(&mut world);
        assert_eq!(world.kept(), 0, "seed {seed}");
    }
}
