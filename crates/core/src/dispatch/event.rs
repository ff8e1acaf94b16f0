//! What goes into a dispatcher and what comes out of it: plain data.

use super::journal_room::Disk;
use super::pages::{Page, PagePlace};
use super::{
    AccessError, Expiry, InstanceOptions, Join, JoinError, LetGo, Order, Record, RequestError,
    Retried, Selection, Update, UserLimits,
};
use crate::data::object::ObjectId;
use crate::gang::GangToken;
use crate::part::{PartAnswer, PartQuestion};
use crate::provision::Waiting;
use crate::result::{Counts, Finished};
use crate::tail::{KeptQuestion, OutputQuestion, Tail, TailQuestion};
use crate::task::{ExecutorId, InstanceId, Submission, TaskId, UserId};
use std::sync::Arc;

/// A connection, as the shell numbers them. Numbers are never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// What happens to a dispatcher. `request` numbers come back in the
/// [`Reply`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A client wants an instance.
    Create {
        /// Who asks.
        connection: ConnectionId,
        /// The number of the request, which its reply repeats.
        request: u64,
        /// How it is to behave.
        options: InstanceOptions,
    },
    /// A client submits tasks.
    Submit {
        /// Who asks.
        connection: ConnectionId,
        /// The number of the request, which its reply repeats.
        request: u64,
        /// Where to.
        instance: InstanceId,
        /// The id that the first task gets: a submission sent again after a
        /// lost connection is recognised by it.
        first: TaskId,
        /// Drawn at random by the client, and the same on all its connections:
        /// what another client submitted is not taken for this one's.
        client: u64,
        /// The tasks.
        submission: Submission,
    },
    /// A client has submitted all it will.
    Seal {
        /// Who asks.
        connection: ConnectionId,
        /// The number of the request, which its reply repeats.
        request: u64,
        /// The instance's number.
        instance: InstanceId,
    },
    /// A client wants forgotten what tasks did with large objects of a name, or of all.
    Forget {
        /// Who asks.
        connection: ConnectionId,
        /// The number of the request, which its reply repeats.
        request: u64,
        /// The name: where the objects come from.
        name: Option<Arc<str>>,
    },
    /// A client wants results as they come.
    Subscribe {
        /// Who asks.
        connection: ConnectionId,
        /// The number of the request, which its reply repeats.
        request: u64,
        /// The instance's number.
        instance: InstanceId,
        /// From which task result on, counted from 0 in the order of delivery.
        from: u64,
    },
    /// A client has taken in results.
    Acknowledge {
        /// Who.
        connection: ConnectionId,
        /// The instance's number.
        instance: InstanceId,
        /// How many task results, counted from the instance's first.
        upto: u64,
    },
    /// A client gives up on tasks.
    Cancel {
        /// Who asks.
        connection: ConnectionId,
        /// The number of the request, which its reply repeats.
        request: u64,
        /// The instance's number.
        instance: InstanceId,
        /// Which tasks.
        selection: Selection,
    },
    /// A client wants tasks to run again that have ended and not well.
    Retry {
        /// Who asks.
        connection: ConnectionId,
        /// The number of the request, which its reply repeats.
        request: u64,
        /// The instance's number.
        instance: InstanceId,
        /// Which of them; all that have failed, and were not cancelled, if all.
        selection: Selection,
    },
    /// A client wants no more tasks of an instance dispatched, or wants it to go on.
    Pause {
        /// Who asks.
        connection: ConnectionId,
        /// The number of the request, which its reply repeats.
        request: u64,
        /// The instance's number.
        instance: InstanceId,
        /// Which of both.
        is_paused: bool,
    },
    /// A client wants an instance to go before all that have a lower priority.
    Prioritize {
        /// Who asks.
        connection: ConnectionId,
        /// The number of the request, which its reply repeats.
        request: u64,
        /// The instance's number.
        instance: InstanceId,
        /// Its priority from now on.
        priority: i32,
    },
    /// A client wants an executor to be given no more tasks, or to be given some again.
    Drain {
        /// Who asks.
        connection: ConnectionId,
        /// The number of the request, which its reply repeats.
        request: u64,
        /// Which executor.
        executor: ExecutorId,
        /// Which of both.
        is_drained: bool,
    },
    /// A client takes tasks back that have not started.
    Withdraw {
        /// Who asks.
        connection: ConnectionId,
        /// The number of the request, which its reply repeats.
        request: u64,
        /// The instance's number.
        instance: InstanceId,
        /// How many tasks, at most: the last in their queues first.
        count: u64,
    },
    /// A relay waits for tasks to be staged, or to be so no longer.
    AwaitStaged {
        /// Who asks.
        connection: ConnectionId,
        /// The number of the request, which its reply repeats.
        request: u64,
        /// The instance's number.
        instance: InstanceId,
    },
    /// A relay that has passed results of an instance with `keep_output` on says that nobody
    /// needs the long output of tasks any more.
    ReleaseOutput {
        /// Who asks.
        connection: ConnectionId,
        /// The number of the request, which its reply repeats.
        request: u64,
        /// The instance's number.
        instance: InstanceId,
        /// The tasks, as (first, count).
        runs: Vec<(u64, u64)>,
    },
    /// A client reads long output of a task that has ended below a relay.
    ReadOutput {
        /// Who asks.
        connection: ConnectionId,
        /// The number of the request, which its reply repeats.
        request: u64,
        /// The question.
        question: OutputQuestion,
    },
    /// A client asks what a task below a relay writes.
    AskTail {
        /// Who asks.
        connection: ConnectionId,
        /// The number of the request, which its reply repeats.
        request: u64,
        /// The question.
        question: TailQuestion,
    },
    /// A relay answers [`Action::AskTail`] or [`Action::AskKept`].
    TailTold {
        /// Its connection.
        connection: ConnectionId,
        /// The number of the question.
        number: u64,
        /// What the task has written, or why the relay does not know.
        told: Result<Tail, AccessError>,
    },
    /// An executor, or a relay for those below it, asks for a part of an object that it
    /// cannot reach. The answer is [`Action::Part`].
    ReadPart {
        /// Its connection.
        connection: ConnectionId,
        /// The number of its question.
        number: u64,
        /// The question.
        question: PartQuestion,
    },
    /// A relay that lends the executors here asks, for the dispatcher above it, for a part of
    /// an object that they hold. The answer is [`Reply::Part`].
    ReadPartBelow {
        /// Who asks.
        connection: ConnectionId,
        /// The number of the request, which its reply repeats.
        request: u64,
        /// The question.
        question: PartQuestion,
    },
    /// A client asks for a part of an object that it may read, and that executors below relays
    /// hold. The answer is [`Reply::PartForClient`].
    ReadFromRelays {
        /// Who asks.
        connection: ConnectionId,
        /// The number of the request, which its reply repeats.
        request: u64,
        /// The question.
        question: PartQuestion,
    },
    /// A client has an object dropped that it may have dropped, wherever executors below relays
    /// hold it. The answer is [`Reply::Done`].
    DropBelow {
        /// Who asks.
        connection: ConnectionId,
        /// The number of the request, which its reply repeats.
        request: u64,
        /// The object.
        object: ObjectId,
    },
    /// A relay that lends the executors here takes questions for the dispatcher above it. The
    /// answer, when there are some, is [`Reply::Parts`].
    AwaitParts {
        /// Who asks.
        connection: ConnectionId,
        /// The number of the request, which its reply repeats.
        request: u64,
    },
    /// Who was asked with [`Action::AskPart`] or [`Reply::Parts`] answers.
    PartTold {
        /// Its connection.
        connection: ConnectionId,
        /// The number of the question.
        number: u64,
        /// The answer.
        answer: PartAnswer,
    },
    /// A relay that lends the executors here says which objects in caches alone the dispatcher
    /// above it needs no more.
    LetGo {
        /// Who asks.
        connection: ConnectionId,
        /// The number of the request, which its reply repeats.
        request: u64,
        /// The objects.
        objects: LetGo,
    },
    /// A client is through with an instance.
    Destroy {
        /// Who asks.
        connection: ConnectionId,
        /// The number of the request, which its reply repeats.
        request: u64,
        /// The instance's number.
        instance: InstanceId,
    },
    /// An executor registers.
    Join {
        /// Its connection.
        connection: ConnectionId,
        /// Who it is and what it has.
        join: Join,
    },
    /// An executor speaks.
    Update {
        /// Its connection.
        connection: ConnectionId,
        /// What it says.
        update: Update,
    },
    /// An executor takes no more tasks, and leaves when those it has ended; the
    /// provisioner wants it so.
    Release {
        /// The executor.
        executor: ExecutorId,
    },
    /// Tasks that wait at a dispatcher above, as a relay to it says: instead of what
    /// was said before over this connection.
    Unmet {
        /// The connection.
        connection: ConnectionId,
        /// The tasks.
        waiting: Vec<Waiting>,
    },
    /// More of the [`Action::Deliver`] for a connection have been written to
    /// it, or are on their way by other means. Without this, results
    /// stop after [`UNWRITTEN_BYTES_MAX`](crate::limits::UNWRITTEN_BYTES_MAX).
    Written {
        /// The connection.
        connection: ConnectionId,
        /// How many of them.
        messages: u64,
    },
    /// A connection is gone, whoever's it was.
    Closed {
        /// The connection.
        connection: ConnectionId,
    },
    /// The answer to [`Action::StorePage`].
    PageStored {
        /// The instance whose results it holds.
        instance: InstanceId,
        /// The position of the first.
        from: u64,
        /// Where it is; `None` if it could not be written.
        place: Option<PagePlace>,
    },
    /// The answer to [`Action::LoadPage`].
    PageLoaded {
        /// The instance whose results it holds.
        instance: InstanceId,
        /// The position of the first.
        from: u64,
        /// The results, or why they cannot be read.
        page: Result<Page, String>,
    },
    /// The answer to [`Action::DrawTokens`].
    TokensDrawn(Vec<GangToken>),
    /// How much room there is on the journal's disk, as often as that changes.
    DiskMeasured(Disk),
    /// There is a user beside the owner: one who was added, or who was there before.
    UserSet {
        /// Who.
        user: UserId,
        /// How much the user may have.
        limits: UserLimits,
    },
    /// A user is no more. The user's instances stay.
    UserRevoked {
        /// Who.
        user: UserId,
        /// Tasks of the user go on; else those that have not ended are cancelled.
        keeps: bool,
    },
    /// A user who is no more, and has no instances, need not be known any longer.
    UserForgotten {
        /// Who.
        user: UserId,
    },
    /// A connection speaks for a user, before anything else that it says: instances that it
    /// creates are that user's.
    SpeaksFor {
        /// The connection.
        connection: ConnectionId,
        /// The user.
        user: UserId,
    },
}

