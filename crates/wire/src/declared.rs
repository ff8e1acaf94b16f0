//! Inputs and outputs that a task declares, as text.
//!
//! A declaration is a file, which a task finds or leaves where it is, or a
//! data object under a name: `NAME=SOURCE`, which is brought to where the task
//! runs. Executors and clients must read the text alike, so this is the one
//! place that does.

/// The source of an object that lives in caches alone: `cache:KEY`.
pub const CACHE_SCHEME: &[u8] = b"cache:";

/// A declared input or output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Declared<'a> {
    /// A file by its path, seen from the task's folder: it must be there.
    File(&'a [u8]),
    /// A data object.
    Object {
        /// The object's path in the task's sandbox.
        name: &'a [u8],
        /// Where it comes from or goes to: a path, an address, `cache:KEY`.
        source: &'a [u8],
    },
}

impl<'a> Declared<'a> {
    /// Reads a declaration. A file whose path has a `=` is told from an object
    /// by a `/` or `.` in front, as in `./a=b`.
    #[must_use]
    pub fn read(text: &'a [u8]) -> Declared<'a> {
        let file = Declared::File(text);
        if matches!(text.first(), None | Some(b'/' | b'.' | b'=')) {
            return file;
        }
        match text.iter().position(|byte| *byte == b'=') {
            Some(at) => Declared::Object { name: &text[..at], source: &text[at + 1..] },
            None => file,
        }
    }

    /// The object's name and source, if it is one.
    #[must_use]
    pub fn object(self) -> Option<(&'a [u8], &'a [u8])> {
        match self {
            Declared::File(_) => None,
            Declared::Object { name, source } => Some((name, source)),
        }
    }
}

/// The objects among declarations: name and source of each, in order.
pub fn objects(texts: &[Vec<u8>]) -> impl Iterator<Item = (&[u8], &[u8])> {
    texts.iter().filter_map(|text| Declared::read(text).object())
}

/// Whether a name stays within the sandbox: it is relative, and no part of it
/// is empty, `.` or `..`.
#[must_use]
pub fn is_inner_name(name: &[u8]) -> bool {
    name.split(|byte| *byte == b'/').all(|part| !matches!(part, b"" | b"." | b".."))
        && !name.contains(&0)
}

/// The folder that an output is, if its name says so by a slash at its end: the files in it
/// are written as an archive.
#[must_use]
pub fn written_folder(name: &[u8]) -> Option<&[u8]> {
    name.strip_suffix(b"/")
}

/// Under which name a call finds an object that its command does not name: the
/// `place`-th of those that it reads, or of those that it writes (from 0), whose
/// URL is `url`. It ends as the URL does, as programs look at endings.
#[must_use]
pub fn call_name(url: &str, place: usize, is_written: bool) -> String {
    let plain = url.split(['?', '#']).next().unwrap_or(url);
    let plain = plain.strip_prefix("cache:").unwrap_or(plain);
    let base = plain.rsplit('/').next().unwrap_or(plain);
    let base = if is_inner_name(base.as_bytes()) { base } else { "object" };
    let folder = if is_written { "out" } else { "in" };
    format!("{folder}/{place}/{base}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_find_objects_by_their_places() {
        assert_eq!(call_name("/data/a.fits", 0, false), "in/0/a.fits");
        assert_eq!(call_name("https://host/b.csv?c=/d", 12, false), "in/12/b.csv");
        assert_eq!(call_name("cache:e/f.txt", 1, true), "out/1/f.txt");
        for url in ["cache:", "s3://bucket/key/", "/a/..", "cache:a\0b"] {
            let name = call_name(&url.replace("\\0", "\0"), 2, false);
            assert_eq!(name, "in/2/object", "{url}");
            assert!(is_inner_name(name.as_bytes()));
        }
    }

    #[test]
    fn files_are_told_from_objects() {
        for text in ["", "a", "dir/a", "./a=b", "/a=b", "../a=b", "=b", ".a=b"] {
            assert_eq!(Declared::read(text.as_bytes()), Declared::File(text.as_bytes()));
        }
        let object = |text: &'static str| Declared::read(text.as_bytes()).object().unwrap();
        assert_eq!(object("a=b"), (&b"a"[..], &b"b"[..]));
        assert_eq!(object("d/a=s3://c/k=v"), (&b"d/a"[..], &b"s3://c/k=v"[..]));
        assert_eq!(object("a="), (&b"a"[..], &b""[..]));
    }

    #[test]
    fn objects_are_those_among_files_in_their_order() {
        let texts = ["a=b", "file", "c=d", "./e=f"].map(|text| text.as_bytes().to_vec());
        let found: Vec<_> = objects(&texts).collect();
        assert_eq!(found, [(&b"a"[..], &b"b"[..]), (&b"c"[..], &b"d"[..])]);
    }

    #[test]
    fn names_stay_inside() {
        for name in ["a", "a/b", "...", "a..b"] {
            assert!(is_inner_name(name.as_bytes()), "{name}");
        }
        for name in ["", "/a", "a/", "a//b", "a/../b", "..", ".", "a/.", "a\0"] {
            assert!(!is_inner_name(name.as_bytes()), "{name}");
        }
    }
}
