//! What an older version of the protocol does not know, and is left out of messages to a peer that
//! speaks it.

use super::{FromExecutor, ToClient, ToExecutor};
use falkon_core::result::{Cause, Detail};
use falkon_core::task::{AUTO_CPUS, AUTO_TIME, MILLI, TaskClass};
use std::sync::Arc;

/// The first version of the protocol that knows of scratch disk space.
const DISK_SINCE: u16 = 9;

/// The first version of the protocol in which results say what each node of a gang used.
const GANG_USAGE_SINCE: u16 = 9;

/// The first version of the protocol in which tasks have alternatives.
pub const ALTERNATIVES_SINCE: u16 = 9;

impl FromExecutor {
    /// Leaves out what a dispatcher that speaks `version` does not know: to one of version 8, an
    /// executor offers no scratch disk space, and says nothing of what tasks have had of it, of
    /// their alternatives, of what they were given by automatic resources, and of what each of
    /// their nodes used.
    pub fn adapt(&mut self, version: u16) {
        if version >= DISK_SINCE.max(GANG_USAGE_SINCE) {
            return;
        }
        let reports = match self {
            FromExecutor::Join(join) => {
                join.capacity.set_disk_bytes(0);
                join.alternatives.clear();
                &mut join.reports
            }
            FromExecutor::Update(update) => &mut update.reports,
            FromExecutor::Tail { .. }
            | FromExecutor::NoTail { .. }
            | FromExecutor::ReadPart { .. }
            | FromExecutor::Part { .. } => return,
        };
        reports.iter_mut().for_each(|report| leave_out(&mut report.detail));
    }
}

impl ToExecutor {
    /// Leaves out what an executor or a relay that speaks `version` does not know: one of version 8
    /// gets tasks with the resources of the alternative that was chosen, does not learn which one
    /// that is, gives tasks with automatic CPUs one, and has no estimate of a time that is to be
    /// found out.
    pub fn adapt(&mut self, version: u16) {
        if version >= ALTERNATIVES_SINCE {
            return;
        }
        let ToExecutor::Order(order) = self else { return };
        for class in order.prepare.iter_mut().flat_map(|prepare| &mut prepare.classes) {
            class.alternative = 0;
            class.alternatives.clear();
            leave_out_automatic(class);
        }
    }
}

impl ToClient {
    /// Leaves out what a client that speaks `version` does not know: one of version 8 does not
    /// learn which alternatives tasks had, what they were given by automatic resources, what each of
    /// their nodes used, and how users do.
    pub fn adapt(&mut self, version: u16) {
        self.adapt_users(version);
        if version >= ALTERNATIVES_SINCE {
            return;
        }
        match self {
            ToClient::Results(delivery) => {
                for result in &mut delivery.results {
                    if let Some(detail) = result.detail.as_mut().filter(|detail| has_later(detail))
                    {
                        leave_out_later(Arc::make_mut(detail));
                    }
                }
            }
            ToClient::Tasks { tasks, .. } => {
                for end in tasks.iter_mut().filter_map(|task| task.end.as_mut()) {
                    end.detail = None;
                }
            }
            _ => {}
        }
    }
}

/// Gives a class what a peer of version 8 gives tasks whose CPUs are to be found out, one, and the
/// estimate that it has of those whose time is, none.
pub fn leave_out_automatic(class: &mut TaskClass) {
    if class.resources.cpus_milli == AUTO_CPUS {
        class.resources.cpus_milli = MILLI;
    }
    if class.estimate_micros == AUTO_TIME {
        class.estimate_micros = 0;
    }
}

/// Whether a result has fields that version 8 does not know.
fn has_later(detail: &Detail) -> bool {
    let given = (detail.given_cpus_milli, detail.given_memory_bytes);
    detail.alternative > 0 || given != (0, 0) || detail.gang.is_some()
}

fn leave_out_later(detail: &mut Detail) {
    (detail.alternative, detail.given_cpus_milli, detail.given_memory_bytes) = (0, 0, 0);
    detail.gang = None;
}

