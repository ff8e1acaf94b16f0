//! Whole runs: what they measure, that a seed is a run, and that nothing is
//! lost whatever breaks. `FALKON_SEEDS` sets how many storms there are.

#![allow(clippy::unwrap_used, reason = "a test may fail at once")]

use falkon_sim::{
    Arrivals, Choice, ClientCosts, DispatcherCosts, Durations, ExecutorCosts, Faults, Figures,
    Inputs, Nanos, Network, NodeGroup, PolicyOptions, Scenario, SimError, Store, TaskKind,
    Workload, run,
};

fn seconds(seconds: f64) -> Nanos {
    Nanos::from_seconds(seconds)
}

/// 400 sleeps of 1 s on 10 nodes of 4 slots: 10 s of work for each slot.
fn sleeps() -> Scenario {
    Scenario {
        name: "sleeps".to_owned(),
        dispatchers: 1,
        dispatcher: DispatcherCosts { message: Nanos(7_000), entry: Nanos(1_000) },
        executor: ExecutorCosts { message: Nanos(10_000), start: Nanos(600_000) },
        client: ClientCosts { message: Nanos(5_000), entry: Nanos(500), bundle: Nanos(50_000_000) },
        network: Network { latency: Nanos(100_000), node_bytes_per_s: 125e6 },
        nodes: vec![NodeGroup { count: 10, slots: 4, speed: 1.0, from: Nanos(0), cache: None }],
        store: Store { bytes_per_s: 550e6, operation: Nanos(0), operations_per_s: None },
        provision: None,
        workload: Workload {
            stages: Vec::new(),
            tasks: 400,
            kind: TaskKind::Sleep,
            run: Durations::Fixed(seconds(1.0)),
            from: Nanos(0),
            arrivals: Arrivals::AtOnce,
            inputs: None,
            policy: PolicyOptions::default(),
            retries: 0,
            estimates: false,
        },
        faults: Faults::default(),
        check_all: true,
        limit: seconds(1e5),
    }
}

#[track_caller]
fn outcome(scenario: &Scenario, seed: u64) -> Figures {
    let figures = run(scenario, seed).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    assert_eq!(figures.done + figures.failed, scenario.workload.tasks, "seed {seed}");
    figures
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
    scenario.nodes = vec![
        NodeGroup { count: 5, slots: 4, speed: 3.0, from: Nanos(0), cache: None },
        NodeGroup { count: 5, slots: 4, speed: 1.0, from: Nanos(0), cache: None },
    ];
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
    scenario.nodes = vec![
        NodeGroup { count: 5, slots: 4, speed: 1.0, from: Nanos(0), cache: None },
        NodeGroup { count: 5, slots: 4, speed: 1.0, from: seconds(5.0), cache: None },
    ];
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
    let inputs =
        Inputs { objects: 100, object_bytes: 10_000_000, per_task: 1, choice: Choice::Cyclic };
    scenario.workload.inputs = Some(inputs);
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

/// What the abstract model says of a scenario without caches, in seconds.
fn modelled(scenario: &Scenario) -> f64 {
    let (workload, inputs) = (&scenario.workload, scenario.workload.inputs.unwrap());
    let Durations::Uniform(least, most) = workload.run else { panic!("another distribution") };
    let run_s = (least.seconds() + most.seconds()) / 2.0;
    // A task that travels alone waits for two messages and its start.
    let messages = 2.0 * (scenario.network.latency.seconds() + scenario.executor.message.seconds());
    let workload = falkon_core::model::Workload {
        tasks: workload.tasks,
        run_s,
        dispatch_s: scenario.executor.start.seconds() + messages,
        arrivals_per_s: None,
        objects_per_task: f64::from(inputs.per_task),
        object_bytes: inputs.object_bytes as f64,
        objects: inputs.objects,
    };
    let machine = falkon_core::model::Machine {
        nodes: scenario.nodes_count(),
        slots_per_node: scenario.nodes[0].slots,
        cache_bytes: 0.0,
        node_bytes_per_s: scenario.network.node_bytes_per_s,
        store_bytes_per_s: scenario.store.bytes_per_s,
    };
    let farm = falkon_core::model::Farm::new(workload, machine, None).unwrap();
    farm.execution_with_overhead_s()
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
                let found = outcome(&scenario, 1).makespan.seconds();
                errors.push((modelled(&scenario) / found - 1.0).abs());
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
fn storm(seed: u64) -> Scenario {
    let mut scenario = sleeps();
    scenario.workload.tasks = 60;
    scenario.workload.retries = 1;
    scenario.workload.kind =
        if seed.is_multiple_of(2) { TaskKind::Compute } else { TaskKind::Sleep };
    scenario.workload.run = Durations::Uniform(seconds(0.01), seconds(4.0));
    scenario.dispatchers = 1 + (seed % 2) as u32;
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
        slow_share: 0.2,
        slow_factor: 5.0,
        file_loss: None,
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
    let seeds = std::env::var("FALKON_SEEDS").map_or(60, |text| text.parse().unwrap());
    let mut faults = 0;
    for seed in 0..seeds {
        faults += outcome(&storm(seed), seed).faults;
    }
    assert!(faults > seeds * 5, "only {faults} faults");
}
