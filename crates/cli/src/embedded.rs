//! A dispatcher within this process, with an executor, or with relays to other
//! dispatchers.

use crate::clusters::{Clusters, Lost};
use crate::machine::{cpus, hostname, memory};
use crate::nodes::{NoNodes, Nodes};
use clap::{Args, ValueEnum};
use falkon_core::task::{MILLI, Resources};
use falkon_data::overflow::OverflowDirectory;
use falkon_dispatcher::events::EventOptions;
use falkon_dispatcher::{Concentrators, DispatcherError, Handle};
use falkon_executor::{CacheSetup, ExecutorError, Link, MemoryLimits, WorkerOptions, disk_offer};
use falkon_net::Log;
use falkon_net::client::{Client, Deliveries};
use falkon_net::secure::{
    AcceptorError, AccessFile, FrameReader, FrameWriter, Identity, Level, Role, plain,
};
use falkon_process::Forked;
use falkon_provision::lrm::granted;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
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
    /// Scratch disk space that tasks may use [default: what is free where the directories of tasks
    /// are, less 5 % and at least 1GiB]
    #[arg(long, value_name = "SIZE", value_parser = crate::plan::disk_bytes)]
    offer_disk: Option<u64>,
    #[command(flatten)]
    limits: LimitArgs,
}

/// How an executor holds tasks to what they asked for.
#[derive(Args, Debug, Clone)]
pub(crate) struct LimitArgs {
    /// How tasks are held to their --memory or --memory-limit
    #[arg(long, value_name = "HOW", value_enum, default_value_t = HeldBy::Auto)]
    memory_limits: HeldBy,
    /// Run each task on CPUs of its own: whole cores of one NUMA node as far as possible
    #[arg(long)]
    pin: bool,
}

/// A way to hold tasks to their memory.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
enum HeldBy {
    /// By control groups where this user may make some, else by a watch on their processes
    Auto,
    /// By a watch on their processes
    Watch,
    /// Not at all
    Off,
}

impl LimitArgs {
    /// Whether each task runs on CPUs of its own.
    pub(crate) fn pin(&self) -> bool {
        self.pin
    }

    /// The setting as the executor has it.
    pub(crate) fn memory_limits(&self) -> MemoryLimits {
        match self.memory_limits {
            HeldBy::Auto => MemoryLimits::Auto,
            HeldBy::Watch => MemoryLimits::Watch,
            HeldBy::Off => MemoryLimits::Off,
        }
    }
}

impl OfferArgs {
    /// The capacity as an executor announces it that has its directories in `scratch`.
    pub(crate) fn capacity(&self, scratch: &Path) -> Resources {
        let mut capacity = offered(self.jobs, self.offer_gpus, None, self.offer.clone());
        capacity.set_disk_bytes(disk_offer(scratch, self.offer_disk));
        capacity
    }

    /// How tasks are held to what they asked for.
    pub(crate) fn limits(&self) -> &LimitArgs {
        &self.limits
    }

