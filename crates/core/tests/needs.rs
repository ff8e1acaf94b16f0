//! Events of what tasks need say exactly that, in few events for tasks that are alike.

#![allow(clippy::unwrap_used, reason = "a test may fail at once")]

use falkon_core::data::declared::{Declared, Lists};
use falkon_core::data::object::{Object, ObjectId};
use falkon_core::events::{Reserves, Run, Uses, Waits, What};
use falkon_core::limits::EVENT_NEEDS_MAX;
use falkon_core::task::{After, InstanceId, Resources, TaskClass, TaskId};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

const FIRST: u64 = 100;

fn waits_of(after: &[After]) -> Vec<Waits> {
    let mut events = Vec::new();
    Waits::each(InstanceId(7), TaskId(FIRST), after, |what| match what {
        What::Waits(waits) => events.push(waits),
        other => panic!("{other:?}"),
    });
    assert!(events.iter().all(|waits| waits.before.len() <= EVENT_NEEDS_MAX));
    events
}

/// For each task, the tasks that it waits for, according to events.
fn expanded(events: &[Waits]) -> BTreeMap<u64, Vec<u64>> {
    let mut all: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for waits in events {
        for at in 0..waits.run.count {
            let found = all.entry(waits.run.first.0 + at).or_default();
            for (first, count) in waits.of(at) {
                found.extend(first.0..first.0 + count);
            }
        }
    }
    all
}

fn after(offset: u64, tasks: impl IntoIterator<Item = u64>) -> After {
    After { offset, tasks: tasks.into_iter().map(TaskId).collect(), takes: 0 }
}

/// Lists that often continue the one before: the same, or one task further.
fn lists() -> impl Strategy<Value = Vec<After>> {
    let step = (0..4u8, 0..3u64, prop::collection::vec(0..40u64, 0..5));
    prop::collection::vec(step, 0..40).prop_map(|steps| {
        let (mut offset, mut last, mut all) = (0, vec![3], Vec::new());
        for (kind, skip, other) in steps {
            match kind {
                0 => {}
                1 => last.iter_mut().for_each(|task| *task += 1),
                2 => last.iter_mut().take(1).for_each(|task| *task += 1),
                _ => last = other,
            }
            all.push(after(offset, last.clone()));
            offset += 1 + skip / 2;
        }
        all
    })
}

