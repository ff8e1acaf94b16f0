//! Queues, allocations and decisions, for people and for programs.

use super::sites;
use crate::exit::Exit;
use crate::query::print;
use falkon_core::task::{MILLI, Time};
use falkon_wire::provision::{AllocationStatus, ProvisionLine, ProvisionStatus, QueueStatus};
use serde_json::{Value, json};

fn printed(text: &str) -> Exit {
    print(text).unwrap_or(Exit::Success)
}

/// How a queue is, in a word or two.
fn state(queue: &QueueStatus, now: Time) -> String {
    if queue.removing {
        return "going".to_owned();
    }
    match queue.paused.as_deref() {
        Some("") => return "paused".to_owned(),
        Some(_) => return "refused".to_owned(),
        None => {}
    }
    if queue.not_before > now {
        return format!("waits {} s", queue.not_before.since(now).div_ceil(1_000_000));
    }
    match (queue.known, queue.query_failures) {
        (_, 1..) => "no answer".to_owned(),
        (false, _) => "asking".to_owned(),
        (true, _) => "ready".to_owned(),
    }
}

fn of_queue<'a>(
    status: &'a ProvisionStatus,
    queue: &'a QueueStatus,
) -> impl Iterator<Item = &'a AllocationStatus> {
    status.allocations.iter().filter(|one| one.queue == queue.name)
}

/// The queues.
pub(super) fn list(status: &ProvisionStatus, as_json: bool) -> Exit {
    if as_json {
        return printed(&format!("{}\n", json(status)));
    }
    if status.queues.is_empty() {
        return printed("no queues (falkon provision add slurm adds one)\n");
    }
    let mut text = format!(
        "{:<16} {:<11} {:<10} {:>5} {:>7} {:>7} {:>9} {:>9}\n",
        "QUEUE", "SCHEDULER", "STATE", "JOBS", "PENDING", "NODES", "EXECUTORS", "NODES MAX"
    );
    for queue in &status.queues {
        let pending = of_queue(status, queue).filter(|one| one.state != "running").count();
        let jobs = of_queue(status, queue).count();
        let nodes: u64 = of_queue(status, queue).map(|one| one.nodes).sum();
        let executors: u64 = of_queue(status, queue).map(|one| one.executors).sum();
        text.push_str(&format!(
            "{:<16} {:<11} {:<10} {jobs:>5} {pending:>7} {nodes:>7} {executors:>9} {:>9}\n",
            queue.name,
            queue.kind,
            state(queue, status.now),
            queue.executors_max
        ));
    }
    printed(&text)
}

/// A queue with its allocations.
pub(super) fn queue(status: &ProvisionStatus, as_json: bool) -> Exit {
    if as_json {
        return printed(&format!("{}\n", json(status)));
    }
    let mut text = String::new();
    for queue in &status.queues {
        text.push_str(&format!(
            "queue {} ({}): {}, {} to {} nodes of {}, {:.1} s until they come\n",
            queue.name,
            queue.kind,
            state(queue, status.now),
            queue.executors_min,
            queue.executors_max,
            cpus(queue),
            queue.delay_micros as f64 / 1e6
        ));
        if let Some(words) = queue.paused.as_deref().filter(|words| !words.is_empty()) {
            text.push_str(&format!(
                "paused, for it was refused {} times: {words}\n\
                 falkon provision resume {} asks again\n",
                queue.refusals, queue.name
            ));
        }
        text.push_str(&plan_line(queue));
    }
    if !status.allocations.is_empty() {
        text.push_str(&format!(
            "\n{:>10} {:<12} {:<8} {:>6} {:>9} {:>9}  NOTE\n",
            "ALLOCATION", "JOB", "STATE", "NODES", "EXECUTORS", "AGE"
        ));
    }
    for one in &status.allocations {
        let age = status.now.since(one.asked) as f64 / 1e6;
        let note = match (one.ending, one.fixed) {
            (true, _) => "is given back",
            (false, true) => "stays until its walltime ends",
            (false, false) => "",
        };
        let between = if note.is_empty() || one.reason.is_empty() { "" } else { "; " };
        let note = format!("{note}{between}{}", one.reason);
        let line = format!(
            "{:>10} {:<12} {:<8} {:>6} {:>9} {:>9}  {note}",
            one.id.0,
            one.job.as_deref().unwrap_or("-"),
            one.state,
            one.nodes,
            one.executors,
            crate::progress::span(age)
        );
        text.push_str(line.trim_end());
        text.push('\n');
    }
    if !status.log.is_empty() {
        text.push('\n');
    }
    for line in &status.log {
        text.push_str(&log_line(line));
    }
    printed(&text)
}

