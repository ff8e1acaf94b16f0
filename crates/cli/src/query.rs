//! Looking after instances: wait, results, status, tasks, cancel, destroy,
//! stop.

mod actions;
mod cancel;
mod chosen;
mod control;
mod explain;
mod named;
mod restart;
mod retry;
mod show;
mod tail;
mod tasks;
pub(crate) mod tree;
mod which;

pub(crate) use actions::Action;
pub(crate) use cancel::{CancelArgs, cancel};
pub(crate) use chosen::Chosen;
pub(crate) use control::{
    DrainArgs, ExecutorsArgs, PauseArgs, PriorityArgs, drain, pause, priority, undrain,
};
pub(crate) use explain::{
    ExplainArgs, explain, explain_instance, explain_task, group_text as explained_text,
};
pub(crate) use restart::{RestartArgs, restart};
pub(crate) use retry::{RetryArgs, retry};
pub use show::print;
pub(crate) use show::{
    coming_json, counted, executor_json, instance_json, printable, resources_json, task_json,
};
pub(crate) use tail::{TailArgs, tail};
pub(crate) use tasks::{TasksArgs, tasks};
pub(crate) use which::task_range;

pub(crate) use named::named_instance;
use named::{TaskName, What, named_status, named_task};

use crate::access::{AccessArgs, connect, only_instance};
use crate::campaign::{self, Receiver};
use crate::embedded::how_gpus_are_offered;
use crate::exit::{Exit, runtime, say};
use crate::notify::NotifyArgs;
use crate::plan::Plan;
use crate::progress::{Progress, span};
use crate::results::line::{Json, TEXT_BYTES_MAX};
use crate::results::measured::MeasureArgs;
use crate::results::rest::{Fetching, Origin, WhenAway};
use crate::results::terminal::Terminal;
use crate::results::{Sink, SinkError, TaskResult};
use crate::run::{Ending, Interrupts, finish};
use clap::Args;
use falkon_core::dispatch::{Delivery, Selection};
use falkon_core::result::Outcome;
use falkon_core::task::{InstanceId, TaskId};
use falkon_net::client::{Client, ClientError, Deliveries};
use falkon_net::secure::AccessFile;
use falkon_wire::message::TASKS_ASKED_MAX;
use std::time::{Duration, Instant};

/// How long a dispatcher that was there may be away before it is given up.
const AWAY_S_MAX: u64 = 60;
/// First and longest pause before connecting again.
const RECONNECT_MS: (u64, u64) = (20, 1000);
/// Waiting without news after which the user learns what is missing.
pub(crate) const QUIET_S_MAX: u64 = 3;

/// Connects, and again after a connection was lost.
#[derive(Debug)]
pub(crate) struct Reconnect {
    /// Before the next attempt.
    pause_ms: u64,
    /// Whether to say that the dispatcher is away.
    tells: bool,
}

impl Reconnect {
    pub(crate) fn new(quiet: bool) -> Reconnect {
        Reconnect { pause_ms: 0, tells: !quiet }
    }

    /// Tries until the dispatcher is there, was away for [`AWAY_S_MAX`], or
    /// will not have us.
    pub(crate) async fn connect(
        &mut self,
        access: &AccessFile,
        instance: Option<InstanceId>,
    ) -> Result<(Client, Deliveries), ClientError> {
        let since = Instant::now();
        let mut told = !self.tells;
        loop {
            tokio::time::sleep(Duration::from_millis(self.pause_ms)).await;
            let error = match connect(access, instance).await {
                Ok(connected) => {
                    self.pause_ms = RECONNECT_MS.0;
                    return Ok(connected);
                }
                Err(error) => error,
            };
            if !error.is_transient() || since.elapsed() >= Duration::from_secs(AWAY_S_MAX) {
                return Err(error);
            }
            if !std::mem::replace(&mut told, true) {
                say(format_args!("{error}; trying again for {AWAY_S_MAX} s"));
            }
            self.pause_ms = (self.pause_ms * 2).clamp(RECONNECT_MS.0, RECONNECT_MS.1);
        }
    }
}

/// What the one who follows an instance has submitted to it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Submitted<'a> {
    /// Nothing, or nothing that it could submit again.
    Nothing,
    /// All tasks of the instance.
    Plan(&'a Plan),
    /// A task for executors that join, until it is interrupted.
    Joining,
    /// Tasks that are of use to nobody but the one who waits: an interrupt cancels them.
    Awaited,
}

