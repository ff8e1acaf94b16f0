//! Room on the disk of the journal: what is taken in while there is little of
//! it, and when the journal is compacted for it.
//!
//! A snapshot needs room before it gives any back. So submissions are refused
//! while the disk has room for little more than a snapshot, and no task is
//! dispatched while it has no more than that. What frees goes on: results of
//! tasks that run, acknowledgements, cancellations, and the ends of instances.

use super::{Dispatcher, RequestError};
use crate::limits::{
    COMPACTION_GAIN_BYTES_MIN, EXECUTORS_COUNTED_MICROS, SNAPSHOT_AFTER_BYTES_MIN,
    SNAPSHOT_AFTER_SNAPSHOTS, SNAPSHOT_RESERVE_BYTES, SUBMISSION_RESERVE_BYTES,
};
use crate::task::Time;
use std::sync::Arc;

/// What a run or a name takes in a snapshot at most, about.
const ENTRY_BYTES: u64 = 64;

/// The disk of a journal, as a shell has measured it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    /// The directory of the journal, as people know it.
    pub directory: Arc<str>,
    /// Bytes that may still be written there.
    pub free_bytes: u64,
    /// Bytes that are to be set aside for records that free room, and are not.
    pub missing_bytes: u64,
    /// The latest records could not be written.
    pub is_blocked: bool,
}

/// How long a journal is, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct JournalSize {
    /// The latest snapshot.
    pub snapshot_bytes: u64,
    /// Bytes written since then.
    pub since_snapshot_bytes: u64,
}

/// Why a journal is to be compacted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compaction {
    /// It has grown enough.
    Grown,
    /// The disk will soon have no room for a snapshot.
    Tight,
    /// A request was refused for want of room, or any would be: a snapshot may
    /// take what the journal itself has set aside.
    Short,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct JournalRoom {
    disk: Option<Disk>,
    /// What a snapshot needed at that time.
    snapshot_bytes: u64,
    /// Bytes accepted since then.
    accepted_bytes: u64,
    /// What a snapshot needed for executors and their tasks, and until when that is taken to
    /// be so: to count it visits all of them.
    executors: Option<(u64, Time)>,
    holds_dispatch: bool,
    /// A request was refused since then.
    has_refused: bool,
}

impl JournalRoom {
    /// Takes a measurement. Returns whether that begins or ends to hold dispatch
    /// up.
    fn measure(&mut self, disk: Disk, snapshot_bytes: u64) -> bool {
        let wanted = snapshot_bytes.saturating_add(SNAPSHOT_RESERVE_BYTES);
        let holds = disk.is_blocked || disk.free_bytes < wanted.saturating_add(disk.missing_bytes);
        self.disk = Some(disk);
        self.snapshot_bytes = snapshot_bytes;
        self.accepted_bytes = 0;
        self.has_refused = false;
        std::mem::replace(&mut self.holds_dispatch, holds) != holds
    }

    /// What a snapshot needs for executors, if that was counted lately and there is much room.
    fn counted(&self, disk: &Disk, now: Time) -> Option<u64> {
        let (bytes, until) = self.executors?;
        let is_ample = disk.free_bytes / 4 > self.wanted_bytes(0) && !disk.is_blocked;
        (is_ample && now < until).then_some(bytes)
    }

    pub(super) fn holds_dispatch(&self) -> bool {
        self.holds_dispatch
    }

    /// Bytes that must be free for a request that adds `bytes`: they are written
    /// once, and once more with the next snapshot.
    fn wanted_bytes(&self, bytes: u64) -> u64 {
        let missing = self.disk.as_ref().map_or(0, |disk| disk.missing_bytes);
        let added = self.accepted_bytes.saturating_add(bytes).saturating_mul(2);
        [SNAPSHOT_RESERVE_BYTES, SUBMISSION_RESERVE_BYTES, missing, added]
            .into_iter()
            .fold(self.snapshot_bytes, u64::saturating_add)
    }

    /// Whether nothing that adds anything is accepted.
    fn is_short(&self) -> bool {
        let disk = self.disk.as_ref();
        disk.is_some_and(|disk| disk.is_blocked || disk.free_bytes < self.wanted_bytes(0))
    }

    /// Whether somebody waits for room: a request was refused since the disk was
    /// measured, or any would be.
    fn is_awaited(&self) -> bool {
        self.has_refused || self.is_short()
    }

