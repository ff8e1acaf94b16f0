//! Instances that nobody wants any more go, and their tasks and results with
//! them; what nobody offers now is waited for; whose tasks are whose.

use crate::fixture::{array, executor};
use falkon_core::dispatch::{
    Action, ConnectionId, Dispatcher, Event, Expiry, Held, InstanceOptions, Join, Keep, Record,
    Reply, RequestError, Update,
};
use falkon_core::limits::INSTANCES_MAX;
use falkon_core::result::{Outcome, Report};
use falkon_core::task::{InstanceId, Resources, Submission, TaskClass, TaskId, Time};

const CLIENT: ConnectionId = ConnectionId(0);
const OTHER: ConnectionId = ConnectionId(1);
const SECOND: u64 = 1_000_000;
const INSTANCE: InstanceId = InstanceId(0);

/// A dispatcher, and the records that a restarted one would read.
#[derive(Default)]
struct World {
    dispatcher: Dispatcher,
    journal: Vec<Record>,
    now: u64,
}

impl World {
    fn new(options: InstanceOptions) -> World {
        let mut world = World::default();
        world.tell(Event::Create { connection: CLIENT, request: 0, options });
        world
    }

    fn act(&mut self) -> Vec<Action> {
        let actions: Vec<Action> = std::iter::from_fn(|| self.dispatcher.poll_action()).collect();
        for action in &actions {
            if let Action::Journal(record) = action {
                self.journal.push(record.clone());
            }
        }
        self.dispatcher.check().unwrap();
        actions
    }

    fn tell(&mut self, event: Event) -> Vec<Action> {
        self.dispatcher.handle(Time(self.now), event);
        self.act()
    }

    /// Lets time pass, and all timers go off.
    fn pass(&mut self, seconds: u64) -> Vec<Action> {
        let end = self.now + seconds * SECOND;
        let mut actions = Vec::new();
        while let Some((at, _)) = self.dispatcher.poll_timeout().filter(|(at, _)| at.0 <= end) {
            self.now = self.now.max(at.0);
            self.dispatcher.handle_timeout(Time(self.now));
            actions.extend(self.act());
        }
        self.now = end;
        actions
    }

    fn submit(&mut self, connection: ConnectionId, client: u64, first: u64, cpus: u32) -> Reply {
        let submission = Submission {
            classes: vec![TaskClass { resources: Resources::cpus(cpus), ..TaskClass::default() }],
            ..array(2)
        };
        let (instance, first) = (INSTANCE, TaskId(first));
        let event = Event::Submit { connection, request: 1, instance, first, client, submission };
        self.tell(event).into_iter().find_map(reply).unwrap()
    }

    fn join(&mut self, connection: u64, cpus: u32) -> Vec<Action> {
        let join = Join { name: connection.to_string(), ..executor(connection, cpus) };
        self.tell(Event::Join { connection: ConnectionId(connection), join })
    }

    fn heartbeat(&mut self, connection: u64, number: u64) {
        let update = Update { number, ..Update::default() };
        self.tell(Event::Update { connection: ConnectionId(connection), update });
    }

    /// The executor says that both tasks have ended well.
    fn end_tasks(&mut self, connection: u64) {
        let (started, ended) = (Time(self.now), Time(self.now));
        let report = Report {
            instance: INSTANCE,
            first: TaskId(0),
            count: 2,
            tries: Default::default(),
            outcome: Outcome::Exit(0),
            started,
            ended,
            detail: None,
        };
        let update = Update { number: 1, reports: vec![report], ..Update::default() };
        self.tell(Event::Update { connection: ConnectionId(connection), update });
    }

    fn seal(&mut self) {
        self.tell(Event::Seal { connection: CLIENT, request: 2, instance: INSTANCE });
    }

    fn close(&mut self, connection: ConnectionId) {
        self.tell(Event::Closed { connection });
    }

    /// The dispatcher is started again, from its journal or from a snapshot.
    fn restart(&mut self, snapshot: bool, keep: Option<u64>) {
        let records = if snapshot { self.dispatcher.snapshot() } else { self.journal.clone() };
        self.dispatcher = Dispatcher::new();
        self.dispatcher.set_keep(keep);
        for record in records {
            self.dispatcher.recover(record).unwrap();
        }
        self.dispatcher.recovered(Time(self.now));
        self.act();
    }

    fn is_there(&self) -> bool {
        self.dispatcher.instance_view(INSTANCE).is_some()
    }

    fn expires(&self) -> Option<Time> {
        self.dispatcher.instance_view(INSTANCE).unwrap().lifetime().expires
    }
}

