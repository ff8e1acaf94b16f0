//! What there may be any number of beside the steps of the story.
//!
//! Not among it, as each round of placing costs more beside more of it: needs that
//! nobody offers of tasks that fail for that (looked at one by one, for each whether
//! an executor offers it); priorities of tasks that need what an idle executor has
//! not, by a name of the site's; instances whose tasks fit no executor that has room;
//! queues of tasks that wait for executors with their data.

use crate::stories::{Story, TIMES};
use crate::story::{CLIENT, CLIENTS, EXECUTORS, INSTANCE, World, many, one, with};
use falkon_core::data::declared::{Declared, Lists, Serving};
use falkon_core::data::object::{Object, ObjectId};
use falkon_core::data::stage::Changes;
use falkon_core::dispatch::diffusion::{PolicyName, PolicyOptions};
use falkon_core::dispatch::{ConnectionId, Event, InstanceOptions, Join, Lease, Selection, Update};
use falkon_core::task::{After, InstanceId, Resources, Submission, TaskClass, TaskId};
use std::sync::Arc;

/// A client of backgrounds.
const OTHER: ConnectionId = ConnectionId(CLIENTS);
/// The first executor of backgrounds.
const BACK: ConnectionId = ConnectionId(EXECUTORS);
const SIZES: [u64; 3] = [100, 1_000, 5_000];

const fn story(name: &'static str, tell: fn(u64)) -> Story {
    Story { name, sizes: SIZES, times: TIMES, about: &[], tell }
}

pub(crate) const STORIES: [Story; 19] = [
    story("queued tasks of another instance", |size| {
        let (mut world, other) = two();
        (0..size).for_each(|_| world.submit(other, one(with("never", 1, 1))));
        world.tell_story();
    }),
    story("queued tasks of the same instance, for an executor that is full", |size| {
        let mut world = busy();
        (0..size).for_each(|_| world.submit(INSTANCE, one(with("back", 1, 1))));
        world.tell_story();
    }),
    story("needs that nobody offers", |size| {
        let (mut world, other) = two();
        (0..size).for_each(|at| world.submit(other, one(remembering(1 << 50, at))));
        world.tell_story();
    }),
    Story {
        // A search looks at blocks of 64 needs, up to 64 of them, one by one.
        times: 2.5,
        ..story("needs of one submission, for an executor that is full", |size| {
            let mut world = busy();
            let classes = (0..size).map(|at| TaskClass {
                resources: Resources { memory_bytes: 1 + at, ..with("back", 1, 1) },
                ..TaskClass::default()
            });
            let submission = Submission {
                classes: classes.collect(),
                class_runs: (0..size as u32).map(|class| (1, class)).collect(),
                ..many(size, Resources::default())
            };
            world.submit(INSTANCE, submission);
            world.tell_story();
        })
    },
    Story {
        // Whether one of them takes a task that is new, or ready again, and that the
        // others cannot run is seen by looking at each once.
        about: &["tasks that nobody can run are submitted", "an executor is given up"],
        ..story("idle executors", |size| {
            let mut world = World::new(passing());
            (0..size).for_each(|at| world.join(ConnectionId(EXECUTORS + at), with("idle", 1, 1)));
            world.tell_story();
        })
    },
    story("busy executors", |size| {
        let (mut world, other) = two();
        (0..size).for_each(|at| world.join(ConnectionId(EXECUTORS + at), with("back", 1, 1)));
        world.submit(other, many(size, with("back", 1, 1)));
        world.tell_story();
    }),
    story("busy executors, and as many tasks that wait for them", |size| {
        let (mut world, other) = two();
        (0..size).for_each(|at| world.join(ConnectionId(EXECUTORS + at), with("back", 1, 1)));
        world.submit(other, many(2 * size, with("back", 1, 1)));
        world.tell_story();
    }),
    story("instances without tasks", |size| {
        let mut world = World::new(passing());
        (0..size).for_each(|at| {
            world.create(ConnectionId(CLIENTS + at), passing());
        });
        world.tell_story();
    }),
    story("instances with a task that runs", |size| {
        let mut world = World::new(passing());
        world.join(BACK, with("back", 1 << 20, 1 << 20));
        for at in 0..size {
            let other = world.create(ConnectionId(CLIENTS + at), passing());
            world.submit(other, one(with("back", 1, 1)));
        }
        world.tell_story();
    }),
    story("fragments of a run", |size| {
        let mut world = World::new(passing());
        world.submit(INSTANCE, many(2 * size, with("never", 1, 1)));
        cancel_every_other(&mut world, size);
        world.tell_story();
    }),
    story("fragments of a run of which the rest runs", |size| {
        let mut world = World::new(passing());
        world.submit(INSTANCE, many(2 * size, with("back", 1, 1)));
        cancel_every_other(&mut world, size);
        world.join(BACK, with("back", 1 << 20, 1 << 20));
        world.tell_story();
    }),
    story("results that are kept", |size| {
        let mut world = World::new(InstanceOptions::default());
        world.submit(INSTANCE, many(2 * size, with("never", 1, 1)));
        cancel_every_other(&mut world, size);
        world.tell_story();
    }),
    story("tasks that wait for one", |size| {
        let mut world = World::new(passing());
        let first = world.tasks[&INSTANCE];
        world.submit(INSTANCE, one(with("never", 1, 1)));
        for _ in 0..size {
            let after = vec![After { offset: 0, tasks: vec![TaskId(first)], takes: 0 }];
            world.submit(INSTANCE, Submission { after, ..one(with("front", 1, 1)) });
        }
        world.tell_story();
    }),
    story("tasks that wait for one another", |size| {
        let mut world = World::new(passing());
        world.submit(INSTANCE, one(with("never", 1, 1)));
        for _ in 0..size {
            let last = TaskId(world.tasks[&INSTANCE] - 1);
            let after = vec![After { offset: 0, tasks: vec![last], takes: 0 }];
            world.submit(INSTANCE, Submission { after, ..one(with("front", 1, 1)) });
        }
        world.tell_story();
    }),
    story("tasks that the same executor has, with templates of their own", |size| {
        let mut world = World::with_front(passing(), 1 << 20);
        let other = world.create(OTHER, passing());
        for at in 0..size {
            let template = Arc::new(at.to_be_bytes().to_vec());
            world.submit(other, Submission { template, ..one(with("front", 1, 1)) });
        }
        world.front.clear();
        world.tell_story();
    }),
    story("tasks that another executor has", |size| {
        let (mut world, other) = two();
        world.join(BACK, with("back", 1 << 20, 1 << 20));
        (0..size).for_each(|_| world.submit(other, one(with("back", 1, 1))));
        world.tell_story();
    }),
    story("clients that read another instance", |size| {
        let (mut world, other) = two();
        for at in 1..size {
            let connection = ConnectionId(CLIENTS + at);
            world.tell(Event::Subscribe { connection, request: 0, instance: other, from: 0 });
        }
        world.tell_story();
    }),
    story("objects in the cache of another executor", |size| {
        let mut world = World::new(passing());
        world.caches(BACK, with("back", 4, 4), (0..size).map(object).collect());
        world.tell_story();
    }),
    story("tasks that wait for an executor with their object", |size| {
        let mut world = World::new(passing());
        world.caches(BACK, with("back", 1, 1), (0..size).map(object).collect());
        let other = world.create(OTHER, diffusing(PolicyName::MaxCacheHit));
        world.submit(other, one(with("back", 1, 1)));
        (0..size).for_each(|at| world.submit(other, reading(at, with("back", 1, 1))));
        world.tell_story();
    }),
];

