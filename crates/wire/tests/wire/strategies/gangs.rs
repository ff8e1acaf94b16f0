//! Gangs, as orders and reports name them.

use super::data::serving;
use super::details::resource_usage;
use super::{executor, instance, resources, small, task, text, tries};
use falkon_core::gang::{GangKey, GangOrder, GangReport, GangToken, Member};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use std::sync::Arc;

pub(super) fn gang() -> impl Strategy<Value = GangKey> {
    (instance(), task(), tries()).prop_map(|(instance, task, tries)| GangKey {
        instance,
        task,
        tries,
    })
}

pub(super) fn gang_order() -> impl Strategy<Value = GangOrder> {
    let member = (executor(), text(), serving()).prop_map(|(executor, name, serves)| Member {
        executor,
        name,
        serves,
    });
    let form = (gang(), small(), resources(), small(), any::<[u8; 16]>(), vec(member, 0..4));
    let form = form.prop_map(|(key, index, resources, ranks_per_node, token, members)| {
        let (token, members) = (GangToken(token), Arc::new(members));
        GangOrder::Form { key, index, resources, ranks_per_node, token, members }
    });
    prop_oneof![form, gang().prop_map(|key| GangOrder::Disband { key })]
}

pub(super) fn gang_report() -> impl Strategy<Value = GangReport> {
    let released = (gang(), option::of(resource_usage()))
        .prop_map(|(key, usage)| GangReport::Released { key, usage });
    prop_oneof![released, gang().prop_map(|key| GangReport::Broken { key })]
}
