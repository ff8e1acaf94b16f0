//! A report as it is shown: numbers and tables, the same in each form.

use super::advice::{Advice, advise};
use super::course::{Interval, Measure};
use super::gather::{Gathered, Group};
use falkon_core::data::stage::{Count, Usage};
use falkon_core::metrics::{HitRatios, ResourceTotals, Run};
use falkon_core::result::Counts;
use falkon_core::task::Time;
use serde_json::{Value, json};
use std::cmp::Reverse;

/// Intervals of the course.
const INTERVALS_SHOWN_MAX: usize = 128;
/// Rows of each table.
const ROWS_SHOWN_MAX: usize = 50;

/// Where the time of all slots went, in seconds.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SlotSeconds {
    /// Slots that there were, times how long.
    pub(super) there: f64,
    /// Tasks ran that succeeded.
    pub(super) run: f64,
    /// Tasks ran that did not.
    pub(super) failed: f64,
    /// Slots were idle while tasks were at their executors and had not started: they waited
    /// for inputs, or for the start of a process.
    pub(super) starting: f64,
    /// Slots were idle while tasks were queued.
    pub(super) dispatch: f64,
    /// Slots were idle, and no task was there for them.
    pub(super) no_work: f64,
}

/// A row of the table of commands.
#[derive(Debug, Clone)]
pub(super) struct Command {
    pub(super) command: String,
    pub(super) group: Group,
}

/// A row of the table of failures.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    pub(super) command: String,
    pub(super) message: String,
    pub(super) count: u64,
    pub(super) example: String,
}

/// A row of the table of the slowest.
#[derive(Debug, Clone)]
pub(super) struct Slow {
    pub(super) task: String,
    pub(super) count: u64,
    pub(super) run_s: f64,
    pub(super) wait_s: f64,
    pub(super) executor: String,
    pub(super) command: String,
}

/// A row of the table of executors.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) slots: f64,
    pub(super) there_s: f64,
    pub(super) ended: u64,
    pub(super) failed: u64,
    pub(super) run_s: f64,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Shown {
    pub(super) first: Time,
    pub(super) last: Time,
    pub(super) instances: Vec<(u64, String)>,
    pub(super) submitted: u64,
    pub(super) counts: Counts,
    pub(super) requeued: u64,
    pub(super) retried: u64,
    pub(super) second_tries: u64,
    pub(super) missing: u64,
    pub(super) run: Run,
    pub(super) all: Group,
    pub(super) slot_seconds: SlotSeconds,
    pub(super) usage: Usage,
    pub(super) course: Vec<Interval>,
    pub(super) commands: Vec<Command>,
    pub(super) failures: Vec<Failure>,
    pub(super) slowest: Vec<Slow>,
    pub(super) executors: Vec<Node>,
    pub(super) executor_count: usize,
    pub(super) advice: Vec<Advice>,
}

/// A time for people, also a short one.
pub(super) fn span(seconds: f64) -> String {
    match seconds {
        s if s <= 0.0 => "0 s".to_owned(),
        s if s < 1e-3 => format!("{:.0} µs", s * 1e6),
        s if s < 1.0 => format!("{:.0} ms", s * 1e3),
        s if s < 60.0 => format!("{s:.1} s"),
        s => crate::progress::span(s),
    }
}

pub(super) fn seconds(micros: u128) -> f64 {
    micros as f64 / 1e6
}

impl Shown {
    pub(super) fn of(gathered: &Gathered, first: Time, last: Time) -> Shown {
        let makespan_s = last.since(first) as f64 / 1e6;
        let fine = gathered.course.intervals(first, last, usize::MAX);
        let slot_seconds = split(&fine, gathered);
        let slots = slot_seconds.there / makespan_s;
        let run = Run {
            tasks: gathered.all.counts.ended(),
            slots,
            makespan_s,
            work_s: seconds(gathered.all.slot_micros().0),
            arrivals_s: gathered.last_alone.since(first) as f64 / 1e6,
        };
        let mut shown = Shown {
            first,
            last,
            instances: instances(gathered),
            submitted: gathered.submitted,
            counts: gathered.all.counts,
            requeued: gathered.requeued,
            retried: gathered.retried,
            second_tries: gathered.second_tries,
            missing: gathered.missing,
            run,
            all: gathered.all.clone(),
            slot_seconds,
            usage: gathered.usage,
            course: gathered.course.intervals(first, last, INTERVALS_SHOWN_MAX),
            commands: commands(gathered),
            failures: failures(gathered),
            slowest: slowest(gathered),
            executors: executors(gathered, first, last),
            executor_count: gathered.executors.len(),
            advice: Vec::new(),
        };
        shown.advice = advise(&shown, &fine);
        shown
    }

