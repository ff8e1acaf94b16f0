//! Arbitrary answers about how things stand.

use super::data::{cache_status, unwritten};
use super::relays::standings;
use super::{
    bytes, counts, executor, finished, instance, number, provision, resources, task, text, time,
    users,
};
use falkon_core::dispatch::{Explained, Obstacle, Offering};
use falkon_wire::message::{
    ExecutorStatus, FromClient, InstanceStatus, Status, TaskInfo, ToClient,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

fn instance_status() -> impl Strategy<Value = InstanceStatus> {
    let held_up = (any::<bool>(), any::<bool>(), any::<i32>());
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), held_up);
    let lacks = (vec((resources(), number()), 0..3), vec((number(), number()), 0..3), number());
    let times = (time(), time(), option::of(time()));
    let bytes = (number(), number(), number());
    (number(), (text(), text()), times, (counts(), number(), number()), flags, bytes, lacks)
        .prop_map(|(id, (name, user), times, tasks, flags, bytes, lacks)| {
            let (counts, running, staged) = tasks;
            let (sealed, complete, named, (clogged, paused, priority)) = flags;
            let (created, heard, expires) = times;
            let (queued_bytes, held_bytes, stored_bytes) = bytes;
            let (unschedulable, overlong, results) = lacks;
            InstanceStatus {
                id,
                name,
                created,
                heard,
                expires,
                counts,
                running,
                staged,
                sealed,
                complete,
                named,
                queued_bytes,
                held_bytes,
                stored_bytes,
                clogged,
                paused,
                priority,
                unschedulable,
                overlong,
                results,
                user,
            }
        })
}

fn executor_status() -> impl Strategy<Value = ExecutorStatus> {
    let cache = option::of(cache_status());
    let has = (cache, option::of(number()), standings(), unwritten());
    let is_left_alone = (option::of(time()), any::<bool>());
    let load = (number(), number(), any::<bool>(), is_left_alone, has);
    (executor(), text(), resources(), resources(), load).prop_map(
        |(
            id,
            name,
            capacity,
            free,
            (tasks, prefetched, connected, (suspended_until, drained), has),
        )| {
            let (cache, nodes, relays, unwritten) = has;
            ExecutorStatus {
                id,
                name,
                capacity,
                free,
                tasks,
                prefetched,
                connected,
                suspended_until,
                drained,
                cache,
                nodes,
                relays,
                unwritten,
            }
        },
    )
}

pub(super) fn status() -> impl Strategy<Value = Status> {
    let next = option::of((number(), number()));
    let coming = (vec(provision::coming(), 0..3), standings(), vec(users::status(), 0..3));
    let lists = (vec(instance_status(), 0..4), vec(executor_status(), 0..4), next);
    (text(), time(), time(), lists, coming).prop_map(
        |(version, started, now, (instances, executors, next), (coming, away, users))| Status {
            version,
            started,
            now,
            instances,
            executors,
            coming,
            away,
            next,
            users,
        },
    )
}

pub(super) fn task_info() -> impl Strategy<Value = TaskInfo> {
    let ended = (option::of(text()), option::of(finished()));
    (task(), option::of(bytes()), text(), vec(bytes(), 0..5), ended).prop_map(
        |(task, name, state, argv, (executor, end))| TaskInfo {
            task,
            name,
            state,
            argv,
            executor,
            end,
        },
    )
}

/// Questions about what waits and what happened, and requests that hold it up.
pub(super) fn requests() -> impl Strategy<Value = FromClient> {
    let pause = (number(), instance(), any::<bool>()).prop_map(|(request, instance, is_paused)| {
        FromClient::Pause { request, instance, is_paused }
    });
    let drain =
        (number(), executor(), any::<bool>()).prop_map(|(request, executor, is_drained)| {
            FromClient::Drain { request, executor, is_drained }
        });
    let prioritize =
        (number(), instance(), any::<i32>()).prop_map(|(request, instance, priority)| {
            FromClient::Prioritize { request, instance, priority }
        });
    prop_oneof![explain(), events(), pause, drain, prioritize]
}

/// Their answers.
pub(super) fn answers() -> impl Strategy<Value = ToClient> {
    prop_oneof![explained(), events_read()]
}

fn explain() -> impl Strategy<Value = FromClient> {
    (number(), instance(), option::of(task()))
        .prop_map(|(request, instance, task)| FromClient::Explain { request, instance, task })
}

fn events() -> impl Strategy<Value = FromClient> {
    (number(), option::of((number(), number())))
        .prop_map(|(request, from)| FromClient::Events { request, from })
}

fn events_read() -> impl Strategy<Value = ToClient> {
    (number(), bytes(), (number(), number()), any::<bool>()).prop_map(
        |(request, blocks, next, is_end)| ToClient::Events { request, blocks, next, is_end },
    )
}

fn offering() -> impl Strategy<Value = Offering> {
    let taken = proptest::array::uniform8(number());
    taken.prop_map(|[executors, away, leaving, suspended, drained, short, emptied, full]| {
        Offering { executors, away, leaving, suspended, drained, short, emptied, full }
    })
}

fn obstacle() -> impl Strategy<Value = Obstacle> {
    prop_oneof![
        (vec(task(), 0..5), number()).prop_map(|(some, count)| Obstacle::Tasks { some, count }),
        (number(), number())
            .prop_map(|(micros, executors)| Obstacle::Restart { micros, executors }),
        Just(Obstacle::Storage),
        Just(Obstacle::Paused),
        number().prop_map(|bytes| Obstacle::Results { bytes }),
        number().prop_map(|away| Obstacle::NoExecutor { away }),
        (resources(), any::<bool>(), number()).prop_map(|(need, cache, executors)| {
            Obstacle::Unoffered { need, cache, executors }
        }),
        offering().prop_map(Obstacle::Taken),
        (text(), any::<bool>())
            .prop_map(|(executor, connected)| Obstacle::Own { executor, connected }),
        text().prop_map(|executor| Obstacle::Emptied { executor }),
        (number(), resources(), number(), number()).prop_map(
            |(nodes, need, offering, executors)| {
                Obstacle::Nodes { nodes, need, offering, executors }
            }
        ),
        (number(), number(), any::<bool>(), option::of(number())).prop_map(
            |(nodes, free, kept, begins_micros)| Obstacle::FewFree {
                nodes,
                free,
                kept,
                begins_micros
            }
        ),
        (number(), vec(text(), 0..5)).prop_map(|(holders, some)| Obstacle::Data { holders, some }),
        (number(), number()).prop_map(|(higher, earlier)| Obstacle::Behind { higher, earlier }),
        (vec(instance(), 0..5), number()).prop_map(|(some, count)| Obstacle::Turn { some, count }),
        (number(), number())
            .prop_map(|(used_milli, most_milli)| Obstacle::Quota { used_milli, most_milli }),
    ]
}

fn explained() -> impl Strategy<Value = ToClient> {
    let one = (task(), number(), vec(obstacle(), 0..5))
        .prop_map(|(task, count, obstacles)| Explained { task, count, obstacles });
    (number(), vec(one, 0..5))
        .prop_map(|(request, explained)| ToClient::Explained { request, explained })
}
