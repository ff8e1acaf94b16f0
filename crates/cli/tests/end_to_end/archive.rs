//! `falkon archive`, and its files in the hands of readers that know nothing of
//! Falkon.

mod mount;

use crate::fixture::{Random, Site};
use falkon_trials::{skip, trial};
use std::collections::BTreeMap;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;

/// Rounds of killing if `FALKON_ROUNDS` does not say.
const ROUNDS: u64 = 200;
/// The longest time until a writer is killed: most have finished by then.
const MOMENT_MICROS: u64 = 150_000;

/// Files that are stored and deflated, small and in pieces, with names that all
/// readers know.
fn source(site: &Site) -> BTreeMap<String, Vec<u8>> {
    let mut random = Random::seeded("contents");
    let mut files = BTreeMap::new();
    for at in 0..150 {
        files.insert(format!("{at}/energy.dat"), format!("energy {at}\n").repeat(at).into_bytes());
    }
    let noise: Vec<u8> = (0..300_000).flat_map(|_| random.next().to_le_bytes()).collect();
    files.insert("noise".to_owned(), noise);
    files.insert("text".to_owned(), b"REMARK VINA RESULT\n".repeat(150_000));
    files.insert("ärger/maß ü".to_owned(), b"UTF-8".to_vec());
    files.insert("with space".to_owned(), Vec::new());
    for (name, data) in &files {
        let path = site.path("source").join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, data).unwrap();
    }
    files
}

/// The files below a directory, by their paths from there.
fn below(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    fn add(root: &Path, directory: &Path, found: &mut BTreeMap<String, Vec<u8>>) {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                add(root, &path, found);
            } else {
                let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
                found.insert(name, std::fs::read(&path).unwrap());
            }
        }
    }
    let mut found = BTreeMap::new();
    add(directory, directory, &mut found);
    found
}

fn create(site: &Site, extra: &[&str]) {
    let args = ["archive", "create", "s.zip", "-C", "source", "."];
    site.run(args.iter().chain(extra)).exits(0);
}

fn is_whole(site: &Site, archive: &str) -> bool {
    site.run(["archive", "check", archive]).exits(0).text().contains("all is whole")
}

/// The files of the set, in order.
const FILES: [&str; 3] = ["s.zip", "s.part2.zip", "s.part3.zip"];

/// Has a reader extract all files of a set to a directory, and compares. `args`
/// come before the archive, `into` after it.
fn extracted_by(program: &str, package: &str, args: &[&str], into: &[&str]) {
    if Command::new(program).arg("--help").output().is_err() {
        skip(format!("{program} is not there (Debian: {package})"));
    }
    let site = Site::new();
    let files = source(&site);
    create(&site, &["--file-members", "60"]);
    std::fs::create_dir(site.path("out")).unwrap();
    for file in FILES {
        let mut command = site.program(program);
        command.args(args).arg(site.path(file)).args(into).env("LC_ALL", "C.UTF-8");
        let output = command.current_dir(site.path("out")).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{program} {file}: {said}");
        assert_eq!(said, "", "{program} {file}");
    }
    assert!(below(&site.path("out")) == files, "{program} reads other files");
}

#[trial]
fn unzip_reads_archives() {
    extracted_by("unzip", "unzip", &["-q"], &[]);
}

#[trial]
fn bsdtar_reads_archives() {
    extracted_by("bsdtar", "libarchive-tools", &["-xf"], &[]);
}

#[trial]
fn bsdtar_reads_archives_from_a_pipe() {
    let script = "bsdtar -xf - <\"$1\"";
    if Command::new("bsdtar").arg("--help").output().is_err() {
        skip("bsdtar is not there (Debian: libarchive-tools)");
    }
    extracted_by("sh", "dash", &["-c", script, "sh"], &[]);
}

#[trial]
fn python_reads_archives() {
    extracted_by("python3", "python3", &["-m", "zipfile", "-e"], &["."]);
}

