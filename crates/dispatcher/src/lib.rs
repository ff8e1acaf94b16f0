//! A dispatcher as a service: connections in, the core in the middle, the
//! journal beside it.
//!
//! One task, the driver, owns the core and the journal. Each connection has a
//! reader, which decodes messages and passes them to the driver, and a writer,
//! which encodes what the driver passes to it. In each round the driver takes
//! in all messages that have arrived, lets the core act, writes the journal,
//! and only then sends the core's messages.

mod answer;
mod answers;
mod audit;
mod backlog;
mod commit;
mod compaction;
mod concentrated;
mod connection;
mod connection_placement;
mod doors;
mod ending;
pub mod events;
mod executors;
mod gang_tokens;
mod handle;
mod inspect;
pub mod journal;
mod journal_check;
mod known;
mod listen_address;
pub mod pages;
mod passing;
mod peer;
mod permission;
mod pieces;
mod refusals;
mod requests;
mod room;
mod send;
mod store;
mod users;

use crate::events::{EventOptions, Events, EventsError};
use crate::pages::{PageError, PageFiles, Pages};
use audit::Audit;
use commit::Committed;
use doors::Doors;
use ending::{Restarts, Stopping};
use falkon_core::dispatch::{
    AckCoalescing, AckEvent, Action, ConnectionId, Dispatcher, Event, PageBounds, PagePlace, Reply,
};
use falkon_core::events::{What, text};
use falkon_core::task::{InstanceId, Time, UserId};
use falkon_net::Log;
use falkon_net::clock::{Alarm, Clock};
use falkon_net::secure::{Acceptor, AcceptorError, Epochs, EpochsError, Identity, Role, Versions};
use falkon_net::spin::{AdaptiveSpin, Spin};
use falkon_provision::{Answer, Provision};
use falkon_wire::hidden::Hidden;
use falkon_wire::message::{Refusal, ToClient, ToExecutor};
use peer::{Inbound, Message, Outgoing, Peer};
use refusals::Refusals;
use room::Gauge;
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use store::Store;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use users::{Asks, Users};

pub use connection_placement::Concentrators;
pub use ending::{RestartRequest, Stopped};
pub use handle::{CONNECTIONS_MAX, Handle};
pub use journal_check::{JournalCheckError, check_journal};
pub use listen_address::{ListenAddress, ListenAddressError};
pub use store::{StoreError, StoreOptions};
pub use users::{ControlOptions, UsersError, check_users};

/// Batches of messages waiting for the driver; readers wait beyond that.
const INBOX_BATCHES_MAX: usize = 1024;
/// Batches of messages taken in per round.
const ROUND_BATCHES_MAX: usize = 256;

/// A timer that is this late says that the whole process stood still.
const STALLED_MS_MIN: u64 = 1000;
/// Time that readers then get to pass on what came meanwhile.
const CATCH_UP_MS: u64 = 250;

/// A clock that is less behind its journal than this is not worth a line.
const CLOCK_BEHIND_MICROS_MIN: u64 = 1_000_000;

/// The options of a dispatcher.
pub struct Options {
    /// Keeps the journal; `None` for a dispatcher that ends with its process.
    pub store: Option<StoreOptions>,
    /// Without a journal: a directory for results that are too many for memory.
    pub pages: Option<PathBuf>,
    /// The identity from which instances get their secrets.
    pub identity: Option<Identity>,
    /// Where events are kept; `None`: nowhere.
    pub events: Option<EventOptions>,
    /// How long instances are kept that leave it to the dispatcher, in
    /// microseconds; `None` is for ever.
    pub keep_micros: Option<u64>,
    /// How many executors collect outputs, if the user says so.
    pub collectors: Option<usize>,
    /// Where it is kept who the users are; `None`: there are none.
    pub control: Option<ControlOptions>,
    /// Where log lines go.
    pub log: Log,
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options").field("store", &self.store).finish_non_exhaustive()
    }
}

