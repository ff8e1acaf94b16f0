//! The beginning of a process on a node of a gang: this program, as the process host starts it,
//! gives the other ends of its streams to the executor and becomes the command.

use super::socket::{BEGIN, HELLO_BYTES, KEY_BYTES};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType,
};
use rustix::pipe::{PipeFlags, pipe_with};
use std::ffi::OsString;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

/// The hidden first argument with which a binary is executed as a process of a gang.
pub const REMOTE_ARGUMENT: &str = "gang-process";

/// The status of a process whose command could not be executed, as shells have it.
const NOT_EXECUTED: u8 = 127;

/// What such a process is told: the socket, its key, the folder, the shell, the command.
pub(super) const ARGUMENTS: usize = 5;

/// The `main` of a program whose first argument is [`REMOTE_ARGUMENT`]: becomes the command.
#[must_use]
pub fn remote_main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(2).collect();
    let Ok([socket, key, folder, shell, command]) = <[OsString; ARGUMENTS]>::try_from(arguments)
    else {
        eprintln!("falkon: processes of gangs are started by falkon itself");
        return ExitCode::from(2);
    };
    if let Err(error) = connect(&PathBuf::from(socket), &key.to_string_lossy()) {
        eprintln!("falkon: cannot reach the executor: {error}");
        return ExitCode::from(NOT_EXECUTED);
    }
    // A folder that is another node's alone is no reason not to run.
    let home = std::env::var_os("HOME").unwrap_or_else(|| "/".into());
    let _ = std::env::set_current_dir(folder).or_else(|_| std::env::set_current_dir(home));
    let error = Command::new(&shell).arg("-c").arg(command).exec();
    eprintln!("falkon: cannot execute {}: {error}", shell.display());
    ExitCode::from(NOT_EXECUTED)
}

/// Takes pipes as the standard streams, and gives their other ends to the executor.
fn connect(socket: &std::path::Path, key: &str) -> io::Result<()> {
    let make = || pipe_with(PipeFlags::CLOEXEC);
    let (stdin, to_stdin) = make()?;
    let (from_stdout, stdout) = make()?;
    let (from_stderr, stderr) = make()?;
    let mut hello = [BEGIN; HELLO_BYTES];
    hello[1..].copy_from_slice(&read_key(key).ok_or(io::ErrorKind::InvalidInput)?);
    let executor = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    rustix::net::connect(&executor, &SocketAddrUnix::new(socket)?)?;
    let pipes = [to_stdin.as_fd(), from_stdout.as_fd(), from_stderr.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(SendAncillaryMessage::ScmRights(&pipes));
    let flags = SendFlags::NOSIGNAL;
    let sent = rustix::net::sendmsg(&executor, &[IoSlice::new(&hello)], &mut ancillary, flags)?;
    if sent != hello.len() {
        return Err(io::ErrorKind::WriteZero.into());
    }
    rustix::stdio::dup2_stdin(stdin)?;
    rustix::stdio::dup2_stdout(stdout)?;
    rustix::stdio::dup2_stderr(stderr)?;
    Ok(())
}

/// The key of a process as text.
pub(super) fn write_key(key: &[u8; KEY_BYTES]) -> String {
    key.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `None` for what is no key.
pub(super) fn read_key(text: &str) -> Option<[u8; KEY_BYTES]> {
    let mut key = [0; KEY_BYTES];
    if text.len() != 2 * KEY_BYTES || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    for (at, byte) in key.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_read_back() {
        let key = std::array::from_fn(|at| at as u8 * 17);
        assert_eq!(read_key(&write_key(&key)), Some(key));
        let wrong = ["", "00", &"é".repeat(KEY_BYTES), &"+1".repeat(KEY_BYTES)];
        assert!(wrong.iter().all(|text| read_key(text).is_none()));
    }
}
