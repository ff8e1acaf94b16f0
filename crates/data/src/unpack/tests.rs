#![allow(clippy::unwrap_used, reason = "all of this is tests")]

use super::*;
use ::tar::{Builder, EntryType, Header};
use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

/// An archive in the making: headers as nobody well-meaning writes them.
struct Packed(Builder<Vec<u8>>);

impl Packed {
    fn new() -> Packed {
        Packed(Builder::new(Vec::new()))
    }

    fn add(mut self, kind: EntryType, name: &str, link: &str, mode: u32, bytes: &[u8]) -> Packed {
        let mut header = Header::new_gnu();
        header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
        header.as_gnu_mut().unwrap().linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_mtime(1_000_000);
        header.set_size(bytes.len() as u64);
        header.set_cksum();
        self.0.append(&header, bytes).unwrap();
        self
    }

    fn file(self, name: &str, text: &str) -> Packed {
        self.add(EntryType::Regular, name, "", 0o644, text.as_bytes())
    }

    fn link(self, name: &str, to: &str) -> Packed {
        self.add(EntryType::Symlink, name, to, 0o777, b"")
    }

    fn bytes(self) -> Vec<u8> {
        self.0.into_inner().unwrap()
    }
}

struct Rig {
    folder: tempfile::TempDir,
}

impl Rig {
    fn new() -> Rig {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("trees")).unwrap();
        Rig { folder }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join("trees").join(name)
    }

    /// Counts and unpacks; what was counted is enough.
    fn unpack(&self, archive: &[u8]) -> Result<u64, UnpackError> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(archive).unwrap();
        let counted = measure(&file, 1 << 30)?;
        let _ = remove(&self.at("env"));
        let bytes = unpack(&file, &self.at("env"), counted)?;
        assert!(bytes <= counted, "{bytes} of {counted}");
        Ok(bytes)
    }

    fn refusal(&self, archive: Packed) -> String {
        self.unpack(&archive.bytes()).unwrap_err().to_string()
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.at("env").join(name)).unwrap()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        // Whatever has happened, nothing was written outside.
        let names = fs::read_dir(self.folder.path()).unwrap();
        let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
        if !std::thread::panicking() {
            assert_eq!(names, ["trees"]);
        }
        remove(&self.at("env")).unwrap();
        assert_eq!(fs::read_dir(self.at("")).unwrap().count(), 0);
    }
}

fn environment() -> Packed {
    Packed::new()
        .add(EntryType::Directory, "./", "", 0o755, b"")
        .add(EntryType::Directory, "./bin/", "", 0o755, b"")
        .add(EntryType::Regular, "./bin/tool", "", 0o4755, b"#!/bin/sh\necho tool\n")
        .file("lib/deep/data.txt", "data")
        .link("bin/python", "/usr/bin/python3")
        .link("lib/same.txt", "deep/../deep/data.txt")
        .add(EntryType::Link, "lib/hard.txt", "./lib/deep/data.txt", 0o644, b"")
}

#[test]
fn an_archive_is_unpacked_read_only_whatever_packed_it() {
    let rig = Rig::new();
    let plain = environment().bytes();
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(&plain).unwrap();
    for archive in [plain.clone(), gz.finish().unwrap(), zstd::encode_all(&*plain, 1).unwrap()] {
        rig.unpack(&archive).unwrap();
        assert_eq!(rig.text("lib/deep/data.txt"), "data");
        assert_eq!(rig.text("lib/same.txt"), "data");
        assert_eq!(rig.text("lib/hard.txt"), "data");
        let mode = |name| fs::symlink_metadata(rig.at("env").join(name)).unwrap().mode() & 0o7777;
        // No setuid, and nobody writes.
        assert_eq!((mode("bin/tool"), mode("lib/deep/data.txt")), (0o555, 0o444));
        assert_eq!((mode(""), mode("lib/deep")), (0o555, 0o555));
        let target = fs::read_link(rig.at("env/bin/python")).unwrap();
        assert_eq!(target, Path::new("/usr/bin/python3"));
        // Compiled Python is valid for a source of just this time.
        assert_eq!(fs::metadata(rig.at("env/bin/tool")).unwrap().mtime(), 1_000_000);
    }
}