/// Receives an instance's results until it is complete, over as many
/// connections as that takes. What a dispatcher has lost with its machine of
/// a plan that was submitted is submitted again.
pub(crate) async fn follow(
    access: &AccessFile,
    instance: InstanceId,
    receiver: &mut Receiver<'_>,
    submitted: Submitted<'_>,
    quiet: bool,
) -> Ending {
    let (mut ends_joining, mut cancels) = (false, false);
    let mut reconnect = Reconnect::new(quiet);
    let mut interrupts = Interrupts::new();
    loop {
        let session = async {
            let (client, mut deliveries) = reconnect.connect(access, Some(instance)).await?;
            // Also over the first connection: the dispatcher may have been started again
            // since it accepted the tasks.
            if let Submitted::Plan(plan) = submitted {
                mend(&client, instance, receiver, plan, quiet).await?;
            }
            if ends_joining {
                client.seal(instance).await?;
            }
            if cancels {
                client.cancel(instance, Selection::All).await?;
            }
            receive(&client, &mut deliveries, instance, receiver, quiet).await
        };
        let ended = tokio::select! {
            ended = session => ended,
            () = interrupts.next() => {
                if matches!(submitted, Submitted::Joining)
                    && !std::mem::replace(&mut ends_joining, true) {
                    say("executors that join from now on do not run it (interrupt again to stop \
                         waiting)");
                    continue;
                }
                if matches!(submitted, Submitted::Awaited) {
                    if std::mem::replace(&mut cancels, true) {
                        return Ending::Abandoned;
                    }
                    say("stopping (interrupt again to stop at once)");
                    continue;
                }
                say(format_args!(
                    "no longer waiting; the tasks continue: falkon wait {instance} waits again, \
                     falkon cancel {instance} cancels them"
                ));
                return Ending::Abandoned;
            }
        };
        match ended {
            Ok(ending) => return ending,
            Err(ClientError::Lost) => {}
            Err(error) => return Ending::Client(error),
        }
    }
}

/// Has a dispatcher that knows less than it did go on from there: its machine
/// may have failed before the end of the journal was on stable storage.
async fn mend(
    client: &Client,
    instance: InstanceId,
    receiver: &mut Receiver<'_>,
    plan: &Plan,
    quiet: bool,
) -> Result<(), ClientError> {
    let status = client.status(Some(instance)).await?;
    // If it is gone, the subscription is refused with the reason.
    let Some(found) = status.instances.first() else { return Ok(()) };
    if found.results < receiver.position {
        receiver.take_anew();
    }
    let mut accepted = found.counts.total;
    if found.sealed && accepted >= plan.count() {
        return Ok(());
    }
    let lost = plan.count().saturating_sub(accepted);
    if lost > 0 {
        let tasks = show::counted(lost, "task");
        say(format_args!("the dispatcher has lost accepted tasks: {tasks} submitted again"));
    }
    let mut waiting = campaign::Waiting::new(quiet);
    campaign::submit(client, instance, plan, &mut accepted, &mut waiting).await
}

/// Receives over one connection.
async fn receive(
    client: &Client,
    deliveries: &mut Deliveries,
    instance: InstanceId,
    receiver: &mut Receiver<'_>,
    quiet: bool,
) -> Result<Ending, ClientError> {
    client.subscribe(instance, receiver.position).await?;
    let mut told = quiet;
    let mut is_anew = false;
    loop {
        if receiver.complete {
            // Tasks that ended again in another order may have ended before the
            // position up to which results were taken in.
            if !receiver.lacks_results() || std::mem::replace(&mut is_anew, true) {
                break;
            }
            receiver.take_anew();
            client.subscribe(instance, receiver.position).await?;
        }
        let patience = Duration::from_secs(QUIET_S_MAX);
        let Ok(delivery) = tokio::time::timeout(patience, deliveries.recv()).await else {
            if !told {
                told = tell_what_is_missing(client, instance).await?;
            }
            continue;
        };
        let delivery = delivery?;
        if receiver.wants_names() {
            let names = names_of(client, instance, &delivery).await?;
            receiver.name_tasks(names);
        }
        receiver.take(client, delivery).await?;
        if let Some(error) = receiver.take_trouble() {
            return Ok(Ending::Sink(error));
        }
        client.acknowledge(instance, receiver.position).await?;
    }
    if receiver.wants_slots() {
        let executors = client.status(Some(instance)).await?.executors;
        let cpus = executors.iter().map(|executor| u64::from(executor.capacity.cpus_milli));
        receiver.set_slots(cpus.sum());
    }
    Ok(Ending::Complete)
}

