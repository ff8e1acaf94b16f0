//! What is said about provisioning.

use super::relays::sites;
use super::{number, resources, text, time};
use falkon_core::task::AllocationId;
use falkon_wire::provision::{
    AllocationStatus, Coming, ProvisionAsk, ProvisionLine, ProvisionStatus, QueueStatus,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

fn allocation() -> impl Strategy<Value = AllocationId> {
    number().prop_map(AllocationId)
}

pub(crate) fn ask() -> impl Strategy<Value = ProvisionAsk> {
    prop_oneof![
        (option::of(text()), number()).prop_map(|(queue, log)| ProvisionAsk::Status { queue, log }),
        (text(), text()).prop_map(|(name, config)| ProvisionAsk::Add { name, config }),
        text().prop_map(|queue| ProvisionAsk::Pause { queue }),
        text().prop_map(|queue| ProvisionAsk::Resume { queue }),
        text().prop_map(|queue| ProvisionAsk::Remove { queue }),
        (text(), number(), number()).prop_map(|(queue, nodes, walltime_micros)| {
            ProvisionAsk::Once { queue, nodes, walltime_micros }
        }),
        allocation().prop_map(|allocation| ProvisionAsk::Drop { allocation }),
    ]
}

fn queue() -> impl Strategy<Value = QueueStatus> {
    let names = (text(), text(), text(), option::of(text()), any::<bool>(), any::<bool>());
    let numbers = (time(), number(), number(), number(), number(), number());
    let plan =
        (option::of(number()), resources(), vec(number(), 0..4), number(), option::of(text()));
    (names, numbers, plan).prop_map(|(names, numbers, plan)| {
        let (name, kind, config, paused, removing, known) = names;
        let (not_before, refusals, query_failures, delay_micros, executors_min, executors_max) =
            numbers;
        let (size, node, requests, releases, reason) = plan;
        QueueStatus {
            name,
            kind,
            config,
            paused,
            removing,
            known,
            not_before,
            refusals,
            query_failures,
            delay_micros,
            executors_min,
            executors_max,
            size,
            node,
            requests,
            releases,
            reason,
        }
    })
}

fn one_allocation() -> impl Strategy<Value = AllocationStatus> {
    let what = (allocation(), text(), number(), option::of(text()), text(), text());
    let how = (time(), option::of(time()), number(), any::<bool>(), any::<bool>());
    (what, how).prop_map(|((id, queue, nodes, job, state, reason), how)| {
        let (asked, started, executors, ending, fixed) = how;
        AllocationStatus {
            id,
            queue,
            nodes,
            job,
            state,
            reason,
            asked,
            started,
            executors,
            ending,
            fixed,
        }
    })
}

pub(crate) fn coming() -> impl Strategy<Value = Coming> {
    (text(), number(), text()).prop_map(|(queue, nodes, reason)| Coming { queue, nodes, reason })
}

pub(crate) fn status() -> impl Strategy<Value = ProvisionStatus> {
    let line =
        (time(), text(), text()).prop_map(|(at, queue, text)| ProvisionLine { at, queue, text });
    (time(), vec(queue(), 0..3), vec(one_allocation(), 0..3), vec(line, 0..3), sites()).prop_map(
        |(now, queues, allocations, log, sites)| ProvisionStatus {
            now,
            queues,
            allocations,
            log,
            sites,
        },
    )
}