/// Why a dispatcher could not go on.
#[derive(Debug, thiserror::Error)]
pub enum DispatcherError {
    /// The journal could not be opened or read.
    #[error(transparent)]
    Store(StoreError),
    /// There is no place for results.
    #[error(transparent)]
    Pages(PageError),
    /// There is no epoch for instances.
    #[error(transparent)]
    Epochs(EpochsError),
    /// It is not known who the users are.
    #[error(transparent)]
    Users(UsersError),
}

/// Opens the journal, recovers what it holds, and starts the driver on the
/// current runtime. The second value tells when the dispatcher has stopped.
///
/// # Errors
/// The journal cannot be opened, locked, or read.
pub fn start(options: Options) -> Result<(Handle, oneshot::Receiver<Stopped>), DispatcherError> {
    let wall = Clock::start();
    let mut core = Dispatcher::new();
    core.set_keep(options.keep_micros);
    core.set_collectors(options.collectors);
    let journal = options.store.as_ref().map(|store| store.dir.clone());
    let (store, pages) = match (options.store, options.pages) {
        (Some(store), _) => {
            let opened = Store::open(store, &mut core, wall.now(), &options.log);
            let (store, pages) = opened.map_err(DispatcherError::Store)?;
            (Some(store), Some(pages))
        }
        (None, Some(dir)) => {
            core.page_results(PageBounds::default());
            (None, Some(new_pages(&dir).map_err(DispatcherError::Pages)?))
        }
        (None, None) => (None, None),
    };
    let users = Users::load(options.control.as_ref()).map_err(DispatcherError::Users)?;
    let pages = pages.map(|files| Pages::start(files, options.log.clone()));
    let clock = go_on(wall, core.now(), &options.log);
    let events = options.events.as_ref().and_then(|events| {
        let opened = Events::open(events, &mut core, clock.now(), &options.log);
        let refused = |error: &EventsError| (options.log)(&format!("no events are kept: {error}"));
        opened.inspect_err(refused).ok()
    });
    let (inbox, messages) = mpsc::channel(INBOX_BATCHES_MAX);
    let (stopped, when_stopped) = oneshot::channel();
    // Connections of an instance that has expired are accepted, so that its
    // users learn that.
    let instances = core.instance_views().map(|instance| instance.id());
    let instances: HashSet<u64> =
        instances.chain(core.expired_instances()).map(|id| id.0).collect();
    let identity = match (options.identity, journal) {
        (Some(identity), Some(dir)) => {
            let epochs = epochs(&dir, core.next_instance(), &instances, &options.log)?;
            Some(identity.with_epochs(epochs))
        }
        (identity, _) => identity,
    };
    let mut instances = instances;
    instances.retain(|id| !users.is_revoked(core.user_of(InstanceId(*id))));
    let identity = identity.map(Arc::new);
    let handle = Handle {
        inbox,
        next_connection: Arc::new(AtomicU64::new(0)),
        doors: Doors::new(instances, users.open()),
        connections: Arc::new(AtomicU64::new(0)),
        identity: identity.clone(),
        refusals: Refusals::new(options.log.clone()),
        log: options.log.clone(),
    };
    let control = options.control.as_ref();
    let audit = control.map(|control| Audit::open(&control.dir, &options.log));
    let mut driver = Driver {
        core,
        users,
        asks: Asks::default(),
        audit: audit.unwrap_or_default(),
        clock,
        started: clock.now(),
        store,
        events,
        pages,
        unneeded: Vec::new(),
        identity,
        peers: BTreeMap::new(),
        answers: answer::Waiting::default(),
        running: inspect::Running::default(),
        refused: Vec::new(),
        outgoing: Vec::new(),
        acks: AckCoalescing::default(),
        spins: [AdaptiveSpin::new(), AdaptiveSpin::new()],
        doors: handle.doors.clone(),
        connections: handle.connections.clone(),
        log: options.log,
        stopping: None,
        restarts: Restarts::default(),
        provision: None,
        retry_at: None,
    };
    driver.begin_users(clock.now());
    tokio::spawn(async move {
        let how = driver.run(messages).await;
        // No task may be waiting for the result.
        let _ = stopped.send(how);
    });
    Ok((handle, when_stopped))
}

