//! Results on their way to the user: as JSON, as files, on the terminal.

pub(crate) mod asked;
pub(crate) mod directory;
pub(crate) mod job_log;
pub(crate) mod line;
pub(crate) mod measured;
pub(crate) mod order;
pub(crate) mod rest;
pub(crate) mod staged;
pub(crate) mod terminal;
pub(crate) mod tree;
pub(crate) mod usage;

use crate::plan::TaskFiles;
use falkon_core::result::{Cause, Detail, Finished, Outcome, Status};
use falkon_core::task::Time;
use rest::{CutReason, Rest};
use std::path::Path;
use std::sync::Arc;

/// A task's result, as sinks see it.
#[derive(Debug, Clone)]
pub(crate) struct TaskResult {
    /// Position in the plan that the command line gives, from 0.
    pub(crate) index: u64,
    /// The user's name for the task.
    pub(crate) name: Option<String>,
    /// How it ended.
    pub(crate) outcome: Outcome,
    /// Where it ran.
    pub(crate) executor: Option<Arc<str>>,
    /// How many attempts it took.
    pub(crate) attempts: u32,
    /// When it was queued, dispatched, started, ended, delivered.
    pub(crate) times: Times,
    /// The task's output, and its error.
    pub(crate) detail: Option<Arc<Detail>>,
    /// The object of the outcome, in words: the task that it waited for, or the
    /// resources that no executor offers.
    pub(crate) subject: Option<String>,
    /// What the task is, if that is known and wanted.
    pub(crate) what: Option<Arc<What>>,
    /// The digest of what ran, for `--resume`.
    pub(crate) digest: Option<[u8; 16]>,
    /// The files that it declares, for `--resume`, if it ended well.
    pub(crate) files: Option<TaskFiles>,
    /// Where standard output and standard error were put in full, if they were
    /// taken away from where `detail` says.
    pub(crate) kept: [Option<FileSpan>; 2],
    /// The parts of the streams that `detail` does not hold.
    pub(crate) rests: [Rest; 2],
}

/// What a task is: what runs, and the values that make it differ from others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct What {
    /// The command as a shell takes it, or as much of it as is shown.
    pub(crate) command: String,
    /// The values of its sources, each with the name or the number of the source.
    pub(crate) values: Vec<(String, Vec<u8>)>,
}

/// A place within a file that holds what several tasks wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileSpan {
    /// The file.
    pub(crate) path: Arc<Path>,
    /// Where it begins, in bytes.
    pub(crate) offset: u64,
    /// How long it is, in bytes.
    pub(crate) length: u64,
    /// Why that is not all that the task wrote, if it is not.
    pub(crate) cut: Option<CutReason>,
}

/// When each phase of a task began.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Times {
    pub(crate) queued: Time,
    pub(crate) dispatched: Time,
    pub(crate) started: Time,
    pub(crate) ended: Time,
    pub(crate) delivered: Time,
}

impl TaskResult {
    /// Whether its times say when it ran. A task that was tried and ended while
    /// it was queued for the next attempt has attempts, and no such times.
    pub(crate) fn has_run(&self) -> bool {
        self.attempts > 0 && self.executor.is_some()
    }

    /// The result of one task of a run. Its times are in order even where the
    /// clocks that read them were a little apart.
    pub(crate) fn of(finished: &Finished, index: u64, delivered: Time) -> TaskResult {
        let ran = finished.attempts > 0 && finished.executor.is_some();
        let dispatched = finished.dispatched.max(finished.queued);
        let started = if ran { finished.started.max(dispatched) } else { finished.started };
        let ended = finished.ended.max(finished.queued).max(started);
        TaskResult {
            index,
            name: None,
            outcome: finished.outcome,
            executor: None,
            attempts: finished.attempts,
            times: Times {
                queued: finished.queued,
                dispatched,
                started,
                ended,
                delivered: delivered.max(ended),
            },
            detail: finished.detail.clone(),
            subject: None,
            what: None,
            digest: None,
            files: None,
            kept: [None, None],
            rests: [Rest::None, Rest::None],
        }
    }

