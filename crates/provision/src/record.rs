//! The record of a provisioner on disk, beside the dispatcher's journal: its
//! queues, the numbers it has assigned, and the queue of each allocation. The
//! scheduler knows the fate of the jobs, by their names.
//!
//! A thread writes the file: a disk that hangs delays only tasks that wait
//! until a change is written.

use falkon_net::secure::{ACCESS_FILE_BYTES_MAX, FileError, read_private, write_private};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use tokio::sync::oneshot;

/// The version of the file's format.
const FORMAT: u32 = 1;
/// The file.
const FILE: &str = "provision.json";
/// Allocations that are kept: a part of what the file may hold.
const ALLOCATIONS_MAX: usize = 256;
/// The longest scheduler's name of a job that is kept.
const JOB_BYTES_MAX: usize = 64;
/// Numbers that are taken at a time, so that not each one is written.
const NUMBERS: u64 = 64;

/// A queue, as it was added.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StoredQueue {
    pub(super) name: String,
    pub(super) config: String,
    #[serde(default)]
    pub(super) paused: bool,
    #[serde(default)]
    pub(super) removing: bool,
}

/// An allocation that was asked for and has not ended, as far as is known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StoredAllocation {
    pub(super) id: u64,
    /// The name of its queue.
    pub(super) queue: String,
    pub(super) nodes: u64,
    /// The scheduler's name for its job, once it is known.
    #[serde(default)]
    pub(super) job: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Stored {
    format: u32,
    /// Allocations below it have been numbered.
    next: u64,
    queues: Vec<StoredQueue>,
    /// The last ones; jobs of others are found by their names.
    #[serde(default)]
    allocations: Vec<StoredAllocation>,
}

/// Why the record cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The system refuses.
    #[error(transparent)]
    File(FileError),
    /// The file is no such file.
    #[error(
        "{path} is damaged: {source}; remove it, add the queues again, and look with the \
         scheduler's own commands for remaining jobs of falkon"
    )]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The error in the file.
        source: serde_json::Error,
    },
    /// The file is of another release.
    #[error(
        "{path} has format {format} and this falkon reads format {FORMAT}: use the release that \
         wrote it"
    )]
    Format {
        /// The file.
        path: PathBuf,
        /// The format of the file.
        format: u32,
    },
    /// There is no thread to write it.
    #[error("cannot start a thread for the provisioner's record: {0}")]
    Thread(#[source] io::Error),
    /// There are too many queues, or their files are too long.
    #[error(
        "what is known of all queues is more than {ACCESS_FILE_BYTES_MAX} bytes: remove some, or \
         say less in their files"
    )]
    Full,
}

/// How the file is written.
type WriteFile = fn(&Path, &[u8]) -> Result<(), FileError>;

/// The text that the file is to hold, and who waits for that.
#[derive(Debug)]
struct WriteRequest {
    text: Vec<u8>,
    written: oneshot::Sender<Result<(), Arc<FileError>>>,
}

/// Something that is being written.
#[derive(Debug)]
pub(super) struct Writing(oneshot::Receiver<Result<(), Arc<FileError>>>);

impl Writing {
    /// Waits until it is on stable storage; the text says why it is not.
    pub(super) async fn done(self) -> Result<(), String> {
        match self.0.await {
            Ok(written) => written.map_err(|error| error.to_string()),
            Err(_) => Err("the dispatcher is ending".to_owned()),
        }
    }
}

/// Writes the texts that it receives, only the latest of several.
fn write_requested(path: &Path, requests: &mpsc::Receiver<WriteRequest>, write_file: WriteFile) {
    while let Ok(mut order) = requests.recv() {
        let mut waiting = Vec::new();
        while let Ok(next) = requests.try_recv() {
            waiting.push(std::mem::replace(&mut order, next).written);
        }
        waiting.push(order.written);
        let written = write_file(path, &order.text).map_err(Arc::new);
        for one in waiting {
            // Not everybody waits for it.
            let _ = one.send(written.clone());
        }
    }
}

