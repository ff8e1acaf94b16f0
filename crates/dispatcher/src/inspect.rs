//! How things are: answers to questions that change nothing.

use super::Driver;
use super::events::{self, Blocks, Position};
use super::permission::Viewer;
use falkon_core::data::declared::CacheRoom;
use falkon_core::data::object::Object;
use falkon_core::data::stage::CacheState;
use falkon_core::dispatch::{
    Begun, ConnectionId, Dispatcher, Event, ExecutorView, Expiry, InstanceView, Lifetime, Purpose,
    Scope, Standing, Subtree, Whereabouts,
};
use falkon_core::result::Stream;
use falkon_core::task::{InstanceId, Rows, TaskId, Time};
use falkon_net::ids::{output_id, tail_id};
use falkon_net::secure::{Claims, VisitPurpose};
use falkon_wire::codec::Wire;
use falkon_wire::command::Template;
use falkon_wire::message::{
    BelowAsk, CacheStatus, ExecutorStatus, InstanceStatus, Refusal, Status, TASKS_ASKED_MAX,
    TaskInfo, ToClient,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How long a ticket can be used to connect to executors.
const TICKET_MICROS: u64 = 3_600_000_000;
/// Instances and executors in one answer, beyond the last one.
const STATUS_BYTES_MAX: usize = 4 << 20;
/// Tasks in one answer, beyond the last one, and what is read for them.
const TASKS_BYTES_MAX: usize = 1 << 20;
/// The bytes of a task in an answer, besides its name and its command line.
const TASK_BYTES: usize = 128;
/// Bytes shown of one command line.
const ARGV_BYTES_MAX: usize = 64 << 10;

/// How many tasks of each instance run or are staged. Counting looks at all that executors
/// have, so it is done once for all questions of a round.
#[derive(Debug, Default)]
pub(super) struct Running(Option<BTreeMap<InstanceId, Begun>>);

impl Running {
    fn of(&mut self, core: &Dispatcher) -> &BTreeMap<InstanceId, Begun> {
        self.0.get_or_insert_with(|| core.begun())
    }

    /// The dispatcher acts: the numbers will be others.
    pub(super) fn forget(&mut self) {
        self.0 = None;
    }
}

impl Driver {
    /// Records a question about an instance. Refuses the question, with the
    /// time of expiry, if the instance has expired.
    pub(super) fn refuses_expired(
        &mut self,
        now: Time,
        connection: ConnectionId,
        request: u64,
        instance: Option<InstanceId>,
    ) -> bool {
        let looked = instance.map_or(Ok(()), |instance| self.core.look(now, instance));
        let Err(error) = looked else { return false };
        self.push(connection, ToClient::Refused { request, reason: error.into() });
        true
    }

    /// Marks an instance as expired. It stays known, so that a client with its
    /// access file learns that, until it is `forgotten`.
    pub(super) fn instance_expired(
        &self,
        instance: InstanceId,
        why: Expiry,
        forgotten: Option<InstanceId>,
    ) {
        (self.log)(&format!("instance {instance} has expired: {why}"));
        if let Some(forgotten) = forgotten {
            self.doors.shut_instance(forgotten);
        }
    }

    /// The instances and executors from two numbers on, as many as go into one
    /// answer.
    pub(super) fn status(
        &mut self,
        viewer: Viewer,
        only: Option<InstanceId>,
        from: Option<(u64, u64)>,
    ) -> Status {
        let (first_instance, first_executor) = from.unwrap_or_default();
        let mut status = Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started: self.started,
            now: self.clock.now(),
            ..Status::default()
        };
        if from.is_none() {
            let provision = self.provision.as_ref();
            status.coming = provision.map_or_else(Vec::new, |own| own.coming(status.now));
            status.away = self.core.relays_away(status.now).collect();
            if only.is_none() {
                status.users = self.user_statuses(|user| viewer.sees(user));
            }
        }
        let mut bytes = 0;
        let running = self.running.of(&self.core);
        let one = only.and_then(|only| self.core.instance_view(only));
        let all = only.is_none().then(|| self.core.instance_views());
        let (core, users) = (&self.core, &self.users);
        let instances = one.into_iter().chain(all.into_iter().flatten());
        let instances = instances.filter(|instance| viewer.sees(core.user_of(instance.id())));
        for instance in instances.skip_while(|instance| instance.id().0 < first_instance) {
            if bytes >= STATUS_BYTES_MAX {
                status.next = Some((instance.id().0, first_executor));
                return status;
            }
            let begun = running.get(&instance.id()).copied().unwrap_or_default();
            let user = users.name(core.user_of(instance.id()));
            let instance = instance_status(&instance, begun, user);
            bytes += instance.to_bytes().len();
            status.instances.push(instance);
        }
        let executors = self.core.executor_views();
        for executor in executors.skip_while(|executor| executor.id().0 < first_executor) {
            if bytes >= STATUS_BYTES_MAX {
                status.next = Some((u64::MAX, executor.id().0));
                return status;
            }
            let relays = self.core.standings(&executor, status.now);
            let executor = executor_status(&executor, relays);
            bytes += executor.to_bytes().len();
            status.executors.push(executor);
        }
        status
    }

    /// The peer that has an object, and the ticket for it.
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

    /// What a client asks of an object below relays, if it may go to executors with it.
    pub(super) fn below(
        &self,
        connection: ConnectionId,
        request: u64,
        scope: Scope,
        ask: BelowAsk,
    ) -> Result<Event, Refusal> {
        // As when it is asked whom to go to.
        if self.identity.is_none() {
            return Err(Refusal::NotAllowed);
        }
        let (object, purpose) = match &ask {
            BelowAsk::Read(question) => (question.object, Purpose::Get),
            BelowAsk::Drop { object, force } => (*object, Purpose::Drop { force: *force }),
        };
        self.core.reach_below(scope, object, purpose).map_err(Refusal::Access)?;
        Ok(match ask {
            BelowAsk::Read(question) => Event::ReadFromRelays { connection, request, question },
            BelowAsk::Drop { object, .. } => Event::DropBelow { connection, request, object },
        })
    }

    /// A ticket for what a task wrote, and where to go with it.
    pub(super) fn reach_output(
        &self,
        request: u64,
        instance: InstanceId,
        task: TaskId,
        stream: Stream,
    ) -> ToClient {
        let (number, access) = match self.core.reach_output(instance, task, stream) {
            Ok((overflow, access)) => (overflow.number, access),
            Err(error) => return ToClient::Refused { request, reason: Refusal::Access(error) },
        };
        // Without an identity the executor is in this process.
        let Some(identity) = &self.identity else {
            return ToClient::Refused { request, reason: Refusal::NotAllowed };
        };
        let expires = self.clock.now().after(TICKET_MICROS);
        let object = output_id(instance, task, stream, number);
        let claims = Claims { purpose: VisitPurpose::Output, object, expires };
        let ticket = claims.ticket(&identity.peer_secret());
        ToClient::OutputReached { request, ticket, access, number }
    }

    /// A ticket for what a task writes, and where to go with it.
    pub(super) fn reach_tail(
        &mut self,
        request: u64,
        instance: InstanceId,
        task: TaskId,
        stream: Stream,
    ) -> ToClient {
        // Without an identity all executors are in this process.
        let Some(identity) = &self.identity else {
            return ToClient::Refused { request, reason: Refusal::NotAllowed };
        };
        match self.core.reach_tail(instance, task) {
            Ok(access) => {
                let expires = self.clock.now().after(TICKET_MICROS);
                let object = tail_id(instance, task, stream);
                let claims = Claims { purpose: VisitPurpose::Tail, object, expires };
                let ticket = claims.ticket(&identity.peer_secret());
                ToClient::Reached { request, ticket, access: vec![access] }
            }
            Err(error) => ToClient::Refused { request, reason: Refusal::Access(error) },
        }
    }

    /// Has events read for a peer; the answer comes when they are.
    pub(super) fn ask_for_events(
        &mut self,
        connection: ConnectionId,
        request: u64,
        from: Option<(u64, u64)>,
    ) {
        let from = from.map(|(file, offset)| Position { file, offset });
        let reason = match &mut self.events {
            None => Refusal::NoEvents,
            Some(events) => match events.read(connection, request, from) {
                true => return,
                false => Refusal::Busy,
            },
        };
        self.push(connection, ToClient::Refused { request, reason });
    }

    /// Answers with events that were read.
    pub(super) fn answer_events(&mut self, read: events::Answer) {
        let events::Answer { connection, request, blocks } = read;
        let Blocks { bytes, next: Position { file, offset }, is_end } = blocks;
        let next = (file, offset);
        let answer = ToClient::Events { request, blocks: bytes, next, is_end };
        self.answer_question(connection, request, answer);
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
        // Many tasks in a row have one template.
        let mut decoded: Option<(Arc<Vec<u8>>, Option<Template>)> = None;
        let mut bytes = 0;
        for (whereabouts, task) in whereabouts.into_iter().zip((first.0..).map(TaskId)) {
            let mut name = None;
            let mut argv = Vec::new();
            if let Some((submission, row)) = view.submission_of(task) {
                name =
                    submission.names.as_ref().and_then(|names| names.at(row)).map(<[u8]>::to_vec);
                let template = &submission.template;
                if !decoded.as_ref().is_some_and(|(known, _)| Arc::ptr_eq(known, template)) {
                    bytes += template.len();
                    decoded = Some((template.clone(), Template::from_bytes(template).ok()));
                }
                if let Rows::Packed(rows) = &submission.rows {
                    bytes += rows.at(row).map_or(0, <[u8]>::len);
                }
                // A template that does not decode was some client's business;
                // its tasks fail with that error on their executor.
                let template = decoded.as_ref().and_then(|(_, template)| template.as_ref());
                argv = template
                    .and_then(|template| template.words(&submission.rows, row, task.0 + 1).ok())
                    .map(|words| shown(words.into_iter()))
                    .unwrap_or_default();
            }
            bytes += TASK_BYTES + argv.iter().map(|argument| argument.len() + 5).sum::<usize>();
            bytes += name.as_ref().map_or(0, Vec::len);
            let executor = whereabouts.executor().and_then(|id| self.core.executor_name(id));
            let executor = executor.map(str::to_owned);
            let state = whereabouts.word().to_owned();
            let end = match whereabouts {
                Whereabouts::Ended(finished) => Some(finished),
                _ => None,
            };
            bytes += executor.as_ref().map_or(0, String::len);
            tasks.push(TaskInfo { task, name, state, argv, executor, end });
            if bytes >= TASKS_BYTES_MAX {
                break;
            }
        }
        tasks
    }
}

