//! Broadcasts in the worlds of this test: nodes are named as parents that have an
//! object or not, say nothing or die; peers ask for chunks of what is on its way.

use super::{Due, World};
use falkon_core::data::broadcast::Chunks;
use falkon_core::data::limits::BROADCAST_CHUNK_BYTES_MAX;
use falkon_core::data::object::ObjectId;
use falkon_core::data::stage::{Action, Event, FetchError, FetchId, ServeId};
use falkon_core::task::ExecutorId;

impl World {
    /// A peer asks for an object or a chunk of it, or somebody becomes a parent.
    pub(super) fn broadcast_chance(&mut self, object: ObjectId) {
        if self.rng.percent(30) {
            let count = *self.rng.pick(&[2, 2, 2, 2, 0, 1]);
            let parents = (0..count).map(|_| ExecutorId(self.rng.below(5))).collect();
            return self.send(Event::Parents { object, parents });
        }
        self.next += 1;
        let serve = ServeId(self.next);
        let size = self.reals.get(&object).map_or(0, |real| real.size);
        let bytes = Chunks::of(size).bytes;
        let chunks = size / bytes;
        let range = if chunks == 0 || self.rng.percent(40) {
            (0, None)
        } else {
            let from = self.rng.below(chunks) * bytes;
            self.asked.insert(serve, (from, from + bytes));
            (from, Some(bytes))
        };
        self.send(Event::Ask { serve, object, range });
    }

    /// Whether a peer that was asked for a chunk says nothing: then it is given up
    /// long before the connection is.
    pub(super) fn hangs(&mut self, fetch: FetchId, length: Option<u64>) -> bool {
        let is_chunk = length.is_some_and(|length| length <= BROADCAST_CHUNK_BYTES_MAX);
        let hangs = is_chunk && self.fault(self.faults.peers) && self.rng.percent(30);
        if hangs {
            let why = FetchError::Unreachable("silent".into());
            let event = Event::FetchFailed { fetch, bytes: 0, why };
            self.plan(self.now.after(20_000_000).0, Due::Event(event));
        }
        hangs
    }

    /// Carries out what a stage wants done that has to do with broadcasts.
    pub(super) fn act_on_broadcast(&mut self, action: &Action) {
        match action {
            Action::ServePart { serve, partial, size, object, .. } => {
                assert_eq!(*size, self.reals[object].size);
                let (from, end) = self.asked[serve];
                // One that is being sealed is whole.
                let whole = vec![(0, *size)];
                let partial = self.partials.get(partial);
                let mut ranges = partial.map_or(whole, |partial| partial.ranges.clone());
                ranges.sort_unstable();
                let mut at = from;
                for (first, count) in ranges {
                    at = if first <= at { at.max(first + count) } else { at };
                }
                assert!(at >= end, "seed {}: {object} is served and not there", self.seed);
                let at = self.now.0 + self.rng.below(2_000_000);
                self.plan(at, Due::Event(Event::Served(*serve)));
            }
            Action::GiveUp { fetch, .. } => {
                let why = FetchError::Unreachable("given up".into());
                self.soon(Event::FetchFailed { fetch: *fetch, bytes: 0, why });
            }
            Action::Refuse { .. } => {}
            other => panic!("the shell is to do {other:?}"),
        }
    }
}
