//! Transfers of data objects to a node: from the persistent store, or from
//! another node.
//!
//! A transfer from the store waits for its turn if that begins only so many
//! per second, then for the store's operation and the network's latency; one
//! from another node waits until that has said that it serves. Then it flows,
//! sharing the store's bandwidth, or the sender's disk and link, and its own
//! node's link and disk with others. What a process reads from its node's cache,
//! and what goes from memory to a disk, are transfers as well, which cross that
//! node's devices alone.

use super::World;
use super::connections::{Way, Who};
use super::disk::{Devices, Medium};
use super::error::Broken;
use super::lanes::{Lane, Lanes};
use super::objects::object_number;
use crate::event_queue::Event;
use crate::flow::{Crossing, FlowId, Flows, ResourceId};
use crate::scenario::Scenario;
use crate::time::Nanos;
use falkon_core::collect::WriteId;
use falkon_core::data::broadcast::Chunks;
use falkon_core::data::limits::{
    BROADCAST_CHUNK_BYTES_MAX, BROADCAST_OBJECT_BYTES_MIN, PROGRESS_MICROS,
};
use falkon_core::data::object::ObjectId;
use falkon_core::data::stage::{ByteRange, Event as StageEvent, FetchId, PartialId};
use falkon_core::execute::{OfferId, TaskKey};
use std::collections::BTreeMap;

/// The node of a transfer that goes to none.
const NO_NODE: u32 = u32::MAX;

/// A transfer under way. Numbers are never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TransferId(pub(crate) u64);

/// Why a transfer from another node is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The other has too much to do.
    Busy,
    /// The other is still fetching it.
    Coming,
    /// The other has not got the object.
    Gone,
    /// Nobody is there any more.
    Unreachable,
}

/// What the end of a transfer means.
#[derive(Debug, Clone, Copy)]
pub(super) enum Ends {
    /// A process has read an input from the store.
    Read { key: TaskKey, object: u64 },
    /// A process has read an input from its node's cache.
    Own { key: TaskKey, object: u64 },
    /// Bytes that memory took in are on the disk as well.
    Flushed,
    /// A long message has left its sender.
    Message { dispatcher: u32, connection: u64, who: Who, way: Way },
    /// A process has written its output to the store.
    Put { key: TaskKey },
    /// A file of an archive is on the store.
    Collected { write: WriteId },
    /// What another node has staged has come.
    Handed { offer: OfferId },
    /// A cache has got an object, or a part of it.
    Fetch { fetch: FetchId, partial: PartialId, object: ObjectId, range: ByteRange },
}

/// A node that sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sender {
    pub(super) node: u32,
    pub(super) incarnation: u64,
    /// It has said that it serves, and not yet heard that it is over.
    pub(super) serves: bool,
}

#[derive(Debug)]
pub(super) struct Transfer {
    id: TransferId,
    pub(super) node: u32,
    pub(super) bytes: u64,
    pub(super) ends: Ends,
    /// `None` is the store, unless its end means that all is on one node.
    pub(super) from: Option<Sender>,
    flow: Option<FlowId>,
    /// Its sender is gone, and its receiver will hear of that.
    is_broken: bool,
    /// Where it flows from and to on the nodes; `None` takes no time.
    pub(super) reads: Option<Medium>,
    pub(super) writes: Option<Medium>,
    /// Of its bytes, how many are written once all have come.
    pub(super) gathered: u64,
    /// It is a chunk, on this connection.
    pub(super) lane: Option<Lane>,
    /// When the one before it there had been sent, if it waited for that.
    pub(super) follows: Option<Nanos>,
}

pub(super) struct Transfers {
    flows: Flows,
    pub(super) lanes: Lanes,
    store: Option<ResourceId>,
    /// Each node's, if tasks read anything.
    pub(super) devices: Vec<Devices>,
    /// The links of nodes without devices that were sent long messages, of
    /// dispatchers and of clients: away from each, and towards it.
    lone: BTreeMap<u32, (ResourceId, ResourceId)>,
    hosts: Vec<(ResourceId, ResourceId)>,
    clients: Vec<(ResourceId, ResourceId)>,
    node_bytes_per_s: f64,
    /// By place, which a number has in its lower half.
    open: Vec<Option<Transfer>>,
    free: Vec<u32>,
    /// Tells the uses of a place apart.
    uses: u32,
    /// When the store may begin its next operation.
    store_free_at: Nanos,
    /// When transfers are looked at next.
    planned: Option<Nanos>,
}

