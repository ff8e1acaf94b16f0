//! Every kind of decision of a dispatcher, made beside more and more of what it is
//! not about. Each step of one story is counted in instructions, several times
//! over, beside a background of three sizes: the median may not grow with it.

use crate::stories::counted_step;
use falkon_core::dispatch::{
    Action, Assigned, ConnectionId, Dispatcher, Event, InstanceOptions, Join, Lease, Order, Reply,
    Selection, Update,
};
use falkon_core::result::{Outcome, Report};
use falkon_core::task::{
    After, InstanceId, Packed, Resources, Rows, Submission, TaskClass, TaskId, Time,
};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// The client of the story, and the executor that runs its tasks.
pub(crate) const CLIENT: ConnectionId = ConnectionId(1);
pub(crate) const FRONT: ConnectionId = ConnectionId(2);
/// Clients and executors of backgrounds have connections from these on.
pub(crate) const CLIENTS: u64 = 1_000_000;
pub(crate) const EXECUTORS: u64 = 2_000_000;
/// The instance of the story: the first one.
pub(crate) const INSTANCE: InstanceId = InstanceId(0);
/// How often each step is counted.
const TIMES: u64 = 5;

/// A dispatcher, and what its peers remember.
pub(crate) struct World {
    pub(crate) dispatcher: Dispatcher,
    pub(crate) now: Time,
    /// Executors, with the number of their last update.
    updates: BTreeMap<ConnectionId, u64>,
    /// Tasks that the story's executor has.
    pub(crate) front: VecDeque<Assigned>,
    /// Tasks of each instance, and results of the story's.
    pub(crate) tasks: BTreeMap<InstanceId, u64>,
    received: u64,
    unwritten: BTreeMap<ConnectionId, u64>,
    created: u64,
    incarnations: u64,
    strangers: u64,
}

/// A need of so many CPUs and so much of a custom resource.
pub(crate) fn with(name: &str, cpus: u32, count: u64) -> Resources {
    Resources { custom: vec![(name.to_owned(), count)], ..Resources::cpus(cpus) }
}

/// One task, which needs this.
pub(crate) fn one(resources: Resources) -> Submission {
    many(1, resources)
}

/// Tasks with rows of their own that need the same.
pub(crate) fn many(count: u64, resources: Resources) -> Submission {
    let mut rows = Packed::default();
    (0..count).for_each(|row| assert!(rows.push(&row.to_be_bytes())));
    Submission {
        data: None,
        count,
        template: Arc::default(),
        rows: Rows::Packed(rows),
        classes: vec![TaskClass { resources, ..TaskClass::default() }],
        class_runs: vec![(count, 0)],
        names: None,
        after: Vec::new(),
        everywhere: None,
    }
}

impl World {
    /// A client with an instance whose results it reads, and an executor of four
    /// slots for its tasks.
    pub(crate) fn new(options: InstanceOptions) -> World {
        World::with_front(options, 4)
    }

    /// The same with another number of slots.
    pub(crate) fn with_front(options: InstanceOptions, slots: u32) -> World {
        let mut world = World {
            dispatcher: Dispatcher::new(),
            now: Time(1_000_000),
            updates: BTreeMap::new(),
            front: VecDeque::new(),
            tasks: BTreeMap::new(),
            received: 0,
            unwritten: BTreeMap::new(),
            created: 0,
            incarnations: 0,
            strangers: 0,
        };
        assert_eq!(world.create(CLIENT, options), INSTANCE);
        world.join(FRONT, with("front", slots, 1 << 40));
        let (connection, instance) = (CLIENT, INSTANCE);
        world.tell(Event::Subscribe { connection, request: 0, instance, from: 0 });
        world
    }

    pub(crate) fn create(
        &mut self,
        connection: ConnectionId,
        options: InstanceOptions,
    ) -> InstanceId {
        let instance = InstanceId(self.created);
        self.created += 1;
        self.tell(Event::Create { connection, request: 0, options });
        self.tasks.insert(instance, 0);
        instance
    }

    /// An executor without a cache.
    pub(crate) fn join(&mut self, connection: ConnectionId, capacity: Resources) {
        let event = self.joins(connection, capacity);
        self.tell(event);
    }

    fn joins(&mut self, connection: ConnectionId, capacity: Resources) -> Event {
        self.incarnations += 1;
        self.updates.insert(connection, 0);
        let join = Join {
            gangs: Vec::new(),
            alternatives: Vec::new(),
            serves: None,
            cache: Default::default(),
            lease: Lease::default(),
            incarnation: self.incarnations,
            name: String::new(),
            capacity,
            held: Vec::new(),
            reports: Vec::new(),
        };
        Event::Join { connection, join }
    }

