//! `falkon run`: tasks here and now.

use crate::blocks::PipeArgs;
use crate::campaign::{self, Receiver};
use crate::clusters::ClusterArgs;
use crate::data::{CacheArgs, PolicyArgs};
use crate::embedded::{Embedded, EmbeddedError, ExecutorSetup, OfferArgs, Places};
use crate::exit::{Exit, runtime, say};
use crate::halt::Halt;
use crate::nodes::{NodeArgs, Nodes};
use crate::notify::NotifyArgs;
use crate::plan::{Plan, PlanArgs, Surroundings};
use crate::progress::Progress;
use crate::query::{QUIET_S_MAX, tell_what_is_missing};
use crate::results::SinkError;
use crate::results::asked::{OutputArgs, make_sink};
use crate::results::directory::Directory;
use crate::results::line::TEXT_BYTES_MAX;
use crate::results::rest::{Fetching, Origin, WhenAway, make_overflow};
use crate::scratch::Scratch;
use crate::top::View;
use crate::ways::{Destination, write_ways};
use crate::workers::WorkerArgs;
use clap::Args;
use falkon_core::dispatch::diffusion::PolicyOptions;
use falkon_core::dispatch::{InstanceOptions, Selection};
use falkon_core::task::InstanceId;
use falkon_executor::CacheSetup;
use falkon_net::Log;
use falkon_net::client::{Client, ClientError};
use falkon_net::secure::{AccessFile, Identity, Level};
use falkon_provision::lrm::copies;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The time in milliseconds without values after which the user learns that
/// they are waited for.
const STDIN_QUIET_MS: u64 = 2000;

/// What a failed task means for the others.
#[derive(Args, Debug, Clone, Copy, Default)]
#[command(next_help_heading = "Failures")]
pub(crate) struct FailureArgs {
    /// Continue when tasks fail (the default)
    #[arg(long, conflicts_with = "fail_fast")]
    pub(crate) keep_going: bool,
    /// Cancel all other tasks when a task has failed for good
    #[arg(long)]
    pub(crate) fail_fast: bool,
}

/// `falkon run`
#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    // Options without a heading come first: a heading holds for all that
    // follows it.
    /// Print what would run, and run nothing
    #[arg(long)]
    dry_run: bool,
    /// Run in every copy of this command that srun or mpirun starts, if each copy runs other
    /// tasks
    #[arg(long)]
    every_copy: bool,
    #[command(flatten)]
    clusters: ClusterArgs,
    #[command(flatten)]
    pub(crate) nodes: NodeArgs,
    #[command(flatten)]
    plan: PlanArgs,
    #[command(flatten)]
    pipe: PipeArgs,
    #[command(flatten)]
    offer: OfferArgs,
    #[command(flatten)]
    policy: PolicyArgs,
    #[command(flatten)]
    cache: CacheArgs,
    #[command(flatten)]
    workers: WorkerArgs,
    #[command(flatten)]
    failure: FailureArgs,
    /// End the run, and cancel its other tasks, as soon as so many have ended so: now,fail=3,
    /// now,success=1, now,done=10%
    #[arg(long, value_name = "CONDITION")]
    halt: Option<Halt>,
    /// Watch the run as with falkon top, in place of the progress line; needs --out, --resume or
    /// --results, as the terminal is taken
    #[arg(long, conflicts_with = "json")]
    top: bool,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    notify: NotifyArgs,
}

/// Runs the command.
pub(crate) fn run(mut args: RunArgs) -> Exit {
    let variable = |name: &str| std::env::var(name).ok();
    if let Some(copies) = copies(variable).filter(|_| !args.every_copy) {
        return Exit::usage(format_args!(
            "this is one of {copies} copies that were started side by side (srun, mpirun), and \
             each would run all tasks: start it once, without srun, and with --nodes all to use \
             all nodes; --every-copy runs in each all the same"
        ));
    }
    if !args.clusters.is_empty() || !args.nodes.is_empty() {
        args.plan.run_where_submitted();
    }
    let blocks = match args.pipe.divide(&mut args.plan) {
        Ok(blocks) => blocks,
        Err(exit) => return exit,
    };
    let exit = run_planned(args);
    if let Some(blocks) = blocks {
        blocks.remove();
    }
    exit
}

