//! A run's figures, for people and as JSON.

use crate::amount::shown;
use falkon_core::metrics::HitRatios;
use falkon_sim::{Count, Disks, Distribution, Figures, Nanos, Provisioned, Sample, Scenario};
use serde::Serialize;
use std::fmt::Write;

/// Lines of the time series in a table.
const SERIES_LINES: usize = 16;

/// A run as a table.
pub(super) fn table(scenario: &Scenario, seed: u64, figures: &Figures) -> String {
    let mut out = String::new();
    let nodes = scenario.nodes_count();
    let name = if scenario.name.is_empty() { "scenario" } else { &scenario.name };
    let below = match figures.relays {
        0 => String::new(),
        relays => format!(" with {} relays", shown(relays as f64)),
    };
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "{name}: {} tasks on {} nodes with {} slots, {} dispatchers{below}, seed {seed}",
        shown(scenario.workload.tasks as f64),
        shown(nodes as f64),
        shown(figures.slots as f64),
        scenario.dispatchers
    );
    for Fact { name, value, unit } in facts(scenario, figures) {
        let _ = writeln!(out, "  {name:<34} {:>14} {unit}", shown(value));
    }
    let _ = writeln!(out, "  {:<34} {:>16x}", "trace", figures.trace);
    series(&mut out, figures);
    out
}

/// A measured fact.
pub(super) struct Fact {
    pub(super) name: &'static str,
    pub(super) value: f64,
    pub(super) unit: &'static str,
}

/// The measured facts of one run. Names that begin with a space belong to the
/// one above them.
pub(super) fn facts(scenario: &Scenario, figures: &Figures) -> Vec<Fact> {
    let mut facts = Vec::new();
    let mut line = |name, value, unit| facts.push(Fact { name, value, unit });
    line("done", figures.done as f64, "tasks");
    line("failed", figures.failed as f64, "tasks");
    line("makespan", figures.makespan.seconds(), "s");
    line("ideal", figures.ideal.seconds(), "s");
    line("efficiency", figures.efficiency * 100.0, "%");
    line("speedup", figures.speedup, "");
    line("slowdown", figures.slowdown, "");
    line("CPU time", figures.cpu_s / 3600.0, "hours");
    line("utilization", figures.utilization * 100.0, "%");
    line("throughput", figures.throughput_per_s, "tasks/s");
    line("response, mean", figures.response.mean.seconds(), "s");
    line("response, median", figures.response.median.seconds(), "s");
    line("response, 99 of 100 within", figures.response.p99.seconds(), "s");
    line("response, longest", figures.response.longest.seconds(), "s");
    line("  of it waiting, mean", figures.wait.seconds(), "s");
    line("  of it executing, mean", figures.execute.seconds(), "s");
    line("  of it delivering, mean", figures.deliver.seconds(), "s");
    line("longest queue", figures.queue_peak as f64, "tasks");
    line("runs of tasks", figures.runs as f64, "");
    if scenario.workload.inputs.is_some() {
        let makespan = figures.makespan.seconds();
        let hit = |of: fn(&HitRatios) -> f64| figures.hits.as_ref().map_or(0.0, of) * 100.0;
        line("inputs read", figures.reads.objects as f64, "");
        line("  there already", hit(|hits| hits.local), "%");
        line("  from other nodes", hit(|hits| hits.peer), "%");
        line("  from the store", hit(|hits| hits.store), "%");
        line("  at, mean", figures.reads.bytes as f64 * 8e-9 / makespan, "Gb/s");
        line("objects read from other nodes", figures.peer.objects as f64, "");
        line("  of bytes", figures.peer.bytes as f64, "");
        line("objects read from the store", figures.store.objects as f64, "");
        line("  of bytes", figures.store.bytes as f64, "");
        line("  different ones", figures.different_objects as f64, "");
        line("  at, mean", figures.store.bytes as f64 * 8e-9 / makespan, "Gb/s");
        if figures.disks != Disks::default() {
            line("bytes read from nodes' disks", figures.disks.read as f64, "");
            line("  written to them", figures.disks.written as f64, "");
            line("  read from memory instead", figures.disks.from_memory as f64, "");
        }
    }
    if let Some(provisioned) = &figures.provisioned {
        line("requests for nodes", provisioned.requests as f64, "");
        line("  started", provisioned.allocations as f64, "allocations");
        line("  most nodes at a time", provisioned.nodes_peak as f64, "nodes");
        line("executors registered, together", provisioned.node_s, "s");
        line("  of it tasks ran", provisioned.utilization * 100.0, "%");
        line("nodes allocated, together", provisioned.allocated_s, "s");
        line("queries of the scheduler", provisioned.queries as f64, "");
    }
    line("faults", figures.faults as f64, "");
    if figures.pages != (0, 0) {
        line("pages of results stored", figures.pages.0 as f64, "");
        line("  refused by full disks", figures.pages.1 as f64, "");
    }
    line("messages", figures.messages as f64, "");
    line("  of bytes", figures.message_bytes as f64, "");
    line("busiest dispatcher, busy", figures.dispatcher_busy * 100.0, "%");
    if figures.relays > 0 {
        line("busiest relay, busy", figures.relay_busy * 100.0, "%");
    }
    line("events simulated", figures.events as f64, "");
    facts
}

