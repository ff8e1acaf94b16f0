//! Tasks whose inputs go through caches: where they come from, under every
//! dispatch policy, and whatever breaks.

use crate::{RESULTS_BYTES, machine, nodes, one_of, outcome, over_seeds, seconds};
use falkon_core::dispatch::diffusion::POLICIES;
use falkon_sim::{
    Arrivals, Choice, Disk, Durations, Eviction, Faults, Inputs, Memory, Nanos, NodeCache,
    NodeGroup, PolicyName, PolicyOptions, Scenario, ScenarioError, SimError, Store, TaskKind, run,
};

const OBJECT_BYTES: u64 = 10_000_000;

/// A policy with options that it looks at.
fn of(policy: PolicyName) -> PolicyOptions {
    let named = PolicyOptions { policy, ..PolicyOptions::default() };
    let windowed = PolicyOptions { window: 64, ..named };
    let busy = PolicyOptions { utilization_threshold_milli: 800, ..windowed };
    [busy, windowed].into_iter().find(|options| options.check().is_ok()).unwrap_or(named)
}

/// All policies with options that they look at.
fn policies() -> Vec<PolicyOptions> {
    let mut all = Vec::new();
    for options in POLICIES.map(|(policy, _)| of(policy)) {
        all.push(options);
        if options.policy == PolicyName::GoodCacheCompute {
            all.push(PolicyOptions { replication_max: 2, ..options });
        }
    }
    all
}

/// The MI workload (data-diffusion §5.2) and its machine, a two-hundredth
/// in objects and a sixteenth in nodes: each holds `held` of 50.
fn mi(policy: PolicyOptions, held: u64) -> Scenario {
    let eviction = match policy.policy {
        PolicyName::QueueAware => Eviction::QueueAware,
        _ => Eviction::Lru,
    };
    let cache = Some(NodeCache { bytes: held * OBJECT_BYTES, lend: 0, eviction });
    let mut scenario = Scenario { nodes: vec![nodes(4, 2, cache)], ..machine() };
    scenario.network.latency = seconds(2e-3);
    let bytes_per_s = 550e6 / 16.0;
    scenario.store = Store { bytes_per_s, operation: seconds(1e-3), operations_per_s: None };
    let workload = &mut scenario.workload;
    (workload.tasks, workload.kind) = (500, TaskKind::Compute);
    workload.run = Durations::Fixed(seconds(0.01));
    workload.arrivals =
        Arrivals::Ramp { first: 1.0, factor: 1.3, most: 60.0, interval: seconds(1.0) };
    workload.inputs = one_of(50, Choice::Uniform);
    workload.policy = policy;
    scenario
}

#[test]
fn hits_and_misses_are_all_that_is_read() {
    for policy in policies() {
        let scenario = mi(policy, 10);
        let figures = outcome(&scenario, 1);
        let name = policy.policy;
        assert_eq!((figures.done, figures.failed), (500, 0), "{name}");
        assert_eq!(figures.reads.objects, 500, "{name}");
        let found = figures.local.objects + figures.peer.objects + figures.store.objects;
        assert_eq!(found, 500, "{name}");
        for count in [figures.reads, figures.local, figures.peer, figures.store] {
            assert_eq!(count.bytes, count.objects * OBJECT_BYTES, "{name}");
        }
        // Each is brought from the store once at least.
        assert_eq!(figures.different_objects, 50, "{name}");
        assert!(figures.store.objects >= 50, "{name}");
        if name == PolicyName::FirstAvailable {
            assert_eq!(figures.peer.objects, 0, "it knows no places");
        }
        let last = figures.series.last().unwrap();
        assert_eq!(last.read_bytes, figures.reads.bytes);
        assert_eq!((last.store_bytes, last.peer_bytes), (figures.store.bytes, figures.peer.bytes));
    }
}

/// Several executors that are given tasks of an object that nobody has yet do
/// not all read it from the store.
#[test]
fn where_all_fits_the_store_is_read_once() {
    for policy in policies().into_iter().filter(|one| one.policy.knows_places()) {
        for arrivals in [mi(policy, 50).workload.arrivals, Arrivals::AtOnce] {
            let mut scenario = mi(policy, 50);
            scenario.nodes[0].count = 8;
            scenario.workload.arrivals = arrivals;
            // With equal run times nodes march in step, as no real ones do.
            scenario.workload.run = Durations::Uniform(Nanos(5_000_000), Nanos(15_000_000));
            let figures = outcome(&scenario, 1);
            let name = policy.policy;
            let read = figures.store.objects;
            assert!(read * 100 <= figures.different_objects * 105, "{name}: {read} reads");
        }
    }
}

/// All-Pairs (middleware §4.3.3): each of 40 objects with each of 40 others, on
/// four nodes that each hold `held` of them.
fn pairs(held: u64) -> Scenario {
    let policy = PolicyOptions { policy: PolicyName::QueueAware, ..PolicyOptions::default() };
    let mut scenario = mi(policy, held);
    scenario.workload.tasks = 1600;
    scenario.workload.run = Durations::Fixed(Nanos::from_seconds(0.4));
    scenario.workload.arrivals = Arrivals::AtOnce;
    scenario.workload.inputs = Some(Inputs {
        objects: 80,
        object_bytes: OBJECT_BYTES,
        per_task: 2,
        choice: Choice::TwoSets,
        unpack: None,
    });
    scenario
}

