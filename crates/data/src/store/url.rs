//! Where an object is.

use std::fmt;
use std::path::{Component, Path, PathBuf};

use falkon_core::archive::{place, split_member};

use super::{UrlError, folder};

/// Where an object is. Its text (`Display`) is canonical: a plain absolute
/// path, or a URL.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StoreUrl {
    /// An absolute path of a file system that all who use the object see alike.
    Posix(PathBuf),
    /// A directory at an absolute path, whose text ends in a slash: as an object it is a tar of
    /// what is in it.
    Folder(PathBuf),
    /// An `http:` or `https:` URL.
    Web(String),
    /// An object of S3 or a compatible store.
    S3 {
        /// The bucket.
        bucket: String,
        /// The object's name within it; not empty, without a slash in front.
        key: String,
    },
    /// A member of an archive, whose text is `ARCHIVE!MEMBER`. The name of the archive's
    /// first file ends with `.zip`.
    Member {
        /// Where the first file of the archive is; no member itself.
        archive: Box<StoreUrl>,
        /// The member's name.
        name: String,
    },
}

impl StoreUrl {
    /// Reads a plain path, or a `file:`, `http:`, `https:` or `s3:` URL. Paths
    /// must be absolute. One that ends in a slash is a directory's.
    ///
    /// # Errors
    /// [`UrlError`], with the text.
    pub fn parse(text: &str) -> Result<StoreUrl, UrlError> {
        StoreUrl::read(text, None)
    }

    /// Like [`parse`](StoreUrl::parse), with relative paths taken from the
    /// directory `base`, which is absolute.
    ///
    /// # Errors
    /// [`UrlError`], with the text.
    pub fn parse_in(text: &str, base: &Path) -> Result<StoreUrl, UrlError> {
        StoreUrl::read(text, Some(base))
    }

    fn read(text: &str, base: Option<&Path>) -> Result<StoreUrl, UrlError> {
        if text.contains('\0') {
            return Err(UrlError::ZeroByte { text: text.replace('\0', "\\0") });
        }
        if let Some((archive, name)) = split_member(text) {
            return member(text, (archive, name), base);
        }
        let Some((scheme, rest)) = scheme_of(text) else {
            return path(text, text, base);
        };
        match scheme.to_ascii_lowercase().as_str() {
            "file" => file(text, rest, base),
            "http" | "https" => web(text).map(StoreUrl::Web),
            "s3" => s3(text, rest),
            _ => Err(UrlError::Scheme { text: text.to_owned(), scheme: scheme.to_owned() }),
        }
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // A name that has what divides an archive from its members is written so that it
            // has not.
            StoreUrl::Posix(path) => match path.display().to_string() {
                text if split_member(&text).is_some() => {
                    write!(f, "file://{}", text.replace('%', "%25").replace('!', "%21"))
                }
                text => f.write_str(&text),
            },
            StoreUrl::Folder(path) => match folder::text(path) {
                text if split_member(&text).is_some() => {
                    write!(f, "file://{}", text.replace('%', "%25").replace('!', "%21"))
                }
                text => f.write_str(&text),
            },
            StoreUrl::Web(url) => f.write_str(url),
            StoreUrl::S3 { bucket, key } => write!(f, "s3://{bucket}/{key}"),
            StoreUrl::Member { archive, name } => write!(f, "{archive}!{name}"),
        }
    }
}

/// A member of an archive: `text` is what `parts` are of.
fn member(text: &str, parts: (&str, &str), base: Option<&Path>) -> Result<StoreUrl, UrlError> {
    let (archive, name) = parts;
    let wrong = |reason: String| {
        let (archive, name) = (archive.to_owned(), name.to_owned());
        UrlError::Member { archive, name, reason }
    };
    place(name.as_bytes()).map_err(|error| wrong(error.to_string()))?;
    if name.ends_with('/') {
        return Err(wrong("its name is a directory's".to_owned()));
    }
    let archive = StoreUrl::read(archive, base)?;
    let is_whole = split_member(&format!("{archive}!{name}"))
        .is_some_and(|(first, _)| first.len() == archive.to_string().len());
    if !is_whole {
        let text = text.to_owned();
        return Err(UrlError::Web { text, reason: "`.zip!` is not behind a path".to_owned() });
    }
    Ok(StoreUrl::Member { archive: Box::new(archive), name: name.to_owned() })
}

