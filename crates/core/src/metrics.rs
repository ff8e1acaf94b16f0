//! What a run is measured by, as the papers define it: hit ratios and
//! throughput (data-diffusion §5.2.1, §5.2.3), speedup and performance index
//! (§5.2.4), slowdown (§5.2.5), response time (§5.2.6), and efficiency and the
//! speedup that goes with it (§4.3; *Middleware Support for Many-Task
//! Computing* §4.3). Real runs and simulated ones are measured by the same
//! functions.
//!
//! Times are in seconds. Nothing here decides anything.

mod observed;
mod resources;

pub use observed::{Interval, Observed, TaskTimes};
pub use resources::ResourceTotals;

use crate::data::stage::{Count, Usage};

const HOUR_S: f64 = 3600.0;

/// Where inputs came from, as parts of all: HR_L, HR_C and HR_S of
/// data-diffusion §5.2.1, such as HR_L = H_L / (H_L + H_C + H_S).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HitRatios {
    /// From the own cache (cache hit local).
    pub local: f64,
    /// From caches of other executors (cache hit global).
    pub peer: f64,
    /// From persistent stores (cache miss).
    pub store: f64,
}

impl HitRatios {
    /// Of accesses; `None` if there were none.
    #[must_use]
    pub fn of(usage: &Usage) -> Option<HitRatios> {
        HitRatios::by(usage, |count| count.objects)
    }

    /// The same of bytes.
    #[must_use]
    pub fn of_bytes(usage: &Usage) -> Option<HitRatios> {
        HitRatios::by(usage, |count| count.bytes)
    }

    fn by(usage: &Usage, part: impl Fn(Count) -> u64) -> Option<HitRatios> {
        let [local, peer, store] =
            [usage.local, usage.peer, usage.store].map(|count| part(count) as f64);
        let all = local + peer + store;
        let of = |hits: f64| hits / all;
        (all > 0.0).then(|| HitRatios { local: of(local), peer: of(peer), store: of(store) })
    }
}

/// AR_T = WQ_T + E_T + D_T of data-diffusion §5.2.6: how long it takes, on
/// average, from a task's submission until its result is there.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Response {
    /// WQ_T: from the submission to the start.
    pub wait_s: f64,
    /// E_T: from the start to the end.
    pub execute_s: f64,
    /// D_T: from the end until the client has the result.
    pub deliver_s: f64,
}

impl Response {
    /// AR_T.
    #[must_use]
    pub fn total_s(&self) -> f64 {
        self.wait_s + self.execute_s + self.deliver_s
    }
}

/// What there is to know of a run in which tasks had slots.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Run {
    /// Results that came.
    pub tasks: u64,
    /// |T|: slots that there were, all the time.
    pub slots: f64,
    /// WET, and W of the model: from the first arrival until the last result
    /// is there.
    pub makespan_s: f64,
    /// What tasks ran, in all.
    pub work_s: f64,
    /// WET_ideal of §5.2.5: the makespan if slots were infinitely many and
    /// nothing but the tasks took time, so that arrivals alone set the pace.
    pub arrivals_s: f64,
}

impl Run {
    /// V of data-diffusion §4.3: the makespan if nothing but the tasks took
    /// time. Arrivals or slots set the pace.
    #[must_use]
    pub fn ideal_s(&self) -> f64 {
        ideal_s(self.arrivals_s, self.work_s, self.slots)
    }

    /// E = V / W of data-diffusion §4.3.
    #[must_use]
    pub fn efficiency(&self) -> f64 {
        efficiency(self.ideal_s(), self.makespan_s)
    }

    /// S = E × |T| of data-diffusion §4.3.
    #[must_use]
    pub fn speedup(&self) -> f64 {
        self.efficiency() * self.slots
    }

    /// The part of all slots' time, from beginning to end, in which tasks ran.
    #[must_use]
    pub fn utilization(&self) -> f64 {
        ratio(self.work_s, self.cpu_s())
    }

    /// CPU_T of data-diffusion §5.2.4: the time for which slots were there,
    /// used or not.
    #[must_use]
    pub fn cpu_s(&self) -> f64 {
        self.slots * self.makespan_s
    }

    /// SL = WET / WET_ideal of data-diffusion §5.2.5.
    #[must_use]
    pub fn slowdown(&self) -> f64 {
        ratio(self.makespan_s, self.arrivals_s)
    }

    /// Results per second.
    #[must_use]
    pub fn results_per_s(&self) -> f64 {
        per_second(self.tasks as f64, self.makespan_s)
    }

    /// SP = WET_baseline / WET of data-diffusion §5.2.4, where the baseline is
    /// the same workload with every access to the persistent store.
    #[must_use]
    pub fn speedup_over(&self, baseline_s: f64) -> f64 {
        ratio(baseline_s, self.makespan_s)
    }

    /// PI = SP / CPU_T of data-diffusion §5.2.4, per CPU hour; see
    /// [`normalized`].
    #[must_use]
    pub fn performance_index(&self, baseline_s: f64) -> f64 {
        ratio(self.speedup_over(baseline_s), self.cpu_s() / HOUR_S)
    }
}

/// V of data-diffusion §4.3, of a workload whose arrivals alone would take
/// `arrivals_s`, and whose tasks run for `work_s` in all, on so many slots.
#[must_use]
pub fn ideal_s(arrivals_s: f64, work_s: f64, slots: f64) -> f64 {
    let by_slots = if slots > 0.0 { work_s / slots } else { 0.0 };
    arrivals_s.max(by_slots)
}

/// E = V / W of data-diffusion §4.3.
#[must_use]
pub fn efficiency(ideal_s: f64, makespan_s: f64) -> f64 {
    ratio(ideal_s, makespan_s)
}

/// Something in a span of time, per second; 0 if there was no time.
#[must_use]
pub fn per_second(amount: f64, span_s: f64) -> f64 {
    if span_s > 0.0 { amount / span_s } else { 0.0 }
}

/// Performance indices of several runs of one workload, between 0 and 1 for
/// easier comparison, the best one's 1 (data-diffusion §5.2.4).
#[must_use]
pub fn normalized(indices: &[f64]) -> Vec<f64> {
    let best = indices.iter().copied().fold(0.0, f64::max);
    indices.iter().map(|index| if best > 0.0 { index / best } else { 0.0 }).collect()
}

/// A part of a whole; of nothing, all.
fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 1.0 }
}