    /// The user's name for it, or its number.
    pub(crate) fn id(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.index.to_string())
    }

    /// Done, failed or cancelled.
    pub(crate) fn status(&self) -> Status {
        self.outcome.status()
    }

    /// The error in words; `None` if there was none.
    pub(crate) fn error(&self) -> Option<String> {
        let error = self.detail.as_ref().map(|detail| detail.error.as_str()).unwrap_or_default();
        let cause = self.detail.as_ref().and_then(|detail| detail.cause);
        let how = match self.outcome {
            Outcome::Exit(0) => None,
            Outcome::Exit(code) => Some(format!("exited with {code}")),
            Outcome::Signal(_) if matches!(cause, Some(Cause::OverMemory | Cause::OverDisk)) => {
                None
            }
            Outcome::Signal(signal) => Some(format!("killed by {}", signal_name(signal))),
            Outcome::TimedOut => Some("ran into its timeout".to_owned()),
            Outcome::NotRun | Outcome::NoOutput | Outcome::NoInput => {
                return Some(match error {
                    "" => "could not be run".to_owned(),
                    error => error.to_owned(),
                });
            }
            Outcome::Lost if cause == Some(Cause::ExecutorLeft) => None,
            Outcome::Lost => Some("was lost with its executor too often".to_owned()),
            Outcome::UpstreamFailed(task) => {
                let upstream = self.subject.clone().unwrap_or_else(|| task.to_string());
                Some(format!(
                    "not run, because task {upstream}, which it waits for, did not succeed"
                ))
            }
            Outcome::Unschedulable if !error.is_empty() => None,
            Outcome::Unschedulable => Some(match &self.subject {
                Some(need) => format!("needs {need}"),
                None => "needs more than any executor offers".to_owned(),
            }),
            Outcome::Cancelled => Some("cancelled".to_owned()),
            Outcome::Unreadable => Some("has ended, but its result cannot be read".to_owned()),
        };
        match (how, error) {
            (None, "") => None,
            (Some(how), "") => Some(how),
            (None, error) => Some(error.to_owned()),
            (Some(how), error) => Some(match cause {
                // A worker's message about its call needs no exit code beside
                // it.
                Some(Cause::Raised | Cause::InitializerFailed | Cause::VersionMismatch) => {
                    error.to_owned()
                }
                _ => format!("{how}; {error}"),
            }),
        }
    }
}

/// A signal's name, as people know it.
pub(crate) fn signal_name(signal: i32) -> String {
    let name = match signal {
        libc::SIGHUP => "SIGHUP",
        libc::SIGINT => "SIGINT",
        libc::SIGQUIT => "SIGQUIT",
        libc::SIGILL => "SIGILL",
        libc::SIGTRAP => "SIGTRAP",
        libc::SIGABRT => "SIGABRT",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGKILL => "SIGKILL",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGPIPE => "SIGPIPE",
        libc::SIGALRM => "SIGALRM",
        libc::SIGTERM => "SIGTERM",
        libc::SIGXCPU => "SIGXCPU",
        libc::SIGXFSZ => "SIGXFSZ",
        _ => return format!("signal {signal}"),
    };
    name.to_owned()
}

/// Takes results in, one by one.
pub(crate) trait Sink {
    /// Takes one result.
    fn take(&mut self, result: &TaskResult) -> Result<(), SinkError>;

    /// Passes everything taken on; only then are results acknowledged.
    fn flush(&mut self) -> Result<(), SinkError>;

    /// Waits until everything taken is safe. Nothing comes after this.
    fn close(&mut self) -> Result<(), SinkError> {
        self.flush()
    }
}

/// Why results cannot be passed on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SinkError {
    /// The reader of the results is gone.
    #[error("nobody reads the results any more")]
    Closed,
    /// The results cannot be written.
    #[error("cannot write results to {what}: {source}")]
    Write {
        /// Where to.
        what: String,
        /// Why not.
        source: std::io::Error,
    },
}

impl SinkError {
    pub(crate) fn of(what: &str) -> impl Fn(std::io::Error) -> SinkError + '_ {
        move |source| match source.kind() {
            std::io::ErrorKind::BrokenPipe => SinkError::Closed,
            _ => SinkError::Write { what: what.to_owned(), source },
        }
    }
}
