//! Kinds of values that options of a task take: how the command line and a task
//! file give them, and how the task's class holds them.

use super::super::quantity;
use super::super::texts::Map;
use clap::builder::{TypedValueParser, ValueParser};
use clap::{Arg, ArgAction, ArgMatches, value_parser};
use falkon_core::limits::{GANG_NODES_MAX, NODE_RANKS_MAX};
use falkon_core::task::{
    AUTO_CPUS, AUTO_MEMORY, AUTO_TIME, DISK, MILLI, UNLIMITED, set_disk_bytes,
};
use serde::de::{self, Deserialize, Deserializer, Visitor};
use std::fmt;

/// A kind of value that an option takes; [`Deserialize`] reads one of a task
/// file.
pub(crate) trait OptionKind: Clone + Send + Sync + 'static {
    /// The type of its place in a class.
    type Stored: PartialEq + fmt::Debug;
    /// The placeholder in the help of the command line.
    const VALUE_NAME: &'static str;
    /// The name of its reader in `python/falkon/_options.py`.
    #[cfg(test)]
    const PYTHON: &'static str;

    /// The reader of a word of the command line.
    fn parser() -> ValueParser;

    /// The option of the command line.
    fn arg(arg: Arg) -> Arg {
        arg.value_name(Self::VALUE_NAME).value_parser(Self::parser()).allow_negative_numbers(true)
    }

    /// The value that a command line gives to the option `flag`.
    fn given(matches: &ArgMatches, flag: &str) -> Option<Self> {
        matches.get_one::<Self>(flag).cloned()
    }

    /// Puts it into its place in a class.
    fn put(&self, held: &mut Self::Stored);

    /// The value in a class, for people; `None` if there is none.
    fn shown(held: &Self::Stored) -> Option<String>;
}

macro_rules! option_kind {
    ($name:ident($held:ty) = $value_name:literal, $python:literal, $parser:expr, $put:expr, $shown:expr) => {
        impl OptionKind for $name {
            type Stored = $held;
            const VALUE_NAME: &'static str = $value_name;
            #[cfg(test)]
            const PYTHON: &'static str = $python;

            fn parser() -> ValueParser {
                ValueParser::new($parser.map($name))
            }

            fn put(&self, held: &mut $held) {
                *held = $put(self.0);
            }

            fn shown(held: &$held) -> Option<String> {
                $shown(*held)
            }
        }
    };
}

option_kind!(Cpus(u32) = "N", "task_cpus", quantity::task_cpus_milli, |milli| milli, |milli| {
    match milli {
        AUTO_CPUS => Some("auto".to_owned()),
        milli => Some((f64::from(milli) / f64::from(MILLI)).to_string()),
    }
});
option_kind!(Count(u32) = "N", "count", value_parser!(u32), |count| count, number);
option_kind!(
    Copies(u32) = "N",
    "copies",
    value_parser!(u32).range(1..),
    |count: u32| count.max(1),
    number
);
option_kind!(
    Nodes(u32) = "N",
    "nodes",
    value_parser!(u32).range(1..=i64::from(GANG_NODES_MAX)),
    |count| count,
    |count: u32| number(count.max(1))
);
option_kind!(
    Ranks(u32) = "N",
    "ranks",
    value_parser!(u32).range(1..=i64::from(NODE_RANKS_MAX)),
    |count| count,
    |count: u32| (count > 0).then(|| count.to_string())
);
option_kind!(Priority(i32) = "N", "priority", value_parser!(i32), |priority| priority, number);
option_kind!(
    Memory(u64) = "SIZE",
    "task_memory",
    quantity::task_memory_bytes,
    |bytes| bytes,
    |bytes| match bytes {
        0 => None,
        AUTO_MEMORY => Some("auto".to_owned()),
        bytes => Some(format!("{bytes} bytes")),
    }
);
option_kind!(
    MemoryLimit(u64) = "SIZE",
    "memory_limit",
    quantity::memory_limit_bytes,
    |bytes| bytes,
    |bytes| match bytes {
        0 => None,
        UNLIMITED => Some("none".to_owned()),
        bytes => Some(format!("{bytes} bytes")),
    }
);
option_kind!(Duration(u64) = "TIME", "time", quantity::duration_micros, |micros| micros, seconds);
option_kind!(
    Estimate(u64) = "TIME",
    "task_time",
    quantity::task_duration_micros,
    quantity::coarse_estimate,
    |micros| match micros {
        AUTO_TIME => Some("as long as others".to_owned()),
        micros => seconds(micros),
    }
);

fn number(number: impl ToString) -> Option<String> {
    Some(number.to_string())
}

fn seconds(micros: u64) -> Option<String> {
    (micros > 0).then(|| format!("{} s", micros as f64 / 1e6))
}

/// Something that is so if it is given.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Flag(bool);

impl<'de> Deserialize<'de> for Flag {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        bool::deserialize(from).map(Flag)
    }
}

impl OptionKind for Flag {
    type Stored = bool;
    const VALUE_NAME: &'static str = "";
    #[cfg(test)]
    const PYTHON: &'static str = "flag";

    fn parser() -> ValueParser {
        value_parser!(bool)
    }

    fn arg(arg: Arg) -> Arg {
        arg.action(ArgAction::SetTrue)
    }

    fn given(matches: &ArgMatches, flag: &str) -> Option<Flag> {
        matches.get_flag(flag).then_some(Flag(true))
    }

    fn put(&self, held: &mut bool) {
        *held = self.0;
    }

