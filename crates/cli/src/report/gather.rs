//! What a report needs of events, in bounded room: exact sums, and the first of everything that
//! could be listed without end.

use super::course::{Course, Measure};
use super::shown::Shown;
use falkon_core::data::stage::Usage;
use falkon_core::events::{Ended, Event, Reserved, Run, What};
use falkon_core::metrics::ResourceTotals;
use falkon_core::result::{Counts, Outcome, Status};
use falkon_core::task::{ExecutorId, InstanceId, MILLI, Time};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::sync::Arc;

/// Commands, and groups of failures, that are told apart; the others are one.
const GROUPS_MAX: usize = 1000;
/// The slowest tasks that are listed.
pub(super) const SLOWEST_MAX: usize = 20;
/// Run times are counted in classes, eight for each doubling.
const CLASSES_PER_DOUBLING: f64 = 8.0;

/// A number of tasks and how long they ran.
#[derive(Debug, Clone, Default)]
pub(super) struct Group {
    pub(super) counts: Counts,
    /// Tasks that ran.
    pub(super) ran: u64,
    /// Microseconds, of all that ran.
    pub(super) run_micros: u128,
    pub(super) wait_micros: u128,
    pub(super) staging_micros: u128,
    /// Microseconds times slots that they took, in thousandths; of all, and of those that did
    /// not succeed.
    slot_micros_milli: (u128, u128),
    pub(super) min_micros: Option<u64>,
    pub(super) max_micros: u64,
    /// Resources of the tasks that were measured.
    pub(super) used: ResourceTotals,
    /// How many ran so long, by class.
    classes: BTreeMap<u16, u64>,
}

impl Group {
    fn add(&mut self, ended: &Ended, slots_milli: u64) {
        let (status, count) = (ended.outcome.status(), ended.run.count);
        self.counts.end(status, count);
        if ended.executor.is_none() {
            return;
        }
        let (micros, times) = (ended.run_micros(), u128::from(count));
        self.ran += count;
        self.run_micros += u128::from(micros) * times;
        self.wait_micros += u128::from(ended.wait_micros()) * times;
        self.staging_micros += u128::from(ended.staging_micros) * times;
        let slot_micros_milli = u128::from(micros) * times * u128::from(slots_milli);
        self.slot_micros_milli.0 += slot_micros_milli;
        if status != Status::Done {
            self.slot_micros_milli.1 += slot_micros_milli;
        }
        if let Some(used) = &ended.resources {
            self.used.add_alike(count, micros, used);
        }
        self.min_micros = Some(self.min_micros.map_or(micros, |least| least.min(micros)));
        self.max_micros = self.max_micros.max(micros);
        let class = ((micros.max(1) as f64).log2() * CLASSES_PER_DOUBLING) as u16;
        *self.classes.entry(class).or_default() += count;
    }

    /// Microseconds of all slots that tasks ran in; of all tasks, and of those that did not
    /// succeed.
    pub(super) fn slot_micros(&self) -> (u128, u128) {
        let (all, failed) = self.slot_micros_milli;
        (all / u128::from(MILLI), failed / u128::from(MILLI))
    }

    /// The run time that so large a part of the tasks did not exceed, within 9 %.
    pub(super) fn quantile_micros(&self, part: f64) -> f64 {
        let mut left = (self.ran as f64 * part).ceil().max(1.0) as u64;
        for (class, count) in &self.classes {
            if *count >= left {
                let micros = ((f64::from(*class) + 0.5) / CLASSES_PER_DOUBLING).exp2();
                let least = self.min_micros.unwrap_or(0) as f64;
                return micros.clamp(least, self.max_micros as f64);
            }
            left -= count;
        }
        self.max_micros as f64
    }
}

/// Failures with one command and one message.
#[derive(Debug, Clone)]
pub(super) struct Failures {
    pub(super) count: u64,
    pub(super) example: (InstanceId, u64),
}

/// An executor.
#[derive(Debug, Clone)]
pub(super) struct Executor {
    pub(super) name: Arc<str>,
    pub(super) slots: f64,
    pub(super) joined: Time,
    pub(super) gone: Option<Time>,
    pub(super) ended: u64,
    pub(super) failed: u64,
    pub(super) run_micros: u128,
}

