//! What a file system shows of archives, against a model: which files there are, and any part
//! of their data.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use falkon_archive::{Archive, ROOT, Source, View, WriteOptions, Writer};
use falkon_core::archive::{FileBounds, place};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;

/// Directories have no data.
type Model = BTreeMap<Vec<u8>, Option<Vec<u8>>>;
type Members = Vec<(Vec<u8>, Vec<u8>)>;

fn write(path: &Path, members: &[(Vec<u8>, Vec<u8>)], per_file: u64, level: u32) {
    let bounds = FileBounds { members: per_file, ..FileBounds::default() };
    let options = WriteOptions { bounds, level, threads: 2, append: false, is_lasting: true };
    let mut writer = Writer::create(path, options).unwrap();
    for (name, data) in members {
        let data = data.clone();
        let source = Source::Bytes { data, modified: 1_700_000_000, permissions: 0o640 };
        writer.add(name.clone(), source).unwrap();
    }
    writer.finish().unwrap();
}

fn shown(path: &Path) -> View {
    let mut view = View::default();
    view.add(Archive::open(path).unwrap(), |_| true).unwrap();
    view
}

/// The files and directories that there are to be, and how many members are left out.
fn model(members: &Members) -> (Model, u64) {
    let mut model = Model::new();
    let mut left_out = 0;
    for (name, data) in members {
        let is_directory = name.ends_with(b"/");
        let Ok(parts) = place(name) else {
            left_out += 1;
            continue;
        };
        let ancestor = |count: usize| parts[..count].join(&b'/');
        let path = ancestor(parts.len());
        let is_file = |path: &[u8]| matches!(model.get(path), Some(Some(_)));
        let is_through = (1..parts.len()).any(|count| is_file(&ancestor(count)));
        let is_other = match model.get(&path) {
            Some(found) => found.is_none() != is_directory,
            None => false,
        };
        if is_directory && !data.is_empty() {
            left_out += 1;
            continue;
        }
        // What leads to a file's place is made before the file turns out to be a directory.
        for count in 1..parts.len() {
            if is_file_at(&model, &ancestor(count)) {
                break;
            }
            model.entry(ancestor(count)).or_insert(None);
        }
        if is_through || is_other {
            left_out += 1;
        } else {
            model.insert(path, (!is_directory).then(|| data.clone()));
        }
    }
    (model, left_out)
}

fn is_file_at(model: &Model, path: &[u8]) -> bool {
    matches!(model.get(path), Some(Some(_)))
}

/// All that is shown, listed so many entries at a time.
fn walk(view: &View, at_a_time: usize) -> Model {
    let tree = view.tree();
    let mut found = Model::new();
    let mut directories = vec![ROOT];
    while let Some(directory) = directories.pop() {
        let mut after = None;
        loop {
            let entries: Vec<_> = tree.behind(directory, after).take(at_a_time).collect();
            let Some((_, last)) = entries.last() else { break };
            after = Some(last.node);
            for (name, shown) in entries {
                assert_eq!(tree.child(directory, name), Some(shown));
                assert_eq!(tree.parent(shown.node), directory);
                let data = if shown.is_directory {
                    directories.push(shown.node);
                    None
                } else {
                    assert_eq!((shown.modified, shown.permissions), (1_700_000_000, 0o640));
                    let mut data = Vec::new();
                    view.read(shown.node, 0, usize::MAX, &mut data).unwrap();
                    assert_eq!(data.len() as u64, shown.bytes);
                    Some(data)
                };
                assert!(found.insert(tree.path(shown.node), data).is_none());
            }
        }
    }
    found
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        "[a-c/.]{0,5}".prop_map(String::into_bytes),
        prop::collection::vec(any::<u8>(), 0..30)
    ]
}

fn data() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        6 => Just(Vec::new()),
        12 => prop::collection::vec(any::<u8>(), 0..200),
        6 => (any::<u8>(), 0..3000_usize).prop_map(|(byte, times)| vec![byte; times]),
        1 => (1_000_000..3_200_000_usize).prop_map(counted),
    ]
}

