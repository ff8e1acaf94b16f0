//! Disks of nodes and the memory in front of them: nothing is read or written
//! faster than they allow, and all who use one share it.

use crate::{machine, nodes, one_of, outcome, over_seeds, seconds};
use falkon_sim::{
    Arrivals, Choice, Disk, Durations, Eviction, Figures, Inputs, Memory, NodeCache, PolicyName,
    PolicyOptions, Scenario, ScenarioError, SimError, TaskKind, run,
};

const OBJECT_BYTES: f64 = 1e7;

/// Tasks that compute for no time and read one object each of `objects`, on
/// nodes that hold them all.
fn readers(tasks: u64, objects: u64, disk: Disk) -> Scenario {
    let cache = Some(NodeCache { bytes: 1 << 40, lend: 0, eviction: Eviction::Lru });
    let mut scenario = Scenario { nodes: vec![nodes(1, 2, cache)], ..machine() };
    scenario.nodes[0].disk = Some(disk);
    scenario.executor.start = seconds(0.0);
    // Neither the store nor the link takes time.
    scenario.store.bytes_per_s = 1e15;
    scenario.network.node_bytes_per_s = 1e15;
    let workload = &mut scenario.workload;
    (workload.tasks, workload.kind) = (tasks, TaskKind::Compute);
    workload.inputs = one_of(objects, Choice::Cyclic);
    scenario
}

fn disk(read_bytes_per_s: f64, write_bytes_per_s: f64) -> Disk {
    Disk { read_bytes_per_s, write_bytes_per_s, memory: None }
}

/// The time that all disks together need for what they did.
fn disk_s(figures: &Figures, disk: &Disk) -> f64 {
    figures.disks.read as f64 / disk.read_bytes_per_s
        + figures.disks.written as f64 / disk.write_bytes_per_s
}

/// One disk works without a pause, and no faster than it can.
#[track_caller]
fn keeps_busy(scenario: &Scenario) {
    let (figures, disk) = (outcome(scenario, 1), scenario.nodes[0].disk.unwrap());
    let (took, needs) = (figures.makespan.seconds(), disk_s(&figures, &disk));
    assert!(took >= needs * (1.0 - 1e-6) && took < needs + 0.1, "{took} s for {needs} s");
}

#[test]
fn tasks_share_the_disk_that_they_read() {
    // One object comes once and is read 40 times, by as many slots as there are.
    for slots in [1, 2, 8] {
        let mut scenario = readers(40, 1, disk(1e8, 1e9));
        scenario.nodes[0].slots = slots;
        let figures = outcome(&scenario, 1);
        assert_eq!(figures.disks.read as f64, 40.0 * OBJECT_BYTES, "{slots} slots");
        assert_eq!(figures.disks.written as f64, OBJECT_BYTES, "{slots} slots");
        // Each of those that read together gets its part.
        let alone = OBJECT_BYTES / 1e8;
        let each = figures.execute.seconds() / (alone * f64::from(slots));
        assert!((0.8..1.01).contains(&each), "{slots} slots: {each} of its part");
        keeps_busy(&scenario);
    }
}

#[test]
fn what_is_staged_is_written_to_the_disk_that_others_read() {
    let scenario = readers(40, 40, disk(1e8, 5e7));
    let figures = outcome(&scenario, 1);
    assert_eq!(figures.disks.read as f64, 40.0 * OBJECT_BYTES);
    assert_eq!(figures.disks.written as f64, 40.0 * OBJECT_BYTES);
    keeps_busy(&scenario);
}

