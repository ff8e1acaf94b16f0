//! Data objects: stores and peers that serve them, disks that hold them.

use super::World;
use super::collected::Handed;
use crate::node::Staged;
use crate::workload::data::{MIB, Objects};
use falkon_core::collect::WriteId;
use falkon_core::data::cache::TierId;
use falkon_core::data::object::{Object, ObjectId, Source};
use falkon_core::data::stage::{Action, Event, FetchError, FetchId, Refusal, ServeId, WriteError};
use falkon_core::execute::{self, CollectEvent, OfferId, TaskKey};
use falkon_core::result::{Outcome, Status};
use falkon_core::task::Time;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a store, a peer or a disk does in a while.
#[derive(Debug)]
pub(super) enum Due {
    /// Something for the stage of a node.
    Stage(usize, Event),
    /// A peer asks a node.
    Ask(usize, ObjectId, Request),
    /// What became of outputs of a node that are collected.
    Collect(usize, CollectEvent),
}

/// A transfer to a node.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request {
    node: usize,
    fetch: FetchId,
    offset: u64,
    length: Option<u64>,
    /// The bytes of the member that is to be read of an archive.
    member: Option<u64>,
}

/// The objects of a world, and where transfers stand.
#[derive(Debug, Default)]
pub(super) struct Data {
    pub(super) objects: Objects,
    pub(super) writes: BTreeMap<(usize, WriteId), Vec<(String, Staged)>>,
    /// What nodes have handed to others that collect.
    pub(super) handed: BTreeMap<OfferId, Handed>,
    /// What others have written for nodes that are told so.
    pub(super) taken: BTreeMap<(usize, WriteId), Vec<(String, Staged)>>,
    pub(super) next_offer: u64,
    /// The streams that archives have, by `ARCHIVE!MEMBER`.
    pub(super) printed: BTreeMap<String, Vec<u8>>,
    serves: BTreeMap<(usize, ServeId), Request>,
    next_serve: u64,
    store_down_until: Time,
}

impl Data {
    pub(super) fn new(objects: Objects) -> Data {
        Data { objects, ..Data::default() }
    }
}

impl World {
    pub(super) fn happen(&mut self, due: Due) {
        match due {
            Due::Stage(index, event) => self.deliver(index, event),
            Due::Ask(index, object, request) => self.ask(index, object, request),
            Due::Collect(index, event) => self.deliver_collected(index, event),
        }
    }

    pub(super) fn soon(&mut self, due: Due) {
        let most = *self.rng.pick(&[1, 2_000, 50_000, 400_000]);
        let at = self.now.after(self.rng.below(most));
        self.later.plan(at, due);
    }

    fn is_down(&self) -> bool {
        self.now < self.data.store_down_until
    }

    /// Whether a transfer or a write fails now.
    pub(super) fn fails(&mut self) -> bool {
        self.now < self.faults.until && self.rng.percent(self.faults.transfers)
    }

    // What a stage wants done.

