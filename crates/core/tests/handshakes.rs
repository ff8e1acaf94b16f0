//! Handshakes that may go on, of peers that have not proved who they are: against a
//! reference model that looks at all of them each time.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use falkon_core::handshakes::{
    Arrived, HandshakeBounds, HandshakeId, Handshakes, SourceId, Spoken, Standing,
};
use proptest::prelude::*;
use std::cmp::Reverse;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct One {
    id: HandshakeId,
    source: u8,
    standing: Standing,
    /// The kind of the peer before it was asked to leave.
    was: Standing,
    stalled: bool,
}

/// All handshakes in the order of their arrival.
struct Model {
    bounds: HandshakeBounds,
    next: u64,
    all: Vec<One>,
}

impl Model {
    fn count(&self, is: impl Fn(&&One) -> bool) -> usize {
        self.all.iter().filter(is).count()
    }

    /// Of those who are `is`, the oldest of the source with most of them; of
    /// sources with as many, the one whose oldest is oldest.
    fn of_most(&self, is: impl Fn(&&One) -> bool + Copy) -> Option<One> {
        let size = |source| self.count(|one| is(one) && one.source == source);
        self.all.iter().filter(is).max_by_key(|one| (size(one.source), Reverse(one.id))).copied()
    }

    fn at(&mut self, id: HandshakeId) -> Option<&mut One> {
        self.all.iter_mut().find(|one| one.id == id)
    }

    fn evict(&mut self, one: Option<One>) -> Option<HandshakeId> {
        let one = self.at(one?.id)?;
        one.standing = Standing::Evicted;
        one.stalled = false;
        Some(one.id)
    }

    fn arrive(&mut self, source: u8) -> Option<Arrived> {
        let silent = |one: &&One| one.standing == Standing::Silent;
        if self.count(|one| one.was == Standing::Silent) >= 2 * self.bounds.silent_max {
            return None;
        }
        let own = self.all.iter().filter(silent).filter(|one| one.source == source);
        let victim = if own.clone().count() >= self.bounds.source_silent_max {
            own.clone().next().copied()
        } else if self.count(silent) >= self.bounds.silent_max {
            self.of_most(silent)
        } else {
            None
        };
        let evict = self.evict(victim);
        let id = HandshakeId(self.next);
        self.next += 1;
        let (standing, was) = (Standing::Silent, Standing::Silent);
        self.all.push(One { id, source, standing, was, stalled: false });
        Some(Arrived { id, evict })
    }

    fn wanted(&self) -> bool {
        let asked = |one: &&One| one.standing == Standing::Evicted && one.was == Standing::InPlace;
        self.count(|one| one.standing == Standing::Waiting) > self.count(asked)
    }

    fn evict_stalled(&mut self) -> Option<HandshakeId> {
        let victim = if self.wanted() { self.of_most(|one| one.stalled) } else { None };
        self.evict(victim)
    }

    fn spoke(&mut self, id: HandshakeId) -> Spoken {
        let waits = |one: &&One| one.standing == Standing::Waiting;
        let free = self.count(|one| one.was == Standing::InPlace) < self.bounds.places_max;
        let waiting = self.count(waits);
        let own = *self.at(id).unwrap();
        if waiting == 0 && free {
            *self.at(id).unwrap() =
                One { standing: Standing::InPlace, was: Standing::InPlace, ..own };
            return Spoken::Begin;
        }
        let mut turned_away = None;
        if waiting >= self.bounds.waiting_max {
            let of = |source| self.count(|one| waits(one) && one.source == source);
            let most = self.of_most(waits).unwrap().source;
            if of(most) <= of(own.source) + 1 {
                self.all.retain(|one| one.id != id);
                return Spoken::TurnedAway;
            }
            let last = self.all.iter().filter(waits).rfind(|one| one.source == most).unwrap().id;
            self.all.retain(|one| one.id != last);
            turned_away = Some(last);
        }
        *self.at(id).unwrap() = One { standing: Standing::Waiting, was: Standing::Waiting, ..own };
        Spoken::Wait { evict: self.evict_stalled(), turned_away }
    }

    fn stalled(&mut self, id: HandshakeId) -> bool {
        match self.at(id) {
            Some(one) if one.standing == Standing::InPlace => one.stalled = true,
            _ => return true,
        }
        let wanted = self.wanted();
        if wanted {
            self.evict(self.all.iter().find(|one| one.id == id).copied());
        }
        wanted
    }

    fn advanced(&mut self, id: HandshakeId) -> Option<HandshakeId> {
        let one = self.at(id)?;
        one.stalled = false;
        if std::mem::replace(&mut one.standing, Standing::InPlace) == Standing::Evicted {
            return self.evict_stalled();
        }
        None
    }

    fn leave(&mut self, id: HandshakeId) -> Option<HandshakeId> {
        self.at(id)?;
        self.all.retain(|one| one.id != id);
        let in_place = |one: &&One| one.was == Standing::InPlace;
        if self.count(in_place) >= self.bounds.places_max {
            return None;
        }
        let places = |source| self.count(|one| in_place(one) && one.source == source);
        let waits = self.all.iter().filter(|one| one.standing == Standing::Waiting);
        let next = waits.min_by_key(|one| (places(one.source), one.id))?.id;
        let one = self.at(next).unwrap();
        (one.standing, one.was) = (Standing::InPlace, Standing::InPlace);
        Some(next)
    }
}