fn run_planned(args: RunArgs) -> Exit {
    let plan = match make_plan(&args.plan, args.output.quiet) {
        Ok(plan) => plan,
        Err(exit) => return exit,
    };
    if !args.clusters.is_empty() && plan.collects_streams() {
        return Exit::usage(
            "tasks whose streams are collected run on the executors of one dispatcher: give them to \
             it with falkon submit --wait --access FILE",
        );
    }
    let nodes = plan.nodes_max();
    if nodes > 1 && args.nodes.is_empty() {
        return Exit::usage(format_args!(
            "a task runs on {nodes} nodes together (--nodes-per-task), and this run has one, or \
             borrows them: use falkon run --nodes all in a batch job of as many nodes, or give \
             the tasks to their dispatcher with falkon submit --wait --access FILE"
        ));
    }
    if args.dry_run {
        let cache_bytes = args.cache.largest_bytes(&std::env::temp_dir());
        return dry_run(&plan, args.policy.destination(&plan, Some(1), cache_bytes), None);
    }
    match runtime() {
        Ok(runtime) => runtime.block_on(run_plan(args, plan)),
        Err(exit) => exit,
    }
}

/// The plan of a command line, or what is wrong with it.
pub(crate) fn make_plan(args: &PlanArgs, quiet: bool) -> Result<Plan, Exit> {
    let current_dir = std::env::current_dir()
        .map_err(|error| Exit::failure(format!("cannot tell the current directory: {error}")))?;
    let stdin_is_piped = is_piped();
    if stdin_is_piped && !quiet {
        tell_of_stdin(args);
    }
    let mut stdin = std::io::stdin().lock();
    let surroundings =
        Surroundings { stdin_is_piped, stdin: &mut stdin, current_dir: &current_dir };
    Plan::new(args, surroundings).map_err(Exit::usage)
}

/// Prints that missing lines are waited for, or that existing ones are left
/// alone though nothing else gives values.
fn tell_of_stdin(args: &PlanArgs) {
    if args.wants_lines() {
        if !has_input(STDIN_QUIET_MS) {
            say("waiting for values on standard input, a task per line (</dev/null: none)");
        }
    } else if args.has_no_source() && has_input(0) {
        say("standard input is not read: put {} in the command for a line's value, or add \
             --each-line - for a task per line");
    }
}

/// Whether standard input has something to read, or ends, within a time.
fn has_input(millis: u64) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let stdin = std::io::stdin();
    let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
    let timeout = Timespec::try_from(Duration::from_millis(millis)).unwrap_or_default();
    let ready = poll(&mut fds, Some(&timeout)).is_ok_and(|count| count > 0);
    // A plan that needs values reports the end of an empty input itself.
    ready && (millis > 0 || fds[0].revents().contains(PollFlags::IN) && !is_at_end())
}

/// Whether standard input is a file of which all has been read.
fn is_at_end() -> bool {
    let stdin = std::io::stdin();
    let (Ok(found), Ok(at)) =
        (rustix::fs::fstat(&stdin), rustix::fs::seek(&stdin, rustix::fs::SeekFrom::Current(0)))
    else {
        return false;
    };
    u64::try_from(found.st_size).is_ok_and(|size| at >= size)
}

/// Whether standard input is something one pipes values through, rather than
/// a terminal or a device such as `/dev/null`.
fn is_piped() -> bool {
    use rustix::fs::FileType;
    rustix::fs::fstat(std::io::stdin()).is_ok_and(|stat| {
        matches!(
            FileType::from_raw_mode(stat.st_mode),
            FileType::Fifo | FileType::RegularFile | FileType::Socket
        )
    })
}

/// Prints a plan, and which ways its data objects would take, with what the dispatcher
/// remembers of them, if there is one.
pub(crate) fn dry_run(
    plan: &Plan,
    to: Result<Destination, Exit>,
    access: Option<&AccessFile>,
) -> Exit {
    let (to, runtime) = match (to, runtime()) {
        (Ok(to), Ok(runtime)) => (to, runtime),
        (Err(exit), _) | (_, Err(exit)) => return exit,
    };
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let written = plan.write_dry_run(&mut out).and_then(|()| {
        runtime.block_on(write_ways(plan, to, access, &mut out))?;
        out.flush()
    });
    match written {
        Ok(()) => Exit::Success,
        // Nobody reads any further.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Exit::Success,
        Err(error) => Exit::failure(format!("cannot print the plan: {error}")),
    }
}

/// Opens the results directory, if one is asked for, and leaves out what has
/// succeeded in it. Returns also how many that were.
pub(crate) fn open_directory(
    output: &OutputArgs,
    plan: Plan,
) -> Result<(Option<Directory>, Plan, u64), Exit> {
    if let Some(path) = &output.resume {
        let (directory, unfinished) =
            Directory::resume(path, output.out_files, &plan).map_err(Exit::usage)?;
        if !directory.is_resumed() && !output.quiet {
            say(format_args!("there are no results in {} yet: the run begins", path.display()));
        }
        let rest = plan.select(plan.with_makers(unfinished));
        let before = plan.count() - rest.count();
        return Ok((Some(directory), rest, before));
    }
    let directory = output
        .out
        .as_deref()
        .map(|path| Directory::create(path, output.out_files).map_err(Exit::usage))
        .transpose()?;
    Ok((directory, plan, 0))
}