    pub(super) fn act_stage(&mut self, index: usize, action: Action) {
        let files = &mut self.nodes[index].files;
        match action {
            Action::Delete(gone) => files.delete(gone.object),
            Action::Fetch { fetch, partial, object, source, offset, length, .. } => {
                files.fetch(fetch, partial, offset);
                let member = object.archive().map(|_| self.data.objects.reals[&object.id].size);
                let request = Request { node: index, fetch, offset, length, member };
                self.fetch(index, request, object.id, source);
            }
            Action::Seal { partial, object, size, .. } => {
                assert!(files.complete(partial) >= size, "{object:?} is not whole");
                assert_eq!(size, self.data.objects.reals[&object.id].size);
                let result = self.write(index, object.id, size);
                self.soon(Due::Stage(index, Event::Sealed { partial, result }));
            }
            Action::Discard { partial, .. } => files.discard(partial),
            Action::Adopt { partial, object, .. } => {
                let result = self.write(index, object.id, object.size.unwrap());
                self.soon(Due::Stage(index, Event::Adopted { partial, result }));
            }
            Action::Resolve(object) => {
                let now = match self.is_down() {
                    true => Err(FetchError::Unreachable("the store is down".to_owned())),
                    false => Ok(self.current(self.data.objects.reals[&object.id].becomes.unwrap())),
                };
                self.soon(Due::Stage(index, Event::Resolved { object: object.id, now }));
            }
            Action::Serve { serve, object, .. } => {
                files.serve(serve, object);
                let size = self.data.objects.reals[&object].size;
                if let Some(request) = self.data.serves.remove(&(index, serve)) {
                    self.transfer(request, request.member.unwrap_or(size));
                }
                self.soon(Due::Stage(index, Event::Served(serve)));
            }
            Action::ServePart { serve, .. } => {
                if let Some(request) = self.data.serves.remove(&(index, serve)) {
                    let length = request.length.expect("a part has a length");
                    let end = request.offset + length;
                    self.transfer(request, end);
                }
                self.soon(Due::Stage(index, Event::Served(serve)));
            }
            Action::GiveUp { fetch, .. } => {
                let why = FetchError::Unreachable("it was given up".to_owned());
                self.soon(Due::Stage(index, Event::FetchFailed { fetch, bytes: 0, why }));
            }
            Action::Refuse { serve, why } => {
                let why = match why {
                    Refusal::Busy => FetchError::Busy,
                    Refusal::Coming => FetchError::Coming,
                    Refusal::Gone => FetchError::Gone,
                };
                if let Some(request) = self.data.serves.remove(&(index, serve)) {
                    self.answer(request, 0, Err(why));
                }
            }
            other => panic!("the shell is to do {other:?}"),
        }
    }

    fn write(&mut self, index: usize, object: ObjectId, size: u64) -> Result<(), WriteError> {
        if !self.fails() || self.rng.percent(60) {
            self.nodes[index].files.put(object, size);
            return Ok(());
        }
        let full = self.rng.percent(50);
        Err(if full { WriteError::Full } else { WriteError::Failed("torn".to_owned()) })
    }

    /// What an object without a version has become; without one, it has an id
    /// of its own each time.
    fn current(&mut self, becomes: ObjectId) -> Arc<Object> {
        let objects = &mut self.data.objects;
        let real = objects.reals[&becomes].clone();
        if !real.object.is_unversioned() {
            return real.object;
        }
        let id = objects.make("s3://once/", "", real.size, true);
        let once = objects.reals.get_mut(&id).unwrap();
        once.in_store = true;
        once.object = Arc::new(Object { url: real.object.url.clone(), ..(*once.object).clone() });
        once.object.clone()
    }

    // Transfers.

    fn fetch(&mut self, index: usize, request: Request, object: ObjectId, source: Source) {
        let real = self.data.objects.reals[&object].clone();
        let held = real.object.held_as();
        if let Source::Peer(peer) = source {
            let at = self.nodes[index].files.peers.get(&peer).copied();
            let node = at.expect("a source was named, and not where it listens");
            return self.soon(Due::Ask(node, held, request));
        }
        if source == Source::Own {
            let stage = self.nodes[index].machine.stage();
            assert_ne!(held, object, "only members come from the own cache");
            return match stage.is_some_and(|stage| stage.cache().holds(held)) {
                true => self.transfer(request, real.size),
                false => self.answer(request, 0, Err(FetchError::Gone)),
            };
        }
        if self.is_down() {
            let why = FetchError::Unreachable("the store is down".to_owned());
            self.answer(request, 0, Err(why));
        } else if !real.in_store {
            self.answer(request, 0, Err(FetchError::Gone));
        } else if let Some(becomes) = real.becomes {
            let now = self.current(becomes);
            self.answer(request, 0, Err(FetchError::Changed(now)));
        } else {
            self.transfer(request, real.size);
        }
    }

    fn ask(&mut self, index: usize, object: ObjectId, request: Request) {
        if !self.nodes[index].alive {
            let why = FetchError::Unreachable("nobody listens".to_owned());
            return self.answer(request, 0, Err(why));
        }
        let serve = ServeId(self.data.next_serve);
        self.data.next_serve += 1;
        let range = (request.offset, request.length);
        self.data.serves.insert((index, serve), request);
        self.handle_stage(index, Event::Ask { serve, object, range });
    }

