//! The dispatcher's shell: its journal, its crashes, its pages.

use super::World;
use super::links::{Down, Peer};
use crate::attempts::standing;
use crate::disk::Disk;
use falkon_core::dispatch::{Action, Dispatcher, Event, Record};
use falkon_core::gang::GangToken;
use falkon_core::limits::PREFETCH_TASKS_MAX;

/// How a dispatcher is killed in the middle of a round.
#[derive(Debug, Clone, Copy)]
pub(super) enum Crash {
    /// Nothing of the round is written or sent.
    Before,
    /// All of it is written and some of it sent.
    After,
}

impl World {
    pub(super) fn drain(&mut self) {
        let mut messages = Vec::new();
        let mut records = Vec::new();
        while let Some(action) = self.dispatcher.poll_action() {
            self.note(|| format!("  dispatcher: {action:?}"));
            match action {
                Action::Journal(record) => records.push(record),
                other => messages.push(other),
            }
        }
        self.watched.round(self.now, &mut self.dispatcher, &records);
        self.dispatcher.check().unwrap();
        self.check_quotas(&messages);
        for view in self.dispatcher.executor_views() {
            let (_, ahead) = view.load();
            assert!(ahead <= PREFETCH_TASKS_MAX, "executor {} was sent {ahead} ahead", view.id());
        }
        let sent = match self.crash.take() {
            None => messages.len(),
            Some(Crash::Before) => {
                self.restart();
                return;
            }
            Some(Crash::After) => self.rng.below(messages.len() as u64 + 1) as usize,
        };
        let whole = sent == messages.len();
        self.losses.written();
        for record in &records {
            if let Record::ExecutorGone { incarnation } = record {
                self.losses.gone(*incarnation);
            }
        }
        for action in &messages {
            if let Action::Order { connection, order } = action
                && let Some(incarnation) = self.incarnation(connection.0)
            {
                self.losses.sent(incarnation, order);
            }
        }
        self.journal.extend(records);
        for action in messages.into_iter().take(sent) {
            let action = match &mut self.disk {
                Some(disk) => disk.carry_out(self.now, action),
                None => Some(action),
            };
            action.into_iter().for_each(|action| self.carry_out(action));
        }
        if !whole {
            self.restart();
        } else if self.rng.percent(2) {
            self.compact();
        }
    }

    /// The executor at the other end of a connection.
    pub(super) fn incarnation(&self, id: u64) -> Option<u64> {
        match self.links.get(&id)?.peer {
            Peer::Node(index) => Some(self.nodes[index].incarnation),
            Peer::Client(_) => None,
        }
    }

    pub(super) fn carry_out(&mut self, action: Action) {
        match action {
            Action::Journal(_) => unreachable!("sorted out before"),
            Action::Reply { connection, request, reply } => {
                self.send_down(connection.0, Down::Reply(request, reply));
            }
            Action::Deliver { connection, delivery } => {
                self.send_down(connection.0, Down::Delivery(delivery));
            }
            // A client has one connection, and destroys what it has created.
            Action::Gone { .. } | Action::Expired { .. } | Action::AwaitWritten { .. } => {}
            Action::DrawTokens { count } => {
                let tokens = (0..count)
                    .map(|_| GangToken(u128::from(self.rng.below(u64::MAX)).to_be_bytes()));
                let event = Event::TokensDrawn(tokens.collect());
                self.dispatcher.handle(self.now, event);
            }
            Action::Unmet { .. }
            | Action::AskTail { .. }
            | Action::AskKept { .. }
            | Action::AskPart { .. }
            | Action::Part { .. } => {
                panic!("there is no relay")
            }
            Action::StorePage { .. } | Action::LoadPage { .. } | Action::DropPages { .. } => {
                panic!("there is no disk for pages");
            }
            Action::Order { connection, order } => self.send_down(connection.0, Down::Order(order)),
            Action::Close { connection, .. } | Action::Refuse { connection, .. } => {
                if let Some(link) = self.links.get_mut(&connection.0) {
                    link.up.clear();
                    link.up_open = false;
                    link.muted = false;
                }
                self.send_down(connection.0, Down::Closed);
            }
        }
    }

