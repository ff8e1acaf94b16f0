//! The command line `falkon`.
//!
//! Exit status: 0 everything succeeded, 1 some tasks failed or were cancelled,
//! 2 the command line or its files are wrong and nothing ran, 3 Falkon itself
//! failed.

// They panic when nobody reads.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod access;
mod amount;
mod bench;
mod caches;
mod campaign;
mod data;
mod description;
mod embedded;
mod exit;
mod memory;
mod model;
mod objects;
mod pipe;
mod place;
mod plan;
mod progress;
mod provision;
mod query;
mod results;
mod run;
mod scratch;
mod service;
mod sim;
mod submit;
mod workers;

use clap::{CommandFactory, Parser, Subcommand};
use exit::Exit;
use std::process::ExitCode;

/// Runs very many short tasks on whatever machines there are.
///
/// `falkon run` needs nothing else: it runs tasks on this machine. To use many
/// machines, start a dispatcher (`falkon start`), executors on the machines
/// (`falkon executor`), and submit (`falkon submit`).
///
/// Exit status: 0 all tasks succeeded; 1 some failed or were cancelled; 2 the
/// command line or a file it names is wrong, nothing ran; 3 Falkon itself
/// failed.
#[derive(Parser, Debug)]
#[command(name = "falkon", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Run tasks here and now; nothing has to be started first
    Run(Box<run::RunArgs>),
    /// Start a dispatcher
    Start(service::start::StartArgs),
    /// Start an executor: it runs a dispatcher's tasks on this machine
    Executor(service::executor::ExecutorArgs),
    /// Submit tasks to a dispatcher; prints the instance they belong to
    Submit(Box<submit::SubmitArgs>),
    /// Wait until an instance's tasks have ended
    Wait(query::WaitArgs),
    /// Show a dispatcher's instances and executors
    Status(query::StatusArgs),
    /// Show the tasks of an instance
    Tasks(query::TasksArgs),
    /// Print an instance's results as they come
    Results(query::ResultsArgs),
    /// Cancel an instance's tasks
    Cancel(query::CancelArgs),
    /// Free an instance with its tasks and results
    Destroy(query::DestroyArgs),
    /// Get executors from batch schedulers, as tasks ask for them
    Provision(Box<provision::ProvisionArgs>),
    /// Stop a dispatcher; started again with the same directory it goes on
    Stop(query::StopArgs),
    /// See, put, get and drop data objects in executors' caches
    Data(caches::DataArgs),
    /// Speak the protocol with the program that started this one
    Pipe(pipe::PipeArgs),
    /// Estimate how a workload would do on a machine (the abstract model)
    Model(model::ModelArgs),
    /// Run a scenario on a simulated machine
    Sim(sim::SimArgs),
    /// Measure how fast Falkon is on this machine
    Bench(bench::BenchArgs),
    /// Print a completion script for a shell
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
}

fn main() -> ExitCode {
    // The process host and concentrators are this program, executed again by
    // itself.
    match std::env::args_os().nth(1).as_ref().and_then(|argument| argument.to_str()) {
        Some(falkon_node::process::HOST_ARGUMENT) => return falkon_node::process::host_main(),
        Some(falkon_node::concentrator::CONCENTRATOR_ARGUMENT) => {
            return falkon_node::concentrator::concentrator_main();
        }
        _ => {}
    }
    memory::keep_buffers();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are errors to clap, and success to the user.
            let exit = if error.use_stderr() { Exit::Usage } else { Exit::Success };
            // Nobody may be reading.
            let _ = error.print();
            return exit.into();
        }
    };
    let exit = match cli.command {
        Command::Run(args) => run::run(*args),
        Command::Start(args) => service::start::start(args),
        Command::Executor(args) => service::executor::executor(args),
        Command::Submit(args) => submit::submit(*args),
        Command::Wait(args) => query::wait(args),
        Command::Status(args) => query::status(args),
        Command::Tasks(args) => query::tasks(args),
        Command::Results(args) => query::results(args),
        Command::Cancel(args) => query::cancel(args),
        Command::Destroy(args) => query::destroy(args),
        Command::Provision(args) => provision::provision(*args),
        Command::Stop(args) => query::stop(args),
        Command::Data(args) => caches::data(args),
        Command::Sim(args) => sim::sim(&args),
        Command::Pipe(args) => pipe::pipe(args),
        Command::Model(args) => model::model(&args),
        Command::Bench(args) => bench::bench(args),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "falkon", &mut script);
            query::print(&String::from_utf8_lossy(&script)).unwrap_or(Exit::Success)
        }
    };
    service::log::flush();
    exit.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_stand_under_the_heading_that_is_theirs() {
        let cli = Cli::command();
        let heading = |command: &str, option: &str| {
            let command = cli.find_subcommand(command).unwrap();
            let found = command.get_arguments().find(|found| found.get_long() == Some(option));
            found.unwrap().get_help_heading().map(str::to_owned)
        };
        for (command, options) in [
            ("run", &["dry-run", "every-copy"][..]),
            ("submit", &["access", "name", "instance-access", "dry-run", "wait"]),
            (
                "executor",
                &["capture", "give-up", "walltime", "leave-before", "idle-exit", "name", "slots"],
            ),
        ] {
            for option in options {
                assert_eq!(heading(command, option), None, "{command} --{option}");
            }
        }
        for (heading_of, options) in [
            ("Failures", &["keep-going", "fail-fast"][..]),
            ("This machine", &["jobs", "offer-gpus", "offer"]),
            ("Functions", &["preload", "worker"]),
            ("Results", &["out", "json", "capture"]),
            ("Tasks", &["call", "language", "shell"]),
        ] {
            for option in options {
                assert_eq!(heading("run", option).as_deref(), Some(heading_of), "--{option}");
            }
        }
    }
}
