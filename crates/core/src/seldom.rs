//! Parts that few of very many owners use: [`Seldom`].

use std::ops::{Deref, DerefMut};

/// A part of a state that takes no more than a pointer while it is empty: there may be a million
/// executors, few of which have gangs. To read it allocates nothing; to change it does.
#[derive(Debug)]
pub(crate) struct Seldom<T>(Option<Box<T>>);

/// A type with an empty value that costs nothing to have.
pub(crate) trait Empty: Default + 'static {
    /// That value, which is also its default.
    const EMPTY: &'static Self;
}

impl<T> Default for Seldom<T> {
    fn default() -> Self {
        Seldom(None)
    }
}

impl<T> From<T> for Seldom<T> {
    fn from(part: T) -> Self {
        Seldom(Some(Box::new(part)))
    }
}

impl<T: Empty> Deref for Seldom<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_deref().unwrap_or(T::EMPTY)
    }
}

impl<T: Empty> DerefMut for Seldom<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.get_or_insert_default()
    }
}
