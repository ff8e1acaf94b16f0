//! Requests to the dispatcher below, in their order. Nothing here holds up the relay:
//! a dispatcher whose results are not taken in answers nothing.

use falkon_core::dispatch::{RequestError, Selection};
use falkon_core::part::{PartAnswer, PartQuestion};
use falkon_core::relay::{Action, Event};
use falkon_core::task::InstanceId;
use falkon_net::client::{Client, ClientError, Pending};
use falkon_wire::message::Refusal;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// What comes from below, other than results.
pub(super) enum FromBelow {
    Event(Event),
    /// Questions for the dispatcher above, with their numbers.
    Parts(Vec<(u64, PartQuestion)>),
    Failed(ClientError),
}

/// The way to the dispatcher below.
pub(super) struct Below {
    client: Client,
    instance: InstanceId,
    /// They end with this.
    tasks: JoinSet<()>,
    /// Actions on their way. The core bounds submissions; what else there is are
    /// consequences of orders and of results.
    asks: mpsc::UnboundedSender<Action>,
    /// Parts of objects on their way: the dispatcher below bounds how many it has asked for.
    parts: mpsc::UnboundedSender<(u64, PartAnswer)>,
    answer: mpsc::UnboundedSender<FromBelow>,
    answers: mpsc::UnboundedReceiver<FromBelow>,
}

impl Below {
    pub(super) fn start(client: Client, instance: InstanceId) -> Below {
        let (asks, asked) = mpsc::unbounded_channel();
        let (answer, answers) = mpsc::unbounded_channel();
        let (submitted, submissions) = mpsc::unbounded_channel();
        let (parts, told) = mpsc::unbounded_channel();
        let mut tasks = JoinSet::new();
        tasks.spawn(hear_submissions(submissions, answer.clone()));
        tasks.spawn(hear_staged(client.clone(), instance, answer.clone()));
        tasks.spawn(hear_parts(client.clone(), answer.clone()));
        tasks.spawn(tell_parts(client.clone(), told));
        let (speaker, said) = (client.clone(), answer.clone());
        tasks.spawn(async move {
            if let Err(error) = speak(speaker, instance, asked, submitted, &said).await {
                let _ = said.send(FromBelow::Failed(error));
            }
        });
        Below { client, instance, tasks, asks, parts, answer, answers }
    }

    /// What came next; waits for it.
    pub(super) async fn recv(&mut self) -> FromBelow {
        let next = self.answers.recv().await;
        next.unwrap_or(FromBelow::Failed(ClientError::Lost))
    }

    /// Carries an action of the core out.
    pub(super) fn ask(&self, action: Action) {
        // If nobody listens, the failure is on its way.
        let _ = self.asks.send(action);
    }

    /// Answers a question of the dispatcher below.
    pub(super) fn tell_part(&self, number: u64, answer: PartAnswer) {
        // A connection that is lost is noticed elsewhere.
        let _ = self.parts.send((number, answer));
    }

    /// The connection.
    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// Destroys the relay's instance.
    pub(super) async fn destroy(&self) -> Result<(), ClientError> {
        self.client.destroy(self.instance).await
    }

    /// Asks what nodes there are, and what they hold beside what was told before.
    pub(super) fn look(&mut self, relay: u64, since: u64) {
        let (client, answer) = (self.client.clone(), self.answer.clone());
        // Those that have ended.
        while self.tasks.try_join_next().is_some() {}
        self.tasks.spawn(async move {
            match client.subtree(relay, since).await {
                Ok((subtree, holdings, survey)) => {
                    let _ = answer.send(FromBelow::Event(Event::Survey(survey)));
                    let _ = answer.send(FromBelow::Event(Event::Holdings(holdings)));
                    let _ = answer.send(FromBelow::Event(Event::Subtree(subtree)));
                }
                Err(error) => drop(answer.send(FromBelow::Failed(error))),
            }
        });
    }
}

