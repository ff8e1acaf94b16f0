//! The process host with real processes. The test executes itself again as the host and as
//! executors that are killed, so it has a `main` of its own:
//! `cargo test --test process [-- NAME_PART]`.

#![allow(clippy::unwrap_used, reason = "a test may fail at once")]

mod process {
    pub(crate) mod copies;
    pub(crate) mod ends;
    pub(crate) mod memory;
    pub(crate) mod orphans;
    pub(crate) mod outputs;
    pub(crate) mod rig;
}

use std::process::ExitCode;

use falkon_process::{HOST_ARGUMENT, host_main};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some(HOST_ARGUMENT) => return host_main(),
        Some(process::memory::MAPPER_ARGUMENT) => process::memory::map(&arguments[1..]),
        Some(process::orphans::EXECUTOR_ARGUMENT) => process::orphans::executor(&arguments[1..]),
        _ => {}
    }
    falkon_trials::one_by_one()
}
