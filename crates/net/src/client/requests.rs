//! What a client asks of a dispatcher: a method for each request, with its errors.

use super::{Client, ClientError, Pending, done, unexpected};
use crate::secure::{Versions, fill_randomly};
use falkon_core::data::object::{Object, ObjectId};
use falkon_core::dispatch::{
    Access, Earlier, Explained, FoundObject, Holdings, Idle, InstanceOptions, LetGo, ObjectStatus,
    Purpose, Selection, Subtree, Survey,
};
use falkon_core::part::{PartAnswer, PartQuestion};
use falkon_core::provision;
use falkon_core::result::Stream;
use falkon_core::tail::{OutputQuestion, Tail, TailQuestion};
use falkon_core::task::{ExecutorId, InstanceId, Submission, TaskId, TaskKey, UserId};
use falkon_wire::message::{
    ALTERNATIVES_SINCE, BelowAsk, FromClient, RestartAsk, Status, TaskInfo, Ticket, ToClient,
    UserAsk, UserChange, UserStatus, leave_out_automatic,
};
use falkon_wire::provision::{ProvisionAsk, ProvisionStatus};
use std::sync::{Arc, OnceLock};

impl Client {
    /// Creates an instance. Returns its number and the secret that opens it.
    ///
    /// # Errors
    /// The connection is lost, or the dispatcher refuses.
    pub async fn create(
        &self,
        options: InstanceOptions,
    ) -> Result<(InstanceId, Vec<u8>), ClientError> {
        match self.ask(|request| FromClient::Create { request, options }).await? {
            ToClient::Created { instance, secret, .. } => Ok((instance, secret.0)),
            _ => Err(ClientError::Protocol),
        }
    }

    /// Sends tasks. The first gets the id `first`, which must be one past
    /// those submitted before. Wait for the returned [`Pending`] to know them
    /// accepted; several submissions may be on their way at once.
    ///
    /// # Errors
    /// The connection is lost, or the dispatcher is of a release that knows no alternatives, and
    /// tasks have some.
    pub async fn submit(
        &self,
        instance: InstanceId,
        first: TaskId,
        mut submission: Submission,
    ) -> Result<Pending, ClientError> {
        if self.version < ALTERNATIVES_SINCE {
            if submission.has_alternatives() {
                return Err(ClientError::NoAlternatives { theirs: self.version });
            }
            for class in &mut submission.classes {
                // Tasks of a relay, with those that were chosen.
                class.alternative = 0;
                leave_out_automatic(class);
            }
        }
        let client = submitter();
        self.begin(|request| FromClient::Submit { request, instance, first, client, submission })
            .await
    }

    /// Asks something about users, if the session's protocol has it.
    async fn ask_about_users(&self, ask: UserAsk) -> Result<ToClient, ClientError> {
        let (spoken, since, newest) = (self.version, ask.since(), Versions::spoken().newest());
        if spoken < since {
            return Err(ClientError::Older { spoken, since, newest });
        }
        self.ask(|request| FromClient::User { request, ask }).await
    }

    /// Adds a user, or asks for the access of one. Returns the user's number and the secret that
    /// opens the dispatcher for the user.
    ///
    /// # Errors
    /// The connection is lost, or the dispatcher refuses.
    pub async fn user_access(&self, ask: UserAsk) -> Result<(UserId, Vec<u8>), ClientError> {
        match self.ask_about_users(ask).await? {
            ToClient::User { user, secret, .. } => Ok((user, secret.0)),
            _ => Err(ClientError::Protocol),
        }
    }

    /// Changes what a user may have.
    ///
    /// # Errors
    /// The connection is lost, or the dispatcher refuses.
    pub async fn set_user(&self, name: String, change: UserChange) -> Result<(), ClientError> {
        done(self.ask_about_users(UserAsk::Set { name, change }).await?)
    }

    /// Removes a user: the user's connections end. Tasks of the user that have not ended go on,
    /// or are cancelled.
    ///
    /// # Errors
    /// The connection is lost, or the dispatcher refuses.
    pub async fn revoke_user(&self, name: String, keeps: bool) -> Result<(), ClientError> {
        done(self.ask_about_users(UserAsk::Revoke { name, keeps }).await?)
    }

    /// Lists the users.
    ///
    /// # Errors
    /// The connection is lost, or the dispatcher refuses.
    pub async fn users(&self) -> Result<Vec<UserStatus>, ClientError> {
        match self.ask_about_users(UserAsk::List).await? {
            ToClient::Users { users, .. } => Ok(users),
            _ => Err(ClientError::Protocol),
        }
    }

