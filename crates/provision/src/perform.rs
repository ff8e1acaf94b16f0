//! Carrying out what the core wants of schedulers.

use super::record::StoredAllocation;
use super::{Heard, JOB_LOGS_MAX, Provision};
use crate::lrm::{Driver, Job, JobStatus, Request, State, Submission};
use falkon_core::provision::{About, Action, Event, Found, JobState, QueueId, Submitted};
use falkon_core::task::{AllocationId, Time};
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;

/// The bytes that are shown of the output of a job without executors.
const JOB_WORDS_BYTES_MAX: u64 = 1024;

impl Provision {
    /// Begins to carry out an action; its answer comes as an event.
    pub(super) fn perform(&mut self, now: Time, action: Action) {
        match action {
            Action::Submit { queue, allocation, nodes, walltime_micros } => {
                let walltime =
                    (walltime_micros > 0).then(|| Duration::from_micros(walltime_micros));
                let request = Request { allocation: allocation.0, nodes, walltime };
                self.submit(queue, request);
            }
            Action::Query { queue } => self.query(now, queue),
            Action::Cancel { queue, allocation, job } => self.cancel(queue, allocation, job),
            Action::AskFree { queue } => self.ask_free(queue),
            Action::AskAbout { queue, allocation, job } => {
                self.ask_about(now, queue, allocation, job);
            }
            Action::AskSize { queue } => self.ask_size(queue),
            Action::Release { .. } | Action::Removed { .. } | Action::Decided(_) => {}
        }
    }

    fn submit(&self, id: QueueId, request: Request) {
        let Some(queue) = self.queues.get(&id) else { return };
        let (driver, commands) = (queue.driver.clone(), queue.commands.clone());
        let (tell, record) = (self.tell.clone(), self.record.clone());
        let allocation = AllocationId(request.allocation);
        let stored = StoredAllocation {
            id: request.allocation,
            queue: queue.stored.name.clone(),
            nodes: request.nodes,
            job: None,
        };
        let taken = self.recorded(|record| record.take(stored));
        tokio::spawn(async move {
            // The number is on disk before the scheduler receives it.
            let written = match taken {
                Ok(writing) => writing.done().await,
                Err(error) => Err(error.to_string()),
            };
            let answer = match written {
                Err(words) => Submitted::Refused { words },
                Ok(()) => {
                    // The semaphore is never closed.
                    let _turn = commands.acquire().await;
                    match driver.submit(&request).await {
                        Submission::Accepted(job) => {
                            let named = record
                                .lock()
                                .unwrap_or_else(PoisonError::into_inner)
                                .name(allocation.0, &job);
                            if let Ok(Some(writing)) = named {
                                // Without it the job is found by its own name.
                                let _ = writing.done().await;
                            }
                            Submitted::Accepted { job }
                        }
                        Submission::Refused(words) => Submitted::Refused { words },
                        Submission::TooLarge(words) => Submitted::TooLarge { words },
                        Submission::Unknown(words) => Submitted::Unknown { words },
                    }
                }
            };
            let event = Event::SubmitAnswer { allocation, answer };
            // The receiver is gone when the dispatcher ends.
            let _ = tell.send(Heard::Event(event)).await;
        });
    }

    fn query(&self, now: Time, queue: QueueId) {
        let Some(driver) = self.driver(queue) else { return };
        let tell = self.tell.clone();
        let began = std::time::Instant::now();
        tokio::spawn(async move {
            let event = match driver.query().await {
                Err(error) => Event::QueryFailed { queue, words: error.to_string() },
                Ok(jobs) => {
                    // Before their states, with which some are over.
                    let said = jobs.iter().filter(|(_, job)| job.has_reason);
                    let said = said.map(|(id, job)| (AllocationId(*id), job.words.clone()));
                    let _ = tell.send(Heard::Words(queue, said.collect())).await;
                    cancel_dead(&driver, queue, &jobs, &tell).await;
                    let then = now.after(began.elapsed().as_micros() as u64);
                    Event::States {
                        queue,
                        found: jobs.into_iter().map(|job| found(queue, job, then)).collect(),
                    }
                }
            };
            let _ = tell.send(Heard::Event(event)).await;
        });
    }

