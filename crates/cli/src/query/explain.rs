//! `falkon explain`: why tasks wait, or how they ended; why slots are idle.

mod idle;

use super::show::{counted, print, printable};
use super::{What, named_instance, named_task, with_client};
use crate::access::AccessArgs;
use crate::exit::Exit;
use crate::progress::span;
use crate::results::TaskResult;
use clap::Args;
use falkon_core::dispatch::{Explained, Obstacle, Offering};
use falkon_core::result::Detail;
use falkon_core::task::{InstanceId, MILLI, TaskId};
use falkon_net::client::{Client, ClientError};
use falkon_wire::message::TaskInfo;
use serde_json::{Value, json};

/// `falkon explain`
#[derive(Args, Debug)]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    access: AccessArgs,
    /// The instance, by its number or name, or one of its tasks [default: executors, and why
    /// their slots are idle]
    #[arg(value_name = "INSTANCE[/TASK]")]
    what: Option<What>,
    /// Print JSON: a line for the task, for each kind of tasks that wait, or for each reason of
    /// idle slots
    #[arg(long)]
    json: bool,
}

pub(crate) fn explain(args: ExplainArgs) -> Exit {
    let number = args.what.as_ref().and_then(|what| what.instance.parse().ok());
    with_client(&args.access, number, async |client: Client| {
        let Some(what) = &args.what else {
            return Ok(idle::explain(&client.explain_idle().await?, args.json));
        };
        let instance = match named_instance(&client, &what.instance).await? {
            Ok(instance) => instance,
            Err(exit) => return Ok(exit),
        };
        let task = match &what.task {
            None => None,
            Some(task) => match named_task(&client, instance, task).await? {
                Ok(number) => Some(number),
                Err(exit) => return Ok(exit),
            },
        };
        let text = match task {
            Some(task) => explain_task(&client, instance, task, args.json).await?,
            None => explain_instance(&client, instance, args.json).await?,
        };
        Ok(match text {
            Some(text) => print(&text).unwrap_or(Exit::Success),
            None => Exit::usage(match task {
                Some(task) => format!("there is no task {task} of instance {instance}"),
                None => format!("there is no instance {instance}"),
            }),
        })
    })
}

/// The text about one task; `None` if it is not there.
pub(crate) async fn explain_task(
    client: &Client,
    instance: InstanceId,
    task: u64,
    as_json: bool,
) -> Result<Option<String>, ClientError> {
    // Why it waits comes first: a task that has begun since is explained by its state.
    let explained = client.explain(instance, Some(TaskId(task))).await?;
    let found = client.tasks(instance, TaskId(task), 1).await?;
    let Some(info) = found.into_iter().find(|info| info.task.0 == task) else { return Ok(None) };
    let waits = matches!(info.state.as_str(), "waiting" | "ready");
    let obstacles = explained.into_iter().filter(|_| waits).flat_map(|one| one.obstacles);
    let obstacles: Vec<Obstacle> = obstacles.collect();
    if as_json {
        return Ok(Some(format!("{}\n", task_json(instance, &info, &obstacles))));
    }
    Ok(Some(task_text(instance, &info, &obstacles)))
}

/// The text about what waits of an instance; `None` if it is not there.
pub(crate) async fn explain_instance(
    client: &Client,
    instance: InstanceId,
    as_json: bool,
) -> Result<Option<String>, ClientError> {
    let explained = client.explain(instance, None).await?;
    let status = client.status(Some(instance)).await?;
    let Some(found) = status.instances.first() else { return Ok(None) };
    if as_json {
        let lines = explained.iter().map(|one| format!("{}\n", explained_json(instance, one)));
        return Ok(Some(lines.collect()));
    }
    let counts = &found.counts;
    let mut text = format!(
        "instance {instance}: {}, of which {} waiting, {} ready, {} with executors, {} ended\n",
        counted(counts.total, "task"),
        counts.waiting,
        counts.ready,
        counts.dispatched,
        counts.done + counts.failed + counts.cancelled,
    );
    for one in &explained {
        text.push('\n');
        text.push_str(&group_text(instance, one));
    }
    if explained.is_empty() && counts.total > 0 {
        text.push_str("no task waits\n");
    }
    Ok(Some(text))
}

