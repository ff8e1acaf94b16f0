//! What a run is measured by.

use crate::time::{Nanos, SECOND_NANOS};
use falkon_core::metrics::HitRatios;

/// Samples of a time series that are kept; when there are more, every second
/// one is dropped and the rest are twice as far apart.
const SAMPLES_MAX: usize = 2048;
/// Sub-divisions of each power of two that spans of time are counted in.
const BUCKETS_PER_DOUBLING: u64 = 64;
const BUCKET_BITS: u32 = BUCKETS_PER_DOUBLING.trailing_zeros();

/// The outcome of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Figures {
    /// Tasks that succeeded.
    pub done: u64,
    /// Tasks that failed for good.
    pub failed: u64,
    /// Runs of tasks, those included that were lost or failed.
    pub runs: u64,
    /// Slots of all nodes.
    pub slots: u64,
    /// From the first arrival until a client has the last result.
    pub makespan: Nanos,
    /// The same if nothing but the tasks themselves took time: the arrivals
    /// or the slots set the pace.
    pub ideal: Nanos,
    /// Ideal time over makespan (E of data-diffusion §4.3).
    pub efficiency: f64,
    /// Efficiency × slots (S of data-diffusion §4.3).
    pub speedup: f64,
    /// Makespan over that of infinitely many slots (data-diffusion §5.2.5).
    pub slowdown: f64,
    /// The time for which slots were there, in all (data-diffusion §5.2.4): of
    /// nodes on demand, from the LRM's start of their allocation until it has
    /// them back.
    pub cpu_s: f64,
    /// Where inputs came from (data-diffusion §5.2.1); `None` if tasks read
    /// nothing.
    pub hits: Option<HitRatios>,
    /// The share of all slots' time, from beginning to end, in which tasks
    /// ran.
    pub utilization: f64,
    /// Results per second, from beginning to end.
    pub throughput_per_s: f64,
    /// From a task's arrival until the client has its result.
    pub response: Distribution,
    /// From a task's arrival until it starts, on average.
    pub wait: Nanos,
    /// From its start to its end, on average.
    pub execute: Nanos,
    /// From its end until the client has its result, on average.
    pub deliver: Nanos,
    /// The most tasks that were submitted and had not started.
    pub queue_peak: u64,
    /// Messages that were delivered.
    pub messages: u64,
    /// Bytes of them.
    pub message_bytes: u64,
    /// Events of the simulation.
    pub events: u64,
    /// Faults that happened.
    pub faults: u64,
    /// Pages of results that dispatchers moved to their disks, and pages that
    /// these refused.
    pub pages: (u64, u64),
    /// The share of its time that the busiest dispatcher was busy.
    pub dispatcher_busy: f64,
    /// Relays below dispatchers.
    pub relays: u64,
    /// The share of its time that the busiest thread of a relay was busy: its
    /// dispatcher, or what passes between that and the one above.
    pub relay_busy: f64,
    /// Inputs of tasks that started, each of a task's different ones once.
    pub reads: Count,
    /// Of those, what was there already, or came for another.
    pub local: Count,
    /// What nodes fetched from one another; objects that came in part are
    /// counted in bytes only.
    pub peer: Count,
    /// What was read from the persistent store, likewise.
    pub store: Count,
    /// Bytes that the nodes' disks, and the memory in front of them, gave and took.
    pub disks: Disks,
    /// From the first arrival until the last of what nodes fetched was in their caches,
    /// and unpacked there if it is to be.
    pub staged: Nanos,
    /// Files that were written to the persistent store.
    pub files: u64,
    /// Different objects that were read.
    pub different_objects: u64,
    /// What nodes that were acquired on demand cost.
    pub provisioned: Option<Provisioned>,
    /// A fingerprint of every event with its time and its bytes.
    pub trace: u64,
    /// How it went.
    pub series: Vec<Sample>,
}

/// What nodes that were acquired on demand cost.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Provisioned {
    /// Requests that the LRM was sent.
    pub requests: u64,
    /// Those of them that it started.
    pub allocations: u64,
    /// Time for which executors were registered, together, in seconds.
    pub node_s: f64,
    /// Time for which nodes were allocated to Falkon, together, in seconds:
    /// from the LRM's start of an allocation until it has the node back.
    pub allocated_s: f64,
    /// The share of the slots' time on registered nodes in which tasks ran
    /// (falkon-sc07 §4.5: resource utilization).
    pub utilization: f64,
    /// Queries that the LRM was sent.
    pub queries: u64,
    /// The most nodes that were allocated at a time.
    pub nodes_peak: u64,
}

/// Bytes that disks gave and took; all 0 where nodes have none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Disks {
    /// Read from disks, by tasks and for other nodes.
    pub read: u64,
    /// Written to disks.
    pub written: u64,
    /// Read from memory, likewise, which had them in place of a disk.
    pub from_memory: u64,
}

/// Objects and bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Count {
    /// Objects.
    pub objects: u64,
    /// Bytes.
    pub bytes: u64,
}

