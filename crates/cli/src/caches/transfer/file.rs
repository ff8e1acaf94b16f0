//! Where an object that is fetched goes: a file that is there whole or not at
//! all, or, once all of it is here, standard output, a device or a pipe.

use crate::exit::Exit;
use crate::named_file::{self, NamedFile};
use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Names that are tried before an unused one is found.
const NAMES_MAX: u32 = 1000;

/// A file that is being made.
#[derive(Debug)]
pub(super) struct Target {
    file: Arc<File>,
    /// The name while the file is not whole; nothing if it has none.
    partial: Option<PathBuf>,
    /// Where it goes; nothing for standard output.
    place: Option<NamedFile>,
}

impl Drop for Target {
    fn drop(&mut self) {
        if let Some(partial) = &self.partial {
            // The partial file does no harm.
            let _ = fs::remove_file(partial);
        }
    }
}

impl Target {
    /// A file beside the one it is to become, or in the temporary directory.
    pub(super) fn new(path: Option<&Path>) -> Result<Target, Exit> {
        if let Some(path) = path.filter(|path| path.is_dir()) {
            return Err(Exit::usage(format!("{} is a directory", path.display())));
        }
        let cannot = |path: &Path, error| {
            Exit::usage(format!("cannot write to {}: {error}", path.display()))
        };
        let found = path.map(|path| named_file::resolve(path).map_err(|error| cannot(path, error)));
        let place = found.transpose()?;
        let renamed = match &place {
            Some(NamedFile::Renamed(path)) => Some(path.as_path()),
            Some(NamedFile::Written(_)) | None => None,
        };
        let folder = match renamed {
            Some(path) => path.parent().map_or_else(PathBuf::new, Path::to_owned),
            None => std::env::temp_dir(),
        };
        let name = renamed.and_then(Path::file_name).unwrap_or_default().to_string_lossy();
        for number in 0..NAMES_MAX {
            let partial = folder.join(format!(".{name}.{}-{number}.part", std::process::id()));
            match File::options().read(true).write(true).create_new(true).open(&partial) {
                Ok(file) => {
                    let mut target = Target {
                        file: Arc::new(file),
                        partial: Some(partial),
                        place: place.clone(),
                    };
                    if renamed.is_none() {
                        // The name is not needed any more.
                        target.unlink();
                    }
                    return Ok(target);
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    let folder = folder.display();
                    return Err(Exit::usage(format!("cannot create a file in {folder}: {error}")));
                }
            }
        }
        Err(Exit::usage(format!("cannot create a file in {}", folder.display())))
    }

    fn unlink(&mut self) {
        if let Some(partial) = self.partial.take() {
            // The file goes with the temporary directory otherwise.
            let _ = fs::remove_file(partial);
        }
    }

    /// Where to write.
    pub(super) fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// Completes the file once it is whole and checked.
    pub(super) fn finish(mut self) -> Result<Exit, Exit> {
        let path = match self.place.take() {
            None => return self.copy_to("standard output", &mut io::stdout().lock()),
            Some(NamedFile::Written(path)) => {
                let shown = path.display().to_string();
                let mut out = named_file::open(&path)
                    .map_err(|error| Exit::usage(format!("cannot write to {shown}: {error}")))?;
                return self.copy_to(&shown, &mut out);
            }
            Some(NamedFile::Renamed(path)) => path,
        };
        let Some(partial) = self.partial.take() else { return Ok(Exit::Success) };
        match fs::rename(&partial, &path) {
            Ok(()) => Ok(Exit::Success),
            Err(error) => {
                // Dropping it removes the file.
                self.partial = Some(partial);
                Err(Exit::usage(format!("cannot create {}: {error}", path.display())))
            }
        }
    }

    fn copy_to(&self, shown: &str, out: &mut impl io::Write) -> Result<Exit, Exit> {
        let mut file: &File = &self.file;
        let copied = file.seek(SeekFrom::Start(0)).and_then(|_| io::copy(&mut file, out));
        match copied {
            Ok(_) => Ok(Exit::Success),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Exit::Success),
            Err(error) => Err(Exit::failure(format!("cannot write to {shown}: {error}"))),
        }
    }
}
