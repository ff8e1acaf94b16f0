//! Questions about what tasks write that run below relays, and about long output of such as
//! have ended: the relay is asked, and whoever asked has its answer.
//!
//! A relay answers those that it was asked itself, each once. One that does not answer in time,
//! or is gone, is answered for.

use super::check::{CheckError, ensure};
use super::survey::shorten;
use super::{AccessError, Action, ConnectionId, Dispatcher, Reply, Whereabouts};
use crate::limits::{
    EXECUTOR_PATH_BYTES_MAX, PEER_TAIL_REQUESTS_MAX, TAIL_ANSWER_MICROS_MAX, TAIL_REQUESTS_MAX,
};
use crate::tail::{
    KeptQuestion, OutputQuestion, TAIL_PART_BYTES_MAX, TAIL_PATIENCE_MS_MAX, Tail, TailQuestion,
    TailState,
};
use crate::task::{ExecutorId, Time};
use std::collections::{BTreeMap, BTreeSet};

/// A question that has no answer yet.
#[derive(Debug)]
struct Open {
    asker: ConnectionId,
    request: u64,
    relay: ConnectionId,
    /// The relay's name.
    name: String,
    /// It is answered for the relay then.
    until: Time,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Tails {
    /// By their numbers.
    open: BTreeMap<u64, Open>,
    until: BTreeSet<(Time, u64)>,
    /// How many each connection has asked that are open.
    askers: BTreeMap<ConnectionId, usize>,
    last: u64,
}

impl Tails {
    /// Whether a connection may ask one more.
    fn has_room(&self, asker: ConnectionId) -> bool {
        let own = self.askers.get(&asker).copied().unwrap_or_default();
        own < PEER_TAIL_REQUESTS_MAX && self.open.len() < TAIL_REQUESTS_MAX
    }

    /// Takes a question in. Returns its number.
    fn begin(&mut self, open: Open) -> u64 {
        self.last += 1;
        *self.askers.entry(open.asker).or_default() += 1;
        self.until.insert((open.until, self.last));
        self.open.insert(self.last, open);
        self.last
    }

    fn end(&mut self, number: u64) -> Option<Open> {
        let open = self.open.remove(&number)?;
        self.until.remove(&(open.until, number));
        if let Some(count) = self.askers.get_mut(&open.asker) {
            *count -= 1;
            if *count == 0 {
                self.askers.remove(&open.asker);
            }
        }
        Some(open)
    }

    /// Ends the question of that number, if this relay was asked it.
    fn told(&mut self, relay: ConnectionId, number: u64) -> Option<Open> {
        self.open.get(&number).filter(|open| open.relay == relay)?;
        self.end(number)
    }

    /// A connection is gone: nobody hears its answers, and nobody answers what it was asked.
    /// Returns the questions of others that it leaves.
    fn close(&mut self, connection: ConnectionId) -> Vec<Open> {
        let concerned = |open: &Open| open.asker == connection || open.relay == connection;
        let open = self.open.iter().filter(|(_, open)| concerned(open));
        let numbers: Vec<u64> = open.map(|(number, _)| *number).collect();
        let ended = numbers.into_iter().filter_map(|number| self.end(number));
        ended.filter(|open| open.asker != connection).collect()
    }

    /// When the next one is to be answered at the latest.
    pub(super) fn due(&self) -> Option<Time> {
        self.until.first().map(|(at, _)| *at)
    }

    fn take_due(&mut self, now: Time) -> Option<Open> {
        let (_, number) = self.until.first().filter(|(at, _)| *at <= now)?;
        self.end(*number)
    }

    /// What must hold.
    ///
    /// # Errors
    /// Says what does not.
    pub(super) fn check(&self) -> Result<(), CheckError> {
        let until: BTreeSet<_> =
            self.open.iter().map(|(number, open)| (open.until, *number)).collect();
        ensure!(until == self.until, "a question is answered at no time, or twice");
        let mut askers: BTreeMap<ConnectionId, usize> = BTreeMap::new();
        self.open.values().for_each(|open| *askers.entry(open.asker).or_default() += 1);
        ensure!(askers == self.askers, "questions are counted wrongly");
        Ok(())
    }
}

impl Dispatcher {
    /// A client asks what a task below a relay writes.
    pub(super) fn ask_tail(&mut self, asker: ConnectionId, request: u64, asked: TailQuestion) {
        if let Some(told) = self.begin_tail(asker, request, asked) {
            self.reply(asker, request, Reply::Tail(told));
        }
    }

