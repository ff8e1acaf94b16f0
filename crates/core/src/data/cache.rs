//! One node's cache as a state machine: what is where, what is in use, what
//! goes when room is needed.
//!
//! It decides; the shell makes and deletes the files. Room is taken before a
//! fetch begins and is given back when it is aborted, so the capacity is never
//! exceeded as long as what is returned as [`Evicted`] is deleted before
//! anything is written into the room it left.

mod check;
mod event;
mod lent;
mod policy;

pub use event::{CacheOptions, Entry, Evicted, Recorded, RefusedError, TierId};
pub use policy::Eviction;

use crate::data::limits::TIERS_MAX;
use crate::data::object::ObjectId;
use policy::EvictionOrder;
use std::collections::BTreeMap;

/// What an object's place in the order of eviction may depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Facts {
    /// Where it stands in the order in which objects came.
    came: u64,
    /// Where it stands in the order of last uses.
    used: u64,
    /// How often it was used.
    uses: u64,
    /// How many waiting tasks read it.
    demand: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Slot {
    tier: TierId,
    size: u64,
    /// Bytes for its unpacked form: both go together.
    unpacked: u64,
    held: bool,
    pins: u64,
    only_here: bool,
    facts: Facts,
}

/// What bytes are counted as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Arriving,
    Pinned,
    OnlyHere,
    Evictable,
}

impl Slot {
    /// All that it takes of its directory.
    fn bytes(&self) -> u64 {
        self.size.saturating_add(self.unpacked)
    }

    fn class(&self) -> Class {
        match self {
            Slot { held: false, .. } => Class::Arriving,
            Slot { pins: 1.., .. } => Class::Pinned,
            Slot { only_here: true, .. } => Class::OnlyHere,
            _ => Class::Evictable,
        }
    }
}

#[derive(Debug)]
struct Tier {
    capacity: u64,
    /// What it takes for now; never more than the capacity.
    limit: u64,
    /// Bytes by class.
    bytes: [u64; 4],
    /// What may be evicted.
    order: Box<dyn EvictionOrder>,
}

impl Tier {
    fn occupied(&self) -> u64 {
        self.bytes.iter().sum()
    }

    fn room(&self) -> u64 {
        self.limit.saturating_sub(self.occupied())
    }

    fn evictable(&self) -> u64 {
        self.bytes[Class::Evictable as usize]
    }
}

/// One node's cache. Each operation costs O(log objects) per object it
/// touches or evicts, and directory.
#[derive(Debug)]
pub struct Cache {
    tiers: Vec<Tier>,
    slots: BTreeMap<ObjectId, Slot>,
    /// The next number in the orders of coming and using.
    next: u64,
    /// How many objects are nowhere else.
    only_here: usize,
    /// The last directory is lent: it takes shares of striped objects, and what no
    /// other directory is large enough for.
    is_last_lent: bool,
}

impl Cache {
    /// An empty cache.
    #[must_use]
    pub fn new(options: &CacheOptions) -> Cache {
        let tiers = options.tiers_bytes.iter().take(TIERS_MAX).zip(0u64..);
        let tiers = tiers.map(|(&capacity, at)| Tier {
            capacity,
            limit: capacity,
            bytes: [0; 4],
            order: policy::order(options.eviction, options.seed.wrapping_add(at)),
        });
        let tiers = tiers.collect();
        Cache { tiers, slots: BTreeMap::new(), next: 0, only_here: 0, is_last_lent: false }
    }

    /// The cache that was there before a restart, from what was written down
    /// and is still there: nothing is pinned. What has no room any more, or is
    /// told twice, is returned: its file is to be deleted.
    #[must_use]
    pub fn restore(options: &CacheOptions, recorded: &[Recorded]) -> (Cache, Vec<Evicted>) {
        let mut cache = Cache::new(options);
        // Only the order counts; the numbers may be any.
        let mut numbers: Vec<u64> =
            recorded.iter().flat_map(|entry| [entry.came, entry.used]).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let place = |number: u64| numbers.partition_point(|other| *other < number) as u64;
        cache.next = numbers.len() as u64;
        let mut order: Vec<&Recorded> = recorded.iter().collect();
        // What is nowhere else is the last to be left out, before that what
        // was used last.
        order.sort_by_key(|entry| (!entry.only_here, std::cmp::Reverse(entry.used), entry.object));
        let mut dropped = Vec::new();
        for entry in order {
            let Recorded { object, tier, size, unpacked, uses, only_here, .. } = *entry;
            let bytes = size.saturating_add(unpacked);
            let room = cache.tiers.get(usize::from(tier.0)).map(Tier::room);
            let twice = cache.slots.get(&object).map(|slot| slot.tier);
            if twice == Some(tier) {
                continue;
            }
            if twice.is_some() || room.is_none_or(|room| bytes > room) {
                dropped.push(Evicted { object, tier, size: bytes });
                continue;
            }
            let (came, used) = (place(entry.came), place(entry.used));
            let facts = Facts { came, used, uses, demand: 0 };
            let slot = Slot { tier, size, unpacked, held: true, pins: 0, only_here, facts };
            cache.put(object, slot);
        }
        (cache, dropped)
    }

