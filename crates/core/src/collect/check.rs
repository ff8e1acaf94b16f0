//! What must hold of a collector after every step.

use super::Collector;
use crate::dispatch::CheckError;
use crate::dispatch::check::ensure;
use crate::limits::COLLECT_ARCHIVES_MAX;
use std::collections::BTreeMap;

impl Collector {
    /// Checks the whole state.
    ///
    /// # Errors
    /// Says what does not hold.
    pub fn check(&self) -> Result<(), CheckError> {
        self.sets.check()?;
        ensure!(
            self.writing.len() <= COLLECT_ARCHIVES_MAX,
            "too many archives are written at once"
        );
        let writing: Vec<_> = self.writing.values().map(|writing| &writing.archive).collect();
        let mut sorted = writing.clone();
        sorted.sort();
        ensure!(self.sets.writing().eq(sorted), "two files of one archive are written at once");
        let written = self.writing.values().flat_map(|writing| {
            writing.members.iter().map(|(item, one)| (*item, &writing.archive, one))
        });
        let bytes: u64 = written.clone().map(|(_, _, one)| one.bytes).sum();
        ensure!(bytes == self.writing_bytes, "what is written is miscounted");
        let forgotten = self.failing.archives().find(|archive| !self.sets.contains(archive));
        ensure!(forgotten.is_none(), "{forgotten:?} fails, and nothing waits for it");
        let mut open = BTreeMap::new();
        for (item, archive, one) in self.sets.waiting().chain(written) {
            ensure!(open.insert(item, (archive, one.owner)).is_none(), "{item:?} is staged twice");
        }
        for (owner, found) in &self.owners {
            ensure!(!found.open.is_empty(), "{owner:?} is safe, and not told");
            for (item, archive) in &found.open {
                let place = open.remove(item);
                ensure!(place == Some((archive, *owner)), "{item:?} of {owner:?} is lost");
            }
        }
        let ended = self.cancelled.owners().find(|owner| !self.owners.contains_key(owner));
        ensure!(ended.is_none(), "{ended:?} is cancelled and has ended");
        let overdue = self.cancelled.next().filter(|at| *at <= self.now);
        ensure!(overdue.is_none(), "a cancelled task should have been given up at {overdue:?}");
        let unwanted = open.values().find(|(_, owner)| self.owners.contains_key(owner));
        ensure!(unwanted.is_none(), "an output is safe and written again");
        let waiting = self.sets.waiting().find(|(_, _, one)| !self.owners.contains_key(&one.owner));
        ensure!(waiting.is_none(), "an output waits that nobody wants");
        Ok(())
    }
}
