//! The stamp of an object's file.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

use falkon_process::FileMark;
use serde::{Deserialize, Serialize};

/// The properties by which a file is known to be unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stamp {
    pub(super) bytes: u64,
    inode: u64,
    modified_s: i64,
    modified_ns: i64,
}

impl Stamp {
    pub(super) fn mark(self) -> FileMark {
        let modified = (self.modified_s, self.modified_ns);
        FileMark { bytes: self.bytes, inode: self.inode, modified }
    }

    pub(super) fn of(file: &Metadata) -> Stamp {
        Stamp {
            bytes: file.len(),
            inode: file.ino(),
            modified_s: file.mtime(),
            modified_ns: file.mtime_nsec(),
        }
    }
}
