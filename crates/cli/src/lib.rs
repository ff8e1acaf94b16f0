//! The command line `falkon`, and what of it the laboratory shares: scenario
//! files, access files, exit statuses.
//!
//! Exit status: 0 everything succeeded, 1 some tasks failed or were cancelled,
//! 2 the command line or its files are wrong and nothing ran, 3 Falkon itself
//! failed.

// These macros panic when the stream is closed.
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod access;
mod amount;
mod archive;
mod bench;
mod blocks;
mod caches;
mod campaign;
mod charts;
mod clusters;
mod config;
mod data;
mod description;
mod embedded;
mod events;
mod everywhere;
pub mod exit;
mod halt;
pub mod machine;
mod model;
mod mounting;
mod named_file;
mod nodes;
mod notify;
mod objects;
mod pipe;
mod plan;
mod progress;
mod provision;
mod query;
mod report;
mod results;
mod rsh;
mod run;
mod scratch;
mod service;
pub mod sim;
mod submit;
mod top;
mod users;
mod ways;
mod web;
mod workers;

pub use query::print;
pub use service::start::SecurityLevel;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use exit::Exit;
use falkon_net::secure::Versions;
use std::process::ExitCode;

/// Runs many short tasks on one machine or many.
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
    /// Configuration file with values for options [default: $FALKON_CONFIG, else
    /// /etc/falkon/falkon.toml and ~/.config/falkon/falkon.toml]
    #[arg(long, value_name = "FILE")]
    config: Option<std::path::PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Run tasks on this machine, without any service
    Run(Box<run::RunArgs>),
    /// Start a dispatcher
    Start(service::start::StartArgs),
    /// Start a relay: a dispatcher whose executors run the tasks of another dispatcher
    Relay(Box<service::relay::RelayArgs>),
    /// Start an executor: it runs a dispatcher's tasks on this machine
    Executor(service::executor::ExecutorArgs),
    /// Submit tasks to a dispatcher; prints the instance they belong to
    Submit(Box<submit::SubmitArgs>),
    /// Run a command once on each executor of a dispatcher
    Everywhere(Box<everywhere::EverywhereArgs>),
    /// Wait until an instance's tasks have ended
    Wait(query::WaitArgs),
    /// Show a dispatcher's instances and executors
    Status(query::StatusArgs),
    /// Show the tasks of an instance
    Tasks(query::TasksArgs),
    /// Say why tasks wait, how a task ended, or why slots of executors are idle
    Explain(query::ExplainArgs),
    /// Open the dispatcher's page in a browser, or print the link to it
    Web(web::WebArgs),
    /// Print what a task has written, while it runs
    Tail(query::TailArgs),
    /// Show what happened: on a running dispatcher, or in a run that is over
    Log(events::LogArgs),
    /// Write what happened for other programs
    Export(events::ExportArgs),
    /// Say how a run went: where its time went, what failed, what was slow
    Report(report::ReportArgs),
    /// Simulate a run that took place, on its executors and on others
    Replay(sim::ReplayArgs),
    /// Find the smallest machine on which a run or a scenario meets a deadline
    Plan(sim::PlanArgs),
    /// Watch instances and executors on a terminal; pause, cancel and drain them
    Top(top::TopArgs),
    /// Print an instance's results as they arrive
    Results(query::ResultsArgs),
    /// Send no more tasks of an instance to executors; those that are there go on
    Pause(query::PauseArgs),
    /// Let a paused instance go on
    Resume(query::PauseArgs),
    /// Have an instance go before others, or after
    Priority(query::PriorityArgs),
    /// Give executors no more tasks; what they run goes on
    Drain(query::DrainArgs),
    /// Give executors tasks again that were drained
    Undrain(query::ExecutorsArgs),
    /// Cancel an instance's tasks: those that are chosen, else all, and it accepts no more
    Cancel(query::CancelArgs),
    /// Run failed tasks of an instance again, in their places
    Retry(query::RetryArgs),
    /// Remove an instance with its tasks and results
    Destroy(query::DestroyArgs),
    /// Get executors from batch schedulers, as tasks need them
    Provision(Box<provision::ProvisionArgs>),
    /// Add, change, revoke and list the users of a dispatcher
    User(users::UserArgs),
    /// Stop a dispatcher; it continues when started again with the same directory
    Stop(query::StopArgs),
    /// Replace a running dispatcher, or relay, by a new program; its tasks go on
    Restart(query::RestartArgs),
    /// List, put, get and drop data objects in executors' caches
    Data(caches::DataArgs),
    /// List, print, copy, check, join and create archives of many small files
    Archive(archive::ArchiveArgs),
    /// Start a process on another node of the same task
    Rsh(rsh::RshArgs),
    /// Relay the protocol for the program that started this one
    Pipe(pipe::PipeArgs),
    /// Estimate the time of a workload on a machine (the abstract model)
    Model(model::ModelArgs),
    /// Run a scenario on a simulated machine
    Sim(sim::SimArgs),
    /// Measure how fast Falkon is on this machine
    Bench(bench::BenchArgs),
    /// Check and show the configuration, which has values for options
    Config(config::ConfigArgs),
    /// Print a completion script for a shell
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page of the program, or write one for each command into a directory
    Man {
        /// The directory, which must exist [default: print falkon(1)]
        dir: Option<std::path::PathBuf>,
    },
}

