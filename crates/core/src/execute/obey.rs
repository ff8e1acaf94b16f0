//! What an executor does when the dispatcher speaks.

use super::bundle::Pace;
use super::{Action, Executor, Killed, Prepared, Queued, TaskKey, TemplateId};
use crate::dispatch::{Assigned, Held, Order};
use crate::limits::KILL_GRACE_MICROS;
use crate::result::{Detail, Outcome, Report, Tries};
use crate::runset::RunSet;
use crate::task::{InstanceId, TaskId};
use std::collections::BTreeMap;
use std::sync::Arc;

impl Executor {
    /// Does what the dispatcher says.
    pub(super) fn obey(&mut self, order: Order) {
        if !self.connected {
            return;
        }
        for report in self.outbox.acknowledged(order.acknowledged) {
            self.kept.acknowledged(&report);
        }
        for prepare in order.prepare {
            let template = TemplateId(self.next_template);
            self.next_template += 1;
            if let Some(before) = self.batches.insert(prepare.batch, template) {
                self.forget_template(before);
            }
            let classes = prepare.classes.into_iter().map(Arc::new).collect();
            self.templates.insert(
                template,
                Prepared {
                    id: template,
                    classes,
                    uses: 0,
                    forgotten: false,
                    pace: Pace::default(),
                },
            );
            self.actions.push_back(Action::Prepare { template, bytes: prepare.template });
        }
        if let Some(data) = order.data {
            self.obey_data(*data);
        }
        for assigned in order.assign {
            self.enqueue(assigned);
        }
        self.drop_queued(&order.cancel, Some(Outcome::Cancelled));
        for held in &order.cancel {
            self.kill_running(held, Killed::Cancelled, KILL_GRACE_MICROS);
        }
        self.drop_queued(&order.disown, None);
        for held in &order.disown {
            self.kill_running(held, Killed::Disowned, 0);
        }
        for batch in order.forget {
            if let Some(template) = self.batches.remove(&batch) {
                self.forget_template(template);
            }
        }
        if !order.discard.is_empty() {
            self.kept.discard(&order.discard);
            self.actions.push_back(Action::Discard(order.discard));
        }
        if order.leave {
            self.leave();
        }
        if order.recall > 0 {
            // What came with the recall and can start is not given back: it
            // would come again.
            if !self.leaving {
                self.start_tasks();
            }
            let rest = self.give_back(order.recall);
            self.ask_for_dispatcher(rest);
            if self.asked_for == 0 {
                self.outbox.recalled();
            }
        }
        self.startable = true;
    }

    fn enqueue(&mut self, assigned: Assigned) {
        if assigned.count == 0 || assigned.first.0.checked_add(assigned.count).is_none() {
            return;
        }
        let prepared =
            self.batches.get(&assigned.batch).and_then(|template| self.templates.get_mut(template));
        let class = prepared
            .as_ref()
            .and_then(|prepared| prepared.classes.get(assigned.class as usize).cloned());
        let data = self.data_of_tasks(assigned.data, assigned.count);
        let prepared =
            self.batches.get(&assigned.batch).and_then(|template| self.templates.get_mut(template));
        let error = match &class {
            None => "the executor was never sent this task's template",
            Some(class) if !class.resources.is_sound() || !self.capacity.fits(&class.resources) => {
                "the task needs more than this executor offers"
            }
            Some(_) => data.as_ref().err().copied().unwrap_or(""),
        };
        let (Some(prepared), Some(class), "") = (prepared, class, error) else {
            // A dispatcher that breaks the protocol gets its tasks back failed
            // rather than silence.
            self.outbox.push(Report {
                instance: assigned.instance,
                first: assigned.first,
                count: assigned.count,
                tries: assigned.tries,
                outcome: Outcome::NotRun,
                started: self.now,
                ended: self.now,
                detail: Some(Arc::new(Detail { error: error.to_owned(), ..Detail::default() })),
            });
            return;
        };
        let queued = Queued {
            instance: assigned.instance,
            first: assigned.first.0,
            count: assigned.count,
            tries: assigned.tries,
            template: prepared.id,
            class,
            rows: Arc::new(assigned.rows),
            row: 0,
            data: None,
            passed_since: None,
        };
        let Ok(Some(tasks)) = data else {
            prepared.uses += 1;
            self.queue.push_back(queued);
            return;
        };
        prepared.uses += assigned.count;
        for (at, task) in (0..).zip(tasks) {
            let (first, row) = (queued.first + at, queued.row + at);
            let one = Queued { first, count: 1, row, data: Some(task.clone()), ..queued.clone() };
            self.stage_inputs(one.key(), &task);
            self.queue.push_back(one);
        }
    }

