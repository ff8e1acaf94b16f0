//! The journal against a model, and against every way of damaging a small one.
//!
//! This file is long because all of its tests share one set of ways to write, damage and read a
//! journal.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use falkon_dispatcher::journal::{
    AppendError, BUFFER_BYTES_MAX, FORMAT_VERSION, Flaw, Journal, OpenError, Options,
    RECORD_BYTES_MAX, ReplayError, Skipped, Snapshot, SnapshotError, SnapshotOptions, Torn, look,
};
use proptest::prelude::*;
use proptest::sample::Index;
use tempfile::TempDir;

const FILE_HEADER_BYTES: u64 = 40;
const RECORD_HEADER_BYTES: usize = 12;

/// A directory in memory if the machine has one: these tests open thousands of journals, and what
/// a disk makes of a sync is not their subject.
fn temp() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

fn segments_of(bytes: u64) -> Options {
    Options { segment_bytes_max: bytes, ..Options::default() }
}

fn salvaging() -> Options {
    Options { salvage: true, ..Options::default() }
}

#[derive(Debug)]
enum Refusal {
    Open(OpenError),
    Replay(ReplayError),
}

#[derive(Debug)]
struct Contents {
    records: Vec<Vec<u8>>,
    torn: Option<Torn>,
    skipped: Skipped,
}

fn open(dir: &Path, options: Options) -> Result<(Journal, Contents), Refusal> {
    let (journal, mut replay) = Journal::open(dir, options).map_err(Refusal::Open)?;
    let mut records = Vec::new();
    while let Some(record) = replay.next_record().map_err(Refusal::Replay)? {
        records.push(record.to_vec());
    }
    let (torn, skipped) = (replay.torn().cloned(), replay.skipped().clone());
    Ok((journal, Contents { records, torn, skipped }))
}

fn read(dir: &Path) -> Result<Contents, Refusal> {
    open(dir, Options::default()).map(|(_, contents)| contents)
}

/// Looks through a journal that may be in use.
fn seen(dir: &Path) -> Result<Vec<Vec<u8>>, ReplayError> {
    let mut records = Vec::new();
    look(dir, false, |record| {
        records.push(record.to_vec());
        Ok::<(), ReplayError>(())
    })?;
    Ok(records)
}

fn commit_each(journal: &mut Journal, records: &[Vec<u8>]) {
    for record in records {
        journal.append(&[record]).unwrap();
        journal.commit().unwrap();
    }
}

/// One commit; the journal never puts a note of its own before or between its records.
fn commit_together(journal: &mut Journal, records: &[Vec<u8>]) {
    records.iter().for_each(|record| journal.append(&[record]).unwrap());
    journal.commit().unwrap();
}

fn numbered(count: usize, length: usize) -> Vec<Vec<u8>> {
    (0..count).map(|number| vec![number as u8 + 1; length]).collect()
}

fn copy_dir(from: &Path) -> TempDir {
    let to = temp();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.path().join(entry.file_name())).unwrap();
    }
    to
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.file_name().unwrap() != "journal.lock")
        .collect();
    files.sort();
    files
}

fn names(dir: &Path) -> Vec<String> {
    let name = |path: PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
    files(dir).into_iter().map(name).collect()
}

fn last_segment(dir: &Path) -> PathBuf {
    files(dir).into_iter().rfind(|path| path.extension().unwrap() == "log").unwrap()
}

fn flip(path: &Path, byte: u64, bit: u32) {
    let mut bytes = fs::read(path).unwrap();
    bytes[byte as usize] ^= 1 << bit;
    fs::write(path, bytes).unwrap();
}

// --- Against a model -----------------------------------------------------------------------

#[derive(Debug, Clone)]
enum Op {
    Append(Vec<u8>),
    Commit,
    SnapshotBegin,
    SnapshotAppend(Vec<u8>),
    SnapshotFinish,
    SnapshotDrop,
    Reopen,
    /// The process dies; of the last commit's bytes only some have reached the file.
    Crash(Index),
}

fn op() -> impl Strategy<Value = Op> {
    let body = || prop::collection::vec(any::<u8>(), 0..60);
    prop_oneof![
        8 => body().prop_map(Op::Append),
        4 => Just(Op::Commit),
        1 => Just(Op::SnapshotBegin),
        2 => body().prop_map(Op::SnapshotAppend),
        1 => Just(Op::SnapshotFinish),
        1 => Just(Op::SnapshotDrop),
        1 => Just(Op::Reopen),
        2 => any::<Index>().prop_map(Op::Crash),
    ]
}

