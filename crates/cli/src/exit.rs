//! Exit statuses, and how errors reach the user.

use std::fmt::Display;
use std::process::ExitCode;

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// All tasks succeeded.
    Success,
    /// Some tasks failed or were cancelled.
    TasksFailed,
    /// The command line, or a file it names, is wrong: nothing ran.
    Usage,
    /// Falkon itself failed.
    Failure,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(match exit {
            Exit::Success => 0,
            Exit::TasksFailed => 1,
            Exit::Usage => 2,
            Exit::Failure => 3,
        })
    }
}

impl Exit {
    /// Says what is wrong with what the user gave.
    pub(crate) fn usage(error: impl Display) -> Exit {
        eprintln!("falkon: {error}");
        Exit::Usage
    }

    /// Says what went wrong with Falkon.
    pub(crate) fn failure(error: impl Display) -> Exit {
        eprintln!("falkon: {error}");
        Exit::Failure
    }
}

/// A runtime for one command: everything runs on this thread.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, Exit> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Exit::failure(format!("cannot start the event loop: {error}")))
}
