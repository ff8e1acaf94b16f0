//! Sets on disk against a model: what is written is read, whole files are whole,
//! damaged ones are reported and salvaged.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use falkon_archive::{
    Archive, ExtractError, Extraction, LeftOut, Newest, ReadError, Scratch, Source, WriteError,
    WriteOptions, Writer, check, join, salvage,
};
use falkon_core::archive::{FileBounds, Member, Method};
use proptest::prelude::*;
use rustix::fs::{CWD, FileType, Mode};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

type Members = Vec<(Vec<u8>, Vec<u8>)>;

fn bytes_of(data: &[u8]) -> Source {
    Source::Bytes { data: data.to_vec(), modified: 1_700_000_000, permissions: 0o644 }
}

fn write(path: &Path, members: &[(Vec<u8>, Vec<u8>)], options: WriteOptions) -> Vec<PathBuf> {
    let mut writer = Writer::create(path, options).unwrap();
    for (name, data) in members {
        writer.add(name.clone(), bytes_of(data)).unwrap();
    }
    writer.finish().unwrap()
}

fn read(archive: &Archive) -> Members {
    let mut scratch = Scratch::default();
    let one = |found: Result<(&_, Member), ReadError>| {
        let (part, member) = found.unwrap();
        let mut data = Vec::new();
        scratch
            .read(part, &member, &mut |bytes| {
                data.extend_from_slice(bytes);
                Ok(())
            })
            .unwrap();
        (member.name, data)
    };
    archive.members().map(one).collect()
}

/// The defects of an archive, as text.
fn faults(path: &Path) -> Vec<String> {
    let found = Mutex::new(Vec::new());
    let checked = check(path, 2, &|error| found.lock().unwrap().push(error.to_string()));
    let found = found.into_inner().unwrap();
    assert_eq!(checked.unwrap().faults, found.len() as u64);
    found
}

/// The files of a directory, sorted.
fn listing(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn random(bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    (0..bytes).map(|_| next()).collect()
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        "[a-c/.]{0,3}".prop_map(String::into_bytes),
        prop::collection::vec(any::<u8>(), 0..30)
    ]
}

