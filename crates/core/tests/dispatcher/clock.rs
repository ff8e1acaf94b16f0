//! The time of a journal, and of a clock that was set back since.

use crate::fixture::{self, array, executor};
use falkon_core::dispatch::{ConnectionId, Dispatcher, Event, InstanceOptions, Join, Record};
use falkon_core::limits::{HEARTBEAT_LOST_MICROS, RECONNECT_GRACE_MICROS};
use falkon_core::task::{ExecutorId, InstanceId, TaskId, Time};

const DAY_MICROS: u64 = 86_400_000_000;

/// A dispatcher whose journal was written by a clock that read `queued`.
fn recovered(queued: Time, now: Time) -> Dispatcher {
    let instance = InstanceId(0);
    let submission = array(1);
    let mut dispatcher = Dispatcher::new();
    let executor = ExecutorId(0);
    for record in [
        Record::Created { instance, created: Time(0), options: InstanceOptions::default() },
        Record::Submitted { instance, first: TaskId(0), queued, client: 1, submission },
        Record::ExecutorSeen { executor, incarnation: 7, name: "a".to_owned() },
    ] {
        dispatcher.recover(record).unwrap();
    }
    dispatcher.recovered(now);
    dispatcher
}

fn join(connection: u64, incarnation: u64) -> Event {
    let join = Join { name: format!("executor {incarnation}"), ..executor(incarnation, 1) };
    Event::Join { connection: ConnectionId(connection), join }
}

/// How many tasks are sent off.
fn sent(dispatcher: &mut Dispatcher) -> u64 {
    let orders = fixture::orders(dispatcher).into_iter();
    orders.flat_map(|(_, order)| order.assign).map(|assigned| assigned.count).sum()
}

#[test]
fn whoever_goes_on_from_the_dispatchers_time_is_never_late() {
    // The wall clock is a day behind the journal, the same, and a day ahead.
    for wall in [0, DAY_MICROS, 2 * DAY_MICROS] {
        let mut dispatcher = recovered(Time(DAY_MICROS), Time(wall));
        let now = dispatcher.now();
        assert_eq!(now, Time(wall.max(DAY_MICROS)));
        // The executor that the journal knows is waited for, and no longer than
        // if no clock had changed.
        dispatcher.handle(now, join(1, 8));
        assert_eq!(sent(&mut dispatcher), 0);
        let (due, why) = dispatcher.poll_timeout().unwrap();
        assert_eq!(due, now.after(RECONNECT_GRACE_MICROS), "{why}");
        dispatcher.handle_timeout(due);
        assert_eq!(sent(&mut dispatcher), 1);
        // An executor that is silent is given up in time.
        let deadline = now.after(HEARTBEAT_LOST_MICROS + RECONNECT_GRACE_MICROS);
        while let Some((due, _)) = dispatcher.poll_timeout().filter(|(due, _)| *due <= deadline) {
            dispatcher.handle_timeout(due);
        }
        assert_eq!(dispatcher.executor_views().count(), 0);
    }
}

#[test]
fn time_never_goes_back_whatever_the_clock_says() {
    let mut dispatcher = recovered(Time(DAY_MICROS), Time(0));
    for now in [5, 3, DAY_MICROS + 9, 1] {
        let before = dispatcher.now();
        dispatcher.handle(Time(now), Event::Closed { connection: ConnectionId(1) });
        assert_eq!(dispatcher.now(), before.max(Time(now)));
    }
}
