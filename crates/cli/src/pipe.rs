//! `falkon pipe`: the protocol for programs that start this one.
//!
//! A program of any language holds one end of a socket pair, starts `falkon
//! pipe` with the other end as its standard input, and has a client's
//! conversation of docs/protocol.md over it in plain frames: without preamble
//! and handshake, because no other process has that socket. It needs no TLS and
//! no hashes of its own, and all that was started for it ends when its end is
//! closed, also because it was killed.

use crate::access::{AccessArgs, role_for};
use crate::clusters;
use crate::data::CacheArgs;
use crate::embedded::{Embedded, EmbeddedError, ExecutorSetup, OfferArgs, Places};
use crate::exit::{Exit, runtime};
use crate::results::asked::CAPTURE_BYTES_DEFAULT;
use crate::results::rest::make_overflow;
use crate::scratch::Scratch;
use crate::workers::WorkerArgs;
use clap::Args;
use falkon_data::overflow::OverflowDirectory;
use falkon_net::Log;
use falkon_net::secure::{
    Batch, FrameReader, FrameWriter, ReadError, Versions, WRITE_QUEUE_BYTES_MAX, connect, plain,
};
use falkon_process::Forked;
use falkon_wire::codec::Wire;
use falkon_wire::message::{Refusal, ToClient, request_number};
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot};

/// `falkon pipe`
#[derive(Args, Debug)]
pub(crate) struct PipeArgs {
    /// The dispatcher's access file, or - for standard input [default:
    /// $FALKON_ACCESS, else the one of a dispatcher started without --dir]; if it is repeated,
    /// the executors of all these dispatchers run the tasks, as one queue
    #[arg(long, value_name = "FILE")]
    access: Vec<PathBuf>,
    /// Run tasks on this machine, without another dispatcher, until standard input ends
    #[arg(long, conflicts_with = "access")]
    here: bool,
    /// The protocol version of the other side; this program must know it
    #[arg(long, value_name = "N")]
    protocol: Option<u16>,
    /// A folder for data that is too large to be sent with calls: both sides read and write
    /// there, and it is removed at the end
    #[arg(long, value_name = "DIR", requires = "here")]
    objects: Option<PathBuf>,
    /// A folder to create for output that is too long to be sent: output number N of a result
    /// is in N.stdout and N.stderr; the folder is removed at the end
    #[arg(long, value_name = "DIR", requires = "here")]
    overflow: Option<PathBuf>,
    /// Modules that the first calls of Python functions are expected to need, separated by
    /// commas: workers that have imported them start at once
    #[arg(long, value_name = "MODULES", requires = "here")]
    foresee: Option<String>,
    /// The process that starts tasks is there already, with a template of which
    /// Python workers are copies
    #[arg(
        long,
        value_name = "PID:INSTANCE:FD:FD",
        requires = "here",
        conflicts_with = "foresee",
        hide = true
    )]
    forked: Option<String>,
    #[command(flatten)]
    offer: OfferArgs,
    #[command(flatten)]
    cache: CacheArgs,
    #[command(flatten)]
    workers: WorkerArgs,
    /// Bytes of each output stream kept with a result; longer output goes to a file
    #[arg(
        long,
        value_name = "BYTES",
        default_value_t = CAPTURE_BYTES_DEFAULT,
        value_parser = crate::plan::capture_bytes
    )]
    capture: u64,
}

/// Runs the command.
pub(crate) fn pipe(args: PipeArgs) -> Exit {
    if let Some(theirs) = args.protocol.filter(|theirs| !Versions::RELEASE.includes(*theirs)) {
        return Exit::usage(format!(
            "the program at the other end speaks protocol {theirs}, and this one speaks {}: use \
             the same release of both",
            Versions::RELEASE
        ));
    }
    let forked = match args.forked.as_deref().map(Forked::read).transpose() {
        Ok(forked) => forked,
        Err(error) => return Exit::usage(error),
    };
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(exit) => return exit,
    };
    runtime.block_on(async {
        let stream = match standard_input() {
            Ok(stream) => stream,
            Err(error) => {
                return Exit::usage(format!(
                    "standard input is not a connected stream socket ({error}): falkon pipe is \
                     for programs, which give it one end of a socket pair"
                ));
            }
        };
        match (args.here, args.access.len()) {
            (true, _) => here(args, stream, forked).await,
            (false, 0 | 1) => elsewhere(args, stream).await,
            _ => on_clusters(&args.access, stream).await,
        }
    })
}

