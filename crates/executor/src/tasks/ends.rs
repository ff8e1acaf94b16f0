//! Ends of processes, as those of their tasks.

use super::{Process, Tasks};
use crate::not_started::Failure;
use crate::workers::Workers;
use falkon_core::data::object::ObjectId;
use falkon_core::data::stage;
use falkon_core::execute::Event;
use falkon_core::result::{Detail, Outcome, ResourceUsage, Stream};
use falkon_net::clock::Clock;
use falkon_process::{Ended, Outcome as ProcessOutcome, Stage, Usage};
use std::sync::Arc;

impl Tasks {
    /// Converts a process's end into its task's.
    pub(crate) fn ended(&mut self, ended: Ended, clock: &Clock) -> Option<Event> {
        if Workers::is_worker(ended.key) {
            self.launched -= 1;
            self.workers.ended(ended, clock);
            return None;
        }
        let process = self.processes.remove(&ended.key)?;
        self.launched -= 1;
        let mut error = String::new();
        let mut failure = None;
        let outcome = match ended.outcome {
            ProcessOutcome::Exit(code) => Outcome::Exit(code),
            ProcessOutcome::Signal(signal) => Outcome::Signal(signal),
            ProcessOutcome::NotStarted { stage: Stage::Waiting, .. } if process.after.is_some() => {
                self.close_gap(ended.key, process.after);
                self.forget_launch(&process, ended.key);
                return Some(Event::TakenBack(process.key));
            }
            ProcessOutcome::NotStarted { stage: Stage::Changed, .. } if process.again.is_some() => {
                self.forget_launch(&process, ended.key);
                self.changed(process);
                return None;
            }
            ProcessOutcome::NotStarted { stage, errno } => {
                let (cwd, stdin) = (process.cwd.clone(), process.stdin.clone());
                let program = process.program.clone();
                failure = Some(Failure { program, cwd, stdin, stage, errno });
                Outcome::NotRun
            }
        };
        self.forget_launch(&process, ended.key);
        let (key, output) = (process.key, process.output);
        let mut captured =
            |stream, captured| self.outputs.captured(key, stream, output, captured, &mut error);
        let stdout = captured(Stream::Stdout, ended.stdout);
        let stderr = captured(Stream::Stderr, ended.stderr);
        let says = stdout.total_bytes > 0 || stderr.total_bytes > 0 || !error.is_empty();
        let resources = used(&ended.outcome, &ended.usage);
        let says = says || resources.is_some();
        let detail = says
            .then(|| Arc::new(Detail { stdout, stderr, error, resources, ..Detail::default() }));
        let now = clock.now();
        let (started, ended) = match ended.ended {
            0 => (now, now),
            _ => (clock.at_monotonic(ended.started), clock.at_monotonic(ended.ended)),
        };
        let event = Event::Ended { key: process.key, outcome, started, ended, detail };
        if let Some(failure) = failure {
            self.explain(event, failure);
            return None;
        }
        if outcome == Outcome::Exit(0) && !process.outputs.is_empty() {
            self.pack_outputs(event, "it exited with 0", process.outputs, process.objects);
            return None;
        }
        Some(event)
    }

    /// A task did not begin, as one before it wrote to what it was to read.
    fn changed(&mut self, process: Process) {
        let (Some(start), Some(objects)) = (process.again, &mut self.objects) else { return };
        let inputs = start.data.iter().flat_map(|data| &data.inputs);
        let inputs: Vec<ObjectId> = inputs.map(|staged| staged.object.id).collect();
        let lost = objects.changed(process.key, &inputs);
        self.events.extend(lost.into_iter().map(|object| Event::Stage(stage::Event::Lost(object))));
        self.events.push_back(Event::Unstarted(start));
    }
}

/// What a process used that has run.
fn used(outcome: &ProcessOutcome, usage: &Usage) -> Option<ResourceUsage> {
    let Usage { user_us, system_us, rss_max_bytes, read_bytes, written_bytes } = *usage;
    let used = ResourceUsage {
        user_micros: user_us,
        system_micros: system_us,
        rss_max_bytes,
        read_bytes,
        written_bytes,
    };
    let has_run = !matches!(outcome, ProcessOutcome::NotStarted { .. });
    has_run.then_some(used)
}
