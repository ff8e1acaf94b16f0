//! What a provisioner does when a time has come, though nothing has happened.

use crate::steps::{QUEUE, Rig, SECOND, options, submit};
use falkon_core::dispatch::{ConnectionId, Dispatcher, Event as DispatchEvent, Join, Lease};
use falkon_core::provision::limits::{DEMAND_MICROS, QUEUE_EXECUTORS_MAX, STRANGER_IDLE_MICROS};
use falkon_core::provision::{
    Action, AllocationId, Demand, Event, QueueOptions, ReleaseName, Watch,
};
use falkon_core::task::{ExecutorId, Resources, Time};

fn released(actions: &[Action]) -> Vec<u64> {
    let executors = actions.iter().filter_map(|action| match action {
        Action::Release { executor, .. } => Some(executor.0),
        _ => None,
    });
    executors.collect()
}

#[test]
fn an_executor_of_nobody_s_allocation_leaves_when_it_was_idle_for_long() {
    let mut rig = Rig::new(options());
    rig.join(1, 99);
    let since = rig.now;
    rig.say(Event::ExecutorIdle { executor: ExecutorId(1), since });
    let seconds = STRANGER_IDLE_MICROS / SECOND;
    assert_eq!(released(&rig.pass(seconds - 1)), [0; 0]);
    assert_eq!(released(&rig.pass(2)), [1]);
    assert_eq!(released(&rig.pass(2 * seconds)), [0; 0], "once");
}

#[test]
fn while_few_tasks_are_queued_one_executor_leaves_each_second() {
    let mut rig =
        Rig::new(QueueOptions { release: ReleaseName::FewQueued(2), is_whole: false, ..options() });
    assert_eq!(rig.demand(3), [submit(7, 3)]);
    rig.accept(7);
    rig.demand(2);
    for executor in 1..=3 {
        assert_eq!(released(&rig.join(executor, 7)), [0; 0]);
        let since = rig.now;
        rig.say(Event::ExecutorIdle { executor: ExecutorId(executor), since });
    }
    assert_eq!(released(&rig.pass(100)), [0; 0], "two are not few");
    let gone = released(&rig.demand(1)).len();
    let later: Vec<usize> = (0..4).map(|_| released(&rig.pass(1)).len()).collect();
    assert_eq!((gone + later.iter().sum::<usize>(), later[0]), (3, 1), "{gone}, {later:?}");
}

/// A request that nothing waits for is taken back after the time that requests
/// take, which is the mean of what was guessed and what was measured.
#[test]
fn a_request_that_nothing_waits_for_is_taken_back_in_time() {
    let delay_micros = 30 * SECOND;
    let release = ReleaseName::Predictive;
    let mut rig = Rig::new(QueueOptions { release, delay_micros, executors_max: 10, ..options() });
    assert_eq!(rig.demand(1), [submit(7, 1)]);
    rig.accept(7);
    rig.pass(90);
    rig.join(1, 7);
    rig.machine.handle(rig.now, Event::ExecutorBusy { executor: ExecutorId(1) });
    rig.demand(2);
    let asked = rig.machine.allocation_views().filter(|one| one.executors() == 0).count();
    assert_eq!(asked, 1, "another was asked for");
    rig.accept(8);
    rig.say(Event::Demand(Box::new(Demand { running: 1, ..Demand::default() })));
    let cancelled = |actions: &[Action]| {
        actions.iter().any(|action| {
            matches!(action, Action::Cancel { allocation, .. } if *allocation == AllocationId(8))
        })
    };
    assert!(!cancelled(&rig.pass(59)));
    assert!(cancelled(&rig.pass(3)));
}

#[test]
fn as_many_nodes_as_a_queue_may_have_can_be_asked_for_by_hand_and_no_more() {
    let mut rig = Rig::new(options());
    let once = |nodes| Event::Once { queue: QUEUE, nodes, walltime_micros: 0 };
    for none in [0, QUEUE_EXECUTORS_MAX + 1] {
        assert_eq!(rig.say(once(none)), []);
    }
    assert_eq!(rig.say(once(QUEUE_EXECUTORS_MAX)), [submit(7, QUEUE_EXECUTORS_MAX)]);
}

#[test]
fn a_watch_looks_when_it_is_due_and_tells_of_changes_alone() {
    let mut dispatcher = Dispatcher::new();
    let mut watch = Watch::default();
    let first = watch.look(Time(0), &mut dispatcher);
    assert!(matches!(first[..], [Event::Demand(_)]), "{first:?}");
    assert_eq!(watch.due(), Time(DEMAND_MICROS));
    let join = Join {
        incarnation: 1,
        name: "one".to_owned(),
        capacity: Resources::cpus(1),
        held: Vec::new(),
        reports: Vec::new(),
        gangs: Vec::new(),
        alternatives: Vec::new(),
        serves: None,
        cache: Default::default(),
        lease: Lease::default(),
    };
    let connection = ConnectionId(1);
    dispatcher.handle(Time(1), DispatchEvent::Join { connection, join });
    while dispatcher.poll_action().is_some() {}
    for early in [1, DEMAND_MICROS - 1] {
        assert_eq!(watch.look(Time(early), &mut dispatcher), []);
    }
    let news = watch.look(Time(DEMAND_MICROS), &mut dispatcher);
    assert!(
        matches!(news[..], [Event::ExecutorJoined { .. }, Event::ExecutorIdle { .. }]),
        "{news:?}"
    );
    let due = watch.due();
    assert!(due > Time(DEMAND_MICROS));
    assert_eq!(watch.look(due, &mut dispatcher), [], "nothing has changed");
}
