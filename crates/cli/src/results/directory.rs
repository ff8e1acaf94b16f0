//! `--out DIR`: everything that tasks wrote, in few files, and `--resume`.
//!
//! `results.jsonl` has a line per result; `stdout` and `stderr` hold what all
//! tasks wrote, one after another, at the offsets that the lines name.

use super::line::Line;
use super::terminal::{copy_stream, remove_overflow};
use super::{Sink, SinkError, TaskResult};
use crate::plan::Plan;
use falkon_core::result::Captured;
use serde::Deserialize;
use std::collections::HashMap;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

const RESULTS: &str = "results.jsonl";

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
    results: BufWriter<File>,
    streams: [Stream; 2],
    /// A file per task and stream as well.
    per_task: bool,
    /// Results taken since the last flush.
    unflushed: bool,
}

struct Stream {
    name: &'static str,
    file: BufWriter<File>,
    end: u64,
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
        let open = |name: &str| {
            let path = path.join(name);
            OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(&path)
                .map_err(|source| DirectoryError::Io { doing: "open", path, source })
        };
        let results = open(RESULTS)?;
        if rustix::fs::flock(&results, rustix::fs::FlockOperation::NonBlockingLockExclusive)
            .is_err()
        {
            return Err(DirectoryError::Locked(path.to_owned()));
        }
        let io = |doing, path: &Path| {
            let path = path.to_owned();
            move |source| DirectoryError::Io { doing, path, source }
        };
        // A last line that was cut off by a crash counts for nothing.
        let results_path = path.join(RESULTS);
        let whole = whole_lines(&results).map_err(io("read", &results_path))?;
        results.set_len(whole).map_err(io("truncate", &results_path))?;
        let end =
            |mut file: &File, path: &Path| file.seek(SeekFrom::End(0)).map_err(io("read", path));
        end(&results, &results_path)?;
        let mut streams = Vec::new();
        for name in ["stdout", "stderr"] {
            let file = open(name)?;
            let end = end(&file, &path.join(name))?;
            streams.push(Stream { name, file: BufWriter::with_capacity(1 << 18, file), end });
        }
        if per_task {
            let tasks = path.join("tasks");
            std::fs::create_dir_all(&tasks).map_err(io("create the directory", &tasks))?;
        }
        let Ok(streams) = streams.try_into() else { unreachable!("two names give two streams") };
        let results = BufWriter::with_capacity(1 << 18, results);
        Ok(Directory { path: path.to_owned(), results, streams, per_task, unflushed: false })
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
        let mut reader = BufReader::with_capacity(1 << 18, file);
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

    fn keep(&mut self, which: usize, captured: &Captured, index: u64) -> Result<Kept, SinkError> {
        let stream = &mut self.streams[which];
        let path = self.path.join(stream.name);
        let failed = |source| SinkError::Write { what: path.display().to_string(), source };
        let start = stream.end;
        let length = copy_stream(captured, &mut stream.file).map_err(failed)?;
        stream.end += length;
        if self.per_task && captured.total_bytes > 0 {
            let path = self.path.join("tasks").join(format!("{index}.{}", stream.name));
            let failed = |source| SinkError::Write { what: path.display().to_string(), source };
            let mut file = File::create(&path).map_err(failed)?;
            copy_stream(captured, &mut file).map_err(failed)?;
        }
        remove_overflow(captured);
        Ok((start, length))
    }
}

type Kept = (u64, u64);

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
fn whole_lines(file: &File) -> std::io::Result<u64> {
    let mut reader = BufReader::with_capacity(1 << 18, file);
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

impl Sink for Directory {
    fn take(&mut self, result: &TaskResult) -> Result<(), SinkError> {
        self.unflushed = true;
        let mut kept = [None, None];
        if let Some(detail) = &result.detail {
            for (which, captured) in [&detail.stdout, &detail.stderr].into_iter().enumerate() {
                if captured.total_bytes > 0 {
                    kept[which] = Some(self.keep(which, captured, result.index)?);
                }
            }
        }
        let mut line = Line::of(result, false);
        [line.stdout_at, line.stderr_at] = kept;
        let path = self.path.join(RESULTS);
        line.write(&mut self.results)
            .map_err(|source| SinkError::Write { what: path.display().to_string(), source })
    }

    /// Streams before the lines that speak of them.
    fn flush(&mut self) -> Result<(), SinkError> {
        if !std::mem::take(&mut self.unflushed) {
            return Ok(());
        }
        let path = self.path.display().to_string();
        let failed = |source| SinkError::Write { what: path.clone(), source };
        for stream in &mut self.streams {
            stream.file.flush().map_err(failed)?;
        }
        self.results.flush().map_err(failed)
    }
}
