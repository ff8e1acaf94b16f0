//! A dispatcher's shell: a thread that takes in what has arrived, lets the
//! core act, and sends what that wants sent, round after round.

use super::World;
use super::connections::{Peer, Who};
use super::error::Broken;
use crate::agenda::Event;
use crate::time::Nanos;
use falkon_core::dispatch::{
    Action, ConnectionId, Dispatcher, Event as CoreEvent, Page, PageBounds, PagePlace, Record,
    Reply,
};
use falkon_wire::codec::Wire;
use falkon_wire::message::{FromClient, FromExecutor, Refusal, ToClient, ToExecutor};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Messages that one round takes in.
const ROUND_MESSAGES_MAX: usize = 1024;

/// What arrives at a dispatcher.
#[derive(Debug)]
pub(crate) enum Inbound {
    Opened(ConnectionId),
    Closed(ConnectionId),
    Message(ConnectionId, Box<[u8]>),
}

pub(super) struct Dispatching {
    pub(super) core: Dispatcher,
    pub(super) peers: Vec<Peer>,
    inbox: VecDeque<Inbound>,
    /// A round is planned.
    is_woken: bool,
    /// The last round lasts until then.
    busy_until: Nanos,
    /// The time spent in rounds.
    pub(super) busy: Nanos,
    /// It has crashed and comes back then.
    pub(super) down_until: Nanos,
    /// The timer that is planned.
    timer: Option<Nanos>,
    /// What it has journaled, if it may crash.
    pub(super) journal: Option<Vec<Box<[u8]>>>,
    /// For results that are too many for memory.
    pub(super) disk: Disk,
}

/// A disk that takes no time: for what it holds, not for what it costs.
#[derive(Debug, Default)]
pub(super) struct Disk {
    pages: BTreeMap<PagePlace, Vec<u8>>,
    next: u64,
}

impl Disk {
    fn write(&mut self, bytes: Vec<u8>) -> PagePlace {
        let place = PagePlace { file: self.next, offset: 0, bytes: bytes.len() as u64 };
        self.next += 1;
        self.pages.insert(place, bytes);
        place
    }

    fn read(&self, place: PagePlace) -> Result<Page, String> {
        let bytes = self.pages.get(&place).ok_or("there is no such page")?;
        Page::from_bytes(bytes).map_err(|error| error.to_string())
    }

    fn remove(&mut self, place: PagePlace) {
        self.pages.remove(&place);
    }

    /// What a dispatcher that reads its journal has too much of in memory.
    pub(super) fn store_recovering(&mut self, core: &mut Dispatcher, now: Nanos) {
        while let Some((instance, from, page)) = core.next_page() {
            let place = Some(self.write(page.to_bytes()));
            core.handle(now.core(), CoreEvent::PageStored { instance, from, place });
        }
    }

    /// A dispatcher has started anew: what it does not know goes.
    pub(super) fn keep(&mut self, known: &Dispatcher) {
        let known: BTreeSet<PagePlace> = known.page_places().collect();
        self.pages.retain(|place, _| known.contains(place));
    }
}

/// A dispatcher that moves results to its disk.
pub(super) fn new_core() -> Dispatcher {
    let mut core = Dispatcher::new();
    core.page_results(PageBounds::default());
    core
}

/// A message to send, with what it costs.
struct Outgoing {
    connection: ConnectionId,
    rank: u8,
    entries: u64,
    bytes: Vec<u8>,
}

impl Dispatching {
    pub(super) fn new(may_crash: bool) -> Dispatching {
        Dispatching {
            core: new_core(),
            disk: Disk::default(),
            peers: Vec::new(),
            inbox: VecDeque::new(),
            is_woken: false,
            busy_until: Nanos(0),
            busy: Nanos(0),
            down_until: Nanos(0),
            timer: None,
            journal: may_crash.then(Vec::new),
        }
    }

    /// The process is gone with everything in memory.
    pub(super) fn crash(&mut self, back: Nanos) {
        self.inbox.clear();
        self.down_until = back;
        self.busy_until = back;
        for peer in &mut self.peers {
            peer.is_open = false;
        }
    }
}

