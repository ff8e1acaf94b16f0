//! Why slots of executors are idle.

use super::counted;
use crate::exit::Exit;
use crate::query::{print, printable};
use falkon_core::dispatch::{Idle, IdleReason};
use falkon_core::task::MILLI;
use serde_json::json;

/// Prints a line for each reason.
pub(super) fn explain(idle: &[Idle], as_json: bool) -> Exit {
    let mut text: String = match as_json {
        true => idle.iter().map(|one| json_line(one) + "\n").collect(),
        false => idle.iter().map(|one| sentence(one) + "\n").collect(),
    };
    if idle.is_empty() && !as_json {
        text.push_str("no slot is idle\n");
    }
    print(&text).unwrap_or(Exit::Success)
}

fn json_line(idle: &Idle) -> String {
    let Idle { reason, tasks, executors, cpus_milli, some } = idle;
    json!({
        "reason": word(*reason),
        "tasks": tasks,
        "executors": executors,
        "cpus": *cpus_milli as f64 / f64::from(MILLI),
        "some": some,
    })
    .to_string()
}

/// The name of a reason, for programs.
fn word(reason: IdleReason) -> &'static str {
    match reason {
        IdleReason::Away => "away",
        IdleReason::Leaving => "leaving",
        IdleReason::Drained => "drained",
        IdleReason::Suspended => "suspended",
        IdleReason::Emptied => "emptied",
        IdleReason::Kept => "kept",
        IdleReason::Soon => "soon",
        IdleReason::Data => "data",
        IdleReason::Held => "held",
        IdleReason::Larger => "larger",
        IdleReason::Short => "short",
        IdleReason::Unoffered => "unoffered",
        IdleReason::Upstream => "upstream",
        IdleReason::NoTasks => "no_tasks",
    }
}

fn sentence(idle: &Idle) -> String {
    let Idle { reason, tasks, executors, cpus_milli, some } = idle;
    let tasks = counted(*tasks, "ready task");
    let why = match reason {
        IdleReason::Away => "they are not connected, or silent".to_owned(),
        IdleReason::Leaving => "they are about to leave".to_owned(),
        IdleReason::Drained => "they are drained: falkon undrain gives them tasks again".to_owned(),
        IdleReason::Suspended => {
            "they could not start their tasks, and are left alone for a while".to_owned()
        }
        IdleReason::Emptied => {
            "they are emptied for a task that needs more room than is free".to_owned()
        }
        IdleReason::Kept => {
            "they are reserved for a task that runs on several nodes together, and begins when \
             enough of them are free"
                .to_owned()
        }
        IdleReason::Soon => {
            format!("{tasks} can run there: they are sent at the next opportunity")
        }
        IdleReason::Data => format!("{tasks} could run there, and wait for where their inputs are"),
        IdleReason::Held => {
            format!("{tasks} could run there and are held up: falkon explain INSTANCE says by what")
        }
        IdleReason::Larger => format!("{tasks} could run there, and more must be free for them"),
        IdleReason::Short => {
            format!("{tasks} could run there, and are expected to last longer than they stay")
        }
        IdleReason::Unoffered => format!("what is needed by {tasks} is not offered there"),
        IdleReason::Upstream => {
            format!("no task is ready: {} for others", waits(idle.tasks))
        }
        IdleReason::NoTasks => "no task waits".to_owned(),
    };
    let cpus = *cpus_milli as f64 / f64::from(MILLI);
    let mut names: Vec<String> = some.iter().map(|name| printable(name)).collect();
    if *executors > some.len() as u64 {
        names.push("…".to_owned());
    }
    let executors = counted(*executors, "executor");
    format!("{cpus} processors free on {executors} ({}): {why}", names.join(", "))
}

fn waits(tasks: u64) -> String {
    match tasks {
        1 => "1 task waits".to_owned(),
        _ => format!("{tasks} tasks wait"),
    }
}
