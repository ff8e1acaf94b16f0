//! Names of members: any bytes. Which of them may become files of a directory,
//! and how they are shown.

use super::limits::{COMPONENT_BYTES_MAX, PATH_BYTES_MAX};
use std::fmt::Write;

/// Why a name cannot become a file of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Misplaced {
    /// It names nothing, or the directory itself.
    #[error("its name names no file")]
    Nothing,
    /// It begins with a slash.
    #[error("its name is an absolute path")]
    Absolute,
    /// It leads out of the directory.
    #[error("its name has `..`, which leads elsewhere")]
    Parent,
    /// No path has a zero byte.
    #[error("its name has a zero byte, which no path has")]
    Nul,
    /// The file system has no such long names.
    #[error("its name is longer than a path can be")]
    Long,
}

/// The components of the path that a name becomes, below a directory: never
/// empty, never out of it.
///
/// # Errors
/// If there is no such path.
pub fn place(name: &[u8]) -> Result<Vec<&[u8]>, Misplaced> {
    if name.contains(&0) {
        return Err(Misplaced::Nul);
    }
    if name.starts_with(b"/") {
        return Err(Misplaced::Absolute);
    }
    let parts = name.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".");
    let parts: Vec<&[u8]> = parts.collect();
    if parts.contains(&&b".."[..]) {
        return Err(Misplaced::Parent);
    }
    if name.len() > PATH_BYTES_MAX || parts.iter().any(|part| part.len() > COMPONENT_BYTES_MAX) {
        return Err(Misplaced::Long);
    }
    if parts.is_empty() { Err(Misplaced::Nothing) } else { Ok(parts) }
}

/// What divides the name of an archive from that of a member, with the end of the archive's.
const DIVIDER: &[u8] = b".zip!";

/// Where the name of a member begins in `ARCHIVE!MEMBER`: behind the first `!` that `.zip`
/// precedes, without a look at files, so that the text means the same on every machine. `None`
/// if it names no member.
#[must_use]
pub fn member_start(text: &[u8]) -> Option<usize> {
    let at = text.windows(DIVIDER.len()).position(|window| window == DIVIDER)?;
    Some(at + DIVIDER.len())
}

/// Splits `ARCHIVE!MEMBER`, where [`member_start`] says.
#[must_use]
pub fn split_member(text: &str) -> Option<(&str, &str)> {
    let at = member_start(text.as_bytes())?;
    Some((&text[..at - 1], &text[at..]))
}

/// A name for people, on one line: control characters, backslashes and what is
/// no UTF-8 are written `\xNN`, so that each name has a text of its own.
#[must_use]
pub fn readable(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() || c == '\\' {
                let mut bytes = [0; 4];
                escape(c.encode_utf8(&mut bytes).as_bytes(), &mut text);
            } else {
                text.push(c);
            }
        }
        escape(chunk.invalid(), &mut text);
    }
    text
}

fn escape(bytes: &[u8], text: &mut String) {
    for byte in bytes {
        // Writing into a `String` never fails.
        let _ = write!(text, "\\x{byte:02x}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_named_behind_the_first_mark_of_an_archive() {
        let check = |text, expected| assert_eq!(split_member(text), expected, "{text}");
        check("a.zip!b", Some(("a.zip", "b")));
        check("a.zip!b.zip!c!d", Some(("a.zip", "b.zip!c!d")));
        check("a!b.zip!", Some(("a!b.zip", "")));
        check("a!b", None);
        check("a.zip", None);
        check("a.zip/!b", None);
    }

    #[test]
    fn names_become_paths_below_a_directory() {
        let check = |name: &[u8], expected: Result<&[&[u8]], Misplaced>| {
            assert_eq!(place(name), expected.map(<[_]>::to_vec), "{}", readable(name));
        };
        check(b"a", Ok(&[b"a"]));
        check(b"a/b.c", Ok(&[b"a", b"b.c"]));
        check(b"./a//b/", Ok(&[b"a", b"b"]));
        check(b"a\\..\\b", Ok(&[b"a\\..\\b"]));
        check(b"\xff...", Ok(&[b"\xff..."]));
        check(b"", Err(Misplaced::Nothing));
        check(b"./", Err(Misplaced::Nothing));
        check(b"/etc/passwd", Err(Misplaced::Absolute));
        check(b"//a", Err(Misplaced::Absolute));
        check(b"..", Err(Misplaced::Parent));
        check(b"a/../b", Err(Misplaced::Parent));
        check(b"../a", Err(Misplaced::Parent));
        check(b"a\0b", Err(Misplaced::Nul));
        check(&[b'a'; 256], Err(Misplaced::Long));
        check(&b"a/".repeat(2048), Err(Misplaced::Long));
    }

    #[test]
    fn names_are_shown_on_one_line() {
        assert_eq!(readable("a b/ä".as_bytes()), "a b/ä");
        assert_eq!(readable(b"a\nb\\\0\xff\x1b[1m"), "a\\x0ab\\x5c\\x00\\xff\\x1b[1m");
        assert_eq!(readable("\u{85}".as_bytes()), "\\xc2\\x85");
    }
}
