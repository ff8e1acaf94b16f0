//! A result as one line of JSON: what `--json` prints and `results.jsonl`
//! holds.

use super::staged::JsonData;
use super::{Kept, Sink, SinkError, TaskResult, Times};
use falkon_core::result::{Captured, Detail, Outcome, Status};
use falkon_core::task::Time;
use serde::Serialize;
use serde_json::value::RawValue;
use std::io::Write;

/// The fields of a line, in order.
#[derive(Serialize)]
pub(crate) struct Line<'a> {
    id: String,
    index: u64,
    status: &'static str,
    exit_code: Option<i32>,
    signal: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stdout: Option<std::borrow::Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stderr: Option<std::borrow::Cow<'a, str>>,
    /// Present if `stdout` is not all there was.
    #[serde(skip_serializing_if = "Option::is_none")]
    stdout_cut: Option<Cut>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stderr_cut: Option<Cut>,
    /// In `results.jsonl`: where in the file `stdout` the task's output is, as
    /// offset and length in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    stdout_at: Option<(u64, u64)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stderr_at: Option<(u64, u64)>,
    executor: Option<&'a str>,
    attempts: u32,
    times: JsonTimes,
    /// Present if it read data objects: where they came from.
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<JsonData>,
    error: Option<String>,
    /// What a function returned, if that is JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<&'a RawValue>,
    /// What it returned otherwise, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    value_repr: Option<std::borrow::Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
}

/// Output that is longer than what is kept: all of it is in a file where it
/// was captured, if it could be written there.
#[derive(Serialize)]
struct Cut {
    total_bytes: u64,
    file: Option<String>,
    /// Where in the file it begins, if other output is there too.
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<u64>,
}

impl Cut {
    fn of(captured: &Captured, kept: Option<&Kept>) -> Cut {
        // What was captured on another machine may not have come in full.
        let kept = kept.filter(|kept| kept.length == captured.total_bytes);
        let file = match kept {
            Some(kept) => Some(kept.path.to_string_lossy().into_owned()),
            None => captured.file.as_ref().map(|file| String::from_utf8_lossy(file).into_owned()),
        };
        Cut { total_bytes: captured.total_bytes, file, offset: kept.map(|kept| kept.offset) }
    }
}

/// Seconds since the Unix epoch; `null` for what did not happen.
#[derive(Serialize)]
struct JsonTimes {
    queued: f64,
    dispatched: Option<f64>,
    started: Option<f64>,
    ended: f64,
    delivered: f64,
}

impl JsonTimes {
    fn of(times: &Times, ran: bool) -> JsonTimes {
        let seconds = |time: Time| time.0 as f64 / 1e6;
        JsonTimes {
            queued: seconds(times.queued),
            dispatched: ran.then(|| seconds(times.dispatched)),
            started: ran.then(|| seconds(times.started)),
            ended: seconds(times.ended),
            delivered: seconds(times.delivered),
        }
    }
}

impl<'a> Line<'a> {
    /// A result's line, with or without what it wrote.
    pub(crate) fn of(result: &'a TaskResult, with_output: bool) -> Line<'a> {
        let stream = |pick: fn(&Detail) -> &Captured, kept: &Option<Kept>| {
            let captured = result.detail.as_deref().map(pick);
            let text = with_output.then(|| {
                captured.map(|captured| String::from_utf8_lossy(&captured.head)).unwrap_or_default()
            });
            let cut = captured.filter(|captured| with_output && captured.is_cut());
            (text, cut.map(|captured| Cut::of(captured, kept.as_ref())))
        };
        let value = result.detail.as_deref().map(|detail| detail.value.as_slice());
        // The first byte says the form; see docs/workers.md.
        let (value, value_repr) = match value.and_then(<[u8]>::split_first) {
            Some((b'j', json)) => match serde_json::from_slice(json) {
                Ok(value) => (Some(value), None),
                Err(_) => (None, Some(String::from_utf8_lossy(json))),
            },
            Some((b'r', text)) => (None, Some(String::from_utf8_lossy(text))),
            _ => (None, None),
        };
        let (stdout, stdout_cut) = stream(|detail| &detail.stdout, &result.kept[0]);
        let (stderr, stderr_cut) = stream(|detail| &detail.stderr, &result.kept[1]);
        Line {
            id: result.id(),
            index: result.index,
            status: match result.status() {
                Status::Done => "done",
                Status::Failed => "failed",
                Status::Cancelled => "cancelled",
            },
            exit_code: match result.outcome {
                Outcome::Exit(code) => Some(code),
                _ => None,
            },
            signal: match result.outcome {
                Outcome::Signal(signal) => Some(signal),
                _ => None,
            },
            stdout,
            stderr,
            stdout_cut,
            stderr_cut,
            stdout_at: None,
            stderr_at: None,
            executor: result.executor.as_deref(),
            attempts: result.attempts,
            times: JsonTimes::of(&result.times, result.attempts > 0),
            data: result.detail.as_deref().and_then(JsonData::of),
            error: result.error(),
            value,
            value_repr,
            digest: result
                .digest
                .map(|digest| digest.iter().map(|byte| format!("{byte:02x}")).collect()),
        }
    }

    /// A result's line with the places of what it wrote.
    pub(crate) fn kept(result: &'a TaskResult, kept: &[Option<Kept>; 2]) -> Line<'a> {
        let stream = |pick: fn(&Detail) -> &Captured, kept: &Option<Kept>| {
            let captured = result.detail.as_deref().map(pick);
            let length = kept.as_ref().map_or(0, |kept| kept.length);
            let cut = captured.filter(|captured| length < captured.total_bytes);
            let place = kept.as_ref().map(|kept| (kept.offset, kept.length));
            (place, cut.map(|captured| Cut::of(captured, None)))
        };
        let (stdout_at, stdout_cut) = stream(|detail| &detail.stdout, &kept[0]);
        let (stderr_at, stderr_cut) = stream(|detail| &detail.stderr, &kept[1]);
        Line { stdout_at, stderr_at, stdout_cut, stderr_cut, ..Line::of(result, false) }
    }

    /// Writes the line.
    pub(crate) fn write(&self, out: &mut impl Write) -> std::io::Result<()> {
        serde_json::to_writer(&mut *out, self)?;
        out.write_all(b"\n")
    }
}

/// Prints a line of JSON per result.
pub(crate) struct Json<W: Write> {
    out: std::io::BufWriter<W>,
}

impl<W: Write> Json<W> {
    pub(crate) fn new(out: W) -> Json<W> {
        Json { out: std::io::BufWriter::with_capacity(1 << 16, out) }
    }
}

impl<W: Write> Sink for Json<W> {
    fn take(&mut self, result: &TaskResult) -> Result<(), SinkError> {
        Line::of(result, true).write(&mut self.out).map_err(SinkError::of("standard output"))
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        self.out.flush().map_err(SinkError::of("standard output"))
    }
}