#[trial]
fn the_commands_agree() {
    let site = Site::new();
    let files = source(&site);
    create(&site, &["--file-members", "60", "--jobs", "3"]);
    assert!(is_whole(&site, "s.zip"));
    let listed = site.run(["archive", "ls", "s.zip"]).exits(0);
    assert_eq!(listed.sorted(), files.keys().map(String::as_str).collect::<Vec<_>>());
    let matching = site.run(["archive", "ls", "s.zip!14*/energy.dat"]).exits(0);
    assert_eq!(matching.lines().len(), 11, "{}", matching.text());
    let two = site.run(["archive", "cat", "s.zip!7/energy.dat", "s.zip!ärger/maß ü"]).exits(0);
    assert_eq!(two.text(), "energy 7\n".repeat(7) + "UTF-8");
    site.run(["archive", "cat", "s.zip!none"]).exits(2);
    site.run(["archive", "cat", "s.zip!none*"]).exits(1);
    site.run(["archive", "ls", "none.zip"]).exits(2);

    site.run(["archive", "join", "joined.zip", "s.zip"]).exits(0);
    site.run(["archive", "get", "joined.zip", "--to", "out"]).exits(0);
    assert!(below(&site.path("out")) == files);
    // What exists stays.
    site.write("out/7/energy.dat", "mine");
    site.run(["archive", "get", "joined.zip!7/*", "--to", "out"]).exits(1);
    assert_eq!(site.read("out/7/energy.dat"), "mine");
    site.run(["archive", "get", "joined.zip!7/*", "--to", "out", "--overwrite"]).exits(0);
    assert!(below(&site.path("out")) == files);

    // A set that exists is not written over; what is appended counts.
    site.run(["archive", "create", "s.zip", "out"]).exits(2);
    site.write("out/7/energy.dat", "later");
    site.run(["archive", "create", "--append", "s.zip", "-C", "out", "7"]).exits(0);
    let newest = site.run(["archive", "cat", "s.zip!7/energy.dat"]).exits(0);
    assert_eq!(newest.text(), "later");
}

#[trial]
fn a_damaged_archive_is_reported_with_its_place_and_salvaged() {
    let site = Site::new();
    let files = source(&site);
    create(&site, &[]);
    let whole = std::fs::read(site.path("s.zip")).unwrap();
    let at = whole.windows(5).position(|five| five == b"UTF-8").unwrap();
    let mut damaged = whole.clone();
    damaged[at] ^= 1;
    site.write("s.zip", &damaged);
    let said = site.run(["archive", "check", "s.zip"]).exits(1);
    said.says("member `ärger/maß ü` at byte ").says("their CRC is");
    // The directory is cut off with the last members.
    site.write("s.zip", &whole[..at + 2]);
    site.run(["archive", "check", "s.zip"]).exits(1).says("its end is missing");
    site.run(["archive", "check", "s.zip", "--salvage", "saved.zip"]).exits(0);
    site.run(["archive", "check", "saved.zip"]).exits(0);
    site.run(["archive", "get", "saved.zip", "--to", "out"]).exits(0);
    let saved = below(&site.path("out"));
    assert!(saved.iter().all(|(name, data)| files.get(name) == Some(data)));
    assert!(saved.len() + 2 >= files.len(), "{} of {}", saved.len(), files.len());
}

#[trial]
fn a_writer_that_is_killed_leaves_whole_files_or_none() {
    let rounds = std::env::var("FALKON_ROUNDS").map_or(ROUNDS, |text| text.parse().unwrap());
    let mut random = Random::seeded("archives");
    let site = Site::new();
    let files = source(&site);
    let (mut whole, mut unfinished) = (0, 0);
    for round in 0..rounds {
        let directory = format!("r{round}");
        std::fs::create_dir(site.path(&directory)).unwrap();
        let archive = format!("{directory}/s.zip");
        let bound = ["--file-members", "40"];
        let args = ["archive", "create", &archive, "-C", "source", "."];
        let running = site.start(args.iter().chain(&bound));
        random.moment(MOMENT_MICROS);
        running.kill();
        let found = below(&site.path(&directory));
        for name in found.keys() {
            let has_appeared = name == "s.zip" || name.starts_with("s.part");
            assert!(has_appeared || name.ends_with(".unfinished"), "{name}");
            if has_appeared {
                whole += 1;
            } else {
                unfinished += 1;
            }
        }
        if found.contains_key("s.zip") {
            assert!(is_whole(&site, &archive));
        }
        if let Some(name) = found.keys().find(|name| name.ends_with(".unfinished")) {
            // Members before its end are recovered; a file without any has none.
            let (from, to) = (format!("{directory}/{name}"), format!("{directory}/saved.zip"));
            site.run(["archive", "check", &from, "--salvage", &to]).exits(0);
            let out = format!("{directory}/out");
            site.run(["archive", "get", &to, "--to", &out]).exits(0);
            let saved = below(&site.path(&out));
            assert!(saved.iter().all(|(name, data)| files.get(name) == Some(data)));
        }
        std::fs::remove_dir_all(site.path(&directory)).unwrap();
    }
    println!("{whole} whole files and {unfinished} unfinished ones of {rounds} writers");
}

