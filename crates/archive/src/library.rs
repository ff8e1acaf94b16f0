//! Archives as a file system from the first moment on.
//!
//! While a thread reads all names, files and directories are found by the lookup tables: that
//! one is there is known at once. That one is not, and what a directory has, is known when all
//! names have been read, and whoever asks waits for that.

use crate::limits::{EARLY_FOUND_MAX, EARLY_MEMBERS_MIN, OPEN_FILES_MAX, TREE_NODES_MAX};
use crate::part::Part;
use crate::read::ReadError;
use crate::set::Archive;
use crate::tree::{Counts, DIRECTORY_PERMISSIONS, Place, ROOT, Shown};
use crate::view::{Data, View, ViewError};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Numbers of what was found early begin here, and those of a tree end before.
const EARLY: u32 = TREE_NODES_MAX as u32;

/// See the [module](self).
#[derive(Debug)]
pub struct Library {
    /// Reads what was found early, until all names are known.
    data: Data,
    early: Mutex<Early>,
    /// When the newest part was written, about.
    modified: u64,
    /// `None` inside if the names cannot be read.
    whole: OnceLock<Option<Whole>>,
}

/// The files that lookup tables have found so far.
#[derive(Debug, Default)]
struct Early {
    found: Vec<Found>,
    /// Their numbers, by their paths.
    numbers: HashMap<Vec<u8>, u32>,
}

#[derive(Debug, Clone)]
struct Found {
    path: Vec<u8>,
    parent: u32,
    shown: Shown,
    /// Of a file.
    place: Option<(Place, u64)>,
}

/// All files and directories.
#[derive(Debug)]
struct Whole {
    view: View,
    /// The nodes of what was found early, which keeps the numbers that it had then.
    nodes: Vec<Option<u32>>,
    numbers: HashMap<u32, u32>,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Early {
    fn get(&self, number: u32) -> Option<&Found> {
        self.found.get(number.checked_sub(EARLY)? as usize)
    }

    fn at(&self, path: &[u8]) -> Option<Shown> {
        Some(self.get(*self.numbers.get(path)?)?.shown)
    }

    /// The path of a directory with a slash behind it; that of the root is empty.
    fn folder(&self, directory: u32) -> Option<Vec<u8>> {
        match directory {
            ROOT => Some(Vec::new()),
            number => {
                let found = self.get(number).filter(|found| found.shown.is_directory)?;
                Some([&found.path[..], b"/"].concat())
            }
        }
    }
}

impl Whole {
    fn of(view: View, early: &Early) -> Whole {
        let tree = view.tree();
        let node = |found: &Found| {
            let mut names = found.path.split(|byte| *byte == b'/');
            names.try_fold(ROOT, |at, name| Some(tree.child(at, name)?.node))
        };
        let nodes: Vec<Option<u32>> = early.found.iter().map(node).collect();
        let numbered = (EARLY..).zip(&nodes);
        let numbers = numbered.filter_map(|(number, node)| Some(((*node)?, number))).collect();
        Whole { view, nodes, numbers }
    }

    /// The node of what has this number.
    fn node(&self, number: u32) -> Option<u32> {
        match number.checked_sub(EARLY) {
            Some(at) => *self.nodes.get(at as usize)?,
            None => Some(number),
        }
    }

    fn numbered(&self, shown: Shown) -> Shown {
        Shown { node: self.number(shown.node), ..shown }
    }

    fn number(&self, node: u32) -> u32 {
        self.numbers.get(&node).copied().unwrap_or(node)
    }
}

impl Library {
    /// All that a view shows.
    #[must_use]
    pub fn of(view: View) -> Library {
        let whole = OnceLock::from(Some(Whole::of(view, &Early::default())));
        Library { data: Data::default(), early: Mutex::default(), modified: 0, whole }
    }

