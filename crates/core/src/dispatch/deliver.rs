//! Results on their way to clients: kept in order, sent within a window,
//! forgotten when acknowledged.

use super::{Action, ConnectionId, Delivery, Dispatcher, Record, RequestError};
use crate::limits::{
    DELIVERY_BYTES_MAX, DELIVERY_RUNS_MAX, DELIVERY_WINDOW_BYTES_MAX, DELIVERY_WINDOW_RUNS_MAX,
};
use crate::result::{Detail, Finished};
use crate::task::InstanceId;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// An instance's results in the order of their delivery. Positions count
/// task results from the instance's first.
#[derive(Debug, Default)]
pub(super) struct Results {
    /// With the position of the first result of each run.
    runs: VecDeque<(u64, Finished)>,
    /// One past the last result.
    end: u64,
    /// Results before this one are in the journal.
    journaled: u64,
    /// Results before this one were taken in by a client.
    acknowledged: u64,
    bytes: u64,
    /// From the first task of each run to the run's position, once tasks have
    /// been looked up.
    by_task: Option<BTreeMap<u64, u64>>,
}

impl Results {
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// The position of the first result there still is.
    pub(super) fn start(&self) -> u64 {
        self.runs.front().map_or(self.end, |(at, _)| *at)
    }

    pub(super) fn push(&mut self, finished: Finished) {
        let at = self.end;
        self.end += finished.count;
        if let Some((last_at, last)) = self.runs.back_mut()
            && *last_at >= self.journaled
            && last.detail.is_none()
            && last.first.0 + last.count == finished.first.0
            && (Finished { first: last.first, count: last.count, ..finished.clone() }) == *last
        {
            last.count += finished.count;
            return;
        }
        self.bytes += finished.bytes();
        if let Some(by_task) = &mut self.by_task {
            by_task.insert(finished.first.0, at);
        }
        self.runs.push_back((at, finished));
    }

    /// What there is to say of a task's result beyond its outcome; `None` if
    /// the result is not there.
    pub(super) fn detail_of(&mut self, task: u64) -> Option<Option<Arc<Detail>>> {
        let runs = &self.runs;
        let by_task = self
            .by_task
            .get_or_insert_with(|| runs.iter().map(|(at, run)| (run.first.0, *at)).collect());
        let (_, at) = by_task.range(..=task).next_back()?;
        let index = self.runs.binary_search_by_key(at, |(at, _)| *at).ok()?;
        let (_, run) = self.runs.get(index)?;
        (task - run.first.0 < run.count).then(|| run.detail.clone())
    }

    /// Results from position `from` on, which must begin a run, as many as go
    /// into one message or record.
    pub(super) fn batch(&self, from: u64) -> Vec<Finished> {
        let index = self.runs.partition_point(|(at, _)| *at < from);
        let mut bytes = 0;
        let mut batch = Vec::with_capacity(DELIVERY_RUNS_MAX.min(self.runs.len() - index));
        for (_, run) in self.runs.iter().skip(index).take(DELIVERY_RUNS_MAX) {
            bytes += run.bytes();
            if bytes > DELIVERY_BYTES_MAX && !batch.is_empty() {
                break;
            }
            batch.push(run.clone());
        }
        batch
    }

    /// The next results not journaled yet, as many as go into one record; they
    /// then count as journaled.
    fn take_unjournaled(&mut self) -> Option<(u64, Vec<Finished>)> {
        let from = self.journaled;
        if from == self.end {
            return None;
        }
        let batch = self.batch(from);
        self.journaled += batch.iter().map(|run| run.count).sum::<u64>();
        Some((from, batch))
    }

    /// Counts everything as journaled: it was read from there.
    pub(super) fn set_journaled(&mut self) {
        self.journaled = self.end;
    }

    /// Makes the next result's position `at`; for results that were forgotten
    /// before a restart.
    pub(super) fn start_at(&mut self, at: u64) {
        debug_assert!(self.runs.is_empty());
        self.end = at;
        self.journaled = at;
    }

    /// Forgets runs that end at or before `upto`. Returns whether any did.
    pub(super) fn forget(&mut self, upto: u64) -> bool {
        let mut any = false;
        while let Some((at, run)) = self.runs.front() {
            if at + run.count > upto {
                break;
            }
            self.bytes -= run.bytes();
            if let Some(by_task) = &mut self.by_task {
                by_task.remove(&run.first.0);
            }
            self.runs.pop_front();
            any = true;
        }
        any
    }

    /// All results there are, with their positions.
    pub(super) fn iter(&self) -> impl Iterator<Item = &(u64, Finished)> {
        self.runs.iter()
    }
}

/// A client that receives an instance's results.
#[derive(Debug)]
pub(super) struct Subscriber {
    pub(super) connection: ConnectionId,
    /// The next result to send.
    cursor: u64,
    /// Messages sent and not acknowledged: where each ends, its runs, its
    /// bytes.
    unacknowledged: VecDeque<(u64, u64, u64)>,
    window_runs: u64,
    window_bytes: u64,
    told_complete: bool,
}

