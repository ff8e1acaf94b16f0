//! Texts, lists and maps of task files and workflows, as JSON and TOML both
//! give them.
//!
//! Text is borrowed from the file where it has no escapes.

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

/// Reads a value into a place that has none yet. A JSON `null` is none.
pub(crate) fn once<'de, T: Deserialize<'de>, M: MapAccess<'de>>(
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
    /// The text's bytes.
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
pub(crate) struct Word<'a>(pub(crate) Text<'a>);

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
pub(crate) struct OneOrMany<'a>(pub(crate) Vec<Word<'a>>);

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
pub(crate) struct Map<'a, V>(pub(crate) Vec<(Text<'a>, V)>);

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

/// A JSON error without the place that its text repeats.
pub(crate) fn json_message(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    text.strip_suffix(&place).unwrap_or(&text).to_owned()
}
