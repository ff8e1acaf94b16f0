//! A sink gathers bytes from the network, in memory or where writing may block.

use std::io;
use std::sync::Arc;

use crate::object::Landing;

use super::GATHER_BYTES;

/// Takes the bytes of an object, or of a range of it.
pub(super) struct Sink {
    /// Written in larger pieces than the network brings; `None` keeps all in memory.
    landing: Option<Arc<Landing>>,
    gathered: Vec<u8>,
}

impl Sink {
    pub(super) fn new(landing: &Arc<Landing>) -> Sink {
        Sink { landing: Some(Arc::clone(landing)), gathered: Vec::new() }
    }

    /// Keeps what it takes, which is little.
    pub(super) fn in_memory() -> Sink {
        Sink { landing: None, gathered: Vec::new() }
    }

    /// What was taken, of a sink in memory.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.gathered
    }

    /// Records the whole object's size, from the source.
    pub(super) fn sized(&self, whole: u64) {
        if let Some(landing) = &self.landing {
            landing.sized(whole);
        }
    }

    /// Takes the next bytes.
    pub(super) async fn take(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.gathered.extend_from_slice(bytes);
        if self.gathered.len() >= GATHER_BYTES {
            self.flush().await?;
        }
        Ok(())
    }

    /// Writes all that was taken.
    pub(super) async fn flush(&mut self) -> io::Result<()> {
        let Some(landing) = self.landing.clone() else { return Ok(()) };
        if self.gathered.is_empty() {
            return Ok(());
        }
        let bytes = std::mem::take(&mut self.gathered);
        let writing = tokio::task::spawn_blocking(move || landing.write(&bytes).map(|()| bytes));
        self.gathered = writing.await.map_err(io::Error::other)??;
        self.gathered.clear();
        Ok(())
    }
}
