//! A program that takes the place of a dispatcher that runs, in the same process.
//!
//! The dispatcher examines the program first: it must say that it is falkon, and, with the
//! arguments of the one that runs and `--takes-over check`, that it can read the journal, the users,
//! the provisioner's record and a relay's notes. Then the dispatcher stops as for `falkon stop`, and
//! this process executes the program with `--takes-over serve`. The socket that it listens at is the
//! program's standard input, so the port stays, and connections that are made meanwhile wait in the
//! system's queue.

use super::StartArgs;
use crate::exit::{Exit, Runtime};
use crate::query::print;
use crate::service::{log, log_to_stderr};
use clap::ValueEnum;
use falkon_dispatcher::{Handle, RestartRequest, check_journal, check_users};
use falkon_net::secure::Versions;
use falkon_provision::check_record;
use falkon_relay::check_notes;
use rustix::process::{Pid, WaitOptions, waitpid};
use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::mpsc;

/// The option that tells a program that it is examined, or takes over.
const TAKES_OVER: &str = "--takes-over";
/// The beginning of what an examined program says that can take over; its version and the
/// protocols that it speaks follow, the oldest and the newest. The newest is left out by releases
/// that speak one alone; they also examine nothing but the oldest.
const CAN_TAKE_OVER: &str = "takes-over";
/// How long a program may take to say which version it is.
const VERSION_SECONDS_MAX: u64 = 10;
/// How long a program may take to read the journal.
const CHECK_SECONDS_MAX: u64 = 300;
/// Output that is read of an examined program.
const OUTPUT_BYTES_MAX: u64 = 64 << 10;
/// How much of what it said is quoted.
const QUOTED_CHARS_MAX: usize = 500;
/// How long threads that are in the middle of something are waited for.
const THREADS_MS_MAX: u64 = 1000;
/// The suffix that the system gives to the path of a running program whose file was replaced.
const DELETED: &str = " (deleted)";
/// The running program, also if its file is gone.
const RUNNING: &str = "/proc/self/exe";

/// Part of a program in a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum TakesOver {
    /// Only says whether it could take over
    Check,
    /// Takes over; its standard input is the socket to listen at
    Serve,
}

/// Why a program does not take a dispatcher's place.
#[derive(Debug, thiserror::Error)]
enum RestartError {
    #[error("there is no program at {path}; choose another with --binary")]
    Missing { path: String },
    #[error("{path} cannot be executed: {source}; choose another program with --binary")]
    NotExecutable { path: String, source: io::Error },
    #[error("{path} is not falkon: asked for its --version, it said {said:?}")]
    NotFalkon { path: String, said: String },
    #[error("{path} did not answer within {seconds} s; choose another program with --binary")]
    Silent { path: String, seconds: u64 },
    #[error("{path} cannot take over: {why}")]
    Refuses { path: String, why: String },
    #[error(
        "falkon {version} at {path} speaks protocol {protocol}, and the executors and clients \
         that are connected speak {}: end this dispatcher with falkon stop, and start it and its \
         executors with that release",
        Versions::spoken()
    )]
    OtherProtocol { path: String, version: String, protocol: String },
}

/// The program that runs, and how it was called.
#[derive(Debug)]
pub(super) struct OwnProgram {
    path: PathBuf,
    arguments: Vec<OsString>,
}

/// A program that was found fit to take over.
#[derive(Debug)]
pub(crate) struct Successor {
    program: PathBuf,
    version: String,
    arguments: Vec<OsString>,
    listener: Option<OwnedFd>,
}

impl OwnProgram {
    /// This process's, before its file may be replaced.
    pub(super) fn find() -> OwnProgram {
        let mut words = std::env::args_os();
        let name = words.next().unwrap_or_default();
        let mut arguments = Vec::new();
        while let Some(word) = words.next() {
            // This process may have taken over itself.
            if word == TAKES_OVER {
                words.next();
            } else {
                arguments.push(word);
            }
        }
        OwnProgram { path: own_path(Path::new(&name)), arguments }
    }

