//! Tasks on their way to the dispatcher below: those that wait to be submitted, and
//! those of which it has not said yet that it has them.

use crate::data::declared::Declared;
use crate::dispatch::{BatchId, Held, Prepare};
use crate::limits::{RELAY_SUBMISSION_BYTES_MAX, RELAY_SUBMISSIONS_MAX, SUBMISSION_TASKS_MAX};
use crate::runset::RunSet;
use crate::task::{Everywhere, Packed, Resources, Rows, Submission, TaskClass, TaskId};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// A template as the dispatcher above has sent it.
#[derive(Debug)]
pub(super) struct Template {
    bytes: Arc<Vec<u8>>,
    classes: Vec<TaskClass>,
    /// Its tasks run once on each executor below that offers this. They have one row, and
    /// are submitted together.
    everywhere: Option<Resources>,
}

/// Tasks in a row, of one class of a template.
#[derive(Debug, Clone)]
pub(super) struct Tasks {
    pub(super) held: Held,
    pub(super) class: u32,
    pub(super) rows: Rows,
    /// What they read and write.
    pub(super) data: Option<Declared>,
}

/// Tasks in a row that wait to be submitted.
#[derive(Debug, Clone)]
struct Waiting {
    template: Arc<Template>,
    tasks: Tasks,
}

/// A submission that is not accepted yet.
#[derive(Debug)]
struct Sent {
    first: u64,
    count: u64,
    runs: Vec<Waiting>,
}

/// A submission that was refused.
#[derive(Debug)]
pub(super) struct Refused(Sent);

/// Numbers below, as (first, count).
type Numbers = (u64, u64);

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    /// This session's templates.
    templates: BTreeMap<BatchId, Arc<Template>>,
    waiting: VecDeque<Waiting>,
    sent: VecDeque<Sent>,
    /// The number that the next task below gets.
    next: u64,
    /// A submission was refused: those after it are refused as well, since they do
    /// not follow one another any more.
    is_broken: bool,
}

/// A submission, and the tasks from above in it, each run with its first number
/// below.
pub(super) type Numbered = (u64, Submission, Vec<(u64, Held)>);

impl Outgoing {
    /// Nothing is on its way, and the dispatcher below has so many tasks already.
    pub(super) fn new(next: u64) -> Outgoing {
        Outgoing { next, ..Outgoing::default() }
    }

    pub(super) fn prepare(&mut self, prepare: Prepare) {
        let needs = prepare.classes.iter().map(|class| &class.resources);
        if !needs.chain(&prepare.everywhere).all(Resources::is_sound) {
            return; // No dispatcher would accept a task of it.
        }
        // Whoever counts the tries of a task counts them alone: those of a task that is for
        // one executor are counted where that is.
        let is_own = prepare.everywhere.is_some();
        let classes = prepare
            .classes
            .into_iter()
            .map(|class| {
                let retries = if is_own { class.retries } else { 0 };
                TaskClass { retries, lenders: 0, ..class }
            })
            .collect();
        let everywhere = prepare.everywhere;
        let template = Template { bytes: prepare.template, classes, everywhere };
        self.templates.insert(prepare.batch, Arc::new(template));
    }

    pub(super) fn forget(&mut self, batch: BatchId) {
        self.templates.remove(&batch);
    }

    pub(super) fn forget_all(&mut self) {
        self.templates.clear();
    }

    /// Whether tasks of a template run once on each executor below.
    pub(super) fn is_everywhere(&self, batch: BatchId) -> bool {
        self.templates.get(&batch).is_some_and(|template| template.everywhere.is_some())
    }

    /// Queues tasks. Returns false if their template is not known.
    pub(super) fn push(&mut self, batch: BatchId, tasks: Tasks) -> bool {
        let template = self.templates.get(&batch);
        let template = template.filter(|found| (tasks.class as usize) < found.classes.len());
        let Some(template) = template.cloned() else { return false };
        self.waiting.push_back(Waiting { template, tasks });
        true
    }

