//! What else comes in at the port.

use crate::fixture::{Dispatcher, Random, Site};
use falkon_core::data::declared::Serving;
use falkon_core::data::object::{Object, ObjectId};
use falkon_core::data::stage::Changes;
use falkon_core::dispatch::{InstanceOptions, Join, Lease, Selection, Update};
use falkon_core::task::Resources;
use falkon_net::client::{Client, ClientError};
use falkon_net::secure::{AccessFile, Role, Session};
use falkon_trials::trial;
use falkon_wire::codec::Wire;
use falkon_wire::message::{FromExecutor, PROTOCOL_VERSION, PROTOCOL_VERSION_OLDEST};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::Path;

pub(crate) fn address(access: &Path) -> String {
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(access).unwrap()).unwrap();
    json["addresses"][0].as_str().unwrap().to_owned()
}

fn connect(dispatcher: &Dispatcher<'_>) -> TcpStream {
    let stream = TcpStream::connect(address(&dispatcher.access().file)).unwrap();
    stream.set_read_timeout(Some(crate::fixture::PATIENCE)).unwrap();
    stream
}

/// The first bytes that a peer of protocol `version` sends.
pub(crate) fn preamble(version: u16) -> [u8; 16] {
    let mut bytes = *b"FALKON\r\n\0\0\x01\0\0\0\0\0";
    bytes[8..10].copy_from_slice(&version.to_le_bytes());
    bytes
}

/// The message by which a peer claims to be an executor.
fn hello() -> Vec<u8> {
    let mut bytes = vec![42, 0, 0, 0, 1, 2];
    bytes.extend_from_slice(&[0; 8 + 32]);
    bytes[14..].fill(0x55);
    bytes
}

/// Reads until the other side hangs up.
pub(crate) fn read_to_end(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        match stream.read(&mut chunk) {
            Ok(0) => return bytes,
            Ok(count) => bytes.extend_from_slice(&chunk[..count]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return bytes,
            // The kernel does not resume a read with a timeout after the process was stopped.
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => panic!("the connection is still open: {error}"),
        }
    }
}

#[trial]
fn strangers_at_the_port_disturb_nobody() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let _executor = dispatcher.executor("worker", &[]);
    let mut random = Random::seeded("strangers_at_the_port_disturb_nobody");
    let memory = dispatcher.service().memory_max();

    // Connections that say nothing, or half of what they should.
    let half_open: Vec<TcpStream> = (0..200)
        .map(|at| {
            let mut stream = connect(&dispatcher);
            stream.write_all(&preamble(PROTOCOL_VERSION)[..at % 17]).unwrap();
            stream
        })
        .collect();
    // A megabyte of random bytes, at once and behind a good beginning.
    let with_hello = [&preamble(PROTOCOL_VERSION)[..], &hello()].concat();
    for start in [
        &b""[..],
        b"FALKON\r\n",
        &preamble(PROTOCOL_VERSION),
        &preamble(PROTOCOL_VERSION_OLDEST),
        &with_hello,
        b"GET / HTTP/1.1\r\n\r\n",
    ] {
        let mut stream = connect(&dispatcher);
        let mut bytes = start.to_vec();
        bytes.extend((0..1 << 17).flat_map(|_| random.next().to_le_bytes()));
        // It is cut off in the middle.
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        read_to_end(&mut stream);
    }
    // First bytes that come one by one.
    let mut stream = connect(&dispatcher);
    for byte in &with_hello {
        stream.write_all(&[*byte]).unwrap();
    }
    let mut answer = [0; 16 + 69];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer[..16], preamble(PROTOCOL_VERSION));
    stream.write_all(&[33, 0, 0, 0, 3]).unwrap();
    stream.write_all(&[0; 32]).unwrap();
    assert_eq!(read_to_end(&mut stream), [2, 0, 0, 0, 5, 0], "it has no proof");
    // Another version is told so.
    let mut stream = connect(&dispatcher);
    stream.write_all(&preamble(PROTOCOL_VERSION + 1)).unwrap();
    let answer = read_to_end(&mut stream);
    assert_eq!(answer[..10], preamble(PROTOCOL_VERSION)[..10]);
    assert_eq!(answer[11], 1, "the answer is: another version");
    let said = dispatcher
        .service()
        .wait_for(&format!("the peer speaks protocol {}", PROTOCOL_VERSION + 1));
    assert!(said.contains("upgrade this dispatcher"), "{said}");

    // All the while, work goes on.
    let args = ["--wait", "--range", "1-20", "--", "echo"];
    assert_eq!(access.run("submit", &args).exits(0).lines().len(), 20);
    assert!(dispatcher.service().memory_max() < memory + (64 << 20));

    // Who takes too long is shown the door.
    let mut slow = connect(&dispatcher);
    slow.write_all(b"FALKON").unwrap();
    assert!(read_to_end(&mut slow).is_empty());
    for mut stream in half_open {
        read_to_end(&mut stream);
    }
    access.run("status", &[]).exits(0);
}

