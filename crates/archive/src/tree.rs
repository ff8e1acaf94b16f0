//! The files and directories that members of archives are, in one table: 72 bytes for each
//! and its name.

use crate::limits::TREE_NODES_MAX;
use falkon_core::archive::{Kind, Member, place};
use std::hash::{BuildHasher, RandomState};

/// The directory that all others are below.
pub const ROOT: u32 = 0;
/// Permissions of directories that no member describes.
pub(crate) const DIRECTORY_PERMISSIONS: u16 = 0o755;
/// Slots of the smallest table.
const SLOTS_MIN: usize = 64;
/// A slot without a node, and the end of a list: the root is in neither.
const NONE: u32 = ROOT;

/// Where a file's data are: the record of its member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// The number of its part.
    pub(crate) part: u32,
    /// The record's offset within the part's directory.
    pub(crate) record: u64,
}

#[derive(Debug, Clone, Copy)]
enum Content {
    /// With its first and its last node.
    Directory { first: u32, last: u32 },
    /// With its length.
    File { place: Place, bytes: u64 },
    /// A file that a member replaces which is none.
    Gone,
}

#[derive(Debug, Clone, Copy)]
struct Node {
    /// Where its name is in `names`.
    name: u64,
    content: Content,
    modified: u64,
    parent: u32,
    /// The next one of its directory.
    next: u32,
    permissions: u16,
    /// Whether a member has a directory's time and permissions. One that has none has the
    /// time of the newest file in it.
    is_described: bool,
    /// Names of files have 255 bytes at most.
    name_bytes: u8,
}

/// What a file system shows of a file or a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shown {
    /// Its number.
    pub node: u32,
    /// Whether it is a directory.
    pub is_directory: bool,
    /// Its length.
    pub bytes: u64,
    /// In seconds since 1970.
    pub modified: u64,
    /// Its permissions.
    pub permissions: u16,
}

/// How many members became what.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Files that are shown.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Members whose names later ones have.
    pub doubled: u64,
    /// Members that cannot be shown, as they cannot be extracted: links, devices, names that
    /// lead elsewhere or through a file.
    pub left_out: u64,
}

/// More files and directories than a tree has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Full;

/// Files and directories by their names.
#[derive(Debug)]
pub struct Tree {
    nodes: Vec<Node>,
    /// Components of paths, one behind another.
    names: Vec<u8>,
    /// Nodes by the hash of their directory and name; a node is in the first free slot from
    /// its hash on.
    slots: Vec<u32>,
    state: RandomState,
    counts: Counts,
    /// The directory that the last member was in, by its path.
    recent: (Vec<u8>, u32),
}

impl Default for Tree {
    fn default() -> Tree {
        Tree::new()
    }
}

impl Tree {
    pub(crate) fn new() -> Tree {
        let root = Node {
            name: 0,
            content: Content::Directory { first: NONE, last: NONE },
            modified: 0,
            parent: ROOT,
            next: NONE,
            permissions: DIRECTORY_PERMISSIONS,
            is_described: false,
            name_bytes: 0,
        };
        Tree {
            nodes: vec![root],
            names: Vec::new(),
            slots: vec![NONE; SLOTS_MIN],
            state: RandomState::new(),
            counts: Counts::default(),
            recent: (Vec::new(), ROOT),
        }
    }

    /// How many members became what.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Files and directories.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// A tree has its root.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }

    /// What a node is; `None` if there is no such node.
    #[must_use]
    pub fn shown(&self, number: u32) -> Option<Shown> {
        let node = self.nodes.get(number as usize)?;
        let (is_directory, bytes) = match node.content {
            Content::Directory { .. } => (true, 0),
            Content::File { bytes, .. } => (false, bytes),
            Content::Gone => return None,
        };
        let (modified, permissions) = (node.modified, node.permissions);
        Some(Shown { node: number, is_directory, bytes, modified, permissions })
    }

    /// What has this name in a directory.
    #[must_use]
    pub fn child(&self, directory: u32, name: &[u8]) -> Option<Shown> {
        self.shown(self.find(directory, name).ok()?)
    }

    /// The directory that a node is in; the root is in itself.
    #[must_use]
    pub fn parent(&self, number: u32) -> u32 {
        self.nodes.get(number as usize).map_or(ROOT, |node| node.parent)
    }

