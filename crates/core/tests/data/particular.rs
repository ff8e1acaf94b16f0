//! What a stage does, event by event.

use crate::world::{MIB, key, object};
use falkon_core::data::cache::{CacheOptions, Eviction, TierId};
use falkon_core::data::limits::{
    ADMIT_PASSES_MAX, COMING_CHAIN_MICROS, DISK_FULL_MICROS, DISK_FULL_TRIES_MAX, RANGE_BYTES,
    ROOM_WAIT_MICROS, UNREACHABLE_PAUSES_MAX,
};
use falkon_core::data::object::{Object, ObjectId, Source, Sources};
use falkon_core::data::stage::{
    Action, Changes, Count, Event, FetchError, FetchId, Input, PartialId, Refusal, Requester,
    ServeId, Stage, StageOptions, Usage, WriteError,
};
use falkon_core::task::{ExecutorId, Time};
use std::sync::Arc;

pub(crate) struct Node {
    now: Time,
    stage: Stage,
}

pub(crate) fn node(capacity: u64) -> Node {
    let tiers_bytes = vec![capacity];
    let cache = CacheOptions { tiers_bytes, eviction: Eviction::Lru, seed: 1 };
    Node { now: Time(0), stage: Stage::new(&StageOptions::new(cache, 1)) }
}

/// A node that lends a second directory.
pub(crate) fn lending_node(capacity: u64, lent: u64) -> Node {
    let tiers_bytes = vec![capacity, lent];
    let cache = CacheOptions { tiers_bytes, eviction: Eviction::Lru, seed: 1 };
    let options = StageOptions { lends_last: true, ..StageOptions::new(cache, 1) };
    Node { now: Time(0), stage: Stage::new(&options) }
}

pub(crate) fn input(object: &Arc<Object>, peers: &[u64], store: bool) -> Input {
    let peers = peers.iter().map(|peer| ExecutorId(*peer)).collect();
    let sources = Sources { peers, store, ..Sources::default() };
    Input { object: Arc::clone(object), sources, is_unpacked: false, may_mount: true }
}

pub(crate) fn file(id: u128, size: u64) -> Arc<Object> {
    object(id, "1", Some(size))
}

/// A transfer as asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) fetch: FetchId,
    pub(crate) object: u128,
    pub(crate) source: Source,
    pub(crate) offset: u64,
    pub(crate) length: Option<u64>,
}

pub(crate) fn asked(actions: &[Action]) -> Vec<Asked> {
    let asked = |action: &Action| match action {
        Action::Fetch { fetch, object, source, offset, length, .. } => Some(Asked {
            fetch: *fetch,
            object: object.id.0,
            source: *source,
            offset: *offset,
            length: *length,
        }),
        _ => None,
    };
    actions.iter().filter_map(asked).collect()
}

pub(crate) fn sources(actions: &[Action]) -> Vec<Source> {
    asked(actions).into_iter().map(|asked| asked.source).collect()
}

fn ready(actions: &[Action]) -> Vec<(u64, Usage)> {
    let ready = |action: &Action| match action {
        Action::Ready { requester: Requester::Task(key), usage, .. } => Some((key.task.0, *usage)),
        _ => None,
    };
    actions.iter().filter_map(ready).collect()
}

pub(crate) fn ready_ids(actions: &[Action]) -> Vec<u64> {
    ready(actions).into_iter().map(|(task, _)| task).collect()
}

pub(crate) fn failed(actions: &[Action]) -> Vec<String> {
    let failed = |action: &Action| match action {
        Action::Failed { error, .. } | Action::NotKept { error, .. } => Some(error.to_string()),
        _ => None,
    };
    actions.iter().filter_map(failed).collect()
}

fn sealing(actions: &[Action]) -> Option<PartialId> {
    actions.iter().find_map(|action| match action {
        Action::Seal { partial, .. } => Some(*partial),
        _ => None,
    })
}

