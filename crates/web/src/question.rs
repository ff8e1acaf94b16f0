//! What a browser asks: the name of a question, and values by name.

use std::collections::BTreeMap;

/// Values of a question at most.
const VALUES_MAX: usize = 32;

/// A question.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Question {
    /// Its name: what comes after `/api/` or `/do/`.
    pub name: String,
    values: BTreeMap<String, String>,
}

impl Question {
    /// Reads a question. What is no UTF-8 is shown as such, and of values with one name the
    /// last counts.
    #[must_use]
    pub fn new(name: &str, query: &str) -> Question {
        let pairs = query.split('&').filter(|pair| !pair.is_empty()).take(VALUES_MAX);
        let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        let values = pairs.map(|(name, value)| (decoded(name), decoded(value))).collect();
        Question { name: name.to_owned(), values }
    }

    /// A value; `None` if there is none or it is empty.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// A number; `None` if there is none.
    ///
    /// # Errors
    /// It is no number.
    pub fn number(&self, name: &str) -> Result<Option<u64>, String> {
        let number = |text: &str| text.parse().map_err(|_| format!("{name} is no number"));
        self.value(name).map(number).transpose()
    }
}

/// A text as it was before it was written into an address.
pub(crate) fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut ahead = rest.clone();
                let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
                match (digit(ahead.next()), digit(ahead.next())) {
                    (Some(high), Some(low)) => {
                        rest = ahead;
                        (high * 16 + low) as u8
                    }
                    _ => b'%',
                }
            }
            byte => byte,
        });
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encoded(text: &str) -> String {
        text.bytes().map(|byte| format!("%{byte:02x}")).collect()
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(name in "\\PC{1,20}", value in "\\PC{1,40}") {
            let query = format!("a=1&{}={}&&", encoded(&name), encoded(&value));
            let question = Question::new("tasks", &query);
            prop_assert_eq!(question.value(&name), Some(value.as_str()));
        }

        #[test]
        fn any_text_is_read(query in "\\PC{0,200}") {
            let _ = Question::new("tasks", &query);
        }
    }

    #[test]
    fn values_are_what_they_are() {
        let question = Question::new("tasks", "from=17&count=x&state=&text=a+b%2&text=%zz%ff");
        assert_eq!(question.number("from"), Ok(Some(17)));
        assert!(question.number("count").is_err());
        assert_eq!((question.value("state"), question.number("none")), (None, Ok(None)));
        assert_eq!(question.value("text"), Some("%zz\u{fffd}"));
    }
}