/// The epochs of the instances that the journal in `dir` knows of, and of those
/// that are created from now on.
fn epochs(
    dir: &Path,
    next: InstanceId,
    instances: &HashSet<u64>,
    log: &Log,
) -> Result<Epochs, DispatcherError> {
    let opened = Epochs::open(dir, next.0, instances.iter().copied());
    let opened = opened.map_err(DispatcherError::Epochs)?;
    if let Some(error) = opened.not_written {
        log(&format!("{error}; secrets of new instances follow from the last start's epoch"));
    }
    if !opened.all_kept {
        log("the journal has no epoch for some of its instances: their own access files do not \
             open them");
    }
    Ok(opened.epochs)
}

/// The clock of a dispatcher whose journal knows of `latest`: times in it are
/// compared with those to come, so none of these is earlier.
fn go_on(wall: Clock, latest: Time, log: &Log) -> Clock {
    let behind = latest.since(wall.now());
    if behind == 0 {
        return wall;
    }
    if behind >= CLOCK_BEHIND_MICROS_MIN {
        log(&format!(
            "this machine's clock is {} s behind the journal's last entry: times go on from there",
            behind / 1_000_000
        ));
    }
    Clock::reading(latest)
}

/// A directory for pages without the pages of the dispatcher before.
fn new_pages(dir: &Path) -> Result<PageFiles, PageError> {
    let mut files = PageFiles::open(dir)?;
    files.keep(std::iter::empty())?;
    Ok(files)
}

/// Makes an acceptor for this release's protocol.
///
/// # Errors
/// The identity's certificate and key do not fit together.
pub fn acceptor(
    identity: &Arc<Identity>,
    level: falkon_net::secure::Level,
) -> Result<Arc<Acceptor>, AcceptorError> {
    Acceptor::new(identity.clone(), level, Versions::spoken()).map(Arc::new)
}

struct Driver {
    core: Dispatcher,
    users: Users,
    /// Changes of users that are not on disk yet.
    asks: Asks,
    audit: Audit,
    clock: Clock,
    started: Time,
    store: Option<Store>,
    events: Option<Events>,
    pages: Option<Pages>,
    /// Pages that go when the journal says so.
    unneeded: Vec<PagePlace>,
    identity: Option<Arc<Identity>>,
    peers: BTreeMap<ConnectionId, Peer>,
    /// Answers to questions that wait to be read.
    answers: answer::Waiting,
    /// The state that questions of one round share.
    running: inspect::Running,
    /// Executors that are disconnected once the reason has been sent to them.
    refused: Vec<ConnectionId>,
    /// The messages of this round, which are sent once the journal is written.
    outgoing: Vec<(ConnectionId, Outgoing)>,
    /// The acceptance that waits for results.
    acks: AckCoalescing<Outgoing>,
    /// Waiting for an executor's answer, and for a client's.
    spins: [AdaptiveSpin; 2],
    doors: Doors,
    connections: Arc<AtomicU64>,
    log: Log,
    stopping: Option<Stopping>,
    restarts: Restarts,
    provision: Option<Provision>,
    /// While the journal cannot be written: when that is tried again.
    retry_at: Option<Instant>,
}

/// The next answer of a scheduler; waits for ever if there is no provisioner.
async fn heard(provision: &mut Option<Provision>) -> Answer {
    match provision {
        Some(provision) => provision.hear().await,
        None => std::future::pending().await,
    }
}

/// The next page that was written or read; waits for ever if there are none.
async fn moved(pages: &mut Option<Pages>) -> Event {
    match pages {
        Some(pages) => pages.hear().await,
        None => std::future::pending().await,
    }
}

/// The next answer about events; waits for ever if none are kept.
async fn events_read(events: &mut Option<Events>) -> events::Answer {
    match events {
        Some(events) => events.answered().await,
        None => std::future::pending().await,
    }
}

