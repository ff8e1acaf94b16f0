//! An executor as it joins, and a submission, with nothing special about them.

use falkon_core::dispatch::{Action, ConnectionId, Dispatcher, Join, Lease, Order};
use falkon_core::task::{Range, Resources, Rows, Submission, TaskClass};
use std::sync::Arc;

/// An executor that has nothing.
pub(crate) fn executor(incarnation: u64, cpus: u32) -> Join {
    Join {
        incarnation,
        name: String::new(),
        capacity: Resources::cpus(cpus),
        held: Vec::new(),
        reports: Vec::new(),
        gangs: Vec::new(),
        alternatives: Vec::new(),
        serves: None,
        cache: Default::default(),
        lease: Lease::default(),
    }
}

/// What a dispatcher does now; its books are checked after it.
pub(crate) fn actions(dispatcher: &mut Dispatcher) -> Vec<Action> {
    let actions = std::iter::from_fn(|| dispatcher.poll_action()).collect();
    dispatcher.check().expect("the dispatcher's books are in order");
    actions
}

/// The orders among what a dispatcher does now.
pub(crate) fn orders(dispatcher: &mut Dispatcher) -> Vec<(ConnectionId, Order)> {
    let orders = actions(dispatcher).into_iter().filter_map(|action| match action {
        Action::Order { connection, order } => Some((connection, order)),
        _ => None,
    });
    orders.collect()
}

/// An array of tasks.
pub(crate) fn array(count: u64) -> Submission {
    Submission {
        count,
        template: Arc::default(),
        rows: Rows::Computed { factors: vec![Range { start: 0, step: 1, count }], offset: 0 },
        classes: vec![TaskClass::default()],
        class_runs: vec![(count, 0)],
        names: None,
        after: Vec::new(),
        everywhere: None,
        data: None,
    }
}
