//! Status and tasks, for people and for programs.

mod caches;
mod instances;

pub(crate) use instances::json as instance_json;

use super::tree;
use crate::exit::Exit;
use crate::plan::script;
use crate::progress::span;
use crate::results::TaskResult;
use crate::results::line::JsonGiven;
use crate::results::usage::JsonUsage;
use crate::users;
use falkon_core::collect::Unwritten;
use falkon_core::dispatch::Standing;
use falkon_core::result::Outcome;
use falkon_core::task::{MILLI, Resources, Time};
use falkon_wire::message::{ExecutorStatus, Status, TaskInfo};
use falkon_wire::provision::Coming;
use serde_json::{Value, json};
use std::io::Write;

/// Prints `text`; a reader that has had enough is no error.
pub fn print(text: &str) -> Option<Exit> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => None,
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Some(Exit::Success),
        Err(error) => Some(Exit::failure(format!("cannot print: {error}"))),
    }
}

/// The narrowest columns of names: of instances, and of executors.
const NAME_CHARS_MIN: usize = 16;
const HOST_CHARS_MIN: usize = 24;

/// Executors that are listed one by one unless all are asked for.
const EXECUTORS_LISTED_MAX: usize = 32;

/// The executors that `falkon status` lists.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Listing {
    /// Every one.
    pub(super) all: bool,
    /// The relays below relays, too.
    pub(super) tree: bool,
}

/// Prints how things are.
pub(super) fn status(status: &Status, listing: Listing) -> Exit {
    print(&status_text(status, listing)).unwrap_or(Exit::Success)
}

/// Prints how things are, for programs.
pub(super) fn status_as_json(status: &Status) -> Exit {
    print(&format!("{}\n", status_json(status))).unwrap_or(Exit::Success)
}

fn status_text(status: &Status, listing: Listing) -> String {
    let up = status.now.since(status.started) as f64 / 1e6;
    let mut text = format!(
        "dispatcher {}, up {}, {}, {}\n",
        status.version,
        span(up),
        counted(status.executors.len() as u64, "executor"),
        counted(status.instances.len() as u64, "instance")
    );
    text.push_str(&instances::table(&status.instances));
    text.push_str(&instances::lifetimes(&status.instances, status.now));
    text.push_str(&users::status_table(status));
    for line in coming(&status.coming) {
        text.push_str(&format!("\n{line}\n"));
    }
    let listed_max = if listing.all { usize::MAX } else { EXECUTORS_LISTED_MAX };
    let (listed, others) = listed(&status.executors, listed_max);
    let wide = width(listed.iter().map(|executor| executor.name.as_str()), HOST_CHARS_MIN);
    if !status.executors.is_empty() {
        text.push_str(&format!(
            "\n{:>5}  {:<wide$} {:>8} {:>8} {:>8}  OFFERS\n",
            "ID", "EXECUTOR", "FREE", "TASKS", "AHEAD"
        ));
    }
    for executor in listed {
        text.push_str(&executor_line(executor, status.now, wide));
        for relay in executor.relays.iter().skip(1).filter(|_| listing.tree) {
            text.push_str(&relay_line(relay, wide));
        }
    }
    if !others.is_empty() {
        text.push_str(&others_line(&others, wide));
    }
    text.push_str(&away(&status.away));
    text.push_str(&unwritten(&status.executors, status.now, listed_max));
    text.push_str(&caches::table(&status.executors, listing.all));
    text
}

/// The executors to list, in their order, and the others: if there are more
/// than `max`, those go first that something is wrong with.
fn listed(
    executors: &[ExecutorStatus],
    max: usize,
) -> (Vec<&ExecutorStatus>, Vec<&ExecutorStatus>) {
    let (troubled, well): (Vec<_>, Vec<_>) =
        executors.iter().partition(|executor| takes_nothing(executor));
    let mut listed: Vec<_> = troubled.into_iter().chain(well).collect();
    let others = listed.split_off(listed.len().min(max));
    listed.sort_by_key(|executor| executor.id);
    (listed, others)
}

/// Whether an executor is given no tasks for now.
fn takes_nothing(executor: &ExecutorStatus) -> bool {
    !executor.connected || executor.suspended_until.is_some() || executor.drained
}