    /// The next submission, if one may go.
    pub(super) fn next(&mut self) -> Option<Numbered> {
        if self.is_broken || self.sent.len() >= RELAY_SUBMISSIONS_MAX {
            return None;
        }
        // How many numbers such a submission has is known when it is accepted.
        if self.sent.back().is_some_and(Sent::is_everywhere) {
            return None;
        }
        let mut runs = vec![self.waiting.pop_front()?];
        let (mut count, mut bytes) = (runs[0].tasks.held.count, runs[0].tasks.bytes());
        // Tasks of one template come together where their rows can.
        while let (Some(last), Some(next)) = (runs.last(), self.waiting.front())
            && Arc::ptr_eq(&last.template, &next.template)
            && last.tasks.held.tries.ended() == next.tasks.held.tries.ended()
            && (last.is_everywhere() || last.tasks.joins(&next.tasks))
            && bytes + next.tasks.bytes() <= RELAY_SUBMISSION_BYTES_MAX
            && count + next.tasks.held.count <= SUBMISSION_TASKS_MAX
        {
            (count, bytes) = (count + next.tasks.held.count, bytes + next.tasks.bytes());
            runs.extend(self.waiting.pop_front());
        }
        let first = self.next;
        let numbered = runs.iter().scan(first, |at, run| {
            let below = *at;
            *at += run.tasks.held.count;
            Some((below, run.tasks.held))
        });
        let numbered = numbered.collect();
        let submission = submission_of(&runs, count);
        self.next += count;
        self.sent.push_back(Sent { first, count, runs });
        Some((first, submission, numbered))
    }

    /// The submission that was sent first is accepted, as so many tasks. Returns the numbers
    /// that it lacks: there were fewer executors than the dispatcher above knew.
    pub(super) fn accepted(&mut self, count: u64) -> Option<Numbers> {
        let sent = self.sent.pop_front()?;
        if !sent.is_everywhere() || count >= sent.count {
            return None;
        }
        self.next = sent.first + count;
        Some((self.next, sent.count - count))
    }

    /// The submission that was sent first is refused. Returns the numbers below, as
    /// (first, count), that its tasks do not have.
    pub(super) fn refused(&mut self) -> Option<Refused> {
        let sent = self.sent.pop_front()?;
        if !std::mem::replace(&mut self.is_broken, true) {
            self.next = sent.first;
        }
        Some(Refused(sent))
    }

    /// A task of a refused submission, by the number below that it does not have,
    /// and those behind it are to be submitted again.
    pub(super) fn requeue(&mut self, Refused(sent): &Refused, below: u64, held: Held) {
        let mut at = sent.first;
        for run in &sent.runs {
            let end = at + run.tasks.held.count;
            let (from, until) = (below.max(at), (below + held.count).min(end));
            if from < until {
                let first = TaskId(held.first.0 + (from - below));
                let held = Held { first, count: until - from, ..held };
                self.waiting.push_front(run.part(from - at, held));
            }
            at = end;
        }
    }

    /// Whether submissions were refused, all that were sent are answered, and there
    /// is something to submit.
    pub(super) fn is_stopped(&self) -> bool {
        self.is_broken && self.sent.is_empty()
    }

    /// Submissions go again.
    pub(super) fn restart(&mut self) {
        self.is_broken = false;
    }

    /// Takes out what waits of these tasks, which the dispatcher below does not have.
    pub(super) fn take(&mut self, held: &Held) -> Vec<Held> {
        let mut wanted = RunSet::default();
        wanted.insert(held.first.0, held.count);
        let mut taken = Vec::new();
        for run in std::mem::take(&mut self.waiting) {
            let at = run.tasks.held;
            if at.instance != held.instance || at.tries != held.tries {
                self.waiting.push_back(run);
                continue;
            }
            let part = |(first, count)| Held { first: TaskId(first), count, ..at };
            taken.extend(wanted.within(at.first.0, at.count).into_iter().map(part));
            for (first, count) in wanted.gaps(at.first.0, at.count) {
                self.waiting.push_back(run.part(first - at.first.0, part((first, count))));
            }
        }
        taken
    }

    /// Takes up to `count` tasks out that wait, the last first.
    pub(super) fn take_last(&mut self, mut count: u64) -> Vec<Held> {
        let mut taken = Vec::new();
        while count > 0
            && let Some(last) = self.waiting.pop_back()
        {
            let held = last.tasks.held;
            let part = count.min(held.count);
            if last.is_everywhere() && part < held.count {
                // They go back together, or some executor would run two of them.
                self.waiting.push_back(last);
                break;
            }
            let left = held.count - part;
            count -= part;
            taken.push(Held { first: TaskId(held.first.0 + left), count: part, ..held });
            if left > 0 {
                self.waiting.push_back(last.part(0, Held { count: left, ..held }));
            }
        }
        taken
    }

    /// The tasks that wait.
    pub(super) fn held(&self) -> impl Iterator<Item = Held> + '_ {
        self.waiting.iter().map(|run| run.tasks.held)
    }

    /// The tasks that wait, in so many runs at most. Of more, the others are dropped: the
    /// dispatcher above sends again what it is not told of.
    pub(super) fn hold(&mut self, runs_max: usize) -> Vec<Held> {
        self.waiting.truncate(runs_max);
        self.held().collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.sent.is_empty()
    }
}