/// The next measurement of the journal's disk; waits for ever without one.
async fn measured(gauge: Option<&Gauge>) {
    match gauge {
        Some(gauge) => gauge.measured().await,
        None => std::future::pending().await,
    }
}

impl Driver {
    async fn run(mut self, mut inbox: mpsc::Receiver<Inbound>) -> Stopped {
        let mut batches = Vec::new();
        let mut awaited = None;
        let mut alarm = Alarm::new();
        self.measure();
        loop {
            let takes_in = self.takes_in();
            let own = self.core.poll_timeout().map(|(at, _)| at);
            let own = own.into_iter().chain(self.audit.poll_timeout());
            let own = own.chain(self.events.as_ref().and_then(Events::poll_timeout));
            let due = own.chain(self.provision.as_ref().and_then(Provision::due));
            let acks = self.acks.poll_timeout().filter(|_| self.retry_at.is_none());
            let due = due.chain(acks.map(|(at, _)| at)).min().map(|at| self.clock.instant(at));
            let due = due.into_iter().chain(self.retry_at).min();
            let mut adaptive = awaited.take().and_then(|whose: usize| self.spins.get_mut(whose));
            let mut spin = adaptive.as_mut().map_or_else(Spin::none, |adaptive| adaptive.begin());
            let mut answer = None;
            let mut page = None;
            let mut read = None;
            let mut users_written = None;
            tokio::select! {
                biased;
                count = inbox.recv_many(&mut batches, ROUND_BATCHES_MAX), if takes_in => {
                    if count == 0 {
                        return Stopped::Asked;
                    }
                }
                heard = heard(&mut self.provision) => answer = Some(heard),
                moved = moved(&mut self.pages) => page = Some(moved),
                events = events_read(&mut self.events) => read = Some(events),
                written = self.users.written() => users_written = Some(written),
                () = measured(self.store.as_ref().map(Store::gauge)) => {}
                () = alarm.wait(due) => {}
                () = spin.keep() => {}
            }
            if let Some(adaptive) = adaptive {
                adaptive.end(&spin);
            }
            let now = self.clock.now();
            let mut stop = false;
            let busy = !batches.is_empty();
            self.take_answers(now, answer, page);
            if let Some(read) = read {
                self.answer_events(read);
            }
            if let Some(written) = users_written {
                self.users_written(now, written);
            }
            self.take_measured();
            let uncommitted = self.outgoing.len();
            for inbound in batches.drain(..) {
                stop |= match self.retry_at {
                    None => self.take(now, inbound),
                    Some(_) => self.take_uncommitted(now, inbound),
                };
            }
            let overdue = self.core.poll_timeout().filter(|(at, _)| *at <= now);
            if let Some((at, _)) = overdue {
                if now.since(at) >= STALLED_MS_MIN * 1000 {
                    stop |= self.catch_up(&mut inbox).await;
                }
                self.core.handle_timeout(self.clock.now());
            }
            self.act();
            self.audit.end_round(self.clock.now(), &self.log);
            self.provide(busy);
            if let Some(events) = &mut self.events {
                events.end_round(now);
            }
            match self.commit() {
                Committed::Written => {}
                Committed::Failed => return Stopped::JournalFailed,
                Committed::Waits => {
                    self.send_refusals(uncommitted);
                    if !stop && self.stopping.is_none() {
                        continue;
                    }
                    // No client has seen what the journal does not have.
                    self.outgoing.clear();
                    self.unneeded.clear();
                }
            }
            if let Some(pages) = self.pages.as_ref().filter(|_| !self.unneeded.is_empty()) {
                pages.forget(std::mem::take(&mut self.unneeded));
            }
            self.coalesce();
            awaited = self.awaited();
            self.send();
            let said = self.say_last();
            if stop || said.is_some() {
                self.acks.handle(self.clock.now(), AckEvent::Stop);
                self.send_released();
                if let Some(store) = &mut self.store {
                    store.close(&self.log);
                }
                if let Some(events) = &mut self.events {
                    events.close();
                }
                self.audit.end();
                self.say_goodbye(&mut inbox).await;
                return said.unwrap_or(Stopped::Asked);
            }
        }
    }