fn reply(action: Action) -> Option<Reply> {
    match action {
        Action::Reply { reply, .. } => Some(reply),
        _ => None,
    }
}

fn expired(actions: &[Action]) -> Vec<Expiry> {
    let expired = actions.iter().filter_map(|action| match action {
        Action::Expired { instance: INSTANCE, why, .. } => Some(*why),
        _ => None,
    });
    expired.collect()
}

fn leased() -> InstanceOptions {
    InstanceOptions { lease_micros: Some(120 * SECOND), ..InstanceOptions::default() }
}

fn kept(micros: u64) -> InstanceOptions {
    InstanceOptions { keep: Keep::Micros(micros), ..InstanceOptions::default() }
}

#[test]
fn what_a_vanished_client_had_is_stopped_and_freed_when_its_lease_is_over() {
    let mut world = World::new(leased());
    world.submit(CLIENT, 7, 0, 1);
    world.submit(CLIENT, 7, 2, 9);
    world.join(5, 2);
    world.close(CLIENT);
    assert_eq!(world.expires(), Some(Time(120 * SECOND)));
    // An executor that goes on for ever.
    let mut actions = Vec::new();
    for number in 1..=30 {
        actions.extend(world.pass(4));
        world.heartbeat(5, number);
    }
    actions.extend(world.act());
    assert_eq!(expired(&actions), [Expiry::Lease { micros: 120 * SECOND }]);
    assert!(!world.is_there());
    let disowned: Vec<Held> = actions
        .iter()
        .filter_map(|action| match action {
            Action::Order { order, .. } => Some(order.disown.clone()),
            _ => None,
        })
        .flatten()
        .collect();
    assert_eq!(disowned.iter().map(|held| held.count).sum::<u64>(), 2);
    let journaled = world.journal.iter().any(|record| {
        matches!(record, Record::Expired { instance: INSTANCE, at } if *at == Time(120 * SECOND))
    });
    assert!(journaled);
    // Whoever asks then hears what became of it, also after restarts.
    for snapshot in [false, true] {
        let at = Time(120 * SECOND);
        let gone = Reply::Refused(RequestError::Expired { instance: INSTANCE, at });
        assert_eq!(world.submit(OTHER, 7, 4, 1), gone);
        world.restart(snapshot, None);
        let id = world.dispatcher.expired_instances().collect::<Vec<_>>();
        assert_eq!(id, [INSTANCE]);
    }
    let text = RequestError::Expired { instance: INSTANCE, at: Time(0) }.to_string();
    assert!(text.contains("instance 0 has expired") && text.contains("1970-01-01T"), "{text}");
}

#[test]
fn a_client_that_comes_back_in_time_keeps_its_instance() {
    let mut world = World::new(leased());
    for connection in 1..5 {
        world.close(ConnectionId(connection - 1));
        assert_eq!(expired(&world.pass(119)), []);
        let connection = ConnectionId(connection);
        let subscribe = Event::Subscribe { connection, request: 1, instance: INSTANCE, from: 0 };
        world.tell(subscribe);
        assert_eq!(world.expires(), None);
        // Nothing happens for as long as it is connected.
        assert_eq!(expired(&world.pass(1_000_000)), []);
    }
    // With two connections, the last one counts.
    world.tell(Event::Seal { connection: CLIENT, request: 2, instance: INSTANCE });
    world.close(ConnectionId(4));
    assert_eq!(expired(&world.pass(1_000_000)), []);
    world.close(CLIENT);
    assert_eq!(expired(&world.pass(120)).len(), 1);
}

#[test]
fn a_lease_begins_anew_with_the_dispatcher() {
    for snapshot in [false, true] {
        let mut world = World::new(leased());
        world.submit(CLIENT, 7, 0, 9);
        world.close(CLIENT);
        world.pass(100);
        world.restart(snapshot, None);
        assert_eq!(expired(&world.pass(119)), []);
        assert_eq!(expired(&world.pass(1)).len(), 1);
    }
}

