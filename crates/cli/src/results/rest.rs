//! The output of a task beyond the first bytes, which come with its result:
//! kept by the executor that ran it, and read through that, or through the relay
//! above it. A path from outside
//! is never opened, only files that this process made itself.

use crate::exit::Exit;
use falkon_core::dispatch::AccessError;
use falkon_core::result::{Captured, Detail, Stream};
use falkon_core::tail::{OutputQuestion, TAIL_PART_BYTES_MAX, TailState};
use falkon_core::task::{InstanceId, TaskId, TaskKey};
use falkon_data::object::Landing;
use falkon_data::overflow::{OverflowDirectory, OwnFile};
use falkon_data::peer::{Peer, PeerError, Piece, Visitor};
use falkon_net::client::{Client, ClientError};
use falkon_net::ids::output_id;
use falkon_net::secure::{Level, VisitPurpose};
use falkon_wire::message::Refusal;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::task::JoinSet;

/// Parts of a stream that are read through a relay at once.
const PARTS_AT_ONCE_MAX: usize = 16;
/// Streams in a row of which nobody told anything through a relay before it is asked no more:
/// each takes as long as a relay may take for an answer.
const SILENCES_MAX: u32 = 3;

/// Where the bytes of a stream are that do not come with the result.
#[derive(Debug, Clone, Default)]
pub(crate) enum Rest {
    /// There are none.
    #[default]
    None,
    /// The whole stream is in a file of this process.
    Here(Arc<OwnFile>),
    /// The rest cannot be got.
    Cut(CutReason),
}

/// Why only the first bytes of a stream are passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CutReason {
    /// The executor could not keep the rest.
    NotKept,
    /// The executor that kept it is gone.
    ExecutorGone,
    /// The executor cannot be reached from here.
    Unreachable,
    /// The executor has removed it.
    Removed,
    /// The rest is shorter than what the task wrote.
    Short,
    /// The rest cannot be stored or read here.
    Unreadable,
    /// The stream is longer than what a line of JSON holds.
    TooLong,
    /// The rest was not requested.
    NotFetched,
}

impl CutReason {
    /// For programs.
    pub(crate) fn word(self) -> &'static str {
        match self {
            CutReason::NotKept => "not_kept",
            CutReason::ExecutorGone => "executor_gone",
            CutReason::Unreachable => "unreachable",
            CutReason::Removed => "removed",
            CutReason::Short => "short",
            CutReason::Unreadable => "unreadable",
            CutReason::TooLong => "too_long",
            CutReason::NotFetched => "not_fetched",
        }
    }
}

impl fmt::Display for CutReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CutReason::NotKept => "its executor could not keep the rest",
            CutReason::ExecutorGone => "the executor that kept the rest is gone",
            CutReason::Unreachable => {
                "the executor that keeps the rest cannot be reached from here: run falkon results \
                 where its address can be reached, such as the dispatcher's machine"
            }
            CutReason::Removed => "its executor keeps the rest no longer",
            CutReason::Short => "what its executor kept is shorter than what the task wrote",
            CutReason::Unreadable => "the rest cannot be stored or read here",
            CutReason::TooLong => "the rest is too long for a line of JSON: --out keeps all of it",
            CutReason::NotFetched => "the rest was not fetched",
        })
    }
}

/// Where the rest of streams comes from.
pub(crate) enum Origin {
    /// The rest is not wanted.
    Nowhere,
    /// The executor of this process, and executors of dispatchers that relays of this process
    /// lead to.
    Here(Fetching, OverflowDirectory),
    /// Executors elsewhere.
    Executors(Fetching),
}

impl Origin {
    /// The parts of both streams of a task that `detail` does not hold. Fails
    /// only if the connection to the dispatcher does.
    pub(crate) async fn rests(
        &mut self,
        client: &Client,
        (instance, task): (InstanceId, TaskId),
        detail: &Detail,
    ) -> Result<[Rest; 2], ClientError> {
        let mut rests = [Rest::None, Rest::None];
        for (rest, stream) in rests.iter_mut().zip(Stream::BOTH) {
            let captured = detail.stream(stream);
            if captured.is_cut() {
                *rest = self.rest(client, (instance, task), stream, captured).await?;
            }
        }
        Ok(rests)
    }

