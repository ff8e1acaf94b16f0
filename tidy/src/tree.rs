//! The files of the tree.

use std::io;
use std::path::{Path, PathBuf};

/// A file of the tree.
#[derive(Debug, Clone)]
pub struct File {
    /// Relative to the root, with slashes.
    pub path: String,
    /// What it says.
    pub text: String,
}

/// What is not ours or not text.
const LEFT_OUT: [&str; 5] = ["target", "corpus", "artifacts", "Cargo.lock", "LICENSE"];

/// The folder that all paths are relative to.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new(".")).to_owned()
}

/// All text files below `root`, by path.
///
/// # Errors
/// A folder or a file cannot be read.
pub fn files(root: &Path) -> io::Result<Vec<File>> {
    let mut files = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let entry = entry?;
            let path = entry.path();
            let name = entry.file_name();
            // Folders of editors and tools; `.ci` is ours.
            let hidden = name.as_encoded_bytes().starts_with(b".") && name != ".ci";
            if hidden || LEFT_OUT.iter().any(|left_out| name == *left_out) {
                continue;
            }
            if entry.file_type()?.is_dir() {
                folders.push(path);
            } else if entry.file_type()?.is_file() {
                // What is not UTF-8 is no text of ours.
                let Ok(text) = String::from_utf8(std::fs::read(&path)?) else { continue };
                let path = path.strip_prefix(root).unwrap_or(&path);
                files.push(File { path: path.to_string_lossy().into_owned(), text });
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}