#[test]
fn results_that_nobody_looks_at_go_when_they_are_old() {
    for (options, default) in [
        (kept(1000 * SECOND), None),
        (kept(1000 * SECOND), Some(SECOND)),
        (InstanceOptions::default(), Some(1000 * SECOND)),
    ] {
        for restart in [None, Some(false), Some(true)] {
            let mut world = World::default();
            world.dispatcher.set_keep(default);
            let options = options.clone();
            world.tell(Event::Create { connection: CLIENT, request: 0, options });
            world.submit(CLIENT, 7, 0, 1);
            world.seal();
            world.close(CLIENT);
            // What waits is not old, however long it waits.
            assert_eq!(expired(&world.pass(5000)), []);
            assert_eq!(world.expires(), None);
            world.join(5, 2);
            world.end_tasks(5);
            world.close(ConnectionId(5));
            assert_eq!(world.expires(), Some(Time(6000 * SECOND)));
            assert_eq!(expired(&world.pass(600)), []);
            if let Some(snapshot) = restart {
                world.restart(snapshot, default);
                assert_eq!(world.expires(), Some(Time(6000 * SECOND)));
            }
            // Somebody looks.
            world.dispatcher.look(Time(world.now), INSTANCE).unwrap();
            world.act();
            assert_eq!(world.expires(), Some(Time(6600 * SECOND)));
            if let Some(snapshot) = restart {
                world.restart(snapshot, default);
                assert_eq!(world.expires(), Some(Time(6600 * SECOND)));
            }
            assert_eq!(expired(&world.pass(999)), []);
            assert_eq!(expired(&world.pass(1)), [Expiry::Age { micros: 1000 * SECOND }]);
        }
    }
}

#[test]
fn what_is_kept_for_ever_stays() {
    let forever = InstanceOptions { keep: Keep::Forever, ..InstanceOptions::default() };
    for (options, default) in [(forever, Some(SECOND)), (InstanceOptions::default(), None)] {
        let mut world = World::default();
        world.dispatcher.set_keep(default);
        world.tell(Event::Create { connection: CLIENT, request: 0, options });
        world.seal();
        world.close(CLIENT);
        assert_eq!(expired(&world.pass(1 << 32)), []);
        assert!(world.is_there());
    }
}

fn failing() -> InstanceOptions {
    let fail_unschedulable_micros = Some(30 * SECOND);
    InstanceOptions { fail_unschedulable_micros, ..InstanceOptions::default() }
}

#[test]
fn what_nobody_offers_for_a_moment_does_not_fail() {
    let mut world = World::new(failing());
    world.join(5, 1);
    world.join(6, 9);
    world.submit(CLIENT, 7, 0, 9);
    // The only one that offers it goes, is given up, and another one comes.
    world.close(ConnectionId(6));
    for number in 1..=6 {
        world.pass(4);
        world.heartbeat(5, number);
    }
    let view = |world: &World| {
        let view = world.dispatcher.instance_view(INSTANCE).unwrap();
        (view.counts().failed, view.unschedulable().len())
    };
    assert_eq!(view(&world), (0, 1));
    world.join(7, 9);
    assert_eq!(view(&world), (0, 0));
    // The next time counts anew.
    world.close(ConnectionId(7));
    let mut number = 7;
    while view(&world).0 == 0 {
        world.pass(1);
        world.heartbeat(5, number);
        number += 1;
        assert!(number < 60, "it never fails");
    }
    // Three seconds until the executor is given up, and thirty.
    assert!((7 + 32..=7 + 35).contains(&number), "{number}");
    assert_eq!(view(&world), (2, 0));
}

#[test]
fn what_a_provisioner_can_get_does_not_fail() {
    let mut world = World::new(failing());
    world.join(5, 1);
    world.dispatcher.set_obtainable(vec![Some(Resources::cpus(4)), Some(Resources::cpus(16))]);
    world.submit(CLIENT, 7, 0, 9);
    let failed = |world: &World| world.dispatcher.instance_view(INSTANCE).unwrap().counts().failed;
    let wait = |world: &mut World, seconds: u64| {
        for _ in 0..seconds {
            world.pass(1);
            let number = world.now;
            world.heartbeat(5, number);
        }
    };
    wait(&mut world, 100);
    assert_eq!(failed(&world), 0);
    // Of which it is not known yet what its nodes offer.
    world.dispatcher.set_obtainable(vec![None]);
    wait(&mut world, 100);
    assert_eq!(failed(&world), 0);
    world.dispatcher.set_obtainable(vec![Some(Resources::cpus(4))]);
    world.act();
    wait(&mut world, 29);
    assert_eq!(failed(&world), 0);
    wait(&mut world, 2);
    assert_eq!(failed(&world), 2);
}

