//! A directory as an object: a tar of what is in it, which exists only while it is read.
//!
//! What precedes the files' bytes in such a tar (names, kinds, modes, sizes, times) is known
//! without opening a file. So the object's length is known beforehand, its version is a hash of
//! that, and any part of it can be read. Each reader makes the same bytes, as long as the
//! directory has the same version.

use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tar::{EntryType, Header};

use crate::object::Landing;
use crate::unpack::{ARCHIVE_DEPTH_MAX, ARCHIVE_ENTRIES_MAX, ARCHIVE_PATH_BYTES_MAX};

use super::copy::Steps;
use super::posix::{aside, given_up, sorted, version_of};
use super::{Fetched, GATHER_BYTES, Resolved, StoreError, Want};

/// What a tar consists of.
const RECORD_BYTES: u64 = 512;
/// The records without anything in them that end it.
const END_BYTES: u64 = 2 * RECORD_BYTES;
/// The longest name in a record; a longer one has records of its own.
const NAME_BYTES_MAX: usize = 100;
/// The name that records with names have.
const LONG_NAME: &[u8] = b"././@LongLink";
/// What the version begins with.
const VERSION_PREFIX: &str = "tree:";

pub(super) async fn resolve(root: &Path, silence: Duration) -> Result<Resolved, StoreError> {
    let root = root.to_owned();
    let at = root.clone();
    aside(&at, Some(silence), move |steps| survey(&root, steps)).await
}

pub(super) async fn fetch(
    root: &Path,
    want: &Want,
    target: &Arc<Landing>,
    silence: Duration,
) -> Result<Fetched, StoreError> {
    let (root, want, target) = (root.to_owned(), want.clone(), Arc::clone(target));
    let at = root.clone();
    aside(&at, Some(silence), move |steps| pack(&root, &want, &target, steps)).await
}

/// The text of a directory as an object.
pub(super) fn text(root: &Path) -> String {
    match root.display().to_string() {
        text if text.ends_with('/') => text,
        text => format!("{text}/"),
    }
}

/// The size and the version of the tar.
fn survey(root: &Path, steps: &Steps) -> Result<Resolved, StoreError> {
    let mut state = State::default();
    walk(root, steps, &mut |entry| {
        state.add(entry);
        Ok(())
    })?;
    Ok(state.finish())
}

/// Makes the tar, or a range of it.
fn pack(root: &Path, want: &Want, target: &Landing, steps: &Steps) -> Result<Fetched, StoreError> {
    let url = text(root);
    let before = survey(root, steps)?;
    want.check(&url, &before)?;
    let whole = before.bytes.unwrap_or_default();
    target.sized(whole);
    let range = want.within(whole).ok_or_else(|| want.beyond(&url, whole))?;
    let wanted = range.end - range.start;
    let mut out = Out { root, range, at: 0, gathered: Vec::new(), target, steps };
    let mut state = State::default();
    walk(root, steps, &mut |entry| {
        state.add(entry);
        out.bytes(&entry.records)?;
        if entry.bytes > 0 {
            out.file(entry)?;
        }
        Ok(())
    })?;
    out.bytes(&[0; END_BYTES as usize])?;
    out.flush()?;
    let (end, after) = (out.at, state.finish());
    if after != before || end != whole || target.written() < wanted {
        let reason = format!("its version was {} and is {}", before.version, after.version);
        return Err(StoreError::Changed { url, reason, now: Some(after) });
    }
    Ok(Fetched { bytes: wanted, version: before.version })
}

/// The length and the version of a tar, as far as its entries are known.
#[derive(Default)]
struct State {
    bytes: u64,
    hasher: blake3::Hasher,
}

impl State {
    fn add(&mut self, entry: &Entry) {
        self.bytes += entry.records.len() as u64 + entry.bytes.next_multiple_of(RECORD_BYTES);
        self.hasher.update(&entry.records);
        // A record has whole seconds.
        self.hasher.update(&entry.nanos.to_le_bytes());
    }

    fn finish(self) -> Resolved {
        let version = format!("{VERSION_PREFIX}{}", self.hasher.finalize().to_hex());
        Resolved { bytes: Some(self.bytes + END_BYTES), version }
    }
}

