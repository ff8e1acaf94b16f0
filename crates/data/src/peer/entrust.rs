//! Outputs that an executor hands to another one, which collects for it.
//!
//! On a connection of its own. All numbers are little-endian:
//!
//! | | content | bytes |
//! |---|---|---|
//! | request | all ones, microseconds that the oldest output has waited, bytes of the body | 16 + 8 + 8 |
//! | archive | length of its path, path | 2 + … |
//! | words | [`Word::Wait`] any number of times, then to go on, or a refusal | 1 + 2 + … |
//! | body | a ZIP file with the outputs as members | |
//! | words | likewise, then the path of the file that has them, or a refusal | 1 + 2 + … |
//!
//! Whoever closes the connection before the last word takes the outputs back.

use super::fetch::{Fetcher, Peer};
use super::receive::Reader;
use super::requests::{FromPeers, Shared};
use super::sender::Sender;
use super::silence::in_time;
use super::visit::{Word, receive_body};
use super::visitor::{SendError, VisitError, hear, lost, send};
use super::wire::{ENTRUSTED, Request};
use super::{PeerError, SILENCE_MS_MAX, WAIT_MS};
use falkon_core::execute::OfferId;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// Why outputs were not collected by the executor that they were handed to.
#[derive(Debug, thiserror::Error)]
pub enum EntrustError {
    /// It was not reached, or the connection was lost.
    #[error(transparent)]
    Peer(PeerError),
    /// It refused; why.
    #[error("{0}")]
    Refused(String),
    /// It gave an answer that is none.
    #[error("its answer is for another request")]
    Confused,
    /// What is handed over cannot be read.
    #[error("cannot read what is handed over: {0}")]
    Local(#[source] io::Error),
}

impl From<VisitError> for EntrustError {
    fn from(error: VisitError) -> EntrustError {
        match error {
            VisitError::Peer(error) => EntrustError::Peer(error),
            VisitError::Refused(reason) => EntrustError::Refused(reason),
            VisitError::Local(error) => EntrustError::Local(error),
            VisitError::InUse | VisitError::Gone | VisitError::Expired => EntrustError::Confused,
        }
    }
}

impl Fetcher {
    /// Hands a ZIP file of outputs to an executor, which is to write them into an
    /// archive. Returns the path of the file that has them. To drop the future takes
    /// them back.
    ///
    /// # Errors
    /// [`EntrustError`].
    pub async fn entrust(
        &self,
        peer: &Peer,
        archive: &str,
        waited_micros: u64,
        file: &File,
        size: u64,
    ) -> Result<Arc<str>, EntrustError> {
        let length = u16::try_from(archive.len())
            .map_err(|_| EntrustError::Refused("the archive's path is too long".to_owned()))?;
        let path = [&length.to_le_bytes()[..], archive.as_bytes()].concat();
        let mut connection = self.connect(peer).await.map_err(EntrustError::Peer)?;
        let broken = |error: io::Error| EntrustError::Peer(lost(peer, &error));
        let mut request = Vec::new();
        let asked = Request { object: ENTRUSTED, offset: waited_micros, length: Some(size) };
        connection.writer.encode(&asked, &mut request);
        connection.writer.write(&request).await.map_err(broken)?;
        connection.writer.say(&path).await.map_err(broken)?;
        let quiet = || broken(io::ErrorKind::TimedOut.into());
        let patience = Duration::from_millis(SILENCE_MS_MAX);
        loop {
            match timeout(patience, hear(&mut connection, peer)).await.map_err(|_| quiet())?? {
                Word::Wait => {}
                Word::GoOn => break,
                Word::Refused(reason) => return Err(EntrustError::Refused(reason)),
                _ => return Err(EntrustError::Confused),
            }
        }
        let sent = send(&mut connection, file, size).await;
        loop {
            // An executor that gave up in the middle may have sent the reason.
            let heard = timeout(patience, hear(&mut connection, peer)).await;
            match (heard.map_err(|_| quiet()), &sent) {
                (Ok(Ok(Word::Wait)), _) => {}
                (Ok(Ok(Word::Written(path))), Ok(())) => return Ok(path.into()),
                (Ok(Ok(Word::Refused(reason))), _) => return Err(EntrustError::Refused(reason)),
                (Ok(Ok(_)), _) => return Err(EntrustError::Confused),
                (Err(error), Ok(())) => return Err(error),
                (Ok(Err(error)), Ok(())) => return Err(error.into()),
                (_, Err(SendError::Read(error))) => {
                    return Err(EntrustError::Local(io::Error::new(
                        error.kind(),
                        error.to_string(),
                    )));
                }
                (_, Err(SendError::Write(error))) => {
                    return Err(EntrustError::Peer(lost(peer, error)));
                }
            }
        }
    }
}

/// What another executor hands over comes here, and waits until it is written. An error
/// is that of the connection.
pub(super) async fn receive(
    reader: &mut Reader,
    writer: &mut Sender,
    request: &Request,
    shared: &Shared,
) -> io::Result<()> {
    let length: [u8; 2] = in_time(reader.take()).await?;
    let path = in_time(reader.take_vec(usize::from(u16::from_le_bytes(length)))).await?;
    let is_genuine = in_time(reader.is_genuine(&[&length[..], &path].concat())).await?;
    let (Ok(archive), true, Some(bytes)) = (String::from_utf8(path), is_genuine, request.length)
    else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let offer = OfferId(shared.next.fetch_add(1, Ordering::Relaxed));
    let (place, mut placed) = oneshot::channel();
    let (end, mut ended) = oneshot::channel();
    let waited_micros = request.offset;
    let asked = FromPeers::Entrust { offer, archive, bytes, waited_micros, place, end };
    if shared.asks.send(asked).await.is_err() {
        return Ok(());
    }
    let path = match wait(reader, writer, &mut placed).await {
        Ok(Some(path)) => path,
        // It is refused.
        Ok(None) => return say_end(writer, ended.await).await,
        Err(error) => return withdraw(offer, shared, error).await,
    };
    let received = match writer.say(&Word::GoOn.encode()).await {
        Ok(()) => take_in(reader, &path, bytes).await,
        Err(error) => Err(error.to_string()),
    };
    let is_received = received.is_ok();
    if !is_received {
        // A part of it is of no use, and the disk may be full of it.
        let _ = std::fs::remove_file(&path);
    }
    let _ = shared.asks.send(FromPeers::Received { offer, result: received }).await;
    match wait(reader, writer, &mut ended).await {
        Ok(end) => say_end(writer, end.ok_or(())).await,
        Err(error) if is_received => withdraw(offer, shared, error).await,
        Err(error) => Err(error),
    }
}

async fn take_in(reader: &mut Reader, path: &Path, bytes: u64) -> Result<(), String> {
    let make = || {
        path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
        File::create(path)
    };
    let file = make().map_err(|error| format!("cannot create {}: {error}", path.display()))?;
    receive_body(reader, &file, bytes).await.map_err(|error| error.to_string())
}

/// Waits for an answer of the core, and says every now and then that it does; `None` if
/// there will be none. An error is that of the connection, which may end meanwhile.
async fn wait<T>(
    reader: &mut Reader,
    writer: &mut Sender,
    answer: &mut oneshot::Receiver<T>,
) -> io::Result<Option<T>> {
    let mut tick = tokio::time::interval(Duration::from_millis(WAIT_MS));
    tick.tick().await;
    loop {
        tokio::select! {
            answer = &mut *answer => return Ok(answer.ok()),
            _ = tick.tick() => writer.say(&Word::Wait.encode()).await?,
            // Nothing is to be said until there is an answer.
            heard = reader.take::<1>() => {
                heard?;
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
    }
}

async fn say_end<E>(
    writer: &mut Sender,
    end: Result<Result<Arc<str>, String>, E>,
) -> io::Result<()> {
    let word = match end {
        Ok(Ok(path)) => Word::Written(path.to_string()),
        Ok(Err(reason)) => Word::Refused(reason),
        Err(_) => Word::Refused("the executor ends".to_owned()),
    };
    writer.say(&word.encode()).await
}

async fn withdraw(offer: OfferId, shared: &Shared, error: io::Error) -> io::Result<()> {
    let _ = shared.asks.send(FromPeers::Withdrawn(offer)).await;
    Err(error)
}
