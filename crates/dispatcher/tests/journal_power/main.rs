//! Power failures. `kill -9` keeps what a process wrote, and a power failure only what it synced.
//! The test binary starts itself again under strace; from the system calls follows what a disk may
//! hold after a power failure at any of them (`disk.rs`), and the journal is opened there.
//!
//! `FALKON_POWER_SEED` and `FALKON_POWER_FAILURES` say which random failures are tried, and how many
//! at each call.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod disk;
mod trace;

use falkon_core::dispatch::{Page, PagePlace};
use falkon_core::result::{Finished, Outcome};
use falkon_core::task::{ExecutorId, InstanceId, TaskId, Time};
use falkon_dispatcher::journal::{Journal, OpenError, Options, Position, Replay, SnapshotOptions};
use falkon_dispatcher::pages::{PageFiles, load};
use falkon_trials::{skip, trial};
use std::collections::VecDeque;
use std::fs;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;

use disk::{Disk, Everything, Fates, Image, Nothing, Random, Removals};
use trace::{Moment, Trace, Watcher};

/// Where the started process says what it does; its disk is its working directory.
const MARKS: &str = "FALKON_POWER_TEST_MARKS";
const JOURNAL: &str = "site/falkon/journal";
/// Beside the journal, so that nothing that syncs the journal syncs them by chance.
const PAGES: &str = "site/falkon/results/pages";
const RESERVE: &str = "site/falkon/journal/ballast.snapshot";
const INSTANCE: InstanceId = InstanceId(3);
const SEGMENT_BYTES: u64 = 5000;
const SNAPSHOT: &[u8] = b"up to";
const PAGE: &[u8] = b"page";
/// Random power failures at each call that changes something, unless the environment says otherwise.
const FAILURES_AT_EACH: u64 = 3;

/// The record for `number`: the number, and a length and a filling that follow from it.
fn record(number: u64) -> Vec<u8> {
    let length = (number * 2_654_435_761 % 900) as usize;
    [number.to_le_bytes().to_vec(), vec![number as u8; length]].concat()
}

fn page(from: u64) -> Page {
    let result = Finished {
        first: TaskId(from),
        count: 1,
        outcome: Outcome::Exit(0),
        executor: Some(ExecutorId(2)),
        attempts: 1,
        queued: Time(1),
        dispatched: Time(2),
        started: Time(3),
        ended: Time(from),
        detail: None,
    };
    Page { results: vec![result], executors: vec![(ExecutorId(2), "node:2".to_owned())] }
}

/// What a journal holds: records up to a number, and pages that its snapshot refers to.
#[derive(Debug, Default)]
struct Held {
    next: u64,
    pages: Vec<(u64, PagePlace)>,
}

fn read(replay: &mut Replay) -> Result<Held, String> {
    let mut held = Held::default();
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
    while let Some(found) = replay.next_record().map_err(|error| error.to_string())? {
        if let Some(up_to) = found.strip_prefix(SNAPSHOT) {
            if held.next != 0 {
                return Err("a snapshot comes first".to_owned());
            }
            held.next = number(up_to);
        } else if let Some(place) = found.strip_prefix(PAGE) {
            let parts: Vec<u64> = place.chunks_exact(8).map(number).collect();
            let place = PagePlace { file: parts[1], offset: parts[2], bytes: parts[3] };
            held.pages.push((parts[0], place));
        } else if *found == record(held.next) {
            held.next += 1;
        } else {
            return Err(format!("record {} is another", held.next));
        }
    }
    Ok(held)
}

// --- The process that loses its power ------------------------------------------------------

/// The started process: a journal as a dispatcher keeps it.
struct Owner {
    journal: Journal,
    files: PageFiles,
    marks: fs::File,
    held: Held,
    /// Committed, and not known to be synced.
    unsynced: VecDeque<(Position, u64)>,
}

impl Owner {
    fn say(&mut self, key: &str, number: u64) {
        self.marks.write_all(format!("{key} {number}").as_bytes()).unwrap();
    }

    fn commit(&mut self, count: u64) {
        self.say("append", self.held.next + count);
        for _ in 0..count {
            self.journal.append(&[&record(self.held.next)]).unwrap();
            self.held.next += 1;
        }
        let position = self.journal.commit().unwrap();
        self.unsynced.push_back((position, self.held.next));
    }

