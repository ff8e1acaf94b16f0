//! The measurements of a run, for people and programs.

use super::staged::{JsonCount, bytes_text, percent};
use crate::exit::{Exit, write_line};
use crate::progress::span;
use clap::Args;
use falkon_core::data::stage::{Count, Usage};
use falkon_core::metrics::{HitRatios, Interval, Observed, Run, per_second};
use falkon_core::task::Time;
use serde::Serialize;
use std::path::PathBuf;

/// Lines of the table of a run's course.
const INTERVALS_SHOWN_MAX: usize = 8;
/// Seconds of a run whose course is shown: shorter ones are over before anyone
/// could have seen it.
const COURSE_MIN_S: f64 = 1.0;
/// Points of the series of a run's course.
const INTERVALS_WRITTEN_MAX: usize = 256;
const SECOND_MICROS: f64 = 1e6;
/// Digits after the point of seconds below a minute.
const MINUTE_S: f64 = 60.0;

/// What a run is measured by.
#[derive(Args, Debug, Clone, Default)]
#[command(next_help_heading = "Metrics")]
pub(crate) struct MeasureArgs {
    /// Write the measures of the run to this file, as JSON: hit ratios, response time,
    /// utilization, efficiency, speedup, slowdown, and time series
    #[arg(long, value_name = "FILE")]
    pub(crate) metrics: Option<PathBuf>,
    /// How long the same workload takes with every access to the persistent store (such as
    /// 90s): gives the speedup over that, and the performance index
    #[arg(long, value_name = "TIME", value_parser = crate::plan::duration_micros)]
    pub(crate) baseline: Option<u64>,
    /// Show what the tasks of each program used: run time, processor time, memory, and bytes read
    /// and written
    #[arg(long)]
    pub(crate) usage: bool,
}

impl MeasureArgs {
    /// Whether a run is to be measured even if it has no data.
    pub(crate) fn is_asked(&self) -> bool {
        self.metrics.is_some() || self.baseline.is_some()
    }

    fn baseline_s(&self) -> Option<f64> {
        self.baseline.map(|micros| micros as f64 / SECOND_MICROS)
    }
}

/// A measured run.
#[derive(Debug)]
pub(crate) struct Measured<'a> {
    /// By its results.
    pub(crate) observed: &'a Observed,
    /// Slots that there are, if that is known.
    pub(crate) slots: Option<f64>,
}

impl Measured<'_> {
    fn run(&self) -> Option<Run> {
        self.observed.run(self.slots.filter(|slots| *slots > 0.0)?)
    }

    /// Lines for people, of a run that used data or was to be measured.
    pub(crate) fn show(&self, args: &MeasureArgs) {
        let usage = self.observed.usage();
        let is_run = self.observed.began().is_some();
        if !is_run || (*usage == Usage::default() && !args.is_asked()) {
            return;
        }
        let response = self.observed.response();
        write_line(format_args!(
            "falkon: response {} on average: {} waiting, {} running, {} delivery",
            seconds(response.total_s()),
            seconds(response.wait_s),
            seconds(response.execute_s),
            seconds(response.deliver_s)
        ));
        if let Some(run) = self.run() {
            let mut text = format!(
                "falkon: {} slots: utilization {:.1} %, efficiency {:.1} %, speedup {:.2}, \
                 slowdown {:.2}",
                run.slots,
                run.utilization() * 100.0,
                run.efficiency() * 100.0,
                run.speedup(),
                run.slowdown()
            );
            if let Some(baseline_s) = args.baseline_s() {
                text.push_str(&format!(
                    "; {:.2} times as fast as the baseline, performance index {:.3} per CPU hour",
                    run.speedup_over(baseline_s),
                    run.performance_index(baseline_s)
                ));
            }
            write_line(text);
        }
        let lasted = |run: Run| run.makespan_s >= COURSE_MIN_S;
        if *usage != Usage::default() && self.observed.run(0.0).is_some_and(lasted) {
            for line in table(self.observed) {
                write_line(line);
            }
        }
    }

    /// Writes the file that was asked for.
    pub(crate) fn write(&self, args: &MeasureArgs) -> Result<(), Exit> {
        let Some(path) = &args.metrics else { return Ok(()) };
        let failed = |error: String| {
            Exit::failure(format!("cannot write metrics to {}: {error}", path.display()))
        };
        let mut text = serde_json::to_string(&self.json(args.baseline_s()))
            .map_err(|error| failed(error.to_string()))?;
        text.push('\n');
        crate::named_file::write(path, text.as_bytes()).map_err(|error| failed(error.to_string()))
    }

    fn json(&self, baseline_s: Option<f64>) -> JsonMetrics {
        let observed = self.observed;
        let usage = observed.usage();
        let response = observed.response();
        let run = self.run();
        let whole = observed.run(0.0);
        let began = observed.began().unwrap_or_default();
        let compared = run.zip(baseline_s);
        JsonMetrics {
            tasks: whole.map_or(0, |run| run.tasks),
            began: began.0 as f64 / SECOND_MICROS,
            makespan_seconds: whole.map(|run| run.makespan_s),
            tasks_per_second: whole.map(|run| run.results_per_s()),
            data: JsonData {
                local: JsonCount::of(usage.local),
                peer: JsonCount::of(usage.peer),
                store: JsonCount::of(usage.store),
                hit_ratios: HitRatios::of(usage).map(JsonRatios::of),
                byte_ratios: HitRatios::of_bytes(usage).map(JsonRatios::of),
            },
            response: JsonResponse {
                total_seconds: response.total_s(),
                wait_seconds: response.wait_s,
                execute_seconds: response.execute_s,
                deliver_seconds: response.deliver_s,
            },
            slots: run.map(|run| run.slots),
            ideal_seconds: run.map(|run| run.ideal_s()),
            utilization: run.map(|run| run.utilization()),
            efficiency: run.map(|run| run.efficiency()),
            speedup: run.map(|run| run.speedup()),
            slowdown: whole.map(|run| run.slowdown()),
            slot_seconds: run.map(|run| run.cpu_s()),
            baseline_seconds: baseline_s,
            speedup_over_baseline: compared.map(|(run, baseline)| run.speedup_over(baseline)),
            performance_index: compared.map(|(run, baseline)| run.performance_index(baseline)),
            series: observed
                .intervals(INTERVALS_WRITTEN_MAX)
                .iter()
                .map(|interval| JsonInterval {
                    at_seconds: interval.from.since(began) as f64 / SECOND_MICROS,
                    seconds: interval.micros as f64 / SECOND_MICROS,
                    ended: interval.ended,
                    local: JsonCount::of(interval.usage.local),
                    peer: JsonCount::of(interval.usage.peer),
                    store: JsonCount::of(interval.usage.store),
                })
                .collect(),
        }
    }
}

