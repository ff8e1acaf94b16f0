//! What must be true in the end.

use super::World;
use crate::client::Client;
use crate::disk::Disk;
use crate::fates::{Fate, History};
use falkon_core::dispatch::{ConnectionId, Event, Record};
use falkon_core::result::Outcome;
use falkon_core::task::InstanceId;
use std::collections::{BTreeMap, BTreeSet};

impl World {
    /// How many tasks ended as lost.
    pub(crate) fn lost(&self) -> usize {
        let ends = self.clients.iter().flat_map(|client| &client.log);
        ends.filter(|(_, outcome, _)| *outcome == Outcome::Lost).count()
    }

    /// How many second tries of tasks were sent.
    pub(crate) fn copies(&self) -> u64 {
        self.losses.copies
    }

    /// Every client's results are those of the model.
    pub(crate) fn judge(&self) {
        for (index, client) in self.clients.iter().enumerate() {
            if client.destroyed {
                continue;
            }
            let plan = &client.plan;
            assert_eq!(client.log.len(), plan.tasks.len(), "client {index} has not all results");
            let mut ends = vec![(Outcome::Unreadable, 0); plan.tasks.len()];
            for (task, outcome, attempts) in &client.log {
                ends[*task as usize] = (*outcome, *attempts);
            }
            let outcomes: Vec<Outcome> = ends.iter().map(|(outcome, _)| *outcome).collect();
            let none = History::default();
            for (at, task) in plan.tasks.iter().enumerate() {
                let id = at as u64;
                let attempts = ends[at].1;
                let history = self.history.get(&(index, id)).unwrap_or(&none);
                let losses = client.instance.map_or(0, |instance| self.losses.of(instance, id));
                let came_back =
                    client.instance.is_some_and(|instance| self.losses.came_back(instance, id));
                let was_cancelled = client.cancelled.contains(id);
                let fate = Fate {
                    client: index,
                    id,
                    task,
                    history,
                    losses,
                    came_back,
                    was_cancelled,
                    attempts,
                };
                fate.judge(&outcomes);
                let starts = history.starts;
                if task.class.speculate {
                    continue;
                }
                if ran(outcomes[at]) {
                    assert!(starts <= u64::from(attempts), "{starts} starts: {fate:?}");
                }
                let is_calm = !self.faults.any() && client.cancelled.is_empty();
                assert!(!is_calm || starts == u64::from(attempts), "{starts} starts: {fate:?}");
            }
        }
    }

    /// At rest, executors keep exactly what the results refer to that the
    /// dispatcher holds.
    pub(super) fn judge_outputs(&self) {
        let of_clients = self.clients.iter().flat_map(Client::kept_outputs);
        let of_clients = of_clients.filter(|_| !self.is_over);
        let mut held: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
        for overflow in of_clients {
            held.entry(overflow.incarnation).or_default().insert(overflow.number);
        }
        for (index, node) in self.nodes.iter().enumerate().filter(|(_, node)| node.alive) {
            let held = held.remove(&node.incarnation).unwrap_or_default();
            assert_eq!(node.kept, held, "node {index} keeps what no result refers to, or less");
        }
    }

    /// All instances are destroyed and all nodes leave; nothing is left over.
    pub(crate) fn wind_up(&mut self) {
        self.run_for(30_000_000);
        for (index, node) in self.nodes.iter().enumerate().filter(|(_, node)| node.alive) {
            assert!(node.connection.is_some(), "node {index} has not come back");
            assert!(node.machine.is_idle(), "node {index} still has something to do");
            let kept = node.templates.len();
            let live = self.clients.iter().filter(|client| !client.is_done()).count();
            assert!(kept == 0 || live > 0, "node {index} keeps {kept} templates");
        }
        self.judge_outputs();
        let ids: Vec<InstanceId> = self.dispatcher.instance_views().map(|view| view.id()).collect();
        for (request, instance) in ids.into_iter().enumerate() {
            let connection = ConnectionId(u64::MAX);
            let request = request as u64;
            self.dispatcher.handle(self.now, Event::Destroy { connection, request, instance });
        }
        self.drain();
        self.is_over = true;
        self.run_for(1_000_000);
        self.judge_outputs();
        for index in 0..self.nodes.len() {
            if self.nodes[index].alive {
                self.leave(index);
            }
        }
        self.run_for(30_000_000);
        assert!(self.nodes.iter().all(|node| !node.alive), "a node did not leave");
        assert_eq!(self.dispatcher.executor_views().count(), 0);
        assert_eq!(self.dispatcher.instance_views().count(), 0);
        assert_eq!(self.dispatcher.poll_timeout(), None);
        assert!(self.disk.as_ref().is_none_or(Disk::is_empty), "a page outlives all instances");
        self.dispatcher.check().unwrap();
        let mut rest: Vec<Record> = self.recovered().snapshot();
        rest.retain(|record| !matches!(record, Record::Remembered(_)));
        assert!(rest.len() <= 4, "a journal of nothing is compacted to {rest:?}");
    }
}

/// Whether a task may have run that ended so.
fn ran(outcome: Outcome) -> bool {
    let stopped = [Outcome::TimedOut, Outcome::Lost, Outcome::Cancelled].contains(&outcome);
    stopped || matches!(outcome, Outcome::Exit(_) | Outcome::Signal(_) | Outcome::NoOutput)
}
