//! Why a process did not start, in words that name the thing and say what to
//! do.

use super::files::Look;
use crate::process::Stage;
use falkon_core::result::Cause;
use std::ffi::OsStr;
use std::fmt;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What a file system does whose calls have not returned in time.
const SILENT: &str = "does not answer";

/// How much of a script is looked at for its interpreter: what the kernel
/// looks at.
const FIRST_LINE_BYTES_MAX: u64 = 256;
/// How much of a name is repeated: a name may be as long as a message.
const NAMED_BYTES_MAX: usize = 1024;

/// A name for people, however long it is and whatever is in it.
fn named(name: &[u8]) -> String {
    match name.get(..NAMED_BYTES_MAX) {
        None => String::from_utf8_lossy(name).into_owned(),
        Some(start) => format!("{}…", String::from_utf8_lossy(start)),
    }
}

/// Why a task does not start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reason {
    /// In words.
    pub(super) error: String,
    /// What a program decides by, if there is a name for it.
    pub(super) cause: Option<Cause>,
}

impl From<String> for Reason {
    fn from(error: String) -> Reason {
        Reason { error, cause: None }
    }
}

/// What went wrong when a program was to be started.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    pub(super) program: Vec<u8>,
    pub(super) cwd: Option<Vec<u8>>,
    pub(super) stdin: Option<Vec<u8>>,
    /// The step that failed.
    pub(super) stage: Stage,
    /// Why, as the system's error number.
    pub(super) errno: i32,
}

impl Failure {
    /// In words, after a look at the program's file if that helps.
    pub(super) fn explained(&self, look: &Look) -> String {
        in_words(self, Some(look))
    }

    /// What a program decides by.
    pub(super) fn cause(&self) -> Option<Cause> {
        Some(match (self.stage, self.errno) {
            (Stage::Exec | Stage::Chdir | Stage::Stdin, libc::ETIMEDOUT) => Cause::FileSystemSilent,
            (Stage::Exec, libc::E2BIG) | (Stage::Arguments, _) => Cause::BadArguments,
            (Stage::Exec, libc::ENOENT) => Cause::NoProgram,
            (Stage::Exec, _) => Cause::NotExecutable,
            (Stage::Chdir, _) => Cause::NoFolder,
            (Stage::Stdin, _) => Cause::NoInputFile,
            (Stage::Pipes | Stage::Fork | Stage::Copy, _) => Cause::NoProcess,
            (Stage::Waiting | Stage::Changed, _) => return None,
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&in_words(self, None))
    }
}

/// Why a step failed, as far as its error number and the program's file say.
fn in_words(failure: &Failure, look: Option<&Look>) -> String {
    let Failure { program, cwd, stdin, stage, errno } = failure;
    let (stage, errno) = (*stage, *errno);
    let reason = std::io::Error::from_raw_os_error(errno);
    let text = named;
    let named = text(program);
    match (stage, errno) {
        (Stage::Exec, libc::ETIMEDOUT) => {
            format!("cannot run {named}: the file system of it or of its interpreter {SILENT}")
        }
        (Stage::Chdir, libc::ETIMEDOUT) => format!(
            "cannot change to the working directory {}: its file system {SILENT}",
            text(cwd.as_deref().unwrap_or_default())
        ),
        (Stage::Stdin, libc::ETIMEDOUT) => format!(
            "cannot open standard input {}: its file system {SILENT}",
            text(stdin.as_deref().unwrap_or_default())
        ),
        (Stage::Arguments | Stage::Exec, libc::E2BIG) => {
            format!("the arguments and environment of {named} are too long for this system")
        }
        (Stage::Exec, _) => not_executed(program, cwd.as_deref(), errno, look),
        (Stage::Chdir, _) => format!(
            "cannot change to the working directory {}: {reason}",
            text(cwd.as_deref().unwrap_or_default())
        ),
        (Stage::Stdin, _) => format!(
            "cannot open standard input {}: {reason}",
            text(stdin.as_deref().unwrap_or_default())
        ),
        (Stage::Arguments, _) => format!(
            "the arguments or environment of {named} cannot be passed on: an argument holds a \
             NUL byte, or a variable's name is empty or holds '='"
        ),
        (Stage::Waiting, _) => "it was killed before it started".to_owned(),
        (Stage::Changed, _) => "a file that it reads was changed before it started".to_owned(),
        (Stage::Pipes | Stage::Fork | Stage::Copy, _) => format!(
            "cannot make a process for {named}: {reason} (check the limits on open files and \
             processes)"
        ),
    }
}

fn not_executed(program: &[u8], cwd: Option<&[u8]>, errno: i32, look: Option<&Look>) -> String {
    let named = named(program);
    // Without a slash it was looked up in PATH, and where is not known here.
    let place = look.filter(|_| program.contains(&b'/')).and_then(|look| {
        let folder = cwd.map_or_else(PathBuf::new, |cwd| PathBuf::from(OsStr::from_bytes(cwd)));
        let place = folder.join(OsStr::from_bytes(program));
        let found = look.metadata(&place).ok()?;
        Some((place, found))
    });
    match errno {
        libc::ENOENT => match place.as_ref().map(|(place, _)| place) {
            None if program.starts_with(b"/") => {
                format!("no such command: {named} (there is no such file on the executor)")
            }
            None if program.contains(&b'/') => format!(
                "no such command: {named} (there is no such file on the executor; the path begins \
                 in the task's working directory)"
            ),
            None => {
                format!("no such command: {named} (check the spelling, and PATH on the executor)")
            }
            Some(place) => match interpreter(place) {
                Some(interpreter) => {
                    format!("cannot run {named}: its interpreter {interpreter} is not there")
                }
                None => format!(
                    "cannot run {named}: the loader that it needs is not there (was it built for \
                     another system?)"
                ),
            },
        },
        libc::EACCES if place.is_some_and(|(_, found)| found.is_dir()) => {
            format!("cannot run {named}: it is a directory")
        }
        libc::EACCES => {
            format!("cannot run {named}: it is not executable (chmod +x {named})")
        }
        errno => format!("cannot run {named}: {}", std::io::Error::from_raw_os_error(errno)),
    }
}

/// The interpreter that a script's first line names.
fn interpreter(script: &Path) -> Option<String> {
    let mut start = Vec::new();
    std::fs::File::open(script).ok()?.take(FIRST_LINE_BYTES_MAX).read_to_end(&mut start).ok()?;
    let line = start.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let line = String::from_utf8_lossy(line);
    line.split_ascii_whitespace().next().map(str::to_owned)
}
