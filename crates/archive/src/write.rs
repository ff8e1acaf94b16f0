//! Writing a set: members come one at a time, are packed by several threads,
//! and are appended in their order.

mod file;
mod job;

use crate::appear::sweep;
use crate::limits::{BATCH_MEMBERS_MAX, PIECE_BYTES, THREADS_MAX};
use crate::pack::Packer;
use crate::part::Part;
use crate::read::{MemberFault, ReadError};
use crate::set::{Listed, listed};
use crate::turn::Turns;
use falkon_core::archive::limits::{FILE_MEMBERS_MAX, NAME_BYTES_MAX};
use falkon_core::archive::{FileBounds, Member, readable, whole_of};
use file::SetFile;
use job::{Item, Job, Large};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Why an archive cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// A file of the set exists.
    #[error(
        "{} exists: append to it (--append), or choose another name",
        path.display()
    )]
    Exists {
        /// That file.
        path: PathBuf,
    },
    /// The set's name is that of a file of another set.
    #[error(
        "{} is the name of file {number} of the archive {}: choose another name, or append \
         to that archive",
        path.display(), whole.display()
    )]
    Part {
        /// The name.
        path: PathBuf,
        /// The first file of the other set.
        whole: PathBuf,
        /// The number in the other set.
        number: u32,
    },
    /// The file system refuses a file of the set.
    #[error("cannot write {}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        error: io::Error,
    },
    /// What is to become a member cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Source {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        error: io::Error,
    },
    /// What is to become a member became another while it was read.
    #[error("{} changed while it was read", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// Longer than the format's field for it.
    #[error("the name `{}…` has {bytes} bytes: a member's has {NAME_BYTES_MAX} at most", readable(&start[..]))]
    Name {
        /// How it begins.
        start: Vec<u8>,
        /// How long it is.
        bytes: usize,
    },
    /// A member of another archive that is damaged.
    #[error("member `{}` of {}: {fault}", readable(name), path.display())]
    Member {
        /// The archive's file.
        path: PathBuf,
        /// The member.
        name: Vec<u8>,
        /// The reason.
        #[source]
        fault: MemberFault,
    },
    /// The set that is written to cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A thread ended by a panic.
    #[error("a thread that packs members has ended: this is a defect of falkon")]
    Thread,
}

/// How a set is written.
#[derive(Debug, Clone, Copy)]
pub struct WriteOptions {
    /// When a file of the set ends.
    pub bounds: FileBounds,
    /// From 1, fast, to 9, small; at 0, members are stored.
    pub level: u32,
    /// How many threads pack.
    pub threads: usize,
    /// Whether to add files to a set that exists.
    pub append: bool,
    /// Whether files are on stable storage when they appear.
    pub is_lasting: bool,
}

impl Default for WriteOptions {
    fn default() -> WriteOptions {
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
        WriteOptions {
            bounds: FileBounds::default(),
            level: LEVEL,
            threads,
            append: false,
            is_lasting: true,
        }
    }
}

/// The level unless told otherwise: the fastest that makes codes of its own.
const LEVEL: u32 = 2;

/// What becomes a member.
#[derive(Debug)]
pub enum Source {
    /// These bytes.
    Bytes {
        /// The data.
        data: Vec<u8>,
        /// Seconds since 1970.
        modified: u64,
        /// The mode's permissions.
        permissions: u32,
    },
    /// This file.
    File(PathBuf),
    /// A member of another archive, which stays as it is packed.
    Packed {
        /// Its file.
        part: Arc<Part>,
        /// The member.
        member: Member,
    },
}

/// Writes a set.
#[derive(Debug)]
pub struct Writer {
    turns: Arc<Turns<SetFile, WriteError>>,
    jobs: Option<SyncSender<(u64, Job)>>,
    threads: Vec<JoinHandle<()>>,
    number: u64,
    batch: Vec<Item>,
    batch_bytes: usize,
    is_stored: bool,
}

