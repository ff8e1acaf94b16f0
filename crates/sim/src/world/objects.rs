//! A node's cache: carries out what the core's stage wants done, as the shell
//! of an executor does.
//!
//! Files are made, moved and deleted in no time, unless the disk hangs; what
//! takes time is the network, the store, what is read from disks and written to
//! them, and waiting for those who say nothing.

use super::collected::output;
use super::error::Broken;
use super::node::Node;
use super::transfer::{Ends, Failure, Sender, TransferId};
use super::{SEED_INPUTS, World};
use crate::event_queue::Event;
use crate::rng::mix;
use crate::scenario::NodeCache;
use crate::time::{Nanos, SECOND_NANOS};
use falkon_core::data::cache::CacheOptions;
use falkon_core::data::declared::{Declared, Lists, Peer, Serving};
use falkon_core::data::object::{Object, ObjectId, Source};
use falkon_core::data::stage::{
    Action, Event as StageEvent, FetchError, FetchId, PartialId, Refusal, ServeId, StageOptions,
    UnpackId,
};
use falkon_core::execute::{Event as CoreEvent, Start};
use falkon_core::task::ExecutorId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How long a node waits for another that says nothing, as the executor does.
const PEER_SILENCE: Nanos = Nanos(20 * SECOND_NANOS);

/// What a node's shell knows of objects. Most nodes know none: those take no room for it.
#[derive(Debug, Default)]
pub(super) struct Objects(Option<Box<Known>>);

/// What there is from the first object on.
#[derive(Debug, Default)]
struct Known {
    /// Who the executors are that it was told of.
    peers: BTreeMap<ExecutorId, (u32, u64)>,
    /// Transfers to it, by the file that they are written to.
    fetches: BTreeMap<(PartialId, FetchId), TransferId>,
    /// Files that are gone, and the executor does not know it.
    vanished: BTreeSet<ObjectId>,
    /// Events of its disk that are heard once that answers.
    unsaid: Vec<StageEvent>,
}

/// The id of an object of the workload, which its lower half tells.
fn object_id(number: u64) -> ObjectId {
    ObjectId(u128::from(mix(number)) << 64 | u128::from(number))
}

pub(super) fn object_number(id: ObjectId) -> u64 {
    (id.0 & u128::from(u64::MAX)) as u64
}

/// How the stage of a node is set up.
pub(super) fn stage_options(cache: &NodeCache, seed: u64) -> StageOptions {
    let lent = (cache.lend > 0).then_some(cache.lend);
    let tiers_bytes = [cache.bytes].into_iter().chain(lent).collect();
    let options = CacheOptions { tiers_bytes, eviction: cache.eviction, seed };
    StageOptions { lends_last: lent.is_some(), ..StageOptions::new(options, seed) }
}

/// Where a node listens, in words that [`heard_at`] reads.
pub(super) fn serving(number: u64, incarnation: u64) -> Serving {
    Serving { address: format!("node-{number}:{incarnation}"), fingerprint: Vec::new() }
}

fn heard_at(address: &str) -> Option<(u32, u64)> {
    let (node, incarnation) = address.strip_prefix("node-")?.split_once(':')?;
    Some((node.parse().ok()?, incarnation.parse().ok()?))
}

impl Objects {
    /// The node of an executor, and which of its executors, if it was told.
    pub(super) fn listens(&self, executor: ExecutorId) -> Option<(u32, u64)> {
        self.0.as_ref()?.peers.get(&executor).copied()
    }

    fn known(&mut self) -> &mut Known {
        self.0.get_or_insert_default()
    }
}

