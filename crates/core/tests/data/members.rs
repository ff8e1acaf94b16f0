//! Members of archives in caches: read by those who want them, for as long as they do.

use crate::particular::{asked, failed, file, input, node, peer, ready_ids, sources};
use crate::world::key;
use falkon_core::data::limits::RANGES_OBJECT_BYTES_MIN;
use falkon_core::data::object::{Object, ObjectId, Source};
use falkon_core::data::stage::{Action, Event, FetchError};
use std::sync::Arc;

/// Member `number` of an archive.
fn member(archive: u128, number: u128) -> Arc<Object> {
    Arc::new(Object {
        id: ObjectId(1_000 * archive + number),
        url: format!("cache:{archive}.zip!{number}").into(),
        version: Object::member_version(ObjectId(archive)).into(),
        size: None,
    })
}

#[test]
fn what_an_object_is_held_as_is_in_its_version() {
    let one = member(7, 1);
    assert_eq!((one.archive(), one.held_as()), (Some(ObjectId(7)), ObjectId(7)));
    assert_eq!((one.name_in_archive(), one.is_stored()), (Some("1"), false));
    let whole = file(7, 10);
    assert_eq!((whole.archive(), whole.held_as()), (None, ObjectId(7)));
    // A file of a store is what it says, whatever its version looks like.
    let odd = Object { url: "/data/a.zip!b".into(), ..(*one).clone() };
    assert_eq!((odd.archive(), odd.name_in_archive()), (None, None));
}

#[test]
fn a_member_is_here_while_a_task_reads_it_and_nobody_is_told() {
    let mut node = node(1_000);
    node.changes();
    let one = member(7, 1);
    let asked = asked(&node.want(1, &[input(&one, &[3, 2], false)]));
    assert_eq!((asked[0].source, asked[0].object), (peer(3), 7_001));
    let actions = node.fails(asked[0].fetch, 60, FetchError::Unreachable("it broke".into()));
    let again = crate::particular::asked(&actions);
    assert_eq!((again[0].source, again[0].offset), (peer(2), 0), "a part proves nothing");
    let actions = node.send(Event::Fetched { fetch: again[0].fetch, bytes: 90 });
    let actions = node.bring(actions);
    assert_eq!(ready_ids(&actions), [1]);
    assert!(node.stage().cache().holds(one.id));
    assert_eq!(node.changes().added, []);
    let actions = node.send(Event::Ended(key(1)));
    let is_it = |action: &Action| matches!(action, Action::Delete(gone) if gone.object == one.id);
    assert!(actions.iter().any(is_it), "{actions:?}");
    assert_eq!(node.changes().removed, []);
}

#[test]
fn the_own_cache_is_asked_before_others_and_only_if_it_has_the_archive() {
    let mut node = node(1_000);
    let archive = file(7, 100);
    let actions = node.want(1, &[input(&archive, &[], true)]);
    node.bring(actions);
    node.send(Event::Ended(key(1)));
    let actions = node.want(2, &[input(&member(7, 1), &[3], false)]);
    assert_eq!(sources(&actions), [Source::Own]);
    // It is gone meanwhile.
    let fetch = asked(&actions)[0].fetch;
    node.send(Event::Lost(archive.id));
    let actions = node.fails(fetch, 0, FetchError::Gone);
    assert_eq!(sources(&actions), [peer(3)]);
    assert_eq!(sources(&node.want(3, &[input(&member(8, 1), &[4], false)])), [peer(4)]);
}

#[test]
fn a_missing_member_fails_at_once_and_a_missing_archive_is_what_nobody_gives() {
    let mut node = node(1_000);
    let one = member(7, 1);
    let asked = asked(&node.want(1, &[input(&one, &[3, 2], false)]));
    let why = FetchError::NoMember("no `1` in it".into());
    let said = failed(&node.fails(asked[0].fetch, 0, why));
    assert_eq!(said, ["cache:7.zip!1 cannot be read: no `1` in it"]);
    let actions = node.want(2, &[input(&one, &[3], false)]);
    let fetch = crate::particular::asked(&actions)[0].fetch;
    let actions = node.fails(fetch, 0, FetchError::Gone);
    let unobtainable = actions.iter().find_map(|action| match action {
        Action::Failed { error, .. } => error.unobtainable(),
        _ => None,
    });
    assert_eq!(unobtainable, Some(ObjectId(7)));
}

#[test]
fn a_large_member_comes_from_one_source_at_a_time() {
    let mut node = node(4 * RANGES_OBJECT_BYTES_MIN);
    let size = 2 * RANGES_OBJECT_BYTES_MIN;
    let known = Arc::new(Object { size: Some(size), ..(*member(7, 1)).clone() });
    let actions = node.want(1, &[input(&known, &[2, 3, 4], false)]);
    assert_eq!(asked(&actions).len(), 1);
    assert_eq!(ready_ids(&node.bring(actions)), [1]);
}
