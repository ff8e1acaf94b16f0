//! What is to be expected of demand, going by what a dispatcher has seen.
//!
//! Work comes in bursts or as a stream. Bursts that follow one another, each
//! when all tasks before it have ended, are stages of something: their sizes
//! often grow or shrink by a factor, and the next comes when what runs has
//! ended. That trend counts as long as it has foretold most of the last
//! stages. A stream has a rate, and the rate a trend.

use super::limits::{BURSTS_MAX, LOOK_MICROS, PEAKS_MAX, SAMPLES_MAX};
use super::{Demand, Durations};
use crate::limits::PEER_SECOND_BYTES;
use crate::task::Time;
use std::collections::VecDeque;

/// Arrivals that are no further apart belong to one burst.
const BURST_GAP_MICROS: u64 = 500_000;
/// What takes longer to arrive is no stage but a stream.
const BURST_MICROS_MAX: u64 = 5_000_000;
/// Nodes are behind if more waits than ends in this time.
const BACKLOG_MICROS: u64 = 2_000_000;
/// Stages that say whether the trend is to be relied on.
const RECORD_STAGES: usize = 3;
/// Tasks after which run times count half.
const DURATIONS_TASKS_MAX: u64 = 4096;
/// A stage is not expected to be larger than the one before by more than this.
const GROWTH_MAX: u64 = 8;

#[derive(Debug, Clone, Copy)]
struct Burst {
    first: Time,
    last: Time,
    tasks: u64,
    /// Everything before it had ended when it came.
    follows: bool,
}

impl Burst {
    fn is_stage(&self) -> bool {
        self.follows && self.last.since(self.first) <= BURST_MICROS_MAX
    }
}

/// How things stood at a time.
#[derive(Debug, Clone, Copy, Default)]
struct Sample {
    at: Time,
    submitted: u64,
    ended: u64,
    busy_micros: u64,
    /// Time for which executors have been there, together.
    here_micros: u64,
    executors: u64,
    queued: u64,
    cached_bytes: u64,
    local_bytes: u64,
    fetched_bytes: u64,
}

#[derive(Debug, Default)]
pub(super) struct Forecast {
    bursts: VecDeque<Burst>,
    durations: Durations,
    submitted: u64,
    /// One for each [`LOOK_MICROS`].
    samples: VecDeque<Sample>,
    latest: Sample,
    /// Nodes that had or wanted work.
    peaks: Peaks,
    /// What nodes fetched while tasks waited, in bytes, and in how much of their
    /// time together.
    fetching: Option<(u64, u64)>,
    /// As `peaks`, of the nodes that the stream was expected to want.
    wishes: Peaks,
}

/// Each is until its time the greatest since the one before it, falling.
type Peaks = VecDeque<(Time, u64)>;

/// Takes a number in; no more than `window_micros` are remembered.
fn remember(peaks: &mut Peaks, now: Time, nodes: u64, window_micros: u64) {
    while peaks.back().is_some_and(|(_, before)| *before <= nodes) {
        peaks.pop_back();
    }
    while peaks.front().is_some_and(|(at, _)| now.since(*at) > window_micros) {
        peaks.pop_front();
    }
    if peaks.len() >= PEAKS_MAX {
        peaks.pop_front();
    }
    peaks.push_back((now, nodes));
}

fn most_within(peaks: &Peaks, now: Time, window_micros: u64) -> u64 {
    let within = peaks.iter().filter(|(at, _)| now.since(*at) <= window_micros);
    within.map(|(_, nodes)| *nodes).max().unwrap_or(0)
}

