//! Random worlds over seeds: each policy, each mood.

use crate::rng::Rng;
use crate::world::{Mood, SECOND, World};
use falkon_core::provision::{AcquireName, Event, QueueId, QueueOptions, ReleaseName};

/// `FALKON_SEEDS` raises it.
const SEEDS: u64 = 12;

fn seeds() -> u64 {
    std::env::var("FALKON_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(SEEDS)
}

/// How long jobs may stay once all work is done: those that lists left out are
/// found again by then, and those that are not needed are given back.
const LINGER_STEPS_MAX: u64 = 3000;

fn moods() -> Vec<(&'static str, Mood)> {
    let fair = Mood { delay_max: 60 * SECOND, ..Mood::default() };
    // Jobs that start so late can be forgotten for long before anybody comes.
    let late = Mood { delay_max: 3000 * SECOND, ..fair };
    vec![
        ("fair", fair),
        ("refuses", Mood { refuses: 300, ..fair }),
        ("unsure", Mood { unsure: 300, silent: 100, ..fair }),
        ("hangs", Mood { silent: 300, query_fails: 200, cancel_refused: 300, ..fair }),
        ("nonsense", Mood { nonsense: 500, ..fair }),
        ("kills", Mood { kills: 400, barren: 150, ..fair }),
        ("forgets", Mood { forgets: 30, remembers: 500, ..late }),
        ("denies", Mood { forgets: 20, ..late }),
        // Nobody knows for long whether a submission was taken.
        ("lost", Mood { unsure: 300, silent: 300, query_fails: 300, ..late }),
        ("holds", Mood { holds: 400, ..fair }),
        ("small", Mood { nodes: 2, ..fair }),
        ("down", Mood { down_until: 3600 * SECOND, ..fair }),
    ]
}

fn options(rng: &mut Rng, release: ReleaseName) -> QueueOptions {
    let executors_max = 1 + rng.below(12);
    let request_nodes_min = 1 + rng.below(executors_max.min(3));
    QueueOptions {
        executors_max,
        request_nodes_min,
        request_nodes_max: request_nodes_min + rng.below(8),
        pending_max: 1 + rng.below(4),
        allocations_max: 1 + rng.below(8),
        walltime_micros: [0, 600 * SECOND, 40_000 * SECOND][rng.below(3) as usize],
        idle_micros: Some(rng.below(90) * SECOND),
        held_micros: [None, Some(300 * SECOND)][rng.below(2) as usize],
        tells_size: rng.below(2) == 0,
        acquire: AcquireName::ALL[rng.below(5) as usize],
        release,
        preference: rng.below(3) as i32,
        is_whole: rng.below(2) == 0,
        ..QueueOptions::default()
    }
}

fn releases() -> [ReleaseName; 4] {
    [ReleaseName::Idle, ReleaseName::NoQueued, ReleaseName::FewQueued(3), ReleaseName::Predictive]
}

/// Work comes now and then while the LRM has its mood; then it is well, and
/// somebody looks after queues that were paused.
fn check(name: &str, mood: Mood, release: ReleaseName, seed: u64) {
    println!("{name}, {release:?}, seed {seed}");
    let mut world = World::new(seed, mood, 1);
    for queue in 0..1 + seed as u32 % 2 {
        let options = options(&mut world.rng, release);
        world.add(queue, options);
    }
    let mut submitted = 0;
    let restart = world.rng.below(1200);
    for second in 0..1200 {
        if world.rng.below(60) == 0 {
            let (tasks, micros) = (1 + world.rng.below(20), world.rng.below(90) * SECOND);
            submitted += tasks;
            world.submit(tasks, micros);
        }
        if second == restart {
            world.restart();
        }
        world.step();
    }
    world.mood = Mood { delay_max: 60 * SECOND, ..Mood::default() };
    let (mut steps, mut lingered) = (0, 0);
    while world.ended < submitted || world.jobs_alive() > 0 {
        steps += 1;
        assert!(steps < 20_000, "{} of {submitted} tasks ended", world.ended);
        lingered += u64::from(world.ended == submitted);
        assert!(lingered < LINGER_STEPS_MAX, "{} jobs stay: {:?}", world.jobs_alive(), world.ends);
        if steps % 600 == 0 {
            for queue in 0..2 {
                world.handle(Event::Resume { queue: QueueId(queue) });
            }
        }
        world.step();
    }
    assert_eq!(world.ended, submitted);
    println!("{:?}, lingered {lingered}", world.ends);
}

fn check_all(release: ReleaseName) {
    for (name, mood) in moods() {
        for seed in 0..seeds() {
            check(name, mood, release, seed);
        }
    }
}

#[test]
fn whatever_an_lrm_answers_idle_keeps_bounds_and_forgets_nothing() {
    check_all(releases()[0]);
}

#[test]
fn whatever_an_lrm_answers_no_queued_keeps_bounds_and_forgets_nothing() {
    check_all(releases()[1]);
}

#[test]
fn whatever_an_lrm_answers_few_queued_keeps_bounds_and_forgets_nothing() {
    check_all(releases()[2]);
}

#[test]
fn whatever_an_lrm_answers_predictive_keeps_bounds_and_forgets_nothing() {
    check_all(releases()[3]);
}

/// Nothing waits for the jobs while they are denied: nobody else has a reason
/// to ask the scheduler.
#[test]
fn a_job_that_a_scheduler_denies_is_known_again_soon_after_it_is_named_again() {
    let mut denied = 0;
    for seed in 0..20 {
        println!("seed {seed}");
        let mood = Mood { delay_max: 40_000 * SECOND, ..Mood::default() };
        let mut world = World::new(seed, mood, 1);
        for queue in 0..2 {
            // Nothing is given back: it is named again or it is forgotten.
            let release = releases()[0];
            let bounds = options(&mut world.rng, release);
            world.add(queue, QueueOptions { idle_micros: None, walltime_micros: 0, ..bounds });
        }
        let tasks = 1 + world.rng.below(9);
        world.submit(tasks, SECOND);
        for _ in 0..90 {
            world.step();
        }
        world.do_without();
        let spell = 60 + world.rng.below(9000);
        world.deny(spell * SECOND);
        if seed % 4 == 3 {
            world.restart();
        }
        for _ in 0..spell {
            world.step();
        }
        denied += world.jobs_unknown();
        for _ in 0..800 {
            world.step();
        }
        assert_eq!(world.jobs_unknown(), 0);
    }
    assert!(denied > 20, "{denied}");
}

#[test]
fn a_removed_queue_goes_when_nothing_of_it_is_left() {
    for (name, mood) in moods() {
        println!("{name}");
        let mut world = World::new(7, mood, 1);
        world.add(0, QueueOptions { executors_max: 8, ..QueueOptions::default() });
        world.submit(40, 30 * SECOND);
        for _ in 0..200 {
            world.step();
        }
        world.mood = Mood::default();
        world.handle(Event::Remove { queue: QueueId(0) });
        for _ in 0..4000 {
            world.step();
        }
        assert_eq!(world.jobs_alive(), 0);
        assert!(world.provisioner.queue_view(QueueId(0)).is_none());
    }
}
