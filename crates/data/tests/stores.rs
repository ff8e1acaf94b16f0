//! Stores with real files, a real web server and a real S3 server.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "stores/folder.rs"]
mod folder;
#[path = "stores/members.rs"]
mod members;
#[path = "stores/s3.rs"]
mod s3;
#[path = "stores/web.rs"]
mod web;

use falkon_trials::trial;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use falkon_data::object::{Landing, Progress};
use falkon_data::store::{Fetched, Resolved, StoreError, StoreUrl, Stores, Want};

/// A local file that something is fetched into.
struct Target {
    path: PathBuf,
    landing: Arc<Landing>,
    told: Arc<Mutex<Vec<Progress>>>,
    _dir: tempfile::TempDir,
}

impl Target {
    fn new() -> Target {
        Target::at(0)
    }

    fn at(offset: u64) -> Target {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("target");
        let file = Arc::new(File::create(&path).unwrap());
        let told = Arc::new(Mutex::new(Vec::new()));
        let hear = Arc::clone(&told);
        let landing = Landing::new(file, offset, move |progress| match progress {
            Progress::Written(_) => {}
            progress => hear.lock().unwrap().push(progress),
        });
        Target { path, landing, told, _dir: dir }
    }

    fn content(&self) -> Vec<u8> {
        fs::read(&self.path).unwrap()
    }
}

fn run<T>(future: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap().block_on(future)
}

fn stores() -> Stores {
    Stores::new([])
}

fn url(text: &str) -> StoreUrl {
    StoreUrl::parse(text).unwrap()
}

fn of(path: &Path) -> StoreUrl {
    url(path.to_str().unwrap())
}

fn piece(offset: u64, length: Option<u64>) -> Want {
    Want { offset, length, version: None }
}

/// Bytes that differ from place to place.
fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 31 + at / 251) as u8).collect()
}

#[trial]
fn a_file_is_copied_whole_and_in_pieces() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    let content = pattern(3_000_000);
    fs::write(&source, &content).unwrap();
    run(async {
        let stores = stores();
        let known = stores.resolve(&of(&source)).await.unwrap();
        assert_eq!(known.bytes, Some(3_000_000));
        let target = Target::new();
        let fetched = stores.fetch(&of(&source), &Want::default(), &target.landing).await.unwrap();
        assert_eq!(fetched, Fetched { bytes: 3_000_000, version: known.version.clone() });
        assert_eq!(*target.told.lock().unwrap(), [Progress::Sized(3_000_000)]);
        assert!(target.content() == content);

        let target = Target::at(10);
        let want = Want { offset: 1000, length: Some(500), version: Some(known.version.clone()) };
        let fetched = stores.fetch(&of(&source), &want, &target.landing).await.unwrap();
        assert_eq!(fetched.bytes, 500);
        assert_eq!(&target.content()[10..], &content[1000..1500]);

        let target = Target::new();
        let rest = stores.fetch(&of(&source), &piece(2_999_990, None), &target.landing).await;
        assert_eq!(rest.unwrap().bytes, 10);
        for beyond in [piece(3_000_001, None), piece(2_999_999, Some(2)), piece(1, Some(u64::MAX))]
        {
            let error = stores.fetch(&of(&source), &beyond, &Target::new().landing).await;
            assert!(matches!(error, Err(StoreError::Refused { .. })), "{beyond:?}: {error:?}");
        }
    });
}

