//! `--out DIR`: everything that tasks wrote, in few files, and `--resume`.
//!
//! `results.jsonl` has a line per result; `stdout` and `stderr` hold what all
//! tasks wrote, one after another, at the offsets that the lines name. A marker
//! says that these names are falkon's in this folder: without it nothing that is
//! there under one of them is touched.

mod earlier;
mod ledger;

use super::line::Line;
use super::terminal::{copy_stream, tell_of_cut};
use super::{FileSpan, SinkError, TaskResult};
use crate::plan::Plan;
use earlier::Earlier;
use falkon_core::result::{Captured, Stream};
use falkon_dispatcher::events::EVENTS_DIRECTORY;
use falkon_lock::{Claimed, FolderLock, LockError};
use ledger::Ledger;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const RESULTS: &str = "results.jsonl";
/// Lines of tasks that are no more, or were run again.
const SUPERSEDED: &str = "superseded.jsonl";
const STREAMS: [&str; 2] = ["stdout", "stderr"];
const TASKS: &str = "tasks";
/// Output that is too long to be kept in memory, until it is copied.
const OVERFLOW: &str = ".falkon-overflow";
/// The file that says that a folder has results, and is locked while they are
/// written.
const MARKER: &str = ".falkon-results";
/// The file that replaces the lock on file systems without locks.
const CLAIM: &str = ".falkon-results.lock";
const MARK: &[u8] = b"Results of falkon are in this folder: see results.jsonl.\n";
/// The bytes that are buffered of each file.
const BUFFER_BYTES_MAX: usize = 1 << 18;

/// Why a results directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DirectoryError {
    /// The folder holds another run's results.
    #[error(
        "{0} holds the results of an earlier run; go on with it by --resume {0}, or choose another \
         directory"
    )]
    InUse(PathBuf),
    /// A file of the results' name is not Falkon's.
    #[error(
        "{0} is there already, and no results of falkon are beside it: choose another directory, \
         or move it away"
    )]
    Taken(PathBuf),
    /// The results' path is a link, a pipe or the like, to which nothing can be
    /// appended.
    #[error(
        "{0} is no regular file, so that results cannot be kept in it: put the file that it was \
         back, or choose another directory"
    )]
    NotRegular(PathBuf),
    /// Another falkon writes there now.
    #[error(fmt = write_locked)]
    Locked {
        /// Where.
        path: PathBuf,
        /// The reason why the lock was not taken.
        error: LockError,
    },
    /// The system says no.
    #[error("cannot {doing} {path}: {source}")]
    Io {
        /// The operation.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A line is no result.
    #[error("line {line} of {path} is not a result; repair or remove that line")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: u64,
    },
}

fn write_locked(path: &Path, error: &LockError, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let path = path.display();
    match error {
        LockError::Claimed(Claimed { holder, claim }) => {
            let holder = holder.as_ref().map_or(String::new(), |holder| format!(" ({holder})"));
            write!(
                f,
                "another falkon{holder} is writing to {path}: wait until it has ended, or, if it \
                 is certainly gone, remove {}",
                claim.display()
            )
        }
        LockError::Held => {
            write!(f, "another falkon is writing to {path}: wait until it has ended")
        }
        LockError::Io(source) => write!(f, "cannot lock {path}: {source}"),
    }
}

/// A directory that results are written to.
pub(crate) struct Directory {
    path: PathBuf,
    ledger: Ledger,
    /// Standard output and standard error.
    streams: [Appended; 2],
    /// A file per task and stream as well.
    per_task: bool,
    /// Results of earlier runs are here.
    is_resumed: bool,
    /// Given back when all has been written.
    _lock: FolderLock,
}

/// A file that grows. What is buffered is written when that is asked for, or
/// not at all: a line must not be there before the output that it speaks of,
/// also not when something has failed.
struct Appended {
    path: Arc<Path>,
    file: File,
    buffer: Vec<u8>,
    /// Bytes written and buffered.
    end: u64,
    /// Whether anything was written since that was last asked.
    has_grown: bool,
}

impl Appended {
    /// Goes on at the file's end, or at `end_min` if that is further: what is
    /// between has been lost, and stays the place of what it was.
    fn open(path: &Path, end_min: u64) -> Result<Appended, DirectoryError> {
        let io = |doing| move |source| DirectoryError::Io { doing, path: path.to_owned(), source };
        let mut file = open_regular(path)?;
        let end = file.seek(SeekFrom::End(0)).map_err(io("read"))?.max(end_min);
        file.seek(SeekFrom::Start(end)).map_err(io("read"))?;
        Ok(Appended { path: path.into(), file, buffer: Vec::new(), end, has_grown: false })
    }

    fn failed(&self, source: std::io::Error) -> SinkError {
        SinkError::Write { what: self.path.display().to_string(), source }
    }

    fn write_out(&mut self) -> std::io::Result<()> {
        self.file.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }
}