fn read(path: &Path) -> Result<Stored, RecordError> {
    match read_private(path) {
        Err(FileError::Missing { .. }) => {
            Ok(Stored { format: FORMAT, next: 1, ..Stored::default() })
        }
        Err(error) => Err(RecordError::File(error)),
        Ok(bytes) => {
            let stored: Stored = serde_json::from_slice(&bytes)
                .map_err(|source| RecordError::Malformed { path: path.to_owned(), source })?;
            if stored.format != FORMAT {
                let path = path.to_owned();
                return Err(RecordError::Format { path, format: stored.format });
            }
            Ok(stored)
        }
    }
}

/// Checks that this release can read the record in a provisioner's directory, and changes
/// nothing.
///
/// # Errors
/// The record is damaged, or of another release.
pub fn check_record(dir: &Path) -> Result<(), RecordError> {
    read(&dir.join(FILE)).map(drop)
}

/// The record and its file.
#[derive(Debug)]
pub(super) struct Record {
    path: PathBuf,
    stored: Stored,
    /// To the thread that writes.
    requests: Option<mpsc::Sender<WriteRequest>>,
    writer: Option<JoinHandle<()>>,
}

impl Drop for Record {
    fn drop(&mut self) {
        self.requests = None;
        if let Some(writer) = self.writer.take() {
            // The latest text is to be written.
            let _ = writer.join();
        }
    }
}

impl Record {
    /// Reads the record of `dir`, or begins one.
    pub(super) fn open(dir: &Path) -> Result<Record, RecordError> {
        Record::open_writing(dir, write_private)
    }

    fn open_writing(dir: &Path, write_file: WriteFile) -> Result<Record, RecordError> {
        let path = dir.join(FILE);
        let stored = read(&path)?;
        let (requests, ordered) = mpsc::channel();
        let written = path.clone();
        let writer = std::thread::Builder::new()
            .name("provision-record".to_owned())
            .spawn(move || write_requested(&written, &ordered, write_file))
            .map_err(RecordError::Thread)?;
        Ok(Record { path, stored, requests: Some(requests), writer: Some(writer) })
    }

    /// The first number that was never given.
    pub(super) fn next(&self) -> u64 {
        self.stored.next
    }

    pub(super) fn queues(&self) -> &[StoredQueue] {
        &self.stored.queues
    }

    pub(super) fn allocations(&self) -> &[StoredAllocation] {
        &self.stored.allocations
    }

    /// Has an allocation known after a restart, and its number not given again,
    /// once this is written.
    pub(super) fn take(&mut self, allocation: StoredAllocation) -> Result<Writing, RecordError> {
        if allocation.id >= self.stored.next {
            self.stored.next = allocation.id.saturating_add(NUMBERS);
        }
        if self.stored.allocations.len() >= ALLOCATIONS_MAX {
            self.stored.allocations.remove(0);
        }
        self.stored.allocations.push(allocation);
        self.write()
    }

    /// The scheduler has named an allocation's job.
    pub(super) fn name(&mut self, id: u64, job: &str) -> Result<Option<Writing>, RecordError> {
        let one = self.stored.allocations.iter_mut().find(|one| one.id == id);
        let Some(one) = one.filter(|_| job.len() <= JOB_BYTES_MAX) else { return Ok(None) };
        one.job = Some(job.to_owned());
        self.write().map(Some)
    }

    /// An allocation has ended. That need not be written at once: the scheduler
    /// says it after a restart, too.
    pub(super) fn end(&mut self, id: u64) {
        self.stored.allocations.retain(|one| one.id != id);
    }

    /// Changes what is known of a queue; `None` forgets it.
    pub(super) fn set(
        &mut self,
        name: &str,
        queue: Option<StoredQueue>,
    ) -> Result<Writing, RecordError> {
        let before = self.stored.clone();
        let place = self.stored.queues.iter().position(|known| known.name == name);
        match (place, queue) {
            (Some(place), Some(queue)) => self.stored.queues[place] = queue,
            (None, Some(queue)) => self.stored.queues.push(queue),
            (Some(place), None) => drop(self.stored.queues.remove(place)),
            (None, None) => {}
        }
        self.write().inspect_err(|_| self.stored = before)
    }

