//! Tasks on several executors: who gets one, what its members are told, and who cannot have one.

use crate::fixture::{actions, array, executor};
use falkon_core::dispatch::{
    Action, ConnectionId, Dispatcher, Event, Held, InstanceOptions, Join, Lease, Obstacle, Order,
    Reply, RequestError, Update,
};
use falkon_core::gang::{GangKey, GangOrder, GangReport, GangToken};
use falkon_core::limits::{GANG_NODES_MAX, NODE_RANKS_MAX};
use falkon_core::result::{Outcome, Report, Tries};
use falkon_core::task::{
    AUTO_CPUS, AUTO_MEMORY, AllocationId, Everywhere, InstanceId, Kind, Resources, Submission,
    SubmissionError, SubmissionPart, TaskClass, TaskId, Time,
};

const CLIENT: ConnectionId = ConnectionId(0);

struct World {
    dispatcher: Dispatcher,
    now: Time,
    orders: Vec<(u64, Order)>,
    refused: Vec<RequestError>,
}

impl World {
    fn new() -> World {
        let mut dispatcher = Dispatcher::new();
        let options = InstanceOptions::default();
        dispatcher.handle(Time(0), Event::Create { connection: CLIENT, request: 0, options });
        World { dispatcher, now: Time(0), orders: Vec::new(), refused: Vec::new() }
    }

    fn handle(&mut self, event: Event) {
        self.now = self.now.after(1_000);
        self.dispatcher.handle(self.now, event);
        self.act();
    }

    fn act(&mut self) {
        loop {
            let mut is_drawn = false;
            for action in actions(&mut self.dispatcher) {
                match action {
                    Action::Order { connection, order } => self.orders.push((connection.0, order)),
                    Action::Reply { reply: Reply::Refused(error), .. } => self.refused.push(error),
                    Action::DrawTokens { count } => {
                        let token = |number: u32| GangToken(u128::from(number).to_be_bytes());
                        let tokens = (0..count).map(token).collect();
                        self.dispatcher.handle(self.now, Event::TokensDrawn(tokens));
                        is_drawn = true;
                    }
                    _ => {}
                }
            }
            if !is_drawn {
                return;
            }
        }
    }

    fn join(&mut self, number: u64, allocation: Option<u64>) {
        let lease = Lease { allocation: allocation.map(AllocationId), leaves_in_micros: None };
        let join = Join { name: format!("n{number}"), lease, ..executor(number, 1) };
        self.handle(Event::Join { connection: ConnectionId(number), join });
    }

    fn submit(&mut self, first: u64, submission: Submission) {
        let (instance, first) = (InstanceId(0), TaskId(first));
        let (client, connection, request) = (1, CLIENT, 1);
        self.handle(Event::Submit { client, connection, request, instance, first, submission });
    }

    fn update(&mut self, number: u64, update: Update) {
        self.handle(Event::Update { connection: ConnectionId(number), update });
    }

    /// The executors that were ordered to form a gang, the first of it first.
    fn formed(&self) -> Vec<u64> {
        let mut formed: Vec<(u32, u64)> = Vec::new();
        for (to, order) in &self.orders {
            for gang in &order.gangs {
                if let GangOrder::Form { index, .. } = gang {
                    formed.push((*index, *to));
                }
            }
        }
        formed.sort_unstable();
        formed.into_iter().map(|(_, to)| to).collect()
    }

    fn disbanded(&self) -> Vec<u64> {
        let is_told = |order: &Order| {
            order.gangs.iter().any(|gang| matches!(gang, GangOrder::Disband { .. }))
        };
        self.orders.iter().filter(|(_, order)| is_told(order)).map(|(to, _)| *to).collect()
    }
}

fn wide(nodes: u32) -> TaskClass {
    TaskClass { nodes, ranks_per_node: 2, ..TaskClass::default() }
}

fn of(class: TaskClass, count: u64) -> Submission {
    Submission { classes: vec![class], ..array(count) }
}

const KEY: GangKey =
    GangKey { instance: InstanceId(0), task: TaskId(0), tries: Tries { failures: 0, losses: 0 } };

/// The task has succeeded.
fn report(now: Time) -> Report {
    Report {
        instance: InstanceId(0),
        first: TaskId(0),
        count: 1,
        tries: Tries::default(),
        outcome: Outcome::Exit(0),
        started: now,
        ended: now,
        detail: None,
    }
}

