//! Threads that answer the kernel.

use crate::files::Files;
use crate::limits::{REQUEST_BYTES, THREADS_MAX};
use crate::mount::Mounted;
use crate::protocol::{Answer, Session};
use rustix::io::{Errno, read, write};
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

/// Begins to answer what the kernel asks, by so many threads. They end when the file system
/// is unmounted, by whoever, and nobody uses it any more.
///
/// # Errors
/// If the kernel speaks another version of the protocol, or no thread can be started.
pub fn serve(
    mounted: &Mounted,
    files: &Arc<impl Files + 'static>,
    threads: usize,
) -> io::Result<Vec<JoinHandle<io::Result<()>>>> {
    let device = mounted.device();
    let user = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let mut session = Session::new(user.0, user.1);
    begin(device, &mut session)?;
    let mut started = Vec::new();
    for _ in 0..threads.clamp(1, THREADS_MAX) {
        let (device, files) = (Arc::clone(device), Arc::clone(files));
        let thread = std::thread::Builder::new().name("fuse".to_owned());
        match thread.spawn(move || answer_all(&device, session, &*files)) {
            Ok(thread) => started.push(thread),
            Err(error) if started.is_empty() => return Err(error),
            // Those that there are do it.
            Err(_) => break,
        }
    }
    Ok(started)
}

fn begin(device: &File, session: &mut Session) -> io::Result<()> {
    let mut request = vec![0; REQUEST_BYTES];
    let mut out = Vec::new();
    let Some(bytes) = next(device, &mut request)? else {
        return Err(io::Error::other("it was unmounted at once"));
    };
    let begun = session.begin(&request[..bytes], &mut out);
    send(device, &out)?;
    match begun {
        Answer::Ready => Ok(()),
        Answer::Version { major, minor } => Err(io::Error::other(format!(
            "the kernel speaks version {major}.{minor} of FUSE, and version 7.23 or a later one \
             of 7 is needed"
        ))),
        _ => Err(io::Error::other("the kernel's first request makes no sense")),
    }
}

fn answer_all(device: &File, session: Session, files: &dyn Files) -> io::Result<()> {
    let mut request = vec![0; REQUEST_BYTES];
    let mut out = Vec::new();
    while let Some(bytes) = next(device, &mut request)? {
        match session.answer(&request[..bytes], files, &mut out) {
            Answer::Ready => send(device, &out)?,
            Answer::None => {}
            Answer::End | Answer::Version { .. } => break,
        }
    }
    Ok(())
}

/// Reads a request; `None` when it is unmounted.
fn next(device: &File, request: &mut [u8]) -> io::Result<Option<usize>> {
    loop {
        match read(device, &mut *request) {
            Ok(bytes) => return Ok(Some(bytes)),
            // Whoever asked is gone.
            Err(Errno::INTR | Errno::AGAIN | Errno::NOENT) => {}
            Err(Errno::NODEV) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
}

fn send(device: &File, answer: &[u8]) -> io::Result<()> {
    match write(device, answer) {
        Ok(_) => Ok(()),
        // Whoever asked is gone, or all is.
        Err(Errno::NOENT | Errno::INTR | Errno::NODEV) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
