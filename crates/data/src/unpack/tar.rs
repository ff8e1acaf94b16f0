//! The entries of a tar: ustar, with the long names and attributes of GNU and
//! POSIX. Sizes and names come from whoever made the archive: all are bounded
//! before anything is allocated or written.

use std::io::{self, Read};

use tar::{EntryType, Header, PaxExtensions};

use super::{ARCHIVE_DEPTH_MAX, ARCHIVE_PATH_BYTES_MAX, UnpackError};

const RECORD_BYTES: u64 = 512;
/// Names and attributes before one entry.
const EXTENSION_BYTES_MAX: u64 = 1 << 20;

/// What an entry is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    Folder,
    /// A file of so many bytes, which follow.
    File(u64),
    /// A symbolic link to what it says.
    Symlink(Vec<u8>),
    /// Another name of an entry before it.
    HardLink(Vec<u8>),
}

/// One entry. Its path has no `.` and no `..`, no slash at either end, and is
/// not empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) path: Vec<u8>,
    pub(super) kind: Kind,
    pub(super) is_executable: bool,
    /// In seconds since 1970.
    pub(super) modified: u64,
}

impl Entry {
    /// For people.
    pub(super) fn shown(&self) -> String {
        shown(&self.path)
    }

    /// Bytes that follow it.
    pub(super) fn size(&self) -> u64 {
        match self.kind {
            Kind::File(size) => size,
            _ => 0,
        }
    }
}

/// What the records before an entry say of it.
#[derive(Debug, Default)]
struct Extension {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
    modified: Option<u64>,
}

/// The entries of a tar, one after another. What follows an entry must be read,
/// or passed over, before the next.
pub(super) struct Entries<R> {
    reader: R,
    /// Whether anything was understood.
    has_begun: bool,
    /// Bytes of records that are no files.
    passed: u64,
    passed_max: u64,
}

impl<R: Read> Entries<R> {
    /// At most so many bytes of the archive belong to no file.
    pub(super) fn new(reader: R, passed_max: u64) -> Entries<R> {
        Entries { reader, has_begun: false, passed: 0, passed_max }
    }

    /// Bytes of the archive that belong to no file.
    pub(super) fn passed_bytes(&self) -> u64 {
        self.passed
    }

