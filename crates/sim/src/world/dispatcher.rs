//! A dispatcher's shell: a thread that takes in what has arrived, lets the
//! core act, and sends what that wants sent, round after round.

use super::World;
use super::acts::Acts;
use super::clock::Clock;
use super::connections::{Peer, Turns, Way, Who, span_of};
use super::error::Broken;
use super::journal::Journal;
use super::pages::Pages;
use crate::event_queue::Event;
use crate::rng::Rng;
use crate::scenario::DispatcherCosts;
use crate::time::Nanos;
use falkon_core::dispatch::{
    AckCoalescing, AckEvent, Action, Classify, ConnectionId, Dispatcher, Event as CoreEvent, Reply,
    Retried, Traffic,
};
use falkon_core::gang::GangToken;
use falkon_wire::codec::Wire;
use falkon_wire::hidden::Hidden;
use falkon_wire::message::{FromClient, FromExecutor, Refusal, ToClient, ToExecutor};
use std::collections::{BTreeSet, VecDeque};

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
    /// Its link, for short messages.
    pub(super) turns: Turns,
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
    pub(super) journal: Journal,
    /// For results that are too many for memory.
    pub(super) pages: Pages,
    /// Messages that wait until the journal is written.
    held: Vec<Outgoing>,
    /// The acceptance that waits for results.
    acks: AckCoalescing<Outgoing>,
    pub(super) clock: Clock,
    /// Secrets of gangs.
    tokens: Rng,
    pub(super) acts: Acts,
}

/// A number that tells the secrets of gangs from other things that a seed stands for.
const SEED_TOKENS: u64 = 0x6761_6e67;

fn draw_token(rng: &mut Rng) -> GangToken {
    let halves = [rng.below(u64::MAX), rng.below(u64::MAX)];
    let bits = u128::from(halves[0]) << 64 | u128::from(halves[1]);
    GangToken(bits.to_be_bytes())
}

/// A message to send, with what it costs.
struct Outgoing {
    connection: ConnectionId,
    rank: u8,
    entries: u64,
    /// Tasks that were placed.
    decisions: u64,
    /// What it is to ack coalescing.
    traffic: Traffic,
    bytes: Vec<u8>,
}

impl Outgoing {
    /// A message to a client with nothing that costs.
    fn plain(connection: ConnectionId, bytes: Vec<u8>) -> Outgoing {
        Outgoing { connection, rank: 1, entries: 0, decisions: 0, traffic: Traffic::Other, bytes }
    }
}

impl Classify for Outgoing {
    fn traffic(&self) -> Traffic {
        self.traffic
    }
}

impl DispatcherCosts {
    /// For one message.
    pub(super) fn of(&self, bytes: usize, entries: u64, decisions: u64) -> Nanos {
        let each = Nanos(self.entry.0 * entries + self.decision.0 * decisions);
        self.message.after(each).after(span_of(bytes, self.bytes_per_s))
    }
}

impl Dispatching {
    pub(super) fn new(keeps_journal: bool, results_bytes: Option<u64>, seed: u64) -> Dispatching {
        let pages = Pages::new(results_bytes);
        Dispatching {
            core: pages.new_core(),
            pages,
            peers: Vec::new(),
            turns: Turns::default(),
            inbox: VecDeque::new(),
            is_woken: false,
            busy_until: Nanos(0),
            busy: Nanos(0),
            down_until: Nanos(0),
            timer: None,
            journal: Journal::new(keeps_journal),
            held: Vec::new(),
            acks: AckCoalescing::default(),
            clock: Clock::default(),
            tokens: Rng::new(seed ^ SEED_TOKENS),
            acts: Acts::default(),
        }
    }

