//! Making and removing a mount: by the helper of FUSE, which any user may run, and which
//! removes the mount if this process is killed; without it as root.

use rustix::fd::OwnedFd;
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

const DEVICE: &str = "/dev/fuse";
/// The helper, of FUSE 3 and of FUSE 2.
const HELPERS: [&str; 2] = ["fusermount3", "fusermount"];
/// Where the helper finds the socket that it sends the device through.
const HELPER_SOCKET: &str = "_FUSE_COMMFD";
/// What the mount's type is, behind `fuse.`.
const SUBTYPE: &str = "falkon";
/// Room for the one descriptor that the helper sends.
const ANCILLARY_BYTES: usize = 64;

/// Why nothing is mounted.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The place cannot be used.
    #[error("cannot mount at {}: {error}", path.display())]
    Place {
        /// Where.
        path: PathBuf,
        /// Why not.
        #[source]
        error: io::Error,
    },
    /// Something else is there.
    #[error("cannot mount at {}: it is no directory", path.display())]
    NoDirectory {
        /// Where.
        path: PathBuf,
    },
    /// A mount whose process is gone.
    #[error(
        "cannot mount at {}: a file system whose process is gone is still mounted there; \
         `fusermount3 -u {}` (or `umount`, as root) removes it",
        path.display(), path.display()
    )]
    Stale {
        /// Where.
        path: PathBuf,
    },
    /// This machine has no FUSE, or this container none of its machine.
    #[error(
        "{DEVICE} cannot be opened ({error}): the kernel's module `fuse` is not loaded, or this \
         container has no access to it"
    )]
    NoDevice {
        /// Why not.
        #[source]
        error: io::Error,
    },
    /// Nobody is there who may mount.
    #[error(
        "only root mounts file systems without the program `fusermount3`, which is not installed \
         (Debian, Red Hat: package `fuse3`)"
    )]
    NoHelper,
    /// The helper, or the kernel, refuses.
    #[error("cannot mount at {}: {said}", path.display())]
    Refused {
        /// Where.
        path: PathBuf,
        /// What it says.
        said: String,
    },
}

/// A mount of this process.
#[derive(Debug)]
pub struct Mounted {
    device: Arc<File>,
    path: PathBuf,
    helper: Option<Fusermount>,
}

/// The helper, which waits for the end of this process.
#[derive(Debug)]
struct Fusermount {
    program: &'static str,
    child: Child,
    /// It unmounts when this is closed.
    socket: UnixStream,
}

/// Whether this process can probably mount file systems: the device can be opened, and
/// this user is root or has the helper.
#[must_use]
pub fn is_possible() -> bool {
    let has_device = || File::options().read(true).write(true).open(DEVICE).is_ok();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there =
        |program: &&str| std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
    let may_mount = rustix::process::geteuid().is_root() || HELPERS.iter().any(is_there);
    may_mount && has_device()
}

impl Mounted {
    /// Mounts a read-only file system at a directory. Whoever uses it waits until it is
    /// served. `source` is what the list of mounts names.
    ///
    /// # Errors
    /// If the directory cannot be used, or this user cannot mount.
    pub fn new(directory: &Path, source: &str) -> Result<Mounted, MountError> {
        let path = directory.canonicalize().and_then(|path| Ok((path.metadata()?, path)));
        let (metadata, path) = path.map_err(|error| {
            let path = directory.to_owned();
            match error.raw_os_error() {
                Some(code) if code == Errno::NOTCONN.raw_os_error() => MountError::Stale { path },
                _ => MountError::Place { path, error },
            }
        })?;
        if !metadata.is_dir() {
            return Err(MountError::NoDirectory { path });
        }
        std::fs::metadata(DEVICE).map_err(|error| MountError::NoDevice { error })?;
        for program in HELPERS {
            if let Some((device, helper)) = by_helper(program, &path, source)? {
                return Ok(Mounted { device: Arc::new(device), path, helper: Some(helper) });
            }
        }
        let device = directly(&path, source)?;
        Ok(Mounted { device: Arc::new(device), path, helper: None })
    }

