//! The relays of a dispatcher, as a tree.

use falkon_core::dispatch::Standing;
use falkon_core::task::MILLI;
use falkon_wire::message::Status;
use serde_json::{Value, json};

/// How deep relays are indented at most.
const INDENTS_MAX: usize = 16;

/// A relay in the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Branch {
    /// The names of the relays on the way to it, and its own, with slashes between.
    pub(crate) path: String,
    pub(crate) standing: Standing,
}

/// All relays, each followed by those below it; those that are away come last.
pub(crate) fn branches(status: &Status) -> Vec<Branch> {
    let there = status.executors.iter().flat_map(|executor| &executor.relays);
    let mut way: Vec<&str> = Vec::new();
    let mut branches = Vec::new();
    for standing in there.chain(&status.away) {
        way.truncate(usize::try_from(standing.depth).unwrap_or(usize::MAX));
        way.push(&standing.name);
        branches.push(Branch { path: way.join("/"), standing: standing.clone() });
    }
    branches
}

/// The indentation of a relay in a list.
pub(crate) fn indent(standing: &Standing) -> String {
    "  ".repeat(usize::try_from(standing.depth).unwrap_or(usize::MAX).min(INDENTS_MAX))
}

/// A relay, for programs.
pub(crate) fn json(standing: &Standing) -> Value {
    let cpus = |milli: u64| milli as f64 / f64::from(MILLI);
    json!({
        "name": standing.name,
        "depth": standing.depth,
        "nodes": standing.nodes,
        "cpus": cpus(standing.cpus_milli),
        "cpus_used": cpus(standing.used_milli),
        "running": standing.running,
        "ahead": standing.ahead,
        "ended": standing.ended,
        "away_seconds": standing.away_micros.map(|micros| micros as f64 / 1e6),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use falkon_core::task::{ExecutorId, Resources};
    use falkon_wire::message::ExecutorStatus;

    #[test]
    fn each_relay_has_the_names_on_the_way_to_it() {
        let standing =
            |name: &str, depth| Standing { name: name.to_owned(), depth, ..Standing::default() };
        let executor = |relays| ExecutorStatus {
            id: ExecutorId(0),
            name: String::new(),
            capacity: Resources::default(),
            free: Resources::default(),
            tasks: 0,
            prefetched: 0,
            connected: true,
            suspended_until: None,
            drained: false,
            cache: None,
            nodes: None,
            relays,
            unwritten: Vec::new(),
        };
        // A relay that lies about depths has a place all the same.
        let one = vec![standing("a", 0), standing("b", 1), standing("c", 2), standing("d", 1)];
        let other = vec![standing("e", u64::MAX), standing("f", 1)];
        let status = Status {
            executors: vec![executor(one), executor(Vec::new()), executor(other)],
            away: vec![standing("g", 0)],
            ..Status::default()
        };
        let paths: Vec<String> = branches(&status).into_iter().map(|one| one.path).collect();
        assert_eq!(paths, ["a", "a/b", "a/b/c", "a/d", "a/d/e", "a/f", "g"]);
    }
}
