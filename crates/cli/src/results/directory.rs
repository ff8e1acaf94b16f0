//! `--out DIR`: everything that tasks wrote, in few files, and `--resume`.
//!
//! `results.jsonl` has a line per result; `stdout` and `stderr` hold what all
//! tasks wrote, one after another, at the offsets that the lines name.

use super::line::Line;
use super::terminal::{copy_stream, remove_overflow};
use super::{Kept, SinkError, TaskResult};
use crate::plan::Plan;
use falkon_core::result::Captured;
use serde::Deserialize;
use std::collections::HashMap;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const RESULTS: &str = "results.jsonl";
/// What is buffered of each file.
const BUFFER_BYTES_MAX: usize = 1 << 18;

/// Why a results directory cannot be used.
#[derive(Debug)]
pub(crate) enum DirectoryError {
    /// It holds another run's results.
    InUse(PathBuf),
    /// There is nothing to resume.
    NothingToResume(PathBuf),
    /// Another falkon writes there now.
    Locked(PathBuf),
    /// The system says no.
    Io {
        /// What was tried.
        doing: &'static str,
        /// With which file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A line is no result.
    Malformed {
        /// Of which file.
        path: PathBuf,
        /// Counted from 1.
        line: u64,
    },
}

impl fmt::Display for DirectoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DirectoryError::InUse(path) => write!(
                f,
                "{} holds the results of an earlier run; go on with it by --resume {}, or choose \
                 another directory",
                path.display(),
                path.display()
            ),
            DirectoryError::NothingToResume(path) => write!(
                f,
                "{} holds no {RESULTS}: there is nothing to resume (begin with --out)",
                path.display()
            ),
            DirectoryError::Locked(path) => {
                write!(
                    f,
                    "another falkon is writing to {}: wait until it has ended",
                    path.display()
                )
            }
            DirectoryError::Io { doing, path, source } => {
                write!(f, "cannot {doing} {}: {source}", path.display())
            }
            DirectoryError::Malformed { path, line } => write!(
                f,
                "line {line} of {} is no result; mend or remove that line",
                path.display()
            ),
        }
    }
}

impl std::error::Error for DirectoryError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            DirectoryError::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// A directory that results are written to.
pub(crate) struct Directory {
    path: PathBuf,
    results: Appended,
    /// Standard output and standard error.
    streams: [Appended; 2],
    /// A file per task and stream as well.
    per_task: bool,
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
}

impl Appended {
    fn open(path: &Path) -> Result<Appended, DirectoryError> {
        let io = |doing| move |source| DirectoryError::Io { doing, path: path.to_owned(), source };
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(io("open"))?;
        let end = file.seek(SeekFrom::End(0)).map_err(io("read"))?;
        Ok(Appended { path: path.into(), file, buffer: Vec::new(), end })
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
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.write_out()
    }
}

impl Directory {
    /// A directory without results yet.
    pub(crate) fn create(path: &Path, per_task: bool) -> Result<Directory, DirectoryError> {
        let io = |doing| move |source| DirectoryError::Io { doing, path: path.to_owned(), source };
        std::fs::create_dir_all(path).map_err(io("create the directory"))?;
        let results = path.join(RESULTS);
        if std::fs::metadata(&results).is_ok_and(|found| found.len() > 0) {
            return Err(DirectoryError::InUse(path.to_owned()));
        }
        Directory::open(path, per_task)
    }

    /// Goes on with a directory that has results.
    pub(crate) fn resume(path: &Path, per_task: bool) -> Result<Directory, DirectoryError> {
        if !path.join(RESULTS).exists() {
            return Err(DirectoryError::NothingToResume(path.to_owned()));
        }
        Directory::open(path, per_task)
    }

