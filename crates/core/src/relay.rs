//! The relay: it lends the executors of a dispatcher below to one above.
//!
//! Upwards a relay is an executor: it registers, takes orders and sends updates.
//! Downwards it is a client with one instance. Orders become submissions, results
//! become reports; a run of tasks stays a run, whatever its length. There is no
//! scheduling here: both dispatchers do that.
//!
//! # The pump
//! Call [`Relay::handle`] for each event, then [`Relay::poll_action`] until it gives
//! `None`, then wait until [`Relay::poll_timeout`] or the next event. Times are on
//! the clock of the dispatcher below. Notes are to be written before what follows
//! them is done: a relay that is started again [recovers](Relay::recover) from them,
//! and comes back with the tasks that it had.
//!
//! # What is where
//! A task from above waits in [`Outgoing`] until it is submitted, then it has a
//! number below and is in the [`Ledger`] until its result is there, and then its
//! report is in the updates until the dispatcher above has acknowledged it. Only
//! then may the dispatcher below forget the result ([`Results`]).

mod answers;
mod holdings;
mod kept;
mod ledger;
mod notes;
mod outgoing;
mod recall;
mod reports;
mod results;
mod session;
mod staged;
mod survey;
mod vacancy;

use crate::data::declared::{CacheRoom, DataOrder};
use crate::dispatch::check::ensure;
use crate::dispatch::diffusion::{PolicyName, PolicyOptions};
use crate::dispatch::{
    Assigned, CheckError, Held, Holdings, InstanceOptions, Join, Keep, Lease, LetGo, Order,
    Subtree, Survey, Update,
};
use crate::execute::updates::Updates;
use crate::limits::{
    COALESCE_MICROS, JOIN_RUNS_MAX, RELAY_UNMET_MICROS, RELAY_UNOFFERED_MICROS,
    SUBMISSION_TASKS_MAX,
};
use crate::provision::Waiting;
use crate::result::{Detail, Finished, Outcome, Report, Tries};
use crate::runset::RunSet;
use crate::task::{InstanceId, Resources, Rows, Submission, TaskId, TaskKey, Time};
use ledger::Ledger;
pub use notes::Note;
use outgoing::{Outgoing, Tasks};
use results::Results;
use session::Session;
use staged::Staged;
use std::collections::VecDeque;
use std::sync::Arc;
use vacancy::Vacancy;

/// What happens to a relay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A session with the dispatcher above begins.
    Connected {
        /// The time on its clock.
        above: Time,
    },
    /// That session is over.
    Disconnected,
    /// The dispatcher above speaks.
    Order(Order),
    /// It says which tasks wait there for nodes that can be got below.
    Unmet(Vec<Waiting>),
    /// What is below, as the dispatcher there says.
    Subtree(Subtree),
    /// How things are below, as the dispatcher there says.
    Survey(Survey),
    /// What the executors below hold, as far as that has changed.
    Holdings(Holdings),
    /// The dispatcher below says which tasks are staged: runs of them, as (first, count).
    Staged {
        /// They have ended there, and their results come when what they wrote is safe.
        staged: Vec<(u64, u64)>,
        /// They were staged, and are not any more: they run again.
        unstaged: Vec<(u64, u64)>,
    },
    /// The dispatcher below has accepted a submission, as so many tasks. Submissions are
    /// answered in their order.
    Accepted {
        /// How many.
        count: u64,
    },
    /// The dispatcher below has refused a submission.
    Refused {
        /// Why it would be refused again; `None` if it is to be sent again later.
        why: Option<String>,
    },
    /// The dispatcher below has withdrawn tasks: runs of them, as (first, count).
    Withdrawn(Vec<(u64, u64)>),
    /// The dispatcher below delivers results.
    Results {
        /// How many task results come before these.
        from: u64,
        /// The results.
        results: Vec<Finished>,
    },
}

