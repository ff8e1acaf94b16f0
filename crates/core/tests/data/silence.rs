//! Parents in broadcasts that are slow, and those that say nothing.

use crate::particular::{Node, asked, file, input, node};
use crate::world::MIB;
use falkon_core::data::limits::{
    BROADCAST_ASKED_CHUNKS_MAX, BROADCAST_CHUNK_BYTES_MIN, CHUNK_WAIT_MICROS, COMING_SECOND_BYTES,
    COMING_WAIT_MICROS, PARENT_SILENCE_MICROS, PARENT_SILENCE_MICROS_MAX, PARENT_WAIT_MICROS,
    PROGRESS_MICROS,
};
use falkon_core::data::object::{ObjectId, Source};
use falkon_core::data::stage::{Action, Event, FetchError, FetchId};
use falkon_core::task::ExecutorId;

const KIB: u64 = 1 << 10;

/// A node that has asked two parents for chunks of an object, and its requests.
fn receiving() -> (Node, Vec<FetchId>) {
    let mut node = node(100 * MIB);
    let big = file(1, 32 * MIB);
    node.send(Event::Parents { object: big.id, parents: vec![ExecutorId(1), ExecutorId(2)] });
    let fetches = asked(&node.want(1, &[input(&big, &[3], true)]));
    assert_eq!(fetches.len(), 2 * BROADCAST_ASKED_CHUNKS_MAX, "each parent is asked for several");
    (node, fetches.into_iter().map(|asked| asked.fetch).collect())
}

/// All requests have brought so many bytes.
fn bring(node: &mut Node, fetches: &[FetchId], bytes: u64) {
    for fetch in fetches {
        node.send(Event::Written { fetch: *fetch, bytes });
    }
}

fn given_up(actions: &[Action]) -> usize {
    actions.iter().filter(|action| matches!(action, Action::GiveUp { .. })).count()
}

#[test]
fn a_fast_parent_that_says_nothing_is_given_up_at_once() {
    let (mut node, fetches) = receiving();
    for at in 1..8 {
        assert_eq!(given_up(&node.pass(1_000)), 0);
        bring(&mut node, &fetches, at * BROADCAST_CHUNK_BYTES_MIN / 8);
    }
    assert_eq!(given_up(&node.pass(PARENT_SILENCE_MICROS - 1)), 0);
    assert_eq!(given_up(&node.pass(1)), fetches.len());
}

#[test]
fn a_slow_parent_has_as_long_as_a_chunk_takes_from_it() {
    let (mut node, fetches) = receiving();
    // From each parent 4 MiB come in 16 s.
    let each = 4 * MIB / 16 / 4 / (fetches.len() as u64 / 2);
    for at in 1..8 {
        assert_eq!(given_up(&node.pass(PROGRESS_MICROS)), 0);
        bring(&mut node, &fetches, at * each);
    }
    assert_eq!(given_up(&node.pass(14_000_000)), 0);
    assert_eq!(given_up(&node.pass(4_000_000)), fetches.len());
}

#[test]
fn another_chunk_is_asked_for_when_one_has_come() {
    let (mut node, fetches) = receiving();
    let bytes = BROADCAST_CHUNK_BYTES_MIN;
    let actions = node.send(Event::Written { fetch: fetches[0], bytes: bytes - 1 });
    assert_eq!(asked(&actions).len(), 0);
    let actions = node.send(Event::Fetched { fetch: fetches[0], bytes });
    let next: Vec<u64> = asked(&actions).iter().map(|asked| asked.offset).collect();
    assert_eq!(next, [2 * BROADCAST_ASKED_CHUNKS_MAX as u64 * bytes], "the next of its tree");
}

/// It sends one after another.
#[test]
fn a_parent_that_sends_a_chunk_is_not_silent_about_the_next() {
    let (mut node, fetches) = receiving();
    let others = fetches.len() / 2;
    for at in 1..8 {
        let given_up = given_up(&node.pass(PARENT_SILENCE_MICROS / 2));
        assert_eq!(given_up, if at == 2 { others } else { 0 }, "only of the one that is silent");
        node.send(Event::Written { fetch: fetches[0], bytes: at * KIB });
    }
}

#[test]
fn no_parent_has_time_without_end() {
    let (mut node, fetches) = receiving();
    for at in 1..40 {
        assert_eq!(given_up(&node.pass(PARENT_SILENCE_MICROS - 1)), 0);
        bring(&mut node, &fetches, at * KIB);
    }
    assert_eq!(given_up(&node.pass(PARENT_SILENCE_MICROS_MAX - 1)), 0);
    assert_eq!(given_up(&node.pass(1)), fetches.len());
}

/// Whom a node asks while its parents say for so long that they wait as well.
fn asked_while_all_wait(node: &mut Node, mut open: Vec<FetchId>, micros: u64) -> Vec<Source> {
    let (until, mut sources) = (node.now().after(micros), Vec::new());
    while node.now() < until {
        let mut actions = node.pass(CHUNK_WAIT_MICROS);
        for fetch in std::mem::take(&mut open) {
            actions.extend(node.fails(fetch, 0, FetchError::Coming));
        }
        for asked in asked(&actions) {
            sources.push(asked.source);
            let is_parent = [1, 2].map(|id| Source::Peer(ExecutorId(id))).contains(&asked.source);
            open.extend(is_parent.then_some(asked.fetch));
        }
    }
    sources.sort_unstable();
    sources.dedup();
    sources
}

/// Their parents may be other ones by now: two may wait for each other.
#[test]
fn parents_of_an_earlier_session_are_not_waited_for_without_end() {
    let parents = [1, 2].map(|id| Source::Peer(ExecutorId(id)));
    let late = COMING_WAIT_MICROS + 32 * MIB * 1_000_000 / COMING_SECOND_BYTES;
    let ample = late + PARENT_WAIT_MICROS + 10 * CHUNK_WAIT_MICROS;
    let (mut node, fetches) = receiving();
    assert_eq!(asked_while_all_wait(&mut node, fetches, ample), parents);

    let (mut node, fetches) = receiving();
    node.send(Event::Connected);
    let asked = asked_while_all_wait(&mut node, fetches, ample);
    assert!(asked.contains(&Source::Peer(ExecutorId(3))), "the holder is asked: {asked:?}");
    assert!(asked.contains(&Source::Store), "the store is asked: {asked:?}");

    // Those that the dispatcher has named again are as they are to be.
    let (mut node, fetches) = receiving();
    node.send(Event::Connected);
    let parents_again = vec![ExecutorId(1), ExecutorId(2)];
    node.send(Event::Parents { object: ObjectId(1), parents: parents_again });
    assert_eq!(asked_while_all_wait(&mut node, fetches, ample), parents);
}
