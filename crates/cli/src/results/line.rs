//! A result as one line of JSON: what `--json` prints and `results.jsonl`
//! holds.

use super::rest::CutReason;
use super::staged::JsonData;
use super::terminal::read_stream;
use super::usage::JsonUsage;
use super::{FileSpan, Sink, SinkError, TaskResult, Times};
use falkon_core::result::{Captured, Cause, Detail, Outcome, Status, Stream};
use falkon_core::task::{MILLI, Time};
use serde::Serialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::io::Write;

/// Bytes of one stream that are read into a line beyond what came with the
/// result.
pub(crate) const TEXT_BYTES_MAX: u64 = 16 << 20;

/// The fields of a line, in order.
#[derive(Serialize)]
pub(crate) struct Line<'a> {
    id: String,
    index: u64,
    status: &'static str,
    /// Present if what ran is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<&'a str>,
    /// Present if it is known and has values: what its sources gave it.
    #[serde(skip_serializing_if = "Option::is_none")]
    values: Option<Values<'a>>,
    exit_code: Option<i32>,
    signal: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stdout: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stderr: Option<Cow<'a, str>>,
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
    /// Present if an archive has the output: `ARCHIVE!MEMBER`.
    #[serde(skip_serializing_if = "Option::is_none")]
    stdout_member: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stderr_member: Option<&'a str>,
    /// Where its collected outputs are: `ARCHIVE!MEMBER` of each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    outputs: Vec<&'a str>,
    executor: Option<&'a str>,
    attempts: u32,
    /// Present if its class has alternatives: which one it had, from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    alternative: Option<u32>,
    /// Present if its executor found out how much it needs: what it was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    given: Option<JsonGiven>,
    times: JsonTimes,
    /// Present if it read data objects: where they came from.
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<JsonData>,
    /// Present if it was measured: what its process used.
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<JsonUsage>,
    error: Option<String>,
    /// Present if there is a name for why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<&'static str>,
    /// The value that a function returned, if it is JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<&'a RawValue>,
    /// The value that a function returned otherwise, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    value_repr: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
}

/// The values of a task, each with the name or the number of its source.
struct Values<'a>(&'a [(String, Vec<u8>)]);

impl Serialize for Values<'_> {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.0.iter().map(|(name, value)| (name, String::from_utf8_lossy(value))))
    }
}

/// Output that is longer than the text of the line: all of it is in a file, or
/// the rest cannot be got.
#[derive(Serialize)]
struct Cut {
    total_bytes: u64,
    /// In `--out`, the file that has all of it.
    file: Option<String>,
    /// Where in the file it begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<u64>,
    /// Without a file: why.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<&'static str>,
}

impl Cut {
    fn within(captured: &Captured, kept: &FileSpan) -> Cut {
        Cut {
            total_bytes: captured.total_bytes,
            file: Some(kept.path.to_string_lossy().into_owned()),
            offset: Some(kept.offset),
            why: None,
        }
    }

