//! `falkon everywhere`: a command once on each executor of a dispatcher.

mod cached;

use crate::access::{AccessArgs, connect};
use crate::campaign::{Receiver, Waiting};
use crate::data::PolicyArgs;
use crate::exit::{Exit, runtime, say};
use crate::objects::Resolver;
use crate::plan::{Plan, PlanArgs};
use crate::progress::Progress;
use crate::query::{self, Submitted};
use crate::results::Sink;
use crate::results::line::{Json, TEXT_BYTES_MAX};
use crate::results::rest::{Fetching, Origin, WhenAway};
use crate::results::terminal::Terminal;
use crate::run::{FailureArgs, dry_run, finish, make_plan};
use crate::submit::{Created, InstanceArgs};
use crate::ways::Destination;
use cached::{Cached, Division, Share, cached};
use clap::Args;
use falkon_core::dispatch::{InstanceOptions, RequestError};
use falkon_core::task::{Everywhere, ExecutorId, Submission, TaskId};
use falkon_net::client::ClientError;
use falkon_wire::message::Refusal;
use std::collections::BTreeMap;
use std::time::Instant;

/// `falkon everywhere`
#[derive(Args, Debug)]
pub(crate) struct EverywhereArgs {
    #[command(flatten)]
    access: AccessArgs,
    // Options without a heading come first: a heading holds for all that
    // follows it.
    /// Run it as well on executors that join later, until this command is interrupted or the
    /// instance takes no more tasks
    #[arg(long)]
    joining: bool,
    /// Run it on the executors that have objects of these keys in their caches, each over its
    /// own, which are files in the folder DIR of its task; may be repeated
    ///
    /// In PATTERN, * ? [ ] match as in a shell, and * matches slashes too. An object that
    /// several executors have is given to one of them.
    #[arg(long, value_name = "DIR=cache:PATTERN", value_parser = cached, conflicts_with = "joining")]
    cached: Vec<Cached>,
    /// Only objects that the tasks of this instance read and write, for --cached
    #[arg(long, value_name = "INSTANCE", requires = "cached")]
    cached_of: Option<String>,
    /// Print the number of the instance, and do not wait for results
    #[arg(long)]
    no_wait: bool,
    /// Print what would be submitted, and submit nothing
    #[arg(long)]
    dry_run: bool,
    /// Print a line of JSON per result, instead of the tasks' output
    #[arg(long)]
    json: bool,
    /// Print no progress line and no summary
    #[arg(long, short)]
    quiet: bool,
    #[command(flatten)]
    instance: InstanceArgs,
    #[command(flatten)]
    plan: PlanArgs,
    #[command(flatten)]
    policy: PolicyArgs,
    #[command(flatten)]
    failure: FailureArgs,
}

/// Runs the command.
pub(crate) fn everywhere(mut args: EverywhereArgs) -> Exit {
    args.plan.options.home = std::env::current_dir().ok().map(std::path::PathBuf::into_os_string);
    args.plan.options.reads_held = true;
    let plan = match make_plan(&args.plan, args.quiet) {
        Ok(plan) => plan,
        Err(exit) => return exit,
    };
    if plan.count() != 1 {
        return Exit::usage(format_args!(
            "each executor runs one task, and these are {}: leave out what gives the command \
             values",
            plan.count()
        ));
    }
    if args.plan.options.class.speculate.is_some() {
        return Exit::usage("each executor runs its own task: leave out --speculate");
    }
    if args.plan.options.class.alternatives.is_some() {
        return Exit::usage("each executor runs its own task: leave out --or");
    }
    if args.dry_run && args.cached.is_empty() {
        let to = args.policy.destination(&plan, None, None);
        return dry_run(&plan, to.map(|to| Destination { is_everywhere: true, ..to }), None);
    }
    match runtime() {
        Ok(runtime) => runtime.block_on(run_everywhere(args, plan)).unwrap_or_else(|exit| exit),
        Err(exit) => exit,
    }
}

