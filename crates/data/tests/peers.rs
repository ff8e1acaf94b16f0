//! Executors' caches served and fetched over real sockets.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "peers/entrusted.rs"]
mod entrusted;
#[path = "peers/proxy.rs"]
mod proxy;
#[path = "peers/remote.rs"]
mod remote;
#[path = "peers/visits.rs"]
mod visits;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use falkon_core::data::cache::TierId;
use falkon_core::data::object::{Object, ObjectId};
use falkon_core::data::stage::PartialId;
use falkon_core::execute::VisitEnd;
use falkon_core::task::Time;
use falkon_data::cache::{Copies, DiskCache};
use falkon_data::object::Landing;
use falkon_data::overflow::OverflowDirectory;
use falkon_data::peer::{
    Fetcher, FromPeers, Peer, PeerError, Piece, SMALL_BYTES_MAX, Server, Verdict, Written,
};
use falkon_net::ids::object_id;
use falkon_net::secure::{Level, PeerAcceptor, PeerIdentity, Secret};
use tokio::sync::mpsc;

const LEVELS: [Level; 3] = [Level::None, Level::Authenticate, Level::Encrypt];
const TIER: TierId = TierId(0);
/// Tickets that end before have ended.
const VISITS_UNTIL: Time = Time(1_000_000);

fn secret() -> Secret {
    Secret::from_bytes([7; 32])
}

/// An executor that serves its cache.
struct Rig {
    dir: tempfile::TempDir,
    cache: Arc<DiskCache>,
    overflow: OverflowDirectory,
    server: Option<Server>,
    identity: PeerIdentity,
    level: Level,
    /// How many it serves at a time.
    limit: Arc<AtomicUsize>,
    /// The files of objects that are on their way, with the whole size of each.
    coming: Arc<Mutex<BTreeMap<ObjectId, (PartialId, u64)>>>,
    /// What is handed over.
    collector: entrusted::Collector,
}

/// What a task has written that is asked about.
const WRITTEN_BYTES: usize = 300_000;

impl Rig {
    fn new(level: Level) -> Rig {
        let dir = tempfile::tempdir().unwrap();
        let (cache, _) = DiskCache::open(&[dir.path().join("cache")]).unwrap();
        let overflow = OverflowDirectory::create(dir.path()).unwrap();
        let identity = PeerIdentity::generate().unwrap();
        let mut rig = Rig {
            dir,
            cache: Arc::new(cache),
            overflow,
            server: None,
            identity,
            level,
            limit: Arc::new(AtomicUsize::new(usize::MAX)),
            coming: Arc::default(),
            collector: entrusted::Collector::default(),
        };
        rig.listen(TcpListener::bind("127.0.0.1:0").unwrap());
        rig
    }

    fn listen(&mut self, listener: TcpListener) {
        let acceptor = PeerAcceptor::new(&self.identity, self.level, secret()).unwrap();
        let (asks, mut asked) = mpsc::channel(16);
        let limit = Arc::clone(&self.limit);
        let held = Arc::clone(&self.cache);
        let coming = Arc::clone(&self.coming);
        let collector = self.collector.clone();
        let folder = self.dir.path().join("staged");
        std::thread::spawn(move || {
            let mut serving = 0;
            let mut visits = BTreeMap::new();
            while let Some(message) = asked.blocking_recv() {
                match message {
                    FromPeers::Ask { object, answer, .. }
                        if serving < limit.load(Ordering::Relaxed) =>
                    {
                        serving += 1;
                        let part = coming.lock().unwrap().get(&object).copied();
                        let part = part.map(|(partial, whole)| {
                            let tier = TIER;
                            Verdict::Part { tier, partial, whole }
                        });
                        answer.send(part.unwrap_or(Verdict::Serve)).unwrap();
                    }
                    FromPeers::Ask { answer, .. } => answer.send(Verdict::Busy).unwrap(),
                    FromPeers::Served(_) => serving -= 1,
                    FromPeers::Lost(_) => {}
                    FromPeers::Admit { expires, answer } => {
                        answer.send(expires >= VISITS_UNTIL).unwrap();
                    }
                    FromPeers::Put { place, end, .. } => {
                        let partial = PartialId(u64::MAX - visits.len() as u64);
                        visits.insert(partial, end);
                        place.send((TIER, partial)).unwrap();
                    }
                    FromPeers::Written { partial, result } => {
                        let end = match result {
                            Ok(()) => VisitEnd::Held,
                            Err(error) => VisitEnd::Refused(format!("{error:?}")),
                        };
                        visits.remove(&partial).unwrap().send(end).unwrap();
                    }
                    FromPeers::Entrust { .. }
                    | FromPeers::Received { .. }
                    | FromPeers::Withdrawn(_) => collector.take(message, &folder),
                    FromPeers::Tail { task, from, answer, .. } => {
                        // Of task 2, the first half is in memory.
                        let written = match task.task.0 {
                            2 => Written::Here {
                                total_bytes: WRITTEN_BYTES as u64,
                                bytes: pattern(WRITTEN_BYTES / 2)
                                    .get(from as usize..)
                                    .unwrap_or_default()
                                    .to_vec(),
                                file: Some(folder.with_file_name("written")),
                                is_cut: false,
                                has_ended: from == WRITTEN_BYTES as u64,
                            },
                            _ => Written::Gone,
                        };
                        let _ = answer.send(written);
                    }
                    FromPeers::Remote { start, answer } => {
                        answer.send(remote::start(&start)).unwrap();
                    }
                    FromPeers::Drop { object, end } => {
                        held.delete(TIER, object).unwrap();
                        end.send(VisitEnd::Dropped).unwrap();
                    }
                }
            }
        });
        let cache = Arc::clone(&self.cache);
        let overflow = Some(self.overflow.clone());
        self.server = Some(Server::start(listener, acceptor, cache, overflow, asks).unwrap());
    }

