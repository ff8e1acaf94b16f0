//! Which members are meant: `ARCHIVE!MEMBER`, `ARCHIVE!PATTERN`.

use super::unreadable;
use crate::exit::Exit;
use falkon_archive::{Archive, ReadError};
use falkon_core::archive::limits::PATTERN_BYTES_MAX;
use falkon_core::archive::{Member, Pattern};
use std::ffi::OsStr;

/// An archive, and which of its members are meant.
#[derive(Debug)]
pub(super) struct Selected {
    pub(super) archive: Archive,
    pub(super) members: Meant,
}

/// Members of an archive.
#[derive(Debug)]
pub(super) enum Meant {
    All,
    Matching(Pattern),
    Named(Vec<u8>),
}

/// Opens what a word of the command line names.
pub(super) fn select(word: &OsStr) -> Result<Selected, Exit> {
    let (path, member) = Archive::split(word);
    let archive = Archive::open(&path).map_err(unreadable)?;
    let Some(text) = member else { return Ok(Selected { archive, members: Meant::All }) };
    let Some(pattern) = Pattern::new(&text) else {
        return Err(Exit::usage(format!(
            "a pattern for members has {PATTERN_BYTES_MAX} bytes at most"
        )));
    };
    let is_plain = !text.iter().any(|byte| b"*?[\\".contains(byte));
    // A member may have a name that looks like a pattern.
    let members = match is_plain {
        true => Meant::Named(text),
        false => match archive.find(&text) {
            Ok(_) => Meant::Named(text),
            Err(ReadError::NoMember { .. }) => Meant::Matching(pattern),
            Err(error) => return Err(unreadable(error)),
        },
    };
    Ok(Selected { archive, members })
}

impl Meant {
    /// Whether a member is meant.
    pub(super) fn is(&self, member: &Member) -> bool {
        match self {
            Meant::All => true,
            Meant::Matching(pattern) => pattern.matches(&member.name),
            Meant::Named(name) => member.name == *name,
        }
    }
}