impl Node {
    pub(crate) fn of(stage: Stage) -> Node {
        Node { now: Time(0), stage }
    }

    pub(crate) fn stage(&self) -> &Stage {
        &self.stage
    }

    /// The changes of the cache that the stage reports.
    pub(crate) fn changes(&mut self) -> Changes {
        self.stage.changes().unwrap_or_default()
    }

    pub(crate) fn now(&self) -> Time {
        self.now
    }

    fn drain(&mut self) -> Vec<Action> {
        let actions = std::iter::from_fn(|| self.stage.poll_action()).collect();
        self.stage.check().unwrap();
        actions
    }

    pub(crate) fn send(&mut self, event: Event) -> Vec<Action> {
        self.stage.handle(self.now, event);
        self.drain()
    }

    pub(crate) fn want(&mut self, task: u64, inputs: &[Input]) -> Vec<Action> {
        self.send(Event::Want { requester: key(task), inputs: inputs.to_vec() })
    }

    /// As far as the next timeout.
    pub(crate) fn wait(&mut self) -> Vec<Action> {
        self.now = self.stage.poll_timeout().unwrap().0;
        self.stage.handle_timeout(self.now);
        self.drain()
    }

    /// Lets time pass, with all that is due meanwhile.
    pub(crate) fn pass(&mut self, micros: u64) -> Vec<Action> {
        let until = self.now.after(micros);
        let mut all = Vec::new();
        while self.stage.poll_timeout().is_some_and(|due| due.0 <= until) {
            all.extend(self.wait());
        }
        self.now = until;
        all
    }

    pub(crate) fn fails(&mut self, fetch: FetchId, bytes: u64, why: FetchError) -> Vec<Action> {
        self.send(Event::FetchFailed { fetch, bytes, why })
    }

    fn seal(&mut self, partial: PartialId) -> Vec<Action> {
        self.send(Event::Sealed { partial, result: Ok(()) })
    }

    /// Brings all that was asked for, and all that is asked for then.
    pub(crate) fn bring(&mut self, actions: Vec<Action>) -> Vec<Action> {
        let mut all = Vec::new();
        let mut open = actions;
        while !open.is_empty() {
            let mut next = Vec::new();
            for action in open {
                match &action {
                    Action::Fetch { fetch, object, length, .. } => {
                        let bytes = length.or(object.size).unwrap_or(0);
                        next.extend(self.send(Event::Fetched { fetch: *fetch, bytes }));
                    }
                    Action::Seal { partial, .. } => next.extend(self.seal(*partial)),
                    _ => {}
                }
                all.push(action);
            }
            open = next;
        }
        all
    }

    /// A node that holds these.
    fn with(mut self, objects: &[&Arc<Object>]) -> Node {
        let inputs: Vec<Input> = objects.iter().map(|object| input(object, &[], true)).collect();
        let actions = self.want(1_000, &inputs);
        assert_eq!(ready_ids(&self.bring(actions)), [1_000]);
        self.send(Event::Ended(key(1_000)));
        self
    }
}

pub(crate) fn peer(number: u64) -> Source {
    Source::Peer(ExecutorId(number))
}

pub(crate) fn unreachable(said: &str) -> FetchError {
    FetchError::Unreachable(said.into())
}

