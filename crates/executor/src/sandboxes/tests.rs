use super::*;
use falkon_core::data::cache::TierId;
use falkon_core::data::object::Object;
use falkon_core::data::stage::PartialId;
use falkon_core::task::{InstanceId, TaskId};
use proptest::prelude::*;
use std::os::unix::fs::{FileExt, PermissionsExt};

fn key(task: u64) -> TaskKey {
    TaskKey { instance: InstanceId(1), task: TaskId(task) }
}

struct Rig {
    sandboxes: Sandboxes,
    cache: DiskCache,
    dir: tempfile::TempDir,
}

impl Rig {
    fn new() -> Rig {
        let dir = tempfile::tempdir().unwrap();
        let (cache, _) = DiskCache::open(&[dir.path().join("cache")]).unwrap();
        Rig { sandboxes: Sandboxes::new(dir.path().join("all"), 7), cache, dir }
    }

    /// Puts an object of this number into the cache.
    fn put(&self, number: u128) -> ObjectId {
        let content = content(number);
        let object = Object {
            id: ObjectId(number),
            url: format!("/{number}").into(),
            version: "1".into(),
            size: Some(content.len() as u64),
        };
        let partial = PartialId(number as u64);
        self.cache.partial(TierId(0), partial).unwrap().write_all_at(&content, 0).unwrap();
        self.cache
            .seal(
                TierId(0),
                partial,
                &object,
                content.len() as u64,
                falkon_data::cache::Copies::Elsewhere,
            )
            .unwrap();
        object.id
    }

    fn evict(&mut self, object: ObjectId) {
        self.cache.delete(TierId(0), object).unwrap();
        self.sandboxes.forget(object);
    }

    fn make(&mut self, task: u64, inputs: &[Named]) -> Result<PathBuf, MakeError> {
        self.sandboxes.make(key(task), inputs, (&self.cache, &BTreeMap::new()))
    }

    /// Ends a task; says whether that took another thread's help.
    fn clear(&mut self, task: u64) -> bool {
        let clearing = self.sandboxes.clear(key(task));
        let slow = clearing.is_some();
        clearing.into_iter().for_each(Clearing::run);
        slow
    }
}

fn content(number: u128) -> Vec<u8> {
    format!("object {number}").into_bytes()
}

fn named(name: &str, object: ObjectId) -> Named {
    Named { name: PathBuf::from(name), object, is_unpacked: false, is_mounted: false }
}

fn names(path: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(path).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into()).collect();
    names.sort();
    names
}

#[test]
fn a_directory_is_used_again_once_it_is_as_it_was() {
    let mut rig = Rig::new();
    let kept = rig.dir.path().join("kept");
    std::fs::write(&kept, "x").unwrap();
    let first = rig.make(1, &[]).unwrap();
    let mode = first.metadata().unwrap().permissions();
    std::fs::hard_link(&kept, first.join("in")).unwrap();
    std::fs::write(first.join("empty"), "").unwrap();
    assert!(!rig.clear(1), "names alone are removed at once");
    let second = rig.make(2, &[]).unwrap();
    assert_eq!(second, first);
    assert!(names(&second).is_empty());
    std::fs::create_dir_all(second.join("deep/er")).unwrap();
    std::fs::write(second.join("deep/er/file"), "y").unwrap();
    std::os::unix::fs::symlink(rig.dir.path(), second.join("link")).unwrap();
    std::fs::set_permissions(&second, PermissionsExt::from_mode(0o1700)).unwrap();
    assert_ne!(rig.make(3, &[]).unwrap(), second, "it is in use");
    assert!(rig.clear(2));
    assert_eq!(rig.make(4, &[]).unwrap(), second);
    assert!(names(&second).is_empty());
    assert_eq!(second.metadata().unwrap().permissions(), mode);
    assert_eq!(std::fs::read(&kept).unwrap(), b"x");
    let all = rig.dir.path().join("all");
    drop(rig.sandboxes);
    assert!(!all.exists());
}

