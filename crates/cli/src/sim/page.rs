//! A run, or a grid of runs, as one page with the papers' plots
//! (data-diffusion §5.2, figures 4 to 12): throughput against ideal, queue,
//! nodes, hits, by source. The page needs nothing from elsewhere.

#[cfg(test)]
mod tests;

use super::fields::Variant;
use super::plot::{Chart, Kind, Line, bars, escape};
use super::show::{Fact, facts, row_cells, row_heading};
use crate::amount::shown;
use falkon_sim::{Figures, Sample, Scenario};
use std::fmt::Write;

/// Points of one line.
const POINTS: usize = 240;
/// Rows of a grid that are drawn; the table has them all.
const LINES_MAX: usize = 16;
const GIGABIT_BYTES: f64 = 1.25e8;

const STYLE: &str = include_str!("page.css");

/// The points of one line.
type Points = Vec<(f64, f64)>;

/// The run.
pub(super) struct Run {
    pub(super) variant: Variant,
    pub(super) figures: Figures,
}

/// The page. `seed` is what random numbers were drawn from.
pub(super) fn page(runs: &[Run], seed: u64) -> String {
    let name = runs.first().map_or("", |run| run.variant.scenario.name.as_str());
    let name = escape(if name.is_empty() { "scenario" } else { name });
    let mut out = format!(
        "<!DOCTYPE html>\n<html xmlns=\"http://www.w3.org/1999/xhtml\" lang=\"en\"><head>\
         <meta charset=\"utf-8\"/><meta name=\"viewport\" content=\"width=device-width\"/>\
         <title>{name}</title><style>{STYLE}</style></head><body>\n<h1>{name}</h1>\n"
    );
    match runs {
        [run] => {
            let Scenario { workload, .. } = &run.variant.scenario;
            // Writing to a string cannot fail.
            let _ = writeln!(
                out,
                "<p>{} tasks on {} nodes with {} slots, seed {seed}</p>",
                shown(workload.tasks as f64),
                shown(run.variant.scenario.nodes_count() as f64),
                shown(run.figures.slots as f64)
            );
            for chart in charts(run) {
                out.push_str(&chart.figure());
            }
            fact_table(&mut out, &facts(&run.variant.scenario, &run.figures));
            let _ = writeln!(out, "<p>trace {:016x}</p>", run.figures.trace);
        }
        runs => {
            let _ = writeln!(out, "<p>{} runs, seed {seed}</p>", runs.len());
            grid(&mut out, runs);
        }
    }
    out.push_str("</body></html>\n");
    out
}

fn fact_table(out: &mut String, facts: &[Fact]) {
    out.push_str("<table><tbody>\n");
    for Fact { name, value, unit } in facts {
        let (name, value) = (escape(name.trim()), shown(*value));
        let _ =
            writeln!(out, "<tr><th scope=\"row\">{name}</th><td>{value}</td><td>{unit}</td></tr>");
    }
    out.push_str("</tbody></table>\n");
}

/// The samples that are drawn: some of all, and the last.
fn drawn(figures: &Figures) -> Vec<Sample> {
    let samples = &figures.series;
    let step = samples.len().div_ceil(POINTS).max(1);
    let last = samples.len().saturating_sub(1);
    let some = samples.iter().enumerate().filter(|(at, _)| at % step == 0 || *at == last);
    some.map(|(_, sample)| *sample).collect()
}

/// A value at each of the samples.
fn values(samples: &[Sample], of: impl Fn(&Sample) -> f64) -> Points {
    samples.iter().map(|sample| (sample.at.seconds(), of(sample))).collect()
}

/// A value between each two samples, at the later; it is given how long that
/// took.
fn between(samples: &[Sample], of: impl Fn(&Sample, &Sample, f64) -> f64) -> Points {
    let pairs = samples.windows(2).map(|pair| (&pair[0], &pair[1]));
    let apart = pairs.map(|(one, next)| (one, next, next.at.since(one.at).seconds()));
    let apart = apart.filter(|(_, _, seconds)| *seconds > 0.0);
    apart.map(|(one, next, seconds)| (next.at.seconds(), of(one, next, seconds))).collect()
}