fn executor_line(executor: &ExecutorStatus, now: Time, wide: usize) -> String {
    format!(
        "{:>5}  {:<wide$} {:>8} {:>8} {:>8}  {}{}\n",
        executor.id.0,
        printable(&executor.name),
        f64::from(executor.free.cpus_milli) / f64::from(MILLI),
        executor.tasks,
        executor.prefetched,
        executor.capacity,
        executor_note(executor, now)
    )
}

/// A relay below an executor that is one.
fn relay_line(relay: &Standing, wide: usize) -> String {
    let name = format!("{}{}", tree::indent(relay), printable(&relay.name));
    let nodes = counted(relay.nodes, "node");
    let free = relay.cpus_milli.saturating_sub(relay.used_milli) as f64 / f64::from(MILLI);
    let tasks = relay.running.saturating_add(relay.ahead);
    let away = relay.away_micros.map(|micros| format!(" (away for {})", span(micros as f64 / 1e6)));
    format!(
        "{:>5}  {name:<wide$} {free:>8} {tasks:>8} {:>8}  a relay to {nodes}{}\n",
        "",
        relay.ahead,
        away.unwrap_or_default()
    )
}

/// Relays that were here and are away, a line for each.
fn away(relays: &[Standing]) -> String {
    let line = |relay: &Standing| {
        let micros = relay.away_micros.unwrap_or(0);
        format!(
            "\nrelay {} lost its connection {} ago and is not back\n",
            printable(&relay.name),
            span(micros as f64 / 1e6)
        )
    };
    relays.iter().map(line).collect()
}

/// The totals of executors that are not listed.
fn others_line(others: &[&ExecutorStatus], wide: usize) -> String {
    let cpus = |milli: &dyn Fn(&ExecutorStatus) -> u32| {
        let sum: u64 = others.iter().map(|executor| u64::from(milli(executor))).sum();
        sum as f64 / f64::from(MILLI)
    };
    let troubled = others.iter().filter(|executor| takes_nothing(executor)).count();
    let troubled = match troubled {
        0 => String::new(),
        count => format!(", {count} of them disconnected, suspended or drained"),
    };
    format!(
        "{:>5}  {:<wide$} {:>8} {:>8} {:>8}  {} CPUs in all{troubled} (--all lists them)\n",
        "",
        format!("and {} more", others.len()),
        cpus(&|executor| executor.free.cpus_milli),
        others.iter().map(|executor| executor.tasks).sum::<u64>(),
        others.iter().map(|executor| executor.prefetched).sum::<u64>(),
        cpus(&|executor| executor.capacity.cpus_milli),
    )
}

/// The trouble of an executor.
fn executor_note(executor: &ExecutorStatus, now: Time) -> String {
    let below = executor.nodes.map(|nodes| format!(", a relay to {}", counted(nodes, "node")));
    let below = below.unwrap_or_default();
    let trouble = match executor.suspended_until {
        Some(until) => format!(
            " (suspended for {}: it could not start the tasks it was given)",
            span(until.since(now) as f64 / 1e6)
        ),
        None if executor.connected => String::new(),
        None => " (disconnected)".to_owned(),
    };
    let drained = if executor.drained { " (drained)" } else { "" };
    below + &trouble + drained
}

/// Archives that executors cannot write for now, a line for each.
fn unwritten(executors: &[ExecutorStatus], now: Time, listed_max: usize) -> String {
    let all = executors.iter().flat_map(|executor| {
        executor.unwritten.iter().map(move |archive| (executor.name.as_str(), archive))
    });
    let mut text = String::new();
    for (executor, Unwritten { archive, since, error }) in all.clone().take(listed_max) {
        text.push_str(&format!(
            "\n{} is not written by {} since {}: {}\n",
            printable(archive),
            printable(executor),
            span(now.since(*since) as f64 / 1e6),
            printable(error)
        ));
    }
    let others = all.count().saturating_sub(listed_max);
    if others > 0 {
        text.push_str(&format!("{} more (--all lists them)\n", counted(others as u64, "archive")));
    }
    text
}

/// Executors that are to come from batch schedulers, a line for each queue.
pub(super) fn coming(queues: &[Coming]) -> Vec<String> {
    let line = |one: &Coming| {
        let (queue, reason) = (printable(&one.queue), printable(&one.reason));
        match (one.nodes, reason.as_str()) {
            (0, reason) => format!("queue {queue} is asked for none: {reason}"),
            (nodes, "") => format!("queue {queue} was asked for {}", counted(nodes, "node")),
            (nodes, reason) => {
                let nodes = counted(nodes, "node");
                format!("queue {queue} was asked for {nodes}; its scheduler says: {reason}")
            }
        }
    };
    queues.iter().map(line).collect()
}

