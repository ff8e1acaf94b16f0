//! Members of archives in caches, as the stage sees them.

use super::Origin;
use super::source::peer_error;
use crate::cache_repair::CacheRepair;
use falkon_core::data::object::{Object, ObjectId};
use falkon_core::data::stage::FetchError;
use falkon_data::archives::{Archive, Archives, Holder, MemberError};
use falkon_data::cache::CacheError;
use falkon_data::object::Landing;
use std::sync::Arc;

/// Copies a member out of its archive; `lost` is told an archive that is not in the own
/// cache any more.
pub(super) async fn fetch(
    archives: &Archives,
    repair: &CacheRepair,
    from: Origin,
    object: &Object,
    landing: &Arc<Landing>,
    lost: impl Fn(ObjectId),
) -> Result<u64, FetchError> {
    let (Some(id), Some(name)) = (object.archive(), object.name_in_archive()) else {
        return Err(FetchError::NoMember(format!("`{}` names no member", object.url)));
    };
    let holder = match from {
        Origin::Peer(fetcher, peer) => Holder::Peer(fetcher, peer),
        Origin::Own | Origin::Store => match repair.with_cache(|cache| cache.read(id)) {
            Ok((file, bytes)) => Holder::Own(Arc::new(file), bytes),
            Err(CacheError::Lost { .. }) => {
                lost(id);
                return Err(FetchError::Gone);
            }
            Err(error) => return Err(FetchError::Refused(error.to_string())),
        },
    };
    let archive = Archive { id, holder };
    archives.fetch(&archive, name, landing).await.map_err(|error| match error {
        MemberError::Peer(error) => peer_error(error),
        MemberError::Archive(_) => FetchError::Refused(error.to_string()),
        MemberError::NoMember(why) => FetchError::NoMember(why),
        MemberError::Damaged { .. } => FetchError::Wrong(error.to_string()),
    })
}