    fn peer(&self) -> Peer {
        let address = self.server.as_ref().unwrap().address().to_string();
        Peer { address, fingerprint: Some(self.identity.fingerprint().0) }
    }

    fn fetcher(&self) -> Fetcher {
        Fetcher::new(self.level, secret())
    }

    fn put(&self, name: &str, content: &[u8]) -> ObjectId {
        let (url, version): (Arc<str>, Arc<str>) = (name.into(), "".into());
        let id = object_id(&url, &version);
        let object = Object { id, url, version, size: Some(content.len() as u64) };
        let partial = PartialId(id.0 as u64);
        self.cache.partial(TIER, partial).unwrap().write_all_at(content, 0).unwrap();
        self.cache.seal(TIER, partial, &object, content.len() as u64, Copies::Elsewhere).unwrap();
        id
    }
}

/// A file that something is fetched into.
struct Target {
    path: PathBuf,
    landing: Arc<Landing>,
    _dir: tempfile::TempDir,
}

impl Target {
    fn new() -> Target {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("target");
        let landing = Landing::new(Arc::new(File::create(&path).unwrap()), 0, |_| ());
        Target { path, landing, _dir: dir }
    }

    fn content(&self) -> Vec<u8> {
        fs::read(&self.path).unwrap()
    }
}

fn all(object: ObjectId, size: Option<u64>) -> Piece {
    Piece { object, offset: 0, length: None, size }
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 31 + at / 251) as u8).collect()
}

fn run<T>(future: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap().block_on(future)
}

#[test]
fn objects_arrive_whole_and_in_pieces_at_every_level() {
    for level in LEVELS {
        let rig = Rig::new(level);
        let (fetcher, peer) = (rig.fetcher(), rig.peer());
        run(async {
            for bytes in [0, 1, 1000, SMALL_BYTES_MAX as usize, 65_537, 3_000_000] {
                let content = pattern(bytes);
                let id = rig.put(&bytes.to_string(), &content);
                let whole = bytes as u64;
                let pieces = [
                    all(id, None),
                    all(id, Some(whole)),
                    Piece { object: id, offset: whole / 3, length: None, size: Some(whole) },
                    Piece { object: id, offset: whole / 3, length: Some(whole / 2), size: None },
                    Piece { object: id, offset: whole, length: Some(0), size: None },
                ];
                for piece in pieces {
                    let target = Target::new();
                    let fetched = fetcher.fetch(&peer, &piece, &target.landing).await.unwrap();
                    let from = piece.offset as usize;
                    let end = piece.length.map_or(bytes, |length| from + length as usize);
                    assert_eq!(fetched, (end - from) as u64, "{level} {piece:?}");
                    assert!(target.content() == content[from..end], "{level} {piece:?}");
                }
                for (offset, length) in
                    [(whole + 1, None), (whole, Some(1)), (1, Some(u64::MAX - 1))]
                {
                    let piece = Piece { object: id, offset, length, size: None };
                    let error = fetcher.fetch(&peer, &piece, &Target::new().landing).await;
                    assert!(matches!(error, Err(PeerError::Wrong { .. })), "{piece:?}: {error:?}");
                }
            }
        });
    }
}

