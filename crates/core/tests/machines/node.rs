//! An executor's node: the machine, its processes, what they hold.

use crate::files::Files;
use crate::rng::Rng;
use crate::workload::is_row_of;
use falkon_core::collect::ItemId;
use falkon_core::data::cache::CacheOptions;
use falkon_core::data::declared::Serving;
use falkon_core::data::object::ObjectId;
use falkon_core::data::stage::StageOptions;
use falkon_core::execute::{Action, Cpu, Event, Executor, Grant, Start, TaskKey, TemplateId};
use falkon_core::gang::GangKey;
use falkon_core::result::{Outcome, Overflow};
use falkon_core::task::{Kind, MILLI, Resources, Time};
use std::collections::{BTreeMap, BTreeSet};

/// A process.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) start: Start,
    pub(crate) started: Time,
    pub(crate) ends: Time,
    pub(crate) outcome: Outcome,
}

/// What is staged for an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Staged {
    Output(ObjectId),
    /// With what the task has written.
    Stream(Vec<u8>),
    /// What another node has handed over, with the places of its members.
    Archive(Vec<(String, Staged)>),
}

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) machine: Executor,
    pub(crate) incarnation: u64,
    /// The numbers of output that it keeps because it was too long.
    pub(crate) kept: BTreeSet<u64>,
    next_output: u64,
    pub(crate) capacity: Resources,
    pub(crate) cache: Option<CacheOptions>,
    pub(crate) files: Files,
    /// Outputs and streams that are staged for archives.
    pub(crate) staged: BTreeMap<ItemId, Staged>,
    pub(crate) alive: bool,
    pub(crate) left: bool,
    pub(crate) connection: Option<u64>,
    pub(crate) reconnect_at: Option<Time>,
    pub(crate) processes: BTreeMap<TaskKey, Process>,
    pub(crate) ends: BTreeSet<(Time, TaskKey)>,
    pub(crate) templates: BTreeSet<TemplateId>,
    /// Started tasks that wait for others to end, by the other.
    pub(crate) waiting: BTreeMap<TaskKey, Start>,
    /// What is asked of them and has not got there yet: kill, or take back.
    requests: BTreeSet<(Time, TaskKey, Option<u64>)>,
    /// Tasks that will not start, which the machine is told then.
    answers: BTreeSet<(Time, TaskKey)>,
    /// The gangs that have formed here, with what each has.
    gangs: BTreeMap<GangKey, (Resources, Grant)>,
    /// When those end that are disbanded.
    gang_ends: BTreeSet<(Time, GangKey)>,
}

impl Node {
    pub(crate) fn new(incarnation: u64, capacity: Resources) -> Node {
        let name = format!("node-{incarnation}");
        Node {
            machine: Executor::new(incarnation, name, capacity.clone())
                .with_pinned_cpus(cpus_of(&capacity)),
            incarnation,
            kept: BTreeSet::new(),
            next_output: 1,
            capacity,
            cache: None,
            files: Files::default(),
            staged: BTreeMap::new(),
            alive: true,
            left: false,
            connection: None,
            reconnect_at: Some(Time(0)),
            processes: BTreeMap::new(),
            ends: BTreeSet::new(),
            templates: BTreeSet::new(),
            waiting: BTreeMap::new(),
            requests: BTreeSet::new(),
            answers: BTreeSet::new(),
            gangs: BTreeMap::new(),
            gang_ends: BTreeSet::new(),
        }
    }

    /// As [`Node::new`], with a cache, from which others may fetch.
    pub(crate) fn with_cache(
        incarnation: u64,
        capacity: Resources,
        cache: CacheOptions,
        fetches_max: usize,
    ) -> Node {
        let node = Node::new(incarnation, capacity);
        let mut options = StageOptions::new(cache.clone(), incarnation);
        options.fetches_max = fetches_max;
        options.source_fetches_max = 1 + fetches_max / 2;
        options.serves_max = fetches_max;
        let serves = Serving { address: (incarnation - 1).to_string(), ..Serving::default() };
        let machine = node.machine.with_cache(&options, &[], Some(serves));
        Node { machine, cache: Some(cache), ..node }
    }

    /// The next time at which something happens here by itself.
    pub(crate) fn next(&self) -> Option<Time> {
        if !self.alive {
            return None;
        }
        let end = self.ends.first().map(|(at, _)| *at);
        let timeout = self.machine.poll_timeout().map(|(at, _)| at);
        let request = self.requests.first().map(|(at, ..)| *at);
        let answer = self.answers.first().map(|(at, _)| *at);
        let gang = self.gang_ends.first().map(|(at, _)| *at);
        [end, timeout, request, answer, gang, self.reconnect_at].into_iter().flatten().min()
    }