    /// Takes in what schedulers and the disk have answered: in each round,
    /// since peers who always have something to say must not keep a result
    /// from its page.
    fn take_answers(&mut self, now: Time, mut answer: Option<Answer>, mut page: Option<Event>) {
        if let Some(provision) = &mut self.provision {
            while let Some(next) = answer.take().or_else(|| provision.hear_now()) {
                provision.take(now, next);
            }
        }
        let pages = &mut self.pages;
        while let Some(event) = page.take().or_else(|| pages.as_mut()?.hear_now()) {
            self.core.handle(now, event);
        }
    }

    /// After a stall of the whole process (it was stopped, or its disk hung):
    /// takes in what peers said meanwhile, which counts before their silence
    /// does. Returns whether to stop.
    async fn catch_up(&mut self, inbox: &mut mpsc::Receiver<Inbound>) -> bool {
        tokio::time::sleep(Duration::from_millis(CATCH_UP_MS)).await;
        let now = self.clock.now();
        let mut stop = false;
        for _ in 0..INBOX_BATCHES_MAX {
            let Ok(inbound) = inbox.try_recv() else { break };
            stop |= self.take(now, inbound);
        }
        stop
    }

    /// Takes one batch in. Returns whether to stop.
    fn take(&mut self, now: Time, inbound: Inbound) -> bool {
        match inbound {
            Inbound::Opened { peer, .. } if self.is_shut_out(peer.role) => peer.close(),
            Inbound::Opened { connection, peer } => {
                if let Role::User(number) = peer.role {
                    let user = UserId(number);
                    self.core.handle(now, Event::SpeaksFor { connection, user });
                }
                if peer.role == Role::Executor {
                    let identity = self.identity.as_ref();
                    let peer_secret = identity.map(|found| Hidden(*found.peer_secret().as_bytes()));
                    peer.send(Outgoing::Executor(ToExecutor::Welcome { now, peer_secret }));
                }
                self.peers.insert(connection, peer);
            }
            Inbound::Closed { connection, why } => {
                self.connections.fetch_sub(1, Ordering::Relaxed);
                self.acks.handle(now, AckEvent::Closed(connection));
                self.audit.close(connection);
                if let Some(peer) = self.peers.remove(&connection)
                    && let Some(why) = why
                {
                    (self.log)(&format!("connection from {} closed: {why}", peer.name));
                }
                self.core.handle(now, Event::Closed { connection });
            }
            Inbound::Written { connection } => self.count_written(now, connection),
            Inbound::Messages { connection, messages } => {
                self.count_written(now, connection);
                self.acks.handle(now, AckEvent::Received(connection));
                for message in messages {
                    match message {
                        Message::Client(message) => self.client_says(now, connection, message),
                        Message::Unreadable { request, why } => {
                            let reason = Refusal::Unreadable(why);
                            self.push(connection, ToClient::Refused { request, reason });
                        }
                        Message::Executor(message) => {
                            self.executor_says(now, connection, message);
                        }
                    }
                }
            }
            Inbound::Bundle(bundle) => {
                let mut stop = false;
                for inbound in bundle {
                    stop |= self.take(now, inbound);
                }
                return stop;
            }
            Inbound::Provision { setup, answer } => {
                let opened = Provision::open(*setup, now, self.log.clone());
                // The requester may have given up waiting.
                let _ = answer.send(opened.map(|opened| self.provision = Some(opened)));
            }
            Inbound::Restarts(examiner) => self.take_examiner(examiner),
            Inbound::Examined { wish, verdict } => self.take_verdict(&wish, verdict),
            Inbound::Stop => return true,
        }
        false
    }

    /// Passes on which results were written to a connection.
    fn count_written(&mut self, now: Time, connection: ConnectionId) {
        let messages = self.peers.get(&connection).map_or(0, |peer| peer.backlog.take_written());
        if messages > 0 {
            self.core.handle(now, Event::Written { connection, messages });
        }
    }

