//! Data objects, as the shell names them.

use std::fmt;

/// A write-once file: the first 16 bytes of the BLAKE3 hash of its URL, a zero
/// byte and its version, read as a big-endian number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(pub u128);

/// The object that is found at `url` in its version `version`. The URL is in
/// its canonical form (see [`StoreUrl`](crate::store::StoreUrl)).
#[must_use]
pub fn object_id(url: &str, version: &str) -> ObjectId {
    let mut hasher = blake3::Hasher::new();
    hasher.update(url.as_bytes()).update(&[0]).update(version.as_bytes());
    let mut id = [0; 16];
    id.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    ObjectId(u128::from_be_bytes(id))
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ObjectId({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_and_version_make_the_object() {
        assert_eq!(object_id("/a", "1"), object_id("/a", "1"));
        assert_ne!(object_id("/a", "1"), object_id("/a", "2"));
        assert_ne!(object_id("/a", "1"), object_id("/a1", ""));
    }
}
