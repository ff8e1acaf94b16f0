//! What a dispatcher knows, told to a provisioner as events.

use super::limits::{DEMAND_EXECUTOR_MICROS, DEMAND_MICROS};
use super::{Demand, Event};
use crate::dispatch::Dispatcher;
use crate::task::{ExecutorId, Time};
use std::collections::BTreeMap;

/// What a provisioner was told of a dispatcher, so that it is told of changes
/// only.
///
/// A look costs O(executors); looks are as far apart as that makes necessary.
#[derive(Debug, Default)]
pub struct Watch {
    due: Time,
    /// Executors there are, and since when each is idle as it was told.
    executors: BTreeMap<ExecutorId, Option<Time>>,
    demand: Demand,
    was_told: bool,
}

impl Watch {
    /// When the next look is worth while; earlier ones give nothing.
    #[must_use]
    pub fn due(&self) -> Time {
        self.due
    }

    /// What has changed since the last look.
    pub fn look(&mut self, now: Time, dispatcher: &mut Dispatcher) -> Vec<Event> {
        let mut events = Vec::new();
        if now < self.due {
            return events;
        }
        let mut gone = std::mem::take(&mut self.executors);
        for view in dispatcher.executor_views() {
            let executor = view.id();
            let idle = view.idle_since();
            let told = gone.remove(&executor);
            if told.is_none() {
                events.push(Event::ExecutorJoined {
                    executor,
                    allocation: view.allocation(),
                    capacity: view.capacity().clone(),
                    leaves_at: view.leaves_at(),
                });
            }
            if told != Some(idle) {
                events.push(match idle {
                    Some(since) => Event::ExecutorIdle { executor, since },
                    None => Event::ExecutorBusy { executor },
                });
            }
            self.executors.insert(executor, idle);
        }
        events.extend(gone.into_keys().map(|executor| Event::ExecutorLeft { executor }));
        let demand = dispatcher.demand(now);
        if !self.was_told || !demand.is_like(&self.demand) {
            self.was_told = true;
            self.demand.clone_from(&demand);
            events.push(Event::Demand(Box::new(demand)));
        }
        let pause = DEMAND_EXECUTOR_MICROS.saturating_mul(self.executors.len() as u64);
        self.due = now.after(pause.max(DEMAND_MICROS));
        events
    }
}
