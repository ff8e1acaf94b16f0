//! The lines of `results.jsonl`, written once what they speak of is on disk.

use super::SinkError;
use crate::plan::TaskFiles;
use falkon_core::task::Time;
use std::fs::{File, Metadata};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The shortest time between two writes to disk, in milliseconds: each may
/// take a disk tens of milliseconds, which tasks need as well.
const SYNC_EVERY_MS: u64 = 200;
/// Bytes of lines that are written at a time, at most.
const LINES_BYTES_MAX: usize = 4 << 20;
/// Batches of lines that wait for the disk. With more, results wait.
const BATCHES_WAITING_MAX: usize = 64;
/// How much earlier than it is a file's time of change may be, in microseconds:
/// kernels note the time of their last tick.
const TICK_MICROS: u64 = 10_000;
/// The end of a line.
const LINE_END: &[u8] = b"}\n";

/// Lines that have not been written.
#[derive(Debug, Default)]
struct Batch {
    lines: Vec<u8>,
    checks: Vec<Check>,
    /// Whether tasks have written since the last batch.
    has_output: bool,
}

/// Files to be looked at before a line is written.
#[derive(Debug)]
struct Check {
    /// Where in the lines the line ends, its last byte and the line feed left
    /// out.
    at: usize,
    files: TaskFiles,
    /// When the task began.
    started: Time,
}

/// Writes lines by a thread of its own, because disks take their time: first
/// the streams are synchronised, then the lines are written that name places in
/// them. A line is so never on disk before the output that it speaks of.
#[derive(Debug)]
pub(super) struct Ledger {
    path: Arc<Path>,
    batch: Batch,
    sender: Option<SyncSender<Batch>>,
    thread: Option<JoinHandle<()>>,
    trouble: Arc<Mutex<Option<io::Error>>>,
}

impl Ledger {
    /// Lines go to the end of `results`, which is at `path`, after `streams`.
    pub(super) fn start(path: Arc<Path>, results: File, streams: [File; 2]) -> io::Result<Ledger> {
        let (sender, receiver) = sync_channel(BATCHES_WAITING_MAX);
        let trouble = Arc::new(Mutex::new(None));
        let found = trouble.clone();
        let write = move || {
            if let Err(error) = write_all(&receiver, results, &streams) {
                *found.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            }
        };
        let thread = std::thread::Builder::new().name("results".to_owned()).spawn(write)?;
        let (sender, thread) = (Some(sender), Some(thread));
        Ok(Ledger { path, batch: Batch::default(), sender, thread, trouble })
    }

    /// Takes the line that `write` writes. The states of `files` are looked up
    /// and added before it goes to disk.
    pub(super) fn take(
        &mut self,
        files: Option<(TaskFiles, Time)>,
        write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>,
    ) -> Result<(), SinkError> {
        let before = self.batch.lines.len();
        if let Err(error) = write(&mut self.batch.lines) {
            self.batch.lines.truncate(before);
            return Err(self.failed(error));
        }
        if let Some((files, started)) = files {
            let at = self.batch.lines.len() - LINE_END.len();
            self.batch.checks.push(Check { at, files, started });
        }
        Ok(())
    }

    /// Bytes of lines that were not passed on.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.batch.lines.len()
    }

    /// Passes lines on, whose output has been handed to the system.
    pub(super) fn flush(&mut self, has_output: bool) -> Result<(), SinkError> {
        self.batch.has_output |= has_output;
        if self.batch.lines.is_empty() {
            return Ok(());
        }
        let batch = std::mem::take(&mut self.batch);
        let sent = self.sender.as_ref().is_some_and(|sender| sender.send(batch).is_ok());
        // A thread that cannot write has ended.
        if sent { Ok(()) } else { self.close() }
    }

    /// Waits until all lines that were passed on are on disk.
    pub(super) fn close(&mut self) -> Result<(), SinkError> {
        self.sender = None;
        if let Some(thread) = self.thread.take() {
            // The thread does not panic; if it did, lines are missing.
            if thread.join().is_err() {
                return Err(self.failed(io::Error::other("the thread that writes has ended")));
            }
        }
        let trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner).take();
        trouble.map_or(Ok(()), |error| Err(self.failed(error)))
    }

    fn failed(&self, source: io::Error) -> SinkError {
        SinkError::Write { what: self.path.display().to_string(), source }
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        // The reason of the failure has been reported, or is not wanted.
        let _ = self.close();
    }
}