#[test]
fn sources_are_asked_in_order_and_the_error_names_each() {
    let mut node = node(100);
    let object = file(1, 50);
    let asked = asked(&node.want(1, &[input(&object, &[3, 2], true)]));
    assert_eq!(asked[0].source, peer(3));
    let actions = node.fails(asked[0].fetch, 0, FetchError::Busy);
    assert_eq!(sources(&actions), [peer(2)], "a busy peer is passed at once");
    let actions = node.fails(FetchId(1), 0, FetchError::Gone);
    assert_eq!(sources(&actions), [Source::Store]);
    let mut actions = node.fails(FetchId(2), 0, unreachable("no route to host"));
    assert_eq!(node.stage.poll_timeout().unwrap().1, "sources are tried again");
    // The busy peer may have got time, or not, and then the store.
    actions.extend(node.wait());
    let mut fetch = FetchId(3);
    assert_eq!(sources(&actions), [peer(3)]);
    actions = node.fails(fetch, 0, FetchError::Refused("not for you".into()));
    let mut pauses = 0;
    let mut last = 0;
    while failed(&actions).is_empty() {
        let before = node.now;
        actions = node.wait();
        let pause = node.now.since(before);
        assert!(pause > last / 4, "pauses grow: {pause} after {last}");
        last = pause;
        pauses += 1;
        fetch = FetchId(fetch.0 + 1);
        assert_eq!(sources(&actions), [Source::Store]);
        actions = node.fails(fetch, 0, unreachable("no route to host"));
    }
    assert_eq!(pauses, UNREACHABLE_PAUSES_MAX);
    assert_eq!(
        failed(&actions),
        ["s3://bucket1/1 could not be fetched: executor 3: not for you; executor 2: it is not \
          there; persistent store: no route to host"]
    );
    assert_eq!(node.stage.load(), (0, 0));
}

#[test]
fn many_tasks_wait_for_one_fetch() {
    let mut node = node(100);
    let object = file(1, 50);
    let first = node.want(1, &[input(&object, &[], true)]);
    for task in 2..=50 {
        assert_eq!(node.want(task, &[input(&object, &[4], true)]), []);
    }
    let usages = ready(&node.bring(first));
    assert_eq!(usages.len(), 50);
    let one = Count { objects: 1, bytes: 50 };
    assert_eq!(usages[0], (1, Usage { store: one, ..Usage::default() }));
    assert!(
        usages[1..].iter().all(|(_, usage)| *usage == Usage { local: one, ..Usage::default() })
    );
    let held = node.stage.changes().unwrap();
    assert_eq!((held.anew, held.added), (true, vec![(ObjectId(1), 50)]));
    assert_eq!(node.stage.changes(), None);
}

#[test]
fn tasks_that_do_not_fit_together_come_one_after_the_other() {
    let mut node = node(100);
    let [one, two, three] = [file(1, 40), file(2, 40), file(3, 40)];
    let actions = node.want(1, &[input(&one, &[], true), input(&two, &[], true)]);
    assert_eq!(asked(&actions).len(), 2);
    // Nothing is begun that could stand in the other's way.
    assert_eq!(node.want(2, &[input(&two, &[], true), input(&three, &[], true)]), []);
    let actions = node.bring(actions);
    assert_eq!(ready_ids(&actions), [1]);
    node.send(Event::Started(key(1)));
    let actions = node.send(Event::Ended(key(1)));
    assert_eq!(ready_ids(&node.bring(actions)), [2]);
    assert!(!node.stage.cache().holds(ObjectId(1)));
}

#[test]
fn a_large_task_is_passed_so_often_and_no_more() {
    let mut node = node(100);
    let [small, large] = [file(1, 10), file(2, 95)];
    let actions = node.want(1, &[input(&small, &[], true)]);
    node.bring(actions);
    node.send(Event::Needed(key(1)));
    node.send(Event::Started(key(1)));
    node.want(2, &[input(&large, &[], true)]);
    let mut passed = 0;
    for task in 3..500 {
        passed +=
            u32::try_from(ready(&node.want(task, &[input(&small, &[], true)])).len()).unwrap();
    }
    assert_eq!(passed, ADMIT_PASSES_MAX);
    let mut actions = Vec::new();
    for task in (1..500).filter(|task| *task != 2) {
        actions.extend(node.send(Event::Ended(key(task))));
    }
    assert_eq!(ready_ids(&node.bring(actions)), [2]);
}

