//! How much ran on each executor over time, in bounded memory: a window of any length is drawn
//! from it, and no event is read again.
//!
//! Time is divided into cells of one length. The lane of an executor has the cells in which
//! tasks started there or ended, so a task costs two cells at most, however long it ran. What
//! lanes say of a window that begins and ends with cells is exact: counts, and the time for
//! which tasks ran in each part of it. When lanes take more bytes than they may, every two
//! neighbouring cells become one, which loses resolution and no count.

mod lane;

use super::{Ended, Event, What};
use crate::limits::{DENSITIES_BYTES_MAX, DENSITY_EXECUTORS_MAX};
use crate::result::Status;
use crate::task::{ExecutorId, Time};
use lane::{Cell, Edges, Lane};
use std::collections::BTreeMap;

/// Cells are that long at first, as a power of two of microseconds.
const CELL_SHIFT_MIN: u32 = 8;
/// Cells are no longer than that.
const CELL_SHIFT_MAX: u32 = 62;
/// Cells that wait to be merged with the others of their lanes, which is cheap for many at a time.
const FRESH_CELLS_MAX: usize = 16_384;
/// Cells of one lane that wait: a further one may have to be inserted between them.
const LANE_FRESH_CELLS_MAX: usize = 512;

/// How much ran on each executor over time.
#[derive(Debug, Clone)]
pub struct Densities {
    bytes_max: usize,
    /// Cells have `1 << shift` microseconds.
    shift: u32,
    lanes: BTreeMap<ExecutorId, Lane>,
    /// Bytes of the lanes, without their fresh cells.
    bytes: usize,
    /// Fresh cells of the lanes.
    fresh: usize,
    /// Executors up to this one have no lane any more, or never had one.
    dropped: Option<ExecutorId>,
}

/// What ran in a window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// When its first bin begins: at the beginning of a cell.
    pub from: Time,
    /// When its last bin ends; what started then is not in it.
    pub until: Time,
    /// Microseconds of a bin: a whole number of cells.
    pub bin_micros: u64,
    /// A row for each executor that was asked for.
    pub rows: Vec<Row>,
}

/// What ran on an executor in a window, of all tasks that have ended since.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Row {
    /// Runs of tasks that were running at some time in it.
    pub runs: u64,
    /// The tasks of these runs.
    pub tasks: u64,
    /// The tasks of these runs that did not succeed.
    pub failed: u64,
    /// Microseconds for which tasks ran, by bin.
    pub ran_micros: Vec<u128>,
}

impl Default for Densities {
    fn default() -> Densities {
        Densities::bounded(DENSITIES_BYTES_MAX)
    }
}

impl Densities {
    /// Nothing so far; lanes will take `bytes_max` bytes or less.
    fn bounded(bytes_max: usize) -> Densities {
        Densities {
            bytes_max,
            shift: CELL_SHIFT_MIN,
            lanes: BTreeMap::new(),
            bytes: 0,
            fresh: 0,
            dropped: None,
        }
    }

    /// Takes in the next event. An executor's first one is that it joined.
    pub fn add(&mut self, event: &Event) {
        match &event.what {
            What::ExecutorJoined { executor, .. } => self.join(*executor),
            What::ExecutorGone { executor, .. } => {
                if let Some(lane) = self.lanes.get_mut(executor) {
                    lane.is_gone = true;
                }
            }
            // Executors come back under other numbers.
            What::DispatcherStarted { .. } => {
                self.lanes.values_mut().for_each(|lane| lane.is_gone = true);
            }
            What::Ended(ended) => self.ended(ended),
            _ => {}
        }
    }

    /// Gives an executor a lane, in place of one that has gone if there are too many.
    fn join(&mut self, executor: ExecutorId) {
        if self.dropped.is_some_and(|dropped| executor <= dropped) {
            return;
        }
        if self.lanes.len() >= DENSITY_EXECUTORS_MAX && !self.lanes.contains_key(&executor) {
            let gone = self.lanes.iter().find(|(_, lane)| lane.is_gone).map(|(id, _)| *id);
            let Some(gone) = gone else { return };
            if let Some(lane) = self.lanes.remove(&gone) {
                self.bytes -= lane.bytes();
                self.fresh -= lane.fresh_cells();
            }
            self.dropped = self.dropped.max(Some(gone));
        }
        if let Some(lane) = self.lanes.get_mut(&executor) {
            lane.is_gone = false;
            return;
        }
        let lane = Lane::default();
        self.bytes += lane.bytes();
        self.lanes.insert(executor, lane);
    }

