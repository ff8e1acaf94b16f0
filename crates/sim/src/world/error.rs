//! What can go wrong with a run.

use crate::scenario::ScenarioError;
use crate::time::Nanos;

/// Something that never may happen, in words.
#[derive(Debug)]
pub(crate) struct Broken(pub(crate) String);

impl From<String> for Broken {
    fn from(what: String) -> Broken {
        Broken(what)
    }
}

/// Why there are no figures.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SimError {
    /// The scenario makes no sense.
    #[error(transparent)]
    Scenario(ScenarioError),
    /// It was not over within its limit, or nothing more happened.
    #[error(
        "after {} s of virtual time {} of {} tasks had ended ({} submitted, {} queued, {} nodes \
         connected): raise `limit` if it only takes longer",
        .0.at.seconds(),
        .0.delivered,
        .0.tasks,
        .0.submitted,
        .0.queued,
        .0.nodes
    )]
    Unfinished(Unfinished),
    /// Something happened that never may: Falkon has a fault, or the simulator
    /// has.
    #[error(
        "at {} s, with seed {seed}: {what}; this is a fault of Falkon, please report it with the \
         scenario and the seed",
        .at.seconds()
    )]
    Broken {
        /// When.
        at: Nanos,
        /// With this seed it happens again.
        seed: u64,
        /// What.
        what: String,
    },
}

/// How far a run came that did not end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unfinished {
    /// When it was given up.
    pub at: Nanos,
    /// Tasks there are.
    pub tasks: u64,
    /// Tasks that were submitted.
    pub submitted: u64,
    /// Tasks that were submitted and had not started.
    pub queued: u64,
    /// Results that clients had.
    pub delivered: u64,
    /// Nodes that were connected.
    pub nodes: u64,
}
