//! Commands of an LRM: with a time limit, and output up to a bound.

use std::fmt;
use std::io;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};

/// The bytes that are read of a command's standard output. A busy user has some
/// ten thousand jobs, each a line of less than 200 bytes.
const OUTPUT_BYTES_MAX: u64 = 16 << 20;
/// The bytes that are read of a command's standard error.
const ERRORS_BYTES_MAX: u64 = 64 << 10;
/// The bytes that are kept of an LRM's message.
pub(super) const WORDS_BYTES_MAX: usize = 2048;

/// Why a command gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The command could not be started.
    #[error(fmt = write_not_started)]
    Start {
        /// The program.
        program: String,
        /// The system's reason.
        source: io::Error,
    },
    /// The command did not end in time, and was killed.
    #[error(fmt = write_timed_out)]
    TimedOut {
        /// The program.
        program: String,
        /// How long it had.
        limit: Duration,
        /// The output until then.
        words: String,
    },
    /// The command ended with another status than 0.
    #[error(fmt = write_failed)]
    Failed {
        /// The program.
        program: String,
        /// The exit status, as the system words it.
        status: String,
        /// The output.
        words: String,
    },
    /// The command wrote more than is read.
    #[error("{program} wrote more than {OUTPUT_BYTES_MAX} bytes")]
    TooMuch {
        /// The program.
        program: String,
    },
    /// Reading from it or writing to it failed.
    #[error("lost the connection to {program}: {source}")]
    Pipe {
        /// The program.
        program: String,
        /// The system's reason.
        source: io::Error,
    },
}

fn write_not_started(program: &str, source: &io::Error, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match source.kind() {
        io::ErrorKind::NotFound => {
            write!(f, "there is no program `{program}` here: is it installed, and in PATH?")
        }
        _ => write!(f, "cannot start {program}: {source}"),
    }
}

fn write_timed_out(
    program: &str,
    limit: &Duration,
    words: &str,
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    write!(f, "{program} did not answer within {} s", limit.as_secs())?;
    match words {
        "" => Ok(()),
        words => write!(f, "; it said: {words}"),
    }
}

fn write_failed(
    program: &str,
    status: &str,
    words: &str,
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    match words {
        "" => write!(f, "{program} failed without a word ({status})"),
        words => f.write_str(words),
    }
}

