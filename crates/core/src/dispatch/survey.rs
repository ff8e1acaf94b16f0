//! How relays do, and which nodes their clusters can get: for people who look. Nothing
//! is decided by it.
//!
//! A relay sends a survey of its subtree with its updates, every
//! [`RELAY_SURVEY_MICROS`] at most. The dispatcher above puts it below its own line in
//! the survey that it gives to the relay above it.

use super::fleet::Departed;
use super::subtree::is_kept;
use super::{Dispatcher, ExecutorView};
use crate::heartbeats::Pulse;
use crate::limits::{
    AWAY_RELAYS_MAX, NAME_BYTES_MAX, RELAY_AWAY_MICROS, SITE_NAME_BYTES_MAX, SITE_REASON_BYTES_MAX,
    SITE_REQUESTS_MAX, SUBTREE_RELAYS_MAX, SURVEY_QUEUES_MAX,
};
use crate::task::{ExecutorId, Resources, Time};
use std::collections::{BTreeMap, VecDeque};

/// The state of a subtree.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Survey {
    /// The relay that lends it, and those below, each followed by those below it in turn.
    pub relays: Vec<Standing>,
    /// The queues of batch schedulers from which nodes can be requested there.
    pub sites: Vec<Site>,
}

/// How a relay and its dispatcher do.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Standing {
    /// The relay's name.
    pub name: String,
    /// How many relays are on the way to it from the first of its list.
    pub depth: u64,
    /// How many nodes are below it.
    pub nodes: u64,
    /// The processors of its connected executors, in thousandths.
    pub cpus_milli: u64,
    /// How many of these tasks have, in thousandths.
    pub used_milli: u64,
    /// Tasks that have room on its executors.
    pub running: u64,
    /// Tasks that wait at its dispatcher, or were sent ahead to its executors.
    pub ahead: u64,
    /// Tasks that have ended on its executors since its dispatcher started.
    pub ended: u64,
    /// For how long it has had no connection to the dispatcher above it; `None` if it
    /// has one.
    pub away_micros: Option<u64>,
}

/// A queue of a batch scheduler, and what would be requested of it now.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Site {
    /// The names of the relays on the way to the dispatcher that requests its nodes,
    /// with slashes between.
    pub relays: String,
    /// Its name there.
    pub queue: String,
    /// The resources that a node is expected to offer.
    pub node: Resources,
    /// Nodes that are there or were requested.
    pub held: u64,
    /// Nodes that may be held at most.
    pub nodes_max: u64,
    /// The time between a request and its nodes, in microseconds.
    pub delay_micros: u64,
    /// The time for which nodes are requested, in microseconds; 0 leaves it to the
    /// scheduler.
    pub walltime_micros: u64,
    /// The time for which a node is paid at least, in microseconds.
    pub billing_micros: u64,
    /// Tasks that wait at dispatchers above, as its dispatcher was told.
    pub unmet: u64,
    /// Nodes of each request that would be made now.
    pub requests: Vec<u64>,
    /// The reason for these requests, or why there are none; empty if nothing is wanted.
    pub reason: String,
}

impl Survey {
    /// Cuts what is more than a dispatcher keeps.
    fn admit(&mut self) {
        self.relays.truncate(SUBTREE_RELAYS_MAX);
        self.relays.iter_mut().for_each(|relay| shorten(&mut relay.name, NAME_BYTES_MAX));
        self.sites.retain(|site| is_kept(&site.node));
        self.sites.truncate(SURVEY_QUEUES_MAX);
        for site in &mut self.sites {
            shorten(&mut site.relays, SITE_NAME_BYTES_MAX);
            shorten(&mut site.queue, NAME_BYTES_MAX);
            shorten(&mut site.reason, SITE_REASON_BYTES_MAX);
            site.requests.truncate(SITE_REQUESTS_MAX);
        }
    }

    /// The relay that lends this subtree has this name.
    pub(crate) fn rename(&mut self, name: &str) {
        if let Some(own) = self.relays.first_mut() {
            name.clone_into(&mut own.name);
        }
        for site in &mut self.sites {
            site.relays = match site.relays.as_str() {
                "" => name.to_owned(),
                below => format!("{name}/{below}"),
            };
        }
        self.admit();
    }
}

/// Cuts a text to so many bytes.
pub(super) fn shorten(text: &mut String, bytes_max: usize) {
    let end = (0..=bytes_max).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    text.truncate(end.min(text.len()));
}

/// A relay that was here.
#[derive(Debug)]
struct Away {
    incarnation: u64,
    since: Time,
    standing: Standing,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Surveys {
    /// The last survey of each relay.
    told: BTreeMap<ExecutorId, Survey>,
    /// Relays that are gone without having been asked to leave.
    away: VecDeque<Away>,
    /// This dispatcher's own line and sites, and when they were made.
    own: Option<(Time, Survey)>,
}

impl Surveys {
    /// A relay says what is below it.
    pub(super) fn lends(&mut self, id: ExecutorId, incarnation: u64) {
        self.told.entry(id).or_default();
        self.away.retain(|away| away.incarnation != incarnation);
    }

    /// A relay sends a survey.
    pub(super) fn note(&mut self, id: ExecutorId, mut survey: Survey) {
        if let Some(told) = self.told.get_mut(&id) {
            survey.admit();
            *told = survey;
        }
    }

