//! Orders of the dispatcher.

use super::{Action, Executor, Gone, Killed, Queued, TaskKey, TemplateId};
use crate::dispatch::{Assigned, Held, Order};
use crate::limits::KILL_GRACE_MICROS;
use crate::result::{Detail, Outcome, Report, Tries};
use crate::runset::RunSet;
use crate::task::{InstanceId, Kind, Resources, TaskClass, TaskId};
use std::collections::BTreeMap;
use std::sync::Arc;

impl Executor {
    /// Carries an order out.
    pub(super) fn take_order(&mut self, order: Order) {
        if !self.connected {
            return;
        }
        self.heartbeats.ordered(order.heartbeat_micros);
        for report in self.updates.acknowledged(order.acknowledged) {
            if report.detail.is_some() {
                self.overflows.acknowledged(&report);
            }
        }
        for prepare in order.prepare {
            let (template, gone) = self.templates.prepare(prepare.batch, prepared(prepare.classes));
            if let Some(gone) = gone {
                self.forget_template(gone);
            }
            self.actions.push_back(Action::Prepare { template, bytes: prepare.template });
        }
        if let Some(data) = order.data {
            self.take_data_order(*data);
        }
        self.take_gang_orders(order.gangs);
        for assigned in order.assign {
            self.enqueue(assigned);
        }
        self.drop_queued(&order.cancel, Some(Outcome::Cancelled));
        for held in &order.cancel {
            self.kill_running(held, Killed::Cancelled, KILL_GRACE_MICROS);
        }
        self.cancel_collected(&order.cancel);
        self.drop_queued(&order.disown, None);
        for held in &order.disown {
            self.kill_running(held, Killed::Disowned, 0);
        }
        for batch in order.forget {
            if let Some(gone) = self.templates.forget(batch) {
                self.forget_template(gone);
            }
        }
        if !order.discard.is_empty() {
            self.overflows.discard(&order.discard);
            self.actions.push_back(Action::Discard(order.discard));
        }
        if order.leave {
            self.leave();
        }
        if order.recall > 0 {
            // What came with the recall and can start is not given back: it
            // would come again.
            if !self.is_leaving() {
                self.start_tasks();
            }
            let rest = self.give_back(order.recall);
            self.ask_for_dispatcher(rest);
            if !self.chains.is_recalling() {
                self.updates.recalled();
            }
        }
        self.startable = true;
    }

    fn enqueue(&mut self, assigned: Assigned) {
        if assigned.count == 0 || assigned.first.0.checked_add(assigned.count).is_none() {
            return;
        }
        let template = self.templates.find(assigned.batch, assigned.class);
        let class = template.as_ref().map(|(_, class)| &***class);
        let data = self.data_of_tasks(assigned.data, assigned.count, class);
        let can_run = |need: &Resources| need.is_sound() && self.room.capacity().fits(need);
        let error = match template {
            None => "the executor was never sent this task's template",
            Some((_, class)) if !can_run(&class.resources.known()) => {
                "the task needs more than this executor offers"
            }
            Some((_, class)) if class.is_gang() && assigned.count > 1 => {
                "tasks that run on several executors each came together"
            }
            Some(_) => data.as_ref().err().copied().unwrap_or(""),
        };
        let (Some((template, class)), "") = (template, error) else {
            // A dispatcher that breaks the protocol gets its tasks back failed
            // rather than silence.
            self.updates.push(Report {
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
            template,
            class: class.clone(),
            rows: Arc::new(assigned.rows),
            row: 0,
            data: None,
            passed_since: None,
            asked: None,
        };
        let Ok(Some(tasks)) = data else {
            self.templates.add_uses(template, 1);
            self.queue_new(queued);
            return;
        };
        self.templates.add_uses(template, assigned.count);
        for (at, task) in (0..).zip(tasks) {
            let (first, row) = (queued.first + at, queued.row + at);
            let one = Queued { first, count: 1, row, data: Some(task.clone()), ..queued.clone() };
            self.stage_inputs(one.key(), &task);
            self.queue_new(one);
        }
    }

    /// Queues a task that has come. Other executors wait for one that runs on several.
    fn queue_new(&mut self, queued: Queued) {
        match queued.class.is_gang() {
            true => self.queue.push_front(queued),
            false => self.queue.push_back(queued),
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
            self.updates.give_back(held);
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
            self.templates.add_uses(run.template, kept.len() as u64);
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
                self.updates.push(Report {
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

    pub(super) fn forget_template(&mut self, Gone(template): Gone) {
        self.actions.push_back(Action::Forget(template));
    }

    pub(super) fn release_template(&mut self, template: TemplateId) {
        if let Some(gone) = self.templates.release(template) {
            self.forget_template(gone);
        }
    }
}

/// Classes as they were announced. Only processes get CPUs and memory by what others had.
fn prepared(mut classes: Vec<TaskClass>) -> Vec<TaskClass> {
    let others = classes.iter_mut().filter(|class| class.kind != Kind::Process);
    for class in others.filter(|class| class.resources.are_automatic()) {
        class.resources = class.resources.known();
    }
    classes
}
