//! `falkon executor`: runs a dispatcher's tasks on this machine.

use super::background::{BackgroundArgs, log_in};
use super::log_to_stderr;
use crate::access::{AccessArgs, places};
use crate::data::{CacheArgs, lent_directory};
use crate::embedded::{LimitArgs, offered};
use crate::exit::{Exit, runtime, say};
use crate::machine::{hostname, node_name};
use crate::plan::quantity::{KeepFor, keep_for};
use crate::results::asked::CAPTURE_BYTES_DEFAULT;
use crate::results::rest::make_overflow;
use crate::run::Interrupts;
use crate::scratch::Scratch;
use crate::workers::WorkerArgs;
use clap::Args;
use falkon_core::provision::leave_micros;
use falkon_core::task::AllocationId;
use falkon_executor::{ExecutorError, Link};
use falkon_net::client::ClientError;
use falkon_net::secure::{AccessError, AccessFile, FileError};
use falkon_provision::lrm::ends_at;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::oneshot;

/// Between two looks for an access file that is not there yet, at first and at last.
const ACCESS_PAUSE_MIN: Duration = Duration::from_millis(100);
const ACCESS_PAUSE_MAX: Duration = Duration::from_secs(2);

/// `falkon executor`
#[derive(Args, Debug)]
pub(crate) struct ExecutorArgs {
    /// The dispatcher's access file, or - for standard input [default:
    /// $FALKON_ACCESS, else the one of a dispatcher started without --dir]; of several, the
    /// executor goes to the next when one was unreachable for --fall-back-after
    #[arg(long, value_name = "FILE")]
    access: Vec<PathBuf>,
    /// Concurrent tasks of one CPU [default: one per CPU that this process may use, and that a
    /// batch scheduler has granted]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    slots: Option<u32>,
    /// GPUs offered [default: those of CUDA_VISIBLE_DEVICES,
    /// ROCR_VISIBLE_DEVICES or HIP_VISIBLE_DEVICES, or that a batch scheduler has
    /// granted]
    #[arg(long, value_name = "N")]
    gpus: Option<u32>,
    /// Memory offered [default: this machine's, or what a batch scheduler or a
    /// control group allows of it]
    #[arg(long, value_name = "SIZE", value_parser = crate::plan::memory_bytes)]
    memory: Option<u64>,
    /// Scratch disk space offered, for tasks with --disk [default: what is free where --scratch
    /// is, less 5 % and at least 1GiB]
    #[arg(long, value_name = "SIZE", value_parser = crate::plan::disk_bytes)]
    disk: Option<u64>,
    #[command(flatten)]
    limits: LimitArgs,
    /// A custom resource offered; may be repeated
    #[arg(long, value_name = "NAME=COUNT", value_parser = crate::plan::resource)]
    resource: Vec<(String, u64)>,
    /// Name shown to people [default: host and process]
    #[arg(long, value_name = "NAME", value_parser = crate::plan::name)]
    name: Option<String>,
    /// Directory for output that is too long to be sent and for the directories of tasks, removed
    /// when the executor exits
    /// [default: a new one in the temporary directory]
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,
    /// Bytes of each output stream that are sent with a result
    #[arg(
        long,
        value_name = "BYTES",
        default_value_t = CAPTURE_BYTES_DEFAULT,
        value_parser = crate::plan::capture_bytes
    )]
    capture: u64,
    /// Exit when the dispatcher was unreachable, or its access file missing, for this long: 5m, or
    /// forever
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = keep_for)]
    give_up: KeepFor,
    /// Go to the next dispatcher of several when one was unreachable for this long: the tasks
    /// of the one before end
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = crate::plan::duration_micros)]
    fall_back_after: u64,
    /// How long a file system may take to answer before a task that needs it is tried elsewhere
    /// [default: 1m]
    #[arg(long, value_name = "TIME", value_parser = crate::plan::duration_micros)]
    file_timeout: Option<u64>,
    /// How long this machine is available: leave before that, and start no task that is
    /// expected to take longer
    #[arg(long, value_name = "TIME", value_parser = crate::plan::duration_micros)]
    walltime: Option<u64>,
    /// When the job began of which --walltime is, in seconds since 1970
    #[arg(long, value_name = "SECONDS", hide = true)]
    began: Option<u64>,
    /// How long before the end of --walltime to leave [default: a tenth of it,
    /// at most 1m]
    #[arg(long, value_name = "TIME", value_parser = crate::plan::duration_micros)]
    leave_before: Option<u64>,
    /// Leave after this long without work [default: never]
    #[arg(long, value_name = "TIME", value_parser = crate::plan::duration_micros)]
    idle_exit: Option<u64>,
    /// The provisioner's allocation that it runs in
    #[arg(long, value_name = "NUMBER", hide = true)]
    allocation: Option<u64>,
    #[command(flatten)]
    cache: CacheArgs,
    /// Lend this directory to other executors, at most SIZE bytes (10GiB; in memory:
    /// /dev/shm/lent=8GiB): stripes of objects lie there that are too large for a cache
    ///
    /// An object that is too large for this executor's own cache, and not for this directory,
    /// is read from those who have its stripes, and lies here whole while tasks read it.
    #[arg(long, value_name = "DIR=SIZE", value_parser = lent_directory)]
    lend: Option<(PathBuf, u64)>,
    /// Mount no file system: a task that reads an object for which neither the cache nor the
    /// lent directory has room fails, instead of reading it through FUSE from its lenders
    #[arg(long)]
    no_mount: bool,
    #[command(flatten)]
    workers: WorkerArgs,
    #[command(flatten)]
    background: BackgroundArgs,
}

