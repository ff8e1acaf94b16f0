//! The side that starts a process: its pipes on one hand, frames on the other.

use super::frame::{Frame, FrameReader, FrameWriter, RemoteEnd, RemoteStream, frames, used_frames};
use super::{PART_BYTES_MAX, WINDOW_BYTES};
use falkon_core::gang::NodeUsed;
use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::sync::{Notify, Semaphore, mpsc, oneshot};

/// How long the pipes of a process that has ended may be silent, in milliseconds, before they
/// count as closed: something that the process has left may hold them.
const DRAIN_MS: u64 = 2_000;

/// Signals that wait for the process to start.
const SIGNALS_MAX: usize = 16;

/// The end of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteEnded {
    /// How it ended, or why that is unknown.
    pub end: Result<RemoteEnd, String>,
    /// The usage that its node hands over to whoever asked for it.
    pub used: Vec<NodeUsed>,
}

impl From<Result<RemoteEnd, String>> for RemoteEnded {
    fn from(end: Result<RemoteEnd, String>) -> RemoteEnded {
        RemoteEnded { end, used: Vec::new() }
    }
}

/// A process that was started.
pub struct Started {
    /// The other ends of the pipes that it has as standard input, output and error.
    pub pipes: [OwnedFd; 3],
    /// How it ends.
    pub ended: oneshot::Receiver<RemoteEnded>,
    /// Sends it a signal, with its process group.
    pub signal: Box<dyn Fn(u8) + Send + Sync>,
    /// Dropped when nobody wants it any more: then it is to end.
    pub hold: Box<dyn Any + Send>,
}

impl fmt::Debug for Started {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Started").finish_non_exhaustive()
    }
}

/// Data that came for a process, or from one, and are not passed on yet.
#[derive(Debug, Default)]
pub(super) struct Inbound {
    state: Mutex<InboundState>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct InboundState {
    parts: VecDeque<Vec<u8>>,
    bytes: usize,
    has_ended: bool,
}

impl Inbound {
    /// Adds data; an error if the other side sends more than it may.
    pub(super) fn push(&self, bytes: Vec<u8>) -> io::Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.has_ended || state.bytes + bytes.len() > WINDOW_BYTES {
            return Err(io::ErrorKind::InvalidData.into());
        }
        state.bytes += bytes.len();
        state.parts.push_back(bytes);
        self.changed.notify_one();
        Ok(())
    }

    /// No more will come.
    pub(super) fn end(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).has_ended = true;
        self.changed.notify_one();
    }

    /// The next data; `None` when no more will come.
    pub(super) async fn next(&self) -> Option<Vec<u8>> {
        loop {
            {
                let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(part) = state.parts.pop_front() {
                    state.bytes -= part.len();
                    return Some(part);
                }
                if state.has_ended {
                    return None;
                }
            }
            self.changed.notified().await;
        }
    }
}

/// How much of a stream may be sent: its permits are bytes.
#[derive(Debug)]
pub(super) struct Window(Semaphore);

impl Window {
    pub(super) fn new() -> Window {
        Window(Semaphore::new(WINDOW_BYTES))
    }

    /// The other side has passed bytes on; an error if it never got so many.
    pub(super) fn taken(&self, count: u32) -> io::Result<()> {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        if count > WINDOW_BYTES.saturating_sub(self.0.available_permits()) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        self.0.add_permits(count);
        Ok(())
    }

    /// Waits until something may be sent; says how much, at most a part.
    pub(super) async fn room(&self) -> usize {
        let count = self.0.available_permits().clamp(1, PART_BYTES_MAX);
        // The semaphore is never closed, and a part fits into 32 bits.
        if let Ok(permits) = self.0.acquire_many(count as u32).await {
            permits.forget();
        }
        count
    }

    /// So much of the room was not used.
    pub(super) fn give_back(&self, count: usize) {
        self.0.add_permits(count);
    }
}

/// What arrives for the process.
struct Arrivals {
    stdin: Inbound,
    windows: [Window; 2],
    signals: mpsc::Sender<u8>,
    /// The asker has said that the process is not wanted any more.
    unwanted: Notify,
}

impl Arrivals {
    /// Takes frames in, until the connection ends: that is its end.
    async fn receive(&self, reader: &mut FrameReader) -> io::Error {
        loop {
            let taken = match reader.next().await {
                Err(error) => return error,
                Ok(Frame::Alive) => Ok(()),
                Ok(Frame::Data(RemoteStream::Stdin, bytes)) => self.stdin.push(bytes),
                Ok(Frame::End(RemoteStream::Stdin)) => {
                    self.stdin.end();
                    Ok(())
                }
                Ok(Frame::Taken(RemoteStream::Stdout, count)) => self.windows[0].taken(count),
                Ok(Frame::Taken(RemoteStream::Stderr, count)) => self.windows[1].taken(count),
                Ok(Frame::Signal(signal)) => {
                    // A process that is sent more than that at once has enough of them.
                    let _ = self.signals.try_send(signal);
                    Ok(())
                }
                Ok(Frame::Unwanted) => {
                    self.unwanted.notify_one();
                    Ok(())
                }
                Ok(_) => Err(io::ErrorKind::InvalidData.into()),
            };
            if let Err(error) = taken {
                return error;
            }
        }
    }
}

