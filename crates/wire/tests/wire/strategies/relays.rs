//! Arbitrary things that relays say and note.

use super::{held, instance, number, resources, text};
use falkon_core::data::object::ObjectId;
use falkon_core::dispatch::{Holdings, Idle, IdleReason, Lender, NodeClass, Subtree};
use falkon_core::provision::Waiting;
use falkon_core::relay::Note;
use falkon_wire::message::{FromClient, ToClient};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

pub(super) fn request() -> impl Strategy<Value = FromClient> {
    let withdraw = (number(), instance(), number());
    prop_oneof![
        (number(), number(), number()).prop_map(|(request, relay, since)| FromClient::Subtree {
            request,
            relay,
            since
        }),
        vec(waiting(), 0..4).prop_map(|waiting| FromClient::Unmet { waiting }),
        withdraw.prop_map(|(request, instance, count)| FromClient::Withdraw {
            request,
            instance,
            count
        }),
    ]
}

pub(super) fn answer() -> impl Strategy<Value = ToClient> {
    let runs = vec((number(), number()), 0..5);
    prop_oneof![
        (number(), subtree(), holdings()).prop_map(|(request, subtree, holdings)| {
            ToClient::Subtree { request, subtree, holdings }
        }),
        (number(), runs).prop_map(|(request, runs)| ToClient::Withdrawn { request, runs }),
        (number(), number(), number()).prop_map(|(request, count, forgotten)| {
            ToClient::Retried { request, count, forgotten }
        }),
        (number(), vec(idle(), 0..4)).prop_map(|(request, idle)| ToClient::Idle { request, idle }),
    ]
}

fn idle() -> impl Strategy<Value = Idle> {
    use IdleReason::*;
    let reason = proptest::sample::select(vec![
        Away, Leaving, Drained, Suspended, Emptied, Soon, Data, Held, Larger, Short, Unoffered,
        Upstream, NoTasks,
    ]);
    (reason, number(), number(), number(), vec(text(), 0..3)).prop_map(
        |(reason, tasks, executors, cpus_milli, some)| Idle {
            reason,
            tasks,
            executors,
            cpus_milli,
            some,
        },
    )
}

fn holdings() -> impl Strategy<Value = Holdings> {
    let object = || any::<u128>().prop_map(ObjectId);
    let held = (vec((object(), number()), 0..3), vec(object(), 0..3));
    (any::<bool>(), number(), held).prop_map(|(anew, upto, (added, removed))| Holdings {
        anew,
        upto,
        added,
        removed,
    })
}

pub(super) fn subtree() -> impl Strategy<Value = Subtree> {
    let nodes = (resources(), any::<bool>(), number())
        .prop_map(|(capacity, has_cache, count)| NodeClass { capacity, has_cache, count });
    let obtainable = (vec(resources(), 0..3), any::<bool>());
    (number(), lenders(), vec(nodes, 0..5), obtainable).prop_map(
        |(process, relays, nodes, (obtainable, is_unknown_obtainable))| Subtree {
            process,
            relays,
            nodes,
            obtainable,
            is_unknown_obtainable,
        },
    )
}

pub(super) fn lenders() -> impl Strategy<Value = Vec<Lender>> {
    let one = (number(), text(), number(), number());
    let one =
        one.prop_map(|(identity, name, depth, nodes)| Lender { identity, name, depth, nodes });
    vec(one, 0..4)
}

pub(super) fn waiting() -> impl Strategy<Value = Waiting> {
    (resources(), number(), option::of(number()), number()).prop_map(
        |(need, tasks, estimate_micros, lasts_micros)| Waiting {
            need,
            tasks,
            estimate_micros,
            lasts_micros,
        },
    )
}

pub(crate) fn note() -> impl Strategy<Value = Note> {
    prop_oneof![
        number().prop_map(Note::Identity),
        instance().prop_map(Note::Instance),
        (number(), held()).prop_map(|(below, held)| Note::Sent { below, held }),
        (number(), number()).prop_map(|(below, count)| Note::Gone { below, count }),
        (number(), number()).prop_map(|(high, low)| Note::Upstream { high, low }),
    ]
}