#[test]
fn long_names_come_as_gnu_and_as_posix_write_them() {
    let rig = Rig::new();
    let long = "long/".repeat(40) + "name";
    let mut gnu = Builder::new(Vec::new());
    let mut header = Header::new_gnu();
    header.set_size(3);
    header.set_mode(0o644);
    gnu.append_data(&mut header, &long, &b"gnu"[..]).unwrap();
    rig.unpack(&gnu.into_inner().unwrap()).unwrap();
    assert_eq!(rig.text(&long), "gnu");
    let record = format!(" path={long}\n");
    let length = (record.len()..).find(|all| format!("{all}{record}").len() == *all).unwrap();
    let attributes = format!("{length}{record}");
    let posix = Packed::new()
        .add(EntryType::XHeader, "x", "", 0o644, attributes.as_bytes())
        .file("short", "posix");
    rig.unpack(&posix.bytes()).unwrap();
    assert_eq!(rig.text(&long), "posix");
}

#[test]
fn nothing_is_written_outside_and_the_refused_entry_is_named() {
    let rig = Rig::new();
    for (archive, said) in [
        (Packed::new().file("../out", ""), "`../out` leads out of the archive"),
        (Packed::new().file("a/../../out", ""), "`a/../../out` leads out"),
        (Packed::new().file("/out", ""), "`/out` has an absolute path"),
        (Packed::new().link("a/up", "../../out"), "`a/up` is a link to outside"),
        (Packed::new().link("up", "x/../../out"), "`up` is a link to outside"),
        (
            Packed::new().add(EntryType::Link, "hard", "../out", 0, b""),
            "`hard` is a link to outside",
        ),
        (
            Packed::new().add(EntryType::Link, "hard", "/etc/passwd", 0, b""),
            "`hard` is a link to outside",
        ),
        (
            Packed::new().add(EntryType::Link, "hard", "none", 0, b""),
            "`hard` is a link to what is not before it",
        ),
        (Packed::new().add(EntryType::Char, "null", "", 0o666, b""), "`null` is a device"),
        (Packed::new().add(EntryType::Block, "disk", "", 0o666, b""), "`disk` is a device"),
        (Packed::new().add(EntryType::Fifo, "pipe", "", 0o666, b""), "`pipe` is a named pipe"),
        (
            Packed::new().add(EntryType::GNUSparse, "holes", "", 0o666, b""),
            "`holes` is a sparse file",
        ),
        (
            Packed::new().link("etc", "/etc").file("etc/out", "x"),
            "`etc/out` is within what the archive has as a file or a link",
        ),
        (
            Packed::new().link("etc", "/etc").add(EntryType::Link, "mine", "etc/passwd", 0, b""),
            "`mine` is within what the archive has as a file or a link",
        ),
        (Packed::new().file("a", "").file("a/b", ""), "`a/b` is within what"),
        (Packed::new().file("a/b", "").file("a", ""), "`a` is a folder in the archive too"),
        (Packed::new().file(&"d/".repeat(49), ""), ""),
    ] {
        if said.is_empty() {
            rig.unpack(&archive.bytes()).unwrap();
            continue;
        }
        let found = rig.refusal(archive);
        assert!(found.contains(said), "{found}");
    }
}

#[test]
fn of_entries_with_one_name_the_last_counts_and_none_is_written_through() {
    let rig = Rig::new();
    let outside = rig.folder.path().join("trees/outside");
    fs::write(&outside, "outside").unwrap();
    let archive = Packed::new()
        .link("a", outside.to_str().unwrap())
        .file("a", "first")
        .file("a", "second")
        .file("b", "b")
        .link("b", "a");
    rig.unpack(&archive.bytes()).unwrap();
    assert_eq!((rig.text("a"), rig.text("b")), ("second".to_owned(), "second".to_owned()));
    assert_eq!(fs::read_to_string(&outside).unwrap(), "outside");
    fs::remove_file(outside).unwrap();
}

