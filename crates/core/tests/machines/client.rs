//! A client: does what its plan says, over connections that break, and keeps
//! what it is told.

use crate::rng::Rng;
use crate::workload::{Op, Plan};
use falkon_core::dispatch::{ConnectionId, Delivery, Event, Reply, RequestError, Selection};
use falkon_core::result::{Counts, Outcome, Overflow};
use falkon_core::runset::RunSet;
use falkon_core::task::{InstanceId, Submission, TaskId, Time};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) plan: Plan,
    pub(crate) ops: VecDeque<Op>,
    pub(crate) awaiting: Option<(u64, Op)>,
    next_request: u64,
    pub(crate) instance: Option<InstanceId>,
    pub(crate) connection: Option<u64>,
    pub(crate) wake_at: Option<Time>,
    was_subscribed: bool,
    /// Results by position: task, outcome, attempts.
    pub(crate) log: Vec<(u64, Outcome, u32)>,
    /// What executors keep of these results.
    outputs: BTreeSet<Overflow>,
    /// What results say that went wrong.
    pub(crate) errors: BTreeMap<u64, String>,
    /// The tasks whose results have what they printed.
    pub(crate) printed: BTreeSet<u64>,
    pub(crate) ended: RunSet,
    pub(crate) accepted: u64,
    /// Tasks it asked to be cancelled.
    pub(crate) cancelled: RunSet,
    /// Whose values each task was submitted to take: a submission is made again
    /// if its answer is lost.
    pub(crate) takes: BTreeMap<u64, Vec<Vec<u64>>>,
    pub(crate) complete: bool,
    pub(crate) destroyed: bool,
}