/// What the journal must hold.
#[derive(Debug, Default)]
struct Model {
    committed: Vec<Vec<u8>>,
    /// How many of them the last commit wrote, if nothing else has happened since.
    last: usize,
    pending: Vec<Vec<u8>>,
    snapshot: Vec<Vec<u8>>,
    /// How many committed records the running snapshot replaces.
    replaces: usize,
}

struct Subject {
    dir: TempDir,
    journal: Option<Journal>,
    snapshot: Option<Snapshot>,
    segment_bytes: u64,
    model: Model,
    /// The file that the last commit wrote, and from where to where.
    last_write: Option<(PathBuf, u64, u64)>,
}

impl Subject {
    fn journal(&mut self) -> &mut Journal {
        self.journal.as_mut().unwrap()
    }

    fn commit(&mut self) {
        let before = last_segment(self.dir.path());
        let from = fs::metadata(&before).unwrap().len();
        self.journal().commit().unwrap();
        let after = last_segment(self.dir.path());
        let to = fs::metadata(&after).unwrap().len();
        let from = if before == after { from } else { 0 };
        self.model.last = self.model.pending.len();
        self.model.committed.append(&mut self.model.pending);
        self.last_write = Some((after, from, to));
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Append(body) => {
                let (left, right) = body.split_at(body.len() / 2);
                if body.len() % 2 == 0 {
                    self.journal().append(&[left, right]).unwrap();
                } else {
                    let encode = |buffer: &mut Vec<u8>| buffer.extend_from_slice(&body);
                    self.journal().append_with(encode).unwrap();
                }
                self.model.pending.push(body);
            }
            Op::Commit => self.commit(),
            Op::SnapshotBegin => match (self.journal().begin_snapshot(0), &self.snapshot) {
                (Err(SnapshotError::AlreadyRunning), Some(_)) => {}
                (Ok(snapshot), None) => {
                    self.snapshot = Some(snapshot);
                    self.model.committed.append(&mut self.model.pending);
                    self.model.replaces = self.model.committed.len();
                    self.last_write = None;
                }
                (outcome, running) => panic!("{outcome:?} while {running:?}"),
            },
            Op::SnapshotAppend(body) => {
                if let Some(snapshot) = &mut self.snapshot {
                    snapshot.append(&[&body]).unwrap();
                    self.model.snapshot.push(body);
                }
            }
            Op::SnapshotFinish => {
                if let Some(snapshot) = self.snapshot.take() {
                    let report = snapshot.finish().unwrap();
                    assert_eq!(report.records, self.model.snapshot.len() as u64);
                    assert_eq!(report.undeleted_files, 0);
                    let mut now = std::mem::take(&mut self.model.snapshot);
                    now.extend(self.model.committed.drain(self.model.replaces..));
                    self.model.committed = now;
                }
            }
            Op::SnapshotDrop => {
                self.snapshot = None;
                self.model.snapshot.clear();
            }
            Op::Reopen => self.reopen(None),
            Op::Crash(cut) => self.crash(cut),
        }
        // In use, it reads as it would if it were opened.
        assert_eq!(seen(self.dir.path()).unwrap(), self.model.committed);
    }

    fn crash(&mut self, cut: Index) {
        // The files as they are now, with an unfinished snapshot beside them.
        let dir = copy_dir(self.dir.path());
        let mut sure = self.model.committed.len();
        if let Some((path, from, to)) = self.last_write.take() {
            let at = from + cut.index((to - from + 1) as usize) as u64;
            let path = dir.path().join(path.file_name().unwrap());
            fs::File::options().write(true).open(path).unwrap().set_len(at).unwrap();
            if at < to {
                sure -= self.model.last;
            }
        }
        self.reopen(Some((dir, sure)));
    }

    /// Opens the journal again: the same files, or those that a crash left, which must hold the
    /// first `sure` committed records.
    fn reopen(&mut self, crashed: Option<(TempDir, usize)>) {
        self.journal = None;
        self.snapshot = None;
        let mut sure = self.model.committed.len();
        if let Some((dir, left)) = crashed {
            (self.dir, sure) = (dir, left);
        }
        let (journal, found) = open(self.dir.path(), segments_of(self.segment_bytes)).unwrap();
        assert!(found.records.len() >= sure, "{found:?} but {sure} of {:?}", self.model);
        assert!(self.model.committed.starts_with(&found.records), "{found:?} {:?}", self.model);
        assert_eq!(found.skipped, Skipped::default());
        let on_disk: u64 =
            files(self.dir.path()).iter().map(|path| fs::metadata(path).unwrap().len()).sum();
        assert_eq!(journal.disk_use().total_bytes, on_disk);
        self.journal = Some(journal);
        self.model.committed = found.records;
        self.model.pending.clear();
        self.model.snapshot.clear();
        self.last_write = None;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn replays_what_was_committed(
        segment_bytes in 60_u64..600,
        ops in prop::collection::vec(op(), 1..60),
    ) {
        let dir = temp();
        let (journal, found) = open(dir.path(), segments_of(segment_bytes)).unwrap();
        prop_assert!(found.records.is_empty());
        let mut subject = Subject {
            dir,
            journal: Some(journal),
            snapshot: None,
            segment_bytes,
            model: Model::default(),
            last_write: None,
        };
        for op in ops {
            // Whatever follows a snapshot's end finds other files than the last commit did.
            let keeps = matches!(op, Op::Append(_) | Op::SnapshotAppend(_) | Op::Crash(_));
            if !keeps {
                subject.last_write = None;
            }
            subject.apply(op);
        }
        subject.reopen(None);
    }

    #[test]
    fn garbage_in_a_segment_is_an_error_or_a_torn_tail(
        kept in 0_usize..200,
        garbage in prop::collection::vec(any::<u8>(), 0..300),
        salvage: bool,
    ) {
        let dir = temp();
        let records = numbered(4, 30);
        commit_each(&mut open(dir.path(), Options::default()).unwrap().0, &records);
        let path = last_segment(dir.path());
        let mut bytes = fs::read(&path).unwrap();
        bytes.truncate(kept);
        bytes.extend(&garbage);
        fs::write(&path, bytes).unwrap();
        if let Ok((_, found)) = open(dir.path(), Options { salvage, ..Options::default() }) {
            prop_assert!(records.starts_with(&found.records));
        }
    }
}

