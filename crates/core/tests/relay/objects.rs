//! Tasks with data objects, below relays.

use crate::world::{SECOND, World};
use falkon_core::dispatch::diffusion::PolicyName;
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
        assert!(objects > 0, "the nodes of a site read nothing");
        assert!(reads <= 2 * objects, "{reads} reads of {objects} objects by 100 tasks or so");
    }
}

#[test]
fn tasks_go_to_the_cluster_that_holds_what_they_read() {
    let mut world = World::new(1);
    let upper = world.site(0);
    let sites = [world.site(0), world.site(upper)];
    world.ask_always();
    for site in sites {
        for _ in 0..5 {
            world.node(site, Resources::cpus(1));
        }
    }
    world.run(SECOND);
    let all: Vec<u64> = (1..=10).collect();
    for _ in 0..5 {
        world.submit_readers(reads_for(SECOND / 5), &all);
        world.run(10 * SECOND);
    }
    assert_eq!(world.results.len(), 50);
    for site in sites {
        let reads: Vec<u64> = world.store_reads(site).collect();
        assert_eq!(reads, [1; 5], "reads of each object at the store");
    }
}

#[test]
fn a_relay_that_comes_back_without_its_nodes_holds_nothing() {
    let mut world = World::new(1);
    let site = world.site(0);
    world.ask_always();
    let node = world.node(site, Resources::cpus(1));
    world.run(SECOND);
    world.submit_readers(reads_for(SECOND / 5), &[1, 2]);
    world.run(10 * SECOND);
    assert_eq!(world.dispatcher_mut(0).holdings(0).added.len(), 5, "two, what both read, outputs");
    world.kill_site(site, SECOND);
    world.remove_node(node);
    world.run(60 * SECOND);
    assert_eq!(world.dispatcher_mut(0).holdings(0).added, []);
}

#[test]
fn tasks_that_wait_where_their_data_is_stay_there_though_others_are_idle() {
    let mut world = World::under(PolicyName::MaxCacheHit, 1);
    world.keep_accounts();
    let site = world.site(0);
    world.ask_always();
    world.node(site, Resources::cpus(1));
    world.run(SECOND);
    world.submit_readers(reads_for(2_000), &[1]);
    world.run(SECOND);
    world.node(0, Resources::cpus(4));
    world.run(SECOND);
    world.submit_readers(reads_for(2_000), &[1; 200]);
    world.run(60 * SECOND);
    assert_eq!(world.results.len(), 201);
    assert_eq!(world.most_sends(), (1, 0));
}

/// Submits tasks that pass objects on in caches alone, and waits for them.
fn shuffle(world: &mut World, count: u64) {
    world.submit_shuffle(count, reads_for(SECOND / 5));
    world.run(120 * SECOND);
    let (ended, how) = (world.results.len() as u64, world.describe());
    assert_eq!(ended, world.submitted, "{how}");
    let found = world.results.values().find(|result| result.outcome != Outcome::Exit(0));
    assert!(found.is_none(), "{found:?}");
}

#[test]
fn what_tasks_leave_in_caches_is_read_by_tasks_of_other_clusters() {
    for seed in 0..20 {
        let mut world = World::new(seed);
        let upper = world.site(0);
        for site in [world.site(0), world.site(upper), 0] {
            for _ in 0..2 {
                world.node(site, Resources::cpus(2));
            }
        }
        world.run(SECOND);
        shuffle(&mut world, 80);
        assert_eq!(world.starts, 80, "seed {seed}: tasks run again");
        assert!(world.parts_came() > 0, "seed {seed}: nothing came from another cluster");
    }
}

#[test]
fn what_is_lost_below_a_relay_is_made_again() {
    let mut world = World::new(1);
    let sites = [0, 0].map(|root| world.site(root));
    let nodes = sites.map(|site| world.node(site, Resources::cpus(4)));
    world.run(SECOND);
    shuffle(&mut world, 40);
    let before = world.starts;
    nodes.into_iter().for_each(|node| world.kill_node(node));
    world.run(SECOND);
    shuffle(&mut world, 40);
    assert!(world.starts > before + 40, "nothing was made again");
}

#[test]
fn what_nobody_reads_any_more_goes_below_relays_too() {
    let mut world = World::new(1);
    let upper = world.site(0);
    for site in [world.site(0), world.site(upper)] {
        world.node(site, Resources::cpus(4));
    }
    world.ask_always();
    world.run(SECOND);
    shuffle(&mut world, 40);
    assert!(!world.dispatcher_mut(0).holdings(0).added.is_empty());
    world.destroy();
    world.run(60 * SECOND);
    assert_eq!(world.dispatcher_mut(0).holdings(0).added, []);
    assert_eq!(world.intermediates_held(), 0);
}

#[test]
fn a_cut_of_a_relay_makes_nothing_again() {
    let mut world = World::new(1);
    let sites = [0, 0].map(|root| world.site(root));
    for site in sites {
        world.node(site, Resources::cpus(4));
    }
    world.run(SECOND);
    shuffle(&mut world, 40);
    for site in sites {
        world.cut_site(site);
        world.run(SECOND);
        world.kill_site(site, SECOND);
        world.run(10 * SECOND);
    }
    shuffle(&mut world, 40);
    assert_eq!(world.starts, 80);
}
