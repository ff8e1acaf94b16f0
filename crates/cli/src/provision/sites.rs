//! Queues of batch schedulers below relays, with what would be requested of them now.

use crate::progress::span;
use crate::query::{counted, printable, resources_json};
use falkon_core::dispatch::Site;
use falkon_core::task::MILLI;
use serde_json::{Value, json};

const HEADS: [&str; 7] = ["SITE", "QUEUE", "NODES", "OF", "THEY COME IN", "EACH FOR", "UNMET"];

/// A table of all, with a line for each: how many nodes there are and could be, when they come,
/// for how long a node is paid, how many tasks wait above, and what would be requested. Nothing
/// if there are none.
pub(super) fn table(sites: &[Site]) -> String {
    if sites.is_empty() {
        return String::new();
    }
    let rows: Vec<[String; 7]> = sites.iter().map(cells).collect();
    let heads = HEADS.map(str::to_owned);
    let wide = |column: usize| {
        let all = rows.iter().chain([&heads]).map(|row| row[column].chars().count());
        all.max().unwrap_or(0)
    };
    let line = |row: &[String; 7], last: &str| {
        let padded = row.iter().enumerate().map(|(at, cell)| {
            let wide = wide(at);
            format!("{cell:<wide$}  ")
        });
        format!("{}{last}\n", padded.collect::<String>())
    };
    let mut text = format!("\n{}", line(&heads, "WOULD NOW"));
    for (site, row) in sites.iter().zip(&rows) {
        text.push_str(&line(row, &wanted(site)));
    }
    text
}

fn cells(site: &Site) -> [String; 7] {
    let hours = |micros: u64| span(micros as f64 / 1e6);
    let paid = match (site.billing_micros, site.walltime_micros) {
        (_, 0) => "-".to_owned(),
        (0, most) => format!("up to {}", hours(most)),
        (least, most) => format!("{} to {}", hours(least.min(most)), hours(most)),
    };
    [
        printable(&site.relays),
        printable(&site.queue),
        format!("{} of {}", site.held, site.nodes_max),
        counted((site.node.cpus_milli / MILLI).into(), "cpu"),
        hours(site.delay_micros),
        paid,
        counted(site.unmet, "task"),
    ]
}

/// Nodes of all requests that would be made.
fn nodes(site: &Site) -> u64 {
    site.requests.iter().fold(0, |sum, nodes| sum.saturating_add(*nodes))
}

/// The most that the requests cost, in hours of a node; `None` if the scheduler decides how long
/// they last.
fn node_hours(site: &Site) -> Option<f64> {
    let longest = site.walltime_micros.max(site.billing_micros);
    (site.walltime_micros > 0).then(|| nodes(site) as f64 * (longest as f64 / 3.6e9))
}

fn wanted(site: &Site) -> String {
    let asked = match site.requests.as_slice() {
        [] => "ask for nothing".to_owned(),
        requests => {
            let each: Vec<String> = requests.iter().map(u64::to_string).collect();
            let noun = if nodes(site) == 1 { "node" } else { "nodes" };
            let cost = node_hours(site).map(|hours| format!(" (up to {hours:.1} node hours)"));
            format!("ask for {} {noun}{}", each.join(" + "), cost.unwrap_or_default())
        }
    };
    match site.reason.as_str() {
        "" => asked,
        reason => format!("{asked}: {}", printable(reason)),
    }
}

/// A queue, for programs.
pub(super) fn json(site: &Site) -> Value {
    json!({
        "relays": site.relays,
        "name": site.queue,
        "node": resources_json(&site.node),
        "nodes": site.held,
        "nodes_max": site.nodes_max,
        "delay_seconds": site.delay_micros as f64 / 1e6,
        "walltime_seconds": (site.walltime_micros > 0).then_some(site.walltime_micros as f64 / 1e6),
        "billing_seconds": site.billing_micros as f64 / 1e6,
        "unmet": site.unmet,
        "plan": {
            "requests": site.requests,
            "node_hours_max": node_hours(site),
            "reason": Some(&site.reason).filter(|reason| !reason.is_empty()),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use falkon_core::task::Resources;

    fn site(relays: &str) -> Site {
        Site {
            relays: relays.to_owned(),
            queue: "slurm".to_owned(),
            node: Resources::cpus(64),
            held: 4,
            nodes_max: 16,
            delay_micros: 30_000_000,
            walltime_micros: 7_200_000_000,
            billing_micros: 60_000_000,
            unmet: 1000,
            requests: vec![1, 2],
            reason: "1000 tasks wait".to_owned(),
        }
    }

    #[test]
    fn a_line_says_what_a_site_can_get_when_at_what_cost_and_what_it_would_ask_for() {
        let idle = Site { requests: Vec::new(), reason: String::new(), ..site("a/rack\x1b") };
        let open = Site { walltime_micros: 0, requests: vec![1], ..site("b") };
        let expected = "
SITE     QUEUE  NODES    OF       THEY COME IN  EACH FOR             UNMET       WOULD NOW
a        slurm  4 of 16  64 cpus  30 s          1 min 0 s to 2 h 0 min  1000 tasks  ask for 1 + 2 nodes (up to 6.0 node hours): 1000 tasks wait
a/rack   slurm  4 of 16  64 cpus  30 s          1 min 0 s to 2 h 0 min  1000 tasks  ask for nothing
b        slurm  4 of 16  64 cpus  30 s          -                    1000 tasks  ask for 1 node: 1000 tasks wait
";
        let words = |text: &str| {
            let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
            lines.map(|line| line.join(" ")).collect::<Vec<_>>()
        };
        let text = table(&[site("a"), idle, open]);
        assert_eq!(words(&text), words(expected));
        // Columns begin at the same place.
        let begin = |line: &&str| line.contains("slurm") as usize * line.find("slurm").unwrap_or(0);
        let begins: Vec<usize> = text.lines().skip(2).map(|line| begin(&line)).collect();
        assert!(begins.windows(2).all(|two| two[0] == two[1]), "{text}");
        assert_eq!(table(&[]), "");
    }
}