// --- Every damage to a small journal -------------------------------------------------------

#[test]
fn every_truncation_leaves_the_records_before_it() {
    let dir = temp();
    let records: Vec<Vec<u8>> = (0..11).map(|n| vec![n as u8; n * 3]).collect();
    let (mut journal, _) = open(dir.path(), segments_of(260)).unwrap();
    // The second commit begins another segment, and the third leaves a note of the sync in it.
    commit_together(&mut journal, &records[..7]);
    commit_together(&mut journal, &records[7..9]);
    journal.sync().unwrap();
    commit_together(&mut journal, &records[9..]);
    drop(journal);
    let path = last_segment(dir.path());
    let name = path.file_name().unwrap();
    let whole = fs::read(&path).unwrap();
    let earlier = {
        let copy = copy_dir(dir.path());
        fs::write(copy.path().join(name), b"").unwrap();
        read(copy.path()).unwrap().records.len()
    };
    assert_eq!(earlier, 7);
    let mut last_found = 0;
    for length in 0..=whole.len() {
        let copy = copy_dir(dir.path());
        fs::write(copy.path().join(name), &whole[..length]).unwrap();
        let (mut journal, found) = open(copy.path(), segments_of(260)).unwrap();
        assert!(records.starts_with(&found.records), "{length}");
        let torn = found.torn.map_or(0, |torn| torn.bytes);
        assert!(found.records.len() >= earlier.max(last_found), "{length}");
        assert!(torn < 12 + 36, "{length}: only the record at the cut is torn, not {torn} bytes");
        last_found = found.records.len();
        journal.append(&[b"after"]).unwrap();
        journal.commit().unwrap();
        drop(journal);
        let again = read(copy.path()).unwrap();
        assert_eq!(again.records.len(), last_found + 1);
        assert_eq!(again.torn, None);
    }
    assert_eq!(last_found, records.len());
}

