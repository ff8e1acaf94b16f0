//! The sources of a command line together: every value of one with every
//! value of the others, or one to one.

use super::args::PlanArgs;
use super::error::PlanError;
use super::source::{self, Name, Source, ValueKind, Values};
use super::source_args::{Given, SourceArg, SourceArgs};
use super::{Surroundings, range::Numbers, table};
use falkon_core::task::Range;
use falkon_wire::command::{CommandTemplate, Piece};
use std::ffi::OsStr;
use std::io::{BufRead, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// How messages name standard input.
const STDIN: &str = "standard input";

/// Sources whose values go together, one to one.
#[derive(Debug)]
struct Group {
    /// The first of them, and the one behind the last.
    sources: std::ops::Range<usize>,
    /// How many values they have: as many as the shortest.
    count: u64,
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Sources {
    sources: Vec<Source>,
    /// In order; the last varies fastest.
    groups: Vec<Group>,
}

impl Sources {
    fn new(sources: Vec<Source>) -> Sources {
        let mut groups: Vec<Group> = Vec::new();
        for (at, source) in sources.iter().enumerate() {
            match groups.last_mut().filter(|_| source.with_previous) {
                Some(group) => {
                    group.sources.end = at + 1;
                    group.count = group.count.min(source.len());
                }
                None => groups.push(Group { sources: at..at + 1, count: source.len() }),
            }
        }
        Sources { sources, groups }
    }

    /// The sources of a command line, none of them empty.
    ///
    /// # Errors
    /// A source cannot be read, or has no values, or they do not fit others.
    pub(crate) fn read(
        args: &PlanArgs,
        surroundings: Surroundings<'_>,
    ) -> Result<Sources, PlanError> {
        let SourceArgs { sources: given, zip, colsep, .. } = &args.sources;
        let separator = colsep.as_deref().map(separator).transpose()?;
        let mut reading = Reading { sources: Vec::new(), separator, stdin: surroundings.stdin };
        if surroundings.stdin_is_piped && args.wants_lines() {
            // Something that is piped by habit, such as an empty file, is no source.
            reading.lines(OsStr::new("-"), false)?;
            return Ok(Sources::new(reading.sources));
        }
        for Given { arg, with_previous } in given {
            let with_previous = *with_previous || *zip;
            match arg {
                SourceArg::Range(numbers) => {
                    reading.push(vec![Values::Range(*numbers)], ValueKind::Texts, with_previous);
                }
                SourceArg::Each(patterns) => {
                    let has_no_command = args.command().is_empty() && args.call.is_none();
                    let found = source::files(patterns, has_no_command)?;
                    reading.push(vec![found.values], found.kind, with_previous);
                }
                SourceArg::Values(words) => {
                    let before = reading.sources.len();
                    reading.columns(source::words(words)?, "the values", with_previous)?;
                    if reading.sources.len() == before {
                        return Err(PlanError::EmptySource { name: "`:::`".to_owned() });
                    }
                }
                SourceArg::Rows(file) => reading.rows(file, with_previous)?,
                SourceArg::Lines(file) => {
                    let before = reading.sources.len();
                    let name = reading.lines(file, with_previous)?;
                    if reading.sources.len() == before {
                        return Err(PlanError::EmptySource { name: format!("`{name}`") });
                    }
                }
            }
        }
        if *zip {
            let mut counts = reading.sources.iter().map(Source::len);
            let first = counts.next().unwrap_or_default();
            if let Some(other) = counts.find(|count| *count != first) {
                return Err(PlanError::UnevenZip { first, other });
            }
        }
        Ok(Sources::new(reading.sources))
    }

    /// How many sources there are.
    pub(crate) fn len(&self) -> usize {
        self.sources.len()
    }

    /// The name of each source, if it has one.
    pub(crate) fn names(&self) -> Vec<Name> {
        self.sources.iter().map(|source| source.name.clone()).collect()
    }

    /// What the values of each source are.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = ValueKind> {
        self.sources.iter().map(|source| source.kind)
    }

    /// How many combinations there are; `None` if they are too many.
    pub(crate) fn count(&self) -> Option<u64> {
        let counts = self.groups.iter().map(|group| group.count);
        counts.into_iter().try_fold(1u64, |product, count| product.checked_mul(count))
    }

    /// The value of each source in the combination at `index`, handed to
    /// `take`. Those of decimals are whole numbers yet.
    pub(crate) fn with_values<R>(&self, index: u64, take: impl FnOnce(&[&[u8]]) -> R) -> Option<R> {
        let mut rest = index;
        // Numbers are written one after another, then referred to.
        let mut written = Vec::new();
        let mut places = Vec::with_capacity(self.sources.len());
        for group in self.groups.iter().rev() {
            let at = rest % group.count;
            rest /= group.count;
            for source in self.sources[group.sources.clone()].iter().rev() {
                let start = written.len();
                if let Values::Range(numbers) = &source.values {
                    // Writing to memory does not fail.
                    let _ = write!(written, "{}", numbers.range.value(at));
                }
                places.push((source, at, start..written.len()));
            }
        }
        let values: Option<Vec<&[u8]>> = places
            .into_iter()
            .rev()
            .map(|(source, at, place)| match &source.values {
                Values::Stored(column) => column.at(at),
                Values::Range(_) => Some(&written[place]),
            })
            .collect();
        Some(take(&values?))
    }

    /// The values of a combination as tasks see them.
    pub(crate) fn shown(&self, values: &[&[u8]]) -> Vec<Vec<u8>> {
        let shown = |(value, source): (&&[u8], &Source)| match &source.values {
            Values::Range(numbers) => numbers.digits.write(value),
            Values::Stored(_) => value.to_vec(),
        };
        values.iter().zip(&self.sources).map(shown).collect()
    }

    /// The ranges, if there are only ranges, every number of one with every number of the
    /// others: rows need not be stored.
    pub(crate) fn factors(&self) -> Option<Vec<Range>> {
        let range = |source: &Source| match (&source.values, source.with_previous) {
            (Values::Range(numbers), false) => Some(numbers.range),
            _ => None,
        };
        if self.groups.len() < self.sources.len() {
            return None;
        }
        self.sources.iter().map(range).collect()
    }

    /// Has `template` write the values of decimals as such.
    pub(crate) fn write_decimals(&self, template: &mut CommandTemplate) {
        let numbers = |source: u32| match &self.sources.get(source as usize)?.values {
            Values::Range(numbers) if !numbers.are_whole() => Some(*numbers),
            Values::Range(_) | Values::Stored(_) => None,
        };
        let CommandTemplate { argv, env, cwd, stdin, inputs, outputs, streams, call: _ } = template;
        let texts = argv.iter_mut().chain(env.iter_mut().map(|(_, value)| value)).chain(cwd);
        let texts = texts.chain(stdin).chain(inputs).chain(outputs).chain(streams);
        for piece in texts.flatten() {
            if let Piece::Value { source, form } = *piece
                && let Some(Numbers { digits, .. }) = numbers(source)
            {
                *piece = Piece::Decimal { source, form, digits };
            }
        }
    }
}

/// The bytes of `--colsep`.
fn separator(text: &OsStr) -> Result<&[u8], PlanError> {
    match text.as_bytes() {
        b"" => Err(PlanError::NoSeparator),
        b"\\t" => Ok(b"\t"),
        bytes => Ok(bytes),
    }
}

/// Sources that are being read.
struct Reading<'a> {
    sources: Vec<Source>,
    separator: Option<&'a [u8]>,
    stdin: &'a mut dyn BufRead,
}

