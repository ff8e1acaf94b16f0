//! Outcomes and results, kept as runs of tasks that ended alike.

use crate::data::stage::Usage;
use crate::gang::{GANG_USAGE_BYTES_MAX, GangUsage};
use crate::limits::{
    CAPTURE_BYTES_MAX, ENVELOPE_BYTES_MAX, ERROR_BYTES_MAX, EXECUTOR_PATH_BYTES_MAX, LOSSES_MAX,
    OUTPUTS_BYTES_MAX, REPORT_BYTES_MAX, URL_BYTES_MAX, VALUE_BYTES_MAX,
};
use crate::task::{ExecutorId, InstanceId, TaskId, Time};
use std::sync::Arc;

/// How a task ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// It ran and exited with this code; 0 is success.
    Exit(i32),
    /// A signal ended it.
    Signal(i32),
    /// It ran longer than its timeout and was killed.
    TimedOut,
    /// It could not be started, or its inputs were not there; the error says
    /// why. That may be the node's fault.
    NotRun,
    /// It exited with 0 but did not write an output it declared.
    NoOutput,
    /// Its data objects could not be brought to it; the error names every
    /// source that was tried.
    NoInput,
    /// It was lost with its executors more often than the replay policy
    /// allows. From an executor: it was lost there, though the executor goes on.
    Lost,
    /// A task it waits for did not succeed.
    UpstreamFailed(TaskId),
    /// No executor there is could ever run it.
    Unschedulable,
    /// It was cancelled.
    Cancelled,
    /// It ended, and how is not known any more: its result was on the
    /// dispatcher's disk and cannot be read; the error says why. Only clients
    /// are told this.
    Unreadable,
}

impl Outcome {
    /// The three ways of ending that are counted.
    #[must_use]
    pub fn status(self) -> Status {
        match self {
            Outcome::Exit(0) => Status::Done,
            Outcome::Cancelled => Status::Cancelled,
            _ => Status::Failed,
        }
    }

    /// Whether trying the task again may help: it ran, or tried to, and
    /// failed.
    #[must_use]
    pub fn may_retry(self) -> bool {
        match self {
            Outcome::Exit(code) => code != 0,
            Outcome::Signal(_)
            | Outcome::TimedOut
            | Outcome::NotRun
            | Outcome::NoOutput
            | Outcome::NoInput => true,
            _ => false,
        }
    }
}

/// Why a task ended as it did, as far as programs decide by that. The
/// [`Detail::error`] says it for people, and no program reads that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// Its function raised an exception. The error is the traceback, and the
    /// value the exception if its caller can make use of it.
    Raised,
    /// The function that prepares a worker for its first call raised.
    InitializerFailed,
    /// The worker cannot read what the client sent, as the two run different
    /// versions of the language or of its libraries.
    VersionMismatch,
    /// The worker ended in the middle of the call.
    WorkerDied,
    /// Its program, or the interpreter that the program names, is not there.
    NoProgram,
    /// Its program is there and the system does not execute it.
    NotExecutable,
    /// Its working directory cannot be entered.
    NoFolder,
    /// A file that it reads is not there or cannot be opened.
    NoInputFile,
    /// Its arguments or environment cannot be passed to a program.
    BadArguments,
    /// The system gave the executor no process or pipe for it.
    NoProcess,
    /// No worker could be started for its function.
    NoWorker,
    /// A file system that it needs did not answer.
    FileSystemSilent,
    /// It was one executor's alone, and that executor left before it ended.
    ExecutorLeft,
    /// It had more memory than its limit, or asked for more, and was killed.
    OverMemory,
    /// The node, or the control group of its executor, had no memory left, and the system
    /// killed it. It runs again, and has failed only if that was too often so.
    NodeOutOfMemory,
    /// It had more in its scratch directory than the disk space that it claimed, and was killed.
    OverDisk,
}

impl Cause {
    /// Its name in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Cause::Raised => "raised",
            Cause::InitializerFailed => "initializer_failed",
            Cause::VersionMismatch => "version_mismatch",
            Cause::WorkerDied => "worker_died",
            Cause::NoProgram => "no_program",
            Cause::NotExecutable => "not_executable",
            Cause::NoFolder => "no_folder",
            Cause::NoInputFile => "no_input_file",
            Cause::BadArguments => "bad_arguments",
            Cause::NoProcess => "no_process",
            Cause::NoWorker => "no_worker",
            Cause::FileSystemSilent => "file_system_silent",
            Cause::ExecutorLeft => "executor_left",
            Cause::OverMemory => "over_memory",
            Cause::NodeOutOfMemory => "node_out_of_memory",
            Cause::OverDisk => "over_disk",
        }
    }
}

