//! Directories as objects: what `tar` and Falkon unpack is what was there.

use super::{Target, run, stores};
use falkon_data::store::{Fetched, StoreError, StoreUrl, Want};
use falkon_data::unpack::{measure, remove, unpack};
use falkon_trials::trial;
use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

fn of(folder: &Path) -> StoreUrl {
    StoreUrl::parse(&format!("{}/", folder.display())).unwrap()
}

/// A directory with what is difficult: long names and links, empty files and folders, files
/// whose lengths are around that of a record, and a first name that looks like another format.
fn tree(dir: &Path) -> PathBuf {
    let root = dir.join("tree");
    let deep = root.join("d".repeat(90)).join("e".repeat(90)).join("f".repeat(200));
    fs::create_dir_all(&deep).unwrap();
    fs::create_dir_all(root.join("BZh91")).unwrap();
    for bytes in [0, 1, 511, 512, 513, 3_000_000] {
        let content: Vec<u8> = (0..bytes).map(|at: u32| (at * 7 / 5) as u8).collect();
        fs::write(root.join(format!("{bytes} bytes")), content).unwrap();
    }
    fs::write(deep.join("n".repeat(255)), "deep").unwrap();
    for length in [99, 98, 97, 100, 101] {
        fs::write(root.join("x".repeat(length)), length.to_string()).unwrap();
    }
    fs::write(root.join("tool"), "#!/bin/sh\necho hello\n").unwrap();
    fs::set_permissions(root.join("tool"), fs::Permissions::from_mode(0o755)).unwrap();
    symlink("tool", root.join("short")).unwrap();
    symlink(format!("BZh91/{}", "./".repeat(80)), root.join("long")).unwrap();
    fs::write(root.join("line\nfeed \u{e9}"), "odd").unwrap();
    root
}

/// All that is in a directory: kinds, contents and rights to run.
fn contents(root: &Path) -> Vec<(PathBuf, String, Vec<u8>, bool)> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let state = path.symlink_metadata().unwrap();
            let name = path.strip_prefix(root).unwrap().to_owned();
            let kind = format!("{:?}", state.file_type().is_dir());
            if state.is_dir() {
                folders.push(path);
                found.push((name, kind, Vec::new(), true));
            } else if state.is_symlink() {
                let link = fs::read_link(path).unwrap();
                found.push((name, "link".into(), link.into_os_string().into_encoded_bytes(), true));
            } else {
                let runs = state.permissions().mode() & 0o111 != 0;
                found.push((name, kind, fs::read(path).unwrap(), runs));
            }
        }
    }
    found.sort();
    found
}

#[trial]
fn a_directory_is_a_tar_of_what_is_in_it() {
    let dir = tempfile::tempdir().unwrap();
    let root = tree(dir.path());
    let target = Target::new();
    run(async {
        let known = stores().resolve(&of(&root)).await.unwrap();
        let fetched = stores().fetch(&of(&root), &Want::default(), &target.landing).await.unwrap();
        let bytes = known.bytes.unwrap();
        assert_eq!(fetched, Fetched { bytes, version: known.version });
        assert_eq!(target.content().len() as u64, bytes);
    });
    let archive = File::open(&target.path).unwrap();
    let ours = dir.path().join("ours");
    let bytes_max = measure(&archive, u64::MAX).unwrap();
    unpack(&archive, &ours, bytes_max).unwrap();
    assert_eq!(contents(&ours), contents(&root));
    remove(&ours).unwrap();
    let theirs = dir.path().join("theirs");
    fs::create_dir(&theirs).unwrap();
    let tar = Command::new("tar").arg("-C").arg(&theirs).arg("-xf").arg(&target.path).status();
    assert!(tar.unwrap().success());
    assert_eq!(contents(&theirs), contents(&root));
}

