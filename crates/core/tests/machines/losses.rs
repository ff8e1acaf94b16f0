//! How often tasks were lost, from what dispatcher and executors tell each
//! other: without the dispatcher's own counts.

use falkon_core::dispatch::{Event, Held, Order};
use falkon_core::gang::GangKey;
use falkon_core::result::{Outcome, Tries};
use falkon_core::task::InstanceId;
use std::collections::{BTreeMap, BTreeSet};

type Key = (InstanceId, u64);

/// A message of an executor that the dispatcher has taken in and not yet written.
#[derive(Debug)]
enum Said {
    /// The executor has these tasks no longer; they are lost or not.
    Without { held: Held, is_lost: bool },
    /// The executor came back with these, reported or not, and no others.
    Back(Vec<Held>),
}

/// Who has which tasks, and how often they were lost: at least as often as the
/// dispatcher may count. (An attempt that comes back from an executor that was
/// given up counts here all the same.)
#[derive(Debug, Default)]
pub(crate) struct Losses {
    /// The executor's incarnation, and the attempt's name.
    holders: BTreeMap<Key, (u64, Tries)>,
    /// The same of the first of two tries, while the one that was sent later is among the
    /// holders.
    firsts: BTreeMap<Key, (u64, Tries)>,
    /// Executors that came back with a task while another one was counted as its holder. A
    /// dispatcher that was started again knows one of two tries; who comes back first has it.
    others: BTreeSet<(Key, u64)>,
    /// How many second tries were sent.
    pub(crate) copies: u64,
    times: BTreeMap<Key, u32>,
    came_back: BTreeSet<Key>,
    /// Tasks that run on several executors each.
    gangs: BTreeSet<Key>,
    said: Vec<(u64, Said)>,
}

impl Losses {
    /// How often a task was lost.
    pub(crate) fn of(&self, instance: InstanceId, task: u64) -> u32 {
        self.times.get(&(instance, task)).copied().unwrap_or(0)
    }

    /// Whether an executor came back with a task that had been lost.
    pub(crate) fn came_back(&self, instance: InstanceId, task: u64) -> bool {
        self.came_back.contains(&(instance, task))
    }

    /// The dispatcher takes in what an executor says; it counts when the round
    /// is written.
    pub(crate) fn hear(&mut self, incarnation: u64, event: &Event) {
        let held_of = |report: &falkon_core::result::Report| Held {
            instance: report.instance,
            first: report.first,
            count: report.count,
            tries: report.tries,
        };
        match event {
            Event::Update { update, .. } => {
                for report in &update.reports {
                    let is_lost = report.outcome == Outcome::Lost;
                    self.said.push((incarnation, Said::Without { held: held_of(report), is_lost }));
                }
                for held in &update.returned {
                    let said = Said::Without { held: *held, is_lost: false };
                    self.said.push((incarnation, said));
                }
            }
            Event::Join { join, .. } => {
                let reports = join.reports.iter().map(held_of);
                let all = join.held.iter().copied().chain(reports).collect();
                self.said.push((incarnation, Said::Back(all)));
                for report in &join.reports {
                    let is_lost = report.outcome == Outcome::Lost;
                    self.said.push((incarnation, Said::Without { held: held_of(report), is_lost }));
                }
            }
            _ => {}
        }
    }

    /// Nothing of the round is written.
    pub(crate) fn forget_round(&mut self) {
        self.said.clear();
    }

    /// The round is written.
    pub(crate) fn written(&mut self) {
        for (incarnation, said) in std::mem::take(&mut self.said) {
            match said {
                Said::Without { held, is_lost } => self.without(incarnation, &held, is_lost),
                Said::Back(all) => self.back(incarnation, &all),
            }
        }
    }

