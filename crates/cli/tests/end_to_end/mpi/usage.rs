//! Usage of each node of a task on several.

use super::{Cluster, ranks, started_on_all};
use crate::fixture::Site;
use falkon_trials::trial;
use rustix::process::Signal;
use serde_json::Value;

/// A command that has so much memory.
fn with_memory(bytes: u64) -> String {
    format!("dd if=/dev/zero of=/dev/null bs={bytes} count=1 2> /dev/null")
}

/// The nodes of a result, by what each used, with the names of their executors.
fn nodes(result: &Value) -> Vec<(&str, &Value)> {
    let nodes = result["usage"]["nodes"].as_array().unwrap_or_else(|| panic!("{result}"));
    nodes.iter().map(|node| (node["executor"].as_str().unwrap(), node)).collect()
}

fn number(value: &Value, field: &str) -> f64 {
    value[field].as_f64().unwrap_or_else(|| panic!("no {field} in {value}"))
}

/// The ranks of a result, each with the name of its executor.
pub(super) fn measured_ranks(result: &Value) -> Vec<(&str, u64, &Value)> {
    let mut found = Vec::new();
    for (name, node) in nodes(result) {
        let ranks = node["ranks"].as_array().map(Vec::as_slice).unwrap_or_default();
        found.extend(ranks.iter().map(|rank| (name, rank["rank"].as_u64().unwrap(), rank)));
    }
    found
}

/// Processes are looked at from time to time, more seldom on a machine that is busy: `is_seen` is
/// tried with tasks that take more and more seconds, until it holds.
#[track_caller]
pub(super) fn in_time_to_be_seen(mut is_seen: impl FnMut(&str) -> bool) {
    assert!(["1", "3", "9", "27"].into_iter().any(&mut is_seen), "it is not seen");
}

/// Ranks without a launcher: variables of their environments tell them apart.
#[trial]
fn results_say_what_each_rank_used() {
    let site = Site::new();
    let mut cluster = Cluster::new(&site, 3);
    let falkon = env!("CARGO_BIN_EXE_falkon");
    let hold = site.write("hold", r"a=$(head -c $1 /dev/zero | tr '\0' x); sleep $2");
    let mut id = String::new();
    in_time_to_be_seen(|seconds| {
        // The first node has no rank, the second one has two, and the third one has one with two
        // processes, one after the other.
        let script = format!(
            "set -- $(cat $FALKON_NODE_FILE); echo $FALKON_NODES
             {falkon} rsh -n $2 'PMI_RANK=0 sh {hold} 10000000 {seconds} &
                 PMI_RANK=5 sh {hold} 30000000 {seconds} & wait' &
             {falkon} rsh -n $3 'export PMIX_RANK=7 PMI_RANK=8
                 sh {hold} 60000000 {seconds}; sleep {seconds}' &
             wait"
        );
        id = cluster.submit(3, &["--", "sh", "-c", &script]);
        let result = cluster.access().results(&id).remove(0);
        println!("{result}");
        let names: Vec<&str> = result["stdout"].as_str().unwrap().trim().split(',').collect();
        let found = measured_ranks(&result);
        let of: Vec<(&str, u64)> = found.iter().map(|(name, rank, _)| (*name, *rank)).collect();
        let least = [10_000_000_u64, 30_000_000, 60_000_000];
        of == [(names[1], 0), (names[1], 5), (names[2], 7)]
            && found.iter().zip(least).all(|((.., used), least)| {
                let had = used["rss_max_bytes"].as_u64().unwrap();
                (least..least * 3).contains(&had)
            })
    });
    // The ranks are the same after a restart.
    let result = cluster.access().results(&id).remove(0);
    cluster.dispatcher.kill();
    cluster.dispatcher.start();
    let again = cluster.access().results(&id).remove(0);
    assert_eq!(again["usage"], result["usage"]);
    cluster.nothing_runs();
}

