//! What the kernel asks and how it is answered: bytes of `linux/fuse.h`, in the processor's
//! order. Nothing here does IO but what a file system does to read a file.

use crate::files::{Attributes, Entry, Files, Totals};
use crate::limits::{LISTING_BYTES_MAX, READ_BYTES_MAX};

/// The version of the protocol that this is, and the first that is understood (Linux 3.15).
const MAJOR: u32 = 7;
const MINOR: u32 = 31;
const MINOR_MIN: u32 = 23;
const REQUEST_HEADER_BYTES: usize = 40;
const ANSWER_HEADER_BYTES: usize = 16;
/// The length of the answer to the first request.
const INIT_BYTES: usize = 64;
/// How long the kernel may remember what it was told: nothing ever changes.
const VALID_SECONDS: u64 = 1 << 30;
/// The unit of `statfs`, and of what a file takes.
const BLOCK_BYTES: u64 = 4096;
const NAME_BYTES_MAX: u32 = 255;
const FILE_MODE: u32 = 0o100_000;
const DIRECTORY_MODE: u32 = 0o040_000;
/// Kinds of entries: the upper bits of their modes.
const KIND_SHIFT: u32 = 12;
/// Behind `.`, and behind `..`; what comes behind a node has its number and these.
const BEHIND_DOT: u64 = 1;
const BEHIND_DOTS: u64 = 2;

/// What the kernel asks.
mod asked {
    pub(super) const LOOKUP: u32 = 1;
    pub(super) const FORGET: u32 = 2;
    pub(super) const GETATTR: u32 = 3;
    pub(super) const OPEN: u32 = 14;
    pub(super) const READ: u32 = 15;
    pub(super) const STATFS: u32 = 17;
    pub(super) const RELEASE: u32 = 18;
    pub(super) const INIT: u32 = 26;
    pub(super) const OPENDIR: u32 = 27;
    pub(super) const READDIR: u32 = 28;
    pub(super) const RELEASEDIR: u32 = 29;
    pub(super) const DESTROY: u32 = 38;
    pub(super) const BATCH_FORGET: u32 = 42;
    pub(super) const READDIRPLUS: u32 = 44;
}

/// What the kernel offers, and may be asked for.
mod flag {
    pub(super) const ASYNC_READ: u32 = 1;
    pub(super) const DO_READDIRPLUS: u32 = 1 << 13;
    pub(super) const READDIRPLUS_AUTO: u32 = 1 << 14;
    pub(super) const NO_OPEN: u32 = 1 << 17;
    pub(super) const PARALLEL_DIROPS: u32 = 1 << 18;
    pub(super) const MAX_PAGES: u32 = 1 << 22;
    pub(super) const WANTED: u32 =
        ASYNC_READ | DO_READDIRPLUS | READDIRPLUS_AUTO | PARALLEL_DIROPS | MAX_PAGES;
}

/// What is cached stays so when a file or a directory is opened again.
const KEEP_CACHE: u32 = 1 << 1;
const CACHE_DIR: u32 = 1 << 3;

const ENOENT: i32 = 2;
const EIO: i32 = 5;
const EINVAL: i32 = 22;
const ENOSYS: i32 = 38;
const EPROTO: i32 = 71;

/// What follows from a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The answer is written.
    Ready,
    /// No answer is expected.
    None,
    /// The file system ends.
    End,
    /// The kernel speaks a version that is not understood; it is told so.
    Version {
        /// Its version.
        major: u32,
        /// See `major`.
        minor: u32,
    },
}

/// What was agreed on with the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Session {
    /// Who all files belong to.
    user: u32,
    group: u32,
    /// What the kernel offers.
    flags: u32,
}

/// A request.
struct Request<'a> {
    kind: u32,
    unique: u64,
    node: u64,
    body: &'a [u8],
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let found = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_ne_bytes(*found))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let found = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_ne_bytes(*found))
}

fn put32(out: &mut Vec<u8>, values: &[u32]) {
    values.iter().for_each(|value| out.extend_from_slice(&value.to_ne_bytes()));
}

fn put64(out: &mut Vec<u8>, values: &[u64]) {
    values.iter().for_each(|value| out.extend_from_slice(&value.to_ne_bytes()));
}

