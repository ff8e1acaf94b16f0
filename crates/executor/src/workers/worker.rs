//! A worker process, as the executor sees it.

use super::WorkerError;
use super::bundle::{Bundle, Home};
use super::protocol::{BUFFER_BYTES, BUFFER_HEAD_BYTES, RECORD_HEAD_BYTES, function_frame};
use falkon_core::limits::BUNDLE_TASKS_MAX;
use falkon_core::result::Stream;
use falkon_process::{Captured, Ended, Source};
use falkon_wire::command::Function;
use falkon_wire::hidden::Hidden;
use rustix::fs::MemfdFlags;
use rustix::pipe::PipeFlags;
use std::collections::HashMap;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Instant;
use tokio::sync::mpsc::UnboundedSender;

/// Functions that are sent to a worker before another one takes its place.
const FUNCTIONS_MAX: usize = 1024;

// A pipe takes these bytes in one piece, however little room the system gives
// it.
const _: () = assert!(BUNDLE_TASKS_MAX <= 4096);

/// How far a worker is in its bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Progress {
    /// Calls that it has not begun. Within a bundle there are never more than before, so a worker
    /// with as many at two looks has begun none in between. The bytes do not show that: the buffer
    /// is emptied when it is full, and answers of one length fill it to the same places again.
    pub(super) unclaimed: u64,
    /// Bytes of answers in the buffer.
    pub(super) bytes: u64,
}

/// Digits of the random names of a worker's files.
const FILE_NAME_DIGITS: usize = 16;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) home: Arc<Home>,
    pub(super) token: Hidden<String>,
    /// The command that started it.
    pub(super) command: Vec<Vec<u8>>,
    /// The source of its process.
    pub(super) source: Source,
    /// Where its messages go, once it has connected.
    pub(super) messages: Option<UnboundedSender<Vec<u8>>>,
    pub(super) pid: Option<i32>,
    pub(super) connected: bool,
    /// The worker takes calls.
    pub(super) ready: bool,
    /// The worker gets no more calls.
    pub(super) retired: bool,
    /// The bundle it has; one that is over here may not be over there.
    pub(super) bundle: Option<u64>,
    pub(super) busy: bool,
    pub(super) idle_since: Instant,
    /// When to look how far it is, or whether it is needed.
    pub(super) look_at: Option<Instant>,
    /// Until when it keeps its calls though it has begun none.
    pub(super) begin_by: Instant,
    /// How far it was when it was looked at last.
    pub(super) looked: Option<Progress>,
    /// Calls it has made.
    pub(super) calls: u64,
    pub(super) memory_looked_at: Option<Instant>,
    /// The connection has ended.
    pub(super) closed: bool,
    /// The process has ended.
    pub(super) ended: Option<Ended>,
    /// The process that had started it was killed, and it with that.
    pub(super) lost: bool,
    /// Why it cannot take calls, in its own words.
    pub(super) trouble: String,
    pub(super) stdout: PathBuf,
    pub(super) stderr: PathBuf,
    number: u64,
    functions: HashMap<Arc<Function>, u32>,
    buffer: OwnedFd,
    claims: OwnedFd,
    claims_in: OwnedFd,
}

