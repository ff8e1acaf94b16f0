//! What a running task has written: visitors ask for it again and again.
//!
//! After the claims of a [visit](super::visit), all numbers little-endian:
//!
//! | | content | bytes |
//! |---|---|---|
//! | question | instance, task, stream (0 or 1), first byte, patience in milliseconds | 8 + 8 + 1 + 8 + 4 |
//! | answer | state (0 waiting, 1 running, 2 ended, 3 gone), 1 if bytes are lost, bytes written so far, length of what follows | 1 + 1 + 8 + 4 |
//! | bytes | from the first byte on | |
//!
//! Where there is nothing new, the answer comes when there is, or when the patience is at its
//! end. At level `authenticate`, a code follows each question, and each answer with its bytes.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use falkon_core::data::object::ObjectId;
use falkon_core::result::Stream;
use falkon_core::tail::{TAIL_PART_BYTES_MAX, TAIL_PATIENCE_MS_MAX, Tail, TailQuestion, TailState};
use falkon_core::task::{InstanceId, TaskId, TaskKey};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use super::PeerError;
use super::connection::Connection;
use super::fetch::Peer;
use super::receive::Reader;
use super::requests::{FromPeers, Shared, Written};
use super::sender::Sender;
use super::silence::in_time;
use super::visitor::{VisitError, Visitor, lost};
use crate::overflow::open_plain;
use falkon_net::ids::tail_id;

const QUESTION_BYTES: usize = 29;
const ANSWER_BYTES: usize = 14;

/// How often an executor looks whether there is more, in milliseconds.
const LOOK_MS: u64 = 50;

fn encode_tail(tail: &Tail) -> Vec<u8> {
    let mut out = vec![tail.state as u8, u8::from(tail.is_cut)];
    out.extend_from_slice(&tail.total_bytes.to_le_bytes());
    // A part is far shorter than 4 GiB.
    out.extend_from_slice(&(tail.bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(&tail.bytes);
    out
}

fn encode(question: &TailQuestion) -> [u8; QUESTION_BYTES] {
    let mut bytes = [0; QUESTION_BYTES];
    bytes[..8].copy_from_slice(&question.task.instance.0.to_le_bytes());
    bytes[8..16].copy_from_slice(&question.task.task.0.to_le_bytes());
    bytes[16] = question.stream as u8;
    bytes[17..25].copy_from_slice(&question.from.to_le_bytes());
    bytes[25..].copy_from_slice(&question.patience_ms.to_le_bytes());
    bytes
}

/// `None` for what is no question.
fn decode(bytes: &[u8; QUESTION_BYTES]) -> Option<TailQuestion> {
    let number = |at: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[at..at + 8]);
        u64::from_le_bytes(word)
    };
    let stream = *Stream::BOTH.get(usize::from(bytes[16]))?;
    let mut patience = [0; 4];
    patience.copy_from_slice(&bytes[25..]);
    Some(TailQuestion {
        task: TaskKey { instance: InstanceId(number(0)), task: TaskId(number(8)) },
        stream,
        from: number(17),
        patience_ms: u32::from_le_bytes(patience),
    })
}

/// Answers a visitor's questions about one stream of one task.
pub(super) async fn serve(
    reader: &mut Reader,
    writer: &mut Sender,
    id: ObjectId,
    shared: &Shared,
) -> io::Result<()> {
    while let Some(bytes) = reader.request().await? {
        let Some(question) = decode(&bytes) else { break };
        let TailQuestion { task: TaskKey { instance, task }, stream, .. } = question;
        if tail_id(instance, task, stream) != id {
            break;
        }
        let tail = answer(&question, shared).await;
        writer.say(&encode_tail(&tail)).await?;
    }
    Ok(())
}

/// What there is from the first byte on that is asked for, now or when there is something.
async fn answer(question: &TailQuestion, shared: &Shared) -> Tail {
    let patience = u64::from(question.patience_ms.min(TAIL_PATIENCE_MS_MAX));
    let until = Instant::now() + Duration::from_millis(patience);
    loop {
        let tail = part(question, until, shared).await;
        let may_come = matches!(tail.state, TailState::Waiting | TailState::Running);
        let has_more = tail.total_bytes > question.from;
        if !may_come || has_more || Instant::now() >= until {
            return tail;
        }
        sleep(Duration::from_millis(LOOK_MS)).await;
    }
}