    /// What a directory has behind its node `after`, or from the first one on, in the order
    /// in which the members were written. Nothing if `after` is in another one.
    pub fn behind(
        &self,
        directory: u32,
        after: Option<u32>,
    ) -> impl Iterator<Item = (&[u8], Shown)> {
        let node = |number: u32| self.nodes.get(number as usize);
        let next = match after {
            Some(after) => node(after).filter(|node| node.parent == directory).map(|one| one.next),
            None => match node(directory).map(|one| one.content) {
                Some(Content::Directory { first, .. }) => Some(first),
                _ => None,
            },
        };
        let first = next.filter(|next| *next != NONE);
        let all = std::iter::successors(first, move |number| {
            node(*number).map(|one| one.next).filter(|next| *next != NONE)
        });
        all.filter_map(move |number| Some((self.name(node(number)?), self.shown(number)?)))
    }

    /// Where a file's data are.
    pub(crate) fn place(&self, number: u32) -> Option<(Place, u64)> {
        match self.nodes.get(number as usize)?.content {
            Content::File { place, bytes } => Some((place, bytes)),
            _ => None,
        }
    }

    /// The path of a node, for messages.
    #[must_use]
    pub fn path(&self, number: u32) -> Vec<u8> {
        let mut names = Vec::new();
        let mut at = number;
        while at != ROOT
            && let Some(node) = self.nodes.get(at as usize)
        {
            names.push(self.name(node));
            at = node.parent;
        }
        names.reverse();
        names.join(&b'/')
    }

    /// Adds a member; one with the same name before it is replaced.
    pub(crate) fn add(&mut self, member: &Member, at: Place) -> Result<(), Full> {
        let added = self.try_to_add(member, at)?;
        self.counts.left_out += u64::from(!added);
        Ok(())
    }

    /// Whether it is shown.
    fn try_to_add(&mut self, member: &Member, place_of_it: Place) -> Result<bool, Full> {
        let Ok(components) = place(&member.name) else { return Ok(false) };
        let Some((name, parents)) = components.split_last() else { return Ok(false) };
        let kind = member.kind();
        if kind == Kind::Directory {
            if member.size > 0 {
                return Ok(false);
            }
            let Some(made) = self.directory(&components)? else { return Ok(false) };
            let node = &mut self.nodes[made as usize];
            node.modified = member.modified;
            node.is_described = true;
            let permissions = member.mode.filter(|mode| mode & 0o777 != 0);
            node.permissions = permissions
                .map_or(DIRECTORY_PERMISSIONS, |permissions| (permissions & 0o777) as u16);
            return Ok(true);
        }
        let Some(directory) = self.directory_of_next(parents)? else { return Ok(false) };
        let is_file = kind == Kind::File;
        let number = match self.find(directory, name) {
            Ok(number) => {
                match self.nodes[number as usize].content {
                    Content::Directory { .. } => return Ok(false),
                    Content::File { bytes, .. } => {
                        self.counts.doubled += 1;
                        self.counts.files -= 1;
                        self.counts.bytes -= bytes;
                    }
                    Content::Gone => {}
                }
                number
            }
            Err(_) if !is_file => return Ok(false),
            Err(slot) => self.insert(directory, name, slot)?,
        };
        let node = &mut self.nodes[number as usize];
        if !is_file {
            node.content = Content::Gone;
            return Ok(false);
        }
        node.content = Content::File { place: place_of_it, bytes: member.size };
        node.modified = member.modified;
        node.permissions = (member.permissions() & 0o777) as u16;
        self.counts.files += 1;
        self.touch(directory, member.modified);
        self.counts.bytes = self.counts.bytes.saturating_add(member.size);
        Ok(true)
    }

    /// Something in a directory has this time.
    fn touch(&mut self, directory: u32, modified: u64) {
        let mut at = directory;
        while let Some(node) = self.nodes.get_mut(at as usize)
            && (node.is_described || node.modified < modified)
        {
            if !node.is_described {
                node.modified = modified;
            }
            if at == ROOT {
                break;
            }
            at = node.parent;
        }
    }

    /// The directory that these components lead to; members of one directory mostly follow
    /// each other.
    fn directory_of_next(&mut self, components: &[&[u8]]) -> Result<Option<u32>, Full> {
        let path = components.join(&b'/');
        if self.recent.0 == path {
            return Ok(Some(self.recent.1));
        }
        let found = self.directory(components)?;
        if let Some(found) = found {
            self.recent = (path, found);
        }
        Ok(found)
    }

