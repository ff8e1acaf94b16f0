//! The means of starting workers: the commands, and a folder with the socket at
//! which they report and the Python worker's program.
//!
//! The program is a package that this one carries within itself. A script loads it from the
//! folder and takes the folder off the search path again: calls find their own modules.

use super::{Home, WorkerError, WorkerOptions};
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Lists modules of the Python worker with their texts.
macro_rules! modules {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../../../../python/falkon/worker/", $name)))),*]
    };
}

/// The modules of the Python worker.
const PYTHON_MODULES: [(&str, &str); 16] = modules![
    "__init__.py",
    "arguments.py",
    "changes.py",
    "failures.py",
    "forked.py",
    "functions.py",
    "messages.py",
    "modules.py",
    "objects.py",
    "pickles.py",
    "program.py",
    "references.py",
    "serving.py",
    "streams.py",
    "template.py",
    "values.py",
];
/// The package that these are where the worker runs.
const PYTHON_PACKAGE: &str = "falkon_worker";
/// The Python code that starts a worker: a file, as `-m` takes some
/// milliseconds. Byte code is not written, as most workers are copies of a
/// template, which is the first to load it.
const PYTHON_START: &str = "\
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
writes_none, sys.dont_write_bytecode = sys.dont_write_bytecode, True
from falkon_worker.program import main

sys.dont_write_bytecode = writes_none
del sys.path[0], writes_none
main()
# Neither threads that calls left behind nor handlers hold this up.
os._exit(0)
";
/// The file that holds it.
const PYTHON_START_NAME: &str = "worker.py";
/// The language whose worker comes with Falkon.
pub(super) const PYTHON: &str = "python";
/// The interpreter of workers, unless the user names another.
const PYTHON_COMMAND: &str = "python3";

/// A folder of this executor alone, gone with it.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Creates the folder in `parent`, closed to other users, and writes its
    /// files.
    pub(super) fn make(parent: &Path) -> Result<Folder, WorkerError> {
        // A socket's path is short.
        let path = parent.join(format!("workers-{}", &token()?[..16]));
        let path = std::path::absolute(&path).unwrap_or(path);
        let failed = |source| WorkerError::Folder { path: path.clone(), source };
        DirBuilder::new().mode(0o700).create(&path).map_err(failed)?;
        let package = path.join(PYTHON_PACKAGE);
        std::fs::create_dir(&package).map_err(failed)?;
        for (name, text) in PYTHON_MODULES {
            std::fs::write(package.join(name), text).map_err(failed)?;
        }
        std::fs::write(path.join(PYTHON_START_NAME), PYTHON_START).map_err(failed)?;
        Ok(Folder { path })
    }

    /// Where workers connect to.
    pub(super) fn socket(&self) -> PathBuf {
        self.path.join("socket")
    }

    /// The program and arguments of a worker; `None` if the language is not
    /// known.
    pub(super) fn command(&self, options: &WorkerOptions, home: &Home) -> Option<Vec<Vec<u8>>> {
        let language = &home.language;
        let given = options.commands.iter().rev().find(|(name, _)| name == language);
        let mut command: Vec<Vec<u8>> = match (&home.interpreter, given) {
            (Some(interpreter), _) => vec![interpreter.clone()],
            (None, Some((_, words))) => words.iter().cloned().map(String::into_bytes).collect(),
            (None, None) if language == PYTHON => vec![PYTHON_COMMAND.into()],
            (None, None) => return None,
        };
        if language == PYTHON {
            command.push(bytes_of(&self.path.join(PYTHON_START_NAME)));
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

/// A token that cannot be guessed.
pub(super) fn token() -> Result<String, WorkerError> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|_| WorkerError::Random)?;
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_carries_every_module_of_the_worker() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python/falkon/worker");
        let mut names: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.ends_with(".py"))
            .collect();
        names.sort();
        assert_eq!(names, PYTHON_MODULES.map(|(name, _)| name));
    }
}