    pub(crate) fn spawn(&mut self, start: Start, now: Time, micros: u64, outcome: Outcome) {
        let key = start.key;
        assert!(self.templates.contains(&start.template), "task {} without template", key.task);
        for at in 0..start.count {
            assert!(
                is_row_of(&start.rows, start.row + at, key.task.0 + at),
                "task {} starts with another's row",
                key.task.0 + at
            );
        }
        self.files.make_sandbox(&self.machine, &start);
        let ends = now.after(micros);
        self.ends.insert((ends, key));
        let process = Process { start, started: now, ends, outcome };
        assert!(self.processes.insert(key, process).is_none(), "task {} runs twice", key.task);
        self.check_room();
    }

    /// What runs is no more than there is.
    fn check_room(&self) {
        let mut free = self.capacity.clone();
        let (mut gpus, mut cpus) = (BTreeSet::new(), BTreeSet::new());
        let alone = self.processes.values().map(|process| &process.start);
        let alone = alone.filter(|start| start.class.kind != Kind::Noop && start.gang.is_none());
        let alone = alone.map(|start| (&start.class.resources, &start.grant));
        for (need, grant) in alone.chain(self.gangs.values().map(|(need, grant)| (need, grant))) {
            assert!(free.fits(need), "more runs than there is room for");
            free.take(need, 1);
            for gpu in &grant.gpus {
                assert!(gpus.insert(*gpu), "gpu {gpu} is used twice");
                assert!(*gpu < self.capacity.gpus, "there is no gpu {gpu}");
            }
            let whole = grant.cpus.iter().filter(|share| share.milli == MILLI);
            for share in whole {
                assert!(cpus.insert(share.number), "cpu {} is used twice", share.number);
            }
        }
    }

    /// A gang has room here from now on.
    pub(crate) fn form(&mut self, key: GangKey, resources: Resources, grant: Grant) {
        assert!(self.gangs.insert(key, (resources, grant)).is_none(), "a gang forms twice");
        self.check_room();
    }

    /// What runs of a gang ends at this time.
    pub(crate) fn disband(&mut self, key: GangKey, ends: Time) {
        assert!(self.gangs.contains_key(&key), "a gang is disbanded that has not formed");
        self.gang_ends.insert((ends, key));
    }

    /// A gang that has ended by `now`, if there is one.
    pub(crate) fn reap_gang(&mut self, now: Time) -> Option<GangKey> {
        let (at, key) = *self.gang_ends.first()?;
        if at > now {
            return None;
        }
        self.gang_ends.remove(&(at, key));
        self.gangs.remove(&key);
        Some(key)
    }

    /// A task is to begin when another ends.
    pub(crate) fn hand_over(&mut self, before: TaskKey, start: Start) {
        self.files.make_sandbox(&self.machine, &start);
        assert!(self.waiting.insert(before, start).is_none(), "two tasks come after one");
    }

    /// All tasks that were started, and have not ended.
    fn started(&self) -> impl Iterator<Item = &Start> {
        self.processes.values().map(|process| &process.start).chain(self.waiting.values())
    }

    /// The disk loses a file, if there is one that the stage counts on.
    pub(crate) fn lose_file(&mut self, rng: &mut Rng) -> Option<ObjectId> {
        let known = self.files.known_to(&self.machine);
        if known.is_empty() || !self.alive {
            return None;
        }
        let object = *rng.pick(&known);
        let started = self.processes.values().map(|process| &process.start);
        self.files.lose(object, started.chain(self.waiting.values()));
        Some(object)
    }

    /// A task's sandbox goes.
    pub(crate) fn clear(&mut self, key: TaskKey) {
        assert!(!self.holds(key), "a sandbox in use goes");
        self.files.clear_sandbox(key);
    }

    /// Whether a task runs here, or waits for another to end.
    pub(crate) fn holds(&self, key: TaskKey) -> bool {
        self.processes.contains_key(&key) || self.waiting.values().any(|start| start.key == key)
    }

    /// Something is asked of a task that waits or waited; it gets there at
    /// `due`. A kill says how long the task has.
    pub(crate) fn request(&mut self, due: Time, key: TaskKey, kill_micros: Option<u64>) {
        self.requests.insert((due, key, kill_micros));
    }

