//! Instances: how many there may be, and what a restart knows of their
//! submissions.

use crate::fixture::array;
use falkon_core::dispatch::{
    Action, ConnectionId, Dispatcher, Event, InstanceOptions, Reply, RequestError, Selection,
};
use falkon_core::limits::INSTANCES_MAX;
use falkon_core::task::{
    InstanceId, Kind, Range, Resources, Rows, Submission, TaskClass, TaskId, Time,
};

const CLIENT: ConnectionId = ConnectionId(1);

/// Says something to a dispatcher, and gives its answer.
fn ask(dispatcher: &mut Dispatcher, event: Event) -> Reply {
    dispatcher.handle(Time(1), event);
    // Without a check of the books, which looks at all instances.
    let actions = std::iter::from_fn(|| dispatcher.poll_action());
    let replies = actions.filter_map(|action| match action {
        Action::Reply { reply, .. } => Some(reply),
        _ => None,
    });
    replies.last().unwrap()
}

fn create(dispatcher: &mut Dispatcher) -> Reply {
    let options = InstanceOptions { keep_results: false, ..InstanceOptions::default() };
    ask(dispatcher, Event::Create { connection: CLIENT, request: 0, options })
}

fn submit(dispatcher: &mut Dispatcher, first: u64, count: u64) {
    let class = TaskClass {
        resources: Resources::cpus(1),
        kind: Kind::Noop,
        replicas: 0,
        ..TaskClass::default()
    };
    let submission = Submission {
        classes: vec![class],
        rows: Rows::Computed { factors: vec![Range { start: 0, step: 1, count }], offset: 0 },
        ..array(count)
    };
    let (instance, first) = (InstanceId(0), TaskId(first));
    let submit =
        Event::Submit { connection: CLIENT, request: 0, instance, first, client: 1, submission };
    assert!(matches!(ask(dispatcher, submit), Reply::Accepted { .. }));
}

#[test]
fn an_instance_too_many_is_refused_until_one_is_destroyed() {
    let mut dispatcher = Dispatcher::new();
    for _ in 0..INSTANCES_MAX {
        assert!(matches!(create(&mut dispatcher), Reply::Created(_)));
    }
    let instances = INSTANCES_MAX as u64;
    let refused = Reply::Refused(RequestError::TooManyInstances { instances });
    assert_eq!(create(&mut dispatcher), refused);
    // Those of a journal are all there, and none is made beside them.
    let mut restarted = Dispatcher::new();
    for record in dispatcher.snapshot() {
        restarted.recover(record).unwrap();
    }
    restarted.recovered(Time(1));
    assert_eq!(restarted.instance_views().count(), INSTANCES_MAX);
    assert_eq!(create(&mut restarted), refused);
    let instance = InstanceId(7);
    let destroyed = Event::Destroy { connection: CLIENT, request: 0, instance };
    assert_eq!(ask(&mut restarted, destroyed), Reply::Done);
    assert!(matches!(create(&mut restarted), Reply::Created(_)));
}

#[test]
fn results_of_a_submission_that_is_gone_hide_none_of_the_next_after_a_restart() {
    let mut dispatcher = Dispatcher::new();
    create(&mut dispatcher);
    submit(&mut dispatcher, 0, 5);
    submit(&mut dispatcher, 5, 5);
    // All of the first and two of the second, which is one run of results.
    let selection = Selection::Runs(vec![(0, 7)]);
    let instance = InstanceId(0);
    let cancel = Event::Cancel { connection: CLIENT, request: 0, instance, selection };
    assert_eq!(ask(&mut dispatcher, cancel), Reply::Done);
    let mut restarted = Dispatcher::new();
    for record in dispatcher.snapshot() {
        restarted.recover(record).unwrap();
    }
    restarted.recovered(Time(1));
    restarted.check().unwrap();
}
