//! Members of an archive in the own cache. Those of peers are read by
//! `cli/tests/end_to_end/data/shuffle.rs`, at every level of security.

use super::*;
use falkon_archive::{Source, WriteOptions, Writer};
use std::path::Path;

/// An archive of members with these names and sizes, at `path`.
fn write(path: &Path, members: &[(String, usize)], level: u32) {
    let options = WriteOptions { level, threads: 2, ..WriteOptions::default() };
    let mut writer = Writer::create(path, options).unwrap();
    for (at, (name, size)) in members.iter().enumerate() {
        let source = Source::Bytes { data: data(at, *size), modified: 0, permissions: 0o644 };
        writer.add(name.clone().into_bytes(), source).unwrap();
    }
    assert_eq!(writer.finish().unwrap().len(), 1);
}

/// Data that differ from member to member, half of them compressible.
fn data(at: usize, size: usize) -> Vec<u8> {
    (0..size)
        .map(|byte| {
            (byte * byte / (1 + at % 7) + at) as u8 & if at.is_multiple_of(2) { 3 } else { 255 }
        })
        .collect()
}

fn own(path: &Path) -> Archive {
    let file = File::open(path).unwrap();
    let bytes = file.metadata().unwrap().len();
    Archive { id: ObjectId(7), holder: Holder::Own(Arc::new(file), bytes) }
}

/// What a member is read as, and how large it was said to be.
fn read(archives: &Archives, archive: &Archive, name: &str) -> Result<Vec<u8>, MemberError> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let file = Arc::new(tempfile::tempfile().unwrap());
    let landing = Landing::new(Arc::clone(&file), 0, |_| ());
    let bytes = runtime.block_on(archives.fetch(archive, name, &landing))?;
    let mut found = vec![0; bytes as usize];
    file.read_exact_at(&mut found, 0).unwrap();
    assert_eq!(landing.written(), bytes);
    Ok(found)
}

#[test]
fn each_member_is_read_whole_however_it_is_packed() {
    let folder = tempfile::tempdir().unwrap();
    let sizes = [0, 1, 5_000, 300_000, 3_000_000];
    let members: Vec<(String, usize)> =
        (0..20).map(|at| (format!("d/range.{at}"), sizes[at % sizes.len()])).collect();
    for level in [0, 6] {
        let path = folder.path().join(format!("{level}.zip"));
        write(&path, &members, level);
        let (archives, archive) = (Archives::default(), own(&path));
        for (at, (name, size)) in members.iter().enumerate() {
            assert_eq!(read(&archives, &archive, name).unwrap(), data(at, *size), "{level} {name}");
        }
        let error = read(&archives, &archive, "range.1").unwrap_err();
        assert!(matches!(error, MemberError::NoMember(_)), "{error}");
    }
}

#[test]
fn a_long_table_is_not_held_and_leads_to_members_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.zip");
    let members: Vec<(String, usize)> = (0..20_000).map(|at| (format!("{at}"), at % 3)).collect();
    write(&path, &members, 0);
    let (archives, archive) = (Archives::default(), own(&path));
    for at in [0, 1, 777, 19_999] {
        assert_eq!(read(&archives, &archive, &at.to_string()).unwrap(), data(at, at % 3));
    }
    assert!(matches!(read(&archives, &archive, "20000"), Err(MemberError::NoMember(_))));
    assert!(archives.held.lock().unwrap().bytes < 100_000);
}

#[test]
fn damaged_data_are_never_taken_for_a_member() {
    let folder = tempfile::tempdir().unwrap();
    for level in [0, 6] {
        let path = folder.path().join(format!("{level}.zip"));
        write(&path, &[("m".to_owned(), 100_000)], level);
        let good = std::fs::read(&path).unwrap();
        let mut bad = good.clone();
        bad[200] ^= 0x10;
        std::fs::write(&path, &bad).unwrap();
        let error = read(&Archives::default(), &own(&path), "m").unwrap_err();
        assert!(matches!(error, MemberError::Damaged { .. }), "{error}");
        for length in (0..good.len()).step_by(997) {
            std::fs::write(&path, &good[..length]).unwrap();
            let error = read(&Archives::default(), &own(&path), "m").unwrap_err();
            assert!(matches!(error, MemberError::NoMember(_)), "{length}: {error}");
        }
    }
}
