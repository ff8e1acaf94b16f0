//! The fields of a task in a task file, as JSON and TOML both give them.
//!
//! Text is borrowed from the file where it has no escapes. What a field may
//! hold is checked while it is read, so that every error has its place.

use super::super::quantity;
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

/// A task as it is written.
#[derive(Debug, Default)]
pub(super) struct TaskFields<'a> {
    pub(super) id: Option<Text<'a>>,
    pub(super) command: Option<OneOrMany<'a>>,
    /// Texts and numbers for a program, anything for a function.
    pub(super) args: Option<Vec<serde_json::Value>>,
    pub(super) call: Option<Text<'a>>,
    pub(super) kwargs: Option<serde_json::Map<String, serde_json::Value>>,
    pub(super) language: Option<Text<'a>>,
    pub(super) shell: Option<bool>,
    pub(super) env: Option<Map<'a, Word<'a>>>,
    pub(super) cwd: Option<Text<'a>>,
    pub(super) stdin: Option<Text<'a>>,
    pub(super) inputs: Option<Vec<Text<'a>>>,
    pub(super) outputs: Option<Vec<Text<'a>>>,
    pub(super) after: Option<Vec<Text<'a>>>,
    pub(super) cpus: Option<Cpus>,
    pub(super) gpus: Option<Count>,
    pub(super) memory: Option<Memory>,
    pub(super) resources: Option<Map<'a, u64>>,
    pub(super) runtime_estimate: Option<Duration>,
    pub(super) timeout: Option<Duration>,
    pub(super) retries: Option<Count>,
    pub(super) replicas: Option<Count>,
    pub(super) priority: Option<Priority>,
}

/// The names of all fields.
const FIELDS: [&str; 22] = [
    "id",
    "command",
    "args",
    "call",
    "kwargs",
    "language",
    "shell",
    "env",
    "cwd",
    "stdin",
    "inputs",
    "outputs",
    "after",
    "cpus",
    "gpus",
    "memory",
    "resources",
    "runtime_estimate",
    "timeout",
    "retries",
    "replicas",
    "priority",
];

impl<'de: 'a, 'a> Deserialize<'de> for TaskFields<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Fields<'a>(PhantomData<&'a ()>);

        impl<'de: 'a, 'a> Visitor<'de> for Fields<'a> {
            type Value = TaskFields<'a>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a task: an object with at least the field `command` or `call`")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
                let mut task = TaskFields::default();
                while let Some(field) = map.next_key::<Field>()? {
                    put_field(&mut task, &field, &mut map)?;
                }
                Ok(task)
            }
        }

        from.deserialize_map(Fields(PhantomData))
    }
}

/// The position of a field's name in [`FIELDS`].
struct Field(usize);

impl<'de> Deserialize<'de> for Field {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Name;

        impl Visitor<'_> for Name {
            type Value = Field;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a field")
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<Field, E> {
                match FIELDS.iter().position(|field| *field == name) {
                    Some(at) => Ok(Field(at)),
                    None => Err(E::custom(unknown_field(name))),
                }
            }
        }

        from.deserialize_identifier(Name)
    }
}

/// The message about a field that there is not.
fn unknown_field(name: &str) -> String {
    let distance = |field: &&&str| edit_distance(&name.to_lowercase(), field);
    match FIELDS.iter().min_by_key(distance).filter(|field| distance(field) <= 1 + field.len() / 3)
    {
        Some(nearest) => format!("there is no field `{name}`; did you mean `{nearest}`?"),
        None => format!("there is no field `{name}`; the fields are {}", FIELDS.join(", ")),
    }
}

/// How many characters must be put in, left out, changed or swapped with
/// their neighbour to make `b` of `a`.
fn edit_distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let change = usize::from(a[i - 1] != b[j - 1]);
            row[j] = (last[j] + 1).min(row[j - 1] + 1).min(last[j - 1] + change);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before_last[j - 2] + 1);
            }
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

fn put_field<'de: 'a, 'a, M: MapAccess<'de>>(
    task: &mut TaskFields<'a>,
    field: &Field,
    map: &mut M,
) -> Result<(), M::Error> {
    let name = FIELDS[field.0];
    match name {
        "id" => once(&mut task.id, name, map),
        "command" => once(&mut task.command, name, map),
        "args" => once(&mut task.args, name, map),
        "call" => once(&mut task.call, name, map),
        "kwargs" => once(&mut task.kwargs, name, map),
        "language" => once(&mut task.language, name, map),
        "shell" => once(&mut task.shell, name, map),
        "env" => once(&mut task.env, name, map),
        "cwd" => once(&mut task.cwd, name, map),
        "stdin" => once(&mut task.stdin, name, map),
        "inputs" => once(&mut task.inputs, name, map),
        "outputs" => once(&mut task.outputs, name, map),
        "after" => once(&mut task.after, name, map),
        "cpus" => once(&mut task.cpus, name, map),
        "gpus" => once(&mut task.gpus, name, map),
        "memory" => once(&mut task.memory, name, map),
        "resources" => once(&mut task.resources, name, map),
        "runtime_estimate" => once(&mut task.runtime_estimate, name, map),
        "timeout" => once(&mut task.timeout, name, map),
        "retries" => once(&mut task.retries, name, map),
        "replicas" => once(&mut task.replicas, name, map),
        _ => once(&mut task.priority, name, map),
    }
}