#[test]
fn parts_of_an_object_on_its_way_are_served_and_then_the_whole() {
    for level in LEVELS {
        let rig = Rig::new(level);
        let peer = rig.peer();
        let content = pattern(3_000_000);
        let (half, whole) = (1_500_000, content.len() as u64);
        let (id, partial) = (object_id("later", ""), PartialId(7));
        let file = rig.cache.partial(TIER, partial).unwrap();
        file.write_all_at(&content[..half as usize], 0).unwrap();
        rig.coming.lock().unwrap().insert(id, (partial, whole));
        let piece = Piece { object: id, offset: 10, length: Some(half - 10), size: Some(whole) };
        let fetch = |piece| {
            let target = Target::new();
            let fetched = run(rig.fetcher().fetch(&peer, &piece, &target.landing));
            fetched.map(|_| target.content())
        };
        assert!(fetch(piece).unwrap() == content[10..half as usize], "{level}");
        // It is in its place before the core has heard of that.
        assert_eq!(rig.put("later", &content), id);
        rig.cache.discard(TIER, partial);
        assert!(fetch(all(id, Some(whole))).unwrap() == content, "{level}");
        // As while its file is moved, until the core says otherwise.
        rig.cache.delete(TIER, id).unwrap();
        assert!(matches!(fetch(piece), Err(PeerError::Coming)), "{level}");
        rig.coming.lock().unwrap().remove(&id);
        assert!(matches!(fetch(piece), Err(PeerError::Gone)), "{level}");
    }
}

#[test]
fn many_small_objects_share_a_connection() {
    for level in LEVELS {
        let rig = Rig::new(level);
        let objects: Vec<(ObjectId, Vec<u8>)> = (0..200)
            .map(|number| {
                let content = pattern(number * 7 % 2000);
                (rig.put(&number.to_string(), &content), content)
            })
            .collect();
        let proxy = proxy::start(&rig.peer().address, proxy::Mischief::None);
        let peer = Peer { address: proxy.address.clone(), ..rig.peer() };
        let fetcher = rig.fetcher();
        run(async {
            let mut fetches = tokio::task::JoinSet::new();
            for (id, content) in objects {
                let (fetcher, peer) = (fetcher.clone(), peer.clone());
                fetches.spawn(async move {
                    let target = Target::new();
                    let piece = all(id, Some(content.len() as u64));
                    fetcher.fetch(&peer, &piece, &target.landing).await.unwrap();
                    assert!(target.content() == content);
                });
            }
            while let Some(fetched) = fetches.join_next().await {
                fetched.unwrap();
            }
            assert_eq!(proxy.connections(), 1);
        });
    }
}

#[test]
fn what_is_not_here_or_not_whole_is_gone() {
    let rig = Rig::new(Level::None);
    let (fetcher, peer) = (rig.fetcher(), rig.peer());
    let here = rig.put("here", b"here");
    let changed = rig.put("changed", b"changed");
    let file = rig.cache.path(changed).unwrap();
    fs::remove_file(&file).unwrap();
    fs::write(&file, "changed").unwrap();
    let half = object_id("half", "");
    rig.cache.partial(TIER, PartialId(1)).unwrap().write_all_at(b"half", 0).unwrap();
    run(async {
        for size in [None, Some(4)] {
            for missing in [ObjectId(1), half, changed] {
                let error = fetcher.fetch(&peer, &all(missing, size), &Target::new().landing).await;
                assert!(matches!(error, Err(PeerError::Gone)), "{error:?}");
            }
            fetcher.fetch(&peer, &all(here, size), &Target::new().landing).await.unwrap();
        }
        fs::remove_dir_all(rig.dir.path().join("cache")).unwrap();
        let error = fetcher.fetch(&peer, &all(here, None), &Target::new().landing).await;
        assert!(matches!(error, Err(PeerError::Gone)), "{error:?}");
    });
}

#[test]
fn a_busy_peer_says_so_at_once() {
    let rig = Rig::new(Level::None);
    let (fetcher, peer) = (rig.fetcher(), rig.peer());
    let id = rig.put("object", &pattern(200_000));
    run(async {
        for size in [None, Some(10)] {
            rig.limit.store(0, Ordering::Relaxed);
            let error = fetcher.fetch(&peer, &all(id, size), &Target::new().landing).await;
            assert!(matches!(error, Err(PeerError::Busy)), "{error:?}");
            rig.limit.store(1, Ordering::Relaxed);
            // One after the other is one at a time.
            for _ in 0..3 {
                fetcher.fetch(&peer, &all(id, None), &Target::new().landing).await.unwrap();
            }
        }
    });
}