/// Tasks per second if only the tasks took time: as they come, or as fast as
/// the slots run them.
fn ideal(samples: &[Sample], capacity_per_s: f64) -> Points {
    let mut done = 0.0;
    let mut rates = Vec::with_capacity(samples.len());
    for pair in samples.windows(2) {
        let seconds = pair[1].at.since(pair[0].at).seconds();
        if seconds > 0.0 {
            let more = (pair[1].submitted as f64 - done).min(capacity_per_s * seconds).max(0.0);
            done += more;
            rates.push((pair[1].at.seconds(), more / seconds));
        }
    }
    rates
}

/// Bytes between two samples: what was there already, what came from other
/// nodes, and what came from the store. What is fetched ahead is read later.
fn sources(one: &Sample, next: &Sample) -> [f64; 3] {
    let peer = next.peer_bytes.saturating_sub(one.peer_bytes) as f64;
    let store = next.store_bytes.saturating_sub(one.store_bytes) as f64;
    let read = next.read_bytes.saturating_sub(one.read_bytes) as f64;
    [(read - peer - store).max(0.0), peer, store]
}

/// The papers' plots of one run.
fn charts(run: &Run) -> Vec<Chart> {
    let (scenario, figures) = (&run.variant.scenario, &run.figures);
    let samples = drawn(figures);
    let delivered = |one: &Sample, next: &Sample, seconds: f64| {
        next.delivered.saturating_sub(one.delivered) as f64 / seconds
    };
    let rates = ideal(&samples, scenario.capacity_per_s());
    let best = |points| Line { is_ideal: true, ..Line::new("ideal", points) };
    let lines = |title, unit, lines| Chart { title, unit, kind: Kind::Lines, lines };
    let mut charts = vec![lines(
        "Throughput",
        "tasks/s",
        vec![Line::new("results", between(&samples, delivered)), best(rates.clone())],
    )];
    if let Some(inputs) = &scenario.workload.inputs {
        charts.extend(data_charts(&samples, &rates, inputs.object_bytes, inputs.per_task));
    }
    charts.push(lines(
        "Queue",
        "tasks",
        vec![Line::new("waiting", values(&samples, |sample| sample.queued as f64))],
    ));
    charts.push(lines(
        "Nodes",
        "nodes",
        vec![
            Line::new("registered", values(&samples, |sample| sample.nodes as f64)),
            Line::new("busy", values(&samples, |sample| sample.busy_nodes as f64)),
        ],
    ));
    let share = |sample: &Sample| sample.running as f64 * 100.0 / figures.slots.max(1) as f64;
    charts.push(lines(
        "Utilization",
        "% of slots",
        vec![Line::new("busy", values(&samples, share))],
    ));
    charts
}

/// Where the bytes come from that tasks read.
fn data_charts(
    samples: &[Sample],
    ideal: &[(f64, f64)],
    object_bytes: u64,
    per_task: u32,
) -> [Chart; 2] {
    const NAMES: [&str; 3] = ["own cache", "other nodes", "store"];
    let by_source = |of: &dyn Fn([f64; 3], f64) -> [f64; 3]| -> Vec<Line> {
        let line = |at: usize| {
            let points = between(samples, |one, next, seconds| of(sources(one, next), seconds)[at]);
            Line::new(NAMES[at], points)
        };
        vec![line(0), line(1), line(2)]
    };
    let mut rates = by_source(&|bytes, seconds| bytes.map(|of| of / seconds / GIGABIT_BYTES));
    let task_gigabits = object_bytes as f64 * f64::from(per_task) / GIGABIT_BYTES;
    let best = ideal.iter().map(|(at, rate)| (*at, rate * task_gigabits)).collect();
    rates.push(Line { is_ideal: true, ..Line::new("ideal", best) });
    let shares = by_source(&|bytes, _| {
        let all: f64 = bytes.iter().sum();
        bytes.map(|of| if all > 0.0 { of * 100.0 / all } else { 0.0 })
    });
    let stacked = |title, unit, lines| Chart { title, unit, kind: Kind::Stacked, lines };
    [stacked("Data by source", "Gb/s", rates), stacked("Hits by source", "% of bytes", shares)]
}