impl Reading<'_> {
    /// Adds sources that go together, and with those before them if `with_previous`.
    fn push(&mut self, columns: Vec<Values>, kind: ValueKind, with_previous: bool) {
        for (at, values) in columns.into_iter().enumerate() {
            let with_previous = at > 0 || with_previous && !self.sources.is_empty();
            self.sources.push(Source { with_previous, ..Source::new(values, kind) });
        }
    }

    /// Adds a list of values, by its columns if lines are split; an empty list is not added.
    fn columns(
        &mut self,
        values: super::column::Column,
        name: &str,
        with_previous: bool,
    ) -> Result<(), PlanError> {
        let columns = match self.separator {
            Some(separator) => source::split(&values, separator, name)?,
            None if values.len() == 0 => Vec::new(),
            None => vec![values],
        };
        let columns = columns.into_iter().map(Values::Stored).collect();
        self.push(columns, ValueKind::Texts, with_previous);
        Ok(())
    }

    /// Adds the columns of a table.
    fn rows(&mut self, file: &OsStr, with_previous: bool) -> Result<(), PlanError> {
        let (table, name) = match file == "-" {
            true => (table::read(self.stdin, STDIN)?, STDIN.to_owned()),
            false => {
                let name = file.to_string_lossy().into_owned();
                (table::read(&mut source::open(Path::new(file))?, &name)?, name)
            }
        };
        if table.len() == 0 {
            return Err(PlanError::EmptySource { name: format!("`{name}`") });
        }
        let before = self.sources.len();
        let columns = table.columns.into_iter().map(Values::Stored).collect();
        self.push(columns, ValueKind::Texts, with_previous);
        for (source, name) in self.sources[before..].iter_mut().zip(table.names) {
            source.name = (!name.is_empty()).then_some(name);
        }
        Ok(())
    }

    /// Adds the lines of a file. Returns its name.
    fn lines(&mut self, file: &OsStr, with_previous: bool) -> Result<String, PlanError> {
        let (lines, name) = match file == "-" {
            true => (source::lines(self.stdin, STDIN)?, STDIN.to_owned()),
            false => {
                let name = file.to_string_lossy().into_owned();
                (source::lines(&mut source::open(Path::new(file))?, &name)?, name)
            }
        };
        self.columns(lines, &name, with_previous)?;
        Ok(name)
    }
}
