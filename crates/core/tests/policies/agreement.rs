//! Random queues: each decision is the one of the transcription.

use crate::Rng;
use crate::oracle::{Oracle, Task};
use falkon_core::data::index::{Change, Index, ObjectNo, Place};
use falkon_core::data::object::ObjectId;
use falkon_core::dispatch::diffusion::{
    Free, Load, POLICIES, PolicyName, PolicyOptions, Taken, Waiting,
};
use falkon_core::task::ExecutorId;
use std::collections::{BTreeMap, BTreeSet};

const EXECUTORS: u64 = 5;
const FILES: u64 = 8;
const SEEDS: u64 = 12;
/// Fewer than are looked at one by one, so that nothing is left to chance.
const TASKS_MAX: usize = 50;

struct FreePlaces<'a> {
    places: &'a BTreeMap<u64, Place>,
    free: &'a BTreeSet<u64>,
}

impl Free for FreePlaces<'_> {
    fn is_free(&self, place: Place) -> bool {
        self.free.iter().any(|executor| self.places[executor] == place)
    }

    fn first(&self) -> Option<Place> {
        self.free.first().map(|executor| self.places[executor])
    }
}

struct Trial {
    rng: Rng,
    oracle: Oracle,
    index: Index,
    waiting: Waiting,
    places: BTreeMap<u64, Place>,
    free: BTreeSet<u64>,
    sizes: BTreeMap<u64, u64>,
    next: u64,
    inputs_max: u64,
}

impl Trial {
    fn new(seed: u64, options: PolicyOptions, inputs_max: u64) -> Trial {
        let mut rng = Rng(seed);
        let sizes: BTreeMap<u64, u64> = (0..FILES).map(|file| (file, rng.below(5) + 1)).collect();
        let mut index = Index::new();
        // The numbers of executors and places agree, and so do ties.
        let places = (0..EXECUTORS).map(|id| (id, index.join(ExecutorId(id)))).collect();
        Trial {
            rng,
            oracle: Oracle::new(options, sizes.clone()),
            index,
            waiting: Waiting::new(&options).expect("the options are good"),
            places,
            free: BTreeSet::new(),
            sizes,
            next: 0,
            inputs_max,
        }
    }

    fn load(&mut self) -> Load {
        Load { busy: self.rng.below(EXECUTORS + 1), executors: EXECUTORS }
    }

    fn file(&self, object: ObjectNo) -> u64 {
        self.index.id(object).expect("it is wanted").0 as u64
    }

    /// A task came back: its inputs are those it was pushed with.
    fn came_back(&mut self, taken: &Taken) {
        let task = self.oracle.remove(taken.task).expect("it waited");
        let files: BTreeSet<u64> =
            taken.inputs.as_slice().iter().map(|object| self.file(*object)).collect();
        assert_eq!(files, task.files);
        for object in taken.inputs.as_slice() {
            self.index.unwant(*object);
        }
    }

    fn push(&mut self) {
        let count = match self.inputs_max {
            1 => 1,
            most => self.rng.below(most + 1),
        };
        let files: BTreeSet<u64> = (0..count).map(|_| self.rng.below(FILES)).collect();
        let inputs: Vec<ObjectNo> = files
            .iter()
            .map(|file| self.index.want(ObjectId(u128::from(*file)), Some(self.sizes[file])))
            .collect();
        self.waiting.push(&self.index, self.next, &inputs);
        self.oracle.queue.push(Task { number: self.next, files });
        self.next += 1;
    }

    fn take(&mut self, executor: u64, room: usize, load: Load) -> usize {
        let expected = match self.oracle.sends_together() {
            true => self.oracle.run_together(executor, room, self.next),
            false => self.oracle.pick_up(executor, room, load),
        };
        let mut taken = Vec::new();
        self.waiting.select(&self.index, self.places[&executor], room, load, &mut taken);
        let numbers: Vec<u64> = taken.iter().map(|taken| taken.task).collect();
        assert_eq!(numbers, expected, "executor {executor}, {load:?}, {:?}", self.oracle);
        for taken in &taken {
            self.came_back(taken);
        }
        taken.len()
    }

    fn add(&mut self, executor: u64, file: u64) {
        let place = self.places[&executor];
        let news = self.index.add(place, ObjectId(u128::from(file)), Some(self.sizes[&file]));
        self.oracle.files.entry(executor).or_default().insert(file);
        let is_new = self.oracle.holders.entry(file).or_default().insert(executor);
        assert_eq!(news.is_some(), is_new);
        if let Some(object) = news {
            let wanted = self.waiting.holder_added(&self.index, place, object);
            let expected = self.oracle.queue.iter().any(|task| task.files.contains(&file));
            assert_eq!(wanted, expected && self.oracle.looks());
        }
    }

