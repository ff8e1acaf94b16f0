//! Errors of processes that did not start: each names the thing and the remedy.

use super::files::Look;
use falkon_core::result::Cause;
use falkon_process::Stage;
use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// How much of a script is looked at for its interpreter: what the kernel
/// looks at.
const FIRST_LINE_BYTES_MAX: u64 = 256;
/// How much of a name is repeated: a name may be as long as a message.
const NAMED_BYTES_MAX: usize = 1024;

/// Why a task does not start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reason {
    /// In words.
    pub(super) error: String,
    /// The cause by which programs decide, if there is a name for it.
    pub(super) cause: Option<Cause>,
}

impl From<String> for Reason {
    fn from(error: String) -> Reason {
        Reason { error, cause: None }
    }
}

/// The failure to start a program.
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
    /// The error, without a look at the program's file.
    pub(super) fn error(&self) -> StartError {
        self.error_of(None)
    }

    /// The error, after a look at the program's file if that helps.
    pub(super) fn explained(&self, look: &Look) -> StartError {
        self.error_of(Some(look))
    }

    fn error_of(&self, look: Option<&Look>) -> StartError {
        let Failure { program, cwd, stdin, stage, errno } = self;
        let (stage, errno) = (*stage, *errno);
        let name = Name::new(program);
        let folder = || Name::new(cwd.as_deref().unwrap_or_default());
        let input = || Name::new(stdin.as_deref().unwrap_or_default());
        let source = io::Error::from_raw_os_error(errno);
        match (stage, errno) {
            (Stage::Exec, libc::ETIMEDOUT) => StartError::ProgramSilent(name),
            (Stage::Chdir, libc::ETIMEDOUT) => StartError::FolderSilent(folder()),
            (Stage::Stdin, libc::ETIMEDOUT) => StartError::InputSilent(input()),
            (Stage::Arguments | Stage::Exec, libc::E2BIG) => StartError::TooLong(name),
            (Stage::Exec, _) => not_executed(program, cwd.as_deref(), errno, look),
            (Stage::Chdir, _) => StartError::Folder { folder: folder(), source },
            (Stage::Stdin, _) => StartError::Input { file: input(), source },
            (Stage::Arguments, _) => StartError::Arguments(name),
            (Stage::Waiting, _) => StartError::Killed,
            (Stage::Changed, _) => StartError::Changed,
            (Stage::Pipes | Stage::Fork | Stage::Copy, _) => {
                StartError::NoProcess { program: name, source }
            }
        }
    }
}

/// A name for people, however long it is and whatever bytes are in it.
#[derive(Debug)]
pub(super) struct Name(String);

impl Name {
    fn new(name: &[u8]) -> Name {
        Name(match name.get(..NAMED_BYTES_MAX) {
            None => String::from_utf8_lossy(name).into_owned(),
            Some(start) => format!("{}…", String::from_utf8_lossy(start)),
        })
    }
}

/// Why a program was not started.
#[derive(Debug, thiserror::Error)]
pub(super) enum StartError {
    #[error("cannot run {}: the file system of it or of its interpreter does not answer", .0.0)]
    ProgramSilent(Name),
    #[error("cannot change to the working directory {}: its file system does not answer", .0.0)]
    FolderSilent(Name),
    #[error("cannot open standard input {}: its file system does not answer", .0.0)]
    InputSilent(Name),
    #[error("the arguments and environment of {} are too long for this system", .0.0)]
    TooLong(Name),
    #[error(
        "the arguments or environment of {} cannot be passed on: an argument holds a NUL byte, or \
         a variable's name is empty or holds '='",
        .0.0
    )]
    Arguments(Name),
    #[error("cannot change to the working directory {}: {source}", .folder.0)]
    Folder { folder: Name, source: io::Error },
    #[error("cannot open standard input {}: {source}", .file.0)]
    Input { file: Name, source: io::Error },
    #[error("it was killed before it started")]
    Killed,
    #[error("a file that it reads was changed before it started")]
    Changed,
    #[error(
        "cannot make a process for {}: {source} (check the limits on open files and processes)",
        .program.0
    )]
    NoProcess { program: Name, source: io::Error },
    #[error("no such command: {} (there is no such file on the executor)", .0.0)]
    NoFile(Name),
    #[error(
        "no such command: {} (there is no such file on the executor; the path begins in the \
         task's working directory)",
        .0.0
    )]
    NoFileInFolder(Name),
    #[error("no such command: {} (check the spelling, and PATH on the executor)", .0.0)]
    NotInPath(Name),
    #[error("cannot run {}: its interpreter {interpreter} is not there", .program.0)]
    NoInterpreter { program: Name, interpreter: String },
    #[error(
        "cannot run {}: the loader that it needs is not there (was it built for another system?)",
        .0.0
    )]
    NoLoader(Name),
    #[error("cannot run {}: it is a directory", .0.0)]
    IsDirectory(Name),
    #[error("cannot run {name}: it is not executable (chmod +x {name})", name = .0.0)]
    NotExecutable(Name),
    #[error("cannot run {}: {source}", .program.0)]
    Exec { program: Name, source: io::Error },
}

impl StartError {
    /// The cause by which programs decide.
    pub(super) fn cause(&self) -> Option<Cause> {
        Some(match self {
            StartError::ProgramSilent(_)
            | StartError::FolderSilent(_)
            | StartError::InputSilent(_) => Cause::FileSystemSilent,
            StartError::TooLong(_) | StartError::Arguments(_) => Cause::BadArguments,
            StartError::NoFile(_)
            | StartError::NoFileInFolder(_)
            | StartError::NotInPath(_)
            | StartError::NoInterpreter { .. }
            | StartError::NoLoader(_) => Cause::NoProgram,
            StartError::IsDirectory(_) | StartError::NotExecutable(_) | StartError::Exec { .. } => {
                Cause::NotExecutable
            }
            StartError::Folder { .. } => Cause::NoFolder,
            StartError::Input { .. } => Cause::NoInputFile,
            StartError::NoProcess { .. } => Cause::NoProcess,
            StartError::Killed | StartError::Changed => return None,
        })
    }
}

fn not_executed(program: &[u8], cwd: Option<&[u8]>, errno: i32, look: Option<&Look>) -> StartError {
    let name = Name::new(program);
    // Without a slash it was looked up in PATH, and where is not known here.
    let place = look.filter(|_| program.contains(&b'/')).and_then(|look| {
        let folder = cwd.map_or_else(PathBuf::new, |cwd| PathBuf::from(OsStr::from_bytes(cwd)));
        let place = folder.join(OsStr::from_bytes(program));
        let found = look.metadata(&place).ok()?;
        Some((place, found))
    });
    match errno {
        libc::ENOENT => match place.as_ref().map(|(place, _)| place) {
            None if program.starts_with(b"/") => StartError::NoFile(name),
            None if program.contains(&b'/') => StartError::NoFileInFolder(name),
            None => StartError::NotInPath(name),
            Some(place) => match interpreter(place) {
                Some(interpreter) => StartError::NoInterpreter { program: name, interpreter },
                None => StartError::NoLoader(name),
            },
        },
        libc::EACCES if place.is_some_and(|(_, found)| found.is_dir()) => {
            StartError::IsDirectory(name)
        }
        libc::EACCES => StartError::NotExecutable(name),
        errno => StartError::Exec { program: name, source: io::Error::from_raw_os_error(errno) },
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
