//! `falkon plan`: the smallest machine on which a scenario, or a run that took place, takes
//! no longer than a time.
//!
//! The search is a bisection over simulations: it takes for granted that no work takes
//! longer on more nodes.

use super::fields::Description;
use super::replay::{self, Change};
use crate::access::AccessArgs;
use crate::amount::shown;
use crate::description;
use crate::exit::Exit;
use crate::plan::quantity::duration_micros;
use crate::query::print;
use clap::Args;
use falkon_sim::{Figures, Nanos, PolicyName, Scenario, SimError, run};
use serde_json::json;
use std::path::Path;

/// `falkon plan`
#[derive(Args, Debug)]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    access: AccessArgs,
    /// A scenario (NAME.toml, see docs/scenarios.md); a directory that falkon run --out or
    /// falkon start --dir wrote; or an instance of the running dispatcher, by its number or name
    #[arg(value_name = "SCENARIO|DIR|INSTANCE")]
    what: String,
    /// It is to take no longer than this (90m, 2h)
    #[arg(long, value_name = "TIME", value_parser = duration_micros)]
    deadline: u64,
    /// Of a directory, this instance, by its number or name [default: the only one]
    #[arg(long, short, value_name = "INSTANCE")]
    instance: Option<String>,
    /// Slots of each node [default: as in the scenario or the record]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    slots: Option<u32>,
    /// Policy of dispatch, as with falkon run [default: as in the scenario or the record]
    #[arg(long, value_name = "NAME", value_parser = PolicyName::named)]
    policy: Option<PolicyName>,
    /// The size of each node's cache [default: as in the scenario or the record]
    #[arg(long, value_name = "SIZE", value_parser = replay::cache_bytes)]
    cache: Option<u64>,
    /// Of a scenario, the seed of all random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Why there is no plan of a scenario.
#[derive(Debug, thiserror::Error)]
enum PlanError {
    /// It is several.
    #[error("a plan is of one scenario, and its `[grid]` makes {0}: leave the grid out")]
    Grid(usize),
    /// It is not known which nodes are to be fewer.
    #[error("a plan is for nodes that are alike, and there are {0} groups of them: give one")]
    Groups(usize),
    /// No number of nodes is enough.
    #[error(
        "no number of nodes makes it in {deadline_s} s: not with {nodes}, which are a slot for \
         each task"
    )]
    Deadline { deadline_s: f64, nodes: u64 },
    /// The simulator refuses it, or is at fault.
    #[error(transparent)]
    Sim(SimError),
}

/// Runs the command.
pub(crate) fn plan(args: &PlanArgs) -> Exit {
    let path = Path::new(&args.what);
    if !path.is_file() {
        let change = Change {
            slots: args.slots,
            policy: args.policy,
            cache_bytes: args.cache,
            ..Change::default()
        };
        let record = (&*args.what, args.instance.as_deref(), &args.access);
        return replay::smallest(record, change, args.deadline as f64 / 1e6, args.json);
    }
    if args.instance.is_some() {
        return Exit::usage("--instance is for a directory of events: a scenario has none");
    }
    let description: Description = match description::read(path) {
        Ok(description) => description,
        Err(error) => return Exit::usage(error),
    };
    let usage = |error: &dyn std::fmt::Display| Exit::usage(format!("{}: {error}", args.what));
    let variants = match description.variants() {
        Ok(variants) => variants,
        Err(error) => return usage(&error),
    };
    let [variant] = &variants[..] else { return usage(&PlanError::Grid(variants.len())) };
    match smallest(variant.scenario.clone(), args) {
        Ok(planned) if args.json => print(&planned.json()).unwrap_or(Exit::Success),
        Ok(planned) => print(&planned.text()).unwrap_or(Exit::Success),
        Err(PlanError::Sim(error @ SimError::Broken { .. })) => Exit::failure(error),
        Err(error) => usage(&error),
    }
}

/// The smallest machine.
#[derive(Debug)]
struct Planned {
    name: String,
    deadline_s: f64,
    nodes: u64,
    slots: u64,
    figures: Figures,
}