    /// The report for programs.
    pub(super) fn json(&self) -> String {
        let Run { slots, makespan_s, work_s, .. } = self.run;
        let instances = self.instances.iter().map(|(id, name)| json!({ "id": id, "name": name }));
        let commands = self.commands.iter().map(|Command { command, group }| {
            let mut row = group_json(group);
            row["command"] = json!(command);
            row
        });
        let failures = self.failures.iter().map(|one| {
            json!({
                "command": one.command,
                "message": one.message,
                "count": one.count,
                "example": one.example,
            })
        });
        let slowest = self.slowest.iter().map(|one| {
            json!({
                "task": one.task,
                "count": one.count,
                "run_s": one.run_s,
                "wait_s": one.wait_s,
                "executor": one.executor,
                "command": one.command,
            })
        });
        let executors = self.executors.iter().map(|one| {
            json!({
                "name": one.name,
                "slots": one.slots,
                "there_s": one.there_s,
                "ended": one.ended,
                "failed": one.failed,
                "run_s": one.run_s,
            })
        });
        let course = self.course.iter().map(|one| {
            json!({
                "at_s": one.from.since(self.first) as f64 / 1e6,
                "seconds": one.micros as f64 / 1e6,
                "ended": one.ended,
                "failed": one.failed,
                "queued": one.mean(Measure::Queued),
                "sent": one.mean(Measure::Sent),
                "running": one.mean(Measure::Running),
                "slots": one.mean(Measure::Slots),
                "executors": one.mean(Measure::Executors),
            })
        });
        let advice = self
            .advice
            .iter()
            .map(|one| json!({ "kind": one.kind, "seconds": one.seconds, "text": one.text }));
        let spent = &self.slot_seconds;
        json!({
            "from": self.first.0 as f64 / 1e6,
            "until": self.last.0 as f64 / 1e6,
            "instances": instances.collect::<Vec<Value>>(),
            "tasks": {
                "submitted": self.submitted,
                "done": self.counts.done,
                "failed": self.counts.failed,
                "cancelled": self.counts.cancelled,
                "requeued": self.requeued,
                "retried": self.retried,
                "second_tries": self.second_tries,
            },
            "missing_events": self.missing,
            "makespan_s": makespan_s,
            "work_s": work_s,
            "slots": slots,
            "tasks_per_s": self.run.results_per_s(),
            "ideal_s": self.run.ideal_s(),
            "efficiency": self.run.efficiency(),
            "utilization": self.run.utilization(),
            "speedup": self.run.speedup(),
            "slowdown": self.run.slowdown(),
            "all": group_json(&self.all),
            "slot_seconds": {
                "there": spent.there,
                "run": spent.run,
                "failed": spent.failed,
                "starting": spent.starting,
                "dispatch": spent.dispatch,
                "no_work": spent.no_work,
            },
            "inputs": inputs_json(&self.usage),
            "course": course.collect::<Vec<Value>>(),
            "commands": commands.collect::<Vec<Value>>(),
            "failures": failures.collect::<Vec<Value>>(),
            "slowest": slowest.collect::<Vec<Value>>(),
            "executors": executors.collect::<Vec<Value>>(),
            "advice": advice.collect::<Vec<Value>>(),
        })
        .to_string()
    }
}

fn group_json(group: &Group) -> Value {
    let mean = |micros: u128| match group.ran {
        0 => 0.0,
        ran => seconds(micros) / ran as f64,
    };
    json!({
        "done": group.counts.done,
        "failed": group.counts.failed,
        "cancelled": group.counts.cancelled,
        "ran": group.ran,
        "run_s": seconds(group.run_micros),
        "mean_s": mean(group.run_micros),
        "median_s": group.quantile_micros(0.5) / 1e6,
        "p95_s": group.quantile_micros(0.95) / 1e6,
        "min_s": group.min_micros.unwrap_or(0) as f64 / 1e6,
        "max_s": group.max_micros as f64 / 1e6,
        "mean_wait_s": mean(group.wait_micros),
        "mean_staging_s": mean(group.staging_micros),
        "used": used_json(&group.used),
    })
}

/// The resources that tasks used; null if none was measured.
fn used_json(used: &ResourceTotals) -> Value {
    if used.tasks == 0 {
        return Value::Null;
    }
    json!({
        "tasks": used.tasks,
        "user_s": seconds(used.user_micros),
        "system_s": seconds(used.system_micros),
        "rss_median_bytes": used.memory_of(50),
        "rss_p95_bytes": used.memory_of(95),
        "rss_max_bytes": used.rss_max_bytes,
        "read_bytes": used.read_bytes as u64,
        "written_bytes": used.written_bytes as u64,
        "disk_max_bytes": used.disk_max_bytes,
    })
}

