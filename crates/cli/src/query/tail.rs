//! `falkon tail`: what a task has written, while it runs.

use super::{TaskName, named_instance, named_task, with_access};
use crate::access::AccessArgs;
use crate::exit::{Exit, say};
use clap::Args;
use falkon_core::dispatch::{Access, AccessError};
use falkon_core::result::Stream;
use falkon_core::tail::{Tail, TailQuestion, TailState};
use falkon_core::task::{TaskId, TaskKey};
use falkon_data::peer::{Peer, TailVisit, Visitor};
use falkon_net::client::{Client, ClientError};
use falkon_net::ids::tail_id;
use falkon_net::secure::{Level, VisitPurpose};
use falkon_wire::message::{Refusal, Ticket};
use std::io::{ErrorKind, Write};
use std::time::Duration;

/// How long an executor is to wait for more before it answers.
const PATIENCE: Duration = Duration::from_secs(5);
/// First and longest pause before looking again for a task that does not run.
const LOOK_AGAIN: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// `falkon tail`
#[derive(Args, Debug)]
pub(crate) struct TailArgs {
    #[command(flatten)]
    access: AccessArgs,
    /// The task: its instance, by number or name, and its number or name
    #[arg(value_name = "INSTANCE/TASK")]
    task: TaskName,
    /// Go on until the task has ended, from its start if it has not started
    #[arg(long, short)]
    follow: bool,
    /// Standard error, not standard output
    #[arg(long)]
    stderr: bool,
    /// Begin so many bytes before the end of what it has written [default: at the beginning]
    #[arg(long, value_name = "N")]
    bytes: Option<u64>,
}

/// Why nothing (more) is printed.
enum Stop {
    /// The connection to the dispatcher.
    Client(ClientError),
    /// The command's exit, which has been explained.
    Exit(Exit),
}

impl From<ClientError> for Stop {
    fn from(error: ClientError) -> Stop {
        Stop::Client(error)
    }
}

pub(crate) fn tail(args: TailArgs) -> Exit {
    let TailArgs { access, task, follow, stderr, bytes } = args;
    let number = task.instance.parse().ok();
    with_access(&access, number, async |client: Client, access| {
        let instance = match named_instance(&client, &task.instance).await? {
            Ok(instance) => instance,
            Err(exit) => return Ok(exit),
        };
        let number = match named_task(&client, instance, &task.task).await? {
            Ok(number) => number,
            Err(exit) => return Ok(exit),
        };
        let mut tailing = Tailing {
            client: &client,
            level: access.level,
            key: TaskKey { instance, task: TaskId(number) },
            stream: if stderr { Stream::Stderr } else { Stream::Stdout },
            follow,
            at: 0,
            last: bytes,
        };
        match tailing.run().await {
            Ok(()) => Ok(Exit::Success),
            Err(Stop::Exit(exit)) => Ok(exit),
            Err(Stop::Client(error)) => Err(error),
        }
    })
}

/// A task whose output is printed.
struct Tailing<'a> {
    client: &'a Client,
    level: Level,
    key: TaskKey,
    stream: Stream,
    follow: bool,
    /// The next byte to print.
    at: u64,
    /// Bytes before the end at which to begin, until that is known.
    last: Option<u64>,
}

/// Who says what the task has written.
enum Teller {
    /// Its executor.
    Executor(Box<TailVisit>, String),
    /// The dispatcher, which asks this relay.
    Relay(String),
}

/// Why a teller does not.
enum Silent {
    /// The task is somewhere else by now, or has ended.
    Moved(AccessError),
    /// It cannot be asked; who, and why.
    Unreached(String, String),
    Client(ClientError),
}

/// How listening to a teller ended.
enum Visited {
    /// There is nothing more to print.
    Over,
    /// The task is not there, or not yet.
    Again,
}

