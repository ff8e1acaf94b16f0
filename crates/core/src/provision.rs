//! The provisioner: executors from batch schedulers, as demand asks
//! (falkon-sc07 §3.1 and §4.5; data-diffusion §5.2; loosely-coupled §III.B).
//!
//! It decides how many nodes are asked for, of which queue, and when they are
//! given back. How a local resource manager (LRM) is spoken to is the shell's
//! business: an LRM is anything that takes a request for nodes, can be asked
//! what became of all requests, and can be told to end one.
//!
//! # The pump
//! Call [`Provisioner::handle`] for each event, in order, then
//! [`Provisioner::poll_action`] until it gives `None`, then wait until
//! [`Provisioner::poll_timeout`] or the next event.
//!
//! What the dispatcher knows of demand and executors becomes events through
//! [`Watch`]: the shell and the simulator call [`Watch::look`] when
//! [`Watch::due`] says so. All events of a look are handled before actions are
//! polled: they tell of one state.
//!
//! # Allocations and orphans
//! One allocation is one job of the LRM: so many nodes, an executor on each.
//! Its [`AllocationId`] is given before the LRM is asked, and travels in the
//! job's name together with something that names the dispatcher and the queue.
//! An answer to a query lists *all* jobs with the dispatcher's name in them, so
//! that what was submitted before a crash, or under a request whose answer was
//! lost, is found again. Nothing is asked of a queue before it was queried once.
//! A job that is not listed is asked about by its number before it is given up,
//! and taken back when it is listed again (`absence`).

mod absence;
mod acquire;
mod allocation;
mod check;
mod decide;
mod decision;
mod event;
mod forecast;
mod handle;
pub mod limits;
mod lrm;
mod options;
mod outlook;
mod plan;
mod queue;
mod release;
mod size;
mod view;
mod watch;

pub use crate::task::AllocationId;
pub use allocation::AllocationState;
pub use check::CheckError;
pub use decision::{Decision, Reason, Verdict};
pub use event::{
    About, Action, Demand, Durations, Event, Found, JobState, QueueId, Submitted, Waiting,
};
pub use options::{AcquireName, OptionsError, QueueOptions, ReleaseName, leave_micros};
pub use plan::{Plan, PlanLine};
pub use view::{AllocationView, QueueView};
pub use watch::Watch;

use crate::task::{ExecutorId, Resources, Time};
use absence::Losses;
use allocation::Allocation;
use forecast::Forecast;
use queue::Queue;
use std::collections::{BTreeMap, VecDeque};

/// An executor, as far as it matters here.
#[derive(Debug)]
struct Member {
    allocation: Option<AllocationId>,
    capacity: Resources,
    leaves_at: Option<Time>,
    /// Since when it has had no task.
    idle_since: Option<Time>,
    /// It was told to leave.
    released: bool,
}

/// A provisioner's whole state.
#[derive(Debug, Default)]
pub struct Provisioner {
    now: Time,
    next_allocation: u64,
    queues: BTreeMap<QueueId, Queue>,
    allocations: BTreeMap<AllocationId, Allocation>,
    losses: Losses,
    members: BTreeMap<ExecutorId, Member>,
    demand: Demand,
    forecast: Forecast,
    /// Since when there has been nothing to do at all.
    quiet_since: Option<Time>,
    /// What tasks that wait, or waited last, need.
    last_need: Resources,
    actions: VecDeque<Action>,
    /// Something has happened since it was last decided what to do.
    undecided: bool,
    /// When to look again though nothing has happened, and why.
    look: Option<(Time, &'static str)>,
}

impl Provisioner {
    /// A provisioner without queues, whose allocations are numbered from
    /// `first` on; those that are found move that up. `first` is above all that
    /// were used before under the dispatcher's name, those included that LRMs
    /// have forgotten: seconds since some fixed time are, as hardly more than
    /// one allocation is asked for in a second for long.
    #[must_use]
    pub fn new(first: AllocationId) -> Provisioner {
        Provisioner {
            next_allocation: first.0,
            last_need: Resources::cpus(1),
            ..Provisioner::default()
        }
    }

