//! Copying between local files with as little work as the kernel allows.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::{copy_file_range, ioctl_ficlone};
use rustix::io::Errno;

/// How much is copied at a time, in bytes: between two steps.
const PIECE_BYTES: usize = 8 << 20;

/// The buffer of a copy that the kernel does not do itself, in bytes.
const BUFFER_BYTES: usize = 1 << 20;

/// Why a copy came to nothing.
#[derive(Debug)]
pub enum CopyError {
    /// The source cannot be read.
    Read(io::Error),
    /// The target cannot be written.
    Write(io::Error),
    /// The copy was stopped.
    Stopped,
}

/// The progress of work that cannot be interrupted, and whether to continue it:
/// shared by the thread that does the work and the task that waits for it.
#[derive(Debug, Default)]
pub struct Steps {
    stopped: AtomicBool,
    done: AtomicU64,
}

impl Steps {
    /// Stops the work at its next step.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// The steps that were done.
    pub(super) fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Another step is done. False if the work is to stop.
    pub(super) fn go_on(&self) -> bool {
        self.done.fetch_add(1, Ordering::Relaxed);
        !self.stopped.load(Ordering::Relaxed)
    }
}

/// Copies `range` of `from` to the offset `at` of `to`, and says how many bytes
/// the source had of it: fewer than asked for if it ends before. Shares the
/// blocks where the file system can and the whole file is meant, else lets the
/// kernel copy, else copies. Counts `steps`, and stops when they say so.
///
/// # Errors
/// [`CopyError`]; any part of the range may have been copied.
pub fn copy_range(
    from: &File,
    range: Range<u64>,
    to: &File,
    at: u64,
    steps: &Steps,
) -> Result<u64, CopyError> {
    if range.start == 0 && at == 0 && shares(from, range.end, to)? {
        return Ok(range.end);
    }
    let (mut source, mut target) = (range.start, at);
    while source < range.end {
        if !steps.go_on() {
            return Err(CopyError::Stopped);
        }
        let length = (range.end - source).min(PIECE_BYTES as u64) as usize;
        match copy_file_range(from, Some(&mut source), to, Some(&mut target), length) {
            Ok(0) => break,
            Ok(_) | Err(Errno::INTR) => {}
            Err(
                Errno::XDEV
                | Errno::INVAL
                | Errno::NOSYS
                | Errno::OPNOTSUPP
                | Errno::PERM
                | Errno::BADF
                | Errno::IO,
            ) => break,
            Err(error) => return Err(sorted(error.into())),
        }
    }
    // Some file systems end early where a plain read goes on, and some calls
    // are not for all pairs of file systems: what is missing is read.
    copy_by_hand(from, source..range.end, to, target, steps)?;
    let left = from.metadata().map_err(CopyError::Read)?.len();
    Ok(left.min(range.end).saturating_sub(range.start))
}

/// Makes `to` share the blocks of `from` if that is possible and `from` has
/// `bytes` bytes.
fn shares(from: &File, bytes: u64, to: &File) -> Result<bool, CopyError> {
    let whole = from.metadata().map_err(CopyError::Read)?.len() == bytes && bytes > 0;
    if !whole || ioctl_ficlone(to, from).is_err() {
        return Ok(false);
    }
    Ok(to.metadata().map_err(CopyError::Write)?.len() == bytes)
}

fn copy_by_hand(
    from: &File,
    range: Range<u64>,
    to: &File,
    at: u64,
    steps: &Steps,
) -> Result<(), CopyError> {
    let (mut source, mut target) = (range.start, at);
    let length = range.end.saturating_sub(range.start).min(BUFFER_BYTES as u64) as usize;
    let mut buffer = vec![0; length];
    while source < range.end {
        if !steps.go_on() {
            return Err(CopyError::Stopped);
        }
        let wanted = (range.end - source).min(length as u64) as usize;
        match from.read_at(&mut buffer[..wanted], source) {
            Ok(0) => break,
            Ok(count) => {
                to.write_all_at(&buffer[..count], target).map_err(CopyError::Write)?;
                source += count as u64;
                target += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(CopyError::Read(error)),
        }
    }
    Ok(())
}

/// The side on which a copy within the kernel failed: only a write runs out of
/// room.
fn sorted(error: io::Error) -> CopyError {
    if is_full(&error) { CopyError::Write(error) } else { CopyError::Read(error) }
}

/// Whether `error` says that there is no room: on the device, in the quota, or
/// under the file size limit.
#[must_use]
pub fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}
