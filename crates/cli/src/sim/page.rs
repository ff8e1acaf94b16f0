//! A run, or a grid of runs, as one page with the papers' plots
//! (data-diffusion §5.2, figures 4 to 12): throughput against ideal, queue,
//! nodes, hits, by source. The page needs nothing from elsewhere.

#[cfg(test)]
mod tests;

use super::fields::Variant;
use super::show::{Fact, facts, row_cells, row_heading, seconds};
use crate::amount::shown;
use crate::charts::{Chart, Kind, Line, bars, escape, foot, head};
use falkon_sim::{Figures, Sample, Scenario};
use std::fmt::Write;

/// Points of one line.
const POINTS: usize = 160;
/// Rows of a grid that are drawn; the table has them all.
const LINES_MAX: usize = 16;
const GIGABIT_BYTES: f64 = 1.25e8;

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
        "<!DOCTYPE html>\n<html lang=\"en\"><head>{}<title>{name}</title></head><body><main>\n\
         <h1>{name}</h1>\n<noscript><p>Scripts draw the charts; this browser runs none. \
         <code>--csv</code> and <code>--json</code> have the same numbers.</p></noscript>\n",
        head()
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
    let _ = writeln!(out, "</main>{}</body></html>", foot());
    out
}

fn fact_table(out: &mut String, facts: &[Fact]) {
    out.push_str("<h2>Measures</h2>\n<div class=\"wide\" role=\"region\" aria-label=\"Measures\" tabindex=\"0\"><table><tbody>\n");
    for Fact { name, value, unit } in facts {
        let (name, value) = (escape(name.trim()), shown(*value));
        let _ =
            writeln!(out, "<tr><th scope=\"row\">{name}</th><td>{value}</td><td>{unit}</td></tr>");
    }
    out.push_str("</tbody></table></div>\n");
}

/// The samples that are drawn: some of all, and the last.
fn drawn(samples: &[Sample]) -> Vec<Sample> {
    let step = samples.len().div_ceil(POINTS).max(1);
    let last = samples.len().saturating_sub(1);
    let some = samples.iter().enumerate().filter(|(at, _)| at % step == 0 || *at == last);
    some.map(|(_, sample)| *sample).collect()
}

/// The samples without those before the last at which nothing was submitted yet.
fn since_submission(samples: &[Sample]) -> &[Sample] {
    let first = samples.iter().position(|sample| sample.submitted > 0).unwrap_or(0);
    &samples[first.saturating_sub(1)..]
}

/// A value at each of the samples.
fn values(samples: &[Sample], of: impl Fn(&Sample) -> f64) -> Points {
    samples.iter().map(|sample| (sample.at.seconds(), of(sample))).collect()
}

/// The mean of a value between each two samples, at the later; it is given how long that
/// took. The first stands at the first sample too: it is the mean since then.
fn between(samples: &[Sample], of: impl Fn(&Sample, &Sample, f64) -> f64) -> Points {
    let pairs = samples.windows(2).map(|pair| (&pair[0], &pair[1]));
    let apart = pairs.map(|(one, next)| (one, next, next.at.since(one.at).seconds()));
    let apart = apart.filter(|(_, _, seconds)| *seconds > 0.0);
    let means = apart.map(|(one, next, seconds)| (next.at.seconds(), of(one, next, seconds)));
    from_the_first(samples, means.collect())
}

/// Means with the beginning of the first of them.
fn from_the_first(samples: &[Sample], mut means: Points) -> Points {
    if let (Some(first), Some((_, mean))) = (samples.first(), means.first().copied()) {
        means.insert(0, (first.at.seconds(), mean));
    }
    means
}

/// How many there were on average between samples, of something whose times are summed up.
fn mean(of: fn(&Sample) -> u128) -> impl Fn(&Sample, &Sample, f64) -> f64 {
    move |one, next, span| seconds(of(next).saturating_sub(of(one))) / span
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
    from_the_first(samples, rates)
}

/// How many times as high as all results the ideal is drawn at most: what is measured would be
/// a line on the axis. Tasks that take no time are ideally over as soon as they come.
const IDEAL_TIMES_MAX: f64 = 30.0;

fn highest(points: &[(f64, f64)]) -> f64 {
    points.iter().map(|(_, value)| *value).fold(0.0, f64::max)
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
    let samples = drawn(&figures.series);
    let delivered = |one: &Sample, next: &Sample, seconds: f64| {
        next.delivered.saturating_sub(one.delivered) as f64 / seconds
    };
    let results = between(&samples, delivered);
    let mut rates = ideal(&samples, scenario.capacity_per_s());
    if highest(&rates) > IDEAL_TIMES_MAX * highest(&results) {
        rates.clear();
    }
    let lines = |title, unit, most, lines| Chart { title, unit, kind: Kind::Lines, most, lines };
    let mut throughput = vec![Line::of_means("results", results)];
    if !rates.is_empty() {
        throughput.push(Line::of_means("ideal", rates.clone()).into_bound());
    }
    let mut charts = vec![lines("Throughput", "tasks/s", None, throughput)];
    if let Some(inputs) = &scenario.workload.inputs {
        charts.extend(data_charts(&samples, &rates, inputs.object_bytes, inputs.per_task));
    }
    charts.push(lines(
        "Queue",
        "tasks",
        None,
        vec![Line::new("waiting", values(&samples, |sample| sample.queued as f64))],
    ));
    let (registered, busy) =
        (mean(|sample| sample.node_time), mean(|sample| sample.busy_node_time));
    charts.push(lines(
        "Nodes",
        "nodes",
        None,
        vec![
            Line::of_means("registered", between(&samples, registered)),
            Line::of_means("busy, on average", between(&samples, busy)),
        ],
    ));
    let busy = between(&samples, utilization(figures));
    charts.push(lines(
        "Utilization",
        "% of slots",
        Some(100.0),
        vec![Line::of_means("busy", busy)],
    ));
    charts
}