fn smallest(mut scenario: Scenario, args: &PlanArgs) -> Result<Planned, PlanError> {
    let [group] = &mut scenario.nodes[..] else {
        return Err(PlanError::Groups(scenario.nodes.len()));
    };
    group.slots = args.slots.unwrap_or(group.slots);
    group.cache = args.cache.map_or(group.cache, |bytes| {
        Some(falkon_sim::NodeCache { bytes, ..group.cache.unwrap_or_default() })
    });
    let slots = u64::from(group.slots.max(1));
    if let Some(policy) = args.policy {
        scenario.workload.policy.policy = policy;
    }
    let deadline_s = args.deadline as f64 / 1e6;
    let deadline = Nanos(args.deadline.saturating_mul(1000));
    // A run that takes longer need not be simulated to its end.
    scenario.limit = scenario.limit.min(scenario.workload.from.after(deadline).after(Nanos(1)));
    let takes = |nodes: u64| {
        let mut scenario = scenario.clone();
        scenario.nodes[0].count = nodes;
        if let Some(provision) = &mut scenario.provision {
            provision.queue.executors_max = nodes;
        }
        match run(&scenario, args.seed) {
            Ok(figures) => Ok((figures.makespan <= deadline).then_some(figures)),
            Err(SimError::Unfinished(_)) => Ok(None),
            Err(error) => Err(PlanError::Sim(error)),
        }
    };
    let least = u64::from(scenario.dispatchers).max(1);
    let most = scenario.workload.tasks.div_ceil(slots).max(least);
    match fewest((least, most), takes)? {
        Some((nodes, figures)) => {
            Ok(Planned { name: scenario.name, deadline_s, nodes, slots: nodes * slots, figures })
        }
        None => Err(PlanError::Deadline { deadline_s, nodes: most }),
    }
}

/// The smallest number from `least` to `most` that is enough, with what `is_enough` gives for
/// it; `None` if none is. What is enough stays so with more.
pub(super) fn fewest<T, E>(
    (least, most): (u64, u64),
    mut is_enough: impl FnMut(u64) -> Result<Option<T>, E>,
) -> Result<Option<(u64, T)>, E> {
    // All below `from` are too few.
    let (mut from, mut tried) = (least, least);
    let mut found = loop {
        match is_enough(tried)? {
            Some(of) => break (tried, of),
            None if tried >= most => return Ok(None),
            None => (from, tried) = (tried + 1, tried.saturating_mul(2).min(most)),
        }
    };
    while from < found.0 {
        let middle = from + (found.0 - from) / 2;
        match is_enough(middle)? {
            Some(of) => found = (middle, of),
            None => from = middle + 1,
        }
    }
    Ok(Some(found))
}

impl Planned {
    fn text(&self) -> String {
        let Planned { name, deadline_s, nodes, slots, figures } = self;
        let row = |name: &str, value: f64| format!("{name:<18} {:>14}\n", shown(value));
        format!(
            "scenario {name}\n{}{}{}{}{}{}",
            row("nodes", *nodes as f64),
            row("slots", *slots as f64),
            row("deadline, s", *deadline_s),
            row("makespan, s", figures.makespan.seconds()),
            row("efficiency, %", figures.efficiency * 100.0),
            row("slot seconds", figures.cpu_s),
        )
    }

    fn json(&self) -> String {
        let planned = json!({
            "scenario": self.name,
            "deadline_s": self.deadline_s,
            "nodes": self.nodes,
            "slots": self.slots,
            "makespan_s": self.figures.makespan.seconds(),
            "efficiency": self.figures.efficiency,
            "slot_s": self.figures.cpu_s,
            "done": self.figures.done,
            "failed": self.figures.failed,
        });
        format!("{planned}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::fewest;

    #[test]
    fn the_fewest_are_found_wherever_they_are() {
        for least in [1, 2, 7] {
            for most in least..40 {
                for enough in 0..=most + 1 {
                    let mut tried = 0;
                    let found = fewest::<u64, ()>((least, most), |nodes| {
                        tried += 1;
                        assert!((least..=most).contains(&nodes), "{nodes} of {least} to {most}");
                        Ok((nodes >= enough).then_some(nodes))
                    });
                    let expected = enough.max(least);
                    let expected = (expected <= most).then_some((expected, expected));
                    assert_eq!(found, Ok(expected), "{enough} of {least} to {most}");
                    assert!(tried <= 13, "{tried} tries for {enough} of {least} to {most}");
                }
            }
        }
    }
}
