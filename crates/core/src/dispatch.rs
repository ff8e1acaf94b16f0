//! The dispatcher: queues, dispatch, results, recovery (falkon-sc07 §3.2).
//!
//! # The pump
//! Call [`Dispatcher::handle`] for each event, in order, then
//! [`Dispatcher::poll_action`] until it gives `None`, then wait until
//! [`Dispatcher::poll_timeout`] or the next event. The more events are handled
//! between two rounds of polling, the larger the bundles. Records to journal
//! come before the actions that depend on them: a shell that writes all
//! records of a round before it sends anything of that round loses nothing.

mod ack_coalescing;
mod admission;
mod alternatives;
mod attempts;
mod caches;
mod cancel;
pub(crate) mod check;
mod collectors;
mod comeback;
mod conclude;
mod data_tasks;
mod deliver;
mod demand;
mod departure;
mod end;
mod event;
mod everywhere;
mod executor_messages;
mod expire;
mod explain;
mod fleet;
mod foresight;
mod forwarding;
mod gangs;
mod groups;
mod happenings;
mod holdings;
mod idle;
mod inspect;
mod instance;
mod instance_options;
mod instances;
mod intermediate;
mod join;
mod journal_room;
mod lasting;
mod likes;
mod line;
mod needs;
mod outbound;
mod outflow;
mod outputs;
mod pages;
mod parts;
mod pauses;
mod place;
mod placement;
mod queues;
mod rack;
mod recall;
mod recompute;
mod recover;
mod request_error;
mod results;
mod retry;
mod runnable;
mod share;
mod shelf;
mod speculation;
mod staged;
mod standstill;
mod state;
mod submit;
mod submitters;
mod subscriptions;
mod subtree;
mod survey;
mod tails;
mod unmet;
mod unoffered;
mod update;
mod users;
mod values;
mod views;
mod whereabouts;
mod withdrawals;

use crate::task::{InstanceId, Time};
use collectors::Collectors;
use comeback::Comeback;
use fleet::Fleet;
use forwarding::{Asker, Forwarding};
use holdings::HeldLog;
use instances::Instances;
use journal_room::JournalRoom;
use needs::Needs;
use outbound::Outbound;
use pages::Paging;
use placement::Placement;
use runnable::Runnable;
use staged::Staged;
use std::collections::BTreeSet;
use survey::Surveys;
use tails::Tails;
use unmet::Unmet;
use unoffered::Unoffered;
use withdrawals::Withdrawals;

pub use ack_coalescing::{AckCoalescing, AckEvent, Classify, Traffic};
pub use admission::JoinError;
pub use attempts::Attempts;
pub use caches::LetGo;
pub use cancel::Selection;
pub use check::CheckError;
pub use event::{Action, ConnectionId, Delivery, Event, Reply};
pub use executor_messages::{
    Assigned, BatchId, Held, HeldAlternative, Join, Lease, Order, Prepare, Update,
};
pub use explain::{Explained, Obstacle, Offering};
pub use holdings::Holdings;
pub use idle::{Idle, IdleReason};
pub use inspect::{
    Access, AccessError, Earlier, FoundObject, HolderStatus, ObjectStatus, Purpose, Scope,
};
pub use instance_options::{InstanceOptions, Keep};
pub use instances::{Expiry, Lifetime};
pub use journal_room::{Compaction, Disk, JournalSize};
pub use outputs::PagedOutput;
pub use pages::{Page, PageBounds, PagePlace, StoredPage};
pub use placement::{Remembered, diffusion};
pub use recover::{Record, RecoverError};
pub use request_error::RequestError;
pub use retry::Retried;
pub use subtree::{NodeClass, Subtree, SubtreeError};
pub use survey::{Site, Standing, Survey};
pub use users::{UserLimits, UserUse};
pub use views::{ExecutorView, InstanceView};
pub use whereabouts::{Begun, Whereabouts};

