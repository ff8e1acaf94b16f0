//! A dispatcher's tasks and executors, and LRMs with moods, on a virtual clock.

use crate::rng::Rng;
use crate::strangers::{STRANGERS, is_strange, strangers};
use crate::told::Told;
use falkon_core::provision::limits::{PAUSE_MICROS_MAX, QUERY_MICROS_MAX, VIGIL_QUERY_MICROS_MAX};
use falkon_core::provision::{
    About, Action, AllocationId, AllocationState, Demand, Event, Found, JobState, Provisioner,
    QueueId, QueueOptions, ReleaseName, Submitted, Verdict, Waiting,
};
use falkon_core::task::{ExecutorId, Resources, Time};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

pub(crate) const SECOND: u64 = 1_000_000;
/// What a job that nobody needs stays at most, unless its queue's policy looks
/// ahead: as long as executors may idle, and a little.
const IDLE_MICROS_MAX: u64 = 150 * SECOND;
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
    /// Spells during which answers name none of the jobs that are there, and
    /// questions about one of them are answered as if it were gone.
    pub(crate) forgets: u64,
    /// Shares of questions about one job that are answered rightly all the same.
    pub(crate) remembers: u64,
    /// Jobs that somebody holds for a while before they start.
    pub(crate) holds: u64,
    /// Nodes that the LRM has for one job; 0 is any number.
    pub(crate) nodes: u64,
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
    /// Somebody holds it until then.
    held_until: Time,
    /// Since when the provisioner has not known it.
    unknown_since: Option<Time>,
    /// The scheduler's answers about it.
    told: Told,
    /// It was cancelled, or the LRM ends it early.
    is_cut: bool,
    /// When somebody last had a reason not to give it back: it ran a task, was
    /// about to, or was not known for good reasons.
    needed_at: Time,
}

/// How jobs have ended.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Ends {
    /// Cancelled, or ended by the LRM before their time.
    pub(crate) cut: u64,
    /// All their executors had left.
    pub(crate) left: u64,
    /// Their time was up.
    pub(crate) walltime: u64,
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
    /// Until when answers leave out what is there.
    hides_until: Time,
    /// When an answer last left out what was there, or the LRM was not well.
    hid_at: Time,
    pub(crate) ends: Ends,
    /// What a record that outlives a restart says: the allocations that were
    /// asked for and did not end, with the names of their jobs.
    record: BTreeMap<AllocationId, (QueueId, u64, Option<String>)>,
}