/// What a relay wants done, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Write these before doing what follows.
    Note(Vec<Note>),
    /// Register with the dispatcher above.
    Join(Join),
    /// Tell the dispatcher above.
    Update(Update),
    /// Submit tasks below. The answer is [`Event::Accepted`] or [`Event::Refused`].
    Submit {
        /// The number of the first of them.
        first: TaskId,
        /// The tasks.
        submission: Submission,
    },
    /// Cancel tasks below: runs of them, as (first, count).
    Cancel(Vec<(u64, u64)>),
    /// Withdraw up to so many tasks below. The answer is [`Event::Withdrawn`].
    Withdraw(u64),
    /// The dispatcher below may forget so many task results, from the first.
    Acknowledge(u64),
    /// Nobody needs the long output of tasks below any more: runs of them, as (first, count).
    Release(Vec<(u64, u64)>),
    /// The dispatcher above needs objects in caches below no more.
    LetGo(LetGo),
    /// Tell the dispatcher below which tasks wait above: instead of what it was told
    /// before.
    Unmet(Vec<Waiting>),
    /// It was asked to leave, and has left.
    Left,
}

/// A relay's whole state.
#[derive(Debug)]
pub struct Relay {
    now: Time,
    identity: u64,
    name: String,
    process: u64,
    upstream: Option<(u64, u64)>,
    instance: Option<InstanceId>,
    /// What the clock above is ahead of the one below.
    ahead_micros: i64,
    session: Session,
    updates: Updates,
    subtree: Option<Subtree>,
    vacancy: Vacancy,
    survey: survey::Surveyed,
    holdings: holdings::Held,
    staged: Staged,
    outgoing: Outgoing,
    ledger: Ledger,
    results: Results,
    kept: kept::Kept,
    /// Tasks, by their numbers below, that the dispatcher above has cancelled.
    cancelling: RunSet,
    /// When submissions that were refused are sent again.
    retry_at: Option<Time>,
    /// What waits above, as it was last told below.
    unmet: Vec<Waiting>,
    /// When that counts no longer, without a session above.
    unmet_until: Option<Time>,
    is_leaving: bool,
    has_left: bool,
    actions: VecDeque<Action>,
}

impl Relay {
    /// A relay that has nothing yet. `identity` is drawn at random by the shell, once
    /// for a directory, and `process` once for each process.
    #[must_use]
    pub fn new(identity: u64, process: u64, name: String) -> Relay {
        Relay {
            now: Time::default(),
            identity,
            name,
            process,
            upstream: None,
            instance: None,
            ahead_micros: 0,
            session: Session::new(false, Time::default()),
            updates: Updates::default(),
            subtree: None,
            vacancy: Vacancy::default(),
            survey: survey::Surveyed::default(),
            holdings: holdings::Held::default(),
            staged: Staged::default(),
            outgoing: Outgoing::default(),
            ledger: Ledger::default(),
            results: Results::default(),
            kept: kept::Kept::default(),
            cancelling: RunSet::default(),
            retry_at: None,
            unmet: Vec::new(),
            unmet_until: None,
            is_leaving: false,
            has_left: false,
            actions: VecDeque::new(),
        }
    }

    /// Takes in a note of an earlier process, in their order.
    pub fn recover(&mut self, note: Note) {
        match note {
            Note::Identity(identity) => self.identity = identity,
            Note::Upstream { high, low } => self.upstream = Some((high, low)),
            Note::Instance(instance) => {
                self.instance = Some(instance);
                self.ledger = Ledger::default();
            }
            Note::Sent { below, held } => {
                let _ = self.ledger.insert(below, &held);
            }
            Note::Gone { below, count } => {
                let _ = self.ledger.take_below(below, count);
            }
            Note::Salt(_) | Note::Kept { .. } | Note::Released { .. } => self.kept.recover(note),
        }
    }

