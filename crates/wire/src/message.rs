//! Messages of a connection after its handshake.
//!
//! A connection carries frames; a frame carries one message. Requests carry a
//! number that comes back in the answer; a client may have many under way.
//!
//! # Messages that a peer may not know
//!
//! Two sides speak the newest version that both know, which their session names. What differs
//! between [`PROTOCOL_VERSION_OLDEST`] and [`PROTOCOL_VERSION`], their methods `adapt` leave out.
//!
//! - A message, variant or field that is added in a later version is not sent over a session of
//!   an earlier one. Its sender does without it; where a user has asked for it, the answer is an
//!   error of its own that names both versions and the side to upgrade.
//! - A value that a version encodes differently is encoded as the session's version has it.
//! - What only versions before the oldest one need is removed with them.

mod below;
mod executor;
mod number;
mod older;
mod refusal;
mod restart;
mod secrecy;
mod status;
mod ticket;
mod user;

pub use below::BelowAsk;
pub use executor::{FromExecutor, ToExecutor};
pub use number::request_number;
pub use older::{ALTERNATIVES_SINCE, leave_out_automatic};
pub use refusal::Refusal;
pub use restart::RestartAsk;
pub use status::{CacheStatus, ExecutorStatus, InstanceStatus, Status, TaskInfo};
pub use ticket::Ticket;
pub use user::{QuotaChange, UserAsk, UserChange, UserError, UserStatus};

use crate::codec::wire_enum;
use crate::hidden::Hidden;
use crate::provision::{ProvisionAsk, ProvisionStatus};
use falkon_core::data::object::{Object, ObjectId};
use falkon_core::dispatch::{
    Access, Delivery, Earlier, Explained, FoundObject, Holdings, Idle, InstanceOptions, LetGo,
    ObjectStatus, Purpose, Selection, Subtree, Survey,
};
use falkon_core::part::{PartAnswer, PartQuestion};
use falkon_core::provision::Waiting;
use falkon_core::result::Stream;
use falkon_core::tail::Tail;
use falkon_core::task::{ExecutorId, InstanceId, Submission, TaskId, UserId};
use std::sync::Arc;

/// The newest version that this release speaks. Version 9 has a shorter handshake than version 8, and
/// knows of scratch disk space, of tasks' alternatives and of changes to users.
pub const PROTOCOL_VERSION: u16 = 9;

/// The oldest version that this release speaks: the one before [`PROTOCOL_VERSION`], or the same
/// if there is none.
pub const PROTOCOL_VERSION_OLDEST: u16 = 8;

const _: () = assert!(
    PROTOCOL_VERSION - PROTOCOL_VERSION_OLDEST <= 1,
    "a release speaks one version before its own at most"
);

