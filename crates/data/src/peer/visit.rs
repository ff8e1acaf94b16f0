//! Visitors: clients that are no executors, and have a ticket of the dispatcher
//! for one thing with one object.
//!
//! After the handshake, in which it is an instance whose number is the
//! ticket's, a visitor says what it claims, and goes on as the purpose has it.
//! All numbers are little-endian.
//!
//! | | content | bytes |
//! |---|---|---|
//! | claims | purpose (0 get, 1 put, 2 drop, 3 output, 4 tail), object, end of the ticket | 1 + 16 + 8 |
//! | get, output | as between executors, of this object alone | |
//! | tail | as [`tail`](super::tail) says | |
//! | put | size, lengths of URL and version, URL, version | 8 + 2 + 2 + … |
//! | word | status, length of a text, text | 1 + 2 + … |
//! | body | the bytes, if the word was to go on; then another word | |
//!
//! To drop an object, the claims suffice as the request; the answer is a word.
//! At level `authenticate`, a code follows each of these as well.
//!
//! Executors [hand outputs over](super::entrust) with the same words.

use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use falkon_core::data::object::{Object, ObjectId};
use falkon_core::data::stage::WriteError;
use falkon_core::dispatch::AccessError;
use falkon_core::execute::VisitEnd;
use tokio::sync::oneshot;

use super::TURN_BYTES;
use super::receive::Reader;
use super::requests::{FromPeers, Shared};
use super::sender::Sender;
use super::silence::in_time;
use crate::cache::{CacheError, Copies};
use falkon_net::ids::object_id;
use falkon_net::secure::{CLAIMS_BYTES, Claims, VisitPurpose};

/// The fixed part of a request to put an object.
pub(super) const PUT_BYTES: usize = 12;

/// The fixed part of a word.
pub(super) const WORD_BYTES: usize = 3;

/// The answers of an executor to a visitor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Word {
    GoOn,
    Held,
    Dropped,
    Gone,
    InUse,
    Refused(String),
    Expired,
    /// It takes a while: another word follows.
    Wait,
    /// What was handed over is in this file.
    Written(String),
}

impl Word {
    pub(super) fn encode(&self) -> Vec<u8> {
        let (status, text) = match self {
            Word::GoOn => (0, ""),
            Word::Held => (1, ""),
            Word::Dropped => (2, ""),
            Word::Gone => (3, ""),
            Word::InUse => (4, ""),
            Word::Refused(text) => (5, text.as_str()),
            Word::Expired => (6, ""),
            Word::Wait => (7, ""),
            Word::Written(path) => (8, path.as_str()),
        };
        let length = u16::try_from(text.len()).unwrap_or(0);
        let mut bytes = vec![status];
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(&text.as_bytes()[..usize::from(length)]);
        bytes
    }

    /// `None` for what is no word.
    pub(super) fn decode(status: u8, text: &[u8]) -> Option<Word> {
        let word = match status {
            0 => Word::GoOn,
            1 => Word::Held,
            2 => Word::Dropped,
            3 => Word::Gone,
            4 => Word::InUse,
            5 => return Some(Word::Refused(String::from_utf8_lossy(text).into_owned())),
            6 => Word::Expired,
            7 => Word::Wait,
            8 => return String::from_utf8(text.to_vec()).ok().map(Word::Written),
            _ => return None,
        };
        text.is_empty().then_some(word)
    }
}

impl From<VisitEnd> for Word {
    fn from(end: VisitEnd) -> Word {
        match end {
            VisitEnd::Held => Word::Held,
            VisitEnd::Dropped => Word::Dropped,
            VisitEnd::Gone => Word::Gone,
            VisitEnd::InUse => Word::InUse,
            VisitEnd::Refused(reason) => Word::Refused(reason),
        }
    }
}

/// The request to put an object.
pub(super) fn encode_put(object: &Object, size: u64) -> Option<Vec<u8>> {
    let lengths = [object.url.len(), object.version.len()].map(u16::try_from);
    let [Ok(url), Ok(version)] = lengths else { return None };
    let mut bytes = size.to_le_bytes().to_vec();
    bytes.extend_from_slice(&url.to_le_bytes());
    bytes.extend_from_slice(&version.to_le_bytes());
    bytes.extend_from_slice(object.url.as_bytes());
    bytes.extend_from_slice(object.version.as_bytes());
    Some(bytes)
}

/// The objects that may be fetched over a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Allowed {
    /// All that is in the cache, by another executor.
    Cache,
    /// This object of the cache.
    Object(ObjectId),
    /// The output of a task under this id.
    Output(ObjectId),
    /// What a task writes, under this id.
    Tail(ObjectId),
}

/// Lets a visitor in, whose ticket has this number. Says what it may fetch;
/// `None` if that was all.
pub(super) async fn receive(
    reader: &mut Reader,
    writer: &mut Sender,
    number: u64,
    shared: &Shared,
) -> Option<Allowed> {
    let bytes: [u8; CLAIMS_BYTES] = in_time(reader.take()).await.ok()?;
    if !in_time(reader.is_genuine(&bytes)).await.ok()? {
        return None;
    }
    let claims = Claims::decode(&bytes)?;
    if !shared.acceptor.allows(number, &claims) {
        return None;
    }
    let (answer, is_valid) = oneshot::channel();
    let asked = FromPeers::Admit { expires: claims.expires, answer };
    shared.asks.send(asked).await.ok()?;
    let is_valid = is_valid.await.ok()?;
    let word = match claims.purpose {
        // The answer to its request is the word.
        VisitPurpose::Get => return is_valid.then_some(Allowed::Object(claims.object)),
        VisitPurpose::Output => return is_valid.then_some(Allowed::Output(claims.object)),
        VisitPurpose::Tail => return is_valid.then_some(Allowed::Tail(claims.object)),
        _ if !is_valid => Word::Expired,
        VisitPurpose::Put => take_in(reader, writer, claims.object, shared).await?,
        VisitPurpose::Drop => {
            let (end, ended) = oneshot::channel();
            shared.asks.send(FromPeers::Drop { object: claims.object, end }).await.ok()?;
            ended.await.ok()?.into()
        }
    };
    // If it has gone away, it does not want to know.
    let _ = writer.say(&word.encode()).await;
    None
}

