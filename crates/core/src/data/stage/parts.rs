//! Serving what is on its way here: a request for a chunk that has not come yet
//! waits for it for a moment.

use super::event::{Action, ByteRange, Refusal, ServeId};
use super::{Making, Stage, Timer};
use crate::data::limits::{BROADCAST_OBJECT_BYTES_MIN, CHUNK_WAIT_MICROS, CHUNK_WAITS_MAX};
use crate::data::object::ObjectId;
use crate::task::Time;
use std::collections::{BTreeMap, BTreeSet};

/// Requests for chunks that are on their way here.
#[derive(Debug, Default)]
pub(super) struct Waits {
    /// Of which object each is, from where to where, and until when it waits.
    asked: BTreeMap<ServeId, (ObjectId, u64, u64, Time)>,
    of: BTreeSet<(ObjectId, ServeId)>,
    due: BTreeSet<(Time, ServeId)>,
}

impl Waits {
    pub(super) fn has(&self, serve: ServeId) -> bool {
        self.asked.contains_key(&serve)
    }

    fn insert(&mut self, serve: ServeId, object: ObjectId, (from, end): (u64, u64), until: Time) {
        self.asked.insert(serve, (object, from, end, until));
        self.of.insert((object, serve));
        self.due.insert((until, serve));
    }

    pub(super) fn remove(&mut self, serve: ServeId) -> Option<ObjectId> {
        let (object, _, _, until) = self.asked.remove(&serve)?;
        self.of.remove(&(object, serve));
        self.due.remove(&(until, serve));
        Some(object)
    }

    /// The requests for an object, with what they ask for.
    fn of(&self, object: ObjectId) -> Vec<(ServeId, u64, u64)> {
        let all = (object, ServeId(0))..=(object, ServeId(u64::MAX));
        let asked = self.of.range(all).filter_map(|(_, serve)| {
            let (_, from, end, _) = self.asked.get(serve)?;
            Some((*serve, *from, *end))
        });
        asked.collect()
    }

    /// For the state checker: how many there are, if they agree.
    pub(super) fn count(&self) -> Option<usize> {
        let agree = self.asked.len() == self.of.len() && self.asked.len() == self.due.len();
        agree.then_some(self.asked.len())
    }
}

impl Stage {
    /// A peer asks for a chunk of an object that is on its way here. Returns
    /// whether that is so; then it is answered, now or later.
    pub(super) fn ask_for_chunk(
        &mut self,
        serve: ServeId,
        object: ObjectId,
        (from, length): ByteRange,
    ) -> bool {
        let Some(item) = self.items.get(&object) else { return false };
        let size = item.size.filter(|size| *size >= BROADCAST_OBJECT_BYTES_MIN);
        let length = length.filter(|length| self.lending.has_range(object, from, *length));
        let end = length.and_then(|length| from.checked_add(length));
        let (Some(size), Some(end), Some(_)) = (size, end, &item.making) else { return false };
        if end > size || self.fleeting.contains(&object) {
            return false;
        }
        if self.has_part(object, from, end) {
            self.serve_part(serve, object);
        } else if self.waits.count().is_none_or(|count| count >= CHUNK_WAITS_MAX) {
            self.actions.push_back(Action::Refuse { serve, why: Refusal::Busy });
        } else {
            let until = self.now.after(CHUNK_WAIT_MICROS);
            self.waits.insert(serve, object, (from, end), until);
            self.timers.insert((until, Timer::Waits));
        }
        true
    }

    /// Whether these bytes of an object on its way here are written.
    fn has_part(&self, object: ObjectId, from: u64, end: u64) -> bool {
        let making = self.items.get(&object).and_then(|item| item.making.as_ref());
        // A file that is being sealed is about to be in its place, and is served there.
        let is_open = |making: &&Making| making.tail.is_none() && !making.sealing;
        let Some(making) = making.filter(is_open) else { return false };
        let is_coming = making.active.iter().any(|fetch| {
            let Some(transfer) = self.transfers.get(fetch) else { return false };
            let until = transfer.length.map_or(u64::MAX, |length| transfer.offset + length);
            transfer.offset.saturating_add(transfer.written) < end && from < until
        });
        !is_coming && making.pending.within(from, end - from).is_empty()
    }

    fn serve_part(&mut self, serve: ServeId, object: ObjectId) {
        let Some(item) = self.items.get(&object) else { return };
        let (Some(making), Some(size)) = (&item.making, item.size) else { return };
        let (partial, tier) = (making.partial, making.tier);
        let action = if self.serves.len() >= self.serves_max {
            Action::Refuse { serve, why: Refusal::Busy }
        } else {
            self.serves.insert(serve, (object, false));
            Action::ServePart { serve, object, partial, tier, size }
        };
        self.actions.push_back(action);
    }

    /// More of an object is here: serves those that waited for it.
    pub(super) fn serve_waiting(&mut self, object: ObjectId) {
        for (serve, from, end) in self.waits.of(object) {
            if self.cache.holds(object) {
                self.waits.remove(serve);
                self.ask(serve, object, (from, Some(end - from)));
            } else if self.has_part(object, from, end) {
                self.waits.remove(serve);
                self.serve_part(serve, object);
            }
        }
    }

    /// What has waited for long enough is answered, so that it is seen that there
    /// is somebody.
    pub(super) fn waits_due(&mut self) {
        while let Some(&(at, serve)) = self.waits.due.first() {
            if at > self.now {
                break;
            }
            let Some(object) = self.waits.remove(serve) else { continue };
            let is_coming = self.items.get(&object).is_some_and(|item| item.making.is_some());
            let why = if is_coming { Refusal::Coming } else { Refusal::Gone };
            self.actions.push_back(Action::Refuse { serve, why });
        }
    }
}
