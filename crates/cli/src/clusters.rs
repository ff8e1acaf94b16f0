//! Other dispatchers whose executors run the tasks of one of this process.

use clap::Args;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue};
use falkon_core::limits::NAME_BYTES_MAX;
use falkon_core::result::shortened;
use falkon_net::Log;
use falkon_net::client::ClientError;
use falkon_net::secure::{AccessError, AccessFile, ConnectError, Role};
use falkon_relay::{Downstream, Opener, RelayError, Upstream};
use std::path::PathBuf;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

/// How long the tasks of a vanished run go on in a cluster.
const LEASE_MICROS: u64 = 600_000_000;

/// The dispatchers whose executors run the tasks, by their access files.
#[derive(Args, Debug, Clone, Default)]
pub(crate) struct ClusterArgs {
    /// Run the tasks on the executors of this access file's dispatcher, not here; may be
    /// repeated: several clusters are one queue. With --jobs N also here
    #[arg(long, value_name = "FILE")]
    access: Vec<PathBuf>,
}

/// Why clusters cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClusterError {
    /// An access file is no good.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// Two files are of one dispatcher.
    #[error("{} and {} are of the same dispatcher: name it once", .0.display(), .1.display())]
    Twice(PathBuf, PathBuf),
}

impl ClusterArgs {
    /// Whether there are any.
    pub(crate) fn is_empty(&self) -> bool {
        self.access.is_empty()
    }

    /// Reads the access files.
    pub(crate) fn load(&self) -> Result<Vec<AccessFile>, ClusterError> {
        load(&self.access)
    }
}

/// Reads the access files of dispatchers whose executors are to be lent.
pub(crate) fn load(paths: &[PathBuf]) -> Result<Vec<AccessFile>, ClusterError> {
    let mut loaded: Vec<AccessFile> = Vec::new();
    for path in paths {
        let access = AccessFile::load(path)?;
        access.secret(Role::Owner)?;
        if let Some(at) = loaded.iter().position(|one| one.dispatcher == access.dispatcher) {
            return Err(ClusterError::Twice(paths[at].clone(), path.clone()));
        }
        loaded.push(access);
    }
    Ok(loaded)
}

/// Adds a tip to the error of a command line that names several access files where one
/// is meant.
pub(crate) fn with_tip(mut error: clap::Error) -> clap::Error {
    let is_access = |kind| match error.get(kind) {
        Some(ContextValue::String(argument)) => argument.starts_with("--access "),
        _ => false,
    };
    if is_access(ContextKind::InvalidArg) && is_access(ContextKind::PriorArg) {
        let tip = "falkon run --access A --access B runs tasks on the executors of several \
                   dispatchers, as one queue; this command speaks to one";
        let tips = vec![StyledStr::from(tip)];
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
    }
    error
}

/// Why a dispatcher does not lend its executors.
#[derive(Debug, thiserror::Error)]
#[error("the cluster {name}: {error}")]
pub(crate) struct Lost {
    name: String,
    #[source]
    error: RelayError,
}

impl Lost {
    /// Why its dispatcher cannot be reached, if that is it.
    pub(crate) fn into_connect(self) -> Result<ConnectError, Lost> {
        match self.error {
            RelayError::Below(ClientError::Connect(error)) => Ok(error),
            error => Err(Lost { error, ..self }),
        }
    }
}

/// Relays to dispatchers elsewhere.
#[derive(Debug, Default)]
pub(crate) struct Clusters {
    relays: JoinSet<Result<(), Lost>>,
    stops: Vec<oneshot::Sender<()>>,
}

impl Clusters {
    /// Starts a relay that lends a dispatcher's executors to the one that `open` leads
    /// to.
    pub(crate) fn add(&mut self, access: AccessFile, open: Opener, log: Log) {
        let name = access.addresses.first().cloned().unwrap_or_default();
        let name = shortened(&name, NAME_BYTES_MAX);
        let lease_micros = Some(LEASE_MICROS);
        let options = falkon_relay::Options { name: name.clone(), place: None, lease_micros, log };
        let (stop, stopped) = oneshot::channel();
        self.stops.push(stop);
        let downstream = Downstream::Access(Box::new(access));
        let relay = falkon_relay::run(options, Upstream::Here(open), downstream, stopped);
        self.relays.spawn(async move { relay.await.map_err(|error| Lost { name, error }) });
    }

    /// Waits until one cannot go on.
    pub(crate) async fn lost(&mut self) -> Lost {
        loop {
            match self.relays.join_next().await {
                Some(Ok(Err(lost))) => return lost,
                Some(_) => {}
                None => std::future::pending().await,
            }
        }
    }

    /// Ends all, and destroys their instances below.
    pub(crate) async fn stop(mut self) {
        for stop in self.stops.drain(..) {
            // One that has ended does not need it.
            let _ = stop.send(());
        }
        while self.relays.join_next().await.is_some() {}
    }
}
