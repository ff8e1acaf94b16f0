//! What is known of one queue besides its allocations.

use super::limits::{DELAYS_MAX, PAUSE_MICROS, PAUSE_MICROS_MAX, WORDS_BYTES_MAX};
use super::size::Size;
use super::{QueueId, QueueOptions, Waiting};
use crate::task::{Resources, Time};
use std::collections::VecDeque;

/// Delays that say nothing yet of the longest.
const DELAYS_FEW: usize = 4;

#[derive(Debug)]
pub(super) struct Queue {
    pub(super) id: QueueId,
    pub(super) options: QueueOptions,
    /// What a node offers, as the last executor that joined did.
    pub(super) node: Resources,
    /// None has joined, and what it offers is guessed.
    pub(super) is_guess: bool,
    /// Paused, by somebody or after refusals; what the LRM said then.
    pub(super) paused: Option<String>,
    pub(super) removing: bool,
    /// A query was answered: what there is of ours is known.
    pub(super) is_known: bool,
    /// When a query was sent that is not answered.
    pub(super) querying: Option<Time>,
    /// No query before then.
    pub(super) query_after: Time,
    /// Queries that failed in a row.
    pub(super) query_failures: u32,
    /// Nothing is asked before then.
    pub(super) not_before: Time,
    /// Refusals in a row.
    pub(super) refusals: u32,
    /// Allocations in a row that ended before an executor joined.
    pub(super) barren: u32,
    /// Allocations in a row that were given up before an executor joined,
    /// though nobody saw them end.
    pub(super) vanished: u32,
    /// Since when there may be jobs of it that answers do not name.
    pub(super) vigil: Option<Time>,
    /// How large requests can be.
    pub(super) size: Size,
    /// Requests made since there was last nothing wanted.
    pub(super) made: u64,
    /// When the LRM was asked what is free.
    pub(super) asked_free: Option<Time>,
    /// What it answered, until it is used.
    pub(super) free: Option<Option<u64>>,
    /// Not asked again before then.
    pub(super) free_after: Time,
    /// From request to first executor, in microseconds, the last ones.
    pub(super) delays: VecDeque<u64>,
    /// When an executor was last released one at a time.
    pub(super) released_one: Option<Time>,
    /// When it was last said that tasks wait which it cannot serve.
    pub(super) said_unserved: Option<Time>,
}

impl Queue {
    pub(super) fn new(id: QueueId, options: QueueOptions) -> Queue {
        Queue {
            id,
            node: options.node.clone(),
            is_guess: options.node_is_guess,
            options,
            paused: None,
            removing: false,
            is_known: false,
            querying: None,
            query_after: Time::default(),
            query_failures: 0,
            not_before: Time::default(),
            refusals: 0,
            barren: 0,
            vanished: 0,
            vigil: None,
            size: Size::default(),
            made: 0,
            asked_free: None,
            free: None,
            free_after: Time::default(),
            delays: VecDeque::new(),
            released_one: None,
            said_unserved: None,
        }
    }

    /// An allocation's first executor joined so long after the request.
    pub(super) fn measure_delay(&mut self, micros: u64) {
        if self.delays.len() >= DELAYS_MAX {
            self.delays.pop_front();
        }
        self.delays.push_back(micros);
    }

    /// How long a request is expected to need until its executors have joined.
    pub(super) fn delay_micros(&self) -> u64 {
        let prior = self.options.delay_micros;
        let sum = self.delays.iter().fold(prior, |sum, delay| sum.saturating_add(*delay));
        sum / (self.delays.len() as u64 + 1)
    }

    /// The longest that a request needed, of those remembered; while they are
    /// few, no less than it was taken to need.
    pub(super) fn longest_delay_micros(&self) -> u64 {
        let longest = self.delays.iter().copied().max().unwrap_or(0);
        let prior = if self.delays.len() < DELAYS_FEW { self.options.delay_micros } else { 0 };
        longest.max(prior)
    }

    /// Whether tasks could run on one of its nodes.
    pub(super) fn suits(&self, waiting: &Waiting) -> bool {
        self.lasts(waiting.lasts_micros)
            && (self.is_guess || self.node.fits(&waiting.need))
            && waiting.width() <= self.width_max()
    }

    /// The most nodes that a task on several of them may have.
    pub(super) fn width_max(&self) -> u64 {
        self.executors_max().min(self.options.request_nodes_max)
    }

    /// Whether its executors stay for so long.
    pub(super) fn lasts(&self, micros: u64) -> bool {
        self.options.walltime_micros == 0 || micros <= self.stay_micros()
    }

    /// How long an executor takes tasks, where there is a walltime.
    pub(super) fn stay_micros(&self) -> u64 {
        self.options.walltime_micros.saturating_sub(self.options.leave_micros)
    }

    /// Nodes that it may have at most, and can.
    pub(super) fn executors_max(&self) -> u64 {
        self.size.executors_max(&self.options)
    }

    /// Whether something may be asked of it at `now`.
    pub(super) fn takes_requests(&self, now: Time) -> bool {
        self.paused.is_none()
            && !self.removing
            && self.is_known
            && !self.size.is_awaited(&self.options)
            && self.query_failures == 0
            && self.not_before <= now
    }
}

/// The pause after so many failures in a row.
pub(super) fn pause_micros(times: u32) -> u64 {
    PAUSE_MICROS.saturating_mul(1 << times.saturating_sub(1).min(30)).min(PAUSE_MICROS_MAX)
}

/// An LRM's words, as far as they are kept.
pub(super) fn shortened(mut words: String) -> String {
    if words.len() > WORDS_BYTES_MAX {
        let end = (0..=WORDS_BYTES_MAX).rev().find(|at| words.is_char_boundary(*at)).unwrap_or(0);
        words.truncate(end);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::{DELAYS_FEW, Queue};
    use crate::provision::limits::DELAYS_MAX;
    use crate::provision::{QueueId, QueueOptions};

    fn queue(delay_micros: u64) -> Queue {
        Queue::new(QueueId(0), QueueOptions { delay_micros, ..QueueOptions::default() })
    }

    #[test]
    fn a_delay_is_expected_to_be_the_mean_of_those_remembered_and_of_the_one_given() {
        let mut queue = queue(60);
        assert_eq!(queue.delay_micros(), 60);
        queue.measure_delay(20);
        assert_eq!(queue.delay_micros(), 40);
        queue.measure_delay(10);
        assert_eq!(queue.delay_micros(), 30);
        for _ in 0..DELAYS_MAX {
            queue.measure_delay(60);
        }
        assert_eq!(queue.delay_micros(), 60, "the first are forgotten");
        queue.measure_delay(u64::MAX);
        assert_eq!(queue.delay_micros(), u64::MAX / (DELAYS_MAX as u64 + 1));
    }

    #[test]
    fn the_longest_delay_is_no_less_than_the_one_given_while_few_are_known() {
        let mut queue = queue(60);
        assert_eq!(queue.longest_delay_micros(), 60);
        (1..DELAYS_FEW).for_each(|_| queue.measure_delay(20));
        assert_eq!(queue.longest_delay_micros(), 60);
        queue.measure_delay(30);
        assert_eq!(queue.longest_delay_micros(), 30);
    }
}
