//! A relay's shell: between its own dispatcher, in the same process, and the one
//! above.

use super::World;
use super::connections::{Way, Who};
use super::dispatcher::Inbound;
use super::error::Broken;
use crate::event_queue::Event;
use crate::time::{Nanos, SECOND_NANOS};
use falkon_core::dispatch::{ConnectionId, RequestError, Selection};
use falkon_core::relay::{Action, Event as CoreEvent, Note, Relay};
use falkon_core::task::{InstanceId, Time};
use falkon_wire::codec::Wire;
use falkon_wire::message::{FromClient, FromExecutor, Refusal, ToClient, ToExecutor};
use std::collections::BTreeMap;

/// How often a relay asks its dispatcher what nodes there are, as a real one does.
const LOOKS: Nanos = Nanos(SECOND_NANOS / 2);
/// The identities of relays come after this, and those of executors before.
const IDENTITIES: u64 = 1 << 48;
/// Notes beyond which those that still say something replace them.
const NOTES_MIN: usize = 1024;

/// A request to the relay's own dispatcher.
#[derive(Debug, Clone, Copy)]
enum Asked {
    Submit,
    Subscribe,
    Other,
}

/// From where a relay hears something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// The dispatcher above.
    Above,
    /// Its own dispatcher.
    Own,
}

/// What is on a relay's disk, beside its dispatcher's journal.
#[derive(Debug)]
struct Notes {
    is_kept: bool,
    all: Vec<Note>,
    /// So many are replaced.
    due: usize,
}

impl Notes {
    fn write(&mut self, notes: Vec<Note>, machine: &Relay) {
        if !self.is_kept {
            return;
        }
        self.all.extend(notes);
        if self.all.len() >= self.due {
            self.all = machine.notes();
            self.due = NOTES_MIN.max(2 * self.all.len());
        }
    }
}

pub(super) struct Relaying {
    machine: Relay,
    name: String,
    /// Its own dispatcher, and the one above.
    host: u32,
    above: u32,
    /// The connection to the one above.
    connection: Option<u64>,
    /// The one to its own; none while the process is down.
    own: Option<u64>,
    /// Its thread is busy with messages until then.
    pub(super) busy_until: Nanos,
    /// The time spent in messages.
    pub(super) busy: Nanos,
    timer: Option<Nanos>,
    looks: Option<Nanos>,
    notes: Notes,
    asked: BTreeMap<u64, Asked>,
    next_request: u64,
    /// A partition lasts until then.
    pub(super) cut_off_until: Nanos,
}

impl Relaying {
    pub(super) fn new(number: u32, host: u32, above: u32, keeps_notes: bool) -> Relaying {
        let name = format!("relay-{number}");
        let machine = Relay::new(IDENTITIES + u64::from(number), 1, name.clone());
        let notes = Notes { is_kept: keeps_notes, all: machine.notes(), due: NOTES_MIN };
        Relaying {
            machine,
            name,
            host,
            above,
            connection: None,
            own: None,
            busy_until: Nanos(0),
            busy: Nanos(0),
            timer: None,
            looks: None,
            notes,
            asked: BTreeMap::new(),
            next_request: 0,
            cut_off_until: Nanos(0),
        }
    }

    /// Its thread works for so long. Returns when it is done.
    pub(super) fn work(&mut self, now: Nanos, spent: Nanos) -> Nanos {
        self.busy = self.busy.after(spent);
        self.busy_until = self.busy_until.max(now).after(spent);
        self.busy_until
    }

    /// Its own dispatcher.
    pub(super) fn host(&self) -> u32 {
        self.host
    }

    fn request(&mut self, asked: Asked) -> u64 {
        self.next_request += 1;
        self.asked.insert(self.next_request, asked);
        self.next_request
    }
}

