//! The messages between the dispatcher and its executors.

use crate::world::{CLIENT, World, class, cpus, ended};
use falkon_core::data::stage::Changes;
use falkon_core::dispatch::{Action, Event, Held, Reply, RequestError, Selection, Update};
use falkon_core::limits::SUBMISSION_TASKS_MAX;
use falkon_core::result::Tries;
use falkon_core::task::{InstanceId, SubmissionError, TaskId};
use std::collections::BTreeMap;

#[test]
fn an_update_that_says_anything_is_no_heartbeat() {
    let nothing = || Update { number: 7, ..Update::default() };
    assert!(nothing().is_heartbeat());
    let held =
        Held { instance: InstanceId(0), first: TaskId(0), count: 1, tries: Tries::default() };
    for update in [
        Update { reports: vec![ended(0, 0, 0, 0)], ..nothing() },
        Update { returned: vec![held], ..nothing() },
        Update { staged: vec![held], ..nothing() },
        Update { unstaged: vec![held], ..nothing() },
        Update { recalled: true, ..nothing() },
        Update { leaving: true, ..nothing() },
        Update { kept: vec![(0, 1)], ..nothing() },
        Update { cache: Some(Box::new(Changes::default())), ..nothing() },
    ] {
        assert!(!update.is_heartbeat(), "{update:?}");
    }
}

#[test]
fn a_submission_has_as_many_tasks_as_it_may_and_no_more() {
    let mut world = World::new(1);
    world.orders();
    let refused = |world: &mut World| {
        std::iter::from_fn(|| world.dispatcher.poll_action()).find_map(|action| match action {
            Action::Reply { reply: Reply::Refused(error), .. } => Some(error),
            _ => None,
        })
    };
    let too_many = RequestError::Submission(SubmissionError::TooMany);
    world.submit(0, SUBMISSION_TASKS_MAX, class(0));
    assert_eq!(refused(&mut world), None);
    world.submit(0, SUBMISSION_TASKS_MAX + 1, class(0));
    assert_eq!(refused(&mut world), Some(too_many));
}

#[test]
fn a_cancellation_goes_at_once_to_whoever_has_the_tasks_and_to_nobody_else() {
    let mut world = World::new(2);
    (0..4).for_each(|connection| world.join(connection, cpus(1)));
    world.orders();
    // One task each, of two instances.
    world.submit(0, 3, class(0));
    assert_eq!(world.sent(), BTreeMap::from([(0, 1), (1, 1), (2, 1)]));
    world.submit(1, 1, class(0));
    assert_eq!(world.sent(), BTreeMap::from([(3, 1)]));
    let (request, instance) = (1, InstanceId(0));
    let selection = Selection::Runs(vec![(1, 1)]);
    world.handle(Event::Cancel { connection: CLIENT, request, instance, selection });
    let orders = world.orders();
    let cancelled: Vec<(u64, u64)> = orders
        .iter()
        .flat_map(|(to, order)| order.cancel.iter().map(|held| (*to, held.first.0)))
        .collect();
    assert_eq!((cancelled, orders.len()), (vec![(1, 1)], 1));
}
