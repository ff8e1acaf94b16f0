//! A plan as submissions.

use super::listed::{Chunk, SUBMISSION_ROWS_BYTES, SUBMISSION_TASKS_MAX};
use super::objects::ObjectsBuilder;
use super::{Body, Plan, Product};
use falkon_core::data::declared::Declared;
use falkon_core::task::{After, Packed, Rows, Submission, TaskClass, TaskId};
use falkon_wire::codec::Wire;
use std::collections::HashMap;
use std::sync::Arc;

/// Consecutive selected tasks that are worth a submission of their own, whose
/// rows are computed.
const COMPUTED_RUN_TASKS_MIN: u64 = 1024;

/// The submissions of a plan, in order; see [`Plan::submissions`].
#[derive(Debug)]
pub(crate) struct Submissions<'a> {
    plan: &'a Plan,
    next: u64,
    /// The most tasks of one.
    tasks_max: u64,
}

impl Plan {
    /// The plan in pieces: together they hold every task once, in order, and
    /// dependencies are positions in the whole plan, perhaps in a later piece.
    /// A piece has at most 2,048 tasks and about 4 MiB of rows. A plan of
    /// ranges alone without dependencies is one piece, whatever its count.
    pub(crate) fn submissions(&self) -> Submissions<'_> {
        self.submissions_from(0, u64::MAX)
    }

    /// The same for the tasks from position `first` on, in pieces of at most so many tasks.
    pub(crate) fn submissions_from(&self, first: u64, tasks_max: u64) -> Submissions<'_> {
        Submissions { plan: self, next: first, tasks_max: tasks_max.max(1) }
    }
}

impl Iterator for Submissions<'_> {
    type Item = Submission;

    fn next(&mut self) -> Option<Submission> {
        if self.next >= self.plan.count() {
            return None;
        }
        let submission = match &*self.plan.body {
            Body::Product(product) => self.of_product(product),
            Body::Listed(_) => self.of_list()?,
        };
        self.next += submission.count;
        Some(submission)
    }
}

impl Submissions<'_> {
    fn of_product(&self, product: &Product) -> Submission {
        let (index, run) = self.run_at(self.next);
        let selected = self.plan.selection.is_some();
        // Stored rows have the number in them: that of a task that is selected, or that
        // runs below a relay, is another one there.
        let is_numbered = product.is_numbered();
        let factors = product.factors();
        let computable = factors.is_some();
        let computed = factors.filter(|_| !selected || run >= COMPUTED_RUN_TASKS_MIN);
        let mut template = self.plan.template.clone();
        let (rows, count) = match computed {
            Some(factors) => {
                let one_piece = self.plan.dependencies.is_empty() && !product.has_varying_objects();
                let most = if one_piece { run } else { SUBMISSION_TASKS_MAX };
                (Rows::Computed { factors, offset: index }, run.min(most).min(self.tasks_max))
            }
            None => {
                if is_numbered {
                    template = Arc::new(product.template_with_number_in_row().to_bytes());
                }
                let rows = self.product_rows(product, is_numbered, computable);
                let count = rows.len();
                (Rows::Packed(rows), count)
            }
        };
        Submission {
            data: self.data(count),
            count,
            template,
            rows,
            classes: vec![product.class.clone()],
            class_runs: vec![(count, 0)],
            names: None,
            after: self.after(count),
            everywhere: None,
        }
    }

    /// The index of the task at `position`, which is not past the end, and how
    /// many follow it without a gap, itself counted.
    fn run_at(&self, position: u64) -> (u64, u64) {
        let whole = (position, self.plan.count() - position);
        let selection = self.plan.selection.as_ref();
        selection.and_then(|selection| selection.run_at(position)).unwrap_or(whole)
    }

    /// Stored rows for the next tasks; if they could be computed instead, only
    /// up to where that is worth a submission.
    fn product_rows(&self, product: &Product, numbered: bool, computable: bool) -> Packed {
        let (mut blob, mut ends) = (Vec::new(), Vec::new());
        let most = SUBMISSION_TASKS_MAX.min(self.tasks_max);
        let last = self.plan.count().min(self.next + most);
        let mut run_left = 0;
        let mut index = 0;
        for position in self.next..last {
            if run_left == 0 {
                (index, run_left) = self.run_at(position);
                if computable && run_left >= COMPUTED_RUN_TASKS_MIN {
                    break;
                }
            }
            product.put_row(index, numbered, &mut blob);
            index += 1;
            run_left -= 1;
            // A row is at most some values of 128 KiB.
            ends.push(blob.len() as u32);
            if blob.len() >= SUBMISSION_ROWS_BYTES {
                break;
            }
        }
        // Submissions may wait in queues for long.
        blob.shrink_to_fit();
        ends.shrink_to_fit();
        Packed { blob: Arc::new(blob), ends: Arc::new(ends) }
    }

    fn of_list(&self) -> Option<Submission> {
        let Body::Listed(listed) = &*self.plan.body else { return None };
        let mut piece = Piece::default();
        let (rows, names) = match &self.plan.selection {
            None => {
                let (chunk, first) = listed.find(self.next)?;
                let count = (chunk.len() - first).min(self.tasks_max);
                for offset in first..first + count {
                    piece.add_class(chunk.class(offset) as u32);
                }
                let part = |all: &Packed| all.slice(first, count);
                (part(&chunk.rows), chunk.names.as_ref().map(part))
            }
            Some(selection) => {
                while piece.has_room() && piece.count() < self.tasks_max {
                    let Some((index, _)) = selection.run_at(self.next + piece.count()) else {
                        break;
                    };
                    let (chunk, offset) = listed.find(index)?;
                    piece.add(chunk, offset)?;
                }
                let named = !piece.names.is_empty();
                (piece.rows.take(), named.then(|| piece.names.take()))
            }
        };
        let count = rows.len();
        let classes: Vec<TaskClass> = piece
            .classes
            .iter()
            .filter_map(|class| listed.classes.get(*class as usize).cloned())
            .collect();
        Some(Submission {
            data: self.data(count),
            count,
            template: self.plan.template.clone(),
            rows: Rows::Packed(rows),
            classes,
            class_runs: piece.class_runs,
            names,
            after: self.after(count),
            everywhere: None,
        })
    }

    /// The data objects of the next `count` tasks. Those of an array that all
    /// read the same are told by the first.
    fn data(&self, count: u64) -> Option<Arc<Declared>> {
        let objects = self.plan.objects.as_ref()?;
        let alike = count > SUBMISSION_TASKS_MAX;
        let mut builder = ObjectsBuilder::default();
        for offset in 0..if alike { 1 } else { count } {
            let command = self.plan.command(self.next + offset)?;
            builder.push(&command, &objects.current_dir, |source| objects.known(source));
        }
        builder.finish().map(Arc::new)
    }

    /// The dependencies of the next `count` tasks.
    fn after(&self, count: u64) -> Vec<After> {
        if self.plan.dependencies.is_empty() {
            return Vec::new();
        }
        let waiting = (0..count).filter_map(|offset| {
            let tasks: Vec<TaskId> =
                self.plan.after(self.next + offset).into_iter().map(TaskId).collect();
            (!tasks.is_empty()).then_some(After { offset, tasks, takes: 0 })
        });
        waiting.collect()
    }
}

