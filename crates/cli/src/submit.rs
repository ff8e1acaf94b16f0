//! `falkon submit`: tasks for a dispatcher that runs already.

use crate::access::{AccessArgs, connect};
use crate::caches::held_versions;
use crate::campaign;
use crate::data::PolicyArgs;
use crate::exit::{Exit, runtime, say};
use crate::notify::NotifyArgs;
use crate::plan::quantity::{KeepFor, duration_micros, keep_for};
use crate::plan::{Plan, PlanArgs};
use crate::query::{self, Reconnect, Submitted};
use crate::results::asked::{OutputArgs, make_sink};
use crate::results::directory::Directory;
use crate::results::line::TEXT_BYTES_MAX;
use crate::results::rest::{Fetching, Origin, WhenAway};
use crate::run::{FailureArgs, dry_run, finish, make_plan, open_directory};
use clap::Args;
use falkon_core::dispatch::{InstanceOptions, Keep};
use falkon_core::task::InstanceId;
use falkon_net::client::{Client, ClientError};
use falkon_net::secure::{AccessFile, Role, Secret};
use std::path::PathBuf;
use std::time::Instant;

/// The instance that is created.
#[derive(Args, Debug, Default)]
pub(crate) struct InstanceArgs {
    /// Name shown to people
    #[arg(long, value_name = "NAME", default_value = "")]
    name: String,
    /// Write an access file that opens this instance and nothing else
    #[arg(long, value_name = "FILE")]
    instance_access: Option<PathBuf>,
    /// How long the results are kept after the last request for them, once all tasks have
    /// ended: 12h, 30d, or forever [default: --keep of the dispatcher]
    #[arg(long, value_name = "TIME", value_parser = keep_for)]
    keep: Option<KeepFor>,
}

/// `falkon submit`
#[derive(Args, Debug)]
pub(crate) struct SubmitArgs {
    #[command(flatten)]
    access: AccessArgs,
    // Options without a heading come first: a heading holds for all that
    // follows it.
    #[command(flatten)]
    instance: InstanceArgs,
    /// Fail tasks when for TIME no executor has offered what they need and no batch scheduler
    /// can provide it [default: they wait; without TIME: 30s]
    #[arg(
        long,
        value_name = "TIME",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "30s",
        value_parser = duration_micros
    )]
    fail_unschedulable: Option<u64>,
    /// Print what would be submitted, and submit nothing
    #[arg(long)]
    dry_run: bool,
    /// Wait until all tasks have ended, and print their results as `falkon run` does
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    plan: PlanArgs,
    #[command(flatten)]
    policy: PolicyArgs,
    #[command(flatten)]
    failure: FailureArgs,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    notify: NotifyArgs,
}

/// Runs the command.
pub(crate) fn submit(mut args: SubmitArgs) -> Exit {
    args.plan.run_where_submitted();
    args.plan.options.reads_held = true;
    let plan = match make_plan(&args.plan, args.output.quiet) {
        Ok(plan) => plan,
        Err(exit) => return exit,
    };
    if args.dry_run {
        let to = args.policy.destination(&plan, None, None);
        return dry_run(&plan, to, args.access.load().ok().as_ref());
    }
    match runtime() {
        Ok(runtime) => runtime.block_on(submit_plan(args, plan)).unwrap_or_else(|exit| exit),
        Err(exit) => exit,
    }
}

async fn submit_plan(args: SubmitArgs, plan: Plan) -> Result<Exit, Exit> {
    let access = args.access.load_or_exit()?;
    args.instance.check(&access, args.wait)?;
    if !args.wait && args.output.measure.is_asked() {
        return Err(Exit::usage("--metrics and --baseline measure what is waited for: add --wait"));
    }
    let notifies = args.notify.is_asked().then_some("--notify");
    if let Some(option) = args.output.waiting().or(notifies).filter(|_| !args.wait) {
        return Err(Exit::usage(format_args!(
            "{option} is about the end of tasks, which is not waited for: add --wait"
        )));
    }
    let (directory, plan, before) = open_directory(&args.output, plan)?;
    if plan.count() == 0 {
        if !args.output.quiet {
            say(format_args!("nothing to do: all {before} tasks have already succeeded"));
        }
        return Ok(Exit::Success);
    }
    let started = Instant::now();
    let (instance, own_access) = create_and_submit(&args, &access, &plan).await?;
    if !args.wait {
        return Ok(query::print(&format!("{instance}\n")).unwrap_or(Exit::Success));
    }
    let with_digests = directory.is_some();
    let overflow = directory.as_ref().map(Directory::overflow);
    let sink = make_sink(&args.output, directory, &plan)?;
    let progress = crate::progress::Progress::new(plan.count(), !args.output.quiet);
    let mut receiver = campaign::Receiver::new(Some(&plan), sink, progress, with_digests);
    receiver.measure(&args.output.measure);
    if args.output.describes() {
        receiver.describe_tasks();
    }
    let only_json = args.output.json && overflow.is_none();
    let bytes_max = if only_json { TEXT_BYTES_MAX } else { u64::MAX };
    let quiet = args.output.quiet;
    let away = WhenAway::Wait { quiet };
    let fetching = Fetching::new(access.level, overflow, bytes_max, away);
    receiver.fetch_from(Origin::Executors(fetching));
    // Not the owner's access: if the journal is gone, the number may be another's.
    let ending = {
        let submitted = Submitted::Plan(&plan);
        query::follow(&own_access, instance, &mut receiver, submitted, quiet).await
    };
    let seconds = started.elapsed().as_secs_f64();
    Ok(args.notify.after(finish(&mut receiver, ending, before, seconds, args.output.quiet)))
}