impl From<Count> for falkon_core::data::stage::Count {
    fn from(of: Count) -> Self {
        falkon_core::data::stage::Count { objects: of.objects, bytes: of.bytes }
    }
}

impl Count {
    pub(crate) fn add(&mut self, objects: u64, bytes: u64) {
        self.objects += objects;
        self.bytes += bytes;
    }

    /// This without what came from elsewhere.
    pub(crate) fn without(self, other: Count) -> Count {
        Count {
            objects: self.objects.saturating_sub(other.objects),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }
}

/// How things stood at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sample {
    /// When.
    pub at: Nanos,
    /// Tasks that had arrived and been submitted.
    pub submitted: u64,
    /// Tasks that had been submitted and not started.
    pub queued: u64,
    /// Slots in which a task ran.
    pub running: u64,
    /// Nodes that were connected.
    pub nodes: u64,
    /// Nodes on which a task ran.
    pub busy_nodes: u64,
    /// Slots times time in which tasks had run, in slot-nanoseconds: the difference between two
    /// samples, over their distance, is the mean number of busy slots.
    pub busy_slot_time: u128,
    /// The same of nodes, in node-nanoseconds.
    pub busy_node_time: u128,
    /// Nodes times time in which they were connected, in node-nanoseconds.
    pub node_time: u128,
    /// Results that clients had.
    pub delivered: u64,
    /// Bytes that had been read from the persistent store.
    pub store_bytes: u64,
    /// Bytes that nodes had fetched from one another.
    pub peer_bytes: u64,
    /// Bytes of the inputs of tasks that had started.
    pub read_bytes: u64,
}

impl Sample {
    /// The same at another time, when nothing has begun or ended in between.
    fn moved(self, at: Nanos) -> Sample {
        let (later, earlier) = (u128::from(at.since(self.at).0), u128::from(self.at.since(at).0));
        let moved = |sum: u128, count: u64| {
            (sum + later * u128::from(count)).saturating_sub(earlier * u128::from(count))
        };
        Sample {
            at,
            busy_slot_time: moved(self.busy_slot_time, self.running),
            busy_node_time: moved(self.busy_node_time, self.busy_nodes),
            node_time: moved(self.node_time, self.nodes),
            ..self
        }
    }
}

/// How many of something are busy or there, and for how long they have been, together.
#[derive(Debug, Default)]
pub(crate) struct Occupied {
    count: u64,
    /// The sum up to `since`, in nanoseconds.
    sum: u128,
    since: Nanos,
}

impl Occupied {
    /// How many there are.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// The sum of the times of all up to `now`, in nanoseconds.
    pub(crate) fn time(&self, now: Nanos) -> u128 {
        self.sum + u128::from(now.since(self.since).0) * u128::from(self.count)
    }

    /// From `now` on there are `count`.
    pub(crate) fn set(&mut self, now: Nanos, count: u64) {
        self.sum = self.time(now);
        (self.count, self.since) = (count, now);
    }

    /// From `now` on there is one more.
    pub(crate) fn add(&mut self, now: Nanos) {
        self.set(now, self.count + 1);
    }

    /// From `now` on there is one less.
    pub(crate) fn remove(&mut self, now: Nanos) {
        self.set(now, self.count - 1);
    }
}

/// How spans of time are distributed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Distribution {
    /// The mean.
    pub mean: Nanos,
    /// Half are no longer.
    pub median: Nanos,
    /// 95 of 100 are no longer.
    pub p95: Nanos,
    /// 99 of 100 are no longer.
    pub p99: Nanos,
    /// The longest.
    pub longest: Nanos,
}

/// Counts spans of time, each to within a 64th of itself.
#[derive(Debug, Default)]
pub(crate) struct Spans {
    buckets: Vec<u64>,
    count: u64,
    sum: u128,
    longest: Nanos,
}

impl Spans {
    pub(crate) fn add(&mut self, span: Nanos) {
        let at = bucket(span.0);
        if self.buckets.len() <= at {
            self.buckets.resize(at + 1, 0);
        }
        self.buckets[at] += 1;
        self.count += 1;
        self.sum += u128::from(span.0);
        self.longest = self.longest.max(span);
    }

    pub(crate) fn mean(&self) -> Nanos {
        Nanos(self.sum.checked_div(u128::from(self.count)).unwrap_or(0) as u64)
    }

