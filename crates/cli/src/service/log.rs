//! Log lines of services, written by a thread of their own: the reader of
//! standard error may have stopped, and a service must continue. A log file
//! takes the place of standard error, so that everything is in it.

use crate::exit::write_line;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Lines that wait to be written; what comes beyond that is dropped.
const LINES_MAX: usize = 4096;
/// A log file that is as large as this is set aside.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Files that were set aside and are kept.
const FILES_KEPT: u32 = 4;
/// How long a process that ends waits for its last lines.
const FLUSH_MS_MAX: u64 = 1000;

#[derive(Debug)]
struct Lines {
    state: Mutex<State>,
    news: Condvar,
    written: Condvar,
}

#[derive(Debug)]
struct State {
    waiting: VecDeque<String>,
    dropped: u64,
    writing: bool,
    has_thread: bool,
    file: Option<LogFile>,
}

/// The file that standard error is.
#[derive(Debug)]
struct LogFile {
    path: PathBuf,
    /// Its size when it was looked at, and what was written since.
    bytes: u64,
}

static LINES: Lines = Lines {
    state: Mutex::new(State {
        waiting: VecDeque::new(),
        dropped: 0,
        writing: false,
        has_thread: false,
        file: None,
    }),
    news: Condvar::new(),
    written: Condvar::new(),
};

/// Has a line written soon. Names and reasons in it may be of a peer's choosing:
/// they make no lines of their own, and a terminal acts upon nothing in them.
pub(super) fn log(line: String) {
    let line = escaped(line);
    let mut state = LINES.lock();
    if !state.has_thread {
        let thread = std::thread::Builder::new().name("falkon-log".to_owned());
        if thread.spawn(|| LINES.write()).is_err() {
            drop(state);
            write_line(line);
            return;
        }
        state.has_thread = true;
    }
    state.add(line);
    LINES.news.notify_one();
}

/// Makes a file standard error, and appends to it.
///
/// # Errors
/// The file cannot be opened.
pub(super) fn to_file(path: &Path) -> io::Result<()> {
    let path = std::path::absolute(path)?;
    let bytes = become_stderr(&path)?;
    LINES.lock().file = Some(LogFile { path, bytes });
    Ok(())
}

/// How much is in the file.
fn become_stderr(path: &Path) -> io::Result<u64> {
    let file = File::options().create(true).append(true).open(path)?;
    let bytes = file.metadata()?.len();
    rustix::stdio::dup2_stderr(&file)?;
    Ok(bytes)
}

impl LogFile {
    /// The file has grown: it is set aside if it is large, and another begins. If that fails, as
    /// on a full disk, it goes on as it is, and another `FILE_BYTES_MAX` later this is tried
    /// again.
    fn grew(&mut self, bytes: u64) {
        self.bytes += bytes;
        if self.bytes < FILE_BYTES_MAX {
            return;
        }
        self.bytes = 0;
        let aside = |number: u32| {
            let mut name = self.path.clone().into_os_string();
            name.push(format!(".{number}"));
            PathBuf::from(name)
        };
        for number in (1..FILES_KEPT).rev() {
            // It is not there at first.
            let _ = std::fs::rename(aside(number), aside(number + 1));
        }
        let moved = std::fs::rename(&self.path, aside(1));
        self.bytes = moved.and_then(|()| become_stderr(&self.path)).unwrap_or(0);
    }
}

fn escaped(line: String) -> String {
    if !line.contains(char::is_control) {
        return line;
    }
    let mut escaped = String::with_capacity(line.len() + 16);
    for char in line.chars() {
        match char.is_control() {
            true => escaped.extend(char.escape_default()),
            false => escaped.push(char),
        }
    }
    escaped
}

/// Waits until all lines are written, unless the reader has stopped.
pub(crate) fn flush() {
    let limit = Duration::from_millis(FLUSH_MS_MAX);
    let left = |state: &mut State| state.writing || !state.waiting.is_empty();
    // After that time they are lost.
    drop(LINES.written.wait_timeout_while(LINES.lock(), limit, left));
}

impl Lines {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) {
        let mut state = self.lock();
        loop {
            if let Some(line) = state.next() {
                state.writing = true;
                let mut file = state.file.take();
                drop(state);
                let bytes = line.len() as u64 + 1;
                write_line(line);
                if let Some(file) = &mut file {
                    file.grew(bytes);
                }
                state = self.lock();
                state.writing = false;
                state.file = state.file.take().or(file);
                continue;
            }
            self.written.notify_all();
            state = self.news.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl State {
    fn add(&mut self, line: String) {
        if self.waiting.len() < LINES_MAX {
            self.waiting.push_back(line);
        } else {
            self.dropped += 1;
        }
    }

    /// The next line to be written. A line in their place counts those that were
    /// dropped.
    fn next(&mut self) -> Option<String> {
        if let Some(line) = self.waiting.pop_front() {
            return Some(line);
        }
        let dropped = std::mem::take(&mut self.dropped);
        (dropped > 0).then(|| format!("{dropped} lines of the log were dropped: nobody read them"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_makes_no_line_of_its_own() {
        let name = "worker\n2026-01-01T00:00:00Z executor\u{1b}[2J\r";
        let expected = "worker\\n2026-01-01T00:00:00Z executor\\u{1b}[2J\\r joined";
        assert_eq!(escaped(format!("{name} joined")), expected);
        assert_eq!(escaped("grüße → 1".to_owned()), "grüße → 1");
    }

    #[test]
    fn lines_that_nobody_reads_are_dropped_and_counted() {
        let mut state = State {
            waiting: VecDeque::new(),
            dropped: 0,
            writing: false,
            has_thread: true,
            file: None,
        };
        for at in 0..LINES_MAX + 3 {
            state.add(at.to_string());
        }
        let lines: Vec<String> = std::iter::from_fn(|| state.next()).collect();
        assert_eq!(lines.len(), LINES_MAX + 1);
        assert_eq!(lines[LINES_MAX - 1], (LINES_MAX - 1).to_string());
        assert!(lines[LINES_MAX].starts_with("3 lines"), "{}", lines[LINES_MAX]);
    }
}
