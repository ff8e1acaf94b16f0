//! Questions about data objects, and objects that are put into caches by hand.

use crate::fixture::{array, executor};
use falkon_core::data::cache::{CacheOptions, Eviction, TierId};
use falkon_core::data::declared::{Declared, Lists, Serving};
use falkon_core::data::object::{Object, ObjectId};
use falkon_core::data::stage::{self, CacheState, Changes, Requester, StageOptions, WriteError};
use falkon_core::dispatch::{
    AccessError, Action, ConnectionId, Dispatcher, Event, InstanceOptions, Join, NodeClass,
    Purpose, Scope, Subtree, Update,
};
use falkon_core::execute::{self, Executor, Visit, VisitEnd};
use falkon_core::limits::LISTED_OBJECTS_MAX;
use falkon_core::task::{
    ExecutorId, InstanceId, Kind, Packed, Resources, Rows, Submission, TaskClass, TaskId, Time,
};
use std::collections::BTreeSet;
use std::sync::Arc;

const CLIENT: ConnectionId = ConnectionId(1000);

fn object(number: u64, url: &str) -> Object {
    Object {
        // Ids are hashes: neighbours are far apart.
        id: ObjectId(u128::from(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)) << 64 | 7),
        url: url.into(),
        version: match url.starts_with("cache:") {
            true => format!("blake3:{number:064x}").into(),
            false => "v".into(),
        },
        size: Some(10),
    }
}

struct World {
    dispatcher: Dispatcher,
    updates: Vec<u64>,
    instances: u64,
    /// What executors were told that they need not keep.
    released: Vec<ObjectId>,
    /// The objects that executors were told to drop.
    dropped: Vec<ObjectId>,
}

impl World {
    /// A dispatcher with so many executors, named `e0` and so on.
    fn new(executors: u64) -> World {
        let mut world = World {
            dispatcher: Dispatcher::new(),
            updates: Vec::new(),
            instances: 0,
            released: Vec::new(),
            dropped: Vec::new(),
        };
        for number in 0..executors {
            let serves = Serving { address: format!("e{number}:1"), fingerprint: Vec::new() };
            let join = Join {
                name: format!("e{number}"),
                serves: Some(serves),
                ..executor(number + 1, 1)
            };
            let connection = ConnectionId(number);
            world.handle(Event::Join { connection, join });
            world.updates.push(0);
            world.report(number, Changes { anew: true, ..Changes::default() });
        }
        world
    }

    fn handle(&mut self, event: Event) {
        self.dispatcher.handle(Time(1), event);
        while let Some(action) = self.dispatcher.poll_action() {
            if let Action::Order { order, .. } = action
                && let Some(data) = order.data
            {
                self.released.extend(data.release);
                self.dropped.extend(data.drop);
            }
        }
        self.dispatcher.check().unwrap();
    }

    fn report(&mut self, executor: u64, changes: Changes) {
        let number = &mut self.updates[executor as usize];
        *number += 1;
        let update =
            Update { number: *number, cache: Some(Box::new(changes)), ..Update::default() };
        self.handle(Event::Update { connection: ConnectionId(executor), update });
    }

    fn add(&mut self, executor: u64, objects: &[Object], named: bool) {
        let added = objects.iter().map(|object| (object.id, 10)).collect();
        let named = if named { objects.to_vec() } else { Vec::new() };
        self.report(executor, Changes { added, named, ..Changes::default() });
    }

