//! An account of what dispatchers have sent to executors and relays, from the messages:
//! an account beside the dispatchers' own.

use super::{End, World};
use falkon_core::dispatch::{ConnectionId, Event, Held, Order};
use falkon_core::limits::{
    PREFETCH_TASK_MICROS_MAX, PREFETCH_WORK_MICROS, RELAY_PREFETCH_TASK_MICROS_MAX,
};
use falkon_core::result::{Report, Tries};
use falkon_core::task::{InstanceId, Kind, Resources, TaskClass, TaskId};
use std::collections::{BTreeMap, BTreeSet};

/// How many tasks of an instance are described.
const SHOWN: usize = 20;

/// A task of a dispatcher.
type Task = (InstanceId, u64);

/// A task that holds room.
#[derive(Debug, Clone, Copy)]
struct Size {
    cpus_milli: u64,
    micros: u64,
}

#[derive(Debug, Default)]
pub(super) struct Accounts {
    /// By the site whose dispatcher sends it.
    classes: BTreeMap<(usize, u64), (Vec<TaskClass>, bool)>,
    /// Tasks that take time and hold room, or wait for room, where they are.
    sizes: BTreeMap<(usize, Task), Size>,
    /// Tasks that processes of executors have staged.
    staged: BTreeMap<u64, BTreeSet<Task>>,
    /// The executor or relay that joined over a connection.
    incarnations: BTreeMap<ConnectionId, u64>,
    outstanding: BTreeMap<ConnectionId, BTreeMap<Task, (Tries, bool)>>,
    /// How often each site has sent each of its tasks.
    sends: BTreeMap<(usize, Task), u64>,
    /// How often tasks were asked back.
    pub(super) recalls: u64,
}

fn tasks(held: &Held) -> impl Iterator<Item = Task> + use<> {
    let (instance, first) = (held.instance, held.first.0);
    (first..first + held.count).map(move |task| (instance, task))
}

fn held_of(report: &Report) -> Held {
    let Report { instance, first, count, tries, .. } = *report;
    Held { instance, first, count, tries }
}

impl Accounts {
    /// A dispatcher is about to hear this.
    pub(super) fn heard(&mut self, event: &Event) {
        match event {
            Event::Join { connection, join } => {
                // Tasks that an executor had staged stay so; relays say it in each session.
                let own = join.serves.is_some().then(|| self.staged.get(&join.incarnation));
                let is_staged = |task: &Task| own.flatten().is_some_and(|own| own.contains(task));
                let held = join.held.iter().flat_map(|held| {
                    tasks(held).map(|task| (task, (held.tries, is_staged(&task))))
                });
                self.outstanding.insert(*connection, held.collect());
                self.incarnations.insert(*connection, join.incarnation);
            }
            Event::Update { connection, update } => {
                let Some(there) = self.outstanding.get_mut(connection) else { return };
                let own = self.staged.entry(self.incarnations[connection]).or_default();
                let mut mark = |held: &Held, is_staged| {
                    for task in tasks(held) {
                        let found = there.get_mut(&task).filter(|(tries, _)| *tries == held.tries);
                        found.into_iter().for_each(|(_, staged)| *staged = is_staged);
                        if is_staged {
                            own.insert(task)
                        } else {
                            own.remove(&task)
                        };
                    }
                };
                update.staged.iter().for_each(|held| mark(held, true));
                update.unstaged.iter().for_each(|held| mark(held, false));
                let ended = update.reports.iter().map(held_of);
                for held in ended.chain(update.returned.iter().copied()) {
                    gone(there, &held);
                    own.retain(|task| !tasks(&held).any(|ended| ended == *task));
                }
            }
            Event::Closed { connection } => drop(self.outstanding.remove(connection)),
            _ => {}
        }
    }

