//! The remains of an earlier run in a results directory: the tasks of a plan
//! that it has done, and the lines that are still of some task.

use super::ledger::{all_there, state_of};
use super::{BUFFER_BYTES_MAX, DirectoryError, RESULTS, SUPERSEDED, hex, sync_folder};
use crate::plan::{Plan, TaskFiles};
use falkon_core::archive::split_member;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::fs::{File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::ops::Range;
use std::path::Path;

/// Results that are being rewritten.
const PART: &str = ".falkon-results.part";

/// The fields of a line that count.
#[derive(Deserialize)]
struct Fields<'a> {
    #[serde(borrow)]
    id: Cow<'a, str>,
    index: u64,
    #[serde(borrow)]
    status: Cow<'a, str>,
    #[serde(borrow)]
    digest: Option<Cow<'a, str>>,
    stdout_at: Option<(u64, u64)>,
    stderr_at: Option<(u64, u64)>,
    stdout_cut: Option<IgnoredAny>,
    stderr_cut: Option<IgnoredAny>,
    #[serde(borrow)]
    inputs: Option<Cow<'a, str>>,
    #[serde(default)]
    outputs_seen: bool,
    /// Those that are members of archives: the file that each is in, `!`, and its name.
    #[serde(borrow)]
    outputs: Option<Vec<Cow<'a, str>>>,
}

/// Which files of archives are there, each looked up once.
#[derive(Default)]
struct ArchiveFiles(HashMap<String, bool>);

impl ArchiveFiles {
    /// Whether the file is there that a member is in.
    fn has(&mut self, member: &str) -> bool {
        let file = split_member(member).map_or(member, |(file, _)| file);
        if let Some(known) = self.0.get(file) {
            return *known;
        }
        let is_there = Path::new(file).symlink_metadata().is_ok();
        self.0.insert(file.to_owned(), is_there);
        is_there
    }
}

/// A line.
#[derive(Debug, Clone, Copy)]
struct Entry {
    digest: [u8; 16],
    /// The task failed, was cancelled, or what it wrote is not all there.
    is_unfinished: bool,
    index: u64,
    /// Of the task's name.
    id: u64,
    /// Where the line begins, in bytes.
    at: u64,
    inputs: Option<[u8; 16]>,
    outputs_seen: bool,
}

impl Entry {
    /// The order in which lines are looked up: of one task and index, the last
    /// line first.
    fn key(&self) -> ([u8; 16], bool, u64, Reverse<u64>) {
        (self.digest, self.is_unfinished, self.index, Reverse(self.at))
    }

    fn is_like(&self, other: &Entry) -> bool {
        (self.digest, self.is_unfinished, self.index)
            == (other.digest, other.is_unfinished, other.index)
    }

    /// Whether the files that its task names are what they were.
    fn agrees_with(&self, files: Option<&TaskFiles>) -> bool {
        let Some(files) = files else { return true };
        let read = files.inputs.is_empty()
            || self.inputs.is_some_and(|inputs| inputs == state_of(&files.inputs));
        read && (!self.outputs_seen || all_there(&files.outputs))
    }
}

/// The lines of an earlier run.
#[derive(Debug)]
pub(super) struct Earlier {
    /// Sorted by [`Entry::key`].
    entries: Vec<Entry>,
    /// Whole lines, and their bytes.
    lines: u64,
    bytes: u64,
    /// Where in each stream the last output ends that a line speaks of.
    pub(super) ends: [u64; 2],
}

/// The lines that belong to tasks of a plan.
#[derive(Debug)]
pub(super) struct Matched {
    /// Where a line begins, and the index of its task, in the file's order.
    kept: Vec<(u64, u64)>,
    /// Whether that is not what the file says.
    is_other: bool,
    /// The tasks that did not finish well, as ranges of indices.
    pub(super) unfinished: Vec<Range<u64>>,
}