/// Reads a value into a place that has none yet. A JSON `null` is none.
fn once<'de, T: Deserialize<'de>, M: MapAccess<'de>>(
    place: &mut Option<T>,
    name: &'static str,
    map: &mut M,
) -> Result<(), M::Error> {
    if place.is_some() {
        return Err(de::Error::duplicate_field(name));
    }
    *place = map.next_value()?;
    Ok(())
}

/// Text without NUL: it becomes part of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Text<'a>(pub(crate) Cow<'a, str>);

impl Text<'_> {
    /// Its bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

fn without_nul<E: de::Error>(text: &str) -> Result<(), E> {
    match text.bytes().any(|byte| byte == 0) {
        false => Ok(()),
        true => Err(E::custom("a NUL character, which no command can hold")),
    }
}

/// Text, or a number that is meant as text: `args = ["-n", 4, 0.5]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Word<'a>(pub(super) Text<'a>);

/// A visitor of texts; `numbers` says whether numbers count as such.
struct TextVisitor<'a> {
    numbers: bool,
    of: PhantomData<&'a ()>,
}

impl<'de: 'a, 'a> Visitor<'de> for TextVisitor<'a> {
    type Value = Text<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.numbers { "a string or a number" } else { "a string" })
    }

    fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Text<'a>, E> {
        without_nul(text)?;
        Ok(Text(Cow::Borrowed(text)))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Text<'a>, E> {
        self.visit_string(text.to_owned())
    }

    fn visit_string<E: de::Error>(self, text: String) -> Result<Text<'a>, E> {
        without_nul(&text)?;
        Ok(Text(Cow::Owned(text)))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Text<'a>, E> {
        match self.numbers {
            true => Ok(Text(Cow::Owned(number.to_string()))),
            false => Err(E::invalid_type(de::Unexpected::Signed(number), &self)),
        }
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Text<'a>, E> {
        match self.numbers {
            true => Ok(Text(Cow::Owned(number.to_string()))),
            false => Err(E::invalid_type(de::Unexpected::Unsigned(number), &self)),
        }
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Text<'a>, E> {
        match number_text(number).filter(|_| self.numbers) {
            Some(text) => Ok(Text(Cow::Owned(text))),
            None => Err(E::invalid_type(de::Unexpected::Float(number), &self)),
        }
    }
}

/// The shortest text that reads back as `number`; `None` if it is not finite.
fn number_text(number: f64) -> Option<String> {
    serde_json::Number::from_f64(number).map(|number| number.to_string())
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_str(TextVisitor { numbers: false, of: PhantomData })
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Word<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(TextVisitor { numbers: true, of: PhantomData }).map(Word)
    }
}

/// A program, or a program and its arguments.
#[derive(Debug)]
pub(super) struct OneOrMany<'a>(pub(super) Vec<Word<'a>>);

impl<'de: 'a, 'a> Deserialize<'de> for OneOrMany<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Either<'a>(PhantomData<&'a ()>);

        impl<'de: 'a, 'a> Visitor<'de> for Either<'a> {
            type Value = OneOrMany<'a>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a program, or a list of a program and its arguments")
            }

            fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Self::Value, E> {
                without_nul(text)?;
                Ok(OneOrMany(vec![Word(Text(Cow::Borrowed(text)))]))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                without_nul(text)?;
                Ok(OneOrMany(vec![Word(Text(Cow::Owned(text.to_owned())))]))
            }

            fn visit_seq<S: SeqAccess<'de>>(self, mut list: S) -> Result<Self::Value, S::Error> {
                let mut words = Vec::new();
                while let Some(word) = list.next_element()? {
                    words.push(word);
                }
                Ok(OneOrMany(words))
            }
        }

        from.deserialize_any(Either(PhantomData))
    }
}

/// Names and values in the file's order; a doubled name is an error.
#[derive(Debug)]
pub(super) struct Map<'a, V>(pub(super) Vec<(Text<'a>, V)>);

