//! Services in the background, and log files of services.
//!
//! A service in the background is a child of the command that the user typed,
//! in a session of its own. Until it serves, it speaks to the user's terminal;
//! then it tells its parent so over a pipe, its standard output, and all that
//! it says goes to its log file.

use super::log;
use crate::exit::{Exit, say};
use clap::Args;
use std::fs::{DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What the child writes when it serves.
const SERVES: u8 = b'.';

/// Options of every service.
#[derive(Args, Debug)]
pub(crate) struct BackgroundArgs {
    /// Continue in the background, with a log file, as soon as the service is up
    #[arg(long)]
    background: bool,
    /// Write the log to this file instead of standard error, once the service is up [with
    /// --background: a file in the service's directory]
    ///
    /// A file of 16 MiB is kept as FILE.1, the one before as FILE.2 and so on up to FILE.4, and a
    /// new one begins.
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// This process is the one in the background
    #[arg(long, hide = true)]
    detached: bool,
}

impl BackgroundArgs {
    /// Starts this service in the background if it is to be there, and returns how that went.
    /// `None`: this process is the service.
    pub(super) fn detach(&self) -> Option<Exit> {
        (self.background && !self.detached).then(|| started().unwrap_or_else(Exit::failure))
    }

    /// The service is up: what it says goes to its log from now on. `usual` is the log file in
    /// the background if the user named none.
    ///
    /// # Errors
    /// The log file cannot be opened.
    pub(super) fn serves(&self, usual: impl FnOnce() -> PathBuf) -> Result<(), Exit> {
        let path = self.log.clone().or_else(|| self.background.then(usual));
        let Some(path) = path else { return Ok(()) };
        let failed = |error| Exit::usage(format_args!("cannot write {}: {error}", path.display()));
        if let (None, Some(folder)) = (&self.log, path.parent()) {
            // Nobody has made it yet where this is the first service of the user.
            DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
        }
        if self.detached {
            let (id, path) = (std::process::id(), path.display());
            say(format_args!("continues in the background as process {id}, log file {path}"));
        }
        log::flush();
        log::to_file(&path).map_err(failed)?;
        if self.detached {
            tell_parent().map_err(|error| {
                Exit::failure(format_args!("cannot leave the terminal: {error}"))
            })?;
        }
        Ok(())
    }
}

/// Starts this program again, as a leader of a session, and waits until it serves.
fn started() -> io::Result<Exit> {
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_default();
    let mut child = Command::new(std::env::current_exe()?)
        .arg0(name)
        .args(arguments)
        .arg("--detached")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut told = [0];
    // Piped above.
    let mut output = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
    if output.read(&mut told)? == 1 && told[0] == SERVES {
        return Ok(Exit::Success);
    }
    let status = child.wait()?;
    Ok(match (status.code(), status.signal()) {
        (Some(0), _) => Exit::Success,
        // It said why.
        (Some(2), _) => Exit::Usage,
        (Some(_), _) => Exit::Failure,
        (None, signal) => {
            Exit::failure(format_args!("the service was killed by signal {}", signal.unwrap_or(0)))
        }
    })
}

fn tell_parent() -> io::Result<()> {
    // Fails only for a process that leads its group already, as one that a shell started by
    // hand with `--detached`: then it stays where it is.
    let _ = rustix::process::setsid();
    let mut output = io::stdout().lock();
    // A parent that was killed meanwhile has nothing to be told.
    let _ = output.write_all(&[SERVES]).and_then(|()| output.flush());
    let null = File::options().write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdout(&null)?;
    Ok(())
}

/// The log file of a service of this directory.
pub(super) fn log_in(dir: &Path, service: &str) -> PathBuf {
    dir.join(format!("{service}.log"))
}