/// A command line for people: what is very long is cut.
fn shown(arguments: impl Iterator<Item = Vec<u8>>) -> Vec<Vec<u8>> {
    let mut room = ARGV_BYTES_MAX;
    let mut shown = Vec::new();
    for mut argument in arguments {
        if argument.len() + 5 > room {
            argument.truncate(room.saturating_sub(5));
            argument.extend_from_slice("…".as_bytes());
            shown.push(argument);
            break;
        }
        room -= argument.len() + 5;
        shown.push(argument);
    }
    shown
}

fn instance_status(instance: &InstanceView<'_>, begun: Begun, user: String) -> InstanceStatus {
    let (held_bytes, stored_bytes) = instance.results_held();
    let Lifetime { created, heard, expires } = instance.lifetime();
    InstanceStatus {
        id: instance.id().0,
        name: instance.options().name.clone(),
        created,
        heard,
        expires,
        counts: instance.counts(),
        // Tasks may have ended since they were counted.
        running: begun.running.min(instance.counts().dispatched),
        staged: begun.staged.min(instance.counts().dispatched),
        sealed: instance.is_sealed(),
        complete: instance.is_complete(),
        named: instance.is_named(),
        queued_bytes: instance.queued_bytes(),
        held_bytes,
        stored_bytes,
        clogged: instance.is_clogged(),
        paused: instance.is_paused(),
        priority: instance.priority(),
        unschedulable: instance.unschedulable(),
        overlong: instance.overlong(),
        results: instance.results(),
        user,
    }
}

fn cache_status(executor: &ExecutorView<'_>, state: CacheState, objects: u64) -> CacheStatus {
    let CacheRoom { object_bytes, lent_bytes, mounts } = executor.room();
    let lent_used_bytes = executor.lent_used();
    CacheStatus { objects, state, object_bytes, lent_bytes, lent_used_bytes, mounts }
}

fn executor_status(executor: &ExecutorView<'_>, relays: Vec<Standing>) -> ExecutorStatus {
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
        drained: executor.is_drained(),
        cache: executor.cache().map(|(state, objects)| cache_status(executor, state, objects)),
        nodes: executor.subtree().map(Subtree::node_count),
        relays,
        unwritten: executor.unwritten().to_vec(),
    }
}
