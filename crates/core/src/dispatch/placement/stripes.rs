//! Striped objects: which executors lend room to the stripes of which object, and
//! who reads them there (`data/stripes.rs` says what a stripe is).
//!
//! An object is striped when an executor is to read it whose cache is too small for
//! it. It stays so, for those that read it later, until the room is needed for
//! another object and no task reads it any more. A lender that is gone, silent, or
//! has no room gives its stripes to another; if there is none, the object is not
//! striped any more, and is fetched like any other.

use super::{ExecutorId, Object, ObjectId, Placement, Readership};
use crate::data::declared::CacheRoom;
use crate::data::limits::BROADCAST_OBJECT_BYTES_MIN;
use crate::data::stripes::{share_id, stripe_bytes_max};
use crate::dispatch::check::{CheckError, ensure};
use crate::limits::{BROADCAST_LOSSES_MAX, READER_STRIPES_MAX, STRIPED_OBJECTS_MAX, STRIPES_MAX};
use std::collections::{BTreeMap, BTreeSet};

/// What an executor is to be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::dispatch) enum StripeNotice {
    /// It is to have these stripes of an object, of so many.
    Lend(Object, Vec<u32>, u32),
    /// It need not have a share any more.
    TakeBack(ObjectId),
    /// These have the stripes of an object, one after another; nobody, if it is not
    /// striped any more.
    Striped(ObjectId, Vec<ExecutorId>),
}

/// The room of one lender.
#[derive(Debug, Default)]
struct Lender {
    bytes: u64,
    used: u64,
    /// It is given no more.
    is_leaving: bool,
}

impl Lender {
    fn free(&self) -> u64 {
        if self.is_leaving { 0 } else { self.bytes.saturating_sub(self.used) }
    }
}

/// One striped object.
#[derive(Debug)]
struct Striped {
    object: Object,
    size: u64,
    /// Who has each stripe.
    lenders: Vec<ExecutorId>,
    /// Those that had no room for it, or were silent.
    unfit: BTreeSet<ExecutorId>,
    /// Who was told of them, and how often each has complained since.
    readers: BTreeMap<ExecutorId, u32>,
    /// When it was last wanted, in the order of such events.
    wanted: u64,
}

impl Striped {
    fn stripe_bytes(&self) -> u64 {
        stripe_bytes_max(self.size, self.lenders.len())
    }

    fn stripes_of(&self, id: ExecutorId) -> Vec<u32> {
        let all = (0u32..).zip(&self.lenders);
        all.filter(|(_, lender)| **lender == id).map(|(stripe, _)| stripe).collect()
    }
}

/// All striped objects, and who lends.
#[derive(Debug, Default)]
pub(super) struct Stripes {
    lenders: BTreeMap<ExecutorId, Lender>,
    of: BTreeMap<ObjectId, Striped>,
    next_wanted: u64,
    notices: Vec<(ExecutorId, StripeNotice)>,
}

impl Stripes {
    /// An executor lends so many bytes.
    pub(super) fn lends(&mut self, id: ExecutorId, bytes: u64) {
        if bytes > 0 {
            self.lenders.insert(id, Lender { bytes, used: 0, is_leaving: false });
        }
    }

    /// An executor leaves: it is given no more stripes.
    pub(super) fn leaves(&mut self, id: ExecutorId) {
        if let Some(lender) = self.lenders.get_mut(&id) {
            lender.is_leaving = true;
        }
    }

    /// Whether an object is striped.
    pub(super) fn has(&self, object: ObjectId) -> bool {
        self.of.contains_key(&object)
    }

    /// Whether an executor has a share of an object.
    fn is_lender(&self, object: ObjectId, id: ExecutorId) -> bool {
        self.of.get(&object).is_some_and(|striped| striped.lenders.contains(&id))
    }

    /// An executor is to read a striped object.
    fn read(&mut self, object: ObjectId, to: ExecutorId) {
        let Some(striped) = self.of.get_mut(&object) else { return };
        striped.readers.entry(to).or_default();
        striped.wanted = self.next_wanted;
        self.next_wanted += 1;
        let notice = StripeNotice::Striped(object, striped.lenders.clone());
        self.notices.push((to, notice));
    }