/// Creates an instance and submits everything to it, over as many connections
/// as that takes. Returns also an access file for the instance alone.
async fn create_and_submit(
    args: &SubmitArgs,
    access: &AccessFile,
    plan: &Plan,
) -> Result<(InstanceId, AccessFile), Exit> {
    let options = InstanceOptions {
        fail_unschedulable_micros: args.fail_unschedulable,
        fail_fast: args.failure.fail_fast,
        policy: args.policy.options(plan)?,
        ..args.instance.options()
    };
    let quiet = args.output.quiet;
    let mut created = args.instance.create(access, &options, plan, quiet).await?;
    let mut accepted = 0;
    let mut waiting = campaign::Waiting::new(quiet);
    loop {
        let client = &created.client;
        match campaign::submit(client, created.id, plan, &mut accepted, &mut waiting).await {
            Ok(()) => return Ok((created.id, created.access)),
            Err(ClientError::Lost) => created.connect_again().await?,
            Err(error) => return Err(Exit::client(error)),
        }
    }
}

/// An instance that was created, and a connection to its dispatcher.
pub(crate) struct Created {
    pub(crate) id: InstanceId,
    pub(crate) client: Client,
    /// An access file for the instance alone.
    pub(crate) access: AccessFile,
    reconnect: Reconnect,
}

impl Created {
    /// Connects again after a connection was lost.
    pub(crate) async fn connect_again(&mut self) -> Result<(), Exit> {
        let connected = self.reconnect.connect(&self.access, Some(self.id)).await;
        (self.client, _) = connected.map_err(Exit::client)?;
        Ok(())
    }
}

impl InstanceArgs {
    /// An instance of this name.
    pub(crate) fn named(name: &str) -> InstanceArgs {
        InstanceArgs { name: name.to_owned(), ..InstanceArgs::default() }
    }

    /// Whether the results can be fetched with this access file, by a command that
    /// `waits` for them or later.
    pub(crate) fn check(&self, access: &AccessFile, waits: bool) -> Result<(), Exit> {
        let owner = access.roles().any(|role| role == Role::Owner);
        let client = access.roles().any(|role| role == Role::Client);
        if client && !owner && self.instance_access.is_none() && !waits {
            return Err(Exit::usage(
                "this access file can create instances but not open them later: keep the new \
                 instance's own with --instance-access FILE, or wait for the results",
            ));
        }
        Ok(())
    }

    /// The options of the instance, as far as they are decided here.
    pub(crate) fn options(&self) -> InstanceOptions {
        InstanceOptions {
            name: self.name.clone(),
            keep_results: true,
            // A client may come back for the results at any time.
            lease_micros: None,
            keep: self.keep.map_or(Keep::AsDispatcher, |KeepFor(time)| {
                time.map_or(Keep::Forever, Keep::Micros)
            }),
            ..InstanceOptions::default()
        }
    }

    /// Creates it, for the tasks of `plan`.
    pub(crate) async fn create(
        &self,
        access: &AccessFile,
        options: &InstanceOptions,
        plan: &Plan,
        quiet: bool,
    ) -> Result<Created, Exit> {
        let (mut client, _) = connect(access, None).await.map_err(Exit::client)?;
        plan.set_held(held_versions(&client, plan.held()).await?);
        let mut waiting = campaign::Waiting::new(quiet);
        let mut reconnect = Reconnect::new(quiet);
        let (id, secret) = loop {
            match waiting.create(&client, options).await {
                Ok(created) => break created,
                // An instance whose number did not arrive is empty, and expires.
                Err(ClientError::Lost) => {
                    (client, _) = reconnect.connect(access, None).await.map_err(Exit::client)?;
                }
                Err(error) => return Err(Exit::client(error)),
            }
        };
        let secret: [u8; 32] = secret
            .try_into()
            .map_err(|_| Exit::failure("the dispatcher gave the instance no usable secret"))?;
        let own_access = access.for_instance(id.0, Secret::from_bytes(secret));
        if let Some(path) = &self.instance_access {
            own_access.write(path).map_err(Exit::usage)?;
        }
        Ok(Created { id, client, access: own_access, reconnect })
    }
}
