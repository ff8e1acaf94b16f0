//! The shells of dispatchers, relays and executors: they carry actions out.

use super::submissions::fails;
use super::{Asked, CLIENT, End, Happening, SECOND, World};
use falkon_core::dispatch::{self, Action as Said, ConnectionId, Reply, RequestError, Selection};
use falkon_core::execute;
use falkon_core::gang::{GangAction, GangToken};
use falkon_core::relay;
use falkon_core::result::Outcome;
use falkon_core::task::{Kind, Time};

impl World {
    pub(super) fn act(&mut self, site: usize, action: Said) {
        let now = Time(self.now);
        match action {
            Said::Journal(record) => self.sites[site].journal.push(record),
            Said::Order { connection, order } => {
                self.account_order(site, connection, &order);
                self.send(connection, false, Happening::Down(connection, order));
            }
            Said::Unmet { connection, waiting } => {
                self.send(connection, false, Happening::Unmet(connection, waiting));
            }
            Said::AskKept { connection, number, question } => {
                self.asked_for_output(connection, number, question);
            }
            Said::AskPart { connection, number, question } => {
                self.send(connection, false, Happening::AskPart(connection, number, question));
            }
            Said::Part { connection, number, answer } => {
                self.send(connection, false, Happening::Part(connection, number, answer));
            }
            Said::Close { connection, .. } => self.close(connection),
            Said::Refuse { error, .. } => panic!("refused: {error}"),
            Said::Deliver { connection, delivery } => {
                let written = dispatch::Event::Written { connection, messages: 1 };
                self.sites[site].core.handle(now, written);
                match self.ends.get(&connection).copied() {
                    Some((_, End::Client)) => {
                        for finished in delivery.results {
                            for task in finished.first.0..finished.first.0 + finished.count {
                                let before = self.results.insert(task, finished.clone());
                                assert!(before.is_none(), "task {task} has two results");
                            }
                        }
                    }
                    Some((_, End::Owner(_))) => {
                        let (from, results) = (delivery.from, delivery.results);
                        let event = relay::Event::Results { from, results };
                        self.sites[site].lends.as_mut().unwrap().relay.handle(now, event);
                        self.pump_relay(site);
                    }
                    _ => {}
                }
            }
            Said::DrawTokens { count } => {
                let tokens = vec![GangToken::default(); count as usize];
                self.tell(site, dispatch::Event::TokensDrawn(tokens));
            }
            Said::Reply { connection, request, reply } => {
                self.replied(site, connection, request, reply)
            }
            _ => {}
        }
    }

    fn replied(&mut self, site: usize, connection: ConnectionId, request: u64, reply: Reply) {
        let now = Time(self.now);
        if connection == CLIENT {
            match reply {
                Reply::Created(instance) => self.instance = Some(instance),
                Reply::Withdrawn(runs) => self.withdrawn = runs,
                Reply::Accepted { count, .. } => self.accepted = count,
                _ => {}
            }
            return;
        }
        let lends = self.sites[site].lends.as_mut().unwrap();
        if connection != lends.owner {
            return;
        }
        let event = match (lends.asked.remove(&request), reply) {
            (Some(Asked::Create), Reply::Created(instance)) => {
                let noted = lends.relay.begin(instance, 0);
                lends.notes.extend(noted);
                self.subscribe(site, instance, 0);
                self.await_staged(site, instance);
                return;
            }
            (Some(Asked::Subscribe), Reply::Refused(RequestError::Forgotten { first })) => {
                let instance = lends.relay.instance().unwrap();
                self.subscribe(site, instance, first);
                return;
            }
            (Some(Asked::Submit), Reply::Accepted { count, .. }) => {
                relay::Event::Accepted { count }
            }
            (Some(Asked::Submit), Reply::Refused(error @ RequestError::NoExecutors)) => {
                relay::Event::Refused { why: Some(error.to_string()) }
            }
            (Some(Asked::Submit), Reply::Refused(error)) => panic!("refused: {error}"),
            (Some(Asked::Withdraw), Reply::Withdrawn(runs)) => relay::Event::Withdrawn(runs),
            (Some(Asked::Staged), Reply::Staged { staged, unstaged }) => {
                let event = relay::Event::Staged { staged, unstaged };
                lends.relay.handle(now, event);
                let instance = lends.relay.instance().unwrap();
                self.await_staged(site, instance);
                self.pump_relay(site);
                return;
            }
            (Some(Asked::Part(number)), Reply::Part(answer)) => {
                return self.part_read(site, number, answer);
            }
            (Some(Asked::Parts), Reply::Parts(questions)) => {
                return self.ask_above(site, questions);
            }
            (Some(Asked::Subscribe | Asked::Other), Reply::Done) => return,
            (Some(Asked::Other), Reply::Tail(_)) => return,
            (asked, reply) => panic!("{asked:?}: {reply:?}"),
        };
        lends.relay.handle(now, event);
        self.pump_relay(site);
    }

    pub(super) fn pump_relay(&mut self, site: usize) {
        while self.sites[site].alive {
            let lends = self.sites[site].lends.as_mut().unwrap();
            let Some(action) = lends.relay.poll_action() else { break };
            self.relay_acts(site, action);
        }
        let lends = self.sites[site].lends.as_ref().unwrap();
        lends.relay.check().unwrap();
    }

