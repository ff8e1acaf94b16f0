//! A dispatcher's tasks and executors, and LRMs with moods, on a virtual clock.

use crate::rng::Rng;
use falkon_core::provision::{
    Action, AllocationId, Demand, Event, Found, JobState, Provisioner, QueueId, QueueOptions,
    Submitted, Waiting,
};
use falkon_core::task::{ExecutorId, Resources, Time};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

pub(crate) const SECOND: u64 = 1_000_000;
/// Actions without the time going on that show a livelock.
const ACTIONS_MAX: usize = 100_000;

/// What an LRM is like, in shares of a thousand.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Mood {
    pub(crate) refuses: u64,
    /// Submissions whose answer is lost, half of which were taken.
    pub(crate) unsure: u64,
    pub(crate) silent: u64,
    pub(crate) query_fails: u64,
    /// Answers with doubled, unknown and restless jobs.
    pub(crate) nonsense: u64,
    pub(crate) cancel_refused: u64,
    /// Jobs that are killed early.
    pub(crate) kills: u64,
    /// Jobs that end before an executor joins.
    pub(crate) barren: u64,
    /// Queries that forget what is there.
    pub(crate) forgets: u64,
    pub(crate) down_until: u64,
    pub(crate) delay_max: u64,
}

#[derive(Debug)]
struct Job {
    queue: QueueId,
    nodes: u64,
    starts: Time,
    started: bool,
    /// It is over then at the latest.
    ends: Time,
    /// Executors of nodes that have come.
    executors: BTreeSet<ExecutorId>,
    is_over: bool,
    /// Whether answers name it, in spite of the LRM's mood.
    is_listed: bool,
}

#[derive(Debug)]
struct Node {
    allocation: AllocationId,
    task_ends: Option<Time>,
    leaving: bool,
}

pub(crate) struct World {
    pub(crate) now: Time,
    pub(crate) provisioner: Provisioner,
    pub(crate) mood: Mood,
    pub(crate) rng: Rng,
    options: BTreeMap<QueueId, QueueOptions>,
    jobs: BTreeMap<AllocationId, Job>,
    nodes: BTreeMap<ExecutorId, Node>,
    next_executor: u64,
    /// Run times of tasks that wait.
    pub(crate) waiting: VecDeque<u64>,
    submitted: u64,
    pub(crate) ended: u64,
    answers: Vec<(Time, Event)>,
    queried: BTreeMap<QueueId, Time>,
    outstanding: BTreeSet<QueueId>,
    used: BTreeSet<AllocationId>,
    pub(crate) asked: u64,
    pub(crate) peak: u64,
    slots: u64,
    has_restarted: bool,
    /// An answer has left out what was there.
    has_hidden: bool,
}

impl World {
    pub(crate) fn new(seed: u64, mood: Mood, slots: u64) -> World {
        World {
            now: Time(0),
            provisioner: Provisioner::new(AllocationId(1)),
            mood,
            rng: Rng::new(seed),
            options: BTreeMap::new(),
            jobs: BTreeMap::new(),
            nodes: BTreeMap::new(),
            next_executor: 0,
            waiting: VecDeque::new(),
            submitted: 0,
            ended: 0,
            answers: Vec::new(),
            queried: BTreeMap::new(),
            outstanding: BTreeSet::new(),
            used: BTreeSet::new(),
            asked: 0,
            peak: 0,
            slots,
            has_restarted: false,
            has_hidden: false,
        }
    }

    pub(crate) fn add(&mut self, id: u32, options: QueueOptions) {
        let queue = QueueId(id);
        self.options.insert(queue, options.clone());
        self.handle(Event::Add { queue, options: Box::new(options) });
    }

    pub(crate) fn submit(&mut self, tasks: u64, micros: u64) {
        self.submitted += tasks;
        self.waiting.extend((0..tasks).map(|_| micros));
    }

    pub(crate) fn jobs_alive(&self) -> usize {
        self.jobs.values().filter(|job| !job.is_over).count()
    }

