//! Directories for what a process needs while it runs: caches, tasks'
//! directories, output that is too long to be kept in memory. Each of these is a
//! directory of its own in it.

use crate::exit::Exit;
use falkon_data::overflow::node_tag;
use falkon_executor::CacheSetup;
use rustix::fs::{FlockOperation, Mode, OFlags, flock, fstat, open};
use std::fs::DirBuilder;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// A directory that this process uses alone, or one that its user has chosen.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
    /// This process made the directory.
    is_made: bool,
    /// The user has named the directory.
    is_chosen: bool,
    /// The directory, locked as long as this process lives: an unlocked one is
    /// known to be unused. Some file systems have no locks.
    _held: Option<OwnedFd>,
}

impl Scratch {
    /// A new one in the temporary directory, after what was left there by
    /// processes of the same `name` that were killed is removed.
    pub(crate) fn new(name: &str) -> Result<Scratch, Exit> {
        Scratch::new_in(&std::env::temp_dir(), &format!("{name}-{}", node_tag()))
    }

    /// A scratch directory (see [`Scratch::new`]) whose `name` is of this node
    /// alone: where file systems are shared without locks, those of other nodes
    /// seem unused here.
    fn new_in(parent: &Path, name: &str) -> Result<Scratch, Exit> {
        sweep(parent, name);
        let mut number = 0;
        loop {
            // Other users may write there too, so the directory is new and
            // closed to them.
            let path = parent.join(format!("{name}-{}-{number}", std::process::id()));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => match hold(&path) {
                    Hold::Held(held) => {
                        return Ok(Scratch { path, is_made: true, is_chosen: false, _held: held });
                    }
                    // Another process that swept took it for a dead one's.
                    Hold::Taken => number += 1,
                },
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => number += 1,
                Err(error) => {
                    return Err(Exit::usage(format!(
                        "cannot create {}: {error} (TMPDIR says where temporary files go)",
                        path.display()
                    )));
                }
            }
        }
    }

    /// A directory that the user has chosen, made if it does not exist.
    pub(crate) fn at(path: PathBuf) -> Result<Scratch, Exit> {
        let is_made = !path.exists();
        std::fs::create_dir_all(&path)
            .map_err(|error| Exit::usage(format!("cannot create {}: {error}", path.display())))?;
        Ok(Scratch { path, is_made, is_chosen: true, _held: None })
    }

    /// For workers, if this one was chosen for something else: sockets have short paths, and not
    /// all file systems have them.
    pub(crate) fn for_workers(&self, name: &str) -> Result<Option<Scratch>, Exit> {
        if self.is_chosen { Scratch::new(name).map(Some) } else { Ok(None) }
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the directory if this process made it and nothing else is in it. The
    /// `cache` that was made in it for this process alone goes in any case.
    pub(crate) fn leave(self, cache: Option<CacheSetup>) {
        for (directory, _) in cache.into_iter().flat_map(|cache| cache.directories) {
            if directory.starts_with(&self.path) {
                // A directory that cannot be removed does no harm.
                let _ = falkon_data::unpack::remove(&directory);
            }
        }
        if self.is_made {
            // This fails if files are left in it.
            let _ = std::fs::remove_dir(&self.path);
        }
    }

    /// Removes it with all that is in it.
    pub(crate) fn remove(self) {
        let _ = falkon_data::unpack::remove(&self.path);
    }
}

enum Hold {
    Held(Option<OwnedFd>),
    Taken,
}

fn open_directory(path: &Path) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    open(path, flags, Mode::empty()).ok()
}

fn hold(path: &Path) -> Hold {
    let Some(directory) = open_directory(path) else { return Hold::Taken };
    match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => return Hold::Taken,
        Err(_) => return Hold::Held(None),
    }
    // The directory may have been removed before it was locked.
    match fstat(&directory) {
        Ok(now) if now.st_nlink > 0 => Hold::Held(Some(directory)),
        _ => Hold::Taken,
    }
}

/// Removes what killed processes left in `parent`, as far as it can be removed.
/// Files stay: falkon puts none there.
fn sweep(parent: &Path, name: &str) {
    let Ok(entries) = std::fs::read_dir(parent) else { return };
    let us = rustix::process::geteuid().as_raw();
    for entry in entries.flatten() {
        if !is_ours(&entry.file_name().to_string_lossy(), name) {
            continue;
        }
        let path = entry.path();
        let Some(directory) = open_directory(&path) else { continue };
        if fstat(&directory).map_or(true, |found| found.st_uid != us)
            || flock(&directory, FlockOperation::NonBlockingLockExclusive).is_err()
        {
            continue;
        }
        for inner in std::fs::read_dir(&path).into_iter().flatten().flatten() {
            // Caches, tasks' directories and output.
            if inner.file_type().is_ok_and(|kind| kind.is_dir()) {
                let _ = falkon_data::unpack::remove(&inner.path());
            }
        }
        let _ = std::fs::remove_dir(&path);
    }
}

/// Whether a directory's name is one that [`Scratch::new`] gives.
fn is_ours(directory: &str, name: &str) -> bool {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    directory
        .strip_prefix(name)
        .and_then(|rest| rest.strip_prefix('-'))
        .and_then(|rest| rest.split_once('-'))
        .is_some_and(|(pid, count)| number(pid) && number(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_its_user_made_stays() {
        let dir = tempfile::tempdir().unwrap();
        let (given, made) = (dir.path().join("given"), dir.path().join("made"));
        std::fs::create_dir(&given).unwrap();
        for path in [&given, &made] {
            Scratch::at(path.clone()).unwrap().leave(None);
        }
        assert!(given.exists() && !made.exists());
    }

    #[test]
    fn what_is_unlocked_goes_if_it_is_of_this_node_alone() {
        let dir = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.join("cache")).unwrap();
            path
        };
        let [dead, elsewhere, nowhere] =
            ["falkon-0123abcd-12-0", "falkon-89ef4567-12-0", "falkon-12-0"].map(make);
        let scratch = Scratch::new_in(dir.path(), "falkon-0123abcd").unwrap();
        assert!(!dead.exists() && elsewhere.exists() && nowhere.exists());
        let other = Scratch::new_in(dir.path(), "falkon-0123abcd").unwrap();
        assert!(scratch.path().exists() && scratch.path() != other.path());
    }

    #[test]
    fn names_of_others_are_not_ours() {
        assert!(is_ours("falkon-12-0", "falkon"));
        for other in ["falkon-executor-12-0", "falkon-12", "falkon-12-", "falkon--1", "falkon-1-0x"]
        {
            assert!(!is_ours(other, "falkon"), "{other}");
        }
    }
}