    /// Seals an instance: no more tasks will come.
    ///
    /// # Errors
    /// The connection is lost, or the dispatcher refuses.
    pub async fn seal(&self, instance: InstanceId) -> Result<(), ClientError> {
        let answer = self.ask(|request| FromClient::Seal { request, instance }).await?;
        done(answer)
    }

    /// Asks for results from the `from`-th on.
    ///
    /// # Errors
    /// The connection is lost, or the dispatcher refuses.
    pub async fn subscribe(&self, instance: InstanceId, from: u64) -> Result<(), ClientError> {
        done(self.ask(|request| FromClient::Subscribe { request, instance, from }).await?)
    }

    /// Acknowledges the first `upto` results, which are safe here. The
    /// acknowledgement goes with the next request, or within some milliseconds.
    ///
    /// # Errors
    /// The connection is lost.
    pub async fn acknowledge(&self, instance: InstanceId, upto: u64) -> Result<(), ClientError> {
        self.notify(FromClient::Acknowledge { instance, upto }).await
    }

    /// Cancels tasks.
    ///
    /// # Errors
    /// The connection is lost, or the dispatcher refuses.
    pub async fn cancel(
        &self,
        instance: InstanceId,
        selection: Selection,
    ) -> Result<(), ClientError> {
        done(self.ask(|request| FromClient::Cancel { request, instance, selection }).await?)
    }

    /// Has no more tasks of an instance dispatched, or has it go on.
    ///
    /// # Errors
    /// The connection is lost, or the dispatcher refuses.
    pub async fn pause(&self, instance: InstanceId, is_paused: bool) -> Result<(), ClientError> {
        done(self.ask(|request| FromClient::Pause { request, instance, is_paused }).await?)
    }

    /// Has an instance go before all that have a lower priority.
    ///
    /// # Errors
    /// The connection is lost, or the dispatcher refuses.
    pub async fn prioritize(&self, instance: InstanceId, priority: i32) -> Result<(), ClientError> {
        done(self.ask(|request| FromClient::Prioritize { request, instance, priority }).await?)
    }

    /// Has an executor given no more tasks, or some again.
    ///
    /// # Errors
    /// The connection is lost, or the dispatcher refuses.
    pub async fn drain(&self, executor: ExecutorId, is_drained: bool) -> Result<(), ClientError> {
        done(self.ask(|request| FromClient::Drain { request, executor, is_drained }).await?)
    }

    /// Takes up to `count` tasks back that no executor has: they end as cancelled.
    /// Returns runs of them, as (first, count).
    ///
    /// # Errors
    /// The connection is lost, or the dispatcher refuses.
    pub async fn withdraw(
        &self,
        instance: InstanceId,
        count: u64,
    ) -> Result<Vec<(u64, u64)>, ClientError> {
        match self.ask(|request| FromClient::Withdraw { request, instance, count }).await? {
            ToClient::Withdrawn { runs, .. } => Ok(runs),
            other => Err(unexpected(other)),
        }
    }

    /// Waits until tasks of an instance are staged, or are not any more and have not ended,
    /// since the last answer over this connection. Returns runs of both, as (first, count).
    ///
    /// # Errors
    /// The connection is lost, or the dispatcher refuses.
    pub async fn await_staged(
        &self,
        instance: InstanceId,
    ) -> Result<(Vec<(u64, u64)>, Vec<(u64, u64)>), ClientError> {
        match self.ask(|request| FromClient::AwaitStaged { request, instance }).await? {
            ToClient::Staged { staged, unstaged, .. } => Ok((staged, unstaged)),
            other => Err(unexpected(other)),
        }
    }

    /// Why slots of executors are idle.
    ///
    /// # Errors
    /// The connection is lost, or the dispatcher refuses.
    pub async fn explain_idle(&self) -> Result<Vec<Idle>, ClientError> {
        match self.ask(|request| FromClient::ExplainIdle { request }).await? {
            ToClient::Idle { idle, .. } => Ok(idle),
            other => Err(unexpected(other)),
        }
    }

    /// Has tasks run again that have failed, or that are named and were cancelled. Returns how
    /// many do, and how many cannot because it is not known any more what they were.
    ///
    /// # Errors
    /// The connection is lost, or the dispatcher refuses.
    pub async fn retry(
        &self,
        instance: InstanceId,
        selection: Selection,
    ) -> Result<(u64, u64), ClientError> {
        match self.ask(|request| FromClient::Retry { request, instance, selection }).await? {
            ToClient::Retried { count, forgotten, .. } => Ok((count, forgotten)),
            other => Err(unexpected(other)),
        }
    }

