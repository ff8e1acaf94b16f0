//! Run sets, packed columns and submissions against plain references.

use crate::faults::cases;
use falkon_core::dispatch::{Action, ConnectionId, Dispatcher, Event, InstanceOptions, Reply};
use falkon_core::runset::RunSet;
use falkon_core::task::{
    After, InstanceId, Kind, Packed, Range, Resources, Rows, Submission, TaskClass, TaskId, Time,
};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::Arc;

#[derive(Debug, Clone)]
enum Op {
    Insert(u64, u64),
    Remove(u64, u64),
    Ask(u64, u64),
}

fn op() -> impl Strategy<Value = Op> {
    let run = (0..120u64, 0..30u64);
    prop_oneof![
        3 => run.clone().prop_map(|(first, count)| Op::Insert(first, count)),
        2 => run.clone().prop_map(|(first, count)| Op::Remove(first, count)),
        1 => run.prop_map(|(first, count)| Op::Ask(first, count)),
    ]
}

fn expand(runs: impl IntoIterator<Item = (u64, u64)>) -> Vec<u64> {
    runs.into_iter().flat_map(|(first, count)| first..first + count).collect()
}

/// A number anywhere, often near a limit.
pub(crate) fn any_number() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0..40u64,
        1 => any::<u64>(),
        1 => (0..4u64).prop_map(|back| u64::MAX - back),
        1 => Just(1 << 62),
    ]
}

fn any_packed() -> impl Strategy<Value = Packed> {
    (vec(any::<u8>(), 0..20), vec(prop_oneof![0..24u32, any::<u32>()], 0..8))
        .prop_map(|(blob, ends)| Packed { blob: Arc::new(blob), ends: Arc::new(ends) })
}

fn sound_packed(count: usize) -> impl Strategy<Value = Packed> {
    vec(vec(any::<u8>(), 0..6), count).prop_map(|rows| {
        let mut packed = Packed::default();
        for row in rows {
            assert!(packed.push(&row));
        }
        packed
    })
}

fn any_class() -> impl Strategy<Value = TaskClass> {
    let custom = vec((prop_oneof![Just("a".to_owned()), Just("b".to_owned())], any_number()), 0..3);
    (
        prop_oneof![Just(Kind::Process), Just(Kind::Noop), Just(Kind::Sleep)],
        any::<u32>(),
        0..3u32,
        any_number(),
        custom,
        (any::<i32>(), any::<u32>(), any_number()),
    )
        .prop_map(|(kind, cpus_milli, gpus, memory_bytes, custom, rest)| TaskClass {
            kind,
            resources: Resources { cpus_milli, gpus, memory_bytes, custom },
            priority: rest.0,
            retries: rest.1,
            timeout_micros: rest.2,
            estimate_micros: rest.2,
            ..TaskClass::default()
        })
}

