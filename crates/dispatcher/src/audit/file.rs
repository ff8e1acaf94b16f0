//! The file of the record, which a thread writes: a slow disk must hold up no task. Lines that
//! cannot be written for now wait, and those that find too many others waiting are counted.

use falkon_net::Log;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::Thread;
use std::time::Duration;

/// The file, beside the access files.
const FILE: &str = "audit.jsonl";
/// A file that is as large as this is set aside.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Files that were set aside and are kept.
const FILES_KEPT: u32 = 4;
/// Lines that wait to be written.
const WAITING_LINES_MAX: usize = 4096;
/// Pause before a line that could not be written is tried again.
const RETRY_MS: u64 = 1000;
/// How long a dispatcher that ends waits for its last lines.
const FLUSH_MS_MAX: u64 = 1000;

/// The thread that writes the file.
#[derive(Debug)]
pub(super) struct Writer {
    lines: SyncSender<Vec<u8>>,
    /// Ends when all lines were written.
    done: Receiver<()>,
    shared: Arc<Shared>,
    thread: Thread,
}

#[derive(Debug, Default)]
struct Shared {
    /// Lines that were left out and are not on record as such.
    left_out: AtomicU64,
    /// No more lines come.
    is_ending: AtomicBool,
}

impl Writer {
    /// Starts the thread for the file in `dir`.
    pub(super) fn start(dir: &Path, log: &Log) -> io::Result<Writer> {
        let (lines, waiting) = sync_channel(WAITING_LINES_MAX);
        let (end, done) = sync_channel(0);
        let shared = Arc::new(Shared::default());
        let (path, for_thread, to_log) = (dir.join(FILE), shared.clone(), log.clone());
        let thread = std::thread::Builder::new().name("falkon-audit".to_owned());
        let spawned = thread.spawn(move || {
            // Dropped when this thread ends.
            let _end: SyncSender<()> = end;
            write(&path, &waiting, &for_thread, &to_log);
        });
        Ok(Writer { lines, done, shared, thread: spawned?.thread().clone() })
    }

    /// Has a line written, which ends with a newline.
    pub(super) fn put(&self, line: Vec<u8>) {
        if self.lines.try_send(line).is_err() {
            self.leave_out();
        }
    }

    /// A line was left out.
    pub(super) fn leave_out(&self) {
        self.shared.left_out.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits a moment until everything is written.
    pub(super) fn end(self) {
        let Writer { lines, done, shared, thread } = self;
        shared.is_ending.store(true, Ordering::Release);
        drop(lines);
        thread.unpark();
        // It ends with an error in either case: nothing is ever sent.
        let _ = done.recv_timeout(Duration::from_millis(FLUSH_MS_MAX));
    }
}

/// Writes lines until no more come. Those that cannot be written are tried again until then.
fn write(path: &Path, lines: &Receiver<Vec<u8>>, shared: &Shared, log: &Log) {
    let mut record = Record { path: path.to_owned(), file: None };
    let mut lost = 0u64;
    while let Ok(line) = lines.recv() {
        lost += u64::from(!record.write(&line, shared, log));
        let left_out = shared.left_out.swap(0, Ordering::Relaxed);
        if left_out > 0 {
            let count = format!("{{\"left_out\":{left_out}}}\n").into_bytes();
            lost += if record.write(&count, shared, log) { 0 } else { left_out };
        }
    }
    if lost > 0 {
        log(&format!("{lost} lines of {} could not be written and are lost", path.display()));
    }
}

/// The file, while it is open, and its length.
struct Record {
    path: PathBuf,
    file: Option<(File, u64)>,
}

impl Record {
    /// Writes a line as soon as that is possible; false if no more time is left for that.
    fn write(&mut self, line: &[u8], shared: &Shared, log: &Log) -> bool {
        let mut has_failed = false;
        loop {
            let Err(error) = self.append(line) else {
                if has_failed {
                    log(&format!("{} can be written again", self.path.display()));
                }
                return true;
            };
            self.file = None;
            if shared.is_ending.load(Ordering::Acquire) {
                return false;
            }
            if !std::mem::replace(&mut has_failed, true) {
                log(&format!(
                    "cannot write {}: {error}; up to {WAITING_LINES_MAX} lines wait until that is \
                     possible, and more are counted",
                    self.path.display()
                ));
            }
            std::thread::park_timeout(Duration::from_millis(RETRY_MS));
        }
    }

