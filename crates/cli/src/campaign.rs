//! Getting a plan's tasks to a dispatcher and their results back.

use crate::embedded::how_gpus_are_offered;
use crate::exit::{Exit, say, write_line};
use crate::objects::Resolver;
use crate::plan::Plan;
use crate::progress::Progress;
use crate::results::measured::{MeasureArgs, Measured};
use crate::results::rest::{Origin, Rest};
use crate::results::staged;
use crate::results::terminal::end_of_stream;
use crate::results::usage::UsageTable;
use crate::results::{Sink, SinkError, TaskResult, Times};
use falkon_core::data::stage::Usage;
use falkon_core::dispatch::{Delivery, InstanceOptions, RequestError};
use falkon_core::metrics::{Observed, TaskTimes};
use falkon_core::result::{Counts, Outcome, Status};
use falkon_core::runset::RunSet;
use falkon_core::task::{ExecutorId, InstanceId, MILLI, TaskId, Time};
use falkon_net::client::{Client, ClientError, Pending};
use falkon_wire::message::Refusal;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Submissions on their way at once.
const SUBMISSIONS_UNDER_WAY_MAX: usize = 64;
/// Pause before a dispatcher that takes nothing more for now is asked again;
/// each time in a row doubles it.
const BUSY_MS_MIN: u64 = 100;
/// The longest such pause.
const BUSY_MS_MAX: u64 = 5_000;
/// Submissions into which a user's quota of queued tasks is divided if a larger one is refused.
const SUBMISSIONS_OF_QUOTA: u64 = 4;
/// Failures that are described in the end.
const FAILURES_SHOWN_MAX: usize = 10;
/// Bytes and lines of the end of standard error shown per failure.
const STDERR_SHOWN_BYTES_MAX: u64 = 400;
const STDERR_SHOWN_LINES_MAX: usize = 4;

/// Waits for a dispatcher that takes nothing more for now, and says so once.
pub(crate) struct Waiting {
    pause: Duration,
    quiet: bool,
    /// Tasks that are submitted together at most.
    tasks_max: u64,
}

impl Waiting {
    pub(crate) fn new(quiet: bool) -> Waiting {
        Waiting { pause: Duration::from_millis(BUSY_MS_MIN), quiet, tasks_max: u64::MAX }
    }

    /// Waits before what was refused is asked for again.
    ///
    /// # Errors
    /// `error`, if asking again is no use.
    pub(crate) async fn wait(&mut self, error: ClientError) -> Result<(), ClientError> {
        let ClientError::Refused(Refusal::Request(reason)) = &error else { return Err(error) };
        match reason {
            RequestError::Busy { .. } => {}
            RequestError::OverTasks { wanted, tasks_max, .. } if wanted > tasks_max => {
                // Fewer at a time, and the next before the last of them has ended.
                self.tasks_max = (*tasks_max / SUBMISSIONS_OF_QUOTA).max(1);
                return Ok(());
            }
            RequestError::NoRoom { .. }
            | RequestError::OverTasks { .. }
            | RequestError::OverBytes { .. } => {
                if !std::mem::replace(&mut self.quiet, true) {
                    say(format_args!("waiting: {reason}"));
                }
            }
            _ => return Err(error),
        }
        tokio::time::sleep(self.pause).await;
        self.pause = (2 * self.pause).min(Duration::from_millis(BUSY_MS_MAX));
        Ok(())
    }

    /// Creates an instance as soon as the dispatcher has room for one.
    pub(crate) async fn create(
        &mut self,
        client: &Client,
        options: &InstanceOptions,
    ) -> Result<(InstanceId, Vec<u8>), ClientError> {
        loop {
            match client.create(options.clone()).await {
                Ok(created) => return Ok(created),
                Err(error) => self.wait(error).await?,
            }
        }
    }
}