/// What is in a directory, and the records that precede its bytes.
struct Entry {
    path: PathBuf,
    records: Vec<u8>,
    /// Of a file; else 0.
    bytes: u64,
    /// Of the time when a file was last written.
    nanos: i64,
    /// The version of a file by itself.
    version: String,
}

/// Calls `visit` for the directory and everything in it, in the order of the names' bytes.
fn walk(
    root: &Path,
    steps: &Steps,
    visit: &mut dyn FnMut(&Entry) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let state = fs::metadata(root).map_err(|error| sorted(root, error))?;
    if !state.is_dir() {
        let reason = "it is no directory: leave out the slash at its end".to_owned();
        return Err(StoreError::Refused { url: text(root), reason });
    }
    visit(&entry(root, PathBuf::new(), &state)?)?;
    let mut entries = 1;
    // The names that are left of each directory on the way, the first one last.
    let mut left = vec![names(root)?];
    let mut path = PathBuf::new();
    while let Some(names_left) = left.last_mut() {
        let Some(name) = names_left.pop() else {
            left.pop();
            path.pop();
            continue;
        };
        if !steps.go_on() {
            return Err(given_up(root));
        }
        path.push(name);
        let there = root.join(&path);
        let state = fs::symlink_metadata(&there).map_err(|error| sorted(&there, error))?;
        entries += 1;
        if entries > ARCHIVE_ENTRIES_MAX {
            let reason = format!("it has more than {ARCHIVE_ENTRIES_MAX} files and folders");
            return Err(StoreError::Refused { url: text(root), reason });
        }
        visit(&entry(root, path.clone(), &state)?)?;
        if state.is_dir() {
            if left.len() >= ARCHIVE_DEPTH_MAX {
                return Err(unpackable(root, &path, "is too many folders deep"));
            }
            left.push(names(&there)?);
        } else {
            path.pop();
        }
    }
    Ok(())
}

/// The names in a directory, in reverse order.
fn names(folder: &Path) -> Result<Vec<OsString>, StoreError> {
    let failed = |error| sorted(folder, error);
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        names.push(entry.map_err(failed)?.file_name());
    }
    names.sort_unstable_by(|one, other| other.cmp(one));
    Ok(names)
}

fn unpackable(root: &Path, path: &Path, why: &str) -> StoreError {
    let reason = format!("its entry `{}` {why}: pack the directory without that", path.display());
    StoreError::Refused { url: text(root), reason }
}

/// The entry of `path`, which is seen from `root`.
fn entry(root: &Path, path: PathBuf, state: &Metadata) -> Result<Entry, StoreError> {
    let kind = state.file_type();
    let mut name = [b"./", path.as_os_str().as_bytes()].concat();
    if name.len() >= ARCHIVE_PATH_BYTES_MAX {
        return Err(unpackable(root, &path, "has too long a path"));
    }
    let mut link = Vec::new();
    let refused = |why| Err(unpackable(root, &path, why));
    let (kind, bytes) = match kind {
        kind if kind.is_dir() => {
            if !path.as_os_str().is_empty() {
                name.push(b'/');
            }
            (EntryType::Directory, 0)
        }
        kind if kind.is_file() => (EntryType::Regular, state.len()),
        kind if kind.is_symlink() => {
            let there = root.join(&path);
            let target = fs::read_link(&there).map_err(|error| sorted(&there, error))?;
            link = target.into_os_string().as_bytes().to_vec();
            (EntryType::Symlink, 0)
        }
        kind if kind.is_fifo() => return refused("is a named pipe"),
        kind if kind.is_socket() => return refused("is a socket"),
        _ => return refused("is a device"),
    };
    let mut records = Vec::new();
    long(&mut records, EntryType::GNULongName, &name);
    long(&mut records, EntryType::GNULongLink, &link);
    let mut header = plain(kind, &name, bytes, state.mode() & 0o777);
    if let Some(fields) = header.as_gnu_mut() {
        put(&mut fields.linkname, &link);
    }
    // The time of a folder changes with what is in it, and of a link nobody needs it.
    let is_file = kind == EntryType::Regular;
    header.set_mtime(if is_file { u64::try_from(state.mtime()).unwrap_or(0) } else { 0 });
    header.set_cksum();
    records.extend_from_slice(header.as_bytes());
    let nanos = if is_file { state.mtime_nsec() } else { 0 };
    let version = version_of(state);
    Ok(Entry { path, records, bytes, nanos, version })
}

