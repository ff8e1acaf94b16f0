//! Serving cached objects.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use falkon_core::data::cache::TierId;
use falkon_core::data::object::{Object, ObjectId};
use falkon_core::data::stage::{PartialId, ServeId, WriteError};
use falkon_core::execute::VisitEnd;
use falkon_core::task::Time;
use rustix::fs::sendfile;
use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::timeout;

use super::receive::Reader;
use super::visit::{self, Allowed};
use super::wire::{Answer, REQUEST_BYTES, Request, Status};
use super::{
    ASKED_AHEAD_MAX, BUFFER_BYTES, CONNECTIONS_MAX, IDLE_MS_MAX, SILENCE_MS_MAX, SMALL_BYTES_MAX,
    TURN_BYTES,
};
use crate::cache::{CacheError, DiskCache};
use crate::overflow::OverflowDirectory;
use crate::secure::{Bare, Code, Outgoing, PeerAcceptor};

/// Pause after a failure to accept, in milliseconds: usually there are too many
/// open files, and some must be closed first.
const ACCEPT_PAUSE_MS: u64 = 50;

/// What peers want.
#[derive(Debug)]
pub enum FromPeers {
    /// One asks for an object. It is answered at once.
    Ask {
        /// This conversation.
        serve: ServeId,
        /// What it wants.
        object: ObjectId,
        /// Where the answer goes; dropping it is [`Verdict::Gone`].
        answer: oneshot::Sender<Verdict>,
    },
    /// A conversation that was answered [`Verdict::Serve`] is over.
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
        /// Which; its size is known.
        object: Arc<Object>,
        /// Where it is to be written; dropped if there is no place for it.
        place: oneshot::Sender<(TierId, PartialId)>,
        /// How it ends.
        end: oneshot::Sender<VisitEnd>,
    },
    /// What a visitor puts here is in its place, or is not.
    Written {
        /// Where it was written.
        partial: PartialId,
        /// Whether it is.
        result: Result<(), WriteError>,
    },
    /// A visitor wants an object to be dropped.
    Drop {
        /// The object.
        object: ObjectId,
        /// How it ends.
        end: oneshot::Sender<VisitEnd>,
    },
}

/// Whether an object is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Yes; it must stay in its place until [`FromPeers::Served`].
    Serve,
    /// Not now.
    Busy,
    /// It is on its way here.
    Coming,
    /// It is not here.
    Gone,
}

/// The thread for serving could not be started.
#[derive(Debug, thiserror::Error)]
#[error("cannot serve objects to other executors: {0}")]
pub struct StartError(#[source] pub io::Error);

/// Serves objects from a thread of its own until it is dropped. The thread may
/// wait for the disk without holding anything else up.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What all connections share.
pub(super) struct Shared {
    pub(super) acceptor: PeerAcceptor,
    pub(super) cache: Arc<DiskCache>,
    overflow: Option<OverflowDirectory>,
    pub(super) asks: mpsc::Sender<FromPeers>,
    connections: Semaphore,
    next: AtomicU64,
}

impl Server {
    /// Serves what is in `cache` to the peers that `acceptor` lets in; `asks`
    /// decides about each object. Visitors with a ticket for it read what is in
    /// `overflow`.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(
        listener: std::net::TcpListener,
        acceptor: PeerAcceptor,
        cache: Arc<DiskCache>,
        overflow: Option<OverflowDirectory>,
        asks: mpsc::Sender<FromPeers>,
    ) -> Result<Server, StartError> {
        let address = listener.local_addr().map_err(StartError)?;
        listener.set_nonblocking(true).map_err(StartError)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(StartError)?;
        let (stop, stopped) = oneshot::channel();
        let shared = Arc::new(Shared {
            acceptor,
            cache,
            overflow,
            asks,
            connections: Semaphore::new(CONNECTIONS_MAX),
            next: AtomicU64::new(0),
        });
        let serve = move || {
            runtime.block_on(async move {
                tokio::select! {
                    () = listen(listener, shared) => {}
                    _ = stopped => {}
                }
            });
        };
        let thread = std::thread::Builder::new().name("falkon-serve".to_owned()).spawn(serve);
        Ok(Server { address, stop: Some(stop), thread: Some(thread.map_err(StartError)?) })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It panics only if there is a mistake in it, and has then said so.
            let _ = thread.join();
        }
    }
}

async fn listen(listener: std::net::TcpListener, shared: Arc<Shared>) {
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    loop {
        let Ok((stream, from)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(ACCEPT_PAUSE_MS)).await;
            continue;
        };
        let Some(entrant) = shared.acceptor.arrive(from.ip()).await else { continue };
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let Ok((bare, visitor)) = shared.acceptor.accept(entrant, stream).await else { return };
            // A peer that has proved nothing takes no place of one that has.
            let Ok(_permit) = shared.connections.try_acquire() else { return };
            serve_connection(bare, visitor, &shared).await;
        });
    }
}