/// Tasks that ran for long: how long, which, and where.
pub(super) type Slow = (u64, (InstanceId, u64, u64), Option<ExecutorId>, u64);

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Gathered {
    /// The instance that is wanted, by number or name; all, if there is none.
    wanted: Option<String>,
    pub(super) instances: BTreeMap<InstanceId, Arc<str>>,
    pub(super) submitted: u64,
    pub(super) requeued: u64,
    pub(super) retried: u64,
    pub(super) second_tries: u64,
    pub(super) missing: u64,
    pub(super) all: Group,
    pub(super) usage: Usage,
    pub(super) first_queued: Option<Time>,
    pub(super) last_ended: Time,
    /// When the last task would have ended, had each begun when it came.
    pub(super) last_alone: Time,
    pub(super) course: Course,
    pub(super) executors: BTreeMap<ExecutorId, Executor>,
    /// The commands of submissions.
    pub(super) submissions: BTreeMap<(InstanceId, u64), Arc<str>>,
    reserved: Reserved,
    pub(super) commands: HashMap<Arc<str>, Group>,
    pub(super) failures: HashMap<(Arc<str>, Arc<str>), Failures>,
    slowest: BinaryHeap<Reverse<Slow>>,
    now: Time,
}

impl Gathered {
    pub(super) fn new(wanted: Option<String>) -> Gathered {
        Gathered { wanted, ..Gathered::default() }
    }

    fn is_wanted(&self, instance: InstanceId) -> bool {
        let Some(wanted) = &self.wanted else { return true };
        wanted.parse() == Ok(instance.0)
            || self.instances.get(&instance).is_some_and(|name| **name == **wanted)
    }

    /// Takes in an event; one that repeats what is known says only who is there.
    pub(super) fn add(&mut self, event: &Event, repeats: bool) {
        self.now = self.now.max(event.at);
        match &event.what {
            What::InstanceCreated { instance, name, .. } => {
                self.instances.insert(*instance, name.clone());
            }
            What::ExecutorJoined { executor, name, capacity, .. } => {
                let slots = f64::from(capacity.cpus_milli) / f64::from(MILLI);
                self.executors.entry(*executor).or_insert_with(|| Executor {
                    name: name.clone(),
                    slots,
                    joined: event.at,
                    gone: None,
                    ended: 0,
                    failed: 0,
                    run_micros: 0,
                });
            }
            What::ExecutorGone { executor, .. } => {
                if let Some(executor) = self.executors.get_mut(executor) {
                    executor.gone = Some(event.at);
                }
            }
            What::DispatcherStarted { .. } => {
                // Those that come back register again.
                for executor in self.executors.values_mut() {
                    executor.gone.get_or_insert(event.at);
                }
            }
            What::Missing { events } => self.missing += events,
            _ if repeats => {}
            What::Submitted { instance, first, count, command } if self.is_wanted(*instance) => {
                self.submitted += count;
                self.first(event.at);
                self.submissions.insert((*instance, first.0), command.clone());
            }
            What::Reserves(reserves) if self.is_wanted(reserves.run.instance) => {
                self.reserved.add(reserves);
            }
            What::Requeued { run, .. } if self.is_wanted(run.instance) => {
                self.requeued += run.count;
            }
            What::Retried { run } if self.is_wanted(run.instance) => self.retried += run.count,
            What::Copied { instance, .. } if self.is_wanted(*instance) => self.second_tries += 1,
            What::Ended(ended) if self.is_wanted(ended.run.instance) => self.ended(ended),
            _ => {}
        }
    }

    fn first(&mut self, at: Time) {
        self.first_queued = Some(self.first_queued.map_or(at, |first| first.min(at)));
    }

    fn command(&self, run: &Run) -> Arc<str> {
        let before = self.submissions.range(..=(run.instance, run.first.0)).next_back();
        let found = before.filter(|((instance, _), _)| *instance == run.instance);
        found.map_or_else(|| "(unknown)".into(), |(_, command)| command.clone())
    }