impl World<'_> {
    pub(super) fn arrive_at_dispatcher(&mut self, dispatcher: u32, inbound: Inbound) {
        let host = &mut self.dispatchers[dispatcher as usize];
        let connection = match &inbound {
            Inbound::Opened(connection)
            | Inbound::Closed(connection)
            | Inbound::Message(connection, _) => connection.0,
        };
        if host.peers[connection as usize].is_open {
            host.inbox.push_back(inbound);
            self.wake_dispatcher(dispatcher);
        }
    }

    /// Plans a round as soon as the one under way is over.
    pub(super) fn wake_dispatcher(&mut self, dispatcher: u32) {
        let host = &mut self.dispatchers[dispatcher as usize];
        if !std::mem::replace(&mut host.is_woken, true) {
            self.agenda.plan(host.busy_until, Event::Round(dispatcher));
        }
    }

    pub(super) fn dispatcher_timer(&mut self, dispatcher: u32) {
        let host = &mut self.dispatchers[dispatcher as usize];
        if host.timer == Some(self.agenda.now) {
            host.timer = None;
        }
        self.wake_dispatcher(dispatcher);
    }

    pub(super) fn round(&mut self, dispatcher: u32) -> Result<(), Broken> {
        let now = self.agenda.now;
        let costs = self.scenario.dispatcher;
        let host = &mut self.dispatchers[dispatcher as usize];
        host.is_woken = false;
        if host.busy_until > now {
            // It crashed after this round was planned.
            self.wake_dispatcher(dispatcher);
            return Ok(());
        }
        let mut outgoing = Vec::new();
        let mut spent = Nanos(0);
        for _ in 0..ROUND_MESSAGES_MAX {
            let Some(inbound) = host.inbox.pop_front() else { break };
            let size = match &inbound {
                Inbound::Message(_, bytes) => bytes.len() as u64,
                _ => 0,
            };
            self.measured.messages += u64::from(size > 0);
            self.measured.message_bytes += size;
            let entries = host.take(now, inbound, &mut outgoing)?;
            spent = spent.after(costs.message).after(Nanos(costs.entry.0 * entries));
        }
        if host.core.poll_timeout().is_some_and(|(at, _)| Nanos::of_core(at) <= now) {
            host.core.handle_timeout(now.core());
        }
        let closing = host.act(now, &mut outgoing);
        if self.scenario.check_all {
            host.core.check().map_err(|error| format!("dispatcher {dispatcher}: {error}"))?;
        }
        let first = outgoing.iter().map(|message: &Outgoing| message.rank).min();
        if first != outgoing.iter().map(|message| message.rank).max() {
            send_tasks_first(&mut outgoing);
        }
        for message in outgoing {
            spent = spent.after(costs.message).after(Nanos(costs.entry.0 * message.entries));
            let connection = message.connection.0;
            if self.dispatchers[dispatcher as usize].peers[connection as usize].is_open {
                self.send_down(dispatcher, connection, now.after(spent), message.bytes);
            }
        }
        for connection in closing {
            self.dispatchers[dispatcher as usize].peers[connection.0 as usize].is_open = false;
            self.close_at_peer(dispatcher, connection.0, now.after(spent));
        }
        let host = &mut self.dispatchers[dispatcher as usize];
        host.busy = host.busy.after(spent);
        host.busy_until = now.after(spent);
        if !host.inbox.is_empty() {
            self.wake_dispatcher(dispatcher);
        }
        self.plan_dispatcher_timer(dispatcher);
        self.plan_look();
        Ok(())
    }

    /// Plans the core's next timeout, unless an earlier one is planned.
    pub(super) fn plan_dispatcher_timer(&mut self, dispatcher: u32) {
        let host = &mut self.dispatchers[dispatcher as usize];
        let Some((at, _)) = host.core.poll_timeout() else { return };
        let at = Nanos::of_core(at).max(host.busy_until);
        if host.timer.is_none_or(|planned| at < planned) {
            host.timer = Some(at);
            self.agenda.plan(at, Event::DispatcherTimer(dispatcher));
        }
    }
}

/// Executors that get tasks hear first, then clients, then other executors,
/// as in the real shell; what one connection is sent keeps its order.
fn send_tasks_first(outgoing: &mut [Outgoing]) {
    let with_tasks: BTreeSet<ConnectionId> = outgoing
        .iter()
        .filter(|message| message.rank == 0)
        .map(|message| message.connection)
        .collect();
    outgoing.sort_by_key(|message| match message.rank {
        _ if with_tasks.contains(&message.connection) => 0,
        rank => rank,
    });
}

