//! Objects between two executors over loopback, beside a bare sendfile(2) that
//! moves the same bytes: `cargo bench -p falkon-data --bench peers`.
//!
//! Files are in /dev/shm, so that the transfer is measured and not a disk. The
//! bare receiver writes what it gets to a file too. The rounds of the
//! contenders are interleaved and the median of each is printed.

#![allow(clippy::unwrap_used, reason = "a test or a benchmark fails by panicking")]

use std::fs::File;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use falkon_core::data::cache::TierId;
use falkon_core::data::object::{Object, ObjectId};
use falkon_core::data::stage::PartialId;
use falkon_data::cache::{Access, Copies, DiskCache};
use falkon_data::object::Landing;
use falkon_data::peer::{BUFFER_BYTES, Fetcher, FromPeers, Peer, Piece, Server, Verdict};
use falkon_net::ids::object_id;
use falkon_net::secure::{Level, PeerAcceptor, PeerIdentity, Secret};
use tokio::sync::mpsc;

const LARGE_BYTES: u64 = 1 << 30;
const SMALL_BYTES: usize = 1 << 10;
const SMALL_OBJECTS: usize = 100_000;
/// Small objects that are asked for at once.
const SMALL_AT_ONCE: usize = 64;
const ROUNDS: usize = 5;
const PLACINGS: usize = 10_000;

const TIER: TierId = TierId(0);
const LEVELS: [Level; 3] = [Level::None, Level::Authenticate, Level::Encrypt];

fn main() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let (cache, _) = DiskCache::open(&[dir.path().join("from")]).unwrap();
    let cache = Arc::new(cache);
    let large = put(&cache, "large", LARGE_BYTES, &vec![7; 1 << 20]);
    let small: Vec<ObjectId> = (0..SMALL_OBJECTS)
        .map(|number| put(&cache, &number.to_string(), SMALL_BYTES as u64, &[7; SMALL_BYTES]))
        .collect();
    one_large(dir.path(), &cache, large);
    many_small(dir.path(), &cache, &small);
    placing(dir.path(), &cache, &small);
}

fn one_large(dir: &Path, cache: &Arc<DiskCache>, large: ObjectId) {
    let mut bare = Vec::new();
    let mut rounds = LEVELS.map(|_| Vec::new());
    for _ in 0..ROUNDS {
        bare.push(bare_sendfile(&cache.path(large).unwrap(), &dir.join("bare")));
        for (level, times) in LEVELS.into_iter().zip(&mut rounds) {
            times.push(fetch_large(level, cache, large, &dir.join("fetched")));
        }
    }
    let bare = median(bare);
    println!("one object of 1 GiB");
    println!("  bare sendfile  {:>8.0} MB/s", LARGE_BYTES as f64 / bare / 1e6);
    for (level, times) in LEVELS.into_iter().zip(rounds) {
        let (level, seconds) = (level.to_string(), median(times));
        println!(
            "  {level:<14} {:>8.0} MB/s   {:.2} of the bare sendfile",
            LARGE_BYTES as f64 / seconds / 1e6,
            bare / seconds
        );
    }
}

fn many_small(dir: &Path, cache: &Arc<DiskCache>, small: &[ObjectId]) {
    println!("{SMALL_OBJECTS} objects of {SMALL_BYTES} bytes, into a cache");
    for level in LEVELS {
        let to = dir.join(format!("to-{level}"));
        let (target, _) = DiskCache::open(std::slice::from_ref(&to)).unwrap();
        let time = fetch_small(level, cache, small, Arc::new(target));
        let level = level.to_string();
        println!("  {level:<14} {:>8.0} objects/s", small.len() as f64 / time.as_secs_f64());
        std::fs::remove_dir_all(to).unwrap();
    }
}

fn placing(dir: &Path, cache: &DiskCache, small: &[ObjectId]) {
    let boxes = dir.join("box");
    std::fs::create_dir(&boxes).unwrap();
    let start = Instant::now();
    for (number, id) in small.iter().take(PLACINGS).enumerate() {
        cache.place(*id, &boxes.join(number.to_string()), Access::Read).unwrap();
    }
    let micros = start.elapsed().as_secs_f64() * 1e6 / PLACINGS as f64;
    println!("a cached object put into a sandbox: {micros:.1} us");
}