impl Subscriber {
    fn has_window(&self) -> bool {
        self.window_runs < DELIVERY_WINDOW_RUNS_MAX && self.window_bytes < DELIVERY_WINDOW_BYTES_MAX
    }

    fn acknowledge(&mut self, upto: u64) {
        while let Some((end, runs, bytes)) = self.unacknowledged.front() {
            if *end > upto {
                break;
            }
            self.window_runs -= runs;
            self.window_bytes -= bytes;
            self.unacknowledged.pop_front();
        }
    }
}

impl Dispatcher {
    pub(super) fn subscribe(
        &mut self,
        connection: ConnectionId,
        id: InstanceId,
        from: u64,
    ) -> Result<(), RequestError> {
        let instance = self.instances.get_mut(&id).ok_or(RequestError::NoInstance(id))?;
        if from < instance.results.start() {
            return Err(RequestError::Forgotten { first: instance.results.start() });
        }
        instance.subscribers.retain(|subscriber| subscriber.connection != connection);
        // A client may have been told of results that were lost with the
        // dispatcher before they were journaled only if the journal was: then
        // it waits for as many to come again.
        let index = instance.results.runs.partition_point(|(at, run)| at + run.count <= from);
        let cursor = instance.results.runs.get(index).map_or(instance.results.end, |(at, _)| *at);
        instance.subscribers.push(Subscriber {
            connection,
            cursor,
            unacknowledged: VecDeque::new(),
            window_runs: 0,
            window_bytes: 0,
            told_complete: false,
        });
        self.to_deliver.insert(id);
        Ok(())
    }

    pub(super) fn acknowledge(&mut self, connection: ConnectionId, id: InstanceId, upto: u64) {
        let Some(instance) = self.instances.get_mut(&id) else { return };
        let Some(subscriber) =
            instance.subscribers.iter_mut().find(|found| found.connection == connection)
        else {
            return;
        };
        subscriber.acknowledge(upto);
        self.to_deliver.insert(id);
        // What was not sent cannot have been taken in, and what another
        // subscriber was not sent yet must stay for it.
        let results = &mut instance.results;
        results.acknowledged = results.acknowledged.max(upto.min(subscriber.cursor));
        let sent = instance.subscribers.iter().map(|subscriber| subscriber.cursor).min();
        let upto = results.acknowledged.min(sent.unwrap_or(0));
        let clogged = instance.is_clogged();
        if !instance.options.keep_results && instance.results.forget(upto) {
            self.journal(Record::Acknowledged { instance: id, upto });
            if clogged {
                self.refresh_hungry(id);
                self.unplaced = true;
            }
        }
    }

    /// Journals results that are not journaled yet.
    pub(super) fn journal_results(&mut self) {
        let ids: Vec<InstanceId> = self.to_deliver.iter().copied().collect();
        for id in ids {
            let Some(instance) = self.instances.get_mut(&id) else { continue };
            while let Some((from, results)) = instance.results.take_unjournaled() {
                self.actions.push_back(Action::Journal(Record::Finished {
                    instance: id,
                    from,
                    results,
                }));
            }
        }
    }

    /// Sends what subscribers have window for.
    pub(super) fn deliver(&mut self) {
        while let Some(id) = self.to_deliver.pop_first() {
            let Some(instance) = self.instances.get_mut(&id) else { continue };
            let counts = instance.counts();
            let complete = instance.is_complete();
            let results = &instance.results;
            for subscriber in &mut instance.subscribers {
                while subscriber.has_window()
                    && (subscriber.cursor < results.end || (complete && !subscriber.told_complete))
                {
                    let batch = results.batch(subscriber.cursor);
                    let from = subscriber.cursor;
                    let bytes = batch.iter().map(Finished::bytes).sum();
                    subscriber.cursor += batch.iter().map(|run| run.count).sum::<u64>();
                    subscriber.told_complete = complete && subscriber.cursor == results.end;
                    let runs = batch.len() as u64;
                    subscriber.window_runs += runs;
                    subscriber.window_bytes += bytes;
                    subscriber.unacknowledged.push_back((subscriber.cursor, runs, bytes));
                    let mut executors: Vec<_> =
                        batch.iter().filter_map(|run| run.executor).collect();
                    // Most often what one executor did comes together.
                    executors.dedup();
                    let mentioned: BTreeSet<_> = executors.into_iter().collect();
                    let executors = mentioned
                        .into_iter()
                        .filter_map(|id| Some((id, self.executor_names.get(&id)?.clone())))
                        .collect();
                    self.actions.push_back(Action::Deliver {
                        connection: subscriber.connection,
                        delivery: Delivery {
                            instance: id,
                            from,
                            results: batch,
                            executors,
                            counts,
                            complete: subscriber.told_complete,
                        },
                    });
                }
            }
        }
    }

    pub(super) fn unsubscribe(&mut self, connection: ConnectionId) {
        for instance in self.instances.values_mut() {
            instance.subscribers.retain(|subscriber| subscriber.connection != connection);
        }
    }
}
