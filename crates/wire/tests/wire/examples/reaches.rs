//! One example of each way to ask whom to go to.

use super::{INSTANCE, placed};
use falkon_core::dispatch::Purpose;
use falkon_core::result::Stream;
use falkon_core::task::TaskId;
use falkon_wire::message::FromClient;

pub(super) fn all() -> Vec<(&'static str, FromClient)> {
    let (request, instance) = (42, INSTANCE);
    let reach =
        |instance, purpose| FromClient::Reach { request, instance, object: placed(), purpose };
    let (task, stream) = (TaskId(9), Stream::Stderr);
    vec![
        ("reach_put", reach(None, Purpose::Put)),
        ("reach_drop", reach(Some(instance), Purpose::Drop { force: true })),
        ("reach_output", FromClient::ReachOutput { request, instance, task, stream }),
        ("reach_tail", FromClient::ReachTail { request, instance, task, stream }),
        (
            "ask_tail",
            FromClient::AskTail {
                request,
                instance,
                task,
                stream,
                from: 70_000,
                patience_ms: 5000,
            },
        ),
        (
            "read_output",
            FromClient::ReadOutput { request, instance, task, stream, from: 70_000, count: 65_536 },
        ),
        ("release_output", FromClient::ReleaseOutput { request, instance, runs: vec![(9, 2)] }),
    ]
}
