//! A lock on a folder that one process at a time may use, also where the file
//! system has no locks.
//!
//! `flock` ends with its process, however that ends, and is what counts where
//! it works. Some file systems refuse it (Lustre without `-o flock`, some NFS
//! and FUSE mounts). There a *claim* takes its place: a file that only one
//! process can create, and that names its maker: host, boot, process namespace,
//! process and when that started. A claim whose maker is known to be gone
//! counts for nothing. The end of a maker on another host cannot be seen from
//! here: that claim stands until a user removes it.

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Where the running kernel tells its boots apart.
const BOOT_ID_FILE: &str = "/proc/sys/kernel/random/boot_id";
/// The processes that a number can mean.
const PID_NAMESPACE: &str = "/proc/self/ns/pid";
/// The place, counted from 0 behind the command's name, of the field of
/// `/proc/PID/stat` that says when a process started.
const STAT_STARTED: usize = 19;
/// The ending of a claim's name while a claim of the dead is removed.
const TAKEOVER_SUFFIX: &str = ".takeover";

/// A process, as a claim names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    host: String,
    boot: String,
    pids: String,
    pid: u32,
    started: u64,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} on {}", self.pid, self.host)
    }
}

/// What the running kernel calls itself since it was started; `None` if it does not
/// say.
#[must_use]
pub fn boot_id() -> Option<String> {
    let text = fs::read_to_string(BOOT_ID_FILE).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

impl Holder {
    /// This process.
    fn own() -> Holder {
        let pid = std::process::id();
        Holder {
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            boot: boot_id().unwrap_or_default(),
            pids: fs::read_link(PID_NAMESPACE)
                .map(|link| link.to_string_lossy().into_owned())
                .unwrap_or_default(),
            pid,
            started: started(pid).unwrap_or_default(),
        }
    }

    /// Of a claim's text; `None` if it is none.
    fn read(text: &str) -> Option<Holder> {
        let value = |key: &str| {
            text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')).map(str::trim)
        };
        Some(Holder {
            host: value("host")?.to_owned(),
            boot: value("boot")?.to_owned(),
            pids: value("pids")?.to_owned(),
            pid: value("pid")?.parse().ok()?,
            started: value("started")?.parse().ok()?,
        })
    }

    fn text(&self) -> String {
        let Holder { host, boot, pids, pid, started } = self;
        format!("host {host}\nboot {boot}\npids {pids}\npid {pid}\nstarted {started}\n")
    }

    /// Whether it has certainly ended, as far as `own` can tell.
    fn is_gone(&self, own: &Holder) -> bool {
        if self.host != own.host || self.boot.is_empty() {
            return false;
        }
        if self.boot != own.boot {
            return true;
        }
        self.pids == own.pids && started(self.pid) != Some(self.started)
    }
}

/// When a process started, in the kernel's ticks; `None` if there is none.
fn started(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command's name is in parentheses and may hold some itself.
    stat.rsplit_once(')')?.1.split_whitespace().nth(STAT_STARTED)?.parse().ok()
}

/// Why the lock was not taken.
#[derive(Debug)]
pub enum LockError {
    /// Another process has it.
    Held,
    /// Another process has claimed it, where there are no locks.
    Claimed(Claimed),
    /// The operating system refused.
    Io(io::Error),
}

/// The claim of a process that may still live.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claimed {
    /// The process that claims it; `None` if the claim does not say.
    pub holder: Option<Box<Holder>>,
    /// The file to remove if that process is gone.
    pub claim: PathBuf,
}

impl fmt::Display for Claimed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.holder {
            Some(holder) => write!(f, "{holder} has claimed it")?,
            None => f.write_str("another process has claimed it")?,
        }
        let claim = self.claim.display();
        write!(f, "; if that is certainly gone, remove {claim}")
    }
}

/// Holds the lock until it is dropped.
#[derive(Debug)]
pub struct FolderLock {
    /// Locked, where that works: also the death of the process ends it.
    file: File,
    claim: Option<Claim>,
}

impl FolderLock {
    /// Locks `file`. Where the file system has no locks, the file at `claim`
    /// is made instead.
    ///
    /// # Errors
    /// Another process holds it, or the operating system refuses.
    pub fn take(file: File, claim: &Path) -> Result<FolderLock, LockError> {
        let locked = flock(&file, FlockOperation::NonBlockingLockExclusive);
        FolderLock::from_outcome(file, locked, claim)
    }

    fn from_outcome(
        file: File,
        locked: Result<(), Errno>,
        path: &Path,
    ) -> Result<FolderLock, LockError> {
        match locked {
            Ok(()) => {
                // Another host may see the same folder without locks.
                Claim::check(path)?;
                Ok(FolderLock { file, claim: None })
            }
            Err(Errno::WOULDBLOCK) => Err(LockError::Held),
            Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK | Errno::INVAL) => {
                Ok(FolderLock { file, claim: Some(Claim::make(path)?) })
            }
            Err(error) => Err(LockError::Io(error.into())),
        }
    }

    /// The file that was to be locked.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Whether the file system has no locks, so that a claim takes their place.
    #[must_use]
    pub fn is_claim(&self) -> bool {
        self.claim.is_some()
    }
}

