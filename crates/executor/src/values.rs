//! Values that are too long to be sent: a worker leaves each in a file, which becomes
//! an object of this executor's cache before its call has ended.

use super::cache_repair::CacheRepair;
use super::objects::message::write_error;
use falkon_core::data::object::{INSTANCES_PREFIX, Object};
use falkon_core::data::stage::WriteError;
use falkon_core::execute::{Event, TaskKey, VisitEnd};
use falkon_core::result::{Detail, Outcome};
use falkon_data::cache::Copies;
use falkon_data::peer::FromPeers;
use falkon_net::ids::object_id;
use falkon_wire::codec::Wire;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};

/// The first byte of a value that is the name of an object in a cache.
const IN_CACHE: u8 = b'c';

/// A call that has returned a long value.
#[derive(Debug)]
pub(super) struct Left {
    /// How it ended.
    pub(super) event: Event,
    /// The file that has its value.
    pub(super) value: PathBuf,
    /// The files that it must have written besides.
    pub(super) outputs: Vec<PathBuf>,
}

/// Calls whose values are on their way into the cache.
#[derive(Debug, Default)]
pub(super) struct LongValues {
    waiting: BTreeMap<TaskKey, (Event, Vec<PathBuf>)>,
    /// How many there have been.
    count: u64,
}

impl LongValues {
    /// Keeps a call until its value is an object. Returns the number of the value.
    pub(super) fn add(&mut self, key: TaskKey, left: Left) -> u64 {
        self.waiting.insert(key, (left.event, left.outputs));
        self.count += 1;
        self.count
    }

    /// Returns how a call has ended whose value is an object now, or is not, and the
    /// files that it must have written.
    pub(super) fn end(
        &mut self,
        key: TaskKey,
        result: Result<Object, String>,
    ) -> Option<(Event, Vec<PathBuf>)> {
        let (mut event, outputs) = self.waiting.remove(&key)?;
        if let Event::Ended { outcome, detail, .. } = &mut event {
            let mut said = detail.take().map_or_else(Detail::default, Arc::unwrap_or_clone);
            match result {
                Ok(object) => {
                    said.value = [&[IN_CACHE][..], &object.to_bytes()].concat();
                }
                Err(error) => {
                    *outcome = Outcome::Exit(1);
                    said.error = error;
                }
            }
            *detail = Some(Arc::new(said));
        }
        Some((event, outputs))
    }
}

/// Where the value of a task is in caches. What has an instance in its key goes with
/// that.
pub(super) fn url_of(key: TaskKey, incarnation: u64, number: u64) -> String {
    let (instance, task) = (key.instance.0, key.task.0);
    format!("{INSTANCES_PREFIX}{instance}/{task}-{incarnation:016x}-{number}")
}

/// Puts a file into the cache, as a visitor would.
pub(super) async fn take_in(
    repair: CacheRepair,
    asks: mpsc::Sender<FromPeers>,
    file: PathBuf,
    url: String,
) -> Result<Object, String> {
    let result = put(repair, asks, file.clone(), url).await;
    // The file is the object now, or useless.
    let _ = tokio::fs::remove_file(&file).await;
    result
}

async fn put(
    repair: CacheRepair,
    asks: mpsc::Sender<FromPeers>,
    file: PathBuf,
    url: String,
) -> Result<Object, String> {
    let ends = |_| "the executor ends".to_owned();
    let path = file.clone();
    let found = tokio::task::spawn_blocking(move || object_of(&path, &url)).await;
    let found = found.map_err(|error| error.to_string())?;
    let object = Arc::new(found.map_err(|error| {
        format!("what it returned was left in {} and cannot be read: {error}", file.display())
    })?);
    let bytes = object.size.unwrap_or(0);
    let (place, placed) = oneshot::channel();
    let (end, ended) = oneshot::channel();
    let asked = FromPeers::Put { object: object.clone(), place, end };
    asks.send(asked).await.map_err(|_| "the executor ends".to_owned())?;
    if let Ok((tier, partial)) = placed.await {
        let object = object.clone();
        let adopted = tokio::task::spawn_blocking(move || {
            repair.with_cache(|cache| cache.adopt(tier, partial, &object, &file, Copies::OnlyHere))
        });
        let result = match adopted.await {
            Ok(result) => result.map_err(write_error),
            Err(error) => Err(WriteError::Failed(error.to_string())),
        };
        let written = FromPeers::Written { partial, result };
        asks.send(written).await.map_err(|_| "the executor ends".to_owned())?;
    }
    match ended.await.map_err(ends)? {
        VisitEnd::Refused(reason) => Err(format!(
            "it returned {bytes} bytes, which are more than can be sent and go into the executor's \
             cache: {reason}"
        )),
        _ => Ok(Arc::unwrap_or_clone(object)),
    }
}

fn object_of(path: &Path, url: &str) -> std::io::Result<Object> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(std::fs::File::open(path)?)?;
    let version = format!("blake3:{}", hasher.finalize().to_hex());
    let id = object_id(url, &version);
    Ok(Object { id, url: url.into(), version: version.into(), size: Some(hasher.count()) })
}