    /// Acknowledges what is on stable storage.
    fn acknowledge(&mut self) {
        let synced = self.journal.synced();
        while let Some((_, next)) = self.unsynced.front().copied().filter(|(end, _)| *end <= synced)
        {
            self.unsynced.pop_front();
            self.say("acknowledged", next);
        }
    }

    fn sync(&mut self) {
        self.journal.sync().unwrap();
        self.acknowledge();
    }

    /// A snapshot as a dispatcher writes it: the pages that it refers to are synced before it
    /// counts, and pages are forgotten once none refers to them.
    fn snapshot(&mut self, round: u64) {
        let reserve = Path::new(RESERVE);
        let in_reserve = round % 4 == 2;
        if in_reserve {
            fs::write(reserve, vec![0xaa; 3000]).unwrap();
        }
        let from = self.held.next;
        self.held.pages.push((from, self.files.store(INSTANCE, from, &page(from)).unwrap()));
        let forgotten = (self.held.pages.len() > 2).then(|| self.held.pages.remove(0));
        let reserve = in_reserve.then_some(reserve);
        let options = SnapshotOptions { reserve, ..SnapshotOptions::default() };
        let mut snapshot = self.journal.begin_snapshot_with(options).unwrap();
        snapshot.append(&[SNAPSHOT, &self.held.next.to_le_bytes()]).unwrap();
        for (from, place) in &self.held.pages {
            let numbers = [*from, place.file, place.offset, place.bytes].map(u64::to_le_bytes);
            snapshot.append(&[PAGE, &numbers.concat()]).unwrap();
        }
        self.commit(2);
        self.files.written().sync().unwrap();
        if in_reserve {
            snapshot.sync().unwrap();
        }
        snapshot.finish().unwrap();
        // What went into the log before the snapshot began is in a segment that is closed.
        self.acknowledge();
        forgotten.into_iter().for_each(|(_, place)| self.files.forget(&[place]));
    }
}

/// Works on the journal of its working directory until it dies: by a signal at some sync, or in the
/// end with records that were committed and never synced.
#[trial]
fn child_loses_its_power() {
    let Some(marks) = std::env::var_os(MARKS) else { return };
    let marks = fs::File::options().append(true).open(marks).unwrap();
    let no_more_syncs = Arc::new(AtomicBool::new(false));
    let stop = no_more_syncs.clone();
    let (holds, held_up) = channel();
    let hold = move |_| {
        while stop.load(Ordering::SeqCst) {
            holds.send(()).unwrap();
            std::thread::park();
        }
    };
    let options = Options {
        segment_bytes_max: SEGMENT_BYTES,
        on_sync: Some(Box::new(hold)),
        ..Options::default()
    };
    let (journal, mut replay) = Journal::open(Path::new(JOURNAL), options).unwrap();
    let held = read(&mut replay).unwrap();
    let mut files = PageFiles::open(Path::new(PAGES)).unwrap();
    files.keep(held.pages.iter().map(|(_, place)| *place)).unwrap();
    let mut owner = Owner { journal, files, marks, held, unsynced: VecDeque::new() };
    // What replay hands out is on stable storage.
    owner.say("acknowledged", owner.held.next);
    for round in 0..12 {
        owner.commit(round * 7 % 5 + 1);
        owner.acknowledge();
        match round % 4 {
            0 => owner.sync(),
            2 => owner.snapshot(round / 2),
            _ => {}
        }
    }
    no_more_syncs.store(true, Ordering::SeqCst);
    owner.commit(1);
    // No sync happens while the listener runs.
    held_up.recv().unwrap();
    owner.commit(2);
    // Nothing is dropped: that would sync.
    // SAFETY: the call takes a number and does not return; nothing relies on a destructor.
    unsafe { libc::_exit(0) }
}

// --- The power failures --------------------------------------------------------------------

/// What was said of the journal so far, and what is tried.
struct Failures {
    acknowledged: u64,
    appended: u64,
    random: Random,
    seed: u64,
    /// Random failures at each change.
    at_each: u64,
    tried: u64,
    /// What was tried last of what was synced alone.
    strict: Option<(u64, u64)>,
    /// The process of this run has opened the journal: whatever claims it names its owner.
    opened: bool,
    images: PathBuf,
    boot: String,
}

