//! One example of every refusal.

use super::{INSTANCE, placed, users};
use falkon_core::dispatch::diffusion::{PolicyError, PolicyName, PolicyOption};
use falkon_core::dispatch::{AccessError, RequestError};
use falkon_core::task::{ExecutorId, SubmissionError, SubmissionPart, TaskId};
use falkon_wire::message::Refusal;

pub(super) fn all() -> Vec<(&'static str, Refusal)> {
    let submission = |error| Refusal::Request(RequestError::Submission(error));
    let policy = |error| Refusal::Request(RequestError::Policy(error));
    let ignored = PolicyError::NotWith {
        option: PolicyOption::ReplicationMax,
        policy: PolicyName::MaxCacheHit,
    };
    let mismatch =
        SubmissionError::CountMismatch { what: SubmissionPart::Names, expected: 5, found: 4 };
    let too_long = SubmissionError::TooLong {
        what: SubmissionPart::ObjectUrl,
        bytes: 20_000,
        bytes_max: 16_384,
    };
    let too_many_instances = RequestError::TooManyInstances { instances: 65_536 };
    let (directory, free_bytes, wanted_bytes) = ("/falkon".into(), 1 << 20, 48 << 20);
    let no_room = RequestError::NoRoom { directory, free_bytes, wanted_bytes };
    let mut all = vec![
        ("no_room", Refusal::Request(no_room)),
        ("not_restarted", Refusal::Restart("there is no program at /opt/falkon".to_owned())),
        ("no_instance", Refusal::Request(RequestError::NoInstance(INSTANCE))),
        ("no_executor", Refusal::Request(RequestError::NoExecutor(ExecutorId(3)))),
        ("sealed", Refusal::Request(RequestError::Sealed(INSTANCE))),
        ("results_not_kept", Refusal::Request(RequestError::ResultsNotKept(INSTANCE))),
        ("too_many_retries", Refusal::Request(RequestError::TooManyRetries { runs: 1 << 21 })),
        ("gap", Refusal::Request(RequestError::Gap { expected: TaskId(10), found: TaskId(12) })),
        ("empty", submission(SubmissionError::Empty)),
        ("mismatch", submission(mismatch)),
        ("malformed", submission(SubmissionError::Malformed(SubmissionPart::ClassRun))),
        ("too_many", submission(SubmissionError::TooMany)),
        ("too_long", submission(too_long)),
        ("long_name", Refusal::Request(RequestError::LongName { bytes: 300 })),
        ("too_many_instances", Refusal::Request(too_many_instances)),
        ("no_executors", Refusal::Request(RequestError::NoExecutors)),
        ("joining", Refusal::Request(RequestError::Joining(INSTANCE))),
        ("busy", Refusal::Request(RequestError::Busy { queued_bytes: 16 << 30 })),
        ("forgotten", Refusal::Request(RequestError::Forgotten { first: 100 })),
        ("too_many_needs", Refusal::Request(RequestError::TooManyNeeds)),
        ("lenders", Refusal::Request(RequestError::Lenders { wanted: 16, there: 4 })),
        ("policy_unknown", policy(PolicyError::Unknown("best".to_owned()))),
        ("policy_threshold", policy(PolicyError::Threshold { milli: 1001 })),
        ("policy_ignored", policy(ignored)),
        ("not_allowed", Refusal::NotAllowed),
        ("journal", Refusal::Journal("no space left".to_owned())),
        ("not_held", Refusal::Access(AccessError::NotHeld)),
        ("taken", Refusal::Access(AccessError::Taken(placed().id))),
        ("needed", Refusal::Access(AccessError::Needed { tasks: 300 })),
        ("no_cache", Refusal::Access(AccessError::NoCache)),
        ("not_kept", Refusal::Access(AccessError::NotKept)),
        ("executor_gone", Refusal::Access(AccessError::ExecutorGone)),
        ("not_placeable", Refusal::Access(AccessError::NotPlaceable)),
        ("no_task", Refusal::Access(AccessError::NoTask)),
        ("not_sent", Refusal::Access(AccessError::NotSent)),
        ("ended", Refusal::Access(AccessError::Ended)),
        ("below", Refusal::Access(AccessError::Below("cluster".to_owned()))),
        ("unreached", {
            let (executor, why) = ("node-7".to_owned(), "it has not answered in time".to_owned());
            Refusal::Access(AccessError::Unreached { executor, why })
        }),
        ("away", Refusal::Access(AccessError::Away("cluster".to_owned()))),
        ("of_others", Refusal::Access(AccessError::OfOthers)),
        ("wrong_id", Refusal::WrongId { id: placed().id, url: placed().url }),
        ("answers_unread", Refusal::Busy),
        ("no_events", Refusal::NoEvents),
        ("long_answer", Refusal::TooLong { bytes: 20 << 20 }),
        ("unreadable", Refusal::Unreadable("expected an array".to_owned())),
        ("no_queue", Refusal::Provision("there is no queue big".to_owned())),
    ];
    all.extend(users::refusals());
    all
}
