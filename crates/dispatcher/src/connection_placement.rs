//! Placement of connections: in this process, or in one of its concentrators.

use super::Handle;
use super::concentrated::Concentrator;
use super::passing::{NotPassed, WaitingRoom};
use falkon_net::concentrator::{DESCRIPTORS_SPARE, descriptors_max};
use falkon_net::secure::{Acceptor, RefusedKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::Instant;

/// Concentrators at once.
const CONCENTRATORS_MAX: u64 = 256;
/// Descriptors that the dispatcher needs beside connections: standard streams,
/// the event loop, the listener, the journal, schedulers' commands.
const OWN_DESCRIPTORS_SPARE: u64 = 48;
/// Descriptors that each concentrator costs the dispatcher: its link, the way
/// that sockets are passed on, itself.
const CONCENTRATOR_DESCRIPTORS: u64 = 3;
/// The share of the dispatcher's descriptors that concentrators may take.
const CONCENTRATORS_SHARE: u64 = 4;
/// Connections that a dispatcher holds itself before others are given them: one
/// that few speak to needs no other processes.
const OWN_CONNECTIONS_MAX: u64 = 1024;
/// Connections of a concentrator before there is another one.
const SHARE_CONNECTIONS: u64 = 8192;
/// Connections that wait until concentrators take them: a crowd that comes at
/// once, or those of one that hangs.
const WAITING_CONNECTIONS_MAX: u64 = 256;
/// The share of the dispatcher's descriptors that they may take.
const WAITING_SHARE: u64 = 8;
/// The longest time that a new connection waits for a place among them. Those
/// behind it wait in the system's queue meanwhile.
const PLACE_WAIT: Duration = Duration::from_secs(1);
/// Pause before a concentrator is started again after one could not be.
const START_AGAIN: Duration = Duration::from_secs(1);

/// The processes that hold a dispatcher's connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Concentrators {
    /// The dispatcher itself as long as they are few, then others: each is
    /// work for a thread that has more to do.
    Auto,
    /// This number of concentrators from the start, as far as descriptors last.
    /// With none, the dispatcher holds all connections.
    Exactly(u32),
}

/// A connection that this process holds. Dropped when it is closed.
#[derive(Debug)]
pub(super) struct OwnConnection(Arc<AtomicU64>);

impl OwnConnection {
    fn take(taken: &Arc<AtomicU64>) -> OwnConnection {
        taken.fetch_add(1, Ordering::Relaxed);
        OwnConnection(Arc::clone(taken))
    }
}

impl Drop for OwnConnection {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How many connections go where, by how many descriptors a process may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bounds {
    /// Connections of the dispatcher's own.
    own_max: u64,
    /// Connections of each concentrator before there is another.
    share: u64,
    /// Connections of each concentrator.
    each_max: u64,
    concentrators_max: u64,
    /// Connections that wait for concentrators.
    waiting_max: usize,
}

impl Bounds {
    fn new(wanted: Concentrators, descriptors: u64) -> Bounds {
        let all = descriptors.saturating_sub(OWN_DESCRIPTORS_SPARE).max(1);
        let waiting = (all / WAITING_SHARE).min(WAITING_CONNECTIONS_MAX);
        let waiting_max = usize::try_from(waiting).unwrap_or(usize::MAX);
        let own = all - waiting;
        let concentrators = own / CONCENTRATORS_SHARE / CONCENTRATOR_DESCRIPTORS;
        let concentrators_max = concentrators.min(CONCENTRATORS_MAX);
        let each_max = descriptors.saturating_sub(DESCRIPTORS_SPARE).max(1);
        let taken = concentrators_max * CONCENTRATOR_DESCRIPTORS;
        match wanted {
            Concentrators::Auto => Bounds {
                own_max: (own - taken).min(OWN_CONNECTIONS_MAX),
                share: each_max.min(SHARE_CONNECTIONS),
                each_max,
                concentrators_max,
                waiting_max,
            },
            Concentrators::Exactly(count) => {
                let concentrators_max = concentrators_max.min(count.into());
                // Without concentrators, all connections are the dispatcher's
                // own.
                let own_max = if concentrators_max == 0 { all } else { 0 };
                Bounds { own_max, share: 0, each_max, concentrators_max, waiting_max }
            }
        }
    }
}

/// A dispatcher's concentrators.
#[derive(Debug)]
pub(super) struct ConnectionPlacement {
    handle: Handle,
    acceptor: Arc<Acceptor>,
    bounds: Bounds,
    /// Connections that the dispatcher holds itself, handshakes included.
    own: Arc<AtomicU64>,
    members: Vec<Concentrator>,
    waiting: WaitingRoom,
    /// None is started before.
    paused_until: Option<Instant>,
    /// The lack of room has been logged.
    complained: bool,
}

impl ConnectionPlacement {
    pub(super) fn new(
        handle: Handle,
        acceptor: Arc<Acceptor>,
        wanted: Concentrators,
    ) -> ConnectionPlacement {
        let bounds = Bounds::new(wanted, descriptors_max());
        ConnectionPlacement {
            handle,
            acceptor,
            bounds,
            waiting: WaitingRoom::new(bounds.waiting_max),
            own: Arc::default(),
            members: Vec::new(),
            paused_until: None,
            complained: false,
        }
    }

