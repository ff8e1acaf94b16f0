//! The file system in which tasks find objects that no directory here has room for. It
//! is mounted when the first such task starts.
//!
//! What is read comes in blocks, from the lender of each, or from the object's store if
//! that lender gives nothing. The blocks behind those that are read in a row come ahead.

use super::message::FromObjects;
use super::source::from_store;
use crate::sandboxes::Named;
use falkon_core::data::object::{Object, ObjectId};
use falkon_core::data::stage::Event;
use falkon_core::data::stripes::{share_id, stripe_of};
use falkon_core::task::ExecutorId;
use falkon_data::object::Landing;
use falkon_data::peer::{Fetcher, Peer, PeerError, Piece};
use falkon_data::store::Stores;
use falkon_fuse::{Attributes, Entry, Files, MountError, Mounted, ROOT, Totals, Unreadable, serve};
use rustix::fs::{MemfdFlags, memfd_create};
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::runtime::Handle;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::{sleep, timeout};

/// One block of a file: a part of a unit that one lender has.
const BLOCK_BYTES: u64 = 1 << 20;
/// Blocks of all files that stay in memory.
const BLOCKS_MAX: usize = 64;
/// Blocks that are requested behind one that is read in a row with others.
const AHEAD_BLOCKS: u64 = 16;
/// Threads that answer the kernel.
const THREADS: usize = 8;
/// How long a lender may take for a block, in milliseconds.
const LENDER_MS_MAX: u64 = 5_000;
/// How long a lender may say that a block is on its way to it, in milliseconds.
const COMING_MS_MAX: u64 = 30_000;
/// The pause before it is asked again, in milliseconds.
const COMING_PAUSE_MS: u64 = 10;

/// Why an object cannot be shown.
#[derive(Debug, thiserror::Error)]
pub(super) enum ShowError {
    /// The directory for it cannot be made.
    #[error("cannot create {}: {error}", path.display())]
    Directory {
        path: PathBuf,
        #[source]
        error: io::Error,
    },
    /// It cannot be mounted.
    #[error(transparent)]
    Mount(MountError),
    /// Nobody answers what the kernel asks.
    #[error("cannot show files at {}: {error}", path.display())]
    Serve {
        path: PathBuf,
        #[source]
        error: io::Error,
    },
}

/// Those who have the stripes of an object, one after another.
type Lenders = Vec<(ExecutorId, Option<Peer>)>;

/// The objects that are shown, and where.
pub(super) struct Mounts {
    folder: PathBuf,
    shelf: Arc<Shelf>,
    mounted: Option<Mounted>,
}

/// What reads the objects.
struct Shelf {
    runtime: Handle,
    stores: Stores,
    say: UnboundedSender<FromObjects>,
    shown: Mutex<Shown>,
    /// A block has come, or cannot be had.
    news: Condvar,
}

#[derive(Default)]
struct Shown {
    files: BTreeMap<u64, OneFile>,
    /// The numbers of all objects that were ever shown: the kernel remembers them.
    nodes: BTreeMap<ObjectId, u64>,
    last_node: u64,
    blocks: BTreeMap<(u64, u64), Block>,
    /// Those that are here, or could not be had, as they came.
    order: VecDeque<(u64, u64)>,
}

struct OneFile {
    object: Arc<Object>,
    name: String,
    modified: u64,
    lenders: Arc<Lenders>,
    fetcher: Option<Fetcher>,
    /// The block behind the one that was read last.
    next: u64,
}

enum Block {
    Coming,
    Here(Arc<Vec<u8>>),
    Failed,
}

impl Mounts {
    /// Shows nothing yet, below `folder`, which is this executor's alone.
    pub(super) fn new(
        folder: PathBuf,
        runtime: Handle,
        stores: Stores,
        say: UnboundedSender<FromObjects>,
    ) -> Mounts {
        let (shown, news) = (Mutex::default(), Condvar::new());
        Mounts {
            folder,
            shelf: Arc::new(Shelf { runtime, stores, say, shown, news }),
            mounted: None,
        }
    }

    /// Shows an object, whose stripes these have.
    pub(super) fn show(
        &self,
        object: Arc<Object>,
        lenders: Vec<(ExecutorId, Option<Peer>)>,
        fetcher: Option<Fetcher>,
    ) {
        let mut shown = self.shelf.shown();
        let node = shown.nodes.get(&object.id).copied().unwrap_or_else(|| {
            shown.last_node = shown.last_node.max(ROOT) + 1;
            let node = shown.last_node;
            shown.nodes.insert(object.id, node);
            node
        });
        let modified = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let file = shown.files.entry(node).or_insert_with(|| OneFile {
            name: object.id.to_string(),
            object,
            modified,
            lenders: Arc::default(),
            fetcher: None,
            next: 0,
        });
        (file.lenders, file.fetcher) = (Arc::new(lenders), fetcher);
    }

    /// Shows an object no more. Whoever has it open gets errors.
    pub(super) fn hide(&self, object: ObjectId) {
        let mut shown = self.shelf.shown();
        let Some(node) = shown.nodes.get(&object).copied() else { return };
        shown.files.remove(&node);
        shown.blocks.retain(|(of, _), _| *of != node);
        shown.order.retain(|(of, _)| *of != node);
    }

