//! Outputs that become members of archives: nodes stage them and write them to the
//! store that everybody reaches.

use super::{Happening, World};
use falkon_core::collect::{ItemId, MemberName, WriteId};
use falkon_core::data::declared::{Declared, Lists};
use falkon_core::data::object::{Object, ObjectId};
use falkon_core::execute::{self, CollectAction, CollectEvent};
use falkon_core::task::{TaskClass, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What is staged and what is safe.
#[derive(Default)]
pub(super) struct Archives {
    /// The members that each process of an executor, by its incarnation, has staged.
    staged: BTreeMap<(u64, ItemId), String>,
    /// The members that are in a file of an archive.
    safe: BTreeSet<String>,
    /// The store takes nothing: who waits for it.
    away: Option<Vec<Waiting>>,
}

/// A node, its process, and what it writes: an archive and members.
type Waiting = (usize, u64, WriteId, Arc<str>, Vec<String>);

/// The member of a task.
fn member(task: u64) -> String {
    format!("/store/a{}.zip!{task}", task % 3)
}

impl World {
    /// Submits so many tasks at the root, each with a member of an archive.
    pub(crate) fn submit_collected(&mut self, count: u64, class: TaskClass) {
        let objects = (self.submitted..self.submitted + count).map(|task| Object {
            id: ObjectId(u128::from(2_000_000 + task)),
            url: member(task).into(),
            version: "task".into(),
            size: None,
        });
        let data = Declared {
            objects: Arc::new(objects.collect()),
            inputs: Lists::default(),
            outputs: Lists::Each {
                items: Arc::new((0..count as u32).collect()),
                ends: Arc::new((1..=count as u32).collect()),
            },
        };
        self.submit_with(count, class, Some(Arc::new(data)));
    }

    /// Whether the member of a task is in its archive.
    pub(crate) fn is_safe(&self, task: u64) -> bool {
        self.archives.safe.contains(&member(task))
    }

    /// How many members the processes of executors have staged that are there.
    pub(crate) fn staged(&self) -> u64 {
        let is_there = |incarnation| self.nodes.iter().any(|node| node.incarnation == incarnation);
        let staged = self.archives.staged.keys().filter(|(incarnation, _)| is_there(*incarnation));
        staged.count() as u64
    }

    /// The store takes nothing until it is back.
    pub(crate) fn store_goes(&mut self) {
        self.archives.away.get_or_insert_default();
    }

    pub(crate) fn store_comes_back(&mut self) {
        for (node, incarnation, write, archive, members) in
            self.archives.away.take().into_iter().flatten()
        {
            if self.nodes[node].incarnation == incarnation {
                self.write(node, write, archive, members);
            }
        }
    }

    pub(super) fn collect(&mut self, node: usize, incarnation: u64, event: CollectEvent) {
        if self.nodes[node].incarnation == incarnation {
            let event = execute::Event::Collect(event);
            self.nodes[node].machine.handle(Time(self.now), event);
            self.pump_node(node);
        }
    }

    pub(super) fn act_collect(&mut self, node: usize, action: CollectAction) {
        let incarnation = self.nodes[node].incarnation;
        match action {
            CollectAction::Stage { item, object, .. } => {
                self.archives.staged.insert((incarnation, item), object.url.to_string());
                let event = CollectEvent::Staged { item, result: Ok(u64::MAX) };
                let micros = 1 + self.rng.below(2000);
                self.later(micros, Happening::Collect(node, incarnation, event));
            }
            CollectAction::Write { write, archive, members } => {
                let members = self.members_of(incarnation, &members);
                match &mut self.archives.away {
                    Some(waiting) => waiting.push((node, incarnation, write, archive, members)),
                    None => self.write(node, write, archive, members),
                }
            }
            CollectAction::Discard(items) => {
                for item in items {
                    self.archives.staged.remove(&(incarnation, item));
                }
            }
            other => panic!("the shell is to do {other:?}"),
        }
    }

    fn members_of(&self, incarnation: u64, members: &[(ItemId, MemberName)]) -> Vec<String> {
        let members = members.iter();
        members.map(|(item, _)| self.archives.staged[&(incarnation, *item)].clone()).collect()
    }

    /// Members are in a file of an archive; the answer may come too late.
    fn write(&mut self, node: usize, write: WriteId, archive: Arc<str>, members: Vec<String>) {
        self.archives.safe.extend(members);
        let incarnation = self.nodes[node].incarnation;
        let event = CollectEvent::Written { write, result: Ok(archive) };
        let micros = 1 + self.rng.below(500_000);
        self.later(micros, Happening::Collect(node, incarnation, event));
    }
}
