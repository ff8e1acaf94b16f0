use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;

use super::*;
use falkon_net::ids::object_id;

fn object(name: &str, size: usize) -> Object {
    let (url, version): (Arc<str>, Arc<str>) = (name.into(), "1".into());
    Object { id: object_id(&url, &version), url, version, size: Some(size as u64) }
}

struct Rig {
    dir: tempfile::TempDir,
}

impl Rig {
    fn new() -> Rig {
        Rig { dir: tempfile::tempdir().unwrap() }
    }

    fn tiers(&self) -> Vec<PathBuf> {
        ["fast", "large"].map(|name| self.dir.path().join(name)).into()
    }

    fn open(&self) -> (DiskCache, Vec<Reused>) {
        DiskCache::open(&self.tiers()).unwrap()
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

const FAST: TierId = TierId(0);
const LARGE: TierId = TierId(1);

fn put(cache: &DiskCache, tier: TierId, name: &str, content: &[u8]) -> ObjectId {
    let object = object(name, content.len());
    let partial = PartialId(object.id.0 as u64);
    cache.partial(tier, partial).unwrap().write_all_at(content, 0).unwrap();
    cache.seal(tier, partial, &object, content.len() as u64, Copies::Elsewhere).unwrap();
    object.id
}

fn content(cache: &DiskCache, object: ObjectId) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    match cache.read(object) {
        Ok((mut file, size)) => {
            file.read_to_end(&mut bytes).unwrap();
            assert_eq!(bytes.len() as u64, size);
            Some(bytes)
        }
        Err(CacheError::Lost { .. }) => None,
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn an_object_is_there_once_it_is_sealed_and_until_it_is_deleted() {
    let rig = Rig::new();
    let (cache, reused) = rig.open();
    assert!(reused.is_empty());
    let one = object("one", 3);
    let partial = PartialId(1);
    cache.partial(FAST, partial).unwrap().write_all_at(b"on", 0).unwrap();
    assert_eq!(content(&cache, one.id), None);
    // Pieces may come in any order.
    cache.partial(FAST, partial).unwrap().write_all_at(b"e", 2).unwrap();
    assert_eq!(content(&cache, one.id), None);
    cache.seal(FAST, partial, &one, 3, Copies::Elsewhere).unwrap();
    assert_eq!(content(&cache, one.id).unwrap(), b"one");
    cache.delete(FAST, one.id).unwrap();
    assert_eq!(content(&cache, one.id), None);
    cache.delete(FAST, one.id).unwrap();
    assert!(matches!(cache.partial(TierId(2), partial), Err(CacheError::NoTier { .. })));
}

#[test]
fn what_is_not_the_object_is_not_sealed() {
    let rig = Rig::new();
    let (cache, _) = rig.open();
    let mut wanted = object("hashed", 4);
    let seal = |object: &Object, size| {
        cache.partial(LARGE, PartialId(7)).unwrap().write_all_at(b"data", 0).unwrap();
        cache.seal(LARGE, PartialId(7), object, size, Copies::Elsewhere)
    };
    assert!(matches!(seal(&wanted, 5), Err(CacheError::Wrong { .. })));
    wanted.version = format!("blake3:{}", blake3::hash(b"date").to_hex()).into();
    assert!(matches!(seal(&wanted, 4), Err(CacheError::Wrong { .. })));
    assert_eq!(std::fs::read_dir(rig.at("large/parts")).unwrap().count(), 0);
    wanted.version = format!("blake3:{}", blake3::hash(b"data").to_hex()).into();
    seal(&wanted, 4).unwrap();
    assert_eq!(content(&cache, wanted.id).unwrap(), b"data");
}

#[test]
fn a_restart_finds_what_was_whole_and_deletes_the_rest() {
    let rig = Rig::new();
    let (cache, _) = rig.open();
    let kept = put(&cache, FAST, "kept", b"kept");
    let other = put(&cache, LARGE, "other", b"other");
    let shortened = put(&cache, FAST, "shortened", b"shortened");
    let deleted = put(&cache, FAST, "deleted", b"deleted");
    cache.delete(FAST, deleted).unwrap();
    cache.partial(FAST, PartialId(99)).unwrap().write_all_at(b"half", 0).unwrap();
    let file = cache.path(shortened).unwrap();
    std::fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    File::options().write(true).open(&file).unwrap().set_len(3).unwrap();
    std::fs::write(file.with_file_name(ObjectId(5).to_string()), "unknown").unwrap();
    // The executor was killed in the middle of a line.
    let index = rig.at("fast/index");
    let mut lines = std::fs::read(&index).unwrap();
    lines.truncate(lines.len() - 20);
    let last = put(&cache, FAST, "torn", b"torn");
    drop(cache);
    std::fs::write(&index, &lines).unwrap();

    let (cache, reused) = rig.open();
    let mut found: Vec<(ObjectId, &str, u8, u64)> = reused
        .iter()
        .map(|r| (r.object.id, &*r.object.url, r.recorded.tier.0, r.recorded.size))
        .collect();
    found.sort_by_key(|found| found.1);
    assert_eq!(found, [(kept, "kept", 0, 4), (other, "other", 1, 5)]);
    assert_eq!(content(&cache, kept).unwrap(), b"kept");
    for gone in [shortened, deleted, last] {
        assert_eq!(content(&cache, gone), None);
    }
    assert_eq!(std::fs::read_dir(rig.at("fast/parts")).unwrap().count(), 0);
    let files = |folder: &str| {
        let folders = std::fs::read_dir(rig.at(folder)).unwrap();
        folders.flat_map(|f| std::fs::read_dir(f.unwrap().path()).unwrap()).count()
    };
    assert_eq!((files("fast/objects"), files("large/objects")), (1, 1));
}

#[test]
fn what_the_core_knows_of_the_use_is_there_after_a_restart() {
    let rig = Rig::new();
    let (cache, _) = rig.open();
    let ids = ["a", "b", "c"].map(|name| put(&cache, LARGE, name, name.as_bytes()));
    let entry = |at: usize| Recorded {
        object: ids[at],
        tier: LARGE,
        size: 1,
        unpacked: 0,
        came: at as u64 + 1,
        used: 10 - at as u64,
        uses: at as u64 * 3,
        only_here: at == 1,
    };
    cache.record((0..3).map(entry)).unwrap();
    drop(cache);
    let in_order = |rig: &Rig| std::fs::read_to_string(rig.at("large/index")).unwrap();
    assert!(in_order(&rig).contains("\"in_order\":true"));
    let (_cache, reused) = rig.open();
    let mut recorded: Vec<Recorded> = reused.iter().map(|reused| reused.recorded).collect();
    recorded.sort_by_key(|recorded| recorded.came);
    assert_eq!(recorded, [entry(0), entry(1), entry(2)]);
    // While it is in use it is not in order.
    assert!(in_order(&rig).contains("\"in_order\":false"));
}

#[test]
fn after_a_restart_of_the_machine_only_what_was_left_in_order_counts() {
    let rig = Rig::new();
    let other_boot = |in_order: bool| {
        let (cache, _) = rig.open();
        put(&cache, LARGE, "a", b"a");
        if in_order {
            cache.record([]).unwrap();
        }
        drop(cache);
        let index = rig.at("large/index");
        let text = std::fs::read_to_string(&index).unwrap();
        let (head, rest) = text.split_once('\n').unwrap();
        let mut head: serde_json::Value = serde_json::from_str(head).unwrap();
        head["boot"] = "another".into();
        std::fs::write(&index, format!("{head}\n{rest}")).unwrap();
        rig.open().1.len()
    };
    assert_eq!(other_boot(false), 0);
    assert_eq!(other_boot(true), 1);
}

#[test]
fn two_executors_do_not_share_a_directory() {
    let rig = Rig::new();
    let (cache, _) = rig.open();
    let error = DiskCache::open(&rig.tiers()).unwrap_err();
    assert!(matches!(error, OpenError::Locked { pid: Some(pid), .. } if pid == std::process::id()));
    drop(cache);
    rig.open();
}

#[test]
fn a_deleted_directory_is_noticed_and_made_anew() {
    let rig = Rig::new();
    let (cache, _) = rig.open();
    let lost = put(&cache, FAST, "lost", b"lost");
    let kept = put(&cache, LARGE, "kept", b"kept");
    cache.partial(FAST, PartialId(3)).unwrap();
    assert!(!cache.is_gone(FAST));
    std::fs::remove_dir_all(rig.at("fast")).unwrap();
    assert!(cache.is_gone(FAST) && !cache.is_gone(LARGE));
    assert!(matches!(cache.partial(FAST, PartialId(4)), Err(CacheError::Gone { .. })));
    let one = object("one", 0);
    assert!(matches!(
        cache.seal(FAST, PartialId(3), &one, 0, Copies::Elsewhere),
        Err(CacheError::Gone { .. })
    ));
    assert_eq!(content(&cache, lost), None);
    cache.revive(FAST).unwrap();
    assert!(!cache.is_gone(FAST));
    let again = put(&cache, FAST, "again", b"again");
    drop(cache);
    let (cache, reused) = rig.open();
    assert_eq!(reused.len(), 2);
    assert_eq!(content(&cache, again).unwrap(), b"again");
    assert_eq!(content(&cache, kept).unwrap(), b"kept");
}

#[test]
fn a_task_that_writes_its_input_does_not_harm_others() {
    let rig = Rig::new();
    let (cache, _) = rig.open();
    let id = put(&cache, FAST, "input", b"input");
    let (one, two) = (rig.at("box/sub/one"), rig.at("two"));
    let placed = cache.place(id, &one, Access::Read).unwrap();
    assert_eq!(std::fs::read(&one).unwrap(), b"input");
    assert_eq!(std::fs::metadata(&one).unwrap().mode() & 0o777, 0o555);
    assert!(cache.place(id, &one, Access::Read).is_err(), "a name is given once");
    // A copy is the task's own.
    assert_eq!(cache.place(id, &two, Access::Write).unwrap(), Placed::Copied);
    std::fs::write(&two, "mine").unwrap();
    assert_eq!(content(&cache, id).unwrap(), b"input");
    // A task that changes the mode first, without even changing the length.
    std::fs::set_permissions(&one, Permissions::from_mode(0o644)).unwrap();
    File::options().write(true).open(&one).unwrap().write_all(b"INPUT").unwrap();
    match placed {
        Placed::Shared => assert_eq!(content(&cache, id).unwrap(), b"input"),
        _ => {
            let three = cache.place(id, &rig.at("three"), Access::Read);
            assert!(matches!(three, Err(CacheError::Lost { .. })), "{three:?}");
            assert_eq!(content(&cache, id), None);
        }
    }
}

#[test]
fn an_input_on_another_file_system_is_pointed_at() {
    let memory = Path::new("/dev/shm");
    let rig = Rig::new();
    let device = |path: &Path| std::fs::metadata(path).map(|now| now.dev()).ok();
    if device(memory).is_none_or(|there| Some(there) == device(rig.dir.path())) {
        return;
    }
    let far = tempfile::tempdir_in(memory).unwrap();
    let (cache, _) = DiskCache::open(&[far.path().join("cache")]).unwrap();
    let id = put(&cache, FAST, "input", b"input");
    let at = rig.at("input");
    assert_eq!(cache.place(id, &at, Access::Read).unwrap(), Placed::Pointed);
    assert_eq!(std::fs::read(&at).unwrap(), b"input");
    // And an output comes from there.
    let output = rig.at("output");
    std::fs::write(&output, "output").unwrap();
    let made = object("output", 6);
    cache.adopt(FAST, PartialId(1), &made, &output, Copies::Elsewhere).unwrap();
    assert_eq!(content(&cache, made.id).unwrap(), b"output");
    assert!(!output.exists());
}

#[test]
fn an_output_moves_in_or_stays_where_it_was() {
    let rig = Rig::new();
    let (cache, _) = rig.open();
    let output = rig.at("output");
    std::fs::write(&output, "output").unwrap();
    let inode = std::fs::metadata(&output).unwrap().ino();
    let wrong = object("output", 7);
    let error = cache.adopt(FAST, PartialId(1), &wrong, &output, Copies::Elsewhere);
    assert!(matches!(error, Err(CacheError::Wrong { .. })), "{error:?}");
    assert_eq!(std::fs::read(&output).unwrap(), b"output");
    let made = object("output", 6);
    cache.adopt(FAST, PartialId(1), &made, &output, Copies::Elsewhere).unwrap();
    assert!(!output.exists());
    assert_eq!(std::fs::metadata(cache.path(made.id).unwrap()).unwrap().ino(), inode);
    assert_eq!(content(&cache, made.id).unwrap(), b"output");
}

#[test]
fn an_output_that_is_an_input_under_another_name_is_copied() {
    let rig = Rig::new();
    let (cache, _) = rig.open();
    let input = put(&cache, FAST, "input", b"same");
    let (linked, pointed) = (rig.at("linked"), rig.at("pointed"));
    std::fs::hard_link(cache.path(input).unwrap(), &linked).unwrap();
    std::os::unix::fs::symlink(cache.path(input).unwrap(), &pointed).unwrap();
    for (number, output) in (1..).zip([linked, pointed]) {
        let made = object(output.to_str().unwrap(), 4);
        cache.adopt(FAST, PartialId(number), &made, &output, Copies::Elsewhere).unwrap();
        assert_eq!(content(&cache, made.id).unwrap(), b"same");
        assert_eq!(content(&cache, input).unwrap(), b"same");
    }
}

#[test]
fn an_index_does_not_grow_for_ever() {
    let rig = Rig::new();
    let (cache, _) = rig.open();
    let kept = put(&cache, FAST, "kept", b"kept");
    let object = object("again", 0);
    for _ in 0..INDEX_WASTE_LINES_MAX + 100 {
        cache.partial(FAST, PartialId(1)).unwrap();
        cache.seal(FAST, PartialId(1), &object, 0, Copies::Elsewhere).unwrap();
        cache.delete(FAST, object.id).unwrap();
    }
    let lines = std::fs::read_to_string(rig.at("fast/index")).unwrap().lines().count();
    assert!(lines < INDEX_WASTE_LINES_MAX, "{lines}");
    drop(cache);
    let (_cache, reused) = rig.open();
    assert_eq!(reused.iter().map(|reused| reused.object.id).collect::<Vec<_>>(), [kept]);
}

#[test]
fn no_room_is_told_apart() {
    let rig = Rig::new();
    let (cache, _) = rig.open();
    for number in [rustix::io::Errno::NOSPC, rustix::io::Errno::DQUOT, rustix::io::Errno::FBIG] {
        let error = cache.tiers[0].failed("write", &rig.at("x"), number.into());
        assert!(matches!(error, CacheError::Full { .. }), "{error:?}");
    }
    let error = cache.tiers[0].failed("write", &rig.at("x"), rustix::io::Errno::IO.into());
    assert!(matches!(error, CacheError::Io { .. }), "{error:?}");
}

/// A tar of one program that waits until it is allowed to end, where it is
/// unpacked.
fn archive_that_waits(fifo: &Path) -> Vec<u8> {
    let script = format!("#!/bin/sh\nread said < '{}'\n", fifo.display());
    let mut header = tar::Header::new_gnu();
    header.set_size(script.len() as u64);
    header.set_mode(0o755);
    let mut packed = tar::Builder::new(Vec::new());
    packed.append_data(&mut header, crate::unpack::HOOK, script.as_bytes()).unwrap();
    packed.into_inner().unwrap()
}

#[test]
fn an_archive_that_was_lost_and_came_again_meanwhile_is_not_unpacked() {
    let rig = Rig::new();
    let (cache, _) = rig.open();
    let fifo = rig.at("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    let packed = archive_that_waits(&fifo);
    let object = put(&cache, FAST, "archive", &packed);
    let size = cache.measure(object, 1 << 30).unwrap();
    let result = std::thread::scope(|scope| {
        let unpacking = scope.spawn(|| cache.unpack(object, size));
        // Opened when the other side is.
        let mut waits = File::options().write(true).open(&fifo).unwrap();
        cache.delete(FAST, object).unwrap();
        put(&cache, FAST, "archive", &packed);
        waits.write_all(b"go on\n").unwrap();
        unpacking.join().unwrap()
    });
    assert!(matches!(result, Err(UnpackingError::Cache(CacheError::Lost { .. }))), "{result:?}");
    assert_eq!(fs::read_dir(rig.at("fast/trees")).unwrap().count(), 0);
    assert!(cache.place_unpacked(object, &rig.at("env")).is_err());
}