    /// A dispatcher sends an order.
    fn sent(&mut self, site: usize, connection: ConnectionId, order: &Order, is_relay: bool) {
        for prepare in &order.prepare {
            let is_below = prepare.everywhere.is_some() && is_relay;
            let key = (site, prepare.batch.0);
            self.classes.insert(key, (prepare.classes.clone(), is_below));
        }
        let there = self.outstanding.entry(connection).or_default();
        order.disown.iter().for_each(|held| gone(there, held));
        for assigned in &order.assign {
            let (classes, is_below) = &self.classes[&(site, assigned.batch.0)];
            let class = &classes[assigned.class as usize];
            let is_instant = class.kind == Kind::Noop && assigned.data.is_none();
            let holds_room = !is_instant && !class.is_gang() && !is_below;
            let (instance, first, count) = (assigned.instance, assigned.first, assigned.count);
            let held = Held { instance, first, count, tries: assigned.tries };
            for task in tasks(&held) {
                *self.sends.entry((site, task)).or_default() += 1;
                let cpus_milli = u64::from(class.resources.cpus_milli);
                let size = Size { cpus_milli, micros: class.estimate_micros };
                match holds_room {
                    true => self.sizes.insert((site, task), size),
                    false => self.sizes.remove(&(site, task)),
                };
                there.insert(task, (assigned.tries, false));
            }
        }
        self.recalls += u64::from(order.recall > 0);
    }

    /// The tasks that hold room at the other end of a connection, or wait there for some:
    /// the smallest first.
    fn sizes(&self, site: usize, connection: ConnectionId) -> Vec<Size> {
        let there = self.outstanding.get(&connection).into_iter().flatten();
        let holding = there.filter(|(_, (_, is_staged))| !is_staged);
        let sizes = holding.filter_map(|(task, _)| self.sizes.get(&(site, *task)).copied());
        let mut sizes: Vec<Size> = sizes.collect();
        sizes.sort_by_key(|size| size.cpus_milli);
        sizes
    }
}

fn gone(there: &mut BTreeMap<Task, (Tries, bool)>, held: &Held) {
    for task in tasks(held) {
        if there.get(&task).is_some_and(|(tries, _)| *tries == held.tries) {
            there.remove(&task);
        }
    }
}

/// How many of these tasks wait for room, at least, where there is so much.
fn waiting(capacity: &Resources, sizes: &[Size]) -> u64 {
    let mut free = u64::from(capacity.cpus_milli);
    let holding = sizes.iter().take_while(|size| {
        let left = free.checked_sub(size.cpus_milli);
        free = left.unwrap_or(0);
        left.is_some()
    });
    (sizes.len() - holding.count()) as u64
}

/// How many tasks an executor or a relay has at most that wait for room, where it offers
/// so much: one for each slot, of tasks that are short enough, or as many as keep it busy
/// for a moment, with one more beyond that. Those of one need are taken to run as long as
/// the first in the queue, so as long as the shortest of all at least.
fn ahead_max(capacity: &Resources, sizes: &[Size], shortest_micros: u64, is_relay: bool) -> u64 {
    let one_each_micros = match is_relay {
        true => RELAY_PREFETCH_TASK_MICROS_MAX,
        false => PREFETCH_TASK_MICROS_MAX,
    };
    let slots = sizes.iter().map(|size| u64::from(capacity.cpus_milli) / size.cpus_milli.max(1));
    let slots = slots.max().unwrap_or(0);
    let one_each = if shortest_micros <= one_each_micros { slots } else { 0 };
    let most = sizes.iter().map(|size| size.micros).max().unwrap_or(0);
    // A task that takes longer than a moment does not keep anybody busy for a moment.
    let by_work = match shortest_micros > PREFETCH_WORK_MICROS * slots {
        true => 0,
        false => (PREFETCH_WORK_MICROS * slots + most) / shortest_micros.max(1),
    };
    by_work.max(one_each)
}

