//! Commands and their templates: what an executor runs.
//!
//! The core carries these as opaque bytes. A template and a row expand to one
//! [`Command`]; see [`Template::expand`].

use crate::codec::{
    DecodeError, Decoder, Wire, put_array, put_bytes, wire_enum, wire_list, wire_struct,
};
use falkon_core::archive::member_start;
use falkon_core::task::Rows;
use std::sync::Arc;

/// One task's command, complete. Strings are bytes: file names and arguments
/// need not be UTF-8.
#[derive(Debug, Clone, PartialEq, Eq, Default, Hash)]
pub struct Command {
    /// Program and arguments. A builtin has its name (`@noop`, `@sleep`) as
    /// the program; the task's class says whether it is one. For a function
    /// all of them are arguments, if the call has no payload of its own.
    pub argv: Vec<Vec<u8>>,
    /// Variables added to the executor's environment.
    pub env: Vec<(Vec<u8>, Vec<u8>)>,
    /// Working directory; the executor's own by default.
    pub cwd: Option<Vec<u8>>,
    /// File read as standard input; empty by default.
    pub stdin: Option<Vec<u8>>,
    /// Files that must be there before the task starts, relative to `cwd`.
    pub inputs: Vec<Vec<u8>>,
    /// Files that must be there after it ended well, relative to `cwd`.
    pub outputs: Vec<Vec<u8>>,
    /// Where its standard output and standard error go: `ARCHIVE!NAME` for the
    /// members NAME/stdout and NAME/stderr; into its result by default.
    pub streams: Option<Vec<u8>>,
    /// The function that is called instead of a program, if the class says so.
    pub call: Option<Call>,
}
wire_struct!(Command { argv, env, cwd, stdin, inputs, outputs, streams, call });

/// The word in a program's place that says that something is prepared before the command.
const SETUP: &[u8] = b"@setup";

/// What is prepared before a command, as the first of its words: `@setup`, how many there
/// are, and each as `module=NAME`, `conda=ENVIRONMENT`, `venv=DIR`, `setup=COMMAND`,
/// `container=IMAGE` (or `container=ENGINE:IMAGE`) or `bind=PATH`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setup<'a> {
    /// What is prepared, in this order.
    pub prepared: &'a [Vec<u8>],
    /// The command's own words.
    pub command: &'a [Vec<u8>],
}

impl Setup<'_> {
    /// The words that come before a command's own; none if nothing is prepared.
    #[must_use]
    pub fn words(prepared: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        if prepared.is_empty() {
            return prepared;
        }
        let mut words = vec![SETUP.to_vec(), prepared.len().to_string().into_bytes()];
        words.extend(prepared);
        words
    }

    /// Divides the words of a command; `None` if nothing is prepared.
    #[must_use]
    pub fn of(argv: &[Vec<u8>]) -> Option<Setup<'_>> {
        let [setup, count, rest @ ..] = argv else { return None };
        let count = std::str::from_utf8(count).ok()?.parse().ok().filter(|_| setup == SETUP)?;
        let (prepared, command) = rest.split_at_checked(count)?;
        Some(Setup { prepared, command })
    }

    /// The words of a command without what is prepared.
    #[must_use]
    pub fn own_words(argv: &[Vec<u8>]) -> &[Vec<u8>] {
        Setup::of(argv).map_or(argv, |setup| setup.command)
    }
}

/// A function: what calls have in common, however many they are.
#[derive(Debug, Clone, PartialEq, Eq, Default, Hash)]
pub struct Function {
    /// The language of workers that can call it: `python`, or another that
    /// executors were started with.
    pub language: String,
    /// The function's name in its language: `module:qualname` for Python.
    pub name: Vec<u8>,
    /// The code that defines it, in a form that its workers know; empty if
    /// they find it by its name alone. Stands in a template, so that it
    /// travels once per executor and not once per call; an executor passes it
    /// to each of its workers once, by content.
    pub code: Arc<Vec<u8>>,
}
wire_struct!(Function { language, name, code });

/// A call of a function.
#[derive(Debug, Clone, PartialEq, Eq, Default, Hash)]
pub struct Call {
    /// The function that is called.
    pub function: Arc<Function>,
    /// The arguments, in a form that the function's workers know (see
    /// `docs/workers.md`); if empty, the arguments are [`Command::argv`], as
    /// texts.
    pub payload: Vec<u8>,
}
wire_struct!(Call { function, payload });

