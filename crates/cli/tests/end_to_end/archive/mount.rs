//! `falkon archive mount`, where this machine lets its user mount file systems.

use super::{below, create, source};
use crate::fixture::{Running, Site, poll};
use falkon_archive::{Source, WriteOptions, Writer};
use falkon_trials::{skip, trial};
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::Signal;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Words of the line that `falkon archive mount` prints once files can be read.
const READY: [&str; 2] = ["files are shown at", "as files at"];
/// The exit status of what this machine cannot do.
const FAILURE: i32 = 3;

/// Mounts archives at `m`.
fn mounted(site: &Site, archives: &[&str]) -> Running {
    std::fs::create_dir_all(site.path("m")).unwrap();
    let mut running = site.start(["archive", "mount"].iter().chain(archives).chain(&["m"]));
    let mut status = None;
    poll("a mount", || {
        status = running.ended_within(Duration::ZERO);
        let said = running.said();
        status.is_some() || READY.iter().any(|words| said.contains(words))
    });
    match status {
        Some(status) if status.code() == Some(FAILURE) => skip(running.said()),
        Some(status) => panic!("{status}: {}", running.said()),
        None => running,
    }
}

/// Has it find no program, and so not the helper of FUSE.
fn without_helper(site: &mut Site) {
    let empty = site.text("tmp");
    site.set("PATH", &empty);
}

fn has_helper() -> bool {
    ["fusermount3", "fusermount"].iter().any(|name| Command::new(name).arg("-V").output().is_ok())
}

fn is_mounted(path: &Path) -> bool {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    table.lines().any(|line| line.split(' ').nth(4) == path.to_str())
}

fn shows_what_went_in(site: &Site) {
    let files = source(site);
    let path = site.path("source/7/energy.dat");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o640)).unwrap();
    create(site, &["--file-members", "60"]);
    let running = mounted(site, &["s.zip"]);
    assert!(below(&site.path("m")) == files);
    for name in files.keys() {
        let [was, is] = ["source", "m"].map(|of| site.path(of).join(name).metadata().unwrap());
        let of = |found: &std::fs::Metadata| (found.len(), found.mtime(), found.mode());
        assert_eq!(of(&was), of(&is), "{name}");
    }
    assert!(std::fs::write(site.path("m/new"), "new").is_err());
    assert!(!site.path("m/none").exists());
    running.signal(Signal::TERM);
    running.finish().exits(0).says("154 files are shown at");
    assert!(!is_mounted(&site.path("m")));
    assert_eq!(below(&site.path("m")).len(), 0);
}

#[trial]
fn a_mounted_archive_has_the_files_that_went_in() {
    shows_what_went_in(&Site::new());
}

#[trial]
fn files_of_a_large_archive_are_found_before_all_names_are_read() {
    let site = Site::new();
    let count = 5000;
    let name = |number: usize| format!("{}/{number}.dat", number % 70);
    let mut writer = Writer::create(&site.path("s.zip"), WriteOptions::default()).unwrap();
    for number in (0..count).chain([17]) {
        let data = format!("energy {number}").into_bytes();
        let source = Source::Bytes { data, modified: 1_700_000_000, permissions: 0o644 };
        writer.add(name(number).into_bytes(), source).unwrap();
    }
    writer.finish().unwrap();
    let running = mounted(&site, &["s.zip"]);
    running.wait_for("5001 members are shown as files at");
    for number in [4321, 17, 0, 4999] {
        assert_eq!(site.read(&format!("m/{}", name(number))), format!("energy {number}"));
    }
    assert!(!site.path("m/none").exists() && !site.path("m/7/none").exists());
    let files = below(&site.path("m"));
    assert_eq!(files.len(), count);
    assert!(
        (0..count).all(|number| files[&name(number)] == format!("energy {number}").into_bytes())
    );
    running.wait_for("left out 1 whose names later ones have");
    running.signal(Signal::TERM);
    running.finish().exits(0);
}

#[trial]
fn root_mounts_without_a_helper() {
    let mut site = Site::new();
    without_helper(&mut site);
    shows_what_went_in(&site);
}

#[trial]
fn copies_of_a_mounted_archive_are_the_files_themselves() {
    let site = Site::new();
    let files = source(&site);
    create(&site, &[]);
    let running = mounted(&site, &["s.zip"]);
    let mut command = site.program("sh");
    command.args(["-c", "cp -rp m copy && grep -rl 'energy 149' m && find m -type f | wc -l"]);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(said, format!("m/149/energy.dat\n{}\n", files.len()));
    assert!(below(&site.path("copy")) == files);
    running.signal(Signal::INT);
    running.finish().exits(0);
}

#[trial]
fn members_that_match_are_mounted_and_whoever_unmounts_ends_it() {
    let site = Site::new();
    source(&site);
    create(&site, &["--file-members", "60"]);
    std::fs::create_dir(site.path("m")).unwrap();
    site.run(["archive", "mount", "s.zip!none*", "m"]).exits(1).says("no member matches");
    site.run(["archive", "mount", "none.zip", "m"]).exits(2);
    site.run(["archive", "mount", "s.zip", "s.zip"]).exits(2).says("it is no directory");
    site.run(["archive", "mount", "s.zip", "."]).exits(2).says("where it would be hidden");
    let running = mounted(&site, &["s.zip!14?/energy.dat", "s.zip!text"]);
    assert_eq!(below(&site.path("m")).len(), 11);
    if unmount(site.path("m"), UnmountFlags::DETACH).is_err() {
        let status = site.program("fusermount3").args(["-u", "-z", "m"]).status();
        assert!(status.unwrap().success());
    }
    running.finish().exits(0);
}

#[trial]
fn a_damaged_member_is_an_error_that_is_reported_once() {
    let site = Site::new();
    let mut writer = Writer::create(&site.path("s.zip"), WriteOptions::default()).unwrap();
    for (name, data) in [("../out", "x"), ("a/b", "energy"), ("bad", "entropy"), ("a", "y")] {
        let data = data.as_bytes().to_vec();
        let source = Source::Bytes { data, modified: 1_700_000_000, permissions: 0o644 };
        writer.add(name.into(), source).unwrap();
    }
    writer.finish().unwrap();
    let mut bytes = std::fs::read(site.path("s.zip")).unwrap();
    let at = bytes.windows(7).position(|window| window == b"entropy").unwrap();
    bytes[at] ^= 1;
    std::fs::write(site.path("s.zip"), bytes).unwrap();
    let running = mounted(&site, &["s.zip"]);
    for _ in 0..3 {
        let error = std::fs::read(site.path("m/bad")).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()));
    }
    assert_eq!(site.read("m/a/b"), "energy");
    running.signal(Signal::TERM);
    let ran = running.finish().exits(0).says("2 files are shown at");
    let ran = ran.says("left out 2 that are links or devices, or whose names lead elsewhere");
    ran.says_only(2, "member `bad` at byte");
}

#[trial]
fn nothing_stays_mounted_when_it_is_killed() {
    if !has_helper() {
        skip("fusermount3 is not there (Debian: fuse3)");
    }
    let site = Site::new();
    source(&site);
    create(&site, &[]);
    let running = mounted(&site, &["s.zip"]);
    assert!(is_mounted(&site.path("m")));
    // The kernel keeps what it was told, and could answer for a process that is gone.
    assert_ne!(below(&site.path("m")).len(), 0);
    running.kill();
    poll("an end of the mount", || !is_mounted(&site.path("m")));
    assert_eq!(below(&site.path("m")).len(), 0);
}