impl Refused {
    /// The numbers below that its tasks do not have, as (first, count).
    pub(super) fn numbers(&self) -> Numbers {
        (self.0.first, self.0.count)
    }

    /// Whether each executor below was to run its tasks.
    pub(super) fn is_everywhere(&self) -> bool {
        self.0.is_everywhere()
    }
}

impl Sent {
    fn is_everywhere(&self) -> bool {
        self.runs.iter().any(Waiting::is_everywhere)
    }
}

impl Waiting {
    fn is_everywhere(&self) -> bool {
        self.template.everywhere.is_some()
    }

    /// Those of the tasks that are `held`, `from` of them before.
    fn part(&self, from: u64, held: Held) -> Waiting {
        if self.is_everywhere() {
            let tasks = Tasks { held, ..self.tasks.clone() };
            return Waiting { template: Arc::clone(&self.template), tasks };
        }
        let Tasks { class, rows, data, .. } = &self.tasks;
        let rows = rows.slice(from, held.count);
        let data = data.as_ref().map(|data| data.slice(from, held.count));
        let tasks = Tasks { held, class: *class, rows, data };
        Waiting { template: Arc::clone(&self.template), tasks }
    }
}

impl Tasks {
    fn bytes(&self) -> u64 {
        self.rows.bytes() + self.data.as_ref().map_or(0, Declared::bytes)
    }

    /// Whether these tasks and the next ones go into one submission: rows that are
    /// stored do, and computed ones that follow these.
    fn joins(&self, next: &Tasks) -> bool {
        let rows = match (&self.rows, &next.rows) {
            (Rows::Packed(_), Rows::Packed(_)) => true,
            (
                Rows::Computed { factors, offset },
                Rows::Computed { factors: others, offset: follow },
            ) => offset.checked_add(self.held.count) == Some(*follow) && factors == others,
            _ => false,
        };
        rows && self.data.is_some() == next.data.is_some()
    }
}

/// The data of several runs of tasks, if they have any.
fn data_of(runs: &[Waiting]) -> Option<Arc<Declared>> {
    let parts = runs.iter().map(|run| Some((run.tasks.data.as_ref()?, run.tasks.held.count)));
    let parts: Vec<(&Declared, u64)> = parts.collect::<Option<_>>()?;
    Some(Arc::new(match parts[..] {
        [(only, _)] => only.clone(),
        _ => Declared::joined(&parts),
    }))
}

/// A class of tasks at which so many attempts have ended above. Tasks may wait there for the
/// room that a second try of one would take: none is made below.
fn later(class: &TaskClass, ended: u32) -> TaskClass {
    let attempts_before = class.attempts_before.saturating_add(ended);
    TaskClass { attempts_before, speculate: false, ..class.clone() }
}

/// The submission of a task that is to run on up to `count` executors.
fn everywhere_of(run: &Waiting, offering: Resources, count: u64) -> Submission {
    let Tasks { class, rows, data, .. } = run.tasks.clone();
    Submission {
        count: 1,
        template: run.template.bytes.clone(),
        rows,
        classes: run.template.classes.clone(),
        class_runs: vec![(1, class)],
        names: None,
        after: Vec::new(),
        data: data.map(Arc::new),
        everywhere: Some(Everywhere { offering, lent: Some(count), ..Everywhere::default() }),
    }
}

/// The submission of these runs, of one template, at whose tasks as many attempts have ended.
fn submission_of(runs: &[Waiting], count: u64) -> Submission {
    let (template, ended) = (&runs[0].template, runs[0].tasks.held.tries.ended());
    if let Some(offering) = &template.everywhere {
        return everywhere_of(&runs[0], offering.clone(), count);
    }
    let rows = match (&runs[0].tasks.rows, runs) {
        (rows @ Rows::Computed { .. }, _) | (rows, [_]) => rows.clone(),
        (_, several) => {
            let packed = several.iter().filter_map(|run| match &run.tasks.rows {
                Rows::Packed(packed) => Some(packed),
                Rows::Computed { .. } => None,
            });
            // They are within a submission's bound together.
            Rows::Packed(Packed::concatenated(packed).unwrap_or_default())
        }
    };
    let mut class_runs: Vec<(u64, u32)> = Vec::new();
    for run in runs {
        match class_runs.last_mut() {
            Some((count, class)) if *class == run.tasks.class => *count += run.tasks.held.count,
            _ => class_runs.push((run.tasks.held.count, run.tasks.class)),
        }
    }
    Submission {
        count,
        template: template.bytes.clone(),
        rows,
        classes: template.classes.iter().map(|class| later(class, ended)).collect(),
        class_runs,
        names: None,
        after: Vec::new(),
        data: data_of(runs),
        everywhere: None,
    }
}
