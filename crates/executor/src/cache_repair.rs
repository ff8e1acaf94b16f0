//! Repair of a cache whose directory is deleted while it is in use: the
//! directory is created again, and the core is notified of the objects that
//! were lost with it.

use super::Log;
use super::objects::message::FromObjects;
use falkon_core::data::cache::TierId;
use falkon_core::data::stage::Event;
use falkon_data::cache::{CacheError, DiskCache};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::mpsc;

/// Recreates deleted directories; one thread at a time, as several transfers
/// may find the same one missing.
#[derive(Clone)]
pub(super) struct CacheRepair {
    cache: Arc<DiskCache>,
    tiers: u8,
    say: mpsc::UnboundedSender<FromObjects>,
    log: Log,
    turn: Arc<Mutex<()>>,
}

impl CacheRepair {
    pub(super) fn new(
        cache: Arc<DiskCache>,
        tiers: u8,
        say: mpsc::UnboundedSender<FromObjects>,
        log: Log,
    ) -> CacheRepair {
        CacheRepair { cache, tiers, say, log, turn: Arc::default() }
    }

    /// Recreates every missing directory; returns whether there was one.
    pub(super) fn repair(&self) -> bool {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let gone: Vec<TierId> =
            (0..self.tiers).map(TierId).filter(|tier| self.cache.is_gone(*tier)).collect();
        for tier in &gone {
            match self.cache.revive(*tier) {
                Ok(lost) => {
                    let count = lost.len();
                    (self.log)(&format!(
                        "a directory of the cache was deleted, with {count} objects; it is there \
                         again"
                    ));
                    for object in lost {
                        // The receiver is gone only when the executor ends.
                        let _ = self.say.send(FromObjects::Stage(Event::Lost(object)));
                    }
                }
                Err(error) => (self.log)(&error.to_string()),
            }
        }
        !gone.is_empty()
    }

    /// Does `work` with the cache; once more if a directory was gone.
    pub(super) fn with_cache<T>(
        &self,
        work: impl Fn(&DiskCache) -> Result<T, CacheError>,
    ) -> Result<T, CacheError> {
        match work(&self.cache) {
            Err(CacheError::Gone { .. }) if self.repair() => work(&self.cache),
            result => result,
        }
    }
}