/// The part of a value that a placeholder stands for, as in GNU parallel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// `{}`: the whole value.
    Whole,
    /// `{/}`: its base name.
    Base,
    /// `{.}`: without its extension.
    Stem,
    /// `{/.}`: its base name without extension.
    BaseStem,
    /// `{//}`: its directory.
    Directory,
}
wire_enum!(Form { 0 => Whole, 1 => Base, 2 => Stem, 3 => BaseStem, 4 => Directory });

impl Form {
    /// The part of `value` that this form stands for. As in GNU parallel, the
    /// directory of a plain name is `.`.
    #[must_use]
    pub fn of(self, value: &[u8]) -> &[u8] {
        match self {
            Form::Whole => value,
            Form::Base => base(value),
            Form::Stem => stem(value),
            Form::BaseStem => stem(base(value)),
            Form::Directory => match value.iter().rposition(|byte| *byte == b'/') {
                None => b".",
                Some(0) => b"/",
                Some(at) => &value[..at],
            },
        }
    }
}

/// The name behind the last slash; of `ARCHIVE!MEMBER`, that of the member.
fn base(value: &[u8]) -> &[u8] {
    let name = value.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    &value[name.max(member_start(value).unwrap_or_default())..]
}

fn stem(value: &[u8]) -> &[u8] {
    let name_starts = value.len() - base(value).len();
    match value.iter().rposition(|byte| *byte == b'.') {
        Some(at) if at >= name_starts => &value[..at],
        _ => value,
    }
}

/// A piece of a templated string.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Stands for itself.
    Literal(Vec<u8>),
    /// The value of a source (from 0), in a form.
    Value {
        /// The source.
        source: u32,
        /// The part of its value.
        form: Form,
    },
    /// `{#}`: the task's number, from 1.
    Number,
    /// The value of a source (from 0) whose values are whole numbers, written
    /// as a decimal, in a form.
    Decimal {
        /// The source.
        source: u32,
        /// The part of what is written.
        form: Form,
        /// How it is written.
        digits: Digits,
    },
}
wire_enum!(Piece {
    0 => Literal(bytes),
    1 => Value { source, form },
    2 => Number,
    3 => Decimal { source, form, digits },
});

/// Most digits behind the point, and most characters of a decimal.
const DECIMAL_CHARS_MAX: u32 = 64;

/// How a whole number is written as a decimal: exactly, by its digits alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Digits {
    /// How many of its digits are behind the point.
    pub places: u32,
    /// How many characters it has at least: zeros come before its digits.
    pub width: u32,
}
wire_struct!(Digits { places, width });

impl Digits {
    /// `number`, an optional sign and digits, as a decimal.
    #[must_use]
    pub fn write(self, number: &[u8]) -> Vec<u8> {
        let (sign, digits) = match number {
            [sign @ b'-', digits @ ..] => (Some(*sign), digits),
            digits => (None, digits),
        };
        let places = self.places.min(DECIMAL_CHARS_MAX) as usize;
        let point = usize::from(places > 0);
        let before = usize::from(sign.is_some()) + point;
        let width = (self.width.min(DECIMAL_CHARS_MAX) as usize).saturating_sub(before);
        let zeros = width.max(places + 1).saturating_sub(digits.len());
        let mut text = Vec::with_capacity(before + zeros + digits.len());
        text.extend(sign);
        text.resize(text.len() + zeros, b'0');
        text.extend_from_slice(digits);
        if point > 0 {
            text.insert(text.len() - places, b'.');
        }
        text
    }
}

/// A string with placeholders.
pub type Text = Vec<Piece>;

