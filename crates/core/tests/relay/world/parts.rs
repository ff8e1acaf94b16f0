//! Parts of objects that dispatchers and relays pass on between nodes that cannot reach each
//! other.

use super::{Asked, End, Happening, World};
use falkon_core::data::object::Object;
use falkon_core::data::stage::{Event, FetchError, FetchId};
use falkon_core::dispatch::{self, ConnectionId};
use falkon_core::part::{PartAnswer, PartQuestion};
use std::collections::BTreeMap;

/// A transfer of a node that waits for its part.
struct Wanted {
    node: usize,
    incarnation: u64,
    fetch: FetchId,
    bytes: Option<u64>,
}

/// Parts on their way.
#[derive(Default)]
pub(super) struct Parts {
    wanted: BTreeMap<(ConnectionId, u64), Wanted>,
    /// Questions that relays have asked above, by the numbers there: those below.
    above: BTreeMap<(ConnectionId, u64), (usize, u64)>,
    /// How many have come.
    pub(super) came: u64,
}

/// One byte stands for all that a transfer is to bring.
fn question(object: &Object) -> PartQuestion {
    PartQuestion { object: object.id, from: 0, count: 1 }
}

impl World {
    /// How often an object came to a node through dispatchers.
    pub(crate) fn parts_came(&self) -> u64 {
        self.parts.came
    }

    /// A node asks its dispatcher for an object.
    pub(super) fn want_part(
        &mut self,
        node: usize,
        object: &Object,
        fetch: FetchId,
        bytes: Option<u64>,
    ) {
        let incarnation = self.nodes[node].incarnation;
        let Some(connection) = self.nodes[node].connection else {
            let why = FetchError::Unreachable("there is no session".to_owned());
            let event = Event::FetchFailed { fetch, bytes: 0, why };
            return self.later(1, Happening::Stage(node, incarnation, event));
        };
        let number = self.number();
        self.parts.wanted.insert((connection, number), Wanted { node, incarnation, fetch, bytes });
        let question = question(object);
        let event = dispatch::Event::ReadPart { connection, number, question };
        self.send(connection, true, Happening::Up(connection, event));
    }

    /// A node or a relay gets a part.
    pub(super) fn part(&mut self, connection: ConnectionId, number: u64, answer: PartAnswer) {
        match self.ends.get(&connection).copied() {
            Some((_, End::Node(_))) => {
                if let Some(wanted) = self.parts.wanted.remove(&(connection, number)) {
                    self.part_came(wanted, answer);
                }
            }
            Some((_, End::Lender(_))) => {
                if let Some((site, below)) = self.parts.above.remove(&(connection, number)) {
                    self.tell_part_below(site, below, answer);
                }
            }
            _ => {}
        }
    }

    fn part_came(&mut self, wanted: Wanted, answer: PartAnswer) {
        let Wanted { node, incarnation, fetch, bytes } = wanted;
        let failed = |why| Event::FetchFailed { fetch, bytes: 0, why };
        let event = match answer {
            PartAnswer::Here { whole, .. } => {
                self.parts.came += 1;
                Event::Fetched { fetch, bytes: bytes.unwrap_or(whole) }
            }
            PartAnswer::Gone => failed(FetchError::Gone),
            PartAnswer::Busy => failed(FetchError::Busy),
            PartAnswer::Unreached => failed(FetchError::Unreachable("it is away".to_owned())),
        };
        self.later(1, Happening::Stage(node, incarnation, event));
    }

    /// A relay tells its own dispatcher what the one above has answered.
    fn tell_part_below(&mut self, site: usize, number: u64, answer: PartAnswer) {
        let owner = self.sites[site].lends.as_ref().unwrap().owner;
        let event = dispatch::Event::PartTold { connection: owner, number, answer };
        self.send(owner, true, Happening::Up(owner, event));
    }

    /// A node or a relay is asked for a part.
    pub(super) fn asked_for_part(
        &mut self,
        connection: ConnectionId,
        number: u64,
        question: PartQuestion,
    ) {
        match self.ends.get(&connection).copied() {
            Some((_, End::Node(node))) => {
                let stage = self.nodes[node].machine.stage().unwrap();
                let entry = stage.cache().entry(question.object);
                let answer = match entry.filter(|entry| entry.is_held) {
                    Some(entry) => PartAnswer::Here { whole: entry.size, bytes: vec![7] },
                    None => PartAnswer::Gone,
                };
                let event = dispatch::Event::PartTold { connection, number, answer };
                self.send(connection, true, Happening::Up(connection, event));
            }
            Some((_, End::Lender(site))) if self.is_attached(site) => {
                let request = self.ask(site, Asked::Part(number));
                let owner = self.sites[site].lends.as_ref().unwrap().owner;
                let event = dispatch::Event::ReadPartBelow { connection: owner, request, question };
                self.send(owner, true, Happening::Up(owner, event));
            }
            _ => {}
        }
    }

    /// A relay has asked its own dispatcher for the one above.
    pub(super) fn part_read(&mut self, site: usize, number: u64, answer: PartAnswer) {
        let above = self.sites[site].lends.as_ref().unwrap().connection;
        if let Some(connection) = above {
            let event = dispatch::Event::PartTold { connection, number, answer };
            self.send(connection, true, Happening::Up(connection, event));
        }
    }

    /// A relay takes questions from its own dispatcher.
    pub(super) fn await_parts(&mut self, site: usize) {
        let request = self.ask(site, Asked::Parts);
        let owner = self.sites[site].lends.as_ref().unwrap().owner;
        let event = dispatch::Event::AwaitParts { connection: owner, request };
        self.send(owner, true, Happening::Up(owner, event));
    }

    /// Questions of executors below a relay for the dispatcher above it.
    pub(super) fn ask_above(&mut self, site: usize, questions: Vec<(u64, PartQuestion)>) {
        let above = self.sites[site].lends.as_ref().unwrap().connection;
        for (below, question) in questions {
            let Some(connection) = above else {
                self.tell_part_below(site, below, PartAnswer::Unreached);
                continue;
            };
            let number = self.number();
            self.parts.above.insert((connection, number), (site, below));
            let event = dispatch::Event::ReadPart { connection, number, question };
            self.send(connection, true, Happening::Up(connection, event));
        }
        self.await_parts(site);
    }

    /// A connection is gone, with the parts that were to come over it.
    pub(super) fn parts_are_cut(&mut self, connection: ConnectionId) {
        let all = (connection, 0)..=(connection, u64::MAX);
        let wanted: Vec<_> = self.parts.wanted.range(all.clone()).map(|(key, _)| *key).collect();
        for key in wanted {
            if let Some(wanted) = self.parts.wanted.remove(&key) {
                self.part_came(wanted, PartAnswer::Unreached);
            }
        }
        let above: Vec<_> = self.parts.above.range(all).map(|(key, _)| *key).collect();
        for key in above {
            if let Some((site, below)) = self.parts.above.remove(&key)
                && self.sites[site].alive
                && self.is_attached(site)
            {
                self.tell_part_below(site, below, PartAnswer::Unreached);
            }
        }
    }

    /// The relay of a site passes on which objects the dispatcher above needs no more.
    pub(super) fn let_go(&mut self, site: usize, objects: dispatch::LetGo) {
        let request = self.ask(site, Asked::Other);
        let connection = self.sites[site].lends.as_ref().unwrap().owner;
        let event = dispatch::Event::LetGo { connection, request, objects };
        self.send(connection, true, Happening::Up(connection, event));
    }
}
