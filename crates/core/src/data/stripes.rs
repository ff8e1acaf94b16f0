//! Striped objects: one that is too large for an executor's cache lies in the room
//! that several executors lend, its chunks in turn. With *n* stripes, chunk *k* is
//! part of stripe *k* mod *n*.
//!
//! What a lender holds of an object, its share, is known by an id of its own
//! ([`share_id`]), so that nobody takes it for the whole object.

use super::limits::STRIPE_BYTES;
use super::object::{Object, ObjectId};
use crate::runset::RunSet;

/// The bit in which the id of a share differs from that of the object.
const SHARE_BIT: u128 = 1 << 127;

/// What the shares of an object are known by.
#[must_use]
pub fn share_id(object: ObjectId) -> ObjectId {
    ObjectId(object.0 ^ SHARE_BIT)
}

/// The shares of an object, as lenders are asked for them.
#[must_use]
pub fn share_of(object: &Object) -> Object {
    Object { id: share_id(object.id), ..object.clone() }
}

/// The stripe, of so many, that the unit at `offset` is part of.
#[must_use]
pub fn stripe_of(offset: u64, stripes: usize) -> usize {
    let stripes = stripes.max(1) as u64;
    // It is less than the number of stripes.
    usize::try_from((offset / STRIPE_BYTES) % stripes).unwrap_or_default()
}

/// The first byte of a stripe, of so many, from `offset` on.
#[must_use]
pub fn next_in_stripe(offset: u64, stripe: usize, stripes: usize) -> u64 {
    let here = stripe_of(offset, stripes);
    if here == stripe {
        return offset;
    }
    let units = (stripe + stripes.max(1) - here) % stripes.max(1);
    let unit = offset / STRIPE_BYTES + units as u64;
    unit.saturating_mul(STRIPE_BYTES)
}

/// How many of `bytes` from `offset` on belong to the unit there.
#[must_use]
pub fn within_unit(offset: u64, bytes: u64) -> u64 {
    bytes.min(STRIPE_BYTES - offset % STRIPE_BYTES)
}

/// The most bytes that one stripe of an object has.
#[must_use]
pub fn stripe_bytes_max(size: u64, stripes: usize) -> u64 {
    let units = size.div_ceil(STRIPE_BYTES).div_ceil(stripes.max(1) as u64);
    units.saturating_mul(STRIPE_BYTES).min(size)
}

/// How many bytes one stripe of an object has.
#[must_use]
pub fn stripe_bytes(size: u64, stripe: usize, stripes: usize) -> u64 {
    let (stripe, stripes) = (stripe as u64, stripes.max(1) as u64);
    let whole = size / STRIPE_BYTES;
    let own = whole / stripes + u64::from(whole % stripes > stripe);
    let rest = if whole % stripes == stripe { size % STRIPE_BYTES } else { 0 };
    own * STRIPE_BYTES + rest
}

/// The bytes of one stripe of an object.
#[must_use]
pub fn stripe_runs(size: u64, stripe: usize, stripes: usize) -> RunSet {
    let mut runs = RunSet::default();
    let mut from = next_in_stripe(0, stripe, stripes);
    let step = (stripes.max(1) as u64).saturating_mul(STRIPE_BYTES);
    while from < size {
        runs.insert(from, STRIPE_BYTES.min(size - from));
        from = from.saturating_add(step);
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stripes_of_an_object_are_all_of_it_and_have_nothing_in_common() {
        for size in [1, STRIPE_BYTES, 7 * STRIPE_BYTES + 5] {
            for stripes in 1..10 {
                let mut all = RunSet::default();
                let mut bytes = 0;
                for stripe in 0..stripes {
                    let runs = stripe_runs(size, stripe, stripes);
                    let own: u64 = runs.iter().map(|(_, count)| count).sum();
                    assert_eq!(own, stripe_bytes(size, stripe, stripes));
                    assert!(own <= stripe_bytes_max(size, stripes));
                    bytes += own;
                    for (first, count) in runs.iter() {
                        all.insert(first, count);
                        // Neighbours of one stripe are one run.
                        if stripes > 1 {
                            assert_eq!(stripe_of(first, stripes), stripe);
                            assert_eq!(stripe_of(first + count - 1, stripes), stripe);
                        }
                    }
                }
                assert_eq!(bytes, size, "{stripes} stripes");
                assert_eq!(all.iter().collect::<Vec<_>>(), [(0, size)], "{stripes} stripes");
            }
        }
    }

    #[test]
    fn the_next_byte_of_a_stripe_is_found_from_any_offset() {
        for stripes in 1..6 {
            for offset in (0..40).map(|at| at * STRIPE_BYTES / 2) {
                for stripe in 0..stripes {
                    let next = next_in_stripe(offset, stripe, stripes);
                    assert!(next >= offset && stripe_of(next, stripes) == stripe);
                    let mut between = (offset..next).step_by(1 << 20);
                    assert!(between.all(|at| stripe_of(at, stripes) != stripe));
                }
            }
        }
    }

    #[test]
    fn shares_have_an_id_of_their_own() {
        let id = ObjectId(77);
        assert_ne!(share_id(id), id);
        assert_eq!(share_id(share_id(id)), id);
    }
}
