//! The version that two sides find, and the first bytes that a client sends without waiting.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use falkon_net::secure::{
    AcceptError, Acceptor, AccessFile, ConnectError, ConnectFailure, Identity, Level, Role,
    Session, Versions, connect, connect_over,
};
use proptest::prelude::*;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf, duplex};
use tokio::net::{TcpListener, TcpStream};

const LEVELS: [Level; 3] = [Level::None, Level::Authenticate, Level::Encrypt];
const OLD: u16 = 8;
const NEW: u16 = 9;
const PREAMBLE_BYTES: usize = 16;
const CHALLENGE_BYTES: usize = 69;
/// Connections that are refused with unread bytes: whether a reset comes before the answer is read
/// may be a matter of time.
const REFUSED: usize = 100;

fn run<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

fn identity() -> Arc<Identity> {
    Arc::new(Identity::open(tempfile::tempdir().unwrap().path()).unwrap())
}

/// The versions that a side may be limited to.
fn all_versions() -> [Versions; 3] {
    [OLD.into(), NEW.into(), Versions::between(OLD, NEW)]
}

/// A server at a port of its own.
struct Server {
    listener: TcpListener,
    identity: Arc<Identity>,
    acceptor: Arc<Acceptor>,
    access: AccessFile,
}

impl Server {
    async fn new(level: Level, versions: impl Into<Versions>) -> Server {
        let (listener, identity) = (TcpListener::bind("127.0.0.1:0").await.unwrap(), identity());
        let address = listener.local_addr().unwrap().to_string();
        let access = identity.access_file(level, &[address], &Role::FIXED);
        let acceptor = Arc::new(Acceptor::new(identity.clone(), level, versions).unwrap());
        Server { listener, identity, acceptor, access }
    }

    async fn accept(&self) -> Result<Session, AcceptError> {
        let (stream, _) = self.listener.accept().await.unwrap();
        self.acceptor.accept(stream, |_| true).await
    }

    /// A client that connects, and the outcomes of all connections that it makes.
    async fn meet(
        &self,
        role: Role,
        versions: impl Into<Versions>,
    ) -> (Result<Session, ConnectFailure>, Vec<Result<Session, AcceptError>>) {
        let mut accepting = Vec::new();
        let client = {
            let mut joining = std::pin::pin!(connect(&self.access, role, versions));
            loop {
                tokio::select! {
                    biased;
                    connection = self.listener.accept() => {
                        let (acceptor, (stream, _)) = (self.acceptor.clone(), connection.unwrap());
                        accepting.push(tokio::spawn(async move {
                            acceptor.accept(stream, |_| true).await
                        }));
                    }
                    client = &mut joining => break client,
                }
            }
        };
        let mut accepted = Vec::new();
        for outcome in accepting {
            accepted.push(outcome.await.unwrap());
        }
        (client.map_err(failure), accepted)
    }
}

fn failure(error: ConnectError) -> ConnectFailure {
    match error {
        ConnectError::Failed { mut attempts } => attempts.remove(0).failure,
        error => panic!("{error}"),
    }
}

fn text(failure: ConnectFailure) -> String {
    let address = "host:1".to_owned();
    falkon_net::secure::FailedAttempt { address, failure }.to_string()
}

/// A frame each way.
async fn converse(mut client: Session, mut server: Session) {
    for (from, to) in
        [(&mut server.writer, &mut client.reader), (&mut client.writer, &mut server.reader)]
    {
        from.queue(b"open").unwrap();
        from.queue_sealed_with(|out| out.extend_from_slice(b"sealed")).unwrap();
        from.flush().await.unwrap();
        let mut frames = Vec::new();
        while frames.len() < 2 {
            frames.extend(to.read_batch().await.unwrap().unwrap().map(<[u8]>::to_vec));
        }
        assert_eq!(frames, [&b"open"[..], b"sealed"]);
    }
}

#[test]
fn two_sides_find_the_newest_version_that_both_speak() {
    run(async {
        for level in LEVELS {
            for (theirs, ours) in
                all_versions().into_iter().flat_map(|a| all_versions().map(|b| (a, b)))
            {
                let newest =
                    [NEW, OLD].into_iter().find(|v| theirs.includes(*v) && ours.includes(*v));
                for role in [Role::Client, Role::Executor] {
                    let server = Server::new(level, theirs).await;
                    // Once more than needed the first time, and not again.
                    let is_in_vain = ours.newest() > theirs.newest() && newest.is_some();
                    for attempts in [1 + usize::from(is_in_vain), 1] {
                        let (client, mut accepted) = server.meet(role, ours).await;
                        let about = format!("{level} {theirs} {ours} {role}");
                        let last = accepted.pop();
                        let Some(newest) = newest else {
                            let failure = client.unwrap_err();
                            let is_version = matches!(failure, ConnectFailure::Version { .. });
                            assert!(is_version, "{about}: {failure:?}");
                            continue;
                        };
                        let client = client.unwrap();
                        let server = last.unwrap().unwrap();
                        assert_eq!((client.version, server.version), (newest, newest), "{about}");
                        assert_eq!((client.role, server.role), (role, role));
                        assert_eq!(accepted.len() + 1, attempts, "{about}");
                        for refused in accepted {
                            assert!(matches!(refused, Err(AcceptError::Version { .. })));
                        }
                        converse(client, server).await;
                    }
                }
            }
        }
    });
}

