//! What strace printed (`-f -y -xx`), applied to the model of a file system call by call.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::disk::{Disk, Node};

/// Calls that change neither a file nor a name; whatever else touches the disk, the model must know.
const HARMLESS: [&str; 24] = [
    "access",
    "chdir",
    "close",
    "execve",
    "faccessat",
    "faccessat2",
    "fadvise64",
    "fcntl",
    "flock",
    "fstat",
    "fstatfs",
    "getcwd",
    "getdents64",
    "ioctl",
    "lseek",
    "lstat",
    "newfstatat",
    "pread64",
    "read",
    "readlink",
    "readlinkat",
    "stat",
    "statfs",
    "statx",
];

/// A line of the trace, as the model takes it in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    /// A call begins; what it does has not happened.
    Before,
    /// The model has changed.
    After,
}

/// Is called when a process begins to write elsewhere than to the disk, with what it writes, and
/// whenever the model has changed.
pub(crate) trait Watcher {
    fn see(&mut self, disk: &Disk, moment: Moment, call: &str, written: &[u8]);
}

/// The calls of one process and its threads.
#[derive(Debug)]
pub(crate) struct Trace {
    root: PathBuf,
    /// Where `write` goes on, by descriptor.
    offsets: BTreeMap<u64, usize>,
    /// Calls that have begun, by thread: the text so far, and for a sync what it covers.
    begun: BTreeMap<String, (String, Option<(Node, usize)>)>,
}

/// One call: its name, its arguments and what it returned.
struct Call<'a> {
    name: &'a str,
    arguments: Vec<&'a str>,
    text: &'a str,
}

impl<'a> Call<'a> {
    fn of(text: &'a str) -> Call<'a> {
        let (name, rest) = text.split_once('(').unwrap_or_else(|| panic!("no call: {text:.200}"));
        // Names and data are printed as hexadecimal numbers: no comma is in one.
        Call { name, arguments: rest.trim_end().trim_end_matches(')').split(", ").collect(), text }
    }

    fn number(&self, index: usize) -> usize {
        self.arguments[index].parse().unwrap_or_else(|_| panic!("no number: {:.300}", self.text))
    }

    fn string(&self, index: usize) -> Vec<u8> {
        let quoted =
            self.arguments[index].strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        unhex(quoted.unwrap_or_else(|| panic!("no whole string: {:.300}", self.text)))
    }

    fn path(&self, index: usize) -> PathBuf {
        PathBuf::from(String::from_utf8(self.string(index)).expect("paths of the test are UTF-8"))
    }

    /// Whether the path behind it is relative to the working directory, which is the disk's root.
    fn is_from_here(&self, index: usize) -> bool {
        self.arguments[index].starts_with("AT_FDCWD")
    }

    /// The path of a descriptor; `None` if the file was removed.
    fn described(&self, index: usize) -> Option<PathBuf> {
        described(self.arguments[index])
    }
}

fn described(descriptor: &str) -> Option<PathBuf> {
    let (_, rest) = descriptor.split_once('<')?;
    let (path, behind) = rest.split_once('>')?;
    let path = String::from_utf8(unhex(path)).ok()?;
    (behind.is_empty() && !path.ends_with(" (deleted)")).then(|| PathBuf::from(path))
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = text.split("\\x").skip(1);
    digits.map(|two| u8::from_str_radix(two, 16).unwrap_or(b'?')).collect()
}

fn descriptor(text: &str) -> u64 {
    let digits = text.split('<').next().unwrap_or_default();
    digits.parse().unwrap_or_else(|_| panic!("no descriptor: {text}"))
}

impl Trace {
    pub(crate) fn new(root: &Path) -> Trace {
        Trace { root: root.to_owned(), offsets: BTreeMap::new(), begun: BTreeMap::new() }
    }

    /// Takes in one line.
    pub(crate) fn take(&mut self, line: &str, disk: &mut Disk, watcher: &mut impl Watcher) {
        let Some((thread, text)) = line.split_once(' ') else { return };
        let text = text.trim_start();
        if text.starts_with("---") || text.starts_with("+++") {
            return;
        }
        let (text, ended) = if let Some(rest) = text.strip_prefix("<... ") {
            let rest = rest.split_once(" resumed>").map_or("", |(_, rest)| rest);
            let Some((begun, _)) = self.begun.get(thread) else { return };
            (format!("{begun}{rest}"), true)
        } else if let Some(begun) = text.strip_suffix(" <unfinished ...>") {
            self.begin(thread, begun, disk, watcher);
            return;
        } else {
            (text.to_owned(), false)
        };
        let Some((call, outcome)) = text.rsplit_once(" = ") else {
            panic!("no outcome: {line:.300}");
        };
        if !ended {
            self.begin(thread, call, disk, watcher);
        }
        let (_, sync) = self.begun.remove(thread).expect("it has begun");
        if outcome.starts_with('-') || outcome.starts_with('?') {
            return;
        }
        let before = (disk.changes, disk.durable_changes);
        self.apply(&Call::of(call), outcome, sync, disk);
        if before != (disk.changes, disk.durable_changes) {
            watcher.see(disk, Moment::After, call, &[]);
        }
    }

