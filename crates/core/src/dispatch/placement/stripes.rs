//! Striped objects: which executors lend room to the stripes of which object, and
//! who reads them there (`data/stripes.rs` says what a stripe is).
//!
//! An object is striped when an executor is to read it whose cache is too small for
//! it. It stays so, for those that read it later, until the room is needed for
//! another object and no task reads it any more. Each stripe has as many lenders as the
//! tasks say that read the object. A lender that is gone, silent, or has no room is
//! replaced, and the next one copies its stripes from those that have them too, or from
//! the store if there are none. A stripe that nobody has room for ends the whole: the
//! object is fetched like any other.

use super::{ExecutorId, Object, ObjectId, Placement, Readership};
use crate::data::declared::CacheRoom;
use crate::data::limits::BROADCAST_OBJECT_BYTES_MIN;
use crate::data::stripes::{share_id, stripe_bytes, stripe_bytes_max};
use crate::dispatch::check::{CheckError, ensure};
use crate::limits::{BROADCAST_LOSSES_MAX, READER_STRIPES_MAX, STRIPED_OBJECTS_MAX, STRIPES_MAX};
use crate::task::TaskClass;
use std::collections::{BTreeMap, BTreeSet};

/// What an executor is to be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::dispatch) enum StripeNotice {
    /// It is to have these stripes of an object, of so many, and copies them from an
    /// executor that has them, or from the store.
    Lend(Object, Vec<u32>, u32, Option<ExecutorId>),
    /// It need not have a share any more.
    TakeBack(ObjectId),
    /// These have the stripes of an object, one after another; nobody, if it is not
    /// striped any more.
    Striped(ObjectId, Vec<ExecutorId>),
}

/// How many lenders tasks ask for that read an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::dispatch) struct Spread {
    /// Of each stripe.
    pub(in crate::dispatch) copies: usize,
    /// In all; by demand, if nothing is said.
    pub(in crate::dispatch) lenders: Option<u64>,
}

impl Default for Spread {
    fn default() -> Self {
        Spread { copies: 1, lenders: None }
    }
}

impl Spread {
    /// What tasks of a class ask for.
    pub(in crate::dispatch) fn of(class: Option<&TaskClass>) -> Spread {
        let copies = class.map_or(1, |class| class.replicas as usize).clamp(1, STRIPES_MAX);
        let lenders = class.map(|class| u64::from(class.lenders)).filter(|count| *count > 0);
        Spread { copies, lenders }
    }
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

/// Who has one stripe.
#[derive(Debug, Default)]
struct Stripe {
    /// Those that have had it for longest first. The first reads the store for what it
    /// does not have yet, the others copy from it.
    lenders: Vec<ExecutorId>,
    /// How many of them have it from the beginning: readers are spread over these.
    early: usize,
}

impl Stripe {
    fn remove(&mut self, id: ExecutorId) -> bool {
        let Some(at) = self.lenders.iter().position(|lender| *lender == id) else { return false };
        self.lenders.remove(at);
        self.early -= usize::from(at < self.early);
        true
    }
}

/// The sources that the lenders and readers of an object were told to use.
#[derive(Debug, Default)]
struct Told {
    /// From whom each lender copies each of its stripes.
    sources: BTreeMap<(ExecutorId, u32), Option<ExecutorId>>,
    /// Whom each reader reads from.
    readers: BTreeMap<ExecutorId, Vec<ExecutorId>>,
}

/// One striped object.
#[derive(Debug)]
struct Striped {
    object: Object,
    size: u64,
    stripes: Vec<Stripe>,
    /// How many lenders each stripe is to have.
    copies: usize,
    /// Those that had no room for it, or were silent.
    unfit: BTreeSet<ExecutorId>,
    told: Told,
    /// How often each has complained of others.
    complaints: BTreeMap<ExecutorId, u32>,
    /// When it was last wanted, in the order of such events.
    wanted: u64,
}

impl Striped {
    fn stripe_bytes(&self) -> u64 {
        stripe_bytes_max(self.size, self.stripes.len())
    }

    fn has_lender(&self, id: ExecutorId) -> bool {
        self.stripes.iter().any(|stripe| stripe.lenders.contains(&id))
    }

    fn is_lacking(&self) -> bool {
        self.stripes.iter().any(|stripe| stripe.lenders.len() < self.copies)
    }

    /// Whom an executor reads the stripes from. Neighbours begin with neighbours, so that
    /// each reader reads from all lenders.
    fn lenders_for(&self, reader: ExecutorId) -> Vec<ExecutorId> {
        let lender = |stripe: &Stripe| {
            let turn = reader.0 % stripe.early.max(1) as u64;
            stripe.lenders.get(turn as usize).copied()
        };
        self.stripes.iter().filter_map(lender).collect()
    }

