//! Checking all of an archive.

use crate::each::each;
use crate::limits::READ_BYTES;
use crate::part::Part;
use crate::read::ReadError;
use crate::set::{Archive, files_of};
use falkon_core::archive::{FormatError, Member};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a check has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Checked {
    /// Files of the set.
    pub files: u64,
    /// Members.
    pub members: u64,
    /// Bytes of their data.
    pub bytes: u64,
    /// Number of the defects.
    pub faults: u64,
}

/// Reads every file and every member of an archive. `report` receives what is
/// wrong as it is found.
///
/// # Errors
/// If there is no such archive, or its directory cannot be listed.
pub fn check(
    path: &Path,
    threads: usize,
    report: &(dyn Fn(&ReadError) + Sync),
) -> Result<Checked, ReadError> {
    let files = files_of(path)?;
    if files.is_empty() {
        return Err(ReadError::Missing { path: path.to_owned() });
    }
    let mut checked = Checked::default();
    for (_, path) in files {
        checked.files += 1;
        let faults = AtomicU64::new(0);
        let report = |error: &ReadError| {
            faults.fetch_add(1, Ordering::Relaxed);
            report(error);
        };
        match Part::open(&path) {
            Ok(part) => file(part, threads, &mut checked, &report),
            Err(error) => report(&error),
        }
        checked.faults += faults.into_inner();
    }
    Ok(checked)
}

fn file(part: Part, threads: usize, checked: &mut Checked, report: &(dyn Fn(&ReadError) + Sync)) {
    table(&part, report);
    let archive = Archive::of_file(part);
    let part = &archive.parts()[0];
    let bytes = AtomicU64::new(0);
    let listed = each(
        &archive,
        threads,
        |_, _| true,
        |scratch, _, member| match scratch.read(part, member, &mut |_| Ok(())) {
            Ok(()) => drop(bytes.fetch_add(member.size, Ordering::Relaxed)),
            Err(error) => report(&error),
        },
    );
    if let Err(error) = listed {
        report(&error);
    }
    checked.bytes += bytes.into_inner();
    checked.members += ranges(part, report);
}

/// Whether the lookup table and the directory are as they were written.
fn table(part: &Part, report: &dyn Fn(&ReadError)) {
    let layout = part.layout();
    let Some(lookup) = layout.lookup else { return };
    let table = lookup.want(0, 0).offset;
    let directory = layout.directory;
    for (offset, bytes, expected, what) in [
        (table, lookup.entries() * 16, lookup.table_crc(), "the lookup table is damaged"),
        (directory, layout.directory_bytes, lookup.directory_crc(), "the directory is damaged"),
    ] {
        match crc_of(part, offset, bytes) {
            Ok(found) if found == expected => {}
            Ok(_) => report(&ReadError::Format {
                path: part.path().to_owned(),
                error: FormatError::Contradiction { offset, what },
            }),
            Err(error) => report(&error),
        }
    }
}

fn crc_of(part: &Part, offset: u64, bytes: u64) -> Result<u32, ReadError> {
    let file = part.file()?;
    let mut crc = crc32fast::Hasher::new();
    let mut buffer = vec![0; READ_BYTES];
    let mut read = 0;
    while read < bytes {
        let next = (bytes - read).min(READ_BYTES as u64) as usize;
        file.read_exact_at(&mut buffer[..next], offset + read).map_err(|error| part.io(error))?;
        crc.update(&buffer[..next]);
        read += next as u64;
    }
    Ok(crc.finalize())
}

/// Whether members share bytes. Returns how many there are. Members in the order
/// of their data, as most tools write them, take no memory.
fn ranges(part: &Part, report: &dyn Fn(&ReadError)) -> u64 {
    let mut members = 0;
    let mut end = 0;
    let mut is_ordered = true;
    for member in part.members().map_while(Result::ok) {
        members += 1;
        is_ordered &= member.header >= end;
        end = least_end(&member);
    }
    if is_ordered {
        return members;
    }
    let mut ranges: Vec<(u64, u64)> = part
        .members()
        .map_while(Result::ok)
        .map(|member| (member.header, least_end(&member)))
        .collect();
    ranges.sort_unstable();
    let mut end = 0;
    for (start, this) in ranges {
        if start < end {
            report(&ReadError::Format {
                path: part.path().to_owned(),
                error: FormatError::Contradiction {
                    offset: start,
                    what: "a member begins within another one",
                },
            });
        }
        end = end.max(this);
    }
    members
}

/// Where a member ends if its header has no extra fields.
fn least_end(member: &Member) -> u64 {
    member.header.saturating_add(30 + member.name.len() as u64).saturating_add(member.packed)
}
