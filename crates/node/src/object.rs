//! Data objects in the shell: how their ids are computed, and the files that
//! they arrive in.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use falkon_core::data::object::ObjectId;

/// The object that is found at `url` in its version `version`: the first 16
/// bytes of the BLAKE3 hash of the URL, a zero byte and the version. The URL is
/// in its canonical form (see [`StoreUrl`](crate::store::StoreUrl)).
#[must_use]
pub fn object_id(url: &str, version: &str) -> ObjectId {
    let mut hasher = blake3::Hasher::new();
    hasher.update(url.as_bytes()).update(&[0]).update(version.as_bytes());
    let mut id = [0; 16];
    id.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    ObjectId(u128::from_be_bytes(id))
}

/// What becomes known while an object arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The source has said how many bytes the whole object has.
    Sized(u64),
    /// The file is about to be written up to this offset, and the source has
    /// not said how large the object is.
    Arriving(u64),
}

/// Where one transfer writes: a place in a file, and who is told about it.
pub struct Landing {
    file: Arc<File>,
    at: u64,
    written: AtomicU64,
    whole: AtomicU64,
    tell: Box<dyn Fn(Progress) + Send + Sync>,
}

/// What stands for a size that is not known: no file is that large.
const UNKNOWN: u64 = u64::MAX;

impl Landing {
    /// A transfer into `file` from the offset `at` on. `tell` is called from
    /// whichever thread does the work and must not block.
    #[must_use]
    pub fn new(
        file: Arc<File>,
        at: u64,
        tell: impl Fn(Progress) + Send + Sync + 'static,
    ) -> Arc<Landing> {
        let (written, whole) = (AtomicU64::new(0), AtomicU64::new(UNKNOWN));
        Arc::new(Landing { file, at, written, whole, tell: Box::new(tell) })
    }

    /// How many bytes were written so far, from the start and without a gap.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    pub(crate) fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// Where the next byte goes.
    pub(crate) fn offset(&self) -> u64 {
        self.at + self.written()
    }

    /// The source has told the whole object's size.
    pub(crate) fn sized(&self, whole: u64) {
        self.whole.store(whole, Ordering::Release);
        (self.tell)(Progress::Sized(whole));
    }

    /// Says that `bytes` more are about to be written.
    pub(crate) fn expect(&self, bytes: u64) {
        if self.whole.load(Ordering::Acquire) == UNKNOWN {
            (self.tell)(Progress::Arriving(self.offset() + bytes));
        }
    }

    /// Writes what came next. One at a time.
    pub(crate) fn write(&self, bytes: &[u8]) -> io::Result<()> {
        self.expect(bytes.len() as u64);
        self.file.write_all_at(bytes, self.offset())?;
        self.advance(bytes.len() as u64);
        Ok(())
    }

    /// So many more bytes were written by other means.
    pub(crate) fn advance(&self, bytes: u64) {
        self.written.fetch_add(bytes, Ordering::AcqRel);
    }
}

impl fmt::Debug for Landing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Landing").field("at", &self.at).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_and_version_make_the_object() {
        assert_eq!(object_id("/a", "1"), object_id("/a", "1"));
        assert_ne!(object_id("/a", "1"), object_id("/a", "2"));
        assert_ne!(object_id("/a", "1"), object_id("/a1", ""));
    }
}
