//! Outputs that another executor collects, and those that this one collects for others.

use super::{FromObjects, Objects};
use falkon_core::collect::{ItemId, MemberName, WriteFailure, WriteId};
use falkon_core::execute::{CollectEvent, OfferId};
use falkon_core::task::ExecutorId;
use falkon_data::peer::{Fetcher, FromPeers};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

/// Those under way.
#[derive(Debug, Default)]
pub(super) struct Handovers {
    places: HashMap<OfferId, oneshot::Sender<PathBuf>>,
    ends: HashMap<OfferId, oneshot::Sender<Result<Arc<str>, String>>>,
    /// What others are to write.
    handed: HashMap<WriteId, AbortHandle>,
}

impl Objects {
    /// What reaches other executors, once the dispatcher has said how.
    pub(crate) fn fetcher(&self) -> Option<Fetcher> {
        self.fetcher.clone()
    }

    /// Converts what another executor says of its outputs for the core; returns requests
    /// of others.
    pub(super) fn offered(&mut self, from: FromPeers) -> Result<CollectEvent, FromPeers> {
        Ok(match from {
            FromPeers::Entrust { offer, archive, bytes, waited_micros, place, end } => {
                self.handovers.places.insert(offer, place);
                self.handovers.ends.insert(offer, end);
                CollectEvent::Offered { offer, archive: archive.into(), bytes, waited_micros }
            }
            FromPeers::Received { offer, result } => {
                let result = result.map(|()| self.staged.free());
                CollectEvent::Received { offer, result }
            }
            FromPeers::Withdrawn(offer) => {
                self.handovers.places.remove(&offer);
                self.handovers.ends.remove(&offer);
                CollectEvent::Withdrawn(offer)
            }
            other => return Err(other),
        })
    }

    /// Says where what is offered is to come.
    pub(super) fn accept(&mut self, offer: OfferId, item: ItemId) {
        let path = self.staged.path(item);
        let place = self.handovers.places.remove(&offer);
        if place.is_none_or(|place| place.send(path).is_err()) {
            let result = Err("the executor that hands it over is gone".to_owned());
            self.tell(FromObjects::Collect(CollectEvent::Received { offer, result }));
        }
    }

    /// Says what has become of what was offered.
    pub(super) fn answer_offer(&mut self, offer: OfferId, result: Result<Arc<str>, String>) {
        self.handovers.places.remove(&offer);
        if let Some(end) = self.handovers.ends.remove(&offer) {
            // The executor that handed it over may be gone.
            let _ = end.send(result);
        }
    }

    /// Hands staged outputs to another executor.
    pub(super) fn hand_over(
        &mut self,
        write: WriteId,
        to: ExecutorId,
        archive: Arc<str>,
        members: Vec<(ItemId, MemberName)>,
        waited_micros: u64,
    ) {
        let (staged, say, log) = (self.staged.clone(), self.say.clone(), self.log.clone());
        let way = self.fetcher.clone().zip(self.peers.get(&to).cloned());
        let handed = self.carrier.runtime.spawn(async move {
            let entrust = async {
                let Some((fetcher, peer)) = way else {
                    return Err(WriteFailure::NotTaken("its address is not known".to_owned()));
                };
                let pack = tokio::task::spawn_blocking(move || staged.pack(write, &members));
                let packed = pack.await.map_err(|error| WriteFailure::Failed(error.to_string()));
                let packed = packed??;
                let entrusted =
                    fetcher.entrust(&peer, &archive, waited_micros, &packed.file, packed.bytes);
                entrusted.await.map_err(|error| WriteFailure::NotTaken(error.to_string()))
            };
            let result = entrust.await;
            if let Err(WriteFailure::NotTaken(error)) = &result {
                log(&format!("executor {to} does not collect for this one: {error}"));
            }
            let _ = say.send(FromObjects::Collect(CollectEvent::Written { write, result }));
        });
        self.handovers.handed.retain(|_, task| !task.is_finished());
        self.handovers.handed.insert(write, handed.abort_handle());
    }

    /// What was handed over is not to be written there.
    pub(super) fn take_back(&mut self, write: WriteId) {
        if let Some(task) = self.handovers.handed.remove(&write) {
            task.abort();
        }
    }
}
