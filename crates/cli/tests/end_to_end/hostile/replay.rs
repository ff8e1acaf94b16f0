//! What peers sent once, sent again by others, changed, and many times.

use super::mangler::Ledger;
use super::value::Value;
use crate::fixture::Random;
use falkon_net::secure::{AccessFile, Role, Session, connect};
use falkon_wire::message::PROTOCOL_VERSION;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Messages of one kind that are remembered.
const REMEMBERED_MAX: usize = 64;
/// Messages in one session.
const SESSION_MESSAGES_MAX: u64 = 60;
/// Copies of one message, and their bytes together.
const COPIES_MAX: u64 = 4_000;
const COPIES_BYTES_MAX: u64 = 32 << 20;
/// How long one session may take.
const SESSION_MS_MAX: u64 = 2_000;

/// Messages of peers, some of each kind.
#[derive(Debug, Default)]
pub(super) struct Corpus {
    /// By whether an executor sent them, and by tag.
    kinds: std::collections::BTreeMap<(bool, u8), Vec<Vec<u8>>>,
}

impl Corpus {
    pub(super) fn remember(&mut self, by_executor: bool, body: &[u8], random: &mut Random) {
        let Some(tag) = body.get(1) else { return };
        let kind = self.kinds.entry((by_executor, *tag)).or_default();
        if kind.len() < REMEMBERED_MAX {
            kind.push(body.to_vec());
        } else {
            kind[random.below(REMEMBERED_MAX as u64) as usize] = body.to_vec();
        }
    }

    /// One of `tag`, or of any.
    fn draw(&self, by_executor: bool, tag: Option<u8>, random: &mut Random) -> Option<Vec<u8>> {
        let kinds: Vec<_> = self
            .kinds
            .iter()
            .filter(|((executor, kind), _)| {
                *executor == by_executor && tag.is_none_or(|tag| tag == *kind)
            })
            .collect();
        let (_, bodies) = *kinds.get(random.below(kinds.len().max(1) as u64) as usize)?;
        bodies.get(random.below(bodies.len().max(1) as u64) as usize).cloned()
    }
}

/// Opens one session after the other until the test is over.
pub(super) fn replay(access: &Path, role: Role, mut random: Random, ledger: &Arc<Ledger>) {
    let access = AccessFile::load(access).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    while !ledger.over.load(Ordering::Relaxed) {
        random.moment(20_000);
        runtime.block_on(async {
            let limit = Duration::from_millis(SESSION_MS_MAX);
            let session = async {
                // A client that is kept out comes again.
                if let Ok(session) = connect(&access, role, PROTOCOL_VERSION).await {
                    speak(session, role, &mut random, ledger).await;
                }
            };
            let _ = tokio::time::timeout(limit, session).await;
        });
    }
}

/// The dispatcher may end the session at any moment.
async fn speak(session: Session, role: Role, random: &mut Random, ledger: &Ledger) {
    let by_executor = role == Role::Executor;
    let (mut reader, mut writer) = (session.reader, session.writer);
    let reads = random.below(3) > 0;
    for message in 0..1 + random.below(SESSION_MESSAGES_MAX) {
        let tag = (by_executor && message == 0 && random.below(8) > 0).then_some(0);
        let body = ledger.corpus.lock().unwrap().draw(by_executor, tag, random);
        let Some(mut body) = body else { return };
        if random.below(2) == 0
            && let Some(mut value) = Value::read(&body)
        {
            value.mangle(random);
            body.clear();
            value.write(&mut body);
            ledger.mangled.fetch_add(1, Ordering::Relaxed);
        }
        let copies = match random.below(100) {
            0 => COPIES_MAX.min(COPIES_BYTES_MAX / (body.len() as u64 + 4)),
            _ => 1,
        };
        for _ in 0..copies {
            ledger.frames.fetch_add(1, Ordering::Relaxed);
            if writer.queue_with(|out| out.extend_from_slice(&body)).is_err() {
                return;
            }
            if writer.queued_bytes() > 1 << 20 && writer.flush().await.is_err() {
                return;
            }
        }
        if writer.flush().await.is_err() {
            return;
        }
        if reads && random.below(2) == 0 {
            let next = tokio::time::timeout(Duration::from_millis(20), reader.read_batch());
            if let Ok(Ok(None) | Err(_)) = next.await {
                return;
            }
        }
    }
    if random.below(2) == 0 {
        let _ = writer.close().await;
    }
}
