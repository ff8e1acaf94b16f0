//! Opening a journal, before the first record is read: this decides which files
//! count, cuts off the torn tail of the last segment, and removes the remains
//! of an interrupted snapshot.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::error::{Corruption, OpenError};
use super::format::{Control, FILE_HEADER_BYTES, FileKind};
use super::read::{Flaw, Reader, ReaderError, Step};
use super::replay::{ReplayFile, Torn};
use super::segment::{Dir, Entry, Writer};

/// A journal's state after recovery.
#[derive(Debug)]
pub(super) struct Recovered {
    /// The segment that appends go to.
    pub(super) writer: Writer,
    /// The files that replay reads, in order.
    pub(super) files: Vec<ReplayFile>,
    /// Sizes of the segments before the current one, by number.
    pub(super) closed: BTreeMap<u64, u64>,
    /// Size of the snapshot, 0 without one.
    pub(super) snapshot_bytes: u64,
    /// The part that was cut off the last segment.
    pub(super) torn: Option<Torn>,
}

/// How damage is judged.
#[derive(Debug, Clone, Copy)]
pub(super) struct Judgement {
    /// Go on behind damage.
    pub(super) salvage: bool,
    /// The machine went down since the journal was last recovered: writes that were not synced may
    /// be missing in any order, and good records may stand behind a hole.
    pub(super) machine_restarted: bool,
}

fn failed<'a>(doing: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> OpenError + 'a {
    move |source| OpenError::Io { doing, path: path.to_owned(), source }
}

/// Recovers the journal in `dir`, which the caller has locked.
pub(super) fn recover(dir: &Dir, judgement: Judgement) -> Result<Recovered, OpenError> {
    let entries = dir.entries().map_err(failed("list", dir.path()))?;
    let snapshot = entries.iter().rev().find_map(|entry| match entry {
        Entry::Snapshot(base) => Some(*base),
        _ => None,
    });
    let base = snapshot.unwrap_or(1);
    let mut files = Vec::new();
    let mut snapshot_bytes = 0;
    let mut keep_from = base;
    if let Some(base) = snapshot {
        let path = dir.entry_path(Entry::Snapshot(base));
        let checked = check_snapshot(&path, base, judgement)?;
        snapshot_bytes = checked.unwrap_or(0);
        // The files that a damaged snapshot should replace may be all that is
        // left: they stay for their owner.
        keep_from = if checked.is_some() { base } else { 1 };
        files.push(ReplayFile { path, kind: FileKind::Snapshot, number: base, end: None });
    }
    remove_replaced(dir, &entries, keep_from)?;
    let numbers: Vec<u64> = entries
        .iter()
        .filter_map(|entry| match entry {
            Entry::Segment(number) if *number >= base => Some(*number),
            _ => None,
        })
        .collect();
    let fresh = snapshot.is_none() && numbers.is_empty();
    let last = numbers.last().copied().unwrap_or(base);
    let mut closed = BTreeMap::new();
    let mut expected = base;
    for &number in &numbers {
        if number != expected {
            // However many are missing in a row, they are one gap.
            let path = dir.entry_path(Entry::Segment(expected));
            if !judgement.salvage {
                return Err(OpenError::SegmentMissing { path });
            }
            files.push(ReplayFile { path, kind: FileKind::Segment, number: expected, end: None });
        }
        expected = number + 1;
        if number != last {
            let path = dir.entry_path(Entry::Segment(number));
            let metadata = std::fs::metadata(&path).map_err(failed("read", &path))?;
            closed.insert(number, metadata.len());
            files.push(ReplayFile { path, kind: FileKind::Segment, number, end: None });
        }
    }
    if numbers.is_empty() {
        let path = dir.entry_path(Entry::Segment(last));
        if !fresh && !judgement.salvage {
            return Err(OpenError::SegmentMissing { path });
        }
        let writer = create_segment(dir, last)?;
        return Ok(Recovered { writer, files, closed, snapshot_bytes, torn: None });
    }
    let (writer, torn) = recover_last(dir, last, judgement, &mut files, &mut closed)?;
    Ok(Recovered { writer, files, closed, snapshot_bytes, torn })
}

/// Size of a snapshot; `None` if its header is damaged and the owner wants to go on all the same.
fn check_snapshot(path: &Path, base: u64, judgement: Judgement) -> Result<Option<u64>, OpenError> {
    match Reader::open(path, FileKind::Snapshot, base, None) {
        Ok(reader) => Ok(Some(reader.end())),
        Err(ReaderError::Header) if judgement.salvage => Ok(None),
        Err(error) => Err(unreadable(path, error)),
    }
}

fn unreadable(path: &Path, error: ReaderError) -> OpenError {
    let path = path.to_owned();
    match error {
        ReaderError::Io(source) => OpenError::Io { doing: "read", path, source },
        ReaderError::Version(version) => OpenError::Version { path, version },
        ReaderError::Header => OpenError::Corrupt(Corruption {
            path,
            offset: 0,
            flaw: Flaw::FileHeader,
            next_good: None,
        }),
    }
}