/// A record, without the checksum.
fn plain(kind: EntryType, name: &[u8], bytes: u64, mode: u32) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(bytes);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    if let Some(fields) = header.as_gnu_mut() {
        put(&mut fields.name, name);
    }
    header
}

/// As much of `text` as there is room for.
fn put(field: &mut [u8], text: &[u8]) {
    let length = text.len().min(field.len());
    field[..length].copy_from_slice(&text[..length]);
}

/// The records of a name, if the record that it belongs to has no room for it.
fn long(records: &mut Vec<u8>, kind: EntryType, name: &[u8]) {
    if name.len() <= NAME_BYTES_MAX {
        return;
    }
    // With the zero byte that ends it.
    let length = name.len() + 1;
    let mut header = plain(kind, LONG_NAME, length as u64, 0o644);
    header.set_cksum();
    records.extend_from_slice(header.as_bytes());
    records.extend_from_slice(name);
    records.push(0);
    records.resize(records.len().next_multiple_of(RECORD_BYTES as usize), 0);
}

/// Takes a tar from its beginning, and writes the part that is wanted.
struct Out<'a> {
    root: &'a Path,
    range: Range<u64>,
    /// Where in the tar the next byte is.
    at: u64,
    gathered: Vec<u8>,
    target: &'a Landing,
    steps: &'a Steps,
}

impl Out<'_> {
    /// What of the next `length` bytes is wanted, counted from the first of them.
    fn wanted(&self, length: u64) -> Range<u64> {
        let from = self.range.start.max(self.at) - self.at;
        let to = self.range.end.min(self.at + length).saturating_sub(self.at);
        from.min(to)..to
    }

    fn bytes(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        let wanted = self.wanted(bytes.len() as u64);
        self.at += bytes.len() as u64;
        self.gathered.extend_from_slice(&bytes[wanted.start as usize..wanted.end as usize]);
        if self.gathered.len() >= GATHER_BYTES { self.flush() } else { Ok(()) }
    }

    /// The bytes of a file, to the end of their last record. The file is opened only if some of
    /// them are wanted.
    fn file(&mut self, entry: &Entry) -> Result<(), StoreError> {
        let path = self.root.join(&entry.path);
        let wanted = self.wanted(entry.bytes);
        if wanted.is_empty() {
            self.at += entry.bytes;
        } else {
            let file = open(&path)?;
            let state = file.metadata().map_err(|error| sorted(&path, error))?;
            if !state.is_file() || version_of(&state) != entry.version {
                return Err(self.changed(&path));
            }
            self.at += wanted.start;
            self.copy(&file, &path, &wanted)?;
            self.at += entry.bytes - wanted.end;
        }
        let rest = entry.bytes.next_multiple_of(RECORD_BYTES) - entry.bytes;
        self.bytes(&[0; RECORD_BYTES as usize][..rest as usize])
    }

    fn copy(&mut self, file: &File, path: &Path, range: &Range<u64>) -> Result<(), StoreError> {
        let mut buffer = vec![0; (range.end - range.start).min(GATHER_BYTES as u64) as usize];
        let mut from = range.start;
        while from < range.end {
            if !self.steps.go_on() {
                return Err(given_up(self.root));
            }
            let length = (range.end - from).min(buffer.len() as u64) as usize;
            match file.read_at(&mut buffer[..length], from) {
                Ok(0) => return Err(self.changed(path)),
                Ok(count) => {
                    self.bytes(&buffer[..count])?;
                    from += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(sorted(path, error)),
            }
        }
        Ok(())
    }

    fn changed(&self, path: &Path) -> StoreError {
        let reason = format!("{} was written meanwhile", path.display());
        StoreError::Changed { url: text(self.root), reason, now: None }
    }

    fn flush(&mut self) -> Result<(), StoreError> {
        if self.gathered.is_empty() {
            return Ok(());
        }
        let written = self.target.write(&self.gathered);
        self.gathered.clear();
        written.map_err(|error| StoreError::local(text(self.root), error))
    }
}

/// Opens a file for reading, if it is no link; never waits for the writer of a pipe.
fn open(path: &Path) -> Result<File, StoreError> {
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOFOLLOW;
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(flags.bits() as i32);
    options.open(path).map_err(|error| sorted(path, error))
}