    /// Where it is mounted.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn device(&self) -> &Arc<File> {
        &self.device
    }

    /// Removes the mount, also if it is in use: whoever uses it gets errors when this process
    /// ends.
    ///
    /// # Errors
    /// If it stays.
    pub fn unmount(mut self) -> Result<(), MountError> {
        let refused = |said| MountError::Refused { path: self.path.clone(), said };
        let done = match (unmount(&self.path, UnmountFlags::DETACH), &self.helper) {
            (Err(Errno::PERM), Some(helper)) => {
                let mut command = Command::new(helper.program);
                command.args(["-u", "-q", "-z", "--"]).arg(&self.path).stdin(Stdio::null());
                match command.output() {
                    Ok(output) if output.status.success() => Ok(()),
                    Ok(output) => Err(refused(said(&output.stderr))),
                    Err(error) => Err(refused(error.to_string())),
                }
            }
            // Somebody else was faster.
            (Ok(()) | Err(Errno::INVAL), _) => Ok(()),
            (Err(error), _) => Err(refused(error.to_string())),
        };
        self.leave();
        done
    }

    /// Forgets a mount that somebody else has removed.
    pub fn removed(mut self) {
        self.leave();
    }

    fn leave(&mut self) {
        if let Some(Fusermount { mut child, socket, .. }) = self.helper.take() {
            drop(socket);
            // It ends by itself; how is of no interest.
            let _ = child.wait();
        }
    }
}

fn said(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let line = text.lines().map(str::trim).find(|line| !line.is_empty());
    line.unwrap_or("the helper of FUSE failed without saying why").to_owned()
}

/// `None` if there is no such program.
fn by_helper(
    program: &'static str,
    path: &Path,
    source: &str,
) -> Result<Option<(File, Fusermount)>, MountError> {
    let of = |error| MountError::Place { path: path.to_owned(), error };
    let (socket, theirs) = UnixStream::pair().map_err(of)?;
    // Only the helper inherits it: it is closed here before another process starts.
    fcntl_setfd(&theirs, FdFlags::empty()).map_err(|error| of(error.into()))?;
    let source = source.replace('\\', "\\\\").replace(',', "\\,");
    let mut command = Command::new(program);
    command
        .arg("-o")
        .arg(format!("ro,nosuid,nodev,auto_unmount,subtype={SUBTYPE},fsname={source}"))
        .arg("--")
        .arg(path)
        .env(HELPER_SOCKET, theirs.as_raw_fd().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            let said = format!("cannot start {program}: {error}");
            return Err(MountError::Refused { path: path.to_owned(), said });
        }
    };
    drop(theirs);
    match receive(&socket) {
        Ok(Some(device)) => {
            // What it may still say has no reader.
            drop(child.stderr.take());
            Ok(Some((File::from(device), Fusermount { program, child, socket })))
        }
        received => {
            drop(socket);
            let output = child.wait_with_output();
            let said = match (received, output) {
                (Err(error), _) | (_, Err(error)) => error.to_string(),
                (_, Ok(output)) => said(&output.stderr),
            };
            Err(MountError::Refused { path: path.to_owned(), said })
        }
    }
}

/// The device that the helper sends; `None` if it ended without.
fn receive(socket: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let mut byte = [0];
    let mut room = [std::mem::MaybeUninit::uninit(); ANCILLARY_BYTES];
    let mut ancillary = RecvAncillaryBuffer::new(&mut room);
    loop {
        let mut bytes = [IoSliceMut::new(&mut byte)];
        match recvmsg(socket, &mut bytes, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Ok(_) => break,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let mut messages = ancillary.drain();
    Ok(messages.find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    }))
}

/// As root.
fn directly(path: &Path, source: &str) -> Result<File, MountError> {
    let device = File::options().read(true).write(true).open(DEVICE);
    let device = device.map_err(|error| MountError::NoDevice { error })?;
    let (user, group) = (rustix::process::getuid(), rustix::process::getgid());
    let options = format!(
        "fd={},rootmode=40000,user_id={},group_id={}",
        device.as_raw_fd(),
        user.as_raw(),
        group.as_raw()
    );
    let of = |error: io::Error| MountError::Place { path: path.to_owned(), error };
    let options = CString::new(options).map_err(|error| of(error.into()))?;
    let kind: OsString = format!("fuse.{SUBTYPE}").into();
    let flags = MountFlags::RDONLY | MountFlags::NODEV | MountFlags::NOSUID;
    match mount(source, path, &kind, flags, &*options) {
        Ok(()) => Ok(device),
        Err(Errno::PERM | Errno::ACCESS) => Err(MountError::NoHelper),
        Err(error) => Err(MountError::Refused { path: path.to_owned(), said: error.to_string() }),
    }
}