    /// Gives the provisioner its turn.
    fn provide(&mut self, busy: bool) {
        let Some(provision) = &mut self.provision else { return };
        let now = self.clock.now();
        let wishes = provision.turn(now, &mut self.core, busy);
        let said = provision.take_said();
        if let Some(events) = &mut self.events {
            for (queue, said) in said {
                events.what(now, What::Provisioned { queue: text(&queue), text: text(&said) });
            }
        }
        if wishes.release.is_empty() {
            return;
        }
        for executor in wishes.release {
            self.core.handle(now, Event::Release { executor });
        }
        self.act();
    }

    /// Queues a message for a client.
    fn push(&mut self, connection: ConnectionId, message: ToClient) {
        self.note_answer(connection, &message);
        self.outgoing.push((connection, Outgoing::Client(message)));
    }

    /// Lets the core act until it has nothing more to do.
    fn act(&mut self) {
        self.running.forget();
        let now = self.clock.now();
        while let Some(action) = self.core.poll_action() {
            match action {
                Action::Journal(record) => {
                    if let Some(store) = &mut self.store {
                        store.append(&record);
                    }
                    if let Some(events) = &mut self.events {
                        events.record(now, record);
                    }
                }
                Action::Reply { connection, request, reply } => {
                    // It is long, and its reader may be slow.
                    let is_long = matches!(reply, Reply::Tail(_) | Reply::PartForClient(_));
                    let message = self.answer(connection, request, reply);
                    match is_long {
                        true => self.answer_question(connection, request, message),
                        false => self.push(connection, message),
                    }
                }
                Action::Deliver { connection, delivery } => {
                    self.push(connection, ToClient::Results(delivery));
                }
                Action::AwaitWritten { connection } => {
                    if let Some(peer) = self.peers.get(&connection) {
                        peer.backlog.await_written();
                        self.count_written(self.clock.now(), connection);
                    }
                }
                Action::Gone { connection, instance } => {
                    self.push(connection, ToClient::Gone { instance });
                }
                Action::Expired { instance, why, forgotten } => {
                    self.instance_expired(instance, why, forgotten);
                }
                Action::StorePage { instance, from, page } => {
                    if let Some(pages) = &self.pages {
                        pages.store(instance, from, page);
                    }
                }
                Action::LoadPage { instance, from, place } => {
                    if let Some(pages) = &self.pages {
                        pages.load(instance, from, place);
                    }
                }
                Action::DropPages { places } => self.unneeded.extend(places),
                Action::DrawTokens { count } => {
                    let tokens = gang_tokens::draw(count, &self.log);
                    self.core.handle(now, Event::TokensDrawn(tokens));
                }
                Action::Order { connection, order } => {
                    let message = Outgoing::Executor(ToExecutor::Order(order));
                    self.outgoing.push((connection, message));
                }
                Action::Unmet { connection, waiting } => {
                    let message = Outgoing::Executor(ToExecutor::Unmet { waiting });
                    self.outgoing.push((connection, message));
                }
                Action::AskTail { connection, number, question } => {
                    self.say(connection, ToExecutor::AskTail { number, question });
                }
                Action::AskKept { connection, number, question } => {
                    self.say(connection, ToExecutor::ReadOutput { number, question });
                }
                Action::AskPart { connection, number, question } => {
                    self.say(connection, ToExecutor::ReadPart { number, question });
                }
                Action::Part { connection, number, answer } => {
                    self.say(connection, ToExecutor::Part { number, answer });
                }
                Action::Refuse { connection, error } => {
                    let reason = error.to_string();
                    (self.log)(&format!("refused an executor: {reason}"));
                    let message = Outgoing::Executor(ToExecutor::Refused { reason });
                    self.outgoing.push((connection, message));
                    self.refused.push(connection);
                }
                Action::Close { connection, reason } => {
                    if let Some(peer) = self.peers.remove(&connection) {
                        (self.log)(&format!("closing the connection to {}: {reason}", peer.name));
                        peer.close();
                    }
                }
            }
        }
        if let Some(events) = &mut self.events {
            events.end_act(now, self.core.take_happenings());
        }
    }
}
