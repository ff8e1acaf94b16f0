//! Why a benchmark could not be run.

use falkon_core::dispatch::diffusion::PolicyError;
use falkon_node::client::ClientError;
use falkon_node::executor::ExecutorError;
use falkon_node::process::{HostError, HostLost, LaunchError};
use falkon_node::secure::AccessError;
use std::fmt;
use std::io;

/// Why a benchmark could not be run.
#[derive(Debug)]
pub(crate) enum BenchError {
    /// Something of the system failed.
    System {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// A service that was started here has ended, or is not ready in time.
    Service {
        /// The subject.
        what: &'static str,
        /// The end of what it logged.
        log: String,
    },
    /// The dispatcher refuses, or is gone.
    Client(ClientError),
    /// Tasks did not end as they must.
    Results {
        /// How many should have succeeded.
        expected: u64,
        /// How many did.
        done: u64,
    },
    /// A program that is measured failed.
    Program(&'static str),
    /// There is no access file to go by.
    Access(AccessError),
    /// An emulated executor cannot go on.
    Executor(ExecutorError),
    /// The process host cannot be started.
    Host(HostError),
    /// The process host refuses tasks.
    Launch(LaunchError),
    /// The process host is gone.
    HostLost(HostLost),
    /// There is no such dispatch policy.
    Policy(PolicyError),
}

impl fmt::Display for BenchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BenchError::System { what, source } => write!(f, "cannot {what}: {source}"),
            BenchError::Service { what, log } => {
                write!(
                    f,
                    "the {what} that was started to be measured is not there; it said:\n{log}"
                )
            }
            BenchError::Client(error) => write!(f, "{error}"),
            BenchError::Policy(error) => write!(f, "{error}"),
            BenchError::Results { expected, done } => {
                write!(f, "{done} of {expected} tasks succeeded, the others did not")
            }
            BenchError::Program(name) => {
                write!(f, "{name} failed; run it by hand to see why")
            }
            BenchError::Access(error) => write!(f, "{error}"),
            BenchError::Executor(error) => write!(f, "{error}"),
            BenchError::Host(error) => write!(f, "{error}"),
            BenchError::Launch(error) => write!(f, "{error}"),
            BenchError::HostLost(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for BenchError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            BenchError::System { source, .. } => Some(source),
            BenchError::Client(error) => Some(error),
            BenchError::Access(error) => Some(error),
            BenchError::Executor(error) => Some(error),
            BenchError::Host(error) => Some(error),
            BenchError::Launch(error) => Some(error),
            BenchError::HostLost(error) => Some(error),
            BenchError::Policy(error) => Some(error),
            BenchError::Service { .. } | BenchError::Results { .. } | BenchError::Program(_) => {
                None
            }
        }
    }
}

impl From<ClientError> for BenchError {
    fn from(error: ClientError) -> BenchError {
        BenchError::Client(error)
    }
}

impl BenchError {
    /// For `map_err`: says what was tried.
    pub(crate) fn system(what: &'static str) -> impl Fn(io::Error) -> BenchError {
        move |source| BenchError::System { what, source }
    }
}