    /// An executor is registered no more.
    pub(super) fn forget_executor(&mut self, id: ExecutorId, gone: &Departed, now: Time) {
        let Some(told) = self.told.remove(&id) else { return };
        if gone.was_leaving {
            return;
        }
        let standing = told.relays.into_iter().next().unwrap_or_default();
        let standing = Standing { name: gone.name.clone(), depth: 0, ..standing };
        self.away.push_back(Away { incarnation: gone.incarnation, since: gone.heard, standing });
        self.away.retain(|away| now.since(away.since) < RELAY_AWAY_MICROS);
        while self.away.len() > AWAY_RELAYS_MAX {
            self.away.pop_front();
        }
    }

    /// Relays that are gone.
    pub(super) fn away(&self, now: Time) -> impl Iterator<Item = Standing> + '_ {
        let away = self.away.iter().map(move |away| (now.since(away.since), &away.standing));
        let known = away.filter(|(micros, _)| *micros < RELAY_AWAY_MICROS);
        known.map(|(micros, standing)| Standing {
            running: 0,
            used_milli: 0,
            away_micros: Some(micros),
            ..standing.clone()
        })
    }

    /// The name of a relay that is gone and may come back.
    pub(super) fn away_name(&self, incarnation: u64, now: Time) -> Option<&str> {
        let found = self.away.iter().find(|away| away.incarnation == incarnation)?;
        (now.since(found.since) < RELAY_AWAY_MICROS).then_some(&*found.standing.name)
    }

    pub(super) fn of(&self, id: ExecutorId) -> Option<&Survey> {
        self.told.get(&id)
    }
}

impl Dispatcher {
    /// The survey for the relay that lends this dispatcher's executors; its name is for
    /// the relay to fill in. `sites` makes the lines of this dispatcher's queues. What
    /// takes time in proportion to the executors is done as often as these send
    /// heartbeats.
    pub fn survey(&mut self, now: Time, sites: impl FnOnce() -> Vec<Site>) -> Survey {
        self.now = self.now.max(now);
        let pulse = Pulse::default().next(self.fleet.len() as u64);
        let is_old = |at: Time| self.now.since(at) >= pulse.micros();
        if self.surveys.own.as_ref().is_none_or(|(at, _)| is_old(*at)) {
            let unmet = self.unmet.above().map(|one| one.tasks).fold(0, u64::saturating_add);
            let own = sites().into_iter().map(|site| Site { unmet, ..site });
            let survey = Survey { relays: vec![self.own_standing()], sites: own.collect() };
            self.surveys.own = Some((self.now, survey));
        }
        let mut survey = self.surveys.own.clone().map(|(_, survey)| survey).unwrap_or_default();
        if let Some(own) = survey.relays.first_mut() {
            own.nodes = self.fleet.node_count();
        }
        let below = self.surveys.told.keys().flat_map(|id| self.standings_of(*id, self.now));
        let all = below.chain(self.surveys.away(self.now));
        survey.relays.extend(all.map(|one| Standing { depth: one.depth.saturating_add(1), ..one }));
        survey.sites.extend(self.sites_below().cloned());
        survey.admit();
        survey
    }

    /// The queues of batch schedulers below relays.
    pub fn sites_below(&self) -> impl Iterator<Item = &Site> {
        self.surveys.told.values().flat_map(|survey| &survey.sites)
    }

    /// Relays that were here, lost their connection and are not back.
    pub fn relays_away(&self, now: Time) -> impl Iterator<Item = Standing> + '_ {
        self.surveys.away(now)
    }

    fn own_standing(&self) -> Standing {
        let mut own = Standing { ended: self.tally.ended(), ..Standing::default() };
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        for executor in self.fleet.iter() {
            let (tasks, ahead) = (executor.in_flight_count(), executor.prefetched());
            add(&mut own.running, tasks.saturating_sub(ahead));
            add(&mut own.ahead, ahead);
            if executor.connection.is_some() {
                let capacity = u64::from(executor.capacity.cpus_milli);
                add(&mut own.cpus_milli, capacity);
                add(&mut own.used_milli, capacity.saturating_sub(executor.free.cpus_milli.into()));
            }
        }
        self.instances.values().for_each(|one| add(&mut own.ahead, one.counts().ready));
        own
    }

    /// A relay that is registered, and those below it.
    fn standings_of(&self, id: ExecutorId, now: Time) -> Vec<Standing> {
        let executor = &self.fleet[id];
        let told = self.surveys.of(id).map(|survey| survey.relays.clone());
        let mut relays =
            told.filter(|relays| !relays.is_empty()).unwrap_or_else(|| vec![Standing::default()]);
        let away = executor.connection.is_none().then(|| now.since(executor.last_heard));
        relays[0] = Standing {
            name: executor.name.clone(),
            nodes: executor.subtree.as_ref().map_or(0, |subtree| subtree.node_count()),
            away_micros: away,
            ..std::mem::take(&mut relays[0])
        };
        relays
    }
}

impl Dispatcher {
    /// The relay that an executor is, and those below it; nothing for others.
    #[must_use]
    pub fn standings(&self, executor: &ExecutorView<'_>, now: Time) -> Vec<Standing> {
        match executor.subtree() {
            Some(_) => self.standings_of(executor.id(), now),
            None => Vec::new(),
        }
    }
}
