//! What ran where in a window of time, from events: as densities over bins, and task by task
//! where there are few.

use super::answers::refused;
use super::show::seconds;
use super::watch::Dashboard;
use crate::events::outcome_words;
use falkon_core::events::{Ended, What};
use falkon_core::result::Status;
use falkon_core::task::{ExecutorId, Time};
use falkon_dispatcher::events::{Blocks, Position};
use falkon_net::client::{Client, ClientError};
use falkon_web::{Answer, Question};
use falkon_wire::message::Refusal;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// Bins of a window.
const BINS: usize = 300;
/// Executors in one answer.
const ROWS_MAX: u64 = 50;
/// Runs of tasks that are shown one by one.
const RUNS_SHOWN_MAX: usize = 2_000;
/// Answers with events, of a mebibyte each, that are read for one answer.
const READ_ANSWERS_MAX: usize = 48;
/// The pause before events are asked for again.
const BUSY: Duration = Duration::from_millis(20);
/// The shortest window, in microseconds.
const WINDOW_MICROS_MIN: u64 = 1_000;

/// Where events of a time are to be found.
#[derive(Debug, Default)]
pub(super) struct EventIndex {
    /// When the events of a part begin, and where; in order.
    parts: Vec<(Time, Option<(u64, u64)>)>,
    /// Bytes since the last part began.
    bytes: usize,
}

/// Bytes of events in a part, about.
const PART_BYTES: usize = 1 << 20;

impl EventIndex {
    /// Takes in where blocks were read, and when their first event was.
    pub(super) fn add(&mut self, at: Time, position: Option<(u64, u64)>, bytes: usize) {
        if self.parts.is_empty() || self.bytes >= PART_BYTES {
            self.parts.push((at, position));
            self.bytes = 0;
        }
        self.bytes += bytes;
    }

    /// Where to read on from for what happened since a time.
    fn before(&self, at: Time) -> Option<(u64, u64)> {
        let place = self.parts.partition_point(|(begins, _)| *begins <= at);
        self.parts.get(place.checked_sub(1)?).and_then(|(_, position)| *position)
    }
}

/// What an executor did.
#[derive(Debug, Clone)]
struct Row {
    name: String,
    /// Microseconds that tasks ran, by bin.
    ran: Vec<u64>,
    ended: u64,
    failed: u64,
}

/// The window that is drawn.
struct Window {
    from: Time,
    until: Time,
    rows: BTreeMap<ExecutorId, Row>,
    /// The runs of tasks, unless they are too many.
    runs: Option<Vec<Ended>>,
    tasks: u64,
    /// Events are read up to here.
    read: Time,
}

impl Window {
    fn span(&self) -> u64 {
        self.until.since(self.from)
    }

    fn add(&mut self, ended: &Ended) {
        let Some(row) = ended.executor.and_then(|id| self.rows.get_mut(&id)) else { return };
        if ended.ended < self.from || ended.started > self.until {
            return;
        }
        let count = ended.run.count;
        self.tasks += count;
        row.ended += count;
        row.failed += if ended.outcome.status() == Status::Done { 0 } else { count };
        let span = self.until.since(self.from);
        let bin_at =
            |bin: usize| self.from.0 + (u128::from(span) * bin as u128 / BINS as u128) as u64;
        let place = |at: Time| {
            let place = u128::from(at.since(self.from)) * BINS as u128 / u128::from(span.max(1));
            (place as usize).min(BINS - 1)
        };
        for bin in place(ended.started)..=place(ended.ended) {
            let begins = bin_at(bin).max(ended.started.0);
            let ends = bin_at(bin + 1).min(ended.ended.0);
            row.ran[bin] += ends.saturating_sub(begins).saturating_mul(count);
        }
        match &mut self.runs {
            Some(runs) if runs.len() < RUNS_SHOWN_MAX => runs.push(ended.clone()),
            runs => *runs = None,
        }
    }

