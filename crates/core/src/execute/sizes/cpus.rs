//! How many CPUs a task gets that asks for as many as others of its kind have used
//! ([`AUTO_CPUS`](crate::task::AUTO_CPUS)).
//!
//! The first tasks of a kind get the node's share: all its CPUs, or the part of them that their
//! GPUs are of its GPUs. Later ones get whole CPUs: the 95th percentile of what tasks needed, as
//! far as that was seen. A task that gets less than it could use is not ended, but slower.
//!
//! A task is measured by its processor time over its run time. One that used what it was given may
//! need more: programs start as many threads as `OMP_NUM_THREADS` says, which is what they were
//! given. So each task says only whether it needs more than fewer CPUs than it had, and the share
//! of tasks that need more than a number of CPUs is that among the tasks which were given more.
//! Where tasks use what they are given, some of them get twice as much, so that there are such
//! tasks.

use crate::limits::AUTO_CPUS_TASKS_MIN;
use crate::result::ResourceUsage;
use crate::task::{MILLI, Resources, TaskId};

/// Run time below which the CPUs that a task used say nothing of it: its start is a large part of
/// that.
const MEASURED_MICROS_MIN: u64 = 100_000;

/// CPUs of a node beyond which nobody counts how many a task used.
const CPUS_MAX: u32 = 1024;

/// One of so many tasks gets twice the CPUs that others get, where those used what they had.
const PROBE_TASKS: u64 = 32;

/// One task of so many may need more CPUs than tasks get: the 95th percentile.
const OVER_OF: u64 = 20;

/// Tasks after which all before them count half.
const HALF_TASKS: u64 = 64;

/// The part of a CPU beyond whole ones that is not rounded up: threads that do little, and the
/// error of what is measured.
const SLACK_MILLI: u64 = 250;

/// A task that uses this part of its CPUs, in percent, uses what it was given.
const ALL_PERCENT: u64 = 80;

/// The CPUs that tasks of a kind used.
#[derive(Debug, Default)]
pub(super) struct Used {
    /// By a number of CPUs, from 1: the tasks that were given more.
    beyond: Vec<Beyond>,
    measured: u64,
    unmeasured: u64,
    /// The last task that was measured used what it was given.
    is_all_used: bool,
}

/// Tasks that were given more than some number of CPUs.
#[derive(Debug, Clone, Copy, Default)]
struct Beyond {
    given: u64,
    /// Tasks among them that need more.
    need: u64,
}

impl Used {
    /// How many CPUs a task gets, where it may have `most`.
    pub(super) fn cpus(&self, task: TaskId, most: u32) -> u32 {
        if self.measured + self.unmeasured < AUTO_CPUS_TASKS_MIN {
            return most;
        }
        let percentile = self.percentile();
        match self.is_all_used && is_probe(task) {
            true => percentile.saturating_mul(2).min(most),
            false => percentile.min(most),
        }
    }

    /// A task that was given so many CPUs has ended, `micros` after it began.
    pub(super) fn note(&mut self, given: u32, usage: Option<&ResourceUsage>, micros: u64) {
        let usage = usage.filter(|_| micros >= MEASURED_MICROS_MIN);
        let Some(usage) = usage else {
            self.unmeasured += 1;
            return;
        };
        let given = given.clamp(1, CPUS_MAX);
        let busy_micros = usage.user_micros.saturating_add(usage.system_micros);
        let used_milli = busy_micros.saturating_mul(MILLI.into()) / micros.max(1);
        let all_milli = u64::from(given) * u64::from(MILLI) * ALL_PERCENT / 100;
        self.is_all_used = used_milli >= all_milli;
        let need = match self.is_all_used {
            true => u64::from(given),
            false => used_milli.saturating_sub(SLACK_MILLI).div_ceil(MILLI.into()),
        };
        let counted = given as usize - 1;
        if self.beyond.len() < counted {
            self.beyond.resize(counted, Beyond::default());
        }
        for (cpus, beyond) in (1..).zip(&mut self.beyond[..counted]) {
            beyond.given += 1;
            beyond.need += u64::from(need > cpus);
        }
        self.measured += 1;
        if self.measured.is_multiple_of(HALF_TASKS) {
            for beyond in &mut self.beyond {
                beyond.given /= 2;
                beyond.need /= 2;
            }
        }
    }