impl Forecast {
    /// Takes in what dispatchers' queues hold; so many executors are there.
    pub(super) fn demand(&mut self, now: Time, demand: &Demand, executors: u64) {
        self.durations.merge(&demand.durations);
        if self.durations.tasks() > DURATIONS_TASKS_MAX {
            self.durations.halve();
        }
        let came = demand.submitted.saturating_sub(self.submitted);
        let follows = demand.ended >= self.submitted;
        self.submitted = self.submitted.max(demand.submitted);
        let Demand { submitted, ended, busy_micros, .. } = *demand;
        let here = now.since(self.latest.at).saturating_mul(executors);
        let here_micros = self.latest.here_micros.saturating_add(here);
        let queued = demand.queued();
        let Demand { cached_bytes, local_bytes, fetched_bytes, .. } = *demand;
        self.latest = Sample {
            at: now,
            submitted,
            ended,
            busy_micros,
            here_micros,
            executors,
            queued,
            cached_bytes,
            local_bytes,
            fetched_bytes,
        };
        if self.samples.back().is_none_or(|sample| now.since(sample.at) >= LOOK_MICROS) {
            if self.samples.len() >= SAMPLES_MAX {
                self.samples.pop_front();
            }
            self.samples.push_back(self.latest);
        }
        if came == 0 {
            return;
        }
        if let Some(burst) = self.bursts.back_mut()
            && now.since(burst.last) < BURST_GAP_MICROS
        {
            burst.last = now;
            burst.tasks = burst.tasks.saturating_add(came);
            return;
        }
        if self.bursts.len() >= BURSTS_MAX {
            self.bursts.pop_front();
        }
        self.bursts.push_back(Burst { first: now, last: now, tasks: came, follows });
    }

    /// So many nodes have or want work now; `window_micros` is how long that is
    /// to be remembered.
    pub(super) fn peak(&mut self, now: Time, nodes: u64, window_micros: u64) {
        remember(&mut self.peaks, now, nodes, window_micros);
    }

    /// The stream is expected to want so many nodes.
    pub(super) fn wish(&mut self, now: Time, nodes: u64, window_micros: u64) {
        remember(&mut self.wishes, now, nodes, window_micros);
    }

    /// The most nodes that the stream was expected to want within so long.
    pub(super) fn wish_within(&self, now: Time, window_micros: u64) -> u64 {
        most_within(&self.wishes, now, window_micros)
    }

    /// The most nodes that had or wanted work within so long.
    pub(super) fn peak_within(&self, now: Time, window_micros: u64) -> u64 {
        most_within(&self.peaks, now, window_micros)
    }

    /// The size of the stage after the one before `end`, if two before that say
    /// it.
    fn foretold(&self, end: usize) -> Option<u64> {
        let before = self.bursts.get(end.checked_sub(2)?)?;
        let last = self.bursts.get(end - 1)?;
        if !last.is_stage() || before.last.since(before.first) > BURST_MICROS_MAX {
            return None;
        }
        let next = u128::from(last.tasks).pow(2).div_ceil(u128::from(before.tasks.max(1)));
        let most = u128::from(last.tasks) * u128::from(GROWTH_MAX);
        u64::try_from(next.min(most)).ok()
    }

    /// The size of the next stage if there are stages, and whether such
    /// predictions held for most of the last. Sizes beyond `most`, the tasks
    /// that can run at a time, are all the same.
    pub(super) fn next_stage(&self, most: u64) -> Option<(u64, bool)> {
        let next = self.foretold(self.bursts.len())?;
        let (mut judged, mut right) = (0, 0);
        for at in (0..self.bursts.len()).rev() {
            let Some(foretold) = self.foretold(at).filter(|_| judged < RECORD_STAGES) else {
                break;
            };
            let (one, other) = (foretold.min(most), self.bursts[at].tasks.min(most));
            judged += 1;
            right += usize::from(one.max(other) * 2 <= one.min(other) * 3 + 2);
        }
        Some((next, right * 2 >= judged))
    }

    /// The last sample that is so old, or the oldest.
    fn sample_before(&self, age_micros: u64) -> Option<Sample> {
        let now = self.latest.at;
        let old = self.samples.iter().rev().find(|sample| now.since(sample.at) >= age_micros);
        old.or(self.samples.front()).copied()
    }

    /// Whether work comes as a stream.
    pub(super) fn is_stream(&self) -> bool {
        self.bursts.back().is_some_and(|burst| !burst.is_stage())
    }

    /// Tasks per second that are to be expected after `ahead_micros`, if work
    /// comes as a stream: the rate of the last such span, and as much more or
    /// less as that is than the rate of the span before.
    pub(super) fn rate_ahead(&self, ahead_micros: u64) -> Option<f64> {
        if !self.is_stream() {
            return None;
        }
        let span = ahead_micros.clamp(4 * LOOK_MICROS, LOOK_MICROS * (SAMPLES_MAX as u64) / 2);
        let rate = |from: Sample, to: Sample| {
            let tasks = to.submitted.saturating_sub(from.submitted);
            let micros = to.at.since(from.at);
            (micros > 0).then(|| tasks as f64 * 1e6 / micros as f64)
        };
        let middle = self.sample_before(span)?;
        let first = self.sample_before(span.saturating_mul(2))?;
        let recent = rate(middle, self.latest)?;
        let before = rate(first, middle).unwrap_or(recent);
        Some((2.0 * recent - before).max(0.0))
    }

