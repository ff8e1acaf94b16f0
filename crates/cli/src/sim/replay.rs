//! `falkon replay`: a run that took place, through the simulator on another machine.
//!
//! The record gives the tasks with their arrivals, run times and ends, and the executors.
//! What dispatches them is the core, as in every simulation; the costs of messages and of
//! starts are those that scenarios have by default.

mod record;

use super::costs::{ClientFields, DispatcherFields, ExecutorFields};
use crate::access::AccessArgs;
use crate::amount::shown;
use crate::events::source::{Source, SourceError};
use crate::exit::{Exit, runtime};
use crate::plan::quantity::duration_micros;
use crate::query::print;
use clap::Args;
use falkon_sim::{
    Arrivals, ClientCosts, Durations, Faults, Figures, Nanos, Network, NodeGroup, PolicyName,
    PolicyOptions, Scenario, SimError, Store, TaskKind, Workload, run,
};
use record::{Record, Run, Unknown};
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::Path;

/// Links, and the way between two machines: as scenarios have by default.
const LINK_BYTES_PER_S: f64 = 125e6;
const LATENCY: Nanos = Nanos(100_000);
/// Replays draw nothing.
const SEED: u64 = 1;
/// The share by which a replay without a change may differ from its record before a
/// warning.
const DEVIATION_MAX: f64 = 0.05;
/// Nanoseconds for each task beside its run time, and for a run, after which it has failed.
const TASK_LIMIT_NANOS: u64 = 100_000_000;
const RUN_LIMIT_NANOS: u64 = 86_400_000_000_000;

/// `falkon replay`
#[derive(Args, Debug)]
pub(crate) struct ReplayArgs {
    #[command(flatten)]
    access: AccessArgs,
    /// A directory that falkon run --out or falkon start --dir wrote, or an instance of the
    /// running dispatcher, by its number or name
    #[arg(value_name = "DIR|INSTANCE")]
    what: String,
    /// Of a directory, this instance, by its number or name [default: the only one]
    #[arg(long, short, value_name = "INSTANCE")]
    instance: Option<String>,
    /// So many executors, which are there from the beginning to the end [default: those of the
    /// record, as they came and went]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    executors: Option<u64>,
    /// Slots of each executor [default: as in the record]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    slots: Option<u32>,
    /// The fewest executors with which the run takes no longer than this (90m, 2h), in place of
    /// --executors
    #[arg(long, value_name = "TIME", conflicts_with = "executors", value_parser = duration_micros)]
    deadline: Option<u64>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Why a run is not replayed.
#[derive(Debug, thiserror::Error)]
enum ReplayError {
    /// Executors differ, so those of another number could be like any of them.
    #[error(
        "the recorded executors have from {least} to {most} slots: say with --slots how many \
         others have"
    )]
    Slots { least: u32, most: u32 },
    /// No number of executors is enough.
    #[error(
        "no number of executors makes it in {deadline_s} s: with {executors}, which are a slot for \
         each task, the run takes {makespan_s:.3} s"
    )]
    Deadline { deadline_s: f64, executors: u64, makespan_s: f64 },
    /// Some tasks find no executor.
    #[error(
        "in the replay {delivered} of {tasks} tasks ended before no executor was left that could \
         run the others"
    )]
    Unfinished { delivered: u64, tasks: u64 },
    /// The simulator refuses it, or is at fault.
    #[error(transparent)]
    Sim(SimError),
}