#[test]
fn a_large_object_comes_in_ranges_and_a_dead_peer_costs_only_its_rest() {
    let mut node = node(100 * MIB);
    let object = file(1, 40 * MIB);
    let actions = node.want(1, &[input(&object, &[1, 2, 3], true)]);
    let parts = asked(&actions);
    let offsets: Vec<u64> = parts.iter().map(|part| part.offset / RANGE_BYTES).collect();
    assert_eq!(offsets, [0, 1, 2]);
    assert_eq!(sources(&actions), [peer(1), peer(2), peer(3)]);
    let actions = node.fails(parts[1].fetch, MIB, unreachable("reset"));
    assert_eq!(sources(&actions), [], "the store is spared while peers send");
    let next = asked(&node.send(Event::Fetched { fetch: parts[0].fetch, bytes: RANGE_BYTES }));
    let rest = (next[0].offset, next[0].length);
    assert_eq!(rest, (RANGE_BYTES + MIB, Some(RANGE_BYTES - MIB)));
    let mut open = next;
    open.push(parts[2]);
    let mut actions = Vec::new();
    while let Some(part) = open.pop() {
        assert_ne!(part.source, Source::Store);
        let bytes = part.length.unwrap();
        actions = node.send(Event::Fetched { fetch: part.fetch, bytes });
        open.extend(asked(&actions));
    }
    let partial = sealing(&actions).unwrap();
    let usage = ready(&node.seal(partial))[0].1;
    assert_eq!(usage.peer, Count { objects: 1, bytes: 40 * MIB });
    assert_eq!(usage.store, Count::default());
}

#[test]
fn whoever_gave_something_wrong_is_found_and_not_asked_again() {
    let mut node = node(100 * MIB);
    let object = file(1, 32 * MIB);
    let wrong = || Err(WriteError::Wrong("hash 00".into()));
    let mut open = node.want(1, &[input(&object, &[1, 2], true)]);
    // Two peers at once, and what they made together is wrong: then one at a
    // time, until it is found.
    let mut all = Vec::new();
    while ready(&open).is_empty() {
        let mut next = Vec::new();
        for part in asked(&open) {
            let bytes = part.length.unwrap();
            next.extend(node.send(Event::Fetched { fetch: part.fetch, bytes }));
            all.push((part.source, bytes));
        }
        if let Some(partial) = sealing(&open) {
            let by_wrong = all.iter().any(|(source, _)| *source == peer(1));
            let result = if by_wrong { wrong() } else { Ok(()) };
            all.clear();
            next.extend(node.send(Event::Sealed { partial, result }));
        }
        open = next;
    }
    node.send(Event::Ended(key(1)));
    node.send(Event::Drop(vec![ObjectId(1)]));
    let actions = node.want(2, &[input(&object, &[1], true)]);
    assert_eq!(sources(&actions), [Source::Store]);
    let mut actions = node.fails(FetchId(asked(&actions)[0].fetch.0), 0, FetchError::Gone);
    assert_eq!(
        failed(&std::mem::take(&mut actions)),
        ["s3://bucket1/1 could not be fetched: executor 1: it gave something else (what it gave \
          before was wrong); persistent store: it is not there"]
    );
}

#[test]
fn a_changed_source_is_another_object() {
    let mut node = node(100);
    let [old, new] = [file(1, 50), object(2, "2", Some(60))];
    let parts = asked(&node.want(1, &[input(&old, &[], true)]));
    let actions = node.fails(parts[0].fetch, 0, FetchError::Changed(Arc::clone(&new)));
    assert_eq!(asked(&actions)[0].object, 2);
    let actions = node.bring(actions);
    let Some(Action::Ready { inputs, .. }) = actions.last() else { panic!("{actions:?}") };
    assert_eq!((inputs[0].wanted, inputs[0].object.id), (ObjectId(1), ObjectId(2)));
    assert_eq!(node.stage.changes().unwrap().added, [(ObjectId(2), 60)]);
}

