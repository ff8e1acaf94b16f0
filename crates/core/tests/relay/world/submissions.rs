//! Submissions of the client of the dispatcher at the root.

use super::{CLIENT, World};
use falkon_core::data::declared::Declared;
use falkon_core::dispatch::{self, Selection};
use falkon_core::task::{After, Everywhere, Packed, Range, Rows, Submission, TaskClass, TaskId};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The end of the template of tasks of which some fail.
const FAILING: [u8; 4] = *b"fail";

/// Whether tasks of this template fail now and then.
pub(super) fn fails(template: &[u8]) -> bool {
    template.ends_with(&FAILING)
}

/// An array of tasks.
fn submission(count: u64, class: TaskClass) -> Submission {
    Submission {
        count,
        template: Arc::new(class.estimate_micros.to_le_bytes().to_vec()),
        rows: Rows::Computed { factors: vec![Range { start: 0, step: 1, count }], offset: 0 },
        classes: vec![class],
        class_runs: vec![(count, 0)],
        names: None,
        after: Vec::new(),
        data: None,
        everywhere: None,
    }
}

/// A number of rows, which are stored.
fn rows(count: u64) -> Rows {
    let mut rows = Packed::default();
    for row in 0..count {
        assert!(rows.push(&row.to_le_bytes()), "rows are short");
    }
    Rows::Packed(rows)
}

impl World {
    /// Submits tasks at the root that sleep for so long.
    pub(crate) fn submit(&mut self, count: u64, class: TaskClass) {
        self.submit_with(count, class, None);
    }

    /// Submits tasks at the root of which each has a row of its own.
    pub(crate) fn submit_distinct(&mut self, count: u64, class: TaskClass) {
        let submission = Submission { rows: rows(count), ..submission(count, class) };
        self.submit_tasks(submission);
    }

    /// Submits tasks at the root of which some fail, and are tried again if they may be.
    pub(crate) fn submit_failing(&mut self, count: u64, class: TaskClass) {
        let mut submission = submission(count, class);
        Arc::make_mut(&mut submission.template).extend_from_slice(&FAILING);
        self.submit_tasks(submission);
    }

    /// Submits tasks at the root that each come after some of those before them, and take
    /// the values of some.
    pub(crate) fn submit_after(&mut self, count: u64, class: TaskClass) {
        let mut after = Vec::new();
        for offset in 0..count {
            let before = self.submitted + offset;
            let chance = self.rng.below(3).min(before);
            let tasks: BTreeSet<u64> =
                (0..chance).map(|_| before - 1 - self.rng.below(before.min(20))).collect();
            let takes = self.rng.below(tasks.len() as u64 + 1);
            if !tasks.is_empty() {
                after.push(After { offset, tasks: tasks.into_iter().map(TaskId).collect(), takes });
            }
        }
        self.submit_tasks(Submission { rows: rows(count), after, ..submission(count, class) });
    }

    pub(super) fn submit_data_after(
        &mut self,
        count: u64,
        class: TaskClass,
        data: Arc<Declared>,
        after: Vec<After>,
    ) {
        let data = Some(data);
        self.submit_tasks(Submission {
            rows: rows(count),
            data,
            after,
            ..submission(count, class)
        });
    }

    pub(super) fn submit_with(
        &mut self,
        count: u64,
        class: TaskClass,
        data: Option<Arc<Declared>>,
    ) {
        self.submit_tasks(Submission { data, ..submission(count, class) });
    }

    fn note_shortest(&mut self, submission: &Submission) {
        let micros = submission.classes.iter().map(|class| class.estimate_micros);
        self.shortest_micros = micros.fold(self.shortest_micros, u64::min);
    }

    fn submit_tasks(&mut self, submission: Submission) {
        let (connection, request, client) = (CLIENT, 2, 1);
        let instance = self.instance.expect("it was created");
        let first = TaskId(self.submitted);
        self.submitted += submission.count;
        self.note_shortest(&submission);
        let event =
            dispatch::Event::Submit { connection, request, instance, first, client, submission };
        self.tell(0, event);
    }

    /// Submits a task at the root that runs on each executor. Returns how many tasks that are:
    /// they are the last that were submitted.
    pub(crate) fn submit_everywhere(&mut self, number: u64, class: TaskClass) -> u64 {
        let (connection, request) = (CLIENT, 5);
        let (instance, first) = (self.instance.expect("it was created"), TaskId(self.submitted));
        let submission = Submission {
            template: Arc::new(number.to_le_bytes().to_vec().repeat(2)),
            everywhere: Some(Everywhere::default()),
            ..submission(1, class)
        };
        self.note_shortest(&submission);
        self.accepted = 0;
        let event =
            dispatch::Event::Submit { connection, request, instance, first, client: 1, submission };
        self.tell(0, event);
        self.submitted += self.accepted;
        self.accepted
    }

    /// Cancels tasks at the root.
    pub(crate) fn cancel(&mut self, first: u64, count: u64) {
        let (connection, request) = (CLIENT, 3);
        let instance = self.instance.expect("it was created");
        let selection = Selection::Runs(vec![(first, count)]);
        self.tell(0, dispatch::Event::Cancel { connection, request, instance, selection });
    }

    /// Destroys the client's instance.
    pub(crate) fn destroy(&mut self) {
        let (connection, request) = (CLIENT, 5);
        let instance = self.instance.expect("it was created");
        self.tell(0, dispatch::Event::Destroy { connection, request, instance });
    }

    /// Withdraws tasks at the root.
    pub(crate) fn withdraw(&mut self, count: u64) -> Vec<(u64, u64)> {
        let (connection, request) = (CLIENT, 4);
        let instance = self.instance.expect("it was created");
        self.tell(0, dispatch::Event::Withdraw { connection, request, instance, count });
        std::mem::take(&mut self.withdrawn)
    }
}
