//! The keys of objects as a tree of directories and files.

use super::{SCHEME, object_of};
use falkon_core::data::object::Object;
use falkon_core::dispatch::ObjectStatus;
use falkon_fuse::ROOT;
use std::collections::BTreeMap;

/// A file or a directory.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) parent: u64,
    /// A file's object; a directory has none.
    pub(super) object: Option<Object>,
    children: BTreeMap<String, u64>,
}

/// Directories and files by their numbers, which begin with that of the root.
#[derive(Debug)]
pub(super) struct Tree {
    nodes: Vec<Node>,
}

impl Tree {
    /// Of objects that are in caches alone: each under its key. Returns how many have none
    /// that a file can have, too: a key that is a directory of others, or no relative path,
    /// or one that an object before has.
    pub(super) fn of(objects: Vec<ObjectStatus>) -> (Tree, u64) {
        let root =
            Node { name: String::new(), parent: ROOT, object: None, children: BTreeMap::new() };
        let mut tree = Tree { nodes: vec![root] };
        let mut left_out = 0;
        for status in objects {
            let key = status.url.strip_prefix(SCHEME).map(str::to_owned);
            let is_added = match (key, status.size) {
                (Some(key), Some(_)) => tree.add(&key, object_of(status)),
                _ => false,
            };
            left_out += u64::from(!is_added);
        }
        (tree, left_out)
    }

    fn add(&mut self, key: &str, object: Object) -> bool {
        let is_name = |name: &str| !matches!(name, "" | "." | "..") && !name.contains('\0');
        if !key.split('/').all(is_name) {
            return false;
        }
        let (directories, name) = key.rsplit_once('/').unwrap_or(("", key));
        let mut at = ROOT;
        for directory in directories.split('/').filter(|name| !name.is_empty()) {
            at = match self.node(at).and_then(|node| node.children.get(directory)) {
                Some(known) => *known,
                None => self.insert(at, directory, None),
            };
            if self.node(at).is_none_or(|node| node.object.is_some()) {
                return false;
            }
        }
        if self.node(at).is_none_or(|node| node.children.contains_key(name)) {
            return false;
        }
        self.insert(at, name, Some(object));
        true
    }

    fn insert(&mut self, parent: u64, name: &str, object: Option<Object>) -> u64 {
        let number = ROOT + self.nodes.len() as u64;
        if let Some(of) = self.index(parent).and_then(|at| self.nodes.get_mut(at)) {
            of.children.insert(name.to_owned(), number);
        }
        let children = BTreeMap::new();
        self.nodes.push(Node { name: name.to_owned(), parent, object, children });
        number
    }

    fn index(&self, number: u64) -> Option<usize> {
        usize::try_from(number.checked_sub(ROOT)?).ok()
    }

    pub(super) fn node(&self, number: u64) -> Option<&Node> {
        self.nodes.get(self.index(number)?)
    }

    pub(super) fn child(&self, directory: u64, name: &str) -> Option<u64> {
        self.node(directory)?.children.get(name).copied()
    }

    /// The entries of a directory behind one of them, or all.
    pub(super) fn entries(
        &self,
        directory: u64,
        after: Option<u64>,
    ) -> impl Iterator<Item = (u64, &Node)> {
        let children = self.node(directory).into_iter().flat_map(|node| node.children.values());
        let mut rest = children.copied();
        if let Some(after) = after {
            // Nothing is behind an entry that is not there.
            rest.by_ref().find(|number| *number == after);
        }
        rest.filter_map(|number| Some((number, self.node(number)?)))
    }

    /// How many files there are.
    pub(super) fn files(&self) -> u64 {
        self.nodes.iter().filter(|node| node.object.is_some()).count() as u64
    }

    /// How many files and directories there are, and the bytes of the files.
    pub(super) fn totals(&self) -> (u64, u64) {
        let objects = self.nodes.iter().filter_map(|node| node.object.as_ref());
        let bytes = objects.fold(0u64, |sum, one| sum.saturating_add(one.size.unwrap_or(0)));
        (self.nodes.len() as u64, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use falkon_core::data::object::ObjectId;

    fn object(url: &str, size: Option<u64>) -> ObjectStatus {
        let (id, version) = (ObjectId(url.len() as u128), "1".into());
        ObjectStatus { id, url: url.into(), version, size, holders: 1, coming: 0, waiting: 0 }
    }

    #[test]
    fn keys_are_paths_and_those_that_are_none_are_left_out() {
        let urls = ["a", "b/c/d", "b/e", "b", "a/f", "../x", "", "g//h", "/etc/i", "a", "j"];
        let mut objects: Vec<_> =
            urls.iter().map(|key| object(&format!("cache:{key}"), Some(3))).collect();
        objects.last_mut().unwrap().size = None;
        let (tree, left_out) = Tree::of(objects);
        assert_eq!((tree.files(), left_out), (3, 8));
        let names = |directory, after| {
            let entries = tree.entries(directory, after);
            entries.map(|(_, node)| node.name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(names(ROOT, None), ["a", "b"]);
        assert_eq!(names(ROOT, tree.child(ROOT, "a")), ["b"]);
        let b = tree.child(ROOT, "b").unwrap();
        assert_eq!(names(b, None), ["c", "e"]);
        assert_eq!(names(b, Some(1000)), [""; 0]);
        let file = tree.node(tree.child(b, "e").unwrap()).unwrap();
        assert_eq!((file.parent, file.object.as_ref().unwrap().size), (b, Some(3)));
        assert_eq!(tree.totals().1, 9);
    }
}