/// Runs the program.
#[must_use]
pub fn main() -> ExitCode {
    if let Some(exit) = machine::begin() {
        return exit;
    }
    if let Err(error) = Versions::of_process() {
        return Exit::usage(error).into();
    }
    let command = match config::with_defaults(Cli::command()) {
        Ok(command) => command,
        Err(error) => return Exit::usage(error).into(),
    };
    let parsed = command.try_get_matches().and_then(|matches| {
        let mut cli = Cli::from_arg_matches(&matches)?;
        if let (Command::Run(args), Some((_, run))) = (&mut cli.command, matches.subcommand()) {
            args.nodes.pass_on(run);
        }
        Ok(cli)
    });
    let cli = match parsed {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are errors to clap, and success to the user.
            let exit = if error.use_stderr() { Exit::Usage } else { Exit::Success };
            // The stream may be closed.
            let _ = clusters::with_tip(error).print();
            return exit.into();
        }
    };
    let exit = match cli.command {
        Command::Run(args) => run::run(*args),
        Command::Start(args) => service::start::start(args),
        Command::Relay(args) => service::relay::relay(*args),
        Command::Executor(args) => service::executor::executor(args),
        Command::Submit(args) => submit::submit(*args),
        Command::Everywhere(args) => everywhere::everywhere(*args),
        Command::Wait(args) => query::wait(args),
        Command::Status(args) => query::status(args),
        Command::Tasks(args) => query::tasks(args),
        Command::Explain(args) => query::explain(args),
        Command::Web(args) => web::web(args),
        Command::Tail(args) => query::tail(args),
        Command::Log(args) => events::log(args),
        Command::Export(args) => events::export(args),
        Command::Report(args) => report::report(args),
        Command::Replay(args) => sim::replay(args),
        Command::Plan(args) => sim::plan(&args),
        Command::Rsh(args) => return rsh::rsh(args),
        Command::Top(args) => top::top(args),
        Command::Results(args) => query::results(args),
        Command::Pause(args) => query::pause(args, true),
        Command::Priority(args) => query::priority(args),
        Command::Resume(args) => query::pause(args, false),
        Command::Drain(args) => query::drain(args),
        Command::Undrain(args) => query::undrain(args),
        Command::Cancel(args) => query::cancel(args),
        Command::Retry(args) => query::retry(args),
        Command::Destroy(args) => query::destroy(args),
        Command::Provision(args) => provision::provision(*args),
        Command::User(args) => users::user(args),
        Command::Stop(args) => query::stop(args),
        Command::Restart(args) => query::restart(args),
        Command::Data(args) => caches::data(args),
        Command::Archive(args) => archive::archive(args),
        Command::Sim(args) => sim::sim(&args),
        Command::Pipe(args) => pipe::pipe(args),
        Command::Model(args) => model::model(&args),
        Command::Bench(args) => bench::bench(&args),
        Command::Config(args) => config::config(args, &Cli::command(), cli.config),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "falkon", &mut script);
            query::print(&String::from_utf8_lossy(&script)).unwrap_or(Exit::Success)
        }
        Command::Man { dir: None } => print_manual(),
        Command::Man { dir: Some(dir) } => write_manual(&dir),
    };
    service::log::flush();
    exit.into()
}

/// Prints the page that [`write_manual`] writes for the program, which lists all commands.
fn print_manual() -> Exit {
    let program = Cli::command().disable_help_subcommand(true);
    let mut page = Vec::new();
    match clap_mangen::Man::new(program).render(&mut page) {
        Ok(()) => query::print(&String::from_utf8_lossy(&page)).unwrap_or(Exit::Success),
        Err(error) => Exit::failure(format_args!("cannot render the manual page: {error}")),
    }
}

fn write_manual(dir: &std::path::Path) -> Exit {
    match clap_mangen::generate_to(Cli::command(), dir) {
        Ok(()) => Exit::Success,
        Err(error) => {
            let dir = dir.display();
            Exit::usage(format_args!("cannot write the manual pages into {dir}: {error}"))
        }
    }
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
            ("everywhere", &["access", "name", "joining", "no-wait", "json", "quiet"]),
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
