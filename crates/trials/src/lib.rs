//! Tests that can say that they could not be run.
//!
//! The standard harness knows tests that pass and tests that fail. A test that
//! finds no scheduler to talk to, or may not mount a disk, has done neither:
//! it calls [`skip`], and the runner reports it as ignored, with the reason.
//! A test program of this kind has `harness = false`, `#[trial]` in the place of
//! `#[test]`, and `fn main() { falkon_trials::main() }`. A test that takes longer
//! than [`LONGEST`] ends the run, which names it.

use libtest_mimic::{Arguments, Completion, Failed};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::ExitCode;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

mod machine;

pub use falkon_trials_macros::trial;
#[doc(hidden)]
pub use inventory;
pub use machine::{Machine, Said};

/// The time after which a test is taken for one that hangs.
/// `FALKON_LONGEST_SECONDS` sets another.
pub const LONGEST: Duration = Duration::from_secs(900);

/// The tests that run now, and when they began.
static RUNNING: Mutex<Vec<(&'static Trial, Instant)>> = Mutex::new(Vec::new());

/// A test, as `#[trial]` notes it.
#[doc(hidden)]
#[derive(Debug)]
pub struct Trial {
    /// The path of its module.
    pub module: &'static str,
    /// The function's name.
    pub name: &'static str,
    /// Whether it is run only if asked for.
    pub ignored: bool,
    /// The function.
    pub run: fn(),
}

inventory::collect!(Trial);

/// The payload that ends a test which cannot be run here.
struct Skipped(String);

/// Ends the test that calls this: the runner reports it as ignored, with what is
/// missing. Only from the test's own thread.
pub fn skip(reason: impl Into<String>) -> ! {
    // Not a panic: no hook prints anything.
    resume_unwind(Box::new(Skipped(reason.into())))
}

impl Trial {
    /// The name that the standard harness would give it: its path in the program.
    fn path(&self) -> String {
        match self.module.split_once("::") {
            Some((_, within)) => format!("{within}::{}", self.name),
            None => self.name.to_owned(),
        }
    }

    fn outcome(&'static self) -> Result<Completion, Failed> {
        with_running(|running| running.push((self, Instant::now())));
        let ended = catch_unwind(AssertUnwindSafe(self.run));
        with_running(|running| running.retain(|(trial, _)| !std::ptr::eq(*trial, self)));
        match ended {
            Ok(()) => Ok(Completion::Completed),
            Err(payload) => match payload.downcast::<Skipped>() {
                Ok(skipped) => Ok(Completion::ignored_with(skipped.0)),
                Err(payload) => resume_unwind(payload),
            },
        }
    }
}

fn with_running<T>(use_it: impl FnOnce(&mut Vec<(&'static Trial, Instant)>) -> T) -> T {
    use_it(&mut RUNNING.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
}

/// Ends the program when a test takes longer than it may.
fn watch(longest: Duration) {
    loop {
        thread::sleep(longest.min(Duration::from_secs(1)));
        let hanging = with_running(|running| {
            running.iter().find(|(_, since)| since.elapsed() > longest).map(|(trial, _)| *trial)
        });
        if let Some(trial) = hanging {
            eprintln!("test {} hangs: it has run for {} s", trial.path(), longest.as_secs());
            std::process::exit(101);
        }
    }
}

/// Runs the tests of this program as its arguments say, which are those of the
/// standard harness.
pub fn main() -> ExitCode {
    run(None)
}

/// The same, one after another.
pub fn one_by_one() -> ExitCode {
    run(Some(1))
}

/// The same with tests that mostly wait for other processes: three at a time for every two
/// processors, unless the arguments say how many.
pub fn while_others_wait() -> ExitCode {
    let processors = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    run_with(|asked| asked.or(Some((processors * 3).div_ceil(2))))
}

fn run(threads: Option<usize>) -> ExitCode {
    run_with(|asked| threads.or(asked))
}

/// Runs tests; `threads` says how many at a time, given what the arguments ask for.
fn run_with(threads: impl FnOnce(Option<usize>) -> Option<usize>) -> ExitCode {
    let longest = std::env::var("FALKON_LONGEST_SECONDS").ok().and_then(|text| text.parse().ok());
    let longest = longest.map_or(LONGEST, Duration::from_secs);
    thread::spawn(move || watch(longest));
    let (filters, words) = filters(std::env::args());
    let mut arguments = Arguments::from_iter(words);
    arguments.test_threads = threads(arguments.test_threads);
    let wanted = |path: &str| {
        let is_it = |filter: &String| match arguments.exact {
            true => path == filter,
            false => path.contains(filter),
        };
        filters.is_empty() || filters.iter().any(is_it)
    };
    let mut trials: Vec<(String, &'static Trial)> = inventory::iter::<Trial>
        .into_iter()
        .map(|trial| (trial.path(), trial))
        .filter(|(path, _)| wanted(path))
        .collect();
    // The linker has its own order.
    trials.sort_by(|(a, _), (b, _)| a.cmp(b));
    let trials = trials.into_iter().map(|(path, trial)| {
        libtest_mimic::Trial::ignorable_test(path, || trial.outcome())
            .with_ignored_flag(trial.ignored)
    });
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

/// Options of the standard harness whose value is the next word.
const WITH_VALUE: [&str; 6] =
    ["--test-threads", "--skip", "--logfile", "--color", "--format", "-Z"];

/// The names, of which the standard harness takes any number and libtest-mimic
/// one, and all other words.
fn filters(words: impl Iterator<Item = String>) -> (Vec<String>, Vec<String>) {
    let (mut filters, mut others) = (Vec::new(), Vec::new());
    // The first word is the program.
    let mut is_value = true;
    for word in words {
        if is_value || word.starts_with('-') {
            is_value = !is_value && WITH_VALUE.contains(&word.as_str());
            others.push(word);
        } else {
            filters.push(word);
        }
    }
    (filters, others)
}

#[cfg(test)]
mod tests {
    use super::filters;

    #[test]
    fn names_are_told_from_the_values_of_options() {
        let line = "program kill --test-threads 1 --skip=slow run::ends --nocapture --skip x -q";
        let (names, others) = filters(line.split(' ').map(str::to_owned));
        assert_eq!(names, ["kill", "run::ends"]);
        assert_eq!(
            others.join(" "),
            "program --test-threads 1 --skip=slow --nocapture --skip x -q"
        );
    }
}
