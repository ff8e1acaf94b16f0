//! Processes that one member of a gang has another one start, with their streams.
//!
//! On a connection of its own. All numbers are little-endian:
//!
//! | | content | bytes |
//! |---|---|---|
//! | request | all ones but the lowest bit, 1 for usage or 0, bytes of the start | 16 + 8 + 8 |
//! | start | instance, task, failures, losses, proof, lengths of folder and command, these | 8 + 8 + 4 + 4 + 32 + 4 + 4 + … |
//! | frames | kind, stream, length, what it has | 1 + 1 + 4 + … |
//!
//! | kind | from | stream | has |
//! |---|---|---|---|
//! | 0 alive | both | 0 | nothing: the other side is there |
//! | 1 data | both | 0 to the process, 1 and 2 from it | bytes |
//! | 2 end | both | likewise | nothing: no more of it follows |
//! | 3 taken | both | likewise | a number (4 bytes): so much data was passed on |
//! | 4 signal | asker | 0 | a signal (1 byte) for the process and its group |
//! | 5 exited | starter | 0 for a status, 1 for a signal | it (1 byte) |
//! | 6 refused | starter | 0 | why the process was not started, or is lost |
//! | 7 used | starter | 0 | nodes with what processes of the gang used there |
//! | 8 unwanted | asker | 0 | nothing: the starter ends the process, and then sends 7 and the last frame |
//!
//! A node of 7 is its index in the gang (4 bytes), a byte with 1 if usage follows and 2 if some is
//! missing, five numbers (8 bytes each): microseconds in user mode and in the kernel, the most
//! memory, bytes read, bytes written; and how many ranks were seen there (4 bytes), each with its
//! number (4 bytes) and its own five. A node with many comes in parts.
//!
//! Releases of protocol 8 know neither 7 nor 8. An asker that does has 1 in its request, which those
//! pass over. A starter that does sends an empty 7 first, and the usage that it hands over before
//! the last frame; the asker may send it 8 then.
//!
//! Neither side sends more of a stream than [`WINDOW_BYTES`] before the other one has passed it
//! on, so whoever does not read its streams holds up nothing else. The asker closes the
//! connection to end the process, and the starter ends it when it hears nothing for
//! [`SILENCE_MS_MAX`]. At level `authenticate`, a code follows the start and each frame.
//!
//! The proof is a hash of the start under the gang's token, which travels between a dispatcher
//! and its executors alone. On its own node, a process of the gang asks its executor with the
//! same frames, over a Unix socket.

mod ask;
mod forward;
mod frame;
mod serve;

pub use ask::{AskError, Standard, attend};
pub use forward::{Told, forward};
pub use frame::{Frame, FrameReader, FrameWriter, RemoteEnd, RemoteStream, unix_halves};
pub use serve::{RemoteEnded, Started, serve};

use super::connection::Writer;
use super::fetch::{Fetcher, Peer};
use super::receive::Reader;
use super::requests::{FromPeers, Shared};
use super::sender::Sender;
use super::silence::in_time;
use super::wire::{REMOTE, Request};
use super::{BUFFER_BYTES, PeerError};
use falkon_core::gang::{GangKey, GangToken};
use falkon_core::result::Tries;
use falkon_core::task::{InstanceId, TaskId};
use std::io;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// Bytes of a stream that may be under way, and not passed on.
pub const WINDOW_BYTES: usize = 256 << 10;

/// Bytes of a stream in one frame.
pub(crate) const PART_BYTES_MAX: usize = 32 << 10;

/// How long a process may take to begin, in milliseconds: a node may get to know of the gang
/// after others, and its file systems may be slow.
const BEGIN_MS_MAX: u64 = 60_000;

/// Frames that wait to be sent.
const FRAMES_MAX: usize = 8;

/// How long a process that nobody wants any more may take to end, in milliseconds, before its
/// usage is given up.
const UNWANTED_MS_MAX: u64 = 4_000;

/// The offset of a request whose asker takes usage in.
const TAKES_USAGE: u64 = 1;

/// The folder and the command of a process, together.
pub const START_BYTES_MAX: usize = 192 << 10;
const _: () = assert!(START_BYTES_MAX + FIXED_BYTES <= BUFFER_BYTES);