    /// Tasks that nobody can run; task `n` reads object `n`, or all the first.
    fn submit(&mut self, objects: Vec<Object>, shared: bool) -> InstanceId {
        let options = InstanceOptions::default();
        let instance = InstanceId(self.instances);
        self.instances += 1;
        self.handle(Event::Create { connection: CLIENT, request: 0, options });
        let count = objects.len() as u64;
        let mut rows = Packed::default();
        (0..count).for_each(|_| assert!(rows.push(b"")));
        let numbers: Vec<u32> = (0..count as u32).collect();
        let inputs = match shared {
            true => Lists::Same(vec![0]),
            false => Lists::Each {
                ends: Arc::new(numbers.iter().map(|number| number + 1).collect()),
                items: Arc::new(numbers),
            },
        };
        let data = Declared { objects: Arc::new(objects), inputs, outputs: Lists::default() };
        let resources = Resources { gpus: 1, ..Resources::cpus(1) };
        let submission = Submission {
            rows: Rows::Packed(rows),
            classes: vec![TaskClass { kind: Kind::Process, resources, ..TaskClass::default() }],
            data: Some(Arc::new(data)),
            ..array(count)
        };
        let first = TaskId(0);
        self.handle(Event::Submit {
            client: 1,
            connection: CLIENT,
            request: 1,
            instance,
            first,
            submission,
        });
        instance
    }

    fn cancel(&mut self, instance: InstanceId, task: u64) {
        let selection = falkon_core::dispatch::Selection::Runs(vec![(task, 1)]);
        self.handle(Event::Cancel { connection: CLIENT, request: 2, instance, selection });
    }

    /// All that is listed, checked to be in order and in parts that are small.
    #[track_caller]
    fn list(&self, scope: Scope, executor: Option<u64>, prefix: &str) -> Vec<ObjectId> {
        let executor = executor.map(|number| {
            let found = format!("e{number}");
            self.dispatcher.executor_views().find(|view| view.name() == found).unwrap().id()
        });
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let (objects, next) = self.dispatcher.objects(scope, executor, prefix, after);
            assert!(objects.len() <= LISTED_OBJECTS_MAX);
            all.extend(objects.iter().map(|object| object.id));
            match next {
                Some(_) => after = next,
                None => break,
            }
        }
        assert!(all.is_sorted(), "in the order of their ids");
        all
    }
}

#[test]
fn a_list_comes_in_parts_and_has_each_object_once() {
    let mut world = World::new(2);
    let count = 3 * LISTED_OBJECTS_MAX as u64;
    let objects: Vec<Object> =
        (0..count).map(|number| object(number, &format!("/{}/{number}", number % 2))).collect();
    let (held, waited_for) = objects.split_at(2 * LISTED_OBJECTS_MAX + 5);
    let instance = world.submit(waited_for.to_vec(), false);
    world.add(0, held, true);
    world.add(1, &held[..7], false);
    let ids = |objects: &[Object]| objects.iter().map(|one| one.id).collect::<BTreeSet<_>>();
    let set = |list: Vec<ObjectId>| {
        let count = list.len();
        let set: BTreeSet<ObjectId> = list.into_iter().collect();
        assert_eq!(set.len(), count, "an object is listed twice");
        set
    };
    let held_ids = ids(held);
    // Not printed: they are many.
    assert!(held_ids.is_subset(&set(world.list(Scope::All, None, ""))));
    assert!(set(world.list(Scope::All, Some(0), "")) == held_ids);
    assert!(set(world.list(Scope::All, Some(1), "")) == ids(&held[..7]));
    assert!(set(world.list(Scope::Placed, None, "")) == held_ids);
    let odd: Vec<Object> = held.iter().filter(|one| one.url.starts_with("/1/")).cloned().collect();
    assert!(set(world.list(Scope::All, Some(0), "/1/")) == ids(&odd));
    assert!(world.list(Scope::Of(InstanceId(9)), None, "").is_empty());
    // An instance has what its tasks name, if anybody holds or wants it.
    assert!(world.list(Scope::Of(instance), None, "").len() <= waited_for.len());
    world.add(1, waited_for, false);
    assert!(set(world.list(Scope::Of(instance), None, "")) == ids(waited_for));
    assert!(set(world.list(Scope::Placed, None, "")) == held_ids);
}