    /// Has the record written as it is now.
    fn write(&self) -> Result<Writing, RecordError> {
        let text = serde_json::to_vec_pretty(&self.stored)
            .map_err(|source| RecordError::Malformed { path: self.path.clone(), source })?;
        if text.len() > ACCESS_FILE_BYTES_MAX {
            return Err(RecordError::Full);
        }
        let (written, writing) = oneshot::channel();
        if let Some(requests) = &self.requests {
            // Without the thread, a task that waits gets the answer that
            // nothing was written.
            let _ = requests.send(WriteRequest { text, written });
        }
        Ok(Writing(writing))
    }
}

#[cfg(test)]
mod tests {
    use super::{Record, StoredAllocation, StoredQueue, write_private};
    use std::sync::{Condvar, Mutex, PoisonError};

    /// Whether the disk answers.
    static DISK: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());

    fn set_disk(answers: bool) {
        *DISK.0.lock().unwrap_or_else(PoisonError::into_inner) = answers;
        DISK.1.notify_all();
    }

    #[tokio::test]
    async fn a_disk_that_hangs_holds_up_only_who_waits_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let mut record = Record::open_writing(dir.path(), |path, text| {
            let answers = DISK.0.lock().unwrap_or_else(PoisonError::into_inner);
            drop(DISK.1.wait_while(answers, |answers| !*answers));
            write_private(path, text)
        })
        .unwrap();
        let queue = StoredQueue {
            name: "a".to_owned(),
            config: "kind = \"slurm\"".to_owned(),
            paused: false,
            removing: false,
        };
        let mut allocation = StoredAllocation { id: 1, queue: "a".to_owned(), nodes: 2, job: None };
        // Each of these came back only when the disk had answered.
        let mut writing = vec![record.set("a", Some(queue.clone())).unwrap()];
        writing.push(record.take(allocation.clone()).unwrap());
        writing.extend(record.name(1, "9.head").unwrap());
        assert!(writing.iter_mut().all(|one| one.0.try_recv().is_err()));
        assert!(!dir.path().join("provision.json").exists());
        set_disk(true);
        for one in writing {
            one.done().await.unwrap();
        }
        drop(record);
        let again = Record::open(dir.path()).unwrap();
        allocation.job = Some("9.head".to_owned());
        assert_eq!((again.queues(), again.allocations()), (&[queue][..], &[allocation][..]));
    }

    #[tokio::test]
    async fn what_cannot_be_written_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("gone");
        std::fs::create_dir(&path).unwrap();
        let mut record = Record::open(&path).unwrap();
        std::fs::remove_dir(&path).unwrap();
        std::fs::write(&path, "in its place").unwrap();
        let allocation = StoredAllocation { id: 1, queue: "a".to_owned(), nodes: 2, job: None };
        let error = record.take(allocation).unwrap().done().await.unwrap_err();
        assert!(error.contains("provision.json"), "{error}");
    }

    #[test]
    fn what_was_recorded_is_there_again_and_no_number_comes_twice() {
        let dir = tempfile::tempdir().unwrap();
        let queue = |name: &str, paused| StoredQueue {
            name: name.to_owned(),
            config: "kind = \"slurm\"".to_owned(),
            paused,
            removing: false,
        };
        let mut record = Record::open(dir.path()).unwrap();
        assert_eq!(record.next(), 1);
        record.set("a", Some(queue("a", false))).unwrap();
        record.set("b", Some(queue("b", false))).unwrap();
        record.set("a", Some(queue("a", true))).unwrap();
        record.set("b", None).unwrap();
        let allocation = |id, job: Option<&str>| StoredAllocation {
            id,
            queue: "a".to_owned(),
            nodes: 2,
            job: job.map(str::to_owned),
        };
        record.take(allocation(70, None)).unwrap();
        record.take(allocation(71, None)).unwrap();
        record.end(70);
        record.name(71, "9.head").unwrap();
        drop(record);
        let again = Record::open(dir.path()).unwrap();
        assert_eq!(again.queues(), [queue("a", true)]);
        assert!(again.next() > 71);
        assert_eq!(again.allocations(), [allocation(71, Some("9.head"))]);
        std::fs::write(dir.path().join("provision.json"), "{").unwrap();
        let error = Record::open(dir.path()).unwrap_err().to_string();
        assert!(error.contains("add the queues again"), "{error}");
    }
}
