//! A relay's shell: the session with the dispatcher above, requests to the one
//! below, and notes on disk. The core decides ([`falkon_core::relay`]).

mod above;
mod attach;
mod below;
mod notes;
mod parts;
mod tails;

use above::{FromAbove, Session};
use attach::{Attached, Way};
use below::{Below, FromBelow};
use falkon_core::dispatch::Delivery;
use falkon_core::relay::{Action, Event, Note, Relay};
use falkon_core::tail::{KeptQuestion, OutputQuestion, TailQuestion};
use falkon_net::Log;
use falkon_net::client::{Client, ClientError, Deliveries};
use falkon_net::clock::{Alarm, Clock};
use falkon_net::secure::{AccessFile, ConnectError, FrameReader, FrameWriter, Level, Proxy};
use falkon_wire::message::FromExecutor;
use notes::Notes;
use parts::Parts;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tails::{Tails, tail_message};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

pub use notes::{NotesError, check_notes};

/// How often the dispatcher below is asked what nodes it has.
const SUBTREE_MS: u64 = 500;
/// How long it may leave that question unanswered before the connection counts as
/// lost.
const SILENT_MS_MAX: u64 = 30_000;
/// How long a relay that ends waits for its instance to be destroyed.
const DESTROY_MS_MAX: u64 = 5000;

/// How a relay is started.
pub struct Options {
    /// Its name, for people.
    pub name: String,
    /// Where it keeps notes. Without them it ends for good with its process, and
    /// needs a lease.
    pub place: Option<Place>,
    /// After so long without the relay the dispatcher below destroys its instance;
    /// `None` keeps it.
    pub lease_micros: Option<u64>,
    /// Lines for people.
    pub log: Log,
}

/// Where notes are.
#[derive(Debug)]
pub struct Place {
    /// The relay's directory.
    pub dir: PathBuf,
    /// Notes survive a crash of the machine, not just of the process.
    pub machine_durable: bool,
}

/// Opens a connection to a dispatcher in this process.
pub type Opener = Box<dyn Fn() -> (FrameReader, FrameWriter) + Send + Sync>;

/// How a relay reaches the dispatcher above.
pub enum Upstream {
    /// Over the network.
    Access {
        /// Where it is.
        access: Box<AccessFile>,
        /// The proxy on the way, if there is one.
        proxy: Option<Proxy>,
    },
    /// Within the process.
    Here(Opener),
}

/// How a relay reaches the dispatcher below.
pub enum Downstream {
    /// Over the network, again and again: a dispatcher that others may use too.
    Access(Box<AccessFile>),
    /// Within the process, once.
    Here {
        /// The connection.
        client: Client,
        /// Its results.
        deliveries: Deliveries,
        /// How its executors protect what they say to each other.
        level: Level,
    },
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options").field("name", &self.name).finish_non_exhaustive()
    }
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upstream").finish_non_exhaustive()
    }
}

impl fmt::Debug for Downstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Downstream").finish_non_exhaustive()
    }
}

/// Why a relay ended other than by request.
#[derive(Debug, thiserror::Error)]
pub enum RelayError {
    /// The dispatcher above cannot be reached, or refuses the relay for good.
    #[error(transparent)]
    Connect(ConnectError),
    /// The dispatcher above does not take it in; why.
    #[error("the dispatcher above refuses it: {0}")]
    Refused(String),
    /// Its notes cannot be read or written.
    #[error(transparent)]
    Notes(NotesError),
    /// It was the relay of another dispatcher.
    #[error(
        "{} belongs to the relay of another dispatcher, whose tasks it may still have: use another \
         directory",
        .0.display()
    )]
    OtherUpstream(PathBuf),
    /// A request to the dispatcher below has failed.
    #[error("the dispatcher whose executors are lent: {0}; start the relay again")]
    Below(#[source] ClientError),
}

