//! A disk for pages of results: takes its time, and is full at times.

use crate::rng::Rng;
use falkon_core::dispatch::{Action, Dispatcher, Event, Page, PageBounds, PagePlace};
use falkon_core::task::Time;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

#[derive(Debug)]
pub(crate) struct Disk {
    rng: Rng,
    bounds: PageBounds,
    pages: BTreeMap<PagePlace, Page>,
    next: u64,
    /// Answers that are under way.
    due: VecDeque<(Time, Event)>,
    full_percent: u64,
}

impl Disk {
    /// One with small pages; most schedules have one.
    pub(crate) fn random(seed: u64) -> Option<Disk> {
        let mut rng = Rng::new(seed ^ 0xd15c);
        if rng.percent(30) {
            return None;
        }
        let paged_bytes_min = *rng.pick(&[0, 300, 2_000]);
        let bounds = PageBounds {
            paged_bytes_min,
            memory_bytes_max: paged_bytes_min + *rng.pick(&[500, 10_000, 1 << 30]),
            page_bytes_max: *rng.pick(&[1, 400, 2_000]),
            page_runs_max: *rng.pick(&[1, 4, 100]),
        };
        let full_percent = *rng.pick(&[0, 10, 40]);
        let (pages, due) = (BTreeMap::new(), VecDeque::new());
        Some(Disk { rng, bounds, pages, next: 0, due, full_percent })
    }

    pub(crate) fn bounds(&self) -> PageBounds {
        self.bounds
    }

    /// When the next answer is there.
    pub(crate) fn next_due(&self) -> Option<Time> {
        self.due.front().map(|(at, _)| *at)
    }

    pub(crate) fn answer(&mut self) -> Option<Event> {
        self.due.pop_front().map(|(_, event)| event)
    }

    /// Carries out what is about pages; gives back what is not.
    pub(crate) fn carry_out(&mut self, now: Time, action: Action) -> Option<Action> {
        let answer = match action {
            Action::StorePage { instance, from, page } => {
                let is_full = self.rng.percent(self.full_percent);
                let place = (!is_full).then(|| self.write(page));
                Event::PageStored { instance, from, place }
            }
            Action::LoadPage { instance, from, place } => {
                let page = self.pages.get(&place).cloned();
                let page = page.ok_or_else(|| "there is no such page".to_owned());
                Event::PageLoaded { instance, from, page }
            }
            Action::DropPages { places } => {
                for place in places {
                    assert!(self.pages.remove(&place).is_some(), "a page is dropped twice");
                }
                return None;
            }
            action => return Some(action),
        };
        let last = self.due.back().map_or(now, |(at, _)| *at);
        let at = now.max(last).after(self.rng.below(20_000));
        self.due.push_back((at, answer));
        None
    }

    fn write(&mut self, page: Page) -> PagePlace {
        let place = PagePlace { file: self.next / 7, offset: self.next, bytes: 100 };
        self.next += 1;
        self.pages.insert(place, page);
        place
    }

    /// The dispatcher reads its journal: what it stores is stored at once.
    pub(crate) fn store_recovering(&mut self, dispatcher: &mut Dispatcher, now: Time) {
        while let Some((instance, from, page)) = dispatcher.next_page() {
            let place = Some(self.write(page));
            dispatcher.handle(now, Event::PageStored { instance, from, place });
        }
    }

    /// The dispatcher was started anew: what it does not know is removed.
    pub(crate) fn restarted(&mut self, dispatcher: &Dispatcher) {
        self.due.clear();
        self.keep(dispatcher.page_places().collect());
    }

    fn keep(&mut self, known: BTreeSet<PagePlace>) {
        for place in &known {
            assert!(self.pages.contains_key(place), "a page that is known was dropped");
        }
        self.pages.retain(|place, _| known.contains(place));
    }

    /// Nothing is known any more, so nothing is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// For a dispatcher that is made to be looked at and thrown away.
    pub(crate) fn is_known(&self, place: &PagePlace) -> bool {
        self.pages.contains_key(place)
    }
}
