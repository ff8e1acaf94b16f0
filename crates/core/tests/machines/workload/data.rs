//! Workloads of tasks that read and write data objects, under every policy.

use super::{Op, Plan, Task, packed_rows};
use crate::rng::Rng;
use crate::world::Faults;
use falkon_core::data::declared::{Declared, Lists};
use falkon_core::data::object::{Object, ObjectId};
use falkon_core::dispatch::InstanceOptions;
use falkon_core::dispatch::diffusion::{POLICIES, PolicyName, PolicyOptions};
use falkon_core::task::{After, Kind, Resources, Submission, TaskClass, TaskId, Time};
use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) const MIB: u64 = 1 << 20;

/// What may happen in a world.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Flavour {
    /// In so many of 100 cases a transfer or a write fails, until faults end.
    pub(crate) faults: u64,
    /// Executors join late, leave, are lost, lose their connections.
    pub(crate) churn: bool,
    /// Tasks exit with errors, and some are tried again.
    pub(crate) failures: bool,
    /// Tasks are cancelled, instances destroyed.
    pub(crate) cancels: bool,
    /// Files vanish from caches, one by one or all of a directory.
    pub(crate) losses: bool,
    /// Some tasks run on several executors each, and three of these are there all along.
    pub(crate) gangs: bool,
}

/// An object as it really is.
#[derive(Debug, Clone)]
pub(crate) struct Real {
    pub(crate) object: Arc<Object>,
    pub(crate) size: u64,
    /// The store has it; what tasks write gets there when they have written it.
    pub(crate) in_store: bool,
    /// What the store says that it is now.
    pub(crate) becomes: Option<ObjectId>,
}

/// Every object that there is, and numbers for those to come.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    pub(crate) reals: BTreeMap<ObjectId, Real>,
    next: u128,
}

impl Objects {
    /// A fresh object.
    pub(crate) fn make(&mut self, url: &str, version: &str, size: u64, known: bool) -> ObjectId {
        self.next += 1;
        let id = ObjectId(self.next);
        let url = format!("{url}{}", self.next);
        let size_known = known.then_some(size);
        let object =
            Arc::new(Object { id, url: url.into(), version: version.into(), size: size_known });
        self.reals.insert(id, Real { object, size, in_store: false, becomes: None });
        id
    }

    /// A fresh member of an archive in caches.
    fn member(&mut self, archive: ObjectId, rng: &mut Rng) -> ObjectId {
        let size = rng.below(self.reals[&archive].size + 1);
        let url = format!("cache:{}.zip!", archive.0);
        self.make(&url, &Object::member_version(archive), size, false)
    }

    /// What tasks read that nobody writes.
    pub(crate) fn random(rng: &mut Rng) -> Objects {
        let mut objects = Objects::default();
        for _ in 0..2 + rng.below(12) {
            let size = if rng.percent(10) { 40 * MIB } else { rng.below(8 * MIB) };
            let unversioned = rng.percent(8);
            let version = if unversioned { "" } else { "1" };
            let known = rng.percent(80);
            let url = format!("s3://bucket{}/", rng.below(2));
            let id = objects.make(&url, version, size, known);
            let becomes = unversioned.then(|| {
                let version = if rng.percent(30) { "" } else { "2" };
                let id = objects.make(&url, version, rng.below(8 * MIB), true);
                objects.reals.get_mut(&id).unwrap().in_store = true;
                id
            });
            let real = objects.reals.get_mut(&id).unwrap();
            real.in_store = unversioned || rng.percent(96);
            real.becomes = becomes;
        }
        objects
    }

    /// Whether a task can never get it.
    pub(crate) fn is_missing(&self, id: ObjectId) -> bool {
        let real = &self.reals[&id];
        real.object.url.starts_with("s3:") && !real.in_store
    }
}