/// Strings being put together.
#[derive(Debug, Default)]
struct Strings {
    blob: Vec<u8>,
    ends: Vec<u32>,
}

impl Strings {
    fn push(&mut self, bytes: &[u8]) -> Option<()> {
        let end = u32::try_from(self.blob.len() + bytes.len()).ok()?;
        self.blob.extend_from_slice(bytes);
        self.ends.push(end);
        Some(())
    }

    fn is_empty(&self) -> bool {
        self.blob.is_empty()
    }

    fn take(&mut self) -> Packed {
        let Strings { mut blob, mut ends } = std::mem::take(self);
        blob.shrink_to_fit();
        ends.shrink_to_fit();
        Packed { blob: Arc::new(blob), ends: Arc::new(ends) }
    }
}

/// A submission of selected tasks being put together.
#[derive(Debug, Default)]
struct Piece {
    rows: Strings,
    names: Strings,
    /// Classes of the list, as they occur.
    classes: Vec<u32>,
    places: HashMap<u32, u32>,
    class_runs: Vec<(u64, u32)>,
}

impl Piece {
    fn count(&self) -> u64 {
        self.rows.ends.len() as u64
    }

    fn has_room(&self) -> bool {
        let bytes = self.rows.blob.len() + self.names.blob.len();
        self.count() < SUBMISSION_TASKS_MAX && bytes < SUBMISSION_ROWS_BYTES
    }

    fn add(&mut self, chunk: &Chunk, offset: u64) -> Option<()> {
        self.rows.push(chunk.rows.at(offset)?)?;
        self.names.push(chunk.name(offset).unwrap_or_default())?;
        self.add_class(chunk.class(offset) as u32);
        Some(())
    }

    fn add_class(&mut self, class: u32) {
        let next = self.classes.len() as u32;
        let place = *self.places.entry(class).or_insert(next);
        if place == next {
            self.classes.push(class);
        }
        match self.class_runs.last_mut() {
            Some((count, of)) if *of == place => *count += 1,
            _ => self.class_runs.push((1, place)),
        }
    }
}
