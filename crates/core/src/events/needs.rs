//! Events of what tasks need: the tasks that they wait for, the data objects that they
//! read and write, and the resources that they reserve.
//!
//! Tasks in a row that need alike are one event. A row of tasks that wait each for the
//! task that is as far before it is one too, as in chains and in stages of a pipeline. No
//! event has more than [`EVENT_NEEDS_MAX`] items: a task with more has several events,
//! which add up.

use super::{Run, What, text};
use crate::data::declared::Declared;
use crate::data::object::{Object, ObjectId};
use crate::limits::EVENT_NEEDS_MAX;
use crate::task::{After, InstanceId, Resources, TaskClass, TaskId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Tasks in a row that wait for others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waits {
    /// Which.
    pub run: Run,
    /// For whom the first of them waits, and so the others.
    pub before: Arc<[Before]>,
}

/// Tasks in a row that others wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Before {
    /// The first of those that the first task waits for.
    pub first: TaskId,
    /// How many.
    pub count: u64,
    /// Each further task of the run waits for tasks whose numbers are one higher than
    /// those of the task before it. Otherwise all wait for the same tasks.
    pub moves: bool,
}

impl Waits {
    /// The tasks that a task of the run waits for, as first and count; `at` is the
    /// task's place in the run.
    pub fn of(&self, at: u64) -> impl Iterator<Item = (TaskId, u64)> {
        self.before.iter().map(move |before| {
            let by = if before.moves { at } else { 0 };
            (TaskId(before.first.0.saturating_add(by)), before.count)
        })
    }

    /// The events of a submission's dependencies; `first` is its first task.
    pub fn each(instance: InstanceId, first: TaskId, after: &[After], mut each: impl FnMut(What)) {
        let mut open: Option<Growing> = None;
        for one in after {
            let task = first.0.saturating_add(one.offset);
            let before = in_rows(&one.tasks);
            if open.as_mut().is_some_and(|open| open.takes(task, &before)) {
                continue;
            }
            if let Some(done) = open.take() {
                done.end(instance, &mut each);
            }
            open = Some(Growing { first: task, count: 1, last: before.clone(), before });
        }
        if let Some(done) = open {
            done.end(instance, &mut each);
        }
    }
}

/// A row of tasks that may grow.
#[derive(Debug)]
struct Growing {
    first: u64,
    count: u64,
    before: Vec<Before>,
    /// The beginning of those of its last task.
    last: Vec<Before>,
}

impl Growing {
    /// Makes a task part of the row, if it is the next one and waits alike.
    fn takes(&mut self, task: u64, before: &[Before]) -> bool {
        let is_next = self.first.checked_add(self.count) == Some(task);
        if !is_next || before.len() != self.last.len() || before.len() > EVENT_NEEDS_MAX {
            return false;
        }
        let is_first = self.count == 1;
        let moves = |at: usize| {
            let (was, is) = (&self.last[at], &before[at]);
            let by = is.first.0.wrapping_sub(was.first.0);
            let known = (!is_first).then_some(self.before[at].moves);
            let fits = is.count == was.count && by <= 1 && known.is_none_or(|it| it == (by == 1));
            fits.then_some(by == 1)
        };
        let Some(moves) = (0..before.len()).map(moves).collect::<Option<Vec<bool>>>() else {
            return false;
        };
        for (one, moves) in self.before.iter_mut().zip(moves) {
            one.moves = moves;
        }
        self.count += 1;
        self.last.copy_from_slice(before);
        true
    }

    fn end(self, instance: InstanceId, each: &mut impl FnMut(What)) {
        let run = Run { instance, first: TaskId(self.first), count: self.count };
        for part in self.before.chunks(EVENT_NEEDS_MAX) {
            each(What::Waits(Waits { run, before: part.into() }));
        }
    }
}

/// A list of tasks as rows of them.
fn in_rows(tasks: &[TaskId]) -> Vec<Before> {
    let mut rows: Vec<Before> = Vec::new();
    for task in tasks {
        match rows.last_mut() {
            Some(row) if row.first.0.checked_add(row.count) == Some(task.0) => row.count += 1,
            _ => rows.push(Before { first: *task, count: 1, moves: false }),
        }
    }
    rows
}

/// A data object, as far as events name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedObject {
    /// The key that it is known by.
    pub id: ObjectId,
    /// The place that it comes from or goes to, or the beginning of its URL.
    pub url: Arc<str>,
    /// Its bytes, if they were known.
    pub size: Option<u64>,
}

impl NamedObject {
    fn of(object: &Object) -> NamedObject {
        NamedObject { id: object.id, url: text(&object.url), size: object.size }
    }