    /// Whether an empty cache of this capacity would take objects of these
    /// sizes together.
    ///
    /// # Errors
    /// [`RefusedError::TooLarge`].
    pub fn would_fit(&self, sizes: &[u64]) -> Result<(), RefusedError> {
        let mut sorted = sizes.to_vec();
        sorted.sort_unstable_by(|one, other| other.cmp(one));
        let mut free: Vec<u64> = self.tiers.iter().map(|tier| tier.capacity).collect();
        for size in &sorted {
            let mut takers = free.iter_mut().zip(0u8..);
            let taker = takers.find(|(free, at)| **free >= *size && self.takes(TierId(*at), *size));
            let Some((tier, _)) = taker else {
                return Err(RefusedError::TooLarge {
                    needed: sizes.iter().fold(0, |sum, size| sum.saturating_add(*size)),
                    objects: sizes.len(),
                    largest: sorted[0],
                    tiers_bytes: self.tiers.iter().map(|tier| tier.capacity).collect(),
                });
            };
            *tier -= size;
        }
        Ok(())
    }

    /// Takes room for an object that is not here, of a size in bytes: in the
    /// fastest directory that has room, else in the one where the worth of
    /// what must be evicted for it is least. [`Cache::entry`] tells which it
    /// is. Returns what is evicted.
    ///
    /// # Errors
    /// [`RefusedError`]; then nothing has changed.
    pub fn reserve(&mut self, object: ObjectId, size: u64) -> Result<Vec<Evicted>, RefusedError> {
        self.reserve_all(&[(object, size)])
    }

    /// Takes room for all these objects or for none, as with
    /// [`Cache::reserve`]; those that are here already are left as they are.
    /// What must stay for them is to be pinned before.
    ///
    /// # Errors
    /// [`RefusedError`]; then nothing has changed.
    pub fn reserve_all(
        &mut self,
        wanted: &[(ObjectId, u64)],
    ) -> Result<Vec<Evicted>, RefusedError> {
        self.reserve_with_unpacked(wanted, &[])
    }

    /// As [`Cache::reserve_all`], and takes room for the unpacked forms of
    /// objects that are held and pinned: so many bytes for each that has none,
    /// in its own directory.
    ///
    /// # Errors
    /// [`RefusedError`]; then nothing has changed.
    pub fn reserve_with_unpacked(
        &mut self,
        wanted: &[(ObjectId, u64)],
        unpacked: &[(ObjectId, u64)],
    ) -> Result<Vec<Evicted>, RefusedError> {
        let mut missing: Vec<(u64, ObjectId)> = wanted
            .iter()
            .filter(|(object, _)| !self.slots.contains_key(object))
            .map(|(object, size)| (*size, *object))
            .collect();
        missing.sort_unstable_by(|one, other| other.cmp(one));
        missing.dedup_by_key(|(_, object)| *object);
        let sizes: Vec<u64> = missing.iter().map(|(size, _)| *size).collect();
        self.would_fit(&sizes)?;
        let mut evicted = Vec::new();
        let mut placed = Vec::new();
        let mut grown = Vec::new();
        let came = self.next;
        let mut refused = None;
        for &(object, bytes) in unpacked {
            match self.make_room_for_unpacked(object, bytes, &mut evicted) {
                Ok(true) => grown.push(object),
                Ok(false) => {}
                Err(error) => {
                    refused = Some(error);
                    break;
                }
            }
        }
        for &(size, object) in &missing {
            if refused.is_some() {
                break;
            }
            let Some(tier) = self.place(size, &mut evicted) else {
                refused = Some(self.occupied(size));
                break;
            };
            let facts = Facts { came: self.next, used: self.next, ..Facts::default() };
            self.next += 1;
            let slot =
                Slot { tier, size, unpacked: 0, held: false, pins: 0, only_here: false, facts };
            self.put(object, slot);
            placed.push(object);
        }
        let Some(error) = refused else { return Ok(gone(&evicted)) };
        for object in placed {
            self.take(object);
        }
        for object in grown {
            self.change(object, |slot| slot.unpacked = 0);
        }
        for (object, slot) in evicted {
            self.put(object, slot);
        }
        self.next = came;
        Err(error)
    }