    fn cancel(&self, id: QueueId, allocation: AllocationId, job: Option<String>) {
        let Some(queue) = self.queues.get(&id) else { return };
        let (driver, commands) = (queue.driver.clone(), queue.commands.clone());
        let tell = self.tell.clone();
        tokio::spawn(async move {
            let _turn = commands.acquire().await;
            let cancelled = match job {
                Some(job) => driver.cancel(&[job]).await,
                None => driver.cancel_by_name(allocation.0).await,
            };
            let refused = cancelled.err().map(|error| error.to_string());
            let _ = tell.send(Heard::Event(Event::CancelAnswer { allocation, refused })).await;
        });
    }

    fn ask_free(&self, queue: QueueId) {
        let Some(driver) = self.driver(queue) else { return };
        let tell = self.tell.clone();
        tokio::spawn(async move {
            let nodes = match driver.free().await {
                Ok(nodes) => nodes,
                Err(error) => {
                    let _ = tell.send(Heard::Note(queue, format!("what is free: {error}"))).await;
                    None
                }
            };
            let _ = tell.send(Heard::Event(Event::Free { queue, nodes })).await;
        });
    }

    /// Asks about one job that the queue's answers do not name.
    fn ask_about(&self, now: Time, queue: QueueId, allocation: AllocationId, job: String) {
        let Some(driver) = self.driver(queue) else { return };
        let tell = self.tell.clone();
        let began = std::time::Instant::now();
        tokio::spawn(async move {
            let about = match driver.about(&job).await {
                Ok(JobStatus::Gone) => About::Gone,
                Ok(JobStatus::Known(job)) => {
                    let then = now.after(began.elapsed().as_micros() as u64);
                    let is_dead = job.state == State::Dead;
                    let mut found = found(queue, (allocation.0, job), then);
                    if is_dead {
                        // A query that lists it has it cancelled.
                        found.state = JobState::Unknown;
                    }
                    About::Known(Box::new(found))
                }
                Err(error) => {
                    let text = format!("allocation {allocation}: asked about job {job}: {error}");
                    let _ = tell.send(Heard::Note(queue, text)).await;
                    About::NoAnswer
                }
            };
            let _ = tell.send(Heard::Event(Event::About { allocation, about })).await;
        });
    }

    fn ask_size(&self, queue: QueueId) {
        let Some(driver) = self.driver(queue) else { return };
        let tell = self.tell.clone();
        tokio::spawn(async move {
            let size = match driver.size().await {
                Ok(size) => size,
                Err(error) => {
                    let text = format!("how many nodes there are: {error}");
                    let _ = tell.send(Heard::Note(queue, text)).await;
                    None
                }
            };
            // Several jobs may share a node that they do not have whole.
            let is_whole = driver.has_whole_nodes();
            let nodes = size.filter(|_| is_whole).map(|size| size.nodes);
            let job_nodes = size.map(|size| size.nodes.min(size.job_nodes.unwrap_or(u64::MAX)));
            let _ = tell.send(Heard::Event(Event::Size { queue, nodes, job_nodes })).await;
        });
    }

    /// Sends the program to nodes that wait for it.
    pub(super) fn stage_binaries(&mut self, queue: QueueId, found: &[Found]) {
        let Some(driver) = self.driver(queue).filter(|driver| driver.stages_binary()) else {
            return;
        };
        for one in found.iter().filter(|one| one.state == JobState::Running) {
            if self.joined.contains(&one.allocation) || !self.staged_binaries.insert(one.allocation)
            {
                continue;
            }
            let (driver, tell) = (driver.clone(), self.tell.clone());
            let (allocation, job) = (one.allocation, one.job.clone());
            tokio::spawn(async move {
                let text = match driver.stage_binary(allocation.0, &job).await {
                    Ok(()) => format!("allocation {allocation}: the program is on its nodes"),
                    Err(error) => {
                        format!("allocation {allocation}: cannot send the program: {error}")
                    }
                };
                let _ = tell.send(Heard::Note(queue, text)).await;
            });
        }
    }

