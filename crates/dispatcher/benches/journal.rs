//! How fast the journal appends and replays, beside a bare `write` of the same bytes and a copy in
//! memory, all in one run: `cargo bench -p falkon-dispatcher --bench journal -- [DIR]`.
//!
//! All of it happens in the page cache. What "and sync" adds is a property of the device, so the
//! row of a bare `fdatasync` stands beside it; replay reads the last segment twice, once to find
//! its end and once to hand out its records.

use std::fs::File;
use std::hint::black_box;
use std::io::Write;
use std::path::Path;
use std::time::Instant;

use falkon_dispatcher::journal::{Journal, Options};

const RECORD_BYTES: usize = 100;
const RECORD_HEADER_BYTES: usize = 12;
const ROUNDS: usize = 3;

/// Records appended for each commit, and how many in all.
const CASES: [(usize, usize); 3] = [(1, 300_000), (100, 2_000_000), (10_000, 4_000_000)];

fn main() {
    // Cargo itself passes `--bench`.
    let dir = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    let root = match &dir {
        Some(dir) => tempfile::tempdir_in(dir),
        None => tempfile::tempdir(),
    };
    let root = root.expect("the benchmark needs a directory that it can write to");
    println!("{RECORD_BYTES}-byte records in {}, best of {ROUNDS}", root.path().display());
    println!("{:<34}{:>14}{:>12}{:>12}", "", "records/s", "MB/s", "x write");
    for (batch, records) in CASES {
        let bare = best(|| bare_write(root.path(), batch, records));
        row(&format!("write(), {batch} per call"), records, bare, bare);
        let append = best(|| append(root.path(), batch, records));
        row(&format!("append, {batch} per commit"), records, append, bare);
        let synced = best(|| append_and_sync(root.path(), batch, records));
        row(&format!("append, {batch} per commit, and sync"), records, synced, bare);
        let replay = best(|| replay(root.path(), records));
        row(&format!("replay of {records}"), records, replay, bare);
        remove(root.path());
    }
    let synced = 448 << 20;
    let seconds = best(|| bare_sync(root.path(), synced));
    println!("{:<34}{:>14}{:>12.0}", "bare fdatasync", "", synced as f64 / seconds / 1e6);
    let copied = 256 << 20;
    let seconds = best(|| copy(copied));
    println!("{:<34}{:>14}{:>12.0}", "copy in memory", "", copied as f64 / seconds / 1e6);
    let seconds = best(|| checksum(copied));
    println!("{:<34}{:>14}{:>12.0}", "crc32 in memory", "", copied as f64 / seconds / 1e6);
}

fn best(mut run: impl FnMut() -> f64) -> f64 {
    (0..ROUNDS).map(|_| run()).fold(f64::INFINITY, f64::min)
}

fn row(name: &str, records: usize, seconds: f64, bare: f64) {
    let rate = records as f64 / seconds;
    let bytes = (RECORD_BYTES + RECORD_HEADER_BYTES) as f64;
    println!("{name:<34}{rate:>14.0}{:>12.0}{:>12.2}", rate * bytes / 1e6, bare / seconds);
}

fn remove(root: &Path) {
    for name in ["bare", "journal"] {
        let path = root.join(name);
        let gone = if path.is_dir() {
            std::fs::remove_dir_all(&path)
        } else {
            std::fs::remove_file(&path)
        };
        // The first round finds nothing to remove.
        let _absent = gone;
    }
}

fn bare_write(root: &Path, batch: usize, records: usize) -> f64 {
    remove(root);
    let mut file = File::create(root.join("bare")).expect("create a file");
    let bytes = vec![0x5a; batch * (RECORD_BYTES + RECORD_HEADER_BYTES)];
    let start = Instant::now();
    for _ in 0..records / batch {
        file.write_all(&bytes).expect("write a file");
    }
    start.elapsed().as_secs_f64()
}

/// Seconds that one `fdatasync` of so many freshly written bytes takes.
fn bare_sync(root: &Path, bytes: usize) -> f64 {
    remove(root);
    let mut file = File::create(root.join("bare")).expect("create a file");
    file.write_all(&vec![0x5a; bytes]).expect("write a file");
    let start = Instant::now();
    file.sync_data().expect("sync a file");
    start.elapsed().as_secs_f64()
}

fn append(root: &Path, batch: usize, records: usize) -> f64 {
    remove(root);
    let (mut journal, _) =
        Journal::open(&root.join("journal"), Options::default()).expect("open a journal");
    let start = Instant::now();
    fill(&mut journal, batch, records);
    start.elapsed().as_secs_f64()
}

fn append_and_sync(root: &Path, batch: usize, records: usize) -> f64 {
    remove(root);
    let (mut journal, _) =
        Journal::open(&root.join("journal"), Options::default()).expect("open a journal");
    let start = Instant::now();
    fill(&mut journal, batch, records);
    journal.sync().expect("sync the journal");
    start.elapsed().as_secs_f64()
}

fn fill(journal: &mut Journal, batch: usize, records: usize) {
    let body = [0x5a; RECORD_BYTES - 8];
    for number in 0..records {
        journal.append(&[&number.to_le_bytes(), &body]).expect("append a record");
        if number % batch == batch - 1 {
            journal.commit().expect("commit");
        }
    }
}

/// Opens and reads what the case before has left.
fn replay(root: &Path, records: usize) -> f64 {
    let start = Instant::now();
    let (_journal, mut replay) =
        Journal::open(&root.join("journal"), Options::default()).expect("open a journal");
    let mut count = 0;
    while let Some(record) = replay.next_record().expect("read a record") {
        black_box(record);
        count += 1;
    }
    let seconds = start.elapsed().as_secs_f64();
    assert_eq!(count, records);
    seconds
}

fn copy(bytes: usize) -> f64 {
    let from = vec![1_u8; bytes];
    let mut to = vec![0_u8; bytes];
    // The first copy also waits for the kernel to hand out the pages, which is not what is asked.
    to.copy_from_slice(black_box(&from));
    black_box(&mut to);
    let start = Instant::now();
    to.copy_from_slice(black_box(&from));
    black_box(&to);
    start.elapsed().as_secs_f64()
}

fn checksum(bytes: usize) -> f64 {
    let from = vec![1_u8; bytes];
    let start = Instant::now();
    black_box(crc32fast::hash(black_box(&from)));
    start.elapsed().as_secs_f64()
}
