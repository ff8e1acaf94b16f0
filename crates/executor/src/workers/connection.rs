//! Bytes to and from workers.

use super::protocol::{FromWorker, MESSAGE_BYTES_MAX, VERSION};
use falkon_wire::hidden::Hidden;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader, Interest};
use tokio::net::unix::OwnedWriteHalf;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;

/// Longest first message.
const HELLO_BYTES_MAX: usize = 4096;
/// Within which it must come once the connection is made.
const HELLO_SECONDS_MAX: u64 = 60;
/// Read from a worker at once.
const READ_BYTES: usize = 256 << 10;

/// The messages of workers to the driver.
#[derive(Debug)]
pub(crate) enum Heard {
    /// A worker has connected and says which it is.
    Hello { token: Hidden<String>, stream: UnixStream },
    /// A worker says something.
    Message { worker: u64, message: Vec<u8> },
    /// A worker says nothing more.
    Closed { worker: u64 },
}

/// Accepts workers until the receiver is gone.
pub(super) async fn accept(listener: UnixListener, heard: mpsc::Sender<Heard>) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = heard.closed() => return,
        };
        match accepted {
            Ok((stream, _)) => {
                let heard = heard.clone();
                tokio::spawn(async move {
                    let hello = greet(stream);
                    let limit = Duration::from_secs(HELLO_SECONDS_MAX);
                    if let Ok(Some((token, stream))) = tokio::time::timeout(limit, hello).await {
                        // Without a receiver the worker ends anyway.
                        let _ = heard.send(Heard::Hello { token, stream }).await;
                    }
                });
            }
            // Out of file descriptors: others may be closed meanwhile.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

/// Reads the first message; a peer that sends anything else is no worker.
async fn greet(mut stream: UnixStream) -> Option<(Hidden<String>, UnixStream)> {
    let own = rustix::process::getuid().as_raw();
    if stream.peer_cred().ok()?.uid() != own {
        return None;
    }
    let message = read_message(&mut stream, HELLO_BYTES_MAX).await?;
    match FromWorker::decode(&message) {
        Ok(FromWorker::Hello { version: VERSION, token }) => Some((token, stream)),
        _ => None,
    }
}

async fn read_message(from: &mut (impl AsyncRead + Unpin), bytes_max: usize) -> Option<Vec<u8>> {
    let length = from.read_u32_le().await.ok()? as usize;
    if length > bytes_max {
        return None;
    }
    // Grows as bytes really come.
    let mut message = Vec::with_capacity(length.min(READ_BYTES));
    let read = from.take(length as u64).read_to_end(&mut message).await.ok()?;
    (read == length).then_some(message)
}

/// Sends a worker what it is set up with, then carries messages both ways
/// until one side has enough.
pub(super) async fn converse(
    worker: u64,
    stream: UnixStream,
    setup: Vec<u8>,
    fds: [OwnedFd; 2],
    messages: mpsc::UnboundedReceiver<Vec<u8>>,
    heard: mpsc::Sender<Heard>,
) {
    if send_setup(&stream, &setup, fds).await.is_some() {
        let (read, write) = stream.into_split();
        // The writer may be held up by a worker that is in a long call.
        let writer = tokio::spawn(write_all(write, messages));
        let mut read = BufReader::with_capacity(READ_BYTES, read);
        while let Some(message) = read_message(&mut read, MESSAGE_BYTES_MAX).await {
            if heard.send(Heard::Message { worker, message }).await.is_err() {
                break;
            }
        }
        writer.abort();
    }
    // Without a receiver the notice is of no use.
    let _ = heard.send(Heard::Closed { worker }).await;
}

async fn send_setup(stream: &UnixStream, setup: &[u8], fds: [OwnedFd; 2]) -> Option<()> {
    let fds = [fds[0].as_fd(), fds[1].as_fd()];
    let mut sent = 0;
    while sent < setup.len() {
        stream.writable().await.ok()?;
        let result = stream.try_io(Interest::WRITABLE, || {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            if sent == 0 {
                ancillary.push(SendAncillaryMessage::ScmRights(&fds));
            }
            let bytes = [IoSlice::new(&setup[sent..])];
            Ok(rustix::net::sendmsg(stream, &bytes, &mut ancillary, SendFlags::NOSIGNAL)?)
        });
        match result {
            Ok(count) => sent += count,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return None,
        }
    }
    Some(())
}

async fn write_all(mut write: OwnedWriteHalf, mut messages: mpsc::UnboundedReceiver<Vec<u8>>) {
    while let Some(message) = messages.recv().await {
        // A worker that is gone is noticed by the reader.
        if write.write_all(&message).await.is_err() {
            return;
        }
    }
    let _ = write.shutdown().await;
}
