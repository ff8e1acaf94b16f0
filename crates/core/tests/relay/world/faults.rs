//! Faults in a tree, and what people do to it.

use super::{Asked, CLIENT, End, Happening, World, data};
use falkon_core::dispatch::{self, ConnectionId};
use falkon_core::execute;
use falkon_core::relay;
use falkon_core::task::{ExecutorId, Resources, Time};

impl World {
    /// A relay and its dispatcher die, and come back after a while.
    pub(crate) fn kill_site(&mut self, site: usize, micros: u64) {
        if !std::mem::replace(&mut self.sites[site].alive, false) {
            return;
        }
        let lends = self.sites[site].lends.as_ref().unwrap();
        let above = lends.connection;
        let here = self.ends.iter().filter(|(_, (at, _))| *at == site);
        let gone: Vec<ConnectionId> = here.map(|(id, _)| *id).chain(above).collect();
        gone.into_iter().for_each(|connection| self.close(connection));
        self.later(micros, Happening::Restart(site));
    }

    /// An executor dies, and another takes its place.
    pub(crate) fn kill_node(&mut self, node: usize) {
        if let Some(connection) = self.nodes[node].connection {
            self.close(connection);
        }
        let incarnation = self.number();
        let node_ = &mut self.nodes[node];
        node_.machine = data::machine(node, incarnation, node_.capacity.clone());
        node_.incarnation = incarnation;
        node_.started.clear();
        node_.templates.clear();
    }

    /// An executor dies, and a smaller one takes its place.
    pub(crate) fn shrink_node(&mut self, node: usize, capacity: Resources) {
        self.nodes[node].capacity = capacity;
        self.kill_node(node);
    }

    /// An executor dies, and nothing takes its place.
    pub(crate) fn remove_node(&mut self, node: usize) {
        self.nodes[node].is_gone = true;
        self.kill_node(node);
    }

    /// The connection between a site and the one above is lost.
    pub(crate) fn cut_site(&mut self, site: usize) {
        if let Some(connection) = self.sites[site].lends.as_ref().unwrap().connection {
            self.close(connection);
        }
    }

    /// A relay loses its own dispatcher for a while, and leaves the one above.
    pub(crate) fn cut_below(&mut self, site: usize, micros: u64) {
        if !self.sites[site].alive || !self.is_attached(site) {
            return;
        }
        let lends = self.sites[site].lends.as_mut().unwrap();
        lends.is_attached = false;
        let (above, owner) = (lends.connection, lends.owner);
        lends.relay.handle(Time(self.now), relay::Event::Disconnected);
        above.into_iter().for_each(|connection| self.close(connection));
        self.close(owner);
        self.later(micros, Happening::Reach(site));
    }

    pub(crate) fn cut_node(&mut self, node: usize) {
        if let Some(connection) = self.nodes[node].connection {
            self.close(connection);
        }
    }

    /// Nothing comes over a connection for a while, in either direction.
    fn stall(&mut self, connection: ConnectionId, micros: u64) {
        for is_up in [true, false] {
            let arrives = self.arrives.entry((connection, is_up)).or_default();
            *arrives = (*arrives).max(self.now + micros);
        }
    }

    /// The connections of a node stand still.
    pub(crate) fn stall_node(&mut self, node: usize, micros: u64) {
        if let Some(connection) = self.nodes[node].connection {
            self.stall(connection, micros);
        }
    }

    /// All connections between a relay and others stand still.
    pub(crate) fn stall_site(&mut self, site: usize, micros: u64) {
        let above = self.sites[site].lends.as_ref().unwrap().connection;
        let here =
            self.ends.iter().filter(|(_, (at, end))| *at == site && *end != End::Owner(site));
        let all: Vec<ConnectionId> = here.map(|(id, _)| *id).chain(above).collect();
        all.into_iter().for_each(|connection| self.stall(connection, micros));
    }

    /// An executor is asked to leave.
    pub(crate) fn leave_node(&mut self, node: usize) {
        self.nodes[node].machine.handle(Time(self.now), execute::Event::Leave);
        self.pump_node(node);
    }

    /// Executors of a dispatcher, relays among them, are drained, or are not any more.
    pub(crate) fn drain(&mut self, site: usize, which: impl Fn(&str) -> bool, is_drained: bool) {
        if !self.sites[site].alive {
            return;
        }
        let views = self.sites[site].core.executor_views();
        let other = views.filter(|view| view.is_drained() != is_drained && which(view.name()));
        let other: Vec<ExecutorId> = other.map(|view| view.id()).collect();
        for executor in other {
            let (connection, request) = match site {
                0 => (CLIENT, 6),
                _ if !self.is_attached(site) => return,
                _ => {
                    let request = self.ask(site, Asked::Other);
                    (self.sites[site].lends.as_ref().unwrap().owner, request)
                }
            };
            let event = dispatch::Event::Drain { connection, request, executor, is_drained };
            self.tell(site, event);
        }
    }
}