/// The socket that is standard input.
fn standard_input() -> io::Result<UnixStream> {
    let socket = std::io::stdin().as_fd().try_clone_to_owned()?;
    let stream = std::os::unix::net::UnixStream::from(socket);
    // Refused by whatever is no connected socket.
    stream.peer_addr()?;
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}

/// Serves a client with a dispatcher and an executor of its own.
async fn here(args: PipeArgs, stream: UnixStream, forked: Option<Forked>) -> Exit {
    let scratch = match Scratch::new("falkon") {
        Ok(scratch) => scratch,
        Err(exit) => return exit,
    };
    let cache = match args.cache.setup(scratch.path()) {
        Ok(cache) => cache,
        Err(exit) => return exit,
    };
    let (capacity, mut workers) = (args.offer.capacity(scratch.path()), args.workers.options());
    workers.objects.clone_from(&args.objects);
    workers.foreseen.clone_from(&args.foresee);
    workers.scratch = Some(scratch.path().to_owned());
    let overflow = match &args.overflow {
        None => make_overflow(scratch.path()),
        Some(folder) => OverflowDirectory::make(folder.clone()).map_err(|error| {
            Exit::usage(format!("cannot make the directory {}: {error}", folder.display()))
        }),
    };
    let overflow = match overflow {
        Ok(overflow) => overflow,
        Err(exit) => return exit,
    };
    let places = Places { scratch: scratch.path().to_owned(), overflow: overflow.clone() };
    let mut embedded = match Embedded::start(None, None) {
        Ok(embedded) => embedded,
        Err(error) => return Exit::failure(error),
    };
    embedded.execute(ExecutorSetup {
        capacity,
        memory_limits: args.offer.limits().memory_limits(),
        pin: args.offer.limits().pin(),
        places,
        capture_bytes_max: args.capture,
        workers,
        cache: Some(cache),
        forked,
    });
    let failed = serve(embedded, stream).await;
    overflow.close();
    // No process is left that could read the contents.
    scratch.remove();
    if let Some(folder) = args.objects {
        // The client may have removed it.
        let _ = std::fs::remove_dir_all(folder);
    }
    failed.map_or(Exit::Success, Exit::failure)
}

/// Serves a client with a dispatcher of its own, whose executors are those of other
/// dispatchers.
async fn on_clusters(access: &[PathBuf], stream: UnixStream) -> Exit {
    let clusters = match clusters::load(access) {
        Ok(clusters) => clusters,
        Err(error) => return Exit::usage(error),
    };
    let mut embedded = match Embedded::start(None, None) {
        Ok(embedded) => embedded,
        Err(error) => return Exit::failure(error),
    };
    // What is on standard error is the reason of this program's end.
    let log: Log = Arc::new(|_: &str| {});
    embedded.borrow_from(clusters, &log);
    serve(embedded, stream).await.map_or(Exit::Success, Exit::failure)
}

/// Serves a client until its end of the stream is closed, or the dispatcher can run no tasks:
/// then it returns why. Everything has ended when this returns.
async fn serve(mut embedded: Embedded, stream: UnixStream) -> Option<EmbeddedError> {
    let (over, ended) = oneshot::channel();
    embedded.attach(Watched { stream, over: Some(over) });
    let failed = tokio::select! {
        // The sender is dropped with the connection.
        _ = ended => None,
        failed = embedded.failure() => Some(failed),
    };
    embedded.stop(true).await;
    failed
}