    fn ended(&mut self, ended: &Ended) {
        let Some(lane) = ended.executor.and_then(|id| self.lanes.get_mut(&id)) else { return };
        let tasks = ended.run.count;
        let failed = if ended.outcome.status() == Status::Done { 0 } else { tasks };
        let shift = self.shift;
        let edges = |at: Time| {
            let micros = at.0 & ((1 << shift) - 1);
            Edges { runs: 1, tasks, failed, micros: u128::from(micros) * u128::from(tasks) }
        };
        let started = ended.started.min(ended.ended);
        let before = lane.fresh_cells();
        lane.fresh(started.0 >> shift).started.add(&edges(started));
        lane.fresh(ended.ended.0 >> shift).ended.add(&edges(ended.ended));
        self.fresh += lane.fresh_cells() - before;
        if lane.fresh_cells() > LANE_FRESH_CELLS_MAX {
            self.fresh -= lane.fresh_cells();
            self.bytes -= lane.bytes();
            lane.merge();
            self.bytes += lane.bytes();
        }
        if self.fresh > FRESH_CELLS_MAX || self.bytes > self.bytes_max {
            self.merge();
        }
    }

    /// Merges all fresh cells, and makes cells longer until lanes fit into their bound.
    fn merge(&mut self) {
        self.fresh = 0;
        for lane in self.lanes.values_mut().filter(|lane| lane.fresh_cells() > 0) {
            self.bytes -= lane.bytes();
            lane.merge();
            self.bytes += lane.bytes();
        }
        while self.bytes > self.bytes_max && self.shift < CELL_SHIFT_MAX {
            self.bytes = 0;
            for lane in self.lanes.values_mut() {
                lane.coarsen(self.shift);
                self.bytes += lane.bytes();
            }
            self.shift += 1;
        }
    }

    /// What ran on executors in a window that has the times `from` and `until` in it: in cells,
    /// or in bins of several cells if there are more than `bins_max`. `None` if an executor has
    /// no lane: only events say what ran there.
    #[must_use]
    pub fn view(
        &mut self,
        executors: &[ExecutorId],
        from: Time,
        until: Time,
        bins_max: u64,
    ) -> Option<View> {
        self.merge();
        let [from, until] = [from, until.max(from)].map(|at| at.0.min(1 << CELL_SHIFT_MAX));
        let first = from >> self.shift;
        let cells = (until >> self.shift) - first + 1;
        let wide = cells.div_ceil(bins_max.max(1));
        let bins = cells.div_ceil(wide);
        let span = Span { first, wide, bins, shift: self.shift };
        let lanes = executors.iter().map(|id| self.lanes.get(id).map(|lane| span.row(lane)));
        let rows = lanes.collect::<Option<Vec<Row>>>()?;
        Some(View {
            from: Time(span.begins(0)),
            until: Time(span.begins(bins)),
            bin_micros: wide << self.shift,
            rows,
        })
    }
}

/// Bins of cells in a row.
#[derive(Debug, Clone, Copy)]
struct Span {
    /// The number of the first cell.
    first: u64,
    /// Cells of a bin.
    wide: u64,
    bins: u64,
    shift: u32,
}

impl Span {
    /// When a bin begins, or the one before it ends.
    fn begins(&self, bin: u64) -> u64 {
        (self.first + bin * self.wide) << self.shift
    }

    /// What a lane has of these bins.
    fn row(&self, lane: &Lane) -> Row {
        let end = |bin: u64| self.first + (bin + 1) * self.wide;
        let mut cells = lane.cells().peekable();
        let mut before = Cell::default();
        while let Some((_, cell)) = cells.next_if(|(number, _)| *number < self.first) {
            before.add(&cell);
        }
        let mut running = before.started.tasks.saturating_sub(before.ended.tasks);
        let mut started = before.started;
        let mut ran_micros = Vec::new();
        for bin in 0..self.bins {
            let ends = self.begins(bin + 1);
            let mut ran = u128::from(running) * u128::from(ends - self.begins(bin));
            let mut too_much = 0;
            let mut inside = Cell::default();
            while let Some((number, cell)) = cells.next_if(|(number, _)| *number < end(bin)) {
                let rest = ends - (number << self.shift);
                ran += cell.started.micros_until(rest);
                too_much += cell.ended.micros_until(rest);
                inside.add(&cell);
            }
            ran_micros.push(ran.saturating_sub(too_much));
            running = (running + inside.started.tasks).saturating_sub(inside.ended.tasks);
            started.add(&inside.started);
        }
        // Whatever has started and had not ended before the window was running in it.
        let Edges { runs, tasks, failed, .. } = started;
        Row {
            runs: runs.saturating_sub(before.ended.runs),
            tasks: tasks.saturating_sub(before.ended.tasks),
            failed: failed.saturating_sub(before.ended.failed),
            ran_micros,
        }
    }
}

#[cfg(test)]
mod tests;
