//! No request costs more than its answer: what it costs does not depend on how
//! much else the dispatcher holds. Counted in instructions, at two sizes of
//! what the request is not about.

use crate::growth::{Growth, counted};
use falkon_core::dispatch::{
    Action, ConnectionId, Dispatcher, Event, Held, InstanceOptions, Join, Lease, Record, Selection,
};
use falkon_core::dispatch::{Assigned, Update};
use falkon_core::result::{Outcome, Report, Tries};
use falkon_core::task::{
    ExecutorId, InstanceId, Range, Resources, Rows, Submission, TaskClass, TaskId, Time,
};
use std::sync::Arc;

const INSTANCE: InstanceId = InstanceId(0);
/// Executors that come back in the scenario about them.
const JOINS: u64 = 32;

pub(crate) const GROWTHS: [Growth; 7] = [
    Growth {
        name: "an executor that comes back, beside longer queues",
        sizes: (1_000, 8_000),
        times: 1.5,
        run: come_back,
    },
    Growth {
        name: "tasks that all need something else, eight times as many in one submission",
        sizes: (400, 3_200),
        times: 8.0 * 1.3,
        run: |tasks| different_needs(tasks, tasks),
    },
    Growth {
        name: "tasks that all need something else, eight times as many one by one",
        sizes: (400, 3_200),
        times: 8.0 * 1.3,
        run: |tasks| different_needs(tasks, 1),
    },
    Growth {
        name: "a cancellation that names the same tasks eight times as often",
        sizes: (100, 800),
        times: 2.0,
        run: cancel,
    },
    Growth {
        name: "an instance without tasks that is cancelled and destroyed, beside more executors",
        sizes: (32, 256),
        times: 1.5,
        run: |executors| destroy(0, executors),
    },
    Growth {
        name: "an instance with a task that is cancelled and destroyed, beside more tasks of others",
        sizes: (32, 256),
        times: 1.5,
        run: |tasks| destroy(tasks, 1),
    },
    Growth {
        name: "a connection that closes, beside more instances",
        sizes: (256, 2_048),
        times: 1.5,
        run: close,
    },
];

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
        everywhere: None,
    }
}