/// Runs the command.
pub(crate) fn replay(args: ReplayArgs) -> Exit {
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(exit) => return exit,
    };
    let directory = Some(Path::new(&args.what)).filter(|path| path.is_dir());
    if directory.is_none() && args.instance.is_some() {
        return Exit::usage("--instance is for a directory: name the instance alone");
    }
    let mut source = match Source::of(directory, &args.access, &runtime) {
        Ok(source) => source,
        Err(exit) => return exit,
    };
    let wanted = if directory.is_some() { args.instance.clone() } else { Some(args.what.clone()) };
    let mut record = Record::new(wanted);
    loop {
        let block = match runtime.block_on(source.next()) {
            Ok(Some(block)) => block,
            Ok(None) => break,
            Err(error) => return error.exit(),
        };
        if !block.each(|event| record.add(&event, block.repeats)) {
            return SourceError::Unknown.exit();
        }
    }
    let recorded = match record.run() {
        Ok(recorded) => recorded,
        Err(error) => return Exit::usage(error),
    };
    let executors = match args.deadline.map(|micros| micros as f64 / 1e6) {
        Some(deadline_s) => fewest(&recorded, args.slots, deadline_s).map(Some),
        None => Ok(args.executors),
    };
    match executors.and_then(|executors| compare(&recorded, executors, args.slots)) {
        Ok(compared) if args.json => print(&compared.json()).unwrap_or(Exit::Success),
        Ok(compared) => print(&compared.text()).unwrap_or(Exit::Success),
        Err(ReplayError::Sim(error @ SimError::Broken { .. })) => Exit::failure(error),
        Err(error) => Exit::usage(error),
    }
}

/// What a run was measured by, recorded or simulated.
#[derive(Debug, Clone, PartialEq)]
struct Measures {
    executors: u64,
    slots: u64,
    done: u64,
    failed: u64,
    makespan_s: f64,
    /// The time that the tasks alone take on these slots, over the makespan.
    efficiency: f64,
    /// Slots, each for as long as it was there.
    slot_s: f64,
    /// The share of that in which tasks ran.
    utilization: f64,
}