/// A directory of our own for output that is too long to be kept in memory.
fn make_scratch(directory: Option<&Directory>) -> Result<Scratch, Exit> {
    match directory {
        None => Scratch::new("falkon"),
        Some(directory) => Scratch::at(directory.overflow()),
    }
}

async fn run_plan(args: RunArgs, plan: Plan) -> Exit {
    if args.top
        && let Err(exit) = View::check()
    {
        return exit;
    }
    if args.top && args.output.prints() {
        return Exit::usage(
            "--top takes the terminal, on which tasks would print: name a directory for that with \
             --out DIR",
        );
    }
    let quiet = args.output.quiet || args.top;
    let clusters = match args.clusters.load() {
        Ok(clusters) => clusters,
        Err(error) => return Exit::usage(error),
    };
    let launches = match args.nodes.launches() {
        Ok(launches) => launches,
        Err(error) => return Exit::usage(error),
    };
    let granted = launches.iter().map(|launch| launch.nodes).fold(0, u32::saturating_add);
    let wanted = plan.nodes_max();
    if wanted > 1 && wanted > granted {
        return Exit::usage(format_args!(
            "a task runs on {wanted} nodes together (--nodes-per-task), and this run has {granted}"
        ));
    }
    let (directory, plan, before) = match open_directory(&args.output, plan) {
        Ok(opened) => opened,
        Err(exit) => return exit,
    };
    if plan.count() == 0 {
        if !args.output.quiet {
            say(format_args!("nothing to do: all {before} tasks have already succeeded"));
        }
        return Exit::Success;
    }
    let with_digests = directory.is_some();
    let scratch = match make_scratch(directory.as_ref()) {
        Ok(scratch) => scratch,
        Err(exit) => return exit,
    };
    let (policy, cache) = match data_options(&args, &plan, scratch.path()) {
        Ok(options) => options,
        Err(exit) => return exit,
    };
    let started = Instant::now();
    let capacity = args.offer.capacity(scratch.path());
    let (capture, mut workers) = (args.output.capture, args.workers.options());
    let of_workers = match scratch.for_workers("falkon") {
        Ok(of_workers) => of_workers,
        Err(exit) => return exit,
    };
    workers.scratch = Some(of_workers.as_ref().unwrap_or(&scratch).path().to_owned());
    let overflow = match make_overflow(scratch.path()) {
        Ok(overflow) => overflow,
        Err(exit) => return exit,
    };
    let places = Places { scratch: scratch.path().to_owned(), overflow: overflow.clone() };
    let events = directory.as_ref().map(Directory::events);
    let kept = directory.as_ref().map(Directory::overflow);
    let sink = match make_sink(&args.output, directory, &plan) {
        Ok(sink) => sink,
        Err(exit) => return exit,
    };
    let identity = (!launches.is_empty()).then(Identity::ephemeral).transpose();
    let started_here = identity
        .map_err(Exit::failure)
        .and_then(|identity| Embedded::start(identity, events).map_err(Exit::failure));
    let mut embedded = match started_here {
        Ok(embedded) => embedded,
        Err(exit) => return exit,
    };
    let elsewhere = !args.clusters.is_empty() || !launches.is_empty();
    let only_json = args.output.json && kept.is_none();
    let bytes_max = if only_json { TEXT_BYTES_MAX } else { u64::MAX };
    let fetching = Fetching::new(Level::Encrypt, kept, bytes_max, WhenAway::Wait { quiet });
    let origin = match &launches[..] {
        [] => Origin::Here(fetching, overflow.clone()),
        _ => Origin::Executors(fetching),
    };
    if !launches.is_empty() {
        let started = match embedded.listen().await {
            Ok(access) => Nodes::start(&args.nodes, launches, &access),
            Err(error) => Err(Exit::failure(error)),
        };
        match started {
            Ok(nodes) => embedded.keep(nodes),
            Err(exit) => return exit,
        }
    } else if !elsewhere || args.offer.names_jobs() {
        embedded.execute(ExecutorSetup {
            capacity: capacity.clone(),
            memory_limits: args.offer.limits().memory_limits(),
            pin: args.offer.limits().pin(),
            places,
            capture_bytes_max: capture,
            workers,
            cache: cache.clone(),
            forked: None,
        });
    }
    embedded.borrow_from(clusters, &log(quiet));
    // A task's own output and the progress line would overwrite each other on
    // one terminal; the line steps aside for each.
    let progress = Progress::new(plan.count(), !quiet);
    let mut receiver = Receiver::new(Some(&plan), sink, progress, with_digests);
    receiver.measure(&args.output.measure);
    if args.output.describes() {
        receiver.describe_tasks();
    }
    receiver.fetch_from(origin);
    let options = InstanceOptions {
        name: String::new(),
        keep_results: false,
        fail_fast: args.failure.fail_fast,
        policy,
        // The only executor offers it, or none ever does. Elsewhere, others may join.
        fail_unschedulable_micros: (!elsewhere).then_some(0),
        ..InstanceOptions::default()
    };
    if !elsewhere {
        receiver.set_slots(u64::from(capacity.cpus_milli));
    }
    let mut view = args.top.then(|| View::open(embedded.client().0));
    let how = How { tells: elsewhere && !quiet, halt: args.halt, view: &mut view };
    let outcome = drive(&mut embedded, &plan, &mut receiver, options, how).await;
    if let Some(view) = view {
        view.close().await;
    }
    let at_once = !matches!(outcome, Ending::Complete);
    embedded.stop(at_once).await;
    overflow.close();
    scratch.leave(cache);
    of_workers.into_iter().for_each(Scratch::remove);
    let seconds = started.elapsed().as_secs_f64();
    args.notify.after(finish(&mut receiver, outcome, before, seconds, args.output.quiet))
}

