//! `--results`: a folder per task, named after its values, as GNU parallel makes it.

use super::terminal::{copy_stream, tell_of_cut};
use super::{Sink, SinkError, TaskResult};
use falkon_core::result::Stream;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// The longest name of a folder, in bytes; file systems have 255.
const NAME_BYTES_MAX: usize = 200;

/// See the [module](self).
pub(crate) struct Tree {
    top: PathBuf,
}

impl Tree {
    /// Begins a tree.
    ///
    /// # Errors
    /// Its folder cannot be made.
    pub(crate) fn create(top: &Path) -> io::Result<Tree> {
        std::fs::create_dir_all(top)?;
        Ok(Tree { top: top.to_owned() })
    }

    fn write(&self, result: &TaskResult) -> io::Result<()> {
        let folder = self.top.join(folder(result));
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join("seq"), (result.index + 1).to_string())?;
        for stream in [Stream::Stdout, Stream::Stderr] {
            let mut out = BufWriter::new(File::create(folder.join(stream.name()))?);
            let Some(detail) = &result.detail else { continue };
            let captured = detail.stream(stream);
            let (bytes, cut) = copy_stream(captured, &result.rests[stream as usize], &mut out)?;
            out.flush()?;
            if let Some(reason) = cut {
                tell_of_cut(result, stream, bytes, captured, reason);
            }
        }
        Ok(())
    }
}

/// The folder of a task below the top: its values with the numbers or names of their sources.
fn folder(result: &TaskResult) -> PathBuf {
    let values = result.what.as_ref().map_or(&[][..], |what| &what.values);
    if values.is_empty() {
        return PathBuf::from(part(result.id().as_bytes(), result.index));
    }
    let parts = values.iter().flat_map(|(name, value)| [name.as_bytes(), value.as_slice()]);
    parts.map(|text| part(text, result.index)).collect()
}

/// A text as the name of a folder. Texts that are cut have the task's number behind them.
fn part(text: &[u8], index: u64) -> OsString {
    let mut name = Vec::with_capacity(text.len());
    for &byte in text {
        match byte {
            b'\\' => name.extend(b"\\\\"),
            b'\t' => name.extend(b"\\t"),
            b'/' => name.extend(b"\\_"),
            byte => name.push(byte),
        }
    }
    if matches!(name.as_slice(), b"" | b"." | b"..") {
        name.push(b'\\');
    }
    if name.len() > NAME_BYTES_MAX {
        name.truncate(NAME_BYTES_MAX);
        name.extend(format!("\\{}", index + 1).into_bytes());
    }
    OsString::from_vec(name)
}

impl Sink for Tree {
    fn take(&mut self, result: &TaskResult) -> Result<(), SinkError> {
        let name = self.top.display().to_string();
        self.write(result).map_err(SinkError::of(&name))
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::part;

    #[test]
    fn values_are_names_that_lead_nowhere_else() {
        for (value, name) in [
            ("a b", "a b"),
            ("d/e.f", "d\\_e.f"),
            ("a\\b\tc", "a\\\\b\\tc"),
            ("", "\\"),
            (".", ".\\"),
            ("..", "..\\"),
            ("/", "\\_"),
        ] {
            assert_eq!(part(value.as_bytes(), 0), name, "{value:?}");
        }
        let long = part(&[b'x'; 5000], 41);
        assert!(long.len() < 255 && long.to_str().unwrap().ends_with("\\42"));
    }
}