    /// The process is gone with everything in memory.
    pub(super) fn crash(&mut self, now: Nanos, back: Nanos, written: f64) {
        self.inbox.clear();
        self.held.clear();
        self.acks = AckCoalescing::default();
        self.journal.crash(now, written);
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
            self.events.plan(host.busy_until, Event::Round(dispatcher));
        }
    }

    pub(super) fn dispatcher_timer(&mut self, dispatcher: u32) {
        let host = &mut self.dispatchers[dispatcher as usize];
        if host.timer == Some(self.events.now) {
            host.timer = None;
        }
        self.wake_dispatcher(dispatcher);
    }

    pub(super) fn round(&mut self, dispatcher: u32) -> Result<(), Broken> {
        let now = self.events.now;
        let costs = self.scenario.dispatcher;
        let host = &mut self.dispatchers[dispatcher as usize];
        host.is_woken = false;
        if host.busy_until > now {
            // It crashed after this round was planned.
            self.wake_dispatcher(dispatcher);
            return Ok(());
        }
        if let Err(again) = host.journal.commit(now) {
            // Nothing is sent, and nothing more is taken in.
            host.busy_until = again;
            self.wake_dispatcher(dispatcher);
            return Ok(());
        }
        if host.clock.at(now) < host.core.now() {
            // Nothing would be due in time.
            let what = format!("the clock of dispatcher {dispatcher} is behind its journal");
            return Err(Broken(what));
        }
        let mut outgoing = std::mem::take(&mut host.held);
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
            spent = spent.after(costs.of(size as usize, entries, 0));
        }
        if host.core.poll_timeout().is_some_and(|(at, _)| host.clock.when(at) <= now) {
            host.core.handle_timeout(host.clock.at(now));
        }
        let closing = host.act(now, &mut outgoing);
        if self.scenario.check_all {
            host.core.check().map_err(|error| format!("dispatcher {dispatcher}: {error}"))?;
        }
        if let Err(again) = host.journal.commit(now) {
            host.held = outgoing;
            host.busy_until = again;
            self.close_all(dispatcher, closing, now);
            self.wake_dispatcher(dispatcher);
            return Ok(());
        }
        host.journal.compact(now, &host.core);
        host.pages.remove_unneeded();
        let round = outgoing.into_iter().map(|message| (message.connection, message)).collect();
        host.acks.handle(host.clock.at(now), AckEvent::Round(round));
        let mut outgoing: Vec<Outgoing> =
            std::iter::from_fn(|| host.acks.poll_message()).map(|(_, message)| message).collect();
        let first = outgoing.iter().map(|message: &Outgoing| message.rank).min();
        if first != outgoing.iter().map(|message| message.rank).max() {
            send_tasks_first(&mut outgoing);
        }
        for message in outgoing {
            spent = spent.after(costs.of(message.bytes.len(), message.entries, message.decisions));
            let connection = message.connection.0;
            if self.dispatchers[dispatcher as usize].peers[connection as usize].is_open {
                let departs = now.after(spent);
                self.send(dispatcher, connection, Way::Down, departs, message.bytes);
            }
        }
        self.close_all(dispatcher, closing, now.after(spent));
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

    fn close_all(&mut self, dispatcher: u32, closing: Vec<ConnectionId>, at: Nanos) {
        for connection in closing {
            self.dispatchers[dispatcher as usize].peers[connection.0 as usize].is_open = false;
            self.close_at_peer(dispatcher, connection.0, at);
        }
    }

    /// Plans the machines' next timeout, unless an earlier one is planned.
    pub(super) fn plan_dispatcher_timer(&mut self, dispatcher: u32) {
        let host = &mut self.dispatchers[dispatcher as usize];
        let timeouts = [host.core.poll_timeout(), host.acks.poll_timeout()];
        let Some((at, _)) = timeouts.into_iter().flatten().min() else { return };
        let at = host.clock.when(at).max(host.busy_until);
        if host.timer.is_none_or(|planned| at < planned) {
            host.timer = Some(at);
            self.events.plan(at, Event::DispatcherTimer(dispatcher));
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
        let who = peer.who;
        let (event, entries) = match (inbound, who) {
            (Inbound::Opened(_), Who::Client(_) | Who::Owner(_)) => return Ok(0),
            (Inbound::Opened(_), Who::Node(_) | Who::Relay(_)) => {
                let bytes =
                    ToExecutor::Welcome { peer_secret: None, now: self.clock.at(now) }.to_bytes();
                let (rank, traffic) = (2, Traffic::Tasks(0));
                outgoing.push(Outgoing { rank, traffic, ..Outgoing::plain(connection, bytes) });
                return Ok(0);
            }
            (Inbound::Closed(_), _) => {
                peer.is_open = false;
                self.acks.handle(self.clock.at(now), AckEvent::Closed(connection));
                (CoreEvent::Closed { connection }, 0)
            }
            (Inbound::Message(_, bytes), Who::Node(_) | Who::Relay(_)) => {
                let message = FromExecutor::from_bytes(&bytes)
                    .map_err(|error| format!("a message of {who:?} is no message: {error}"))?;
                match message {
                    FromExecutor::Join(join) => {
                        let entries = (join.reports.len() + join.held.len()) as u64;
                        (CoreEvent::Join { connection, join }, entries)
                    }
                    FromExecutor::Update(update) => {
                        let entries = (update.reports.len() + update.returned.len()) as u64;
                        (CoreEvent::Update { connection, update }, entries)
                    }
                    FromExecutor::Tail { .. }
                    | FromExecutor::NoTail { .. }
                    | FromExecutor::ReadPart { .. }
                    | FromExecutor::Part { .. } => return Ok(0),
                }
            }
            (Inbound::Message(_, bytes), Who::Client(_) | Who::Owner(_)) => {
                let message = FromClient::from_bytes(&bytes)
                    .map_err(|error| format!("a message of {who:?} is no message: {error}"))?;
                let now = self.clock.at(now);
                self.acks.handle(now, AckEvent::Received(connection));
                if matches!(message, FromClient::Subscribe { .. }) {
                    self.acks.handle(now, AckEvent::Subscribed(connection));
                }
                if let FromClient::Subtree { request, relay, since } = message {
                    let (subtree, holdings) = (self.core.subtree(relay), self.core.holdings(since));
                    let survey = Box::new(self.core.survey(now, Vec::new));
                    let answer = ToClient::Subtree { request, subtree, holdings, survey };
                    let bytes = answer.to_bytes();
                    outgoing.push(Outgoing::plain(connection, bytes));
                    return Ok(0);
                }
                client_says(connection, message)?
            }
        };
        self.core.handle(self.clock.at(now), event);
        Ok(entries)
    }

    /// Lets the core act. Returns the connections it wants closed.
    fn act(&mut self, now: Nanos, outgoing: &mut Vec<Outgoing>) -> Vec<ConnectionId> {
        let mut closing = Vec::new();
        while let Some(action) = self.core.poll_action() {
            let message = match action {
                Action::Journal(record) => {
                    self.journal.append(&record);
                    self.acts.record(record);
                    continue;
                }
                // No simulated relay gets nodes.
                Action::Expired { .. }
                | Action::AwaitWritten { .. }
                | Action::Unmet { .. }
                | Action::AskTail { .. }
                | Action::AskKept { .. }
                | Action::AskPart { .. }
                | Action::Part { .. } => continue,
                Action::Close { connection, .. } | Action::Refuse { connection, .. } => {
                    closing.push(connection);
                    continue;
                }
                Action::Reply { connection, request, reply } => {
                    let traffic = match reply {
                        Reply::Accepted { count, .. } => Traffic::Acceptance(count),
                        _ => Traffic::Other,
                    };
                    let bytes = answer(request, reply).to_bytes();
                    Outgoing { traffic, ..Outgoing::plain(connection, bytes) }
                }
                Action::Deliver { connection, delivery } => {
                    let entries = delivery.results.len() as u64;
                    // The network here takes whatever it is given.
                    let written = CoreEvent::Written { connection, messages: 1 };
                    self.core.handle(self.clock.at(now), written);
                    let bytes = ToClient::Results(delivery).to_bytes();
                    Outgoing { entries, ..Outgoing::plain(connection, bytes) }
                }
                Action::StorePage { instance, from, page } => {
                    let place = self.pages.store(&page, self.journal.is_tight(now));
                    let event = CoreEvent::PageStored { instance, from, place };
                    self.core.handle(self.clock.at(now), event);
                    continue;
                }
                Action::LoadPage { instance, from, place } => {
                    let page = self.pages.load(place);
                    let event = CoreEvent::PageLoaded { instance, from, page };
                    self.core.handle(self.clock.at(now), event);
                    continue;
                }
                Action::DrawTokens { count } => {
                    let tokens = (0..count).map(|_| draw_token(&mut self.tokens)).collect();
                    self.core.handle(self.clock.at(now), CoreEvent::TokensDrawn(tokens));
                    continue;
                }
                Action::DropPages { places } => {
                    self.pages.forget(places);
                    continue;
                }
                Action::Gone { connection, instance } => {
                    let bytes = ToClient::Gone { instance }.to_bytes();
                    Outgoing::plain(connection, bytes)
                }
                Action::Order { connection, order } => {
                    let entries = order.assign.len() as u64;
                    let decisions = order.assign.iter().map(|run| run.count).sum();
                    let rank = if entries > 0 { 0 } else { 2 };
                    let bytes = ToExecutor::Order(order).to_bytes();
                    let traffic = Traffic::Tasks(decisions);
                    Outgoing { rank, entries, decisions, traffic, connection, bytes }
                }
            };
            outgoing.push(message);
        }
        self.acts.end(self.clock.at(now), &mut self.core);
        closing
    }
}

