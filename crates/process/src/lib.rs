//! Running processes: spawn, capture, limits, and no orphan left behind.
//!
//! An executor does not run its tasks itself. It starts one small child process, the *process
//! host*, by executing its own binary again with the argument [`HOST_ARGUMENT`], and sends it
//! batches of [`Launch`] over a socket; batches of [`Ended`] come back over another. This buys
//! three things:
//!
//! - **Speed.** The host is small and shares its memory with a new task until the task's program
//!   is executed (`clone(CLONE_VM | CLONE_VFORK)`), so a start costs the same however much memory
//!   the executor holds, and it never blocks the executor's event loop.
//! - **No orphans.** Every task asks the kernel to be killed when the host dies, the host is the
//!   reaper of everything its tasks leave behind, and it kills all of it when its tasks end or
//!   when the executor disappears. When the host itself is killed, the executor is the reaper and
//!   cleans up, see [`HostLost`].
//! - **Bounds.** A task's output is read as it comes and kept up to a bound, whatever the task
//!   writes; see [`Captured`].
//!
//! A program that starts a [`Host`] must call [`host_main`] first thing in its `main` when its
//! first argument is [`HOST_ARGUMENT`].
//!
//! Each task runs in a process group of its own, with default signal dispositions, no blocked
//! signals, no controlling terminal, `/dev/null` or a file as standard input, and with the
//! variable [`TASK_KEY_VARIABLE`] in its environment. Linux 5.4 or newer is required.

use std::fmt;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

mod capture;
mod clock;
mod copy;
mod environment;
mod groups;
mod host;
mod host_protocol;
mod inbox;
mod link;
mod orphans;
mod outbox;
mod pool;
mod ranks;
mod shortage;
mod slot;
mod spawn;
mod start;
mod watch;

pub use host::host_main;
pub use link::{
    Forked, ForkedError, Host, HostError, HostLost, HostReceiver, HostSender, LaunchError,
};

/// The hidden first argument with which a binary is executed again as the process host.
pub const HOST_ARGUMENT: &str = "task-host";

/// The environment variable that ties a process to its task: `INSTANCE:KEY`, where `INSTANCE` is
/// random for each host and `KEY` is [`Launch::key`] in decimal.
pub const TASK_KEY_VARIABLE: &str = "FALKON_TASK_KEY";

/// The same for a process that cleans up after a task, in a session of its own and without
/// [`TASK_KEY_VARIABLE`]: the host does not end it with the task but half a minute later, and not
/// when the host stops.
pub const CLEANER_KEY_VARIABLE: &str = "FALKON_CLEANER_KEY";

/// Most tasks that may be with a host at once; see [`HostSender::launch`].
pub const IN_FLIGHT_TASKS_MAX: usize = 65_536;

/// Most tasks that run at once; what is launched over this waits in the host for a free slot.
pub const RUNNING_TASKS_MAX: usize = 4_096;

/// How long the start of a task may hang in file systems, in milliseconds, unless the caller says
/// otherwise; see [`Host::start_within`].
pub const START_MS_MAX: u64 = 60_000;

/// Slots that may hang in the start of tasks that were given up. At this number, further ones are
/// not given up: they keep their slots.
pub const HUNG_SLOTS_MAX: usize = 256;

/// Upper bound of [`Launch::capture_bytes_max`]; a larger value is cut down to this.
pub const CAPTURE_BYTES_MAX: u64 = 16 << 20;

/// Arguments, environment additions and paths of one task, together. The kernel refuses more than
/// 6 MiB in any case, so what is over this is refused (`E2BIG`) without being sent to the host.
pub const LAUNCH_BYTES_MAX: usize = 8 << 20;

/// The CPUs of a machine that processes can be bound to: those with lower numbers.
pub const CPUS_MAX: usize = 4_096;