/// From a client to a dispatcher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FromClient {
    /// Create an instance. Answer: [`ToClient::Created`].
    Create {
        /// Comes back in the answer.
        request: u64,
        /// How it is to behave.
        options: InstanceOptions,
    },
    /// Submit tasks. Answer: [`ToClient::Accepted`].
    Submit {
        /// Comes back in the answer.
        request: u64,
        /// Where to.
        instance: InstanceId,
        /// The id of the first task: one past those submitted before.
        first: TaskId,
        /// Drawn at random by the client, not 0, and the same on all its
        /// connections: tasks that are sent again are told from another client's.
        client: u64,
        /// The tasks.
        submission: Submission,
    },
    /// No more tasks will come. Answer: [`ToClient::Done`].
    Seal {
        /// Comes back in the answer.
        request: u64,
        /// The instance.
        instance: InstanceId,
    },
    /// Send results as they come. Answer: `Done`, then [`ToClient::Results`] until one is complete.
    Subscribe {
        /// Comes back in the answer.
        request: u64,
        /// The instance.
        instance: InstanceId,
        /// How many task results the client has already.
        from: u64,
    },
    /// These results are safe with the client. No answer.
    Acknowledge {
        /// The instance.
        instance: InstanceId,
        /// How many task results, from the first.
        upto: u64,
    },
    /// Cancel tasks. Answer: [`ToClient::Done`].
    Cancel {
        /// Comes back in the answer.
        request: u64,
        /// The instance.
        instance: InstanceId,
        /// The tasks.
        selection: Selection,
    },
    /// Forget an instance, its tasks and its results. Answer: [`ToClient::Done`].
    Destroy {
        /// Comes back in the answer.
        request: u64,
        /// The instance.
        instance: InstanceId,
    },
    /// Ask how things are. Answer: [`ToClient::Status`].
    Status {
        /// Comes back in the answer.
        request: u64,
        /// Only this instance; all, if `None`.
        instance: Option<InstanceId>,
        /// The numbers of the first instance and the first executor asked for:
        /// where the answer before this one ended.
        from: Option<(u64, u64)>,
    },
    /// Ask what tasks are and how they stand. Answer: [`ToClient::Tasks`].
    Tasks {
        /// Comes back in the answer.
        request: u64,
        /// The instance.
        instance: InstanceId,
        /// The first task asked for.
        first: TaskId,
        /// How many, at most [`TASKS_ASKED_MAX`].
        count: u64,
    },
    /// Ask why tasks wait. Answer: [`ToClient::Explained`].
    Explain {
        /// Comes back in the answer.
        request: u64,
        /// The instance.
        instance: InstanceId,
        /// The task; all that wait, if `None`.
        task: Option<TaskId>,
    },
    /// Ask why slots of executors are idle. Answer: [`ToClient::Idle`].
    ExplainIdle {
        /// Comes back in the answer.
        request: u64,
    },
    /// Ask for events, as they are in files (docs/events.md). Answer: [`ToClient::Events`].
    Events {
        /// Comes back in the answer.
        request: u64,
        /// Where the answer before this one ended: a file and an offset in it. From the
        /// oldest events on, if `None`.
        from: Option<(u64, u64)>,
    },
    /// Have tasks run again that have ended and not well. Answer: [`ToClient::Retried`].
    Retry {
        /// Comes back in the answer.
        request: u64,
        /// The instance.
        instance: InstanceId,
        /// The tasks; all that have failed, and were not cancelled, if all.
        selection: Selection,
    },
    /// Have no more tasks of an instance dispatched, or have it go on. Answer:
    /// [`ToClient::Done`].
    Pause {
        /// Comes back in the answer.
        request: u64,
        /// Which.
        instance: InstanceId,
        /// Which of both.
        is_paused: bool,
    },
    /// Have an executor given no more tasks, or some again. Answer: [`ToClient::Done`].
    Drain {
        /// Comes back in the answer.
        request: u64,
        /// Which.
        executor: ExecutorId,
        /// Which of both.
        is_drained: bool,
    },
    /// Have an instance go before those of lower priority. Answer: [`ToClient::Done`].
    Prioritize {
        /// Comes back in the answer.
        request: u64,
        /// Which.
        instance: InstanceId,
        /// Its priority from now on.
        priority: i32,
    },
    /// End the dispatcher. Answer: [`ToClient::Done`], then the connection closes.
    Stop {
        /// Comes back in the answer.
        request: u64,
    },
    /// Ask which data objects there are. Answer: [`ToClient::Objects`].
    Objects {
        /// Comes back in the answer.
        request: u64,
        /// Only those of this instance.
        instance: Option<InstanceId>,
        /// Only those that this executor holds.
        executor: Option<ExecutorId>,
        /// Only those whose URL begins so.
        prefix: String,
        /// Only those whose id comes after this one.
        after: Option<ObjectId>,
    },
    /// Ask where a data object is. Answer: [`ToClient::Found`].
    Find {
        /// Comes back in the answer.
        request: u64,
        /// Only among those of this instance.
        instance: Option<InstanceId>,
        /// The object's URL, or its id in hexadecimal digits.
        name: String,
    },
    /// Forget what tasks did with large objects of a name, or of all. Answer:
    /// [`ToClient::Forgotten`].
    Forget {
        /// Comes back in the answer.
        request: u64,
        /// The name: where the objects come from; all, if there is none.
        name: Option<Arc<str>>,
    },
    /// Ask whom to go to with a data object. Answer: [`ToClient::Reached`].
    Reach {
        /// Comes back in the answer.
        request: u64,
        /// The instance whose tasks read or write the object.
        instance: Option<InstanceId>,
        /// The object.
        object: Object,
        /// The purpose.
        purpose: Purpose,
    },
    /// Ask whom to go to for all that a task wrote, if its executor keeps it.
    /// Answer: [`ToClient::OutputReached`].
    ReachOutput {
        /// Comes back in the answer.
        request: u64,
        /// The task's instance.
        instance: InstanceId,
        /// The task.
        task: TaskId,
        /// The stream.
        stream: Stream,
    },
    /// Ask whom to go to for what a task writes while it runs. Answer:
    /// [`ToClient::Reached`].
    ReachTail {
        /// Comes back in the answer.
        request: u64,
        /// The task's instance.
        instance: InstanceId,
        /// The task.
        task: TaskId,
        /// The stream.
        stream: Stream,
    },
    /// Ask what a task writes that is below a relay. Answer: [`ToClient::Tail`].
    AskTail {
        /// Comes back in the answer.
        request: u64,
        /// The task's instance.
        instance: InstanceId,
        /// The task.
        task: TaskId,
        /// The stream.
        stream: Stream,
        /// The first byte asked for.
        from: u64,
        /// How long to wait for something new, in milliseconds.
        patience_ms: u32,
    },
    /// Read long output of a task that has ended below a relay. Answer: [`ToClient::Tail`].
    ReadOutput {
        /// Comes back in the answer.
        request: u64,
        /// The task's instance.
        instance: InstanceId,
        /// The task.
        task: TaskId,
        /// The stream.
        stream: Stream,
        /// The first byte asked for.
        from: u64,
        /// How many bytes, at most.
        count: u64,
    },
    /// Nobody needs the long output of these tasks any more, in an instance with
    /// `keep_output`. Answer: [`ToClient::Done`].
    ReleaseOutput {
        /// Comes back in the answer.
        request: u64,
        /// The instance.
        instance: InstanceId,
        /// The tasks, as (first, count).
        runs: Vec<(u64, u64)>,
    },
    /// Ask, for a relay that lends the executors, for a part of an object that they hold.
    /// Answer: [`ToClient::Part`].
    ReadPart {
        /// Comes back in the answer.
        request: u64,
        /// The question.
        question: PartQuestion,
    },
    /// Take questions of executors for parts of objects that none of them holds, for the
    /// dispatcher above a relay. Answer: [`ToClient::Parts`], when there are some.
    AwaitParts {
        /// Comes back in the answer.
        request: u64,
    },
    /// Answers one of [`ToClient::Parts`]. No answer.
    TellPart {
        /// The number of the question.
        number: u64,
        /// The answer.
        answer: PartAnswer,
    },
    /// The dispatcher above a relay needs objects in caches alone no more. Answer:
    /// [`ToClient::Done`].
    LetGo {
        /// Comes back in the answer.
        request: u64,
        /// The objects.
        objects: LetGo,
    },
    /// Ask what nodes there are, for a relay that lends them. Answer: [`ToClient::Subtree`].
    Subtree {
        /// Comes back in the answer.
        request: u64,
        /// The relay's identity.
        relay: u64,
        /// Up to where it was told which objects are held; 0 is nothing.
        since: u64,
    },
    /// Take tasks back that have not started. Answer: [`ToClient::Withdrawn`].
    Withdraw {
        /// Comes back in the answer.
        request: u64,
        /// The instance.
        instance: InstanceId,
        /// How many tasks, at most.
        count: u64,
    },
    /// Ask which tasks are staged, or are not any more, beside what was answered before over
    /// this connection, for a relay. Answer: [`ToClient::Staged`], when there are some.
    AwaitStaged {
        /// Comes back in the answer.
        request: u64,
        /// The instance.
        instance: InstanceId,
    },
    /// Tasks that wait at a dispatcher above, for a relay: instead of what was said
    /// before over this connection. No answer.
    Unmet {
        /// The tasks.
        waiting: Vec<Waiting>,
    },
    /// Ask something of the provisioner. Answer: [`ToClient::Provision`] or [`ToClient::Done`].
    Provision {
        /// Comes back in the answer.
        request: u64,
        /// What.
        ask: ProvisionAsk,
    },
    /// Ask something about an object that executors below relays hold. Answers: see
    /// [`BelowAsk`].
    Below {
        /// Comes back in the answer.
        request: u64,
        /// The instance whose tasks read or write the object.
        instance: Option<InstanceId>,
        /// What.
        ask: BelowAsk,
    },
    /// Ask something about the dispatcher's users. Answers: see [`UserAsk`].
    User {
        /// Comes back in the answer.
        request: u64,
        /// What.
        ask: UserAsk,
    },
    /// Replace the dispatcher's program, or ask which it is. Answer: [`ToClient::Program`]; the
    /// connection closes after that of a replacement.
    Restart {
        /// Comes back in the answer.
        request: u64,
        /// What.
        ask: RestartAsk,
    },
}
wire_enum!(FromClient {
    0 => Create { request, options },
    1 => Submit { request, instance, first, client, submission },
    2 => Seal { request, instance },
    3 => Subscribe { request, instance, from },
    4 => Acknowledge { instance, upto },
    5 => Cancel { request, instance, selection },
    6 => Destroy { request, instance },
    7 => Status { request, instance, from },
    8 => Tasks { request, instance, first, count },
    9 => Stop { request },
    10 => Objects { request, instance, executor, prefix, after },
    11 => Find { request, instance, name },
    12 => Reach { request, instance, object, purpose },
    13 => Provision { request, ask },
    14 => ReachOutput { request, instance, task, stream },
    15 => Subtree { request, relay, since },
    16 => Withdraw { request, instance, count },
    17 => Unmet { waiting },
    18 => Explain { request, instance, task },
    19 => Forget { request, name },
    20 => Events { request, from },
    21 => Pause { request, instance, is_paused },
    22 => Drain { request, executor, is_drained },
    23 => Prioritize { request, instance, priority },
    24 => ReachTail { request, instance, task, stream },
    25 => Retry { request, instance, selection },
    26 => ExplainIdle { request },
    27 => AwaitStaged { request, instance },
    28 => AskTail { request, instance, task, stream, from, patience_ms },
    29 => ReadOutput { request, instance, task, stream, from, count },
    30 => ReleaseOutput { request, instance, runs },
    31 => ReadPart { request, question },
    32 => AwaitParts { request },
    33 => TellPart { number, answer },
    34 => LetGo { request, objects },
    35 => User { request, ask },
    36 => Restart { request, ask },
    37 => Below { request, instance, ask },
});