#[test]
fn pairs_come_together_and_each_object_is_read_from_the_store_once() {
    let figures = outcome(&pairs(80), 1);
    assert_eq!((figures.done, figures.reads.objects), (1600, 3200));
    assert_eq!((figures.store.objects, figures.different_objects), (80, 80));
    assert!(figures.efficiency > 0.9, "only {}", figures.efficiency);
    // Nobody needs all.
    assert!(figures.peer.objects <= 240, "{} between nodes", figures.peer.objects);
}

#[test]
fn pairs_come_together_in_small_caches_and_whatever_breaks() {
    for (seed, held) in [(1, 8), (2, 2)] {
        let mut scenario = pairs(held);
        scenario.workload.tasks = 100;
        assert_eq!(outcome(&scenario, seed).done, 100, "caches of {held}");
        scenario.workload.retries = 3;
        scenario.faults = Faults {
            node_crash: Some(Nanos::from_seconds(20.0)),
            node_down: Nanos::from_seconds(2.0),
            file_loss: Some(Nanos::from_seconds(2.0)),
            cut: Some(Nanos::from_seconds(10.0)),
            until: Some(Nanos::from_seconds(20.0)),
            ..Faults::default()
        };
        outcome(&scenario, seed);
    }
}

#[test]
fn pairs_that_fit_into_no_cache_fail() {
    let mut scenario = pairs(1);
    scenario.workload.tasks = 20;
    assert_eq!(outcome(&scenario, 1).failed, 20);
}

#[test]
fn the_same_seed_is_the_same_run() {
    for policy in policies() {
        let mut scenario = mi(policy, 10);
        scenario.workload.tasks = 100;
        let first = outcome(&scenario, 3);
        assert_eq!(first, outcome(&scenario, 3), "{}", policy.policy);
        assert_ne!(first.trace, outcome(&scenario, 4).trace);
    }
}

#[test]
fn what_fits_into_all_caches_is_read_from_the_store_little_more_than_once() {
    for policy in policies() {
        if matches!(policy.policy, PolicyName::FirstAvailable) {
            continue;
        }
        let figures = outcome(&mi(policy, 50), 1);
        let store = figures.store.objects;
        // Nodes may fetch the same before any of them has it.
        assert!(store <= 100, "{}: {store} of 50", policy.policy);
    }
}

#[test]
fn caches_are_worth_having_and_a_queue_that_is_looked_at_more() {
    let (good, aware) = (of(PolicyName::GoodCacheCompute), of(PolicyName::QueueAware));
    let mut none = mi(PolicyOptions::default(), 0);
    none.nodes[0].cache = None;
    let [none, good, aware] = [none, mi(good, 6), mi(aware, 6)].map(|one| outcome(&one, 1));
    assert_eq!(none.store.objects, 500);
    assert!(good.makespan < none.makespan, "{:?}, {:?}", good.makespan, none.makespan);
    assert!(aware.makespan < good.makespan, "{:?}, {:?}", aware.makespan, good.makespan);
}

#[test]
fn a_working_set_larger_than_the_cache_is_refused_and_the_rest_goes_on() {
    for policy in policies() {
        let mut scenario = mi(policy, 1);
        scenario.workload.tasks = 100;
        let inputs = scenario.workload.inputs.as_mut().unwrap();
        (inputs.per_task, inputs.objects, inputs.choice) = (2, 10, Choice::AllPairs);
        let figures = outcome(&scenario, 1);
        // Those that read one object twice fit.
        assert_eq!((figures.done, figures.failed), (10, 90), "{}", policy.policy);
    }
}

#[test]
fn pairs_meet() {
    for policy in policies() {
        let mut scenario = mi(policy, 20);
        scenario.check_all = true;
        scenario.workload.tasks = 256;
        scenario.workload.arrivals = Arrivals::AtOnce;
        let inputs = scenario.workload.inputs.as_mut().unwrap();
        (inputs.per_task, inputs.objects, inputs.choice) = (2, 16, Choice::AllPairs);
        let figures = outcome(&scenario, 1);
        assert_eq!(figures.done, 256, "{}", policy.policy);
        // Two each, but for those on the diagonal.
        assert_eq!(figures.reads.objects, 496, "{}", policy.policy);
        assert_eq!(figures.different_objects, 16);
    }
}

#[test]
fn what_is_read_in_a_row_is_fetched_once() {
    for times in [1u64, 3, 10] {
        let mut scenario = mi(of(PolicyName::GoodCacheCompute), 60);
        scenario.workload.tasks = 300;
        scenario.workload.arrivals = Arrivals::Rate(3.0);
        let inputs = scenario.workload.inputs.as_mut().unwrap();
        (inputs.objects, inputs.choice) = (300, Choice::Sequential(times));
        let figures = outcome(&scenario, 1);
        assert_eq!(figures.store.objects, 300 / times, "{times} times in a row");
    }
}

