//! What workers are started with: the commands, and a folder that holds the
//! socket at which they report and the Python worker's program.

use super::{WorkerError, WorkerOptions};
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The Python worker.
const PYTHON_PROGRAM: &str = include_str!("../../../../../python/falkon/worker.py");
/// The language whose worker comes with Falkon.
pub(super) const PYTHON: &str = "python";
/// What runs it, unless the user says otherwise.
const PYTHON_COMMAND: &str = "python3";

/// A folder of this executor alone, gone with it.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Makes the folder, which nobody else may enter, in `parent` and writes
    /// what belongs into it.
    pub(super) fn make(parent: &Path) -> Result<Folder, WorkerError> {
        // A socket's path is short.
        let path = parent.join(format!("workers-{}", &token()?[..16]));
        let path = std::path::absolute(&path).unwrap_or(path);
        let failed = |source| WorkerError::Folder { path: path.clone(), source };
        DirBuilder::new().mode(0o700).create(&path).map_err(failed)?;
        std::fs::write(path.join("worker.py"), PYTHON_PROGRAM).map_err(failed)?;
        Ok(Folder { path })
    }

    /// Where workers connect to.
    pub(super) fn socket(&self) -> PathBuf {
        self.path.join("socket")
    }

    /// The program and arguments of a worker; `None` if the language is not
    /// known.
    pub(super) fn command(&self, options: &WorkerOptions, language: &str) -> Option<Vec<Vec<u8>>> {
        let given = options.commands.iter().rev().find(|(name, _)| name == language);
        let words = match given {
            Some((_, words)) => words.clone(),
            None if language == PYTHON => vec![PYTHON_COMMAND.to_owned()],
            None => return None,
        };
        let mut command: Vec<Vec<u8>> = words.into_iter().map(String::into_bytes).collect();
        if language == PYTHON {
            command.push(bytes_of(&self.path.join("worker.py")));
        }
        Some(command)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // The system's cleaning of temporary files does the rest.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// The path that bytes are.
pub(super) fn path_of(bytes: Vec<u8>) -> PathBuf {
    use std::os::unix::ffi::OsStringExt;
    PathBuf::from(std::ffi::OsString::from_vec(bytes))
}

/// A path as bytes.
pub(super) fn bytes_of(path: &Path) -> Vec<u8> {
    use std::os::unix::ffi::OsStrExt;
    path.as_os_str().as_bytes().to_vec()
}

/// Something that nobody guesses.
pub(super) fn token() -> Result<String, WorkerError> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|_| WorkerError::Random)?;
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}
