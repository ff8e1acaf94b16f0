//! How ids of data objects and of tasks' outputs are computed: dispatchers,
//! executors and clients agree on them, and tickets are for one each.

use falkon_core::data::object::ObjectId;
use falkon_core::result::Stream;
use falkon_core::task::{InstanceId, TaskId};

/// The object that is found at `url` in its version `version`: the first 16
/// bytes of the BLAKE3 hash of the URL, a zero byte and the version. The URL is
/// in its canonical form (see `StoreUrl`).
#[must_use]
pub fn object_id(url: &str, version: &str) -> ObjectId {
    let mut hasher = blake3::Hasher::new();
    hasher.update(url.as_bytes()).update(&[0]).update(version.as_bytes());
    let mut id = [0; 16];
    id.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    ObjectId(u128::from_be_bytes(id))
}

/// The name of all output of a task on one stream, for holders of a ticket for
/// it: the first 16 bytes of a BLAKE3 hash over instance, task, stream and the
/// executor's number for the output. So a ticket for one task's output does not
/// open another's, whatever numbers executors give.
#[must_use]
pub fn output_id(instance: InstanceId, task: TaskId, stream: Stream, number: u64) -> ObjectId {
    let mut hasher = blake3::Hasher::new_derive_key("falkon 2026 output of a task");
    hasher.update(&instance.0.to_le_bytes()).update(&task.0.to_le_bytes());
    hasher.update(&[stream as u8]).update(&number.to_le_bytes());
    let mut id = [0; 16];
    id.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    ObjectId(u128::from_be_bytes(id))
}

/// What a task writes to a stream while it runs, for holders of a ticket for it: the first 16
/// bytes of a BLAKE3 hash over instance, task and stream.
#[must_use]
pub fn tail_id(instance: InstanceId, task: TaskId, stream: Stream) -> ObjectId {
    let mut hasher = blake3::Hasher::new_derive_key("falkon 2026 output of a running task");
    hasher.update(&instance.0.to_le_bytes()).update(&task.0.to_le_bytes());
    hasher.update(&[stream as u8]);
    let mut id = [0; 16];
    id.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    ObjectId(u128::from_be_bytes(id))
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
