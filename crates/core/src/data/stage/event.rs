//! What happens to a stage, what it wants done, and what it tells.

use crate::data::cache::{CacheOptions, Evicted, TierId};
use crate::data::limits::{FETCHES_MAX, SERVES_MAX, SOURCE_FETCHES_MAX};
use crate::data::object::{Object, ObjectId, Source, Sources};
use crate::task::{ExecutorId, TaskKey};
use std::sync::Arc;

/// How a stage is set up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StageOptions {
    /// The cache.
    pub cache: CacheOptions,
    /// Fetches in progress at a time; at least 1 is taken.
    pub fetches_max: usize,
    /// Fetches in progress from one peer or one store; at least 1 is taken.
    pub source_fetches_max: usize,
    /// Objects being served to peers at a time; 0 serves nobody.
    pub serves_max: usize,
    /// The last directory is lent to others: shares of striped objects lie there, and
    /// objects that are too large for all other directories.
    pub lends_last: bool,
    /// The machine can mount file systems: tasks find objects there that no directory
    /// has room for.
    pub mounts: bool,
    /// Where the jitter of pauses comes from.
    pub seed: u64,
}

impl StageOptions {
    /// The usual limits around this cache.
    #[must_use]
    pub fn new(cache: CacheOptions, seed: u64) -> StageOptions {
        StageOptions {
            cache,
            fetches_max: FETCHES_MAX,
            source_fetches_max: SOURCE_FETCHES_MAX,
            serves_max: SERVES_MAX,
            lends_last: false,
            mounts: false,
            seed,
        }
    }
}

/// One file being made in the cache: what arrives for it is written there and
/// nobody else reads it until it is sealed. Numbers are never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartialId(pub u64);

/// One transfer into such a file. Numbers are never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FetchId(pub u64);

/// One archive being counted or unpacked. Numbers are never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnpackId(pub u64);

/// One object being served to one peer; the shell numbers them and uses none
/// again while it is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServeId(pub u64);

/// A part of an object: the first byte, and how many; `None` is all that follow.
pub type ByteRange = (u64, Option<u64>);

/// An input of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Input {
    /// The object, as the task knows it.
    pub object: Arc<Object>,
    /// Where it may be.
    pub sources: Sources,
    /// It is an archive, and the task finds it unpacked.
    pub is_unpacked: bool,
    /// The task may find it in a file system instead of in the cache: it opens it.
    pub may_mount: bool,
}

/// Who has a stage fetch or keep objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Requester {
    /// A task: its inputs are fetched and its outputs kept.
    Task(TaskKey),
    /// A prefetch, ahead of all tasks that read the object. The executor
    /// numbers prefetches.
    Prefetch(u64),
    /// A visitor, who puts an object here by hand. The shell numbers visits.
    Visit(u64),
}

