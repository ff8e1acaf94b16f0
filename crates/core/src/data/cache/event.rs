//! What a cache takes and gives: options, entries, refusals.

use super::Eviction;
use crate::data::object::ObjectId;
use std::fmt;

/// A directory of the cache, numbered from 0, fastest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TierId(pub u8);

/// How a cache is set up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheOptions {
    /// The capacity of each directory, in bytes, fastest first; those past
    /// [`crate::data::limits::TIERS_MAX`] are not used.
    pub tiers_bytes: Vec<u64>,
    /// What goes first.
    pub eviction: Eviction,
    /// Where randomness comes from.
    pub seed: u64,
}

/// An object that was put out of the cache: its file is to be deleted, and its
/// unpacked form if it has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Evicted {
    /// The object.
    pub object: ObjectId,
    /// In which directory it was.
    pub tier: TierId,
    /// Its bytes, with those of its unpacked form.
    pub size: u64,
}

/// What is known of an object in the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// In which directory it is, or is being made.
    pub tier: TierId,
    /// Its bytes, or those reserved for it.
    pub size: u64,
    /// Bytes of its unpacked form, or those reserved for that; 0 if it has none.
    pub unpacked: u64,
    /// It is there; else there is room reserved for it.
    pub is_held: bool,
    /// How many hold it in its place.
    pub pins: u64,
    /// It is nowhere else, and is not evicted.
    pub only_here: bool,
}

/// An object as it is written down to be found again after a restart. Where
/// they are equal in number, the order is that of the cache's list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Recorded {
    /// The object.
    pub object: ObjectId,
    /// In which directory it is.
    pub tier: TierId,
    /// Its bytes.
    pub size: u64,
    /// Bytes of its unpacked form; 0 if it has none.
    pub unpacked: u64,
    /// Where it stands in the order in which objects came.
    pub came: u64,
    /// Where it stands in the order of last uses.
    pub used: u64,
    /// How often it was used.
    pub uses: u64,
    /// It is nowhere else.
    pub only_here: bool,
}

/// Why there is no room.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RefusedError {
    /// Not even an empty cache has room for these objects together.
    #[error(fmt = write_too_large)]
    TooLarge {
        /// Their bytes.
        needed: u64,
        /// How many they are.
        objects: usize,
        /// The largest of them.
        largest: u64,
        /// What each directory takes.
        tiers_bytes: Vec<u64>,
    },
    /// Too much of what is there is in use, on its way here, or nowhere else.
    #[error(
        "no room for {needed} bytes in a cache of {capacity} bytes: {pinned} bytes are in use, \
         {arriving} are on their way, {only_here} are kept outputs without a copy elsewhere"
    )]
    Occupied {
        /// Bytes that there is no place for.
        needed: u64,
        /// Bytes held by tasks and peers that use them.
        pinned: u64,
        /// Bytes on their way here.
        arriving: u64,
        /// Bytes that are nowhere else, and in use by nobody.
        only_here: u64,
        /// What the cache takes at present.
        capacity: u64,
    },
    /// It is not there, or not in a state for that.
    #[error("object {0} is not in the cache")]
    Unknown(ObjectId),
}

fn write_too_large(
    needed: &u64,
    objects: &usize,
    largest: &u64,
    tiers_bytes: &[u64],
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    let capacity: u64 = tiers_bytes.iter().fold(0, |sum, tier| sum.saturating_add(*tier));
    write!(f, "{needed} bytes in {objects} objects do not fit in a cache of {capacity} bytes")?;
    if tiers_bytes.len() > 1 {
        let each: Vec<String> = tiers_bytes.iter().map(u64::to_string).collect();
        write!(
            f,
            " in directories of {} bytes (the largest object has {largest} bytes)",
            each.join(", ")
        )?;
    }
    write!(f, ": give the executor a larger cache")
}