    /// Chooses `wanted` lenders for an object, or more if their room is too small, or
    /// fewer if only some have room.
    /// `to` needs room for all of it beside its share.
    fn choose(&self, size: u64, wanted: u64, to: Option<ExecutorId>) -> Option<Vec<ExecutorId>> {
        let free = |(id, lender): (&ExecutorId, &Lender)| {
            let own = if Some(*id) == to { size } else { 0 };
            (lender.free().saturating_sub(own), *id)
        };
        let mut lenders: Vec<(u64, ExecutorId)> = self.lenders.iter().map(free).collect();
        lenders.sort_unstable_by_key(|(free, id)| (std::cmp::Reverse(*free), *id));
        let most = lenders.len().min(STRIPES_MAX);
        let least = usize::try_from(wanted).unwrap_or(most).clamp(1, most.max(1));
        let fits = |count: &usize| {
            let last = lenders.get(count - 1);
            last.is_some_and(|(free, _)| *free >= stripe_bytes_max(size, *count))
        };
        let count = (least..=most).chain((1..least).rev()).find(fits)?;
        Some(lenders[..count].iter().map(|(_, id)| *id).collect())
    }

    /// Stripes an object over lenders; `to` is to have all of it besides. Returns whether
    /// there is room.
    fn begin(&mut self, object: &Object, size: u64, wanted: u64, to: Option<ExecutorId>) -> bool {
        if self.of.len() >= STRIPED_OBJECTS_MAX {
            return false;
        }
        let Some(lenders) = self.choose(size, wanted, to) else { return false };
        let striped = Striped {
            object: object.clone(),
            size,
            lenders,
            unfit: BTreeSet::new(),
            readers: BTreeMap::new(),
            wanted: 0,
        };
        let (bytes, of) = (striped.stripe_bytes(), striped.lenders.len() as u32);
        for (stripe, id) in (0u32..).zip(&striped.lenders) {
            if let Some(lender) = self.lenders.get_mut(id) {
                lender.used = lender.used.saturating_add(bytes);
            }
            let notice = StripeNotice::Lend(object.clone(), vec![stripe], of);
            self.notices.push((*id, notice));
        }
        self.of.insert(object.id, striped);
        true
    }

    /// An object is not striped any more.
    fn end(&mut self, object: ObjectId) {
        let Some(striped) = self.of.remove(&object) else { return };
        let bytes = striped.stripe_bytes();
        for id in &striped.lenders {
            if let Some(lender) = self.lenders.get_mut(id) {
                lender.used = lender.used.saturating_sub(bytes);
            }
        }
        let lenders: BTreeSet<ExecutorId> = striped.lenders.iter().copied().collect();
        for id in lenders.into_iter().filter(|id| self.lenders.contains_key(id)) {
            self.notices.push((id, StripeNotice::TakeBack(share_id(object))));
        }
        for reader in striped.readers.into_keys() {
            self.notices.push((reader, StripeNotice::Striped(object, Vec::new())));
        }
    }

    /// Ends what was wanted longest ago of what no task reads. Returns whether there
    /// was anything.
    fn end_unread(&mut self, readership: &Readership) -> bool {
        let unread = self.of.iter().filter(|(object, _)| readership.of(**object) == 0);
        let oldest = unread.min_by_key(|(_, striped)| striped.wanted).map(|(object, _)| *object);
        oldest.inspect(|object| self.end(*object)).is_some()
    }

    /// A lender does not have its share of an object, or does not give it: others
    /// have its stripes from now on.
    fn replace(&mut self, object: ObjectId, gone: ExecutorId) {
        let Some(striped) = self.of.get_mut(&object) else { return };
        striped.unfit.insert(gone);
        let bytes = striped.stripe_bytes();
        let mut added: BTreeMap<ExecutorId, Vec<u32>> = BTreeMap::new();
        let stripes = striped.stripes_of(gone);
        for stripe in &stripes {
            let fit = self
                .lenders
                .iter()
                .filter(|(id, lender)| lender.free() >= bytes && !striped.unfit.contains(id));
            let Some((next, _)) = fit.max_by_key(|(id, lender)| (lender.free(), **id)) else {
                // What was lent so far is taken back with the rest.
                return self.end(object);
            };
            let next = *next;
            striped.lenders[*stripe as usize] = next;
            added.entry(next).or_default().push(*stripe);
            if let Some(lender) = self.lenders.get_mut(&next) {
                lender.used = lender.used.saturating_add(bytes);
            }
            if let Some(lender) = self.lenders.get_mut(&gone) {
                lender.used = lender.used.saturating_sub(bytes);
            }
        }
        if stripes.is_empty() {
            return;
        }
        let of = striped.lenders.len() as u32;
        let lend = |(id, stripes)| (id, StripeNotice::Lend(striped.object.clone(), stripes, of));
        self.notices.extend(added.into_iter().map(lend));
        if self.lenders.contains_key(&gone) {
            self.notices.push((gone, StripeNotice::TakeBack(share_id(object))));
        }
        for reader in striped.readers.keys() {
            let notice = StripeNotice::Striped(object, striped.lenders.clone());
            self.notices.push((*reader, notice));
        }
    }

