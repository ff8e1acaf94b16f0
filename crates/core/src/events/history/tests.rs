use super::*;
use crate::events::{Reserves, Run};
use crate::result::{Outcome, Status};
use crate::task::{ExecutorId, MILLI, Resources, TaskId};
use proptest::prelude::*;

/// Two tasks of two CPUs on an executor of eight: half of it has tasks, not a quarter.
#[test]
fn tasks_take_the_processors_that_they_reserve() {
    let run = Run { instance: InstanceId(0), first: TaskId(0), count: 2 };
    let executor = ExecutorId(1);
    let at = |seconds: u64| Time(1_000_000_000 + seconds * 1_000_000);
    let name: std::sync::Arc<str> = "node".into();
    let joined = What::ExecutorJoined {
        executor,
        name,
        capacity: Resources::cpus(8),
        cache_bytes: 0,
        allocation: None,
    };
    let command = "work".into();
    let submitted = What::Submitted { instance: run.instance, first: run.first, count: 2, command };
    let (resources, nodes) = (Resources::cpus(2), 1);
    let reserves = What::Reserves(Reserves { run, resources, nodes });
    let ended = Ended {
        run,
        outcome: Outcome::Exit(0),
        executor: Some(executor),
        attempts: 1,
        queued: at(0),
        dispatched: at(0),
        started: at(1),
        ended: at(3),
        staging_micros: 0,
        usage: Usage::default(),
        resources: None,
        error: None,
    };
    let mut history = History::default();
    for (seconds, what) in [
        (0, joined),
        (0, submitted),
        (0, reserves),
        (1, What::Assigned { run, executor, attempt: 1 }),
        (3, What::Ended(ended)),
    ] {
        history.add(&Event { at: at(seconds), what });
    }
    history.advance(at(4));
    let second = u128::from(MILLI) * 1_000_000;
    let found: Vec<Processors> =
        history.intervals(0).take(4).map(|(_, interval)| interval.processors).collect();
    let of = |taken, ran, idle_while_waiting| Processors {
        offered: 8 * second,
        taken: taken * second,
        idle_while_waiting: idle_while_waiting * second,
        ran: ran * second,
    };
    assert_eq!(found, [of(0, 0, 8), of(4, 4, 0), of(4, 4, 0), of(0, 0, 0)]);
}

/// A task that is submitted, assigned, started and ended at these times, in microseconds.
type Life = [u64; 4];

const CPUS: u32 = 3;
/// The executor joined then.
const JOINED: u64 = 7_400_000;

fn lives() -> impl Strategy<Value = Vec<Life>> {
    let wait = || prop_oneof![0..5u64, 0..300_000u64, 0..70_000_000u64];
    let one = (0..150_000_000u64, wait(), wait(), wait());
    prop::collection::vec(one, 1..40).prop_map(|all| {
        let life = |(at, assigned, started, ended)| {
            let assigned = JOINED + at + assigned;
            [JOINED + at, assigned, assigned + started, assigned + started + ended]
        };
        all.into_iter().map(life).collect()
    })
}

/// The events of these tasks, in order.
fn events(lives: &[Life]) -> Vec<Event> {
    let executor = ExecutorId(1);
    let joined = What::ExecutorJoined {
        executor,
        name: "node".into(),
        capacity: Resources::cpus(CPUS),
        cache_bytes: 0,
        allocation: None,
    };
    let mut all = vec![Event { at: Time(JOINED), what: joined }];
    for (number, life) in (0u64..).zip(lives) {
        let run = Run { instance: InstanceId(0), first: TaskId(number), count: 1 };
        let [queued, assigned, started, ended] = life.map(Time);
        let command = "work".into();
        let what = What::Submitted { instance: run.instance, first: run.first, count: 1, command };
        all.push(Event { at: queued, what });
        all.push(Event { at: assigned, what: What::Assigned { run, executor, attempt: 1 } });
        let what = What::Ended(Ended {
            run,
            outcome: Outcome::Exit(i32::from(number % 3 == 0)),
            executor: Some(executor),
            attempts: 1,
            queued,
            dispatched: assigned,
            started,
            ended,
            staging_micros: number,
            usage: Usage::default(),
            resources: None,
            error: None,
        });
        all.push(Event { at: ended, what });
    }
    all.sort_by_key(|event| event.at);
    all
}

/// What happened from one time to another, from all tasks. Levels are those at the end of it, or
/// after the last event.
fn reference(lives: &[Life], (from, until): (u64, u64), last: u64) -> Interval {
    let mut interval = Interval::default();
    let is_in = |at: u64| from <= at && at < until;
    // Levels change only at these times.
    let mut times: Vec<u64> =
        lives.iter().flatten().copied().chain([JOINED, from, until]).collect();
    times.retain(|at| (from..=until.min(last)).contains(at));
    times.push(until.min(last));
    times.sort_unstable();
    let levels_at = |at: u64| {
        let had = |step: usize| lives.iter().filter(|life| life[step] <= at).count() as u64;
        let assigned = had(1) - had(3);
        Levels {
            queued: had(0) - had(1),
            assigned,
            assigned_milli: u128::from(assigned) * u128::from(MILLI),
            executors: u64::from(at >= JOINED),
            cpus_milli: if at >= JOINED { u64::from(CPUS * MILLI) } else { 0 },
        }
    };
    for pair in times.windows(2) {
        let micros = u128::from(pair[1] - pair[0]);
        let levels = levels_at(pair[0]);
        let offered = u128::from(levels.cpus_milli);
        let taken = levels.assigned_milli.min(offered);
        interval.processors.offered += offered * micros;
        interval.processors.taken += taken * micros;
        if levels.queued > 0 {
            interval.processors.idle_while_waiting += (offered - taken) * micros;
        }
    }
    for (number, [queued, _, started, ended]) in (0u64..).zip(lives) {
        interval.submitted += u64::from(is_in(*queued));
        let ran = (*ended).min(until).saturating_sub((*started).max(from));
        interval.processors.ran += u128::from(ran) * u128::from(MILLI);
        if is_in(*ended) {
            let status = if number % 3 == 0 { Status::Failed } else { Status::Done };
            interval.ended.end(status, 1);
            interval.staging_micros += u128::from(number);
        }
    }
    interval.levels = levels_at((until - 1).min(last));
    interval
}

proptest! {
    /// Each interval of each scale has what all tasks add up to, whenever somebody looks.
    #[test]
    fn intervals_have_what_all_tasks_add_up_to(lives in lives(), seen in 0.0..1.0f64) {
        let all = events(&lives);
        let upto = (all.len() as f64 * seen) as usize;
        let mut history = History::default();
        for (number, event) in all.iter().enumerate() {
            if number == upto {
                let whole = history.intervals(3).map(|(_, one)| one.ended.ended()).sum::<u64>();
                let ended = |event: &&Event| matches!(event.what, What::Ended(_));
                prop_assert_eq!(whole, all[..upto].iter().filter(ended).count() as u64);
            }
            history.add(event);
        }
        let last = all.last().map_or(0, |event| event.at.0);
        for (scale, micros) in SCALES_MICROS.into_iter().enumerate() {
            let found: Vec<(Time, Interval)> = history.intervals(scale).collect();
            prop_assert_eq!(found[0].0.0, JOINED / micros * micros);
            prop_assert_eq!(found.last().map(|(at, _)| at.0), Some(last / micros * micros));
            for (at, interval) in found {
                let window = (at.0, at.0 + micros);
                prop_assert_eq!(interval, reference(&lives, window, last), "{:?}", window);
            }
        }
    }
}
