//! When nodes are given back (falkon-sc07 §3.1).

use super::limits::LOOK_MICROS;
use super::{QueueOptions, Reason, ReleaseName};
use crate::task::{AllocationId, ExecutorId, Time};

/// Executors that are released together: those of an allocation, or one.
#[derive(Debug, Clone)]
pub(super) struct Lot {
    pub(super) allocation: AllocationId,
    pub(super) executors: Vec<ExecutorId>,
    /// Since when all of them have been idle.
    pub(super) idle_since: Time,
    /// Time since the allocation began that is paid for anyway ends then.
    pub(super) paid_until: Time,
}

/// What a policy looks at.
#[derive(Debug)]
pub(super) struct Holding<'a> {
    pub(super) now: Time,
    pub(super) options: &'a QueueOptions,
    /// Tasks that wait.
    pub(super) queued: u64,
    /// When the policy last released one.
    pub(super) released_one: Option<Time>,
    /// Nodes that are better given back than held, and why, as far as the
    /// forecast goes.
    pub(super) surplus: (u64, Option<Reason>),
    /// What may be released: idle for longest first.
    pub(super) lots: &'a [Lot],
}

/// When nodes are given back.
pub(super) trait Release {
    /// Which lots to release, by their place, and why.
    fn choose(&self, holding: &Holding<'_>) -> Vec<(usize, Reason)>;

    /// When it may choose differently though nothing has happened.
    fn look_at(&self, holding: &Holding<'_>) -> Option<Time>;
}

struct Idle;
struct NoQueued;
struct FewQueued(u64);
struct Predictive;

impl Release for Idle {
    fn choose(&self, holding: &Holding<'_>) -> Vec<(usize, Reason)> {
        let Some(allowed) = holding.options.idle_micros else { return Vec::new() };
        let idle = |lot: &Lot| holding.now.since(lot.idle_since);
        let lots = holding.lots.iter().enumerate().filter(|(_, lot)| idle(lot) >= allowed);
        lots.map(|(at, lot)| (at, Reason::Idle { micros: idle(lot) })).collect()
    }

    fn look_at(&self, holding: &Holding<'_>) -> Option<Time> {
        let allowed = holding.options.idle_micros?;
        holding.lots.iter().map(|lot| lot.idle_since.after(allowed)).min()
    }
}

impl Release for NoQueued {
    fn choose(&self, holding: &Holding<'_>) -> Vec<(usize, Reason)> {
        match holding.queued {
            0 => (0..holding.lots.len()).map(|at| (at, Reason::NoQueued)).collect(),
            _ => Vec::new(),
        }
    }

    fn look_at(&self, _: &Holding<'_>) -> Option<Time> {
        None
    }
}

impl Release for FewQueued {
    fn choose(&self, holding: &Holding<'_>) -> Vec<(usize, Reason)> {
        let due = holding.released_one.is_none_or(|at| holding.now.since(at) >= LOOK_MICROS);
        let (queued, below) = (holding.queued, self.0);
        match queued < below && due && !holding.lots.is_empty() {
            true => vec![(0, Reason::FewQueued { queued, below })],
            false => Vec::new(),
        }
    }

    fn look_at(&self, holding: &Holding<'_>) -> Option<Time> {
        let next = holding.released_one.unwrap_or(holding.now).after(LOOK_MICROS);
        (holding.queued < self.0 && !holding.lots.is_empty()).then_some(next)
    }
}

impl Release for Predictive {
    fn choose(&self, holding: &Holding<'_>) -> Vec<(usize, Reason)> {
        let (mut surplus, reason) = (holding.surplus.0, holding.surplus.1.clone());
        let mut chosen = Vec::new();
        for (at, lot) in holding.lots.iter().enumerate() {
            let nodes = lot.executors.len() as u64;
            // What is paid for anyway costs nothing to hold.
            if nodes <= surplus && lot.paid_until <= holding.now {
                surplus -= nodes;
                chosen.push((at, reason.clone().unwrap_or(Reason::NotNeeded)));
            }
        }
        chosen
    }

    fn look_at(&self, holding: &Holding<'_>) -> Option<Time> {
        (!holding.lots.is_empty()).then(|| holding.now.after(LOOK_MICROS))
    }
}

/// Calls `then` with the policy of that name.
pub(super) fn with_policy<T>(name: ReleaseName, then: impl FnOnce(&dyn Release) -> T) -> T {
    match name {
        ReleaseName::Idle => then(&Idle),
        ReleaseName::NoQueued => then(&NoQueued),
        ReleaseName::FewQueued(below) => then(&FewQueued(below)),
        ReleaseName::Predictive => then(&Predictive),
    }
}
