//! The output of a task beyond the first bytes, which come with its result:
//! kept by the executor that ran it, and read through that, or through the relay
//! above it. A path from outside
//! is never opened, only files that this process made itself.

use super::terminal::whole_file;
use crate::exit::{Exit, say};
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
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Parts of a stream that are read through a relay at once.
const PARTS_AT_ONCE_MAX: usize = 16;
/// Streams in a row of which nobody told anything through a relay before it is asked no more:
/// each takes as long as a relay may take for an answer.
const SILENCES_MAX: u32 = 3;
/// The first and the longest pause before somebody who is away is looked for again.
const LOOK_AGAIN_MS: (u64, u64) = (50, 2000);
/// How long somebody is away before that is said.
const AWAY_SAID_MS: u64 = 2000;

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
    /// A relay that leads to it is away, or it is not back since a restart of the dispatcher.
    Away,
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
            CutReason::Away => "away",
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
            CutReason::Away => {
                "the relay that leads to the rest is away: run falkon results when it is back"
            }
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

impl Rest {
    /// Whether it was wanted, and could not be got.
    pub(crate) fn is_lost(&self) -> bool {
        match self {
            Rest::Cut(CutReason::TooLong | CutReason::NotFetched) | Rest::None | Rest::Here(_) => {
                false
            }
            Rest::Cut(
                CutReason::NotKept
                | CutReason::ExecutorGone
                | CutReason::Away
                | CutReason::Unreachable
                | CutReason::Removed
                | CutReason::Short
                | CutReason::Unreadable,
            ) => true,
        }
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
        let (fetching, directory) = match self {
            Origin::Nowhere => return Ok(Rest::Cut(CutReason::NotFetched)),
            Origin::Here(fetching, directory) => (fetching, Some(directory)),
            Origin::Executors(fetching) => (fetching, None),
        };
        let Some(overflow) = captured.overflow else { return Ok(Rest::Cut(CutReason::NotKept)) };
        let total = captured.total_bytes;
        match directory.and_then(|directory| directory.take(overflow.number, stream)) {
            Some(file) => Ok(match whole_file(file.path(), total) {
                Ok(_) => Rest::Here(Arc::new(file)),
                Err(reason) => Rest::Cut(reason),
            }),
            // The executor of another process ran the task.
            None => fetching.fetch(client, of, stream, total).await,
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
    /// Whether relays that are away are waited for.
    away: WhenAway,
}

/// A client's way with output that cannot be read while a relay is away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WhenAway {
    /// It is cut: the result is kept, and can be read again.
    Cut,
    /// It is waited for, as long as the dispatcher expects the relay: the output goes with
    /// the acknowledgement.
    Wait {
        /// Nothing is said about it.
        quiet: bool,
    },
}

/// Waiting for somebody who is away, during one read.
#[derive(Debug)]
struct Looking {
    when: WhenAway,
    since: Option<Instant>,
    pause_ms: u64,
    is_said: bool,
}

impl Looking {
    fn new(when: WhenAway) -> Looking {
        Looking { when, since: None, pause_ms: LOOK_AGAIN_MS.0, is_said: false }
    }

    /// Waits a moment. Returns whether to look again.
    async fn look_again(&mut self, away: &AccessError) -> bool {
        let WhenAway::Wait { quiet } = self.when else { return false };
        let since = *self.since.get_or_insert_with(Instant::now);
        let is_long = since.elapsed() >= Duration::from_millis(AWAY_SAID_MS);
        if is_long && !quiet && !std::mem::replace(&mut self.is_said, true) {
            say(format_args!("long output of a task is waited for: {away}"));
        }
        tokio::time::sleep(Duration::from_millis(self.pause_ms)).await;
        self.pause_ms = (self.pause_ms * 2).min(LOOK_AGAIN_MS.1);
        true
    }