impl Earlier {
    /// Reads the results at `path`, whose streams have the lengths `streams`.
    pub(super) fn read(path: &Path, streams: [u64; 2]) -> Result<Earlier, DirectoryError> {
        let mut found = Earlier { entries: Vec::new(), lines: 0, bytes: 0, ends: [0; 2] };
        let mut at = 0;
        let mut archives = ArchiveFiles::default();
        each_line(path, |line| {
            let malformed =
                || DirectoryError::Malformed { path: path.to_owned(), line: found.lines + 1 };
            let fields: Fields<'_> = serde_json::from_slice(line).map_err(|_| malformed())?;
            let mut is_whole = fields.stdout_cut.is_none() && fields.stderr_cut.is_none();
            for (which, place) in [fields.stdout_at, fields.stderr_at].into_iter().enumerate() {
                let Some((offset, length)) = place else { continue };
                let end = offset.checked_add(length).ok_or_else(malformed)?;
                is_whole &= end <= streams[which];
                found.ends[which] = found.ends[which].max(end);
            }
            let bits = |text: &Option<Cow<'_, str>>| text.as_deref().and_then(read_hex);
            is_whole &= fields.outputs.iter().flatten().all(|member| archives.has(member));
            // Without a digest the task is unknown.
            if let Some(digest) = bits(&fields.digest) {
                found.entries.push(Entry {
                    digest,
                    is_unfinished: fields.status != "done" || !is_whole,
                    index: fields.index,
                    id: hash_of(&fields.id),
                    at,
                    inputs: bits(&fields.inputs),
                    outputs_seen: fields.outputs_seen,
                });
            }
            found.lines += 1;
            at += line.len() as u64;
            Ok(())
        })?;
        found.bytes = at;
        found.entries.sort_unstable_by_key(Entry::key);
        found.entries.dedup_by(|later, kept| later.is_like(kept));
        Ok(found)
    }

    /// Whether a file has results of falkon and nothing else.
    pub(super) fn is_of_results(path: &Path) -> bool {
        Earlier::read(path, [0; 2]).is_ok_and(|found| found.lines > 0)
    }

    /// Finds the lines of `plan`'s tasks, by what tasks are. Of equal tasks,
    /// as many count as done as there are lines, first those whose index has
    /// not changed.
    pub(super) fn matched(&self, plan: &Plan) -> Matched {
        let mut kept: Vec<(u64, u64)> = Vec::new();
        let mut taken = vec![false; self.entries.len()];
        let mut unfinished = Vec::new();
        for index in 0..plan.whole_count() {
            let Some(digest) = plan.digest(index) else { continue };
            let find = |is_unfinished| {
                let key = (digest, is_unfinished, index, Reverse(u64::MAX));
                let place = self.entries.partition_point(|entry| entry.key() < key);
                let same = |entry: &&Entry| {
                    (entry.digest, entry.is_unfinished, entry.index)
                        == (digest, is_unfinished, index)
                };
                self.entries.get(place).filter(same).map(|_| place)
            };
            let done = find(false);
            let done = done.filter(|place| self.is_true(*place, plan, index));
            if let Some(place) = done {
                taken[place] = true;
                kept.push((self.entries[place].at, index));
            } else {
                push(&mut unfinished, index);
            }
        }
        let unfinished = self.match_others(plan, unfinished, &mut taken, &mut kept);
        kept.sort_unstable();
        let is_other = kept.len() as u64 != self.lines || !self.are_as_written(plan, &kept);
        Matched { kept, is_other, unfinished }
    }