    /// A dispatcher made from the journal alone.
    pub(super) fn recovered(&self) -> Dispatcher {
        let mut dispatcher = new_dispatcher(self.disk.as_ref(), self.collectors);
        for record in &self.journal {
            dispatcher.recover(record.clone()).unwrap();
        }
        dispatcher.recovered(self.now);
        dispatcher.check().unwrap();
        dispatcher
    }

    /// One that takes over, and so moves results to disk while it reads.
    pub(super) fn take_over(&mut self) {
        let mut dispatcher = new_dispatcher(self.disk.as_ref(), self.collectors);
        for record in &self.journal {
            dispatcher.recover(record.clone()).unwrap();
            if let Some(disk) = &mut self.disk {
                disk.store_recovering(&mut dispatcher, self.now);
            }
        }
        dispatcher.recovered(self.now);
        dispatcher.check().unwrap();
        if let Some(disk) = &mut self.disk {
            disk.restarted(&dispatcher);
        }
        self.dispatcher = dispatcher;
        self.begin_users();
        self.watched.restarted(&mut self.dispatcher);
    }

    /// The journal is compacted to a snapshot, which must say the same.
    pub(super) fn compact(&mut self) {
        let before = self.recovered();
        self.journal = self.dispatcher.snapshot();
        let after = self.recovered();
        let now = standing(&self.journal);
        assert_eq!(standing(&before.snapshot()), now, "how tasks stand is not in the journal");
        assert_eq!(standing(&after.snapshot()), now, "how tasks stand is not in the snapshot");
        let priorities = |dispatcher: &Dispatcher| -> Vec<_> {
            dispatcher.instance_views().map(|view| (view.id(), view.priority())).collect()
        };
        let users = |dispatcher: &Dispatcher| -> Vec<_> {
            dispatcher.instance_views().map(|view| dispatcher.user_of(view.id())).collect()
        };
        assert_eq!(
            [users(&before), users(&after)],
            [users(&self.dispatcher), users(&self.dispatcher)]
        );
        let now = priorities(&self.dispatcher);
        assert_eq!([priorities(&before), priorities(&after)], [now.clone(), now]);
        for place in after.page_places() {
            let is_known = self.disk.as_ref().is_some_and(|disk| disk.is_known(&place));
            assert!(is_known, "a snapshot refers to a page that was dropped");
        }
        for view in self.dispatcher.instance_views() {
            let counts = |dispatcher: &Dispatcher| {
                let counts = dispatcher.instance_view(view.id()).expect("recovered").counts();
                (counts.total, counts.done, counts.failed, counts.cancelled)
            };
            assert_eq!(counts(&before), counts(&after), "journal and snapshot differ");
            let now = view.counts();
            let (total, done, failed, cancelled) = counts(&after);
            assert_eq!(total, now.total);
            assert_eq!(done, now.done, "a result was lost or made up");
            // Tasks to be cancelled that were in flight have no executor now.
            assert!(failed >= now.failed && cancelled >= now.cancelled);
        }
        assert_eq!(
            before.instance_views().count(),
            self.dispatcher.instance_views().count(),
            "an instance was lost or made up"
        );
    }

    /// `kill -9`, and a new process that knows the journal.
    pub(super) fn restart(&mut self) {
        let ids: Vec<u64> = self.links.keys().copied().collect();
        for id in ids {
            if let Some(link) = self.links.get_mut(&id) {
                link.up.clear();
                link.up_open = false;
            }
            self.close_towards(id, true);
            self.drop_if_over(id);
        }
        self.losses.forget_round();
        self.take_over();
        self.drain();
    }
}

pub(super) fn new_dispatcher(disk: Option<&Disk>, collectors: Option<usize>) -> Dispatcher {
    let mut dispatcher = Dispatcher::new();
    dispatcher.watch_happenings();
    dispatcher.set_collectors(collectors);
    if let Some(disk) = disk {
        dispatcher.page_results(disk.bounds());
    }
    dispatcher
}
