//! What those who watch are told of and no record says, or not enough: executors that
//! come, go and are suspended, and tasks that run again. Nothing is gathered unless
//! somebody watches.

use super::Dispatcher;
use crate::events::What;
use crate::limits::ROUND_EVENTS_MAX;

#[derive(Debug, Default)]
pub(super) struct Happenings {
    /// The oldest first; `None` while nobody watches.
    gathered: Option<Vec<What>>,
    /// How many were too many.
    missing: u64,
}

impl Happenings {
    /// Notes what `what` gives, if anybody watches.
    pub(super) fn note(&mut self, what: impl FnOnce() -> What) {
        let Some(gathered) = &mut self.gathered else { return };
        match gathered.len() < ROUND_EVENTS_MAX {
            true => gathered.push(what()),
            false => self.missing += 1,
        }
    }

    fn take(&mut self) -> Vec<What> {
        let mut taken = self.gathered.as_mut().map(std::mem::take).unwrap_or_default();
        if self.missing > 0 {
            taken.push(What::Missing { events: std::mem::take(&mut self.missing) });
        }
        taken
    }
}

impl Dispatcher {
    /// From now on, gathers what [`Dispatcher::take_happenings`] returns.
    pub fn watch_happenings(&mut self) {
        self.happenings.gathered.get_or_insert_default();
    }

    /// What has happened since this was last called and is in no record. Call it after
    /// each round of [`Dispatcher::poll_action`]; it comes before the records of that
    /// round.
    pub fn take_happenings(&mut self) -> Vec<What> {
        self.happenings.take()
    }
}