/// Removes unfinished snapshots and everything that the newest finished one replaces.
fn remove_replaced(dir: &Dir, entries: &[Entry], base: u64) -> Result<(), OpenError> {
    let replaced: Vec<Entry> = entries
        .iter()
        .copied()
        .filter(|entry| match entry {
            Entry::SnapshotPart(_) => true,
            Entry::Segment(number) | Entry::Snapshot(number) => *number < base,
        })
        .collect();
    if replaced.is_empty() {
        return Ok(());
    }
    // The snapshot's name must be on stable storage before what it replaces goes.
    dir.sync().map_err(failed("sync", dir.path()))?;
    for entry in replaced {
        dir.remove(entry).map_err(failed("remove", &dir.entry_path(entry)))?;
    }
    Ok(())
}

/// Creates a segment so that it, its header and its name are on stable storage.
fn create_segment(dir: &Dir, number: u64) -> Result<Writer, OpenError> {
    let path = dir.entry_path(Entry::Segment(number));
    let writer = Writer::create(dir, Entry::Segment(number)).map_err(failed("create", &path))?;
    writer.file.sync_all().map_err(failed("sync", &path))?;
    dir.sync().map_err(failed("sync", dir.path()))?;
    Ok(writer)
}

fn recover_last(
    dir: &Dir,
    number: u64,
    judgement: Judgement,
    files: &mut Vec<ReplayFile>,
    closed: &mut BTreeMap<u64, u64>,
) -> Result<(Writer, Option<Torn>), OpenError> {
    let path = dir.entry_path(Entry::Segment(number));
    if let Some(bytes) = unborn(&path).map_err(failed("read", &path))? {
        let writer = create_segment(dir, number)?;
        return Ok((writer, (bytes > 0).then_some(Torn { path, offset: 0, bytes })));
    }
    let mut reader = match Reader::open(&path, FileKind::Segment, number, None) {
        Ok(reader) => reader,
        Err(ReaderError::Header) if judgement.salvage => {
            // Nothing can be appended behind a header that checks no record.
            let bytes = std::fs::metadata(&path).map_err(failed("read", &path))?.len();
            closed.insert(number, bytes);
            files.push(ReplayFile { path, kind: FileKind::Segment, number, end: None });
            return Ok((create_segment(dir, number + 1)?, None));
        }
        Err(error) => return Err(unreadable(&path, error)),
    };
    let end = valid_end(&mut reader, number, judgement)?;
    let bytes = reader.end() - end;
    let writer = Writer::resume(&path, number, reader.seal(), end)
        .map_err(failed("cut the torn tail off", &path))?;
    // Records that replay returns are on stable storage from here on, and the
    // tail is gone for good.
    writer.file.sync_all().map_err(failed("sync", &path))?;
    dir.sync().map_err(failed("sync", dir.path()))?;
    let torn = (bytes > 0).then(|| Torn { path: path.clone(), offset: end, bytes });
    files.push(ReplayFile { path, kind: FileKind::Segment, number, end: Some(end) });
    Ok((writer, torn))
}

/// The length of a segment whose creation was interrupted: it never had a synced header, and so
/// never a record. `None` for any other.
fn unborn(path: &Path) -> io::Result<Option<u64>> {
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    let mut header = [0; FILE_HEADER_BYTES];
    if length == header.len() as u64 {
        file.read_exact_at(&mut header, 0)?;
    }
    Ok((length <= header.len() as u64 && header.iter().all(|byte| *byte == 0)).then_some(length))
}

/// Where the last segment's valid part ends.
fn valid_end(reader: &mut Reader, number: u64, judgement: Judgement) -> Result<u64, OpenError> {
    let path = reader.path().to_owned();
    let read = |outcome: io::Result<_>| outcome.map_err(failed("read", &path));
    loop {
        let flaw = match read(reader.step())? {
            Step::Record(_) | Step::Control(_) => continue,
            Step::End => return Ok(reader.offset()),
            Step::Bad(flaw) => flaw,
        };
        let offset = reader.offset();
        if flaw == Flaw::CutShort {
            // A valid header says that the record goes on behind the end, so nothing follows it.
            return Ok(offset);
        }
        let next_good = reader.next_good(offset + 1).map_err(failed("read", &path))?;
        let Some(next) = next_good else { return Ok(offset) };
        if judgement.salvage {
            reader.seek(next);
            continue;
        }
        let torn = judgement.machine_restarted
            && !synced_past(reader, next, number, offset).map_err(failed("read", &path))?;
        if torn {
            return Ok(offset);
        }
        return Err(OpenError::Corrupt(Corruption { path, offset, flaw, next_good }));
    }
}

/// Whether a note behind `from` says that the segment had been synced past `offset`.
fn synced_past(reader: &mut Reader, from: u64, number: u64, offset: u64) -> io::Result<bool> {
    reader.seek(from);
    loop {
        match reader.step()? {
            Step::Control(Control::Synced { number: of, synced })
                if of == number && synced > offset =>
            {
                return Ok(true);
            }
            Step::Record(_) | Step::Control(_) => {}
            Step::End => return Ok(false),
            Step::Bad(_) => match reader.next_good(reader.offset() + 1)? {
                Some(next) => reader.seek(next),
                None => return Ok(false),
            },
        }
    }
}