impl<'a> Request<'a> {
    fn decode(bytes: &'a [u8]) -> Option<Request<'a>> {
        let body = bytes.get(REQUEST_HEADER_BYTES..)?;
        let (kind, unique, node) = (u32_at(bytes, 4)?, u64_at(bytes, 8)?, u64_at(bytes, 16)?);
        Some(Request { kind, unique, node, body })
    }
}

impl Session {
    /// A file system whose files belong to this user and group.
    #[must_use]
    pub fn new(user: u32, group: u32) -> Session {
        Session { user, group, flags: 0 }
    }

    /// Answers the first request, by which both sides agree on what they do. Says whether
    /// there is an answer in `out`.
    pub fn begin(&mut self, request: &[u8], out: &mut Vec<u8>) -> Answer {
        out.clear();
        let Some(request) = Request::decode(request) else { return Answer::None };
        if request.kind != asked::INIT {
            return refuse(request.unique, EIO, out);
        }
        let value = |at| u32_at(request.body, at).unwrap_or_default();
        let (major, minor, readahead, flags) = (value(0), value(4), value(8), value(12));
        if major != MAJOR || minor < MINOR_MIN {
            refuse(request.unique, EPROTO, out);
            return Answer::Version { major, minor };
        }
        self.flags = flags;
        let pages = u64::from(READ_BYTES_MAX) / BLOCK_BYTES;
        answer(request.unique, out, |out| {
            let start = out.len();
            put32(out, &[MAJOR, minor.min(MINOR), readahead, flags & flag::WANTED]);
            // The kernel's own number of requests at a time; pages written, of which there
            // are none; times in nanoseconds.
            put32(out, &[0, BLOCK_BYTES as u32, 1, pages as u32]);
            out.resize(start + INIT_BYTES, 0);
        })
    }

    /// Answers any other request. An answer is in `out` when this returns
    /// [`Answer::Ready`]; a request that makes no sense is answered with an error.
    pub fn answer(&self, request: &[u8], files: &dyn Files, out: &mut Vec<u8>) -> Answer {
        out.clear();
        let Some(request) = Request::decode(request) else { return Answer::None };
        let (unique, node, body) = (request.unique, request.node, request.body);
        match request.kind {
            asked::FORGET | asked::BATCH_FORGET => Answer::None,
            asked::DESTROY => Answer::End,
            asked::LOOKUP => {
                let name = body.split(|byte| *byte == 0).next().unwrap_or_default();
                let found = files.child(node, name);
                // Node 0 means that there is none, and the kernel remembers it.
                answer(unique, out, |out| self.entry(found, out))
            }
            asked::GETATTR => match files.attributes(node) {
                Some(found) => answer(unique, out, |out| {
                    put64(out, &[VALID_SECONDS, 0]);
                    self.attributes(found, out);
                }),
                None => refuse(unique, ENOENT, out),
            },
            // A kernel that hears of no such request sends no other, and keeps what it has.
            asked::OPEN if self.flags & flag::NO_OPEN != 0 => refuse(unique, ENOSYS, out),
            asked::OPEN => answer(unique, out, |out| put32(out, &[0, 0, KEEP_CACHE, 0])),
            // Directories are opened by request: `fusermount3` finds out by opening the
            // first one that this process is gone, and then unmounts.
            asked::OPENDIR => {
                answer(unique, out, |out| put32(out, &[0, 0, KEEP_CACHE | CACHE_DIR, 0]))
            }
            asked::RELEASE | asked::RELEASEDIR => answer(unique, out, |_| ()),
            asked::READ => {
                let (Some(offset), Some(bytes)) = (u64_at(body, 8), u32_at(body, 16)) else {
                    return refuse(unique, EINVAL, out);
                };
                let bytes = bytes.min(READ_BYTES_MAX) as usize;
                let mut read = Ok(());
                let ready = answer(unique, out, |out| read = files.read(node, offset, bytes, out));
                match read {
                    Ok(()) => ready,
                    Err(_) => refuse(unique, EIO, out),
                }
            }
            asked::READDIR | asked::READDIRPLUS => {
                let (Some(from), Some(bytes)) = (u64_at(body, 8), u32_at(body, 16)) else {
                    return refuse(unique, EINVAL, out);
                };
                let is_plus = request.kind == asked::READDIRPLUS;
                let most = ANSWER_HEADER_BYTES + bytes.min(LISTING_BYTES_MAX) as usize;
                let mut listing = Listing { session: self, is_plus, most };
                answer(unique, out, |out| listing.list(node, from, files, out))
            }
            asked::STATFS => answer(unique, out, |out| statfs(files.totals(), out)),
            _ => refuse(unique, ENOSYS, out),
        }
    }