/// What happens to a stage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A session with a dispatcher begins: what is held is told anew.
    Connected,
    /// A task has come. Its inputs are staged when there is room, while it
    /// waits for a slot: it may lose them again to one that does not wait
    /// ([`Action::Unready`]). A task that is here already is replaced.
    Want {
        /// For whom.
        requester: Requester,
        /// What it reads.
        inputs: Vec<Input>,
    },
    /// A slot waits for this task: it goes before those that nothing waits
    /// for, and may take their room. From then on only [`Event::Ended`] takes
    /// what it has got, so it must be started when it is ready.
    Needed(Requester),
    /// Better hints for tasks that are here; the sources are added to those
    /// known, and a peer that had answered that it has not got the object is
    /// believed again.
    Hints {
        /// Of what.
        object: ObjectId,
        /// Where it may be.
        sources: Sources,
    },
    /// These executors are gone: none of them gives anything any more.
    Gone(Vec<ExecutorId>),
    /// A task for which there was [`Action::Ready`] has been started; what it
    /// reads stays where it is until [`Event::Ended`].
    Started(Requester),
    /// A task has ended, was cancelled or taken back: it wants nothing more.
    /// At any time; there is no answer.
    Ended(Requester),
    /// An output of a task is to be held here. The shell has it as a file,
    /// outside the cache. The answer is [`Action::Kept`] or
    /// [`Action::NotKept`], after [`Event::Ended`] of the task or before.
    Keep {
        /// Whose it is.
        requester: Requester,
        /// What it is to be known as; its size must be known.
        object: Arc<Object>,
        /// It is nowhere else: it is not evicted until [`Event::Release`].
        only_here: bool,
    },
    /// The file of [`Action::Adopt`] is in the cache, or is not.
    Adopted {
        /// What it was for.
        partial: PartialId,
        /// Whether it is.
        result: Result<(), WriteError>,
    },
    /// These objects are to stay, as outputs that are only here.
    Hold(Vec<ObjectId>),
    /// These objects are replicated elsewhere, or nobody wants them any more:
    /// they may be evicted like any other.
    Release(Vec<ObjectId>),
    /// These objects are to go, unless they are in use: then as soon as they
    /// are not.
    Drop(Vec<ObjectId>),
    /// How many tasks in the dispatcher's queue read these objects; 0 is none.
    /// What was said of others still holds.
    Demand(Vec<(ObjectId, u64)>),
    /// A source has said how many bytes the whole object has.
    Sized {
        /// Of which transfer.
        fetch: FetchId,
        /// The whole object's size.
        size: u64,
    },
    /// More has arrived of an object whose size nobody knows; told before it
    /// is written past what was told before, and at least every 8 MiB.
    Arriving {
        /// Of which transfer.
        fetch: FetchId,
        /// How far the file will reach.
        until: u64,
    },
    /// More of an object that may be broadcast has arrived and is written; told at
    /// least after each [chunk](crate::data::broadcast::Chunks), or after
    /// [`PROGRESS_MICROS`](crate::data::limits::PROGRESS_MICROS) if less comes.
    Written {
        /// Of which transfer.
        fetch: FetchId,
        /// How many bytes it has brought from its start without a gap.
        bytes: u64,
    },
    /// A transfer is complete.
    Fetched {
        /// The fetch.
        fetch: FetchId,
        /// How many bytes it brought.
        bytes: u64,
    },
    /// A transfer has failed.
    FetchFailed {
        /// The fetch.
        fetch: FetchId,
        /// How many bytes it brought, and wrote, from its start without a gap.
        bytes: u64,
        /// Why.
        why: FetchError,
    },
    /// An object is complete, checked against its hash if that is known, and
    /// in its place; or is not, and its file is gone.
    Sealed {
        /// The partial.
        partial: PartialId,
        /// Whether it is.
        result: Result<(), WriteError>,
    },
    /// What an object without a version has become: what the store says now.
    Resolved {
        /// Which was asked for.
        object: ObjectId,
        /// What it is now, or what the store said instead. If nobody can tell
        /// a version, it has none, and an id that was never given before: it
        /// is fetched for this use alone and told to nobody.
        now: Result<Arc<Object>, FetchError>,
    },
    /// The answer to [`Action::Measure`] or [`Action::Unpack`].
    Unpacked {
        /// To which.
        unpack: UnpackId,
        /// How many bytes its unpacked form takes, or why it has none.
        result: Result<u64, UnpackError>,
    },
    /// An object that is here, or on its way here, is broadcast.
    Parents {
        /// The object.
        object: ObjectId,
        /// Who sends the chunks of each tree; nobody if it is to be fetched like
        /// any other from now on.
        parents: Vec<ExecutorId>,
    },
    /// An object that is here, or on its way here, is striped: lenders have its
    /// stripes.
    Striped {
        /// The object.
        object: ObjectId,
        /// Who sends the chunks of each stripe; nobody if the object is to be fetched
        /// like any other from now on.
        lenders: Vec<ExecutorId>,
    },
    /// Stripes of an object are to be here, for others to read.
    Lend {
        /// The object.
        object: Arc<Object>,
        /// Where it may be.
        sources: Sources,
        /// Which stripes, beside those that are here already.
        stripes: Vec<u32>,
        /// Of how many.
        of: u32,
    },
    /// These shares of objects need not be here any more.
    TakeBack(Vec<ObjectId>),
    /// A lender has not given its part of an object that tasks read in a file system.
    Silent {
        /// The object.
        object: ObjectId,
        /// The lender.
        lender: ExecutorId,
    },
    /// A peer asks for an object. The answer is [`Action::Serve`],
    /// [`Action::ServePart`] or [`Action::Refuse`]: at once, or for a chunk that is
    /// on its way here within [`CHUNK_WAIT_MICROS`](crate::data::limits::CHUNK_WAIT_MICROS).
    Ask {
        /// This conversation.
        serve: ServeId,
        /// What it wants.
        object: ObjectId,
        /// Which bytes of it.
        range: ByteRange,
    },
    /// A conversation is over, in whichever way.
    Served(ServeId),
    /// The file of an object that was held is gone or damaged.
    Lost(ObjectId),
    /// A directory is full, although there should be room.
    Full(TierId),
}

