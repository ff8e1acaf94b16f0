//! Limits of plans that errors name.

/// Tasks of a plan whose declared outputs are checked against each other, at
/// most: the check takes some 50 bytes for each.
pub(crate) const OUTPUT_TASKS_MAX: u64 = 1 << 26;
/// Tasks of a plan at most: far below what ids hold, so that sums cannot
/// overflow.
pub(crate) const PLAN_TASKS_MAX: u64 = 1 << 62;

/// The longest value, in bytes: Linux takes no longer argument
/// (`MAX_ARG_STRLEN`, less the final NUL).
pub(crate) const VALUE_BYTES_MAX: usize = 128 * 1024 - 1;
