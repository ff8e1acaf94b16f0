//! The end of a round: its records in the journal, and what goes on while the
//! journal's disk is full.

use super::Driver;
use super::connection::{Inbound, Message};
use crate::pages::Pages;
use falkon_core::dispatch::ConnectionId;
use falkon_wire::message::FromClient;
use std::time::Duration;
use tokio::sync::mpsc;

/// Pause before a journal that could not be written is tried again.
const JOURNAL_RETRY_MS: u64 = 500;
/// Batches that wait while the journal cannot be written; more wait at their
/// senders.
const DEFERRED_BATCHES_MAX: usize = 1024;

/// Whether a message changes nothing, so that its answer need not wait.
fn is_question(message: &Message) -> bool {
    use FromClient::{Find, Objects, Status, Tasks};
    matches!(message, Message::Client(Status { .. } | Tasks { .. } | Objects { .. } | Find { .. }))
}

impl Driver {
    /// Writes the journal, however long that takes: while its disk is full
    /// nothing is acknowledged and nothing more is taken in. Returns false if
    /// it can never be written again.
    pub(super) async fn settle(&mut self, inbox: &mut mpsc::Receiver<Inbound>) -> bool {
        let mut complained = false;
        loop {
            let Some(store) = &mut self.store else { return true };
            match store.commit() {
                Ok(()) => break,
                Err(error) if error.is_final() => {
                    (self.log)(&format!("the journal has failed, ending: {error}"));
                    return false;
                }
                Err(error) => {
                    if !complained {
                        (self.log)(&format!("waiting until the journal can be written: {error}"));
                        complained = true;
                    }
                }
            }
            let pause = Duration::from_millis(JOURNAL_RETRY_MS);
            // It never ends by itself: answering is all there is to do meanwhile.
            let _ = tokio::time::timeout(pause, self.answer_only(inbox)).await;
        }
        if complained {
            (self.log)("the journal can be written again");
        }
        if let Some(store) = &mut self.store {
            let pages = self.pages.as_ref().map(Pages::written);
            store.compact_if_due(&self.core, pages, &self.log);
        }
        true
    }

    /// Answers who asks how things are, and puts off everything else.
    async fn answer_only(&mut self, inbox: &mut mpsc::Receiver<Inbound>) {
        while self.deferred.len() < DEFERRED_BATCHES_MAX {
            let Some(inbound) = inbox.recv().await else { break };
            self.answer_or_defer(inbound);
        }
        std::future::pending().await
    }

    fn answer_or_defer(&mut self, inbound: Inbound) {
        let now = self.clock.now();
        match inbound {
            Inbound::Opened { .. } => {
                self.take(now, inbound);
            }
            Inbound::Bundle(bundle) => {
                for inbound in bundle {
                    self.answer_or_defer(inbound);
                }
            }
            Inbound::Messages { connection, messages }
                if messages.iter().all(is_question) && !self.defers(connection) =>
            {
                // What the round wants sent stays until the journal has it.
                let outgoing = std::mem::take(&mut self.outgoing);
                self.take(now, Inbound::Messages { connection, messages });
                self.send();
                self.outgoing = outgoing;
            }
            inbound => self.deferred.push(inbound),
        }
    }

    /// Whether something that a peer said before has been put off.
    fn defers(&self, asker: ConnectionId) -> bool {
        self.deferred.iter().any(|batch| match batch {
            Inbound::Messages { connection, .. } | Inbound::Closed { connection, .. } => {
                *connection == asker
            }
            // Bundles are unpacked before they are put off.
            Inbound::Opened { .. }
            | Inbound::Written { .. }
            | Inbound::Bundle(_)
            | Inbound::Provision { .. }
            | Inbound::Stop => false,
        })
    }
}
