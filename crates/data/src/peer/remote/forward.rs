//! An executor between a process of its own, which asks, and another executor, which starts.

use super::frame::{Frame, FrameReader, FrameWriter, frames};
use std::io;
use tokio::sync::mpsc;

/// Passes frames on in both directions, until the last one has come, or one side is gone.
///
/// # Errors
/// That of the connection that was lost, and whether the starter's was.
pub async fn forward(
    asker: (FrameReader, &mut FrameWriter),
    starter: (FrameReader, FrameWriter),
) -> Result<(), (io::Error, bool)> {
    let (mut from_asker, to_asker) = asker;
    let (mut from_starter, mut to_starter) = starter;
    let (say_starter, for_starter) = frames();
    let (say_asker, for_asker) = frames();
    let up = async {
        loop {
            match from_asker.next().await {
                // A starter that is gone is noticed where it is listened to.
                Ok(frame) => drop(say_starter.send(frame).await),
                Err(error) => break error,
            }
        }
    };
    let answered = async {
        let down =
            async { pass(&mut from_starter, say_asker).await.map_err(|error| (error, true)) };
        let written = async { to_asker.put_all(for_asker).await.map_err(|error| (error, false)) };
        tokio::try_join!(down, written).map(|_| ())
    };
    let sent = async {
        let _ = to_starter.put_all(for_starter).await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        result = answered => result,
        // The asker says nothing last: its end is the end of the connection.
        error = up => Err((error, false)),
        () = sent => unreachable!("it does not end"),
    }
}

/// Passes on what the starter says, until it has said the last.
async fn pass(reader: &mut FrameReader, say: mpsc::Sender<Frame>) -> io::Result<()> {
    loop {
        let frame = reader.next().await?;
        let is_last = matches!(frame, Frame::Exited(_) | Frame::Refused(_));
        // Each hop says for itself that it is there.
        if frame != Frame::Alive {
            // An asker that is gone is noticed where it is written to.
            let _ = say.send(frame).await;
        }
        if is_last {
            return Ok(());
        }
    }
}
