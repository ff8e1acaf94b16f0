//! Visitors with tickets: each gets what its ticket is for, and no more.

use super::{LEVELS, Rig, Target, VISITS_UNTIL, all, pattern, run, secret};
use falkon_core::data::object::{Object, ObjectId};
use falkon_data::peer::{Peer, PeerError, VisitError, Visitor};
use falkon_net::ids::object_id;
use falkon_net::secure::{Claims, Level, Secret, VisitPurpose};
use std::fs::File;

fn object(key: &str, content: &[u8]) -> Object {
    let (url, version) = (format!("cache:{key}"), format!("blake3:{}", blake3::hash(content)));
    let id = object_id(&url, &version);
    Object { id, url: url.into(), version: version.into(), size: Some(content.len() as u64) }
}

fn visitor_under(secret: &Secret, level: Level, purpose: VisitPurpose, id: ObjectId) -> Visitor {
    let claims = Claims { purpose, object: id, expires: VISITS_UNTIL };
    Visitor::new(level, purpose, id, &claims.ticket(secret))
}

fn visitor(level: Level, purpose: VisitPurpose, id: ObjectId) -> Visitor {
    visitor_under(&secret(), level, purpose, id)
}

fn file(content: &[u8]) -> (tempfile::TempDir, File) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, content).unwrap();
    (dir, File::open(path).unwrap())
}

async fn got(visitor: &Visitor, peer: &Peer, id: ObjectId) -> Result<Vec<u8>, PeerError> {
    let target = Target::new();
    visitor.fetcher().fetch(peer, &all(id, None), &target.landing).await?;
    Ok(target.content())
}

#[test]
fn objects_are_put_got_and_dropped_at_every_level() {
    for level in LEVELS {
        let rig = Rig::new(level);
        let peer = rig.peer();
        run(async {
            for bytes in [0, 1, 70_000, 3_000_000] {
                let content = pattern(bytes);
                let object = object(&bytes.to_string(), &content);
                let (_dir, file) = file(&content);
                let put = visitor(level, VisitPurpose::Put, object.id);
                put.put(&peer, &object, &file, bytes as u64).await.unwrap();
                let get = visitor(level, VisitPurpose::Get, object.id);
                for _ in 0..2 {
                    assert!(got(&get, &peer, object.id).await.unwrap() == content, "{level}");
                }
                let drop = visitor(level, VisitPurpose::Drop, object.id);
                drop.drop_object(&peer).await.unwrap();
                assert!(rig.cache.read(object.id).is_err());
                // What is said to have another content is not kept.
                let (_dir, wrong) = self::file(&pattern(bytes + 1)[1..]);
                let result = put.put(&peer, &object, &wrong, bytes as u64).await;
                assert_eq!(
                    bytes > 0,
                    matches!(&result, Err(VisitError::Refused(why)) if why.contains("hash")),
                    "{result:?}"
                );
            }
        });
    }
}

#[test]
fn a_ticket_is_good_for_one_thing_with_one_object() {
    for level in LEVELS {
        let rig = Rig::new(level);
        let peer = rig.peer();
        let (one, other) = (rig.put("one", b"1"), rig.put("other", b"2"));
        run(async {
            let get = visitor(level, VisitPurpose::Get, one);
            assert_eq!(got(&get, &peer, one).await.unwrap(), b"1");
            assert!(got(&get, &peer, other).await.is_err(), "another object");
            // A ticket for one thing does not do for another.
            let claims = Claims { purpose: VisitPurpose::Get, object: one, expires: VISITS_UNTIL };
            let ticket = claims.ticket(&secret());
            let forged = Visitor::new(level, VisitPurpose::Drop, one, &ticket);
            assert!(matches!(forged.drop_object(&peer).await, Err(VisitError::Peer(_))));
            let forged = Visitor::new(level, VisitPurpose::Get, other, &ticket);
            assert!(got(&forged, &peer, other).await.is_err());
            // Nor longer than it does.
            let mut longer = claims.ticket(&secret());
            longer.expires = VISITS_UNTIL.after(1);
            let forged = Visitor::new(level, VisitPurpose::Get, one, &longer);
            assert!(got(&forged, &peer, one).await.is_err());
            // One of another dispatcher opens nothing.
            let stranger = Secret::from_bytes([9; 32]);
            let forged = visitor_under(&stranger, level, VisitPurpose::Get, one);
            let error = got(&forged, &peer, one).await;
            assert!(matches!(error, Err(PeerError::NotAllowed { .. })), "{error:?}");
            // One that has ended.
            let claims = Claims { expires: falkon_core::task::Time(1), ..claims };
            let ticket = claims.ticket(&secret());
            let late = Visitor::new(level, VisitPurpose::Get, one, &ticket);
            assert!(got(&late, &peer, one).await.is_err());
            let claims = Claims { purpose: VisitPurpose::Drop, ..claims };
            let late = Visitor::new(level, VisitPurpose::Drop, one, &claims.ticket(&secret()));
            assert!(matches!(late.drop_object(&peer).await, Err(VisitError::Expired)));
            // A ticket to put one object does not put another.
            let content = b"content";
            let object = object("k", content);
            let (_dir, file) = file(content);
            let wrong = visitor(level, VisitPurpose::Put, one);
            let result = wrong.put(&peer, &object, &file, 7).await;
            assert!(
                matches!(&result, Err(VisitError::Refused(why)) if why.contains("ticket")),
                "{result:?}"
            );
            // Nor does one under the name of what is in a store, or of another.
            let version = "7-1700000000000000000";
            let in_store = Object {
                id: object_id("/shared/ref.db", version),
                url: "/shared/ref.db".into(),
                version: version.into(),
                size: Some(7),
            };
            let put = visitor(level, VisitPurpose::Put, in_store.id);
            let result = put.put(&peer, &in_store, &file, 7).await;
            assert!(
                matches!(&result, Err(VisitError::Refused(why)) if why.contains("`cache:`")),
                "{result:?}"
            );
            assert!(rig.cache.read(in_store.id).is_err());
            // All is as it was.
            assert!(rig.cache.read(one).is_ok() && rig.cache.read(other).is_ok());
            assert!(rig.cache.read(object.id).is_err());
        });
    }
}