    /// Takes one event in. `now` never goes back; if it does, it counts as the
    /// latest time seen.
    pub fn handle(&mut self, now: Time, event: Event) {
        self.now = self.now.max(now);
        self.undecided = true;
        match event {
            Event::Add { queue, options } => self.add_queue(queue, *options),
            Event::Change { queue, options } => self.change_queue(queue, *options),
            Event::Pause { queue } => self.pause_queue(queue),
            Event::Resume { queue } => self.resume_queue(queue),
            Event::Remove { queue } => self.remove_queue(queue),
            Event::Once { queue, nodes, walltime_micros } => {
                self.ask_once(queue, nodes, walltime_micros);
            }
            Event::Drop { allocation } => self.cancel(allocation, Reason::Asked),
            Event::Demand(demand) => self.hear_demand(*demand),
            Event::ExecutorJoined { executor, allocation, capacity, leaves_at } => {
                self.executor_joined(executor, allocation, capacity, leaves_at);
            }
            Event::ExecutorIdle { executor, since } => self.set_idle(executor, Some(since)),
            Event::ExecutorBusy { executor } => self.set_idle(executor, None),
            Event::ExecutorLeft { executor } => self.executor_left(executor),
            Event::SubmitAnswer { allocation, answer } => self.submit_answered(allocation, answer),
            Event::States { queue, found } => self.hear_states(queue, found),
            Event::QueryFailed { queue, words } => self.query_failed(queue, words),
            Event::CancelAnswer { allocation, refused } => {
                self.cancel_answered(allocation, refused)
            }
            Event::Free { queue, nodes } => self.hear_free(queue, nodes),
            Event::About { allocation, about } => self.hear_about(allocation, about),
            Event::Size { queue, nodes, job_nodes } => self.hear_size(queue, nodes, job_nodes),
            Event::Recovered { queue, found } => self.recovered(queue, found),
        }
    }

    /// What nodes can still be asked for; `None` for one of which it is not
    /// known yet what it offers.
    #[must_use]
    pub fn obtainable(&self) -> Vec<Option<Resources>> {
        let open = self.queues.values().filter(|queue| queue.paused.is_none() && !queue.removing);
        let mut nodes: Vec<_> =
            open.map(|queue| (!queue.is_guess).then(|| queue.node.clone())).collect();
        nodes.dedup();
        nodes
    }

    /// What to do next; `None` when there is nothing until the next event or
    /// timeout.
    pub fn poll_action(&mut self) -> Option<Action> {
        if self.actions.is_empty() && std::mem::take(&mut self.undecided) {
            self.decide_and_act();
        }
        self.actions.pop_front()
    }

    /// When [`Provisioner::handle_timeout`] is due, and why.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Time, &'static str)> {
        let look = self.look;
        let lrm = self.lrm_timeout();
        [look, lrm].into_iter().flatten().min()
    }

    /// Does what is due at `now`. Calling it early does no harm.
    pub fn handle_timeout(&mut self, now: Time) {
        self.now = self.now.max(now);
        self.lrm_due();
        self.undecided = true;
    }

    fn decided(&mut self, queue: QueueId, verdict: Verdict, reason: Reason) {
        let decision = Decision { at: self.now, queue, verdict, reason };
        self.actions.push_back(Action::Decided(Box::new(decision)));
    }

    /// Nodes of a queue that have tasks and take more.
    fn busy_nodes(&self, queue: QueueId) -> u64 {
        let of_queue = |id: &ExecutorId| {
            let member = self.members.get(id);
            member.is_some_and(|member| member.idle_since.is_none() && !member.released)
        };
        let mut busy = 0;
        for one in self.allocations_of(queue) {
            busy += one.executors.iter().filter(|id| of_queue(id)).count() as u64;
        }
        busy
    }
}
