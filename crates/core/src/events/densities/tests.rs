use super::*;
use crate::data::stage::Usage;
use crate::events::Run;
use crate::result::Outcome;
use crate::task::{InstanceId, Resources, TaskId};
use proptest::prelude::*;

fn joined(executor: ExecutorId) -> Event {
    let what = What::ExecutorJoined {
        executor,
        name: "node".into(),
        capacity: Resources::cpus(1),
        allocation: None,
        cache_bytes: 0,
    };
    Event { at: Time(0), what }
}

fn ended(executor: ExecutorId, started: u64, micros: u64, count: u64, status: i32) -> Ended {
    Ended {
        run: Run { instance: InstanceId(0), first: TaskId(0), count },
        outcome: Outcome::Exit(status),
        executor: Some(executor),
        attempts: 1,
        queued: Time(0),
        dispatched: Time(0),
        started: Time(started),
        ended: Time(started + micros),
        staging_micros: 0,
        usage: Usage::default(),
        resources: None,
        error: None,
    }
}

fn event(ended: &Ended) -> Event {
    Event { at: ended.ended, what: What::Ended(ended.clone()) }
}

/// What a view says of an executor, from all ends.
fn reference(all: &[Ended], executor: ExecutorId, view: &View) -> Row {
    let bins = (view.until.0 - view.from.0) / view.bin_micros;
    let mut row = Row { ran_micros: vec![0; bins as usize], ..Row::default() };
    for ended in all.iter().filter(|ended| ended.executor == Some(executor)) {
        if ended.ended < view.from || ended.started >= view.until {
            continue;
        }
        row.runs += 1;
        row.tasks += ended.run.count;
        row.failed += if ended.outcome == Outcome::Exit(0) { 0 } else { ended.run.count };
        for (bin, ran) in (0u64..).zip(&mut row.ran_micros) {
            let begins = view.from.0 + bin * view.bin_micros;
            let (from, until) =
                (ended.started.0.max(begins), ended.ended.0.min(begins + view.bin_micros));
            *ran += u128::from(until.saturating_sub(from)) * u128::from(ended.run.count);
        }
    }
    row
}

const EXECUTORS: u64 = 3;

/// Tasks that ended: where, when they started, for how long they ran, how many, and how.
fn ends() -> impl Strategy<Value = Vec<Ended>> {
    let micros = prop_oneof![0..1000u64, 0..200_000u64, Just(5_000_000)];
    let count = prop_oneof![Just(1u64), 1..1000u64, Just(1_000_000_000_000)];
    let one = (0..EXECUTORS, 0..3_000_000u64, micros, count, 0..3i32);
    prop::collection::vec(one, 0..300).prop_map(|all| {
        let of = |(id, started, micros, count, status)| {
            ended(ExecutorId(id), started, micros, count, if status == 2 { 1 } else { 0 })
        };
        all.into_iter().map(of).collect()
    })
}

proptest! {
    /// However coarse cells have become and whenever somebody looks, what is said of a window
    /// of cells is what all tasks add up to, and lanes keep to their bound.
    #[test]
    fn views_say_what_all_tasks_add_up_to(
        all in ends(),
        bytes_max in prop_oneof![Just(900usize), 1000..4000usize, Just(1 << 20)],
        windows in prop::collection::vec((0..4_000_000u64, 0..6_000_000u64, 1..400u64), 1..6),
    ) {
        let mut densities = Densities::bounded(bytes_max);
        let executors: Vec<ExecutorId> = (0..EXECUTORS).map(ExecutorId).collect();
        executors.iter().for_each(|id| densities.add(&joined(*id)));
        let part = all.len() / windows.len() + 1;
        let mut known = 0;
        for (place, (from, wide, bins_max)) in windows.into_iter().enumerate() {
            let upto = all.len().min((place + 1) * part);
            all[known..upto].iter().for_each(|ended| densities.add(&event(ended)));
            known = upto;
            let (from, until) = (Time(from), Time(from + wide));
            let view = densities.view(&executors, from, until, bins_max).unwrap();
            prop_assert!(view.from <= from && until < view.until);
            let bins = (view.until.0 - view.from.0) / view.bin_micros;
            prop_assert_eq!(view.from.0 + bins * view.bin_micros, view.until.0);
            prop_assert!(bins <= bins_max);
            // No more is in it than the window's own cells, and one bin.
            prop_assert!(from.0 - view.from.0 < view.bin_micros);
            prop_assert!(view.until.0 - until.0 <= view.bin_micros);
            for (id, row) in executors.iter().zip(&view.rows) {
                prop_assert_eq!(row, &reference(&all[..known], *id, &view));
            }
            prop_assert!(densities.bytes <= bytes_max);
            let bytes: usize = densities.lanes.values().map(Lane::bytes).sum();
            prop_assert_eq!(bytes, densities.bytes);
            prop_assert!(bytes_max < 1 << 20 || densities.shift == CELL_SHIFT_MIN);
        }
    }
}

