//! Striped objects: the shares that a node has for others, and reading what others
//! have.

use crate::particular::{Node, asked, failed, file, input, lending_node, ready_ids, sources};
use crate::world::MIB;
use falkon_core::data::cache::{CacheOptions, Eviction, TierId};
use falkon_core::data::limits::{ROOM_WAIT_MICROS, STRIPE_BYTES};
use falkon_core::data::object::{Object, ObjectId, Source, Sources};
use falkon_core::data::stage::{
    Action, Event, FetchError, Input, Refusal, Requester, ServeId, Stage, StageOptions,
};
use falkon_core::data::stripes::share_id;
use falkon_core::task::ExecutorId;
use std::collections::BTreeSet;
use std::sync::Arc;

const UNIT: u64 = STRIPE_BYTES;

fn lend(object: &Arc<Object>, stripes: Vec<u32>, of: u32) -> Event {
    let sources = Sources { store: true, ..Sources::default() };
    Event::Lend { object: Arc::clone(object), sources, stripes, of }
}

fn ask(serve: u64, object: ObjectId, unit: u64) -> Event {
    Event::Ask { serve: ServeId(serve), object, range: (unit * UNIT, Some(UNIT)) }
}

fn refusals(actions: &[Action]) -> Vec<(u64, Refusal)> {
    let refused = |action: &Action| match action {
        Action::Refuse { serve, why } => Some((serve.0, *why)),
        _ => None,
    };
    actions.iter().filter_map(refused).collect()
}

fn served(actions: &[Action]) -> Vec<u64> {
    let served = |action: &Action| match action {
        Action::ServePart { serve, .. } => Some(serve.0),
        _ => None,
    };
    actions.iter().filter_map(served).collect()
}

#[test]
fn a_lender_fetches_its_stripes_and_serves_them() {
    let mut node = lending_node(8 * MIB, 64 * MIB);
    let big = file(1, 32 * MIB);
    let share = share_id(big.id);
    let began = node.send(lend(&big, vec![1], 4));
    // A request for what is to come waits; one for another's stripe is refused.
    assert!(node.send(ask(1, share, 1)).is_empty());
    assert_eq!(refusals(&node.send(ask(2, share, 2))), [(2, Refusal::Gone)]);
    assert_eq!(refusals(&node.send(ask(3, big.id, 1))), [(3, Refusal::Gone)]);
    let all = node.bring(began);
    let offsets: Vec<u64> = asked(&all).iter().map(|one| one.offset / UNIT).collect();
    assert_eq!(offsets, [1, 5], "units of another stripe");
    assert!(sources(&all).iter().all(|source| *source == Source::Store));
    assert_eq!(served(&all), [1]);
    assert_eq!(served(&node.send(ask(4, share, 5))), [4]);
    assert_eq!(node.stage().lent(), (64 * MIB, 8 * MIB));
    // Back in the dispatcher's hands, it is gone.
    let actions = node.send(Event::TakeBack(vec![share]));
    assert!(matches!(actions[..], [Action::Discard { .. }]), "{actions:?}");
    assert_eq!(refusals(&node.send(ask(5, share, 5))), [(5, Refusal::Gone)]);
    assert_eq!(node.stage().lent(), (64 * MIB, 0));
}

#[test]
fn a_lender_without_room_or_source_says_so() {
    let mut node = lending_node(8 * MIB, 16 * MIB);
    let big = file(1, 64 * MIB);
    assert!(node.send(lend(&big, vec![0], 2)).is_empty());
    assert_eq!(node.changes().removed, [share_id(big.id)]);
    let other = file(2, 32 * MIB);
    let began = asked(&node.send(lend(&other, vec![0], 2)));
    let why = FetchError::Refused("no".into());
    let actions = node.send(Event::FetchFailed { fetch: began[0].fetch, bytes: 0, why });
    assert!(actions.iter().any(|action| matches!(action, Action::Discard { .. })));
    assert_eq!(node.changes().removed, [share_id(other.id)]);
    // A new session begins with nothing lent, and nobody is told of it.
    node.send(lend(&other, vec![0], 2));
    node.send(Event::Connected);
    assert_eq!(node.stage().lent(), (16 * MIB, 0));
    assert_eq!(node.changes().removed, []);
}