#[test]
fn an_object_without_a_version_is_asked_about_at_each_use() {
    let mut node = node(100);
    let nameless = object(1, "", None);
    let named = file(2, 30);
    for (task, brought) in [(1, 1), (2, 0)] {
        let actions = node.want(task, &[input(&nameless, &[], true)]);
        assert_eq!(actions, [Action::Resolve(Arc::clone(&nameless))]);
        let actions =
            node.send(Event::Resolved { object: ObjectId(1), now: Ok(Arc::clone(&named)) });
        assert_eq!(asked(&actions).len(), brought);
        assert_eq!(ready_ids(&node.bring(actions)), [task]);
    }
    // A store that cannot tell gives it for one use, and nobody hears of it.
    node.stage.changes();
    let once = object(3, "", Some(20));
    node.want(3, &[input(&nameless, &[], true)]);
    let actions = node.send(Event::Resolved { object: ObjectId(1), now: Ok(once) });
    assert_eq!(ready_ids(&node.bring(actions)), [3]);
    let refusal =
        node.send(Event::Ask { serve: ServeId(1), object: ObjectId(3), range: (0, None) });
    assert_eq!(refusal, [Action::Refuse { serve: ServeId(1), why: Refusal::Gone }]);
    let actions = node.send(Event::Ended(key(3)));
    assert!(matches!(actions[..], [Action::Delete(gone)] if gone.object == ObjectId(3)));
    assert_eq!(node.stage.changes(), None);
}

#[test]
fn an_object_without_a_version_is_for_one_use_also_for_a_task_that_waits_meanwhile() {
    let mut node = node(100);
    let [nameless, once, held, large] =
        [object(1, "", None), object(3, "", Some(20)), file(8, 30), file(9, 60)];
    let resolved = || Event::Resolved { object: ObjectId(1), now: Ok(Arc::clone(&once)) };
    node.want(1, &[input(&nameless, &[], true), input(&held, &[], true)]);
    let actions = node.send(resolved());
    assert_eq!(ready_ids(&node.bring(actions)), [1]);
    let actions = node.want(2, &[input(&held, &[], true)]);
    assert_eq!(ready_ids(&actions), [2]);
    node.want(3, &[input(&nameless, &[], true), input(&large, &[], true)]);
    assert_eq!(node.send(resolved()), [], "no room");
    let actions = node.send(Event::Ended(key(1)));
    assert!(matches!(actions[..], [Action::Delete(gone)] if gone.object == ObjectId(3)));
    let actions = node.send(Event::Ended(key(2)));
    assert_eq!(ready_ids(&node.bring(actions)), [3]);
    let actions = node.send(Event::Ended(key(3)));
    assert!(matches!(actions[..], [Action::Delete(gone)] if gone.object == ObjectId(3)));
}

#[test]
fn who_has_a_slot_takes_the_room_of_who_has_none() {
    let mut node = node(100);
    let [one, two] = [file(1, 60), file(2, 60)];
    let actions = node.want(1, &[input(&one, &[], true)]);
    node.bring(actions);
    assert_eq!(node.want(2, &[input(&two, &[], true)]), []);
    let actions = node.send(Event::Needed(key(2)));
    assert_eq!(actions[0], Action::Unready(key(1)));
    assert_eq!(ready_ids(&node.bring(actions)), [2]);
    let actions = node.send(Event::Ended(key(2)));
    assert_eq!(ready_ids(&node.bring(actions)), [1]);
    node.send(Event::Started(key(1)));
    node.want(3, &[input(&two, &[], true)]);
    assert_eq!(node.send(Event::Needed(key(3))), [], "what runs keeps its room");
}

#[test]
fn a_source_at_its_limit_is_waited_for_and_the_first_to_come_is_first() {
    let mut node = node(1_000);
    let objects: Vec<Arc<Object>> = (1..=20).map(|id| file(2 * id, 10)).collect();
    let mut begun = Vec::new();
    for (task, object) in (1..).zip(&objects) {
        begun.extend(asked(&node.want(task, &[input(object, &[7], true)])));
    }
    assert_eq!(begun.len(), 8, "the store is not asked because a peer is at its limit");
    // The last to come is the first that a slot waits for.
    node.send(Event::Needed(key(20)));
    let next = asked(&node.send(Event::Fetched { fetch: begun[0].fetch, bytes: 10 }));
    assert_eq!((next[0].object, next[0].source), (40, peer(7)));
    let next = asked(&node.send(Event::Fetched { fetch: begun[1].fetch, bytes: 10 }));
    assert_eq!(next[0].object, 18);
}