    fn for_good(captured: &Captured, reason: CutReason) -> Cut {
        let total_bytes = captured.total_bytes;
        Cut { total_bytes, file: None, offset: None, why: Some(reason.word()) }
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
        let text = |stream: Stream| match (with_output, result.detail.as_deref()) {
            (false, _) => (None, None),
            (true, None) => (Some(Cow::Borrowed("")), None),
            (true, Some(detail)) => {
                let (text, cut) = text_of(result, stream, detail.stream(stream));
                (Some(text), cut)
            }
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
        let member = |stream: Stream| {
            result.detail.as_deref().and_then(|detail| detail.stream(stream).member.as_deref())
        };
        let (stdout, stdout_cut) = text(Stream::Stdout);
        let (stderr, stderr_cut) = text(Stream::Stderr);
        Line {
            id: result.id(),
            index: result.index,
            status: match result.status() {
                Status::Done => "done",
                Status::Failed => "failed",
                Status::Cancelled => "cancelled",
            },
            command: result.what.as_ref().map(|what| what.command.as_str()),
            values: result
                .what
                .as_ref()
                .filter(|what| !what.values.is_empty())
                .map(|what| Values(&what.values)),
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
            stdout_member: member(Stream::Stdout),
            outputs: result
                .detail
                .iter()
                .flat_map(|detail| &detail.outputs)
                .map(String::as_str)
                .collect(),
            stderr_member: member(Stream::Stderr),
            executor: result.executor.as_deref(),
            attempts: result.attempts,
            alternative: result
                .detail
                .as_deref()
                .and_then(|detail| detail.alternative.checked_sub(1)),
            given: result.detail.as_deref().and_then(JsonGiven::of),
            times: JsonTimes::of(&result.times, result.has_run()),
            data: result.detail.as_deref().and_then(JsonData::of),
            usage: JsonUsage::of(result),
            error: result.error(),
            cause: result.detail.as_deref().and_then(|detail| detail.cause).map(Cause::name),
            value,
            value_repr,
            digest: result
                .digest
                .map(|digest| digest.iter().map(|byte| format!("{byte:02x}")).collect()),
        }
    }

    /// A result's line with the places of what it wrote.
    pub(crate) fn kept(result: &'a TaskResult, kept: &[Option<FileSpan>; 2]) -> Line<'a> {
        let place = |stream: Stream| {
            let Some(kept) = &kept[stream as usize] else { return (None, None) };
            let captured = result.detail.as_deref().map(|detail| detail.stream(stream));
            let cut = captured.zip(kept.cut).map(|(captured, why)| Cut::for_good(captured, why));
            (Some((kept.offset, kept.length)), cut)
        };
        let (stdout_at, stdout_cut) = place(Stream::Stdout);
        let (stderr_at, stderr_cut) = place(Stream::Stderr);
        Line { stdout_at, stderr_at, stdout_cut, stderr_cut, ..Line::of(result, false) }
    }

    /// Writes the line.
    pub(crate) fn write(&self, out: &mut impl Write) -> std::io::Result<()> {
        serde_json::to_writer(&mut *out, self)?;
        out.write_all(b"\n")
    }
}

/// The resources that a task was given by `--cpus auto` and `--memory auto`.
#[derive(Debug, Serialize)]
pub(crate) struct JsonGiven {
    #[serde(skip_serializing_if = "Option::is_none")]
    cpus: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_bytes: Option<u64>,
}

impl JsonGiven {
    /// `None` if the task asked for certain amounts.
    pub(crate) fn of(detail: &Detail) -> Option<JsonGiven> {
        let milli = Some(detail.given_cpus_milli).filter(|milli| *milli > 0);
        let memory_bytes = Some(detail.given_memory_bytes).filter(|bytes| *bytes > 0);
        let cpus = milli.map(|milli| f64::from(milli) / f64::from(MILLI));
        (cpus.is_some() || memory_bytes.is_some()).then_some(JsonGiven { cpus, memory_bytes })
    }
}

/// The text of a stream: all of it, unless it is kept in a file besides, too
/// long, or cannot be got.
fn text_of<'a>(
    result: &TaskResult,
    stream: Stream,
    captured: &'a Captured,
) -> (Cow<'a, str>, Option<Cut>) {
    let head = || String::from_utf8_lossy(&captured.head);
    if !captured.is_cut() {
        return (head(), None);
    }
    match &result.kept[stream as usize] {
        Some(kept) if kept.cut.is_none() => (head(), Some(Cut::within(captured, kept))),
        Some(FileSpan { cut: Some(reason), .. }) => {
            (head(), Some(Cut::for_good(captured, *reason)))
        }
        _ => {
            let rest = &result.rests[stream as usize];
            let (text, reason) = read_stream(captured, rest, TEXT_BYTES_MAX);
            let text = String::from_utf8_lossy(&text).into_owned();
            (text.into(), reason.map(|reason| Cut::for_good(captured, reason)))
        }
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