    /// Where a task finds those of its inputs that are shown, or why it cannot.
    pub(super) fn paths(
        &mut self,
        inputs: &[Named],
    ) -> Result<BTreeMap<ObjectId, PathBuf>, String> {
        let shown: Vec<ObjectId> =
            inputs.iter().filter(|input| input.is_mounted).map(|input| input.object).collect();
        let paths = shown.iter().map(|object| Ok((*object, self.path(*object)?)));
        paths.collect::<Result<_, ShowError>>().map_err(|error| {
            let sizes = self.shelf.sizes(&shown);
            format!(
                "an input is larger than the cache ({sizes} bytes), and cannot be read in a file \
                 system: {error}; give the executor a larger cache (`--cache`), or one that it \
                 lends (`--lend`)"
            )
        })
    }

    /// Where tasks find an object that is shown.
    fn path(&mut self, object: ObjectId) -> Result<PathBuf, ShowError> {
        let mounted = match &self.mounted {
            Some(mounted) => mounted,
            None => self.mounted.insert(mount(&self.folder, &self.shelf)?),
        };
        Ok(mounted.path().join(object.to_string()))
    }
}

impl Drop for Mounts {
    fn drop(&mut self) {
        let Some(mounted) = self.mounted.take() else { return };
        // The helper of FUSE unmounts it when this process has ended.
        let _ = mounted.unmount();
        let _ = std::fs::remove_dir(&self.folder);
    }
}

fn mount(folder: &PathBuf, shelf: &Arc<Shelf>) -> Result<Mounted, ShowError> {
    std::fs::create_dir_all(folder)
        .map_err(|error| ShowError::Directory { path: folder.clone(), error })?;
    let mounted = Mounted::new(folder, "falkon").map_err(ShowError::Mount)?;
    match serve(&mounted, &Arc::new(View(Arc::clone(shelf))), THREADS) {
        Ok(_threads) => Ok(mounted),
        Err(error) => {
            let path = mounted.path().to_owned();
            // That it fails counts for more than what becomes of the mount.
            let _ = mounted.unmount();
            Err(ShowError::Serve { path, error })
        }
    }
}

impl Shelf {
    fn shown(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The sizes of objects that are shown, for people.
    fn sizes(&self, objects: &[ObjectId]) -> String {
        let shown = self.shown();
        let nodes = objects.iter().filter_map(|object| shown.nodes.get(object));
        let sizes = nodes.filter_map(|node| shown.files.get(node)?.object.size);
        sizes.map(|size| size.to_string()).collect::<Vec<_>>().join(", ")
    }

    /// A block of a file, when it has come; `None` if it cannot be had.
    fn block(self: &Arc<Shelf>, node: u64, index: u64) -> Option<Arc<Vec<u8>>> {
        let mut shown = self.shown();
        let file = shown.files.get_mut(&node)?;
        let is_next = file.next.abs_diff(index) <= 1;
        file.next = index + 1;
        let ahead = if is_next { AHEAD_BLOCKS } else { 0 };
        for later in index + 1..=index.saturating_add(ahead) {
            if !shown.blocks.contains_key(&(node, later)) {
                self.begin(&mut shown, node, later);
            }
        }
        loop {
            match shown.blocks.get(&(node, index)) {
                Some(Block::Here(bytes)) => return Some(Arc::clone(bytes)),
                Some(Block::Coming) => {
                    shown = self.news.wait(shown).unwrap_or_else(PoisonError::into_inner);
                }
                Some(Block::Failed) => {
                    // Whoever reads it next tries again.
                    shown.blocks.remove(&(node, index));
                    shown.order.retain(|block| *block != (node, index));
                    return None;
                }
                None => {
                    if !self.begin(&mut shown, node, index) {
                        return None;
                    }
                }
            }
        }
    }

    /// Has a block fetched. Returns whether there is such a block.
    fn begin(self: &Arc<Shelf>, shown: &mut Shown, node: u64, index: u64) -> bool {
        let Some(file) = shown.files.get(&node) else { return false };
        let offset = index.saturating_mul(BLOCK_BYTES);
        let left = file.object.size.unwrap_or(0).saturating_sub(offset);
        if left == 0 {
            return false;
        }
        let (object, lenders) = (Arc::clone(&file.object), Arc::clone(&file.lenders));
        let (fetcher, shelf) = (file.fetcher.clone(), Arc::clone(self));
        let range = (offset, left.min(BLOCK_BYTES));
        shown.blocks.insert((node, index), Block::Coming);
        self.runtime.spawn(async move {
            let got = shelf.fetch(&object, &lenders, fetcher.as_ref(), range).await;
            shelf.came((node, index), got);
        });
        true
    }

    /// A block has come, or cannot be had.
    fn came(&self, block: (u64, u64), got: Option<Vec<u8>>) {
        let mut shown = self.shown();
        if shown.files.contains_key(&block.0) {
            let state = got.map_or(Block::Failed, |bytes| Block::Here(Arc::new(bytes)));
            shown.blocks.insert(block, state);
            shown.order.push_back(block);
            while shown.order.len() > BLOCKS_MAX
                && let Some(oldest) = shown.order.pop_front()
            {
                shown.blocks.remove(&oldest);
            }
        }
        drop(shown);
        self.news.notify_all();
    }

    /// Fetches a range of an object, which one lender has.
    async fn fetch(
        &self,
        object: &Object,
        lenders: &Lenders,
        fetcher: Option<&Fetcher>,
        range: (u64, u64),
    ) -> Option<Vec<u8>> {
        let lender = lenders.get(stripe_of(range.0, lenders.len()));
        if let Some((lender, peer)) = lender {
            let bytes = match (fetcher, peer) {
                (Some(fetcher), Some(peer)) => from_lender(object, fetcher, peer, range).await,
                _ => None,
            };
            if bytes.is_some() {
                return bytes;
            }
            let silent = Event::Silent { object: object.id, lender: *lender };
            // The receiver is gone only when the executor ends.
            let _ = self.say.send(FromObjects::Stage(silent));
        }
        let (file, landing) = landing(0).ok()?;
        let (offset, length) = range;
        let fetched =
            from_store(&self.stores, object, offset, Some(length), &landing).await.ok()?;
        (fetched == length).then(|| read_back(&file, length)).flatten()
    }
}

/// Fetches a range of an object from the lender that has it.
async fn from_lender(
    object: &Object,
    fetcher: &Fetcher,
    peer: &Peer,
    (offset, length): (u64, u64),
) -> Option<Vec<u8>> {
    let object_id = share_id(object.id);
    let piece = Piece { object: object_id, offset, length: Some(length), size: object.size };
    let until = Instant::now() + Duration::from_millis(COMING_MS_MAX);
    loop {
        let (file, landing) = landing(0).ok()?;
        let limit = Duration::from_millis(LENDER_MS_MAX);
        match timeout(limit, fetcher.fetch(peer, &piece, &landing)).await {
            Ok(Ok(fetched)) if fetched == length => return read_back(&file, length),
            Ok(Err(PeerError::Coming | PeerError::Busy)) if Instant::now() < until => {
                sleep(Duration::from_millis(COMING_PAUSE_MS)).await;
            }
            _ => return None,
        }
    }
}

/// A file in memory, and a transfer into it.
fn landing(at: u64) -> io::Result<(Arc<File>, Arc<Landing>)> {
    let file = Arc::new(File::from(memfd_create("falkon-block", MemfdFlags::CLOEXEC)?));
    Ok((Arc::clone(&file), Landing::new(file, at, |_| ())))
}

fn read_back(file: &File, length: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(length).ok()?];
    file.read_exact_at(&mut bytes, 0).ok()?;
    Some(bytes)
}

