//! `falkon model`: what the abstract model says of a workload on a machine.

use crate::amount::{Amount, Rate, Size, Time};
use crate::description;
use crate::exit::Exit;
use crate::query::print;
use clap::Args;
use falkon_core::model::{Farm, Hits, Machine, NODES_SEARCHED_MAX, Workload};
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::path::PathBuf;

/// `falkon model`
#[derive(Args, Debug)]
pub(crate) struct ModelArgs {
    /// Description of the workload and the machine, as TOML; see docs/model.md
    file: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// The most nodes to consider for the best number of nodes
    #[arg(long, value_name = "N", default_value_t = 16_384,
          value_parser = clap::value_parser!(u64).range(1..=NODES_SEARCHED_MAX))]
    nodes_max: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Description {
    workload: WorkloadFields,
    machine: MachineFields,
    hits: Option<HitsFields>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WorkloadFields {
    tasks: u64,
    run: Amount<Time>,
    #[serde(default = "nothing")]
    dispatch: Amount<Time>,
    arrivals_per_second: Option<f64>,
    #[serde(default)]
    objects_per_task: f64,
    #[serde(default = "nothing")]
    object: Amount<Size>,
    #[serde(default)]
    objects: u64,
}

fn nothing<U>() -> Amount<U> {
    Amount::of(0.0)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MachineFields {
    nodes: u64,
    #[serde(default = "one")]
    slots_per_node: u32,
    #[serde(default = "nothing")]
    cache: Amount<Size>,
    #[serde(default = "nothing")]
    node_bandwidth: Amount<Rate>,
    #[serde(default = "nothing")]
    store_bandwidth: Amount<Rate>,
    #[serde(default)]
    fetches_ahead: bool,
}

fn one() -> u32 {
    1
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HitsFields {
    #[serde(default)]
    local: f64,
    #[serde(default)]
    peer: f64,
    #[serde(default)]
    store: f64,
}

impl Description {
    fn farm(self) -> Result<Farm, falkon_core::model::ModelError> {
        let workload = Workload {
            tasks: self.workload.tasks,
            run_s: self.workload.run.value,
            dispatch_s: self.workload.dispatch.value,
            arrivals_per_s: self.workload.arrivals_per_second,
            objects_per_task: self.workload.objects_per_task,
            object_bytes: self.workload.object.value,
            objects: self.workload.objects,
        };
        let machine = Machine {
            nodes: self.machine.nodes,
            slots_per_node: self.machine.slots_per_node,
            cache_bytes: self.machine.cache.value,
            node_bytes_per_s: self.machine.node_bandwidth.value,
            store_bytes_per_s: self.machine.store_bandwidth.value,
        };
        let hits =
            self.hits.map(|hits| Hits { local: hits.local, peer: hits.peer, store: hits.store });
        let farm = Farm::new(workload, machine, hits)?;
        Ok(if self.machine.fetches_ahead { farm.fetching_ahead() } else { farm })
    }
}

/// A result of the model.
#[derive(Serialize)]
struct Figure {
    symbol: &'static str,
    name: &'static str,
    /// `null` in JSON if it is infinite.
    value: f64,
    unit: &'static str,
}

#[derive(Serialize)]
struct Answer {
    figures: Vec<Figure>,
    caches_hold_working_set: bool,
    is_above_half: bool,
    optimum_is_open: bool,
    optimum_nodes: u64,
}

impl Answer {
    fn of(farm: &Farm, nodes_max: u64) -> Answer {
        let (workload, machine) = (farm.workload(), farm.machine());
        let (hits, copies) = (farm.hits(), farm.copies());
        let best = farm.optimum(nodes_max);
        let figure = |symbol, name, value, unit| Figure { symbol, name, value, unit };
        let figures = vec![
            figure("|T|", "resources (slots)", machine.resources() as f64, ""),
            figure("|K|", "tasks", workload.tasks as f64, ""),
            figure("|Ω|", "working set", workload.working_set_bytes(), "bytes"),
            figure("Σσ", "all caches", machine.all_caches_bytes(), "bytes"),
            figure("H_L", "share of hits in the local cache", hits.local, ""),
            figure("H_C", "share of hits in peers' caches", hits.peer, ""),
            figure("H_S", "share read from the store", hits.store, ""),
            figure("ω", "transfers from the store at once", copies.store_load, ""),
            figure("ζ", "copy from a peer", copies.peer_s, "s"),
            figure("ζ", "copy from the store", copies.store_s, "s"),
            figure("χ", "cost of a task, all cached", farm.cost_cached_s(), "s"),
            figure("χ", "cost of a task, all from peers", farm.cost_from_peers_s(), "s"),
            figure("χ", "cost of a task, all from the store", farm.cost_from_store_s(), "s"),
            figure("B", "average execution time", workload.average_execution_s(), "s"),
            figure("Y", "the same with overheads", farm.average_with_overhead_s(), "s"),
            figure("I", "computational intensity", workload.intensity(), "slots"),
            figure("V", "workload execution time", farm.execution_s(), "s"),
            figure("W", "the same with overheads", farm.execution_with_overhead_s(), "s"),
            figure("E", "efficiency", farm.efficiency(), ""),
            figure("S", "speedup", farm.speedup(), ""),
            figure(
                "",
                "nodes that get the most out of speedup × efficiency",
                best.nodes as f64,
                "",
            ),
            figure("", "speedup there", best.speedup, ""),
            figure("", "efficiency there", best.efficiency, ""),
        ];
        Answer {
            figures,
            caches_hold_working_set: farm.caches_hold_working_set(),
            is_above_half: farm.is_above_half(),
            optimum_is_open: best.is_open,
            optimum_nodes: best.nodes,
        }
    }

    fn table(&self) -> String {
        let width = |of: fn(&Figure) -> usize| self.figures.iter().map(of).max().unwrap_or(0);
        let symbols = width(|figure| figure.symbol.chars().count());
        let names = width(|figure| figure.name.chars().count());
        let mut out = String::new();
        for figure in &self.figures {
            // Writing to a string cannot fail.
            let _ = writeln!(
                out,
                "{:symbols$}  {:names$}  {:>14} {}",
                figure.symbol,
                figure.name,
                crate::amount::shown(figure.value),
                figure.unit
            );
        }
        let holds = if self.caches_hold_working_set { "hold" } else { "do not hold" };
        let _ = writeln!(out, "The caches together {holds} the working set.");
        if self.is_above_half {
            let _ = writeln!(out, "E > 0.5 wherever objects are found.");
        }
        if self.optimum_is_open {
            let _ = writeln!(
                out,
                "More than {} nodes would be better still: see --nodes-max.",
                self.optimum_nodes
            );
        }
        out
    }
}

/// Runs the command.
pub(crate) fn model(args: &ModelArgs) -> Exit {
    let description: Description = match description::read(&args.file) {
        Ok(description) => description,
        Err(error) => return Exit::usage(error),
    };
    let farm = match description.farm() {
        Ok(farm) => farm,
        Err(error) => return Exit::usage(format!("{}: {error}", args.file.display())),
    };
    let answer = Answer::of(&farm, args.nodes_max);
    let text = if args.json {
        match serde_json::to_string(&answer) {
            Ok(text) => text + "\n",
            Err(error) => return Exit::failure(format!("cannot print the model: {error}")),
        }
    } else {
        answer.table()
    };
    print(&text).unwrap_or(Exit::Success)
}
