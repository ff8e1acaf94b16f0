//! The frames for one connection that the dispatcher has sent and that are not written yet.
//!
//! A channel of tokio's keeps room for dozens of frames, and a concentrator has thousands
//! of connections on which there is hardly ever one.

use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Frames in order, from the link's reader to the connection's writer. Bounded by the
/// window that the dispatcher keeps to ([`WINDOW_BYTES`](super::WINDOW_BYTES)).
#[derive(Debug, Default)]
pub(super) struct Frames {
    waiting: Mutex<Waiting>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    frames: Vec<OutFrame>,
    is_closed: bool,
}

/// A frame to pass on.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct OutFrame {
    pub(super) frame: Vec<u8>,
    /// Whether it is to be sealed.
    pub(super) sealed: bool,
}

impl Frames {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a frame behind the others.
    pub(super) fn push(&self, frame: &[u8], sealed: bool) {
        self.lock().frames.push(OutFrame { frame: frame.to_vec(), sealed });
        self.changed.notify_one();
    }

    /// No frame follows.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_one();
    }

    /// All that wait, once there are some; `None` when all were taken and none follows. For
    /// one reader.
    pub(super) async fn next(&self) -> Option<Vec<OutFrame>> {
        loop {
            {
                let mut waiting = self.lock();
                if !waiting.frames.is_empty() {
                    return Some(std::mem::take(&mut waiting.frames));
                }
                if waiting.is_closed {
                    return None;
                }
            }
            self.changed.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn frames_come_in_order_and_the_last_before_the_end() {
        let frames = std::sync::Arc::new(Frames::default());
        let reader = tokio::spawn({
            let frames = frames.clone();
            async move {
                let mut read = Vec::new();
                while let Some(batch) = frames.next().await {
                    read.extend(batch);
                }
                read
            }
        });
        for number in 0..100u8 {
            frames.push(&[number], number % 3 == 0);
            if number % 7 == 0 {
                tokio::task::yield_now().await;
            }
        }
        frames.close();
        let expected = (0..100u8).map(|one| OutFrame { frame: vec![one], sealed: one % 3 == 0 });
        assert_eq!(reader.await.unwrap(), expected.collect::<Vec<_>>());
        assert_eq!(frames.next().await, None);
    }
}
