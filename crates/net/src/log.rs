//! Lines that a service writes for the people who look after it.

use std::sync::Arc;

/// Where log lines go, each without a time and an end of line.
pub type Log = Arc<dyn Fn(&str) + Send + Sync>;
