//! Reads of mounted objects: each block is read from an executor that holds the object, or
//! through relays.

use super::keys::{Node, Tree};
use crate::access::connect;
use crate::caches::transfer::fetch::{Source, sources};
use crate::exit::say;
use falkon_core::data::object::{Object, ObjectId};
use falkon_core::task::InstanceId;
use falkon_data::object::Landing;
use falkon_data::peer::Piece;
use falkon_fuse::{Attributes, Entry, Files, ROOT, Totals, Unreadable};
use falkon_net::client::{Client, ClientError};
use falkon_net::secure::AccessFile;
use rustix::fs::{MemfdFlags, memfd_create};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

/// One block of a file.
const BLOCK_BYTES: u64 = 4 << 20;
/// Blocks of all files that stay in memory.
const BLOCKS_MAX: usize = 16;
/// How long an executor may take for a block, in milliseconds.
const BLOCK_MS_MAX: u64 = 60_000;
/// How often all holders are asked while some are merely busy.
const ROUNDS_MAX: u32 = 50;
/// The pause after a round in which one was, in milliseconds.
const BUSY_MS: u64 = 100;

/// Where objects are asked for.
pub(super) struct Place {
    pub(super) access: AccessFile,
    pub(super) instance: Option<InstanceId>,
    pub(super) runtime: Handle,
    /// The connection to the dispatcher, which all objects share.
    pub(super) client: tokio::sync::Mutex<Option<Client>>,
}

impl Place {
    /// The sources of an object, asked for anew.
    async fn sources(&self, object: &Object) -> Result<Vec<Source>, ClientError> {
        let mut kept = self.client.lock().await;
        let before = kept.take();
        if let Some(client) = before
            && let Ok(sources) = self.ask(&client, object).await
        {
            *kept = Some(client);
            return Ok(sources);
        }
        // It may be lost, or another dispatcher may have taken the place.
        let (client, _deliveries) = connect(&self.access, self.instance).await?;
        let sources = self.ask(&client, object).await?;
        *kept = Some(client);
        Ok(sources)
    }

    async fn ask(&self, client: &Client, object: &Object) -> Result<Vec<Source>, ClientError> {
        let (found, _) = client.find(self.instance, &object.id.to_string()).await?;
        let holders = found.first().map_or(&[][..], |found| &found.holders);
        sources(client, self.access.level, self.instance, object, holders).await
    }
}

