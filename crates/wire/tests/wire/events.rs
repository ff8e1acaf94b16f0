//! Events come back from a block as they were put into it, in few bytes; no bytes do harm.

use crate::strategies as any;
use falkon_core::data::object::ObjectId;
use falkon_core::data::stage::Usage;
use falkon_core::dispatch::diffusion::POLICIES;
use falkon_core::events::{
    Before, Ended, Event, NamedObject, Reserves, Run, Uses, Waits, What, text,
};
use falkon_core::result::{Outcome, ResourceUsage};
use falkon_core::task::{AllocationId, ExecutorId, InstanceId, TaskId, Time};
use falkon_wire::events::{BlockReader, BlockWriter};
use proptest::prelude::*;
use std::sync::Arc;

fn words() -> impl Strategy<Value = Arc<str>> {
    prop_oneof![4 => "[a-c]{0,2}", 1 => "\\PC{0,300}"].prop_map(|long| text(&long))
}

fn run() -> impl Strategy<Value = Run> {
    let count = prop_oneof![3 => Just(1), 1 => any::number()];
    (0..4u64, any::number(), count).prop_map(|(instance, first, count)| Run {
        instance: InstanceId(instance),
        first: TaskId(first.min(1 << 62)),
        count: count.clamp(1, 1 << 62),
    })
}

fn ended() -> impl Strategy<Value = Ended> {
    let times = (any::time(), any::time(), any::time(), any::time());
    let inputs = (any::number(), any::number(), any::number());
    let how = (any::outcome(), prop::option::of(any::executor()), 0..4u32);
    let said = (prop::option::of(any::resource_usage()), prop::option::of(words()));
    (run(), how, times, inputs, said).prop_map(
        |(run, (outcome, executor, attempts), times, (staging_micros, objects, bytes), said)| {
            let (resources, error) = said;
            let mut usage = Usage::default();
            usage.peer.objects = objects;
            usage.store.bytes = bytes;
            let executor = executor.filter(|id| id.0 < u64::MAX);
            let (queued, dispatched, started, ended) = times;
            Ended {
                run,
                outcome,
                executor,
                attempts,
                queued,
                dispatched,
                started,
                ended,
                staging_micros,
                usage,
                resources: resources.map(Box::new),
                error,
            }
        },
    )
}

fn waits() -> impl Strategy<Value = What> {
    let before = (any::number(), any::number(), proptest::bool::ANY);
    let before = before.prop_map(|(first, count, moves)| Before {
        first: TaskId(first.min(1 << 61)),
        count: count.clamp(1, 1 << 61),
        moves,
    });
    (run(), prop::collection::vec(before, 0..5)).prop_map(|(mut run, before)| {
        run.count = run.count.min(1 << 61);
        What::Waits(Waits { run, before: before.into() })
    })
}

/// Objects of few ids, whose names begin alike.
fn objects() -> impl Strategy<Value = Vec<Arc<NamedObject>>> {
    let object = (0..6u128).prop_map(|id| {
        let size = [None, Some(0), Some(u64::MAX - 1)][id as usize % 3];
        let url = text(["/a", "/a/bé", "/a/bè", "", "cache:x", "/a/b"][id as usize]);
        Arc::new(NamedObject { id: ObjectId(id << 100), url, size })
    });
    prop::collection::vec(object, 0..5)
}

fn uses() -> impl Strategy<Value = What> {
    (run(), objects(), objects())
        .prop_map(|(run, inputs, outputs)| What::Uses(Uses { run, inputs, outputs }))
}

fn reserves() -> impl Strategy<Value = What> {
    (run(), any::resources(), 1..4u32).prop_map(|(run, mut resources, nodes)| {
        for (name, _) in &mut resources.custom {
            *name = text(name).to_string();
        }
        What::Reserves(Reserves { run, resources, nodes })
    })
}

