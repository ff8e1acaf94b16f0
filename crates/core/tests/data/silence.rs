//! Parents in broadcasts that are slow, and those that say nothing.

use crate::particular::{Node, asked, file, input, node};
use crate::world::MIB;
use falkon_core::data::limits::{
    PARENT_SILENCE_MICROS, PARENT_SILENCE_MICROS_MAX, PROGRESS_BYTES, PROGRESS_MICROS,
};
use falkon_core::data::stage::{Action, Event, FetchId};
use falkon_core::task::ExecutorId;

const KIB: u64 = 1 << 10;

/// A node that has asked two parents for chunks of an object, and its requests.
fn receiving() -> (Node, Vec<FetchId>) {
    let mut node = node(100 * MIB);
    let big = file(1, 32 * MIB);
    node.send(Event::Parents { object: big.id, parents: vec![ExecutorId(1), ExecutorId(2)] });
    let fetches = asked(&node.want(1, &[input(&big, &[3], true)]));
    assert_eq!(fetches.len(), 2, "each parent is asked for one chunk at first");
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
        assert_eq!(given_up(&node.pass(10_000)), 0);
        bring(&mut node, &fetches, at * PROGRESS_BYTES / 8);
    }
    assert_eq!(given_up(&node.pass(PARENT_SILENCE_MICROS - 1)), 0);
    assert_eq!(given_up(&node.pass(1)), fetches.len());
}

#[test]
fn a_slow_parent_has_as_long_as_a_chunk_takes_from_it() {
    let (mut node, fetches) = receiving();
    // From each parent, as each is asked for half of all, a chunk comes in 16 s.
    let each = 4 * MIB / 16 / 4;
    for at in 1..8 {
        assert_eq!(given_up(&node.pass(PROGRESS_MICROS)), 0);
        bring(&mut node, &fetches, at * each);
    }
    assert_eq!(given_up(&node.pass(14_000_000)), 0);
    assert_eq!(given_up(&node.pass(4_000_000)), fetches.len());
}

#[test]
fn the_next_chunk_is_asked_for_once_half_of_one_has_come() {
    let (mut node, fetches) = receiving();
    let next = |node: &mut Node, bytes| {
        let actions = node.send(Event::Written { fetch: fetches[0], bytes });
        asked(&actions).len()
    };
    assert_eq!(next(&mut node, MIB / 2 - 1), 0);
    assert_eq!(next(&mut node, MIB / 2), 1);
    assert_eq!(next(&mut node, MIB - 1), 0);
    let actions = node.send(Event::Fetched { fetch: fetches[0], bytes: MIB });
    assert_eq!(asked(&actions).len(), 0, "nothing has come of the next yet");
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