pub(crate) fn any_submission() -> impl Strategy<Value = Submission> {
    let rows = prop_oneof![
        any_packed().prop_map(Rows::Packed),
        sound_packed(5).prop_map(Rows::Packed),
        (vec((any::<i64>(), any::<i64>(), any_number()), 0..3), any_number()).prop_map(
            |(factors, offset)| Rows::Computed {
                factors: factors
                    .into_iter()
                    .map(|(start, step, count)| Range { start, step, count })
                    .collect(),
                offset,
            }
        ),
    ];
    let after = vec((any_number(), vec(any_number(), 0..4)), 0..3);
    (
        prop_oneof![3 => Just(5), 1 => any_number()],
        rows,
        vec(any_class(), 0..3),
        prop_oneof![Just(vec![(5, 0)]), vec((any_number(), 0..3u32), 0..3)],
        proptest::option::of(prop_oneof![any_packed(), sound_packed(5)]),
        prop_oneof![Just(Vec::new()), after],
    )
        .prop_map(|(count, rows, classes, class_runs, names, after)| Submission {
            data: None,
            count,
            template: Arc::default(),
            rows,
            classes,
            class_runs,
            names,
            everywhere: None,
            after: after
                .into_iter()
                .map(|(offset, tasks)| After {
                    offset,
                    tasks: tasks.into_iter().map(TaskId).collect(),
                    takes: offset % 3,
                })
                .collect(),
        })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases(256)) })]

    #[test]
    fn a_run_set_is_a_set(ops in vec(op(), 0..60)) {
        let mut set = RunSet::default();
        let mut model = BTreeSet::new();
        for op in ops {
            match op {
                Op::Insert(first, count) => {
                    let new = (first..first + count).filter(|id| model.insert(*id)).count();
                    prop_assert_eq!(set.insert(first, count), new as u64);
                }
                Op::Remove(first, count) => {
                    let gone = (first..first + count).filter(|id| model.remove(id)).count();
                    prop_assert_eq!(set.remove(first, count), gone as u64);
                }
                Op::Ask(first, count) => {
                    let within: Vec<u64> = model.range(first..first + count).copied().collect();
                    let gaps: Vec<u64> =
                        (first..first + count).filter(|id| !model.contains(id)).collect();
                    prop_assert_eq!(expand(set.within(first, count)), within);
                    prop_assert_eq!(expand(set.gaps(first, count)), gaps);
                    prop_assert_eq!(set.contains(first), model.contains(&first));
                }
            }
            prop_assert_eq!(set.len(), model.len() as u64);
            prop_assert_eq!(set.is_empty(), model.is_empty());
            prop_assert_eq!(expand(set.iter()), model.iter().copied().collect::<Vec<_>>());
            // Runs do not touch: there are as many as there must be.
            let starts = model.iter().filter(|id| **id == 0 || !model.contains(&(**id - 1)));
            prop_assert_eq!(set.run_count(), starts.count());
        }
    }

    #[test]
    fn a_run_set_takes_any_numbers(runs in vec((any_number(), any_number(), 0..3u8), 0..20)) {
        let mut set = RunSet::default();
        for (first, count, what) in runs {
            let covered = count.min(u64::MAX - first);
            match what {
                0 => {
                    let before = set.within(first, count);
                    let new = set.insert(first, count);
                    let held: u64 = before.iter().map(|(_, count)| count).sum();
                    prop_assert_eq!(new, covered - held);
                }
                1 => {
                    set.remove(first, count);
                    prop_assert!(set.within(first, count).is_empty());
                }
                _ => {
                    let held: u64 = set.within(first, count).iter().map(|(_, count)| count).sum();
                    let free: u64 = set.gaps(first, count).iter().map(|(_, count)| count).sum();
                    prop_assert_eq!(held + free, covered);
                }
            }
            prop_assert_eq!(set.len(), set.iter().map(|(_, count)| count).sum::<u64>());
        }
    }

    #[test]
    fn a_slice_of_rows_is_those_rows(packed in sound_packed(12), first in 0..15u64, count in 0..15u64, again in 0..12u64) {
        prop_assert!(packed.is_sound());
        let slice = packed.slice(first, count);
        prop_assert!(slice.is_sound());
        prop_assert_eq!(slice.len(), count.min(12u64.saturating_sub(first)));
        for index in 0..slice.len() {
            prop_assert_eq!(slice.at(index), packed.at(first + index));
        }
        prop_assert_eq!(slice.at(slice.len()), None);
        let twice = slice.slice(again, 3);
        for index in 0..twice.len() {
            prop_assert_eq!(twice.at(index), packed.at(first + again + index));
        }
    }

    #[test]
    fn slices_of_rows_concatenated_are_the_rows(packed in sound_packed(12), cuts in vec(0..=12u64, 0..4)) {
        let mut cuts = cuts;
        cuts.extend([0, 12]);
        cuts.sort_unstable();
        let slices: Vec<_> =
            cuts.windows(2).map(|pair| packed.slice(pair[0], pair[1] - pair[0])).collect();
        prop_assert_eq!(Packed::concatenated(slices.iter()), Some(packed));
    }

    #[test]
    fn computed_rows_count_like_nested_loops(
        factors in vec((-50..50i64, -9..9i64, 1..5u64), 1..4),
        offset in 0..10u64,
        first in 0..10u64,
    ) {
        let factors: Vec<Range> =
            factors.into_iter().map(|(start, step, count)| Range { start, step, count }).collect();
        let total: u64 = factors.iter().map(|factor| factor.count).product();
        let mut all: Vec<Vec<i64>> = vec![Vec::new()];
        for factor in &factors {
            all = all
                .into_iter()
                .flat_map(|row| {
                    (0..factor.count as i64).map(move |at| {
                        let mut row = row.clone();
                        row.push(factor.start + factor.step * at);
                        row
                    })
                })
                .collect();
        }
        let rows = Rows::Computed { factors, offset };
        prop_assert_eq!(rows.len(), total.checked_sub(offset));
        let slice = rows.slice(first, 1);
        for index in 0..total.saturating_sub(offset + first) {
            prop_assert_eq!(&slice.computed(index), &all[(offset + first + index) as usize]);
        }
    }

    #[test]
    fn a_malformed_submission_is_refused_not_believed(submissions in vec(any_submission(), 1..4)) {
        let connection = ConnectionId(1);
        let mut dispatcher = Dispatcher::new();
        dispatcher.handle(
            Time(0),
            Event::Create { connection, request: 0, options: InstanceOptions::default() },
        );
        let instance = InstanceId(0);
        let mut total = 0;
        for submission in submissions {
            let sound = submission.check().is_ok();
            let count = submission.count;
            dispatcher.handle(
                Time(0),
                Event::Submit { client: 1, connection, request: 1, instance, first: TaskId(total), submission },
            );
            let mut accepted = false;
            while let Some(action) = dispatcher.poll_action() {
                if let Action::Reply { reply: Reply::Accepted { .. }, .. } = action {
                    accepted = true;
                }
            }
            prop_assert!(sound || !accepted);
            total += if accepted { count } else { 0 };
            prop_assert!(dispatcher.check().is_ok(), "{:?}", dispatcher.check());
        }
        dispatcher.handle(Time(1), Event::Seal { connection, request: 2, instance });
        dispatcher.handle(Time(1), Event::Destroy { connection, request: 2, instance });
        while dispatcher.poll_action().is_some() {}
        prop_assert!(dispatcher.check().is_ok(), "{:?}", dispatcher.check());
    }
}
