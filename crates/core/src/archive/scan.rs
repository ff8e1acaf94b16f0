//! Looking for members without a directory: a file that was cut off, or never
//! finished, has whole members before its end.

use super::member::{LOCAL_SIGNATURE, Local, local};

/// What may be the next member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Candidate {
    /// A header, at this offset within the bytes.
    Header {
        /// Where it begins.
        at: usize,
        /// What it says.
        header: Box<Local>,
    },
    /// No header begins in the first so many bytes: read on from there.
    None {
        /// Bytes to pass over.
        pass: usize,
    },
}

/// Looks for the first header of a member in `bytes`, which stand at `offset` of
/// the file. With `is_last`, the file ends with them; else they are at least
/// [`LOCAL_BYTES_MAX`](super::limits::LOCAL_BYTES_MAX), as much as a header takes.
#[must_use]
pub fn next_candidate(bytes: &[u8], offset: u64, is_last: bool) -> Candidate {
    let signature = LOCAL_SIGNATURE.to_le_bytes();
    let mut from = 0;
    while let Some(found) = bytes[from..].iter().position(|byte| *byte == signature[0]) {
        let at = from + found;
        if bytes[at..].len() < signature.len() && !is_last {
            return Candidate::None { pass: at };
        }
        if bytes[at..].starts_with(&signature) {
            match local(&bytes[at..], offset + at as u64) {
                Ok(Some(header)) => return Candidate::Header { at, header: Box::new(header) },
                // A longer read has the rest of it.
                Ok(None) if !is_last && at > 0 => return Candidate::None { pass: at },
                Ok(None) | Err(_) => {}
            }
        }
        from = at + 1;
    }
    Candidate::None { pass: bytes.len() }
}