/// Why a transfer brought nothing, or not all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// The source is there and has not got it.
    #[error("it is not there")]
    Gone,
    /// The source has too much to do just now.
    #[error("too busy")]
    Busy,
    /// The source is still fetching it itself.
    #[error("still fetching it itself")]
    Coming,
    /// The source could not be reached, or fell silent, or the connection
    /// broke; what it said.
    #[error("{0}")]
    Unreachable(String),
    /// The source will not, and asking again is of no use; what it said.
    #[error("{0}")]
    Refused(String),
    /// The source has the archive, and no such member is in it, or none that can be read:
    /// no other source has another one. What is wrong.
    #[error("{0}")]
    NoMember(String),
    /// What came has the wrong length or content.
    #[error("it gave something else ({0})")]
    Wrong(String),
    /// The source has another version now; this is it.
    #[error("it has another version now ({})", .0.version)]
    Changed(Arc<Object>),
    /// It could not be written here.
    #[error(transparent)]
    Write(WriteError),
}

/// Why a file in the cache could not be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// The directory's file system is full.
    #[error(
        "the disk of the cache is full: free some of it, or give the executor a cache on another \
         (`--cache`)"
    )]
    Full,
    /// The content has not the hash it must have; which it has.
    #[error("its content is not what it must be ({0})")]
    Wrong(String),
    /// The directory failed otherwise; what the system said.
    #[error("{0}")]
    Failed(String),
}

/// Why an archive was not unpacked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnpackError {
    /// The directory's file system is full.
    #[error(
        "the disk of the cache is full: free some of it, or give the executor a cache on another \
         (`--cache`)"
    )]
    Full,
    /// The archive's file is not there, or not what it was.
    #[error("it is gone from the cache")]
    Lost,
    /// The archive cannot be unpacked here, and trying again is of no use.
    #[error("{0}")]
    Refused(String),
    /// The directory failed otherwise; what the system said.
    #[error("{0}")]
    Failed(String),
}

/// An input in its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Staged {
    /// What the task asked for.
    pub wanted: ObjectId,
    /// What it gets: the same, or what its source has become.
    pub object: Arc<Object>,
    /// In which directory it is.
    pub tier: TierId,
    /// The task finds it unpacked.
    pub is_unpacked: bool,
    /// The task finds it in a file system: it is in no directory.
    pub is_mounted: bool,
}

/// Objects and bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Count {
    /// Objects.
    pub objects: u64,
    /// Bytes.
    pub bytes: u64,
}

/// Where inputs came from (data-diffusion §5.2.1: H_L, H_C, H_S). Bytes are
/// those moved, tries that failed included; for local hits, those not moved.
/// An object that several tasks waited for was fetched for the first of them,
/// and is a local hit for the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// From this cache.
    pub local: Count,
    /// From caches of other executors.
    pub peer: Count,
    /// From the persistent store.
    pub store: Count,
}

impl Usage {
    /// From all three.
    #[must_use]
    pub fn all(&self) -> Count {
        let all = [self.local, self.peer, self.store];
        all.iter().fold(Count::default(), |sum, one| sum.and(*one))
    }

    /// Adds others.
    pub fn add(&mut self, other: &Usage) {
        self.local = self.local.and(other.local);
        self.peer = self.peer.and(other.peer);
        self.store = self.store.and(other.store);
    }
}