/// A start but for its texts.
const FIXED_BYTES: usize = 64;

/// Where the proof lies.
const PROOF: std::ops::Range<usize> = 24..56;

/// For deriving the key of proofs.
const PROOF_CONTEXT: &str = "falkon 2026 start of a process of a gang";

/// A process to start.
#[derive(Clone, PartialEq, Eq)]
pub struct RemoteStart {
    /// The gang that it is of.
    pub key: GangKey,
    /// The working directory, if there is one of that name.
    pub folder: Vec<u8>,
    /// The command, for a shell.
    pub command: Vec<u8>,
    proof: [u8; 32],
}

impl RemoteStart {
    /// A process of a gang, whose token is known; `None` if its texts are too long.
    #[must_use]
    pub fn new(
        key: GangKey,
        token: &GangToken,
        folder: Vec<u8>,
        command: Vec<u8>,
    ) -> Option<RemoteStart> {
        if folder.len().checked_add(command.len())? > START_BYTES_MAX {
            return None;
        }
        let mut start = RemoteStart { key, folder, command, proof: [0; 32] };
        start.proof = start.prove(token);
        Some(start)
    }

    /// Whether whoever asks for it knows the gang's token.
    #[must_use]
    pub fn is_proved(&self, token: &GangToken) -> bool {
        constant_time_eq::constant_time_eq_32(&self.prove(token), &self.proof)
    }

    fn prove(&self, token: &GangToken) -> [u8; 32] {
        let mut bytes = self.encode();
        bytes[PROOF].fill(0);
        let key = blake3::derive_key(PROOF_CONTEXT, &token.0);
        *blake3::keyed_hash(&key, &bytes).as_bytes()
    }

    fn encode(&self) -> Vec<u8> {
        let GangKey { instance, task, tries } = self.key;
        let mut bytes = Vec::with_capacity(FIXED_BYTES + self.folder.len() + self.command.len());
        bytes.extend_from_slice(&instance.0.to_le_bytes());
        bytes.extend_from_slice(&task.0.to_le_bytes());
        bytes.extend_from_slice(&tries.failures.to_le_bytes());
        bytes.extend_from_slice(&tries.losses.to_le_bytes());
        bytes.extend_from_slice(&self.proof);
        // Both are shorter than START_BYTES_MAX.
        bytes.extend_from_slice(&(self.folder.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&(self.command.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&self.folder);
        bytes.extend_from_slice(&self.command);
        bytes
    }

    /// `None` for what is no start.
    fn decode(bytes: &[u8]) -> Option<RemoteStart> {
        let (fixed, texts) = bytes.split_first_chunk::<FIXED_BYTES>()?;
        let number = |at: usize| {
            let mut word = [0; 4];
            word.copy_from_slice(&fixed[at..at + 4]);
            u32::from_le_bytes(word)
        };
        let long = |at: usize| u64::from(number(at)) | u64::from(number(at + 4)) << 32;
        let tries = Tries { failures: number(16), losses: number(20) };
        let key = GangKey { instance: InstanceId(long(0)), task: TaskId(long(8)), tries };
        let mut proof = [0; 32];
        proof.copy_from_slice(&fixed[PROOF]);
        let (folder, command) = (number(56) as usize, number(60) as usize);
        if folder.checked_add(command)? != texts.len() {
            return None;
        }
        let (folder, command) = texts.split_at(folder);
        Some(RemoteStart { key, folder: folder.to_vec(), command: command.to_vec(), proof })
    }
}

impl std::fmt::Debug for RemoteStart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RemoteStart").field("key", &self.key).finish_non_exhaustive()
    }
}

