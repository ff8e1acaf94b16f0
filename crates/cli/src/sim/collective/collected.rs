//! What many tasks write together: small outputs as members of archives, beside the same
//! tasks without outputs, and beside a file for each.

use super::{Description, FieldError, Job, print, run_each};
use crate::amount::shown;
use crate::exit::Exit;
use falkon_sim::{Figures, Outputs, Scenario};

/// Bytes that each task writes.
const SIZES: [(&str, u64); 4] =
    [("1 KB", 1_000), ("10 KB", 10_000), ("100 KB", 100_000), ("1 MB", 1_000_000)];

/// What a line says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The first of its table, that the others are compared with.
    First(&'static str),
    /// Its time relative to the first one's, in percent.
    Efficiency,
    /// How many times faster it is than the first one.
    Speedup,
}

struct Row {
    scenario: Scenario,
    name: String,
    kind: Kind,
}

fn scenario(text: &str) -> Result<Scenario, FieldError> {
    let description: Description =
        toml::from_str(text).map_err(|error| FieldError::Malformed(error.to_string()))?;
    let variant = description.variants()?.into_iter().next();
    variant.map(|variant| variant.scenario).ok_or(FieldError::Grid(0))
}

fn with(scenario: &Scenario, outputs: Option<Outputs>) -> Scenario {
    let mut changed = scenario.clone();
    changed.workload.outputs = outputs;
    changed
}

fn rows() -> Result<Vec<Row>, FieldError> {
    let sizes = scenario(include_str!("../../../../../scenarios/outputs.toml"))?;
    let many = scenario(include_str!("../../../../../scenarios/creates.toml"))?;
    let tasks = shown(sizes.workload.tasks as f64);
    let mut rows = vec![Row {
        scenario: with(&sizes, None),
        name: format!("{tasks} tasks of 4 s"),
        kind: Kind::First("no outputs, on 4,096 processors"),
    }];
    rows.extend(SIZES.map(|(name, bytes)| Row {
        scenario: with(&sizes, Some(Outputs { bytes, are_collected: true })),
        name: format!("{name} each"),
        kind: Kind::Efficiency,
    }));
    let outputs = many.workload.outputs.map(|outputs| Outputs { are_collected: false, ..outputs });
    rows.push(Row {
        scenario: with(&many, outputs),
        name: "a file for each".to_owned(),
        kind: Kind::First("100,000 outputs of 10 KB, creates of 5 ms"),
    });
    let collected = Row { name: "members".to_owned(), scenario: many, kind: Kind::Speedup };
    rows.push(collected);
    Ok(rows)
}

/// Runs all, and prints a line for each.
pub(super) fn print_all(seed: u64) -> Option<Exit> {
    let rows = match rows() {
        Ok(rows) => rows,
        Err(error) => return Some(Exit::failure(format!("a scenario of the program: {error}"))),
    };
    let job = |row: &Row| Job::new(row.name.clone(), row.scenario.clone());
    let mut first = 0.0;
    run_each(rows.iter().map(job).collect(), seed, |at, result| match result {
        Ok(figures) => print(&line(&rows[at], &figures, &mut first)),
        Err(error) => Some(Exit::failure(error)),
    })
}

/// A row as a line, with the headings above it if it begins a table.
fn line(row: &Row, figures: &Figures, first: &mut f64) -> String {
    let took = figures.makespan.seconds();
    let (heading, compared) = match row.kind {
        Kind::First(heading) => {
            *first = took;
            let columns = format!("{:<28} {:>12} {:>14} {:>8}", "", "time, s", "compared", "files");
            (format!("\nOutputs: {heading}\n{columns}\n"), String::new())
        }
        Kind::Efficiency => (String::new(), format!("{:.1} %", *first / took * 100.0)),
        Kind::Speedup => (String::new(), format!("{:.1} x", *first / took)),
    };
    format!("{heading}{:<28} {took:>12.2} {compared:>14} {:>8}\n", row.name, figures.files)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As in the rows, with fewer tasks on fewer nodes.
    fn fewer(scenario: &Scenario, nodes: u64, tasks: u64) -> Scenario {
        let mut fewer = scenario.clone();
        fewer.nodes[0].count = nodes;
        fewer.workload.tasks = tasks;
        fewer
    }

    #[test]
    fn members_cost_little_time_and_few_files() {
        let rows = rows().unwrap();
        let run = |row: &Row, nodes, tasks| {
            let scenario = fewer(&row.scenario, nodes, tasks);
            scenario.check().unwrap();
            falkon_sim::run(&scenario, 1).unwrap()
        };
        let (alone, largest) = (run(&rows[0], 20, 2_000), run(&rows[4], 20, 2_000));
        let efficiency = alone.makespan.seconds() / largest.makespan.seconds();
        assert!(efficiency > 0.97, "{efficiency}");
        // Of 20 nodes, 16 collect.
        assert_eq!(alone.files, 0);
        assert!((16..200).contains(&largest.files), "{} files", largest.files);
        let (files, members) = (run(&rows[5], 2, 1_000), run(&rows[6], 2, 1_000));
        assert_eq!(files.files, 1_000);
        assert!(members.files <= 10, "{} files", members.files);
        let speedup = files.makespan.seconds() / members.makespan.seconds();
        assert!(speedup > 3.0, "{speedup}");
    }
}