/// The answer to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// An instance was created.
    Created(InstanceId),
    /// Tasks were accepted: they will end exactly once.
    Accepted {
        /// The first of them.
        first: TaskId,
        /// How many.
        count: u64,
    },
    /// Tasks were withdrawn: runs of them, as (first, count). They end as
    /// cancelled.
    Withdrawn(Vec<(u64, u64)>),
    /// Runs of tasks, as (first, count).
    Staged {
        /// They have ended, and are reported when what they wrote is safe.
        staged: Vec<(u64, u64)>,
        /// They were staged, and are not any more: they run again.
        unstaged: Vec<(u64, u64)>,
    },
    /// So many names were forgotten.
    Forgotten(u64),
    /// Tasks run again.
    Retried(Retried),
    /// What a task below a relay has written, or why that is not known.
    Tail(Result<Tail, AccessError>),
    /// A part of an object, for a relay.
    Part(PartAnswer),
    /// A part of an object, for a client, which may be slow to read.
    PartForClient(PartAnswer),
    /// Questions for parts of objects, with their numbers, and answered with
    /// [`Event::PartTold`].
    Parts(Vec<(u64, PartQuestion)>),
    /// It is done.
    Done,
    /// It is not.
    Refused(RequestError),
}

/// Results in the order in which an instance delivers them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// The instance.
    pub instance: InstanceId,
    /// How many task results of the instance come before these.
    pub from: u64,
    /// The results.
    pub results: Vec<Finished>,
    /// Names of the executors that occur in them.
    pub executors: Vec<(ExecutorId, String)>,
    /// The instance's counts.
    pub counts: Counts,
    /// Nothing will follow: all tasks have ended, and no more are taken.
    pub complete: bool,
    /// How many task results come before those that follow: some between may have been
    /// replaced, and are left out.
    pub upto: u64,
    /// Tasks, as (first, count), that were retried: their results here are instead of those
    /// that were delivered before, if any were.
    pub again: Vec<(u64, u64)>,
}

