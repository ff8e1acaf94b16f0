//! The cells of an executor, as bytes: some eight for each.

/// Tasks that started in a cell, or ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Edges {
    /// Runs of tasks.
    pub(super) runs: u64,
    pub(super) tasks: u64,
    /// Those that did not end well.
    pub(super) failed: u64,
    /// Microseconds from the cell's beginning, of all tasks together.
    pub(super) micros: u128,
}

impl Edges {
    pub(super) fn add(&mut self, other: &Edges) {
        self.runs = self.runs.saturating_add(other.runs);
        self.tasks = self.tasks.saturating_add(other.tasks);
        self.failed = self.failed.saturating_add(other.failed);
        self.micros = self.micros.saturating_add(other.micros);
    }

    /// Microseconds from these edges to a time `micros` behind the cell's beginning, of all
    /// tasks together.
    pub(super) fn micros_until(&self, micros: u64) -> u128 {
        (u128::from(self.tasks) * u128::from(micros)).saturating_sub(self.micros)
    }

    /// The same edges, of a cell that begins earlier by `micros`.
    fn later(self, micros: u64) -> Edges {
        let micros = u128::from(self.tasks) * u128::from(micros);
        Edges { micros: self.micros.saturating_add(micros), ..self }
    }
}

/// What happened in a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Cell {
    pub(super) started: Edges,
    pub(super) ended: Edges,
}

impl Cell {
    pub(super) fn add(&mut self, other: &Cell) {
        self.started.add(&other.started);
        self.ended.add(&other.ended);
    }
}

/// Cells of a chunk.
const CHUNK_CELLS_MAX: usize = 64;
/// Bytes of a chunk beside its cells', and of a lane beside its chunks', about.
const CHUNK_BYTES: usize = size_of::<Chunk>() + 16;
const LANE_BYTES: usize = 96;

/// Fresh cells that are looked at one by one.
const NEAR_CELLS: usize = 4;

/// Cells in a row, which are decoded together.
#[derive(Debug, Clone)]
struct Chunk {
    /// The number of its first cell.
    first: u64,
    bytes: Box<[u8]>,
}

/// The cells of an executor in which something happened, in order.
#[derive(Debug, Clone)]
pub(super) struct Lane {
    chunks: Vec<Chunk>,
    bytes: usize,
    /// Cells that are to be merged into the chunks, in order.
    fresh: Vec<(u64, Cell)>,
    /// The executor has gone.
    pub(super) is_gone: bool,
}

impl Default for Lane {
    fn default() -> Lane {
        Lane { chunks: Vec::new(), bytes: LANE_BYTES, fresh: Vec::new(), is_gone: false }
    }
}

impl Lane {
    /// The bytes that it takes, about, without its fresh cells.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many fresh cells there are.
    pub(super) fn fresh_cells(&self) -> usize {
        self.fresh.len()
    }

    /// The fresh cell of a number.
    pub(super) fn fresh(&mut self, number: u64) -> &mut Cell {
        // Tasks end in the last cells, and most have started shortly before.
        let last = self.fresh.iter().rev().take(NEAR_CELLS);
        let place = match last.take_while(|(at, _)| *at > number).count() {
            NEAR_CELLS => self.fresh.partition_point(|(at, _)| *at <= number),
            behind => self.fresh.len() - behind,
        };
        let known = place.checked_sub(1).filter(|known| self.fresh[*known].0 == number);
        let place = known.unwrap_or_else(|| {
            self.fresh.insert(place, (number, Cell::default()));
            place
        });
        &mut self.fresh[place].1
    }