#[test]
fn what_no_cache_has_room_for_is_put_together_in_the_lent_room() {
    let mut node = lending_node(8 * MIB, 64 * MIB);
    let big = file(1, 32 * MIB);
    let lenders: Vec<ExecutorId> = (1..=4).map(ExecutorId).collect();
    node.send(Event::Striped { object: big.id, lenders: lenders.clone() });
    let began = node.want(1, &[input(&big, &[], true)]);
    let from: BTreeSet<Source> = sources(&began).into_iter().collect();
    assert_eq!(from.len(), 4, "all lenders are asked at once: {from:?}");
    for one in asked(&began) {
        let lender = lenders[(one.offset / UNIT) as usize % 4];
        assert_eq!((one.source, ObjectId(one.object)), (Source::Peer(lender), share_id(big.id)));
    }
    let all = node.bring(began);
    assert!(!sources(&all).contains(&Source::Store));
    assert_eq!(ready_ids(&all), [1]);
}

#[test]
fn without_a_lender_that_answers_it_comes_from_the_store() {
    let mut node = lending_node(8 * MIB, 64 * MIB);
    let big = file(1, 32 * MIB);
    let lenders = vec![ExecutorId(1), ExecutorId(2)];
    node.send(Event::Striped { object: big.id, lenders: lenders.clone() });
    let mut next = node.want(1, &[input(&big, &[], true)]);
    let mut silent = BTreeSet::new();
    let mut from_store = 0;
    for _ in 0..10_000 {
        let mut answers = Vec::new();
        for one in asked(&next) {
            let event = match one.source {
                Source::Peer(_) | Source::Own | Source::Dispatcher => {
                    Event::FetchFailed { fetch: one.fetch, bytes: 0, why: FetchError::Gone }
                }
                Source::Store => {
                    let bytes = one.length.unwrap();
                    from_store += bytes;
                    Event::Fetched { fetch: one.fetch, bytes }
                }
            };
            answers.extend(node.send(event));
        }
        silent.extend(node.changes().silent);
        let sealed = next.iter().find_map(|action| match action {
            Action::Seal { partial, .. } => Some(*partial),
            _ => None,
        });
        let ready = sealed.map(|partial| node.send(Event::Sealed { partial, result: Ok(()) }));
        if ready.is_some_and(|actions| ready_ids(&actions) == [1]) {
            assert_eq!(from_store, 32 * MIB);
            assert_eq!(silent, lenders.iter().map(|lender| (big.id, *lender)).collect());
            return;
        }
        if answers.is_empty() {
            answers.extend(node.pass(10_000));
        }
        next = answers;
    }
    panic!("it never comes: {from_store} bytes have");
}

#[test]
fn a_task_takes_the_room_of_shares() {
    let mut node = lending_node(8 * MIB, 40 * MIB);
    let (big, others) = (file(1, 32 * MIB), file(2, 32 * MIB));
    node.send(lend(&others, vec![0], 2));
    assert_eq!(node.stage().lent().1, 16 * MIB);
    let actions = node.want(1, &[input(&big, &[], true)]);
    assert_eq!(asked(&actions).len(), 1, "{actions:?}");
    assert_eq!(node.stage().lent().1, 0);
    assert_eq!(node.changes().removed, [share_id(others.id)]);
}