/// Takes an object in; `None` if the visitor is gone.
async fn take_in(
    reader: &mut Reader,
    writer: &mut Sender,
    id: ObjectId,
    shared: &Shared,
) -> Option<Word> {
    let fixed: [u8; PUT_BYTES] = in_time(reader.take()).await.ok()?;
    let [size, lengths @ ..] = [&fixed[..8], &fixed[8..10], &fixed[10..]];
    let size = u64::from_le_bytes(size.try_into().ok()?);
    let [url, version] = lengths.map(|bytes| usize::from(u16::from_le_bytes([bytes[0], bytes[1]])));
    let texts = in_time(reader.take_vec(url + version)).await.ok()?;
    if !in_time(reader.is_genuine(&[&fixed[..], &texts].concat())).await.ok()? {
        return None;
    }
    let texts = String::from_utf8(texts).ok()?;
    let (url, version) = texts.split_at_checked(url)?;
    if object_id(url, version) != id {
        return Some(Word::Refused("it is not the object that the ticket is for".to_owned()));
    }
    let (url, version) = (url.into(), version.into());
    let object = Arc::new(Object { id, url, version, size: Some(size) });
    if !object.is_placeable() {
        return Some(Word::Refused(AccessError::NotPlaceable.to_string()));
    }
    let (place, placed) = oneshot::channel();
    let (end, mut ended) = oneshot::channel();
    shared.asks.send(FromPeers::Put { object: object.clone(), place, end }).await.ok()?;
    // There is a place for it, or it is here already, or cannot be.
    let Ok((tier, partial)) = placed.await else {
        return (&mut ended).await.ok().map(Word::from);
    };
    let cache = shared.cache.clone();
    let written = async {
        writer.say(&Word::GoOn.encode()).await.map_err(|error| lost(&error))?;
        let file = cache.partial(tier, partial).map_err(write_error)?;
        receive_body(reader, &file, size).await?;
        drop(file);
        let (cache, object) = (cache.clone(), object.clone());
        let sealed = tokio::task::spawn_blocking(move || {
            cache.seal(tier, partial, &object, size, Copies::OnlyHere)
        });
        match sealed.await {
            Ok(sealed) => sealed.map_err(write_error),
            Err(error) => Err(WriteError::Failed(error.to_string())),
        }
    };
    let result = written.await;
    if result.is_err() {
        cache.discard(tier, partial);
    }
    shared.asks.send(FromPeers::Written { partial, result }).await.ok()?;
    ended.await.ok().map(Word::from)
}

pub(super) async fn receive_body(
    reader: &mut Reader,
    file: &std::fs::File,
    size: u64,
) -> Result<(), WriteError> {
    let mut hasher = reader.begin_code();
    let mut at = 0;
    while at < size {
        let bytes = in_time(reader.chunk(size - at)).await.map_err(|error| lost(&error))?;
        if let Some(hasher) = &mut hasher {
            hasher.update(bytes);
        }
        file.write_all_at(bytes, at).map_err(|error| match crate::store::is_full(&error) {
            true => WriteError::Full,
            false => WriteError::Failed(error.to_string()),
        })?;
        let before = at;
        at += bytes.len() as u64;
        if at / TURN_BYTES > before / TURN_BYTES {
            tokio::task::yield_now().await;
        }
    }
    match in_time(reader.ends_genuinely(hasher)).await {
        Ok(true) => Ok(()),
        Ok(false) => Err(WriteError::Wrong("it was changed in transit".to_owned())),
        Err(error) => Err(lost(&error)),
    }
}

fn lost(error: &io::Error) -> WriteError {
    WriteError::Failed(format!("the connection broke: {error}"))
}

fn write_error(error: CacheError) -> WriteError {
    match error {
        CacheError::Full { .. } => WriteError::Full,
        CacheError::Wrong { reason, .. } => WriteError::Wrong(reason),
        error => WriteError::Failed(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_read_back() {
        let refused = Word::Refused("no room".to_owned());
        let words = [
            Word::GoOn,
            Word::Held,
            Word::Dropped,
            Word::Gone,
            Word::InUse,
            refused,
            Word::Expired,
            Word::Wait,
            Word::Written("/scores.part2.zip".to_owned()),
        ];
        for word in words {
            let bytes = word.encode();
            let length = usize::from(u16::from_le_bytes([bytes[1], bytes[2]]));
            assert_eq!(bytes.len(), WORD_BYTES + length);
            assert_eq!(Word::decode(bytes[0], &bytes[WORD_BYTES..]), Some(word));
        }
        assert_eq!(Word::decode(9, b""), None);
        assert_eq!(Word::decode(1, b"x"), None);
    }
}