    /// The nodes that a relay of this identity lends, what has changed in what they
    /// hold, and how they do.
    ///
    /// # Errors
    /// The connection is lost, or the dispatcher refuses.
    pub async fn subtree(
        &self,
        relay: u64,
        since: u64,
    ) -> Result<(Subtree, Holdings, Survey), ClientError> {
        match self.ask(|request| FromClient::Subtree { request, relay, since }).await? {
            ToClient::Subtree { subtree, holdings, survey, .. } => Ok((subtree, holdings, *survey)),
            other => Err(unexpected(other)),
        }
    }

    /// Says which tasks wait at a dispatcher above, for a relay: instead of what was
    /// said before over this connection. There is no answer.
    ///
    /// # Errors
    /// The connection is lost.
    pub async fn tell_unmet(&self, waiting: Vec<provision::Waiting>) -> Result<(), ClientError> {
        self.notify(FromClient::Unmet { waiting }).await
    }

    /// Frees an instance with everything in it.
    ///
    /// # Errors
    /// The connection is lost, or the dispatcher refuses.
    pub async fn destroy(&self, instance: InstanceId) -> Result<(), ClientError> {
        done(self.ask(|request| FromClient::Destroy { request, instance }).await?)
    }

    /// How things are: with one instance, or with all.
    ///
    /// # Errors
    /// The connection is lost, or the dispatcher refuses.
    pub async fn status(&self, instance: Option<InstanceId>) -> Result<Status, ClientError> {
        let mut whole: Option<Status> = None;
        let mut from = None;
        loop {
            let status =
                match self.ask(|request| FromClient::Status { request, instance, from }).await? {
                    ToClient::Status { status, .. } => status,
                    other => return Err(unexpected(other)),
                };
            // A place that does not advance would make this loop endless.
            let next = status.next.filter(|next| Some(*next) > from);
            let whole = match &mut whole {
                None => whole.insert(status),
                Some(whole) => {
                    whole.instances.extend(status.instances);
                    whole.executors.extend(status.executors);
                    whole
                }
            };
            if next.is_none() {
                return Ok(Status { next: None, ..std::mem::take(whole) });
            }
            from = next;
        }
    }

    /// The states of tasks, at most [`falkon_wire::message::TASKS_ASKED_MAX`]
    /// at a time.
    ///
    /// # Errors
    /// The connection is lost, or the dispatcher refuses.
    pub async fn tasks(
        &self,
        instance: InstanceId,
        first: TaskId,
        count: u64,
    ) -> Result<Vec<TaskInfo>, ClientError> {
        match self.ask(|request| FromClient::Tasks { request, instance, first, count }).await? {
            ToClient::Tasks { tasks, .. } => Ok(tasks),
            other => Err(unexpected(other)),
        }
    }

    /// Why a task waits, or all that wait of an instance.
    ///
    /// # Errors
    /// The connection is lost, or the dispatcher refuses.
    pub async fn explain(
        &self,
        instance: InstanceId,
        task: Option<TaskId>,
    ) -> Result<Vec<Explained>, ClientError> {
        match self.ask(|request| FromClient::Explain { request, instance, task }).await? {
            ToClient::Explained { explained, .. } => Ok(explained),
            other => Err(unexpected(other)),
        }
    }

    /// Asks for events from a position on, or for the oldest. Returns blocks as they are
    /// in files, the position behind them, and whether that is the end for now.
    ///
    /// # Errors
    /// The connection is lost, or the dispatcher refuses.
    pub async fn events(
        &self,
        from: Option<(u64, u64)>,
    ) -> Result<(Vec<u8>, (u64, u64), bool), ClientError> {
        match self.ask(|request| FromClient::Events { request, from }).await? {
            ToClient::Events { blocks, next, is_end, .. } => Ok((blocks, next, is_end)),
            other => Err(unexpected(other)),
        }
    }