#[test]
fn an_object_is_found_by_its_name_and_by_its_id() {
    let mut world = World::new(3);
    let (one, other) = (object(1, "/a"), object(2, "/a"));
    let instance = world.submit(vec![one.clone()], true);
    world.add(0, &[one.clone(), other.clone()], false);
    world.add(2, std::slice::from_ref(&one), false);
    // The other version was never named here.
    let found = world.dispatcher.find_objects(Scope::All, "/a");
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].object.id, found[0].readers), (one.id, 1));
    let names: Vec<&str> = found[0].holders.iter().map(|holder| holder.name.as_str()).collect();
    assert_eq!(names, ["e0", "e2"]);
    let by_id = world.dispatcher.find_objects(Scope::All, &other.id.to_string());
    assert_eq!((by_id.len(), &*by_id[0].object.url), (1, ""));
    assert_eq!(world.dispatcher.find_objects(Scope::Of(instance), "/a"), found);
    assert!(world.dispatcher.find_objects(Scope::Placed, "/a").is_empty());
    let foreign = world.dispatcher.find_objects(Scope::Of(instance), &other.id.to_string());
    assert!(foreign.is_empty(), "an id opens nothing");
    world.add(1, std::slice::from_ref(&other), true);
    assert_eq!(world.dispatcher.find_objects(Scope::Placed, "/a").len(), 1);
    assert_eq!(world.dispatcher.find_objects(Scope::All, "/a").len(), 2);
}

#[test]
fn what_tasks_need_and_no_store_has_is_dropped_by_force_alone() {
    let mut world = World::new(1);
    let (cached, stored) = (object(1, "cache:k"), object(2, "/a"));
    let instance = world.submit(vec![cached.clone(), stored.clone(), cached.clone()], false);
    world.add(0, &[cached.clone(), stored.clone()], false);
    let reach = |world: &World, object: &Object, force| {
        world.dispatcher.reach(Scope::All, object, Purpose::Drop { force })
    };
    let needed = |tasks| Err(AccessError::Needed { tasks });
    // The list of objects has it twice, for a task each.
    assert_eq!(reach(&world, &cached, false), needed(2));
    assert_eq!(reach(&world, &cached, true).unwrap().len(), 1);
    assert_eq!(reach(&world, &stored, false).unwrap()[0].serves.address, "e0:1");
    world.cancel(instance, 0);
    assert_eq!(reach(&world, &cached, false), needed(1));
    world.cancel(instance, 2);
    assert!(reach(&world, &cached, false).is_ok(), "nobody needs it any more");
    assert_eq!(reach(&world, &object(3, "/b"), true), Err(AccessError::NotHeld));
    let other = world.dispatcher.reach(Scope::Of(InstanceId(8)), &stored, Purpose::Get);
    assert_eq!(other, Err(AccessError::NotHeld), "another instance's");
    // All tasks of a batch read one.
    let shared = world.submit(vec![cached.clone(), stored, object(4, "/c")], true);
    assert_eq!(reach(&world, &cached, false), needed(3));
    world.cancel(shared, 1);
    assert_eq!(reach(&world, &cached, false), needed(2));
    // Who is not connected cannot be gone to.
    world.handle(Event::Closed { connection: ConnectionId(0) });
    assert_eq!(reach(&world, &cached, true).unwrap()[0].serves.address, "");
    let put = world.dispatcher.reach(Scope::All, &cached, Purpose::Put);
    assert_eq!(put, Err(AccessError::NoCache));
}

