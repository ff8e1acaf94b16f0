//! Secrets that must not be printed.

use crate::codec::{DecodeError, Decoder, Wire};
use std::fmt;

/// A secret, or what is given only to whom it concerns. It travels as the value
/// does; `{:?}` does not show it, so that neither do logs, panics and errors.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Hidden<T>(pub T);

impl<T> fmt::Debug for Hidden<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

impl<T> From<T> for Hidden<T> {
    fn from(value: T) -> Hidden<T> {
        Hidden(value)
    }
}

impl<T: Wire> Wire for Hidden<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }

    fn decode(from: &mut Decoder<'_>) -> Result<Hidden<T>, DecodeError> {
        T::decode(from).map(Hidden)
    }
}
