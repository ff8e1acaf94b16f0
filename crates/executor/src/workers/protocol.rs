//! The messages between an executor and a worker; `docs/workers.md` describes
//! them for authors of workers.

use falkon_core::result::Cause;
use falkon_process::Captured;
use falkon_wire::codec::{DecodeError, Decoder, Wire, put_array, put_bytes, put_uint};
use falkon_wire::command::Function;
use falkon_wire::hidden::Hidden;
use std::path::Path;

/// Both sides must speak the same version.
pub(super) const VERSION: u64 = 1;
/// Longest message from a worker.
pub(super) const MESSAGE_BYTES_MAX: usize = 1 << 30;
/// Bytes in front of the answers in the shared buffer: how many bytes of
/// answers there are, and of which bundle they are.
pub(super) const BUFFER_HEAD_BYTES: usize = 16;
/// Size of the shared buffer.
pub(super) const BUFFER_BYTES: usize = 1 << 20;
/// In front of each answer.
pub(super) const RECORD_HEAD_BYTES: usize = 25;

/// Where a worker's files are, and what it loads first.
#[derive(Debug)]
pub(super) struct Setup<'a> {
    pub(super) capture_bytes: u64,
    pub(super) stdout: &'a Path,
    pub(super) stderr: &'a Path,
    pub(super) preload: &'a [String],
}

/// A message's bytes with its length in front.
fn frame(fields: usize, number: u64, put: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = vec![0; 4];
    put_array(&mut out, 1 + fields);
    put_uint(&mut out, number);
    put(&mut out);
    // Rows of a submission, and so payloads, are below 4 GiB.
    let length = u32::try_from(out.len() - 4).unwrap_or(u32::MAX);
    out[..4].copy_from_slice(&length.to_le_bytes());
    out
}

impl Setup<'_> {
    pub(super) fn to_frame(&self) -> Vec<u8> {
        use std::os::unix::ffi::OsStrExt;
        frame(5, 0, |out| {
            put_uint(out, BUFFER_BYTES as u64);
            put_uint(out, self.capture_bytes);
            put_bytes(out, self.stdout.as_os_str().as_bytes());
            put_bytes(out, self.stderr.as_os_str().as_bytes());
            put_array(out, self.preload.len());
            for module in self.preload {
                module.encode(out);
            }
        })
    }
}

/// Sends a function to a worker, once.
pub(super) fn function_frame(number: u32, function: &Function) -> Vec<u8> {
    frame(3, 1, |out| {
        put_uint(out, u64::from(number));
        put_bytes(out, &function.name);
        put_bytes(out, &function.code);
    })
}

/// Calls, as columns.
#[derive(Debug, Default)]
pub(super) struct Calls {
    functions: Vec<u8>,
    lengths: Vec<u8>,
    payloads: Vec<u8>,
}

impl Calls {
    pub(super) fn push(&mut self, function: u32, payload: &[u8]) {
        self.functions.extend_from_slice(&function.to_le_bytes());
        // Rows are below 4 GiB.
        let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        self.lengths.extend_from_slice(&length.to_le_bytes());
        self.payloads.extend_from_slice(payload);
    }

    pub(super) fn to_frame(&self, bundle: u64) -> Vec<u8> {
        frame(4, 2, |out| {
            out.reserve(self.functions.len() + self.lengths.len() + self.payloads.len() + 32);
            put_uint(out, bundle);
            put_bytes(out, &self.functions);
            put_bytes(out, &self.lengths);
            put_bytes(out, &self.payloads);
        })
    }
}

/// From a worker.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FromWorker {
    /// The first message, which says who it is.
    Hello { version: u64, token: Hidden<String> },
    /// The worker is ready for calls, or (with an error) never will be.
    Ready { error: String },
    /// Answers to calls of a bundle; with `done` the worker has nothing more to
    /// do.
    Answers { bundle: u64, done: bool, answers: Vec<u8> },
}

