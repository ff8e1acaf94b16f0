//! Results on their way to clients: sent within a window, forgotten when
//! acknowledged.

use super::outbound::Outbound;
use super::pages::Page;
use super::retry::Current;
use super::{ConnectionId, Delivery, Dispatcher, Record, RequestError};
use crate::limits::{
    DELIVERY_WINDOW_BYTES_MAX, DELIVERY_WINDOW_RUNS_MAX, LOADING_PAGES_MAX, RUN_BYTES_MAX,
};
use crate::result::{Counts, Finished};
use crate::task::{ExecutorId, InstanceId};
use std::collections::{BTreeSet, VecDeque};

/// What an executor's name takes in a message beside the name itself.
const NAMED_BYTES: usize = size_of::<(ExecutorId, String)>();

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

    /// An instance that was complete is not.
    pub(super) fn expect_more(&mut self) {
        self.told_complete = false;
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

    /// Sends the next message: results from the cursor on.
    fn send(&mut self, batch: Batch, outbound: &mut Outbound) {
        let Batch { instance, from, upto, results, again, executors, counts, end } = batch;
        let bytes: u64 = results.iter().map(Finished::bytes).sum();
        let names: usize = executors.iter().map(|(_, name)| name.len() + NAMED_BYTES).sum();
        self.cursor = upto;
        self.told_complete = end == Some(self.cursor);
        let runs = results.len() as u64;
        self.window_runs += runs;
        self.window_bytes += bytes;
        self.unacknowledged.push_back((self.cursor, runs, bytes));
        let complete = self.told_complete;
        let delivery =
            Delivery { instance, from, results, executors, counts, complete, upto, again };
        let replaced = delivery.again.len() as u64 * RUN_BYTES_MAX;
        let message_bytes = bytes + replaced + (size_of::<Delivery>() + names) as u64;
        outbound.deliver(self.connection, delivery, message_bytes);
    }
}

/// What goes into one message.
struct Batch {
    instance: InstanceId,
    from: u64,
    /// One past the last result, replaced ones included.
    upto: u64,
    results: Vec<Finished>,
    /// Tasks whose results these are instead of others.
    again: Vec<(u64, u64)>,
    executors: Vec<(ExecutorId, String)>,
    counts: Counts,
    /// Where the last result ends, if there will be no more.
    end: Option<u64>,
}

impl Dispatcher {
    pub(super) fn subscribe(
        &mut self,
        connection: ConnectionId,
        id: InstanceId,
        from: u64,
    ) -> Result<(), RequestError> {
        let instance = self.instances.find_mut(&id).ok_or(RequestError::NoInstance(id))?;
        let first = instance.results.start();
        if from < first {
            return Err(RequestError::Forgotten { first });
        }
        instance.subscribers.retain(|subscriber| subscriber.connection != connection);
        // A client may have been told of results that were lost with the
        // dispatcher before they were journaled only if the journal was: then
        // it waits for as many to come again.
        let cursor = instance.results.cursor(from);
        instance.subscribers.push(Subscriber {
            connection,
            cursor,
            unacknowledged: VecDeque::new(),
            window_runs: 0,
            window_bytes: 0,
            told_complete: false,
        });
        self.outbound.subscribe(connection, id);
        Ok(())
    }

    pub(super) fn acknowledge(&mut self, connection: ConnectionId, id: InstanceId, upto: u64) {
        let Some(instance) = self.instances.find_mut(&id) else { return };
        let Some(subscriber) =
            instance.subscribers.iter_mut().find(|found| found.connection == connection)
        else {
            return;
        };
        subscriber.acknowledge(upto);
        self.outbound.mark(id);
        // What was not sent cannot have been taken in, and what another
        // subscriber was not sent yet must stay for it.
        instance.results.acknowledge(upto.min(subscriber.cursor));
        self.forget_acknowledged(id);
    }

