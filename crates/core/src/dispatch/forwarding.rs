//! Parts of objects that are passed on between executors that cannot reach each other: those of
//! this dispatcher, those below its relays, and those of dispatchers above.
//!
//! An executor or a relay asks for a part, one after another. The question goes to a holder
//! here, which is an executor or a relay, and if none has the object to the relays that lend
//! this dispatcher's executors: these ask the dispatchers above. A question that has come from
//! above goes no way back. An answer goes to the asker and is not kept. A client's question goes
//! to relays alone: it reads elsewhere by itself.

use super::check::{CheckError, ensure};
use super::{Action, ConnectionId, Dispatcher, Reply};
use crate::data::object::ObjectId;
use crate::limits::{
    CLIENT_PART_REQUESTS_MAX, CLIENTS_PART_REQUESTS_MAX, HINT_EXECUTORS_MAX,
    PART_ANSWER_MICROS_MAX, PART_REQUESTS_MAX, PEER_PART_REQUESTS_MAX,
};
use crate::part::{PartAnswer, PartQuestion};
use crate::task::Time;
use std::collections::{BTreeMap, BTreeSet};

/// Who has asked, and the number by which the answer is known there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asker {
    /// An executor, or a relay to others.
    Below(ConnectionId, u64),
    /// A relay that lends the executors here.
    Above(ConnectionId, u64),
    /// A client, which may read the object.
    Client(ConnectionId, u64),
}

impl Asker {
    fn connection(self) -> ConnectionId {
        let (Asker::Below(connection, _)
        | Asker::Above(connection, _)
        | Asker::Client(connection, _)) = self;
        connection
    }

    fn is_client(self) -> bool {
        matches!(self, Asker::Client(..))
    }
}

/// A question that has no answer yet.
#[derive(Debug)]
struct Open {
    asker: Asker,
    question: PartQuestion,
    /// The connection that is to answer it; none while it waits for a relay that lends the
    /// executors here.
    asked: Option<ConnectionId>,
    /// Connections that were to answer it before.
    before: BTreeSet<ConnectionId>,
    /// The answer if nobody has the object.
    rest: PartAnswer,
    /// The one that is to answer has not done so in time then.
    until: Time,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Forwarding {
    /// By their numbers.
    open: BTreeMap<u64, Open>,
    until: BTreeSet<(Time, u64)>,
    /// Questions that nobody was asked yet.
    waiting: BTreeSet<u64>,
    /// How many each connection has asked that are open.
    askers: BTreeMap<ConnectionId, usize>,
    /// How many clients have asked that are open.
    of_clients: usize,
    /// How many each connection is to answer.
    asked: BTreeMap<ConnectionId, usize>,
    /// Relays that lend the executors here, with the requests by which they take questions.
    above: BTreeMap<ConnectionId, Option<u64>>,
    /// A question or a relay has come that is to be looked at.
    has_news: bool,
    last: u64,
}

fn count_up(counts: &mut BTreeMap<ConnectionId, usize>, connection: ConnectionId) {
    *counts.entry(connection).or_default() += 1;
}

fn count_down(counts: &mut BTreeMap<ConnectionId, usize>, connection: ConnectionId) {
    if let Some(count) = counts.get_mut(&connection) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&connection);
        }
    }
}

impl Forwarding {
    /// Whether somebody may ask one more.
    fn has_room(&self, asker: Asker) -> bool {
        let own = self.askers.get(&asker.connection()).copied().unwrap_or_default();
        let is_within = match asker.is_client() {
            true => own < CLIENT_PART_REQUESTS_MAX && self.of_clients < CLIENTS_PART_REQUESTS_MAX,
            false => own < PEER_PART_REQUESTS_MAX,
        };
        is_within && self.open.len() < PART_REQUESTS_MAX
    }

    /// Takes a question in that nobody is asked yet. Returns its number.
    fn begin(
        &mut self,
        asker: Asker,
        question: PartQuestion,
        rest: PartAnswer,
        until: Time,
    ) -> u64 {
        self.last += 1;
        count_up(&mut self.askers, asker.connection());
        self.of_clients += usize::from(asker.is_client());
        let (asked, before) = (None, BTreeSet::new());
        self.open.insert(self.last, Open { asker, question, asked, before, rest, until });
        self.until.insert((until, self.last));
        self.waiting.insert(self.last);
        self.last
    }

    /// This connection is to answer a question until then, or nobody yet.
    fn put(&mut self, number: u64, asked: Option<ConnectionId>, until: Time) {
        let Some(open) = self.open.get_mut(&number) else { return };
        self.until.remove(&(open.until, number));
        self.until.insert((until, number));
        open.until = until;
        if let Some(before) = std::mem::replace(&mut open.asked, asked) {
            count_down(&mut self.asked, before);
            open.before.insert(before);
        }
        match asked {
            Some(connection) => {
                self.waiting.remove(&number);
                count_up(&mut self.asked, connection);
            }
            None => drop(self.waiting.insert(number)),
        }
    }

