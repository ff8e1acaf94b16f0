//! A relay's shell: the session with the dispatcher above, requests to the one
//! below, and notes on disk. The core decides ([`falkon_core::relay`]).

mod above;
mod below;
mod notes;

use above::{FromAbove, Session};
use below::{Below, FromBelow};
use falkon_core::dispatch::Delivery;
use falkon_core::relay::{Action, Event, Note, Relay};
use falkon_core::task::InstanceId;
use falkon_net::Log;
use falkon_net::client::{Client, ClientError, Deliveries};
use falkon_net::clock::{Alarm, Clock};
use falkon_net::secure::{AccessFile, ConnectError};
use falkon_wire::message::FromExecutor;
use notes::{Notes, NotesError};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::mpsc;

/// How often the dispatcher below is asked what nodes it has.
const SUBTREE_MS: u64 = 500;

/// How a relay is started.
pub struct Options {
    /// Its name, for people.
    pub name: String,
    /// The directory of its notes.
    pub dir: PathBuf,
    /// Notes survive a crash of the machine, not just of the process.
    pub machine_durable: bool,
    /// Lines for people.
    pub log: Log,
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options").field("name", &self.name).finish_non_exhaustive()
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
    #[error("the relay's own dispatcher: {0}; start the relay again with the same directory")]
    Below(#[source] ClientError),
}

/// Lends the executors of the dispatcher that `client` is connected to. Returns when
/// the dispatcher above has sent it away, and all that it had is done.
///
/// # Errors
/// [`RelayError`] says why it cannot go on.
pub async fn run(
    options: Options,
    access: AccessFile,
    client: Client,
    mut deliveries: Deliveries,
) -> Result<(), RelayError> {
    let (mut notes, found) = Notes::open(&options).map_err(RelayError::Notes)?;
    let mut relay = Relay::new(random(), random(), options.name.clone());
    found.into_iter().for_each(|note| relay.recover(note));
    let upstream = halves(&access);
    match relay.upstream() {
        Some(before) if before != upstream => return Err(RelayError::OtherUpstream(options.dir)),
        Some(_) => {}
        None => {
            relay.recover(Note::Upstream { high: upstream.0, low: upstream.1 });
            notes.write(relay.notes(), &relay).await;
        }
    }
    let (instance, accepted) = attach(&client, &relay).await?;
    let is_new = relay.instance() != Some(instance);
    relay.begin(instance, accepted);
    if is_new {
        notes.write(vec![Note::Instance(instance)], &relay).await;
    }
    subscribe(&client, instance).await?;
    if relay.tasks() > 0 {
        (options.log)(&format!("it still has {} tasks of before", relay.tasks()));
    }
    // The dispatcher below has to know whom it is lent to before others join it.
    let subtree = client.subtree(relay.identity()).await.map_err(RelayError::Below)?;
    let clock = Clock::start();
    relay.handle(clock.now(), Event::Subtree(subtree));
    let (hear, mut above) = mpsc::channel(1);
    let connector = tokio::spawn(above::keep_connected(access, options.log.clone(), hear));
    let mut driver = Driver {
        relay,
        clock,
        notes,
        session: None,
        below: Below::start(client, instance),
        has_left: false,
    };
    let ended = driver.run(&mut above, &mut deliveries).await;
    connector.abort();
    ended
}

/// The instance that the relay has below, a new one if need be, and how many tasks
/// it has accepted.
async fn attach(client: &Client, relay: &Relay) -> Result<(InstanceId, u64), RelayError> {
    if let Some(instance) = relay.instance()
        && let Ok(status) = client.status(Some(instance)).await
        && let Some(found) = status.instances.iter().find(|found| found.id == instance.0)
    {
        return Ok((instance, found.counts.total));
    }
    let options = Relay::instance_options("tasks from above");
    let (instance, _) = client.create(options).await.map_err(RelayError::Below)?;
    Ok((instance, 0))
}

/// Asks for all results that are not acknowledged.
async fn subscribe(client: &Client, instance: InstanceId) -> Result<(), RelayError> {
    use falkon_core::dispatch::RequestError::Forgotten;
    use falkon_wire::message::Refusal;
    let first = match client.subscribe(instance, 0).await {
        Err(ClientError::Refused(Refusal::Request(Forgotten { first }))) => first,
        done => return done.map_err(RelayError::Below),
    };
    client.subscribe(instance, first).await.map_err(RelayError::Below)
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
    clock: Clock,
    notes: Notes,
    session: Option<Session>,
    below: Below,
    has_left: bool,
}

impl Driver {
    async fn run(
        &mut self,
        above: &mut mpsc::Receiver<FromAbove>,
        deliveries: &mut Deliveries,
    ) -> Result<(), RelayError> {
        let mut alarm = Alarm::new();
        let mut looks = tokio::time::interval(Duration::from_millis(SUBTREE_MS));
        looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            self.turn().await;
            if self.has_left {
                return Ok(());
            }
            let due = self.relay.poll_timeout().map(|(at, _)| self.clock.instant(at));
            tokio::select! {
                said = above.recv() => match said {
                    Some(FromAbove::Connected(session, now)) => {
                        self.session = Some(session);
                        self.tell(Event::Connected { above: now });
                    }
                    Some(FromAbove::Order(order)) => self.tell(Event::Order(order)),
                    Some(FromAbove::Refused(why)) => return Err(RelayError::Refused(why)),
                    Some(FromAbove::Failed(error)) => return Err(RelayError::Connect(error)),
                    Some(FromAbove::Ended) | None => {
                        self.session = None;
                        self.tell(Event::Disconnected);
                    }
                },
                delivered = deliveries.recv() => {
                    let Delivery { from, results, .. } = delivered.map_err(RelayError::Below)?;
                    self.tell(Event::Results { from, results });
                }
                said = self.below.recv() => match said {
                    FromBelow::Event(event) => self.tell(event),
                    FromBelow::Failed(error) => return Err(RelayError::Below(error)),
                },
                _ = looks.tick() => self.below.look(self.relay.identity()),
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
                other => self.below.ask(other),
            }
        }
    }

    /// A session that has ended is noticed when it is next read.
    async fn say(&mut self, message: FromExecutor) {
        if let Some(session) = &self.session {
            let _ = session.say.send(message).await;
        }
    }
}