/// Serves one connection until it ends, for whatever reason: the peer knows
/// best what it still needs, and asks again or elsewhere.
async fn serve_connection(bare: Bare, visitor: Option<u64>, shared: &Shared) {
    let Bare { incoming, outgoing, check, seal } = bare;
    let mut reader = Reader::new(incoming, check);
    let mut writer = Sender { stream: outgoing, seal, waiting: Vec::new() };
    let mut allowed = Allowed::Cache;
    if let Some(number) = visitor {
        match visit::receive(&mut reader, &mut writer, number, shared).await {
            Some(Allowed::Output(id)) => {
                // Who asked knows best what it still needs.
                let _ = serve_output(&mut reader, &mut writer, id, shared).await;
                return;
            }
            Some(one) => allowed = one,
            None => return,
        }
    }
    let idle = Duration::from_millis(IDLE_MS_MAX);
    let mut asked = VecDeque::with_capacity(ASKED_AHEAD_MAX);
    loop {
        // What has come already is asked for together: whoever decides runs in
        // another thread, and may be slow to have its turn.
        while asked.is_empty() || (reader.has(REQUEST_BYTES) && asked.len() < ASKED_AHEAD_MAX) {
            // What was gathered goes out before anything is waited for.
            if !reader.has(REQUEST_BYTES) && writer.flush().await.is_err() {
                return;
            }
            let Ok(Ok(bytes)) = timeout(idle, reader.take::<REQUEST_BYTES>()).await else { return };
            // The others' conversations are over with this one.
            let Ok(Ok(true)) = timeout(idle, reader.is_genuine(&bytes)).await else {
                return give_up(asked, shared).await;
            };
            let request = Request::decode(&bytes);
            if !matches!(allowed, Allowed::Cache) && allowed != Allowed::Object(request.object) {
                return give_up(asked, shared).await;
            }
            asked.push_back(ask(request, shared).await);
        }
        if let Some(next) = asked.pop_front()
            && next.serve(shared, &mut writer).await.is_err()
        {
            return give_up(asked, shared).await;
        }
    }
}

/// Serves what one task wrote, as often as it is asked for. The file is not
/// among the cache's, so nobody has to decide.
async fn serve_output(
    reader: &mut Reader,
    writer: &mut Sender,
    id: ObjectId,
    shared: &Shared,
) -> io::Result<()> {
    let idle = Duration::from_millis(IDLE_MS_MAX);
    loop {
        let Ok(bytes) = timeout(idle, reader.take::<REQUEST_BYTES>()).await else { return Ok(()) };
        let bytes = bytes?;
        let Ok(genuine) = timeout(idle, reader.is_genuine(&bytes)).await else { return Ok(()) };
        let request = Request::decode(&bytes);
        if !genuine? || request.object != id {
            return Ok(());
        }
        let found = shared.overflow.as_ref().and_then(|overflow| overflow.open(id));
        match found.map(|(file, whole)| (file, whole, request.length_of(whole))) {
            None => writer.answer(Answer::without_body(Status::Gone, 0)).await?,
            Some((_, whole, None)) => {
                writer.answer(Answer::without_body(Status::NoSuchBytes, whole)).await?;
            }
            Some((file, whole, Some(length))) => {
                let answer = Answer { status: Status::Here, whole, length };
                writer.serve(answer, &file, request.offset).await?;
            }
        }
        writer.flush().await?;
    }
}

/// A request about which somebody is deciding.
struct Asked {
    request: Request,
    serve: ServeId,
    verdict: oneshot::Receiver<Verdict>,
}

async fn ask(request: Request, shared: &Shared) -> Asked {
    let serve = ServeId(shared.next.fetch_add(1, Ordering::Relaxed));
    let (answer, verdict) = oneshot::channel();
    let asking = FromPeers::Ask { serve, object: request.object, answer };
    // If nobody decides any more, the verdict does not come, and that is one.
    let _ = shared.asks.send(asking).await;
    Asked { request, serve, verdict }
}

/// Ends the conversations of a connection that has ended.
async fn give_up(asked: VecDeque<Asked>, shared: &Shared) {
    for asked in asked {
        if asked.verdict.await == Ok(Verdict::Serve) {
            let _ = shared.asks.send(FromPeers::Served(asked.serve)).await;
        }
    }
}

