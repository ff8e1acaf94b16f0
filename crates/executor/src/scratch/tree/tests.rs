use super::*;
use proptest::prelude::*;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

fn walked(folder: &Path, remember: Remember) -> u64 {
    let mut walk = Walk::new(folder, remember).unwrap();
    while walk.step() {}
    assert_eq!(walk.waiting_bytes, 0, "all that waited was entered");
    walk.bytes()
}

/// The blocks of all that is below a directory, each inode once.
fn expected(folder: &Path) -> u64 {
    let mut seen = HashSet::new();
    let (mut bytes, mut open) = (0, vec![folder.to_owned()]);
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let found = entry.metadata().unwrap();
            if seen.insert((found.dev(), found.ino())) {
                bytes += found.blocks() * BLOCK_BYTES;
            }
            if found.is_dir() {
                open.push(entry.path());
            }
        }
    }
    bytes
}

#[test]
fn blocks_count_and_not_sizes_each_inode_once_and_links_are_not_followed() {
    let site = tempfile::tempdir().unwrap();
    let folder = site.path().join("folder");
    fs::create_dir_all(folder.join("a/b")).unwrap();
    fs::write(site.path().join("outside"), vec![1; 1 << 20]).unwrap();
    fs::write(folder.join("a/file"), vec![1; 100_000]).unwrap();
    fs::hard_link(folder.join("a/file"), folder.join("a/b/again")).unwrap();
    fs::hard_link(folder.join("a/file"), folder.join("again")).unwrap();
    let sparse = fs::File::create(folder.join("sparse")).unwrap();
    sparse.set_len(1 << 40).unwrap();
    std::os::unix::fs::symlink(site.path(), folder.join("link")).unwrap();
    std::os::unix::fs::symlink("/", folder.join("a/root")).unwrap();
    let fifo = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, folder.join("fifo"), fifo, Mode::RWXU, 0).unwrap();
    for remember in [Remember::Linked, Remember::All] {
        let bytes = walked(&folder, remember);
        assert_eq!(bytes, expected(&folder), "{remember:?}");
        assert!((100_000..1 << 20).contains(&bytes), "{bytes}");
    }
}

#[test]
fn any_depth_is_seen_with_few_open_directories() {
    let site = tempfile::tempdir().unwrap();
    let mut here = rustix::fs::open(site.path(), OPEN_FOLDER, Mode::empty()).unwrap();
    for _ in 0..3_000 {
        rustix::fs::mkdirat(&here, c"down", Mode::RWXU).unwrap();
        rustix::fs::mkdirat(&here, c"aside", Mode::RWXU).unwrap();
        here = openat(&here, c"down", OPEN_FOLDER, Mode::empty()).unwrap();
    }
    let file = openat(&here, c"file", OFlags::CREATE | OFlags::WRONLY, Mode::RWXU).unwrap();
    rustix::io::write(&file, &[1; 50_000]).unwrap();
    let mut walk = Walk::new(site.path(), Remember::Linked).unwrap();
    let mut depth = 0;
    while walk.step() {
        let open = walk.levels.iter().filter(|level| level.folder.is_some()).count();
        assert!(open <= OPEN_LEVELS_MAX + 2, "{open} are open");
        depth = depth.max(walk.levels.len());
    }
    assert_eq!(depth, 3_001);
    let one = rustix::fs::fstat(&here).unwrap().st_blocks as u64 * BLOCK_BYTES;
    assert!(walk.bytes() >= 50_000 + 6_000 * one, "{}", walk.bytes());
    drop((here, file));
    falkon_data::unpack::remove(site.path()).unwrap();
}

#[test]
fn what_vanishes_moves_or_may_not_be_read_is_passed_over() {
    let site = tempfile::tempdir().unwrap();
    let folder = site.path().join("folder");
    for number in 0..50 {
        let inner = folder.join(format!("{number}/a/b/c"));
        fs::create_dir_all(&inner).unwrap();
        fs::write(inner.join("file"), vec![1; 9_000]).unwrap();
    }
    let all = expected(&folder);
    let mut walk = Walk::new(&folder, Remember::Linked).unwrap();
    let mut steps = 0;
    while walk.step() {
        steps += 1;
        if steps % 3 == 0 && steps < 100 {
            let number = steps % 50;
            let (from, to) = (folder.join(number.to_string()), site.path().join(steps.to_string()));
            let _ = fs::rename(from, to);
            let _ = fs::remove_dir_all(folder.join(format!("{}", (steps + 7) % 50)));
        }
    }
    assert!(walk.bytes() <= all, "{} of {all}", walk.bytes());
    // All of it may go.
    let mut walk = Walk::new(&folder, Remember::Linked).unwrap();
    walk.step();
    fs::remove_dir_all(&folder).unwrap();
    while walk.step() {}
    assert!(Walk::new(&folder, Remember::Linked).is_err());
}

#[test]
fn a_file_that_is_renamed_during_a_walk_counts_once_where_all_are_remembered() {
    let site = tempfile::tempdir().unwrap();
    for name in ["a", "b"] {
        fs::create_dir(site.path().join(name)).unwrap();
    }
    // Wherever the walk has been, the file is where it will be next.
    let bytes = |remember| {
        let file = |name: &str| site.path().join(name).join("file");
        fs::write(file("a"), vec![1; 1 << 20]).unwrap();
        let mut walk = Walk::new(site.path(), remember).unwrap();
        let mut at = "a";
        while walk.step() {
            let to = if at == "a" { "b" } else { "a" };
            fs::rename(file(at), file(to)).unwrap();
            at = to;
        }
        fs::remove_file(file(at)).unwrap();
        walk.bytes()
    };
    assert!(bytes(Remember::All) < 3 << 19);
    let _ = bytes(Remember::Linked);
}

fn make(at: &Path, shape: &[(u8, u16)]) {
    let mut folders = vec![at.to_owned()];
    let mut files: Vec<PathBuf> = Vec::new();
    for (number, (what, size)) in shape.iter().enumerate() {
        let path = folders[usize::from(*size) % folders.len()].join(format!("{number}"));
        match what % 4 {
            0 => {
                fs::create_dir(&path).unwrap();
                folders.push(path);
            }
            1 if !files.is_empty() => {
                let of = &files[usize::from(*size) % files.len()];
                fs::hard_link(of, &path).unwrap();
            }
            _ => {
                fs::write(&path, vec![7; usize::from(*size)]).unwrap();
                files.push(path);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn a_walk_sees_what_a_simple_one_sees(
        shape in prop::collection::vec((any::<u8>(), any::<u16>()), 0..120),
    ) {
        let site = tempfile::tempdir().unwrap();
        make(site.path(), &shape);
        for remember in [Remember::Linked, Remember::All] {
            prop_assert_eq!(walked(site.path(), remember), expected(site.path()));
        }
    }
}