/// The three ways for a task to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// Exit code 0, and its declared outputs were there.
    Done,
    /// Anything else but a cancellation.
    Failed,
    /// Cancelled before it ended.
    Cancelled,
}

/// What was captured of one output stream.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Captured {
    /// The first bytes, up to the bound.
    pub head: Vec<u8>,
    /// How many bytes the task wrote.
    pub total_bytes: u64,
    /// What the executor keeps all of them under, if they were too many to be
    /// sent; `None` also if it could not keep them.
    pub overflow: Option<Overflow>,
    /// Where all of it is, or is to be: `ARCHIVE!MEMBER`. Then nothing of it is sent
    /// if the task succeeds.
    pub member: Option<Arc<str>>,
}

/// A number that one executor process gave to output that it keeps because it
/// is too long to be sent. Nobody but that process knows the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Overflow {
    /// The executor's incarnation.
    pub incarnation: u64,
    /// Its number for the output, which it never gives twice.
    pub number: u64,
}

/// One of the two streams that a task writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl Stream {
    /// Both, in the order in which they stand everywhere.
    pub const BOTH: [Stream; 2] = [Stream::Stdout, Stream::Stderr];

    /// The name of its files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Stream::Stdout => "stdout",
            Stream::Stderr => "stderr",
        }
    }
}

impl Captured {
    fn is_within_bounds(&self) -> bool {
        self.head.len() as u64 <= CAPTURE_BYTES_MAX && self.member_bytes() <= URL_BYTES_MAX
    }

    fn cut(&mut self, bytes: u64) {
        self.head.truncate(usize::try_from(bytes).unwrap_or(usize::MAX));
        self.head.shrink_to_fit();
    }

    /// Whether `head` is not all there was, and no archive has it.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.member.is_none() && self.total_bytes > self.head.len() as u64
    }

    fn member_bytes(&self) -> usize {
        self.member.as_ref().map_or(0, |member| member.len())
    }
}

/// What a result says beyond its outcome; most have nothing to say.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Detail {
    /// Standard output.
    pub stdout: Captured,
    /// Standard error.
    pub stderr: Captured,
    /// What went wrong, for people; empty if nothing did.
    pub error: String,
    /// What a function returned, as bytes that only its language can read;
    /// empty if it returned nothing, and for tasks of other kinds.
    pub value: Vec<u8>,
    /// Where its inputs came from.
    pub usage: Usage,
    /// Microseconds for which it waited for them.
    pub staging_micros: u64,
    /// Why it ended as it did, where the outcome does not say it.
    pub cause: Option<Cause>,
    /// Where those of its outputs are that are members of archives, as
    /// `ARCHIVE!MEMBER`, in the order in which it names them: all of them are safe.
    pub outputs: Vec<String>,
    /// The resources that its process used, on all of its nodes together; `None` for tasks of
    /// other kinds, and for those that did not start.
    pub resources: Option<ResourceUsage>,
    /// The executor that ran it, where that is below relays and the task was for that executor
    /// alone: the names of the relays on the way to it and its own, with slashes between.
    pub executor: String,
    /// The number of the alternative of its class that it had, from 1; 0 if there is one alone.
    pub alternative: u32,
    /// The CPUs that it was given, in thousandths, where executors find out how many tasks need;
    /// 0 if it asked for a number of them.
    pub given_cpus_milli: u32,
    /// The memory that it was given, in bytes, where executors find out how much tasks need; 0 if
    /// it asked for an amount, or for none.
    pub given_memory_bytes: u64,
    /// Usage of each node, if it ran on several: `resources` are their sums then.
    pub gang: Option<Arc<GangUsage>>,
}

/// The resources that the process of a task used, with those of its children that it
/// waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ResourceUsage {
    /// Processor time in user mode, in microseconds.
    pub user_micros: u64,
    /// Processor time in the kernel, in microseconds.
    pub system_micros: u64,
    /// The most memory that all of its processes were seen to have together, in bytes.
    pub rss_max_bytes: u64,
    /// Bytes read from storage.
    pub read_bytes: u64,
    /// Bytes written to storage.
    pub written_bytes: u64,
    /// The most that it was seen to have in its scratch directory, in bytes of allocated blocks;
    /// `None` for tasks without one.
    pub disk_max_bytes: Option<u64>,
}

impl Detail {
    /// The captured bytes of a stream.
    #[must_use]
    pub fn stream(&self, stream: Stream) -> &Captured {
        match stream {
            Stream::Stdout => &self.stdout,
            Stream::Stderr => &self.stderr,
        }
    }

