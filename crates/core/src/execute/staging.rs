//! Tasks that read and write data objects: their inputs are staged while they
//! wait for a slot, their outputs are kept before they are reported.
//!
//! A task that reads objects is handed to the stage as it is queued, and can
//! be started once all of them are there; it holds no slot while they come. A
//! task that has written objects is reported when they are held here, or are
//! known not to be.

mod check;
mod visit;

use super::end::End;
use super::{Action, Executor, Queued, Start};
use crate::collect::Member;
use crate::data::cache::Recorded;
use crate::data::declared::{AssignedData, CacheRoom, DataOrder, Lend, Located, Serving};
use crate::data::limits::CHANGES_OBJECTS_MAX;
use crate::data::object::{Object, ObjectId};
use crate::data::stage::{
    self, Changes, Input, Requester, Stage, StageError, StageOptions, Staged, Usage,
};
use crate::dispatch::Held;
use crate::limits::{DATA_TASKS_MAX, INPUT_LOSSES_MAX, UNOBTAINABLE_OBJECTS_MAX};
use crate::result::{Detail, Outcome, Report};
use crate::task::{Kind, TaskClass, TaskKey, Time};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use visit::Visits;

pub use visit::{Visit, VisitEnd};

/// What a queued task reads and writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TaskData {
    inputs: Vec<Input>,
    outputs: Vec<Arc<Object>>,
    /// The outputs that become members of archives and stay in the cache too.
    stay: Vec<ObjectId>,
}

impl TaskData {
    /// Whether any of its outputs goes to a persistent store.
    pub(super) fn writes_to_store(&self) -> bool {
        self.outputs.iter().any(|output| output.is_stored())
    }
}

/// The data of a task that is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartData {
    /// Its inputs, in the order in which its command names them: they stay
    /// where they are until [`Action::Clear`].
    pub inputs: Vec<Staged>,
    /// What it is to write, likewise.
    pub outputs: Vec<Arc<Object>>,
}

/// Where a task's inputs are.
#[derive(Debug)]
enum Progress {
    /// On their way.
    Coming {
        /// The stage knows that a slot waits.
        needed: bool,
    },
    /// There.
    Ready(Vec<Staged>),
    /// There, and the task has been started.
    Started(Arc<StartData>),
}

#[derive(Debug)]
struct Staging {
    since: Time,
    /// For how long it waited for its inputs.
    micros: u64,
    usage: Usage,
    progress: Progress,
    /// How often it was to start and its inputs were gone.
    lost: u32,
}

/// A task that has ended and whose outputs are not in their places yet.
#[derive(Debug)]
struct Finishing {
    report: Report,
    /// Outputs about which nothing has been heard.
    open: usize,
    /// Those that exist nowhere if they are not held here.
    only_here: Vec<ObjectId>,
    /// Those that are staged for archives.
    members: Vec<Member>,
}

/// The data of an executor's tasks.
#[derive(Debug)]
pub(super) struct Data {
    stage: Stage,
    serves: Option<Serving>,
    tasks: BTreeMap<TaskKey, Staging>,
    finishing: BTreeMap<TaskKey, Finishing>,
    /// Sizes of what tasks that still run have written.
    written: BTreeMap<TaskKey, Vec<u64>>,
    next_prefetch: u64,
    /// What is fetched ahead of tasks, by the number of the prefetch.
    prefetches: BTreeMap<u64, ObjectId>,
    /// What was to be fetched ahead, and is not on its way any more.
    prefetched: Vec<ObjectId>,
    /// What tasks were to read, and nobody gave.
    unobtainable: BTreeSet<ObjectId>,
    /// The last of it that was told: the dispatcher may not have heard it.
    told_unobtainable: VecDeque<ObjectId>,
    /// The dispatcher has said that nothing is needed that is only here.
    may_leave: bool,
    /// Queued tasks of which an earlier attempt is not through: they are
    /// staged when it is.
    held_back: BTreeSet<TaskKey>,
    visits: Visits,
}

