//! Log lines about refused connections, as many as a log can bear: anyone who
//! reaches the port can cause one with each connection.

use super::Log;
use falkon_net::secure::RefusedKind as Kind;
use std::fmt::Display;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// Lines of each kind in [`WINDOW`]: a port scan does not hide an executor with
/// an old access file.
const LINES_MAX: u64 = 10;
/// The time after which further lines are written, and what was left out is
/// counted.
const WINDOW: Duration = Duration::from_secs(60);

/// The fate of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// The line is written.
    Write,
    /// The line is counted. The first counted one has the time at which the
    /// count is written.
    Count { report_at: Option<Instant> },
}

/// The lines of one kind.
#[derive(Debug, Default)]
struct Quota {
    /// When the first line of this window was written.
    since: Option<Instant>,
    written: u64,
    counted: u64,
}

impl Quota {
    fn take(&mut self, now: Instant) -> Verdict {
        let end = self.since.map(|since| since + WINDOW);
        // A window with lines that were counted ends with its report.
        if self.counted == 0 && end.is_none_or(|end| now >= end) {
            *self = Quota { since: Some(now), written: 0, counted: 0 };
        }
        if self.written < LINES_MAX {
            self.written += 1;
            return Verdict::Write;
        }
        self.counted += 1;
        let is_first = self.counted == 1;
        Verdict::Count { report_at: self.since.filter(|_| is_first).map(|since| since + WINDOW) }
    }

    /// Ends the window. Returns how many lines were left out.
    fn report(&mut self) -> u64 {
        std::mem::take(self).counted
    }
}

/// Writes lines about connections that came to nothing.
#[derive(Clone)]
pub(super) struct Refusals {
    log: Log,
    quotas: Arc<Mutex<[Quota; Kind::ALL.len()]>>,
}

impl Refusals {
    pub(super) fn new(log: Log) -> Refusals {
        Refusals { log, quotas: Arc::default() }
    }

    fn with<R>(&self, kind: Kind, act: impl FnOnce(&mut Quota) -> R) -> R {
        act(&mut self.quotas.lock().unwrap_or_else(PoisonError::into_inner)[kind as usize])
    }

    /// A connection was refused.
    pub(super) fn refused(&self, kind: Kind, why: &dyn Display) {
        match self.with(kind, |quota| quota.take(Instant::now())) {
            Verdict::Write => (self.log)(&format!("refused a connection: {why}")),
            Verdict::Count { report_at: None } => {}
            Verdict::Count { report_at: Some(at) } => {
                let refusals = self.clone();
                tokio::spawn(async move {
                    sleep_until(at).await;
                    let count = refusals.with(kind, Quota::report);
                    (refusals.log)(&format!(
                        "refused {count} more connections within {} s, mostly for such reasons as \
                         before",
                        WINDOW.as_secs()
                    ));
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_line_is_written_or_counted_and_few_are_written(
            pauses in prop::collection::vec(0u64..20_000, 1..400),
        ) {
            let mut quota = Quota::default();
            let start = Instant::now();
            let (mut now, mut report) = (start, None);
            let (mut written, mut counted, mut reports) = (0, 0, 0);
            for pause in &pauses {
                now += Duration::from_millis(*pause);
                if report.is_some_and(|at| at <= now) {
                    report = None;
                    counted += quota.report();
                    reports += 1;
                }
                match quota.take(now) {
                    Verdict::Write => written += 1,
                    Verdict::Count { report_at: Some(at) } => {
                        prop_assert!(report.replace(at).is_none());
                        prop_assert!(at > now && at <= now + WINDOW);
                    }
                    Verdict::Count { report_at: None } => prop_assert!(report.is_some()),
                }
            }
            counted += quota.report();
            prop_assert_eq!(written + counted, pauses.len() as u64);
            let windows = (now - start).as_secs() / WINDOW.as_secs() + 1;
            prop_assert!(written <= windows * LINES_MAX && reports <= windows);
        }
    }
}
