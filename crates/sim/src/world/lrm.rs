//! A local resource queue that does not exist: a queue of jobs, looked at
//! now and then, first come, first served; and the moods of real ones.

use super::World;
use super::error::Broken;
use super::provision::QUEUE;
use crate::event_queue::Event;
use crate::scenario::Lrm;
use crate::time::{Nanos, SECOND_NANOS};
use falkon_core::provision::{
    About, AllocationId, Event as ProvisionEvent, Found, JobState, Submitted,
};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug)]
struct Job {
    nodes: u64,
    walltime: Option<Nanos>,
    /// Those that it has, once it runs.
    given: Vec<u32>,
    began: Option<Nanos>,
    /// Its processes have been told to end.
    is_signalled: bool,
}

/// From the signal to a job's processes until its executors are gone.
const JOB_END: Nanos = Nanos(SECOND_NANOS / 10);

/// The LRM's books.
#[derive(Debug)]
pub(super) struct JobQueue {
    jobs: BTreeMap<AllocationId, Job>,
    /// Nodes that no job has.
    free: BTreeSet<u32>,
    /// When it looked at its queue first: it does so every so often after that.
    phase: Nanos,
    looks_at: Option<Nanos>,
}

impl JobQueue {
    pub(super) fn new(nodes: u64, phase: Nanos) -> JobQueue {
        let free = (0..u32::try_from(nodes).unwrap_or(u32::MAX)).collect();
        JobQueue { jobs: BTreeMap::new(), free, phase, looks_at: None }
    }

    pub(super) fn free(&self) -> u64 {
        self.free.len() as u64
    }

    /// Node time of the jobs that run, in nanoseconds.
    pub(super) fn allocated_now(&self, now: Nanos) -> u128 {
        let running = self.jobs.values().filter_map(|job| Some((job.began?, job.given.len())));
        running.map(|(began, nodes)| u128::from(now.since(began).0) * nodes as u128).sum()
    }

    fn job_of(&self, node: u32) -> Option<AllocationId> {
        self.jobs.iter().find(|(_, job)| job.given.contains(&node)).map(|(id, _)| *id)
    }
}

