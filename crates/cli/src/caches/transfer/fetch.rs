//! Fetching one object from one of its holders.

use super::{advise, peer};
use crate::exit::{Exit, say};
use falkon_core::data::object::{CONTENT_PREFIX, Object};
use falkon_core::dispatch::Access;
use falkon_data::object::Landing;
use falkon_data::peer::{PeerError, Piece, Visitor};
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::sync::Arc;
use std::time::Duration;

/// How often all holders are asked while some are merely busy.
const ROUNDS_MAX: u32 = 50;
/// Pause after a round in which one was.
const BUSY_MS: u64 = 100;

/// Fetches an object into a file and checks it: its size, and its hash if that
/// is its version. After a holder that is lost in the middle the next transfer
/// begins at zero: the received bytes were not checked yet.
pub(super) async fn fetch(
    visitor: &Visitor,
    access: &[Access],
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
        for access in access {
            let reason = match access.serves.address.is_empty() {
                true => "it is not connected, or cannot be reached".to_owned(),
                false => {
                    let landing = Landing::new(file.clone(), 0, |_| {});
                    match visitor.fetcher().fetch(&peer(access), &piece, &landing).await {
                        Ok(bytes) => return check(object, file, bytes, name),
                        Err(PeerError::DiskFull(error) | PeerError::Local(error)) => {
                            return Err(Exit::failure(format!("cannot write {name}: {error}")));
                        }
                        Err(error) => {
                            any_busy |= matches!(error, PeerError::Busy);
                            is_far |= matches!(error, PeerError::Unreachable { .. });
                            error.to_string()
                        }
                    }
                }
            };
            reasons.push(format!("executor {}: {reason}", access.name));
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
