//! A dispatcher's results on disk, which take no time and may be refused.

use falkon_core::dispatch::{Dispatcher, Event as CoreEvent, Page, PageBounds, PagePlace};
use falkon_core::task::Time;
use falkon_wire::codec::Wire;
use std::collections::{BTreeMap, BTreeSet};

/// Pages that fit into the results that a dispatcher keeps in memory.
const PAGES_IN_MEMORY: u64 = 4;
/// Results beyond which nothing more is dispatched, as a multiple of those
/// beyond which pages are written.
const MEMORY_FACTOR: u64 = 16;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Pages {
    bounds: PageBounds,
    written: BTreeMap<PagePlace, Vec<u8>>,
    next: u64,
    /// Pages that go once the journal says why.
    unneeded: Vec<PagePlace>,
    pub(super) stored: u64,
    pub(super) refused: u64,
}

impl Pages {
    /// Results beyond `results_bytes` are moved here; without it as many as a
    /// real dispatcher keeps.
    pub(super) fn new(results_bytes: Option<u64>) -> Pages {
        let mut bounds = PageBounds::default();
        if let Some(bytes) = results_bytes {
            bounds.paged_bytes_min = bytes;
            bounds.memory_bytes_max = bytes.saturating_mul(MEMORY_FACTOR);
            bounds.page_bytes_max = bytes / PAGES_IN_MEMORY;
        }
        let (written, unneeded) = (BTreeMap::new(), Vec::new());
        Pages { bounds, written, next: 0, unneeded, stored: 0, refused: 0 }
    }

    /// A dispatcher that moves results here.
    pub(super) fn new_core(&self) -> Dispatcher {
        let mut core = Dispatcher::new();
        core.page_results(self.bounds);
        core
    }

    /// Writes a page, unless there is no room.
    pub(super) fn store(&mut self, page: &Page, is_tight: bool) -> Option<PagePlace> {
        if is_tight {
            self.refused += 1;
            return None;
        }
        let bytes = page.to_bytes();
        let place = PagePlace { file: self.next, offset: 0, bytes: bytes.len() as u64 };
        self.next += 1;
        self.stored += 1;
        self.written.insert(place, bytes);
        Some(place)
    }

    pub(super) fn load(&self, place: PagePlace) -> Result<Page, String> {
        let bytes = self.written.get(&place).ok_or("there is no such page")?;
        Page::from_bytes(bytes).map_err(|error| error.to_string())
    }

    /// Nobody needs these any more, once the journal says why.
    pub(super) fn forget(&mut self, places: Vec<PagePlace>) {
        self.unneeded.extend(places);
    }

    /// The journal is written.
    pub(super) fn remove_unneeded(&mut self) {
        for place in self.unneeded.drain(..) {
            self.written.remove(&place);
        }
    }

    /// Writes what a dispatcher that reads its journal has too much of in
    /// memory; what is refused stays there.
    pub(super) fn store_recovering(&mut self, core: &mut Dispatcher, now: Time, is_tight: bool) {
        while let Some((instance, from, page)) = core.next_page() {
            let place = self.store(&page, is_tight);
            core.handle(now, CoreEvent::PageStored { instance, from, place });
        }
    }

    /// A dispatcher has started anew: pages that it does not know go.
    pub(super) fn keep(&mut self, known: &Dispatcher) {
        self.unneeded.clear();
        let known: BTreeSet<PagePlace> = known.page_places().collect();
        self.written.retain(|place, _| known.contains(place));
    }
}
