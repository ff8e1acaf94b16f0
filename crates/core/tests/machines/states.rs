//! The states of tasks as people see them: after every step, in worlds with all
//! faults, no task has come to its state by a way that there is not, and status
//! counts what is listed. That every single move is legal is asserted where
//! tasks move (`dispatch/state.rs`), in all worlds.

use crate::faults::{ALL, REST_MICROS, faults, world};
use crate::world::{Faults, World};
use falkon_core::dispatch::Whereabouts;
use falkon_core::result::Outcome;
use falkon_core::task::{InstanceId, TaskId};
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    Waiting,
    Ready,
    Assigned,
    /// With its outcome, if its result is in memory.
    Ended(Option<Outcome>),
}

fn seen(place: &Whereabouts) -> Seen {
    match place {
        Whereabouts::Waiting => Seen::Waiting,
        Whereabouts::Ready => Seen::Ready,
        Whereabouts::Sent(_) | Whereabouts::Running(_) | Whereabouts::Staged(_) => Seen::Assigned,
        Whereabouts::Ended(finished) => Seen::Ended(Some(finished.outcome)),
        Whereabouts::Done | Whereabouts::NotDone => Seen::Ended(None),
    }
}

/// Whether a task may be seen so after it was seen so. Nothing is recomputed in
/// these worlds. A restart undoes what was not written yet, and values may have
/// to be read from disk after it.
fn may_follow(before: Seen, after: Seen, restarts: bool) -> bool {
    match (before, after) {
        _ if restarts => true,
        (Seen::Ended(Some(before)), Seen::Ended(Some(after))) => before == after,
        (Seen::Ended(_), after) => matches!(after, Seen::Ended(_)),
        (Seen::Ready | Seen::Assigned, Seen::Waiting) => false,
        _ => true,
    }
}

/// One of so many tasks is explained in each step: each explanation looks at all executors.
const EXPLAINED_STEP: usize = 41;

/// The states of all tasks, as last seen.
type States = BTreeMap<InstanceId, Vec<Seen>>;

fn look(world: &mut World) -> States {
    let counts: Vec<_> =
        world.dispatcher.instance_views().map(|view| (view.id(), view.counts())).collect();
    let mut states = States::new();
    for (id, counts) in counts {
        let places = world.dispatcher.whereabouts(id, TaskId(0), counts.total);
        let tasks: Vec<Seen> = places.iter().map(seen).collect();
        let count = |is: fn(&Seen) -> bool| tasks.iter().filter(|task| is(task)).count() as u64;
        assert_eq!(count(|task| *task == Seen::Waiting), counts.waiting, "{id}: waiting");
        assert_eq!(count(|task| *task == Seen::Ready), counts.ready, "{id}: ready");
        assert_eq!(count(|task| *task == Seen::Assigned), counts.dispatched, "{id}: dispatched");
        let ended = count(|task| matches!(task, Seen::Ended(_)));
        assert_eq!(ended, counts.ended(), "{id}: ended");
        assert_eq!(tasks.len() as u64, counts.total, "{id}: all");
        explain(world, id, &tasks);
        states.insert(id, tasks);
    }
    states
}

/// Those of an instance that are explained are as many as wait, and what has begun or ended
/// waits for nothing. A ready task may be about to be sent, for which it needs no reason.
fn explain(world: &mut World, id: InstanceId, tasks: &[Seen]) {
    let waits = |seen: &Seen| matches!(seen, Seen::Waiting | Seen::Ready);
    let waiting = tasks.iter().filter(|seen| waits(seen)).count() as u64;
    let explained = world.dispatcher.explain(id, None);
    assert_eq!(explained.iter().map(|one| one.count).sum::<u64>(), waiting, "{id}: {explained:?}");
    let some = (0..).map(TaskId).zip(tasks).step_by(EXPLAINED_STEP);
    for (task, seen) in some.filter(|(_, seen)| **seen != Seen::Ready) {
        let explained = world.dispatcher.explain(id, Some(task));
        let obstacles = &explained.first().expect("the task is there").obstacles;
        assert_eq!(!obstacles.is_empty(), waits(seen), "{id}/{task}, {seen:?}: {obstacles:?}");
    }
}

/// Plays a world, and looks at all tasks after each step.
fn watch(mut world: World, faults: Faults) {
    let until = faults.until.after(REST_MICROS);
    let mut before = States::new();
    while !world.is_done() && world.now <= until {
        assert!(world.step(), "nothing happens any more");
        let after = look(&mut world);
        for (id, tasks) in &after {
            let known = before.get(id).map_or(&[][..], |tasks| tasks);
            for (task, (was, is)) in known.iter().zip(tasks).enumerate() {
                let may = may_follow(*was, *is, faults.restarts);
                assert!(may, "task {task} of instance {id} was {was:?} and is {is:?}");
            }
        }
        before = after;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(12) })]

    #[test]
    fn tasks_are_seen_to_move_as_tasks_do(seed: u64) {
        let faults = faults(true, true, true, false);
        watch(world(seed, ALL, faults), faults);
    }

    #[test]
    fn status_counts_what_is_listed_across_restarts(seed: u64) {
        let faults = faults(true, true, true, true);
        watch(world(seed, ALL, faults), faults);
    }
}