fn data() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => prop::collection::vec(any::<u8>(), 0..200),
        4 => (any::<u8>(), 0..3000_usize).prop_map(|(byte, times)| vec![byte; times]),
        1 => (any::<u64>(), 1_000_000..1_200_000_usize).prop_map(|(seed, bytes)| random(bytes, seed)),
        1 => (0..2_600_000_usize).prop_map(|bytes| b"energy".repeat(bytes / 6)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn what_was_written_is_read(
        members in prop::collection::vec((name(), data()), 0..40),
        per_file in 1_u64..20,
        level in 0_u32..10,
        threads in 1_usize..4,
        split in any::<prop::sample::Index>(),
    ) {
        let site = tempfile::tempdir().unwrap();
        let path = site.path().join("scores.zip");
        let bounds = FileBounds { members: per_file, ..FileBounds::default() };
        let options = WriteOptions { bounds, level, threads, append: false, is_lasting: true };
        let (first, second) = members.split_at(split.index(members.len() + 1));
        let mut files = write(&path, first, options);
        files.extend(write(&path, second, WriteOptions { append: true, ..options }));
        prop_assert_eq!(listing(site.path()).len(), files.len());
        prop_assert_eq!(faults(&path), Vec::<String>::new());

        let archive = Archive::open(&path).unwrap();
        prop_assert_eq!(&read(&archive), &members);
        let newest: BTreeMap<&[u8], &[u8]> =
            members.iter().map(|(name, data)| (&name[..], &data[..])).collect();
        let marks = Newest::of(&archive, |_| true).unwrap();
        prop_assert_eq!(marks.doubled(), (members.len() - newest.len()) as u64);
        for (name, data) in &newest {
            let (part, member) = archive.find(name).unwrap();
            prop_assert_eq!(member.size, data.len() as u64);
            prop_assert!(member.packed <= member.size);
            let number = archive.parts().iter().position(|one| one.path() == part.path());
            prop_assert!(marks.is(number.unwrap(), &member));
            prop_assert!(level > 0 || member.method == Method::Stored);
        }
        let is_missing = matches!(archive.find(b"none of them"), Err(ReadError::NoMember { .. }));
        prop_assert!(is_missing);

        let joined = site.path().join("joined.zip");
        let mut writer = Writer::create(&joined, WriteOptions::default()).unwrap();
        prop_assert_eq!(join(&mut writer, &path).unwrap(), members.len() as u64);
        prop_assert_eq!(writer.finish().unwrap().len(), 1);
        prop_assert_eq!(&read(&Archive::open(&joined).unwrap()), &members);
        prop_assert_eq!(faults(&joined), Vec::<String>::new());
    }

    #[test]
    fn damage_is_found_and_what_is_whole_is_salvaged(
        members in prop::collection::vec((name(), prop::collection::vec(any::<u8>(), 0..300)), 1..30),
        cut in any::<prop::sample::Index>(),
        flip in prop::option::of((any::<prop::sample::Index>(), 0_u8..8)),
    ) {
        let site = tempfile::tempdir().unwrap();
        let path = site.path().join("scores.zip");
        write(&path, &members, WriteOptions::default());
        let mut file = std::fs::read(&path).unwrap();
        let whole = file.len();
        match flip {
            Some((at, bit)) => file[at.index(whole)] ^= 1 << bit,
            None => file.truncate(cut.index(whole)),
        }
        std::fs::write(&path, &file).unwrap();
        let found = faults(&path);
        // Times, modes and what makes no difference have no CRC.
        if flip.is_none() {
            prop_assert!(!found.is_empty());
        }
        if let Ok(archive) = Archive::open(&path) {
            let mut scratch = Scratch::default();
            for (part, member) in archive.members().map_while(Result::ok) {
                let _ = scratch.read(part, &member, &mut |_| Ok(()));
            }
            for (name, _) in &members {
                let _ = archive.find(name);
            }
        }
        let target = site.path().join("target.zip");
        let mut writer = Writer::create(&target, WriteOptions::default()).unwrap();
        let salvaged = salvage(&path, &mut writer).unwrap();
        writer.finish().unwrap();
        let kept = read(&Archive::open(&target).unwrap());
        prop_assert_eq!(kept.len() as u64, salvaged.members);
        if flip.is_some() {
            // One bit costs one member, or the name of one.
            prop_assert!(kept.len() + 1 >= members.len(), "{} of {}", kept.len(), members.len());
        }
        // Data that were not there before are not recovered either.
        let is_old = |data: &Vec<u8>| members.iter().any(|(_, old)| old == data);
        prop_assert!(kept.iter().all(|(_, data)| is_old(data)));
    }
}

#[test]
fn a_member_in_pieces_is_stored_if_deflating_gains_nothing() {
    let site = tempfile::tempdir().unwrap();
    let path = site.path().join("a.zip");
    let noise = random(5_000_000, 7);
    let text = b"energy = -7.25 kcal/mol\n".repeat(200_000);
    let zeros = vec![0; 3_000_000];
    let file = site.path().join("noise");
    std::fs::write(&file, &noise).unwrap();
    let mut writer = Writer::create(&path, WriteOptions::default()).unwrap();
    writer.add(b"noise".to_vec(), Source::File(file)).unwrap();
    writer.add(b"text".to_vec(), bytes_of(&text)).unwrap();
    writer.add(b"zeros".to_vec(), bytes_of(&zeros)).unwrap();
    writer.finish().unwrap();
    let archive = Archive::open(&path).unwrap();
    let methods: Vec<Method> = archive.members().map(|one| one.unwrap().1.method).collect();
    assert_eq!(methods, [Method::Stored, Method::Deflated, Method::Deflated]);
    let read = read(&archive);
    assert!(read[0].1 == noise && read[1].1 == text && read[2].1 == zeros);
    assert!(faults(&path).is_empty());
}

