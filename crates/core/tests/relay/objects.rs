//! Tasks with data objects, below relays.

use crate::world::{SECOND, World};
use falkon_core::result::Outcome;
use falkon_core::task::{Kind, Resources, TaskClass};

fn reads_for(micros: u64) -> TaskClass {
    TaskClass {
        kind: Kind::Sleep,
        resources: Resources::cpus(1),
        estimate_micros: micros,
        ..TaskClass::default()
    }
}

#[test]
fn each_cluster_shares_what_its_nodes_have_read_at_the_store() {
    let mut world = World::new(1);
    let [left, right] = [0, 0].map(|root| world.site(root));
    for site in [left, right] {
        for _ in 0..3 {
            world.node(site, Resources::cpus(2));
        }
    }
    world.run(SECOND);
    let reads: Vec<u64> = (0..200).map(|task| 1 + task % 10).collect();
    world.submit_readers(reads_for(SECOND / 5), &reads);
    world.run(60 * SECOND);
    assert_eq!(world.results.len(), 200);
    assert!(world.results.values().all(|result| result.outcome == Outcome::Exit(0)));
    for site in [left, right] {
        let (reads, objects) =
            world.store_reads(site).fold((0, 0), |(sum, count), reads| (sum + reads, count + 1));
        assert_eq!(objects, 11, "objects that the nodes of a site read");
        assert!(reads <= 22, "{reads} reads of 11 objects, which 400 inputs are");
    }
}