fn source(number: u8) -> SourceId {
    SourceId(number.into())
}

/// Bounds of at least so many connections, but for those of one source and for
/// the places.
fn bounds(least: usize) -> impl Strategy<Value = HandshakeBounds> {
    (least..8, 1usize..8, least..6, 1usize..6).prop_map(|(silent_max, share, waiting, places)| {
        HandshakeBounds {
            silent_max,
            source_silent_max: share.min(silent_max),
            waiting_max: waiting,
            places_max: places,
        }
    })
}

proptest! {
    #[test]
    fn decisions_are_those_of_the_model(
        bounds in bounds(1),
        steps in prop::collection::vec((0u8..10, any::<prop::sample::Index>(), 0u8..4), 1..200),
    ) {
        let mut real = Handshakes::new(bounds);
        let mut model = Model { bounds, next: 0, all: Vec::new() };
        for (step, chosen, of) in steps {
            let one = (!model.all.is_empty()).then(|| model.all[chosen.index(model.all.len())]);
            match (step, one) {
                (5 | 6, Some(One { id, was: Standing::Silent, .. })) => {
                    prop_assert_eq!(real.spoke(id), model.spoke(id));
                }
                (5 | 6, Some(One { id, was: Standing::InPlace, .. })) => {
                    prop_assert_eq!(real.stalled(id), model.stalled(id));
                }
                (7, Some(One { id, was: Standing::InPlace, .. })) => {
                    prop_assert_eq!(real.advanced(id), model.advanced(id));
                }
                (8 | 9, Some(One { id, .. })) => {
                    prop_assert_eq!(real.leave(id), model.leave(id));
                }
                _ => {
                    let waiting = model.count(|one| one.standing == Standing::Waiting);
                    let is_crowded = real.is_crowded(source(of));
                    let arrived = real.arrive(source(of));
                    prop_assert_eq!(arrived, model.arrive(of));
                    let evicts = arrived.is_some_and(|arrived| arrived.evict.is_some());
                    prop_assert!(is_crowded || !evicts && waiting < bounds.waiting_max);
                }
            }
            for one in &model.all {
                prop_assert_eq!(real.standing(one.id), one.standing);
            }
            let silent = model.count(|one| one.was == Standing::Silent);
            prop_assert!(silent <= 2 * bounds.silent_max);
            prop_assert!(model.count(|one| one.was == Standing::InPlace) <= bounds.places_max);
            prop_assert!(model.count(|one| one.was == Standing::Waiting) <= bounds.waiting_max);
        }
    }

    /// Whatever others do with their own connections, a source that speaks at
    /// once gets its turn as soon as those who stall have been asked to leave.
    #[test]
    fn a_crowd_of_silent_and_of_stalling_peers_keeps_nobody_else_out(
        // One place for two is no choice.
        bounds in bounds(2),
        crowd in 1usize..60,
    ) {
        let mut handshakes = Handshakes::new(bounds);
        let leave = |handshakes: &mut Handshakes, id: Option<HandshakeId>| {
            let Some(id) = id else { return };
            if handshakes.standing(id) == Standing::Evicted {
                handshakes.leave(id);
            }
        };
        for number in 0..crowd {
            let arrived = handshakes.arrive(source(1)).unwrap();
            leave(&mut handshakes, arrived.evict);
            if number % 2 == 0 {
                if let Spoken::Wait { evict, .. } = handshakes.spoke(arrived.id) {
                    leave(&mut handshakes, evict);
                }
                if handshakes.standing(arrived.id) == Standing::InPlace {
                    let goes = handshakes.stalled(arrived.id);
                    leave(&mut handshakes, goes.then_some(arrived.id));
                }
            }
        }
        let honest = handshakes.arrive(source(2)).unwrap();
        leave(&mut handshakes, honest.evict);
        // One more of the crowd evicts one of its own.
        let last = handshakes.arrive(source(1)).unwrap();
        prop_assert_ne!(last.evict, Some(honest.id));
        leave(&mut handshakes, last.evict);
        match handshakes.spoke(honest.id) {
            Spoken::Begin => {}
            Spoken::Wait { evict, .. } => leave(&mut handshakes, evict),
            Spoken::TurnedAway => prop_assert!(false, "it was turned away"),
        }
        prop_assert_eq!(handshakes.standing(honest.id), Standing::InPlace);
    }

    #[test]
    fn most_descriptors_are_for_peers_that_have_proved_themselves(descriptors in 64u64..2_000_000) {
        let bounds = HandshakeBounds::for_descriptors(descriptors);
        let all = 2 * bounds.silent_max + bounds.waiting_max + bounds.places_max;
        prop_assert!(all as u64 <= descriptors * 5 / 8);
        prop_assert!(bounds.source_silent_max < bounds.silent_max);
    }
}
