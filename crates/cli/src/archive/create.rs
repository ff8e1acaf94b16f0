//! `falkon archive create`, `falkon archive join`

use super::{BoundArgs, ThreadArgs, report, unwritable};
use crate::exit::Exit;
use clap::Args;
use falkon_archive::{Source, WriteError, Writer};
use falkon_core::archive::{number_of, readable, unfinished_by};
use std::fs::Metadata;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// `falkon archive create`
#[derive(Args, Debug)]
pub(super) struct CreateArgs {
    /// The archive: the name of its first file. Further files of NAME.zip are named
    /// NAME.part2.zip, NAME.part3.zip
    #[arg(value_name = "ARCHIVE")]
    archive: PathBuf,
    /// Files and directories. Directories are read to their ends; symbolic links in them are
    /// left out, and so are the files of the archive itself
    #[arg(value_name = "PATH", required_unless_present = "files_from")]
    paths: Vec<PathBuf>,
    /// Read further paths from this file, one a line, or each ended by a zero byte; `-` is
    /// standard input
    #[arg(long, value_name = "FILE")]
    files_from: Option<PathBuf>,
    /// Take paths, and name members, relative to this directory
    #[arg(short = 'C', long, value_name = "DIR", default_value = ".")]
    directory: PathBuf,
    /// Deflate members, fast (1) to small (9), where that makes them smaller; 0 stores all
    #[arg(
        long, value_name = "LEVEL", default_value_t = 2,
        value_parser = clap::value_parser!(u32).range(0..=9)
    )]
    level: u32,
    #[command(flatten)]
    threads: ThreadArgs,
    #[command(flatten)]
    bounds: BoundArgs,
}

/// `falkon archive join`
#[derive(Args, Debug)]
pub(super) struct JoinArgs {
    /// The archive to write
    #[arg(value_name = "TARGET")]
    target: PathBuf,
    /// The archives to copy. Of members with the same name, the last one counts
    #[arg(value_name = "ARCHIVE", required = true)]
    archives: Vec<PathBuf>,
    #[command(flatten)]
    threads: ThreadArgs,
    #[command(flatten)]
    bounds: BoundArgs,
}

/// Copies archives into one.
pub(super) fn join(args: &JoinArgs) -> Result<Exit, Exit> {
    let options = args.bounds.options(args.threads);
    let mut writer = Writer::create(&args.target, options).map_err(unwritable)?;
    for path in &args.archives {
        falkon_archive::join(&mut writer, path).map_err(unwritable)?;
    }
    writer.finish().map_err(unwritable)?;
    Ok(Exit::Success)
}

/// Puts files into an archive.
pub(super) fn create(args: &CreateArgs) -> Result<Exit, Exit> {
    let mut options = args.bounds.options(args.threads);
    options.level = args.level;
    let writer = Writer::create(&args.archive, options).map_err(unwritable)?;
    let own = Own::of(&args.archive);
    let mut walk = Walk { directory: &args.directory, own, writer, left_out: 0 };
    for path in &args.paths {
        walk.named(path)?;
    }
    if let Some(list) = &args.files_from {
        each_path(list, |path| walk.named(&path))?;
    }
    let left_out = walk.left_out;
    walk.writer.finish().map_err(unwritable)?;
    Ok(if left_out == 0 { Exit::Success } else { Exit::TasksFailed })
}

/// Reads paths: ended by zero bytes if the first is, else by line ends.
fn each_path(list: &Path, mut take: impl FnMut(PathBuf) -> Result<(), Exit>) -> Result<(), Exit> {
    let of = |error| Exit::usage(format!("cannot read {}: {error}", list.display()));
    let input: Box<dyn Read> = match list == Path::new("-") {
        true => Box::new(std::io::stdin()),
        false => Box::new(std::fs::File::open(list).map_err(of)?),
    };
    let mut input = BufReader::new(input);
    let has_zeros = input.fill_buf().map_err(of)?.contains(&0);
    let end = if has_zeros { 0 } else { b'\n' };
    for path in input.split(end) {
        let path = path.map_err(of)?;
        if !path.is_empty() {
            take(PathBuf::from(std::ffi::OsString::from_vec(path)))?;
        }
    }
    Ok(())
}

