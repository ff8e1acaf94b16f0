//! What clients submit, how the tasks behave, and how they must end.

pub(crate) mod data;

use crate::rng::Rng;
use falkon_core::data::object::ObjectId;
use falkon_core::dispatch::{InstanceOptions, Selection};
use falkon_core::task::{
    After, DISK, Kind, Packed, Range, Resources, Rows, Submission, TaskClass, TaskId,
};
use std::sync::Arc;

const PAUSE_MICROS: u64 = 100_000;

/// How one task behaves.
#[derive(Debug, Clone)]
pub(crate) struct Task {
    pub(crate) class: TaskClass,
    pub(crate) after: Vec<u64>,
    /// How many of these, from the first on, it takes the values of.
    pub(crate) takes: usize,
    /// How many of its runs fail before one succeeds; all, if that is more than
    /// it is tried.
    pub(crate) fails: u32,
    /// Runs until it is killed.
    pub(crate) hangs: bool,
    pub(crate) micros: u64,
    /// What it reads and writes, in a workload with data objects.
    pub(crate) data: Option<Objects>,
}

/// The data objects of a task.
#[derive(Debug, Clone, Default)]
pub(crate) struct Objects {
    pub(crate) inputs: Vec<ObjectId>,
    pub(crate) outputs: Vec<ObjectId>,
}

impl Task {
    /// Whether its last try fails as well.
    pub(crate) fn always_fails(&self) -> bool {
        self.fails > self.class.retries
    }
}

/// What a client asks for, in order.
#[derive(Debug, Clone)]
pub(crate) enum Op {
    Create,
    Subscribe,
    /// The submission of this number.
    Submit(usize),
    Seal,
    Cancel(Selection),
    Destroy,
}

/// All that one client does.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) options: InstanceOptions,
    pub(crate) submissions: Vec<(u64, Submission)>,
    pub(crate) tasks: Vec<Task>,
    pub(crate) ops: Vec<Op>,
    /// What the client pauses at most between them.
    pub(crate) pause_micros: u64,
}

/// What an executor offers that can run every task.
pub(crate) fn full_capacity() -> Resources {
    Resources {
        cpus_milli: 4000,
        gpus: 2,
        memory_bytes: 8 << 30,
        custom: vec![(DISK.to_owned(), 80 << 30), ("licence".to_owned(), 3)],
    }
}

/// What some executor offers.
pub(crate) fn capacity(rng: &mut Rng) -> Resources {
    let mut capacity = Resources {
        cpus_milli: *rng.pick(&[1000, 1500, 2000, 4000]),
        gpus: rng.below(3) as u32,
        memory_bytes: rng.below(9) << 30,
        custom: if rng.percent(50) {
            vec![("licence".to_owned(), rng.below(4))]
        } else {
            Vec::new()
        },
    };
    // None, or up to 80 GiB.
    capacity.set_disk_bytes(capacity.memory_bytes * 10);
    capacity
}

fn resources(rng: &mut Rng) -> Resources {
    let mut need = Resources {
        cpus_milli: *rng.pick(&[1000, 1000, 1000, 500, 250, 2000, 4000, 0]),
        ..Resources::default()
    };
    if rng.percent(15) {
        need.gpus = 1 + rng.below(2) as u32;
    }
    if rng.percent(15) {
        need.memory_bytes = (1 + rng.below(4)) << 30;
    }
    if rng.percent(15) {
        need.set_disk_bytes((1 + rng.below(40)) << 30);
    }
    if rng.percent(15) {
        need.custom.push(("licence".to_owned(), 1 + rng.below(3)));
    }
    need
}

/// What may occur in a workload.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Flavour {
    pub(crate) failures: bool,
    pub(crate) cancels: bool,
    pub(crate) after: bool,
    /// Some tasks run on several executors each.
    pub(crate) gangs: bool,
    /// Two tries of some tasks may run at the same time.
    pub(crate) speculates: bool,
}

