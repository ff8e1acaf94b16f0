//! The tables of a report, as each form shows them.

use super::gather::Group;
use super::shown::{Shown, seconds, span};
use crate::query::counted;
use crate::results::staged::{byte_sum_text, bytes_text};
use falkon_core::data::stage::Usage;
use falkon_core::metrics::{HitRatios, ResourceTotals};
use std::cmp::Reverse;

/// A table with its heading.
#[derive(Debug)]
pub(super) struct Section {
    /// Empty, if it needs none.
    pub(super) title: &'static str,
    /// What is to be said before it.
    pub(super) note: String,
    pub(super) heads: Vec<&'static str>,
    /// Texts as they are: commands and names may have anything in them.
    pub(super) rows: Vec<Vec<String>>,
}

impl Section {
    fn table(
        title: &'static str,
        note: &str,
        heads: &[&'static str],
        rows: Vec<Vec<String>>,
    ) -> Section {
        Section { title, note: note.to_owned(), heads: heads.to_vec(), rows }
    }
}

/// When it was, and of what.
pub(super) fn heading(shown: &Shown) -> String {
    let names: Vec<String> = shown
        .instances
        .iter()
        .map(|(id, name)| match name.is_empty() {
            true => id.to_string(),
            false => format!("{id} ({name})"),
        })
        .collect();
    let of = if names.len() == 1 { "instance" } else { "instances" };
    let (first, last) = (shown.first.utc(), shown.last.utc());
    format!("{first} until {last}, {of} {}.", names.join(", "))
}

/// A word of warning, if numbers are not exact.
pub(super) fn warning(shown: &Shown) -> Option<String> {
    (shown.missing > 0).then(|| {
        format!(
            "{} events are missing: the disk was full, or too slow. Numbers are too low.",
            shown.missing
        )
    })
}

/// What comes first: how the run went.
pub(super) fn overview(shown: &Shown) -> Vec<Section> {
    let mut out = Vec::new();
    summary(shown, &mut out);
    slot_seconds(shown, &mut out);
    out
}

/// The tables behind the course.
pub(super) fn details(shown: &Shown) -> Vec<Section> {
    let mut out = Vec::new();
    inputs(&shown.usage, &mut out);
    commands(shown, &mut out);
    used(shown, &mut out);
    failures(shown, &mut out);
    slowest(shown, &mut out);
    executors(shown, &mut out);
    out
}

fn percent(part: f64, whole: f64) -> String {
    match whole > 0.0 {
        true => format!("{:.1} %", part / whole * 100.0),
        false => "-".to_owned(),
    }
}

fn summary(shown: &Shown, out: &mut Vec<Section>) {
    let (run, counts) = (&shown.run, &shown.counts);
    let ended = counts.ended();
    let mut rows = vec![
        vec!["tasks".to_owned(), format!("{} submitted, {ended} ended", shown.submitted)],
        vec![
            "how they ended".to_owned(),
            format!(
                "{} done, {} failed, {} cancelled",
                counts.done, counts.failed, counts.cancelled
            ),
        ],
        vec!["makespan".to_owned(), span(run.makespan_s)],
        vec!["work".to_owned(), format!("{} of run time", span(run.work_s))],
        vec![
            "slots".to_owned(),
            format!(
                "{:.1} on average, of {}",
                run.slots,
                counted(shown.executor_count as u64, "executor")
            ),
        ],
        vec!["throughput".to_owned(), format!("{:.1} tasks/s", run.results_per_s())],
    ];
    if run.slots > 0.0 {
        rows.push(vec![
            "efficiency".to_owned(),
            format!("{:.1} % (ideal: {})", run.efficiency() * 100.0, span(run.ideal_s())),
        ]);
        rows.push(vec!["speedup".to_owned(), format!("{:.2}", run.speedup())]);
        rows.push(vec!["utilization".to_owned(), format!("{:.1} %", run.utilization() * 100.0)]);
    }
    let repeated = [
        ("requeued", shown.requeued),
        ("retried", shown.retried),
        ("second tries", shown.second_tries),
    ];
    for (name, count) in repeated.into_iter().filter(|(_, count)| *count > 0) {
        rows.push(vec![name.to_owned(), count.to_string()]);
    }
    out.push(Section::table("", "", &["", ""], rows));
}

fn slot_seconds(shown: &Shown, out: &mut Vec<Section>) {
    let spent = &shown.slot_seconds;
    if spent.there <= 0.0 {
        return;
    }
    let rows = [
        ("tasks ran that succeeded", spent.run),
        ("tasks ran that did not", spent.failed),
        ("idle while tasks at their executors had not started", spent.starting),
        ("idle while tasks were queued", spent.dispatch),
        ("idle without tasks", spent.no_work),
    ];
    let rows = rows
        .into_iter()
        .map(|(what, time)| vec![what.to_owned(), span(time), percent(time, spent.there)]);
    let note = "A task counts as the CPUs that it reserves.";
    let heads = ["slots", "time", "part"];
    out.push(Section::table("Where the time of slots went", note, &heads, rows.collect()));
}

fn inputs(usage: &Usage, out: &mut Vec<Section>) {
    let Some(ratios) = HitRatios::of(usage) else { return };
    let rows = [
        ("own cache", usage.local, ratios.local),
        ("caches of others", usage.peer, ratios.peer),
        ("store", usage.store, ratios.store),
    ];
    let rows = rows.into_iter().map(|(from, count, ratio)| {
        let (objects, bytes) = (count.objects.to_string(), count.bytes.to_string());
        vec![from.to_owned(), objects, bytes, format!("{:.1} %", ratio * 100.0)]
    });
    let heads = ["from", "objects", "bytes", "hit ratio"];
    out.push(Section::table("Where inputs came from", "", &heads, rows.collect()));
}

/// Numbers of a group of tasks: how many, and how long they ran.
fn numbers(group: &Group) -> Vec<String> {
    let micros = |micros: f64| span(micros / 1e6);
    let mean = |micros: u128| match group.ran {
        0 => "-".to_owned(),
        ran => span(seconds(micros) / ran as f64),
    };
    vec![
        group.counts.done.to_string(),
        group.counts.failed.to_string(),
        span(seconds(group.run_micros)),
        mean(group.run_micros),
        micros(group.quantile_micros(0.5)),
        micros(group.quantile_micros(0.95)),
        micros(group.max_micros as f64),
        mean(group.wait_micros),
    ]
}

fn commands(shown: &Shown, out: &mut Vec<Section>) {
    let heads =
        ["command", "done", "failed", "ran in all", "mean", "median", "95 %", "longest", "waited"];
    let rows = shown.commands.iter().map(|one| {
        let mut row = vec![one.command.clone()];
        row.extend(numbers(&one.group));
        row
    });
    out.push(Section::table("Commands", "", &heads, rows.collect()));
}

/// Resources of the tasks of each command, the most processor time first.
fn used(shown: &Shown, out: &mut Vec<Section>) {
    let measured = shown.commands.iter().filter(|one| one.group.used.tasks > 0);
    let mut measured: Vec<(&str, &ResourceTotals)> =
        measured.map(|one| (one.command.as_str(), &one.group.used)).collect();
    if measured.is_empty() {
        return;
    }
    measured.sort_by_key(|(command, used)| {
        (Reverse(used.user_micros + used.system_micros), command.to_owned())
    });
    let rows = measured.into_iter().map(|(command, used)| {
        vec![
            command.to_owned(),
            used.tasks.to_string(),
            span(seconds(used.user_micros)),
            span(seconds(used.system_micros)),
            percent(seconds(used.user_micros + used.system_micros), seconds(used.wall_micros)),
            bytes_text(used.memory_of(50)),
            bytes_text(used.memory_of(95)),
            bytes_text(used.rss_max_bytes),
            byte_sum_text(used.read_bytes),
            byte_sum_text(used.written_bytes),
            used.disk_max_bytes.map_or_else(|| "-".to_owned(), bytes_text),
        ]
    });
    let heads = [
        "command",
        "tasks",
        "user",
        "system",
        "of run time",
        "memory: median",
        "95 %",
        "most",
        "read",
        "written",
        "disk: most",
    ];
    let note =
        "Of processes that were measured: processor time, and the most memory that each had.";
    out.push(Section::table("What tasks used", note, &heads, rows.collect()));
}

fn failures(shown: &Shown, out: &mut Vec<Section>) {
    if shown.failures.is_empty() {
        return;
    }
    let rows = shown.failures.iter().map(|one| {
        vec![one.count.to_string(), one.message.clone(), one.command.clone(), one.example.clone()]
    });
    let heads = ["tasks", "message", "command", "the first"];
    out.push(Section::table("Failures", "", &heads, rows.collect()));
}

fn slowest(shown: &Shown, out: &mut Vec<Section>) {
    if shown.slowest.is_empty() {
        return;
    }
    let rows = shown.slowest.iter().map(|one| {
        let task = match one.count {
            1 => one.task.clone(),
            count => format!("{} and {} more", one.task, count - 1),
        };
        vec![task, span(one.run_s), span(one.wait_s), one.executor.clone(), one.command.clone()]
    });
    let heads = ["task", "ran", "waited", "executor", "command"];
    out.push(Section::table("The slowest tasks", "", &heads, rows.collect()));
}

fn executors(shown: &Shown, out: &mut Vec<Section>) {
    if shown.executors.is_empty() {
        return;
    }
    let rows = shown.executors.iter().map(|one| {
        vec![
            one.name.clone(),
            format!("{:.1}", one.slots),
            span(one.there_s),
            one.ended.to_string(),
            one.failed.to_string(),
            percent(one.run_s, one.slots * one.there_s),
        ]
    });
    let more = shown.executor_count - shown.executors.len();
    let note = match more {
        0 => String::new(),
        more => format!("{more} more executors are left out."),
    };
    let heads = ["executor", "slots", "there", "tasks", "not done", "in use"];
    out.push(Section::table("Executors", &note, &heads, rows.collect()));
}
