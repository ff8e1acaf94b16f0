//! The provisioner's shell: tells it what the dispatcher knows and the LRM
//! answers, and does what it wants.

use super::error::Broken;
use super::lrm::JobQueue;
use super::{SEED_LRM, World};
use crate::event_queue::Event;
use crate::figures::Provisioned;
use crate::rng::Rng;
use crate::scenario::{Provision, Scenario};
use crate::time::Nanos;
use falkon_core::dispatch::Event as DispatchEvent;
use falkon_core::provision::{
    Action, AllocationId, Event as ProvisionEvent, Provisioner, QueueId, Watch,
};

/// The one queue that there is.
pub(super) const QUEUE: QueueId = QueueId(0);

pub(super) struct Provisioning {
    machine: Provisioner,
    watch: Watch,
    /// When it is next looked at what there is to do.
    timer: Option<Nanos>,
    pub(super) queue: JobQueue,
    pub(super) rng: Rng,
    pub(super) requests: u64,
    pub(super) queries: u64,
    pub(super) allocations: u64,
    pub(super) nodes_peak: u64,
    /// Node-nanoseconds registered, and allocated.
    pub(super) registered: u128,
    pub(super) allocated: u128,
}

impl Provisioning {
    pub(super) fn new(provision: &Provision, scenario: &Scenario, seed: u64) -> Provisioning {
        let mut rng = Rng::new(seed ^ SEED_LRM);
        Provisioning {
            machine: Provisioner::new(AllocationId(1)),
            watch: Watch::default(),
            timer: None,
            queue: JobQueue::new(scenario.nodes_count(), rng.span(provision.lrm.poll)),
            rng,
            requests: 0,
            queries: 0,
            allocations: 0,
            nodes_peak: 0,
            registered: 0,
            allocated: 0,
        }
    }
}

impl World<'_> {
    pub(super) fn begin_provisioning(&mut self) {
        let Some(provision) = &self.scenario.provision else { return };
        let Some(own) = &mut self.provisioning else { return };
        let options = Box::new(provision.queue.clone());
        let now = self.dispatchers[0].clock.at(self.events.now);
        own.machine.handle(now, ProvisionEvent::Add { queue: QUEUE, options });
        self.plan_provisioner(self.events.now);
    }

    /// The dispatcher's process is another one now, and the provisioner in it.
    pub(super) fn restart_provisioner(&mut self) {
        let Some(own) = &mut self.provisioning else { return };
        own.machine = Provisioner::new(AllocationId(own.requests + 1));
        own.watch = Watch::default();
        self.begin_provisioning();
    }

    fn plan_provisioner(&mut self, at: Nanos) {
        let Some(own) = &mut self.provisioning else { return };
        let at = at.max(self.events.now).max(self.dispatchers[0].down_until);
        if own.timer.is_none_or(|planned| at < planned || planned < self.events.now) {
            own.timer = Some(at);
            self.events.plan(at, Event::Provisioner(None));
        }
    }

    /// What the dispatcher has done may matter to the provisioner.
    pub(super) fn plan_look(&mut self) {
        let due =
            self.provisioning.as_ref().map(|own| self.dispatchers[0].clock.when(own.watch.due()));
        if let Some(due) = due {
            self.plan_provisioner(due);
        }
    }

    /// Lets the provisioner see what there is, hear an answer, and act.
    pub(super) fn provisioner_hears(
        &mut self,
        answer: Option<Box<ProvisionEvent>>,
    ) -> Result<(), Broken> {
        let now = self.events.now;
        let clock = self.dispatchers[0].clock;
        let Some(own) = &mut self.provisioning else { return Ok(()) };
        if self.dispatchers[0].down_until > now {
            return Ok(());
        }
        if answer.is_none() && own.timer == Some(now) {
            own.timer = None;
        }
        if let Some(answer) = answer {
            own.machine.handle(clock.at(now), *answer);
        }
        for event in own.watch.look(clock.at(now), &mut self.dispatchers[0].core) {
            own.machine.handle(clock.at(now), event);
        }
        if own.machine.poll_timeout().is_some_and(|(at, _)| clock.when(at) <= now) {
            own.machine.handle_timeout(clock.at(now));
        }
        let mut actions = Vec::new();
        while let Some(action) = own.machine.poll_action() {
            actions.push(action);
        }
        if self.scenario.check_all {
            own.machine.check().map_err(|error| format!("provisioner: {error}"))?;
        }
        let next = own.machine.poll_timeout().map(|(at, _)| clock.when(at));
        for action in actions {
            self.provisioner_acts(action);
        }
        if let Some(next) = next {
            // Clocks of the core tick in microseconds.
            self.plan_provisioner(next.max(now.after(Nanos(1_000))));
        }
        Ok(())
    }

    fn provisioner_acts(&mut self, action: Action) {
        match action {
            Action::Submit { allocation, nodes, walltime_micros, .. } => {
                self.lrm_is_asked(allocation, nodes, walltime_micros);
            }
            Action::Query { .. } => self.lrm_is_queried(),
            Action::Cancel { allocation, .. } => self.lrm_cancels(allocation),
            Action::Release { executor } => {
                let event = DispatchEvent::Release { executor };
                let now = self.dispatchers[0].clock.at(self.events.now);
                self.dispatchers[0].core.handle(now, event);
                self.wake_dispatcher(0);
            }
            Action::AskFree { queue } => {
                let nodes = self.provisioning.as_ref().map(|own| own.queue.free());
                self.lrm_answers(ProvisionEvent::Free { queue, nodes });
            }
            Action::AskAbout { allocation, job, .. } => self.lrm_is_asked_about(allocation, job),
            Action::AskSize { queue } => {
                let (nodes, job_nodes) = (None, None);
                self.lrm_answers(ProvisionEvent::Size { queue, nodes, job_nodes });
            }
            Action::Removed { .. } | Action::Decided(_) => {}
        }
    }

    /// What nodes that were acquired on demand cost, up to `end`.
    pub(super) fn provisioned(&mut self, end: Nanos) -> Option<Provisioned> {
        let slots = self.scenario.nodes.first().map_or(1, |group| u64::from(group.slots));
        let own = self.provisioning.as_ref()?;
        let (mut registered, mut allocated) = (own.registered, own.allocated);
        for node in &self.nodes {
            registered += node.registered.map_or(0, |since| u128::from(end.since(since).0));
        }
        allocated += own.queue.allocated_now(end);
        let seconds = |nanos: u128| nanos as f64 / 1e9;
        let utilization = self.measured.busy as f64 / (registered as f64 * slots as f64).max(1.0);
        Some(Provisioned {
            requests: own.requests,
            allocations: own.allocations,
            node_s: seconds(registered),
            allocated_s: seconds(allocated),
            utilization,
            queries: own.queries,
            nodes_peak: own.nodes_peak,
        })
    }
}
