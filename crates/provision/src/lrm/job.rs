//! A job of an LRM.

use std::time::Duration;

/// The state of a job, from its LRM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// The job is over, or about to be.
    Ended,
    /// The LRM keeps it, and will never run it: it is to be cancelled.
    Dead,
    /// A word that the description does not list.
    Unknown,
    /// The job waits, and as it was asked for it will never start.
    Never,
    /// The job waits for more nodes than one job may have.
    TooLarge,
    /// The job is held.
    Held,
    /// The job waits for nodes.
    Pending,
    /// The job has nodes.
    Running,
}

/// A job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// The LRM's name for it.
    pub job: String,
    /// The name that it was submitted with.
    pub name: String,
    /// The state of the job.
    pub state: State,
    /// The LRM's word for its state, and why, if it says so.
    pub words: String,
    /// Whether it says why.
    pub has_reason: bool,
    /// The job's nodes, if the LRM lists them.
    pub nodes: Option<u64>,
    /// How long it may still run, if the LRM says so.
    pub left: Option<Duration>,
}

impl Job {
    /// A job that exists, and of which nothing else is known.
    pub(super) fn named(job: &str) -> Job {
        Job {
            job: job.to_owned(),
            name: String::new(),
            state: State::Unknown,
            words: String::new(),
            has_reason: false,
            nodes: None,
            left: None,
        }
    }
}