    /// Takes a request in that adds so many bytes.
    pub(super) fn accept(&mut self, bytes: u64) -> Result<(), RequestError> {
        let wanted_bytes = self.wanted_bytes(bytes);
        match &self.disk {
            Some(disk) if disk.is_blocked || disk.free_bytes < wanted_bytes => {
                self.has_refused = true;
                Err(RequestError::NoRoom {
                    directory: disk.directory.clone(),
                    free_bytes: disk.free_bytes,
                    wanted_bytes,
                })
            }
            _ => {
                self.accepted_bytes = self.accepted_bytes.saturating_add(bytes);
                Ok(())
            }
        }
    }

    fn compaction(&self, journal: JournalSize) -> Option<Compaction> {
        let JournalSize { snapshot_bytes, since_snapshot_bytes: since } = journal;
        let grown = SNAPSHOT_AFTER_BYTES_MIN.max(SNAPSHOT_AFTER_SNAPSHOTS * snapshot_bytes);
        let Some(disk) = &self.disk else { return (since > grown).then_some(Compaction::Grown) };
        let gain = snapshot_bytes.saturating_add(since).saturating_sub(self.snapshot_bytes);
        let needed = self.snapshot_bytes.saturating_add(SNAPSHOT_RESERVE_BYTES);
        let is_tight = disk.free_bytes < needed.saturating_mul(2);
        // Records that cannot be written are in the snapshot instead.
        let is_worth_it = disk.is_blocked || since.max(gain) >= COMPACTION_GAIN_BYTES_MIN;
        if self.is_awaited() && is_worth_it {
            Some(Compaction::Short)
        } else if is_tight && since >= COMPACTION_GAIN_BYTES_MIN.max(snapshot_bytes / 4) {
            Some(Compaction::Tight)
        } else {
            (since > grown).then_some(Compaction::Grown)
        }
    }
}

impl Dispatcher {
    /// The journal's disk was measured.
    pub(super) fn disk_measured(&mut self, disk: Disk) {
        let counted = self.journal_room.counted(&disk, self.now);
        let executors = counted.unwrap_or_else(|| self.snapshot_bytes_of_executors());
        if counted.is_none() {
            let until = self.now.after(EXECUTORS_COUNTED_MICROS);
            self.journal_room.executors = Some((executors, until));
        }
        let snapshot_bytes = executors + self.snapshot_bytes_of_instances();
        if self.journal_room.measure(disk, snapshot_bytes) {
            self.mark_all_runnable();
        }
    }

    /// What a snapshot takes at most, in bytes, about.
    #[must_use]
    pub fn snapshot_bytes(&self) -> u64 {
        self.snapshot_bytes_of_instances() + self.snapshot_bytes_of_executors()
    }

    /// What a snapshot takes for all but the executors and their tasks.
    fn snapshot_bytes_of_instances(&self) -> u64 {
        let instances = self.instances.values().map(|instance| {
            let tasks = &instance.tasks;
            let runs = tasks.ended().run_count()
                + tasks.failed().run_count()
                + tasks.cancelled().run_count()
                + instance.retries.run_count();
            let entries = runs as u64 + 4 * instance.results.pages().len() as u64;
            let held = instance.results.bytes() + instance.queued_bytes + instance.values.bytes;
            held + ENTRY_BYTES * entries
        });
        instances.sum::<u64>() + self.placement.remembered_bytes()
    }

    /// What a snapshot takes for the executors and their tasks. Visits all of them.
    fn snapshot_bytes_of_executors(&self) -> u64 {
        let assigned = self.fleet.iter().map(|executor| executor.in_flight.len() as u64);
        ENTRY_BYTES * (self.fleet.names_len() as u64 + assigned.sum::<u64>())
    }

    /// Whether a journal of that size is to be replaced by a
    /// [snapshot](Dispatcher::snapshot) now, and why.
    #[must_use]
    pub fn compaction(&self, journal: JournalSize) -> Option<Compaction> {
        self.journal_room.compaction(journal)
    }

    /// Bytes that pages of results leave free on the journal's disk: they can
    /// wait, and a snapshot and submissions are to have room.
    #[must_use]
    pub fn reserved_bytes(&self) -> u64 {
        self.journal_room.wanted_bytes(0)
    }

    /// Whether the journal's disk is to be measured again soon: a request was
    /// refused, however much it wanted, and its client will ask again.
    #[must_use]
    pub fn awaits_room(&self) -> bool {
        self.journal_room.is_awaited()
    }

    /// Whether submissions are refused as the journal's disk has too little room.
    #[must_use]
    pub fn lacks_room(&self) -> bool {
        self.journal_room.is_short()
    }
}