impl World {
    pub(crate) fn new(seed: u64, mood: Mood, slots: u64) -> World {
        World {
            now: Time(0),
            provisioner: Provisioner::new(AllocationId(STRANGERS.len() as u64 + 1)),
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
            hides_until: Time(0),
            hid_at: Time(0),
            ends: Ends::default(),
            record: BTreeMap::new(),
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

    /// For so long the LRM names no job, and denies each that it is asked about.
    pub(crate) fn deny(&mut self, micros: u64) {
        self.hides_until = self.now.after(micros);
    }

    /// Somebody else does all that waits.
    pub(crate) fn do_without(&mut self) {
        self.ended += self.waiting.len() as u64;
        self.waiting.clear();
    }

    /// Jobs that are there and that the provisioner does not know.
    pub(crate) fn jobs_unknown(&self) -> usize {
        self.jobs.values().filter(|job| job.unknown_since.is_some()).count()
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
            Action::AskAbout { queue, allocation, .. } => self.asked_about(queue, allocation),
            Action::AskSize { queue } => {
                if !self.is_down() && !self.chance(self.mood.silent) {
                    let nodes = (self.mood.nodes > 0).then_some(self.mood.nodes);
                    let job_nodes = nodes.filter(|_| self.rng.below(2) == 0);
                    self.later(Event::Size { queue, nodes: None, job_nodes });
                }
            }
            Action::Cancel { queue, allocation, .. } => {
                if self.is_down() || self.chance(self.mood.silent) {
                    return;
                }
                if self.chance(self.mood.cancel_refused) {
                    let refused = Some("not now".to_owned());
                    self.later(Event::CancelAnswer { allocation, refused });
                    return;
                }
                assert!(!is_strange(allocation), "another's job is cancelled");
                assert_eq!(self.jobs.get(&allocation).map_or(queue, |job| job.queue), queue);
                if let Some(job) = self.jobs.get_mut(&allocation) {
                    job.is_cut |= job.ends > self.now;
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
                if let Verdict::Ended { allocation } = decision.verdict {
                    self.record.remove(&allocation);
                }
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
            // Jobs that the LRM denied to the provisioner, or said that somebody
            // holds, are done without.
            if job.told.may_be_unknown(self.now) || job.told.is_held() {
                continue;
            }
            // One that was cancelled, or whose executors have all left, is about
            // to end.
            if job.ends > self.now && !(job.started && job.executors.is_empty()) {
                held += if options.is_whole { job.nodes } else { job.executors.len() as u64 };
            }
            pending += u64::from(!job.started);
            alive += 1;
        }
        let is_told = self.mood.nonsense == 0 || !self.has_restarted;
        assert!(!is_told || held <= options.executors_max, "{held} nodes held");
        assert!(pending <= options.pending_max, "{pending} requests pending");
        assert!(alive <= options.allocations_max, "{alive} allocations");
        self.record.insert(id, (queue, nodes, None));
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
        let mut starts = self.now.after(SECOND + self.rng.below(self.mood.delay_max + 1));
        let mut held_until = Time(0);
        if self.chance(self.mood.holds) {
            held_until = self.now.after(self.rng.below(1800 * SECOND));
            starts = starts.max(held_until.after(SECOND));
        }
        if self.mood.nodes > 0 && nodes > self.mood.nodes {
            starts = Time(u64::MAX);
        }
        let mut ends = match walltime {
            0 => Time(u64::MAX),
            walltime => starts.after(walltime),
        };
        let by_walltime = ends;
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
            held_until,
            unknown_since: None,
            told: Told::default(),
            is_cut: ends != by_walltime,
            needed_at: self.now,
        };
        self.jobs.insert(id, job);
        let answer = match is_unsure {
            true => Submitted::Unknown { words: String::new() },
            false => Submitted::Accepted { job: format!("{}.lrm", id.0) },
        };
        if !is_silent {
            if let (Submitted::Accepted { job }, Some(record)) = (&answer, self.record.get_mut(&id))
            {
                record.2 = Some(job.clone());
            }
            self.later(Event::SubmitAnswer { allocation: id, answer });
        }
    }

    /// Whether an answer that is given now leaves out what is there.
    fn hides(&mut self) -> bool {
        if self.hides_until <= self.now && self.chance(self.mood.forgets) {
            self.hides_until = self.now.after(self.rng.below(60 * SECOND));
        }
        self.hides_until > self.now
    }

    fn found(&self, id: AllocationId, job: &Job) -> Found {
        let state = match job.started {
            true => JobState::Running,
            false if job.held_until > self.now => JobState::Held,
            false if job.starts == Time(u64::MAX) => JobState::TooLarge,
            false => JobState::Pending,
        };
        Found {
            queue: job.queue,
            allocation: id,
            job: format!("{}.lrm", id.0),
            state,
            nodes: job.nodes,
            until: None,
            words: format!("{state:?}"),
        }
    }

    fn asked_about(&mut self, queue: QueueId, id: AllocationId) {
        if self.is_down() || self.chance(self.mood.silent) {
            return;
        }
        if self.chance(self.mood.query_fails) {
            self.later(Event::About { allocation: id, about: About::NoAnswer });
            return;
        }
        let hides = self.hides() && !self.chance(self.mood.remembers);
        let job = self.jobs.get(&id).filter(|job| !job.is_over && !hides);
        assert!(job.is_none_or(|job| job.queue == queue), "asked about another queue's job");
        let about = match job {
            None => About::Gone,
            Some(job) => About::Known(Box::new(self.found(id, job))),
        };
        self.later(Event::About { allocation: id, about });
    }

    /// Each job is known, unless its scheduler denied it; and a denied one is known
    /// again soon after answers are right.
    fn check_nothing_is_forgotten(&mut self) {
        let known: BTreeSet<AllocationId> =
            self.provisioner.allocation_views().map(|view| view.id()).collect();
        assert!(!known.iter().any(|id| is_strange(*id)), "another's job is known: {known:?}");
        let now = self.now;
        let is_well = self.mood.silent + self.mood.query_fails == 0 && !self.is_down();
        if !is_well || self.hides_until > now {
            self.hid_at = now;
        }
        let hid_at = self.hid_at;
        let within = PAUSE_MICROS_MAX + VIGIL_QUERY_MICROS_MAX + 2 * QUERY_MICROS_MAX;
        let gone = |queue: QueueId| !self.options.contains_key(&queue);
        for (id, job) in &mut self.jobs {
            // The LRM hears of those that are about to end.
            if job.is_over || known.contains(id) || job.ends <= now || gone(job.queue) {
                job.unknown_since = None;
                continue;
            }
            job.needed_at = now;
            assert!(job.told.may_be_unknown(now), "{id} is forgotten at {now:?}: {job:?}");
            let since = *job.unknown_since.get_or_insert(now);
            let unknown = now.since(since.max(hid_at));
            assert!(unknown <= within, "{id} is not found again: {job:?}");
        }
    }

    /// The provisioner is about to be told this.
    fn tell(&mut self, event: &Event) {
        let now = self.now;
        match event {
            Event::SubmitAnswer { allocation, answer: Submitted::Accepted { .. } } => {
                if let Some(job) = self.jobs.get_mut(allocation) {
                    job.told.number();
                }
            }
            Event::About { allocation, about } => {
                if let Some(job) = self.jobs.get_mut(allocation) {
                    match about {
                        About::Gone => job.told.deny(job.executors.is_empty()),
                        About::Known(found) => job.told.confirm(now, found.state),
                        About::NoAnswer => {}
                    }
                }
            }
            Event::States { queue, found } => {
                let named: BTreeMap<AllocationId, &Found> =
                    found.iter().map(|found| (found.allocation, found)).collect();
                let is_asking = |id: AllocationId| {
                    let mut views = self.provisioner.allocation_views();
                    views.any(|one| one.id() == id && one.state() == AllocationState::Asking)
                };
                for (id, job) in self.jobs.iter_mut().filter(|(_, job)| job.queue == *queue) {
                    match named.get(id) {
                        Some(found) => {
                            job.told.name(found.state, job.executors.is_empty(), is_asking(*id));
                        }
                        None => job.told.miss(now, job.executors.is_empty() && !is_asking(*id)),
                    }
                }
            }
            _ => {}
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
        // A list has all that the user has, whichever queue is asked about.
        let hides = self.hides();
        let restless = self.chance(self.mood.nonsense);
        let jobs = self.jobs.iter().filter(|(_, job)| !job.is_over && !hides);
        let mut found: Vec<Found> = jobs.map(|(id, job)| self.found(*id, job)).collect();
        if restless {
            for at in 0..found.len() {
                if self.rng.below(3) == 0 {
                    found[at].state = JobState::Unknown;
                }
                found[at].nodes = self.rng.below(5);
                found.push(found[at].clone());
            }
        }
        found.extend(strangers());
        if restless {
            let job = "x".repeat(10_000);
            let allocation = AllocationId(999_999);
            let (state, nodes) = (JobState::Ended, u64::MAX);
            let (until, words) = (Some(Time(0)), "?".repeat(10_000));
            found.push(Found { queue, allocation, job, state, nodes, until, words });
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
        let (record, is_lost) = (self.record.clone(), self.rng.below(2) == 0);
        self.answers.clear();
        self.outstanding.clear();
        self.queried.clear();
        for (id, job) in &mut self.jobs {
            let record = record.get(id).filter(|_| !is_lost);
            job.told.restart(record.map(|(_, _, job)| job.is_some()));
        }
        for (queue, options) in self.options.clone() {
            self.handle(Event::Add { queue, options: Box::new(options) });
            // The record may be lost; jobs are found by their names then.
            let is_kept = !is_lost;
            let found = record.iter().filter(|(_, (of, _, _))| *of == queue && is_kept);
            let found = found.map(|(id, (queue, nodes, job))| Found {
                queue: *queue,
                allocation: *id,
                job: job.clone().unwrap_or_default(),
                state: JobState::Unknown,
                nodes: *nodes,
                until: None,
                words: String::new(),
            });
            self.handle(Event::Recovered { queue, found: found.collect() });
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
            self.tell(&event);
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
        self.check_nothing_is_forgotten();
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
                let (queue, needed_at) = (job.queue, job.needed_at);
                match (left, job.is_cut) {
                    (true, _) => self.ends.left += 1,
                    (false, true) => self.ends.cut += 1,
                    (false, false) => {
                        self.ends.walltime += 1;
                        let options = self.options.get(&queue);
                        let predicts = |one: &QueueOptions| one.release == ReleaseName::Predictive;
                        if options.is_some_and(|one| one.idle_micros.is_some() && !predicts(one)) {
                            let rest = now.since(needed_at);
                            assert!(rest <= IDLE_MICROS_MAX, "{id} idles to its end: {job:?}");
                        }
                    }
                }
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
            job.needed_at = now;
            job.told.join();
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
                let of_job = self.jobs.get_mut(&node.allocation);
                of_job.into_iter().for_each(|job| job.needed_at = now);
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
                let of_job = self.jobs.get_mut(&node.allocation);
                of_job.into_iter().for_each(|job| job.needed_at = now.after(micros));
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
                vec![Waiting {
                    need,
                    tasks,
                    estimate_micros: Some(10 * SECOND),
                    lasts_micros: 0,
                    nodes: 1,
                }]
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