fn seconds(value: f64) -> String {
    if value < MINUTE_S { format!("{value:.3} s") } else { span(value) }
}

/// How it went, in a few lines: what was read from where, per second.
fn table(observed: &Observed) -> Vec<String> {
    let began = observed.began().unwrap_or_default();
    let intervals = observed.intervals(INTERVALS_SHOWN_MAX);
    let mut lines = vec![format!(
        "{:>12} {:>10} {:>14} {:>14} {:>14} {:>10}",
        "from s", "tasks/s", "own caches/s", "peers/s", "stores/s", "own caches"
    )];
    lines.extend(intervals.iter().map(|interval| line(interval, began)));
    lines
}

fn line(interval: &Interval, began: Time) -> String {
    let span_s = interval.micros as f64 / SECOND_MICROS;
    let at_s = interval.from.since(began) as f64 / SECOND_MICROS;
    let rate = |count: Count| {
        let bytes = per_second(count.bytes as f64, span_s);
        format!("{}/s", bytes_text(bytes as u64))
    };
    let Usage { local, peer, store } = interval.usage;
    format!(
        "{at_s:>12.3} {:>10.1} {:>14} {:>14} {:>14} {:>10}",
        per_second(interval.ended as f64, span_s),
        rate(local),
        rate(peer),
        rate(store),
        percent(local.objects, interval.usage.all().objects)
    )
}

#[derive(Debug, Serialize)]
struct JsonMetrics {
    tasks: u64,
    /// Seconds since the Unix epoch.
    began: f64,
    makespan_seconds: Option<f64>,
    tasks_per_second: Option<f64>,
    data: JsonData,
    response: JsonResponse,
    slots: Option<f64>,
    ideal_seconds: Option<f64>,
    utilization: Option<f64>,
    efficiency: Option<f64>,
    speedup: Option<f64>,
    slowdown: Option<f64>,
    /// Slots times the makespan, used or not: not processor time, which is not
    /// measured.
    slot_seconds: Option<f64>,
    baseline_seconds: Option<f64>,
    speedup_over_baseline: Option<f64>,
    performance_index: Option<f64>,
    series: Vec<JsonInterval>,
}

#[derive(Debug, Serialize)]
struct JsonData {
    local: JsonCount,
    peer: JsonCount,
    store: JsonCount,
    hit_ratios: Option<JsonRatios>,
    byte_ratios: Option<JsonRatios>,
}

#[derive(Debug, Serialize)]
struct JsonRatios {
    local: f64,
    peer: f64,
    store: f64,
}

impl JsonRatios {
    fn of(ratios: HitRatios) -> JsonRatios {
        let HitRatios { local, peer, store } = ratios;
        JsonRatios { local, peer, store }
    }
}

#[derive(Debug, Serialize)]
struct JsonResponse {
    total_seconds: f64,
    wait_seconds: f64,
    execute_seconds: f64,
    deliver_seconds: f64,
}

#[derive(Debug, Serialize)]
struct JsonInterval {
    /// After the beginning of the run.
    at_seconds: f64,
    seconds: f64,
    ended: u64,
    local: JsonCount,
    peer: JsonCount,
    store: JsonCount,
}