    /// From whom each lender is to copy each of its stripes.
    fn sources(&self) -> BTreeMap<(ExecutorId, u32), Option<ExecutorId>> {
        let of = |(number, stripe): (u32, &Stripe)| {
            let first = stripe.lenders.first().copied();
            let source = move |id: &ExecutorId| (*id, first.filter(|first| first != id));
            let sources = stripe.lenders.iter().map(source);
            sources.map(|(id, source)| ((id, number), source)).collect::<Vec<_>>()
        };
        (0..).zip(&self.stripes).flat_map(of).collect()
    }
}

/// All striped objects, and who lends.
#[derive(Debug, Default)]
pub(super) struct Stripes {
    lenders: BTreeMap<ExecutorId, Lender>,
    of: BTreeMap<ObjectId, Striped>,
    next_wanted: u64,
    /// There is room that was not there when lenders were chosen last.
    has_more_room: bool,
    notices: Vec<(ExecutorId, StripeNotice)>,
}

impl Stripes {
    /// An executor lends so many bytes.
    pub(super) fn lends(&mut self, id: ExecutorId, bytes: u64) {
        if bytes > 0 {
            self.lenders.insert(id, Lender { bytes, used: 0, is_leaving: false });
            self.has_more_room = true;
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
        self.of.get(&object).is_some_and(|striped| striped.has_lender(id))
    }

    /// How many executors lend.
    pub(super) fn lender_count(&self) -> usize {
        self.lenders.len()
    }

    /// Bytes that stripes take of what an executor lends.
    pub(super) fn lent_used(&self, id: ExecutorId) -> u64 {
        self.lenders.get(&id).map_or(0, |lender| lender.used)
    }

    /// The lenders of an object, and the bytes of its stripes that each has or receives.
    fn lenders_of(&self, object: ObjectId) -> BTreeMap<ExecutorId, u64> {
        let mut lent = BTreeMap::new();
        let Some(striped) = self.of.get(&object) else { return lent };
        for (number, stripe) in striped.stripes.iter().enumerate() {
            let bytes = stripe_bytes(striped.size, number, striped.stripes.len());
            for id in &stripe.lenders {
                *lent.entry(*id).or_default() += bytes;
            }
        }
        lent
    }

    /// An executor is to read a striped object, each stripe of which is to have so many
    /// lenders.
    fn read(&mut self, object: ObjectId, to: ExecutorId, copies: usize) {
        let Some(striped) = self.of.get_mut(&object) else { return };
        striped.copies = striped.copies.max(copies);
        striped.wanted = self.next_wanted;
        self.next_wanted += 1;
        let lenders = striped.lenders_for(to);
        striped.told.readers.insert(to, lenders.clone());
        self.notices.push((to, StripeNotice::Striped(object, lenders)));
        self.copy(object);
    }

    /// Chooses `wanted` lenders for an object, or more if their room is too small, or
    /// fewer if only some have room, each with as many stripes as there are copies.
    /// `to` needs room for all of it beside its share.
    fn choose(
        &self,
        size: u64,
        (wanted, copies): (u64, usize),
        to: Option<ExecutorId>,
    ) -> Option<Vec<ExecutorId>> {
        let free = |(id, lender): (&ExecutorId, &Lender)| {
            let own = if Some(*id) == to { size } else { 0 };
            (lender.free().saturating_sub(own), *id)
        };
        let mut lenders: Vec<(u64, ExecutorId)> = self.lenders.iter().map(free).collect();
        lenders.sort_unstable_by_key(|(free, id)| (std::cmp::Reverse(*free), *id));
        let most = lenders.len().min(STRIPES_MAX);
        let least = usize::try_from(wanted).unwrap_or(most).max(copies).clamp(1, most.max(1));
        let fits = |count: &usize| {
            let last = lenders.get(count - 1).filter(|_| *count >= copies);
            let share = stripe_bytes_max(size, *count).saturating_mul(copies as u64);
            last.is_some_and(|(free, _)| *free >= share)
        };
        let count = (least..=most).chain((1..least).rev()).find(fits)?;
        Some(lenders[..count].iter().map(|(_, id)| *id).collect())
    }

    /// Stripes an object over lenders; `to` is to have all of it besides. Returns whether
    /// there is room.
    fn begin(
        &mut self,
        object: &Object,
        size: u64,
        (wanted, copies): (u64, usize),
        to: Option<ExecutorId>,
    ) -> bool {
        if self.of.len() >= STRIPED_OBJECTS_MAX {
            return false;
        }
        let Some(chosen) = self.choose(size, (wanted, copies), to) else { return false };
        let stripe = |first: usize| Stripe {
            lenders: chosen.iter().cycle().skip(first).take(copies).copied().collect(),
            early: copies,
        };
        let striped = Striped {
            object: object.clone(),
            size,
            stripes: (0..chosen.len()).map(stripe).collect(),
            copies,
            unfit: BTreeSet::new(),
            told: Told::default(),
            complaints: BTreeMap::new(),
            wanted: 0,
        };
        let bytes = striped.stripe_bytes();
        for id in striped.stripes.iter().flat_map(|stripe| &stripe.lenders) {
            if let Some(lender) = self.lenders.get_mut(id) {
                lender.used = lender.used.saturating_add(bytes);
            }
        }
        self.of.insert(object.id, striped);
        self.tell(object.id);
        true
    }

    /// An object is not striped any more.
    fn end(&mut self, object: ObjectId) {
        let Some(striped) = self.of.remove(&object) else { return };
        let bytes = striped.stripe_bytes();
        for id in striped.stripes.iter().flat_map(|stripe| &stripe.lenders) {
            if let Some(lender) = self.lenders.get_mut(id) {
                lender.used = lender.used.saturating_sub(bytes);
            }
        }
        self.has_more_room = true;
        let told = striped.told;
        let lenders: BTreeSet<ExecutorId> = told.sources.keys().map(|(id, _)| *id).collect();
        for id in lenders.into_iter().filter(|id| self.lenders.contains_key(id)) {
            self.notices.push((id, StripeNotice::TakeBack(share_id(object))));
        }
        for reader in told.readers.into_keys() {
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
        self.has_more_room = true;
        let bytes = striped.stripe_bytes();
        for stripe in &mut striped.stripes {
            if stripe.remove(gone)
                && let Some(lender) = self.lenders.get_mut(&gone)
            {
                lender.used = lender.used.saturating_sub(bytes);
            }
        }
        self.copy(object);
    }

    /// Gives each stripe of an object as many lenders as it is to have, as far as there
    /// is room.
    fn copy(&mut self, object: ObjectId) {
        let Some(striped) = self.of.get_mut(&object) else { return };
        let bytes = striped.stripe_bytes();
        let (unfit, copies) = (&striped.unfit, striped.copies);
        for stripe in &mut striped.stripes {
            while stripe.lenders.len() < copies {
                let fit = self.lenders.iter().filter(|(id, lender)| {
                    let is_other = !unfit.contains(id) && !stripe.lenders.contains(id);
                    is_other && lender.free() >= bytes
                });
                let next = fit.max_by_key(|(id, lender)| (lender.free(), **id));
                let Some(next) = next.map(|(id, _)| *id) else { break };
                stripe.lenders.push(next);
                if let Some(lender) = self.lenders.get_mut(&next) {
                    lender.used = lender.used.saturating_add(bytes);
                }
            }
        }
        match striped.stripes.iter().any(|stripe| stripe.lenders.is_empty()) {
            // What was lent so far is taken back with the rest.
            true => self.end(object),
            false => self.tell(object),
        }
    }

    /// What executors are to be told. Where there is more room than before, stripes that
    /// have too few lenders are given others first.
    fn take_notices(&mut self) -> Vec<(ExecutorId, StripeNotice)> {
        if std::mem::take(&mut self.has_more_room) {
            let lacking = self.of.iter().filter(|(_, striped)| striped.is_lacking());
            for object in lacking.map(|(object, _)| *object).collect::<Vec<_>>() {
                self.copy(object);
            }
        }
        std::mem::take(&mut self.notices)
    }

    /// Tells lenders and readers of an object what has changed for them.
    fn tell(&mut self, object: ObjectId) {
        let Some(striped) = self.of.get_mut(&object) else { return };
        let sources = striped.sources();
        let before = std::mem::replace(&mut striped.told.sources, sources);
        let mut lend: BTreeMap<(ExecutorId, Option<ExecutorId>), Vec<u32>> = BTreeMap::new();
        for ((id, stripe), source) in &striped.told.sources {
            if before.get(&(*id, *stripe)) != Some(source) {
                lend.entry((*id, *source)).or_default().push(*stripe);
            }
        }
        let of = striped.stripes.len() as u32;
        for ((id, source), stripes) in lend {
            let notice = StripeNotice::Lend(striped.object.clone(), stripes, of, source);
            self.notices.push((id, notice));
        }
        let lenders: BTreeSet<ExecutorId> = before.into_keys().map(|(id, _)| id).collect();
        for id in lenders {
            if self.lenders.contains_key(&id) && !striped.has_lender(id) {
                self.notices.push((id, StripeNotice::TakeBack(share_id(object))));
            }
        }
        let readers: Vec<ExecutorId> = striped.told.readers.keys().copied().collect();
        for reader in readers {
            let lenders = striped.lenders_for(reader);
            let before = striped.told.readers.insert(reader, lenders.clone());
            if before.as_ref() != Some(&lenders) {
                self.notices.push((reader, StripeNotice::Striped(object, lenders)));
            }
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
                striped.told.readers.remove(&id);
                striped.complaints.remove(&id);
            }
            if self.is_lender(object, id) {
                self.replace(object, id);
            }
            if let Some(striped) = self.of.get_mut(&object) {
                striped.unfit.remove(&id);
            }
        }
    }

    /// A reader, or a lender that copies, has heard nothing of a lender for too long.
    /// One that says so of one after another is believed no more: it is what they have
    /// in common.
    pub(super) fn is_silent(&mut self, child: ExecutorId, object: ObjectId, lender: ExecutorId) {
        let of_copies = share_id(object);
        let object = if self.has(object) { object } else { of_copies };
        let Some(striped) = self.of.get_mut(&object) else { return };
        let is_known = striped.told.readers.contains_key(&child) || striped.has_lender(child);
        if !is_known || !striped.has_lender(lender) {
            return;
        }
        let complaints = striped.complaints.entry(child).or_default();
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
            for stripe in &striped.stripes {
                let different: BTreeSet<&ExecutorId> = stripe.lenders.iter().collect();
                ensure!(different.len() == stripe.lenders.len(), "{object}: one lends twice");
                ensure!(!different.is_empty(), "{object}: nobody has a stripe");
                ensure!(different.len() <= striped.copies, "{object}: too many have a stripe");
                ensure!(stripe.early <= stripe.lenders.len(), "{object}: too many early ones");
                for lender in different {
                    *used.entry(*lender).or_default() += striped.stripe_bytes();
                }
            }
            let known = striped.told.readers.keys().chain(&striped.unfit);
            let known = known.chain(striped.complaints.keys());
            ensure!(known.copied().all(&is_there), "{object} is read by one that is gone");
            ensure!(striped.told.sources == striped.sources(), "{object}: lenders know else");
            for (reader, lenders) in &striped.told.readers {
                let is_told = *lenders == striped.lenders_for(*reader);
                ensure!(is_told, "{object}: {reader} knows other lenders");
            }
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

    /// Who has stripes of an object, and how many bytes.
    pub(in crate::dispatch) fn lenders_of(&self, object: ObjectId) -> BTreeMap<ExecutorId, u64> {
        self.stripes.lenders_of(object)
    }

    /// How many executors lend.
    pub(in crate::dispatch) fn lender_count(&self) -> usize {
        self.stripes.lender_count()
    }

    /// Bytes that stripes take of what an executor lends.
    pub(in crate::dispatch) fn lent_used(&self, id: ExecutorId) -> u64 {
        self.stripes.lent_used(id)
    }

    /// An executor is to read an object: if that is too large for its cache, it is
    /// striped, as far as lenders have room, and the executor can read it all the same.
    pub(in crate::dispatch) fn stripe(
        &mut self,
        to: ExecutorId,
        object: &Object,
        room: CacheRoom,
        spread: Spread,
    ) {
        let Some(size) = object.size.filter(|_| !object.is_unversioned()) else { return };
        let fits = size <= room.lent_bytes;
        let is_to_be = size > room.object_bytes
            && (fits || room.mounts)
            && size >= BROADCAST_OBJECT_BYTES_MIN
            && object.is_stored()
            && !self.broadcasts.has(object.id);
        if is_to_be && !self.stripes.has(object.id) {
            let readers = self.readership.of(object.id).max(1);
            let wanted = spread.lenders.unwrap_or(readers.saturating_mul(READER_STRIPES_MAX));
            let mut copies = spread.copies;
            while !self.stripes.begin(object, size, (wanted, copies), fits.then_some(to)) {
                if self.stripes.end_unread(&self.readership) {
                    continue;
                }
                if copies <= 1 {
                    return;
                }
                // The others are made when there is room.
                copies -= 1;
            }
        }
        if self.stripes.has(object.id) && !self.is_held_by(to, object.id) {
            self.stripes.read(object.id, to, spread.copies);
        }
    }

    /// What executors are to be told of stripes.
    pub(in crate::dispatch) fn next_stripe_notices(&mut self) -> Vec<(ExecutorId, StripeNotice)> {
        self.stripes.take_notices()
    }
}

#[cfg(test)]
mod tests;
