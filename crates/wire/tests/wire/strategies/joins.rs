//! Arbitrary executors that join.

use super::data::{cache_room, serving};
use super::gangs::gang;
use super::{held, number, report, resources, small, text};
use falkon_core::dispatch::{HeldAlternative, Join, Lease};
use falkon_core::task::AllocationId;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

pub(super) fn join() -> impl Strategy<Value = Join> {
    let said =
        (held(), small()).prop_map(|(held, alternative)| HeldAlternative { held, alternative });
    let before = (vec(held(), 0..5), vec(report(), 0..5), vec(gang(), 0..3), vec(said, 0..3));
    let lease =
        (option::of(number()), option::of(number())).prop_map(|(allocation, leaves_in_micros)| {
            let allocation = allocation.map(AllocationId);
            Lease { allocation, leaves_in_micros }
        });
    let join =
        (number(), text(), resources(), before, (option::of(serving()), cache_room(), lease));
    join.prop_map(|(incarnation, name, capacity, before, (serves, cache, lease))| {
        let (held, reports, gangs, alternatives) = before;
        Join {
            incarnation,
            name,
            capacity,
            held,
            reports,
            serves,
            cache,
            lease,
            gangs,
            alternatives,
        }
    })
}
