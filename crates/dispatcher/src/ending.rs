//! How a dispatcher ends: because its owner stops it, or has another program take its place. The
//! process that the dispatcher is in executes that program; it is asked whether the program will
//! do before anything ends.

use super::Driver;
use super::handle::Handle;
use super::peer::Inbound;
use falkon_core::dispatch::ConnectionId;
use falkon_wire::message::{Refusal, RestartAsk, ToClient};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::mpsc;

/// Time that connections get to take in what was queued for them at the end.
const GOODBYE_MS_MAX: u64 = 1000;
/// Restarts that are examined at a time.
const RESTARTS_MAX: usize = 1;
/// The version of this program.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Why a dispatcher has stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// A stop was requested.
    Asked,
    /// Another program is to take its place.
    Replaced,
    /// The journal can never be written again; the log has the reason.
    JournalFailed,
}

/// An owner's wish that another program takes the dispatcher's place.
#[derive(Debug)]
pub struct RestartRequest {
    /// The program; where this one was started from, if `None`.
    pub program: Option<PathBuf>,
    connection: ConnectionId,
    request: u64,
}

/// The last thing that a dispatcher says.
#[derive(Debug)]
pub(super) struct Stopping {
    pub(super) how: Stopped,
    connection: ConnectionId,
    answer: ToClient,
}

/// The way to replace the dispatcher's program.
#[derive(Debug, Default)]
pub(super) struct Restarts {
    /// Where wishes go; `None` where nobody can carry them out.
    examiner: Option<mpsc::Sender<RestartRequest>>,
    is_under_way: bool,
}

impl Handle {
    /// Takes it upon the caller to examine programs that are to take the dispatcher's place, and
    /// to execute them when it has stopped. Returns the owner's wishes, each of which is answered
    /// with [`Handle::examined`].
    pub async fn restarts(&self) -> mpsc::Receiver<RestartRequest> {
        let (examiner, wishes) = mpsc::channel(RESTARTS_MAX);
        // A dispatcher that has ended says so by itself.
        let _ = self.inbox.send(Inbound::Restarts(examiner)).await;
        wishes
    }

    /// Says what came of a wish: the version of the program that takes the dispatcher's place,
    /// which ends then, or why it goes on.
    pub async fn examined(&self, wish: RestartRequest, verdict: Result<String, String>) {
        // If the driver is gone, it has stopped.
        let _ = self.inbox.send(Inbound::Examined { wish, verdict }).await;
    }
}

impl Driver {
    /// Begins to end, as the owner asks.
    pub(super) fn begin_stop(&mut self, connection: ConnectionId, request: u64) {
        (self.log)("asked to stop");
        let answer = ToClient::Done { request };
        self.stopping = Some(Stopping { how: Stopped::Asked, connection, answer });
    }

    /// Passes the wish for a restart on, or answers at once.
    pub(super) fn ask_about_program(
        &mut self,
        connection: ConnectionId,
        request: u64,
        ask: RestartAsk,
    ) {
        let program = match ask {
            RestartAsk::Version => {
                let version = VERSION.to_owned();
                let answer = ToClient::Program { request, version, next: None };
                self.answer_question(connection, request, answer);
                return;
            }
            RestartAsk::Replace { program } => program.map(PathBuf::from),
        };
        if let Err(why) = self.pass_restart_on(RestartRequest { program, connection, request }) {
            let reason = Refusal::Restart(why.to_owned());
            self.push(connection, ToClient::Refused { request, reason });
        }
    }

    fn pass_restart_on(&mut self, wish: RestartRequest) -> Result<(), &'static str> {
        if self.store.is_none() {
            return Err("it keeps no journal, so a restart would lose its tasks: end it with \
                 falkon stop when they have ended");
        }
        if self.restarts.is_under_way {
            return Err("it is being restarted already: wait until that has ended");
        }
        let examiner = self.restarts.examiner.as_ref();
        let passed = examiner.is_some_and(|examiner| examiner.try_send(wish).is_ok());
        if !passed {
            return Err("it is part of another program: restart that one");
        }
        self.restarts.is_under_way = true;
        Ok(())
    }

    /// From now on restarts are examined.
    pub(super) fn take_examiner(&mut self, examiner: mpsc::Sender<RestartRequest>) {
        self.restarts.examiner = Some(examiner);
    }

    /// A program was examined: the dispatcher ends in its favour, or goes on.
    pub(super) fn take_verdict(&mut self, wish: &RestartRequest, verdict: Result<String, String>) {
        self.restarts.is_under_way = false;
        let RestartRequest { connection, request, .. } = *wish;
        match verdict {
            Ok(next) => {
                (self.log)(&format!("asked to restart as version {next}, was {VERSION}"));
                let (version, next) = (VERSION.to_owned(), Some(next));
                let answer = ToClient::Program { request, version, next };
                self.stopping = Some(Stopping { how: Stopped::Replaced, connection, answer });
            }
            Err(why) => {
                (self.log)(&format!("not restarted: {why}"));
                let reason = Refusal::Restart(why);
                self.push(connection, ToClient::Refused { request, reason });
            }
        }
    }

    /// Says the last thing, if the dispatcher is to end, and how it does.
    pub(super) fn say_last(&mut self) -> Option<Stopped> {
        let Stopping { how, connection, answer } = self.stopping.take()?;
        self.push(connection, answer);
        self.send();
        Some(how)
    }

    /// Lets go of all peers: their connections close once what is queued for
    /// them was written, or after a moment.
    pub(super) async fn say_goodbye(&mut self, inbox: &mut mpsc::Receiver<Inbound>) {
        self.peers.clear();
        let all_gone = async {
            while self.connections.load(Ordering::Relaxed) > 0 {
                match inbox.recv().await {
                    Some(Inbound::Closed { .. }) => {
                        self.connections.fetch_sub(1, Ordering::Relaxed);
                    }
                    Some(_) => {}
                    None => return,
                }
            }
        };
        // Peers that do not read lose the goodbye, nothing else.
        let _ = tokio::time::timeout(Duration::from_millis(GOODBYE_MS_MAX), all_gone).await;
    }
}
