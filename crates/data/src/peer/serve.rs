//! Serving cached objects.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use falkon_core::data::object::ObjectId;
use falkon_core::data::stage::ServeId;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc, oneshot};

use super::receive::Reader;
use super::requests::{FromPeers, Shared, Verdict};
use super::sender::Sender;
use super::visit::{self, Allowed};
use super::wire::{Answer, ENTRUSTED, REMOTE, REQUEST_BYTES, Request, Status};
use super::{ASKED_AHEAD_MAX, CONNECTIONS_MAX, SMALL_BYTES_MAX, entrust, remote, tail};
use crate::cache::{CacheError, DiskCache};
use crate::overflow::OverflowDirectory;
use falkon_net::secure::{Bare, PeerAcceptor};

/// Pause after a failure to accept, in milliseconds: usually there are too many
/// open files, and some must be closed first.
const ACCEPT_PAUSE_MS: u64 = 50;

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
            // The thread panics only by a bug, which it has reported then.
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
                // The client knows best which bytes it still needs.
                let _ = serve_output(&mut reader, &mut writer, id, shared).await;
                return;
            }
            Some(Allowed::Tail(id)) => {
                let _ = tail::serve(&mut reader, &mut writer, id, shared).await;
                return;
            }
            Some(one) => allowed = one,
            None => return,
        }
    }
    let mut asked = VecDeque::with_capacity(ASKED_AHEAD_MAX);
    // A large part of an object, which is decided about when it is its turn.
    let mut later: Option<Request> = None;
    loop {
        // Requests that have arrived are decided together: the core runs in
        // another thread, which may be slow to have its turn.
        while asked.is_empty() || (reader.has(REQUEST_BYTES) && asked.len() < ASKED_AHEAD_MAX) {
            // Gathered answers are sent before anything is waited for.
            let is_turn = asked.is_empty() && (later.is_some() || !reader.has(REQUEST_BYTES));
            if is_turn && writer.flush().await.is_err() {
                return;
            }
            let request = match later.take() {
                Some(request) => request,
                None => match next_request(&mut reader, &allowed).await {
                    Some(request) => request,
                    // The others' conversations are over with this one.
                    None => return give_up(asked, shared).await,
                },
            };
            if request.object == ENTRUSTED && allowed == Allowed::Cache && asked.is_empty() {
                // The maker of the outputs has one connection for each.
                let _ = entrust::receive(&mut reader, &mut writer, &request, shared).await;
                return;
            }
            if request.object == REMOTE && allowed == Allowed::Cache && asked.is_empty() {
                // Whoever asks for the process finds out when the connection ends.
                let _ = remote::receive(reader, writer, &request, shared).await;
                return;
            }
            if !asked.is_empty() && is_large(&request) {
                later = Some(request);
                break;
            }
            asked.push_back(ask(request, shared).await);
        }
        let Some(next) = asked.pop_front() else { continue };
        let request = next.request;
        let Ok(is_coming) = next.serve(shared, &mut writer).await else {
            return give_up(asked, shared).await;
        };
        // Those who wait for a chunk are told in time that it is coming, and of the
        // chunks behind it too: they ask for all of them again, in their order.
        while is_coming && is_large(&request) && asked.is_empty() {
            let behind = match later.take() {
                None if reader.has(REQUEST_BYTES) => next_request(&mut reader, &allowed).await,
                behind => behind,
            };
            let Some(behind) = behind else { break };
            if behind.object != request.object || !is_large(&behind) {
                later = Some(behind);
                break;
            }
            if writer.answer(Answer::without_body(Status::Coming, 0)).await.is_err() {
                return;
            }
        }
    }
}

/// Whether a request is for so many bytes that sending them takes a while.
fn is_large(request: &Request) -> bool {
    request.length.is_some_and(|length| length > SMALL_BYTES_MAX)
}

/// The next request on a connection; nothing if there is none for long, or none that is
/// genuine and allowed.
async fn next_request(reader: &mut Reader, allowed: &Allowed) -> Option<Request> {
    let request = Request::decode(&reader.request().await.ok()??);
    let is_allowed = match allowed {
        Allowed::Cache => true,
        one => *one == Allowed::Object(request.object),
    };
    is_allowed.then_some(request)
}

/// Serves one task's output as often as requested. The file is not among the
/// cache's, so the core need not decide.
async fn serve_output(
    reader: &mut Reader,
    writer: &mut Sender,
    id: ObjectId,
    shared: &Shared,
) -> io::Result<()> {
    while let Some(bytes) = reader.request().await? {
        let request = Request::decode(&bytes);
        if request.object != id {
            break;
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
    Ok(())
}

/// A request that waits for a decision.
struct Asked {
    request: Request,
    serve: ServeId,
    verdict: oneshot::Receiver<Verdict>,
}

async fn ask(request: Request, shared: &Shared) -> Asked {
    let serve = ServeId(shared.next.fetch_add(1, Ordering::Relaxed));
    let (answer, verdict) = oneshot::channel();
    let range = (request.offset, request.length);
    let asking = FromPeers::Ask { serve, object: request.object, range, answer };
    // Without the core no verdict comes, which is a refusal.
    let _ = shared.asks.send(asking).await;
    Asked { request, serve, verdict }
}

/// Ends the conversations of a connection that has ended.
async fn give_up(asked: VecDeque<Asked>, shared: &Shared) {
    for asked in asked {
        if matches!(asked.verdict.await, Ok(Verdict::Serve | Verdict::Part { .. })) {
            let _ = shared.asks.send(FromPeers::Served(asked.serve)).await;
        }
    }
}

impl Asked {
    /// Answers the request. Returns whether what it asks for is still on its way here.
    async fn serve(self, shared: &Shared, writer: &mut Sender) -> io::Result<bool> {
        let object = self.request.object;
        let verdict = self.verdict.await.unwrap_or(Verdict::Gone);
        let refusal = match verdict {
            Verdict::Busy => Some(Status::Busy),
            Verdict::Coming => Some(Status::Coming),
            Verdict::Gone => Some(Status::Gone),
            Verdict::Serve | Verdict::Part { .. } => None,
        };
        if let Some(status) = refusal {
            writer.answer(Answer::without_body(status, 0)).await?;
            return Ok(status == Status::Coming);
        }
        let found = match verdict {
            Verdict::Part { tier, partial, whole } => {
                match shared.cache.read_partial(tier, partial) {
                    Some(file) => Ok((file, whole)),
                    None => shared.cache.read(object),
                }
            }
            _ => shared.cache.read(object),
        };
        let mut is_coming = false;
        let result = match found {
            // Its file is just moved to its place.
            Err(CacheError::Lost { .. }) if matches!(verdict, Verdict::Part { .. }) => {
                is_coming = true;
                writer.answer(Answer::without_body(Status::Coming, 0)).await
            }
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
        // Without the core no count is kept either.
        let _ = shared.asks.send(FromPeers::Served(self.serve)).await;
        result.map(|()| is_coming)
    }
}
