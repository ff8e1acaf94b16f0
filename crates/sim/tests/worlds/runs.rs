//! What runs measure, that a seed is a run, and that nothing is lost whatever
//! breaks.

use crate::{RESULTS_BYTES, machine, nodes, one_of, outcome, over_seeds, seconds};
use falkon_core::model;
use falkon_sim::{
    Arrivals, Choice, Count, Durations, Eviction, Faults, Figures, Nanos, NodeCache, NodeGroup,
    PolicyName, PolicyOptions, Scenario, SimError, TaskKind, run,
};

/// 400 sleeps of 1 s on 10 nodes of 4 slots: 10 s of work for each slot.
fn sleeps() -> Scenario {
    let mut scenario = Scenario { nodes: vec![nodes(10, 4, None)], check_all: true, ..machine() };
    scenario.workload.tasks = 400;
    scenario.workload.run = Durations::Fixed(seconds(1.0));
    scenario
}

#[test]
fn tasks_take_their_time_and_little_more() {
    let figures = outcome(&sleeps(), 1);
    assert_eq!(figures.done, 400);
    assert_eq!(figures.runs, 400);
    assert_eq!(figures.ideal, seconds(10.0));
    assert!(figures.efficiency > 0.99 && figures.efficiency <= 1.0, "{figures:?}");
    assert!(figures.utilization <= 1.0 && figures.utilization > 0.98);
    assert_eq!(figures.execute, seconds(1.0));
    let last = figures.series.last().unwrap();
    assert_eq!((last.delivered, last.queued, last.running), (400, 0, 0));
    assert_eq!(figures.queue_peak, 400);
}

#[test]
fn a_seed_is_a_run() {
    let mut scenario = sleeps();
    scenario.workload.run = Durations::Exponential(seconds(0.5));
    scenario.faults.node_crash = Some(seconds(2.0));
    scenario.faults.node_down = seconds(1.0);
    scenario.faults.cut = Some(seconds(0.5));
    let first = outcome(&scenario, 7);
    assert_eq!(first, outcome(&scenario, 7));
    assert_ne!(first.trace, outcome(&scenario, 8).trace);
}

#[test]
fn no_op_tasks_cost_messages_not_tasks() {
    let mut scenario = sleeps();
    scenario.workload.kind = TaskKind::Noop;
    scenario.workload.tasks = 100_000;
    scenario.workload.run = Durations::Fixed(Nanos(0));
    let figures = outcome(&scenario, 1);
    assert!(figures.messages < 1_000, "{} messages", figures.messages);
    assert!(figures.makespan < seconds(1.0));
}

#[test]
fn slow_nodes_get_fewer_tasks() {
    let mut scenario = sleeps();
    scenario.workload.kind = TaskKind::Compute;
    scenario.nodes = vec![NodeGroup { speed: 3.0, ..nodes(5, 4, None) }, nodes(5, 4, None)];
    let figures = outcome(&scenario, 1);
    // 400 tasks at 20 × 3 + 20 per second.
    assert_eq!(figures.ideal, seconds(5.0));
    assert!(figures.efficiency > 0.8, "{}", figures.efficiency);
}

#[test]
fn arrivals_set_the_pace() {
    let mut scenario = sleeps();
    scenario.workload.arrivals = Arrivals::Rate(20.0);
    let figures = outcome(&scenario, 1);
    // The last of 400 comes 19.95 s after the first, and runs for a second.
    assert_eq!(figures.ideal, seconds(20.95));
    assert!(figures.efficiency > 0.99, "{}", figures.efficiency);
    // 20 slots are free all the time: nobody waits for one.
    assert!(figures.response.longest < seconds(1.1), "{:?}", figures.response);
    assert!(figures.response.mean >= seconds(1.0));
}

