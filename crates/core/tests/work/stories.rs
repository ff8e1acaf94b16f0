//! Counts each step of a story beside three sizes of something that none of its
//! steps is about, and holds what the larger ones cost against the smallest.

use crate::guard::{SCENARIO, TASKS, callgrind, need_valgrind};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

/// A story beside more and more of something.
pub(crate) struct Story {
    /// What there is more of.
    pub(crate) name: &'static str,
    /// How much, the least first.
    pub(crate) sizes: [u64; 3],
    /// How many times as much a step may cost.
    pub(crate) times: f64,
    /// Steps that are about it, and may cost more.
    pub(crate) about: &'static [&'static str],
    /// Tells it, with each step within [`counted_step`].
    pub(crate) tell: fn(u64),
}

/// How many times as much a step may cost beside fifty times as much: trees
/// have some levels more.
pub(crate) const TIMES: f64 = 1.5;
/// What the program prints of each step, in front of its name.
const STEP: &str = "counted: ";

/// No step of these stories costs more where there is more of something else.
/// `child` is the name of the test that calls [`tell_one`].
pub(crate) fn hold_stories(stories: &[Story], child: &str) {
    need_valgrind();
    let next = AtomicUsize::new(0);
    let (report, above) = mpsc::channel();
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let (next, report) = (&next, report.clone());
            scope.spawn(move || {
                while let Some(story) = stories.get(next.fetch_add(1, Ordering::Relaxed)) {
                    for line in grown(story, child) {
                        report.send(line).unwrap();
                    }
                }
            });
        }
    });
    drop(report);
    let above: Vec<String> = above.iter().collect();
    assert!(above.is_empty(), "work that grows with what it is not about:\n{}", above.join("\n"));
}

/// The steps of a story that cost more where there is more.
fn grown(story: &Story, child: &str) -> Vec<String> {
    let costs = story.sizes.map(|size| steps(story.name, size, child));
    let least = &costs[0];
    let known = |step: &&str| least.contains_key(*step);
    assert!(!least.is_empty() && story.about.iter().all(known), "{}", story.name);
    let mut worst = (0.0, "");
    let mut above = Vec::new();
    for (step, little) in least.iter().filter(|(step, _)| !story.about.contains(&step.as_str())) {
        let all = costs.each_ref().map(|of_size| of_size[step]);
        let times = all.iter().max().map_or(0, |most| *most) as f64 / *little as f64;
        if times > worst.0 {
            worst = (times, step);
        }
        if times > story.times {
            let (name, sizes, most) = (story.name, story.sizes, story.times);
            above.push(format!(
                "{step}: {all:?} instructions beside {sizes:?} {name}, {times:.2} times as many, \
                 at most {most}"
            ));
        }
    }
    println!("beside {:?} {}: {:.2} times ({})", story.sizes, story.name, worst.0, worst.1);
    above
}

/// The median of the instructions of each step.
fn steps(name: &str, size: u64, child: &str) -> BTreeMap<String, u64> {
    let place = tempdir(name, size);
    let output = callgrind(
        name,
        size,
        child,
        &place.join("steps"),
        &[
            "--collect-atstart=no",
            "--toggle-collect=falkon_counted_part",
            "--dump-after=falkon_counted_part",
        ],
    );
    let printed = String::from_utf8_lossy(&output.stdout);
    let mut counts: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for (at, step) in printed.lines().filter_map(|line| line.strip_prefix(STEP)).enumerate() {
        let dump = fs::read_to_string(place.join(format!("steps.{}", at + 1))).unwrap();
        let total = dump.lines().find_map(|line| line.strip_prefix("totals: ")).unwrap();
        counts.entry(step.to_owned()).or_default().push(total.trim().parse().unwrap());
    }
    fs::remove_dir_all(&place).unwrap();
    let median = |mut all: Vec<u64>| {
        all.sort_unstable();
        all[all.len() / 2]
    };
    counts.into_iter().map(|(step, all)| (step, median(all))).collect()
}

/// A new directory for what is counted.
fn tempdir(name: &str, size: u64) -> std::path::PathBuf {
    let name: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    let place = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let place = place.join(format!("{name}-{size}-{}", std::process::id()));
    fs::create_dir_all(&place).unwrap();
    place
}

/// A step of a story. What is done within is counted, and nothing else.
pub(crate) fn counted_step(step: &str, part: impl FnMut()) {
    // The harness may have begun a line.
    println!("\n{STEP}{step}");
    crate::growth::counted(part);
}

/// Tells the story that the environment names, if it names one.
pub(crate) fn tell_one(stories: &[Story]) {
    let (Ok(name), Ok(size)) = (std::env::var(SCENARIO), std::env::var(TASKS)) else {
        return;
    };
    let story = stories.iter().find(|story| story.name == name).unwrap();
    (story.tell)(size.parse().unwrap());
}