    /// What the executor keeps of each stream.
    #[must_use]
    pub fn overflows(&self) -> [Option<Overflow>; 2] {
        Stream::BOTH.map(|stream| self.stream(stream).overflow)
    }

    /// The resources that a task used, and those that executors found it to need, without the rest;
    /// `None` if neither is known.
    #[must_use]
    pub fn measured_alone(&self) -> Option<Detail> {
        let Detail { given_cpus_milli, given_memory_bytes, resources, .. } = *self;
        let is_given = given_cpus_milli > 0 || given_memory_bytes > 0;
        (is_given || resources.is_some()).then(|| Detail {
            given_cpus_milli,
            given_memory_bytes,
            resources,
            ..Detail::default()
        })
    }

    fn is_within_bounds(&self) -> bool {
        let heads = self.stdout.head.len() + self.stderr.head.len();
        self.error.len() as u64 <= ERROR_BYTES_MAX
            && self.executor.len() <= EXECUTOR_PATH_BYTES_MAX
            && self.gang.as_ref().is_none_or(|gang| gang.is_within_bounds())
            && self.value.len() as u64 <= VALUE_BYTES_MAX
            && self.output_bytes() <= OUTPUTS_BYTES_MAX
            && (heads + self.value.len()) as u64 + TEXTS_BYTES_MAX <= REPORT_BYTES_MAX
            && self.stdout.is_within_bounds()
            && self.stderr.is_within_bounds()
    }

    /// Cuts what is too long to be sent. Returns the length of a value that had
    /// to be left out: a part of it would be of no use.
    fn cut(&mut self) -> Option<usize> {
        let value_bytes = self.value.len();
        let is_lost = value_bytes as u64 > VALUE_BYTES_MAX;
        if is_lost {
            self.value = Vec::new();
        }
        let mut bytes = 0;
        let fit = |place: &&String| {
            bytes += bytes_of_place(place);
            bytes <= OUTPUTS_BYTES_MAX
        };
        let count = self.outputs.iter().take_while(fit).count();
        self.outputs.truncate(count);
        for captured in [&mut self.stdout, &mut self.stderr] {
            captured.member.take_if(|member| member.len() > URL_BYTES_MAX);
        }
        let room = REPORT_BYTES_MAX - TEXTS_BYTES_MAX - self.value.len() as u64;
        // Neither stream has all the room if both are long.
        let shared = CAPTURE_BYTES_MAX.min(room / 2);
        let stderr = (self.stderr.head.len() as u64).min(shared);
        self.stderr.cut(stderr);
        self.stdout.cut(CAPTURE_BYTES_MAX.min(room - stderr));
        if self.error.len() as u64 > ERROR_BYTES_MAX {
            self.error = shortened(&self.error, ERROR_BYTES_MAX as usize);
        }
        if self.executor.len() > EXECUTOR_PATH_BYTES_MAX {
            self.executor = shortened(&self.executor, EXECUTOR_PATH_BYTES_MAX);
        }
        // No executor makes one that is too long.
        self.gang.take_if(|gang| !gang.is_within_bounds());
        is_lost.then_some(value_bytes)
    }

    /// Bytes held.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        (size_of::<Detail>()
            + self.stdout.head.capacity()
            + self.stderr.head.capacity()
            + self.stdout.member_bytes()
            + self.stderr.member_bytes()
            + self.error.capacity()
            + self.executor.capacity()
            + self.value.capacity()) as u64
            + self.output_bytes()
            + self.gang.as_ref().map_or(0, |gang| gang.bytes())
    }

    /// What the places of its outputs take.
    fn output_bytes(&self) -> u64 {
        self.outputs.iter().map(|place| bytes_of_place(place)).sum()
    }
}

fn bytes_of_place(place: &str) -> u64 {
    (size_of::<String>() + place.len()) as u64
}

/// What a detail takes beside output and value.
const TEXTS_BYTES_MAX: u64 = ERROR_BYTES_MAX
    + OUTPUTS_BYTES_MAX
    + 2 * URL_BYTES_MAX as u64
    + EXECUTOR_PATH_BYTES_MAX as u64
    + GANG_USAGE_BYTES_MAX
    + ENVELOPE_BYTES_MAX;

/// The beginning and the end of a text, `bytes_max` in all.
#[must_use]
pub fn shortened(text: &str, bytes_max: usize) -> String {
    if text.len() <= bytes_max {
        return text.to_owned();
    }
    let gap = format!("\n[{} bytes in all]\n", text.len());
    let half = bytes_max.saturating_sub(gap.len()) / 2;
    let is_boundary = |at: &usize| text.is_char_boundary(*at);
    let start = (0..=half).rev().find(is_boundary).unwrap_or(0);
    let end = (text.len() - half..=text.len()).find(is_boundary).unwrap_or(text.len());
    format!("{}{gap}{}", &text[..start], &text[end..])
}