    /// Takes room for the unpacked form of an object. Returns whether it had
    /// none before.
    fn make_room_for_unpacked(
        &mut self,
        object: ObjectId,
        bytes: u64,
        evicted: &mut Vec<(ObjectId, Slot)>,
    ) -> Result<bool, RefusedError> {
        // One that is not pinned could be evicted for its own unpacked form.
        let slot = self.slots.get(&object).copied().filter(|slot| slot.held && slot.pins > 0);
        let Some(slot) = slot else { return Err(RefusedError::Unknown(object)) };
        if slot.unpacked > 0 {
            return Ok(false);
        }
        self.would_fit(&[slot.size.saturating_add(bytes)])?;
        let Some(victims) = self.victims(slot.tier, bytes) else {
            return Err(self.occupied(bytes));
        };
        for victim in victims {
            evicted.extend(self.slots.remove(&victim).map(|slot| (victim, slot)));
        }
        Ok(self.change(object, |slot| slot.unpacked = bytes))
    }

    /// The unpacked form of an object takes so many bytes, of those reserved
    /// for it: 0 if it is not there. What it does not take is given back.
    pub fn unpacked(&mut self, object: ObjectId, bytes: u64) {
        self.change(object, |slot| slot.unpacked = slot.unpacked.min(bytes));
    }

    /// Makes the room of an object that arrives at least this large, in the
    /// same directory. Returns what is evicted.
    ///
    /// # Errors
    /// [`RefusedError`]; then nothing has changed, and the object is to be
    /// aborted: there may be room elsewhere.
    pub fn grow(&mut self, object: ObjectId, size: u64) -> Result<Vec<Evicted>, RefusedError> {
        let Some(slot) = self.slots.get(&object).copied().filter(|slot| !slot.held) else {
            return Err(RefusedError::Unknown(object));
        };
        let mut evicted = Vec::new();
        if size > slot.size {
            let more = size - slot.size;
            self.would_fit(&[size])?;
            let Some(victims) = self.victims(slot.tier, more) else {
                return Err(self.occupied(more));
            };
            for victim in victims {
                evicted.extend(self.slots.remove(&victim).map(|slot| (victim, slot)));
            }
            self.change(object, |slot| slot.size = size);
        }
        Ok(gone(&evicted))
    }

    /// An object has arrived and is this large; what it does not need of its
    /// room is given back. Unless it is pinned or `only_here` it may be
    /// evicted from now on. Returns what is evicted, if it needs more.
    ///
    /// # Errors
    /// [`RefusedError`]; then nothing has changed.
    pub fn commit(
        &mut self,
        object: ObjectId,
        size: u64,
        only_here: bool,
    ) -> Result<Vec<Evicted>, RefusedError> {
        let evicted = self.grow(object, size)?;
        let came = self.next;
        self.next += 1;
        self.change(object, |slot| {
            slot.size = size;
            slot.held = true;
            slot.only_here = only_here;
            slot.facts.came = came;
            slot.facts.used = came;
        });
        Ok(evicted)
    }

    /// An object does not arrive: its room, and its pins, are given back.
    /// Returns whether there was room for it.
    pub fn abort(&mut self, object: ObjectId) -> bool {
        let arriving = self.slots.get(&object).is_some_and(|slot| !slot.held);
        arriving && self.take(object).is_some()
    }

    /// Holds an object, arriving or here, in its place until as many
    /// [`Cache::unpin`]. Returns whether it is there.
    pub fn pin(&mut self, object: ObjectId) -> bool {
        self.change(object, |slot| slot.pins = slot.pins.saturating_add(1))
    }

    /// Takes back one [`Cache::pin`]. Returns whether there was one.
    pub fn unpin(&mut self, object: ObjectId) -> bool {
        let pinned = self.slots.get(&object).is_some_and(|slot| slot.pins > 0);
        pinned && self.change(object, |slot| slot.pins -= 1)
    }

    /// An object is used. Returns whether it is there.
    pub fn touch(&mut self, object: ObjectId) -> bool {
        let used = self.next;
        self.next += 1;
        self.change(object, |slot| {
            slot.facts.used = used;
            slot.facts.uses = slot.facts.uses.saturating_add(1);
        })
    }

