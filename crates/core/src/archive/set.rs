//! The names of a set's files. `scores.zip` is the first, the others are
//! `scores.part2.zip`, `scores.part3.zip`, and so on. A directory lists a set, and
//! no file has a list of the others. Numbers may be missing.

use super::limits::SET_FILES_MAX;

const SUFFIX: &[u8] = b".zip";
const PART: &[u8] = b".part";

/// The name without its ending.
fn stem(first: &[u8]) -> &[u8] {
    first.strip_suffix(SUFFIX).filter(|stem| !stem.is_empty()).unwrap_or(first)
}

/// The name of file number `number`, from 1, of the set whose first file has
/// this name.
#[must_use]
pub fn file_name(first: &[u8], number: u32) -> Vec<u8> {
    match number {
        0 | 1 => first.to_vec(),
        _ => [stem(first), PART, number.to_string().as_bytes(), SUFFIX].concat(),
    }
}

/// The number of a file in the set whose first file is `first`; `None` if it is
/// not in it.
#[must_use]
pub fn number_of(first: &[u8], name: &[u8]) -> Option<u32> {
    if name == first {
        return Some(1);
    }
    let digits = name.strip_prefix(stem(first))?.strip_prefix(PART)?.strip_suffix(SUFFIX)?;
    let is_number = digits.first().is_some_and(|digit| (b'1'..=b'9').contains(digit));
    let number: u32 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    (is_number && (2..=SET_FILES_MAX).contains(&number)).then_some(number)
}

/// The name that a file of the set has until it is whole.
#[must_use]
pub fn unfinished_name(first: &[u8], token: u64) -> Vec<u8> {
    [b".", first, b".", format!("{token:016x}").as_bytes(), b".unfinished"].concat()
}

/// Whether this is such a name: of a file of the set that is being written, or
/// was never finished.
#[must_use]
pub fn is_unfinished(first: &[u8], name: &[u8]) -> bool {
    let rest = name.strip_prefix(b".").and_then(|rest| rest.strip_prefix(first));
    let token = rest.and_then(|rest| rest.strip_prefix(b".")?.strip_suffix(b".unfinished"));
    token.is_some_and(|token| token.len() == 16 && token.iter().all(u8::is_ascii_hexdigit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_knows_its_files_by_their_names() {
        for first in [&b"scores.zip"[..], b"scores", b".zip", b"\xff.zip"] {
            for number in [1, 2, 9, 10, 65_536] {
                let name = file_name(first, number);
                assert_eq!(number_of(first, &name), Some(number));
            }
        }
        assert_eq!(file_name(b"scores.zip", 2), b"scores.part2.zip");
        assert_eq!(file_name(b"scores", 3), b"scores.part3.zip");
        for other in [
            "scores.part1.zip",
            "scores.part02.zip",
            "scores.part+2.zip",
            "scores.part.zip",
            "scores.part2.zi",
            "scores.part99999999999.zip",
            "other.part2.zip",
            "scores.part2.zip.part3.zip",
            ".scores.zip.0000000000000001.unfinished",
        ] {
            assert_eq!(number_of(b"scores.zip", other.as_bytes()), None, "{other}");
        }
        assert_eq!(number_of(b"scores.zip", &unfinished_name(b"scores.zip", 1)), None);
        assert!(is_unfinished(b"scores.zip", &unfinished_name(b"scores.zip", u64::MAX)));
        assert!(!is_unfinished(b"scores", &unfinished_name(b"scores.zip", 1)));
        assert!(!is_unfinished(b"scores.zip", b".scores.zip.notes.unfinished"));
    }
}