/// Text that does not repeat itself.
fn counted(bytes: usize) -> Vec<u8> {
    (0..bytes as u32 / 4)
        .flat_map(|at| (at.wrapping_mul(0x9e37) & 0x0f0f_0f0f).to_le_bytes())
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn what_is_shown_is_what_was_written(
        members in prop::collection::vec((name(), data()), 0..40),
        per_file in 1_u64..20,
        level in prop_oneof![Just(0_u32), Just(6)],
        at_a_time in 1_usize..50,
        reads in prop::collection::vec(
            (any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0..300_000_usize),
            0..20,
        ),
    ) {
        let site = tempfile::tempdir().unwrap();
        let path = site.path().join("scores.zip");
        write(&path, &members, per_file, level);
        let (expected, left_out) = model(&members);
        let view = shown(&path);
        // Pieces first: nothing has been read that is held now.
        let files: Vec<_> = expected.iter().filter_map(|(path, data)| Some((path, data.as_ref()?))).collect();
        for (which, from, bytes) in reads.iter().filter(|_| !files.is_empty()) {
            let (path, data) = which.get(&files);
            let from = from.index(data.len() + 1);
            let node = path.split(|byte| *byte == b'/').fold(ROOT, |node, name| {
                view.tree().child(node, name).unwrap().node
            });
            let mut found = Vec::new();
            view.read(node, from as u64, *bytes, &mut found).unwrap();
            prop_assert!(found == data[from..data.len().min(from + bytes)]);
        }
        prop_assert!(walk(&view, at_a_time) == expected);
        let counts = view.tree().counts();
        prop_assert_eq!(counts.files, files.len() as u64);
        prop_assert_eq!(counts.bytes, files.iter().map(|(_, data)| data.len() as u64).sum::<u64>());
        prop_assert_eq!(counts.left_out, left_out);
    }

    #[test]
    fn what_is_damaged_is_an_error_or_as_it_was(
        members in prop::collection::vec((name(), data()), 1..12),
        level in prop_oneof![Just(0_u32), Just(6)],
        flips in prop::collection::vec((any::<prop::sample::Index>(), 0_u8..8), 1..4),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let site = tempfile::tempdir().unwrap();
        let path = site.path().join("scores.zip");
        write(&path, &members, 100, level);
        let view = shown(&path);
        // The files are open, and change.
        let mut bytes = std::fs::read(&path).unwrap();
        for (at, bit) in flips {
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        std::fs::write(&path, &bytes).unwrap();
        let (expected, _) = model(&members);
        let mut again = View::default();
        if let Ok(archive) = Archive::open(&path) {
            let _ = again.add(archive, |_| true);
        }
        // Damaged names may be those of others, whose data are whole.
        let is_of_any = |data: &Vec<u8>| members.iter().any(|(_, was)| was == data);
        for (view, is_as_it_was) in [(view, true), (again, false)] {
            for node in 0..view.tree().len() as u32 {
                let mut data = Vec::new();
                let read = view.read(node, 0, usize::MAX, &mut data);
                let is_checked = data.len() <= 1 << 20;
                let path = view.tree().path(node);
                if let (Ok(()), true, Some(shown)) = (read, is_checked, view.tree().shown(node))
                    && !shown.is_directory
                {
                    prop_assert!(is_of_any(&data));
                    let was = expected.get(&path).and_then(Option::as_ref);
                    prop_assert!(!is_as_it_was || was == Some(&data));
                }
                // And again, from the middle.
                let _ = view.read(node, 1_500_000, 100, &mut data);
            }
        }
    }
}

#[test]
fn a_large_deflated_member_is_read_in_any_order_by_several_threads() {
    let site = tempfile::tempdir().unwrap();
    let path = site.path().join("scores.zip");
    let data = counted(12 << 20);
    write(&path, &[(b"large".to_vec(), data.clone())], 10, 1);
    let packed = Archive::open(&path).unwrap().members().next().unwrap().unwrap().1.packed;
    assert!(packed < data.len() as u64);
    let view = shown(&path);
    let node = view.tree().child(ROOT, b"large").unwrap().node;
    let check = |from: usize, bytes: usize| {
        let mut found = Vec::new();
        view.read(node, from as u64, bytes, &mut found).unwrap();
        assert!(found == data[from.min(data.len())..data.len().min(from + bytes)], "{from}");
    };
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let check = &check;
            scope.spawn(move || {
                (0..12).for_each(|at| check((at << 20) + thread * 300_000, 400_000));
            });
        }
    });
    // Back to the beginning, and behind the end.
    check(5, 100);
    check(11 << 20, 4 << 20);
    check(data.len(), 10);
    check(data.len() + 1, 10);
}

#[test]
fn later_archives_replace_what_earlier_ones_have() {
    let site = tempfile::tempdir().unwrap();
    let [one, other] = ["one.zip", "other.zip"].map(|name| site.path().join(name));
    write(&one, &[(b"a".to_vec(), b"1".to_vec()), (b"b".to_vec(), b"1".to_vec())], 10, 6);
    write(&other, &[(b"b".to_vec(), b"22".to_vec()), (b"b/c".to_vec(), b"2".to_vec())], 10, 6);
    let mut view = View::default();
    for path in [&one, &other] {
        view.add(Archive::open(path).unwrap(), |member| member.name != b"none").unwrap();
    }
    let expected =
        Model::from([(b"a".to_vec(), Some(b"1".to_vec())), (b"b".to_vec(), Some(b"22".to_vec()))]);
    assert_eq!(walk(&view, 100), expected);
    let counts = view.tree().counts();
    assert_eq!((counts.files, counts.bytes, counts.doubled, counts.left_out), (2, 3, 1, 1));
}
