//! A sink gathers bytes from the network, and writes them where it may block.

use std::io;
use std::sync::Arc;

use crate::object::Landing;

use super::GATHER_BYTES;

/// Writes in larger pieces than the network brings.
pub(super) struct Sink {
    landing: Arc<Landing>,
    gathered: Vec<u8>,
}

impl Sink {
    pub(super) fn new(landing: &Arc<Landing>) -> Sink {
        Sink { landing: Arc::clone(landing), gathered: Vec::new() }
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
        if self.gathered.is_empty() {
            return Ok(());
        }
        let (landing, bytes) = (Arc::clone(&self.landing), std::mem::take(&mut self.gathered));
        let writing = tokio::task::spawn_blocking(move || landing.write(&bytes).map(|()| bytes));
        self.gathered = writing.await.map_err(io::Error::other)??;
        self.gathered.clear();
        Ok(())
    }
}
