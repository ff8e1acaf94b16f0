//! The receiving half: reads as much as there is and hands out whole frames
//! where they lie.

use std::fmt;
use std::io;

use tokio::io::AsyncReadExt;

use super::frames::{LENGTH_BYTES, NUMBER_BYTES, ReadHalf, SEALED, Seal, TAG_BYTES};
use super::{FRAME_BYTES_MAX, READ_BUFFER_BYTES};

/// For how many reads in a row a large buffer must have been needless before it
/// is given back.
const QUIET_READS: u32 = 64;

/// The initial size of a connection's buffer: a dispatcher has tens of thousands of
/// connections on which there are only heartbeats.
const READ_BUFFER_BYTES_MIN: usize = 512;

/// Receives frames.
pub struct FrameReader {
    stream: ReadHalf,
    seal: Option<Seal>,
    /// At least [`NUMBER_BYTES`] that are dealt with, then what was received.
    buffer: Vec<u8>,
    /// Where in the buffer the first frame that was not handed out starts.
    start: usize,
    /// Reads in a row that needed no large buffer.
    quiet: u32,
    /// The least number of bytes to read into: grows, up to
    /// [`READ_BUFFER_BYTES`], while reads fill it.
    room: usize,
    /// A frame that is too large and that is left out.
    skipped: Option<Skipped>,
    /// The bytes that stand before the first frame; empty once they have come.
    expected: Vec<u8>,
}

/// A frame that is being left out.
struct Skipped {
    head: Vec<u8>,
    bytes: usize,
    /// Bytes of it that have not been received.
    left: usize,
}

/// How much of a frame that is left out is kept, to say which it was.
const HEAD_BYTES: usize = 32;

/// Why no further frame can be received. Asking again gives the same answer,
/// except after [`ReadError::Io`], and after [`ReadError::Skipped`] the frames that
/// follow.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The frame is not what the peer sent at this place: it was changed,
    /// replayed, reordered, or something was left out.
    #[error(
        "message {number} was changed in transit (its authentication code does not fit): the \
         connection is closed"
    )]
    Tampered {
        /// The frame's number in its direction, from 0.
        number: u64,
    },
    /// A frame's announced body is larger than [`FRAME_BYTES_MAX`].
    #[error(
        "the peer announced a message of {bytes} bytes, the largest allowed is {FRAME_BYTES_MAX}: \
         the connection is closed"
    )]
    TooLarge {
        /// The announced length in bytes.
        bytes: usize,
    },
    /// A frame larger than [`FRAME_BYTES_MAX`] was received and left out, which
    /// is possible where frames have no codes.
    #[error("it is {bytes} bytes, and a message is at most {FRAME_BYTES_MAX}")]
    Skipped {
        /// The length of its body.
        bytes: usize,
        /// The beginning of its body.
        head: Vec<u8>,
    },
    /// The server did not confirm, before its first message, that it has let the client in.
    #[error(
        "the server's answer to the handshake is not genuine: it was changed in transit, or the \
         server has refused this side; the connection is closed"
    )]
    NotWelcome,
    /// The connection ended in the middle of a frame.
    #[error("the connection ended in the middle of a message")]
    CutShort,
    /// The connection ended between two frames, without the farewell that TLS
    /// demands.
    #[error(
        "the connection ended without a farewell: the process at its other end was killed, or the \
         connection cut"
    )]
    NoFarewell,
    /// The connection failed.
    #[error("the connection failed while receiving: {0}")]
    Io(#[source] io::Error),
}

/// One or more whole frames, in the order they were sent; yields their bodies,
/// which lie in the reader's buffer.
#[derive(Clone, Debug)]
pub struct Batch<'a> {
    /// Whole frames that have been checked.
    bytes: &'a [u8],
    /// How many of them.
    frames: usize,
    code_bytes: usize,
}

impl<'a> Iterator for Batch<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let (length, rest) = self.bytes.split_first_chunk()?;
        let length = u32::from_le_bytes(*length);
        let (body, rest) = rest.split_at_checked((length & !SEALED) as usize)?;
        self.bytes = rest.get(self.code_bytes..)?;
        self.frames -= 1;
        match length & SEALED {
            0 => Some(body),
            // The body has been decrypted in place.
            _ => body.get(..body.len().checked_sub(TAG_BYTES)?),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.frames, Some(self.frames))
    }
}