#[test]
fn every_flipped_bit_is_found() {
    let dir = temp();
    let records = numbered(9, 14);
    let (mut journal, _) = open(dir.path(), segments_of(150)).unwrap();
    commit_together(&mut journal, &records[..4]);
    let mut snapshot = journal.begin_snapshot(0).unwrap();
    records[..4].iter().for_each(|record| snapshot.append(&[record]).unwrap());
    snapshot.finish().unwrap();
    commit_together(&mut journal, &records[4..7]);
    commit_together(&mut journal, &records[7..]);
    drop(journal);
    assert_eq!(files(dir.path()).len(), 3, "a snapshot and two segments");
    assert_eq!(read(dir.path()).unwrap().records, records);
    let last = last_segment(dir.path());
    let last_record = fs::metadata(&last).unwrap().len() - (RECORD_HEADER_BYTES + 14) as u64;
    for path in files(dir.path()) {
        for byte in 0..fs::metadata(&path).unwrap().len() {
            for bit in 0..8 {
                let copy = copy_dir(dir.path());
                flip(&copy.path().join(path.file_name().unwrap()), byte, bit);
                match read(copy.path()) {
                    Err(_) => {}
                    Ok(found) => {
                        let at = format!("{} byte {byte} bit {bit}: {found:?}", path.display());
                        assert!(path == last && byte >= last_record, "undetected: {at}");
                        assert_eq!(found.records, records[..8], "{at}");
                        assert_eq!(found.torn.unwrap().offset, last_record, "{at}");
                    }
                }
                // Salvage loses at most the file whose header it is, and invents nothing.
                let (_, found) = match open(copy.path(), salvaging()) {
                    Ok(found) => found,
                    Err(Refusal::Open(OpenError::Version { .. })) => continue,
                    Err(Refusal::Replay(ReplayError::Version { .. })) => continue,
                    Err(refusal) => panic!("{refusal:?}"),
                };
                let mut all = records.iter();
                assert!(found.records.iter().all(|found| all.any(|record| record == found)));
                let floor = if byte < FILE_HEADER_BYTES { 5 } else { 8 };
                assert!(found.records.len() >= floor, "{} {byte} {bit}", path.display());
            }
        }
    }
}

#[test]
fn damage_in_the_middle_names_file_and_place_and_can_be_salvaged() {
    let dir = temp();
    let records = numbered(9, 50);
    let (mut journal, _) = open(dir.path(), segments_of(300)).unwrap();
    commit_each(&mut journal, &records);
    drop(journal);
    let first = dir.path().join("00000001.log");
    let second = FILE_HEADER_BYTES + 62;
    flip(&first, second + 20, 3);
    let Err(Refusal::Replay(ReplayError::Corrupt(corruption))) = read(dir.path()) else {
        panic!("read");
    };
    assert_eq!(corruption.path, first);
    assert_eq!((corruption.offset, corruption.flaw), (second, Flaw::Body));
    assert_eq!(corruption.next_good, Some(second + 62));
    let text = corruption.to_string();
    assert!(text.contains("00000001.log is damaged at byte 102"), "{text}");
    assert!(text.contains("salvage to lose 62 bytes"), "{text}");

    let (mut journal, found) = open(dir.path(), salvaging()).unwrap();
    let mut left = records.clone();
    left.remove(1);
    assert_eq!(found.records, left);
    assert_eq!((found.skipped.places, found.skipped.bytes), (1, 62));
    assert_eq!(found.skipped.listed[0].offset, second);
    // A snapshot replaces the damaged file, and salvage is needed no more.
    let mut snapshot = journal.begin_snapshot(0).unwrap();
    left.iter().for_each(|record| snapshot.append(&[record]).unwrap());
    snapshot.finish().unwrap();
    drop(journal);
    assert_eq!(read(dir.path()).unwrap().records, left);
}

#[test]
fn damage_before_good_records_of_the_last_segment_is_no_torn_tail() {
    let dir = temp();
    let records = numbered(3, 50);
    commit_each(&mut open(dir.path(), Options::default()).unwrap().0, &records);
    flip(&last_segment(dir.path()), FILE_HEADER_BYTES + 1, 0);
    let Err(Refusal::Open(OpenError::Corrupt(corruption))) = read(dir.path()) else {
        panic!("read");
    };
    assert_eq!((corruption.offset, corruption.flaw), (FILE_HEADER_BYTES, Flaw::Header));
    let (_, found) = open(dir.path(), salvaging()).unwrap();
    assert_eq!(found.records, records[1..]);
}

#[test]
fn a_missing_segment_is_named() {
    let dir = temp();
    let records = numbered(9, 50);
    let (mut journal, _) = open(dir.path(), segments_of(200)).unwrap();
    records.chunks(2).for_each(|two| commit_together(&mut journal, two));
    drop(journal);
    assert_eq!(files(dir.path()).len(), 5);
    fs::remove_file(dir.path().join("00000002.log")).unwrap();
    let Err(Refusal::Open(error)) = read(dir.path()) else { panic!("read") };
    assert!(error.to_string().contains("00000002.log is missing"), "{error}");
    let (_, found) = open(dir.path(), salvaging()).unwrap();
    assert_eq!(found.records, [&records[..2], &records[4..]].concat());
    assert_eq!((found.skipped.places, found.skipped.bytes), (1, 0));
}