/// A process to run.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Launch {
    /// The caller's name for it; no two tasks that are with a host may share one.
    pub key: u64,
    /// Start it only when this task, which was launched before, has ended in whatever way, and in
    /// its place: so the next one starts without the round trip of a report and its answer. At once
    /// if that task is no longer with the host. Several after the same one run one after the other.
    /// While more than one comes after it, the end of a short task is reported together with the
    /// next ones. [`HostSender::take_back`] and [`HostSender::kill`] take back one that waits.
    pub after: Option<u64>,
    /// The program and its arguments. A program without a slash is looked up in the `PATH` of
    /// the task's environment.
    pub argv: Vec<Vec<u8>>,
    /// Names and values added to the environment that the host inherited; the last of equal
    /// names counts.
    pub env: Vec<(Vec<u8>, Vec<u8>)>,
    /// Variables that the host inherited whose names begin with one of these are left out, unless
    /// `env` has them. For programs alone.
    pub without: Vec<Vec<u8>>,
    /// The working directory; `None` is the executor's own.
    pub cwd: Option<Vec<u8>>,
    /// A file to read standard input from, relative to `cwd`; `None` is `/dev/null`. A named
    /// pipe is opened without waiting for a writer.
    pub stdin: Option<Vec<u8>>,
    /// Bytes of each output stream that are kept in memory, at most [`CAPTURE_BYTES_MAX`].
    pub capture_bytes_max: u64,
    /// Where a stream that is longer than `capture_bytes_max` goes in full: `SPILL.stdout` and
    /// `SPILL.stderr`, created or truncated. `None`: what is over is counted and dropped.
    pub spill: Option<Vec<u8>>,
    /// Files that must be what they were when it was launched: it may come after a task that
    /// writes to them.
    pub unchanged: Vec<Unchanged>,
    /// The source of the process.
    pub source: Source,
    /// The memory that it may have, with all that descend from it, if it is a program.
    pub memory: Option<MemoryLimit>,
    /// The numbers of the CPUs that it may run on, if it is a program; on all that the host may
    /// run on if there are none. Numbers from [`CPUS_MAX`] on do not count.
    pub cpus: Vec<u32>,
    /// The names of environment variables with which launchers of parallel programs tell processes
    /// their ranks. [`Ended::ranks`] has the usage of processes with one of them. The first of
    /// several that have numbers counts.
    pub ranked_by: Vec<Vec<u8>>,
}

impl fmt::Debug for Launch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The environment may hold secrets: workers' tokens, users' passwords.
        f.debug_struct("Launch")
            .field("key", &self.key)
            .field("after", &self.after)
            .field("argv", &self.argv)
            .field("cwd", &self.cwd)
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}

/// A limit on the memory of a launched process and of all that descend from it. One that exceeds it
/// is killed, with all of these ([`Shortage::OverLimit`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryLimit {
    /// The most memory, in bytes.
    pub bytes: u64,
    /// The kernel holds the process to it in a control group, where this process may make some.
    /// Otherwise, and elsewhere, it is looked at from time to time, and may exceed the limit in
    /// between.
    pub in_group: bool,
}

/// The source of a launched process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Source {
    /// The program.
    #[default]
    Program,
    /// The program, which is a *template*: its standard input is a socket, over which the host
    /// orders copies (see `process/copy.rs`).
    Template,
    /// A copy of a template that was launched before: forked there, with the environment, working
    /// directory and program of the template. Of `env` it is sent the settings; `argv` is for
    /// people.
    Copy {
        /// The template's key.
        of: u64,
    },
    /// The template that the host was started with ([`Forked`]), which is its child already. Of
    /// the launch it gets nothing.
    Forked,
}

/// A file as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unchanged {
    /// Where it is, from the root; a symbolic link means what it leads to.
    pub path: Vec<u8>,
    /// By what it is known again.
    pub mark: FileMark,
}

/// The properties by which a file that no task may write is known to be unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileMark {
    /// The length in bytes.
    pub bytes: u64,
    /// The number in its file system.
    pub inode: u64,
    /// When it was last written, in seconds since 1970, and the nanoseconds of that.
    pub modified: (i64, i64),
}

impl FileMark {
    /// The stamp of a file at present.
    #[must_use]
    pub fn of(file: &Metadata) -> FileMark {
        let modified = (file.mtime(), file.mtime_nsec());
        FileMark { bytes: file.len(), inode: file.ino(), modified }
    }
}

/// How one launched process ended. Exactly one comes back for each [`Launch`], unless the host is
/// lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// [`Launch::key`].
    pub key: u64,
    /// How it ended.
    pub outcome: Outcome,
    /// When it was started, in microseconds of `CLOCK_MONOTONIC`.
    pub started: u64,
    /// When it was seen to have ended, in microseconds of `CLOCK_MONOTONIC`.
    pub ended: u64,
    /// The standard output.
    pub stdout: Captured,
    /// The standard error.
    pub stderr: Captured,
    /// The resources that it used.
    pub usage: Usage,
    /// The want of memory that ended it, if one did.
    pub shortage: Option<Shortage>,
    /// The resources that ranks were seen to use ([`Launch::ranked_by`]), in their order: 4,096 of
    /// them at most, and of each what it had used at the last look.
    pub ranks: Vec<RankUsage>,
}