    /// All members of these archives, a later one in the place of those with its name. Their
    /// names are read by a thread, which says then what it has found. Archives without lookup
    /// tables, or with few members, are given back: their names are to be read first.
    ///
    /// # Errors
    /// The archives.
    pub fn begin(
        archives: Vec<Archive>,
        done: impl FnOnce(Result<Counts, ViewError>) + Send + 'static,
    ) -> Result<Arc<Library>, Vec<Archive>> {
        let parts: Vec<Part> = archives.iter().flat_map(Archive::parts).cloned().collect();
        let members: u64 = parts.iter().map(|part| part.layout().members).sum();
        let is_plain = parts.len() <= OPEN_FILES_MAX && parts.iter().all(Part::is_plain);
        if !is_plain || members < EARLY_MEMBERS_MIN {
            return Err(archives);
        }
        let library = Arc::new(Library::before_names(parts));
        let reading = Arc::clone(&library);
        // Taken back if no thread can be started.
        let archives = Arc::new(Mutex::new(archives));
        let taken = Arc::clone(&archives);
        let thread = std::thread::Builder::new().name("names".to_owned());
        let started = thread.spawn(move || {
            let archives = std::mem::take(&mut *lock(&taken));
            done(reading.read_names(archives));
        });
        match started {
            Ok(_) => Ok(library),
            Err(_) => Err(std::mem::take(&mut *lock(&archives))),
        }
    }

    fn before_names(parts: Vec<Part>) -> Library {
        let newest = parts.iter().rev().find_map(|part| {
            let file = part.file().ok()?;
            part.member_at(&*file, 0).ok()?
        });
        let modified = newest.map_or(0, |member| member.modified);
        let (data, early) = (Data::of(parts), Mutex::default());
        Library { data, early, modified, whole: OnceLock::new() }
    }

    fn read_names(&self, archives: Vec<Archive>) -> Result<Counts, ViewError> {
        let mut view = View::default();
        let read = archives.into_iter().try_for_each(|archive| view.add(archive, |_| true));
        let counts = view.tree().counts();
        // Nothing is found early after this.
        let early = lock(&self.early);
        let _ = self.whole.set(read.is_ok().then(|| Whole::of(view, &early)));
        read.map(|()| counts)
    }

    /// All files and directories, when their names have been read.
    fn wait(&self) -> Option<&Whole> {
        self.whole.wait().as_ref()
    }

    /// How many members became what, when all names have been read.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.wait().map(|whole| whole.view.tree().counts()).unwrap_or_default()
    }

    /// Files and directories, and the bytes of the files, as far as is known.
    #[must_use]
    pub fn totals(&self) -> (u64, u64) {
        match self.whole.get() {
            Some(Some(whole)) => {
                let tree = whole.view.tree();
                (tree.len() as u64, tree.counts().bytes)
            }
            _ => {
                let layouts = || self.data.parts().iter().map(Part::layout);
                let bytes = layouts().map(|layout| layout.file_bytes).sum();
                (layouts().map(|layout| layout.members).sum(), bytes)
            }
        }
    }

    /// What has this number; `None` if nothing has.
    #[must_use]
    pub fn shown(&self, number: u32) -> Option<Shown> {
        if let Some(Some(whole)) = self.whole.get()
            && let Some(node) = whole.node(number)
        {
            return whole.view.tree().shown(node).map(|shown| whole.numbered(shown));
        }
        match number {
            ROOT => Some(self.directory(ROOT, self.modified)),
            _ => lock(&self.early).get(number).map(|found| found.shown),
        }
    }

    fn directory(&self, node: u32, modified: u64) -> Shown {
        let permissions = DIRECTORY_PERMISSIONS;
        Shown { node, is_directory: true, bytes: 0, modified, permissions }
    }

    /// What has this name in a directory.
    #[must_use]
    pub fn child(&self, directory: u32, name: &[u8]) -> Option<Shown> {
        if self.whole.get().is_none()
            && let Ok(Some(shown)) = self.find(directory, name)
        {
            return Some(shown);
        }
        let whole = self.wait()?;
        let found = whole.view.tree().child(whole.node(directory)?, name)?;
        Some(whole.numbered(found))
    }

