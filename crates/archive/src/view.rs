//! Archives as a file system shows them: files and directories by name, and any part of a
//! file's data by its offset.

use crate::limits::{
    TREE_NODES_MAX, VIEW_CACHE_BYTES, VIEW_ENTRY_BYTES, VIEW_PIECE_BYTES, VIEW_STREAMS_MAX,
};
use crate::part::Part;
use crate::read::{MemberFault, ReadError, Scratch, Stop};
use crate::set::Archive;
use crate::stream::Stream;
use crate::tree::{Place, Tree};
use falkon_core::archive::{FormatError, Member, Method};
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Files and directories of archives, read from any number of threads.
#[derive(Debug, Default)]
pub struct View {
    tree: Tree,
    data: Data,
}

/// The data of members, of which those that were read last are held.
#[derive(Debug, Default)]
pub(crate) struct Data {
    parts: Vec<Part>,
    pieces: Mutex<Pieces>,
    streams: Mutex<Streams>,
    idle: Mutex<Vec<Scratch>>,
}

/// Why archives cannot be shown as a file system.
#[derive(Debug, thiserror::Error)]
pub enum ViewError {
    /// A directory cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// There are too many.
    #[error(
        "{} and those before it have more than {TREE_NODES_MAX} files and directories: name \
         fewer archives, or a pattern for their members",
        path.display()
    )]
    Full {
        /// The archive that has too many.
        path: PathBuf,
    },
}

/// How far a member is inflated, for whoever reads it next.
type Turn = Arc<Mutex<Position>>;

#[derive(Debug, Default)]
struct Position {
    /// `None` at first, and after a fault.
    stream: Option<Stream>,
    /// The piece that cannot be read, and so those behind it.
    fault: Option<(u64, MemberFault)>,
}

/// Members that are inflated, with when they were last asked for.
#[derive(Debug, Default)]
struct Streams {
    turns: HashMap<u32, (Turn, u64)>,
    tick: u64,
}

/// Pieces of members: a node, and the piece's number.
type Key = (u32, u64);

/// Pieces that were read last.
#[derive(Debug, Default)]
struct Pieces {
    held: HashMap<Key, (Arc<[u8]>, u64)>,
    /// By when they were last asked for.
    order: BTreeMap<u64, Key>,
    bytes: usize,
    tick: u64,
}

impl Pieces {
    fn get(&mut self, key: Key) -> Option<Arc<[u8]>> {
        let (bytes, asked) = self.held.get_mut(&key)?;
        self.order.remove(asked);
        self.tick += 1;
        *asked = self.tick;
        self.order.insert(self.tick, key);
        Some(Arc::clone(bytes))
    }

    fn put(&mut self, key: Key, bytes: &Arc<[u8]>) {
        self.tick += 1;
        self.bytes += bytes.len() + VIEW_ENTRY_BYTES;
        self.order.insert(self.tick, key);
        if let Some((before, asked)) = self.held.insert(key, (Arc::clone(bytes), self.tick)) {
            self.order.remove(&asked);
            self.bytes -= before.len() + VIEW_ENTRY_BYTES;
        }
        while self.bytes > VIEW_CACHE_BYTES
            && let Some((_, oldest)) = self.order.pop_first()
        {
            if let Some((dropped, _)) = self.held.remove(&oldest) {
                self.bytes -= dropped.len() + VIEW_ENTRY_BYTES;
            }
        }
    }
}

