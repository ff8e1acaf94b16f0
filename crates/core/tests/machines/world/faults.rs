//! What goes wrong.

use super::World;
use super::dispatcher::Crash;
use super::links::Peer;
use falkon_core::dispatch::{ConnectionId, Event};
use falkon_core::limits::RECOVERY_MICROS_MAX;
use falkon_core::task::{ExecutorId, InstanceId, Time};

/// Which faults may happen, until `until`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Faults {
    pub(crate) until: Time,
    pub(crate) cuts: bool,
    pub(crate) silence: bool,
    pub(crate) deaths: bool,
    pub(crate) restarts: bool,
    /// All processes of some node are killed, many times a second.
    pub(crate) storms: bool,
    /// In so many of 100 cases a transfer or a write fails.
    pub(crate) transfers: u64,
    /// Files vanish from caches, one by one or all of a directory.
    pub(crate) losses: bool,
}

impl Faults {
    pub(crate) fn none() -> Faults {
        Faults {
            until: Time(0),
            cuts: false,
            silence: false,
            deaths: false,
            restarts: false,
            storms: false,
            transfers: 0,
            losses: false,
        }
    }
}

impl Faults {
    pub(super) fn any(&self) -> bool {
        self.cuts
            || self.silence
            || self.deaths
            || self.restarts
            || self.storms
            || self.transfers > 0
            || self.losses
    }
}

/// Who pauses and prioritizes instances, and drains executors; no link has this number.
const OPERATOR: ConnectionId = ConnectionId(u64::MAX);

/// Executors that there are at most, those that are gone included.
const NODES_MAX: usize = 12;

/// What somebody holds up.
#[derive(Debug, Clone, Copy)]
enum Held {
    Instance(InstanceId),
    Executor(ExecutorId),
}

impl World {
    fn add_node_like(&mut self, index: usize) {
        let node = &self.nodes[index];
        let (capacity, cache) = (node.capacity.clone(), node.cache.clone());
        self.add_node(capacity, cache, self.now);
    }

    /// Somebody pauses an instance, drains an executor, or lets one go on; or has an
    /// instance go before others, or after.
    fn hold_or_let_go(&mut self) {
        let is_held = self.holds.percent(50);
        let instances = self.dispatcher.instance_views().map(|view| Held::Instance(view.id()));
        let executors = self.dispatcher.executor_views().map(|view| Held::Executor(view.id()));
        let all: Vec<Held> = instances.chain(executors).collect();
        if !all.is_empty() && self.holds.percent(30) {
            let one = *self.holds.pick(&all);
            self.hold(one, is_held);
            if let Held::Instance(instance) = one {
                let priority = self.holds.below(3) as i32 - 1;
                let (connection, request) = (OPERATOR, 0);
                let event = Event::Prioritize { connection, request, instance, priority };
                self.dispatcher.handle(self.now, event);
                self.drain();
            }
        }
    }

    /// Nothing is held up any more.
    fn let_all_go(&mut self) {
        let instances = self.dispatcher.instance_views().map(|view| Held::Instance(view.id()));
        let executors = self.dispatcher.executor_views().map(|view| Held::Executor(view.id()));
        let all: Vec<Held> = instances.chain(executors).collect();
        for one in all {
            self.hold(one, false);
        }
    }

    fn hold(&mut self, what: Held, is_held: bool) {
        let (connection, request) = (OPERATOR, 0);
        self.note(|| format!("{what:?} is held: {is_held}"));
        let event = match what {
            Held::Instance(instance) => {
                Event::Pause { connection, request, instance, is_paused: is_held }
            }
            Held::Executor(executor) => {
                Event::Drain { connection, request, executor, is_drained: is_held }
            }
        };
        self.dispatcher.handle(self.now, event);
        self.drain();
    }

    pub(super) fn fault(&mut self) {
        if self.now >= self.faults.until {
            // A dispatcher that was restarted may not know all executors for a while.
            let last = self.faults.until.after(RECOVERY_MICROS_MAX);
            self.next_fault = (self.now < last).then(|| self.now.after(1_000_000));
            // The first node is there for good: whoever is muted is cut, so
            // that it comes back.
            let muted: Vec<u64> =
                self.links.iter().filter(|(_, link)| link.muted).map(|(id, _)| *id).collect();
            for id in muted {
                self.cut(id);
            }
            self.let_all_go();
            return;
        }
        if self.faults.storms {
            let index = self.rng.below(self.nodes.len() as u64) as usize;
            self.lose_processes(index);
        }
        let pause = if self.faults.storms { 200_000 } else { 600_000 };
        self.next_fault = Some(self.now.after(1 + self.rng.below(pause)));
        if self.has_data() {
            self.data_fault();
        }
        self.hold_or_let_go();
        self.change_users();
        let ids: Vec<u64> = self.links.keys().copied().collect();
        match self.rng.below(6) {
            0 | 1 if self.faults.cuts && !ids.is_empty() => {
                let id = *self.rng.pick(&ids);
                self.cut(id);
            }
            2 if self.faults.silence && !ids.is_empty() => {
                let id = *self.rng.pick(&ids);
                if let Some(link) = self.links.get_mut(&id)
                    && matches!(link.peer, Peer::Node(_))
                    && link.up_open
                    && link.down_open
                {
                    link.muted = true;
                }
            }
            3 if self.faults.deaths && (self.has_data() || self.nodes.len() > 1) => {
                let index = self.rng.below(self.nodes.len() as u64) as usize;
                if index < self.steadies {
                    self.lose_processes(index);
                } else if index == self.anchor {
                    // Another like it comes: what runs nowhere else is to end.
                    if self.has_data() && self.nodes.len() < NODES_MAX {
                        self.end_node(index);
                        self.anchor = self.nodes.len();
                        self.add_node_like(index);
                    }
                } else if self.nodes[index].alive {
                    match self.rng.below(4) {
                        0 | 1 => self.end_node(index),
                        2 => self.leave(index),
                        _ => self.lose_processes(index),
                    }
                } else if self.nodes.len() < NODES_MAX {
                    self.add_node_like(index);
                }
            }
            4 if self.faults.restarts => {
                let how = if self.rng.percent(50) { Crash::Before } else { Crash::After };
                self.crash = Some(how);
            }
            5 if self.faults.restarts && self.rng.percent(50) => self.restart(),
            _ => {}
        }
    }
}
