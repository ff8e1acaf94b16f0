//! Pages of results on disk (`falkon_core::dispatch::Page`). Threads of their
//! own write, read and remove them, so that a slow disk delays nothing else.
//!
//! A directory holds files `00000001.pages`, `00000002.pages`, …, each with
//! pages of any instances one after another; `docs/protocol.md` has the bytes.
//! A file goes when none of its pages is needed. Whoever dies leaves files
//! behind; the next owner keeps those that its journal knows.

use crate::journal::{FREE_BYTES_UNKNOWN, create_dir};
use falkon_core::dispatch::{Event, Page, PagePlace};
use falkon_core::limits::PAGES_RESERVE_BYTES;
use falkon_core::task::InstanceId;
use falkon_lock::{Claimed, FolderLock, LockError};
use falkon_wire::codec::{DecodeError, Wire};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Size beyond which a file of pages is followed by a new one, in bytes.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// Checksum, length, instance and position.
const HEAD_BYTES: usize = 24;
/// Ending of a file of pages.
const ENDING: &str = "pages";
/// Name of what stands in for the directory's lock where the file system has none.
const CLAIM_FILE: &str = "claim";

/// Why a page could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    /// The system refused.
    #[error("cannot {doing} {}: {source}", .path.display())]
    Io {
        /// The operation that failed.
        doing: &'static str,
        /// To what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The disk has no more room than the journal may need.
    #[error(
        "no room for results in {}: {free_bytes} bytes are free, and {leave_bytes} are kept for \
         the journal; make room",
        .path.display()
    )]
    NoRoom {
        /// Where.
        path: PathBuf,
        /// Bytes free.
        free_bytes: u64,
        /// Bytes that pages leave to the journal.
        leave_bytes: u64,
    },
    /// Another dispatcher has its pages there.
    #[error("another dispatcher keeps its results in {}", .path.display())]
    Locked {
        /// Where.
        path: PathBuf,
    },
    /// Another dispatcher has claimed the directory, on a file system without locks.
    #[error("results are kept in {} already: {claimed}", .path.display())]
    Claimed {
        /// Where.
        path: PathBuf,
        /// The owner of the claim.
        claimed: Claimed,
    },
    /// The file holds other bytes than were written.
    #[error("{} is damaged at byte {offset}", .path.display())]
    Damaged {
        /// The damaged file.
        path: PathBuf,
        /// Where in it.
        offset: u64,
    },
    /// The file is whole, but this release cannot read it.
    #[error("{} has contents that this release cannot read: {source}", .path.display())]
    Unknown {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: DecodeError,
    },
}

/// The files of one dispatcher's pages.
#[derive(Debug)]
pub struct PageFiles {
    dir: PathBuf,
    /// The file that pages go to, its number and its end.
    current: Option<(File, u64, u64)>,
    next: u64,
    /// How many pages of each file are needed.
    needed: BTreeMap<u64, u64>,
    written: Arc<Written>,
    _lock: FolderLock,
}

/// Files that were written to and are not on stable storage yet.
#[derive(Debug)]
pub struct Written {
    dir: PathBuf,
    files: Mutex<BTreeSet<u64>>,
    /// Bytes that are left free on the disk.
    leave_bytes: AtomicU64,
}

fn failed<'a>(doing: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> PageError + 'a {
    move |source| PageError::Io { doing, path: path.to_owned(), source }
}

fn path_of(dir: &Path, file: u64) -> PathBuf {
    dir.join(format!("{file:08}.{ENDING}"))
}

/// The files of pages in a directory, by number; what else lies there is left
/// alone.
fn numbers(dir: &Path) -> io::Result<BTreeSet<u64>> {
    let mut numbers = BTreeSet::new();
    for entry in std::fs::read_dir(dir)? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.strip_suffix(ENDING)?.strip_suffix('.'));
        numbers.extend(number.and_then(|digits| digits.parse::<u64>().ok()));
    }
    Ok(numbers)
}