    /// Whether the user says how many tasks run here at a time.
    pub(crate) fn names_jobs(&self) -> bool {
        self.jobs.is_some()
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

/// How the executor in this process behaves.
pub(crate) struct ExecutorSetup {
    pub(crate) capacity: Resources,
    pub(crate) memory_limits: MemoryLimits,
    pub(crate) pin: bool,
    pub(crate) places: Places,
    pub(crate) capture_bytes_max: u64,
    pub(crate) workers: WorkerOptions,
    pub(crate) cache: Option<CacheSetup>,
    pub(crate) forked: Option<Forked>,
}

/// Why a dispatcher of this process can run no tasks.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EmbeddedError {
    /// It can run no processes here.
    #[error("the executor has ended: {0}")]
    Executor(#[source] ExecutorError),
    /// A dispatcher does not lend its executors.
    #[error(transparent)]
    Cluster(Lost),
    /// No node of the batch job runs tasks.
    #[error(transparent)]
    Nodes(NoNodes),
}

/// Why a dispatcher of this process serves no connections.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ListenError {
    /// It was started for this process alone.
    #[error("this process has no identity")]
    NoIdentity,
    /// Its certificate is refused.
    #[error(transparent)]
    Acceptor(#[from] AcceptorError),
    /// The system refuses.
    #[error("cannot listen for executors: {0}")]
    Listen(#[from] std::io::Error),
}

/// The executor in this process.
struct Executing {
    ended: JoinHandle<Result<(), ExecutorError>>,
    leave: oneshot::Sender<()>,
}

/// A dispatcher of this process, and who runs its tasks.
pub(crate) struct Embedded {
    executing: Option<Executing>,
    clusters: Clusters,
    nodes: Nodes,
    serving: Option<JoinHandle<()>>,
    dispatcher: Handle,
}

impl Embedded {
    /// Starts a dispatcher without a journal; with an identity, it can serve connections.
    /// It keeps its events in a directory if one is named.
    pub(crate) fn start(
        identity: Option<Identity>,
        events: Option<PathBuf>,
    ) -> Result<Embedded, DispatcherError> {
        let options = falkon_dispatcher::Options {
            store: None,
            pages: None,
            events: events.map(EventOptions::new),
            identity,
            keep_micros: None,
            collectors: None,
            control: None,
            log: Arc::new(|_: &str| {}),
        };
        let (dispatcher, _) = falkon_dispatcher::start(options)?;
        Ok(Embedded {
            executing: None,
            clusters: Clusters::default(),
            nodes: Nodes::default(),
            serving: None,
            dispatcher,
        })
    }

    /// Starts an executor for it, once.
    pub(crate) fn execute(&mut self, setup: ExecutorSetup) {
        let ExecutorSetup {
            capacity,
            memory_limits,
            pin,
            places,
            capture_bytes_max,
            workers,
            cache,
            forked,
        } = setup;
        let (reader, writer) = opened(&self.dispatcher, Role::Executor);
        let (leave, leaving) = oneshot::channel();
        let options = falkon_executor::Options {
            capture_bytes_max,
            workers,
            log: Arc::new(|_: &str| {}),
            cache,
            memory_limits,
            pin,
            forked,
            ..falkon_executor::Options::new(hostname(), capacity, places.scratch, places.overflow)
        };
        let link = Link::Here(Box::new((reader, writer)));
        let ended = tokio::spawn(falkon_executor::run(options, link, leaving));
        self.executing = Some(Executing { ended, leave });
    }

    /// Serves executors from other machines at any free port of this one, encrypted. Returns
    /// their access file.
    ///
    /// # Errors
    /// The port cannot be opened, or the dispatcher was started without an identity.
    pub(crate) async fn listen(&mut self) -> Result<AccessFile, ListenError> {
        let level = Level::Encrypt;
        let identity = self.dispatcher.identity().ok_or(ListenError::NoIdentity)?.clone();
        let acceptor = falkon_dispatcher::acceptor(&identity, level)?;
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).await?;
        let port = listener.local_addr()?.port();
        let addresses = [format!("{}:{port}", hostname()), format!("127.0.0.1:{port}")];
        let serving = self.dispatcher.clone().serve(listener, acceptor, Concentrators::Auto);
        self.serving = Some(tokio::spawn(serving));
        Ok(identity.access_file(level, &addresses, &[Role::Executor]))
    }

    /// Keeps the executors on nodes, and ends them at the end.
    pub(crate) fn keep(&mut self, nodes: Nodes) {
        self.nodes = nodes;
    }

    /// Has the executors of other dispatchers run its tasks.
    pub(crate) fn borrow_from(&mut self, clusters: Vec<AccessFile>, log: &Log) {
        for access in clusters {
            let dispatcher = self.dispatcher.clone();
            self.clusters.add(
                access,
                Box::new(move || opened(&dispatcher, Role::Executor)),
                log.clone(),
            );
        }
    }

    /// A client in this process.
    pub(crate) fn client(&self) -> (Client, Deliveries) {
        let (reader, writer) = opened(&self.dispatcher, Role::Owner);
        Client::over(reader, writer)
    }

    /// Serves a client at the other end of `stream`.
    pub(crate) fn attach(&self, stream: impl AsyncRead + AsyncWrite + Send + 'static) {
        let (reader, writer) = plain(stream);
        self.dispatcher.attach(Role::Owner, "here", reader, writer);
    }

    /// Waits until the executor or a relay ends, which they do by themselves only if
    /// they can run no tasks.
    pub(crate) async fn failure(&mut self) -> EmbeddedError {
        let executing = async {
            match &mut self.executing {
                Some(executing) => match (&mut executing.ended).await {
                    Ok(Err(error)) => error,
                    _ => ExecutorError::Over,
                },
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            error = executing => EmbeddedError::Executor(error),
            lost = self.clusters.lost() => EmbeddedError::Cluster(lost),
            none = self.nodes.failure() => EmbeddedError::Nodes(none),
        }
    }

    /// Ends everything, once what runs has ended or at once; no process of a
    /// task is left when this returns.
    pub(crate) async fn stop(self, at_once: bool) {
        if let Some(Executing { ended, leave }) = self.executing {
            if at_once {
                ended.abort();
            }
            // An executor that has ended does not need it.
            let _ = leave.send(());
            if !ended.is_finished() {
                let _ = ended.await;
            }
        }
        self.clusters.stop().await;
        self.nodes.stop().await;
        self.serving.iter().for_each(JoinHandle::abort);
        self.dispatcher.stop().await;
    }
}

/// A connection to a dispatcher of this process.
fn opened(dispatcher: &Handle, role: Role) -> (FrameReader, FrameWriter) {
    let (ours, theirs) = tokio::io::duplex(LINK_BYTES);
    let (reader, writer) = plain(theirs);
    dispatcher.attach(role, "here", reader, writer);
    plain(ours)
}