/// What there is now.
async fn part(question: &TailQuestion, until: Instant, shared: &Shared) -> Tail {
    let &TailQuestion { task, stream, from, .. } = question;
    let (answer, written) = oneshot::channel();
    let asked = FromPeers::Tail { task, stream, from, answer };
    if shared.asks.send(asked).await.is_err() {
        return Tail::without_bytes(TailState::Gone);
    }
    // A task that is about to start is answered for when it has.
    let within = until.max(Instant::now() + Duration::from_millis(LOOK_MS));
    let written = match tokio::time::timeout_at(within, written).await {
        Ok(written) => written.unwrap_or(Written::Gone),
        Err(_) => Written::Waiting,
    };
    let (total_bytes, mut bytes, file, is_cut, has_ended) = match written {
        Written::Waiting => return Tail::without_bytes(TailState::Waiting),
        Written::Gone => return Tail::without_bytes(TailState::Gone),
        Written::InFile(path) => {
            // It is made when something is written.
            let opened = open_plain(&path).and_then(|file| Ok(file.metadata()?.len()));
            (opened.unwrap_or(0), Vec::new(), Some(path), false, false)
        }
        Written::Here { total_bytes, bytes, file, is_cut, has_ended } => {
            (total_bytes, bytes, file, is_cut, has_ended)
        }
    };
    bytes.truncate(TAIL_PART_BYTES_MAX);
    let mut is_lost = false;
    if bytes.is_empty() && total_bytes > from {
        let read = file.and_then(|file| open_plain(&file).ok()).and_then(|file| read(&file, from));
        bytes = read.unwrap_or_default();
        is_lost = bytes.is_empty() && (is_cut || has_ended);
    }
    let state = if has_ended { TailState::Ended } else { TailState::Running };
    Tail { state, is_cut: is_lost, total_bytes, bytes }
}

/// What a file has from a place on, at most one part.
fn read(file: &File, from: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; TAIL_PART_BYTES_MAX];
    let count = file.read_at(&mut bytes, from).ok()?;
    bytes.truncate(count);
    Some(bytes)
}

/// A visit to an executor that runs a task.
pub struct TailVisit {
    connection: Connection,
    peer: Peer,
    task: TaskKey,
    stream: Stream,
}

impl Visitor {
    /// Goes to an executor for what a task writes; the ticket is for that.
    ///
    /// # Errors
    /// [`VisitError`].
    pub async fn tail(
        &self,
        peer: &Peer,
        task: TaskKey,
        stream: Stream,
    ) -> Result<TailVisit, VisitError> {
        let connection = self.fetcher().connect(peer).await.map_err(VisitError::Peer)?;
        Ok(TailVisit { connection, peer: peer.clone(), task, stream })
    }
}

impl TailVisit {
    /// What the task has written from a byte on. Where there is nothing new, waits for it for at
    /// most `patience`.
    ///
    /// # Errors
    /// [`VisitError`].
    pub async fn ask(&mut self, from: u64, patience: Duration) -> Result<Tail, VisitError> {
        let patience_ms = u32::try_from(patience.as_millis()).unwrap_or(u32::MAX);
        let question = TailQuestion { task: self.task, stream: self.stream, from, patience_ms };
        let peer = &self.peer;
        let broken = |error: io::Error| VisitError::Peer(lost(peer, &error));
        self.connection.writer.say(&encode(&question)).await.map_err(broken)?;
        let reader = &mut self.connection.reader;
        let heard = async {
            let head: [u8; ANSWER_BYTES] = reader.take().await?;
            let [state, is_cut, total_bytes @ .., _, _, _, _] = head;
            let length = u32::from_le_bytes([head[10], head[11], head[12], head[13]]);
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            let bytes = reader.take_vec(length).await?;
            let is_genuine = reader.is_genuine(&[&head[..], &bytes].concat()).await?;
            let state = TailState::ALL.get(usize::from(state)).copied().filter(|_| is_genuine);
            let total_bytes = u64::from_le_bytes(total_bytes);
            Ok(state.map(|state| Tail { state, is_cut: is_cut != 0, total_bytes, bytes }))
        };
        match in_time(heard).await {
            Ok(Some(tail)) => Ok(tail),
            Ok(None) => Err(VisitError::Peer(PeerError::Wrong {
                peer: peer.address.clone(),
                reason: "it was changed in transit, or is no answer".to_owned(),
            })),
            Err(error) => Err(broken(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_question_has_one_encoding(mut bytes: [u8; QUESTION_BYTES], stream in 0_u8..3) {
            bytes[16] = stream;
            match decode(&bytes) {
                Some(question) => prop_assert_eq!(encode(&question), bytes),
                None => prop_assert_eq!(stream, 2),
            }
        }
    }
}
