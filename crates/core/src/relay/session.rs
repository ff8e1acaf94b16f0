//! The session with the dispatcher above.

use crate::heartbeats::Heartbeats;
use crate::task::Time;

/// What a relay knows of its session with the dispatcher above.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) is_connected: bool,
    pub(super) has_joined: bool,
    pub(super) is_subtree_told: bool,
    pub(super) heartbeats: Heartbeats,
    /// A recall waits for the dispatcher below.
    pub(super) is_recalling: bool,
    pub(super) is_leaving_told: bool,
}

impl Session {
    /// A session that begins, or that there is not yet.
    pub(super) fn new(is_connected: bool, now: Time) -> Session {
        Session {
            is_connected,
            has_joined: false,
            is_subtree_told: false,
            heartbeats: Heartbeats::new(now),
            is_recalling: false,
            is_leaving_told: false,
        }
    }
}