/// Carries the streams of a process until it has ended, or whoever asked for it is gone. With
/// `tells_usage`, whoever asked is told what was used.
///
/// # Errors
/// That of the connection.
pub async fn serve(
    mut reader: FrameReader,
    mut writer: FrameWriter,
    starting: impl Future<Output = Result<Started, String>>,
    tells_usage: bool,
) -> io::Result<()> {
    let (say, said) = frames();
    let (signals, mut signalled) = mpsc::channel(SIGNALS_MAX);
    let windows = [Window::new(), Window::new()];
    let (stdin, unwanted) = (Inbound::default(), Notify::new());
    let arrivals = Arrivals { stdin, windows, signals, unwanted };
    let carry = async {
        // Without a receiver, the connection has ended.
        if tells_usage {
            let _ = say.send(Frame::Used(Vec::new())).await;
        }
        let started = tokio::select! {
            started = starting => started,
            () = arrivals.unwanted.notified() => Err(UNWANTED.to_owned()),
        };
        let RemoteEnded { end, used } = match started {
            Err(reason) => Err(reason).into(),
            Ok(started) => carry(started, &arrivals, &mut signalled, &say).await,
        };
        for frame in used_frames(used).into_iter().filter(|_| tells_usage) {
            let _ = say.send(frame).await;
        }
        let _ = say.send(end.map_or_else(Frame::Refused, Frame::Exited)).await;
        drop(say);
        Ok(())
    };
    let mut received = pin!(arrivals.receive(&mut reader));
    tokio::select! {
        error = &mut received => return Err(error),
        result = async { tokio::try_join!(carry, writer.put_all(said)) } => {
            result?;
        }
    }
    // The other side closes the connection when it has all. A connection that is closed with
    // something unread is reset, and what is on its way is lost.
    received.await;
    Ok(())
}

/// Carries the streams of a process that runs; says how it ended.
async fn carry(
    started: Started,
    arrivals: &Arrivals,
    signalled: &mut mpsc::Receiver<u8>,
    say: &mpsc::Sender<Frame>,
) -> RemoteEnded {
    let Started { pipes, mut ended, signal, hold } = started;
    let (stdin, stdout, stderr) = match take_up(pipes) {
        Ok(pipes) => pipes,
        Err(error) => return Err(format!("its streams cannot be carried: {error}")).into(),
    };
    let mut known = None;
    let has_ended = Semaphore::new(0);
    let output = async {
        tokio::join!(
            send(stdout, RemoteStream::Stdout, &arrivals.windows[0], say, &has_ended),
            send(stderr, RemoteStream::Stderr, &arrivals.windows[1], say, &has_ended),
        )
    };
    let end = async {
        known = Some((&mut ended).await.unwrap_or_else(|_| executor_ends()));
        has_ended.close();
    };
    let signals = async {
        while let Some(number) = signalled.recv().await {
            signal(number);
        }
    };
    let input = async {
        tokio::join!(feed(stdin, &arrivals.stdin, say), signals);
        std::future::pending::<()>().await;
    };
    tokio::select! {
        _ = async { tokio::join!(end, output) } => {}
        () = input => unreachable!("it does not end"),
        () = arrivals.unwanted.notified() => {}
    }
    // Now it ends, if it has not.
    drop(hold);
    match known {
        Some(known) => known,
        // The asker closes the connection when that takes too long.
        None => ended.await.unwrap_or_else(|_| executor_ends()),
    }
}

/// Why a process does not begin that its asker does not want any more.
const UNWANTED: &str = "nobody wants it any more";

fn executor_ends() -> RemoteEnded {
    Err("the executor ends".to_owned()).into()
}

/// The other ends of a process's standard streams, to be read and written without blocking.
fn take_up(pipes: [OwnedFd; 3]) -> io::Result<(pipe::Sender, pipe::Receiver, pipe::Receiver)> {
    let [stdin, stdout, stderr] = pipes;
    let receiver = pipe::Receiver::from_owned_fd;
    Ok((pipe::Sender::from_owned_fd(stdin)?, receiver(stdout)?, receiver(stderr)?))
}

/// Passes standard input on. What a process does not want is dropped.
async fn feed(stdin: pipe::Sender, inbound: &Inbound, say: &mpsc::Sender<Frame>) {
    let mut stdin = Some(stdin);
    while let Some(part) = inbound.next().await {
        if let Some(pipe) = &mut stdin
            && pipe.write_all(&part).await.is_err()
        {
            stdin = None;
        }
        // A part is far shorter than 4 GiB.
        let taken = Frame::Taken(RemoteStream::Stdin, part.len() as u32);
        if say.send(taken).await.is_err() {
            return;
        }
    }
}

/// Sends what a process writes, until it is closed, or nothing more is there of one that has
/// ended: `has_ended` is closed then.
async fn send(
    mut pipe: pipe::Receiver,
    stream: RemoteStream,
    window: &Window,
    say: &mpsc::Sender<Frame>,
    has_ended: &Semaphore,
) {
    loop {
        let room = window.room().await;
        let mut part = vec![0; room];
        let is_over = async {
            // It is closed, and gives no permit.
            let _ = has_ended.acquire().await;
            tokio::time::sleep(Duration::from_millis(DRAIN_MS)).await;
        };
        let count = tokio::select! {
            biased;
            count = pipe.read(&mut part) => count.unwrap_or(0),
            () = is_over => 0,
        };
        window.give_back(room - count);
        if count == 0 {
            break;
        }
        part.truncate(count);
        if say.send(Frame::Data(stream, part)).await.is_err() {
            return;
        }
    }
    let _ = say.send(Frame::End(stream)).await;
}
