//! The snapshots that replace the journal: begun when the core says so and there
//! is room, written by a thread of their own, and tried again with pauses.

use super::Log;
use super::pieces::pieces;
use super::room::{Gauge, Loan};
use crate::journal::{Journal, Snapshot, SnapshotError, SnapshotOptions};
use crate::pages::Written;
use falkon_core::dispatch::{Compaction as Why, Dispatcher, JournalSize, Record};
use falkon_core::limits::SNAPSHOT_RESERVE_BYTES;
use falkon_wire::codec::Wire;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

/// Pause after a snapshot that failed; each failure in a row doubles it.
const RETRY_MS_MIN: u64 = 10_000;
/// The longest such pause.
const RETRY_MS_MAX: u64 = 600_000;
/// Growth of the journal after which a snapshot that failed is tried again,
/// unless the longest pause has passed, or room is short, in bytes.
const RETRY_AFTER_BYTES: u64 = 8 << 20;
/// Least time between snapshots for want of room, and how many times as long as
/// the last one took.
const APART_MS_MIN: u64 = 1000;
const APART_RATIO: u32 = 10;
/// Pause before it is looked again whether there is room for a snapshot.
const LOOK_MS: u64 = 100;
/// Bytes that a snapshot leaves to the journal where room is short: it gives
/// back more than it takes.
const SHORT_RESERVE_BYTES: u64 = 1 << 20;
/// Bytes that a snapshot may take beyond its foreseen size.
const UNFORESEEN_BYTES: u64 = 64 << 10;
/// Room, beyond what the last attempt had to spare, with which a snapshot that
/// failed is tried again at once where room is short.
const RETRY_SPARE_BYTES: u64 = 1 << 20;

/// The snapshots of one journal.
#[derive(Debug, Default)]
pub(super) struct Compaction {
    running: Option<Running>,
    waits: Option<Wait>,
    /// Failures in a row.
    failures: u32,
    /// The lack of room for a snapshot has been logged.
    complained: bool,
}

/// A snapshot that is being written.
#[derive(Debug)]
struct Running {
    begun: Instant,
    why: Why,
    /// Room that it was to have to spare.
    spare_bytes: u64,
    outcome: Receiver<bool>,
}

/// Until when no snapshot is begun.
#[derive(Debug, Clone, Copy)]
struct Wait {
    until: Instant,
    /// The bytes written since the last snapshot at that time at least, unless
    /// room is short.
    bytes: u64,
    /// Room to spare with which there is no more waiting.
    spare_bytes: Option<u64>,
}

/// The sources of a snapshot.
pub(super) struct Parts<'a> {
    pub(super) journal: &'a mut Journal,
    pub(super) gauge: &'a Gauge,
    pub(super) pages: Option<Arc<Written>>,
    pub(super) core: &'a Dispatcher,
    pub(super) log: &'a Log,
    /// Appended records cannot be committed: the snapshot replaces them too.
    pub(super) is_blocked: bool,
}

impl Compaction {
    /// How the snapshot that was being written has ended, if it just has.
    pub(super) fn ended(&mut self, journal: &Journal, gauge: &Gauge) -> Option<bool> {
        let running = self.running.as_ref()?;
        let ended = match running.outcome.try_recv() {
            Err(TryRecvError::Empty) => return None,
            Ok(ended) => ended,
            Err(TryRecvError::Disconnected) => false,
        };
        gauge.ask();
        let now = Instant::now();
        if ended {
            self.failures = 0;
            let apart = APART_RATIO * now.duration_since(running.begun);
            let apart = apart.max(Duration::from_millis(APART_MS_MIN));
            self.waits = match running.why {
                Why::Grown => None,
                Why::Tight | Why::Short => {
                    Some(Wait { until: now + apart, bytes: 0, spare_bytes: None })
                }
            };
        } else {
            self.fail(now, journal.disk_use().since_snapshot_bytes, running.spare_bytes);
        }
        self.running = None;
        Some(ended)
    }

