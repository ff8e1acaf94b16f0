//! File names from patterns, as a shell expands them.
//!
//! Names are bytes here, so that files whose names are not UTF-8 are found
//! like any other (the `glob` crate passes over them).

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Whether `text` has a character that makes it a pattern.
pub(crate) fn is_pattern(text: &[u8]) -> bool {
    text.iter().any(|byte| matches!(byte, b'*' | b'?' | b'['))
}

/// The paths that `pattern` names, sorted by their bytes.
///
/// `*`, `?` and `[a-z]`, `[!a-z]` match within a name, and a name that begins
/// with a dot only where the pattern has the dot; `**` as a whole component
/// stands for any number of folders, not through symbolic links; a backslash
/// takes the next character as it is. Folders that cannot be read match
/// nothing, as in a shell.
pub(crate) fn expand(pattern: &[u8]) -> Vec<Vec<u8>> {
    let absolute = pattern.first() == Some(&b'/');
    let folders_only = pattern.last() == Some(&b'/');
    let components: Vec<&[u8]> =
        pattern.split(|byte| *byte == b'/').filter(|part| !part.is_empty()).collect();
    let root: &[u8] = if absolute { b"/" } else { b"" };
    let mut found = vec![root.to_vec()];
    for (at, component) in components.iter().enumerate() {
        let last = at + 1 == components.len();
        let mut next = Vec::new();
        for folder in &found {
            extend(folder, component, last && !folders_only, &mut next);
        }
        found = next;
    }
    if folders_only {
        for path in &mut found {
            path.push(b'/');
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// Appends to `next` what `component` names in `folder`. What is not `last`
/// must be a folder itself.
fn extend(folder: &[u8], component: &[u8], last: bool, next: &mut Vec<Vec<u8>>) {
    if component == b"**" {
        next.extend(folders_below(folder));
        if last {
            // A final `**` names everything, as in shells that have it.
            for below in folders_below(folder) {
                extend(&below, b"*", true, next);
            }
            next.retain(|path| path != folder);
        }
        return;
    }
    if !is_pattern(component) {
        let path = join(folder, &unescape(component));
        let there = match last {
            true => fs::symlink_metadata(as_path(&path)).is_ok(),
            false => as_path(&path).is_dir(),
        };
        if there {
            next.push(path);
        }
        return;
    }
    for (name, entry) in entries(folder) {
        if name_matches(component, &name) && (last || is_folder(&entry)) {
            next.push(join(folder, &name));
        }
    }
}

/// `folder` and all folders below it, hidden ones and links left out.
fn folders_below(folder: &[u8]) -> Vec<Vec<u8>> {
    let mut all = vec![folder.to_vec()];
    let mut at = 0;
    while at < all.len() {
        let folder = all[at].clone();
        for (name, entry) in entries(&folder) {
            let real = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if real && name.first() != Some(&b'.') {
                all.push(join(&folder, &name));
            }
        }
        at += 1;
    }
    all
}

fn entries(folder: &[u8]) -> impl Iterator<Item = (Vec<u8>, fs::DirEntry)> {
    let listing: io::Result<fs::ReadDir> =
        fs::read_dir(if folder.is_empty() { Path::new(".") } else { as_path(folder) });
    listing
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| (entry.file_name().as_bytes().to_vec(), entry))
}

fn is_folder(entry: &fs::DirEntry) -> bool {
    match entry.file_type() {
        Ok(kind) if kind.is_symlink() => entry.path().is_dir(),
        Ok(kind) => kind.is_dir(),
        Err(_) => false,
    }
}

/// `path` as the standard library wants it.
pub(crate) fn as_path(path: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(path))
}

/// `name` in `folder`; an empty folder is the current one.
pub(crate) fn join(folder: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(folder.len() + 1 + name.len());
    path.extend_from_slice(folder);
    if !folder.is_empty() && folder.last() != Some(&b'/') {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

/// `path`, seen from `folder`, without `.`, `..` and doubled slashes. Links
/// are not followed: nothing need exist yet.
pub(crate) fn normalized(folder: &[u8], path: &[u8]) -> Vec<u8> {
    let from: &[u8] = if path.first() == Some(&b'/') { b"" } else { folder };
    let absolute = path.first() == Some(&b'/') || folder.first() == Some(&b'/');
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in from.split(|byte| *byte == b'/').chain(path.split(|byte| *byte == b'/')) {
        match part {
            b"" | b"." => {}
            b".." if parts.last().is_some_and(|last| *last != b"..") => {
                parts.pop();
            }
            b".." if absolute => {}
            part => parts.push(part),
        }
    }
    let mut whole = Vec::with_capacity(from.len() + path.len() + 2);
    for part in parts {
        if absolute || !whole.is_empty() {
            whole.push(b'/');
        }
        whole.extend_from_slice(part);
    }
    if whole.is_empty() {
        whole.push(if absolute { b'/' } else { b'.' });
    }
    whole
}

/// The folder that holds the file at `path`, as an absolute path.
pub(crate) fn folder_of(current_dir: &Path, path: &Path) -> PathBuf {
    let folder = path.parent().unwrap_or(Path::new(""));
    if folder.as_os_str().is_empty() { current_dir.to_owned() } else { current_dir.join(folder) }
}

fn unescape(component: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(component.len());
    let mut bytes = component.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => plain.push(*bytes.next().unwrap_or(&b'\\')),
            byte => plain.push(*byte),
        }
    }
    plain
}

/// Whether `name` is one that `pattern`, a single component, stands for.
pub(crate) fn name_matches(pattern: &[u8], name: &[u8]) -> bool {
    if name.first() == Some(&b'.') && pattern.first() != Some(&b'.') {
        return false;
    }
    // The usual walk with one place to come back to: a later `*` makes all
    // earlier ones irrelevant, so the cost is at most pattern × name.
    let (mut at, mut in_name) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while in_name < name.len() {
        if pattern.get(at) == Some(&b'*') {
            at += 1;
            star = Some((at, in_name));
            continue;
        }
        if let Some(width) = one_matches(&pattern[at..], &name[in_name..]) {
            at += width.in_pattern;
            in_name += width.in_name;
            continue;
        }
        let Some((after_star, from)) = star else { return false };
        at = after_star;
        in_name = from + 1;
        star = Some((after_star, in_name));
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

struct Width {
    in_pattern: usize,
    in_name: usize,
}

/// How far the first element of `pattern` and the first character of `name`
/// reach, if they match.
fn one_matches(pattern: &[u8], name: &[u8]) -> Option<Width> {
    let character = character_width(name);
    match *pattern.first()? {
        b'?' => Some(Width { in_pattern: 1, in_name: character }),
        b'[' => match set_matches(pattern, &name[..character]) {
            Some((true, in_pattern)) => Some(Width { in_pattern, in_name: character }),
            Some((false, _)) => None,
            // A bracket that never closes stands for itself.
            None => (name[0] == b'[').then_some(Width { in_pattern: 1, in_name: 1 }),
        },
        b'\\' if pattern.len() > 1 => {
            (pattern[1] == name[0]).then_some(Width { in_pattern: 2, in_name: 1 })
        }
        byte => (byte == name[0]).then_some(Width { in_pattern: 1, in_name: 1 }),
    }
}

/// Whether `character` is in the set `[…]` at the front of `pattern`, and how
/// long the set is; `None` if it does not close.
fn set_matches(pattern: &[u8], character: &[u8]) -> Option<(bool, usize)> {
    let value = character_value(character);
    let negated = matches!(pattern.get(1), Some(b'!' | b'^'));
    let start = if negated { 2 } else { 1 };
    let mut at = start;
    let mut inside = false;
    loop {
        match pattern.get(at)? {
            b']' if at > start => return Some((inside != negated, at + 1)),
            _ => {}
        }
        let width = character_width(&pattern[at..]);
        let low = character_value(&pattern[at..at + width]);
        at += width;
        let mut high = low;
        if pattern.get(at) == Some(&b'-') && pattern.get(at + 1).is_some_and(|next| *next != b']') {
            let width = character_width(&pattern[at + 1..]);
            high = character_value(&pattern[at + 1..at + 1 + width]);
            at += 1 + width;
        }
        inside |= (low..=high).contains(&value);
    }
}

/// The bytes of the first character; a byte that is not UTF-8 is one.
fn character_width(bytes: &[u8]) -> usize {
    let width = match bytes.first() {
        None | Some(0..=0x7f) => return bytes.len().min(1),
        Some(0xc0..=0xdf) => 2,
        Some(0xe0..=0xef) => 3,
        Some(0xf0..=0xf7) => 4,
        Some(_) => 1,
    };
    match bytes.get(..width) {
        Some(character) if std::str::from_utf8(character).is_ok() => width,
        _ => 1,
    }
}

/// A number for a character; bytes that are not UTF-8 come after all others.
fn character_value(character: &[u8]) -> u32 {
    match std::str::from_utf8(character).ok().and_then(|text| text.chars().next()) {
        Some(character) => u32::from(character),
        None => 0x11_0000 + u32::from(*character.first().unwrap_or(&0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn names(root: &Path, pattern: &str) -> Vec<String> {
        let pattern = join(root.as_os_str().as_bytes(), pattern.as_bytes());
        let prefix = root.as_os_str().len() + 1;
        expand(&pattern)
            .into_iter()
            .map(|path| String::from_utf8_lossy(&path[prefix..]).into_owned())
            .collect()
    }

    #[test]
    fn patterns_expand_as_in_a_shell() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        fs::create_dir_all(root.join("sub/deep")).unwrap();
        fs::create_dir_all(root.join(".hidden")).unwrap();
        for name in ["b.txt", "a.txt", "a b.txt", "x[1].txt", "é.txt", ".dot.txt", "-n.txt"] {
            fs::write(root.join(name), "").unwrap();
        }
        for name in ["sub/c.txt", "sub/deep/d.txt", ".hidden/e.txt"] {
            fs::write(root.join(name), "").unwrap();
        }
        std::os::unix::fs::symlink(root, root.join("sub/loop")).unwrap();
        let all = ["-n.txt", "a b.txt", "a.txt", "b.txt", "x[1].txt", "é.txt"];
        assert_eq!(names(root, "*.txt"), all);
        assert_eq!(names(root, "?.txt"), ["a.txt", "b.txt", "é.txt"]);
        assert_eq!(names(root, "[!b].txt"), ["a.txt", "é.txt"]);
        assert_eq!(names(root, "[a-b].txt"), ["a.txt", "b.txt"]);
        assert_eq!(names(root, "x\\[1\\]*"), ["x[1].txt"]);
        assert_eq!(names(root, ".*.txt"), [".dot.txt"]);
        assert_eq!(names(root, "*/c.txt"), ["sub/c.txt"]);
        assert_eq!(names(root, "**/[cd].txt"), ["sub/c.txt", "sub/deep/d.txt"]);
        assert_eq!(names(root, "s*/"), ["sub/"]);
        assert_eq!(names(root, "*.fits"), [""; 0]);
    }

    #[test]
    fn names_that_are_not_utf8_are_found() {
        let root = tempfile::tempdir().unwrap();
        let name = b"bad-\xff\xfe.dat";
        fs::write(root.path().join(OsStr::from_bytes(name)), "").unwrap();
        let whole = join(root.path().as_os_str().as_bytes(), name);
        for pattern in [&b"*.dat"[..], b"bad-??.dat", b"bad-[\xff]?.dat", b"b*\xfe*"] {
            let pattern = join(root.path().as_os_str().as_bytes(), pattern);
            assert_eq!(expand(&pattern), std::slice::from_ref(&whole));
        }
    }

    #[test]
    fn paths_are_normalized_lexically() {
        for (folder, path, whole) in [
            ("", "a", "a"),
            ("/w", "a//b/./c", "/w/a/b/c"),
            ("/w/x", "../a", "/w/a"),
            ("/w", "../../../a", "/a"),
            ("/w", "/z/../y", "/y"),
            ("", "../a", "../a"),
            ("d", "../../a", "../a"),
            ("", ".", "."),
            ("/", "", "/"),
        ] {
            let found = normalized(folder.as_bytes(), path.as_bytes());
            assert_eq!(String::from_utf8_lossy(&found), whole, "{folder} {path}");
        }
    }

    /// The same rules, written as a plain recursion over characters.
    fn matches_plainly(pattern: &[char], name: &[char]) -> bool {
        match (pattern.first(), name.first()) {
            (None, None) => true,
            (Some('*'), _) => {
                matches_plainly(&pattern[1..], name)
                    || (!name.is_empty() && matches_plainly(pattern, &name[1..]))
            }
            (Some('?'), Some(_)) => matches_plainly(&pattern[1..], &name[1..]),
            (Some(p), Some(n)) if p == n => matches_plainly(&pattern[1..], &name[1..]),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn matching_agrees_with_a_plain_recursion(
            pattern in "[ab*?é]{0,8}",
            name in "[abé]{1,8}",
        ) {
            let plain: Vec<char> = pattern.chars().collect();
            let chars: Vec<char> = name.chars().collect();
            prop_assert_eq!(
                name_matches(pattern.as_bytes(), name.as_bytes()),
                matches_plainly(&plain, &chars)
            );
        }
    }
}