    fn end(&mut self, number: u64) -> Option<Open> {
        let open = self.open.remove(&number)?;
        self.until.remove(&(open.until, number));
        self.waiting.remove(&number);
        count_down(&mut self.askers, open.asker.connection());
        self.of_clients -= usize::from(open.asker.is_client());
        if let Some(asked) = open.asked {
            count_down(&mut self.asked, asked);
        }
        Some(open)
    }

    /// The questions that concern a connection: those that it has asked end, the others are
    /// returned that it was to answer, or that waited for it.
    fn close(&mut self, connection: ConnectionId) -> Vec<u64> {
        let was_above = self.above.remove(&connection).is_some();
        let own = self.open.iter().filter(|(_, open)| open.asker.connection() == connection);
        for number in own.map(|(number, _)| *number).collect::<Vec<_>>() {
            self.end(number);
        }
        let left = self.open.iter().filter(|(_, open)| {
            open.asked == Some(connection) || (was_above && open.asked.is_none())
        });
        left.map(|(number, _)| *number).collect()
    }

    /// When the next one is to be answered at the latest.
    pub(super) fn due(&self) -> Option<Time> {
        self.until.first().map(|(at, _)| *at)
    }

    /// Questions for a relay that lends the executors here, and that it was not asked before.
    fn take_for(&self, connection: ConnectionId) -> Vec<(u64, PartQuestion)> {
        let busy = self.asked.get(&connection).copied().unwrap_or_default();
        let room = PEER_PART_REQUESTS_MAX.saturating_sub(busy);
        let waiting =
            self.waiting.iter().filter_map(|number| Some((*number, self.open.get(number)?)));
        let waiting = waiting.filter(|(_, open)| !open.before.contains(&connection));
        waiting.map(|(number, open)| (number, open.question)).take(room).collect()
    }

    /// What must hold.
    ///
    /// # Errors
    /// Says what does not.
    pub(super) fn check(&self) -> Result<(), CheckError> {
        let until: BTreeSet<_> =
            self.open.iter().map(|(number, open)| (open.until, *number)).collect();
        ensure!(until == self.until, "a part is answered at no time, or twice");
        let (mut askers, mut asked) = (BTreeMap::new(), BTreeMap::new());
        let mut waiting = BTreeSet::new();
        for (number, open) in &self.open {
            count_up(&mut askers, open.asker.connection());
            match open.asked {
                Some(connection) => count_up(&mut asked, connection),
                None => drop(waiting.insert(*number)),
            }
        }
        ensure!(askers == self.askers && asked == self.asked, "parts are counted wrongly");
        ensure!(waiting == self.waiting, "parts wait that were asked for, or the other way round");
        let of_clients = self.open.values().filter(|open| open.asker.is_client()).count();
        ensure!(of_clients == self.of_clients, "clients' parts are counted wrongly");
        ensure!(of_clients <= CLIENTS_PART_REQUESTS_MAX, "clients ask for more than they may");
        ensure!(self.open.len() <= PART_REQUESTS_MAX, "more parts are asked for than may be");
        Ok(())
    }
}

impl Dispatcher {
    /// Somebody asks for a part of an object.
    pub(super) fn read_part(&mut self, asker: Asker, question: PartQuestion) {
        if let Asker::Below(connection, _) = asker
            && self.fleet.of_connection(connection).is_none()
        {
            // It is given up, or has not registered yet: it asks again.
            return self.answer_part(asker, PartAnswer::Unreached);
        }
        if !self.forwarding.has_room(asker) {
            return self.answer_part(asker, PartAnswer::Busy);
        }
        let rest = match asker.is_client() && self.is_relay_away_with(question.object) {
            true => PartAnswer::Unreached,
            false => PartAnswer::Gone,
        };
        let until = self.now.after(PART_ANSWER_MICROS_MAX);
        let number = self.forwarding.begin(asker, question.bounded(), rest, until);
        self.put_part(number);
    }

    /// Whether a relay that has lost its connection leads to an object.
    fn is_relay_away_with(&self, object: ObjectId) -> bool {
        self.placement.holders_of(object).any(|id| {
            let executor = &self.fleet[id];
            executor.subtree.is_some() && executor.connection.is_none()
        })
    }

    /// Puts a question to the next that may have the object, or answers it.
    fn put_part(&mut self, number: u64) {
        let until = self.now.after(PART_ANSWER_MICROS_MAX);
        // Who was asked is not asked again.
        self.forwarding.put(number, None, until);
        if let Some(connection) = self.next_holder(number) {
            self.forwarding.put(number, Some(connection), until);
            let Some(open) = self.forwarding.open.get(&number) else { return };
            let question = open.question;
            self.outbound.push(Action::AskPart { connection, number, question });
        } else if self.is_asked_above(number) {
            self.forwarding.has_news = true;
        } else if let Some(open) = self.forwarding.end(number) {
            self.answer_part(open.asker, open.rest);
        }
    }

