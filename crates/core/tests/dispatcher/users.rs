//! Users: whose instances are, what each user may have, and what a removal does.

use crate::fixture::{actions, array, executor, orders};
use falkon_core::dispatch::{
    Action, ConnectionId, Dispatcher, Event, InstanceOptions, Record, Reply, RequestError,
    Selection, UserLimits,
};
use falkon_core::limits::{SHARE_HALF_MICROS, UNSET_INSTANCES_MAX, VACANT_INSTANCE_MICROS};
use falkon_core::task::{InstanceId, Resources, Submission, TaskClass, TaskId, Time, UserId};

const ALICE: UserId = UserId(7);
const BOB: UserId = UserId(8);
/// Connections of users have their numbers.
const NODE: ConnectionId = ConnectionId(1);

struct World {
    dispatcher: Dispatcher,
    now: Time,
}

impl World {
    fn new(limits: UserLimits) -> World {
        let mut world = World { dispatcher: Dispatcher::new(), now: Time(1) };
        world.handle(Event::UserSet { user: ALICE, limits });
        world.handle(Event::UserSet { user: BOB, limits: UserLimits::default() });
        for user in [ALICE, BOB] {
            world.handle(Event::SpeaksFor { connection: ConnectionId(user.0), user });
        }
        world
    }

    fn handle(&mut self, event: Event) {
        self.now = self.now.after(1);
        self.dispatcher.handle(self.now, event);
    }

    fn reply(&mut self, event: Event) -> Reply {
        self.handle(event);
        let reply = actions(&mut self.dispatcher).into_iter().find_map(|action| match action {
            Action::Reply { reply, .. } => Some(reply),
            _ => None,
        });
        reply.unwrap()
    }

    fn create(&mut self, user: UserId) -> InstanceId {
        let options = InstanceOptions::default();
        let connection = ConnectionId(user.0);
        match self.reply(Event::Create { connection, request: 0, options }) {
            Reply::Created(instance) => instance,
            other => panic!("{other:?}"),
        }
    }

    /// Whether a user is refused another instance, with how many there are and may be.
    fn is_refused(&mut self, user: UserId) -> Option<(u64, u64)> {
        let options = InstanceOptions::default();
        match self.reply(Event::Create { connection: ConnectionId(user.0), request: 0, options }) {
            Reply::Created(_) => None,
            Reply::Refused(RequestError::OverInstances { instances, instances_max }) => {
                Some((instances, instances_max))
            }
            other => panic!("{other:?}"),
        }
    }

    fn destroy(&mut self, instance: InstanceId) {
        let event = Event::Destroy { connection: ConnectionId(7), request: 0, instance };
        assert_eq!(self.reply(event), Reply::Done);
    }

    fn submit(&mut self, instance: InstanceId, submission: Submission) -> Reply {
        let first = self.dispatcher.instance_view(instance).unwrap().counts().total;
        let (connection, first) = (ConnectionId(BOB.0), TaskId(first));
        self.reply(Event::Submit { connection, request: 0, instance, first, client: 1, submission })
    }

    fn cancel(&mut self, instance: InstanceId, count: u64) {
        let selection = Selection::Runs(vec![(0, count)]);
        let connection = ConnectionId(ALICE.0);
        let reply = self.reply(Event::Cancel { connection, request: 0, instance, selection });
        assert_eq!(reply, Reply::Done);
    }
}

fn of_cpus(count: u64, cpus: u32) -> Submission {
    let class = TaskClass { resources: Resources::cpus(cpus), ..TaskClass::default() };
    Submission { classes: vec![class], ..array(count) }
}

fn accepted(first: u64, count: u64) -> Reply {
    Reply::Accepted { first: TaskId(first), count }
}

#[test]
fn instances_are_those_of_who_created_them_also_after_a_restart() {
    let mut world = World::new(UserLimits::default());
    let (alices, bobs) = (world.create(ALICE), world.create(BOB));
    let owners = world.create(UserId(9));
    let check = |dispatcher: &Dispatcher| {
        let of = [alices, bobs, owners].map(|id| dispatcher.user_of(id));
        assert_eq!(of, [ALICE, BOB, UserId::OWNER]);
        assert!(dispatcher.instances_of(ALICE).eq([alices]));
    };
    check(&world.dispatcher);
    let mut again = Dispatcher::new();
    for record in world.dispatcher.snapshot() {
        again.recover(record).unwrap();
    }
    again.recovered(world.now);
    check(&again);
    // A number that is gone is nobody's.
    let destroy = Event::Destroy { connection: ConnectionId(7), request: 0, instance: alices };
    assert_eq!(world.reply(destroy), Reply::Done);
    assert_eq!(world.dispatcher.user_of(alices), UserId::OWNER);
    let records = world.dispatcher.snapshot();
    assert!(!records.contains(&Record::Owned { instance: alices, user: ALICE }));
}

