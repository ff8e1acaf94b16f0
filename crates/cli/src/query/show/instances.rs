//! Instances in the status.

use super::{NAME_CHARS_MIN, counted, printable, resources_json, width};
use crate::embedded::how_gpus_are_offered;
use crate::progress::span;
use crate::results::staged::bytes_text;
use falkon_core::task::Time;
use falkon_wire::message::InstanceStatus;
use serde_json::{Value, json};

/// How far each has come, with what holds it up.
pub(super) fn table(instances: &[InstanceStatus]) -> String {
    if instances.is_empty() {
        return String::new();
    }
    let wide = width(instances.iter().map(|instance| &*instance.name), NAME_CHARS_MIN);
    let mut text = format!(
        "\n{:>5}  {:<wide$} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}  STATE\n",
        "ID", "NAME", "TASKS", "WAITING", "READY", "RUNNING", "DONE", "FAILED"
    );
    for instance in instances {
        let counts = &instance.counts;
        text.push_str(&format!(
            "{:>5}  {:<wide$} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}  {}\n",
            instance.id,
            printable(&instance.name),
            counts.total,
            counts.waiting,
            counts.ready,
            instance.running,
            counts.done,
            counts.failed + counts.cancelled,
            state_text(instance)
        ));
        if instance.staged > 0 {
            let (tasks, verb) = match instance.staged {
                1 => ("1 task".to_owned(), "has"),
                count => (counted(count, "task"), "have"),
            };
            text.push_str(&format!(
                "       {tasks} {verb} ended, with outputs that are staged and not safe yet\n"
            ));
        }
        for (need, count) in &instance.unschedulable {
            let verb = if *count == 1 { "needs" } else { "need" };
            let tasks = counted(*count, "task");
            let how = how_gpus_are_offered(need);
            text.push_str(&format!("       {tasks} {verb} {need}: no executor offers that{how}\n"));
        }
        for (micros, count) in &instance.overlong {
            let (tasks, time) = (counted(*count, "task"), span(*micros as f64 / 1e6));
            text.push_str(&format!(
                "       {tasks}: the next is expected to run for {time}, and every executor leaves \
                 before that\n"
            ));
        }
    }
    text
}

/// How old each is, how long it will stay, and what it holds meanwhile.
pub(super) fn lifetimes(instances: &[InstanceStatus], now: Time) -> String {
    if instances.is_empty() {
        return String::new();
    }
    let mut text = format!(
        "\n{:>5}  {:<24} {:>16} {:>16} {:>10} {:>10}\n",
        "ID", "CREATED", "LAST HEARD OF", "EXPIRES", "QUEUED", "RESULTS"
    );
    for instance in instances {
        let ago = match now.since(instance.heard) {
            0..1_000_000 => "now".to_owned(),
            micros => format!("{} ago", span(micros as f64 / 1e6)),
        };
        let expires = instance.expires.map_or_else(
            || "not now".to_owned(),
            |at| format!("in {}", span(at.since(now) as f64 / 1e6)),
        );
        text.push_str(&format!(
            "{:>5}  {:<24} {ago:>16} {expires:>16} {:>10} {:>10}\n",
            instance.id,
            instance.created.utc(),
            bytes_text(instance.queued_bytes),
            bytes_text(instance.held_bytes.saturating_add(instance.stored_bytes)),
        ));
    }
    text
}

/// Its state, with its priority if somebody has set one, and its user.
fn state_text(instance: &InstanceStatus) -> String {
    let mut text = state(instance).to_owned();
    if instance.priority != 0 {
        text.push_str(&format!(", priority {}", instance.priority));
    }
    if !instance.user.is_empty() {
        text.push_str(&format!(", of {}", printable(&instance.user)));
    }
    text
}

fn state(instance: &InstanceStatus) -> &'static str {
    match instance {
        InstanceStatus { complete: true, .. } => "complete",
        InstanceStatus { paused: true, .. } => "paused",
        InstanceStatus { clogged: true, .. } => "held up: fetch results",
        InstanceStatus { sealed: true, .. } => "running",
        _ => "open",
    }
}

/// An instance, for programs.
pub(crate) fn json(instance: &InstanceStatus) -> Value {
    let counts = &instance.counts;
    let unschedulable: Vec<Value> = instance
        .unschedulable
        .iter()
        .map(|(need, count)| json!({ "needs": resources_json(need), "tasks": count }))
        .collect();
    let overlong = instance.overlong.iter();
    let overlong: Vec<Value> = overlong
        .map(|(micros, count)| json!({ "seconds": *micros as f64 / 1e6, "tasks": count }))
        .collect();
    let seconds = |at: Time| at.0 as f64 / 1e6;
    json!({
        "id": instance.id,
        "name": instance.name,
        "state": state(instance),
        "priority": instance.priority,
        "user": (!instance.user.is_empty()).then_some(&instance.user),
        "created": seconds(instance.created),
        "last_heard": seconds(instance.heard),
        "expires": instance.expires.map(seconds),
        "tasks": counts.total,
        "waiting": counts.waiting,
        "ready": counts.ready,
        "dispatched": counts.dispatched,
        "running": instance.running,
        "staged": instance.staged,
        "done": counts.done,
        "failed": counts.failed,
        "cancelled": counts.cancelled,
        "recomputed": counts.recomputed,
        "queued_bytes": instance.queued_bytes,
        "results_bytes": instance.held_bytes,
        "results_stored_bytes": instance.stored_bytes,
        "unschedulable": unschedulable,
        "overlong": overlong,
    })
}
