//! The abstract model (data-diffusion §4) held against simulated runs: the
//! model is told of a scenario what it asks for, and of the run where accesses
//! found their objects, as data-diffusion §4.4 was of its experiments.

use falkon_core::model::{Farm, Hits, Machine, ModelError, Workload};
use falkon_sim::{Arrivals, Figures, Scenario, TaskKind};

/// What the model says a run takes (W), in seconds.
///
/// # Errors
/// The scenario has values that the model has no place for.
pub(super) fn model_s(scenario: &Scenario, figures: &Figures) -> Result<f64, ModelError> {
    let inputs = scenario.workload.inputs;
    // Messages to and from executors go on beside other tasks; a process is
    // started in the slot that it takes.
    let dispatch_s = match scenario.workload.kind {
        TaskKind::Compute => scenario.executor.start.seconds(),
        TaskKind::Noop | TaskKind::Sleep => 0.0,
    };
    let slots = scenario.slots();
    let workload = Workload {
        tasks: scenario.workload.tasks,
        run_s: slots as f64 / scenario.capacity_per_s(),
        dispatch_s,
        arrivals_per_s: match scenario.workload.arrivals {
            Arrivals::AtOnce | Arrivals::Ramp { .. } => None,
            Arrivals::Rate(rate) => Some(rate),
        },
        objects_per_task: inputs.map_or(0.0, |inputs| f64::from(inputs.per_task)),
        object_bytes: inputs.map_or(0.0, |inputs| inputs.object_bytes as f64),
        objects: inputs.map_or(0, |inputs| inputs.objects),
    };
    let nodes = scenario.nodes_count();
    let caches = scenario
        .nodes
        .iter()
        .filter_map(|group| group.cache.map(|cache| cache.bytes as f64 * group.count as f64));
    let machine = Machine {
        nodes,
        slots_per_node: u32::try_from(slots / nodes.max(1)).unwrap_or(u32::MAX),
        cache_bytes: caches.sum::<f64>() / nodes.max(1) as f64,
        node_bytes_per_s: scenario.network.node_bytes_per_s,
        store_bytes_per_s: scenario.store.bytes_per_s,
    };
    let farm = Farm::new(workload, machine, hits(figures))?;
    // Executors with caches fetch for the tasks that wait while others run.
    let farm = if scenario.stages() { farm.fetching_ahead() } else { farm };
    Ok(farm.execution_with_overhead_s())
}

/// Where the accesses of a run found their objects; `None` if there were none.
fn hits(figures: &Figures) -> Option<Hits> {
    let reads = figures.reads.objects;
    if reads == 0 {
        return None;
    }
    // What was fetched and never read counts for no access.
    let store = (figures.store.objects as f64 / reads as f64).min(1.0);
    let peer = (figures.peer.objects as f64 / reads as f64).min(1.0 - store);
    Some(Hits { local: 1.0 - store - peer, peer, store })
}

/// How far a model is from what it models.
#[derive(Debug, Default)]
pub(super) struct Errors {
    /// What was measured, and what the model said.
    pairs: Vec<(f64, f64)>,
}

impl Errors {
    /// Adds one run. Returns the model's error, as a share of the run.
    pub(super) fn add(&mut self, measured: f64, modelled: f64) -> f64 {
        self.pairs.push((measured, modelled));
        (modelled - measured) / measured
    }

    /// The mean of the errors' sizes.
    pub(super) fn mean(&self) -> f64 {
        let sum: f64 = self.sizes().sum();
        sum / self.pairs.len().max(1) as f64
    }

    /// The largest size of an error.
    pub(super) fn worst(&self) -> f64 {
        self.sizes().fold(0.0, f64::max)
    }

    fn sizes(&self) -> impl Iterator<Item = f64> + '_ {
        self.pairs.iter().map(|(measured, modelled)| ((modelled - measured) / measured).abs())
    }

    /// R²: the share of the differences between runs that the model explains.
    pub(super) fn r_squared(&self) -> f64 {
        let mean = self.pairs.iter().map(|(measured, _)| measured).sum::<f64>()
            / self.pairs.len().max(1) as f64;
        let square = |of: f64| of * of;
        let left: f64 = self.pairs.iter().map(|(one, other)| square(one - other)).sum();
        let all: f64 = self.pairs.iter().map(|(one, _)| square(one - mean)).sum();
        1.0 - left / all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_shares_of_what_was_measured() {
        let mut errors = Errors::default();
        assert_eq!(errors.add(100.0, 110.0), 0.1);
        assert_eq!(errors.add(200.0, 190.0), -0.05);
        assert!((errors.mean() - 0.075).abs() < 1e-12);
        assert_eq!(errors.worst(), 0.1);
        assert!((errors.r_squared() - (1.0 - 200.0 / 5000.0)).abs() < 1e-12);
    }
}