impl Streams {
    fn turn(&mut self, node: u32) -> Turn {
        self.tick += 1;
        if let Some((turn, asked)) = self.turns.get_mut(&node) {
            *asked = self.tick;
            return Arc::clone(turn);
        }
        if self.turns.len() >= VIEW_STREAMS_MAX
            && let Some(oldest) = self.turns.iter().min_by_key(|(_, (_, asked))| *asked)
        {
            let oldest = *oldest.0;
            self.turns.remove(&oldest);
        }
        let turn = Turn::default();
        self.turns.insert(node, (Arc::clone(&turn), self.tick));
        turn
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl View {
    /// Shows the members that are meant of one more archive; they replace those with the same
    /// names.
    ///
    /// # Errors
    /// If a directory cannot be read, or there are too many members.
    pub fn add(
        &mut self,
        archive: Archive,
        is_meant: impl Fn(&Member) -> bool,
    ) -> Result<(), ViewError> {
        let path = archive.path().to_owned();
        for part in archive.into_parts() {
            let number = u32::try_from(self.data.parts.len());
            let number = number.map_err(|_| ViewError::Full { path: path.clone() })?;
            let mut members = part.members();
            loop {
                let place = Place { part: number, record: members.record() };
                let Some(member) = members.next() else { break };
                let member = member?;
                if is_meant(&member) {
                    let added = self.tree.add(&member, place);
                    added.map_err(|_| ViewError::Full { path: path.clone() })?;
                }
            }
            drop(members);
            self.data.parts.push(part);
        }
        Ok(())
    }

    /// The files and directories.
    #[must_use]
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Appends so many bytes of a file, from this offset on, or as many as there are. A file
    /// of one piece at most is checked before it is handed over; of a larger one, deflated
    /// data are checked when their end is reached, and stored data are not.
    ///
    /// # Errors
    /// If the member is damaged, or cannot be read.
    pub fn read(
        &self,
        node: u32,
        offset: u64,
        bytes: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), ReadError> {
        match self.tree.place(node) {
            Some(file) => self.data.read(node, file, (offset, bytes), out),
            None => Ok(()),
        }
    }
}

impl Data {
    pub(crate) fn of(parts: Vec<Part>) -> Data {
        Data { parts, ..Data::default() }
    }

    pub(crate) fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Appends a part of a member's data, which are known by the number `node`.
    pub(crate) fn read(
        &self,
        node: u32,
        (place, size): (Place, u64),
        (offset, bytes): (u64, usize),
        out: &mut Vec<u8>,
    ) -> Result<(), ReadError> {
        let Some(part) = self.parts.get(place.part as usize) else { return Ok(()) };
        let end = offset.saturating_add(bytes as u64).min(size);
        let mut at = offset;
        while at < end {
            let key = (node, at / VIEW_PIECE_BYTES as u64);
            let held = lock(&self.pieces).get(key);
            let piece = match held {
                Some(piece) => piece,
                None if size <= VIEW_PIECE_BYTES as u64 => self.whole(part, (place, size), key)?,
                None => {
                    let member = member_of(part, place, size)?;
                    let fault = |fault| Err(part.stopped(&member, Stop::Fault(fault)));
                    match member.method {
                        _ if member.is_encrypted => return fault(MemberFault::Encrypted),
                        Method::Other(number) => return fault(MemberFault::Method(number)),
                        Method::Stored => return self.stored(part, &member, at, end, out),
                        Method::Deflated => self.inflated(part, &member, key)?,
                    }
                }
            };
            take(&piece, &mut at, end, out);
        }
        Ok(())
    }

    /// All of a small member.
    fn whole(&self, part: &Part, of: (Place, u64), key: Key) -> Result<Arc<[u8]>, ReadError> {
        let member = member_of(part, of.0, of.1)?;
        let mut data = Vec::with_capacity(member.size as usize);
        let mut scratch = lock(&self.idle).pop().unwrap_or_default();
        let read = scratch.read(part, &member, &mut |bytes| {
            data.extend_from_slice(bytes);
            Ok(())
        });
        lock(&self.idle).push(scratch);
        read?;
        let piece = data.into();
        lock(&self.pieces).put(key, &piece);
        Ok(piece)
    }

    /// A part of a stored member, which nothing is copied of but that part.
    fn stored(
        &self,
        part: &Part,
        member: &Member,
        at: u64,
        end: u64,
        out: &mut Vec<u8>,
    ) -> Result<(), ReadError> {
        let file = part.file()?;
        let start = self.data_start(part, member)?;
        if member.packed < end {
            let fault = MemberFault::Size { expected: member.size };
            return Err(part.stopped(member, Stop::Fault(fault)));
        }
        let before = out.len();
        out.resize(before + (end - at) as usize, 0);
        let read = file.read_exact_at(&mut out[before..], start + at);
        read.map_err(|error| part.io(error))
    }

    /// A piece of a large deflated member. Those before it are inflated too, unless the
    /// member's stream has come as far already.
    fn inflated(&self, part: &Part, member: &Member, key: Key) -> Result<Arc<[u8]>, ReadError> {
        let turn = lock(&self.streams).turn(key.0);
        let mut position = lock(&turn);
        // Whoever had the turn before may have read it.
        if let Some(piece) = lock(&self.pieces).get(key) {
            return Ok(piece);
        }
        if let Some((first, fault)) = &position.fault
            && *first <= key.1
        {
            return Err(part.stopped(member, Stop::Fault(fault.clone())));
        }
        let from = key.1 * VIEW_PIECE_BYTES as u64;
        let mut stream = match position.stream.take().filter(|stream| stream.made() <= from) {
            Some(stream) => stream,
            None => Stream::new(part.file()?, member.clone(), self.data_start(part, member)?),
        };
        loop {
            let number = stream.made() / VIEW_PIECE_BYTES as u64;
            let piece: Arc<[u8]> = match stream.next(VIEW_PIECE_BYTES) {
                Ok(piece) => piece.into(),
                Err(stop) => {
                    if let Stop::Fault(fault) = &stop {
                        position.fault = Some((number, fault.clone()));
                    }
                    return Err(part.stopped(member, stop));
                }
            };
            lock(&self.pieces).put((key.0, number), &piece);
            if number >= key.1 {
                position.stream = Some(stream);
                return Ok(piece);
            }
        }
    }

    fn data_start(&self, part: &Part, member: &Member) -> Result<u64, ReadError> {
        let file = part.file()?;
        let mut scratch = lock(&self.idle).pop().unwrap_or_default();
        let start = scratch.data_start(&*file, part.layout().file_bytes, member);
        lock(&self.idle).push(scratch);
        start.map_err(|stop| part.stopped(member, stop))
    }
}

/// Appends what a piece has of the bytes from `at` to `end`, and moves `at` behind them. A
/// piece has as many bytes as the directory says, and so the one that is asked for.
fn take(piece: &[u8], at: &mut u64, end: u64, out: &mut Vec<u8>) {
    let from = (*at % VIEW_PIECE_BYTES as u64) as usize;
    let to = piece.len().min(from + (end - *at) as usize);
    out.extend_from_slice(&piece[from..to]);
    *at += (to - from) as u64;
}

/// The member of a file, from the directory, where it is as it was when the tree was made.
fn member_of(part: &Part, place: Place, size: u64) -> Result<Member, ReadError> {
    let found = part.member_at(&*part.file()?, place.record)?;
    found.filter(|member| member.size == size).ok_or_else(|| {
        let offset = part.layout().directory + place.record;
        let what = "the file has changed since it was opened";
        part.format(FormatError::Contradiction { offset, what })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pieces_that_were_read_last_are_held() {
        let mut pieces = Pieces::default();
        let large: Arc<[u8]> = vec![0; VIEW_PIECE_BYTES].into();
        let most = VIEW_CACHE_BYTES / (VIEW_PIECE_BYTES + VIEW_ENTRY_BYTES);
        for number in 0..most as u64 {
            pieces.put((1, number), &large);
        }
        pieces.put((1, 0), &large);
        assert!(pieces.get((1, 1)).is_some());
        pieces.put((2, 0), &large);
        let held = [(1, 0), (1, 1), (1, 2), (1, 3), (2, 0)].map(|key| pieces.get(key).is_some());
        assert_eq!(held, [true, true, false, true, true]);
        // Small ones count for what they take, too.
        for number in 0..1_000_000 {
            pieces.put((3, number), &Arc::from([7]));
        }
        assert!(pieces.held.len() <= VIEW_CACHE_BYTES / VIEW_ENTRY_BYTES);
        assert_eq!(pieces.held.len(), pieces.order.len());
        assert_eq!(pieces.bytes, pieces.held.len() * (1 + VIEW_ENTRY_BYTES));
    }

    #[test]
    fn a_bounded_number_of_members_is_inflated_at_a_time() {
        let mut streams = Streams::default();
        let first = streams.turn(0);
        for node in 1..3 * VIEW_STREAMS_MAX as u32 {
            streams.turn(node);
            assert!(Arc::ptr_eq(&first, &streams.turn(0)));
            assert!(streams.turns.len() <= VIEW_STREAMS_MAX);
        }
    }
}
