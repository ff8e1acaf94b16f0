//! The moves, from each state.

use super::*;
use crate::result::Outcome;
use crate::task::{TaskId, Time};
use std::panic::{AssertUnwindSafe, catch_unwind};

fn finished(first: u64, count: u64) -> Finished {
    Finished {
        first: TaskId(first),
        count,
        outcome: Outcome::Exit(1),
        executor: None,
        attempts: 1,
        queued: Time(0),
        dispatched: Time(0),
        started: Time(0),
        ended: Time(0),
        detail: None,
    }
}

/// Moves a run of tasks, or some task of it after the other where there are no
/// runs.
fn make(tasks: &mut Tasks, with: Move, first: u64, count: u64) {
    let each = first..first + count;
    match with {
        Move::Hold => each.for_each(|task| tasks.hold(task, 1, [], None)),
        Move::Release => each.for_each(|task| {
            assert!(tasks.release(task).is_some());
        }),
        Move::Queue => tasks.queue(first, count),
        Move::Take => tasks.take(first, count),
        Move::Assign => tasks.assign(first, count),
        Move::Return => tasks.give_back(first, count),
        Move::End if tasks.recomputing(first, count).count() as u64 == count => {
            tasks.end_recomputed(first, count);
        }
        Move::End => tasks.end(&finished(first, count)),
        Move::Retry => tasks.retry(first, count),
        Move::Recompute => each.for_each(|task| tasks.recompute(task)),
    }
}

/// Ten tasks in a state, between others that are ready.
fn tasks_in(state: State) -> Tasks {
    let mut tasks = Tasks::new(InstanceId(7));
    tasks.accept(0, 30);
    tasks.queue(0, 10);
    tasks.queue(20, 10);
    match state {
        State::Unplaced => {}
        State::Waiting => make(&mut tasks, Move::Hold, 10, 10),
        State::Ready => tasks.queue(10, 10),
        State::Assigned => tasks.assign(10, 10),
        State::Ended => tasks.end(&finished(10, 10)),
    }
    tasks
}

#[test]
fn a_move_finds_tasks_in_the_state_that_it_starts_from_or_panics() {
    // Each move begins or ends unplaced: the states that moves begin in are all.
    for (state, _) in Move::ALL.iter().map(|with| with.states()) {
        for with in Move::ALL.iter().copied() {
            let mut tasks = tasks_in(state);
            let moved = catch_unwind(AssertUnwindSafe(|| make(&mut tasks, with, 12, 3)));
            let (from, to) = with.states();
            assert_eq!(moved.is_ok(), from == state, "{with:?} of tasks that are {state:?}");
            if moved.is_ok() {
                assert_eq!(tasks.witness.first_other(to, 12, 15), None, "{with:?}");
                let others = [(10, 12), (15, 20)];
                let stay = |(first, end)| tasks.witness.first_other(state, first, end).is_none();
                assert!(others.into_iter().all(stay), "{with:?} moves others too");
            }
        }
    }
}

#[test]
fn a_run_of_which_one_task_is_elsewhere_does_not_move() {
    let mut tasks = tasks_in(State::Assigned);
    tasks.give_back(17, 1);
    assert!(catch_unwind(AssertUnwindSafe(|| tasks.give_back(10, 10))).is_err());
}

#[test]
fn a_billion_tasks_in_a_row_move_as_one() {
    let mut tasks = Tasks::new(InstanceId(0));
    let count = 1 << 30;
    tasks.accept(0, count);
    for with in [Move::Queue, Move::Take, Move::Assign, Move::Return, Move::End] {
        make(&mut tasks, with, 0, count);
    }
    assert!(tasks.have_all_ended());
    assert_eq!((tasks.witness.runs.len(), tasks.ended.run_count()), (1, 1));
    assert_eq!(tasks.check([].into_iter(), &RunSet::default()), Ok(()));
}

/// What waits is unplaced when the last of what it waits for is there, or the
/// first has failed.
#[test]
fn a_waiting_task_moves_with_the_last_step_or_with_a_failure() {
    let mut tasks = Tasks::new(InstanceId(0));
    tasks.accept(0, 4);
    let tried = Tries { failures: 2, losses: 1 };
    tasks.hold(3, 1, [0, 1], Some(tried));
    assert_eq!(tasks.upstreams(0, 4), [0, 1]);
    assert_eq!(tasks.take_dependents(0), [3]);
    assert_eq!((tasks.step(3, false), tasks.step(3, false)), (None, None));
    assert_eq!((tasks.step(3, false), tasks.step(3, false)), (Some(tried), None));
    tasks.hold(3, 2, [], None);
    assert_eq!(tasks.step(3, true), Some(Tries::default()));
}