/// A row of the table: its name, and the measure that it shows.
type Row = (&'static str, fn(&Measures) -> f64);

/// A record beside its replays.
#[derive(Debug)]
struct Compared {
    name: String,
    recorded: Measures,
    replayed: Measures,
    changed: Option<Measures>,
    notes: Vec<String>,
}

fn compare(
    record: &Run,
    executors: Option<u64>,
    slots: Option<u32>,
) -> Result<Compared, ReplayError> {
    let machine = changed(&record.executors, executors, slots)?;
    let (figures, replayed) = simulate(record, &record.executors)?;
    let efficiency = match record.makespan_s {
        makespan if makespan > 0.0 => (figures.ideal.seconds() / makespan).min(1.0),
        _ => 1.0,
    };
    let recorded = Measures {
        done: record.done,
        failed: record.failed,
        efficiency,
        ..measures(record, &record.executors, record.makespan_s)
    };
    let changed = match machine {
        Some(machine) => Some(simulate(record, &machine)?.1),
        None => None,
    };
    let notes = notes(record, &recorded, &replayed);
    Ok(Compared { name: record.name.clone(), recorded, replayed, changed, notes })
}

/// The fewest executors with which a run takes no longer than a time, by bisection over replays.
fn fewest(record: &Run, slots: Option<u32>, deadline_s: f64) -> Result<u64, ReplayError> {
    let slots = slots_of_others(&record.executors, slots)?;
    let takes = |executors| {
        let machine = [group(executors, slots, Nanos(0), None)];
        simulate(record, &machine).map(|(_, measures)| measures.makespan_s)
    };
    // With a slot for each task, more make no difference; and each slot has its share of work.
    let most = record.tasks.tasks().div_ceil(u64::from(slots)).max(1);
    let least = record.tasks.work_s() / (deadline_s * f64::from(slots));
    let mut short = (least as u64).min(most - 1);
    let mut enough = short + 1;
    loop {
        let makespan_s = takes(enough)?;
        if makespan_s <= deadline_s {
            break;
        }
        if enough == most {
            return Err(ReplayError::Deadline { deadline_s, executors: most, makespan_s });
        }
        (short, enough) = (enough, enough.saturating_mul(2).min(most));
    }
    // So many are too few, or cannot be enough.
    while enough - short > 1 {
        let middle = short + (enough - short) / 2;
        if takes(middle)? <= deadline_s {
            enough = middle;
        } else {
            short = middle;
        }
    }
    Ok(enough)
}

/// The machine with what is to be different; `None` if nothing is.
fn changed(
    recorded: &[NodeGroup],
    executors: Option<u64>,
    slots: Option<u32>,
) -> Result<Option<Vec<NodeGroup>>, ReplayError> {
    let Some(executors) = executors else {
        let with = |slots| recorded.iter().map(|one| NodeGroup { slots, ..*one }).collect();
        return Ok(slots.map(with));
    };
    let slots = slots_of_others(recorded, slots)?;
    Ok(Some(vec![group(executors, slots, Nanos(0), None)]))
}

/// How many slots executors have that take the place of the recorded ones.
fn slots_of_others(recorded: &[NodeGroup], slots: Option<u32>) -> Result<u32, ReplayError> {
    let of_record = || recorded.iter().map(|one| one.slots);
    let (least, most) = (of_record().min().unwrap_or(1), of_record().max().unwrap_or(1));
    match slots {
        Some(slots) => Ok(slots),
        None if least == most => Ok(most),
        None => Err(ReplayError::Slots { least, most }),
    }
}

/// Executors that are alike.
fn group(count: u64, slots: u32, from: Nanos, until: Option<Nanos>) -> NodeGroup {
    NodeGroup { count, slots, speed: 1.0, from, until, idle_exit: None, cache: None, disk: None }
}

fn simulate(record: &Run, machine: &[NodeGroup]) -> Result<(Figures, Measures), ReplayError> {
    let figures = run(&scenario(record, machine), SEED).map_err(|error| match error {
        SimError::Unfinished(left) => {
            ReplayError::Unfinished { delivered: left.delivered, tasks: left.tasks }
        }
        error => ReplayError::Sim(error),
    })?;
    let measures = Measures {
        done: figures.done,
        failed: figures.failed,
        efficiency: figures.efficiency,
        ..measures(record, machine, figures.makespan.seconds())
    };
    Ok((figures, measures))
}

/// What follows from the machine and how long the run took; the rest is empty.
fn measures(record: &Run, machine: &[NodeGroup], makespan_s: f64) -> Measures {
    let first = record.tasks.first_arrival();
    let end = first.after(Nanos::from_seconds(makespan_s));
    let slots_of = |group: &NodeGroup| group.count * u64::from(group.slots);
    let there = |group: &NodeGroup| {
        let until = group.until.map_or(end, |until| until.min(end));
        until.since(group.from.max(first)).seconds() * slots_of(group) as f64
    };
    let slot_s: f64 = machine.iter().map(there).sum();
    let work_s = record.tasks.work_s();
    Measures {
        executors: machine.iter().map(|group| group.count).sum(),
        slots: machine.iter().map(slots_of).sum(),
        done: 0,
        failed: 0,
        makespan_s,
        efficiency: 0.0,
        slot_s,
        utilization: if slot_s > 0.0 { work_s / slot_s } else { 1.0 },
    }
}

fn scenario(record: &Run, machine: &[NodeGroup]) -> Scenario {
    let policy = PolicyName::FirstAvailable;
    let tasks = record.tasks.tasks();
    let work = Nanos::from_seconds(record.tasks.work_s());
    let spare = Nanos(tasks.saturating_mul(TASK_LIMIT_NANOS).saturating_add(RUN_LIMIT_NANOS));
    let recorded = Nanos::from_seconds(record.makespan_s);
    Scenario {
        name: record.name.clone(),
        dispatchers: 1,
        dispatcher: DispatcherFields::default().costs(policy, 0),
        results_bytes: None,
        executor: ExecutorFields::default().costs(),
        // What was accepted at one time came together, and nothing else did.
        client: ClientCosts { bundle: Nanos(0), ..ClientFields::default().costs() },
        network: Network {
            latency: LATENCY,
            node_bytes_per_s: LINK_BYTES_PER_S,
            dispatcher_bytes_per_s: LINK_BYTES_PER_S,
        },
        relays: None,
        nodes: machine.to_vec(),
        store: Store { bytes_per_s: LINK_BYTES_PER_S, operation: Nanos(0), operations_per_s: None },
        provision: None,
        workload: Workload {
            tasks,
            kind: record.kind,
            run: Durations::Fixed(record.tasks.mean()),
            from: record.tasks.first_arrival(),
            arrivals: Arrivals::AtOnce,
            stages: Vec::new(),
            recorded: Some(record.tasks.clone()),
            inputs: None,
            outputs: None,
            policy: PolicyOptions { policy, ..PolicyOptions::default() },
            retries: 0,
            replicas: 1,
            estimates: false,
        },
        earlier_runs: 0,
        faults: Faults::default(),
        check_all: false,
        limit: recorded.after(work).after(spare),
    }
}

/// What a reader has to know: how far the replay can be trusted, and what it leaves out.
fn notes(record: &Run, recorded: &Measures, replayed: &Measures) -> Vec<String> {
    let Unknown { unstarted, lost_tries, staging_micros, bytes } = record.unknown;
    let mut notes = Vec::new();
    let off = deviation(recorded, replayed);
    if off.abs() > DEVIATION_MAX {
        let (than, why) = match off < 0.0 {
            true => ("less", "something that the record does not have took time"),
            false => ("more", "messages and starts cost less there than the simulator takes"),
        };
        notes.push(format!(
            "on the recorded machine the replay takes {:.0} % {than} than the run did: {why}, so \
             trust no replay of it",
            off.abs() * 100.0,
        ));
    }
    notes.push(
        "events do not have which tasks wait for which: each is ready when it is submitted"
            .to_owned(),
    );
    if record.kind != TaskKind::Noop {
        notes.push("events do not have what tasks reserve: each takes one slot".to_owned());
    }
    let all = bytes.0.saturating_add(bytes.1).saturating_add(bytes.2);
    if staging_micros > 0 || all > 0 {
        notes.push(format!(
            "tasks waited {} s for inputs in all, of which {} bytes were in their executors' \
             caches, {} came from others and {} from stores; events do not have which objects \
             these were, so the replay reads nothing",
            shown(staging_micros as f64 / 1e6),
            shown(bytes.0 as f64),
            shown(bytes.1 as f64),
            shown(bytes.2 as f64)
        ));
    }
    if lost_tries > 0 {
        notes.push(format!(
            "{} tries of tasks came to nothing and were repeated: the replay has the last ones only",
            shown(lost_tries as f64)
        ));
    }
    if unstarted > 0 {
        notes.push(format!(
            "{} tasks never ran and are left out: they were cancelled, or could not run",
            shown(unstarted as f64)
        ));
    }
    notes
}

/// By how much of the record's makespan a replay is longer.
fn deviation(recorded: &Measures, replayed: &Measures) -> f64 {
    if recorded.makespan_s > 0.0 { replayed.makespan_s / recorded.makespan_s - 1.0 } else { 0.0 }
}

impl Compared {
    /// For people: a column for the record and each replay.
    fn text(&self) -> String {
        let columns: Vec<&Measures> =
            [&self.recorded, &self.replayed].into_iter().chain(&self.changed).collect();
        let mut out = String::new();
        let mut line = |name: &str, cells: Vec<String>| {
            let cells: String = cells.iter().map(|cell| format!(" {cell:>14}")).collect();
            // Writing to a string cannot fail.
            let _ = writeln!(out, "{name:<18}{cells}");
        };
        let heads = ["recorded", "replayed", "changed"];
        let name = format!("run {}", self.name);
        line(&name, heads.iter().take(columns.len()).map(ToString::to_string).collect());
        let rows: [Row; 8] = [
            ("executors", |one| one.executors as f64),
            ("slots", |one| one.slots as f64),
            ("tasks done", |one| one.done as f64),
            ("tasks failed", |one| one.failed as f64),
            ("makespan, s", |one| one.makespan_s),
            ("efficiency, %", |one| one.efficiency * 100.0),
            ("slot seconds", |one| one.slot_s),
            ("utilization, %", |one| one.utilization * 100.0),
        ];
        for (name, value) in rows {
            line(name, columns.iter().map(|one| shown(value(one))).collect());
        }
        for note in &self.notes {
            let _ = writeln!(out, "- {note}");
        }
        out
    }

    /// For programs: one line.
    fn json(&self) -> String {
        let of = |one: &Measures| -> Value {
            json!({
                "executors": one.executors,
                "slots": one.slots,
                "done": one.done,
                "failed": one.failed,
                "makespan_s": one.makespan_s,
                "efficiency": one.efficiency,
                "slot_s": one.slot_s,
                "utilization": one.utilization,
            })
        };
        let all = json!({
            "run": self.name,
            "recorded": of(&self.recorded),
            "replayed": of(&self.replayed),
            "changed": self.changed.as_ref().map(of),
            "deviation": deviation(&self.recorded, &self.replayed),
            "notes": self.notes,
        });
        format!("{all}\n")
    }
}
