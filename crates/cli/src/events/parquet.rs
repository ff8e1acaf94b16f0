//! Parquet files, as far as tables of events need them: numbers, times and texts, some of which
//! may be missing, in groups of rows.
//!
//! The format is that of <https://parquet.apache.org/docs/file-format/>: data pages of version 1,
//! uncompressed. Numbers are differences from the row before in as many bits as they need, texts
//! are numbers of entries in a dictionary, and so is what all rows of a group have. The footer and
//! the heads of pages are in Thrift's compact protocol. Nothing is held of a file but the rows of
//! one group, and a few bytes for each group that was written.

mod encodings;
mod thrift;

use encodings::{differences, hybrid, run};
use std::collections::HashMap;
use std::sync::Arc;
use thrift::Thrift;

/// Rows of a group: large enough for readers to skip and scan, small enough to be held.
pub(super) const GROUP_ROWS: usize = 128 << 10;

const MAGIC: &[u8] = b"PAR1";

/// The types of values that files have.
const INT32: i64 = 1;
const INT64: i64 = 2;
const BYTE_ARRAY: i64 = 6;
/// How values are encoded.
const PLAIN: i64 = 0;
const RLE: i64 = 3;
const DELTA_BINARY_PACKED: i64 = 5;
const RLE_DICTIONARY: i64 = 8;
/// The kinds of pages.
const DATA_PAGE: i64 = 0;
const DICTIONARY_PAGE: i64 = 2;
/// What older readers take columns for.
const CONVERTED_UTF8: i64 = 0;
const CONVERTED_TIMESTAMP_MICROS: i64 = 10;

/// What a column has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// 32 bits, with a sign.
    Int32,
    /// 64 bits, with a sign.
    Int64,
    /// Microseconds since 1970, UTC.
    Time,
    /// UTF-8.
    Text,
}

/// A column: its name, what it has, and whether values may be missing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Declared {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) is_optional: bool,
}

/// The values of one column in the rows of a group. While all rows have the same value, it is held
/// once.
#[derive(Debug, Default)]
struct Series<T> {
    rows: usize,
    first: T,
    /// The value of each row, once rows differ.
    each: Vec<T>,
}

impl<T: Copy + PartialEq> Series<T> {
    #[inline]
    fn push(&mut self, value: T) {
        if self.each.is_empty() {
            if self.rows == 0 {
                self.first = value;
            }
            if value == self.first {
                self.rows += 1;
                return;
            }
            self.each.resize(self.rows, self.first);
        }
        self.each.push(value);
        self.rows += 1;
    }

    /// The value of the last row.
    fn last(&self) -> Option<T> {
        self.each.last().copied().or((self.rows > 0).then_some(self.first))
    }

    /// The value of all rows, if they have the same.
    fn same(&self) -> Option<T> {
        (self.rows > 0 && self.each.is_empty()).then_some(self.first)
    }

    fn clear(&mut self) {
        self.rows = 0;
        self.each.clear();
    }
}

/// The values of a column in the current group.
#[derive(Debug)]
enum Values {
    Numbers(Series<i64>),
    /// Texts, each once, and their numbers row by row.
    Texts {
        numbers: HashMap<Arc<str>, u32>,
        texts: Vec<Arc<str>>,
        rows: Series<u32>,
    },
}

#[derive(Debug)]
struct Column {
    declared: Declared,
    /// Whether each row has a value, if some need not: 1 or 0.
    present: Series<u32>,
    values: Values,
}

/// Where a column of a group is in the file.
#[derive(Debug)]
struct Chunk {
    dictionary: Option<u64>,
    data: u64,
    bytes: u64,
    rows: u64,
}

/// Writes a table.
#[derive(Debug)]
pub(super) struct Table {
    columns: Vec<Column>,
    /// Bytes of the file that the caller has not taken yet.
    out: Vec<u8>,
    /// How many bytes of the file the caller has taken.
    taken: u64,
    groups: Vec<Vec<Chunk>>,
    rows: usize,
}

impl Table {
    pub(super) fn new(columns: &[Declared]) -> Table {
        let columns = columns.iter().map(|declared| Column {
            declared: *declared,
            present: Series::default(),
            values: match declared.kind {
                Kind::Int32 | Kind::Int64 | Kind::Time => Values::Numbers(Series::default()),
                Kind::Text => Values::Texts {
                    numbers: HashMap::new(),
                    texts: Vec::new(),
                    rows: Series::default(),
                },
            },
        });
        Table {
            columns: columns.collect(),
            out: MAGIC.to_vec(),
            taken: 0,
            groups: Vec::new(),
            rows: 0,
        }
    }

