//! When an executor hears that its reports were taken in.

use falkon_core::dispatch::{Action, ConnectionId, Dispatcher, Event, Join, Lease, Order, Update};
use falkon_core::result::{Outcome, Report, Tries};
use falkon_core::task::{InstanceId, Resources, TaskId, Time};

const EXECUTOR: ConnectionId = ConnectionId(0);

/// A dispatcher with one executor.
fn dispatcher() -> Dispatcher {
    let mut dispatcher = Dispatcher::new();
    let join = Join {
        serves: None,
        lease: Lease::default(),
        incarnation: 1,
        name: String::new(),
        capacity: Resources::cpus(1),
        held: Vec::new(),
        reports: Vec::new(),
    };
    dispatcher.handle(Time(0), Event::Join { connection: EXECUTOR, join });
    orders(&mut dispatcher);
    dispatcher
}

/// What the executor is told, checked after each step.
fn orders(dispatcher: &mut Dispatcher) -> Vec<Order> {
    let mut orders = Vec::new();
    while let Some(action) = dispatcher.poll_action() {
        dispatcher.check().expect("the dispatcher's books are in order");
        if let Action::Order { order, .. } = action {
            orders.push(order);
        }
    }
    orders
}

/// A report about a task that nobody knows: it calls for no other order.
fn update(number: u64) -> Update {
    let report = Report {
        instance: InstanceId(7),
        first: TaskId(0),
        count: 1,
        tries: Tries::default(),
        outcome: Outcome::Exit(0),
        started: Time(0),
        ended: Time(0),
        detail: None,
    };
    Update { number, reports: vec![report], ..Update::default() }
}

fn says(dispatcher: &mut Dispatcher, now: Time, update: Update) -> Vec<Order> {
    dispatcher.handle(now, Event::Update { connection: EXECUTOR, update });
    orders(dispatcher)
}

#[test]
fn reports_are_acknowledged_together_after_a_moment() {
    let mut dispatcher = dispatcher();
    for number in 1..=3 {
        assert_eq!(says(&mut dispatcher, Time(number), update(number)), []);
    }
    let (due, why) = dispatcher.poll_timeout().expect("a time is set");
    assert_eq!(why, "acknowledgement");
    dispatcher.handle_timeout(due);
    assert_eq!(orders(&mut dispatcher), [Order { acknowledged: 3, ..Order::default() }]);
    let (_, why) = dispatcher.poll_timeout().expect("silence is watched");
    assert_ne!(why, "acknowledgement");
}

#[test]
fn an_executor_that_leaves_does_not_wait_for_its_acknowledgement() {
    let mut dispatcher = dispatcher();
    assert_eq!(says(&mut dispatcher, Time(1), update(1)), []);
    let leaving = Update { number: 2, leaving: true, ..Update::default() };
    let told = says(&mut dispatcher, Time(2), leaving);
    assert_eq!(told, [Order { acknowledged: 2, ..Order::default() }]);
    let told = says(&mut dispatcher, Time(3), update(3));
    assert_eq!(told, [Order { acknowledged: 3, ..Order::default() }]);
}