fn options(rng: &mut Rng) -> InstanceOptions {
    let (policy, _) = *rng.pick(&POLICIES);
    let mut options = PolicyOptions { policy, ..PolicyOptions::default() };
    let may_wait = matches!(
        policy,
        PolicyName::MaxCacheHit | PolicyName::MaxComputeUtil | PolicyName::GoodCacheCompute
    );
    if may_wait && rng.percent(40) {
        options.window = 1 + rng.below(5);
    }
    if policy == PolicyName::GoodCacheCompute && rng.percent(50) {
        options.utilization_threshold_milli = *rng.pick(&[0, 300, 500, 1000]);
    }
    if matches!(policy, PolicyName::GoodCacheCompute | PolicyName::QueueAware) && rng.percent(40) {
        options.replication_max = 1 + rng.below(2) as u32;
    }
    InstanceOptions {
        name: "random".to_owned(),
        keep_results: rng.percent(50),
        policy: options,
        ..InstanceOptions::default()
    }
}

impl Flavour {
    /// The faults of a world of this kind.
    pub(crate) fn faults(self) -> Faults {
        let (until, transfers, losses) = (Time(12_000_000), self.faults, self.losses);
        let (cuts, deaths, restarts) = (self.churn, self.churn, self.churn);
        Faults { until, cuts, deaths, restarts, transfers, losses, ..Faults::none() }
    }
}

impl Plan {
    pub(crate) fn with_data(rng: &mut Rng, objects: &mut Objects, flavour: Flavour) -> Plan {
        let (submissions, tasks) = (Vec::new(), Vec::new());
        let (ops, pause_micros) = (vec![Op::Create, Op::Subscribe], 2_000_000);
        let mut plan = Plan { options: options(rng), submissions, tasks, ops, pause_micros };
        let sources: Vec<ObjectId> = objects
            .reals
            .values()
            .filter(|real| real.object.url.starts_with("s3://bucket"))
            .filter(|real| !objects.reals.values().any(|it| it.becomes == Some(real.object.id)))
            .map(|real| real.object.id)
            .collect();
        for number in 0..1 + rng.below(3) as usize {
            plan.submit_with_data(rng, objects, &sources, flavour);
            plan.ops.push(Op::Submit(number));
        }
        if flavour.cancels && rng.percent(60) {
            plan.cancel(rng);
        }
        plan.ops.push(Op::Seal);
        plan
    }

    fn task_with_data(
        &self,
        rng: &mut Rng,
        objects: &mut Objects,
        sources: &[ObjectId],
        flavour: Flavour,
        class: &TaskClass,
    ) -> Task {
        let mut data = super::Objects::default();
        let mut task = Task {
            class: class.clone(),
            after: Vec::new(),
            takes: 0,
            fails: if flavour.failures && rng.percent(20) { rng.below(3) as u32 } else { 0 },
            hangs: false,
            data: None,
            micros: *rng.pick(&[0, 1_000, 50_000, 300_000, 1_500_000]),
        };
        let count = *rng.pick(&[0, 1, 1, 1, 2, 3]);
        for _ in 0..count {
            // Few are read by many.
            let most = 1 + rng.below(sources.len() as u64);
            let input = sources[rng.below(most) as usize];
            data.inputs.push(input);
        }
        // In caches alone, nobody finds an object without knowing places.
        let local = self.options.policy.policy != PolicyName::FirstAvailable;
        let id = self.tasks.len() as u64;
        for _ in 0..rng.below(3) {
            if id > 0 && rng.percent(50) {
                let upstream = rng.below(id);
                let made = &self.tasks[upstream as usize].data;
                let made = made.iter().flat_map(|data| &data.outputs).copied();
                let made: Vec<ObjectId> = made.collect();
                if !made.is_empty() {
                    let id = *rng.pick(&made);
                    let is_cached = !objects.reals[&id].object.is_stored();
                    let is_part = is_cached && rng.percent(40);
                    data.inputs.push(if is_part { objects.member(id, rng) } else { id });
                }
                task.after.push(upstream);
            }
        }
        for _ in 0..rng.below(3) {
            let archive = format!("/out/{}.zip!", rng.below(3));
            let stored = if rng.percent(50) { "s3://out/" } else { &archive };
            let url = if local && rng.percent(60) { "cache:" } else { stored };
            let size = rng.below(3 * MIB);
            data.outputs.push(objects.make(url, "blake3:1", size, false));
        }
        task.data = Some(data);
        task
    }

