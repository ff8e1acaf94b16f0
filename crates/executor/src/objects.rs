//! Data objects of an executor: carries out what the core's stage wants done,
//! with the cache on disk, the persistent stores and other executors.

mod collected;
mod handover;
mod listener;
mod members;
pub(super) mod message;
mod mounted;
mod parts;
mod source;
mod unpacking;

use super::Log;
use super::archives::Staged;
use super::cache_repair::CacheRepair;
use super::sandboxes::{MakeError, Named, Sandboxes};
use super::values;
use super::visits::Visits;
use super::watchdog::{Position, WaitPoint};
use falkon_core::collect::CollectOptions;
use falkon_core::data::broadcast::Chunks;
use falkon_core::data::cache::{CacheOptions, Eviction, Recorded, TierId};
use falkon_core::data::declared;
use falkon_core::data::limits::BROADCAST_OBJECT_BYTES_MIN;
use falkon_core::data::object::{Object, ObjectId, Source};
use falkon_core::data::stage::{
    Action, Event, FetchError, FetchId, PartialId, Refusal, Requester, ServeId, StageOptions,
    WriteError,
};
use falkon_core::execute::{self, TaskKey, VisitEnd};
use falkon_core::task::{ExecutorId, Time};
use falkon_data::archives::Archives;
use falkon_data::cache::{CacheError, Copies, DiskCache, OpenError, Reused};
use falkon_data::object::{Landing, Progress};
use falkon_data::overflow::OverflowDirectory;
use falkon_data::peer::{Fetcher, FromPeers, PartAsked, Peer, Piece, Server, Through, Verdict};
use falkon_data::store::{StoreUrl, Stores};
use falkon_net::ids::object_id;
use falkon_net::secure::{Level, PeerAcceptor, PeerIdentity, Secret};
use falkon_process::Unchanged;
use handover::Handovers;
use listener::{listen, listen_at};
use message::{FromObjects, write_error};
use mounted::Mounts;
use source::{from_store, peer_error, store_error};
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

/// Questions of peers that wait for an answer.
const ASKS_MAX: usize = 256;

/// A cache on this executor's disks.
#[derive(Debug, Clone)]
pub struct CacheSetup {
    /// The directories with their capacities in bytes, fastest first.
    pub directories: Vec<(PathBuf, u64)>,
    /// The last of them is lent to other executors.
    pub lends_last: bool,
    /// Tasks may read objects through a file system for which no directory has room, where
    /// the machine can mount one.
    pub mounts: bool,
    /// The eviction policy.
    pub eviction: Eviction,
    /// When outputs that are members of archives are written.
    pub collect: CollectOptions,
}

/// Why the cache cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CacheSetupError {
    /// A directory cannot be used.
    #[error(transparent)]
    Open(OpenError),
    /// The threads that carry transfers cannot be started.
    #[error("cannot start threads for data transfers: {0}")]
    Threads(#[source] std::io::Error),
}

/// Why a task has no sandbox.
#[derive(Debug)]
pub(super) enum SandboxError {
    /// An input of a queued task is gone: it has to be staged again.
    Lost(ObjectId),
    /// Why it cannot be made, for people.
    Other(String),
}

/// Carries transfers in a thread of its own, which disks may hold up.
struct Carrier {
    runtime: tokio::runtime::Handle,
    /// Dropped, it ends the thread, whatever is under way.
    _stop: oneshot::Sender<()>,
}

impl Carrier {
    fn start() -> std::io::Result<Carrier> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel::<()>();
        let handle = runtime.handle().clone();
        std::thread::Builder::new().name("falkon-data".to_owned()).spawn(move || {
            // The thread ends when the sender is gone.
            let _ = runtime.block_on(stopped);
            runtime.shutdown_background();
        })?;
        Ok(Carrier { runtime: handle, _stop: stop })
    }
}

/// Where this executor serves what it holds.
struct Serving {
    listener: Option<TcpListener>,
    identity: PeerIdentity,
    server: Option<Server>,
}

/// A transfer that was begun.
struct Running {
    fetch: FetchId,
    task: AbortHandle,
    /// Ends it with an answer.
    end: Option<oneshot::Sender<()>>,
}

/// Where a transfer comes from.
enum Origin {
    Own,
    Store,
    Peer(Fetcher, Peer),
}

