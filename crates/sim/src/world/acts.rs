//! What a dispatcher did, for those who record a run.

use falkon_core::dispatch::{Dispatcher, Record};
use falkon_core::events::What;
use falkon_core::task::Time;

/// A part of a run of a dispatcher, at a time on its clock.
#[derive(Debug)]
pub enum Act {
    /// It started.
    Started(Time),
    /// It acted.
    Acted {
        /// When.
        at: Time,
        /// What is in none of the records, and came before them.
        happenings: Vec<What>,
        /// What its journal has of it.
        records: Vec<Record>,
    },
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Acts {
    /// The oldest first; `None` unless somebody records the run.
    gathered: Option<Vec<Act>>,
    records: Vec<Record>,
}

impl Acts {
    /// The dispatcher starts. From now on, what it does is gathered.
    pub(super) fn begin(&mut self, at: Time, core: &mut Dispatcher) {
        core.watch_happenings();
        self.gathered.get_or_insert_default().push(Act::Started(at));
    }

    /// The dispatcher starts again, with nothing in memory.
    pub(super) fn restarted(&mut self, at: Time, core: &mut Dispatcher) {
        if self.gathered.is_some() {
            self.begin(at, core);
        }
    }

    pub(super) fn record(&mut self, record: Record) {
        if self.gathered.is_some() {
            self.records.push(record);
        }
    }

    /// The act ends of which the records were.
    pub(super) fn end(&mut self, at: Time, core: &mut Dispatcher) {
        let Some(gathered) = &mut self.gathered else { return };
        let (happenings, records) = (core.take_happenings(), std::mem::take(&mut self.records));
        if !(happenings.is_empty() && records.is_empty()) {
            gathered.push(Act::Acted { at, happenings, records });
        }
    }

    /// What has been gathered since this was last called.
    pub(super) fn take(&mut self) -> Vec<Act> {
        self.gathered.as_mut().map(std::mem::take).unwrap_or_default()
    }
}
