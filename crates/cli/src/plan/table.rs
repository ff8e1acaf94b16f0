//! Tables of values: CSV, TSV and JSON Lines, whose columns have names.

use super::column::Column;
use super::error::{PlanError, TableError};
use super::limits::VALUE_BYTES_MAX;
use super::texts::{Map, json_message};
use serde_json::value::RawValue;
use std::io::BufRead;

/// Most columns of a table.
const COLUMNS_MAX: usize = 4096;
/// The longest line of JSON.
const LINE_BYTES_MAX: u64 = 16 << 20;

/// A table in memory: each column's name, and its values.
#[derive(Debug, Default)]
pub(crate) struct Table {
    /// The names, in order.
    pub(crate) names: Vec<Vec<u8>>,
    /// The values of each column.
    pub(crate) columns: Vec<Column>,
}

/// How a table is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    /// Values between these bytes; those in double quotes may have any bytes.
    Separated(u8),
    JsonLines,
}

/// The format that the name of a file says, or else its first line.
fn format(name: &str, first_line: &[u8]) -> Format {
    let extension = name.rsplit_once('.').map(|(_, extension)| extension.to_ascii_lowercase());
    match extension.as_deref() {
        Some("csv") => Format::Separated(b','),
        Some("tsv" | "tab") => Format::Separated(b'\t'),
        Some("jsonl" | "ndjson") => Format::JsonLines,
        _ if first_line.trim_ascii_start().starts_with(b"{") => Format::JsonLines,
        _ if first_line.contains(&b'\t') => Format::Separated(b'\t'),
        _ => Format::Separated(b','),
    }
}

/// Reads a table; `name` is that of its file, for its format and for messages.
///
/// # Errors
/// It cannot be read, or is no table, or a value cannot be an argument.
pub(crate) fn read(from: &mut dyn BufRead, name: &str) -> Result<Table, PlanError> {
    let unread = |source| PlanError::Read { path: name.to_owned(), source };
    let wrong = |line, error| PlanError::Table { name: name.to_owned(), line, error };
    let begin = from.fill_buf().map_err(unread)?;
    // A mark of the order of bytes, as some programs write it.
    if begin.starts_with(b"\xef\xbb\xbf") {
        from.consume(3);
    }
    let begin = from.fill_buf().map_err(unread)?;
    let first_line = begin.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let mut table = Table::default();
    match format(name, first_line) {
        Format::JsonLines => read_json(from, name, &mut table)?,
        Format::Separated(separator) => {
            let mut records = Records { from, separator, line: 0 };
            let mut fields = Vec::new();
            while let Some(line) = records.next(&mut fields, &unread, &wrong)? {
                table.take(&fields).map_err(|error| wrong(line, error))?;
            }
        }
    }
    Ok(table)
}

impl Table {
    /// How many rows there are.
    pub(crate) fn len(&self) -> u64 {
        self.columns.first().map_or(0, Column::len)
    }

    /// Takes a record: the first one has the names.
    fn take(&mut self, fields: &[Vec<u8>]) -> Result<(), TableError> {
        if self.names.is_empty() {
            return self.set_names(fields.to_vec());
        }
        if fields.len() != self.names.len() {
            let (found, columns) = (fields.len(), self.names.len());
            return Err(TableError::Uneven { found, columns });
        }
        (0..).zip(fields).try_for_each(|(at, value)| self.push(at, value))
    }

    fn set_names(&mut self, names: Vec<Vec<u8>>) -> Result<(), TableError> {
        if names.len() > COLUMNS_MAX {
            return Err(TableError::TooManyColumns { columns: names.len() });
        }
        let mut sorted: Vec<&Vec<u8>> = names.iter().filter(|name| !name.is_empty()).collect();
        sorted.sort_unstable();
        if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            let name = String::from_utf8_lossy(pair[0]).into_owned();
            return Err(TableError::NameTwice { name });
        }
        self.columns = names.iter().map(|_| Column::default()).collect();
        self.names = names;
        Ok(())
    }

    fn push(&mut self, at: usize, value: &[u8]) -> Result<(), TableError> {
        let column = String::from_utf8_lossy(&self.names[at]);
        if value.contains(&0) {
            return Err(TableError::Nul { column: column.into_owned() });
        }
        if value.len() > VALUE_BYTES_MAX || !self.columns[at].push(value) {
            return Err(TableError::Long { column: column.into_owned() });
        }
        Ok(())
    }

    /// Takes an object of JSON: the first one has the names.
    fn take_object(&mut self, line: &str) -> Result<(), TableError> {
        let object: Map<'_, &RawValue> =
            serde_json::from_str(line).map_err(|error| TableError::Json(json_message(&error)))?;
        let Map(entries) = object;
        if self.names.is_empty() {
            let names = entries.iter().map(|(name, _)| name.bytes().to_vec());
            self.set_names(names.collect())?;
        }
        let (found, columns) = (entries.len(), self.names.len());
        if found != columns {
            return Err(TableError::Uneven { found, columns });
        }
        for (place, (name, value)) in entries.iter().enumerate() {
            let is_it = |known: &Vec<u8>| known == name.bytes();
            // Most tables have the same order in all lines.
            let at = match self.names.get(place).is_some_and(is_it) {
                true => Some(place),
                false => self.names.iter().position(is_it),
            };
            let Some(at) = at else {
                return Err(TableError::OtherName { name: name.0.clone().into_owned() });
            };
            self.push(at, json_value(value.get()).as_ref().as_bytes())?;
        }
        Ok(())
    }
}

