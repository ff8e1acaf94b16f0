//! An executor between a process of its own, which asks, and another executor, which starts.

use super::UNWANTED_MS_MAX;
use super::frame::{Frame, FrameReader, FrameWriter, frames};
use falkon_core::gang::NodeUsed;
use std::io;
use std::pin::pin;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

/// What a starter says of usage, and the last that it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    /// What nodes used, handed over. A starter that says so at all does so at first, and then has
    /// said everything before the last.
    Used(Vec<NodeUsed>),
    /// The process has ended.
    Exited,
    /// The process was not started, or is lost.
    Refused,
}

/// Passes frames on in both directions, until the last one has come, or one side is gone. Usage is
/// not passed on, but `told`. When the asker is gone, the process is ended, and its usage is waited
/// for a little.
///
/// # Errors
/// That of the connection that was lost, and whether the starter's was.
pub async fn forward(
    asker: (FrameReader, &mut FrameWriter),
    starter: (FrameReader, FrameWriter),
    told: impl FnMut(Told) + Send,
) -> Result<(), (io::Error, bool)> {
    let (mut from_asker, to_asker) = asker;
    let (mut from_starter, mut to_starter) = starter;
    let (say_starter, for_starter) = frames();
    let (say_asker, for_asker) = frames();
    let (tells, tells_usage) = watch::channel(false);
    let up = async {
        loop {
            match from_asker.next().await {
                // A starter that is gone is noticed where it is listened to.
                Ok(frame) => drop(say_starter.send(frame).await),
                Err(error) => break error,
            }
        }
    };
    let mut sent = pin!(async {
        let _ = to_starter.put_all(for_starter).await;
        std::future::pending::<()>().await;
    });
    let mut down = pin!(pass(&mut from_starter, say_asker, told, tells));
    let mut is_over = false;
    let gone = {
        let mut up = pin!(up);
        let mut written = pin!(to_asker.put_all(for_asker));
        loop {
            tokio::select! {
                passed = &mut down, if !is_over => {
                    passed.map_err(|error| (error, true))?;
                    is_over = true;
                }
                // It ends well when all that was to be passed on has been.
                result = &mut written => match result {
                    Ok(()) => return Ok(()),
                    Err(error) => break error,
                },
                // The asker says nothing last: its end is the end of the connection.
                error = &mut up => break error,
                () = &mut sent => unreachable!("it does not end"),
            }
        }
    };
    if !is_over && *tells_usage.borrow() {
        let rest = async {
            let _ = say_starter.send(Frame::Unwanted).await;
            // A starter that is gone tells nothing more.
            let _ = down.await;
        };
        let rest = async {
            tokio::select! {
                () = rest => {}
                () = &mut sent => unreachable!("it does not end"),
            }
        };
        let _ = timeout(Duration::from_millis(UNWANTED_MS_MAX), rest).await;
    }
    Err((gone, false))
}

/// Passes on what the starter says, until it has said the last. `tells` becomes true when the
/// starter has said that it tells usage.
async fn pass(
    reader: &mut FrameReader,
    say: mpsc::Sender<Frame>,
    mut told: impl FnMut(Told) + Send,
    tells: watch::Sender<bool>,
) -> io::Result<()> {
    loop {
        let frame = match reader.next().await? {
            // Each hop says for itself that it is there.
            Frame::Alive => continue,
            Frame::Used(nodes) => {
                tells.send_replace(true);
                told(Told::Used(nodes));
                continue;
            }
            frame => frame,
        };
        let is_last = matches!(frame, Frame::Exited(_) | Frame::Refused(_));
        match frame {
            Frame::Exited(_) => told(Told::Exited),
            Frame::Refused(_) => told(Told::Refused),
            _ => {}
        }
        // An asker that is gone is noticed where it is written to.
        let _ = say.send(frame).await;
        if is_last {
            return Ok(());
        }
    }
}