/// Why a block cannot be read.
#[derive(Debug, thiserror::Error)]
enum BlockError {
    /// The dispatcher does not say where it is.
    #[error("the dispatcher does not say who holds it: {0}")]
    Unknown(#[source] ClientError),
    /// None of those that hold it gives it.
    #[error("no executor that holds it gives it ({said})")]
    Refused {
        /// The answers of its holders.
        said: String,
    },
    /// There is no room for it here.
    #[error("it cannot be kept in memory: {0}")]
    Local(#[source] io::Error),
    /// The event loop has ended.
    #[error("the file system is being unmounted")]
    Ending,
}

/// A block that one reader fetches while the others wait for it.
type Block = Arc<Mutex<Option<Arc<Vec<u8>>>>>;

#[derive(Default)]
struct Blocks {
    all: BTreeMap<(u64, u64), Block>,
    order: VecDeque<(u64, u64)>,
}

/// The objects that are shown.
pub(super) struct Shelf {
    tree: Tree,
    modified: u64,
    place: Arc<Place>,
    sources: Arc<Mutex<BTreeMap<ObjectId, Arc<Vec<Source>>>>>,
    blocks: Mutex<Blocks>,
    /// Objects that cannot be read and are reported.
    reported: Mutex<BTreeSet<ObjectId>>,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shelf {
    pub(super) fn new(tree: Tree, place: Place) -> Shelf {
        Shelf {
            tree,
            modified: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
            place: Arc::new(place),
            sources: Arc::default(),
            blocks: Mutex::default(),
            reported: Mutex::default(),
        }
    }

    fn attributes_of(&self, node: u64, of: &Node) -> Attributes {
        let (is_directory, permissions) = match of.object {
            Some(_) => (false, 0o444),
            None => (true, 0o555),
        };
        let bytes = of.object.as_ref().and_then(|object| object.size).unwrap_or(0);
        Attributes { node, is_directory, bytes, modified: self.modified, permissions }
    }

    /// A block of an object.
    fn block(&self, node: u64, object: &Object, number: u64) -> Result<Arc<Vec<u8>>, BlockError> {
        let block = {
            let mut blocks = lock(&self.blocks);
            if !blocks.all.contains_key(&(node, number)) {
                blocks.order.push_back((node, number));
                while blocks.order.len() > BLOCKS_MAX
                    && let Some(oldest) = blocks.order.pop_front()
                {
                    blocks.all.remove(&oldest);
                }
            }
            Arc::clone(blocks.all.entry((node, number)).or_default())
        };
        let mut held = lock(&block);
        if let Some(bytes) = &*held {
            return Ok(Arc::clone(bytes));
        }
        let from = number.saturating_mul(BLOCK_BYTES);
        let length = object.size.unwrap_or(0).saturating_sub(from).min(BLOCK_BYTES);
        let (sender, fetched) = oneshot::channel();
        let (place, sources) = (Arc::clone(&self.place), Arc::clone(&self.sources));
        let object = object.clone();
        self.place.runtime.spawn(async move {
            // Whoever waits for it has not gone: it holds the block.
            let _ = sender.send(fetch(&place, &sources, &object, (from, length)).await);
        });
        let bytes = Arc::new(fetched.blocking_recv().unwrap_or(Err(BlockError::Ending))?);
        *held = Some(Arc::clone(&bytes));
        Ok(bytes)
    }

    fn report(&self, object: &Object, error: &BlockError) {
        if lock(&self.reported).insert(object.id) {
            say(format_args!("cannot read {}: {error}", object.url));
        }
    }
}

/// Fetches a range of an object from those that hold it, who are asked for anew if none of
/// those that are known gives it.
async fn fetch(
    place: &Place,
    known: &Mutex<BTreeMap<ObjectId, Arc<Vec<Source>>>>,
    object: &Object,
    range: (u64, u64),
) -> Result<Vec<u8>, BlockError> {
    let before = lock(known).get(&object.id).cloned();
    if let Some(sources) = before
        && let Ok(bytes) = from_sources(&sources, object, range).await
    {
        return Ok(bytes);
    }
    let sources = Arc::new(place.sources(object).await.map_err(BlockError::Unknown)?);
    lock(known).insert(object.id, Arc::clone(&sources));
    from_sources(&sources, object, range).await
}

async fn from_sources(
    sources: &[Source],
    object: &Object,
    (offset, length): (u64, u64),
) -> Result<Vec<u8>, BlockError> {
    let piece = Piece { object: object.id, offset, length: Some(length), size: object.size };
    let mut said = Vec::new();
    for _ in 0..ROUNDS_MAX {
        said.clear();
        let mut is_any_busy = false;
        for source in sources.iter().filter(|source| source.is_reached()) {
            let memory = memfd_create("falkon-block", MemfdFlags::CLOEXEC);
            let file =
                Arc::new(File::from(memory.map_err(|error| BlockError::Local(error.into()))?));
            let landing = Landing::new(Arc::clone(&file), 0, |_| {});
            let asked = source.fetch(&piece, &landing);
            let why = match timeout(Duration::from_millis(BLOCK_MS_MAX), asked).await {
                Ok(Ok(bytes)) if bytes == length => {
                    let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
                    file.read_exact_at(&mut bytes, 0).map_err(BlockError::Local)?;
                    return Ok(bytes);
                }
                Ok(Ok(bytes)) => source.said(&format!("it sent {bytes} bytes, not {length}")),
                Ok(Err(error)) => {
                    is_any_busy |= source.is_busy(&error);
                    source.why(&error)
                }
                Err(_) => source.said("it does not answer"),
            };
            said.push(why);
        }
        if !is_any_busy {
            break;
        }
        sleep(Duration::from_millis(BUSY_MS)).await;
    }
    Err(BlockError::Refused { said: said.join("; ") })
}

impl Files for Shelf {
    fn attributes(&self, node: u64) -> Option<Attributes> {
        self.tree.node(node).map(|of| self.attributes_of(node, of))
    }

    fn child(&self, directory: u64, name: &[u8]) -> Option<Attributes> {
        self.attributes(self.tree.child(directory, std::str::from_utf8(name).ok()?)?)
    }

    fn parent(&self, directory: u64) -> u64 {
        self.tree.node(directory).map_or(ROOT, |node| node.parent)
    }

    fn list(&self, directory: u64, after: Option<u64>, take: &mut dyn FnMut(Entry<'_>) -> bool) {
        for (number, node) in self.tree.entries(directory, after) {
            let attributes = self.attributes_of(number, node);
            if !take(Entry { name: node.name.as_bytes(), attributes }) {
                break;
            }
        }
    }

    fn read(
        &self,
        node: u64,
        offset: u64,
        bytes: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), Unreadable> {
        let object = self.tree.node(node).and_then(|node| node.object.as_ref());
        let object = object.ok_or(Unreadable)?;
        let end = offset.saturating_add(bytes as u64).min(object.size.unwrap_or(0));
        let mut at = offset;
        while at < end {
            let number = at / BLOCK_BYTES;
            let block = self.block(node, object, number).map_err(|error| {
                self.report(object, &error);
                Unreadable
            })?;
            // No more than a block's length.
            let (from, until) = (at % BLOCK_BYTES, (end - number * BLOCK_BYTES).min(BLOCK_BYTES));
            let part = block.get(from as usize..until as usize).ok_or(Unreadable)?;
            out.extend_from_slice(part);
            at += part.len() as u64;
        }
        Ok(())
    }

    fn totals(&self) -> Totals {
        let (files, bytes) = self.tree.totals();
        Totals { files, bytes }
    }
}
