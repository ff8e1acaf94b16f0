//! What a task is, whatever place it has in a plan: how `--resume` knows it
//! again.

use super::{Plan, files};
use falkon_data::store::StoreUrl;
use falkon_wire::codec::Wire;
use falkon_wire::command::Command;
use falkon_wire::declared::{CACHE_SCHEME, Declared};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// The files that a task declares and that this machine may see, by their
/// absolute paths.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TaskFiles {
    /// Files that the task reads, its standard input among them.
    pub(crate) inputs: Vec<PathBuf>,
    /// Files that the task writes.
    pub(crate) outputs: Vec<PathBuf>,
    /// Whether it waits for others, which may write its inputs right before it
    /// starts.
    pub(crate) waits: bool,
}

impl Plan {
    /// 128 bits that are the same exactly if the task does the same: its
    /// command with arguments, declared environment, working directory,
    /// declared files by their names, which of them it finds unpacked, and its
    /// kind. What governs only when and
    /// where it runs (resources, limits, retries, priority) is left out, so
    /// that changing it does not make finished work worthless.
    pub(crate) fn digest(&self, position: u64) -> Option<[u8; 16]> {
        let mut command = self.command(position)?;
        // A relative path leads elsewhere from another folder.
        command.cwd = Some(self.folder_of_task(&command));
        // Where its output goes is no part of what it does.
        command.streams = None;
        let mut bytes = command.to_bytes();
        let class = self.class(position)?;
        bytes.push(class.kind as u8);
        if class.unpacks > 0 {
            bytes.extend(class.unpacks.to_le_bytes());
        }
        let mut digest = [0; 16];
        digest.copy_from_slice(&blake3::hash(&bytes).as_bytes()[..16]);
        Some(digest)
    }

    /// The files that the task at `position` declares; `None` if it declares
    /// none. What is on the web, in S3 or in caches is not among them.
    pub(crate) fn files(&self, position: u64) -> Option<TaskFiles> {
        let command = self.command(position)?;
        let folder = self.folder_of_task(&command);
        let seen =
            |path: &[u8]| PathBuf::from(OsString::from_vec(files::normalized(&folder, path)));
        let base = files::as_path(&self.current_dir);
        let path = |text: &Vec<u8>| match Declared::read(text) {
            Declared::File(path) => Some(vec![seen(path)]),
            Declared::Object { source, .. } if source.starts_with(CACHE_SCHEME) => None,
            Declared::Object { source, .. } => {
                match StoreUrl::parse_in(std::str::from_utf8(source).ok()?, base) {
                    // Of a directory only itself: what is in it may be a lot, for each task.
                    Ok(StoreUrl::Posix(path) | StoreUrl::Folder(path)) => Some(vec![path]),
                    Ok(StoreUrl::Member { archive, .. }) => match *archive {
                        StoreUrl::Posix(path) => Some(files_of_set(path)),
                        _ => None,
                    },
                    Ok(_) | Err(_) => None,
                }
            }
        };
        let stdin = command.stdin.iter().map(|path| seen(path));
        let found = TaskFiles {
            inputs: command.inputs.iter().filter_map(path).flatten().chain(stdin).collect(),
            outputs: command.outputs.iter().filter_map(path).flatten().collect(),
            waits: !self.after(position).is_empty(),
        };
        (!found.inputs.is_empty() || !found.outputs.is_empty()).then_some(found)
    }

    /// The folder from which a task's relative paths are seen, absolute.
    fn folder_of_task(&self, command: &Command) -> Vec<u8> {
        files::normalized(&self.current_dir, command.cwd.as_deref().unwrap_or_default())
    }
}

/// The files of the set whose first file is at `path`: each may have the member that counts.
fn files_of_set(path: PathBuf) -> Vec<PathBuf> {
    match falkon_archive::files_of(&path) {
        Ok(files) if !files.is_empty() => files.into_iter().map(|(_, path)| path).collect(),
        _ => vec![path],
    }
}
