//! Output of this executor's tasks that is too long to be sent.

use super::watchdog::{Position, WaitPoint};
use falkon_core::execute::TaskKey;
use falkon_core::result::{Captured, Overflow, Stream};
use falkon_data::overflow::OverflowDirectory;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Keeps output in this executor's directory, and says under which numbers.
#[derive(Debug, Clone)]
pub(super) struct Outputs {
    directory: OverflowDirectory,
    incarnation: u64,
    position: Arc<Position>,
}

impl Outputs {
    pub(super) fn new(
        directory: OverflowDirectory,
        incarnation: u64,
        position: Arc<Position>,
    ) -> Outputs {
        Outputs { directory, incarnation, position }
    }

    /// Where the files are.
    pub(super) fn folder(&self) -> &Path {
        self.directory.path()
    }

    /// Where a stream is that is kept under this number.
    pub(super) fn file(&self, number: u64, stream: Stream) -> PathBuf {
        self.directory.file(number, stream)
    }

    /// A number for what the next attempt at a task writes, and what its files
    /// are called, but for a point and the stream's name.
    pub(super) fn next(&self) -> (u64, PathBuf) {
        let number = self.directory.next_number();
        (number, self.directory.prefix(number))
    }

    /// A process's stream as it was captured, the whole in the files of `number`
    /// if it is long. `error` says what could not be written.
    pub(super) fn captured(
        &self,
        key: TaskKey,
        stream: Stream,
        number: u64,
        captured: falkon_process::Captured,
        error: &mut String,
    ) -> Captured {
        let falkon_process::Captured { head, total_bytes, spill, spill_error } = captured;
        let overflow = match (spill, spill_error) {
            (_, Some(errno)) => {
                // A part is of no use, and the disk may be full of it.
                let _at = self.position.at(WaitPoint::Overflow);
                self.directory.drop_file(number, stream);
                cut(stream, &std::io::Error::from_raw_os_error(errno).to_string(), error);
                None
            }
            (None, None) => None,
            (Some(_), None) => {
                self.directory.keep((key.instance, key.task), stream, number, total_bytes);
                Some(Overflow { incarnation: self.incarnation, number })
            }
        };
        Captured { head, total_bytes, overflow, member: None }
    }

    /// Removes the output under this number, which no report will name.
    pub(super) fn drop_unreported(&self, number: u64) {
        for stream in Stream::BOTH {
            self.directory.drop_file(number, stream);
        }
    }

    /// Adopts output that a worker captured (see [`Outputs::captured`]): the
    /// file with all of it must be in the folder that the worker was given.
    pub(super) fn adopted(
        &self,
        key: TaskKey,
        stream: Stream,
        captured: falkon_process::Captured,
        capture_bytes_max: u64,
        error: &mut String,
    ) -> Captured {
        let falkon_process::Captured { mut head, total_bytes, spill, .. } = captured;
        head.truncate(usize::try_from(capture_bytes_max).unwrap_or(usize::MAX));
        let Some(given) = spill else {
            return Captured { head, total_bytes, ..Captured::default() };
        };
        let given = PathBuf::from(OsString::from_vec(given));
        let number = self.directory.next_number();
        let overflow = match self.adopt(&given, stream, number, total_bytes) {
            Ok(()) => {
                self.directory.keep((key.instance, key.task), stream, number, total_bytes);
                Some(Overflow { incarnation: self.incarnation, number })
            }
            Err(reason) => {
                self.directory.drop_given(given);
                cut(stream, &reason, error);
                None
            }
        };
        Captured { head, total_bytes, overflow, member: None }
    }

    fn adopt(
        &self,
        given: &Path,
        stream: Stream,
        number: u64,
        total_bytes: u64,
    ) -> Result<(), String> {
        let _at = self.position.at(WaitPoint::Overflow);
        if given.parent() != Some(self.directory.path()) {
            return Err(format!("its worker gave a file elsewhere: {}", given.display()));
        }
        let found = std::fs::symlink_metadata(given).map_err(|error| error.to_string())?;
        if !found.is_file() || found.len() != total_bytes {
            return Err(format!(
                "the file that its worker gave has {} bytes and should have {total_bytes}",
                found.len()
            ));
        }
        std::fs::rename(given, self.directory.file(number, stream))
            .map_err(|error| error.to_string())
    }

    /// Checks a file in which a worker has left a value: it must be in the
    /// folder that the worker was given. Returns the incarnation of this
    /// executor.
    pub(super) fn left(&self, given: &Path) -> Result<u64, String> {
        if given.parent() != Some(self.directory.path()) {
            return Err(format!("its worker left a value elsewhere: {}", given.display()));
        }
        Ok(self.incarnation)
    }

    /// Discards output that is not needed any more: runs of numbers, as (first,
    /// count).
    pub(super) fn discard(&self, runs: &[(u64, u64)]) {
        let _at = self.position.at(WaitPoint::Overflow);
        self.directory.discard(runs);
    }
}

/// Adds to a task's error that one of its streams is cut.
fn cut(stream: Stream, reason: &str, error: &mut String) {
    if !error.is_empty() {
        error.push_str("; ");
    }
    let name = stream.name();
    error.push_str(&format!("its {name} is cut, because it could not be written: {reason}"));
}
