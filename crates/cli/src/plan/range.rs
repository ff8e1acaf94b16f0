//! Ranges of numbers: whole or decimal, exact, and padded with zeros if asked.

use falkon_core::task::Range;
use falkon_wire::command::Digits;

/// Most digits of a number before its point, and most behind it.
const DIGITS_MAX: usize = 19;
/// Most digits behind the point.
const PLACES_MAX: usize = 18;

/// The numbers of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Numbers {
    /// Whole numbers: the range's, in units of their last place.
    pub(crate) range: Range,
    /// How they are written.
    pub(crate) digits: Digits,
}

impl Default for Numbers {
    fn default() -> Numbers {
        let range = Range { start: 0, step: 1, count: 0 };
        Numbers { range, digits: Digits::default() }
    }
}

impl Numbers {
    /// The numbers from 1 to `count`.
    pub(crate) fn up_to(count: u64) -> Numbers {
        Numbers { range: Range { start: 1, step: 1, count }, digits: Digits::default() }
    }

    /// Whether they are written as they are computed.
    pub(crate) fn are_whole(&self) -> bool {
        self.digits == Digits::default()
    }
}

/// Why a text is not a range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RangeError {
    /// Not `A-B` or `A-B:STEP`.
    #[error(
        "`{0}` is not a range: write FIRST-LAST or FIRST-LAST:STEP, such as 1-100, 0-90:10, \
         10-1:-1, -5-5, 001-100 or 0.1-0.9:0.1"
    )]
    Malformed(String),
    /// A step of 0.
    #[error("the range `{0}` has a step of 0 and would never end")]
    NoStep(String),
    /// The step leads away from the end.
    #[error("the step of the range `{text}` leads away from its end: give a step such as {step}")]
    Away {
        /// The range as it was written.
        text: String,
        /// A step that would do.
        step: &'static str,
    },
    /// 2^62 values or more, or numbers of too many digits.
    #[error("the range `{0}` has too many values, or its numbers have too many digits")]
    TooLong(String),
}

/// A number as it is written.
struct Decimal {
    /// All its digits, as a whole number.
    units: i128,
    /// How many of the digits are behind the point.
    places: usize,
    /// Characters before the point, the sign among them.
    whole_chars: usize,
    is_padded: bool,
}

impl Decimal {
    /// `None` if `text` is no decimal number, or one of too many digits.
    fn read(text: &str) -> Option<Decimal> {
        let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
        let is_negative = text.starts_with('-');
        let (whole, behind) = match unsigned.split_once('.') {
            Some((whole, behind)) if !behind.is_empty() => (whole, behind),
            Some(_) => return None,
            None => (unsigned, ""),
        };
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty() || !is_number(whole) || !is_number(behind) {
            return None;
        }
        if whole.len() > DIGITS_MAX || behind.len() > PLACES_MAX {
            return None;
        }
        let units: i128 = format!("{whole}{behind}").parse().ok()?;
        Some(Decimal {
            units: if is_negative { -units } else { units },
            places: behind.len(),
            whole_chars: whole.len() + usize::from(is_negative),
            is_padded: whole.len() > 1 && whole.starts_with('0'),
        })
    }

    /// The number in units of so many places, which are no fewer than its own;
    /// `None` if that is too large.
    fn at(&self, places: usize) -> Option<i128> {
        let more = u32::try_from(places.checked_sub(self.places)?).ok()?;
        self.units.checked_mul(10i128.checked_pow(more)?)
    }
}