/// A command with placeholders.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CommandTemplate {
    /// See [`Command::argv`].
    pub argv: Vec<Text>,
    /// See [`Command::env`]; names have no placeholders.
    pub env: Vec<(Vec<u8>, Text)>,
    /// See [`Command::cwd`].
    pub cwd: Option<Text>,
    /// See [`Command::stdin`].
    pub stdin: Option<Text>,
    /// See [`Command::inputs`].
    pub inputs: Vec<Text>,
    /// See [`Command::outputs`].
    pub outputs: Vec<Text>,
    /// See [`Command::streams`].
    pub streams: Option<Text>,
    /// The function of [`Command::call`]; its arguments are the texts of
    /// `argv`.
    pub call: Option<Arc<Function>>,
}
wire_struct!(CommandTemplate { argv, env, cwd, stdin, inputs, outputs, streams, call });
wire_list!(Piece, Vec<Piece>, (Vec<u8>, Vec<Piece>));

/// A text with `{}` in the place of values.
fn pattern(text: &Text) -> Vec<u8> {
    let pieces = text.iter().map(|piece| match piece {
        Piece::Literal(bytes) => bytes.as_slice(),
        Piece::Value { .. } | Piece::Decimal { .. } => b"{}",
        Piece::Number => b"{#}",
    });
    pieces.collect::<Vec<_>>().concat()
}

/// The part of their commands that the tasks of a submission share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Template {
    /// One command with placeholders; rows hold the values.
    Command(CommandTemplate),
    /// Nothing: every row is a whole [`Command`].
    Each,
    /// A call but for its payload; every row is one, as it is.
    Calls(Command),
}
wire_enum!(Template { 0 => Command(command), 1 => Each, 2 => Calls(command) });

impl Template {
    /// The call of all tasks, if they call one function alike.
    #[must_use]
    pub fn call(&self) -> Option<&Call> {
        match self {
            Template::Calls(command) => command.call.as_ref(),
            Template::Command(_) | Template::Each => None,
        }
    }

    /// What the tasks of a submission run, for people: the common command line, with
    /// `{}` where their values stand; of tasks that are all different, the program of
    /// the first of them.
    #[must_use]
    pub fn pattern(&self, rows: &Rows) -> String {
        let words: Vec<Vec<u8>> = match self {
            Template::Command(template) => {
                let function = template.call.iter().map(|function| function.name.clone());
                let words: Vec<Vec<u8>> = template.argv.iter().map(pattern).collect();
                function.chain(Setup::own_words(&words).to_vec()).collect()
            }
            Template::Calls(command) => {
                let function = command.call.iter().map(|call| call.function.name.clone());
                function.chain(command.argv.iter().cloned()).collect()
            }
            Template::Each => {
                let first = self.words(rows, 0, 1).unwrap_or_default();
                first.into_iter().take(1).collect()
            }
        };
        let words: Vec<_> = words.iter().map(|word| String::from_utf8_lossy(word)).collect();
        words.join(" ")
    }

    /// What one task runs, for people: the name of the function that it calls,
    /// if it does, and its arguments. What else its command has (its standard
    /// input, its environment) may be long, and is not copied.
    ///
    /// # Errors
    /// As [`Template::expand`], of what is given.
    pub fn words(&self, rows: &Rows, index: u64, number: u64) -> Result<Vec<Vec<u8>>, DecodeError> {
        let number = number_of(rows, index, number);
        let (function, argv) = match self {
            Template::Command(template) => {
                let fill = |values: &[&[u8]]| fill_texts(&template.argv, values, number);
                (template.call.clone(), with_values(rows, index, fill)?)
            }
            Template::Calls(command) => {
                let function = command.call.as_ref().map(|call| Arc::clone(&call.function));
                (function, command.argv.clone())
            }
            Template::Each => {
                let command = self.expand(rows, index, number)?;
                (command.call.map(|call| call.function), command.argv)
            }
        };
        let own = Setup::own_words(&argv).to_vec();
        Ok(function.map(|function| function.name.clone()).into_iter().chain(own).collect())
    }

    /// Where the streams of a task go (see [`Command::streams`]).
    ///
    /// # Errors
    /// As [`Template::expand`].
    pub fn streams(
        &self,
        rows: &Rows,
        index: u64,
        number: u64,
    ) -> Result<Option<Vec<u8>>, DecodeError> {
        let number = number_of(rows, index, number);
        match self {
            Template::Command(CommandTemplate { streams: Some(text), .. }) => {
                with_values(rows, index, |values| fill_text(text, values, number)).map(Some)
            }
            Template::Command(_) => Ok(None),
            Template::Calls(command) => Ok(command.streams.clone()),
            Template::Each => Ok(self.expand(rows, index, number)?.streams),
        }
    }

