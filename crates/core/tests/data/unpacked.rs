//! Archives that tasks find unpacked: once for all of them, within the room of
//! the cache, for as long as a task uses it.

use crate::cases;
use crate::particular::{Node, failed, file, input, node, ready_ids};
use crate::trees::tree_bytes;
use crate::world::{Fate, Faults, World, key};
use falkon_core::data::cache::{Cache, CacheOptions, Eviction, Recorded, TierId};
use falkon_core::data::limits::{DISK_FULL_TRIES_MAX, ROOM_WAIT_MICROS};
use falkon_core::data::object::{Object, ObjectId};
use falkon_core::data::stage::{
    Action, Event, Input, Refusal, ServeId, Stage, StageOptions, UnpackError, UnpackId,
};
use proptest::prelude::*;
use std::sync::Arc;

const ALL: Faults = Faults { peers: 40, store: 25, disk: 8, cancels: 15, unpacks: 60 };

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases(60)) })]

    #[test]
    fn every_task_that_reads_archives_ends_whatever_goes_wrong(seed: u64) {
        World::random(seed, ALL).run();
    }

    #[test]
    fn archives_are_unpacked_once_unless_they_had_to_go(seed: u64) {
        let mut world = World::random(seed, Faults { unpacks: 60, ..Faults::default() });
        world.run();
        for (task, fate) in &world.fates {
            let said = world.errors.get(task).map_or("", String::as_str);
            let possible = said.contains("do not fit")
                || said.contains("not there")
                || said.contains("no executor is known")
                || said.contains("kept outputs")
                || said.contains("could not be unpacked");
            prop_assert!(*fate == Fate::Done || possible, "{task:?}: {said}");
        }
        for (object, entry) in world.stage.cache().entries() {
            let made = world.trees.made.get(&object).copied().unwrap_or(0);
            prop_assert!(entry.unpacked == 0 || made > 0);
            prop_assert!(entry.unpacked == 0 || Some(entry.unpacked) == tree_bytes(object));
        }
    }
}

#[test]
fn schedules_that_failed_once() {
    let seeds = [5_517_837_156_258_365_265, 18_132_083_707_592_815_508, 13_919_484_352_128_428_644];
    for seed in seeds {
        World::random(seed, ALL).run();
    }
}

/// Runs one schedule again: `SEED` as printed.
#[test]
fn replay() {
    let Ok(seed) = std::env::var("SEED") else { return };
    World::random(seed.parse().unwrap(), ALL).run();
}

fn archive(object: &Arc<Object>) -> Input {
    Input { is_unpacked: true, ..input(object, &[], true) }
}

/// What is to be unpacked, or counted.
fn asked(actions: &[Action]) -> Vec<(UnpackId, Option<u64>)> {
    let asked = |action: &Action| match action {
        Action::Measure { unpack, .. } => Some((*unpack, None)),
        Action::Unpack { unpack, bytes, .. } => Some((*unpack, Some(*bytes))),
        _ => None,
    };
    actions.iter().filter_map(asked).collect()
}

fn unpacked(node: &mut Node, unpack: UnpackId, bytes: u64) -> Vec<Action> {
    node.send(Event::Unpacked { unpack, result: Ok(bytes) })
}

/// Brings what was asked for, and unpacks it to so many bytes.
fn bring(node: &mut Node, actions: Vec<Action>, bytes: u64) -> Vec<Action> {
    let actions = node.bring(actions);
    let [(measure, None)] = asked(&actions)[..] else { panic!("{actions:?}") };
    let actions = unpacked(node, measure, bytes);
    let [(unpack, Some(room))] = asked(&actions)[..] else { panic!("{actions:?}") };
    assert_eq!(room, bytes);
    unpacked(node, unpack, bytes)
}

fn deleted(actions: &[Action]) -> usize {
    actions.iter().filter(|action| matches!(action, Action::Delete(_))).count()
}