/// The command line of an executor, as a job's script has it.
#[derive(clap::Parser, Debug)]
#[command(name = "falkon executor", no_binary_name = true)]
struct Started {
    #[command(flatten)]
    _args: ExecutorArgs,
}

/// Whether an executor of a provisioner's job would take these further options.
pub(crate) fn executor_parses<'a>(
    options: impl Iterator<Item = &'a str>,
) -> Result<(), clap::Error> {
    use clap::Parser;
    let own = "--access - --name x --allocation 1 --give-up 1s --walltime 1s --began 1";
    Started::try_parse_from(own.split(' ').chain(options)).map(|_| ())
}

impl ExecutorArgs {
    /// The walltime counts from when the job began, however late this starts,
    /// and the batch scheduler knows best when it ends.
    fn tenure(&self) -> falkon_executor::Tenure {
        let variable = |name: &str| std::env::var(name).ok();
        let said = ends_at(variable, self.began, self.walltime.map(|micros| micros / 1_000_000));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let said = said.map(|at| Duration::from_secs(at).saturating_sub(now));
        let left = said.into_iter().chain(self.walltime.map(Duration::from_micros)).min();
        let ends = left.and_then(|left| {
            let whole = self.walltime.unwrap_or(left.as_micros() as u64);
            let before = self.leave_before.unwrap_or_else(|| leave_micros(whole));
            Instant::now().checked_add(left.saturating_sub(Duration::from_micros(before)))
        });
        falkon_executor::Tenure {
            allocation: self.allocation.map(AllocationId),
            ends,
            idle: self.idle_exit.map(Duration::from_micros),
        }
    }
}

/// Runs the command.
pub(crate) fn executor(args: ExecutorArgs) -> Exit {
    if let Some(exit) = args.background.detach() {
        return exit;
    }
    match runtime() {
        Ok(runtime) => runtime.block_on(serve(args)).unwrap_or_else(|exit| exit),
        Err(exit) => exit,
    }
}

/// The dispatchers that the executor goes to, in this order.
fn dispatchers(args: &ExecutorArgs) -> Result<Vec<AccessFile>, AccessError> {
    let named = match &args.access[..] {
        [] => vec![AccessArgs::default()],
        named => named.iter().map(|path| AccessArgs { access: Some(path.clone()) }).collect(),
    };
    let mut dispatchers: Vec<AccessFile> = Vec::new();
    for access in named {
        for one in access.load()?.in_order() {
            if dispatchers.iter().all(|known| known.dispatcher != one.dispatcher) {
                dispatchers.push(one);
            }
        }
    }
    Ok(dispatchers)
}

/// The access files, which dispatchers may write only later: nodes and services start in any
/// order.
async fn access_when_there(args: &ExecutorArgs) -> Result<Vec<AccessFile>, Exit> {
    let began = Instant::now();
    let mut pause = ACCESS_PAUSE_MIN;
    loop {
        let error = match dispatchers(args) {
            Ok(access) => return Ok(access),
            Err(error) => error,
        };
        let missing = matches!(
            error,
            AccessError::NotFound { .. } | AccessError::File(FileError::Missing { .. })
        );
        let given_up =
            args.give_up.0.is_some_and(|limit| began.elapsed() >= Duration::from_micros(limit));
        if !missing || given_up {
            return Err(Exit::usage(error));
        }
        if pause == ACCESS_PAUSE_MIN {
            say(format_args!("waiting: {error}"));
        }
        tokio::time::sleep(pause).await;
        pause = ACCESS_PAUSE_MAX.min(pause * 2);
    }
}

/// The dispatchers that an executor may go to, and which it is at.
struct Dispatchers {
    all: Vec<AccessFile>,
    at: usize,
    /// Those in a row that have refused it.
    refusals: usize,
    give_up: Option<Duration>,
    fall_back_after: Duration,
    /// Since when none was reached.
    unreached: Instant,
}

impl Dispatchers {
    fn new(all: Vec<AccessFile>, args: &ExecutorArgs) -> Dispatchers {
        Dispatchers {
            all,
            at: 0,
            refusals: 0,
            give_up: args.give_up.0.map(Duration::from_micros),
            fall_back_after: Duration::from_micros(args.fall_back_after),
            unreached: Instant::now(),
        }
    }

    fn current(&self) -> &AccessFile {
        &self.all[self.at]
    }

