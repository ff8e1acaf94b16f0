//! An archive of a million members of 1 KiB: written, listed, and one member
//! read by who has opened nothing before, beside the bytes alone and beside
//! Python's zipfile: `cargo bench -p falkon-archive --bench million`.
//!
//! Members come from memory, so that the archive is measured and not the reading
//! of a million files. `FALKON_MEMBERS` is another number of members, `FALKON_MEMBER_BYTES`
//! another size of each, and `FALKON_ROUNDS` another number of rounds.
//! `FALKON_BENCH_DIR` is where files are, else the temporary directory.

#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

use falkon_archive::{Archive, Newest, Scratch, Source, WriteOptions, Writer, check};
use falkon_core::archive::{Member, Pattern};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// Members that are read at random.
const READS: u64 = 101;

const PYTHON: &str = "
import sys, time, zipfile
start = time.perf_counter()
archive = zipfile.ZipFile(sys.argv[1])
archive.read(sys.argv[2])
print(time.perf_counter() - start)
";

/// Members of which Python's zipfile is asked for one: it holds all in memory.
const PYTHON_MEMBERS_MAX: u64 = 2_000_000;

static MEMBER_BYTES: LazyLock<usize> =
    LazyLock::new(|| set("FALKON_MEMBER_BYTES", 1 << 10) as usize);
static ROUNDS: LazyLock<u64> = LazyLock::new(|| set("FALKON_ROUNDS", 3));

fn set(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().unwrap())
}

fn main() {
    let members = set("FALKON_MEMBERS", 1_000_000);
    let (bytes, rounds) = (*MEMBER_BYTES, *ROUNDS);
    let site = match std::env::var_os("FALKON_BENCH_DIR") {
        Some(place) => tempfile::tempdir_in(place).unwrap(),
        None => tempfile::tempdir().unwrap(),
    };
    let path = site.path().join("members.zip");
    println!("{members} members of {bytes} bytes, {rounds} rounds, medians");
    for (what, of) in [("noise, which is stored", noise as fn(u64) -> Vec<u8>), ("text", text)] {
        let (mut writing, mut floor) = (Vec::new(), Vec::new());
        let (mut files, mut bytes) = (Vec::new(), 0);
        for _ in 0..rounds {
            files.drain(..).for_each(|file: PathBuf| std::fs::remove_file(file).unwrap());
            writing.push(timed(|| files = write(&path, members, of)));
            bytes = files.iter().map(|file| std::fs::metadata(file).unwrap().len()).sum();
            floor.push(timed(|| bare(&site.path().join("bare"), bytes)));
        }
        println!("\n{what}: {} MB, files: {}", bytes / 1_000_000, files.len());
        let (writing, floor) = (median(&mut writing), median(&mut floor));
        line("written and synced", writing);
        println!("  {:>10} MiB of memory", memory());
        line("the same bytes alone, written and synced", floor);
        println!("  ratio {:.2}", writing.as_secs_f64() / floor.as_secs_f64());
        read(&path, members);
        println!("  {:>10} MiB of memory", memory());
        files.into_iter().for_each(|file| std::fs::remove_file(file).unwrap());
    }
}

/// The most memory that the program has had, in MiB.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