    /// Begins a snapshot if one is due and there is room for it. Returns whether
    /// it was begun.
    pub(super) fn begin_if_due(&mut self, parts: Parts<'_>) -> bool {
        let Parts { journal, gauge, pages, core, log, is_blocked } = parts;
        let disk = journal.disk_use();
        let size = JournalSize {
            snapshot_bytes: disk.snapshot_bytes,
            since_snapshot_bytes: disk.since_snapshot_bytes,
        };
        let now = Instant::now();
        if self.running.is_some() || disk.snapshot_running {
            return false;
        }
        let Some(why) = core.compaction(size) else {
            self.complained = false;
            return false;
        };
        let measured = gauge.last();
        let needed = core.snapshot_bytes();
        let (leave, reserve) = match why {
            Why::Short => (SHORT_RESERVE_BYTES, measured.reserve_bytes),
            Why::Tight | Why::Grown => (SNAPSHOT_RESERVE_BYTES, 0),
        };
        let room = measured.free_bytes.saturating_add(reserve);
        let spare_bytes = room.saturating_sub(needed);
        if self.must_wait(now, why, size.since_snapshot_bytes, spare_bytes) {
            return false;
        }
        let wanted = needed.saturating_add(leave);
        if room < wanted && reserve < needed.saturating_add(UNFORESEEN_BYTES) {
            if !std::mem::replace(&mut self.complained, true) {
                log(&format!(
                    "the journal is not compacted for now: that may need {wanted} bytes, and \
                     {room} are free; make room, or destroy instances that are over"
                ));
            }
            let until = now + Duration::from_millis(LOOK_MS);
            self.waits = Some(Wait { until, bytes: 0, spare_bytes: None });
            return false;
        }
        self.complained = false;
        let is_lent = measured.free_bytes < needed.saturating_add(SNAPSHOT_RESERVE_BYTES);
        let loan = is_lent.then(|| gauge.lend()).flatten();
        let options = SnapshotOptions {
            // Nothing else is written meanwhile.
            leave_bytes: if is_blocked { 0 } else { leave },
            reserve: loan.as_ref().map(Loan::path),
            of_appended: is_blocked,
        };
        match journal.begin_snapshot_with(options) {
            Ok(snapshot) => {
                let (ended, outcome) = channel();
                self.running = Some(Running { begun: Instant::now(), why, spare_bytes, outcome });
                let (records, log) = (core.snapshot(), log.clone());
                std::thread::spawn(move || {
                    let outcome = write(loan, snapshot, records, pages.as_deref());
                    if let Err(error) = &outcome {
                        log(&format!("cannot compact the journal for now: {error}"));
                    }
                    // The dispatcher may have ended meanwhile.
                    let _ = ended.send(outcome.is_ok());
                });
                true
            }
            Err(error) => {
                self.put_off(now, size.since_snapshot_bytes, spare_bytes, &error, log);
                false
            }
        }
    }

    fn must_wait(&mut self, now: Instant, why: Why, bytes: u64, spare_bytes: u64) -> bool {
        let Some(wait) = self.waits else { return false };
        let longest = Duration::from_millis(RETRY_MS_MAX);
        let has_grown = bytes >= wait.bytes || why == Why::Short;
        let has_room = why == Why::Short && wait.spare_bytes.is_some_and(|has| spare_bytes >= has);
        let is_over = has_room || now >= wait.until && (has_grown || now >= wait.until + longest);
        if is_over {
            self.waits = None;
        }
        !is_over
    }

    fn put_off(
        &mut self,
        now: Instant,
        bytes: u64,
        spare_bytes: u64,
        error: &SnapshotError,
        log: &Log,
    ) {
        let seconds = self.fail(now, bytes, spare_bytes).as_secs();
        log(&format!("cannot compact the journal, again in {seconds} s: {error}"));
    }

    fn fail(&mut self, now: Instant, bytes: u64, spare_bytes: u64) -> Duration {
        let millis = (RETRY_MS_MIN << self.failures.min(16)).min(RETRY_MS_MAX);
        self.failures += 1;
        let pause = Duration::from_millis(millis);
        let bytes = bytes.saturating_add(RETRY_AFTER_BYTES);
        let spare_bytes = Some(spare_bytes.saturating_add(RETRY_SPARE_BYTES));
        self.waits = Some(Wait { until: now + pause, bytes, spare_bytes });
        pause
    }
}

/// Writes a snapshot; the pages that it refers to are on stable storage before
/// it counts. The loan is given back after the snapshot has ended, however it
/// does: the snapshot is dropped first.
fn write(
    loan: Option<Loan>,
    mut snapshot: Snapshot,
    records: Vec<Record>,
    pages: Option<&Written>,
) -> Result<(), Box<dyn std::error::Error>> {
    for piece in records.iter().flat_map(|record| pieces(record.to_bytes())) {
        snapshot.append(&[&piece])?;
    }
    if let Some(pages) = pages {
        pages.sync()?;
    }
    match loan {
        Some(loan) => {
            // The log waits for the rest.
            snapshot.sync()?;
            loan.end(|| snapshot.finish())?
        }
        None => snapshot.finish()?,
    };
    Ok(())
}
