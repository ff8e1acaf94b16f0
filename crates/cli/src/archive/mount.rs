//! `falkon archive mount`

use super::select::{Meant, Selected, select};
use super::{ThreadArgs, report, unreadable};
use crate::exit::Exit;
use crate::mounting::{Signals, refused, wait};
use clap::Args;
use falkon_archive::{Archive, Counts, Library, ReadError, Shown, View, ViewError};
use falkon_fuse::{Attributes, Entry, Files, Mounted, Totals, Unreadable, serve};
use std::collections::HashSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Members that cannot be read and are reported, each once.
const REPORTED_MAX: usize = 1000;

/// `falkon archive mount`
#[derive(Args, Debug)]
pub(super) struct MountArgs {
    /// Archives; with `!` and a pattern, only members that match. Of several members with one
    /// name, the last is shown
    #[arg(value_name = "ARCHIVE[!PATTERN]", required = true)]
    archives: Vec<OsString>,
    /// The directory where they are shown, until Ctrl-C or `fusermount3 -u DIR`
    #[arg(value_name = "DIR", required = true)]
    directory: PathBuf,
    #[command(flatten)]
    threads: ThreadArgs,
}

/// Shows members as files.
pub(super) fn mount(args: &MountArgs) -> Result<Exit, Exit> {
    let mut selected = Vec::new();
    for word in &args.archives {
        let Selected { archive, members } = select(word)?;
        is_elsewhere(archive.path(), &args.directory)?;
        selected.push((word, archive, members));
    }
    let (library, ready) = library(selected)?;
    let source: Vec<String> = args.archives.iter().map(|one| one.display().to_string()).collect();
    let signals = Signals::new()?;
    let mounted = Mounted::new(&args.directory, &source.join(" ")).map_err(|error| {
        refused(error, "`falkon archive get` copies members to a directory without FUSE")
    })?;
    let files = Arc::new(Shelf { library, reported: Mutex::default() });
    match serve(&mounted, &files, args.threads.number()) {
        Ok(threads) => {
            report(ready.line(mounted.path()));
            wait(mounted, threads, signals)
        }
        Err(error) => {
            let failed = format!("cannot show files at {}: {error}", mounted.path().display());
            // That it fails counts for more than what becomes of the mount.
            let _ = mounted.unmount();
            Err(Exit::failure(failed))
        }
    }
}

/// How much of a mount is known when its first file can be read.
enum Ready {
    /// All files.
    All(Counts),
    /// The number of members; their names are still being read.
    Members(u64),
}

/// The files of archives; where all members of large archives are meant, before their names
/// are read.
fn library(selected: Vec<(&OsString, Archive, Meant)>) -> Result<(Arc<Library>, Ready), Exit> {
    let is_all = selected.iter().all(|(_, _, members)| matches!(members, Meant::All));
    if !is_all {
        return read_names(selected);
    }
    let (words, archives): (Vec<_>, Vec<_>) =
        selected.into_iter().map(|(word, archive, _)| (word, archive)).unzip();
    let parts = archives.iter().flat_map(Archive::parts);
    let members = parts.map(|part| part.layout().members).sum();
    let done = |names: Result<Counts, ViewError>| match names {
        Ok(counts) => {
            if let Some(line) = left_out(counts) {
                report(line);
            }
        }
        Err(error) => report(format_args!("{error}; directories cannot be listed")),
    };
    match Library::begin(archives, done) {
        Ok(library) => Ok((library, Ready::Members(members))),
        Err(archives) => {
            let all = words.into_iter().zip(archives);
            read_names(all.map(|(word, archive)| (word, archive, Meant::All)).collect())
        }
    }
}

