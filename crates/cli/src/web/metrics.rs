//! The dispatcher's metrics, in OpenMetrics: sums over all instances and executors, so that
//! their number does not depend on how many there are. Relays and users have lines of their own,
//! up to [`RELAYS_SHOWN_MAX`] and [`USERS_SHOWN_MAX`].

use crate::query::tree::branches;
use crate::top::board::takes_nothing;
use crate::users::{Totals, totals};
use falkon_core::data::stage::Usage;
use falkon_core::dispatch::{Standing, UserLimits, UserUse};
use falkon_core::task::MILLI;
use falkon_wire::message::Status;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Relays with lines of their own; the others share one.
const RELAYS_SHOWN_MAX: usize = 64;
/// The label of the relays that share a line. No relay has this name: slashes are between names.
const OTHERS: &str = "/";

/// Users with lines of their own; the others share one.
const USERS_SHOWN_MAX: usize = 64;
/// The label of the users that share a line. No user has this name.
const OTHER_USERS: &str = "*";

/// A metric: a gauge, since what it counts is no more when an instance is destroyed, or an
/// executor leaves; or a counter, which begins anew when a relay is started again.
pub(super) struct Metric {
    pub(super) name: &'static str,
    pub(super) is_counter: bool,
    /// The last word of the name, if the metric has a unit.
    pub(super) unit: &'static str,
    pub(super) help: &'static str,
    /// The name of its label, and a value for each of the label's values.
    pub(super) label: &'static str,
    pub(super) values: Values,
}