    /// How many waiting tasks read an object. Returns whether it is there;
    /// one that is not comes with 0.
    pub fn demand(&mut self, object: ObjectId, tasks: u64) -> bool {
        self.change(object, |slot| slot.facts.demand = tasks)
    }

    /// Whether a held object is nowhere else, and so is not evicted. Returns
    /// whether it is there.
    pub fn keep(&mut self, object: ObjectId, only_here: bool) -> bool {
        let held = self.slots.get(&object).is_some_and(|slot| slot.held);
        held && self.change(object, |slot| slot.only_here = only_here)
    }

    /// Forgets an object, pinned or not: the disk has lost it, or its file is
    /// to be deleted. Returns what it was, if it was held.
    pub fn remove(&mut self, object: ObjectId) -> Option<Evicted> {
        self.slots.get(&object).filter(|slot| slot.held)?;
        let slot = self.take(object)?;
        Some(Evicted { object, tier: slot.tier, size: slot.bytes() })
    }

    /// Sets what a directory takes for now, at most its capacity; `None` is
    /// its capacity. Returns what is evicted; what is in use stays, even if it
    /// is more.
    pub fn limit(&mut self, tier: TierId, bytes: Option<u64>) -> Vec<Evicted> {
        let Some(at) = self.tiers.get_mut(usize::from(tier.0)) else { return Vec::new() };
        at.limit = bytes.unwrap_or(at.capacity).min(at.capacity);
        let over = at.occupied().saturating_sub(at.limit);
        // As much as can go.
        let over = over.min(at.evictable());
        let mut evicted = Vec::new();
        let mut freed = 0;
        while freed < over {
            let Some(object) = at.order.first() else { break };
            let Some(slot) = self.slots.remove(&object) else { break };
            at.order.remove(object, &slot.facts);
            at.bytes[Class::Evictable as usize] -= slot.bytes();
            freed += slot.bytes();
            evicted.push((object, slot));
        }
        gone(&evicted)
    }

    /// An object that is here or arrives.
    #[must_use]
    pub fn entry(&self, object: ObjectId) -> Option<Entry> {
        let Slot { tier, size, unpacked, held, pins, only_here, .. } = *self.slots.get(&object)?;
        Some(Entry { tier, size, unpacked, is_held: held, pins, only_here })
    }

    /// Whether an object is here.
    #[must_use]
    pub fn holds(&self, object: ObjectId) -> bool {
        self.slots.get(&object).is_some_and(|slot| slot.held)
    }

