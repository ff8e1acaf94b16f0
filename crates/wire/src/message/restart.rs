//! Questions of an owner about the program that a dispatcher is.

use crate::codec::wire_enum;

/// A question about the program, or the wish to replace it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RestartAsk {
    /// Say which version runs.
    Version,
    /// Execute a program in the place of the one that runs.
    Replace {
        /// Its path on the dispatcher's machine; where the one that runs was started from, if
        /// `None`.
        program: Option<String>,
    },
}
wire_enum!(RestartAsk {
    0 => Version,
    1 => Replace { program },
});