impl Write for Appended {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.buffer.len() + bytes.len() > BUFFER_BYTES_MAX {
            self.write_out()?;
        }
        self.buffer.extend_from_slice(bytes);
        self.end += bytes.len() as u64;
        self.has_grown = true;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.write_out()
    }
}

/// Opens a file of results, made if it is not there. Links are not followed,
/// and nothing but a regular file is written to.
fn open_regular(path: &Path) -> Result<File, DirectoryError> {
    let io = |doing| move |source| DirectoryError::Io { doing, path: path.to_owned(), source };
    if path.symlink_metadata().is_ok_and(|found| !found.is_file()) {
        return Err(DirectoryError::NotRegular(path.to_owned()));
    }
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)
        .map_err(io("open"))
}

/// A folder that is ours, and locked.
struct Owned {
    lock: FolderLock,
    /// The folder was ours before.
    was_ours: bool,
}

/// Marks a folder as one of results and locks it.
fn own(path: &Path) -> Result<Owned, DirectoryError> {
    let marker = path.join(MARKER);
    let io = |doing| {
        let path = marker.clone();
        move |source| DirectoryError::Io { doing, path, source }
    };
    let mut file = open_regular(&marker)?;
    let mut found = Vec::new();
    let limit = MARK.len() as u64 + 1;
    (&mut file).take(limit).read_to_end(&mut found).map_err(io("read"))?;
    // A run that was killed while it began may have left a part of it.
    if !MARK.starts_with(&found) {
        return Err(DirectoryError::Taken(marker));
    }
    let copy = file.try_clone().map_err(io("open"))?;
    let lock = FolderLock::take(copy, &path.join(CLAIM))
        .map_err(|error| DirectoryError::Locked { path: path.to_owned(), error })?;
    let was_ours = found == MARK;
    if !was_ours {
        file.rewind().and_then(|()| file.write_all(MARK)).map_err(io("write"))?;
        file.sync_all().and_then(|()| sync_folder(path)).map_err(io("write"))?;
    }
    Ok(Owned { lock, was_ours })
}

fn is_marked(path: &Path) -> bool {
    path.join(MARKER).symlink_metadata().is_ok()
}

/// A name in `path` that results have and that is there.
fn taken_name(path: &Path) -> Option<PathBuf> {
    let names = [RESULTS, SUPERSEDED, STREAMS[0], STREAMS[1], TASKS, OVERFLOW, EVENTS_DIRECTORY];
    names.iter().map(|name| path.join(name)).find(|path| path.symlink_metadata().is_ok())
}

impl Directory {
    /// A directory without results yet.
    pub(crate) fn create(path: &Path, per_task: bool) -> Result<Directory, DirectoryError> {
        let io = |doing| move |source| DirectoryError::Io { doing, path: path.to_owned(), source };
        std::fs::create_dir_all(path).map_err(io("create the directory"))?;
        let results = path.join(RESULTS);
        let has_results = || results.metadata().is_ok_and(|found| found.len() > 0);
        if !is_marked(path)
            && let Some(taken) = taken_name(path)
            // Another run may have begun meanwhile: the lock tells.
            && !is_marked(path)
        {
            return Err(match Earlier::is_of_results(&results) {
                true => DirectoryError::InUse(path.to_owned()),
                false => DirectoryError::Taken(taken),
            });
        }
        let owned = own(path)?;
        if has_results() {
            return Err(DirectoryError::InUse(path.to_owned()));
        }
        Directory::open(path, per_task, owned, [0; 2])
    }