    /// Forgets what was acknowledged and is not kept.
    pub(super) fn forget_acknowledged(&mut self, id: InstanceId) {
        let instance = &mut self.instances[&id];
        if instance.options.keep_results {
            return;
        }
        let sent = instance.subscribers.iter().map(|subscriber| subscriber.cursor).min();
        let upto = instance.results.acknowledged().min(sent.unwrap_or(0));
        let clogged = instance.is_clogged();
        let (any, places) = instance.results.forget(upto);
        if any {
            self.forget_outputs(id, upto);
            self.journal(Record::Acknowledged { instance: id, upto });
            self.drop_pages(places);
            self.weigh(id);
            if clogged {
                self.runnable.mark(id);
                self.unplaced = true;
            }
        }
    }

    /// Journals results that are not journaled yet.
    pub(super) fn journal_results(&mut self) {
        let ids: Vec<InstanceId> = self.outbound.marked().collect();
        for id in ids {
            let unjournaled = &mut self.instances[&id].results;
            let mut have_ended = false;
            while let Some((from, results)) = unjournaled.take_unjournaled() {
                have_ended = true;
                self.outbound.journal(Record::Finished { instance: id, from, results });
            }
            if have_ended {
                self.instances.tasks_ended(id, self.now);
            }
        }
    }

    /// Sends what subscribers have window for, and asks for the pages that they
    /// come to next.
    pub(super) fn deliver(&mut self) {
        while let Some(id) = self.outbound.take_marked().or_else(|| self.paging.next_reader()) {
            self.weigh(id);
            let instance = &mut self.instances[&id];
            let counts = instance.counts();
            let end = instance.is_complete().then_some(instance.results.end());
            let results = &instance.results;
            // More than can be read at a time need not be asked for.
            let mut wanted: BTreeSet<u64> = results.pinned().take(LOADING_PAGES_MAX).collect();
            for subscriber in &mut instance.subscribers {
                while subscriber.has_window()
                    && (subscriber.cursor < results.end()
                        || (end.is_some() && !subscriber.told_complete))
                {
                    if !self.outbound.has_room(subscriber.connection, id) {
                        break;
                    }
                    let from = subscriber.cursor;
                    if let Some(page) = results.page_at(from) {
                        wanted.insert(page.from);
                        break;
                    }
                    let results = results.batch(from);
                    let Current { results, again, upto } = instance.retries.current(from, results);
                    let executors = self.fleet.names_in(&results);
                    let batch =
                        Batch { instance: id, from, upto, results, again, executors, counts, end };
                    subscriber.send(batch, &mut self.outbound);
                }
            }
            self.load_pages(id, &wanted);
        }
    }

    /// Sends a page to the subscribers that have come to it.
    pub(super) fn deliver_page(&mut self, id: InstanceId, page_from: u64, page: &Page) {
        let instance = &mut self.instances[&id];
        let counts = instance.counts();
        let end = instance.is_complete().then_some(instance.results.end());
        let page_end = page_from + page.results.iter().map(|run| run.count).sum::<u64>();
        for subscriber in &mut instance.subscribers {
            if !(page_from..page_end).contains(&subscriber.cursor) || !subscriber.has_window() {
                continue;
            }
            if !self.outbound.has_room(subscriber.connection, id) {
                continue;
            }
            let mut from = page_from;
            let before = page.results.iter().take_while(|run| {
                let is_before = from + run.count <= subscriber.cursor;
                from += if is_before { run.count } else { 0 };
                is_before
            });
            let results = page.results[before.count()..].to_vec();
            let Current { results, again, upto } = instance.retries.current(from, results);
            let executors = page.executors.clone();
            let batch = Batch { instance: id, from, upto, results, again, executors, counts, end };
            subscriber.send(batch, &mut self.outbound);
        }
    }

    /// Goes on with what waited until more was written to a connection.
    pub(super) fn written(&mut self, connection: ConnectionId, messages: u64) {
        let instances = &self.instances;
        self.outbound.written(connection, messages, |id| instances.contains(id));
    }

    pub(super) fn unsubscribe(&mut self, connection: ConnectionId) {
        for id in self.outbound.close(connection) {
            let subscribers = &mut self.instances[&id].subscribers;
            subscribers.retain(|subscriber| subscriber.connection != connection);
        }
    }
}
