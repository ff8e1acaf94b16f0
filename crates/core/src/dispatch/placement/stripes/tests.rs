//! Lenders that come, leave and are silent, and executors that do what they are told.

use super::*;
use crate::data::limits::STRIPE_BYTES as UNIT;

const READER: ExecutorId = ExecutorId(100);

fn object(id: u128, units: u64) -> Object {
    let size = Some(units * UNIT);
    Object { id: ObjectId(id), url: "/data".into(), version: "1".into(), size }
}

/// So many lenders, numbered from 1 on, with room for so many units each.
fn lenders(count: u64, units: u64) -> Stripes {
    let mut stripes = Stripes::default();
    (1..=count).for_each(|id| stripes.lends(ExecutorId(id), units * UNIT));
    stripes
}

fn begin(stripes: &mut Stripes, object: &Object, wanted: u64) -> bool {
    let began = stripes.begin(object, object.size.unwrap(), (wanted, 1), Some(READER));
    if began {
        stripes.read(object.id, READER, 1);
    }
    stripes.check(|_| true).unwrap();
    began
}

/// Who lends how many stripes, takes back, and is read from.
type Said = (Vec<(u64, usize)>, Vec<u64>, Vec<Vec<u64>>);

/// What was said since.
fn said(stripes: &mut Stripes) -> Said {
    let (mut lent, mut taken, mut striped) = (Vec::new(), Vec::new(), Vec::new());
    for (to, notice) in stripes.take_notices() {
        match notice {
            StripeNotice::Lend(_, of_it, ..) => lent.push((to.0, of_it.len())),
            StripeNotice::TakeBack(_) => taken.push(to.0),
            StripeNotice::Striped(_, lenders) => {
                assert_eq!(to, READER);
                striped.push(lenders.into_iter().map(|id| id.0).collect());
            }
        }
    }
    (lent, taken, striped)
}

#[test]
fn as_many_lend_as_are_wanted_or_as_have_room() {
    let mut stripes = lenders(10, 8);
    assert!(begin(&mut stripes, &object(1, 16), 4));
    let (lent, _, striped) = said(&mut stripes);
    assert_eq!(lent, [(1, 1), (2, 1), (3, 1), (4, 1)]);
    assert_eq!(striped, [[1, 2, 3, 4]]);
    // The six others have room for eight units each, these four for four.
    assert!(begin(&mut stripes, &object(2, 48), 4));
    let (lent, ..) = said(&mut stripes);
    assert_eq!(lent.len(), 6);
    assert!(!begin(&mut stripes, &object(3, 33), 4), "there is room for 16 units");
    assert!(begin(&mut stripes, &object(4, 16), 4));
}

#[test]
fn a_lender_that_is_gone_or_full_gives_its_stripes_to_another() {
    let mut stripes = lenders(4, 10);
    let object = object(1, 20);
    assert!(begin(&mut stripes, &object, 3));
    said(&mut stripes);
    stripes.left(ExecutorId(2));
    stripes.check(|id| id.0 != 2).unwrap();
    let (lent, taken, striped) = said(&mut stripes);
    assert_eq!((lent, taken, striped), (vec![(4, 1)], Vec::new(), vec![vec![1, 4, 3]]));
    // Nobody but those has room: it ends for all.
    stripes.went(ExecutorId(1), share_id(object.id));
    stripes.check(|id| id.0 != 2).unwrap();
    let (lent, taken, striped) = said(&mut stripes);
    assert_eq!((lent, taken, striped), (Vec::new(), vec![1, 3, 4], vec![Vec::new()]));
    assert!(!stripes.has(object.id));
}

#[test]
fn a_reader_that_complains_of_all_is_believed_no_more() {
    let mut stripes = lenders(9, 10);
    let object = object(1, 8);
    assert!(begin(&mut stripes, &object, 4));
    for _ in 0..BROADCAST_LOSSES_MAX {
        said(&mut stripes);
        let first = stripes.of[&object.id].stripes[0].lenders[0];
        stripes.is_silent(READER, object.id, first);
        assert_eq!(said(&mut stripes).0.len(), 1);
    }
    let first = stripes.of[&object.id].stripes[0].lenders[0];
    stripes.is_silent(READER, object.id, first);
    stripes.is_silent(ExecutorId(55), object.id, first);
    assert_eq!(said(&mut stripes).0, []);
    stripes.check(|_| true).unwrap();
}

#[test]
fn what_no_task_reads_gives_way() {
    let mut stripes = lenders(2, 8);
    assert!(begin(&mut stripes, &object(1, 16), 2));
    assert!(!begin(&mut stripes, &object(2, 16), 2));
    assert!(stripes.end_unread(&Readership::default()));
    assert!(begin(&mut stripes, &object(2, 16), 2));
    assert!(!stripes.has(ObjectId(1)));
}

#[test]
fn a_lender_that_leaves_is_given_no_more() {
    let mut stripes = lenders(2, 8);
    stripes.leaves(ExecutorId(1));
    assert!(begin(&mut stripes, &object(1, 8), 2));
    assert_eq!(said(&mut stripes).0, [(2, 1)]);
}

/// Executors that do what they are told: which stripes each has, or copies from whom.
#[derive(Default)]
struct Lenders {
    told: BTreeMap<(ObjectId, u32), BTreeMap<ExecutorId, Option<ExecutorId>>>,
    has: BTreeSet<(ObjectId, u32, ExecutorId)>,
    store_reads: u64,
}