#[test]
fn an_output_that_is_too_large_for_the_cache_takes_the_room_of_shares() {
    let mut node = lending_node(8 * MIB, 40 * MIB);
    node.send(lend(&file(2, 32 * MIB), vec![0], 2));
    let keep = |id, size| {
        let (requester, object) = (Requester::Prefetch(1), file(id, size));
        Event::Keep { requester, object, only_here: true }
    };
    // One that is not stays in the cache.
    let actions = node.send(keep(1, 8 * MIB));
    assert!(matches!(actions[..], [Action::Adopt { tier: TierId(0), .. }]), "{actions:?}");
    assert_eq!(node.stage().lent().1, 16 * MIB);
    let actions = node.send(keep(3, 32 * MIB));
    let adopts = |action: &Action| matches!(action, Action::Adopt { tier: TierId(1), .. });
    assert!(actions.iter().any(adopts), "{actions:?}");
    assert_eq!(node.stage().lent().1, 0);
    assert_eq!(node.changes().removed, [share_id(ObjectId(2))]);
    // What no directory takes is refused with the sizes.
    let actions = node.send(keep(4, 41 * MIB));
    let Some(Action::NotKept { error, .. }) = actions.first() else { panic!("{actions:?}") };
    let sizes = "42991616 bytes in 1 objects do not fit in a cache of 50331648 bytes";
    assert!(error.to_string().starts_with(sizes), "{error}");
}

#[test]
fn an_object_of_the_cache_does_not_lie_in_the_lent_room() {
    let mut node = lending_node(20 * MIB, 64 * MIB);
    let (one, other) = (file(1, 12 * MIB), file(2, 12 * MIB));
    assert_eq!(asked(&node.want(1, &[input(&one, &[], true)])).len(), 1);
    // It waits for room, although there is lent room.
    assert!(asked(&node.want(2, &[input(&other, &[], true)])).is_empty());
    // What fits nowhere is refused with the sizes.
    let huge = file(3, 100 * MIB);
    let error = failed(&node.want(3, &[input(&huge, &[], true)]));
    let sizes = "104857600 bytes in 1 objects do not fit in a cache of 88080384 bytes";
    assert!(error[0].starts_with(sizes), "{error:?}");
    node.pass(ROOM_WAIT_MICROS);
}

#[test]
fn what_fits_nowhere_is_read_in_a_file_system() {
    let cache = CacheOptions { tiers_bytes: vec![8 * MIB], eviction: Eviction::Lru, seed: 1 };
    let options = StageOptions { mounts: true, ..StageOptions::new(cache, 1) };
    let mut node = Node::of(Stage::new(&options));
    let big = file(1, 32 * MIB);
    let shown = |actions: &[Action]| {
        let shown = actions.iter().filter_map(|action| match action {
            Action::Show { object, lenders } => Some((object.id, lenders.clone())),
            _ => None,
        });
        shown.collect::<Vec<_>>()
    };
    // It is there at once, and takes no room.
    let actions = node.want(1, &[input(&big, &[], true), input(&file(2, 8 * MIB), &[], true)]);
    assert_eq!(shown(&actions), [(big.id, Vec::new())]);
    assert_eq!(ready_ids(&node.bring(actions)), [1]);
    // Whoever has its stripes is told, and who of them does not give them is reported.
    let lenders = vec![ExecutorId(1), ExecutorId(2)];
    let actions = node.send(Event::Striped { object: big.id, lenders: lenders.clone() });
    assert_eq!(shown(&actions), [(big.id, lenders)]);
    node.send(Event::Silent { object: big.id, lender: ExecutorId(2) });
    node.send(Event::Silent { object: big.id, lender: ExecutorId(7) });
    assert_eq!(node.changes().silent, [(big.id, ExecutorId(2))]);
    let actions = node.send(Event::Striped { object: big.id, lenders: Vec::new() });
    assert_eq!(shown(&actions), [(big.id, Vec::new())]);
    // It goes with its last reader; of a version that nobody can name, none is shown.
    let actions = node.send(Event::Ended(crate::world::key(1)));
    assert!(actions.contains(&Action::Hide(big.id)), "{actions:?}");
    // What nobody opens is to be in the cache.
    let requester = Requester::Prefetch(1);
    let unopened = Input { may_mount: false, ..input(&big, &[], true) };
    let ahead = node.send(Event::Want { requester, inputs: vec![unopened] });
    assert!(matches!(ahead[..], [Action::Failed { .. }]), "{ahead:?}");
    let unversioned = crate::world::object(3, "", Some(32 * MIB));
    assert!(shown(&node.want(3, &[input(&unversioned, &[], false)])).is_empty());
}