/// What a dispatcher wants done, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Write this before doing what follows.
    Journal(Record),
    /// Answer a request.
    Reply {
        /// To whom.
        connection: ConnectionId,
        /// Which request.
        request: u64,
        /// The answer.
        reply: Reply,
    },
    /// Deliver results.
    Deliver {
        /// To whom.
        connection: ConnectionId,
        /// What.
        delivery: Delivery,
    },
    /// Report with [`Event::Written`] as soon as more of the results for a
    /// connection have been written: others wait for that.
    AwaitWritten {
        /// The connection.
        connection: ConnectionId,
    },
    /// Tell a client that no more results come: another client has destroyed
    /// the instance.
    Gone {
        /// To whom.
        connection: ConnectionId,
        /// The instance.
        instance: InstanceId,
    },
    /// An instance has expired and is destroyed.
    Expired {
        /// The instance.
        instance: InstanceId,
        /// Why.
        why: Expiry,
        /// An instance that expired long ago and is not known to have existed
        /// any more.
        forgotten: Option<InstanceId>,
    },
    /// Write a page of results to disk, and answer with [`Event::PageStored`].
    StorePage {
        /// The instance whose results these are.
        instance: InstanceId,
        /// The position of the first.
        from: u64,
        /// What to write.
        page: Page,
    },
    /// Read a page of results, and answer with [`Event::PageLoaded`].
    LoadPage {
        /// The instance whose results these are.
        instance: InstanceId,
        /// The position of the first.
        from: u64,
        /// Where it is.
        place: PagePlace,
    },
    /// Nobody needs these pages any more.
    DropPages {
        /// Where they are.
        places: Vec<PagePlace>,
    },
    /// Draw so many secrets of gangs from the random source of the system, and answer with
    /// [`Event::TokensDrawn`]: a gang is formed with each.
    DrawTokens {
        /// How many.
        count: u32,
    },
    /// Tell an executor.
    Order {
        /// To whom.
        connection: ConnectionId,
        /// What.
        order: Order,
    },
    /// Tell a relay below which nodes can be got of the tasks that wait for some:
    /// instead of what it was told before.
    Unmet {
        /// To whom.
        connection: ConnectionId,
        /// The tasks.
        waiting: Vec<Waiting>,
    },
    /// Ask a relay what a task writes, and answer with [`Event::TailTold`].
    AskTail {
        /// The relay's connection.
        connection: ConnectionId,
        /// The number of the question.
        number: u64,
        /// The question.
        question: TailQuestion,
    },
    /// Ask a relay for long output that executors below it keep, and answer with
    /// [`Event::TailTold`].
    AskKept {
        /// The relay's connection.
        connection: ConnectionId,
        /// The number of the question.
        number: u64,
        /// The question.
        question: KeptQuestion,
    },
    /// Ask an executor or a relay for a part of an object that it holds, or that executors
    /// below it hold, and answer with [`Event::PartTold`].
    AskPart {
        /// Its connection.
        connection: ConnectionId,
        /// The number of the question.
        number: u64,
        /// The question.
        question: PartQuestion,
    },
    /// Give an executor or a relay the part of an object that it has asked for.
    Part {
        /// Its connection.
        connection: ConnectionId,
        /// The number of its question.
        number: u64,
        /// The part.
        answer: PartAnswer,
    },
    /// Tell an executor that it is not taken in, and close its connection.
    Refuse {
        /// The connection.
        connection: ConnectionId,
        /// Why.
        error: JoinError,
    },
    /// The peer broke the protocol or was replaced: close its connection.
    Close {
        /// The connection.
        connection: ConnectionId,
        /// Why, for the log.
        reason: &'static str,
    },
}