/// A dispatcher's whole state.
#[derive(Debug, Default)]
pub struct Dispatcher {
    now: Time,
    instances: Instances,
    /// Needs that nobody offers, where tasks fail for that.
    unoffered: Unoffered,
    /// The executors, and which of them are to be looked at.
    fleet: Fleet,
    needs: Needs,
    runnable: Runnable,
    /// Actions, and results that are to be delivered.
    outbound: Outbound,
    /// Results in memory, and pages of results on disk.
    paging: Paging,
    /// Room on the journal's disk.
    journal_room: JournalRoom,
    /// Where data is, and the tasks that it decides about.
    placement: Placement,
    /// What a provisioner is told of tasks that came and went.
    tally: demand::Tally,
    /// Output that executors keep.
    outputs: outputs::Outputs,
    /// Something changed since tasks were last placed, other than executors'
    /// room.
    unplaced: bool,
    /// After a restart: executors that may still have tasks.
    comeback: Comeback,
    /// How often tasks were tried and who has them, for the journal.
    attempts: attempts::Ledger,
    /// Who collects outputs, and how that goes.
    collectors: Collectors,
    /// The relays that lend this dispatcher's executors.
    lent_to: BTreeSet<u64>,
    /// What executors hold, for these.
    held_log: HeldLog,
    /// Demand on its way down to relays.
    unmet: Unmet,
    /// How relays do, for people.
    surveys: Surveys,
    /// What people hold up.
    pauses: pauses::Pauses,
    /// The users beside the owner, with their instances.
    users: users::Users,
    /// What those who watch are told of.
    happenings: happenings::Happenings,
    /// Tasks on their way back to dispatchers above.
    withdrawals: Withdrawals,
    tails: Tails,
    /// Parts of objects on their way between executors that cannot reach each other.
    forwarding: Forwarding,
    /// The staged tasks that relays ask for.
    staged: Staged,
    /// Tries of tasks on several executors.
    gangs: gangs::Gangs,
    /// Tasks with two tries at a time.
    speculation: speculation::Speculation,
}

impl Dispatcher {
    /// A dispatcher with nothing in it.
    #[must_use]
    pub fn new() -> Self {
        Dispatcher::default()
    }

