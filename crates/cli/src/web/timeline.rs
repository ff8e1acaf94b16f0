//! What ran where in a window of time: as densities over bins, which are kept in memory, and task
//! by task where there are few, from events.

use super::answers::refused;
use super::show::seconds;
use super::watch::Dashboard;
use crate::events::outcome_words;
use falkon_core::events::{Ended, Row, View, What};
use falkon_core::result::Status;
use falkon_core::task::{ExecutorId, Time};
use falkon_dispatcher::events::{Blocks, Position};
use falkon_net::client::{Client, ClientError};
use falkon_web::{Answer, Question};
use falkon_wire::message::Refusal;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// Bins of a window, at most.
const BINS: usize = 300;
/// Bins of a window that are kept in memory, with which it is drawn from there although few
/// events have it, and although many have.
const BINS_MIN: usize = 150;
const BINS_COARSE_MIN: usize = 30;
/// Bytes of events that are few.
const FEW_BYTES: usize = 4 << 20;
/// Executors in one answer.
const ROWS_MAX: u64 = 50;
/// Runs of tasks that are shown one by one.
const RUNS_SHOWN_MAX: usize = 2_000;
/// Answers with events, of a mebibyte each, that are read for one answer.
const READ_ANSWERS_MAX: usize = 48;
/// Answers with events that are read in search of tasks that are known to end later.
const SOUGHT_ANSWERS_MAX: usize = 8;
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

    /// How many parts begin at a time or before.
    fn upto(&self, at: Time) -> usize {
        self.parts.partition_point(|(begins, _)| *begins <= at)
    }

    /// Where to read on from for what happened since a time.
    fn before(&self, at: Time) -> Option<(u64, u64)> {
        self.parts.get(self.upto(at).checked_sub(1)?).and_then(|(_, position)| *position)
    }

    /// Bytes of the events of a window, about.
    fn bytes(&self, from: Time, until: Time) -> usize {
        (self.upto(until).saturating_sub(self.upto(from)) + 1) * PART_BYTES
    }
}

/// The executors of a window, their names and what ran on them.
type Rows = BTreeMap<ExecutorId, (String, Row)>;

/// An answer: what is drawn of a window.
struct Drawn {
    from: Time,
    until: Time,
    rows: Rows,
    /// The runs of tasks, unless they are too many.
    runs: Option<Vec<Ended>>,
    /// Tasks that ended until then are in it.
    read: Time,
}

impl Drawn {
    fn span(&self) -> u64 {
        self.until.since(self.from)
    }

