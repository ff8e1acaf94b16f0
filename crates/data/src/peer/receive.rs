//! The receiving side of a connection: answers and bodies.

use std::io;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use super::silence::in_time;
use super::wire::{ANSWER_BYTES, Answer, Request, Status};
use super::{BUFFER_BYTES, IDLE_MS_MAX, PeerError, SILENCE_MS_MAX};
use crate::object::Landing;
use falkon_net::secure::{CODE_BYTES, Code, Incoming};

/// The reading half of a connection, with bytes that were read ahead.
pub(super) struct Reader {
    stream: Incoming,
    check: Option<Code>,
    buffer: Box<[u8]>,
    /// The part of the buffer that was received and not used.
    filled: std::ops::Range<usize>,
}

impl Reader {
    pub(super) fn new(stream: Incoming, check: Option<Code>) -> Reader {
        Reader { stream, check, buffer: vec![0; BUFFER_BYTES].into(), filled: 0..0 }
    }

    /// Takes exactly this many bytes, or the error at once if the stream ends
    /// before.
    pub(super) async fn take<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        while self.filled.len() < N {
            self.fill().await?;
        }
        let mut bytes = [0; N];
        bytes.copy_from_slice(&self.buffer[self.filled.start..self.filled.start + N]);
        self.filled.start += N;
        Ok(bytes)
    }

    /// Takes `count` bytes, at most as many as the buffer holds.
    pub(super) async fn take_vec(&mut self, count: usize) -> io::Result<Vec<u8>> {
        if count > self.buffer.len() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        while self.filled.len() < count {
            self.fill().await?;
        }
        let bytes = self.buffer[self.filled.start..self.filled.start + count].to_vec();
        self.filled.start += count;
        Ok(bytes)
    }

    /// Takes the received bytes, at most `most`; waits for some if there are
    /// none.
    pub(super) async fn chunk(&mut self, most: u64) -> io::Result<&[u8]> {
        if self.filled.is_empty() {
            self.fill().await?;
        }
        let count = most.min(self.filled.len() as u64) as usize;
        let start = self.filled.start;
        self.filled.start += count;
        Ok(&self.buffer[start..start + count])
    }

    /// Begins the code of a body that comes in parts, if there are codes.
    pub(super) fn begin_code(&mut self) -> Option<blake3::Hasher> {
        self.check.as_mut().map(Code::begin)
    }

    /// Checks the code that follows a body.
    pub(super) async fn ends_genuinely(
        &mut self,
        hasher: Option<blake3::Hasher>,
    ) -> io::Result<bool> {
        let Some(hasher) = hasher else { return Ok(true) };
        let theirs: [u8; CODE_BYTES] = self.take().await?;
        Ok(constant_time_eq::constant_time_eq_16(&Code::end(&hasher), &theirs))
    }

    /// Whether `bytes` bytes are there without waiting.
    pub(super) fn has(&self, bytes: usize) -> bool {
        self.filled.len() >= bytes
    }

    /// Checks the code that follows `message`. The inner value is false if it
    /// does not fit.
    pub(super) async fn is_genuine(&mut self, message: &[u8]) -> io::Result<bool> {
        let Some(check) = &mut self.check else { return Ok(true) };
        let mut hasher = check.begin();
        hasher.update(message);
        let code = Code::end(&hasher);
        let theirs: [u8; CODE_BYTES] = self.take().await?;
        Ok(constant_time_eq::constant_time_eq_16(&code, &theirs))
    }

    /// Takes the next request and its code. `None`: none came for [`IDLE_MS_MAX`], or its code
    /// does not fit.
    pub(super) async fn request<const N: usize>(&mut self) -> io::Result<Option<[u8; N]>> {
        let idle = Duration::from_millis(IDLE_MS_MAX);
        let Ok(bytes) = timeout(idle, self.take()).await else { return Ok(None) };
        let bytes = bytes?;
        Ok(in_time(self.is_genuine(&bytes)).await?.then_some(bytes))
    }

    /// Reads on, waiting for as long as it takes.
    async fn fill(&mut self) -> io::Result<()> {
        if self.filled.start > 0 {
            self.buffer.copy_within(self.filled.clone(), 0);
            self.filled = 0..self.filled.len();
        }
        let count = self.stream.stream().read(&mut self.buffer[self.filled.end..]).await?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.filled.end += count;
        Ok(())
    }

    /// Receives the answer to `request`, and its body into `landing`; without
    /// one the body is passed over. Whether the connection can be used
    /// afterwards is [`is_usable`]'s to say.
    pub(super) async fn receive(
        &mut self,
        peer: &str,
        request: &Request,
        landing: Option<&Landing>,
    ) -> Result<u64, PeerError> {
        let lost = |arrived, expected, error: io::Error| PeerError::Lost {
            peer: peer.to_owned(),
            arrived,
            expected,
            reason: match error.kind() {
                io::ErrorKind::UnexpectedEof => "it closed the connection".to_owned(),
                io::ErrorKind::TimedOut => {
                    format!("it sent nothing for {} s", SILENCE_MS_MAX / 1000)
                }
                _ => error.to_string(),
            },
        };
        let wrong =
            |reason: &str| PeerError::Wrong { peer: peer.to_owned(), reason: reason.into() };
        let bytes: [u8; ANSWER_BYTES] =
            in_time(self.take()).await.map_err(|error| lost(0, None, error))?;
        if !in_time(self.is_genuine(&bytes)).await.map_err(|error| lost(0, None, error))? {
            return Err(wrong(TAMPERED));
        }
        let answer = Answer::decode(&bytes).ok_or_else(|| wrong("it sent an invalid answer"))?;
        match answer.status {
            Status::Here => {}
            Status::Gone => return Err(PeerError::Gone),
            Status::Busy => return Err(PeerError::Busy),
            Status::Coming => return Err(PeerError::Coming),
            Status::NoSuchBytes => {
                let whole = answer.whole;
                return Err(wrong(&format!("its object has {whole} bytes, too few")));
            }
        }
        if request.length_of(answer.whole) != Some(answer.length) {
            return Err(wrong("it announced a wrong number of bytes"));
        }
        if let Some(landing) = landing {
            landing.sized(answer.whole);
        }
        let expected = answer.length;
        let mut hasher = self.check.as_mut().map(Code::begin);
        let mut left = expected;
        while left > 0 {
            if self.filled.is_empty() {
                let read = in_time(self.fill()).await;
                read.map_err(|error| lost(expected - left, Some(expected), error))?;
            }
            let count = left.min(self.filled.len() as u64) as usize;
            let bytes = &self.buffer[self.filled.start..self.filled.start + count];
            if let Some(hasher) = &mut hasher {
                hasher.update(bytes);
            }
            if let Some(landing) = landing {
                landing.write(bytes).map_err(PeerError::local)?;
            }
            self.filled.start += count;
            left -= count as u64;
        }
        if let Some(hasher) = hasher {
            let theirs: [u8; CODE_BYTES] = in_time(self.take())
                .await
                .map_err(|error| lost(expected, Some(expected), error))?;
            if !constant_time_eq::constant_time_eq_16(&Code::end(&hasher), &theirs) {
                return Err(wrong(TAMPERED));
            }
        }
        Ok(expected)
    }
}

const TAMPERED: &str = "it was changed in transit (its authentication code does not fit)";

/// Whether the connection that brought this result is in step: the next answer
/// is read where it begins.
pub(super) fn is_usable(result: &Result<u64, PeerError>) -> bool {
    matches!(result, Ok(_) | Err(PeerError::Gone | PeerError::Busy | PeerError::Coming))
}
