//! Visitors of an executor's cache, between the server and the core.

use super::objects::message::FromObjects;
use falkon_core::data::cache::TierId;
use falkon_core::data::stage::{self, PartialId, WriteError};
use falkon_core::execute::{Event, Visit, VisitEnd};
use falkon_core::task::Time;
use falkon_data::peer::FromPeers;
use std::collections::HashMap;
use tokio::sync::oneshot;

/// The visits under way: as many as there are connections, at most.
#[derive(Debug, Default)]
pub(super) struct Visits {
    next: u64,
    places: HashMap<u64, oneshot::Sender<(TierId, PartialId)>>,
    ends: HashMap<u64, oneshot::Sender<VisitEnd>>,
}

impl Visits {
    /// Converts a visitor's request for the core; returns requests of others.
    pub(super) fn asked(&mut self, now: Time, from: FromPeers) -> Result<Option<Event>, FromPeers> {
        let (end, what) = match from {
            FromPeers::Admit { expires, answer } => {
                // If it is gone, it is no loss.
                let _ = answer.send(now < expires);
                return Ok(None);
            }
            FromPeers::Written { partial, result } => {
                return Ok(Some(Event::Stage(stage::Event::Adopted { partial, result })));
            }
            FromPeers::Put { object, place, end } => {
                self.places.insert(self.next, place);
                (end, Visit::Put(object))
            }
            FromPeers::Drop { object, end } => (end, Visit::Drop(object)),
            other => return Err(other),
        };
        let visit = self.next;
        self.next += 1;
        self.ends.insert(visit, end);
        Ok(Some(Event::Visited(visit, what)))
    }

    /// Reserved room for the object that a visitor puts here, or the end of the
    /// visit if there is none.
    pub(super) fn placed(
        &mut self,
        visit: u64,
        tier: TierId,
        partial: PartialId,
    ) -> Option<FromObjects> {
        let place = self.places.remove(&visit);
        let is_told = place.is_some_and(|place| place.send((tier, partial)).is_ok());
        let gone = || WriteError::Failed("the client that put it is gone".to_owned());
        let adopted = || stage::Event::Adopted { partial, result: Err(gone()) };
        (!is_told).then(|| FromObjects::Stage(adopted()))
    }

    /// A visit is over.
    pub(super) fn ended(&mut self, visit: u64, end: VisitEnd) {
        self.places.remove(&visit);
        if let Some(told) = self.ends.remove(&visit) {
            // The visitor may be gone.
            let _ = told.send(end);
        }
    }
}