    async fn rest(
        &mut self,
        client: &Client,
        of: (InstanceId, TaskId),
        stream: Stream,
        captured: &Captured,
    ) -> Result<Rest, ClientError> {
        let Some(overflow) = captured.overflow else { return Ok(Rest::Cut(CutReason::NotKept)) };
        match self {
            Origin::Nowhere => Ok(Rest::Cut(CutReason::NotFetched)),
            Origin::Here(fetching, directory) => {
                match directory.take(overflow.number, stream) {
                    Some(file) => Ok(Rest::Here(Arc::new(file))),
                    // Another dispatcher's executor ran the task.
                    None => {
                        let total = captured.total_bytes;
                        fetching.fetch(client, of, stream, total).await
                    }
                }
            }
            Origin::Executors(fetching) => {
                fetching.fetch(client, of, stream, captured.total_bytes).await
            }
        }
    }
}

/// Fetches the rest of streams from the executors that keep it.
pub(crate) struct Fetching {
    level: Level,
    /// Where it is stored until it is passed on, made when it is needed; else
    /// in the temporary directory.
    parent: Option<PathBuf>,
    directory: Option<OverflowDirectory>,
    /// Longer streams are not wanted.
    bytes_max: u64,
    /// Executors that were not reached are not tried again.
    unreachable: BTreeSet<Peer>,
    /// How often in a row nobody answered through a relay, by its name.
    silent: BTreeMap<String, u32>,
}

impl Fetching {
    /// Fetches streams of at most `bytes_max` to a directory in `parent`, or in
    /// the temporary directory.
    pub(crate) fn new(level: Level, parent: Option<PathBuf>, bytes_max: u64) -> Fetching {
        let (unreachable, silent) = (BTreeSet::new(), BTreeMap::new());
        Fetching { level, parent, directory: None, bytes_max, unreachable, silent }
    }

    async fn fetch(
        &mut self,
        client: &Client,
        (instance, task): (InstanceId, TaskId),
        stream: Stream,
        total_bytes: u64,
    ) -> Result<Rest, ClientError> {
        let cut = |reason| Ok(Rest::Cut(reason));
        if total_bytes > self.bytes_max {
            return cut(CutReason::TooLong);
        }
        let (ticket, access, number) = match client.reach_output(instance, task, stream).await {
            Ok(found) => found,
            Err(ClientError::Refused(Refusal::Access(AccessError::Below(relay)))) => {
                let task = TaskKey { instance, task };
                return self.fetch_below(client, relay, task, stream, total_bytes).await;
            }
            Err(ClientError::Refused(Refusal::Access(AccessError::ExecutorGone))) => {
                return cut(CutReason::ExecutorGone);
            }
            Err(ClientError::Refused(_)) => return cut(CutReason::Removed),
            Err(error) => return Err(error),
        };
        let fingerprint = access.serves.fingerprint.as_slice().try_into().ok();
        let peer = Peer { address: access.serves.address, fingerprint };
        if peer.address.is_empty() {
            return cut(CutReason::ExecutorGone);
        }
        if self.unreachable.contains(&peer) {
            return cut(CutReason::Unreachable);
        }
        let Ok((own, file)) = self.make_file(stream) else { return cut(CutReason::Unreadable) };
        let id = output_id(instance, task, stream, number);
        let visitor = Visitor::new(self.level, VisitPurpose::Output, id, &ticket);
        let size = Some(total_bytes);
        let piece = Piece { object: id, offset: 0, length: size, size };
        let landing = Landing::new(Arc::new(file), 0, |_| {});
        match visitor.fetcher().fetch(&peer, &piece, &landing).await {
            Ok(bytes) if bytes == total_bytes => Ok(Rest::Here(Arc::new(own))),
            Ok(_) => cut(CutReason::Short),
            Err(PeerError::Gone) => cut(CutReason::Removed),
            Err(PeerError::DiskFull(_) | PeerError::Local(_)) => cut(CutReason::Unreadable),
            Err(PeerError::Unreachable { .. }) => {
                self.unreachable.insert(peer);
                cut(CutReason::Unreachable)
            }
            Err(PeerError::Lost { .. }) => cut(CutReason::Unreachable),
            Err(_) => cut(CutReason::Removed),
        }
    }