fn class(rng: &mut Rng, flavour: Flavour) -> TaskClass {
    let kind = *rng.pick(&[Kind::Process, Kind::Process, Kind::Noop, Kind::Sleep]);
    let is_gang = flavour.gangs && kind != Kind::Noop && rng.percent(35);
    let mut resources = resources(rng);
    if is_gang {
        // Tasks on several executors have no scratch directories.
        resources.set_disk_bytes(0);
    }
    // Worlds with second tries have none, and draw as without.
    let may_have_others = !is_gang && kind != Kind::Noop && !flavour.speculates;
    let others = if may_have_others && rng.percent(30) { 1 + rng.below(3) } else { 0 };
    let mut alternatives: Vec<Resources> = Vec::new();
    for _ in 0..others {
        let other = self::resources(rng);
        if other != resources && !alternatives.contains(&other) {
            alternatives.push(other);
        }
    }
    TaskClass {
        kind,
        resources,
        alternatives,
        priority: rng.below(3) as i32 - 1,
        retries: if rng.percent(40) { rng.below(4) as u32 } else { 0 },
        timeout_micros: if flavour.failures && rng.percent(20) { 300_000 } else { 0 },
        nodes: if is_gang { 2 + rng.below(2) as u32 } else { 1 },
        ranks_per_node: if is_gang { rng.below(3) as u32 } else { 0 },
        speculate: flavour.speculates && !is_gang && rng.percent(70),
        ..TaskClass::default()
    }
}

fn task(rng: &mut Rng, class: &TaskClass, flavour: Flavour) -> Task {
    let micros = match rng.below(20) {
        0 => rng.below(2_000_000),
        1..5 => 50_000 + rng.below(200_000),
        _ => rng.below(10_000),
    };
    let fragile = flavour.failures && class.kind == Kind::Process;
    let fails = if fragile && rng.percent(25) { rng.below(5) as u32 } else { 0 };
    Task {
        class: class.clone(),
        after: Vec::new(),
        takes: 0,
        // Which try is the first is not known where two run.
        fails: if class.speculate && fails > 0 { u32::MAX } else { fails },
        hangs: class.timeout_micros > 0 && class.kind != Kind::Noop && rng.percent(20),
        micros: if class.timeout_micros > 0 { micros.min(200_000) } else { micros },
        data: None,
    }
}

/// Rows that say which task each is, so that a run that is cut up can be
/// checked against where it came from.
fn rows(rng: &mut Rng, first: u64, count: u64) -> Rows {
    if rng.percent(50) {
        let start = first as i64;
        let factor = Range { start, step: 1, count };
        return Rows::Computed { factors: vec![factor], offset: 0 };
    }
    packed_rows(first, count)
}

fn packed_rows(first: u64, count: u64) -> Rows {
    let mut packed = Packed::default();
    for task in first..first + count {
        assert!(packed.push(task.to_string().as_bytes()));
    }
    Rows::Packed(packed)
}

/// What a task leaves for those that take it; those that may end in one report
/// with others leave nothing.
pub(crate) fn value_of(task: &Task, id: u64) -> Vec<u8> {
    match task.class.kind {
        Kind::Noop => Vec::new(),
        _ if id.is_multiple_of(5) => Vec::new(),
        _ => format!("value of {id}").repeat(1 + (id % 7) as usize).into_bytes(),
    }
}

/// The values in front of a row, and the row.
pub(crate) fn split_row(row: &[u8]) -> (Vec<&[u8]>, &[u8]) {
    let Some((b'v', rest)) = row.split_first() else { return (Vec::new(), row) };
    let word = |at: usize| u32::from_le_bytes(rest[at..at + 4].try_into().unwrap()) as usize;
    let mut at = 4 + 4 * word(0);
    let mut values = Vec::new();
    for index in 1..=word(0) {
        let end = at + word(4 * index);
        values.push(&rest[at..end]);
        at = end;
    }
    (values, &rest[at..])
}

/// Whether a row is that of `task`.
pub(crate) fn is_row_of(rows: &Rows, row: u64, task: u64) -> bool {
    match rows {
        Rows::Computed { .. } => rows.computed(row) == [task as i64],
        Rows::Packed(packed) => {
            packed.at(row).map(|row| split_row(row).1) == Some(task.to_string().as_bytes())
        }
    }
}

/// A submission in which all tasks are of one class.
pub(crate) fn uniform(rng: &mut Rng, first: u64, count: u64, class: &TaskClass) -> Submission {
    Submission {
        data: None,
        count,
        template: Arc::new(first.to_string().into_bytes()),
        rows: rows(rng, first, count),
        classes: vec![class.clone()],
        class_runs: vec![(count, 0)],
        names: None,
        after: Vec::new(),
        everywhere: None,
    }
}