    /// Reads events into the window: those of it, and as long again, in which tasks end that
    /// began in it.
    async fn read(
        &mut self,
        client: &Client,
        mut next: Option<(u64, u64)>,
    ) -> Result<(), ClientError> {
        let enough = self.until.after(self.span());
        for _ in 0..READ_ANSWERS_MAX {
            let (bytes, behind, is_end) = match client.events(next).await {
                // Whoever follows events for this page is being answered.
                Err(ClientError::Refused(Refusal::Busy)) => {
                    tokio::time::sleep(BUSY).await;
                    continue;
                }
                answer => answer?,
            };
            next = Some(behind);
            let position = Position { file: behind.0, offset: behind.1 };
            for block in (Blocks { bytes, next: position, is_end }).iter() {
                if block.first > enough {
                    return Ok(());
                }
                self.read = self.read.max(block.last);
                // What ended before the window is of no use in it.
                if block.repeats || block.last < self.from {
                    continue;
                }
                block.each(|event| {
                    if let What::Ended(ended) = &event.what {
                        self.add(ended);
                    }
                });
            }
            if is_end {
                return Ok(());
            }
        }
        Ok(())
    }

    fn json(&self, executors: usize) -> Value {
        let bin_micros = self.span() as f64 / BINS as f64;
        let rows = self.rows.iter().map(|(id, row)| {
            let busy = row.ran.iter().map(|ran| *ran as f64 / bin_micros);
            json!({
                "executor": id.0,
                "name": row.name,
                "busy": busy.map(|busy| (busy * 1000.0).round() / 1000.0).collect::<Vec<_>>(),
                "ended": row.ended,
                "failed": row.failed,
            })
        });
        let runs = self.runs.as_ref().map(|runs| {
            let one = |ended: &Ended| {
                json!({
                    "instance": ended.run.instance.0,
                    "first": ended.run.first.0,
                    "count": ended.run.count,
                    "executor": ended.executor.map(|id| id.0),
                    "started": seconds(ended.started),
                    "ended": seconds(ended.ended),
                    "how": outcome_words(ended.outcome),
                    "good": ended.outcome.status() == Status::Done,
                })
            };
            runs.iter().map(one).collect::<Vec<_>>()
        });
        json!({
            "from": seconds(self.from),
            "until": seconds(self.until),
            "read": seconds(self.read),
            "tasks": self.tasks,
            "executors": executors,
            "rows": rows.collect::<Vec<_>>(),
            "runs": runs,
        })
    }
}

/// Answers what ran from a time `from` to a time `until`, in seconds, on `count` executors from
/// the `row`-th on.
pub(super) async fn timeline(
    dashboard: &Dashboard,
    question: &Question,
    client: &Client,
) -> Result<Value, Answer> {
    let time = |name: &str| -> Result<Option<Time>, Answer> {
        let parsed = question.value(name).map(|text| text.parse::<f64>().map_err(|_| name));
        let parsed =
            parsed.transpose().map_err(|name| Answer::Wrong(format!("{name} is no time")))?;
        let in_range = parsed.filter(|at| at.is_finite() && (0.0..1e12).contains(at));
        Ok(in_range.map(|at| Time((at * 1e6) as u64)))
    };
    let (from, until) = (time("from")?, time("until")?);
    let row = question.number("row").map_err(Answer::Wrong)?.unwrap_or(0);
    let count = question.number("count").map_err(Answer::Wrong)?.unwrap_or(20).min(ROWS_MAX);
    let (mut window, next, executors) = {
        let known = dashboard.known();
        let tally = known.history.tally();
        let (first, last) = tally.span.unwrap_or_default();
        let from = from.unwrap_or(first);
        let until = until.unwrap_or(last).max(from.after(WINDOW_MICROS_MIN));
        // Those that are here come first.
        let is_here = |(id, _): &(&ExecutorId, _)| tally.executors.contains_key(*id);
        let (mut all, gone): (Vec<_>, Vec<_>) = known.names.executors().partition(is_here);
        all.extend(gone);
        let chosen = all.iter().skip(row as usize).take(count as usize);
        let rows = chosen.map(|(id, name)| {
            let row = Row { name: name.to_string(), ran: vec![0; BINS], ended: 0, failed: 0 };
            (**id, row)
        });
        let rows = rows.collect();
        let window = Window { from, until, rows, runs: Some(Vec::new()), tasks: 0, read: Time(0) };
        (window, known.index.before(from), all.len())
    };
    window.read(client, next).await.map_err(refused)?;
    Ok(window.json(executors))
}
