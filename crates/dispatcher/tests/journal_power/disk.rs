//! A model of a file system that keeps over a power failure what was synced, and of the rest
//! whatever it likes: contents of a file by an fsync of the file, entries of a directory by an
//! fsync of the directory, and nothing by anything else.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Component, Path};

/// Bytes that a disk writes as a whole or not at all; what is longer may end at any byte.
const SECTOR_BYTES: u64 = 512;

/// A file or a directory, by its place in the model.
pub(crate) type Node = usize;

/// Contents of every file, `None` for a directory, by its path.
pub(crate) type Image = BTreeMap<String, Option<Vec<u8>>>;

/// What of a change that was not synced has reached the disk.
#[derive(Debug, Clone)]
pub(crate) enum Fate {
    Lost,
    /// The file's length, with zeros for what was written.
    Length,
    /// These bytes of what was written.
    Part(Range<usize>),
    Whole,
}

/// Decides what of the changes that were not synced has reached the disk.
pub(crate) trait Fates {
    fn of_write(&mut self, offset: u64, bytes: usize) -> Fate;
    fn of_length(&mut self) -> bool;
    /// An entry that was made, or, with `removes`, one that was only removed.
    fn of_entry(&mut self, removes: bool) -> bool;
}

/// Nothing has reached the disk that was not synced.
pub(crate) struct Nothing;

/// Everything has; what a process finds that starts again on the same machine.
pub(crate) struct Everything;

/// Entries that were removed are gone, and nothing else has reached the disk.
pub(crate) struct Removals;

/// A part has, from the numbers of a seed.
pub(crate) struct Random {
    state: u64,
    /// How many of 8 changes are whole.
    whole: u64,
    in_order: bool,
    stopped: bool,
}

impl Fates for Nothing {
    fn of_write(&mut self, _: u64, _: usize) -> Fate {
        Fate::Lost
    }
    fn of_length(&mut self) -> bool {
        false
    }
    fn of_entry(&mut self, _: bool) -> bool {
        false
    }
}

impl Fates for Everything {
    fn of_write(&mut self, _: u64, _: usize) -> Fate {
        Fate::Whole
    }
    fn of_length(&mut self) -> bool {
        true
    }
    fn of_entry(&mut self, _: bool) -> bool {
        true
    }
}

impl Fates for Removals {
    fn of_write(&mut self, _: u64, _: usize) -> Fate {
        Fate::Lost
    }
    fn of_length(&mut self) -> bool {
        false
    }
    fn of_entry(&mut self, removes: bool) -> bool {
        removes
    }
}

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        let mut some = Random { state: seed, whole: 0, in_order: false, stopped: false };
        some.whole = 1 + some.below(7);
        some.in_order = some.below(3) == 0;
        some
    }

    /// A number below `bound`, by splitmix64.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    fn survives(&mut self) -> bool {
        if self.in_order && self.stopped {
            return false;
        }
        let survives = self.below(8) < self.whole;
        self.stopped |= !survives;
        survives
    }
}

impl Fates for Random {
    fn of_write(&mut self, offset: u64, bytes: usize) -> Fate {
        let was_stopped = self.stopped;
        if self.survives() {
            return Fate::Whole;
        }
        let is_whole = (offset + bytes as u64).div_ceil(SECTOR_BYTES) - offset / SECTOR_BYTES <= 1;
        let kinds = if self.in_order { 2 } else { 4 };
        match self.below(kinds) {
            _ if self.in_order && was_stopped => Fate::Lost,
            0 => Fate::Lost,
            1 if is_whole => Fate::Lost,
            1 => Fate::Part(0..self.below(bytes as u64 + 1) as usize),
            2 => Fate::Length,
            _ => {
                // The first sectors are missing, or the only one.
                let sectors = (offset + bytes as u64) / SECTOR_BYTES - offset / SECTOR_BYTES;
                let from = (offset / SECTOR_BYTES + 1 + self.below(sectors.max(1))) * SECTOR_BYTES;
                Fate::Part(((from - offset) as usize).min(bytes)..bytes)
            }
        }
    }
    fn of_length(&mut self) -> bool {
        self.survives()
    }
    fn of_entry(&mut self, _: bool) -> bool {
        self.survives()
    }
}

#[derive(Debug)]
enum Change {
    Write { offset: usize, bytes: Vec<u8> },
    Length(usize),
}

#[derive(Debug)]
enum Naming {
    Made { name: String, node: Node },
    Removed { name: String },
    Renamed { from: String, to: String, node: Node },
}

#[derive(Debug)]
enum Kind {
    File { synced: Vec<u8>, unsynced: Vec<Change> },
    Directory { synced: BTreeMap<String, Node>, now: BTreeMap<String, Node>, unsynced: Vec<Naming> },
}

#[derive(Debug)]
struct Inode {
    kind: Kind,
    /// How many changes were made durable: a sync that runs names those before its start.
    settled: usize,
}

/// The file system; its root is on the disk from the beginning.
#[derive(Debug)]
pub(crate) struct Disk {
    inodes: Vec<Inode>,
    /// Rises with every change of what a power failure would leave in the worst case.
    pub(crate) durable_changes: u64,
    pub(crate) changes: u64,
}

fn directory() -> Inode {
    let kind =
        Kind::Directory { synced: BTreeMap::new(), now: BTreeMap::new(), unsynced: Vec::new() };
    Inode { kind, settled: 0 }
}

fn write(into: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    let end = offset + bytes.len();
    if into.len() < end {
        into.resize(end, 0);
    }
    into[offset..end].copy_from_slice(bytes);
}

impl Change {
    fn apply(&self, contents: &mut Vec<u8>) {
        match self {
            Change::Write { offset, bytes } => write(contents, *offset, bytes),
            Change::Length(length) => contents.resize(*length, 0),
        }
    }

