//! The sending half: frames gather in one buffer and go out together.

use std::fmt;
use std::io;

use tokio::io::AsyncWriteExt;

use super::frames::{LENGTH_BYTES, NUMBER_BYTES, SEALED, Seal, TAG_BYTES, WriteHalf};
use super::{FRAME_BYTES_MAX, WRITE_QUEUE_BYTES_MAX};

/// A buffer beyond this size, in bytes, is given back after a quiet time.
const BUFFER_KEPT_BYTES: usize = 256 << 10;

/// For how many flushes in a row a large buffer must have been needless before
/// it is given back.
const QUIET_FLUSHES: u32 = 64;

/// Sends frames. [`queue`](FrameWriter::queue) gathers them in memory,
/// [`flush`](FrameWriter::flush) sends what was gathered with as few system
/// calls as the connection takes (without TLS: one, unless the socket is full).
///
/// Bounded by [`WRITE_QUEUE_BYTES_MAX`]: when so much waits, no more is taken
/// until a flush. Watch [`queued_bytes`](FrameWriter::queued_bytes) to flush
/// earlier.
pub struct FrameWriter {
    stream: WriteHalf,
    seal: Option<Seal>,
    /// [`NUMBER_BYTES`] that are never sent, then the frames.
    buffer: Vec<u8>,
    /// How much of the buffer is dealt with.
    written: usize,
    /// Flushes in a row that needed no large buffer.
    quiet: u32,
}

/// Why a frame was not queued. Nothing of it is left in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueueError {
    /// [`WRITE_QUEUE_BYTES_MAX`] bytes or more are waiting: flush first.
    #[error("{WRITE_QUEUE_BYTES_MAX} bytes wait to be sent already: the peer does not keep up")]
    Full,
    /// The body is larger than [`FRAME_BYTES_MAX`].
    #[error(
        "a message of {bytes} bytes cannot be sent, the largest is {FRAME_BYTES_MAX}: split it"
    )]
    TooLarge {
        /// The body's length in bytes.
        bytes: usize,
    },
}

/// The connection failed while frames were sent. Which of them arrived is not
/// known.
#[derive(Debug, thiserror::Error)]
#[error("the connection failed while sending: {0}")]
pub struct WriteError(#[source] pub io::Error);

impl FrameWriter {
    /// `first` goes out before the first frame, with it.
    pub(super) fn new(stream: WriteHalf, seal: Option<Seal>, first: &[u8]) -> FrameWriter {
        let mut buffer = vec![0; NUMBER_BYTES];
        buffer.extend_from_slice(first);
        FrameWriter { stream, seal, buffer, written: NUMBER_BYTES, quiet: 0 }
    }

    /// Adds a frame to the queue.
    ///
    /// # Errors
    /// [`QueueError`]; the queue is then as it was.
    pub fn queue(&mut self, body: &[u8]) -> Result<(), QueueError> {
        if body.len() > FRAME_BYTES_MAX {
            return Err(QueueError::TooLarge { bytes: body.len() });
        }
        self.queue_with(|buffer| buffer.extend_from_slice(body))
    }

    /// Adds a frame whose body `encode` appends to the buffer that it is given.
    /// It must leave alone what is in the buffer already.
    ///
    /// # Errors
    /// [`QueueError`]; the queue is then as it was.
    ///
    /// # Panics
    /// If `encode` shortened the buffer.
    pub fn queue_with(&mut self, encode: impl FnOnce(&mut Vec<u8>)) -> Result<(), QueueError> {
        self.add(false, encode)
    }

    /// Queues a frame that only the peer can read, at any level; see
    /// [`FrameWriter::queue_with`].
    ///
    /// # Errors
    /// [`QueueError`]; the queue is then as it was.
    ///
    /// # Panics
    /// If `encode` shortened the buffer.
    pub fn queue_sealed_with(
        &mut self,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), QueueError> {
        self.add(true, encode)
    }

    fn add(&mut self, sealed: bool, encode: impl FnOnce(&mut Vec<u8>)) -> Result<(), QueueError> {
        if self.queued_bytes() >= WRITE_QUEUE_BYTES_MAX {
            return Err(QueueError::Full);
        }
        let start = self.buffer.len();
        self.buffer.extend_from_slice(&[0; LENGTH_BYTES]);
        let body = self.buffer.len();
        encode(&mut self.buffer);
        assert!(self.buffer.len() >= body, "an encoder only appends");
        let bytes = self.buffer.len() - body;
        if bytes > FRAME_BYTES_MAX {
            self.buffer.truncate(start);
            return Err(QueueError::TooLarge { bytes });
        }
        let mut length = bytes as u32;
        if let Some(seal) = self.seal.as_ref().filter(|_| sealed) {
            length = (bytes + TAG_BYTES) as u32 | SEALED;
            // Only a body that is far longer than a frame cannot be sealed.
            let tag = seal.seal(length, &mut self.buffer[body..]).expect("a frame can be sealed");
            self.buffer.extend_from_slice(&tag);
        }
        self.buffer[start..body].copy_from_slice(&length.to_le_bytes());
        if let Some(seal) = &mut self.seal {
            // The bytes before the frame are lent to its number. They may be
            // the last frame's, so they are put back.
            let lent: [u8; NUMBER_BYTES] = self.buffer[start - NUMBER_BYTES..start]
                .try_into()
                .expect("the range has this length");
            let code = seal.code(&mut self.buffer[start - NUMBER_BYTES..]);
            self.buffer[start - NUMBER_BYTES..start].copy_from_slice(&lent);
            self.buffer.extend_from_slice(code.as_ref().map_or(&[], |code| &code[..]));
            seal.advance();
        }
        Ok(())
    }

    /// How many bytes wait to be sent, lengths and codes included.
    #[must_use]
    pub fn queued_bytes(&self) -> usize {
        self.buffer.len() - self.written
    }

    /// Sends all that is queued. If it is cancelled, what was not sent stays
    /// queued.
    ///
    /// # Errors
    /// [`WriteError`] if the connection failed; it is then of no further use.
    pub async fn flush(&mut self) -> Result<(), WriteError> {
        // A flush that is cancelled again and again while frames are added must
        // not keep what has been sent.
        if self.written > self.buffer.len() / 2 {
            self.buffer.drain(NUMBER_BYTES..self.written);
            self.written = NUMBER_BYTES;
        }
        let needed = self.buffer.len();
        while self.written < self.buffer.len() {
            let count =
                self.stream.write(&self.buffer[self.written..]).await.map_err(WriteError)?;
            if count == 0 {
                return Err(WriteError(io::ErrorKind::WriteZero.into()));
            }
            self.written += count;
        }
        self.stream.flush().await.map_err(WriteError)?;
        self.buffer.truncate(NUMBER_BYTES);
        self.written = NUMBER_BYTES;
        self.quiet = if needed > BUFFER_KEPT_BYTES { 0 } else { self.quiet.saturating_add(1) };
        if self.quiet >= QUIET_FLUSHES && self.buffer.capacity() > BUFFER_KEPT_BYTES {
            self.buffer.shrink_to(BUFFER_KEPT_BYTES);
        }
        Ok(())
    }

    /// Sends all that is queued and tells the other side that nothing follows.
    ///
    /// # Errors
    /// [`WriteError`] if the connection failed.
    pub async fn close(mut self) -> Result<(), WriteError> {
        self.flush().await?;
        self.stream.shutdown().await.map_err(WriteError)
    }
}

impl fmt::Debug for FrameWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrameWriter")
            .field("queued_bytes", &self.queued_bytes())
            .finish_non_exhaustive()
    }
}