    /// Fetches a stream through a relay.
    async fn fetch_below(
        &mut self,
        client: &Client,
        relay: String,
        task: TaskKey,
        stream: Stream,
        total_bytes: u64,
    ) -> Result<Rest, ClientError> {
        let silences = self.silent.get(&relay).copied().unwrap_or_default();
        if silences >= SILENCES_MAX {
            return Ok(Rest::Cut(CutReason::Unreachable));
        }
        let Ok((own, file)) = self.make_file(stream) else {
            return Ok(Rest::Cut(CutReason::Unreadable));
        };
        Ok(match parts(client, task, stream, file, total_bytes).await? {
            None => {
                self.silent.remove(&relay);
                Rest::Here(Arc::new(own))
            }
            Some(reason) => {
                if reason == CutReason::Unreachable {
                    self.silent.insert(relay, silences + 1);
                }
                Rest::Cut(reason)
            }
        })
    }

    fn make_file(&mut self, stream: Stream) -> std::io::Result<(OwnFile, File)> {
        let directory = match &self.directory {
            Some(directory) => directory,
            None => {
                let parent = match &self.parent {
                    Some(parent) => parent.clone(),
                    None => std::env::temp_dir(),
                };
                std::fs::create_dir_all(&parent)?;
                self.directory.insert(OverflowDirectory::create(&parent)?)
            }
        };
        let path = directory.file(directory.next_number(), stream);
        let file = File::options().read(true).write(true).create_new(true).open(&path)?;
        Ok((OwnFile::new(path), file))
    }
}

/// Reads a stream of a task below a relay into a file, part by part. Says why it is not
/// whole.
async fn parts(
    client: &Client,
    task: TaskKey,
    stream: Stream,
    file: File,
    total_bytes: u64,
) -> Result<Option<CutReason>, ClientError> {
    let file = Arc::new(file);
    let part = TAIL_PART_BYTES_MAX as u64;
    let mut starts = (0..total_bytes).step_by(TAIL_PART_BYTES_MAX);
    // What is under way ends with this.
    let mut reading = JoinSet::new();
    loop {
        while reading.len() < PARTS_AT_ONCE_MAX
            && let Some(from) = starts.next()
        {
            let (client, file) = (client.clone(), Arc::clone(&file));
            let count = part.min(total_bytes - from);
            let question = OutputQuestion { task, stream, from, count };
            reading.spawn(async move {
                let tail = client.read_output(question).await?;
                if tail.state == TailState::Gone {
                    return Ok(Some(CutReason::Removed));
                }
                if tail.bytes.len() as u64 != count {
                    return Ok(Some(CutReason::Short));
                }
                let written = file.write_all_at(&tail.bytes, from);
                Ok(written.is_err().then_some(CutReason::Unreadable))
            });
        }
        let Some(done) = reading.join_next().await else { return Ok(None) };
        let told: Result<Option<CutReason>, ClientError> =
            done.unwrap_or(Ok(Some(CutReason::Unreadable)));
        match told {
            Ok(None) => {}
            Ok(reason) => return Ok(reason),
            Err(ClientError::Refused(Refusal::Access(AccessError::ExecutorGone))) => {
                return Ok(Some(CutReason::ExecutorGone));
            }
            Err(ClientError::Refused(Refusal::Access(AccessError::Unreached { .. }))) => {
                return Ok(Some(CutReason::Unreachable));
            }
            Err(ClientError::Refused(_)) => return Ok(Some(CutReason::Removed)),
            Err(error) => return Err(error),
        }
    }
}

impl Drop for Fetching {
    fn drop(&mut self) {
        if let Some(directory) = self.directory.take() {
            directory.close();
            if let Some(parent) = &self.parent {
                // The parent was made for this, unless something else is in it.
                let _ = std::fs::remove_dir(parent);
            }
        }
    }
}

/// A directory for output that is too long to be sent, within `scratch`.
pub(crate) fn make_overflow(scratch: &Path) -> Result<OverflowDirectory, Exit> {
    OverflowDirectory::create(scratch).map_err(|error| {
        let scratch = scratch.display();
        Exit::usage(format!("cannot make a directory for long output in {scratch}: {error}"))
    })
}