impl FromWorker {
    pub(super) fn decode(message: &[u8]) -> Result<FromWorker, DecodeError> {
        let mut from = Decoder::new(message);
        let fields = from.array()?;
        let number = from.uint()?;
        let decoded = match (number, fields) {
            (0, 3) => {
                FromWorker::Hello { version: from.uint()?, token: Hidden::decode(&mut from)? }
            }
            (1, 2) => FromWorker::Ready { error: String::decode(&mut from)? },
            (2, 4) => FromWorker::Answers {
                bundle: from.uint()?,
                done: bool::decode(&mut from)?,
                answers: from.bytes()?.to_vec(),
            },
            (tag, _) => return Err(DecodeError::UnknownTag { of: "worker message", tag }),
        };
        match from.remaining() {
            0 => Ok(decoded),
            count => Err(DecodeError::Trailing(count)),
        }
    }
}

/// How one call ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// The index of the call in the bundle, from 0.
    pub(super) index: u32,
    /// When it began and ended, in microseconds of `CLOCK_MONOTONIC`.
    pub(super) started: u64,
    pub(super) ended: u64,
    /// 0 if it returned.
    pub(super) code: i32,
    pub(super) value: Vec<u8>,
    pub(super) error: String,
    pub(super) stdout: Captured,
    pub(super) stderr: Captured,
    /// The file that has what it returned, if that is too long to be sent.
    pub(super) left: Option<Vec<u8>>,
    /// Why it did not return.
    pub(super) cause: Option<Cause>,
}

/// Answers, one after another.
#[derive(Debug)]
pub(super) struct Answers<'a> {
    rest: &'a [u8],
}

impl<'a> Answers<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Answers<'a> {
        Answers { rest: bytes }
    }
}

impl Iterator for Answers<'_> {
    type Item = Result<Answer, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let answer = take_answer(&mut self.rest);
        if answer.is_err() {
            self.rest = &[];
        }
        Some(answer)
    }
}

fn take_answer(rest: &mut &[u8]) -> Result<Answer, DecodeError> {
    let (head, tail) =
        rest.split_first_chunk::<RECORD_HEAD_BYTES>().ok_or(DecodeError::Truncated)?;
    let u32_at =
        |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
    let length = u32_at(0) as usize;
    let body = tail.get(..length).ok_or(DecodeError::Truncated)?;
    *rest = &tail[length..];
    let mut answer = Answer {
        index: u32_at(4),
        started: u64_at(9),
        ended: u64_at(17),
        code: 0,
        value: Vec::new(),
        error: String::new(),
        stdout: Captured::default(),
        stderr: Captured::default(),
        left: None,
        cause: None,
    };
    match head[8] {
        0 => answer.value = body.to_vec(),
        1 => {
            let mut from = Decoder::new(body);
            let fields = from.array()?;
            if !matches!(fields, 9..=11) {
                return Err(DecodeError::Invalid("an answer"));
            }
            answer.code = i32::try_from(from.uint()?).map_err(|_| DecodeError::Invalid("code"))?;
            answer.value = from.bytes()?.to_vec();
            answer.error = String::decode(&mut from)?;
            answer.stdout = take_stream(&mut from)?;
            answer.stderr = take_stream(&mut from)?;
            if fields > 9 {
                let file = from.bytes()?;
                answer.left = (!file.is_empty()).then(|| file.to_vec());
            }
            if fields > 10 {
                answer.cause = Some(take_cause(&mut from)?);
            }
            if from.remaining() > 0 {
                return Err(DecodeError::Trailing(from.remaining()));
            }
        }
        tag => return Err(DecodeError::UnknownTag { of: "answer", tag: u64::from(tag) }),
    }
    Ok(answer)
}

/// The causes that a worker tells apart, by their numbers there.
fn take_cause(from: &mut Decoder<'_>) -> Result<Cause, DecodeError> {
    match from.uint()? {
        0 => Ok(Cause::Raised),
        1 => Ok(Cause::InitializerFailed),
        2 => Ok(Cause::VersionMismatch),
        tag => Err(DecodeError::UnknownTag { of: "cause of an answer", tag }),
    }
}

fn take_stream(from: &mut Decoder<'_>) -> Result<Captured, DecodeError> {
    let head = from.bytes()?.to_vec();
    let total_bytes = from.uint()?;
    let file = from.bytes()?;
    let spill = (!file.is_empty()).then(|| file.to_vec());
    Ok(Captured { head, total_bytes, spill, spill_error: None })
}

#[cfg(test)]
mod tests;