impl Lenders {
    fn hear(&mut self, notices: Vec<(ExecutorId, StripeNotice)>) {
        for (to, notice) in notices {
            match notice {
                StripeNotice::Lend(object, stripes, _, from) => {
                    for stripe in stripes {
                        self.told.entry((object.id, stripe)).or_default().insert(to, from);
                    }
                }
                StripeNotice::TakeBack(share) => self.forget(to, Some(share_id(share))),
                StripeNotice::Striped(..) => {}
            }
        }
    }

    fn forget(&mut self, id: ExecutorId, object: Option<ObjectId>) {
        let is_of = |of: ObjectId| object.is_none_or(|object| object == of);
        for ((of, _), told) in &mut self.told {
            if is_of(*of) {
                told.remove(&id);
            }
        }
        self.has.retain(|(of, _, lender)| *lender != id || !is_of(*of));
    }

    /// All copy what they lack, and read the store for what nobody has.
    fn copy(&mut self) {
        for ((object, stripe), told) in &self.told {
            let has = |of: &BTreeSet<_>, id: ExecutorId| of.contains(&(*object, *stripe, id));
            let is_there = told.keys().any(|id| has(&self.has, *id));
            while let Some((id, from)) = told.iter().find(|(id, from)| {
                !has(&self.has, **id) && from.is_none_or(|from| has(&self.has, from))
            }) {
                if from.is_none() {
                    assert!(!is_there, "the store is read for what others have");
                    self.store_reads += 1;
                }
                self.has.insert((*object, *stripe, *id));
            }
            assert!(told.keys().all(|id| has(&self.has, *id)), "one copies from nobody");
        }
    }
}

/// The next of a sequence that a seed gives.
fn draw(state: &mut u64, below: u64) -> u64 {
    *state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
    (*state >> 33) % below
}

#[test]
fn a_stripe_is_read_from_the_store_again_only_when_all_that_had_it_are_gone() {
    for seed in 0..200 {
        let state = &mut (seed + 1);
        let (mut stripes, mut executors) = (Stripes::default(), Lenders::default());
        let mut there: BTreeSet<ExecutorId> = BTreeSet::new();
        let mut next = 0;
        for _ in 0..60 {
            let object = object(u128::from(draw(state, 3)) + 1, 4 + draw(state, 2) * 16);
            let pick = there.iter().nth(draw(state, 1 + there.len() as u64) as usize).copied();
            match (draw(state, 6), pick) {
                (0 | 1, _) => {
                    next += 1;
                    there.insert(ExecutorId(next));
                    stripes.lends(ExecutorId(next), (4 + draw(state, 40)) * UNIT);
                }
                (2 | 3, _) if !stripes.has(object.id) => {
                    let (wanted, copies) = (1 + draw(state, 6), 1 + draw(state, 3) as usize);
                    let size = object.size.unwrap();
                    if stripes.begin(&object, size, (wanted, copies), None) {
                        stripes.read(object.id, READER, copies);
                    }
                }
                (2 | 3, _) => stripes.read(object.id, READER, 1 + draw(state, 3) as usize),
                (4, Some(id)) => {
                    stripes.left(id);
                    executors.forget(id, None);
                    there.remove(&id);
                }
                (5, Some(id)) => stripes.is_silent(READER, object.id, id),
                _ => {}
            }
            let notices = stripes.take_notices();
            executors.hear(notices);
            executors.copy();
            let checked = stripes.check(|id| there.contains(&id) || id == READER);
            checked.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            for striped in stripes.of.values() {
                for stripe in
                    striped.stripes.iter().filter(|one| one.lenders.len() < striped.copies)
                {
                    let fit = stripes.lenders.iter().find(|(id, lender)| {
                        let is_other = !striped.unfit.contains(id) && !stripe.lenders.contains(id);
                        is_other && lender.free() >= striped.stripe_bytes()
                    });
                    assert!(fit.is_none(), "seed {seed}: {fit:?} could have a copy");
                }
            }
        }
    }
}

#[test]
fn each_stripe_survives_all_lenders_but_one() {
    let mut stripes = lenders(8, 100);
    let object = object(1, 64);
    assert!(stripes.begin(&object, object.size.unwrap(), (8, 3), None));
    stripes.read(object.id, READER, 3);
    let mut executors = Lenders::default();
    executors.hear(stripes.take_notices());
    executors.copy();
    assert_eq!(executors.store_reads, 8);
    // Each reader reads from all lenders at once.
    for reader in (200..206).map(ExecutorId) {
        let read: BTreeSet<ExecutorId> =
            stripes.of[&object.id].lenders_for(reader).into_iter().collect();
        assert_eq!(read.len(), 8, "{reader}");
    }
    // Two at a time are lost, until three are left that have all.
    for gone in [[1, 2], [5, 8]] {
        for id in gone {
            stripes.left(ExecutorId(id));
            executors.forget(ExecutorId(id), None);
        }
        executors.hear(stripes.take_notices());
        executors.copy();
    }
    assert_eq!(executors.store_reads, 8);
    // Readers are spread over those that have a stripe.
    let of = &stripes.of[&object.id];
    let read: BTreeSet<Vec<ExecutorId>> =
        (200..206).map(|reader| of.lenders_for(ExecutorId(reader))).collect();
    assert!(read.len() > 1, "{read:?}");
}