    /// Node time that a task of a stream has cost lately, with all that comes
    /// before and after it, in microseconds: time for which nodes had tasks,
    /// or, while tasks wait though nodes are there, all their time, as
    /// something keeps them from doing more.
    pub(super) fn node_micros(&self, window_micros: u64) -> Option<u64> {
        let before = self.sample_before(window_micros)?;
        let micros = match self.is_behind(window_micros) {
            true => self.latest.here_micros.saturating_sub(before.here_micros),
            false => self.latest.busy_micros.saturating_sub(before.busy_micros),
        };
        micros.checked_div(self.latest.ended.saturating_sub(before.ended))
    }

    /// Measures how fast nodes get data while tasks wait: in the time that
    /// their `slots` are not at work. When none wait, it is as it was last.
    pub(super) fn measure_fetching(&mut self, window_micros: u64, slots: u64) {
        let Some(before) = self.sample_before(window_micros) else { return };
        let fetched = self.latest.fetched_bytes.saturating_sub(before.fetched_bytes);
        if fetched == 0 || !self.is_behind(window_micros) {
            return;
        }
        let ended = self.latest.ended.saturating_sub(before.ended);
        let ran = ended.saturating_mul(self.mean_micros().unwrap_or(0)) / slots.max(1);
        let here = self.latest.here_micros.saturating_sub(before.here_micros);
        self.fetching = Some((fetched, here.saturating_sub(ran)));
    }

    /// How long a node in the place of another would take to fetch again what
    /// that has in its cache and tasks have read there within such a window, at
    /// the rate at which nodes got data when tasks last waited for it.
    pub(super) fn refill_micros(&self, window_micros: u64) -> u64 {
        let Some(before) = self.sample_before(window_micros) else { return 0 };
        let read = self.latest.local_bytes.saturating_sub(before.local_bytes);
        let useful = read.min(self.latest.cached_bytes) / self.latest.executors.max(1);
        let (bytes, micros) = self.fetching.unwrap_or((PEER_SECOND_BYTES, 1_000_000));
        let refill = u128::from(useful) * u128::from(micros) / u128::from(bytes);
        u64::try_from(refill).unwrap_or(u64::MAX)
    }

    /// Nodes that are worth their time for what they have in their caches, if the
    /// stream goes on as in such a window. Of `n` nodes each saves the `n`th
    /// part of the time that would be spent on fetching what tasks find there;
    /// it costs its own time. So many are worth it as would have to fetch all
    /// the time if nothing were cached, at the rate at which nodes got data
    /// when tasks last waited for it.
    pub(super) fn saving_nodes(&self, window_micros: u64) -> u64 {
        let Some(before) = self.sample_before(window_micros) else { return 0 };
        let read = self.latest.local_bytes.saturating_sub(before.local_bytes);
        let window = self.latest.at.since(before.at).max(1);
        let (bytes, micros) = self.fetching.unwrap_or((PEER_SECOND_BYTES, 1_000_000));
        let saved = u128::from(read) * u128::from(micros) / u128::from(bytes);
        u64::try_from(saved / u128::from(window)).unwrap_or(u64::MAX)
    }

    /// Whether more waits than ends within a few seconds.
    pub(super) fn is_behind(&self, window_micros: u64) -> bool {
        self.sample_before(window_micros).is_some_and(|before| {
            let ended = self.latest.ended.saturating_sub(before.ended);
            let window = self.latest.at.since(before.at);
            let few = u128::from(ended) * u128::from(BACKLOG_MICROS);
            u128::from(self.latest.queued) * u128::from(window) > few
        })
    }

    /// The run time of tasks that ended lately, on average.
    pub(super) fn mean_micros(&self) -> Option<u64> {
        self.durations.mean_micros()
    }