/// The data objects of an executor.
pub(super) struct Objects {
    cache: Arc<DiskCache>,
    repair: CacheRepair,
    stores: Stores,
    /// Archives in caches of which members are read.
    archives: Archives,
    carrier: Carrier,
    say: mpsc::UnboundedSender<FromObjects>,
    said: mpsc::UnboundedReceiver<FromObjects>,
    asks: mpsc::Receiver<FromPeers>,
    ask: mpsc::Sender<FromPeers>,
    level: Level,
    serving: Option<Serving>,
    fetcher: Option<Fetcher>,
    /// From executors that only the dispatcher reaches, and what it is to be asked.
    through: Fetcher,
    parts: mpsc::Receiver<PartAsked>,
    peers: HashMap<ExecutorId, Peer>,
    transfers: HashMap<PartialId, Vec<Running>>,
    answers: HashMap<ServeId, oneshot::Sender<Verdict>>,
    visits: Visits,
    /// Where tasks that have ended left their outputs.
    outputs: BTreeMap<(TaskKey, ObjectId), PathBuf>,
    sandboxes: Sandboxes,
    mounts: Mounts,
    staged: Staged,
    handovers: Handovers,
    /// Output that visitors with tickets may read.
    overflow: OverflowDirectory,
    position: Arc<Position>,
    log: Log,
}

impl Objects {
    /// Opens the cache. Says also how the core's stage is to be set up, and
    /// with what that was there before.
    pub(super) fn open(
        setup: &CacheSetup,
        executor: &super::Options,
        seed: u64,
        position: Arc<Position>,
    ) -> Result<(Objects, StageOptions, Vec<Reused>), CacheSetupError> {
        let log = executor.log.clone();
        let directories: Vec<PathBuf> =
            setup.directories.iter().map(|(directory, _)| directory.clone()).collect();
        let (cache, reused) = DiskCache::open(&directories).map_err(CacheSetupError::Open)?;
        let stores = Stores::new(std::env::vars()).with_file_limit(executor.file_limit);
        let carrier = Carrier::start().map_err(CacheSetupError::Threads)?;
        let (say, said) = mpsc::unbounded_channel();
        let (ask, asks) = mpsc::channel(ASKS_MAX);
        let (through, parts) = Through::new();
        let cache = Arc::new(cache);
        // A cache of more directories than that was refused.
        let tiers = u8::try_from(directories.len()).unwrap_or(u8::MAX);
        let repair = CacheRepair::new(cache.clone(), tiers, say.clone(), log.clone());
        let folder = executor.scratch.join(format!("mounted-{seed:016x}"));
        let mounts = Mounts::new(folder, carrier.runtime.clone(), stores.clone(), say.clone());
        let objects = Objects {
            cache,
            repair,
            stores,
            archives: Archives::default(),
            carrier,
            say,
            said,
            asks,
            ask,
            level: Level::None,
            serving: None,
            fetcher: None,
            through: Fetcher::through(through),
            parts,
            peers: HashMap::new(),
            transfers: HashMap::new(),
            answers: HashMap::new(),
            visits: Visits::default(),
            outputs: BTreeMap::new(),
            sandboxes: Sandboxes::new(
                executor.scratch.join(format!("sandboxes-{seed:016x}")),
                seed as u16,
            ),
            mounts,
            staged: Staged::new(executor.scratch.join(format!("staged-{seed:016x}"))),
            handovers: Handovers::default(),
            overflow: executor.overflow.clone(),
            position,
            log,
        };
        let options = CacheOptions {
            tiers_bytes: setup.directories.iter().map(|(_, bytes)| *bytes).collect(),
            eviction: setup.eviction,
            seed,
        };
        let options = StageOptions::new(options, seed);
        let mounts = setup.mounts && falkon_fuse::is_possible();
        Ok((objects, StageOptions { lends_last: setup.lends_last, mounts, ..options }, reused))
    }

