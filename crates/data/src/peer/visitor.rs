//! A client's visits to executors.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use falkon_core::data::object::{Object, ObjectId};
use falkon_wire::message::Ticket;
use tokio::io::AsyncWriteExt;

use super::connection::Connection;
use super::fetch::{Fetcher, Peer};
use super::receive::Reader;
use super::silence::in_time;
use super::visit::{WORD_BYTES, Word, encode_put};
use super::{BUFFER_BYTES, PeerError};
use falkon_net::secure::{Claims, Level, Secret, VisitPurpose};

/// Why an executor did not do what a visitor wanted.
#[derive(Debug, thiserror::Error)]
pub enum VisitError {
    /// The executor was not reached, or the connection was lost.
    #[error(transparent)]
    Peer(PeerError),
    /// The executor refused; why.
    #[error("{0}")]
    Refused(String),
    /// Tasks or peers use the object at the moment.
    #[error("it is in use there")]
    InUse,
    /// The executor does not have the object.
    #[error("it is not there (any more)")]
    Gone,
    /// The ticket has ended.
    #[error("the dispatcher's ticket has expired; try again")]
    Expired,
    /// The file to put cannot be read.
    #[error("cannot read it: {0}")]
    Local(#[source] io::Error),
}

/// Visits executors with one ticket.
#[derive(Debug)]
pub struct Visitor {
    fetcher: Fetcher,
}

impl Visitor {
    /// With a ticket for `purpose` and `object`, to executors of one level.
    #[must_use]
    pub fn new(level: Level, purpose: VisitPurpose, object: ObjectId, ticket: &Ticket) -> Visitor {
        let claims = Claims { purpose, object, expires: ticket.expires };
        let secret = Secret::from_bytes(ticket.secret.0);
        Visitor { fetcher: Fetcher::visiting(level, secret, ticket.number, claims) }
    }

    /// Fetches the object of the ticket.
    #[must_use]
    pub fn fetcher(&self) -> &Fetcher {
        &self.fetcher
    }

    /// Puts an object into an executor's cache.
    ///
    /// # Errors
    /// [`VisitError`].
    pub async fn put(
        &self,
        peer: &Peer,
        object: &Object,
        file: &File,
        size: u64,
    ) -> Result<(), VisitError> {
        let said = encode_put(object, size)
            .ok_or_else(|| VisitError::Refused("its name is too long".to_owned()))?;
        let mut connection = self.fetcher.connect(peer).await.map_err(VisitError::Peer)?;
        let lost = |error: io::Error| VisitError::Peer(lost(peer, &error));
        connection.writer.say(&said).await.map_err(lost)?;
        match hear(&mut connection, peer).await? {
            Word::GoOn => {}
            word => return end(word, &Word::Held),
        }
        let sent = send(&mut connection, file, size).await;
        // An executor that gave up in the middle may have sent the reason.
        match (sent, hear(&mut connection, peer).await) {
            (_, Ok(word)) => end(word, &Word::Held),
            (Err(SendError::Read(error)), _) => Err(VisitError::Local(error)),
            (Err(SendError::Write(error)), _) => Err(lost(error)),
            (Ok(()), Err(error)) => Err(error),
        }
    }

    /// Has an executor drop the object.
    ///
    /// # Errors
    /// [`VisitError`].
    pub async fn drop_object(&self, peer: &Peer) -> Result<(), VisitError> {
        let mut connection = self.fetcher.connect(peer).await.map_err(VisitError::Peer)?;
        end(hear(&mut connection, peer).await?, &Word::Dropped)
    }
}

fn end(word: Word, good: &Word) -> Result<(), VisitError> {
    match word {
        word if word == *good => Ok(()),
        Word::Gone => Err(VisitError::Gone),
        Word::InUse => Err(VisitError::InUse),
        Word::Refused(reason) => Err(VisitError::Refused(reason)),
        Word::Expired => Err(VisitError::Expired),
        Word::GoOn | Word::Held | Word::Dropped | Word::Wait | Word::Written(_) => {
            Err(VisitError::Refused("its answer is for another request".to_owned()))
        }
    }
}

pub(super) enum SendError {
    Read(io::Error),
    Write(io::Error),
}

/// Sends a body, with its code.
pub(super) async fn send(
    connection: &mut Connection,
    file: &File,
    size: u64,
) -> Result<(), SendError> {
    let writer = &mut connection.writer;
    let mut hasher = writer.begin_code();
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut at = 0;
    while at < size {
        let count = (size - at).min(buffer.len() as u64) as usize;
        file.read_exact_at(&mut buffer[..count], at).map_err(SendError::Read)?;
        if let Some(hasher) = &mut hasher {
            hasher.update(&buffer[..count]);
        }
        let written = in_time(writer.stream().write_all(&buffer[..count])).await;
        written.map_err(SendError::Write)?;
        at += count as u64;
    }
    in_time(writer.end_code(hasher)).await.map_err(SendError::Write)
}

pub(super) async fn hear(connection: &mut Connection, peer: &Peer) -> Result<Word, VisitError> {
    let reader: &mut Reader = &mut connection.reader;
    // The executor may need a while to hash the object.
    let heard = async {
        let fixed: [u8; WORD_BYTES] = reader.take().await?;
        let length = u16::from_le_bytes([fixed[1], fixed[2]]);
        let text = reader.take_vec(usize::from(length)).await?;
        let is_genuine = reader.is_genuine(&[&fixed[..], &text].concat()).await?;
        Ok(Word::decode(fixed[0], &text).filter(|_| is_genuine))
    };
    match heard.await {
        Ok(Some(word)) => Ok(word),
        Ok(None) => Err(VisitError::Peer(PeerError::Wrong {
            peer: peer.address.clone(),
            reason: "it was changed in transit, or is no answer".to_owned(),
        })),
        Err(error) => Err(VisitError::Peer(lost(peer, &error))),
    }
}

pub(super) fn lost(peer: &Peer, error: &io::Error) -> PeerError {
    let reason = match error.kind() {
        io::ErrorKind::UnexpectedEof => "it closed the connection".to_owned(),
        _ => error.to_string(),
    };
    PeerError::Lost { peer: peer.address.clone(), arrived: 0, expected: None, reason }
}