    /// How long the current one may be unreachable.
    fn give_up(&self) -> Option<Duration> {
        if self.all.len() == 1 {
            return self.give_up;
        }
        let left = self.give_up.map(|limit| limit.saturating_sub(self.unreached.elapsed()));
        Some(left.map_or(self.fall_back_after, |left| left.min(self.fall_back_after)))
    }

    /// Goes to the next one, if there is another and the current one is gone. An executor that
    /// was at one when it was lost has looked for it since.
    fn go_on(&mut self, error: &ExecutorError) -> bool {
        match error {
            ExecutorError::GaveUp(limit) => {
                let now = Instant::now();
                self.unreached = now.checked_sub(*limit).unwrap_or(now);
                self.refusals = 0;
            }
            ExecutorError::Connect(error) if error.is_transient() => self.refusals = 0,
            ExecutorError::Connect(_) | ExecutorError::Refused(_) => self.refusals += 1,
            _ => return false,
        }
        let is_over = self.give_up.is_some_and(|limit| self.unreached.elapsed() >= limit);
        if self.all.len() == 1 || is_over || self.refusals >= self.all.len() {
            return false;
        }
        self.at = (self.at + 1) % self.all.len();
        let next = self.current().addresses.join(", ");
        say(format_args!(
            "{error}: going to the dispatcher at {next}; tasks of the one before end"
        ));
        true
    }
}

/// Runs an executor until it ends or is interrupted.
async fn run_until(
    options: falkon_executor::Options,
    link: Link,
    interrupts: &mut Interrupts,
    is_in_job: bool,
) -> Result<(), ExecutorError> {
    let (leave, leaving) = oneshot::channel();
    let mut running = std::pin::pin!(falkon_executor::run(options, link, leaving));
    let mut leave = Some(leave);
    loop {
        tokio::select! {
            result = &mut running => return result,
            terminates = interrupts.next_terminates() => match leave.take() {
                // The scheduler ends the whole job, tasks included: what they
                // make of that is no result. They run again elsewhere.
                _ if terminates && is_in_job => {
                    say("the batch scheduler ends this job: leaving at once");
                    return Ok(());
                }
                Some(leave) => {
                    say("leaving when what runs has ended (once more to leave at once)");
                    // An executor that has ended does not receive it, which the
                    // other branch sees.
                    let _ = leave.send(());
                }
                None => return Ok(()),
            },
        }
    }
}

async fn serve(args: ExecutorArgs) -> Result<Exit, Exit> {
    let mut dispatchers = Dispatchers::new(access_when_there(&args).await?, &args);
    let tenure = args.tenure();
    let scratch = match args.scratch.clone() {
        None => Scratch::new("falkon-executor")?,
        Some(scratch) => Scratch::at(scratch)?,
    };
    let mut capacity = offered(args.slots, args.gpus, args.memory, args.resource.clone());
    capacity.set_disk_bytes(falkon_executor::disk_offer(scratch.path(), args.disk));
    let of_workers = scratch.for_workers("falkon-executor")?;
    let mut workers = args.workers.options();
    workers.scratch = Some(of_workers.as_ref().unwrap_or(&scratch).path().to_owned());
    let mut cache = args.cache.setup(scratch.path())?;
    cache.lends_last = args.lend.is_some();
    cache.mounts = !args.no_mount;
    cache.directories.extend(args.lend.clone());
    let overflow = make_overflow(scratch.path())?;
    let name =
        args.name.clone().unwrap_or_else(|| format!("{}:{}", node_name(), std::process::id()));
    let options = |dispatchers: &Dispatchers| falkon_executor::Options {
        capture_bytes_max: args.capture,
        workers: workers.clone(),
        give_up: dispatchers.give_up(),
        file_limit: args.file_timeout.map_or(falkon_executor::FILE_LIMIT, Duration::from_micros),
        log: log_to_stderr(),
        cache: Some(cache.clone()),
        memory_limits: args.limits.memory_limits(),
        pin: args.limits.pin(),
        // The allocation is one of the first dispatcher's.
        tenure: falkon_executor::Tenure {
            allocation: tenure.allocation.filter(|_| dispatchers.at == 0),
            ..tenure
        },
        ..falkon_executor::Options::new(
            name.clone(),
            capacity.clone(),
            scratch.path().to_owned(),
            overflow.clone(),
        )
    };
    args.background.serves(|| {
        let dir = places().default_directory().unwrap_or_default();
        log_in(&dir, &format!("executor-{}-{}", hostname(), std::process::id()))
    })?;
    let mut interrupts = Interrupts::new();
    let result = loop {
        let options = options(&dispatchers);
        let link = Link::Access { access: Box::new(dispatchers.current().clone()), source: None };
        match run_until(options, link, &mut interrupts, tenure.allocation.is_some()).await {
            Err(error) if dispatchers.go_on(&error) => {}
            ended => break ended,
        }
    };
    overflow.close();
    scratch.leave(Some(cache));
    of_workers.into_iter().for_each(Scratch::remove);
    match result {
        Ok(()) => Ok(Exit::Success),
        Err(ExecutorError::Connect(error)) => Err(Exit::client(ClientError::Connect(error))),
        Err(error) => Err(Exit::failure(error)),
    }
}