impl Transfers {
    pub(super) fn new(scenario: &Scenario) -> Transfers {
        let mut flows = Flows::default();
        let network = &scenario.network;
        let mut links = |count: u32, rate| -> Vec<(ResourceId, ResourceId)> {
            let each = (0..count).map(|_| {
                let up = flows.add_resource(rate);
                (up, flows.add_resource(rate))
            });
            each.collect()
        };
        let hosts = links(scenario.tree().hosts(), network.dispatcher_bytes_per_s);
        let clients = links(scenario.dispatchers, network.node_bytes_per_s);
        let (mut store, mut devices) = (None, Vec::new());
        if scenario.workload.has_objects() {
            store = Some(flows.add_resource(scenario.store.bytes_per_s));
            let link = scenario.network.node_bytes_per_s;
            for group in &scenario.nodes {
                let disk = group.disk.as_ref();
                devices.extend((0..group.count).map(|_| Devices::new(&mut flows, link, disk)));
            }
        }
        Transfers {
            flows,
            lanes: Lanes::default(),
            store,
            devices,
            lone: BTreeMap::new(),
            hosts,
            clients,
            node_bytes_per_s: network.node_bytes_per_s,
            open: Vec::new(),
            free: Vec::new(),
            uses: 0,
            store_free_at: Nanos(0),
            planned: None,
        }
    }

    fn place(&self, id: TransferId) -> Option<usize> {
        let place = (id.0 & u64::from(u32::MAX)) as usize;
        self.open.get(place)?.as_ref().filter(|transfer| transfer.id == id).map(|_| place)
    }

    /// A transfer that is under way.
    pub(super) fn find(&mut self, id: TransferId) -> Option<&mut Transfer> {
        let place = self.place(id)?;
        self.open[place].as_mut()
    }

    pub(super) fn add(
        &mut self,
        node: u32,
        from: Option<Sender>,
        bytes: u64,
        ends: Ends,
    ) -> TransferId {
        let place = self.free.pop().unwrap_or_else(|| {
            self.open.push(None);
            self.open.len() as u32 - 1
        });
        self.uses = self.uses.wrapping_add(1);
        let id = TransferId(u64::from(self.uses) << 32 | u64::from(place));
        self.open[place as usize] = Some(Transfer {
            id,
            node,
            bytes,
            ends,
            from,
            flow: None,
            is_broken: false,
            reads: None,
            writes: None,
            gathered: 0,
            lane: None,
            follows: None,
        });
        id
    }

    /// Adds a long message, to a node or elsewhere.
    pub(super) fn add_message(&mut self, who: Who, bytes: u64, ends: Ends) -> TransferId {
        let node = match who {
            Who::Node(node) => node,
            Who::Client(_) | Who::Relay(_) | Who::Owner(_) => NO_NODE,
        };
        self.add(node, None, bytes, ends)
    }

    /// The links that a long message crosses.
    pub(super) fn links(&mut self, dispatcher: u32, who: Who, way: Way) -> [Crossing; 2] {
        let (flows, rate) = (&mut self.flows, self.node_bytes_per_s);
        let peer = match who {
            Who::Node(node) => match self.devices.get(node as usize) {
                Some(devices) => (devices.up, devices.down),
                None => *self.lone.entry(node).or_insert_with(|| {
                    let up = flows.add_resource(rate);
                    (up, flows.add_resource(rate))
                }),
            },
            Who::Client(client) => self.clients[client as usize],
            Who::Relay(relay) | Who::Owner(relay) => {
                self.hosts[self.clients.len() + relay as usize]
            }
        };
        let host = self.hosts[dispatcher as usize];
        match way {
            Way::Up => [peer.0.into(), host.1.into()],
            Way::Down => [host.0.into(), peer.1.into()],
        }
    }

    /// Whether a node's cache is on a disk that takes time.
    pub(super) fn has_disk(&self, node: u32) -> bool {
        self.devices.get(node as usize).is_some_and(Devices::has_disk)
    }

    /// The link that transfers from the store share; nothing if tasks read nothing.
    pub(super) fn store_link(&self) -> Option<Crossing> {
        self.store.map(Crossing::from)
    }

    fn remove(&mut self, place: usize) -> Option<Transfer> {
        self.free.push(place as u32);
        let transfer = self.open[place].take();
        if let Some(Transfer { id, lane: Some(lane), .. }) = transfer {
            self.lanes.leave(lane, id);
        }
        transfer
    }

    /// Takes a transfer out, and its flow.
    pub(super) fn end(&mut self, id: TransferId) -> Option<Transfer> {
        let place = self.place(id)?;
        let transfer = self.remove(place)?;
        if let Some(flow) = transfer.flow {
            self.flows.end(flow);
        }
        Some(transfer)
    }