/// The name of a row of a grid.
fn row_name(run: &Run) -> String {
    let parts = run.variant.label.iter().map(|(name, value)| format!("{name} {}", shown(*value)));
    parts.collect::<Vec<_>>().join(", ")
}

/// A line's points, from a run's samples.
type OfRun<'a> = &'a dyn Fn(&Run, &[Sample]) -> Points;

fn grid(out: &mut String, runs: &[Run]) {
    let efficiency = runs.iter().map(|run| (row_name(run), run.figures.efficiency * 100.0));
    out.push_str(&bars("Efficiency", &efficiency.collect::<Vec<_>>()));
    if runs.len() > LINES_MAX {
        let _ = writeln!(out, "<p>The first {LINES_MAX} rows are drawn.</p>");
    }
    let samples: Vec<(String, &Run, Vec<Sample>)> =
        runs.iter().take(LINES_MAX).map(|run| (row_name(run), run, drawn(&run.figures))).collect();
    let mut chart = |title, unit, of: OfRun<'_>| {
        let lines = samples.iter().map(|(name, run, samples)| Line::new(name, of(run, samples)));
        let chart = Chart { title, unit, kind: Kind::Lines, lines: lines.collect() };
        out.push_str(&chart.figure());
    };
    chart("Throughput", "tasks/s", &|_, samples| {
        between(samples, |one, next, seconds| {
            next.delivered.saturating_sub(one.delivered) as f64 / seconds
        })
    });
    chart("Queue", "tasks", &|_, samples| values(samples, |sample| sample.queued as f64));
    chart("Nodes, busy", "nodes", &|_, samples| values(samples, |sample| sample.busy_nodes as f64));
    chart("Utilization", "% of slots", &|run, samples| {
        let slots = run.figures.slots.max(1) as f64;
        values(samples, |sample| sample.running as f64 * 100.0 / slots)
    });
    if runs.iter().any(|run| run.variant.scenario.workload.inputs.is_some()) {
        chart("Data from the store", "Gb/s", &|_, samples| {
            between(samples, |one, next, seconds| sources(one, next)[2] / seconds / GIGABIT_BYTES)
        });
        chart("Data from other nodes", "Gb/s", &|_, samples| {
            between(samples, |one, next, seconds| sources(one, next)[1] / seconds / GIGABIT_BYTES)
        });
        chart("Hits in own cache", "% of bytes", &|_, samples| {
            between(samples, |one, next, _| {
                let bytes = sources(one, next);
                let all: f64 = bytes.iter().sum();
                if all > 0.0 { bytes[0] * 100.0 / all } else { 0.0 }
            })
        });
    }
    row_table(out, runs);
}

fn row_table(out: &mut String, runs: &[Run]) {
    let Some(first) = runs.first() else { return };
    out.push_str("<table><thead><tr><th scope=\"col\">row</th>");
    for name in row_heading(&first.variant.label) {
        let _ = write!(out, "<th scope=\"col\">{}</th>", escape(name));
    }
    out.push_str("</tr></thead><tbody>\n");
    for (at, run) in runs.iter().enumerate() {
        let _ = write!(out, "<tr><th scope=\"row\">{}</th>", at + 1);
        for cell in row_cells(&run.variant.scenario, &run.variant.label, &run.figures) {
            let _ = write!(out, "<td>{}</td>", escape(&cell));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table>\n");
}