    fn submits(&mut self, instance: InstanceId, submission: Submission) -> Event {
        let tasks = self.tasks.entry(instance).or_default();
        let first = TaskId(*tasks);
        *tasks += submission.count;
        Event::Submit { connection: CLIENT, request: 0, instance, first, client: 1, submission }
    }

    pub(crate) fn submit(&mut self, instance: InstanceId, submission: Submission) {
        let event = self.submits(instance, submission);
        self.tell(event);
    }

    pub(crate) fn update(&mut self, connection: ConnectionId, update: Update) -> Event {
        let number = self.updates.entry(connection).or_default();
        *number += 1;
        Event::Update { connection, update: Update { number: *number, ..update } }
    }

    /// That the first task that the story's executor has is over.
    fn ends(&mut self) -> Event {
        let mut assigned = self.front.pop_front().unwrap();
        let report = Report {
            instance: assigned.instance,
            first: assigned.first,
            count: 1,
            tries: assigned.tries,
            outcome: Outcome::Exit(0),
            started: Time(self.now.0 - 1_000),
            ended: self.now,
            detail: None,
        };
        assigned.first.0 += 1;
        assigned.count -= 1;
        if assigned.count > 0 {
            self.front.push_front(assigned);
        }
        self.update(FRONT, Update { reports: vec![report], ..Update::default() })
    }

    /// What an event leads to is taken in.
    pub(crate) fn tell(&mut self, event: Event) {
        self.dispatcher.handle(self.now, event);
        let actions = self.pump();
        self.hear(actions);
    }

    fn pump(&mut self) -> Vec<Action> {
        std::iter::from_fn(|| self.dispatcher.poll_action()).collect()
    }

