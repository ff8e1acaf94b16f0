//! `falkon data`: what is in the caches of a dispatcher's executors.

mod broadcast;
mod find;
mod forget;
mod list;
mod mount;
mod name;
mod through;
mod transfer;
mod version;

pub(crate) use find::held_versions;

use crate::access::{AccessArgs, connect, only_instance};
use crate::exit::{Exit, runtime};
use clap::{Args, Subcommand};
use falkon_core::task::InstanceId;
use falkon_net::client::{Client, ClientError};
use falkon_net::secure::{AccessFile, Level};
use std::time::Duration;

/// The longest time until a message of an executor has reached the dispatcher.
const HEARD_MS_MAX: u64 = 5_000;
/// The longest time until an executor below relays has dropped an object that nothing uses, and
/// the dispatcher knows.
const BELOW_MS_MAX: u64 = 15_000;
/// Pause before it is asked again.
const HEARD_PAUSE_MS: u64 = 10;

/// `falkon data`
#[derive(Args, Debug)]
pub(crate) struct DataArgs {
    #[command(subcommand)]
    command: DataCommand,
}

#[derive(Subcommand, Debug)]
enum DataCommand {
    /// List the data objects that the dispatcher knows
    Ls(list::ListArgs),
    /// Show which executors hold objects
    Where(find::WhereArgs),
    /// Put files into caches, for tasks to read as cache:KEY
    Put(transfer::PutArgs),
    /// Bring objects to all executors, ahead of the tasks that read them
    Broadcast(broadcast::BroadcastArgs),
    /// Copy an object from a cache to a file or standard output
    Get(transfer::GetArgs),
    /// Drop objects from caches
    Rm(transfer::RemoveArgs),
    /// Show the objects that are in caches alone as a read-only file system
    Mount(mount::MountArgs),
    /// Say in which version objects are at their sources now
    Version(version::VersionArgs),
    /// Forget what earlier tasks did with large objects of these names
    Forget(forget::ForgetArgs),
}

/// Which dispatcher, and with which rights.
#[derive(Args, Debug, Clone)]
struct Asking {
    #[command(flatten)]
    access: AccessArgs,
    /// Only objects that the tasks of this instance read and write
    #[arg(long, value_name = "ID")]
    instance: Option<u64>,
}

/// Runs the command.
pub(crate) fn data(args: DataArgs) -> Exit {
    match args.command {
        DataCommand::Ls(args) => list::list(args),
        DataCommand::Where(args) => find::locate(&args),
        DataCommand::Put(args) => transfer::put(&args),
        DataCommand::Broadcast(args) => broadcast::broadcast(&args),
        DataCommand::Get(args) => transfer::get(&args),
        DataCommand::Rm(args) => transfer::remove(&args),
        DataCommand::Mount(args) => mount::mount(&args),
        DataCommand::Version(args) => version::version(&args),
        DataCommand::Forget(args) => forget::forget(&args),
    }
}

/// A connection, and what questions over it are about.
#[derive(Debug)]
struct Caches {
    client: Client,
    instance: Option<InstanceId>,
    level: Level,
}

impl Asking {
    /// Connects, asks, and answers with an exit status.
    fn ask<F>(&self, ask: F) -> Exit
    where
        F: AsyncFnOnce(&Caches) -> Result<Exit, Exit>,
    {
        let access: AccessFile = match self.access.load_or_exit() {
            Ok(access) => access,
            Err(exit) => return exit,
        };
        let runtime = match runtime() {
            Ok(runtime) => runtime,
            Err(exit) => return exit,
        };
        // A file that opens one instance and nothing else is about that one.
        let instance = self.instance.map(InstanceId).or_else(|| only_instance(&access));
        runtime.block_on(async {
            let level = access.level;
            match connect(&access, instance).await {
                Ok((client, _deliveries)) => {
                    let caches = Caches { client, instance, level };
                    ask(&caches).await.unwrap_or_else(|exit| exit)
                }
                Err(error) => Exit::client(error),
            }
        })
    }
}

/// Asks until an executor's message has reached the dispatcher; gives up after
/// a while, as the dispatcher may not receive it for other reasons.
async fn until_heard(
    limit_ms: u64,
    mut is_heard: impl AsyncFnMut() -> Result<bool, ClientError>,
) -> Result<(), ClientError> {
    let all = async {
        while !is_heard().await? {
            tokio::time::sleep(Duration::from_millis(HEARD_PAUSE_MS)).await;
        }
        Ok(())
    };
    tokio::time::timeout(Duration::from_millis(limit_ms), all).await.unwrap_or(Ok(()))
}
