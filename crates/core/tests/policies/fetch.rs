//! How much is fetched ahead: enough for the time that the next transfer takes,
//! and no more copies than may be.

use falkon_core::data::index::{Index, ObjectNo, Place};
use falkon_core::data::object::ObjectId;
use falkon_core::dispatch::diffusion::{Costs, PolicyName, PolicyOptions, Waiting};
use falkon_core::task::{ExecutorId, Time};

/// The bytes that an executor receives in a second; each object has as many.
const SECOND_BYTES: u64 = 125_000_000;
const SECOND: u64 = 1_000_000;

struct World {
    index: Index,
    waiting: Waiting,
    next: u64,
}

impl World {
    fn new(replication_max: u32) -> World {
        let policy = PolicyName::QueueAware;
        let options = PolicyOptions { policy, replication_max, ..PolicyOptions::default() };
        let waiting = Waiting::new(&options).expect("the options are good");
        World { index: Index::new(), waiting, next: 0 }
    }

    fn join(&mut self, executor: u64, holds: &[u128]) -> Place {
        let place = self.index.join(ExecutorId(executor));
        for object in holds {
            let added = self.index.add(place, ObjectId(*object), Some(SECOND_BYTES));
            self.waiting.holder_added(&self.index, place, added.expect("it is news"));
        }
        place
    }

    fn push(&mut self, tasks: u64, inputs: &[u128]) {
        for _ in 0..tasks {
            let want = |object: &u128| self.index.want(ObjectId(*object), Some(SECOND_BYTES));
            let inputs: Vec<ObjectNo> = inputs.iter().map(want).collect();
            self.waiting.push(&self.index, self.next, &inputs);
            self.next += 1;
        }
    }

    /// The object that an executor fetches next on which so many tasks run side by side,
    /// each for so long.
    fn fetch(&mut self, place: Place, slots: u64, task_micros: u64) -> Option<u128> {
        let costs = Costs { task_micros, peer_bytes_per_second: SECOND_BYTES, slots, now: Time(0) };
        let object = self.waiting.fetch(&self.index, place, &costs)?;
        Some(self.index.id(object).expect("it is wanted").0)
    }
}

/// An executor that has objects 1 and 2, with so many tasks that read both, and
/// others that read one of them with 3 or 4, which another has.
fn with_whole(tasks: u64) -> (World, Place) {
    let mut world = World::new(0);
    world.push(tasks, &[1, 2]);
    world.push(20, &[1, 3]);
    world.push(5, &[1, 4]);
    let place = world.join(0, &[1, 2]);
    world.join(1, &[3, 4]);
    (world, place)
}

/// Two tasks for each slot, and those that run while four objects come.
#[test]
fn more_is_fetched_when_whole_tasks_do_not_last_until_it_is_there() {
    for (slots, task_micros, enough) in
        [(1, SECOND, 6), (2, SECOND, 12), (1, 2 * SECOND, 4), (3, 5 * SECOND, 6)]
    {
        let (mut world, place) = with_whole(enough);
        assert_eq!(world.fetch(place, slots, task_micros), None, "{enough} are enough");
        // One of them is gone.
        assert!(world.waiting.remove(&world.index, 0).is_some());
        assert_eq!(world.fetch(place, slots, task_micros), Some(3), "{enough} are enough");
        // The objects at hand were noticed once.
        assert_eq!(world.fetch(place, slots, task_micros), Some(4), "{enough} are enough");
    }
}

#[test]
fn whole_tasks_beyond_those_that_were_enough_count_when_more_are_wanted() {
    let (mut world, place) = with_whole(12);
    assert_eq!(world.fetch(place, 1, SECOND), None);
    assert_eq!(world.fetch(place, 2, SECOND), None);
    assert_eq!(world.fetch(place, 3, SECOND), Some(3));
}

#[test]
fn a_popular_object_is_fetched_until_it_has_as_many_copies_as_it_may() {
    for replication_max in [2, 3] {
        let mut world = World::new(replication_max);
        world.push(1_000, &[1]);
        world.join(0, &[1]);
        let number = world.index.number(ObjectId(1)).expect("it is wanted");
        let mut copies = 1;
        for executor in 1..5 {
            let place = world.join(executor, &[]);
            if world.fetch(place, 1, SECOND) == Some(1) {
                copies += 1;
                assert!(!world.index.hints(number, place, 1).is_empty());
            }
            world.waiting.coming_changed(&world.index, number);
            // The object is on its way to that executor, or has come.
            assert_eq!(world.fetch(place, 1, SECOND), None);
            world.waiting.check(&world.index).expect("the books of the queue are in order");
        }
        assert_eq!(copies, replication_max);
    }
}