impl Worker {
    pub(super) fn new(
        home: Arc<Home>,
        token: Hidden<String>,
        command: Vec<Vec<u8>>,
        folder: &Path,
    ) -> Result<Worker, WorkerError> {
        let failed = |error: rustix::io::Errno| WorkerError::Descriptors(error.into());
        let buffer = rustix::fs::memfd_create(c"falkon-worker", MemfdFlags::CLOEXEC);
        let buffer = buffer.map_err(failed)?;
        rustix::fs::ftruncate(&buffer, BUFFER_BYTES as u64).map_err(failed)?;
        let (claims, claims_in) =
            rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).map_err(failed)?;
        // Names of files are no secrets.
        let name = &blake3::hash(token.0.as_bytes()).to_hex()[..FILE_NAME_DIGITS];
        let file = |stream| folder.join(format!("worker-{name}.{stream}"));
        Ok(Worker {
            stdout: file("stdout"),
            stderr: file("stderr"),
            home,
            token,
            command,
            source: Source::Program,
            messages: None,
            pid: None,
            connected: false,
            ready: false,
            retired: false,
            bundle: None,
            busy: false,
            idle_since: Instant::now(),
            look_at: None,
            begin_by: Instant::now(),
            looked: None,
            calls: 0,
            memory_looked_at: None,
            closed: false,
            ended: None,
            lost: false,
            trouble: String::new(),
            number: 0,
            functions: HashMap::new(),
            buffer,
            claims,
            claims_in,
        })
    }

    /// Copies of the descriptors that it shares: the buffer, and the end of
    /// the claims that is read.
    pub(super) fn shared(&self) -> Result<[OwnedFd; 2], WorkerError> {
        let buffer = self.buffer.try_clone().map_err(WorkerError::Descriptors)?;
        Ok([buffer, self.claims.try_clone().map_err(WorkerError::Descriptors)?])
    }

    pub(super) fn is_idle(&self) -> bool {
        self.ready && !self.busy && !self.retired && !self.closed && self.ended.is_none()
    }

    pub(super) fn is_starting(&self) -> bool {
        !self.ready && !self.retired && !self.closed && self.ended.is_none()
    }

    /// Hands a bundle over, with its functions as far as they are new.
    pub(super) fn send(&mut self, id: u64, bundle: &Bundle) {
        let Some(messages) = &self.messages else { return };
        let functions = &mut self.functions;
        let calls = bundle.to_calls(|function| {
            if let Some(number) = functions.get(function) {
                return *number;
            }
            let number = functions.len() as u32;
            // A worker that is gone is noticed by its reader.
            let _ = messages.send(function_frame(number, function));
            functions.insert(function.clone(), number);
            number
        });
        self.take_back();
        let claims = [0; BUNDLE_TASKS_MAX as usize];
        let written = rustix::io::write(&self.claims_in, &claims[..bundle.live as usize]);
        debug_assert_eq!(written, Ok(bundle.live as usize), "an empty pipe has room for a bundle");
        self.number += 1;
        let _ = messages.send(calls.to_frame(self.number));
        self.bundle = Some(id);
        self.busy = true;
        self.looked = None;
    }

    /// Whether `number` is that of the bundle it has.
    pub(super) fn is_current(&self, number: u64) -> bool {
        self.number == number
    }

    /// Whether it was sent as many functions as one worker may have, so that
    /// another worker should take its place.
    pub(super) fn is_full(&self) -> bool {
        self.functions.len() >= FUNCTIONS_MAX
    }

    /// Takes the claims that it has not taken; returns how many.
    pub(super) fn take_back(&self) -> u32 {
        self.take_back_some(BUNDLE_TASKS_MAX as u32)
    }

    /// Takes claims that it has not taken, up to `most`; returns how many.
    pub(super) fn take_back_some(&self, most: u32) -> u32 {
        let mut taken = [0; BUNDLE_TASKS_MAX as usize];
        let most = taken.len().min(most as usize);
        // An empty pipe is an error, as there is nothing to wait for.
        rustix::io::read(&self.claims, &mut taken[..most]).map_or(0, |count| count as u32)
    }

    /// The number of claims that no process has taken.
    pub(super) fn unclaimed(&self) -> u64 {
        rustix::io::ioctl_fionread(&self.claims).unwrap_or(0)
    }

    /// How many bytes of answers are in the buffer; `None` if they are not of
    /// the bundle that it has.
    pub(super) fn buffered_bytes(&self) -> Option<u64> {
        let mut head = [0; BUFFER_HEAD_BYTES];
        rustix::io::pread(&self.buffer, &mut head, 0).ok()?;
        let words = head.as_chunks::<8>().0;
        let [used, number] = [words[0], words[1]].map(u64::from_le_bytes);
        (number == self.number && used <= (BUFFER_BYTES - BUFFER_HEAD_BYTES) as u64).then_some(used)
    }

    /// How far it is.
    pub(super) fn progress(&self) -> Progress {
        Progress { unclaimed: self.unclaimed(), bytes: self.buffered_bytes().unwrap_or(0) }
    }

    /// The answers in the buffer, as far as `bytes`. `None` if the worker has sent them meanwhile:
    /// then others may be in their place, in whole or in part, and these come as a message.
    pub(super) fn buffered(&self, bytes: u64) -> Option<Vec<u8>> {
        // A worker counts no answers before it writes over those that it has sent, and counts the
        // new ones when they are whole. So while the first answer is the same and as many bytes
        // are counted, before the copy and after it, nothing is written there.
        let mut answers = vec![0; bytes as usize];
        let counted = || self.buffered_bytes().is_some_and(|now| now >= bytes);
        let first = self.first_head();
        fence(Ordering::Acquire);
        if !counted() {
            return None;
        }
        fence(Ordering::Acquire);
        let read = rustix::io::pread(&self.buffer, &mut answers, BUFFER_HEAD_BYTES as u64);
        answers.truncate(read.unwrap_or(0));
        fence(Ordering::Acquire);
        let kept = counted();
        fence(Ordering::Acquire);
        (kept && first == self.first_head()).then_some(answers)
    }

    /// The head of the first answer in the buffer: among other fields, its
    /// index.
    fn first_head(&self) -> Option<[u8; RECORD_HEAD_BYTES]> {
        let mut head = [0; RECORD_HEAD_BYTES];
        let read = rustix::io::pread(&self.buffer, &mut head, BUFFER_HEAD_BYTES as u64);
        (read == Ok(head.len())).then_some(head)
    }

    /// The output of the call in which it died.
    pub(super) fn last_words(&self, capture_bytes: u64) -> [Captured; 2] {
        [&self.stdout, &self.stderr].map(|path| {
            let mut captured = Captured::default();
            let Ok(file) = std::fs::File::open(path) else { return captured };
            captured.total_bytes = file.metadata().map_or(0, |found| found.len());
            // The unreadable rest is cut.
            let _ = file.take(capture_bytes).read_to_end(&mut captured.head);
            if captured.total_bytes > captured.head.len() as u64 {
                captured.spill = Some(super::program::bytes_of(path));
            }
            captured
        })
    }

    /// Memory that it holds, in bytes; `None` if the system does not say.
    pub(super) fn memory_bytes(&self) -> Option<u64> {
        let text = std::fs::read_to_string(format!("/proc/{}/statm", self.pid?)).ok()?;
        let pages: u64 = text.split_ascii_whitespace().nth(1)?.parse().ok()?;
        Some(pages * rustix::param::page_size() as u64)
    }

    /// Where the call that it makes writes.
    pub(super) fn file(&self, stream: Stream) -> &Path {
        match stream {
            Stream::Stdout => &self.stdout,
            Stream::Stderr => &self.stderr,
        }
    }

    /// Removes its files.
    pub(super) fn remove_files(&self) {
        for path in [&self.stdout, &self.stderr] {
            // The worker may never have created the files, or they were moved.
            let _ = std::fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests;