/// How often a task was tried before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Tries {
    /// Times it ran and failed.
    pub failures: u32,
    /// Times it was lost with an executor.
    pub losses: u32,
}

impl Tries {
    /// The tries of a task that was lost once more; `None` if that was once too
    /// often.
    #[must_use]
    pub fn lost(self) -> Option<Tries> {
        (self.losses < LOSSES_MAX).then(|| Tries { losses: self.losses + 1, ..self })
    }

    /// Attempts that have ended, one way or the other.
    #[must_use]
    pub fn ended(self) -> u32 {
        self.failures.saturating_add(self.losses)
    }

    /// The number of the next, or running, attempt, from 1.
    #[must_use]
    pub fn attempt(self) -> u32 {
        self.ended().saturating_add(1)
    }
}

/// From an executor: tasks in a row that ended alike, at the same time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Their instance.
    pub instance: InstanceId,
    /// The first of them.
    pub first: TaskId,
    /// How many.
    pub count: u64,
    /// As they were assigned.
    pub tries: Tries,
    /// How they ended.
    pub outcome: Outcome,
    /// When they started, on the dispatcher's clock.
    pub started: Time,
    /// When they ended, on the dispatcher's clock.
    pub ended: Time,
    /// What else there is to say.
    pub detail: Option<Arc<Detail>>,
}

impl Report {
    /// Leaves nothing in it that is too long to be sent, kept or delivered:
    /// output and error are cut, and a task whose value is too long has failed.
    pub fn bound(&mut self) {
        let Some(detail) = &mut self.detail else { return };
        if detail.is_within_bounds() {
            return;
        }
        let detail = Arc::make_mut(detail);
        if let Some(bytes) = detail.cut() {
            detail.error = format!(
                "it returned {bytes} bytes, and at most {VALUE_BYTES_MAX} can be sent: write \
                 large results to a file"
            );
            detail.cause = None;
            if self.outcome == Outcome::Exit(0) {
                self.outcome = Outcome::Exit(1);
            }
        }
    }
}

/// For the client and the journal: tasks in a row that ended alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// The first of them.
    pub first: TaskId,
    /// How many.
    pub count: u64,
    /// How they ended.
    pub outcome: Outcome,
    /// Where; `None` if they never ran.
    pub executor: Option<ExecutorId>,
    /// How many attempts it took; 0 if they never ran.
    pub attempts: u32,
    /// When they were accepted.
    pub queued: Time,
    /// When they were sent to the executor.
    pub dispatched: Time,
    /// When they started.
    pub started: Time,
    /// When they ended.
    pub ended: Time,
    /// What else there is to say.
    pub detail: Option<Arc<Detail>>,
}

impl Finished {
    /// Bytes held.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        size_of::<Finished>() as u64 + self.detail.as_ref().map_or(0, |detail| detail.bytes())
    }
}

/// How many tasks of an instance are in which state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Accepted in all.
    pub total: u64,
    /// Waiting for other tasks.
    pub waiting: u64,
    /// Ready to be dispatched.
    pub ready: u64,
    /// With an executor, running or about to.
    pub dispatched: u64,
    /// Ended well.
    pub done: u64,
    /// Ended badly.
    pub failed: u64,
    /// Cancelled.
    pub cancelled: u64,
    /// How often tasks that had ended were run again because what they left in
    /// caches was lost. While they run they count as ended all the same, and
    /// as ready or dispatched too.
    pub recomputed: u64,
}

impl Counts {
    /// How many have ended.
    #[must_use]
    pub fn ended(&self) -> u64 {
        self.done + self.failed + self.cancelled
    }

    /// Counts `count` tasks that ended with `status`.
    pub fn end(&mut self, status: Status, count: u64) {
        match status {
            Status::Done => self.done += count,
            Status::Failed => self.failed += count,
            Status::Cancelled => self.cancelled += count,
        }
    }

    /// Counts the tasks that ended according to `other`.
    pub fn add_ended(&mut self, other: &Counts) {
        self.done += other.done;
        self.failed += other.failed;
        self.cancelled += other.cancelled;
    }

    /// Counts `count` tasks that ended with `status` off again.
    pub fn unend(&mut self, status: Status, count: u64) {
        match status {
            Status::Done => self.done -= count,
            Status::Failed => self.failed -= count,
            Status::Cancelled => self.cancelled -= count,
        }
    }
}
