//! The fields of a task in a task file.
//!
//! Values are checked while they are read, so that every error has its place.

use super::super::options::{CLASS_FIELDS, ClassOptions};
use super::super::texts::{Map, OneOrMany, Text, Word, once};
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use std::fmt;
use std::marker::PhantomData;

/// The fields that say what a task is: its name, its type, what the page of
/// task files says of it, and what a task has without it. Options of the class
/// follow from their own table.
macro_rules! own_fields {
    ($($name:ident: $type:ty, $page:literal, $otherwise:literal;)+) => {
        /// A task as it is written.
        #[derive(Debug, Default)]
        pub(super) struct TaskFields<'a> {
            $(pub(super) $name: Option<$type>,)+
            pub(super) class: ClassOptions,
        }

        /// The names of these fields.
        pub(crate) const OWN_FIELDS: &[&str] = &[$(stringify!($name)),+];

        /// The rows of the page: name, permitted values, and what a task has
        /// without the field.
        #[cfg(test)]
        pub(crate) const OWN_PAGE: &[[&str; 3]] = &[$([stringify!($name), $page, $otherwise]),+];

        impl<'a> TaskFields<'a> {
            /// Reads the value of the field `name`, which there is.
            fn read<'de: 'a, M: MapAccess<'de>>(
                &mut self,
                name: &'static str,
                map: &mut M,
            ) -> Result<(), M::Error> {
                match name {
                    $(stringify!($name) => once(&mut self.$name, name, map),)+
                    option => self.class.read(option, map),
                }
            }
        }
    };
}

own_fields! {
    id: Text<'a>, "the task's name, unique in the file", "its number";
    command: OneOrMany<'a>,
        "a program, or a list of a program and its arguments; `@noop`, `@sleep`",
        "required, unless there is `call`";
    args: Vec<serde_json::Value>,
        "list of further arguments: texts and numbers for a program, any values for a function",
        "none";
    call: Text<'a>, "a function instead of a program, `\"module:function\"`", "none";
    kwargs: serde_json::Map<String, serde_json::Value>,
        "table of arguments that `call`'s function takes by name", "none";
    language: Text<'a>, "the language of `call`, for which executors have a `--worker`", "`python`";
    shell: bool,
        "`true`: `command` is a script for `/bin/sh`, `args` are its `$1`, `$2`, …", "`--shell`";
    env: Map<'a, Word<'a>>, "table of variables", "`--env`, added to";
    container: Text<'a>,
        "the image whose [container](#containers) the task runs in; `\"\"` is none",
        "`--container`, else none";
    cwd: Text<'a>, "working directory", "`--cwd`, else the current one";
    stdin: Text<'a>, "file to read as standard input", "`--stdin`, else empty";
    inputs: Vec<Text<'a>>,
        "files that must exist before the task starts, relative to `cwd`; [data objects](data.md), \
         `NAME=SOURCE`",
        "`--input`";
    unpack: Vec<Text<'a>>,
        "[archives](data.md#software-as-data) that the task finds unpacked, `NAME=ARCHIVE`",
        "`--unpack`";
    outputs: Vec<Text<'a>>,
        "files that must exist after the task has succeeded, relative to `cwd`; data objects, \
         `NAME=TARGET`",
        "`--output`";
    collect_streams: Text<'a>,
        "the [archive](small-files.md#output-streams) of which the task's standard output and \
         standard error become members",
        "`--collect-streams`, else they are in its result";
    after: Vec<Text<'a>>, "ids of tasks that must succeed first", "none";
}

/// The names of all fields.
fn names() -> impl Iterator<Item = &'static str> {
    OWN_FIELDS.iter().chain(CLASS_FIELDS).copied()
}

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
                while let Some(Field(name)) = map.next_key()? {
                    task.read(name, &mut map)?;
                }
                Ok(task)
            }
        }

        from.deserialize_map(Fields(PhantomData))
    }
}

/// The name of a field that there is.
struct Field(&'static str);

impl<'de> Deserialize<'de> for Field {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Name;

        impl Visitor<'_> for Name {
            type Value = Field;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a field")
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<Field, E> {
                let known = names().find(|field| *field == name).map(Field);
                known.ok_or_else(|| E::custom(unknown_field(name)))
            }
        }

        from.deserialize_identifier(Name)
    }
}

/// The message about a field that there is not.
fn unknown_field(name: &str) -> String {
    let distance = |field: &&str| edit_distance(&name.to_lowercase(), field);
    match names().min_by_key(distance).filter(|field| distance(field) <= 1 + field.len() / 3) {
        Some(nearest) => format!("there is no field `{name}`; did you mean `{nearest}`?"),
        None => {
            let names: Vec<&str> = names().collect();
            format!("there is no field `{name}`; the fields are {}", names.join(", "))
        }
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