    /// Listens for peers that reach the dispatcher at `dispatcher`, at the
    /// address by which this machine is seen from there, or at `source`. Says
    /// where; nothing if that cannot be: then nothing is served.
    pub(super) fn listen(
        &mut self,
        dispatcher: &str,
        source: Option<IpAddr>,
        level: Level,
    ) -> Option<declared::Serving> {
        let result = match source {
            Some(source) => listen_at(source),
            None => listen(dispatcher),
        };
        let identity = PeerIdentity::generate();
        let (listener, address) = match result {
            Ok(found) => found,
            Err(error) => {
                (self.log)(&format!("cannot serve objects to other executors: {error}"));
                return None;
            }
        };
        let identity = match identity {
            Ok(identity) => identity,
            Err(error) => {
                (self.log)(&format!("cannot serve objects to other executors: {error}"));
                return None;
            }
        };
        self.level = level;
        let fingerprint = match level {
            Level::Encrypt => identity.fingerprint().0.to_vec(),
            Level::None | Level::Authenticate => Vec::new(),
        };
        self.serving = Some(Serving { listener: Some(listener), identity, server: None });
        Some(declared::Serving { address: address.to_string(), fingerprint })
    }

    /// Takes over the secret, from the dispatcher, by which executors
    /// authenticate each other.
    pub(super) fn set_secret(&mut self, secret: [u8; 32]) {
        if self.fetcher.is_none() {
            self.fetcher = Some(Fetcher::new(self.level, Secret::from_bytes(secret)));
        }
        let Some(serving) = &mut self.serving else { return };
        let Some(listener) = serving.listener.take() else { return };
        let secret = Secret::from_bytes(secret);
        let acceptor = match PeerAcceptor::new(&serving.identity, self.level, secret) {
            Ok(acceptor) => acceptor,
            Err(error) => {
                (self.log)(&format!("cannot serve objects to other executors: {error}"));
                return;
            }
        };
        let overflow = Some(self.overflow.clone());
        match Server::start(listener, acceptor, self.cache.clone(), overflow, self.ask.clone()) {
            Ok(server) => serving.server = Some(server),
            Err(error) => (self.log)(&error.to_string()),
        }
    }

    /// Where executors listen.
    pub(super) fn set_peers(&mut self, peers: Vec<declared::Peer>) {
        for peer in peers {
            let fingerprint = <[u8; 32]>::try_from(peer.serves.fingerprint.as_slice()).ok();
            let address = peer.serves.address;
            self.peers.insert(peer.executor, Peer { address, fingerprint });
        }
    }

    /// Waits for something to be said.
    pub(super) async fn recv(&mut self) -> FromObjects {
        tokio::select! {
            said = self.said.recv() => match said {
                Some(said) => said,
                None => std::future::pending().await,
            },
            asked = self.parts.recv() => match asked {
                Some(asked) => FromObjects::Asked(asked),
                None => std::future::pending().await,
            },
            ask = self.asks.recv() => match ask {
                Some(ask) => FromObjects::Peers(ask),
                None => std::future::pending().await,
            },
        }
    }

    /// Converts a request of a peer or a visitor into an event for the core.
    pub(super) fn asked(&mut self, now: Time, from: FromPeers) -> Option<execute::Event> {
        let event = match self.visits.asked(now, from) {
            Ok(event) => return event,
            Err(FromPeers::Ask { serve, object, range, answer }) => {
                self.answers.insert(serve, answer);
                Event::Ask { serve, object, range }
            }
            Err(FromPeers::Served(serve)) => Event::Served(serve),
            Err(FromPeers::Lost(object)) => Event::Lost(object),
            Err(other) => return self.offered(other).ok().map(execute::Event::Collect),
        };
        Some(execute::Event::Stage(event))
    }

    /// A visit is over.
    pub(super) fn visit_ended(&mut self, visit: u64, end: VisitEnd) {
        self.visits.ended(visit, end);
    }