#[test]
fn a_dispatcher_can_be_too_slow() {
    let mut scenario = sleeps();
    scenario.dispatcher.message = seconds(0.05);
    let figures = outcome(&scenario, 1);
    assert!(figures.efficiency < 0.7, "{}", figures.efficiency);
    assert!(figures.dispatcher_busy > 0.9, "{}", figures.dispatcher_busy);
    // Four of them are not.
    scenario.dispatchers = 4;
    let shared = outcome(&scenario, 1);
    assert!(shared.makespan < figures.makespan);
}

#[test]
fn nodes_that_come_late_are_used_when_they_are_there() {
    let mut scenario = sleeps();
    scenario.nodes = vec![nodes(5, 4, None), NodeGroup { from: seconds(5.0), ..nodes(5, 4, None) }];
    let figures = outcome(&scenario, 1);
    // 5 s × 20 slots, then 40: 300 are left for 7.5 s.
    let makespan = figures.makespan.seconds();
    assert!((12.5..14.5).contains(&makespan), "{makespan} s");
}

#[test]
fn a_run_that_cannot_end_says_how_far_it_came() {
    let mut scenario = sleeps();
    scenario.limit = seconds(5.0);
    let Err(SimError::Unfinished(how)) = run(&scenario, 1) else { panic!("it ended") };
    assert_eq!((how.tasks, how.submitted, how.nodes), (400, 400, 10));
    assert!(how.delivered >= 120 && how.delivered <= 200, "{how:?}");
}

#[test]
fn a_scenario_that_makes_no_sense_is_refused() {
    let mut scenario = sleeps();
    scenario.nodes.clear();
    assert!(matches!(run(&scenario, 1), Err(SimError::Scenario(_))));
    let mut scenario = sleeps();
    scenario.faults.cut = Some(Nanos(0));
    assert!(run(&scenario, 1).unwrap_err().to_string().contains("time between two faults"));
}

fn reads() -> Scenario {
    let mut scenario = sleeps();
    scenario.workload.kind = TaskKind::Compute;
    scenario.workload.run = Durations::Fixed(seconds(0.01));
    scenario.workload.inputs = one_of(100, Choice::Cyclic);
    scenario
}

#[test]
fn a_store_gives_what_it_has_and_no_more() {
    // 400 × 10 MB at 100 MB/s are 40 s; 40 slots compute meanwhile.
    let mut scenario = reads();
    scenario.store.bytes_per_s = 100e6;
    let figures = outcome(&scenario, 1);
    assert_eq!((figures.store.objects, figures.store.bytes), (400, 4_000_000_000));
    assert_eq!(figures.different_objects, 100);
    let makespan = figures.makespan.seconds();
    assert!((40.0..40.2).contains(&makespan), "{makespan} s");
}

#[test]
fn a_node_s_link_is_shared_by_its_slots() {
    // 10 nodes at 10 MB/s read 40 objects each: 40 s.
    let mut scenario = reads();
    scenario.store.bytes_per_s = 1e9;
    scenario.network.node_bytes_per_s = 10e6;
    let makespan = outcome(&scenario, 1).makespan.seconds();
    assert!((40.0..42.0).contains(&makespan), "{makespan} s");
}

#[test]
fn a_store_begins_only_so_many_operations() {
    let mut scenario = reads();
    scenario.store.bytes_per_s = 1e12;
    scenario.store.operations_per_s = Some(20.0);
    scenario.network.node_bytes_per_s = 1e12;
    let makespan = outcome(&scenario, 1).makespan.seconds();
    assert!((19.9..20.2).contains(&makespan), "{makespan} s");
}

