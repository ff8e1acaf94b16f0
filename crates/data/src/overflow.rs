//! Output of tasks that is too long to be sent: files in a directory that one
//! process makes for itself, and that no other process opens or removes.
//!
//! The directory's name is drawn at random, so no file in it collides with
//! those of another executor, of whatever dispatcher. A file in it is locked as
//! long as the process lives. An executor that starts removes the directories
//! that dead ones left beside its own: only those with the name, the marker,
//! the owner and the node of its kind, and in them only files that are named as
//! here.
//!
//! A file goes when the result that it belongs to is forgotten, when it is
//! [`AGE_S_MAX`] old, and with the process.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak, mpsc};
use std::time::{Duration, Instant};

use falkon_core::data::object::ObjectId;
use falkon_core::result::Stream;
use falkon_core::task::{InstanceId, TaskId};
use falkon_net::ids::output_id;
use rustix::fs::{FlockOperation, flock};

/// The age in seconds at which output is removed whether its result is
/// forgotten or not: a week.
pub const AGE_S_MAX: u64 = 7 * 24 * 3600;
/// How often old output is looked for, in seconds.
const AGE_CHECK_S: u64 = 600;
/// The prefix of the names of these directories.
const PREFIX: &str = "falkon-overflow-";
/// Hexadecimal digits that follow.
const NAME_DIGITS: usize = 16;
/// The file that shows that a directory is one of these. It is locked.
const MARKER: &str = "falkon-overflow";
/// Longest marker that is read.
const MARKER_BYTES_MAX: u64 = 512;
/// Names that are tried before the random source counts as broken.
const NAMES_MAX: u32 = 16;

/// A process's directory for output. Cheap to clone; it is removed with
/// [`OverflowDirectory::close`], or with the last clone.
#[derive(Debug, Clone)]
pub struct OverflowDirectory {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    /// Keeps the marker locked.
    _marker: File,
    next: AtomicU64,
    files: Mutex<Files>,
    remove: Mutex<Option<mpsc::Sender<PathBuf>>>,
}

/// The files that there are.
#[derive(Debug, Default)]
struct Files {
    by_number: BTreeMap<(u64, Stream), OverflowFile>,
    by_id: HashMap<ObjectId, (u64, Stream)>,
}

#[derive(Debug, Clone, Copy)]
struct OverflowFile {
    id: ObjectId,
    length: u64,
    since: Instant,
}

impl Files {
    fn take(&mut self, number: u64, stream: Stream) -> Option<OverflowFile> {
        let kept = self.by_number.remove(&(number, stream))?;
        self.by_id.remove(&kept.id);
        Some(kept)
    }
}

/// Output that was taken out of the directory: its file goes when this is
/// dropped.
#[derive(Debug)]
pub struct OwnFile {
    path: PathBuf,
}