    /// The same by the lookup tables, as far as these tell.
    fn find(&self, directory: u32, name: &[u8]) -> Result<Option<Shown>, ReadError> {
        let Some(mut path) = lock(&self.early).folder(directory) else { return Ok(None) };
        path.extend_from_slice(name);
        if let Some(shown) = lock(&self.early).at(&path) {
            return Ok(Some(shown));
        }
        let inside = [&path[..], b"/"].concat();
        let (mut file, mut folder) = (None, None);
        for (number, part) in self.data.parts().iter().enumerate().rev() {
            if file.is_none() {
                // A library has few parts.
                file = part.look_for(&path)?.map(|found| (number as u32, found));
            }
            if folder.is_none() {
                folder = part.look_into(&inside)?;
            }
        }
        let mut early = lock(&self.early);
        if let Some(shown) = early.at(&path) {
            return Ok(Some(shown));
        }
        if self.whole.get().is_some() || early.found.len() >= EARLY_FOUND_MAX {
            return Ok(None);
        }
        let node = EARLY + early.found.len() as u32;
        let (shown, place) = match (file, folder) {
            (Some((part, (record, member))), None) => {
                let shown = Shown {
                    node,
                    is_directory: false,
                    bytes: member.size,
                    modified: member.modified,
                    permissions: (member.permissions() & 0o777) as u16,
                };
                (shown, Some((Place { part, record }, member.size)))
            }
            (None, Some(member)) => (self.directory(node, member.modified), None),
            // Which of them counts, all names tell.
            (Some(_), Some(_)) | (None, None) => return Ok(None),
        };
        early.numbers.insert(path.clone(), node);
        early.found.push(Found { path, parent: directory, shown, place });
        Ok(Some(shown))
    }

    /// The directory that something is in; the root is in itself.
    #[must_use]
    pub fn parent(&self, number: u32) -> u32 {
        if let Some(found) = lock(&self.early).get(number) {
            return found.parent;
        }
        match self.whole.get() {
            Some(Some(whole)) => whole.number(whole.view.tree().parent(number)),
            _ => ROOT,
        }
    }

    /// Hands over what a directory has behind `after`, or from the first on, until `take`
    /// takes no more.
    pub fn list(
        &self,
        directory: u32,
        after: Option<u32>,
        take: &mut dyn FnMut(&[u8], Shown) -> bool,
    ) {
        let Some(whole) = self.wait() else { return };
        let Some(directory) = whole.node(directory) else { return };
        let after = match after.map(|after| whole.node(after)) {
            Some(None) => return,
            after => after.flatten(),
        };
        for (name, shown) in whole.view.tree().behind(directory, after) {
            if !take(name, whole.numbered(shown)) {
                return;
            }
        }
    }