    fn hear(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Order { connection: FRONT, order } => self.obey(order),
                Action::Deliver { connection, delivery } => {
                    *self.unwritten.entry(connection).or_default() += 1;
                    if connection == CLIENT {
                        let count: u64 = delivery.results.iter().map(|run| run.count).sum();
                        self.received = delivery.from + count;
                    }
                }
                Action::Reply { reply: Reply::Refused(error), .. } => panic!("refused: {error}"),
                _ => {}
            }
        }
    }

    fn obey(&mut self, order: Order) {
        for held in &order.disown {
            self.front.retain(|assigned| assigned.instance != held.instance);
        }
        self.front.extend(order.assign);
    }

    /// The client has taken in what it was sent.
    pub(crate) fn acknowledge(&mut self) {
        self.written();
        let upto = self.received;
        self.tell(Event::Acknowledge { connection: CLIENT, instance: INSTANCE, upto });
    }

    /// What clients were sent is written.
    fn written(&mut self) {
        for (connection, messages) in std::mem::take(&mut self.unwritten) {
            self.tell(Event::Written { connection, messages });
        }
    }

    /// All executors say that they are there.
    fn beat(&mut self) {
        let all: Vec<ConnectionId> = self.updates.keys().copied().collect();
        for connection in all {
            let event = self.update(connection, Update::default());
            self.dispatcher.handle(self.now, event);
        }
    }

    /// Time passes, and all that is due is done.
    pub(crate) fn wait(&mut self, micros: u64) {
        self.now = self.now.after(micros);
        self.dispatcher.handle_timeout(self.now);
        let actions = self.pump();
        self.hear(actions);
        self.written();
    }

    /// Counts what some events and what is then due take, with all that follows.
    fn count(&mut self, step: &str, events: Vec<Event>) {
        self.now = self.now.after(1);
        let (now, mut events) = (self.now, Some(events));
        let mut actions = Vec::new();
        counted_step(step, || {
            for event in events.take().into_iter().flatten() {
                self.dispatcher.handle(now, event);
            }
            if self.dispatcher.poll_timeout().is_some_and(|(at, _)| at <= now) {
                self.dispatcher.handle_timeout(now);
            }
            while let Some(action) = self.dispatcher.poll_action() {
                actions.push(action);
            }
        });
        self.hear(actions);
        self.written();
    }

    /// The story, told a few times. Steps have no more to do the second time.
    pub(crate) fn tell_story(&mut self) {
        for _ in 0..TIMES {
            self.work();
            self.give_up();
            self.come_and_go();
            self.wait(20_000);
        }
        self.dispatcher.check().unwrap();
    }

    /// Tasks are submitted, end, and are acknowledged; others are cancelled.
    fn work(&mut self) {
        self.wait(20_000);
        let submit = self.submits(INSTANCE, one(with("front", 1, 1)));
        self.count("a task is submitted and sent", vec![submit]);
        self.wait(20_000);
        let ends = self.ends();
        self.count("a task ends and is delivered", vec![ends]);
        let upto = self.received;
        let acknowledge = Event::Acknowledge { connection: CLIENT, instance: INSTANCE, upto };
        self.count("results are acknowledged", vec![acknowledge]);
        let heartbeat = self.update(FRONT, Update::default());
        self.count("an executor says that it is there", vec![heartbeat]);
        self.count("nothing happens", Vec::new());

        let (connection, instance) = (CLIENT, INSTANCE);
        let upstream = self.tasks[&INSTANCE];
        self.submit(INSTANCE, one(with("front", 1, 1)));
        let after = vec![After { offset: 0, tasks: vec![TaskId(upstream)], takes: 0 }];
        let waiting = Submission { after, ..one(with("front", 1, 1)) };
        let submit = self.submits(INSTANCE, waiting);
        self.count("a task that waits for another is submitted", vec![submit]);
        let ends = self.ends();
        self.count("a task that another waits for ends", vec![ends]);
        let ends = self.ends();
        self.tell(ends);
        self.wait(20_000);

        let queued = self.tasks[&INSTANCE];
        let submit = self.submits(INSTANCE, many(8, with("nowhere", 1, 1)));
        self.count("tasks that nobody can run are submitted", vec![submit]);
        for (step, runs) in [
            ("some tasks of a queue are cancelled", vec![(queued + 1, 1), (queued + 4, 2)]),
            ("the rest of them is cancelled", vec![(queued, 8)]),
        ] {
            let selection = Selection::Runs(runs);
            let cancel = Event::Cancel { connection, request: 0, instance, selection };
            self.count(step, vec![cancel]);
        }
        let queued = self.tasks[&INSTANCE];
        self.submit(INSTANCE, one(with("front", 1, 1)));
        let selection = Selection::Runs(vec![(queued, 1)]);
        let cancel = Event::Cancel { connection, request: 0, instance, selection };
        self.count("a task that runs is cancelled", vec![cancel]);
        let ends = self.ends();
        self.tell(ends);
    }

    /// An executor comes, has a task, and is lost.
    fn give_up(&mut self) {
        self.wait(20_000);
        self.strangers += 1;
        let stranger = ConnectionId(EXECUTORS - self.strangers);
        let join = self.joins(stranger, with("strange", 4, 4));
        self.count("an executor comes", vec![join]);
        self.submit(INSTANCE, one(with("strange", 1, 1)));
        let queued = self.tasks[&INSTANCE] - 1;
        self.updates.remove(&stranger);
        self.count("an executor's connection closes", vec![Event::Closed { connection: stranger }]);
        self.beat();
        self.wait(falkon_core::limits::RECONNECT_GRACE_MICROS - 2);
        self.now = self.now.after(2);
        self.count("an executor is given up", Vec::new());
        let selection = Selection::Runs(vec![(queued, 1)]);
        let (connection, instance) = (CLIENT, INSTANCE);
        self.tell(Event::Cancel { connection, request: 0, instance, selection });
    }

    /// A client comes, has an instance with a task, and goes.
    fn come_and_go(&mut self) {
        self.wait(20_000);
        let connection = ConnectionId(CLIENTS - self.strangers);
        let options = InstanceOptions { keep_results: false, ..InstanceOptions::default() };
        let create = Event::Create { connection, request: 0, options };
        self.count("an instance is created", vec![create]);
        let instance = InstanceId(self.created);
        self.created += 1;
        let submit = self.submits(instance, one(with("front", 1, 1)));
        self.count("a task of another instance is submitted and sent", vec![submit]);
        let subscribe = Event::Subscribe { connection, request: 0, instance, from: 0 };
        let from = self.received;
        let subscribe_too = Event::Subscribe { connection, request: 0, instance: INSTANCE, from };
        self.count("a client subscribes", vec![subscribe, subscribe_too]);
        let destroy = Event::Destroy { connection, request: 0, instance };
        self.count("an instance is destroyed", vec![destroy]);
        self.count("a client's connection closes", vec![Event::Closed { connection }]);
        self.tasks.remove(&instance);
    }
}