impl PageFiles {
    /// Opens the directory, which is created if need be. What is in it stays
    /// until [`PageFiles::keep`].
    ///
    /// # Errors
    /// The directory cannot be created or read, or another process has it.
    pub fn open(dir: &Path) -> Result<PageFiles, PageError> {
        create_dir(dir).map_err(failed("create", dir))?;
        let lock = File::open(dir).map_err(failed("open", dir))?;
        let lock = FolderLock::take(lock, &dir.join(CLAIM_FILE)).map_err(|error| match error {
            LockError::Held => PageError::Locked { path: dir.to_owned() },
            LockError::Claimed(claimed) => PageError::Claimed { path: dir.to_owned(), claimed },
            LockError::Io(source) => failed("lock", dir)(source),
        })?;
        let last = numbers(dir).map_err(failed("list", dir))?.last().copied().unwrap_or(0);
        let written = Written {
            dir: dir.to_owned(),
            files: Mutex::default(),
            leave_bytes: AtomicU64::new(PAGES_RESERVE_BYTES),
        };
        Ok(PageFiles {
            dir: dir.to_owned(),
            current: None,
            next: last + 1,
            needed: BTreeMap::new(),
            written: Arc::new(written),
            _lock: lock,
        })
    }

    /// Files to sync before a snapshot refers to pages.
    #[must_use]
    pub fn written(&self) -> Arc<Written> {
        self.written.clone()
    }

    /// Keeps these pages. Files without any of them are removed.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn keep(&mut self, places: impl Iterator<Item = PagePlace>) -> Result<(), PageError> {
        self.needed.clear();
        for place in places {
            *self.needed.entry(place.file).or_default() += 1;
        }
        // The file that is written to may be among those that go.
        let needed = &self.needed;
        self.current = self.current.take().filter(|(_, number, _)| needed.contains_key(number));
        for file in numbers(&self.dir).map_err(failed("list", &self.dir))? {
            if !self.needed.contains_key(&file) {
                self.remove(file);
            }
        }
        Ok(())
    }

    /// Writes a page.
    ///
    /// # Errors
    /// There is no room, or the disk refuses.
    pub fn store(
        &mut self,
        instance: InstanceId,
        from: u64,
        page: &Page,
    ) -> Result<PagePlace, PageError> {
        let bytes = encode(instance, from, page);
        let length = bytes.len() as u64;
        let free_bytes = free_bytes(&self.dir);
        let leave_bytes = self.written.leave_bytes.load(Ordering::Relaxed);
        if free_bytes < leave_bytes.saturating_add(length) {
            return Err(PageError::NoRoom { path: self.dir.clone(), free_bytes, leave_bytes });
        }
        let (file, number, end) = self.writable()?;
        let place = PagePlace { file: *number, offset: *end, bytes: length };
        if let Err(source) = file.write_all_at(&bytes, *end) {
            // The next page overwrites the remains of this one.
            let _ = file.set_len(*end);
            return Err(failed("write", &path_of(&self.dir, place.file))(source));
        }
        *end += length;
        lock(&self.written.files).insert(place.file);
        *self.needed.entry(place.file).or_default() += 1;
        Ok(place)
    }

    /// The file that the next page goes to.
    fn writable(&mut self) -> Result<&mut (File, u64, u64), PageError> {
        let full = self.current.as_ref().filter(|(_, _, end)| *end >= FILE_BYTES_MAX);
        if let Some((_, number, _)) = full {
            let number = *number;
            self.current = None;
            if !self.needed.contains_key(&number) {
                self.remove(number);
            }
        }
        if self.current.is_none() {
            let path = path_of(&self.dir, self.next);
            let file = File::options().write(true).create_new(true).mode(0o600).open(&path);
            self.current = Some((file.map_err(failed("create", &path))?, self.next, 0));
            self.next += 1;
        }
        match &mut self.current {
            Some(current) => Ok(current),
            None => unreachable!("it was opened just now"),
        }
    }

    /// Forgets these pages, which are not needed any more.
    pub fn forget(&mut self, places: &[PagePlace]) {
        for place in places {
            let Some(needed) = self.needed.get_mut(&place.file) else { continue };
            *needed -= 1;
            if *needed > 0 {
                continue;
            }
            self.needed.remove(&place.file);
            if self.current.as_ref().is_none_or(|(_, number, _)| *number != place.file) {
                self.remove(place.file);
            }
        }
    }

    fn remove(&self, file: u64) {
        lock(&self.written.files).remove(&file);
        // A file that cannot be removed now is removed when the directory is
        // opened.
        let _ = std::fs::remove_file(path_of(&self.dir, file));
    }
}