impl ExactSizeIterator for Batch<'_> {}

impl FrameReader {
    /// `expected` has to come before the first frame.
    pub(super) fn new(stream: ReadHalf, seal: Option<Seal>, expected: Vec<u8>) -> FrameReader {
        FrameReader {
            stream,
            seal,
            expected,
            buffer: vec![0; NUMBER_BYTES],
            start: NUMBER_BYTES,
            quiet: 0,
            room: READ_BUFFER_BYTES_MIN,
            skipped: None,
        }
    }

    /// Waits until there is a frame, and returns all whole frames that have
    /// been received by then. `None` when the peer has closed the connection
    /// between two frames.
    ///
    /// Cancellation loses nothing. A frame that came before a bad one is
    /// returned; the next call then gives the error.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn read_batch(&mut self) -> Result<Option<Batch<'_>>, ReadError> {
        loop {
            if self.awaits_welcome()? {
                if !self.receive().await? {
                    return Ok(None);
                }
                continue;
            }
            self.skip();
            if let Some(Skipped { bytes, head, .. }) = self.skipped.take_if(|it| it.left == 0) {
                return Err(ReadError::Skipped { bytes, head });
            }
            let (end, frames) = match self.skipped {
                Some(_) => (0, 0),
                None => self.check_frames()?,
            };
            if frames > 0 {
                let bytes = self.start..end;
                self.start = end;
                let code_bytes = self.code_bytes();
                return Ok(Some(Batch { bytes: &self.buffer[bytes], frames, code_bytes }));
            }
            if !self.receive().await? {
                return Ok(None);
            }
        }
    }

    /// Reads what has come, at least a byte. False if the peer has closed the connection between
    /// two frames.
    async fn receive(&mut self) -> Result<bool, ReadError> {
        self.make_room();
        match self.stream.read_buf(&mut self.buffer).await {
            Ok(0) if self.is_between() => Ok(false),
            Ok(0) => Err(ReadError::CutShort),
            Ok(_) => {
                if self.buffer.len() == self.buffer.capacity() {
                    self.room = (self.room * 4).min(READ_BUFFER_BYTES);
                }
                Ok(true)
            }
            // This is how TLS says that the peer went without a farewell.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(match self.is_between() {
                    true => ReadError::NoFarewell,
                    false => ReadError::CutShort,
                })
            }
            Err(error) => Err(ReadError::Io(error)),
        }
    }

    /// Whether more of the welcome has to come. It is checked as far as it has.
    fn awaits_welcome(&mut self) -> Result<bool, ReadError> {
        let received = &self.buffer[self.start..];
        let seen = received.len().min(self.expected.len());
        if !constant_time_eq::constant_time_eq(&received[..seen], &self.expected[..seen]) {
            return Err(ReadError::NotWelcome);
        }
        if seen < self.expected.len() {
            return Ok(true);
        }
        self.start += seen;
        self.expected = Vec::new();
        Ok(false)
    }

    /// Whether what was received ends with a whole frame.
    fn is_between(&self) -> bool {
        self.start == self.buffer.len() && self.skipped.is_none()
    }

    /// Checks the whole frames in the buffer up to the first bad one, which is
    /// an error only if it is the first of all. Returns the end of the good
    /// ones, and how many they are.
    fn check_frames(&mut self) -> Result<(usize, usize), ReadError> {
        let code_bytes = self.code_bytes();
        let (mut at, mut frames) = (self.start, 0);
        while let Some(Head { bytes, sealed }) = self.head(at) {
            if is_too_large(bytes, sealed) {
                if frames == 0 && (sealed || code_bytes > 0) {
                    return Err(ReadError::TooLarge { bytes });
                }
                break;
            }
            let body_end = at + LENGTH_BYTES + bytes;
            if self.buffer.len() < body_end + code_bytes {
                break;
            }
            if let Some(seal) = &mut self.seal {
                // The bytes before the frame are lent to its number: they are
                // the last frame's code, which has been checked, or nothing.
                let code = seal.code(&mut self.buffer[at - NUMBER_BYTES..body_end]);
                let is_genuine = code.is_none_or(|code| {
                    let received = &self.buffer[body_end..body_end + code_bytes];
                    constant_time_eq::constant_time_eq(&code, received)
                });
                let body = &mut self.buffer[at + LENGTH_BYTES..body_end];
                let is_open =
                    is_genuine && (!sealed || seal.open(bytes as u32 | SEALED, body).is_some());
                if !is_open {
                    if frames == 0 {
                        return Err(ReadError::Tampered { number: seal.number() });
                    }
                    break;
                }
                seal.advance();
            }
            at = body_end + code_bytes;
            frames += 1;
        }
        Ok((at, frames))
    }

    /// Leaves out the frame that comes next if it is too large, as far as it was
    /// received: nothing is allocated for what a peer announces. A frame with a
    /// code cannot be left out, as the code covers all of it.
    fn skip(&mut self) {
        if self.code_bytes() > 0 {
            return;
        }
        let received = self.buffer.len() - self.start;
        if self.skipped.is_none()
            && let Some(Head { bytes, sealed: false }) = self.head(self.start)
            && is_too_large(bytes, false)
            && received >= LENGTH_BYTES + HEAD_BYTES
        {
            let body = self.start + LENGTH_BYTES;
            let head = self.buffer[body..body + HEAD_BYTES].to_vec();
            self.skipped = Some(Skipped { head, bytes, left: LENGTH_BYTES + bytes });
            if let Some(seal) = &mut self.seal {
                seal.advance();
            }
        }
        if let Some(skipped) = &mut self.skipped {
            let now = skipped.left.min(received);
            skipped.left -= now;
            self.start += now;
        }
    }

    /// Makes room for the rest of the frame that comes next, and for what may
    /// follow it. Called when there is no whole frame.
    fn make_room(&mut self) {
        let pending = self.buffer.len() - self.start;
        if self.start > NUMBER_BYTES {
            self.buffer.copy_within(self.start.., NUMBER_BYTES);
            self.buffer.truncate(NUMBER_BYTES + pending);
            self.start = NUMBER_BYTES;
        }

        let frame = match self.head(self.start) {
            Some(Head { bytes, sealed }) if !is_too_large(bytes, sealed) => {
                LENGTH_BYTES + bytes + self.code_bytes()
            }
            // A frame that is skipped needs only its head in one piece.
            Some(_) => LENGTH_BYTES + HEAD_BYTES,
            None => LENGTH_BYTES,
        };
        let needed = NUMBER_BYTES + frame;
        if needed > READ_BUFFER_BYTES {
            self.quiet = 0;
        } else {
            self.quiet = self.quiet.saturating_add(1);
            if self.quiet >= QUIET_READS && self.buffer.capacity() > READ_BUFFER_BYTES {
                self.buffer.shrink_to(READ_BUFFER_BYTES);
            }
        }
        if self.buffer.capacity() < needed.max(self.room) {
            // A large frame gets room for the start of the next one as well.
            let capacity = if needed > READ_BUFFER_BYTES {
                needed + READ_BUFFER_BYTES
            } else {
                needed.max(self.room)
            };
            self.buffer.reserve_exact(capacity - self.buffer.len());
        }
    }

    fn code_bytes(&self) -> usize {
        self.seal.as_ref().map_or(0, Seal::code_bytes)
    }

    /// The head of the frame that starts `at` there, if it has been received.
    fn head(&self, at: usize) -> Option<Head> {
        let length = u32::from_le_bytes(*self.buffer[at..].first_chunk()?);
        let sealed = self.seal.is_some() && length & SEALED != 0;
        let bytes = if sealed { length & !SEALED } else { length };
        Some(Head { bytes: bytes as usize, sealed })
    }
}

impl fmt::Debug for FrameReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrameReader")
            .field("buffered_bytes", &(self.buffer.len() - self.start))
            .finish_non_exhaustive()
    }
}

/// The head of a frame.
struct Head {
    /// The length of its body, with the tag of one that is sealed.
    bytes: usize,
    sealed: bool,
}

fn is_too_large(bytes: usize, sealed: bool) -> bool {
    bytes > FRAME_BYTES_MAX + if sealed { TAG_BYTES } else { 0 }
}