/// Lends the executors of the dispatcher below. Returns when the dispatcher above has
/// sent the relay away and all that it had is done, or when `stop` says so.
///
/// # Errors
/// [`RelayError`] says why it cannot go on.
pub async fn run(
    options: Options,
    upstream: Upstream,
    downstream: Downstream,
    stop: oneshot::Receiver<()>,
) -> Result<(), RelayError> {
    let (mut notes, found) = Notes::open(&options).map_err(RelayError::Notes)?;
    let mut relay = Relay::new(random(), random(), options.name.clone());
    found.into_iter().for_each(|note| relay.recover(note));
    if let (Upstream::Access { access, .. }, Some(place)) = (&upstream, &options.place) {
        let number = halves(access);
        match relay.upstream() {
            Some(before) if before != number => {
                return Err(RelayError::OtherUpstream(place.dir.clone()));
            }
            Some(_) => {}
            None => {
                relay.recover(Note::Upstream { high: number.0, low: number.1 });
                notes.write(relay.notes(), &relay).await;
            }
        }
    }
    if relay.tasks() > 0 {
        (options.log)(&format!("it still has {} tasks of before", relay.tasks()));
    }
    let mut driver =
        Driver { relay, clock: Clock::start(), notes, session: None, below: None, has_left: false };
    tokio::select! {
        ended = driver.lend(&options, Arc::new(upstream), Way::new(downstream)) => ended,
        () = asked(stop) => {
            driver.destroy(&options).await;
            Ok(())
        }
    }
}

/// Waits until the relay is to end.
async fn asked(stop: oneshot::Receiver<()>) {
    if stop.await.is_err() {
        std::future::pending().await
    }
}

/// The number of the dispatcher above, in halves.
fn halves(access: &AccessFile) -> (u64, u64) {
    let number = u128::from_be_bytes(access.dispatcher.0);
    ((number >> 64) as u64, number as u64)
}

fn random() -> u64 {
    let mut bytes = [0; 8];
    // Without randomness a number from the clock will do: it only has to differ from
    // others' numbers.
    if getrandom::fill(&mut bytes).is_err() {
        bytes = Clock::start().now().0.to_le_bytes();
    }
    u64::from_le_bytes(bytes).max(1)
}

struct Driver {
    relay: Relay,
    /// Reads the time of the dispatcher below.
    clock: Clock,
    notes: Notes,
    session: Option<Session>,
    below: Option<Below>,
    has_left: bool,
}

impl Driver {
    /// Lends executors over as many connections below as that takes. There is no
    /// session above while there is none below: the dispatcher above gives the tasks
    /// to others, unless the relay is back soon.
    async fn lend(
        &mut self,
        options: &Options,
        upstream: Arc<Upstream>,
        mut way: Way,
    ) -> Result<(), RelayError> {
        let mut is_first = true;
        loop {
            let mut ended = match way.attach(&self.relay, options).await {
                Ok(attached) => {
                    let (hear, above) = mpsc::channel(1);
                    let deliveries = self.begin(attached).await;
                    let upstream = upstream.clone();
                    let log = options.log.clone();
                    // It ends with this set.
                    let mut connector = JoinSet::new();
                    connector.spawn(above::keep_connected(upstream, is_first, log, hear));
                    is_first = false;
                    let tails = Tails::new(way.level());
                    self.serve(above, deliveries, tails, way.silent_max()).await
                }
                Err(error) => Err(RelayError::Below(error)),
            };
            (self.session, self.below) = (None, None);
            self.tell(Event::Disconnected);
            if let Err(RelayError::Below(error)) = ended {
                ended = way.pause(error, is_first, options).await.map_err(RelayError::Below);
            }
            match ended {
                Ok(()) if !self.has_left => {}
                ended => return ended,
            }
        }
    }

    /// Takes up the relay's instance below.
    async fn begin(&mut self, attached: Attached) -> Deliveries {
        let Attached { client, deliveries, instance, accepted, now, below } = attached;
        let (subtree, holdings, survey) = below;
        self.clock = Clock::reading(self.clock.now().max(now));
        let noted = self.relay.begin(instance, accepted);
        if !noted.is_empty() {
            self.notes.write(noted, &self.relay).await;
        }
        self.tell(Event::Holdings(holdings));
        self.tell(Event::Survey(survey));
        self.tell(Event::Subtree(subtree));
        self.below = Some(Below::start(client, instance));
        deliveries
    }