impl World<'_> {
    fn lrm(&self) -> Lrm {
        self.scenario.provision.as_ref().map(|provision| provision.lrm).unwrap_or_default()
    }

    fn lrm_is_down(&self) -> bool {
        let (lrm, now) = (self.lrm(), self.events.now);
        lrm.down_from.is_some_and(|from| from <= now && now < from.after(lrm.down))
    }

    fn lrm_draws(&mut self, share: f64) -> bool {
        let own = self.provisioning.as_mut();
        share > 0.0 && own.is_some_and(|own| own.rng.fraction() < share)
    }

    pub(super) fn lrm_answers(&mut self, event: ProvisionEvent) {
        let at = self.events.now.after(self.lrm().answer);
        self.events.plan(at, Event::Provisioner(Some(Box::new(event))));
    }

    /// A job is submitted.
    pub(super) fn lrm_is_asked(&mut self, id: AllocationId, nodes: u64, walltime_micros: u64) {
        let lrm = self.lrm();
        if let Some(own) = &mut self.provisioning {
            own.requests += 1;
        }
        if self.lrm_is_down() {
            return;
        }
        if self.lrm_draws(lrm.refuse) {
            let words = "the queue takes no jobs now".to_owned();
            let answer = Submitted::Refused { words };
            self.lrm_answers(ProvisionEvent::SubmitAnswer { allocation: id, answer });
            return;
        }
        let hangs = self.lrm_draws(lrm.hang);
        if hangs && self.lrm_draws(0.5) {
            return;
        }
        let walltime = (walltime_micros > 0).then(|| Nanos(walltime_micros.saturating_mul(1000)));
        let Some(own) = &mut self.provisioning else { return };
        let (given, began, is_signalled) = (Vec::new(), None, false);
        let job = Job { nodes, walltime, given, began, is_signalled };
        own.queue.jobs.insert(id, job);
        if !hangs {
            let answer = Submitted::Accepted { job: id.to_string() };
            self.lrm_answers(ProvisionEvent::SubmitAnswer { allocation: id, answer });
        }
        self.plan_lrm_look();
    }

    /// It looks at its queue at fixed times, if there is anything in it.
    fn plan_lrm_look(&mut self) {
        let (lrm, now) = (self.lrm(), self.events.now);
        let Some(own) = &mut self.provisioning else { return };
        if own.queue.looks_at.is_some_and(|at| at > now) {
            return;
        }
        let since = now.since(own.queue.phase).0;
        let at = match since.checked_div(lrm.poll.0) {
            None => now,
            Some(_) if own.queue.phase > now => own.queue.phase,
            Some(rounds) => own.queue.phase.after(Nanos((rounds + 1) * lrm.poll.0)),
        };
        own.queue.looks_at = Some(at);
        self.events.plan(at, Event::LrmLooks);
    }

    /// Starts jobs, the first of its queue first.
    pub(super) fn lrm_looks(&mut self) -> Result<(), Broken> {
        let now = self.events.now;
        if let Some(own) = &mut self.provisioning {
            own.queue.looks_at = None;
        }
        loop {
            let Some(own) = &mut self.provisioning else { return Ok(()) };
            let queue = &mut own.queue;
            let next = queue.jobs.iter_mut().find(|(_, job)| job.began.is_none());
            let Some((&id, job)) = next else { return Ok(()) };
            if job.nodes > queue.free.len() as u64 {
                // Those that are there first wait for nodes.
                if self.lrm().poll > Nanos(0) {
                    self.plan_lrm_look();
                }
                return Ok(());
            }
            job.began = Some(now);
            for _ in 0..job.nodes {
                job.given.extend(queue.free.pop_first());
            }
            own.allocations += 1;
            let nodes = job.given.clone();
            let ends = job.walltime.map(|walltime| now.after(walltime));
            let all: u64 = queue.jobs.values().map(|job| job.given.len() as u64).sum();
            own.nodes_peak = own.nodes_peak.max(all);
            self.start_allocation(id, &nodes, ends);
        }
    }

    fn start_allocation(&mut self, id: AllocationId, nodes: &[u32], ends: Option<Nanos>) {
        let (lrm, now) = (self.lrm(), self.events.now);
        let mut ends_at = ends;
        if self.lrm_draws(lrm.kill)
            && let Some(own) = &mut self.provisioning
        {
            let early = now.after(own.rng.span(lrm.kill_within));
            ends_at = Some(ends_at.map_or(early, |at| at.min(early)));
        }
        if let Some(at) = ends_at {
            self.events.plan(at, Event::AllocationEnds(id));
        }
        for number in nodes {
            let Some(own) = &mut self.provisioning else { return };
            let starts = lrm.start_min.after(own.rng.span(lrm.start_max.since(lrm.start_min)));
            let node = &mut self.nodes[*number as usize];
            node.lease = Some((id, ends));
            node.down_until = Nanos(0);
            self.events.plan(now.after(starts), Event::NodeConnects(*number));
        }
    }

    /// All jobs are asked for.
    pub(super) fn lrm_is_queried(&mut self) {
        let lrm = self.lrm();
        if let Some(own) = &mut self.provisioning {
            own.queries += 1;
        }
        if self.lrm_is_down() || self.lrm_draws(lrm.hang) {
            return;
        }
        if self.lrm_draws(lrm.query_failure) {
            let words = "cannot reach the server".to_owned();
            self.lrm_answers(ProvisionEvent::QueryFailed { queue: QUEUE, words });
            return;
        }
        let is_nonsense = self.lrm_draws(lrm.nonsense);
        let Some(own) = &self.provisioning else { return };
        let mut found = Vec::new();
        for (id, job) in &own.queue.jobs {
            let state = match job.began {
                Some(_) => JobState::Running,
                None => JobState::Pending,
            };
            let one = Found {
                queue: QUEUE,
                allocation: *id,
                job: id.to_string(),
                state,
                nodes: job.nodes,
                until: None,
                words: String::new(),
            };
            found.push(one.clone());
            if is_nonsense {
                found.push(Found { state: JobState::Unknown, nodes: 0, ..one });
            }
        }
        if is_nonsense {
            let (allocation, job) = (AllocationId(0), "?".repeat(1000));
            let (state, nodes) = (JobState::Ended, u64::MAX);
            let (queue, until, words) = (QUEUE, None, String::new());
            found.push(Found { queue, allocation, job, state, nodes, until, words });
        }
        self.lrm_answers(ProvisionEvent::States { queue: QUEUE, found });
    }

    /// One job is asked about by its number.
    pub(super) fn lrm_is_asked_about(&mut self, allocation: AllocationId, job: String) {
        let lrm = self.lrm();
        if let Some(own) = &mut self.provisioning {
            own.queries += 1;
        }
        if self.lrm_is_down() || self.lrm_draws(lrm.hang) {
            return;
        }
        let Some(own) = &self.provisioning else { return };
        let about = match own.queue.jobs.get(&allocation) {
            None => About::Gone,
            Some(known) => About::Known(Box::new(Found {
                queue: QUEUE,
                allocation,
                job,
                state: if known.began.is_some() { JobState::Running } else { JobState::Pending },
                nodes: known.nodes,
                until: None,
                words: String::new(),
            })),
        };
        self.lrm_answers(ProvisionEvent::About { allocation, about });
    }

    /// A job is cancelled.
    pub(super) fn lrm_cancels(&mut self, allocation: AllocationId) {
        if self.lrm_is_down() {
            return;
        }
        self.events.plan(self.events.now, Event::AllocationEnds(allocation));
        self.lrm_answers(ProvisionEvent::CancelAnswer { allocation, refused: None });
    }

    /// Tells a job's processes to end. Returns whether there were any.
    fn signal_job(&mut self, id: AllocationId) -> bool {
        let own = self.provisioning.as_mut();
        let Some(job) = own.and_then(|own| own.queue.jobs.get_mut(&id)) else { return false };
        if std::mem::replace(&mut job.is_signalled, true) {
            return false;
        }
        let given = job.given.clone();
        let signalled: Vec<bool> = given.into_iter().map(|one| self.signal_all(one)).collect();
        signalled.contains(&true)
    }

    /// A job is over: its tasks end, and a moment later its nodes are gone with
    /// all that is left there.
    pub(super) fn allocation_ends(&mut self, id: AllocationId) -> Result<(), Broken> {
        let now = self.events.now;
        if self.signal_job(id) {
            self.events.plan(now.after(JOB_END), Event::AllocationEnds(id));
            return Ok(());
        }
        let Some(own) = &mut self.provisioning else { return Ok(()) };
        let Some(job) = own.queue.jobs.remove(&id) else { return Ok(()) };
        let since = job.began.unwrap_or(now);
        own.allocated += u128::from(now.since(since).0) * job.given.len() as u128;
        for number in job.given {
            self.node_ends(number)?;
        }
        self.plan_lrm_look();
        Ok(())
    }

    /// A node is taken from whoever had it.
    fn node_ends(&mut self, number: u32) -> Result<(), Broken> {
        let now = self.events.now;
        self.stop_node(number, false)?;
        let node = &mut self.nodes[number as usize];
        node.lease = None;
        let registered = node.registered.take();
        if let Some(own) = &mut self.provisioning {
            own.registered += registered.map_or(0, |since| u128::from(now.since(since).0));
            own.queue.free.insert(number);
        }
        Ok(())
    }

    /// An executor has left, for good if nobody starts executors on demand: the
    /// job has ended when all of its have, and where nodes are taken back one by
    /// one, the node is free at once.
    pub(super) fn node_leaves(&mut self, number: u32) -> Result<(), Broken> {
        let now = self.events.now;
        let is_whole =
            self.scenario.provision.as_ref().is_some_and(|provision| provision.queue.is_whole);
        let Some(own) = &mut self.provisioning else {
            self.stop_node(number, false)?;
            self.nodes[number as usize].down_until = Nanos(u64::MAX);
            return Ok(());
        };
        let Some(id) = own.queue.job_of(number) else { return Ok(()) };
        if is_whole {
            self.stop_node(number, false)?;
            // Nobody starts there again, and the node is paid for on.
            self.nodes[number as usize].down_until = Nanos(u64::MAX);
            let nodes = &self.nodes;
            let Some(own) = &self.provisioning else { return Ok(()) };
            let has_left = |one: &u32| nodes[*one as usize].down_until == Nanos(u64::MAX);
            if own.queue.jobs.get(&id).is_some_and(|job| job.given.iter().all(has_left)) {
                return self.allocation_ends(id);
            }
            return Ok(());
        }
        if let Some(job) = own.queue.jobs.get_mut(&id) {
            job.given.retain(|one| *one != number);
            let since = job.began.unwrap_or(now);
            own.allocated += u128::from(now.since(since).0);
            if job.given.is_empty() {
                own.queue.jobs.remove(&id);
            }
        }
        self.node_ends(number)?;
        self.plan_lrm_look();
        Ok(())
    }
}
