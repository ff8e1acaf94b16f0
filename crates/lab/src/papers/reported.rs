//! What the papers report of their experiments.

use super::Part;

/// What a paper reports of one run, as it prints it; what it does not is `None`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reported {
    pub(super) time_s: Option<&'static str>,
    /// In percent.
    pub(super) efficiency: Option<&'static str>,
    /// Shares of reads in percent: local, from peers, from the store.
    pub(super) reads: Option<&'static str>,
    pub(super) response_s: Option<&'static str>,
    pub(super) queue: Option<&'static str>,
    pub(super) cpu_hours: Option<&'static str>,
    /// Moved between nodes.
    pub(super) peer_gb: Option<&'static str>,
    /// Read from the store.
    pub(super) store_gb: Option<&'static str>,
    /// Decisions per second.
    pub(super) per_s: Option<&'static str>,
    /// Hits in percent of the ideal.
    pub(super) hits: Option<&'static str>,
    /// What tasks read, in Gb/s.
    pub(super) rate_gb_s: Option<&'static str>,
}

pub(super) const NOTHING: Reported = Reported {
    time_s: None,
    efficiency: None,
    reads: None,
    response_s: None,
    queue: None,
    cpu_hours: None,
    peer_gb: None,
    store_gb: None,
    per_s: None,
    hits: None,
    rate_gb_s: None,
};

/// Hits for nine localities, 1 to 30.
const STACKING: [Reported; 9] = {
    let mut rows = [Reported { hits: Some(">90"), ..NOTHING }; 9];
    rows[8].rate_gb_s = Some("39");
    rows
};

/// Tasks of 1 s and of 0.1 s.
const ALL_PAIRS: [Reported; 2] = [
    Reported { efficiency: Some("80"), peer_gb: Some("1698"), store_gb: Some("34"), ..NOTHING },
    Reported {
        efficiency: Some("75"),
        peer_gb: Some("1528"),
        store_gb: Some("62"),
        rate_gb_s: Some("55"),
        ..NOTHING
    },
];

/// Six run times on each of four machines: 4 s on the largest.
const EFFICIENCY: [Reported; 21] = {
    let mut rows = [NOTHING; 21];
    rows[20].efficiency = Some("7");
    rows
};

/// A scenario file and the rows that it makes, in the order of its grid.
pub(super) struct Experiment {
    pub(super) part: Part,
    pub(super) name: &'static str,
    pub(super) text: &'static str,
    /// Rows beyond these are not in a paper.
    pub(super) rows: &'static [Reported],
}

/// The file of a scenario.
macro_rules! scenario {
    ($name:literal) => {
        include_str!(concat!("../../../../scenarios/", $name, ".toml"))
    };
}

