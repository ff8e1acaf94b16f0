//! The handshake: who gets in, who does not, and what each side is told.

#![allow(clippy::unwrap_used, reason = "a test or a benchmark fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use falkon_net::secure::{
    AcceptError, Acceptor, AccessFile, Breakdown, ConnectError, ConnectFailure, Identity, Level,
    PREAMBLE_MS_MAX, Role, Session, Stage, connect, connect_over,
};
use proptest::prelude::*;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, duplex};
use tokio::net::TcpListener;

const LEVELS: [Level; 3] = [Level::None, Level::Authenticate, Level::Encrypt];
const VERSION: u16 = 9;
const PREAMBLE_BYTES: usize = 16;
/// The bytes of a hello, a challenge and a proof with their lengths.
const HELLO_BYTES: usize = 46;
const CHALLENGE_BYTES: usize = 69;
const PROOF_BYTES: usize = 37;

/// Runs with a clock that jumps to the next deadline when nothing else is left
/// to do.
fn run<F: Future>(future: F) -> F::Output {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().start_paused(true).build().unwrap().block_on(future)
}

fn identity() -> Arc<Identity> {
    Arc::new(Identity::open(tempfile::tempdir().unwrap().path()).unwrap())
}

fn acceptor(identity: &Arc<Identity>, level: Level) -> Acceptor {
    Acceptor::new(Arc::clone(identity), level, VERSION).unwrap()
}