#[test]
fn a_quota_of_tasks_pushes_back_until_some_have_ended() {
    let limits = UserLimits { tasks_max: Some(10), ..UserLimits::default() };
    let mut world = World::new(limits);
    let (one, other) = (world.create(ALICE), world.create(ALICE));
    assert_eq!(world.submit(one, array(6)), accepted(0, 6));
    let over =
        |queued, wanted| Reply::Refused(RequestError::OverTasks { queued, wanted, tasks_max: 10 });
    // All instances of a user together.
    assert_eq!(world.submit(other, array(5)), over(6, 5));
    assert_eq!(world.submit(other, array(4)), accepted(0, 4));
    assert_eq!(world.submit(one, array(1)), over(10, 1));
    world.cancel(one, 3);
    assert_eq!(world.submit(one, array(4)), over(7, 4));
    assert_eq!(world.submit(one, array(3)), accepted(6, 3));
    // Another user has nothing to do with that.
    let bobs = world.create(BOB);
    assert_eq!(world.submit(bobs, array(1_000)), accepted(0, 1_000));
}

#[test]
fn a_quota_of_bytes_pushes_back_until_there_are_fewer() {
    let limits = UserLimits { bytes_max: Some(1_000), ..UserLimits::default() };
    let mut world = World::new(limits);
    let (one, other) = (world.create(ALICE), world.create(ALICE));
    let large = || Submission { template: vec![7; 600].into(), ..array(2) };
    assert_eq!(world.submit(one, large()), accepted(0, 2));
    let refused = world.submit(other, large());
    let is_over = |reply: &Reply| {
        matches!(reply, Reply::Refused(RequestError::OverBytes { bytes_max: 1_000, .. }))
    };
    assert!(is_over(&refused), "{refused:?}");
    let destroy = Event::Destroy { connection: ConnectionId(7), request: 0, instance: one };
    assert_eq!(world.reply(destroy), Reply::Done);
    assert_eq!(world.submit(other, large()), accepted(0, 2));
}

#[test]
fn slots_bound_what_is_in_flight_and_tasks_go_on_as_others_end() {
    let limits = UserLimits { slots_max: Some(3), ..UserLimits::default() };
    let mut world = World::new(limits);
    let (one, other) = (world.create(ALICE), world.create(ALICE));
    let refused = world.submit(one, of_cpus(1, 4));
    assert_eq!(refused, Reply::Refused(RequestError::OverSlots { wanted: 4, slots_max: 3 }));
    assert_eq!(world.submit(one, of_cpus(10, 2)), accepted(0, 10));
    assert_eq!(world.submit(other, of_cpus(10, 1)), accepted(0, 10));
    world.handle(Event::Join { connection: NODE, join: executor(1, 16) });
    let sent = |world: &mut World| {
        let orders = orders(&mut world.dispatcher);
        let tasks = orders.iter().flat_map(|(_, order)| &order.assign);
        tasks.map(|assigned| assigned.count).sum::<u64>()
    };
    let first = sent(&mut world);
    assert_eq!(world.dispatcher.use_of(ALICE).slots_milli, 3_000, "{first} tasks");
    // Another user has the rest.
    let bobs = world.create(BOB);
    world.handle(Event::Submit {
        connection: ConnectionId(BOB.0),
        request: 0,
        instance: bobs,
        first: TaskId(0),
        client: 1,
        submission: of_cpus(100, 1),
    });
    assert_eq!(sent(&mut world), 13);
    // Levels are written down now and then, also of one who may have nothing more.
    world.now = world.now.after(40 * SHARE_HALF_MICROS);
    world.handle(Event::UserSet { user: BOB, limits: UserLimits::default() });
    sent(&mut world);
    // The tasks of the first instance are gone with it: there is room for the other's.
    let destroy = Event::Destroy { connection: ConnectionId(7), request: 0, instance: one };
    world.handle(destroy);
    sent(&mut world);
    let has = world.dispatcher.use_of(ALICE).slots_milli;
    assert!(has <= 3_000, "{has}");
}