    /// The relay has this instance below, which has accepted so many tasks so far.
    /// Before the first event, and again whenever the connection below was lost and
    /// is there again: without a session above, which begins anew then. All results
    /// that are not acknowledged follow. Returns what to write down before anything else.
    pub fn begin(&mut self, instance: InstanceId, accepted: u64) -> Vec<Note> {
        debug_assert!(!self.session.is_connected);
        let mut notes = Vec::new();
        if self.instance != Some(instance) {
            let salt = self.process.wrapping_add(self.now.0);
            notes = vec![Note::Instance(instance), Note::Salt(salt)];
            notes.iter().for_each(|note| self.recover(*note));
        }
        let _ = self.ledger.take_below(accepted, u64::MAX - accepted);
        self.outgoing = Outgoing::new(accepted);
        self.results.delivered_again();
        self.holdings.ask_anew();
        self.staged = Staged::default();
        self.cancelling = RunSet::default();
        self.retry_at = None;
        // The dispatcher below knows it by the connection.
        if self.has_unmet() {
            self.actions.push_back(Action::Unmet(self.unmet.clone()));
        }
        notes
    }

    /// The number of the dispatcher that an earlier process had above, in halves.
    #[must_use]
    pub fn upstream(&self) -> Option<(u64, u64)> {
        self.upstream
    }

    /// The instance that an earlier process had below.
    #[must_use]
    pub fn instance(&self) -> Option<InstanceId> {
        self.instance
    }

    /// Its identity.
    #[must_use]
    pub fn identity(&self) -> u64 {
        self.identity
    }

    /// With what to ask the dispatcher below which objects its executors hold.
    #[must_use]
    pub fn holdings_known(&self) -> u64 {
        self.holdings.upto()
    }

    /// The task of its instance below that is this one above; `None` if it has no number there.
    #[must_use]
    pub fn below(&self, task: TaskKey) -> Option<TaskKey> {
        let TaskKey { instance, task: first } = task;
        let held = Held { instance, first, count: 1, tries: Tries::default() };
        let (below, _) = self.ledger.find_above(&held, |_| true).pop()?;
        Some(TaskKey { instance: self.instance?, task: TaskId(below) })
    }

    /// The task of its instance below whose long output has this number above; `None` if that
    /// instance is gone.
    #[must_use]
    pub fn kept(&self, output: u64) -> Option<TaskKey> {
        let task = TaskId(self.kept.task(output)?);
        Some(TaskKey { instance: self.instance?, task })
    }

    /// How many tasks it answers for.
    #[must_use]
    pub fn tasks(&self) -> u64 {
        let waiting = self.outgoing.held().map(|held| held.count);
        waiting.fold(self.ledger.tasks(), u64::saturating_add)
    }

    /// Notes that say all that those written so far do.
    #[must_use]
    pub fn notes(&self) -> Vec<Note> {
        let instance = self.instance.map(Note::Instance);
        let upstream = self.upstream.map(|(high, low)| Note::Upstream { high, low });
        let head = [Note::Identity(self.identity)].into_iter().chain(upstream).chain(instance);
        head.chain(self.ledger.notes()).chain(self.kept.notes()).collect()
    }

    /// How the relay's instance below behaves: it is destroyed when the relay was away
    /// for longer than a lease, if there is one. Tasks that nothing below can run any
    /// more end there after a while, and go back. No other instance has its name.
    #[must_use]
    pub fn instance_options(&self, lease_micros: Option<u64>) -> InstanceOptions {
        InstanceOptions {
            name: format!("tasks from above ({:016x})", self.identity),
            keep_results: false,
            fail_unschedulable_micros: Some(RELAY_UNOFFERED_MICROS),
            lease_micros,
            keep: Keep::Forever,
            keep_output: true,
            policy: PolicyOptions { policy: PolicyName::MaxComputeUtil, ..Default::default() },
            ..InstanceOptions::default()
        }
    }