    /// Writes a line, whole or not at all.
    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        let (mut file, mut bytes) = match self.file.take() {
            Some(open) => open,
            None => open(&self.path)?,
        };
        if bytes > 0 && bytes + line.len() as u64 > FILE_BYTES_MAX {
            drop(file);
            set_aside(&self.path)?;
            (file, bytes) = open(&self.path)?;
        }
        if let Err(error) = file.write_all(line) {
            // Else the next opening ends a part of a line.
            let _ = file.set_len(bytes);
            return Err(error);
        }
        self.file = Some((file, bytes + line.len() as u64));
        Ok(())
    }
}

/// Opens the file, and ends a part of a line that a crash or a full disk has left.
fn open(path: &Path) -> io::Result<(File, u64)> {
    let mut options = OpenOptions::new();
    let mut file = options.create(true).read(true).append(true).mode(0o600).open(path)?;
    let mut bytes = file.metadata()?.len();
    let mut last = [b'\n'];
    if bytes > 0 {
        file.read_exact_at(&mut last, bytes - 1)?;
    }
    if last != *b"\n" {
        file.write_all(b"\n")?;
        bytes += 1;
    }
    Ok((file, bytes))
}

/// Sets the file aside, and those before it.
fn set_aside(path: &Path) -> io::Result<()> {
    let aside = |number: u32| {
        let mut name = path.to_owned().into_os_string();
        name.push(format!(".{number}"));
        PathBuf::from(name)
    };
    for number in (1..FILES_KEPT).rev() {
        // It is not there at first.
        let _ = std::fs::rename(aside(number), aside(number + 1));
    }
    std::fs::rename(path, aside(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_has_grown_is_set_aside_and_few_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let mut record = Record { path: dir.path().join(FILE), file: None };
        let large = vec![b'\n'; FILE_BYTES_MAX as usize / 2 + 1];
        for _ in 0..2 * FILES_KEPT {
            record.append(&large).unwrap();
        }
        let mut names: Vec<String> = std::fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        let expected: Vec<String> = std::iter::once(FILE.to_owned())
            .chain((1..=FILES_KEPT).map(|number| format!("{FILE}.{number}")))
            .collect();
        assert_eq!(names, expected);
    }

    #[test]
    fn a_part_of_a_line_is_ended_before_the_next_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        std::fs::write(&path, "{\"whole\":1}\n{\"par").unwrap();
        let mut record = Record { path: path.clone(), file: None };
        record.append(b"{\"next\":2}\n").unwrap();
        let text = std::fs::read_to_string(path).unwrap();
        assert_eq!(text, "{\"whole\":1}\n{\"par\n{\"next\":2}\n");
    }

    #[test]
    fn lines_that_cannot_be_written_wait_and_those_that_cannot_wait_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        let later = dir.path().join("later");
        let (said, heard) = sync_channel(16);
        let log: Log = Arc::new(move |line: &str| said.send(line.to_owned()).unwrap());
        let writer = Writer::start(&later, &log).unwrap();
        writer.put(b"0\n".to_vec());
        let first = heard.recv().unwrap();
        assert!(first.starts_with("cannot write "), "{first}");
        // The thread holds one line, and as many wait as may.
        for number in 1..=WAITING_LINES_MAX + 3 {
            writer.put(format!("{number}\n").into_bytes());
        }
        std::fs::create_dir(&later).unwrap();
        writer.thread.unpark();
        let second = heard.recv().unwrap();
        assert!(second.ends_with("can be written again"), "{second}");
        writer.end();
        let text = std::fs::read_to_string(later.join(FILE)).unwrap();
        let (counts, numbers): (Vec<&str>, Vec<&str>) =
            text.lines().partition(|line| line.starts_with('{'));
        assert_eq!(counts, ["{\"left_out\":3}"]);
        let expected: Vec<String> =
            (0..=WAITING_LINES_MAX).map(|number| number.to_string()).collect();
        assert_eq!(numbers, expected);
    }

    #[test]
    fn who_ends_before_lines_can_be_written_says_how_many_are_lost() {
        let dir = tempfile::tempdir().unwrap();
        let (said, heard) = sync_channel(16);
        let log: Log = Arc::new(move |line: &str| said.send(line.to_owned()).unwrap());
        let writer = Writer::start(&dir.path().join("never"), &log).unwrap();
        for _ in 0..5 {
            writer.put(b"x\n".to_vec());
        }
        assert!(heard.recv().unwrap().starts_with("cannot write "));
        writer.end();
        assert!(heard.recv().unwrap().starts_with("5 lines of "));
    }
}