#[test]
fn a_gang_is_formed_at_once_and_its_members_know_each_other() {
    let mut world = World::new();
    (1..=2).for_each(|number| world.join(number, None));
    world.submit(0, of(wide(3), 1));
    assert_eq!(world.formed(), [0; 0], "two are too few");
    world.join(3, None);
    assert_eq!(world.formed(), [1, 2, 3]);
    for (to, order) in world.orders.iter().filter(|(_, order)| !order.gangs.is_empty()) {
        let [GangOrder::Form { key, index, resources, ranks_per_node, members, .. }] =
            &order.gangs[..]
        else {
            panic!("{order:?}");
        };
        assert_eq!((*key, *resources == Resources::cpus(1), *ranks_per_node), (KEY, true, 2));
        let names: Vec<&str> = members.iter().map(|member| member.name.as_str()).collect();
        assert_eq!(names, ["n1", "n2", "n3"]);
        assert_eq!(u64::from(*index) + 1, *to);
        assert_eq!(order.assign.len(), usize::from(*to == 1), "the first one has the task");
    }
    // When the task has ended, all are told, and their room is free when they say so.
    let reports = vec![report(world.now)];
    world.update(1, Update { number: 1, reports, ..Update::default() });
    assert_eq!(world.disbanded(), [1, 2, 3]);
    let free = |world: &World| {
        let views = world.dispatcher.executor_views();
        views.filter(|view| view.free().cpus_milli > 0).count()
    };
    assert_eq!(free(&world), 0);
    for number in 1..=3 {
        let released = GangReport::Released { key: KEY, usage: None };
        world.update(number, Update { number: 2, gangs: vec![released], ..Update::default() });
    }
    assert_eq!(free(&world), 3);
}

#[test]
fn executors_of_one_allocation_are_preferred_and_the_smallest_that_suffices() {
    let mut world = World::new();
    for (number, allocation) in [(1, 7), (2, 8), (3, 8), (4, 8), (5, 9), (6, 9)] {
        world.join(number, Some(allocation));
    }
    world.submit(0, of(wide(2), 1));
    assert_eq!(world.formed(), [5, 6]);
    // Where none suffices, few have it.
    let mut world = World::new();
    for (number, allocation) in [(1, 7), (2, 8), (3, 8), (4, 9)] {
        world.join(number, Some(allocation));
    }
    world.submit(0, of(wide(3), 1));
    assert_eq!(world.formed()[..], [1, 2, 3]);
}

#[test]
fn a_gang_that_breaks_is_lost_once_and_forms_again() {
    let mut world = World::new();
    (1..=4).for_each(|number| world.join(number, None));
    world.submit(0, of(wide(2), 1));
    assert_eq!(world.formed(), [1, 2]);
    world.orders.clear();
    let broken = GangReport::Broken { key: KEY };
    world.update(2, Update { number: 1, gangs: vec![broken], ..Update::default() });
    assert_eq!(world.disbanded(), [1, 2]);
    let disowned = world.orders.iter().filter(|(_, order)| !order.disown.is_empty());
    assert_eq!(disowned.map(|(to, _)| *to).collect::<Vec<_>>(), [1]);
    assert_eq!(world.formed(), [3, 4]);
    let tries: Vec<Tries> = world
        .orders
        .iter()
        .flat_map(|(_, order)| &order.assign)
        .map(|assigned| assigned.tries)
        .collect();
    assert_eq!(tries, [Tries { failures: 0, losses: 1 }]);
}

#[test]
fn a_task_whose_command_has_ended_needs_its_gang_no_more() {
    let mut world = World::new();
    (1..=3).for_each(|number| world.join(number, None));
    world.submit(0, of(wide(3), 1));
    // The first one still stores what the command wrote.
    let released = || vec![GangReport::Released { key: KEY, usage: None }];
    world.update(1, Update { number: 1, gangs: released(), ..Update::default() });
    assert_eq!(world.disbanded(), [2, 3]);
    world.update(2, Update { number: 1, gangs: released(), ..Update::default() });
    // One of the others goes before it has said that it holds the gang no more.
    world.handle(Event::Closed { connection: ConnectionId(3) });
    while world.dispatcher.executor_views().count() > 2 {
        let (due, _) = world.dispatcher.poll_timeout().unwrap();
        world.now = world.now.max(due);
        world.dispatcher.handle_timeout(due);
        world.act();
        // The others are heard from.
        for number in [1, 2] {
            let (connection, update) = (ConnectionId(number), Update::default());
            world.handle(Event::Update { connection, update: Update { number: 2, ..update } });
        }
    }
    // The first one connects anew, and has the task.
    let held = Held { instance: InstanceId(0), first: TaskId(0), count: 1, tries: KEY.tries };
    let join = Join { held: vec![held], name: "n1".to_owned(), ..executor(1, 1) };
    world.orders.clear();
    world.handle(Event::Join { connection: ConnectionId(9), join });
    assert!(world.orders.iter().all(|(_, order)| order.disown.is_empty()), "{:?}", world.orders);
    let reports = vec![report(world.now)];
    world.update(9, Update { number: 1, reports, ..Update::default() });
    let counts = world.dispatcher.instance_view(InstanceId(0)).unwrap().counts();
    assert_eq!((counts.ended(), world.formed()), (1, vec![]), "it does not run again");
}