    /// The command of one task: the `index`-th row of `rows`, where `number`
    /// is what `{#}` stands for. In rows of ranges the number of the combination does
    /// instead: below a relay, the task's own number is another one.
    ///
    /// # Errors
    /// The row is missing or malformed, or a placeholder names a source that
    /// the row does not have.
    pub fn expand(&self, rows: &Rows, index: u64, number: u64) -> Result<Command, DecodeError> {
        let missing = DecodeError::Invalid("row");
        let number = number_of(rows, index, number);
        match (self, rows) {
            (Template::Each, Rows::Packed(packed)) => {
                Command::from_bytes(packed.at(index).ok_or(missing)?)
            }
            (Template::Calls(command), Rows::Packed(packed)) => {
                let payload = packed.at(index).ok_or(missing)?.to_vec();
                let mut command = command.clone();
                let call = command.call.as_mut().ok_or(DecodeError::Invalid("call"))?;
                call.payload = payload;
                Ok(command)
            }
            (Template::Each | Template::Calls(_), Rows::Computed { .. }) => Err(missing),
            (Template::Command(template), _) => {
                with_values(rows, index, |values| template.fill(values, number))
            }
        }
    }
}

impl Command {
    /// Whether `bytes` are a command, without making one.
    ///
    /// # Errors
    /// As [`Wire::from_bytes`].
    pub fn check(bytes: &[u8]) -> Result<(), DecodeError> {
        let mut from = Decoder::new(bytes);
        from.array_of(8, "Command")?;
        skip_strings(&mut from)?;
        for _ in 0..from.array()? {
            from.array_of(2, "a pair")?;
            from.bytes()?;
            from.bytes()?;
        }
        for _ in ["cwd", "stdin"] {
            if !from.nil()? {
                from.bytes()?;
            }
        }
        skip_strings(&mut from)?;
        skip_strings(&mut from)?;
        if !from.nil()? {
            from.bytes()?;
        }
        if !from.nil()? {
            from.array_of(2, "Call")?;
            from.array_of(3, "Function")?;
            from.text()?;
            for _ in ["name", "code", "payload"] {
                from.bytes()?;
            }
        }
        match from.remaining() {
            0 => Ok(()),
            count => Err(DecodeError::Trailing(count)),
        }
    }
}

fn skip_strings(from: &mut Decoder<'_>) -> Result<(), DecodeError> {
    for _ in 0..from.array()? {
        from.bytes()?;
    }
    Ok(())
}

impl CommandTemplate {
    /// This template with `values` in the place of its placeholders.
    ///
    /// # Errors
    /// A placeholder names a source beyond `values`.
    pub fn fill(&self, values: &[&[u8]], number: u64) -> Result<Command, DecodeError> {
        let text = |text: &Text| fill_text(text, values, number);
        let texts = |texts: &[Text]| fill_texts(texts, values, number);
        Ok(Command {
            argv: texts(&self.argv)?,
            env: self
                .env
                .iter()
                .map(|(name, value)| Ok((name.clone(), text(value)?)))
                .collect::<Result<_, DecodeError>>()?,
            cwd: self.cwd.as_ref().map(text).transpose()?,
            stdin: self.stdin.as_ref().map(text).transpose()?,
            inputs: texts(&self.inputs)?,
            outputs: texts(&self.outputs)?,
            streams: self.streams.as_ref().map(text).transpose()?,
            call: self
                .call
                .as_ref()
                .map(|function| Call { function: function.clone(), payload: Vec::new() }),
        })
    }
}

/// Calls `fill` with the values of a row.
fn with_values<T>(
    rows: &Rows,
    index: u64,
    fill: impl FnOnce(&[&[u8]]) -> Result<T, DecodeError>,
) -> Result<T, DecodeError> {
    match rows {
        Rows::Packed(packed) => {
            fill(&unpack_row(packed.at(index).ok_or(DecodeError::Invalid("row"))?)?)
        }
        Rows::Computed { .. } => {
            let values: Vec<String> =
                rows.computed(index).iter().map(ToString::to_string).collect();
            let values: Vec<&[u8]> = values.iter().map(String::as_bytes).collect();
            fill(&values)
        }
    }
}