#[trial]
fn any_part_of_a_directory_is_that_part_of_the_tar() {
    let dir = tempfile::tempdir().unwrap();
    let root = tree(dir.path());
    run(async {
        let stores = stores();
        let whole = Target::new();
        let version =
            stores.fetch(&of(&root), &Want::default(), &whole.landing).await.unwrap().version;
        let whole = whole.content();
        for step in [511, 512, 513, 65_536, 1 << 20] {
            for offset in (0..whole.len()).step_by(step).take(40).chain([whole.len()]) {
                let length = step.min(whole.len() - offset);
                let version = Some(version.clone());
                let want = Want { offset: offset as u64, length: Some(length as u64), version };
                let part = Target::new();
                let fetched = stores.fetch(&of(&root), &want, &part.landing).await.unwrap();
                assert_eq!(fetched.bytes, length as u64);
                assert_eq!(part.content(), whole[offset..offset + length], "{offset} {length}");
            }
        }
        let beyond = Want { offset: whole.len() as u64 + 1, ..Want::default() };
        let error = stores.fetch(&of(&root), &beyond, &Target::new().landing).await;
        assert!(matches!(error, Err(StoreError::Refused { .. })), "{error:?}");
    });
}

#[trial]
fn each_change_of_a_directory_is_another_version() {
    let dir = tempfile::tempdir().unwrap();
    let root = tree(dir.path());
    let tool = root.join("tool");
    let touch = |seconds: u64| {
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        File::options().append(true).open(&tool).unwrap().set_modified(at).unwrap();
    };
    let changes: [&dyn Fn(); 8] = [
        &|| fs::write(root.join("new"), "").unwrap(),
        &|| fs::rename(root.join("new"), root.join("newer")).unwrap(),
        &|| fs::write(&tool, "#!/bin/sh\n").unwrap(),
        &|| touch(1_000_000),
        &|| fs::set_permissions(&tool, fs::Permissions::from_mode(0o644)).unwrap(),
        &|| fs::create_dir(root.join("folder")).unwrap(),
        &|| fs::remove_file(root.join("short")).unwrap(),
        &|| symlink("newer", root.join("short")).unwrap(),
    ];
    run(async {
        let stores = stores();
        let mut before = stores.resolve(&of(&root)).await.unwrap();
        for (number, change) in changes.iter().enumerate() {
            assert_eq!(stores.resolve(&of(&root)).await.unwrap(), before, "{number}");
            change();
            let now = stores.resolve(&of(&root)).await.unwrap();
            assert_ne!(now.version, before.version, "{number}");
            let want = Want { version: Some(before.version), ..Want::default() };
            match stores.fetch(&of(&root), &want, &Target::new().landing).await {
                Err(StoreError::Changed { now: Some(found), .. }) => assert_eq!(found, now),
                other => panic!("{number}: {other:?}"),
            }
            before = now;
        }
    });
}

#[trial]
fn what_no_archive_has_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let root = tree(dir.path());
    let error = |path: &Path| run(async { stores().resolve(&of(path)).await }).unwrap_err();
    assert!(matches!(error(&root.join("none")), StoreError::NotThere { .. }));
    let file = error(&root.join("tool")).to_string();
    assert!(file.contains("leave out the slash"), "{file}");
    let _socket = std::os::unix::net::UnixListener::bind(root.join("socket")).unwrap();
    let socket = error(&root).to_string();
    assert!(socket.contains("`socket` is a socket"), "{socket}");
    let put = run(async { stores().put(&root.join("tool"), &of(&root)).await });
    assert!(matches!(put, Err(StoreError::ReadOnly { .. })), "{put:?}");
}

#[trial]
fn a_file_that_is_written_while_it_is_packed_is_no_mixture() {
    let dir = tempfile::tempdir().unwrap();
    let root = tree(dir.path());
    // The first bytes that arrive change a file that is not read yet.
    let written = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let late = root.join("zz");
    fs::write(&late, "one").unwrap();
    let landing = falkon_data::object::Landing::taking(
        move |_| {
            if !written.swap(true, std::sync::atomic::Ordering::Relaxed) {
                fs::write(&late, "another").unwrap();
            }
            Ok(())
        },
        |_| {},
    );
    let fetched = run(async { stores().fetch(&of(&root), &Want::default(), &landing).await });
    assert!(matches!(fetched, Err(StoreError::Changed { .. })), "{fetched:?}");
}
