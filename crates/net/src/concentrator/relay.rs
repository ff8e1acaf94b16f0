//! The process that is a concentrator.

use super::arrivals::{Arrival, Arrivals};
use super::frames::{Frames, OutFrame};
use super::upstream::Upstream;
use super::{Down, PASSED_BYTES, PULSE, Up};
use crate::secure::{
    AcceptError, Acceptor, FrameReader, FrameWriter, RefusedKind, Role, Session,
    WRITE_QUEUE_BYTES_MAX, plain,
};
use falkon_core::dispatch::ConnectionId;
use falkon_wire::codec::Wire;
use falkon_wire::message::FromExecutor;
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as BlockingStream;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::{AsyncWriteExt, WriteHalf};
use tokio::net::{TcpStream, UnixStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

/// No heartbeat is longer.
const HEARTBEAT_BYTES_MAX: usize = 32;

/// Why a concentrator could not go on. Its dispatcher tells that it has ended.
#[derive(Debug, thiserror::Error)]
enum RelayError {
    /// The process was not started by a dispatcher.
    #[error("a concentrator is started by a dispatcher, not by hand")]
    NoDispatcher,
    /// The system refused something.
    #[error("a concentrator cannot continue: {0}")]
    System(#[from] io::Error),
}

/// Runs a concentrator until its dispatcher is gone.
pub fn concentrator_main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let done = runtime.map_err(RelayError::System).and_then(|runtime| runtime.block_on(relay()));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The error stream may be closed.
            let _ = io::Write::write_fmt(&mut io::stderr(), format_args!("falkon: {error}\n"));
            ExitCode::FAILURE
        }
    }
}

/// The dispatcher's end of a connection, as the link's reader sees it.
#[derive(Debug)]
struct Peer {
    /// Closed when the connection is to end.
    tell: Arc<Frames>,
    hang_up: Option<oneshot::Sender<()>>,
}

impl Peer {
    fn hang_up(mut self) {
        if let Some(hang_up) = self.hang_up.take() {
            let _ = hang_up.send(());
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.tell.close();
    }
}

/// The state that all connections share.
#[derive(Debug)]
struct Shared {
    acceptor: Acceptor,
    upstream: Upstream,
    peers: Mutex<HashMap<ConnectionId, Peer>>,
    /// Handshakes that wait for the answer whether an instance or a user exists.
    asking: Mutex<HashMap<ConnectionId, oneshot::Sender<bool>>>,
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn relay() -> Result<(), RelayError> {
    // The dispatcher says when to end, and ends connections properly before.
    let _ignored = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()]
        .map(signal)
        .into_iter()
        .collect::<io::Result<Vec<_>>>()?;
    let link = BlockingStream::from(duplicate(io::stdin())?);
    let arrivals = Arrivals::over(duplicate(io::stdout())?)?;
    // Standard input is no connected socket if the process was started by hand.
    link.peer_addr().map_err(|_| RelayError::NoDispatcher)?;
    link.set_nonblocking(true)?;
    let (read, write) = tokio::io::split(UnixStream::from_std(link)?);
    let (mut reader, _) = plain(tokio::io::join(read, tokio::io::empty()));
    let Ok(Some(mut first)) = reader.read_batch().await else { return Ok(()) };
    let acceptor = first.next().and_then(Acceptor::from_bytes).ok_or(RelayError::NoDispatcher)?;
    let shared = Arc::new(Shared {
        acceptor,
        upstream: Upstream::default(),
        peers: Mutex::default(),
        asking: Mutex::default(),
    });
    let mut hearing = Hearing::default();
    for frame in first {
        hearing.take(&shared, frame)?;
    }
    tokio::select! {
        done = hear(&shared, reader, hearing) => done,
        done = tell(&shared, write) => done,
        done = receive(&shared, arrivals) => done,
        () = pulse(&shared) => Ok(()),
    }
}

fn duplicate(descriptor: impl std::os::fd::AsFd) -> io::Result<OwnedFd> {
    descriptor.as_fd().try_clone_to_owned()
}

async fn pulse(shared: &Shared) {
    let mut held = 0;
    loop {
        shared.upstream.put(&Up::Pulse);
        let now = locked(&shared.peers).len();
        if std::mem::replace(&mut held, now) != now {
            give_memory_back();
        }
        tokio::time::sleep(PULSE).await;
    }
}

/// Gives the system what thousands of handshakes leave between what stays of them.
fn give_memory_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes no pointer, and glibc locks what it changes.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Writes what connections have to say to the dispatcher.
async fn tell(shared: &Shared, mut link: WriteHalf<UnixStream>) -> Result<(), RelayError> {
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        shared.upstream.next(&mut bytes).await;
        if link.write_all(&bytes).await.is_err() {
            return Ok(());
        }
    }
}

/// Takes in the dispatcher's items until it is gone.
async fn hear(
    shared: &Shared,
    mut reader: FrameReader,
    mut hearing: Hearing,
) -> Result<(), RelayError> {
    while let Ok(Some(batch)) = reader.read_batch().await {
        for frame in batch {
            hearing.take(shared, frame)?;
        }
    }
    Ok(())
}

/// The receiver of the next frame, and whether the frame is to be sealed.
#[derive(Debug, Default)]
struct Hearing(Option<(ConnectionId, bool)>);