/// The range written as `FIRST-LAST[:STEP]`, both ends included. Its numbers
/// have as many digits behind the point as its first or its step has, and are
/// padded with zeros if one of its ends is.
///
/// # Errors
/// The range is malformed, or its step is 0 or leads away from its end.
pub(crate) fn range(text: &str) -> Result<Numbers, RangeError> {
    let malformed = || RangeError::Malformed(text.to_owned());
    let too_long = || RangeError::TooLong(text.to_owned());
    let number = |text| Decimal::read(text).ok_or_else(malformed);
    let (ends, step) = text.split_once(':').unwrap_or((text, "1"));
    // The first character may be a sign; the next `-` divides.
    let divide = ends.char_indices().skip(1).find(|(_, c)| *c == '-').ok_or_else(malformed)?.0;
    let (first, last) = (number(&ends[..divide])?, number(&ends[divide + 1..])?);
    let step = number(step)?;
    if step.units == 0 {
        return Err(RangeError::NoStep(text.to_owned()));
    }
    let places = first.places.max(step.places);
    let exact = places.max(last.places);
    let units = |number: &Decimal| number.at(exact).ok_or_else(too_long);
    let distance = units(&last)? - units(&first)?;
    if distance != 0 && (distance > 0) != (step.units > 0) {
        let step = if distance > 0 { ":1" } else { ":-1" };
        return Err(RangeError::Away { text: text.to_owned(), step });
    }
    let steps = distance / units(&step)?;
    let count = u64::try_from(steps + 1).ok().filter(|count| *count <= 1 << 62);
    let count = count.ok_or_else(too_long)?;
    let (start, by) = (first.at(places).ok_or_else(too_long)?, step.at(places));
    let by = by.ok_or_else(too_long)?;
    let fits = |units: i128| i64::try_from(units).map_err(|_| too_long());
    let end = by.checked_mul(steps).and_then(|all| start.checked_add(all)).ok_or_else(too_long)?;
    fits(end)?;
    let is_padded = first.is_padded || last.is_padded;
    let behind = if places > 0 { 1 + places } else { 0 };
    let width = first.whole_chars.max(last.whole_chars) + behind;
    let digits = Digits { places: places as u32, width: if is_padded { width as u32 } else { 0 } };
    Ok(Numbers { range: Range { start: fits(start)?, step: fits(by)?, count }, digits })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn values(text: &str) -> Vec<String> {
        let Numbers { range, digits } = range(text).unwrap();
        let text = |at| digits.write(range.value(at).to_string().as_bytes());
        (0..range.count).map(|at| String::from_utf8(text(at)).unwrap()).collect()
    }

    #[test]
    fn ranges_are_read() {
        assert_eq!(values("1-3"), ["1", "2", "3"]);
        assert_eq!(values("5-5"), ["5"]);
        assert_eq!(values("0-9:4"), ["0", "4", "8"]);
        assert_eq!(values("-2-1"), ["-2", "-1", "0", "1"]);
        assert_eq!(values("-3--1"), ["-3", "-2", "-1"]);
        assert_eq!(values("3-1:-1"), ["3", "2", "1"]);
        assert_eq!(values("1--3:-2"), ["1", "-1", "-3"]);
        assert_eq!(range("1-1000000000000").unwrap().range.count, 1_000_000_000_000);
        let last = i64::MAX.to_string();
        assert_eq!(values(&format!("{last}-{last}")), [last]);
    }

    #[test]
    fn decimals_are_exact_and_zeros_are_kept() {
        assert_eq!(values("0.1-0.3:0.1"), ["0.1", "0.2", "0.3"]);
        assert_eq!(values("0-1:0.25"), ["0.00", "0.25", "0.50", "0.75", "1.00"]);
        assert_eq!(values("0.5-2"), ["0.5", "1.5"]);
        assert_eq!(values("0-0.95:0.5"), ["0.0", "0.5"]);
        assert_eq!(values("-0.1-0.1:0.1"), ["-0.1", "0.0", "0.1"]);
        assert_eq!(values("1.0-0.8:-0.1"), ["1.0", "0.9", "0.8"]);
        assert_eq!(values("008-010"), ["008", "009", "010"]);
        assert_eq!(values("1-05:2"), ["01", "03", "05"]);
        assert_eq!(values("-01-1"), ["-01", "000", "001"]);
        assert_eq!(values("00.5-10.5:5"), ["00.5", "05.5", "10.5"]);
    }

    #[test]
    fn malformed_ranges_are_refused() {
        for text in [
            "",
            "1",
            "1-",
            "a-b",
            "-",
            "--",
            "1-2-3",
            "1-5:",
            "1-5:x",
            "1-2:3:4",
            "1.-2",
            ".5-1",
            "1e3-2e3",
            "1.5.2-3",
            "1-0x10",
            "0.1234567890123456789-1",
        ] {
            assert_eq!(range(text), Err(RangeError::Malformed(text.to_owned())), "{text}");
        }
        assert_eq!(range("1-5:0"), Err(RangeError::NoStep("1-5:0".to_owned())));
        assert_eq!(range("1-5:0.0"), Err(RangeError::NoStep("1-5:0.0".to_owned())));
        assert!(matches!(range("5-1"), Err(RangeError::Away { step: ":-1", .. })));
        assert!(matches!(range("1-5:-1"), Err(RangeError::Away { step: ":1", .. })));
        for text in [
            "-9223372036854775808-9223372036854775807",
            "9223372036854775807-9223372036854775808",
            "9000000000000000000-9000000000000000000:0.000000000000000001",
        ] {
            assert_eq!(range(text), Err(RangeError::TooLong(text.to_owned())), "{text}");
        }
    }

    /// A number of hundredths as people write it, without zeros at its end.
    fn written(hundredths: i64) -> String {
        let text = format!("{}.{:02}", hundredths.abs() / 100, hundredths.abs() % 100);
        let text = text.trim_end_matches('0').trim_end_matches('.');
        format!("{}{text}", if hundredths < 0 { "-" } else { "" })
    }

    proptest! {
        #[test]
        fn a_range_counts_as_a_loop_over_hundredths_does(
            first in -300i64..300, last in -300i64..300, step in -120i64..120,
        ) {
            let mut expected = Vec::new();
            let mut value = first;
            while step != 0 && (if step > 0 { value <= last } else { value >= last }) {
                expected.push(written(value));
                value += step;
            }
            match range(&format!("{}-{}:{}", written(first), written(last), written(step))) {
                Ok(_) => {
                    let text = format!("{}-{}:{}", written(first), written(last), written(step));
                    let found = values(&text).into_iter().map(|text| match text.contains('.') {
                        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
                        false => text,
                    });
                    prop_assert_eq!(found.collect::<Vec<_>>(), expected);
                }
                Err(_) => prop_assert!(expected.is_empty()),
            }
        }
    }
}