    /// The sender of a transfer is gone: no more of it arrives.
    pub(super) fn break_off(&mut self, id: TransferId) {
        let Some(place) = self.place(id) else { return };
        let Some(transfer) = &mut self.open[place] else { return };
        transfer.is_broken = true;
        if let Some(from) = &mut transfer.from {
            from.serves = false;
        }
        if let Some(flow) = transfer.flow.take() {
            self.flows.end(flow);
        }
    }

    /// The transfers that a node has to do with: from it, and to it.
    pub(super) fn of_node(&self, node: u32) -> (Vec<TransferId>, Vec<TransferId>) {
        let sends = |transfer: &&Transfer| transfer.from.is_some_and(|from| from.node == node);
        let gets = |transfer: &&Transfer| transfer.node == node;
        let open = || self.open.iter().flatten();
        let ids = |found: Vec<&Transfer>| found.into_iter().map(|transfer| transfer.id).collect();
        (ids(open().filter(sends).collect()), ids(open().filter(gets).collect()))
    }
}

impl World<'_> {
    /// Reads an object from the persistent store, or writes one there, from `at` on.
    pub(super) fn use_store(&mut self, at: Nanos, node: u32, bytes: u64, ends: Ends) -> TransferId {
        let store = &self.scenario.store;
        let mut begins = at;
        if let Some(rate) = store.operations_per_s {
            begins = begins.max(self.transfers.store_free_at);
            self.transfers.store_free_at = begins.after(Nanos::from_seconds(1.0 / rate));
        }
        let latency = self.scenario.network.latency;
        let opens = begins.after(store.operation).after(latency).after(latency);
        let opens = opens.max(self.nodes[node as usize].cut_off_until);
        let id = self.transfers.add(node, None, bytes, ends);
        self.events.plan(opens, Event::TransferOpens(id));
        id
    }

    /// A chunk is asked for, once those before it on its connection are sent.
    pub(super) fn ask_in_turn(&mut self, at: Nanos, id: TransferId) {
        let workload = &self.scenario.workload;
        let is_large =
            |object| workload.object_bytes(object_number(object)) >= BROADCAST_OBJECT_BYTES_MIN;
        let Some(transfer) = self.transfers.find(id) else { return };
        let lane = match (transfer.from, transfer.ends) {
            (Some(from), Ends::Fetch { object, range: (_, Some(length)), .. })
                if is_large(object) && length <= BROADCAST_CHUNK_BYTES_MAX =>
            {
                Some((transfer.node, from.node, object))
            }
            _ => None,
        };
        transfer.lane = lane;
        if lane.is_none_or(|lane| self.transfers.lanes.enter(lane, id)) {
            self.events.plan(at, Event::PeerAsked(id));
        }
    }

    /// Chunks are asked for whose turn it is.
    pub(super) fn ask_next(&mut self) {
        let now = self.events.now;
        for id in self.transfers.lanes.take_turns() {
            if let Some(transfer) = self.transfers.find(id) {
                transfer.follows = Some(now);
                self.events.plan(now, Event::PeerAsked(id));
            }
        }
    }

    /// Nobody waits for a transfer any more.
    pub(super) fn abandon(&mut self, id: TransferId) {
        if let Some(transfer) = self.transfers.end(id) {
            self.hang_up(id, transfer.from);
        }
    }

    /// The sender of a transfer, if it serves, sees that nobody wants it.
    pub(super) fn hang_up(&mut self, transfer: TransferId, from: Option<Sender>) {
        let Some(Sender { node, incarnation, .. }) = from.filter(|from| from.serves) else {
            return;
        };
        let at = self.events.now.after(self.scenario.network.latency);
        self.events.plan(at, Event::PeerHungUp { node, incarnation, transfer });
    }

    /// Reads an object of a node's own cache, from `at` on.
    pub(super) fn read_own(&mut self, at: Nanos, node: u32, bytes: u64, ends: Ends) -> TransferId {
        let opens = at.max(self.nodes[node as usize].disk_hangs_until);
        let id = self.transfers.add(node, None, bytes, ends);
        self.events.plan(opens, Event::TransferOpens(id));
        id
    }

    pub(super) fn transfer_opens(&mut self, id: TransferId) {
        let Some(place) = self.transfers.place(id) else { return };
        let Some(mut transfer) = self.transfers.open[place].take_if(|one| !one.is_broken) else {
            return;
        };
        let (crosses, bytes) = (self.crosses(&mut transfer), transfer.bytes as f64);
        let flow = self.transfers.flows.begin(self.events.now, bytes, &crosses, place as u64);
        transfer.flow = Some(flow);
        self.transfers.open[place] = Some(transfer);
        self.plan_progress(id);
    }

    /// Has a node see how far a part of a large object has come that flows to it.
    fn plan_progress(&mut self, id: TransferId) {
        let Some(transfer) = self.transfers.find(id) else { return };
        let Ends::Fetch { object, .. } = transfer.ends else { return };
        let bytes = transfer.bytes;
        let whole = self.object_bytes(object);
        if whole < BROADCAST_OBJECT_BYTES_MIN {
            return;
        }
        let chunk = Chunks::of(whole).bytes;
        let pause = match bytes > chunk {
            true => chunk as f64 / self.transfers.node_bytes_per_s,
            false => PROGRESS_MICROS as f64 * 1e-6,
        };
        let at = self.events.now.after(Nanos::from_seconds(pause));
        self.events.plan(at, Event::TransferGoesOn(id));
    }

    /// How many bytes of a transfer have come, while it flows.
    pub(super) fn progress(&self, id: TransferId) -> Option<u64> {
        let transfer = self.transfers.open[self.transfers.place(id)?].as_ref()?;
        let left = self.transfers.flows.left(transfer.flow?, self.events.now);
        Some(transfer.bytes.saturating_sub(left.ceil() as u64))
    }

    /// A node sees how far a transfer to it has come.
    pub(super) fn transfer_goes_on(&mut self, id: TransferId) -> Result<(), Broken> {
        let Some(bytes) = self.progress(id) else { return Ok(()) };
        self.plan_progress(id);
        let Some(transfer) = self.transfers.find(id) else { return Ok(()) };
        let (number, Ends::Fetch { fetch, .. }) = (transfer.node, transfer.ends) else {
            return Ok(());
        };
        self.nodes[number as usize].hear(StageEvent::Written { fetch, bytes });
        self.pump(number)
    }

    /// A transfer has brought all its bytes: what of them was gathered is written now,
    /// if anything was.
    fn writes_the_rest(&mut self, place: usize) -> bool {
        let Some(transfer) = &mut self.transfers.open[place] else { return false };
        let (bytes, node) = (std::mem::take(&mut transfer.gathered), transfer.node);
        if bytes == 0 {
            return false;
        }
        let medium = transfer.writes;
        let Some(written) = self.written(node, medium) else { return false };
        let flow =
            self.transfers.flows.begin(self.events.now, bytes as f64, &[written], place as u64);
        if let Some(transfer) = &mut self.transfers.open[place] {
            transfer.flow = Some(flow);
        }
        true
    }

    pub(super) fn transfers_due(&mut self) -> Result<(), Broken> {
        let now = self.events.now;
        if self.transfers.planned == Some(now) {
            self.transfers.planned = None;
        }
        while let Some(place) = self.transfers.flows.complete(now) {
            if self.writes_the_rest(place as usize) {
                continue;
            }
            let Some(transfer) = self.transfers.remove(place as usize) else { continue };
            let Transfer { id, node, bytes, ends, from, .. } = transfer;
            self.has_moved(&transfer);
            let (object, is_whole) = match ends {
                Ends::Read { object, .. } => (object, true),
                Ends::Fetch { object, range, .. } => (object_number(object), range.0 == 0),
                Ends::Own { key, .. } => {
                    self.has_read(node, key);
                    continue;
                }
                Ends::Flushed => continue,
                Ends::Put { key } => {
                    self.has_put(node, key)?;
                    continue;
                }
                Ends::Collected { write } => {
                    self.has_collected(node, write)?;
                    continue;
                }
                Ends::Handed { offer } => {
                    self.has_come(node, offer)?;
                    continue;
                }
                Ends::Message { dispatcher, connection, way, .. } => {
                    self.message_has_left(dispatcher, connection, way);
                    continue;
                }
            };
            let count = match from {
                None => &mut self.measured.store,
                Some(_) => &mut self.measured.peer,
            };
            count.add(u64::from(is_whole), bytes);
            if let Some(read) = self.measured.objects.get_mut(object as usize) {
                self.measured.different += u64::from(!std::mem::replace(read, true));
            }
            self.hang_up(id, from);
            match ends {
                Ends::Read { key, .. } => self.has_read(node, key),
                Ends::Fetch { fetch, partial, .. } => {
                    self.fetched(node, (partial, fetch), bytes)?;
                }
                Ends::Own { .. }
                | Ends::Flushed
                | Ends::Message { .. }
                | Ends::Put { .. }
                | Ends::Collected { .. }
                | Ends::Handed { .. } => {}
            }
        }
        Ok(())
    }

    /// Works out rates that have changed, and when the next transfer is
    /// complete.
    pub(super) fn share_out_transfers(&mut self) {
        self.transfers.flows.share_out_again(self.events.now);
        let Some(due) = self.transfers.flows.next_due() else { return };
        if self.transfers.planned.is_none_or(|planned| due < planned) {
            self.transfers.planned = Some(due);
            self.events.plan(due, Event::TransfersDue);
        }
    }
}
