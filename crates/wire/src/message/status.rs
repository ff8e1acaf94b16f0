//! What a dispatcher says of itself, its instances, executors and tasks.

use super::UserStatus;
use crate::codec::{DecodeError, Decoder, Wire, put_array, wire_list, wire_struct};
use crate::provision::Coming;
use falkon_core::collect::Unwritten;
use falkon_core::data::stage::CacheState;
use falkon_core::dispatch::Standing;
use falkon_core::result::{Counts, Finished};
use falkon_core::task::{ExecutorId, Resources, TaskId, Time};

/// A dispatcher and what it has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Status {
    /// The release it runs.
    pub version: String,
    /// When it started, in microseconds since the Unix epoch.
    pub started: Time,
    /// The dispatcher's clock now.
    pub now: Time,
    /// The dispatcher's instances, or the one asked for.
    pub instances: Vec<InstanceStatus>,
    /// The dispatcher's executors.
    pub executors: Vec<ExecutorStatus>,
    /// Nodes that are to come of its provisioner's queues.
    pub coming: Vec<Coming>,
    /// Relays that lost their connection, and are not back.
    pub away: Vec<Standing>,
    /// Where to go on, if there are more instances or executors than one answer
    /// holds.
    pub next: Option<(u64, u64)>,
    /// The users of whom the asker may know, if the question was about all instances.
    pub users: Vec<UserStatus>,
}

/// An array of what every version has, and of the users if there are any: version 8 of the
/// protocol has none.
impl Wire for Status {
    const FIELDS: &'static [&'static str] =
        &["version", "started", "now", "instances", "executors", "coming", "away", "next", "users"];

    fn encode(&self, out: &mut Vec<u8>) {
        let Status { version, started, now, instances, executors, coming, away, next, users } =
            self;
        put_array(out, Self::FIELDS.len() - usize::from(users.is_empty()));
        version.encode(out);
        started.encode(out);
        now.encode(out);
        instances.encode(out);
        executors.encode(out);
        coming.encode(out);
        away.encode(out);
        next.encode(out);
        if !users.is_empty() {
            users.encode(out);
        }
    }

    fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let count = from.array()?;
        let all = Self::FIELDS.len();
        if count != all && count != all - 1 {
            return Err(DecodeError::Invalid("a status"));
        }
        Ok(Status {
            version: Wire::decode(from)?,
            started: Wire::decode(from)?,
            now: Wire::decode(from)?,
            instances: Wire::decode(from)?,
            executors: Wire::decode(from)?,
            coming: Wire::decode(from)?,
            away: Wire::decode(from)?,
            next: Wire::decode(from)?,
            users: if count == all { Wire::decode(from)? } else { Vec::new() },
        })
    }
}

/// An instance.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InstanceStatus {
    /// Its number.
    pub id: u64,
    /// The instance's name, if it was given one.
    pub name: String,
    /// When it was created.
    pub created: Time,
    /// When a client of it was last connected, or asked about it.
    pub heard: Time,
    /// When it is destroyed if nobody looks at it.
    pub expires: Option<Time>,
    /// How many tasks are in which state.
    pub counts: Counts,
    /// How many of those that are dispatched run: the others were sent ahead.
    pub running: u64,
    /// How many of those have ended, and have outputs that are staged for archives and
    /// not safe.
    pub staged: u64,
    /// The instance takes no more tasks.
    pub sealed: bool,
    /// Every task has ended.
    pub complete: bool,
    /// Some of its tasks have names.
    pub named: bool,
    /// Bytes of submissions that are queued.
    pub queued_bytes: u64,
    /// Bytes of results held in memory.
    pub held_bytes: u64,
    /// Bytes of results held on disk.
    pub stored_bytes: u64,
    /// Nothing is dispatched until results are fetched.
    pub clogged: bool,
    /// Nothing is dispatched because somebody wants it so.
    pub paused: bool,
    /// Its priority among instances.
    pub priority: i32,
    /// Needs of ready tasks that no executor offers, and how many tasks have each.
    pub unschedulable: Vec<(Resources, u64)>,
    /// For how long ready tasks are expected to run, in microseconds, before
    /// whose end every executor leaves that could run them, and how many wait.
    pub overlong: Vec<(u64, u64)>,
    /// How many task results there were so far: more than tasks that have ended, if some were
    /// retried.
    pub results: u64,
    /// The user whose it is; empty if it is the owner's.
    pub user: String,
}
wire_struct!(InstanceStatus {
    id,
    name,
    created,
    heard,
    expires,
    counts,
    running,
    staged,
    sealed,
    complete,
    named,
    queued_bytes,
    held_bytes,
    stored_bytes,
    clogged,
    paused,
    priority,
    unschedulable,
    overlong,
    results,
    user,
});

/// An executor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecutorStatus {
    /// Its number.
    pub id: ExecutorId,
    /// Its name.
    pub name: String,
    /// The resources that it offers.
    pub capacity: Resources,
    /// The resources that are free.
    pub free: Resources,
    /// Tasks it has.
    pub tasks: u64,
    /// How many of them were sent ahead.
    pub prefetched: u64,
    /// Whether it is connected.
    pub connected: bool,
    /// Until when it is left alone because it could not start its tasks.
    pub suspended_until: Option<Time>,
    /// It is given no tasks because somebody wants it so.
    pub drained: bool,
    /// The executor's cache, if it has one.
    pub cache: Option<CacheStatus>,
    /// How many nodes are below it, if it is a relay.
    pub nodes: Option<u64>,
    /// The relay that it is, and those below it, each followed by those below it in turn.
    pub relays: Vec<Standing>,
    /// Archives that it cannot write for now.
    pub unwritten: Vec<Unwritten>,
}
wire_struct!(ExecutorStatus {
    id,
    name,
    capacity,
    free,
    tasks,
    prefetched,
    connected,
    suspended_until,
    drained,
    cache,
    nodes,
    relays,
    unwritten
});

/// An executor's cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheStatus {
    /// Objects that it holds, as the dispatcher believes.
    pub objects: u64,
    /// As the executor last said.
    pub state: CacheState,
    /// The bytes of the largest object that it takes.
    pub object_bytes: u64,
    /// Bytes that the executor lends to stripes of objects.
    pub lent_bytes: u64,
    /// Those that stripes take.
    pub lent_used_bytes: u64,
    /// Whether its tasks can read objects in a file system that it has no room for.
    pub mounts: bool,
}
wire_struct!(CacheStatus { objects, state, object_bytes, lent_bytes, lent_used_bytes, mounts });

/// A task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskInfo {
    /// Its number.
    pub task: TaskId,
    /// The user's name for it.
    pub name: Option<Vec<u8>>,
    /// `waiting`, `ready`, `sent` (to an executor ahead of time), `running`,
    /// `done`, `failed` or `cancelled`; `ended` if nothing more is known.
    pub state: String,
    /// The task's command line, if it is still known.
    pub argv: Vec<Vec<u8>>,
    /// The name of the executor that has it, or had it last.
    pub executor: Option<String>,
    /// How and when it ended, without what it wrote, while that is in memory.
    pub end: Option<Finished>,
}
wire_struct!(TaskInfo { task, name, state, argv, executor, end });

wire_list!(InstanceStatus, ExecutorStatus, TaskInfo);
