//! Arbitrary options of instances.

use super::{number, policy, text};
use falkon_core::dispatch::{InstanceOptions, Keep};
use proptest::option;
use proptest::prelude::*;

fn keep() -> impl Strategy<Value = Keep> {
    prop_oneof![Just(Keep::AsDispatcher), Just(Keep::Forever), number().prop_map(Keep::Micros)]
}

pub(super) fn options() -> impl Strategy<Value = InstanceOptions> {
    let fate = (option::of(number()), option::of(number()), keep(), any::<bool>());
    (text(), any::<bool>(), any::<bool>(), policy(), fate).prop_map(
        |(name, keep_results, fail_fast, policy, fate)| {
            let (fail_unschedulable_micros, lease_micros, keep, keep_output) = fate;
            InstanceOptions {
                name,
                keep_results,
                fail_unschedulable_micros,
                fail_fast,
                policy,
                lease_micros,
                keep,
                keep_output,
            }
        },
    )
}