#[test]
fn what_other_nodes_are_sent_is_read_from_the_senders_disk() {
    // Tasks are few and long, so that both nodes get some of each object.
    let mut scenario = readers(8, 1, disk(1e7, 1e9));
    (scenario.nodes[0].count, scenario.nodes[0].slots) = (4, 1);
    scenario.workload.run = Durations::Fixed(seconds(30.0));
    let policy = PolicyName::MaxComputeUtil;
    scenario.workload.policy = PolicyOptions { policy, ..PolicyOptions::default() };
    let figures = outcome(&scenario, 1);
    assert_eq!((figures.store.objects, figures.peer.objects), (1, 3));
    // Every task reads it once, and three nodes have been sent it.
    assert_eq!(figures.disks.read as f64, 11.0 * OBJECT_BYTES);
    assert_eq!(figures.disks.written as f64, 4.0 * OBJECT_BYTES);
    let without = Scenario { nodes: vec![nodes(4, 1, scenario.nodes[0].cache)], ..scenario };
    let difference = figures.makespan.since(outcome(&without, 1).makespan).seconds();
    // The first that is sent it waits a second for the sender's disk, at least,
    // and three that share it three; each node's two tasks a second each for
    // their own, and the sender's may share that with those three.
    assert!((3.0 - 1e-3..8.0).contains(&difference), "{difference} s");
}

/// One thread serves, so that its reads take turns with a task's as if they were one.
#[test]
fn a_task_shares_its_nodes_disk_with_all_that_is_served_as_with_one() {
    let mut scenario = readers(4, 1, disk(1e7, 1e9));
    (scenario.nodes[0].count, scenario.nodes[0].slots) = (4, 1);
    scenario.workload.run = Durations::Fixed(seconds(30.0));
    let policy = PolicyName::MaxComputeUtil;
    scenario.workload.policy = PolicyOptions { policy, ..PolicyOptions::default() };
    let figures = outcome(&scenario, 1);
    assert_eq!((figures.store.objects, figures.peer.objects), (1, 3));
    // The one that has it first reads it in two seconds beside three that are sent it,
    // each of these in one.
    let reads = figures.execute.seconds() - 30.0;
    assert!((reads - 5.0 / 4.0).abs() < 0.03, "{reads} s");
}

#[test]
fn what_comes_from_the_store_is_written_piece_by_piece_and_the_last_once_all_is_there() {
    for (bytes, pieces) in [(1 << 19, 0.5), (1 << 20, 1.0), (3 << 19, 0.5), (3 << 20, 1.0)] {
        let piece = f64::from(1 << 20);
        let mut scenario = readers(1, 1, disk(1e15, 10.0 * piece));
        scenario.store.bytes_per_s = piece;
        let inputs = Inputs {
            objects: 1,
            object_bytes: bytes,
            per_task: 1,
            choice: Choice::Cyclic,
            unpack: None,
        };
        scenario.workload.inputs = Some(inputs);
        let expected = bytes as f64 / piece + pieces / 10.0;
        let took = outcome(&scenario, 1).makespan.seconds();
        assert!((took - expected).abs() < 0.01, "{bytes} bytes: {took} s for {expected} s");
    }
}

#[test]
fn what_memory_holds_is_read_at_its_pace() {
    let held = |bytes: f64| {
        let memory = Some(Memory { bytes: bytes as u64, bytes_per_s: 1e9 });
        let mut scenario = readers(400, 10, Disk { memory, ..disk(1e8, 1e8) });
        scenario.nodes[0].slots = 1;
        outcome(&scenario, 1)
    };
    let (none, some, all) = (held(1e6), held(5e7), held(2e8));
    // Cyclic reads of more than memory holds find nothing in it.
    assert_eq!(none.disks.from_memory, 0);
    let written = 0.0..=10.0 * OBJECT_BYTES;
    assert!(written.contains(&(some.disks.from_memory as f64)), "more than what was just written");
    assert_eq!(all.disks.from_memory as f64, 400.0 * OBJECT_BYTES);
    assert_eq!((all.disks.read, all.disks.written as f64), (0, 10.0 * OBJECT_BYTES));
    assert!(all.makespan.seconds() > 4.0 && all.makespan.seconds() < 5.0, "{:?}", all.makespan);
    assert!(none.makespan.seconds() > 40.0 && none.makespan > some.makespan);
}