/// `1 task`, `2 tasks`.
pub(crate) fn counted(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// The width of a column that all `names` fit in.
fn width<'a>(names: impl Iterator<Item = &'a str>, chars_min: usize) -> usize {
    names.map(|name| printable(name).chars().count()).fold(chars_min, usize::max)
}

/// A name that others chose, without what a terminal would act upon.
pub(crate) fn printable(text: &str) -> String {
    text.replace(char::is_control, " ")
}

pub(crate) fn resources_json(resources: &Resources) -> Value {
    let custom: serde_json::Map<String, Value> =
        resources.site_defined().map(|(name, count)| (name.clone(), json!(count))).collect();
    json!({
        "cpus": f64::from(resources.cpus_milli) / f64::from(MILLI),
        "gpus": resources.gpus,
        "memory_bytes": resources.memory_bytes,
        "disk_bytes": resources.disk_bytes(),
        "custom": custom,
    })
}

fn unwritten_json(unwritten: &Unwritten) -> Value {
    json!({
        "archive": *unwritten.archive,
        "since": unwritten.since.0 as f64 / 1e6,
        "error": *unwritten.error,
    })
}

/// An executor, for programs.
pub(crate) fn executor_json(executor: &ExecutorStatus) -> Value {
    json!({
        "id": executor.id.0,
        "name": executor.name,
        "connected": executor.connected,
        "suspended_until": executor.suspended_until.map(|at| at.0 as f64 / 1e6),
        "drained": executor.drained,
        "offers": resources_json(&executor.capacity),
        "free": resources_json(&executor.free),
        "tasks": executor.tasks,
        "prefetched": executor.prefetched,
        "cache": executor.cache.as_ref().map(caches::json),
        "nodes": executor.nodes,
        "relays": executor.relays.iter().map(tree::json).collect::<Vec<_>>(),
        "unwritten": executor.unwritten.iter().map(unwritten_json).collect::<Vec<_>>(),
    })
}

/// Nodes that are to come, for programs.
pub(crate) fn coming_json(coming: &Coming) -> Value {
    let reason = Some(&coming.reason).filter(|reason| !reason.is_empty());
    json!({ "queue": coming.queue, "nodes": coming.nodes, "reason": reason })
}

fn status_json(status: &Status) -> Value {
    let coming: Vec<Value> = status.coming.iter().map(coming_json).collect();
    let instances: Vec<Value> = status.instances.iter().map(instance_json).collect();
    let executors: Vec<Value> = status.executors.iter().map(executor_json).collect();
    json!({
        "version": status.version,
        "started": status.started.0 as f64 / 1e6,
        "now": status.now.0 as f64 / 1e6,
        "instances": instances,
        "executors": executors,
        "coming": coming,
        "away": status.away.iter().map(tree::json).collect::<Vec<_>>(),
        "users": users::totals(status).iter().filter_map(users::totals_json).collect::<Vec<_>>(),
    })
}

/// Prints tasks; an exit status if that is the end.
pub(super) fn tasks(tasks: &[TaskInfo], as_json: bool) -> Option<Exit> {
    let hosts = tasks.iter().filter_map(|task| task.executor.as_deref());
    let wide = width(hosts, 0);
    let lines = tasks.iter().map(|task| match as_json {
        true => format!("{}\n", task_json(task)),
        false => task_line(task, wide),
    });
    print(&lines.collect::<String>())
}

/// A task's result, as far as it is known, without what it wrote.
fn result_of(task: &TaskInfo) -> Option<TaskResult> {
    task.end.as_ref().map(|end| TaskResult::of(end, task.task.0, end.ended))
}

fn name_of(task: &TaskInfo) -> Option<String> {
    task.name.as_ref().map(|name| String::from_utf8_lossy(name).into_owned())
}

