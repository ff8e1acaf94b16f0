//! `falkon sim --figures=collective`: what many tasks read together, at the size of
//! the paper's machine, beside what the links allow and what the paper reports.

mod collected;
mod striped;

use super::{Description, FieldError, Job, Variant, print, run_each};
use crate::exit::Exit;
use falkon_core::data::broadcast::Chunks;
use falkon_sim::{Figures, Nanos, NodeGroup, Scenario};

/// One of so many nodes is killed in a broadcast, if any are.
const NODES_PER_DEATH: u64 = 100;
/// How much longer than links need it may take.
const BOUND: f64 = 1.25;
/// What a spanning tree of copies moved on 4,096 processors (collective-io §5.1).
const PAPER_BYTES_PER_S: f64 = 12.5e9;

/// A scenario, and the lines that it makes.
struct Experiment {
    heading: &'static str,
    text: &'static str,
    /// Once more with nodes that die.
    dies: bool,
}

macro_rules! scenario {
    ($name:literal) => {
        include_str!(concat!("../../../../scenarios/", $name, ".toml"))
    };
}

const EXPERIMENTS: [Experiment; 2] = [
    Experiment {
        heading: "A file of 500 MB to all nodes, four processors each, over links of 140 MB/s \
                  (collective-io 5.1: 12.5 GB/s)",
        text: scenario!("broadcast"),
        dies: true,
    },
    Experiment {
        heading: "An environment of 30,000 files in an archive of 500 MB, unpacked on each node, \
                  over links of 1 Gb/s",
        text: scenario!("environment"),
        dies: false,
    },
];

/// A run, and what stands before its figures.
struct Row {
    scenario: Scenario,
    name: String,
    /// The line above it, if it is the first of its table.
    heading: Option<&'static str>,
}

/// Runs all, and prints a line for each.
pub(super) fn collective(seed: u64) -> Exit {
    let rows = match rows() {
        Ok(rows) => rows,
        Err(error) => return Exit::failure(format!("a scenario of the program: {error}")),
    };
    let job = |row: &Row| Job::new(row.name.clone(), row.scenario.clone());
    let exit = run_each(rows.iter().map(job).collect(), seed, |at, result| match result {
        Ok(figures) => print(&line(at, &rows[at], &figures)),
        Err(error) => Some(Exit::failure(error)),
    });
    exit.or_else(|| striped::print_all(seed))
        .or_else(|| collected::print_all(seed))
        .unwrap_or(Exit::Success)
}

fn rows() -> Result<Vec<Row>, FieldError> {
    let mut rows = Vec::new();
    for Experiment { heading, text, dies } in &EXPERIMENTS {
        let description: Description =
            toml::from_str(text).map_err(|error| FieldError::Malformed(error.to_string()))?;
        let mut heading = Some(*heading);
        for Variant { scenario, .. } in description.variants()? {
            let name = format!("{} nodes", crate::amount::shown(scenario.nodes_count() as f64));
            let dying = dies.then(|| Row {
                scenario: with_deaths(&scenario),
                name: name.clone() + ", 1 % die",
                heading: None,
            });
            rows.push(Row { scenario, name, heading: heading.take() });
            rows.extend(dying);
        }
    }
    Ok(rows)
}

/// The time in which all nodes may have what they read: a quarter more than a link
/// needs for it, and for a chunk at each level of a tree; and what unpacking takes.
fn bound_s(scenario: &Scenario) -> f64 {
    let Some(inputs) = scenario.workload.inputs else { return 0.0 };
    let levels = (scenario.nodes_count() as f64).log2();
    let bytes = inputs.object_bytes as f64 + levels * Chunks::of(inputs.object_bytes).bytes as f64;
    let unpack = inputs.unpack.map_or(0.0, Nanos::seconds);
    BOUND * bytes / scenario.network.node_bytes_per_s + unpack
}

/// The same, in which a hundredth of the nodes, and at least one, are killed one
/// after another, and none comes back. They are spread over the order in which nodes
/// join, and so over all places in the trees, and that without relation to when each
/// is killed.
fn with_deaths(scenario: &Scenario) -> Scenario {
    let mut dying = scenario.clone();
    let Some(group) = dying.nodes.first().copied() else { return dying };
    let deaths = group.count.div_ceil(NODES_PER_DEATH);
    let begins = scenario.workload.from.seconds();
    let each = group.count as f64 / deaths as f64;
    dying.nodes.clear();
    let mut nodes = 0;
    for number in 0..deaths {
        let at = ((number as f64 + scattered(number, 0.7)) * each) as u64;
        let part = scattered(number, 0.2);
        let dies = Nanos::from_seconds(begins + part * bound_s(scenario));
        dying.nodes.push(NodeGroup { count: at - nodes, ..group });
        dying.nodes.push(NodeGroup { count: 1, until: Some(dies), ..group });
        nodes = at + 1;
    }
    dying.nodes.push(NodeGroup { count: group.count - nodes, ..group });
    dying.nodes.retain(|group| group.count > 0);
    dying
}

/// Parts between 0 and 1 that fill the space between evenly, however many are taken.
fn scattered(number: u64, from: f64) -> f64 {
    const GOLDEN: f64 = 0.618_033_988_749_895;
    (from + number as f64 * GOLDEN).fract()
}

/// A row as a line, with the headings above it if it begins a table.
fn line(at: usize, row: &Row, figures: &Figures) -> String {
    let Row { scenario, name, heading } = row;
    let mut out = String::new();
    if let Some(heading) = heading {
        let gap = if at > 0 { "\n" } else { "" };
        let columns = format!(
            "{:<24} {:>12} {:>12} {:>10} {:>16} {:>10} {:>12}",
            "", "received, s", "bound, s", "of it, %", "aggregate, GB/s", "x paper", "store reads"
        );
        out = format!("{gap}{heading}\n{columns}\n");
    }
    let bytes = scenario.workload.inputs.map_or(0, |inputs| inputs.object_bytes) as f64;
    let (received, bound) = (figures.staged.seconds(), bound_s(scenario));
    let all = bytes * scenario.nodes_count() as f64 / received;
    let is_papers = scenario.workload.inputs.is_some_and(|inputs| inputs.unpack.is_none());
    let paper = is_papers.then(|| format!("{:.1}", all / PAPER_BYTES_PER_S));
    let cells = format!(
        "{name:<24} {received:>12.2} {bound:>12.2} {:>10.0} {:>16.1} {:>10} {:>12.2}\n",
        received / bound * 100.0,
        all / 1e9,
        paper.unwrap_or_default(),
        figures.store.bytes as f64 / bytes.max(1.0)
    );
    out + &cells
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_a_scenario_and_the_smallest_stay_within_their_bound() {
        let rows = rows().unwrap();
        assert_eq!(rows.len(), 15);
        for Row { scenario, name, .. } in rows {
            scenario.check().unwrap();
            if scenario.nodes_count() > 8 {
                continue;
            }
            let figures = falkon_sim::run(&scenario, 1).unwrap();
            let (received, bound) = (figures.staged.seconds(), bound_s(&scenario));
            assert!(received > 0.0 && received < bound, "{name}: {received} s, not {bound} s");
        }
    }

    #[test]
    fn a_hundredth_of_the_nodes_is_to_die() {
        let rows = rows().unwrap();
        let dying = rows.iter().filter(|row| row.name.ends_with("die"));
        for Row { scenario, name, .. } in dying {
            let ends = scenario.nodes.iter().filter(|group| group.until.is_some());
            assert_eq!(ends.count() as u64, scenario.nodes_count().div_ceil(100), "{name}");
        }
    }
}
