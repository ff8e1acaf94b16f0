//! Data objects at their extremes: sizes, names, numbers of objects and of replicas, what executors
//! say that they hold. A dispatcher's arithmetic stays within its numbers, its books in order, and
//! no work depends on a size.

use crate::faults::cases;
use crate::sets::any_number;
use falkon_core::data::declared::{Declared, Lists, Serving};
use falkon_core::data::limits::CHANGES_OBJECTS_MAX;
use falkon_core::data::object::{Object, ObjectId};
use falkon_core::data::stage::{CacheState, Changes, Count, Usage};
use falkon_core::dispatch::diffusion::{POLICIES, PolicyOptions};
use falkon_core::dispatch::{
    Action, ConnectionId, Dispatcher, Event, InstanceOptions, Join, Lease, Purpose, Scope, Update,
};
use falkon_core::limits::{
    MESSAGE_BYTES_MAX, SUBMISSION_BYTES_MAX, URL_BYTES_MAX, VERSION_BYTES_MAX,
};
use falkon_core::result::{Detail, Outcome, Report};
use falkon_core::task::{
    ExecutorId, InstanceId, Kind, Range, Resources, Rows, Submission, TaskClass, TaskId, Time,
};
use proptest::collection::vec;
use proptest::prelude::*;
use std::sync::Arc;

const CLIENT: ConnectionId = ConnectionId(u64::MAX);
const INSTANCE: InstanceId = InstanceId(0);
const EXECUTORS: u64 = 3;
const OBJECTS: u64 = 8;
/// Objects of tasks that have many; how many a submission and a report hold at most is
/// another test's.
const MANY_OBJECTS: u64 = 300;

fn size() -> impl Strategy<Value = u64> {
    prop_oneof![
        2 => (0..3u64).prop_map(|back| u64::MAX - back),
        1 => Just(1 << 63),
        1 => any_number(),
    ]
}

fn url(number: u64, long: bool) -> Arc<str> {
    let scheme = ["cache:", "/data/", "s3://bucket/", "http://host/"][number as usize % 4];
    let fill = if long { URL_BYTES_MAX - scheme.len() - 20 } else { 0 };
    format!("{scheme}{}{number:020}", "u".repeat(fill)).into()
}

fn object(number: u64, long: bool, size: Option<u64>) -> Object {
    let version = if long { "v".repeat(VERSION_BYTES_MAX) } else { number.to_string() };
    Object { id: ObjectId(number.into()), url: url(number, long), version: version.into(), size }
}

/// Objects that a task reads or writes, by number.
fn items() -> impl Strategy<Value = Vec<u32>> {
    vec(0..OBJECTS as u32, 0..5)
}

fn each(lists: &[Vec<u32>]) -> Lists {
    let ends = lists.iter().scan(0, |end, list| {
        *end += list.len() as u32;
        Some(*end)
    });
    let (items, ends) = (lists.concat(), ends.collect());
    Lists::Each { items: Arc::new(items), ends: Arc::new(ends) }
}

fn declared() -> impl Strategy<Value = (u64, Declared)> {
    let objects = vec((any::<bool>(), prop::option::of(size())), OBJECTS as usize);
    let few = (objects, vec((items(), items()), 1..6)).prop_map(|(objects, lists)| {
        let objects = (0..).zip(objects).map(|(number, (long, size))| object(number, long, size));
        let (inputs, outputs): (Vec<_>, Vec<_>) = lists.into_iter().unzip();
        let objects = Arc::new(objects.collect());
        let count = inputs.len() as u64;
        (count, Declared { objects, inputs: each(&inputs), outputs: each(&outputs) })
    });
    let many = (1..3u64, any::<bool>(), size()).prop_map(|(count, reads, size)| {
        let objects = (0..MANY_OBJECTS).map(|number| object(number, false, Some(size)));
        let all = Lists::Same((0..MANY_OBJECTS as u32).collect());
        let (inputs, outputs) =
            if reads { (all, Lists::default()) } else { (Lists::default(), all) };
        (count, Declared { objects: Arc::new(objects.collect()), inputs, outputs })
    });
    prop_oneof![12 => few, 1 => many]
}

