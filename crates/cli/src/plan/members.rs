//! The members of archives that `--each ARCHIVE!PATTERN` names.

use super::error::PlanError;
use super::files;
use falkon_archive::{Archive, Newest, ReadError};
use falkon_core::archive::limits::PATTERN_BYTES_MAX;
use falkon_core::archive::{Kind, Member, Pattern, member_start, place, readable};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Hands `add` a value `ARCHIVE!MEMBER` for each member that `text` names, in the order of the
/// archive. The archive may be a pattern too.
///
/// # Errors
/// An archive cannot be read, no member matches, or one that does cannot be an input.
pub(super) fn add(
    text: &OsStr,
    add: &mut dyn FnMut(&[u8]) -> Result<(), PlanError>,
) -> Result<(), PlanError> {
    let bytes = text.as_bytes();
    let start = member_start(bytes).unwrap_or(bytes.len());
    let (archive, wanted) = (&bytes[..start.saturating_sub(1)], &bytes[start..]);
    let is_there = files::as_path(archive).symlink_metadata().is_ok();
    let archives = match files::is_pattern(archive) && !is_there {
        true => files::expand(archive),
        false => vec![archive.to_vec()],
    };
    let mut found = 0;
    for archive in archives {
        found += add_of(&archive, wanted, add)?;
    }
    match found {
        0 => Err(PlanError::NoMember { pattern: text.to_string_lossy().into_owned() }),
        _ => Ok(()),
    }
}

/// The same, of one archive; says how many members.
fn add_of(
    path: &[u8],
    wanted: &[u8],
    add: &mut dyn FnMut(&[u8]) -> Result<(), PlanError>,
) -> Result<u64, PlanError> {
    let archive = Archive::open(files::as_path(path)).map_err(PlanError::Archive)?;
    let mut value = [path, b"!"].concat();
    let start = value.len();
    let mut add = |member: &Member| {
        check(files::as_path(path), member)?;
        value.truncate(start);
        value.extend_from_slice(&member.name);
        add(&value)
    };
    // A member may have a name that looks like a pattern.
    match archive.find(wanted) {
        Ok((_, member)) => return add(&member).map(|()| 1),
        Err(ReadError::NoMember { .. }) if files::is_pattern(wanted) => {}
        Err(ReadError::NoMember { .. }) => return Ok(0),
        Err(error) => return Err(PlanError::Archive(error)),
    }
    let Some(pattern) = Pattern::new(wanted) else {
        return Err(PlanError::LongPattern { bytes: PATTERN_BYTES_MAX });
    };
    let is_meant = |member: &Member| member.kind() == Kind::File && pattern.matches(&member.name);
    let newest = Newest::of(&archive, is_meant).map_err(PlanError::Archive)?;
    let mut found = 0;
    for (number, part) in archive.parts().iter().enumerate() {
        for member in part.members() {
            let member = member.map_err(PlanError::Archive)?;
            if is_meant(&member) && newest.is(number, &member) {
                add(&member)?;
                found += 1;
            }
        }
    }
    Ok(found)
}

fn check(archive: &Path, member: &Member) -> Result<(), PlanError> {
    let reason = match place(&member.name) {
        Err(error) => error.to_string(),
        Ok(_) if member.kind() != Kind::File => "it is a directory or a link".to_owned(),
        Ok(_) if str::from_utf8(&member.name).is_err() => "its name is not UTF-8".to_owned(),
        Ok(_) => return Ok(()),
    };
    Err(PlanError::Member {
        archive: archive.display().to_string(),
        member: readable(&member.name),
        reason,
    })
}