#[test]
fn a_dispatcher_without_random_numbers_asks_for_them_again_after_a_while() {
    let mut dispatcher = Dispatcher::new();
    let options = InstanceOptions::default();
    dispatcher.handle(Time(0), Event::Create { connection: CLIENT, request: 0, options });
    for number in 1..=2 {
        let (connection, join) = (ConnectionId(number), executor(number, 1));
        dispatcher.handle(Time(0), Event::Join { connection, join });
    }
    let (instance, first, submission) = (InstanceId(0), TaskId(0), of(wide(2), 1));
    let event =
        Event::Submit { client: 1, connection: CLIENT, request: 1, instance, first, submission };
    dispatcher.handle(Time(1), event);
    let (mut asked, mut now) = (0, Time(1));
    while asked < 5 {
        let draws = |action: &Action| matches!(action, Action::DrawTokens { .. });
        let count = actions(&mut dispatcher).iter().filter(|action| draws(action)).count();
        assert!(count <= 1, "it asks without a pause");
        asked += count;
        if count > 0 {
            dispatcher.handle(now, Event::TokensDrawn(Vec::new()));
        } else {
            now = dispatcher.poll_timeout().unwrap().0;
            dispatcher.handle_timeout(now);
        }
    }
    assert!(now > Time(1_000_000), "{now:?}");
}

#[test]
fn people_are_told_what_a_wide_task_waits_for() {
    let mut world = World::new();
    (1..=2).for_each(|number| world.join(number, None));
    world.submit(0, of(wide(3), 1));
    let obstacles = |world: &mut World, task| {
        world.dispatcher.explain(InstanceId(0), Some(TaskId(task))).remove(0).obstacles
    };
    let few = Obstacle::Nodes { nodes: 3, need: Resources::cpus(1), offering: 2, executors: 2 };
    assert_eq!(obstacles(&mut world, 0), [few]);
    world.join(3, None);
    world.submit(1, of(wide(3), 1));
    let found = obstacles(&mut world, 1);
    let Some(Obstacle::FewFree { nodes: 3, free: 0, kept, .. }) = found.first() else {
        panic!("{found:?}");
    };
    assert!(*kept, "room is kept for the next one: {found:?}");
}

#[test]
fn what_could_never_be_a_gang_is_refused() {
    let mut world = World::new();
    world.join(1, None);
    let auto = Resources { memory_bytes: AUTO_MEMORY, ..Resources::cpus(1) };
    let auto_cpus = Resources { cpus_milli: AUTO_CPUS, ..Resources::default() };
    let everywhere = Everywhere {
        joining: false,
        offering: Resources::default(),
        executors: Vec::new(),
        lent: None,
        only: None,
    };
    let wrong = [
        of(wide(GANG_NODES_MAX + 1), 1),
        of(TaskClass { ranks_per_node: NODE_RANKS_MAX + 1, ..TaskClass::default() }, 1),
        of(TaskClass { kind: Kind::Function, ..wide(2) }, 1),
        of(TaskClass { resources: auto, ..wide(2) }, 1),
        of(TaskClass { resources: auto_cpus, ..wide(2) }, 1),
        Submission { everywhere: Some(everywhere), ..of(wide(2), 1) },
    ];
    let refused = SubmissionError::Malformed(SubmissionPart::Nodes);
    for submission in wrong {
        world.submit(0, submission);
        assert_eq!(world.refused.pop(), Some(RequestError::Submission(refused.clone())));
    }
    world.submit(0, of(wide(GANG_NODES_MAX), 1));
    assert_eq!(world.refused, []);
}