    /// Carries out what the stage wants done.
    pub(super) fn act(&mut self, action: Action) {
        match action {
            Action::Delete(gone) => {
                let _at = self.position.at(WaitPoint::Cache);
                self.sandboxes.forget(gone.object);
                match self.cache.delete(gone.tier, gone.object) {
                    Ok(Some(tree)) => self.remove(tree),
                    Ok(None) => {}
                    Err(error) => (self.log)(&error.to_string()),
                }
            }
            Action::Fetch { fetch, partial, tier, object, source, offset, length } => {
                self.fetch(fetch, (partial, tier), object, source, (offset, length));
            }
            Action::Seal { partial, tier, object, size } => {
                self.transfers.remove(&partial);
                let (cache, repair) = (self.cache.clone(), self.repair.clone());
                self.blocking(move || {
                    let result = cache.seal(tier, partial, &object, size, Copies::Elsewhere);
                    if matches!(result, Err(CacheError::Gone { .. })) {
                        repair.repair();
                    }
                    let result = result.map_err(write_error);
                    FromObjects::Stage(Event::Sealed { partial, result })
                });
            }
            Action::Discard { partial, tier } => {
                let _at = self.position.at(WaitPoint::Cache);
                for transfer in self.transfers.remove(&partial).unwrap_or_default() {
                    transfer.task.abort();
                }
                self.cache.discard(tier, partial);
            }
            Action::Adopt { partial, tier, requester, object } => {
                let output = match requester {
                    Requester::Task(task) => self.outputs.remove(&(task, object.id)),
                    Requester::Visit(visit) => {
                        if let Some(gone) = self.visits.placed(visit, tier, partial) {
                            self.tell(gone);
                        }
                        return;
                    }
                    Requester::Prefetch(_) => unreachable!("a prefetch has no outputs"),
                };
                let Some(output) = output else {
                    let result = Err(WriteError::Failed("the output is gone".to_owned()));
                    self.tell(FromObjects::Stage(Event::Adopted { partial, result }));
                    return;
                };
                self.adopt(tier, partial, object, output);
            }
            Action::Measure { unpack, object, bytes_max } => {
                self.unpack(unpack, move |cache| cache.measure(object.id, bytes_max));
            }
            Action::Unpack { unpack, object, bytes } => {
                self.unpack(unpack, move |cache| cache.unpack(object.id, bytes));
            }
            Action::Resolve(object) => self.resolve(object),
            Action::Show { object, lenders } => {
                let peer = |id| (id, self.peers.get(&id).cloned());
                let lenders = lenders.into_iter().map(peer).collect();
                self.mounts.show(object, lenders, self.fetcher.clone());
            }
            Action::Hide(object) => self.mounts.hide(object),
            Action::GiveUp { fetch, partial } => {
                let running = self.transfers.get_mut(&partial).into_iter().flatten();
                let end = running.filter(|one| one.fetch == fetch).find_map(|one| one.end.take());
                // A transfer that is over has said so.
                let _ = end.map(|end| end.send(()));
            }
            Action::Serve { serve, .. } => self.answer(serve, Verdict::Serve),
            Action::ServePart { serve, partial, tier, size, .. } => {
                self.answer(serve, Verdict::Part { tier, partial, whole: size });
            }
            Action::Refuse { serve, why } => {
                let verdict = match why {
                    Refusal::Busy => Verdict::Busy,
                    Refusal::Coming => Verdict::Coming,
                    Refusal::Gone => Verdict::Gone,
                };
                self.answer(serve, verdict);
            }
            // The core keeps these to itself.
            Action::Ready { .. }
            | Action::Unready(_)
            | Action::Failed { .. }
            | Action::Kept { .. }
            | Action::NotKept { .. } => {}
        }
    }

    fn answer(&mut self, serve: ServeId, verdict: Verdict) {
        let Some(answer) = self.answers.remove(&serve) else { return };
        let serves = matches!(verdict, Verdict::Serve | Verdict::Part { .. });
        if answer.send(verdict).is_err() && serves {
            // The peer has gone away meanwhile.
            self.tell(FromObjects::Stage(Event::Served(serve)));
        }
    }

    fn tell(&self, what: FromObjects) {
        // The receiver is ours.
        let _ = self.say.send(what);
    }

    fn blocking(&self, work: impl FnOnce() -> FromObjects + Send + 'static) {
        let say = self.say.clone();
        self.carrier.runtime.spawn_blocking(move || {
            // The receiver is gone only when the executor ends.
            let _ = say.send(work());
        });
    }

