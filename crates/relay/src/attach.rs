//! The way to the dispatcher below: connections, one after another, and the relay's
//! instance there.

use super::{Downstream, Options, SILENT_MS_MAX};
use falkon_core::dispatch::{Holdings, RequestError, Subtree, Survey};
use falkon_core::relay::Relay;
use falkon_core::task::{InstanceId, Time};
use falkon_net::client::{Client, ClientError, Deliveries};
use falkon_net::secure::{AccessFile, Level, Role};
use falkon_wire::message::{Refusal, Status};
use std::time::Duration;
use tokio::time::Instant;

/// First and longest pause before connecting again.
const RECONNECT_MS: (u64, u64) = (50, 5000);
/// How long a connection lasts after which the next attempt comes soon.
const STABLE_MS: u64 = 3000;

/// The dispatcher below, with the relay's instance there.
pub(super) struct Attached {
    pub(super) client: Client,
    pub(super) deliveries: Deliveries,
    pub(super) instance: InstanceId,
    /// How many tasks it has accepted.
    pub(super) accepted: u64,
    /// The dispatcher's time.
    pub(super) now: Time,
    pub(super) below: (Subtree, Holdings, Survey),
}

/// Where connections come from.
enum Source {
    Access(Box<AccessFile>),
    Here(Option<(Client, Deliveries)>, Level),
}

/// See the [module](self).
pub(super) struct Way {
    source: Source,
    pause_ms: u64,
    attached: Option<Instant>,
    said: String,
}

impl Way {
    pub(super) fn new(downstream: Downstream) -> Way {
        let source = match downstream {
            Downstream::Access(access) => Source::Access(access),
            Downstream::Here { client, deliveries, level } => {
                Source::Here(Some((client, deliveries)), level)
            }
        };
        Way { source, pause_ms: RECONNECT_MS.0, attached: None, said: String::new() }
    }

    /// How executors below protect what they say to each other, and to those who visit them.
    pub(super) fn level(&self) -> Level {
        match &self.source {
            Source::Access(access) => access.level,
            Source::Here(_, level) => *level,
        }
    }

    /// How long the dispatcher may say nothing; `None` is for ever.
    pub(super) fn silent_max(&self) -> Option<Duration> {
        match self.source {
            Source::Access(_) => Some(Duration::from_millis(SILENT_MS_MAX)),
            Source::Here(..) => None,
        }
    }

    /// Connects, and takes up the relay's instance, a new one if need be.
    pub(super) async fn attach(
        &mut self,
        relay: &Relay,
        options: &Options,
    ) -> Result<Attached, ClientError> {
        let attached = match &mut self.source {
            Source::Here(ends, _) => {
                let (client, deliveries) = ends.take().ok_or(ClientError::Lost)?;
                take_up(client, deliveries, relay, options).await?
            }
            Source::Access(access) => {
                let (client, deliveries) = Client::connect(access, Role::Owner).await?;
                let limit = Duration::from_millis(SILENT_MS_MAX);
                let attaching = take_up(client, deliveries, relay, options);
                let attached = tokio::time::timeout(limit, attaching).await;
                let attached = attached.map_err(|_| ClientError::Lost)??;
                let addresses = access.addresses.join(", ");
                (options.log)(&format!("connected to the dispatcher at {addresses}"));
                attached
            }
        };
        self.attached = Some(Instant::now());
        self.said.clear();
        Ok(attached)
    }

    /// Waits before the next attempt, after what ended the last one. At the first
    /// attempt of all a refusal is for good; later the dispatcher may be in the middle
    /// of a restart.
    ///
    /// # Errors
    /// The error is for good.
    pub(super) async fn pause(
        &mut self,
        error: ClientError,
        is_first: bool,
        options: &Options,
    ) -> Result<(), ClientError> {
        let Source::Access(access) = &self.source else { return Err(error) };
        if is_first && !error.is_transient() {
            return Err(error);
        }
        let stable = Duration::from_millis(STABLE_MS);
        if self.attached.take().is_some_and(|since| since.elapsed() >= stable) {
            self.pause_ms = RECONNECT_MS.0;
        }
        let reason = match error {
            // It names the addresses.
            ClientError::Connect(error) => error.to_string(),
            error => format!("{}: {error}", access.addresses.join(", ")),
        };
        if reason != self.said {
            (options.log)(&format!("{reason}; retrying"));
            self.said = reason;
        }
        tokio::time::sleep(Duration::from_millis(self.pause_ms)).await;
        self.pause_ms = (self.pause_ms * 2).min(RECONNECT_MS.1);
        Ok(())
    }
}

async fn take_up(
    client: Client,
    deliveries: Deliveries,
    relay: &Relay,
    options: &Options,
) -> Result<Attached, ClientError> {
    let wanted = relay.instance_options(options.lease_micros);
    let (instance, status) = match find(&client, relay, &wanted.name).await? {
        Some(found) => found,
        None => {
            let (instance, _) = client.create(wanted).await?;
            (instance, client.status(Some(instance)).await?)
        }
    };
    let accepted = status.instances.first().map_or(0, |found| found.counts.total);
    subscribe(&client, instance).await?;
    // The dispatcher below has to know whom it is lent to before others join it.
    let below = client.subtree(relay.identity(), 0).await?;
    Ok(Attached { client, deliveries, instance, accepted, now: status.now, below })
}

/// The instance that the relay had, if it is there. Its number may be another
/// client's, where the dispatcher's journal was removed.
async fn find(
    client: &Client,
    relay: &Relay,
    name: &str,
) -> Result<Option<(InstanceId, Status)>, ClientError> {
    let Some(instance) = relay.instance() else { return Ok(None) };
    match client.status(Some(instance)).await {
        Ok(status) => {
            let is_own = status.instances.first().is_some_and(|found| found.name == name);
            Ok(is_own.then_some((instance, status)))
        }
        Err(ClientError::Refused(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Asks for all results that are not acknowledged.
async fn subscribe(client: &Client, instance: InstanceId) -> Result<(), ClientError> {
    let first = match client.subscribe(instance, 0).await {
        Err(ClientError::Refused(Refusal::Request(RequestError::Forgotten { first }))) => first,
        done => return done,
    };
    client.subscribe(instance, first).await
}
