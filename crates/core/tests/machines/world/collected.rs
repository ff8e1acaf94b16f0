//! Outputs that are members of archives: nodes stage them, and write them.

use super::World;
use super::data::Due;
use crate::fates::{collected_stream, text_of};
use crate::node::Staged;
use crate::workload::Task;
use falkon_core::collect::WriteFailure;
use falkon_core::execute::{self, CollectAction, CollectEvent};

impl World {
    pub(super) fn act_collect(&mut self, index: usize, action: CollectAction) {
        match action {
            CollectAction::Stage { item, object, .. } => {
                let result = match self.fails() && self.rng.percent(40) {
                    true => Err("torn".to_owned()),
                    false => Ok(u64::MAX),
                };
                if result.is_ok() {
                    self.nodes[index].staged.insert(item, Staged::Output(object.id));
                }
                self.soon(Due::Collect(index, CollectEvent::Staged { item, result }));
            }
            CollectAction::StageStream { item, captured, .. } => {
                let result = match self.fails() && self.rng.percent(40) {
                    true => Err("torn".to_owned()),
                    false => Ok(u64::MAX),
                };
                if result.is_ok() {
                    self.nodes[index].staged.insert(item, Staged::Stream(captured.head));
                }
                self.soon(Due::Collect(index, CollectEvent::Staged { item, result }));
            }
            CollectAction::Write { write, archive, members } => {
                let staged = &self.nodes[index].staged;
                let place = |name: &str| format!("{archive}!{name}");
                let files = members.iter().map(|(item, name)| (place(name), staged[item].clone()));
                self.data.writes.insert((index, write), files.collect());
                let result = match (self.fails(), self.rng.below(8)) {
                    (false, _) => Ok(archive),
                    (true, 0) => Err(WriteFailure::Refused("no".to_owned())),
                    (true, 1) => Err(WriteFailure::Member(members[0].0, "torn".to_owned())),
                    (true, _) => Err(WriteFailure::Failed("full".to_owned())),
                };
                self.soon(Due::Collect(index, CollectEvent::Written { write, result }));
            }
            CollectAction::Discard(items) => {
                for item in items {
                    let staged = self.nodes[index].staged.remove(&item);
                    assert!(staged.is_some(), "node {index} has not staged {item:?}");
                }
            }
        }
    }

    pub(super) fn deliver_collected(&mut self, index: usize, event: CollectEvent) {
        if !self.nodes[index].alive {
            return;
        }
        if let CollectEvent::Written { write, result } = &event {
            let written = self.data.writes.remove(&(index, *write)).unwrap();
            for (place, staged) in written.into_iter().filter(|_| result.is_ok()) {
                match staged {
                    Staged::Output(object) => {
                        self.data.objects.reals.get_mut(&object).unwrap().in_store = true;
                    }
                    Staged::Stream(text) => {
                        self.data.printed.insert(place, text);
                    }
                }
            }
        }
        self.nodes[index].handle(self.now, execute::Event::Collect(event));
        self.pump_node(index);
    }

    /// A task that has succeeded has what it has printed in its archive, if it
    /// collects that.
    pub(super) fn judge_printed(&self, (client, id): (usize, u64), task: &Task) {
        if let Some(place) = collected_stream(client, task, id) {
            let text = text_of(client, id);
            assert_eq!(self.data.printed.get(&place), Some(&text), "{place} is not safe");
        }
    }

    /// A task that has succeeded has its outputs where they were to go.
    pub(super) fn judge_safe(&self, task: &Task, why: &str) {
        for id in task.data.iter().flat_map(|data| &data.outputs) {
            let real = &self.data.objects.reals[id];
            let is_safe = real.in_store || !real.object.is_stored();
            assert!(is_safe, "{why}: {} is not safe", real.object.url);
        }
    }
}