    /// The span that a share of all does not pass.
    fn percentile(&self, share: f64) -> Nanos {
        let rank = ((self.count as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        for (at, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return Nanos(bucket_end(at)).min(self.longest);
            }
        }
        self.longest
    }

    pub(crate) fn distribution(&self) -> Distribution {
        Distribution {
            mean: self.mean(),
            median: self.percentile(0.5),
            p95: self.percentile(0.95),
            p99: self.percentile(0.99),
            longest: self.longest,
        }
    }
}

fn bucket(value: u64) -> usize {
    let Some(exponent) = value.checked_ilog2().and_then(|bits| bits.checked_sub(BUCKET_BITS))
    else {
        return value as usize;
    };
    let mantissa = (value >> exponent) - BUCKETS_PER_DOUBLING;
    ((u64::from(exponent) + 1) * BUCKETS_PER_DOUBLING + mantissa) as usize
}

/// The greatest value in a bucket.
fn bucket_end(at: usize) -> u64 {
    let at = at as u64;
    if at < 2 * BUCKETS_PER_DOUBLING {
        return at;
    }
    let exponent = at / BUCKETS_PER_DOUBLING - 1;
    let mantissa = at % BUCKETS_PER_DOUBLING + BUCKETS_PER_DOUBLING;
    (mantissa << exponent) + ((1 << exponent) - 1)
}

/// A time series of bounded length.
#[derive(Debug)]
pub(crate) struct Series {
    samples: Vec<Sample>,
    next: Nanos,
    interval: Nanos,
}

impl Series {
    pub(crate) fn new() -> Series {
        let interval = Nanos(SECOND_NANOS / 100);
        Series { samples: Vec::new(), next: Nanos(0), interval }
    }

    /// When the next sample is to be taken.
    pub(crate) fn due(&self) -> Nanos {
        self.next
    }

    /// Takes samples up to `now`, when things stand as in `state`; nothing has changed since the
    /// last.
    pub(crate) fn take(&mut self, now: Nanos, state: Sample) {
        while self.next <= now {
            if self.samples.len() >= SAMPLES_MAX {
                let mut keep = false;
                self.samples.retain(|_| {
                    keep = !keep;
                    keep
                });
                self.interval = Nanos(self.interval.0.saturating_mul(2));
                let last = self.samples.last().map_or(Nanos(0), |sample| sample.at);
                self.next = last.after(self.interval);
                continue;
            }
            self.samples.push(state.moved(self.next));
            self.next = self.next.after(self.interval);
        }
    }

    pub(crate) fn finish(mut self, now: Nanos, state: Sample) -> Vec<Sample> {
        self.samples.retain(|sample| sample.at < now);
        self.samples.push(state.moved(now));
        self.samples
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_narrow_and_in_order() {
        let mut before = 0;
        for value in (0..100_000).chain((0..40).map(|shift| 12_345 << shift)) {
            let at = bucket(value);
            let end = bucket_end(at);
            assert!(end >= value && end - value <= value / BUCKETS_PER_DOUBLING, "{value}");
            assert!(value < 100_000 && at >= before || value >= 12_345);
            before = at;
        }
    }

    #[test]
    fn percentiles_are_close() {
        let mut spans = Spans::default();
        for span in 1..=10_000u64 {
            spans.add(Nanos(span * 1000));
        }
        let found = spans.distribution();
        assert_eq!(found.mean, Nanos(5_000_500));
        assert_eq!(found.longest, Nanos(10_000_000));
        for (found, exact) in [(found.median, 5e6), (found.p95, 9.5e6), (found.p99, 9.9e6)] {
            assert!((found.0 as f64 / exact - 1.0).abs() < 0.02, "{found:?} for {exact}");
        }
    }

    #[test]
    fn a_series_stays_short() {
        let mut series = Series::new();
        for second in 0..100_000u64 {
            let state = Sample { submitted: second, ..Sample::default() };
            series.take(Nanos(second * SECOND_NANOS), state);
        }
        let samples = series.finish(Nanos(100_000 * SECOND_NANOS), Sample::default());
        assert!(samples.len() > SAMPLES_MAX / 4 && samples.len() <= SAMPLES_MAX + 1);
        let gaps: Vec<u64> =
            samples.windows(2).map(|pair| pair[1].at.since(pair[0].at).0).collect();
        assert!(gaps[..gaps.len() - 1].iter().all(|gap| *gap == gaps[0]), "uneven samples");
    }

    /// A series and a sum of its own agree on how many were busy between any two samples.
    #[test]
    fn samples_have_means_between_them() {
        let mut series = Series::new();
        let mut busy = Occupied::default();
        let (mut now, mut sum) = (Nanos(0), 0u128);
        let mut sums = vec![(now, sum)];
        let mut draw = 7u64;
        for _ in 0..5_000 {
            draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let span = Nanos((draw >> 33) % (SECOND_NANOS / 20));
            now = now.after(span);
            sum += u128::from(span.0) * u128::from(busy.count());
            let state = Sample {
                at: now,
                busy_nodes: busy.count(),
                busy_node_time: busy.time(now),
                ..Sample::default()
            };
            assert_eq!(state.busy_node_time, sum);
            series.take(now, state);
            sums.push((now, sum));
            if draw >> 63 == 0 { busy.add(now) } else { busy.set(now, busy.count() / 2) }
        }
        let last = Sample { at: now, busy_node_time: sum, ..Sample::default() };
        let samples = series.finish(now, last);
        assert!(samples.len() > 1_000);
        for sample in samples {
            let at = sums.partition_point(|(at, _)| *at < sample.at);
            let (before, after) = (sums[at.saturating_sub(1)], sums[at]);
            let found = sample.busy_node_time;
            assert!(before.1 <= found && found <= after.1, "{sample:?}");
            if sample.at == after.0 {
                assert_eq!(found, after.1);
            }
        }
    }
}