fn owner_file(identity: &Identity, level: Level) -> AccessFile {
    identity.access_file(level, &["host:1".to_owned()], &Role::FIXED)
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

/// Client and server meet directly; instances below 10 exist.
fn meet(acceptor: &Acceptor, access: &AccessFile, role: Role) -> Outcome {
    run(async {
        let (near, far) = duplex(1 << 16);
        tokio::join!(
            join(near, access, role, VERSION),
            acceptor.accept_over(
                far,
                "client".to_owned(),
                |role| matches!(role, Role::Instance(id) | Role::User(id) if id < 10)
            ),
        )
    })
}

fn text(failure: ConnectFailure) -> String {
    let address = "host:1".to_owned();
    falkon_net::secure::FailedAttempt { address, failure }.to_string()
}

#[test]
fn every_role_gets_in_at_every_level() {
    let identity = identity();
    for level in LEVELS {
        let acceptor = acceptor(&identity, level);
        let access = owner_file(&identity, level);
        for role in Role::FIXED {
            let (client, server) = meet(&acceptor, &access, role);
            assert_eq!((client.unwrap().role, server.unwrap().role), (role, role));
        }
    }
}

#[test]
fn an_instance_secret_opens_that_instance_alone() {
    let identity = identity();
    for level in LEVELS {
        let acceptor = acceptor(&identity, level);
        let owner = owner_file(&identity, level);
        let of = |id, secret_of| {
            let access = owner.for_instance(id, identity.secret(Role::Instance(secret_of)));
            meet(&acceptor, &access, Role::Instance(id))
        };
        let (client, server) = of(7, 7);
        assert_eq!(client.unwrap().role, Role::Instance(7));
        assert_eq!(server.unwrap().role, Role::Instance(7));

        let (client, server) = of(8, 7);
        assert!(matches!(client, Err(ConnectFailure::OtherInstance { instance: 8 })), "{client:?}");
        assert!(server.is_err());

        // That an instance is gone is told to who has its secret, only.
        let (client, server) = of(70, 70);
        assert!(matches!(client, Err(ConnectFailure::UnknownInstance { instance: 70 })));
        assert!(matches!(server, Err(AcceptError::UnknownInstance { instance: 70 })));
        let (client, _) = of(70, 7);
        assert!(matches!(client, Err(ConnectFailure::OtherInstance { instance: 70 })));

        let access = owner.for_instance(7, identity.secret(Role::Instance(7)));
        for role in Role::FIXED {
            assert!(access.secret(role).is_err());
        }
    }
}

#[test]
fn a_users_secret_opens_the_dispatcher_until_the_user_is_removed() {
    let identity = identity();
    for level in LEVELS {
        let acceptor = acceptor(&identity, level);
        let owner = owner_file(&identity, level);
        let of = |id, secret_of: Role| {
            let access = owner.for_user(id, identity.secret(secret_of));
            meet(&acceptor, &access, Role::User(id))
        };
        let (client, server) = of(7, Role::User(7));
        assert_eq!(client.unwrap().role, Role::User(7));
        assert_eq!(server.unwrap().role, Role::User(7));
        // Neither another user's secret nor that of the instance of the same number.
        for other in [Role::User(8), Role::Instance(7), Role::Client] {
            let (client, server) = of(7, other);
            assert!(matches!(client, Err(ConnectFailure::NotAccepted)), "{client:?}");
            assert!(server.is_err());
        }
        // That a user was removed is told to who has the secret, only.
        let (client, server) = of(70, Role::User(70));
        assert!(matches!(client, Err(ConnectFailure::UnknownUser)), "{client:?}");
        assert!(matches!(server, Err(AcceptError::UnknownUser { user: 70 })));
        let (client, _) = of(70, Role::User(7));
        assert!(matches!(client, Err(ConnectFailure::NotAccepted)), "{client:?}");
    }
}

/// The access file with one role's secret put in another's place.
fn with_secret_of(access: &AccessFile, role: &str, of: &str) -> AccessFile {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("access.json");
    access.write(&path).unwrap();
    let mut value: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    value["secrets"][role] = value["secrets"][of].clone();
    std::fs::write(&path, value.to_string()).unwrap();
    AccessFile::load(&path).unwrap()
}

#[test]
fn a_wrong_secret_is_refused_and_says_what_to_do() {
    let (identity, stranger) = (identity(), identity());
    for level in LEVELS {
        let acceptor = acceptor(&identity, level);
        let wrong_role = with_secret_of(&owner_file(&identity, level), "owner", "observer");
        let mut wrong_dispatcher = owner_file(&stranger, level);
        wrong_dispatcher.fingerprint = owner_file(&identity, level).fingerprint;
        for access in [wrong_role, wrong_dispatcher] {
            let (client, server) = meet(&acceptor, &access, Role::Owner);
            let failure = client.unwrap_err();
            assert!(matches!(failure, ConnectFailure::NotAccepted), "{failure:?}");
            let text = text(failure);
            assert!(text.contains("does not accept this access file"), "{text}");
            assert!(text.contains("copy the current one"), "{text}");
            let error = server.unwrap_err();
            assert!(error.to_string().contains("access file"), "{error}");
        }
    }
}

#[test]
fn a_client_that_goes_on_without_the_secret_is_refused() {
    let identity = identity();
    let acceptor = acceptor(&identity, Level::Authenticate);
    // The same for a role that exists, an instance that does and one that does
    // not: the answers tell nothing.
    for (tag, id) in [(0u8, 0u64), (1, 0), (2, 0), (3, 0), (4, 7), (4, 70)] {
        run(async {
            let (mut near, far) = duplex(1 << 16);
            let client = async move {
                near.write_all(&preamble(VERSION, 1)).await.unwrap();
                near.write_all(&hello(tag, id)).await.unwrap();
                let mut challenge = [0; PREAMBLE_BYTES + 4 + 65];
                near.read_exact(&mut challenge).await.unwrap();
                near.write_all(&[33, 0, 0, 0, 3]).await.unwrap();
                // Its own proof sent back to the server is none.
                let echo = &challenge[challenge.len() - 32..];
                near.write_all(echo).await.unwrap();
                let mut rest = Vec::new();
                near.read_to_end(&mut rest).await.unwrap();
                rest
            };
            let (rest, server) = tokio::join!(
                client,
                acceptor.accept_over(
                    far,
                    String::new(),
                    |role| matches!(role, Role::Instance(id) | Role::User(id) if id < 10)
                )
            );
            assert_eq!(rest, [2, 0, 0, 0, 5, 0]);
            assert!(matches!(server, Err(AcceptError::NotProved { .. })), "{server:?}");
        });
    }
}

#[test]
fn another_certificate_is_refused_before_anything_is_shown() {
    let (identity, stranger) = (identity(), identity());
    let acceptor = acceptor(&identity, Level::Encrypt);
    let mut access = owner_file(&identity, Level::Encrypt);
    access.fingerprint = Some(stranger.fingerprint());
    let (client, server) = meet(&acceptor, &access, Role::Owner);
    let failure = client.unwrap_err();
    assert!(matches!(failure, ConnectFailure::OtherCertificate), "{failure:?}");
    let stage_is_tls = matches!(server, Err(AcceptError::Handshake { stage: Stage::Tls, .. }));
    assert!(stage_is_tls, "{server:?}");

    access.fingerprint = None;
    let (client, _) = meet(&acceptor, &access, Role::Owner);
    assert!(matches!(client, Err(ConnectFailure::NoFingerprint)));
}

#[test]
fn another_version_is_named_on_both_sides() {
    let identity = identity();
    for level in LEVELS {
        let acceptor = acceptor(&identity, level);
        let access = owner_file(&identity, level);
        for version in [VERSION - 1, VERSION + 1, 0, u16::MAX] {
            let (client, server) = run(async {
                let (near, far) = duplex(1 << 16);
                tokio::join!(
                    join(near, &access, Role::Owner, version),
                    acceptor.accept_over(far, String::new(), |_| true),
                )
            });
            let text = text(client.unwrap_err());
            let expected = format!(
                "this falkon speaks protocol {version}, the dispatcher at host:1 speaks {VERSION}: "
            );
            assert!(text.starts_with(&expected), "{text}");
            let text = server.unwrap_err().to_string();
            let expected =
                format!("the peer speaks protocol {version}, this dispatcher speaks {VERSION}");
            assert!(text.starts_with(&expected), "{text}");
        }
    }
}

#[test]
fn another_level_is_refused_on_both_sides() {
    let identity = identity();
    for served in LEVELS {
        let acceptor = acceptor(&identity, served);
        for pinned in LEVELS.into_iter().filter(|level| *level != served) {
            let (client, server) = meet(&acceptor, &owner_file(&identity, pinned), Role::Owner);
            let failure = client.unwrap_err();
            let found = matches!(failure, ConnectFailure::Level { ours, theirs }
                if ours == pinned && theirs == Some(served));
            assert!(found, "{failure:?}");
            let text = text(failure);
            assert!(text.contains(&pinned.to_string()) && text.contains(&served.to_string()));
            let found = matches!(server, Err(AcceptError::Level { theirs, ours })
                if theirs == Some(pinned) && ours == served);
            assert!(found, "{server:?}");
        }
    }
}

#[test]
fn a_server_that_says_fine_and_a_lower_level_is_refused() {
    let identity = identity();
    for (pinned, offered) in [(Level::Encrypt, 1), (Level::Encrypt, 0), (Level::Authenticate, 0)] {
        let access = owner_file(&identity, pinned);
        for version in [VERSION - 1, VERSION] {
            let failure = run(async {
                let (near, mut far) = duplex(1 << 16);
                far.write_all(&preamble(version, offered)).await.unwrap();
                let failure = join(near, &access, Role::Owner, version).await.unwrap_err();
                let mut shown = Vec::new();
                far.read_to_end(&mut shown).await.unwrap();
                let after = &shown[PREAMBLE_BYTES..];
                match (version == VERSION, pinned) {
                    (false, _) => assert!(after.is_empty(), "only the preamble was shown"),
                    // The first message of TLS, without the role.
                    (true, Level::Encrypt) => assert_eq!(after[..2], [22, 3]),
                    (true, _) => assert_eq!(after.len(), HELLO_BYTES, "and a hello, no proof"),
                }
                failure
            });
            assert!(matches!(failure, ConnectFailure::Level { .. }), "{failure:?}");
            assert!(text(failure).contains("offers only"));
        }
    }
}

#[test]
fn somebody_in_between_cannot_change_the_preambles() {
    let identity = identity();
    let access = owner_file(&identity, Level::Authenticate);
    // The server has level none; each side is made to believe that the other
    // has its own level.
    let acceptor = acceptor(&identity, Level::None);
    let (client, server) = run(async {
        let (near, mut from_client) = duplex(1 << 16);
        let (far, mut to_server) = duplex(1 << 16);
        let between = async move {
            relay(&mut from_client, &mut to_server, PREAMBLE_BYTES, |bytes| bytes[10] = 0).await;
            relay(&mut to_server, &mut from_client, PREAMBLE_BYTES, |bytes| bytes[10] = 1).await;
            let _ = tokio::io::copy_bidirectional(&mut from_client, &mut to_server).await;
        };
        let (client, server, ()) = tokio::join!(
            join(near, &access, Role::Owner, VERSION),
            acceptor.accept_over(far, String::new(), |_| true),
            between,
        );
        (client, server)
    });
    assert!(matches!(client, Err(ConnectFailure::NotAccepted)), "{client:?}");
    assert!(server.is_err());
}

async fn relay(
    from: &mut DuplexStream,
    to: &mut DuplexStream,
    bytes: usize,
    change: impl FnOnce(&mut [u8]),
) {
    let mut passing = vec![0; bytes];
    from.read_exact(&mut passing).await.unwrap();
    change(&mut passing);
    to.write_all(&passing).await.unwrap();
}

/// What happens to a direction of a connection after so many bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum After {
    Close,
    Hang,
    Noise,
}