    fn relay_acts(&mut self, site: usize, action: relay::Action) {
        let lends = self.sites[site].lends.as_mut().unwrap();
        let (owner, above) = (lends.owner, lends.connection);
        let instance = lends.relay.instance();
        let up = |connection, event| Happening::Up(connection, event);
        match action {
            relay::Action::Note(notes) => {
                lends.notes.extend(notes);
                if self.rng.percent(self.dies_percent) {
                    let micros = self.rng.below(2 * SECOND);
                    self.kill_site(site, micros);
                }
            }
            relay::Action::Join(join) => {
                let Some(connection) = above else { return };
                let event = dispatch::Event::Join { connection, join };
                self.send(connection, true, up(connection, event));
            }
            relay::Action::Update(update) => {
                let Some(connection) = above else { return };
                let event = dispatch::Event::Update { connection, update };
                self.send(connection, true, up(connection, event));
            }
            relay::Action::Submit { first, submission } => {
                let (connection, request) = (owner, self.ask(site, Asked::Submit));
                let instance = instance.unwrap();
                let client = 7;
                let event = dispatch::Event::Submit {
                    connection,
                    request,
                    instance,
                    first,
                    client,
                    submission,
                };
                self.send(owner, true, up(owner, event));
            }
            relay::Action::Cancel(runs) => {
                let (connection, request) = (owner, self.ask(site, Asked::Other));
                let (instance, selection) = (instance.unwrap(), Selection::Runs(runs));
                let event = dispatch::Event::Cancel { connection, request, instance, selection };
                self.send(owner, true, up(owner, event));
            }
            relay::Action::Withdraw(count) => {
                let (connection, request) = (owner, self.ask(site, Asked::Withdraw));
                let instance = instance.unwrap();
                let event = dispatch::Event::Withdraw { connection, request, instance, count };
                self.send(owner, true, up(owner, event));
            }
            relay::Action::Acknowledge(upto) => {
                let instance = instance.unwrap();
                let event = dispatch::Event::Acknowledge { connection: owner, instance, upto };
                self.send(owner, true, up(owner, event));
            }
            relay::Action::Release(runs) => {
                let (connection, request) = (owner, self.ask(site, Asked::Other));
                let instance = instance.unwrap();
                let event = dispatch::Event::ReleaseOutput { connection, request, instance, runs };
                self.send(owner, true, up(owner, event));
            }
            relay::Action::LetGo(objects) => self.let_go(site, objects),
            relay::Action::Unmet(waiting) => {
                let event = dispatch::Event::Unmet { connection: owner, waiting };
                self.send(owner, true, up(owner, event));
            }
            relay::Action::Left => {}
        }
    }

    pub(super) fn pump_node(&mut self, node: usize) {
        while let Some(action) = self.nodes[node].machine.poll_action() {
            let there = &mut self.nodes[node];
            let incarnation = there.incarnation;
            let connection = there.connection;
            match action {
                execute::Action::Join(join) => {
                    let Some(connection) = connection else { continue };
                    let event = dispatch::Event::Join { connection, join };
                    self.send(connection, true, Happening::Up(connection, event));
                }
                execute::Action::Update(update) => {
                    let Some(connection) = connection else { continue };
                    let event = dispatch::Event::Update { connection, update };
                    self.send(connection, true, Happening::Up(connection, event));
                }
                execute::Action::Prepare { template, bytes } => {
                    there.templates.insert(template, bytes.to_vec());
                }
                execute::Action::Start(start) => {
                    let template = there.templates.get(&start.template);
                    let may_fail = template.is_some_and(|bytes| fails(bytes));
                    if let Some(number) = template.and_then(|bytes| bytes.chunks_exact(8).nth(1)) {
                        let number = u64::from_le_bytes(number.try_into().unwrap());
                        *self.everywhere.entry((number, incarnation)).or_default() += 1;
                    }
                    there.started.insert(start.key, (start.count, Time(self.now)));
                    self.starts += start.count;
                    if let Some(data) = &start.data {
                        self.writes(node, start.key, &data.outputs);
                    }
                    let micros = match start.class.kind {
                        Kind::Noop => 0,
                        _ => start.class.estimate_micros,
                    };
                    let outcome = match may_fail && self.rng.percent(20) {
                        true => Outcome::Exit(1),
                        false => Outcome::Exit(0),
                    };
                    let ended = Happening::Ended(node, incarnation, start.key, outcome);
                    self.later(micros, ended);
                }
                execute::Action::Kill { key, .. } => {
                    let ended = Happening::Ended(node, incarnation, key, Outcome::Signal(9));
                    self.later(1000, ended);
                }
                execute::Action::Gang(GangAction::Disband { key }) => {
                    let micros = 1 + self.rng.below(50_000);
                    self.later(micros, Happening::GangEnded(node, incarnation, key));
                }
                execute::Action::Discard(runs) => self.discard(incarnation, &runs),
                execute::Action::Left => self.remove_node(node),
                execute::Action::Stage(action) => self.act_stage(node, action),
                execute::Action::Collect(action) => self.act_collect(node, action),
                _ => {}
            }
        }
        self.nodes[node].machine.check().unwrap();
    }
}

// The relays' claims of what is below them.
impl World {
    /// A site requests nodes from these queues.
    pub(crate) fn sites_of(&mut self, site: usize, queues: Vec<dispatch::Site>) {
        self.sites[site].queues = queues;
    }

    /// The nodes below, whenever they have changed.
    pub(super) fn tell_subtree(&mut self, site: usize) {
        let there = &mut self.sites[site];
        let Some(lends) = there.lends.as_mut().filter(|lends| lends.is_attached) else { return };
        let subtree = there.core.subtree(lends.relay.identity());
        let queues = &there.queues;
        let survey = there.core.survey(Time(self.now), || queues.clone());
        lends.relay.handle(Time(self.now), relay::Event::Survey(survey));
        if lends.last_subtree.as_ref() != Some(&subtree) {
            lends.last_subtree = Some(subtree.clone());
            lends.relay.handle(Time(self.now), relay::Event::Subtree(subtree));
            self.pump_relay(site);
        }
        self.tell_holdings(site);
    }
}