fn read_names(selected: Vec<(&OsString, Archive, Meant)>) -> Result<(Arc<Library>, Ready), Exit> {
    let mut view = View::default();
    for (word, archive, members) in selected {
        let before = view.tree().counts();
        view.add(archive, |member| members.is(member)).map_err(|error| match error {
            ViewError::Read(error) => unreadable(error),
            error @ ViewError::Full { .. } => Exit::usage(error),
        })?;
        if view.tree().counts() == before && !matches!(members, Meant::All) {
            report(format_args!("{}: no member matches", word.display()));
            return Err(Exit::TasksFailed);
        }
    }
    let counts = view.tree().counts();
    Ok((Arc::new(Library::of(view)), Ready::All(counts)))
}

/// Files of archives are opened again while they are shown: never through what shows them.
fn is_elsewhere(archive: &Path, directory: &Path) -> Result<(), Exit> {
    match (archive.canonicalize(), directory.canonicalize()) {
        (Ok(archive), Ok(directory)) if directory.is_dir() && archive.starts_with(&directory) => {
            Err(Exit::usage(format_args!(
                "{} is within {}, where it would be hidden: name another directory",
                archive.display(),
                directory.display()
            )))
        }
        _ => Ok(()),
    }
}

impl Ready {
    fn line(&self, path: &Path) -> String {
        let path = path.display();
        match self {
            Ready::Members(count) => format!("{count} members are shown as files at {path}"),
            Ready::All(counts) => {
                let line = format!("{} files are shown at {path}", counts.files);
                match left_out(*counts) {
                    Some(rest) => format!("{line}; {rest}"),
                    None => line,
                }
            }
        }
    }
}

/// Says which members are not shown.
fn left_out(counts: Counts) -> Option<String> {
    let doubled = match counts.doubled {
        0 => None,
        count => Some(format!("left out {count} whose names later ones have")),
    };
    let others = match counts.left_out {
        0 => None,
        count => Some(format!(
            "left out {count} that are links or devices, or whose names lead elsewhere"
        )),
    };
    let parts: Vec<String> = doubled.into_iter().chain(others).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// The members of archives, for the file system.
#[derive(Debug)]
struct Shelf {
    library: Arc<Library>,
    /// Files that cannot be read and are reported.
    reported: Mutex<HashSet<u32>>,
}

/// The file system's numbers begin with 1, and a tree's with 0.
fn node_of(number: u64) -> Option<u32> {
    u32::try_from(number.checked_sub(1)?).ok()
}

fn attributes(shown: Shown) -> Attributes {
    Attributes {
        node: u64::from(shown.node) + 1,
        is_directory: shown.is_directory,
        bytes: shown.bytes,
        modified: shown.modified,
        permissions: shown.permissions,
    }
}

impl Shelf {
    fn report(&self, node: u32, error: &ReadError) {
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        if reported.len() < REPORTED_MAX && reported.insert(node) {
            report(error);
            if reported.len() == REPORTED_MAX {
                report("further files that cannot be read are not reported");
            }
        }
    }
}

impl Files for Shelf {
    fn attributes(&self, node: u64) -> Option<Attributes> {
        self.library.shown(node_of(node)?).map(attributes)
    }

    fn child(&self, directory: u64, name: &[u8]) -> Option<Attributes> {
        self.library.child(node_of(directory)?, name).map(attributes)
    }

    fn parent(&self, directory: u64) -> u64 {
        node_of(directory).map_or(1, |node| u64::from(self.library.parent(node)) + 1)
    }

    fn list(&self, directory: u64, after: Option<u64>, take: &mut dyn FnMut(Entry<'_>) -> bool) {
        let (Some(directory), after) = (node_of(directory), after.map(node_of)) else { return };
        // A number that is none is behind all others.
        if after == Some(None) {
            return;
        }
        self.library.list(directory, after.flatten(), &mut |name, shown| {
            take(Entry { name, attributes: attributes(shown) })
        });
    }

    fn read(
        &self,
        node: u64,
        offset: u64,
        bytes: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), Unreadable> {
        let node = node_of(node).ok_or(Unreadable)?;
        self.library.read(node, offset, bytes, out).map_err(|error| {
            self.report(node, &error);
            Unreadable
        })
    }

    fn totals(&self) -> Totals {
        let (files, bytes) = self.library.totals();
        Totals { files, bytes }
    }
}