#[trial]
fn results_say_what_each_node_used_and_all_together() {
    let site = Site::new();
    let mut cluster = Cluster::new(&site, 3);
    let falkon = env!("CARGO_BIN_EXE_falkon");
    // The third node is asked by the second, and the first one by itself.
    let script = format!(
        "set -- $(cat $FALKON_NODE_FILE); echo $FALKON_NODES
         {falkon} rsh $2 \"{}; {falkon} rsh $3 '{}'\"; {falkon} rsh $1 '{}'",
        with_memory(100_000_000),
        with_memory(200_000_000),
        with_memory(300_000_000),
    );
    let id = cluster.submit(3, &["--", "sh", "-c", &script]);
    let result = cluster.access().results(&id).remove(0);
    assert_eq!(result["exit_code"], 0, "{result}");
    let names: Vec<&str> = result["stdout"].as_str().unwrap().trim().split(',').collect();
    let found = nodes(&result);
    assert_eq!(found.iter().map(|(name, _)| *name).collect::<Vec<_>>(), names, "{result}");
    let usage = &result["usage"];
    assert_eq!((&usage["node_count"], &usage["missing"]), (&3.into(), &Value::Null), "{result}");
    let most = [300e6, 100e6, 200e6].into_iter().zip(&found);
    for (least, (_, node)) in most {
        let had = number(node, "rss_max_bytes");
        assert!(had >= least && had < least + 90e6, "{result}");
        assert!(number(node, "user_seconds") + number(node, "system_seconds") > 0.0, "{result}");
    }
    for field in ["user_seconds", "system_seconds", "read_bytes", "written_bytes"] {
        let sum: f64 = found.iter().map(|(_, node)| number(node, field)).sum();
        assert!((number(usage, field) - sum).abs() < 1e-5, "{field}: {result}");
    }
    assert_eq!(usage["rss_max_bytes"], found[0].1["rss_max_bytes"], "{result}");
    // It is the same after a restart.
    cluster.dispatcher.kill();
    cluster.dispatcher.start();
    let again = cluster.access().results(&id).remove(0);
    assert_eq!(again["usage"], result["usage"]);
    cluster.nothing_runs();
}

#[trial]
fn a_task_that_takes_too_long_says_what_its_nodes_used_until_then() {
    let site = Site::new();
    let cluster = Cluster::new(&site, 3);
    let mut signals = site.signals("up");
    let script = started_on_all(&ranks(&signals, "false"));
    let id = cluster.submit(3, &["--timeout", "3s", "--", "sh", "-c", &script]);
    super::heard(&mut signals);
    let result = cluster.access().results(&id).remove(0);
    assert_eq!(result["error"], "ran into its timeout", "{result}");
    assert_eq!(nodes(&result).len(), 3, "{result}");
    assert_eq!(result["usage"]["missing"], Value::Null, "{result}");
    cluster.nothing_runs();
}

#[trial]
fn a_node_that_does_not_answer_is_missing_and_holds_no_result_up() {
    let site = Site::new();
    let cluster = Cluster::new(&site, 3);
    let mut signals = site.signals("up");
    let falkon = env!("CARGO_BIN_EXE_falkon");
    let gate = site.gate("gate");
    let script = format!(
        "set -- $(cat $FALKON_NODE_FILE); {falkon} rsh $2 true; \
         {falkon} rsh -n $3 '{}' & read go < {}",
        ranks(&signals, "false"),
        gate.path()
    );
    let id = cluster.submit(3, &["--", "sh", "-c", &script]);
    let line = signals.next();
    let name = line.split(' ').next().unwrap();
    let at = cluster.names.iter().position(|node| node == name).unwrap();
    cluster.executors[at].signal(Signal::STOP);
    std::fs::write(site.path("gate"), "go\n").unwrap();
    let result = cluster.access().results(&id).remove(0);
    cluster.executors[at].signal(Signal::CONT);
    // It is not lost with the node, as it has ended before.
    assert_eq!((&result["exit_code"], &result["attempts"]), (&0.into(), &1.into()), "{result}");
    let usage = &result["usage"];
    assert_eq!(usage["missing"], serde_json::json!([name]), "{result}");
    assert_eq!((&usage["missing_count"], &usage["node_count"]), (&1.into(), &3.into()));
    assert_eq!(nodes(&result).len(), 2, "{result}");
    cluster.nothing_runs();
}