    /// Bytes flow, all of them or a part.
    fn transfer(&mut self, request: Request, size: u64) {
        let length = request.length.unwrap_or(size.saturating_sub(request.offset));
        if !self.fails() {
            return self.answer(request, length, Ok(()));
        }
        let part = self.rng.below(length + 1);
        let (bytes, why) = match self.rng.below(6) {
            0 => (0, FetchError::Gone),
            1 => (0, FetchError::Busy),
            2 => (part, FetchError::Unreachable("it broke off".to_owned())),
            3 => (part, FetchError::Wrong("odd".to_owned())),
            4 => (part, FetchError::Write(WriteError::Full)),
            _ => (part, FetchError::Refused("no".to_owned())),
        };
        self.answer(request, bytes, Err(why));
    }

    fn answer(&mut self, request: Request, bytes: u64, result: Result<(), FetchError>) {
        let Request { node, fetch, offset, .. } = request;
        if bytes > 0 {
            let until = offset + bytes;
            for until in (1..=until / (8 * MIB)).map(|at| at * 8 * MIB).chain([until]) {
                self.later.plan(self.now, Due::Stage(node, Event::Arriving { fetch, until }));
            }
        }
        let event = match result {
            Ok(()) => Event::Fetched { fetch, bytes },
            Err(why) => Event::FetchFailed { fetch, bytes, why },
        };
        // A byte takes some ten nanoseconds.
        let at = self.now.after(1 + bytes / 100 + self.rng.below(20_000));
        self.later.plan(at, Due::Stage(node, event));
    }

    /// Something for a stage: what it says is on the disk by then.
    fn deliver(&mut self, index: usize, event: Event) {
        let files = &mut self.nodes[index].files;
        match &event {
            Event::Fetched { fetch, bytes } | Event::FetchFailed { fetch, bytes, .. } => {
                files.fetched(*fetch, *bytes);
            }
            Event::Served(serve) => files.served(*serve),
            _ => {}
        }
        self.handle_stage(index, event);
    }

    fn handle_stage(&mut self, index: usize, event: Event) {
        if self.nodes[index].alive {
            self.nodes[index].handle(self.now, execute::Event::Stage(event));
            self.pump_node(index);
        }
    }

    /// A node is gone: whoever it was serving learns that it broke off.
    pub(super) fn break_serves(&mut self, index: usize) {
        let mine = |key: &(usize, ServeId)| key.0 == index;
        let serves: Vec<_> = self.data.serves.keys().copied().filter(mine).collect();
        for key in serves {
            if let Some(request) = self.data.serves.remove(&key) {
                let why = FetchError::Unreachable("it died".to_owned());
                self.answer(request, 0, Err(why));
            }
        }
    }

    /// Sizes of what a task has written that has ended well; it is in the store
    /// if it is to go there.
    pub(super) fn written(&mut self, outputs: &[Arc<Object>]) -> Vec<u64> {
        let sizes = outputs.iter().map(|output| {
            let real = self.data.objects.reals.get_mut(&output.id).unwrap();
            real.in_store |= real.object.is_stored() && real.object.member().is_none();
            real.size
        });
        sizes.collect()
    }

    // Faults.

    pub(super) fn data_fault(&mut self) {
        let index = self.rng.below(self.nodes.len() as u64) as usize;
        match self.rng.below(10) {
            0 if self.faults.transfers > 0 => {
                self.data.store_down_until = self.now.after(self.rng.below(4_000_000));
            }
            1 if self.fails() && self.nodes[index].cache.is_some() => {
                self.handle_stage(index, Event::Full(TierId(0)));
            }
            2 if self.fails() => self.lose_files(index, 1),
            3 if self.faults.losses => self.lose_files(index, 1),
            // Its directory is deleted.
            4 if self.faults.losses => self.lose_files(index, usize::MAX),
            _ => {}
        }
    }

