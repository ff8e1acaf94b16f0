//! The 18-stage workload on nodes that are acquired on demand, beside what
//! falkon-sc07 §4.5 reports of it.

use falkon_cli::sim::{Description, FieldError, Variant};

/// What falkon-sc07 §4.5 reports of a run.
#[derive(Debug, Clone, Copy)]
struct Staged {
    name: &'static str,
    /// Mean queue time and execution time.
    queue_s: f64,
    execute_s: f64,
    time_s: f64,
    utilization: f64,
    efficiency: f64,
    allocations: u64,
}

/// falkon-sc07 §4.5, tables 2 and 3, in the order of the scenarios' runs; ours
/// have nothing beside them.
const STAGED: [Option<Staged>; 6] = [
    Some(Staged {
        name: "idle 15 s",
        queue_s: 87.3,
        execute_s: 17.9,
        time_s: 1754.0,
        utilization: 89.0,
        efficiency: 72.0,
        allocations: 11,
    }),
    Some(Staged {
        name: "idle 60 s",
        queue_s: 83.9,
        execute_s: 17.9,
        time_s: 1680.0,
        utilization: 75.0,
        efficiency: 75.0,
        allocations: 9,
    }),
    Some(Staged {
        name: "idle 120 s",
        queue_s: 74.7,
        execute_s: 17.9,
        time_s: 1507.0,
        utilization: 65.0,
        efficiency: 84.0,
        allocations: 7,
    }),
    Some(Staged {
        name: "idle 180 s",
        queue_s: 44.4,
        execute_s: 17.9,
        time_s: 1484.0,
        utilization: 59.0,
        efficiency: 85.0,
        allocations: 6,
    }),
    Some(Staged {
        name: "held throughout",
        queue_s: 43.5,
        execute_s: 17.9,
        time_s: 1276.0,
        utilization: 44.0,
        efficiency: 99.0,
        allocations: 0,
    }),
    None,
];

/// The scenarios of the 18-stage workload.
const STAGES: [&str; 3] = [
    include_str!("../../../../scenarios/stages.toml"),
    include_str!("../../../../scenarios/stages-held.toml"),
    include_str!("../../../../scenarios/stages-predictive.toml"),
];

/// A run of the 18-stage workload that is to be made for the table.
pub(super) struct StagedRow {
    pub(super) variant: Variant,
    pub(super) name: String,
    reported: Option<Staged>,
}

/// The rows of the 18-stage workload.
///
/// # Errors
/// A scenario that came with this program is wrong.
pub(super) fn rows() -> Result<Vec<StagedRow>, FieldError> {
    let mut variants = Vec::new();
    for text in STAGES {
        let description: Description =
            toml::from_str(text).map_err(|error| FieldError::Malformed(error.to_string()))?;
        variants.extend(description.variants()?);
    }
    let rows = variants.into_iter().zip(STAGED);
    let row = |(variant, reported): (Variant, Option<Staged>)| {
        let name = reported.map_or("predictive", |row| row.name).to_owned();
        StagedRow { variant, name, reported }
    };
    Ok(rows.map(row).collect())
}

/// What stands above the rows of the 18-stage workload.
pub(super) fn heading() -> String {
    format!(
        "\n18 stages, at most 32 nodes of a scheduler that polls every 60 s; in brackets: \
         falkon-sc07 4.5\n{:<18} {:>14} {:>14} {:>14} {:>15} {:>14} {:>12}\n",
        "release",
        "queue time, s",
        "execution, s",
        "time, s",
        "utilization, %",
        "efficiency, %",
        "allocations"
    )
}

impl StagedRow {
    /// The row as a line.
    pub(super) fn line(&self, figures: &falkon_sim::Figures) -> String {
        let provisioned = figures.provisioned;
        let utilization = provisioned.map_or(figures.utilization, |cost| cost.utilization);
        let beside = |ours: String, theirs: Option<f64>| match theirs {
            Some(theirs) => format!("{ours} ({theirs})"),
            None => ours,
        };
        let reported = self.reported;
        let of = |pick: fn(Staged) -> f64| reported.map(pick);
        format!(
            "{:<18} {:>14} {:>14} {:>14} {:>15} {:>14} {:>12}\n",
            self.name,
            beside(format!("{:.1}", figures.wait.seconds()), of(|row| row.queue_s)),
            beside(format!("{:.1}", figures.execute.seconds()), of(|row| row.execute_s)),
            beside(format!("{:.0}", figures.makespan.seconds()), of(|row| row.time_s)),
            beside(format!("{:.0}", utilization * 100.0), of(|row| row.utilization)),
            beside(format!("{:.0}", figures.efficiency * 100.0), of(|row| row.efficiency)),
            beside(
                provisioned.map_or(0, |cost| cost.requests).to_string(),
                of(|row| row.allocations as f64)
            ),
        )
    }
}
