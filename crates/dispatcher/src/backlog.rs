//! Bytes queued for a peer, as its writer and the driver both see them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Messages waiting for a peer that does not read before it is given up.
/// Orders are bounded by credit, results by what is unwritten
/// ([`UNWRITTEN_BYTES_MAX`](falkon_core::limits::UNWRITTEN_BYTES_MAX)), answers
/// to questions by their bytes; this bounds the short answers to all other
/// requests.
const PEER_MESSAGES_MAX: usize = 65_536;

#[derive(Debug, Default)]
struct Counts {
    queued: AtomicUsize,
    /// Messages with results that were written since the driver last asked.
    written: AtomicU64,
    /// The driver waits for more of them to be written.
    is_awaited: AtomicBool,
}

/// The messages of one peer. Cloning shares the counts.
#[derive(Debug, Clone, Default)]
pub(super) struct Backlog(Arc<Counts>);

impl Backlog {
    /// Counts a message that is to be queued; false if there are too many.
    pub(super) fn push(&self) -> bool {
        self.0.queued.fetch_add(1, Ordering::Relaxed) < PEER_MESSAGES_MAX
    }

    /// Counts written messages and how many of them had results. Returns
    /// whether the driver waits for that.
    #[must_use]
    pub(super) fn written(&self, messages: usize, with_results: u64) -> bool {
        self.0.queued.fetch_sub(messages, Ordering::Relaxed);
        if with_results == 0 {
            return false;
        }
        // In one order with `await_written` and `take_written` of the driver:
        // either it takes these, or they are seen to be awaited.
        self.0.written.fetch_add(with_results, Ordering::SeqCst);
        self.0.is_awaited.swap(false, Ordering::SeqCst)
    }

    /// Asks for a notice to the driver when more is written, unless
    /// [`Backlog::take_written`] has something now.
    pub(super) fn await_written(&self) {
        self.0.is_awaited.store(true, Ordering::SeqCst);
    }

    /// Messages with results that were written since the last time.
    pub(super) fn take_written(&self) -> u64 {
        // Nearly always nothing, or little, has been written meanwhile.
        match self.0.written.load(Ordering::SeqCst) {
            0 => 0,
            _ => self.0.written.swap(0, Ordering::SeqCst),
        }
    }
}
