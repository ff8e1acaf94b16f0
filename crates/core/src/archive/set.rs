//! The names of a set's files. `scores.zip` is the first, the others are
//! `scores.part2.zip`, `scores.part3.zip`, and so on; those of `scores` are
//! `scores.part2`, `scores.part3`. So no two sets of a directory have a name in
//! common, unless the first file of one has the name of another's further file:
//! nothing creates such a set ([`whole_of`]). A directory lists a set, and no file
//! has a list of the others. Numbers may be missing.

use super::limits::SET_FILES_MAX;
use super::table::name_hash;

const SUFFIX: &[u8] = b".zip";
const PART: &[u8] = b".part";
const UNFINISHED: &[u8] = b".unfinished";

/// A name without its ending, and that ending.
fn split(name: &[u8]) -> (&[u8], &'static [u8]) {
    match name.strip_suffix(SUFFIX).filter(|stem| !stem.is_empty()) {
        Some(stem) => (stem, SUFFIX),
        None => (name, b""),
    }
}

/// The name of file number `number`, from 1, of the set whose first file has
/// this name.
#[must_use]
pub fn file_name(first: &[u8], number: u32) -> Vec<u8> {
    let (stem, ending) = split(first);
    match number {
        0 | 1 => first.to_vec(),
        _ => [stem, PART, number.to_string().as_bytes(), ending].concat(),
    }
}

/// The number of a file in the set whose first file is `first`; `None` if it is
/// not in it.
#[must_use]
pub fn number_of(first: &[u8], name: &[u8]) -> Option<u32> {
    if name == first {
        return Some(1);
    }
    let (of, number) = whole_of(name)?;
    (of == first).then_some(number)
}

/// The name of the first file of the set that a further file belongs to by its
/// own name, and its number there; `None` if no set has a further file of this
/// name.
#[must_use]
pub fn whole_of(name: &[u8]) -> Option<(Vec<u8>, u32)> {
    let (stem, ending) = split(name);
    let at = stem.windows(PART.len()).rposition(|window| window == PART)?;
    let (first, digits) = (&stem[..at], &stem[at + PART.len()..]);
    let is_number = digits.first().is_some_and(|digit| (b'1'..=b'9').contains(digit))
        && digits.iter().all(u8::is_ascii_digit);
    let number: u32 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    let is_further = is_number && (2..=SET_FILES_MAX).contains(&number);
    let first = [first, ending].concat();
    // `.zip` has no stem: its further files are `.zip.part2`.
    let is_of_it = !first.is_empty() && split(&first).1 == ending;
    (is_further && is_of_it).then_some((first, number))
}

/// A number, never 0, for the machine whose running kernel calls itself this.
#[must_use]
pub fn machine_number(boot: &str) -> u64 {
    name_hash(boot.as_bytes()).max(1)
}

/// The name that a file of the set has until it is whole: with a number for the
/// machine that writes it, and one for the file.
#[must_use]
pub fn unfinished_name(first: &[u8], machine: u64, token: u64) -> Vec<u8> {
    [b".", first, format!(".{machine:016x}{token:016x}").as_bytes(), UNFINISHED].concat()
}

/// The machine's number in such a name, of a file of the set that is being
/// written, or was never finished; `None` if it is no such name.
#[must_use]
pub fn unfinished_by(first: &[u8], name: &[u8]) -> Option<u64> {
    let rest = name.strip_prefix(b".")?.strip_prefix(first)?;
    let numbers = rest.strip_prefix(b".")?.strip_suffix(UNFINISHED)?;
    let is_whole = numbers.len() == 32 && numbers.iter().all(u8::is_ascii_hexdigit);
    let machine = numbers.get(..16).filter(|_| is_whole)?;
    u64::from_str_radix(std::str::from_utf8(machine).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_knows_its_files_by_their_names() {
        for first in [&b"scores.zip"[..], b"scores", b".zip", b".zip.zip", b"\xff.zip", b"a.part2"]
        {
            for number in [2, 9, 10, 65_536] {
                let name = file_name(first, number);
                assert_eq!(number_of(first, &name), Some(number));
                assert_eq!(whole_of(&name), Some((first.to_vec(), number)));
            }
            assert_eq!(number_of(first, first), Some(1));
        }
        assert_eq!(file_name(b"scores.zip", 2), b"scores.part2.zip");
        assert_eq!(file_name(b"scores", 3), b"scores.part3");
        for other in [
            "scores.part1.zip",
            "scores.part02.zip",
            "scores.part+2.zip",
            "scores.part.zip",
            "scores.part2.zi",
            "scores.part2",
            "scores.part99999999999.zip",
            "other.part2.zip",
            "scores.part2.zip.part3.zip",
            ".scores.zip.0000000000000001.unfinished",
        ] {
            assert_eq!(number_of(b"scores.zip", other.as_bytes()), None, "{other}");
        }
        for other in ["scores.zip", "scores", ".part2", ".part2.zip", ".zip", "a.part1", "a.part02"]
        {
            assert_eq!(whole_of(other.as_bytes()), None, "{other}");
        }
        let unfinished = unfinished_name(b"scores.zip", 7, u64::MAX);
        assert_eq!(number_of(b"scores.zip", &unfinished), None);
        assert_eq!(unfinished_by(b"scores.zip", &unfinished), Some(7));
        assert_eq!(unfinished_by(b"scores", &unfinished), None);
        assert_eq!(unfinished_by(b"scores.zip", b".scores.zip.notes.unfinished"), None);
    }

    proptest::proptest! {
        #[test]
        fn no_two_sets_have_a_further_file_in_common(
            one in "(a|\\.zip|\\.part|[1-3]){1,5}",
            other in "(a|\\.zip|\\.part|[1-3]){1,5}",
            numbers in (2_u32..33, 2_u32..33),
        ) {
            let names = (one.as_bytes(), other.as_bytes());
            let files = (file_name(names.0, numbers.0), file_name(names.1, numbers.1));
            proptest::prop_assert_eq!((names.0, numbers.0) == (names.1, numbers.1), files.0 == files.1);
        }
    }
}
