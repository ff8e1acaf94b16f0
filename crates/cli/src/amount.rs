//! Amounts in the description files of `falkon model` and `falkon sim`: a plain
//! number in the base unit, or a text with a unit.

use crate::plan::quantity::{QuantityError, duration_seconds, memory_bytes};
use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::marker::PhantomData;

/// A unit that an amount is given in.
pub(crate) trait Unit {
    /// The expected form, for messages.
    const EXPECTED: &'static str;

    /// The amount in the base unit.
    fn read(text: &str) -> Result<f64, QuantityError>;
}

/// An amount in the base unit of `U`; never negative, never infinite.
#[derive(Debug)]
pub(crate) struct Amount<U> {
    pub(crate) value: f64,
    unit: PhantomData<U>,
}

impl<U> Clone for Amount<U> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<U> Copy for Amount<U> {}

impl<U> Amount<U> {
    /// The amount of `value` base units.
    pub(crate) fn of(value: f64) -> Amount<U> {
        Amount { value, unit: PhantomData }
    }
}

/// Seconds.
#[derive(Debug)]
pub(crate) struct Time;

impl Unit for Time {
    const EXPECTED: &'static str = "a duration: seconds (0.5) or a text with units (\"250ms\")";

    fn read(text: &str) -> Result<f64, QuantityError> {
        duration_seconds(text)
    }
}

/// Bytes.
#[derive(Debug)]
pub(crate) struct Size;

impl Unit for Size {
    const EXPECTED: &'static str = "an amount of data: bytes or a text with a unit (\"10MB\")";

    fn read(text: &str) -> Result<f64, QuantityError> {
        memory_bytes(text).map(|bytes| bytes as f64)
    }
}

/// Bytes per second.
#[derive(Debug)]
pub(crate) struct Rate;

impl Unit for Rate {
    const EXPECTED: &'static str =
        "a bandwidth: bytes per second or a text with a unit (\"125MB/s\", \"1Gb/s\")";

    fn read(text: &str) -> Result<f64, QuantityError> {
        let wrong = || QuantityError::Bandwidth(text.to_owned());
        let amount = text.trim().strip_suffix("/s").ok_or_else(wrong)?.trim_end();
        // Bits are written small; everything else that ends so is bytes.
        match amount.strip_suffix("bit").or_else(|| amount.strip_suffix('b')) {
            Some(bits) => memory_bytes(&format!("{bits}B")).map(|bits| bits as f64 / 8.0),
            None => memory_bytes(amount).map(|bytes| bytes as f64),
        }
        .map_err(|_| wrong())
    }
}

impl<'de, U: Unit> Deserialize<'de> for Amount<U> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader<U>(PhantomData<U>);
        impl<U: Unit> Visitor<'_> for Reader<U> {
            type Value = Amount<U>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(U::EXPECTED)
            }

            fn visit_f64<E: Error>(self, value: f64) -> Result<Amount<U>, E> {
                let fits = value.is_finite() && value >= 0.0;
                let found = Unexpected::Float(value);
                if fits { Ok(Amount::of(value)) } else { Err(E::invalid_value(found, &self)) }
            }

            fn visit_i64<E: Error>(self, value: i64) -> Result<Amount<U>, E> {
                self.visit_f64(value as f64)
            }

            fn visit_u64<E: Error>(self, value: u64) -> Result<Amount<U>, E> {
                self.visit_f64(value as f64)
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Amount<U>, E> {
                U::read(text).map(Amount::of).map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Reader(PhantomData))
    }
}

/// A number for people: four digits or more, thousands apart.
pub(crate) fn shown(value: f64) -> String {
    if value.is_infinite() {
        return "∞".to_owned();
    }
    if value != 0.0 && value.abs() < 1e-3 {
        return format!("{value:.3e}");
    }
    let decimals = match value.abs() {
        size if size == size.trunc() => 0,
        size if size < 10.0 => 4,
        size if size < 1000.0 => 2,
        _ => 0,
    };
    let text = format!("{value:.decimals$}");
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut out = String::new();
    for (at, digit) in whole.chars().enumerate() {
        let left = whole.len() - at;
        if at > 0 && left % 3 == 0 && !out.ends_with('-') {
            out.push(',');
        }
        out.push(digit);
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bandwidths_are_in_bits_or_bytes() {
        for (text, expected) in [
            ("1Gb/s", 125e6),
            ("4.4 Gb/s", 550e6),
            ("100Mbit/s", 12.5e6),
            ("125MB/s", 125e6),
            ("1MiB/s", 1_048_576.0),
            ("8 b/s", 1.0),
            ("8B/s", 8.0),
        ] {
            assert_eq!(Rate::read(text).ok(), Some(expected), "{text}");
        }
        for text in ["1Gb", "fast", "/s", "-1MB/s", "1Xb/s"] {
            assert!(Rate::read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_are_short_and_grouped() {
        for (value, expected) in [
            (0.0, "0"),
            (1234567.0, "1,234,567"),
            (-1234.0, "-1,234"),
            (12345.678, "12,346"),
            (123.456, "123.46"),
            (0.98765, "0.9877"),
            (0.00012, "1.200e-4"),
            (f64::INFINITY, "∞"),
        ] {
            assert_eq!(shown(value), expected);
        }
    }
}