/// Many tasks on many executors: lanes keep to the bound, their resolution is what the bound
/// allows, and nothing is lost.
#[test]
fn a_million_ends_fit_into_their_bound() {
    const BYTES_MAX: usize = 1 << 20;
    let mut densities = Densities::bounded(BYTES_MAX);
    let executors: Vec<ExecutorId> = (0..50).map(ExecutorId).collect();
    executors.iter().for_each(|id| densities.add(&joined(*id)));
    let (each, micros) = (20_000, 1500);
    for number in 0..each {
        for id in &executors {
            let started = number * 1000 + id.0 * 7;
            densities.add(&event(&ended(*id, started, micros, 1, 0)));
        }
    }
    let until = Time(each * 1000 + micros);
    let view = densities.view(&executors, Time(0), until, u64::MAX).unwrap();
    assert!(densities.bytes <= BYTES_MAX && densities.bytes > BYTES_MAX / 3, "{}", densities.bytes);
    assert!(view.rows.iter().all(|row| row.tasks == each && row.runs == each && row.failed == 0));
    let ran: u128 = view.rows.iter().flat_map(|row| &row.ran_micros).sum();
    assert_eq!(ran, u128::from(each * micros * 50));
    assert!(view.rows[0].ran_micros.len() > 500, "{}", view.rows[0].ran_micros.len());
}

#[test]
fn executors_without_a_lane_have_no_view() {
    let mut densities = Densities::default();
    let lanes = DENSITY_EXECUTORS_MAX as u64;
    let id = ExecutorId;
    densities.add(&event(&ended(id(7), 0, 1, 1, 0)));
    assert_eq!(densities.view(&[id(7)], Time(0), Time(1), 1), None);
    (0..=lanes).for_each(|number| densities.add(&joined(id(number))));
    let is_kept = |densities: &mut Densities, number| {
        densities.view(&[id(number)], Time(0), Time(1), 1).is_some()
    };
    // The last one found no room, until one has gone.
    assert!(is_kept(&mut densities, lanes - 1) && !is_kept(&mut densities, lanes));
    densities.add(&event(&ended(id(3), 0, 1, 1, 0)));
    let gone = What::ExecutorGone { executor: id(3), why: "it left".into() };
    densities.add(&Event { at: Time(2), what: gone });
    assert!(is_kept(&mut densities, 3));
    densities.add(&joined(id(lanes + 1)));
    assert!(is_kept(&mut densities, lanes + 1) && !is_kept(&mut densities, 3));
    assert_eq!(densities.lanes.len(), DENSITY_EXECUTORS_MAX);
    // What is known of an executor that had lost its lane would not be all.
    let started = What::DispatcherStarted { version: "2".into() };
    densities.add(&Event { at: Time(3), what: started });
    densities.add(&joined(id(3)));
    assert!(!is_kept(&mut densities, 3));
    densities.add(&joined(id(lanes + 2)));
    assert!(is_kept(&mut densities, lanes + 2) && !is_kept(&mut densities, 0));
}
