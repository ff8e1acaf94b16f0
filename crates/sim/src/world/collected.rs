//! Outputs of tasks: each a file on the store, or a member of an archive that executors
//! collect, alone or for each other.
//!
//! What is staged is on the node's disk in no time; what takes time is the store, with
//! its creates one after another, and what nodes hand to each other.

use super::World;
use super::error::Broken;
use super::transfer::{Ends, Sender, TransferId};
use crate::event_queue::Event;
use crate::scenario::Outputs;
use falkon_core::collect::{ItemId, MemberName, WriteFailure, WriteId};
use falkon_core::data::object::{Object, ObjectId};
use falkon_core::execute::{CollectAction, CollectEvent, Event as CoreEvent, OfferId, TaskKey};
use std::collections::BTreeMap;

/// Outputs have numbers from here on, inputs lower ones.
const OUTPUTS_FROM: u128 = 1 << 127;

/// The output of a task of the workload.
pub(super) fn output(outputs: &Outputs, index: u64) -> Object {
    let url = match outputs.are_collected {
        true => format!("/store/out.zip!{index}"),
        false => format!("/store/{index}"),
    };
    let id = ObjectId(OUTPUTS_FROM + u128::from(index));
    Object { id, url: url.into(), version: "1".into(), size: None }
}

/// A node, and which of its executors.
type At = (u32, u64);

/// What a node hands to another.
#[derive(Debug)]
struct Handed {
    from: At,
    to: At,
    write: WriteId,
    bytes: u64,
    item: Option<ItemId>,
    transfer: Option<TransferId>,
}

/// What nodes hand to each other.
#[derive(Debug, Default)]
pub(super) struct Handovers {
    open: BTreeMap<OfferId, Handed>,
    next: u64,
}

fn not_taken(write: WriteId) -> CollectEvent {
    let result = Err(WriteFailure::NotTaken("it is gone".to_owned()));
    CollectEvent::Written { write, result }
}