    /// Lends executors until one of the dispatchers is gone.
    async fn serve(
        &mut self,
        mut above: mpsc::Receiver<FromAbove>,
        mut deliveries: Deliveries,
        mut tails: Tails,
        silent_max: Option<Duration>,
    ) -> Result<(), RelayError> {
        let mut alarm = Alarm::new();
        let mut parts = Parts::default();
        let mut looks = tokio::time::interval(Duration::from_millis(SUBTREE_MS));
        looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut asked: Option<Instant> = None;
        loop {
            self.turn().await;
            let Some(below) = self.below.as_mut().filter(|_| !self.has_left) else {
                return Ok(());
            };
            let due = self.relay.poll_timeout().map(|(at, _)| self.clock.instant(at));
            tokio::select! {
                said = above.recv() => match said {
                    Some(FromAbove::Connected(session, now)) => {
                        self.session = Some(session);
                        self.tell(Event::Connected { above: now });
                    }
                    Some(FromAbove::Order(order)) => self.tell(Event::Order(order)),
                    Some(FromAbove::Unmet(waiting)) => self.tell(Event::Unmet(waiting)),
                    Some(FromAbove::AskTail(number, question)) => {
                        let task = self.relay.below(question.task);
                        let asked = task.map(|task| TailQuestion { task, ..question });
                        tails.ask(number, asked, below.client());
                    }
                    Some(FromAbove::ReadOutput(number, question)) => {
                        let KeptQuestion { output, stream, from, count } = question;
                        let task = self.relay.kept(output);
                        let asked = task.map(|task| OutputQuestion { task, stream, from, count });
                        tails.read(number, asked, below.client());
                    }
                    Some(FromAbove::ReadPart(number, question)) => {
                        parts.read(number, question, below.client());
                    }
                    Some(FromAbove::Part(number, answer)) => {
                        parts.told(number, answer, below);
                    }
                    Some(FromAbove::Refused(why)) => return Err(RelayError::Refused(why)),
                    Some(FromAbove::Failed(error)) => return Err(RelayError::Connect(error)),
                    Some(FromAbove::Ended) | None => {
                        parts.cut(below);
                        self.session = None;
                        self.tell(Event::Disconnected);
                    }
                },
                delivered = deliveries.recv() => {
                    let Delivery { from, results, .. } = delivered.map_err(RelayError::Below)?;
                    self.tell(Event::Results { from, results });
                }
                said = below.recv() => match said {
                    FromBelow::Event(event) => {
                        asked = asked.filter(|_| !matches!(event, Event::Subtree(_)));
                        self.tell(event);
                    }
                    FromBelow::Parts(questions) => {
                        parts.ask(questions, self.session.as_ref(), below).await;
                    }
                    FromBelow::Failed(error) => return Err(RelayError::Below(error)),
                },
                told = parts.read_below() => self.say(told).await,
                (number, told) = tails.told() => self.say(tail_message(number, told)).await,
                _ = looks.tick() => match asked {
                    None => {
                        asked = Some(Instant::now());
                        parts.forget_late();
                        below.look(self.relay.identity(), self.relay.holdings_known());
                    }
                    Some(since) if silent_max.is_some_and(|limit| since.elapsed() >= limit) => {
                        return Err(RelayError::Below(ClientError::Lost));
                    }
                    Some(_) => {}
                },
                () = alarm.wait(due) => {}
            }
        }
    }

    fn tell(&mut self, event: Event) {
        self.relay.handle(self.clock.now(), event);
    }

    /// Lets the core act until it has nothing more to do.
    async fn turn(&mut self) {
        let now = self.clock.now();
        if self.relay.poll_timeout().is_some_and(|(at, _)| at <= now) {
            self.relay.handle_timeout(now);
        }
        while let Some(action) = self.relay.poll_action() {
            match action {
                Action::Note(notes) => self.notes.write(notes, &self.relay).await,
                Action::Join(join) => self.say(FromExecutor::Join(join)).await,
                Action::Update(update) => self.say(FromExecutor::Update(update)).await,
                Action::Left => self.has_left = true,
                other => {
                    if let Some(below) = &self.below {
                        below.ask(other);
                    }
                }
            }
        }
    }

    /// A session that has ended is noticed when it is next read.
    async fn say(&mut self, message: FromExecutor) {
        if let Some(session) = &self.session {
            let _ = session.say.send(message).await;
        }
    }

    /// Frees the relay's instance below, if nobody comes back to it. One that cannot
    /// be reached has its lease.
    async fn destroy(&self, options: &Options) {
        if options.place.is_none()
            && let Some(below) = &self.below
        {
            let limit = Duration::from_millis(DESTROY_MS_MAX);
            let _ = tokio::time::timeout(limit, below.destroy()).await;
        }
    }
}
