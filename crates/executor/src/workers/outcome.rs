//! The reports of a call that has ended, and of a worker that never started.

use super::VALUE_BYTES_MAX;
use super::bundle::Bundle;
use super::protocol::Answer;
use super::worker::Worker;
use crate::not_started::Failure;
use crate::outputs::Outputs;
use falkon_core::execute::Event;
use falkon_core::result::{Captured as TaskCaptured, Detail, Outcome, Stream};
use falkon_core::task::Time;
use falkon_process::{Captured, Outcome as ProcessOutcome, Stage};
use std::sync::Arc;

/// Why there are no more workers that are copies of their client.
pub(super) const FORKED_ENDED: &str = "the process that workers are copied from \
    (template=\"fork\") has ended, and only its client could start another: create a new Executor";

/// Why a worker never came to take calls.
pub(super) fn not_ready(worker: &Worker) -> String {
    let language = &worker.home.language;
    if !worker.trouble.is_empty() {
        return format!("the {language} worker cannot take calls: {}", worker.trouble);
    }
    let Some(process) = &worker.ended else {
        return format!("the {language} worker was not started");
    };
    let how = match process.outcome {
        // A worker that is no copy of a client is started otherwise.
        ProcessOutcome::NotStarted { stage: Stage::Copy, errno } if errno != libc::ECANCELED => {
            return FORKED_ENDED.to_owned();
        }
        ProcessOutcome::NotStarted { stage, errno } => {
            let program = worker.command.first().map(Vec::as_slice).unwrap_or_default();
            let (program, cwd) = (program.to_vec(), worker.home.cwd.clone());
            let reason = Failure { program, cwd, stdin: None, stage, errno }.error();
            return format!(
                "the {language} worker cannot be started: {reason}; another command can be \
                 given with --worker {language}=COMMAND"
            );
        }
        ProcessOutcome::Exit(code) => format!("exited with {code}"),
        ProcessOutcome::Signal(signal) => format!("ended by signal {signal}"),
    };
    let said = String::from_utf8_lossy(&process.stderr.head);
    format!("the {language} worker {how} before it took calls: {}", said.trim_end())
}

/// Converts an answer into the end of its task.
pub(super) fn ended_call(
    bundle: &Bundle,
    answer: Answer,
    (started, ended): (Time, Time),
    outputs: &Outputs,
    capture_bytes_max: u64,
) -> Event {
    let key = bundle.key(answer.index);
    let Answer { code, mut value, mut error, mut cause, stdout, stderr, .. } = answer;
    let mut outcome = Outcome::Exit(code);
    if value.len() > VALUE_BYTES_MAX {
        outcome = Outcome::Exit(1);
        error = format!(
            "it returned {} bytes, and at most {VALUE_BYTES_MAX} can be sent: write large results \
             to a file",
            value.len()
        );
        value = Vec::new();
        cause = None;
    }
    let mut kept = |stream, captured: Captured| match captured.total_bytes {
        0 => TaskCaptured::default(),
        _ => outputs.adopted(key, stream, captured, capture_bytes_max, &mut error),
    };
    let (stdout, stderr) = (kept(Stream::Stdout, stdout), kept(Stream::Stderr, stderr));
    let says = !value.is_empty()
        || !error.is_empty()
        || cause.is_some()
        || stdout.total_bytes > 0
        || stderr.total_bytes > 0;
    let detail =
        says.then(|| Arc::new(Detail { stdout, stderr, error, value, cause, ..Detail::default() }));
    Event::Ended { key, outcome, started, ended, detail }
}
