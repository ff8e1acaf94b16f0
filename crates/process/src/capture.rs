//! Keeping what a task writes: a bounded head in memory, the whole in a file if asked for.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::os::unix::ffi::OsStringExt;

/// A head larger than this gives its memory back after the task.
const HEAD_KEPT_BYTES_MAX: usize = 256 << 10;

/// An output stream of the task in a slot; the memory is used again for the next task.
#[derive(Debug, Default)]
pub(super) struct Stream {
    head: Vec<u8>,
    head_bytes_max: usize,
    total_bytes: u64,
    /// Where the whole goes; empty if it goes nowhere.
    path: Vec<u8>,
    file: Option<File>,
    spilled: bool,
    error: Option<i32>,
}

impl Stream {
    /// Forgets the last task and gets ready for one that keeps `head_bytes_max`; a longer stream
    /// goes in full to the file `prefix` + `suffix`.
    pub(super) fn begin(&mut self, head_bytes_max: usize, prefix: Option<&[u8]>, suffix: &str) {
        if self.head.capacity() > HEAD_KEPT_BYTES_MAX {
            self.head = Vec::new();
        }
        self.head.clear();
        self.head_bytes_max = head_bytes_max;
        self.total_bytes = 0;
        self.path.clear();
        if let Some(prefix) = prefix {
            self.path.extend_from_slice(prefix);
            self.path.extend_from_slice(suffix.as_bytes());
        }
        self.spilled = false;
        self.error = None;
        self.file = None;
    }

    /// Takes the next bytes of the stream.
    pub(super) fn take(&mut self, bytes: &[u8]) {
        let room = self.head_bytes_max - self.head.len();
        let (kept, over) = bytes.split_at(room.min(bytes.len()));
        self.head.extend_from_slice(kept);
        self.total_bytes += bytes.len() as u64;
        if !over.is_empty() && !self.path.is_empty() && self.error.is_none() {
            // From the first failure on, the stream is only counted: the task must not be held
            // up, and a file with a hole would be worse than a short one.
            if let Err(error) = self.write_over(over) {
                self.error = Some(error.raw_os_error().unwrap_or(libc::EIO));
                self.file = None;
            }
        }
    }

    fn write_over(&mut self, over: &[u8]) -> std::io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => {
                let file = File::create(OsString::from_vec(self.path.clone()))?;
                self.spilled = true;
                let file = none.insert(file);
                file.write_all(&self.head)?;
                file
            }
        };
        file.write_all(over)
    }

    /// The stream has ended; closes the file.
    pub(super) fn finish(&mut self) {
        self.file = None;
    }

    pub(super) fn head(&self) -> &[u8] {
        &self.head
    }

    pub(super) fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    /// The part of the head from `from` on, at most `bytes_max` of it.
    pub(super) fn part(&self, from: u64, bytes_max: usize) -> &[u8] {
        let from = usize::try_from(from).unwrap_or(usize::MAX).min(self.head.len());
        let until = from.saturating_add(bytes_max).min(self.head.len());
        &self.head[from..until]
    }

    /// The file that holds the whole stream or, after an error, a first part of it.
    pub(super) fn spill(&self) -> Option<&[u8]> {
        self.spilled.then_some(self.path.as_slice())
    }

    pub(super) fn spill_error(&self) -> Option<i32> {
        self.error
    }
}