#[test]
fn what_a_task_writes_is_read_from_memory_and_its_file_with_a_ticket_for_it() {
    use super::WRITTEN_BYTES;
    use falkon_core::result::Stream;
    use falkon_core::tail::TailState;
    use falkon_core::task::{InstanceId, TaskId, TaskKey};
    use falkon_net::ids::tail_id;
    use std::time::Duration;
    let key = |task| TaskKey { instance: InstanceId(1), task: TaskId(task) };
    let id = |key: TaskKey, stream| tail_id(key.instance, key.task, stream);
    for level in LEVELS {
        let rig = Rig::new(level);
        std::fs::write(rig.dir.path().join("written"), pattern(WRITTEN_BYTES)).unwrap();
        let peer = rig.peer();
        run(async {
            let (task, stream) = (key(2), Stream::Stdout);
            let with_ticket = visitor(level, VisitPurpose::Tail, id(task, stream));
            let mut visit = with_ticket.tail(&peer, task, stream).await.unwrap();
            let mut read = Vec::new();
            loop {
                let at = read.len() as u64;
                let tail = visit.ask(at, Duration::from_secs(9)).await.unwrap();
                assert_eq!((tail.total_bytes, tail.is_cut), (WRITTEN_BYTES as u64, false));
                read.extend(tail.bytes);
                if tail.state == TailState::Ended {
                    break;
                }
                assert_eq!(tail.state, TailState::Running);
            }
            assert!(read == pattern(WRITTEN_BYTES), "{level}");
            // Another task, or the other stream, is not what the ticket is for.
            for (task, stream) in [(key(3), stream), (task, Stream::Stderr)] {
                let mut other = with_ticket.tail(&peer, task, stream).await.unwrap();
                assert!(other.ask(0, Duration::ZERO).await.is_err());
            }
            let with_ticket = visitor(level, VisitPurpose::Tail, id(key(3), stream));
            let mut visit = with_ticket.tail(&peer, key(3), stream).await.unwrap();
            let tail = visit.ask(0, Duration::from_secs(9)).await.unwrap();
            assert_eq!(tail.state, TailState::Gone);
            let as_output = visitor(level, VisitPurpose::Output, id(task, stream));
            assert!(got(&as_output, &peer, id(task, stream)).await.is_err());
        });
    }
}

#[test]
fn a_ticket_for_output_opens_that_output_and_nothing_else() {
    use falkon_core::result::Stream;
    use falkon_core::task::{InstanceId, TaskId};
    use falkon_net::ids::output_id;
    let key = (InstanceId(1), TaskId(2));
    for level in LEVELS {
        let rig = Rig::new(level);
        let peer = rig.peer();
        let object = rig.put("one", b"1");
        let mut ids = Vec::new();
        for (stream, length) in [(Stream::Stdout, 3_000_000), (Stream::Stderr, 70)] {
            let number = rig.overflow.next_number();
            std::fs::write(rig.overflow.file(number, stream), pattern(length)).unwrap();
            rig.overflow.keep(key, stream, number, length as u64);
            ids.push((output_id(key.0, key.1, stream, number), pattern(length)));
        }
        run(async {
            for (id, content) in &ids {
                let output = visitor(level, VisitPurpose::Output, *id);
                for _ in 0..2 {
                    assert!(got(&output, &peer, *id).await.unwrap() == *content, "{level}");
                }
            }
            let (one, other) = (ids[0].0, ids[1].0);
            let output = visitor(level, VisitPurpose::Output, one);
            assert!(got(&output, &peer, other).await.is_err(), "another output");
            assert!(got(&output, &peer, object).await.is_err(), "an object");
            // Neither is the other, under whatever name.
            let as_object = visitor(level, VisitPurpose::Get, one);
            assert!(got(&as_object, &peer, one).await.is_err());
            let as_output = visitor(level, VisitPurpose::Output, object);
            assert!(matches!(got(&as_output, &peer, object).await, Err(PeerError::Gone)));
            // A ticket for the output of another instance's task.
            let elsewhere = output_id(InstanceId(9), key.1, Stream::Stdout, 1);
            let foreign = visitor(level, VisitPurpose::Output, elsewhere);
            assert!(matches!(got(&foreign, &peer, elsewhere).await, Err(PeerError::Gone)));
            // What is discarded is gone.
            rig.overflow.discard(&[(1, 1)]);
            let output = visitor(level, VisitPurpose::Output, one);
            assert!(matches!(got(&output, &peer, one).await, Err(PeerError::Gone)));
        });
    }
}
