//! Drivers of batch schedulers: against the real daemons, which the tests
//! start, and against recorded answers.

#![allow(clippy::unwrap_used, reason = "a test may fail at once")]

mod answers;
mod cluster;
mod gridengine;
mod kubernetes;
mod local;
mod slurm;
mod ssh;

fn main() -> std::process::ExitCode {
    falkon_trials::main()
}