impl World {
    /// Keeps accounts of what is sent from now on: of each task, so there are to be few.
    pub(crate) fn keep_accounts(&mut self) {
        self.accounts = Some(Accounts::default());
    }

    /// A site has sent an order. What it sends is never more than what the other end has
    /// room for and what is sent ahead of room.
    pub(super) fn account_order(&mut self, site: usize, connection: ConnectionId, order: &Order) {
        let Some(accounts) = &mut self.accounts else { return };
        let Some((_, end)) = self.ends.get(&connection) else { return };
        let (name, is_relay) = match *end {
            End::Node(node) => (format!("node {}", self.nodes[node].incarnation), false),
            End::Lender(below) => (format!("relay {below}"), true),
            End::Client | End::Owner(_) => return,
        };
        let mut views = self.sites[site].core.executor_views();
        let view = views.find(|view| view.name() == name && view.is_connected());
        let before = accounts.sizes(site, connection);
        accounts.sent(site, connection, order, is_relay);
        let Some(view) = view else { return };
        let capacity = view.capacity();
        // Tasks for which no node is large enough any more were sent before.
        let nodes = view.subtree().map(|subtree| &subtree.nodes);
        let largest = nodes.map(|nodes| nodes.iter().map(|node| node.capacity.cpus_milli).max());
        let largest = largest.map_or(u32::MAX, Option::unwrap_or_default);
        let runs = |sizes: Vec<Size>| -> Vec<Size> {
            sizes.into_iter().filter(|size| size.cpus_milli <= u64::from(largest)).collect()
        };
        let (before, sizes) = (runs(before), runs(accounts.sizes(site, connection)));
        let ahead = waiting(capacity, &sizes);
        let ahead_max = ahead_max(capacity, &sizes, self.shortest_micros, is_relay);
        // Nodes that have left had tasks that wait for others now.
        assert!(
            ahead <= ahead_max || ahead <= waiting(capacity, &before),
            "site {site} has sent {name} {ahead} tasks beyond {capacity}, not {ahead_max}: {sizes:?}"
        );
    }

    /// How often a site has sent one of its tasks, at most; and how often tasks were asked
    /// back anywhere.
    pub(crate) fn most_sends(&self) -> (u64, u64) {
        let accounts = self.accounts.as_ref().expect("accounts are kept");
        (accounts.sends.values().copied().max().unwrap_or(0), accounts.recalls)
    }

    /// The places of the tasks that have not ended, at each dispatcher.
    pub(crate) fn describe(&mut self) -> String {
        let mut text = String::new();
        for (number, site) in self.sites.iter_mut().enumerate() {
            let views = site.core.instance_views();
            let instances: Vec<(InstanceId, u64)> =
                views.map(|view| (view.id(), view.counts().total)).collect();
            for (instance, total) in instances {
                let places = site.core.whereabouts(instance, TaskId(0), total);
                let open = places.into_iter().enumerate().filter(|(_, place)| {
                    !matches!(place.word(), "done" | "failed" | "cancelled" | "ended")
                });
                let open: Vec<_> = open.take(SHOWN).collect();
                let why = site.core.explain(instance, None);
                text += &format!("\nsite {number}: {open:?}\n  {why:?}");
            }
            for view in site.core.executor_views() {
                text += &format!("\n  {} {:?} free {}", view.name(), view.load(), view.free());
                text += if view.is_leaving() { ", leaving" } else { "" };
                text += if view.is_connected() { "" } else { ", away" };
            }
            text += &format!("\n  idle: {:?}", site.core.explain_idle());
            let tasks = site.lends.as_ref().map(|lends| lends.relay.tasks());
            text += &format!("\n  the relay answers for {tasks:?}");
        }
        for node in self.nodes.iter().filter(|node| !node.is_gone) {
            text += &format!(
                "\nnode {} at {}: {:?}, free {}",
                node.incarnation,
                node.site,
                node.machine.load(),
                node.machine.free()
            );
        }
        text
    }
}
