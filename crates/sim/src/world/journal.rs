//! A dispatcher's journal, which survives its crashes, on a disk that may be
//! full.

use crate::time::Nanos;
use falkon_core::dispatch::{Dispatcher, Record};
use falkon_wire::codec::Wire;

/// Records before the first snapshot; later, as many times the last one's.
const SNAPSHOT_RECORDS_MIN: usize = 64;
const SNAPSHOT_GROWTH: usize = 3;
/// How long a snapshot is being written beside the running dispatcher.
const SNAPSHOT_NANOS: u64 = 200_000_000;
/// Pause before a journal that could not be written is tried again, as the
/// dispatcher does.
const RETRY: Nanos = Nanos(500_000_000);

type Bytes = Box<[u8]>;

/// A snapshot that is being written.
#[derive(Debug)]
struct Snapshot {
    done: Nanos,
    records: Vec<Bytes>,
    /// Records of the journal that it replaces.
    replaces: usize,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Journal {
    is_kept: bool,
    records: Vec<Bytes>,
    /// Not written yet: nothing that depends on it has been sent.
    pending: Vec<Bytes>,
    snapshot: Option<Snapshot>,
    /// Records with which the next snapshot is due.
    due: usize,
    full_until: Nanos,
    /// Until then there is room for no more than the journal itself.
    tight_until: Nanos,
}

impl Journal {
    pub(super) fn new(is_kept: bool) -> Journal {
        Journal { is_kept, due: SNAPSHOT_RECORDS_MIN, ..Journal::default() }
    }

    /// The disk is full until then; or nearly, so that what is left is kept for
    /// the journal, and neither snapshots nor pages of results are written.
    pub(super) fn fill(&mut self, until: Nanos, nearly: bool) {
        self.tight_until = self.tight_until.max(until);
        if !nearly {
            self.full_until = self.full_until.max(until);
        }
    }

    /// Whether there is room for no more than the journal, if for that.
    pub(super) fn is_tight(&self, now: Nanos) -> bool {
        self.tight_until > now
    }

    fn is_full(&self, now: Nanos) -> bool {
        self.full_until > now
    }

    pub(super) fn append(&mut self, record: &Record) {
        if self.is_kept {
            self.pending.push(record.to_bytes().into());
        }
    }

    /// Writes what was appended. Gives the time at which to try again if the
    /// disk is full.
    pub(super) fn commit(&mut self, now: Nanos) -> Result<(), Nanos> {
        if !self.pending.is_empty() && self.is_full(now) {
            return Err(self.full_until.min(now.after(RETRY)));
        }
        self.records.append(&mut self.pending);
        Ok(())
    }

    /// Replaces the journal by a snapshot when it has grown enough; to be called
    /// when all is written and the core has nothing more to do.
    pub(super) fn compact(&mut self, now: Nanos, core: &Dispatcher) {
        self.finish_snapshot(now);
        if !self.is_kept || self.snapshot.is_some() || self.records.len() < self.due {
            return;
        }
        if self.is_tight(now) {
            self.put_off();
            return;
        }
        let records = core.snapshot().iter().map(|record| record.to_bytes().into()).collect();
        let done = now.after(Nanos(SNAPSHOT_NANOS));
        self.snapshot = Some(Snapshot { done, records, replaces: self.records.len() });
    }

    fn put_off(&mut self) {
        self.due = self.records.len().max(SNAPSHOT_RECORDS_MIN) * SNAPSHOT_GROWTH;
    }

    fn finish_snapshot(&mut self, now: Nanos) {
        let Some(snapshot) = self.snapshot.take_if(|snapshot| snapshot.done <= now) else { return };
        if self.tight_until <= snapshot.done {
            let later = self.records.split_off(snapshot.replaces);
            self.records = snapshot.records;
            self.records.extend(later);
        }
        self.put_off();
    }

    /// The process is gone: of what was not committed a first part may have been
    /// written.
    pub(super) fn crash(&mut self, now: Nanos, written: f64) {
        self.finish_snapshot(now);
        self.snapshot = None;
        let count = match self.is_full(now) {
            true => 0,
            false => (self.pending.len() as f64 * written) as usize,
        };
        let pending = std::mem::take(&mut self.pending);
        self.records.extend(pending.into_iter().take(count));
    }

    /// The records that a dispatcher reads when it starts.
    pub(super) fn records(&self) -> impl Iterator<Item = &[u8]> {
        self.records.iter().map(|record| &**record)
    }
}