/// An object of so many bytes, `piece` again and again.
fn put(cache: &DiskCache, name: &str, bytes: u64, piece: &[u8]) -> ObjectId {
    let object = object(name, bytes);
    let file = cache.partial(TIER, PartialId(0)).unwrap();
    for at in (0..bytes).step_by(piece.len()) {
        file.write_all_at(piece, at).unwrap();
    }
    cache.seal(TIER, PartialId(0), &object, bytes, Copies::Elsewhere).unwrap();
    object.id
}

fn object(name: &str, bytes: u64) -> Object {
    let (url, version): (Arc<str>, Arc<str>) = (name.into(), "".into());
    Object { id: object_id(&url, &version), url, version, size: Some(bytes) }
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64()
}

/// The same bytes between two threads, with nothing around them.
fn bare_sendfile(from: &Path, to: &Path) -> Duration {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let from = File::open(from).unwrap();
    let start = Instant::now();
    let sender = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut at = 0;
        while at < LARGE_BYTES {
            let left = (LARGE_BYTES - at) as usize;
            rustix::fs::sendfile(&stream, &from, Some(&mut at), left).unwrap();
        }
    });
    let mut stream = TcpStream::connect(address).unwrap();
    let file = File::create(to).unwrap();
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut at = 0;
    while at < LARGE_BYTES {
        let count = stream.read(&mut buffer).unwrap();
        file.write_all_at(&buffer[..count], at).unwrap();
        at += count as u64;
    }
    let time = start.elapsed();
    sender.join().unwrap();
    std::fs::remove_file(to).unwrap();
    time
}

/// Serves `cache`, letting everybody have everything.
fn serve(level: Level, cache: &Arc<DiskCache>) -> (Server, Peer, Fetcher) {
    let (identity, secret) = (PeerIdentity::generate().unwrap(), Secret::from_bytes([7; 32]));
    let acceptor = PeerAcceptor::new(&identity, level, secret.clone()).unwrap();
    let (asks, mut asked) = mpsc::channel(64);
    std::thread::spawn(move || {
        while let Some(message) = asked.blocking_recv() {
            if let FromPeers::Ask { answer, .. } = message {
                answer.send(Verdict::Serve).unwrap();
            }
        }
    });
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = Server::start(listener, acceptor, Arc::clone(cache), None, asks).unwrap();
    let fingerprint = Some(identity.fingerprint().0);
    let peer = Peer { address: server.address().to_string(), fingerprint };
    (server, peer, Fetcher::new(level, secret))
}

fn run<T>(future: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap().block_on(future)
}

fn fetch_large(level: Level, cache: &Arc<DiskCache>, large: ObjectId, to: &Path) -> Duration {
    let (_server, peer, fetcher) = serve(level, cache);
    let landing = Landing::new(Arc::new(File::create(to).unwrap()), 0, |_| ());
    let piece = Piece { object: large, offset: 0, length: None, size: Some(LARGE_BYTES) };
    let start = Instant::now();
    let fetched = run(fetcher.fetch(&peer, &piece, &landing)).unwrap();
    let time = start.elapsed();
    assert_eq!(fetched, LARGE_BYTES);
    std::fs::remove_file(to).unwrap();
    time
}

fn fetch_small(
    level: Level,
    cache: &Arc<DiskCache>,
    small: &[ObjectId],
    target: Arc<DiskCache>,
) -> Duration {
    let (_server, peer, fetcher) = serve(level, cache);
    let start = Instant::now();
    run(async {
        let mut fetches = tokio::task::JoinSet::new();
        for (number, id) in small.iter().enumerate() {
            if fetches.len() >= SMALL_AT_ONCE {
                fetches.join_next().await.unwrap().unwrap();
            }
            let (fetcher, peer, target, id) =
                (fetcher.clone(), peer.clone(), Arc::clone(&target), *id);
            fetches.spawn(async move {
                let partial = PartialId(number as u64);
                let file = Arc::new(target.partial(TIER, partial).unwrap());
                let size = SMALL_BYTES as u64;
                let piece = Piece { object: id, offset: 0, length: None, size: Some(size) };
                let landing = Landing::new(file, 0, |_| ());
                fetcher.fetch(&peer, &piece, &landing).await.unwrap();
                let object = object(&number.to_string(), size);
                target.seal(TIER, partial, &object, size, Copies::Elsewhere).unwrap();
            });
        }
        while let Some(done) = fetches.join_next().await {
            done.unwrap();
        }
    });
    start.elapsed()
}