/// The scheme of a URL and what follows its colon. A plain path may have a
/// colon, so only `NAME://` and `file:` count.
fn scheme_of(text: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = text.split_once(':')?;
    let named = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    let is_url = rest.starts_with("//") || scheme.eq_ignore_ascii_case("file");
    (named && is_url).then_some((scheme, rest))
}

/// An absolute path without `.`, doubled slashes and a slash at its end, of a file or of a
/// directory. `..` stays: what it leads to depends on symbolic links.
fn path(text: &str, name: &str, base: Option<&Path>) -> Result<StoreUrl, UrlError> {
    let is_folder = name.ends_with('/') || name.ends_with("/.") || name == ".";
    if name.is_empty() {
        return Err(UrlError::Empty);
    }
    let given = Path::new(name);
    let whole = match base {
        Some(base) => base.join(given),
        None if given.is_absolute() => given.to_owned(),
        None => return Err(UrlError::Relative { text: text.to_owned() }),
    };
    let plain = whole.components().filter(|part| *part != Component::CurDir).collect();
    Ok(if is_folder { StoreUrl::Folder(plain) } else { StoreUrl::Posix(plain) })
}

/// The path of a `file:` URL (RFC 8089), whose bytes may be written as `%XX`.
fn file(text: &str, rest: &str, base: Option<&Path>) -> Result<StoreUrl, UrlError> {
    let name = match rest.strip_prefix("//") {
        None => rest,
        Some(rest) => {
            let at = rest.find('/').unwrap_or(rest.len());
            let (host, name) = rest.split_at(at);
            if !host.is_empty() && !host.eq_ignore_ascii_case("localhost") {
                let (text, host) = (text.to_owned(), host.to_owned());
                return Err(UrlError::FileHost { text, host });
            }
            name
        }
    };
    let name = unescape(name).ok_or_else(|| UrlError::Escape { text: text.to_owned() })?;
    path(text, &name, base)
}

/// Replaces each `%XX` by its byte. `None` if there is another `%`, a zero
/// byte, or something that is not UTF-8.
fn unescape(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || char::from(rest.next()?).to_digit(16);
        match digit()? * 16 + digit()? {
            0 => return None,
            byte => bytes.push(byte as u8),
        }
    }
    String::from_utf8(bytes).ok()
}

/// A URL as web servers and proxies understand it. A fragment is for the reader
/// of a page and never sent, so it is no part of an object's name.
fn web(text: &str) -> Result<String, UrlError> {
    let mut url = reqwest::Url::parse(text)
        .map_err(|source| UrlError::Web { text: text.to_owned(), reason: source.to_string() })?;
    url.set_fragment(None);
    Ok(url.into())
}

const DOUBLED: &str = "it has two slashes in a row";