/// What the abstract model says of a scenario, in seconds, with the hits that
/// were found.
fn modelled(scenario: &Scenario, figures: &Figures) -> f64 {
    let (workload, inputs) = (&scenario.workload, scenario.workload.inputs.unwrap());
    let Durations::Uniform(least, most) = workload.run else { panic!("another distribution") };
    let run_s = (least.seconds() + most.seconds()) / 2.0;
    // A task that travels alone waits for two messages and its start. Where
    // objects are fetched ahead, so are tasks sent.
    let messages = 2.0 * (scenario.network.latency.seconds() + scenario.executor.message.seconds());
    let cache = scenario.nodes[0].cache;
    let workload = model::Workload {
        tasks: workload.tasks,
        run_s,
        dispatch_s: scenario.executor.start.seconds() + cache.map_or(messages, |_| 0.0),
        arrivals_per_s: None,
        objects_per_task: f64::from(inputs.per_task),
        object_bytes: inputs.object_bytes as f64,
        objects: inputs.objects,
    };
    let machine = model::Machine {
        nodes: scenario.nodes_count(),
        slots_per_node: scenario.nodes[0].slots,
        cache_bytes: cache.map_or(0.0, |cache| cache.bytes as f64),
        node_bytes_per_s: scenario.network.node_bytes_per_s,
        store_bytes_per_s: scenario.store.bytes_per_s,
    };
    let share = |count: Count| count.objects as f64 / figures.reads.objects as f64;
    let (peer, store) = (share(figures.peer), share(figures.store));
    let hits = model::Hits { local: 1.0 - peer - store, peer, store };
    let farm = model::Farm::new(workload, machine, Some(hits)).unwrap();
    let farm = if cache.is_some() { farm.fetching_ahead() } else { farm };
    farm.execution_with_overhead_s()
}

/// How far the model is off, as a share of what was found.
fn model_error(scenario: &Scenario, figures: &Figures) -> f64 {
    modelled(scenario, figures) / figures.makespan.seconds() - 1.0
}

/// How far the model is from the simulation, the mean and the worst of 27
/// machines, for run times that differ from their mean by up to a share of it.
fn model_errors(spread: f64) -> (f64, f64) {
    let mut errors = Vec::new();
    for (nodes, slots) in [(1, 1), (4, 2), (16, 2)] {
        for run_s in [0.01, 0.1, 1.0] {
            for store in [50e6, 200e6, 1e9] {
                let mut scenario = reads();
                scenario.check_all = false;
                scenario.nodes[0].count = nodes;
                scenario.nodes[0].slots = slots;
                scenario.workload.tasks = nodes * u64::from(slots) * 40;
                let (least, most) = (run_s * (1.0 - spread), run_s * (1.0 + spread));
                scenario.workload.run = Durations::Uniform(seconds(least), seconds(most));
                scenario.store.bytes_per_s = store;
                let figures = outcome(&scenario, 1);
                errors.push(model_error(&scenario, &figures).abs());
            }
        }
    }
    let mean = errors.iter().sum::<f64>() / errors.len() as f64;
    (mean, errors.iter().copied().fold(0.0, f64::max))
}

#[test]
fn the_abstract_model_agrees_with_the_simulation() {
    let (mean, worst) = model_errors(0.5);
    assert!(mean <= 0.02 && worst <= 0.08, "mean {mean}, worst {worst}");
}

#[test]
fn the_abstract_model_knows_that_caches_are_empty_at_first() {
    let policy = PolicyOptions { policy: PolicyName::QueueAware, ..PolicyOptions::default() };
    let cache = Some(NodeCache { bytes: 50_000_000_000, lend: 0, eviction: Eviction::QueueAware });
    // Runs of a few seconds, of which the first copies take up to one, and whose
    // last tasks begin when the last copies have come.
    for (count, store) in [(4, 30e6), (16, 140e6)] {
        for run_s in [0.1, 0.5] {
            for (tasks, objects) in [(300, 300), (600, 150), (2500, 100)] {
                let mut scenario = Scenario { nodes: vec![nodes(count, 2, cache)], ..machine() };
                scenario.store.bytes_per_s = store;
                let workload = &mut scenario.workload;
                (workload.tasks, workload.kind) = (tasks, TaskKind::Compute);
                workload.run = Durations::Uniform(seconds(run_s * 0.5), seconds(run_s * 1.5));
                workload.inputs = one_of(objects, Choice::Cyclic);
                workload.policy = policy;
                let figures = outcome(&scenario, 1);
                let error = model_error(&scenario, &figures);
                let what = format!("{count} nodes, {run_s} s, {tasks} tasks, {objects} objects");
                assert!(error.abs() <= 0.08, "{what}: {error}");
            }
        }
    }
}

