//! Parts of objects on their way between the executors below and those of the dispatcher above.
//!
//! The relay has one answer after another in its hands and keeps none. Both dispatchers bound
//! how many are on their way.

use super::above::Session;
use super::below::Below;
use falkon_core::part::{PartAnswer, PartQuestion};
use falkon_net::client::Client;
use falkon_wire::message::FromExecutor;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Questions of the dispatcher above that are asked below at a time.
const BELOW_MAX: usize = 256;
/// How long the dispatcher above may take for an answer, in milliseconds: the one below waits
/// no longer.
const ABOVE_MS_MAX: u64 = 30_000;

/// A question of the dispatcher below.
struct Asked {
    /// Its number there.
    below: u64,
    since: Instant,
}

/// See the [module](self).
#[derive(Default)]
pub(super) struct Parts {
    /// Questions of the dispatcher above; they end with this.
    below: JoinSet<(u64, PartAnswer)>,
    /// Questions to it, by their numbers there.
    above: BTreeMap<u64, Asked>,
    last: u64,
}

impl Parts {
    /// Asks below for the dispatcher above.
    pub(super) fn read(&mut self, number: u64, question: PartQuestion, below: &Client) {
        let (is_busy, client) = (self.below.len() >= BELOW_MAX, below.clone());
        self.below.spawn(async move {
            let answer = match is_busy {
                true => PartAnswer::Busy,
                // That dispatcher answers in time.
                false => client.read_part(question).await.unwrap_or(PartAnswer::Unreached),
            };
            (number, answer)
        });
    }

    /// The next answer from below, for the dispatcher above; waits for it.
    pub(super) async fn read_below(&mut self) -> FromExecutor {
        loop {
            match self.below.join_next().await {
                Some(Ok((number, answer))) => return FromExecutor::Part { number, answer },
                // It has been stopped with the rest.
                Some(Err(_)) => {}
                None => std::future::pending().await,
            }
        }
    }

    /// Passes questions of the dispatcher below on. Without a session above they are answered.
    pub(super) async fn ask(
        &mut self,
        questions: Vec<(u64, PartQuestion)>,
        session: Option<&Session>,
        below: &Below,
    ) {
        for (number, question) in questions {
            let mut is_asked = false;
            if let Some(session) = session {
                self.last += 1;
                let message = FromExecutor::ReadPart { number: self.last, question };
                is_asked = session.say.send(message).await.is_ok();
            }
            match is_asked {
                true => {
                    let asked = Asked { below: number, since: Instant::now() };
                    self.above.insert(self.last, asked);
                }
                false => below.tell_part(number, PartAnswer::Unreached),
            }
        }
    }

    /// The dispatcher above has answered.
    pub(super) fn told(&mut self, number: u64, answer: PartAnswer, below: &Below) {
        if let Some(asked) = self.above.remove(&number) {
            below.tell_part(asked.below, answer);
        }
    }

    /// The session above is over: it answers nothing any more.
    pub(super) fn cut(&mut self, below: &Below) {
        for asked in std::mem::take(&mut self.above).into_values() {
            below.tell_part(asked.below, PartAnswer::Unreached);
        }
    }

    /// Forgets what the dispatcher above has not answered for long.
    pub(super) fn forget_late(&mut self) {
        let limit = Duration::from_millis(ABOVE_MS_MAX);
        self.above.retain(|_, asked| asked.since.elapsed() < limit);
    }
}