#[test]
fn stray_files_neither_stop_nor_swell_a_journal() {
    let dir = temp();
    let records = numbered(2, 50);
    commit_each(&mut open(dir.path(), Options::default()).unwrap().0, &records);
    for name in ["18446744073709551615.log", "00000000.log", "0.snapshot", "00000001.log~", "x"] {
        fs::write(dir.path().join(name), b"not ours").unwrap();
    }
    assert_eq!(read(dir.path()).unwrap().records, records);
    // This one is named like a segment, after a gap that no loop may walk through.
    fs::write(dir.path().join("999999999999.log"), b"").unwrap();
    let refusal = read(dir.path());
    assert!(matches!(refusal, Err(Refusal::Open(OpenError::SegmentMissing { .. }))));
    let (_, found) = open(dir.path(), salvaging()).unwrap();
    assert_eq!((found.records, found.skipped.places), (records, 1));
}

#[test]
fn salvage_keeps_what_a_damaged_snapshot_was_to_replace() {
    let dir = temp();
    let (mut journal, _) = open(dir.path(), Options::default()).unwrap();
    commit_each(&mut journal, &numbered(3, 50));
    let before = copy_dir(dir.path());
    journal.begin_snapshot(0).unwrap().finish().unwrap();
    commit_each(&mut journal, &[b"later".to_vec()]);
    drop(journal);
    fs::copy(before.path().join("00000001.log"), dir.path().join("00000001.log")).unwrap();
    flip(&dir.path().join("00000002.snapshot"), 20, 0);
    assert!(matches!(read(dir.path()), Err(Refusal::Open(OpenError::Corrupt(_)))));
    let (_, found) = open(dir.path(), salvaging()).unwrap();
    assert_eq!((found.records, found.skipped.places), (vec![b"later".to_vec()], 1));
    assert!(dir.path().join("00000001.log").exists());
}

#[test]
fn another_format_version_is_refused_by_its_number() {
    let dir = temp();
    commit_each(&mut open(dir.path(), Options::default()).unwrap().0, &numbered(2, 5));
    let path = last_segment(dir.path());
    let mut bytes = fs::read(&path).unwrap();
    for version in [FORMAT_VERSION - 1, FORMAT_VERSION + 5] {
        bytes[8..12].copy_from_slice(&version.to_le_bytes());
        fs::write(&path, &bytes).unwrap();
        let said = format!("format version {version}, this build reads version");
        for options in [Options::default(), salvaging()] {
            let Err(Refusal::Open(error)) = open(dir.path(), options) else { panic!("opened") };
            assert!(error.to_string().contains(&said), "{error}");
        }
        assert!(seen(dir.path()).unwrap_err().to_string().contains(&said));
        assert_eq!(fs::read(&path).unwrap(), bytes, "and is left alone");
    }
}

#[test]
fn a_segment_under_another_name_is_refused() {
    let dir = temp();
    commit_each(&mut open(dir.path(), segments_of(100)).unwrap().0, &numbered(3, 40));
    fs::copy(dir.path().join("00000001.log"), dir.path().join("00000002.log")).unwrap();
    let Err(Refusal::Replay(ReplayError::Corrupt(corruption))) = read(dir.path()) else {
        panic!("read");
    };
    assert_eq!(corruption.flaw, Flaw::FileHeader);
}

#[test]
fn a_stale_block_never_passes_for_a_record() {
    let (dir, other) = (temp(), temp());
    let records = numbered(3, 50);
    for journal in [&dir, &other] {
        let (mut journal, _) = open(journal.path(), Options::default()).unwrap();
        commit_together(&mut journal, &records);
    }
    let path = last_segment(dir.path());
    let whole = fs::read(&path).unwrap();
    let record =
        |n: usize| FILE_HEADER_BYTES as usize + n * 62..FILE_HEADER_BYTES as usize + (n + 1) * 62;
    // A whole record of this file at another place, and one of another journal at the same place.
    let foreign = fs::read(last_segment(other.path())).unwrap();
    for stale in [&whole[record(1)], &foreign[record(2)]] {
        let mut bytes = whole.clone();
        bytes[record(2)].copy_from_slice(stale);
        fs::write(&path, bytes).unwrap();
        let copy = copy_dir(dir.path());
        let found = read(copy.path()).unwrap();
        assert_eq!(found.records, records[..2]);
        assert_eq!(found.torn.unwrap().bytes, 62);
    }
}

// --- After a crash of the machine ----------------------------------------------------------