fn words_of(task: &TaskInfo) -> Vec<String> {
    task.argv.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

fn task_line(task: &TaskInfo, wide: usize) -> String {
    let name = name_of(task).map(|name| format!("{}: ", printable(&name))).unwrap_or_default();
    let command = script(&task.argv).unwrap_or_else(|| words_of(task).join(" "));
    let error = result_of(task).and_then(|result| result.error());
    // A cancelled task's state needs no error beside it.
    let error = error.filter(|_| task.state == "failed");
    let error = error.map(|error| format!(" ({})", printable(&error))).unwrap_or_default();
    let executor = printable(task.executor.as_deref().unwrap_or_default());
    format!(
        "{:>8}  {:<10} {executor:<wide$}  {name}{}{error}\n",
        task.task.0,
        task.state,
        printable(&command)
    )
}

pub(crate) fn task_json(task: &TaskInfo) -> Value {
    let seconds = |time: Time| time.0 as f64 / 1e6;
    let mut line = json!({
        "index": task.task.0,
        "id": name_of(task).unwrap_or_else(|| task.task.0.to_string()),
        "state": task.state,
        "command": words_of(task),
        "executor": task.executor,
    });
    if let (Some(result), Some(end)) = (result_of(task), &task.end) {
        let ran = end.attempts > 0 && end.executor.is_some();
        let times = result.times;
        line["exit_code"] = match end.outcome {
            Outcome::Exit(code) => json!(code),
            _ => Value::Null,
        };
        line["signal"] = match end.outcome {
            Outcome::Signal(signal) => json!(signal),
            _ => Value::Null,
        };
        line["error"] = json!(result.error());
        line["attempts"] = json!(end.attempts);
        if let Some(usage) = JsonUsage::of(&result) {
            line["usage"] = json!(usage);
        }
        if let Some(given) = end.detail.as_deref().and_then(JsonGiven::of) {
            line["given"] = json!(given);
        }
        line["times"] = json!({
            "queued": seconds(times.queued),
            "dispatched": ran.then(|| seconds(times.dispatched)),
            "started": ran.then(|| seconds(times.started)),
            "ended": seconds(times.ended),
        });
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use falkon_core::task::ExecutorId;

    fn executors(count: u64) -> Vec<ExecutorStatus> {
        let executor = |id| ExecutorStatus {
            id: ExecutorId(id),
            name: format!("host:{id}"),
            capacity: Resources::cpus(4),
            free: Resources::cpus(1),
            tasks: 3,
            prefetched: 0,
            connected: id % 1000 != 999,
            suspended_until: None,
            drained: false,
            cache: None,
            nodes: None,
            relays: Vec::new(),
            unwritten: Vec::new(),
        };
        (0..count).map(executor).collect()
    }

    #[test]
    fn many_executors_become_a_few_lines_with_the_troubled_among_them() {
        let executors = executors(10_000);
        let status = Status { executors, ..Status::default() };
        let text = status_text(&status, Listing::default());
        assert_eq!(text.matches("(disconnected)").count(), 10);
        assert_eq!(text.matches("host:").count(), EXECUTORS_LISTED_MAX);
        assert!(text.contains("and 9968 more"), "{text}");
        assert!(text.contains("39872 CPUs in all (--all lists them)"), "{text}");
        assert_eq!(
            status_text(&status, Listing { all: true, tree: false }).matches("host:").count(),
            10_000
        );
    }

    #[test]
    fn columns_are_as_wide_as_the_longest_name() {
        let mut executors = executors(3);
        executors[1].name = "a-node-with-a-very-long-name.cluster.example.org:12345".to_owned();
        let now = Time(0);
        let mut status = Status { executors, started: now, now, ..Status::default() };
        let column_of = |text: &str, header: &str, cell: &str| {
            let mut lines = text.lines().skip_while(|line| !line.contains(header));
            let end = lines.next().unwrap().find(header).unwrap() + header.len();
            let rows: Vec<&str> = lines.take(3).collect();
            assert!(rows.iter().all(|row| row[..end].ends_with(cell)), "{text}");
        };
        column_of(&status_text(&status, Listing::default()), "FREE", " 1");
        status.executors[2].name = "é".repeat(60);
        let text = status_text(&status, Listing::default());
        let widths: Vec<usize> = text.lines().skip(2).map(|line| line.chars().count()).collect();
        assert_eq!(widths[1..].iter().max(), widths[1..].iter().min(), "{text}");
    }

    #[test]
    fn few_executors_are_all_listed_in_their_order() {
        let executors = executors(5);
        let (listed, others) = listed(&executors, EXECUTORS_LISTED_MAX);
        assert!(others.is_empty());
        assert!(listed.is_sorted_by_key(|executor| executor.id));
        assert_eq!(listed.len(), 5);
    }
}