#[test]
fn after_many_tasks_a_directory_is_replaced() {
    let mut rig = Rig::new();
    let object = rig.put(1);
    let input = [named("a", object)];
    let first = rig.make(0, &input).unwrap();
    for task in 1..u64::from(USES_MAX) {
        rig.clear(task - 1);
        assert_eq!(rig.make(task, &input).unwrap(), first);
    }
    assert!(rig.clear(u64::from(USES_MAX) - 1));
    assert!(names(&first).is_empty(), "it stays for a while");
    let second = rig.make(u64::from(USES_MAX), &input).unwrap();
    assert_ne!(second, first);
    assert_eq!(std::fs::read(second.join("a")).unwrap(), content(1));
}

#[test]
fn only_files_that_are_in_the_directory_itself_are_moved_at_once() {
    let mut rig = Rig::new();
    let (path, target) = (rig.make(1, &[]).unwrap(), rig.dir.path().join("moved"));
    let precious = rig.dir.path().join("precious");
    std::fs::create_dir(&precious).unwrap();
    std::fs::write(precious.join("file"), "precious").unwrap();
    std::fs::create_dir(path.join("folder")).unwrap();
    std::fs::write(path.join("folder/file"), "below").unwrap();
    std::os::unix::fs::symlink(precious.join("file"), path.join("link")).unwrap();
    std::fs::write(path.join("file"), "written").unwrap();
    let others = ["folder", "folder/file", "link", "none"].map(|name| path.join(name));
    for other in others.iter().chain([&precious.join("file")]) {
        assert_eq!(rig.sandboxes.size_of_plain(other), None, "{other:?}");
        assert!(!rig.sandboxes.move_plain(other, &target), "{other:?}");
    }
    assert_eq!(rig.sandboxes.size_of_plain(&path.join("file")), Some(7));
    assert!(rig.sandboxes.move_plain(&path.join("file"), &target));
    assert_eq!(std::fs::read(&target).unwrap(), b"written");
    assert!(!path.join("file").exists());
    // What a task puts in the place of its directory is left alone.
    std::fs::remove_dir_all(&path).unwrap();
    std::os::unix::fs::symlink(&precious, &path).unwrap();
    assert!(!rig.sandboxes.move_plain(&path.join("file"), &target));
    assert_eq!(std::fs::read(precious.join("file")).unwrap(), b"precious");
}

#[test]
fn what_a_task_puts_in_the_place_of_its_directory_is_left_alone() {
    let mut rig = Rig::new();
    let precious = rig.dir.path().join("precious");
    std::fs::create_dir(&precious).unwrap();
    std::fs::write(precious.join("file"), "x").unwrap();
    let path = rig.make(1, &[]).unwrap();
    std::fs::remove_dir(&path).unwrap();
    std::os::unix::fs::symlink(&precious, &path).unwrap();
    rig.clear(1);
    assert_eq!(std::fs::read(precious.join("file")).unwrap(), b"x");
    // A directory that was deleted while it was idle is not given to a task.
    let path = rig.make(2, &[]).unwrap();
    rig.clear(2);
    std::fs::remove_dir(&path).unwrap();
    std::os::unix::fs::symlink(&precious, &path).unwrap();
    let other = rig.make(3, &[]).unwrap();
    assert_ne!(other, path);
    assert!(names(&other).is_empty());
    assert_eq!(std::fs::read(precious.join("file")).unwrap(), b"x");
}

#[test]
fn inputs_stay_for_a_task_that_reads_the_same_and_go_with_their_object() {
    let mut rig = Rig::new();
    let (one, two) = (rig.put(1), rig.put(2));
    let inode = |path: &Path| path.metadata().unwrap().ino();
    let path = rig.make(1, &[named("a", one), named("b", two)]).unwrap();
    let changed = path.metadata().unwrap().ctime_nsec();
    let held = inode(&path.join("a"));
    rig.clear(1);
    assert_eq!(rig.make(2, &[named("b", two), named("a", one)]).unwrap(), path);
    assert_eq!(path.metadata().unwrap().ctime_nsec(), changed, "nothing was done to it");
    rig.clear(2);
    // The directory with the wanted inputs is found among others.
    let other = rig.make(3, &[named("c", two)]).unwrap();
    let third = rig.make(4, &[named("a", two)]).unwrap();
    rig.clear(3);
    rig.clear(4);
    assert_eq!(rig.make(5, &[named("c", two)]).unwrap(), other);
    assert_eq!(rig.make(6, &[named("a", two)]).unwrap(), third);
    // In use or not, none keeps what has left the cache.
    let source = std::fs::File::open(rig.cache.path(two).unwrap()).unwrap();
    rig.evict(two);
    rig.clear(5);
    rig.clear(6);
    assert_eq!(source.metadata().unwrap().nlink(), 0);
    let again = rig.make(7, &[named("a", one)]).unwrap();
    assert_eq!(inode(&again.join("a")), inode(&rig.cache.path(one).unwrap()));
    assert_eq!(inode(&again.join("a")), held);
}

