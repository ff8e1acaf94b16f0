//! Sources of values: files, lines, ranges.

use super::column::Column;
use super::error::PlanError;
use super::files;
use super::limits::VALUE_BYTES_MAX;
use super::members;
use falkon_core::archive::member_start;
use falkon_core::task::Range;
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Bytes read from a file at a time.
const READ_BUFFER_BYTES: usize = 1 << 18;

/// The values of one source, in order.
#[derive(Debug)]
pub(crate) enum Source {
    /// Stored one by one.
    Values(Column),
    /// The same; some of them are members of archives.
    Members(Column),
    /// Computed.
    Range(Range),
}

impl Source {
    /// How many values.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Source::Values(column) | Source::Members(column) => column.len(),
            Source::Range(range) => range.count,
        }
    }
}

/// Why a text is not a range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RangeError {
    /// Not `A-B` or `A-B:STEP`.
    #[error(
        "`{0}` is not a range: write FIRST-LAST or FIRST-LAST:STEP in whole numbers, such as \
         1-100, 0-90:10, 10-1:-1 or -5-5"
    )]
    Malformed(String),
    /// A number with leading zeros, which values would not have.
    #[error(
        "the values of the range `{0}` would have no leading zeros: leave those out, or give lines \
         that have them, as `seq -w` makes them (--each-line -)"
    )]
    Padded(String),
    /// A step of 0.
    #[error("the range `{0}` has a step of 0 and would never end")]
    NoStep(String),
    /// The step leads away from the end.
    #[error("the step of the range `{text}` leads away from its end: give a step such as {step}")]
    Away {
        /// The range as it was written.
        text: String,
        /// A step that would do.
        step: &'static str,
    },
    /// 2^63 values or more.
    #[error("the range `{0}` has too many values")]
    TooLong(String),
}

/// The range written as `FIRST-LAST[:STEP]`, both ends included.
///
/// # Errors
/// The range is malformed, or its step is 0 or leads away from its end.
pub(crate) fn range(text: &str) -> Result<Range, RangeError> {
    let malformed = || RangeError::Malformed(text.to_owned());
    let (ends, step) = match text.split_once(':') {
        Some((ends, step)) => (ends, step.parse::<i64>().map_err(|_| malformed())?),
        None => (text, 1),
    };
    // The first character may be a sign; the next `-` divides.
    let divide = ends.char_indices().skip(1).find(|(_, c)| *c == '-').ok_or_else(malformed)?.0;
    let first = ends[..divide].parse::<i64>().map_err(|_| malformed())?;
    let last = ends[divide + 1..].parse::<i64>().map_err(|_| malformed())?;
    let is_padded = |number: &str| {
        let digits = number.trim_start_matches(['-', '+']);
        digits.len() > 1 && digits.starts_with('0')
    };
    if is_padded(&ends[..divide]) || is_padded(&ends[divide + 1..]) {
        return Err(RangeError::Padded(text.to_owned()));
    }
    if step == 0 {
        return Err(RangeError::NoStep(text.to_owned()));
    }
    let distance = i128::from(last) - i128::from(first);
    let steps = distance / i128::from(step);
    if distance != 0 && (distance > 0) != (step > 0) {
        let step = if distance > 0 { ":1" } else { ":-1" };
        return Err(RangeError::Away { text: text.to_owned(), step });
    }
    let count = u64::try_from(steps + 1).ok().filter(|count| *count <= 1 << 62);
    let count = count.ok_or_else(|| RangeError::TooLong(text.to_owned()))?;
    Ok(Range { start: first, step, count })
}

/// The files that `patterns` name, and the members of archives (`ARCHIVE!PATTERN`). A name that
/// exists is itself, whatever characters it has: a shell may have expanded the pattern already.
///
/// # Errors
/// A pattern matches nothing, or a file is not there. `maybe_command` says
/// that no command followed, which then is perhaps among the names.
pub(crate) fn files(patterns: &[OsString], maybe_command: bool) -> Result<Source, PlanError> {
    let mut column = Column::default();
    let mut has_members = false;
    for pattern in patterns {
        let text = pattern.as_bytes();
        if files::as_path(text).symlink_metadata().is_ok() {
            add(&mut column, text, pattern)?;
            continue;
        }
        let shown = || pattern.to_string_lossy().into_owned();
        if member_start(text).is_some() {
            has_members = true;
            members::add(pattern, &mut |value| add(&mut column, value, pattern))?;
            continue;
        }
        if !files::is_pattern(text) {
            return Err(PlanError::NoSuchFile { path: shown(), maybe_command });
        }
        let found = files::expand(text);
        if found.is_empty() {
            return Err(PlanError::NoMatch { pattern: shown() });
        }
        for path in &found {
            add(&mut column, path, pattern)?;
        }
    }
    Ok(if has_members { Source::Members(column) } else { Source::Values(column) })
}

fn add(column: &mut Column, path: &[u8], pattern: &OsString) -> Result<(), PlanError> {
    match column.push(path) {
        true => Ok(()),
        false => Err(PlanError::TooManyBytes { name: pattern.to_string_lossy().into_owned() }),
    }
}

