//! Arbitrary things that relays say and note.

use super::{held, instance, number, resources, text};
use falkon_core::dispatch::{Lender, NodeClass, Subtree};
use falkon_core::provision::Waiting;
use falkon_core::relay::Note;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

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