fn join(incarnation: u64, held: Vec<Held>) -> Join {
    Join {
        gangs: Vec::new(),
        alternatives: Vec::new(),
        serves: None,
        cache: Default::default(),
        lease: Lease::default(),
        incarnation,
        name: String::new(),
        capacity: Resources { memory_bytes: 1 << 40, ..Resources::cpus(4) },
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
    dispatcher.recover(Record::Created { instance: INSTANCE, created: Time(0), options }).unwrap();
    for task in 0..queued {
        let (instance, first, submission) = (INSTANCE, TaskId(task), alike(1));
        let queued = Time(1);
        dispatcher
            .recover(Record::Submitted { instance, first, queued, client: 1, submission })
            .unwrap();
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

/// That a task ended well, after ten milliseconds.
fn report(assigned: &Assigned, task: u64, now: Time) -> Report {
    Report {
        instance: assigned.instance,
        first: TaskId(task),
        count: 1,
        tries: assigned.tries,
        outcome: Outcome::Exit(0),
        started: Time(now.0 - 10_000),
        ended: now,
        detail: None,
    }
}

/// Tasks that each need another amount of memory, so many in a submission, are
/// run by two executors of four slots.
fn different_needs(tasks: u64, together: u64) {
    let mut dispatcher = Dispatcher::new();
    let (connection, instance) = (ConnectionId(u64::MAX), INSTANCE);
    let options = InstanceOptions { keep_results: false, ..InstanceOptions::default() };
    dispatcher.handle(Time(0), Event::Create { connection, request: 0, options });
    let submissions: Vec<(TaskId, Submission)> = (0..tasks)
        .step_by(together as usize)
        .map(|first| {
            let classes = (0..together).map(|task| TaskClass {
                resources: Resources { memory_bytes: 1 + first + task, ..Resources::cpus(1) },
                ..TaskClass::default()
            });
            let class_runs = (0..together as u32).map(|class| (1, class)).collect();
            let submission = Submission { class_runs, ..alike(together) };
            (TaskId(first), Submission { classes: classes.collect(), ..submission })
        })
        .collect();
    let mut submissions = Some(submissions);
    counted(|| {
        for (first, submission) in submissions.take().into_iter().flatten() {
            let event =
                Event::Submit { connection, request: 1, instance, first, client: 1, submission };
            dispatcher.handle(Time(0), event);
        }
        for executor in (0..2).map(ConnectionId) {
            let join = join(1 + executor.0, Vec::new());
            dispatcher.handle(Time(0), Event::Join { connection: executor, join });
        }
        let (mut done, mut now, mut number) = (0, Time(0), 0);
        while done < tasks {
            now = now.after(20_000);
            let before = done;
            for action in all(&mut dispatcher) {
                let Action::Order { connection, order } = action else { continue };
                let reports: Vec<Report> = order
                    .assign
                    .iter()
                    .flat_map(|one| {
                        let tasks = one.first.0..one.first.0 + one.count;
                        tasks.map(|task| report(one, task, now))
                    })
                    .collect();
                done += reports.len() as u64;
                number += 1;
                let update = Update { number, reports, ..Update::default() };
                dispatcher.handle(now, Event::Update { connection, update });
            }
            assert!(done > before, "nothing runs after {done} of {tasks} tasks");
        }
    });
    dispatcher.check().unwrap();
}

/// An empty instance, with a number.
fn create(dispatcher: &mut Dispatcher) {
    let connection = ConnectionId(u64::MAX);
    let options = InstanceOptions { keep_results: false, ..InstanceOptions::default() };
    dispatcher.handle(Time(0), Event::Create { connection, request: 0, options });
}

fn submit(dispatcher: &mut Dispatcher, instance: InstanceId, first: u64, submission: Submission) {
    let (connection, first) = (ConnectionId(u64::MAX), TaskId(first));
    let event = Event::Submit { connection, request: 1, instance, first, client: 1, submission };
    dispatcher.handle(Time(0), event);
}

/// All tasks are cancelled, and named so many times, where every other one has
/// ended.
fn cancel(times: u64) {
    const TASKS: u64 = 1_000;
    let mut dispatcher = Dispatcher::new();
    let (connection, instance) = (ConnectionId(u64::MAX), INSTANCE);
    create(&mut dispatcher);
    submit(&mut dispatcher, instance, 0, alike(TASKS));
    let selection = Selection::Runs((0..TASKS).step_by(2).map(|task| (task, 1)).collect());
    dispatcher.handle(Time(1), Event::Cancel { connection, request: 2, instance, selection });
    all(&mut dispatcher);
    let selection = Selection::Runs(vec![(0, TASKS); times as usize]);
    let mut again = Some(Event::Cancel { connection, request: 3, instance, selection });
    counted(|| {
        again.take().into_iter().for_each(|event| dispatcher.handle(Time(2), event));
        all(&mut dispatcher);
    });
    assert_eq!(dispatcher.instance_view(instance).unwrap().counts().cancelled, TASKS);
    dispatcher.check().unwrap();
}

/// So many executors; the first one has so many tasks that were submitted one
/// by one, and one of another instance, which is cancelled and destroyed. With no
/// tasks, neither instance has any.
fn destroy(tasks: u64, executors: u64) {
    let mut dispatcher = Dispatcher::new();
    let (connection, other) = (ConnectionId(u64::MAX), InstanceId(1));
    create(&mut dispatcher);
    create(&mut dispatcher);
    for executor in 0..executors {
        let capacity = Resources::cpus(1_024);
        let join = Join { capacity, ..join(1 + executor, Vec::new()) };
        dispatcher.handle(Time(0), Event::Join { connection: ConnectionId(executor), join });
    }
    for task in 0..tasks {
        submit(&mut dispatcher, INSTANCE, task, alike(1));
    }
    submit(&mut dispatcher, other, 0, alike(tasks.min(1)));
    all(&mut dispatcher);
    let dispatched = dispatcher.instance_views().map(|found| found.counts().dispatched);
    assert_eq!(dispatched.sum::<u64>(), tasks + tasks.min(1), "all tasks are in flight");
    counted(|| {
        let selection = Selection::All;
        let event = Event::Cancel { connection, request: 2, instance: other, selection };
        dispatcher.handle(Time(1), event);
        dispatcher.handle(Time(1), Event::Destroy { connection, request: 3, instance: other });
    });
    all(&mut dispatcher);
    assert_eq!(dispatcher.instance_views().count(), 1, "the instance is gone");
    dispatcher.check().unwrap();
}

/// Beside so many instances, a connection that receives the results of one closes.
fn close(instances: u64) {
    let mut dispatcher = Dispatcher::new();
    (0..instances).for_each(|_| create(&mut dispatcher));
    let (connection, instance) = (ConnectionId(1), INSTANCE);
    dispatcher.handle(Time(0), Event::Subscribe { connection, request: 0, instance, from: 0 });
    all(&mut dispatcher);
    counted(|| dispatcher.handle(Time(1), Event::Closed { connection }));
    dispatcher.check().unwrap();
}