/// Submits the tasks of `plan` from position `accepted` on, then seals the
/// instance. `accepted` tells how many have been accepted, also when this
/// fails: call it again with a new connection to go on. Tasks that the
/// dispatcher has lost, because its journal is shorter than it was, are
/// submitted again.
pub(crate) async fn submit(
    client: &Client,
    instance: InstanceId,
    plan: &Plan,
    accepted: &mut u64,
    waiting: &mut Waiting,
) -> Result<(), ClientError> {
    let mut went_back = false;
    loop {
        let before = *accepted;
        match submit_once(client, instance, plan, accepted, waiting.tasks_max).await {
            Err(ClientError::Refused(Refusal::Request(RequestError::Gap { expected, .. })))
                if expected.0 < *accepted && !went_back =>
            {
                // A connection sees one dispatcher, which loses nothing as long as it lives.
                went_back = true;
                *accepted = expected.0;
            }
            Err(error) => {
                if *accepted > before {
                    waiting.pause = Duration::from_millis(BUSY_MS_MIN);
                }
                waiting.wait(error).await?;
            }
            Ok(()) => return client.seal(instance).await,
        }
    }
}

async fn submit_once(
    client: &Client,
    instance: InstanceId,
    plan: &Plan,
    accepted: &mut u64,
    tasks_max: u64,
) -> Result<(), ClientError> {
    let mut under_way: VecDeque<(u64, Pending)> = VecDeque::new();
    // Pieces of another size do not end where those do that were accepted before.
    let mut first = if tasks_max == u64::MAX { 0 } else { *accepted };
    let mut resolver = Resolver::default();
    for mut submission in plan.submissions_from(first, tasks_max) {
        let end = first + submission.count;
        if end > *accepted {
            if let Some(data) = &mut submission.data {
                resolver.resolve(data).await;
            }
            if under_way.len() >= SUBMISSIONS_UNDER_WAY_MAX {
                await_acceptance(&mut under_way, accepted).await?;
            }
            let pending = client.submit(instance, TaskId(first), submission).await?;
            under_way.push_back((end, pending));
        }
        first = end;
    }
    while !under_way.is_empty() {
        await_acceptance(&mut under_way, accepted).await?;
    }
    Ok(())
}

async fn await_acceptance(
    under_way: &mut VecDeque<(u64, Pending)>,
    accepted: &mut u64,
) -> Result<(), ClientError> {
    if let Some((end, pending)) = under_way.pop_front() {
        pending.accepted().await?;
        *accepted = (*accepted).max(end);
    }
    Ok(())
}

/// A failure as it is described in the end.
#[derive(Debug)]
struct Failure {
    task: u64,
    index: u64,
    label: String,
    reason: String,
    stderr: String,
}

/// Takes results in: passes them to the sink, counts, remembers failures.
pub(crate) struct Receiver<'a> {
    /// Task results taken in so far: where to go on after a lost connection.
    pub(crate) position: u64,
    /// The dispatcher's latest counts.
    pub(crate) counts: Counts,
    /// Nothing will follow.
    pub(crate) complete: bool,
    plan: Option<&'a Plan>,
    /// Whether results carry what `--resume` needs.
    with_digests: bool,
    /// Whether results say what their tasks are.
    described: bool,
    /// Tasks have names that must be asked for.
    named: bool,
    /// Failures are told apart by their executors.
    by_executor: bool,
    /// The number of results at which the run counts as complete.
    stop_at: u64,
    names: BTreeMap<u64, String>,
    sink: Box<dyn Sink + 'a>,
    /// Where the rest of long output comes from.
    origin: Origin,
    /// Why results are not passed on any more.
    trouble: Option<SinkError>,
    progress: Progress,
    /// Tasks whose results were taken in.
    taken: RunSet,
    /// The tasks that failed, and the tasks that were cancelled.
    failed: RunSet,
    cancelled: RunSet,
    /// The tasks whose output should be here in full, and is not.
    lacking: RunSet,
    executors: BTreeMap<ExecutorId, Arc<str>>,
    failures: Vec<Failure>,
    ended: Counts,
    /// The measurements of the run.
    observed: Observed,
    measure: MeasureArgs,
    /// What the tasks of each program used, if that is to be shown.
    used: Option<UsageTable>,
    slots: Option<f64>,
}