#[trial]
fn what_is_wrong_with_a_file_is_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    run(async {
        let stores = stores();
        let target = Target::new();
        let error = stores.fetch(&of(&path), &Want::default(), &target.landing).await;
        assert!(matches!(error, Err(StoreError::NotThere { .. })), "{error:?}");
        let error = stores.resolve(&of(&dir.path().join("file/below"))).await;
        assert!(matches!(error, Err(StoreError::NotThere { .. })), "{error:?}");
        let error = stores.resolve(&of(dir.path())).await;
        assert!(matches!(error, Err(StoreError::Refused { .. })), "{error:?}");
        let error = stores.fetch(&url("/dev/zero"), &Want::default(), &target.landing).await;
        assert!(matches!(error, Err(StoreError::Refused { .. })), "{error:?}");

        fs::write(&path, "one").unwrap();
        let before = stores.resolve(&of(&path)).await.unwrap();
        fs::write(&path, "other").unwrap();
        let now = stores.resolve(&of(&path)).await.unwrap();
        let want = Want { version: Some(before.version), ..Want::default() };
        match stores.fetch(&of(&path), &want, &target.landing).await {
            Err(StoreError::Changed { now: Some(found), .. }) => assert_eq!(found, now),
            other => panic!("{other:?}"),
        }
        // Root may do everything.
        if !rustix::process::geteuid().is_root() {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
            let error = stores.fetch(&of(&path), &Want::default(), &target.landing).await;
            assert!(matches!(error, Err(StoreError::NotAllowed { .. })), "{error:?}");
        }
        // A local file that cannot grow is not the store's fault.
        let full = Arc::new(File::options().write(true).open("/dev/full").unwrap());
        fs::write(dir.path().join("content"), "x").unwrap();
        let landing = Landing::new(full, 0, |_| ());
        let error =
            stores.fetch(&of(&dir.path().join("content")), &Want::default(), &landing).await;
        assert!(matches!(error, Err(StoreError::DiskFull { .. })), "{error:?}");
    });
}

#[trial]
fn an_output_appears_whole_and_replaces_in_one_step() {
    let dir = tempfile::tempdir().unwrap();
    let (source, target) = (dir.path().join("source"), dir.path().join("new/folder/target"));
    let content = pattern(100_000);
    fs::write(&source, &content).unwrap();
    fs::set_permissions(&source, fs::Permissions::from_mode(0o500)).unwrap();
    run(async {
        let stores = stores();
        for _ in 0..2 {
            let put = stores.put(&source, &of(&target)).await.unwrap();
            assert_eq!(put, stores.resolve(&of(&target)).await.unwrap());
            assert!(fs::read(&target).unwrap() == content);
            assert!(fs::metadata(&target).unwrap().permissions().mode() & 0o100 != 0);
            let names: Vec<_> = fs::read_dir(target.parent().unwrap()).unwrap().collect();
            assert_eq!(names.len(), 1, "{names:?}");
        }
        let error = stores.put(&source, &of(target.parent().unwrap())).await;
        assert!(matches!(error, Err(StoreError::Refused { .. })), "{error:?}");
        let error = stores.put(&source, &of(&source.join("below"))).await;
        assert!(error.is_err());
        let error = stores.put(&dir.path().join("none"), &of(&target)).await;
        assert!(matches!(error, Err(StoreError::Local { .. })), "{error:?}");
        let error = stores.put(&source, &url("http://localhost/x")).await;
        assert!(matches!(error, Err(StoreError::ReadOnly { .. })), "{error:?}");
    });
}

#[trial]
fn a_file_that_changes_under_the_copy_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let bytes = 4 << 20;
    fs::write(&path, vec![0; bytes]).unwrap();
    let done = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let writer = {
        let (done, path) = (Arc::clone(&done), path.clone());
        std::thread::spawn(move || {
            let file = File::options().write(true).open(path).unwrap();
            let mut round = 0u8;
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                round = round.wrapping_add(1);
                std::os::unix::fs::FileExt::write_all_at(&file, &vec![round; bytes], 0).unwrap();
            }
        })
    };
    run(async {
        let stores = stores();
        loop {
            let target = Target::new();
            match stores.fetch(&of(&path), &Want::default(), &target.landing).await {
                Err(StoreError::Changed { .. }) => break,
                // The clock of file times is coarse: what was written within
                // one of its ticks does not show. Nor need the writer have had
                // its turn.
                Ok(_) => {}
                Err(other) => panic!("{other:?}"),
            }
        }
    });
    done.store(true, std::sync::atomic::Ordering::Relaxed);
    writer.join().unwrap();
}