/// Tasks described in one answer.
pub const TASKS_ASKED_MAX: u64 = 1000;

/// From a dispatcher to a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToClient {
    /// An instance was created.
    Created {
        /// Of the question.
        request: u64,
        /// Its number.
        instance: InstanceId,
        /// Opens this instance and no other.
        secret: Hidden<Vec<u8>>,
    },
    /// Tasks were accepted.
    Accepted {
        /// Of the question.
        request: u64,
        /// The id of the first.
        first: TaskId,
        /// How many.
        count: u64,
    },
    /// The request was carried out.
    Done {
        /// Of the question.
        request: u64,
    },
    /// The request was refused.
    Refused {
        /// Of the question.
        request: u64,
        /// Why.
        reason: Refusal,
    },
    /// Results, in order.
    Results(Delivery),
    /// How things are.
    Status {
        /// Of the question.
        request: u64,
        /// The dispatcher and what it has.
        status: Status,
    },
    /// Descriptions of tasks.
    Tasks {
        /// Of the question.
        request: u64,
        /// One entry each.
        tasks: Vec<TaskInfo>,
    },
    /// No more results come of an instance that was subscribed to: another client has destroyed it.
    Gone {
        /// Its number.
        instance: InstanceId,
    },
    /// Data objects.
    Objects {
        /// Of the question.
        request: u64,
        /// One entry each, in the order of their ids.
        objects: Vec<ObjectStatus>,
        /// Where to go on, if there may be more.
        next: Option<ObjectId>,
    },
    /// Where a data object is.
    Found {
        /// Of the question.
        request: u64,
        /// Each that the name means.
        found: Vec<FoundObject>,
        /// What earlier tasks did with objects of that name.
        earlier: Option<Earlier>,
    },
    /// What was remembered is forgotten.
    Forgotten {
        /// Of the request.
        request: u64,
        /// Of how many names.
        names: u64,
    },
    /// Whom to go to with a data object, or for what a task writes.
    Reached {
        /// Of the question.
        request: u64,
        /// The proof to present there.
        ticket: Ticket,
        /// To whom, in this order.
        access: Vec<Access>,
    },
    /// Whom to go to for long output.
    OutputReached {
        /// Of the question.
        request: u64,
        /// The proof to present there.
        ticket: Ticket,
        /// To whom.
        access: Access,
        /// The number that the output has there.
        number: u64,
    },
    /// What a task below a relay has written.
    Tail {
        /// Of the question.
        request: u64,
        /// A part of it.
        tail: Tail,
    },
    /// How the provisioner is.
    Provision {
        /// Of the question.
        request: u64,
        /// The provisioner's status.
        status: ProvisionStatus,
    },
    /// What nodes there are.
    Subtree {
        /// Of the question.
        request: u64,
        /// The nodes, and the relays on the way to them.
        subtree: Subtree,
        /// What has changed in what they hold.
        holdings: Holdings,
        /// How they do.
        survey: Box<Survey>,
    },
    /// Tasks were taken back; they end as cancelled.
    Withdrawn {
        /// Of the question.
        request: u64,
        /// Runs of them, as (first, count).
        runs: Vec<(u64, u64)>,
    },
    /// Tasks that are staged, or are not any more: runs of them, as (first, count).
    Staged {
        /// Of the question.
        request: u64,
        /// They have ended, and their results follow when what they wrote is safe.
        staged: Vec<(u64, u64)>,
        /// They were said to be staged, and are not any more: they run again.
        unstaged: Vec<(u64, u64)>,
    },
    /// A part of an object.
    Part {
        /// Of the question.
        request: u64,
        /// The answer.
        answer: PartAnswer,
    },
    /// Questions for parts of objects, each answered with [`FromClient::TellPart`].
    Parts {
        /// Of the request.
        request: u64,
        /// The questions, with their numbers.
        questions: Vec<(u64, PartQuestion)>,
    },
    /// Why tasks wait.
    Explained {
        /// Of the question.
        request: u64,
        /// One entry for tasks that wait for the same.
        explained: Vec<Explained>,
    },
    /// Why slots are idle.
    Idle {
        /// Of the question.
        request: u64,
        /// One entry for each reason.
        idle: Vec<Idle>,
    },
    /// Tasks run again.
    Retried {
        /// Of the request.
        request: u64,
        /// How many do.
        count: u64,
        /// How many cannot, because it is not known any more what they were.
        forgotten: u64,
    },
    /// Events.
    Events {
        /// Of the question.
        request: u64,
        /// Blocks, as they are in files.
        blocks: Vec<u8>,
        /// Where to go on: a file, and an offset in it.
        next: (u64, u64),
        /// There is nothing more yet.
        is_end: bool,
    },
    /// What opens the dispatcher for a user.
    User {
        /// Of the request.
        request: u64,
        /// The user's number, which goes with the secret.
        user: UserId,
        /// The user's secret.
        secret: Hidden<Vec<u8>>,
    },
    /// The users.
    Users {
        /// Of the question.
        request: u64,
        /// One entry each, in the order of their names.
        users: Vec<UserStatus>,
    },
    /// The dispatcher's program.
    Program {
        /// Of the question.
        request: u64,
        /// The version that runs.
        version: String,
        /// The version that takes its place now, if one does.
        next: Option<String>,
    },
}

wire_enum!(ToClient {
    0 => Created { request, instance, secret },
    1 => Accepted { request, first, count },
    2 => Done { request },
    3 => Refused { request, reason },
    4 => Results(delivery),
    5 => Status { request, status },
    6 => Tasks { request, tasks },
    7 => Gone { instance },
    8 => Objects { request, objects, next },
    9 => Found { request, found, earlier },
    10 => Reached { request, ticket, access },
    11 => Provision { request, status },
    12 => Subtree { request, subtree, holdings, survey },
    13 => Withdrawn { request, runs },
    14 => Explained { request, explained },
    15 => Forgotten { request, names },
    16 => Events { request, blocks, next, is_end },
    17 => Retried { request, count, forgotten },
    18 => Idle { request, idle },
    19 => Staged { request, staged, unstaged },
    20 => Tail { request, tail },
    21 => OutputReached { request, ticket, access, number },
    22 => Part { request, answer },
    23 => Parts { request, questions },
    24 => User { request, user, secret },
    25 => Users { request, users },
    26 => Program { request, version, next },
});
