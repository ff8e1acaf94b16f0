//! Events of a dispatcher that is not served here: a simulated one.

use super::{EventFiles, EventOptions, EventsError, Item, Writer, item_of};
use falkon_core::dispatch::Record;
use falkon_core::events::What;
use falkon_core::task::Time;
use falkon_net::Log;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Writes each event before the next one is taken, so that none is missing.
pub struct Recorder {
    writer: Writer,
    /// A write has failed.
    is_incomplete: Arc<AtomicBool>,
}

impl Recorder {
    /// Writes to a new file of the directory. What goes wrong later is told to `log`.
    ///
    /// # Errors
    /// The directory cannot be written, or its disk is full.
    pub fn open(options: &EventOptions, log: Log) -> Result<Recorder, EventsError> {
        let files = EventFiles::open(&options.dir, options.bytes_max)?;
        let is_incomplete = Arc::new(AtomicBool::new(false));
        let failed = is_incomplete.clone();
        let log: Log = Arc::new(move |text| {
            failed.store(true, Ordering::Relaxed);
            log(text);
        });
        Ok(Recorder { writer: Writer::new(files, log), is_incomplete })
    }

    /// The dispatcher starts.
    pub fn started(&mut self, now: Time) {
        let version = env!("CARGO_PKG_VERSION").into();
        self.writer.take(now, Item::What(What::DispatcherStarted { version }));
    }

    /// The dispatcher acted: `happenings` are in none of its `records`.
    pub fn acted(&mut self, now: Time, happenings: Vec<What>, records: Vec<Record>) {
        for what in happenings {
            self.writer.take(now, Item::What(what));
        }
        for (item, ..) in records.into_iter().filter_map(item_of) {
            self.writer.take(now, item);
        }
    }

    /// Writes what is left. False if events are missing, for reasons that the log has.
    #[must_use]
    pub fn close(&mut self) -> bool {
        self.writer.write();
        !self.is_incomplete.load(Ordering::Relaxed)
    }
}
