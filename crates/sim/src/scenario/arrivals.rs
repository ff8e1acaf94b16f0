//! When tasks come.

use super::{Recorded, ScenarioError, above_zero};
use crate::time::{Nanos, SECOND_NANOS};

/// When tasks come.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Arrivals {
    /// All at the beginning.
    AtOnce,
    /// Evenly, so many per second.
    Rate(f64),
    /// At a rate that grows: A(i) = min(ceil(A(i − 1) × factor), most) tasks
    /// per second in the i-th interval (data-diffusion §5.2).
    Ramp {
        /// A(0), tasks per second.
        first: f64,
        /// By which the rate grows.
        factor: f64,
        /// The highest rate, tasks per second.
        most: f64,
        /// How long each rate lasts.
        interval: Nanos,
    },
}

impl Arrivals {
    pub(super) fn check(&self) -> Result<(), ScenarioError> {
        match *self {
            Arrivals::AtOnce => Ok(()),
            Arrivals::Rate(rate) => above_zero("the rate of arrivals", rate),
            Arrivals::Ramp { first, factor, most, interval } => {
                above_zero("the first rate of arrivals", first)?;
                above_zero("the growth of the rate of arrivals", factor)?;
                above_zero("the highest rate of arrivals", most)?;
                above_zero("the interval between rates of arrivals", interval.seconds())
            }
        }
    }
}

/// A stretch of time in which tasks come at one rate.
#[derive(Debug, Clone, Copy)]
struct Stretch {
    first: u64,
    from: Nanos,
    rate: f64,
}

/// The arrival time of every task, without a list of them.
#[derive(Debug)]
pub(crate) struct Arriving {
    from: Nanos,
    /// None if all come at once.
    stretches: Vec<Stretch>,
}

impl Arriving {
    pub(crate) fn new(arrivals: &Arrivals, from: Nanos, tasks: u64) -> Arriving {
        let mut stretches = Vec::new();
        match *arrivals {
            Arrivals::AtOnce => {}
            Arrivals::Rate(rate) => stretches.push(Stretch { first: 0, from, rate }),
            Arrivals::Ramp { first, factor, most, interval } => {
                let mut stretch = Stretch { first: 0, from, rate: first.min(most) };
                while stretch.first < tasks {
                    stretches.push(stretch);
                    let next = (stretch.rate * factor).ceil().min(most);
                    if next == stretch.rate {
                        break;
                    }
                    let came = (stretch.rate * interval.seconds()).round().max(1.0) as u64;
                    stretch.first = stretch.first.saturating_add(came);
                    stretch.from = stretch.from.after(interval);
                    stretch.rate = next;
                }
            }
        }
        Arriving { from, stretches }
    }

    /// The arrivals of a run that took place.
    pub(crate) fn recorded(recorded: &Recorded) -> Arriving {
        let runs = recorded.arrivals();
        let stretches = runs.map(|(first, from)| Stretch { first, from, rate: f64::INFINITY });
        Arriving { from: recorded.first_arrival(), stretches: stretches.collect() }
    }

    /// When task `index` comes.
    pub(crate) fn at(&self, index: u64) -> Nanos {
        let after = self.stretches.partition_point(|stretch| stretch.first <= index);
        let Some(stretch) = after.checked_sub(1).map(|at| self.stretches[at]) else {
            return self.from;
        };
        let since = (index - stretch.first) as f64 / stretch.rate * SECOND_NANOS as f64;
        stretch.from.after(Nanos(since as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ramp_of_the_mi_workload_brings_250k_tasks_in_1415_s() {
        let ramp = Arrivals::Ramp {
            first: 1.0,
            factor: 1.3,
            most: 1000.0,
            interval: Nanos(60 * SECOND_NANOS),
        };
        let arriving = Arriving::new(&ramp, Nanos(0), 250_000);
        assert_eq!(arriving.stretches.len(), 24);
        let last = arriving.at(249_999).seconds();
        assert!((1410.0..1420.0).contains(&last), "the last comes at {last} s");
        let mut before = Nanos(0);
        for task in 0..250_000 {
            let at = arriving.at(task);
            assert!(at >= before, "task {task} comes before the one before it");
            before = at;
        }
    }

    #[test]
    fn tasks_come_evenly_or_at_once() {
        assert_eq!(Arriving::new(&Arrivals::AtOnce, Nanos(7), 9).at(8), Nanos(7));
        assert_eq!(
            Arriving::new(&Arrivals::Rate(4.0), Nanos(7), 9).at(8),
            Nanos(2 * SECOND_NANOS + 7)
        );
    }
}