/// An action of a task on its directory.
#[derive(Debug, Clone, Copy)]
enum Deed {
    Nothing,
    AddsFile,
    AddsFolder,
    RemovesInput,
    ReplacesInput,
    WritesIntoInput,
    ShutsFolder,
    EvictsInput,
    LosesObject,
}

fn deeds() -> impl Strategy<Value = Deed> {
    use Deed::*;
    let quiet = prop::sample::select(vec![Nothing, AddsFile]);
    let rare = prop::sample::select(vec![
        AddsFolder,
        RemovesInput,
        ReplacesInput,
        WritesIntoInput,
        ShutsFolder,
        EvictsInput,
        LosesObject,
    ]);
    prop_oneof![2 => quiet, 1 => rare]
}

fn inputs() -> impl Strategy<Value = Vec<(String, u128)>> {
    let names = prop::sample::subsequence(vec!["a", "b", "in/a", "c"], 0..=3);
    (names, prop::collection::vec(0u128..4, 3))
        .prop_map(|(names, objects)| names.into_iter().map(str::to_owned).zip(objects).collect())
}

fn misbehave(rig: &mut Rig, deed: Deed, path: &Path, inputs: &[Named]) {
    let first = inputs.first().map(|input| (path.join(&input.name), input.object));
    match (deed, first) {
        (Deed::AddsFile, _) => std::fs::write(path.join("out"), "written").unwrap(),
        (Deed::AddsFolder, _) => std::fs::create_dir_all(path.join("more/of")).unwrap(),
        (Deed::ShutsFolder, _) => {
            std::fs::set_permissions(path, PermissionsExt::from_mode(0o500)).unwrap();
        }
        (Deed::RemovesInput, Some((at, _))) => std::fs::remove_file(at).unwrap(),
        (Deed::ReplacesInput, Some((at, _))) => {
            std::fs::remove_file(&at).unwrap();
            std::fs::write(&at, "another").unwrap();
        }
        (Deed::WritesIntoInput, Some((at, _))) => {
            std::fs::set_permissions(&at, PermissionsExt::from_mode(0o644)).unwrap();
            std::fs::write(&at, "another").unwrap();
        }
        (Deed::EvictsInput, Some((_, object))) => rig.evict(object),
        (Deed::LosesObject, Some((_, object))) => {
            let _ = rig.cache.path(object).map(std::fs::remove_file);
        }
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever tasks do, the next one finds its inputs, as they were put into
    /// the cache, and nothing else; or one of them is known to be lost.
    #[test]
    fn a_task_finds_its_inputs_and_nothing_else(
        tasks in prop::collection::vec((inputs(), deeds(), any::<bool>()), 1..40)
    ) {
        let mut rig = Rig::new();
        let mut before: Option<u64> = None;
        for (task, (inputs, deed, overlaps)) in (0u64..).zip(tasks) {
            for (_, number) in &inputs {
                if rig.cache.read(ObjectId(*number)).is_err() {
                    rig.put(*number);
                }
            }
            let inputs: Vec<Named> =
                inputs.iter().map(|(name, number)| named(name, ObjectId(*number))).collect();
            let path = rig.make(task, &inputs).unwrap();
            for Named { name, object, .. } in &inputs {
                prop_assert_eq!(std::fs::read(path.join(name)).unwrap(), content(object.0));
            }
            let mut expected: Vec<PathBuf> = inputs
                .iter()
                .map(|input| input.name.components().next().unwrap().as_os_str().into())
                .collect();
            expected.sort();
            prop_assert_eq!(names(&path), expected);
            misbehave(&mut rig, deed, &path, &inputs);
            if let Some(before) = before.take() {
                rig.clear(before);
            }
            if overlaps {
                before = Some(task);
            } else {
                rig.clear(task);
            }
        }
    }
}