fn inputs_json(usage: &Usage) -> Value {
    let count = |Count { objects, bytes }: Count| json!({ "objects": objects, "bytes": bytes });
    let ratios = HitRatios::of(usage)
        .map(|ratios| json!({ "local": ratios.local, "peer": ratios.peer, "store": ratios.store }));
    json!({
        "local": count(usage.local),
        "peer": count(usage.peer),
        "store": count(usage.store),
        "hit_ratios": ratios,
    })
}

/// Where the time of slots went, interval by interval. A task counts as the CPUs that it
/// reserves on all of its nodes.
fn split(course: &[Interval], gathered: &Gathered) -> SlotSeconds {
    let mut spent = SlotSeconds::default();
    for one in course {
        let lasts = one.micros as f64 / 1e6;
        let [there, busy, starting, wanted] =
            [Measure::Slots, Measure::SlotsBusy, Measure::SlotsStarting, Measure::SlotsWanted]
                .map(|measure| one.mean(measure));
        let idle = (there - busy).max(0.0);
        let starting = idle.min(starting);
        let dispatch = (idle - starting).min(wanted);
        spent.there += there * lasts;
        spent.starting += starting * lasts;
        spent.dispatch += dispatch * lasts;
        spent.no_work += (idle - starting - dispatch) * lasts;
    }
    let (all, failed) = gathered.all.slot_micros();
    spent.failed = seconds(failed);
    spent.run = seconds(all - failed);
    spent
}

fn instances(gathered: &Gathered) -> Vec<(u64, String)> {
    let mut seen: Vec<(u64, String)> = Vec::new();
    for (instance, _) in gathered.submissions.keys() {
        if seen.last().is_none_or(|(last, _)| *last != instance.0) {
            let name = gathered.instances.get(instance).map_or("", |name| name);
            seen.push((instance.0, name.to_owned()));
        }
    }
    seen
}

fn commands(gathered: &Gathered) -> Vec<Command> {
    let all = gathered.commands.iter();
    let mut rows: Vec<Command> = all
        .map(|(command, group)| Command { command: command.to_string(), group: group.clone() })
        .collect();
    rows.sort_by(|a, b| (b.group.run_micros, &a.command).cmp(&(a.group.run_micros, &b.command)));
    rows.truncate(ROWS_SHOWN_MAX);
    rows
}

fn failures(gathered: &Gathered) -> Vec<Failure> {
    let mut rows: Vec<Failure> = gathered
        .failures
        .iter()
        .map(|((command, message), failures)| Failure {
            command: command.to_string(),
            message: message.to_string(),
            count: failures.count,
            example: format!("{}/{}", failures.example.0, failures.example.1),
        })
        .collect();
    rows.sort_by(|a, b| {
        (Reverse(a.count), &a.command, &a.message).cmp(&(Reverse(b.count), &b.command, &b.message))
    });
    rows.truncate(ROWS_SHOWN_MAX);
    rows
}

fn slowest(gathered: &Gathered) -> Vec<Slow> {
    let row = |slow: super::gather::Slow| {
        let (run_micros, (instance, first, count), executor, wait_micros) = slow;
        let before = gathered.submissions.range(..=(instance, first)).next_back();
        let command = before.filter(|((of, _), _)| *of == instance);
        let name = executor.and_then(|id| gathered.executors.get(&id));
        Slow {
            task: format!("{instance}/{first}"),
            count,
            run_s: seconds(u128::from(run_micros)),
            wait_s: seconds(u128::from(wait_micros)),
            executor: name.map_or_else(String::new, |executor| executor.name.to_string()),
            command: command.map_or_else(String::new, |(_, command)| command.to_string()),
        }
    };
    gathered.slowest().into_iter().map(row).collect()
}

fn executors(gathered: &Gathered, first: Time, last: Time) -> Vec<Node> {
    let row = |one: &super::gather::Executor| {
        let (from, until) = (one.joined.max(first), one.gone.unwrap_or(last).min(last));
        Node {
            name: one.name.to_string(),
            slots: one.slots,
            there_s: until.since(from) as f64 / 1e6,
            ended: one.ended,
            failed: one.failed,
            run_s: seconds(one.run_micros),
        }
    };
    let mut rows: Vec<Node> = gathered.executors.values().map(row).collect();
    rows.sort_by(|a, b| (Reverse(a.ended), &a.name).cmp(&(Reverse(b.ended), &b.name)));
    rows.truncate(ROWS_SHOWN_MAX);
    rows
}
