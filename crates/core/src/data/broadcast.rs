//! Broadcasts: an object that many executors read reaches all of them in chunks,
//! each of them serving the chunks that it has while the rest still comes.
//!
//! The chunks go down two trees over the members, even chunks down one and odd
//! chunks down the other. A member has children in at most one of the two, two
//! at most, so it sends as much as it receives, and every link is used in both
//! directions. With *n* members the last has all of an object after about
//! size/link + log₂ *n* × chunk/link.

use super::limits::{BROADCAST_CHUNK_BYTES_MAX, BROADCAST_CHUNK_BYTES_MIN, BROADCAST_CHUNKS_MIN};
use std::collections::VecDeque;

/// How many trees the chunks of an object go down in turn.
pub const TREES: usize = 2;

/// From whom each member receives the chunks of each tree: another member, by
/// its place among them, or the source.
pub type Parents = [Option<usize>; TREES];

/// The chunks of an object, all of the same size but the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunks {
    /// Bytes of each.
    pub bytes: u64,
}

impl Chunks {
    /// The chunks of an object of `size` bytes.
    #[must_use]
    pub fn of(size: u64) -> Chunks {
        let most = (size / BROADCAST_CHUNKS_MIN).max(1);
        let bytes = 1 << most.ilog2();
        Chunks { bytes: bytes.clamp(BROADCAST_CHUNK_BYTES_MIN, BROADCAST_CHUNK_BYTES_MAX) }
    }

    /// The tree that the chunk at `offset` goes down.
    #[must_use]
    pub fn tree(self, offset: u64) -> usize {
        ((offset / self.bytes) % TREES as u64) as usize
    }

    /// The first byte of a tree's chunks from `offset` on.
    #[must_use]
    pub fn next_in_tree(self, offset: u64, tree: usize) -> u64 {
        if self.tree(offset) == tree { offset } else { offset + self.within(offset, u64::MAX) }
    }

    /// How many of `bytes` from `offset` on belong to the chunk there.
    #[must_use]
    pub fn within(self, offset: u64, bytes: u64) -> u64 {
        bytes.min(self.bytes - offset % self.bytes)
    }
}

/// The parents of each of `members`. One member more or less, the last, changes
/// the parents of a few others.
#[must_use]
pub fn parents(members: usize) -> Vec<Parents> {
    let mut parents = vec![[None; TREES]; members];
    for tree in 0..TREES {
        for (child, parent) in Tree::of(members, tree) {
            let of: &mut Parents = &mut parents[child];
            of[tree] = parent;
        }
    }
    parents
}

/// Who of `members` takes the place of one that is gone: one of its children in the tree
/// in which it is an inner member, if one of them is inner there too.
#[must_use]
pub fn heir(member: usize, members: usize) -> Option<usize> {
    let (place, tree) = (member / TREES, member % TREES);
    let child = (2 * place + 1) * TREES + tree;
    (child < members).then_some(child)
}

/// A tree that grows by one member after another. Every second member is inner:
/// they form a complete binary tree. The others are leaves below it.
#[derive(Default)]
struct Tree {
    inner: Vec<usize>,
    /// The members at the places that inner ones take in turn: what is there below
    /// them is one place more than there are of them.
    places: Vec<Option<usize>>,
    /// Those of the places where nobody is, the first foremost.
    free: VecDeque<usize>,
}

impl Tree {
    /// Each member, and its parent.
    fn of(members: usize, tree: usize) -> Vec<(usize, Option<usize>)> {
        let mut grown = Tree::default();
        grown.add_place(None);
        for member in 0..members {
            match member % TREES == tree {
                true => grown.add_inner(member),
                false => grown.add_leaf(member),
            }
        }
        grown.edges()
    }

    fn add_place(&mut self, member: Option<usize>) {
        if member.is_none() {
            self.free.push_back(self.places.len());
        }
        self.places.push(member);
    }

    /// An inner member takes the next place, and who stood there moves below it.
    fn add_inner(&mut self, member: usize) {
        let next = self.inner.len();
        let moved = self.places[next].take();
        if moved.is_none() {
            self.free.pop_front();
        }
        self.inner.push(member);
        self.add_place(moved);
        self.add_place(None);
    }

