//! Connections: they keep order, delay, and break.
//!
//! A message takes the latency and its bytes' time on the links of both ends,
//! its peer's and its dispatcher's. Short messages take turns on each of them;
//! a long one is a transfer, which shares them with data and with other long
//! ones, and what is sent on its connection after it waits for it. What is sent
//! over a link that a partition has cut arrives after it, as TCP would send it
//! again.

use super::dispatcher::Dispatching;
use super::relay::Side;
use super::transfer::{Ends, TransferId};
use super::{Inbound, World};
use crate::event_queue::Event;
use crate::time::{Nanos, SECOND_NANOS};
use falkon_core::dispatch::ConnectionId;
use std::collections::VecDeque;

/// Time to connect, in one-way latencies: three for TCP, two for the handshake
/// on top of it.
const CONNECT_LATENCIES: u64 = 5;
/// The shortest pause before a lost connection is made again.
const RECONNECT: Nanos = Nanos(SECOND_NANOS / 10);
/// A message of so many bytes is long.
const LONG_BYTES: usize = 64 << 10;

/// The direction of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// To the dispatcher.
    Up,
    /// From it.
    Down,
}

impl Way {
    /// The other direction.
    fn back(self) -> Way {
        match self {
            Way::Up => Way::Down,
            Way::Down => Way::Up,
        }
    }
}

/// When a link is free for the next short message, each way.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Turns {
    up: Nanos,
    down: Nanos,
}

impl Turns {
    /// A message that is there at `from` takes so long. Returns when it begins
    /// and ends.
    fn take(&mut self, way: Way, from: Nanos, span: Nanos) -> (Nanos, Nanos) {
        let free = match way {
            Way::Up => &mut self.up,
            Way::Down => &mut self.down,
        };
        let begins = from.max(*free);
        *free = begins.after(span);
        (begins, *free)
    }
}

/// One direction of a connection.
#[derive(Debug, Default)]
struct Lane {
    /// When what was sent last arrives: order is kept.
    last: Nanos,
    /// Few connections have any: those of nodes have short messages.
    line: Option<Box<Line>>,
}

/// Messages of one direction that wait.
#[derive(Debug, Default)]
struct Line {
    /// Messages that have not left yet, each with its earliest time: all wait for the first.
    queue: VecDeque<(Nanos, Box<[u8]>)>,
    /// The first of these is under way.
    flow: Option<TransferId>,
}

impl Lane {
    /// The first message that waits, and when it may leave.
    fn first(&self) -> Option<&(Nanos, Box<[u8]>)> {
        self.line.as_ref()?.queue.front()
    }

    fn line(&mut self) -> &mut Line {
        self.line.get_or_insert_default()
    }
}

/// Who is at the other end of a dispatcher's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Who {
    Node(u32),
    Client(u32),
    /// A relay, of the dispatcher above it.
    Relay(u32),
    /// A relay, of its own dispatcher, in the same process.
    Owner(u32),
}

/// A dispatcher's side of a connection.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) who: Who,
    up: Lane,
    down: Lane,
    pub(super) is_open: bool,
}

impl Peer {
    fn new(who: Who) -> Peer {
        Peer { who, up: Lane::default(), down: Lane::default(), is_open: true }
    }

    fn lane(&mut self, way: Way) -> &mut Lane {
        match way {
            Way::Up => &mut self.up,
            Way::Down => &mut self.down,
        }
    }
}

impl Dispatching {
    /// Somebody connects. Returns the number of the connection.
    pub(super) fn open_for(&mut self, who: Who) -> u64 {
        self.peers.push(Peer::new(who));
        self.peers.len() as u64 - 1
    }
}

/// The time that so many bytes take at so many per second.
pub(super) fn span_of(bytes: usize, bytes_per_s: f64) -> Nanos {
    Nanos((bytes as f64 / bytes_per_s * SECOND_NANOS as f64) as u64)
}