    /// Carries out the requests that have got there. Returns the tasks of
    /// which the machine is to be told that they will not start; that takes
    /// `micros`, and what they waited for may end first.
    pub(crate) fn answer(&mut self, now: Time, micros: u64) -> Vec<TaskKey> {
        while let Some(&(due, key, kill_micros)) = self.requests.first() {
            if due > now {
                break;
            }
            self.requests.pop_first();
            let before = self.waiting.iter().find(|(_, start)| start.key == key);
            match (before.map(|(before, _)| *before), kill_micros) {
                (Some(before), _) => {
                    self.waiting.remove(&before);
                    self.files.forget_damage(key);
                    if let Some(next) = self.waiting.remove(&key) {
                        self.waiting.insert(before, next);
                    }
                    self.answers.insert((now.after(micros), key));
                }
                (None, Some(micros)) => self.kill_process(key, now, micros, Outcome::Signal(15)),
                (None, None) => {}
            }
        }
        let mut taken = Vec::new();
        while let Some(&(due, key)) = self.answers.first().filter(|(due, _)| *due <= now) {
            self.answers.remove(&(due, key));
            taken.push(key);
        }
        taken
    }

    /// What runs processes here is gone, and they with it. Returns the tasks
    /// that will not start.
    pub(crate) fn lose_processes(&mut self, now: Time) -> Vec<TaskKey> {
        for key in self.processes.keys().copied().collect::<Vec<_>>() {
            self.kill_process(key, now, 0, Outcome::Lost);
        }
        let answers = std::mem::take(&mut self.answers).into_iter().map(|(_, key)| key);
        let waiting = std::mem::take(&mut self.waiting).into_values().map(|start| start.key);
        answers.chain(waiting).collect()
    }

    /// Nothing waits any more, and nothing is asked.
    pub(crate) fn clear_waiting(&mut self) {
        self.waiting.clear();
        self.requests.clear();
        self.answers.clear();
        self.gangs.clear();
        self.gang_ends.clear();
    }

    /// A task is asked to end.
    pub(crate) fn kill(&mut self, key: TaskKey, now: Time, micros: u64) {
        if self.processes.contains_key(&key) {
            self.kill_process(key, now, micros, Outcome::Signal(15));
        } else {
            self.request(now.after(micros % 100), key, Some(micros));
        }
    }

    fn kill_process(&mut self, key: TaskKey, now: Time, micros: u64, outcome: Outcome) {
        let Some(process) = self.processes.get_mut(&key) else { return };
        if process.ends <= now.after(micros) {
            return;
        }
        self.ends.remove(&(process.ends, key));
        process.ends = now.after(micros);
        process.outcome = outcome;
        self.ends.insert((process.ends, key));
    }

    /// A process that has ended by `now`, if there is one.
    pub(crate) fn reap(&mut self, now: Time) -> Option<(TaskKey, Process)> {
        let &(at, key) = self.ends.first()?;
        if at > now {
            return None;
        }
        self.ends.remove(&(at, key));
        let process = self.processes.remove(&key)?;
        self.files.forget_damage(key);
        Some((key, process))
    }

    /// A task has written more than can be sent.
    pub(crate) fn keep(&mut self) -> Option<Overflow> {
        let number = self.next_output;
        self.next_output += 1;
        self.kept.insert(number);
        Some(Overflow { incarnation: self.incarnation, number })
    }

    pub(crate) fn discard(&mut self, runs: &[(u64, u64)]) {
        for (first, count) in runs {
            self.kept.retain(|number| *number < *first || number - first >= *count);
        }
    }

    pub(crate) fn handle(&mut self, now: Time, event: Event) {
        self.machine.handle(now, event);
    }

    pub(crate) fn poll(&mut self) -> Option<Action> {
        let action = self.machine.poll_action();
        if action.is_none() {
            self.machine.check().unwrap();
            if let Some(cache) = &self.cache {
                let capacity = cache.tiers_bytes.iter().sum();
                self.files.check(&self.machine, capacity, self.started());
            }
        }
        action
    }
}

/// The CPUs of a machine, on two NUMA nodes, each core with two of them.
fn cpus_of(capacity: &Resources) -> Vec<Cpu> {
    let count = capacity.cpus_milli.div_ceil(MILLI);
    (0..count)
        .map(|number| Cpu { node: number % 2, core: number / 4 * 2 + number % 2, number })
        .collect()
}