/// What `{#}` stands for in a row.
fn number_of(rows: &Rows, index: u64, number: u64) -> u64 {
    match rows {
        Rows::Computed { factors, offset } if !factors.is_empty() => {
            offset.saturating_add(index).saturating_add(1)
        }
        _ => number,
    }
}

fn fill_texts(texts: &[Text], values: &[&[u8]], number: u64) -> Result<Vec<Vec<u8>>, DecodeError> {
    texts.iter().map(|text| fill_text(text, values, number)).collect()
}

fn fill_text(text: &Text, values: &[&[u8]], number: u64) -> Result<Vec<u8>, DecodeError> {
    let mut out = Vec::new();
    for piece in text {
        match piece {
            Piece::Literal(bytes) => out.extend_from_slice(bytes),
            Piece::Value { source, form } => {
                let value = values
                    .get(*source as usize)
                    .ok_or(DecodeError::Invalid("placeholder: no such source"))?;
                out.extend_from_slice(form.of(value));
            }
            Piece::Number => out.extend_from_slice(number.to_string().as_bytes()),
            Piece::Decimal { source, form, digits } => {
                let value = values
                    .get(*source as usize)
                    .ok_or(DecodeError::Invalid("placeholder: no such source"))?;
                out.extend_from_slice(form.of(&digits.write(value)));
            }
        }
    }
    Ok(out)
}

/// Appends a row of values, one per source, to `out`.
pub fn pack_row(values: &[&[u8]], out: &mut Vec<u8>) {
    put_array(out, values.len());
    for value in values {
        put_bytes(out, value);
    }
}

/// The values of a row that [`pack_row`] wrote.
///
/// # Errors
/// The bytes are not such a row.
pub fn unpack_row(row: &[u8]) -> Result<Vec<&[u8]>, DecodeError> {
    let mut from = Decoder::new(row);
    let count = from.array()?;
    let mut values = Vec::with_capacity(count);
    for _ in 0..count {
        values.push(from.bytes()?);
    }
    match from.remaining() {
        0 => Ok(values),
        count => Err(DecodeError::Trailing(count)),
    }
}

#[cfg(test)]
mod tests {
    use super::Digits;
    use super::Form::{self, Base, BaseStem, Directory, Stem, Whole};

    #[test]
    fn decimals_have_their_places_and_their_width() {
        for (number, places, width, text) in [
            ("5", 0, 0, "5"),
            ("5", 1, 0, "0.5"),
            ("-5", 2, 0, "-0.05"),
            ("125", 2, 0, "1.25"),
            ("0", 3, 0, "0.000"),
            ("7", 0, 3, "007"),
            ("-7", 0, 3, "-07"),
            ("1234", 0, 3, "1234"),
            ("5", 1, 5, "000.5"),
            ("-9223372036854775808", 18, 0, "-9.223372036854775808"),
        ] {
            let written = Digits { places, width }.write(number.as_bytes());
            assert_eq!(String::from_utf8(written).unwrap(), text);
        }
        // However many are asked for.
        let most = Digits { places: u32::MAX, width: u32::MAX };
        assert_eq!(most.write(b"1").len(), 66);
    }

    #[test]
    fn parts_of_values_are_those_of_gnu_parallel() {
        let part = |value: &'static str, form: Form| std::str::from_utf8(form.of(value.as_bytes()));
        let parts = |value| [Whole, Base, Stem, BaseStem, Directory].map(|form| part(value, form));
        for (value, base, stem, base_stem, directory) in [
            ("data/a.tar.gz", "a.tar.gz", "data/a.tar", "a.tar", "data"),
            ("a.txt", "a.txt", "a", "a", "."),
            ("v1.2/a", "a", "v1.2/a", "a", "v1.2"),
            ("/a", "a", "/a", "a", "/"),
            ("/d/e.f/", "", "/d/e.f/", "", "/d/e.f"),
            ("d/.x", ".x", "d/", "", "d"),
            ("", "", "", "", "."),
        ] {
            let expected = [value, base, stem, base_stem, directory].map(Ok);
            assert_eq!(parts(value), expected, "{value:?}");
        }
    }
}
