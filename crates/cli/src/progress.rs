//! The progress line: on a terminal, never in the way of output.

use crate::results::staged::bytes_text;
use falkon_core::result::Counts;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::Instant;

/// Redraws per second.
const REDRAWS_HZ: u8 = 8;

/// Shows how far a run is.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    started: Instant,
    /// How much each brings, if that is what people want to know.
    bytes_each: Option<u64>,
}

impl Progress {
    /// A line on standard error if that is a terminal and `wanted`.
    pub(crate) fn new(total: u64, wanted: bool) -> Progress {
        let bar = (wanted && std::io::stderr().is_terminal()).then(|| {
            let target = ProgressDrawTarget::stderr_with_hz(REDRAWS_HZ);
            let bar = ProgressBar::with_draw_target(Some(total), target);
            let style = ProgressStyle::with_template("{bar:24} {pos}/{len} {msg}")
                .unwrap_or_else(|_| ProgressStyle::default_bar());
            bar.set_style(style);
            bar
        });
        Progress { bar, started: Instant::now(), bytes_each: None }
    }

    /// The same, of so many that each receive `bytes_each`.
    pub(crate) fn of_bytes(total: u64, bytes_each: u64, wanted: bool) -> Progress {
        Progress { bytes_each: Some(bytes_each), ..Progress::new(total, wanted) }
    }

    /// Takes new counts in. `before` tasks ended before this run.
    pub(crate) fn update(&self, counts: &Counts) {
        let Some(bar) = &self.bar else { return };
        let ended = counts.ended();
        if let Some(each) = self.bytes_each {
            let bytes = |count: u64| bytes_text(each.saturating_mul(count));
            bar.set_position(counts.done);
            bar.set_message(format!(
                "executors, {} of {}",
                bytes(counts.done),
                bytes(counts.total)
            ));
            return;
        }
        let seconds = self.started.elapsed().as_secs_f64();
        let rate = ended as f64 / seconds.max(1e-3);
        let left = counts.total.saturating_sub(ended) as f64 / rate.max(1e-9);
        let mut message = format!("{} dispatched", counts.dispatched);
        if counts.failed > 0 {
            message.push_str(&format!(", {} failed", counts.failed));
        }
        message.push_str(&format!(", {} left ({}/s)", span(left), rate_text(rate)));
        bar.set_position(ended);
        bar.set_message(message);
    }

    /// Prints without disturbing the line.
    pub(crate) fn suspend<R>(&self, print: impl FnOnce() -> R) -> R {
        match &self.bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }

    /// Takes the line away.
    pub(crate) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn rate_text(rate: f64) -> String {
    if rate >= 100.0 { format!("{rate:.0}") } else { format!("{rate:.1}") }
}

/// Seconds as people say them.
pub(crate) fn span(seconds: f64) -> String {
    match seconds {
        s if s < 60.0 => format!("{s:.0} s"),
        s if s < 3600.0 => format!("{:.0} min {:.0} s", (s / 60.0).floor(), s % 60.0),
        s if s < 1e9 => {
            let (hours, minutes) = ((s / 3600.0).floor(), (s % 3600.0 / 60.0).floor());
            format!("{hours:.0} h {minutes:.0} min")
        }
        _ => "long".to_owned(),
    }
}