#[test]
fn a_working_set_larger_than_the_cache_is_refused_at_once() {
    let mut node = node(100);
    let [one, two] = [file(1, 60), file(2, 60)];
    let actions = node.want(1, &[input(&one, &[], true), input(&two, &[], true)]);
    assert_eq!(
        failed(&actions),
        ["120 bytes in 2 objects do not fit in a cache of 100 bytes: give the executor a larger \
          cache"]
    );
    // The same if it turns out only when they come.
    let unknown = object(3, "1", None);
    let actions = node.want(2, &[input(&one, &[], true), input(&unknown, &[], true)]);
    let fetch = asked(&actions).iter().find(|part| part.object == 3).unwrap().fetch;
    let actions = node.send(Event::Sized { fetch, size: 70 });
    assert_eq!(failed(&actions).len(), 1);
    assert_eq!(node.stage.cache().entries().count(), 0);
}

pub(crate) fn read_by(object: &Arc<Object>, reader: u64) -> Input {
    let sources = Sources { store: true, coming: Some(ExecutorId(reader)), ..Sources::default() };
    Input { object: Arc::clone(object), sources, is_unpacked: false, may_mount: true }
}

#[test]
fn what_another_reads_at_the_store_is_had_from_there_a_little_later() {
    let one = file(1, 60);
    let mut node = node(100);
    let mut actions = node.want(1, &[read_by(&one, 7)]);
    // It may not even know of it yet.
    for why in [FetchError::Gone, FetchError::Coming, FetchError::Coming, FetchError::Coming] {
        assert_eq!(sources(&actions), [Source::Peer(ExecutorId(7))]);
        let fetch = asked(&actions)[0].fetch;
        assert_eq!(node.fails(fetch, 0, why), []);
        actions = node.wait();
    }
    let done = node.bring(actions);
    let peer = Count { objects: 1, bytes: 60 };
    assert_eq!(ready(&done), [(1, Usage { peer, ..Usage::default() })]);
}

#[test]
fn one_that_never_gets_it_is_not_waited_for_for_ever() {
    for (why, least, most) in
        [(FetchError::Gone, 100_000, 1_000_000), (FetchError::Coming, 5_000_000, 20_000_000)]
    {
        let one = file(1, 60);
        let mut node = node(100);
        let mut actions = node.want(1, &[read_by(&one, 7)]);
        let mut times = 0;
        while sources(&actions) == [Source::Peer(ExecutorId(7))] {
            let fetch = asked(&actions)[0].fetch;
            actions = node.fails(fetch, 0, why.clone());
            if actions.is_empty() {
                actions = node.wait();
            }
            times += 1;
        }
        assert_eq!(sources(&actions), [Source::Store], "{why}");
        assert!((least..most).contains(&node.now.0), "{why}: after {}", node.now.0);
        assert!(times < 200, "{why}: asked {times} times");
        assert_eq!(ready_ids(&node.bring(actions)), [1]);
    }
}

