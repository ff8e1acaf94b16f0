//! Tasks that are chosen by what they are, not by their numbers.

use clap::{Args, ValueEnum};
use falkon_wire::message::TaskInfo;

/// The states of tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum State {
    /// Waits for other tasks
    Waiting,
    /// Can run
    Ready,
    /// At an executor, ahead of time
    Sent,
    /// Runs
    Running,
    /// Has ended; its outputs are on their way to archives
    Staged,
    /// Succeeded
    Done,
    /// Did not succeed
    Failed,
    /// Cancelled
    Cancelled,
    /// Ended, and how is not in memory any more
    Ended,
}

impl State {
    fn word(self) -> &'static str {
        match self {
            State::Waiting => "waiting",
            State::Ready => "ready",
            State::Sent => "sent",
            State::Running => "running",
            State::Staged => "staged",
            State::Done => "done",
            State::Failed => "failed",
            State::Cancelled => "cancelled",
            State::Ended => "ended",
        }
    }
}

/// Options that choose tasks; those that all of them choose.
#[derive(Args, Debug, Default)]
pub(crate) struct Chosen {
    /// Only tasks in these states
    #[arg(long, value_name = "STATE", value_delimiter = ',')]
    state: Vec<State>,
    /// Only tasks whose command line contains this text
    #[arg(long, value_name = "TEXT")]
    command: Option<String>,
    /// Only tasks of this executor, by its name
    #[arg(long, value_name = "NAME")]
    executor: Option<String>,
}

impl Chosen {
    /// Tasks in a state, with a text in their command line, of an executor: what is `None`
    /// chooses all.
    pub(crate) fn of(
        state: Option<&str>,
        command: Option<&str>,
        executor: Option<&str>,
    ) -> Result<Chosen, String> {
        let state = state.map(|word| State::from_str(word, false)).transpose()?;
        Ok(Chosen {
            state: state.into_iter().collect(),
            command: command.map(str::to_owned),
            executor: executor.map(str::to_owned),
        })
    }

    /// Whether all tasks are.
    pub(crate) fn takes_all(&self) -> bool {
        self.state.is_empty() && self.command.is_none() && self.executor.is_none()
    }

    /// Whether states are named.
    pub(super) fn names_states(&self) -> bool {
        !self.state.is_empty()
    }

    /// Whether a task is.
    pub(crate) fn takes(&self, task: &TaskInfo) -> bool {
        let is_state = |state: &State| state.word() == task.state;
        if !self.state.is_empty() && !self.state.iter().any(is_state) {
            return false;
        }
        if self.executor.is_some() && self.executor != task.executor {
            return false;
        }
        self.command.as_ref().is_none_or(|text| {
            let words = task.argv.iter().map(|word| String::from_utf8_lossy(word));
            words.collect::<Vec<_>>().join(" ").contains(text)
        })
    }
}

/// Whether a task has ended and not well. One whose result is on disk may have failed or been
/// cancelled: it counts as failed.
pub(super) fn is_retriable(task: &TaskInfo, with_cancelled: bool) -> bool {
    let states = [State::Failed, State::Ended];
    let is_in = |state: &State| state.word() == task.state;
    states.iter().any(is_in) || (with_cancelled && is_in(&State::Cancelled))
}

/// Whether a task has not come to its end.
pub(super) fn is_under_way(task: &TaskInfo) -> bool {
    let states = [State::Waiting, State::Ready, State::Sent, State::Running];
    states.iter().any(|state| state.word() == task.state)
}