/// Passes on `bytes` and then does something else.
async fn pass(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    bytes: usize,
    after: After,
) {
    // A side that gives up ends the passing early.
    let passed = tokio::io::copy(&mut (&mut from).take(bytes as u64), &mut to).await;
    match after {
        After::Close => {
            let _ = to.shutdown().await;
        }
        After::Hang => {}
        // Noise after a handshake that is whole disturbs a session, not it.
        After::Noise if passed.is_ok_and(|passed| passed < bytes as u64) => {}
        After::Noise => {
            let mut noise = vec![0; 1 << 20];
            blake3::Hasher::new_keyed(&[bytes as u8; 32]).finalize_xof().fill(&mut noise);
            let _ = to.write_all(&noise).await;
            let _ = to.shutdown().await;
        }
    }
    // Whoever still sends is not held up, and the connection stays open.
    let _ = tokio::io::copy(&mut from, &mut tokio::io::sink()).await;
}

#[derive(Clone, Copy, PartialEq)]
enum Direction {
    ToServer,
    ToClient,
}

/// A handshake of which one direction is disturbed after so many bytes; says
/// how it ended for the client and for the server.
fn disturbed(
    acceptor: &Acceptor,
    (access, role): (&AccessFile, Role),
    direction: Direction,
    bytes: usize,
    after: After,
) -> (Result<(), ConnectFailure>, Result<(), AcceptError>) {
    run(async {
        let (near, from_client) = duplex(1 << 16);
        let (far, to_server) = duplex(1 << 16);
        let (client_out, client_in) = tokio::io::split(from_client);
        let (server_out, server_in) = tokio::io::split(to_server);
        let limit = |of| if of == direction { (bytes, after) } else { (1 << 30, After::Close) };
        let (up, down) = (limit(Direction::ToServer), limit(Direction::ToClient));
        // A session is dropped at once, so that the passing ends.
        let (client, server, (), ()) = tokio::join!(
            async { join(near, access, role, VERSION).await.map(drop) },
            async { acceptor.accept_over(far, String::new(), |_| true).await.map(drop) },
            pass(client_out, server_in, up.0, up.1),
            pass(server_out, client_in, down.0, down.1),
        );
        (client, server)
    })
}

