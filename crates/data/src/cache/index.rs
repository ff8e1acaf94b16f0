//! The index of a directory's objects: a line for the whole, then one for each
//! object in the order in which they came. All are JSON. The last line for an
//! object counts; a torn line is none.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use falkon_core::data::cache::{Recorded, TierId};
use falkon_core::data::object::{Object, ObjectId};
use serde::{Deserialize, Serialize};

use super::stamp::Stamp;
use super::trees::TreeLine;

/// The version of the format.
const FORMAT: u32 = 1;

/// Where the running kernel tells its boots apart.
const BOOT_ID_FILE: &str = "/proc/sys/kernel/random/boot_id";

/// An index that objects are added to.
#[derive(Debug)]
pub(super) struct Index {
    file: File,
    lines: usize,
}

#[derive(Debug, Serialize, Deserialize)]
struct Head {
    format: u32,
    boot: Option<String>,
    in_order: bool,
}

/// The record of one object, besides its id and directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Line {
    url: String,
    version: String,
    stamp: Stamp,
    #[serde(default)]
    came: u64,
    #[serde(default)]
    used: u64,
    #[serde(default)]
    uses: u64,
    #[serde(default)]
    only_here: bool,
    /// Its unpacked form, if it is an archive that has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) tree: Option<TreeLine>,
}

#[derive(Serialize)]
struct Written<'a> {
    id: String,
    #[serde(flatten)]
    line: &'a Line,
}

#[derive(Deserialize)]
struct Read {
    id: String,
    #[serde(flatten)]
    line: Line,
}

impl Line {
    pub(super) fn of(object: &Object, stamp: Stamp, only_here: bool) -> Line {
        Line {
            url: object.url.to_string(),
            version: object.version.to_string(),
            stamp,
            came: 0,
            used: 0,
            uses: 0,
            only_here,
            tree: None,
        }
    }

    pub(super) fn stamp(&self) -> Stamp {
        self.stamp
    }

    pub(super) fn object(&self, id: ObjectId) -> Object {
        Object {
            id,
            url: self.url.as_str().into(),
            version: self.version.as_str().into(),
            size: Some(self.stamp.bytes),
        }
    }

    pub(super) fn recorded(&self, object: ObjectId, tier: TierId) -> Recorded {
        Recorded {
            object,
            tier,
            size: self.stamp.bytes,
            unpacked: self.tree.as_ref().map_or(0, |tree| tree.bytes),
            came: self.came,
            used: self.used,
            uses: self.uses,
            only_here: self.only_here,
        }
    }

    /// Takes over what the core knows of its use.
    pub(super) fn note(&mut self, recorded: &Recorded) {
        self.came = recorded.came;
        self.used = recorded.used;
        self.uses = recorded.uses;
        self.only_here = recorded.only_here;
    }
}

impl Index {
    /// Reads what is written down, if it is to be relied on: of this boot of
    /// the machine, or left in order. Empty if not, or if there is nothing.
    pub(super) fn read(path: &Path) -> io::Result<BTreeMap<ObjectId, Line>> {
        let bytes = match fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        let mut lines = bytes.split(|byte| *byte == b'\n');
        let head = lines.next().and_then(|line| serde_json::from_slice::<Head>(line).ok());
        let good = head.is_some_and(|head| {
            head.format == FORMAT && (head.in_order || (head.boot.is_some() && head.boot == boot()))
        });
        if !good {
            return Ok(BTreeMap::new());
        }
        let mut found = BTreeMap::new();
        for (place, line) in (1u64..).zip(lines) {
            let Ok(Read { id, mut line }) = serde_json::from_slice(line) else { continue };
            let Some(id) = ObjectId::parse(&id) else { continue };
            // Objects since the last recording came after it.
            if line.came == 0 {
                (line.came, line.used) = (place, place);
            }
            found.insert(id, line);
        }
        Ok(found)
    }

    /// Rewrites an index in one step. It is synced only if it states that all
    /// is in order: otherwise it means nothing after a restart of the machine.
    pub(super) fn write(
        path: &Path,
        lines: &[(ObjectId, Line)],
        in_order: bool,
    ) -> io::Result<Index> {
        let mut bytes = serde_json::to_vec(&Head { format: FORMAT, boot: boot(), in_order })?;
        bytes.push(b'\n');
        let mut sorted: Vec<&(ObjectId, Line)> = lines.iter().collect();
        sorted.sort_by_key(|(_, line)| line.came);
        for (id, line) in sorted {
            put(&mut bytes, *id, line)?;
        }
        let new = path.with_extension("new");
        let mut file = File::create(&new)?;
        file.write_all(&bytes)?;
        if in_order {
            file.sync_all()?;
        }
        fs::rename(&new, path)?;
        let file = File::options().append(true).open(path)?;
        Ok(Index { file, lines: lines.len() })
    }

    pub(super) fn append(&mut self, id: ObjectId, line: &Line) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(256);
        put(&mut bytes, id, line)?;
        let before = self.file.metadata()?.len();
        if let Err(error) = self.file.write_all(&bytes) {
            // Half a line must not have the next one in it. If this fails, the
            // next line is lost, and its object with it, after a restart.
            let _ = self.file.set_len(before);
            return Err(error);
        }
        self.lines += 1;
        Ok(())
    }

    pub(super) fn lines(&self) -> usize {
        self.lines
    }
}

fn put(bytes: &mut Vec<u8>, id: ObjectId, line: &Line) -> io::Result<()> {
    serde_json::to_writer(&mut *bytes, &Written { id: id.to_string(), line })?;
    bytes.push(b'\n');
    Ok(())
}

/// This boot of the machine.
fn boot() -> Option<String> {
    fs::read_to_string(BOOT_ID_FILE).ok().map(|id| id.trim().to_owned())
}
