//! The end of an archive's file, by which members are found.

use falkon_archive::crc32;
use falkon_core::archive::limits::CENTRAL_BYTES_MAX;
use falkon_core::archive::{FormatError, Layout, Member, Opening, Search, Want, central};

use super::{Archive, MemberError};

/// Bytes from the end that are read first.
const TAIL_BYTES: u64 = 64 << 10;

/// The lookup table and the directory are held if they are no longer than this; the parts of
/// longer ones are read whenever they are needed.
const HELD_BYTES_MAX: u64 = 1 << 20;

/// The bytes of a record of the directory that are read first.
const RECORD_BYTES: usize = 512;

/// What is held of an archive.
#[derive(Debug)]
pub(super) struct Table {
    layout: Layout,
    /// The last bytes of the file, from this offset on.
    from: u64,
    tail: Vec<u8>,
}

impl Table {
    /// Reads it.
    pub(super) async fn read(archive: &Archive) -> Result<Table, MemberError> {
        let file_bytes = archive.bytes().await?;
        let from = file_bytes.saturating_sub(TAIL_BYTES);
        let mut tail = archive.range(from, file_bytes - from).await?;
        let mut opening = Opening::new(file_bytes);
        let mut from = from;
        while let Some(want) = opening.want() {
            let bytes = bytes_at(archive, (from, &tail), want).await?;
            opening.give(&bytes, crc32).map_err(no_archive)?;
        }
        let layout = opening.layout().ok_or_else(|| no_archive(FormatError::NoEnd))?;
        let start = layout.lookup.map_or(layout.directory, |lookup| lookup.offset());
        if start < from && file_bytes - start <= HELD_BYTES_MAX {
            let mut more = archive.range(start, from - start).await?;
            more.append(&mut tail);
            (from, tail) = (start, more);
        } else if let Some(unused) = start.checked_sub(from) {
            tail.drain(..unused as usize);
            from = start;
        }
        tail.shrink_to_fit();
        Ok(Table { layout, from, tail })
    }

    pub(super) fn file_bytes(&self) -> u64 {
        self.layout.file_bytes
    }

    /// The bytes that it has in memory.
    pub(super) fn held_bytes(&self) -> usize {
        self.tail.len()
    }

    /// The member with this name that was written last.
    pub(super) async fn find(
        &self,
        archive: &Archive,
        name: &[u8],
    ) -> Result<Option<Member>, MemberError> {
        if let Some(lookup) = self.layout.lookup {
            let mut search = Search::new(lookup, name);
            while let Some(want) = search.want() {
                search.give(&self.bytes(archive, want).await?);
            }
            for record in search.records().unwrap_or_default() {
                match self.member_at(archive, record).await? {
                    Some(member) if member.name == name => return Ok(Some(member)),
                    _ => {}
                }
            }
        }
        self.search(name)
    }

    /// The same, from the directory.
    fn search(&self, name: &[u8]) -> Result<Option<Member>, MemberError> {
        let Some(start) = self.layout.directory.checked_sub(self.from) else {
            let bytes = self.layout.directory_bytes;
            let why = format!(
                "its lookup table does not have the name, and its directory is longer than \
                 {HELD_BYTES_MAX} bytes ({bytes}): `falkon archive join` writes it anew"
            );
            return Err(MemberError::NoMember(why));
        };
        let (mut at, end) = (start as usize, (start + self.layout.directory_bytes) as usize);
        let mut last = None;
        while at < end {
            let offset = self.from + at as u64;
            let rest = self.tail.get(at..end).unwrap_or_default();
            let what = "a record of the directory";
            let (member, bytes) = central(rest, offset, self.layout.base)
                .and_then(|found| found.ok_or(FormatError::CutOff { offset, what }))
                .map_err(no_archive)?;
            at += bytes;
            last = Some(member).filter(|member| member.name == name).or(last);
        }
        Ok(last)
    }

    /// The member whose record is at this offset within the directory.
    async fn member_at(&self, archive: &Archive, at: u64) -> Result<Option<Member>, MemberError> {
        let Some(rest) = self.layout.directory_bytes.checked_sub(at) else { return Ok(None) };
        let offset = self.layout.directory + at;
        for most in [RECORD_BYTES, CENTRAL_BYTES_MAX] {
            let bytes = rest.min(most as u64) as usize;
            let record = self.bytes(archive, Want { offset, bytes }).await?;
            // A table that leads to what is no record is damaged: the directory is looked at.
            match central(&record, offset, self.layout.base) {
                Ok(Some((member, _))) => return Ok(Some(member)),
                Ok(None) => {}
                Err(_) => return Ok(None),
            }
        }
        Ok(None)
    }

    async fn bytes(&self, archive: &Archive, want: Want) -> Result<Vec<u8>, MemberError> {
        bytes_at(archive, (self.from, &self.tail), want).await
    }
}

/// Bytes of a file whose last ones are held.
async fn bytes_at(
    archive: &Archive,
    (from, tail): (u64, &[u8]),
    want: Want,
) -> Result<Vec<u8>, MemberError> {
    let held = want.offset.checked_sub(from).and_then(|at| {
        let at = usize::try_from(at).ok()?;
        tail.get(at..at.checked_add(want.bytes)?)
    });
    match held {
        Some(bytes) => Ok(bytes.to_vec()),
        None => archive.range(want.offset, want.bytes as u64).await,
    }
}

fn no_archive(error: FormatError) -> MemberError {
    MemberError::NoMember(format!("it is no archive that members can be read from: {error}"))
}