    /// Goes on with a directory that has results. Returns also the tasks of
    /// `plan` that did not finish well in it, as ranges of indices.
    pub(crate) fn resume(
        path: &Path,
        per_task: bool,
        plan: &Plan,
    ) -> Result<(Directory, Vec<Range<u64>>), DirectoryError> {
        let results = path.join(RESULTS);
        match results.symlink_metadata() {
            Ok(found) if found.is_file() => {}
            Ok(_) => return Err(DirectoryError::NotRegular(results)),
            // A script of a batch job has one command line for its first run and the others.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let directory = Directory::create(path, per_task)?;
                return Ok((directory, std::iter::once(0..plan.count()).collect()));
            }
            Err(source) => {
                return Err(DirectoryError::Io { doing: "read", path: results, source });
            }
        }
        if !is_marked(path) {
            // A copy may lack the marker, which is a hidden file; a file that
            // has no results of falkon is another program's.
            if !Earlier::is_of_results(&results) {
                return Err(DirectoryError::Taken(results));
            }
        }
        let owned = own(path)?;
        let lengths = STREAMS.map(|name| path.join(name).metadata().map_or(0, |found| found.len()));
        let earlier = Earlier::read(&results, lengths)?;
        for name in STREAMS {
            // Before anything is changed.
            open_regular(&path.join(name))?;
        }
        let matched = earlier.matched(plan);
        earlier.rewrite(path, plan, &matched)?;
        // A folder with a file per task keeps that form.
        let per_task = per_task || path.join(TASKS).is_dir();
        let mut directory = Directory::open(path, per_task, owned, earlier.ends)?;
        directory.is_resumed = true;
        if per_task {
            earlier::restore_task_files(path)?;
        }
        Ok((directory, matched.unfinished))
    }

    fn open(
        path: &Path,
        per_task: bool,
        owned: Owned,
        ends_min: [u64; 2],
    ) -> Result<Directory, DirectoryError> {
        let io = |doing, path: &Path| {
            let path = path.to_owned();
            move |source| DirectoryError::Io { doing, path, source }
        };
        let [out, err] = STREAMS.map(|name| path.join(name));
        let streams = [Appended::open(&out, ends_min[0])?, Appended::open(&err, ends_min[1])?];
        let results = path.join(RESULTS);
        let mut lines = open_regular(&results)?;
        lines.seek(SeekFrom::End(0)).map_err(io("read", &results))?;
        if per_task {
            let tasks = path.join(TASKS);
            std::fs::create_dir_all(&tasks).map_err(io("create the directory", &tasks))?;
        }
        if owned.was_ours {
            // Results that a crash kept from being passed on will come again.
            let overflow = path.join(OVERFLOW);
            match std::fs::remove_dir_all(&overflow) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(io("remove the directory", &overflow)(error));
                }
                _ => {}
            }
        }
        sync_folder(path).map_err(io("write", path))?;
        let copies = || -> io::Result<[File; 2]> {
            Ok([streams[0].file.try_clone()?, streams[1].file.try_clone()?])
        };
        let ledger = copies()
            .and_then(|copies| Ledger::start(results.as_path().into(), lines, copies))
            .map_err(io("write", &results))?;
        let (path, lock) = (path.to_owned(), owned.lock);
        Ok(Directory { path, ledger, streams, per_task, is_resumed: false, _lock: lock })
    }

    /// Where the events of runs go.
    pub(crate) fn events(&self) -> PathBuf {
        self.path.join(EVENTS_DIRECTORY)
    }

    /// Whether results of earlier runs are here.
    pub(crate) fn is_resumed(&self) -> bool {
        self.is_resumed
    }

    /// Where output that is too long to be kept in memory goes meanwhile.
    pub(crate) fn overflow(&self) -> PathBuf {
        self.path.join(OVERFLOW)
    }

    /// Takes one result. Returns where what it wrote is kept.
    pub(crate) fn take(&mut self, result: &TaskResult) -> Result<[Option<FileSpan>; 2], SinkError> {
        let mut kept = [None, None];
        if let Some(detail) = &result.detail {
            for (which, stream) in Stream::BOTH.into_iter().enumerate() {
                let captured = detail.stream(stream);
                if captured.total_bytes > 0 && captured.member.is_none() {
                    kept[which] = Some(self.keep(which, result, captured)?);
                }
            }
        }
        if self.per_task && self.is_resumed {
            for (name, kept) in STREAMS.iter().zip(&kept) {
                if kept.is_none() {
                    // An earlier attempt may have written what this one has not.
                    let _ = std::fs::remove_file(task_file(&self.path, result.index, name));
                }
            }
        }
        let files = result.files.clone().map(|files| (files, result.times.started));
        self.ledger.take(files, |lines| Line::kept(result, &kept).write(lines))?;
        if self.ledger.waiting_bytes() > BUFFER_BYTES_MAX {
            self.flush()?;
        }
        Ok(kept)
    }

    /// Hands everything taken to the system: what tasks wrote at once, the
    /// lines that speak of it once that is on disk.
    pub(crate) fn flush(&mut self) -> Result<(), SinkError> {
        let mut has_output = false;
        for stream in &mut self.streams {
            stream.write_out().map_err(|error| stream.failed(error))?;
            has_output |= std::mem::take(&mut stream.has_grown);
        }
        self.ledger.flush(has_output)
    }

    /// Waits until everything taken is on disk.
    pub(crate) fn close(&mut self) -> Result<(), SinkError> {
        self.ledger.close()
    }

    fn keep(
        &mut self,
        which: usize,
        result: &TaskResult,
        captured: &Captured,
    ) -> Result<FileSpan, SinkError> {
        let rest = &result.rests[which];
        let stream = &mut self.streams[which];
        let offset = stream.end;
        let (length, cut) =
            copy_stream(captured, rest, stream).map_err(|error| stream.failed(error))?;
        if self.per_task {
            let path = task_file(&self.path, result.index, STREAMS[which]);
            let failed = |source| SinkError::Write { what: path.display().to_string(), source };
            let mut file = File::create(&path).map_err(failed)?;
            copy_stream(captured, rest, &mut file).map_err(failed)?;
        }
        if let Some(reason) = cut {
            tell_of_cut(result, Stream::BOTH[which], length, captured, reason);
        }
        Ok(FileSpan { path: stream.path.clone(), offset, length, cut })
    }
}

/// The file that has what one task wrote to one stream.
fn task_file(folder: &Path, index: u64, stream: &str) -> PathBuf {
    folder.join(TASKS).join(format!("{index}.{stream}"))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Has the names in a folder on disk.
fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}