#[test]
fn a_quota_of_instances_refuses_more_until_some_are_gone() {
    let limits = UserLimits { instances_max: Some(2), ..UserLimits::default() };
    let mut world = World::new(limits);
    let (one, _) = (world.create(ALICE), world.create(ALICE));
    assert_eq!(world.is_refused(ALICE), Some((2, 2)));
    world.destroy(one);
    assert_eq!(world.is_refused(ALICE), None);
    // What is more than a lowered quota stays.
    let lower = UserLimits { instances_max: Some(1), ..limits };
    world.handle(Event::UserSet { user: ALICE, limits: lower });
    assert_eq!(world.is_refused(ALICE), Some((2, 1)));
    let higher = UserLimits { instances_max: Some(3), ..limits };
    world.handle(Event::UserSet { user: ALICE, limits: higher });
    assert_eq!(world.is_refused(ALICE), None);
    assert_eq!(world.is_refused(ALICE), Some((3, 3)));
    // One without tasks whose client has been away for long makes room.
    world.handle(Event::Closed { connection: ConnectionId(ALICE.0) });
    world.handle(Event::SpeaksFor { connection: ConnectionId(ALICE.0), user: ALICE });
    assert_eq!(world.is_refused(ALICE), Some((3, 3)));
    world.now = world.now.after(VACANT_INSTANCE_MICROS);
    assert_eq!(world.is_refused(ALICE), None);
    assert_eq!(world.dispatcher.use_of(ALICE).instances, 3);
    // Those of others, and those that have expired, do not count.
    for _ in 0..UNSET_INSTANCES_MAX {
        world.create(BOB);
    }
    let most = UNSET_INSTANCES_MAX;
    assert_eq!(world.is_refused(BOB), Some((most, most)));
    // Instances without tasks expire when nobody is there for them.
    world.dispatcher.set_keep(Some(1_000_000));
    world.handle(Event::Closed { connection: ConnectionId(BOB.0) });
    while let Some((at, _)) = world.dispatcher.poll_timeout() {
        world.now = at;
        world.dispatcher.handle_timeout(at);
        actions(&mut world.dispatcher);
        if world.dispatcher.use_of(BOB).instances == 0 {
            break;
        }
    }
    world.handle(Event::SpeaksFor { connection: ConnectionId(BOB.0), user: BOB });
    assert_eq!(world.is_refused(BOB), None);
}

#[test]
fn limits_that_change_hold_for_what_comes_and_not_for_what_is_there() {
    let limits = UserLimits { slots_max: Some(2), tasks_max: Some(10), ..UserLimits::default() };
    let mut world = World::new(limits);
    let instance = world.create(ALICE);
    assert_eq!(world.submit(instance, of_cpus(10, 1)), accepted(0, 10));
    world.handle(Event::Join { connection: NODE, join: executor(1, 16) });
    let in_flight = |world: &mut World| {
        orders(&mut world.dispatcher);
        world.dispatcher.use_of(ALICE).slots_milli
    };
    assert_eq!(in_flight(&mut world), 2_000);
    // Tasks that were held back go on at once.
    let higher = UserLimits { slots_max: Some(6), ..limits };
    world.handle(Event::UserSet { user: ALICE, limits: higher });
    assert_eq!(in_flight(&mut world), 6_000);
    // Tasks in flight stay, and no more are sent.
    let lower = UserLimits { slots_max: Some(1), tasks_max: Some(4), ..limits };
    world.handle(Event::UserSet { user: ALICE, limits: lower });
    assert_eq!(in_flight(&mut world), 6_000);
    assert_eq!(world.dispatcher.use_of(ALICE).tasks, 10);
    let over = RequestError::OverTasks { queued: 10, wanted: 1, tasks_max: 4 };
    assert_eq!(world.submit(instance, array(1)), Reply::Refused(over));
    assert_eq!(
        world.submit(instance, of_cpus(1, 2)),
        Reply::Refused(RequestError::OverSlots { wanted: 2, slots_max: 1 })
    );
    world.handle(Event::UserSet { user: ALICE, limits: UserLimits::default() });
    assert!(in_flight(&mut world) >= 10_000);
    assert_eq!(world.submit(instance, array(1)), accepted(10, 1));
}

#[test]
fn a_removal_cancels_what_has_not_ended_or_keeps_it() {
    for keeps in [false, true] {
        let mut world = World::new(UserLimits::default());
        let (alices, bobs) = (world.create(ALICE), world.create(BOB));
        for instance in [alices, bobs] {
            assert_eq!(world.submit(instance, array(5)), accepted(0, 5));
        }
        world.handle(Event::UserRevoked { user: ALICE, keeps });
        actions(&mut world.dispatcher);
        let counts = |id| world.dispatcher.instance_view(id).unwrap().counts();
        let cancelled = if keeps { 0 } else { 5 };
        assert_eq!((counts(alices).cancelled, counts(bobs).cancelled), (cancelled, 0));
        // The instance stays the user's, for the owner to look at.
        assert_eq!(world.dispatcher.user_of(alices), ALICE);
        // One who creates an instance over a connection that is not closed yet is nobody.
        let late = world.create(ALICE);
        assert_eq!(world.dispatcher.user_of(late), UserId::OWNER);
        let destroy = Event::Destroy { connection: ConnectionId(7), request: 0, instance: alices };
        assert_eq!(world.reply(destroy), Reply::Done);
        world.handle(Event::UserForgotten { user: ALICE });
        actions(&mut world.dispatcher);
    }
}
