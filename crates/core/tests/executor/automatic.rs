//! Tasks whose CPUs an executor finds out.

use crate::shell::{key, order};
use falkon_core::execute::{Action, Event, Executor};
use falkon_core::limits::AUTO_CPUS_TASKS_MIN;
use falkon_core::result::{Detail, Outcome, ResourceUsage};
use falkon_core::task::{AUTO_CPUS, Kind, MILLI, Resources, TaskClass, Time};
use std::sync::Arc;

const SECOND: u64 = 1_000_000;

fn auto(kind: Kind) -> TaskClass {
    let resources = Resources { cpus_milli: AUTO_CPUS, ..Resources::default() };
    TaskClass { kind, resources, ..TaskClass::default() }
}

/// An executor that was sent `count` such tasks.
fn sent(cpus: u32, count: u64, kind: Kind) -> Executor {
    let mut executor = Executor::new(1, "node".to_owned(), Resources::cpus(cpus));
    executor.handle(Time(1), Event::Connected);
    executor.handle(Time(1), Event::Order(order(auto(kind), vec![(0, count)])));
    executor
}

/// What starts, with the CPUs that it is given, and the details of what is reported.
fn steps(executor: &mut Executor) -> (Vec<(u64, u32)>, Vec<Arc<Detail>>) {
    let (mut started, mut reported) = (Vec::new(), Vec::new());
    while let Some(action) = executor.poll_action() {
        executor.check().expect("the executor's books are in order");
        match action {
            Action::Start(start) => {
                assert_eq!(start.after, None, "nothing follows in room of another size");
                let milli = start.class.resources.cpus_milli;
                started.push((start.key.task.0, milli / MILLI));
            }
            Action::Update(update) => {
                reported.extend(update.reports.into_iter().filter_map(|report| report.detail));
            }
            _ => {}
        }
    }
    (started, reported)
}

/// A task has run for a second, and used so many CPUs of it.
fn end(executor: &mut Executor, now: &mut u64, task: u64, cpus: u64) {
    let started = Time(*now);
    *now += SECOND;
    let used = ResourceUsage { user_micros: cpus * SECOND, ..ResourceUsage::default() };
    let detail = Some(Arc::new(Detail { resources: Some(used), ..Detail::default() }));
    let (key, outcome, ended) = (key(task), Outcome::Exit(0), Time(*now));
    executor.handle(ended, Event::Ended { key, outcome, started, ended, detail });
}

#[test]
fn the_first_tasks_have_the_node_and_others_what_those_used() {
    // With 7 threads, 8 CPUs count as used.
    for threads in [1, 2, 3, 4, 5, 6, 8_u64] {
        let (mut executor, mut now) = (sent(8, 40, Kind::Process), 1);
        let (mut running, _) = steps(&mut executor);
        let mut given = Vec::new();
        while let Some((task, cpus)) = running.pop() {
            given.push((task, cpus));
            end(&mut executor, &mut now, task, threads.min(cpus.into()));
            let (started, reported) = steps(&mut executor);
            for detail in reported {
                let milli = detail.given_cpus_milli;
                assert!((1..=8).contains(&(milli / MILLI)), "{milli}");
                assert_eq!(detail.given_memory_bytes, 0);
            }
            running.extend(started);
            let taken: u32 = running.iter().map(|(_, cpus)| cpus).sum();
            assert!(taken <= 8, "{running:?}");
        }
        assert_eq!(given.len(), 40);
        given.sort_unstable();
        let (first, rest) = given.split_at(AUTO_CPUS_TASKS_MIN as usize);
        assert!(first.iter().all(|(_, cpus)| *cpus == 8), "{first:?}");
        let alike = rest.iter().filter(|(_, cpus)| u64::from(*cpus) == threads).count();
        assert!(alike >= rest.len() - 2, "{threads}: {rest:?}");
    }
}

/// Calls share workers, and what those use is nobody's.
#[test]
fn calls_hold_one_cpu_each() {
    let mut executor = sent(2, 2, Kind::Function);
    let (started, _) = steps(&mut executor);
    assert!(!started.is_empty() && started.iter().all(|(_, cpus)| *cpus == 1), "{started:?}");
    let mut executor = sent(2, 2, Kind::Sleep);
    let (started, _) = steps(&mut executor);
    assert_eq!(started, [(0, 1), (1, 1)]);
}
