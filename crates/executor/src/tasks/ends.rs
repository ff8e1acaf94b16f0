//! Ends of processes, as those of their tasks.

use super::{Process, Tasks};
use crate::not_started::Failure;
use crate::workers::Workers;
use falkon_core::data::object::ObjectId;
use falkon_core::data::stage;
use falkon_core::execute::Event;
use falkon_core::gang::RankUsage;
use falkon_core::result::{Cause, Detail, Outcome, ResourceUsage, Stream};
use falkon_net::clock::Clock;
use falkon_process::{Ended, Outcome as ProcessOutcome, Shortage, Stage, Usage};
use std::fmt;
use std::sync::Arc;

/// Why a task is lost whose node has run out of memory.
pub(crate) const NODE_OUT_OF_MEMORY: &str = "its node, or the control group of its executor, had no memory \
     left, and the system killed the task: with --memory, no more tasks run at a time than there \
     is memory for";

/// The error of a task that had more memory than its limit.
#[derive(Debug, thiserror::Error)]
#[error(
    "asked for {} of memory, {}: --memory or --memory-limit gives it more",
    Amount(*limit_bytes),
    self.had()
)]
struct OverMemory {
    limit_bytes: u64,
    had_bytes: u64,
}

impl OverMemory {
    fn had(&self) -> String {
        if self.had_bytes <= self.limit_bytes {
            return "had all of it and needed more when it was ended".to_owned();
        }
        let (limit, had) = (Amount(self.limit_bytes).to_string(), Amount(self.had_bytes));
        match had.to_string() {
            had if had != limit => format!("had {had} when it was ended"),
            _ => format!("had {} bytes when it was ended", self.had_bytes),
        }
    }
}

/// The error of a task that had more in its scratch directory than the disk space that it claimed.
#[derive(Debug, thiserror::Error)]
#[error(
    "asked for {} of disk, had {} when it was ended: --disk gives it more",
    Amount(*limit_bytes),
    self.had()
)]
struct OverDisk {
    limit_bytes: u64,
    had_bytes: u64,
}

impl OverDisk {
    fn had(&self) -> String {
        let (limit, had) = (Amount(self.limit_bytes).to_string(), Amount(self.had_bytes));
        match had.to_string() {
            had if had != limit => had,
            _ => format!("{} bytes", self.had_bytes),
        }
    }
}

/// An amount of memory or disk space for people.
struct Amount(u64);

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        let Some((size, unit)) = units.into_iter().find(|(size, _)| self.0 >= *size) else {
            return write!(f, "{} bytes", self.0);
        };
        let tenths = (self.0 as f64 / size as f64 * 10.0).round() / 10.0;
        write!(f, "{tenths} {unit}")
    }
}

/// Adds a sentence to an error.
fn add(error: &mut String, sentence: &str) {
    if !error.is_empty() {
        error.push_str("; ");
    }
    error.push_str(sentence);
}

impl Tasks {
    /// Converts a process's end into its task's.
    pub(crate) fn ended(&mut self, ended: Ended, clock: &Clock) -> Option<Event> {
        if Workers::is_worker(ended.key) {
            self.launched -= 1;
            match ended.shortage {
                Some(Shortage::OfSystem) => self.workers.lost(ended, clock),
                _ => self.workers.ended(ended, clock),
            }
            return None;
        }
        if self.remote_ended(&ended) {
            self.launched -= 1;
            return None;
        }
        let process = self.processes.remove(&ended.key)?;
        self.launched -= 1;
        if process.gang.is_some_and(|gang| self.gangs.gathers(gang, ended.key)) {
            self.gathering.insert(ended.key, (ended, process));
            return None;
        }
        self.process_ended(ended, process, clock)
    }

    /// A process of a task has ended, and what its gang used is known, if it has one.
    pub(super) fn process_ended(
        &mut self,
        ended: Ended,
        process: Process,
        clock: &Clock,
    ) -> Option<Event> {
        if process.disk.is_some() {
            self.clear_scratch(ended, process);
            return None;
        }
        self.task_ended(ended, process, None, clock)
    }