    /// The connection of a holder here that was not asked yet: of an executor, if there is one.
    /// One question after another begins with another holder.
    fn next_holder(&self, number: u64) -> Option<ConnectionId> {
        let open = self.forwarding.open.get(&number)?;
        let asker = open.asker.connection();
        let mut holders: Vec<(bool, ConnectionId)> = self
            .placement
            .holders_of(open.question.object)
            .filter(|id| !open.asker.is_client() || self.fleet[*id].subtree.is_some())
            .take(HINT_EXECUTORS_MAX)
            .filter_map(|id| {
                let executor = &self.fleet[id];
                Some((executor.subtree.is_some(), executor.connection?))
            })
            .filter(|(_, connection)| *connection != asker && !open.before.contains(connection))
            .collect();
        holders.sort_unstable();
        let own = holders.iter().filter(|(is_relay, _)| !is_relay).count();
        let most = if own > 0 { own } else { holders.len() };
        let at = usize::try_from(number).unwrap_or_default().checked_rem(most)?;
        holders.get(at).map(|(_, connection)| *connection)
    }

    /// Whether a dispatcher above may know who has the object.
    fn is_asked_above(&self, number: u64) -> bool {
        let Some(open) = self.forwarding.open.get(&number) else { return false };
        let is_from_below = matches!(open.asker, Asker::Below(..));
        let mut above = self.forwarding.above.keys();
        let may_ask = match self.forwarding.above.is_empty() {
            // They are on their way back.
            true => self.is_lent(),
            false => above.any(|connection| !open.before.contains(connection)),
        };
        is_from_below && may_ask
    }

    /// Whether the executors here work for dispatchers above.
    fn is_lent(&self) -> bool {
        let is_lent = || self.instances.values().any(|instance| instance.options.keep_output);
        !self.lent_to.is_empty() || is_lent()
    }

    fn answer_part(&mut self, asker: Asker, answer: PartAnswer) {
        match asker {
            Asker::Below(connection, number) => {
                self.outbound.push(Action::Part { connection, number, answer });
            }
            Asker::Above(connection, request) => {
                self.reply(connection, request, Reply::Part(answer));
            }
            Asker::Client(connection, request) => {
                self.reply(connection, request, Reply::PartForClient(answer));
            }
        }
    }

    /// Who was asked for a part answers.
    pub(super) fn part_told(&mut self, asked: ConnectionId, number: u64, answer: PartAnswer) {
        let Some(open) = self.forwarding.open.get_mut(&number) else { return };
        if open.asked != Some(asked) {
            return;
        }
        match (open.question.checked(answer), &open.rest) {
            (answer @ PartAnswer::Here { .. }, _) => {
                if let Some(open) = self.forwarding.end(number) {
                    self.answer_part(open.asker, answer);
                }
            }
            (PartAnswer::Gone, _) => self.put_part(number),
            (answer, _) => {
                open.rest = answer;
                self.put_part(number);
            }
        }
        // A relay may take another one.
        self.forwarding.has_news |= self.forwarding.above.contains_key(&asked);
    }

    /// A relay that lends the executors here takes questions for the dispatcher above it.
    pub(super) fn await_parts(&mut self, connection: ConnectionId, request: u64) {
        let before = self.forwarding.above.insert(connection, Some(request));
        if let Some(before) = before.flatten() {
            self.reply(connection, before, Reply::Parts(Vec::new()));
        }
        self.forwarding.has_news = true;
    }

    /// Gives questions to relays that take them.
    pub(super) fn tell_parts(&mut self) {
        if !std::mem::take(&mut self.forwarding.has_news) {
            return;
        }
        let above: Vec<_> =
            self.forwarding.above.iter().map(|(id, request)| (*id, *request)).collect();
        for (connection, request) in above {
            let Some(request) = request else { continue };
            let questions = self.forwarding.take_for(connection);
            if questions.is_empty() {
                continue;
            }
            let until = self.now.after(PART_ANSWER_MICROS_MAX);
            for (number, _) in &questions {
                self.forwarding.put(*number, Some(connection), until);
            }
            self.forwarding.above.insert(connection, None);
            self.outbound.reply(connection, request, Reply::Parts(questions));
        }
    }

    /// A connection is gone: others are asked what it was to answer.
    pub(super) fn close_parts(&mut self, connection: ConnectionId) {
        for number in self.forwarding.close(connection) {
            self.part_missed(number);
        }
    }

    /// Asks others for those who have not answered in time.
    pub(super) fn end_late_parts(&mut self) {
        while let Some((_, number)) =
            self.forwarding.until.first().copied().filter(|(at, _)| *at <= self.now)
        {
            if !self.forwarding.waiting.contains(&number) {
                self.part_missed(number);
            } else if let Some(open) = self.forwarding.end(number) {
                self.answer_part(open.asker, PartAnswer::Unreached);
            }
        }
    }

    /// Who was to answer a question does not.
    fn part_missed(&mut self, number: u64) {
        if let Some(open) = self.forwarding.open.get_mut(&number) {
            open.rest = PartAnswer::Unreached;
            self.put_part(number);
        }
    }
}