    /// The same, made where it is missing; `None` if it leads through a file.
    fn directory(&mut self, components: &[&[u8]]) -> Result<Option<u32>, Full> {
        let mut at = ROOT;
        for name in components {
            let number = match self.find(at, name) {
                Ok(number) => number,
                Err(slot) => self.insert(at, name, slot)?,
            };
            let node = &mut self.nodes[number as usize];
            match node.content {
                Content::Directory { .. } => {}
                Content::File { .. } => return Ok(None),
                Content::Gone => {
                    node.content = Content::Directory { first: NONE, last: NONE };
                    (node.modified, node.permissions) = (0, DIRECTORY_PERMISSIONS);
                }
            }
            at = number;
        }
        Ok(Some(at))
    }

    fn name(&self, node: &Node) -> &[u8] {
        let at = node.name as usize;
        self.names.get(at..at + usize::from(node.name_bytes)).unwrap_or_default()
    }

    /// The node with this name, or the free slot where it is to be.
    fn find(&self, directory: u32, name: &[u8]) -> Result<u32, usize> {
        let mut slot = self.hash(directory, name);
        loop {
            slot &= self.slots.len() - 1;
            match self.slots[slot] {
                NONE => return Err(slot),
                number => {
                    let node = &self.nodes[number as usize];
                    if node.parent == directory && self.name(node) == name {
                        return Ok(number);
                    }
                }
            }
            slot += 1;
        }
    }

    fn hash(&self, directory: u32, name: &[u8]) -> usize {
        self.state.hash_one((directory, name)) as usize
    }

    /// A new node at the end of a directory, which is gone until it is made something.
    fn insert(&mut self, directory: u32, name: &[u8], slot: usize) -> Result<u32, Full> {
        if self.nodes.len() >= TREE_NODES_MAX {
            return Err(Full);
        }
        let number = self.nodes.len() as u32;
        self.nodes.push(Node {
            name: self.names.len() as u64,
            content: Content::Gone,
            modified: 0,
            parent: directory,
            next: NONE,
            permissions: DIRECTORY_PERMISSIONS,
            is_described: false,
            // A place has no longer components.
            name_bytes: u8::try_from(name.len()).unwrap_or(u8::MAX),
        });
        self.names.extend_from_slice(name);
        self.slots[slot] = number;
        if let Content::Directory { first, last } = &mut self.nodes[directory as usize].content {
            let before = std::mem::replace(last, number);
            if before == NONE {
                *first = number;
            } else {
                self.nodes[before as usize].next = number;
            }
        }
        if self.nodes.len() * 2 > self.slots.len() {
            self.spread();
        }
        Ok(number)
    }

    /// Twice as many slots.
    fn spread(&mut self) {
        let count = self.slots.len() * 2;
        let mut slots = vec![NONE; count];
        for (number, node) in self.nodes.iter().enumerate().skip(1) {
            let mut slot = self.hash(node.parent, self.name(node)) & (count - 1);
            while slots[slot] != NONE {
                slot = (slot + 1) & (count - 1);
            }
            slots[slot] = number as u32;
        }
        self.slots = slots;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(tree: &mut Tree, name: &str, modified: u64, mode: u32) {
        let member = Member { mode: Some(mode), ..Member::new(name, modified, 0) };
        tree.add(&member, Place { part: 0, record: modified }).unwrap();
    }

    #[test]
    fn a_link_hides_the_file_that_it_replaces() {
        let mut tree = Tree::new();
        add(&mut tree, "a", 1, 0o100_644);
        add(&mut tree, "b", 2, 0o100_600);
        add(&mut tree, "a", 3, 0o120_777);
        assert_eq!(tree.child(ROOT, b"a"), None);
        let names: Vec<&[u8]> = tree.behind(ROOT, None).map(|(name, _)| name).collect();
        assert_eq!(names, [b"b"]);
        let counts = Counts { files: 1, bytes: 0, doubled: 1, left_out: 1 };
        assert_eq!(tree.counts(), counts);
        // A directory of that name, with a time of its own, and then one of what is in it.
        add(&mut tree, "a/c", 4, 0o100_644);
        let found = tree.child(ROOT, b"a").unwrap();
        assert_eq!((found.is_directory, found.modified, found.permissions), (true, 4, 0o755));
        add(&mut tree, "a/", 3, 0o040_700);
        add(&mut tree, "a/d/e", 9, 0o100_644);
        let found = tree.child(ROOT, b"a").unwrap();
        assert_eq!((found.modified, found.permissions), (3, 0o700));
        assert_eq!(tree.shown(ROOT).unwrap().modified, 9);
    }
}
