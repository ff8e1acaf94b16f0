//! `falkon pause`, `falkon resume`, `falkon drain` and `falkon undrain`: what is held up
//! until somebody lets it go on; and `falkon priority`: what goes first.

use super::{named_instance, with_client};
use crate::access::AccessArgs;
use crate::exit::Exit;
use clap::Args;
use falkon_core::task::ExecutorId;
use falkon_net::client::{Client, ClientError};
use falkon_wire::message::ExecutorStatus;
use std::collections::BTreeSet;
use std::time::Duration;

/// First and longest pause before looking again whether executors have any tasks.
const LOOK_AGAIN: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(2));

/// `falkon pause` and `falkon resume`
#[derive(Args, Debug)]
pub(crate) struct PauseArgs {
    #[command(flatten)]
    access: AccessArgs,
    /// The instances, by their numbers or names
    #[arg(value_name = "INSTANCE", required = true)]
    instances: Vec<String>,
}

pub(crate) fn pause(args: PauseArgs, is_paused: bool) -> Exit {
    let only = match args.instances.as_slice() {
        [one] => one.parse().ok(),
        _ => None,
    };
    with_client(&args.access, only, async |client: Client| {
        for name in &args.instances {
            match named_instance(&client, name).await? {
                Ok(instance) => client.pause(instance, is_paused).await?,
                Err(exit) => return Ok(exit),
            }
        }
        Ok(Exit::Success)
    })
}

/// `falkon priority`
#[derive(Args, Debug)]
pub(crate) struct PriorityArgs {
    #[command(flatten)]
    access: AccessArgs,
    /// The instance, by its number or name
    #[arg(value_name = "INSTANCE")]
    instance: String,
    /// Its priority from now on: 0 is that of others, more goes first
    #[arg(value_name = "N", allow_negative_numbers = true)]
    priority: i32,
}

pub(crate) fn priority(args: PriorityArgs) -> Exit {
    with_client(&args.access, args.instance.parse().ok(), async |client: Client| {
        match named_instance(&client, &args.instance).await? {
            Ok(instance) => client.prioritize(instance, args.priority).await?,
            Err(exit) => return Ok(exit),
        }
        Ok(Exit::Success)
    })
}

/// `falkon drain`
#[derive(Args, Debug)]
pub(crate) struct DrainArgs {
    #[command(flatten)]
    executors: ExecutorsArgs,
    /// Wait until they have no tasks, or are gone
    #[arg(long)]
    wait: bool,
}

/// `falkon undrain`
#[derive(Args, Debug)]
pub(crate) struct ExecutorsArgs {
    #[command(flatten)]
    access: AccessArgs,
    /// The executors, by their numbers or names
    #[arg(value_name = "EXECUTOR", required = true)]
    executors: Vec<String>,
}

pub(crate) fn drain(args: DrainArgs) -> Exit {
    let ExecutorsArgs { access, executors } = args.executors;
    with_client(&access, None, async |client: Client| {
        match set_drained(&client, &executors, true).await? {
            Ok(drained) if args.wait => wait_idle(&client, &drained).await?,
            Ok(_) => {}
            Err(exit) => return Ok(exit),
        }
        Ok(Exit::Success)
    })
}

pub(crate) fn undrain(args: ExecutorsArgs) -> Exit {
    with_client(&args.access, None, async |client: Client| {
        let drained = set_drained(&client, &args.executors, false).await?;
        Ok(drained.err().unwrap_or(Exit::Success))
    })
}

/// Drains executors, or ends that, once each of them is known.
async fn set_drained(
    client: &Client,
    names: &[String],
    is_drained: bool,
) -> Result<Result<BTreeSet<ExecutorId>, Exit>, ClientError> {
    let there = client.status(None).await?.executors;
    let mut wanted = BTreeSet::new();
    for name in names {
        match named(&there, name) {
            Ok(executor) => wanted.insert(executor),
            Err(exit) => return Ok(Err(exit)),
        };
    }
    for executor in &wanted {
        client.drain(*executor, is_drained).await?;
    }
    Ok(Ok(wanted))
}

/// The executor of a number or a name.
fn named(there: &[ExecutorStatus], text: &str) -> Result<ExecutorId, Exit> {
    let number = text.parse().ok().map(ExecutorId);
    let found =
        there.iter().filter(|executor| Some(executor.id) == number || executor.name == text);
    let found: Vec<ExecutorId> = found.map(|executor| executor.id).collect();
    match found.as_slice() {
        [one] => Ok(*one),
        [] => Err(Exit::usage(format!(
            "there is no executor {text:?}: falkon status shows those that are there"
        ))),
        many => {
            let numbers: Vec<String> = many.iter().map(ToString::to_string).collect();
            Err(Exit::usage(format!(
                "several executors are named {text:?}: give the number of one ({})",
                numbers.join(", ")
            )))
        }
    }
}

async fn wait_idle(client: &Client, drained: &BTreeSet<ExecutorId>) -> Result<(), ClientError> {
    let mut pause = LOOK_AGAIN.0;
    loop {
        let there = client.status(None).await?.executors;
        let is_busy =
            |executor: &ExecutorStatus| executor.tasks > 0 && drained.contains(&executor.id);
        if !there.iter().any(is_busy) {
            return Ok(());
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LOOK_AGAIN.1);
    }
}