#[test]
fn a_hundred_tasks_have_one_archive_fetched_and_unpacked_once() {
    let mut node = node(1000);
    let env = file(1, 100);
    let first = node.want(0, &[archive(&env)]);
    for task in 1..100 {
        assert_eq!(node.want(task, &[archive(&env)]), []);
    }
    let actions = bring(&mut node, first, 500);
    assert_eq!(ready_ids(&actions), (0..100).collect::<Vec<_>>());
    let mut usages = actions.iter().filter_map(|action| match action {
        Action::Ready { usage, .. } => Some(usage.all()),
        _ => None,
    });
    // It counts once for each task, as any input, with the bytes of the archive.
    assert!(usages.all(|all| (all.objects, all.bytes) == (1, 100)));
    assert_eq!(node.stage().cache().used(), 600);
}

#[test]
fn who_reads_it_packed_does_not_wait_until_it_is_unpacked() {
    let mut node = node(1000);
    let env = file(1, 100);
    let actions = node.want(0, &[archive(&env)]);
    node.want(1, &[input(&env, &[], true)]);
    let actions = node.bring(actions);
    assert_eq!(ready_ids(&actions), [1]);
}

#[test]
fn what_is_unpacked_goes_with_its_archive_and_not_under_a_task() {
    let mut node = node(1000);
    let (env, other) = (file(1, 100), file(2, 500));
    let actions = node.want(0, &[archive(&env)]);
    let actions = bring(&mut node, actions, 500);
    assert_eq!(ready_ids(&actions), [0]);
    node.send(Event::Started(key(0)));
    assert_eq!(node.want(1, &[input(&other, &[], true)]), []);
    node.send(Event::Needed(key(1)));
    let actions = node.send(Event::Ended(key(0)));
    let [Action::Delete(gone), ..] = actions[..] else { panic!("{actions:?}") };
    assert_eq!((gone.object, gone.size), (env.id, 600));
    node.bring(actions);
    assert_eq!(node.stage().cache().used(), 500);
}

#[test]
fn an_archive_that_is_lost_stays_unpacked_for_those_who_run() {
    let mut node = node(1000);
    let env = file(1, 100);
    let actions = node.want(0, &[archive(&env)]);
    bring(&mut node, actions, 500);
    node.send(Event::Started(key(0)));
    assert_eq!(node.send(Event::Lost(env.id)), []);
    assert_eq!(deleted(&node.send(Event::Ended(key(0)))), 1);
}

#[test]
fn an_archive_that_is_lost_under_a_running_task_is_fetched_anew_when_that_has_ended() {
    for is_unpacked in [false, true] {
        let mut node = node(1000);
        let env = file(1, 100);
        let wanted = Input { is_unpacked, ..archive(&env) };
        let actions = node.want(0, &[archive(&env)]);
        bring(&mut node, actions, 500);
        node.send(Event::Started(key(0)));
        let actions = node.want(1, std::slice::from_ref(&wanted));
        assert_eq!(ready_ids(&actions), [1]);
        node.send(Event::Started(key(1)));
        // The second task finds no archive as it is to begin: the shell says so, and
        // asks for its inputs anew. It is not to start before they have come again.
        node.send(Event::Lost(env.id));
        assert_eq!(node.want(1, &[wanted]), []);
        assert_eq!(node.stage().poll_timeout(), None);
        let actions = node.send(Event::Ended(key(0)));
        assert_eq!(deleted(&actions), 1);
        let actions = match is_unpacked {
            true => {
                let actions = node.bring(actions);
                let [(unpack, Some(500))] = asked(&actions)[..] else { panic!("{actions:?}") };
                unpacked(&mut node, unpack, 500)
            }
            false => node.bring(actions),
        };
        assert_eq!(ready_ids(&actions), [1]);
    }
}

