//! The disk under a stage, as far as archives are unpacked there; and what a
//! stage promises of that: each is unpacked once, within its room, and is not
//! deleted under a task.

use crate::world::MIB;
use falkon_core::data::object::ObjectId;
use falkon_core::data::stage::{UnpackError, UnpackId};
use std::collections::{BTreeMap, BTreeSet};

/// What is unpacked, or being so, with the room that it has.
#[derive(Debug, Default)]
pub(crate) struct Trees {
    trees: BTreeMap<ObjectId, Tree>,
    /// What was unpacked, and not only counted.
    begun: BTreeSet<UnpackId>,
    /// How often each archive was unpacked.
    pub(crate) made: BTreeMap<ObjectId, u32>,
}

#[derive(Debug)]
struct Tree {
    tier: u8,
    bytes: u64,
    making: Option<UnpackId>,
}

/// What an archive takes when it is unpacked; one in seven is none.
pub(crate) fn tree_bytes(object: ObjectId) -> Option<u64> {
    (!object.0.is_multiple_of(7)).then(|| u64::try_from(object.0 % 5).unwrap() * 10 * MIB + 1)
}

impl Trees {
    /// What the shell counts.
    pub(crate) fn measure(&self, object: ObjectId, bytes_max: u64) -> Result<u64, UnpackError> {
        let Some(bytes) = tree_bytes(object) else {
            return Err(UnpackError::Refused("no archive".into()));
        };
        match bytes <= bytes_max {
            true => Ok(bytes),
            false => Err(UnpackError::Refused(format!("more than {bytes_max}"))),
        }
    }

    /// An archive is being unpacked from now on.
    pub(crate) fn begin(&mut self, unpack: UnpackId, object: ObjectId, tier: u8, bytes: u64) {
        assert_eq!(Some(bytes), tree_bytes(object));
        self.begun.insert(unpack);
        *self.made.entry(object).or_default() += 1;
        let before = self.trees.insert(object, Tree { tier, bytes, making: Some(unpack) });
        assert!(before.is_none(), "{object} is unpacked twice: {before:?}");
    }

    /// It is unpacked, or is not.
    pub(crate) fn end(&mut self, unpack: UnpackId, result: &mut Result<u64, UnpackError>) {
        if !self.begun.contains(&unpack) {
            return;
        }
        let making = self.trees.iter().find(|(_, tree)| tree.making == Some(unpack));
        let Some(object) = making.map(|(object, _)| *object) else {
            // Its archive is gone.
            if result.is_ok() {
                *result = Err(UnpackError::Lost);
            }
            return;
        };
        match (result, self.trees.get_mut(&object)) {
            (Ok(_), Some(tree)) => tree.making = None,
            _ => {
                self.trees.remove(&object);
            }
        }
    }

    /// The archive is deleted, and this with it.
    pub(crate) fn remove(&mut self, object: ObjectId) {
        self.trees.remove(&object);
    }

    /// Whether a task finds it.
    pub(crate) fn is_ready(&self, object: ObjectId) -> bool {
        self.trees.get(&object).is_some_and(|tree| tree.making.is_none())
    }

    /// Bytes on the disk, by directory.
    pub(crate) fn bytes(&self) -> impl Iterator<Item = (u8, u64)> + '_ {
        self.trees.values().map(|tree| (tree.tier, tree.bytes))
    }
}
