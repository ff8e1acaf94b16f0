//! The dispatcher's journal: records in, state back, compaction.

use super::Log;
use super::compaction::Compaction;
use super::pieces::{Joined, pieces};
use crate::journal::{
    AppendError, CommitError, FORMAT_VERSION, Journal, OpenError, Options as JournalOptions,
    ReplayError,
};
use crate::pages::{PageError, PageFiles, Written};
use falkon_core::dispatch::{Dispatcher, Event, PageBounds, Record, RecoverError};
use falkon_core::task::Time;
use falkon_wire::codec::{DecodeError, Wire};
use falkon_wire::message::PROTOCOL_VERSION;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

const _: () = assert!(
    FORMAT_VERSION == PROTOCOL_VERSION as u32,
    "records are encoded as messages are: a journal of another version must be refused"
);

/// Where and how the journal is kept.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// Its directory.
    pub dir: PathBuf,
    /// Acknowledge only what survives a crash of the machine, not just of the
    /// process: each round waits for the disk.
    pub machine_durable: bool,
    /// Go on behind damage instead of refusing to start.
    pub salvage: bool,
}

/// Why a journal could not be opened and read.
#[derive(Debug)]
pub enum StoreError {
    /// It could not be opened.
    Open(OpenError),
    /// It could not be read to its end.
    Replay(ReplayError),
    /// A record is none that this release knows.
    Record(DecodeError),
    /// Its records do not follow from one another.
    Recover(RecoverError),
    /// There is no place for results beside it.
    Pages(PageError),
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreError::Open(error) => write!(f, "{error}"),
            StoreError::Replay(error) => write!(f, "{error}"),
            StoreError::Record(error) => write!(
                f,
                "the journal holds a record that this release cannot read ({error}); it was \
                 written by another release: start that one, or use another directory"
            ),
            StoreError::Pages(error) => write!(f, "{error}"),
            StoreError::Recover(error) => {
                write!(f, "the journal contradicts itself: {error}; use another directory")
            }
        }
    }
}

impl std::error::Error for StoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            StoreError::Open(error) => Some(error),
            StoreError::Replay(error) => Some(error),
            StoreError::Record(error) => Some(error),
            StoreError::Recover(error) => Some(error),
            StoreError::Pages(error) => Some(error),
        }
    }
}

/// Why a round could not be written.
#[derive(Debug)]
pub(super) enum SettleError {
    Append(AppendError),
    Commit(CommitError),
}

impl SettleError {
    /// Whether trying again is useless.
    pub(super) fn is_final(&self) -> bool {
        match self {
            // What is longer than a record goes in pieces.
            SettleError::Append(_) => false,
            SettleError::Commit(error) => matches!(error, CommitError::Poisoned(_)),
        }
    }
}

impl fmt::Display for SettleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SettleError::Append(error) => write!(f, "{error}"),
            SettleError::Commit(error) => write!(f, "{error}"),
        }
    }
}

/// Takes in results that come behind lost ones: they move up. Returns whether
/// the record was of that kind; the tasks of any other run again.
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

/// Records beyond so many bytes are written before their round is over, while
/// the processor still has them in its caches.
const EARLY_WRITE_BYTES: usize = 256 << 10;

/// Where pages of results are in a journal's directory.
const PAGES: &str = "pages";

pub(super) struct Store {
    journal: Journal,
    compaction: Compaction,
    machine_durable: bool,
    /// Records of this round that are not in the journal's buffer yet.
    waiting: Vec<Vec<u8>>,
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
        let machine_durable = options.machine_durable;
        let compaction = Compaction::default();
        Ok((Store { journal, compaction, machine_durable, waiting: Vec::new() }, pages))
    }

    /// Takes a record; it counts once [`Store::commit`] has succeeded.
    pub(super) fn append(&mut self, record: &Record) {
        let encode = |buffer: &mut Vec<u8>| record.encode(buffer);
        if !self.waiting.is_empty() || self.journal.append_with(encode).is_err() {
            self.waiting.extend(pieces(record.to_bytes()));
        } else if self.journal.waiting_bytes() >= EARLY_WRITE_BYTES {
            // What fails here is tried again, and told, at the round's end.
            let _ = self.journal.commit();
        }
    }

    /// Writes all records taken.
    pub(super) fn commit(&mut self) -> Result<(), SettleError> {
        self.commit_buffer()?;
        while !self.waiting.is_empty() {
            let mut taken = 0;
            for record in &self.waiting {
                match self.journal.append(&[record]) {
                    Ok(()) => taken += 1,
                    Err(AppendError::BufferFull { .. }) if taken > 0 => break,
                    Err(error) => return Err(SettleError::Append(error)),
                }
            }
            self.waiting.drain(..taken);
            self.commit_buffer()?;
        }
        Ok(())
    }

    fn commit_buffer(&mut self) -> Result<(), SettleError> {
        let done = if self.machine_durable { self.journal.sync() } else { self.journal.commit() };
        done.map(|_| ()).map_err(SettleError::Commit)
    }

    /// Replaces the journal by a snapshot when that shrinks it enough.
    pub(super) fn compact_if_due(
        &mut self,
        core: &Dispatcher,
        pages: Option<Arc<Written>>,
        log: &Log,
    ) {
        self.compaction.begin_if_due(&mut self.journal, pages, core, log);
    }

    /// Puts everything on stable storage before the dispatcher ends.
    pub(super) fn close(&mut self, log: &Log) {
        if let Err(error) = self.journal.sync() {
            log(&format!("the journal's end is not on stable storage: {error}"));
        }
    }
}