#[test]
fn an_archive_that_is_lost_under_a_running_task_is_neither_told_nor_served_nor_kept() {
    let mut node = node(1000);
    let (env, other) = (file(1, 100), file(2, 100));
    let actions = node.want(0, &[archive(&env)]);
    bring(&mut node, actions, 500);
    node.send(Event::Started(key(0)));
    let actions = node.want(1, &[archive(&env), input(&other, &[], true)]);
    node.bring(actions);
    let told = node.changes();
    assert_eq!(told.added, [(env.id, 100), (other.id, 100)]);
    // Nothing that is only ready starts with it.
    assert_eq!(node.send(Event::Lost(env.id)), [Action::Unready(key(1))]);
    assert_eq!(node.changes().removed, [env.id]);
    let ask = Event::Ask { serve: ServeId(1), object: env.id, range: (0, None) };
    assert_eq!(node.send(ask), [Action::Refuse { serve: ServeId(1), why: Refusal::Gone }]);
    // Others are not held up by the one that waits for it.
    let actions = node.want(2, &[input(&other, &[], true)]);
    assert_eq!(ready_ids(&actions), [2]);
    // Who makes it anew keeps it once it has a place.
    let keep = Event::Keep { requester: key(3), object: env.clone(), only_here: false };
    assert_eq!(node.send(keep), []);
    let actions = node.send(Event::Ended(key(0)));
    let Some(Action::Adopt { partial, .. }) = actions.last() else { panic!("{actions:?}") };
    let actions = node.send(Event::Adopted { partial: *partial, result: Ok(()) });
    let [(unpack, Some(500))] = asked(&actions)[..] else { panic!("{actions:?}") };
    assert_eq!(ready_ids(&unpacked(&mut node, unpack, 500)), [1]);
    assert_eq!(node.changes().added, [(env.id, 100)]);
}

#[test]
fn a_task_that_could_start_does_not_any_more_before_its_archive_is_deleted() {
    for event in [|object| Event::Lost(object), |object| Event::Drop(vec![object])] {
        let mut node = node(1000);
        let (env, other) = (file(1, 100), file(2, 500));
        let actions = node.want(0, &[archive(&env)]);
        assert_eq!(ready_ids(&bring(&mut node, actions, 500)), [0]);
        let mut actions = node.send(event(env.id));
        // The task only reads ahead, and another one needs its room.
        actions.extend(node.want(1, &[input(&other, &[], true)]));
        actions.extend(node.send(Event::Needed(key(1))));
        let at = |wanted: &dyn Fn(&Action) -> bool| actions.iter().position(wanted).unwrap();
        let unready = at(&|action| matches!(action, Action::Unready(task) if *task == key(0)));
        let deleted = at(&|action| matches!(action, Action::Delete(gone) if gone.object == env.id));
        assert!(unready < deleted, "{actions:?}");
    }
}

#[test]
fn what_does_not_fit_fails_and_names_the_sizes() {
    let mut node = node(1000);
    let env = file(1, 100);
    let actions = node.want(0, &[archive(&env)]);
    let actions = node.bring(actions);
    let Some(Action::Measure { unpack, bytes_max: 900, .. }) = actions.last().cloned() else {
        panic!("{actions:?}")
    };
    // Nobody is to believe that the shell has kept to it.
    let [said] = &failed(&unpacked(&mut node, unpack, 901))[..] else { panic!() };
    assert!(said.contains("1001 bytes") && said.contains("cache of 1000 bytes"), "{said}");
}

#[test]
fn what_is_refused_once_is_refused_to_all_until_it_is_fetched_anew() {
    let mut node = node(1000);
    let env = file(1, 100);
    let actions = node.want(0, &[archive(&env)]);
    let actions = node.bring(actions);
    let [(unpack, None)] = asked(&actions)[..] else { panic!("{actions:?}") };
    let result = Err(UnpackError::Refused("its entry `x` is a device".to_owned()));
    let said = failed(&node.send(Event::Unpacked { unpack, result }));
    assert_eq!(said, ["s3://bucket1/1 could not be unpacked: its entry `x` is a device"]);
    assert_eq!(failed(&node.want(1, &[archive(&env)])), said);
    assert_eq!(deleted(&node.send(Event::Drop(vec![env.id]))), 1);
    let actions = node.want(2, &[archive(&env)]);
    assert_eq!(asked(&node.bring(actions)).len(), 1);
}