impl OwnFile {
    /// Takes over a file that this process made.
    #[must_use]
    pub fn new(path: PathBuf) -> OwnFile {
        OwnFile { path }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for OwnFile {
    fn drop(&mut self) {
        // Otherwise the file goes with its directory.
        let _ = fs::remove_file(&self.path);
    }
}

impl OverflowDirectory {
    /// Makes a directory within `parent`, after those that dead processes left
    /// there are removed.
    ///
    /// # Errors
    /// The directory cannot be made.
    pub fn create(parent: &Path) -> io::Result<OverflowDirectory> {
        let parent = std::path::absolute(parent)?;
        sweep(&parent);
        for _ in 0..NAMES_MAX {
            let mut random = [0; NAME_DIGITS / 2];
            getrandom::fill(&mut random).map_err(|error| io::Error::other(error.to_string()))?;
            let name = format!("{PREFIX}{:016x}", u64::from_le_bytes(random));
            match OverflowDirectory::make(parent.join(name)) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                result => return result,
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Makes exactly this directory, which must not be there.
    ///
    /// # Errors
    /// The file exists, or cannot be made.
    pub fn make(path: PathBuf) -> io::Result<OverflowDirectory> {
        DirBuilder::new().mode(0o700).create(&path)?;
        let marker = mark(&path).inspect_err(|_| {
            let _ = fs::remove_dir(&path);
        })?;
        let (remove, removed) = mpsc::channel();
        let inner = Arc::new(Inner {
            path,
            _marker: marker,
            next: AtomicU64::new(1),
            files: Mutex::default(),
            remove: Mutex::new(Some(remove)),
        });
        let weak = Arc::downgrade(&inner);
        std::thread::Builder::new()
            .name("falkon-overflow".to_owned())
            .spawn(move || remove_files(&removed, &weak))?;
        Ok(OverflowDirectory { inner })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// A number that no other output here has.
    #[must_use]
    pub fn next_number(&self) -> u64 {
        self.inner.next.fetch_add(1, Ordering::Relaxed)
    }

    /// The name of a number's files, without a point and the stream's name.
    #[must_use]
    pub fn prefix(&self, number: u64) -> PathBuf {
        self.inner.path.join(number.to_string())
    }

    /// The file of a number and a stream.
    #[must_use]
    pub fn file(&self, number: u64, stream: Stream) -> PathBuf {
        self.inner.path.join(format!("{number}.{}", stream.name()))
    }

    /// All that a task wrote to a stream is in the file of this number.
    pub fn keep(
        &self,
        (instance, task): (InstanceId, TaskId),
        stream: Stream,
        number: u64,
        length: u64,
    ) {
        let id = output_id(instance, task, stream, number);
        let mut files = self.files();
        files
            .by_number
            .insert((number, stream), OverflowFile { id, length, since: Instant::now() });
        files.by_id.insert(id, (number, stream));
    }

    /// Opens what a ticket is for. Says also how long it is; `None` if it is
    /// not there, or not whole.
    pub fn open(&self, id: ObjectId) -> Option<(File, u64)> {
        let (number, stream, length) = {
            let files = self.files();
            let (number, stream) = *files.by_id.get(&id)?;
            (number, stream, files.by_number.get(&(number, stream))?.length)
        };
        let file = open_plain(&self.file(number, stream)).ok()?;
        let found = file.metadata().ok()?.len();
        (found == length).then_some((file, length))
    }

    /// Removes a file from the directory, for a reader in the same process.
    /// `None` if it is not there, or was removed before.
    #[must_use]
    pub fn take(&self, number: u64, stream: Stream) -> Option<OwnFile> {
        self.files().take(number, stream)?;
        Some(OwnFile::new(self.file(number, stream)))
    }

    /// Discards output that is not needed any more, as runs of numbers: (first,
    /// count). A thread of their own removes its files, as removing a long one
    /// takes time.
    pub fn discard(&self, runs: &[(u64, u64)]) {
        for &(first, count) in runs {
            let until = first.saturating_add(count);
            let of_run = (first, Stream::Stdout)..(until, Stream::Stdout);
            let found: Vec<(u64, Stream)> =
                self.files().by_number.range(of_run).map(|(at, _)| *at).collect();
            for (number, stream) in found {
                if self.files().take(number, stream).is_some() {
                    self.inner.remove_file(self.file(number, stream));
                }
            }
        }
    }

    /// Removes a file that belongs to no output: what was written before the
    /// disk was full.
    pub fn drop_file(&self, number: u64, stream: Stream) {
        self.inner.remove_file(self.file(number, stream));
    }

    /// Removes a worker's file that is useless, if it is here.
    pub fn drop_given(&self, path: PathBuf) {
        if path.parent() == Some(self.path()) {
            self.inner.remove_file(path);
        }
    }

    /// Removes the directory with all that is in it.
    pub fn close(self) {
        self.inner.close();
    }

    fn files(&self) -> MutexGuard<'_, Files> {
        self.inner.files()
    }
}

impl Inner {
    fn files(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remove_file(&self, path: PathBuf) {
        let remove = self.remove.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(remove) = &*remove {
            // The thread ends only with this directory.
            let _ = remove.send(path);
        }
    }

    fn close(&self) {
        self.remove.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut files = self.files();
        files.by_number.clear();
        files.by_id.clear();
        empty(&self.path);
    }

    fn remove_old(&self) {
        let old: Vec<(u64, Stream)> = {
            let files = self.files();
            let is_old =
                |kept: &OverflowFile| kept.since.elapsed() >= Duration::from_secs(AGE_S_MAX);
            files.by_number.iter().filter(|(_, kept)| is_old(kept)).map(|(at, _)| *at).collect()
        };
        for (number, stream) in old {
            if self.files().take(number, stream).is_some() {
                let _ = fs::remove_file(self.path.join(format!("{number}.{}", stream.name())));
            }
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.close();
    }
}

/// Removes the files that it receives, and old ones, until the directory is
/// closed.
fn remove_files(removed: &mpsc::Receiver<PathBuf>, directory: &Weak<Inner>) {
    loop {
        match removed.recv_timeout(Duration::from_secs(AGE_CHECK_S)) {
            // The file may be gone already.
            Ok(path) => drop(fs::remove_file(path)),
            Err(mpsc::RecvTimeoutError::Timeout) => match directory.upgrade() {
                Some(directory) => directory.remove_old(),
                None => return,
            },
            Err(mpsc::RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// The text of a marker: the owner and the node. A lock is seen on one node
/// alone where file systems are shared without locks.
fn marker_text() -> String {
    format!("output of tasks of a falkon executor\n{}\n", node())
}

/// This node, as opposed to others that see the same file systems.
fn node() -> String {
    let machine = fs::read_to_string("/etc/machine-id").unwrap_or_default();
    let node = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("{node} {}", machine.trim())
}

/// This node in eight hexadecimal digits, for names of directories.
#[must_use]
pub fn node_tag() -> String {
    blake3::hash(node().as_bytes()).to_hex()[..8].to_owned()
}

/// Puts a locked marker into a new directory. It gets its name when it is
/// locked, so that no process finds it unlocked.
fn mark(directory: &Path) -> io::Result<File> {
    let unlocked = directory.join(".marker");
    let mut marker =
        OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&unlocked)?;
    marker.write_all(marker_text().as_bytes())?;
    // Without locks, no directory is swept.
    let _ = flock(&marker, FlockOperation::NonBlockingLockExclusive);
    fs::rename(&unlocked, directory.join(MARKER))?;
    Ok(marker)
}

/// Opens a plain file that is no link.
pub(crate) fn open_plain(path: &Path) -> io::Result<File> {
    let flags = (rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK).bits();
    let file = OpenOptions::new().read(true).custom_flags(flags.cast_signed()).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::ErrorKind::InvalidInput.into()),
    }
}

/// Removes the directories that dead processes of this node left in `parent`,
/// as far as they can be removed.
fn sweep(parent: &Path) {
    let us = rustix::process::geteuid().as_raw();
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        if !entry.file_name().to_str().is_some_and(is_name) {
            continue;
        }
        let path = entry.path();
        let is_ours =
            fs::symlink_metadata(&path).is_ok_and(|found| found.is_dir() && found.uid() == us);
        if is_ours && let Some(_locked) = lock_dead(&path.join(MARKER)) {
            empty(&path);
        }
    }
}

/// Locks the marker of a process of this node that is dead.
fn lock_dead(marker: &Path) -> Option<File> {
    let flags = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
    let mut file =
        OpenOptions::new().read(true).write(true).custom_flags(flags).open(marker).ok()?;
    let mut text = String::new();
    Read::by_ref(&mut file).take(MARKER_BYTES_MAX).read_to_string(&mut text).ok()?;
    if !file.metadata().ok()?.is_file() || text != marker_text() {
        return None;
    }
    flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
    Some(file)
}

/// Whether a directory is called like one of these.
fn is_name(name: &str) -> bool {
    let digits = name.strip_prefix(PREFIX);
    digits.is_some_and(|digits| {
        digits.len() == NAME_DIGITS && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}

/// Whether a file is called like one that is made in these directories: output
/// under its number, and what a worker writes at present.
fn is_output(name: &str) -> bool {
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let is_hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_stream = |text: &str| Stream::BOTH.iter().any(|stream| stream.name() == text);
    let mut parts = name.split('.');
    let (Some(stem), Some(stream)) = (parts.next(), parts.next()) else { return false };
    if stem.is_empty() || !is_stream(stream) {
        return false;
    }
    match (stem.strip_prefix("worker-"), parts.next(), parts.next()) {
        (None, None, None) => is_number(stem),
        (Some(token), None, None) => is_hex(token),
        (Some(token), Some(number), None) => is_hex(token) && is_number(number),
        _ => false,
    }
}

/// Removes a directory, and of what is in it only what was made there. With
/// anything else in it, it stays.
fn empty(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_name().to_str().is_some_and(is_output)
            && entry.file_type().is_ok_and(|kind| kind.is_file())
        {
            let _ = fs::remove_file(entry.path());
        }
    }
    let _ = fs::remove_file(directory.join(MARKER));
    let _ = fs::remove_dir(directory);
}

#[cfg(test)]
mod tests {
    use super::*;

    const TASK: (InstanceId, TaskId) = (InstanceId(1), TaskId(2));

    fn kept(directory: &OverflowDirectory, content: &[u8]) -> (u64, ObjectId) {
        let number = directory.next_number();
        fs::write(directory.file(number, Stream::Stdout), content).unwrap();
        directory.keep(TASK, Stream::Stdout, number, content.len() as u64);
        (number, output_id(TASK.0, TASK.1, Stream::Stdout, number))
    }

    fn read(found: Option<(File, u64)>) -> Option<Vec<u8>> {
        let (mut file, length) = found?;
        let mut content = Vec::new();
        file.read_to_end(&mut content).unwrap();
        assert_eq!(content.len() as u64, length);
        Some(content)
    }

    #[test]
    fn output_is_found_by_its_task_and_number_alone() {
        let parent = tempfile::tempdir().unwrap();
        let directory = OverflowDirectory::create(parent.path()).unwrap();
        let (number, id) = kept(&directory, b"long");
        assert_eq!(read(directory.open(id)), Some(b"long".to_vec()));
        for other in [
            output_id(InstanceId(2), TASK.1, Stream::Stdout, number),
            output_id(TASK.0, TaskId(3), Stream::Stdout, number),
            output_id(TASK.0, TASK.1, Stream::Stderr, number),
            output_id(TASK.0, TASK.1, Stream::Stdout, number + 1),
        ] {
            assert!(directory.open(other).is_none());
        }
    }

    #[test]
    fn what_is_not_whole_or_no_plain_file_is_not_opened() {
        let parent = tempfile::tempdir().unwrap();
        let secret = parent.path().join("secret");
        fs::write(&secret, b"long").unwrap();
        let directory = OverflowDirectory::create(parent.path()).unwrap();
        let (number, id) = kept(&directory, b"long");
        let file = directory.file(number, Stream::Stdout);
        fs::write(&file, b"lon").unwrap();
        assert!(directory.open(id).is_none(), "shorter than it was");
        fs::remove_file(&file).unwrap();
        std::os::unix::fs::symlink(&secret, &file).unwrap();
        assert!(directory.open(id).is_none(), "a link to another file");
    }

    #[test]
    fn what_is_taken_or_discarded_is_gone() {
        let parent = tempfile::tempdir().unwrap();
        let directory = OverflowDirectory::create(parent.path()).unwrap();
        let (number, id) = kept(&directory, b"long");
        let own = directory.take(number, Stream::Stdout).unwrap();
        assert!(directory.open(id).is_none() && directory.take(number, Stream::Stdout).is_none());
        directory.discard(&[(number, 1)]);
        assert_eq!(fs::read(own.path()).unwrap(), b"long", "it is the taker's");
        let path = own.path().to_owned();
        drop(own);
        assert!(!path.exists());
        let (number, id) = kept(&directory, b"longer");
        directory.discard(&[(number, 1), (99, u64::MAX)]);
        assert!(directory.open(id).is_none());
        let path = directory.path().to_owned();
        directory.close();
        assert!(!path.exists());
    }

    #[test]
    fn a_dead_process_s_directory_is_swept_and_nothing_else() {
        let parent = tempfile::tempdir().unwrap();
        let living = OverflowDirectory::create(parent.path()).unwrap();
        kept(&living, b"in use");
        let name = |digit: char| format!("{PREFIX}{}", digit.to_string().repeat(NAME_DIGITS));
        let make = |name: &str, marker: Option<&str>, file: &str| {
            let path = parent.path().join(name);
            fs::create_dir(&path).unwrap();
            if let Some(marker) = marker {
                fs::write(path.join(MARKER), marker).unwrap();
            }
            fs::write(path.join(file), b"x").unwrap();
            path
        };
        let text = marker_text();
        let dead = make(&name('a'), Some(&text), "7.stdout");
        let dead_worker = make(&name('b'), Some(&text), "worker-0aF9.stderr");
        let others = [
            make("falkon-overflow", Some(&text), "1.stdout"),
            make(&name('c'), None, "1.stdout"),
            make(
                &name('d'),
                Some("output of tasks of a falkon executor\nelsewhere \n"),
                "1.stdout",
            ),
        ];
        let mixed = make(&name('e'), Some(&text), "thesis.tex");
        fs::write(mixed.join("1.stdout"), b"x").unwrap();
        let target = make("precious", Some(&text), "1.stdout");
        std::os::unix::fs::symlink(&target, parent.path().join(name('f'))).unwrap();
        let next = OverflowDirectory::create(parent.path()).unwrap();
        assert!(!dead.exists() && !dead_worker.exists());
        for other in others {
            assert!(other.join("1.stdout").exists(), "{}", other.display());
        }
        assert!(mixed.join("thesis.tex").exists());
        assert!(target.join("1.stdout").exists());
        assert_eq!(fs::read(living.file(1, Stream::Stdout)).unwrap(), b"in use");
        assert_ne!(living.path(), next.path());
    }
}