    fn begin(&mut self, thread: &str, text: &str, disk: &Disk, watcher: &mut impl Watcher) {
        let call = Call::of(text);
        let mut sync = None;
        match call.name {
            "fsync" | "fdatasync" => {
                let node = call.described(0).and_then(|path| self.node(disk, &path));
                sync = node.map(|node| (node, disk.changes_of(node)));
            }
            "write" if call.described(0).is_some_and(|path| self.inside(&path).is_none()) => {
                watcher.see(disk, Moment::Before, text, &call.string(1));
            }
            _ => {}
        }
        self.begun.insert(thread.to_owned(), (text.to_owned(), sync));
    }

    /// The path within the disk.
    fn inside(&self, path: &Path) -> Option<PathBuf> {
        let path = if path.is_absolute() { path.to_owned() } else { self.root.join(path) };
        path.strip_prefix(&self.root).ok().map(Path::to_owned)
    }

    fn node(&self, disk: &Disk, path: &Path) -> Option<Node> {
        disk.at(&self.inside(path)?)
    }

    fn apply(
        &mut self,
        call: &Call<'_>,
        outcome: &str,
        sync: Option<(Node, usize)>,
        disk: &mut Disk,
    ) {
        match call.name {
            "open" | "openat" | "creat" => self.open(call, outcome, disk),
            "write" => {
                let at = self.offsets.entry(descriptor(call.arguments[0])).or_default();
                let bytes = call.string(1);
                let offset = *at;
                *at += bytes.len();
                assert_eq!(outcome, bytes.len().to_string(), "a short write: {:.300}", call.text);
                let node = call.described(0).and_then(|path| self.node(disk, &path));
                node.into_iter().for_each(|node| disk.write(node, offset, bytes.clone()));
            }
            "pwrite64" => {
                let bytes = call.string(1);
                assert_eq!(outcome, bytes.len().to_string(), "a short write: {:.300}", call.text);
                let node = call.described(0).and_then(|path| self.node(disk, &path));
                node.into_iter().for_each(|node| disk.write(node, call.number(3), bytes.clone()));
            }
            "ftruncate" => {
                let node = call.described(0).and_then(|path| self.node(disk, &path));
                node.into_iter().for_each(|node| disk.set_length(node, call.number(1)));
            }
            "fsync" | "fdatasync" => {
                sync.into_iter().for_each(|(node, changes)| disk.synced(node, changes));
            }
            // It allocates blocks that no reader sees.
            "fallocate" if call.arguments[1] == "FALLOC_FL_KEEP_SIZE" => {}
            // Elsewhere than on x86 these are the calls below.
            "mkdirat" if call.is_from_here(0) => {
                self.each(&[call.path(1)], |paths| _ = disk.make(&paths[0], true));
            }
            "unlinkat" if call.is_from_here(0) && call.arguments[2] == "0" => {
                self.each(&[call.path(1)], |paths| disk.remove(&paths[0]));
            }
            "renameat" | "renameat2" if call.is_from_here(0) && call.is_from_here(2) => {
                let paths = [call.path(1), call.path(3)];
                self.each(&paths, |paths| disk.rename(&paths[0], &paths[1]));
            }
            "mkdir" => self.each(&[call.path(0)], |paths| _ = disk.make(&paths[0], true)),
            "unlink" => self.each(&[call.path(0)], |paths| disk.remove(&paths[0])),
            "rename" => {
                let paths = [call.path(0), call.path(1)];
                self.each(&paths, |paths| disk.rename(&paths[0], &paths[1]));
            }
            name if HARMLESS.contains(&name) => {}
            _ => {
                let hex: String = self
                    .root
                    .display()
                    .to_string()
                    .bytes()
                    .map(|b| format!("\\x{b:02x}"))
                    .collect();
                assert!(
                    !call.text.contains(&hex),
                    "the model has no such call: {:.300}",
                    call.text
                );
            }
        }
    }

    fn each(&self, paths: &[PathBuf], apply: impl FnOnce(&[PathBuf])) {
        let inside: Option<Vec<PathBuf>> = paths.iter().map(|path| self.inside(path)).collect();
        if let Some(paths) = inside {
            apply(&paths);
        }
    }

    fn open(&mut self, call: &Call<'_>, outcome: &str, disk: &mut Disk) {
        let (path, flags) = match call.name {
            "openat" => (call.path(1), call.arguments[2]),
            "open" => (call.path(0), call.arguments[1]),
            _ => (call.path(0), "O_CREAT|O_TRUNC"),
        };
        assert!(!flags.contains("O_TMPFILE"), "the model has no such call: {:.300}", call.text);
        self.offsets.insert(descriptor(outcome), 0);
        let Some(path) = self.inside(&path) else { return };
        let has = |flag: &str| flags.split('|').any(|one| one == flag);
        match disk.at(&path) {
            Some(node) if has("O_TRUNC") => disk.set_length(node, 0),
            Some(_) => {}
            None => {
                assert!(has("O_CREAT"), "a file that the model lacks: {:.300}", call.text);
                disk.make(&path, false);
            }
        }
    }
}