    /// Examines programs that the owner wishes for, until one will do.
    pub(super) async fn examine_all(
        self,
        handle: Handle,
        mut wishes: mpsc::Receiver<RestartRequest>,
    ) -> Option<Successor> {
        while let Some(wish) = wishes.recv().await {
            let program = wish.program.clone().unwrap_or_else(|| self.path.clone());
            match self.examine(program).await {
                Ok(successor) => {
                    handle.examined(wish, Ok(successor.version.clone())).await;
                    return Some(successor);
                }
                Err(error) => handle.examined(wish, Err(error.to_string())).await,
            }
        }
        None
    }

    async fn examine(&self, program: PathBuf) -> Result<Successor, RestartError> {
        let path = program.display().to_string();
        let version = ask(&program, &["--version".into()], VERSION_SECONDS_MAX).await?;
        if !version.status.success() || !version.out.starts_with("falkon ") {
            let said = format!("{}{}", version.out, version.err);
            return Err(RestartError::NotFalkon { path, said: quoted(&said) });
        }
        let mut arguments = self.arguments.clone();
        arguments.extend([TAKES_OVER.into(), "check".into()]);
        let checked = ask(&program, &arguments, CHECK_SECONDS_MAX).await?;
        let mut words = checked.out.split_whitespace();
        let said = (words.next(), words.next(), words.next());
        let (true, (Some(CAN_TAKE_OVER), Some(version), Some(oldest))) =
            (checked.status.success(), said)
        else {
            let why = match checked.err.trim() {
                "" => checked.status.to_string(),
                said => quoted(said.trim_start_matches("falkon: ")),
            };
            return Err(RestartError::Refuses { path, why });
        };
        let version = version.to_owned();
        let spoken = spoken(oldest, words.next());
        if !spoken.is_some_and(|spoken| spoken.overlap(Versions::spoken())) {
            let protocol = spoken.map_or_else(|| oldest.to_owned(), |spoken| spoken.to_string());
            return Err(RestartError::OtherProtocol { path, version, protocol });
        }
        Ok(Successor { program, version, arguments: self.arguments.clone(), listener: None })
    }
}

/// The protocols that an examined program speaks; `None` if it says no such thing.
fn spoken(oldest: &str, newest: Option<&str>) -> Option<Versions> {
    let oldest = oldest.parse().ok()?;
    let newest = newest.map_or(Some(oldest), |newest| newest.parse().ok())?;
    (oldest <= newest).then(|| Versions::between(oldest, newest))
}

/// The path that names the running program: the one that it was called by, which may be a link
/// that another release is put behind, or else its file's.
fn own_path(name: &Path) -> PathBuf {
    let running = std::fs::metadata(RUNNING).ok();
    let identity = |metadata: &Metadata| (metadata.dev(), metadata.ino());
    let is_running = |path: &PathBuf| {
        let found = std::fs::metadata(path).ok();
        found.is_some() && found.as_ref().map(identity) == running.as_ref().map(identity)
    };
    let called = match name.components().count() {
        1 if !name.is_absolute() => std::env::var_os("PATH").and_then(|path| {
            std::env::split_paths(&path).map(|folder| folder.join(name)).find(is_running)
        }),
        _ => Some(name.to_owned()),
    };
    let called = called.and_then(|path| std::path::absolute(path).ok()).filter(is_running);
    called.unwrap_or_else(|| {
        let file = std::env::current_exe().unwrap_or_else(|_| RUNNING.into());
        match file.to_str().and_then(|text| text.strip_suffix(DELETED)) {
            Some(before) => before.into(),
            None => file,
        }
    })
}

/// Output and exit status of an examined program.
struct Said {
    status: ExitStatus,
    out: String,
    err: String,
}

async fn ask(
    program: &Path,
    arguments: &[OsString],
    seconds_max: u64,
) -> Result<Said, RestartError> {
    let path = || program.display().to_string();
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => RestartError::Missing { path: path() },
        _ => RestartError::NotExecutable { path: path(), source },
    };
    let mut child = tokio::process::Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)?;
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let ended = async {
        let (out, err) = tokio::join!(read(out), read(err));
        child.wait().await.map(|status| Said { status, out, err })
    };
    match tokio::time::timeout(Duration::from_secs(seconds_max), ended).await {
        Ok(said) => said.map_err(failed),
        Err(_) => Err(RestartError::Silent { path: path(), seconds: seconds_max }),
    }
}