    /// An executor does not hold a share.
    pub(super) fn went(&mut self, id: ExecutorId, share: ObjectId) {
        let object = share_id(share);
        if self.is_lender(object, id) {
            self.replace(object, id);
        }
    }

    /// An executor is gone.
    pub(super) fn left(&mut self, id: ExecutorId) {
        self.lenders.remove(&id);
        self.notices.retain(|(to, _)| *to != id);
        let objects: Vec<ObjectId> = self.of.keys().copied().collect();
        for object in objects {
            if let Some(striped) = self.of.get_mut(&object) {
                striped.readers.remove(&id);
            }
            if self.is_lender(object, id) {
                self.replace(object, id);
            }
            if let Some(striped) = self.of.get_mut(&object) {
                striped.unfit.remove(&id);
            }
        }
    }

    /// A reader has heard nothing of a lender for too long. One that says so of one
    /// after another is believed no more: it is what they have in common.
    pub(super) fn is_silent(&mut self, reader: ExecutorId, object: ObjectId, lender: ExecutorId) {
        if !self.is_lender(object, lender) {
            return;
        }
        let Some(striped) = self.of.get_mut(&object) else { return };
        let Some(complaints) = striped.readers.get_mut(&reader) else { return };
        *complaints = complaints.saturating_add(1);
        if *complaints <= BROADCAST_LOSSES_MAX {
            self.replace(object, lender);
        }
    }

    /// For the state checker: each stripe is lent by somebody who is there, and all
    /// that each lends is counted.
    pub(super) fn check(&self, is_there: impl Fn(ExecutorId) -> bool) -> Result<(), CheckError> {
        let mut used: BTreeMap<ExecutorId, u64> = BTreeMap::new();
        for (object, striped) in &self.of {
            ensure!(striped.object.id == *object, "{object} is striped under another id");
            for lender in &striped.lenders {
                *used.entry(*lender).or_default() += striped.stripe_bytes();
            }
            let known = striped.readers.keys().chain(&striped.unfit);
            ensure!(known.copied().all(&is_there), "{object} is read by one that is gone");
        }
        ensure!(self.notices.iter().all(|(to, _)| is_there(*to)), "one that is gone is told");
        for id in used.keys() {
            ensure!(self.lenders.contains_key(id), "{id} lends, and is gone");
        }
        for (id, lender) in &self.lenders {
            let expected = used.get(id).copied().unwrap_or(0);
            ensure!(is_there(*id), "{id} is gone, and lends");
            ensure!(lender.used == expected, "{id} lends {} bytes, not {expected}", lender.used);
            ensure!(lender.used <= lender.bytes, "{id} lends more than it said");
        }
        Ok(())
    }
}

impl Placement {
    /// An executor lends so many bytes.
    pub(in crate::dispatch) fn lends(&mut self, id: ExecutorId, bytes: u64) {
        self.stripes.lends(id, bytes);
    }

    /// An executor leaves: it lends nothing more.
    pub(in crate::dispatch) fn lends_no_more(&mut self, id: ExecutorId) {
        self.stripes.leaves(id);
    }

    /// An executor is to read an object: if that is too large for its cache, it is
    /// striped, as far as lenders have room, and the executor can read it all the same.
    pub(in crate::dispatch) fn stripe(&mut self, to: ExecutorId, object: &Object, room: CacheRoom) {
        let Some(size) = object.size.filter(|_| !object.is_unversioned()) else { return };
        let fits = size <= room.lent_bytes;
        let is_to_be = size > room.object_bytes
            && (fits || room.mounts)
            && size >= BROADCAST_OBJECT_BYTES_MIN
            && object.is_stored()
            && !self.broadcasts.has(object.id);
        if is_to_be && !self.stripes.has(object.id) {
            let wanted = self.readership.of(object.id).max(1).saturating_mul(READER_STRIPES_MAX);
            while !self.stripes.begin(object, size, wanted, fits.then_some(to)) {
                if !self.stripes.end_unread(&self.readership) {
                    return;
                }
            }
        }
        if self.stripes.has(object.id) && !self.is_held_by(to, object.id) {
            self.stripes.read(object.id, to);
        }
    }