#[test]
fn a_bomb_is_refused_before_anything_is_written() {
    let rig = Rig::new();
    let file = |bytes: &[u8]| {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    };
    // Few bytes that become many, and a header that says that there are many.
    let zeros = Packed::new().add(EntryType::Regular, "zeros", "", 0o644, &vec![0; 8 << 20]);
    let zeros = file(&zstd::encode_all(&*zeros.bytes(), 1).unwrap());
    let mut header = Header::new_gnu();
    header.set_path("huge").unwrap();
    header.set_size(u64::MAX / 2);
    header.set_cksum();
    let many = (0..300).fold(Packed::new(), |all, at| all.file(&format!("d{at}/f"), ""));
    for (bomb, entry) in
        [(zeros, "zeros"), (file(header.as_bytes()), "huge"), (file(&many.bytes()), "d127/f")]
    {
        let said = measure(&bomb, 1 << 20).unwrap_err().to_string();
        assert!(said.contains("1048576") && said.contains(&format!("`{entry}`")), "{said}");
        // It is not written either if somebody has counted wrong.
        assert!(unpack(&bomb, &rig.at("env"), 1 << 20).is_err());
        remove(&rig.at("env")).unwrap();
    }
}

#[test]
fn what_is_no_archive_or_half_of_one_is_refused() {
    let rig = Rig::new();
    let plain = environment().bytes();
    let packed = zstd::encode_all(&*plain, 1).unwrap();
    for (bytes, said) in [
        (&b""[..], "no tar archive"),
        (b"#!/bin/sh\n", "no tar archive"),
        (&[7; 1024], "no tar archive"),
        (b"PK\x03\x04", "ZIP"),
        (b"\xfd7zXZ\0", "xz"),
        (&plain[..2000], "damaged"),
        (&packed[..packed.len() / 2], "damaged"),
    ] {
        let found = rig.unpack(bytes).unwrap_err().to_string();
        assert!(found.contains(said), "{found}");
    }
}

fn with_hook(script: &str) -> Vec<u8> {
    let script = format!("#!/bin/sh\n{script}\n");
    environment().add(EntryType::Regular, HOOK, "", 0o755, script.as_bytes()).bytes()
}

#[test]
fn conda_unpack_runs_once_in_the_place_of_the_tree() {
    let rig = Rig::new();
    rig.unpack(&with_hook("tool > lib/said; pwd >> lib/deep/data.txt")).unwrap();
    assert_eq!(rig.text("lib/said"), "tool\n");
    assert_eq!(rig.text("lib/deep/data.txt"), format!("data{}\n", rig.at("env").display()));
    let mode = fs::metadata(rig.at("env/lib/said")).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o444);
    let said = rig.unpack(&with_hook("echo no prefix >&2; exit 3")).unwrap_err().to_string();
    assert_eq!(said, "its bin/conda-unpack exited with 3: no prefix");
    let said = rig.unpack(&with_hook("head -c 40000000 /dev/zero > big")).unwrap_err().to_string();
    assert!(said.contains("conda-unpack made it 4"), "{said}");
    let said = hook::run(&rig.at("env"), Duration::ZERO).unwrap_err().to_string();
    assert!(said.contains("did not end"), "{said}");
}

#[test]
fn names_of_one_file_are_counted_once() {
    let rig = Rig::new();
    let text = "x".repeat(100_000);
    let git = (0..20).fold(Packed::new().file("bin/git", &text), |all, at| {
        all.add(EntryType::Link, &format!("bin/git-{at}"), "bin/git", 0o755, b"")
    });
    rig.unpack(&git.bytes()).unwrap();
    assert_eq!(rig.text("bin/git-19"), text);
}