    /// Finds lines of equal tasks that had another index, and what is left.
    fn match_others(
        &self,
        plan: &Plan,
        open: Vec<Range<u64>>,
        taken: &mut [bool],
        kept: &mut Vec<(u64, u64)>,
    ) -> Vec<Range<u64>> {
        let mut unfinished = Vec::new();
        // Per digest, how far its lines have been gone through.
        let mut cursors: HashMap<[u8; 16], usize> = HashMap::new();
        for index in open.into_iter().flatten() {
            let Some(digest) = plan.digest(index) else { continue };
            let first = || self.entries.partition_point(|entry| entry.digest < digest);
            let cursor = cursors.get(&digest).copied();
            let mut place = cursor.unwrap_or_else(first);
            let is_equal = |entry: &Entry| entry.digest == digest && !entry.is_unfinished;
            let has_lines = self.entries.get(place).is_some_and(|entry| entry.digest == digest);
            let mut found = None;
            while found.is_none() && self.entries.get(place).is_some_and(is_equal) {
                if !taken[place] && self.is_true(place, plan, index) {
                    found = Some(place);
                }
                place += 1;
            }
            if has_lines || cursor.is_some() {
                cursors.insert(digest, place);
            }
            if let Some(place) = found {
                taken[place] = true;
                kept.push((self.entries[place].at, index));
                continue;
            }
            push(&mut unfinished, index);
            // How it failed is worth knowing until it has run again.
            let failed = (digest, true, index, Reverse(u64::MAX));
            let place = self.entries.partition_point(|entry| entry.key() < failed);
            if let Some(entry) = self.entries.get(place)
                && (entry.digest, entry.is_unfinished, entry.index) == (digest, true, index)
            {
                kept.push((entry.at, index));
            }
        }
        unfinished
    }

    fn is_true(&self, place: usize, plan: &Plan, index: u64) -> bool {
        self.entries[place].agrees_with(plan.files(index).as_ref())
    }

    /// Whether lines have the indices and names that their tasks have.
    fn are_as_written(&self, plan: &Plan, kept: &[(u64, u64)]) -> bool {
        let indices: HashMap<u64, u64> = kept.iter().copied().collect();
        self.entries.iter().all(|entry| {
            indices.get(&entry.at).is_none_or(|index| {
                *index == entry.index && hash_of(&id_of(plan, *index)) == entry.id
            })
        })
    }

    /// Brings the results in `folder` up to date with `plan`: lines of its
    /// tasks get their present indices and names, and all others go to another
    /// file, so that nothing is lost and no task has two.
    pub(super) fn rewrite(
        &self,
        folder: &Path,
        plan: &Plan,
        matched: &Matched,
    ) -> Result<(), DirectoryError> {
        let results = folder.join(RESULTS);
        let io = |doing, path: &Path| {
            let path = path.to_owned();
            move |source| DirectoryError::Io { doing, path, source }
        };
        if !matched.is_other {
            // A last line that was cut off by a crash counts for nothing.
            let file = OpenOptions::new().write(true).open(&results);
            return file
                .and_then(|file| file.set_len(self.bytes))
                .map_err(io("truncate", &results));
        }
        let (part, superseded) = (folder.join(PART), folder.join(SUPERSEDED));
        let open = |path: &Path, options: &mut OpenOptions| {
            options.open(path).map(BufWriter::new).map_err(io("open", path))
        };
        let mut kept_lines =
            open(&part, OpenOptions::new().write(true).create(true).truncate(true))?;
        let mut other_lines = open(&superseded, OpenOptions::new().append(true).create(true))?;
        let mut stale: BTreeSet<u64> = BTreeSet::new();
        let mut fresh: BTreeSet<u64> = BTreeSet::new();
        let mut kept = matched.kept.iter().copied().peekable();
        let (mut at, mut number) = (0, 0);
        each_line(&results, |line| {
            number += 1;
            let malformed = || DirectoryError::Malformed { path: results.clone(), line: number };
            let all: All<'_> = serde_json::from_slice(line).map_err(|_| malformed())?;
            let fields: Fields<'_> = serde_json::from_slice(line).map_err(|_| malformed())?;
            match kept.next_if(|(place, _)| *place == at) {
                Some((_, index)) => {
                    if index == fields.index {
                        fresh.insert(index);
                    } else {
                        stale.insert(fields.index);
                    }
                    all.write(&id_of(plan, index), index, &mut kept_lines)
                        .map_err(io("write", &part))?;
                }
                None => {
                    stale.insert(fields.index);
                    other_lines.write_all(line).map_err(io("write", &superseded))?;
                }
            }
            at += line.len() as u64;
            Ok(())
        })?;
        for (lines, path) in [(kept_lines, &part), (other_lines, &superseded)] {
            let file = lines.into_inner().map_err(|error| io("write", path)(error.into_error()))?;
            file.sync_all().map_err(io("write", path))?;
        }
        for index in stale.difference(&fresh) {
            for name in super::STREAMS {
                // A file that no line names is useless.
                let _ = std::fs::remove_file(super::task_file(folder, *index, name));
            }
        }
        std::fs::rename(&part, &results).map_err(io("rename", &part))?;
        sync_folder(folder).map_err(io("write", folder))
    }
}

