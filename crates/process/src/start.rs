//! The start of a task, as others than its slot see it.
//!
//! Until a program is executed its slot stands still, and may do so for ever:
//! the working directory, the standard input and the program lie in file
//! systems that need not answer. So a start is watched. One that is to be
//! ended is killed, which a file system may allow; one that takes too long is
//! given up, and its slot has nothing to report if it comes back.

use std::sync::atomic::{AtomicI32, AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Stage;

/// Where a child writes how far it is, in memory that it shares.
#[derive(Debug, Default)]
pub(super) struct Progress {
    stage: AtomicU8,
    pid: AtomicI32,
}

impl Progress {
    /// The step being taken.
    pub(super) fn stage(&self) -> Stage {
        Stage::from_byte(self.stage.load(Ordering::Relaxed)).unwrap_or(Stage::Fork)
    }

    /// A step begins. Safe in a child that shares memory with its parent.
    pub(super) fn reach(&self, stage: Stage) {
        self.stage.store(stage as u8, Ordering::Relaxed);
    }

    /// Notes which process the child is. Safe in a child that shares memory with its parent.
    pub(super) fn is(&self, pid: libc::pid_t) {
        self.pid.store(pid, Ordering::Relaxed);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// No task is being started.
    Idle,
    /// A task is, since that time in microseconds.
    Starting(u64),
    /// The start took too long: the janitor has reported its end.
    GivenUp,
}

/// The start of one task after another, in one slot.
#[derive(Debug)]
pub(super) struct Start {
    state: Mutex<State>,
    pub(super) progress: Progress,
}

impl Start {
    pub(super) fn new() -> Start {
        Start { state: Mutex::new(State::Idle), progress: Progress::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A task begins.
    pub(super) fn begin(&self, now: u64) {
        let mut state = self.lock();
        self.progress.is(0);
        self.progress.reach(Stage::Arguments);
        *state = State::Starting(now);
    }

    /// The task has been started, or has failed to. Returns whether the outcome is wanted. Before
    /// this call, no thread may wait for the child: its number must mean no other process.
    pub(super) fn end(&self) -> bool {
        std::mem::replace(&mut *self.lock(), State::Idle) != State::GivenUp
    }

    /// For how long the task has been starting, in microseconds; `None` if none
    /// is.
    pub(super) fn age(&self, now: u64) -> Option<u64> {
        match *self.lock() {
            State::Starting(since) => Some(now.saturating_sub(since)),
            State::Idle | State::GivenUp => None,
        }
    }

    /// Kills the child, if there is one that has not executed its program.
    pub(super) fn kill(&self) {
        let state = self.lock();
        if matches!(*state, State::Starting(_)) {
            self.kill_child();
        }
    }

    /// Kills the child of a start that is not over, for the thread that holds the state.
    fn kill_child(&self) {
        let pid = self.progress.pid.load(Ordering::Relaxed);
        if pid > 0 {
            // SAFETY: A system call on plain values. The child has not been waited for, as its
            // slot does that after `end`, which waits for the state.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
    }

    /// Gives a start up that hangs, and kills its child; returns since when and at which step, or
    /// `None` if it is over. The slot of a child that can be killed finds the start given up.
    pub(super) fn give_up(&self) -> Option<(u64, Stage)> {
        let mut state = self.lock();
        let State::Starting(since) = *state else { return None };
        *state = State::GivenUp;
        let stage = self.progress.stage();
        self.kill_child();
        Some((since, stage))
    }
}