    /// All that is here or arrives, by id.
    pub fn entries(&self) -> impl Iterator<Item = (ObjectId, Entry)> + '_ {
        self.slots.keys().filter_map(|object| Some((*object, self.entry(*object)?)))
    }

    /// All that is here, by id, to be written down for [`Cache::restore`].
    pub fn recorded(&self) -> impl Iterator<Item = Recorded> + '_ {
        self.slots.iter().filter(|(_, slot)| slot.held).map(|(object, slot)| Recorded {
            object: *object,
            tier: slot.tier,
            size: slot.size,
            unpacked: slot.unpacked,
            came: slot.facts.came,
            used: slot.facts.used,
            uses: slot.facts.uses,
            only_here: slot.only_here,
        })
    }

    /// Whether anything that is here is nowhere else.
    #[must_use]
    pub fn holds_only_copies(&self) -> bool {
        self.only_here > 0
    }

    /// Bytes that a directory takes for now, and bytes of it that are taken.
    #[must_use]
    pub fn tier(&self, tier: TierId) -> Option<(u64, u64)> {
        let tier = self.tiers.get(usize::from(tier.0))?;
        Some((tier.limit, tier.occupied()))
    }

    /// Bytes that the cache takes when nothing limits it.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.tiers.iter().fold(0, |sum, tier| sum.saturating_add(tier.capacity))
    }

    /// Whether an object may lie in more than one directory.
    pub(crate) fn has_several_tiers(&self) -> bool {
        self.tiers.len() > 1
    }

    /// The capacity of the largest directory that is not lent.
    pub(crate) fn largest_tier(&self) -> u64 {
        self.own_tiers().iter().map(|tier| tier.capacity).max().unwrap_or(0)
    }

    /// Bytes of what is here or arrives.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.tiers.iter().fold(0, |sum, tier| sum.saturating_add(tier.occupied()))
    }

    /// Finds a directory for `size` bytes, and evicts what must go for them.
    fn place(&mut self, size: u64, evicted: &mut Vec<(ObjectId, Slot)>) -> Option<TierId> {
        let takers = (0u8..).take(self.tiers.len()).filter(|at| self.takes(TierId(*at), size));
        let takers: Vec<u8> = takers.collect();
        let has_room = |at: &&u8| self.tiers[usize::from(**at)].room() >= size;
        if let Some(at) = takers.iter().find(has_room) {
            return Some(TierId(*at));
        }
        let mut best: Option<((u64, u64), TierId, Vec<ObjectId>)> = None;
        for at in takers {
            let Some(victims) = self.victims(TierId(at), size) else { continue };
            let order = &self.tiers[usize::from(at)].order;
            let facts = victims.iter().filter_map(|victim| self.slots.get(victim));
            let worth = facts.map(|slot| order.worth(&slot.facts)).max().unwrap_or_default();
            let loser = match &mut best {
                Some(best) if best.0 <= worth => Some((worth, TierId(at), victims)),
                best => best.replace((worth, TierId(at), victims)),
            };
            for victim in loser.into_iter().flat_map(|(_, _, victims)| victims) {
                if let Some(slot) = self.slots.get(&victim).copied() {
                    self.account(victim, &slot);
                }
            }
        }
        let (_, tier, victims) = best?;
        for victim in victims {
            evicted.extend(self.slots.remove(&victim).map(|slot| (victim, slot)));
        }
        Some(tier)
    }

    /// Takes out of a directory's books what must go for `size` bytes, if
    /// that is possible at all; the slots are still there.
    fn victims(&mut self, tier: TierId, size: u64) -> Option<Vec<ObjectId>> {
        let at = self.tiers.get_mut(usize::from(tier.0))?;
        // What is over a limit must go first.
        let free_of = at.occupied() - at.evictable();
        if at.limit.saturating_sub(free_of) < size {
            return None;
        }
        let mut victims = Vec::new();
        while at.room() < size {
            let victim = at.order.first()?;
            let slot = self.slots.get(&victim)?;
            at.order.remove(victim, &slot.facts);
            at.bytes[Class::Evictable as usize] -= slot.bytes();
            victims.push(victim);
        }
        Some(victims)
    }

    /// Bytes that could be reserved now, were they one directory.
    #[must_use]
    pub fn available(&self) -> u64 {
        let free_of = |tier: &Tier| tier.occupied() - tier.evictable();
        let each = self.tiers.iter().map(|tier| tier.limit.saturating_sub(free_of(tier)));
        each.fold(0, u64::saturating_add)
    }

    /// Why `needed` bytes find no room now.
    pub(crate) fn occupied(&self, needed: u64) -> RefusedError {
        let sum = |class: Class| {
            self.tiers
                .iter()
                .fold(0, |sum: u64, tier| sum.saturating_add(tier.bytes[class as usize]))
        };
        RefusedError::Occupied {
            needed,
            pinned: sum(Class::Pinned),
            arriving: sum(Class::Arriving),
            only_here: sum(Class::OnlyHere),
            capacity: self.tiers.iter().fold(0, |sum, tier| sum.saturating_add(tier.limit)),
        }
    }

    /// The one way in which a slot changes.
    fn change(&mut self, object: ObjectId, change: impl FnOnce(&mut Slot)) -> bool {
        let Some(mut slot) = self.take(object) else { return false };
        change(&mut slot);
        self.put(object, slot);
        true
    }

    fn put(&mut self, object: ObjectId, slot: Slot) {
        self.only_here += usize::from(slot.only_here);
        self.account(object, &slot);
        self.slots.insert(object, slot);
    }

    fn account(&mut self, object: ObjectId, slot: &Slot) {
        let tier = &mut self.tiers[usize::from(slot.tier.0)];
        tier.bytes[slot.class() as usize] += slot.bytes();
        if slot.class() == Class::Evictable {
            tier.order.insert(object, &slot.facts);
        }
    }

    fn take(&mut self, object: ObjectId) -> Option<Slot> {
        let slot = self.slots.remove(&object)?;
        self.only_here -= usize::from(slot.only_here);
        let tier = &mut self.tiers[usize::from(slot.tier.0)];
        tier.bytes[slot.class() as usize] -= slot.bytes();
        if slot.class() == Class::Evictable {
            tier.order.remove(object, &slot.facts);
        }
        Some(slot)
    }
}

fn gone(evicted: &[(ObjectId, Slot)]) -> Vec<Evicted> {
    let gone = evicted.iter();
    gone.map(|(object, slot)| Evicted { object: *object, tier: slot.tier, size: slot.bytes() })
        .collect()
}
