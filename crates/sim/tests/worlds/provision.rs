//! Nodes acquired on demand: the papers' figures, and schedulers that behave
//! badly.

use crate::{machine, nodes, over_seeds, seconds};
use falkon_sim::{Figures, Lrm, Nanos, Provision, QueueOptions, ReleaseName, Scenario, Stage, run};

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
    Lrm { poll: seconds(60.0), start_min: Nanos(0), start_max: seconds(5.0), ..Lrm::default() }
}

fn stages(queue: QueueOptions, lrm: Lrm) -> Scenario {
    let stages: Vec<Stage> = STAGES
        .iter()
        .map(|(tasks, run)| Stage { tasks: *tasks, run: seconds(*run as f64) })
        .collect();
    let mut scenario = Scenario { nodes: vec![nodes(100, 1, None)], ..machine() };
    scenario.provision = Some(Provision { queue, lrm });
    scenario.workload.tasks = stages.iter().map(|stage| stage.tasks).sum();
    scenario.workload.stages = stages;
    scenario
}

/// The idle time in seconds and what falkon-sc07 §4.5 reports for it: queue
/// time, time to complete, utilization, efficiency, allocations.
const REPORTED: [(u64, [f64; 5]); 4] = [
    (15, [87.3, 1754.0, 0.89, 0.72, 11.0]),
    (60, [83.9, 1680.0, 0.75, 0.75, 9.0]),
    (120, [74.7, 1507.0, 0.65, 0.84, 7.0]),
    (180, [44.4, 1484.0, 0.59, 0.85, 6.0]),
];

fn measured(figures: &Figures) -> [f64; 5] {
    let provisioned = figures.provisioned.unwrap_or_default();
    [
        figures.wait.seconds(),
        figures.makespan.seconds(),
        provisioned.utilization,
        figures.efficiency,
        provisioned.requests as f64,
    ]
}

#[test]
fn idle_times_give_what_the_paper_reports_within_a_fifth_and_in_its_order() {
    let mut before: Option<[f64; 5]> = None;
    for (idle_s, reported) in REPORTED {
        let figures = run(&stages(queue(ReleaseName::Idle, idle_s), papers()), 1).unwrap();
        let found = measured(&figures);
        for (found, reported) in found.iter().zip(reported) {
            let ratio = found / reported;
            assert!((0.8..=1.2).contains(&ratio), "idle {idle_s} s: {found} for {reported}");
        }
        if let Some(before) = before.replace(found) {
            // The longer, the less is waited and used, and the faster it is.
            for (what, falls) in [(0, true), (1, true), (2, true), (3, false), (4, true)] {
                let is_in_order = (found[what] < before[what]) == falls;
                assert!(is_in_order, "idle {idle_s} s: {found:?} after {before:?}");
            }
        }
    }
}

/// The papers' executors give themselves back (falkon-sc07 §3.1, the distributed
/// policy). Time to complete, utilization and efficiency are compared: there are
/// fewer allocations than reported from 60 s on, and tasks wait less at 120 s.
#[test]
fn executors_that_leave_by_themselves_take_the_time_that_the_paper_reports() {
    for (idle_s, reported) in REPORTED {
        let keeps = QueueOptions { idle_micros: None, ..queue(ReleaseName::Idle, idle_s) };
        let mut scenario = stages(keeps, papers());
        scenario.nodes[0].idle_exit = Some(seconds(idle_s as f64));
        let figures = run(&scenario, 1).unwrap();
        assert_eq!(figures.done, 1000, "idle {idle_s} s");
        for (found, reported) in measured(&figures).iter().zip(reported).skip(1).take(3) {
            let ratio = found / reported;
            assert!((0.8..=1.2).contains(&ratio), "idle {idle_s} s: {found} for {reported}");
        }
    }
}

#[test]
fn predictive_is_fast_and_wastes_little_at_once() {
    for seed in [1, 13, 33] {
        let figures = run(&stages(queue(ReleaseName::Predictive, 60), papers()), seed).unwrap();
        let [_, _, utilization, efficiency, allocations] = measured(&figures);
        assert!(efficiency >= 0.85, "seed {seed}: efficiency {efficiency}");
        assert!(utilization >= 0.85, "seed {seed}: utilization {utilization}");
        assert!(allocations <= 11.0, "seed {seed}: {allocations} allocations");
    }
}

/// Runs the workload through a scheduler that misbehaves, every machine checked
/// after every event: all tasks end, and the bounds are kept.
fn weather(name: &str, lrm: Lrm, queue: &QueueOptions) {
    over_seeds(2, |seed| {
        let mut scenario = stages(queue.clone(), lrm);
        scenario.check_all = seed == 0;
        let figures = match run(&scenario, seed) {
            Ok(figures) => figures,
            Err(error) => panic!("{name}, seed {seed}: {error}"),
        };
        assert_eq!(figures.done, 1000, "{name}, seed {seed}");
        let provisioned = figures.provisioned.unwrap_or_default();
        assert!(provisioned.nodes_peak <= 32, "{name}, seed {seed}: {provisioned:?}");
        let most = figures.makespan.seconds() / 5.0 + 2.0;
        assert!((provisioned.queries as f64) < most, "{name}, seed {seed}: {provisioned:?}");
        figures.faults
    });
}

#[test]
fn a_scheduler_that_refuses_hangs_and_talks_nonsense_is_borne() {
    let fair = Lrm { answer: seconds(0.5), ..papers() };
    let predictive = queue(ReleaseName::Predictive, 60);
    weather("refuses", Lrm { refuse: 0.3, ..fair }, &predictive);
    weather("hangs", Lrm { hang: 0.1, query_failure: 0.2, ..fair }, &predictive);
    weather("nonsense", Lrm { nonsense: 0.5, ..fair }, &predictive);
}

#[test]
fn allocations_that_end_early_cost_their_tasks_only() {
    let fair = Lrm { answer: seconds(0.5), ..papers() };
    let kills = Lrm { kill: 0.2, kill_within: seconds(300.0), ..fair };
    weather("kills", kills, &queue(ReleaseName::Predictive, 60));
    let walltime_micros = 400_000_000;
    let short = QueueOptions { walltime_micros, ..queue(ReleaseName::Idle, 60) };
    weather("walltime", fair, &short);
    let whole = QueueOptions { is_whole: true, ..queue(ReleaseName::NoQueued, 60) };
    weather("whole", fair, &whole);
}

#[test]
fn a_scheduler_that_is_down_for_an_hour_is_waited_for() {
    let down = Lrm {
        answer: seconds(0.5),
        down_from: Some(seconds(100.0)),
        down: seconds(3600.0),
        ..papers()
    };
    weather("down", down, &queue(ReleaseName::Predictive, 60));
}