#[test]
fn a_server_that_was_upgraded_is_spoken_to_in_its_new_version() {
    run(async {
        let mut server = Server::new(Level::Authenticate, OLD).await;
        let ours = Versions::between(OLD, NEW);
        let (client, _) = server.meet(Role::Executor, ours).await;
        assert_eq!(client.unwrap().version, OLD);
        for (theirs, version) in [(Versions::from(NEW), NEW), (ours, NEW), (OLD.into(), OLD)] {
            let identity = server.identity.clone();
            let acceptor = Acceptor::new(identity, Level::Authenticate, theirs);
            server.acceptor = Arc::new(acceptor.unwrap());
            for _ in 0..2 {
                let (client, _) = server.meet(Role::Executor, ours).await;
                assert_eq!(client.unwrap().version, version, "{theirs}");
            }
        }
    });
}

#[test]
fn other_versions_are_refused_and_each_side_says_which_one_to_upgrade() {
    run(async {
        let ours = Versions::between(OLD, NEW);
        for level in LEVELS {
            let server = Server::new(level, ours).await;
            for (client, remedy) in [
                (Versions::between(6, 7), "upgrade the peer"),
                (Versions::between(10, 11), "upgrade this dispatcher"),
            ] {
                let newest = client.newest();
                let (failure, mut refused) = server.meet(Role::Executor, client).await;
                // The lower one of 6 and 7 is not tried: the server has named its newest.
                assert_eq!(refused.len(), 1);
                let said = text(failure.unwrap_err());
                let start = format!(
                    "this falkon speaks protocol {client}, the dispatcher at host:1 speaks {NEW}: "
                );
                assert!(said.starts_with(&start), "{said}");
                let said = refused.remove(0).unwrap_err().to_string();
                let expected = format!(
                    "the peer speaks protocol {newest}, this dispatcher speaks 8 and 9: {remedy}"
                );
                assert_eq!(said, expected);
            }
            // And a server that is older, or newer, than all that the client speaks.
            for (theirs, remedy) in [(7, "upgrade the dispatcher"), (10, "upgrade this falkon")] {
                let server = Server::new(level, theirs).await;
                let (failure, refused) = server.meet(Role::Executor, ours).await;
                assert_eq!(refused.len(), 1);
                let expected = format!(
                    "this falkon speaks protocol 8 and 9, the dispatcher at host:1 speaks \
                     {theirs}: {remedy}"
                );
                assert_eq!(text(failure.unwrap_err()), expected);
            }
        }
    });
}

#[test]
fn another_level_is_told_to_a_client_whose_first_bytes_nobody_has_read() {
    run(async {
        for (served, pinned) in LEVELS.into_iter().flat_map(|a| LEVELS.map(|b| (a, b))) {
            if served == pinned {
                continue;
            }
            let mut server = Server::new(served, NEW).await;
            let addresses = server.access.addresses.clone();
            server.access = server.identity.access_file(pinned, &addresses, &Role::FIXED);
            for _ in 0..REFUSED / 10 {
                let (failure, refused) =
                    server.meet(Role::Owner, Versions::between(OLD, NEW)).await;
                let failure = failure.unwrap_err();
                let is_level = matches!(failure, ConnectFailure::Level { theirs: Some(theirs), .. } if theirs == served);
                assert!(is_level, "{served} {pinned}: {failure:?}");
                assert_eq!(refused.len(), 1);
            }
        }
    });
}

/// A server of version 8 reads a preamble alone, answers and closes: the kernel resets the
/// connection because of what was not read.
#[test]
fn an_answer_is_read_though_the_connection_is_reset_behind_it() {
    run(async {
        for level in LEVELS {
            let server = Server::new(level, NEW).await;
            let code = LEVELS.iter().position(|other| *other == level).unwrap() as u8;
            for _ in 0..REFUSED {
                let answering = async {
                    let (mut stream, _) = server.listener.accept().await.unwrap();
                    let mut first = [0; PREAMBLE_BYTES];
                    stream.read_exact(&mut first).await.unwrap();
                    // The rest of what the client has sent at once is here.
                    stream.readable().await.unwrap();
                    let mut answer = preamble(NEW, code);
                    answer[11] = 3;
                    stream.write_all(&answer).await.unwrap();
                };
                let (client, ()) =
                    tokio::join!(connect(&server.access, Role::Executor, NEW), answering);
                let failure = failure(client.unwrap_err());
                assert!(matches!(failure, ConnectFailure::Busy), "{level}: {failure:?}");
            }
        }
    });
}

