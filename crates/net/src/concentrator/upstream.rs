//! The items for the dispatcher, gathered while the last ones were being
//! written.

use super::Up;
use falkon_core::dispatch::ConnectionId;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::timeout;

/// Bytes that wait for the dispatcher before peers are not read any further.
/// What came with the same read may go over it.
const WAITING_BYTES_MAX: usize = 1 << 20;
/// How long heartbeats, which are not urgent, wait for others.
const HEARTBEATS_TOGETHER: Duration = Duration::from_millis(50);
/// A buffer beyond this size is given back.
const BUFFER_KEPT_BYTES: usize = 4 << 20;

#[derive(Debug, Default)]
pub(super) struct Upstream {
    state: Mutex<State>,
    /// There is something that should go out.
    filled: Notify,
    /// There is room again.
    drained: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Frames, as they go out.
    bytes: Vec<u8>,
    /// Some of the frames are more than heartbeats.
    urgent: bool,
}

impl Upstream {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes an item.
    pub(super) fn put(&self, item: &Up) {
        let mut state = self.state();
        put_item(&mut state.bytes, item);
        state.urgent = true;
        drop(state);
        self.filled.notify_one();
    }

    /// Takes what a peer said, and whether that is just a heartbeat. Waits
    /// before, as long as too much is waiting.
    pub(super) async fn said<'a>(
        &self,
        connection: ConnectionId,
        frames: impl ExactSizeIterator<Item = &'a [u8]>,
        is_heartbeat: bool,
    ) {
        loop {
            let drained = self.drained.notified();
            if self.state().bytes.len() < WAITING_BYTES_MAX {
                break;
            }
            drained.await;
        }
        let mut state = self.state();
        let was_empty = state.bytes.is_empty();
        // The frames of one read are few enough for their number to fit.
        let count = frames.len() as u32;
        put_item(&mut state.bytes, &Up::Said { connection, frames: count });
        for frame in frames {
            put_frame(&mut state.bytes, |out| out.extend_from_slice(frame));
        }
        state.urgent |= !is_heartbeat;
        drop(state);
        if was_empty || !is_heartbeat {
            self.filled.notify_one();
        }
    }

    /// Waits until there is something to send, and puts it into `bytes`, which
    /// is empty.
    pub(super) async fn next(&self, bytes: &mut Vec<u8>) {
        let is_filled = |empty: bool| {
            let state = self.state();
            state.urgent || (empty && !state.bytes.is_empty())
        };
        while !is_filled(true) {
            self.filled.notified().await;
        }
        let company = async {
            while !is_filled(false) {
                self.filled.notified().await;
            }
        };
        // Then they go alone.
        let _ = timeout(HEARTBEATS_TOGETHER, company).await;
        bytes.shrink_to(BUFFER_KEPT_BYTES);
        let mut state = self.state();
        std::mem::swap(&mut state.bytes, bytes);
        state.urgent = false;
        drop(state);
        self.drained.notify_waiters();
    }
}

fn put_item(bytes: &mut Vec<u8>, item: &Up) {
    put_frame(bytes, |out| item.encode(out));
}

/// A frame as [`FrameReader`](crate::secure::FrameReader) reads it, without a
/// code. What is put here came in frames that are no longer, or is short.
fn put_frame(bytes: &mut Vec<u8>, encode: impl FnOnce(&mut Vec<u8>)) {
    let start = bytes.len();
    bytes.extend_from_slice(&[0; 4]);
    encode(bytes);
    let length = (bytes.len() - start - 4) as u32;
    bytes[start..start + 4].copy_from_slice(&length.to_le_bytes());
}