impl Count {
    /// The sum of two, or the most there can be.
    #[must_use]
    pub fn and(self, other: Count) -> Count {
        Count {
            objects: self.objects.saturating_add(other.objects),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }
}

/// What a stage wants done. In order: files named in an earlier action are
/// gone, or are there, before a later one is begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// All inputs of a task are in their places and stay there until
    /// [`Event::Ended`] or [`Action::Unready`].
    Ready {
        /// For whom.
        requester: Requester,
        /// Its inputs, in the order in which it named them.
        inputs: Vec<Staged>,
        /// Where they came from.
        usage: Usage,
    },
    /// A task that was ready, and has not been started, is ready no more: it
    /// must not be started until it is again.
    Unready(Requester),
    /// An object is to be found in a file system until [`Action::Hide`]. What is read of
    /// it comes from those who have its stripes, one after another, or from its store if
    /// there are none. Later ones replace them.
    Show {
        /// The object.
        object: Arc<Object>,
        /// Who has its stripes.
        lenders: Vec<ExecutorId>,
    },
    /// No task reads an object in the file system any more.
    Hide(ObjectId),
    /// Inputs of a task cannot be staged; it is forgotten.
    Failed {
        /// For whom.
        requester: Requester,
        /// Why.
        error: super::StageError,
    },
    /// Delete the file of an object, and its unpacked form.
    Delete(Evicted),
    /// Fetch part of an object into a file, and answer with
    /// [`Event::Fetched`] or [`Event::FetchFailed`]; a source that says
    /// nothing for too long is unreachable.
    Fetch {
        /// This transfer.
        fetch: FetchId,
        /// The file; made if it is not there.
        partial: PartialId,
        /// In which directory.
        tier: TierId,
        /// What to fetch. A source whose version is not this one's has not got
        /// it, or, if it is the store, has [`FetchError::Changed`].
        object: Arc<Object>,
        /// Where from.
        source: Source,
        /// The first byte.
        offset: u64,
        /// How many; `None` is all that follow, and there may be none.
        length: Option<u64>,
    },
    /// Check a complete file, and put it in the object's place so that it is
    /// there after a crash wholly or not at all. The answer is
    /// [`Event::Sealed`].
    Seal {
        /// The file.
        partial: PartialId,
        /// In which directory.
        tier: TierId,
        /// What it is.
        object: Arc<Object>,
        /// How long it must be.
        size: u64,
    },
    /// End all transfers into a file and delete it; nothing is answered. It
    /// never comes for a file that is being sealed.
    Discard {
        /// The file.
        partial: PartialId,
        /// In which directory.
        tier: TierId,
    },
    /// Move an output into the cache, as with [`Action::Seal`]. The answer is
    /// [`Event::Adopted`].
    Adopt {
        /// What to answer with.
        partial: PartialId,
        /// Into which directory.
        tier: TierId,
        /// Whose it is.
        requester: Requester,
        /// What it is.
        object: Arc<Object>,
    },
    /// An output is held.
    Kept {
        /// For whom.
        requester: Requester,
        /// The object.
        object: ObjectId,
    },
    /// An output is not held; its file is where it was.
    NotKept {
        /// For whom.
        requester: Requester,
        /// The object.
        object: ObjectId,
        /// Why.
        error: super::StageError,
    },
    /// Count what an archive that is held takes when it is unpacked. The answer is
    /// [`Event::Unpacked`]; one that takes more than `bytes_max` is refused.
    Measure {
        /// What to answer with.
        unpack: UnpackId,
        /// Which archive.
        object: Arc<Object>,
        /// As much as any directory of the cache takes, less the archive.
        bytes_max: u64,
    },
    /// Unpack an archive that is held, beside it, so that its unpacked form is
    /// there after a crash wholly or not at all. It must not take more than
    /// `bytes`. The answer is [`Event::Unpacked`].
    Unpack {
        /// What to answer with.
        unpack: UnpackId,
        /// Which archive.
        object: Arc<Object>,
        /// Room for its unpacked form.
        bytes: u64,
    },
    /// Ask the store what an object without a version is now. The answer is
    /// [`Event::Resolved`].
    Resolve(Arc<Object>),
    /// Serve an object; it stays in its place until [`Event::Served`].
    Serve {
        /// To whom.
        serve: ServeId,
        /// What.
        object: ObjectId,
        /// In which directory.
        tier: TierId,
        /// Its bytes.
        size: u64,
    },
    /// Serve a part of an object that is on its way here, from its file, until
    /// [`Event::Served`]. The file may be in the object's place by then.
    ServePart {
        /// To whom.
        serve: ServeId,
        /// What.
        object: ObjectId,
        /// The file.
        partial: PartialId,
        /// In which directory.
        tier: TierId,
        /// Bytes of the whole object.
        size: u64,
    },
    /// End a transfer of which nothing is heard. The answer is
    /// [`Event::FetchFailed`], unless it has come to its end meanwhile; nothing more
    /// is written then.
    GiveUp {
        /// The transfer.
        fetch: FetchId,
        /// The file that it writes to.
        partial: PartialId,
    },
    /// Do not serve; the conversation is over.
    Refuse {
        /// Whom.
        serve: ServeId,
        /// Why.
        why: Refusal,
    },
}

/// Why an object is not served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// There is too much to do just now.
    Busy,
    /// It is on its way here.
    Coming,
    /// It is not here.
    Gone,
}

/// What the dispatcher is to know of a cache.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changes {
    /// Whatever was told before is forgotten.
    pub anew: bool,
    /// What is held and had not been told, with its size.
    pub added: Vec<(ObjectId, u64)>,
    /// What had been told and is not held.
    pub removed: Vec<ObjectId>,
    /// What those in `added` are that somebody put here by hand: no task's
    /// submission says it.
    pub named: Vec<Object>,
    /// How the cache stands, if that is to be told.
    pub state: Option<CacheState>,
    /// What tasks here were to read, and nobody gave.
    pub unobtainable: Vec<ObjectId>,
    /// Objects that are broadcast, and an executor that was to send each and of
    /// which nothing was heard.
    pub silent: Vec<(ObjectId, ExecutorId)>,
    /// Bytes that have come from the caches of other executors since that was told last.
    pub moved: Vec<(ExecutorId, u64)>,
}

/// How a cache stands, and what it has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheState {
    /// Bytes that it takes.
    pub capacity: u64,
    /// Bytes of what is there or arrives.
    pub used: u64,
    /// Where the inputs of tasks came from since the executor started.
    pub usage: Usage,
}