async fn speak(
    client: Client,
    instance: InstanceId,
    mut asked: mpsc::UnboundedReceiver<Action>,
    submitted: mpsc::UnboundedSender<Pending>,
    answer: &mpsc::UnboundedSender<FromBelow>,
) -> Result<(), ClientError> {
    while let Some(action) = asked.recv().await {
        match action {
            Action::Submit { first, submission } => {
                let _ = submitted.send(client.submit(instance, first, submission).await?);
            }
            Action::Cancel(runs) => client.cancel(instance, Selection::Runs(runs)).await?,
            Action::Withdraw(count) => {
                let runs = client.withdraw(instance, count).await?;
                let _ = answer.send(FromBelow::Event(Event::Withdrawn(runs)));
            }
            Action::Unmet(waiting) => client.tell_unmet(waiting).await?,
            Action::Release(runs) => client.release_output(instance, runs).await?,
            Action::LetGo(objects) => client.let_go(objects).await?,
            Action::Acknowledge(upto) => client.acknowledge(instance, upto).await?,
            Action::Note(_) | Action::Join(_) | Action::Update(_) | Action::Left => {}
        }
    }
    Ok(())
}

/// Passes on which tasks are staged, as long as that is said.
async fn hear_staged(
    client: Client,
    instance: InstanceId,
    answer: mpsc::UnboundedSender<FromBelow>,
) {
    loop {
        let said = match client.await_staged(instance).await {
            Ok((staged, unstaged)) => FromBelow::Event(Event::Staged { staged, unstaged }),
            Err(error) => FromBelow::Failed(error),
        };
        let has_failed = matches!(said, FromBelow::Failed(_));
        if answer.send(said).is_err() || has_failed {
            return;
        }
    }
}

/// Passes questions for parts of objects on, as long as there are some. The dispatcher below
/// asks no more at a time than it may.
async fn hear_parts(client: Client, answer: mpsc::UnboundedSender<FromBelow>) {
    loop {
        let said = match client.await_parts().await {
            Ok(questions) => FromBelow::Parts(questions),
            Err(error) => FromBelow::Failed(error),
        };
        let has_failed = matches!(said, FromBelow::Failed(_));
        if answer.send(said).is_err() || has_failed {
            return;
        }
    }
}

/// Passes parts of objects on.
async fn tell_parts(client: Client, mut told: mpsc::UnboundedReceiver<(u64, PartAnswer)>) {
    while let Some((number, answer)) = told.recv().await {
        if client.tell_part(number, answer).await.is_err() {
            return;
        }
    }
}

/// Passes answers to submissions on, in their order.
async fn hear_submissions(
    mut submissions: mpsc::UnboundedReceiver<Pending>,
    answer: mpsc::UnboundedSender<FromBelow>,
) {
    while let Some(pending) = submissions.recv().await {
        let said = match pending.accepted().await {
            Ok(count) => FromBelow::Event(Event::Accepted { count }),
            Err(ClientError::Refused(why)) => match judge(&why) {
                Judged::Later => FromBelow::Event(Event::Refused { why: None }),
                Judged::Never => FromBelow::Event(Event::Refused { why: Some(why.to_string()) }),
                Judged::Fatal => FromBelow::Failed(ClientError::Refused(why)),
            },
            Err(error) => FromBelow::Failed(error),
        };
        if answer.send(said).is_err() {
            return;
        }
    }
}

/// What a refused submission means.
enum Judged {
    /// It may be accepted later.
    Later,
    /// These tasks are never accepted.
    Never,
    /// The relay's instance is gone.
    Fatal,
}

fn judge(refusal: &Refusal) -> Judged {
    match refusal {
        Refusal::Request(error) => match error {
            RequestError::Busy { .. } | RequestError::NoRoom { .. } | RequestError::Gap { .. } => {
                Judged::Later
            }
            RequestError::NoInstance(_)
            | RequestError::Expired { .. }
            | RequestError::Sealed(_) => Judged::Fatal,
            _ => Judged::Never,
        },
        Refusal::Journal(_) | Refusal::Busy => Judged::Later,
        Refusal::NotAllowed => Judged::Fatal,
        _ => Judged::Never,
    }
}
