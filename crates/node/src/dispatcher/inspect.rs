//! How things are: answers to questions that change nothing.

use super::Driver;
use crate::overflow::output_id;
use crate::secure::{Claims, VisitPurpose};
use falkon_core::data::object::Object;
use falkon_core::dispatch::{Purpose, Scope, Whereabouts};
use falkon_core::result::Stream;
use falkon_core::task::{InstanceId, TaskId};
use falkon_wire::codec::Wire;
use falkon_wire::command::Template;
use falkon_wire::message::{
    CacheStatus, ExecutorStatus, InstanceStatus, Refusal, Status, TASKS_ASKED_MAX, TaskInfo,
    ToClient,
};

/// How long a ticket can be used to connect to executors.
const TICKET_MICROS: u64 = 3_600_000_000;

impl Driver {
    pub(super) fn status(&self, only: Option<InstanceId>) -> Status {
        let running = self.core.running();
        let instances = self
            .core
            .instance_views()
            .filter(|instance| only.is_none_or(|only| only == instance.id()))
            .map(|instance| {
                let (held_bytes, stored_bytes) = instance.results_held();
                InstanceStatus {
                    id: instance.id().0,
                    name: instance.options().name.clone(),
                    counts: instance.counts(),
                    running: running.get(&instance.id()).copied().unwrap_or_default(),
                    sealed: instance.is_sealed(),
                    complete: instance.is_complete(),
                    named: instance.is_named(),
                    held_bytes,
                    stored_bytes,
                    clogged: instance.is_clogged(),
                    unschedulable: instance.unschedulable(),
                    overlong: instance.overlong(),
                }
            })
            .collect();
        let executors = self
            .core
            .executor_views()
            .map(|executor| {
                let (tasks, prefetched) = executor.load();
                ExecutorStatus {
                    id: executor.id(),
                    name: executor.name().to_owned(),
                    capacity: executor.capacity().clone(),
                    free: executor.free().clone(),
                    tasks,
                    prefetched,
                    connected: executor.is_connected(),
                    suspended_until: executor.suspended_until(),
                    cache: executor.cache().map(|(state, objects)| CacheStatus { objects, state }),
                }
            })
            .collect();
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started: self.started,
            now: self.clock.now(),
            instances,
            executors,
            coming: self
                .provision
                .as_ref()
                .map_or_else(Vec::new, |own| own.coming(self.clock.now())),
        }
    }

    /// Whom to go to with an object, and what to prove oneself with there.
    pub(super) fn reach(
        &self,
        request: u64,
        scope: Scope,
        object: &Object,
        purpose: Purpose,
    ) -> ToClient {
        // Without an identity all executors are in this process.
        let Some(identity) = &self.identity else {
            return ToClient::Refused { request, reason: Refusal::NotAllowed };
        };
        match self.core.reach(scope, object, purpose) {
            Ok(access) => {
                let expires = self.clock.now().after(TICKET_MICROS);
                let claims = Claims { purpose: purpose.into(), object: object.id, expires };
                let ticket = claims.ticket(&identity.peer_secret());
                ToClient::Reached { request, ticket, access }
            }
            Err(error) => ToClient::Refused { request, reason: Refusal::Access(error) },
        }
    }

    /// A ticket for what a task wrote, and where to go with it.
    pub(super) fn reach_output(
        &self,
        request: u64,
        instance: InstanceId,
        task: TaskId,
        stream: Stream,
    ) -> ToClient {
        // Without an identity all executors are in this process.
        let Some(identity) = &self.identity else {
            return ToClient::Refused { request, reason: Refusal::NotAllowed };
        };
        match self.core.reach_output(instance, task, stream) {
            Ok((overflow, access)) => {
                let expires = self.clock.now().after(TICKET_MICROS);
                let object = output_id(instance, task, stream, overflow.number);
                let claims = Claims { purpose: VisitPurpose::Output, object, expires };
                let ticket = claims.ticket(&identity.peer_secret());
                ToClient::Reached { request, ticket, access: vec![access] }
            }
            Err(error) => ToClient::Refused { request, reason: Refusal::Access(error) },
        }
    }

    pub(super) fn tasks(
        &mut self,
        instance: InstanceId,
        first: TaskId,
        count: u64,
    ) -> Vec<TaskInfo> {
        let whereabouts = self.core.whereabouts(instance, first, count.min(TASKS_ASKED_MAX));
        let Some(view) = self.core.instance_view(instance) else { return Vec::new() };
        let mut tasks = Vec::with_capacity(whereabouts.len());
        for (task, whereabouts) in (first.0..).map(TaskId).zip(whereabouts) {
            let mut name = None;
            let mut argv = Vec::new();
            if let Some((submission, row)) = view.submission_of(task) {
                name =
                    submission.names.as_ref().and_then(|names| names.at(row)).map(<[u8]>::to_vec);
                // A template that does not decode was some client's business;
                // its tasks fail with that error on their executor.
                argv = Template::from_bytes(&submission.template)
                    .and_then(|template| template.expand(&submission.rows, row, task.0 + 1))
                    .map(|command| {
                        let name = command.call.map(|call| call.function.name.clone());
                        name.into_iter().chain(command.argv).collect()
                    })
                    .unwrap_or_default();
            }
            let executor = whereabouts.executor().and_then(|id| self.core.executor_name(id));
            let executor = executor.map(str::to_owned);
            let state = whereabouts.word().to_owned();
            let end = match whereabouts {
                Whereabouts::Ended(finished) => Some(finished),
                _ => None,
            };
            tasks.push(TaskInfo { task, name, state, argv, executor, end });
        }
        tasks
    }
}