/// The percentage of slots in which tasks ran.
fn utilization(figures: &Figures) -> impl Fn(&Sample, &Sample, f64) -> f64 {
    let slots = figures.slots.max(1) as f64;
    let busy = mean(|sample| sample.busy_slot_time);
    move |one, next, span| busy(one, next, span) * 100.0 / slots
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
            Line::of_means(NAMES[at], points)
        };
        vec![line(0), line(1), line(2)]
    };
    let mut rates = by_source(&|bytes, seconds| bytes.map(|of| of / seconds / GIGABIT_BYTES));
    let task_gigabits = object_bytes as f64 * f64::from(per_task) / GIGABIT_BYTES;
    let best = ideal.iter().map(|(at, rate)| (*at, rate * task_gigabits)).collect();
    if !ideal.is_empty() {
        rates.push(Line::of_means("ideal", best).into_bound());
    }
    let shares = by_source(&|bytes, _| {
        let all: f64 = bytes.iter().sum();
        bytes.map(|of| if all > 0.0 { of * 100.0 / all } else { 0.0 })
    });
    let stacked =
        |title, unit, most, lines| Chart { title, unit, kind: Kind::Stacked, most, lines };
    [
        stacked("Data by source", "Gb/s", None, rates),
        stacked("Hits by source", "% of bytes", Some(100.0), shares),
    ]
}

/// The name of a row of a grid.
fn row_name(run: &Run) -> String {
    let parts = run.variant.label.iter().map(|(name, value)| {
        let value = shown(*value);
        // A mantissa and an exponent stay as they are.
        let is_decimal = value.contains('.') && !value.contains('e');
        let brief = if is_decimal { value.trim_end_matches('0') } else { &value };
        format!("{name} {}", brief.trim_end_matches('.'))
    });
    parts.collect::<Vec<_>>().join(", ")
}

/// A line by its name, from a run's samples.
type OfRun<'a> = &'a dyn Fn(&str, &Run, &[Sample]) -> Line;

fn grid(out: &mut String, runs: &[Run]) {
    let efficiency = runs.iter().map(|run| (row_name(run), run.figures.efficiency * 100.0));
    out.push_str(&bars("Efficiency", "%", 100.0, &efficiency.collect::<Vec<_>>()));
    if runs.len() > LINES_MAX {
        let _ = writeln!(out, "<p>The first {LINES_MAX} rows are drawn.</p>");
    }
    let samples: Vec<(String, &Run, Vec<Sample>)> = runs
        .iter()
        .take(LINES_MAX)
        .map(|run| (row_name(run), run, drawn(since_submission(&run.figures.series))))
        .collect();
    let mut chart = |title, unit, most, of: OfRun<'_>| {
        let lines = samples.iter().map(|(name, run, samples)| of(name, run, samples));
        let chart = Chart { title, unit, kind: Kind::Lines, most, lines: lines.collect() };
        out.push_str(&chart.figure());
    };
    chart("Throughput", "tasks/s", None, &|name, _, samples| {
        let delivered = |one: &Sample, next: &Sample, seconds: f64| {
            next.delivered.saturating_sub(one.delivered) as f64 / seconds
        };
        Line::of_means(name, between(samples, delivered))
    });
    chart("Queue", "tasks", None, &|name, _, samples| {
        Line::new(name, values(samples, |sample| sample.queued as f64))
    });
    chart("Nodes, busy on average", "nodes", None, &|name, _, samples| {
        Line::of_means(name, between(samples, mean(|sample| sample.busy_node_time)))
    });
    chart("Utilization", "% of slots", Some(100.0), &|name, run, samples| {
        Line::of_means(name, between(samples, utilization(&run.figures)))
    });
    if runs.iter().any(|run| run.variant.scenario.workload.inputs.is_some()) {
        for (title, at) in [("Data from the store", 2), ("Data from other nodes", 1)] {
            chart(title, "Gb/s", None, &|name, _, samples| {
                let rate = |one: &Sample, next: &Sample, seconds: f64| {
                    sources(one, next)[at] / seconds / GIGABIT_BYTES
                };
                Line::of_means(name, between(samples, rate))
            });
        }
        chart("Hits in own cache", "% of bytes", Some(100.0), &|name, _, samples| {
            let hits = |one: &Sample, next: &Sample, _: f64| {
                let bytes = sources(one, next);
                let all: f64 = bytes.iter().sum();
                if all > 0.0 { bytes[0] * 100.0 / all } else { 0.0 }
            };
            Line::of_means(name, between(samples, hits))
        });
    }
    row_table(out, runs);
}

fn row_table(out: &mut String, runs: &[Run]) {
    let Some(first) = runs.first() else { return };
    out.push_str("<h2>Rows</h2>\n<div class=\"wide\" role=\"region\" aria-label=\"Rows\" tabindex=\"0\"><table><thead><tr><th scope=\"col\">row</th>");
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
    out.push_str("</tbody></table></div>\n");
}
