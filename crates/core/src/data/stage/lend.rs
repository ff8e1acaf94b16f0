//! Room that is lent: shares of striped objects, which others read here.
//!
//! A share is a file that stays in the making. Its chunks come from executors that have
//! the same stripes, or from the object's store, and are served as chunks of what is broadcast are: a request for one
//! that is still to come waits for it. It is pinned in the directory that is lent
//! until the dispatcher takes it back, no source gives it, or a task here needs the room:
//! then the executor reports that it does not have the share.

use super::Stage;
use super::fetch::add;
use crate::data::limits::{BROADCAST_CHUNK_BYTES_MAX, BROADCAST_OBJECT_BYTES_MIN};
use crate::data::object::{Object, ObjectId, Source, Sources};
use crate::data::stripes::{share_of, stripe_bytes_max, stripe_of, stripe_runs, within_unit};
use crate::limits::STRIPES_MAX;
use crate::runset::RunSet;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Which stripes of an object are to be here, of how many.
#[derive(Debug)]
struct Share {
    stripes: BTreeSet<u32>,
    of: u32,
}

/// The shares that are here, or on their way here.
#[derive(Debug, Default)]
pub(super) struct Lending {
    shares: BTreeMap<ObjectId, Share>,
    /// Those that are not, and of which nobody was told yet.
    lost: BTreeSet<ObjectId>,
}

impl Lending {
    /// Whether an object is a share.
    pub(super) fn has(&self, object: ObjectId) -> bool {
        self.shares.contains_key(&object)
    }

    /// The shares.
    pub(super) fn ids(&self) -> impl Iterator<Item = ObjectId> + '_ {
        self.shares.keys().copied()
    }

    /// Whether these bytes of an object are to be here: a share has them in units.
    pub(super) fn has_range(&self, object: ObjectId, offset: u64, length: u64) -> bool {
        let Some(share) = self.shares.get(&object) else {
            return length <= BROADCAST_CHUNK_BYTES_MAX;
        };
        let stripe = stripe_of(offset, share.of as usize);
        let is_here = u32::try_from(stripe).is_ok_and(|stripe| share.stripes.contains(&stripe));
        is_here && within_unit(offset, length) == length
    }

    /// The bytes of a share.
    pub(super) fn runs(&self, object: ObjectId, size: u64) -> RunSet {
        let mut runs = RunSet::default();
        let Some(share) = self.shares.get(&object) else { return runs };
        for stripe in &share.stripes {
            for (first, count) in stripe_runs(size, *stripe as usize, share.of as usize).iter() {
                runs.insert(first, count);
            }
        }
        runs
    }

    /// Whether there is anything to tell.
    pub(super) fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// Shares that are not here, since the last call.
    pub(super) fn take_lost(&mut self) -> Vec<ObjectId> {
        std::mem::take(&mut self.lost).into_iter().collect()
    }
}

impl Stage {
    /// [`super::Event::Lend`].
    pub(super) fn lend(
        &mut self,
        object: &Object,
        sources: &Sources,
        (stripes, of): (Vec<u32>, u32),
    ) {
        let share = Arc::new(share_of(object));
        let id = share.id;
        let size = share.size.filter(|size| *size >= BROADCAST_OBJECT_BYTES_MIN);
        let is_sound = of as usize <= STRIPES_MAX && stripes.iter().all(|stripe| *stripe < of);
        let (Some(size), true) = (size, is_sound) else {
            self.lending.lost.insert(id);
            return;
        };
        if self.lending.shares.get(&id).is_some_and(|known| known.of != of) {
            self.drop_share(id);
        }
        let known = self.lending.shares.entry(id);
        let known = known.or_insert_with(|| Share { stripes: BTreeSet::new(), of });
        let added: Vec<u32> =
            stripes.iter().copied().filter(|one| known.stripes.insert(*one)).collect();
        let count = known.stripes.len() as u64;
        self.lending.lost.remove(&id);
        let bytes = stripe_bytes_max(size, of as usize).saturating_mul(count).min(size);
        match self.cache.reserve_lent(id, bytes) {
            Ok(evicted) => self.evicted(evicted),
            Err(_) => return self.share_is_lost(id),
        }
        if !self.items.contains_key(&id) {
            self.cache.pin(id);
            self.items.insert(id, super::Item::new(share));
            // Those that tasks wait for here go before it.
            let rank = (true, self.next_ticket);
            self.next_ticket += 1;
            self.make(id, rank, (RunSet::default(), None));
        }
        let from = sources.peers.first().map_or(Source::Store, |peer| Source::Peer(*peer));
        self.copy_stripes(id, &stripes, of, from);
        self.hint(id, &Sources { store: sources.store, ..Sources::default() });
        if let Some(making) = self.items.get_mut(&id).and_then(|item| item.making.as_mut()) {
            for stripe in added {
                for (first, count) in stripe_runs(size, stripe as usize, of as usize).iter() {
                    making.pending.insert(first, count);
                }
            }
        }
        self.hunger(id);
    }

    /// [`super::Event::TakeBack`].
    pub(super) fn take_back(&mut self, object: ObjectId) {
        self.lending.lost.remove(&object);
        self.drop_share(object);
    }

    /// A share is not here, and cannot be: the dispatcher is told.
    pub(super) fn share_is_lost(&mut self, object: ObjectId) {
        self.drop_share(object);
        self.lending.lost.insert(object);
    }

    /// Gives up a share for tasks that need the room. Returns whether there was one.
    pub(super) fn lend_less(&mut self) -> bool {
        let Some(share) = self.lending.shares.keys().next().copied() else { return false };
        self.share_is_lost(share);
        true
    }

    /// A new session: nobody knows any more that anything is lent.
    pub(super) fn lend_anew(&mut self) {
        for share in self.lending.ids().collect::<Vec<_>>() {
            self.drop_share(share);
        }
        self.lending.lost.clear();
    }

    fn drop_share(&mut self, object: ObjectId) {
        if self.lending.shares.remove(&object).is_none() {
            return;
        }
        self.leave_broadcast(object);
        self.stop(object, true);
        if let Some(making) = self.items.remove(&object).and_then(|item| item.making) {
            add(&mut self.totals.peer.bytes, making.usage.peer.bytes);
            add(&mut self.totals.store.bytes, making.usage.store.bytes);
        }
        self.cache.abort(object);
        self.dirty = true;
    }

    /// Bytes of the directory that is lent, and of the shares in it.
    #[must_use]
    pub fn lent(&self) -> (u64, u64) {
        let lent = self.cache.lent().and_then(|tier| self.cache.tier(tier));
        let shares = self.lending.ids().filter_map(|share| self.cache.entry(share));
        (lent.map_or(0, |(capacity, _)| capacity), shares.map(|share| share.size).sum())
    }
}