/// A want of memory that ends a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shortage {
    /// It exceeded its limit ([`Launch::memory`]).
    OverLimit {
        /// What it had when it was killed, in bytes: no more than the limit if the kernel did not
        /// give it more.
        had_bytes: u64,
    },
    /// The system had no memory left, or the control group that all tasks are in, and ended this
    /// one, whether it had much or little.
    OfSystem,
}

/// The outcome of a launched process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The process exited with this status (0 to 255).
    Exit(i32),
    /// The process was killed by this signal.
    Signal(i32),
    /// The program never ran. `ETIMEDOUT`: a file system did not answer.
    NotStarted {
        /// The step that failed.
        stage: Stage,
        /// Why, as the system's error number.
        errno: i32,
    },
}

/// The steps of starting a process, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Stage {
    /// The task was killed or taken back while it waited, for a slot or for the task it comes after
    /// (`ECANCELED`).
    Waiting = 0,
    /// The arguments, the environment or paths cannot be passed on: a NUL byte, a variable's name
    /// that is empty or holds `=`, no program (`EINVAL`), or too much of them (`E2BIG`).
    Arguments = 1,
    /// Opening the file for its standard input.
    Stdin = 2,
    /// Making the pipes for its output.
    Pipes = 3,
    /// Making the process.
    Fork = 4,
    /// Changing to its working directory.
    Chdir = 5,
    /// Finding and executing its program.
    Exec = 6,
    /// A file is not what it was ([`Launch::unchanged`]; `ESTALE`). Before opening the file for
    /// its standard input.
    Changed = 7,
    /// Copying a template: it has ended or refuses (`ESRCH`, `EPIPE`), does not answer in time
    /// (`ETIMEDOUT`), or the copy was killed meanwhile (`ECANCELED`).
    Copy = 8,
}

impl Stage {
    fn from_byte(byte: u8) -> Option<Stage> {
        use Stage::*;
        [Waiting, Arguments, Stdin, Pipes, Fork, Chdir, Exec, Changed, Copy]
            .get(usize::from(byte))
            .copied()
    }
}

/// The output of a process on one of its streams.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Captured {
    /// The first [`Launch::capture_bytes_max`] bytes.
    pub head: Vec<u8>,
    /// Length of the whole stream in bytes.
    pub total_bytes: u64,
    /// The file that holds the whole stream, if it was longer than `head` and a place for it was
    /// given. With a `spill_error` the file holds only a first part.
    pub spill: Option<Vec<u8>>,
    /// Why the file could not be made or written, as the system's error number. The process was
    /// not held up: the rest of the stream was read and counted all the same.
    pub spill_error: Option<i32>,
}

/// A question for a host: what a task has written so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tail {
    /// [`Launch::key`].
    pub key: u64,
    /// Comes back in the answer.
    pub request: u64,
    /// Standard error is meant, not standard output.
    pub is_error: bool,
    /// The first byte that is wanted.
    pub from: u64,
}

/// What a task has written so far on one of its streams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tailed {
    /// [`Tail::request`].
    pub request: u64,
    /// How much it has written.
    pub total_bytes: u64,
    /// From [`Tail::from`] on, as far as the host has it in memory.
    pub bytes: Vec<u8>,
    /// The file that holds the stream from its first byte on, if more than the head was written
    /// and a place for it was given.
    pub spill: Option<Vec<u8>>,
    /// That file could not be made or written: it holds a first part at most.
    pub is_cut: bool,
}

/// The resources that a process used, with those of its children that were waited for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Processor time in user mode, in microseconds.
    pub user_us: u64,
    /// Processor time in the kernel, in microseconds.
    pub system_us: u64,
    /// The most memory that its processes were seen to have together, those that left its group
    /// included, and at least the largest resident set of any one that was waited for, in bytes.
    pub rss_max_bytes: u64,
    /// Bytes that were read from storage: not those that the system had in memory.
    pub read_bytes: u64,
    /// Bytes that were written to storage.
    pub written_bytes: u64,
}

/// The resources that the processes of one rank used together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RankUsage {
    /// The rank.
    pub rank: u32,
    /// The resources.
    pub usage: Usage,
}

/// An order to end a running task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Kill {
    /// The task.
    key: u64,
    /// How long it has between `SIGTERM` and `SIGKILL`; zero is `SIGKILL` at once.
    grace: Duration,
}
