//! Nodes acquired on demand: the papers' figures, and schedulers that behave
//! badly.

use falkon_sim::{
    Arrivals, ClientCosts, DispatcherCosts, Durations, ExecutorCosts, Faults, Figures, Lrm, Nanos,
    Network, NodeGroup, PolicyOptions, Provision, QueueOptions, ReleaseName, Scenario, Stage,
    Store, TaskKind, Workload, run,
};

/// The 18-stage workload (falkon-sc07 §4.5).
const STAGES: [(u64, u64); 18] = [
    (1, 60),
    (2, 60),
    (4, 60),
    (8, 60),
    (16, 60),
    (32, 60),
    (64, 60),
    (1, 120),
    (640, 6),
    (160, 12),
    (5, 60),
    (21, 60),
    (17, 60),
    (13, 60),
    (9, 60),
    (4, 60),
    (2, 60),
    (1, 60),
];

fn seconds(seconds: f64) -> Nanos {
    Nanos::from_seconds(seconds)
}

fn queue(release: ReleaseName, idle_s: u64) -> QueueOptions {
    QueueOptions {
        executors_max: 32,
        walltime_micros: 0,
        idle_micros: Some(idle_s * 1_000_000),
        release,
        is_whole: false,
        ..QueueOptions::default()
    }
}

/// As falkon-sc07 §4.5 has it: the scheduler looks at its queue every 60 s.
fn papers() -> Lrm {
    Lrm { poll: seconds(60.0), start_min: seconds(5.0), start_max: seconds(5.0), ..Lrm::default() }
}

fn stages(queue: QueueOptions, lrm: Lrm) -> Scenario {
    let stages: Vec<Stage> = STAGES
        .iter()
        .map(|(tasks, run)| Stage { tasks: *tasks, run: seconds(*run as f64) })
        .collect();
    Scenario {
        name: "stages".to_owned(),
        dispatchers: 1,
        dispatcher: DispatcherCosts { message: seconds(7e-6), entry: seconds(1e-6) },
        executor: ExecutorCosts { message: seconds(10e-6), start: seconds(600e-6) },
        client: ClientCosts {
            message: seconds(7e-6),
            entry: seconds(0.25e-6),
            bundle: seconds(0.05),
        },
        network: Network { latency: seconds(100e-6), node_bytes_per_s: 125e6 },
        nodes: vec![NodeGroup { count: 100, slots: 1, speed: 1.0, from: Nanos(0), cache: None }],
        store: Store { bytes_per_s: 0.0, operation: Nanos(0), operations_per_s: None },
        provision: Some(Provision { queue, lrm }),
        workload: Workload {
            tasks: stages.iter().map(|stage| stage.tasks).sum(),
            kind: TaskKind::Sleep,
            run: Durations::Fixed(Nanos(0)),
            from: Nanos(0),
            arrivals: Arrivals::AtOnce,
            stages,
            inputs: None,
            policy: PolicyOptions::default(),
            retries: 0,
            estimates: false,
        },
        faults: Faults::default(),
        check_all: false,
        limit: seconds(86_400.0),
    }
}

fn show(name: &str, figures: &Figures) {
    let provisioned = figures.provisioned.unwrap_or_default();
    println!(
        "{name}: {:.0} s, efficiency {:.1} %, utilization {:.1} %, {} allocations, waited {:.1} s, \
         wasted {:.0} s, allocated {:.0} s",
        figures.makespan.seconds(),
        figures.efficiency * 100.0,
        provisioned.utilization * 100.0,
        provisioned.requests,
        figures.wait.seconds(),
        provisioned.node_s - 17_820.0,
        provisioned.allocated_s,
    );
}

#[test]
fn the_idle_times_of_the_paper_give_its_figures() {
    for seed in 1..4 {
        for idle_s in [15, 60, 120, 180] {
            let figures = run(&stages(queue(ReleaseName::Idle, idle_s), papers()), seed).unwrap();
            show(&format!("idle {idle_s} s, seed {seed}"), &figures);
        }
        let figures = run(&stages(queue(ReleaseName::Predictive, 60), papers()), seed).unwrap();
        show(&format!("predictive, seed {seed}"), &figures);
    }
}