#[test]
fn a_writer_that_does_not_finish_leaves_nothing() {
    let site = tempfile::tempdir().unwrap();
    let path = site.path().join("a.zip");
    let mut writer = Writer::create(&path, WriteOptions::default()).unwrap();
    writer.add(b"a".to_vec(), bytes_of(&random(2_000_000, 1))).unwrap();
    drop(writer);
    assert_eq!(listing(site.path()), [""; 0]);
}

#[test]
fn a_failure_is_reported_and_leaves_nothing() {
    let site = tempfile::tempdir().unwrap();
    let path = site.path().join("a.zip");
    let source = site.path().join("source");
    std::fs::write(&source, random(3_000_000, 1)).unwrap();
    let mut writer = Writer::create(&path, WriteOptions::default()).unwrap();
    let missing = writer.add(b"a".to_vec(), Source::File(site.path().join("none")));
    assert!(matches!(missing, Err(WriteError::Source { .. })));
    writer.add(b"a".to_vec(), Source::File(source.clone())).unwrap();
    drop(writer);
    let error = Writer::create(&site.path().join("no/a.zip"), WriteOptions::default()).err();
    assert!(matches!(error, Some(WriteError::Read(ReadError::Io { .. }))), "{error:?}");
    std::fs::write(&path, b"").unwrap();
    let error = Writer::create(&path, WriteOptions::default()).err();
    assert!(matches!(error, Some(WriteError::Exists { .. })));
    assert_eq!(listing(site.path()), ["a.zip", "source"]);
}

#[test]
fn two_writers_of_a_set_take_names_of_their_own() {
    let site = tempfile::tempdir().unwrap();
    let path = site.path().join("a.zip");
    let options = WriteOptions { append: true, ..WriteOptions::default() };
    let mut writers: Vec<Writer> =
        (0..4).map(|_| Writer::create(&path, options).unwrap()).collect();
    for (at, writer) in writers.iter_mut().enumerate() {
        writer.add(format!("{at}").into_bytes(), bytes_of(b"data")).unwrap();
    }
    for writer in writers {
        assert_eq!(writer.finish().unwrap().len(), 1);
    }
    assert_eq!(listing(site.path()), ["a.part2.zip", "a.part3.zip", "a.part4.zip", "a.zip"]);
    assert_eq!(read(&Archive::open(&path).unwrap()).len(), 4);
}

#[test]
fn sets_of_one_directory_do_not_mix() {
    let site = tempfile::tempdir().unwrap();
    let bounds = FileBounds { members: 1, ..FileBounds::default() };
    let options = WriteOptions { bounds, ..WriteOptions::default() };
    let members = |of: &str| -> Members {
        (0..3).map(|at| (format!("{of}{at}").into_bytes(), Vec::new())).collect()
    };
    for name in ["s.zip", "s"] {
        write(&site.path().join(name), &members(name), options);
    }
    for name in ["s.zip", "s"] {
        assert_eq!(read(&Archive::open(&site.path().join(name)).unwrap()), members(name));
    }
    for (name, whole) in [("s.part7.zip", "s.zip"), ("s.part7", "s")] {
        let error = Writer::create(&site.path().join(name), options).err().unwrap().to_string();
        let whole = site.path().join(whole).display().to_string();
        assert!(
            error.contains(&format!("is the name of file 7 of the archive {whole}:")),
            "{error}"
        );
    }
}

