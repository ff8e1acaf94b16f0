//! Why a benchmark could not be run.

use crate::program::NoProgram;
use falkon_core::dispatch::diffusion::PolicyError;
use falkon_executor::ExecutorError;
use falkon_net::client::ClientError;
use falkon_net::secure::AccessError;
use falkon_process::{HostError, HostLost, LaunchError};
use std::io;

/// Why a benchmark could not be run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchError {
    /// Something of the system failed.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// A service that was started here has ended, or is not ready in time.
    #[error("the {what} that was started to be measured is not there; it said:\n{log}")]
    Service {
        /// The subject.
        what: &'static str,
        /// The end of what it logged.
        log: String,
    },
    /// There is nothing to measure.
    #[error(transparent)]
    NoProgram(#[from] NoProgram),
    /// The dispatcher refuses, or is gone.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// Tasks did not end as they must.
    #[error("{done} of {expected} tasks succeeded, the others did not")]
    Results {
        /// How many should have succeeded.
        expected: u64,
        /// How many did.
        done: u64,
    },
    /// A program that is measured failed.
    #[error("{0} failed; run it by hand to see why")]
    Program(&'static str),
    /// There is no access file to go by.
    #[error(transparent)]
    Access(AccessError),
    /// An emulated executor cannot go on.
    #[error(transparent)]
    Executor(ExecutorError),
    /// The process host cannot be started.
    #[error(transparent)]
    Host(HostError),
    /// The process host refuses tasks.
    #[error(transparent)]
    Launch(LaunchError),
    /// The process host is gone.
    #[error(transparent)]
    HostLost(HostLost),
    /// There is no such dispatch policy.
    #[error(transparent)]
    Policy(PolicyError),
}

impl BenchError {
    /// For `map_err`: says what was tried.
    pub(crate) fn system(what: &'static str) -> impl Fn(io::Error) -> BenchError {
        move |source| BenchError::System { what, source }
    }
}