#[test]
fn one_that_reads_an_object_says_so_and_one_that_waits_for_it_for_a_while() {
    let (one, two) = (file(1, 60), file(2, 30));
    let mut node = node(100);
    let reads = node.want(1, &[input(&one, &[], true)]);
    let waits = node.want(2, &[read_by(&two, 7)]);
    let mut answer = |object, serve| {
        let serve = ServeId(serve);
        match node.send(Event::Ask { serve, object: ObjectId(object), range: (0, None) })[..] {
            [Action::Refuse { why, .. }] => why,
            ref other => panic!("{other:?}"),
        }
    };
    assert_eq!(answer(1, 1), Refusal::Coming);
    assert_eq!(answer(2, 2), Refusal::Coming);
    assert_eq!(answer(3, 3), Refusal::Gone);
    // Nobody waits for long for one that waits, whoever told it to.
    assert_eq!(node.fails(asked(&waits)[0].fetch, 0, FetchError::Coming), []);
    let refusal = |why| [Action::Refuse { serve: ServeId(4), why }];
    let ask = |object| Event::Ask { serve: ServeId(4), object: ObjectId(object), range: (0, None) };
    assert_eq!(node.send(ask(2)), refusal(Refusal::Coming));
    node.now = node.now.after(COMING_CHAIN_MICROS + 30);
    assert_eq!(node.send(ask(2)), refusal(Refusal::Gone));
    assert_eq!(ready_ids(&node.bring(reads)), [1]);
    assert!(matches!(node.send(ask(1))[..], [Action::Serve { .. }]));
}

#[test]
fn who_is_served_is_bounded_and_the_answer_comes_at_once() {
    let one = file(1, 60);
    let mut node = node(100).with(&[&one]);
    for serve in 0..32 {
        let actions =
            node.send(Event::Ask { serve: ServeId(serve), object: ObjectId(1), range: (0, None) });
        assert!(matches!(actions[..], [Action::Serve { .. }]));
    }
    let refused = |why| [Action::Refuse { serve: ServeId(99), why }];
    let ask =
        |object| Event::Ask { serve: ServeId(99), object: ObjectId(object), range: (0, None) };
    assert_eq!(node.send(ask(1)), refused(Refusal::Busy));
    assert_eq!(node.send(ask(2)), refused(Refusal::Gone));
    // What is served stays.
    let two = file(2, 60);
    assert_eq!(node.want(1, &[input(&two, &[], true)]), []);
    let mut actions = Vec::new();
    for serve in 0..32 {
        actions.extend(node.send(Event::Served(ServeId(serve))));
    }
    assert_eq!(ready_ids(&node.bring(actions)), [1]);
}

#[test]
fn a_full_disk_makes_the_cache_smaller_for_a_while() {
    let one = file(1, 30);
    let mut node = node(100).with(&[&one]);
    let [two, three] = [file(2, 30), file(3, 40)];
    let actions = node.want(1, &[input(&two, &[], true)]);
    let full = FetchError::Write(WriteError::Full);
    // There is no more than the 30 bytes that the first object had.
    let actions = node.fails(asked(&actions)[0].fetch, 5, full);
    assert_eq!(node.stage.cache().tier(TierId(0)).unwrap().0, 30);
    assert!(!node.stage.cache().holds(ObjectId(1)));
    node.bring(actions);
    node.send(Event::Ended(key(1)));
    assert_eq!(node.want(2, &[input(&three, &[], true)]), []);
    let actions = node.wait();
    let tries = u64::from(DISK_FULL_TRIES_MAX);
    assert!(node.now >= Time(ROOM_WAIT_MICROS / tries), "nothing here can free the disk");
    assert_eq!(ready_ids(&node.bring(actions)), [2]);
}

#[test]
fn a_full_disk_is_left_alone_for_longer_while_tasks_run_that_may_free_it() {
    let mut node = node(100);
    let [one, two] = [file(1, 30), file(2, 30)];
    let actions = node.want(1, &[input(&one, &[], true)]);
    node.bring(actions);
    node.send(Event::Started(key(1)));
    let actions = node.want(2, &[input(&two, &[], true)]);
    node.fails(asked(&actions)[0].fetch, 5, FetchError::Write(WriteError::Full));
    let actions = node.wait();
    assert_eq!(node.now, Time(DISK_FULL_MICROS));
    assert_eq!(ready_ids(&node.bring(actions)), [2]);
}