/// Resets a connection when its first bytes have come.
async fn reset(listener: &TcpListener) {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut first = [0; PREAMBLE_BYTES + 1];
    stream.read_exact(&mut first).await.unwrap();
    stream.set_zero_linger().unwrap();
}

#[test]
fn a_connection_that_is_reset_is_made_once_more_in_the_older_version() {
    run(async {
        let ours = Versions::between(OLD, NEW);
        for level in LEVELS {
            let server = Server::new(level, ours).await;
            // It is not remembered: what has reset one connection may have been a restart.
            for _ in 0..2 {
                let (client, accepted) =
                    tokio::join!(connect(&server.access, Role::Client, ours), async {
                        reset(&server.listener).await;
                        server.accept().await
                    });
                assert_eq!((client.unwrap().version, accepted.unwrap().version), (OLD, OLD));
            }
            let (client, accepted) = server.meet(Role::Client, ours).await;
            assert_eq!((client.unwrap().version, accepted.len()), (NEW, 1));
            // A side that speaks nothing older has only one attempt, and no side more than two.
            let (client, ()) =
                tokio::join!(connect(&server.access, Role::Client, NEW), reset(&server.listener));
            assert!(client.unwrap_err().is_transient());
            let (client, ()) = tokio::join!(connect(&server.access, Role::Client, ours), async {
                reset(&server.listener).await;
                let (stream, _) = server.listener.accept().await.unwrap();
                drop(stream);
            });
            assert!(client.unwrap_err().is_transient());
        }
    });
}

#[test]
fn nobody_in_between_can_have_two_sides_speak_different_versions() {
    run(async {
        for level in LEVELS {
            let server = Server::new(level, Versions::between(OLD, NEW)).await;
            let (near, mut from_client) = duplex(1 << 16);
            let (far, mut to_server) = duplex(1 << 16);
            let between = async move {
                // The client is made to believe in the newer version, the server in the older one.
                let mut bytes = [0; PREAMBLE_BYTES];
                from_client.read_exact(&mut bytes).await.unwrap();
                bytes[8] = OLD as u8;
                to_server.write_all(&bytes).await.unwrap();
                to_server.read_exact(&mut bytes).await.unwrap();
                bytes[8] = NEW as u8;
                from_client.write_all(&bytes).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut from_client, &mut to_server).await;
            };
            let (client, server, ()) = tokio::join!(
                connect_over(near, "host:1".to_owned(), &server.access, Role::Owner, NEW),
                server.acceptor.accept_over(far, String::new(), |_| true),
                between,
            );
            let failure = failure(client.unwrap_err());
            assert!(matches!(failure, ConnectFailure::NotAccepted), "{level}: {failure:?}");
            server.unwrap_err();
        }
    });
}