/// How data is cached, and decides where tasks run; there is no cache if no
/// task has data objects, or writes to archives.
fn data_options(
    args: &RunArgs,
    plan: &Plan,
    scratch: &Path,
) -> Result<(PolicyOptions, Option<CacheSetup>), Exit> {
    let policy = args.policy.options(plan)?;
    let is_needed = plan.has_objects() || plan.collects_streams();
    let cache = is_needed.then(|| args.cache.setup(scratch)).transpose()?;
    Ok((policy, cache))
}

/// How a run came to its end, apart from what its tasks did.
#[derive(Debug)]
pub(crate) enum Ending {
    /// All results are in.
    Complete,
    /// Asked to stop twice.
    Abandoned,
    /// Results cannot be passed on.
    Sink(SinkError),
    /// The dispatcher is gone or refuses.
    Client(ClientError),
    /// Processes cannot be run here.
    Executor(String),
}

/// Prints the summary of a run, and converts it into an exit status.
pub(crate) fn finish(
    receiver: &mut Receiver<'_>,
    ending: Ending,
    before: u64,
    seconds: f64,
    quiet: bool,
) -> Exit {
    let ending = match (receiver.close(), ending) {
        (Some(error), Ending::Complete | Ending::Abandoned) => Ending::Sink(error),
        (_, ending) => ending,
    };
    if quiet {
        receiver.hide();
    } else {
        receiver.report(before, seconds);
    }
    receiver.show_usage();
    if let Err(exit) = receiver.write_metrics() {
        return exit;
    }
    match ending {
        Ending::Complete if receiver.has_all() => Exit::Success,
        Ending::Complete | Ending::Abandoned => Exit::TasksFailed,
        Ending::Sink(SinkError::Closed) => {
            if !quiet {
                say("ended early, because nobody reads the results any more");
            }
            Exit::TasksFailed
        }
        Ending::Sink(error) => Exit::failure(error),
        Ending::Client(error) => Exit::client(error),
        Ending::Executor(error) => Exit::failure(error),
    }
}

/// How a run goes, and who looks.
struct How<'a> {
    /// The user is told why nothing happens.
    tells: bool,
    halt: Option<Halt>,
    view: &'a mut Option<View>,
}

