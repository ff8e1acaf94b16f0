//! What would have made a run faster, with bounds that follow from what was measured.

use super::course::{Interval, Measure};
use super::shown::{Shown, seconds, span};

/// Parts of the makespan below which nothing is said.
const PART_MIN: f64 = 0.02;
/// Tasks that run for less are dominated by what it takes to start them.
const SHORT_S: f64 = 0.01;

/// One thing that could have been otherwise.
#[derive(Debug, Clone)]
pub(super) struct Advice {
    /// For programs.
    pub(super) kind: &'static str,
    /// By how much the makespan could have been shorter at most, where that can be told.
    pub(super) seconds: Option<f64>,
    pub(super) text: String,
}

/// The things that would have mattered, those that would have gained most first.
pub(super) fn advise(shown: &Shown, course: &[Interval]) -> Vec<Advice> {
    let run = &shown.run;
    let spent = &shown.slot_seconds;
    let makespan_s = run.makespan_s;
    let longest_s = shown.all.max_micros as f64 / 1e6;
    let mut all = Vec::new();
    let mut advise = |kind, gained: f64, text: String| {
        if gained >= PART_MIN * makespan_s {
            all.push(Advice { kind, seconds: Some(gained), text });
        }
    };
    let per_slot = |slot_seconds: f64| match run.slots > 0.0 {
        true => slot_seconds / run.slots,
        false => 0.0,
    };
    // Twice the slots halve what slots decide, and nothing else.
    let (queued_s, least_s) = (queued_s(course), run.arrivals_s.max(longest_s));
    if run.slots > 0.0 {
        let gained = (makespan_s - least_s).min(queued_s / 2.0).max(0.0);
        let (slots, twice) = (run.slots.round(), (2.0 * run.slots).round());
        advise(
            "slots",
            gained,
            format!(
                "tasks were queued for {} of {}: with {twice} slots instead of {slots}, up to {} \
                 less",
                span(queued_s),
                span(makespan_s),
                span(gained)
            ),
        );
    }
    let tail = tail_s(course, run.slots);
    let gained = (makespan_s - run.ideal_s().max(longest_s)).min(tail).max(0.0);
    advise(
        "tail",
        gained,
        format!(
            "for the last {} fewer tasks ran than there were slots, and the longest ran for {}: \
             the longest first (--estimate, or higher priority), or divided, up to {} less",
            span(tail),
            span(longest_s),
            span(gained)
        ),
    );
    let gained = per_slot(spent.failed);
    advise(
        "failures",
        gained,
        format!(
            "tasks that did not succeed ran for {} in all: {} of each slot",
            span(spent.failed),
            span(gained)
        ),
    );
    let gained = per_slot(spent.starting);
    let mean_s = match shown.all.ran {
        0 => 0.0,
        ran => seconds(shown.all.run_micros) / ran as f64,
    };
    let staging_s = seconds(shown.all.staging_micros);
    let why = match (staging_s > spent.starting / 2.0, mean_s < SHORT_S) {
        (true, _) => format!("tasks waited for inputs for {} in all", span(staging_s)),
        (false, true) => format!(
            "tasks ran for {} on average, which is little beside what it takes to start them: \
             more work in each, or calls of functions",
            span(mean_s)
        ),
        (false, false) => "tasks were started".to_owned(),
    };
    advise("starting", gained, format!("slots were idle for {} each while {why}", span(gained)));
    let gained = per_slot(spent.dispatch);
    advise(
        "dispatch",
        gained,
        format!(
            "slots were idle for {} each while tasks were queued: executors were drained or \
             suspended, or did not offer what these need (falkon explain says so while it happens)",
            span(gained)
        ),
    );
    if shown.requeued > 0 {
        let text = format!(
            "{} times tasks came back from executors and were sent again: falkon log --kind \
             executors says which executors were lost, and why",
            shown.requeued
        );
        all.push(Advice { kind: "requeued", seconds: None, text });
    }
    all.sort_by(|a, b| b.seconds.unwrap_or(0.0).total_cmp(&a.seconds.unwrap_or(0.0)));
    all
}

/// How long tasks were queued that no slot was free for.
fn queued_s(course: &[Interval]) -> f64 {
    let full = course.iter().filter(|one| {
        let idle = one.mean(Measure::Slots) - one.mean(Measure::SlotsBusy);
        one.mean(Measure::SlotsWanted) + one.mean(Measure::SlotsStarting) > idle.max(0.0)
    });
    full.map(|one| one.micros as f64 / 1e6).sum()
}

/// How long fewer tasks ran in the end than there were slots, and none waited.
fn tail_s(course: &[Interval], slots: f64) -> f64 {
    let is_tail = |one: &&Interval| {
        one.mean(Measure::Queued) < 0.5 && one.mean(Measure::SlotsBusy) < 0.9 * slots
    };
    course.iter().rev().take_while(is_tail).map(|one| one.micros as f64 / 1e6).sum()
}