/// Notes the lengths of writes.
struct Noted<S> {
    stream: S,
    writes: Arc<Mutex<Vec<usize>>>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Noted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, out)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Noted<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[io::IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let bytes: Vec<u8> = parts.iter().flat_map(|part| part.to_vec()).collect();
        let written = Pin::new(&mut self.stream).poll_write(context, &bytes);
        if let Poll::Ready(Ok(count)) = written {
            self.writes.lock().unwrap().push(count);
        }
        written
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// The lengths of the writes of a handshake, the client's and the server's.
async fn writes(level: Level, role: Role, version: u16) -> (Vec<usize>, Vec<usize>) {
    let server = Server::new(level, Versions::between(OLD, NEW)).await;
    let (near, far) = duplex(1 << 16);
    let noted = |stream| {
        let writes = Arc::new(Mutex::new(Vec::new()));
        (Noted { stream, writes: writes.clone() }, writes)
    };
    let ((near, up), (far, down)) = (noted(near), noted(far));
    let (client, accepted) = tokio::join!(
        connect_over(near, "host:1".to_owned(), &server.access, role, version),
        server.acceptor.accept_over(far, String::new(), |_| true),
    );
    converse(client.unwrap(), accepted.unwrap()).await;
    let of = |writes: Arc<Mutex<Vec<usize>>>| writes.lock().unwrap().clone();
    (of(up), of(down))
}

#[test]
fn what_may_leave_together_leaves_in_one_write() {
    run(async {
        let frames = |level| if level == Level::None { 34 } else { 34 + 32 };
        for level in [Level::None, Level::Authenticate] {
            let frames = frames(level);
            let (up, down) = writes(level, Role::Client, NEW).await;
            assert_eq!((up, down), (vec![16 + 46, 37, frames], vec![16 + 69, 37, frames]));
            let (up, down) = writes(level, Role::Executor, NEW).await;
            assert_eq!((up, down), (vec![16 + 46, 37, frames], vec![16 + 69, 37 + frames]));
            let (up, down) = writes(level, Role::Executor, OLD).await;
            assert_eq!((up, down), (vec![16, 46, 37, frames], vec![16, 69, 37, frames]));
        }
        for (version, is_together) in [(NEW, true), (OLD, false)] {
            let (up, down) = writes(Level::Encrypt, Role::Executor, version).await;
            assert_eq!((up[0] > 16, down[0] > 16), (is_together, is_together), "{up:?} {down:?}");
        }
    });
}

fn preamble(version: u16, level: u8) -> [u8; PREAMBLE_BYTES] {
    let mut bytes = *b"FALKON\r\n\0\0\0\0\0\0\0\0";
    bytes[8..10].copy_from_slice(&version.to_le_bytes());
    bytes[10] = level;
    bytes
}

/// A hello of an executor.
fn hello() -> Vec<u8> {
    let mut bytes = vec![42, 0, 0, 0, 1, 2];
    bytes.extend_from_slice(&[0; 8]);
    bytes.extend_from_slice(&[0x55; 32]);
    bytes
}

#[test]
fn first_bytes_that_trickle_in_are_answered_as_they_come() {
    run(async {
        for (level, code) in [(Level::None, 0), (Level::Authenticate, 1)] {
            let server = Server::new(level, Versions::between(OLD, NEW)).await;
            for version in [OLD, NEW] {
                let trickling = async {
                    let address = server.listener.local_addr().unwrap();
                    let mut stream = TcpStream::connect(address).await.unwrap();
                    stream.set_nodelay(true).unwrap();
                    for byte in [preamble(version, code).to_vec(), hello()].concat() {
                        stream.write_all(&[byte]).await.unwrap();
                        tokio::task::yield_now().await;
                    }
                    let mut answer = [0; PREAMBLE_BYTES + CHALLENGE_BYTES];
                    stream.read_exact(&mut answer).await.unwrap();
                    assert_eq!(answer[..PREAMBLE_BYTES], preamble(version, code));
                    // It has no proof.
                    stream.write_all(&[33, 0, 0, 0, 3]).await.unwrap();
                    stream.write_all(&[0; 32]).await.unwrap();
                    let mut rest = Vec::new();
                    stream.read_to_end(&mut rest).await.unwrap();
                    assert_eq!(rest, [2, 0, 0, 0, 5, 0]);
                };
                let (accepted, ()) = tokio::join!(server.accept(), trickling);
                let refused = accepted.unwrap_err();
                assert!(matches!(refused, AcceptError::NotProved { .. }), "{refused:?}");
            }
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// However long it is, in pieces of any length, at any level, and for each answer of the server.
    #[test]
    fn an_oversized_first_flight_gets_nobody_in(
        level in 0usize..3,
        named in 0u8..4,
        version in 7u16..=10,
        begins_well in any::<bool>(),
        length in prop_oneof![0usize..3000, Just(1 << 20)],
        piece in prop_oneof![1usize..5000, Just(1 << 20)],
        seed: [u8; 32],
    ) {
        run(async {
            let server = Server::new(LEVELS[level], Versions::between(OLD, NEW)).await;
            let mut noise = vec![0; length];
            blake3::Hasher::new_keyed(&seed).finalize_xof().fill(&mut noise);
            let begin = if begins_well { hello() } else { Vec::new() };
            let flight = [preamble(version, named).to_vec(), begin, noise].concat();
            let sending = async {
                let address = server.listener.local_addr().unwrap();
                let mut stream = TcpStream::connect(address).await.unwrap();
                for piece in flight.chunks(piece) {
                    if stream.write_all(piece).await.is_err() {
                        break;
                    }
                }
                let _ = stream.shutdown().await;
                let mut answer = Vec::new();
                // It may be reset.
                let _ = stream.read_to_end(&mut answer).await;
                assert!(answer.len() <= 2048, "{} bytes", answer.len());
            };
            let limit = Duration::from_secs(60);
            let both = tokio::time::timeout(limit, async { tokio::join!(server.accept(), sending) });
            let (accepted, ()) = both.await.unwrap();
            accepted.unwrap_err();
        });
    }
}