#[test]
fn whoever_writes_more_than_memory_takes_goes_at_the_disks_pace() {
    // A fifth of memory may wait to be written: 20 of 200 objects.
    let memory = Some(Memory { bytes: 1_000_000_000, bytes_per_s: 1e12 });
    let scenario = readers(200, 200, Disk { memory, ..disk(1e9, 1e8) });
    let figures = outcome(&scenario, 1);
    let (took, written) = (figures.makespan.seconds(), figures.disks.written as f64 / 1e8);
    assert!(took >= written - 0.01 && took <= 200.0 * OBJECT_BYTES / 1e8, "{took}, {written}");
    assert!(took > 17.5, "{took}");
}

/// Machines and workloads of every kind: disks do no more than they can, and
/// nothing is lost.
#[test]
fn no_disk_gives_or_takes_more_than_it_can() {
    over_seeds(60, |seed| {
        let of = |what: u64, count: u64| (seed.wrapping_mul(0x9e37_79b9) >> (5 * what)) % count;
        let read = 1e7 * (1 + of(0, 20)) as f64;
        let rates = disk(read, read / (1 + of(1, 4)) as f64);
        let memory = Memory { bytes: of(2, 30) * 10_000_000, bytes_per_s: 1e9 };
        let memory = (!seed.is_multiple_of(3)).then_some(memory);
        let mut scenario = readers(100, 1 + of(3, 60), Disk { memory, ..rates });
        scenario.network.node_bytes_per_s = 125e6;
        scenario.store.bytes_per_s = 550e6;
        scenario.check_all = seed.is_multiple_of(10);
        let group = &mut scenario.nodes[0];
        (group.count, group.slots) = (1 + of(4, 5), 1 + of(1, 3) as u32);
        let eviction = if seed.is_multiple_of(2) { Eviction::Lru } else { Eviction::QueueAware };
        group.cache = Some(NodeCache { bytes: (3 + of(2, 20)) * 10_000_000, lend: 0, eviction });
        let policies =
            [PolicyName::QueueAware, PolicyName::FirstAvailable, PolicyName::MaxComputeUtil];
        let policy = policies[seed as usize % 3];
        scenario.workload.policy = PolicyOptions { policy, ..PolicyOptions::default() };
        scenario.workload.run = Durations::Uniform(seconds(0.0), seconds(0.2));
        if seed.is_multiple_of(5) {
            scenario.workload.arrivals = Arrivals::Rate(20.0);
        }
        if seed.is_multiple_of(4) {
            scenario.workload.inputs = Some(Inputs {
                objects: 2 + of(3, 20),
                object_bytes: 5_000_000,
                per_task: 2,
                choice: Choice::Uniform,
                unpack: None,
            });
        }
        let (nodes, slots) = (scenario.nodes[0].count as f64, scenario.slots() as f64);
        let figures = outcome(&scenario, seed);
        assert_eq!((figures.done, figures.runs), (100, 100), "seed {seed}");
        let (took, needs) = (figures.makespan.seconds(), disk_s(&figures, &rates));
        assert!(took * nodes >= needs * (1.0 - 1e-6), "seed {seed}: {needs} s in {took} s");
        // Bytes that tasks read came from a disk or from memory, besides what was sent.
        let read = figures.disks.read + figures.disks.from_memory;
        assert_eq!(read, figures.reads.bytes + figures.peer.bytes, "seed {seed}");
        // Nobody reads without time.
        let reads_s = figures.reads.bytes as f64 / 1e9f64.max(rates.read_bytes_per_s);
        assert!(took * slots >= reads_s, "seed {seed}");
        assert_eq!(figures, outcome(&scenario, seed), "seed {seed} is not one run");
        1
    });
}

#[test]
fn disks_of_no_bandwidth_are_refused() {
    for disk in [disk(0.0, 1e8), disk(1e8, -1.0), disk(f64::NAN, 1e8)] {
        let error = run(&readers(1, 1, disk), 1).unwrap_err();
        assert!(matches!(error, SimError::Scenario(ScenarioError::NotPositive { .. })), "{error}");
    }
}