impl World<'_> {
    /// A partition keeps what goes to or from a peer until then.
    fn cut_off_until(&self, who: Who) -> Nanos {
        match who {
            Who::Node(node) => self.nodes[node as usize].cut_off_until,
            Who::Relay(relay) => self.relays[relay as usize].cut_off_until,
            Who::Client(_) | Who::Owner(_) => Nanos(0),
        }
    }

    /// When a short message arrives that is sent at `departs`.
    fn arrival(
        &mut self,
        dispatcher: u32,
        who: Who,
        way: Way,
        departs: Nanos,
        bytes: usize,
    ) -> Nanos {
        let network = &self.scenario.network;
        let node_rate = network.node_bytes_per_s;
        // What goes up to the dispatcher above leaves a relay's own link.
        let (turns, side, rate) = match who {
            Who::Node(node) => (&mut self.nodes[node as usize].turns, way, node_rate),
            Who::Client(client) => (&mut self.clients[client as usize].turns, way, node_rate),
            Who::Relay(relay) | Who::Owner(relay) => {
                let host = self.relays[relay as usize].host();
                let turns = &mut self.dispatchers[host as usize].turns;
                (turns, way.back(), network.dispatcher_bytes_per_s)
            }
        };
        // It passes through: both links take it in at the same time.
        let span = span_of(bytes, rate);
        let (begins, passed) = turns.take(side, departs, span);
        let turns = &mut self.dispatchers[dispatcher as usize].turns;
        let span = span_of(bytes, network.dispatcher_bytes_per_s);
        let (_, ends) = turns.take(way, begins, span);
        ends.max(passed).max(self.cut_off_until(who)).after(network.latency)
    }

    /// Opens a connection to a dispatcher. `None` while that is down.
    pub(super) fn connect(&mut self, dispatcher: u32, who: Who) -> Option<u64> {
        let host = &mut self.dispatchers[dispatcher as usize];
        if host.down_until > self.events.now {
            return None;
        }
        let connection = host.open_for(who);
        let mut at = self.events.now.max(self.cut_off_until(who));
        for _ in 0..CONNECT_LATENCIES {
            at = at.after(self.scenario.network.latency);
        }
        self.plan_up(dispatcher, connection, at, Inbound::Opened(ConnectionId(connection)));
        Some(connection)
    }

    /// When to try to connect again.
    pub(super) fn reconnect_at(&mut self, dispatcher: u32) -> Nanos {
        let earliest = self.events.now.max(self.dispatchers[dispatcher as usize].down_until);
        earliest.after(RECONNECT).after(self.rng.span(RECONNECT))
    }

    /// Sends a message, to a dispatcher or from it.
    pub(super) fn send(
        &mut self,
        dispatcher: u32,
        connection: u64,
        way: Way,
        departs: Nanos,
        bytes: Vec<u8>,
    ) {
        let now = self.events.now;
        let peer = &mut self.dispatchers[dispatcher as usize].peers[connection as usize];
        if let Who::Owner(relay) = peer.who {
            return self.pass_within(relay, connection, way, departs, bytes);
        }
        // A client that is busy sends later, when others may have their turn.
        let later = matches!((peer.who, way), (Who::Client(_), Way::Up)) && departs > now;
        let lane = peer.lane(way);
        if lane.first().is_none() && bytes.len() < LONG_BYTES && !later {
            return self.pass(dispatcher, connection, way, departs, bytes.into());
        }
        let queue = &mut lane.line().queue;
        queue.push_back((departs, bytes.into()));
        if queue.len() == 1 {
            self.events.plan(departs, Event::MessageDeparts { dispatcher, connection, way });
        }
    }

    /// The first message of a queue may leave.
    pub(super) fn message_departs(&mut self, dispatcher: u32, connection: u64, way: Way) {
        let now = self.events.now;
        let peer = &mut self.dispatchers[dispatcher as usize].peers[connection as usize];
        let (who, line) = (peer.who, peer.lane(way).line());
        if line.flow.is_some() {
            return;
        }
        let Some((_, bytes)) = line.queue.pop_front() else { return };
        if bytes.len() < LONG_BYTES {
            self.pass(dispatcher, connection, way, now, bytes);
            return self.plan_departure(dispatcher, connection, way);
        }
        let length = bytes.len() as u64;
        line.queue.push_front((now, bytes));
        let ends = Ends::Message { dispatcher, connection, who, way };
        let flow = self.transfers.add_message(who, length, ends);
        let peer = &mut self.dispatchers[dispatcher as usize].peers[connection as usize];
        peer.lane(way).line().flow = Some(flow);
        self.events.plan(self.cut_off_until(who), Event::TransferOpens(flow));
    }

    fn plan_departure(&mut self, dispatcher: u32, connection: u64, way: Way) {
        let peer = &mut self.dispatchers[dispatcher as usize].peers[connection as usize];
        if let Some((departs, _)) = peer.lane(way).first() {
            self.events.plan(*departs, Event::MessageDeparts { dispatcher, connection, way });
        }
    }

    /// The last byte of a long message has left.
    pub(super) fn message_has_left(&mut self, dispatcher: u32, connection: u64, way: Way) {
        let at = self.events.now.after(self.scenario.network.latency);
        let peer = &mut self.dispatchers[dispatcher as usize].peers[connection as usize];
        let line = peer.lane(way).line();
        line.flow = None;
        if let Some((_, bytes)) = line.queue.pop_front() {
            self.arrive(dispatcher, connection, way, at, bytes);
        }
        self.plan_departure(dispatcher, connection, way);
    }

    /// A short message leaves.
    fn pass(
        &mut self,
        dispatcher: u32,
        connection: u64,
        way: Way,
        departs: Nanos,
        bytes: Box<[u8]>,
    ) {
        let who = self.dispatchers[dispatcher as usize].peers[connection as usize].who;
        let at = self.arrival(dispatcher, who, way, departs, bytes.len());
        self.arrive(dispatcher, connection, way, at, bytes);
    }

    /// A message is there at `at`, or behind what was sent before it.
    fn arrive(&mut self, dispatcher: u32, connection: u64, way: Way, at: Nanos, bytes: Box<[u8]>) {
        if way == Way::Up {
            let message = Inbound::Message(ConnectionId(connection), bytes);
            return self.plan_up(dispatcher, connection, at, message);
        }
        let peer = &mut self.dispatchers[dispatcher as usize].peers[connection as usize];
        let last = peer.down.last.max(at);
        peer.down.last = last;
        match peer.who {
            Who::Node(node) => {
                // Its thread takes in one after the other.
                let costs = &self.scenario.executor;
                let there = &mut self.nodes[node as usize];
                let begins = last.max(there.busy_until);
                let acts =
                    begins.after(costs.message).after(span_of(bytes.len(), costs.bytes_per_s));
                there.busy_until = acts;
                self.events.plan(acts, Event::AtNode { node, connection, bytes });
            }
            Who::Client(client) => {
                self.events.plan(last, Event::AtClient { client, connection, bytes });
            }
            Who::Relay(relay) => {
                self.plan_at_relay(relay, Side::Above, connection, last, bytes);
            }
            Who::Owner(relay) => self.plan_at_relay(relay, Side::Own, connection, last, bytes),
        }
    }

    fn plan_up(&mut self, dispatcher: u32, connection: u64, at: Nanos, inbound: Inbound) {
        let peer = &mut self.dispatchers[dispatcher as usize].peers[connection as usize];
        peer.up.last = peer.up.last.max(at);
        self.events.plan(peer.up.last, Event::AtDispatcher { dispatcher, inbound });
    }

    /// A message that has not left on a connection that is over never does.
    fn drop_queued(&mut self, dispatcher: u32, connection: u64) {
        let peer = &mut self.dispatchers[dispatcher as usize].peers[connection as usize];
        for lane in [&mut peer.up, &mut peer.down] {
            if let Some(flow) = lane.line.take().and_then(|line| line.flow) {
                self.transfers.end(flow);
            }
        }
    }

    /// The peer's end sees the connection close, at `at` or after what is
    /// under way to it.
    pub(super) fn close_at_peer(&mut self, dispatcher: u32, connection: u64, at: Nanos) {
        self.drop_queued(dispatcher, connection);
        let peer = &self.dispatchers[dispatcher as usize].peers[connection as usize];
        let at = at.max(peer.down.last);
        match peer.who {
            Who::Node(node) => {
                let there = &self.nodes[node as usize];
                let at = at.max(there.cut_off_until).max(there.busy_until);
                let at = at.after(self.scenario.executor.message);
                self.events.plan(at, Event::NodeCut { node, connection });
            }
            Who::Client(client) => self.events.plan(at, Event::ClientCut { client, connection }),
            Who::Relay(relay) => {
                let there = &self.relays[relay as usize];
                let at = at.max(there.cut_off_until).max(there.busy_until);
                self.events.plan(at, Event::RelayCut { relay, connection });
            }
            // They die together.
            Who::Owner(_) => {}
        }
    }

    /// The dispatcher's end sees the connection close, at `at`; what is under
    /// way to it and later is lost.
    pub(super) fn close_at_dispatcher(&mut self, dispatcher: u32, connection: u64, at: Nanos) {
        self.drop_queued(dispatcher, connection);
        let inbound = Inbound::Closed(ConnectionId(connection));
        self.events.plan(at, Event::AtDispatcher { dispatcher, inbound });
    }
}