#[test]
fn nothing_is_added_to_a_set_whose_first_file_is_none() {
    let site = tempfile::tempdir().unwrap();
    let at = |name: &str| site.path().join(name);
    std::fs::create_dir(at("directory.zip")).unwrap();
    std::fs::write(at("text.zip"), "text").unwrap();
    std::fs::write(at("empty.zip"), "").unwrap();
    let members = [(b"m".to_vec(), b"data".to_vec())];
    write(&at("whole.zip"), &members, WriteOptions::default());
    let whole = std::fs::read(at("whole.zip")).unwrap();
    std::fs::write(at("cut.zip"), &whole[..whole.len() - 1]).unwrap();
    let before = listing(site.path());
    let append = WriteOptions { append: true, ..WriteOptions::default() };
    for name in ["directory.zip", "text.zip", "empty.zip", "cut.zip"] {
        let error = Writer::create(&at(name), append).err().unwrap().to_string();
        assert_eq!(Some(error), Archive::open(&at(name)).err().map(|error| error.to_string()));
    }
    assert_eq!(listing(site.path()), before);
    write(&at("whole.zip"), &members, append);
    assert_eq!(read(&Archive::open(&at("whole.zip")).unwrap()).len(), 2);
}

#[test]
fn what_is_no_regular_file_is_refused_and_not_waited_for() {
    let site = tempfile::tempdir().unwrap();
    let at = |name: &str| site.path().join(name);
    // Nobody ever writes to the pipe: who waited for that would never end.
    rustix::fs::mknodat(CWD, at("pipe"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
    std::fs::create_dir(at("directory")).unwrap();
    std::os::unix::fs::symlink("/dev/null", at("device")).unwrap();
    for (name, what) in [
        ("pipe", "a named pipe"),
        ("socket", "a socket"),
        ("directory", "a directory"),
        ("device", "a device"),
    ] {
        let path = at(name);
        let expected = format!("{} is {what}: an archive is a regular file", path.display());
        assert_eq!(Archive::open(&path).err().unwrap().to_string(), expected);
        assert_eq!(faults(&path), std::slice::from_ref(&expected));
        let mut writer = Writer::create(&at("a.zip"), WriteOptions::default()).unwrap();
        let error = salvage(&path, &mut writer).err().unwrap().to_string();
        assert_eq!(error, expected);
        let error = join(&mut writer, &path).err().unwrap().to_string();
        assert_eq!(error, expected);
        assert!(writer.add(b"m".to_vec(), Source::File(path)).is_err());
    }
    assert_eq!(listing(site.path()), ["device", "directory", "pipe", "socket"]);
}

#[test]
fn what_a_writer_that_is_gone_left_is_removed_by_the_next_and_by_no_other() {
    let site = tempfile::tempdir().unwrap();
    let path = site.path().join("a.zip");
    let options = WriteOptions { append: true, ..WriteOptions::default() };
    let mut living = Writer::create(&path, options).unwrap();
    living.add(b"large".to_vec(), bytes_of(&random(3_000_000, 1))).unwrap();
    let unfinished = || {
        let mut names = listing(site.path());
        names.retain(|name| name.ends_with(".unfinished"));
        names
    };
    while unfinished().is_empty() {
        std::thread::yield_now();
    }
    let [name] = &unfinished()[..] else { panic!() };
    // With the machine's number, and without a lock: its writer was killed.
    let (start, end) = (&name[..name.len() - 16 - 11], &name[name.len() - 11..]);
    let dead = format!("{start}{:016x}{end}", 1);
    let elsewhere = format!(".a.zip.{:016x}{:016x}.unfinished", 1, 1);
    let of_another = dead.replace(".a.zip.", ".b.zip.");
    for name in [&dead, &elsewhere, &of_another] {
        std::fs::write(site.path().join(name), "PK").unwrap();
    }
    write(&path, &[(b"m".to_vec(), Vec::new())], options);
    let mut expected = vec![name.clone(), elsewhere, of_another];
    expected.sort();
    assert_eq!(unfinished(), expected);
    living.finish().unwrap();
    assert_eq!(read(&Archive::open(&path).unwrap()).len(), 2);
}

#[test]
fn nothing_is_written_outside_of_the_target() {
    let site = tempfile::tempdir().unwrap();
    let path = site.path().join("a.zip");
    let names: [&[u8]; 12] = [
        b"good",
        b"sub/good",
        b"../up",
        b"sub/../../up",
        b"/etc/falkon-test",
        b"",
        b"a\0b",
        b"link/in",
        b"good/under",
        b"dir/",
        b"file-is-there",
        b"link",
    ];
    let members: Members = names
        .map(|name| (name.to_vec(), if name == b"dir/" { vec![] } else { b"new".to_vec() }))
        .into();
    write(&path, &members, WriteOptions::default());
    let target = site.path().join("t");
    let outside = site.path().join("outside");
    std::fs::create_dir_all(&target).unwrap();
    std::fs::create_dir(&outside).unwrap();
    std::os::unix::fs::symlink(&outside, target.join("link")).unwrap();
    std::fs::write(target.join("file-is-there"), b"old").unwrap();

    let archive = Archive::open(&path).unwrap();
    let mut scratch = Scratch::default();
    for (has_to_replace, expected) in [(false, &b"old"[..]), (true, b"new")] {
        let mut extraction = Extraction::into_directory(&target, has_to_replace).unwrap();
        let mut left_out = Vec::new();
        for found in archive.members() {
            let (part, member) = found.unwrap();
            match extraction.extract(part, &member, &mut scratch) {
                Ok(()) => {}
                Err(ExtractError::LeftOut(why)) => left_out.push((member.name, why)),
                Err(error) => panic!("{error}"),
            }
        }
        let names: Vec<&[u8]> = left_out.iter().map(|(name, _)| &name[..]).collect();
        let always: [&[u8]; 7] = [
            b"../up",
            b"sub/../../up",
            b"/etc/falkon-test",
            b"",
            b"a\0b",
            b"link/in",
            b"good/under",
        ];
        assert!(always.iter().all(|name| names.contains(name)), "{left_out:?}");
        assert!(left_out.contains(&(b"link/in".to_vec(), LeftOut::Through)), "{left_out:?}");
        assert_eq!(std::fs::read(target.join("file-is-there")).unwrap(), expected);
    }
    assert_eq!(listing(&outside), [""; 0]);
    assert_eq!(listing(site.path()), ["a.zip", "outside", "t"]);
    assert_eq!(listing(&target), ["dir", "file-is-there", "good", "link", "sub"]);
    // The link itself was replaced, not what it leads to.
    assert_eq!(std::fs::read(target.join("link")).unwrap(), b"new");
}

#[test]
fn a_file_that_another_tool_has_changed_is_read_without_its_table() {
    let site = tempfile::tempdir().unwrap();
    let path = site.path().join("a.zip");
    let members: Members =
        (0..100_u32).map(|at| (format!("{at}").into_bytes(), vec![7; at as usize])).collect();
    write(&path, &members, WriteOptions::default());
    let mut file = std::fs::read(&path).unwrap();
    // A comment behind the end record, and bytes before the archive.
    let at = file.len() - 2;
    file[at..].copy_from_slice(&5_u16.to_le_bytes());
    file.extend_from_slice(b"hello");
    file.splice(0..0, b"#!/bin/sh\n".iter().copied());
    std::fs::write(&path, &file).unwrap();
    let archive = Archive::open(&path).unwrap();
    assert_eq!(read(&archive), members);
    assert!(faults(&path).is_empty());
    // A table that is damaged costs time, and nothing else.
    let table = archive.parts()[0].layout().lookup.unwrap().want(0, 100);
    file[table.offset as usize..][..table.bytes].fill(0);
    std::fs::write(&path, &file).unwrap();
    let archive = Archive::open(&path).unwrap();
    assert_eq!(archive.find(b"42").unwrap().1.size, 42);
    assert_eq!(faults(&path).len(), 1);
}

#[test]
fn a_name_that_no_table_has_is_not_taken_from_an_earlier_file() {
    let site = tempfile::tempdir().unwrap();
    let path = site.path().join("a.zip");
    write(&path, &[(b"a".to_vec(), b"old".to_vec())], WriteOptions::default());
    let append = WriteOptions { append: true, ..WriteOptions::default() };
    let later = write(&path, &[(b"a".to_vec(), b"later".to_vec())], append).remove(0);
    let whole = std::fs::read(&later).unwrap();
    let archive = Archive::open(&path).unwrap();
    let layout = *archive.parts()[1].layout();
    let table = layout.lookup.unwrap().want(0, 1).offset as usize;
    // A file without a table, and one whose table leads nowhere.
    for (at, changed) in [(layout.directory as usize - 64, b'x'), (table + 15, 0x7f)] {
        let mut file = whole.clone();
        file[at] = changed;
        std::fs::write(&later, &file).unwrap();
        let archive = Archive::open(&path).unwrap();
        let (part, member) = archive.find(b"a").unwrap();
        assert_eq!((part.path(), member.size), (later.as_path(), 5));
    }
}

#[test]
fn a_file_that_is_replaced_stays_until_the_new_one_is_whole() {
    let site = tempfile::tempdir().unwrap();
    let (path, target) = (site.path().join("a.zip"), site.path().join("t"));
    let members = [b"damaged", b"another"].map(|name| (name.to_vec(), name.to_vec()));
    write(&path, &members, WriteOptions { level: 0, ..WriteOptions::default() });
    let mut file = std::fs::read(&path).unwrap();
    let at = file.windows(14).position(|data| data.ends_with(b"damaged") && data[6] == 0).unwrap();
    file[at + 13] ^= 1;
    std::fs::write(&path, &file).unwrap();
    std::fs::create_dir_all(target.join("another")).unwrap();
    std::fs::write(target.join("damaged"), "mine").unwrap();
    let archive = Archive::open(&path).unwrap();
    let mut extraction = Extraction::into_directory(&target, true).unwrap();
    let mut scratch = Scratch::default();
    let mut extract = |name: &[u8]| {
        let (part, member) = archive.find(name).unwrap();
        extraction.extract(part, &member, &mut scratch)
    };
    assert!(matches!(extract(b"damaged"), Err(ExtractError::Read(_))));
    assert!(matches!(extract(b"another"), Err(ExtractError::LeftOut(LeftOut::Exists))));
    assert_eq!(std::fs::read(target.join("damaged")).unwrap(), b"mine");
    assert_eq!(listing(&target), ["another", "damaged"]);
    file[at + 13] ^= 1;
    std::fs::write(&path, &file).unwrap();
    extract(b"damaged").unwrap();
    assert_eq!(std::fs::read(target.join("damaged")).unwrap(), b"damaged");
    assert_eq!(listing(&target), ["another", "damaged"]);
}

#[test]
fn a_file_that_is_cut_off_behind_an_archive_is_not_taken_for_that() {
    let site = tempfile::tempdir().unwrap();
    let (inner, path) = (site.path().join("inner.zip"), site.path().join("a.zip"));
    write(&inner, &[(b"within".to_vec(), random(50, 1))], WriteOptions::default());
    let inner = std::fs::read(inner).unwrap();
    let members = [
        (b"first".to_vec(), random(90, 2)),
        (b"inner.zip".to_vec(), inner),
        (b"last".to_vec(), random(9, 3)),
    ];
    write(&path, &members, WriteOptions { level: 0, ..WriteOptions::default() });
    let whole = std::fs::read(&path).unwrap();
    let (part, last) = {
        let archive = Archive::open(&path).unwrap();
        (archive.parts().len(), archive.find(b"last").unwrap().1.header)
    };
    assert_eq!(part, 1);
    std::fs::write(&path, &whole[..last as usize]).unwrap();
    assert!(matches!(Archive::open(&path), Err(ReadError::Format { .. })));
    assert_eq!(faults(&path).len(), 1);
    let saved = site.path().join("saved.zip");
    let mut writer = Writer::create(&saved, WriteOptions::default()).unwrap();
    salvage(&path, &mut writer).unwrap();
    writer.finish().unwrap();
    assert_eq!(read(&Archive::open(&saved).unwrap()), members[..2]);
}