impl Watcher for Failures {
    fn see(&mut self, disk: &Disk, moment: Moment, call: &str, written: &[u8]) {
        let said = String::from_utf8_lossy(written).into_owned();
        if let Some((key, number)) = said.split_once(' ')
            && let Ok(number) = number.parse()
        {
            match key {
                "append" => self.appended = self.appended.max(number),
                "acknowledged" => {
                    self.opened = true;
                    assert!(number >= self.acknowledged, "{number} of {}", self.acknowledged);
                    self.acknowledged = number;
                }
                _ => {}
            }
        }
        if self.strict != Some((disk.durable_changes, self.acknowledged)) {
            self.strict = Some((disk.durable_changes, self.acknowledged));
            self.fail(disk, &mut Nothing, call, "only what was synced");
        }
        if moment == Moment::After && call.starts_with("unlink") {
            self.fail(disk, &mut Removals, call, "what was synced and removed");
        }
        for _ in 0..if moment == Moment::After { self.at_each } else { 0 } {
            let seed = self.random.below(u64::MAX);
            self.fail(disk, &mut Random::new(seed), call, "a part of the rest too");
        }
    }
}

impl Failures {
    fn fail(&mut self, disk: &Disk, fates: &mut dyn Fates, call: &str, what: &str) {
        self.tried += 1;
        let image = disk.image(fates);
        let at = self.images.join(format!("{:06}", self.tried));
        self.put(&image, &at);
        let outcome = self.recovered(&at);
        assert!(
            outcome.is_ok(),
            "{}: after a power failure at {} with {what} on disk (FALKON_POWER_SEED={}): {} was \
             acknowledged; {image:?}",
            outcome.unwrap_err(),
            readable(call),
            self.seed,
            self.acknowledged,
            image = image
                .iter()
                .map(|(path, bytes)| (path, bytes.as_ref().map_or(0, Vec::len)))
                .collect::<Vec<_>>(),
        );
        fs::remove_dir_all(&at).unwrap();
    }

    /// Makes the files of a machine that was started again since.
    fn put(&self, image: &Image, at: &Path) {
        for (path, contents) in image {
            let path = at.join(path);
            match contents {
                None => fs::create_dir(&path).unwrap(),
                Some(bytes)
                    if path.ends_with("journal.lock") || path.ends_with("journal.claim") =>
                {
                    let text = String::from_utf8_lossy(bytes);
                    fs::write(&path, text.replace(&self.boot, &"0".repeat(self.boot.len())))
                        .unwrap();
                }
                Some(bytes) => fs::write(&path, bytes).unwrap(),
            }
        }
    }

    fn recovered(&self, at: &Path) -> Result<(), String> {
        let (_journal, mut replay) = match Journal::open(&at.join(JOURNAL), Options::default()) {
            Ok(opened) => opened,
            Err(OpenError::Claimed { claimed, .. }) if claimed.holder.is_none() && !self.opened => {
                return Ok(());
            }
            Err(error) => return Err(error.to_string()),
        };
        let held = read(&mut replay)?;
        if held.next < self.acknowledged || held.next > self.appended {
            return Err(format!("{} records came back", held.next));
        }
        for (from, place) in held.pages {
            let found = load(&at.join(PAGES), INSTANCE, from, place);
            if found.as_ref().ok() != Some(&page(from)) {
                return Err(format!("the page of {from} is {found:?}"));
            }
        }
        Ok(())
    }
}

/// A call with its paths, and without what it writes.
fn readable(call: &str) -> String {
    let mut text = String::new();
    for (index, part) in call.split("\\x").enumerate() {
        match part.get(..2).and_then(|two| u8::from_str_radix(two, 16).ok()).filter(|_| index > 0) {
            Some(byte) => {
                text.push(if byte.is_ascii_graphic() { byte as char } else { '.' });
                text.push_str(&part[2..]);
            }
            None => text.push_str(part),
        }
    }
    text.truncate(text.char_indices().nth(300).map_or(text.len(), |(at, _)| at));
    text
}