    /// Starts those that are to be there from the start.
    pub(super) fn begin(&mut self) {
        while self.bounds.own_max == 0 && self.may_start() && self.start() {}
    }

    fn may_start(&self) -> bool {
        (self.members.len() as u64) < self.bounds.concentrators_max
    }

    /// Passes a new connection to the process that is to hold it; returns it if
    /// that is this process. A connection for which no process has room is
    /// closed. Waits for a crowd that is on its way to the concentrators, and not
    /// for one that hangs: each takes part of the places at most, as the
    /// connections go to the one that has fewest waiting.
    pub(super) async fn place(&mut self, stream: TcpStream) -> Option<(OwnConnection, TcpStream)> {
        let own = self.own.load(Ordering::Relaxed);
        if own < self.bounds.own_max {
            return Some((OwnConnection::take(&self.own), stream));
        }
        let mut stream = match stream.into_std() {
            Ok(stream) => stream,
            Err(error) => {
                self.handle.refusals.refused(RefusedKind::Own, &error);
                return None;
            }
        };
        let connection = self.handle.new_connection();
        let waiting = self.waiting.clone();
        while let Some(member) = self.next_member() {
            match member.pass(connection, stream, &waiting) {
                Ok(()) => {
                    self.complained = false;
                    return None;
                }
                // Another one takes its place.
                Err(NotPassed::Ended(back)) => {
                    member.give_up();
                    stream = back;
                }
                Err(NotPassed::NoRoom(back)) => {
                    stream = back;
                    if waiting.has_place(PLACE_WAIT).await {
                        continue;
                    }
                    let why = "more wait for concentrators, which do not take them, than may";
                    self.handle.refusals.refused(RefusedKind::Own, &why);
                    return None;
                }
            }
        }
        if !std::mem::replace(&mut self.complained, true) {
            (self.handle.log)(
                "no process has a descriptor left for another connection; raise the limit of open \
                 files (ulimit -n)",
            );
        }
        None
    }

    /// The concentrator with the fewest connections, or a new one; one that does
    /// not take what it is given comes last.
    fn next_member(&mut self) -> Option<&mut Concentrator> {
        self.members.retain(Concentrator::is_there);
        let Bounds { share, each_max, .. } = self.bounds;
        if self.may_start() && self.members.iter().all(|member| member.connections() >= share) {
            self.start();
        }
        let with_room = self.members.iter_mut().filter(|member| member.connections() < each_max);
        with_room.min_by_key(|member| (member.waiting(), member.connections()))
    }

    /// Starts a concentrator; false if that failed.
    fn start(&mut self) -> bool {
        let now = Instant::now();
        if self.paused_until.is_some_and(|until| now < until) {
            return false;
        }
        match Concentrator::start(&self.handle, &self.acceptor) {
            Ok(member) => {
                self.members.push(member);
                true
            }
            Err(error) => {
                (self.handle.log)(&format!("cannot start a concentrator: {error}"));
                self.paused_until = Some(now + START_AGAIN);
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn descriptors_last(descriptors in 64u64..2_000_000, count: u32) {
            for wanted in [Concentrators::Auto, Concentrators::Exactly(count)] {
                let bounds = Bounds::new(wanted, descriptors);
                let mut own = bounds.own_max + bounds.concentrators_max * CONCENTRATOR_DESCRIPTORS;
                if bounds.concentrators_max > 0 {
                    own += bounds.waiting_max as u64;
                }
                prop_assert!(own + OWN_DESCRIPTORS_SPARE <= descriptors);
                prop_assert!(bounds.each_max + DESCRIPTORS_SPARE <= descriptors);
                prop_assert!(bounds.own_max + bounds.concentrators_max > 0);
            }
        }
    }

    #[test]
    fn usual_limits_are_for_many_executors() {
        for (descriptors, connections) in [(1024, 65_536), (20_000, 262_144)] {
            let bounds = Bounds::new(Concentrators::Auto, descriptors);
            let all = bounds.own_max + bounds.each_max * bounds.concentrators_max;
            assert!(all >= connections, "{all} with {descriptors} descriptors");
        }
    }
}