impl<'de: 'a, 'a, V: Deserialize<'de>> Deserialize<'de> for Map<'a, V> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Entries<'a, V>(PhantomData<(&'a (), V)>);

        impl<'de: 'a, 'a, V: Deserialize<'de>> Visitor<'de> for Entries<'a, V> {
            type Value = Map<'a, V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of names and values")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
                let mut entries: Vec<(Text<'a>, V)> = Vec::new();
                while let Some((name, value)) = map.next_entry::<Text<'a>, V>()? {
                    if name.0.is_empty() || name.0.contains('=') {
                        let name = &name.0;
                        return Err(de::Error::custom(format!("`{name}` cannot be a name")));
                    }
                    if entries.iter().any(|(other, _)| *other == name) {
                        let name = &name.0;
                        return Err(de::Error::custom(format!("`{name}` is given twice")));
                    }
                    entries.push((name, value));
                }
                Ok(Map(entries))
            }
        }

        from.deserialize_map(Entries(PhantomData))
    }
}

/// A number of the amount's plain unit, or a text with units.
macro_rules! amount {
    ($(#[$doc:meta])* $name:ident($type:ty), $expecting:literal, $text:expr, $number:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy)]
        pub(super) struct $name(pub(super) $type);

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                struct Amount;

                impl Visitor<'_> for Amount {
                    type Value = $name;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($expecting)
                    }

                    fn visit_str<E: de::Error>(self, text: &str) -> Result<$name, E> {
                        $text(text).map($name).map_err(E::custom)
                    }

                    fn visit_u64<E: de::Error>(self, number: u64) -> Result<$name, E> {
                        self.visit_f64(number as f64)
                    }

                    fn visit_i64<E: de::Error>(self, number: i64) -> Result<$name, E> {
                        self.visit_f64(number as f64)
                    }

                    fn visit_f64<E: de::Error>(self, number: f64) -> Result<$name, E> {
                        let shown = match number.fract() == 0.0 && number.abs() < 1e15 {
                            true => de::Unexpected::Signed(number as i64),
                            false => de::Unexpected::Float(number),
                        };
                        let wrong = || E::invalid_value(shown, &self);
                        $number(number).map($name).ok_or_else(wrong)
                    }
                }

                from.deserialize_any(Amount)
            }
        }
    };
}

/// A whole number within the bounds of its type.
macro_rules! whole {
    ($(#[$doc:meta])* $name:ident($type:ty), $expecting:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy)]
        pub(super) struct $name(pub(super) $type);

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                struct Whole;

                impl Visitor<'_> for Whole {
                    type Value = $name;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($expecting)
                    }

                    fn visit_u64<E: de::Error>(self, number: u64) -> Result<$name, E> {
                        let wrong = |_| E::invalid_value(de::Unexpected::Unsigned(number), &self);
                        number.try_into().map($name).map_err(wrong)
                    }

                    fn visit_i64<E: de::Error>(self, number: i64) -> Result<$name, E> {
                        let wrong = |_| E::invalid_value(de::Unexpected::Signed(number), &self);
                        number.try_into().map($name).map_err(wrong)
                    }
                }

                from.deserialize_any(Whole)
            }
        }
    };
}

whole!(
    /// How many of something.
    Count(u32),
    "a whole number from 0 to 4294967295"
);
whole!(
    /// Higher goes first.
    Priority(i32),
    "a whole number from -2147483648 to 2147483647"
);

amount!(
    /// Microseconds.
    Duration(u64),
    "a number of seconds from 0 on, or a text such as \"5m\"",
    quantity::duration_micros,
    quantity::seconds_to_micros
);
amount!(
    /// Bytes.
    Memory(u64),
    "a whole number of bytes from 0 on, or a text such as \"2GiB\"",
    quantity::memory_bytes,
    |bytes: f64| (bytes.fract() == 0.0 && (0.0..1.8e19).contains(&bytes)).then_some(bytes as u64)
);
amount!(
    /// Thousandths of a CPU.
    Cpus(u32),
    "a number of cpus above 0 with at most three decimals",
    quantity::cpus_milli,
    quantity::cpus_to_milli
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_field_is_suggested() {
        for (name, nearest) in [
            ("comand", "command"),
            ("commnad", "command"),
            ("Outputs", "outputs"),
            ("input", "inputs"),
            ("cpu", "cpus"),
            ("runtime-estimate", "runtime_estimate"),
            ("timeuot", "timeout"),
        ] {
            let text = unknown_field(name);
            assert!(text.ends_with(&format!("did you mean `{nearest}`?")), "{text}");
        }
        assert!(unknown_field("colour_scheme").contains("the fields are id, command"));
        assert_eq!(edit_distance("", "abc"), 3);
        assert_eq!(edit_distance("ca", "abc"), 3);
        assert_eq!(edit_distance("abcd", "acbd"), 1);
    }
}
