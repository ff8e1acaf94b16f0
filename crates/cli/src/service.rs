//! Long-running parts: the dispatcher and executors.

pub(crate) mod background;
pub(crate) mod executor;
pub(crate) mod log;
pub(crate) mod relay;
pub(crate) mod start;

use falkon_core::task::Time;
use falkon_net::Log;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Log lines go to standard error, with the time in UTC. A process that ends
/// calls [`log::flush`].
pub(crate) fn log_to_stderr() -> Log {
    Arc::new(|line: &str| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = Time(now.as_micros() as u64);
        log::log(format!("{} {line}", now.utc()));
    })
}
