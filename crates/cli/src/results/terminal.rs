//! Output of tasks, passed on as they end: each task's output in one piece.

use super::rest::{CutReason, Rest};
use super::{Sink, SinkError, TaskResult};
use crate::exit::say;
use falkon_core::result::{Captured, Stream};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

/// Copies all of a stream or, if the rest cannot be got, its first bytes.
/// Returns the bytes written, and why that is not all.
pub(crate) fn copy_stream(
    captured: &Captured,
    rest: &Rest,
    out: &mut impl Write,
) -> std::io::Result<(u64, Option<CutReason>)> {
    let head = captured.head.len() as u64;
    let reason = match rest {
        Rest::None => captured.is_cut().then_some(CutReason::NotKept),
        Rest::Cut(reason) => Some(*reason),
        Rest::Here(own) => match whole_file(own.path(), captured.total_bytes) {
            Ok(file) => {
                let copied = std::io::copy(&mut file.take(captured.total_bytes), out)?;
                let is_short = copied < captured.total_bytes;
                return Ok((copied, is_short.then_some(CutReason::Short)));
            }
            Err(reason) => Some(reason),
        },
    };
    out.write_all(&captured.head)?;
    Ok((head, reason))
}

/// Opens the file of a whole stream.
pub(super) fn whole_file(path: &Path, total_bytes: u64) -> Result<File, CutReason> {
    let file = File::open(path).map_err(|_| CutReason::Unreadable)?;
    let found = file.metadata().map_err(|_| CutReason::Unreadable)?.len();
    if found == total_bytes { Ok(file) } else { Err(CutReason::Short) }
}

/// The whole stream, if it is not longer than `bytes_max`; else its first
/// bytes, and the reason.
pub(crate) fn read_stream(
    captured: &Captured,
    rest: &Rest,
    bytes_max: u64,
) -> (Vec<u8>, Option<CutReason>) {
    if matches!(rest, Rest::Here(_)) && captured.total_bytes > bytes_max {
        return (captured.head.clone(), Some(CutReason::TooLong));
    }
    let mut text = Vec::new();
    match copy_stream(captured, rest, &mut text) {
        Ok((_, reason)) => (text, reason),
        Err(_) => (captured.head.clone(), Some(CutReason::Unreadable)),
    }
}

/// Prints that a stream was cut, and why.
pub(crate) fn tell_of_cut(
    result: &TaskResult,
    stream: Stream,
    bytes: u64,
    captured: &Captured,
    reason: CutReason,
) {
    say(format_args!(
        "{} of task {} is cut: {bytes} of {} bytes: {reason}",
        stream.name(),
        result.id(),
        captured.total_bytes
    ));
}

/// The end of a stream, as text without control characters but line feeds.
pub(crate) fn end_of_stream(captured: &Captured, rest: &Rest, bytes_max: u64) -> String {
    let end = match rest {
        Rest::Here(own) => whole_file(own.path(), captured.total_bytes)
            .ok()
            .and_then(|file| read_end(file, captured.total_bytes, bytes_max).ok()),
        Rest::None | Rest::Cut(_) => None,
    };
    // Without the rest, the end of what was sent.
    let head = || {
        let skip = captured.head.len().saturating_sub(bytes_max as usize);
        captured.head[skip..].to_vec()
    };
    let end = end.unwrap_or_else(head);
    let text = String::from_utf8_lossy(&end);
    text.trim().chars().filter(|c| *c == '\n' || *c == '\t' || !c.is_control()).collect()
}

fn read_end(mut file: File, length: u64, bytes_max: u64) -> std::io::Result<Vec<u8>> {
    file.seek(SeekFrom::Start(length.saturating_sub(bytes_max)))?;
    let mut end = Vec::new();
    file.take(bytes_max).read_to_end(&mut end)?;
    Ok(end)
}

/// Writes lines with a tag before each.
struct Tagged<'a, W> {
    out: &'a mut W,
    tag: &'a [u8],
    at_start: bool,
}

impl<W: Write> Write for Tagged<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            if self.at_start {
                self.out.write_all(self.tag)?;
            }
            self.out.write_all(line)?;
            self.at_start = line.ends_with(b"\n");
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.out.flush()
    }
}

/// Passes output on to standard output and standard error.
#[derive(Default)]
pub(crate) struct Terminal {
    /// Whether each line begins with the values of its task.
    tagged: bool,
}

impl Terminal {
    /// One that writes the values of a task before each of its lines.
    pub(crate) fn tagged() -> Terminal {
        Terminal { tagged: true }
    }

    fn pass_on(
        &self,
        result: &TaskResult,
        stream: Stream,
        out: &mut impl Write,
        what: &'static str,
    ) -> Result<(), SinkError> {
        let Some(detail) = &result.detail else { return Ok(()) };
        let captured = detail.stream(stream);
        if captured.total_bytes == 0 || captured.member.is_some() {
            return Ok(());
        }
        let rest = &result.rests[stream as usize];
        let copied = match self.tagged {
            true => {
                let tag = &tag(result);
                copy_stream(captured, rest, &mut Tagged { out: &mut *out, tag, at_start: true })
            }
            false => copy_stream(captured, rest, out),
        };
        let copied = copied.and_then(|copied| {
            out.flush()?;
            Ok(copied)
        });
        let (bytes, reason) = copied.map_err(SinkError::of(what))?;
        if let Some(reason) = reason {
            tell_of_cut(result, stream, bytes, captured, reason);
        }
        Ok(())
    }
}

/// What comes before each line of a task: its values, or its name.
fn tag(result: &TaskResult) -> Vec<u8> {
    let values = result.what.as_ref().map_or(&[][..], |what| &what.values);
    let values: Vec<&[u8]> = values.iter().map(|(_, value)| value.as_slice()).collect();
    let mut tag = match values.is_empty() {
        true => result.id().into_bytes(),
        false => values.join(&b' '),
    };
    tag.push(b'\t');
    tag
}

impl Sink for Terminal {
    fn take(&mut self, result: &TaskResult) -> Result<(), SinkError> {
        let out = &mut std::io::stdout().lock();
        self.pass_on(result, Stream::Stdout, out, "standard output")?;
        let out = &mut std::io::stderr();
        self.pass_on(result, Stream::Stderr, out, "standard error")
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// However the bytes come, each line has the tag once.
        #[test]
        fn every_line_has_its_tag(
            parts in prop::collection::vec(prop::collection::vec(
                prop::sample::select(b"ab\n".to_vec()), 0..6), 0..6),
        ) {
            let mut out = Vec::new();
            let mut tagged = Tagged { out: &mut out, tag: b"t\t", at_start: true };
            for part in &parts {
                tagged.write_all(part).unwrap();
            }
            let whole = String::from_utf8(parts.concat()).unwrap();
            let expected: String =
                whole.split_inclusive('\n').map(|line| format!("t\t{line}")).collect();
            prop_assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }
}