    /// The cells and their numbers, without the fresh ones.
    pub(super) fn cells(&self) -> impl Iterator<Item = (u64, Cell)> + '_ {
        self.chunks.iter().flat_map(Chunk::cells)
    }

    /// Adds the fresh cells to the others.
    pub(super) fn merge(&mut self) {
        let old = std::mem::take(&mut self.chunks);
        self.chunks.reserve(old.len() + 1);
        let mut fresh = std::mem::take(&mut self.fresh).into_iter().peekable();
        let mut old = old.into_iter().peekable();
        let mut has_chunks = true;
        while has_chunks {
            let chunk = old.next();
            let next = old.peek().map(|next| next.first);
            has_chunks = next.is_some();
            let is_its = |(number, _): &(u64, Cell)| next.is_none_or(|next| *number < next);
            if let Some(chunk) = chunk {
                if !fresh.peek().is_some_and(is_its) {
                    self.chunks.push(chunk);
                    continue;
                }
                self.bytes -= CHUNK_BYTES + chunk.bytes.len();
                let mut kept = chunk.cells().peekable();
                let mut cells = Vec::with_capacity(2 * CHUNK_CELLS_MAX);
                while let Some((number, cell)) = fresh.next_if(is_its) {
                    while let Some(earlier) = kept.next_if(|(kept, _)| *kept < number) {
                        cells.push(earlier);
                    }
                    let mut cell = cell;
                    if let Some((_, same)) = kept.next_if(|(kept, _)| *kept == number) {
                        cell.add(&same);
                    }
                    cells.push((number, cell));
                }
                cells.extend(kept);
                self.push(&cells, has_chunks);
            } else {
                let cells: Vec<(u64, Cell)> = fresh.by_ref().collect();
                self.push(&cells, false);
            }
        }
    }

    /// Makes one cell of every two. They had `1 << shift` microseconds.
    pub(super) fn coarsen(&mut self, shift: u32) {
        let old = std::mem::take(&mut self.chunks);
        let mut cells: Vec<(u64, Cell)> = Vec::new();
        for (number, Cell { started, ended }) in old.iter().flat_map(Chunk::cells) {
            let later = (number & 1) << shift;
            let cell = Cell { started: started.later(later), ended: ended.later(later) };
            match cells.last_mut() {
                Some((last, same)) if *last == number >> 1 => same.add(&cell),
                _ => cells.push((number >> 1, cell)),
            }
        }
        drop(old);
        self.bytes = LANE_BYTES;
        self.push(&cells, false);
        self.chunks.shrink_to_fit();
    }

    /// Appends cells in chunks: full ones, unless cells between them are to come.
    fn push(&mut self, cells: &[(u64, Cell)], are_even: bool) {
        let count = cells.len().div_ceil(CHUNK_CELLS_MAX).max(1);
        let length = if are_even { cells.len().div_ceil(count) } else { CHUNK_CELLS_MAX };
        for cells in cells.chunks(length.max(1)) {
            let chunk = Chunk::of(cells);
            self.bytes += CHUNK_BYTES + chunk.bytes.len();
            self.chunks.push(chunk);
        }
    }
}

/// What a cell's first byte says: what there is of its starts; of its ends, two places further.
const HAS_EDGES: u8 = 1;
/// Runs have several tasks, or some that did not end well.
const HAS_MORE: u8 = 2;

impl Chunk {
    /// Writes cells, the first of which is there.
    fn of(cells: &[(u64, Cell)]) -> Chunk {
        let first = cells.first().map_or(0, |(number, _)| *number);
        let mut bytes = Vec::with_capacity(cells.len() * 12);
        let mut before = first;
        for (number, cell) in cells {
            write(&mut bytes, u128::from(number - before));
            before = *number;
            let has = |edges: &Edges| match edges {
                Edges { runs: 0, .. } => 0,
                Edges { runs, tasks, failed: 0, .. } if runs == tasks => HAS_EDGES,
                _ => HAS_EDGES | HAS_MORE,
            };
            bytes.push(has(&cell.started) | has(&cell.ended) << 2);
            for edges in [&cell.started, &cell.ended] {
                let has = has(edges);
                if has & HAS_EDGES != 0 {
                    write(&mut bytes, u128::from(edges.runs));
                    write(&mut bytes, edges.micros);
                }
                if has & HAS_MORE != 0 {
                    write(&mut bytes, u128::from(edges.tasks));
                    write(&mut bytes, u128::from(edges.failed));
                }
            }
        }
        Chunk { first, bytes: bytes.into() }
    }

    /// Reads the cells.
    fn cells(&self) -> impl Iterator<Item = (u64, Cell)> + '_ {
        let mut rest = &*self.bytes;
        let mut number = self.first;
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            number += read(&mut rest) as u64;
            let (has, behind) = rest.split_first()?;
            rest = behind;
            let mut cell = Cell::default();
            for (edges, has) in [(&mut cell.started, has & 3), (&mut cell.ended, has >> 2)] {
                if has & HAS_EDGES != 0 {
                    edges.runs = read(&mut rest) as u64;
                    edges.tasks = edges.runs;
                    edges.micros = read(&mut rest);
                }
                if has & HAS_MORE != 0 {
                    edges.tasks = read(&mut rest) as u64;
                    edges.failed = read(&mut rest) as u64;
                }
            }
            Some((number, cell))
        })
    }
}

/// Writes a number, seven bits in a byte.
fn write(bytes: &mut Vec<u8>, mut number: u128) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Reads a number that was written. Bytes are those of a writer: there is nothing to refuse.
fn read(bytes: &mut &[u8]) -> u128 {
    let (mut number, mut shift) = (0u128, 0);
    while let Some((byte, rest)) = bytes.split_first() {
        *bytes = rest;
        number |= u128::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            break;
        }
        shift += 7;
    }
    number
}
