//! Jobs that are nobody's here.

use falkon_core::provision::{AllocationId, Found, JobState, QueueId};

/// Jobs that every list names, of a queue that is none of this provisioner's:
/// somebody else's, whose names begin likewise.
pub(crate) const STRANGERS: [JobState; 4] =
    [JobState::Running, JobState::Pending, JobState::Held, JobState::TooLarge];
const STRANGE_QUEUE: QueueId = QueueId(77);

pub(crate) fn strangers() -> impl Iterator<Item = Found> {
    (1..).zip(STRANGERS).map(|(id, state)| Found {
        queue: STRANGE_QUEUE,
        allocation: AllocationId(id),
        job: format!("{id}.lrm"),
        state,
        nodes: 3,
        until: None,
        words: String::new(),
    })
}

pub(crate) fn is_strange(id: AllocationId) -> bool {
    id.0 <= STRANGERS.len() as u64
}
