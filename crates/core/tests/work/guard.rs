//! Counts work and holds it against the ceilings in `bench/ceilings.toml`:
//! allocations always, instructions where valgrind is installed. Neither
//! depends on what else the machine does.
//!
//! A scenario is run at two sizes; what one more task costs is the difference.
//! For instructions the test program runs itself again under callgrind, with
//! the scenario and its size in the environment. They are those of a release
//! build, so that a call that is not inlined any more counts; a debug build has
//! some five times as many, of which the optimiser decides nothing.
//! `cargo test --release -p falkon-core -p falkon-wire --test work` counts them.

use falkon_trials::skip;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// What is done for a number of tasks.
pub(crate) struct Scenario {
    /// As in the file of ceilings.
    pub(crate) name: &'static str,
    /// The two sizes, in tasks.
    pub(crate) tasks: (u64, u64),
    pub(crate) run: fn(u64),
}

const CEILINGS: &str = include_str!("../../../../bench/ceilings.toml");
/// Set in the program that runs under callgrind.
pub(crate) const SCENARIO: &str = "FALKON_WORK_SCENARIO";
pub(crate) const TASKS: &str = "FALKON_WORK_TASKS";

/// The system's allocator, counting per thread.
pub(crate) struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    // A thread that is ending has no counter any more.
    let _ = ALLOCATIONS.try_with(|allocations| allocations.set(allocations.get() + 1));
}

// SAFETY: Every call goes to the system's allocator unchanged; the counter is
// a cell of the calling thread, which neither allocates nor has a destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: The caller's promises are those that `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: `block` came from `alloc` above and thus from `System`.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: `block` came from `alloc` above and thus from `System`.
        unsafe { System.realloc(block, layout, size) }
    }
}

/// The number that the file of ceilings has for `key` of `scenario`.
fn ceiling(scenario: &str, key: &str) -> f64 {
    let mut section = "";
    for line in CEILINGS.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            section = name;
        } else if section == scenario
            && let Some((name, value)) = line.split_once('=')
            && name.trim() == key
        {
            return value.trim().parse().unwrap();
        }
    }
    panic!("bench/ceilings.toml has no {key} of {scenario}");
}

fn per_task(scenario: &Scenario, count: impl Fn(u64) -> u64) -> f64 {
    let (few, many) = scenario.tasks;
    (count(many) as f64 - count(few) as f64) / (many - few) as f64
}

/// Prints every figure beside its ceiling; returns those above it.
fn hold(scenarios: &[Scenario], key: &str, count: impl Fn(&Scenario, u64) -> u64) -> Vec<String> {
    let mut above = Vec::new();
    for scenario in scenarios {
        let found = per_task(scenario, |tasks| count(scenario, tasks));
        let most = ceiling(scenario.name, key);
        let line = format!("{}: {found:.4} {key} per task, at most {most}", scenario.name);
        println!("{line}");
        if found > most {
            above.push(line);
        }
    }
    above
}

/// No scenario allocates more often than its ceiling allows.
pub(crate) fn hold_allocations(scenarios: &[Scenario]) {
    let above = hold(scenarios, "allocations", |scenario, tasks| {
        let before = ALLOCATIONS.get();
        (scenario.run)(tasks);
        ALLOCATIONS.get() - before
    });
    assert!(above.is_empty(), "more work than before:\n{}", above.join("\n"));
}

/// Skips the test where there is no valgrind. Only release builds are counted.
pub(crate) fn need_valgrind() {
    let release = !cfg!(debug_assertions);
    assert!(release, "the instructions of a release build are counted: cargo test --release");
    let version = Command::new("valgrind").arg("--version").stdout(Stdio::null()).status();
    if !version.is_ok_and(|status| status.success()) {
        skip("valgrind is not installed, so instructions are not counted");
    }
}

/// No scenario takes more instructions than its ceiling allows. `child` is the
/// name of the test that calls [`run_under_callgrind`].
pub(crate) fn hold_instructions(scenarios: &[Scenario], child: &str) {
    need_valgrind();
    let above =
        hold(scenarios, "instructions", |scenario, tasks| instructions(scenario, tasks, child));
    assert!(above.is_empty(), "more work than before:\n{}", above.join("\n"));
}

/// Instructions of one scenario.
fn instructions(scenario: &Scenario, tasks: u64, child: &str) -> u64 {
    collected(scenario.name, tasks, child, &[])
}

/// Runs this program again under callgrind, with a name and a size in its
/// environment. Gives the instructions that were counted.
pub(crate) fn collected(name: &str, size: u64, child: &str, options: &[&str]) -> u64 {
    let output = callgrind(name, size, child, Path::new("/dev/null"), options);
    let said = String::from_utf8_lossy(&output.stderr);
    said.lines()
        .find_map(|line| line.split_once("Collected : ")?.1.trim().parse().ok())
        .unwrap_or_else(|| panic!("valgrind does not say what it collected:\n{said}"))
}

/// Runs this program again under callgrind, which writes its dumps to files that
/// begin with `dumps`. Gives what both have printed.
pub(crate) fn callgrind(
    name: &str,
    size: u64,
    child: &str,
    dumps: &Path,
    options: &[&str],
) -> Output {
    let output = Command::new("valgrind")
        .arg("--tool=callgrind")
        .arg(format!("--callgrind-out-file={}", dumps.display()))
        .args(options)
        .arg(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", child, "--test-threads=1"])
        .env(SCENARIO, name)
        .env(TASKS, size.to_string())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} failed under valgrind:\n{said}");
    output
}

/// Runs the scenario that the environment names, if it names one.
pub(crate) fn run_under_callgrind(scenarios: &[Scenario]) {
    let (Ok(name), Ok(tasks)) = (std::env::var(SCENARIO), std::env::var(TASKS)) else {
        return;
    };
    let scenario = scenarios.iter().find(|scenario| scenario.name == name).unwrap();
    (scenario.run)(tasks.parse().unwrap());
}

/// The tests of a table of scenarios, and the allocator that they count with.
macro_rules! tests {
    ($scenarios:expr) => {
        #[global_allocator]
        static ALLOCATOR: guard::Counting = guard::Counting;

        #[trial]
        fn a_task_takes_no_more_allocations_than_its_ceiling() {
            guard::hold_allocations(&$scenarios);
        }

        #[cfg_attr(debug_assertions, trial(ignore))]
        #[cfg_attr(not(debug_assertions), trial)]
        fn a_task_takes_no_more_instructions_than_its_ceiling() {
            guard::hold_instructions(&$scenarios, "one_scenario");
        }

        #[trial(ignore)]
        fn one_scenario() {
            guard::run_under_callgrind(&$scenarios);
        }
    };
}
pub(crate) use tests;
