//! `falkon replay`: a run that took place, through the simulator on another machine.
//!
//! The record gives the tasks with their arrivals, run times and ends, and the executors.
//! What dispatches them is the core, as in every simulation; the costs of messages and of
//! starts are those that scenarios have by default.

mod change;
mod record;

use super::costs::{ClientFields, DispatcherFields, ExecutorFields};
use super::events::SimulatedEvents;
use super::{plan, provision};
use crate::access::AccessArgs;
use crate::amount::shown;
use crate::events::source::{Source, SourceError};
use crate::exit::{Exit, runtime};
use crate::plan::quantity::memory_bytes;
use crate::query::{counted, print};
pub(super) use change::Change;
use change::{Machine, slots_of_others};
use clap::Args;
use falkon_sim::{
    Act, Arrivals, ClientCosts, Durations, ExecutorCosts, Faults, Figures, Nanos, Network,
    NodeGroup, PolicyName, PolicyOptions, Scenario, SimError, Store, Workload, run_recorded,
};
use record::{Record, Run, Unknown};
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::{Path, PathBuf};

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
    /// Policy of dispatch, as with falkon run [default: as in the record]
    #[arg(long, value_name = "NAME", value_parser = PolicyName::named)]
    policy: Option<PolicyName>,
    /// The size of each executor's cache [default: as in the record]
    #[arg(long, value_name = "SIZE", value_parser = cache_bytes)]
    cache: Option<u64>,
    /// Acquire executors as the tables [provision] and [lrm] of this file say, which are those of
    /// scenarios; --executors is how many nodes the batch scheduler has [default: provision.max]
    #[arg(long, value_name = "FILE")]
    provision: Option<PathBuf>,
    /// Write the events of the replay to this directory, for falkon report and log: of that with
    /// changes, if there are any
    #[arg(long, value_name = "DIR")]
    events: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A cache's size in words.
pub(super) fn cache_bytes(text: &str) -> Result<u64, String> {
    match memory_bytes(text) {
        Ok(0) => Err("a cache has at least one byte".to_owned()),
        Ok(bytes) => Ok(bytes),
        Err(error) => Err(error.to_string()),
    }
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
    /// Policies and caches make no difference.
    #[error("no task of the run has data objects: {0} makes no difference, so leave it out")]
    NoObjects(&'static str),
    /// Tasks would not find their inputs.
    #[error(
        "tasks of the run read what others left in caches, of which the policy {policy} knows \
         nothing: choose another, such as max-compute-util",
        policy = PolicyName::FirstAvailable
    )]
    NoPlaces,
    /// Tasks reserve more than any executor has.
    #[error(
        "tasks of the run reserved {0}, and no executor of the replay has that: give them more \
         with --slots"
    )]
    Unfit(String),
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
    let change = Change {
        executors: args.executors,
        slots: args.slots,
        policy: args.policy,
        cache_bytes: args.cache,
        provision: match args.provision.as_deref().map(provision::read).transpose() {
            Ok(provision) => provision,
            Err(exit) => return exit,
        },
    };
    let record = match recorded(&args.what, args.instance.as_deref(), &args.access) {
        Ok(record) => record,
        Err(exit) => return exit,
    };
    if let Err(error) = change.check(&record) {
        return Exit::usage(error);
    }
    let events = match args.events.as_deref().map(SimulatedEvents::create).transpose() {
        Ok(events) => events,
        Err(exit) => return exit,
    };
    let exit = show(compare(&record, &change, events.as_ref()), args.json);
    match events.as_ref().map_or(Ok(()), SimulatedEvents::close) {
        Ok(()) => exit,
        Err(failed) => failed,
    }
}

/// The run in a directory or of an instance.
fn recorded(what: &str, instance: Option<&str>, access: &AccessArgs) -> Result<Run, Exit> {
    let runtime = runtime()?;
    let directory = Some(Path::new(what)).filter(|path| path.is_dir());
    if directory.is_none() && instance.is_some() {
        return Err(Exit::usage("--instance is for a directory: name the instance alone"));
    }
    let mut source = Source::of(directory, access, &runtime)?;
    let wanted = if directory.is_some() { instance } else { Some(what) };
    let mut record = Record::new(wanted.map(str::to_owned));
    loop {
        let block = match runtime.block_on(source.next()) {
            Ok(Some(block)) => block,
            Ok(None) => break,
            Err(error) => return Err(error.exit()),
        };
        if !block.each(|event| record.add(&event, block.repeats)) {
            return Err(SourceError::Unknown.exit());
        }
    }
    record.run().map_err(Exit::usage)
}

