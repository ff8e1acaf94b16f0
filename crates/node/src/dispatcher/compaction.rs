//! When the journal is replaced by a snapshot, and when that waits: it must not
//! take the disk's last space, nor be tried in each round after it has failed.

use super::Log;
use super::pieces::pieces;
use crate::journal::{Journal, SNAPSHOT_RESERVE_BYTES};
use crate::pages::Written;
use falkon_core::dispatch::{Dispatcher, Record};
use falkon_wire::codec::Wire;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

/// Pause after a snapshot that failed; each failure in a row doubles it.
const RETRY_MS_MIN: u64 = 10_000;
/// The longest such pause.
const RETRY_MS_MAX: u64 = 600_000;
/// Growth of the journal after which a snapshot that failed is tried again,
/// unless the longest pause has passed, in bytes.
const RETRY_AFTER_BYTES: u64 = 8 << 20;

/// The snapshots of one journal.
#[derive(Debug, Default)]
pub(super) struct Compaction {
    /// How the one that was begun last has ended, once it has.
    outcome: Option<Receiver<bool>>,
    waits: Option<Wait>,
    /// Failures in a row.
    failures: u32,
}

/// The pause after a failure.
#[derive(Debug, Clone, Copy)]
struct Wait {
    since: Instant,
    pause: Duration,
    /// What had been written then since the last snapshot.
    bytes: u64,
}

impl Compaction {
    /// Begins a snapshot if one is due and there is room for it. It is written
    /// by a thread of its own.
    pub(super) fn begin_if_due(
        &mut self,
        journal: &mut Journal,
        pages: Option<Arc<Written>>,
        core: &Dispatcher,
        log: &Log,
    ) {
        let disk = journal.disk_use();
        let now = Instant::now();
        if let Some(outcome) = &self.outcome {
            match outcome.try_recv() {
                Err(TryRecvError::Empty) => return,
                Ok(true) => self.failures = 0,
                Ok(false) | Err(TryRecvError::Disconnected) => {
                    self.fail(now, disk.since_snapshot_bytes);
                }
            }
            self.outcome = None;
        }
        if !disk.snapshot_due() || self.must_wait(now, disk.since_snapshot_bytes) {
            return;
        }
        let needed = core.snapshot_bytes().saturating_add(SNAPSHOT_RESERVE_BYTES);
        if let Some(free) = journal.free_bytes().filter(|free| *free < needed) {
            let pause = self.fail(now, disk.since_snapshot_bytes);
            log(&format!(
                "the journal is not compacted for now: that may need {needed} bytes, and {free} \
                 are free; trying again in {} s",
                pause.as_secs()
            ));
            return;
        }
        let snapshot = match journal.begin_snapshot() {
            Ok(snapshot) => snapshot,
            Err(error) => {
                let pause = self.fail(now, disk.since_snapshot_bytes);
                let seconds = pause.as_secs();
                log(&format!("cannot compact the journal, again in {seconds} s: {error}"));
                return;
            }
        };
        let (ended, outcome) = channel();
        self.outcome = Some(outcome);
        let records = core.snapshot();
        let log = log.clone();
        std::thread::spawn(move || {
            let outcome = write(snapshot, records, pages.as_deref());
            if let Err(error) = &outcome {
                log(&format!("cannot compact the journal for now: {error}"));
            }
            // The dispatcher may have ended meanwhile.
            let _ = ended.send(outcome.is_ok());
        });
    }

    fn must_wait(&mut self, now: Instant, bytes: u64) -> bool {
        let Some(wait) = self.waits else { return false };
        let waited = now.duration_since(wait.since);
        let has_grown = bytes >= wait.bytes.saturating_add(RETRY_AFTER_BYTES);
        let is_over =
            waited >= Duration::from_millis(RETRY_MS_MAX) || (waited >= wait.pause && has_grown);
        if is_over {
            self.waits = None;
        }
        !is_over
    }

    fn fail(&mut self, since: Instant, bytes: u64) -> Duration {
        let millis = (RETRY_MS_MIN << self.failures.min(16)).min(RETRY_MS_MAX);
        self.failures += 1;
        let pause = Duration::from_millis(millis);
        self.waits = Some(Wait { since, pause, bytes });
        pause
    }
}

/// Writes a snapshot; the pages that it refers to are on stable storage before
/// it counts.
fn write(
    mut snapshot: crate::journal::Snapshot,
    records: Vec<Record>,
    pages: Option<&Written>,
) -> Result<(), Box<dyn std::error::Error>> {
    for piece in records.iter().flat_map(|record| pieces(record.to_bytes())) {
        snapshot.append(&[&piece])?;
    }
    if let Some(pages) = pages {
        pages.sync()?;
    }
    snapshot.finish()?;
    Ok(())
}