fn series(out: &mut String, figures: &Figures) {
    let samples = &figures.series;
    let step = samples.len().div_ceil(SERIES_LINES).max(1);
    let _ = writeln!(
        out,
        "\n  {:>12} {:>12} {:>12} {:>9} {:>12} {:>12} {:>11} {:>10} {:>10}",
        "time, s",
        "queued",
        "running",
        "nodes",
        "delivered",
        "results/s",
        "store Gb/s",
        "peer Gb/s",
        "read Gb/s"
    );
    let mut before = Sample::default();
    for (at, sample) in samples.iter().enumerate() {
        if at % step != 0 && at + 1 != samples.len() {
            continue;
        }
        let span = sample.at.since(before.at).seconds();
        let results = (sample.delivered - before.delivered) as f64;
        let per_second = |amount: f64| if span > 0.0 { amount / span } else { 0.0 };
        let bits = |now: u64, before: u64| per_second((now - before) as f64 * 8e-9);
        let _ = writeln!(
            out,
            "  {:>12.2} {:>12} {:>12} {:>9} {:>12} {:>12.1} {:>11.3} {:>10.3} {:>10.3}",
            sample.at.seconds(),
            sample.queued,
            sample.running,
            sample.nodes,
            sample.delivered,
            per_second(results),
            bits(sample.store_bytes, before.store_bytes),
            bits(sample.peer_bytes, before.peer_bytes),
            bits(sample.read_bytes, before.read_bytes)
        );
        before = *sample;
    }
}

