//! Outputs that are members of archives: nodes stage them, and write them.

use super::World;
use super::data::Due;
use crate::fates::{collected_stream, text_of};
use crate::node::Staged;
use crate::workload::Task;
use falkon_core::collect::{ItemId, MemberName, WriteFailure, WriteId};
use falkon_core::execute::{self, CollectAction, CollectEvent, OfferId};

/// What a node has handed to another one.
#[derive(Debug)]
pub(super) struct Handed {
    from: usize,
    to: usize,
    write: WriteId,
    files: Vec<(String, Staged)>,
}

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
                    self.nodes[index].staged.insert(item, Staged::Stream(captured.head.clone()));
                }
                self.soon(Due::Collect(index, CollectEvent::Staged { item, result }));
            }
            CollectAction::Write { write, archive, members } => {
                let files = self.files_of(index, &archive, &members);
                self.data.writes.insert((index, write), files);
                let result = match (self.fails(), self.rng.below(8)) {
                    (false, _) => Ok(archive),
                    (true, 0) => Err(WriteFailure::Refused("no".to_owned())),
                    (true, 1) => Err(WriteFailure::Member(members[0].0, "torn".to_owned())),
                    (true, _) => Err(WriteFailure::Failed("full".to_owned())),
                };
                self.soon(Due::Collect(index, CollectEvent::Written { write, result }));
            }
            CollectAction::HandOver { write, to, archive, members, waited_micros } => {
                let files = self.files_of(index, &archive, &members);
                let to = self.nodes[index].files.peers.get(&to).copied();
                let Some(to) = to.filter(|to| self.nodes[*to].alive && !self.fails()) else {
                    return self.not_taken(index, write);
                };
                let offer = OfferId(self.data.next_offer);
                self.data.next_offer += 1;
                self.data.handed.insert(offer, Handed { from: index, to, write, files });
                let bytes = members.len() as u64;
                let event = CollectEvent::Offered { offer, archive, bytes, waited_micros };
                self.soon(Due::Collect(to, event));
            }
            CollectAction::TakeBack(write) => {
                let is_it = |handed: &Handed| (handed.from, handed.write) == (index, write);
                let found = self.data.handed.iter().find(|(_, handed)| is_it(handed));
                if let Some((offer, to)) = found.map(|(offer, handed)| (*offer, handed.to)) {
                    self.data.handed.remove(&offer);
                    self.soon(Due::Collect(to, CollectEvent::Withdrawn(offer)));
                }
            }
            CollectAction::Accept { offer, item } => {
                let handed = self.data.handed.get(&offer).map(|handed| handed.files.clone());
                let files = handed.filter(|_| !self.fails()).ok_or("it is gone".to_owned());
                let result = files.map(|files| {
                    self.nodes[index].staged.insert(item, Staged::Archive(files));
                    u64::MAX
                });
                self.soon(Due::Collect(index, CollectEvent::Received { offer, result }));
            }
            CollectAction::Answer { offer, result } => {
                let Some(Handed { from, write, files, .. }) = self.data.handed.remove(&offer)
                else {
                    return;
                };
                // The answer may be lost.
                match result.ok().filter(|_| !self.fails()) {
                    None => self.not_taken(from, write),
                    Some(path) => {
                        self.data.taken.insert((from, write), files);
                        let event = CollectEvent::Written { write, result: Ok(path) };
                        self.soon(Due::Collect(from, event));
                    }
                }
            }
            CollectAction::Discard(items) => {
                for item in items {
                    let staged = self.nodes[index].staged.remove(&item);
                    assert!(staged.is_some(), "node {index} has not staged {item:?}");
                }
            }
        }
    }

    /// What becomes of staged files in an archive.
    fn files_of(
        &self,
        index: usize,
        archive: &str,
        members: &[(ItemId, MemberName)],
    ) -> Vec<(String, Staged)> {
        let staged = &self.nodes[index].staged;
        let files = members.iter().flat_map(|(item, name)| match (name, staged[item].clone()) {
            (None, Staged::Archive(files)) => files,
            (Some(name), one) => vec![(format!("{archive}!{name}"), one)],
            (None, one) => panic!("{one:?} has no name"),
        });
        files.collect()
    }

    fn not_taken(&mut self, index: usize, write: WriteId) {
        let result = Err(WriteFailure::NotTaken("it is gone".to_owned()));
        self.soon(Due::Collect(index, CollectEvent::Written { write, result }));
    }

    /// A node is gone: so is what it has handed over, and what others have handed to it
    /// comes to nothing.
    pub(super) fn break_offers(&mut self, index: usize) {
        let is_of = |handed: &Handed| handed.from == index || handed.to == index;
        let broken: Vec<OfferId> = self
            .data
            .handed
            .iter()
            .filter(|(_, handed)| is_of(handed))
            .map(|(offer, _)| *offer)
            .collect();
        for offer in broken {
            let Some(Handed { from, to, write, .. }) = self.data.handed.remove(&offer) else {
                continue;
            };
            match to == index {
                true => self.not_taken(from, write),
                false => self.soon(Due::Collect(to, CollectEvent::Withdrawn(offer))),
            }
        }
    }

    /// What another node says it has written is in its archive.
    fn is_written(&self, place: &str, staged: &Staged) {
        match staged {
            Staged::Output(object) => {
                assert!(self.data.objects.reals[object].in_store, "{place} was not written");
            }
            Staged::Stream(text) => {
                assert_eq!(self.data.printed.get(place), Some(text), "{place} was not written");
            }
            Staged::Archive(_) => unreachable!("its members are written"),
        }
    }

    pub(super) fn deliver_collected(&mut self, index: usize, event: CollectEvent) {
        if !self.nodes[index].alive {
            return;
        }
        if let CollectEvent::Written { write, result } = &event {
            for (place, staged) in self.data.taken.remove(&(index, *write)).unwrap_or_default() {
                self.is_written(&place, &staged);
            }
            let written = self.data.writes.remove(&(index, *write)).unwrap_or_default();
            for (place, staged) in written.into_iter().filter(|_| result.is_ok()) {
                match staged {
                    Staged::Output(object) => {
                        self.data.objects.reals.get_mut(&object).unwrap().in_store = true;
                    }
                    Staged::Stream(text) => {
                        self.data.printed.insert(place, text);
                    }
                    Staged::Archive(_) => unreachable!("its members are written"),
                }
            }
        }
        self.nodes[index].handle(self.now, execute::Event::Collect(event));
        self.pump_node(index);
    }

    /// A task that has succeeded has what it has printed in its archive, if it
    /// collects that, or in its result.
    pub(super) fn judge_printed(&self, (client, id): (usize, u64), task: &Task) {
        let is_delivered = self.clients[client].printed.contains(&id);
        if let Some(place) = collected_stream(client, task, id).filter(|_| !is_delivered) {
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
