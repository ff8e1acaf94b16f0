//! Whether this executor keeps up with those for whom it collects: for how much of the
//! time what they hand over is on its way here.
//!
//! A link that is taken for a quarter of the time while outputs come evenly is taken for
//! as long at the end of a run, when all come at once and everybody waits. So a collector
//! is behind long before its link is full. Its files are then full too: half of its group
//! fills them as well, and there are no more of them.

use crate::data::declared::Pace;
use crate::task::Time;

/// A window is as long as outputs may wait, and at least so long.
const WINDOW_MICROS_MIN: u64 = 1_000_000;
/// A collector is behind if what comes from others takes more than this of a window.
const BEHIND_PERCENT: u64 = 25;
/// It is ahead if that takes less than this of so many windows in a row.
const AHEAD_PERCENT: u64 = 6;
/// How many windows.
const AHEAD_WINDOWS: u64 = 10;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Pacing {
    window_micros: u64,
    /// When the window began, if there has been one.
    since: Option<Time>,
    /// When this was looked at last, and whether anything was on its way from then on.
    seen: Time,
    is_coming: bool,
    /// How long something was on its way in the window.
    busy_micros: u64,
    /// Windows in a row in which that was little.
    calm: u64,
    news: Option<Pace>,
}

impl Pacing {
    pub(super) fn new(window_micros: u64) -> Pacing {
        Pacing { window_micros: window_micros.max(WINDOW_MICROS_MIN), ..Pacing::default() }
    }

    /// Something is on its way from now on, or nothing is.
    pub(super) fn note(&mut self, now: Time, is_coming: bool) {
        if self.is_coming {
            self.busy_micros += now.since(self.seen);
        }
        (self.seen, self.is_coming) = (now, is_coming);
        if self.busy_micros > self.part(BEHIND_PERCENT) {
            self.calm = 0;
            self.news = Some(Pace::Behind);
            self.restart();
        }
        let since = *self.since.get_or_insert(now);
        // However long nothing came, that is one window.
        if now.since(since) >= self.window_micros {
            let is_calm = self.busy_micros < self.part(AHEAD_PERCENT);
            self.calm = if is_calm { self.calm + 1 } else { 0 };
            self.restart();
        }
        if self.calm >= AHEAD_WINDOWS {
            self.calm = 0;
            self.news = Some(Pace::Ahead);
        }
    }

    fn part(&self, percent: u64) -> u64 {
        (self.window_micros / 100).saturating_mul(percent)
    }

    fn restart(&mut self) {
        (self.since, self.busy_micros) = (Some(self.seen), 0);
    }

    /// Whether there is anything to say.
    pub(super) fn has_news(&self) -> bool {
        self.news.is_some()
    }

    /// What is to be said.
    pub(super) fn take_news(&mut self) -> Option<Pace> {
        self.news.take()
    }

    /// A session begins: nobody hands over anything yet.
    pub(super) fn forget(&mut self) {
        (self.news, self.calm) = (None, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    /// What a collector says while something is on its way for `busy` of each 15 s.
    fn said(busy: u64, bursts: u64) -> Vec<Option<Pace>> {
        let mut pacing = Pacing::new(30 * SECOND);
        pacing.note(Time(0), false);
        let burst = |at: u64| {
            pacing.note(Time(at * 15 * SECOND), true);
            pacing.note(Time(at * 15 * SECOND + busy), false);
            pacing.take_news()
        };
        (0..bursts).map(burst).collect()
    }

    #[test]
    fn a_link_that_is_busy_for_a_quarter_of_the_time_is_behind_and_an_idle_one_ahead() {
        assert_eq!(said(8 * SECOND, 2), [Some(Pace::Behind); 2]);
        assert_eq!(said(4 * SECOND, 2), [None, Some(Pace::Behind)]);
        // Neither, for long.
        assert!(said(2 * SECOND, 60).iter().all(Option::is_none));
        let little = said(SECOND / 2, 60);
        assert!(little[..20].iter().all(Option::is_none), "{little:?}");
        assert_eq!(little.iter().flatten().count(), 2, "{little:?}");
        assert!(little.iter().flatten().all(|pace| *pace == Pace::Ahead));
    }
}
