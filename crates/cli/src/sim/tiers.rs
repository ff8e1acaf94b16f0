//! `falkon sim --figures=tiers`: efficiency through relays, at the size of the paper's
//! machine and beyond.

use super::{Description, FieldError, Job, Variant, label, print, run_each};
use crate::amount::shown;
use crate::exit::Exit;
use falkon_sim::{Figures, Scenario};

/// A scenario's file, and the efficiency that its runs have to reach.
struct Experiment {
    heading: &'static str,
    text: &'static str,
    least: f64,
}

const EXPERIMENTS: [Experiment; 2] = [
    Experiment {
        heading: "160K processors below 640 relays (loosely-coupled, 640 dispatchers, tasks of \
                  4 s: 7 %)",
        text: include_str!("../../../../scenarios/tiers.toml"),
        least: 0.95,
    },
    Experiment {
        heading: "1,000,000 executors below 1,000 relays, which are killed at random",
        text: include_str!("../../../../scenarios/tiers-million.toml"),
        least: 0.98,
    },
];

/// A run, and what stands before its figures.
struct Row {
    scenario: Scenario,
    name: String,
    heading: Option<&'static str>,
    least: f64,
}

fn rows() -> Result<Vec<Row>, FieldError> {
    let mut rows = Vec::new();
    for Experiment { heading, text, least } in EXPERIMENTS {
        let description: Description =
            toml::from_str(text).map_err(|error| FieldError::Malformed(error.to_string()))?;
        let mut heading = Some(heading);
        for Variant { scenario, label: point } in description.variants()? {
            let run = scenario.workload.run.mean().seconds();
            let name = format!("{} s{}", shown(run), label(&point[point.len().min(1)..]));
            rows.push(Row { scenario, name, heading: heading.take(), least });
        }
    }
    Ok(rows)
}

/// Runs all, and prints a line for each.
pub(super) fn tiers(seed: u64) -> Exit {
    let rows = match rows() {
        Ok(rows) => rows,
        Err(error) => return Exit::failure(format!("a scenario of the program: {error}")),
    };
    let job = |row: &Row| Job::new(row.scenario.name.clone(), row.scenario.clone());
    run_each(rows.iter().map(job).collect(), seed, |at, result| match result {
        Ok(figures) => print(&line(at, &rows[at], &figures)),
        Err(error) => Some(Exit::failure(error)),
    })
    .unwrap_or(Exit::Success)
}

/// A row as a line, with the headings above it if it begins a table.
fn line(at: usize, row: &Row, figures: &Figures) -> String {
    let mut out = String::new();
    if let Some(heading) = row.heading {
        let gap = if at > 0 { "\n" } else { "" };
        out = format!(
            "{gap}{heading}\n{:<12} {:>12} {:>12} {:>14} {:>10} {:>14} {:>14} {:>8}\n",
            "tasks of",
            "tasks",
            "makespan, s",
            "efficiency, %",
            "bar, %",
            "dispatcher, %",
            "relay, %",
            "faults"
        );
    }
    let cells = format!(
        "{:<12} {:>12} {:>12.2} {:>14.2} {:>10.0} {:>14.1} {:>14.1} {:>8}\n",
        row.name,
        figures.done + figures.failed,
        figures.makespan.seconds(),
        figures.efficiency * 100.0,
        row.least * 100.0,
        figures.dispatcher_busy * 100.0,
        figures.relay_busy * 100.0,
        figures.faults
    );
    out + &cells
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thousandth_of_each_machine_reaches_its_bar() {
        let rows = rows().unwrap();
        assert_eq!(rows.len(), 3);
        for Row { mut scenario, name, least, .. } in rows {
            scenario.check().unwrap();
            scenario.nodes[0].count /= 1000;
            scenario.workload.tasks /= 1000;
            let relays = scenario.relays.as_mut().unwrap();
            relays.count = relays.count.div_ceil(1000);
            if let Some(mean) = &mut scenario.faults.relay_crash {
                mean.0 *= 1000;
            }
            let efficiency = falkon_sim::run(&scenario, 1).unwrap().efficiency;
            assert!(efficiency > least, "{name}: {efficiency}");
        }
    }
}
