//! The laboratory, `falkon-lab`: what measures Falkon, and runs the papers'
//! experiments. Users need none of it.

// They panic when nobody reads.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod bench;
mod papers;
mod program;

use clap::{Parser, Subcommand};
use falkon_cli::exit::Exit;
use std::process::ExitCode;

/// Measures Falkon, and runs the experiments of its papers.
///
/// Benchmarks start the falkon next to this program, or the one that the variable FALKON names.
#[derive(Parser, Debug)]
#[command(name = "falkon-lab", version, max_term_width = 100)]
struct Lab {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Measure how fast Falkon is on this machine
    Bench(bench::BenchArgs),
    /// Run the papers' experiments on simulated machines, and print each row next to the
    /// paper's values
    Papers(papers::PapersArgs),
}

fn main() -> ExitCode {
    if let Some(exit) = falkon_cli::machine::begin() {
        return exit;
    }
    let lab = match Lab::try_parse() {
        Ok(lab) => lab,
        Err(error) => {
            // Help and version are errors to clap, and success to the user.
            let exit = if error.use_stderr() { Exit::Usage } else { Exit::Success };
            // Nobody may be reading.
            let _ = error.print();
            return exit.into();
        }
    };
    let exit = match lab.command {
        Command::Bench(args) => bench::bench(args),
        Command::Papers(args) => papers::papers(&args),
    };
    exit.into()
}