fn cpus(queue: &QueueStatus) -> String {
    let cpus = queue.node.cpus_milli / MILLI;
    format!("{cpus} cpu{}", if cpus == 1 { "" } else { "s" })
}

fn log_line(line: &ProvisionLine) -> String {
    format!("{} {}: {}\n", line.at.utc(), line.queue, line.text)
}

/// The log.
pub(super) fn log(status: &ProvisionStatus, as_json: bool) -> Exit {
    let lines = status.log.iter().map(|line| match as_json {
        true => format!("{}\n", line_json(line)),
        false => log_line(line),
    });
    printed(&lines.collect::<String>())
}

fn plan_line(queue: &QueueStatus) -> String {
    let reason = queue.reason.as_deref().unwrap_or("nothing is wanted of it");
    let mut wants = Vec::new();
    if !queue.requests.is_empty() {
        let nodes: Vec<String> = queue.requests.iter().map(u64::to_string).collect();
        wants.push(format!("ask for {} nodes", nodes.join(" + ")));
    }
    if queue.releases > 0 {
        wants.push(format!("release {} executors", queue.releases));
    }
    let wants = if wants.is_empty() { "ask for nothing".to_owned() } else { wants.join(", ") };
    format!("{}: would now {wants}: {reason}\n", queue.name)
}

/// The actions that would be taken now.
pub(super) fn plan(status: &ProvisionStatus, as_json: bool) -> Exit {
    if as_json {
        return printed(&format!("{}\n", json(status)));
    }
    let lines = status.queues.iter().map(|queue| {
        let mut line = plan_line(queue);
        let waits = of_queue(status, queue).filter(|one| one.state != "running");
        for one in waits.filter(|one| !one.reason.is_empty()) {
            let (nodes, state) = (crate::query::counted(one.nodes, "node"), &one.state);
            let text = format!("; allocation {} of {nodes} is {state}: {}", one.id, one.reason);
            line.insert_str(line.len() - 1, &text);
        }
        if let Some(there) = queue.size.filter(|there| *there < queue.executors_max) {
            let text = format!("; there are {}", crate::query::counted(there, "node"));
            line.insert_str(line.len() - 1, &text);
        }
        match queue.paused {
            Some(_) => line.insert_str(line.len() - 1, " (but it is paused)"),
            None if queue.not_before > status.now => {
                let left = queue.not_before.since(status.now).div_ceil(1_000_000);
                line.insert_str(
                    line.len() - 1,
                    &format!(" (but not for {left} s, after a refusal)"),
                );
            }
            None => {}
        }
        line
    });
    let mut text = lines.collect::<String>();
    text.push_str(&sites::table(&status.sites));
    printed(&text)
}

fn line_json(line: &ProvisionLine) -> Value {
    json!({ "at": line.at.0 as f64 / 1e6, "queue": line.queue, "text": line.text })
}

fn json(status: &ProvisionStatus) -> Value {
    let queues: Vec<Value> = status
        .queues
        .iter()
        .map(|queue| {
            json!({
                "name": queue.name,
                "kind": queue.kind,
                "state": state(queue, status.now),
                "config": queue.config,
                "paused": queue.paused.is_some(),
                "refused": queue.paused.as_deref().filter(|words| !words.is_empty()),
                "refusals": queue.refusals,
                "query_failures": queue.query_failures,
                "delay_seconds": queue.delay_micros as f64 / 1e6,
                "nodes_min": queue.executors_min,
                "nodes_max": queue.executors_max,
                "nodes_there": queue.size,
                "plan": {
                    "requests": queue.requests,
                    "releases": queue.releases,
                    "reason": queue.reason,
                },
            })
        })
        .collect();
    let allocations: Vec<Value> = status
        .allocations
        .iter()
        .map(|one| {
            json!({
                "id": one.id.0,
                "queue": one.queue,
                "nodes": one.nodes,
                "job": one.job,
                "state": one.state,
                "reason": Some(&one.reason).filter(|reason| !reason.is_empty()),
                "asked": one.asked.0 as f64 / 1e6,
                "started": one.started.map(|at| at.0 as f64 / 1e6),
                "executors": one.executors,
                "ending": one.ending,
                "fixed": one.fixed,
            })
        })
        .collect();
    let log: Vec<Value> = status.log.iter().map(line_json).collect();
    let sites: Vec<Value> = status.sites.iter().map(sites::json).collect();
    json!({ "queues": queues, "allocations": allocations, "log": log, "sites": sites })
}
