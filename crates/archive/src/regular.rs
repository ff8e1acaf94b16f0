//! Opening files that are to be regular ones: what else has their name is told,
//! and never waited for.

use crate::read::ReadError;
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::fs::{File, FileType, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// Why a regular file is not open.
#[derive(Debug)]
pub(crate) enum OpenError {
    /// It is something else: what.
    Other(&'static str),
    Io(io::Error),
}

/// Opens a file for reading if it is a regular one. A pipe would keep whoever
/// opens it until somebody writes to it, but not with this flag, which makes no
/// difference to files.
pub(crate) fn open(path: &Path) -> Result<(File, Metadata), OpenError> {
    let nonblocking = OFlags::NONBLOCK.bits() as i32;
    let file = OpenOptions::new().read(true).custom_flags(nonblocking).open(path);
    let file = file.map_err(|error| match Errno::from_io_error(&error) {
        // A socket, or a device without a driver.
        Some(Errno::NXIO | Errno::NODEV) => {
            OpenError::Other(std::fs::metadata(path).map_or("no file", |at| kind(at.file_type())))
        }
        _ => OpenError::Io(error),
    })?;
    let metadata = file.metadata().map_err(OpenError::Io)?;
    match metadata.is_file() {
        true => Ok((file, metadata)),
        false => Err(OpenError::Other(kind(metadata.file_type()))),
    }
}

/// What a file is that is no regular one.
fn kind(of: FileType) -> &'static str {
    match of {
        of if of.is_dir() => "a directory",
        of if of.is_fifo() => "a named pipe",
        of if of.is_socket() => "a socket",
        of if of.is_block_device() || of.is_char_device() => "a device",
        _ => "no regular file",
    }
}

impl OpenError {
    /// For what is to be an archive.
    pub(crate) fn of_archive(self, path: &Path) -> ReadError {
        let path = path.to_owned();
        match self {
            OpenError::Other(what) => ReadError::NoFile { path, what },
            OpenError::Io(error) => ReadError::Io { path, error },
        }
    }

    /// For what is to become a member.
    pub(crate) fn of_source(self) -> io::Error {
        match self {
            OpenError::Other(what) => {
                io::Error::new(io::ErrorKind::InvalidInput, format!("it is {what}, no file"))
            }
            OpenError::Io(error) => error,
        }
    }
}