#[test]
fn the_abstract_model_does_not_know_of_tasks_in_step() {
    // Tasks that are all alike go on reading all at once and computing all at
    // once: the model, which knows averages alone, is too fast for them.
    let (mean, worst) = model_errors(0.0);
    assert!(mean <= 0.08 && worst <= 0.32, "mean {mean}, worst {worst}");
    assert!(worst > 0.2, "the document says that they march in step: {worst}");
}

#[test]
fn reading_breaks_with_the_rest() {
    for seed in 0..10 {
        let mut scenario = storm(seed * 2);
        scenario.workload.inputs = reads().workload.inputs;
        scenario.store.bytes_per_s = 100e6;
        let figures = outcome(&scenario, seed);
        assert!(figures.store.objects > 0);
        assert_eq!(figures, outcome(&scenario, seed), "seed {seed}");
    }
}

/// Everything that can break does, within the first minute.
pub(crate) fn storm(seed: u64) -> Scenario {
    let mut scenario = sleeps();
    scenario.check_all = seed.is_multiple_of(3);
    scenario.workload.tasks = 60;
    scenario.workload.retries = 1;
    scenario.workload.kind =
        if seed.is_multiple_of(2) { TaskKind::Compute } else { TaskKind::Sleep };
    scenario.workload.run = Durations::Uniform(seconds(0.01), seconds(4.0));
    scenario.dispatchers = 1 + (seed % 2) as u32;
    scenario.results_bytes = (!seed.is_multiple_of(3)).then_some(RESULTS_BYTES);
    scenario.nodes[0].count = 6;
    scenario.nodes[0].slots = 1 + (seed % 3) as u32;
    scenario.faults = Faults {
        node_crash: Some(seconds(8.0)),
        node_down: seconds(4.0),
        cut: Some(seconds(1.0)),
        partition: Some(seconds(20.0)),
        partition_length: seconds(if seed.is_multiple_of(3) { 15.0 } else { 2.0 }),
        partition_share: 0.3,
        dispatcher_crash: Some(seconds(15.0)),
        dispatcher_down: seconds(1.0),
        relay_crash: None,
        relay_down: Nanos(0),
        slow_share: 0.2,
        slow_factor: 5.0,
        file_loss: None,
        disk_hang: Some(seconds(8.0)),
        disk_hang_length: seconds(if seed.is_multiple_of(5) { 90.0 } else { 4.0 }),
        disk_full: Some(seconds(10.0)),
        disk_full_length: seconds(if seed.is_multiple_of(7) { 12.0 } else { 2.0 }),
        clock_step: seconds(if seed.is_multiple_of(2) { 86_400.0 } else { 30.0 }),
        task_failure: 0.02,
        until: Some(seconds(60.0)),
    };
    scenario
}

#[test]
fn short_tasks_stand_in_line() {
    let mut scenario = sleeps();
    scenario.workload.kind = TaskKind::Compute;
    scenario.workload.tasks = 2_000;
    scenario.workload.run = Durations::Fixed(seconds(0.001));
    let figures = outcome(&scenario, 1);
    // 40 slots take 1.6 ms for each, and 80 ms for all.
    assert!(figures.makespan < seconds(0.2), "{:?}", figures.makespan);
    for seed in 0..5 {
        let mut scenario = storm(seed * 2);
        scenario.workload.tasks = 500;
        scenario.workload.run = Durations::Uniform(seconds(0.0), seconds(0.01));
        scenario.faults.cut = Some(seconds(0.02));
        scenario.faults.node_crash = Some(seconds(0.05));
        scenario.faults.dispatcher_crash = Some(seconds(0.5));
        scenario.faults.until = Some(seconds(20.0));
        outcome(&scenario, seed);
    }
}

#[test]
fn nothing_is_lost_whatever_breaks() {
    let (faults, seeds) = over_seeds(600, |seed| outcome(&storm(seed), seed).faults);
    assert!(faults > seeds * 5, "only {faults} faults");
}
