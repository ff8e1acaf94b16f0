//! Tasks that have succeeded and run again all the same, because others need
//! what they left in caches.

use super::Plan;
use super::objects::held_as;
use super::selection::Selection;
use falkon_wire::declared::{CACHE_SCHEME, objects};
use std::collections::BTreeSet;
use std::ops::Range;

impl Plan {
    /// `indices` with the tasks whose outputs the others read from caches: a
    /// cache ends with its run, so that such an output is there only if its
    /// task is in the same run, and so on for what that task reads. The plan
    /// must be the whole one.
    pub(crate) fn with_makers(&self, indices: Vec<Range<u64>>) -> Vec<Range<u64>> {
        if self.objects.is_none() || self.dependencies.is_empty() {
            return indices;
        }
        let selected = Selection::new(indices.iter().cloned(), self.whole_count());
        let mut added: BTreeSet<u64> = BTreeSet::new();
        let mut open: Vec<u64> = Vec::new();
        let mut rest = indices.iter().cloned().flatten();
        while let Some(reader) = open.pop().or_else(|| rest.next()) {
            let read = self.cached(reader, |command| &command.inputs);
            if read.is_empty() {
                continue;
            }
            for maker in self.dependencies.of(reader).iter().map(|on| u64::from(*on)) {
                if selected.position_of(maker).is_some() || added.contains(&maker) {
                    continue;
                }
                let written = self.cached(maker, |command| &command.outputs);
                if !read.is_disjoint(&written) {
                    added.insert(maker);
                    open.push(maker);
                }
            }
        }
        indices.into_iter().chain(added.into_iter().map(|index| index..index + 1)).collect()
    }

    /// The objects in caches that a task reads or writes.
    fn cached(
        &self,
        index: u64,
        side: fn(&falkon_wire::command::Command) -> &Vec<Vec<u8>>,
    ) -> BTreeSet<Vec<u8>> {
        let Some(command) = self.command(index) else { return BTreeSet::new() };
        let sources = objects(side(&command)).map(|(_, source)| source);
        let cached = sources.filter(|source| source.starts_with(CACHE_SCHEME));
        cached.map(|source| held_as(source).to_vec()).collect()
    }
}