    fn without(&mut self, incarnation: u64, held: &Held, is_lost: bool) {
        for task in held.first.0..held.first.0 + held.count {
            let key = (held.instance, task);
            if self.firsts.get(&key) == Some(&(incarnation, held.tries)) {
                self.firsts.remove(&key);
            } else if self.holders.get(&key) == Some(&(incarnation, held.tries)) {
                if self.goes_on(key) {
                    continue;
                }
                self.holders.remove(&key);
                *self.times.entry(key).or_default() += u32::from(is_lost);
            } else if self.others.remove(&(key, incarnation)) {
                *self.times.entry(key).or_default() += u32::from(is_lost);
            }
        }
    }

    /// The later of two tries is over: the first goes on, if there is one.
    fn goes_on(&mut self, key: Key) -> bool {
        let first = self.firsts.remove(&key);
        first.map(|first| self.holders.insert(key, first)).is_some()
    }

    fn back(&mut self, incarnation: u64, all: &[Held]) {
        // A dispatcher that was started again knows one of two tries.
        self.firsts.retain(|_, (first, _)| *first != incarnation);
        let gone = self.holders.iter().filter(|(_, (holder, _))| *holder == incarnation);
        for key in gone.map(|(key, _)| *key).collect::<Vec<_>>() {
            if self.goes_on(key) {
                continue;
            }
            self.holders.remove(&key);
            let is_back = all.iter().any(|held| {
                held.instance == key.0 && (held.first.0..held.first.0 + held.count).contains(&key.1)
            });
            // What a gang lost while its first executor was away is not told of.
            *self.times.entry(key).or_default() += u32::from(self.gangs.contains(&key) && !is_back);
        }
        for held in all {
            for task in held.first.0..held.first.0 + held.count {
                // A task that nobody has had since goes on where it is.
                let key = (held.instance, task);
                let holder = self.holders.entry(key).or_insert((incarnation, held.tries)).0;
                if holder != incarnation {
                    self.others.insert((key, incarnation));
                }
                if self.times.contains_key(&key) {
                    self.came_back.insert(key);
                }
            }
        }
    }

    /// Tasks are sent to an executor.
    pub(crate) fn sent(&mut self, incarnation: u64, order: &Order) {
        for gang in &order.gangs {
            let GangKey { instance, task, .. } = gang.key();
            self.gangs.insert((instance, task.0));
        }

        for run in &order.assign {
            for task in run.first.0..run.first.0 + run.count {
                let key = (run.instance, task);
                let before = self.holders.insert(key, (incarnation, run.tries));
                self.firsts.remove(&key);
                let is_other =
                    |(other, tries): &(u64, Tries)| *other != incarnation && *tries == run.tries;
                if let Some(first) = before.filter(is_other) {
                    self.firsts.insert(key, first);
                    self.copies += 1;
                }
                // An executor that is away is not told that its gang is lost.
                let is_lost = self.gangs.contains(&key)
                    && before.is_some_and(|(_, tries)| tries != run.tries);
                *self.times.entry(key).or_default() += u32::from(is_lost);
            }
        }
        // The first executor of a gang is told so of which another is lost.
        for held in &order.disown {
            if self.gangs.contains(&(held.instance, held.first.0)) {
                self.without(incarnation, &Held { count: 1, ..*held }, true);
            }
        }
    }

    /// An executor is given up.
    pub(crate) fn gone(&mut self, incarnation: u64) {
        self.firsts.retain(|_, (first, _)| *first != incarnation);
        let times = &mut self.times;
        self.others.retain(|(key, other)| {
            let is_of_it = *other == incarnation;
            if is_of_it {
                *times.entry(*key).or_default() += 1;
            }
            !is_of_it
        });
        let of_it = self.holders.iter().filter(|(_, (holder, _))| *holder == incarnation);
        for key in of_it.map(|(key, _)| *key).collect::<Vec<_>>() {
            if self.goes_on(key) {
                continue;
            }
            self.holders.remove(&key);
            *self.times.entry(key).or_default() += 1;
        }
    }
}
