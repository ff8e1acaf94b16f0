//! What a packing thread does at a time.

use super::file::SetFile;
use super::{Source, WriteError};
use crate::limits::{PIECE_BYTES, READ_BYTES};
use crate::pack::Packer;
use crate::part::Part;
use crate::read::{MemberFault, Scratch, Stop};
use crate::regular;
use falkon_core::archive::{Member, Method, Started};
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What becomes a member, and its size as far as it is known.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) name: Vec<u8>,
    source: Source,
    pub(super) bytes: u64,
}

impl Item {
    pub(super) fn new(name: Vec<u8>, source: Source) -> Result<Item, WriteError> {
        let bytes = match &source {
            Source::Bytes { data, .. } => data.len() as u64,
            Source::Packed { member, .. } => member.packed,
            Source::File(path) => {
                let of = |error| WriteError::Source { path: path.clone(), error };
                let metadata = std::fs::metadata(path).map_err(of)?;
                if !metadata.is_file() {
                    return Err(of(io::Error::other("it is no file")));
                }
                metadata.len()
            }
        };
        Ok(Item { name, source, bytes })
    }

    pub(super) fn is_packed(&self) -> bool {
        matches!(self.source, Source::Packed { .. })
    }
}

/// A member that is packed in pieces.
#[derive(Debug)]
pub(super) struct Large {
    member: Member,
    data: Data,
    bytes: u64,
    is_stored: bool,
}

#[derive(Debug)]
enum Data {
    Bytes(Vec<u8>),
    File { file: File, path: PathBuf },
}

impl Large {
    pub(super) fn open(item: Item, is_stored: bool) -> Result<Large, WriteError> {
        let (member, data) = match item.source {
            Source::Bytes { data, modified, permissions } => {
                (Member::new(item.name, modified, permissions), Data::Bytes(data))
            }
            Source::File(path) => {
                let (file, metadata) = open(&path)?;
                let member = member_of(item.name, &metadata);
                (member, Data::File { file, path })
            }
            Source::Packed { .. } => unreachable!("packed members are not packed again"),
        };
        Ok(Large { member, data, bytes: item.bytes, is_stored })
    }

    pub(super) fn pieces(&self) -> u64 {
        self.bytes.div_ceil(PIECE_BYTES as u64)
    }

    /// The bytes of a piece.
    fn piece(&self, piece: u64) -> Result<Vec<u8>, WriteError> {
        let from = piece * PIECE_BYTES as u64;
        let bytes = (self.bytes - from).min(PIECE_BYTES as u64) as usize;
        match &self.data {
            Data::Bytes(data) => Ok(data[from as usize..][..bytes].to_vec()),
            Data::File { file, path } => {
                let mut data = vec![0; bytes];
                file.read_exact_at(&mut data, from).map_err(|error| match error.kind() {
                    io::ErrorKind::UnexpectedEof => WriteError::Changed { path: path.clone() },
                    _ => WriteError::Source { path: path.clone(), error },
                })?;
                Ok(data)
            }
        }
    }
}

fn open(path: &Path) -> Result<(File, Metadata), WriteError> {
    regular::open(path)
        .map_err(|error| WriteError::Source { path: path.to_owned(), error: error.of_source() })
}

fn member_of(name: Vec<u8>, metadata: &Metadata) -> Member {
    let modified = u64::try_from(metadata.mtime()).unwrap_or_default();
    Member::new(name, modified, metadata.mode())
}

/// What a thread does at a time.
#[derive(Debug)]
pub(super) enum Job {
    Batch(Vec<Item>),
    Begin(Arc<Large>),
    Piece { large: Arc<Large>, piece: u64 },
    End(Arc<Large>),
    LargePacked(Item),
}

/// A member whose data are packed.
#[derive(Debug)]
pub(super) struct Packed {
    pub(super) member: Member,
    pub(super) started: Started,
}

/// A job that has been done, but for what is done in turn.
#[derive(Debug)]
pub(super) enum Done {
    Batch { bytes: Vec<u8>, members: Vec<Packed> },
    Begin(Arc<Large>),
    Piece { crc: crc32fast::Hasher, size: u64, packed: Vec<u8> },
    End(Arc<Large>),
    LargePacked(Item),
}

impl Job {
    pub(super) fn prepare(self, packer: &mut Packer) -> Result<Done, WriteError> {
        Ok(match self {
            Job::Batch(items) => batch(items, packer)?,
            Job::Begin(large) => Done::Begin(large),
            Job::Piece { large, piece } => {
                let data = large.piece(piece)?;
                let mut crc = crc32fast::Hasher::new();
                crc.update(&data);
                let size = data.len() as u64;
                let packed = if large.is_stored {
                    data
                } else {
                    let mut packed = Vec::new();
                    packer.piece(&data, piece + 1 == large.pieces(), &mut packed);
                    packed
                };
                Done::Piece { crc, size, packed }
            }
            Job::End(large) => Done::End(large),
            Job::LargePacked(item) => Done::LargePacked(item),
        })
    }
}