fn read(path: &Path, members: u64) {
    let mut listing: Vec<Duration> =
        (0..*ROUNDS).map(|_| timed(|| assert_eq!(listed(path), members))).collect();
    line("listed", median(&mut listing));
    let mut matching: Vec<Duration> =
        (0..*ROUNDS).map(|_| timed(|| assert_eq!(matching(path), members))).collect();
    line("listed by a pattern, the newest of each name", median(&mut matching));
    let mut state = 1;
    let mut firsts: Vec<Duration> = (0..READS)
        .map(|_| {
            let name = name(next(&mut state) % members);
            timed(|| {
                let archive = Archive::open(path).unwrap();
                let (part, member) = archive.find(&name).unwrap();
                let mut data = Vec::new();
                let mut take = |bytes: &[u8]| {
                    data.extend_from_slice(bytes);
                    Ok(())
                };
                Scratch::default().read(part, &member, &mut take).unwrap();
                assert_eq!(data.len(), *MEMBER_BYTES);
            })
        })
        .collect();
    line("opened, and a random member read", median(&mut firsts));
    line("  the slowest of 101", firsts[firsts.len() - 1]);
    let threads = WriteOptions::default().threads;
    line("checked", timed(|| assert_eq!(check(path, threads, &|_| ()).unwrap().faults, 0)));
    if members > PYTHON_MEMBERS_MAX {
        return;
    }
    let wanted = String::from_utf8(name(members / 2)).unwrap();
    let python = Command::new("python3").args(["-c", PYTHON]).arg(path).arg(&wanted).output();
    match python.ok().filter(|python| python.status.success()) {
        Some(python) => {
            let seconds: f64 = String::from_utf8(python.stdout).unwrap().trim().parse().unwrap();
            line("Python's zipfile: opened, and a member read", Duration::from_secs_f64(seconds));
        }
        None => println!("  Python's zipfile is not there"),
    }
}

/// The files of the set: more than a million members are several.
fn write(path: &Path, members: u64, of: fn(u64) -> Vec<u8>) -> Vec<PathBuf> {
    let mut writer = Writer::create(path, WriteOptions::default()).unwrap();
    for at in 0..members {
        let source = Source::Bytes { data: of(at), modified: 1_700_000_000, permissions: 0o644 };
        writer.add(name(at), source).unwrap();
    }
    writer.finish().unwrap()
}

/// As many bytes, in pieces as the writer has them.
fn bare(path: &Path, bytes: u64) {
    let piece = noise(7).repeat((1 << 20) / *MEMBER_BYTES);
    let mut file = std::fs::File::create(path).unwrap();
    for _ in 0..bytes / piece.len() as u64 {
        file.write_all(&piece).unwrap();
    }
    file.sync_all().unwrap();
    std::fs::remove_file(path).unwrap();
}

fn listed(path: &Path) -> u64 {
    let archive = Archive::open(path).unwrap();
    let names = archive.members().map(|found| found.unwrap().1.name.len());
    names.filter(|bytes| *bytes > 0).count() as u64
}

fn matching(path: &Path) -> u64 {
    let archive = Archive::open(path).unwrap();
    let pattern = Pattern::new(b"*/energy.dat").unwrap();
    let newest = Newest::of(&archive, |member| pattern.matches(&member.name)).unwrap();
    let mut found = 0;
    for (number, part) in archive.parts().iter().enumerate() {
        let members = part.members().map(Result::unwrap);
        let is_meant = |member: &Member| pattern.matches(&member.name) && newest.is(number, member);
        found += members.filter(is_meant).count() as u64;
    }
    found
}

fn name(at: u64) -> Vec<u8> {
    format!("{at}/energy.dat").into_bytes()
}

fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 20
}

fn noise(at: u64) -> Vec<u8> {
    let mut state = at;
    let mut data = Vec::with_capacity(*MEMBER_BYTES);
    while data.len() < *MEMBER_BYTES {
        data.extend_from_slice(&next(&mut state).to_le_bytes()[..5]);
    }
    data.truncate(*MEMBER_BYTES);
    data
}

/// What a docking program prints.
fn text(at: u64) -> Vec<u8> {
    let mut state = at;
    let mut text = String::with_capacity(*MEMBER_BYTES + 80);
    while text.len() < *MEMBER_BYTES {
        let mut value = || (next(&mut state) % 20_000) as f64 / 1000.0 - 10.0;
        text += &format!(
            "ATOM  C  LIG {:8.3} {:8.3} {:8.3}  {:6.3}\n",
            value(),
            value(),
            value(),
            value()
        );
    }
    text.truncate(*MEMBER_BYTES);
    text.into_bytes()
}

fn timed(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

/// Sorts, and returns the middle.
fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn line(what: &str, time: Duration) {
    println!("  {:>10.3} ms  {what}", time.as_secs_f64() * 1e3);
}
