//! What stores and peers send, and why they do not, as the stage sees it.

use falkon_core::data::object::{CONTENT_PREFIX, Object};
use falkon_core::data::stage::{FetchError, WriteError};
use falkon_data::object::Landing;
use falkon_data::peer::PeerError;
use falkon_data::store::{StoreError, StoreUrl, Stores, Want};
use falkon_net::ids::object_id;
use std::sync::Arc;

/// Copies an object, or a range of it, from its store.
pub(super) async fn from_store(
    stores: &Stores,
    object: &Object,
    offset: u64,
    length: Option<u64>,
    landing: &Arc<Landing>,
) -> Result<u64, FetchError> {
    let url =
        StoreUrl::parse(&object.url).map_err(|error| FetchError::Refused(error.to_string()))?;
    // An output of a task has the version that the task gave it.
    let any = object.version.is_empty() || object.version.starts_with("made:");
    let by_content = object.version.starts_with(CONTENT_PREFIX);
    let version = (!any && !by_content).then(|| object.version.to_string());
    // The whole object is requested without a range: not every server gives
    // parts.
    let length = length.filter(|length| offset > 0 || object.size != Some(*length));
    match stores.fetch(&url, &Want { offset, length, version }, landing).await {
        Ok(fetched) => Ok(fetched.bytes),
        Err(error) => Err(store_error(object, error)),
    }
}

pub(super) fn store_error(object: &Object, error: StoreError) -> FetchError {
    match error.root() {
        StoreError::NotThere { .. }
        | StoreError::NotAllowed { .. }
        | StoreError::Refused { .. }
        | StoreError::ReadOnly { .. }
        | StoreError::Archive(_)
        | StoreError::Member { .. } => FetchError::Refused(error.to_string()),
        StoreError::Changed { now: Some(now), .. } if !now.version.is_empty() => {
            FetchError::Changed(Arc::new(Object {
                id: object_id(&object.url, &now.version),
                url: object.url.clone(),
                version: now.version.as_str().into(),
                size: now.bytes,
            }))
        }
        StoreError::Changed { .. } | StoreError::Unreachable { .. } => {
            FetchError::Unreachable(error.to_string())
        }
        StoreError::DiskFull { .. } => FetchError::Write(WriteError::Full),
        StoreError::Local { .. } => FetchError::Write(WriteError::Failed(error.to_string())),
    }
}

pub(super) fn peer_error(error: PeerError) -> FetchError {
    match error {
        PeerError::Gone => FetchError::Gone,
        PeerError::Busy => FetchError::Busy,
        PeerError::Coming => FetchError::Coming,
        PeerError::Unreachable { .. } | PeerError::Lost { .. } => {
            FetchError::Unreachable(error.to_string())
        }
        PeerError::NotAllowed { .. } => FetchError::Refused(error.to_string()),
        PeerError::Wrong { .. } => FetchError::Wrong(error.to_string()),
        PeerError::DiskFull(_) => FetchError::Write(WriteError::Full),
        PeerError::Local(_) => FetchError::Write(WriteError::Failed(error.to_string())),
    }
}