impl<'a> Receiver<'a> {
    /// A receiver of results of `plan`'s tasks, if that is known.
    pub(crate) fn new(
        plan: Option<&'a Plan>,
        sink: Box<dyn Sink + 'a>,
        progress: Progress,
        with_digests: bool,
    ) -> Receiver<'a> {
        Receiver {
            position: 0,
            counts: Counts::default(),
            complete: false,
            plan,
            with_digests,
            described: false,
            named: false,
            by_executor: false,
            stop_at: u64::MAX,
            names: BTreeMap::new(),
            sink,
            origin: Origin::Nowhere,
            trouble: None,
            progress,
            taken: RunSet::default(),
            failed: RunSet::default(),
            cancelled: RunSet::default(),
            lacking: RunSet::default(),
            executors: BTreeMap::new(),
            failures: Vec::new(),
            ended: Counts::default(),
            observed: Observed::default(),
            measure: MeasureArgs::default(),
            used: None,
            slots: None,
        }
    }

    /// Has results say what their tasks are, where that is known.
    pub(crate) fn describe_tasks(&mut self) {
        self.described = true;
    }

    /// Sets the origin of the rest of long output.
    pub(crate) fn fetch_from(&mut self, origin: Origin) {
        self.origin = origin;
    }

    /// The dispatcher has lost results that were taken in, and tasks end again in
    /// another order: takes in all of its results from the first on, but for
    /// those of tasks whose results are here.
    pub(crate) fn take_anew(&mut self) {
        self.position = 0;
        self.complete = false;
    }

    /// Whether results of planned tasks have not been taken in.
    pub(crate) fn lacks_results(&self) -> bool {
        self.plan.is_some_and(|plan| self.taken.len() < plan.count())
    }

    /// Announces that tasks have names, which must be set before their results.
    pub(crate) fn set_named(&mut self, named: bool) {
        self.named = named;
    }

    /// Whether names must be set before the next delivery is taken in.
    pub(crate) fn wants_names(&self) -> bool {
        self.named && self.plan.is_none()
    }

    /// Counts as complete when the first `results` are in.
    pub(crate) fn stop_at(&mut self, results: u64) {
        self.stop_at = results;
        self.complete = self.position >= results;
    }

    /// Sets the users' names for tasks, where the plan is not known.
    pub(crate) fn name_tasks(&mut self, names: impl IntoIterator<Item = (u64, String)>) {
        self.names.extend(names);
    }

    /// Sets the measurements that are wanted of the run.
    pub(crate) fn measure(&mut self, args: &MeasureArgs) {
        self.measure = args.clone();
        self.used = args.usage.then(UsageTable::default);
        self.described |= args.usage;
    }

    /// Whether the number of slots is wanted.
    pub(crate) fn wants_slots(&self) -> bool {
        self.slots.is_none()
            && (*self.observed.usage() != Usage::default() || self.measure.is_asked())
    }

    /// Sets the number of slots.
    pub(crate) fn set_slots(&mut self, cpus_milli: u64) {
        self.slots = Some(cpus_milli as f64 / f64::from(MILLI));
    }

    fn measured(&self) -> Measured<'_> {
        Measured { observed: &self.observed, slots: self.slots }
    }

    /// Shows what tasks used, if that was asked for.
    pub(crate) fn show_usage(&self) {
        if let Some(used) = &self.used {
            used.show();
        }
    }

    /// Writes the file of metrics that was asked for, if one was.
    pub(crate) fn write_metrics(&self) -> Result<(), Exit> {
        self.measured().write(&self.measure)
    }

    /// Failures are told apart by the executors that the tasks ran on.
    pub(crate) fn label_by_executor(&mut self) {
        self.by_executor = true;
    }

    /// How the tasks ended whose results were taken in.
    pub(crate) fn ended(&self) -> &Counts {
        &self.ended
    }

    /// Whether all tasks succeeded whose results were taken in, and their output is here.
    pub(crate) fn has_all(&self) -> bool {
        self.ended.failed + self.ended.cancelled == 0 && self.lacking.is_empty()
    }

    /// Why results are not passed on any more, if so: from then on they are
    /// only counted.
    pub(crate) fn trouble(&self) -> Option<&SinkError> {
        self.trouble.as_ref()
    }

    /// Waits until all results that were taken in are safe.
    pub(crate) fn close(&mut self) -> Option<SinkError> {
        self.sink.close().err()
    }

    /// Takes the sink's error (see [`Receiver::trouble`]), for the last time.
    pub(crate) fn take_trouble(&mut self) -> Option<SinkError> {
        self.trouble.take()
    }

    /// Takes a delivery in. When this returns and there is no
    /// [`Receiver::trouble`], its results are passed on and can be acknowledged
    /// up to `self.position`.
    ///
    /// # Errors
    /// The connection over which it came is lost: what was not taken in comes
    /// again over the next.
    pub(crate) async fn take(
        &mut self,
        client: &Client,
        delivery: Delivery,
    ) -> Result<(), ClientError> {
        let instance = delivery.instance;
        let delivered = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let delivered = Time(delivered.as_micros() as u64);
        for (id, name) in delivery.executors {
            self.executors.entry(id).or_insert_with(|| name.into());
        }
        if delivery.from >= self.position {
            self.replace(&delivery.again);
        }
        for finished in &delivery.results {
            let executor = finished.executor.and_then(|id| self.executors.get(&id).cloned());
            // One below relays, with the way to it.
            let below = finished.detail.as_deref().map(|detail| detail.executor.as_str());
            let below = below.filter(|path| !path.is_empty()).map(Arc::from);
            let executor = below.or(executor);
            // After a lost connection a run may come again of which a part is
            // known.
            let unknown = self.taken.gaps(finished.first.0, finished.count);
            for position in unknown.into_iter().flat_map(|(first, count)| first..first + count) {
                let index = self.plan.map_or(position, |plan| plan.index_of(position));
                let mut result = TaskResult::of(finished, index, delivered);
                result.executor = executor.clone();
                result.subject = self.subject(finished.outcome, position);
                match self.plan {
                    Some(plan) => {
                        result.name = plan.name(position).map(str::to_owned);
                        result.what = self.described.then(|| plan.what(position).into());
                        if self.with_digests {
                            result.digest = plan.digest(position);
                            let is_done = result.status() == Status::Done;
                            result.files = is_done.then(|| plan.files(position)).flatten();
                        }
                    }
                    None => result.name = self.names.get(&position).cloned(),
                }
                if let Some(detail) = finished.detail.as_deref() {
                    let task = (instance, TaskId(position));
                    result.rests = self.origin.rests(client, task, detail).await?;
                }
                if result.rests.iter().any(Rest::is_lost) {
                    self.lacking.insert(position, 1);
                }
                self.take_one(&result, position);
                self.taken.insert(position, 1);
            }
        }
        self.position = self.position.max(delivery.upto);
        self.names.clear();
        if self.trouble.is_none() {
            self.trouble = self.sink.flush().err();
        }
        self.counts = delivery.counts;
        self.complete |= delivery.complete || self.position >= self.stop_at;
        self.progress.update(&self.counts);
        Ok(())
    }

    /// Tasks were retried: their results, if they were taken in, count no more.
    fn replace(&mut self, again: &[(u64, u64)]) {
        for &(first, count) in again {
            self.taken.remove(first, count);
            let failed = self.failed.remove(first, count);
            let cancelled = self.cancelled.remove(first, count);
            self.lacking.remove(first, count);
            self.ended.unend(Status::Failed, failed);
            self.ended.unend(Status::Cancelled, cancelled);
            self.failures.retain(|failure| !(first..first + count).contains(&failure.task));
        }
    }

    /// The task or the resources that an outcome refers to, in words.
    fn subject(&self, outcome: Outcome, position: u64) -> Option<String> {
        match (outcome, self.plan) {
            (Outcome::UpstreamFailed(task), Some(plan)) => {
                let name = plan.name(task.0).map(str::to_owned);
                Some(name.unwrap_or_else(|| plan.index_of(task.0).to_string()))
            }
            (Outcome::UpstreamFailed(task), None) => self.names.get(&task.0).cloned(),
            (Outcome::Unschedulable, Some(plan)) => {
                let need = &plan.class(position)?.resources;
                Some(format!("{need}, which no executor offers{}", how_gpus_are_offered(need)))
            }
            _ => None,
        }
    }

    fn take_one(&mut self, result: &TaskResult, position: u64) {
        let status = result.status();
        self.ended.end(status, 1);
        match status {
            Status::Done => 0,
            Status::Failed => self.failed.insert(position, 1),
            Status::Cancelled => self.cancelled.insert(position, 1),
        };
        if result.has_run() {
            let Times { queued, started, ended, delivered, .. } = result.times;
            let usage = result.detail.as_ref().map(|detail| detail.usage).unwrap_or_default();
            self.observed.add(&TaskTimes { queued, started, ended, delivered }, &usage);
            if let Some(used) = &mut self.used {
                used.add(result);
            }
        }
        if status == Status::Failed && self.failures.len() < FAILURES_SHOWN_MAX {
            let stderr = result.detail.as_deref().map(|detail| {
                end_of_stream(&detail.stderr, &result.rests[1], STDERR_SHOWN_BYTES_MAX)
            });
            let mut reason = result.error().unwrap_or_default();
            if result.attempts > 1 {
                reason.push_str(&format!(" ({} attempts)", result.attempts));
            }
            self.failures.push(Failure {
                task: position,
                index: result.index,
                label: match (self.plan, &result.executor) {
                    (Some(plan), _) => plan.label(position),
                    (None, Some(executor)) if self.by_executor => executor.to_string(),
                    (None, _) => result.id(),
                },
                reason,
                stderr: stderr.unwrap_or_default(),
            });
        }
        if self.trouble.is_none() {
            let sink = &mut self.sink;
            self.trouble = self.progress.suspend(|| sink.take(result)).err();
        }
    }

    /// Describes, on standard error, how it went: the first failures, and one
    /// line in all.
    pub(crate) fn report(&self, before: u64, seconds: f64) {
        self.progress.finish();
        let shown = self.failures.len() as u64;
        match self.ended.failed {
            0 => {}
            1 => say("1 task failed:"),
            failed if failed == shown => say(format_args!("{failed} tasks failed:")),
            failed => say(format_args!("{failed} tasks failed; the first {shown}:")),
        }
        for failure in &self.failures {
            let Failure { index, label, reason, stderr, .. } = failure;
            // Of a traceback, the last line says what went wrong.
            let (before, reason) = reason.rsplit_once('\n').unwrap_or(("", reason));
            write_line(format_args!("{index:>8}  {label}: {reason}"));
            let lines: Vec<&str> = before.lines().chain(stderr.lines()).collect();
            for line in &lines[lines.len().saturating_sub(STDERR_SHOWN_LINES_MAX)..] {
                write_line(format_args!("          | {line}"));
            }
        }
        if let Some(data) = staged::summary(self.observed.usage()) {
            say(data);
        }
        self.measured().show(&self.measure);
        match self.counts.recomputed {
            0 => {}
            1 => say(
                "data: 1 task ran again because objects that it had written to caches were lost",
            ),
            recomputed => say(format_args!(
                "data: tasks ran again {recomputed} times because objects that they \
                 had written to caches were lost"
            )),
        }
        let mut text = format!("{} done", self.ended.done);
        if before > 0 {
            text.push_str(&format!(" ({before} before)"));
        }
        if self.ended.failed > 0 {
            text.push_str(&format!(", {} failed", self.ended.failed));
        }
        if self.ended.cancelled > 0 {
            text.push_str(&format!(", {} cancelled", self.ended.cancelled));
        }
        match self.lacking.len() {
            0 => {}
            1 => text.push_str(", the output of 1 is incomplete"),
            lacking => text.push_str(&format!(", the output of {lacking} is incomplete")),
        }
        let planned = self.plan.map_or(0, Plan::count);
        if planned > self.ended.ended() {
            text.push_str(&format!(", {} unfinished", planned - self.ended.ended()));
        }
        let rate = self.ended.ended() as f64 / seconds.max(1e-9);
        say(format_args!("{text} in {seconds:.2} s ({rate:.0}/s)"));
    }

    /// Takes the progress line away without a word.
    pub(crate) fn hide(&self) {
        self.progress.finish();
    }
}