#[test]
fn what_a_client_sends_again_is_told_from_what_another_sends() {
    for restart in [None, Some(false), Some(true)] {
        let mut world = World::new(InstanceOptions::default());
        let accepted = |first| Reply::Accepted { first: TaskId(first), count: 2 };
        let gap = |expected, found| {
            let (expected, found) = (TaskId(expected), TaskId(found));
            Reply::Refused(RequestError::Gap { expected, found })
        };
        assert_eq!(world.submit(CLIENT, 7, 0, 1), accepted(0));
        if let Some(snapshot) = restart {
            world.restart(snapshot, None);
        }
        assert_eq!(world.submit(OTHER, 8, 0, 1), gap(2, 0), "another's are not dropped");
        assert_eq!(world.submit(OTHER, 8, 2, 1), accepted(2));
        assert_eq!(world.submit(CLIENT, 7, 2, 1), gap(4, 2));
        assert_eq!(world.submit(OTHER, 7, 0, 1), accepted(0), "over another connection");
        assert_eq!(world.submit(OTHER, 8, 2, 1), accepted(2));
        // Who does not say who it is, is nobody.
        assert_eq!(world.submit(OTHER, 0, 4, 1), accepted(4));
        assert_eq!(world.submit(OTHER, 0, 4, 1), gap(6, 4));
        assert_eq!(world.dispatcher.instance_view(INSTANCE).unwrap().counts().total, 6);
    }
}

#[test]
fn a_thousand_clients_of_one_instance_are_told_apart_within_a_bound() {
    let mut world = World::new(InstanceOptions::default());
    for client in 1..=2000 {
        let first = 2 * (client - 1);
        let accepted = Reply::Accepted { first: TaskId(first), count: 2 };
        assert_eq!(world.submit(CLIENT, client, first, 1), accepted);
        assert_eq!(world.submit(CLIENT, client, first, 1), accepted);
    }
    // Nobody knows the first any more: it is refused, and nothing is lost.
    let forgotten = RequestError::Gap { expected: TaskId(4000), found: TaskId(0) };
    assert_eq!(world.submit(CLIENT, 1, 0, 1), Reply::Refused(forgotten));
    let submitters = world.dispatcher.snapshot().into_iter();
    let submitters = submitters.filter(|record| matches!(record, Record::Submitters { .. }));
    assert_eq!(submitters.count(), falkon_core::limits::SUBMITTER_NAMES_MAX);
}

/// However many instances a client has left behind, another finds room for its
/// own; nothing that has a task or a client goes.
#[test]
fn instances_that_nobody_uses_give_way_to_new_ones() {
    let mut world = World::new(InstanceOptions::default());
    world.submit(CLIENT, 7, 0, 1);
    let (left, stays) = (ConnectionId(7), ConnectionId(8));
    let create =
        |connection| Event::Create { connection, request: 0, options: InstanceOptions::default() };
    for at in 1..INSTANCES_MAX {
        let connection = if at % 2 == 0 { left } else { stays };
        world.dispatcher.handle(Time(world.now), create(connection));
    }
    world.tell(Event::Closed { connection: CLIENT });
    world.tell(Event::Closed { connection: left });
    let refused = Reply::Refused(RequestError::TooManyInstances { instances: 65_536 });
    let created = |world: &mut World| {
        let actions = world.tell(create(OTHER));
        let expired = actions.iter().find_map(|action| match action {
            Action::Expired { instance, why, .. } => Some((*instance, *why)),
            _ => None,
        });
        (expired, actions.into_iter().find_map(reply).unwrap())
    };
    world.pass(59);
    assert_eq!(created(&mut world), (None, refused.clone()));
    world.pass(1);
    for at in 0..INSTANCES_MAX as u64 / 2 - 1 {
        let gone = Some((InstanceId(2 + 2 * at), Expiry::Vacant));
        let new = Reply::Created(InstanceId(INSTANCES_MAX as u64 + at));
        if at < 3 {
            assert_eq!(created(&mut world), (gone, new));
        } else {
            // Without the check after each step, which looks at all instances.
            world.dispatcher.handle(Time(world.now), create(OTHER));
            while world.dispatcher.poll_action().is_some() {}
        }
    }
    assert_eq!(created(&mut world), (None, refused.clone()));
    // After a restart all clients have as long to come back.
    world.restart(true, None);
    assert_eq!(created(&mut world), (None, refused));
    world.tell(Event::Closed { connection: OTHER });
    world.pass(60);
    let (gone, new) = created(&mut world);
    assert!(gone.is_some_and(|(id, why)| id != INSTANCE && why == Expiry::Vacant), "{gone:?}");
    assert!(matches!(new, Reply::Created(_)), "{new:?}");
    assert!(world.dispatcher.instance_view(INSTANCE).is_some());
}
