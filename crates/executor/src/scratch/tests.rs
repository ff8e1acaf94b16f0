use super::*;
use std::fs;

const LIMIT: Duration = Duration::from_secs(60);

fn scratch(site: &Path, number: u64) -> Scratch {
    Scratch::new(site, number, LIMIT, Arc::new(|line: &str| panic!("{line}")))
}

async fn next(scratch: &mut Scratch) -> Notice {
    tokio::time::timeout(LIMIT, scratch.recv()).await.expect("a notice")
}

#[tokio::test]
async fn a_task_with_more_than_it_claimed_is_named_and_its_neighbour_is_not() {
    let site = tempfile::tempdir().unwrap();
    let mut scratch = scratch(site.path(), 7);
    let (large, small) = (scratch.make(1, 1 << 20).unwrap(), scratch.make(2, 1 << 20).unwrap());
    assert_ne!(large, small);
    fs::write(small.join("file"), vec![1; 900_000]).unwrap();
    fs::write(large.join("file"), vec![1; 2 << 20]).unwrap();
    let Notice::Over { launch: 1, had_bytes } = next(&mut scratch).await else { panic!("not it") };
    assert!((2 << 20..3 << 20).contains(&had_bytes), "{had_bytes}");
    scratch.end(2);
    let Notice::Cleared { launch: 2, most_bytes } = next(&mut scratch).await else {
        panic!("the other one")
    };
    assert!((900_000..1 << 20).contains(&most_bytes), "{most_bytes}");
    assert!(!small.exists() && large.exists());
    scratch.end(1);
    assert!(matches!(next(&mut scratch).await, Notice::Cleared { launch: 1, .. }));
    assert!(scratch.due().is_none() && !large.exists());
    drop(scratch);
    assert_eq!(fs::read_dir(site.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_task_that_removes_or_replaces_its_directory_harms_nothing() {
    let site = tempfile::tempdir().unwrap();
    let mut scratch = scratch(site.path(), 7);
    let (gone, replaced) = (scratch.make(1, 1 << 20).unwrap(), scratch.make(2, 4096).unwrap());
    let other = site.path().join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("file"), vec![1; 1 << 20]).unwrap();
    fs::remove_dir(&gone).unwrap();
    fs::remove_dir(&replaced).unwrap();
    std::os::unix::fs::symlink(&other, &replaced).unwrap();
    for launch in [1, 2] {
        scratch.end(launch);
        let Notice::Cleared { most_bytes, .. } = next(&mut scratch).await else { panic!("over") };
        assert_eq!(most_bytes, 0);
    }
    assert!(other.join("file").exists() && !replaced.exists());
    // The directory of all is made again if somebody has removed it.
    fs::remove_dir_all(gone.parent().unwrap()).unwrap();
    assert!(scratch.make(3, 1).unwrap().exists());
}

#[test]
fn a_directory_that_cannot_be_made_is_named() {
    let site = tempfile::tempdir().unwrap();
    let file = site.path().join("file");
    fs::write(&file, "").unwrap();
    let error = scratch(&file, 1).make(1, 1).unwrap_err().to_string();
    assert!(error.starts_with("cannot create the scratch directory "), "{error}");
    assert!(error.contains("(--scratch of the executor"), "{error}");
}

#[tokio::test]
async fn what_killed_executors_have_left_is_removed_and_what_is_used_stays() {
    let site = tempfile::tempdir().unwrap();
    let name = |number: &str| site.path().join(format!("{}{number}", prefix()));
    let (left, other) = (name("00000000000000aa"), site.path().join("disk-elsewhere-0"));
    for folder in [&left, &other] {
        fs::create_dir_all(folder.join("task-0/deep")).unwrap();
        fs::write(folder.join("task-0/deep/file"), "x").unwrap();
    }
    std::os::unix::fs::symlink(&other, name("00000000000000bb")).unwrap();
    let mut used = scratch(site.path(), 0xcc);
    let path = used.make(1, 1 << 20).unwrap();
    assert!(disk_offer(site.path(), None) <= free_bytes(site.path()));
    assert_eq!(disk_offer(site.path(), Some(5)), 5);
    assert!(!left.exists() && path.exists() && other.join("task-0/deep/file").exists());
}

#[test]
fn offers_are_coarse_and_a_reserve_is_kept() {
    for bytes in [0, 1, 31, 32, 33, 1 << 30, (1 << 40) + 12_345, u64::MAX] {
        let offer = coarse(bytes);
        assert!(offer <= bytes && bytes - offer <= bytes / 16, "{offer} of {bytes}");
        assert_eq!(coarse(offer), offer);
    }
}

#[test]
fn looks_are_seldom_where_they_take_long_unless_the_disk_fills_up() {
    let gib = 1 << 30;
    let mut watched = Watched::new(PathBuf::from("x"), 10 * gib, 100 * gib);
    let second = Duration::from_secs(1);
    // Young, old, and near its limit.
    assert_eq!(watched.pause(Duration::ZERO), LOOK_MIN);
    assert_eq!(watched.pause(3600 * second), LOOK_MAX);
    watched.held_bytes = 10 * gib - 1;
    assert_eq!(watched.pause(3600 * second), LOOK_MIN);
    // Looks that take a second.
    assert!(!watched.seen(gib, second, 50 * gib));
    let due = watched.due;
    assert!(due >= watched.looked + COST_SHARE * second);
    watched.note_free(45 * gib);
    assert_eq!(watched.due, due, "it cannot have reached its limit");
    watched.note_free(41 * gib);
    assert_eq!(watched.due, watched.looked + 2 * second);
    // Once too much is seen, a second look decides.
    assert!(!watched.seen(11 * gib, second, 40 * gib) && watched.is_in_doubt);
    assert!(!watched.seen(9 * gib, second, 40 * gib) && !watched.is_in_doubt);
    assert!(!watched.seen(11 * gib, second, 40 * gib));
    assert!(watched.seen(12 * gib, second, 40 * gib));
    assert_eq!(watched.most_bytes, 12 * gib);
}
