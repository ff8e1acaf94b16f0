//! What the dispatcher is told of the cache.

use super::Stage;
use super::event::{CacheState, Changes};
use crate::data::limits::CHANGES_OBJECTS_MAX;
use crate::task::ExecutorId;

impl Stage {
    /// Whether there is anything to tell.
    #[must_use]
    pub fn has_changes(&self) -> bool {
        let has_news = self.broadcasts.has_silent() || self.lending.has_lost();
        self.anew || !self.untold.is_empty() || has_news
    }

    /// What is held and had not been told, and the other way round, since the
    /// last call; everything, after [`super::Event::Connected`]. What is here
    /// for one use alone is not told. At most
    /// [`CHANGES_OBJECTS_MAX`] of them: call until it gives `None`.
    pub fn changes(&mut self) -> Option<Changes> {
        let mut changes = Changes { anew: std::mem::take(&mut self.anew), ..Changes::default() };
        while changes.added.len() + changes.removed.len() < CHANGES_OBJECTS_MAX
            && let Some(object) = self.untold.pop_first()
        {
            let held = self.cache.entry(object).filter(|entry| entry.is_held);
            let is_hidden = self.fleeting.contains(&object) || self.trees.is_alone(object);
            match held.filter(|_| !is_hidden) {
                Some(entry) if self.told.insert(object) => changes.added.push((object, entry.size)),
                None if self.told.remove(&object) => changes.removed.push(object),
                _ => {}
            }
        }
        changes.removed.extend(self.lending.take_lost());
        changes.silent = self.broadcasts.take_silent();
        let silent = &changes.silent;
        let empty = changes.added.is_empty() && changes.removed.is_empty() && silent.is_empty();
        (changes.anew || !empty).then_some(changes)
    }

    /// How the cache stands.
    #[must_use]
    pub fn state(&self) -> CacheState {
        let cache = self.cache();
        CacheState { capacity: cache.capacity(), used: cache.used(), usage: self.totals() }
    }

    /// How many bytes have come from which executors since the last call.
    pub fn take_moved(&mut self) -> Vec<(ExecutorId, u64)> {
        self.moved.take()
    }

    pub(super) fn tell_anew(&mut self) {
        self.moved.clear();
        self.anew = true;
        self.lend_anew();
        self.told.clear();
        self.untold = self.cache.recorded().map(|entry| entry.object).collect();
    }
}