#[test]
fn those_reach_below_relays_who_reach_executors_with_an_object() {
    let mut world = World::new(1);
    let (made, foreign) = (object(1, "cache:k"), object(3, "cache:x"));
    let instance = world.submit(vec![made.clone()], false);
    let other = world.submit(vec![object(4, "/c")], false);
    let nodes = vec![NodeClass { capacity: Resources::cpus(1), has_cache: true, count: 2 }];
    let subtree = Subtree { relays: vec![1], nodes, ..Subtree::default() };
    world.updates[0] += 1;
    let number = world.updates[0];
    let update = Update { number, subtree: Some(Box::new(subtree)), ..Update::default() };
    world.handle(Event::Update { connection: ConnectionId(0), update });
    world.add(0, &[made.clone(), foreign.clone()], false);

    let reach = |world: &World, scope, object: &Object, purpose| {
        // Nobody goes there.
        assert!(world.dispatcher.reach(scope, object, purpose).is_err());
        world.dispatcher.reach_below(scope, object.id, purpose)
    };
    let get = |world: &World, scope, object| reach(world, scope, object, Purpose::Get);
    assert_eq!(get(&world, Scope::All, &made), Ok(()));
    assert_eq!(get(&world, Scope::Of(instance), &made), Ok(()));
    assert_eq!(get(&world, Scope::Of(other), &made), Err(AccessError::NotHeld));
    assert_eq!(get(&world, Scope::Placed, &made), Err(AccessError::NotHeld));
    assert_eq!(get(&world, Scope::All, &foreign), Err(AccessError::OfOthers));
    let drop =
        |world: &World, force| reach(world, Scope::Of(instance), &made, Purpose::Drop { force });
    assert_eq!(drop(&world, false), Err(AccessError::Needed { tasks: 1 }));
    assert_eq!(drop(&world, true), Ok(()));
    world.cancel(instance, 0);
    assert_eq!(drop(&world, false), Ok(()));
    world.handle(Event::DropBelow { connection: CLIENT, request: 9, object: made.id });
    assert_eq!(world.dropped, [made.id]);
}

/// Names under which nothing can be put by hand.
fn not_placeable() -> impl Iterator<Item = Object> {
    let hash = "0123456789abcdef".repeat(4);
    let by_content = format!("blake3:{hash}");
    let long = format!("{by_content}0");
    let urls = ["/shared/ref.db", "http://host/x", "s3://bucket/x", "cache:", "Cache:k", ""];
    let versions = ["", "v", "10-1700000000", "made:1", "blake3:", &hash, &long].map(str::to_owned);
    let versions =
        [&versions[..], &[by_content.to_uppercase(), by_content[1..].to_owned()]].concat();
    let name = |url: &str, version: &str| Object {
        url: url.into(),
        version: version.into(),
        ..object(1, "cache:k")
    };
    assert!(name("cache:k", &by_content).is_placeable());
    let at_urls = urls.map(|url| name(url, &by_content));
    at_urls.into_iter().chain(versions.into_iter().map(move |version| name("cache:k", &version)))
}

#[test]
fn nothing_is_put_under_a_name_that_content_does_not_prove() {
    let world = World::new(2);
    for object in not_placeable() {
        let put = world.dispatcher.reach(Scope::All, &object, Purpose::Put);
        assert_eq!(put, Err(AccessError::NotPlaceable), "{object:?}");
    }
}

#[test]
fn what_is_put_goes_where_least_is_and_one_key_has_one_content() {
    let mut world = World::new(4);
    for (executor, count) in [(0, 3), (1, 0), (2, 2), (3, 1)] {
        let objects: Vec<Object> = (0..count).map(|at| object(100 + at, "/x")).collect();
        world.add(executor, &objects, false);
    }
    let new = object(1, "cache:k");
    let order = |world: &World, object: &Object| {
        let found = world.dispatcher.reach(Scope::Placed, object, Purpose::Put)?;
        Ok(found.into_iter().map(|access| access.name).collect::<Vec<String>>())
    };
    assert_eq!(order(&world, &new).unwrap(), ["e1", "e3", "e2", "e0"]);
    world.add(2, std::slice::from_ref(&new), true);
    // Who has it already has taken it.
    assert_eq!(order(&world, &new).unwrap(), ["e2", "e1", "e3", "e0"]);
    let another = object(2, "cache:k");
    assert_eq!(order(&world, &another), Err(AccessError::Taken(new.id)));
    world.report(2, Changes { removed: vec![new.id], ..Changes::default() });
    assert!(order(&world, &another).is_ok());
    // What a task writes under that key is another matter.
    world.submit(vec![new.clone()], true);
    world.add(0, &[new], false);
}

