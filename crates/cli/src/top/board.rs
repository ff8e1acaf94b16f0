//! What `falkon top` shows, and what keys do.

use crate::query::Action;
use crate::query::tree::{Branch, branches};
use crate::users::totals;
use falkon_core::data::stage::Usage;
use falkon_core::task::{ExecutorId, InstanceId, MILLI, Time};
use falkon_wire::message::{ExecutorStatus, InstanceStatus, Status};
use std::collections::{BTreeMap, VecDeque};

/// The time over which rates are means.
const RATE_MICROS: u64 = 10_000_000;
/// Looks that rates are made from, at most.
const LOOKS_MAX: usize = 64;
/// Lines that a page key moves by.
const PAGE_LINES: usize = 10;

/// A key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    Letter(char),
    Up,
    Down,
    PageUp,
    PageDown,
    OtherList,
    Back,
    Quit,
}

/// What the user wants done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Act(Action),
    /// From now on, why tasks of this instance wait.
    Explain(Option<InstanceId>),
    Quit,
}

/// What the dispatcher says.
#[derive(Debug)]
pub(crate) enum News {
    Status(Status),
    Explained(InstanceId, String),
    /// What came of an order.
    Said(String),
    /// Why the dispatcher does not answer; it is asked again.
    Lost(String),
}

/// The list that keys are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum List {
    #[default]
    Instances,
    Executors,
    Relays,
    Users,
}

/// How many tasks had ended at a time, by instance, and by the way to a relay.
#[derive(Debug)]
struct Look {
    at: Time,
    ended: BTreeMap<u64, u64>,
    below: BTreeMap<String, u64>,
}

/// All that is shown.
#[derive(Debug, Default)]
pub(crate) struct Board {
    pub(crate) status: Status,
    /// The relays of the status.
    pub(super) relays: Vec<Branch>,
    pub(super) list: List,
    /// What is selected in each list, which may be gone.
    instance: Option<u64>,
    executor: Option<ExecutorId>,
    relay: Option<String>,
    user: Option<String>,
    looks: VecDeque<Look>,
    /// Why tasks of an instance wait.
    pub(super) explained: Option<(InstanceId, String)>,
    /// The instance that is to be cancelled if the user confirms it.
    pub(super) asked: Option<InstanceId>,
    pub(super) said: String,
    /// Why what is shown is old, if it is.
    pub(crate) lost: Option<String>,
}

fn ended(instance: &InstanceStatus) -> u64 {
    let counts = &instance.counts;
    counts.done + counts.failed + counts.cancelled
}

/// Whether an executor is given no tasks for now.
pub(crate) fn takes_nothing(executor: &ExecutorStatus) -> bool {
    !executor.connected || executor.drained || executor.suspended_until.is_some()
}

impl Board {
    /// Takes in what the dispatcher says.
    pub(crate) fn take(&mut self, news: News) {
        match news {
            News::Status(status) => self.look(status),
            News::Explained(instance, reasons) => self.explained = Some((instance, reasons)),
            News::Said(said) => self.said = said,
            News::Lost(reason) => self.lost = Some(reason),
        }
    }

