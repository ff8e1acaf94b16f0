//! `falkon everywhere`: a command once on each executor of a dispatcher.

use crate::access::AccessArgs;
use crate::campaign::{Receiver, Waiting};
use crate::data::PolicyArgs;
use crate::exit::{Exit, runtime, say};
use crate::objects::Resolver;
use crate::plan::{Plan, PlanArgs};
use crate::progress::Progress;
use crate::query::{self, Submitted};
use crate::results::Sink;
use crate::results::line::{Json, TEXT_BYTES_MAX};
use crate::results::rest::{Fetching, Origin};
use crate::results::terminal::Terminal;
use crate::run::{FailureArgs, dry_run, finish, make_plan};
use crate::submit::{Created, InstanceArgs};
use crate::ways::Destination;
use clap::Args;
use falkon_core::dispatch::InstanceOptions;
use falkon_core::task::{Everywhere, Submission, TaskId};
use falkon_net::client::ClientError;
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
    if args.dry_run {
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
    let options = InstanceOptions {
        fail_fast: args.failure.fail_fast,
        policy: args.policy.options(&plan)?,
        ..args.instance.options()
    };
    let started = Instant::now();
    let mut created = args.instance.create(&access, &options, &plan, args.quiet).await?;
    let mut submission = submission(&plan).await?;
    submission.everywhere = Some(Everywhere { joining: args.joining, ..Everywhere::default() });
    let count = accepted(&mut created, &submission, args.quiet).await?;
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
    receiver.fetch_from(Origin::Executors(Fetching::new(access.level, None, bytes_max)));
    let submitted = if args.joining { Submitted::Joining } else { Submitted::Nothing };
    let Created { id, access, .. } = created;
    let ending = query::follow(&access, id, &mut receiver, submitted, args.quiet).await;
    Ok(finish(&mut receiver, ending, 0, started.elapsed().as_secs_f64(), args.quiet))
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

/// Submits it, over as many connections as that takes. Returns how many tasks it is.
pub(crate) async fn accepted(
    created: &mut Created,
    submission: &Submission,
    quiet: bool,
) -> Result<u64, Exit> {
    let mut waiting = Waiting::new(quiet);
    loop {
        match submit_once(created, submission).await {
            Ok(count) => return Ok(count),
            Err(ClientError::Lost) => created.connect_again().await?,
            Err(error) => waiting.wait(error).await.map_err(Exit::client)?,
        }
    }
}

async fn submit_once(created: &Created, submission: &Submission) -> Result<u64, ClientError> {
    let client = &created.client;
    let pending = client.submit(created.id, TaskId(0), submission.clone()).await?;
    let count = pending.accepted().await?;
    if !submission.everywhere.as_ref().is_some_and(|asked| asked.joining) {
        client.seal(created.id).await?;
    }
    Ok(count)
}