#[test]
fn names_that_nobody_needs_are_forgotten() {
    let mut world = World::new(1);
    let kept = object(0, "/kept");
    world.add(0, std::slice::from_ref(&kept), true);
    // More than are kept for nothing.
    for round in 0..4 {
        let objects: Vec<Object> =
            (0..3000).map(|at| object(1 + round * 3000 + at, "/gone")).collect();
        let instance = world.submit(objects, true);
        world.handle(Event::Destroy { connection: CLIENT, request: 3, instance });
    }
    world.add(0, &[object(1, "/gone")], false);
    let url = |world: &World, id: ObjectId| {
        let found = world.dispatcher.find_objects(Scope::All, &id.to_string());
        found[0].object.url.to_string()
    };
    assert_eq!(url(&world, object(1, "").id), "");
    assert_eq!(url(&world, kept.id), "/kept");
}

#[test]
fn the_state_of_a_cache_is_what_it_last_said() {
    let mut world = World::new(1);
    let state = CacheState { capacity: 100, used: 20, ..CacheState::default() };
    let added = vec![(ObjectId(1), 10), (ObjectId(2), 10)];
    let changes = Changes { added, state: Some(state), ..Changes::default() };
    world.report(0, changes);
    let seen = |world: &World| world.dispatcher.executor_views().next().unwrap().cache();
    assert_eq!(seen(&world), Some((state, 2)));
    world.report(0, Changes { removed: vec![ObjectId(1)], ..Changes::default() });
    assert_eq!(seen(&world), Some((state, 1)));
    assert_eq!(world.dispatcher.executor_views().next().unwrap().id(), ExecutorId(0));
}

/// An executor with a cache of 100 bytes.
struct Node {
    core: Executor,
    now: Time,
    next: u64,
}

impl Node {
    fn new() -> Node {
        let cache = CacheOptions { tiers_bytes: vec![100], eviction: Eviction::Lru, seed: 1 };
        let core = Executor::new(1, "node".to_owned(), Resources::cpus(1));
        let serves = Some(Serving::default());
        let core = core.with_cache(&StageOptions::new(cache, 1), &[], serves);
        Node { core, now: Time(5_000_000), next: 0 }
    }

    fn handle(&mut self, event: execute::Event) -> Vec<execute::Action> {
        self.core.handle(self.now, event);
        let mut actions = Vec::new();
        while let Some(action) = self.core.poll_action() {
            self.core.check().unwrap();
            actions.push(action);
        }
        actions
    }

    fn visit(&mut self, what: Visit) -> (u64, Vec<execute::Action>) {
        let visit = self.next;
        self.next += 1;
        (visit, self.handle(execute::Event::Visited(visit, what)))
    }

    /// Puts an object, and brings it in as the stage has it done.
    fn put(&mut self, object: &Object, result: Result<(), WriteError>) -> Vec<execute::Action> {
        let (visit, actions) = self.visit(Visit::Put(Arc::new(object.clone())));
        let [execute::Action::Stage(stage::Action::Adopt { partial, tier, requester, object: to })] =
            &actions[..]
        else {
            return actions;
        };
        assert_eq!((*requester, *tier, to.id), (Requester::Visit(visit), TierId(0), object.id));
        let adopted = stage::Event::Adopted { partial: *partial, result };
        self.handle(execute::Event::Stage(adopted))
    }

    fn ends(actions: &[execute::Action]) -> Vec<VisitEnd> {
        let ended = actions.iter().filter_map(|action| match action {
            execute::Action::VisitEnded(_, end) => Some(end.clone()),
            _ => None,
        });
        ended.collect()
    }

    /// What the dispatcher is told.
    fn told(actions: &[execute::Action]) -> Changes {
        let told = actions.iter().find_map(|action| match action {
            execute::Action::Update(update) => update.cache.as_deref().cloned(),
            _ => None,
        });
        told.unwrap_or_default()
    }
}