#[test]
fn what_is_on_its_way_ahead_of_tasks_is_not_fetched_by_others_too() {
    // The store is slow, so that the first tasks have run, and it is known how
    // long they take, while most objects are still coming.
    for choice in [Choice::Sequential(5), Choice::Uniform] {
        let mut scenario = mi(of(PolicyName::QueueAware), 40);
        scenario.workload.tasks = 300;
        scenario.workload.arrivals = Arrivals::AtOnce;
        scenario.workload.run = Durations::Fixed(Nanos::from_seconds(0.1));
        let inputs = scenario.workload.inputs.as_mut().unwrap();
        (inputs.objects, inputs.choice) = (60, choice);
        let figures = outcome(&scenario, 1);
        assert_eq!(figures.store.objects, figures.different_objects, "{choice:?}");
    }
}

#[test]
fn what_is_popular_is_read_more() {
    // Caches that hold everything would read each object once, however popular.
    let mut scenario = mi(of(PolicyName::GoodCacheCompute), 5);
    let uniform = outcome(&scenario, 1);
    scenario.workload.inputs.as_mut().unwrap().choice = Choice::Zipf(1.1);
    let zipf = outcome(&scenario, 1);
    assert!(zipf.store.objects < uniform.store.objects);
}

/// All that can break does, within the first minutes.
fn storm(policy: PolicyOptions, seed: u64) -> Scenario {
    let mut scenario = mi(policy, 5 + seed % 30);
    scenario.workload.tasks = 50;
    scenario.workload.retries = 3;
    scenario.workload.arrivals = Arrivals::Rate(10.0);
    scenario.workload.inputs.as_mut().unwrap().objects = 50;
    scenario.check_all = seed.is_multiple_of(6);
    let memory = Memory { bytes: seed % 4 * 20_000_000, bytes_per_s: 1e9 };
    let disk = Disk { read_bytes_per_s: 9e7, write_bytes_per_s: 6e7, memory: Some(memory) };
    scenario.nodes[0].disk = (!seed.is_multiple_of(2)).then_some(disk);
    scenario.results_bytes = (!seed.is_multiple_of(3)).then_some(RESULTS_BYTES);
    scenario.faults = Faults {
        node_crash: Some(Nanos::from_seconds(8.0)),
        node_down: Nanos::from_seconds(3.0),
        cut: Some(Nanos::from_seconds(2.0)),
        partition: Some(Nanos::from_seconds(15.0)),
        partition_length: Nanos::from_seconds(if seed.is_multiple_of(4) { 15.0 } else { 2.0 }),
        partition_share: 0.3,
        dispatcher_crash: Some(Nanos::from_seconds(12.0)),
        dispatcher_down: Nanos::from_seconds(1.0),
        relay_crash: None,
        relay_down: Nanos(0),
        file_loss: Some(Nanos::from_seconds(1.0)),
        slow_share: 0.2,
        slow_factor: 5.0,
        disk_hang: Some(Nanos::from_seconds(20.0)),
        disk_hang_length: Nanos::from_seconds(if seed.is_multiple_of(5) { 90.0 } else { 4.0 }),
        disk_full: Some(Nanos::from_seconds(20.0)),
        disk_full_length: Nanos::from_seconds(if seed.is_multiple_of(7) { 12.0 } else { 2.0 }),
        clock_step: Nanos::from_seconds(if seed.is_multiple_of(2) { 86_400.0 } else { 30.0 }),
        task_failure: 0.01,
        until: Some(Nanos::from_seconds(90.0)),
    };
    scenario
}

#[test]
fn nothing_is_lost_whatever_breaks() {
    let policies = policies();
    let (faults, seeds) = over_seeds(434, |seed| {
        // All policies in turn, and other storms for each.
        let policy = policies[seed as usize % policies.len()];
        let figures = outcome(&storm(policy, seed / policies.len() as u64), seed);
        assert!(figures.done > 30, "{}, seed {seed}: {}", policy.policy, figures.done);
        figures.faults
    });
    assert!(faults > seeds * 10, "only {faults} faults");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let refused = |scenario: Scenario| match run(&scenario, 1) {
        Err(SimError::Scenario(error)) => error,
        other => panic!("{other:?}"),
    };
    let aware = of(PolicyName::QueueAware);
    let mut scenario = mi(aware, 10);
    scenario.nodes[0].cache = None;
    let error = refused(scenario);
    assert_eq!(error, ScenarioError::PolicyWithoutData(PolicyName::QueueAware));
    let mut scenario = mi(aware, 10);
    scenario.nodes.push(NodeGroup { cache: None, ..scenario.nodes[0] });
    assert_eq!(refused(scenario), ScenarioError::SomeCaches);
    let odd = PolicyOptions { window: 10, ..aware };
    assert_eq!(refused(mi(odd, 10)), ScenarioError::Policy(odd));
    let mut scenario = mi(aware, 10);
    scenario.workload.inputs.as_mut().unwrap().choice = Choice::AllPairs;
    assert_eq!(refused(scenario), ScenarioError::Pairs(1));
}
