//! The lock that keeps two dispatchers from sharing one journal.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use falkon_lock::{Claimed, FolderLock};

/// Name of the lock file in the journal's directory.
const LOCK_FILE: &str = "journal.lock";

/// Name of what stands in for the lock where the file system has none.
const CLAIM_FILE: &str = "journal.claim";

/// Where the running kernel tells its boots apart.
const BOOT_ID_FILE: &str = "/proc/sys/kernel/random/boot_id";

/// The lines have a fixed width, so that one write replaces them without a moment of an empty file.
const PID_LINE_BYTES: usize = 16;
const BOOT_LINE_BYTES: usize = 42;
const LOCK_FILE_BYTES: usize = PID_LINE_BYTES + BOOT_LINE_BYTES;

/// Why the lock was not taken.
#[derive(Debug)]
pub(super) enum LockError {
    /// Another process has it; its pid, if the file says so.
    Held(Option<u32>),
    /// Another process has claimed it, on a file system without locks.
    Claimed(Claimed),
    /// The operating system refused.
    Io(io::Error),
}

/// Holds the lock until it is dropped, also by the death of the process.
#[derive(Debug)]
pub(super) struct Lock {
    held: FolderLock,
    boot: Option<String>,
    boot_before: Option<String>,
}

impl Lock {
    /// Takes the lock of the journal in `dir` and writes this process's pid into it.
    pub(super) fn take(dir: &Path) -> Result<Lock, LockError> {
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(dir.join(LOCK_FILE))
            .map_err(LockError::Io)?;
        let (pid, _) = read_lines(&file).map_err(LockError::Io)?;
        let held = FolderLock::take(file, &dir.join(CLAIM_FILE)).map_err(|error| match error {
            falkon_lock::LockError::Held => LockError::Held(pid),
            falkon_lock::LockError::Claimed(claimed) => LockError::Claimed(claimed),
            falkon_lock::LockError::Io(error) => LockError::Io(error),
        })?;
        let (_, boot_before) = read_lines(held.file()).map_err(LockError::Io)?;
        let boot = std::fs::read_to_string(BOOT_ID_FILE).ok().map(|id| id.trim().to_owned());
        let lock = Lock { held, boot, boot_before };
        lock.write(lock.boot_before.as_deref()).map_err(LockError::Io)?;
        Ok(lock)
    }

    /// Whether the machine has certainly been restarted since the last owner
    /// recovered the journal, so that writes that were not synced may be
    /// missing in any order.
    pub(super) fn machine_restarted(&self) -> bool {
        matches!((&self.boot, &self.boot_before), (Some(now), Some(before)) if now != before)
    }

    /// Notes that the journal is whole as of this boot of the machine, on stable storage before
    /// anything is appended: a crash of the machine is then known by its boot.
    pub(super) fn recovered(&self) -> io::Result<()> {
        self.write(self.boot.as_deref())?;
        self.held.file().sync_data()
    }

    fn write(&self, boot: Option<&str>) -> io::Result<()> {
        let lines = format!("pid {:>11}\nboot {:>36.36}\n", std::process::id(), boot.unwrap_or(""));
        self.held.file().write_all_at(lines.as_bytes(), 0)
    }
}

/// The pid and the boot id in a lock file; `None` for what it does not say.
fn read_lines(file: &File) -> io::Result<(Option<u32>, Option<String>)> {
    let mut bytes = [0; LOCK_FILE_BYTES];
    let mut length = 0;
    while length < bytes.len() {
        match file.read_at(&mut bytes[length..], length as u64)? {
            0 => break,
            read => length += read,
        }
    }
    let text = String::from_utf8_lossy(&bytes[..length]);
    let line = |key: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(key))?.trim();
        (!value.is_empty()).then(|| value.to_owned())
    };
    Ok((line("pid ").and_then(|pid| pid.parse().ok()), line("boot ")))
}