    fn fetch(
        &mut self,
        fetch: FetchId,
        (partial, tier): (PartialId, TierId),
        object: Arc<Object>,
        source: Source,
        (offset, length): (u64, Option<u64>),
    ) {
        let (repair, stores, say) = (self.repair.clone(), self.stores.clone(), self.say.clone());
        let archives = self.archives.clone();
        let from = match source {
            Source::Own => Origin::Own,
            Source::Store => Origin::Store,
            // From any holder.
            Source::Dispatcher => Origin::Peer(self.through.clone(), Peer::default()),
            Source::Peer(id) => match (self.fetcher.clone(), self.peers.get(&id).cloned()) {
                (Some(fetcher), Some(peer)) => Origin::Peer(fetcher, peer),
                _ => {
                    let why = FetchError::Unreachable("its address is not known".to_owned());
                    self.tell(FromObjects::Stage(Event::FetchFailed { fetch, bytes: 0, why }));
                    return;
                }
            },
        };
        let (end, ended) = oneshot::channel();
        let transfer = self.carrier.runtime.spawn(async move {
            let file = match repair.with_cache(|cache| cache.partial(tier, partial)) {
                Ok(file) => Arc::new(file),
                Err(error) => {
                    let why = FetchError::Write(write_error(error));
                    let event = Event::FetchFailed { fetch, bytes: 0, why };
                    let _ = say.send(FromObjects::Stage(event));
                    return;
                }
            };
            let teller = say.clone();
            let known = object.size;
            let large = known.filter(|size| *size >= BROADCAST_OBJECT_BYTES_MIN);
            let chunk = large.map_or(u64::MAX, |size| Chunks::of(size).bytes);
            // The end of what is one chunk itself says so.
            let every = if length.is_some_and(|length| length <= chunk) { u64::MAX } else { chunk };
            let landing = Landing::telling(file, offset, every, move |progress| {
                let event = match progress {
                    Progress::Written(bytes) if large.is_some() => Event::Written { fetch, bytes },
                    Progress::Written(_) => return,
                    Progress::Sized(size) if known == Some(size) => return,
                    Progress::Sized(size) => Event::Sized { fetch, size },
                    Progress::Arriving(until) => Event::Arriving { fetch, until },
                };
                let _ = teller.send(FromObjects::Stage(event));
            });
            let fetching = async {
                match from {
                    from if object.archive().is_some() => {
                        let lost = |object| {
                            let _ = say.send(FromObjects::Stage(Event::Lost(object)));
                        };
                        members::fetch(&archives, &repair, from, &object, &landing, lost).await
                    }
                    Origin::Store | Origin::Own => {
                        from_store(&stores, &object, offset, length, &landing).await
                    }
                    Origin::Peer(fetcher, peer) => {
                        let piece = Piece { object: object.id, offset, length, size: object.size };
                        fetcher.fetch(&peer, &piece, &landing).await.map_err(peer_error)
                    }
                }
            };
            let result = tokio::select! {
                result = fetching => result,
                Ok(()) = ended => Err(FetchError::Unreachable("it sent nothing".to_owned())),
            };
            let event = match result {
                Ok(bytes) => Event::Fetched { fetch, bytes },
                Err(why) => Event::FetchFailed { fetch, bytes: landing.written(), why },
            };
            let _ = say.send(FromObjects::Stage(event));
        });
        let running = Running { fetch, task: transfer.abort_handle(), end: Some(end) };
        self.transfers.entry(partial).or_default().push(running);
    }

    fn resolve(&self, object: Arc<Object>) {
        let (stores, say) = (self.stores.clone(), self.say.clone());
        self.carrier.runtime.spawn(async move {
            let now = match StoreUrl::parse(&object.url) {
                Err(error) => Err(FetchError::Refused(error.to_string())),
                Ok(url) => match stores.resolve(&url).await {
                    Ok(found) if found.version.is_empty() => Ok(object.clone()),
                    Ok(found) => Ok(Arc::new(Object {
                        id: object_id(&object.url, &found.version),
                        url: object.url.clone(),
                        version: found.version.into(),
                        size: found.bytes,
                    })),
                    Err(error) => Err(store_error(&object, error)),
                },
            };
            let event = Event::Resolved { object: object.id, now };
            let _ = say.send(FromObjects::Stage(event));
        });
    }

    /// Where the executor's thread is.
    pub(super) fn position(&self) -> Arc<Position> {
        self.position.clone()
    }