fn number_of(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).map_or(otherwise, |text| text.parse().expect("a number"))
}

/// Where files cost least: nothing here depends on what their file system syncs.
fn room() -> tempfile::TempDir {
    let shared = Path::new("/dev/shm");
    match tempfile::tempdir_in(shared) {
        Ok(room) => room,
        Err(_) => tempfile::tempdir().unwrap(),
    }
}

fn strace(out: &Path, injected: &[String]) -> Command {
    let mut strace = Command::new("strace");
    strace.args(["-f", "-y", "-xx", "-s", "1000000", "-e", "trace=%file,%desc", "-o"]).arg(out);
    injected.iter().for_each(|one| _ = strace.args(["-e", &format!("inject={one}")]));
    strace.arg("--");
    strace
}

/// One process on the disk, from its start to its death.
fn run(room: &Path, injected: &[String], disk: &mut Disk, failures: &mut Failures) {
    let (root, marks, out) = (room.join("disk"), room.join("marks"), room.join("trace"));
    fs::write(&marks, "").unwrap();
    let output = strace(&out, injected)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "child_loses_its_power", "--nocapture", "--test-threads=1"])
        .env(MARKS, &marks)
        .current_dir(&root)
        .output()
        .unwrap();
    // A signal ends strace with its process.
    let status = output.status;
    let said = [output.stdout, output.stderr]
        .map(|text| String::from_utf8_lossy(&text).into_owned())
        .concat();
    assert!(status.success() || status.signal().is_some(), "{said}");
    let lines = fs::read_to_string(&out).unwrap();
    let mut trace = Trace::new(&root);
    for line in lines.lines() {
        trace.take(line, disk, failures);
    }
    assert_eq!(on_disk(&root), disk.image(&mut Everything), "the model has it otherwise");
}

fn on_disk(root: &Path) -> Image {
    let mut found = Image::from([(String::new(), None)]);
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            let contents = (!path.is_dir()).then(|| fs::read(&path).unwrap());
            if contents.is_none() {
                folders.push(path);
            }
            found.insert(name, contents);
        }
    }
    found
}

/// Lets processes follow each other on one disk, which dies with the power at all of their calls;
/// `injected` says what strace does to each.
fn lose_power(injected: &[Vec<String>]) {
    let room = room();
    let traced = strace(&room.path().join("trace"), &[]).arg("true").output();
    match traced {
        Ok(output) if output.status.success() => {}
        Ok(output) => skip(format!(
            "strace may not trace here: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        )),
        Err(error) => skip(format!("strace cannot be started: {error}")),
    }
    let (root, images) = (room.path().join("disk"), room.path().join("images"));
    fs::create_dir(&root).unwrap();
    fs::create_dir(&images).unwrap();
    let seed = number_of("FALKON_POWER_SEED", 1);
    let mut disk = Disk::new();
    let mut failures = Failures {
        acknowledged: 0,
        appended: 0,
        random: Random::new(seed),
        seed,
        at_each: number_of("FALKON_POWER_FAILURES", FAILURES_AT_EACH),
        tried: 0,
        strict: None,
        opened: false,
        images,
        boot: fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap().trim().to_owned(),
    };
    for injected in injected {
        failures.opened = false;
        run(room.path(), injected, &mut disk, &mut failures);
    }
    assert!(failures.acknowledged > 100, "{}", failures.acknowledged);
    println!(
        "{} records were acknowledged, {} power failures tried",
        failures.acknowledged, failures.tried
    );
}

#[trial]
fn nothing_synced_is_lost_by_power_failures() {
    // Each process dies one sync later than the one before, and the last ones by themselves.
    let slow = "fdatasync:delay_enter=3000".to_owned();
    let killed = (1..=20).map(|nth| vec![slow.clone(), format!("fsync:signal=SIGKILL:when={nth}")]);
    lose_power(&killed.chain([vec![slow.clone()], vec![slow.clone()]]).collect::<Vec<_>>());
}

#[trial]
fn nor_where_the_file_system_has_no_locks() {
    let locks = "flock:error=ENOLCK".to_owned();
    lose_power(&[vec![locks.clone()], vec![locks.clone()], vec![locks]]);
}

fn main() -> std::process::ExitCode {
    falkon_trials::main()
}