    /// Appends so many bytes of a file, as [`View::read`] does.
    ///
    /// # Errors
    /// If the member is damaged, or cannot be read.
    pub fn read(
        &self,
        number: u32,
        offset: u64,
        bytes: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), ReadError> {
        if let Some(Some(whole)) = self.whole.get()
            && let Some(node) = whole.node(number)
        {
            return whole.view.read(node, offset, bytes, out);
        }
        let place = lock(&self.early).get(number).and_then(|found| found.place);
        place.map_or(Ok(()), |file| self.data.read(number, file, (offset, bytes), out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Source, WriteOptions, Writer};
    use falkon_core::archive::FileBounds;
    use proptest::prelude::*;
    use std::path::Path;

    type Members = Vec<(String, Vec<u8>)>;

    fn write(path: &Path, members: &Members) -> Archive {
        let bounds = FileBounds { members: 7, ..FileBounds::default() };
        let options = WriteOptions { bounds, threads: 1, ..WriteOptions::default() };
        let mut writer = Writer::create(path, options).unwrap();
        for (at, (name, data)) in (0..).zip(members) {
            let data = data.clone();
            let source = Source::Bytes { data, modified: 1000 + at, permissions: 0o640 };
            writer.add(name.clone().into_bytes(), source).unwrap();
        }
        writer.finish().unwrap();
        Archive::open(path).unwrap()
    }

    /// The nodes on the way to a member, as far as they are found.
    fn way(name: &str, mut find: impl FnMut(u32, &[u8]) -> Option<Shown>) -> Vec<Option<Shown>> {
        let mut at = Some(ROOT);
        let step = |name: &str| {
            let found = find(at?, name.as_bytes());
            at = found.map(|shown| shown.node);
            found
        };
        name.split('/').map(step).collect()
    }

    fn data(library: &Library, number: u32) -> Vec<u8> {
        let mut data = Vec::new();
        library.read(number, 0, usize::MAX, &mut data).unwrap();
        data
    }

    /// All that is listed.
    fn listed(library: &Library, directory: u32) -> Vec<(Vec<u8>, Shown)> {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let mut more = Vec::new();
            library.list(directory, after, &mut |name, shown| {
                more.push((name.to_vec(), shown));
                more.len() < 3
            });
            let Some((_, last)) = more.last() else { return found };
            after = Some(last.node);
            found.append(&mut more);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn what_is_found_early_is_what_all_names_tell(
            members in prop::collection::vec(
                ("[a-c]{1,2}(/[a-c]{1,2}){0,3}", prop::collection::vec(any::<u8>(), 0..50)),
                1..60,
            ),
            second in prop::collection::vec(("[a-c](/[a-c]){0,2}", prop::collection::vec(any::<u8>(), 0..9)), 0..9),
        ) {
            let site = tempfile::tempdir().unwrap();
            let archives =
                || [("one.zip", &members), ("two.zip", &second)].map(|(name, members)| {
                    let path = site.path().join(name);
                    match path.exists() {
                        true => Archive::open(&path).unwrap(),
                        false => write(&path, members),
                    }
                });
            let parts: Vec<Part> = archives().iter().flat_map(Archive::parts).cloned().collect();
            prop_assert!(parts.iter().all(Part::is_plain));
            let library = Library::before_names(parts);
            let all: Vec<&String> = members.iter().chain(&second).map(|(name, _)| name).collect();
            let early: Vec<_> = all
                .iter()
                .map(|name| way(name, |at, name| library.find(at, name).unwrap()))
                .collect();
            prop_assert_eq!(library.find(ROOT, b"none").unwrap(), None);
            let found: Vec<Shown> = early.iter().flatten().copied().flatten().collect();
            let read: Vec<Vec<u8>> = found.iter().map(|shown| data(&library, shown.node)).collect();
            library.read_names(archives().into()).unwrap();
            for (name, early) in all.iter().zip(&early) {
                let whole = way(name, |at, name| library.child(at, name));
                for (early, whole) in early.iter().zip(&whole) {
                    let Some(early) = early else { continue };
                    let whole = whole.unwrap();
                    prop_assert_eq!(early.node, whole.node);
                    prop_assert_eq!(early.is_directory, whole.is_directory);
                    let is_file = !early.is_directory;
                    prop_assert!(!is_file || *early == whole, "{:?} {:?}", early, whole);
                }
            }
            for (shown, read) in found.iter().zip(read) {
                prop_assert_eq!(&data(&library, shown.node), &read);
                let parent = library.parent(shown.node);
                let within = listed(&library, parent);
                let own = within.iter().find(|(_, other)| other.node == shown.node);
                prop_assert_eq!(own.map(|(_, other)| Some(*other)), Some(library.shown(shown.node)));
                for (name, other) in within {
                    prop_assert_eq!(library.child(parent, &name), Some(other));
                }
            }
            let mut view = View::default();
            archives().into_iter().for_each(|archive| view.add(archive, |_| true).unwrap());
            prop_assert_eq!(library.counts(), view.tree().counts());
            // Where no path is that of a file and of a directory, all is found early.
            let is_both = |name: &str| all.iter().any(|other| other.starts_with(&format!("{name}/")));
            if !all.iter().any(|name| is_both(name)) {
                prop_assert!(early.iter().flatten().all(Option::is_some));
            }
        }
    }

    #[test]
    fn names_that_are_no_paths_are_all_read_first() {
        let site = tempfile::tempdir().unwrap();
        for (at, name) in ["a//b", "./a", "../a", "a/"].into_iter().enumerate() {
            let members = vec![("x".to_owned(), Vec::new()), (name.to_owned(), Vec::new())];
            let archive = write(&site.path().join(format!("{at}.zip")), &members);
            assert!(!archive.parts()[0].is_plain(), "{name}");
        }
    }
}