    fn look(&mut self, mut status: Status) {
        self.lost = None;
        // What goes on comes first, then what is over; what needs care, then the rest.
        status.instances.sort_by_key(|instance| (instance.complete, instance.id));
        status.executors.sort_by_key(|executor| (!takes_nothing(executor), executor.id));
        let counted = status.instances.iter().map(|one| (one.id, ended(one))).collect();
        // A dispatcher that was started again has another clock, perhaps.
        if self.looks.back().is_some_and(|last| last.at >= status.now) {
            self.looks.clear();
        }
        self.relays = branches(&status);
        let below = self.relays.iter().map(|one| (one.path.clone(), one.standing.ended)).collect();
        self.looks.push_back(Look { at: status.now, ended: counted, below });
        let is_old = |look: &Look| status.now.since(look.at) > RATE_MICROS;
        while self.looks.len() > LOOKS_MAX || self.looks.get(1).is_some_and(is_old) {
            self.looks.pop_front();
        }
        self.status = status;
        let has = |id: &u64| self.status.instances.iter().any(|one| one.id == *id);
        if !self.instance.as_ref().is_some_and(has) {
            self.instance = self.status.instances.first().map(|one| one.id);
        }
        let has = |id: &ExecutorId| self.status.executors.iter().any(|one| one.id == *id);
        if !self.executor.as_ref().is_some_and(has) {
            self.executor = self.status.executors.first().map(|one| one.id);
        }
        if self.relay_at().is_none() {
            self.relay = self.relays.first().map(|one| one.path.clone());
        }
        if self.user_at().is_none() {
            self.user = totals(&self.status).first().map(|one| one.name.to_owned());
        }
        let is_gone = match self.list {
            List::Relays => self.relays.is_empty(),
            List::Users => self.status.users.is_empty(),
            List::Instances | List::Executors => false,
        };
        if is_gone {
            self.list = List::default();
        }
    }

    /// Tasks that end in a second below a relay.
    pub(super) fn rate_below(&self, path: &str) -> f64 {
        let (Some(first), Some(last)) = (self.looks.front(), self.looks.back()) else { return 0.0 };
        // A relay that has come meanwhile, or was started again, counts from then on.
        let (Some(before), Some(now)) = (first.below.get(path), last.below.get(path)) else {
            return 0.0;
        };
        match last.at.since(first.at) {
            0 => 0.0,
            micros => now.saturating_sub(*before) as f64 * 1e6 / micros as f64,
        }
    }

    /// Tasks that end in a second, of an instance or in all.
    pub(crate) fn rate(&self, instance: Option<u64>) -> f64 {
        let (Some(first), Some(last)) = (self.looks.front(), self.looks.back()) else { return 0.0 };
        let count = |look: &Look, id: &u64| look.ended.get(id).copied().unwrap_or(0);
        let more = |id: &u64| count(last, id).saturating_sub(count(first, id));
        let more = match instance {
            Some(id) => more(&id),
            None => last.ended.keys().map(more).sum(),
        };
        match last.at.since(first.at) {
            0 => 0.0,
            micros => more as f64 * 1e6 / micros as f64,
        }
    }

    /// CPUs in use, and all, in thousandths.
    pub(crate) fn cpus_milli(&self) -> (u64, u64) {
        let there = self.status.executors.iter().filter(|executor| executor.connected);
        there.fold((0, 0), |(used, all), executor| {
            let capacity = u64::from(executor.capacity.cpus_milli);
            (used + capacity.saturating_sub(executor.free.cpus_milli.into()), all + capacity)
        })
    }

    /// Where inputs came from, by all executors that are there.
    pub(crate) fn usage(&self) -> Usage {
        let mut all = Usage::default();
        for cache in self.status.executors.iter().filter_map(|executor| executor.cache) {
            all.add(&cache.state.usage);
        }
        all
    }

    /// The place of what is selected in the list of instances.
    pub(super) fn instance_at(&self) -> Option<usize> {
        self.status.instances.iter().position(|one| Some(one.id) == self.instance)
    }

    /// The place of what is selected in the list of executors.
    pub(super) fn executor_at(&self) -> Option<usize> {
        self.status.executors.iter().position(|one| Some(one.id) == self.executor)
    }

    /// The place of what is selected in the list of relays.
    pub(super) fn relay_at(&self) -> Option<usize> {
        self.relays.iter().position(|one| Some(&one.path) == self.relay.as_ref())
    }

    /// The place of what is selected in the list of users.
    pub(super) fn user_at(&self) -> Option<usize> {
        totals(&self.status).iter().position(|one| Some(one.name) == self.user.as_deref())
    }

