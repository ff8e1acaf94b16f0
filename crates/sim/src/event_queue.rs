//! What is going to happen: a heap of events in the order of their times, and
//! of their planning among those of one time.

use crate::rng::mix;
use crate::time::Nanos;
use crate::world::{Failure, Inbound, Side, TransferId, Way};
use falkon_core::data::stage::UnpackId;
use falkon_core::execute::{CollectEvent, TaskKey};
use falkon_core::provision::{AllocationId, Event as ProvisionEvent};
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Something that happens at a time.
#[derive(Debug)]
pub(crate) enum Event {
    /// Something arrives at a dispatcher.
    AtDispatcher { dispatcher: u32, inbound: Inbound },
    /// A dispatcher looks at what has arrived.
    Round(u32),
    /// A dispatcher's timeout may be due.
    DispatcherTimer(u32),
    /// A message arrives at a node.
    AtNode { node: u32, connection: u64, bytes: Box<[u8]> },
    /// A node sees its connection end.
    NodeCut { node: u32, connection: u64 },
    /// A node connects, perhaps after a start.
    NodeConnects(u32),
    /// A node's executor is killed, for good.
    NodeKilled(u32),
    /// An executor's timeout may be due.
    NodeTimer(u32),
    /// A task ends, unless it was killed.
    TaskEnds { node: u32, key: TaskKey },
    /// An archive in a node's cache is unpacked.
    Unpacked { node: u32, incarnation: u64, unpack: UnpackId },
    /// A disk answers, or has not for too long.
    DiskAnswers { node: u32, key: TaskKey },
    /// A node's disk may answer again.
    DiskBack(u32),
    /// A message that has waited for its turn may leave.
    MessageDeparts { dispatcher: u32, connection: u64, way: Way },
    /// A transfer's first byte is sent.
    TransferOpens(TransferId),
    /// A node sees how far a transfer to it has come.
    TransferGoesOn(TransferId),
    /// Transfers may be complete.
    TransfersDue,
    /// A node's question for an object arrives at the one that is to send it.
    PeerAsked(TransferId),
    /// A node hears that a transfer will not be, or gives up waiting for it.
    TransferFails(TransferId, Failure),
    /// A node sees that nobody reads what it sends any more.
    PeerHungUp { node: u32, incarnation: u64, transfer: TransferId },
    /// What one node tells another of outputs that it collects arrives there.
    Collects { node: u32, incarnation: u64, event: Box<CollectEvent> },
    /// A message arrives at a client.
    AtClient { client: u32, connection: u64, bytes: Box<[u8]> },
    /// A client sees its connection end.
    ClientCut { client: u32, connection: u64 },
    /// A client connects.
    ClientConnects(u32),
    /// A client submits the tasks that have arrived.
    ClientSubmits(u32),
    /// A message arrives at a relay, from above or from its own dispatcher.
    AtRelay { relay: u32, side: Side, connection: u64, bytes: Box<[u8]> },
    /// A relay's process starts.
    RelayStarts(u32),
    /// A relay connects to the dispatcher above.
    RelayConnects(u32),
    /// A relay sees its connection end.
    RelayCut { relay: u32, connection: u64 },
    /// A relay's timeout may be due.
    RelayTimer(u32),
    /// A relay asks what nodes there are.
    RelayLooks(u32),
    /// Something breaks.
    Fault,
    /// The provisioner looks at what there is, or hears from the LRM.
    Provisioner(Option<Box<ProvisionEvent>>),
    /// The LRM looks at its queue.
    LrmLooks,
    /// An allocation's time is over, or the LRM kills it.
    AllocationEnds(AllocationId),
}

#[derive(Debug)]
struct Planned {
    at: Nanos,
    number: u64,
    event: Event,
}

impl PartialEq for Planned {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Planned {}

impl PartialOrd for Planned {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Planned {
    /// The heap gives the greatest first, so the earliest is the greatest.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

/// The clock, what is planned, and a fingerprint of what has happened.
#[derive(Debug, Default)]
pub(crate) struct EventQueue {
    heap: BinaryHeap<Planned>,
    planned: u64,
    pub(crate) now: Nanos,
    pub(crate) happened: u64,
    pub(crate) trace: u64,
}

impl EventQueue {
    /// Plans an event; what lies in the past happens now.
    pub(crate) fn plan(&mut self, at: Nanos, event: Event) {
        let number = self.planned;
        self.planned += 1;
        self.heap.push(Planned { at: at.max(self.now), number, event });
    }