    /// Adds a row, whose values are added column by column.
    pub(super) fn row(&mut self) -> Row<'_> {
        if self.rows >= GROUP_ROWS {
            self.end_group();
        }
        self.rows += 1;
        Row { columns: self.columns.iter_mut() }
    }

    /// What there is of the file since this was last called.
    pub(super) fn take(&mut self) -> Vec<u8> {
        self.taken += self.out.len() as u64;
        std::mem::take(&mut self.out)
    }

    /// How much waits to be taken.
    pub(super) fn len(&self) -> usize {
        self.out.len()
    }

    /// Writes the last rows and the footer.
    pub(super) fn end(&mut self) {
        if self.rows > 0 {
            self.end_group();
        }
        let footer = self.footer();
        self.out.extend_from_slice(&footer);
        // A footer has some hundred bytes for each column of each group.
        self.out.extend_from_slice(&(footer.len() as u32).to_le_bytes());
        self.out.extend_from_slice(MAGIC);
    }

    fn end_group(&mut self) {
        self.rows = 0;
        let (out, taken) = (&mut self.out, self.taken);
        let chunks = self.columns.iter_mut().map(|column| column.write(out, taken));
        self.groups.push(chunks.collect());
    }

    fn footer(&self) -> Vec<u8> {
        let mut file = Thrift::default();
        let columns = self.columns.iter().map(|column| column.declared.schema());
        let mut root = Thrift::default();
        root.text(4, "tasks").i32(5, self.columns.len() as i64);
        let schema: Vec<Vec<u8>> = std::iter::once(root.end()).chain(columns).collect();
        let all: u64 =
            self.groups.iter().map(|group| group.first().map_or(0, |one| one.rows)).sum();
        let groups = self.groups.iter().map(|group| {
            let columns = self.columns.iter().zip(group);
            let chunks: Vec<Vec<u8>> =
                columns.map(|(column, chunk)| chunk.describe(&column.declared)).collect();
            let mut described = Thrift::default();
            described.structs(1, &chunks);
            described.i64(2, group.iter().map(|chunk| chunk.bytes).sum());
            described.i64(3, group.first().map_or(0, |chunk| chunk.rows));
            described.end()
        });
        let groups: Vec<Vec<u8>> = groups.collect();
        file.i32(1, 1).structs(2, &schema).i64(3, all).structs(4, &groups);
        file.text(6, concat!("falkon version ", env!("CARGO_PKG_VERSION")));
        file.end()
    }
}

/// A row that is being added.
pub(super) struct Row<'a> {
    columns: std::slice::IterMut<'a, Column>,
}

impl Row<'_> {
    /// The next value; one of another kind, or one too many, is a mistake in the program, and is
    /// left out.
    #[inline]
    pub(super) fn number(&mut self, number: Option<i64>) -> &mut Self {
        let Some(column) = self.columns.next() else { return self };
        let number = match number {
            Some(number) => number,
            None if column.declared.is_optional => {
                column.present.push(0);
                return self;
            }
            None => 0,
        };
        if column.declared.is_optional {
            column.present.push(1);
        }
        match &mut column.values {
            Values::Numbers(values) => values.push(number),
            Values::Texts { .. } => debug_assert!(false, "{} has texts", column.declared.name),
        }
        self
    }

    /// The same for a text.
    pub(super) fn text(&mut self, text: Option<&Arc<str>>) -> &mut Self {
        let Some(column) = self.columns.next() else { return self };
        if column.declared.is_optional {
            column.present.push(u32::from(text.is_some()));
        }
        let Values::Texts { numbers, texts, rows } = &mut column.values else {
            debug_assert!(false, "{} has numbers", column.declared.name);
            return self;
        };
        let Some(text) = text else { return self };
        // Rows in a row often have the same.
        if let Some(last) = rows.last()
            && Arc::ptr_eq(&texts[last as usize], text)
        {
            rows.push(last);
            return self;
        }
        let number = *numbers.entry(text.clone()).or_insert_with(|| {
            texts.push(text.clone());
            // There are no more than rows of a group.
            (texts.len() - 1) as u32
        });
        rows.push(number);
        self
    }
}

impl Declared {
    fn stored(&self) -> i64 {
        match self.kind {
            Kind::Int32 => INT32,
            Kind::Int64 | Kind::Time => INT64,
            Kind::Text => BYTE_ARRAY,
        }
    }

    fn schema(&self) -> Vec<u8> {
        let mut schema = Thrift::default();
        schema.i32(1, self.stored()).i32(3, i64::from(self.is_optional)).text(4, self.name);
        let mut logical = Thrift::default();
        match self.kind {
            Kind::Int32 | Kind::Int64 => return schema.end(),
            Kind::Text => {
                schema.i32(6, CONVERTED_UTF8);
                logical.inner(1, &Thrift::default().end());
            }
            Kind::Time => {
                schema.i32(6, CONVERTED_TIMESTAMP_MICROS);
                let mut unit = Thrift::default();
                unit.inner(2, &Thrift::default().end());
                let mut time = Thrift::default();
                time.yes(1).inner(2, &unit.end());
                logical.inner(8, &time.end());
            }
        }
        schema.inner(10, &logical.end());
        schema.end()
    }
}