fn what() -> impl Strategy<Value = What> {
    let joined = (any::executor(), words(), any::resources(), prop::option::of(0..9u64));
    prop_oneof![
        4 => ended().prop_map(What::Ended),
        2 => (run(), any::executor(), 0..3u32)
            .prop_map(|(run, executor, attempt)| What::Assigned { run, executor, attempt }),
        1 => (run(), 0..3u32).prop_map(|(run, attempt)| What::Requeued { run, attempt }),
        1 => (run(), words()).prop_map(|(Run { instance, first, count }, command)| What::Submitted {
            instance,
            first,
            count,
            command
        }),
        1 => words().prop_map(|version| What::DispatcherStarted { version }),
        1 => waits(),
        1 => uses(),
        1 => reserves(),
        1 => (any::instance(), words(), 0..POLICIES.len())
            .prop_map(|(instance, name, policy)| What::InstanceCreated {
                instance,
                name,
                policy: POLICIES[policy].0
            }),
        1 => any::instance().prop_map(|instance| What::Sealed { instance }),
        1 => run().prop_map(|run| What::Cancelling { run }),
        1 => run().prop_map(|run| What::Retried { run }),
        1 => run().prop_map(|run| What::Recomputed { instance: run.instance, task: run.first }),
        1 => (run(), proptest::num::u64::ANY, 0..3u64).prop_map(|(run, micros, executor)| What::Copied {
            instance: run.instance,
            task: run.first,
            executor: ExecutorId(executor),
            first: ExecutorId(executor + 1),
            ran_micros: micros,
            median_micros: micros / 3,
        }),
        1 => (run(), any::outcome()).prop_map(|(run, outcome)| What::RecomputationEnded { run, outcome }),
        1 => (any::instance(), proptest::bool::ANY)
            .prop_map(|(instance, expired)| What::InstanceGone { instance, expired }),
        1 => joined.prop_map(|(executor, name, mut capacity, allocation)| {
            for (name, _) in &mut capacity.custom {
                *name = text(name).to_string();
            }
            What::ExecutorJoined {
            executor,
            name,
            capacity,
            allocation: allocation.map(AllocationId),
            cache_bytes: executor.0 % 3,
        }
        }),
        1 => (any::executor(), words()).prop_map(|(executor, why)| What::ExecutorGone { executor, why }),
        1 => (any::executor(), any::time())
            .prop_map(|(executor, until)| What::ExecutorSuspended { executor, until }),
        1 => (any::executor(), proptest::bool::ANY)
            .prop_map(|(executor, is_drained)| What::ExecutorDrained { executor, is_drained }),
        1 => (any::executor(), any::executor(), any::number())
            .prop_map(|(executor, from, bytes)| What::Moved { executor, from, bytes }),
        1 => (any::instance(), proptest::bool::ANY)
            .prop_map(|(instance, is_paused)| What::Paused { instance, is_paused }),
        1 => (any::instance(), proptest::num::i32::ANY)
            .prop_map(|(instance, priority)| What::Prioritized { instance, priority }),
        1 => (words(), words()).prop_map(|(queue, text)| What::Provisioned { queue, text }),
        1 => any::number().prop_map(|events| What::Missing { events }),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    (any::time(), what()).prop_map(|(at, what)| Event { at, what })
}

fn read(block: &[u8]) -> Vec<Event> {
    let mut reader = BlockReader::new(block);
    std::iter::from_fn(|| reader.next_event().unwrap()).collect()
}

proptest! {
    #[test]
    fn events_come_back(events in prop::collection::vec(event(), 0..40)) {
        let mut block = BlockWriter::default();
        for again in 0..2 {
            for event in &events {
                block.push(event);
            }
            prop_assert_eq!(&read(block.bytes()), &events, "block {}", again);
            prop_assert_eq!(block.events(), events.len() as u64);
            block.clear();
        }
    }

    #[test]
    fn arbitrary_bytes_do_no_harm(bytes in prop::collection::vec(proptest::num::u8::ANY, 0..300)) {
        let mut reader = BlockReader::new(&bytes);
        while let Ok(Some(_)) = reader.next_event() {}
    }

    #[test]
    fn a_block_that_ends_too_soon_gives_what_is_whole(
        events in prop::collection::vec(event(), 1..8), part in 0.0..1.0f64
    ) {
        let mut block = BlockWriter::default();
        for event in &events {
            block.push(event);
        }
        let bytes = &block.bytes()[..(block.bytes().len() as f64 * part) as usize];
        let mut reader = BlockReader::new(bytes);
        let mut found = Vec::new();
        while let Ok(Some(event)) = reader.next_event() {
            found.push(event);
        }
        prop_assert_eq!(&found, &events[..found.len()]);
    }
}

/// Distinct tasks on 64 slots, each assigned and ended alone, and measured.
#[test]
fn a_distinct_task_takes_few_bytes() {
    const TASKS: u64 = 100_000;
    const BYTES_MAX: u64 = 40;
    let start = 1_763_935_200_000_000;
    let mut block = BlockWriter::default();
    for number in 0..TASKS {
        // Tasks end out of order, at times that differ by more than a millisecond.
        let task = (number ^ 37).min(TASKS - 1);
        let dispatched = Time(start + number * 200);
        let started = dispatched.after(900 + task % 311);
        let ended = started.after(1_200_000 + task * 7919 % 800_000);
        let run = Run { instance: InstanceId(3), first: TaskId(task), count: 1 };
        let executor = ExecutorId(task % 1000);
        let assigned = What::Assigned { run, executor, attempt: 1 };
        block.push(&Event { at: dispatched, what: assigned });
        let ended = Ended {
            run,
            outcome: Outcome::Exit(i32::from(task % 100 == 0)),
            executor: Some(executor),
            attempts: 1,
            queued: Time(start),
            dispatched,
            started,
            ended,
            staging_micros: 0,
            usage: Usage::default(),
            resources: Some(Box::new(ResourceUsage {
                user_micros: 1_100_000 + task * 7919 % 800_000,
                system_micros: 20_000 + task * 31 % 7_000,
                rss_max_bytes: (180 << 20) + (task * 104_729 % (60 << 20)) / 4096 * 4096,
                read_bytes: task % 3 * 4096,
                written_bytes: 12_288,
                disk_max_bytes: None,
            })),
            error: None,
        };
        block.push(&Event { at: dispatched.after(3), what: What::Ended(ended) });
    }
    let bytes = block.bytes().len() as u64 / TASKS;
    assert!(bytes <= BYTES_MAX, "{bytes} bytes a task");
}

/// Distinct tasks, each of which waits for another, reads one object and writes one.
#[test]
fn what_a_task_needs_takes_few_bytes() {
    const TASKS: u64 = 10_000;
    const BYTES_MAX: u64 = 80;
    let named = |task: u64, what: &str| {
        let id = ObjectId(u128::from(task).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c834));
        let url = text(&format!("cache:instances/3/{what}/{task:06}"));
        Arc::new(NamedObject { id, url, size: Some(1 << 20) })
    };
    let mut block = BlockWriter::default();
    for task in 1..=TASKS {
        let run = Run { instance: InstanceId(3), first: TaskId(task), count: 1 };
        let first = TaskId(task.saturating_sub(task * 7 % 100 + 1));
        let before = [Before { first, count: 1, moves: false }];
        let waits = What::Waits(Waits { run, before: before.into() });
        let inputs = vec![named(first.0, "out")];
        let uses = What::Uses(Uses { run, inputs, outputs: vec![named(task, "out")] });
        block.push(&Event { at: Time(1), what: waits });
        block.push(&Event { at: Time(1), what: uses });
    }
    let bytes = block.bytes().len() as u64 / TASKS;
    assert!(bytes <= BYTES_MAX, "{bytes} bytes a task");
}
