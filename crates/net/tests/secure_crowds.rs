//! Crowds of peers that connect and do not go on.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use falkon_core::handshakes::HandshakeBounds;
use falkon_net::secure::{
    AcceptError, Acceptor, AccessFile, Breakdown, ConnectError, ConnectFailure, Identity, Level,
    PREAMBLE_MS_MAX, Role, STALLED_MS, Session, Stage, connect_over,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, duplex};

const LEVEL: Level = Level::Authenticate;
const VERSION: u16 = 9;
/// What a client of this version and level sends first.
const PREAMBLE: &[u8; 16] = b"FALKON\r\n\x09\0\x01\0\0\0\0\0";

/// Runs with a clock that jumps to the next deadline when nothing else is left
/// to do.
fn run<F: Future>(future: F) -> F::Output {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().start_paused(true).build().unwrap().block_on(future)
}

fn dispatcher() -> (Arc<Acceptor>, AccessFile) {
    let identity = Arc::new(Identity::open(tempfile::tempdir().unwrap().path()).unwrap());
    let access = identity.access_file(LEVEL, &["host:1".to_owned()], &Role::FIXED);
    (Arc::new(Acceptor::new(identity, LEVEL, VERSION).unwrap()), access)
}

async fn join(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    access: &AccessFile,
    role: Role,
    version: u16,
) -> Result<Session, ConnectFailure> {
    match connect_over(stream, "host:1".to_owned(), access, role, version).await {
        Ok(session) => Ok(session),
        Err(ConnectError::Failed { mut attempts }) => Err(attempts.remove(0).failure),
        Err(error) => panic!("{error}"),
    }
}

type Outcome = (Result<Session, ConnectFailure>, Result<Session, AcceptError>);

/// Peers that connect, send this much, and do nothing more.
async fn crowd(acceptor: &Arc<Acceptor>, count: usize, first: &[u8]) -> Vec<Idle> {
    let mut all = Vec::new();
    for _ in 0..count {
        let (mut near, far) = duplex(64);
        near.write_all(first).await.unwrap();
        let acceptor = Arc::clone(acceptor);
        let outcome = tokio::spawn(async move {
            acceptor.accept_over(far, String::new(), |_| true).await.map(drop)
        });
        all.push(Idle { near, outcome });
        // Its handshake begins before the next one comes.
        tokio::task::yield_now().await;
    }
    all
}

struct Idle {
    near: tokio::io::DuplexStream,
    outcome: tokio::task::JoinHandle<Result<(), AcceptError>>,
}

fn bounds() -> HandshakeBounds {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    HandshakeBounds::for_descriptors(limit.current.unwrap())
}

/// One that means it.
async fn come(acceptor: &Acceptor, access: &AccessFile) -> Outcome {
    let (near, far) = duplex(1 << 16);
    tokio::join!(
        join(near, access, Role::Owner, VERSION),
        acceptor.accept_over(far, String::new(), |_| true),
    )
}

/// All of them were evicted before they spoke.
async fn evicted(silent: Vec<Idle>) {
    for evicted in silent {
        let error = evicted.outcome.await.unwrap().unwrap_err();
        let source = matches!(
            error,
            AcceptError::Handshake { stage: Stage::Preamble, source: Breakdown::Evicted }
        );
        assert!(source, "{error:?}");
    }
}

#[test]
fn the_oldest_of_too_many_silent_peers_is_evicted_after_a_moment() {
    let (acceptor, access) = dispatcher();
    run(async {
        let start = tokio::time::Instant::now();
        let most = bounds().source_silent_max;
        let mut silent = crowd(&acceptor, most + 3, &[]).await;
        let mut kept = silent.split_off(4);
        let last = silent.split_off(3);
        evicted(silent).await;
        let (client, server) = come(&acceptor, &access).await;
        assert!(client.is_ok() && server.is_ok(), "{client:?} {server:?}");
        evicted(last).await;
        // The clock is simulated and moves only when everybody waits: a moment each, for the
        // silent ones to speak.
        let moment = start.elapsed();
        assert!(moment < Duration::from_millis(10), "{moment:?}");
        // One that speaks at last is answered.
        let mut late = kept.pop().unwrap();
        late.near.write_all(PREAMBLE).await.unwrap();
        let mut answer = [0; 16];
        late.near.read_exact(&mut answer).await.unwrap();
        assert_eq!(answer[11], 0);
        for late in kept {
            let error = late.outcome.await.unwrap().unwrap_err();
            let deadline = matches!(
                error,
                AcceptError::Handshake {
                    stage: Stage::Preamble,
                    source: Breakdown::Deadline { .. }
                }
            );
            assert!(deadline, "{error:?}");
            assert_eq!(start.elapsed().as_millis() as u64 / 100, PREAMBLE_MS_MAX / 100);
        }
    });
}

#[test]
fn peers_that_stall_lose_their_places_to_those_that_wait() {
    let (acceptor, access) = dispatcher();
    run(async {
        let start = tokio::time::Instant::now();
        let stalled = crowd(&acceptor, bounds().places_max, PREAMBLE).await;
        let (client, server) = come(&acceptor, &access).await;
        assert!(client.is_ok() && server.is_ok(), "{client:?} {server:?}");
        // The clock is simulated.
        let waited = start.elapsed().as_millis() as u64;
        assert!((STALLED_MS..STALLED_MS + 100).contains(&waited), "{waited}");
        let mut evicted = 0;
        for one in stalled {
            match one.outcome.await.unwrap().unwrap_err() {
                AcceptError::Handshake { stage: Stage::Hello, source: Breakdown::Evicted } => {
                    evicted += 1;
                }
                AcceptError::Handshake { source: Breakdown::Deadline { .. }, .. } => {}
                error => panic!("{error:?}"),
            }
        }
        assert_eq!(evicted, 1);
    });
}

#[test]
fn where_too_many_wait_for_a_place_the_last_ones_are_told_to_come_back() {
    let (acceptor, access) = dispatcher();
    run(async {
        let HandshakeBounds { places_max, waiting_max, .. } = bounds();
        let stalled = crowd(&acceptor, places_max + waiting_max, PREAMBLE).await;
        let (client, server) = come(&acceptor, &access).await;
        assert!(matches!(client, Err(ConnectFailure::Busy)), "{client:?}");
        assert!(matches!(server, Err(AcceptError::Busy)), "{server:?}");
        for one in stalled {
            drop(one.near);
            assert!(one.outcome.await.unwrap().is_err());
        }
        let (client, server) = come(&acceptor, &access).await;
        client.unwrap();
        server.unwrap();
    });
}