    /// The list that comes after the one that keys are about.
    pub(super) fn next_list(&self) -> List {
        match self.list {
            List::Instances => List::Executors,
            List::Executors if !self.relays.is_empty() => List::Relays,
            List::Executors | List::Relays if !self.status.users.is_empty() => List::Users,
            List::Executors | List::Relays | List::Users => List::Instances,
        }
    }

    /// A key was pressed. Returns what the user wants done.
    pub(super) fn press(&mut self, key: Key) -> Option<Order> {
        self.said.clear();
        if let Some(instance) = self.asked.take() {
            return (key == Key::Letter('y')).then_some(Order::Act(Action::Cancel(instance)));
        }
        match key {
            Key::Quit | Key::Letter('q') => return Some(Order::Quit),
            Key::Up | Key::Letter('k') => self.step(|at| at.saturating_sub(1)),
            Key::Down | Key::Letter('j') => self.step(|at| at + 1),
            Key::PageUp => self.step(|at| at.saturating_sub(PAGE_LINES)),
            Key::PageDown => self.step(|at| at + PAGE_LINES),
            Key::OtherList => self.list = self.next_list(),
            Key::Letter('p') => {
                let at = self.instance_at().filter(|_| self.list == List::Instances)?;
                let instance = &self.status.instances[at];
                return Some(Order::Act(Action::Pause(InstanceId(instance.id), !instance.paused)));
            }
            Key::Letter(sign @ ('+' | '-')) => {
                let at = self.instance_at().filter(|_| self.list == List::Instances)?;
                let instance = &self.status.instances[at];
                let step = if sign == '+' { 1 } else { -1 };
                let priority = instance.priority.saturating_add(step);
                return Some(Order::Act(Action::Prioritize(InstanceId(instance.id), priority)));
            }
            Key::Letter('c') => {
                let at = self.instance_at().filter(|_| self.list == List::Instances)?;
                let instance = &self.status.instances[at];
                self.asked = (!instance.complete).then_some(InstanceId(instance.id));
            }
            Key::Letter('d') => {
                let at = self.executor_at().filter(|_| self.list == List::Executors)?;
                let executor = &self.status.executors[at];
                return Some(Order::Act(Action::Drain(executor.id, !executor.drained)));
            }
            Key::Letter('w') => {
                let at = self.instance_at().filter(|_| self.list == List::Instances)?;
                let wanted = InstanceId(self.status.instances[at].id);
                let is_shown = self.explained.as_ref().is_some_and(|(shown, _)| *shown == wanted);
                self.explained = None;
                return Some(Order::Explain((!is_shown).then_some(wanted)));
            }
            Key::Back if self.explained.is_some() => {
                self.explained = None;
                return Some(Order::Explain(None));
            }
            Key::Back | Key::Letter(_) => {}
        }
        None
    }

    /// Selects another line of the list.
    fn step(&mut self, step: impl Fn(usize) -> usize) {
        match self.list {
            List::Instances => {
                let all = &self.status.instances;
                let at = self.instance_at().map_or(0, step).min(all.len().saturating_sub(1));
                self.instance = all.get(at).map(|one| one.id);
            }
            List::Executors => {
                let all = &self.status.executors;
                let at = self.executor_at().map_or(0, step).min(all.len().saturating_sub(1));
                self.executor = all.get(at).map(|one| one.id);
            }
            List::Relays => {
                let all = &self.relays;
                let at = self.relay_at().map_or(0, step).min(all.len().saturating_sub(1));
                self.relay = all.get(at).map(|one| one.path.clone());
            }
            List::Users => {
                let all = totals(&self.status);
                let at = self.user_at().map_or(0, step).min(all.len().saturating_sub(1));
                self.user = all.get(at).map(|one| one.name.to_owned());
            }
        }
    }
}

/// CPUs as people say them.
pub(super) fn cpus(milli: u64) -> String {
    let cpus = milli as f64 / f64::from(MILLI);
    if milli.is_multiple_of(u64::from(MILLI)) { format!("{cpus:.0}") } else { format!("{cpus:.1}") }
}