/// A file that says who uses a folder; removed when dropped.
#[derive(Debug)]
struct Claim {
    path: PathBuf,
    text: String,
}

impl Drop for Claim {
    fn drop(&mut self) {
        if fs::read_to_string(&self.path).is_ok_and(|text| text == self.text) {
            // A claim that stays names a process that is gone.
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Claim {
    /// Fails if there is a claim of a process that may still live.
    fn check(path: &Path) -> Result<(), LockError> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(LockError::Io(error)),
        };
        match Holder::read(&text) {
            Some(holder) if holder.is_gone(&Holder::own()) => Ok(()),
            holder => {
                let holder = holder.map(Box::new);
                Err(LockError::Claimed(Claimed { holder, claim: path.to_owned() }))
            }
        }
    }

    fn make(path: &Path) -> Result<Claim, LockError> {
        let own = Holder::own();
        match Claim::create(path, &own) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => return made.map_err(LockError::Io),
        }
        Claim::check(path)?;
        // Only one may remove what the dead left: a second one would remove
        // the first one's new claim.
        let mut name = path.as_os_str().to_owned();
        name.push(TAKEOVER_SUFFIX);
        let takeover = PathBuf::from(name);
        match Claim::create(&takeover, &own) {
            Ok(taking) => {
                Claim::check(path)?;
                match fs::remove_file(path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        return Err(LockError::Io(error));
                    }
                    _ => {}
                }
                let made = Claim::create(path, &own);
                drop(taking);
                made.map_err(|error| match error.kind() {
                    io::ErrorKind::AlreadyExists => {
                        LockError::Claimed(Claimed { holder: None, claim: path.to_owned() })
                    }
                    _ => LockError::Io(error),
                })
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let holder = fs::read_to_string(&takeover).ok();
                let holder = holder.and_then(|text| Holder::read(&text)).map(Box::new);
                Err(LockError::Claimed(Claimed { holder, claim: takeover }))
            }
            Err(error) => Err(LockError::Io(error)),
        }
    }

    fn create(path: &Path, own: &Holder) -> io::Result<Claim> {
        let mut file = File::options().write(true).create_new(true).mode(0o644).open(path)?;
        let text = own.text();
        match file.write_all(text.as_bytes()).and_then(|()| file.sync_all()) {
            Ok(()) => Ok(Claim { path: path.to_owned(), text }),
            Err(error) => {
                // The claim is empty, so its maker could never be known.
                let _ = fs::remove_file(path);
                Err(error)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(dir: &Path, locked: Result<(), Errno>) -> Result<FolderLock, LockError> {
        let file = File::create(dir.join("lock")).unwrap();
        FolderLock::from_outcome(file, locked, &dir.join("claim"))
    }

    #[test]
    fn a_claim_keeps_others_out_until_its_maker_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        for refusal in [Errno::NOSYS, Errno::OPNOTSUPP, Errno::NOLCK] {
            let lock = take(dir, Err(refusal)).unwrap();
            assert!(lock.is_claim());
            // Neither where there are no locks, nor where there are.
            for locked in [Err(refusal), Ok(())] {
                let Err(LockError::Claimed(Claimed { holder, .. })) = take(dir, locked) else {
                    panic!("{locked:?}: it is claimed");
                };
                assert_eq!(holder, Some(Box::new(Holder::own())));
            }
            drop(lock);
            assert!(!dir.join("claim").exists());
        }
        let own = Holder::own();
        let written = |holder: Holder| fs::write(dir.join("claim"), holder.text()).unwrap();
        // The number is another process's now, or the machine was restarted.
        for gone in [
            Holder { started: own.started + 1, ..own.clone() },
            Holder { boot: "earlier".to_owned(), ..own.clone() },
        ] {
            written(gone);
            assert!(take(dir, Ok(())).is_ok());
            drop(take(dir, Err(Errno::NOSYS)).unwrap());
        }
        for unknown in [
            Holder { host: "elsewhere".to_owned(), started: 0, ..own.clone() },
            Holder { pids: "of a container".to_owned(), started: 0, ..own.clone() },
        ] {
            written(unknown);
            assert!(matches!(take(dir, Err(Errno::NOSYS)), Err(LockError::Claimed(_))));
        }
        fs::write(dir.join("claim"), "").unwrap();
        assert!(matches!(take(dir, Ok(())), Err(LockError::Claimed(Claimed { holder: None, .. }))));
    }

    #[test]
    fn other_refusals_are_told() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(take(dir.path(), Err(Errno::WOULDBLOCK)), Err(LockError::Held)));
        assert!(matches!(take(dir.path(), Err(Errno::IO)), Err(LockError::Io(_))));
    }
}
