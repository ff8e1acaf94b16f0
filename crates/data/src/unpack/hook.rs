//! What an archive brings to be run once where it is unpacked: `conda-unpack`,
//! by which an environment that `conda-pack` packed learns its new place.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, set_parent_process_death_signal,
};
use std::ffi::OsString;
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// The program, by its path in the archive.
pub const HOOK: &str = "bin/conda-unpack";
/// The end of its output that an error shows.
const SHOWN_BYTES_MAX: usize = 2000;
/// Where programs are that it may need, if nobody says.
const USUAL_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// What went wrong with it.
#[derive(Debug, thiserror::Error)]
pub enum HookError {
    /// It cannot be run.
    #[error("cannot be run: {0}")]
    Start(#[source] std::io::Error),
    /// It did not end in time.
    #[error("did not end within {} s, and was killed", .limit.as_secs())]
    Late {
        /// For how long it was waited.
        limit: Duration,
    },
    /// It failed.
    #[error("{}{}", ended(*.status), said(.output))]
    Failed {
        /// How it ended.
        status: ExitStatus,
        /// The end of what it said.
        output: String,
    },
}

impl HookError {
    /// Whether it is of this machine at this moment, and says nothing of the
    /// archive.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        const PASSING: [Errno; 5] =
            [Errno::AGAIN, Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::TXTBSY];
        let HookError::Start(error) = self else { return false };
        Errno::from_io_error(error).is_some_and(|error| PASSING.contains(&error))
    }
}

fn ended(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with {code}"),
        (None, signal) => format!("was killed by signal {}", signal.unwrap_or(0)),
    }
}

fn said(output: &str) -> String {
    match output.trim() {
        "" => String::new(),
        output => format!(": {output}"),
    }
}

/// Runs it if it is there, with the programs of the archive before others.
pub(super) fn run(folder: &Path, limit: Duration) -> Result<(), HookError> {
    let deadline = Instant::now() + limit;
    let program = folder.join(HOOK);
    // Not through a link to elsewhere.
    if !std::fs::symlink_metadata(&program).is_ok_and(|found| found.is_file()) {
        return Ok(());
    }
    let mut path = OsString::from(folder.join("bin"));
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_else(|| USUAL_PATH.into()));
    let mut command = Command::new(&program);
    command.current_dir(folder).env_clear().env("PATH", path).process_group(0);
    for name in ["HOME", "LANG", "TMPDIR"] {
        command.envs(std::env::var_os(name).map(|value| (name, value)));
    }
    let (mut output, theirs) = std::io::pipe().map_err(HookError::Start)?;
    let also = theirs.try_clone().map_err(HookError::Start)?;
    command.stdin(Stdio::null()).stdout(theirs).stderr(also);
    // SAFETY: Between fork and exec this makes one system call, and allocates nothing.
    unsafe {
        // It ends with the thread that waits for it, and so with the executor.
        command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::KILL))?));
    }
    let mut child = command.spawn().map_err(HookError::Start)?;
    // Its ends of the pipe: the reader waits until nobody has one.
    drop(command);
    let (say, said) = mpsc::channel();
    let reader = std::thread::Builder::new().name("falkon-unpack".to_owned());
    let reading = reader.spawn(move || {
        // If nobody waits any more, nobody wants it.
        let _ = say.send(last_of(&mut output));
    });
    if let Err(error) = reading {
        kill(&mut child);
        return Err(HookError::Start(error));
    }
    let Ok(output) = said.recv_timeout(limit) else {
        kill(&mut child);
        return Err(HookError::Late { limit });
    };
    // It may have closed its output long before it ends.
    match wait_ended(&child, deadline) {
        Ok(true) => {}
        Ok(false) => {
            kill(&mut child);
            return Err(HookError::Late { limit });
        }
        Err(error) => {
            kill(&mut child);
            return Err(HookError::Start(error.into()));
        }
    }
    let status = child.wait().map_err(HookError::Start)?;
    if status.success() { Ok(()) } else { Err(HookError::Failed { status, output }) }
}

/// Waits until it has ended; says whether it has by then.
fn wait_ended(child: &Child, deadline: Instant) -> Result<bool, Errno> {
    let pidfd = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        match poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&left)) {
            Err(Errno::INTR) => {}
            ended => return ended.map(|ended| ended > 0),
        }
    }
}

fn kill(child: &mut Child) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // They may have ended by themselves.
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.wait();
}

/// The end of what is read.
fn last_of(output: &mut impl Read) -> String {
    let mut last = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(read @ 1..) = output.read(&mut buffer) {
        last.extend_from_slice(&buffer[..read]);
        last.drain(..last.len().saturating_sub(SHOWN_BYTES_MAX));
    }
    String::from_utf8_lossy(&last).into_owned()
}
