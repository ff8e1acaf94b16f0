//! The requests of peers and visitors to the core, and the state of a server
//! that its connections share.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use falkon_core::data::cache::TierId;
use falkon_core::data::object::{Object, ObjectId};
use falkon_core::data::stage::{ByteRange, PartialId, ServeId, WriteError};
use falkon_core::execute::{OfferId, VisitEnd};
use falkon_core::result::Stream;
use falkon_core::task::{TaskKey, Time};
use tokio::sync::{Semaphore, mpsc, oneshot};

use super::remote::{RemoteStart, Started};
use crate::cache::DiskCache;
use crate::overflow::OverflowDirectory;
use falkon_net::secure::PeerAcceptor;

/// The requests of peers.
#[derive(Debug)]
pub enum FromPeers {
    /// A peer asks for an object. The answer comes at once, or when a chunk that is
    /// on its way is there.
    Ask {
        /// This conversation.
        serve: ServeId,
        /// The object that it asks for.
        object: ObjectId,
        /// Which bytes of it.
        range: ByteRange,
        /// Where the answer goes; dropping it is [`Verdict::Gone`].
        answer: oneshot::Sender<Verdict>,
    },
    /// A conversation that was answered [`Verdict::Serve`] or [`Verdict::Part`] is
    /// over.
    Served(ServeId),
    /// An object that was to be served turned out to be gone or damaged.
    Lost(ObjectId),
    /// A visitor's ticket ends then: whether it is valid.
    Admit {
        /// On the dispatcher's clock.
        expires: Time,
        /// Where the answer goes.
        answer: oneshot::Sender<bool>,
    },
    /// A visitor wants to put an object here.
    Put {
        /// The object; its size is known.
        object: Arc<Object>,
        /// Where it is to be written; dropped if there is no place for it.
        place: oneshot::Sender<(TierId, PartialId)>,
        /// How it ends.
        end: oneshot::Sender<VisitEnd>,
    },
    /// An object from a visitor is in its place, or is not.
    Written {
        /// Where it was written.
        partial: PartialId,
        /// Whether it is.
        result: Result<(), WriteError>,
    },
    /// Another executor hands over an archive of outputs, which this one is to collect.
    Entrust {
        /// This offer.
        offer: OfferId,
        /// The path of the first file of the archive that they are for.
        archive: String,
        /// Bytes that come.
        bytes: u64,
        /// How long the oldest output in it has waited.
        waited_micros: u64,
        /// Where they are to be written; dropped if they are not wanted.
        place: oneshot::Sender<PathBuf>,
        /// The file that has them, or why there is none.
        end: oneshot::Sender<Result<Arc<str>, String>>,
    },
    /// What is handed over is in its place, or is not.
    Received {
        /// The offer.
        offer: OfferId,
        /// Why not.
        result: Result<(), String>,
    },
    /// The executor that hands something over takes it back, or is gone.
    Withdrawn(OfferId),
    /// A visitor wants to know what a task has written.
    Tail {
        /// The task.
        task: TaskKey,
        /// The stream.
        stream: Stream,
        /// The first byte that is wanted.
        from: u64,
        /// Where the answer goes; dropping it is [`Written::Gone`].
        answer: oneshot::Sender<Written>,
    },
    /// Another member of a gang wants a process to be started here.
    Remote {
        /// The process.
        start: RemoteStart,
        /// Where it is reported when it runs; or why it does not.
        answer: oneshot::Sender<Result<Started, String>>,
    },
    /// A visitor wants an object to be dropped.
    Drop {
        /// The object.
        object: ObjectId,
        /// How it ends.
        end: oneshot::Sender<VisitEnd>,
    },
}

/// What a task has written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// The task is here and has not started.
    Waiting,
    /// The task runs, or has ended a moment ago.
    Here {
        /// How much it has written.
        total_bytes: u64,
        /// From the byte on that was asked for, as far as it is in memory.
        bytes: Vec<u8>,
        /// The file that has the stream from its first byte on, if it is in one.
        file: Option<PathBuf>,
        /// Whether bytes that are in neither are lost.
        is_cut: bool,
        /// Whether it has ended.
        has_ended: bool,
    },
    /// The task runs, and all that it has written is in this file.
    InFile(PathBuf),
    /// The task is not here, or not any more.
    Gone,
}

/// Whether an object is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Yes; it must stay in its place until [`FromPeers::Served`].
    Serve,
    /// Yes, from the file in which it is being made, unless it is in its place by
    /// now; likewise.
    Part {
        /// The directory of the file.
        tier: TierId,
        /// The file.
        partial: PartialId,
        /// Bytes of the whole object.
        whole: u64,
    },
    /// Not now.
    Busy,
    /// The object is on its way here.
    Coming,
    /// The object is not here.
    Gone,
}

/// The state that all connections share.
pub(super) struct Shared {
    pub(super) acceptor: PeerAcceptor,
    pub(super) cache: Arc<DiskCache>,
    pub(super) overflow: Option<OverflowDirectory>,
    pub(super) asks: mpsc::Sender<FromPeers>,
    pub(super) connections: Semaphore,
    pub(super) next: AtomicU64,
}
