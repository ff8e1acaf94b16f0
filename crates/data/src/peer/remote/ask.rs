//! The side that asks for a process: its own streams on one hand, frames on the other.

use super::frame::{Frame, FrameReader, FrameWriter, RemoteEnd, RemoteStream, frames};
use super::serve::{Inbound, Window};
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;

/// The streams of whoever asks for a process.
#[derive(Debug)]
pub struct Standard<I, O, E> {
    /// Where its standard input comes from.
    pub stdin: I,
    /// Where its standard output goes.
    pub stdout: O,
    /// Where its standard error goes.
    pub stderr: E,
}

/// Why a process has not ended as far as is known, or was not started.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// It was not started, or is lost.
    #[error("{0}")]
    Refused(String),
    /// The connection was lost.
    #[error("the connection to the executor was lost: {0}")]
    Lost(#[source] io::Error),
    /// What the process writes cannot be passed on.
    #[error("cannot write what it wrote: {0}")]
    Write(#[source] io::Error),
}

/// Carries the streams of a process that was asked for, until it has ended and all that it wrote
/// is passed on.
///
/// # Errors
/// [`AskError`].
pub async fn attend<I, O, E>(
    mut reader: FrameReader,
    mut writer: FrameWriter,
    standard: Standard<I, O, E>,
    mut signals: mpsc::Receiver<u8>,
) -> Result<RemoteEnd, AskError>
where
    I: AsyncRead + Unpin,
    O: AsyncWrite + Unpin,
    E: AsyncWrite + Unpin,
{
    let Standard { stdin, stdout, stderr } = standard;
    let (say, said) = frames();
    let window = Window::new();
    let (out, err) = (Inbound::default(), Inbound::default());
    let heard = async {
        let end = hear(&mut reader, &window, &out, &err).await;
        out.end();
        err.end();
        end
    };
    let signalled = async {
        while let Some(signal) = signals.recv().await {
            let _ = say.send(Frame::Signal(signal)).await;
        }
    };
    let rest = async {
        tokio::join!(feed(stdin, &window, &say), signalled);
        std::future::pending::<()>().await;
    };
    let finished = async {
        // What has arrived is passed on however the process ended.
        let (end, (), ()) = tokio::try_join!(
            async { Ok(heard.await) },
            pass(stdout, RemoteStream::Stdout, &out, &say),
            pass(stderr, RemoteStream::Stderr, &err, &say),
        )
        .map_err(AskError::Write)?;
        end
    };
    let sent = async {
        // How a lost connection ended is for the reading side to find out.
        let _ = writer.put_all(said).await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        end = finished => end,
        _ = async { tokio::join!(rest, sent) } => unreachable!("neither ends"),
    }
}

/// Takes frames in until the last one.
async fn hear(
    reader: &mut FrameReader,
    window: &Window,
    out: &Inbound,
    err: &Inbound,
) -> Result<RemoteEnd, AskError> {
    loop {
        let taken = match reader.next().await.map_err(AskError::Lost)? {
            Frame::Exited(end) => return Ok(end),
            Frame::Refused(reason) => return Err(AskError::Refused(reason)),
            Frame::Data(RemoteStream::Stdout, bytes) => out.push(bytes),
            Frame::Data(RemoteStream::Stderr, bytes) => err.push(bytes),
            Frame::Taken(RemoteStream::Stdin, count) => window.taken(count),
            Frame::Alive | Frame::End(_) | Frame::Used(_) => Ok(()),
            Frame::Data(..) | Frame::Taken(..) | Frame::Signal(_) | Frame::Unwanted => {
                Err(io::ErrorKind::InvalidData.into())
            }
        };
        taken.map_err(AskError::Lost)?;
    }
}

/// Sends standard input.
async fn feed(mut stdin: impl AsyncRead + Unpin, window: &Window, say: &mpsc::Sender<Frame>) {
    loop {
        let room = window.room().await;
        let mut part = vec![0; room];
        let count = stdin.read(&mut part).await.unwrap_or(0);
        window.give_back(room - count);
        if count == 0 {
            break;
        }
        part.truncate(count);
        if say.send(Frame::Data(RemoteStream::Stdin, part)).await.is_err() {
            return;
        }
    }
    let _ = say.send(Frame::End(RemoteStream::Stdin)).await;
}

/// Passes on what the process wrote.
async fn pass(
    mut to: impl AsyncWrite + Unpin,
    stream: RemoteStream,
    inbound: &Inbound,
    say: &mpsc::Sender<Frame>,
) -> io::Result<()> {
    while let Some(part) = inbound.next().await {
        to.write_all(&part).await?;
        to.flush().await?;
        // A part is far shorter than 4 GiB.
        let taken = Frame::Taken(stream, part.len() as u32);
        // Without a connection, the rest is passed on all the same.
        let _ = say.send(taken).await;
    }
    Ok(())
}