#[test]
fn a_task_that_one_archive_ends_gives_back_the_room_of_its_others() {
    let mut node = node(1000);
    let (broken, env, other) = (file(1, 100), file(2, 100), file(3, 500));
    let actions = node.want(0, &[archive(&broken)]);
    let actions = node.bring(actions);
    let [(unpack, None)] = asked(&actions)[..] else { panic!("{actions:?}") };
    node.send(Event::Unpacked { unpack, result: Err(UnpackError::Refused("cut off".to_owned())) });
    // The other one is counted, and not unpacked.
    let actions = node.want(1, &[archive(&env)]);
    let actions = node.bring(actions);
    let [(measure, None)] = asked(&actions)[..] else { panic!("{actions:?}") };
    node.send(Event::Ended(key(1)));
    unpacked(&mut node, measure, 500);
    assert_eq!(failed(&node.want(2, &[archive(&broken), archive(&env)])).len(), 1);
    assert_eq!(node.stage().cache().used(), 200);
    let actions = node.want(3, &[input(&other, &[], true)]);
    assert_eq!(ready_ids(&node.bring(actions)), [3]);
}

#[test]
fn a_full_disk_has_it_tried_again_when_there_is_room() {
    let mut node = node(1000);
    let env = file(1, 100);
    let actions = node.want(0, &[archive(&env)]);
    let actions = node.bring(actions);
    let [(measure, None)] = asked(&actions)[..] else { panic!("{actions:?}") };
    let actions = unpacked(&mut node, measure, 500);
    let [(unpack, Some(500))] = asked(&actions)[..] else { panic!("{actions:?}") };
    node.send(Event::Unpacked { unpack, result: Err(UnpackError::Full) });
    assert_eq!(node.stage().cache().used(), 100);
    let actions = node.wait();
    let [(unpack, Some(500))] = asked(&actions)[..] else { panic!("{actions:?}") };
    assert_eq!(ready_ids(&unpacked(&mut node, unpack, 480)), [0]);
    assert_eq!(node.stage().cache().used(), 580);
}

#[test]
fn a_disk_that_stays_full_fails_the_task_within_a_minute_if_nothing_else_goes_on() {
    let mut node = node(1000);
    let env = file(1, 100);
    let actions = node.want(0, &[archive(&env)]);
    let actions = node.bring(actions);
    let [(measure, None)] = asked(&actions)[..] else { panic!("{actions:?}") };
    let mut actions = unpacked(&mut node, measure, 500);
    let began = node.now();
    let mut tries = 0;
    while let [(unpack, Some(500))] = asked(&actions)[..] {
        tries += 1;
        let full = Event::Unpacked { unpack, result: Err(UnpackError::Full) };
        actions = node.send(full);
        if failed(&actions).is_empty() {
            actions = node.wait();
        }
    }
    let [error] = &failed(&actions)[..] else { panic!("{actions:?}") };
    assert!(error.contains("could not be unpacked: the disk of the cache is full"), "{error}");
    assert_eq!((tries, node.now()), (DISK_FULL_TRIES_MAX + 1, began.after(ROOM_WAIT_MICROS)));
}

#[test]
fn after_a_restart_what_is_there_unpacked_is_used() {
    let tiers_bytes = vec![1000];
    let options = CacheOptions { tiers_bytes, eviction: Eviction::Lru, seed: 1 };
    let entry = Recorded {
        object: ObjectId(1),
        tier: TierId(0),
        size: 100,
        unpacked: 500,
        came: 1,
        used: 1,
        uses: 0,
        only_here: false,
    };
    let mut node = Node::of(Stage::restore(&StageOptions::new(options.clone(), 1), &[entry]));
    let actions = node.want(0, &[archive(&file(1, 100))]);
    assert_eq!((ready_ids(&actions), actions.len()), (vec![0], 1));
    let small = CacheOptions { tiers_bytes: vec![599], ..options };
    let (cache, dropped) = Cache::restore(&small, &[entry]);
    assert_eq!((cache.used(), dropped[0].size), (0, 600));
}