#[trial]
fn other_programs_and_other_releases_at_the_address_are_named() {
    let site = Site::new();
    let mut dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let address = address(&access.file);
    dispatcher.kill();
    let listener = std::net::TcpListener::bind(&address).unwrap();
    let check = |answer: &[u8], code: i32, part: &str| {
        // A connection that ends without an answer is made once more, in the older version.
        let connections = if answer.is_empty() { 2 } else { 1 };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..connections {
                    let (mut stream, _) = listener.accept().unwrap();
                    stream.write_all(answer).unwrap();
                    let _ = stream.shutdown(std::net::Shutdown::Write);
                    read_to_end(&mut stream);
                }
            });
            access.run("status", &[]).exits(code).says_only(1, part);
        });
    };
    check(b"HTTP/1.1 400 Bad Request\r\n\r\n", 2, "did not answer like a falkon dispatcher");
    check(b"", 3, "closed the connection");
    let mut other = preamble(PROTOCOL_VERSION + 7);
    other[11] = 1;
    check(&other, 2, &format!("speaks {}: upgrade this falkon", PROTOCOL_VERSION + 7));
}

#[trial]
fn members_that_talk_nonsense_are_closed_and_nothing_else_happens() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = AccessFile::load(&dispatcher.access().file).unwrap();
    let mut random = Random::seeded("members_that_talk_nonsense");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        for round in 0..40 {
            let role = [Role::Owner, Role::Client, Role::Executor, Role::Observer][round % 4];
            let session =
                falkon_net::secure::connect(&access, role, PROTOCOL_VERSION).await.unwrap();
            let (mut reader, mut writer) = (session.reader, session.writer);
            for _ in 0..random.below(5) + 1 {
                let length = random.below(300);
                let bytes: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
                writer.queue_with(|out| out.extend_from_slice(&bytes)).unwrap();
            }
            // The other side may have hung up already.
            let _ = writer.flush().await;
            let _ = writer.close().await;
            while let Ok(Some(_)) = reader.read_batch().await {}
        }
        // And a request that makes no sense is refused, not fatal.
        let (client, _) = Client::connect(&access, Role::Owner).await.unwrap();
        let nowhere = falkon_core::task::InstanceId(77);
        assert!(matches!(client.seal(nowhere).await, Err(ClientError::Refused(_))));
        let (id, _) = client.create(InstanceOptions::default()).await.unwrap();
        let wide = Selection::Runs(vec![(0, u64::MAX), (u64::MAX, u64::MAX)]);
        let _ = client.cancel(id, wide).await;
        assert!(
            client
                .tasks(id, falkon_core::task::TaskId(u64::MAX), u64::MAX)
                .await
                .unwrap()
                .is_empty()
        );
        client.destroy(id).await.unwrap();
    });
    assert_eq!(dispatcher.access().status()["executors"], serde_json::json!([]));
    let _executor = dispatcher.executor("worker", &[]);
    dispatcher.access().run("submit", &["--wait", "--", "true"]).exits(0);
}

/// An executor that others cannot reach, which says that it holds an object.
async fn unreachable_executor(access: &AccessFile, object: &Object) -> Session {
    // Nobody listens at port 1.
    let serves = Serving { address: "127.0.0.1:1".to_owned(), fingerprint: Vec::new() };
    let join = Join {
        incarnation: 1,
        name: "far".to_owned(),
        capacity: Resources::cpus(1),
        held: Vec::new(),
        reports: Vec::new(),
        gangs: Vec::new(),
        alternatives: Vec::new(),
        serves: Some(serves),
        cache: Default::default(),
        lease: Lease::default(),
    };
    let changes = Changes {
        anew: true,
        added: vec![(object.id, 5)],
        named: vec![object.clone()],
        ..Changes::default()
    };
    let cache = Some(Box::new(changes));
    let update = Update { number: 1, cache, ..Update::default() };
    let connected = falkon_net::secure::connect(access, Role::Executor, PROTOCOL_VERSION).await;
    let mut session = connected.unwrap();
    for message in [FromExecutor::Join(join), FromExecutor::Update(update)] {
        session.writer.queue_with(|out| message.encode(out)).unwrap();
    }
    session.writer.flush().await.unwrap();
    session
}

#[trial]
fn who_reaches_the_dispatcher_alone_is_told_where_to_move_data() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &["--security", "none"]);
    let access = dispatcher.access();
    let file = AccessFile::load(&access.file).unwrap();
    let id = ObjectId(7);
    let object = Object { id, url: "cache:far".into(), version: "1".into(), size: Some(5) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let session = runtime.block_on(unreachable_executor(&file, &object));
    dispatcher.service().wait_for("executor far joined");
    site.write("near", "near\n");
    for (command, object, exit) in
        [("put", "near", 3), ("get", "cache:far", 3), ("rm", "cache:far", 2)]
    {
        let ran = access.run_sub(&["data", command], &[object]).exits(exit);
        ran.says("cannot be reached").says("such as the dispatcher's machine");
    }
    access.run_sub(&["data", "where"], &["cache:far"]).exits(0);
    drop(session);
}