fn client_says(connection: ConnectionId, message: FromClient) -> Result<(CoreEvent, u64), Broken> {
    Ok(match message {
        FromClient::Create { request, options } => {
            (CoreEvent::Create { connection, request, options }, 0)
        }
        FromClient::Submit { request, instance, first, client, submission } => {
            (CoreEvent::Submit { connection, request, instance, first, client, submission }, 1)
        }
        FromClient::Seal { request, instance } => {
            (CoreEvent::Seal { connection, request, instance }, 0)
        }
        FromClient::Subscribe { request, instance, from } => {
            (CoreEvent::Subscribe { connection, request, instance, from }, 0)
        }
        FromClient::Cancel { request, instance, selection } => {
            (CoreEvent::Cancel { connection, request, instance, selection }, 0)
        }
        FromClient::Withdraw { request, instance, count } => {
            (CoreEvent::Withdraw { connection, request, instance, count }, 0)
        }
        FromClient::AwaitStaged { request, instance } => {
            (CoreEvent::AwaitStaged { connection, request, instance }, 0)
        }
        FromClient::LetGo { request, objects } => {
            (CoreEvent::LetGo { connection, request, objects }, 0)
        }
        FromClient::Acknowledge { instance, upto } => {
            (CoreEvent::Acknowledge { connection, instance, upto }, 0)
        }
        other => return Err(Broken(format!("no simulated client asks for {other:?}"))),
    })
}

fn answer(request: u64, reply: Reply) -> ToClient {
    match reply {
        Reply::Created(instance) => {
            ToClient::Created { request, instance, secret: Hidden::default() }
        }
        Reply::Accepted { first, count } => ToClient::Accepted { request, first, count },
        Reply::Withdrawn(runs) => ToClient::Withdrawn { request, runs },
        Reply::Staged { staged, unstaged } => ToClient::Staged { request, staged, unstaged },
        Reply::Retried(Retried { count, forgotten }) => {
            ToClient::Retried { request, count, forgotten }
        }
        Reply::Tail(Ok(tail)) => ToClient::Tail { request, tail },
        Reply::Tail(Err(why)) => ToClient::Refused { request, reason: Refusal::Access(why) },
        Reply::Part(answer) | Reply::PartForClient(answer) => ToClient::Part { request, answer },
        Reply::Parts(questions) => ToClient::Parts { request, questions },
        Reply::Forgotten(names) => ToClient::Forgotten { request, names },
        Reply::Done => ToClient::Done { request },
        Reply::Refused(error) => ToClient::Refused { request, reason: Refusal::Request(error) },
    }
}
