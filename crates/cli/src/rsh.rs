//! `falkon rsh`: a process on another node of the same task, in place of a remote shell.

use crate::exit::{say, write_line};
use clap::Args;
use falkon_data::peer::remote::{RemoteEnd, Standard};
use falkon_executor::gangs::{GANG_VARIABLE, RSH_PROGRAM, ask};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;
use std::thread::JoinHandle;
use tokio::io::AsyncRead;
use tokio::net::UnixStream;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// The status when the command was not started, or nobody knows how it ended: as with ssh.
const UNKNOWN: u8 = 255;

/// How much is read at once.
const COPIED_BYTES: usize = 64 << 10;

/// Signals on their way at once.
const SIGNALS_MAX: usize = 8;

/// Options of ssh and rsh that a value follows.
const WITH_VALUE: &[u8] = b"BDEFIJLOPQRSWbceiklmopw";

/// `falkon rsh`
///
/// Works within tasks that run on several nodes (`--nodes-per-task`), and stands in for ssh
/// and rsh there: launchers of parallel programs find it in the task's environment. What the
/// command writes, reads and is sent as a signal goes over the executors' connections; its
/// exit status becomes this one's, 128 and a signal's number if one ended it, or 255 if it
/// was not started. It ends when this ends, and with the task.
#[derive(Args, Debug)]
pub(crate) struct RshArgs {
    /// [OPTIONS] HOST COMMAND…: options of ssh are passed over, except for -n, with which
    /// standard input is empty; the command is for a shell
    #[arg(required = true, num_args = 1.., trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

/// Whether this program was called as a remote shell.
pub(crate) fn is_called_for() -> bool {
    let called = std::env::args_os().next();
    called.is_some_and(|path| Path::new(&path).file_name() == Some(OsStr::new(RSH_PROGRAM)))
}

/// Runs this program as a remote shell.
pub(crate) fn main() -> ExitCode {
    run(std::env::args_os().skip(1).collect())
}

/// Runs the command.
pub(crate) fn rsh(args: RshArgs) -> ExitCode {
    run(args.words)
}

/// The host and the command.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    host: String,
    command: Vec<u8>,
    is_without_input: bool,
}

impl Wanted {
    /// Reads a command line of ssh or rsh.
    fn read(words: Vec<OsString>) -> Result<Wanted, &'static str> {
        let mut words = words.into_iter();
        let mut is_without_input = false;
        let host = loop {
            let word = words.next().ok_or("it takes a host and a command")?;
            match word.as_bytes() {
                b"--" => break words.next().ok_or("it takes a host and a command")?,
                [b'-', letters @ ..] if !letters.is_empty() => {
                    let value = letters.iter().position(|letter| WITH_VALUE.contains(letter));
                    let flags = &letters[..value.unwrap_or(letters.len())];
                    is_without_input |= flags.contains(&b'n');
                    if value.is_some_and(|at| at + 1 == letters.len()) {
                        words.next();
                    }
                }
                _ => break word,
            }
        };
        let host = host.to_string_lossy();
        let host = host.rsplit('@').next().unwrap_or_default().to_owned();
        let command: Vec<OsString> = words.collect();
        if command.is_empty() {
            return Err("it takes a command: there is no terminal on other nodes");
        }
        let command: Vec<&[u8]> = command.iter().map(|word| word.as_bytes()).collect();
        Ok(Wanted { host, command: command.join(&b' '), is_without_input })
    }
}

fn run(words: Vec<OsString>) -> ExitCode {
    let wanted = match Wanted::read(words) {
        Ok(wanted) => wanted,
        Err(error) => {
            say(format_args!("rsh: {error}"));
            return ExitCode::from(UNKNOWN);
        }
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            say(format_args!("rsh: cannot start the event loop: {error}"));
            return ExitCode::from(UNKNOWN);
        }
    };
    match runtime.block_on(carry(wanted)) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            say(format_args!("rsh: {error}"));
            ExitCode::from(UNKNOWN)
        }
    }
}