/// The files of the archive itself, which may be in a directory that is put into
/// it.
struct Own {
    first: Vec<u8>,
    /// The directory's file system and number there.
    directory: Option<(u64, u64)>,
}

impl Own {
    fn of(archive: &Path) -> Own {
        let first = archive.file_name().unwrap_or_default().as_bytes().to_vec();
        let parent = archive.parent().filter(|parent| *parent != Path::new(""));
        let found = std::fs::metadata(parent.unwrap_or(Path::new(".")));
        Own { first, directory: found.ok().map(|found| (found.dev(), found.ino())) }
    }

    fn has(&self, directory: &Metadata, name: &[u8]) -> bool {
        self.directory == Some((directory.dev(), directory.ino()))
            && (number_of(&self.first, name).is_some()
                || unfinished_by(&self.first, name).is_some())
    }
}

/// Adds files, and those of directories.
struct Walk<'a> {
    directory: &'a Path,
    own: Own,
    writer: Writer,
    left_out: u64,
}

impl Walk<'_> {
    /// A path that the user names: a link there is followed.
    fn named(&mut self, path: &Path) -> Result<(), Exit> {
        let is_here = path == Path::new(".");
        let full = if is_here { self.directory.to_owned() } else { self.directory.join(path) };
        let metadata = std::fs::metadata(&full)
            .map_err(|error| Exit::usage(format!("cannot read {}: {error}", full.display())))?;
        let name = path.as_os_str().as_bytes();
        let name = name.strip_prefix(b"./").unwrap_or(name);
        self.add(full, name.to_vec(), &metadata)
    }

    fn add(&mut self, path: PathBuf, name: Vec<u8>, metadata: &Metadata) -> Result<(), Exit> {
        if metadata.is_dir() {
            return self.below(&path, &name, metadata);
        }
        if !metadata.is_file() {
            report(format_args!("left out {}: it is no file", path.display()));
            self.left_out += 1;
            return Ok(());
        }
        match self.writer.add(name, Source::File(path)) {
            Ok(()) => Ok(()),
            // One that has vanished since.
            Err(WriteError::Source { path, error })
                if error.kind() == std::io::ErrorKind::NotFound =>
            {
                report(format_args!("left out {}: {error}", path.display()));
                self.left_out += 1;
                Ok(())
            }
            Err(error) => Err(unwritable(error)),
        }
    }

    /// A directory's files in the order of their names; an empty directory is a
    /// member.
    fn below(&mut self, path: &Path, name: &[u8], metadata: &Metadata) -> Result<(), Exit> {
        let of = |error| Exit::usage(format!("cannot read {}: {error}", path.display()));
        let mut entries: Vec<_> =
            std::fs::read_dir(path).and_then(Iterator::collect).map_err(of)?;
        entries.retain(|entry| !self.own.has(metadata, entry.file_name().as_bytes()));
        entries.sort_by_key(std::fs::DirEntry::file_name);
        let within = match name.strip_suffix(b"/").unwrap_or(name) {
            b"" | b"." => Vec::new(),
            name => [name, b"/"].concat(),
        };
        if entries.is_empty() && !within.is_empty() {
            let modified = u64::try_from(metadata.mtime()).unwrap_or_default();
            let permissions = metadata.mode() & 0o7777;
            let empty = Source::Bytes { data: Vec::new(), modified, permissions };
            return self.writer.add(within, empty).map_err(unwritable);
        }
        for entry in entries {
            let name = [&within, entry.file_name().as_bytes()].concat();
            match entry.metadata() {
                Ok(metadata) => self.add(entry.path(), name, &metadata)?,
                Err(error) => {
                    report(format_args!("left out `{}`: {error}", readable(&name)));
                    self.left_out += 1;
                }
            }
        }
        Ok(())
    }
}