#[trial]
fn the_files_of_an_archive_are_no_members_of_it() {
    let site = Site::new();
    std::fs::create_dir_all(site.path("source/sub")).unwrap();
    site.write("source/sub/a", "a");
    site.write("source/sub/.s.zip.00000000000000000000000000000000.unfinished", "half");
    site.write("source/s.zip", "another");
    for append in [&[][..], &["--append"]] {
        let args = ["archive", "create", "source/sub/s.zip", "-C", "source", "."];
        site.run(args.iter().chain(append)).exits(0);
        let listed = site.run(["archive", "ls", "source/sub/s.zip"]).exits(0);
        assert_eq!(listed.lines().len() % 2, 0, "{}", listed.text());
        assert!(listed.lines().iter().all(|name| ["s.zip", "sub/a"].contains(name)));
    }
}

#[trial]
fn a_member_that_has_no_room_is_no_damaged_one_and_what_it_replaces_stays() {
    let site = Site::new();
    std::fs::create_dir(site.path("source")).unwrap();
    site.write("source/a", "new".repeat(100_000));
    create(&site, &[]);
    std::fs::create_dir(site.path("out")).unwrap();
    site.write("out/a", "mine");
    // Files of a kilobyte at most.
    let script = "trap '' XFSZ; ulimit -f 2; exec \"$0\" archive get s.zip --to out --overwrite";
    let mut command = site.program("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_falkon")]);
    let output = command.current_dir(site.path(".")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(site.read("out/a"), "mine", "{said}");
    assert_eq!(below(&site.path("out")).len(), 1, "{said}");
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("cannot write member `a` below out: File too large"), "{said}");
}

#[trial]
fn zeros_take_no_room_in_files_that_members_are_copied_to() {
    const BYTES: u64 = 64 << 20;
    let site = Site::new();
    std::fs::create_dir(site.path("source")).unwrap();
    // Data between two holes, of which the second is at the end.
    let file = std::fs::File::create(site.path("source/a")).unwrap();
    file.write_all_at(b"between", BYTES / 2 - 3).unwrap();
    file.set_len(BYTES).unwrap();
    if file.metadata().unwrap().blocks() * 512 > BYTES / 4 {
        skip("this file system keeps no holes");
    }
    create(&site, &["--level", "0"]);
    for archive in ["s.zip", "joined.zip"] {
        if archive == "joined.zip" {
            site.run(["archive", "join", archive, "s.zip"]).exits(0);
        }
        site.run(["archive", "get", archive, "--to", "out", "--overwrite"]).exits(0);
        for path in [site.path(archive), site.path("out/a")] {
            let found = std::fs::metadata(&path).unwrap();
            assert!(found.blocks() * 512 < BYTES / 4, "{}: {found:?}", path.display());
        }
        let (got, source) = (site.path("out/a"), site.path("source/a"));
        assert!(std::fs::read(got).unwrap() == std::fs::read(source).unwrap());
    }
}

#[trial]
fn no_more_threads_are_started_than_are_of_use() {
    let site = Site::new();
    std::fs::create_dir(site.path("source")).unwrap();
    site.write("source/a", "a");
    create(&site, &[]);
    let script = "ulimit -v 8000000; exec \"$0\" archive check -j 65535 s.zip";
    let mut command = site.program("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_falkon")]);
    let output = command.current_dir(site.path(".")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