/// Values, each with that of the label.
pub(super) type Values = Vec<(Cow<'static, str>, f64)>;

/// The metrics of a dispatcher, as a text in the format OpenMetrics 1.0.
pub(super) fn text(status: &Status) -> String {
    let mut text = String::new();
    for Metric { name, is_counter, unit, help, label, values } in metrics(status) {
        let (kind, last) = if is_counter { ("counter", "_total") } else { ("gauge", "") };
        // Nothing fails that writes to a text.
        let _ = writeln!(text, "# TYPE {name} {kind}");
        if !unit.is_empty() {
            let _ = writeln!(text, "# UNIT {name} {unit}");
        }
        let _ = writeln!(text, "# HELP {name} {help}");
        for (of, value) in values {
            let _ = match label {
                "" => writeln!(text, "{name}{last} {value}"),
                label => writeln!(text, "{name}{last}{{{label}=\"{}\"}} {value}", escaped(&of)),
            };
        }
    }
    text.push_str("# EOF\n");
    text
}

/// A label's value as it is written between quotes.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// The metrics of a dispatcher.
pub(super) fn metrics(status: &Status) -> Vec<Metric> {
    let mut all = of_instances(status);
    all.extend(of_executors(status));
    all.extend(of_relays(status));
    all.extend(of_users(status));
    all.extend(of_data(status));
    all
}

fn single(value: f64) -> Values {
    labelled([("", value)])
}

fn labelled<const N: usize>(values: [(&'static str, f64); N]) -> Values {
    values.into_iter().map(|(of, value)| (of.into(), value)).collect()
}

/// Relays by their way, those of one way together; those that are deep in the tree share a line
/// where there are too many.
fn of_relays(status: &Status) -> Vec<Metric> {
    let mut all = branches(status);
    all.sort_by_key(|one| one.standing.depth);
    let mut lines: BTreeMap<String, Vec<Standing>> = BTreeMap::new();
    for branch in all {
        let is_full = lines.len() >= RELAYS_SHOWN_MAX && !lines.contains_key(&branch.path);
        let path = if is_full { OTHERS.to_owned() } else { branch.path };
        lines.entry(path).or_default().push(branch.standing);
    }
    let metric = |name, unit, help, of: fn(&Standing) -> f64| {
        let line = |(path, relays): (&String, &Vec<Standing>)| {
            (Cow::from(path.clone()), relays.iter().map(of).sum())
        };
        let values = lines.iter().map(line).collect();
        Metric { name, is_counter: false, unit, help, label: "relay", values }
    };
    vec![
        metric("falkon_relay_nodes", "", "Nodes below a relay.", |one| one.nodes as f64),
        metric(
            "falkon_relay_cpus",
            "",
            "Processors of connected executors below a relay.",
            |one| one.cpus_milli as f64 / f64::from(MILLI),
        ),
        metric("falkon_relay_cpus_used", "", "Those that tasks have.", |one| {
            one.used_milli as f64 / f64::from(MILLI)
        }),
        metric("falkon_relay_tasks_running", "", "Tasks that run below a relay.", |one| {
            one.running as f64
        }),
        metric(
            "falkon_relay_tasks_ahead",
            "",
            "Tasks that are below a relay and have not begun.",
            |one| one.ahead as f64,
        ),
        Metric {
            is_counter: true,
            ..metric("falkon_relay_tasks_ended", "", "Tasks that ended below a relay.", |one| {
                one.ended as f64
            })
        },
        metric(
            "falkon_relay_away_seconds",
            "seconds",
            "How long a relay has had no connection to the dispatcher above it.",
            |one| one.away_micros.unwrap_or(0) as f64 / 1e6,
        ),
    ]
}

/// The users and the owner, if there are users, by their names. Beyond [`USERS_SHOWN_MAX`] of them
/// the others share a line, which has no limits.
fn of_users(status: &Status) -> Vec<Metric> {
    let mut all = totals(status);
    // The owner stays among those with lines.
    all.sort_by_key(|one| (one.user.is_some(), one.name));
    let others = all.split_off(all.len().min(USERS_SHOWN_MAX));
    let metric = |name, unit, help, of: &dyn Fn(&Totals<'_>) -> f64| {
        let line = |one: &Totals<'_>| (Cow::from(one.name.to_owned()), of(one));
        let mut values: Values = all.iter().map(line).collect();
        if !others.is_empty() {
            values.push((OTHER_USERS.into(), others.iter().map(of).sum()));
        }
        Metric { name, is_counter: false, unit, help, label: "user", values }
    };
    let limit = |name, unit, help, of: &dyn Fn(&UserLimits) -> Option<f64>| {
        let line = |one: &Totals<'_>| {
            let most = of(&one.user?.limits)?;
            Some((Cow::from(one.name.to_owned()), most))
        };
        let values = all.iter().filter_map(line).collect();
        Metric { name, is_counter: false, unit, help, label: "user", values }
    };
    let whole = |most: Option<u64>| most.map(|most| most as f64);
    let has = |of: fn(&UserUse) -> u64| {
        move |one: &Totals<'_>| one.user.map_or(0, |user| of(&user.has)) as f64
    };
    vec![
        metric("falkon_user_instances", "", "Instances of a user.", &|one| one.instances as f64),
        metric("falkon_user_tasks_queued", "", "Tasks of a user that do not run yet.", &|one| {
            one.queued as f64
        }),
        metric("falkon_user_tasks_running", "", "Tasks of a user that run.", &|one| {
            one.running as f64
        }),
        metric(
            "falkon_user_tasks_done",
            "",
            "Tasks that have ended well of the instances that a user has.",
            &|one| one.done as f64,
        ),
        metric(
            "falkon_user_tasks_failed",
            "",
            "Tasks that have failed or were cancelled of the instances that a user has.",
            &|one| one.failed as f64,
        ),
        metric(
            "falkon_user_cpus",
            "",
            "Processors that tasks of a user in flight ask for; 0 for the owner.",
            &|one| has(|has| has.slots_milli)(one) / f64::from(MILLI),
        ),
        metric(
            "falkon_user_kept_bytes",
            "bytes",
            "Results that are held for a user, and queued submissions; 0 for the owner.",
            &has(|has| has.bytes),
        ),
        limit("falkon_user_share", "", "The share of a user.", &|limits| {
            Some(f64::from(limits.share))
        }),
        limit("falkon_user_instances_max", "", "How many instances a user may have.", &|limits| {
            whole(limits.instances_max)
        }),
        limit(
            "falkon_user_tasks_max",
            "",
            "How many tasks a user may have that have not ended, if that is limited.",
            &|limits| whole(limits.tasks_max),
        ),
        limit(
            "falkon_user_cpus_max",
            "",
            "How many processors a user may use, if that is limited.",
            &|limits| whole(limits.slots_max),
        ),
        limit(
            "falkon_user_kept_max_bytes",
            "bytes",
            "How much may be kept for a user, if that is limited.",
            &|limits| whole(limits.bytes_max),
        ),
    ]
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
            is_counter: false,
            unit: "seconds",
            help: "When the dispatcher started, in seconds since 1970.",
            label: "",
            values: single(status.started.0 as f64 / 1e6),
        },
        Metric {
            name: "falkon_instances",
            is_counter: false,
            unit: "",
            help: "Instances that the dispatcher has.",
            label: "state",
            values: labelled([
                ("complete", complete as f64),
                ("open", (instances.len() - complete) as f64),
            ]),
        },
        Metric {
            name: "falkon_tasks",
            is_counter: false,
            unit: "",
            help: "Tasks of the instances that the dispatcher has.",
            label: "state",
            values: labelled([
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
            ]),
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
            is_counter: false,
            unit: "",
            help: "Executors that are registered.",
            label: "state",
            values: labelled([
                ("busy", busy as f64),
                ("idle", (executors.len() - away - withheld - busy) as f64),
                ("withheld", withheld as f64),
                ("away", away as f64),
            ]),
        },
        Metric {
            name: "falkon_cpus",
            is_counter: false,
            unit: "",
            help: "Processors of executors that are connected.",
            label: "state",
            values: labelled([("used", cpus(all.saturating_sub(free))), ("free", cpus(free))]),
        },
        Metric {
            name: "falkon_nodes_requested",
            is_counter: false,
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
        labelled([
            ("own", of(&usage.local) as f64),
            ("peer", of(&usage.peer) as f64),
            ("store", of(&usage.store) as f64),
        ])
    };
    vec![
        Metric {
            name: "falkon_cache_used_bytes",
            is_counter: false,
            unit: "bytes",
            help: "What is in the caches of executors.",
            label: "",
            values: single(used as f64),
        },
        Metric {
            name: "falkon_cache_capacity_bytes",
            is_counter: false,
            unit: "bytes",
            help: "What the caches of executors may hold.",
            label: "",
            values: single(capacity as f64),
        },
        Metric {
            name: "falkon_inputs",
            is_counter: false,
            unit: "",
            help: "Inputs that the executors that are there have read.",
            label: "source",
            values: sources(|count| count.objects),
        },
        Metric {
            name: "falkon_inputs_bytes",
            is_counter: false,
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
            let kind = if metric.is_counter { "counter" } else { "gauge" };
            assert!(text.contains(&format!("# TYPE {} {kind}\n", metric.name)));
            assert!(text.contains(&format!("# HELP {} {}\n", metric.name, metric.help)));
            assert!(metric.name.ends_with(metric.unit), "{}", metric.name);
        }
        assert!(text.contains("\nfalkon_tasks{state=\"done\"} 0\n"), "{text}");
    }

    #[test]
    fn relays_have_lines_of_their_own_and_never_more_than_are_allowed() {
        let relay = |name: String, depth, ended| Standing {
            name,
            depth,
            ended,
            cpus_milli: 2500,
            away_micros: Some(1_500_000),
            ..Standing::default()
        };
        // Two relays of one name have one line: a line that is there twice is refused.
        let mut away = vec![relay("a\"\\\nb".to_owned(), 0, 3), relay("x".to_owned(), 1, 7)];
        away.push(relay("a\"\\\nb".to_owned(), 0, 4));
        let told = text(&Status { away: away.clone(), ..Status::default() });
        assert!(told.contains("\nfalkon_relay_tasks_ended_total{relay=\"a\\\"\\\\\\nb\"} 7\n"));
        assert!(told.contains("\nfalkon_relay_tasks_ended_total{relay=\"a\\\"\\\\\\nb/x\"} 7\n"));
        assert!(told.contains("\nfalkon_relay_cpus{relay=\"a\\\"\\\\\\nb/x\"} 2.5\n"));
        let many = (0..1000).map(|number| relay(format!("r{number}"), 0, 1));
        away.extend(many);
        let told = text(&Status { away, ..Status::default() });
        assert_eq!(told.matches("\nfalkon_relay_nodes{").count(), RELAYS_SHOWN_MAX + 1);
        // The first line is that of two, and the one below them is among the others.
        let others = 1000 - (RELAYS_SHOWN_MAX - 1) + 7;
        let line = format!("\nfalkon_relay_tasks_ended_total{{relay=\"/\"}} {others}\n");
        assert!(told.contains(&line), "{told}");
    }

    #[test]
    fn users_have_lines_of_their_own_and_never_more_than_are_allowed() {
        use falkon_core::result::Counts;
        use falkon_wire::message::{InstanceStatus, UserStatus};
        let user = |number| {
            let limits = UserLimits { share: 3, slots_max: Some(8), ..UserLimits::default() };
            let has = UserUse { slots_milli: 2500, ..UserUse::default() };
            UserStatus { name: format!("u{number:03}"), limits, has, ..UserStatus::default() }
        };
        let instance = |user: &str| InstanceStatus {
            user: user.to_owned(),
            counts: Counts { ready: 5, done: 7, ..Counts::default() },
            running: 2,
            ..InstanceStatus::default()
        };
        let instances = vec![instance("u001"), instance(""), instance("u150"), instance("u151")];
        let alone = text(&Status { instances: instances.clone(), ..Status::default() });
        assert!(
            !alone.contains("falkon_user_share{") && !alone.contains("falkon_user_tasks_done{")
        );
        let users = (0..200).map(user).collect();
        let told = text(&Status { instances, users, ..Status::default() });
        for line in [
            "falkon_user_tasks_running{user=\"u001\"} 2",
            "falkon_user_tasks_done{user=\"owner\"} 7",
            "falkon_user_tasks_queued{user=\"*\"} 10",
            "falkon_user_cpus{user=\"u000\"} 2.5",
            "falkon_user_cpus_max{user=\"u000\"} 8",
            "falkon_user_share{user=\"u000\"} 3",
        ] {
            assert!(told.contains(&format!("\n{line}\n")), "{line} in {told}");
        }
        assert_eq!(told.matches("\nfalkon_user_cpus{").count(), USERS_SHOWN_MAX + 1);
        assert_eq!(told.matches("\nfalkon_user_share{").count(), USERS_SHOWN_MAX - 1);
        assert!(!told.contains("falkon_user_tasks_max{"), "{told}");
    }
}
