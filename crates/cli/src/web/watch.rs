//! Asks the dispatcher while somebody looks, and keeps what its events add up to.

use super::timeline::EventIndex;
use super::{acts, answers, metrics, show};
use crate::events::Names;
use crate::top::board::{Board, News};
use falkon_core::events::{Densities, Failures, History, Transfers, What};
use falkon_core::task::Time;
use falkon_dispatcher::events::{Blocks, Position};
use falkon_net::client::{Client, ClientError};
use falkon_net::secure::{FrameReader, FrameWriter, Role};
use falkon_web::{Answer, Answering, File, Question, Rights, Site};
use falkon_wire::message::Refusal;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};

/// How often the dispatcher is asked.
const EVERY: Duration = Duration::from_secs(1);
/// How long an answer is waited for.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Pauses last so many times as long as answers take to come, or longer: whoever watches a
/// large dispatcher does not slow it.
const PAUSE_TIMES: u32 = 10;
/// The pause between answers while earlier events are read.
const CATCH_UP: Duration = Duration::from_millis(20);
/// Answers with events between two updates.
const EVENT_ANSWERS_MAX: usize = 16;
/// Lines of the provisioner that are kept.
const PROVISION_LINES_MAX: usize = 50;

/// What is known of the dispatcher.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) board: Board,
    pub(super) history: History,
    pub(super) failures: Failures,
    pub(super) transfers: Transfers,
    /// What the timeline is drawn from.
    pub(super) densities: Densities,
    pub(super) names: Names,
    /// Behind which place no event is known yet.
    pub(super) next: Option<(u64, u64)>,
    /// Where events are, by time.
    pub(super) index: EventIndex,
    /// What the provisioner decided last, the latest first: when, for which queue, and what.
    pub(super) provisioned: VecDeque<(Time, Arc<str>, Arc<str>)>,
    /// Earlier events are still being read.
    pub(super) is_behind: bool,
    /// The dispatcher keeps no events.
    pub(super) has_no_events: bool,
    /// Events that no answer has.
    pub(super) missing: u64,
}

/// The page of a dispatcher.
pub(crate) struct Dashboard {
    known: Mutex<Known>,
    client: Mutex<Option<Client>>,
    updates: watch::Sender<Arc<str>>,
    /// Somebody has begun to look.
    wanted: Notify,
    /// Makes connections with the rights of a role.
    connect: Box<dyn Fn(Role) -> (FrameReader, FrameWriter) + Send + Sync>,
    /// The metrics that were made last, and when. Who asks for them waits for who does already.
    metrics: tokio::sync::Mutex<Option<(Instant, String)>>,
}

impl Dashboard {
    /// A page of which nothing is known yet; `connect` gives a connection with a role's rights.
    pub(super) fn new(
        connect: impl Fn(Role) -> (FrameReader, FrameWriter) + Send + Sync + 'static,
    ) -> Dashboard {
        Dashboard {
            connect: Box::new(connect),
            metrics: tokio::sync::Mutex::default(),
            known: Mutex::default(),
            client: Mutex::default(),
            updates: watch::Sender::new("".into()),
            wanted: Notify::new(),
        }
    }

    /// What is known. A thread that panicked has left nothing half done here.
    pub(super) fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection to the dispatcher, while there is one.
    pub(super) fn client(&self) -> Option<Client> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_client(&self, client: Option<Client>) {
        *self.client.lock().unwrap_or_else(PoisonError::into_inner) = client;
    }

    /// Makes metrics, or returns those of the last second.
    async fn metrics_text(&self) -> Result<String, ClientError> {
        let mut last = self.metrics.lock().await;
        if let Some((_, text)) = last.as_ref().filter(|(at, _)| at.elapsed() < EVERY) {
            return Ok(text.clone());
        }
        let (reader, writer) = (self.connect)(Role::Observer);
        let (client, _deliveries) = Client::over(reader, writer);
        let text = metrics::text(&client.status(None).await?);
        *last = Some((Instant::now(), text.clone()));
        Ok(text)
    }

    /// Asks for ever, with an observer's rights.
    pub(super) async fn watch(self: Arc<Self>) {
        let mut next = None;
        let mut connected = None;
        loop {
            while self.updates.receiver_count() == 0 {
                self.wanted.notified().await;
            }
            let client = connected.get_or_insert_with(|| {
                let (reader, writer) = (self.connect)(Role::Observer);
                Client::over(reader, writer)
            });
            self.set_client(Some(client.0.clone()));
            let asked = Instant::now();
            let answer = tokio::time::timeout(ANSWER_MAX, self.ask(&client.0, &mut next)).await;
            let lost = match answer {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(error.to_string()),
                Err(_) => Some(format!("no answer came for {} s", ANSWER_MAX.as_secs())),
            };
            if let Some(reason) = lost {
                self.known().board.take(News::Lost(reason));
                self.set_client(None);
                connected = None;
            }
            let pause = EVERY.saturating_sub(asked.elapsed()).max(asked.elapsed() * PAUSE_TIMES);
            self.publish();
            if self.known().is_behind && connected.is_some() {
                tokio::time::sleep(CATCH_UP).await;
                continue;
            }
            tokio::time::sleep(pause).await;
        }
    }