/// Zeroes a record of an otherwise whole segment, as a crash of the machine may do to what was not
/// synced, and makes the journal look as if an earlier boot of the machine had written it.
fn lose_record(dir: &Path, offset: u64, length: usize) {
    let path = last_segment(dir);
    let mut bytes = fs::read(&path).unwrap();
    bytes[offset as usize..][..length].fill(0);
    fs::write(&path, bytes).unwrap();
    let lock = dir.join("journal.lock");
    let text = fs::read_to_string(&lock).unwrap();
    let boot = text.lines().find_map(|line| line.strip_prefix("boot ")).unwrap();
    let other: String = boot.chars().map(|c| if c == '0' { '1' } else { '0' }).collect();
    fs::write(&lock, text.replace(boot, &other)).unwrap();
}

#[test]
fn after_a_machine_crash_a_hole_in_what_was_not_synced_is_a_torn_tail() {
    let dir = temp();
    let records = numbered(4, 50);
    let (mut journal, _) = open(dir.path(), Options::default()).unwrap();
    commit_together(&mut journal, &records);
    drop(journal);
    lose_record(dir.path(), FILE_HEADER_BYTES + 62, 62);
    let found = read(dir.path()).unwrap();
    assert_eq!(found.records, records[..1]);
    assert_eq!(found.torn.unwrap().bytes, 3 * 62);
    assert_eq!(read(dir.path()).unwrap().torn, None, "it is cut off once");
}

#[test]
fn after_a_machine_crash_a_hole_in_what_was_synced_is_an_error() {
    let dir = temp();
    let records = numbered(4, 50);
    let (mut journal, _) = open(dir.path(), Options::default()).unwrap();
    for record in &records {
        journal.append(&[record]).unwrap();
        journal.sync().unwrap();
    }
    drop(journal);
    lose_record(dir.path(), FILE_HEADER_BYTES + 62 + 10, 20);
    let refusal = read(dir.path());
    assert!(matches!(refusal, Err(Refusal::Open(OpenError::Corrupt(_)))), "{refusal:?}");
}

// --- Snapshots -----------------------------------------------------------------------------

#[test]
fn an_interrupted_snapshot_leaves_the_old_state_and_a_renamed_one_the_new() {
    let dir = temp();
    let records = numbered(6, 30);
    let (mut journal, _) = open(dir.path(), segments_of(100)).unwrap();
    commit_each(&mut journal, &records[..4]);
    let mut snapshot = journal.begin_snapshot(0).unwrap();
    snapshot.append(&[b"four in one"]).unwrap();
    commit_each(&mut journal, &records[4..]);
    let before = copy_dir(dir.path());
    snapshot.finish().unwrap();
    drop(journal);
    let after = [vec![b"four in one".to_vec()], records[4..].to_vec()].concat();
    assert_eq!(read(dir.path()).unwrap().records, after);

    let name = names(dir.path()).into_iter().find(|name| name.ends_with(".snapshot")).unwrap();
    let whole = fs::read(dir.path().join(&name)).unwrap();
    for length in 0..=whole.len() {
        let crashed = copy_dir(before.path());
        let part = crashed.path().join(format!("{name}.part"));
        fs::write(&part, &whole[..length]).unwrap();
        assert_eq!(read(crashed.path()).unwrap().records, records, "{length}");
        assert!(!part.exists());
    }
    // Renamed, and any of the files that it replaces still there.
    let replaced: Vec<_> =
        names(before.path()).into_iter().filter(|old| old[..8] < name[..8]).collect();
    assert!(replaced.len() > 1, "{replaced:?}");
    for gone in 0..=replaced.len() {
        let crashed = copy_dir(before.path());
        fs::copy(dir.path().join(&name), crashed.path().join(&name)).unwrap();
        for old in &replaced[..gone] {
            fs::remove_file(crashed.path().join(old)).unwrap();
        }
        assert_eq!(read(crashed.path()).unwrap().records, after, "{gone}");
        assert_eq!(names(crashed.path()), names(dir.path()));
    }
}

#[test]
fn a_finished_snapshot_that_lost_its_end_is_an_error() {
    let dir = temp();
    let (mut journal, _) = open(dir.path(), Options::default()).unwrap();
    commit_each(&mut journal, &numbered(3, 30));
    let mut snapshot = journal.begin_snapshot(0).unwrap();
    snapshot.append(&[&[1; 30]]).unwrap();
    snapshot.append(&[&[2; 30]]).unwrap();
    snapshot.finish().unwrap();
    drop(journal);
    let path = dir.path().join("00000002.snapshot");
    let whole = fs::read(&path).unwrap();
    for length in 0..whole.len() {
        fs::write(&path, &whole[..length]).unwrap();
        assert!(read(dir.path()).is_err(), "{length}");
    }
}

