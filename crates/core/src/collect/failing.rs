//! The archives that cannot be written for now: since when, and why.

use crate::limits::{
    COLLECT_RETRY_MICROS_MAX, COLLECT_RETRY_MICROS_MIN, UNWRITTEN_ARCHIVES_MAX,
    UNWRITTEN_ERROR_BYTES_MAX, URL_BYTES_MAX,
};
use crate::result::shortened;
use crate::task::Time;
use std::collections::BTreeMap;
use std::sync::Arc;

/// An archive that could not be written, and is tried again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unwritten {
    /// The path of its first file.
    pub archive: Arc<str>,
    /// When that failed first.
    pub since: Time,
    /// Why it failed last.
    pub error: Arc<str>,
}

impl Unwritten {
    /// Cuts what is longer than is kept.
    pub(crate) fn bound(&mut self) {
        if self.archive.len() > URL_BYTES_MAX {
            self.archive = shortened(&self.archive, URL_BYTES_MAX).into();
        }
        if self.error.len() > UNWRITTEN_ERROR_BYTES_MAX {
            self.error = shortened(&self.error, UNWRITTEN_ERROR_BYTES_MAX).into();
        }
    }
}

/// What follows from a failed write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is repeated then.
    Again(Time),
    /// It has been tried so often, for so long.
    GiveUp { tries: u32, seconds: u64 },
}

#[derive(Debug)]
struct Fault {
    since: Time,
    tries: u32,
    error: Arc<str>,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Failing {
    archives: BTreeMap<Arc<str>, Fault>,
    is_changed: bool,
}

impl Failing {
    /// A write of an archive has failed. It is repeated after a pause, which doubles
    /// each time, and for the last time when `patience_micros` are over.
    pub(super) fn failed(
        &mut self,
        now: Time,
        archive: &Arc<str>,
        error: &str,
        patience_micros: u64,
    ) -> Verdict {
        let error = shortened(error, UNWRITTEN_ERROR_BYTES_MAX);
        let new = || Fault { since: now, tries: 0, error: "".into() };
        let fault = self.archives.entry(archive.clone()).or_insert_with(new);
        if *fault.error != *error {
            fault.error = error.into();
            self.is_changed = true;
        }
        fault.tries += 1;
        let until = fault.since.after(patience_micros);
        if now >= until {
            return Verdict::GiveUp {
                tries: fault.tries,
                seconds: now.since(fault.since) / 1_000_000,
            };
        }
        let pause = COLLECT_RETRY_MICROS_MIN << (fault.tries - 1).min(32);
        Verdict::Again(now.after(pause.min(COLLECT_RETRY_MICROS_MAX)).min(until))
    }

    /// An archive was written, or need not be any more.
    pub(super) fn succeeded(&mut self, archive: &Arc<str>) {
        self.is_changed |= self.archives.remove(archive).is_some();
    }

    pub(super) fn is_changed(&self) -> bool {
        self.is_changed
    }

    pub(super) fn tell_anew(&mut self) {
        self.is_changed = !self.archives.is_empty();
    }

    /// Some of the archives, if they have changed since this was asked last.
    pub(super) fn changed(&mut self) -> Option<Vec<Unwritten>> {
        if !std::mem::take(&mut self.is_changed) {
            return None;
        }
        let told = self.archives.iter().take(UNWRITTEN_ARCHIVES_MAX);
        let told = told.map(|(archive, fault)| Unwritten {
            archive: archive.clone(),
            since: fault.since,
            error: fault.error.clone(),
        });
        Some(told.collect())
    }

    /// The archives.
    pub(super) fn archives(&self) -> impl Iterator<Item = &Arc<str>> {
        self.archives.keys()
    }
}
