//! Finding a name in a file's lookup table with one or two reads.

use super::Want;
use super::limits::{SAME_HASH_MEMBERS_MAX, SEARCH_ENTRIES_MAX};
use super::table::{self, ENTRY_BYTES, Lookup, TableEntry};

/// Looks for the records of members with a name: read what it wants, hand it in,
/// until it wants nothing.
#[derive(Debug)]
pub struct Search {
    lookup: Lookup,
    hash: u64,
    /// The entries, by number, among which the hash still may be, the second
    /// excluded.
    among: (u64, u64),
    /// The least and the greatest hash that they can have.
    hashes: (u64, u64),
    found: Vec<u64>,
    has_more: bool,
}

impl Search {
    /// Looks for this name.
    #[must_use]
    pub fn new(lookup: Lookup, name: &[u8]) -> Search {
        let hash = table::seeded(table::name_hash(name), lookup.seed);
        let (among, hashes) = ((0, lookup.entries), (0, u64::MAX));
        Search { lookup, hash, among, hashes, found: Vec::new(), has_more: false }
    }

    /// What to read next; `None` when all is known.
    #[must_use]
    pub fn want(&self) -> Option<Want> {
        let (first, count) = self.window()?;
        Some(self.lookup.want(first, count))
    }

    /// Entries to read: around the place where the hash is if hashes are spread
    /// evenly.
    fn window(&self) -> Option<(u64, u64)> {
        let (from, to) = self.among;
        let count = to.checked_sub(from).filter(|count| *count > 0 && !self.has_more)?;
        let (least, greatest) = self.hashes;
        let span = u128::from(greatest.saturating_sub(least)) + 1;
        let share = u128::from(self.hash.saturating_sub(least)) * u128::from(count) / span;
        let read = count.min(SEARCH_ENTRIES_MAX);
        let middle = from + (share as u64).min(count - 1);
        let first = middle.saturating_sub(read / 2).clamp(from, to - read);
        Some((first, read))
    }

    /// Hands in what it wanted. A table that is not sorted makes the search end
    /// without what it looked for.
    pub fn give(&mut self, bytes: &[u8]) {
        let Some((first, count)) = self.window() else { return };
        let (entries, _) = bytes.as_chunks::<ENTRY_BYTES>();
        let entry = |at: usize| TableEntry::decode(&entries[at], self.lookup.seed);
        let (Some(last), true) = (entries.len().checked_sub(1), entries.len() as u64 == count)
        else {
            self.among = (0, 0);
            return;
        };
        let (low, high) = (entry(0).hash, entry(last).hash);
        let is_left = self.hash <= low && first > self.among.0;
        let is_right = self.hash >= high && first + count < self.among.1;
        for at in 0..entries.len() {
            let entry = entry(at);
            if entry.hash == self.hash {
                self.has_more |= self.found.len() == SAME_HASH_MEMBERS_MAX;
                self.found.extend((!self.has_more).then_some(entry.record));
            }
        }
        // Names with the same hash may go on to either side, but not to both
        // beyond the most that are returned.
        match (is_left, is_right) {
            (true, true) => self.has_more = true,
            (true, false) => {
                self.among.1 = first;
                self.hashes.1 = low;
            }
            (false, true) => {
                self.among.0 = first + count;
                self.hashes.0 = high;
            }
            (false, false) => self.among = (0, 0),
        }
    }

    /// The offsets within the directory of records whose names have the hash,
    /// the last first, when it wants nothing; `None` if they are too many.
    #[must_use]
    pub fn records(&self) -> Option<Vec<u64>> {
        let mut records = self.found.clone();
        records.sort_unstable_by(|a, b| b.cmp(a));
        (!self.has_more).then_some(records)
    }
}
