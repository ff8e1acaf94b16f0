//! The option of alternatives: requests for resources, as the command line and task files give
//! them.

use super::super::alternatives::{Reading, alternative};
use super::super::texts::Text;
use super::kinds::{Count, Cpus, Disk, Memory, OptionKind};
use clap::builder::ValueParser;
use clap::{Arg, ArgAction, ArgMatches};
use falkon_core::task::{DISK, Resources};
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use std::fmt;

/// Requests for resources, the preferred first.
#[derive(Debug, Clone)]
pub(crate) struct Alternatives(Vec<Resources>);

/// One of them, as a table of a task file.
struct Alternative(Resources);

impl OptionKind for Alternatives {
    type Stored = Vec<Resources>;
    const VALUE_NAME: &'static str = "NAME=AMOUNT[,…]";
    #[cfg(test)]
    const PYTHON: &'static str = "alternatives";

    fn parser() -> ValueParser {
        ValueParser::new(alternative)
    }

    fn arg(arg: Arg) -> Arg {
        arg.value_name(Self::VALUE_NAME).value_parser(Self::parser()).action(ArgAction::Append)
    }

    fn given(matches: &ArgMatches, flag: &str) -> Option<Alternatives> {
        let given = matches.get_many::<Resources>(flag)?;
        Some(Alternatives(given.cloned().collect()))
    }

    /// Takes the place of those that are there.
    fn put(&self, held: &mut Self::Stored) {
        held.clone_from(&self.0);
    }

    fn shown(held: &Self::Stored) -> Option<String> {
        let shown: Vec<String> = held.iter().map(Resources::to_string).collect();
        (!shown.is_empty()).then(|| shown.join(", or "))
    }
}

impl<'de> Deserialize<'de> for Alternatives {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let all = Vec::<Alternative>::deserialize(from)?;
        Ok(Alternatives(all.into_iter().map(|Alternative(resources)| resources).collect()))
    }
}

impl<'de> Deserialize<'de> for Alternative {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Table;

        impl<'de> Visitor<'de> for Table {
            type Value = Alternative;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an alternative: a table of resources, such as {\"cpus\": 16}")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Alternative, M::Error> {
                let mut reading = Reading::new();
                while let Some(name) = map.next_key::<Text<'de>>()? {
                    let name: &str = &name.0;
                    reading.name(name).map_err(de::Error::custom)?;
                    match name {
                        "cpus" => {
                            let Cpus(milli) = map.next_value()?;
                            reading.cpus(milli).map_err(de::Error::custom)?;
                        }
                        "gpus" => reading.gpus(map.next_value::<Count>()?.0),
                        "memory" => {
                            let Memory(bytes) = map.next_value()?;
                            reading.memory(bytes).map_err(de::Error::custom)?;
                        }
                        DISK => reading.disk(map.next_value::<Disk>()?.0),
                        custom => {
                            let count = map.next_value::<u64>()?;
                            reading.custom(custom, count).map_err(de::Error::custom)?;
                        }
                    }
                }
                Ok(Alternative(reading.end()))
            }
        }

        from.deserialize_map(Table)
    }
}