/// The users' names for the tasks of a delivery.
async fn names_of(
    client: &Client,
    instance: InstanceId,
    delivery: &Delivery,
) -> Result<Vec<(u64, String)>, ClientError> {
    let mut names = Vec::new();
    // Neighbours that ended apart are asked for together.
    let mut wanted: Vec<(u64, u64)> =
        delivery.results.iter().map(|run| (run.first.0, run.first.0 + run.count)).collect();
    // Results also name the tasks that others waited for in vain.
    wanted.extend(delivery.results.iter().filter_map(|run| match run.outcome {
        Outcome::UpstreamFailed(task) => Some((task.0, task.0 + 1)),
        _ => None,
    }));
    wanted.sort_unstable();
    let mut at = 0;
    for (first, end) in wanted {
        at = at.max(first);
        while at < end {
            let tasks = client.tasks(instance, TaskId(at), TASKS_ASKED_MAX).await?;
            let Some(last) = tasks.last() else { return Ok(names) };
            at = last.task.0 + 1;
            names.extend(tasks.into_iter().filter_map(|task| {
                Some((task.task.0, String::from_utf8_lossy(&task.name?).into_owned()))
            }));
        }
    }
    Ok(names)
}

/// Prints the reason why nothing happens, if there is one. Returns whether
/// there was one.
pub(crate) async fn tell_what_is_missing(
    client: &Client,
    instance: InstanceId,
) -> Result<bool, ClientError> {
    let status = client.status(Some(instance)).await?;
    if status.executors.is_empty() {
        match show::coming(&status.coming).as_slice() {
            [] => {
                say("waiting for an executor: none is connected (start one with falkon executor)");
            }
            lines => {
                lines.iter().for_each(|line| say(format_args!("waiting for executors: {line}")))
            }
        }
        return Ok(true);
    }
    let Some(found) = status.instances.first() else { return Ok(false) };
    for (need, count) in &found.unschedulable {
        let verb = if *count == 1 { "waits" } else { "wait" };
        let tasks = show::counted(*count, "task");
        let how = how_gpus_are_offered(need);
        say(format_args!("{tasks} {verb} for an executor that offers {need}: none does{how}"));
    }
    for (micros, count) in &found.overlong {
        let (tasks, time) = (show::counted(*count, "task"), span(*micros as f64 / 1e6));
        say(format_args!(
            "{tasks} wait for an executor that stays longer: the next is expected to run for {time}"
        ));
    }
    if found.clogged {
        say("no more tasks start until results have been fetched or the dispatcher has room");
    }
    let waits = !found.unschedulable.is_empty();
    for line in show::coming(&status.coming).iter().filter(|_| waits) {
        say(format_args!("executors are asked for: {line}"));
    }
    let lacks = !found.unschedulable.is_empty() || !found.overlong.is_empty();
    Ok(lacks || found.clogged)
}

/// Connects, asks, and answers with an exit status.
pub(crate) fn with_client<F>(access: &AccessArgs, instance: Option<u64>, ask: F) -> Exit
where
    F: AsyncFnOnce(Client) -> Result<Exit, ClientError>,
{
    with_access(access, instance, async |client, _| ask(client).await)
}

/// The same for those that go to executors as well.
pub(crate) fn with_access<F>(access: &AccessArgs, instance: Option<u64>, ask: F) -> Exit
where
    F: AsyncFnOnce(Client, &AccessFile) -> Result<Exit, ClientError>,
{
    let access = match access.load_or_exit() {
        Ok(access) => access,
        Err(exit) => return exit,
    };
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(exit) => return exit,
    };
    runtime.block_on(async {
        match connect(&access, instance.map(InstanceId)).await {
            Ok((client, _deliveries)) => ask(client, &access).await.unwrap_or_else(Exit::client),
            Err(error) => Exit::client(error),
        }
    })
}

/// `falkon wait`
#[derive(Args, Debug)]
pub(crate) struct WaitArgs {
    #[command(flatten)]
    access: AccessArgs,
    /// The instances, one or several, by their numbers or names
    #[arg(value_name = "INSTANCE", required = true)]
    instances: Vec<String>,
    /// Print no progress line and no summary
    #[arg(long, short)]
    quiet: bool,
    #[command(flatten)]
    notify: NotifyArgs,
}

/// Takes results in without a word.
struct Silent;

impl Sink for Silent {
    fn take(&mut self, _: &TaskResult) -> Result<(), SinkError> {
        Ok(())
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        Ok(())
    }
}

pub(crate) fn wait(args: WaitArgs) -> Exit {
    let measure = MeasureArgs::default();
    let ended = args
        .instances
        .iter()
        .map(|instance| pass_on(&args.access, instance, None, 0, args.quiet, true, &measure));
    args.notify.after(ended.max_by_key(|exit| exit.code()).unwrap_or(Exit::Success))
}

/// `falkon results`
#[derive(Args, Debug)]
pub(crate) struct ResultsArgs {
    #[command(flatten)]
    access: AccessArgs,
    /// The instance, by its number or name
    #[arg(value_name = "INSTANCE")]
    instance: String,
    /// Print a line of JSON per result, instead of the tasks' output
    #[arg(long)]
    json: bool,
    /// Leave out the first N results
    #[arg(long, value_name = "N", default_value_t = 0)]
    from: u64,
    /// Print the available results, and do not wait for more
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    measure: MeasureArgs,
}