    fn apply_some(&self, contents: &mut Vec<u8>, fates: &mut dyn Fates) {
        let Change::Write { offset, bytes } = self else {
            if fates.of_length() {
                self.apply(contents);
            }
            return;
        };
        match fates.of_write(*offset as u64, bytes.len()) {
            Fate::Lost => {}
            Fate::Length => contents.resize(contents.len().max(offset + bytes.len()), 0),
            Fate::Part(part) if part.is_empty() => {}
            Fate::Part(part) => write(contents, offset + part.start, &bytes[part]),
            Fate::Whole => write(contents, *offset, bytes),
        }
    }
}

impl Naming {
    fn removes(&self) -> bool {
        matches!(self, Naming::Removed { .. })
    }

    fn apply(&self, entries: &mut BTreeMap<String, Node>) {
        match self {
            Naming::Made { name, node } => _ = entries.insert(name.clone(), *node),
            Naming::Removed { name } => _ = entries.remove(name),
            Naming::Renamed { from, to, node } => {
                entries.remove(from);
                entries.insert(to.clone(), *node);
            }
        }
    }
}

impl Disk {
    pub(crate) fn new() -> Disk {
        Disk { inodes: vec![directory()], durable_changes: 0, changes: 0 }
    }

    /// What is at `path` now, which is relative to the root.
    pub(crate) fn at(&self, path: &Path) -> Option<Node> {
        path.components().try_fold(0, |node, part| match (&self.inodes[node].kind, part) {
            (_, Component::CurDir) => Some(node),
            (Kind::Directory { now, .. }, Component::Normal(name)) => {
                now.get(name.to_str()?).copied()
            }
            _ => None,
        })
    }

    fn name(&mut self, path: &Path, naming: impl FnOnce(String) -> Naming) {
        let parent = self.at(path.parent().expect("no call is about the root")).expect("it exists");
        let name = path.file_name().and_then(|name| name.to_str()).expect("a plain name");
        let Kind::Directory { now, unsynced, .. } = &mut self.inodes[parent].kind else {
            panic!("{} is in no directory", path.display())
        };
        let naming = naming(name.to_owned());
        naming.apply(now);
        unsynced.push(naming);
        self.changes += 1;
    }

    /// Makes an empty file, or a directory.
    pub(crate) fn make(&mut self, path: &Path, is_directory: bool) -> Node {
        let node = self.inodes.len();
        self.inodes.push(match is_directory {
            true => directory(),
            false => {
                Inode { kind: Kind::File { synced: Vec::new(), unsynced: Vec::new() }, settled: 0 }
            }
        });
        self.name(path, |name| Naming::Made { name, node });
        node
    }

    pub(crate) fn remove(&mut self, path: &Path) {
        self.name(path, |name| Naming::Removed { name });
    }

    /// Renames within a directory, which is one change.
    pub(crate) fn rename(&mut self, from: &Path, to: &Path) {
        assert_eq!(from.parent(), to.parent(), "the model renames within a directory");
        let node = self.at(from).expect("it was renamed");
        let from = from.file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
        self.name(to, |to| Naming::Renamed { from, to, node });
    }

    fn change(&mut self, node: Node, change: Change) {
        let Kind::File { unsynced, .. } = &mut self.inodes[node].kind else {
            panic!("a directory is no file")
        };
        unsynced.push(change);
        self.changes += 1;
    }

    pub(crate) fn write(&mut self, node: Node, offset: usize, bytes: Vec<u8>) {
        self.change(node, Change::Write { offset, bytes });
    }

    pub(crate) fn set_length(&mut self, node: Node, length: usize) {
        self.change(node, Change::Length(length));
    }

    /// The changes of `node` so far: what a sync that begins now puts on the disk.
    pub(crate) fn changes_of(&self, node: Node) -> usize {
        let inode = &self.inodes[node];
        inode.settled
            + match &inode.kind {
                Kind::File { unsynced, .. } => unsynced.len(),
                Kind::Directory { unsynced, .. } => unsynced.len(),
            }
    }

    /// A sync has ended that began after so many changes.
    pub(crate) fn synced(&mut self, node: Node, changes: usize) {
        let inode = &mut self.inodes[node];
        let count = changes.saturating_sub(inode.settled);
        inode.settled += count;
        match &mut inode.kind {
            Kind::File { synced, unsynced } => {
                unsynced.drain(..count).for_each(|change| change.apply(synced));
            }
            Kind::Directory { synced, unsynced, .. } => {
                unsynced.drain(..count).for_each(|naming| naming.apply(synced));
            }
        }
        self.durable_changes += u64::from(count > 0);
    }

    /// What is on the disk after a power failure.
    pub(crate) fn image(&self, fates: &mut dyn Fates) -> Image {
        let mut image = Image::new();
        self.image_of(0, "", fates, &mut image);
        image
    }

    fn image_of(&self, node: Node, path: &str, fates: &mut dyn Fates, image: &mut Image) {
        match &self.inodes[node].kind {
            Kind::File { synced, unsynced } => {
                let mut contents = synced.clone();
                unsynced.iter().for_each(|change| change.apply_some(&mut contents, fates));
                image.insert(path.to_owned(), Some(contents));
            }
            Kind::Directory { synced, unsynced, .. } => {
                let mut entries = synced.clone();
                for naming in unsynced {
                    if fates.of_entry(naming.removes()) {
                        naming.apply(&mut entries);
                    }
                }
                image.insert(path.to_owned(), None);
                for (name, node) in entries {
                    let slash = if path.is_empty() { "" } else { "/" };
                    self.image_of(node, &format!("{path}{slash}{name}"), fates, image);
                }
            }
        }
    }
}