#[test]
fn what_is_put_is_held_told_by_name_and_dropped_unless_in_use() {
    let mut node = Node::new();
    let sized = |number, url: &str, size| Object { size: Some(size), ..object(number, url) };
    let (one, two, large) =
        (sized(1, "cache:1", 60), sized(2, "cache:2", 60), sized(3, "cache:3", 101));
    assert_eq!(Node::ends(&node.put(&one, Ok(()))), [VisitEnd::Held]);
    // Again: it is there.
    assert_eq!(Node::ends(&node.put(&one, Ok(()))), [VisitEnd::Held]);
    // What was put is not evicted for another.
    let refused = |ends: Vec<VisitEnd>| matches!(ends.as_slice(), [VisitEnd::Refused(_)]);
    assert!(refused(Node::ends(&node.put(&two, Ok(())))));
    assert!(refused(Node::ends(&node.put(&large, Ok(())))));
    // A session begins: it is told what it is, as nobody else knows.
    let mut actions = node.handle(execute::Event::Connected);
    actions.extend(node.handle(execute::Event::Order(Default::default())));
    let changes = Node::told(&actions);
    assert_eq!((changes.anew, changes.added), (true, vec![(one.id, 60)]));
    assert_eq!(changes.named, std::slice::from_ref(&one));
    assert_eq!(changes.state.map(|state| (state.capacity, state.used)), Some((100, 60)));
    // A peer fetches it: it stays until that is over.
    let ask = stage::Event::Ask { serve: stage::ServeId(1), object: one.id, range: (0, None) };
    node.handle(execute::Event::Stage(ask));
    assert_eq!(Node::ends(&node.visit(Visit::Drop(one.id)).1), [VisitEnd::InUse]);
    node.handle(execute::Event::Stage(stage::Event::Served(stage::ServeId(1))));
    let (_, actions) = node.visit(Visit::Drop(one.id));
    assert_eq!(Node::ends(&actions), [VisitEnd::Dropped]);
    let deleted = actions.iter().position(|action| {
        matches!(action, execute::Action::Stage(stage::Action::Delete(gone)) if gone.object == one.id)
    });
    let ended = actions.iter().position(|action| matches!(action, execute::Action::VisitEnded(..)));
    assert!(deleted.is_some() && deleted < ended, "its file goes before that is said");
    assert_eq!(Node::told(&actions).removed, [one.id]);
    assert_eq!(Node::ends(&node.visit(Visit::Drop(one.id)).1), [VisitEnd::Gone]);
    // Whoever brings it may go away in the middle: there is room again.
    let lost = Err(WriteError::Failed("the connection broke".to_owned()));
    assert!(refused(Node::ends(&node.put(&two, lost))));
    assert_eq!(Node::ends(&node.put(&two, Ok(()))), [VisitEnd::Held]);
    // An executor without a cache takes nothing.
    node.core = Executor::new(1, "bare".to_owned(), Resources::cpus(1));
    let (_, actions) = node.visit(Visit::Drop(one.id));
    assert!(refused(Node::ends(&actions)));
}

#[test]
fn what_was_put_for_an_instance_goes_with_it() {
    let mut world = World::new(2);
    let instances: Vec<InstanceId> =
        (0..12).map(|_| world.submit(vec![object(0, "/input")], true)).collect();
    let of =
        |instance: u64, number| object(number, &format!("cache:instances/{instance}/{number}"));
    let placed = [of(1, 1), of(1, 2), of(11, 3), object(4, "cache:instances/1"), of(7, 5)];
    world.add(0, &placed[..4], true);
    world.add(1, &placed[3..], true);
    let destroy = |instance| Event::Destroy { connection: CLIENT, request: 3, instance };
    world.handle(destroy(instances[1]));
    assert_eq!(world.released, [placed[0].id, placed[1].id]);
    world.handle(destroy(instances[11]));
    assert_eq!(world.released[2..], [placed[2].id]);
    // What comes when the instance is gone, or never was here, is not kept either.
    world.add(1, &[of(1, 6), of(99, 7), of(2, 8)], true);
    assert_eq!(world.released[3..], [of(1, 6).id, of(99, 7).id]);
}