    fn chance(&mut self, share: u64) -> bool {
        self.rng.below(1000) < share
    }

    fn is_down(&self) -> bool {
        self.now.0 < self.mood.down_until
    }

    fn later(&mut self, event: Event) {
        let at = self.now.after(self.rng.below(2 * SECOND));
        self.answers.push((at, event));
    }

    pub(crate) fn handle(&mut self, event: Event) {
        self.provisioner.handle(self.now, event);
        self.settle();
    }

    /// Lets the provisioner act until it has nothing more to do.
    fn settle(&mut self) {
        for _ in 0..ACTIONS_MAX {
            let Some(action) = self.provisioner.poll_action() else {
                self.provisioner.check().unwrap_or_else(|error| panic!("{error}"));
                return;
            };
            self.act(action);
        }
        panic!("it goes on acting");
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Submit { queue, allocation, nodes, walltime_micros } => {
                self.submitted_to_lrm(queue, allocation, nodes, walltime_micros);
            }
            Action::Query { queue } => self.queried(queue),
            Action::Cancel { queue, allocation, .. } => {
                if self.is_down() || self.chance(self.mood.silent) {
                    return;
                }
                if self.chance(self.mood.cancel_refused) {
                    let refused = Some("not now".to_owned());
                    self.later(Event::CancelAnswer { allocation, refused });
                    return;
                }
                assert_eq!(self.jobs.get(&allocation).map_or(queue, |job| job.queue), queue);
                if let Some(job) = self.jobs.get_mut(&allocation) {
                    job.ends = job.ends.min(self.now);
                }
                self.later(Event::CancelAnswer { allocation, refused: None });
            }
            Action::Release { executor } => {
                if let Some(node) = self.nodes.get_mut(&executor) {
                    assert!(!node.leaving, "released twice");
                    node.leaving = true;
                }
            }
            Action::AskFree { queue } => {
                let nodes = match self.rng.below(3) {
                    0 => None,
                    1 => Some(0),
                    _ => Some(self.rng.below(9)),
                };
                if !self.chance(self.mood.silent) {
                    self.later(Event::Free { queue, nodes });
                }
            }
            Action::Removed { queue } => {
                self.options.remove(&queue);
            }
            Action::Decided(decision) => {
                assert!(!decision.verdict.to_string().is_empty());
                assert!(!decision.reason.to_string().is_empty());
            }
        }
    }

    fn submitted_to_lrm(&mut self, queue: QueueId, id: AllocationId, nodes: u64, walltime: u64) {
        assert!(self.used.insert(id), "the number {id} is used again");
        let options = self.options[&queue].clone();
        assert!(nodes >= options.request_nodes_min && nodes <= options.request_nodes_max);
        self.asked += 1;
        let (mut held, mut pending, mut alive) = (nodes, 1, 1);
        for job in self.jobs.values().filter(|job| job.queue == queue && !job.is_over) {
            // One that was cancelled, or whose executors have all left, is about
            // to end.
            if job.ends > self.now && !(job.started && job.executors.is_empty()) {
                held += if options.is_whole { job.nodes } else { job.executors.len() as u64 };
            }
            pending += u64::from(!job.started);
            alive += 1;
        }
        // What an LRM hides cannot be counted.
        if !self.has_hidden {
            let is_told = self.mood.nonsense == 0 || !self.has_restarted;
            assert!(!is_told || held <= options.executors_max, "{held} nodes held");
            assert!(pending <= options.pending_max, "{pending} requests pending");
            assert!(alive <= options.allocations_max, "{alive} allocations");
        }
        self.peak = self.peak.max(held);
        let refused = Submitted::Refused { words: "no such account".to_owned() };
        let is_silent = self.is_down() || self.chance(self.mood.silent);
        let is_unsure = self.chance(self.mood.unsure);
        if self.chance(self.mood.refuses) && !is_silent {
            self.later(Event::SubmitAnswer { allocation: id, answer: refused });
            return;
        }
        if (is_silent || is_unsure) && self.rng.below(2) == 0 || self.is_down() {
            if is_unsure {
                let answer = Submitted::Unknown { words: "?".to_owned() };
                self.later(Event::SubmitAnswer { allocation: id, answer });
            }
            return;
        }
        let starts = self.now.after(SECOND + self.rng.below(self.mood.delay_max + 1));
        let mut ends = match walltime {
            0 => Time(u64::MAX),
            walltime => starts.after(walltime),
        };
        if self.chance(self.mood.kills) {
            ends = starts.after(self.rng.below(120 * SECOND));
        }
        if self.chance(self.mood.barren) {
            ends = starts;
        }
        let job = Job {
            queue,
            nodes,
            starts,
            started: false,
            ends,
            executors: BTreeSet::new(),
            is_over: false,
            is_listed: true,
        };
        self.jobs.insert(id, job);
        let answer = match is_unsure {
            true => Submitted::Unknown { words: String::new() },
            false => Submitted::Accepted { job: format!("{}.lrm", id.0) },
        };
        if !is_silent {
            self.later(Event::SubmitAnswer { allocation: id, answer });
        }
    }

    fn queried(&mut self, queue: QueueId) {
        let least = self.options[&queue].query_micros;
        if let Some(before) = self.queried.insert(queue, self.now) {
            assert!(self.now.since(before) >= least, "queried too often");
        }
        assert!(self.outstanding.insert(queue), "two queries at once");
        if self.is_down() || self.chance(self.mood.silent) {
            return;
        }
        if self.chance(self.mood.query_fails) {
            self.later(Event::QueryFailed { queue, words: "try again".to_owned() });
            return;
        }
        let mut found = Vec::new();
        let forgets = self.chance(self.mood.forgets);
        self.has_hidden |= forgets;
        let restless = self.chance(self.mood.nonsense);
        for (id, job) in &self.jobs {
            if job.queue != queue || !job.is_listed || forgets || job.is_over {
                continue;
            }
            let state = match job.started {
                _ if restless && self.rng.below(3) == 0 => JobState::Unknown,
                true => JobState::Running,
                false => JobState::Pending,
            };
            let nodes = if restless { self.rng.below(5) } else { job.nodes };
            let job = format!("{}.lrm", id.0);
            let one = Found { allocation: *id, job, state, nodes, until: None };
            found.push(one.clone());
            if restless {
                found.push(one);
            }
        }
        if restless {
            let job = "x".repeat(10_000);
            let allocation = AllocationId(999_999);
            let (state, nodes) = (JobState::Ended, u64::MAX);
            found.push(Found { allocation, job, state, nodes, until: Some(Time(0)) });
        }
        // The answer is as old as it takes.
        self.later(Event::States { queue, found });
    }

    /// A dispatcher that starts anew: what is known is gone, and what is there
    /// is found.
    pub(crate) fn restart(&mut self) {
        let last = self.used.last().map_or(0, |last| last.0);
        self.provisioner = Provisioner::new(AllocationId(last + 1));
        self.has_restarted = true;
        self.answers.clear();
        self.outstanding.clear();
        self.queried.clear();
        for (queue, options) in self.options.clone() {
            self.handle(Event::Add { queue, options: Box::new(options) });
        }
        let nodes: Vec<(ExecutorId, AllocationId)> =
            self.nodes.iter().map(|(id, node)| (*id, node.allocation)).collect();
        for (executor, allocation) in nodes {
            if let Some(node) = self.nodes.get_mut(&executor) {
                node.leaving = false;
            }
            self.joined(executor, allocation);
        }
    }

    fn joined(&mut self, executor: ExecutorId, allocation: AllocationId) {
        let capacity = Resources::cpus(self.slots as u32);
        let allocation = Some(allocation);
        self.handle(Event::ExecutorJoined { executor, allocation, capacity, leaves_at: None });
    }

    /// Lets a second pass.
    pub(crate) fn step(&mut self) {
        self.now = self.now.after(SECOND);
        let (due, later) =
            std::mem::take(&mut self.answers).into_iter().partition(|(at, _)| *at <= self.now);
        self.answers = later;
        let due: Vec<(Time, Event)> = due;
        for (_, event) in due {
            if let Event::States { queue, .. } | Event::QueryFailed { queue, .. } = &event {
                self.outstanding.remove(queue);
            }
            self.handle(event);
        }
        self.jobs_go_on();
        self.nodes_go_on();
        self.tell_demand();
        for _ in 0..4 {
            if self.provisioner.poll_timeout().is_some_and(|(at, _)| at <= self.now) {
                // A query that nobody answers is given up.
                self.outstanding.retain(|queue| {
                    self.queried.get(queue).is_some_and(|at| self.now.since(*at) < 60 * SECOND)
                });
                self.provisioner.handle_timeout(self.now);
                self.settle();
            }
        }
        let timeout = self.provisioner.poll_timeout();
        assert!(timeout.is_none_or(|(at, _)| at > self.now), "{timeout:?} is always due");
    }

    fn jobs_go_on(&mut self) {
        let ids: Vec<AllocationId> = self.jobs.keys().copied().collect();
        for id in ids {
            let now = self.now;
            let Some(job) = self.jobs.get_mut(&id) else { continue };
            let left = job.started && job.executors.is_empty();
            if !job.is_over && (job.ends <= now || left) {
                job.is_over = true;
                for executor in std::mem::take(&mut job.executors) {
                    if self.nodes.remove(&executor).is_some_and(|node| node.task_ends.is_some()) {
                        // Its task runs again.
                        self.waiting.push_back(5 * SECOND);
                    }
                    self.handle(Event::ExecutorLeft { executor });
                }
                continue;
            }
            if job.is_over || job.started || job.starts > now {
                continue;
            }
            job.started = true;
            let mut came = Vec::new();
            for _ in 0..job.nodes {
                let executor = ExecutorId(self.next_executor);
                self.next_executor += 1;
                self.nodes
                    .insert(executor, Node { allocation: id, task_ends: None, leaving: false });
                job.executors.insert(executor);
                came.push(executor);
            }
            for executor in came {
                self.joined(executor, id);
            }
        }
        self.jobs.retain(|_, job| !job.is_over || self.rng.below(20) > 0);
    }

    /// A node runs a task at a time, whatever its slots.
    fn nodes_go_on(&mut self) {
        let ids: Vec<ExecutorId> = self.nodes.keys().copied().collect();
        for executor in ids {
            let now = self.now;
            let Some(node) = self.nodes.get_mut(&executor) else { continue };
            if node.task_ends.is_some_and(|at| at <= now) {
                node.task_ends = None;
                self.ended += 1;
                self.provisioner.handle(now, Event::ExecutorIdle { executor, since: now });
            }
            if node.task_ends.is_none() && node.leaving {
                let allocation = node.allocation;
                self.nodes.remove(&executor);
                if let Some(job) = self.jobs.get_mut(&allocation) {
                    job.executors.remove(&executor);
                }
                self.handle(Event::ExecutorLeft { executor });
            } else if node.task_ends.is_none()
                && let Some(micros) = self.waiting.pop_front()
            {
                node.task_ends = Some(now.after(micros));
                self.provisioner.handle(now, Event::ExecutorBusy { executor });
            }
        }
        self.settle();
    }

    fn tell_demand(&mut self) {
        let busy = self.nodes.values().filter(|node| node.task_ends.is_some());
        let until = busy.clone().filter_map(|node| node.task_ends).max();
        let waiting = match self.waiting.len() as u64 {
            0 => Vec::new(),
            tasks => {
                let need = Resources::cpus(1);
                vec![Waiting { need, tasks, estimate_micros: Some(10 * SECOND), lasts_micros: 0 }]
            }
        };
        let demand = Demand {
            waiting,
            running: busy.count() as u64,
            running_until: until,
            submitted: self.submitted,
            ended: self.ended,
            ..Demand::default()
        };
        self.handle(Event::Demand(Box::new(demand)));
    }
}
