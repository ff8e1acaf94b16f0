//! Ack coalescing: an acceptance that waits for the results that it can go with.
//!
//! Where tasks go to executors the moment they are submitted, their results may
//! follow within microseconds. Then the client would be woken twice, and the
//! first time for nothing; where processors are few that even takes one from
//! the executor. So an acceptance that is all there is to send to any client
//! waits for a moment, if all of its tasks go to executors with it and its
//! client has subscribed to results.
//!
//! One acceptance waits at a time, for [`COALESCE_MICROS`] at most. It goes
//! before anything else that its connection is sent, as soon as there is
//! anything, or its client has sent something: then that does not just wait for
//! results.
//!
//! # The pump
//! Call [`AckCoalescing::handle`] for each event, then
//! [`AckCoalescing::poll_message`] until it gives `None`, then wait until
//! [`AckCoalescing::poll_timeout`] or the next event. A round's messages are
//! handed over when its records are in the journal: what waits is journaled.

use super::ConnectionId;
use crate::limits::COALESCE_MICROS;
use crate::task::Time;
use std::collections::{BTreeSet, VecDeque};

/// What a message is to ack coalescing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Traffic {
    /// To an executor, with so many tasks.
    Tasks(u64),
    /// To a client: so many tasks are accepted.
    Acceptance(u64),
    /// To a client: anything else.
    Other,
}

/// Messages that a dispatcher sends, by what they are to ack coalescing.
pub trait Classify {
    /// What it is.
    fn traffic(&self) -> Traffic;
}

/// What happens between the dispatcher and its connections.
#[derive(Debug)]
pub enum AckEvent<M> {
    /// A connection's client has subscribed to results.
    Subscribed(ConnectionId),
    /// A connection's peer has sent something.
    Received(ConnectionId),
    /// A connection is gone.
    Closed(ConnectionId),
    /// All messages of a round, in the order in which they are sent.
    Round(Vec<(ConnectionId, M)>),
    /// Nothing is sent after this.
    Stop,
}

#[derive(Debug)]
struct Waiting<M> {
    connection: ConnectionId,
    message: M,
    until: Time,
}

/// The acceptance that waits, and what is sent now.
#[derive(Debug)]
pub struct AckCoalescing<M> {
    /// Connections whose clients have subscribed.
    subscribed: BTreeSet<ConnectionId>,
    waiting: Option<Waiting<M>>,
    outgoing: VecDeque<(ConnectionId, M)>,
}

impl<M> Default for AckCoalescing<M> {
    fn default() -> Self {
        let (subscribed, outgoing) = (BTreeSet::new(), VecDeque::new());
        AckCoalescing { subscribed, waiting: None, outgoing }
    }
}

impl<M: Classify> AckCoalescing<M> {
    /// Takes one event in.
    pub fn handle(&mut self, now: Time, event: AckEvent<M>) {
        match event {
            AckEvent::Subscribed(connection) => {
                self.subscribed.insert(connection);
            }
            AckEvent::Received(connection) => self.release_if(|waits| waits == connection),
            AckEvent::Closed(connection) => {
                self.subscribed.remove(&connection);
                self.waiting.take_if(|waiting| waiting.connection == connection);
            }
            AckEvent::Round(messages) => self.round(now, messages),
            AckEvent::Stop => self.release_if(|_| true),
        }
    }

    /// The next message to send; `None` until the next event or timeout.
    pub fn poll_message(&mut self) -> Option<(ConnectionId, M)> {
        self.outgoing.pop_front()
    }

    /// When [`AckCoalescing::handle_timeout`] is due, and why.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Time, &'static str)> {
        self.waiting.as_ref().map(|waiting| (waiting.until, "an acceptance"))
    }

    /// Does what is due at `now`.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.waiting.as_ref().is_some_and(|waiting| waiting.until <= now) {
            self.release_if(|_| true);
        }
    }

    /// Sends a round's messages, behind the acceptance that waited if it waits
    /// no more, and but for the one that waits from now on.
    fn round(&mut self, now: Time, mut messages: Vec<(ConnectionId, M)>) {
        self.handle_timeout(now);
        if self.waiting.is_some() {
            self.release_if(|waits| messages.iter().any(|(to, _)| *to == waits));
        } else if let Some(at) = self.lone_acceptance(&messages) {
            let (connection, message) = messages.remove(at);
            let until = now.after(COALESCE_MICROS);
            self.waiting = Some(Waiting { connection, message, until });
        }
        self.outgoing.extend(messages);
    }

    /// Where the one message to a client is, if that is an acceptance of tasks
    /// all of which go to executors with it, and its client awaits results.
    fn lone_acceptance(&self, messages: &[(ConnectionId, M)]) -> Option<usize> {
        let (mut acceptance, mut sent) = (None, 0u64);
        for (at, (connection, message)) in messages.iter().enumerate() {
            match message.traffic() {
                Traffic::Tasks(count) => sent = sent.saturating_add(count),
                Traffic::Acceptance(count) if acceptance.is_none() => {
                    acceptance = Some((at, *connection, count));
                }
                Traffic::Acceptance(_) | Traffic::Other => return None,
            }
        }
        let (at, connection, count) = acceptance?;
        (count <= sent && self.subscribed.contains(&connection)).then_some(at)
    }

    /// Sends the acceptance that waits, if its connection is such.
    fn release_if(&mut self, is: impl FnOnce(ConnectionId) -> bool) {
        let released = self.waiting.take_if(|waiting| is(waiting.connection));
        self.outgoing.extend(released.map(|waiting| (waiting.connection, waiting.message)));
    }
}