impl Client {
    pub(crate) fn new(plan: Plan) -> Client {
        Client {
            ops: plan.ops.iter().cloned().collect(),
            plan,
            awaiting: None,
            next_request: 0,
            instance: None,
            connection: None,
            wake_at: Some(Time(0)),
            was_subscribed: false,
            log: Vec::new(),
            outputs: BTreeSet::new(),
            errors: BTreeMap::new(),
            printed: BTreeSet::new(),
            ended: RunSet::default(),
            accepted: 0,
            cancelled: RunSet::default(),
            takes: BTreeMap::new(),
            complete: false,
            destroyed: false,
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.destroyed || (self.complete && self.ops.is_empty() && self.awaiting.is_none())
    }

    /// What executors keep of its results that its instance still has, now that
    /// it has taken in all of them.
    pub(crate) fn kept_outputs(&self) -> impl Iterator<Item = &Overflow> {
        let has_results = self.plan.options.keep_results && !self.destroyed;
        self.outputs.iter().filter(move |_| has_results)
    }

    /// The next request, if it is time for one.
    pub(crate) fn request(&mut self, rng: &mut Rng) -> Option<Event> {
        if self.awaiting.is_some() {
            return None;
        }
        let op = self.ops.pop_front()?;
        let request = self.next_request;
        self.next_request += 1;
        let connection = ConnectionId(self.connection?);
        self.awaiting = Some((request, op.clone()));
        if let Op::Create = op {
            let options = self.plan.options.clone();
            return Some(Event::Create { connection, request, options });
        }
        let instance = self.instance.expect("created before anything else");
        Some(match op {
            Op::Create => unreachable!("handled above"),
            Op::Subscribe => {
                self.was_subscribed = true;
                let again = self.plan.options.keep_results && rng.percent(30);
                let from = if again {
                    rng.below(self.log.len() as u64 + 1)
                } else {
                    self.log.len() as u64
                };
                Event::Subscribe { connection, request, instance, from }
            }
            Op::Submit(number) => {
                let (first, mut submission) = self.plan.submissions[number].clone();
                self.leave_out_what_is_here(first, &mut submission);
                Event::Submit {
                    client: 1,
                    connection,
                    request,
                    instance,
                    first: TaskId(first),
                    submission,
                }
            }
            Op::Seal => Event::Seal { connection, request, instance },
            Op::Cancel(selection) => {
                match &selection {
                    Selection::All => {
                        self.cancelled.insert(0, self.plan.tasks.len() as u64);
                    }
                    Selection::Runs(runs) => {
                        for (first, count) in runs {
                            self.cancelled.insert(*first, *count);
                        }
                    }
                }
                Event::Cancel { connection, request, instance, selection }
            }
            Op::Destroy => Event::Destroy { connection, request, instance },
        })
    }

    /// What this client has been given it passes itself: nobody need keep it.
    fn leave_out_what_is_here(&mut self, first: u64, submission: &mut Submission) {
        for after in &mut submission.after {
            let taken = after.taken().iter().copied();
            let (mut others, here): (Vec<_>, Vec<_>) =
                taken.partition(|task| !self.ended.contains(task.0));
            let versions = self.takes.entry(first + after.offset).or_default();
            versions.push(others.iter().map(|task| task.0).collect());
            let rest = &after.tasks[after.takes as usize..];
            after.takes = others.len() as u64;
            others.extend(here.iter().chain(rest));
            after.tasks = others;
        }
    }

    pub(crate) fn reply(&mut self, request: u64, reply: Reply) {
        let Some((awaited, op)) = self.awaiting.take() else { return };
        assert_eq!(awaited, request, "replies come in order");
        match (op, reply) {
            (Op::Create, Reply::Created(id)) => self.instance = Some(id),
            (Op::Submit(number), Reply::Accepted { first, count }) => {
                let (expected, submission) = &self.plan.submissions[number];
                assert_eq!((first.0, count), (*expected, submission.count));
                self.accepted = self.accepted.max(first.0 + count);
            }
            (Op::Destroy, Reply::Done | Reply::Refused(RequestError::NoInstance(_))) => {
                self.destroyed = true;
                self.ops.clear();
            }
            (Op::Subscribe | Op::Seal | Op::Cancel(_), Reply::Done) => {}
            (op, reply) => panic!("{op:?} was answered with {reply:?}"),
        }
    }

    /// Takes results in. Positions must go on without a gap, and what comes
    /// again must be what came before.
    pub(crate) fn receive(&mut self, delivery: &Delivery) {
        assert_eq!(Some(delivery.instance), self.instance);
        let mut at = delivery.from as usize;
        assert!(at <= self.log.len(), "results from {at} on after {}", self.log.len());
        for run in &delivery.results {
            assert!(run.count > 0);
            if let Some(executor) = run.executor {
                let named = delivery.executors.iter().any(|(id, _)| *id == executor);
                assert!(named, "executor {executor} has no name");
            }
            let outputs = run.detail.iter().flat_map(|detail| detail.overflows());
            self.outputs.extend(outputs.flatten());
            for task in run.first.0..run.first.0 + run.count {
                let error = run.detail.as_ref().map(|detail| &detail.error);
                self.errors
                    .extend(error.filter(|error| !error.is_empty()).map(|it| (task, it.clone())));
                let printed = run.detail.as_ref().is_some_and(|it| !it.stdout.head.is_empty());
                self.printed.extend(printed.then_some(task));
                let result = (task, run.outcome, run.attempts);
                if let Some(before) = self.log.get(at) {
                    assert_eq!(*before, result, "position {at} comes again as another");
                } else {
                    assert_eq!(self.ended.insert(task, 1), 1, "task {task} ended twice");
                    self.log.push(result);
                }
                at += 1;
            }
        }
        if delivery.complete {
            let (total, recomputed) = (self.log.len() as u64, delivery.counts.recomputed);
            let mut counts = Counts { total, recomputed, ..Counts::default() };
            for (_, outcome, _) in &self.log {
                counts.end(outcome.status(), 1);
            }
            assert_eq!(delivery.counts, counts, "the counts are those of the results");
            assert_eq!(self.accepted, self.log.len() as u64, "complete, but not all ended");
            self.complete = true;
        }
    }

    pub(crate) fn disconnected(&mut self) {
        self.connection = None;
        if let Some((_, op)) = self.awaiting.take() {
            self.ops.push_front(op);
        }
        if self.was_subscribed && !self.destroyed {
            let destroying = matches!(self.ops.front(), Some(Op::Destroy));
            if !matches!(self.ops.front(), Some(Op::Subscribe)) && !destroying {
                self.ops.push_front(Op::Subscribe);
            }
        }
    }
}
