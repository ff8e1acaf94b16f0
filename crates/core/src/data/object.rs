//! Data objects: write-once files.

/// A data object: the first 16 bytes of a hash over what it is (where it lies
/// and in which version, or its content). Another version is another object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(pub u128);