fn batch(items: Vec<Item>, packer: &mut Packer) -> Result<Done, WriteError> {
    let (mut bytes, mut members) = (Vec::new(), Vec::with_capacity(items.len()));
    let (mut scratch, mut data, mut packed) = (Scratch::default(), Vec::new(), Vec::new());
    for item in items {
        packed.clear();
        let member = match item.source {
            Source::Packed { part, member } => {
                read_packed(&mut scratch, &part, &member, &mut |bytes| {
                    packed.extend_from_slice(bytes);
                    Ok(())
                })?;
                Member { name: item.name, ..member }
            }
            Source::Bytes { data, modified, permissions } => {
                let member = Member::new(item.name, modified, permissions);
                pack(member, &data, packer, &mut packed)
            }
            Source::File(path) => {
                let of = |error| WriteError::Source { path: path.clone(), error };
                let (file, metadata) = open(&path)?;
                data.clear();
                let most = PIECE_BYTES as u64 + 1;
                file.take(most).read_to_end(&mut data).map_err(of)?;
                if data.len() as u64 == most {
                    return Err(WriteError::Changed { path });
                }
                pack(member_of(item.name, &metadata), &data, packer, &mut packed)
            }
        };
        let started = Started::new(&member.name, member.size.max(member.packed));
        started.encode(&member, &mut bytes);
        bytes.extend_from_slice(&packed);
        members.push(Packed { member, started });
    }
    Ok(Done::Batch { bytes, members })
}

fn pack(member: Member, data: &[u8], packer: &mut Packer, packed: &mut Vec<u8>) -> Member {
    let method = packer.pack(data, packed);
    let (size, packed) = (data.len() as u64, packed.len() as u64);
    Member { method, crc: crc32fast::hash(data), size, packed, ..member }
}

/// Hands over a member's data as they are packed.
fn read_packed(
    scratch: &mut Scratch,
    part: &Part,
    member: &Member,
    take: &mut dyn FnMut(&[u8]) -> Result<(), WriteError>,
) -> Result<(), WriteError> {
    let source = |error| WriteError::Source { path: part.path().to_owned(), error };
    if member.is_encrypted {
        let (path, name) = (part.path().to_owned(), member.name.clone());
        return Err(WriteError::Member { path, name, fault: MemberFault::Encrypted });
    }
    let file = part.file()?;
    let start = scratch.data_start(&*file, part.layout().file_bytes, member);
    let start = start.map_err(|stop| match stop {
        Stop::Io(error) | Stop::Taken(error) => source(error),
        Stop::Fault(fault) => {
            let path = part.path().to_owned();
            WriteError::Member { path, name: member.name.clone(), fault }
        }
    })?;
    let mut buffer = vec![0; READ_BYTES.min(member.packed as usize)];
    let mut read = 0;
    while read < member.packed {
        let bytes = (member.packed - read).min(READ_BYTES as u64) as usize;
        file.read_exact_at(&mut buffer[..bytes], start + read).map_err(source)?;
        take(&buffer[..bytes])?;
        read += bytes as u64;
    }
    Ok(())
}

impl Done {
    pub(super) fn append(self, file: &mut SetFile) -> Result<(), WriteError> {
        match self {
            Done::Batch { bytes, members } => file.append(&bytes, &members),
            Done::Begin(large) => file.begin(&large.member.name, large.bytes),
            Done::Piece { crc, size, packed } => {
                let progress = file.large.as_mut().expect("a member has begun");
                progress.crc.combine(&crc);
                progress.size += size;
                file.piece(&packed)
            }
            Done::End(large) => end(&large, file),
            Done::LargePacked(item) => {
                let Source::Packed { part, member } = item.source else { return Ok(()) };
                file.begin(&item.name, member.packed.max(member.size))?;
                let mut scratch = Scratch::default();
                read_packed(&mut scratch, &part, &member, &mut |bytes| file.piece(bytes))?;
                file.end(&Member { name: item.name, ..member })
            }
        }
    }
}

/// Ends a large member: one that deflating did not make smaller is stored after
/// all.
fn end(large: &Large, file: &mut SetFile) -> Result<(), WriteError> {
    let progress = file.large.as_ref().expect("a member has begun");
    let (packed, size) = (progress.packed, progress.size);
    let crc = progress.crc.clone().finalize();
    let mut member = Member { crc, size, packed, ..large.member.clone() };
    if large.is_stored {
        member.method = Method::Stored;
    } else if packed < size {
        member.method = Method::Deflated;
    } else {
        file.again()?;
        let mut again = crc32fast::Hasher::new();
        for piece in 0..large.pieces() {
            let data = large.piece(piece)?;
            again.update(&data);
            file.piece(&data)?;
        }
        if again.finalize() != crc {
            let path = match &large.data {
                Data::File { path, .. } => path.clone(),
                Data::Bytes(_) => PathBuf::new(),
            };
            return Err(WriteError::Changed { path });
        }
        (member.method, member.packed) = (Method::Stored, size);
    }
    file.end(&member)
}
