//! Run times in classes, against all of them one by one.

use crate::rng::Rng;
use falkon_core::provision::Durations;

#[test]
fn how_long_a_task_still_runs_is_as_if_classes_were_even() {
    for seed in 0..300 {
        let mut rng = Rng::new(seed);
        let mut durations = Durations::default();
        let mut counts = [0u64; 48];
        for _ in 0..1 + rng.below(6) {
            let (at, tasks) = (rng.below(47), 1 + rng.below(50));
            durations.add((1 << at) + rng.below(1 << at), tasks);
            counts[at as usize] += tasks;
        }
        assert_eq!(durations.counts, counts);
        assert_eq!(durations.tasks(), counts.iter().sum::<u64>());
        let bound = 1 << rng.below(48);
        let elapsed = rng.below(bound);
        // Of each class the part that runs longer, evenly between its bounds.
        let (mut tasks, mut left) = (0.0, 0.0);
        for (at, count) in counts.iter().enumerate() {
            let (low, high) = ((1u64 << at) as f64, (1u64 << (at + 1)) as f64);
            let from = low.max(elapsed as f64);
            if from < high {
                let share = *count as f64 * (high - from) / (high - low);
                tasks += share;
                left += share * ((from + high) / 2.0 - elapsed as f64);
            }
        }
        let found = durations.left_micros(elapsed);
        // Parts of a class are counted in 64ths of a task.
        let fine = tasks * 64.0 > 3000.0;
        match found {
            None => assert!(tasks < 1.0, "seed {seed}: {tasks} tasks run longer"),
            Some(found) if fine => {
                let expected = left / tasks;
                let off = (found as f64 - expected).abs();
                assert!(off <= expected / 64.0 + 2.0, "seed {seed}: {found}, not {expected}");
            }
            Some(_) => {}
        }
    }
}

#[test]
fn half_of_everything_has_the_same_mean() {
    let mut durations = Durations::default();
    durations.add(0, 2);
    durations.add(1_000, 40);
    durations.add(3_000, 20);
    let mut twice = durations.clone();
    twice.merge(&durations);
    assert_eq!((twice.tasks(), twice.micros), (124, 200_000));
    assert_eq!(durations.mean_micros(), Some(100_000 / 62));
    assert_eq!(Durations::default().mean_micros(), None);
    // Tasks that take longer than the last class says are in it.
    durations.add(u64::MAX, 1);
    assert_eq!(durations.counts[47], 1);
}
