//! The dispatcher's journal: records in, state back, compaction.

use super::Log;
use super::compaction::{Compaction, Parts};
use super::pieces::{Joined, pieces};
use super::room::Gauge;
use crate::journal::{
    AppendError, CommitError, Journal, OpenError, Options as JournalOptions, ReplayError,
};
use crate::pages::{PageError, PageFiles, Written};
use falkon_core::dispatch::{Dispatcher, Event, PageBounds, Record, RecoverError};
use falkon_core::task::Time;
use falkon_wire::codec::{DecodeError, Wire};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Where and how the journal is kept.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// The journal's directory.
    pub dir: PathBuf,
    /// Acknowledge only what survives a crash of the machine, not just of the
    /// process: each round waits for the disk.
    pub machine_durable: bool,
    /// Go on behind damage instead of refusing to start.
    pub salvage: bool,
}

/// Why a journal could not be opened and read.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The journal could not be opened.
    #[error(transparent)]
    Open(OpenError),
    /// The journal could not be read to its end.
    #[error(transparent)]
    Replay(ReplayError),
    /// A record is none that this release knows.
    #[error(
        "the journal holds a record that this release cannot read ({0}); it was written by another \
         release: start that one, or use another directory"
    )]
    Record(#[source] DecodeError),
    /// The journal's records do not follow from one another.
    #[error("the journal contradicts itself: {0}; use another directory")]
    Recover(#[source] RecoverError),
    /// There is no place for results beside it.
    #[error(transparent)]
    Pages(PageError),
    /// The room on its disk cannot be measured.
    #[error("cannot measure the room on the journal's disk: {0}")]
    Gauge(#[source] io::Error),
}

/// Why a round could not be written.
#[derive(Debug, thiserror::Error)]
pub(super) enum RoundError {
    #[error(transparent)]
    Append(AppendError),
    #[error(transparent)]
    Commit(CommitError),
    /// A snapshot is being written that replaces what could not be.
    #[error("a snapshot is being written in its place")]
    Replacing,
}

impl RoundError {
    /// Whether trying again is useless.
    pub(super) fn is_final(&self) -> bool {
        match self {
            // A record that is too long is written in pieces.
            RoundError::Append(_) | RoundError::Replacing => false,
            RoundError::Commit(error) => matches!(error, CommitError::Poisoned(_)),
        }
    }
}

/// Recovers results that come behind lost ones: they move up. Returns whether
/// the record was of that kind; the tasks of any other record run again.
fn recover_behind_gap(core: &mut Dispatcher, record: Record, error: &RecoverError) -> bool {
    match (record, error) {
        (
            Record::Finished { instance, from, results },
            RecoverError::Results { expected, found, .. },
        ) if found > expected && from == *found => {
            core.recover(Record::Finished { instance, from: *expected, results }).is_ok()
        }
        _ => false,
    }
}

/// Moves results to disk while the journal is read. What cannot be moved stays
/// in memory.
fn store_pages(core: &mut Dispatcher, pages: &mut PageFiles, now: Time, log: &Log) {
    while let Some((instance, from, page)) = core.next_page() {
        let place = pages.store(instance, from, &page);
        let place = place.inspect_err(|error| {
            log(&format!("results stay in memory for now: {error}"));
        });
        core.handle(now, Event::PageStored { instance, from, place: place.ok() });
    }
}

/// Records beyond this size are written before their round is over, while the
/// processor still has them in its caches.
const EARLY_WRITE_BYTES: usize = 256 << 10;

/// Pause before a dispatcher that ends looks again whether its last snapshot is
/// finished.
const REPLACED_LOOK_MS: u64 = 10;

/// Where pages of results are in a journal's directory.
const PAGES: &str = "pages";

pub(super) struct Store {
    journal: Journal,
    /// The directory, as users know it.
    directory: Arc<str>,
    gauge: Gauge,
    compaction: Compaction,
    machine_durable: bool,
    /// Records of this round that are not in the journal's buffer yet.
    waiting: Vec<Vec<u8>>,
    /// While a snapshot is written in the place of records that could not be:
    /// those of them that are not in the journal's buffer.
    replaced: Option<Vec<Vec<u8>>>,
    /// The last commit has failed.
    is_blocked: bool,
    /// The journal has just taken of its ballast.
    is_on_ballast: bool,
}

impl Store {
    /// Opens the journal and brings `core`, which is new, to the state it
    /// holds. Results beyond what stays in memory are moved to the files that
    /// come with it.
    pub(super) fn open(
        options: StoreOptions,
        core: &mut Dispatcher,
        now: Time,
        log: &Log,
    ) -> Result<(Store, PageFiles), StoreError> {
        let journal_options = JournalOptions { salvage: options.salvage, ..Default::default() };
        let (journal, mut replay) =
            Journal::open(&options.dir, journal_options).map_err(StoreError::Open)?;
        let mut pages = PageFiles::open(&options.dir.join(PAGES)).map_err(StoreError::Pages)?;
        core.page_results(PageBounds::default());
        let (mut records, mut left_out) = (0u64, 0u64);
        let mut joined = Joined::default();
        while let Some(bytes) = replay.next_record().map_err(StoreError::Replay)? {
            let Some(bytes) = joined.next(bytes) else { continue };
            let record = Record::from_bytes(bytes).map_err(StoreError::Record)?;
            records += 1;
            let spare = options.salvage.then(|| record.clone());
            match (core.recover(record), spare) {
                (Ok(()), _) => {}
                (Err(error), None) => return Err(StoreError::Recover(error)),
                (Err(error), Some(record)) => {
                    left_out += u64::from(!recover_behind_gap(core, record, &error));
                }
            }
            store_pages(core, &mut pages, now, log);
        }
        if left_out > 0 {
            log(&format!("journal: left out {left_out} records that do not follow from the rest"));
        }
        if let Some(torn) = replay.torn() {
            log(&format!(
                "journal: cut off {} bytes at the end of {} that were being written when the \
                 dispatcher ended",
                torn.bytes,
                torn.path.display()
            ));
        }
        core.recovered(now);
        pages.keep(core.page_places()).map_err(StoreError::Pages)?;
        if records > 0 {
            log(&format!("recovered from {records} journal records"));
        }
        let gauge = Gauge::start(&options.dir).map_err(StoreError::Gauge)?;
        let store = Store {
            journal,
            directory: options.dir.display().to_string().into(),
            gauge,
            compaction: Compaction::default(),
            machine_durable: options.machine_durable,
            waiting: Vec::new(),
            replaced: None,
            is_blocked: false,
            is_on_ballast: false,
        };
        Ok((store, pages))
    }

    /// Whether the journal has taken of its ballast since this was last asked.
    pub(super) fn took_ballast(&mut self) -> bool {
        std::mem::take(&mut self.is_on_ballast)
    }

    /// The gauge that measures the disk.
    pub(super) fn gauge(&self) -> &Gauge {
        &self.gauge
    }

    pub(super) fn directory(&self) -> Arc<str> {
        self.directory.clone()
    }

    /// Takes a record; it counts once [`Store::commit`] has succeeded.
    pub(super) fn append(&mut self, record: &Record) {
        let encode = |buffer: &mut Vec<u8>| record.encode(buffer);
        let must_wait = self.replaced.is_some() || !self.waiting.is_empty();
        if must_wait || self.journal.append_with(encode).is_err() {
            self.waiting.extend(pieces(record.to_bytes()));
        } else if self.journal.waiting_bytes() >= EARLY_WRITE_BYTES && !self.is_blocked {
            // A write that fails here is repeated, and reported, at the round's
            // end.
            let bytes = self.journal.waiting_bytes() as u64;
            let turn = self.gauge.turn();
            let _ = self.journal.commit();
            drop(turn);
            self.gauge.wrote(bytes);
        }
    }

    /// Writes all records taken.
    pub(super) fn commit(&mut self) -> Result<(), RoundError> {
        let done = self.end_replacing().and_then(|()| self.commit_all());
        self.is_blocked = done.is_err();
        done
    }

    fn commit_all(&mut self) -> Result<(), RoundError> {
        self.commit_buffer()?;
        while !self.waiting.is_empty() {
            let mut taken = 0;
            for record in &self.waiting {
                match self.journal.append(&[record]) {
                    Ok(()) => taken += 1,
                    Err(AppendError::BufferFull { .. }) if taken > 0 => break,
                    Err(error) => return Err(RoundError::Append(error)),
                }
            }
            self.waiting.drain(..taken);
            self.commit_buffer()?;
        }
        Ok(())
    }

    /// Looks how the snapshot has ended that is being written, if there is one.
    fn end_replacing(&mut self) -> Result<(), RoundError> {
        let ended = self.compaction.ended(&self.journal, &self.gauge);
        let Some(replaced) = self.replaced.take() else { return Ok(()) };
        match ended {
            None => {
                self.replaced = Some(replaced);
                return Err(RoundError::Replacing);
            }
            Some(true) => self.journal.discard_appended(),
            Some(false) => {
                let later = std::mem::replace(&mut self.waiting, replaced);
                self.waiting.extend(later);
            }
        }
        Ok(())
    }

    fn commit_buffer(&mut self) -> Result<(), RoundError> {
        let bytes = self.journal.waiting_bytes() as u64;
        let mut done = self.write();
        if matches!(done, Err(CommitError::NoRoom { .. })) && self.gauge.give_half() {
            self.is_on_ballast = true;
            done = self.write();
        }
        if bytes > 0 {
            self.gauge.wrote(bytes);
        }
        done.map_err(RoundError::Commit)
    }

    fn write(&mut self) -> Result<(), CommitError> {
        let _turn = self.gauge.turn();
        let done = if self.machine_durable { self.journal.sync() } else { self.journal.commit() };
        done.map(|_| ())
    }

    /// Replaces the journal by a snapshot when that is due; where the latest
    /// records cannot be written (`is_blocked`), them too.
    pub(super) fn compact_if_due(
        &mut self,
        core: &Dispatcher,
        pages: Option<Arc<Written>>,
        is_blocked: bool,
        log: &Log,
    ) {
        if self.replaced.is_some() {
            return;
        }
        let Store { journal, gauge, .. } = self;
        let parts = Parts { journal, gauge, pages, core, log, is_blocked };
        if self.compaction.begin_if_due(parts) && is_blocked {
            self.replaced = Some(std::mem::take(&mut self.waiting));
        }
    }

    /// Puts everything on stable storage before the dispatcher ends.
    pub(super) fn close(&mut self, log: &Log) {
        // Records that a snapshot may have already are not written beside it.
        while matches!(self.end_replacing(), Err(RoundError::Replacing)) {
            std::thread::sleep(Duration::from_millis(REPLACED_LOOK_MS));
        }
        if let Err(error) = self.journal.sync() {
            log(&format!("the journal's end is not on stable storage: {error}"));
        }
    }
}
