//! A dispatcher and an executor within this process.

use falkon_core::task::Resources;
use falkon_node::client::{Client, Deliveries};
use falkon_node::dispatcher::{self, DispatcherError, Handle, Log};
use falkon_node::executor::{self, CacheSetup, ExecutorError, Link, WorkerOptions};
use falkon_node::secure::{Role, plain};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Bytes on their way between the parts.
const LINK_BYTES: usize = 1 << 20;

/// Everything that `falkon run` needs, in one place.
pub(crate) struct Embedded {
    pub(crate) client: Client,
    pub(crate) deliveries: Deliveries,
    pub(crate) executor: JoinHandle<Result<(), ExecutorError>>,
    leave: oneshot::Sender<()>,
    dispatcher: Handle,
}

impl Embedded {
    /// Starts a dispatcher without a journal and one executor.
    pub(crate) fn start(
        capacity: Resources,
        scratch: PathBuf,
        capture_bytes_max: u64,
        workers: WorkerOptions,
        cache: Option<CacheSetup>,
    ) -> Result<Embedded, DispatcherError> {
        let log: Log = Arc::new(|_: &str| {});
        let options = dispatcher::Options { store: None, identity: None, log: log.clone() };
        let (dispatcher, _) = dispatcher::start(options)?;
        let (ours, theirs) = tokio::io::duplex(LINK_BYTES);
        let (reader, writer) = plain(theirs);
        dispatcher.attach(Role::Owner, "here", reader, writer);
        let (reader, writer) = plain(ours);
        let (client, deliveries) = Client::over(reader, writer);
        let (ours, theirs) = tokio::io::duplex(LINK_BYTES);
        let (reader, writer) = plain(theirs);
        dispatcher.attach(Role::Executor, "here", reader, writer);
        let (leave, leaving) = oneshot::channel();
        let options = executor::Options {
            name: hostname(),
            capacity,
            scratch,
            capture_bytes_max,
            workers,
            give_up: None,
            log,
            cache,
            tenure: executor::Tenure::default(),
        };
        let executor =
            tokio::spawn(executor::run(options, Link::Here(Box::new(plain(ours))), leaving));
        Ok(Embedded { client, deliveries, executor, leave, dispatcher })
    }

    /// Ends everything, once what runs has ended or at once; no process of a
    /// task is left when this returns.
    pub(crate) async fn stop(self, at_once: bool) {
        if at_once {
            self.executor.abort();
        }
        // An executor that has ended does not hear it, and need not.
        let _ = self.leave.send(());
        if !self.executor.is_finished() {
            let _ = self.executor.await;
        }
        self.dispatcher.stop().await;
    }
}

/// Waits until an executor ends, which it does by itself only if it cannot run
/// processes.
pub(crate) async fn failure(
    executor: &mut JoinHandle<Result<(), ExecutorError>>,
) -> Option<ExecutorError> {
    match executor.await {
        Ok(Err(error)) => Some(error),
        _ => None,
    }
}

/// This machine's name.
pub(crate) fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// CPUs that this process may use.
pub(crate) fn cpus() -> u32 {
    std::thread::available_parallelism().map_or(1, |count| count.get() as u32)
}
