//! A script in the place of a program: `falkon run 'echo {}'`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Whether the only word of a command has blanks and is no program here: on the search path, or
/// by its path.
pub(crate) fn is_script(word: &OsStr) -> bool {
    let bytes = word.as_bytes();
    let Some(blank) = bytes.iter().position(u8::is_ascii_whitespace) else { return false };
    if bytes.contains(&b'/') {
        // A path with blanks may lead to a program on another machine, unless what is before
        // the blank is a program itself, or has no slash.
        let first = Path::new(OsStr::from_bytes(&bytes[..blank]));
        let is_path = bytes[..blank].contains(&b'/') && !first.is_file();
        return !Path::new(word).exists() && !is_path;
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    !std::env::split_paths(&path).any(|folder| folder.join(word).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_are_told_from_programs() {
        for (word, is_it) in [
            ("echo", false),
            ("echo {}", true),
            ("sort {} > {.}.sorted", true),
            ("cat /etc/passwd", true),
            ("/bin/echo {}", true),
            ("/cluster/my programs/run", false),
            ("@sleep 1", true),
        ] {
            assert_eq!(is_script(OsStr::new(word)), is_it, "{word}");
        }
    }
}
