//! What tasks wrote, passed on as they end: each task's output in one piece.

use super::{Sink, SinkError, TaskResult};
use crate::exit::say;
use falkon_core::result::Captured;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Copies a stream as far as it was kept: from the overflow file if there is
/// one here, else the head. Returns the bytes written.
pub(crate) fn copy_stream(captured: &Captured, out: &mut impl Write) -> std::io::Result<u64> {
    if let Some(file) = captured.file.as_ref().filter(|_| captured.is_cut())
        && let Ok(mut file) = File::open(Path::new(OsStr::from_bytes(file)))
    {
        return std::io::copy(&mut file, out);
    }
    out.write_all(&captured.head)?;
    Ok(captured.head.len() as u64)
}

/// Says where the rest of a stream is that was too long to be sent.
fn tell_of_cut(result: &TaskResult, name: &str, captured: &Captured) {
    let Some(file) = captured.file.as_ref().filter(|_| captured.is_cut()) else { return };
    let file = Path::new(OsStr::from_bytes(file));
    if !file.exists() {
        say(format_args!(
            "{name} of task {} is cut: {} of {} bytes; all of it is on {} in {}",
            result.id(),
            captured.head.len(),
            captured.total_bytes,
            result.executor.as_deref().unwrap_or("its executor"),
            file.display()
        ));
    }
}

/// The end of a stream, as text without control characters but line feeds.
pub(crate) fn end_of_stream(captured: &Captured, bytes_max: u64) -> String {
    let mut end = None;
    if let Some(file) = captured.file.as_ref().filter(|_| captured.is_cut()) {
        end = read_end(Path::new(OsStr::from_bytes(file)), bytes_max).ok();
    }
    // What is on another machine cannot be had: then the end of what was sent.
    let head = || {
        let skip = captured.head.len().saturating_sub(bytes_max as usize);
        captured.head[skip..].to_vec()
    };
    let end = end.unwrap_or_else(head);
    let text = String::from_utf8_lossy(&end);
    text.trim().chars().filter(|c| *c == '\n' || *c == '\t' || !c.is_control()).collect()
}

fn read_end(path: &Path, bytes_max: u64) -> std::io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(bytes_max)))?;
    let mut end = Vec::new();
    file.take(bytes_max).read_to_end(&mut end)?;
    Ok(end)
}

/// Removes the overflow file that was copied.
pub(crate) fn remove_overflow(captured: &Captured) {
    if let Some(file) = &captured.file {
        // Another program may have cleaned up before.
        let _ = std::fs::remove_file(Path::new(OsStr::from_bytes(file)));
    }
}

/// Passes output on to standard output and standard error.
pub(crate) struct Terminal {
    /// Overflow files are ours: they go when they were copied.
    pub(crate) owns_overflow: bool,
}

impl Sink for Terminal {
    fn take(&mut self, result: &TaskResult) -> Result<(), SinkError> {
        let Some(detail) = &result.detail else { return Ok(()) };
        if detail.stdout.total_bytes > 0 {
            let mut out = std::io::stdout().lock();
            copy_stream(&detail.stdout, &mut out)
                .and_then(|_| out.flush())
                .map_err(SinkError::of("standard output"))?;
        }
        if detail.stderr.total_bytes > 0 {
            copy_stream(&detail.stderr, &mut std::io::stderr().lock())
                .map_err(SinkError::of("standard error"))?;
        }
        if !self.owns_overflow {
            tell_of_cut(result, "stdout", &detail.stdout);
            tell_of_cut(result, "stderr", &detail.stderr);
        }
        if self.owns_overflow {
            remove_overflow(&detail.stdout);
            remove_overflow(&detail.stderr);
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        Ok(())
    }
}