impl Column {
    /// Writes the values as a chunk, and begins anew.
    fn write(&mut self, out: &mut Vec<u8>, taken: u64) -> Chunk {
        let begin = out.len();
        let at = |out: &Vec<u8>| taken + out.len() as u64;
        let is_optional = self.declared.is_optional;
        let values = match &self.values {
            Values::Numbers(values) => values.rows,
            Values::Texts { rows, .. } => rows.rows,
        };
        let rows = if is_optional { self.present.rows } else { values };
        let mut body = Vec::new();
        if is_optional {
            let mut levels = Vec::new();
            match self.present.same() {
                Some(present) => run(rows as u64, present, 1, &mut levels),
                None => hybrid(&self.present.each, 1, &mut levels),
            }
            body.extend_from_slice(&(levels.len() as u32).to_le_bytes());
            body.extend_from_slice(&levels);
        }
        let mut dictionary = Vec::new();
        let mut entries = 0;
        match &mut self.values {
            Values::Numbers(values) => {
                let is_narrow = self.declared.kind == Kind::Int32;
                match values.same() {
                    Some(same) => {
                        let bytes = same.to_le_bytes();
                        dictionary.extend_from_slice(if is_narrow { &bytes[..4] } else { &bytes });
                        entries = 1;
                    }
                    None if values.rows > 0 => differences(&values.each, is_narrow, &mut body),
                    None => {}
                }
                values.clear();
            }
            Values::Texts { numbers, texts, rows } => {
                for text in texts.iter() {
                    dictionary.extend_from_slice(&(text.len() as u32).to_le_bytes());
                    dictionary.extend_from_slice(text.as_bytes());
                }
                entries = texts.len();
                if entries > 1 {
                    let width = (usize::BITS - (entries - 1).leading_zeros()) as u8;
                    body.push(width);
                    hybrid(&rows.each, width, &mut body);
                }
                numbers.clear();
                texts.clear();
                rows.clear();
            }
        }
        if entries == 1 {
            // All have the same.
            body.push(1);
            run(values as u64, 0, 1, &mut body);
        }
        let dictionary = (entries > 0).then(|| {
            let place = at(out);
            let mut head = Thrift::default();
            head.i32(1, entries as i64).i32(2, PLAIN);
            page(DICTIONARY_PAGE, 7, &head.end(), &dictionary, out);
            place
        });
        let data = at(out);
        let encoding = match (&dictionary, values) {
            (Some(_), _) => RLE_DICTIONARY,
            (None, 0) => PLAIN,
            (None, _) => DELTA_BINARY_PACKED,
        };
        let mut head = Thrift::default();
        head.i32(1, rows as i64).i32(2, encoding).i32(3, RLE).i32(4, RLE);
        page(DATA_PAGE, 5, &head.end(), &body, out);
        self.present.clear();
        Chunk { dictionary, data, bytes: (out.len() - begin) as u64, rows: rows as u64 }
    }
}

impl Chunk {
    fn describe(&self, declared: &Declared) -> Vec<u8> {
        let Chunk { dictionary, data, bytes, rows } = self;
        let first = dictionary.unwrap_or(*data);
        let mut column = Thrift::default();
        column.i32(1, declared.stored());
        column
            .i32s(2, &[PLAIN, RLE, DELTA_BINARY_PACKED, RLE_DICTIONARY])
            .texts(3, &[declared.name]);
        column.i32(4, 0).i64(5, *rows).i64(6, *bytes).i64(7, *bytes).i64(9, *data);
        if let Some(dictionary) = dictionary {
            column.i64(11, *dictionary);
        }
        let mut chunk = Thrift::default();
        chunk.i64(2, first).inner(3, &column.end());
        chunk.end()
    }
}

/// A page with its head; `head` is the part of it that this kind of page has.
fn page(kind: i64, field: u8, head: &[u8], body: &[u8], out: &mut Vec<u8>) {
    let mut page = Thrift::default();
    page.i32(1, kind).i32(2, body.len() as i64).i32(3, body.len() as i64).inner(field, head);
    out.extend_from_slice(&page.end());
    out.extend_from_slice(body);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_begins_and_ends_as_it_should_however_it_is_taken() {
        let columns = [Declared { name: "n", kind: Kind::Int64, is_optional: false }];
        let whole = |takes: bool| {
            let (mut table, mut file) = (Table::new(&columns), Vec::new());
            for number in 0..2 * GROUP_ROWS as i64 + 1 {
                table.row().number(Some(number));
                if takes && table.len() > 0 {
                    file.extend(table.take());
                }
            }
            table.end();
            file.extend(table.take());
            file
        };
        let file = whole(true);
        assert!(file == whole(false) && file.starts_with(MAGIC) && file.ends_with(MAGIC));
        let (rest, length) = file[..file.len() - 4].split_last_chunk::<4>().unwrap();
        let footer = &rest[rest.len() - u32::from_le_bytes(*length) as usize..];
        // The first field is the version, 1.
        assert_eq!(footer[..2], [0x15, 2]);
    }
}
