//! Recovering what is whole in a damaged archive: from its directory, or, where
//! that is missing or damaged, from the headers of members.

use crate::limits::{SCAN_BYTES, SCAN_FILES_MAX};
use crate::part::Part;
use crate::read::{ReadError, Scratch};
use crate::set::files_of;
use crate::write::{Source, WriteError, Writer};
use falkon_core::archive::{Candidate, Member, next_candidate};
use std::path::Path;
use std::sync::Arc;

/// What was recovered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Salvaged {
    /// Members that are whole.
    pub members: u64,
    /// Members of which a header, or a record, is there, and that are not.
    pub lost: u64,
}

/// Adds the members that are whole to another archive, as they are packed.
///
/// # Errors
/// If a file cannot be read at all, or the other archive cannot be written.
pub fn salvage(path: &Path, writer: &mut Writer) -> Result<Salvaged, WriteError> {
    let files = files_of(path)?;
    if files.is_empty() {
        return Err(ReadError::Missing { path: path.to_owned() }.into());
    }
    let mut salvaged = Salvaged::default();
    for (_, path) in files {
        let part = Part::open(&path);
        let is_listed = part.as_ref().is_ok_and(|part| part.members().all(|one| one.is_ok()));
        match part {
            Ok(part) if is_listed => listed(&Arc::new(part), writer, &mut salvaged)?,
            _ => scanned(&Arc::new(Part::without_directory(&path)?), writer, &mut salvaged)?,
        }
    }
    Ok(salvaged)
}

fn listed(
    part: &Arc<Part>,
    writer: &mut Writer,
    salvaged: &mut Salvaged,
) -> Result<(), WriteError> {
    let mut scratch = Scratch::default();
    for member in part.members() {
        let member = member?;
        keep_if_whole(part, member, &mut scratch, writer, salvaged)?;
    }
    Ok(())
}

/// Adds a member if it is whole, and says whether it is.
fn keep_if_whole(
    part: &Arc<Part>,
    member: Member,
    scratch: &mut Scratch,
    writer: &mut Writer,
    salvaged: &mut Salvaged,
) -> Result<bool, WriteError> {
    match scratch.read(part, &member, &mut |_| Ok(())) {
        Ok(()) => {
            let name = member.name.clone();
            writer.add(name, Source::Packed { part: Arc::clone(part), member })?;
            salvaged.members += 1;
            Ok(true)
        }
        Err(ReadError::Member { .. }) => {
            salvaged.lost += 1;
            Ok(false)
        }
        Err(error) => Err(error.into()),
    }
}

fn scanned(
    part: &Arc<Part>,
    writer: &mut Writer,
    salvaged: &mut Salvaged,
) -> Result<(), WriteError> {
    let all = part.layout().file_bytes;
    let (mut scratch, mut buffer) = (Scratch::default(), vec![0; SCAN_BYTES]);
    let file = part.file()?;
    let (mut at, mut in_vain) = (0, 0);
    while at < all {
        let bytes = (all - at).min(SCAN_BYTES as u64) as usize;
        file.read_exact_at(&mut buffer[..bytes], at).map_err(|error| part.io(error))?;
        let is_last = at + bytes as u64 == all;
        // All members whose headers the buffer has, before it is read anew.
        let mut used = 0;
        while used < bytes {
            let offset = at + used as u64;
            match next_candidate(&buffer[used..bytes], offset, is_last) {
                Candidate::None { pass: 0 } => break,
                Candidate::None { pass } => used += pass,
                Candidate::Header { at: within, header } => {
                    let start = used + within;
                    let ends = header.bytes as u64 + header.member.packed;
                    let is_known = !header.is_described_behind && !header.member.is_encrypted;
                    let is_within =
                        (at + start as u64).checked_add(ends).is_some_and(|end| end <= all);
                    let may_be =
                        is_known && is_within && in_vain < all.saturating_mul(SCAN_FILES_MAX);
                    let is_whole = may_be
                        && keep_if_whole(part, header.member, &mut scratch, writer, salvaged)?;
                    if is_whole {
                        let next = start as u64 + ends;
                        used = usize::try_from(next).unwrap_or(usize::MAX);
                    } else {
                        salvaged.lost += u64::from(!may_be);
                        in_vain += if may_be { ends } else { 0 };
                        used = start + 4;
                    }
                }
            }
            if bytes - used.min(bytes) < SCAN_BYTES / 2 && !is_last {
                break;
            }
        }
        at += used.max(1) as u64;
    }
    Ok(())
}