    /// Takes one event in. `now` never goes back; if it does, it counts as
    /// the latest time seen.
    pub fn handle(&mut self, now: Time, event: Event) {
        self.now = self.now.max(now);
        self.write_levels_down();
        match event {
            Event::Create { connection, request, options } => {
                let created = self.create(options, self.users.speaker(connection));
                let reply = match created.and_then(|id| self.attach(connection, id).map(|()| id)) {
                    Ok(id) => Reply::Created(id),
                    Err(error) => Reply::Refused(error),
                };
                self.reply(connection, request, reply);
            }
            Event::Submit { connection, request, instance, first, client, submission } => {
                let attached = self.attach(connection, instance);
                let submitted =
                    attached.and_then(|()| self.submit(instance, first, client, submission));
                let reply = match submitted {
                    Ok(count) => Reply::Accepted { first, count },
                    Err(error) => Reply::Refused(error),
                };
                self.reply(connection, request, reply);
            }
            Event::Seal { connection, request, instance } => {
                let attached = self.attach(connection, instance);
                let result = attached.and_then(|()| self.seal(instance));
                self.reply_done(connection, request, result);
            }
            Event::Forget { connection, request, name } => {
                let count = self.forget(name);
                self.reply(connection, request, Reply::Forgotten(count));
            }
            Event::Subscribe { connection, request, instance, from } => {
                let attached = self.attach(connection, instance);
                let result = attached.and_then(|()| self.subscribe(connection, instance, from));
                self.reply_done(connection, request, result);
            }
            Event::Acknowledge { connection, instance, upto } => {
                self.acknowledge(connection, instance, upto);
            }
            Event::Cancel { connection, request, instance, selection } => {
                let attached = self.attach(connection, instance);
                let result = attached.and_then(|()| self.cancel(instance, &selection));
                self.reply_done(connection, request, result);
            }
            Event::Retry { connection, request, instance, selection } => {
                let attached = self.attach(connection, instance);
                let result = attached.and_then(|()| self.retry(instance, &selection));
                let reply = result.map_or_else(Reply::Refused, Reply::Retried);
                self.reply(connection, request, reply);
            }
            Event::Pause { connection, request, instance, is_paused } => {
                let attached = self.attach(connection, instance);
                let result = attached.and_then(|()| self.pause(instance, is_paused));
                self.reply_done(connection, request, result);
            }
            Event::Prioritize { connection, request, instance, priority } => {
                let attached = self.attach(connection, instance);
                let result = attached.and_then(|()| self.prioritize(instance, priority));
                self.reply_done(connection, request, result);
            }
            Event::Drain { connection, request, executor, is_drained } => {
                let result = self.drain_executor(executor, is_drained);
                self.reply_done(connection, request, result);
            }
            Event::Withdraw { connection, request, instance, count } => {
                if let Err(error) = self.withdraw_for_above(connection, request, instance, count) {
                    self.reply(connection, request, Reply::Refused(error));
                }
            }
            Event::AwaitStaged { connection, request, instance } => {
                if let Err(error) = self.await_staged(connection, request, instance) {
                    self.reply(connection, request, Reply::Refused(error));
                }
            }
            Event::Destroy { connection, request, instance } => {
                let attached = self.attach(connection, instance);
                let result = attached.and_then(|()| self.destroy(instance, connection));
                self.reply_done(connection, request, result);
            }
            Event::Join { connection, join } => self.join(connection, join),
            Event::Update { connection, update } => self.update(connection, update),
            Event::Unmet { connection, waiting } => self.hear_unmet(connection, waiting),
            Event::Release { executor } => self.release_executor(executor),
            Event::Written { connection, messages } => self.written(connection, messages),
            Event::Closed { connection } => {
                self.detach(connection);
                self.unmet.close(connection);
                self.withdrawals.close(connection);
                self.close_tails(connection);
                self.close_parts(connection);
                self.staged.close(connection);
                self.users.close(connection);
                self.closed(connection);
            }
            Event::ReleaseOutput { connection, request, instance, runs } => {
                let attached = self.attach(connection, instance);
                let done = attached.map(|()| self.release_outputs(instance, &runs));
                self.reply_done(connection, request, done);
            }
            Event::ReadOutput { connection, request, question } => {
                self.read_output(connection, request, question);
            }
            Event::AskTail { connection, request, question } => {
                self.ask_tail(connection, request, question);
            }
            Event::TailTold { connection, number, told } => {
                self.tail_told(connection, number, told);
            }
            Event::ReadPart { connection, number, question } => {
                self.read_part(Asker::Below(connection, number), question);
            }
            Event::ReadPartBelow { connection, request, question } => {
                self.read_part(Asker::Above(connection, request), question);
            }
            Event::ReadFromRelays { connection, request, question } => {
                self.read_part(Asker::Client(connection, request), question);
            }
            Event::DropBelow { connection, request, object } => {
                self.drop_below((connection, request), object);
            }
            Event::AwaitParts { connection, request } => self.await_parts(connection, request),
            Event::PartTold { connection, number, answer } => {
                self.part_told(connection, number, answer);
            }
            Event::LetGo { connection, request, objects } => {
                self.let_go((connection, request), &objects);
            }
            Event::PageStored { instance, from, place } => self.page_stored(instance, from, place),
            Event::PageLoaded { instance, from, page } => self.page_loaded(instance, from, page),
            Event::TokensDrawn(tokens) => {
                self.unplaced |= !tokens.is_empty();
                self.gangs.add_tokens(tokens, self.now);
            }
            Event::DiskMeasured(disk) => self.disk_measured(disk),
            Event::UserSet { user, limits } => self.set_user(user, limits),
            Event::UserRevoked { user, keeps } => self.revoke_user(user, keeps),
            Event::UserForgotten { user } => self.forget_user(user),
            Event::SpeaksFor { connection, user } => self.speak_for(connection, user),
        }
    }

    /// What to do next; `None` when there is nothing until the next event or
    /// timeout.
    pub fn poll_action(&mut self) -> Option<Action> {
        if self.outbound.is_empty() {
            self.settle_withdrawals();
            self.settle_everywhere();
            self.fail_fast();
            self.fail_stuck();
            self.withdraw_idle();
            self.place_marked_instances();
            self.settle_everywhere();
            self.settle_gangs();
            while self.has_unplaced() {
                self.unplaced = false;
                self.place();
                self.settle_everywhere();
            }
            if self.outbound.is_empty() {
                self.send_orders();
            }
            if self.outbound.is_empty() {
                self.tell_staged();
                self.tell_parts();
                self.deliver();
                self.store_pages();
            }
        }
        self.outbound.pop()
    }