    /// Takes one event in.
    pub fn handle(&mut self, now: Time, event: Event) {
        self.now = self.now.max(now);
        match event {
            Event::Connected { above } => self.connect(above),
            Event::Disconnected => {
                self.session = Session::new(false, self.now);
                self.updates.disconnected();
                let until = self.now.after(RELAY_UNMET_MICROS);
                self.unmet_until = self.unmet_until.or(Some(until)).filter(|_| self.has_unmet());
            }
            Event::Order(order) => self.take_order(order),
            Event::Unmet(waiting) => {
                self.unmet_until = None;
                self.tell_unmet(waiting);
            }
            Event::Subtree(mut subtree) => {
                self.vacancy.look(self.now, &subtree);
                subtree.process = self.process;
                if self.subtree.as_ref() != Some(&subtree) {
                    self.subtree = Some(subtree);
                    self.session.is_subtree_told = false;
                }
                self.join();
            }
            Event::Survey(survey) => self.survey.take(survey, &self.name),
            Event::Holdings(holdings) => self.holdings.take(holdings),
            Event::Staged { staged, unstaged } => {
                self.staged.take(&staged, &unstaged, &self.ledger);
            }
            Event::Accepted { count } => self.accepted(count),
            Event::Refused { why } => self.refused(why),
            Event::Withdrawn(runs) => self.withdrawn(runs),
            Event::Results { from, results } => self.take_results(from, &results),
        }
    }

    /// What to do next; `None` until the next event or timeout.
    pub fn poll_action(&mut self) -> Option<Action> {
        if self.actions.is_empty() {
            self.acknowledge();
            self.submit();
            self.note_left();
        }
        if self.actions.is_empty() && self.session.has_joined {
            self.leave();
            if let Some(update) = self.next_update() {
                self.session.heartbeats.spoke(self.now);
                return Some(Action::Update(update));
            }
        }
        self.actions.pop_front()
    }

