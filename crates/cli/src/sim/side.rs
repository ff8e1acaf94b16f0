//! Runs of a simulator side by side, on as many threads as there are
//! processors, and a line on the terminal that says how far they are.

use super::events::SimulatedEvents;
use falkon_sim::{Act, Figures, Scenario, SimError, Standing, run_recorded};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::num::NonZero;
use std::panic::resume_unwind;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Nodes of the scenarios that run side by side, unless one has more: each
/// takes some eight kilobytes.
const SIDE_NODES_MAX: u64 = 250_000;
/// How often the line is drawn.
const REDRAW: Duration = Duration::from_millis(250);

/// A scenario that is to be run, by a name for the line on the terminal.
pub struct Job {
    /// The name.
    pub name: String,
    /// The scenario.
    pub scenario: Scenario,
    /// Where its events go, if anywhere.
    events: Option<SimulatedEvents>,
}

impl Job {
    /// A job without events.
    #[must_use]
    pub fn new(name: String, scenario: Scenario) -> Job {
        Job { name, scenario, events: None }
    }

    /// The same with events.
    #[must_use]
    pub(super) fn with_events(self, events: Option<SimulatedEvents>) -> Job {
        Job { events, ..self }
    }
}

/// The runs that are under way.
#[derive(Default)]
struct Under {
    /// The next to begin.
    next: usize,
    /// Nodes of those under way.
    nodes: u64,
    /// Further results are not wanted.
    is_over: bool,
    standing: BTreeMap<usize, Standing>,
}

struct Shared {
    jobs: Vec<Job>,
    seed: u64,
    under: Mutex<Under>,
    changed: Condvar,
}

impl Shared {
    /// A thread that panicked has left nothing half done here.
    fn under(&self) -> MutexGuard<'_, Under> {
        self.under.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the next run may begin, beside those under way.
    fn begin(&self) -> Option<usize> {
        let mut under = self.under();
        loop {
            let at = under.next;
            let nodes = self.jobs.get(at).filter(|_| !under.is_over)?.scenario.nodes_count();
            if under.nodes == 0 || under.nodes.saturating_add(nodes) <= SIDE_NODES_MAX {
                under.next += 1;
                under.nodes += nodes;
                under.standing.insert(at, Standing::default());
                return Some(at);
            }
            under = self.changed.wait(under).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The work under way, in words.
    fn words(&self) -> String {
        let under = self.under();
        let each = under.standing.iter().map(|(at, standing)| {
            let share = standing.delivered as f64 * 100.0 / standing.tasks.max(1) as f64;
            let (name, at) = (&self.jobs[*at].name, standing.at.seconds());
            format!("{name}: {share:.0} % at {at:.0} s")
        });
        each.collect::<Vec<_>>().join("; ")
    }
}

/// A run that has begun, until it is over.
struct Begun<'a>(&'a Shared, usize);

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        let Begun(shared, at) = self;
        let mut under = shared.under();
        under.nodes -= shared.jobs[*at].scenario.nodes_count();
        under.standing.remove(at);
        shared.changed.notify_all();
    }
}

fn work(shared: &Shared, results: &Sender<(usize, Result<Figures, SimError>)>) {
    while let Some(at) = shared.begin() {
        let begun = Begun(shared, at);
        let mut watch = |standing| {
            shared.under().standing.insert(at, standing);
        };
        let Job { scenario, events, .. } = &shared.jobs[at];
        let mut record = events.as_ref().map(|events| |act: Act| events.take(act));
        let record = record.as_mut().map(|record| record as &mut dyn FnMut(Act));
        let result = run_recorded(scenario, shared.seed, &mut watch, record);
        drop(begun);
        if results.send((at, result)).is_err() {
            return;
        }
    }
}

/// Runs all, and hands the result of each to `done`, in their order, as soon
/// as those before are there. Stops as soon as `done` gives something, and
/// returns that; what is under way then is left to the end of the process.
pub fn run_each<T>(
    jobs: Vec<Job>,
    seed: u64,
    mut done: impl FnMut(usize, Result<Figures, SimError>) -> Option<T>,
) -> Option<T> {
    let count = jobs.len();
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    let under = Mutex::new(Under::default());
    let shared = Arc::new(Shared { jobs, seed, under, changed: Condvar::new() });
    let (sender, receiver) = channel();
    let threads = (0..processors.min(count)).map(|_| {
        let (shared, sender) = (shared.clone(), sender.clone());
        thread::spawn(move || work(&shared, &sender))
    });
    let threads: Vec<_> = threads.collect();
    drop(sender);
    let line = line(count);
    let mut early = BTreeMap::new();
    let mut next = 0;
    while next < count {
        let (at, result) = match receiver.recv_timeout(REDRAW) {
            Ok(result) => result,
            Err(RecvTimeoutError::Timeout) => {
                if let Some(line) = &line {
                    line.set_position(next as u64);
                    line.set_message(shared.words());
                }
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => break,
        };
        early.insert(at, result);
        while let Some(result) = early.remove(&next) {
            let found = || done(next, result);
            let stop = match &line {
                Some(line) => line.suspend(found),
                None => found(),
            };
            if stop.is_some() {
                shared.under().is_over = true;
                return stop;
            }
            next += 1;
        }
    }
    if let Some(line) = line {
        line.finish_and_clear();
    }
    for thread in threads {
        if let Err(panic) = thread.join() {
            resume_unwind(panic);
        }
    }
    None
}

/// A line on standard error, if that is a terminal.
fn line(count: usize) -> Option<ProgressBar> {
    std::io::stderr().is_terminal().then(|| {
        let line = ProgressBar::with_draw_target(Some(count as u64), ProgressDrawTarget::stderr());
        let template = if count > 1 { "{pos}/{len} {wide_msg}" } else { "{wide_msg}" };
        let style = ProgressStyle::with_template(template);
        line.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        line
    })
}