/// Prints a record beside its replays.
fn show(compared: Result<Compared, ReplayError>, json: bool) -> Exit {
    match compared {
        Ok(compared) if json => print(&compared.json()).unwrap_or(Exit::Success),
        Ok(compared) => print(&compared.text()).unwrap_or(Exit::Success),
        Err(ReplayError::Sim(error @ SimError::Broken { .. })) => Exit::failure(error),
        Err(error) => Exit::usage(error),
    }
}

/// Prints a record beside its replay on the fewest executors with which it takes no longer
/// than a time.
pub(super) fn smallest(
    (what, instance, access): (&str, Option<&str>, &AccessArgs),
    mut change: Change,
    deadline_s: f64,
    json: bool,
) -> Exit {
    let record = match recorded(what, instance, access) {
        Ok(record) => record,
        Err(exit) => return exit,
    };
    let planned = change.check(&record).and_then(|()| {
        change.executors = Some(fewest(&record, &change, deadline_s)?);
        compare(&record, &change, None)
    });
    show(planned, json)
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
    /// Bytes of inputs: from own caches, from other executors, from stores.
    bytes: (u64, u64, u64),
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
    change: &Change,
    events: Option<&SimulatedEvents>,
) -> Result<Compared, ReplayError> {
    let changed = change.of(record)?;
    let of_same = events.filter(|_| changed.is_none());
    let (figures, replayed) = simulate(record, &Machine::of(record), of_same)?;
    let efficiency = match record.makespan_s {
        makespan if makespan > 0.0 => (figures.ideal.seconds() / makespan).min(1.0),
        _ => 1.0,
    };
    let recorded = Measures {
        done: record.done,
        failed: record.failed,
        efficiency,
        bytes: record.unknown.bytes,
        ..measures(record, &record.executors, record.makespan_s)
    };
    let changed = match changed {
        Some(machine) => Some(simulate(record, &machine, events)?.1),
        None => None,
    };
    let notes = notes(record, &recorded, &replayed);
    Ok(Compared { name: record.name.clone(), recorded, replayed, changed, notes })
}

/// The fewest executors with which a run takes no longer than a time, by bisection over replays.
fn fewest(record: &Run, change: &Change, deadline_s: f64) -> Result<u64, ReplayError> {
    let slots = slots_of_others(&record.executors, change.slots)?;
    let policy = change.policy.unwrap_or(record.policy);
    let takes = |executors| {
        let nodes = change.others(record, executors)?;
        let machine = Machine { nodes, provision: None, policy };
        simulate(record, &machine, None).map(|(_, measures)| measures.makespan_s)
    };
    // With a slot for each task, or an executor for each that reserves more, more make no
    // difference; and each slot has its share of work.
    let most = match record.tasks.reserves() {
        false => record.tasks.tasks().div_ceil(u64::from(slots)),
        true => record.tasks.places(),
    };
    let most = most.max(1);
    let least = record.tasks.work_s() / (deadline_s * f64::from(slots));
    let least = (least as u64 + 1).min(most);
    let mut longest = 0.0;
    let found = plan::fewest((least, most), |executors| {
        let makespan_s = takes(executors)?;
        longest = makespan_s;
        Ok((makespan_s <= deadline_s).then_some(()))
    })?;
    match found {
        Some((executors, ())) => Ok(executors),
        None => Err(ReplayError::Deadline { deadline_s, executors: most, makespan_s: longest }),
    }
}

/// Executors that are alike.
fn group(count: u64, slots: u32, from: Nanos, until: Option<Nanos>) -> NodeGroup {
    NodeGroup {
        count,
        slots,
        gpus: 0,
        memory_bytes: 0,
        speed: 1.0,
        from,
        until,
        idle_exit: None,
        cache: None,
        disk: None,
    }
}

fn simulate(
    record: &Run,
    machine: &Machine,
    events: Option<&SimulatedEvents>,
) -> Result<(Figures, Measures), ReplayError> {
    let mut take = events.map(|events| |act: Act| events.take(act));
    let take = take.as_mut().map(|take| take as &mut dyn FnMut(Act));
    if let Some(unfit) = record.tasks.unfit(&machine.nodes) {
        return Err(ReplayError::Unfit(unfit.resources().to_string()));
    }
    let scenario = scenario(record, machine);
    let figures =
        run_recorded(&scenario, SEED, &mut |_| {}, take).map_err(|error| match error {
            SimError::Unfinished(left) => {
                ReplayError::Unfinished { delivered: left.delivered, tasks: left.tasks }
            }
            error => ReplayError::Sim(error),
        })?;
    let measures = Measures {
        done: figures.done,
        failed: figures.failed,
        efficiency: figures.efficiency,
        bytes: (figures.local.bytes, figures.peer.bytes, figures.store.bytes),
        ..measures(record, &machine.nodes, figures.makespan.seconds())
    };
    let measures = match &figures.provisioned {
        // Nodes are paid for from their allocation on.
        Some(cost) => {
            let slots = machine.nodes.first().map_or(1, |group| group.slots);
            let slot_s = cost.allocated_s * f64::from(slots);
            let utilization = if slot_s > 0.0 { record.tasks.work_s() / slot_s } else { 1.0 };
            let executors = cost.nodes_peak;
            let slots = executors * u64::from(slots);
            Measures { executors, slots, slot_s, utilization, ..measures }
        }
        None => measures,
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
        bytes: (0, 0, 0),
    }
}