    fn ended(&mut self, ended: &Ended) {
        let run = ended.run;
        let (status, count) = (ended.outcome.status(), run.count);
        self.first(ended.queued);
        self.last_ended = self.last_ended.max(ended.ended);
        let slots_milli = self.reserved.slots_milli(&run);
        self.all.add(ended, slots_milli);
        self.usage.add(&ended.usage);
        self.course.end(ended.ended, count, status != Status::Done);
        let tasks = count as f64;
        let slots = tasks * slots_milli as f64 / f64::from(MILLI);
        if let Some(id) = ended.executor {
            self.last_alone = self.last_alone.max(ended.queued.after(ended.run_micros()));
            // An executor's clock may be behind by what it takes to tell it the time.
            let started = ended.started.max(ended.dispatched);
            self.course.add(Measure::Queued, ended.queued, ended.dispatched, tasks);
            self.course.add(Measure::Sent, ended.dispatched, started, tasks);
            self.course.add(Measure::Running, ended.started, ended.ended, tasks);
            self.course.add(Measure::SlotsWanted, ended.queued, ended.dispatched, slots);
            self.course.add(Measure::SlotsStarting, ended.dispatched, started, slots);
            self.course.add(Measure::SlotsBusy, ended.started, ended.ended, slots);
            if let Some(executor) = self.executors.get_mut(&id) {
                executor.ended += count;
                executor.failed += if status == Status::Done { 0 } else { count };
                executor.run_micros += u128::from(ended.run_micros()) * u128::from(count);
            }
            let wait = ended.wait_micros();
            let slow = (ended.run_micros(), (run.instance, run.first.0, count), Some(id), wait);
            self.slowest.push(Reverse(slow));
            if self.slowest.len() > SLOWEST_MAX {
                self.slowest.pop();
            }
        } else {
            self.course.add(Measure::Queued, ended.queued, ended.ended, tasks);
            self.course.add(Measure::SlotsWanted, ended.queued, ended.ended, slots);
        }
        let command = self.command(&run);
        if status == Status::Failed {
            self.failed(ended, command.clone());
        }
        let known = self.commands.contains_key(&command) || self.commands.len() < GROUPS_MAX;
        let command = if known { command } else { "(others)".into() };
        self.commands.entry(command).or_default().add(ended, slots_milli);
    }

    fn failed(&mut self, ended: &Ended, command: Arc<str>) {
        let message: Arc<str> = match (&ended.error, ended.outcome) {
            // Which task it was does not matter: there is a group for those that failed first.
            (_, Outcome::UpstreamFailed(_)) => "a task that it runs after failed".into(),
            (Some(error), _) => error.clone(),
            (None, Outcome::Exit(code)) => format!("exited with status {code}").into(),
            (None, Outcome::Signal(signal)) => format!("ended by signal {signal}").into(),
            (None, Outcome::TimedOut) => "ran longer than its timeout".into(),
            (None, Outcome::NotRun) => "could not be started".into(),
            (None, Outcome::NoOutput) => "did not leave its outputs".into(),
            (None, Outcome::NoInput) => "could not get its inputs".into(),
            (None, Outcome::Lost) => "was lost with its executors".into(),
            (None, Outcome::Unschedulable) => "fits no executor".into(),
            (None, Outcome::Cancelled) => "was cancelled".into(),
            (None, Outcome::Unreadable) => "has a result that cannot be read".into(),
        };
        let mut key = (command, message);
        if !self.failures.contains_key(&key) && self.failures.len() >= GROUPS_MAX {
            key = ("(others)".into(), "(others)".into());
        }
        let example = (ended.run.instance, ended.run.first.0);
        let group = self.failures.entry(key).or_insert(Failures { count: 0, example });
        group.count += ended.run.count;
    }

    /// The slowest tasks, the slowest first.
    pub(super) fn slowest(&self) -> Vec<Slow> {
        let mut all: Vec<Slow> = self.slowest.iter().map(|Reverse(slow)| *slow).collect();
        all.sort_unstable_by_key(|slow| (Reverse(slow.0), slow.1));
        all
    }

    /// What there is to show; nothing, if no task was accepted or has ended.
    pub(super) fn shown(mut self) -> Option<Shown> {
        let first = self.first_queued?;
        // A run that goes on is shown up to the last event.
        let ended = self.all.counts.ended();
        let goes_on = ended < self.submitted && self.retried == 0;
        let last = if goes_on { self.now } else { self.last_ended }.max(first.after(1));
        let there: Vec<(Time, Time, f64)> = self
            .executors
            .values()
            .map(|one| (one.joined.max(first), one.gone.unwrap_or(last).min(last), one.slots))
            .collect();
        for (from, until, slots) in there {
            self.course.add(Measure::Slots, from, until, slots);
            self.course.add(Measure::Executors, from, until, 1.0);
        }
        Some(Shown::of(&self, first, last))
    }
}