fn lock(files: &Mutex<BTreeSet<u64>>) -> std::sync::MutexGuard<'_, BTreeSet<u64>> {
    files.lock().unwrap_or_else(PoisonError::into_inner)
}

fn free_bytes(dir: &Path) -> u64 {
    let free = rustix::fs::statvfs(dir).map(|stat| stat.f_bavail.saturating_mul(stat.f_frsize));
    free.unwrap_or(FREE_BYTES_UNKNOWN)
}

impl Written {
    /// Leaves `bytes` free on the disk for the journal, if that is more than
    /// the usual reserve.
    pub fn leave(&self, bytes: u64) {
        self.leave_bytes.store(bytes.max(PAGES_RESERVE_BYTES), Ordering::Relaxed);
    }

    /// Puts all pages that were written on stable storage. This waits for the
    /// disk.
    ///
    /// # Errors
    /// The disk refuses; the next call tries again.
    pub fn sync(&self) -> Result<(), PageError> {
        let mut files = std::mem::take(&mut *lock(&self.files));
        let outcome = self.sync_files(&mut files);
        lock(&self.files).append(&mut files);
        outcome
    }

    fn sync_files(&self, files: &mut BTreeSet<u64>) -> Result<(), PageError> {
        while let Some(file) = files.first().copied() {
            let path = path_of(&self.dir, file);
            match File::open(&path).and_then(|file| file.sync_data()) {
                Ok(()) => {}
                // All pages of the file were forgotten meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(failed("sync", &path)(error)),
            }
            files.pop_first();
        }
        let synced = File::open(&self.dir).and_then(|dir| dir.sync_all());
        synced.map_err(failed("sync", &self.dir))
    }
}

fn encode(instance: InstanceId, from: u64, page: &Page) -> Vec<u8> {
    let mut bytes = vec![0; HEAD_BYTES];
    page.encode(&mut bytes);
    // A page is far from 4 GiB: results come in frames of 16 MiB.
    let length = (bytes.len() - HEAD_BYTES) as u32;
    bytes[4..8].copy_from_slice(&length.to_le_bytes());
    bytes[8..16].copy_from_slice(&instance.0.to_le_bytes());
    bytes[16..24].copy_from_slice(&from.to_le_bytes());
    let sum = crc32fast::hash(&bytes[4..]);
    bytes[..4].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// Reads a page.
///
/// # Errors
/// The page is missing or damaged.
pub fn load(
    dir: &Path,
    instance: InstanceId,
    from: u64,
    place: PagePlace,
) -> Result<Page, PageError> {
    let path = path_of(dir, place.file);
    let damaged = || PageError::Damaged { path: path.clone(), offset: place.offset };
    let file = File::open(&path).map_err(failed("open", &path))?;
    let length = file.metadata().map_err(failed("read", &path))?.len();
    // A place comes from the journal: its length is checked before it is
    // believed.
    if place.offset.checked_add(place.bytes).is_none_or(|end| end > length)
        || place.bytes < HEAD_BYTES as u64
    {
        return Err(damaged());
    }
    let mut bytes = vec![0; place.bytes as usize];
    file.read_exact_at(&mut bytes, place.offset).map_err(failed("read", &path))?;
    let (head, body) = bytes.split_at(HEAD_BYTES);
    let mut expected = Vec::with_capacity(HEAD_BYTES);
    expected.extend(crc32fast::hash(&bytes[4..]).to_le_bytes());
    expected.extend((body.len() as u32).to_le_bytes());
    expected.extend(instance.0.to_le_bytes());
    expected.extend(from.to_le_bytes());
    if head != expected {
        return Err(damaged());
    }
    Page::from_bytes(body).map_err(|source| PageError::Unknown { path, source })
}

/// A request to the thread that writes.
enum Write {
    Store { instance: InstanceId, from: u64, page: Page },
    Forget(Vec<PagePlace>),
}

/// A request to the thread that reads.
struct Read {
    instance: InstanceId,
    from: u64,
    place: PagePlace,
}

/// The threads that write and read pages, and their answers.
pub struct Pages {
    writes: Sender<Write>,
    reads: Sender<Read>,
    answers: UnboundedReceiver<Event>,
    written: Arc<Written>,
}

impl fmt::Debug for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pages").field("written", &self.written).finish_non_exhaustive()
    }
}