/// Disturbs the handshake after every number of bytes, until there are so many
/// that it succeeds; the side that got too little must have failed each time.
fn disturb_everywhere(level: Level, after: After, step: usize) {
    let identity = identity();
    let (acceptor, access) = (acceptor(&identity, level), owner_file(&identity, level));
    let to_server = PREAMBLE_BYTES + HELLO_BYTES + PROOF_BYTES;
    // An executor's welcome comes with the first frame.
    let to_executor = PREAMBLE_BYTES + CHALLENGE_BYTES;
    for (role, direction, least) in [
        (Role::Client, Direction::ToServer, to_server),
        (Role::Client, Direction::ToClient, to_executor + PROOF_BYTES),
        (Role::Executor, Direction::ToClient, to_executor),
    ] {
        for bytes in (0..).step_by(step) {
            let joining = (&access, role);
            let (client, server) = disturbed(&acceptor, joining, direction, bytes, after);
            let whole = match direction {
                Direction::ToServer => server.is_ok(),
                Direction::ToClient => client.is_ok(),
            };
            if whole {
                assert!(bytes >= least, "{level} after {bytes} bytes");
                break;
            }
            if direction == Direction::ToServer {
                assert!(client.is_err(), "{level} after {bytes} bytes");
            }
            if after == After::Hang {
                let hung = match direction {
                    Direction::ToServer => matches!(
                        server,
                        Err(AcceptError::Handshake { source: Breakdown::Deadline { .. }, .. })
                    ),
                    Direction::ToClient => matches!(
                        client,
                        Err(ConnectFailure::Handshake { source: Breakdown::Deadline { .. }, .. })
                    ),
                };
                assert!(hung, "{level} after {bytes} bytes: {client:?}, {server:?}");
            }
        }
    }
}

