//! What the page is told, as JSON.

use super::transfers;
use super::watch::Known;
use crate::charts::{CHARTS_JS, LIBRARY_CSS, LIBRARY_JS, PAGE_CSS};
use crate::events::{Names, outcome_words};
use crate::query::{coming_json, instance_json};
use crate::top::board::takes_nothing;
use crate::users::{self, Totals};
use falkon_core::data::stage::Usage;
use falkon_core::events::{FailureClass, FailureGroup, Interval, SCALES_MICROS};
use falkon_core::task::{InstanceId, MILLI, Time};
use falkon_web::File;
use falkon_wire::message::{InstanceStatus, Status};
use serde_json::{Value, json};
use std::sync::LazyLock;

/// The files of the page.
pub(super) const FILES: [File; 7] = [
    File { name: "library.css", kind: CSS, text: LIBRARY_CSS },
    File { name: "page.css", kind: CSS, text: PAGE_CSS },
    File { name: "dashboard.css", kind: CSS, text: include_str!("page/dashboard.css") },
    File { name: "library.js", kind: SCRIPT, text: LIBRARY_JS },
    File { name: "charts.js", kind: SCRIPT, text: CHARTS_JS },
    File { name: "control.js", kind: SCRIPT, text: include_str!("page/control.js") },
    File { name: "dashboard.js", kind: SCRIPT, text: include_str!("page/dashboard.js") },
];
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// The page of those who may look.
pub(super) const PAGE: &str = include_str!("page/index.html");
/// What the page of those who may act has before its own script: the script with the buttons.
const CONTROL: &str = "<script src=\"/files/control.js\"></script>\n";
const OWN_SCRIPT: &str = "<script src=\"/files/dashboard.js\">";

/// The page of those who may act.
pub(super) fn owner_page() -> &'static str {
    static OWNER_PAGE: LazyLock<String> =
        LazyLock::new(|| PAGE.replace(OWN_SCRIPT, &format!("{CONTROL}{OWN_SCRIPT}")));
    &OWNER_PAGE
}

/// Instances that every update has; the page asks for others.
const INSTANCES_SENT_MAX: usize = 20;
/// Classes of failures that every update has, those first that most tasks are of.
const FAILURES_SENT_MAX: usize = 20;

pub(super) fn seconds(at: Time) -> f64 {
    at.0 as f64 / 1e6
}

/// How things are, once a second.
pub(super) fn board(known: &Known) -> Value {
    let Known { board, history, failures, names, .. } = known;
    let status = &board.status;
    let instances = status.instances.iter().take(INSTANCES_SENT_MAX);
    let (used_milli, all_milli) = board.cpus_milli();
    let mut groups: Vec<_> = failures.groups().collect();
    groups.sort_by_key(|(_, group)| std::cmp::Reverse(group.count));
    let groups_shown = groups.iter().take(FAILURES_SENT_MAX);
    let span = history.tally().span;
    json!({
        "version": status.version,
        "started": seconds(status.started),
        "now": seconds(status.now),
        "lost": board.lost,
        "rate": board.rate(None),
        "tasks": totals(&status.instances),
        "instances": {
            "count": status.instances.len(),
            "complete": status.instances.iter().filter(|one| one.complete).count(),
            "shown": instances
                .map(|one| instance(known, one))
                .collect::<Vec<_>>(),
        },
        "users": users::totals(status).iter().map(user).collect::<Vec<_>>(),
        "executors": executors(status),
        "cpus": { "used": cpus(used_milli), "all": cpus(all_milli) },
        "coming": status.coming.iter().map(coming_json).collect::<Vec<_>>(),
        "provisioned": known
            .provisioned
            .iter()
            .map(|(at, queue, text)| json!({ "at": seconds(*at), "queue": **queue, "text": **text }))
            .collect::<Vec<_>>(),
        "data": data(status, &board.usage()),
        "transfers": transfers::matrix(known),
        "failures": {
            "classes": groups.len(),
            "others": failures.ungrouped(),
            "shown": groups_shown.map(|(class, group)| failure(class, group, names)).collect::<Vec<_>>(),
        },
        "events": {
            "kept": !known.has_no_events,
            "behind": known.is_behind,
            "missing": known.missing,
            "from": span.map(|(from, _)| seconds(from)),
            "until": span.map(|(_, until)| seconds(until)),
        },
    })
}

/// A second of a processor, as histories count it.
const CPU_SECOND: f64 = 1e9;

fn cpus(milli: u64) -> f64 {
    milli as f64 / f64::from(MILLI)
}

/// An instance, with the tasks of it that end in a second.
pub(super) fn instance(known: &Known, instance: &InstanceStatus) -> Value {
    let mut value = instance_json(instance);
    value["rate"] = json!(known.board.rate(Some(instance.id)));
    value["paused"] = json!(instance.paused);
    value
}