proptest! {
    #[test]
    fn events_have_the_dependencies_of_each_task(lists in lists()) {
        let expected: BTreeMap<u64, Vec<u64>> = lists
            .iter()
            .filter(|one| !one.tasks.is_empty())
            .map(|one| (FIRST + one.offset, one.tasks.iter().map(|task| task.0).collect()))
            .collect();
        let mut found = expanded(&waits_of(&lists));
        found.retain(|_, tasks| !tasks.is_empty());
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn events_have_the_objects_of_each_task(
        inputs in prop::collection::vec(prop::collection::vec(0..6u32, 0..3), 1..30),
        outputs in prop::collection::vec(0..6u32, 0..3),
        same in proptest::bool::ANY,
    ) {
        let count = inputs.len() as u64;
        let each = |lists: &[Vec<u32>]| {
            let (mut items, mut ends) = (Vec::new(), Vec::new());
            for list in lists {
                items.extend(list);
                ends.push(items.len() as u32);
            }
            Lists::Each { items: items.into(), ends: ends.into() }
        };
        let object = |id: u128| Object {
            id: ObjectId(id),
            url: format!("/{id}").into(),
            version: "1".into(),
            size: Some(id as u64),
        };
        let inputs = if same { vec![inputs[0].clone(); inputs.len()] } else { inputs };
        let declared = Declared {
            objects: Arc::new((0..6).map(object).collect()),
            inputs: if same { Lists::Same(inputs[0].clone()) } else { each(&inputs) },
            outputs: Lists::Same(outputs.clone()),
        };
        let run = Run { instance: InstanceId(7), first: TaskId(FIRST), count };
        let (mut found, mut events) = (BTreeMap::new(), 0);
        Uses::each(run, &declared, false, |what| {
            let What::Uses(uses) = what else { panic!("{what:?}") };
            events += 1;
            for task in uses.run.first.0..uses.run.first.0 + uses.run.count {
                let of: &mut (Vec<u128>, Vec<u128>) = found.entry(task).or_default();
                of.0.extend(uses.inputs.iter().map(|object| object.id.0));
                of.1.extend(uses.outputs.iter().map(|object| object.id.0));
            }
        });
        for (at, list) in inputs.iter().enumerate() {
            let expected = |list: &[u32]| list.iter().map(|item| u128::from(*item)).collect();
            let expected: (Vec<u128>, Vec<u128>) = (expected(list), expected(&outputs));
            let of = found.remove(&(FIRST + at as u64)).unwrap_or_default();
            prop_assert_eq!(of, expected);
        }
        prop_assert!(found.is_empty());
        let most = if same { 1 } else { count };
        prop_assert!(events <= most, "{} events", events);
    }
}

#[test]
fn tasks_that_wait_alike_are_one_event() {
    let count = 100_000;
    // A stage of a pipeline, each task after its own one of the stage before, and all
    // after task 0; a chain; a task after all of them.
    let pipeline: Vec<After> = (0..count).map(|at| after(at, [0, at + 2])).collect();
    let chain: Vec<After> = (0..count).map(|at| after(at, [FIRST + at - 1])).collect();
    for lists in [&pipeline, &chain] {
        let events = waits_of(lists);
        assert_eq!((events.len(), events[0].run.count), (1, count));
    }
    let events = waits_of(&[after(0, 0..count)]);
    assert_eq!((events.len(), events[0].before.len()), (1, 1));
    // Beyond what one event has, there are several.
    let scattered: Vec<u64> = (0..3 * EVENT_NEEDS_MAX as u64).map(|task| task * 2).collect();
    let events = waits_of(&[after(0, scattered.clone())]);
    assert_eq!(events.len(), 3);
    assert_eq!(expanded(&events), BTreeMap::from([(FIRST, scattered)]));
}

#[test]
fn a_task_with_many_objects_has_several_events() {
    let objects = 3 * EVENT_NEEDS_MAX as u32;
    let object = |id| Object {
        id: ObjectId(u128::from(id)),
        url: "/x".into(),
        version: "1".into(),
        size: None,
    };
    let all: Vec<u32> = (0..objects).collect();
    let declared = Declared {
        objects: Arc::new(all.iter().map(|id| object(*id)).collect()),
        inputs: Lists::Same(all.clone()),
        outputs: Lists::Same(vec![1]),
    };
    let run = Run { instance: InstanceId(7), first: TaskId(FIRST), count: 9 };
    let (mut inputs, mut outputs) = (Vec::new(), 0);
    // Tasks that run everywhere have one row together.
    Uses::each(run, &declared, true, |what| {
        let What::Uses(uses) = what else { panic!("{what:?}") };
        assert_eq!(uses.run, run);
        assert!(uses.inputs.len() + uses.outputs.len() <= EVENT_NEEDS_MAX);
        inputs.extend(uses.inputs.iter().map(|object| object.id.0 as u32));
        outputs += uses.outputs.len();
    });
    assert_eq!((inputs, outputs), (all, 1));
}

#[test]
fn tasks_reserve_what_their_classes_do_in_few_events() {
    let cpus = |cpus: u32, nodes| TaskClass {
        resources: Resources::cpus(cpus),
        nodes,
        ..TaskClass::default()
    };
    let other = TaskClass { retries: 3, ..cpus(4, 0) };
    let classes = [cpus(1, 0), cpus(4, 1), other, cpus(4, 8)];
    let runs = [(5, 0), (2, 1), (3, 2), (1, 0), (2, 3)];
    let mut found = Vec::new();
    Reserves::each(InstanceId(7), TaskId(FIRST), &runs, &classes, |what| {
        let What::Reserves(reserves) = what else { panic!("{what:?}") };
        found.push((reserves.run.first.0, reserves.run.count, reserves.cpus_milli()));
    });
    assert_eq!(found, [(FIRST + 5, 5, 4000), (FIRST + 11, 2, 32_000)]);
}