impl Writer {
    /// Begins to write the set whose first file is at `path`.
    ///
    /// # Errors
    /// If it exists, unless files are to be added, if its first file is no archive, if its
    /// name is that of a file of another set, or no thread can be started.
    pub fn create(path: &Path, options: WriteOptions) -> Result<Writer, WriteError> {
        let name = path.file_name().unwrap_or_default();
        if let Some((whole, number)) = whole_of(name.as_bytes()) {
            let whole = path.with_file_name(OsStr::from_bytes(&whole));
            return Err(WriteError::Part { path: path.to_owned(), whole, number });
        }
        let Listed { files: existing, unfinished } = listed(path)?;
        if let (Some((_, path)), false) = (existing.first(), options.append) {
            return Err(WriteError::Exists { path: path.clone() });
        }
        if let Some((_, first)) = existing.first() {
            // Nobody could read what is added to a set whose first file is none.
            Part::open(first)?;
        }
        sweep(&unfinished);
        let number = existing.last().map_or(1, |(number, _)| number + 1);
        let mut bounds = options.bounds;
        bounds.members = bounds.members.clamp(1, FILE_MEMBERS_MAX);
        let turns = Arc::new(Turns::new(SetFile::new(path, number, bounds, options.is_lasting)));
        let threads = options.threads.clamp(1, THREADS_MAX);
        let (jobs, receiver) = sync_channel(threads);
        let receiver = Arc::new(Mutex::new(receiver));
        let mut writer = Writer {
            turns,
            jobs: Some(jobs),
            threads: Vec::new(),
            number: 0,
            batch: Vec::new(),
            batch_bytes: 0,
            is_stored: options.level == 0,
        };
        for _ in 0..threads {
            let (receiver, turns) = (Arc::clone(&receiver), Arc::clone(&writer.turns));
            let packer = Packer::new(options.level);
            let thread = std::thread::Builder::new()
                .name("pack".to_owned())
                .spawn(move || work(&receiver, &turns, packer))
                .map_err(|error| WriteError::Io { path: path.to_owned(), error })?;
            writer.threads.push(thread);
        }
        Ok(writer)
    }

    /// Adds a member. What is wrong with it may be reported later.
    ///
    /// # Errors
    /// If the set cannot be written: then nothing more can be added.
    pub fn add(&mut self, name: Vec<u8>, source: Source) -> Result<(), WriteError> {
        if name.len() > NAME_BYTES_MAX {
            return Err(WriteError::Name { start: name[..64].to_vec(), bytes: name.len() });
        }
        let item = Item::new(name, source)?;
        if item.bytes > PIECE_BYTES as u64 {
            self.flush()?;
            return self.add_large(item);
        }
        self.batch_bytes += item.bytes as usize + item.name.len();
        self.batch.push(item);
        if self.batch.len() == BATCH_MEMBERS_MAX || self.batch_bytes >= PIECE_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    /// Writes what is left, and has the last file appear. Returns the files that
    /// were written, all of them whole, and on stable storage unless told otherwise.
    ///
    /// # Errors
    /// If something could not be written: files that appeared before stay.
    pub fn finish(mut self) -> Result<Vec<PathBuf>, WriteError> {
        self.flush()?;
        let file = self.end()?;
        file.finish()
    }

    fn flush(&mut self) -> Result<(), WriteError> {
        self.batch_bytes = 0;
        match self.batch.is_empty() {
            true => Ok(()),
            false => {
                let batch = std::mem::take(&mut self.batch);
                self.send(Job::Batch(batch))
            }
        }
    }

    fn add_large(&mut self, item: Item) -> Result<(), WriteError> {
        if item.is_packed() {
            return self.send(Job::LargePacked(item));
        }
        let large = Arc::new(Large::open(item, self.is_stored)?);
        let pieces = large.pieces();
        self.send(Job::Begin(Arc::clone(&large)))?;
        for piece in 0..pieces {
            self.send(Job::Piece { large: Arc::clone(&large), piece })?;
        }
        self.send(Job::End(large))
    }

    fn send(&mut self, job: Job) -> Result<(), WriteError> {
        let number = self.number;
        self.number += 1;
        let is_sent = !self.turns.has_failed()
            && self.jobs.as_ref().is_some_and(|jobs| jobs.send((number, job)).is_ok());
        if is_sent { Ok(()) } else { Err(self.end().err().unwrap_or(WriteError::Thread)) }
    }

    /// Ends the threads; returns what they wrote to.
    fn end(&mut self) -> Result<SetFile, WriteError> {
        self.jobs = None;
        let mut has_panicked = false;
        for thread in self.threads.drain(..) {
            has_panicked |= thread.join().is_err();
        }
        let empty = Arc::new(Turns::new(SetFile::none()));
        let turns = Arc::into_inner(std::mem::replace(&mut self.turns, empty));
        let (file, failed, _) = turns.ok_or(WriteError::Thread)?.into_inner();
        match failed {
            Some(error) => Err(error),
            None if has_panicked => Err(WriteError::Thread),
            None => Ok(file),
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // The unfinished file goes with what the threads wrote to.
        self.jobs = None;
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

type Jobs = Mutex<Receiver<(u64, Job)>>;

fn work(jobs: &Jobs, turns: &Turns<SetFile, WriteError>, mut packer: Packer) {
    let _guard = turns.guard();
    loop {
        let next = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((number, job)) = next else { return };
        let done = job.prepare(&mut packer);
        turns.take(number, |file| done?.append(file));
    }
}
