//! Fetching one object from one of its holders.

use super::{advise, peer};
use crate::caches::through;
use crate::exit::{Exit, say};
use falkon_core::data::object::{CONTENT_PREFIX, Object};
use falkon_core::dispatch::{HolderStatus, Purpose};
use falkon_core::task::{ExecutorId, InstanceId};
use falkon_data::object::Landing;
use falkon_data::peer::{Fetcher, Peer, PeerError, Piece, Visitor};
use falkon_net::client::{Client, ClientError};
use falkon_net::secure::Level;
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::sync::Arc;
use std::time::Duration;

/// How often all holders are asked while some are merely busy.
const ROUNDS_MAX: u32 = 50;
/// Pause after a round in which one was.
const BUSY_MS: u64 = 100;

/// An executor, or all relays, to fetch an object from.
pub(in crate::caches) struct Source {
    name: String,
    fetcher: Fetcher,
    peer: Peer,
    is_below: bool,
}

impl Source {
    /// Whether it can be asked now.
    pub(in crate::caches) fn is_reached(&self) -> bool {
        self.is_below || !self.peer.address.is_empty()
    }

    /// Fetches a piece of an object.
    pub(in crate::caches) async fn fetch(
        &self,
        piece: &Piece,
        landing: &Arc<Landing>,
    ) -> Result<u64, PeerError> {
        self.fetcher.fetch(&self.peer, piece, landing).await
    }

    /// Why it did not give the object.
    pub(in crate::caches) fn why(&self, error: &PeerError) -> String {
        match self.is_below {
            true => self.said(&through::why(error)),
            false => self.said(&error.to_string()),
        }
    }

    /// Whether it is to be asked again in a moment. Relays were asked often enough.
    pub(in crate::caches) fn is_busy(&self, error: &PeerError) -> bool {
        matches!(error, PeerError::Busy) && !self.is_below
    }

    /// Something about it, with its name.
    pub(in crate::caches) fn said(&self, what: &str) -> String {
        format!("{}: {what}", self.name)
    }
}

/// The sources of an object with these holders: executors that are gone to with a ticket, and
/// after them relays.
///
/// # Errors
/// The connection is lost, or the dispatcher refuses.
pub(in crate::caches) async fn sources(
    client: &Client,
    level: Level,
    instance: Option<InstanceId>,
    object: &Object,
    holders: &[HolderStatus],
) -> Result<Vec<Source>, ClientError> {
    let mut sources = Vec::new();
    let mut access = Vec::new();
    match client.reach(instance, object, Purpose::Get).await {
        Ok((ticket, reached)) => {
            let visitor = Visitor::new(level, Purpose::Get.into(), object.id, &ticket);
            sources.extend(reached.iter().map(|access| Source {
                name: format!("executor {}", access.name),
                fetcher: visitor.fetcher().clone(),
                peer: peer(access),
                is_below: false,
            }));
            access = reached;
        }
        Err(error) if through::is_not_held(&error) && !holders.is_empty() => {}
        Err(error) => return Err(error),
    }
    let reached = |id: ExecutorId| access.iter().any(|access| access.executor == id);
    let relays = through::relays(holders, reached);
    if let Some(first) = relays.first() {
        let more = match relays.len() {
            1 => String::new(),
            count => format!(" and {} more", count - 1),
        };
        let (fetcher, peer) = (through::fetcher(client.clone(), instance), Peer::default());
        let name = format!("relay {}{more}", first.name);
        sources.push(Source { name, fetcher, peer, is_below: true });
    }
    Ok(sources)
}

/// Fetches an object into a file and checks it: its size, and its hash if that
/// is its version. After a holder that is lost in the middle the next transfer
/// begins at zero: the received bytes were not checked yet.
pub(super) async fn fetch(
    sources: &[Source],
    object: &Object,
    file: &Arc<File>,
    name: &str,
) -> Result<(), Exit> {
    let piece = Piece { object: object.id, offset: 0, length: None, size: object.size };
    let mut reasons = Vec::new();
    let mut is_far = false;
    for _ in 0..ROUNDS_MAX {
        let mut any_busy = false;
        is_far = false;
        reasons.clear();
        for source in sources {
            if !source.is_reached() {
                reasons.push(source.said("it is not connected, or cannot be reached"));
                continue;
            }
            let landing = Landing::new(file.clone(), 0, |_| {});
            match source.fetch(&piece, &landing).await {
                Ok(bytes) => return check(object, file, bytes, name),
                Err(PeerError::DiskFull(error) | PeerError::Local(error)) => {
                    return Err(Exit::failure(format!("cannot write {name}: {error}")));
                }
                Err(error) => {
                    any_busy |= source.is_busy(&error);
                    is_far |= matches!(error, PeerError::Unreachable { .. });
                    reasons.push(source.why(&error));
                }
            }
        }
        if !any_busy {
            break;
        }
        tokio::time::sleep(Duration::from_millis(BUSY_MS)).await;
    }
    for reason in &reasons {
        say(format_args!("cannot get {name} from {reason}"));
    }
    advise(is_far);
    Err(Exit::failure(format!("no executor that holds {name} could give it")))
}

fn check(object: &Object, file: &File, arrived: u64, name: &str) -> Result<(), Exit> {
    let wrong =
        |reason: String| Exit::failure(format!("an executor sent wrong data for {name}: {reason}"));
    if let Some(size) = object.size
        && size != arrived
    {
        return Err(wrong(format!("it has {arrived} bytes and must have {size}")));
    }
    let Some(hash) = object.version.strip_prefix(CONTENT_PREFIX) else { return Ok(()) };
    let found = hash_of(file).map_err(|error| {
        Exit::failure(format!("cannot read back what was fetched as {name}: {error}"))
    })?;
    if found == hash {
        return Ok(());
    }
    Err(wrong(format!("the hash of its content is {found}, not {hash}")))
}

fn hash_of(mut file: &File) -> std::io::Result<String> {
    file.seek(SeekFrom::Start(0))?;
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(file)?;
    Ok(hasher.finalize().to_hex().to_string())
}
