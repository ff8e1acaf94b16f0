//! An encoded answer to a question, and the count of bytes of answers that wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many bytes of answers wait: for one peer, or for all.
#[derive(Debug, Clone, Default)]
pub(super) struct Waiting(Arc<AtomicUsize>);

impl Waiting {
    pub(super) fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// An encoded answer. It waits until it is dropped, which is when it was
/// written or its connection is gone.
#[derive(Debug)]
pub(super) struct Answer {
    bytes: Vec<u8>,
    has_secret: bool,
    among: [Waiting; 2],
}

impl Answer {
    pub(super) fn new(bytes: Vec<u8>, has_secret: bool, among: [Waiting; 2]) -> Answer {
        for Waiting(count) in &among {
            count.fetch_add(bytes.len(), Ordering::Relaxed);
        }
        Answer { bytes, has_secret, among }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn has_secret(&self) -> bool {
        self.has_secret
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        for Waiting(count) in &self.among {
            count.fetch_sub(self.bytes.len(), Ordering::Relaxed);
        }
    }
}
