//! `falkon provision`: executors from batch schedulers.

mod queue;
mod show;
mod sites;

pub(crate) use queue::from_name;

use crate::access::AccessArgs;
use crate::exit::{Exit, say};
use crate::query::with_client;
use clap::{Args, Subcommand};
use falkon_core::task::AllocationId;
use falkon_net::client::{Client, ClientError};
use falkon_wire::message::Refusal;
use falkon_wire::provision::ProvisionAsk;
use queue::QueueArgs;

/// `falkon provision`
#[derive(Args, Debug)]
pub(crate) struct ProvisionArgs {
    #[command(flatten)]
    access: AccessArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Add a queue of a batch scheduler, which provides executors as tasks need them
    Add(QueueArgs),
    /// List the queues
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show a queue with its allocations and the last decisions about it
    Show {
        /// The queue
        #[arg(value_name = "QUEUE")]
        queue: String,
        /// Lines of the log at most
        #[arg(long, value_name = "N", default_value_t = 20)]
        log: u64,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the log: every decision with its reason
    Log {
        /// Only of this queue
        #[arg(value_name = "QUEUE")]
        queue: Option<String>,
        /// Lines at most
        #[arg(long, value_name = "N", default_value_t = 1000)]
        count: u64,
        /// Print a line of JSON per decision
        #[arg(long)]
        json: bool,
    },
    /// Show which nodes would be requested now, here and below relays, and why; submit nothing
    Plan {
        /// Only of this queue
        #[arg(value_name = "QUEUE")]
        queue: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Make no more requests of a queue; its nodes stay until they are idle
    Pause {
        /// The queue
        #[arg(value_name = "QUEUE")]
        queue: String,
    },
    /// Resume requests of a queue that was paused, by a user or after refusals
    Resume {
        /// The queue
        #[arg(value_name = "QUEUE")]
        queue: String,
    },
    /// Remove a queue: its jobs are cancelled once their tasks have ended
    Remove {
        /// The queue
        #[arg(value_name = "QUEUE")]
        queue: String,
    },
    /// Request nodes now, even without work
    Once(OnceArgs),
    /// Give up one allocation
    Drop {
        /// Its number
        #[arg(value_name = "ALLOCATION")]
        allocation: u64,
    },
}

#[derive(Args, Debug)]
struct OnceArgs {
    #[command(flatten)]
    queue: QueueArgs,
    /// How many nodes
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    nodes: u64,
    /// For how long [default: the queue's --walltime]
    #[arg(long, value_name = "TIME", value_parser = crate::plan::duration_micros)]
    time: Option<u64>,
}

/// Runs the command.
pub(crate) fn provision(args: ProvisionArgs) -> Exit {
    let access = &args.access;
    match args.command {
        Command::Add(queue) => add(access, &queue),
        Command::List { json } => with_client(access, None, async |client: Client| {
            let status = client.provision_status(None, 0).await?;
            Ok(show::list(&status, json))
        }),
        Command::Show { queue, log, json } => with_client(access, None, async |client: Client| {
            let status = client.provision_status(Some(queue), log).await?;
            Ok(show::queue(&status, json))
        }),
        Command::Log { queue, count, json } => with_client(access, None, async |client: Client| {
            let status = client.provision_status(queue, count).await?;
            Ok(show::log(&status, json))
        }),
        Command::Plan { queue, json } => with_client(access, None, async |client: Client| {
            let status = client.provision_status(queue, 0).await?;
            Ok(show::plan(&status, json))
        }),
        Command::Pause { queue } => tell(access, ProvisionAsk::Pause { queue }),
        Command::Resume { queue } => tell(access, ProvisionAsk::Resume { queue }),
        Command::Remove { queue } => tell(access, ProvisionAsk::Remove { queue }),
        Command::Drop { allocation } => {
            tell(access, ProvisionAsk::Drop { allocation: AllocationId(allocation) })
        }
        Command::Once(once) => ask_once(access, once),
    }
}

fn tell(access: &AccessArgs, ask: ProvisionAsk) -> Exit {
    with_client(access, None, async |client: Client| {
        client.provision(ask).await?;
        Ok(Exit::Success)
    })
}

fn add(access: &AccessArgs, queue: &QueueArgs) -> Exit {
    let (name, config) = match queue.config() {
        Ok(made) => made,
        Err(error) => return Exit::usage(error),
    };
    with_client(access, None, async |client: Client| {
        client.provision(ProvisionAsk::Add { name: name.clone(), config }).await?;
        say(format_args!("queue {name} is added: falkon provision show {name} tells how it does"));
        Ok(Exit::Success)
    })
}

/// Of a queue that there is, or of a new one that is asked for nothing else.
fn ask_once(access: &AccessArgs, once: OnceArgs) -> Exit {
    let (nodes, walltime_micros) = (once.nodes, once.time.unwrap_or(0));
    with_client(access, None, async |client: Client| {
        let status = client.provision_status(None, 0).await?;
        let named = once.queue.plain_name();
        let name = match status.queues.iter().find(|queue| queue.name == named) {
            Some(known) => known.name.clone(),
            None => {
                let (name, config) = match once.queue.config_for(nodes) {
                    Ok(made) => made,
                    Err(error) => return Ok(Exit::usage(error)),
                };
                client.provision(ProvisionAsk::Add { name: name.clone(), config }).await?;
                client.provision(ProvisionAsk::Pause { queue: name.clone() }).await?;
                name
            }
        };
        let ask = ProvisionAsk::Once { queue: name.clone(), nodes, walltime_micros };
        match client.provision(ask).await {
            Ok(()) => Ok(Exit::Success),
            Err(ClientError::Refused(Refusal::Provision(why))) => {
                Ok(Exit::usage(format!("queue {name}: {why}")))
            }
            Err(error) => Err(error),
        }
    })
}