    /// Somebody has answered.
    fn found(&mut self) {
        *self = Looking { is_said: self.is_said, ..Looking::new(self.when) };
    }
}

impl Fetching {
    /// Fetches streams of at most `bytes_max` to a directory in `parent`, or in
    /// the temporary directory.
    pub(crate) fn new(
        level: Level,
        parent: Option<PathBuf>,
        bytes_max: u64,
        away: WhenAway,
    ) -> Fetching {
        let (unreachable, silent) = (BTreeSet::new(), BTreeMap::new());
        Fetching { level, parent, directory: None, bytes_max, unreachable, silent, away }
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
        let mut looking = Looking::new(self.away);
        let (ticket, access, number) = loop {
            match client.reach_output(instance, task, stream).await {
                Ok(found) => break found,
                Err(ClientError::Refused(Refusal::Access(AccessError::Below(relay)))) => {
                    let task = TaskKey { instance, task };
                    return self.fetch_below(client, relay, task, stream, total_bytes).await;
                }
                Err(ClientError::Refused(Refusal::Access(away @ AccessError::Away(_)))) => {
                    if !looking.look_again(&away).await {
                        return cut(CutReason::Away);
                    }
                }
                Err(ClientError::Refused(Refusal::Access(AccessError::ExecutorGone))) => {
                    return cut(CutReason::ExecutorGone);
                }
                Err(ClientError::Refused(_)) => return cut(CutReason::Removed),
                Err(error) => return Err(error),
            }
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
        let looking = Looking::new(self.away);
        Ok(match parts(client, task, stream, (file, total_bytes), looking).await? {
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

/// How reading a part of a stream ended.
enum Part {
    /// It is in the file.
    Read,
    /// It is to be read again from there.
    Away(u64, AccessError),
    Cut(CutReason),
}

/// Reads a stream of a task below a relay into a file, part by part. Says why it is not
/// whole.
async fn parts(
    client: &Client,
    task: TaskKey,
    stream: Stream,
    (file, total_bytes): (File, u64),
    mut looking: Looking,
) -> Result<Option<CutReason>, ClientError> {
    let file = Arc::new(file);
    let part = TAIL_PART_BYTES_MAX as u64;
    let mut starts = (0..total_bytes).step_by(TAIL_PART_BYTES_MAX);
    // Parts that were not read because somebody was away.
    let mut again = Vec::new();
    let mut away = None;
    // What is under way ends with this.
    let mut reading = JoinSet::new();
    loop {
        while away.is_none()
            && reading.len() < PARTS_AT_ONCE_MAX
            && let Some(from) = again.pop().or_else(|| starts.next())
        {
            let (client, file) = (client.clone(), Arc::clone(&file));
            let count = part.min(total_bytes - from);
            let question = OutputQuestion { task, stream, from, count };
            reading.spawn(async move { read_part(&client, &file, question).await });
        }
        match reading.join_next().await {
            Some(done) => match done.unwrap_or(Ok(Part::Cut(CutReason::Unreadable)))? {
                Part::Read => looking.found(),
                Part::Away(from, who) => {
                    again.push(from);
                    away = Some(who);
                }
                Part::Cut(reason) => return Ok(Some(reason)),
            },
            None => match away.take() {
                None => return Ok(None),
                Some(who) if looking.look_again(&who).await => {}
                Some(_) => return Ok(Some(CutReason::Away)),
            },
        }
    }
}

/// Reads a part of a stream into the file. Fails only if the connection to the dispatcher does.
async fn read_part(
    client: &Client,
    file: &File,
    question: OutputQuestion,
) -> Result<Part, ClientError> {
    let (from, count) = (question.from, question.count);
    let tail = match client.read_output(question).await {
        Ok(tail) => tail,
        Err(ClientError::Refused(Refusal::Access(error))) => {
            return Ok(match error {
                AccessError::Away(_) => Part::Away(from, error),
                AccessError::ExecutorGone => Part::Cut(CutReason::ExecutorGone),
                AccessError::Unreached { .. } => Part::Cut(CutReason::Unreachable),
                _ => Part::Cut(CutReason::Removed),
            });
        }
        Err(ClientError::Refused(_)) => return Ok(Part::Cut(CutReason::Removed)),
        Err(error) => return Err(error),
    };
    if tail.state == TailState::Gone {
        return Ok(Part::Cut(CutReason::Removed));
    }
    if tail.bytes.len() as u64 != count {
        return Ok(Part::Cut(CutReason::Short));
    }
    match file.write_all_at(&tail.bytes, from) {
        Ok(()) => Ok(Part::Read),
        Err(_) => Ok(Part::Cut(CutReason::Unreadable)),
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