    fn submit_with_data(
        &mut self,
        rng: &mut Rng,
        objects: &mut Objects,
        sources: &[ObjectId],
        flavour: Flavour,
    ) {
        let first = self.tasks.len() as u64;
        let classes: Vec<TaskClass> = (0..1 + rng.below(2))
            .map(|_| TaskClass {
                kind: *rng.pick(&[
                    Kind::Process,
                    Kind::Process,
                    Kind::Process,
                    Kind::Sleep,
                    Kind::Noop,
                ]),
                resources: Resources {
                    cpus_milli: *rng.pick(&[1000, 1000, 500, 2000, 0]),
                    ..Resources::default()
                },
                priority: rng.below(2) as i32,
                retries: if flavour.failures { rng.below(3) as u32 } else { 0 },
                replicas: *rng.pick(&[1, 1, 1, 2, 3]),
                nodes: if flavour.gangs && rng.percent(35) { 2 + rng.below(2) as u32 } else { 1 },
                ..TaskClass::default()
            })
            .collect();
        let has_data = rng.percent(90);
        let (mut class_runs, mut after) = (Vec::new(), Vec::new());
        for _ in 0..1 + rng.below(3) {
            let class = rng.below(classes.len() as u64) as u32;
            let count = 1 + rng.below(12);
            class_runs.push((count, class));
            for _ in 0..count {
                let id = self.tasks.len() as u64;
                let mut task =
                    self.task_with_data(rng, objects, sources, flavour, &classes[class as usize]);
                if !has_data {
                    task.data = Some(super::Objects::default());
                }
                if task.class.kind == Kind::Noop {
                    // They end together.
                    (task.fails, task.micros) = (0, 0);
                }
                if !task.after.is_empty() {
                    // What was submitted before may have been forgotten.
                    task.after.sort_by_key(|upstream| *upstream < first);
                    if rng.percent(70) {
                        task.takes = task.after.partition_point(|upstream| *upstream >= first);
                    }
                    let tasks = task.after.iter().map(|id| TaskId(*id)).collect();
                    after.push(After { offset: id - first, tasks, takes: task.takes as u64 });
                }
                self.tasks.push(task);
            }
        }
        let tasks = &self.tasks[first as usize..];
        let count = tasks.len() as u64;
        let data = has_data.then(|| Arc::new(declared(tasks, objects)));
        let submission = Submission {
            data,
            count,
            template: Arc::new(Vec::new()),
            rows: packed_rows(first, count),
            classes,
            class_runs,
            names: None,
            after,
            everywhere: None,
        };
        self.submissions.push((first, submission));
    }
}

/// What the tasks declare.
fn declared(tasks: &[Task], objects: &Objects) -> Declared {
    let mut numbers: BTreeMap<ObjectId, u32> = BTreeMap::new();
    let mut named = Vec::new();
    let mut lists = |of: fn(&super::Objects) -> &Vec<ObjectId>| {
        let (mut items, mut ends) = (Vec::new(), Vec::new());
        for task in tasks {
            for id in task.data.iter().flat_map(of) {
                items.push(*numbers.entry(*id).or_insert_with(|| {
                    named.push((*objects.reals[id].object).clone());
                    named.len() as u32 - 1
                }));
            }
            ends.push(items.len() as u32);
        }
        Lists::Each { items: Arc::new(items), ends: Arc::new(ends) }
    };
    let (inputs, outputs) = (lists(|data| &data.inputs), lists(|data| &data.outputs));
    Declared { objects: Arc::new(named), inputs, outputs }
}
