//! The Unix socket of a gang on one node: processes of the gang ask their executor there for
//! processes on other nodes, and processes that it starts give it their streams.
//!
//! The first message has 17 bytes:
//!
//! | | content | bytes |
//! |---|---|---|
//! | somebody who asks | 1, the gang's token | 1 + 16 |
//! | a process that begins | 2, its key; with the other ends of its standard streams | 1 + 16 |
//!
//! Who asks goes on with the lengths of host, folder and command (3 × 4, little-endian) and
//! these; after that both sides send the frames of [`remote`].

use super::{Arrived, Asked, FromGangs, Gathering, Keys};
use falkon_core::gang::{GangKey, GangToken};
use falkon_data::peer::remote::{
    AskError, Frame, FrameReader, FrameWriter, RemoteStart, START_BYTES_MAX, Started, forward,
    in_begin_time, serve, unix_halves,
};
use falkon_data::peer::{Fetcher, Peer};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

/// The token of a gang, and the key of a process that begins.
pub(super) const KEY_BYTES: usize = 16;

/// The first message.
pub(super) const HELLO_BYTES: usize = 1 + KEY_BYTES;

/// How the first message of somebody who asks begins.
const ASK: u8 = 1;

/// How the first message of a process begins that begins.
pub(super) const BEGIN: u8 = 2;

/// How long the first message may take, in milliseconds.
const HELLO_MS_MAX: u64 = 20_000;

/// A pause when no connection can be accepted, in milliseconds: usually there are too many open
/// files, and some must be closed first.
const ACCEPT_PAUSE_MS: u64 = 50;

/// The longest name of a host.
const HOST_BYTES_MAX: usize = 1024;

/// What is known here of a gang's nodes.
pub(super) struct Nodes {
    pub(super) key: GangKey,
    pub(super) token: GangToken,
    /// This node's place among them.
    pub(super) own: usize,
    /// Their names, and where their executors listen, if they do.
    pub(super) hosts: Vec<(String, Option<Peer>)>,
    /// `None` if this executor reaches no other.
    pub(super) fetcher: Option<Fetcher>,
    pub(super) keys: Keys,
    pub(super) say: mpsc::Sender<FromGangs>,
    /// Where it is gathered what their processes used.
    pub(super) gathering: Gathering,
}

/// Accepts connections for as long as this is polled.
pub(super) async fn listen(listener: UnixListener, nodes: Arc<Nodes>) {
    let mut sessions = tokio::task::JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let nodes = nodes.clone();
                    // What goes wrong with one is reported to it.
                    sessions.spawn(async move { drop(greet(stream, &nodes).await) });
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(ACCEPT_PAUSE_MS)).await,
            },
            Some(_) = sessions.join_next() => {}
        }
    }
}

async fn greet(stream: UnixStream, nodes: &Nodes) -> io::Result<()> {
    let peer = stream.peer_cred()?;
    if peer.uid() != rustix::process::getuid().as_raw() {
        return Ok(());
    }
    let limit = Duration::from_millis(HELLO_MS_MAX);
    let (hello, pipes) = timeout(limit, first(&stream)).await??;
    let [kind, key @ ..] = hello;
    match kind {
        BEGIN => {
            let (Ok(pipes), Some(pid)) = (<[OwnedFd; 3]>::try_from(pipes), peer.pid()) else {
                return Ok(());
            };
            if let Some(arrived) = nodes.keys.take(&key) {
                // If nobody waits for it any more, it is about to be ended.
                let _ = arrived.send(Arrived { pid, pipes });
            }
            Ok(())
        }
        ASK => {
            let (mut reader, mut writer) = unix_halves(stream);
            if !constant_time_eq::constant_time_eq_16(&key, &nodes.token.0) {
                let reason = "the token is not this gang's".to_owned();
                return writer.put(&Frame::Refused(reason)).await;
            }
            match wanted(&mut reader).await? {
                Ok(wanted) => answer(reader, writer, wanted, nodes).await,
                Err(reason) => writer.put(&Frame::Refused(reason)).await,
            }
        }
        _ => Ok(()),
    }
}

/// Takes the first message, and the file descriptors that came with it.
async fn first(stream: &UnixStream) -> io::Result<([u8; HELLO_BYTES], Vec<OwnedFd>)> {
    loop {
        stream.readable().await?;
        let taken = stream.try_io(Interest::READABLE, || {
            let mut bytes = [0; HELLO_BYTES];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
            let parts = &mut [IoSliceMut::new(&mut bytes)];
            let received = rustix::net::recvmsg(stream.as_fd(), parts, &mut ancillary, flags)?;
            let fds = ancillary.drain().filter_map(|message| match message {
                RecvAncillaryMessage::ScmRights(fds) => Some(fds),
                _ => None,
            });
            let fds = fds.flatten().collect();
            match received.bytes {
                HELLO_BYTES => Ok((bytes, fds)),
                0 => Err(io::ErrorKind::UnexpectedEof.into()),
                _ => Err(io::ErrorKind::InvalidData.into()),
            }
        });
        match taken {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            taken => return taken,
        }
    }
}