    /// When the next event happens.
    pub(crate) fn next_at(&self) -> Option<Nanos> {
        self.heap.peek().map(|planned| planned.at)
    }

    /// The next event, at whose time the clock stands then.
    pub(crate) fn next(&mut self) -> Option<Event> {
        let planned = self.heap.pop()?;
        self.now = planned.at;
        self.happened += 1;
        self.trace = mix(self.trace ^ mix(planned.at.0) ^ planned.event.fingerprint());
        Some(planned.event)
    }
}

impl Event {
    /// A number that depends on all of the event.
    fn fingerprint(&self) -> u64 {
        let (kind, who, what, bytes): (u64, u32, u64, &[u8]) = match self {
            Event::AtDispatcher { dispatcher, inbound } => match inbound {
                Inbound::Opened(connection) => (1, *dispatcher, connection.0, &[]),
                Inbound::Closed(connection) => (2, *dispatcher, connection.0, &[]),
                Inbound::Message(connection, bytes) => (3, *dispatcher, connection.0, bytes),
            },
            Event::Round(dispatcher) => (4, *dispatcher, 0, &[]),
            Event::DispatcherTimer(dispatcher) => (5, *dispatcher, 0, &[]),
            Event::AtNode { node, connection, bytes } => (6, *node, *connection, bytes),
            Event::NodeCut { node, connection } => (7, *node, *connection, &[]),
            Event::NodeConnects(node) => (8, *node, 0, &[]),
            Event::NodeTimer(node) => (9, *node, 0, &[]),
            Event::NodeKilled(node) => (28, *node, 0, &[]),
            Event::TaskEnds { node, key } => (10, *node, mix(key.instance.0) ^ key.task.0, &[]),
            Event::AtClient { client, connection, bytes } => (11, *client, *connection, bytes),
            Event::ClientCut { client, connection } => (12, *client, *connection, &[]),
            Event::ClientConnects(client) => (13, *client, 0, &[]),
            Event::ClientSubmits(client) => (14, *client, 0, &[]),
            Event::AtRelay { relay, side, connection, bytes } => {
                (32 + *side as u64, *relay, *connection, bytes)
            }
            Event::RelayStarts(relay) => (34, *relay, 0, &[]),
            Event::RelayConnects(relay) => (35, *relay, 0, &[]),
            Event::RelayCut { relay, connection } => (36, *relay, *connection, &[]),
            Event::RelayTimer(relay) => (37, *relay, 0, &[]),
            Event::RelayLooks(relay) => (38, *relay, 0, &[]),
            Event::Fault => (15, 0, 0, &[]),
            Event::Provisioner(answer) => (21, u32::from(answer.is_some()), 0, &[]),
            Event::LrmLooks => (22, 0, 0, &[]),
            Event::AllocationEnds(allocation) => (23, 0, allocation.0, &[]),
            Event::DiskAnswers { node, key } => (24, *node, mix(key.instance.0) ^ key.task.0, &[]),
            Event::DiskBack(node) => (25, *node, 0, &[]),
            Event::Unpacked { node, unpack, .. } => (30, *node, unpack.0, &[]),
            Event::MessageDeparts { dispatcher, connection, way } => {
                (26 + *way as u64, *dispatcher, *connection, &[])
            }
            Event::TransferOpens(transfer) => (16, 0, transfer.0, &[]),
            Event::TransferGoesOn(transfer) => (29, 0, transfer.0, &[]),
            Event::TransfersDue => (17, 0, 0, &[]),
            Event::PeerAsked(transfer) => (18, 0, transfer.0, &[]),
            Event::TransferFails(transfer, failure) => (19, *failure as u32, transfer.0, &[]),
            Event::PeerHungUp { node, transfer, .. } => (20, *node, transfer.0, &[]),
            Event::Collects { node, incarnation, .. } => (31, *node, *incarnation, &[]),
        };
        let mut print = mix(kind << 32 | u64::from(who)) ^ mix(what);
        for chunk in bytes.chunks(8) {
            let word = chunk.iter().fold(0u64, |word, byte| word << 8 | u64::from(*byte));
            print = mix(print ^ word);
        }
        print
    }
}