impl World<'_> {
    /// Carries out what an executor wants done with outputs that are collected.
    pub(super) fn act_on_outputs(
        &mut self,
        number: u32,
        action: CollectAction,
    ) -> Result<(), Broken> {
        match action {
            CollectAction::Stage { item, .. } => {
                let bytes = self.output_bytes();
                self.nodes[number as usize].staged.insert(item, bytes);
                let result = Ok(u64::MAX);
                self.hear_collected(number, CollectEvent::Staged { item, result });
            }
            CollectAction::StageStream { .. } => {
                return Err(Broken(format!("node {number} collects what no task has printed")));
            }
            CollectAction::Write { write, members, .. } => {
                let bytes = self.staged_bytes(number, &members)?;
                self.use_store(self.events.now, number, bytes, Ends::Collected { write });
            }
            CollectAction::HandOver { write, to, archive, members, waited_micros } => {
                let bytes = self.staged_bytes(number, &members)?;
                let Some(to) = self.nodes[number as usize].objects.listens(to) else {
                    self.hear_collected(number, not_taken(write));
                    return Ok(());
                };
                let offer = OfferId(self.handovers.next);
                self.handovers.next += 1;
                let from = (number, self.nodes[number as usize].incarnation);
                let handed = Handed { from, to, write, bytes, item: None, transfer: None };
                self.handovers.open.insert(offer, handed);
                let event = CollectEvent::Offered { offer, archive, bytes, waited_micros };
                self.tell_collector(to, event);
            }
            CollectAction::TakeBack(write) => {
                let incarnation = self.nodes[number as usize].incarnation;
                let is_it = |one: &Handed| (one.from, one.write) == ((number, incarnation), write);
                let found = self.handovers.open.iter().find(|(_, handed)| is_it(handed));
                if let Some(offer) = found.map(|(offer, _)| *offer) {
                    self.withdraw(offer);
                }
            }
            CollectAction::Accept { offer, item } => match self.handovers.open.get_mut(&offer) {
                None => {
                    let result = Err("it is taken back".to_owned());
                    self.hear_collected(number, CollectEvent::Received { offer, result });
                }
                Some(handed) => {
                    let (node, incarnation) = handed.from;
                    let from = Sender { node, incarnation, serves: false };
                    let ends = Ends::Handed { offer };
                    let transfer = self.transfers.add(number, Some(from), handed.bytes, ends);
                    (handed.item, handed.transfer) = (Some(item), Some(transfer));
                    let latency = self.scenario.network.latency;
                    let opens = self.events.now.after(latency).after(latency);
                    self.events.plan(opens, Event::TransferOpens(transfer));
                }
            },
            CollectAction::Answer { offer, result } => {
                if let Some(Handed { from, write, .. }) = self.handovers.open.remove(&offer) {
                    let result = result.map_err(WriteFailure::NotTaken);
                    self.tell_collector(from, CollectEvent::Written { write, result });
                }
            }
            CollectAction::Discard(items) => {
                let staged = &mut self.nodes[number as usize].staged;
                if items.iter().any(|item| staged.remove(item).is_none()) {
                    return Err(Broken(format!("node {number} deletes what it has not staged")));
                }
            }
        }
        Ok(())
    }

    fn output_bytes(&self) -> u64 {
        self.scenario.workload.outputs.map_or(0, |outputs| outputs.bytes)
    }

    fn staged_bytes(&self, number: u32, members: &[(ItemId, MemberName)]) -> Result<u64, Broken> {
        let staged = &self.nodes[number as usize].staged;
        let bytes: Option<u64> = members.iter().map(|(item, _)| staged.get(item)).sum();
        bytes.ok_or_else(|| Broken(format!("node {number} writes what it has not staged")))
    }

    fn hear_collected(&mut self, number: u32, event: CollectEvent) {
        self.nodes[number as usize].ended.push(CoreEvent::Collect(event));
    }

    fn tell_collector(&mut self, (node, incarnation): At, event: CollectEvent) {
        let at = self.events.now.after(self.scenario.network.latency);
        let event = Box::new(event);
        self.events.plan(at, Event::Collects { node, incarnation, event });
    }

    /// A node hears from another of outputs that are collected.
    pub(super) fn collects(
        &mut self,
        number: u32,
        incarnation: u64,
        event: CollectEvent,
    ) -> Result<(), Broken> {
        let node = &self.nodes[number as usize];
        if node.incarnation == incarnation && node.down_until <= self.events.now {
            self.hear_collected(number, event);
            return self.pump(number);
        }
        if let CollectEvent::Offered { offer, .. } = event
            && let Some(Handed { from, write, .. }) = self.handovers.open.remove(&offer)
        {
            self.tell_collector(from, not_taken(write));
        }
        Ok(())
    }

    fn withdraw(&mut self, offer: OfferId) {
        let Some(handed) = self.handovers.open.remove(&offer) else { return };
        if let Some(transfer) = handed.transfer
            && self.transfers.end(transfer).is_some()
        {
            let result = Err("it is taken back".to_owned());
            self.tell_collector(handed.to, CollectEvent::Received { offer, result });
        }
        self.tell_collector(handed.to, CollectEvent::Withdrawn(offer));
    }

    /// An executor is gone: so is what it has handed over, and nobody collects what it
    /// was handed.
    pub(super) fn break_handovers(&mut self, at: At) {
        let open = self.handovers.open.iter();
        let broken = open.filter(|(_, handed)| handed.from == at || handed.to == at);
        let broken: Vec<OfferId> = broken.map(|(offer, _)| *offer).collect();
        for offer in broken {
            match self.handovers.open.get(&offer) {
                Some(Handed { from, to, write, .. }) if *to == at => {
                    let (from, event) = (*from, not_taken(*write));
                    self.handovers.open.remove(&offer);
                    self.tell_collector(from, event);
                }
                _ => self.withdraw(offer),
            }
        }
    }

    /// What another node has staged is here.
    pub(super) fn has_come(&mut self, number: u32, offer: OfferId) -> Result<(), Broken> {
        let Some(handed) = self.handovers.open.get_mut(&offer) else { return Ok(()) };
        handed.transfer = None;
        let Some(item) = handed.item else { return Ok(()) };
        let bytes = handed.bytes;
        self.nodes[number as usize].staged.insert(item, bytes);
        self.hear_collected(number, CollectEvent::Received { offer, result: Ok(u64::MAX) });
        self.pump(number)
    }

    /// What another node has staged does not come.
    pub(super) fn has_not_come(&mut self, number: u32, offer: OfferId) -> Result<(), Broken> {
        let result = Err("it is gone".to_owned());
        self.hear_collected(number, CollectEvent::Received { offer, result });
        self.pump(number)
    }

    /// A file of an archive is on the store.
    pub(super) fn has_collected(&mut self, number: u32, write: WriteId) -> Result<(), Broken> {
        self.measured.files += 1;
        let result = Ok("/store/out.zip".into());
        self.hear_collected(number, CollectEvent::Written { write, result });
        self.pump(number)
    }

    /// A process that has computed writes a file to the store, if it has to.
    pub(super) fn begin_put(
        &mut self,
        number: u32,
        (key, index): (TaskKey, u64),
    ) -> Option<TransferId> {
        let workload = &self.scenario.workload;
        let recorded = workload.needs().map_or(0, |needs| needs.stored_bytes(index));
        let bytes = match workload.outputs {
            Some(outputs) => (!outputs.are_collected).then_some(outputs.bytes),
            None => (recorded > 0).then_some(recorded),
        };
        Some(self.use_store(self.events.now, number, bytes?, Ends::Put { key }))
    }

    /// The sizes of what a task has written; `None` if tasks write nothing.
    pub(super) fn written_sizes(&self, index: u64) -> Option<Vec<u64>> {
        let workload = &self.scenario.workload;
        if let Some(outputs) = workload.outputs {
            return Some(vec![outputs.bytes]);
        }
        let needs = workload.needs().filter(|_| self.scenario.stages())?;
        let written = needs.writes.of(index);
        let sizes = written.iter().map(|object| needs.bytes(*object));
        (!written.is_empty()).then(|| sizes.collect())
    }
}
