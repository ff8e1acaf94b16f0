//! Data objects as dispatchers tell of them.

use falkon_core::data::object::{Object, ObjectId};
use falkon_core::data::stage::{CacheState, Count, Usage};
use falkon_core::data::way::{Chosen, Way, Why};
use falkon_core::dispatch::{FoundObject, HolderStatus, ObjectStatus};
use falkon_core::task::ExecutorId;

pub(super) fn placed() -> Object {
    Object {
        id: ObjectId(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10),
        url: "cache:key".into(),
        version: "blake3:af1349b9f5f9a1a6a0404dea36dcc949".into(),
        size: Some(0),
    }
}

pub(super) fn cache_state() -> CacheState {
    let count = |objects, bytes| Count { objects, bytes };
    let usage = Usage { local: count(7, 7 << 20), peer: count(2, 300), store: count(1, 0) };
    CacheState { capacity: 1 << 30, used: 2 << 20, usage }
}

pub(super) fn object_status() -> ObjectStatus {
    let Object { id, url, version, size } = placed();
    ObjectStatus { id, url, version, size, holders: 2, coming: 1, waiting: 300 }
}

pub(super) fn found_object() -> FoundObject {
    let executor = ExecutorId(3);
    let name = "node7:4711".to_owned();
    let holder = HolderStatus { executor, name, holds: true, connected: false, lends: 0 };
    let chosen = Chosen { way: Way::Cache, why: Why::Small };
    let cache_bytes = Some(1 << 30);
    let (object, holders) = (object_status(), vec![holder]);
    FoundObject { object, readers: 1000, chosen, cache_bytes, holders }
}