impl World<'_> {
    /// What some tasks of a client read; nothing if they read the store
    /// themselves.
    pub(super) fn declared(&self, client: u32, first: u64, count: u64) -> Option<Arc<Declared>> {
        let workload = &self.scenario.workload;
        let (stages, outputs) = (self.scenario.stages(), workload.outputs);
        if !workload.has_objects() || (!stages && outputs.is_none()) {
            return None;
        }
        let needs = workload.needs().filter(|_| stages);
        let mut numbers: BTreeMap<u64, u32> = BTreeMap::new();
        let mut objects = Vec::new();
        let (mut items, mut ends) = (Vec::new(), Vec::new());
        let (mut written, mut written_ends) = (Vec::new(), Vec::new());
        for task in first..first + count {
            let index = self.workload_index(client, task);
            let read = stages.then(|| workload.reads_of(self.seed ^ SEED_INPUTS, index));
            let mut named = |number| {
                *numbers.entry(number).or_insert_with(|| {
                    objects.push(self.object(number));
                    objects.len() as u32 - 1
                })
            };
            items.extend(read.into_iter().flatten().map(&mut named));
            if let Some(needs) = needs {
                written.extend(needs.writes.of(index).iter().copied().map(&mut named));
                written_ends.push(written.len() as u32);
            }
            ends.push(items.len() as u32);
            if let Some(outputs) = &outputs {
                written.push(objects.len() as u32);
                written_ends.push(written.len() as u32);
                objects.push(output(outputs, index));
            }
        }
        let outputs = match written.is_empty() {
            true => Lists::default(),
            false => Lists::Each { items: written.into(), ends: written_ends.into() },
        };
        Some(Arc::new(Declared {
            objects: Arc::new(objects),
            inputs: Lists::Each { items: items.into(), ends: ends.into() },
            outputs,
        }))
    }

    /// Where executors listen.
    pub(super) fn set_peers(&mut self, number: u32, peers: Vec<Peer>) -> Result<(), Broken> {
        let objects = &mut self.nodes[number as usize].objects;
        for peer in peers {
            let Some(at) = heard_at(&peer.serves.address) else {
                let address = peer.serves.address;
                return Err(Broken(format!("node {number} is told that one listens at {address}")));
            };
            objects.known().peers.insert(peer.executor, at);
        }
        Ok(())
    }

    /// Carries out what the stage of a node wants done.
    pub(super) fn act_on_stage(&mut self, number: u32, action: Action) -> Result<(), Broken> {
        match action {
            Action::Fetch { fetch, partial, object, source, offset, length, .. } => {
                let object_bytes = self.object_bytes(object.id);
                let bytes = length.unwrap_or_else(|| object_bytes.saturating_sub(offset));
                let range = (offset, length);
                let ends = Ends::Fetch { fetch, partial, object: object.id, range };
                self.fetch(number, source, bytes, ends);
            }
            Action::Seal { partial, object, size, .. } => {
                if size != self.object_bytes(object.id) {
                    let id = object.id;
                    return Err(Broken(format!("{id} has {size} bytes on node {number}")));
                }
                let node = &mut self.nodes[number as usize];
                node.objects.known().vanished.remove(&object.id);
                if let Some(pages) = &mut node.pages {
                    pages.put(object_number(object.id));
                }
                self.measured.staged = self.events.now;
                self.disk_says(number, StageEvent::Sealed { partial, result: Ok(()) });
            }
            Action::Discard { partial, .. } => {
                let fetches = &mut self.nodes[number as usize].objects.known().fetches;
                let of_file = (partial, FetchId(0))..=(partial, FetchId(u64::MAX));
                let open: Vec<_> = fetches.range(of_file).map(|(key, id)| (*key, *id)).collect();
                for (key, transfer) in open {
                    self.nodes[number as usize].objects.known().fetches.remove(&key);
                    self.abandon(transfer);
                }
            }
            Action::Delete(gone) => {
                let node = &mut self.nodes[number as usize];
                node.objects.known().vanished.remove(&gone.object);
                if let Some(pages) = &mut node.pages {
                    pages.forget(object_number(gone.object));
                }
            }
            Action::Serve { serve, object, .. } => self.serve(number, serve, object),
            Action::ServePart { serve, .. } => self.send_object(number, serve),
            Action::GiveUp { fetch, partial } => self.give_up(number, fetch, partial),
            Action::Refuse { serve, why } => {
                let failure = match why {
                    Refusal::Busy => Failure::Busy,
                    Refusal::Coming => Failure::Coming,
                    Refusal::Gone => Failure::Gone,
                };
                self.refuse(TransferId(serve.0), failure);
            }
            Action::Adopt { partial, .. } => {
                self.disk_says(number, StageEvent::Adopted { partial, result: Ok(()) });
            }
            Action::Measure { unpack, .. } => {
                let result = Ok(self.archive_bytes());
                self.disk_says(number, StageEvent::Unpacked { unpack, result });
            }
            Action::Unpack { unpack, .. } => {
                let takes = self.scenario.workload.inputs.and_then(|inputs| inputs.unpack);
                let Some(takes) = takes else {
                    let what = format!("node {number} is to unpack what is no archive: {unpack:?}");
                    return Err(Broken(what));
                };
                let incarnation = self.nodes[number as usize].incarnation;
                let at = self.events.now.after(takes);
                self.events.plan(at, Event::Unpacked { node: number, incarnation, unpack });
            }
            Action::Resolve(object) => {
                // Every object here has a version, and keeps it.
                let event = StageEvent::Resolved { object: object.id, now: Ok(object) };
                self.nodes[number as usize].hear(event);
            }
            Action::Show { object, .. } => {
                let id = object.id;
                return Err(Broken(format!("node {number}, which mounts nothing, shows {id}")));
            }
            Action::Hide(_) => {}
            // The core keeps these to itself.
            Action::Ready { .. }
            | Action::Unready(_)
            | Action::Failed { .. }
            | Action::Kept { .. }
            | Action::NotKept { .. } => {}
        }
        Ok(())
    }

    /// A node has unpacked an archive, if it is still there.
    pub(super) fn has_unpacked(
        &mut self,
        number: u32,
        incarnation: u64,
        unpack: UnpackId,
    ) -> Result<(), Broken> {
        if self.nodes[number as usize].incarnation != incarnation {
            return Ok(());
        }
        self.measured.staged = self.events.now;
        let result = Ok(self.archive_bytes());
        self.disk_says(number, StageEvent::Unpacked { unpack, result });
        self.pump(number)
    }

    /// The disk of a node has done something, or does it once it answers.
    fn disk_says(&mut self, number: u32, event: StageEvent) {
        let node = &mut self.nodes[number as usize];
        if node.disk_hangs_until > self.events.now {
            node.objects.known().unsaid.push(event);
            self.events.plan(node.disk_hangs_until, Event::DiskBack(number));
        } else {
            node.hear(event);
        }
    }

    /// The disk of a node may answer again.
    pub(super) fn disk_back(&mut self, number: u32) -> Result<(), Broken> {
        let node = &mut self.nodes[number as usize];
        for event in std::mem::take(&mut node.objects.known().unsaid) {
            self.disk_says(number, event);
        }
        self.pump(number)
    }

    /// An object of the workload, by its number.
    fn object(&self, number: u64) -> Object {
        let needs = self.scenario.workload.needs();
        let recorded = needs.and_then(|needs| needs.object(number));
        let is_stored = recorded.is_none_or(|object| object.is_stored);
        let url = match is_stored {
            true => format!("/data/{number:08}"),
            false => format!("cache:{number:08}"),
        };
        let size = Some(self.scenario.workload.object_bytes(number));
        Object { id: object_id(number), url: url.into(), version: "1".into(), size }
    }

    pub(super) fn object_bytes(&self, id: ObjectId) -> u64 {
        self.scenario.workload.object_bytes(object_number(id))
    }

    /// A task that starts reads its inputs from its node's cache.
    pub(super) fn count_reads(&mut self, start: &Start) {
        let Some(data) = &start.data else { return };
        let bytes = data.inputs.iter().map(|input| self.object_bytes(input.object.id)).sum();
        self.measured.reads.add(data.inputs.len() as u64, bytes);
    }

    /// The bytes of an archive, as it is and unpacked.
    fn archive_bytes(&self) -> u64 {
        self.scenario.workload.inputs.map_or(0, |inputs| inputs.object_bytes)
    }

    fn fetch(&mut self, number: u32, source: Source, bytes: u64, ends: Ends) {
        let Ends::Fetch { fetch, partial, .. } = ends else { return };
        let transfer = match source {
            Source::Store => self.use_store(self.events.now, number, bytes, ends),
            Source::Own => {
                let why = FetchError::NoMember("workloads have no archives".to_owned());
                let node = &mut self.nodes[number as usize];
                node.hear(StageEvent::FetchFailed { fetch, bytes: 0, why });
                return;
            }
            Source::Peer(_) | Source::Dispatcher => {
                let holder = match source {
                    Source::Peer(id) => self.nodes[number as usize].objects.listens(id),
                    // What dispatchers and relays pass on costs here what it costs from one node
                    // to another.
                    _ => self.holder_for(number, ends),
                };
                let node = &mut self.nodes[number as usize];
                let Some((peer, incarnation)) = holder else {
                    let why = FetchError::Unreachable("its address is not known".to_owned());
                    node.hear(StageEvent::FetchFailed { fetch, bytes: 0, why });
                    return;
                };
                let from = Sender { node: peer, incarnation, serves: false };
                let transfer = self.transfers.add(number, Some(from), bytes, ends);
                let at = self.heard(number, peer);
                self.ask_in_turn(at, transfer);
                transfer
            }
        };
        self.nodes[number as usize].objects.known().fetches.insert((partial, fetch), transfer);
    }

    /// A node that holds what another is to fetch.
    fn holder_for(&self, number: u32, ends: Ends) -> Option<(u32, u64)> {
        let Ends::Fetch { object, .. } = ends else { return None };
        let holds = |node: &Node| {
            let stage = node.machine.stage();
            stage.is_some_and(|stage| stage.cache().holds(object))
        };
        let mut others = (0u32..).zip(&self.nodes).filter(|(other, _)| *other != number);
        let (other, node) = others.find(|(_, node)| holds(node))?;
        Some((other, node.incarnation))
    }

    /// When something that one node says now arrives at another.
    fn heard(&self, one: u32, other: u32) -> Nanos {
        let (one, other) = (&self.nodes[one as usize], &self.nodes[other as usize]);
        let departs = self.events.now.max(one.cut_off_until).max(other.cut_off_until);
        departs.after(self.scenario.network.latency)
    }

    /// A node is asked for an object.
    pub(super) fn peer_asked(&mut self, id: TransferId) -> Result<(), Broken> {
        let now = self.events.now;
        let Some(transfer) = self.transfers.find(id) else { return Ok(()) };
        let (Some(from), Ends::Fetch { object, range, .. }) = (transfer.from, transfer.ends) else {
            return Ok(());
        };
        let peer = &mut self.nodes[from.node as usize];
        if peer.down_until > now {
            let at = now.after(PEER_SILENCE);
            self.events.plan(at, Event::TransferFails(id, Failure::Unreachable));
            return Ok(());
        }
        if peer.incarnation != from.incarnation {
            self.refuse(id, Failure::Unreachable);
            return Ok(());
        }
        let serve = ServeId(id.0);
        let ask = StageEvent::Ask { serve, object, range };
        peer.machine.handle(peer.clock.at(now), CoreEvent::Stage(ask));
        self.pump(from.node)
    }

    fn refuse(&mut self, id: TransferId, failure: Failure) {
        let Some(transfer) = self.transfers.find(id) else { return };
        let (node, Some(from)) = (transfer.node, transfer.from) else { return };
        let lane = transfer.lane.filter(|_| failure == Failure::Coming);
        let at = self.heard(from.node, node);
        self.events.plan(at, Event::TransferFails(id, failure));
        for behind in lane.map_or_else(Vec::new, |lane| self.transfers.lanes.behind(lane)) {
            self.events.plan(at, Event::TransferFails(behind, failure));
        }
    }

    /// A node sends an object, unless its file has vanished.
    fn serve(&mut self, number: u32, serve: ServeId, object: ObjectId) {
        let id = TransferId(serve.0);
        let node = &mut self.nodes[number as usize];
        if node.objects.known().vanished.remove(&object) {
            node.hear(StageEvent::Lost(object));
            node.hear(StageEvent::Served(serve));
            self.refuse(id, Failure::Gone);
            return;
        }
        self.send_object(number, serve);
    }

    /// A node ends a transfer to it.
    fn give_up(&mut self, number: u32, fetch: FetchId, partial: PartialId) {
        let node = &mut self.nodes[number as usize];
        let Some(id) = node.objects.known().fetches.remove(&(partial, fetch)) else { return };
        let bytes = self.progress(id).unwrap_or(0);
        self.abandon(id);
        let why = FetchError::Unreachable("it was given up".to_owned());
        self.nodes[number as usize].hear(StageEvent::FetchFailed { fetch, bytes, why });
    }

    /// A node sends what it has said that it serves.
    fn send_object(&mut self, number: u32, serve: ServeId) {
        let id = TransferId(serve.0);
        let node = &mut self.nodes[number as usize];
        let Some(transfer) = self.transfers.find(id) else {
            node.hear(StageEvent::Served(serve));
            return;
        };
        if let Some(from) = &mut transfer.from {
            from.serves = true;
        }
        let (to, follows) = (transfer.node, transfer.follows);
        let (now, silent) = (self.events.now, self.nodes[number as usize].disk_hangs_until);
        let hangs = silent.since(now);
        if hangs > PEER_SILENCE {
            self.events
                .plan(now.after(PEER_SILENCE), Event::TransferFails(id, Failure::Unreachable));
        }
        // What follows at once on a connection fills it without a pause.
        let at = if follows == Some(now) { now } else { self.heard(number, to) };
        self.events.plan(at.after(hangs), Event::TransferOpens(id));
    }

    /// A conversation of a node that serves is over.
    pub(super) fn peer_hung_up(
        &mut self,
        number: u32,
        incarnation: u64,
        transfer: TransferId,
    ) -> Result<(), Broken> {
        let node = &mut self.nodes[number as usize];
        if node.incarnation != incarnation || node.down_until > self.events.now {
            return Ok(());
        }
        node.hear(StageEvent::Served(ServeId(transfer.0)));
        self.pump(number)
    }

    /// A node hears that a transfer to it is none.
    pub(super) fn transfer_fails(
        &mut self,
        id: TransferId,
        failure: Failure,
    ) -> Result<(), Broken> {
        let Some(transfer) = self.transfers.end(id) else { return Ok(()) };
        self.hang_up(id, transfer.from);
        if let Ends::Handed { offer } = transfer.ends {
            return self.has_not_come(transfer.node, offer);
        }
        let Ends::Fetch { fetch, partial, .. } = transfer.ends else { return Ok(()) };
        let why = match failure {
            Failure::Busy => FetchError::Busy,
            Failure::Coming => FetchError::Coming,
            Failure::Gone => FetchError::Gone,
            Failure::Unreachable => FetchError::Unreachable("it is gone".to_owned()),
        };
        let node = &mut self.nodes[transfer.node as usize];
        node.objects.known().fetches.remove(&(partial, fetch));
        node.hear(StageEvent::FetchFailed { fetch, bytes: 0, why });
        self.pump(transfer.node)
    }

    /// A transfer to a node is complete.
    pub(super) fn fetched(
        &mut self,
        number: u32,
        (partial, fetch): (PartialId, FetchId),
        bytes: u64,
    ) -> Result<(), Broken> {
        let node = &mut self.nodes[number as usize];
        node.objects.known().fetches.remove(&(partial, fetch));
        node.hear(StageEvent::Fetched { fetch, bytes });
        self.pump(number)
    }

    /// A node is gone: what it was sending breaks off, and nobody wants what
    /// it was getting. `is_silent` says that those who wait for it are not told.
    pub(super) fn transfers_break(&mut self, number: u32, is_silent: bool) {
        let (sent, got) = self.transfers.of_node(number);
        for id in got {
            self.abandon(id);
        }
        let latency = self.scenario.network.latency;
        let told = self.events.now.after(if is_silent { PEER_SILENCE } else { latency });
        for id in sent {
            self.transfers.break_off(id);
            self.events.plan(told, Event::TransferFails(id, Failure::Unreachable));
        }
    }

    /// A file in a cache is gone, and nobody has noticed.
    pub(super) fn lose_file(&mut self) {
        let number = self.rng.below(self.nodes.len() as u64);
        let node = &mut self.nodes[number as usize];
        let Some(stage) = node.machine.stage() else { return };
        let held: Vec<ObjectId> =
            stage.cache().recorded().map(|recorded| recorded.object).collect();
        if held.is_empty() {
            return;
        }
        let which = self.rng.below(held.len() as u64) as usize;
        node.objects.known().vanished.insert(held[which]);
        self.measured.faults += 1;
    }

    /// Whether the inputs of a task that starts are there. A file that has
    /// vanished is noticed now, and fails the start.
    pub(super) fn has_inputs(&mut self, number: u32, start: &Start) -> Result<bool, Broken> {
        let key = start.key;
        if !self.scenario.workload.reads() {
            return Ok(true);
        }
        let node = &mut self.nodes[number as usize];
        let Some(stage) = node.machine.stage() else { return Ok(true) };
        let client = u64::from(node.client);
        let index = key.task.0 * u64::from(self.scenario.dispatchers) + client;
        let wanted = self.scenario.workload.reads_of(self.seed ^ SEED_INPUTS, index);
        let staged = start.data.as_ref().map_or(&[][..], |data| &data.inputs);
        let there = staged.iter().map(|input| object_number(input.object.id));
        if !there.eq(wanted.iter().copied()) {
            let (task, found) = (key.task, staged.len());
            return Err(Broken(format!("task {task} starts on node {number} with {found} inputs")));
        }
        for input in staged {
            if !stage.cache().holds(input.object.id) {
                let (task, object) = (key.task, input.object.id);
                let what =
                    format!("task {task} starts on node {number} without its input {object}");
                return Err(Broken(what));
            }
        }
        let mut ids = staged.iter().map(|input| input.object.id);
        let vanished = ids.find(|object| node.objects.known().vanished.contains(object));
        if let Some(object) = vanished {
            node.objects.known().vanished.remove(&object);
            node.hear(StageEvent::Lost(object));
            return Ok(false);
        }
        Ok(true)
    }
}