/// Results go once they are acknowledged.
fn passing() -> InstanceOptions {
    InstanceOptions { keep_results: false, ..InstanceOptions::default() }
}

fn diffusing(policy: PolicyName) -> InstanceOptions {
    InstanceOptions { policy: PolicyOptions { policy, ..PolicyOptions::default() }, ..passing() }
}

/// A world with another instance.
fn two() -> (World, InstanceId) {
    let mut world = World::new(passing());
    let other = world.create(OTHER, passing());
    (world, other)
}

/// A world with another executor, whose slots have tasks of the story's instance
/// that do not end.
fn busy() -> World {
    let mut world = World::new(passing());
    world.join(BACK, Resources { memory_bytes: 1 << 40, ..with("back", 4, 4) });
    world.submit(INSTANCE, many(4, with("back", 1, 1)));
    world
}

/// More memory than an executor has, and no two alike.
fn remembering(bytes: u64, at: u64) -> Resources {
    Resources { memory_bytes: bytes + at, ..Resources::cpus(1) }
}

/// Of the latest tasks, every other one ends, one by one.
fn cancel_every_other(world: &mut World, count: u64) {
    let first = world.tasks[&INSTANCE] - 2 * count;
    for at in 0..count {
        let selection = Selection::Runs(vec![(first + 2 * at, 1)]);
        let (connection, instance) = (CLIENT, INSTANCE);
        world.tell(Event::Cancel { connection, request: 0, instance, selection });
        world.acknowledge();
    }
}

fn object(at: u64) -> Object {
    Object {
        id: ObjectId(u128::from(at) << 64 | 1),
        url: format!("/store/{at}").into(),
        version: "1".into(),
        size: Some(1_000),
    }
}

/// A task that reads one object.
fn reading(at: u64, resources: Resources) -> Submission {
    let data = Declared {
        objects: Arc::new(vec![object(at)]),
        inputs: Lists::Same(vec![0]),
        outputs: Lists::default(),
    };
    Submission { data: Some(Arc::new(data)), ..one(resources) }
}

impl World {
    /// An executor that holds these objects.
    fn caches(&mut self, connection: ConnectionId, capacity: Resources, objects: Vec<Object>) {
        let join = Join {
            gangs: Vec::new(),
            alternatives: Vec::new(),
            serves: Some(Serving { address: "a:1".to_owned(), fingerprint: vec![1] }),
            cache: Default::default(),
            lease: Lease::default(),
            incarnation: u64::MAX,
            name: String::new(),
            capacity,
            held: Vec::new(),
            reports: Vec::new(),
        };
        self.tell(Event::Join { connection, join });
        let added = objects.iter().map(|object| (object.id, 1_000)).collect();
        let changes = Changes { anew: true, added, ..Changes::default() };
        let cache = Some(Box::new(changes));
        let event = self.update(connection, Update { cache, ..Update::default() });
        self.tell(event);
    }
}
