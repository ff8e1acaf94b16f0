//! Arbitrary records of a journal.

use super::data::shared_text;
use super::{
    counts, executor, finished, instance, number, options, packed, small, submission, task, text,
    time, tries,
};
use falkon_core::dispatch::{Attempts, PagePlace, PagedOutput, Record, Remembered, StoredPage};
use falkon_core::result::Overflow;
use falkon_core::task::UserId;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

pub(crate) fn record() -> impl Strategy<Value = Record> {
    let runs = || vec((number(), number()), 0..4);
    prop_oneof![
        (instance(), time(), options()).prop_map(|(instance, created, options)| Record::Created {
            instance,
            created,
            options
        }),
        (instance(), time()).prop_map(|(instance, at)| Record::Expired { instance, at }),
        (instance(), time()).prop_map(|(instance, at)| Record::Heard { instance, at }),
        (instance(), number(), runs()).prop_map(|(instance, client, runs)| Record::Submitters {
            instance,
            client,
            runs
        }),
        (instance(), task(), time(), number(), submission()).prop_map(
            |(instance, first, queued, client, submission)| Record::Submitted {
                instance,
                first,
                queued,
                client,
                submission
            }
        ),
        (instance(), task(), number(), submission()).prop_map(
            |(instance, first, client, submission)| Record::Joining {
                instance,
                first,
                client,
                submission
            }
        ),
        instance().prop_map(|instance| Record::Sealed { instance }),
        (instance(), any::<bool>())
            .prop_map(|(instance, is_paused)| Record::Paused { instance, is_paused }),
        (instance(), any::<i32>())
            .prop_map(|(instance, priority)| Record::Prioritized { instance, priority }),
        (instance(), task(), any::<u32>(), number()).prop_map(
            |(instance, first, class, micros)| {
                Record::Lasted { instance, first, class, micros }
            }
        ),
        (number(), any::<bool>())
            .prop_map(|(incarnation, is_drained)| Record::Drained { incarnation, is_drained }),
        (instance(), number(), vec(finished(), 0..6))
            .prop_map(|(instance, from, results)| { Record::Finished { instance, from, results } }),
        (instance(), number()).prop_map(|(instance, upto)| Record::Acknowledged { instance, upto }),
        (instance(), runs()).prop_map(|(instance, runs)| Record::Cancelled { instance, runs }),
        instance().prop_map(|instance| Record::Destroyed { instance }),
        (executor(), number(), text()).prop_map(|(executor, incarnation, name)| {
            Record::ExecutorSeen { executor, incarnation, name }
        }),
        number().prop_map(|incarnation| Record::ExecutorGone { incarnation }),
        (instance(), task(), small()).prop_map(|(instance, task, times)| Record::Recomputed {
            instance,
            task,
            times
        }),
        vec(attempts(), 0..4).prop_map(|runs| Record::Attempts { runs }),
        (instance(), vec(task(), 0..4), packed())
            .prop_map(|(instance, tasks, values)| Record::Values { instance, tasks, values }),
        (instance(), vec(stored_page(), 0..4))
            .prop_map(|(instance, pages)| Record::Paged { instance, pages }),
        (instance(), vec(paged_output(), 0..4))
            .prop_map(|(instance, outputs)| Record::Outputs { instance, outputs }),
        (instance(), runs()).prop_map(|(instance, runs)| Record::OutputReleased { instance, runs }),
        (instance(), number())
            .prop_map(|(instance, user)| Record::Owned { instance, user: UserId(user) }),
        (shared_text(), number(), number(), time(), number()).prop_map(
            |(url, readers, executors, read, size)| {
                Record::Remembered(Remembered { url, readers, executors, read, size })
            },
        ),
        option::of(shared_text()).prop_map(|name| Record::Forgotten { name }),
        (instance(), number(), number(), runs(), runs(), runs(), counts()).prop_map(
            |(instance, total, forgotten, finished, failed, cancelled, ended)| Record::Restored {
                instance,
                total,
                forgotten,
                finished,
                failed,
                cancelled,
                ended
            }
        ),
        (instance(), number(), runs()).prop_map(|(instance, since, runs)| Record::Retried {
            instance,
            since,
            runs
        }),
    ]
}

fn attempts() -> impl Strategy<Value = Attempts> {
    (instance(), task(), number(), tries(), option::of(executor())).prop_map(
        |(instance, first, count, tries, executor)| Attempts {
            instance,
            first,
            count,
            tries,
            executor,
        },
    )
}

fn paged_output() -> impl Strategy<Value = PagedOutput> {
    let overflow = || {
        let fields = (number(), number());
        option::of(fields.prop_map(|(incarnation, number)| Overflow { incarnation, number }))
    };
    (number(), task(), overflow(), overflow())
        .prop_map(|(position, task, stdout, stderr)| PagedOutput { position, task, stdout, stderr })
}

fn stored_page() -> impl Strategy<Value = StoredPage> {
    let tasks = vec((number(), number()), 0..4);
    (number(), number(), tasks, number(), number(), number()).prop_map(
        |(from, count, tasks, file, offset, bytes)| {
            let place = PagePlace { file, offset, bytes };
            StoredPage { from, count, tasks, place }
        },
    )
}