    /// The next entry but for the folder itself; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Entry>, UnpackError> {
        let mut extension = Extension::default();
        loop {
            let Some(header) = self.header()? else { return Ok(None) };
            if self.passed > self.passed_max {
                // Records that only describe others may go on without an entry.
                let entry = shown(&header.path_bytes());
                return Err(UnpackError::TooLarge { bytes_max: self.passed_max, entry });
            }
            let size = extension.size.map_or_else(|| header.entry_size(), Ok);
            let size = size.map_err(|_| UnpackError::Damaged("an entry has no size"))?;
            match header.entry_type() {
                EntryType::GNULongName => extension.path = Some(self.name(size)?),
                EntryType::GNULongLink => extension.link = Some(self.name(size)?),
                EntryType::XHeader => self.attributes(size, &mut extension)?,
                EntryType::XGlobalHeader => {
                    self.extension(size)?;
                }
                kind => {
                    let extension = std::mem::take(&mut extension);
                    if let Some(entry) = entry(&header, kind, size, extension)? {
                        return Ok(Some(entry));
                    }
                    self.skip(size)?;
                }
            }
        }
    }

    /// The bytes of the entry that was last returned; to be read whole.
    pub(super) fn bytes(&mut self, size: u64) -> impl Read {
        (&mut self.reader).take(size)
    }

    /// What fills up the last record of an entry is passed over.
    pub(super) fn pad(&mut self, size: u64) -> Result<(), UnpackError> {
        self.skip(size.next_multiple_of(RECORD_BYTES) - size)
    }

    /// An entry's bytes are passed over.
    pub(super) fn pass(&mut self, entry: &Entry) -> Result<(), UnpackError> {
        self.skip(entry.size())?;
        self.pad(entry.size())
    }

    fn skip(&mut self, bytes: u64) -> Result<(), UnpackError> {
        let passed = io::copy(&mut self.bytes(bytes), &mut io::sink()).map_err(read_error)?;
        if passed < bytes {
            return Err(UnpackError::Damaged("it ends within an entry"));
        }
        Ok(())
    }

    fn header(&mut self) -> Result<Option<Header>, UnpackError> {
        let mut header = Header::new_old();
        let bytes = header.as_mut_bytes();
        let mut read = 0;
        while read < bytes.len() {
            match self.reader.read(&mut bytes[read..]) {
                Ok(0) if read == 0 && self.has_begun => return Ok(None),
                Ok(0) if self.has_begun => {
                    return Err(UnpackError::Damaged("it ends within an entry"));
                }
                Ok(0) => return Err(UnpackError::Format("it is no tar archive")),
                Ok(more) => read += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(read_error(error)),
            }
        }
        self.passed = self.passed.saturating_add(RECORD_BYTES);
        if header.as_bytes().iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        // The checksum is over the header with spaces in its own place.
        let own = 148..156;
        let sum = |at: usize, byte: &u8| u32::from(if own.contains(&at) { b' ' } else { *byte });
        let sum: u32 = header.as_bytes().iter().enumerate().map(|(at, byte)| sum(at, byte)).sum();
        if header.cksum().ok() != Some(sum) {
            return Err(match self.has_begun {
                true => UnpackError::Damaged("the checksum of an entry is wrong"),
                false => UnpackError::Format("it is no tar archive"),
            });
        }
        self.has_begun = true;
        Ok(Some(header))
    }

    /// What a record says of the entry after it.
    fn extension(&mut self, size: u64) -> Result<Vec<u8>, UnpackError> {
        if size > EXTENSION_BYTES_MAX {
            return Err(UnpackError::Damaged("a name or an attribute is longer than a megabyte"));
        }
        let mut text = Vec::new();
        self.bytes(size).read_to_end(&mut text).map_err(read_error)?;
        if (text.len() as u64) < size {
            return Err(UnpackError::Damaged("it ends within an entry"));
        }
        self.passed = self.passed.saturating_add(size);
        self.pad(size)?;
        Ok(text)
    }

    fn name(&mut self, size: u64) -> Result<Vec<u8>, UnpackError> {
        let mut name = self.extension(size)?;
        let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
        name.truncate(end);
        Ok(name)
    }

    fn attributes(&mut self, size: u64, extension: &mut Extension) -> Result<(), UnpackError> {
        let text = self.extension(size)?;
        for attribute in PaxExtensions::new(&text) {
            let malformed = |_| UnpackError::Damaged("an attribute is malformed");
            let attribute = attribute.map_err(malformed)?;
            let value = attribute.value_bytes();
            let whole = |value: &[u8]| -> Option<u64> {
                let digits = value.split(|byte| *byte == b'.').next()?;
                std::str::from_utf8(digits).ok()?.parse().ok()
            };
            match attribute.key_bytes() {
                b"path" => extension.path = Some(value.to_vec()),
                b"linkpath" => extension.link = Some(value.to_vec()),
                b"size" => {
                    let size = whole(value);
                    extension.size =
                        Some(size.ok_or(UnpackError::Damaged("an entry has no size"))?);
                }
                b"mtime" => extension.modified = whole(value),
                key if key.starts_with(b"GNU.sparse.") => {
                    let entry = shown(extension.path.as_deref().unwrap_or_default());
                    return Err(UnpackError::Entry { entry, why: SPARSE });
                }
                _ => {}
            }
        }
        Ok(())
    }
}

const SPARSE: &str = "is a sparse file";