    /// The fewest CPUs beyond which few tasks need more, of those that were given more.
    fn percentile(&self) -> u32 {
        let are_few = |beyond: &Beyond| beyond.need * OVER_OF <= beyond.given;
        let fewer = self.beyond.iter().position(are_few).unwrap_or(self.beyond.len());
        fewer as u32 + 1
    }
}

/// How many CPUs a task may have at most.
pub(super) fn share(class: &Resources, capacity: &Resources) -> u32 {
    let all = u64::from(capacity.cpus_milli / MILLI);
    let (of, gpus) = (u64::from(class.gpus), u64::from(capacity.gpus));
    let share = match of {
        0 => all,
        of => (all * of.min(gpus)).checked_div(gpus).unwrap_or(all),
    };
    share.clamp(1, CPUS_MAX.into()) as u32
}

/// Whether a task is one of those that get more than others: spread evenly over the numbers of
/// tasks, also where only each second or third is of the kind.
fn is_probe(task: TaskId) -> bool {
    // The golden ratio, as a part of 2^64.
    let spread = task.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    spread < u64::MAX / PROBE_TASKS
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WALL_MICROS: u64 = 10_000_000;

    fn usage(cpus: f64) -> ResourceUsage {
        let user_micros = (cpus * WALL_MICROS as f64) as u64;
        ResourceUsage { user_micros, ..ResourceUsage::default() }
    }

    /// Runs tasks, one after the other, that use as much as `uses` says of the number of a task
    /// and the CPUs that it is given. Returns what each was given.
    fn run(used: &mut Used, most: u32, tasks: u64, uses: impl Fn(u64, u32) -> f64) -> Vec<u32> {
        let run = (0..tasks).map(|task| {
            let given = used.cpus(TaskId(task), most);
            assert!((1..=most).contains(&given), "task {task} is given {given} of {most}");
            used.note(given, Some(&usage(uses(task, given))), WALL_MICROS);
            given
        });
        run.collect()
    }

    /// The CPUs that most of the last 100 tasks were given.
    fn settled(given: &[u32]) -> u32 {
        let mut last = given[given.len() - 100..].to_vec();
        last.sort_unstable();
        last[50]
    }

    #[test]
    fn the_first_tasks_get_the_nodes_share() {
        let given = run(&mut Used::default(), 16, 4, |_, _| 1.0);
        assert_eq!(given, [16, 16, 16, 1]);
        let node = Resources { gpus: 4, ..Resources::cpus(16) };
        assert_eq!(share(&Resources::default(), &node), 16);
        assert_eq!(share(&Resources { gpus: 1, ..Resources::default() }, &node), 4);
        assert_eq!(share(&Resources::default(), &Resources::cpus(0)), 1);
    }

    #[test]
    fn a_task_of_one_thread_gets_one_cpu_and_few_are_given_another_to_see_whether_it_helps() {
        for thread in [0.02, 0.5, 0.99, 1.0, 1.2] {
            let given = run(&mut Used::default(), 64, 10_000, |_, _| thread);
            let all: u64 = given[3..].iter().map(|cpus| u64::from(*cpus)).sum();
            assert_eq!(settled(&given), 1, "{thread}");
            assert!(all <= 9_997 + 9_997 / 25, "{thread}: {all}");
        }
    }

    #[test]
    fn tasks_get_as_many_cpus_as_they_have_threads() {
        for threads in 1..=64 {
            let uses = |_, given: u32| f64::from(given.min(threads)) * 0.99;
            let given = run(&mut Used::default(), 64, 1_000, uses);
            // With nearly as many threads as there are CPUs, they count as all.
            let expected = if threads <= 51 { threads } else { 64 };
            let settled = settled(&given);
            assert!(settled == expected, "{settled} for {threads} threads");
        }
    }

    /// What a task uses of what it is given is no reason to give it less.
    #[test]
    fn threads_that_follow_what_is_given_keep_the_nodes_share() {
        for efficiency in [0.81, 0.9, 1.0] {
            let uses = |_, given: u32| f64::from(given) * efficiency;
            let given = run(&mut Used::default(), 32, 10_000, uses);
            assert!(given.iter().all(|cpus| *cpus == 32), "{efficiency}");
        }
        // Where half of them idle, there are fewer.
        let amdahl = |_, given: u32| 1.0 / (0.1 + 0.9 / f64::from(given));
        let settled = settled(&run(&mut Used::default(), 32, 10_000, amdahl));
        assert!((2..8).contains(&settled), "{settled}");
    }

    #[test]
    fn tasks_that_come_to_use_more_get_more_and_those_that_use_less_get_less() {
        for threads in [2, 3, 6, 16] {
            let mut used = Used::default();
            run(&mut used, 16, 500, |_, _| 1.0);
            let given = run(&mut used, 16, 1_000, |_, given| f64::from(given.min(threads)));
            assert_eq!(settled(&given), threads);
            let given = run(&mut used, 16, 1_000, |_, _| 1.0);
            assert_eq!(settled(&given), 1);
        }
    }

    #[test]
    fn rare_tasks_do_not_count_and_others_do() {
        let with_large = |every: u64| {
            let uses = |task: u64, given: u32| {
                let wants = if task.is_multiple_of(every) { 8 } else { 1 };
                f64::from(given.min(wants))
            };
            settled(&run(&mut Used::default(), 16, 5_000, uses))
        };
        assert_eq!(with_large(100), 1);
        assert_eq!(with_large(3), 8);
    }

    #[test]
    fn tasks_that_are_too_short_to_be_measured_get_one_cpu() {
        let mut used = Used::default();
        let short = MEASURED_MICROS_MIN - 1;
        for task in 0..3 {
            assert_eq!(used.cpus(TaskId(task), 16), 16);
            used.note(16, Some(&usage(16.0)), short);
        }
        assert_eq!(used.cpus(TaskId(3), 16), 1);
        used.note(1, None, WALL_MICROS);
        assert_eq!(used.cpus(TaskId(4), 16), 1);
        // What is measured counts alone.
        used.note(16, Some(&usage(16.0)), WALL_MICROS);
        assert_eq!(used.cpus(TaskId(5), 16), 16);
    }

    proptest! {
        /// With all CPUs of the node, tasks show what they need: the choice is that of a search
        /// through all numbers.
        #[test]
        fn the_percentile_is_that_of_a_sorted_list(
            needs in proptest::collection::vec(1..24_u32, 3..(HALF_TASKS as usize)),
        ) {
            let mut used = Used::default();
            for need in &needs {
                used.note(64, Some(&usage(f64::from(*need))), WALL_MICROS);
            }
            let over = |cpus: u32| needs.iter().filter(|need| **need > cpus).count();
            let oracle = (1..).find(|cpus| over(*cpus) * 20 <= needs.len());
            prop_assert_eq!(Some(used.percentile()), oracle);
        }

        #[test]
        fn whatever_tasks_say_others_get_from_one_cpu_to_the_share(
            tasks in proptest::collection::vec((any::<u32>(), any::<u64>(), any::<u64>()), 1..300),
            most in 1..=CPUS_MAX,
        ) {
            let mut used = Used::default();
            for (given, busy, micros) in tasks {
                let (user_micros, system_micros) = (busy, busy);
                let usage = ResourceUsage { user_micros, system_micros, ..Default::default() };
                used.note(given, Some(&usage), micros);
                let cpus = used.cpus(TaskId(busy), most);
                prop_assert!((1..=most).contains(&cpus));
                prop_assert!(used.beyond.len() < CPUS_MAX as usize);
            }
        }

        /// One of so many tasks is a probe, also of kinds that have each second or third number.
        #[test]
        fn probes_are_spread(first in 0..1_u64 << 40, step in 1..40_u64) {
            let count = (0..3_200).filter(|at| is_probe(TaskId(first + at * step))).count();
            prop_assert!((40..=200).contains(&count), "{count} of 3200");
        }
    }
}