#[test]
fn a_reserve_keeps_its_blocks_until_a_snapshot_in_it_has_finished() {
    const RESERVE_BYTES: usize = 3 << 20;
    let dir = temp();
    let records = numbered(6, 30);
    let (mut journal, _) = open(dir.path(), segments_of(100)).unwrap();
    commit_each(&mut journal, &records[..4]);
    let reserve = dir.path().join("reserve");
    fs::write(&reserve, vec![0xA5; RESERVE_BYTES]).unwrap();
    let blocks = fs::metadata(&reserve).unwrap().blocks();
    let options = SnapshotOptions { reserve: Some(&reserve), ..SnapshotOptions::default() };
    let has_all = |text: &str| {
        let found = fs::metadata(&reserve).unwrap();
        assert_eq!((found.len(), found.blocks()), (RESERVE_BYTES as u64, blocks), "{text}");
    };
    for mebibytes in [0, 2, 5] {
        let mut given_up = journal.begin_snapshot_with(options).unwrap();
        for _ in 0..mebibytes {
            given_up.append(&[&[1; 1 << 20]]).unwrap();
        }
        given_up.sync().unwrap();
        // The process may end here.
        assert_eq!(read(copy_dir(dir.path()).path()).unwrap().records, records[..4]);
        drop(given_up);
        has_all("given up");
    }
    // A snapshot that goes into its blocks needs no room.
    let leaving_all = SnapshotOptions { leave_bytes: u64::MAX, ..options };
    let mut snapshot = journal.begin_snapshot_with(leaving_all).unwrap();
    snapshot.append(&[b"four in one"]).unwrap();
    snapshot.sync().unwrap();
    commit_each(&mut journal, &records[4..]);
    has_all("not finished");
    let report = snapshot.finish().unwrap();
    assert!(!reserve.exists());
    assert_eq!(journal.disk_use().snapshot_bytes, report.bytes);
    let name = names(dir.path()).into_iter().find(|name| name.ends_with(".snapshot")).unwrap();
    assert_eq!(fs::metadata(dir.path().join(name)).unwrap().len(), report.bytes);
    drop(journal);
    let after = [vec![b"four in one".to_vec()], records[4..].to_vec()].concat();
    assert_eq!(read(dir.path()).unwrap().records, after);
    // One that goes beyond them does.
    fs::write(&reserve, vec![0xA5; RESERVE_BYTES]).unwrap();
    let (mut journal, _) = open(dir.path(), segments_of(100)).unwrap();
    let mut snapshot = journal.begin_snapshot_with(leaving_all).unwrap();
    let added = (0..5).try_for_each(|_| snapshot.append(&[&[1; 1 << 20]]));
    assert!(matches!(added, Err(SnapshotError::NoRoom { .. })), "{added:?}");
    drop(snapshot);
    has_all("without room for more");
}

#[test]
fn a_snapshot_is_written_on_another_thread_while_the_journal_goes_on() {
    let dir = temp();
    let (mut journal, _) = open(dir.path(), segments_of(10_000)).unwrap();
    commit_each(&mut journal, &numbered(200, 100));
    assert!(journal.disk_use().total_bytes > 20_000);
    let snapshot = journal.begin_snapshot(0).unwrap();
    assert!(journal.disk_use().snapshot_running);
    let writing = std::thread::spawn(move || {
        let mut snapshot = snapshot;
        for _ in 0..10_000 {
            snapshot.append(&[&[9; 200]]).unwrap();
        }
        snapshot.finish().unwrap()
    });
    let later = numbered(250, 300);
    commit_each(&mut journal, &later);
    let report = writing.join().unwrap();
    assert_eq!(report.records, 10_000);
    assert!(report.replaced_bytes > 20_000);
    let disk_use = journal.disk_use();
    assert_eq!(disk_use.snapshot_bytes, report.bytes);
    assert!(!disk_use.snapshot_running);
    drop(journal);
    let found = read(dir.path()).unwrap().records;
    assert_eq!(found[..10_000], vec![vec![9; 200]; 10_000]);
    assert_eq!(found[10_000..], later);
}

#[test]
fn a_snapshot_of_nothing_begins_no_other_segment() {
    let dir = temp();
    let (mut journal, _) = open(dir.path(), Options::default()).unwrap();
    let before = last_segment(dir.path());
    journal.begin_snapshot(0).unwrap().finish().unwrap();
    assert_eq!(last_segment(dir.path()), before);
    commit_each(&mut journal, &numbered(1, 10));
    journal.begin_snapshot(0).unwrap().finish().unwrap();
    assert_ne!(last_segment(dir.path()), before);
}