impl Hearing {
    fn take(&mut self, shared: &Shared, frame: &[u8]) -> Result<(), RelayError> {
        if let Some((connection, sealed)) = self.0.take() {
            // A connection that is over has announced its end.
            if let Some(peer) = locked(&shared.peers).get(&connection) {
                peer.tell.push(frame, sealed);
            }
            return Ok(());
        }
        match Down::decode(frame).ok_or(RelayError::NoDispatcher)? {
            Down::Tell { connection, sealed } => self.0 = Some((connection, sealed)),
            Down::End { connection } => {
                // The writer closes the connection when it has passed
                // everything on.
                locked(&shared.peers).remove(&connection);
            }
            Down::HangUp { connection } => {
                if let Some(peer) = locked(&shared.peers).remove(&connection) {
                    peer.hang_up();
                }
            }
            Down::Exists { connection, yes } => {
                if let Some(asking) = locked(&shared.asking).remove(&connection) {
                    let _ = asking.send(yes);
                }
            }
        }
        Ok(())
    }
}

/// Takes over connections that the dispatcher has accepted.
async fn receive(shared: &Arc<Shared>, arrivals: Arrivals) -> Result<(), RelayError> {
    loop {
        let Arrival { connection, stream } = arrivals.next().await?;
        let stream = stream.ok_or_else(|| {
            io::Error::other(
                "no descriptor is left for a connection: raise the limit of open files",
            )
        });
        let stream = stream.and_then(TcpStream::from_std);
        let stream = stream.and_then(|stream| Ok((stream.peer_addr()?, stream)));
        let (from, stream) = match stream {
            Ok(stream) => stream,
            Err(error) => {
                shared.refuse(connection, RefusedKind::Own, &error);
                continue;
            }
        };
        let Some(entrant) = shared.acceptor.arrive(from.ip()).await else {
            let error = AcceptError::Busy;
            shared.refuse(connection, RefusedKind::of(&error), &error);
            continue;
        };
        let shared = Arc::clone(shared);
        tokio::spawn(async move {
            let known = |role| shared.exists(connection, role);
            // What a handshake needs is many times larger than what stays.
            match Box::pin(shared.acceptor.accept_at(entrant, stream, known)).await {
                Ok(session) => shared.hold(connection, session).await,
                Err(error) => shared.refuse(connection, RefusedKind::of(&error), &error),
            }
        });
    }
}

impl Shared {
    fn refuse(&self, connection: ConnectionId, kind: RefusedKind, why: &dyn fmt::Display) {
        self.upstream.put(&Up::Refused { connection, kind, why: why.to_string() });
    }

    async fn exists(&self, connection: ConnectionId, role: Role) -> bool {
        let (asking, answer) = oneshot::channel();
        locked(&self.asking).insert(connection, asking);
        self.upstream.put(&Up::Asks { connection, role });
        answer.await.unwrap_or(false)
    }

    /// Holds a connection until it is over.
    async fn hold(&self, connection: ConnectionId, session: Session) {
        let Session { role, peer, version, reader, writer, .. } = session;
        // In boxes: what an asynchronous function is given is in its future twice.
        let (mut reader, writer) = (Box::new(reader), Box::new(writer));
        let frames = Arc::new(Frames::default());
        let (hang_up, hung_up) = oneshot::channel();
        let tell = Peer { tell: frames.clone(), hang_up: Some(hang_up) };
        locked(&self.peers).insert(connection, tell);
        self.upstream.put(&Up::Opened { connection, role, version, peer });
        let why = tokio::select! {
            why = self.read(connection, role, &mut reader) => why,
            why = self.write(connection, writer, &frames) => why,
            // A sender that was merely dropped is no request to hang up.
            Ok(()) = hung_up => None,
        };
        locked(&self.peers).remove(&connection);
        self.upstream.put(&Up::Closed { connection, why });
    }

    async fn read(
        &self,
        connection: ConnectionId,
        role: Role,
        reader: &mut FrameReader,
    ) -> Option<String> {
        loop {
            let batch = match reader.read_batch().await {
                Ok(Some(batch)) => batch,
                Ok(None) => return None,
                Err(error) => return Some(error.to_string()),
            };
            let is_heartbeat =
                role == Role::Executor && batch.len() == 1 && batch.clone().all(is_heartbeat);
            self.upstream.said(connection, batch, is_heartbeat).await;
        }
    }

    async fn write(
        &self,
        connection: ConnectionId,
        mut writer: Box<FrameWriter>,
        frames: &Frames,
    ) -> Option<String> {
        let mut passed = 0;
        while let Some(batch) = frames.next().await {
            for OutFrame { frame, sealed } in batch {
                if writer.queued_bytes() + frame.len() > WRITE_QUEUE_BYTES_MAX
                    && let Err(error) = writer.flush().await
                {
                    return Some(error.to_string());
                }
                passed += frame.len() as u64;
                let queued = match sealed {
                    true => writer.queue_sealed_with(|out| out.extend_from_slice(&frame)),
                    false => writer.queue(&frame),
                };
                if let Err(error) = queued {
                    return Some(error.to_string());
                }
            }
            if let Err(error) = writer.flush().await {
                return Some(error.to_string());
            }
            if passed >= PASSED_BYTES {
                self.upstream.put(&Up::Passed { connection, bytes: passed });
                passed = 0;
            }
        }
        // The dispatcher let go: say goodbye properly.
        writer.close().await.err().map(|error| error.to_string())
    }
}

/// Whether a message of an executor says only that it is there.
fn is_heartbeat(frame: &[u8]) -> bool {
    frame.len() <= HEARTBEAT_BYTES_MAX
        && matches!(FromExecutor::from_bytes(frame), Ok(FromExecutor::Update(update)) if update.is_heartbeat())
}