    fn shown(held: &bool) -> Option<String> {
        held.then(|| "if it straggles".to_owned())
    }
}

impl OptionKind for Disk {
    type Stored = Vec<(String, u64)>;
    const VALUE_NAME: &'static str = "SIZE";
    #[cfg(test)]
    const PYTHON: &'static str = "disk";

    fn parser() -> ValueParser {
        ValueParser::new(|text: &str| quantity::disk_bytes(text).map(Disk))
    }

    /// Takes the place of what is there; 0 is none.
    fn put(&self, held: &mut Self::Stored) {
        set_disk_bytes(held, self.0);
    }

    fn shown(held: &Self::Stored) -> Option<String> {
        let disk = held.iter().find(|(name, _)| name == DISK);
        disk.map(|(_, bytes)| format!("{bytes} bytes"))
    }
}

/// Custom resources and how much of each.
#[derive(Debug, Clone)]
pub(crate) struct Custom(Vec<(String, u64)>);

impl OptionKind for Custom {
    type Stored = Vec<(String, u64)>;
    const VALUE_NAME: &'static str = "NAME=COUNT";
    #[cfg(test)]
    const PYTHON: &'static str = "resources";

    fn parser() -> ValueParser {
        ValueParser::new(quantity::resource)
    }

    fn arg(arg: Arg) -> Arg {
        arg.value_name(Self::VALUE_NAME).value_parser(Self::parser()).action(ArgAction::Append)
    }

    fn given(matches: &ArgMatches, flag: &str) -> Option<Custom> {
        let given = matches.get_many::<(String, u64)>(flag)?;
        Some(Custom(given.cloned().collect()))
    }

    /// Adds to what is there; of one name, the last counts, and 0 is none.
    fn put(&self, held: &mut Self::Stored) {
        for (name, count) in &self.0 {
            held.retain(|(other, _)| other != name);
            held.push((name.clone(), *count));
        }
        held.retain(|(_, count)| *count > 0);
        held.sort_unstable();
    }

    fn shown(held: &Self::Stored) -> Option<String> {
        let counts = held.iter().filter(|(name, _)| name != DISK);
        let shown: Vec<String> = counts.map(|(name, count)| format!("{count} {name}")).collect();
        (!shown.is_empty()).then(|| shown.join(", "))
    }
}

impl<'de> Deserialize<'de> for Custom {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let Map(counts) = Map::<'de, u64>::deserialize(from)?;
        let owned = counts.into_iter().map(|(name, count)| (name.0.into_owned(), count));
        let owned: Vec<(String, u64)> = owned.collect();
        if owned.iter().any(|(name, _)| name == DISK) {
            return Err(de::Error::custom("`disk` is no custom resource: give `disk` by itself"));
        }
        Ok(Custom(owned))
    }
}

/// A number of the amount's plain unit, or a text with units.
macro_rules! amount {
    ($(#[$doc:meta])* $name:ident($type:ty), $expecting:literal, $text:expr, $number:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy)]
        pub(crate) struct $name(pub(crate) $type);

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
        pub(crate) struct $name(pub(crate) $type);

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
/// A whole number within bounds of its own.
macro_rules! bounded {
    ($(#[$doc:meta])* $name:ident, $max:expr, $expecting:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy)]
        pub(crate) struct $name(pub(crate) u32);

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let Count(count) = Count::deserialize(from)?;
                if !(1..=$max).contains(&count) {
                    let found = de::Unexpected::Unsigned(u64::from(count));
                    return Err(de::Error::invalid_value(found, &$expecting));
                }
                Ok($name(count))
            }
        }
    };
}

bounded!(
    /// How many executors run a task together.
    Nodes,
    GANG_NODES_MAX,
    "a whole number from 1 to 4096"
);
bounded!(
    /// How many processes launchers start on each node of a task.
    Ranks,
    NODE_RANKS_MAX,
    "a whole number from 1 to 65535"
);
whole!(
    /// How many of something, and at least one: 0 is taken as 1.
    Copies(u32),
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
    /// Microseconds that a task is expected to run, or [`AUTO_TIME`].
    Estimate(u64),
    "a number of seconds from 0 on, or a text such as \"5m\" or \"auto\"",
    quantity::task_duration_micros,
    quantity::seconds_to_micros
);
amount!(
    /// Bytes, or [`AUTO_MEMORY`].
    Memory(u64),
    "a whole number of bytes from 0 on, or a text such as \"2GiB\" or \"auto\"",
    quantity::task_memory_bytes,
    |bytes: f64| (bytes.fract() == 0.0 && (0.0..1.8e19).contains(&bytes)).then_some(bytes as u64)
);
amount!(
    /// Bytes, or [`UNLIMITED`].
    MemoryLimit(u64),
    "a whole number of bytes from 1 on, or a text such as \"2GiB\" or \"none\"",
    quantity::memory_limit_bytes,
    |bytes: f64| (bytes.fract() == 0.0 && (1.0..1.8e19).contains(&bytes)).then_some(bytes as u64)
);
amount!(
    /// Bytes of scratch disk space.
    Disk(u64),
    "a whole number of bytes from 0 on, or a text such as \"20GiB\"",
    quantity::disk_bytes,
    |bytes: f64| (bytes.fract() == 0.0 && (0.0..1.8e19).contains(&bytes)).then_some(bytes as u64)
);
amount!(
    /// Thousandths of a CPU, or [`AUTO_CPUS`].
    Cpus(u32),
    "a number of cpus above 0 with at most three decimals, or \"auto\"",
    quantity::task_cpus_milli,
    quantity::cpus_to_milli
);