    fn publish(&self) {
        let text = show::board(&self.known()).to_string();
        self.updates.send_replace(text.into());
    }

    async fn ask(&self, client: &Client, next: &mut Option<(u64, u64)>) -> Result<(), ClientError> {
        let status = client.status(None).await?;
        let now = status.now;
        self.known().board.take(News::Status(status));
        for _ in 0..EVENT_ANSWERS_MAX {
            let (bytes, behind, is_end) = match client.events(*next).await {
                Ok(answer) => answer,
                Err(ClientError::Refused(Refusal::NoEvents)) => {
                    self.known().has_no_events = true;
                    return Ok(());
                }
                // It reads for us already, from before this connection.
                Err(ClientError::Refused(Refusal::Busy)) => return Ok(()),
                Err(error) => return Err(error),
            };
            let began = next.replace(behind);
            let position = Position { file: behind.0, offset: behind.1 };
            let mut known = self.known();
            let blocks = Blocks { bytes, next: position, is_end };
            if let Some(first) = blocks.iter().find(|block| !block.repeats) {
                known.index.add(first.first, began, blocks.bytes.len());
            }
            known.add(&blocks);
            known.next = Some(behind);
            known.is_behind = !is_end;
            if is_end {
                // The events of the last moments are not written yet.
                let until = known.history.tally().span.map_or(Time(0), |(_, last)| last);
                known.history.advance(until.max(Time(now.0.saturating_sub(UNWRITTEN_MICROS))));
                break;
            }
        }
        Ok(())
    }
}

/// How long events are on their way to their file, and their reader.
const UNWRITTEN_MICROS: u64 = 1_000_000;

impl Known {
    fn add(&mut self, blocks: &Blocks) {
        for block in blocks.iter() {
            block.each(|event| {
                self.names.learn(&event);
                // What files repeat is known; only names may be new to who begins with one.
                let is_new = match &event.what {
                    What::ExecutorJoined { executor, .. } => {
                        !self.history.tally().executors.contains_key(executor)
                    }
                    _ => !block.repeats,
                };
                if !is_new {
                    return;
                }
                self.history.add(&event);
                self.failures.add(&event);
                self.transfers.add(&event);
                self.densities.add(&event);
                match event.what {
                    What::Provisioned { queue, text } => {
                        self.provisioned.push_front((event.at, queue, text));
                        self.provisioned.truncate(PROVISION_LINES_MAX);
                    }
                    What::Missing { events } => self.missing = self.missing.saturating_add(events),
                    _ => {}
                }
            });
        }
    }
}

impl Site for Dashboard {
    fn page(&self, rights: Rights) -> &'static str {
        match rights {
            Rights::Look => show::PAGE,
            Rights::Act => show::owner_page(),
        }
    }

    fn stranger_page(&self) -> &'static str {
        include_str!("page/stranger.html")
    }

    fn files(&self) -> &'static [File] {
        &show::FILES
    }

    fn answer(self: Arc<Self>, question: Question) -> Answering {
        Box::pin(async move {
            match answers::answer(&self, &question).await {
                Ok(json) => Answer::Json(json.to_string()),
                Err(answer) => answer,
            }
        })
    }

    fn act(self: Arc<Self>, request: Question) -> Answering {
        Box::pin(async move {
            let action = match acts::action(&request) {
                Ok(action) => action,
                Err(answer) => return answer,
            };
            let (reader, writer) = (self.connect)(Role::Owner);
            let (client, _deliveries) = Client::over(reader, writer);
            match acts::act(&client, action).await {
                Ok(json) => Answer::Json(json.to_string()),
                Err(answer) => answer,
            }
        })
    }

    fn metrics(self: Arc<Self>) -> Answering {
        Box::pin(async move {
            match self.metrics_text().await {
                Ok(text) => Answer::Metrics(text),
                Err(error) => Answer::Unavailable(error.to_string()),
            }
        })
    }

    fn updates(&self) -> watch::Receiver<Arc<str>> {
        let updates = self.updates.subscribe();
        self.wanted.notify_one();
        updates
    }
}