    /// Asks the relay. Returns the answer if that needs none.
    fn begin_tail(
        &mut self,
        asker: ConnectionId,
        request: u64,
        asked: TailQuestion,
    ) -> Option<Result<Tail, AccessError>> {
        let key = asked.task;
        let id = match self.whereabouts(key.instance, key.task, 1).pop() {
            None => return Some(Err(AccessError::NoTask)),
            Some(Whereabouts::Sent(id) | Whereabouts::Running(id)) => id,
            Some(Whereabouts::Waiting | Whereabouts::Ready) => {
                return Some(Err(AccessError::NotSent));
            }
            Some(_) => return Some(Err(AccessError::Ended)),
        };
        let patience_ms = asked.patience_ms.min(TAIL_PATIENCE_MS_MAX);
        let question = TailQuestion { patience_ms, ..asked };
        self.put_question(id, (asker, request), patience_ms, |connection, number| Action::AskTail {
            connection,
            number,
            question,
        })
    }

    /// A client reads long output of a task below a relay.
    pub(super) fn read_output(&mut self, asker: ConnectionId, request: u64, asked: OutputQuestion) {
        if let Some(told) = self.begin_reading(asker, request, asked) {
            self.reply(asker, request, Reply::Tail(told));
        }
    }

    /// Asks the relay. Returns the answer if that needs none.
    fn begin_reading(
        &mut self,
        asker: ConnectionId,
        request: u64,
        asked: OutputQuestion,
    ) -> Option<Result<Tail, AccessError>> {
        let OutputQuestion { task: key, stream, from, count } = asked;
        let (kept, id) = match self.output_of(key.instance, key.task, stream) {
            Ok(found) => found,
            Err(error) => return Some(Err(error)),
        };
        let count = count.min(TAIL_PART_BYTES_MAX as u64);
        let question = KeptQuestion { output: kept.number, stream, from, count };
        self.put_question(id, (asker, request), 0, |connection, number| Action::AskKept {
            connection,
            number,
            question,
        })
    }

    /// Puts a question to a relay that may wait for so long. Returns the answer if there is
    /// one at once.
    fn put_question(
        &mut self,
        id: ExecutorId,
        (asker, request): (ConnectionId, u64),
        patience_ms: u32,
        put: impl FnOnce(ConnectionId, u64) -> Action,
    ) -> Option<Result<Tail, AccessError>> {
        let executor = &self.fleet[id];
        let (Some(relay), true) = (executor.connection, executor.subtree.is_some()) else {
            // It has moved meanwhile: whoever asks looks where it is.
            return Some(Ok(Tail::without_bytes(TailState::Gone)));
        };
        let name = executor.name.clone();
        if !self.tails.has_room(asker) {
            let why = "too many questions wait for its answers".to_owned();
            return Some(Err(AccessError::Unreached { executor: name, why }));
        }
        let until = self.now.after(u64::from(patience_ms) * 1000 + TAIL_ANSWER_MICROS_MAX);
        let number = self.tails.begin(Open { asker, request, relay, name, until });
        self.outbound.push(put(relay, number));
        None
    }

    /// A relay answers.
    pub(super) fn tail_told(
        &mut self,
        relay: ConnectionId,
        number: u64,
        told: Result<Tail, AccessError>,
    ) {
        let Some(open) = self.tails.told(relay, number) else { return };
        let told = match told {
            Ok(mut tail) => {
                tail.bytes.truncate(TAIL_PART_BYTES_MAX);
                Ok(tail)
            }
            Err(AccessError::Away(below)) => Err(AccessError::Away(way(&open.name, &below))),
            Err(error) => Err(error),
        };
        self.reply(open.asker, open.request, Reply::Tail(told));
    }

    /// A connection is gone.
    pub(super) fn close_tails(&mut self, connection: ConnectionId) {
        for open in self.tails.close(connection) {
            let told = Err(AccessError::Away(open.name));
            self.reply(open.asker, open.request, Reply::Tail(told));
        }
    }

    /// Answers for relays that have not in time.
    pub(super) fn end_late_tails(&mut self) {
        while let Some(Open { asker, request, name, .. }) = self.tails.take_due(self.now) {
            let why = "it has not answered in time".to_owned();
            let told = Err(AccessError::Unreached { executor: name, why });
            self.reply(asker, request, Reply::Tail(told));
        }
    }
}

/// The way to a relay that is below another one, by their names.
fn way(relay: &str, below: &str) -> String {
    let mut way = match below {
        "" => relay.to_owned(),
        below => format!("{relay}/{below}"),
    };
    shorten(&mut way, EXECUTOR_PATH_BYTES_MAX);
    way
}