impl Fetcher {
    /// Has an executor start a process. Frames follow in both directions; to drop the halves
    /// ends the process.
    ///
    /// # Errors
    /// [`PeerError`].
    pub async fn start_remote(
        &self,
        peer: &Peer,
        start: &RemoteStart,
    ) -> Result<(FrameReader, FrameWriter), PeerError> {
        let mut connection = self.connect(peer).await?;
        let message = start.encode();
        let length = message.len() as u64;
        let mut request = Vec::new();
        let asked = Request { object: REMOTE, offset: TAKES_USAGE, length: Some(length) };
        connection.writer.encode(&asked, &mut request);
        let sent = async {
            in_time(connection.writer.write(&request)).await?;
            in_time(connection.writer.say(&message)).await
        };
        sent.await.map_err(|error: io::Error| PeerError::Unreachable {
            peer: peer.address.clone(),
            reason: error.to_string(),
        })?;
        Ok((FrameReader::of_peer(connection.reader), FrameWriter::of_peer(connection.writer)))
    }
}

/// Waits for a process to begin, for at most [`BEGIN_MS_MAX`]; `None` if nobody answers.
pub async fn in_begin_time(
    started: oneshot::Receiver<Result<Started, String>>,
) -> Option<Result<Started, String>> {
    match timeout(Duration::from_millis(BEGIN_MS_MAX), started).await {
        Ok(started) => started.ok(),
        Err(_) => Some(Err(format!("it did not start within {} s", BEGIN_MS_MAX / 1000))),
    }
}

/// Another member of a gang has a process started here, and its streams carried. An error is
/// that of the connection.
pub(super) async fn receive(
    mut reader: Reader,
    writer: Sender,
    request: &Request,
    shared: &Shared,
) -> io::Result<()> {
    let length = request.length.and_then(|length| usize::try_from(length).ok());
    let length = length.filter(|length| *length <= START_BYTES_MAX + FIXED_BYTES);
    let bytes = in_time(reader.take_vec(length.ok_or(io::ErrorKind::InvalidData)?)).await?;
    let is_genuine = in_time(reader.is_genuine(&bytes)).await?;
    let start = RemoteStart::decode(&bytes).filter(|_| is_genuine);
    let start = start.ok_or(io::ErrorKind::InvalidData)?;
    let Sender { stream, seal, waiting: _ } = writer;
    let writer = FrameWriter::of_peer(Writer { stream, seal });
    let starting = async {
        let (answer, started) = oneshot::channel();
        let asked = shared.asks.send(FromPeers::Remote { start, answer }).await;
        let ends = || "the executor ends".to_owned();
        asked.map_err(|_| ends())?;
        in_begin_time(started).await.unwrap_or_else(|| Err(ends()))
    };
    let tells_usage = request.offset == TAKES_USAGE;
    serve(FrameReader::of_peer(reader), writer, starting, tells_usage).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(folder: &[u8], command: &[u8]) -> RemoteStart {
        let tries = Tries { failures: 1, losses: 2 };
        let key = GangKey { instance: InstanceId(1 << 40), task: TaskId(5), tries };
        RemoteStart::new(key, &GangToken([7; 16]), folder.into(), command.into()).unwrap()
    }

    #[test]
    fn a_start_reads_back_and_proves_that_the_token_is_known() {
        for start in [start(b"", b""), start(b"/tmp", b"echo x"), start(b"/", &[255; 1000])] {
            let bytes = start.encode();
            let read = RemoteStart::decode(&bytes).unwrap();
            assert_eq!(read, start);
            assert!(read.is_proved(&GangToken([7; 16])));
            assert!(!read.is_proved(&GangToken([8; 16])));
            for at in 0..bytes.len() {
                let mut changed = bytes.clone();
                changed[at] ^= 1;
                let read = RemoteStart::decode(&changed);
                assert!(read.is_none_or(|read| !read.is_proved(&GangToken([7; 16]))), "{at}");
            }
            assert_eq!(RemoteStart::decode(&bytes[..bytes.len() - 1]), None);
        }
    }

    #[test]
    fn a_command_that_is_too_long_is_refused_before_it_is_sent() {
        let start = |bytes| {
            let tries = Tries::default();
            let key = GangKey { instance: InstanceId(1), task: TaskId(0), tries };
            RemoteStart::new(key, &GangToken([0; 16]), vec![b'x'], vec![b'x'; bytes])
        };
        assert!(start(START_BYTES_MAX - 1).is_some());
        assert!(start(START_BYTES_MAX).is_none());
    }
}