pub(crate) fn results(args: ResultsArgs) -> Exit {
    let output: (Box<dyn Sink>, u64) = match args.json {
        true => (Box::new(Json::new(std::io::stdout())), TEXT_BYTES_MAX),
        false => (Box::new(Terminal::default()), u64::MAX),
    };
    let measure = &args.measure;
    pass_on(&args.access, &args.instance, Some(output), args.from, true, !args.no_wait, measure)
}

/// Passes results on to a sink, with streams up to a limit; or only waits for
/// them.
fn pass_on(
    access: &AccessArgs,
    instance: &str,
    output: Option<(Box<dyn Sink>, u64)>,
    from: u64,
    quiet: bool,
    to_the_end: bool,
    measure: &MeasureArgs,
) -> Exit {
    let access = match access.load_or_exit() {
        Ok(access) => access,
        Err(exit) => return exit,
    };
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(exit) => return exit,
    };
    runtime.block_on(async {
        let started = Instant::now();
        let found = match connect(&access, instance.parse().ok().map(InstanceId)).await {
            Ok((client, _deliveries)) => named_status(&client, instance).await,
            Err(error) => Err(error),
        };
        let found = match found {
            Ok(Ok(found)) => found,
            Ok(Err(exit)) => return exit,
            Err(error) => return Exit::client(error),
        };
        let instance = InstanceId(found.id);
        let progress = Progress::new(found.counts.total, !quiet);
        let wanted = output.as_ref().map(|(_, bytes_max)| *bytes_max);
        let sink = output.map_or_else(|| Box::new(Silent) as Box<dyn Sink>, |(sink, _)| sink);
        let mut receiver = Receiver::new(None, sink, progress, false);
        if let Some(bytes_max) = wanted {
            let fetching = Fetching::new(access.level, None, bytes_max, WhenAway::Cut);
            receiver.fetch_from(Origin::Executors(fetching));
        }
        receiver.position = from;
        receiver.measure(measure);
        receiver.set_named(found.named);
        if !to_the_end {
            receiver.stop_at(found.results);
        }
        let ending = follow(&access, instance, &mut receiver, Submitted::Nothing, quiet).await;
        finish(&mut receiver, ending, 0, started.elapsed().as_secs_f64(), quiet)
    })
}

/// `falkon status`
#[derive(Args, Debug)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    access: AccessArgs,
    /// Only these instances, by their numbers or names
    #[arg(value_name = "INSTANCE")]
    instances: Vec<String>,
    /// List all executors, however many there are
    #[arg(long)]
    all: bool,
    /// List the relays below each relay, with their nodes
    #[arg(long)]
    tree: bool,
    /// Print JSON, with all executors and relays
    #[arg(long)]
    json: bool,
}

pub(crate) fn status(mut args: StatusArgs) -> Exit {
    if args.instances.is_empty() {
        // A file that opens one instance and nothing else is about that one.
        let only = args.access.load().ok().as_ref().and_then(only_instance);
        args.instances.extend(only.map(|id| id.to_string()));
    }
    let first = args.instances.first().and_then(|first| first.parse().ok());
    with_client(&args.access, first, async |client: Client| {
        let mut found = Vec::new();
        for text in &args.instances {
            match named_status(&client, text).await? {
                Ok(instance) => found.push(instance),
                Err(exit) => return Ok(exit),
            }
        }
        let mut status = client.status(found.first().map(|found| InstanceId(found.id))).await?;
        if !found.is_empty() {
            status.instances = found;
        }
        status.instances.sort_by_key(|found| found.id);
        status.instances.dedup_by_key(|found| found.id);
        Ok(match args.json {
            true => show::status_as_json(&status),
            false => show::status(&status, show::Listing { all: args.all, tree: args.tree }),
        })
    })
}

/// `falkon destroy`
#[derive(Args, Debug)]
pub(crate) struct DestroyArgs {
    #[command(flatten)]
    access: AccessArgs,
    /// The instance, by its number or name
    #[arg(value_name = "INSTANCE")]
    instance: String,
}

pub(crate) fn destroy(args: DestroyArgs) -> Exit {
    let number = args.instance.parse().ok();
    with_client(&args.access, number, async |client: Client| {
        let instance = match number {
            Some(number) => InstanceId(number),
            None => match named_instance(&client, &args.instance).await? {
                Ok(instance) => instance,
                Err(exit) => return Ok(exit),
            },
        };
        client.destroy(instance).await?;
        Ok(Exit::Success)
    })
}

/// `falkon stop`
#[derive(Args, Debug)]
pub(crate) struct StopArgs {
    #[command(flatten)]
    access: AccessArgs,
}

pub(crate) fn stop(args: StopArgs) -> Exit {
    with_client(&args.access, None, async |client: Client| {
        client.stop().await?;
        Ok(Exit::Success)
    })
}
