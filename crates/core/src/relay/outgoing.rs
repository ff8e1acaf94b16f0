//! Tasks on their way to the dispatcher below: those that wait to be submitted, and
//! those of which it has not said yet that it has them.

use crate::dispatch::{BatchId, Held, Prepare};
use crate::limits::{RELAY_SUBMISSION_BYTES_MAX, RELAY_SUBMISSIONS_MAX, SUBMISSION_TASKS_MAX};
use crate::runset::RunSet;
use crate::task::{Packed, Rows, Submission, TaskClass, TaskId};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// A template as the dispatcher above has sent it.
#[derive(Debug)]
pub(super) struct Template {
    bytes: Arc<Vec<u8>>,
    classes: Vec<TaskClass>,
}

/// Tasks in a row that wait to be submitted.
#[derive(Debug, Clone)]
struct Waiting {
    held: Held,
    template: Arc<Template>,
    class: u32,
    rows: Rows,
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
        // Whoever counts the tries of a task counts them alone.
        let classes = prepare
            .classes
            .into_iter()
            .map(|class| TaskClass { retries: 0, lenders: 0, ..class })
            .collect();
        let template = Template { bytes: prepare.template, classes };
        self.templates.insert(prepare.batch, Arc::new(template));
    }

    pub(super) fn forget(&mut self, batch: BatchId) {
        self.templates.remove(&batch);
    }

    pub(super) fn forget_all(&mut self) {
        self.templates.clear();
    }

    /// Queues tasks. Returns false if their template is not known.
    pub(super) fn push(&mut self, batch: BatchId, held: Held, class: u32, rows: Rows) -> bool {
        let template = self.templates.get(&batch);
        let template = template.filter(|found| (class as usize) < found.classes.len());
        let Some(template) = template.cloned() else { return false };
        self.waiting.push_back(Waiting { held, template, class, rows });
        true
    }

    /// The next submission, if one may go.
    pub(super) fn next(&mut self) -> Option<Numbered> {
        if self.is_broken || self.sent.len() >= RELAY_SUBMISSIONS_MAX {
            return None;
        }
        let mut runs = vec![self.waiting.pop_front()?];
        let (mut count, mut bytes) = (runs[0].held.count, runs[0].rows.bytes());
        // Tasks whose rows are stored come together where they are of one template.
        while let (Rows::Packed(_), Some(next)) = (&runs[0].rows, self.waiting.front())
            && let Rows::Packed(rows) = &next.rows
            && Arc::ptr_eq(&runs[0].template, &next.template)
            && bytes + rows.bytes() <= RELAY_SUBMISSION_BYTES_MAX
            && count + next.held.count <= SUBMISSION_TASKS_MAX
        {
            (count, bytes) = (count + next.held.count, bytes + rows.bytes());
            runs.extend(self.waiting.pop_front());
        }
        let first = self.next;
        let numbered = runs.iter().scan(first, |at, run| {
            let below = *at;
            *at += run.held.count;
            Some((below, run.held))
        });
        let numbered = numbered.collect();
        let submission = submission_of(&runs, count);
        self.next += count;
        self.sent.push_back(Sent { first, count, runs });
        Some((first, submission, numbered))
    }

    /// The submission that was sent first is accepted.
    pub(super) fn accepted(&mut self) {
        self.sent.pop_front();
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
            let end = at + run.held.count;
            let (from, until) = (below.max(at), (below + held.count).min(end));
            if from < until {
                let first = TaskId(held.first.0 + (from - below));
                let held = Held { first, count: until - from, ..held };
                let rows = run.rows.slice(from - at, held.count);
                self.waiting.push_front(Waiting { held, rows, ..run.clone() });
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
            if run.held.instance != held.instance || run.held.tries != held.tries {
                self.waiting.push_back(run);
                continue;
            }
            let at = run.held;
            let part = |(first, count)| Held { first: TaskId(first), count, ..at };
            taken.extend(wanted.within(at.first.0, at.count).into_iter().map(part));
            for (first, count) in wanted.gaps(at.first.0, at.count) {
                let rows = run.rows.slice(first - at.first.0, count);
                self.waiting.push_back(Waiting { held: part((first, count)), rows, ..run.clone() });
            }
        }
        taken
    }

    /// Takes up to `count` tasks out that wait, the last first.
    pub(super) fn take_last(&mut self, mut count: u64) -> Vec<Held> {
        let mut taken = Vec::new();
        while count > 0
            && let Some(mut last) = self.waiting.pop_back()
        {
            let part = count.min(last.held.count);
            let left = last.held.count - part;
            count -= part;
            let first = TaskId(last.held.first.0 + left);
            taken.push(Held { first, count: part, ..last.held });
            if left > 0 {
                last.rows = last.rows.slice(0, left);
                last.held.count = left;
                self.waiting.push_back(last);
            }
        }
        taken
    }

    /// The tasks that wait.
    pub(super) fn held(&self) -> impl Iterator<Item = Held> + '_ {
        self.waiting.iter().map(|run| run.held)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.sent.is_empty()
    }
}

impl Refused {
    /// The numbers below that its tasks do not have, as (first, count).
    pub(super) fn numbers(&self) -> (u64, u64) {
        (self.0.first, self.0.count)
    }
}

fn submission_of(runs: &[Waiting], count: u64) -> Submission {
    let template = &runs[0].template;
    let rows = match runs {
        [only] => only.rows.clone(),
        several => {
            let mut all = Packed::default();
            for run in several {
                let Rows::Packed(packed) = &run.rows else { continue };
                for at in 0..packed.len() {
                    // They are within a submission's bound together.
                    let _ = all.push(packed.at(at).unwrap_or_default());
                }
            }
            Rows::Packed(all)
        }
    };
    let mut class_runs: Vec<(u64, u32)> = Vec::new();
    for run in runs {
        match class_runs.last_mut() {
            Some((count, class)) if *class == run.class => *count += run.held.count,
            _ => class_runs.push((run.held.count, run.class)),
        }
    }
    Submission {
        count,
        template: template.bytes.clone(),
        rows,
        classes: template.classes.clone(),
        class_runs,
        names: None,
        after: Vec::new(),
        data: None,
        everywhere: None,
    }
}