/// Tasks that wait for the same, and for what.
pub(crate) fn group_text(instance: InstanceId, one: &Explained) -> String {
    let Explained { task, count, obstacles } = one;
    let head = match count {
        1 => format!("task {instance}/{task} waits:\n"),
        _ => format!("{count} tasks wait; the first of them, {instance}/{task}:\n"),
    };
    head + &lines(obstacles)
}

fn lines(obstacles: &[Obstacle]) -> String {
    if obstacles.is_empty() {
        return "  nothing is in its way: it is sent at the next opportunity\n".to_owned();
    }
    obstacles.iter().map(|obstacle| format!("  {}\n", sentence(obstacle))).collect()
}

fn task_text(instance: InstanceId, info: &TaskInfo, obstacles: &[Obstacle]) -> String {
    let task = format!("task {instance}/{}", info.task);
    let executor = printable(info.executor.as_deref().unwrap_or("an executor"));
    match info.state.as_str() {
        "waiting" => format!("{task} waits for other tasks\n{}", lines(obstacles)),
        "ready" => format!("{task} is ready, and waits for an executor\n{}", lines(obstacles)),
        "sent" => format!(
            "{task} was sent ahead to {executor}, and starts when a task before it there ends\n"
        ),
        "running" => format!("{task} runs on {executor}\n"),
        "staged" => {
            format!("{task} has ended; {executor} is to write its outputs into archives\n")
        }
        state => {
            let Some(end) = &info.end else {
                return format!("{task} is {state}; its result is not in memory any more\n");
            };
            let result = TaskResult::of(end, info.task.0, end.ended);
            let error = result.error().map(|error| format!(": {}", printable(&error)));
            let ran = end.attempts > 0 && info.executor.is_some();
            let ran = match ran {
                true => format!(
                    "  it ran on {executor} for {}, in attempt {}\n",
                    span(end.ended.since(end.started) as f64 / 1e6),
                    end.attempts
                ),
                false => "  it did not run\n".to_owned(),
            };
            let given = end.detail.as_deref().and_then(given).unwrap_or_default();
            format!("{task} is {state}{}\n{ran}{given}", error.unwrap_or_default())
        }
    }
}

/// The resources that executors found a task to need, and gave it.
fn given(detail: &Detail) -> Option<String> {
    let (milli, bytes) = (detail.given_cpus_milli, detail.given_memory_bytes);
    let cpus = (milli > 0).then(|| counted(u64::from(milli / MILLI), "CPU"));
    let memory = (bytes > 0).then(|| format!("{} MiB of memory", bytes.div_ceil(1 << 20)));
    let given: Vec<String> = cpus.into_iter().chain(memory).collect();
    (!given.is_empty()).then(|| format!("  with auto, it was given {}\n", given.join(" and ")))
}