    fn open(path: &Path, per_task: bool) -> Result<Directory, DirectoryError> {
        let mut results = Appended::open(&path.join(RESULTS))?;
        let lock = rustix::fs::FlockOperation::NonBlockingLockExclusive;
        if rustix::fs::flock(&results.file, lock).is_err() {
            return Err(DirectoryError::Locked(path.to_owned()));
        }
        let io = |doing, path: &Path| {
            let path = path.to_owned();
            move |source| DirectoryError::Io { doing, path, source }
        };
        // A last line that was cut off by a crash counts for nothing.
        results.end = whole_lines(&mut results.file).map_err(io("read", &results.path))?;
        results.file.set_len(results.end).map_err(io("truncate", &results.path))?;
        let end = SeekFrom::Start(results.end);
        results.file.seek(end).map_err(io("read", &results.path))?;
        let streams =
            [Appended::open(&path.join("stdout"))?, Appended::open(&path.join("stderr"))?];
        if per_task {
            let tasks = path.join("tasks");
            std::fs::create_dir_all(&tasks).map_err(io("create the directory", &tasks))?;
        }
        let directory = Directory { path: path.to_owned(), results, streams, per_task };
        // Results that a crash kept from being passed on will come again.
        let overflow = directory.overflow();
        match std::fs::remove_dir_all(&overflow) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(io("remove the directory", &overflow)(error))
            }
            _ => Ok(directory),
        }
    }

    /// Where output that is too long to be kept in memory goes meanwhile.
    pub(crate) fn overflow(&self) -> PathBuf {
        self.path.join("overflow")
    }

    /// The tasks of `plan` that did not finish well in this directory, as
    /// ranges of indices. A task whose command has changed since counts as not
    /// finished.
    pub(crate) fn unfinished(
        &self,
        plan: &Plan,
    ) -> Result<Vec<std::ops::Range<u64>>, DirectoryError> {
        let path = self.path.join(RESULTS);
        let io = |source| DirectoryError::Io { doing: "read", path: path.clone(), source };
        let file = File::open(&path).map_err(io)?;
        let mut finished: HashMap<u64, bool> = HashMap::new();
        let mut line = Vec::new();
        let mut reader = BufReader::with_capacity(BUFFER_BYTES_MAX, file);
        let mut number = 0;
        loop {
            line.clear();
            if reader.read_until(b'\n', &mut line).map_err(io)? == 0 {
                break;
            }
            number += 1;
            let earlier: Earlier = serde_json::from_slice(&line)
                .map_err(|_| DirectoryError::Malformed { path: path.clone(), line: number })?;
            let done = earlier.status == "done"
                && plan
                    .digest(earlier.index)
                    .is_some_and(|digest| earlier.digest.as_deref() == Some(hex(&digest).as_str()));
            finished.insert(earlier.index, done);
        }
        let mut ranges: Vec<std::ops::Range<u64>> = Vec::new();
        for index in 0..plan.whole_count() {
            if finished.get(&index).copied().unwrap_or(false) {
                continue;
            }
            match ranges.last_mut() {
                Some(last) if last.end == index => last.end += 1,
                _ => ranges.push(index..index + 1),
            }
        }
        Ok(ranges)
    }

    /// Takes one result. Returns where what it wrote is kept.
    pub(crate) fn take(&mut self, result: &TaskResult) -> Result<[Option<Kept>; 2], SinkError> {
        let mut kept = [None, None];
        if let Some(detail) = &result.detail {
            for (which, captured) in [&detail.stdout, &detail.stderr].into_iter().enumerate() {
                if captured.total_bytes > 0 {
                    kept[which] = Some(self.keep(which, captured, result.index)?);
                }
            }
        }
        let line = Line::kept(result, &kept);
        let before = self.results.buffer.len();
        line.write(&mut self.results.buffer).map_err(|error| self.results.failed(error))?;
        self.results.end += (self.results.buffer.len() - before) as u64;
        if self.results.buffer.len() > BUFFER_BYTES_MAX {
            self.flush()?;
        }
        Ok(kept)
    }

    /// Makes everything taken safe: streams before the lines that speak of
    /// them.
    pub(crate) fn flush(&mut self) -> Result<(), SinkError> {
        for file in self.streams.iter_mut().chain([&mut self.results]) {
            file.write_out().map_err(|error| file.failed(error))?;
        }
        Ok(())
    }

    fn keep(&mut self, which: usize, captured: &Captured, index: u64) -> Result<Kept, SinkError> {
        let stream = &mut self.streams[which];
        let offset = stream.end;
        let length = copy_stream(captured, stream).map_err(|error| stream.failed(error))?;
        if self.per_task {
            let name = ["stdout", "stderr"][which];
            let path = self.path.join("tasks").join(format!("{index}.{name}"));
            let failed = |source| SinkError::Write { what: path.display().to_string(), source };
            let mut file = File::create(&path).map_err(failed)?;
            copy_stream(captured, &mut file).map_err(failed)?;
        }
        remove_overflow(captured);
        Ok(Kept { path: stream.path.clone(), offset, length })
    }
}

#[derive(Deserialize)]
struct Earlier {
    index: u64,
    status: String,
    digest: Option<String>,
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The length of a file up to and with its last newline.
fn whole_lines(file: &mut File) -> std::io::Result<u64> {
    file.seek(SeekFrom::Start(0))?;
    let mut reader = BufReader::with_capacity(BUFFER_BYTES_MAX, file);
    let mut whole = 0;
    let mut at = 0;
    loop {
        let chunk = reader.fill_buf()?;
        if chunk.is_empty() {
            return Ok(whole);
        }
        if let Some(newline) = chunk.iter().rposition(|byte| *byte == b'\n') {
            whole = at + newline as u64 + 1;
        }
        let length = chunk.len();
        at += length as u64;
        reader.consume(length);
    }
}