impl Executor {
    /// This executor with a cache: what was in it before a restart is
    /// `recorded`. `serves` is where others can fetch what it holds.
    #[must_use]
    pub fn with_cache(
        mut self,
        options: &StageOptions,
        recorded: &[Recorded],
        serves: Option<Serving>,
    ) -> Executor {
        self.data = Some(Box::new(Data {
            stage: Stage::restore(options, recorded),
            serves,
            tasks: BTreeMap::new(),
            finishing: BTreeMap::new(),
            written: BTreeMap::new(),
            next_prefetch: 0,
            prefetches: BTreeMap::new(),
            prefetched: Vec::new(),
            unobtainable: BTreeSet::new(),
            told_unobtainable: VecDeque::new(),
            may_leave: false,
            held_back: BTreeSet::new(),
            visits: Visits::default(),
        }));
        self
    }

    /// The staging of data, if there is a cache.
    #[must_use]
    pub fn stage(&self) -> Option<&Stage> {
        self.data.as_ref().map(|data| &data.stage)
    }

    pub(super) fn serves(&self) -> Option<Serving> {
        self.data.as_ref().and_then(|data| data.serves.clone())
    }

    /// What the cache takes, for the dispatcher.
    pub(super) fn cache_room(&self) -> CacheRoom {
        let Some(data) = &self.data else { return CacheRoom::default() };
        CacheRoom { mounts: data.stage.mounts(), ..data.stage.cache().room() }
    }

    pub(super) fn handle_stage(&mut self, event: stage::Event) {
        let now = self.now;
        if let Some(data) = &mut self.data {
            data.stage.handle(now, event);
        }
    }

    pub(super) fn stage_timeout(&self) -> Option<(Time, &'static str)> {
        self.data.as_ref().and_then(|data| data.stage.poll_timeout())
    }

    pub(super) fn handle_stage_timeout(&mut self) {
        let now = self.now;
        if let Some(data) = &mut self.data
            && data.stage.poll_timeout().is_some_and(|(at, _)| at <= now)
        {
            data.stage.handle_timeout(now);
        }
    }

    /// Takes what the stage wants done: what concerns tasks is done here, the
    /// rest is for the shell.
    pub(super) fn drain_stage(&mut self) {
        while let Some(action) = self.data.as_mut().and_then(|data| data.stage.poll_action()) {
            match action {
                stage::Action::Ready { requester, inputs, usage } => match requester {
                    Requester::Task(task) => self.inputs_ready(task, inputs, usage),
                    Requester::Prefetch(number) => self.prefetched(number),
                    Requester::Visit(_) => unreachable!("a visit has no inputs"),
                },
                stage::Action::Unready(requester) => {
                    if let Requester::Task(task) = requester {
                        self.inputs_lost(task);
                    }
                }
                stage::Action::Failed { requester, error } => match requester {
                    Requester::Task(task) => self.inputs_failed(task, &error),
                    Requester::Prefetch(number) => self.prefetch_failed(number),
                    Requester::Visit(_) => unreachable!("a visit has no inputs"),
                },
                stage::Action::Kept { requester, .. } => match requester {
                    Requester::Task(task) => self.finish_output(task, None),
                    Requester::Visit(visit) => self.finish_put(visit, None),
                    Requester::Prefetch(_) => unreachable!("a prefetch has no outputs"),
                },
                stage::Action::NotKept { requester, object, error } => match requester {
                    Requester::Task(task) => {
                        self.finish_output(task, Some((object, error.to_string())));
                    }
                    Requester::Visit(visit) => self.finish_put(visit, Some(&error)),
                    Requester::Prefetch(_) => unreachable!("a prefetch has no outputs"),
                },
                action => self.actions.push_back(Action::Stage(action)),
            }
        }
    }

    /// A session begins: reports whose acknowledgement was lost come again, and
    /// what belongs to them with them.
    pub(super) fn tell_data_anew(&mut self) {
        self.handle_stage(stage::Event::Connected);
        if let Some(data) = &mut self.data {
            data.unobtainable.extend(std::mem::take(&mut data.told_unobtainable));
        }
    }

    /// What has changed in the cache and was not told.
    pub(super) fn cache_changes(&mut self) -> Option<Box<Changes>> {
        let data = self.data.as_mut()?;
        let mut changes = data.stage.changes().unwrap_or_default();
        // What is here is told as such. What is not has not come, or is gone
        // before anybody was told.
        for object in std::mem::take(&mut data.prefetched) {
            if !data.stage.cache().holds(object) && !changes.removed.contains(&object) {
                changes.removed.push(object);
            }
        }
        changes.unobtainable.extend(std::mem::take(&mut data.unobtainable));
        data.told_unobtainable.extend(&changes.unobtainable);
        let old = data.told_unobtainable.len().saturating_sub(UNOBTAINABLE_OBJECTS_MAX);
        data.told_unobtainable.drain(..old);
        data.visits.complete(&mut changes);
        let says_more = changes != Changes::default();
        changes.state = data.visits.state(self.now, data.stage.state(), says_more);
        if changes.state.is_some() {
            changes.moved = data.stage.take_moved();
        }
        (changes != Changes::default()).then(|| Box::new(changes))
    }