    fn lose_files(&mut self, index: usize, count: usize) {
        for _ in 0..count {
            let node = &mut self.nodes[index];
            let Some(object) = node.lose_file(&mut self.rng) else { return };
            self.handle_stage(index, Event::Lost(object));
        }
    }

    // What must be true in the end.

    /// How often tasks that had ended ran again for what they had left.
    pub(crate) fn recomputed(&self) -> u64 {
        self.dispatcher.instance_views().map(|view| view.counts().recomputed).sum()
    }

    /// How often nodes handed staged outputs to others.
    pub(crate) fn handed_over(&self) -> u64 {
        self.data.next_offer
    }

    /// Every task has ended as it may, and nothing is left behind.
    pub(crate) fn judge_data(&mut self) {
        for _ in 0..100 {
            self.run_for(20_000_000);
            let mut stages = self.nodes.iter().filter(|node| node.alive);
            if !stages.any(|node| {
                node.machine.stage().is_some_and(|stage| stage.poll_timeout().is_some())
            }) {
                break;
            }
        }
        for index in 0..self.clients.len() {
            if !self.clients[index].destroyed {
                self.judge_ends(index);
            }
        }
        for (index, node) in self.nodes.iter().enumerate().filter(|(_, node)| node.alive) {
            assert!(node.processes.is_empty(), "node {index} still runs something");
            node.files.judge(&node.machine);
            assert!(node.staged.is_empty(), "node {index} keeps staged outputs");
        }
    }

    fn judge_ends(&self, index: usize) {
        let client = &self.clients[index];
        let ends: BTreeMap<u64, Outcome> =
            client.log.iter().map(|(task, outcome, _)| (*task, *outcome)).collect();
        assert_eq!(ends.len(), client.plan.tasks.len(), "client {index} has not all results");
        for (id, outcome) in &ends {
            let task = &client.plan.tasks[*id as usize];
            let error = client.errors.get(id).map_or("", String::as_str);
            let why = format!("task {id} of client {index}: {outcome:?} {error}");
            let inputs = task.data.iter().flat_map(|data| &data.inputs);
            let any_missing = inputs.into_iter().any(|id| self.data.objects.is_missing(*id));
            let (is_faulty, churn) = (self.faults.transfers > 0, self.faults.cuts);
            match outcome {
                Outcome::Exit(0) => {
                    assert!(!any_missing, "{why}: made of nothing");
                    self.judge_safe(task, &why);
                    self.judge_printed((index, *id), task);
                }
                Outcome::Exit(_) => {
                    // Other failures use up the same tries.
                    let retries = if is_faulty || churn { 0 } else { task.class.retries };
                    assert!(task.fails > retries, "{why}");
                }
                Outcome::Cancelled => assert!(client.cancelled.contains(*id), "{why}"),
                Outcome::UpstreamFailed(upstream) => {
                    assert!(task.after.contains(&upstream.0), "{why}");
                    assert_ne!(ends[&upstream.0].status(), Status::Done, "{why}");
                }
                Outcome::NoInput => {
                    assert!(!error.is_empty(), "{why}");
                    // What was lost is made again, as long as that succeeds.
                    let is_room =
                        error.starts_with("no room for") || error.contains("larger cache");
                    let no_recompute = error.contains("was run again for that");
                    let losses = churn && (is_room || no_recompute);
                    assert!(is_faulty || losses || any_missing, "{why}");
                }
                Outcome::NoOutput => assert!(is_faulty || error.contains("kept outputs"), "{why}"),
                Outcome::Lost => assert!(churn, "{why}"),
                _ => panic!("{why}"),
            }
        }
    }

    /// The shell of a node hears that a task has written its outputs.
    pub(super) fn tell_written(&mut self, index: usize, key: TaskKey, outputs: &[Arc<Object>]) {
        if !outputs.is_empty() {
            let sizes = self.written(outputs);
            self.nodes[index].handle(self.now, execute::Event::Wrote { key, sizes });
        }
    }
}
