//! The directories in the names of a file's members, for its lookup table.

use super::limits::{FOLDERS_PER_MEMBER_MAX, FOLDERS_SORT_MIN};
use super::member::{Kind, Member};
use super::names::place;
use super::table::name_hash;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Folders {
    /// The hashes of their paths with a slash, and the record of a member in each.
    /// Some are there twice.
    found: Vec<(u64, u64)>,
    /// They are sorted, with none twice, when there are so many.
    sort_at: usize,
    /// The name that came last.
    before: Vec<u8>,
    /// A name is no path of a file as it is written, or there are too many.
    is_given_up: bool,
}

impl Folders {
    /// How many entries they take, at most.
    pub(super) fn len(&self) -> usize {
        self.found.len()
    }

    /// The paths of the directories in a name, each with its slash.
    pub(super) fn of_name(name: &[u8]) -> impl Iterator<Item = &[u8]> {
        let slashes = (0..name.len()).filter(|at| name[*at] == b'/');
        slashes.map(|at| &name[..=at])
    }

    /// Notes the directories in the name of member number `members`.
    pub(super) fn add(&mut self, member: &Member, record: u64, members: usize) {
        if self.is_given_up {
            return;
        }
        let name = &member.name[..];
        if !is_plain(member) {
            return self.give_up();
        }
        let shared = self.before.iter().zip(name).take_while(|(a, b)| a == b).count();
        for path in Folders::of_name(name).filter(|path| path.len() > shared) {
            self.found.push((name_hash(path), record));
        }
        self.before.clear();
        self.before.extend_from_slice(name);
        if self.found.len() >= self.sort_at.max(FOLDERS_SORT_MIN) {
            self.sort();
            self.sort_at = 2 * self.found.len();
            if self.found.len() > FOLDERS_PER_MEMBER_MAX.saturating_mul(members) {
                self.give_up();
            }
        }
    }

    /// Their entries; `None` if not all are known.
    pub(super) fn finish(mut self) -> Option<Vec<(u64, u64)>> {
        self.sort();
        (!self.is_given_up).then_some(self.found)
    }

    fn sort(&mut self) {
        self.found.sort_unstable();
        self.found.dedup_by_key(|(hash, _)| *hash);
    }

    fn give_up(&mut self) {
        *self = Folders { is_given_up: true, ..Folders::default() };
    }
}

/// Whether a member is a file whose path is its name.
fn is_plain(member: &Member) -> bool {
    let is_path = |name: &[u8]| {
        place(name).is_ok_and(|parts| {
            let bytes = parts.iter().map(|part| part.len() + 1).sum::<usize>();
            bytes == name.len() + 1
        })
    };
    member.kind() == Kind::File && is_path(&member.name)
}