#[trial]
fn a_web_object_is_fetched_whole_and_in_pieces() {
    let content = pattern(2_500_000);
    let server = web::serve(content.clone());
    run(async {
        let stores = stores();
        let at = |path: &str| url(&format!("http://{}{path}", server.address));
        let known = stores.resolve(&at("/tagged?x=1")).await.unwrap();
        assert_eq!(known, Resolved { bytes: Some(2_500_000), version: "\"v1\"".to_owned() });
        assert_eq!(stores.resolve(&at("/headless")).await.unwrap(), known);
        let dated = stores.resolve(&at("/dated")).await.unwrap();
        assert_eq!(dated.version, format!("{} 2500000", web::DATE));
        assert_eq!(stores.resolve(&at("/bare")).await.unwrap().version, "");

        for path in ["/tagged?x=1", "/dated", "/bare", "/chunked", "/moved"] {
            let target = Target::new();
            let fetched = stores.fetch(&at(path), &Want::default(), &target.landing).await.unwrap();
            assert_eq!(fetched.bytes, 2_500_000, "{path}");
            assert!(target.content() == content, "{path}");
            let told = target.told.lock().unwrap().clone();
            match path {
                "/chunked" => assert_eq!(told.last(), Some(&Progress::Arriving(2_500_000))),
                _ => assert_eq!(told, [Progress::Sized(2_500_000)]),
            }
        }
        let target = Target::at(7);
        let want =
            Want { offset: 100, length: Some(1_500_000), version: Some("\"v1\"".to_owned()) };
        stores.fetch(&at("/tagged"), &want, &target.landing).await.unwrap();
        assert!(target.content()[7..] == content[100..1_500_100]);
        let target = Target::new();
        stores.fetch(&at("/tagged"), &piece(2_499_999, None), &target.landing).await.unwrap();
        assert_eq!(target.content(), content[2_499_999..]);
        let none = stores.fetch(&at("/tagged"), &piece(2_500_000, None), &target.landing).await;
        assert_eq!(none.unwrap().bytes, 0);
        for beyond in [piece(2_500_001, None), piece(2_499_999, Some(2))] {
            let error = stores.fetch(&at("/tagged"), &beyond, &Target::new().landing).await;
            assert!(matches!(error, Err(StoreError::Refused { .. })), "{beyond:?}: {error:?}");
        }
        let error = stores.fetch(&at("/rangeless"), &piece(1, Some(1)), &target.landing).await;
        assert!(matches!(error, Err(StoreError::Refused { .. })), "{error:?}");
    });
}

#[trial]
fn what_is_wrong_with_a_web_object_is_told_apart() {
    let server = web::serve(pattern(1_000_000));
    run(async {
        let stores = stores();
        let fetch = async |path: &str, want: &Want, target: &Target| {
            let url = url(&format!("http://{}{path}", server.address));
            stores.fetch(&url, want, &target.landing).await.unwrap_err()
        };
        let all = Want::default();
        let error = fetch("/404", &all, &Target::new()).await;
        assert!(matches!(error, StoreError::NotThere { .. }), "{error:?}");
        let error = fetch("/403", &all, &Target::new()).await;
        assert!(matches!(error, StoreError::NotAllowed { .. }), "{error:?}");
        for status in ["/503", "/429", "/500"] {
            let error = fetch(status, &all, &Target::new()).await;
            assert!(error.is_transient(), "{error:?}");
        }
        let error = fetch("/418", &all, &Target::new()).await;
        assert!(matches!(error, StoreError::Refused { .. }), "{error:?}");
        let want = Want { version: Some("\"v0\"".to_owned()), ..Want::default() };
        match fetch("/tagged", &want, &Target::new()).await {
            StoreError::Changed { now: Some(now), .. } => assert_eq!(now.version, "\"v1\""),
            other => panic!("{other:?}"),
        }
        // What came before the connection broke is there.
        let target = Target::new();
        let error = fetch("/cut", &all, &target).await;
        assert!(matches!(error, StoreError::Unreachable { .. }), "{error:?}");
        let arrived = target.landing.written();
        assert_eq!(arrived, 500_000);
        assert!(target.content() == pattern(500_000));
        // Nobody listens at a port that was just given back.
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let error = stores.resolve(&url(&format!("http://{free}/"))).await.unwrap_err();
        assert!(matches!(error, StoreError::Unreachable { .. }), "{error:?}");
    });
}

fn main() -> std::process::ExitCode {
    falkon_trials::main()
}
