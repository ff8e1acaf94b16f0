//! Connections: they keep order, delay, and break.

use super::World;
use falkon_core::dispatch::{ConnectionId, Delivery, Event, Order, Reply};
use falkon_core::execute;
use falkon_core::task::Time;
use std::collections::VecDeque;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Peer {
    Node(usize),
    Client(usize),
}

#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "nearly all of them are the large one")]
pub(super) enum Up {
    Event(Box<Event>),
    Closed,
}

#[derive(Debug)]
pub(super) enum Down {
    Order(Order),
    Reply(u64, Reply),
    Delivery(Delivery),
    Closed,
}

/// A connection. Each direction ends with `Closed` once.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) peer: Peer,
    pub(super) up: VecDeque<(Time, Up)>,
    pub(super) down: VecDeque<(Time, Down)>,
    pub(super) up_open: bool,
    pub(super) down_open: bool,
    /// Nothing that is sent from now on arrives, and nobody notices.
    pub(super) muted: bool,
}

impl World {
    pub(super) fn arrival(&mut self, last: Option<Time>) -> Time {
        let delay = 1 + self.rng.below(self.delay_micros);
        self.now.after(delay).max(last.unwrap_or_default())
    }

    pub(super) fn send_up(&mut self, id: u64, up: Up) {
        self.messages += 1;
        let last = self.links.get(&id).and_then(|link| link.up.back().map(|(at, _)| *at));
        let at = self.arrival(last);
        let Some(link) = self.links.get_mut(&id) else { return };
        if link.up_open && !link.muted {
            link.up_open = !matches!(up, Up::Closed);
            link.up.push_back((at, up));
        }
    }

    pub(super) fn send_down(&mut self, id: u64, down: Down) {
        self.messages += 1;
        let last = self.links.get(&id).and_then(|link| link.down.back().map(|(at, _)| *at));
        let at = self.arrival(last);
        let Some(link) = self.links.get_mut(&id) else { return };
        if link.down_open && !link.muted {
            link.down_open = !matches!(down, Down::Closed);
            link.down.push_back((at, down));
        }
    }

    /// The end `at_peer` is told that the connection is over, perhaps after
    /// what is under way to it.
    pub(super) fn close_towards(&mut self, id: u64, at_peer: bool) {
        let lossy = self.rng.percent(50);
        let Some(link) = self.links.get_mut(&id) else { return };
        link.muted = false;
        if at_peer {
            if lossy && link.down_open {
                link.down.clear();
            }
            self.send_down(id, Down::Closed);
        } else {
            if lossy && link.up_open {
                link.up.clear();
            }
            self.send_up(id, Up::Closed);
        }
    }

    /// The network cuts a connection.
    pub(super) fn cut(&mut self, id: u64) {
        self.close_towards(id, true);
        self.close_towards(id, false);
    }

    pub(super) fn connect(&mut self, peer: Peer) -> u64 {
        let id = self.next_connection;
        self.next_connection += 1;
        self.links.insert(
            id,
            Link {
                peer,
                up: VecDeque::new(),
                down: VecDeque::new(),
                up_open: true,
                down_open: true,
                muted: false,
            },
        );
        self.introduce(id, peer);
        id
    }

    pub(super) fn drop_if_over(&mut self, id: u64) {
        let over = self.links.get(&id).is_some_and(|link| {
            !link.up_open && !link.down_open && link.up.is_empty() && link.down.is_empty()
        });
        if over {
            self.links.remove(&id);
        }
    }

    pub(super) fn arrive_up(&mut self, id: u64) {
        let Some((_, up)) = self.links.get_mut(&id).and_then(|link| link.up.pop_front()) else {
            return;
        };
        let event = match up {
            Up::Event(event) => *event,
            Up::Closed => Event::Closed { connection: ConnectionId(id) },
        };
        if let Some(incarnation) = self.incarnation(id) {
            self.losses.hear(incarnation, &event);
        }
        self.dispatcher.handle(self.now, event);
        self.drop_if_over(id);
        // Sometimes more is handled before the polling.
        let more =
            self.links.values().any(|link| link.up.front().is_some_and(|(at, _)| *at <= self.now));
        if !more || self.rng.percent(50) {
            self.drain();
        }
    }

    pub(super) fn arrive_down(&mut self, id: u64) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let peer = link.peer;
        let Some((_, down)) = link.down.pop_front() else { return };
        match peer {
            Peer::Node(index) if self.nodes[index].connection == Some(id) => {
                let node = &mut self.nodes[index];
                match down {
                    Down::Order(order) => node.handle(self.now, execute::Event::Order(order)),
                    Down::Closed => {
                        node.connection = None;
                        let wait = if self.rng.percent(80) { 500_000 } else { 6_000_000 };
                        node.reconnect_at = Some(self.now.after(self.rng.below(wait)));
                        node.handle(self.now, execute::Event::Disconnected);
                        self.close_towards(id, false);
                    }
                    other => panic!("an executor was sent {other:?}"),
                }
                self.pump_node(index);
            }
            Peer::Client(index) if self.clients[index].connection == Some(id) => {
                self.client_hears(index, id, down);
            }
            _ => {}
        }
        self.drop_if_over(id);
    }
}
