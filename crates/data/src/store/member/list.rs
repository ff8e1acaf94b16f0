//! What is known of all members of an archive at once.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use falkon_core::archive::Kind;

use super::set::{self, Set};
use crate::store::copy::Steps;
use crate::store::{Resolved, StoreError};

/// Members between two steps.
const STEP_MEMBERS: u64 = 1 << 16;

/// Sizes and versions of an archive's members. Each takes 40 bytes or so, however long its name
/// is: it is known by 128 bits of a hash that nobody can foresee.
#[derive(Debug)]
pub struct Members {
    states: [RandomState; 2],
    /// The size, and the position of the file among those of the archive.
    found: HashMap<u128, (u64, u32)>,
    versions: Vec<String>,
}

impl Members {
    /// Reads all directories of an archive.
    pub(super) fn of(set: &Set, steps: &Steps) -> Result<Members, StoreError> {
        let states = [RandomState::new(), RandomState::new()];
        let versions = set.versions().to_vec();
        let mut members = Members { states, found: HashMap::new(), versions };
        let mut count = 0u64;
        for (number, part) in set.parts().iter().enumerate() {
            for member in part.members() {
                let member = member.map_err(set::failed)?;
                let key = members.key(&member.name);
                match member.kind() {
                    Kind::File => members.found.insert(key, (member.size, number as u32)),
                    _ => members.found.remove(&key),
                };
                count += 1;
                if count.is_multiple_of(STEP_MEMBERS) && !steps.go_on() {
                    return Err(set.given_up());
                }
            }
        }
        Ok(members)
    }

    fn key(&self, name: &[u8]) -> u128 {
        let [one, other] = &self.states;
        u128::from(one.hash_one(name)) << 64 | u128::from(other.hash_one(name))
    }

    /// The size and version of the member with this name that was written last; `None` if there
    /// is no such file.
    #[must_use]
    pub fn resolved(&self, name: &str) -> Option<Resolved> {
        let (size, file) = *self.found.get(&self.key(name.as_bytes()))?;
        let version = self.versions.get(file as usize)?.clone();
        Some(Resolved { bytes: Some(size), version })
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.found.len()
    }
}
