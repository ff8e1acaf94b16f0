//! Where what comes from the network is written: gathered, and written where
//! it may block.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::GATHER_BYTES;

/// Writes to a file from an offset on.
pub(super) struct Sink {
    file: Arc<File>,
    at: u64,
    gathered: Vec<u8>,
}

impl Sink {
    pub(super) fn new(file: &Arc<File>, at: u64) -> Sink {
        Sink { file: Arc::clone(file), at, gathered: Vec::new() }
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
        let (file, at) = (Arc::clone(&self.file), self.at);
        let bytes = std::mem::take(&mut self.gathered);
        let writing =
            tokio::task::spawn_blocking(move || file.write_all_at(&bytes, at).map(|()| bytes));
        let mut bytes = writing.await.map_err(io::Error::other)??;
        self.at += bytes.len() as u64;
        bytes.clear();
        self.gathered = bytes;
        Ok(())
    }
}