/// The names of the columns of a grid's table.
pub(super) fn row_heading(label: &[(&'static str, f64)]) -> Vec<&'static str> {
    let columns = ["tasks", "makespan s", "ideal s", "eff. %", "tasks/s", "response s", "busy %"];
    label.iter().map(|(name, _)| *name).chain(columns).collect()
}

/// A run of a grid: a text for each column.
pub(super) fn row_cells(
    scenario: &Scenario,
    label: &[(&'static str, f64)],
    figures: &Figures,
) -> Vec<String> {
    let mut cells: Vec<String> = label.iter().map(|(_, value)| shown(*value)).collect();
    cells.extend([
        scenario.workload.tasks.to_string(),
        format!("{:.3}", figures.makespan.seconds()),
        format!("{:.3}", figures.ideal.seconds()),
        format!("{:.2}", figures.efficiency * 100.0),
        format!("{:.1}", figures.throughput_per_s),
        format!("{:.3}", figures.response.mean.seconds()),
        format!("{:.1}", figures.dispatcher_busy * 100.0),
    ]);
    cells
}

/// A run of a grid as a line; the first has the heading above it.
pub(super) fn row(
    is_first: bool,
    scenario: &Scenario,
    label: &[(&'static str, f64)],
    figures: &Figures,
) -> String {
    let line = |cells: &[String]| {
        let padded: Vec<String> = cells.iter().map(|cell| format!("{cell:>12}")).collect();
        padded.join(" ") + "\n"
    };
    let mut out = String::new();
    if is_first {
        let names: Vec<String> = row_heading(label).into_iter().map(str::to_owned).collect();
        out.push_str(&line(&names));
    }
    out + &line(&row_cells(scenario, label, figures))
}

#[derive(Serialize)]
struct JsonRun<'a> {
    name: &'a str,
    seed: u64,
    grid: Vec<JsonPoint>,
    tasks: u64,
    nodes: u64,
    slots: u64,
    done: u64,
    failed: u64,
    runs: u64,
    makespan_s: f64,
    ideal_s: f64,
    efficiency: f64,
    speedup: f64,
    slowdown: f64,
    cpu_s: f64,
    utilization: f64,
    throughput_per_s: f64,
    response: JsonDistribution,
    wait_s: f64,
    execute_s: f64,
    deliver_s: f64,
    queue_peak: u64,
    messages: u64,
    message_bytes: u64,
    events: u64,
    faults: u64,
    pages_stored: u64,
    pages_refused: u64,
    dispatcher_busy: f64,
    relays: u64,
    relay_busy: f64,
    reads: JsonCount,
    local: JsonCount,
    peer: JsonCount,
    store_objects: u64,
    store_bytes: u64,
    different_objects: u64,
    disk_read_bytes: u64,
    disk_written_bytes: u64,
    memory_read_bytes: u64,
    provisioned: Option<JsonProvisioned>,
    trace: String,
    series: Vec<JsonSample>,
}

#[derive(Serialize)]
struct JsonPoint {
    name: &'static str,
    value: f64,
}

#[derive(Serialize)]
struct JsonDistribution {
    mean_s: f64,
    median_s: f64,
    p95_s: f64,
    p99_s: f64,
    longest_s: f64,
}

#[derive(Serialize)]
struct JsonSample {
    at_s: f64,
    submitted: u64,
    queued: u64,
    running: u64,
    nodes: u64,
    busy_nodes: u64,
    delivered: u64,
    store_bytes: u64,
    peer_bytes: u64,
    read_bytes: u64,
    busy_slot_s: f64,
    busy_node_s: f64,
    node_s: f64,
}

#[derive(Serialize)]
struct JsonProvisioned {
    requests: u64,
    allocations: u64,
    nodes_peak: u64,
    node_s: f64,
    utilization: f64,
    allocated_s: f64,
    queries: u64,
}

impl From<Provisioned> for JsonProvisioned {
    fn from(of: Provisioned) -> JsonProvisioned {
        JsonProvisioned {
            requests: of.requests,
            allocations: of.allocations,
            nodes_peak: of.nodes_peak,
            node_s: of.node_s,
            utilization: of.utilization,
            allocated_s: of.allocated_s,
            queries: of.queries,
        }
    }
}

#[derive(Serialize)]
struct JsonCount {
    objects: u64,
    bytes: u64,
}

impl From<Count> for JsonCount {
    fn from(of: Count) -> JsonCount {
        JsonCount { objects: of.objects, bytes: of.bytes }
    }
}

impl From<Distribution> for JsonDistribution {
    fn from(of: Distribution) -> JsonDistribution {
        let seconds = |span: Nanos| span.seconds();
        JsonDistribution {
            mean_s: seconds(of.mean),
            median_s: seconds(of.median),
            p95_s: seconds(of.p95),
            p99_s: seconds(of.p99),
            longest_s: seconds(of.longest),
        }
    }
}

/// The sum of times, in seconds.
pub(super) fn seconds(nanos: u128) -> f64 {
    nanos as f64 / 1e9
}

/// A run as a line of JSON.
///
/// # Errors
/// Those of serde_json.
pub(super) fn json(
    scenario: &Scenario,
    label: &[(&'static str, f64)],
    seed: u64,
    figures: &Figures,
) -> Result<String, serde_json::Error> {
    let line = JsonRun {
        name: &scenario.name,
        seed,
        grid: label.iter().map(|(name, value)| JsonPoint { name, value: *value }).collect(),
        tasks: scenario.workload.tasks,
        nodes: scenario.nodes_count(),
        slots: figures.slots,
        done: figures.done,
        failed: figures.failed,
        runs: figures.runs,
        makespan_s: figures.makespan.seconds(),
        ideal_s: figures.ideal.seconds(),
        efficiency: figures.efficiency,
        speedup: figures.speedup,
        slowdown: figures.slowdown,
        cpu_s: figures.cpu_s,
        utilization: figures.utilization,
        throughput_per_s: figures.throughput_per_s,
        response: figures.response.into(),
        wait_s: figures.wait.seconds(),
        execute_s: figures.execute.seconds(),
        deliver_s: figures.deliver.seconds(),
        queue_peak: figures.queue_peak,
        messages: figures.messages,
        message_bytes: figures.message_bytes,
        events: figures.events,
        faults: figures.faults,
        pages_stored: figures.pages.0,
        pages_refused: figures.pages.1,
        dispatcher_busy: figures.dispatcher_busy,
        relays: figures.relays,
        relay_busy: figures.relay_busy,
        reads: figures.reads.into(),
        local: figures.local.into(),
        peer: figures.peer.into(),
        store_objects: figures.store.objects,
        store_bytes: figures.store.bytes,
        different_objects: figures.different_objects,
        disk_read_bytes: figures.disks.read,
        disk_written_bytes: figures.disks.written,
        memory_read_bytes: figures.disks.from_memory,
        provisioned: figures.provisioned.map(JsonProvisioned::from),
        trace: format!("{:016x}", figures.trace),
        series: figures
            .series
            .iter()
            .map(|sample| JsonSample {
                at_s: sample.at.seconds(),
                submitted: sample.submitted,
                queued: sample.queued,
                running: sample.running,
                nodes: sample.nodes,
                busy_nodes: sample.busy_nodes,
                delivered: sample.delivered,
                store_bytes: sample.store_bytes,
                peer_bytes: sample.peer_bytes,
                read_bytes: sample.read_bytes,
                busy_slot_s: seconds(sample.busy_slot_time),
                busy_node_s: seconds(sample.busy_node_time),
                node_s: seconds(sample.node_time),
            })
            .collect(),
    };
    Ok(serde_json::to_string(&line)? + "\n")
}
