//! Looking through a journal that its owner is using: whether this release can read it is to be
//! known before the owner makes room for this release. Nothing is locked, cut off or removed.

use std::io;
use std::path::Path;

use super::error::{Corruption, ReplayError};
use super::format::FileKind;
use super::read::{Flaw, Reader, ReaderError, Step};
use super::segment::{Dir, Entry};

/// How often a journal is looked through from its beginning, since the owner replaces files by a
/// snapshot meanwhile.
const LOOKS_MAX: u32 = 16;

/// How a file was looked through.
enum Looked {
    /// To its end.
    Through,
    /// The owner has removed it.
    Removed,
}

/// Hands all records to `each` that are in the journal's files, some perhaps several times. What
/// the owner is writing in this moment is left out. With `salvage`, so is all damage.
///
/// # Errors
/// A file cannot be read, or was written by another version; damage; what `each` returns.
pub fn look<E: From<ReplayError>>(
    path: &Path,
    salvage: bool,
    mut each: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let failed = |source| ReplayError::Io { path: path.to_owned(), source };
    let dir = Dir::open(path).map_err(failed)?;
    for _ in 0..LOOKS_MAX {
        let entries = dir.entries().map_err(failed)?;
        if look_at(&dir, &entries, salvage, &mut each)? {
            return Ok(());
        }
    }
    let source = io::Error::other("its files were replaced again and again; try again");
    Err(failed(source).into())
}

/// Whether all files were there.
fn look_at<E: From<ReplayError>>(
    dir: &Dir,
    entries: &[Entry],
    salvage: bool,
    each: &mut impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<bool, E> {
    let snapshot = entries.iter().rev().find_map(|entry| match entry {
        Entry::Snapshot(base) => Some(*base),
        _ => None,
    });
    let base = snapshot.unwrap_or(1);
    let segments = entries.iter().filter_map(|entry| match entry {
        Entry::Segment(number) if *number >= base => Some((FileKind::Segment, *number)),
        _ => None,
    });
    let files: Vec<_> =
        snapshot.map(|base| (FileKind::Snapshot, base)).into_iter().chain(segments).collect();
    for (at, (kind, number)) in files.iter().enumerate() {
        // The end of the last one is being written.
        let forgives = salvage || at + 1 == files.len();
        let looked = look_through(dir, *kind, *number, forgives, each)?;
        if matches!(looked, Looked::Removed) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn look_through<E: From<ReplayError>>(
    dir: &Dir,
    kind: FileKind,
    number: u64,
    forgives: bool,
    each: &mut impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<Looked, E> {
    let path = dir.entry_path(match kind {
        FileKind::Segment => Entry::Segment(number),
        FileKind::Snapshot => Entry::Snapshot(number),
    });
    let corrupt = |offset, flaw| {
        let path = path.clone();
        ReplayError::Corrupt(Corruption { path, offset, flaw, next_good: None })
    };
    let mut reader = match Reader::open(&path, kind, number, None) {
        Ok(reader) => reader,
        Err(ReaderError::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(Looked::Removed);
        }
        Err(ReaderError::Io(source)) => return Err(ReplayError::Io { path, source }.into()),
        Err(ReaderError::Version(version)) => {
            return Err(ReplayError::Version { path, version }.into());
        }
        Err(ReaderError::Header) if forgives => return Ok(Looked::Through),
        Err(ReaderError::Header) => return Err(corrupt(0, Flaw::FileHeader).into()),
    };
    loop {
        let step = reader.step();
        match step.map_err(|source| ReplayError::Io { path: path.clone(), source })? {
            Step::Record(range) => each(&reader.chunk()[range])?,
            Step::Control(_) => {}
            Step::End => return Ok(Looked::Through),
            Step::Bad(_) if forgives => return Ok(Looked::Through),
            Step::Bad(flaw) => return Err(corrupt(reader.offset(), flaw).into()),
        }
    }
}