/// The beginning of what comes from a stream, which is closed then.
async fn read(stream: Option<impl AsyncRead + Unpin>) -> String {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        // What came before an error is judged.
        let _ = stream.take(OUTPUT_BYTES_MAX).read_to_end(&mut bytes).await;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn quoted(said: &str) -> String {
    let words: Vec<&str> = said.split_whitespace().collect();
    words.join(" ").chars().take(QUOTED_CHARS_MAX).collect()
}

impl Successor {
    /// Passes the socket on that connections come to.
    pub(super) fn listening_at(mut self, listener: Option<OwnedFd>) -> Successor {
        self.listener = listener;
        self
    }

    /// Executes the program in this process. If that fails after all, the running one is executed
    /// again and continues; returns only if nothing can be executed.
    pub(super) fn take_over(self, runtime: Runtime) -> Exit {
        // Processes that tasks of the event loop have started end with them.
        runtime.end_within(Duration::from_millis(THREADS_MS_MAX));
        let to_log = log_to_stderr();
        let program = self.program.display();
        to_log(&format!("process {} becomes {program}", std::process::id()));
        log::flush();
        let error = self.execute(&self.program);
        to_log(&format!("{program} cannot be executed after all: {error}; it goes on as it was"));
        log::flush();
        let error = self.execute(Path::new(RUNNING));
        Exit::failure(format_args!(
            "cannot execute {program}, nor this program again: {error}; start the dispatcher with \
             the same directory, and it continues"
        ))
    }

    /// Returns only if the program cannot be executed.
    fn execute(&self, program: &Path) -> io::Error {
        let listener = self.listener.as_ref().and_then(|listener| listener.try_clone().ok());
        Command::new(program)
            .arg0(&self.program)
            .args(&self.arguments)
            .args([TAKES_OVER, "serve"])
            .stdin(listener.map_or_else(Stdio::null, Stdio::from))
            .exec()
    }
}

/// Says whether this program can take over in `dir`, and changes nothing there.
pub(super) fn check(args: &StartArgs, dir: &Path, is_relay: bool) -> Result<Exit, Exit> {
    check_journal(&dir.join("journal"), args.salvage).map_err(Exit::failure)?;
    check_users(dir).map_err(Exit::failure)?;
    check_record(&dir.join(super::PROVISION_DIRECTORY)).map_err(Exit::failure)?;
    if is_relay {
        check_notes(dir).map_err(Exit::failure)?;
    }
    let (version, spoken) = (env!("CARGO_PKG_VERSION"), Versions::spoken());
    let (oldest, newest) = (spoken.oldest(), spoken.newest());
    let said = format!("{CAN_TAKE_OVER} {version} {oldest} {newest}\n");
    Ok(print(&said).unwrap_or(Exit::Success))
}

/// The socket that the program before listened at; `None` if there is none.
pub(super) fn inherited_listener() -> Option<TcpListener> {
    let socket = io::stdin().as_fd().try_clone_to_owned().ok()?;
    let null = File::open("/dev/null").ok()?;
    rustix::stdio::dup2_stdin(&null).ok()?;
    let listener = TcpListener::from(socket);
    // Fails if it is something else.
    listener.local_addr().ok()?;
    listener.set_nonblocking(true).ok()?;
    Some(listener)
}

/// Waits for the ends of processes that the program before has started: those that held its
/// connections, and commands of schedulers. Nobody else would, and they would stay as zombies.
pub(super) fn reap_inherited() {
    let thread = rustix::thread::gettid().as_raw_nonzero();
    let children = format!("/proc/self/task/{thread}/children");
    // Without that file they stay until this process ends.
    let listed = std::fs::read_to_string(children).unwrap_or_default();
    let pids = listed.split_whitespace().filter_map(|pid| pid.parse().ok().and_then(Pid::from_raw));
    let pids: Vec<Pid> = pids.collect();
    if pids.is_empty() {
        return;
    }
    let thread = std::thread::Builder::new().name("falkon-reap".to_owned());
    // As above.
    let _ = thread.spawn(move || {
        for pid in pids {
            // One that is gone already needs nobody to wait for it.
            let _ = waitpid(Some(pid), WaitOptions::empty());
        }
    });
}