    /// What a name stands for.
    fn entry(&self, found: Option<Attributes>, out: &mut Vec<u8>) {
        let node = found.map_or(0, |found| found.node);
        put64(out, &[node, 0, VALID_SECONDS, VALID_SECONDS, 0]);
        match found {
            Some(found) => self.attributes(found, out),
            None => put64(out, &[0; 11]),
        }
    }

    fn attributes(&self, of: Attributes, out: &mut Vec<u8>) {
        let time = of.modified;
        put64(out, &[of.node, of.bytes, of.bytes.div_ceil(512), time, time, time]);
        let mode = mode(of) | u32::from(of.permissions & 0o777);
        // A directory with one link does not say how many directories are in it.
        put32(out, &[0, 0, 0, mode, 1, self.user, self.group, 0, BLOCK_BYTES as u32, 0]);
    }
}

fn mode(of: Attributes) -> u32 {
    if of.is_directory { DIRECTORY_MODE } else { FILE_MODE }
}

/// Writes an answer.
fn answer(unique: u64, out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) -> Answer {
    put32(out, &[0, 0]);
    put64(out, &[unique]);
    body(out);
    let bytes = out.len() as u32;
    out[..4].copy_from_slice(&bytes.to_ne_bytes());
    Answer::Ready
}

/// Writes an error instead.
fn refuse(unique: u64, error: i32, out: &mut Vec<u8>) -> Answer {
    out.clear();
    put32(out, &[ANSWER_HEADER_BYTES as u32]);
    out.extend_from_slice(&(-error).to_ne_bytes());
    put64(out, &[unique]);
    Answer::Ready
}

fn statfs(totals: Totals, out: &mut Vec<u8>) {
    // Nothing is free.
    put64(out, &[totals.bytes.div_ceil(BLOCK_BYTES), 0, 0, totals.files, 0]);
    put32(out, &[BLOCK_BYTES as u32, NAME_BYTES_MAX, BLOCK_BYTES as u32, 0]);
    put32(out, &[0; 6]);
}

/// A directory that is listed.
struct Listing<'a> {
    session: &'a Session,
    /// With what each entry is.
    is_plus: bool,
    /// The length of the answer.
    most: usize,
}

impl Listing<'_> {
    fn list(&mut self, directory: u64, from: u64, files: &dyn Files, out: &mut Vec<u8>) {
        for (behind, name) in [(BEHIND_DOT, &b"."[..]), (BEHIND_DOTS, b"..")] {
            let node = if behind == BEHIND_DOT { directory } else { files.parent(directory) };
            if from < behind
                && let Some(attributes) = files.attributes(node)
                && !self.add(Entry { name, attributes }, behind, out)
            {
                return;
            }
        }
        let after = from.checked_sub(BEHIND_DOTS).filter(|node| *node > 0);
        files.list(directory, after, &mut |entry| {
            self.add(entry, entry.attributes.node.saturating_add(BEHIND_DOTS), out)
        });
    }

    /// Whether there was room.
    fn add(&self, entry: Entry<'_>, behind: u64, out: &mut Vec<u8>) -> bool {
        let before = out.len();
        if self.is_plus {
            // The kernel does not count these two among what it must forget.
            let found = (behind > BEHIND_DOTS).then_some(entry.attributes);
            self.session.entry(found, out);
        }
        put64(out, &[entry.attributes.node, behind]);
        put32(out, &[entry.name.len() as u32, mode(entry.attributes) >> KIND_SHIFT]);
        out.extend_from_slice(entry.name);
        out.resize(out.len().next_multiple_of(8), 0);
        let has_room = out.len() <= self.most;
        if !has_room {
            out.truncate(before);
        }
        has_room
    }
}