impl Pages {
    /// Starts the threads. What cannot be written or read is logged.
    #[must_use]
    pub fn start(files: PageFiles, log: Arc<dyn Fn(&str) + Send + Sync>) -> Pages {
        let (writes, to_write) = channel();
        let (reads, to_read) = channel();
        let (answer, answers) = unbounded_channel();
        let (dir, written) = (files.dir.clone(), files.written());
        let (read_answer, read_log) = (answer.clone(), log.clone());
        std::thread::spawn(move || write_all(files, &to_write, &answer, &*log));
        std::thread::spawn(move || read_all(&dir, &to_read, &read_answer, &*read_log));
        Pages { writes, reads, answers, written }
    }

    /// Writes a page; the core bounds how many are under way.
    pub fn store(&self, instance: InstanceId, from: u64, page: Page) {
        // The thread ends with this value.
        let _ = self.writes.send(Write::Store { instance, from, page });
    }

    /// Reads a page; the core bounds how many are under way.
    pub fn load(&self, instance: InstanceId, from: u64, place: PagePlace) {
        let _ = self.reads.send(Read { instance, from, place });
    }

    /// Removes pages that are not needed any more.
    pub fn forget(&self, places: Vec<PagePlace>) {
        let _ = self.writes.send(Write::Forget(places));
    }

    /// Files to sync before a snapshot refers to pages.
    #[must_use]
    pub fn written(&self) -> Arc<Written> {
        self.written.clone()
    }

    /// The next answer.
    pub async fn hear(&mut self) -> Event {
        match self.answers.recv().await {
            Some(event) => event,
            // A thread that has panicked answers nothing more.
            None => std::future::pending().await,
        }
    }

    /// Another answer, if it is there.
    pub fn hear_now(&mut self) -> Option<Event> {
        self.answers.try_recv().ok()
    }
}

fn write_all(
    mut files: PageFiles,
    to_write: &Receiver<Write>,
    answer: &UnboundedSender<Event>,
    log: &dyn Fn(&str),
) {
    for write in to_write {
        match write {
            Write::Store { instance, from, page } => {
                let place = files.store(instance, from, &page);
                let place = place.inspect_err(|error| {
                    log(&format!("results stay in memory for now: {error}"));
                });
                let place = place.ok();
                let _ = answer.send(Event::PageStored { instance, from, place });
            }
            Write::Forget(places) => files.forget(&places),
        }
    }
}

fn read_all(
    dir: &Path,
    to_read: &Receiver<Read>,
    answer: &UnboundedSender<Event>,
    log: &dyn Fn(&str),
) {
    for Read { instance, from, place } in to_read {
        let page = load(dir, instance, from, place).map_err(|error| {
            log(&format!("results of instance {instance} from {from} on are lost: {error}"));
            error.to_string()
        });
        let _ = answer.send(Event::PageLoaded { instance, from, page });
    }
}
