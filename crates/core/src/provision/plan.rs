//! What would be asked for now, and why, without asking for it.

use super::{Provisioner, QueueId, Reason, Verdict};
use crate::dispatch::Site;
use crate::task::Time;

/// What a provisioner would do now, and what keeps it from doing it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// One line for each queue, in the order in which they are asked.
    pub queues: Vec<PlanLine>,
}

/// What would be done with one queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanLine {
    /// Which queue.
    pub queue: QueueId,
    /// Nodes of each request that would be made.
    pub requests: Vec<u64>,
    /// Why; `None` if nothing is wanted of it.
    pub reason: Option<Reason>,
    /// Tasks that wait and that nobody can serve, this queue included, and what
    /// is wrong with it for them.
    pub unserved: Option<(u64, Reason)>,
    /// Nothing is asked of it before then, though something is wanted.
    pub not_before: Option<Time>,
    /// It is paused, by somebody or after refusals.
    pub is_paused: bool,
    /// Executors that would be released.
    pub releases: u64,
}

impl PlanLine {
    /// The reason for what would be requested, and for what cannot be served.
    #[must_use]
    pub fn why(&self) -> Option<String> {
        let reason = self.reason.as_ref().map(ToString::to_string);
        let unserved = self
            .unserved
            .as_ref()
            .map(|(tasks, reason)| format!("{}: {reason}", Verdict::Unserved { tasks: *tasks }));
        match (reason, unserved) {
            (Some(reason), Some(unserved)) => Some(format!("{reason}; {unserved}")),
            (reason, unserved) => reason.or(unserved),
        }
    }
}

impl Provisioner {
    /// The queues with what would be requested of them now, for those who look from a
    /// dispatcher above. No request is listed that is not made now.
    #[must_use]
    pub fn sites(&self, now: Time) -> Vec<Site> {
        let plan = self.plan(now);
        let site = |line: &PlanLine| {
            let view = self.queue_view(line.queue)?;
            let options = view.options();
            let is_held_up = line.is_paused || line.not_before.is_some();
            let held_up = match (line.is_paused, line.not_before) {
                (true, _) => Some("it is paused".to_owned()),
                (false, Some(until)) => {
                    let seconds = until.since(now).div_ceil(1_000_000);
                    Some(format!("nothing is requested for {seconds} s, after a refusal"))
                }
                (false, None) => None,
            };
            Some(Site {
                relays: String::new(),
                queue: options.name.clone(),
                node: options.node.clone(),
                held: view.held(),
                nodes_max: view.size().unwrap_or(u64::MAX).min(options.executors_max),
                delay_micros: view.delay_micros(),
                walltime_micros: options.walltime_micros,
                billing_micros: options.billing_micros,
                unmet: 0,
                requests: if is_held_up { Vec::new() } else { line.requests.clone() },
                reason: held_up.or_else(|| line.why()).unwrap_or_default(),
            })
        };
        plan.queues.iter().filter_map(site).collect()
    }
}