impl Plan {
    /// A plan of the client's own making: these tasks in one submission each
    /// class run, sealed, to the end.
    pub(crate) fn of(rng: &mut Rng, runs: &[(u64, TaskClass, u64)]) -> Plan {
        let mut plan = Plan {
            options: InstanceOptions::default(),
            submissions: Vec::new(),
            tasks: Vec::new(),
            ops: vec![Op::Create, Op::Subscribe],
            pause_micros: PAUSE_MICROS,
        };
        for (count, class, micros) in runs {
            let first = plan.tasks.len() as u64;
            plan.ops.push(Op::Submit(plan.submissions.len()));
            plan.submissions.push((first, uniform(rng, first, *count, class)));
            plan.tasks.extend((0..*count).map(|_| Task {
                class: class.clone(),
                after: Vec::new(),
                takes: 0,
                fails: 0,
                hangs: false,
                micros: *micros,
                data: None,
            }));
        }
        plan.ops.push(Op::Seal);
        plan
    }

    /// Something random.
    pub(crate) fn random(rng: &mut Rng, flavour: Flavour) -> Plan {
        let options = InstanceOptions {
            policy: Default::default(),
            name: "random".to_owned(),
            keep_results: rng.percent(50),
            fail_unschedulable_micros: None,
            fail_fast: false,
            ..InstanceOptions::default()
        };
        let (submissions, tasks) = (Vec::new(), Vec::new());
        let (ops, pause_micros) = (vec![Op::Create], PAUSE_MICROS);
        let mut plan = Plan { options, submissions, tasks, ops, pause_micros };
        if rng.percent(70) {
            plan.ops.push(Op::Subscribe);
        }
        for number in 0..1 + rng.below(4) as usize {
            plan.submit(rng, flavour);
            plan.ops.push(Op::Submit(number));
        }
        if flavour.cancels {
            plan.cancel(rng);
        }
        plan.ops.push(Op::Seal);
        if !plan.ops.iter().any(|op| matches!(op, Op::Subscribe)) {
            plan.ops.push(Op::Subscribe);
        }
        plan
    }

    fn submit(&mut self, rng: &mut Rng, flavour: Flavour) {
        let first = self.tasks.len() as u64;
        let mut classes: Vec<_> = (0..1 + rng.below(3)).map(|_| class(rng, flavour)).collect();
        let mut template = first.to_string().into_bytes();
        // Executors are told once of submissions in a row that are alike.
        if rng.percent(50)
            && let Some((_, last)) = self.submissions.last()
        {
            classes.clone_from(&last.classes);
            template.clone_from(&last.template);
        }
        let mut class_runs = Vec::new();
        let mut after = Vec::new();
        for _ in 0..1 + rng.below(4) {
            let index = rng.below(classes.len() as u64) as usize;
            let class = &classes[index];
            let large = class.kind == Kind::Noop && rng.percent(30);
            let count = 1 + rng.below(if large { 2000 } else { 15 });
            class_runs.push((count, index as u32));
            for _ in 0..count {
                let id = self.tasks.len() as u64;
                let mut task = task(rng, class, flavour);
                if flavour.after && !large && rng.percent(20) {
                    for _ in 0..1 + rng.below(3) {
                        // Mostly earlier ones; some later, some never there.
                        let upstream =
                            if rng.percent(92) { rng.below(id.max(1)) } else { rng.below(id + 20) };
                        if upstream != id {
                            task.after.push(upstream);
                        }
                    }
                    if !task.after.is_empty() {
                        let tasks = task.after.iter().map(|id| TaskId(*id)).collect();
                        if rng.percent(60) {
                            task.takes = 1 + rng.below(task.after.len() as u64) as usize;
                        }
                        after.push(After { offset: id - first, tasks, takes: task.takes as u64 });
                    }
                }
                self.tasks.push(task);
            }
        }
        let count = self.tasks.len() as u64 - first;
        let mut submission = uniform(rng, first, count, &classes[0]);
        submission.template = Arc::new(template);
        submission.classes = classes;
        submission.class_runs = class_runs;
        if after.iter().any(|after| after.takes > 0) {
            submission.rows = packed_rows(first, count);
        }
        submission.after = after;
        self.submissions.push((first, submission));
    }

    /// Cancels something, or destroys everything, somewhere on the way.
    fn cancel(&mut self, rng: &mut Rng) {
        let at = 1 + rng.below(self.ops.len() as u64) as usize;
        let total = self.tasks.len() as u64;
        match rng.below(6) {
            0 => self.ops.push(Op::Cancel(Selection::All)),
            1 => self.ops.push(Op::Destroy),
            2..5 => {
                let runs =
                    (0..1 + rng.below(4)).map(|_| (rng.below(total), 1 + rng.below(20))).collect();
                self.ops.insert(at, Op::Cancel(Selection::Runs(runs)));
            }
            _ => {}
        }
    }
}
