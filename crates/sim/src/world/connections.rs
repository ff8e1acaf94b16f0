//! Connections: they keep order, delay, and break.
//!
//! A message takes the latency and its bytes' time on the node's link. What is
//! sent over a link that a partition has cut arrives after it, as TCP would
//! send it again.

use super::{Inbound, World};
use crate::agenda::Event;
use crate::time::{Nanos, SECOND_NANOS};
use falkon_core::dispatch::ConnectionId;

/// Time to connect, in one-way latencies: three for TCP, two for the handshake
/// on top of it.
const CONNECT_LATENCIES: u64 = 5;
/// The shortest pause before a lost connection is made again.
const RECONNECT: Nanos = Nanos(SECOND_NANOS / 10);

/// Who is at the other end of a dispatcher's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Who {
    Node(u32),
    Client(u32),
}

/// A dispatcher's side of a connection.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) who: Who,
    /// When what was sent last arrives, up and down: order is kept.
    last_up: Nanos,
    last_down: Nanos,
    pub(super) is_open: bool,
}

impl Peer {
    fn new(who: Who) -> Peer {
        Peer { who, last_up: Nanos(0), last_down: Nanos(0), is_open: true }
    }
}

impl World<'_> {
    /// When something of so many bytes arrives that is sent at `departs`.
    fn arrival(&self, who: Who, departs: Nanos, bytes: usize) -> Nanos {
        let network = &self.scenario.network;
        let departs = match who {
            Who::Node(node) => departs.max(self.nodes[node as usize].cut_off_until),
            Who::Client(_) => departs,
        };
        let on_link = bytes as f64 / network.node_bytes_per_s * SECOND_NANOS as f64;
        departs.after(network.latency).after(Nanos(on_link as u64))
    }

    /// Opens a connection to a dispatcher. `None` while that is down.
    pub(super) fn connect(&mut self, dispatcher: u32, who: Who) -> Option<u64> {
        let host = &mut self.dispatchers[dispatcher as usize];
        if host.down_until > self.agenda.now {
            return None;
        }
        let connection = host.peers.len() as u64;
        host.peers.push(Peer::new(who));
        let mut at = self.arrival(who, self.agenda.now, 0);
        for _ in 1..CONNECT_LATENCIES {
            at = at.after(self.scenario.network.latency);
        }
        self.send_up_at(dispatcher, connection, at, Inbound::Opened(ConnectionId(connection)));
        Some(connection)
    }

    /// When to try to connect again.
    pub(super) fn reconnect_at(&mut self, dispatcher: u32) -> Nanos {
        let earliest = self.agenda.now.max(self.dispatchers[dispatcher as usize].down_until);
        earliest.after(RECONNECT).after(self.rng.span(RECONNECT))
    }

    /// Sends a message to a dispatcher.
    pub(super) fn send_up(
        &mut self,
        dispatcher: u32,
        connection: u64,
        departs: Nanos,
        bytes: Vec<u8>,
    ) {
        let who = self.dispatchers[dispatcher as usize].peers[connection as usize].who;
        let at = self.arrival(who, departs, bytes.len());
        let message = Inbound::Message(ConnectionId(connection), bytes.into());
        self.send_up_at(dispatcher, connection, at, message);
    }

    fn send_up_at(&mut self, dispatcher: u32, connection: u64, at: Nanos, inbound: Inbound) {
        let peer = &mut self.dispatchers[dispatcher as usize].peers[connection as usize];
        peer.last_up = peer.last_up.max(at);
        self.agenda.plan(peer.last_up, Event::AtDispatcher { dispatcher, inbound });
    }

    /// A dispatcher sends a message.
    pub(super) fn send_down(
        &mut self,
        dispatcher: u32,
        connection: u64,
        departs: Nanos,
        bytes: Vec<u8>,
    ) {
        let who = self.dispatchers[dispatcher as usize].peers[connection as usize].who;
        let at = self.arrival(who, departs, bytes.len());
        let peer = &mut self.dispatchers[dispatcher as usize].peers[connection as usize];
        let last = peer.last_down.max(at);
        peer.last_down = last;
        let bytes = bytes.into();
        match who {
            Who::Node(node) => {
                let acts = last.after(self.scenario.executor.message);
                self.agenda.plan(acts, Event::AtNode { node, connection, bytes });
            }
            Who::Client(client) => {
                self.agenda.plan(last, Event::AtClient { client, connection, bytes });
            }
        }
    }

    /// The peer's end sees the connection close, at `at` or after what is
    /// under way to it.
    pub(super) fn close_at_peer(&mut self, dispatcher: u32, connection: u64, at: Nanos) {
        let peer = &self.dispatchers[dispatcher as usize].peers[connection as usize];
        let at = at.max(peer.last_down);
        match peer.who {
            Who::Node(node) => {
                let at = at.max(self.nodes[node as usize].cut_off_until);
                let at = at.after(self.scenario.executor.message);
                self.agenda.plan(at, Event::NodeCut { node, connection });
            }
            Who::Client(client) => self.agenda.plan(at, Event::ClientCut { client, connection }),
        }
    }

    /// The dispatcher's end sees the connection close, at `at`; what is under
    /// way to it and later is lost.
    pub(super) fn close_at_dispatcher(&mut self, dispatcher: u32, connection: u64, at: Nanos) {
        let inbound = Inbound::Closed(ConnectionId(connection));
        self.agenda.plan(at, Event::AtDispatcher { dispatcher, inbound });
    }
}