/// An obstacle in words.
fn sentence(obstacle: &Obstacle) -> String {
    match obstacle {
        Obstacle::Tasks { some, count } => {
            let verb = if *count == 1 { "has" } else { "have" };
            let names: Vec<String> = some.iter().map(ToString::to_string).collect();
            format!(
                "{} that it runs after {verb} not ended: {}",
                counted(*count, "task"),
                named(&names, *count)
            )
        }
        Obstacle::Restart { micros, executors } => format!(
            "the dispatcher was restarted, and waits {} at most for {} that it knew",
            span(*micros as f64 / 1e6),
            counted(*executors, "executor")
        ),
        Obstacle::Storage => "the dispatcher has no room on its disk: free some, or receive or \
                              destroy results"
            .to_owned(),
        Obstacle::Paused => "its instance is paused: `falkon resume` lets it go on".to_owned(),
        Obstacle::Results { bytes } => format!(
            "{bytes} bytes of results of this instance have not been received: `falkon results` \
             receives them"
        ),
        Obstacle::NoExecutor { away: 0 } => {
            "no executor is connected: start one with `falkon executor`".to_owned()
        }
        Obstacle::NoExecutor { away } => {
            format!("no executor is connected; {} may come back", counted(*away, "executor"))
        }
        Obstacle::Unoffered { need, cache, executors } => format!(
            "it needs {need}{}: none of {} offers that",
            if *cache { " and a cache" } else { "" },
            counted(*executors, "executor")
        ),
        Obstacle::Taken(offering) => {
            let head = match offering.executors {
                1 => "the one executor that offers what it needs".to_owned(),
                many => format!("none of the {many} executors that offer what it needs"),
            };
            let takes = if offering.executors == 1 { "cannot take it" } else { "can take it" };
            format!("{head} {takes}: {}", taken(offering))
        }
        Obstacle::Own { executor, connected } => {
            let executor = printable(executor);
            match connected {
                true => format!("it is for {executor} alone, and waits for room there"),
                false => format!("it is for {executor} alone, which is not connected"),
            }
        }
        Obstacle::Nodes { nodes, need, offering, executors } => format!(
            "it runs on {nodes} nodes together, of {executors} that there are {offering} offer what \
             it needs on each ({need}), and those below relays do not count: start more executors, \
             or ask for fewer nodes"
        ),
        Obstacle::FewFree { nodes, free, kept, begins_micros } => {
            let when = match (kept, begins_micros) {
                (true, Some(micros)) => {
                    let seconds = *micros as f64 / 1e6;
                    format!("; room is kept for it, and is expected in {seconds:.0} s")
                }
                (true, None) => "; room is kept for it as it comes free".to_owned(),
                (false, _) => String::new(),
            };
            format!("it waits until {nodes} nodes are free together, and {free} are{when}")
        }
        Obstacle::Emptied { executor } => {
            format!("{} takes nothing else until it has room for it", printable(executor))
        }
        Obstacle::Data { holders, some } => {
            let names: Vec<String> = some.iter().map(|name| printable(name)).collect();
            format!(
                "its inputs are in {}, which {} no room, and its policy waits for that: {}",
                match holders {
                    1 => "the cache of an executor".to_owned(),
                    many => format!("the caches of {many} executors"),
                },
                if *holders == 1 { "has" } else { "have" },
                named(&names, *holders)
            )
        }
        Obstacle::Behind { higher: 0, earlier } => {
            format!("{} of this instance became ready before it", counted(*earlier, "task"))
        }
        Obstacle::Behind { higher, earlier: 0 } => {
            format!("{} of this instance with a higher priority", counted(*higher, "ready task"))
        }
        Obstacle::Behind { higher, earlier } => format!(
            "{} of this instance with a higher priority, and {earlier} that became ready before it",
            counted(*higher, "ready task")
        ),
        Obstacle::Turn { some, count } => {
            let names: Vec<String> = some.iter().map(ToString::to_string).collect();
            let verb = if *count == 1 { "has" } else { "have" };
            format!(
                "{} {verb} received less than this one, or more priority, and {} first: {}",
                counted(*count, "instance"),
                if *count == 1 { "goes" } else { "go" },
                named(&names, *count)
            )
        }
        Obstacle::Quota { used_milli, most_milli } => format!(
            "tasks of its user use {} CPUs, and may use {}",
            *used_milli as f64 / 1e3,
            *most_milli as f64 / 1e3
        ),
    }
}

/// Why executors take nothing, those first that are most.
fn taken(offering: &Offering) -> String {
    let Offering { away, leaving, suspended, drained, short, emptied, full, .. } = *offering;
    let mut kinds = [
        (full, "full"),
        (away, "not connected"),
        (leaving, "about to leave"),
        (suspended, "suspended, because tasks could not start there"),
        (drained, "drained"),
        (short, "to leave before it would end"),
        (emptied, "emptied for a task that needs more"),
    ];
    kinds.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    let kinds = kinds.into_iter().filter(|(count, _)| *count > 0);
    let kinds: Vec<String> = kinds
        .map(|(count, what)| match offering.executors {
            1 => format!("it is {what}"),
            _ => format!("{count} {} {what}", if count == 1 { "is" } else { "are" }),
        })
        .collect();
    kinds.join(", ")
}

