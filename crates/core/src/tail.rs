//! What a task has written: questions about it, and their answers.

use crate::result::Stream;
use crate::task::TaskKey;

/// Most that one answer has of a stream, in bytes.
pub const TAIL_PART_BYTES_MAX: usize = 64 << 10;

/// The longest time that a question waits for more, in milliseconds.
pub const TAIL_PATIENCE_MS_MAX: u32 = 10_000;

/// A question about a stream of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TailQuestion {
    /// The task.
    pub task: TaskKey,
    /// The stream.
    pub stream: Stream,
    /// The first byte that is asked for.
    pub from: u64,
    /// How long to wait for something new, in milliseconds; at most
    /// [`TAIL_PATIENCE_MS_MAX`].
    pub patience_ms: u32,
}

/// A question about long output of a task that has ended below a relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputQuestion {
    /// The task.
    pub task: TaskKey,
    /// The stream.
    pub stream: Stream,
    /// The first byte that is asked for.
    pub from: u64,
    /// How many bytes; at most [`TAIL_PART_BYTES_MAX`] come.
    pub count: u64,
}

/// The same question to the relay that said that it keeps the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeptQuestion {
    /// The number that the relay gave it.
    pub output: u64,
    /// The stream.
    pub stream: Stream,
    /// The first byte that is asked for.
    pub from: u64,
    /// How many bytes, at most [`TAIL_PART_BYTES_MAX`].
    pub count: u64,
}

/// How a task is whose output was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TailState {
    /// It has not started.
    Waiting,
    /// It runs.
    Running,
    /// It has ended.
    Ended,
    /// It is not there, or not any more.
    Gone,
}

impl TailState {
    /// All of them, in the order of their numbers.
    pub const ALL: [TailState; 4] =
        [TailState::Waiting, TailState::Running, TailState::Ended, TailState::Gone];
}

/// An answer: a part of what a task has written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tail {
    /// How the task is.
    pub state: TailState,
    /// Whether bytes from the one on that was asked for are lost: the executor could not keep
    /// them.
    pub is_cut: bool,
    /// How many bytes it has written so far.
    pub total_bytes: u64,
    /// From the one on that was asked for; there may be more.
    pub bytes: Vec<u8>,
}

impl Tail {
    /// The answer where there is nothing to show.
    #[must_use]
    pub fn without_bytes(state: TailState) -> Tail {
        Tail { state, is_cut: false, total_bytes: 0, bytes: Vec::new() }
    }
}