impl Asked {
    /// Answers the request.
    async fn serve(self, shared: &Shared, writer: &mut Sender) -> io::Result<()> {
        let object = self.request.object;
        match self.verdict.await.unwrap_or(Verdict::Gone) {
            Verdict::Busy => return writer.answer(Answer::without_body(Status::Busy, 0)).await,
            Verdict::Coming => {
                return writer.answer(Answer::without_body(Status::Coming, 0)).await;
            }
            Verdict::Gone => return writer.answer(Answer::without_body(Status::Gone, 0)).await,
            Verdict::Serve => {}
        }
        let result = match shared.cache.read(object) {
            Err(error) => {
                if matches!(error, CacheError::Lost { .. }) {
                    let _ = shared.asks.send(FromPeers::Lost(object)).await;
                }
                writer.answer(Answer::without_body(Status::Gone, 0)).await
            }
            Ok((file, whole)) => match self.request.length_of(whole) {
                None => writer.answer(Answer::without_body(Status::NoSuchBytes, whole)).await,
                Some(length) => {
                    let answer = Answer { status: Status::Here, whole, length };
                    writer.serve(answer, &file, self.request.offset).await
                }
            },
        };
        // If nobody decides any more, nobody counts or notices either.
        let _ = shared.asks.send(FromPeers::Served(self.serve)).await;
        result
    }
}

/// The sending side of a served connection.
pub(super) struct Sender {
    stream: Outgoing,
    seal: Option<Code>,
    /// Answers and small bodies that go out together.
    waiting: Vec<u8>,
}

impl Sender {
    /// Says something at once, with its code.
    pub(super) async fn say(&mut self, message: &[u8]) -> io::Result<()> {
        self.waiting.extend_from_slice(message);
        self.seal_waiting(message.len());
        self.flush().await
    }

    async fn answer(&mut self, answer: Answer) -> io::Result<()> {
        let bytes = answer.encode();
        self.waiting.extend_from_slice(&bytes);
        self.seal_waiting(bytes.len());
        self.flush_if_full().await
    }

    /// Adds the code of the last bytes that wait.
    fn seal_waiting(&mut self, bytes: usize) {
        let Some(seal) = &mut self.seal else { return };
        let mut hasher = seal.begin();
        hasher.update(&self.waiting[self.waiting.len() - bytes..]);
        self.waiting.extend_from_slice(&Code::end(&hasher));
    }

    async fn serve(&mut self, answer: Answer, file: &File, offset: u64) -> io::Result<()> {
        self.answer(answer).await?;
        if answer.length <= SMALL_BYTES_MAX {
            let start = self.waiting.len();
            let length = answer.length as usize;
            self.waiting.resize(start + length, 0);
            file.read_exact_at(&mut self.waiting[start..], offset)?;
            self.seal_waiting(length);
            return self.flush_if_full().await;
        }
        self.flush().await?;
        match &self.stream {
            Outgoing::Tcp(stream) if self.seal.is_none() => {
                send_file(stream.as_ref(), file, offset, answer.length).await
            }
            _ => self.copy(file, offset, answer.length).await,
        }
    }

    /// Sends a body through memory, with its code.
    async fn copy(&mut self, file: &File, offset: u64, length: u64) -> io::Result<()> {
        let mut hasher = self.seal.as_mut().map(Code::begin);
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut sent = 0;
        while sent < length {
            let count = (length - sent).min(buffer.len() as u64) as usize;
            file.read_exact_at(&mut buffer[..count], offset + sent)?;
            if let Some(hasher) = &mut hasher {
                hasher.update(&buffer[..count]);
            }
            in_time(self.stream.stream().write_all(&buffer[..count])).await?;
            sent += count as u64;
            if sent % TURN_BYTES < count as u64 {
                tokio::task::yield_now().await;
            }
        }
        if let Some(hasher) = hasher {
            self.waiting.extend_from_slice(&Code::end(&hasher));
        }
        in_time(self.stream.stream().flush()).await
    }

    async fn flush_if_full(&mut self) -> io::Result<()> {
        if self.waiting.len() >= BUFFER_BYTES { self.flush().await } else { Ok(()) }
    }

    async fn flush(&mut self) -> io::Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let stream = self.stream.stream();
        in_time(stream.write_all(&self.waiting)).await?;
        in_time(stream.flush()).await?;
        self.waiting.clear();
        Ok(())
    }
}

/// Sends a part of a file without copying it.
async fn send_file(stream: &TcpStream, file: &File, from: u64, length: u64) -> io::Result<()> {
    let (mut at, end) = (from, from + length);
    let mut turn = at;
    while at < end {
        in_time(stream.writable()).await?;
        let sent = stream.try_io(Interest::WRITABLE, || {
            let count = (end - at).min(TURN_BYTES) as usize;
            Ok(sendfile(stream, file, Some(&mut at), count)?)
        });
        match sent {
            // The file became shorter: the peer must not take what follows for
            // its end.
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        if at - turn >= TURN_BYTES {
            turn = at;
            tokio::task::yield_now().await;
        }
    }
    Ok(())
}

/// A peer that takes nothing for too long is given up.
async fn in_time<T>(step: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let limit = Duration::from_millis(SILENCE_MS_MAX);
    timeout(limit, step).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}
