//! Sources of values: files, lines, words, ranges.

use super::column::Column;
use super::error::PlanError;
use super::files;
use super::limits::VALUE_BYTES_MAX;
use super::members;
use super::range::Numbers;
use falkon_core::archive::member_start;
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Bytes read from a file at a time.
const READ_BUFFER_BYTES: usize = 1 << 18;

/// The values of one source, in order.
#[derive(Debug)]
pub(crate) enum Values {
    /// Stored one by one.
    Stored(Column),
    /// Computed.
    Range(Numbers),
}

/// What the values of a source are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ValueKind {
    /// Any texts.
    Texts,
    /// Files.
    Files,
    /// Files, and among them members of archives.
    Members,
}

/// The values of one source, and how they go with those of others.
#[derive(Debug)]
pub(crate) struct Source {
    /// The values.
    pub(crate) values: Values,
    /// What they are.
    pub(crate) kind: ValueKind,
    /// Whether they go with those of the source before it, one to one.
    pub(crate) with_previous: bool,
    /// The name of the column, for placeholders.
    pub(crate) name: Name,
}

/// The name of a source, if it has one.
pub(crate) type Name = Option<Vec<u8>>;

impl Source {
    /// A source that combines with all others.
    pub(crate) fn new(values: Values, kind: ValueKind) -> Source {
        Source { values, kind, with_previous: false, name: None }
    }

    /// How many values.
    pub(crate) fn len(&self) -> u64 {
        match &self.values {
            Values::Stored(column) => column.len(),
            Values::Range(numbers) => numbers.range.count,
        }
    }
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
    let kind = if has_members { ValueKind::Members } else { ValueKind::Files };
    Ok(Source::new(Values::Stored(column), kind))
}

/// The words of a command line.
///
/// # Errors
/// They are too long.
pub(crate) fn words(words: &[OsString]) -> Result<Column, PlanError> {
    let mut column = Column::default();
    for word in words {
        add(&mut column, word.as_bytes(), word)?;
    }
    Ok(column)
}

/// The columns of `values`, divided at each `separator`. `name` is for messages.
///
/// # Errors
/// A value has more or fewer columns than the first one.
pub(crate) fn split(
    values: &Column,
    separator: &[u8],
    name: &str,
) -> Result<Vec<Column>, PlanError> {
    let mut columns: Vec<Column> = Vec::new();
    for index in 0..values.len() {
        let mut rest = Some(values.at(index).unwrap_or_default());
        let mut found = 0;
        while let Some(text) = rest {
            let at = text.windows(separator.len()).position(|part| part == separator);
            let (value, next) = match at {
                Some(at) => (&text[..at], Some(&text[at + separator.len()..])),
                None => (text, None),
            };
            rest = next;
            if index == 0 {
                columns.push(Column::default());
            }
            if let Some(column) = columns.get_mut(found)
                && !column.push(value)
            {
                return Err(PlanError::TooManyBytes { name: name.to_owned() });
            }
            found += 1;
        }
        if found != columns.len() {
            let (name, line, columns) = (name.to_owned(), index + 1, columns.len());
            return Err(PlanError::UnevenColumns { name, line, found, columns });
        }
    }
    Ok(columns)
}

fn add(column: &mut Column, path: &[u8], pattern: &OsString) -> Result<(), PlanError> {
    match column.push(path) {
        true => Ok(()),
        false => Err(PlanError::TooManyBytes { name: pattern.to_string_lossy().into_owned() }),
    }
}

/// Opens the file of a `--each-line`, `--rows`, `--tasks` or `--workflow`.
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
        fn columns_are_what_split_gives(
            rows in prop::collection::vec(prop::collection::vec("[a-c]{0,3}", 3), 0..6),
        ) {
            let joined: Vec<OsString> = rows.iter().map(|row| row.join("::").into()).collect();
            let columns = split(&words(&joined).unwrap(), b"::", "values").unwrap();
            prop_assert_eq!(columns.len(), if rows.is_empty() { 0 } else { 3 });
            for (at, column) in (0..).zip(&columns) {
                for (line, row) in (0..).zip(&rows) {
                    let value: &String = &row[at];
                    prop_assert_eq!(column.at(line), Some(value.as_bytes()));
                }
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