#[test]
fn nobody_fetches_without_the_secret() {
    for level in LEVELS {
        let rig = Rig::new(level);
        let id = rig.put("object", b"object");
        let other = Fetcher::new(level, Secret::from_bytes([8; 32]));
        run(async {
            for size in [None, Some(6)] {
                let target = Target::new();
                let error = other.fetch(&rig.peer(), &all(id, size), &target.landing).await;
                assert!(matches!(error, Err(PeerError::NotAllowed { .. })), "{error:?}");
                assert_eq!(target.landing.written(), 0);
            }
            let elsewhere = LEVELS.into_iter().find(|other| *other != level).unwrap();
            let error = Fetcher::new(elsewhere, secret())
                .fetch(&rig.peer(), &all(id, None), &Target::new().landing)
                .await;
            assert!(matches!(error, Err(PeerError::NotAllowed { .. })), "{error:?}");
            if level == Level::Encrypt {
                let peer = Peer { fingerprint: Some([1; 32]), ..rig.peer() };
                let error =
                    rig.fetcher().fetch(&peer, &all(id, None), &Target::new().landing).await;
                assert!(matches!(error, Err(PeerError::NotAllowed { .. })), "{error:?}");
            }
        });
    }
}

#[test]
fn a_peer_that_dies_in_the_middle_says_how_much_arrived() {
    for level in LEVELS {
        let rig = Rig::new(level);
        let content = pattern(2_000_000);
        let id = rig.put("object", &content);
        let proxy = proxy::start(&rig.peer().address, proxy::Mischief::CutAfter(1_000_000));
        let peer = Peer { address: proxy.address.clone(), ..rig.peer() };
        run(async {
            let target = Target::new();
            let error = rig.fetcher().fetch(&peer, &all(id, None), &target.landing).await;
            let Err(PeerError::Lost { arrived, expected: Some(2_000_000), .. }) = error else {
                panic!("{level}: {error:?}");
            };
            assert!((500_000..=1_000_000).contains(&arrived), "{arrived}");
            assert_eq!(target.landing.written(), arrived);
            assert!(target.content() == content[..arrived as usize]);
            // The rest comes from elsewhere.
            let rest = Piece { object: id, offset: arrived, length: None, size: None };
            rig.fetcher().fetch(&rig.peer(), &rest, &target.landing).await.unwrap();
            assert!(target.content() == content);
        });
    }
}

#[test]
fn what_is_changed_on_the_way_is_noticed() {
    for level in [Level::Authenticate, Level::Encrypt] {
        let rig = Rig::new(level);
        let large = rig.put("large", &pattern(500_000));
        let small = rig.put("small", &pattern(60_000));
        for (id, size, at) in [(large, None, 300_000), (small, Some(60_000), 30_000)] {
            let proxy = proxy::start(&rig.peer().address, proxy::Mischief::ChangeAt(at));
            let peer = Peer { address: proxy.address.clone(), ..rig.peer() };
            run(async {
                let error =
                    rig.fetcher().fetch(&peer, &all(id, size), &Target::new().landing).await;
                match (level, error) {
                    (Level::Authenticate, Err(PeerError::Wrong { .. })) => {}
                    (Level::Encrypt, Err(PeerError::Lost { .. })) => {}
                    (_, other) => panic!("{level}: {other:?}"),
                }
            });
        }
    }
}

#[test]
fn a_kept_connection_that_ended_is_made_anew() {
    for level in LEVELS {
        let mut rig = Rig::new(level);
        let id = rig.put("object", &pattern(1000));
        let (fetcher, peer) = (rig.fetcher(), rig.peer());
        run(async {
            for _ in 0..3 {
                for size in [None, Some(1000)] {
                    let target = Target::new();
                    fetcher.fetch(&peer, &all(id, size), &target.landing).await.unwrap();
                    assert_eq!(target.content(), pattern(1000));
                }
                rig.server = None;
                rig.listen(TcpListener::bind(&peer.address).unwrap());
            }
            rig.server = None;
            for size in [None, Some(1000)] {
                let error = fetcher.fetch(&peer, &all(id, size), &Target::new().landing).await;
                assert!(matches!(error, Err(PeerError::Unreachable { .. })), "{error:?}");
            }
        });
    }
}

#[test]
fn a_fetch_that_is_given_up_does_not_disturb_others() {
    let rig = Rig::new(Level::None);
    let (fetcher, peer) = (rig.fetcher(), rig.peer());
    let large = rig.put("large", &pattern(8_000_000));
    let small = rig.put("small", b"small");
    run(async {
        for round in 0..30 {
            for piece in [all(large, None), all(small, Some(5))] {
                let target = Target::new();
                let given_up = fetcher.fetch(&peer, &piece, &target.landing);
                // Polled a few times, then dropped.
                tokio::select! {
                    biased;
                    _ = given_up => {}
                    () = async { for _ in 0..round { tokio::task::yield_now().await } } => {}
                }
            }
            let target = Target::new();
            fetcher.fetch(&peer, &all(small, Some(5)), &target.landing).await.unwrap();
            assert_eq!(target.content(), b"small");
        }
        let target = Target::new();
        fetcher.fetch(&peer, &all(large, None), &target.landing).await.unwrap();
        assert!(target.content() == pattern(8_000_000));
    });
}
