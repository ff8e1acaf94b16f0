//! Exit statuses, and how errors reach the user.

use falkon_net::client::ClientError;
use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;

/// Writes a line to standard error. Nobody may be reading there, which is no
/// reason to stop or to panic.
pub fn write_line(line: impl Display) {
    // In one piece, so that lines of several processes do not mix.
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}

/// Prints a message to the user on standard error.
pub fn say(message: impl Display) {
    crate::service::log::flush();
    write_line(format_args!("falkon: {message}"));
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
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
        ExitCode::from(exit.code())
    }
}

impl Exit {
    /// The exit status: the higher, the worse.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Exit::Success => 0,
            Exit::TasksFailed => 1,
            Exit::Usage => 2,
            Exit::Failure => 3,
        }
    }

    /// The exit after an error in the user's input.
    pub fn usage(error: impl Display) -> Exit {
        say(error);
        Exit::Usage
    }

    /// The exit after a dispatcher refused a request, or could not be reached:
    /// a request that was refused for good is for the user to correct.
    pub fn client(error: ClientError) -> Exit {
        match error {
            ClientError::Refused(_)
            | ClientError::Older { .. }
            | ClientError::NoAlternatives { .. } => Exit::usage(error),
            ClientError::Connect(error) if !error.is_transient() => Exit::usage(error),
            _ => Exit::failure(error),
        }
    }

    /// The exit after a failure of Falkon itself.
    pub fn failure(error: impl Display) -> Exit {
        say(error);
        Exit::Failure
    }
}

/// Turns that the event loop gives to what is still to be done when a command
/// has its result: connections say farewell, which takes each a few.
const FAREWELL_TURNS: usize = 16;

/// A runtime for one command: everything runs on this thread.
pub struct Runtime(tokio::runtime::Runtime);

impl Runtime {
    /// Where other threads leave work to the event loop.
    #[must_use]
    pub fn handle(&self) -> &tokio::runtime::Handle {
        self.0.handle()
    }

    /// Runs a command to its end, and what it leaves to the event loop.
    pub fn block_on<F: Future>(&self, command: F) -> F::Output {
        self.0.block_on(async {
            let result = command.await;
            for _ in 0..FAREWELL_TURNS {
                tokio::task::yield_now().await;
            }
            result
        })
    }

    /// Drops what is left of tasks, and waits that long at most for threads that block.
    pub fn end_within(self, limit: std::time::Duration) {
        self.0.shutdown_timeout(limit);
    }
}

/// A runtime, or the exit status of a command that gets none.
pub fn runtime() -> Result<Runtime, Exit> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map(Runtime)
        .map_err(|error| Exit::failure(format!("cannot start the event loop: {error}")))
}