    /// Gives back up to `count` queued tasks, the last first. Returns how many
    /// are missing to as many.
    pub(super) fn give_back(&mut self, mut count: u64) -> u64 {
        while count > 0 {
            let Some(last) = self.queue.back_mut() else { break };
            let taken = count.min(last.count);
            last.count -= taken;
            count -= taken;
            let held = Held {
                instance: last.instance,
                first: TaskId(last.first + last.count),
                count: taken,
                tries: last.tries,
            };
            if last.count == 0
                && let Some(mut last) = self.queue.pop_back()
            {
                self.release_template(last.template);
                last.count = taken;
                self.unstage(&last);
            }
            self.outbox.give_back(held);
        }
        count
    }

    /// Takes queued tasks of `held` out; reports them with `outcome`, if any.
    pub(super) fn drop_queued(&mut self, held: &[Held], outcome: Option<Outcome>) {
        let mut dropped: BTreeMap<(InstanceId, Tries), RunSet> = BTreeMap::new();
        for held in held {
            let set = dropped.entry((held.instance, held.tries)).or_default();
            set.insert(held.first.0, held.count);
        }
        if dropped.is_empty() {
            return;
        }
        for run in std::mem::take(&mut self.queue) {
            let Some(set) = dropped.get(&(run.instance, run.tries)) else {
                self.queue.push_back(run);
                continue;
            };
            let kept = set.gaps(run.first, run.count);
            if let Some(prepared) = self.templates.get_mut(&run.template) {
                prepared.uses += kept.len() as u64;
            }
            self.release_template(run.template);
            if kept.is_empty() {
                self.unstage(&run);
            }
            for (first, count) in kept {
                let row = run.row + (first - run.first);
                self.queue.push_back(Queued { first, count, row, ..run.clone() });
            }
            let Some(outcome) = outcome else { continue };
            for (first, count) in set.within(run.first, run.count) {
                self.outbox.push(Report {
                    instance: run.instance,
                    first: TaskId(first),
                    count,
                    tries: run.tries,
                    outcome,
                    started: self.now,
                    ended: self.now,
                    detail: None,
                });
            }
        }
    }

    /// Nobody hears of what a task wrote.
    pub(super) fn discard(&mut self, detail: Option<&Detail>) {
        let kept = detail.into_iter().flat_map(Detail::overflows).flatten();
        let runs: Vec<(u64, u64)> = kept.map(|overflow| (overflow.number, 1)).collect();
        if !runs.is_empty() {
            self.actions.push_back(Action::Discard(runs));
        }
    }

    fn kill_running(&mut self, held: &Held, why: Killed, grace_micros: u64) {
        let from = TaskKey { instance: held.instance, task: held.first };
        let until = TaskKey {
            instance: held.instance,
            task: TaskId(held.first.0.saturating_add(held.count)),
        };
        let keys: Vec<TaskKey> = self
            .running
            .range(from..until)
            .filter(|(_, run)| run.tries == held.tries)
            .map(|(key, _)| *key)
            .collect();
        for key in keys {
            self.kill(key, why, grace_micros);
        }
    }

    pub(super) fn forget_template(&mut self, template: TemplateId) {
        if let Some(prepared) = self.templates.get_mut(&template) {
            prepared.forgotten = true;
            if prepared.uses == 0 {
                self.templates.remove(&template);
                self.actions.push_back(Action::Forget(template));
            }
        }
    }

    pub(super) fn release_template(&mut self, template: TemplateId) {
        if let Some(prepared) = self.templates.get_mut(&template) {
            prepared.uses -= 1;
            if prepared.uses == 0 && prepared.forgotten {
                self.templates.remove(&template);
                self.actions.push_back(Action::Forget(template));
            }
        }
    }
}
