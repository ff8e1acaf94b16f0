//! `--notify`: a command when tasks have ended.

use crate::exit::{Exit, say};
use clap::Args;
use std::process::{Command, Stdio};

/// What runs in the end.
#[derive(Args, Debug, Clone, Default)]
pub(crate) struct NotifyArgs {
    /// Run COMMAND in /bin/sh when all tasks have ended, with the exit status in FALKON_EXIT
    #[arg(long, value_name = "COMMAND")]
    notify: Option<String>,
}

impl NotifyArgs {
    /// Whether a command is to be run.
    pub(crate) fn is_asked(&self) -> bool {
        self.notify.is_some()
    }

    /// Runs the command with the exit status of the tasks, and returns that status, also if the
    /// command fails.
    pub(crate) fn after(&self, exit: Exit) -> Exit {
        let Some(command) = &self.notify else { return exit };
        let ran = Command::new("/bin/sh")
            .args(["-c", command])
            .env("FALKON_EXIT", exit.code().to_string())
            .stdin(Stdio::null())
            .status();
        match ran {
            Ok(status) if status.success() => {}
            Ok(status) => say(format_args!("the command of --notify ended with {status}")),
            Err(error) => say(format_args!("the command of --notify cannot be run: {error}")),
        }
        exit
    }
}
