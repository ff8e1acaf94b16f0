//! What happens when the directory of a cache is deleted while it is in use:
//! it is made anew, and the core hears what was lost with it.

use super::Log;
use super::objects::FromObjects;
use crate::cache::{CacheError, DiskCache};
use falkon_core::data::cache::TierId;
use falkon_core::data::stage::Event;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::mpsc;

/// Makes deleted directories anew; one at a time, as several transfers may
/// find that one is gone.
#[derive(Clone)]
pub(super) struct Mender {
    cache: Arc<DiskCache>,
    tiers: u8,
    say: mpsc::UnboundedSender<FromObjects>,
    log: Log,
    turn: Arc<Mutex<()>>,
}

impl Mender {
    pub(super) fn new(
        cache: Arc<DiskCache>,
        tiers: u8,
        say: mpsc::UnboundedSender<FromObjects>,
        log: Log,
    ) -> Mender {
        Mender { cache, tiers, say, log, turn: Arc::default() }
    }

    /// Makes every directory that is gone anew; whether there was one.
    pub(super) fn mend(&self) -> bool {
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
                        // Nobody listens only when the executor ends.
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
            Err(CacheError::Gone { .. }) if self.mend() => work(&self.cache),
            result => result,
        }
    }
}
