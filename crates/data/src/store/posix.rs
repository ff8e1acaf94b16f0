//! The store that is a file system.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::object::Landing;

use super::copy::Steps;
use super::{CopyError, Fetched, Resolved, StoreError, Want, copy_range};

/// Threads of a process that read and write files of stores, those that a file
/// system keeps included: half of what the runtime has for calls that block.
const THREADS_MAX: usize = 256;
static THREADS: Semaphore = Semaphore::const_new(THREADS_MAX);

/// A file's version: its size, and when it was last written, in nanoseconds
/// since the Unix epoch.
#[must_use]
pub fn version_of(file: &Metadata) -> String {
    let nanos = i128::from(file.mtime()) * 1_000_000_000 + i128::from(file.mtime_nsec());
    format!("{}-{nanos}", file.len())
}

/// The size and the version of a plain file.
pub(super) fn state_of(path: &Path) -> Result<Resolved, StoreError> {
    let file = fs::metadata(path).map_err(|error| sorted(path, error))?;
    plain(path, &file)?;
    Ok(Resolved { bytes: Some(file.len()), version: version_of(&file) })
}

pub(super) async fn resolve(path: &Path, silence: Duration) -> Result<Resolved, StoreError> {
    let path = path.to_owned();
    let at = path.clone();
    aside(&at, Some(silence), move |_| state_of(&path)).await
}

pub(super) async fn fetch(
    path: &Path,
    want: &Want,
    target: &Arc<Landing>,
    silence: Duration,
) -> Result<Fetched, StoreError> {
    let (path, want, target) = (path.to_owned(), want.clone(), Arc::clone(target));
    let at = path.clone();
    aside(&at, Some(silence), move |steps| copy_out(&path, &want, &target, steps)).await
}

pub(super) async fn put(source: &Path, path: &Path) -> Result<Resolved, StoreError> {
    let (source, path) = (source.to_owned(), path.to_owned());
    let at = path.clone();
    // The time that a file of any size takes to reach its disk has no bound.
    aside(&at, None, move |steps| copy_in(&source, &path, steps)).await
}

/// Does `work` where it may block, within `silence` from step to step. The work
/// stops when it is not waited for any more; a thread that a file system keeps
/// stays where it is.
pub(super) async fn aside<T: Send + 'static>(
    path: &Path,
    silence: Option<Duration>,
    work: impl FnOnce(&Steps) -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    struct Stop(Arc<Steps>);
    impl Drop for Stop {
        fn drop(&mut self) {
            self.0.stop();
        }
    }
    let unreachable =
        |reason: String| StoreError::Unreachable { url: path.display().to_string(), reason };
    let pause = silence.unwrap_or(Duration::MAX);
    let Ok(thread) = timeout(pause, THREADS.acquire()).await else {
        let reason = "the threads of this process that read files wait for other file systems";
        return Err(unreachable(format!("{reason} (for {} s)", pause.as_secs_f64())));
    };
    let stop = Stop(Arc::default());
    let steps = Arc::clone(&stop.0);
    let mut work = tokio::task::spawn_blocking(move || {
        let _thread = thread;
        work(&steps)
    });
    let mut before = stop.0.done();
    loop {
        match timeout(pause, &mut work).await {
            Ok(done) => {
                let lost = |lost| Err(unreachable(format!("the copy was given up: {lost}")));
                return done.unwrap_or_else(lost);
            }
            Err(_) if stop.0.done() == before => {
                let reason = "the file system has not answered for";
                return Err(unreachable(format!("{reason} {} s", pause.as_secs_f64())));
            }
            Err(_) => before = stop.0.done(),
        }
    }
}

fn copy_out(
    path: &Path,
    want: &Want,
    target: &Landing,
    steps: &Steps,
) -> Result<Fetched, StoreError> {
    let url = path.display().to_string();
    let file = open(path)?;
    let state = |file: &File| {
        let now = file.metadata().map_err(|error| sorted(path, error))?;
        plain(path, &now)?;
        Ok(Resolved { bytes: Some(now.len()), version: version_of(&now) })
    };
    let before = state(&file)?;
    want.check(&url, &before)?;
    let whole = before.bytes.unwrap_or_default();
    target.sized(whole);
    let range = want.within(whole).ok_or_else(|| want.beyond(&url, whole))?;
    let wanted = range.end - range.start;
    let to = target.file().map_err(|error| StoreError::local(url.clone(), error))?;
    let copied = copy_range(&file, range, to, target.offset(), steps);
    let bytes = copied.map_err(|error| copy_failed(path, error))?;
    let after = state(&file)?;
    if after != before || bytes != wanted {
        let reason = format!("its version was {} and is {}", before.version, after.version);
        return Err(StoreError::Changed { url, reason, now: Some(after) });
    }
    target.advance(bytes);
    Ok(Fetched { bytes, version: before.version })
}