async fn run_everywhere(args: EverywhereArgs, plan: Plan) -> Result<Exit, Exit> {
    let access = args.access.load_or_exit()?;
    args.instance.check(&access, !args.no_wait)?;
    let division = match args.cached.is_empty() {
        true => None,
        false => {
            let (client, _deliveries) = connect(&access, None).await.map_err(Exit::client)?;
            Some(cached::divide(&client, &args).await?)
        }
    };
    let lost = division.as_ref().and_then(|division| division.lost.as_ref());
    if let Some((count, url)) = lost {
        let objects = query::counted(*count, "object");
        say(format_args!("not read, because no cache has them: {objects}, such as {url}"));
    }
    let is_lost = lost.is_some();
    if let Some(Division { shares, .. }) = division.as_ref().filter(|_| args.dry_run) {
        let lines = shares.values().map(|share| share.text() + "\n");
        return Ok(query::print(&lines.collect::<String>()).unwrap_or(Exit::Success));
    }
    let options = InstanceOptions {
        fail_fast: args.failure.fail_fast,
        policy: args.policy.options(&plan)?,
        ..args.instance.options()
    };
    let started = Instant::now();
    let mut created = args.instance.create(&access, &options, &plan, args.quiet).await?;
    let (count, is_whole) = match division {
        Some(division) => submit_shares(&mut created, division.shares, &args).await?,
        None => {
            let mut submission = submission(&plan).await?;
            let joining = args.joining;
            submission.everywhere = Some(Everywhere { joining, ..Everywhere::default() });
            (accepted(&mut created, &submission, args.quiet).await?, true)
        }
    };
    if !args.quiet {
        say(query::counted(count, "executor"));
    }
    if args.no_wait {
        return Ok(query::print(&format!("{}\n", created.id)).unwrap_or(Exit::Success));
    }
    let progress = Progress::new(count, !args.quiet);
    let sink: Box<dyn Sink> = match args.json {
        true => Box::new(Json::new(std::io::stdout())),
        false => Box::new(Terminal::default()),
    };
    let mut receiver = Receiver::new(None, sink, progress, false);
    receiver.label_by_executor();
    let bytes_max = if args.json { TEXT_BYTES_MAX } else { u64::MAX };
    let away = WhenAway::Wait { quiet: args.quiet };
    let fetching = Fetching::new(access.level, None, bytes_max, away);
    receiver.fetch_from(Origin::Executors(fetching));
    let submitted = if args.joining { Submitted::Joining } else { Submitted::Nothing };
    let Created { id, access, .. } = created;
    let ending = query::follow(&access, id, &mut receiver, submitted, args.quiet).await;
    let exit = finish(&mut receiver, ending, 0, started.elapsed().as_secs_f64(), args.quiet);
    Ok(match exit {
        Exit::Success if is_lost || !is_whole => Exit::TasksFailed,
        exit => exit,
    })
}

/// The one task of a plan, to be run everywhere.
pub(crate) async fn submission(plan: &Plan) -> Result<Submission, Exit> {
    let submission = plan.submissions().next();
    let mut submission =
        submission.ok_or_else(|| Exit::usage("there is no command: put it after --"))?;
    if let Some(data) = &mut submission.data {
        if !data.outputs.is_empty() {
            return Err(Exit::usage(
                "each executor would write the same data object: leave out --output, and have the \
                 command write files of its own",
            ));
        }
        Resolver::default().resolve(data).await;
    }
    submission.names = None;
    Ok(submission)
}

/// Submits a task for each executor that has objects, and nothing after that. Returns how
/// many they are, and whether all objects are read.
async fn submit_shares(
    created: &mut Created,
    shares: BTreeMap<ExecutorId, Share>,
    args: &EverywhereArgs,
) -> Result<(u64, bool), Exit> {
    let (mut count, mut is_whole) = (0, true);
    for (id, share) in shares {
        let mut of_share = args.plan.clone();
        of_share.options.input.extend(share.inputs.iter().cloned());
        let plan = make_plan(&of_share, true)?;
        let text = share.text();
        plan.set_held(share.versions);
        let mut submission = submission(&plan).await?;
        submission.everywhere = Some(Everywhere { only: Some(id), ..Everywhere::default() });
        match submit(created, TaskId(count), &submission, args.quiet).await? {
            Some(accepted) => count += accepted,
            None => {
                say(format_args!("not read, because the executor has left: {text}"));
                is_whole = false;
            }
        }
    }
    seal(created).await?;
    Ok((count, is_whole))
}

/// Submits it, and nothing after it unless executors that join run it too. Returns how many
/// tasks it is.
pub(crate) async fn accepted(
    created: &mut Created,
    submission: &Submission,
    quiet: bool,
) -> Result<u64, Exit> {
    let count = submit(created, TaskId(0), submission, quiet).await?;
    let count = count.ok_or_else(|| Exit::usage("no executor is there to run it"))?;
    if !submission.everywhere.as_ref().is_some_and(|asked| asked.joining) {
        seal(created).await?;
    }
    Ok(count)
}

/// Submits it, over as many connections as that takes. Returns how many tasks it is, if its
/// executors are there.
async fn submit(
    created: &mut Created,
    first: TaskId,
    submission: &Submission,
    quiet: bool,
) -> Result<Option<u64>, Exit> {
    let mut waiting = Waiting::new(quiet);
    loop {
        match submit_once(created, first, submission).await {
            Ok(count) => return Ok(Some(count)),
            Err(ClientError::Lost) => created.connect_again().await?,
            Err(ClientError::Refused(Refusal::Request(RequestError::NoExecutors)))
                if submission.everywhere.as_ref().is_some_and(|asked| asked.only.is_some()) =>
            {
                return Ok(None);
            }
            Err(error) => waiting.wait(error).await.map_err(Exit::client)?,
        }
    }
}

async fn submit_once(
    created: &Created,
    first: TaskId,
    submission: &Submission,
) -> Result<u64, ClientError> {
    let pending = created.client.submit(created.id, first, submission.clone()).await?;
    pending.accepted().await
}

async fn seal(created: &mut Created) -> Result<(), Exit> {
    loop {
        match created.client.seal(created.id).await {
            Ok(()) => return Ok(()),
            Err(ClientError::Lost) => created.connect_again().await?,
            Err(error) => return Err(Exit::client(error)),
        }
    }
}