fn class() -> impl Strategy<Value = TaskClass> {
    let replicas = prop_oneof![0..4u32, Just(u32::MAX)];
    (replicas, any_number(), any_number()).prop_map(
        |(replicas, estimate_micros, timeout_micros)| {
            let kind = Kind::Process;
            TaskClass { kind, replicas, estimate_micros, timeout_micros, ..TaskClass::default() }
        },
    )
}

fn usage() -> impl Strategy<Value = Usage> {
    let count = || (any_number(), size()).prop_map(|(objects, bytes)| Count { objects, bytes });
    (count(), count(), count()).prop_map(|(local, peer, store)| Usage { local, peer, store })
}

fn changes() -> impl Strategy<Value = Changes> {
    let some = vec((0..OBJECTS, size()), 0..6).prop_map(|added| {
        added.into_iter().map(|(id, size)| (ObjectId(id.into()), size)).collect::<Vec<_>>()
    });
    let all = size().prop_map(|size| {
        (0..MANY_OBJECTS).map(|id| (ObjectId(id.into()), size)).collect::<Vec<_>>()
    });
    let state = (size(), size(), usage()).prop_map(|(capacity, used, usage)| CacheState {
        capacity,
        used,
        usage,
    });
    let ids = || vec((0..OBJECTS).prop_map(|id| ObjectId(id.into())), 0..4);
    let silent = vec((0..OBJECTS, 0..4u64), 0..3).prop_map(|silent| {
        let silent = silent.into_iter();
        silent.map(|(id, of)| (ObjectId(id.into()), ExecutorId(of))).collect::<Vec<_>>()
    });
    let moved = vec((0..4u64, size()), 0..3);
    let moved = moved.prop_map(|all| {
        all.into_iter().map(|(from, bytes)| (ExecutorId(from), bytes)).collect::<Vec<_>>()
    });
    let lost = (ids(), silent, moved);
    let named = vec((0..OBJECTS, any::<bool>(), prop::option::of(size())), 0..2);
    let added = prop_oneof![12 => some, 1 => all];
    (prop::bool::weighted(0.1), added, ids(), named, prop::option::of(state), lost).prop_map(
        |(anew, added, removed, named, state, (unobtainable, silent, moved))| {
            let named = named.into_iter().map(|(id, long, size)| object(4 * id, long, size));
            let named = named.collect();
            Changes { anew, added, removed, named, state, unobtainable, silent, moved }
        },
    )
}