    /// `executors` are those that there are.
    fn json(&self, executors: usize) -> Value {
        let rows = self.rows.iter().map(|(id, (name, row))| {
            let bin_micros = self.span() as f64 / row.ran_micros.len() as f64;
            let busy = row.ran_micros.iter().map(|ran| *ran as f64 / bin_micros);
            json!({
                "executor": id.0,
                "name": name,
                "busy": busy.map(|busy| (busy * 1000.0).round() / 1000.0).collect::<Vec<_>>(),
                "ended": row.tasks,
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
        let tasks = self.rows.values().fold(0, |all: u64, (_, row)| all.saturating_add(row.tasks));
        json!({
            "from": seconds(self.from),
            "until": seconds(self.until),
            "read": seconds(self.read),
            "tasks": tasks,
            "executors": executors,
            "rows": rows.collect::<Vec<_>>(),
            "runs": runs,
        })
    }
}

/// The runs of a window that are known to have ended.
struct Sought {
    /// The window: no shorter than the one that is drawn.
    from: Time,
    until: Time,
    /// How many of them are yet to be found.
    missing: u64,
    /// The view knows the runs that ended until then.
    known: Time,
}

impl Sought {
    /// A run was found.
    fn find(&mut self, ended: &Ended) {
        if ended.started < self.until && ended.ended >= self.from {
            self.missing = self.missing.saturating_sub(1);
        }
    }
}

/// A window whose events are read.
struct Window {
    drawn: Drawn,
    sought: Option<Sought>,
}

impl Window {
    fn add(&mut self, ended: &Ended) {
        let Drawn { from, until, rows, runs, .. } = &mut self.drawn;
        let Some((_, row)) = ended.executor.and_then(|id| rows.get_mut(&id)) else { return };
        if let Some(sought) = &mut self.sought {
            sought.find(ended);
        }
        if ended.ended < *from || ended.started > *until {
            return;
        }
        let count = ended.run.count;
        row.runs += 1;
        row.tasks = row.tasks.saturating_add(count);
        if ended.outcome.status() != Status::Done {
            row.failed = row.failed.saturating_add(count);
        }
        let span = until.since(*from);
        let bins = row.ran_micros.len();
        let bin_at = |bin: usize| from.0 + (u128::from(span) * bin as u128 / bins as u128) as u64;
        let place = |at: Time| {
            let place = u128::from(at.since(*from)) * bins as u128 / u128::from(span.max(1));
            (place as usize).min(bins - 1)
        };
        for bin in place(ended.started)..=place(ended.ended) {
            let begins = bin_at(bin).max(ended.started.0);
            let ends = bin_at(bin + 1).min(ended.ended.0);
            row.ran_micros[bin] += u128::from(ends.saturating_sub(begins)) * u128::from(count);
        }
        match runs {
            Some(shown) if shown.len() < RUNS_SHOWN_MAX => shown.push(ended.clone()),
            _ => *runs = None,
        }
    }

    /// Whether all runs that are known have been found: there is nothing more to read.
    fn is_whole(&mut self) -> bool {
        let Some(sought) = self.sought.as_ref().filter(|sought| sought.missing == 0) else {
            return false;
        };
        self.drawn.read = self.drawn.read.max(sought.known);
        true
    }

    /// Reads events into the window: those of it, and as long again, in which tasks end that
    /// began in it, or longer if it is known that more of them end.
    async fn read(
        &mut self,
        client: &Client,
        mut next: Option<(u64, u64)>,
    ) -> Result<(), ClientError> {
        if self.is_whole() {
            return Ok(());
        }
        let enough = self.drawn.until.after(self.drawn.span());
        let begins = self.sought.as_ref().map_or(self.drawn.from, |sought| sought.from);
        for answers in 0..READ_ANSWERS_MAX {
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
                let seeks = self.sought.is_some() && answers < SOUGHT_ANSWERS_MAX;
                if block.first > enough && !seeks {
                    return Ok(());
                }
                self.drawn.read = self.drawn.read.max(block.last);
                // What ended before the window is of no use in it.
                if block.repeats || block.last < begins {
                    continue;
                }
                block.each(|event| {
                    if let What::Ended(ended) = &event.what {
                        self.add(ended);
                    }
                });
                if self.is_whole() {
                    return Ok(());
                }
            }
            if is_end {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// Whether a window is drawn from what is kept in memory, rather than from `bytes` of events.
/// Tasks that can be shown one by one are read. So are windows that events show more finely,
/// unless this takes long.
fn is_drawn_from_memory(view: &View, bytes: usize) -> bool {
    let runs = view.rows.iter().fold(0, |all: u64, row| all.saturating_add(row.runs));
    let bins = view.rows.first().map_or(0, |row| row.ran_micros.len());
    let bins_min = if bytes > FEW_BYTES { BINS_COARSE_MIN } else { BINS_MIN };
    runs > RUNS_SHOWN_MAX as u64 && bins >= bins_min
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
        let mut known = dashboard.known();
        let tally = known.history.tally();
        let (first, last) = tally.span.unwrap_or_default();
        let from = from.unwrap_or(first);
        let until = until.unwrap_or(last).max(from.after(WINDOW_MICROS_MIN));
        // Those that are here come first.
        let is_here = |(id, _): &(&ExecutorId, _)| tally.executors.contains_key(*id);
        let (mut all, gone): (Vec<_>, Vec<_>) = known.names.executors().partition(is_here);
        all.extend(gone);
        let executors = all.len();
        let chosen = all.iter().skip(row as usize).take(count as usize);
        let names: Vec<(ExecutorId, String)> =
            chosen.map(|(id, name)| (**id, name.to_string())).collect();
        let bytes = known.index.bytes(from, until.after(until.since(from)));
        let ids: Vec<ExecutorId> = names.iter().map(|(id, _)| *id).collect();
        let view = known.densities.view(&ids, from, until, BINS as u64);
        // Events that are not in memory yet may be of this window.
        let is_known = until <= last;
        match view {
            Some(view) if is_drawn_from_memory(&view, bytes) => {
                let rows = names.into_iter().zip(view.rows);
                let rows = rows.map(|((id, name), row)| (id, (name, row))).collect();
                let (from, until) = (view.from, view.until);
                let drawn = Drawn { from, until, rows, runs: None, read: last };
                if is_known {
                    return Ok(drawn.json(executors));
                }
                (Window { drawn, sought: None }, known.next, executors)
            }
            view => {
                let sought = view.filter(|_| is_known).map(|view| {
                    let missing =
                        view.rows.iter().fold(0, |all: u64, row| all.saturating_add(row.runs));
                    Sought { from: view.from, until: view.until, missing, known: last }
                });
                let none = || Row { ran_micros: vec![0; BINS], ..Row::default() };
                let rows = names.into_iter().map(|(id, name)| (id, (name, none()))).collect();
                let drawn = Drawn { from, until, rows, runs: Some(Vec::new()), read: Time(0) };
                let next = known.index.before(sought.as_ref().map_or(from, |sought| sought.from));
                (Window { drawn, sought }, next, executors)
            }
        }
    };
    window.read(client, next).await.map_err(refused)?;
    Ok(window.drawn.json(executors))
}
