//! Needs that nobody offers, of instances whose tasks fail for that: since when
//! each has been without anybody.
//!
//! An executor that offers a need may be away for a moment only, or still be on
//! its way when the first of others are there. So nothing fails before nobody
//! has offered its need for as long as its instance says.

use super::Dispatcher;
use super::instance::QueueKey;
use crate::task::{InstanceId, Resources, Time};
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub(super) struct Unoffered {
    since: BTreeMap<(InstanceId, QueueKey), Time>,
    /// When the next of them has waited for long enough.
    due: Option<Time>,
    /// Nodes that a provisioner can still ask for; `None` for one of which it
    /// is not known yet what it offers.
    obtainable: Vec<Option<Resources>>,
}

impl Unoffered {
    pub(super) fn due(&self) -> Option<Time> {
        self.due
    }

    /// Whether it is time to look again; then it is not, until the next look.
    pub(super) fn take_due(&mut self, now: Time) -> bool {
        self.due.take_if(|at| *at <= now).is_some()
    }

    pub(super) fn can_be_obtained(&self, need: &Resources) -> bool {
        self.obtainable.iter().any(|node| node.as_ref().is_none_or(|node| node.fits(need)))
    }

    pub(super) fn obtainable(&self) -> &[Option<Resources>] {
        &self.obtainable
    }

    /// Takes in all queues that nobody has offered anything for at `now`, with
    /// the time in microseconds that each is given. Returns those whose time is
    /// over.
    pub(super) fn look(
        &mut self,
        now: Time,
        queues: impl IntoIterator<Item = ((InstanceId, QueueKey), u64)>,
    ) -> Vec<(InstanceId, QueueKey)> {
        let before = std::mem::take(&mut self.since);
        self.due = None;
        let mut over = Vec::new();
        for (queue, micros) in queues {
            let since = before.get(&queue).copied().unwrap_or(now);
            let due = since.after(micros);
            if due <= now {
                over.push(queue);
                continue;
            }
            self.since.insert(queue, since);
            self.due = Some(self.due.map_or(due, |earliest| earliest.min(due)));
        }
        over
    }
}

impl Dispatcher {
    /// Says what nodes a provisioner can still ask for; `None` for one of which
    /// it is not known yet what it offers. Tasks that such a node could run do
    /// not fail because nobody offers what they need now.
    pub fn set_obtainable(&mut self, nodes: Vec<Option<Resources>>) {
        if self.unoffered.obtainable != nodes {
            self.unoffered.obtainable = nodes;
            self.unplaced = true;
        }
    }
}