/// Names, and that there are more of them.
fn named(some: &[String], count: u64) -> String {
    let more = count.saturating_sub(some.len() as u64);
    match more {
        0 => some.join(", "),
        more => format!("{} and {more} more", some.join(", ")),
    }
}

fn explained_json(instance: InstanceId, one: &Explained) -> Value {
    json!({
        "instance": instance.0,
        "index": one.task.0,
        "count": one.count,
        "obstacles": obstacles_json(&one.obstacles),
    })
}

fn task_json(instance: InstanceId, info: &TaskInfo, obstacles: &[Obstacle]) -> Value {
    let mut line = super::show::task_json(info);
    line["instance"] = json!(instance.0);
    line["obstacles"] = obstacles_json(obstacles);
    line
}

fn obstacles_json(obstacles: &[Obstacle]) -> Value {
    let all = obstacles.iter().map(|obstacle| {
        let mut fields = obstacle_json(obstacle);
        fields["text"] = json!(sentence(obstacle));
        fields
    });
    all.collect()
}

fn obstacle_json(obstacle: &Obstacle) -> Value {
    match obstacle {
        Obstacle::Tasks { some, count } => {
            let some: Vec<u64> = some.iter().map(|task| task.0).collect();
            json!({"kind": "tasks", "some": some, "count": count})
        }
        Obstacle::Restart { micros, executors } => {
            json!({"kind": "restart", "seconds": *micros as f64 / 1e6, "executors": executors})
        }
        Obstacle::Storage => json!({"kind": "storage"}),
        Obstacle::Paused => json!({"kind": "paused"}),
        Obstacle::Results { bytes } => json!({"kind": "results", "bytes": bytes}),
        Obstacle::NoExecutor { away } => json!({"kind": "no_executor", "away": away}),
        Obstacle::Unoffered { need, cache, executors } => json!({
            "kind": "unoffered",
            "need": super::show::resources_json(need),
            "cache": cache,
            "executors": executors,
        }),
        Obstacle::Taken(offering) => json!({
            "kind": "taken",
            "executors": offering.executors,
            "full": offering.full,
            "away": offering.away,
            "leaving": offering.leaving,
            "suspended": offering.suspended,
            "drained": offering.drained,
            "short": offering.short,
            "emptied": offering.emptied,
        }),
        Obstacle::Own { executor, connected } => {
            json!({"kind": "own", "executor": executor, "connected": connected})
        }
        Obstacle::Nodes { nodes, need, offering, executors } => json!({
            "kind": "nodes",
            "nodes": nodes,
            "need": need.to_string(),
            "offering": offering,
            "executors": executors,
        }),
        Obstacle::FewFree { nodes, free, kept, begins_micros } => json!({
            "kind": "few_free",
            "nodes": nodes,
            "free": free,
            "kept": kept,
            "begins_in": begins_micros.map(|micros| micros as f64 / 1e6),
        }),
        Obstacle::Emptied { executor } => json!({"kind": "emptied", "executor": executor}),
        Obstacle::Data { holders, some } => {
            json!({"kind": "data", "holders": holders, "some": some})
        }
        Obstacle::Behind { higher, earlier } => {
            json!({"kind": "behind", "higher": higher, "earlier": earlier})
        }
        Obstacle::Turn { some, count } => {
            let some: Vec<u64> = some.iter().map(|instance| instance.0).collect();
            json!({"kind": "turn", "some": some, "count": count})
        }
        Obstacle::Quota { used_milli, most_milli } => json!({
            "kind": "quota",
            "cpus": *used_milli as f64 / 1e3,
            "cpus_max": *most_milli as f64 / 1e3,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executors_that_take_nothing_are_told_apart() {
        let offering = Offering { executors: 4, full: 1, away: 3, ..Offering::default() };
        assert_eq!(
            sentence(&Obstacle::Taken(offering)),
            "none of the 4 executors that offer what it needs can take it: 3 are not connected, \
             1 is full"
        );
        let offering = Offering { executors: 1, full: 1, ..Offering::default() };
        assert_eq!(
            sentence(&Obstacle::Taken(offering)),
            "the one executor that offers what it needs cannot take it: it is full"
        );
    }
}
