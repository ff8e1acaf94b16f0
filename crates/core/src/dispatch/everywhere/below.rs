//! Tasks that run once on each executor below a relay.

use super::{Asked, OwnTask, Reason};
use crate::dispatch::data_tasks::{announce, unlocated_data};
use crate::dispatch::fleet::InFlight;
use crate::dispatch::instance::ReadyRun;
use crate::dispatch::needs::NeedId;
use crate::dispatch::share::counted_micros;
use crate::dispatch::{Assigned, Dispatcher};
use crate::limits::EXECUTOR_PATH_BYTES_MAX;
use crate::result::{Cause, Detail, Outcome, shortened};
use crate::task::{ExecutorId, InstanceId, TaskClass, TaskId};
use std::sync::Arc;

impl Dispatcher {
    /// The detail of a task that was one executor's alone, with the names of the executor and
    /// of the relays on the way to it: where that is below a relay, or a relay asks for it.
    pub(in crate::dispatch) fn named(
        &self,
        everywhere: &Asked,
        number: Option<ExecutorId>,
        detail: Option<Arc<Detail>>,
    ) -> Option<Arc<Detail>> {
        let is_there = number.filter(|id| self.fleet.contains(*id));
        let below = match is_there.is_some_and(|id| self.fleet[id].subtree.is_some()) {
            true => detail.as_ref().map_or("", |detail| detail.executor.as_str()),
            _ if everywhere.lent.is_none() => return detail,
            _ => "",
        };
        let name = number.and_then(|number| self.fleet.name(number)).map_or("", String::as_str);
        let path = match below {
            "" => name.to_owned(),
            below => format!("{name}/{below}"),
        };
        let mut detail = detail.unwrap_or_default();
        Arc::make_mut(&mut detail).executor = shortened(&path, EXECUTOR_PATH_BYTES_MAX);
        Some(detail)
    }

    /// Why the tasks of a relay end that came back from it without the others.
    fn scattered(
        &self,
        number: Option<ExecutorId>,
        _: InstanceId,
        _: u64,
        _: u32,
    ) -> Option<Reason> {
        let name = number.and_then(|number| self.fleet.name(number));
        let error = format!(
            "the relay{} gave it back, because it lost its notes or the executor below that it \
             was for",
            name.map(|name| format!(" {name}")).unwrap_or_default()
        );
        let cause = Some(Cause::ExecutorLeft);
        Some((Outcome::Lost, Detail { error, cause, ..Detail::default() }))
    }

    /// Sends a relay the tasks of one submission that an instance has for the nodes below
    /// it, or ends them if others have been sent before.
    pub(super) fn send_below(&mut self, to: ExecutorId, id: InstanceId) -> OwnTask {
        let incarnation = self.fleet[to].incarnation;
        let own = self.placement.everywhere().own(id, incarnation).next();
        let Some((task, past)) = own else { return OwnTask::None };
        let Some(batch) = self.instances[&id].batch_of(TaskId(task)) else { return OwnTask::None };
        let everywhere = batch.submission.everywhere.as_ref();
        let (offset, count) = everywhere.map_or((0, 0), |asked| asked.tasks_of(incarnation));
        let first = batch.first + offset;
        let ready = self.placement.everywhere().own(id, incarnation);
        let ready: Vec<_> = ready.filter(|(at, _)| (first..first + count).contains(at)).collect();
        let is_whole = ready.len() as u64 == count && ready.iter().all(|one| one.1 == past);
        if !is_whole {
            let ready = ready.into_iter().map(|(task, past)| ((id, task), past)).collect();
            self.end_those(ready, Some(to), Dispatcher::scattered);
            self.runnable.mark(id);
            return OwnTask::Sent;
        }
        let key = self.instances[&id].place_of(task, past.class);
        let Some((need, _, _)) = key else { return OwnTask::None };
        let run = ReadyRun { first, count, class: past.class, tries: past.tries };
        self.send_run_below(to, id, need, run);
        OwnTask::Sent
    }

    /// Moves the tasks of a submission for the nodes below a relay to its order.
    fn send_run_below(&mut self, to: ExecutorId, id: InstanceId, need_id: NeedId, run: ReadyRun) {
        let ReadyRun { first, count, class, tries } = run;
        let tasks = first..first + count;
        tasks.for_each(|task| self.placement.everywhere_mut().remove(id, task));
        let instance = &mut self.instances[&id];
        let mut executor = self.fleet.serving(to);
        announce(instance, TaskId(first), &mut executor);
        let Some(batch) = instance.batch_of(TaskId(first)) else { return };
        let (batch_id, submission) = (batch.id, &batch.submission);
        let rows = instance.rows_for(batch, 0, 1, u64::MAX);
        let data = submission.data.as_ref();
        let data = data.map(|data| Box::new(unlocated_data(data, 0, 1, |_| false)));
        let row_bytes =
            rows.bytes() + submission.data.as_ref().map_or(0, |data| data.task_bytes(0));
        let estimate = submission.classes.get(class as usize).and_then(TaskClass::given_estimate);
        let counted_micros = counted_micros(None, estimate);
        let in_flight = InFlight {
            first,
            count,
            batch: batch_id,
            class,
            need: need_id,
            alternative: 0,
            tries,
            later: 0,
            dispatched: self.now,
            counted_micros,
            row_bytes: row_bytes.div_ceil(count.max(1)),
            is_staged: false,
            is_gang: false,
            is_below: true,
        };
        executor.send(id, in_flight, &self.needs, 0);
        instance.tasks.take(first, count);
        instance.tasks.assign(first, count);
        let weight = self.needs[need_id].weight(count);
        let share = (&mut instance.share, instance.usage);
        self.runnable.serve(share, weight, counted_micros, self.now);
        self.attempts.note(id, first, count, tries, Some(to));
        let (batch, instance, first) = (batch_id, id, TaskId(first));
        let assigned = Assigned { batch, instance, first, count, class, tries, rows, data };
        self.fleet.serving(to).assign(assigned);
        self.runnable.mark(id);
    }
}
