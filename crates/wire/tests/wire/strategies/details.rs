//! Arbitrary things that results say beyond their outcomes.

use super::data::usage;
use super::{bytes, number, small, text};
use crate::examples;
use falkon_core::gang::{GangUsage, NodeUsage, RankUsage};
use falkon_core::result::{Captured, Cause, Counts, Detail, Overflow, ResourceUsage};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use std::sync::Arc;

fn captured() -> impl Strategy<Value = Captured> {
    let overflow =
        (number(), number()).prop_map(|(incarnation, number)| Overflow { incarnation, number });
    let parts = (bytes(), number(), option::of(overflow), option::of(text()));
    parts.prop_map(|(head, total_bytes, overflow, member)| Captured {
        head,
        total_bytes,
        overflow,
        member: member.map(Into::into),
    })
}

pub(super) fn cause() -> impl Strategy<Value = Cause> {
    prop::sample::select(examples::every::<Cause>())
}

pub(super) fn detail() -> impl Strategy<Value = Arc<Detail>> {
    let rest = (text(), bytes(), usage(), number(), option::of(cause()), vec(text(), 0..3));
    let later = (small(), small(), number());
    let rest = (rest, option::of(resource_usage()), text(), later);
    let rest = (rest, option::of(gang_usage()));
    (captured(), captured(), rest).prop_map(|(stdout, stderr, rest)| {
        let (rest, gang) = rest;
        let (
            (error, value, usage, staging_micros, cause, outputs),
            resources,
            executor,
            (alternative, given_cpus_milli, given_memory_bytes),
        ) = rest;
        Arc::new(Detail {
            stdout,
            stderr,
            error,
            value,
            usage,
            staging_micros,
            cause,
            outputs,
            resources,
            executor,
            alternative,
            given_cpus_milli,
            given_memory_bytes,
            gang,
        })
    })
}

fn gang_usage() -> impl Strategy<Value = Arc<GangUsage>> {
    let rank = (small(), resource_usage()).prop_map(|(rank, used)| RankUsage { rank, used });
    let node = (text(), option::of(resource_usage()), any::<bool>(), vec(rank, 0..3)).prop_map(
        |(executor, used, is_missing, ranks)| NodeUsage { executor, used, is_missing, ranks },
    );
    (small(), small(), vec(node, 0..3))
        .prop_map(|(nodes, missing, listed)| Arc::new(GangUsage { nodes, missing, listed }))
}

pub(crate) fn resource_usage() -> impl Strategy<Value = ResourceUsage> {
    let times = (number(), number());
    (times, number(), number(), number(), option::of(number())).prop_map(
        |((user_micros, system_micros), rss_max_bytes, read_bytes, written_bytes, disk)| {
            ResourceUsage {
                user_micros,
                system_micros,
                rss_max_bytes,
                read_bytes,
                written_bytes,
                disk_max_bytes: disk,
            }
        },
    )
}

pub(super) fn counts() -> impl Strategy<Value = Counts> {
    (number(), number(), number(), number(), number(), number(), number(), number()).prop_map(
        |(total, waiting, ready, dispatched, done, failed, cancelled, recomputed)| Counts {
            total,
            waiting,
            ready,
            dispatched,
            done,
            failed,
            cancelled,
            recomputed,
        },
    )
}
