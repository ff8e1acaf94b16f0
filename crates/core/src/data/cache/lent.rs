//! The directory that is lent: it takes shares of striped objects, and objects that
//! no other directory is large enough for.

use super::{Cache, Evicted, Facts, RefusedError, Slot, Tier, TierId, gone};
use crate::data::declared::CacheRoom;
use crate::data::object::ObjectId;

impl Cache {
    /// The last directory takes shares of striped objects from now on, and nothing
    /// else but what no other directory is large enough for.
    pub fn lend_last(&mut self) {
        self.is_last_lent = !self.tiers.is_empty();
    }

    /// The directory that is lent, if one is.
    #[must_use]
    pub fn lent(&self) -> Option<TierId> {
        let last = self.tiers.len().checked_sub(1).filter(|_| self.is_last_lent)?;
        u8::try_from(last).ok().map(TierId)
    }

    /// What it takes, as the dispatcher is told.
    #[must_use]
    pub fn room(&self) -> CacheRoom {
        let lent = self.lent().and_then(|tier| self.tiers.get(usize::from(tier.0)));
        let lent_bytes = lent.map_or(0, |tier| tier.capacity);
        CacheRoom { object_bytes: self.largest_tier(), lent_bytes, mounts: false }
    }

    /// Whether only the directory that is lent is large enough for so many bytes.
    pub(crate) fn is_for_lent(&self, size: u64) -> bool {
        self.is_last_lent && self.own_tiers().iter().all(|tier| tier.capacity < size)
    }

    /// Whether no directory is large enough for so many bytes.
    pub(crate) fn is_too_large(&self, size: u64) -> bool {
        self.tiers.iter().all(|tier| tier.capacity < size)
    }

    /// The directories that are not lent.
    pub(super) fn own_tiers(&self) -> &[Tier] {
        &self.tiers[..self.tiers.len() - usize::from(self.is_last_lent)]
    }

    /// Whether objects of a size may lie in a directory.
    pub(super) fn takes(&self, tier: TierId, size: u64) -> bool {
        !self.is_last_lent || (self.lent() == Some(tier)) == self.is_for_lent(size)
    }

    /// Takes room in the directory that is lent, for so many bytes of an object in
    /// all: it may have some there already. Returns what is evicted.
    ///
    /// # Errors
    /// [`RefusedError`]; then nothing has changed.
    pub fn reserve_lent(
        &mut self,
        object: ObjectId,
        bytes: u64,
    ) -> Result<Vec<Evicted>, RefusedError> {
        let Some(tier) = self.lent() else { return Err(RefusedError::Unknown(object)) };
        let before = self.slots.get(&object).map_or(0, |slot| slot.size);
        let Some(victims) = self.victims(tier, bytes.saturating_sub(before)) else {
            return Err(self.occupied(bytes));
        };
        let mut evicted = Vec::new();
        for victim in victims {
            evicted.extend(self.slots.remove(&victim).map(|slot| (victim, slot)));
        }
        if !self.change(object, |slot| slot.size = slot.size.max(bytes)) {
            let facts = Facts { came: self.next, used: self.next, ..Facts::default() };
            self.next += 1;
            let slot = Slot {
                tier,
                size: bytes,
                unpacked: 0,
                held: false,
                pins: 0,
                only_here: false,
                facts,
            };
            self.put(object, slot);
        }
        Ok(gone(&evicted))
    }
}