    /// Makes the directory that a task runs in and puts its inputs there.
    pub(super) fn make_sandbox(
        &mut self,
        key: TaskKey,
        inputs: &[Named],
    ) -> Result<PathBuf, SandboxError> {
        let paths = self.mounts.paths(inputs).map_err(SandboxError::Other)?;
        let error = match self.sandboxes.make(key, inputs, (&self.cache, &paths)) {
            Ok(folder) => return Ok(folder),
            Err(error) => error,
        };
        self.clear_sandbox(key);
        Err(match error {
            MakeError::Directory(error) => {
                let folder = self.sandboxes.folder().display();
                SandboxError::Other(format!("cannot create a directory in {folder}: {error}"))
            }
            MakeError::Input(object, CacheError::Lost { .. } | CacheError::Gone { .. }) => {
                self.repair.repair();
                SandboxError::Lost(object)
            }
            MakeError::Input(_, error) => SandboxError::Other(error.to_string()),
        })
    }

    /// The inputs of a task that has its directory, as they are now: a task
    /// that it comes after could change them.
    pub(super) fn shared_inputs(&self, key: TaskKey) -> Vec<Unchanged> {
        let _at = self.position.at(WaitPoint::Cache);
        self.sandboxes.shared(key, &self.cache)
    }

    /// A task did not begin because inputs were changed: its directory goes,
    /// and those that were are lost.
    pub(super) fn changed(&mut self, key: TaskKey, inputs: &[ObjectId]) -> Vec<ObjectId> {
        self.clear_sandbox(key);
        let _at = self.position.at(WaitPoint::Cache);
        let is_lost = |object: &&ObjectId| {
            matches!(
                self.cache.read(**object),
                Err(CacheError::Lost { .. } | CacheError::Gone { .. })
            )
        };
        let lost: Vec<ObjectId> = inputs.iter().filter(is_lost).copied().collect();
        if !lost.is_empty() {
            self.repair.repair();
        }
        lost
    }

    fn clear_sandbox(&mut self, key: TaskKey) {
        let _at = self.position.at(WaitPoint::Sandboxes);
        if let Some(clearing) = self.sandboxes.clear(key) {
            self.carrier.runtime.spawn_blocking(move || clearing.run());
        }
    }

    /// A task has left its outputs: those with a place in a persistent store go
    /// there, but for members of archives, answered with [`FromObjects::Put`]. Returns whether there are
    /// none: then there is no answer.
    pub(super) fn put(&mut self, key: TaskKey, outputs: Vec<(PathBuf, Arc<Object>)>) -> bool {
        let mut stored = Vec::new();
        for (path, object) in outputs {
            if object.is_stored() && object.member().is_none() {
                stored.push((path.clone(), object.url.clone()));
            }
            self.outputs.insert((key, object.id), path);
        }
        if stored.is_empty() {
            return true;
        }
        let (stores, say) = (self.stores.clone(), self.say.clone());
        self.carrier.runtime.spawn(async move {
            let result = put_all(&stores, &stored).await;
            let _ = say.send(FromObjects::Put { key, result });
        });
        false
    }

    /// Has what a call has left in a file become an object.
    pub(super) fn take_in(&self, key: TaskKey, file: PathBuf, url: String) {
        let (repair, ask, say) = (self.repair.clone(), self.ask.clone(), self.say.clone());
        self.carrier.runtime.spawn(async move {
            let result = values::take_in(repair, ask, file, url).await;
            let _ = say.send(FromObjects::Value { key, result });
        });
    }

    /// A task is over.
    pub(super) fn clear(&mut self, key: TaskKey) {
        let of_task = (key, ObjectId(0))..=(key, ObjectId(u128::MAX));
        let left: Vec<(TaskKey, ObjectId)> =
            self.outputs.range(of_task).map(|(output, _)| *output).collect();
        for output in left {
            self.outputs.remove(&output);
        }
        self.clear_sandbox(key);
    }

    /// Writes down what is in the cache, for the next executor here.
    pub(super) fn record(&mut self, recorded: Vec<Recorded>) {
        self.sandboxes.clear_all();
        self.staged.clear();
        if let Err(error) = self.cache.record(recorded) {
            (self.log)(&error.to_string());
        }
    }
}

async fn put_all(stores: &Stores, stored: &[(PathBuf, Arc<str>)]) -> Result<(), String> {
    for (path, url) in stored {
        let url = StoreUrl::parse(url).map_err(|error| error.to_string())?;
        stores.put(path, &url).await.map_err(|error| error.to_string())?;
    }
    Ok(())
}