pub(super) const EXPERIMENTS: [Experiment; 21] = [
    Experiment {
        part: Part::Mi,
        name: "first-available, none",
        text: scenario!("mi-first-available"),
        rows: &[Reported {
            time_s: Some("5011"),
            efficiency: Some("28"),
            reads: Some("0/0/100"),
            response_s: Some("1870"),
            queue: Some("198K"),
            ..NOTHING
        }],
    },
    Experiment {
        part: Part::Mi,
        name: "good-cache-compute",
        text: scenario!("mi-good-cache-compute"),
        rows: &[
            Reported {
                time_s: Some("3762"),
                efficiency: Some("38"),
                reads: Some("31/70"),
                response_s: Some("1084"),
                queue: Some(">91K"),
                ..NOTHING
            },
            Reported {
                time_s: Some("1596"),
                efficiency: Some("89"),
                reads: Some("78/1/21"),
                queue: Some(">91K"),
                ..NOTHING
            },
            Reported {
                time_s: Some("1436"),
                efficiency: Some("98.5"),
                reads: Some("98/2"),
                queue: Some("7K"),
                ..NOTHING
            },
            Reported {
                time_s: Some("1427"),
                efficiency: Some("99"),
                reads: Some("88/6/6"),
                response_s: Some("3.1"),
                queue: Some("7K"),
                cpu_hours: Some("46"),
                ..NOTHING
            },
        ],
    },
    Experiment {
        part: Part::Mi,
        name: "max-cache-hit, 4 GB",
        text: scenario!("mi-max-cache-hit"),
        rows: &[Reported {
            time_s: Some("2888"),
            efficiency: Some("49"),
            reads: Some("94.5/-/5.5"),
            ..NOTHING
        }],
    },
    Experiment {
        part: Part::Mi,
        name: "max-compute-util, 4 GB",
        text: scenario!("mi-max-compute-util"),
        rows: &[Reported { time_s: Some("2037"), efficiency: Some("69"), ..NOTHING }],
    },
    Experiment {
        part: Part::Mi,
        name: "queue-aware",
        text: scenario!("mi-queue-aware"),
        rows: &[],
    },
    Experiment {
        part: Part::Mi,
        name: "on demand, good-cache-compute",
        text: scenario!("mi-demand-good-cache-compute"),
        rows: &[
            Reported {
                time_s: Some("1436"),
                efficiency: Some("98.5"),
                reads: Some("98/2"),
                queue: Some("7K"),
                cpu_hours: Some("24"),
                ..NOTHING
            },
            Reported {
                time_s: Some("1427"),
                efficiency: Some("99"),
                reads: Some("88/6/6"),
                response_s: Some("3.1"),
                queue: Some("7K"),
                cpu_hours: Some("17"),
                ..NOTHING
            },
        ],
    },
    Experiment {
        part: Part::Mi,
        name: "the same, 4 GB, idle 60 s",
        text: scenario!("mi-demand-idle"),
        rows: &[],
    },
    Experiment {
        part: Part::Mi,
        name: "on demand, queue-aware",
        text: scenario!("mi-demand-queue-aware"),
        rows: &[],
    },
    Experiment {
        part: Part::Decisions,
        name: "first-available, no data",
        text: scenario!("first-available"),
        rows: &[Reported { per_s: Some("2981"), ..NOTHING }],
    },
    Experiment {
        part: Part::Decisions,
        name: "max-compute-util",
        text: scenario!("decisions-max-compute-util"),
        rows: &[Reported { per_s: Some("1322-1666"), ..NOTHING }],
    },
    Experiment {
        part: Part::Decisions,
        name: "max-cache-hit",
        text: scenario!("decisions-max-cache-hit"),
        rows: &[Reported { per_s: Some("1322"), ..NOTHING }],
    },
    Experiment {
        part: Part::Decisions,
        name: "good-cache-compute",
        text: scenario!("decisions-good-cache-compute"),
        rows: &[Reported { per_s: Some("1322-1666"), ..NOTHING }],
    },
    Experiment {
        part: Part::AllPairs,
        name: "500 x 500, store alone, 1 s",
        text: scenario!("all-pairs-first-available"),
        rows: &[Reported { efficiency: Some("26"), ..NOTHING }],
    },
    Experiment {
        part: Part::AllPairs,
        name: "500 x 500",
        text: scenario!("all-pairs"),
        rows: &ALL_PAIRS,
    },
    Experiment {
        part: Part::AllPairs,
        name: "500 x 500, disks alone",
        text: scenario!("all-pairs-disks"),
        rows: &ALL_PAIRS,
    },
    Experiment {
        part: Part::AllPairs,
        name: "1000 x 1000, 4 s",
        text: scenario!("all-pairs-large"),
        rows: &[Reported {
            time_s: Some("1150"),
            efficiency: Some("86"),
            peer_gb: Some("4700"),
            store_gb: Some("384"),
            per_s: Some("870"),
            ..NOTHING
        }],
    },
    Experiment {
        part: Part::Stacking,
        name: "stacking",
        text: scenario!("stacking"),
        rows: &STACKING,
    },
    Experiment {
        part: Part::Efficiency,
        name: "one dispatcher",
        text: scenario!("one-dispatcher"),
        rows: &[
            NOTHING,
            Reported { efficiency: Some("<95"), ..NOTHING },
            Reported { efficiency: Some("95"), ..NOTHING },
        ],
    },
    Experiment {
        part: Part::Efficiency,
        name: "four dispatchers",
        text: scenario!("efficiency"),
        rows: &EFFICIENCY,
    },
    Experiment { part: Part::Model, name: "store", text: scenario!("model-store"), rows: &[] },
    Experiment { part: Part::Model, name: "caches", text: scenario!("model-caches"), rows: &[] },
];
