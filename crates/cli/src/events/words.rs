//! Events for people.

use super::Names;
use crate::query::{counted, printable};
use falkon_core::events::{Ended, Event, NamedObject, Reserves, Run, Uses, Waits, What};
use falkon_core::result::Outcome;
use falkon_core::task::ExecutorId;
use std::sync::Arc;

/// How many items of a list a line names.
const NAMED_MAX: usize = 3;

/// Adds an event's line.
pub(super) fn write(event: &Event, names: &Names, out: &mut Vec<u8>) {
    let text = words(&event.what, names);
    out.extend_from_slice(format!("{}  {}\n", event.at.utc(), printable(&text)).as_bytes());
}

fn words(what: &What, names: &Names) -> String {
    match what {
        What::DispatcherStarted { version } => format!("dispatcher {version} started"),
        What::InstanceCreated { instance, name, .. } => match name.is_empty() {
            true => format!("instance {instance} created"),
            false => format!("instance {instance} created: {name}"),
        },
        What::Submitted { instance, first, count, command } => {
            let run = Run { instance: *instance, first: *first, count: *count };
            format!("{} submitted: {command}", tasks(&run))
        }
        What::Waits(waits) => waits_words(waits),
        What::Uses(uses) => uses_words(uses),
        What::Reserves(reserves) => reserves_words(reserves),
        What::Sealed { instance } => format!("instance {instance} takes no more tasks"),
        What::Assigned { run, executor, attempt } => {
            let attempt = match attempt {
                1 => String::new(),
                more => format!(", attempt {more}"),
            };
            format!("{} to {}{attempt}", tasks(run), named(*executor, names))
        }
        What::Requeued { run, attempt } => {
            format!("{} queued again for attempt {attempt}", tasks(run))
        }
        What::Ended(ended) => ended_words(ended, names),
        What::Cancelling { run } => format!("{} to be cancelled", tasks(run)),
        What::Retried { run } => format!("{} retried", tasks(run)),
        What::Recomputed { instance, task } => {
            format!("task {instance}/{task} runs again: what it left in caches is lost")
        }
        What::Copied { instance, task, executor, first, ran_micros, median_micros } => format!(
            "task {instance}/{task} has a second try on {}: it has run for {:.3} s on {}, its like \
             for {:.3} s",
            named(*executor, names),
            *ran_micros as f64 / 1e6,
            named(*first, names),
            *median_micros as f64 / 1e6
        ),
        What::RecomputationEnded { run, outcome } => {
            format!("{} ran again: {}", tasks(run), outcome_words(*outcome))
        }
        What::InstanceGone { instance, expired: true } => format!("instance {instance} expired"),
        What::InstanceGone { instance, .. } => format!("instance {instance} destroyed"),
        What::ExecutorJoined { executor, name, capacity, allocation, .. } => {
            let from = allocation.map_or_else(String::new, |id| format!(", allocation {}", id.0));
            format!("executor {} ({name}) joined with {capacity}{from}", executor.0)
        }
        What::ExecutorGone { executor, why } => format!("{} gone: {why}", named(*executor, names)),
        What::ExecutorSuspended { executor, until } => format!(
            "{} suspended until {}: it could not start its tasks",
            named(*executor, names),
            until.utc()
        ),
        What::ExecutorDrained { executor, is_drained } => match is_drained {
            true => format!("{} drained", named(*executor, names)),
            false => format!("{} not drained any more", named(*executor, names)),
        },
        What::Moved { executor, from, bytes } => format!(
            "{} had {} from {}",
            named(*executor, names),
            counted(*bytes, "byte"),
            named(*from, names)
        ),
        What::Paused { instance, is_paused } => match is_paused {
            true => format!("instance {instance} paused"),
            false => format!("instance {instance} resumed"),
        },
        What::Prioritized { instance, priority } => {
            format!("instance {instance} has priority {priority}")
        }
        What::Provisioned { queue, text } => format!("queue {queue}: {text}"),
        What::Missing { events } => {
            format!("{} missing: the disk was full, or too slow", counted(*events, "event"))
        }
    }
}

fn tasks(Run { instance, first, count }: &Run) -> String {
    match count {
        1 => format!("task {instance}/{first}"),
        _ => format!("tasks {instance}/{first}-{}", first.0 + (count - 1)),
    }
}

fn waits_words(waits: &Waits) -> String {
    let shown = |before: &falkon_core::events::Before| {
        let (first, by) = (before.first.0, if before.moves { waits.run.count - 1 } else { 0 });
        match before.count.saturating_add(by) {
            1 => first.to_string(),
            more => format!("{first}-{}", first.saturating_add(more - 1)),
        }
    };
    format!("{} after {}", tasks(&waits.run), some(&waits.before, shown))
}

fn uses_words(uses: &Uses) -> String {
    let list = |verb: &str, objects: &[Arc<NamedObject>]| match objects {
        [] => String::new(),
        _ => format!(" {verb} {}", some(objects, |object| object.url.to_string())),
    };
    let read = list("read", &uses.inputs);
    let both = if read.is_empty() || uses.outputs.is_empty() { "" } else { " and" };
    format!("{}{read}{both}{}", tasks(&uses.run), list("write", &uses.outputs))
}

fn reserves_words(reserves: &Reserves) -> String {
    let verb = if reserves.run.count == 1 { "reserves" } else { "reserve" };
    let on = match reserves.nodes {
        1 => String::new(),
        nodes => format!(" on each of {nodes} nodes"),
    };
    format!("{} {verb} {}{on}", tasks(&reserves.run), reserves.resources)
}

/// The first items of a list, and how many more there are.
fn some<T>(items: &[T], shown: impl Fn(&T) -> String) -> String {
    let named: Vec<String> = items.iter().take(NAMED_MAX).map(shown).collect();
    match items.len().saturating_sub(NAMED_MAX) {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

fn named(executor: ExecutorId, names: &Names) -> String {
    match names.executor(executor) {
        Some(name) => format!("executor {} ({name})", executor.0),
        None => format!("executor {}", executor.0),
    }
}

fn ended_words(ended: &Ended, names: &Names) -> String {
    let mut text = format!("{} {}", tasks(&ended.run), outcome_words(ended.outcome));
    if let Some(executor) = ended.executor {
        let seconds = ended.run_micros() as f64 / 1e6;
        text.push_str(&format!(" after {seconds:.3} s on {}", named(executor, names)));
    }
    if let Some(error) = &ended.error {
        text.push_str(&format!(": {error}"));
    }
    text
}

pub(crate) fn outcome_words(outcome: Outcome) -> String {
    match outcome {
        Outcome::Exit(0) => "done".to_owned(),
        Outcome::Exit(code) => format!("failed with status {code}"),
        Outcome::Signal(signal) => format!("failed by signal {signal}"),
        Outcome::TimedOut => "timed out".to_owned(),
        Outcome::NotRun => "could not be started".to_owned(),
        Outcome::NoOutput => "wrote no output".to_owned(),
        Outcome::NoInput => "had no input".to_owned(),
        Outcome::Lost => "lost".to_owned(),
        Outcome::UpstreamFailed(task) => format!("not run: task {task} failed"),
        Outcome::Unschedulable => "not run: no executor offers what it needs".to_owned(),
        Outcome::Cancelled => "cancelled".to_owned(),
        Outcome::Unreadable => "ended, and how is lost".to_owned(),
    }
}