/// What happens; tasks in flight are numbered, and the first is taken if there are none so far.
#[derive(Debug, Clone)]
enum Step {
    Submit(TaskClass, u64, Declared),
    Cache { executor: u64, changes: Changes },
    End { at: usize, usage: Usage, micros: u64, well: bool },
    Leave(u64),
    Ask(u64),
    Time(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let executor = || 0..EXECUTORS;
    prop_oneof![
        3 => (class(), declared()).prop_map(|(class, (count, data))| Step::Submit(class, count, data)),
        5 => (executor(), changes()).prop_map(|(executor, changes)| Step::Cache { executor, changes }),
        8 => (0..8usize, usage(), any_number(), prop::bool::weighted(0.8))
            .prop_map(|(at, usage, micros, well)| Step::End { at, usage, micros, well }),
        1 => executor().prop_map(Step::Leave),
        1 => (0..OBJECTS).prop_map(Step::Ask),
        3 => prop_oneof![0..3_000_000u64, Just(60_000_000)].prop_map(Step::Time),
    ]
}

fn policy() -> impl Strategy<Value = PolicyOptions> {
    let policy = prop::sample::select(POLICIES.map(|(policy, _)| policy).to_vec());
    (policy, prop_oneof![Just(0), Just(u64::MAX)], prop_oneof![0..3u32, Just(u32::MAX)]).prop_map(
        |(policy, window, replication_max)| {
            let limits = PolicyOptions { policy, window, replication_max, ..Default::default() };
            let usual = PolicyOptions { policy, ..Default::default() };
            if limits.check().is_ok() { limits } else { usual }
        },
    )
}

fn join(executor: u64) -> Event {
    let serves = Some(Serving { address: format!("node{executor}:1"), fingerprint: vec![1; 32] });
    let join = Join {
        incarnation: 1 + executor,
        name: format!("node{executor}"),
        capacity: Resources::cpus(2),
        held: Vec::new(),
        reports: Vec::new(),
        gangs: Vec::new(),
        alternatives: Vec::new(),
        serves,
        cache: Default::default(),
        lease: Lease::default(),
    };
    Event::Join { connection: ConnectionId(executor), join }
}

/// A dispatcher, its executors' tasks, and the numbers of their updates.
struct World {
    dispatcher: Dispatcher,
    now: Time,
    submitted: u64,
    in_flight: Vec<(u64, falkon_core::dispatch::Assigned)>,
    updates: [u64; EXECUTORS as usize],
}

impl World {
    fn new(policy: PolicyOptions) -> World {
        let mut dispatcher = Dispatcher::new();
        let options = InstanceOptions { policy, ..InstanceOptions::default() };
        dispatcher.handle(Time(0), Event::Create { connection: CLIENT, request: 0, options });
        for executor in 0..EXECUTORS {
            dispatcher.handle(Time(0), join(executor));
        }
        let (now, in_flight) = (Time(0), Vec::new());
        World { dispatcher, now, submitted: 0, in_flight, updates: [0; EXECUTORS as usize] }
    }

    fn update(&mut self, executor: u64, update: Update) {
        let number = &mut self.updates[executor as usize];
        *number += 1;
        let update = Update { number: *number, ..update };
        let connection = ConnectionId(executor);
        self.dispatcher.handle(self.now, Event::Update { connection, update });
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Submit(class, count, data) => {
                let range = Range { start: 0, step: 1, count };
                let submission = Submission {
                    count,
                    template: Arc::default(),
                    rows: Rows::Computed { factors: vec![range], offset: 0 },
                    classes: vec![class],
                    class_runs: vec![(count, 0)],
                    names: None,
                    after: Vec::new(),
                    everywhere: None,
                    data: Some(Arc::new(data)),
                };
                let (connection, request, instance) = (CLIENT, 1, INSTANCE);
                let first = TaskId(self.submitted);
                let is_sound = submission.check() == Ok(());
                assert!(is_sound && submission.check_lengths() == Ok(()), "within the limits");
                self.submitted += count;
                let client = 1;
                let event =
                    Event::Submit { connection, request, instance, first, client, submission };
                self.dispatcher.handle(self.now, event);
            }
            Step::Cache { executor, changes } => {
                let cache = Some(Box::new(changes));
                self.update(executor, Update { cache, ..Update::default() });
            }
            Step::End { at, usage, micros, well } => {
                if self.in_flight.is_empty() {
                    return;
                }
                let (executor, task) = self.in_flight.remove(at % self.in_flight.len());
                let detail = Detail { usage, staging_micros: micros, ..Detail::default() };
                let report = Report {
                    instance: task.instance,
                    first: task.first,
                    count: task.count,
                    tries: task.tries,
                    outcome: if well { Outcome::Exit(0) } else { Outcome::NoInput },
                    started: self.now,
                    ended: self.now.after(micros),
                    detail: Some(Arc::new(detail)),
                };
                self.update(executor, Update { reports: vec![report], ..Update::default() });
            }
            Step::Leave(executor) => {
                self.update(executor, Update { leaving: true, ..Update::default() });
            }
            Step::Ask(id) => self.ask(id),
            Step::Time(micros) => self.now = self.now.after(micros),
        }
    }