    /// What executors are to be told of stripes.
    pub(in crate::dispatch) fn next_stripe_notices(&mut self) -> Vec<(ExecutorId, StripeNotice)> {
        std::mem::take(&mut self.stripes.notices)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::limits::STRIPE_BYTES as UNIT;

    const READER: ExecutorId = ExecutorId(100);

    fn object(id: u128, units: u64) -> Object {
        let size = Some(units * UNIT);
        Object { id: ObjectId(id), url: "/data".into(), version: "1".into(), size }
    }

    /// So many lenders, numbered from 1 on, with room for so many units each.
    fn lenders(count: u64, units: u64) -> Stripes {
        let mut stripes = Stripes::default();
        (1..=count).for_each(|id| stripes.lends(ExecutorId(id), units * UNIT));
        stripes
    }

    fn begin(stripes: &mut Stripes, object: &Object, wanted: u64) -> bool {
        let began = stripes.begin(object, object.size.unwrap(), wanted, Some(READER));
        if began {
            stripes.read(object.id, READER);
        }
        stripes.check(|_| true).unwrap();
        began
    }

    /// Who lends how many stripes, takes back, and is read from.
    type Said = (Vec<(u64, usize)>, Vec<u64>, Vec<Vec<u64>>);

    /// What was said since.
    fn said(stripes: &mut Stripes) -> Said {
        let (mut lent, mut taken, mut striped) = (Vec::new(), Vec::new(), Vec::new());
        for (to, notice) in std::mem::take(&mut stripes.notices) {
            match notice {
                StripeNotice::Lend(_, of_it, _) => lent.push((to.0, of_it.len())),
                StripeNotice::TakeBack(_) => taken.push(to.0),
                StripeNotice::Striped(_, lenders) => {
                    assert_eq!(to, READER);
                    striped.push(lenders.into_iter().map(|id| id.0).collect());
                }
            }
        }
        (lent, taken, striped)
    }

    #[test]
    fn as_many_lend_as_are_wanted_or_as_have_room() {
        let mut stripes = lenders(10, 8);
        assert!(begin(&mut stripes, &object(1, 16), 4));
        let (lent, _, striped) = said(&mut stripes);
        assert_eq!(lent, [(1, 1), (2, 1), (3, 1), (4, 1)]);
        assert_eq!(striped, [[1, 2, 3, 4]]);
        // The six others have room for eight units each, these four for four.
        assert!(begin(&mut stripes, &object(2, 48), 4));
        let (lent, ..) = said(&mut stripes);
        assert_eq!(lent.len(), 6);
        assert!(!begin(&mut stripes, &object(3, 33), 4), "there is room for 16 units");
        assert!(begin(&mut stripes, &object(4, 16), 4));
    }

    #[test]
    fn a_lender_that_is_gone_or_full_gives_its_stripes_to_another() {
        let mut stripes = lenders(4, 10);
        let object = object(1, 20);
        assert!(begin(&mut stripes, &object, 3));
        said(&mut stripes);
        stripes.left(ExecutorId(2));
        stripes.check(|id| id.0 != 2).unwrap();
        let (lent, taken, striped) = said(&mut stripes);
        assert_eq!((lent, taken, striped), (vec![(4, 1)], Vec::new(), vec![vec![1, 4, 3]]));
        // Nobody but those has room: it ends for all.
        stripes.went(ExecutorId(1), share_id(object.id));
        stripes.check(|id| id.0 != 2).unwrap();
        let (lent, taken, striped) = said(&mut stripes);
        assert_eq!((lent, taken, striped), (Vec::new(), vec![1, 3, 4], vec![Vec::new()]));
        assert!(!stripes.has(object.id));
    }

    #[test]
    fn a_reader_that_complains_of_all_is_believed_no_more() {
        let mut stripes = lenders(9, 10);
        let object = object(1, 8);
        assert!(begin(&mut stripes, &object, 4));
        for _ in 0..BROADCAST_LOSSES_MAX {
            said(&mut stripes);
            let first = stripes.of[&object.id].lenders[0];
            stripes.is_silent(READER, object.id, first);
            assert_eq!(said(&mut stripes).0.len(), 1);
        }
        let first = stripes.of[&object.id].lenders[0];
        stripes.is_silent(READER, object.id, first);
        stripes.is_silent(ExecutorId(55), object.id, first);
        assert_eq!(said(&mut stripes).0, []);
        stripes.check(|_| true).unwrap();
    }

    #[test]
    fn what_no_task_reads_gives_way() {
        let mut stripes = lenders(2, 8);
        assert!(begin(&mut stripes, &object(1, 16), 2));
        assert!(!begin(&mut stripes, &object(2, 16), 2));
        assert!(stripes.end_unread(&Readership::default()));
        assert!(begin(&mut stripes, &object(2, 16), 2));
        assert!(!stripes.has(ObjectId(1)));
    }

    #[test]
    fn a_lender_that_leaves_is_given_no_more() {
        let mut stripes = lenders(2, 8);
        stripes.leaves(ExecutorId(1));
        assert!(begin(&mut stripes, &object(1, 8), 2));
        assert_eq!(said(&mut stripes).0, [(2, 1)]);
    }
}