    fn drop_file(&mut self, executor: u64, file: u64) {
        let place = self.places[&executor];
        if let Some(object) = self.index.remove(place, ObjectId(u128::from(file))) {
            self.waiting.holder_removed(&self.index, place, object);
        }
        self.oracle.files.entry(executor).or_default().remove(&file);
        self.oracle.holders.entry(file).or_default().remove(&executor);
    }

    fn lose(&mut self, executor: u64) {
        let place = self.places[&executor];
        let held = self.index.leave(place);
        self.waiting.executor_left(&self.index, place, &held);
        self.oracle.runs.remove(&executor);
        assert_eq!(self.index.join(ExecutorId(executor)), place, "the number is free again");
        for file in self.oracle.files.remove(&executor).into_iter().flatten() {
            self.oracle.holders.entry(file).or_default().remove(&executor);
        }
    }

    fn reconnect(&mut self, executor: u64) {
        let place = self.places[&executor];
        let files: BTreeSet<u64> = (0..FILES).filter(|_| self.rng.below(3) == 0).collect();
        let all: Vec<_> = files
            .iter()
            .map(|file| (ObjectId(u128::from(*file)), Some(self.sizes[file])))
            .collect();
        for change in self.index.replace(place, &all) {
            match change {
                Change::Added(object) => {
                    self.waiting.holder_added(&self.index, place, object);
                }
                Change::Removed(object) => self.waiting.holder_removed(&self.index, place, object),
            }
        }
        for holders in self.oracle.holders.values_mut() {
            holders.remove(&executor);
        }
        for file in &files {
            self.oracle.holders.entry(*file).or_default().insert(executor);
        }
        self.oracle.files.insert(executor, files);
    }

    /// Offers until nothing is left to offer; checks each, and that no free
    /// executor is left with something to pick up.
    fn offer(&mut self) {
        let load = self.load();
        // As a dispatcher does: executors that may have gained something are
        // asked first.
        for executor in self.free.clone() {
            if self.take(executor, 1, load) > 0 {
                self.free.remove(&executor);
            }
        }
        loop {
            let free = FreePlaces { places: &self.places, free: &self.free };
            let Some(offer) = self.waiting.offer(&self.index, &free, load) else { break };
            let executor = u64::from(offer.place.0);
            let task = self.oracle.queue.iter().find(|task| task.number == offer.taken.task);
            let task = task.expect("it waits").clone();
            match self.oracle.candidate(&task, &self.free) {
                Some(best) => assert_eq!(executor, best),
                None => {
                    assert_eq!(Some(&executor), self.free.first());
                    let picked = match self.oracle.sends_together() {
                        true => self.oracle.run_together(executor, 1, self.next),
                        false => self.oracle.pick_up(executor, 1, load),
                    };
                    assert_eq!(vec![task.number], picked);
                }
            }
            self.came_back(&offer.taken);
            self.free.remove(&executor);
        }
        for executor in &self.free {
            let left = self.oracle.pick_up(*executor, 1, load);
            assert!(left.is_empty(), "{executor} could have had {left:?}");
        }
    }

    /// The head of the queue goes where the first part says, under a policy
    /// that never waits.
    fn offer_head(&mut self) {
        let load = Load { busy: 0, executors: EXECUTORS };
        let Some(head) = self.oracle.queue.first().cloned() else { return };
        let Some(first) = self.free.first().copied() else { return };
        let expected = match self.oracle.candidate(&head, &self.free) {
            Some(best) => (best, head.number),
            None => (first, self.oracle.pick_up(first, 1, load)[0]),
        };
        let free = FreePlaces { places: &self.places, free: &self.free };
        let offer = self.waiting.offer(&self.index, &free, load).expect("a task is offered");
        assert_eq!((u64::from(offer.place.0), offer.taken.task), expected);
        self.came_back(&offer.taken);
        self.free.remove(&expected.0);
    }