fn scenario(record: &Run, machine: &Machine) -> Scenario {
    let Machine { nodes, provision, policy } = machine;
    let (rates, executor) = (record.rates, ExecutorFields::default().costs());
    let inputs = record.tasks.needs().reads.longest();
    let tasks = record.tasks.tasks();
    let work = Nanos::from_seconds(record.tasks.work_s());
    let spare = Nanos(tasks.saturating_mul(TASK_LIMIT_NANOS).saturating_add(RUN_LIMIT_NANOS));
    let recorded = Nanos::from_seconds(record.makespan_s);
    // What came from the store as fast as that came over a link.
    let link_bytes_per_s =
        rates.store_bytes_per_s.map_or(LINK_BYTES_PER_S, |it| it.max(LINK_BYTES_PER_S));
    Scenario {
        name: record.name.clone(),
        dispatchers: 1,
        dispatcher: DispatcherFields::default()
            .costs(*policy, u32::try_from(inputs).unwrap_or(u32::MAX)),
        results_bytes: None,
        executor: ExecutorCosts { start: rates.start.unwrap_or(executor.start), ..executor },
        // What was accepted at one time came together, and nothing else did.
        client: ClientCosts { bundle: Nanos(0), ..ClientFields::default().costs() },
        network: Network {
            latency: LATENCY,
            node_bytes_per_s: rates.peer_bytes_per_s.unwrap_or(link_bytes_per_s),
            dispatcher_bytes_per_s: LINK_BYTES_PER_S,
        },
        relays: None,
        nodes: nodes.clone(),
        store: Store {
            bytes_per_s: rates.store_bytes_per_s.unwrap_or(LINK_BYTES_PER_S),
            operation: rates.operation.unwrap_or_default(),
            operations_per_s: None,
        },
        provision: provision.clone(),
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
            policy: PolicyOptions { policy: *policy, ..PolicyOptions::default() },
            retries: 0,
            replicas: 1,
            estimates: false,
            speculate: false,
            wide: None,
        },
        earlier_runs: 0,
        faults: Faults::default(),
        check_all: false,
        limit: recorded.after(work).after(spare),
    }
}

/// What a reader has to know: how far the replay can be trusted, and what it leaves out.
fn notes(record: &Run, recorded: &Measures, replayed: &Measures) -> Vec<String> {
    let Unknown { unstarted, lost_tries, staging_micros, bytes, custom, automatic } =
        record.unknown;
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
    if custom > 0 {
        let tasks = counted(custom, "task");
        notes.push(format!("{tasks} reserved custom resources, of which there is enough here"));
    }
    if automatic > 0 {
        let tasks = counted(automatic, "task");
        notes.push(format!("{tasks} had as much memory as others had needed, and have none here"));
    }
    let all = bytes.0.saturating_add(bytes.1).saturating_add(bytes.2);
    if (staging_micros > 0 || all > 0) && !record.tasks.needs().have_objects() {
        notes.push(format!(
            "tasks waited {} s for inputs in all, of which {} bytes were in their executors' \
             caches, {} came from others and {} from stores; the events are of a release that did \
             not write which objects these were, so the replay reads nothing",
            shown(staging_micros as f64 / 1e6),
            shown(bytes.0 as f64),
            shown(bytes.1 as f64),
            shown(bytes.2 as f64)
        ));
    }
    if lost_tries > 0 {
        notes.push(format!(
            "{} tries of tasks were lost with their executors: the replay has as many as its own \
             executors lose",
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
        let of_inputs: [Row; 3] = [
            ("own cache, bytes", |one| one.bytes.0 as f64),
            ("peers, bytes", |one| one.bytes.1 as f64),
            ("store, bytes", |one| one.bytes.2 as f64),
        ];
        let has_inputs = columns.iter().any(|one| one.bytes != (0, 0, 0));
        let rows = rows.into_iter().chain(of_inputs.into_iter().filter(|_| has_inputs));
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
                "local_bytes": one.bytes.0,
                "peer_bytes": one.bytes.1,
                "store_bytes": one.bytes.2,
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
