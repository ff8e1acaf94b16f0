//! What is said about provisioning.

use super::{NOW, resources};
use falkon_core::task::AllocationId;
use falkon_wire::provision::{
    AllocationStatus, Coming, ProvisionAsk, ProvisionLine, ProvisionStatus, QueueStatus,
};

pub(super) fn asks() -> Vec<(&'static str, ProvisionAsk)> {
    let queue = "big".to_owned();
    vec![
        ("provision_status", ProvisionAsk::Status { queue: None, log: 20 }),
        (
            "provision_add",
            ProvisionAsk::Add { name: queue.clone(), config: "kind = \"slurm\"".to_owned() },
        ),
        ("provision_pause", ProvisionAsk::Pause { queue: queue.clone() }),
        ("provision_resume", ProvisionAsk::Resume { queue: queue.clone() }),
        ("provision_remove", ProvisionAsk::Remove { queue: queue.clone() }),
        ("provision_once", ProvisionAsk::Once { queue, nodes: 16, walltime_micros: 3_600_000_000 }),
        ("provision_drop", ProvisionAsk::Drop { allocation: AllocationId(9) }),
    ]
}

pub(super) fn coming() -> Vec<Coming> {
    let (queue, reason) = ("big".to_owned(), "Priority".to_owned());
    vec![Coming { queue, nodes: 4, reason }]
}

pub(super) fn status() -> ProvisionStatus {
    ProvisionStatus {
        now: NOW,
        queues: vec![QueueStatus {
            name: "big".to_owned(),
            kind: "slurm".to_owned(),
            config: "kind = \"slurm\"".to_owned(),
            paused: Some("Invalid account".to_owned()),
            removing: false,
            known: true,
            not_before: NOW.after(10),
            refusals: 5,
            query_failures: 0,
            delay_micros: 30_000_000,
            executors_min: 1,
            executors_max: 64,
            size: Some(40),
            node: resources(),
            requests: vec![1, 2, 4],
            releases: 0,
            reason: Some("12 tasks wait".to_owned()),
        }],
        allocations: vec![AllocationStatus {
            id: AllocationId(9),
            queue: "big".to_owned(),
            nodes: 4,
            job: Some("4711".to_owned()),
            state: "pending".to_owned(),
            reason: "Priority".to_owned(),
            asked: NOW,
            started: Some(NOW.after(7)),
            executors: 3,
            ending: false,
            fixed: true,
        }],
        log: vec![ProvisionLine {
            at: NOW,
            queue: "big".to_owned(),
            text: "allocation 9: ask for 4 nodes: 12 tasks wait".to_owned(),
        }],
        sites: super::survey().sites,
    }
}
