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