/// Copies to the end. The standard library would have the kernel splice, which keeps a pipe
/// locked while nothing comes: it may be the standard error of many processes.
fn copy(mut from: impl Read, mut to: impl Write) -> io::Result<()> {
    let mut bytes = vec![0; COPIED_BYTES];
    loop {
        match from.read(&mut bytes) {
            Ok(0) => return Ok(()),
            Ok(count) => to.write_all(&bytes[..count])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// A stream in place of standard input, which may be something that only a thread can wait for.
fn input() -> io::Result<UnixStream> {
    let (near, mut far) = std::os::unix::net::UnixStream::pair()?;
    near.set_nonblocking(true)?;
    // The thread ends with the program, if not before.
    std::thread::spawn(move || {
        // Whoever reads finds the end, whatever it was.
        let _ = copy(io::stdin().lock(), &mut far);
    });
    UnixStream::from_std(near)
}

/// A stream in place of `to`, and the thread that ends when all is written.
fn output(to: impl AsFd) -> io::Result<(UnixStream, JoinHandle<()>)> {
    let (near, mut far) = std::os::unix::net::UnixStream::pair()?;
    near.set_nonblocking(true)?;
    let mut to = File::from(to.as_fd().try_clone_to_owned()?);
    let thread = std::thread::spawn(move || {
        // Whoever writes finds out when this side is closed.
        let _ = copy(&mut far, &mut to);
    });
    Ok((UnixStream::from_std(near)?, thread))
}

async fn carry(wanted: Wanted) -> io::Result<u8> {
    let Wanted { host, command, is_without_input } = wanted;
    let stdin: Box<dyn AsyncRead + Unpin> = match is_without_input {
        true => Box::new(tokio::io::empty()),
        false => Box::new(input()?),
    };
    let (stdout, writes_stdout) = output(io::stdout())?;
    let (stderr, writes_stderr) = output(io::stderr())?;
    let standard = Standard { stdin, stdout, stderr };
    let folder = std::env::current_dir().unwrap_or_default();
    let gang = std::env::var(GANG_VARIABLE).ok();
    let ended = ask(gang.as_deref(), &host, &folder, &command, standard, signals()).await;
    // A thread that panicked has said so.
    let _ = writes_stdout.join();
    let _ = writes_stderr.join();
    Ok(match ended {
        Ok(RemoteEnd::Exit(status)) => status,
        Ok(RemoteEnd::Signal(signal)) => 128_u8.saturating_add(signal),
        Err(error) => {
            write_line(format_args!("falkon: rsh: {host}: {error}"));
            UNKNOWN
        }
    })
}

/// The signals that are passed on to the process, by their numbers.
fn signals() -> mpsc::Receiver<u8> {
    let (say, said) = mpsc::channel(SIGNALS_MAX);
    for number in
        [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGUSR1, libc::SIGUSR2]
    {
        let say = say.clone();
        // One that cannot be waited for ends this program, and with it the process.
        let Ok(mut arrives) = signal(SignalKind::from_raw(number)) else { continue };
        tokio::spawn(async move {
            while arrives.recv().await.is_some() {
                // Numbers of signals are small.
                if say.send(number as u8).await.is_err() {
                    break;
                }
            }
        });
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(words: &[&str], expected: Result<(&str, &str, bool), &str>) {
        let wanted = Wanted::read(words.iter().map(OsString::from).collect());
        let expected = expected.map(|(host, command, is_without_input)| Wanted {
            host: host.to_owned(),
            command: command.as_bytes().to_vec(),
            is_without_input,
        });
        assert_eq!(wanted.map_err(str::to_owned), expected.map_err(str::to_owned));
    }

    #[test]
    fn command_lines_of_launchers_are_read() {
        check(&["n1", "echo", "a b", ";", "x"], Ok(("n1", "echo a b ; x", false)));
        check(&["-x", "n1", "\"/usr/bin/p\"", "-n"], Ok(("n1", "\"/usr/bin/p\" -n", false)));
        check(&["-xl", "me", "-o", "A=b", "-p22", "u@n1", "true"], Ok(("n1", "true", false)));
        check(&["-nx", "--", "n1", "true"], Ok(("n1", "true", true)));
        check(&["-ofoo-n", "n1", "true"], Ok(("n1", "true", false)));
        check(&[], Err("it takes a host and a command"));
        check(&["-l"], Err("it takes a host and a command"));
        check(&["n1"], Err("it takes a command: there is no terminal on other nodes"));
    }
}
