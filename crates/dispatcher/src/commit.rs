//! The end of a round: its records in the journal, and what goes on while they
//! cannot be written.

use super::Driver;
use super::answers::is_question;
use super::peer::{Inbound, Message, Outgoing};
use falkon_core::dispatch::{Disk, Event};
use falkon_core::task::Time;
use falkon_wire::message::ToClient;
use std::time::Duration;
use tokio::time::Instant;

/// Pause before a journal that could not be written is tried again.
const JOURNAL_RETRY_MS: u64 = 500;
/// Messages that wait for the journal before nothing more is taken in.
const UNCOMMITTED_MESSAGES_MAX: usize = 1 << 20;

/// How a round has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Committed {
    /// The messages of the round may be sent.
    Written,
    /// Nothing that depends on its records may be sent yet.
    Waits,
    /// The journal can never be written again.
    Failed,
}

impl Driver {
    /// Writes the journal. While that cannot be done, nothing is acknowledged
    /// and no task is dispatched, and everything else goes on: what ends
    /// instances, so that a snapshot without them finds room, and reports and
    /// heartbeats.
    pub(super) fn commit(&mut self) -> Committed {
        let Some(store) = &mut self.store else { return Committed::Written };
        if self.retry_at.is_some_and(|at| at > Instant::now()) {
            return Committed::Waits;
        }
        let pages = self.pages.as_ref().map(crate::pages::Pages::written);
        match store.commit() {
            Ok(()) => {
                let took_ballast = store.took_ballast();
                let was_blocked = self.retry_at.take().is_some();
                if was_blocked {
                    (self.log)("the journal can be written again");
                }
                if took_ballast || was_blocked {
                    self.measure();
                }
            }
            Err(error) if error.is_final() => {
                (self.log)(&format!("the journal has failed, ending: {error}"));
                return Committed::Failed;
            }
            Err(error) => {
                let at = Instant::now() + Duration::from_millis(JOURNAL_RETRY_MS);
                if self.retry_at.replace(at).is_none() {
                    (self.log)(&format!("waiting until the journal can be written: {error}"));
                    self.measure();
                }
            }
        }
        let is_blocked = self.retry_at.is_some();
        if let Some(store) = &mut self.store {
            store.compact_if_due(&self.core, pages, is_blocked, &self.log);
            store.gauge().watch(self.core.awaits_room());
        }
        if is_blocked { Committed::Waits } else { Committed::Written }
    }

    /// Takes in what was measured of the journal's disk since the last round.
    pub(super) fn take_measured(&mut self) {
        if !self.store.as_ref().is_some_and(|store| store.gauge().is_new()) {
            return;
        }
        // There may be room.
        self.retry_at = self.retry_at.map(|_| Instant::now());
        self.measure();
    }

    /// Passes on what was measured of the journal's disk.
    pub(super) fn measure(&mut self) {
        let Some(store) = &self.store else { return };
        let measured = store.gauge().last();
        let lacked_room = self.core.lacks_room();
        let disk = Disk {
            directory: store.directory(),
            free_bytes: measured.free_bytes,
            missing_bytes: measured.missing_bytes(),
            is_blocked: self.retry_at.is_some(),
        };
        self.core.handle(self.clock.now(), Event::DiskMeasured(disk));
        let (lacks_room, wanted) = (self.core.lacks_room(), self.core.reserved_bytes());
        if lacks_room != lacked_room {
            (self.log)(&match lacks_room {
                true => format!(
                    "{} has {} bytes free, and {wanted} are wanted: nothing more is accepted \
                     until there is room, or instances have ended",
                    store.directory(),
                    measured.free_bytes
                ),
                false => "there is room again: submissions are accepted".to_owned(),
            });
        }
        store.gauge().watch(self.core.awaits_room());
        if let Some(pages) = &self.pages {
            pages.written().leave(wanted);
        }
    }

    /// Whether messages are taken in: not beyond what may wait for the journal.
    pub(super) fn takes_in(&self) -> bool {
        self.retry_at.is_none() || self.outgoing.len() < UNCOMMITTED_MESSAGES_MAX
    }

    /// Takes one batch in while the journal cannot be written. Who asks how
    /// things are is answered at once. Returns whether to stop.
    pub(super) fn take_uncommitted(&mut self, now: Time, inbound: Inbound) -> bool {
        let asks = |message: &Message| matches!(message, Message::Client(one) if is_question(one));
        match inbound {
            Inbound::Bundle(bundle) => {
                let mut stop = false;
                for inbound in bundle {
                    stop |= self.take_uncommitted(now, inbound);
                }
                stop
            }
            Inbound::Messages { connection, messages } if messages.iter().all(asks) => {
                // Messages that wait for the journal stay where they are.
                let outgoing = std::mem::take(&mut self.outgoing);
                let refused = std::mem::take(&mut self.refused);
                let stop = self.take(now, Inbound::Messages { connection, messages });
                self.send_released();
                (self.outgoing, self.refused) = (outgoing, refused);
                stop
            }
            inbound => self.take(now, inbound),
        }
    }

    /// Sends the refusals among what was added from `from` on. They depend on
    /// no record, and a refused client tries again later.
    pub(super) fn send_refusals(&mut self, from: usize) {
        let is_refusal =
            |message: &Outgoing| matches!(message, Outgoing::Client(ToClient::Refused { .. }));
        let added = self.outgoing.split_off(from.min(self.outgoing.len()));
        let (refusals, others): (Vec<_>, Vec<_>) =
            added.into_iter().partition(|(_, message)| is_refusal(message));
        self.outgoing.extend(others);
        if !refusals.is_empty() {
            let outgoing = std::mem::replace(&mut self.outgoing, refusals);
            let refused = std::mem::take(&mut self.refused);
            self.send();
            (self.outgoing, self.refused) = (outgoing, refused);
        }
    }
}