/// Writes the files of tasks that are not there, or not whole, out of the
/// streams that have all output.
pub(super) fn restore_task_files(folder: &Path) -> Result<(), DirectoryError> {
    let results = folder.join(RESULTS);
    let io = |doing, path: &Path| {
        let path = path.to_owned();
        move |source| DirectoryError::Io { doing, path, source }
    };
    let mut number = 0;
    each_line(&results, |line| {
        number += 1;
        let malformed = |_| DirectoryError::Malformed { path: results.clone(), line: number };
        let fields: Fields<'_> = serde_json::from_slice(line).map_err(malformed)?;
        for (name, place) in super::STREAMS.iter().zip([fields.stdout_at, fields.stderr_at]) {
            let Some((offset, length)) = place else { continue };
            let path = super::task_file(folder, fields.index, name);
            if path.metadata().is_ok_and(|found| found.len() == length) {
                continue;
            }
            let stream = folder.join(name);
            let copied = copy_part(&stream, offset, length, &path);
            copied.map_err(io("write", &path))?;
        }
        Ok(())
    })
}

fn copy_part(from: &Path, offset: u64, length: u64, to: &Path) -> io::Result<()> {
    use std::io::{Read, Seek, SeekFrom};
    let mut from = File::open(from)?;
    from.seek(SeekFrom::Start(offset))?;
    io::copy(&mut from.take(length), &mut File::create(to)?)?;
    Ok(())
}

fn push(ranges: &mut Vec<Range<u64>>, index: u64) {
    match ranges.last_mut() {
        Some(last) if last.end == index => last.end += 1,
        _ => ranges.push(index..index + 1),
    }
}

fn id_of(plan: &Plan, index: u64) -> Cow<'_, str> {
    plan.name(index).map_or_else(|| index.to_string().into(), Cow::Borrowed)
}

fn hash_of(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

fn read_hex(text: &str) -> Option<[u8; 16]> {
    let bits = (text.len() == 32).then(|| u128::from_str_radix(text, 16).ok())??;
    let bytes = bits.to_be_bytes();
    (hex(&bytes) == text).then_some(bytes)
}

/// Hands the whole lines of a file to `take`, with their line feeds.
fn each_line(
    path: &Path,
    mut take: impl FnMut(&[u8]) -> Result<(), DirectoryError>,
) -> Result<(), DirectoryError> {
    let io = |source| DirectoryError::Io { doing: "read", path: path.to_owned(), source };
    let mut reader = BufReader::with_capacity(BUFFER_BYTES_MAX, File::open(path).map_err(io)?);
    let mut line = Vec::new();
    loop {
        line.clear();
        reader.read_until(b'\n', &mut line).map_err(io)?;
        if line.last() != Some(&b'\n') {
            return Ok(());
        }
        take(&line)?;
    }
}

/// All fields of a line, in their order and as they are written.
struct All<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl All<'_> {
    fn write(&self, id: &str, index: u64, out: &mut impl Write) -> io::Result<()> {
        for (place, (name, value)) in self.0.iter().enumerate() {
            out.write_all(if place == 0 { b"{" } else { b"," })?;
            serde_json::to_writer(&mut *out, name)?;
            out.write_all(b":")?;
            match &**name {
                "id" => serde_json::to_writer(&mut *out, id)?,
                "index" => write!(out, "{index}")?,
                _ => out.write_all(value.get().as_bytes())?,
            }
        }
        out.write_all(b"}\n")
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for All<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<All<'a>, D::Error> {
        struct Each;
        impl<'de> Visitor<'de> for Each {
            type Value = Vec<(Cow<'de, str>, &'de RawValue)>;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a result")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut all = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, &'de RawValue>()? {
                    all.push((name.into(), value));
                }
                Ok(all)
            }
        }
        from.deserialize_map(Each).map(All)
    }
}
