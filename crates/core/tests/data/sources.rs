//! Whom a stage asks for an object, and when it asks again.

use crate::particular::{
    Node, asked, failed, file, input, node, peer, read_by, ready_ids, sources, unreachable,
};
use crate::world::object;
use falkon_core::data::limits::{COMING_PAUSE_MICROS, COMING_PAUSE_MICROS_MAX};
use falkon_core::data::object::Source;
use falkon_core::data::stage::{Event, FetchError};
use falkon_core::task::ExecutorId;
use std::sync::Arc;

/// The transfer that is asked for fails.
fn fails(
    node: &mut Node,
    actions: &[falkon_core::data::stage::Action],
    bytes: u64,
    why: FetchError,
) -> Vec<falkon_core::data::stage::Action> {
    let asked = asked(actions);
    assert_eq!(asked.len(), 1, "{actions:?}");
    node.fails(asked[0].fetch, bytes, why)
}

#[test]
fn a_pause_ends_when_the_peer_it_is_for_is_gone() {
    let mut node = node(100);
    for number in [1, 2] {
        let object = file(number.into(), 40);
        let actions = node.want(number, &[input(&object, &[number], false)]);
        assert_eq!(fails(&mut node, &actions, 0, unreachable("no route to host")), []);
    }
    let actions = node.send(Event::Gone(vec![ExecutorId(1)]));
    assert_eq!(failed(&actions).len(), 1, "nobody else has it: {actions:?}");
    assert_eq!(sources(&actions), [], "the pause of the other goes on");
    let actions = node.wait();
    assert_eq!(sources(&actions), [peer(2)]);
    assert_eq!(ready_ids(&node.bring(actions)), [2]);
}

#[test]
fn a_reader_is_asked_again_after_an_eighth_of_the_time() {
    let one = file(1, 60);
    let mut node = node(100);
    let mut actions = node.want(1, &[read_by(&one, 7)]);
    while sources(&actions) == [peer(7)] {
        let before = node.now();
        actions = fails(&mut node, &actions, 0, FetchError::Coming);
        if actions.is_empty() {
            actions = node.wait();
            let wished = (before.0 / 8).clamp(COMING_PAUSE_MICROS, COMING_PAUSE_MICROS_MAX);
            let pause = node.now().since(before);
            assert!((wished / 2..=wished * 3 / 2 + 1).contains(&pause), "{pause} at {before:?}");
        }
    }
    assert_eq!(sources(&actions), [Source::Store]);
}

#[test]
fn whoever_was_to_have_an_object_and_has_it_reads_it_no_longer() {
    let one = file(1, 60);
    let mut node = node(100);
    let actions = node.want(1, &[read_by(&one, 7)]);
    // Another task brings the news that it is there.
    assert_eq!(node.want(2, &[input(&one, &[7], true)]), []);
    let actions = fails(&mut node, &actions, 0, FetchError::Gone);
    assert_eq!(sources(&actions), [Source::Store], "it had it and lost it: nothing is to come");
}

#[test]
fn what_came_of_an_object_of_unknown_size_is_not_fetched_again() {
    let mut node = node(100);
    let one = object(1, "1", None);
    let actions = node.want(1, &[input(&one, &[3], true)]);
    let actions = fails(&mut node, &actions, 10, unreachable("reset"));
    assert_eq!((asked(&actions)[0].source, asked(&actions)[0].offset), (Source::Store, 10));
    // Nothing came of it: it goes on where it was.
    assert_eq!(fails(&mut node, &actions, 0, unreachable("reset")), []);
    let actions = node.wait();
    assert_eq!(asked(&actions)[0].offset, 10);
}

#[test]
fn only_the_store_says_what_an_object_has_become() {
    let (one, two) = (file(1, 40), object(2, "2", Some(40)));
    let mut node = node(100);
    let actions = node.want(1, &[input(&one, &[3], true)]);
    // A peer that has another version has not got this one.
    let actions = fails(&mut node, &actions, 0, FetchError::Changed(Arc::clone(&two)));
    assert_eq!((asked(&actions)[0].source, asked(&actions)[0].object), (Source::Store, 1));
    // The store that has changed to what was asked for makes no sense, and is
    // not asked for ever.
    let actions = fails(&mut node, &actions, 0, FetchError::Changed(Arc::clone(&one)));
    assert_eq!(failed(&actions).len(), 1, "{actions:?}");
}