/// A value of JSON as an argument: a string is its text, `null` is empty, anything else as it is
/// written.
fn json_value(written: &str) -> std::borrow::Cow<'_, str> {
    match serde_json::from_str::<std::borrow::Cow<'_, str>>(written) {
        Ok(text) => text.into_owned().into(),
        Err(_) if written == "null" => "".into(),
        Err(_) => written.into(),
    }
}

fn read_json(from: &mut dyn BufRead, name: &str, table: &mut Table) -> Result<(), PlanError> {
    use std::io::Read;
    let mut text = Vec::new();
    for line in 1.. {
        text.clear();
        let read = (&mut *from)
            .take(LINE_BYTES_MAX)
            .read_until(b'\n', &mut text)
            .map_err(|source| PlanError::Read { path: name.to_owned(), source })?;
        if read == 0 {
            break;
        }
        let wrong = |error| PlanError::Table { name: name.to_owned(), line, error };
        if read as u64 == LINE_BYTES_MAX {
            return Err(wrong(TableError::LongLine));
        }
        let text = std::str::from_utf8(&text).map_err(|_| wrong(TableError::NotUtf8))?;
        if !text.trim().is_empty() {
            table.take_object(text).map_err(wrong)?;
        }
    }
    Ok(())
}

/// Where in a record its next byte is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Within {
    FieldStart,
    Plain,
    Quoted,
    /// Behind a quote within quotes: their end, or the first of two.
    Quote,
}

/// Records of values between separators (RFC 4180).
struct Records<'a> {
    from: &'a mut dyn BufRead,
    separator: u8,
    /// Lines read so far.
    line: u64,
}