// --- Limits, locks, sizes ------------------------------------------------------------------

#[test]
fn a_second_opener_is_told_who_has_the_journal() {
    let dir = temp();
    let (journal, _) = open(dir.path(), Options::default()).unwrap();
    let Err(Refusal::Open(error)) = open(dir.path(), Options::default()) else { panic!("shared") };
    let pid = std::process::id();
    assert!(matches!(error, OpenError::Locked { pid: Some(found), .. } if found == pid));
    assert!(error.to_string().contains(&format!("in use by process {pid}")), "{error}");
    drop(journal);
    read(dir.path()).unwrap();
}

#[test]
fn files_are_private_to_their_owner() {
    let parent = temp();
    let dir = parent.path().join("a/b");
    let (mut journal, _) = open(&dir, segments_of(100)).unwrap();
    commit_each(&mut journal, &numbered(3, 60));
    journal.begin_snapshot(0).unwrap().finish().unwrap();
    for path in files(&dir).into_iter().chain([dir.join("journal.lock")]) {
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", path.display());
    }
    assert_eq!(fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn the_longest_record_fits_and_a_longer_one_is_refused() {
    let dir = temp();
    let (mut journal, _) = open(dir.path(), segments_of(1000)).unwrap();
    let long = vec![7; RECORD_BYTES_MAX + 1];
    assert_eq!(journal.append(&[&long]), Err(AppendError::TooLong { bytes: long.len() }));
    let longest = &long[1..];
    while journal.waiting_bytes() + longest.len() <= BUFFER_BYTES_MAX {
        journal.append(&[longest]).unwrap();
    }
    let refused = journal.append(&[longest]);
    assert!(matches!(refused, Err(AppendError::BufferFull { .. })), "{refused:?}");
    let waiting_bytes = journal.waiting_bytes();
    let refused = journal.append_with(|buffer| buffer.extend_from_slice(longest));
    assert_eq!(refused, Err(AppendError::BufferFull { waiting_bytes }));
    let refused = journal.append_with(|buffer| buffer.extend_from_slice(&long));
    assert_eq!(refused, Err(AppendError::TooLong { bytes: long.len() }));
    assert_eq!(journal.waiting_bytes(), waiting_bytes, "what is refused leaves nothing behind");
    journal.commit().unwrap();
    journal.append(&[longest]).unwrap();
    journal.commit().unwrap();
    drop(journal);
    let (_, mut replay) = Journal::open(dir.path(), Options::default()).unwrap();
    for _ in 0..4 {
        assert!(replay.next_record().unwrap() == Some(longest));
    }
    assert!(replay.next_record().unwrap().is_none());
}

#[test]
fn what_is_allocated_ahead_is_no_part_of_files_and_is_given_back() {
    use std::os::unix::fs::MetadataExt;
    let dir = temp();
    let (mut journal, _) = open(dir.path(), segments_of(6 << 20)).unwrap();
    let body = vec![0x5a; 1 << 16];
    let mut bytes = 0;
    for number in 0..160 {
        journal.append(&[&body]).unwrap();
        journal.commit().unwrap();
        if number % 10 == 0 {
            journal.sync().unwrap();
        }
        bytes += body.len() as u64;
        let found: u64 = files(dir.path()).iter().map(|path| path.metadata().unwrap().len()).sum();
        assert!((bytes..bytes + bytes / 20 + 4096).contains(&found), "{found} bytes for {bytes}");
    }
    drop(journal);
    for path in files(dir.path()) {
        let metadata = path.metadata().unwrap();
        let taken = metadata.blocks() * 512;
        assert!(taken <= metadata.len() + (1 << 16), "{taken} bytes taken by {}", metadata.len());
    }
}

#[test]
fn a_million_records_are_replayed_in_order() {
    let dir = temp();
    let (mut journal, _) = open(dir.path(), segments_of(16 << 20)).unwrap();
    let body = [0x5a; 92];
    for number in 0..1_000_000_u64 {
        journal.append(&[&number.to_le_bytes(), &body]).unwrap();
        if number % 1000 == 999 {
            journal.commit().unwrap();
        }
    }
    drop(journal);
    let (_, mut replay) = Journal::open(dir.path(), Options::default()).unwrap();
    let mut next = 0_u64;
    while let Some(record) = replay.next_record().unwrap() {
        assert!(record[..8] == next.to_le_bytes() && record[8..] == body, "{next}");
        next += 1;
    }
    assert_eq!(next, 1_000_000);
}