fn write_all(receiver: &Receiver<Batch>, mut results: File, streams: &[File; 2]) -> io::Result<()> {
    let every = Duration::from_millis(SYNC_EVERY_MS);
    let mut last: Option<Instant> = None;
    while let Ok(batch) = receiver.recv() {
        let mut bytes = batch.lines.len();
        let mut batches = vec![batch];
        let until = last.map(|last| last + every);
        while bytes < LINES_BYTES_MAX {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            match receiver.recv_timeout(left.unwrap_or_default()) {
                Ok(batch) => {
                    bytes += batch.lines.len();
                    batches.push(batch);
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
            }
        }
        last = Some(Instant::now());
        if batches.iter().any(|batch| batch.has_output) {
            for stream in streams {
                stream.sync_data()?;
            }
        }
        for batch in &batches {
            results.write_all(&with_states(batch))?;
        }
    }
    results.sync_data()
}

/// The lines of a batch, with the states of files that were to be looked up.
fn with_states(batch: &Batch) -> std::borrow::Cow<'_, [u8]> {
    if batch.checks.is_empty() {
        return (&batch.lines).into();
    }
    let mut lines = Vec::with_capacity(batch.lines.len());
    let mut from = 0;
    for Check { at, files, started } in &batch.checks {
        lines.extend_from_slice(&batch.lines[from..*at]);
        from = *at;
        if !files.inputs.is_empty()
            && let Some(state) = unchanged_since(files, *started)
        {
            lines.extend_from_slice(format!(",\"inputs\":\"{}\"", super::hex(&state)).as_bytes());
        }
        if !files.outputs.is_empty() && all_there(&files.outputs) {
            lines.extend_from_slice(b",\"outputs_seen\":true");
        }
    }
    lines.extend_from_slice(&batch.lines[from..]);
    lines.into()
}

/// The state of files: 128 bits of their sizes and times, and of which are
/// missing.
pub(super) fn state_of(files: &[PathBuf]) -> [u8; 16] {
    state(files.iter().map(|path| path.metadata().ok()))
}

/// The [state](state_of) of files; `None` if one has changed after `started`,
/// so that it is unknown what a task that began then has read.
fn unchanged_since(files: &TaskFiles, started: Time) -> Option<[u8; 16]> {
    let found: Vec<Option<Metadata>> =
        files.inputs.iter().map(|path| path.metadata().ok()).collect();
    let slack = if files.waits { 0 } else { TICK_MICROS };
    // The time of its contents would not do: a program that replaces a file can
    // choose it.
    let changed = |found: &Metadata| found.ctime() * 1_000_000 + found.ctime_nsec() / 1000;
    let is_later =
        |found: &Metadata| u64::try_from(changed(found)).unwrap_or(0) + slack > started.0;
    (!found.iter().flatten().any(is_later)).then(|| state(found.into_iter()))
}

fn state(files: impl Iterator<Item = Option<Metadata>>) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new();
    for found in files {
        let found = found.map(|found| (found.len(), found.mtime(), found.mtime_nsec()));
        let (is_there, (bytes, seconds, nanos)) = (found.is_some(), found.unwrap_or_default());
        hasher.update(&[u8::from(is_there)]);
        hasher.update(&bytes.to_le_bytes());
        hasher.update(&seconds.to_le_bytes());
        hasher.update(&nanos.to_le_bytes());
    }
    let mut state = [0; 16];
    state.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    state
}

/// Whether all files are there, as seen from here.
pub(super) fn all_there(files: &[PathBuf]) -> bool {
    files.iter().all(|path| path.symlink_metadata().is_ok())
}