    /// Whether it is in a persistent store, or is to be.
    #[must_use]
    pub fn is_stored(&self) -> bool {
        Object::is_url_stored(&self.url)
    }
}

/// Tasks in a row that all read and write the same objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uses {
    /// Which.
    pub run: Run,
    /// The objects that each of them reads.
    pub inputs: Vec<Arc<NamedObject>>,
    /// The objects that each of them writes.
    pub outputs: Vec<Arc<NamedObject>>,
}

impl Uses {
    /// The events of what the tasks of a submission read and write. Where `are_alike`,
    /// what is declared is of each of them.
    pub fn each(run: Run, declared: &Declared, are_alike: bool, mut each: impl FnMut(What)) {
        let mut named = Named { declared, known: BTreeMap::new() };
        let rows = if are_alike || declared.is_same() { 1 } else { run.count };
        let mut from = 0;
        while from < rows {
            let lists = (declared.inputs.of(from), declared.outputs.of(from));
            let is_alike = |at: &u64| (declared.inputs.of(*at), declared.outputs.of(*at)) == lists;
            let until = (from + 1..rows).find(|at| !is_alike(at)).unwrap_or(rows);
            let count = if rows < run.count { run.count } else { until - from };
            let first = TaskId(run.first.0.saturating_add(from));
            let of = Run { first, count, ..run };
            for (inputs, outputs) in parts(lists.0, lists.1) {
                let (inputs, outputs) = (named.all(inputs), named.all(outputs));
                each(What::Uses(Uses { run: of, inputs, outputs }));
            }
            from = until;
        }
    }
}

/// Tasks in a row that each reserve other than one CPU of one executor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reserves {
    /// Which.
    pub run: Run,
    /// What each of them reserves, on each of its nodes.
    pub resources: Resources,
    /// The number of executors that run each of them together; at least 1.
    pub nodes: u32,
}

impl Reserves {
    /// The events of what the tasks of a submission reserve. Rows of tasks of one class are
    /// given as their number and the class's place, as in [`crate::task::Submission`].
    pub fn each(
        instance: InstanceId,
        first: TaskId,
        class_runs: &[(u64, u32)],
        classes: &[TaskClass],
        mut each: impl FnMut(What),
    ) {
        let mut open: Option<Reserves> = None;
        let mut end = |done: Option<Reserves>| {
            if let Some(done) = done.filter(Reserves::is_unusual) {
                each(What::Reserves(done));
            }
        };
        let mut from = first.0;
        for (count, class) in class_runs {
            let run = Run { instance, first: TaskId(from), count: *count };
            from = from.saturating_add(*count);
            let Some(class) = classes.get(*class as usize) else { continue };
            let (resources, nodes) = (class.resources.known(), class.nodes.max(1));
            match &mut open {
                Some(last) if last.resources == resources && last.nodes == nodes => {
                    last.run.count = last.run.count.saturating_add(*count);
                }
                _ => end(open.replace(Reserves { run, resources, nodes })),
            }
        }
        end(open);
    }

    fn is_unusual(&self) -> bool {
        self.nodes != 1 || self.resources != Resources::cpus(1)
    }

    /// The CPUs that each task reserves on all of its nodes, in thousandths.
    #[must_use]
    pub fn cpus_milli(&self) -> u64 {
        u64::from(self.resources.cpus_milli) * u64::from(self.nodes)
    }
}

/// Two lists in parts of at most [`EVENT_NEEDS_MAX`] items; none if both are empty.
fn parts<'a>(inputs: &'a [u32], outputs: &'a [u32]) -> Vec<(&'a [u32], &'a [u32])> {
    let none: &[u32] = &[];
    if inputs.is_empty() && outputs.is_empty() {
        return Vec::new();
    }
    if inputs.len() + outputs.len() <= EVENT_NEEDS_MAX {
        return vec![(inputs, outputs)];
    }
    let read = inputs.chunks(EVENT_NEEDS_MAX).map(|part| (part, none));
    let written = outputs.chunks(EVENT_NEEDS_MAX).map(|part| (none, part));
    read.chain(written).collect()
}

/// The objects of a submission, each of which gets its name once.
struct Named<'a> {
    declared: &'a Declared,
    known: BTreeMap<u32, Arc<NamedObject>>,
}

impl Named<'_> {
    fn all(&mut self, items: &[u32]) -> Vec<Arc<NamedObject>> {
        let one = |item: &u32| {
            let object = self.declared.objects.get(*item as usize)?;
            let name = || Arc::new(NamedObject::of(object));
            Some(self.known.entry(*item).or_insert_with(name).clone())
        };
        items.iter().filter_map(one).collect()
    }
}