    /// What the order says of data besides that of tasks.
    pub(super) fn take_data_order(&mut self, order: DataOrder) {
        if !order.peers.is_empty() {
            self.actions.push_back(Action::Peers(order.peers));
        }
        if let Some(collects) = order.collects {
            self.collects(collects);
        }
        let now = self.now;
        let Some(data) = &mut self.data else { return };
        if !order.demand.is_empty() {
            data.stage.handle(now, stage::Event::Demand(order.demand));
        }
        if !order.gone.is_empty() {
            data.stage.handle(now, stage::Event::Gone(order.gone));
        }
        for Lend { located, stripes, of } in order.lend {
            let (object, sources) = (Arc::new(located.object), located.sources);
            data.stage.handle(now, stage::Event::Lend { object, sources, stripes, of });
        }
        if !order.take_back.is_empty() {
            data.stage.handle(now, stage::Event::TakeBack(order.take_back));
        }
        for (object, lenders) in order.striped {
            data.stage.handle(now, stage::Event::Striped { object, lenders });
        }
        for (object, parents) in order.parents {
            data.stage.handle(now, stage::Event::Parents { object, parents });
        }
        if !order.drop.is_empty() {
            data.stage.handle(now, stage::Event::Drop(order.drop));
        }
        if !order.hold.is_empty() {
            data.stage.handle(now, stage::Event::Hold(order.hold));
        }
        if !order.release.is_empty() {
            data.stage.handle(now, stage::Event::Release(order.release));
        }
        data.may_leave |= order.may_leave;
        for Located { object, sources } in order.fetch {
            let requester = Requester::Prefetch(data.next_prefetch);
            data.prefetches.insert(data.next_prefetch, object.id);
            data.next_prefetch += 1;
            let (object, is_unpacked) = (Arc::new(object), false);
            // It is to be here for those that come later.
            let inputs = vec![Input { object, sources, is_unpacked, may_mount: false }];
            data.stage.handle(now, stage::Event::Want { requester, inputs });
        }
    }