/// Runs `words` with `input` on its standard input, and returns its standard
/// output. When it takes longer than `limit`, or the future is dropped, it is
/// killed with all it has started.
///
/// # Errors
/// See [`CommandError`].
pub(super) async fn run(
    words: &[String],
    input: &str,
    limit: Duration,
) -> Result<String, CommandError> {
    let Some((program, args)) = words.split_first() else {
        let source = io::Error::from(io::ErrorKind::NotFound);
        return Err(CommandError::Start { program: String::new(), source });
    };
    let program = program.clone();
    let start = |source| CommandError::Start { program: program.clone(), source };
    let mut command = Command::new(&program);
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // A group of its own, so that all of it can be killed; what a terminal
    // sends to the dispatcher is not for it.
    command.process_group(0).kill_on_drop(true);
    let mut child = command.spawn().map_err(start)?;
    let mut group = Group::of(&child);
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let feed = async {
        if let Some(mut stdin) = stdin {
            // A command that does not read all of its input reports the reason
            // itself.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
    };
    let mut errors = Vec::new();
    let whole = async {
        let ((), output, said, status) = tokio::join!(
            feed,
            read(stdout, OUTPUT_BYTES_MAX),
            read_into(stderr, ERRORS_BYTES_MAX, &mut errors),
            child.wait()
        );
        (output, said, status)
    };
    let ended = tokio::time::timeout(limit, whole).await;
    let Ok((output, said, status)) = ended else {
        return Err(CommandError::TimedOut { program, limit, words: shortened(&errors) });
    };
    // A process that it leaves running on purpose stays.
    group.0 = None;
    let pipe = |source| CommandError::Pipe { program: program.clone(), source };
    let (output, status) = (output.map_err(pipe)?, status.map_err(pipe)?);
    said.map_err(pipe)?;
    if !status.success() {
        let said = if errors.is_empty() { &output } else { &errors };
        let status = status.to_string();
        return Err(CommandError::Failed { program, status, words: shortened(said) });
    }
    if output.len() as u64 > OUTPUT_BYTES_MAX {
        return Err(CommandError::TooMuch { program });
    }
    Ok(String::from_utf8_lossy(&output).into_owned())
}

async fn read(from: Option<impl AsyncRead + Unpin>, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    read_into(from, limit, &mut bytes).await?;
    Ok(bytes)
}

/// Reads to the end, and keeps one byte more than `limit` at most.
async fn read_into(
    from: Option<impl AsyncRead + Unpin>,
    limit: u64,
    into: &mut Vec<u8>,
) -> io::Result<()> {
    let Some(mut from) = from else { return Ok(()) };
    (&mut from).take(limit + 1).read_to_end(into).await?;
    // The excess is read all the same, so that the writer ends.
    tokio::io::copy(&mut from, &mut tokio::io::sink()).await?;
    Ok(())
}

/// An LRM's words in one line, not too long.
pub(super) fn shortened(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let mut words = lines.collect::<Vec<_>>().join("; ");
    words.retain(|c| !c.is_control());
    if words.len() > WORDS_BYTES_MAX {
        let end = (0..=WORDS_BYTES_MAX).rev().find(|at| words.is_char_boundary(*at));
        words.truncate(end.unwrap_or(0));
        words.push('…');
    }
    words
}

/// Kills a process group when it goes out of scope.
struct Group(Option<rustix::process::Pid>);

impl Group {
    fn of(child: &Child) -> Group {
        let pid = child.id().and_then(|id| i32::try_from(id).ok());
        Group(pid.and_then(rustix::process::Pid::from_raw))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // The group is gone if all of its processes have ended.
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str, limit: Duration) -> Result<String, CommandError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let words = ["sh".to_owned(), "-c".to_owned(), script.to_owned()];
        runtime.block_on(run(&words, "the input\n", limit))
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn input_goes_in_and_output_comes_back() {
        assert_eq!(sh("cat; echo end", LONG).unwrap(), "the input\nend\n");
        assert_eq!(sh("exec <&-; echo unread", LONG).unwrap(), "unread\n");
    }

    #[test]
    fn failures_carry_the_words() {
        let said = |script: &str| sh(script, LONG).unwrap_err().to_string();
        assert_eq!(said("echo 'error: no'; exit 3"), "error: no");
        assert_eq!(said("echo out; printf ' a\\n\\n b\\n' >&2; exit 1"), "a; b");
        assert_eq!(said("exit 4"), "sh failed without a word (exit status: 4)");
        let long = said("head -c 100000 /dev/zero | tr '\\0' x >&2; exit 1");
        assert_eq!(long.chars().count(), WORDS_BYTES_MAX + 1);
        let words = ["no-such-program-here".to_owned()];
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let error = runtime.block_on(run(&words, "", LONG)).unwrap_err();
        assert!(error.to_string().contains("is it installed, and in PATH?"), "{error}");
    }

    #[test]
    fn what_hangs_is_killed_with_all_it_started() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("alive");
        let path = pipe.to_str().unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
            0,
        )
        .unwrap();
        // Both ends, so that opening it does not wait.
        let script = format!("exec 3<>{path}; (sleep 1000) & echo looking >&2; wait");
        let error = sh(&script, Duration::from_millis(300)).unwrap_err();
        assert!(matches!(error, CommandError::TimedOut { .. }), "{error}");
        // The pipe's last holder was in the group: no process has it open any
        // more.
        let opened = || {
            use std::os::unix::fs::OpenOptionsExt;
            let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
            std::fs::OpenOptions::new().write(true).custom_flags(flags).open(&pipe)
        };
        while opened().is_ok() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_flood_is_not_kept() {
        let error = sh("head -c 20000000 /dev/zero", LONG).unwrap_err();
        assert!(matches!(error, CommandError::TooMuch { .. }), "{error}");
    }
}