    fn ask(&self, id: u64) {
        let dispatcher = &self.dispatcher;
        for scope in [Scope::All, Scope::Placed, Scope::Of(INSTANCE)] {
            let (_, next) = dispatcher.objects(scope, None, "", None);
            let _ = dispatcher.objects(scope, Some(ExecutorId(id)), "cache:", next);
            for long in [false, true] {
                let found = object(id, long, Some(u64::MAX));
                let _ = dispatcher.find_objects(scope, &found.url);
                for purpose in [Purpose::Get, Purpose::Put, Purpose::Drop { force: true }] {
                    // Who may go there does not matter here.
                    let _ = dispatcher.reach(scope, &found, purpose);
                }
            }
        }
    }

    /// Has the dispatcher act, and checks it.
    fn act(&mut self) -> Result<(), TestCaseError> {
        while self.dispatcher.poll_timeout().is_some_and(|(at, _)| at <= self.now) {
            self.dispatcher.handle_timeout(self.now);
        }
        let mut actions = 0;
        while let Some(action) = self.dispatcher.poll_action() {
            if let Action::Order { connection, order } = action {
                prop_assert!(order.bytes_max() <= MESSAGE_BYTES_MAX, "a long order");
                for gone in order.disown.iter().chain(&order.cancel) {
                    self.in_flight.retain(|(_, task)| task.first != gone.first);
                }
                // One report each.
                let tasks = order.assign.into_iter().flat_map(|run| {
                    let each = run.first.0..run.first.0 + run.count;
                    each.map(move |task| falkon_core::dispatch::Assigned {
                        first: TaskId(task),
                        count: 1,
                        ..run.clone()
                    })
                });
                self.in_flight.extend(tasks.map(|task| (connection.0, task)));
            }
            actions += 1;
            prop_assert!(actions < 10_000, "it goes on for ever");
        }
        let checked = self.dispatcher.check();
        prop_assert!(checked.is_ok(), "{checked:?}");
        Ok(())
    }
}

/// One task of as many objects as a submission holds, and executors that hold as many as one report
/// has, of the largest size.
#[test]
fn as_many_objects_as_there_may_be_are_placed_and_counted() {
    let most = (SUBMISSION_BYTES_MAX / 128) as usize;
    let size = Some(u64::MAX);
    let data = |count: usize| {
        let objects = (0..count as u64).map(|number| Object {
            url: "u".into(),
            version: "v".into(),
            ..object(number, false, size)
        });
        let inputs = Lists::Same((0..count as u32).collect());
        Declared { objects: Arc::new(objects.collect()), inputs, outputs: Lists::default() }
    };
    let mut world = World::new(PolicyOptions::default());
    let class = TaskClass { replicas: u32::MAX, ..TaskClass::default() };
    world.take(Step::Submit(class, 1, data(most)));
    for executor in 0..EXECUTORS {
        let added = (0..CHANGES_OBJECTS_MAX as u128).map(|id| (ObjectId(id), u64::MAX)).collect();
        let changes = Changes { anew: true, added, ..Changes::default() };
        world.take(Step::Cache { executor, changes });
    }
    world.act().unwrap();
    assert_eq!(world.in_flight.len(), 1, "the task is sent");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases(64)) })]

    #[test]
    fn a_dispatcher_survives_data_objects_at_their_extremes(
        policy in policy(),
        steps in vec(step(), 0..40),
    ) {
        let mut world = World::new(policy);
        for step in steps {
            world.take(step);
            world.act()?;
        }
        let mut again = Dispatcher::new();
        for record in world.dispatcher.snapshot() {
            prop_assert_eq!(again.recover(record), Ok(()));
        }
        again.recovered(world.now);
        prop_assert!(again.check().is_ok(), "{:?}", again.check());
    }
}