#[test]
fn kept_outputs_stay_until_they_are_released() {
    let mut node = node(100);
    let (output, one) = (file(5, 80), file(1, 60));
    let keep = |object: &Arc<Object>| Event::Keep {
        requester: key(9),
        object: Arc::clone(object),
        only_here: true,
    };
    let actions = node.send(keep(&output));
    let [Action::Adopt { partial, .. }] = actions[..] else { panic!("{actions:?}") };
    let actions = node.send(Event::Adopted { partial, result: Ok(()) });
    assert_eq!(actions, [Action::Kept { requester: key(9), object: ObjectId(5) }]);
    assert_eq!(node.stage.changes().unwrap().added, [(ObjectId(5), 80)]);
    let no_room = "no room for 60 bytes in a cache of 100 bytes: 0 bytes are in use, 0 are on \
                   their way, 80 are kept outputs without a copy elsewhere";
    assert_eq!(failed(&node.send(keep(&one))), [no_room]);
    assert_eq!(node.want(1, &[input(&one, &[], true)]), []);
    assert_eq!(failed(&node.wait()), [no_room]);
    assert_eq!(node.now, Time(ROOM_WAIT_MICROS));
    node.want(2, &[input(&one, &[], true)]);
    let actions = node.send(Event::Release(vec![ObjectId(5)]));
    assert_eq!(ready_ids(&node.bring(actions)), [2]);
    assert_eq!(node.stage.changes().unwrap().removed, [ObjectId(5)]);
}

#[test]
fn a_cancelled_task_ends_its_fetches_unless_another_waits() {
    let mut node = node(100);
    let [one, two] = [file(1, 30), file(2, 30)];
    node.want(1, &[input(&one, &[], true), input(&two, &[], true)]);
    node.want(2, &[input(&two, &[], true)]);
    let actions = node.send(Event::Ended(key(1)));
    assert!(matches!(actions[..], [Action::Discard { partial: PartialId(0), .. }]));
    // An answer that was under way means nothing.
    assert_eq!(node.send(Event::Fetched { fetch: FetchId(0), bytes: 30 }), []);
    let actions = node.send(Event::Fetched { fetch: FetchId(1), bytes: 30 });
    assert_eq!(ready_ids(&node.bring(actions)), [2]);
}

#[test]
fn what_the_queue_will_read_outlives_what_it_will_not() {
    let [one, two, three] = [file(1, 40), file(2, 40), file(3, 40)];
    let cache = CacheOptions { tiers_bytes: vec![100], eviction: Eviction::QueueAware, seed: 1 };
    let stage = Stage::new(&StageOptions::new(cache, 1));
    let mut node = Node { now: Time(0), stage }.with(&[&one, &two]);
    node.send(Event::Demand(vec![(ObjectId(1), 3), (ObjectId(2), 0)]));
    let actions = node.want(1, &[input(&three, &[], true)]);
    assert!(matches!(actions[0], Action::Delete(gone) if gone.object == ObjectId(2)));
}

#[test]
fn what_was_written_down_is_there_after_a_restart() {
    let one = file(1, 40);
    let node = node(100).with(&[&one]);
    let recorded: Vec<_> = node.stage.cache().recorded().collect();
    let cache = |bytes| CacheOptions { tiers_bytes: vec![bytes], eviction: Eviction::Lru, seed: 2 };
    let stage = Stage::restore(&StageOptions::new(cache(100), 2), &recorded);
    let mut again = Node { now: Time(0), stage };
    assert_eq!(again.stage.changes().unwrap().added, [(ObjectId(1), 40)]);
    assert_eq!(ready_ids(&again.want(1, &[input(&one, &[], true)])), [1]);
    // In a smaller cache there is no room for it.
    let stage = Stage::restore(&StageOptions::new(cache(30), 2), &recorded);
    let mut small = Node { now: Time(0), stage };
    assert!(matches!(small.drain()[..], [Action::Delete(gone)] if gone.object == ObjectId(1)));
}
