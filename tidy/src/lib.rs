//! Checks of the tree that a compiler does not make: the core's purity, which
//! crate may depend on which, names, lengths, licences, links, and that a command
//! prints each measured figure.
//!
//! A rule is a function from a file's text to what is wrong with it, so that
//! each is tested on texts that break it; `tests/tree.rs` applies them all to
//! the tree.

pub mod code;
pub mod crates;
pub mod documents;
pub mod figures;
pub mod imports;
pub mod licences;
pub mod messages;
pub mod protocol;
pub mod rules;
pub mod texts;
pub mod tree;
pub mod trials;

use std::fmt;

/// Something that must not be in the tree.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The file, relative to the root.
    pub path: String,
    /// The line, from 1; 0 for the file as a whole.
    pub line: usize,
    /// What is wrong, and what to do.
    pub what: String,
}

impl Finding {
    /// A finding on a line.
    #[must_use]
    pub fn new(path: &str, line: usize, what: impl Into<String>) -> Finding {
        Finding { path: path.to_owned(), line, what: what.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.what),
            line => write!(f, "{}:{line}: {}", self.path, self.what),
        }
    }
}
