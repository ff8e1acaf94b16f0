//! One example of every record.

use super::*;
use falkon_core::task::{Everywhere, Resources, UserId};

pub(super) fn all() -> Vec<(&'static str, Record)> {
    use Record::*;
    let instance = INSTANCE;
    let (executor, incarnation) = (ExecutorId(3), 0x0123_4567_89ab_cdef);
    vec![
        ("created", Created { instance, created: NOW, options: options() }),
        (
            "submitted",
            Submitted {
                instance,
                first: TaskId(0),
                queued: NOW,
                client: 77,
                submission: submission(),
            },
        ),
        (
            "submitted_everywhere",
            Submitted {
                instance,
                first: TaskId(2),
                queued: NOW,
                client: 77,
                submission: everywhere().placed(vec![incarnation, 7]),
            },
        ),
        ("joining", Joining { instance, first: TaskId(2), client: 77, submission: everywhere() }),
        ("sealed", Sealed { instance }),
        ("paused", Paused { instance, is_paused: true }),
        ("prioritized", Prioritized { instance, priority: -3 }),
        ("lasted", Lasted { instance, first: TaskId(2), class: 1, micros: 90_000_000 }),
        ("drained", Drained { incarnation: 0x0123_4567_89ab_cdef, is_drained: true }),
        ("finished", Finished { instance, from: 0, results: finished() }),
        ("acknowledged", Acknowledged { instance, upto: 300 }),
        ("cancelled", Cancelled { instance, runs: vec![(5, 1), (70_000, 9)] }),
        ("retried", Retried { instance, since: 300, runs: vec![(17, 1), (70_000, 9)] }),
        ("destroyed", Destroyed { instance }),
        ("executor_seen", ExecutorSeen { executor, incarnation, name: "node7:4711".to_owned() }),
        ("expired", Expired { instance, at: NOW }),
        ("heard", Heard { instance, at: NOW }),
        ("submitters", Submitters { instance, client: 77, runs: vec![(0, 300)] }),
        ("executor_gone", ExecutorGone { incarnation }),
        (
            "values",
            Values {
                instance,
                tasks: vec![TaskId(3), TaskId(70_000)],
                values: packed(&[b"pK\x01.", b""]),
            },
        ),
        ("paged", Paged { instance, pages: vec![pages::stored_page()] }),
        (
            "remembered",
            Remembered(falkon_core::dispatch::Remembered {
                url: "/data/db".into(),
                readers: 10_000,
                executors: 64,
                read: Time(1_700_000_000_000_000),
                size: 12 << 30,
            }),
        ),
        ("forgotten", Forgotten { name: Some("/data/db".into()) }),
        (
            "outputs",
            Outputs {
                instance,
                outputs: vec![PagedOutput {
                    position: 300,
                    task: TaskId(7),
                    stdout: Some(Overflow { incarnation, number: 9 }),
                    stderr: None,
                }],
            },
        ),
        ("output_released", OutputReleased { instance, runs: vec![(7, 2)] }),
        (
            "attempts",
            Attempts {
                runs: vec![
                    falkon_core::dispatch::Attempts {
                        instance,
                        first: TaskId(3),
                        count: 1,
                        tries: Tries { failures: 1, losses: 0 },
                        executor: Some(executor),
                    },
                    falkon_core::dispatch::Attempts {
                        instance,
                        first: TaskId(300),
                        count: 70_000,
                        tries: Tries { failures: 0, losses: 2 },
                        executor: None,
                    },
                ],
            },
        ),
        ("owned", Owned { instance, user: UserId(1 << 60) }),
        ("recomputed", Recomputed { instance, task: TaskId(17), times: 2 }),
        (
            "restored",
            Restored {
                instance,
                total: 300,
                forgotten: 40,
                finished: vec![(0, 40)],
                failed: vec![(17, 1)],
                cancelled: Vec::new(),
                ended: Counts { done: 39, failed: 1, ..Counts::default() },
            },
        ),
    ]
}

/// A task for each executor, and for those that join.
fn everywhere() -> Submission {
    Submission {
        count: 1,
        class_runs: vec![(1, 0)],
        everywhere: Some(Everywhere {
            joining: true,
            offering: Resources { gpus: 1, ..Resources::default() },
            executors: Vec::new(),
            lent: None,
            only: None,
        }),
        ..task_array()
    }
}