    /// When [`Dispatcher::handle_timeout`] is due, and why.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Time, &'static str)> {
        let executors = self.fleet.next_timeout();
        let recovery = self.comeback.until().map(|at| (at, "recovery"));
        let pages = self.paging.retry_at().map(|at| (at, "a page to write again"));
        let lifetime = self.instances.next_expiry().map(|at| (at, "lifetime of an instance"));
        let unoffered = self.unoffered.due().map(|at| (at, "need that nobody offers"));
        let unmet = self.unmet_due().map(|at| (at, "demand that relays are told"));
        let withdrawal = self.withdrawals.due().map(|at| (at, "tasks to take back"));
        let gangs = self.gangs.due().map(|at| (at, "room that is kept for a gang"));
        let all = [executors, recovery, pages, lifetime, unoffered, unmet, withdrawal, gangs];
        let due = all.into_iter().flatten().min();
        match (self.tails.due(), self.forwarding.due(), self.speculation.due()) {
            // As mostly.
            (None, None, None) => due,
            (tail, part, straggler) => {
                let tail = tail.map(|at| (at, "answer of a relay"));
                let part = part.map(|at| (at, "part of an object"));
                let straggler = straggler.map(|at| (at, "stragglers"));
                [due, tail, part, straggler].into_iter().flatten().min()
            }
        }
    }

    /// Does what is due at `now`. Calling it early does no harm.
    pub fn handle_timeout(&mut self, now: Time) {
        self.now = self.now.max(now);
        self.write_levels_down();
        if self.comeback.until().is_some_and(|at| at <= self.now) {
            self.end_recovery();
        }
        self.unplaced |= self.fleet.take_due_recall(self.now);
        self.fleet.send_due_orders(self.now);
        self.paging.end_pause(self.now);
        self.unplaced |= self.unoffered.take_due(self.now);
        self.unplaced |= self.gangs.take_due(self.now);
        self.unplaced |= self.speculation.take_due(self.now);
        self.tell_unmet();
        self.withdrawals.look(self.now);
        self.settle_withdrawals();
        self.end_late_tails();
        self.end_late_parts();
        self.expire();
        self.fleet.end_due_suspensions(self.now);
        while let Some(id) = self.fleet.due_silent(self.now) {
            self.lose_executor(id, "it was silent for too long");
        }
    }

    /// The latest time that it knows of, from its clock or its journal. A shell
    /// whose clock is behind goes on from here, or nothing would be due in time.
    #[must_use]
    pub fn now(&self) -> Time {
        self.now
    }

    /// The state of an instance; `None` if there is none.
    #[must_use]
    pub fn instance_view(&self, id: InstanceId) -> Option<InstanceView<'_>> {
        self.instances.find(&id).map(|instance| InstanceView { dispatcher: self, instance })
    }

    /// All instances, in the order of their creation.
    pub fn instance_views(&self) -> impl Iterator<Item = InstanceView<'_>> {
        self.instances.values().map(|instance| InstanceView { dispatcher: self, instance })
    }

    /// The number that the next instance gets.
    #[must_use]
    pub fn next_instance(&self) -> InstanceId {
        self.instances.next()
    }

    /// How many executors have tasks.
    #[must_use]
    pub fn busy_executors(&self) -> u64 {
        self.fleet.busy()
    }

    /// All executors, in the order of their registration.
    pub fn executor_views(&self) -> impl Iterator<Item = ExecutorView<'_>> {
        let placement = &self.placement;
        self.fleet.iter().map(|executor| ExecutorView {
            executor,
            placement,
            collectors: &self.collectors,
        })
    }

    /// Whether tasks are to be placed, or objects copied: something changed since
    /// they last were. Nothing is during a recovery, whatever room executors gain.
    fn has_unplaced(&self) -> bool {
        let has_more = self.fleet.has_new_room() || self.placement.has_copies_due();
        self.unplaced || (has_more && self.comeback.until().is_none())
    }

    fn reply(&mut self, connection: ConnectionId, request: u64, reply: Reply) {
        self.outbound.reply(connection, request, reply);
    }

    fn reply_done(
        &mut self,
        connection: ConnectionId,
        request: u64,
        result: Result<(), RequestError>,
    ) {
        let reply = result.map_or_else(Reply::Refused, |()| Reply::Done);
        self.reply(connection, request, reply);
    }

    fn journal(&mut self, record: Record) {
        self.outbound.journal(record);
    }
}