impl OneFile {
    fn attributes(&self, node: u64) -> Attributes {
        let bytes = self.object.size.unwrap_or(0);
        let modified = self.modified;
        Attributes { node, is_directory: false, bytes, modified, permissions: 0o555 }
    }
}

/// What answers the kernel.
struct View(Arc<Shelf>);

impl Files for View {
    fn attributes(&self, node: u64) -> Option<Attributes> {
        if node == ROOT {
            let permissions = 0o555;
            let root = Attributes { node, is_directory: true, bytes: 0, modified: 0, permissions };
            return Some(root);
        }
        self.0.shown().files.get(&node).map(|file| file.attributes(node))
    }

    fn child(&self, directory: u64, name: &[u8]) -> Option<Attributes> {
        let object = ObjectId::parse(std::str::from_utf8(name).ok()?)?;
        let shown = self.0.shown();
        let node = *shown.nodes.get(&object).filter(|_| directory == ROOT)?;
        shown.files.get(&node).map(|file| file.attributes(node))
    }

    fn parent(&self, _directory: u64) -> u64 {
        ROOT
    }

    fn list(&self, directory: u64, after: Option<u64>, take: &mut dyn FnMut(Entry<'_>) -> bool) {
        let shown = self.0.shown();
        let from = after.map_or(0, |after| after + 1);
        for (node, file) in shown.files.range(from..).filter(|_| directory == ROOT) {
            let entry = Entry { name: file.name.as_bytes(), attributes: file.attributes(*node) };
            if !take(entry) {
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
        let size = self.0.shown().files.get(&node).and_then(|file| file.object.size);
        let end = offset.saturating_add(bytes as u64).min(size.ok_or(Unreadable)?);
        let mut at = offset;
        while at < end {
            let index = at / BLOCK_BYTES;
            let block = self.0.block(node, index).ok_or(Unreadable)?;
            // No more than a block's length.
            let (from, until) = (at % BLOCK_BYTES, (end - index * BLOCK_BYTES).min(BLOCK_BYTES));
            let part = block.get(from as usize..until as usize).ok_or(Unreadable)?;
            out.extend_from_slice(part);
            at += part.len() as u64;
        }
        Ok(())
    }

    fn totals(&self) -> Totals {
        let shown = self.0.shown();
        let sizes = shown.files.values().filter_map(|file| file.object.size);
        Totals { files: shown.files.len() as u64, bytes: sizes.sum() }
    }
}