/// A user, whose number is bounded by the dispatcher, or the owner.
fn user(totals: &Totals<'_>) -> Value {
    let limits = totals.user.map(|user| user.limits);
    json!({
        "name": totals.name,
        "share": limits.map_or(1, |limits| limits.share),
        "instances": totals.instances,
        "queued": totals.queued,
        "running": totals.running,
        "done": totals.done,
        "failed": totals.failed,
        "cpus": totals.user.map(|user| cpus(user.has.slots_milli)),
        "cpus_max": limits.and_then(|limits| limits.slots_max),
        "revoked": totals.user.is_some_and(|user| user.is_revoked),
    })
}

/// The tasks of all instances, by state.
fn totals(instances: &[InstanceStatus]) -> Value {
    let sum = |of: fn(&InstanceStatus) -> u64| instances.iter().map(of).sum::<u64>();
    json!({
        "total": sum(|one| one.counts.total),
        "waiting": sum(|one| one.counts.waiting),
        "ready": sum(|one| one.counts.ready),
        "sent": sum(|one| one.counts.dispatched.saturating_sub(one.running + one.staged)),
        "running": sum(|one| one.running),
        "staged": sum(|one| one.staged),
        "done": sum(|one| one.counts.done),
        "failed": sum(|one| one.counts.failed),
        "cancelled": sum(|one| one.counts.cancelled),
    })
}

fn executors(status: &Status) -> Value {
    let all = &status.executors;
    let count =
        |of: fn(&&falkon_wire::message::ExecutorStatus) -> bool| all.iter().filter(of).count();
    json!({
        "count": all.len(),
        "connected": count(|one| one.connected),
        "suspended": count(|one| one.suspended_until.is_some()),
        "drained": count(|one| one.drained),
        "idle": count(|one| !takes_nothing(one) && one.tasks == 0),
        "busy": count(|one| one.tasks > 0),
        "nodes": all.iter().filter_map(|one| one.nodes).sum::<u64>(),
    })
}

fn data(status: &Status, usage: &Usage) -> Value {
    let caches = || status.executors.iter().filter_map(|executor| executor.cache);
    json!({
        "caches": caches().count(),
        "objects": caches().map(|cache| cache.objects).sum::<u64>(),
        "used_bytes": caches().map(|cache| cache.state.used).sum::<u64>(),
        "capacity_bytes": caches()
            .map(|cache| cache.state.capacity)
            .fold(0u64, u64::saturating_add),
        "own": amount(usage.local.objects, usage.local.bytes),
        "peer": amount(usage.peer.objects, usage.peer.bytes),
        "store": amount(usage.store.objects, usage.store.bytes),
    })
}

fn amount(objects: u64, bytes: u64) -> Value {
    json!({ "objects": objects, "bytes": bytes })
}

fn failure(class: &FailureClass, group: &FailureGroup, names: &Names) -> Value {
    let FailureClass { instance: InstanceId(instance), command, message, .. } = class;
    let executors = group.executors.iter();
    let executors =
        executors.map(|id| names.executor(*id).map_or_else(|| id.0.to_string(), str::to_owned));
    json!({
        "instance": instance,
        "command": **command,
        "how": outcome_words(group.outcome),
        "message": **message,
        "error": group.error.as_deref(),
        "count": group.count,
        "first": group.first.0,
        "from": seconds(group.from),
        "until": seconds(group.until),
        "executors": executors.collect::<Vec<_>>(),
    })
}

/// A run over time, at one of the scales: a column for each quantity. `since` leaves out the
/// intervals before a time.
pub(super) fn history(known: &Known, scale: usize, since: f64) -> Value {
    let micros = SCALES_MICROS[scale];
    let kept = known.history.intervals(scale);
    let kept: Vec<(Time, Interval)> = kept.filter(|(at, _)| seconds(*at) >= since).collect();
    let column = |of: fn(&Interval) -> f64| -> Vec<f64> {
        kept.iter().map(|(_, interval)| of(interval)).collect()
    };
    json!({
        "seconds": micros as f64 / 1e6,
        "at": kept.iter().map(|(at, _)| seconds(*at)).collect::<Vec<_>>(),
        "submitted": column(|of| of.submitted as f64),
        "done": column(|of| of.ended.done as f64),
        "failed": column(|of| of.ended.failed as f64),
        "cancelled": column(|of| of.ended.cancelled as f64),
        "run_s": column(|of| of.processors.ran as f64 / CPU_SECOND),
        "staging_s": column(|of| of.staging_micros as f64 / 1e6),
        "own": column(|of| of.usage.local.bytes as f64),
        "peer": column(|of| of.usage.peer.bytes as f64),
        "store": column(|of| of.usage.store.bytes as f64),
        "queued": column(|of| of.levels.queued as f64),
        "assigned": column(|of| of.levels.assigned as f64),
        "executors": column(|of| of.levels.executors as f64),
        "cpus": column(|of| cpus(of.levels.cpus_milli)),
        "offered_s": column(|of| of.processors.offered as f64 / CPU_SECOND),
        "taken_s": column(|of| of.processors.taken as f64 / CPU_SECOND),
        "idle_while_waiting_s": column(|of| of.processors.idle_while_waiting as f64 / CPU_SECOND),
    })
}