    /// There are never more leaves than inner members and one, which have as
    /// many places.
    fn add_leaf(&mut self, member: usize) {
        if let Some(place) = self.free.pop_front() {
            self.places[place] = Some(member);
        }
    }

    /// The children of inner member `k` are at places 2k + 1 and 2k + 2 of the
    /// tree, which the leaves continue.
    fn edges(&self) -> Vec<(usize, Option<usize>)> {
        let leaves = self.places[self.inner.len()..].iter().copied();
        let all = self.inner.iter().map(|member| Some(*member)).chain(leaves);
        let edge = |(place, member): (usize, Option<usize>)| {
            let parent = place.checked_sub(1).map(|place| self.inner[place / 2]);
            Some((member?, parent))
        };
        all.enumerate().filter_map(edge).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many steps a member is away from the source, which is counted as one.
    fn depth(parents: &[Parents], mut member: usize, tree: usize) -> usize {
        let mut depth = 1;
        while let Some(parent) = parents[member][tree] {
            (member, depth) = (parent, depth + 1);
            assert!(depth <= parents.len(), "tree {tree} has a cycle");
        }
        depth
    }

    #[test]
    fn every_member_is_below_the_source_and_sends_no_more_than_it_receives() {
        for members in 0..300_usize {
            let parents = parents(members);
            let levels = members.next_power_of_two().ilog2() as usize + 1;
            let mut children = vec![[0; TREES]; members];
            for tree in 0..TREES {
                let roots = parents.iter().filter(|of| of[tree].is_none()).count();
                assert_eq!(roots, members.min(1), "{members} members, tree {tree}");
                for member in 0..members {
                    let depth = depth(&parents, member, tree);
                    assert!(depth <= levels, "{members} members: {member} is at {depth}");
                    if let Some(parent) = parents[member][tree] {
                        children[parent][tree] += 1;
                    }
                }
            }
            for (member, of) in children.iter().enumerate() {
                assert!(of[member % TREES] <= 2, "{member} of {members} has {of:?}");
                assert_eq!(of[(member + 1) % TREES], 0, "{member} of {members} is inner twice");
            }
        }
    }

    #[test]
    fn a_child_is_the_heir_and_can_be_one_itself() {
        for members in 0..300 {
            let parents = parents(members);
            for member in 0..members {
                match heir(member, members) {
                    Some(heir) => {
                        assert_eq!(heir % TREES, member % TREES, "{heir} of {members} is a leaf");
                        assert_eq!(parents[heir][member % TREES], Some(member), "{members}");
                    }
                    None => assert!(
                        (member + 1..members)
                            .filter(|other| other % TREES == member % TREES)
                            .all(|other| parents[other][member % TREES] != Some(member)),
                        "{member} of {members} has an inner child"
                    ),
                }
            }
        }
    }

    #[test]
    fn one_member_more_changes_few() {
        for members in 0..300 {
            let (before, after) = (parents(members), parents(members + 1));
            let changed = before.iter().zip(&after).filter(|(before, after)| before != after);
            assert!(changed.count() <= 1, "the parents of several of {members} members change");
        }
    }

    #[test]
    fn chunks_go_down_the_trees_in_turn() {
        let chunks = Chunks { bytes: 100 };
        assert_eq!([0, 99, 100, 200].map(|offset| chunks.tree(offset)), [0, 0, 1, 0]);
        assert_eq!(chunks.within(5, 3), 3);
        assert_eq!(chunks.within(98, 9), 2);
        assert_eq!(chunks.within(100, u64::MAX), 100);
    }

    #[test]
    fn small_objects_have_small_chunks() {
        let kib = |size| Chunks::of(size).bytes >> 10;
        assert_eq!([0, 16 << 20, 80_000_000].map(kib), [128, 128, 256]);
        assert_eq!([500_000_000, 1 << 40, u64::MAX].map(kib), [1024, 1024, 1024]);
    }
}