    /// Asks how the provisioner is: all its queues or one, with at most `log`
    /// lines of its log.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn provision_status(
        &self,
        queue: Option<String>,
        log: u64,
    ) -> Result<ProvisionStatus, ClientError> {
        let ask = ProvisionAsk::Status { queue, log };
        match self.ask(|request| FromClient::Provision { request, ask }).await? {
            ToClient::Provision { status, .. } => Ok(status),
            other => Err(unexpected(other)),
        }
    }

    /// The data objects after one, as many as fit into one answer; and the
    /// place to continue from, if there may be more.
    ///
    /// # Errors
    /// The connection is lost, or the dispatcher refuses.
    pub async fn objects(
        &self,
        instance: Option<InstanceId>,
        executor: Option<ExecutorId>,
        prefix: &str,
        after: Option<ObjectId>,
    ) -> Result<(Vec<ObjectStatus>, Option<ObjectId>), ClientError> {
        let prefix = prefix.to_owned();
        let asked =
            self.ask(|request| FromClient::Objects { request, instance, executor, prefix, after });
        match asked.await? {
            ToClient::Objects { objects, next, .. } => Ok((objects, next)),
            other => Err(unexpected(other)),
        }
    }

    /// The data objects that a URL or an id means, and where they are; and what
    /// earlier tasks did with objects of that name.
    ///
    /// # Errors
    /// The connection is lost, or the dispatcher refuses.
    pub async fn find(
        &self,
        instance: Option<InstanceId>,
        name: &str,
    ) -> Result<(Vec<FoundObject>, Option<Earlier>), ClientError> {
        let name = name.to_owned();
        match self.ask(|request| FromClient::Find { request, instance, name }).await? {
            ToClient::Found { found, earlier, .. } => Ok((found, earlier)),
            other => Err(unexpected(other)),
        }
    }

    /// Has what tasks did with large objects of a name, or of all, forgotten. Returns how
    /// many names were known.
    ///
    /// # Errors
    /// The connection is lost, or the dispatcher refuses.
    pub async fn forget(&self, name: Option<&str>) -> Result<u64, ClientError> {
        let name: Option<Arc<str>> = name.map(Arc::from);
        match self.ask(|request| FromClient::Forget { request, name }).await? {
            ToClient::Forgotten { names, .. } => Ok(names),
            other => Err(unexpected(other)),
        }
    }

    /// The peer that has a data object, and the ticket for it.
    ///
    /// # Errors
    /// The connection is lost, or the dispatcher refuses.
    pub async fn reach(
        &self,
        instance: Option<InstanceId>,
        object: &Object,
        purpose: Purpose,
    ) -> Result<(Ticket, Vec<Access>), ClientError> {
        let object = object.clone();
        match self.ask(|request| FromClient::Reach { request, instance, object, purpose }).await? {
            ToClient::Reached { ticket, access, .. } => Ok((ticket, access)),
            other => Err(unexpected(other)),
        }
    }

    /// Where all of what a task wrote to a stream is, with the number that it has there, and a
    /// ticket for it.
    ///
    /// # Errors
    /// The connection is lost, or the dispatcher refuses.
    pub async fn reach_output(
        &self,
        instance: InstanceId,
        task: TaskId,
        stream: Stream,
    ) -> Result<(Ticket, Access, u64), ClientError> {
        let asked = |request| FromClient::ReachOutput { request, instance, task, stream };
        match self.ask(asked).await? {
            ToClient::OutputReached { ticket, access, number, .. } => Ok((ticket, access, number)),
            other => Err(unexpected(other)),
        }
    }

    /// The executor that runs a task, and a ticket for what the task writes to a stream.
    ///
    /// # Errors
    /// The connection is lost, or the dispatcher refuses.
    pub async fn reach_tail(
        &self,
        instance: InstanceId,
        task: TaskId,
        stream: Stream,
    ) -> Result<(Ticket, Vec<Access>), ClientError> {
        let asked = |request| FromClient::ReachTail { request, instance, task, stream };
        match self.ask(asked).await? {
            ToClient::Reached { ticket, access, .. } => Ok((ticket, access)),
            other => Err(unexpected(other)),
        }
    }

    /// What a task has written that is below a relay: the answer may take as long as the
    /// question's patience.
    ///
    /// # Errors
    /// The connection is lost, or the dispatcher refuses.
    pub async fn ask_tail(&self, question: TailQuestion) -> Result<Tail, ClientError> {
        let TailQuestion { task: TaskKey { instance, task }, stream, from, patience_ms } = question;
        let asked =
            |request| FromClient::AskTail { request, instance, task, stream, from, patience_ms };
        match self.ask(asked).await? {
            ToClient::Tail { tail, .. } => Ok(tail),
            other => Err(unexpected(other)),
        }
    }

    /// A part of long output of a task that has ended below a relay.
    ///
    /// # Errors
    /// The connection is lost, or the dispatcher refuses.
    pub async fn read_output(&self, question: OutputQuestion) -> Result<Tail, ClientError> {
        let OutputQuestion { task: TaskKey { instance, task }, stream, from, count } = question;
        let asked =
            |request| FromClient::ReadOutput { request, instance, task, stream, from, count };
        match self.ask(asked).await? {
            ToClient::Tail { tail, .. } => Ok(tail),
            other => Err(unexpected(other)),
        }
    }

    /// Nobody needs the long output of these tasks any more: runs of them, as (first, count).
    ///
    /// # Errors
    /// The connection is lost, or the dispatcher refuses.
    pub async fn release_output(
        &self,
        instance: InstanceId,
        runs: Vec<(u64, u64)>,
    ) -> Result<(), ClientError> {
        done(self.ask(|request| FromClient::ReleaseOutput { request, instance, runs }).await?)
    }

    /// A part of an object that executors here hold, for the dispatcher above a relay.
    ///
    /// # Errors
    /// The connection is lost, or the dispatcher refuses.
    pub async fn read_part(&self, question: PartQuestion) -> Result<PartAnswer, ClientError> {
        match self.ask(|request| FromClient::ReadPart { request, question }).await? {
            ToClient::Part { answer, .. } => Ok(answer),
            other => Err(unexpected(other)),
        }
    }

    /// A part of an object that executors below relays hold.
    ///
    /// # Errors
    /// The connection is lost, or the dispatcher refuses.
    pub async fn read_part_below(
        &self,
        instance: Option<InstanceId>,
        question: PartQuestion,
    ) -> Result<PartAnswer, ClientError> {
        let ask = BelowAsk::Read(question);
        match self.ask(|request| FromClient::Below { request, instance, ask }).await? {
            ToClient::Part { answer, .. } => Ok(answer),
            other => Err(unexpected(other)),
        }
    }

    /// Has an object dropped that executors below relays hold. It goes a while after the
    /// answer, when nothing uses it there.
    ///
    /// # Errors
    /// The connection is lost, or the dispatcher refuses.
    pub async fn drop_below(
        &self,
        instance: Option<InstanceId>,
        object: ObjectId,
        force: bool,
    ) -> Result<(), ClientError> {
        let ask = BelowAsk::Drop { object, force };
        done(self.ask(|request| FromClient::Below { request, instance, ask }).await?)
    }

    /// Waits for questions of executors here for the dispatcher above a relay. Returns them
    /// with their numbers.
    ///
    /// # Errors
    /// The connection is lost, or the dispatcher refuses.
    pub async fn await_parts(&self) -> Result<Vec<(u64, PartQuestion)>, ClientError> {
        match self.ask(|request| FromClient::AwaitParts { request }).await? {
            ToClient::Parts { questions, .. } => Ok(questions),
            other => Err(unexpected(other)),
        }
    }

    /// Answers one of these questions.
    ///
    /// # Errors
    /// The connection is lost.
    pub async fn tell_part(&self, number: u64, answer: PartAnswer) -> Result<(), ClientError> {
        self.notify(FromClient::TellPart { number, answer }).await
    }

    /// The dispatcher above a relay needs objects in caches alone no more.
    ///
    /// # Errors
    /// The connection is lost, or the dispatcher refuses.
    pub async fn let_go(&self, objects: LetGo) -> Result<(), ClientError> {
        done(self.ask(|request| FromClient::LetGo { request, objects }).await?)
    }

    /// Has the provisioner do something.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn provision(&self, ask: ProvisionAsk) -> Result<(), ClientError> {
        done(self.ask(|request| FromClient::Provision { request, ask }).await?)
    }

    /// Ends the dispatcher.
    ///
    /// # Errors
    /// The connection is lost, or the dispatcher refuses.
    pub async fn stop(&self) -> Result<(), ClientError> {
        done(self.ask(|request| FromClient::Stop { request }).await?)
    }

    /// Replaces the dispatcher's program, or asks which it is. Returns the version that runs,
    /// and the one that takes its place now, if one does.
    ///
    /// # Errors
    /// The connection is lost, or the dispatcher refuses.
    pub async fn program(&self, ask: RestartAsk) -> Result<(String, Option<String>), ClientError> {
        match self.ask(|request| FromClient::Restart { request, ask }).await? {
            ToClient::Program { version, next, .. } => Ok((version, next)),
            other => Err(unexpected(other)),
        }
    }
}

/// The number by which this process is known in submissions: tasks that it
/// sends again over another connection are known as its own.
fn submitter() -> u64 {
    static DRAWN: OnceLock<u64> = OnceLock::new();
    *DRAWN.get_or_init(|| {
        let mut bytes = [0; 8];
        // Without random numbers, processes are distinguished by these.
        let fallback = u64::from(std::process::id());
        match fill_randomly(&mut bytes) {
            Ok(()) => u64::from_le_bytes(bytes).max(1),
            Err(_) => fallback,
        }
    })
}