    /// When [`Relay::handle_timeout`] is due, and why.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Time, &'static str)> {
        let joined = self.session.has_joined;
        let heartbeat = joined.then(|| (self.session.heartbeats.due(), "heartbeat"));
        let reports = self.reports_held_until().map(|at| (at, "reports that follow"));
        let retry = self.retry_at.map(|at| (at, "a submission that was refused"));
        let unmet = self.unmet_until.map(|at| (at, "demand of before"));
        let vacant = self.vacancy.due().filter(|_| self.has_unreported());
        let vacant = vacant.map(|at| (at, "tasks that nothing below can run"));
        [heartbeat, reports, retry, unmet, vacant].into_iter().flatten().min()
    }

    /// Does what is due at `now`. Calling it early does no harm.
    pub fn handle_timeout(&mut self, now: Time) {
        self.now = self.now.max(now);
        if self.session.has_joined && self.session.heartbeats.due() <= self.now {
            self.updates.heartbeat();
        }
        if self.retry_at.take_if(|at| *at <= self.now).is_some() {
            self.outgoing.restart();
        }
        if self.has_unreported() && self.vacancy.is_over(self.now) {
            let taken = self.outgoing.take_last(u64::MAX);
            taken.into_iter().for_each(|held| self.updates.give_back(held));
            self.actions.push_back(Action::Withdraw(u64::MAX));
        }
        if self.unmet_until.take_if(|at| *at <= self.now).is_some() {
            self.tell_unmet(Vec::new());
        }
    }

    /// Checks what must always hold.
    ///
    /// # Errors
    /// Says what does not.
    pub fn check(&self) -> Result<(), CheckError> {
        self.ledger.check()?;
        self.staged.check(&self.ledger)?;
        self.updates.check()?;
        let stopped = self.outgoing.is_stopped() && self.retry_at.is_none();
        ensure!(!stopped, "submissions were refused, and are never sent again");
        Ok(())
    }

    fn connect(&mut self, above: Time) {
        if self.session.is_connected {
            self.updates.disconnected();
        }
        self.session = Session::new(true, self.now);
        self.survey.connected();
        self.holdings.connected();
        self.staged.connected();
        self.kept.tell_anew();
        self.ahead_micros = above.0.cast_signed().wrapping_sub(self.now.0.cast_signed());
        // The dispatcher may be another one, to which these numbers mean nothing.
        self.outgoing.forget_all();
        self.join();
    }

    /// Registers, once it is known what is below.
    fn join(&mut self) {
        if !self.session.is_connected || self.session.has_joined || self.subtree.is_none() {
            return;
        }
        self.session.has_joined = true;
        self.session.heartbeats.spoke(self.now);
        let (reports, mut held) = self.updates.connected(false);
        held.extend(self.ledger.held());
        held.extend(self.outgoing.hold(JOIN_RUNS_MAX.saturating_sub(held.len())));
        self.actions.push_back(Action::Join(Join {
            incarnation: self.identity,
            name: self.name.clone(),
            // The classes of nodes follow, and are all that counts.
            capacity: Resources::default(),
            held,
            reports,
            gangs: Vec::new(),
            // What they hold below is not known there: the first of their alternatives counts.
            alternatives: Vec::new(),
            serves: None,
            cache: CacheRoom::default(),
            lease: Lease::default(),
        }));
    }

    /// The update to send now, if there is one.
    fn next_update(&mut self) -> Option<Update> {
        let tells_subtree = !self.session.is_subtree_told;
        if tells_subtree {
            self.updates.heartbeat();
        } else if !self.holdings.has_news()
            && !self.kept.is_telling()
            && self.reports_held_until().is_some_and(|until| until > self.now)
        {
            return None;
        }
        // Who lends no nodes yet holds nothing.
        let (holdings, staged) = match tells_subtree {
            true => Default::default(),
            false => (self.holdings.changes(), self.staged.next(&self.ledger)),
        };
        let kept = self.kept.next();
        let mut update = self.updates.next_update(holdings, kept, staged, (None, None))?;
        if tells_subtree {
            update.subtree = self.subtree.clone().map(Box::new);
            self.session.is_subtree_told = true;
        }
        update.survey = self.survey.next(self.now, tells_subtree);
        Some(update)
    }

    /// Until when reports wait for those that follow them, if they do: the first
    /// after a pause goes at once, and the last of all, after which none can follow.
    /// While the dispatcher above has several messages to answer, until it answers or
    /// a heartbeat is due.
    fn reports_held_until(&self) -> Option<Time> {
        let may_follow = self.ledger.tasks() > 0 || self.outgoing.held().next().is_some();
        let tells_staged = self.staged.has_news();
        let has_only_reports = self.updates.has_only_reports(tells_staged);
        let held = may_follow && self.session.has_joined && has_only_reports;
        held.then(|| match self.updates.is_awaited() {
            true => self.session.heartbeats.due(),
            false => self.session.heartbeats.last_spoke().after(COALESCE_MICROS),
        })
    }

    fn take_order(&mut self, order: Order) {
        if !self.session.has_joined {
            return;
        }
        self.session.heartbeats.ordered(order.heartbeat_micros);
        let acknowledged = self.updates.acknowledged(order.acknowledged);
        let tasks = acknowledged.iter().map(|report| u128::from(report.count)).sum();
        self.results.acknowledged(tasks);
        let kept = self.kept.acknowledged(&acknowledged);
        self.note(kept);
        self.release(&order.discard);
        order.data.into_iter().for_each(|data| self.let_go(*data));
        order.prepare.into_iter().for_each(|prepare| self.outgoing.prepare(prepare));
        order.assign.into_iter().for_each(|assigned| self.enqueue(assigned));
        for held in &order.cancel {
            for part in self.outgoing.take(held) {
                self.report_unrun(part, Outcome::Cancelled, None);
            }
            let below = self.ledger.find_above(held, |tries| tries == held.tries);
            below.iter().for_each(|(first, count)| {
                self.cancelling.insert(*first, *count);
            });
            self.cancel_below(below);
        }
        for held in &order.disown {
            let _ = self.outgoing.take(held);
            let below = self.ledger.take_above(held, |tries| tries == held.tries);
            below.iter().for_each(|(first, count)| self.staged.forget(*first, *count));
            self.cancel_below(below);
        }
        order.forget.into_iter().for_each(|batch| self.outgoing.forget(batch));
        self.is_leaving |= order.leave;
        if order.recall > 0 {
            self.recall(order.recall);
        }
    }

    fn enqueue(&mut self, assigned: Assigned) {
        let Assigned { batch, instance, first, count, class, tries, rows, data } = assigned;
        if count == 0 || first.0.checked_add(count).is_none() {
            return;
        }
        let held = Held { instance, first, count, tries };
        // Tasks that run everywhere have one row together.
        let rows_count = if self.outgoing.is_everywhere(batch) { 1 } else { count };
        let rows_fit = match &rows {
            Rows::Packed(packed) => packed.is_sound() && packed.len() == rows_count,
            Rows::Computed { .. } => rows.len().is_some_and(|there| there >= rows_count),
        };
        if !rows_fit || count > SUBMISSION_TASKS_MAX {
            let error = "the task's order does not say what distinguishes it";
            self.report_unrun(held, Outcome::NotRun, Some(error.to_owned()));
            return;
        }
        let data = match data.map(|data| data.declared(rows_count)) {
            None => None,
            Some(Some(data)) => Some(data),
            Some(None) => {
                let error = "the task's order does not say which data objects are its own";
                self.report_unrun(held, Outcome::NotRun, Some(error.to_owned()));
                return;
            }
        };
        if !self.outgoing.push(batch, Tasks { held, class, rows, data }) {
            let error = "the relay was never sent a sound template of this task";
            self.report_unrun(held, Outcome::NotRun, Some(error.to_owned()));
        }
    }

    /// The dispatcher above needs objects in caches below no more.
    fn let_go(&mut self, data: DataOrder) {
        let objects = LetGo { release: data.release, drop: data.drop };
        if !objects.is_empty() {
            self.holdings.let_go(&objects);
            self.actions.push_back(Action::LetGo(objects));
        }
    }

    /// The dispatcher above needs long output no more: numbers, as (first, count).
    fn release(&mut self, numbers: &[(u64, u64)]) {
        let (below, notes) = self.kept.discard(numbers);
        self.note(notes);
        if !below.is_empty() {
            self.actions.push_back(Action::Release(below));
        }
    }

    fn note(&mut self, notes: Vec<Note>) {
        if !notes.is_empty() {
            self.actions.push_back(Action::Note(notes));
        }
    }

    fn cancel_below(&mut self, runs: Vec<(u64, u64)>) {
        if !runs.is_empty() {
            self.actions.push_back(Action::Cancel(runs));
        }
    }

    fn report_unrun(&mut self, held: Held, outcome: Outcome, error: Option<String>) {
        let detail = error.map(|error| Arc::new(Detail { error, ..Detail::default() }));
        self.push_report(held, outcome, (self.now, self.now), detail);
        // Nothing below waits for these reports.
        self.results.reported_unrun(held.count);
    }

    /// Reports tasks to the dispatcher above. Times are on the clock below.
    fn push_report(
        &mut self,
        held: Held,
        outcome: Outcome,
        (started, ended): (Time, Time),
        detail: Option<Arc<Detail>>,
    ) {
        let (started, ended) = (self.above(started), self.above(ended));
        let Held { instance, first, count, tries } = held;
        self.updates.push(Report {
            instance,
            first,
            count,
            tries,
            outcome,
            started,
            ended,
            detail,
        });
    }

    fn has_unreported(&self) -> bool {
        !self.ledger.is_empty() || !self.outgoing.is_empty()
    }

    fn has_unmet(&self) -> bool {
        !self.unmet.is_empty()
    }

    /// Tells the dispatcher below what waits above.
    fn tell_unmet(&mut self, waiting: Vec<Waiting>) {
        self.unmet.clone_from(&waiting);
        self.actions.push_back(Action::Unmet(waiting));
    }

    /// A time on the clock above.
    fn above(&self, below: Time) -> Time {
        Time(below.0.saturating_add_signed(self.ahead_micros))
    }
}

// The way down.
impl Relay {
    /// Submits what waits.
    fn submit(&mut self) {
        while let Some((first, submission, numbered)) = self.outgoing.next() {
            let mut before = Vec::new();
            for (below, held) in &numbered {
                before.extend(self.ledger.insert(*below, held));
            }
            let sent = |(below, held)| Note::Sent { below, held };
            self.actions.push_back(Action::Note(numbered.into_iter().map(sent).collect()));
            before.iter().for_each(|(first, count)| self.staged.forget(*first, *count));
            self.cancel_below(before);
            self.actions.push_back(Action::Submit { first: TaskId(first), submission });
        }
    }
}