    fn driver(&self, queue: QueueId) -> Option<Arc<Driver>> {
        self.queues.get(&queue).map(|queue| queue.driver.clone())
    }

    /// An allocation is over: its files go. If no executor has come of it, its
    /// job's output gives the reason. The files of an allocation whose end was
    /// not seen stay for a while: its job may exist all the same.
    pub(super) fn ended(&mut self, queue: QueueId, allocation: AllocationId, is_seen: bool) {
        let came = self.joined.remove(&allocation);
        self.staged_binaries.remove(&allocation);
        self.words.remove(&allocation);
        self.recorded(|record| record.end(allocation.0));
        let Some(driver) = self.driver(queue) else { return };
        let tell = self.tell.clone();
        tokio::task::spawn_blocking(move || {
            if is_seen {
                driver.forget(allocation.0);
            }
            if let Some(old) = allocation.0.checked_sub(JOB_LOGS_MAX) {
                driver.forget(old);
                if let Some(log) = driver.log(old) {
                    // There may be none.
                    let _ = std::fs::remove_file(log);
                }
            }
            let log = driver.log(allocation.0).filter(|_| !came);
            let words = log.and_then(|log| last_words(&log).ok()).unwrap_or_default();
            if !words.is_empty() {
                let text = format!("allocation {allocation}: its job wrote: {words}");
                let _ = tell.blocking_send(Heard::Note(queue, text));
            }
        });
    }
}

/// Jobs that the scheduler keeps and will never run are cancelled.
async fn cancel_dead(
    driver: &Driver,
    queue: QueueId,
    jobs: &[(u64, Job)],
    tell: &mpsc::Sender<Heard>,
) {
    let dead: Vec<&Job> =
        jobs.iter().map(|(_, job)| job).filter(|job| job.state == State::Dead).collect();
    if dead.is_empty() {
        return;
    }
    let names: Vec<String> = dead.iter().map(|job| job.job.clone()).collect();
    let cancelled = driver.cancel(&names).await;
    for job in dead {
        let text = match &cancelled {
            Ok(()) => format!("job {} would never run ({}): cancelled", job.job, job.words),
            Err(error) => format!("job {} never runs ({}): {error}", job.job, job.words),
        };
        let _ = tell.send(Heard::Note(queue, text)).await;
    }
}

fn found(queue: QueueId, (allocation, job): (u64, Job), now: Time) -> Found {
    Found {
        queue,
        allocation: AllocationId(allocation),
        job: job.job,
        state: match job.state {
            State::Pending => JobState::Pending,
            State::Held => JobState::Held,
            State::TooLarge => JobState::TooLarge,
            State::Never => JobState::Never,
            State::Running => JobState::Running,
            State::Ended | State::Dead => JobState::Ended,
            State::Unknown => JobState::Unknown,
        },
        nodes: job.nodes.unwrap_or(0),
        until: job.left.map(|left| now.after(left.as_micros() as u64)),
        words: if job.has_reason { job.words } else { String::new() },
    }
}

/// The end of a file, in one line.
fn last_words(path: &std::path::Path) -> std::io::Result<String> {
    use std::io::{Read, Seek, SeekFrom};
    let mut file = std::fs::File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(JOB_WORDS_BYTES_MAX)))?;
    let mut bytes = Vec::new();
    file.take(JOB_WORDS_BYTES_MAX).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let mut words = lines.collect::<Vec<_>>().join("; ");
    words.retain(|c| !c.is_control());
    Ok(words)
}
