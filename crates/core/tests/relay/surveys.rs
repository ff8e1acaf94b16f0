//! A tree as status and plans show it.

use crate::trees::tree;
use crate::world::{SECOND, World};
use falkon_core::dispatch::{Site, Standing};
use falkon_core::task::{Kind, Resources, TaskClass, Time};

/// The relays that are registered at a site, and those below them.
fn relays(world: &World, site: usize) -> Vec<Standing> {
    let dispatcher = world.dispatcher(site);
    dispatcher
        .executor_views()
        .flat_map(|view| dispatcher.standings(&view, Time(world.now)))
        .collect()
}

fn sleep(micros: u64) -> TaskClass {
    let (kind, resources) = (Kind::Sleep, Resources::cpus(1));
    TaskClass { kind, resources, estimate_micros: micros, ..TaskClass::default() }
}

#[test]
fn a_survey_has_each_relay_with_its_nodes_and_tasks() {
    let mut world = World::new(1);
    let site = world.site(0);
    let below = world.site(site);
    world.node(site, Resources::cpus(8));
    for _ in 0..3 {
        world.node(below, Resources::cpus(2));
    }
    world.run(SECOND);
    world.submit(100, sleep(100 * SECOND));
    world.run(10 * SECOND);
    let found = relays(&world, 0);
    let name = |one: &Standing| (one.name.clone(), one.depth, one.nodes, one.cpus_milli);
    let names: Vec<_> = found.iter().map(name).collect();
    let expected = [("relay 1".to_owned(), 0, 4, 14_000), ("relay 2".to_owned(), 1, 3, 6_000)];
    assert_eq!(names, expected);
    let busy: Vec<_> = found.iter().map(|one| (one.running, one.used_milli, one.ended)).collect();
    assert_eq!(busy, [(14, 14_000, 0), (6, 6_000, 0)]);
    world.run(800 * SECOND);
    let found = relays(&world, 0);
    assert!(found[0].ended >= 14 && found[1].ended >= 6, "{found:?}");
    assert!(found.iter().all(|one| one.away_micros.is_none()), "{found:?}");
    // Short ones are sent ahead.
    world.submit(1000, sleep(SECOND));
    world.run(4 * SECOND);
    let found = relays(&world, 0);
    assert!(found.iter().all(|one| one.ahead > 0), "{found:?}");
}

#[test]
fn a_relay_that_is_gone_is_shown_as_away_at_each_tier_until_it_is_back() {
    let mut world = World::new(2);
    let site = world.site(0);
    let below = world.site(site);
    world.node(site, Resources::cpus(1));
    world.node(below, Resources::cpus(1));
    world.run(5 * SECOND);
    world.kill_site(below, 60 * SECOND);
    // One that is away for a moment is still registered.
    for seconds in [2, 20, 30] {
        world.run(seconds * SECOND);
        let found = relays(&world, 0);
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!((found[1].name.as_str(), found[1].depth), ("relay 2", 1));
        if seconds > 2 {
            assert!(found[1].away_micros.is_some_and(|micros| micros > 3 * SECOND), "{found:?}");
        }
        assert!(found[0].away_micros.is_none());
    }
    world.run(60 * SECOND);
    let found = relays(&world, 0);
    assert!(found.len() == 2 && found[1].away_micros.is_none(), "{found:?}");

    world.kill_site(site, 30 * SECOND);
    world.run(20 * SECOND);
    assert!(relays(&world, 0).is_empty());
    let away: Vec<_> = world.dispatcher(0).relays_away(Time(world.now)).collect();
    assert_eq!(away.len(), 1);
    assert_eq!((away[0].name.as_str(), away[0].running), ("relay 1", 0));
    assert!(away[0].away_micros.is_some_and(|micros| micros >= 15 * SECOND), "{away:?}");
    world.run(60 * SECOND);
    assert_eq!(
        (relays(&world, 0).len(), world.dispatcher(0).relays_away(Time(world.now)).count()),
        (2, 0)
    );
}

/// Of each relay in a tree the root knows what its dispatcher would say itself.
#[test]
fn surveys_of_random_trees_agree_with_what_is_there() {
    for seed in 0..20 {
        for depth in 1..=4 {
            let mut world = tree(seed, depth);
            world.run(10 * SECOND);
            world.submit(200, sleep(30 * SECOND));
            world.run(20 * SECOND);
            let found = relays(&world, 0);
            assert_eq!(found.len(), world.site_count() - 1, "seed {seed}, depth {depth}");
            for standing in found {
                let number: usize = standing.name.trim_start_matches("relay ").parse().unwrap();
                let views = world.dispatcher(number).executor_views();
                let all: u64 = views.map(|view| u64::from(view.capacity().cpus_milli)).sum();
                let place = format!("seed {seed}, depth {depth}, relay {number}");
                assert_eq!(standing.cpus_milli, all, "{place}");
                assert!(standing.used_milli <= all, "{place}");
            }
        }
    }
}

#[test]
fn sites_have_the_names_of_the_relays_on_the_way() {
    let mut world = World::new(3);
    let site = world.site(0);
    let below = world.site(site);
    world.sites_of(below, vec![Site { queue: "slurm".to_owned(), ..Site::default() }]);
    world.sites_of(site, vec![Site { queue: "pbs".to_owned(), ..Site::default() }]);
    world.node(below, Resources::cpus(1));
    world.run(20 * SECOND);
    let sites = world.dispatcher(0).sites_below();
    let names: Vec<_> = sites.map(|one| (one.relays.as_str(), one.queue.as_str())).collect();
    assert_eq!(names, [("relay 1", "pbs"), ("relay 1/relay 2", "slurm")]);
}