/// Leaves out of a result what version 8 does not know.
fn leave_out(detail: &mut Option<Arc<Detail>>) {
    let Some(detail) = detail else { return };
    let has_disk = detail.resources.is_some_and(|used| used.disk_max_bytes.is_some());
    if !has_disk && detail.cause != Some(Cause::OverDisk) && !has_later(detail) {
        return;
    }
    let detail = Arc::make_mut(detail);
    leave_out_later(detail);
    detail.cause = detail.cause.filter(|cause| *cause != Cause::OverDisk);
    if let Some(used) = &mut detail.resources {
        used.disk_max_bytes = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Wire;
    use falkon_core::dispatch::{BatchId, Delivery, Order, Prepare, Update};
    use falkon_core::gang::GangUsage;
    use falkon_core::result::{Counts, Finished, Outcome, Report, ResourceUsage, Tries};
    use falkon_core::task::{InstanceId, Resources, TaskId, Time};

    #[test]
    fn version_8_hears_nothing_of_disk_space_alternatives_and_nodes() {
        let used = ResourceUsage { disk_max_bytes: Some(7), ..ResourceUsage::default() };
        let (cause, resources) = (Some(Cause::OverDisk), Some(used));
        let error = "x".to_owned();
        let given = Detail { given_cpus_milli: 2000, given_memory_bytes: 5, ..Detail::default() };
        let gang = Some(Arc::new(GangUsage { nodes: 3, ..GangUsage::default() }));
        let detail = Detail { cause, resources, error, alternative: 2, gang, ..given };
        let report = Report {
            instance: InstanceId(0),
            first: TaskId(1),
            count: 1,
            tries: Tries::default(),
            outcome: Outcome::Exit(1),
            started: Time(2),
            ended: Time(3),
            detail: Some(Arc::new(detail)),
        };
        let update = Update { number: 1, reports: vec![report], ..Update::default() };
        let message = FromExecutor::Update(update);
        let mut adapted = message.clone();
        adapted.adapt(DISK_SINCE);
        assert_eq!(adapted, message);
        adapted.adapt(DISK_SINCE - 1);
        let FromExecutor::Update(Update { reports, .. }) = adapted else { unreachable!() };
        let detail = reports[0].detail.as_ref().unwrap();
        assert_eq!((detail.cause, detail.resources), (None, Some(ResourceUsage::default())));
        assert_eq!((&detail.error[..], has_later(detail)), ("x", false));
        let bytes = detail.to_bytes();
        assert_eq!(usize::from(bytes[0]), 0x90 | (Detail::FIELDS.len() - Detail::LATER_FIELDS));
    }

    #[test]
    fn a_client_of_version_8_gets_results_of_gangs_that_it_can_read() {
        let gang = Some(Arc::new(GangUsage { nodes: 3, ..GangUsage::default() }));
        let resources = Some(ResourceUsage::default());
        let detail = Detail { gang, resources, ..Detail::default() };
        let result = Finished {
            first: TaskId(1),
            count: 1,
            outcome: Outcome::Exit(0),
            executor: None,
            attempts: 1,
            queued: Time(1),
            dispatched: Time(2),
            started: Time(3),
            ended: Time(4),
            detail: Some(Arc::new(detail)),
        };
        let delivery = Delivery {
            instance: InstanceId(0),
            from: 0,
            results: vec![result],
            executors: Vec::new(),
            counts: Counts::default(),
            complete: true,
            upto: 1,
            again: Vec::new(),
        };
        let message = ToClient::Results(delivery);
        let mut adapted = message.clone();
        adapted.adapt(GANG_USAGE_SINCE);
        assert_eq!(adapted, message);
        adapted.adapt(GANG_USAGE_SINCE - 1);
        let ToClient::Results(Delivery { results, .. }) = adapted else { unreachable!() };
        let expected = Detail { resources, ..Detail::default() };
        assert_eq!(results[0].detail.as_deref(), Some(&expected));
    }

    #[test]
    fn an_executor_of_version_8_gets_classes_that_it_can_read() {
        let plain = TaskClass::default();
        let resources = Resources { cpus_milli: AUTO_CPUS, ..plain.resources.clone() };
        let auto = TaskClass { resources, estimate_micros: AUTO_TIME, ..plain.clone() };
        let classes = vec![plain.clone(), TaskClass { alternative: 2, ..plain.clone() }, auto];
        let prepare =
            Prepare { batch: BatchId(1), template: Arc::default(), classes, everywhere: None };
        let order = Order { prepare: vec![prepare], ..Order::default() };
        let message = ToExecutor::Order(order);
        let mut adapted = message.clone();
        adapted.adapt(ALTERNATIVES_SINCE);
        assert_eq!(adapted, message);
        adapted.adapt(ALTERNATIVES_SINCE - 1);
        let ToExecutor::Order(Order { prepare, .. }) = adapted else { unreachable!() };
        assert_eq!(prepare[0].classes, [plain.clone(), plain.clone(), plain.clone()]);
        let fields = TaskClass::FIELDS.len() - TaskClass::LATER_FIELDS;
        assert_eq!(usize::from(plain.to_bytes()[0]), 0x90 | fields);
    }
}