impl Dispatching {
    /// Takes one thing in. Returns how many entries it had.
    fn take(
        &mut self,
        now: Nanos,
        inbound: Inbound,
        outgoing: &mut Vec<Outgoing>,
    ) -> Result<u64, Broken> {
        let (Inbound::Opened(connection)
        | Inbound::Closed(connection)
        | Inbound::Message(connection, _)) = &inbound;
        let connection = *connection;
        let peer = &mut self.peers[connection.0 as usize];
        if !peer.is_open {
            return Ok(0);
        }
        let (event, entries) = match (inbound, peer.who) {
            (Inbound::Opened(_), Who::Client(_)) => return Ok(0),
            (Inbound::Opened(_), Who::Node(_)) => {
                let bytes = ToExecutor::Welcome { peer_secret: None, now: now.core() }.to_bytes();
                outgoing.push(Outgoing { connection, rank: 2, entries: 0, bytes });
                return Ok(0);
            }
            (Inbound::Closed(_), _) => {
                peer.is_open = false;
                (CoreEvent::Closed { connection }, 0)
            }
            (Inbound::Message(_, bytes), Who::Node(node)) => {
                let message = FromExecutor::from_bytes(&bytes)
                    .map_err(|error| format!("a message of node {node} is no message: {error}"))?;
                match message {
                    FromExecutor::Join(join) => {
                        let entries = (join.reports.len() + join.held.len()) as u64;
                        (CoreEvent::Join { connection, join }, entries)
                    }
                    FromExecutor::Update(update) => {
                        let entries = (update.reports.len() + update.returned.len()) as u64;
                        (CoreEvent::Update { connection, update }, entries)
                    }
                }
            }
            (Inbound::Message(_, bytes), Who::Client(client)) => {
                let message = FromClient::from_bytes(&bytes).map_err(|error| {
                    format!("a message of client {client} is no message: {error}")
                })?;
                client_says(connection, message)?
            }
        };
        self.core.handle(now.core(), event);
        Ok(entries)
    }

    /// Lets the core act. Returns the connections it wants closed.
    fn act(&mut self, now: Nanos, outgoing: &mut Vec<Outgoing>) -> Vec<ConnectionId> {
        let mut closing = Vec::new();
        while let Some(action) = self.core.poll_action() {
            let message = match action {
                Action::Journal(record) => {
                    self.write(&record);
                    continue;
                }
                Action::Close { connection, .. } | Action::Refuse { connection, .. } => {
                    closing.push(connection);
                    continue;
                }
                Action::Reply { connection, request, reply } => {
                    let bytes = answer(request, reply).to_bytes();
                    Outgoing { connection, rank: 1, entries: 0, bytes }
                }
                Action::Deliver { connection, delivery } => {
                    let entries = delivery.results.len() as u64;
                    let bytes = ToClient::Results(delivery).to_bytes();
                    Outgoing { connection, rank: 1, entries, bytes }
                }
                Action::StorePage { instance, from, page } => {
                    let place = Some(self.disk.write(page.to_bytes()));
                    self.core.handle(now.core(), CoreEvent::PageStored { instance, from, place });
                    continue;
                }
                Action::LoadPage { instance, from, place } => {
                    let page = self.disk.read(place);
                    self.core.handle(now.core(), CoreEvent::PageLoaded { instance, from, page });
                    continue;
                }
                Action::DropPages { places } => {
                    places.into_iter().for_each(|place| self.disk.remove(place));
                    continue;
                }
                Action::Gone { connection, instance } => {
                    let bytes = ToClient::Gone { instance }.to_bytes();
                    Outgoing { connection, rank: 1, entries: 0, bytes }
                }
                Action::Order { connection, order } => {
                    let entries = order.assign.len() as u64;
                    let rank = if entries > 0 { 0 } else { 2 };
                    let bytes = ToExecutor::Order(order).to_bytes();
                    Outgoing { connection, rank, entries, bytes }
                }
            };
            outgoing.push(message);
        }
        closing
    }

    fn write(&mut self, record: &Record) {
        if let Some(journal) = &mut self.journal {
            journal.push(record.to_bytes().into());
        }
    }
}

fn client_says(connection: ConnectionId, message: FromClient) -> Result<(CoreEvent, u64), Broken> {
    Ok(match message {
        FromClient::Create { request, options } => {
            (CoreEvent::Create { connection, request, options }, 0)
        }
        FromClient::Submit { request, instance, first, submission } => {
            (CoreEvent::Submit { connection, request, instance, first, submission }, 1)
        }
        FromClient::Seal { request, instance } => {
            (CoreEvent::Seal { connection, request, instance }, 0)
        }
        FromClient::Subscribe { request, instance, from } => {
            (CoreEvent::Subscribe { connection, request, instance, from }, 0)
        }
        FromClient::Acknowledge { instance, upto } => {
            (CoreEvent::Acknowledge { connection, instance, upto }, 0)
        }
        other => return Err(Broken(format!("no simulated client asks for {other:?}"))),
    })
}

fn answer(request: u64, reply: Reply) -> ToClient {
    match reply {
        Reply::Created(instance) => ToClient::Created { request, instance, secret: Vec::new() },
        Reply::Accepted { first, count } => ToClient::Accepted { request, first, count },
        Reply::Done => ToClient::Done { request },
        Reply::Refused(error) => ToClient::Refused { request, reason: Refusal::Request(error) },
    }
}