    /// When what runs and waits is expected to have ended, on so many slots;
    /// `None` while nobody can say.
    pub(super) fn done_at(&self, now: Time, demand: &Demand, slots: u64) -> Option<Time> {
        let mut left = 0;
        if demand.running > 0 {
            let estimated = demand.running_until.map(|until| until.since(now));
            let elapsed = demand.last_sent.map_or(0, |sent| now.since(sent));
            let measured = || self.durations.left_micros(elapsed);
            left = estimated.filter(|left| *left > 0).or_else(measured)?;
        }
        for waiting in &demand.waiting {
            let each = waiting.estimate_micros.or_else(|| self.mean_micros())?;
            let rounds = waiting.places().div_ceil(slots.max(1));
            left = left.saturating_add(each.saturating_mul(rounds));
        }
        Some(now.after(left))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provision::Waiting;
    use crate::task::Resources;

    const SECOND: u64 = 1_000_000;

    /// A forecast of a stream, and all that its dispatcher has counted.
    #[derive(Default)]
    struct Stream {
        forecast: Forecast,
        now: Time,
        demand: Demand,
    }

    impl Stream {
        /// Nothing has come yet.
        fn new() -> Stream {
            let mut stream = Stream::default();
            stream.forecast.demand(stream.now, &stream.demand, 0);
            stream
        }

        /// For so many seconds so many tasks come each second, a quarter of them at
        /// a time, and each ends within a second; so many executors are there.
        fn goes_on(&mut self, seconds: u64, tasks_per_s: u64, executors: u64) {
            for _ in 0..seconds {
                self.demand.ended = self.demand.submitted;
                self.demand.busy_micros += tasks_per_s * SECOND / 4;
                for _ in 0..4 {
                    self.now = self.now.after(SECOND / 4);
                    self.demand.submitted += tasks_per_s / 4;
                    self.forecast.demand(self.now, &self.demand, executors);
                }
            }
        }

        fn waiting(&mut self, tasks: u64) {
            let need = Resources::cpus(1);
            let waiting = Waiting { need, tasks, estimate_micros: None, lasts_micros: 0, nodes: 1 };
            self.demand.waiting = vec![waiting];
        }
    }

    #[test]
    fn a_stream_is_expected_to_go_on_as_its_rate_changes() {
        let mut stream = Stream::new();
        assert_eq!(stream.forecast.rate_ahead(SECOND), None, "nothing came yet");
        stream.goes_on(30, 12, 1);
        assert!(stream.forecast.is_stream());
        let ahead = |stream: &Stream, micros| stream.forecast.rate_ahead(micros).unwrap();
        let is = |found: f64, expected: f64| {
            assert!((found - expected).abs() <= expected / 20.0, "{found}, not {expected}");
        };
        is(ahead(&stream, 10 * SECOND), 12.0);
        // Ten seconds of 40 after as many of 12: 68 are next, and then, as that
        // went on, 40.
        stream.goes_on(10, 40, 1);
        is(ahead(&stream, 10 * SECOND), 68.0);
        stream.goes_on(10, 40, 1);
        is(ahead(&stream, 10 * SECOND), 40.0);
        // A rate that falls does not fall below nothing.
        stream.goes_on(10, 4, 1);
        is(ahead(&stream, 10 * SECOND), 0.0);
        // The spans are four looks at least.
        stream.goes_on(4, 4, 1);
        stream.goes_on(4, 12, 1);
        is(ahead(&stream, 0), 20.0);
        // And no more than half of those remembered.
        stream.goes_on(SAMPLES_MAX as u64 + 1, 12, 1);
        stream.goes_on(SAMPLES_MAX as u64 / 2, 40, 1);
        is(ahead(&stream, u64::MAX), 68.0);
    }

    #[test]
    fn looks_in_between_change_what_is_expected_by_nothing() {
        let mut stream = Stream::new();
        stream.goes_on(60, 12, 1);
        let before = stream.forecast.rate_ahead(20 * SECOND);
        assert_eq!(stream.forecast.samples.len(), 61, "one for each look");
        // Demand that says the same, a hundred times within a second.
        for _ in 0..100 {
            stream.now = stream.now.after(SECOND / 1000);
            stream.forecast.demand(stream.now, &stream.demand, 1);
        }
        assert_eq!(stream.forecast.samples.len(), 61);
        let after = stream.forecast.rate_ahead(20 * SECOND).unwrap();
        assert!((after - before.unwrap()).abs() < 0.3, "{after}");
        stream.goes_on(2 * SAMPLES_MAX as u64, 12, 1);
        assert_eq!(stream.forecast.samples.len(), SAMPLES_MAX);
    }

    #[test]
    fn a_task_of_a_stream_costs_what_nodes_spent_on_it() {
        let mut stream = Stream::new();
        stream.goes_on(20, 8, 3);
        // A quarter of a second each.
        assert_eq!(stream.forecast.node_micros(10 * SECOND), Some(SECOND / 4));
        assert!(!stream.forecast.is_behind(10 * SECOND));
        // While more waits than ends in two seconds, all time of three nodes.
        stream.waiting(16);
        stream.goes_on(1, 8, 3);
        assert!(!stream.forecast.is_behind(10 * SECOND), "two seconds' work is no backlog");
        stream.waiting(17);
        stream.goes_on(1, 8, 3);
        assert!(stream.forecast.is_behind(10 * SECOND));
        assert_eq!(stream.forecast.node_micros(10 * SECOND), Some(3 * SECOND / 8));
        assert_eq!(Forecast::default().node_micros(SECOND), None);
    }

    #[test]
    fn data_is_worth_the_time_that_fetching_it_takes() {
        let mut stream = Stream::new();
        stream.demand.durations.add(SECOND / 8, 1);
        stream.goes_on(10, 8, 2);
        assert_eq!(stream.forecast.refill_micros(10 * SECOND), 0, "nothing was read");
        assert_eq!(stream.forecast.saving_nodes(10 * SECOND), 0);
        // Data comes at the rate of a link as long as nobody waits for it.
        stream.demand.local_bytes += 20 * 6 * PEER_SECOND_BYTES;
        stream.demand.cached_bytes = 4 * PEER_SECOND_BYTES;
        stream.goes_on(1, 8, 2);
        assert_eq!(stream.forecast.refill_micros(10 * SECOND), 2 * SECOND, "half for each of two");
        assert_eq!(stream.forecast.saving_nodes(10 * SECOND), 12, "120 seconds within ten");
        // Tasks waited for ten seconds in which nodes fetched: 20 node-seconds,
        // of which 10 of two slots went to 80 tasks of an eighth.
        stream.waiting(1000);
        stream.forecast.measure_fetching(10 * SECOND, 2);
        assert_eq!(stream.forecast.fetching, None, "nobody waited and nothing was fetched");
        stream.demand.fetched_bytes += 3 * PEER_SECOND_BYTES;
        stream.goes_on(1, 8, 2);
        stream.forecast.measure_fetching(10 * SECOND, 2);
        let ran = 80 * (SECOND / 8) / 2;
        assert_eq!(stream.forecast.fetching, Some((3 * PEER_SECOND_BYTES, 20 * SECOND - ran)));
        let micros = 2 * (20 * SECOND - ran) / 3;
        assert_eq!(stream.forecast.refill_micros(10 * SECOND), micros);
    }

    #[test]
    fn what_runs_and_waits_ends_when_its_rounds_are_over() {
        let mut stream = Stream { now: Time(100 * SECOND), ..Stream::default() };
        let done = |stream: &Stream, slots| {
            let at = stream.forecast.done_at(stream.now, &stream.demand, slots);
            at.map(|at| at.since(stream.now) / SECOND)
        };
        assert_eq!(done(&stream, 4), Some(0));
        stream.waiting(9);
        assert_eq!(done(&stream, 4), None, "nobody knows how long they run");
        stream.demand.waiting[0].estimate_micros = Some(10 * SECOND);
        assert_eq!(done(&stream, 4), Some(30));
        assert_eq!(done(&stream, 0), Some(90), "no slot is as one");
        stream.demand.running = 1;
        assert_eq!(done(&stream, 4), None, "nobody knows when what runs ends");
        stream.demand.running_until = Some(stream.now.after(5 * SECOND));
        assert_eq!(done(&stream, 4), Some(35));
        // The task should have ended already: it is expected to run as long as those
        // before it that ran longer.
        stream.demand.running_until = Some(Time(99 * SECOND));
        stream.demand.last_sent = Some(Time(98 * SECOND));
        stream.forecast.durations.add(4 * SECOND, 1);
        let left = stream.forecast.durations.left_micros(2 * SECOND).unwrap() / SECOND;
        assert_eq!(done(&stream, 4), Some(30 + left));
    }
}