async fn drive(
    embedded: &mut Embedded,
    plan: &Plan,
    receiver: &mut Receiver<'_>,
    options: InstanceOptions,
    How { tells, halt, view }: How<'_>,
) -> Ending {
    let (client, mut deliveries) = embedded.client();
    let instance = match client.create(options).await {
        Ok((instance, _)) => instance,
        Err(error) => return Ending::Client(error),
    };
    if let Err(error) = client.subscribe(instance, 0).await {
        return Ending::Client(error);
    }
    let mut accepted = 0;
    // The embedded dispatcher has no journal, and so no disk without room.
    let mut waiting = campaign::Waiting::new(true);
    let submission = campaign::submit(&client, instance, plan, &mut accepted, &mut waiting);
    let mut submission = std::pin::pin!(submission);
    let mut submitted = false;
    let mut cancelled = false;
    // Until it is told why nothing happens. Tasks here fail if nobody can run them.
    let mut waits_for_nodes = tells;
    let mut interrupts = Interrupts::new();
    while !receiver.complete {
        let patience = Duration::from_secs(QUIET_S_MAX);
        tokio::select! {
            biased;
            () = interrupts.next() => {
                if let Err(ending) = interrupt(&mut cancelled, &client, instance, view).await {
                    return ending;
                }
            }
            delivery = deliveries.recv() => {
                let delivery = match delivery {
                    Ok(delivery) => delivery,
                    Err(error) => return Ending::Client(error),
                };
                let taken = {
                    // Long output can be a while on its way.
                    let mut taking = std::pin::pin!(receiver.take(&client, delivery));
                    loop {
                        tokio::select! {
                            taken = &mut taking => break taken,
                            () = interrupts.next() => {
                                if let Err(ending) = interrupt(&mut cancelled, &client, instance, view).await {
                                    return ending;
                                }
                            }
                        }
                    }
                };
                if let Err(error) = taken {
                    return Ending::Client(error);
                }
                if let Err(error) = client.acknowledge(instance, receiver.position).await {
                    return Ending::Client(error);
                }
                let is_reached = halt
                    .is_some_and(|halt| halt.is_reached(receiver.ended(), plan.count()));
                let ends = receiver.trouble().is_some() || is_reached && !receiver.complete;
                if ends && !cancelled {
                    cancelled = true;
                    if let Err(error) = client.cancel(instance, Selection::All).await {
                        return Ending::Client(error);
                    }
                }
            }
            result = &mut submission, if !submitted => {
                submitted = true;
                // A cancelled instance takes no more tasks, and needs none.
                if let Err(error) = result && !cancelled {
                    return Ending::Client(error);
                }
            }
            error = embedded.failure() => return ending_of(error),
            () = tokio::time::sleep(patience), if waits_for_nodes => {
                match tell_what_is_missing(&client, instance).await {
                    Ok(told) => waits_for_nodes = !told,
                    Err(error) => return Ending::Client(error),
                }
            }
        }
    }
    receiver.take_trouble().map_or(Ending::Complete, Ending::Sink)
}

/// The user interrupts the run: no task is begun any more, or, the second time, it ends at once.
async fn interrupt(
    cancelled: &mut bool,
    client: &Client,
    instance: InstanceId,
    view: &mut Option<View>,
) -> Result<(), Ending> {
    if *cancelled {
        return Err(Ending::Abandoned);
    }
    if let Some(view) = view.take() {
        view.close().await;
    }
    say("stopping (interrupt again to stop at once)");
    client.cancel(instance, Selection::All).await.map_err(Ending::Client)?;
    *cancelled = true;
    Ok(())
}

/// How a run ends that can run no tasks.
fn ending_of(error: EmbeddedError) -> Ending {
    let lost = match error {
        EmbeddedError::Cluster(lost) => lost.into_connect(),
        error => return Ending::Executor(error.to_string()),
    };
    match lost {
        Ok(error) => Ending::Client(ClientError::Connect(error)),
        Err(lost) => Ending::Executor(lost.to_string()),
    }
}

/// Where relays of a run say that a cluster is away, or there.
fn log(quiet: bool) -> Log {
    match quiet {
        true => Arc::new(|_: &str| {}),
        false => Arc::new(|line: &str| say(line)),
    }
}

/// Ctrl-C and its kin.
pub(crate) struct Interrupts {
    signals: Option<[tokio::signal::unix::Signal; 2]>,
}

impl Interrupts {
    pub(crate) fn new() -> Interrupts {
        use tokio::signal::unix::{SignalKind, signal};
        let signals = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
        Interrupts {
            signals: match signals {
                (Ok(interrupt), Ok(terminate)) => Some([interrupt, terminate]),
                // Without handlers the signals end the process, as they always did.
                _ => None,
            },
        }
    }

    /// Waits for the next one.
    pub(crate) async fn next(&mut self) {
        self.next_terminates().await;
    }

    /// Waits for the next one. Whether it was SIGTERM, which schedulers send,
    /// and not what people type.
    pub(crate) async fn next_terminates(&mut self) -> bool {
        match &mut self.signals {
            Some([interrupt, terminate]) => {
                tokio::select! {
                    _ = interrupt.recv() => false,
                    _ = terminate.recv() => true,
                }
            }
            None => std::future::pending().await,
        }
    }
}