impl World<'_> {
    /// The dispatcher of a relay.
    pub(super) fn host_of(&self, relay: u32) -> u32 {
        self.relays[relay as usize].host
    }

    /// The time on a relay's clock, which is its dispatcher's.
    fn relay_time(&self, number: u32) -> Time {
        self.dispatchers[self.host_of(number) as usize].clock.at(self.events.now)
    }

    fn tell_relay(&mut self, number: u32, event: CoreEvent) {
        let now = self.relay_time(number);
        self.relays[number as usize].machine.handle(now, event);
    }

    /// The process is there: the relay takes up its instance of its dispatcher.
    pub(super) fn relay_starts(&mut self, number: u32) -> Result<(), Broken> {
        let now = self.events.now;
        let host = self.host_of(number) as usize;
        let own = self.dispatchers[host].open_for(Who::Owner(number));
        let relay = &mut self.relays[number as usize];
        (relay.own, relay.looks) = (Some(own), Some(now));
        relay.asked.clear();
        let core = &self.dispatchers[host].core;
        let before = relay.machine.instance().and_then(|id| core.instance_view(id));
        match before.map(|view| (view.id(), view.counts().total)) {
            Some((instance, accepted)) => {
                relay.machine.begin(instance, accepted);
                self.subscribe_relay(number, instance, 0);
                self.await_staged(number);
            }
            None => {
                let (request, options) =
                    (relay.request(Asked::Other), relay.machine.instance_options(None));
                self.ask_own(number, &FromClient::Create { request, options });
            }
        }
        self.events.plan(now, Event::RelayLooks(number));
        self.events.plan(now, Event::RelayConnects(number));
        self.pump_relay(number)
    }

    fn subscribe_relay(&mut self, number: u32, instance: InstanceId, from: u64) {
        let request = self.relays[number as usize].request(Asked::Subscribe);
        self.ask_own(number, &FromClient::Subscribe { request, instance, from });
    }

    /// It asks which tasks are staged.
    fn await_staged(&mut self, number: u32) {
        let relay = &mut self.relays[number as usize];
        let Some(instance) = relay.machine.instance() else { return };
        let request = relay.request(Asked::Other);
        self.ask_own(number, &FromClient::AwaitStaged { request, instance });
    }

    pub(super) fn relay_connects(&mut self, number: u32) {
        let relay = &self.relays[number as usize];
        let above = relay.above;
        if relay.connection.is_some() || relay.own.is_none() {
            return;
        }
        match self.connect(above, Who::Relay(number)) {
            Some(connection) => self.relays[number as usize].connection = Some(connection),
            None => {
                let at = self.reconnect_at(above);
                self.events.plan(at, Event::RelayConnects(number));
            }
        }
    }

    pub(super) fn relay_cut(&mut self, number: u32, connection: u64) -> Result<(), Broken> {
        let relay = &mut self.relays[number as usize];
        if relay.connection != Some(connection) {
            return Ok(());
        }
        relay.connection = None;
        let above = relay.above;
        self.tell_relay(number, CoreEvent::Disconnected);
        self.close_at_dispatcher(above, connection, self.events.now);
        let at = self.reconnect_at(above);
        self.events.plan(at, Event::RelayConnects(number));
        self.pump_relay(number)
    }

    /// It asks what nodes there are.
    pub(super) fn relay_looks(&mut self, number: u32) {
        let now = self.events.now;
        let relay = &mut self.relays[number as usize];
        if relay.looks != Some(now) {
            return;
        }
        let at = now.after(LOOKS);
        relay.looks = Some(at);
        let request = relay.request(Asked::Other);
        let (identity, since) = (relay.machine.identity(), relay.machine.holdings_known());
        self.ask_own(number, &FromClient::Subtree { request, relay: identity, since });
        self.events.plan(at, Event::RelayLooks(number));
    }

    pub(super) fn relay_timer(&mut self, number: u32) -> Result<(), Broken> {
        let now = self.events.now;
        let relay = &mut self.relays[number as usize];
        if relay.timer != Some(now) {
            return Ok(());
        }
        relay.timer = None;
        let time = self.relay_time(number);
        let machine = &mut self.relays[number as usize].machine;
        if machine.poll_timeout().is_some_and(|(at, _)| at <= time) {
            machine.handle_timeout(time);
        }
        self.pump_relay(number)
    }

    pub(super) fn relay_hears(
        &mut self,
        number: u32,
        side: Side,
        connection: u64,
        bytes: &[u8],
    ) -> Result<(), Broken> {
        let relay = &self.relays[number as usize];
        let there = match side {
            Side::Above => relay.connection,
            Side::Own => relay.own,
        };
        if there != Some(connection) {
            return Ok(());
        }
        self.measured.messages += 1;
        self.measured.message_bytes += bytes.len() as u64;
        match side {
            Side::Above => self.relay_hears_above(number, bytes)?,
            Side::Own => self.relay_hears_own(number, bytes)?,
        }
        self.pump_relay(number)
    }

    fn relay_hears_above(&mut self, number: u32, bytes: &[u8]) -> Result<(), Broken> {
        let message = ToExecutor::from_bytes(bytes)
            .map_err(|error| format!("a message to relay {number} is no message: {error}"))?;
        let (event, entries) = match message {
            ToExecutor::Welcome { now: above, .. } => (CoreEvent::Connected { above }, 0),
            ToExecutor::Order(order) => {
                let entries = order.assign.len() as u64;
                (CoreEvent::Order(order), entries)
            }
            ToExecutor::Unmet { waiting } => (CoreEvent::Unmet(waiting), 0),
            // Nobody looks at simulated tasks.
            ToExecutor::AskTail { .. }
            | ToExecutor::ReadOutput { .. }
            | ToExecutor::ReadPart { .. }
            | ToExecutor::Part { .. } => return Ok(()),
            ToExecutor::Refused { reason } => {
                return Err(format!("relay {number} is refused: {reason}").into());
            }
        };
        self.relay_works(number, entries);
        self.tell_relay(number, event);
        Ok(())
    }

    /// Its thread goes through the entries of a message.
    fn relay_works(&mut self, number: u32, entries: u64) {
        let spent = Nanos(self.scenario.dispatcher.entry.0 * entries);
        self.relays[number as usize].work(self.events.now, spent);
    }

    fn relay_hears_own(&mut self, number: u32, bytes: &[u8]) -> Result<(), Broken> {
        let message = ToClient::from_bytes(bytes)
            .map_err(|error| format!("an answer to relay {number} is no message: {error}"))?;
        let relay = &mut self.relays[number as usize];
        let event = match message {
            ToClient::Created { instance, request, .. } => {
                relay.asked.remove(&request);
                let noted = relay.machine.begin(instance, 0);
                relay.notes.write(noted, &relay.machine);
                self.subscribe_relay(number, instance, 0);
                self.await_staged(number);
                return Ok(());
            }
            ToClient::Accepted { request, count, .. } => {
                relay.asked.remove(&request);
                CoreEvent::Accepted { count }
            }
            ToClient::Withdrawn { request, runs } => {
                relay.asked.remove(&request);
                CoreEvent::Withdrawn(runs)
            }
            ToClient::Staged { request, staged, unstaged } => {
                relay.asked.remove(&request);
                self.tell_relay(number, CoreEvent::Staged { staged, unstaged });
                self.await_staged(number);
                return Ok(());
            }
            ToClient::Subtree { request, subtree, holdings, survey } => {
                relay.asked.remove(&request);
                self.tell_relay(number, CoreEvent::Holdings(holdings));
                self.tell_relay(number, CoreEvent::Survey(*survey));
                CoreEvent::Subtree(subtree)
            }
            ToClient::Done { request } => {
                relay.asked.remove(&request);
                return Ok(());
            }
            ToClient::Results(delivery) => {
                let (from, results) = (delivery.from, delivery.results);
                self.relay_works(number, results.len() as u64);
                CoreEvent::Results { from, results }
            }
            ToClient::Refused { request, reason } => {
                let Some(event) = self.relay_is_refused(number, request, reason)? else {
                    return Ok(());
                };
                event
            }
            other => return Err(Broken(format!("relay {number} is told {other:?}"))),
        };
        self.tell_relay(number, event);
        Ok(())
    }

    fn relay_is_refused(
        &mut self,
        number: u32,
        request: u64,
        reason: Refusal,
    ) -> Result<Option<CoreEvent>, Broken> {
        let relay = &mut self.relays[number as usize];
        match (relay.asked.remove(&request), reason, relay.machine.instance()) {
            (
                Some(Asked::Subscribe),
                Refusal::Request(RequestError::Forgotten { first }),
                Some(instance),
            ) => {
                self.subscribe_relay(number, instance, first);
                Ok(None)
            }
            (
                Some(Asked::Submit),
                Refusal::Request(RequestError::NoRoom { .. } | RequestError::Gap { .. }),
                _,
            ) => Ok(Some(CoreEvent::Refused { why: None })),
            (_, reason, _) => Err(Broken(format!("relay {number} is refused: {reason}"))),
        }
    }

    /// Lets the relay act until it has nothing more to do.
    fn pump_relay(&mut self, number: u32) -> Result<(), Broken> {
        while let Some(action) = self.relays[number as usize].machine.poll_action() {
            self.relay_acts(number, action);
        }
        let (now, clock) = (self.events.now, self.dispatchers[self.host_of(number) as usize].clock);
        let relay = &mut self.relays[number as usize];
        if self.scenario.check_all {
            relay.machine.check().map_err(|error| format!("relay {number}: {error}"))?;
        }
        if let Some((at, _)) = relay.machine.poll_timeout() {
            let at = clock.when(at).max(now);
            if relay.timer.is_none_or(|planned| at < planned) {
                relay.timer = Some(at);
                self.events.plan(at, Event::RelayTimer(number));
            }
        }
        Ok(())
    }

    fn relay_acts(&mut self, number: u32, action: Action) {
        let relay = &mut self.relays[number as usize];
        let instance = relay.machine.instance().unwrap_or(InstanceId(0));
        let message = match action {
            Action::Note(notes) => return relay.notes.write(notes, &relay.machine),
            Action::Join(join) => {
                let entries = join.reports.len() + join.held.len();
                return self.tell_above(number, entries, &FromExecutor::Join(join));
            }
            Action::Update(update) => {
                let entries = update.reports.len() + update.returned.len();
                return self.tell_above(number, entries, &FromExecutor::Update(update));
            }
            Action::Submit { first, submission } => {
                let (request, client) = (relay.request(Asked::Submit), 1);
                FromClient::Submit { request, instance, first, client, submission }
            }
            Action::Cancel(runs) => {
                let (request, selection) = (relay.request(Asked::Other), Selection::Runs(runs));
                FromClient::Cancel { request, instance, selection }
            }
            Action::Withdraw(count) => {
                let request = relay.request(Asked::Other);
                FromClient::Withdraw { request, instance, count }
            }
            Action::LetGo(objects) => {
                let request = relay.request(Asked::Other);
                FromClient::LetGo { request, objects }
            }
            Action::Acknowledge(upto) => FromClient::Acknowledge { instance, upto },
            // Nothing here gets nodes for a relay, nobody releases one, and no task writes.
            Action::Unmet(_) | Action::Left | Action::Release(_) => return,
        };
        self.ask_own(number, &message);
    }

    fn tell_above(&mut self, number: u32, entries: usize, message: &FromExecutor) {
        let (now, costs) = (self.events.now, self.scenario.dispatcher);
        let relay = &mut self.relays[number as usize];
        if let Some(connection) = relay.connection {
            let (above, bytes) = (relay.above, message.to_bytes());
            let departs = relay.work(now, costs.of(bytes.len(), entries as u64, 0));
            self.send(above, connection, Way::Up, departs, bytes);
        }
    }

    fn ask_own(&mut self, number: u32, message: &FromClient) {
        let (now, costs) = (self.events.now, self.scenario.dispatcher);
        let relay = &mut self.relays[number as usize];
        if let Some(own) = relay.own {
            let (host, bytes) = (relay.host, message.to_bytes());
            let departs = relay.work(now, costs.of(bytes.len(), 0, 0));
            self.send(host, own, Way::Up, departs, bytes);
        }
    }

    /// A message that passes between a relay and its dispatcher within a process.
    pub(super) fn pass_within(
        &mut self,
        number: u32,
        connection: u64,
        way: Way,
        departs: Nanos,
        bytes: Vec<u8>,
    ) {
        match way {
            Way::Up => {
                let dispatcher = self.host_of(number);
                let inbound = Inbound::Message(ConnectionId(connection), bytes.into());
                self.events.plan(departs, Event::AtDispatcher { dispatcher, inbound });
            }
            Way::Down => self.plan_at_relay(number, Side::Own, connection, departs, bytes.into()),
        }
    }

    /// A message that is there at `at` is taken in behind those before it.
    pub(super) fn plan_at_relay(
        &mut self,
        relay: u32,
        side: Side,
        connection: u64,
        at: Nanos,
        bytes: Box<[u8]>,
    ) {
        let spent = self.scenario.dispatcher.of(bytes.len(), 0, 0);
        let acts = self.relays[relay as usize].work(at, spent);
        self.events.plan(acts, Event::AtRelay { relay, side, connection, bytes });
    }

    /// `kill -9`, and later a process that knows the journal and the notes.
    pub(super) fn crash_relay(&mut self) -> Result<(), Broken> {
        let now = self.events.now;
        if self.relays.is_empty() {
            return Ok(());
        }
        let number = self.rng.below(self.relays.len() as u64) as u32;
        if self.relays[number as usize].own.is_none() {
            return Ok(());
        }
        self.measured.faults += 1;
        let back = now.after(self.scenario.faults.relay_down).after(Nanos(1));
        self.restart_dispatcher(self.host_of(number), back)?;
        let process = self.next_incarnation;
        self.next_incarnation += 1;
        let noticed = now.after(self.scenario.network.latency);
        let relay = &mut self.relays[number as usize];
        let mut machine = Relay::new(0, process, relay.name.clone());
        relay.notes.all.iter().for_each(|note| machine.recover(*note));
        relay.machine = machine;
        (relay.own, relay.timer, relay.looks) = (None, None, None);
        relay.busy_until = back;
        let (above, connection) = (relay.above, relay.connection.take());
        if let Some(connection) = connection {
            self.close_at_dispatcher(above, connection, noticed);
        }
        self.events.plan(back, Event::RelayStarts(number));
        Ok(())
    }
}
