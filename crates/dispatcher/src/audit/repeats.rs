//! Refused requests that repeat: the first of a kind is a line, and those that follow are counted
//! and become one line a minute at most, so that nobody can fill the record with them.
//!
//! A machine without IO: [`Repeats::take`] takes a line in, [`Repeats::poll_line`] has the lines
//! that stand for several, from [`Repeats::poll_timeout`] on.

use falkon_core::task::Time;
use std::collections::BTreeMap;

/// The time after the first line of a kind in which others are counted.
const WINDOW_MICROS: u64 = 60_000_000;
/// The longest such time: it doubles while requests go on to be refused.
const WINDOW_MICROS_MAX: u64 = 3_600_000_000;
/// Kinds that are counted apart; the others are counted together.
const KINDS_MAX: usize = 256;

/// Who asks, and for what.
pub(super) type Kind = (String, &'static str);

/// A line, and how many more requests it stands for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Repeated<L> {
    /// The last one.
    pub(super) line: L,
    pub(super) count: u64,
    /// The requests are of different kinds.
    pub(super) is_mixed: bool,
}

#[derive(Debug)]
struct Window<L> {
    until: Time,
    micros: u64,
    counted: u64,
    last: Option<L>,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Repeats<L> {
    /// By kind; `None` has those that are not counted apart.
    windows: BTreeMap<Option<Kind>, Window<L>>,
    /// When the next window ends.
    due: Option<Time>,
}

impl<L> Default for Repeats<L> {
    fn default() -> Repeats<L> {
        Repeats { windows: BTreeMap::new(), due: None }
    }
}

impl<L> Repeats<L> {
    /// Takes a line in. Returns it if it is to be written now; else it is counted.
    pub(super) fn take(&mut self, now: Time, kind: Kind, line: L) -> Option<L> {
        let kind = Some(kind);
        let is_full = self.windows.len() >= KINDS_MAX && !self.windows.contains_key(&kind);
        let kind = if is_full { None } else { kind };
        if let Some(window) = self.windows.get_mut(&kind) {
            window.counted += 1;
            window.last = Some(line);
            return None;
        }
        let (micros, until) = (WINDOW_MICROS, now.after(WINDOW_MICROS));
        self.windows.insert(kind, Window { until, micros, counted: 0, last: None });
        self.due = Some(self.due.map_or(until, |due| due.min(until)));
        Some(line)
    }

    /// When the next window ends.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.due
    }

    /// The next line for requests that were counted, once its window has ended.
    pub(super) fn poll_line(&mut self, now: Time) -> Option<Repeated<L>> {
        if self.due.is_none_or(|due| due > now) {
            return None;
        }
        // One that counted nothing is over, and the next request of its kind is a line.
        self.windows.retain(|_, window| window.until > now || window.last.is_some());
        let ended = self.windows.iter_mut().find(|(_, window)| window.until <= now);
        let Some((kind, window)) = ended else {
            self.due = self.windows.values().map(|window| window.until).min();
            return None;
        };
        window.micros = (2 * window.micros).min(WINDOW_MICROS_MAX);
        window.until = now.after(window.micros);
        let (line, count) = (window.last.take()?, std::mem::take(&mut window.counted));
        Some(Repeated { line, count, is_mixed: kind.is_none() })
    }

    /// The lines for all requests that were counted: none are counted any more.
    pub(super) fn end(&mut self) -> Vec<Repeated<L>> {
        self.due = None;
        let windows = std::mem::take(&mut self.windows).into_iter();
        let lines = windows.filter_map(|(kind, window)| {
            let (count, is_mixed) = (window.counted, kind.is_none());
            window.last.map(|line| Repeated { line, count, is_mixed })
        });
        lines.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn kind(number: usize) -> Kind {
        (format!("user-{number}"), "cancel")
    }

    proptest! {
        #[test]
        fn every_refusal_is_a_line_or_counted_and_lines_are_few(
            refused in prop::collection::vec((0u64..50_000_000, 0usize..4), 1..400),
        ) {
            let mut repeats = Repeats::default();
            let mut now = Time(1);
            let (mut lines, mut written, mut counted) = (0u64, 0u64, 0u64);
            for (pause, number) in &refused {
                now = now.after(*pause);
                while let Some(one) = repeats.poll_line(now) {
                    prop_assert!(one.count > 0 && !one.is_mixed);
                    lines += 1;
                    counted += one.count;
                }
                prop_assert!(repeats.poll_timeout().is_none_or(|at| at > now));
                written += u64::from(repeats.take(now, kind(*number), ()).is_some());
            }
            counted += repeats.end().iter().map(|one| one.count).sum::<u64>();
            prop_assert_eq!(written + counted, refused.len() as u64);
            // Two a minute of each kind: one that begins a window, one that ends it.
            let minutes = (now.0 - 1) / WINDOW_MICROS + 1;
            prop_assert!(written + lines <= 4 * 2 * minutes, "{written} {lines} in {minutes}");
        }
    }

    #[test]
    fn who_goes_on_for_long_gets_fewer_and_fewer_lines() {
        let mut repeats = Repeats::default();
        assert_eq!(repeats.take(Time(0), kind(0), 0), Some(0));
        let day = 24 * 60;
        let mut lines = 0;
        for minute in 1..=day {
            assert_eq!(repeats.take(Time(minute * WINDOW_MICROS), kind(0), minute), None);
            lines += u64::from(repeats.poll_line(Time(minute * WINDOW_MICROS)).is_some());
        }
        assert!(lines <= 24 + 6, "{lines}");
    }

    #[test]
    fn kinds_beyond_those_that_are_counted_apart_are_counted_together() {
        let mut repeats = Repeats::default();
        for number in 0..KINDS_MAX {
            assert!(repeats.take(Time(0), kind(number), number).is_some());
        }
        assert_eq!(repeats.take(Time(0), kind(KINDS_MAX), KINDS_MAX), Some(KINDS_MAX));
        for number in 1..1000 {
            assert_eq!(repeats.take(Time(0), kind(KINDS_MAX + number), number), None);
        }
        let one = repeats.poll_line(Time(WINDOW_MICROS));
        assert_eq!(one, Some(Repeated { line: 999, count: 999, is_mixed: true }));
        assert_eq!(repeats.poll_line(Time(WINDOW_MICROS)), None);
        assert_eq!(repeats.windows.len(), 1);
    }
}