impl Tailing<'_> {
    /// Goes to the executor that has the task, and again when it is not there any more.
    async fn run(&mut self) -> Result<(), Stop> {
        let (mut pause, longest) = LOOK_AGAIN;
        let mut is_told = false;
        loop {
            let visited = match self.reach().await? {
                Ok((ticket, access)) => {
                    let teller = self.visit(&ticket, &access).await?;
                    self.listen(teller).await?
                }
                Err(AccessError::Below(relay)) => self.listen(Teller::Relay(relay)).await?,
                Err(AccessError::NotSent) if self.follow => {
                    if !std::mem::replace(&mut is_told, true) {
                        self.note("waits; what it writes follows when it runs");
                    }
                    Visited::Again
                }
                Err(AccessError::Ended) if self.at > 0 => {
                    self.note("has ended; its result has the rest of what it wrote");
                    return Ok(());
                }
                Err(error) => return Err(self.refused(&error)),
            };
            if let Visited::Over = visited {
                return Ok(());
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(longest);
        }
    }

    /// The executor that has the task, if the dispatcher names one.
    async fn reach(&self) -> Result<Result<(Ticket, Access), AccessError>, ClientError> {
        let TaskKey { instance, task } = self.key;
        match self.client.reach_tail(instance, task, self.stream).await {
            Ok((ticket, access)) => {
                Ok(access.into_iter().next().map(|one| (ticket, one)).ok_or(AccessError::NotSent))
            }
            Err(ClientError::Refused(Refusal::Access(error))) => Ok(Err(error)),
            Err(error) => Err(error),
        }
    }

    /// Goes to the executor that has the task.
    async fn visit(&self, ticket: &Ticket, access: &Access) -> Result<Teller, Stop> {
        let TaskKey { instance, task } = self.key;
        let unreachable = |why: String| self.unreachable(&access.name, &why);
        if access.serves.address.is_empty() {
            return Err(unreachable("it does not listen for others".to_owned()));
        }
        let peer = Peer {
            address: access.serves.address.clone(),
            fingerprint: access.serves.fingerprint.as_slice().try_into().ok(),
        };
        let id = tail_id(instance, task, self.stream);
        let visitor = Visitor::new(self.level, VisitPurpose::Tail, id, ticket);
        match visitor.tail(&peer, self.key, self.stream).await {
            Ok(visit) => Ok(Teller::Executor(Box::new(visit), access.name.clone())),
            Err(error) => Err(unreachable(error.to_string())),
        }
    }

    /// Prints what the task has written.
    async fn listen(&mut self, mut teller: Teller) -> Result<Visited, Stop> {
        loop {
            let tail = match self.ask(&mut teller).await {
                Ok(tail) => tail,
                Err(Silent::Client(error)) => return Err(error.into()),
                // The dispatcher knows whether the executor is gone.
                Err(Silent::Moved(_)) if self.follow => return Ok(Visited::Again),
                Err(Silent::Unreached(..))
                    if self.follow && matches!(teller, Teller::Executor(..)) =>
                {
                    return Ok(Visited::Again);
                }
                Err(Silent::Moved(error)) => return Err(self.refused(&error)),
                Err(Silent::Unreached(who, why)) => return Err(self.unreachable(&who, &why)),
            };
            match tail.state {
                TailState::Running if tail.total_bytes < self.at => {
                    self.note("runs again, from its beginning");
                    self.at = 0;
                    continue;
                }
                TailState::Running | TailState::Ended => {}
                TailState::Waiting | TailState::Gone if self.follow => return Ok(Visited::Again),
                TailState::Waiting | TailState::Gone => {
                    let (Teller::Executor(_, name) | Teller::Relay(name)) = &teller;
                    let name = super::printable(name);
                    let text = match teller {
                        Teller::Executor(..) => {
                            format!("has not started on executor {name}, which has it")
                        }
                        Teller::Relay(_) if tail.state == TailState::Gone => {
                            format!("is not (any more) on an executor below the relay {name}")
                        }
                        Teller::Relay(_) => {
                            format!("has not started below the relay {name}, which has it")
                        }
                    };
                    self.note(&text);
                    return Ok(Visited::Over);
                }
            }
            self.pass_on(&tail.bytes)?;
            if tail.is_cut {
                self.note("writes more than its executor keeps: the rest is lost");
                return Ok(Visited::Over);
            }
            let is_all = self.at >= tail.total_bytes;
            if is_all && (tail.state == TailState::Ended || !self.follow) {
                return Ok(Visited::Over);
            }
        }
    }

    /// What the task has written from where printing is on.
    async fn ask(&mut self, teller: &mut Teller) -> Result<Tail, Silent> {
        let patience = if self.follow { PATIENCE } else { Duration::ZERO };
        if let Some(last) = self.last {
            let tail = self.ask_from(teller, u64::MAX, Duration::ZERO).await?;
            if matches!(tail.state, TailState::Running | TailState::Ended) {
                self.at = tail.total_bytes.saturating_sub(last);
                self.last = None;
            }
        }
        self.ask_from(teller, self.at, patience).await
    }

    async fn ask_from(
        &self,
        teller: &mut Teller,
        from: u64,
        patience: Duration,
    ) -> Result<Tail, Silent> {
        let relay = match teller {
            Teller::Executor(visit, name) => {
                let told = visit.ask(from, patience).await;
                return told.map_err(|error| Silent::Unreached(name.clone(), error.to_string()));
            }
            Teller::Relay(name) => name,
        };
        let patience_ms = u32::try_from(patience.as_millis()).unwrap_or(u32::MAX);
        let question = TailQuestion { task: self.key, stream: self.stream, from, patience_ms };
        let told = self.client.ask_tail(question).await;
        told.map_err(|error| match error {
            ClientError::Refused(Refusal::Access(AccessError::Unreached { executor, why })) => {
                let who = match &*executor {
                    "" => relay.clone(),
                    _ => format!("{relay}/{executor}"),
                };
                Silent::Unreached(who, why)
            }
            ClientError::Refused(Refusal::Access(error)) => Silent::Moved(error),
            error => Silent::Client(error),
        })
    }

    fn pass_on(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        let mut out = std::io::stdout().lock();
        match out.write_all(bytes).and_then(|()| out.flush()) {
            Ok(()) => {
                self.at += bytes.len() as u64;
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(Stop::Exit(Exit::Success)),
            Err(error) => Err(Stop::Exit(Exit::failure(format!("cannot print: {error}")))),
        }
    }

    fn note(&self, text: &str) {
        let TaskKey { instance, task } = self.key;
        say(format_args!("task {instance}/{task} {text}"));
    }

    fn refused(&self, error: &AccessError) -> Stop {
        let TaskKey { instance, task } = self.key;
        let advice = match error {
            AccessError::Ended => format!(": falkon results {instance} shows what it wrote"),
            AccessError::NotSent => {
                format!(": falkon explain {instance}/{task} says why, and --follow waits for it")
            }
            _ => String::new(),
        };
        let text = format!("cannot show what task {instance}/{task} writes: {error}{advice}");
        Stop::Exit(Exit::usage(text))
    }

    fn unreachable(&self, executor: &str, why: &str) -> Stop {
        let TaskKey { instance, task } = self.key;
        let (executor, why) = (super::printable(executor), super::printable(why));
        Stop::Exit(Exit::failure(format!(
            "cannot show what task {instance}/{task} writes: its executor {executor} cannot be \
             reached from here: {why} (try on the dispatcher\'s machine)"
        )))
    }
}