fn copy_in(source: &Path, path: &Path, steps: &Steps) -> Result<Resolved, StoreError> {
    let url = || path.display().to_string();
    let from = File::open(source).map_err(|error| StoreError::local(url(), error))?;
    let before = from.metadata().map_err(|error| StoreError::local(url(), error))?;
    let folder = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(folder).map_err(|error| target_failed(path, error))?;
    if fs::metadata(path).is_ok_and(|there| there.is_dir()) {
        return Err(StoreError::Refused { url: url(), reason: "it is a directory".to_owned() });
    }
    let part = Part::create(folder, &before).map_err(|error| target_failed(path, error))?;
    let copied = copy_range(&from, 0..before.len(), &part.file, 0, steps);
    let bytes = copied.map_err(|error| match error {
        CopyError::Read(error) => StoreError::local(url(), error),
        CopyError::Write(error) => target_failed(path, error),
        CopyError::Stopped => given_up(path),
    })?;
    let after = from.metadata().map_err(|error| StoreError::local(url(), error))?;
    if bytes != before.len() || version_of(&after) != version_of(&before) {
        let reason = format!("{} was written while it was copied", source.display());
        return Err(StoreError::Changed { url: url(), reason, now: None });
    }
    let written = part.finish(path, folder).map_err(|error| target_failed(path, error))?;
    Ok(Resolved { bytes: Some(written.len()), version: version_of(&written) })
}

/// A file under a temporary name, which goes away with it.
struct Part {
    file: File,
    path: PathBuf,
}

impl Part {
    /// A new file in `folder`. It may be run if its source may be.
    fn create(folder: &Path, source: &Metadata) -> io::Result<Part> {
        let mut number = [0; 8];
        getrandom::fill(&mut number).map_err(|error| io::Error::other(error.to_string()))?;
        let path = folder.join(format!(".falkon-{:016x}.part", u64::from_le_bytes(number)));
        let mode = 0o666 | (source.mode() & 0o111);
        let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&path)?;
        Ok(Part { file, path })
    }

    /// Gives it its name once all of it is on the device.
    fn finish(self, path: &Path, folder: &Path) -> io::Result<Metadata> {
        self.file.sync_all()?;
        let written = self.file.metadata()?;
        fs::rename(&self.path, path)?;
        // Some network file systems cannot sync a folder, and need not.
        match File::open(folder).and_then(|folder| folder.sync_all()) {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {}
            result => result?,
        }
        Ok(written)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // After the renaming there is nothing of this name.
        let _ = fs::remove_file(&self.path);
    }
}

/// Opens a file for reading; never waits for the writer of a pipe.
pub(super) fn open(path: &Path) -> Result<File, StoreError> {
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    OpenOptions::new()
        .read(true)
        .custom_flags(nonblocking)
        .open(path)
        .map_err(|error| sorted(path, error))
}

fn plain(path: &Path, file: &Metadata) -> Result<(), StoreError> {
    if file.is_file() {
        return Ok(());
    }
    let what = match file.is_dir() {
        true => "a directory (--unpack NAME=DIRECTORY/, with a slash, has it packed)",
        false => "not a plain file",
    };
    Err(StoreError::Refused { url: path.display().to_string(), reason: format!("it is {what}") })
}

pub(super) fn given_up(path: &Path) -> StoreError {
    let reason = "nobody waits for the copy any more".to_owned();
    StoreError::Unreachable { url: path.display().to_string(), reason }
}

fn copy_failed(path: &Path, error: CopyError) -> StoreError {
    match error {
        CopyError::Read(error) => sorted(path, error),
        CopyError::Write(error) => StoreError::local(path.display().to_string(), error),
        CopyError::Stopped => given_up(path),
    }
}

/// Converts an error of a file system to which an output is written: lack of
/// room does not go away by retrying, and is not the local disk's.
fn target_failed(path: &Path, error: io::Error) -> StoreError {
    if super::is_full(&error) {
        let reason = format!("there is no room: {error}");
        return StoreError::Refused { url: path.display().to_string(), reason };
    }
    sorted(path, error)
}

/// Converts an error of a source's file system.
pub(super) fn sorted(path: &Path, error: io::Error) -> StoreError {
    use io::ErrorKind as Kind;
    let url = path.display().to_string();
    let reason = error.to_string();
    match error.kind() {
        Kind::NotFound | Kind::NotADirectory => StoreError::NotThere { url },
        Kind::PermissionDenied | Kind::ReadOnlyFilesystem => StoreError::NotAllowed { url, reason },
        // A server that is away, a mount that is being replaced, a disk that
        // fails now and then: all that may pass.
        Kind::TimedOut
        | Kind::StaleNetworkFileHandle
        | Kind::HostUnreachable
        | Kind::NetworkUnreachable
        | Kind::NetworkDown
        | Kind::NotConnected
        | Kind::ConnectionRefused
        | Kind::ConnectionReset
        | Kind::ConnectionAborted
        | Kind::ResourceBusy
        | Kind::OutOfMemory
        | Kind::Interrupted => StoreError::Unreachable { url, reason },
        _ => match rustix::io::Errno::from_io_error(&error) {
            Some(
                rustix::io::Errno::IO
                | rustix::io::Errno::NXIO
                | rustix::io::Errno::AGAIN
                | rustix::io::Errno::MFILE
                | rustix::io::Errno::NFILE
                | rustix::io::Errno::HOSTDOWN,
            ) => StoreError::Unreachable { url, reason },
            _ => StoreError::Refused { url, reason },
        },
    }
}