/// An attribute, as POSIX writes it.
fn attribute(key: &str, value: &str) -> String {
    let record = format!(" {key}={value}\n");
    let length = (record.len()..).find(|all| format!("{all}{record}").len() == *all).unwrap();
    format!("{length}{record}")
}

#[test]
fn attributes_larger_than_their_entries_have_room() {
    let rig = Rig::new();
    let attributes = attribute("LIBARCHIVE.xattr.com.apple.ResourceFork", &"A".repeat(50_000));
    let archive = (0..10).fold(Packed::new(), |all, at| {
        all.add(EntryType::XHeader, "x", "", 0o644, attributes.as_bytes())
            .file(&format!("file{at}"), "text")
    });
    rig.unpack(&archive.bytes()).unwrap();
    assert_eq!(rig.text("file9"), "text");
}

#[test]
fn records_without_an_end_are_refused_where_an_entry_would_be() {
    let comment = attribute("comment", &"A".repeat(100_000));
    let archive = (0..100).fold(Packed::new(), |all, _| {
        all.add(EntryType::XGlobalHeader, "x", "", 0o644, comment.as_bytes())
    });
    let mut bytes = archive.bytes();
    // What follows is not looked at any more.
    bytes.truncate(5_000_000);
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&bytes).unwrap();
    let said = measure(&file, 1 << 20).unwrap_err().to_string();
    assert!(said.contains("1048576"), "{said}");
}

#[test]
fn a_hook_that_says_no_more_is_waited_for_no_longer_than_any() {
    let rig = Rig::new();
    rig.unpack(&environment().bytes()).unwrap();
    let folder = rig.at("hooked");
    fs::create_dir_all(folder.join("bin")).unwrap();
    let hook = folder.join(HOOK);
    fs::write(&hook, "#!/bin/sh\nexec > /dev/null 2>&1\nexec sleep 1000000\n").unwrap();
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
    let said = hook::run(&folder, Duration::from_millis(200)).unwrap_err().to_string();
    assert!(said.contains("did not end"), "{said}");
    remove(&folder).unwrap();
}

#[test]
fn what_keeps_a_hook_from_starting_may_pass() {
    for (error, expected) in [
        (rustix::io::Errno::TXTBSY, true),
        (rustix::io::Errno::AGAIN, true),
        (rustix::io::Errno::NOENT, false),
        (rustix::io::Errno::NOEXEC, false),
    ] {
        assert_eq!(HookError::Start(error.into()).is_passing(), expected, "{error}");
    }
    assert!(!HookError::Late { limit: Duration::ZERO }.is_passing());
}

#[test]
fn folders_within_folders_are_sealed_and_removed_however_deep_they_are() {
    // More than the stack of a thread, or most tables of descriptors, have room for.
    const DEPTH: u64 = 3_000;
    let rig = Rig::new();
    let root = rig.at("deep");
    fs::create_dir(&root).unwrap();
    let mut here = fs::File::open(&root).unwrap();
    for _ in 0..DEPTH {
        rustix::fs::mkdirat(&here, "d", 0o755.into()).unwrap();
        let below = rustix::fs::openat(&here, "d", descent::OPEN_FOLDER, 0.into()).unwrap();
        here = below.into();
    }
    let file = rustix::fs::OFlags::CREATE | rustix::fs::OFlags::WRONLY;
    drop(rustix::fs::openat(&here, "file", file, 0o644.into()).unwrap());
    fs::create_dir(root.join("beside")).unwrap();
    fs::write(root.join("beside/file"), "text").unwrap();
    // The folder, those within, and two files.
    assert_eq!(seal::seal(&root).unwrap(), (1 + DEPTH + 1 + 2) * BLOCK_BYTES);
    assert_eq!(here.metadata().unwrap().mode() & 0o777, 0o555);
    assert_eq!(fs::metadata(root.join("beside/file")).unwrap().mode() & 0o777, 0o444);
    drop(here);
    remove(&root).unwrap();
    assert!(!root.exists());
}