    /// Converts a process's end into its task's. `disk_max_bytes` is the most that was seen in its
    /// scratch directory, if it had one.
    pub(super) fn task_ended(
        &mut self,
        ended: Ended,
        process: Process,
        disk_max_bytes: Option<u64>,
        clock: &Clock,
    ) -> Option<Event> {
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
        let over_disk = process.disk.and_then(|disk| Some((disk.limit_bytes, disk.over_bytes?)));
        let (outcome, cause) = match ended.shortage {
            None => match over_disk.filter(|_| failure.is_none()) {
                Some((limit_bytes, had_bytes)) => {
                    add(&mut error, &OverDisk { limit_bytes, had_bytes }.to_string());
                    // However the rest of it has ended.
                    (Outcome::Signal(libc::SIGKILL), Some(Cause::OverDisk))
                }
                None => (outcome, None),
            },
            Some(Shortage::OverLimit { had_bytes }) => {
                let limit_bytes = process.memory_limit.unwrap_or(had_bytes);
                add(&mut error, &OverMemory { limit_bytes, had_bytes }.to_string());
                (outcome, Some(Cause::OverMemory))
            }
            Some(Shortage::OfSystem) => {
                add(&mut error, NODE_OUT_OF_MEMORY);
                (Outcome::Lost, Some(Cause::NodeOutOfMemory))
            }
        };
        let says = stdout.total_bytes > 0 || stderr.total_bytes > 0 || !error.is_empty();
        let resources =
            used(&ended.outcome, &ended.usage).map(|used| ResourceUsage { disk_max_bytes, ..used });
        let (resources, gang) = match process.gang {
            Some(gang) => self.gangs.usage(gang, resources, ranks(&ended.ranks)),
            None => (resources, None),
        };
        let says = says || resources.is_some();
        let detail = says.then(|| {
            Arc::new(Detail { stdout, stderr, error, resources, gang, cause, ..Detail::default() })
        });
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
pub(super) fn used(outcome: &ProcessOutcome, usage: &Usage) -> Option<ResourceUsage> {
    let has_run = !matches!(outcome, ProcessOutcome::NotStarted { .. });
    has_run.then(|| resource_usage(usage))
}

/// Usage of a process's ranks.
pub(super) fn ranks(ranks: &[falkon_process::RankUsage]) -> Vec<RankUsage> {
    let rank = |of: &falkon_process::RankUsage| RankUsage {
        rank: of.rank,
        used: resource_usage(&of.usage),
    };
    ranks.iter().map(rank).collect()
}

fn resource_usage(usage: &Usage) -> ResourceUsage {
    let Usage { user_us, system_us, rss_max_bytes, read_bytes, written_bytes } = *usage;
    ResourceUsage {
        user_micros: user_us,
        system_micros: system_us,
        rss_max_bytes,
        read_bytes,
        written_bytes,
        disk_max_bytes: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_over_its_disk_space_says_what_it_asked_for_and_what_it_had() {
        let cases = [
            (2 << 30, 2_254_857_830, "asked for 2 GiB of disk, had 2.1 GiB when it was ended"),
            (
                1 << 30,
                (1 << 30) + 4096,
                "asked for 1 GiB of disk, had 1073745920 bytes when it was ended",
            ),
        ];
        for (limit_bytes, had_bytes, expected) in cases {
            let error = OverDisk { limit_bytes, had_bytes }.to_string();
            assert_eq!(error, format!("{expected}: --disk gives it more"));
        }
    }

    #[test]
    fn a_task_over_its_limit_says_what_it_asked_for_and_what_it_had() {
        let more = ": --memory or --memory-limit gives it more";
        let cases = [
            (2 << 30, 2_254_857_830, "asked for 2 GiB of memory, had 2.1 GiB when it was ended"),
            (100 << 20, 3 << 30, "asked for 100 MiB of memory, had 3 GiB when it was ended"),
            (
                1 << 30,
                (1 << 30) + 4096,
                "asked for 1 GiB of memory, had 1073745920 bytes when it was ended",
            ),
            (
                1 << 30,
                1 << 30,
                "asked for 1 GiB of memory, had all of it and needed more when it was ended",
            ),
            (7, 4096, "asked for 7 bytes of memory, had 4 KiB when it was ended"),
        ];
        for (limit_bytes, had_bytes, expected) in cases {
            let error = OverMemory { limit_bytes, had_bytes }.to_string();
            assert_eq!(error, format!("{expected}{more}"));
        }
    }
}