#[test]
fn a_handshake_cut_short_anywhere_fails() {
    disturb_everywhere(Level::None, After::Close, 1);
    disturb_everywhere(Level::Authenticate, After::Close, 1);
    disturb_everywhere(Level::Encrypt, After::Close, 1);
}

#[test]
fn a_handshake_that_stalls_anywhere_ends_at_the_deadline() {
    disturb_everywhere(Level::Authenticate, After::Hang, 1);
    disturb_everywhere(Level::Encrypt, After::Hang, 13);
}

#[test]
fn a_megabyte_of_noise_anywhere_in_a_handshake_fails() {
    disturb_everywhere(Level::Authenticate, After::Noise, 3);
    disturb_everywhere(Level::Encrypt, After::Noise, 41);
}

#[test]
fn a_slow_writer_is_dropped_at_the_deadline() {
    let identity = identity();
    for level in LEVELS {
        let acceptor = acceptor(&identity, level);
        run(async {
            let (mut near, far) = duplex(1 << 16);
            let writer = tokio::spawn(async move {
                // A byte a second never makes a handshake in time.
                for byte in preamble(VERSION, code(level)).into_iter().cycle() {
                    if near.write_all(&[byte]).await.is_err() {
                        break;
                    }
                    // It sleeps because a slow writer does; the clock is simulated.
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            });
            let start = tokio::time::Instant::now();
            let error = acceptor.accept_over(far, String::new(), |_| true).await.unwrap_err();
            let deadline = matches!(
                error,
                AcceptError::Handshake {
                    stage: Stage::Preamble,
                    source: Breakdown::Deadline { .. }
                }
            );
            assert!(deadline, "{error:?}");
            // The clock is the simulated one.
            let waited = start.elapsed().as_millis() as u64;
            assert!((PREAMBLE_MS_MAX..PREAMBLE_MS_MAX + 10).contains(&waited), "{waited}");
            writer.await.unwrap();
        });
    }
}

#[test]
fn addresses_are_tried_in_turn_and_each_failure_is_told() {
    let identity = identity();
    let acceptor = acceptor(&identity, Level::Encrypt);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let talker = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = |listener: &TcpListener| listener.local_addr().unwrap().to_string();
        let (good, refusing, other) = (at(&listener), at(&closed), at(&talker));
        drop(closed);
        let talk = tokio::spawn(async move {
            loop {
                let (mut stream, _) = talker.accept().await.unwrap();
                let _ = stream.write_all(b"SSH-2.0-OpenSSH_9.9\r\n").await;
            }
        });

        let all = [refusing.clone(), other.clone(), good];
        let access = identity.access_file(Level::Encrypt, &all, &[Role::Client]);
        let (client, server) = tokio::join!(connect(&access, Role::Client, VERSION), async {
            let (stream, _) = listener.accept().await.unwrap();
            acceptor.accept(stream, |_| false).await
        });
        assert_eq!(client.unwrap().peer, all[2]);
        assert!(server.unwrap().peer.starts_with("127.0.0.1:"));

        let access = identity.access_file(Level::Encrypt, &all[..2], &[Role::Client]);
        let error = connect(&access, Role::Client, VERSION).await.unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains(&format!("{refusing} refused the connection: is the disp")),
            "{text}"
        );
        let unlike = format!("{other} did not answer like a falkon dispatcher");
        assert!(text.contains(&unlike), "{text}");
        assert!(error.is_transient());
        let access = identity.access_file(Level::Encrypt, &all[1..2], &[Role::Client]);
        let error = connect(&access, Role::Client, VERSION).await.unwrap_err();
        assert!(!error.is_transient(), "{error}");
        talk.abort();

        let error = connect(&access, Role::Executor, VERSION).await.unwrap_err();
        assert!(matches!(error, ConnectError::Access(_)), "{error}");
    });
}