/// A process that is asked for.
struct Wanted {
    host: String,
    folder: Vec<u8>,
    command: Vec<u8>,
}

/// What is asked for, or why that cannot be.
async fn wanted(reader: &mut FrameReader) -> io::Result<Result<Wanted, String>> {
    let lengths = reader.take(12).await?;
    let length = |at: usize| {
        let mut word = [0; 4];
        word.copy_from_slice(&lengths[at..at + 4]);
        u32::from_le_bytes(word) as usize
    };
    let [host, folder, command] = [length(0), length(4), length(8)];
    if host > HOST_BYTES_MAX || folder.saturating_add(command) > START_BYTES_MAX {
        return Ok(Err(TOO_LONG.to_owned()));
    }
    let host = String::from_utf8_lossy(&reader.take(host).await?).into_owned();
    let (folder, command) = (reader.take(folder).await?, reader.take(command).await?);
    Ok(Ok(Wanted { host, folder, command }))
}

const TOO_LONG: &str = "the command is too long";

/// Asks an executor at the other end of a socket for a process; frames follow.
pub(super) async fn ask(
    stream: UnixStream,
    token: &[u8; KEY_BYTES],
    host: &str,
    folder: &Path,
    command: &[u8],
) -> Result<(FrameReader, FrameWriter), AskError> {
    use std::os::unix::ffi::OsStrExt;
    let folder = folder.as_os_str().as_bytes();
    if host.len() > HOST_BYTES_MAX || folder.len() + command.len() > START_BYTES_MAX {
        return Err(AskError::Refused(TOO_LONG.to_owned()));
    }
    let (reader, mut writer) = unix_halves(stream);
    let hello = [&[ASK], &token[..]].concat();
    let lengths = [host.len(), folder.len(), command.len()];
    // They were just compared with what is far less.
    let lengths = lengths.map(|length| (length as u32).to_le_bytes()).concat();
    let rest = [&lengths[..], host.as_bytes(), folder, command].concat();
    let sent = async {
        writer.put_bytes(&hello).await?;
        writer.put_bytes(&rest).await
    };
    // An executor that refused at once has sent the reason, and reads no more.
    let _ = sent.await;
    Ok((reader, writer))
}

/// Has the process started on the node that it is for.
async fn answer(
    reader: FrameReader,
    mut writer: FrameWriter,
    wanted: Wanted,
    nodes: &Nodes,
) -> io::Result<()> {
    let Wanted { host, folder, command } = wanted;
    let Some(start) = RemoteStart::new(nodes.key, &nodes.token, folder, command) else {
        return writer.put(&Frame::Refused(TOO_LONG.to_owned())).await;
    };
    let Some(at) = nodes.hosts.iter().position(|(name, _)| *name == host) else {
        let reason = match nodes.hosts.as_slice() {
            [] => "the gang has no nodes".to_owned(),
            [(only, _)] => format!("`{host}` is not a node of this gang, which has only {only}"),
            [(first, _), .., (last, _)] => format!(
                "`{host}` is not a node of this gang, whose {} nodes from {first} to {last} are \
                 in $FALKON_NODE_FILE",
                nodes.hosts.len()
            ),
        };
        return writer.put(&Frame::Refused(reason)).await;
    };
    if at == nodes.own {
        return serve(reader, writer, begin(start, &nodes.say), false).await;
    }
    let (Some(peer), Some(fetcher)) = (&nodes.hosts[at].1, &nodes.fetcher) else {
        let reason = "its executor serves no others: they log why when they start".to_owned();
        return writer.put(&Frame::Refused(reason)).await;
    };
    let lost =
        |error: &dyn std::fmt::Display| format!("the executor there is out of reach: {error}");
    let starter = match fetcher.start_remote(peer, &start).await {
        Ok(starter) => starter,
        Err(error) => return writer.put(&Frame::Refused(lost(&error))).await,
    };
    // A gang has far fewer nodes than that.
    let mut asked = nodes.gathering.ask(at as u32);
    match forward((reader, &mut writer), starter, |told| asked.hear(told)).await {
        Err((error, true)) => writer.put(&Frame::Refused(lost(&error))).await,
        Err((error, false)) => Err(error),
        Ok(()) => Ok(()),
    }
}

/// Has this executor start a process, within a time.
async fn begin(start: RemoteStart, say: &mpsc::Sender<FromGangs>) -> Result<Started, String> {
    let ends = || "the executor ends".to_owned();
    let (answer, started) = oneshot::channel();
    let asked = Asked { start, answer, is_for_other: false };
    say.send(FromGangs::Start(asked)).await.map_err(|_| ends())?;
    in_begin_time(started).await.unwrap_or_else(|| Err(ends()))
}
