//! `falkon sim --figures`: the papers' experiments, each beside what the paper
//! reports of it. The scenarios are those in `scenarios/`.

use super::fields::{Description, FieldError, Variant};
use std::fmt::Write;

/// What a paper reports; what it does not is `None`.
#[derive(Debug, Clone, Copy, Default)]
struct Reported {
    time_s: Option<f64>,
    efficiency: Option<f64>,
    /// Shares of reads in percent: local, from peers, from the store.
    reads: Option<&'static str>,
    response_s: Option<f64>,
    queue: Option<&'static str>,
}

/// A scenario file and the rows that it makes, in the order of its grid.
struct Experiment {
    name: &'static str,
    text: &'static str,
    rows: &'static [Reported],
}

const NOTHING: Reported =
    Reported { time_s: None, efficiency: None, reads: None, response_s: None, queue: None };

/// data-diffusion §5.2. Its nodes are acquired on demand; here they are there
/// from the beginning.
const EXPERIMENTS: [Experiment; 5] = [
    Experiment {
        name: "first-available, none",
        text: include_str!("../../../../scenarios/mi-first-available.toml"),
        rows: &[Reported {
            time_s: Some(5011.0),
            efficiency: Some(28.0),
            reads: Some("0/0/100"),
            response_s: Some(1870.0),
            queue: Some("198K"),
        }],
    },
    Experiment {
        name: "good-cache-compute",
        text: include_str!("../../../../scenarios/mi-good-cache-compute.toml"),
        rows: &[
            Reported {
                time_s: Some(3762.0),
                efficiency: Some(38.0),
                reads: Some("31/70"),
                response_s: Some(1084.0),
                queue: Some(">91K"),
            },
            Reported {
                time_s: Some(1596.0),
                efficiency: Some(89.0),
                reads: Some("78/1/21"),
                response_s: None,
                queue: Some(">91K"),
            },
            Reported {
                time_s: Some(1436.0),
                efficiency: Some(98.5),
                reads: Some("98/2"),
                response_s: None,
                queue: Some("7K"),
            },
            Reported {
                time_s: Some(1427.0),
                efficiency: Some(99.0),
                reads: Some("88/6/6"),
                response_s: Some(3.1),
                queue: Some("7K"),
            },
        ],
    },
    Experiment {
        name: "max-cache-hit, 4 GB",
        text: include_str!("../../../../scenarios/mi-max-cache-hit.toml"),
        rows: &[Reported {
            time_s: Some(2888.0),
            efficiency: Some(49.0),
            reads: Some("94.5/-/5.5"),
            ..NOTHING
        }],
    },
    Experiment {
        name: "max-compute-util, 4 GB",
        text: include_str!("../../../../scenarios/mi-max-compute-util.toml"),
        rows: &[Reported { time_s: Some(2037.0), efficiency: Some(69.0), ..NOTHING }],
    },
    Experiment {
        name: "queue-aware",
        text: include_str!("../../../../scenarios/mi-queue-aware.toml"),
        rows: &[NOTHING; 4],
    },
];

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
    reported: Option<Staged>,
}

/// The rows of the 18-stage workload.
///
/// # Errors
/// A scenario that came with this program is wrong.
pub(super) fn staged_rows() -> Result<Vec<StagedRow>, FieldError> {
    let mut variants = Vec::new();
    for text in STAGES {
        let description: Description =
            toml::from_str(text).map_err(|error| FieldError::Malformed(error.to_string()))?;
        variants.extend(description.variants()?);
    }
    let rows = variants.into_iter().zip(STAGED);
    Ok(rows.map(|(variant, reported)| StagedRow { variant, reported }).collect())
}

/// What stands above the rows of the 18-stage workload.
pub(super) fn staged_heading() -> String {
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
            reported.map_or("predictive", |row| row.name),
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

/// A run that is to be made for the table.
pub(super) struct Row {
    pub(super) variant: Variant,
    name: String,
    reported: Reported,
}

/// All rows.
///
/// # Errors
/// A scenario that came with this program is wrong.
pub(super) fn rows() -> Result<Vec<Row>, FieldError> {
    let mut rows = Vec::new();
    for experiment in &EXPERIMENTS {
        let description: Description = toml::from_str(experiment.text)
            .map_err(|error| FieldError::Malformed(error.to_string()))?;
        let nothing = std::iter::repeat(&NOTHING);
        let reported = experiment.rows.iter().chain(nothing);
        for (variant, reported) in description.variants()?.into_iter().zip(reported) {
            let mut name = experiment.name.to_owned();
            for (_, cache) in &variant.label {
                // Writing to a string cannot fail.
                let _ = write!(name, ", {cache} GB");
            }
            rows.push(Row { variant, name, reported: *reported });
        }
    }
    Ok(rows)
}

/// What stands above the rows.
pub(super) fn heading() -> String {
    format!(
        "MI workload, 64 nodes; in brackets: data-diffusion 5.2\n{:<28} {:>15} {:>15} {:>31} {:>17} {:>16}\n",
        "policy, cache",
        "time, s",
        "efficiency, %",
        "local/peer/store, %",
        "response, s",
        "longest queue"
    )
}

impl Row {
    /// The row as a line.
    pub(super) fn line(&self, figures: &falkon_sim::Figures) -> String {
        let beside = |ours: String, theirs: Option<String>| match theirs {
            Some(theirs) => format!("{ours} ({theirs})"),
            None => ours,
        };
        let share = |count: falkon_sim::Count| {
            count.objects as f64 * 100.0 / figures.reads.objects.max(1) as f64
        };
        let Reported { time_s, efficiency, reads, response_s, queue } = self.reported;
        let [local, peer, store] = [figures.local, figures.peer, figures.store].map(share);
        let text = |value: f64| value.to_string();
        format!(
            "{:<28} {:>15} {:>15} {:>31} {:>17} {:>16}\n",
            self.name,
            beside(format!("{:.0}", figures.makespan.seconds()), time_s.map(text)),
            beside(format!("{:.1}", figures.efficiency * 100.0), efficiency.map(text)),
            beside(format!("{local:.1}/{peer:.1}/{store:.1}"), reads.map(str::to_owned)),
            beside(format!("{:.2}", figures.response.mean.seconds()), response_s.map(text)),
            beside(figures.queue_peak.to_string(), queue.map(str::to_owned)),
        )
    }
}
