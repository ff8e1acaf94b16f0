//! Archives that are unpacked beside the objects of the cache, in threads that
//! owe nobody a heartbeat.

use super::{FromObjects, Objects};
use falkon_core::data::stage::{Event, UnpackError, UnpackId};
use falkon_data::cache::{CacheError, DiskCache, Fallen, UnpackingError};
use falkon_data::store::is_full;
use falkon_data::unpack;

impl Objects {
    /// Counts or unpacks an archive: that may take long.
    pub(super) fn unpack(
        &self,
        unpack: UnpackId,
        work: impl FnOnce(&DiskCache) -> Result<u64, UnpackingError> + Send + 'static,
    ) {
        let (cache, repair) = (self.cache.clone(), self.repair.clone());
        self.blocking(move || {
            let result = work(&cache).map_err(|error| {
                if matches!(error, UnpackingError::Cache(CacheError::Gone { .. })) {
                    repair.repair();
                }
                unpack_error(error)
            });
            FromObjects::Stage(Event::Unpacked { unpack, result })
        });
    }

    /// Removes what an archive was unpacked to: that may take long.
    pub(super) fn remove(&self, tree: Fallen) {
        let log = self.log.clone();
        self.carrier.runtime.spawn_blocking(move || {
            if let Err(error) = tree.remove() {
                log(&error.to_string());
            }
        });
    }
}

fn unpack_error(error: UnpackingError) -> UnpackError {
    let is_of_the_archive = |error: &unpack::UnpackError| {
        use unpack::UnpackError::{Hook, Read, Write};
        match error {
            Write { .. } | Read(_) => false,
            Hook(error) => !error.is_passing(),
            _ => true,
        }
    };
    match error {
        UnpackingError::Cache(CacheError::Lost { .. }) => UnpackError::Lost,
        UnpackingError::Cache(CacheError::Full { .. }) => UnpackError::Full,
        UnpackingError::Unpack(unpack::UnpackError::Write { source, .. }) if is_full(&source) => {
            UnpackError::Full
        }
        UnpackingError::Unpack(error) if is_of_the_archive(&error) => {
            UnpackError::Refused(error.to_string())
        }
        error => UnpackError::Failed(error.to_string()),
    }
}
