//! Peers that send or take nothing for too long.

use std::io;
use std::time::Duration;

use tokio::time::timeout;

use super::SILENCE_MS_MAX;

/// A step of a transfer; it has failed if the peer sends or takes nothing for
/// [`SILENCE_MS_MAX`].
pub(super) async fn in_time<T>(step: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let limit = Duration::from_millis(SILENCE_MS_MAX);
    timeout(limit, step).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}
