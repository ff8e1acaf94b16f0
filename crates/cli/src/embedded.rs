//! A dispatcher and an executor within this process.

use crate::machine::{cpus, hostname, memory};
use clap::Args;
use falkon_core::task::{MILLI, Resources};
use falkon_data::overflow::OverflowDirectory;
use falkon_dispatcher::{DispatcherError, Handle};
use falkon_executor::{CacheSetup, ExecutorError, Link, WorkerOptions};
use falkon_net::Log;
use falkon_net::client::{Client, Deliveries};
use falkon_net::secure::{Role, plain};
use falkon_process::Forked;
use falkon_provision::lrm::granted;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Bytes on their way between the parts.
const LINK_BYTES: usize = 1 << 20;

/// What this machine offers to its tasks.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "This machine")]
pub(crate) struct OfferArgs {
    /// Concurrent tasks of one CPU [default: one per CPU that this process may use, and that a
    /// batch scheduler has granted]
    #[arg(long, short, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    jobs: Option<u32>,
    /// GPUs that tasks may use [default: those of CUDA_VISIBLE_DEVICES,
    /// ROCR_VISIBLE_DEVICES or HIP_VISIBLE_DEVICES, or that a batch scheduler
    /// has granted]
    #[arg(long, value_name = "N")]
    offer_gpus: Option<u32>,
    /// Custom resources that tasks may use; may be repeated
    #[arg(long, value_name = "NAME=COUNT", value_parser = crate::plan::resource)]
    offer: Vec<(String, u64)>,
}

impl OfferArgs {
    /// The capacity as an executor announces it.
    pub(crate) fn capacity(&self) -> Resources {
        offered(self.jobs, self.offer_gpus, None, self.offer.clone())
    }
}

/// The resources that an executor here offers: the user's options, else the
/// grant of a batch scheduler on this machine, else all of it.
pub(crate) fn offered(
    slots: Option<u32>,
    gpus: Option<u32>,
    memory_bytes: Option<u64>,
    mut custom: Vec<(String, u64)>,
) -> Resources {
    let granted = granted(|name| std::env::var(name).ok(), &hostname());
    let all = |granted: Option<u64>| granted.unwrap_or(u64::MAX).min(memory());
    let slots = slots.unwrap_or_else(|| granted.cpus.unwrap_or(u32::MAX).min(cpus()));
    custom.sort();
    Resources {
        cpus_milli: slots.saturating_mul(MILLI),
        gpus: gpus.or(granted.gpus).unwrap_or(0),
        memory_bytes: memory_bytes.unwrap_or_else(|| all(granted.memory_bytes)),
        custom,
    }
}

/// The advice about GPUs that tasks need and no executor offers: they are not
/// detected, but taken from the environment.
pub(crate) fn how_gpus_are_offered(need: &Resources) -> &'static str {
    match need.gpus {
        0 => "",
        _ => {
            " (GPUs are those of CUDA_VISIBLE_DEVICES or ROCR_VISIBLE_DEVICES, or as many as falkon run --offer-gpus N or \
             falkon executor --gpus N says)"
        }
    }
}

/// Directories of the executor.
#[derive(Debug)]
pub(crate) struct Places {
    /// Caches and the directories of tasks.
    pub(crate) scratch: PathBuf,
    /// Output that is too long for memory.
    pub(crate) overflow: OverflowDirectory,
}

/// A dispatcher and an executor, of one process.
pub(crate) struct Embedded {
    pub(crate) executor: JoinHandle<Result<(), ExecutorError>>,
    leave: oneshot::Sender<()>,
    dispatcher: Handle,
}

impl Embedded {
    /// Starts a dispatcher without a journal and one executor.
    pub(crate) fn start(
        capacity: Resources,
        places: Places,
        capture_bytes_max: u64,
        workers: WorkerOptions,
        cache: Option<CacheSetup>,
        forked: Option<Forked>,
    ) -> Result<Embedded, DispatcherError> {
        let log: Log = Arc::new(|_: &str| {});
        let options = falkon_dispatcher::Options {
            store: None,
            pages: None,
            identity: None,
            keep_micros: None,
            log: log.clone(),
        };
        let (dispatcher, _) = falkon_dispatcher::start(options)?;
        let (ours, theirs) = tokio::io::duplex(LINK_BYTES);
        let (reader, writer) = plain(theirs);
        dispatcher.attach(Role::Executor, "here", reader, writer);
        let (leave, leaving) = oneshot::channel();
        let options = falkon_executor::Options {
            capture_bytes_max,
            workers,
            log,
            cache,
            forked,
            ..falkon_executor::Options::new(hostname(), capacity, places.scratch, places.overflow)
        };
        let executor =
            tokio::spawn(falkon_executor::run(options, Link::Here(Box::new(plain(ours))), leaving));
        Ok(Embedded { executor, leave, dispatcher })
    }

    /// A client in this process.
    pub(crate) fn client(&self) -> (Client, Deliveries) {
        let (ours, theirs) = tokio::io::duplex(LINK_BYTES);
        self.attach(theirs);
        let (reader, writer) = plain(ours);
        Client::over(reader, writer)
    }

    /// Serves a client at the other end of `stream`.
    pub(crate) fn attach(&self, stream: impl AsyncRead + AsyncWrite + Send + 'static) {
        let (reader, writer) = plain(stream);
        self.dispatcher.attach(Role::Owner, "here", reader, writer);
    }

    /// Ends everything, once what runs has ended or at once; no process of a
    /// task is left when this returns.
    pub(crate) async fn stop(self, at_once: bool) {
        if at_once {
            self.executor.abort();
        }
        // An executor that has ended does not need it.
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
