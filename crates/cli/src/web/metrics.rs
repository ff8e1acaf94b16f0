//! The dispatcher's metrics, in OpenMetrics: sums over all instances and executors, so that
//! their number does not depend on how many there are.

use crate::top::board::takes_nothing;
use falkon_core::data::stage::Usage;
use falkon_core::task::MILLI;
use falkon_wire::message::Status;
use std::fmt::Write;

/// A metric: all of them are gauges, since what they count is no more when an instance is
/// destroyed, or an executor leaves.
struct Metric {
    name: &'static str,
    /// The last word of the name, if the metric has a unit.
    unit: &'static str,
    help: &'static str,
    /// The name of its label, and a value for each of the label's values.
    label: &'static str,
    values: Vec<(&'static str, f64)>,
}

/// The metrics of a dispatcher, as a text in the format OpenMetrics 1.0.
pub(super) fn text(status: &Status) -> String {
    let mut text = String::new();
    for Metric { name, unit, help, label, values } in metrics(status) {
        // Nothing fails that writes to a text.
        let _ = writeln!(text, "# TYPE {name} gauge");
        if !unit.is_empty() {
            let _ = writeln!(text, "# UNIT {name} {unit}");
        }
        let _ = writeln!(text, "# HELP {name} {help}");
        for (of, value) in values {
            let _ = match label {
                "" => writeln!(text, "{name} {value}"),
                label => writeln!(text, "{name}{{{label}=\"{of}\"}} {value}"),
            };
        }
    }
    text.push_str("# EOF\n");
    text
}

fn metrics(status: &Status) -> Vec<Metric> {
    let mut all = of_instances(status);
    all.extend(of_executors(status));
    all.extend(of_data(status));
    all
}

fn single(value: f64) -> Vec<(&'static str, f64)> {
    vec![("", value)]
}

fn of_instances(status: &Status) -> Vec<Metric> {
    let instances = &status.instances;
    let tasks = |of: fn(&falkon_wire::message::InstanceStatus) -> u64| {
        instances.iter().map(of).sum::<u64>() as f64
    };
    let complete = instances.iter().filter(|one| one.complete).count();
    vec![
        Metric {
            name: "falkon_start_time_seconds",
            unit: "seconds",
            help: "When the dispatcher started, in seconds since 1970.",
            label: "",
            values: single(status.started.0 as f64 / 1e6),
        },
        Metric {
            name: "falkon_instances",
            unit: "",
            help: "Instances that the dispatcher has.",
            label: "state",
            values: vec![
                ("complete", complete as f64),
                ("open", (instances.len() - complete) as f64),
            ],
        },
        Metric {
            name: "falkon_tasks",
            unit: "",
            help: "Tasks of the instances that the dispatcher has.",
            label: "state",
            values: vec![
                ("waiting", tasks(|one| one.counts.waiting)),
                ("ready", tasks(|one| one.counts.ready)),
                (
                    "sent",
                    tasks(|one| one.counts.dispatched.saturating_sub(one.running + one.staged)),
                ),
                ("running", tasks(|one| one.running)),
                ("staged", tasks(|one| one.staged)),
                ("done", tasks(|one| one.counts.done)),
                ("failed", tasks(|one| one.counts.failed)),
                ("cancelled", tasks(|one| one.counts.cancelled)),
            ],
        },
    ]
}

fn of_executors(status: &Status) -> Vec<Metric> {
    let executors = &status.executors;
    let away = executors.iter().filter(|one| !one.connected).count();
    let there = || executors.iter().filter(|one| one.connected);
    let withheld = there().filter(|one| takes_nothing(one)).count();
    let busy = there().filter(|one| !takes_nothing(one) && one.tasks > 0).count();
    let cpus = |milli: u64| milli as f64 / f64::from(MILLI);
    let all: u64 = there().map(|one| u64::from(one.capacity.cpus_milli)).sum();
    let free: u64 = there().map(|one| u64::from(one.free.cpus_milli)).sum();
    vec![
        Metric {
            name: "falkon_executors",
            unit: "",
            help: "Executors that are registered.",
            label: "state",
            values: vec![
                ("busy", busy as f64),
                ("idle", (executors.len() - away - withheld - busy) as f64),
                ("withheld", withheld as f64),
                ("away", away as f64),
            ],
        },
        Metric {
            name: "falkon_cpus",
            unit: "",
            help: "Processors of executors that are connected.",
            label: "state",
            values: vec![("used", cpus(all.saturating_sub(free))), ("free", cpus(free))],
        },
        Metric {
            name: "falkon_nodes_requested",
            unit: "",
            help: "Nodes that the provisioner has requested and that are to come.",
            label: "",
            values: single(status.coming.iter().map(|one| one.nodes).sum::<u64>() as f64),
        },
    ]
}

fn of_data(status: &Status) -> Vec<Metric> {
    let caches = || status.executors.iter().filter_map(|one| one.cache);
    let mut usage = Usage::default();
    caches().for_each(|cache| usage.add(&cache.state.usage));
    let used = caches().fold(0u64, |sum, cache| sum.saturating_add(cache.state.used));
    let capacity = caches().fold(0u64, |sum, cache| sum.saturating_add(cache.state.capacity));
    let sources = |of: fn(&falkon_core::data::stage::Count) -> u64| {
        vec![
            ("own", of(&usage.local) as f64),
            ("peer", of(&usage.peer) as f64),
            ("store", of(&usage.store) as f64),
        ]
    };
    vec![
        Metric {
            name: "falkon_cache_used_bytes",
            unit: "bytes",
            help: "What is in the caches of executors.",
            label: "",
            values: single(used as f64),
        },
        Metric {
            name: "falkon_cache_capacity_bytes",
            unit: "bytes",
            help: "What the caches of executors may hold.",
            label: "",
            values: single(capacity as f64),
        },
        Metric {
            name: "falkon_inputs",
            unit: "",
            help: "Inputs that the executors that are there have read.",
            label: "source",
            values: sources(|count| count.objects),
        },
        Metric {
            name: "falkon_inputs_bytes",
            unit: "bytes",
            help: "Bytes of the inputs that the executors that are there have read.",
            label: "source",
            values: sources(|count| count.bytes),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const PAGE: &str = include_str!("../../../../docs/watching.md");
    const DASHBOARD: &str = include_str!("../../../../packaging/grafana/falkon.json");

    /// The names of metrics in a text.
    fn named(text: &str) -> BTreeSet<&str> {
        let words = text.split(|of: char| !of.is_ascii_alphanumeric() && of != '_');
        words.filter(|word| word.starts_with("falkon_")).collect()
    }

    #[test]
    fn the_page_and_the_dashboard_name_metrics_that_there_are() {
        let metrics = metrics(&Status::default());
        let names: BTreeSet<&str> = metrics.iter().map(|metric| metric.name).collect();
        assert_eq!(named(PAGE), names);
        let _: serde_json::Value = serde_json::from_str(DASHBOARD).unwrap();
        let drawn = named(DASHBOARD);
        assert!(!drawn.is_empty() && drawn.is_subset(&names), "{drawn:?}");
    }

    #[test]
    fn each_metric_has_a_type_a_help_and_its_unit_in_its_name() {
        let text = text(&Status::default());
        assert!(text.ends_with("\n# EOF\n"));
        for metric in metrics(&Status::default()) {
            assert!(text.contains(&format!("# TYPE {} gauge\n", metric.name)));
            assert!(text.contains(&format!("# HELP {} {}\n", metric.name, metric.help)));
            assert!(metric.name.ends_with(metric.unit), "{}", metric.name);
        }
        assert!(text.contains("\nfalkon_tasks{state=\"done\"} 0\n"), "{text}");
    }
}