fn code(level: Level) -> u8 {
    LEVELS.into_iter().position(|other| other == level).unwrap() as u8
}

/// A client's preamble, written by hand.
fn preamble(version: u16, level: u8) -> [u8; PREAMBLE_BYTES] {
    let mut bytes = *b"FALKON\r\n\0\0\0\0\0\0\0\0";
    bytes[8..10].copy_from_slice(&version.to_le_bytes());
    bytes[10] = level;
    bytes
}

/// A hello, written by hand.
fn hello(tag: u8, instance: u64) -> Vec<u8> {
    let mut bytes = vec![42, 0, 0, 0, 1, tag];
    bytes.extend_from_slice(&instance.to_le_bytes());
    bytes.extend_from_slice(&[0x55; 32]);
    bytes
}

/// Bytes that come more or less close to a handshake.
fn noise() -> impl Strategy<Value = Vec<u8>> {
    let tail = prop::collection::vec(any::<u8>(), 0..300);
    let short_message = (0u32..60, tail.clone()).prop_map(|(length, mut body)| {
        body.splice(0..0, length.to_le_bytes());
        body
    });
    let openings = prop_oneof![
        Just(Vec::new()),
        any::<(u16, u8)>().prop_map(|(version, level)| preamble(version, level).to_vec()),
        (0u8..3).prop_map(|level| preamble(VERSION, level).to_vec()),
        (0u8..3, 0u8..6, any::<u64>()).prop_map(|(level, tag, id)| {
            [preamble(VERSION, level).to_vec(), hello(tag, id)].concat()
        }),
    ];
    (openings, prop_oneof![tail, short_message]).prop_map(|(start, end)| [start, end].concat())
}

proptest! {
    #[test]
    fn no_bytes_get_past_a_server_or_a_client(bytes in noise(), piece in 1usize..100) {
        let identity = identity();
        for level in LEVELS {
            let (acceptor, access) = (acceptor(&identity, level), owner_file(&identity, level));
            for to_server in [true, false] {
                run(async {
                    let (near, mut far) = duplex(1 << 16);
                    let feed = async {
                        for piece in bytes.chunks(piece) {
                            if far.write_all(piece).await.is_err() {
                                break;
                            }
                            tokio::task::yield_now().await;
                        }
                        let _ = far.shutdown().await;
                    };
                    if to_server {
                        let (outcome, ()) =
                            tokio::join!(acceptor.accept_over(near, String::new(), |_| true), feed);
                        assert!(!outcome.unwrap_err().to_string().is_empty());
                    } else {
                        let (outcome, ()) = tokio::join!(join(near, &access, Role::Owner, VERSION), feed);
                        assert!(!text(outcome.unwrap_err()).is_empty());
                    }
                });
            }
        }
    }
}