    /// The data of the tasks of an assignment, one by one; `None` if they
    /// have none. As many of the inputs of each as its class unpacks, from the first on,
    /// are archives that it finds unpacked. Builtins open nothing, and have their inputs
    /// brought into the cache. An error is what the tasks fail with.
    pub(super) fn data_of_tasks(
        &self,
        assigned: Option<Box<AssignedData>>,
        count: u64,
        class: Option<&TaskClass>,
    ) -> Result<Option<Vec<Arc<TaskData>>>, &'static str> {
        let Some(assigned) = assigned else { return Ok(None) };
        if self.data.is_none() {
            return Err("the task has data objects, and this executor has no cache for them");
        }
        if count > DATA_TASKS_MAX {
            return Err("more tasks with data objects than an executor takes at once");
        }
        let objects = assigned.objects.len();
        let sound =
            assigned.inputs.is_sound(count, objects) && assigned.outputs.is_sound(count, objects);
        if !sound {
            return Err("the task's data objects were not sent with it");
        }
        let shared: Vec<(Arc<Object>, _)> = assigned
            .objects
            .into_iter()
            .map(|located| (Arc::new(located.object), located.sources))
            .collect();
        let unpacks = class.map_or(0, |class| class.unpacks);
        let may_mount =
            class.is_some_and(|class| matches!(class.kind, Kind::Process | Kind::Function));
        let input = |(place, item): (u32, &u32)| {
            let (object, sources) = &shared[*item as usize];
            let is_unpacked = place < unpacks;
            Input { object: object.clone(), sources: sources.clone(), is_unpacked, may_mount }
        };
        let output = |item: &u32| shared[*item as usize].0.clone();
        let read: BTreeSet<u32> = assigned.read.into_iter().collect();
        let id = |item: &u32| shared[*item as usize].0.id;
        let of_task = |at| {
            Arc::new(TaskData {
                inputs: (0u32..).zip(assigned.inputs.of(at)).map(input).collect(),
                outputs: assigned.outputs.of(at).iter().map(output).collect(),
                stay: assigned
                    .outputs
                    .of(at)
                    .iter()
                    .filter(|item| read.contains(item))
                    .map(id)
                    .collect(),
            })
        };
        Ok(Some((0..count).map(of_task).collect()))
    }

    /// A task with data has been queued.
    pub(super) fn stage_inputs(&mut self, key: TaskKey, task: &TaskData) {
        let now = self.now;
        let Some(data) = &mut self.data else { return };
        // An attempt that was disowned may still run, or have outputs to keep.
        if self.running.contains_key(&key) || data.finishing.contains_key(&key) {
            data.held_back.insert(key);
            return;
        }
        let has_inputs = !task.inputs.is_empty();
        let progress = match has_inputs {
            true => Progress::Coming { needed: false },
            false => Progress::Ready(Vec::new()),
        };
        let staging = Staging { since: now, micros: 0, usage: Usage::default(), progress, lost: 0 };
        data.tasks.insert(key, staging);
        if has_inputs {
            let (requester, inputs) = (Requester::Task(key), task.inputs.clone());
            data.stage.handle(now, stage::Event::Want { requester, inputs });
        }
    }

    /// A task leaves the queue unstarted.
    pub(super) fn unstage(&mut self, run: &Queued) {
        if run.data.is_none() {
            return;
        }
        let (key, now) = (run.key(), self.now);
        if let Some(data) = &mut self.data
            && !data.held_back.remove(&key)
        {
            data.tasks.remove(&key);
            data.stage.handle(now, stage::Event::Ended(Requester::Task(key)));
        }
    }

    /// A task could not begin because its inputs had been deleted here: they
    /// are staged anew, a few times.
    pub(super) fn unstarted(&mut self, start: Start) {
        let (key, now) = (start.key, self.now);
        let lost = self.data.as_ref().and_then(|data| data.tasks.get(&key)).map(|task| task.lost);
        let Some(running) = self.running.find(&key) else { return };
        let task = running.data.clone().filter(|_| running.killed.is_none());
        let lost = lost.unwrap_or_default() + 1;
        let Some(task) = task.filter(|_| lost <= INPUT_LOSSES_MAX) else {
            let error = "its inputs were deleted from the cache again and again".to_owned();
            let detail = Some(Arc::new(Detail { error, ..Detail::default() }));
            self.ended(End { key, outcome: Outcome::NoInput, started: now, ended: now, detail });
            return;
        };
        let Some(run) = self.vacate(key, Some(now)) else { return };
        self.queue.push_front(Queued {
            instance: key.instance,
            first: key.task.0,
            count: run.count,
            tries: run.tries,
            template: run.template,
            class: run.asked.unwrap_or(run.class),
            rows: start.rows,
            row: start.row,
            data: Some(task.clone()),
            passed_since: None,
            asked: None,
        });
        self.stage_inputs(key, &task);
        if let Some(staging) = self.data.as_mut().and_then(|data| data.tasks.get_mut(&key)) {
            staging.lost = lost;
        }
    }

    /// Whether a queued task's inputs are there.
    pub(super) fn is_ready(&self, key: TaskKey) -> bool {
        let staging = self.data.as_ref().and_then(|data| data.tasks.get(&key));
        staging.is_some_and(|staging| matches!(staging.progress, Progress::Ready(_)))
    }

    /// Whether a queued task's inputs are there. If not, and there is a slot
    /// for it, the stage hears of that once.
    pub(super) fn is_staged(&mut self, key: TaskKey, has_slot: bool) -> bool {
        let now = self.now;
        let Some(data) = &mut self.data else { return false };
        if data.held_back.contains(&key) {
            return false;
        }
        let Some(staging) = data.tasks.get_mut(&key) else { return false };
        if let Progress::Coming { needed } = &mut staging.progress {
            if has_slot && !std::mem::replace(needed, true) {
                data.stage.handle(now, stage::Event::Needed(Requester::Task(key)));
                self.drain_stage();
            }
            return false;
        }
        true
    }

    /// The data of a task that starts now.
    pub(super) fn start_data(&mut self, key: TaskKey, task: &TaskData) -> Option<Arc<StartData>> {
        let now = self.now;
        let data = self.data.as_mut()?;
        let staging = data.tasks.get_mut(&key)?;
        let inputs = match &mut staging.progress {
            Progress::Ready(inputs) => std::mem::take(inputs),
            Progress::Coming { .. } | Progress::Started(_) => Vec::new(),
        };
        let started = Arc::new(StartData { inputs, outputs: task.outputs.clone() });
        staging.progress = Progress::Started(started.clone());
        if !task.inputs.is_empty() {
            data.stage.handle(now, stage::Event::Started(Requester::Task(key)));
        }
        Some(started)
    }

    /// A task that was handed over to come after another has not begun, and is
    /// queued again: its inputs stay where they are, or are staged anew if one
    /// was lost meanwhile, and its sandbox may go.
    pub(super) fn unstart(&mut self, key: TaskKey, task: &TaskData) {
        self.actions.push_back(Action::Clear(key));
        let Some(data) = &mut self.data else { return };
        if !data.stage.has_all(Requester::Task(key)) {
            return self.stage_inputs(key, task);
        }
        if let Some(staging) = data.tasks.get_mut(&key)
            && let Progress::Started(started) = &staging.progress
        {
            staging.progress = Progress::Ready(started.inputs.clone());
        }
    }

    /// A task that still counts as running has written its outputs, of these
    /// sizes.
    pub(super) fn wrote(&mut self, key: TaskKey, sizes: Vec<u64>) {
        if let Some(data) = &mut self.data
            && self.running.contains_key(&key)
        {
            data.written.insert(key, sizes);
        }
    }

    /// A task with data has ended: `report` is made when its outputs are in
    /// their places; `None` if nobody wants one.
    pub(super) fn finish(&mut self, key: TaskKey, task: &TaskData, report: Option<Report>) {
        let now = self.now;
        let Some(data) = &mut self.data else { return };
        let staging = data.tasks.remove(&key);
        let sizes = data.written.remove(&key);
        let Some(mut report) = report else {
            self.clear(key);
            return;
        };
        if let Some(staging) = staging {
            let mut detail =
                report.detail.take().map_or_else(Detail::default, Arc::unwrap_or_clone);
            detail.usage = staging.usage;
            detail.staging_micros = staging.micros;
            report.detail = Some(Arc::new(detail));
        }
        let sizes = sizes.filter(|_| report.outcome == Outcome::Exit(0)).unwrap_or_default();
        let outputs: Vec<(Arc<Object>, u64)> = task.outputs.iter().cloned().zip(sizes).collect();
        if outputs.is_empty() {
            self.through(report, Vec::new());
            self.clear(key);
            return;
        }
        // What it has read may go: there may be no other room for what it wrote.
        data.stage.handle(now, stage::Event::Ended(Requester::Task(key)));
        let only_here = outputs
            .iter()
            .filter(|(object, _)| !object.is_stored() || object.member().is_some())
            .map(|(object, _)| object.id)
            .collect();
        data.finishing
            .insert(key, Finishing { report, open: outputs.len(), only_here, members: Vec::new() });
        for (object, size) in outputs {
            let only_here = !object.is_stored();
            let object = Arc::new(Object { size: Some(size), ..(*object).clone() });
            if object.member().is_some() {
                let stays = task.stay.contains(&object.id);
                self.stage_output(key, object, stays);
                continue;
            }
            let Some(data) = &mut self.data else { return };
            data.stage.handle(
                now,
                stage::Event::Keep { requester: Requester::Task(key), object, only_here },
            );
        }
    }

    /// The shell may forget what it made for a task; the next attempt at it may
    /// begin.
    fn clear(&mut self, key: TaskKey) {
        self.handle_stage(stage::Event::Ended(Requester::Task(key)));
        self.drain_stage();
        self.actions.push_back(Action::Clear(key));
        self.startable = true;
        if self.data.as_mut().is_some_and(|data| data.held_back.remove(&key)) {
            let next = self.queue.iter().filter(|run| run.key() == key);
            if let Some(task) = next.filter_map(|run| run.data.clone()).next() {
                self.stage_inputs(key, &task);
            }
        }
    }

    fn finish_output(&mut self, key: TaskKey, failure: Option<(ObjectId, String)>) {
        let Some(data) = &mut self.data else { return };
        let Some(finishing) = data.finishing.get_mut(&key) else { return };
        finishing.open -= 1;
        // It may be the only copy: the dispatcher has its say anew.
        data.may_leave = false;
        if let Some((object, error)) = failure
            && finishing.only_here.contains(&object)
        {
            finishing.report.outcome = Outcome::NoOutput;
            let detail = finishing.report.detail.take();
            let mut detail = detail.map_or_else(Detail::default, Arc::unwrap_or_clone);
            if !detail.error.is_empty() {
                detail.error.push_str("; ");
            }
            detail.error.push_str(&error);
            finishing.report.detail = Some(Arc::new(detail));
        }
        if finishing.open > 0 {
            return;
        }
        if let Some(Finishing { report, members, .. }) = data.finishing.remove(&key) {
            self.through(report, members);
            self.clear(key);
        }
    }

    /// An output of a task is staged for its archive, or cannot be. One that `stays` goes
    /// into the cache too, if there is room.
    pub(super) fn output_staged(
        &mut self,
        key: TaskKey,
        result: Result<Member, (ObjectId, String)>,
        stays: Option<Arc<Object>>,
    ) {
        let now = self.now;
        let Some(data) = &mut self.data else { return };
        let Some(finishing) = data.finishing.get_mut(&key) else { return };
        let member = match result {
            Ok(member) => member,
            Err(failure) => return self.finish_output(key, Some(failure)),
        };
        finishing.members.push(member);
        let Some(object) = stays else { return self.finish_output(key, None) };
        finishing.only_here.retain(|id| *id != object.id);
        let requester = Requester::Task(key);
        data.stage.handle(now, stage::Event::Keep { requester, object, only_here: false });
    }

    /// An object that was fetched ahead is here, and free to go again.
    fn prefetched(&mut self, number: u64) {
        self.prefetch_failed(number);
        self.handle_stage(stage::Event::Ended(Requester::Prefetch(number)));
    }

    fn prefetch_failed(&mut self, number: u64) {
        if let Some(data) = &mut self.data
            && let Some(object) = data.prefetches.remove(&number)
        {
            data.prefetched.push(object);
        }
    }

    fn inputs_ready(&mut self, key: TaskKey, inputs: Vec<Staged>, usage: Usage) {
        let now = self.now;
        let Some(data) = &mut self.data else { return };
        let Some(staging) = data.tasks.get_mut(&key) else { return };
        staging.micros = now.since(staging.since);
        staging.usage = usage;
        staging.progress = Progress::Ready(inputs);
        self.startable = true;
    }

    fn inputs_lost(&mut self, key: TaskKey) {
        let Some(data) = &mut self.data else { return };
        if let Some(staging) = data.tasks.get_mut(&key) {
            staging.progress = Progress::Coming { needed: false };
            self.startable = true;
        }
    }

    fn inputs_failed(&mut self, key: TaskKey, error: &StageError) {
        let Some(data) = &mut self.data else { return };
        if let Some(object) = error.unobtainable()
            && data.unobtainable.len() < CHANGES_OBJECTS_MAX
        {
            data.unobtainable.insert(object);
        }
        data.tasks.remove(&key);
        let found = self.queue.iter().position(|run| run.data.is_some() && run.key() == key);
        let Some(run) = found.and_then(|at| self.queue.remove(at)) else { return };
        self.release_template(run.template);
        self.updates.push(Report {
            instance: key.instance,
            first: key.task,
            count: 1,
            tries: run.tries,
            outcome: Outcome::NoInput,
            started: self.now,
            ended: self.now,
            detail: Some(Arc::new(Detail { error: error.to_string(), ..Detail::default() })),
        });
        self.startable = true;
    }

    /// Whether others may still be copying what is only here.
    pub(super) fn is_being_copied(&self) -> bool {
        self.data
            .as_ref()
            .is_some_and(|data| !data.may_leave && data.stage.cache().holds_only_copies())
    }

    /// Whether tasks have ended and are not reported yet.
    pub(super) fn has_finishing(&self) -> bool {
        self.finishing_count() > 0
    }

    /// How many of them there are.
    pub(super) fn finishing_count(&self) -> usize {
        self.data.as_ref().map_or(0, |data| data.finishing.len()) + self.streams.len()
    }

    /// Tasks that have ended and are not reported yet, as the dispatcher knows
    /// them.
    pub(super) fn finishing(&self) -> impl Iterator<Item = Held> + '_ {
        let with_data = self.data.iter().flat_map(|data| data.finishing.values());
        let with_data = with_data.map(|finishing| {
            let Report { instance, first, count, tries, .. } = finishing.report;
            Held { instance, first, count, tries }
        });
        with_data.chain(self.streams.held())
    }
}