/// Passes frames on to a dispatcher, and from it.
async fn elsewhere(args: PipeArgs, stream: UnixStream) -> Exit {
    let access = AccessArgs { access: args.access.into_iter().next() };
    let access = match access.load_or_exit() {
        Ok(access) => access,
        Err(exit) => return exit,
    };
    // The program at the other end reads what the dispatcher sends.
    let older = args.protocol.filter(|theirs| *theirs < Versions::spoken().newest());
    let versions = older.map_or_else(Versions::spoken, Versions::from);
    let session = match connect(&access, role_for(&access, None), versions).await {
        Ok(session) => session,
        Err(error) if error.is_transient() => return Exit::failure(error),
        Err(error) => return Exit::usage(error),
    };
    let (reader, writer) = plain(stream);
    let (refuse, refused) = mpsc::unbounded_channel();
    tokio::select! {
        passed = take_requests(reader, session.writer, refuse) => {
            passed.unwrap_or_else(|exit| exit)
        }
        passed = bring_answers(session.reader, refused, writer) => {
            passed.map_or_else(Exit::failure, |()| {
                Exit::failure("the connection to the dispatcher was lost")
            })
        }
    }
}

/// Passes a client's requests on until there are no more. One that is too long
/// to be passed on is refused here, and the others go on.
async fn take_requests(
    mut from: FrameReader,
    mut to: FrameWriter,
    refuse: mpsc::UnboundedSender<ToClient>,
) -> Result<Exit, Exit> {
    loop {
        let batch = match from.read_batch().await {
            Ok(Some(batch)) => batch,
            Ok(None) => break,
            Err(ReadError::Skipped { bytes, head }) => {
                let why = ReadError::Skipped { bytes, head: Vec::new() }.to_string();
                let Some(request) = request_number(&head) else {
                    // The request would fail over another connection, too.
                    return Err(Exit::usage(format!("the message is not a request: {why}")));
                };
                // The other end lives as long as this one.
                let _ =
                    refuse.send(ToClient::Refused { request, reason: Refusal::Unreadable(why) });
                continue;
            }
            Err(error) => return Err(Exit::failure(error)),
        };
        pass_on(batch, &mut to).await.map_err(Exit::failure)?;
    }
    to.close().await.map_err(Exit::failure)?;
    Ok(Exit::Success)
}

/// Passes a dispatcher's messages on, and what was refused on the way to it,
/// until there are no more.
async fn bring_answers(
    mut from: FrameReader,
    mut refused: mpsc::UnboundedReceiver<ToClient>,
    mut to: FrameWriter,
) -> Result<(), String> {
    loop {
        tokio::select! {
            batch = from.read_batch() => {
                let Some(batch) = batch.map_err(|error| error.to_string())? else { break };
                pass_on(batch, &mut to).await?;
            }
            Some(answer) = refused.recv() => {
                to.queue(&answer.to_bytes()).map_err(|error| error.to_string())?;
                to.flush().await.map_err(|error| error.to_string())?;
            }
        }
    }
    to.close().await.map_err(|error| error.to_string())
}

/// Passes frames on.
async fn pass_on(batch: Batch<'_>, to: &mut FrameWriter) -> Result<(), String> {
    for frame in batch {
        if to.queued_bytes() >= WRITE_QUEUE_BYTES_MAX {
            to.flush().await.map_err(|error| error.to_string())?;
        }
        to.queue(frame).map_err(|error| error.to_string())?;
    }
    to.flush().await.map_err(|error| error.to_string())
}

/// A stream that tells when the other side has closed it.
struct Watched<S> {
    stream: S,
    over: Option<oneshot::Sender<()>>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        let ended = match &polled {
            Poll::Ready(Ok(())) => buffer.remaining() > 0 && buffer.filled().len() == before,
            Poll::Ready(Err(_)) => true,
            Poll::Pending => false,
        };
        if ended {
            self.over = None;
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
