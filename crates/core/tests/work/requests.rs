//! No request costs more than its answer: what it costs does not depend on how
//! much else the dispatcher holds. Counted in instructions, at two sizes of
//! what the request is not about.

use crate::growth::{Growth, counted};
use falkon_core::dispatch::{
    Action, ConnectionId, Dispatcher, Event, Held, InstanceOptions, Join, Lease, Record,
};
use falkon_core::result::Tries;
use falkon_core::task::{
    ExecutorId, InstanceId, Range, Resources, Rows, Submission, TaskClass, TaskId, Time,
};
use std::sync::Arc;

const INSTANCE: InstanceId = InstanceId(0);
/// Executors that come back in the scenario about them.
const JOINS: u64 = 32;

pub(crate) const GROWTHS: [Growth; 1] = [Growth {
    name: "an executor that comes back, beside longer queues",
    sizes: (1_000, 8_000),
    times: 1.5,
    run: come_back,
}];

/// `count` tasks in a row, alike.
fn alike(count: u64) -> Submission {
    Submission {
        data: None,
        count,
        template: Arc::default(),
        rows: Rows::Computed { factors: vec![Range { start: 0, step: 1, count }], offset: 0 },
        classes: vec![TaskClass::default()],
        class_runs: vec![(count, 0)],
        names: None,
        after: Vec::new(),
    }
}

fn join(incarnation: u64, held: Vec<Held>) -> Join {
    Join {
        serves: None,
        lease: Lease::default(),
        incarnation,
        name: String::new(),
        capacity: Resources::cpus(1),
        held,
        reports: Vec::new(),
    }
}

fn all(dispatcher: &mut Dispatcher) -> Vec<Action> {
    std::iter::from_fn(|| dispatcher.poll_action()).collect()
}

/// After a restart with `queued` tasks that were submitted one by one,
/// executors come back with one of them each.
fn come_back(queued: u64) {
    let mut dispatcher = Dispatcher::new();
    let options = InstanceOptions { keep_results: false, ..InstanceOptions::default() };
    dispatcher.recover(Record::Created { instance: INSTANCE, options }).unwrap();
    for task in 0..queued {
        let (instance, first, submission) = (INSTANCE, TaskId(task), alike(1));
        let queued = Time(1);
        dispatcher.recover(Record::Submitted { instance, first, queued, submission }).unwrap();
    }
    for executor in 0..=JOINS {
        let (incarnation, name) = (1 + executor, String::new());
        let executor = ExecutorId(executor);
        dispatcher.recover(Record::ExecutorSeen { executor, incarnation, name }).unwrap();
    }
    dispatcher.recovered(Time(1));
    let apart = queued / (JOINS + 1);
    let come = |dispatcher: &mut Dispatcher, at: u64| {
        let (instance, first, count) = (INSTANCE, TaskId(apart * at), 1);
        let held = vec![Held { instance, first, count, tries: Tries::default() }];
        let (connection, join) = (ConnectionId(at), join(1 + at, held));
        dispatcher.handle(Time(2), Event::Join { connection, join });
        all(dispatcher);
    };
    // The first one has the queue indexed, which is done once.
    come(&mut dispatcher, 0);
    counted(|| (1..JOINS).for_each(|at| come(&mut dispatcher, at)));
    come(&mut dispatcher, JOINS);
    let dispatched = dispatcher.instance_view(INSTANCE).unwrap().counts().dispatched;
    assert!(dispatched > JOINS, "executors that came back keep their tasks");
}