/// What a header says; `None` for the folder itself, and for what is nothing.
fn entry(
    header: &Header,
    kind: EntryType,
    size: u64,
    extension: Extension,
) -> Result<Option<Entry>, UnpackError> {
    let given = extension.path.unwrap_or_else(|| header.path_bytes().into_owned());
    let refused = |why| UnpackError::Entry { entry: shown(&given), why };
    let link = || {
        let in_header = || header.link_name_bytes().map(|name| name.into_owned());
        let link = extension.link.clone().or_else(in_header).filter(|link| !link.is_empty());
        link.ok_or_else(|| refused("is a link to nothing"))
    };
    // Old archives have folders as files whose names end in a slash.
    let is_folder = kind.is_dir() || (kind.is_file() && given.ends_with(b"/"));
    let kind = match kind {
        _ if is_folder => Kind::Folder,
        EntryType::Regular | EntryType::Continuous => Kind::File(size),
        EntryType::Symlink => Kind::Symlink(link()?),
        EntryType::Link => Kind::HardLink(plain(&link()?).map_err(|_| refused(OUTSIDE))?),
        EntryType::GNUSparse => return Err(refused(SPARSE)),
        EntryType::Char | EntryType::Block => return Err(refused("is a device")),
        EntryType::Fifo => return Err(refused("is a named pipe")),
        _ => return Err(refused("is of a kind that is not known")),
    };
    if size > 0 && !matches!(kind, Kind::File(_)) {
        return Err(refused("has bytes, and is no file"));
    }
    let path = plain(&given).map_err(refused)?;
    if path.is_empty() {
        return match kind {
            Kind::Folder => Ok(None),
            _ => Err(refused("has no name")),
        };
    }
    if let Kind::Symlink(target) = &kind {
        check_target(&path, target).map_err(refused)?;
    }
    let is_executable = header.mode().unwrap_or(0) & 0o111 != 0;
    let modified = extension.modified.or(header.mtime().ok()).unwrap_or(0);
    Ok(Some(Entry { path, kind, is_executable, modified }))
}

const OUTSIDE: &str = "is a link to outside the archive";

/// A path within the archive without what says nothing.
fn plain(given: &[u8]) -> Result<Vec<u8>, &'static str> {
    if given.len() > ARCHIVE_PATH_BYTES_MAX {
        return Err("has a name of more than 4096 bytes");
    }
    if given.contains(&0) {
        return Err("has a zero byte in its name");
    }
    if given.starts_with(b"/") {
        return Err("has an absolute path");
    }
    let mut path = Vec::with_capacity(given.len());
    let mut depth = 0;
    for part in given.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => continue,
            b".." => return Err("leads out of the archive"),
            part if part.len() > 255 => return Err("has a name of more than 255 bytes"),
            _ => {}
        }
        if depth > 0 {
            path.push(b'/');
        }
        path.extend_from_slice(part);
        depth += 1;
    }
    if depth > ARCHIVE_DEPTH_MAX {
        return Err("is within more than 128 folders");
    }
    Ok(path)
}

/// A link may be to an absolute path, as environments have them to the system's
/// Python: it is only read, with the rights of the task. One that climbs out
/// would mean something else wherever it is unpacked.
fn check_target(path: &[u8], target: &[u8]) -> Result<(), &'static str> {
    if target.len() >= ARCHIVE_PATH_BYTES_MAX {
        return Err("is a link of more than 4096 bytes");
    }
    if target.contains(&0) {
        return Err("has a zero byte in its link");
    }
    if target.starts_with(b"/") {
        return Ok(());
    }
    let mut depth = path.iter().filter(|byte| **byte == b'/').count();
    for part in target.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => depth = depth.checked_sub(1).ok_or(OUTSIDE)?,
            _ => depth += 1,
        }
    }
    Ok(())
}

fn shown(path: &[u8]) -> String {
    const SHOWN_BYTES_MAX: usize = 200;
    let cut = &path[..path.len().min(SHOWN_BYTES_MAX)];
    let dots = if path.len() > SHOWN_BYTES_MAX { "…" } else { "" };
    let text: String = String::from_utf8_lossy(cut).chars().flat_map(char::escape_debug).collect();
    text + dots
}

/// What a decoder says is of the archive; what the disk says is not.
pub(super) fn read_error(error: io::Error) -> UnpackError {
    match error.raw_os_error() {
        Some(_) => UnpackError::Read(error),
        None => UnpackError::Damaged("its compressed data is wrong, or ends too early"),
    }
}