/// Opens the file of a `--each-line`, `--tasks` or `--workflow`.
///
/// # Errors
/// The file does not exist, is not readable, or is a directory.
pub(crate) fn open(path: &Path) -> Result<BufReader<File>, PlanError> {
    let read = |source| PlanError::Read { path: path.display().to_string(), source };
    let file = File::open(path).map_err(read)?;
    if file.metadata().map_err(read)?.is_dir() {
        return Err(PlanError::Directory { path: path.display().to_string() });
    }
    Ok(BufReader::with_capacity(READ_BUFFER_BYTES, file))
}

/// The lines of `from`, without their ends: a line feed, or a carriage return
/// and a line feed. `name` is for messages.
///
/// # Errors
/// The file cannot be read, or a line cannot be an argument.
pub(crate) fn lines(from: &mut dyn BufRead, name: &str) -> Result<Column, PlanError> {
    let mut column = Column::default();
    let mut line = Vec::new();
    // One more for the line feed, one more to see that a line is too long.
    let limit = VALUE_BYTES_MAX as u64 + 2;
    loop {
        line.clear();
        let read = (&mut *from)
            .take(limit)
            .read_until(b'\n', &mut line)
            .map_err(|source| PlanError::Read { path: name.to_owned(), source })?;
        if read == 0 {
            return Ok(column);
        }
        if line.last() == Some(&b'\n') {
            line.pop();
            if line.last() == Some(&b'\r') {
                line.pop();
            }
        }
        let number = column.len() + 1;
        if line.contains(&0) {
            return Err(PlanError::NulByte { path: name.to_owned(), line: number });
        }
        if line.len() > VALUE_BYTES_MAX {
            return Err(PlanError::LongLine { path: name.to_owned(), line: number });
        }
        if !column.push(&line) {
            return Err(PlanError::TooManyBytes { name: name.to_owned() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn values(text: &str) -> Vec<i64> {
        let range = range(text).unwrap();
        (0..range.count).map(|index| range.value(index)).collect()
    }

    #[test]
    fn ranges_are_read() {
        assert_eq!(values("1-3"), [1, 2, 3]);
        assert_eq!(values("5-5"), [5]);
        assert_eq!(values("0-9:4"), [0, 4, 8]);
        assert_eq!(values("-2-1"), [-2, -1, 0, 1]);
        assert_eq!(values("-3--1"), [-3, -2, -1]);
        assert_eq!(values("3-1:-1"), [3, 2, 1]);
        assert_eq!(values("1--3:-2"), [1, -1, -3]);
        assert_eq!(range("1-1000000000000").unwrap().count, 1_000_000_000_000);
        assert_eq!(values("9223372036854775807-9223372036854775807"), [i64::MAX]);
    }

    #[test]
    fn malformed_ranges_are_refused() {
        for text in ["", "1", "1-", "a-b", "-", "--", "1-2-3", "1-5:", "1-5:x", "1.5-2", "1-2:3:4"]
        {
            assert_eq!(range(text), Err(RangeError::Malformed(text.to_owned())), "{text}");
        }
        for text in ["008-010", "1-05", "-01-1", "00-1"] {
            assert_eq!(range(text), Err(RangeError::Padded(text.to_owned())), "{text}");
        }
        assert_eq!(range("1-5:0"), Err(RangeError::NoStep("1-5:0".to_owned())));
        assert!(matches!(range("5-1"), Err(RangeError::Away { step: ":-1", .. })));
        assert!(matches!(range("1-5:-1"), Err(RangeError::Away { step: ":1", .. })));
        assert!(matches!(
            range("-9223372036854775808-9223372036854775807"),
            Err(RangeError::TooLong(_))
        ));
    }

    #[test]
    fn lines_that_cannot_be_arguments_are_refused() {
        let read = |text: &[u8]| lines(&mut &text[..], "list");
        assert!(matches!(read(b"a\nb\0c\n"), Err(PlanError::NulByte { line: 2, .. })));
        let mut long = vec![b'x'; VALUE_BYTES_MAX];
        assert_eq!(read(&long).unwrap().len(), 1);
        long.push(b'\n');
        assert_eq!(read(&long).unwrap().len(), 1);
        long.insert(0, b'x');
        assert!(matches!(read(&long), Err(PlanError::LongLine { line: 1, .. })));
    }

    proptest! {
        #[test]
        fn a_range_counts_as_a_loop_does(
            first in -20i64..20, last in -20i64..20, step in -7i64..7,
        ) {
            let mut expected = Vec::new();
            let mut value = first;
            while step != 0 && (if step > 0 { value <= last } else { value >= last }) {
                expected.push(value);
                value += step;
            }
            match range(&format!("{first}-{last}:{step}")) {
                Ok(range) => {
                    let found: Vec<i64> = (0..range.count).map(|at| range.value(at)).collect();
                    prop_assert_eq!(found, expected);
                }
                Err(_) => prop_assert!(expected.is_empty()),
            }
        }

        #[test]
        fn lines_are_what_split_gives(bytes in prop::collection::vec(1u8..14, 0..60)) {
            let column = lines(&mut &bytes[..], "list").unwrap();
            let mut expected: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
            let last = expected.pop();
            for line in &mut expected {
                *line = line.strip_suffix(b"\r").unwrap_or(line);
            }
            expected.extend(last.filter(|last| !last.is_empty()));
            let found: Vec<&[u8]> = (0..column.len()).map(|at| column.at(at).unwrap()).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