    fn step(&mut self) {
        let (executor, file) = (self.rng.below(EXECUTORS), self.rng.below(FILES));
        match self.rng.below(16) {
            0..=5 if self.oracle.queue.len() < TASKS_MAX => self.push(),
            6 | 7 => self.add(executor, file),
            8 => self.drop_file(executor, file),
            9 | 10 => {
                let (room, load) = (self.rng.below(4) as usize, self.load());
                self.take(executor, room, load);
            }
            11 => {
                let was_free = self.free.remove(&executor);
                if !was_free {
                    self.free.insert(executor);
                }
            }
            12 if self.rng.below(4) == 0 => self.lose(executor),
            12 if self.rng.below(3) == 0 => self.reconnect(executor),
            13 if self.next > 0 => {
                let task = self.rng.below(self.next);
                let waited = self.oracle.queue.iter().any(|queued| queued.number == task);
                let taken = self.waiting.remove(&self.index, task);
                assert_eq!(taken.is_some(), waited);
                if let Some(taken) = taken {
                    self.came_back(&taken);
                }
            }
            14 if self.oracle.may_wait() => self.offer(),
            14 | 15 if !self.oracle.may_wait() => self.offer_head(),
            _ => {}
        }
        self.waiting.check(&self.index).expect("the books of the queue are in order");
        assert_eq!(self.waiting.len(), self.oracle.queue.len());
        for file in 0..FILES {
            let wanting =
                self.oracle.queue.iter().filter(|task| task.files.contains(&file)).count();
            let number = self.index.number(ObjectId(u128::from(file)));
            assert_eq!(number.map_or(0, |number| self.index.wanted(number)), wanting as u64);
        }
    }
}

fn agree(options: PolicyOptions, inputs_max: u64) {
    for seed in 0..SEEDS {
        let run = std::panic::catch_unwind(|| {
            let mut trial = Trial::new(seed, options, inputs_max);
            for _ in 0..400 {
                trial.step();
            }
        });
        if let Err(panic) = run {
            eprintln!("seed {seed}, {options:?}, up to {inputs_max} inputs");
            std::panic::resume_unwind(panic);
        }
    }
}

fn with(policy: PolicyName, window: u64) -> PolicyOptions {
    PolicyOptions { policy, window, ..PolicyOptions::default() }
}

/// Every policy that knows places chooses as its oracle does, with each option
/// that it looks at.
#[test]
fn policies_choose_as_their_oracles_do() {
    for (policy, _) in POLICIES.into_iter().filter(|(policy, _)| policy.knows_places()) {
        let busy = PolicyOptions { utilization_threshold_milli: 600, ..with(policy, 0) };
        let plain = if busy.check().is_ok() { busy } else { with(policy, 0) };
        for (window, replication_max) in [0, 7].into_iter().flat_map(|w| [0, 1, 2].map(|r| (w, r)))
        {
            let options = PolicyOptions { window, replication_max, ..plain };
            if options.check().is_ok() {
                agree(options, 1);
                agree(options, 3);
            }
        }
    }
}

#[test]
fn policies_have_names_and_useless_options_are_refused() {
    for (policy, name) in POLICIES {
        assert_eq!(PolicyName::named(name), Ok(policy));
        assert_eq!(policy.to_string(), name);
        assert_eq!(with(policy, 0).check(), Ok(()));
    }
    let unknown = PolicyName::named("best").expect_err("there is no such policy");
    let names = POLICIES.map(|(_, name)| name).join(", ");
    assert!(unknown.to_string().ends_with(&names), "{unknown}");
    for (options, expected) in [
        (
            with(PolicyName::QueueAware, 3200),
            "the dispatch policy queue-aware does not look at window: leave the option out, or \
             choose a policy that does",
        ),
        (
            PolicyOptions {
                utilization_threshold_milli: 1200,
                ..with(PolicyName::GoodCacheCompute, 0)
            },
            "the utilization threshold 1.2 is above 1: give the part of the executors that must \
             be busy, from 0 to 1",
        ),
        (
            PolicyOptions { replication_max: 2, ..with(PolicyName::MaxCacheHit, 0) },
            "the dispatch policy max-cache-hit does not look at replication_max: leave the \
             option out, or choose a policy that does",
        ),
    ] {
        let error = Waiting::new(&options).expect_err("the option is of no use");
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn a_popular_object_does_not_hide_the_tasks_it_completes() {
    let mut trial = Trial::new(0, with(PolicyName::QueueAware, 0), 2);
    for task in 0..3000 {
        let files = [0, if task == 2000 { 2 } else { 1 }];
        let objects = files.map(|file| trial.index.want(ObjectId(file), Some(1)));
        trial.waiting.push(&trial.index, task, &objects);
    }
    let mut taken = Vec::new();
    for file in [2, 0] {
        let place = trial.places[&0];
        let object = trial.index.add(place, ObjectId(file), Some(1)).expect("it is news");
        assert!(trial.waiting.holder_added(&trial.index, place, object));
        trial.waiting.select(&trial.index, place, 1, Load::default(), &mut taken);
        assert_eq!(taken.len(), usize::from(file == 0));
    }
    assert_eq!(taken[0].task, 2000);
}