fn s3(text: &str, rest: &str) -> Result<StoreUrl, UrlError> {
    let rest = rest.strip_prefix("//").unwrap_or(rest);
    let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
    let good = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    if bucket.is_empty() || !bucket.chars().all(good) {
        return Err(UrlError::Bucket { text: text.to_owned(), bucket: bucket.to_owned() });
    }
    let wrong = |reason| UrlError::Key { text: text.to_owned(), reason };
    if key.is_empty() {
        return Err(wrong("it names no object within the bucket"));
    }
    if key.starts_with('/') {
        return Err(wrong(DOUBLED));
    }
    if key.ends_with('/') {
        return Err(wrong("it ends with a slash, so it names a folder"));
    }
    if let Err(error) = object_store::path::Path::parse(key) {
        return Err(wrong(match error {
            object_store::path::Error::EmptySegment { .. } => DOUBLED,
            _ => "it has a part that is . or .. or a control character",
        }));
    }
    Ok(StoreUrl::S3 { bucket: bucket.to_owned(), key: key.to_owned() })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(text: &str, canonical: &str) {
        let url = StoreUrl::parse_in(text, Path::new("/base/dir")).unwrap();
        assert_eq!(url.to_string(), canonical, "{text}");
        assert_eq!(StoreUrl::parse(canonical).unwrap(), url, "{text}");
    }

    #[test]
    fn one_place_has_one_text() {
        check("/a/b", "/a/b");
        check("/a//b/./c", "/a/b/c");
        check("/a/../b", "/a/../b");
        check("/a//b/./", "/a/b/");
        check("/", "/");
        check("a/.", "/base/dir/a/");
        check(".", "/base/dir/");
        check("file:///a%20b/", "/a b/");
        check("file:///a%25.zip%21/", "file:///a%25.zip%21/");
        check("x", "/base/dir/x");
        check("./x:y", "/base/dir/x:y");
        check("x:y", "/base/dir/x:y");
        check("file:///a/b%20c", "/a/b c");
        check("FILE://localhost/a", "/a");
        check("file:/a", "/a");
        check("file:a", "/base/dir/a");
        check("http://Example.COM/a?b=c#d", "http://example.com/a?b=c");
        check("https://example.com:443/a%20b", "https://example.com/a%20b");
        check("s3://bucket/a/b c%", "s3://bucket/a/b c%");
        check("a.zip!7/b c%#!", "/base/dir/a.zip!7/b c%#!");
        check("/x//a.zip!b.zip!c", "/x/a.zip!b.zip!c");
        check("https://Example.com/a.zip!b#c", "https://example.com/a.zip!b#c");
        check("s3://bucket/a.zip!b", "s3://bucket/a.zip!b");
        check("file:///a%20.zip!b", "/a .zip!b");
        check("/a!b", "/a!b");
        check("file:///a%25.zip%21b", "file:///a%25.zip%21b");
        check("file:/a.zip%21b.zip!c", "file:///a.zip%21b.zip!c");
    }

    #[test]
    fn what_is_no_place_is_told_apart() {
        let error = |text: &str| StoreUrl::parse(text).unwrap_err().to_string();
        let has = |text: &str, part: &str| {
            let error = error(text);
            assert!(error.contains(part), "{text}: {error}");
        };
        has("", "empty");
        has("a", "absolute");
        has("file:a", "absolute");
        has("gs://bucket/a", "gs");
        has("file://host/a", "host");
        has("file:///a%2", "%");
        has("file:///a%00", "%");
        has("http://", "host");
        has("s3://", "bucket");
        has("s3://b", "no object");
        has("s3://b/", "no object");
        has("s3://b/a/", "folder");
        has("s3://b//a", "slashes");
        has("s3://b/../a", "..");
        has("s3://b c/a", "bucket");
        has("/a\0", "zero byte");
        has("/a.zip!", "the member `` of the archive /a.zip");
        has("/a.zip!../b", "`..`");
        has("/a.zip!/b", "absolute");
        has("/a.zip!b/", "directory");
        has("a.zip!b", "absolute one");
        has("http://a.zip!b", "behind a path");
        has("http://a/b#c.zip!d", "behind a path");
    }

    proptest! {
        #[test]
        fn any_text_is_a_canonical_place_or_an_error(
            text in "(file:|http://|s3://|/)?([a-z0-9./:%#! \u{e9}\u{0}-]|[.]zip!|%21){0,20}|\\PC*"
        ) {
            if let Ok(url) = StoreUrl::parse(&text) {
                prop_assert_eq!(StoreUrl::parse(&url.to_string()), Ok(url));
            }
        }
    }
}
