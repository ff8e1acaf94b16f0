//! `falkon executor`: runs a dispatcher's tasks on this machine.

use super::log_to_stderr;
use crate::access::AccessArgs;
use crate::data::CacheArgs;
use crate::embedded::memory;
use crate::embedded::{cpus, hostname};
use crate::exit::{Exit, runtime, say};
use crate::run::{Interrupts, leave_cache, new_scratch};
use crate::workers::WorkerArgs;
use clap::Args;
use falkon_core::task::{MILLI, Resources};
use falkon_node::client::ClientError;
use falkon_node::executor::{self, ExecutorError, Link};
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::oneshot;

/// `falkon executor`
#[derive(Args, Debug)]
pub(crate) struct ExecutorArgs {
    #[command(flatten)]
    access: AccessArgs,
    /// Tasks of one CPU side by side [default: one per CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    slots: Option<u32>,
    /// GPUs offered [default: those of CUDA_VISIBLE_DEVICES]
    #[arg(long, value_name = "N")]
    gpus: Option<u32>,
    /// Memory offered [default: all of this machine's]
    #[arg(long, value_name = "SIZE", value_parser = crate::plan::memory_bytes)]
    memory: Option<u64>,
    /// A custom resource offered; may be repeated
    #[arg(long, value_name = "NAME=COUNT", value_parser = crate::plan::resource)]
    resource: Vec<(String, u64)>,
    /// Name shown to people [default: host and process]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Directory for output that is too long to be sent [default: a new one in
    /// the temporary directory]
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,
    #[command(flatten)]
    cache: CacheArgs,
    /// Bytes of each output stream that are sent with a result
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 10)]
    capture: u64,
    #[command(flatten)]
    workers: WorkerArgs,
    /// End when the dispatcher was out of reach for so long [default: never]
    #[arg(long, value_name = "TIME", value_parser = crate::plan::duration_micros)]
    give_up: Option<u64>,
}

/// Runs the command.
pub(crate) fn executor(args: ExecutorArgs) -> Exit {
    match runtime() {
        Ok(runtime) => runtime.block_on(serve(args)).unwrap_or_else(|exit| exit),
        Err(exit) => exit,
    }
}

async fn serve(args: ExecutorArgs) -> Result<Exit, Exit> {
    let access = args.access.load_or_exit()?;
    let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
    let visible = visible.map_or(0, |list| list.split(',').filter(|gpu| !gpu.is_empty()).count());
    let mut custom = args.resource;
    custom.sort();
    let capacity = Resources {
        cpus_milli: args.slots.unwrap_or_else(cpus).saturating_mul(MILLI),
        gpus: args.gpus.unwrap_or(visible as u32),
        memory_bytes: args.memory.unwrap_or_else(memory),
        custom,
    };
    let scratch = match args.scratch {
        None => new_scratch("falkon-executor")?,
        Some(scratch) => {
            std::fs::create_dir_all(&scratch).map_err(|error| {
                Exit::usage(format!("cannot create {}: {error}", scratch.display()))
            })?;
            scratch
        }
    };
    let cache = args.cache.setup(&scratch)?;
    let options = executor::Options {
        name: args.name.unwrap_or_else(|| format!("{}:{}", hostname(), std::process::id())),
        capacity,
        scratch: scratch.clone(),
        capture_bytes_max: args.capture,
        workers: args.workers.options(),
        give_up: args.give_up.map(Duration::from_micros),
        log: log_to_stderr(),
        cache: Some(cache.clone()),
    };
    let (leave, leaving) = oneshot::channel();
    let mut running =
        std::pin::pin!(executor::run(options, Link::Access(Box::new(access)), leaving));
    let mut interrupts = Interrupts::new();
    let mut leave = Some(leave);
    let result = loop {
        tokio::select! {
            result = &mut running => break result,
            () = interrupts.next() => match leave.take() {
                Some(leave) => {
                    say("leaving when what runs has ended (once more to leave at once)");
                    // It hears this unless it has ended, which the other branch sees.
                    let _ = leave.send(());
                }
                None => break Ok(()),
            },
        }
    };
    leave_cache(Some(cache), &scratch);
    // Output that results refer to stays.
    let _ = std::fs::remove_dir(&scratch);
    match result {
        Ok(()) => Ok(Exit::Success),
        Err(ExecutorError::Connect(error)) => Err(Exit::client(ClientError::Connect(error))),
        Err(error) => Err(Exit::failure(error)),
    }
}