impl Records<'_> {
    /// Reads the next record into `fields`; returns the line in which it begins, or `None` at the
    /// end. Empty lines are no records.
    fn next(
        &mut self,
        fields: &mut Vec<Vec<u8>>,
        unread: &impl Fn(std::io::Error) -> PlanError,
        wrong: &impl Fn(u64, TableError) -> PlanError,
    ) -> Result<Option<u64>, PlanError> {
        loop {
            fields.clear();
            let line = self.line + 1;
            if !self.record(fields, line, unread, wrong)? {
                return Ok(None);
            }
            let is_empty = matches!(fields.as_slice(), [only] if only.is_empty());
            if !is_empty {
                return Ok(Some(line));
            }
        }
    }

    /// Reads a record, or an empty line; returns whether there is one.
    fn record(
        &mut self,
        fields: &mut Vec<Vec<u8>>,
        line: u64,
        unread: &impl Fn(std::io::Error) -> PlanError,
        wrong: &impl Fn(u64, TableError) -> PlanError,
    ) -> Result<bool, PlanError> {
        let mut within = Within::FieldStart;
        let mut field = Vec::new();
        loop {
            let buffer = self.from.fill_buf().map_err(unread)?;
            if buffer.is_empty() {
                if within == Within::Quoted {
                    return Err(wrong(line, TableError::OpenQuote));
                }
                let has_any = within != Within::FieldStart || !fields.is_empty();
                if has_any {
                    self.line += 1;
                    fields.push(field);
                }
                return Ok(has_any);
            }
            let mut read = 0;
            for &byte in buffer {
                read += 1;
                let is_separator = byte == self.separator;
                within = match (within, byte) {
                    (Within::Quoted, b'"') => Within::Quote,
                    (Within::Quoted, _) => {
                        self.line += u64::from(byte == b'\n');
                        field.push(byte);
                        Within::Quoted
                    }
                    (_, b'\n') => {
                        self.line += 1;
                        if within == Within::Plain && field.last() == Some(&b'\r') {
                            field.pop();
                        }
                        fields.push(field);
                        self.from.consume(read);
                        return Ok(true);
                    }
                    (_, _) if is_separator => {
                        fields.push(std::mem::take(&mut field));
                        Within::FieldStart
                    }
                    (Within::FieldStart, b'"') => Within::Quoted,
                    (Within::FieldStart | Within::Plain, _) => {
                        field.push(byte);
                        Within::Plain
                    }
                    (Within::Quote, b'"') => {
                        field.push(b'"');
                        Within::Quoted
                    }
                    (Within::Quote, b'\r') => Within::Quote,
                    (Within::Quote, _) => return Err(wrong(line, TableError::AfterQuote)),
                };
                if field.len() > VALUE_BYTES_MAX || fields.len() > COLUMNS_MAX {
                    return Err(wrong(line, TableError::LongLine));
                }
            }
            self.from.consume(read);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rows(text: &[u8], name: &str) -> Result<Vec<Vec<String>>, PlanError> {
        // As a reader gives it that has few bytes at a time.
        let mut from = std::io::BufReader::with_capacity(3, text);
        let table = read(&mut from, name)?;
        let texts = |values: &[&[u8]]| {
            values.iter().map(|value| String::from_utf8(value.to_vec()).unwrap()).collect()
        };
        let names: Vec<&[u8]> = table.names.iter().map(Vec::as_slice).collect();
        let mut rows = vec![texts(&names)];
        for at in 0..table.len() {
            let row: Vec<&[u8]> = table.columns.iter().map(|one| one.at(at).unwrap()).collect();
            rows.push(texts(&row));
        }
        Ok(rows)
    }

    fn message(text: &str, name: &str) -> String {
        rows(text.as_bytes(), name).unwrap_err().to_string()
    }

    #[test]
    fn formats_are_told_apart() {
        let expected = vec![vec!["a".to_owned(), "b".to_owned()], vec!["1".into(), "x y".into()]];
        for (name, text) in [
            ("t.csv", "a,b\n1,x y\n"),
            ("t", "\u{feff}a,b\r\n\r\n1,\"x y\"\r\n"),
            ("t.TSV", "a\tb\n1\tx y"),
            ("t.txt", "a\tb\n1\tx y\n\n"),
            ("t.jsonl", "{\"a\": 1, \"b\": \"x y\"}\n\n"),
            ("-", "{\"a\": 1, \"b\": \"x\\u0020y\"}"),
        ] {
            assert_eq!(rows(text.as_bytes(), name).unwrap(), expected, "{name}");
        }
        let kinds = "{\"n\": 1.50, \"t\": true, \"e\": null, \"l\": [1, \"x\"]}\n\
                     {\"l\": {}, \"n\": -0, \"t\": \"\", \"e\": \"\\\"\"}";
        let found = rows(kinds.as_bytes(), "x.ndjson").unwrap();
        assert_eq!(found[1], ["1.50", "true", "", "[1, \"x\"]"]);
        assert_eq!(found[2], ["-0", "", "\"", "{}"]);
    }

    #[test]
    fn wrong_tables_are_named() {
        for (text, part) in [
            ("a,b\n1\n", "line 2 of t.csv: it has 1 columns, and the first line has 2"),
            ("a,a\n", "two columns are called `a`"),
            ("a\n\"x\ny", "line 2 of t.csv: a double quote is not closed"),
            ("a\n\"x\"y", "line 2 of t.csv: text follows"),
            ("a\n\n\"x\ny\"\nx\0", "line 5 of t.csv: the value of `a` has a NUL byte"),
        ] {
            let text = message(text, "t.csv");
            assert!(text.contains(part), "{text}");
        }
        for (text, part) in [
            ("{\"a\": 1}\n{\"b\": 1}", "line 2 of t.jsonl: `b` is no column of the first line"),
            ("{\"a\": 1}\n[]", "line 2 of t.jsonl: "),
            ("{\"a\": 1, \"a\": 2}", "given twice"),
        ] {
            let text = message(text, "t.jsonl");
            assert!(text.contains(part), "{text}");
        }
    }

    /// A value as CSV has it: in quotes if it must be.
    fn quoted(value: &str, always: bool) -> String {
        match always || value.is_empty() || value.contains([',', '"', '\n', '\r']) {
            true => format!("\"{}\"", value.replace('"', "\"\"")),
            false => value.to_owned(),
        }
    }

    proptest! {
        #[test]
        fn what_is_written_as_csv_is_read_back(
            rows_written in prop::collection::vec(prop::collection::vec("[a,\"\n\r é]{0,4}", 3), 0..5),
            always: bool,
            crlf: bool,
        ) {
            let mut expected = vec![vec!["x".to_owned(), "y".to_owned(), "z".to_owned()]];
            expected.extend(rows_written);
            let line = |row: &Vec<String>| {
                let row: Vec<String> = row.iter().map(|value| quoted(value, always)).collect();
                row.join(",") + if crlf { "\r\n" } else { "\n" }
            };
            let text: String = expected.iter().map(line).collect();
            prop_assert_eq!(rows(text.as_bytes(), "t.csv").unwrap(), expected);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(prop::sample::select(
            b"a,\"\n\r\t{}:1\0\xff".to_vec()), 0..40)) {
            for name in ["t.csv", "t.tsv", "t.jsonl", "t"] {
                let _ = read(&mut &bytes[..], name).map_err(|error| error.to_string());
            }
        }
    }
}
